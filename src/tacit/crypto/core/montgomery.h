/* Montgomery's product, column by column (Montgomery 1985; the order of Koc, Acar and Kaliski's FIPS 1996).
 *
 * With R = 2^(52 K) and m odd, REDC(t) = (t + q m) / R where q = -t / m mod R, so that R REDC(t) = t mod m. A
 * column c collects low(a_i b_j) for i + j = c and high(a_i b_j) for i + j = c - 1, and the same of q and m; column
 * c < K decides q_c, and columns c >= K are the result. BLOCK columns are summed at once: eight accumulators in
 * registers, two loads for eight multiplications, no store. A block is a full part, where every column takes the
 * same i, and small triangles where columns begin (i near c) or end (j near K).
 *
 * Bounds: for t < x R m the result is below (x + 1) m. With 16 m <= R, factors below 2m give results below 2m,
 * so nothing is subtracted between products ("almost Montgomery", Walter 1999).
 * Column sums: at most 2 K + 2 K halves for a plain product and 2 K (terms + 1) in general, below 4,096. */

#ifndef TACIT_MONTGOMERY_H
#define TACIT_MONTGOMERY_H

#include "lanes.h"

#define BLOCK 4

/* An odd modulus in every lane. K is even. */
typedef struct {
    idx k;
    uint64_t inverse; /* -1/m mod 2^52 */
    const vec *m;     /* its limbs, the same in each lane */
    const vec *lift;  /* pairs only (pairs.h): (-R mod m) + R in limbs that cover a subtraction of any q < R */
} modulus;

/* One product of a sum of products; a has `length` limbs that are not zero, rounded up to a multiple of 4. */
typedef struct {
    const vec *a, *b;
    idx length;
} term;

enum kind { SUM, SQUARE, TWICE }; /* sum of a_p b_p; a a; 2 a b */

typedef struct {
    vec low[BLOCK], high[BLOCK];
} columns;

/* Add a_i b_(c-i) to columns c = first .. first + C - 1 for from <= i < to; every c - i is a limb of b. */
INLINE void full(columns *s, const vec *a, const vec *b, idx first, idx from, idx to, const int C)
{
    for (idx i = from; i < to; i++) {
        const vec x = a[i], *y = b + (first - i);
        UNROLL for (int d = 0; d < C; d++) {
            const vec z = y[d];
            s->low[d] = low_product(s->low[d], x, z);
            s->high[d] = high_product(s->high[d], x, z);
        }
    }
}

INLINE void single(columns *s, int d, vec x, vec y)
{
    s->low[d] = low_product(s->low[d], x, y);
    s->high[d] = high_product(s->high[d], x, y);
}

/* Where columns begin: i = first + e reaches columns d >= e. */
INLINE void rising(columns *s, const vec *a, const vec *b, idx first, const int C)
{
    UNROLL for (int e = 0; e < C; e++)
        UNROLL for (int d = e; d < C; d++)
            single(s, d, a[first + e], b[d - e]);
}

/* Where columns end: i = first - K + 1 + e reaches columns d <= e. */
INLINE void falling(columns *s, const vec *a, const vec *b, idx first, idx k, idx below, const int C)
{
    UNROLL for (int e = 0; e < C - 1; e++)
        if (first - k + 1 + e < below)
            UNROLL for (int d = 0; d <= e; d++)
                single(s, d, a[first - k + 1 + e], b[k - 1 - e + d]);
}

/* The products of both halves of a column's range. Squares sum i < j once, double, and add the diagonal. */
INLINE void products(columns *s, const enum kind kind, const term *terms, const int count, idx first, idx k,
                     const int C)
{
    UNROLL for (int d = 0; d < C; d++)
        s->low[d] = s->high[d] = _mm512_setzero_si512();
    const idx edge = first + C - k; /* the first i whose columns all stay below K, if positive */
    if (kind == SQUARE) {
        const vec *a = terms->a;
        const idx half = first / 2; /* first is even */
        full(s, a, a, first, most(edge, 0), half, C);
        if (edge > 0)
            falling(s, a, a, first, k, half, C);
        UNROLL for (int d = 1; d < C; d++)
            UNROLL for (int e = 0; 2 * e < d; e++)
                if (half + d - e < k)
                    single(s, d, a[half + e], a[half + d - e]);
    } else
        for (int p = 0; p < count; p++) {
            const vec *a = terms[p].a, *b = terms[p].b;
            full(s, a, b, first, most(edge, 0), least(edge > 0 ? k : first, terms[p].length), C);
            if (edge > 0)
                falling(s, a, b, first, k, terms[p].length, C);
            else if (first < terms[p].length)
                rising(s, a, b, first, C);
        }
    if (kind != SUM)
        UNROLL for (int d = 0; d < C; d++) {
            s->low[d] = add(s->low[d], s->low[d]);
            s->high[d] = add(s->high[d], s->high[d]);
        }
    if (kind == SQUARE)
        UNROLL for (int d = 0; d < C; d += 2)
            if (first / 2 + d / 2 < k)
                single(s, d, terms->a[first / 2 + d / 2], terms->a[first / 2 + d / 2]);
}

