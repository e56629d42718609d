/* Arithmetic modulo a square, m^2, on pairs (x, y) that mean x + m y: numbers of half the length.
 *
 * (x + m y)(v + m w) = x v + m (x w + v y) mod m^2. REDC writes x v = r R - q m, so
 *
 *     (x + m y)(v + m w) / R = r + m (x w + v y - q) / R    (mod m^2),
 *
 * a pair again: r = REDC(x v), and REDC(x w + v y - q) for y, which matters modulo m only. Three products and two
 * reductions of K limbs are 10 K^2 multiplications against 16 K^2 of a Montgomery product of 2 K limbs, and a square
 * takes 7 K^2 against 12 K^2. Paillier lives modulo n^2, p^2 and q^2.
 *
 * -q is made positive by lift = (-R mod m) + R, a multiple of m between R and R + m. x is exact: taking m from it
 * adds one to y. Both stay below 2m: 8 m^2 / R + (R + m) / R + m < 2m for 16 m <= R and m >= 3. */

#ifndef TACIT_PAIRS_H
#define TACIT_PAIRS_H

#include "montgomery.h"

/* A pair is 2 K limbs, x first. Room for two arrays of K limbs: the digits q of either reduction. */

/* out = a b / R mod m^2; out is neither a nor b. */
static __attribute__((noinline)) TARGET void multiply_pair(vec *out, const vec *a, const vec *b, vec *room,
                                                           const modulus *n)
{
    const idx k = n->k;
    const term x = {a, b, k}, y[2] = {{a, b + k, k}, {b, a + k, k}};
    reduce(out, room, SUM, &x, 1, NULL, n);
    reduce(out + k, room + k, SUM, y, 2, room, n);
}

/* out = a a / R mod m^2; out is not a. */
static __attribute__((noinline)) TARGET void square_pair(vec *out, const vec *a, vec *room, const modulus *n)
{
    const idx k = n->k;
    const term x = {a, a, k}, y = {a, a + k, k};
    reduce(out, room, SQUARE, &x, 1, NULL, n);
    reduce(out + k, room + k, TWICE, &y, 1, room, n);
}

#endif
