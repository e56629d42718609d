/* A ring: residues modulo m as K limbs, or modulo m^2 as pairs of 2 K limbs, in Montgomery's form X R. */

#ifndef TACIT_RING_H
#define TACIT_RING_H

#include "bytes.h"
#include "pairs.h"
#include <stdlib.h>

typedef struct {
    modulus n;
    int pair;   /* modulo m^2 */
    idx size;   /* limbs of a residue: K, or 2 K of a pair */
    idx width;  /* bytes of a row */
    vec *unit;  /* the number 1 */
    vec *one;   /* the residue 1, R */
    vec *enter; /* what a parsed row is multiplied with to become X R */
    vec *room;  /* 2 K limbs */
    vec *wide;  /* 2 K limbs */
    const vec *bound; /* what rows are below: m, or the 2 K limbs of m^2 */
} ring;

/* Memory of one call: one block, handed out in pieces, and wiped at the end, because it held secrets. */
typedef struct {
    vec *start, *next;
    size_t bytes;
} arena;

static vec *take(arena *a, idx vectors)
{
    vec *piece = a->next;
    a->next += vectors;
    return piece;
}

static int claim(arena *a, idx vectors)
{
    a->bytes = (size_t)vectors * sizeof(vec);
    a->start = a->next = aligned_alloc(sizeof(vec), a->bytes);
    return a->start != NULL;
}

static void discard(arena *a)
{
    if (a->start)
        memset(a->start, 0, a->bytes);
    __asm__ volatile("" : : "r"(a->start) : "memory"); /* or the compiler would leave the memset out */
    free(a->start);
}

static inline idx limbs_of(idx bits) { return ((bits + GUARD + LIMB - 1) / LIMB + 1) / 2 * 2; }

static idx bits_of(const uint8_t *row, idx width)
{
    while (width > 0 && !*row)
        row++, width--;
    return width ? 8 * width - (__builtin_clz(*row) - 24) : 0;
}

/* The 2 K limbs of x + m y, from x and y below m. */
static TARGET void join_pair(vec *out, const vec *pair, const modulus *n)
{
    const idx k = n->k;
    const term t = {n->m, pair + k, k};
    vec carry = _mm512_setzero_si512();
    columns s;
    for (idx first = 0; first < 2 * k; first += 2) {
        products(&s, SUM, &t, 1, first, k, 2);
        for (int d = 0; d < 2; d++) {
            const vec column = add(add(s.low[d], carry), first + d < k ? pair[first + d] : _mm512_setzero_si512());
            out[first + d] = low_bits(column);
            carry = add(carry_of(column), s.high[d]);
        }
    }
}

static idx ring_vectors(idx k) { return 13 * k; } /* m, lift, unit, one, enter, room, wide, bound of a pair */

/* constants, rows of `width` bytes: m, R mod m, R^2 mod m; or m, -R mod m, and the pairs of R and R^3 mod m^2. */
static TARGET ring make_ring(arena *a, const uint8_t *constants, idx width, idx k, int pair, idx row_width)
{
    ring r = {.n = {.k = k}, .pair = pair, .size = pair ? 2 * k : k, .width = row_width};
    const uint8_t *next = constants;
    vec *m = take(a, k), *lift = take(a, k);
    parse_constant(m, next, width, k);
    next += width;
    r.n.m = m;
    uint64_t first = *(uint64_t *)m, inverse = first; /* Newton: 3, 6, 12, 24, 48, 96 bits */
    for (int i = 0; i < 5; i++)
        inverse *= 2 - first * inverse;
    r.n.inverse = (0 - inverse) & MASK;
    if (pair) { /* limbs of R - 1 are MASK, and one more makes R */
        parse_constant(lift, next, width, k);
        next += width;
        for (idx j = 0; j < k; j++)
            lift[j] = add(lift[j], spread(MASK + (j == 0)));
    }
    r.n.lift = lift;
    r.one = take(a, r.size);
    r.enter = take(a, r.size);
    for (idx part = 0; part < r.size; part += k, next += width)
        parse_constant(r.one + part, next, width, k);
    for (idx part = 0; part < r.size; part += k, next += width)
        parse_constant(r.enter + part, next, width, k);
    r.unit = take(a, k);
    for (idx j = 0; j < k; j++)
        r.unit[j] = spread(j == 0);
    r.room = take(a, 2 * k);
    r.wide = take(a, 2 * k);
    r.bound = m;
    if (pair) { /* 0 + m m */
        vec *square = take(a, 2 * k);
        for (idx j = 0; j < k; j++) {
            r.wide[j] = _mm512_setzero_si512();
            r.wide[k + j] = m[j];
        }
        join_pair(square, r.wide, &r.n);
        r.bound = square;
    }
    return r;
}

