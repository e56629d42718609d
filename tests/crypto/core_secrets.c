/* Runs the core under valgrind with every secret marked as undefined (the method of Langley's ctgrind, 2010).
 *
 * Memcheck then complains where a branch or an address depends on a secret, and, as always, where memory is read
 * that was never written or not ours. Valgrind does not know AVX-512, so the instructions are emulated, with the
 * same dependencies (core/emulated.h); `make valgrind` builds and runs this. Secrets: the exponents of a table, the
 * exponent of a power, and all bases and factors as well. Sizes are small: the paths are the same.
 *
 * With the argument `leak` the exponent of a power is used as a public one is: memcheck must complain. */

#include "core/power.h"
#include "core/table.h"
#include "core/vectors.h"
#include <stdio.h>
#include <valgrind/memcheck.h>

#define ROWS 11
#define LONGEST 20 /* bytes of a root: 4 limbs */

static uint64_t state = 1;

static uint8_t draw(void)
{
    state = state * UINT64_C(6364136223846793005) + 1;
    return (uint8_t)(state >> 56);
}

/* Numbers below the modulus: their first byte is zero. */
static void numbers(uint8_t *rows, idx width, idx count)
{
    for (idx i = 0; i < width * count; i++)
        rows[i] = i % width ? draw() : 0;
}

/* Values printed at the end must be defined; that they are right is for the other tests. */
static unsigned sum(uint8_t *rows, idx size)
{
    unsigned total = 0;
    VALGRIND_MAKE_MEM_DEFINED(rows, size);
    for (idx i = 0; i < size; i++)
        total += rows[i];
    return total;
}

/* A ring in an arena of exactly the size that the module claims for an operation. */
static ring claimed(arena *a, const uint8_t *constants, idx width, int pair, idx vectors)
{
    const idx k = limbs_of(bits_of(constants, width));
    if (!claim(a, ring_vectors(k) + vectors))
        abort();
    return make_ring(a, constants, width, k, pair, pair ? 2 * width : width);
}

static void check(int pair, idx root_width, int secret)
{
    const idx width = pair ? 2 * root_width : root_width, places = 3;
    uint8_t constants[6 * LONGEST], rows[ROWS * 2 * LONGEST], other[ROWS * 2 * LONGEST];
    uint8_t out[ROWS * 2 * LONGEST], exponents[ROWS * 3], exponent[3], folded[8 * LONGEST];
    numbers(constants, root_width, 6);
    constants[0] = 0x1f;
    constants[root_width - 1] |= 1;
    numbers(rows, width, ROWS);
    numbers(other, width, ROWS);
    for (size_t i = 0; i < sizeof exponents; i++)
        exponents[i] = draw();
    for (size_t i = 0; i < sizeof exponent; i++)
        exponent[i] = draw();
    const idx k = limbs_of(bits_of(constants, root_width)), size = pair ? 2 * k : k;
    arena a;
    ring r = claimed(&a, constants, root_width, pair, build_vectors(size));
    uint8_t *table = aligned_alloc(64, (size_t)(places * place_bytes(size)));
    vec *kept = aligned_alloc(64, (size_t)(2 * k) * sizeof(vec));
    if (!table || !kept)
        abort();
    build_table(&r, &a, table, rows, places);
    discard(&a);

    VALGRIND_MAKE_MEM_UNDEFINED(rows, sizeof rows);
    VALGRIND_MAKE_MEM_UNDEFINED(other, sizeof other);
    VALGRIND_MAKE_MEM_UNDEFINED(exponents, sizeof exponents);
    VALGRIND_MAKE_MEM_UNDEFINED(exponent, sizeof exponent);
    r = claimed(&a, constants, root_width, pair, table_power_vectors(size, places));
    table_powers(&r, &a, out, table, places, exponents, 3, ROWS);
    unsigned total = sum(out, ROWS * width);
    discard(&a);
    static const int windows[] = {1, 4, 5};
    for (int w = 0; w < 3; w++) {
        r = claimed(&a, constants, root_width, pair, power_vectors(size, windows[w]));
        power_rows(&r, &a, out, rows, ROWS, exponent, 3, 24 / windows[w], windows[w], secret);
        total += sum(out, ROWS * width);
        discard(&a);
    }
    if (!pair) {
        const uint8_t *vectors[] = {rows, other, rows};
        r = claimed(&a, constants, root_width, 0, 3 * k);
        product_rows(&r, &a, out, vectors, 3, constants + width, ROWS);
        total += sum(out, ROWS * width);
        discard(&a);
        r = claimed(&a, constants, root_width, 0, 2 * k);
        fold_rows(&r, &a, folded, kept, rows, ROWS);
        discard(&a);
        r = claimed(&a, constants, root_width, 0, 2 * k);
        unfold_rows(&r, &a, out, kept, rows, folded, ROWS);
        total += sum(out, ROWS * width);
        discard(&a);
        piece pieces[9];
        r = claimed(&a, constants, root_width, 0, (TERMS + 3) * k);
        vec *constant = take(&a, k);
        parse_constant(constant, constants + width, width, k);
        for (int p = 0; p < 9; p++)
            pieces[p] = (piece){p % 2 ? rows : other, width, 0, (8 * width + LIMB - 1) / LIMB, constant};
        affine_rows(&r, &a, out, pieces, pieces_of(width, k) * 9, constant, other, ROWS);
        total += sum(out, ROWS * width);
        discard(&a);
        const idx limbs = (8 * width + 2 * LIMB - 1) / (2 * LIMB) * 2;
        if (!claim(&a, 3 * limbs))
            abort();
        quotient_rows(&a, out, width, rows, width, constants, width, limbs, ROWS);
        total += sum(out, ROWS * width);
        discard(&a);
    }
    printf("%s of %td bytes: %u\n", pair ? "square" : "modulus", root_width, total);
    free(table);
    free(kept);
}

int main(int count, char **words)
{
    const int secret = !(count > 1 && !strcmp(words[1], "leak"));
    for (idx width = 2; width <= LONGEST; width += 9) {
        check(0, width, secret);
        check(1, width, secret);
    }
    return 0;
}
