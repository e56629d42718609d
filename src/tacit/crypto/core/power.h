/* Every base to one exponent, by digits of a fixed window.
 *
 * The time depends on the exponent's length only: as many squarings as bits, one product per digit, zero digits
 * included. A secret digit is looked up by reading all 2^w powers and keeping one by masks. */

#ifndef TACIT_POWER_H
#define TACIT_POWER_H

#include "ring.h"

/* The w bits of a big-endian exponent from bit w * place on. */
static unsigned digit_of(const uint8_t *exponent, idx length, idx place, int window)
{
    unsigned digit = 0;
    for (int b = window - 1; b >= 0; b--) {
        const idx bit = place * window + b, byte = length - 1 - (bit >> 3);
        digit = digit << 1 | (byte >= 0 ? exponent[byte] >> (bit & 7) & 1u : 0);
    }
    return digit;
}

/* Powers are kept limb by limb, the 2^w values of a limb side by side: a scan reads them in order. */
static TARGET void keep_power(vec *powers, const vec *x, idx size, unsigned e, int window)
{
    for (idx j = 0; j < size; j++)
        powers[(j << window) + e] = x[j];
}

/* out = power `digit`, having read all of them. */
INLINE void scan(vec *out, const vec *powers, idx size, unsigned digit, const int entries)
{
    vec keep[32];
    UNROLL32 for (int e = 0; e < entries; e++)
        keep[e] = spread((uint64_t)0 - (((uint64_t)((unsigned)e ^ digit) - 1) >> 63));
    for (idx j = 0; j < size; j++, powers += entries) {
        vec found[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        UNROLL32 for (int e = 0; e < entries; e++) /* found | keep & power */
            found[e & 1] = _mm512_ternarylogic_epi64(found[e & 1], keep[e], powers[e], 0xF8);
        out[j] = _mm512_or_si512(found[0], found[1]);
    }
}

static TARGET void select_power(vec *out, const vec *powers, idx size, unsigned digit, int window)
{
    switch (window) {
    case 1: scan(out, powers, size, digit, 2); break;
    case 4: scan(out, powers, size, digit, 16); break;
    default: scan(out, powers, size, digit, 32); break;
    }
}

static idx power_vectors(idx size, int window) { return (((idx)1 << window) + 5) * size; }

/* out rows = bases^exponent, of `places` digits; returns how many bases were not below the modulus. */
static TARGET idx power_rows(const ring *r, arena *a, uint8_t *out, const uint8_t *bases, idx count,
                             const uint8_t *exponent, idx length, idx places, int window, int secret)
{
    const idx size = r->size, stride = (idx)1 << window;
    idx outside = 0;
    vec *powers = take(a, size << window), *base = take(a, size), *x = take(a, size), *y = take(a, size);
    vec *entry = take(a, size);
    keep_power(powers, r->one, size, 0, window);
    for (idx done = 0; done < count; done += LANES) {
        const idx some = least(LANES, count - done);
        outside += __builtin_popcount(ring_enter(r, base, bases + done * r->width, some) & ((1u << some) - 1));
        keep_power(powers, base, size, 1, window);
        memcpy(x, base, (size_t)size * sizeof(vec));
        for (unsigned e = 2; e < 1u << window; e++) {
            ring_multiply(r, y, x, base);
            exchange(&x, &y);
            keep_power(powers, x, size, e, window);
        }
        memcpy(x, r->one, (size_t)size * sizeof(vec));
        for (idx place = places - 1; place >= 0; place--) {
            const unsigned digit = digit_of(exponent, length, place, window);
            for (int s = 0; s < window && place < places - 1; s++) {
                ring_square(r, y, x);
                exchange(&x, &y);
            }
            if (secret)
                select_power(entry, powers, size, digit, window);
            else if (digit)
                for (idx j = 0; j < size; j++)
                    entry[j] = powers[j * stride + digit];
            else
                continue;
            ring_multiply(r, y, x, entry);
            exchange(&x, &y);
        }
        ring_leave(r, out + done * r->width, some, x);
    }
    return outside;
}

#endif
