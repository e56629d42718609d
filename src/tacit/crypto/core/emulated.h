/* The instructions of lanes.h in portable C, for tools that don't know AVX-512, such as valgrind. Never for speed.
 *
 * Nothing here branches on, or takes an address from, what a lane holds: a tool that follows values through the
 * program sees the same dependencies as in the registers. */

#ifndef TACIT_EMULATED_H
#define TACIT_EMULATED_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t w[8];
} __attribute__((aligned(64))) emulated;
typedef uint8_t emulated_mask8;
typedef uint64_t emulated_mask64;
#define __m512i emulated
#define __mmask8 emulated_mask8
#define __mmask64 emulated_mask64

#define EACH(expression)                                                                                              \
    emulated r;                                                                                                       \
    for (int i = 0; i < 8; i++)                                                                                       \
        r.w[i] = (expression);                                                                                        \
    return r;

static inline emulated _mm512_set1_epi64(long long x) { EACH((uint64_t)x) }
static inline emulated _mm512_setzero_si512(void) { EACH(0) }
static inline emulated _mm512_add_epi64(emulated a, emulated b) { EACH(a.w[i] + b.w[i]) }
static inline emulated _mm512_sub_epi64(emulated a, emulated b) { EACH(a.w[i] - b.w[i]) }
static inline emulated _mm512_and_si512(emulated a, emulated b) { EACH(a.w[i] & b.w[i]) }
static inline emulated _mm512_or_si512(emulated a, emulated b) { EACH(a.w[i] | b.w[i]) }
static inline emulated _mm512_srli_epi64(emulated a, unsigned n) { EACH(a.w[i] >> n) }

static inline unsigned __int128 emulated_product(uint64_t a, uint64_t b)
{
    const uint64_t mask = (UINT64_C(1) << 52) - 1;
    return (unsigned __int128)(a & mask) * (b & mask);
}

static inline emulated _mm512_madd52lo_epu64(emulated s, emulated a, emulated b)
{
    EACH(s.w[i] + ((uint64_t)emulated_product(a.w[i], b.w[i]) & ((UINT64_C(1) << 52) - 1)))
}

static inline emulated _mm512_madd52hi_epu64(emulated s, emulated a, emulated b)
{
    EACH(s.w[i] + (uint64_t)(emulated_product(a.w[i], b.w[i]) >> 52))
}

/* All ones where a bit is set. */
static inline uint64_t emulated_bit(uint64_t mask, int i) { return (uint64_t)0 - (mask >> i & 1); }
/* One where a value is not zero. */
static inline uint64_t emulated_some(uint64_t x) { return (x | (0 - x)) >> 63; }

static inline emulated _mm512_mask_blend_epi64(emulated_mask8 m, emulated a, emulated b)
{
    EACH((a.w[i] & ~emulated_bit(m, i)) | (b.w[i] & emulated_bit(m, i)))
}

static inline emulated _mm512_maskz_set1_epi64(emulated_mask8 m, long long x) { EACH((uint64_t)x & emulated_bit(m, i)) }

static inline emulated_mask8 _mm512_test_epi64_mask(emulated a, emulated b)
{
    uint64_t m = 0;
    for (int i = 0; i < 8; i++)
        m |= emulated_some(a.w[i] & b.w[i]) << i;
    return (emulated_mask8)m;
}

static inline emulated emulated_logic(emulated a, emulated b, emulated c, int table)
{
    EACH(((table >> 7 & 1) ? a.w[i] & b.w[i] & c.w[i] : 0) | ((table >> 6 & 1) ? a.w[i] & b.w[i] & ~c.w[i] : 0) |
         ((table >> 5 & 1) ? a.w[i] & ~b.w[i] & c.w[i] : 0) | ((table >> 4 & 1) ? a.w[i] & ~b.w[i] & ~c.w[i] : 0) |
         ((table >> 3 & 1) ? ~a.w[i] & b.w[i] & c.w[i] : 0) | ((table >> 2 & 1) ? ~a.w[i] & b.w[i] & ~c.w[i] : 0) |
         ((table >> 1 & 1) ? ~a.w[i] & ~b.w[i] & c.w[i] : 0) | ((table & 1) ? ~a.w[i] & ~b.w[i] & ~c.w[i] : 0))
}
#define _mm512_ternarylogic_epi64(a, b, c, table) emulated_logic(a, b, c, table)

static inline emulated _mm512_loadu_si512(const void *from)
{
    emulated r;
    memcpy(&r, from, sizeof r);
    return r;
}

static inline void _mm512_storeu_si512(void *to, emulated a) { memcpy(to, &a, sizeof a); }

typedef union {
    emulated all;
    uint8_t b[64];
    uint16_t h[32];
    uint32_t d[16];
} emulated_parts;

/* Every byte is read, and one kept by a mask. */
static inline emulated emulated_permute(const uint8_t *bytes, unsigned count, emulated index)
{
    emulated_parts x = {.all = index}, r;
    for (int i = 0; i < 64; i++) {
        uint64_t found = 0;
        for (unsigned j = 0; j < count; j++)
            found |= bytes[j] & ~((uint64_t)0 - emulated_some((x.b[i] & (count - 1)) ^ j));
        r.b[i] = (uint8_t)found;
    }
    return r.all;
}

static inline emulated _mm512_permutex2var_epi8(emulated a, emulated index, emulated b)
{
    const emulated both[2] = {a, b};
    return emulated_permute((const uint8_t *)both, 128, index);
}

static inline emulated _mm512_permutexvar_epi8(emulated index, emulated a)
{
    return emulated_permute((const uint8_t *)&a, 64, index);
}

static inline emulated_mask64 _mm512_movepi8_mask(emulated a)
{
    const emulated_parts x = {.all = a};
    uint64_t m = 0;
    for (int i = 0; i < 64; i++)
        m |= (uint64_t)(x.b[i] >> 7) << i;
    return m;
}

static inline emulated _mm512_mask_blend_epi8(emulated_mask64 m, emulated a, emulated b)
{
    const emulated_parts x = {.all = a}, y = {.all = b};
    emulated_parts r;
    for (int i = 0; i < 64; i++)
        r.b[i] = (uint8_t)((x.b[i] & ~emulated_bit(m, i)) | (y.b[i] & emulated_bit(m, i)));
    return r.all;
}

#define UNPACK(name, part, width, half)                                                                               \
    static inline emulated name(emulated a, emulated b)                                                               \
    {                                                                                                                 \
        const emulated_parts x = {.all = a}, y = {.all = b};                                                          \
        emulated_parts r;                                                                                             \
        for (int lane = 0; lane < 4; lane++)                                                                          \
            for (int i = 0; i < (width) / 2; i++) {                                                                   \
                r.part[lane * (width) + 2 * i] = x.part[lane * (width) + (half) * (width) / 2 + i];                   \
                r.part[lane * (width) + 2 * i + 1] = y.part[lane * (width) + (half) * (width) / 2 + i];               \
            }                                                                                                         \
        return r.all;                                                                                                 \
    }
UNPACK(_mm512_unpacklo_epi8, b, 16, 0)
UNPACK(_mm512_unpackhi_epi8, b, 16, 1)
UNPACK(_mm512_unpacklo_epi16, h, 8, 0)
UNPACK(_mm512_unpackhi_epi16, h, 8, 1)
UNPACK(_mm512_unpacklo_epi32, d, 4, 0)
UNPACK(_mm512_unpackhi_epi32, d, 4, 1)
#undef UNPACK
#undef EACH

#define _MM_HINT_T1 0
static inline void _mm_prefetch(const char *at, int hint)
{
    (void)at;
    (void)hint;
}

#endif
