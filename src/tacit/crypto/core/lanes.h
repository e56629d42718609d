/* Eight numbers per register: the types and the two instructions everything is made of.
 *
 * A number is K limbs of 52 bits, least significant first, and limb j of eight numbers is one register: every
 * instruction does the same to eight independent numbers. AVX-512 IFMA multiplies two 52-bit limbs and adds the
 * low or the high half of the product to a 64-bit accumulator, so 4,096 such halves can be added before a carry
 * has to be passed on (Gueron and Krasnov 2016).
 *
 * Functions carry the instruction set as an attribute, so one build serves every x86-64 CPU; the module refuses
 * to compute where the CPU lacks it. */

#ifndef TACIT_LANES_H
#define TACIT_LANES_H

#ifdef TACIT_EMULATED
#include "emulated.h"
#else
#include <immintrin.h>
#endif
#include <stddef.h>
#include <stdint.h>

#define LANES 8
#define LIMB 52                              /* bits of a limb */
#define GUARD 4                              /* spare bits above the modulus: 16 m <= R = 2^(52 K) */
#define MASK ((UINT64_C(1) << LIMB) - 1)

#ifdef TACIT_EMULATED
#define TARGET
#else
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,avx512vbmi")))
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define UNROLL32 _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL32 _Pragma("GCC unroll 32")
#endif

typedef ptrdiff_t idx;
typedef __m512i vec;

INLINE vec spread(uint64_t x) { return _mm512_set1_epi64((long long)x); }
INLINE vec add(vec a, vec b) { return _mm512_add_epi64(a, b); }
INLINE vec subtract(vec a, vec b) { return _mm512_sub_epi64(a, b); }
INLINE vec low_bits(vec a) { return _mm512_and_si512(a, spread(MASK)); }
INLINE vec carry_of(vec a) { return _mm512_srli_epi64(a, LIMB); }
INLINE vec borrow_of(vec a) { return _mm512_srli_epi64(a, 63); } /* 1 where a difference went below zero */
INLINE vec low_product(vec sum, vec a, vec b) { return _mm512_madd52lo_epu64(sum, a, b); }
INLINE vec high_product(vec sum, vec a, vec b) { return _mm512_madd52hi_epu64(sum, a, b); }

static inline idx least(idx a, idx b) { return a < b ? a : b; }
static inline idx most(idx a, idx b) { return a > b ? a : b; }

#endif