static inline void exchange(vec **a, vec **b)
{
    vec *c = *a;
    *a = *b;
    *b = c;
}

/* out = x y / R; out is neither x nor y. */
static void ring_multiply(const ring *r, vec *out, const vec *x, const vec *y)
{
    if (r->pair)
        multiply_pair(out, x, y, r->room, &r->n);
    else
        multiply(out, x, y, r->room, &r->n);
}

/* out = x x / R; out is not x. */
static void ring_square(const ring *r, vec *out, const vec *x)
{
    if (r->pair)
        square_pair(out, x, r->room, &r->n);
    else
        square(out, x, r->room, &r->n);
}

/* Lanes of x that are not below the bound, in `limbs` limbs. */
static TARGET unsigned not_below(const vec *x, const vec *bound, idx limbs)
{
    vec borrow = _mm512_setzero_si512();
    for (idx j = 0; j < limbs; j++)
        borrow = borrow_of(subtract(subtract(x[j], bound[j]), borrow));
    return (unsigned)(uint8_t)~_mm512_test_epi64_mask(borrow, borrow);
}

/* X R from up to eight rows; returns the lanes whose number is not below the modulus. */
static TARGET unsigned ring_enter(const ring *r, vec *out, const uint8_t *rows, idx count)
{
    const modulus *n = &r->n;
    const idx k = n->k;
    vec *x = r->wide;
    parse(x, rows, r->width, count, 0, r->size, LIMB);
    const unsigned outside = not_below(x, r->bound, r->size);
    if (!r->pair) {
        multiply(out, x, r->enter, r->room, n);
        return outside;
    }
    /* X = A + B R: REDC gives A = r R - q m, so X / R = (B + r) + m (-q / R). B + r < 2m where X < m^2. */
    const term t = {r->unit, x, least(k, 4)};
    reduce(x, r->room, SUM, &t, 1, NULL, n);
    vec carry = _mm512_setzero_si512();
    for (idx j = 0; j < k; j++) {
        const vec sum = add(add(x[j], x[k + j]), carry);
        x[j] = low_bits(sum);
        carry = carry_of(sum);
    }
    reduce(x + k, r->room + k, SUM, NULL, 0, r->room, n);
    multiply_pair(out, x, r->enter, r->room, n);
    return outside;
}

/* Rows of X from X R. */
static TARGET void ring_leave(const ring *r, uint8_t *rows, idx count, const vec *x)
{
    const modulus *n = &r->n;
    const idx k = n->k;
    vec *y = r->wide;
    if (!r->pair) {
        multiply(y, x, r->unit, r->room, n);
        settle(y, n);
        unparse(rows, r->width, count, y, k);
        return;
    }
    const term low = {r->unit, x, least(k, 4)}, high = {r->unit, x + k, least(k, 4)};
    reduce(y, r->room, SUM, &low, 1, NULL, n); /* at most m */
    reduce(y + k, r->room + k, SUM, &high, 1, r->room, n); /* at most m + 1 */
    const __mmask8 whole = (__mmask8)not_below(y, n->m, k);
    settle(y, n);
    vec carry = _mm512_maskz_set1_epi64(whole, 1); /* x = m counts as one m more */
    for (idx j = k; j < 2 * k; j++) {
        const vec sum = add(y[j], carry);
        y[j] = low_bits(sum);
        carry = carry_of(sum);
    }
    settle(y + k, n);
    join_pair(r->room, y, n);
    unparse(rows, r->width, count, r->room, 2 * k);
}

#endif
