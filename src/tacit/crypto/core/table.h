/* Powers of one base to many exponents: base^e = prod_i base^(e_i 256^i), one entry per byte (Brickell et al. 1992).
 *
 * The exponents are secret, and eight lanes have eight digits. Entries are stored byte by byte: the 256 values of one
 * byte of one limb are adjacent, four registers, and two permutations (vpermi2b, 128 bytes each) and a blend by the
 * digits' top bit look up 64 different digits at once. Every entry is read whatever the digits are: a full scan,
 * constant in time and in addresses. Three rounds of interleaving turn the seven bytes of a limb into eight groups of
 * eight lanes. A gather reads only the entries it wants, shows by the cache lines it touches which, and is slower:
 * for 80 limbs 0.78 us a group of eight by scan and 1.45 by gather, beside the product's 4.55 (Zen 4).
 *
 * The entries of one place serve BATCH groups of eight exponents before those of the next are brought in. */

#ifndef TACIT_TABLE_H
#define TACIT_TABLE_H

#include "ring.h"

#define ENTRIES 256
#define BYTES 7   /* of a limb */
#define UNITS 4   /* of 64 digits */
#define BATCH (8 * UNITS)

/* Bytes of one place. */
static idx place_bytes(idx size) { return size * BYTES * ENTRIES; }

/* out[(8 unit + g) size + j] = limb j of the entries that the 64 digits of a unit ask for, of group g < 8 and its
 * lanes l in byte 16 (l / 2) + 2 g + l % 2 of `asked`. */
static TARGET void look_up(vec *out, const uint8_t *place, const vec *asked, idx units, idx size)
{
    for (idx j = 0; j < size; j++)
        for (idx unit = 0; unit < units; unit++) {
            const vec digit = asked[unit], *from = (const vec *)place + j * BYTES * (ENTRIES / 64);
            const __mmask64 upper = _mm512_movepi8_mask(digit);
            vec byte[8], pair[8], four[8], *to = out + 8 * unit * size + j;
            UNROLL for (int b = 0; b < BYTES; b++, from += ENTRIES / 64)
            {
                const vec low = _mm512_permutex2var_epi8(from[0], digit, from[1]);
                const vec high = _mm512_permutex2var_epi8(from[2], digit, from[3]);
                byte[b] = _mm512_mask_blend_epi8(upper, low, high);
            }
            byte[7] = _mm512_setzero_si512();
            UNROLL for (int b = 0; b < 4; b++) /* bytes 2b and 2b + 1 of lanes l < 8 and l >= 8 of every sixteen */
            {
                pair[b] = _mm512_unpacklo_epi8(byte[2 * b], byte[2 * b + 1]);
                pair[4 + b] = _mm512_unpackhi_epi8(byte[2 * b], byte[2 * b + 1]);
            }
            UNROLL for (int h = 0; h < 2; h++)
                UNROLL for (int b = 0; b < 2; b++)
                {
                    four[4 * h + b] = _mm512_unpacklo_epi16(pair[4 * h + 2 * b], pair[4 * h + 2 * b + 1]);
                    four[4 * h + 2 + b] = _mm512_unpackhi_epi16(pair[4 * h + 2 * b], pair[4 * h + 2 * b + 1]);
                }
            UNROLL for (int h = 0; h < 4; h++)
            {
                to[2 * h * size] = _mm512_unpacklo_epi32(four[2 * h], four[2 * h + 1]);
                to[(2 * h + 1) * size] = _mm512_unpackhi_epi32(four[2 * h], four[2 * h + 1]);
            }
        }
}

/* Limb by limb, entries e .. e + 7 from their lanes to the bytes of a place. */
static TARGET void keep_entries(uint8_t *place, const vec *x, idx size, idx e)
{
    uint8_t order[64];
    for (int b = 0; b < 8; b++)
        for (int lane = 0; lane < LANES; lane++)
            order[8 * b + lane] = (uint8_t)(8 * lane + b);
    const vec by_byte = _mm512_loadu_si512(order);
    for (idx j = 0; j < size; j++) {
        uint8_t bytes[64];
        _mm512_storeu_si512(bytes, _mm512_permutexvar_epi8(by_byte, x[j]));
        for (int b = 0; b < BYTES; b++)
            memcpy(place + (j * BYTES + b) * ENTRIES + e, bytes + 8 * b, 8);
    }
}

