/* Products, sums and quotients of whole vectors of rows, in plain residues of K limbs. */

#ifndef TACIT_VECTORS_H
#define TACIT_VECTORS_H

#include "ring.h"

#define TERMS 7 /* products in one column sum: 2 K (7 + 1) halves stay below 4,096 for K <= 250 */

/* One where a lane is beyond the last row. */
static TARGET void fill(vec *x, const vec *unit, idx count, idx limbs)
{
    const __mmask8 beyond = (__mmask8)(0xFF << count);
    for (idx j = 0; j < limbs; j++)
        x[j] = _mm512_mask_blend_epi64(beyond, x[j], unit[j]);
}

static TARGET idx outside_of(const ring *r, const vec *x, idx count)
{
    return __builtin_popcount(not_below(x, r->n.m, r->n.k) & ((1u << count) - 1));
}

/* Out rows = the product of `vectors` vectors of rows, times `factor` / R^vectors. */
static TARGET idx product_rows(const ring *r, arena *a, uint8_t *out, const uint8_t *const *vectors, idx number,
                               const uint8_t *factor, idx count)
{
    const idx k = r->n.k;
    vec *x = take(a, k), *y = take(a, k), *correction = take(a, k);
    idx outside = 0;
    parse_constant(correction, factor, r->width, k);
    for (idx done = 0; done < count; done += LANES) {
        const idx some = least(LANES, count - done);
        for (idx v = 0; v < number; v++) {
            vec *to = v ? y : x;
            parse(to, vectors[v] + done * r->width, r->width, some, 0, k, LIMB);
            outside += outside_of(r, to, some);
            if (v)
                multiply(x, x, y, r->room, &r->n);
        }
        multiply(x, x, correction, r->room, &r->n);
        settle(x, &r->n);
        unparse(out + done * r->width, r->width, some, x, k);
    }
    return outside;
}

/* Eight rows: the products of every eighth row / R^(groups - 1). Running products go to `kept` where it is given. */
static TARGET idx fold_rows(const ring *r, arena *a, uint8_t *out, vec *kept, const uint8_t *rows, idx count)
{
    const idx k = r->n.k;
    vec *x = take(a, k), *y = take(a, k);
    idx outside = 0;
    for (idx done = 0; done < count; done += LANES) {
        const idx some = least(LANES, count - done);
        vec *to = done ? y : x;
        parse(to, rows + done * r->width, r->width, some, 0, k, LIMB);
        outside += outside_of(r, to, some);
        fill(to, r->unit, some, k);
        if (done)
            multiply(x, x, y, r->room, &r->n);
        if (kept)
            memcpy(kept + done / LANES * k, x, (size_t)k * sizeof(vec));
    }
    settle(x, &r->n);
    unparse(out, r->width, LANES, x, k);
    return outside;
}

/* Inverses of rows from what fold_rows kept and the inverses of the eight rows it returned (Montgomery's trick).
 * With p_g = v_0 .. v_g / R^g kept and rest_g = 1 / p_g: 1 / v_g = rest_g p_(g-1) / R and rest_(g-1) = rest_g v_g / R. */
static TARGET void unfold_rows(const ring *r, arena *a, uint8_t *out, const vec *kept, const uint8_t *rows,
                               const uint8_t *inverses, idx count)
{
    const idx k = r->n.k, groups = (count + LANES - 1) / LANES;
    vec *rest = take(a, k), *x = take(a, k);
    parse(rest, inverses, r->width, LANES, 0, k, LIMB);
    for (idx g = groups - 1; g >= 0; g--) {
        const idx done = g * LANES, some = least(LANES, count - done);
        if (g)
            multiply(x, rest, kept + (g - 1) * k, r->room, &r->n);
        else
            memcpy(x, rest, (size_t)k * sizeof(vec));
        settle(x, &r->n);
        unparse(out + done * r->width, r->width, some, x, k);
        parse(x, rows + done * r->width, r->width, some, 0, k, LIMB);
        fill(x, r->unit, some, k);
        multiply(rest, rest, x, r->room, &r->n);
    }
}

/* A piece of K limbs or fewer of rows of any width, and the constant it is multiplied with. */
typedef struct {
    const uint8_t *rows;
    idx width, first, limbs;
    vec *constant;
} piece;

static idx pieces_of(idx width, idx k) { return (8 * width + LIMB * k - 1) / (LIMB * k); }

/* out rows = (sum of pieces times their constants / R + constant / R) times a row / R, or times 1 / R. */
static TARGET idx affine_rows(const ring *r, arena *a, uint8_t *out, const piece *pieces, idx number,
                              const vec *constant, const uint8_t *times, idx count)
{
    const idx k = r->n.k;
    vec *x = take(a, TERMS * k), *sum = take(a, k), *factor = take(a, k);
    idx outside = 0;
    for (idx done = 0; done < count; done += LANES) {
        const idx some = least(LANES, count - done);
        term terms[TERMS] = {{r->unit, constant, least(k, 4)}};
        int used = 1;
        for (idx p = 0; p < number; p++) {
            const piece *here = pieces + p;
            if (used == TERMS) { /* what is there counts as one term: times R / R */
                combine(sum, terms, used, r->room, &r->n);
                terms[0] = (term){sum, r->one, k};
                used = 1;
            }
            vec *to = x + used * k;
            const idx length = least(k, (here->limbs + 3) / 4 * 4);
            parse(to, here->rows + done * here->width, here->width, some, here->first, length, LIMB);
            terms[used++] = (term){to, here->constant, length};
        }
        combine(sum, terms, used, r->room, &r->n);
        if (times) {
            parse(factor, times + done * r->width, r->width, some, 0, k, LIMB);
            outside += outside_of(r, factor, some);
            multiply(sum, sum, factor, r->room, &r->n);
        } else
            multiply(sum, sum, r->unit, r->room, &r->n);
        settle(sum, &r->n);
        unparse(out + done * r->width, r->width, some, sum, k);
    }
    return outside;
}

/* out rows = rows times a constant, modulo 2^(52 limbs): an exact quotient by an odd number, if it is 1 / that number
 * (Jebelean 1993). */
static TARGET void quotient_rows(arena *a, uint8_t *out, idx out_width, const uint8_t *rows, idx width,
                                 const uint8_t *inverse, idx inverse_width, idx limbs, idx count)
{
    vec *x = take(a, limbs), *y = take(a, limbs), *b = take(a, limbs);
    const term t = {x, b, limbs};
    parse_constant(b, inverse, inverse_width, limbs);
    for (idx done = 0; done < count; done += LANES) {
        const idx some = least(LANES, count - done);
        parse(x, rows + done * width, width, some, 0, limbs, LIMB);
        vec carry = _mm512_setzero_si512();
        columns s;
        for (idx first = 0; first < limbs; first += 2) {
            products(&s, SUM, &t, 1, first, limbs, 2);
            for (int d = 0; d < 2; d++) {
                const vec column = add(s.low[d], carry);
                y[first + d] = low_bits(column);
                carry = add(carry_of(column), s.high[d]);
            }
        }
        unparse(out + done * out_width, out_width, some, y, limbs);
    }
}

#endif
