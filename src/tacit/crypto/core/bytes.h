/* Rows of big-endian bytes to limbs of eight lanes, and back.
 *
 * A limb of b <= 52 bits lies in eight bytes: one unaligned load, a byte swap and a shift. Two limbs of 52 bits are
 * 13 bytes: two stores, of which the next two overwrite the three bytes too many. Neither depends on the values. */

#ifndef TACIT_BYTES_H
#define TACIT_BYTES_H

#include "lanes.h"
#include <string.h>

static inline uint64_t load_big(const uint8_t *from)
{
    uint64_t x;
    memcpy(&x, from, sizeof x);
    return __builtin_bswap64(x);
}

static inline void store_big(uint8_t *to, uint64_t x)
{
    x = __builtin_bswap64(x);
    memcpy(to, &x, sizeof x);
}

/* Limbs first .. first + limbs - 1, of `bits` bits each, of up to eight rows; lanes beyond them repeat the last. */
static void parse(vec *out, const uint8_t *rows, idx width, idx count, idx first, idx limbs, int bits)
{
    uint64_t *to = (uint64_t *)out;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    for (idx lane = 0; lane < LANES; lane++) {
        const uint8_t *row = rows + least(lane, count - 1) * width;
        for (idx j = 0; j < limbs; j++) {
            const idx bit = (first + j) * bits, at = width - 8 - (bit >> 3);
            uint64_t x = 0;
            if (at >= 0)
                x = load_big(row + at);
            else
                for (idx i = 0; i < at + 8; i++) /* the most significant bytes of a row */
                    x = x << 8 | row[i];
            to[j * LANES + lane] = x >> (bit & 7) & mask;
        }
    }
}

/* One number in every lane. */
static void parse_constant(vec *out, const uint8_t *row, idx width, idx limbs)
{
    parse(out, row, width, 1, 0, limbs, LIMB);
}

/* Rows of numbers below 256^width; limbs is even. */
static void unparse(uint8_t *rows, idx width, idx count, const vec *x, idx limbs)
{
    const uint64_t *from = (const uint64_t *)x;
    for (idx lane = 0; lane < count; lane++) {
        uint8_t *end = rows + (lane + 1) * width; /* byte i of the number is end[-1 - i] */
        for (idx j = 0, done = 0; j < limbs && done < width; j += 2, done += 13) {
            const uint64_t a = from[j * LANES + lane], b = from[(j + 1) * LANES + lane];
            const uint64_t low = a | b << LIMB, high = b >> 12;
            if (done + 16 <= width) {
                store_big(end - done - 8, low);
                store_big(end - done - 16, high);
            } else
                for (idx i = 0; i < 13 && done + i < width; i++)
                    end[-1 - done - i] = (uint8_t)(i < 8 ? low >> 8 * i : high >> 8 * (i - 8));
        }
        for (idx i = limbs / 2 * 13; i < width; i++)
            end[-1 - i] = 0;
    }
}

#endif