static idx build_vectors(idx size) { return 12 * size; }

/* The places of base^(256^i): entries 0..7 in lanes, then eight at a time. Returns whether the base is too large. */
static TARGET idx build_table(const ring *r, arena *a, uint8_t *table, const uint8_t *base, idx places)
{
    const idx size = r->size;
    vec *small = take(a, 9 * size), *x = take(a, size), *y = take(a, size), *step = take(a, size);
    const idx outside = ring_enter(r, step, base, 1) & 1;
    for (idx place = 0; place < places; place++, table += place_bytes(size)) {
        memcpy(small, r->one, (size_t)size * sizeof(vec)); /* powers 0..8 of the step, the same in each lane */
        memcpy(small + size, step, (size_t)size * sizeof(vec));
        for (idx e = 2; e <= LANES; e++)
            ring_multiply(r, small + e * size, small + (e - 1) * size, step);
        for (idx j = 0; j < size; j++) {
            uint64_t lanes[LANES];
            for (idx e = 0; e < LANES; e++)
                memcpy(lanes + e, small + e * size + j, sizeof *lanes);
            x[j] = _mm512_loadu_si512(lanes);
        }
        keep_entries(table, x, size, 0);
        for (idx e = LANES; e < ENTRIES; e += LANES) {
            ring_multiply(r, y, x, small + LANES * size);
            exchange(&x, &y);
            keep_entries(table, x, size, e);
        }
        memcpy(x, small + LANES * size, (size_t)size * sizeof(vec));
        for (int s = 3; s < 8; s++) { /* step^256 = (step^8)^32 */
            ring_square(r, y, x);
            exchange(&x, &y);
        }
        exchange(&x, &step);
    }
    return outside;
}

static idx table_power_vectors(idx size, idx places) { return (2 * BATCH + 1) * size + UNITS * places; }

/* The digits of up to 64 UNITS exponents, place by place, in the order of look_up. */
static void read_digits(uint8_t *asked, const uint8_t *exponents, idx width, idx count, idx places)
{
    memset(asked, 0, (size_t)(64 * UNITS * places));
    for (idx i = 0; i < count; i++) {
        const idx lane = i % 8, at = i / 64 * 64 + 16 * (lane / 2) + 2 * (i / 8 % 8) + lane % 2;
        for (idx place = 0; place < least(places, width); place++)
            asked[place * 64 * UNITS + at] = exponents[(i + 1) * width - 1 - place];
    }
}

/* Ask for part g of `groups` of a place, so that it is in the second cache when it is wanted. */
static TARGET void prefetch(const uint8_t *place, idx bytes, idx g, idx groups)
{
    for (idx at = bytes * g / groups / 64 * 64; at < bytes * (g + 1) / groups; at += 64)
        _mm_prefetch((const char *)place + at, _MM_HINT_T1);
}

/* out rows = base^exponents. */
static TARGET void table_powers(const ring *r, arena *a, uint8_t *out, const uint8_t *table, idx places,
                                const uint8_t *exponents, idx width, idx count)
{
    const idx size = r->size, bytes = place_bytes(size);
    vec *x[BATCH], *start = take(a, BATCH * size), *entries = take(a, BATCH * size), *room = take(a, size);
    vec *asked = take(a, UNITS * places);
    const idx batches = (count + BATCH * LANES - 1) / (BATCH * LANES), all = (count + LANES - 1) / LANES;
    for (idx batch = 0; batch < batches; batch++) {
        const idx done = all * batch / batches * LANES, here = least(all * (batch + 1) / batches * LANES, count) - done;
        const idx groups = (here + LANES - 1) / LANES;
        vec *spare = room;
        read_digits((uint8_t *)asked, exponents + done * width, width, here, places);
        for (idx place = 0; place < places; place++) {
            const uint8_t *from = table + place * bytes;
            look_up(place ? entries : start, from, asked + place * UNITS, (groups + 7) / 8, size);
            for (idx g = 0; g < groups; g++) {
                if (place + 1 < places)
                    prefetch(from + bytes, bytes, g, groups);
                if (place) {
                    ring_multiply(r, spare, x[g], entries + g * size);
                    exchange(x + g, &spare);
                } else
                    x[g] = start + g * size;
            }
        }
        for (idx g = 0; g < groups; g++)
            ring_leave(r, out + (done + g * LANES) * r->width, least(LANES, here - g * LANES), x[g]);
    }
}

#endif