/* Columns below K: decide q so that they vanish. */
INLINE vec vanish(columns *s, vec carry, vec *q, idx first, const modulus *n, const int C)
{
    const vec inverse = spread(n->inverse);
    full(s, q, n->m, first, 0, first, C);
    UNROLL for (int d = 0; d < C; d++) {
        const vec column = add(s->low[d], carry);
        const vec digit = low_product(_mm512_setzero_si512(), column, inverse);
        q[first + d] = digit;
        carry = carry_of(low_product(column, digit, n->m[0]));
        carry = add(carry, high_product(s->high[d], digit, n->m[0]));
        UNROLL for (int e = 1; e < C - d; e++)
            single(s, d + e, digit, n->m[e]);
    }
    return carry;
}

/* Columns from K on: limbs of the result. */
INLINE vec emit(columns *s, vec carry, const vec *q, vec *out, idx first, const modulus *n, const int C)
{
    const idx k = n->k;
    full(s, q, n->m, first, first + C - k, k, C);
    falling(s, q, n->m, first, k, k, C);
    UNROLL for (int d = 0; d < C; d++) {
        const vec column = add(s->low[d], carry);
        out[first - k + d] = low_bits(column);
        carry = add(carry_of(column), s->high[d]);
    }
    return carry;
}

/* out = REDC(products + lift - minus), the digits of q beside it. `minus` NULL: no lift. out may be an a or b. */
INLINE void reduce(vec *out, vec *q, const enum kind kind, const term *terms, const int count, const vec *minus,
                   const modulus *n)
{
    vec carry = _mm512_setzero_si512();
    columns s;
    idx first = 0;
#define LOW(C)                                                                                                        \
    products(&s, kind, terms, count, first, n->k, C);                                                                 \
    if (minus)                                                                                                        \
        UNROLL for (int d = 0; d < C; d++)                                                                            \
            s.low[d] = add(s.low[d], subtract(n->lift[first + d], minus[first + d]));                                 \
    carry = vanish(&s, carry, q, first, n, C);
#define HIGH(C)                                                                                                       \
    products(&s, kind, terms, count, first, n->k, C);                                                                 \
    carry = emit(&s, carry, q, out, first, n, C);
    for (; first + BLOCK <= n->k; first += BLOCK) {
        LOW(BLOCK)
    }
    if (first < n->k) {
        LOW(2)
        first += 2;
    }
    for (; first + BLOCK <= 2 * n->k; first += BLOCK) {
        HIGH(BLOCK)
    }
    if (first < 2 * n->k) {
        HIGH(2)
    }
#undef LOW
#undef HIGH
}

/* out = a b / R mod m, below 2m for factors below 2m; q is room for K limbs. */
static __attribute__((noinline)) TARGET void multiply(vec *out, const vec *a, const vec *b, vec *q, const modulus *n)
{
    const term t = {a, b, n->k};
    reduce(out, q, SUM, &t, 1, NULL, n);
}

/* out = a a / R mod m: a quarter fewer multiplications. */
static __attribute__((noinline)) TARGET void square(vec *out, const vec *a, vec *q, const modulus *n)
{
    const term t = {a, a, n->k};
    reduce(out, q, SQUARE, &t, 1, NULL, n);
}

/* out = (sum of a_p b_p) / R mod m for up to 7 terms. */
static __attribute__((noinline)) TARGET void combine(vec *out, const term *terms, int count, vec *q, const modulus *n)
{
    reduce(out, q, SUM, terms, count, NULL, n);
}

/* Subtract m where x >= m, in time that tells nothing of x; x is below 2m afterwards below m. */
static TARGET void settle(vec *x, const modulus *n)
{
    vec borrow = _mm512_setzero_si512();
    for (idx j = 0; j < n->k; j++)
        borrow = borrow_of(subtract(subtract(x[j], n->m[j]), borrow));
    const __mmask8 keep = _mm512_test_epi64_mask(borrow, borrow); /* x was below m */
    borrow = _mm512_setzero_si512();
    for (idx j = 0; j < n->k; j++) {
        const vec y = subtract(subtract(x[j], n->m[j]), borrow);
        borrow = borrow_of(y);
        x[j] = _mm512_mask_blend_epi64(keep, low_bits(y), x[j]);
    }
}

#endif
