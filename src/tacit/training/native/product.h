/* Matrix products by register tiles, for one instruction set; whoever includes it has LEVEL, TARGET, V, UMAX, NAME, UNROLL
 * and least() defined.
 *
 * Products are out[r][c] = init[r][c] + sum over j of x[r][j] w[j][c] over arbitrary strides of x and whole vectors of w,
 * which suits a product with either matrix turned: x is read one number at a time and w in rows. */

typedef float NAME(vec) __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(4 * V), aligned(4), may_alias));
#define vec NAME(vec)
#define ivec NAME(ivec)
#define UNLESS(no, v) ((vec)(~(ivec)(no) & (ivec)(v))) /* zero where `no` is true */
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, v) (*(vec *)(p) = (v))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define RMAX 6

/* R rows by U vectors. */
INLINE void NAME(tile)(const float *x, idx xr, idx xj, const float *w, idx wj, const float *init, idx ir, float *out,
                       idx or, idx count, const int R, const int U)
{
    vec acc[RMAX][UMAX];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++)
            acc[r][u] = init ? LOAD(init + r * ir + u * V) : (vec){0};
    for (idx j = 0; j < count; j++, x += xj, w += wj) {
        vec wv[UMAX];
        UNROLL for (int u = 0; u < U; u++)
            wv[u] = LOAD(w + u * V);
        UNROLL for (int r = 0; r < R; r++) {
            const float own = x[r * xr];
            UNROLL for (int u = 0; u < U; u++)
                acc[r][u] += own * wv[u];
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++)
            STORE(out + r * or + u * V, acc[r][u]);
}

#define TILE(r, u) \
    static TARGET void NAME(tile_##r##u)(const float *x, idx xr, idx xj, const float *w, idx wj, const float *init, \
                                         idx ir, float *out, idx or, idx count) \
    { \
        NAME(tile)(x, xr, xj, w, wj, init, ir, out, or, count, r, u); \
    }
#if UMAX == 4
#define TILES(r) TILE(r, 1) TILE(r, 2) TILE(r, 3) TILE(r, 4)
#define ROW(r) {NAME(tile_##r##1), NAME(tile_##r##2), NAME(tile_##r##3), NAME(tile_##r##4)}
#else
#define TILES(r) TILE(r, 1) TILE(r, 2)
#define ROW(r) {NAME(tile_##r##1), NAME(tile_##r##2)}
#endif
TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6)

/* `rows` by `columns` floats, columns a multiple of V; without an init it is zero. */
static TARGET void NAME(product)(const float *x, idx xr, idx xj, const float *w, idx wj, const float *init, idx ir,
                                 float *out, idx or, idx rows, idx columns, idx count)
{
    static void (*const tiles[RMAX][UMAX])(const float *, idx, idx, const float *, idx, const float *, idx, float *, idx,
                                           idx) = {ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6)};
    for (idx c = 0; c < columns; c += UMAX * V)
        for (idx r = 0; r < rows; r += RMAX)
            tiles[least(RMAX, rows - r) - 1][least(UMAX, (columns - c) / V) - 1](
                x + r * xr, xr, xj, w + c, wj, init ? init + r * ir + c : init, ir, out + r * or + c, or, count);
}
