/* Linear layers of any size with what is behind them, and their steps against the gradient, which nobody writes down:
 * perceptrons of one client, whose weights are read twice and written once in a step.
 *
 *     Y = f(X W' + b),  dX = (dY W) f'(X),  dW = dY' X,  W -= rate m,  m = momentum m + dW + decay W
 *
 * Every number is added up in the same order whoever computes the others: several threads, each with some outputs or
 * some columns, give the same as one. */

#ifndef LEVEL

/* Inputs of a block: four rows of weights stay in the innermost cache while examples pass, and examples in the next. */
#define DENSE_BLOCK 1024
#define DENSE_MOST (1 << 16) /* numbers of the examples in a block */
#define DENSE_PART 1000000 /* products, below which a thread is not worth waking */

enum { AS_IT_IS, ABOVE_ZERO, TANGENT, SIGMOID };

typedef struct {
    idx n, inputs, outputs;
    int function;  /* behind the layer, or before it on the way back */
} dense;

typedef struct {
    float rate, momentum, decay;
} move;

/* Returns how many threads a layer is worth. */
static inline int dense_threads(const dense *d, idx most_threads)
{
    return (int)most(1, least(most_threads, d->n * d->inputs * d->outputs / DENSE_PART));
}

#else /* LEVEL: the loops of one instruction set */

/* A function for every number of rows and of vectors or outputs, and tables of them. */
#define FOUR(make, r) make(r, 1) make(r, 2) make(r, 3) make(r, 4)
#define ROW_OF_FOUR(name, r) {NAME(name##_##r##1), NAME(name##_##r##2), NAME(name##_##r##3), NAME(name##_##r##4)}
#if V == 16
#define DENSE_ROWS 6
#define BY_DOTS(make) FOUR(make, 1) FOUR(make, 2) FOUR(make, 3) FOUR(make, 4) FOUR(make, 5) FOUR(make, 6)
#define BY_TILES(make) BY_DOTS(make)
#define TILES_OF(name) \
    {ROW_OF_FOUR(name, 1), ROW_OF_FOUR(name, 2), ROW_OF_FOUR(name, 3), ROW_OF_FOUR(name, 4), ROW_OF_FOUR(name, 5), \
     ROW_OF_FOUR(name, 6)}
#define DOTS_TILES TILES_OF(dots)
#define MASKED_LOAD(p, count) ((vec)_mm512_maskz_loadu_ps((__mmask16)((1u << (count)) - 1u), (p)))
#define MASKED_STORE(p, count, v) _mm512_mask_storeu_ps((p), (__mmask16)((1u << (count)) - 1u), (__m512)(v))
#else
#define DENSE_ROWS 3
#define TWO(make, r) make(r, 1) make(r, 2)
#define BY_DOTS(make) FOUR(make, 1) FOUR(make, 2) FOUR(make, 3)
#define BY_TILES(make) TWO(make, 1) TWO(make, 2) TWO(make, 3)
#define ROW_OF_TWO(name, r) {NAME(name##_##r##1), NAME(name##_##r##2)}
#define TILES_OF(name) {ROW_OF_TWO(name, 1), ROW_OF_TWO(name, 2), ROW_OF_TWO(name, 3)}
#define DOTS_TILES {ROW_OF_FOUR(dots, 1), ROW_OF_FOUR(dots, 2), ROW_OF_FOUR(dots, 3)}
#define MASKED_LOAD(p, count) ((vec)_mm256_maskload_ps((p), (__m256i)NAME(first_lanes)(count)))
#define MASKED_STORE(p, count, v) _mm256_maskstore_ps((p), (__m256i)NAME(first_lanes)(count), (__m256)(v))
INLINE ivec NAME(first_lanes)(idx count)
{
    ivec lanes;
    UNROLL for (int l = 0; l < V; l++)
        lanes[l] = l;
    return lanes < (int32_t)count;
}
#endif

/* Returns the sums of four registers, each added up in the same order. */
INLINE __m128 NAME(sums)(vec a, vec b, vec c, vec d)
{
#if V == 16
#define HALVES(v) _mm256_add_ps(_mm512_castps512_ps256((__m512)(v)), _mm512_extractf32x8_ps((__m512)(v), 1))
#else
#define HALVES(v) ((__m256)(v))
#endif
    const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(HALVES(a), HALVES(b)), _mm256_hadd_ps(HALVES(c), HALVES(d)));
    return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
#undef HALVES
}

INLINE vec NAME(load_some)(const float *p, idx count) { return count >= V ? LOAD(p) : MASKED_LOAD(p, count); }

INLINE void NAME(store_some)(float *p, idx count, vec v)
{
    if (count >= V)
        STORE(p, v);
    else
        MASKED_STORE(p, count, v);
}

/* y[r][o] += x[r] w[o], R examples by O outputs, over some inputs. */
INLINE void NAME(dots)(const float *const *x, const float *w, idx between, float *y, idx outputs, idx count, const int R,
                       const int O)
{
    vec acc[DENSE_ROWS][4];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int o = 0; o < O; o++)
            acc[r][o] = (vec){0};
    const idx whole = count - count % V;
    for (idx c = 0; c < whole; c += V) {
        vec wv[4];
        UNROLL for (int o = 0; o < O; o++)
            wv[o] = LOAD(w + o * between + c);
        UNROLL for (int r = 0; r < R; r++) {
            const vec own = LOAD(x[r] + c);
            UNROLL for (int o = 0; o < O; o++)
                acc[r][o] += own * wv[o];
        }
    }
    if (whole < count)
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int o = 0; o < O; o++)
                acc[r][o] += MASKED_LOAD(x[r] + whole, count - whole) * MASKED_LOAD(w + o * between + whole, count - whole);
    UNROLL for (int r = 0; r < R; r++) {
        float *at = y + r * outputs;
        const __m128 sums = NAME(sums)(acc[r][0], acc[r][O > 1], acc[r][O > 2 ? 2 : 0], acc[r][O - 1]);
        if (O == 4) {
            _mm_storeu_ps(at, _mm_add_ps(_mm_loadu_ps(at), sums));
            continue;
        }
        UNROLL for (int o = 0; o < O; o++)
            at[o] += sums[o];
    }
}

#define DOTS(r, o) \
    static TARGET void NAME(dots_##r##o)(const float *const *x, const float *w, idx between, float *y, idx outputs, \
                                         idx count) \
    { \
        NAME(dots)(x, w, between, y, outputs, count, r, o); \
    }
BY_DOTS(DOTS)

INLINE vec NAME(applied)(vec v, int function)
{
    if (function == ABOVE_ZERO)
        return UNLESS(v < 0.0f, v);
    return function == TANGENT ? NAME(tangent)(v) : NAME(sigmoid)(v);
}

/* Some outputs of all examples; x has a pointer for each. */
static TARGET void NAME(dense)(const dense *d, const float *const *x, const float *w, const float *bias, float *y,
                               idx first, idx end)
{
    static void (*const tiles[DENSE_ROWS][4])(const float *const *, const float *, idx, float *, idx, idx) = DOTS_TILES;
    for (idx i = 0; i < d->n; i++)
        for (idx o = first; o < end; o++)
            y[i * d->outputs + o] = bias ? bias[o] : 0.0f;
    const idx block = most(V, least(DENSE_BLOCK, DENSE_MOST / d->n / V * V));
    for (idx c = 0; c < d->inputs; c += block)
        for (idx o = first; o < end; o += 4)
            for (idx i = 0; i < d->n; i += DENSE_ROWS) {
                const float *from[DENSE_ROWS];
                const idx rows = least(DENSE_ROWS, d->n - i);
                for (idx r = 0; r < rows; r++)
                    from[r] = x[i + r] + c;
                tiles[rows - 1][least(4, end - o) - 1](from, w + o * d->inputs + c, d->inputs, y + i * d->outputs + o,
                                                       d->outputs, least(block, d->inputs - c));
            }
    if (d->function != AS_IT_IS)
        for (idx i = 0; i < d->n; i++)
            for (idx o = first; o < end; o += V) {
                float *at = y + i * d->outputs + o;
                NAME(store_some)(at, end - o, NAME(applied)(NAME(load_some)(at, end - o), d->function));
            }
}

/* R examples' gradients of U vectors of inputs, of which the last may be a part; times the slope of what made them. */
INLINE void NAME(back)(const dense *d, const float *g, const float *x, const float *w, float *gx, idx count, const int R,
                       const int U)
{
    vec acc[DENSE_ROWS][UMAX];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++)
            acc[r][u] = (vec){0};
    const idx last = count - (U - 1) * V;
    for (idx o = 0; o < d->outputs; o++, w += d->inputs) {
        vec own[UMAX];
        UNROLL for (int u = 0; u < U - 1; u++)
            own[u] = LOAD(w + u * V);
        own[U - 1] = NAME(load_some)(w + (U - 1) * V, last);
        UNROLL for (int r = 0; r < R; r++)
            UNROLL for (int u = 0; u < U; u++)
                acc[r][u] += g[r * d->outputs + o] * own[u];
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++) {
            const idx width = u + 1 < U ? V : last;
            const vec own = NAME(load_some)(x + r * d->inputs + u * V, width);
            vec found = acc[r][u];
            if (d->function == ABOVE_ZERO)
                found = UNLESS(own <= 0.0f, found);
            else if (d->function == TANGENT)
                found *= 1.0f - own * own;
            else if (d->function == SIGMOID)
                found *= own * (1.0f - own);
            NAME(store_some)(gx + r * d->inputs + u * V, width, found);
        }
}

#define BACK(r, u) \
    static TARGET void NAME(back_##r##u)(const dense *d, const float *g, const float *x, const float *w, float *gx, \
                                         idx count) \
    { \
        NAME(back)(d, g, x, w, gx, count, r, u); \
    }
BY_TILES(BACK)

/* Some columns of the inputs' gradient; x is what came out of the function that made them. */
static TARGET void NAME(dense_back)(const dense *d, const float *g, const float *x, const float *w, float *gx, idx first,
                                    idx end)
{
    static void (*const tiles[DENSE_ROWS][UMAX])(const dense *, const float *, const float *, const float *, float *,
                                                 idx) = TILES_OF(back);
    for (idx c = first; c < end; c += UMAX * V) {
        const idx count = least(UMAX * V, end - c);
        for (idx i = 0; i < d->n; i += DENSE_ROWS)
            tiles[least(DENSE_ROWS, d->n - i) - 1][ceil_div(count, V) - 1](
                d, g + i * d->outputs, x + i * d->inputs + c, w + c, gx + i * d->inputs + c, count);
    }
}

INLINE void NAME(move_some)(const move *m, vec gradient, float *w, float *kept, idx count)
{
    const vec own = NAME(load_some)(w, count);
    if (m->decay != 0.0f)
        gradient += m->decay * own;
    if (m->momentum != 0.0f) {
        gradient += m->momentum * NAME(load_some)(kept, count);
        NAME(store_some)(kept, count, gradient);
    }
    NAME(store_some)(w, count, own - m->rate * gradient);
}

/* O outputs by U vectors of inputs, of which the last may be a part. */
INLINE void NAME(moved)(const float *g, idx outputs, const float *const *x, idx n, const move *m, float *w, float *kept,
                        idx inputs, idx count, const int O, const int U)
{
    vec acc[DENSE_ROWS][UMAX];
    UNROLL for (int o = 0; o < O; o++)
        UNROLL for (int u = 0; u < U; u++)
            acc[o][u] = (vec){0};
    const idx last = count - (U - 1) * V;
    for (idx i = 0; i < n; i++, g += outputs) {
        vec own[UMAX];
        UNROLL for (int u = 0; u < U - 1; u++)
            own[u] = LOAD(x[i] + u * V);
        own[U - 1] = NAME(load_some)(x[i] + (U - 1) * V, last);
        UNROLL for (int o = 0; o < O; o++)
            UNROLL for (int u = 0; u < U; u++)
                acc[o][u] += g[o] * own[u];
    }
    UNROLL for (int o = 0; o < O; o++)
        UNROLL for (int u = 0; u < U; u++)
            NAME(move_some)(m, acc[o][u], w + o * inputs + u * V, kept ? kept + o * inputs + u * V : NULL,
                            u + 1 < U ? V : last);
}

#define MOVED(o, u) \
    static TARGET void NAME(moved_##o##u)(const float *g, idx outputs, const float *const *x, idx n, const move *m, \
                                          float *w, float *kept, idx inputs, idx count) \
    { \
        NAME(moved)(g, outputs, x, n, m, w, kept, inputs, count, o, u); \
    }
BY_TILES(MOVED)

/* Moves the weights and biases of some outputs, given the gradient of the outputs; `from` is room for n pointers. */
static TARGET void NAME(dense_move)(const dense *d, const float *g, const float *const *x, const move *m, float *w,
                                    float *bias, float *kept, float *kept_bias, const float **from, idx first, idx end)
{
    static void (*const tiles[DENSE_ROWS][UMAX])(const float *, idx, const float *const *, idx, const move *, float *,
                                                 float *, idx, idx) = TILES_OF(moved);
    for (idx c = 0; c < d->inputs; c += UMAX * V) {
        const idx count = least(UMAX * V, d->inputs - c);
        for (idx i = 0; i < d->n; i++)
            from[i] = x[i] + c;
        for (idx o = first; o < end; o += DENSE_ROWS)
            tiles[least(DENSE_ROWS, end - o) - 1][ceil_div(count, V) - 1](
                g + o, d->outputs, from, d->n, m, w + o * d->inputs + c, kept ? kept + o * d->inputs + c : NULL,
                d->inputs, count);
    }
    for (idx o = first; bias && o < end; o += V) {
        vec sum = {0};
        for (idx i = 0; i < d->n; i++)
            sum += NAME(load_some)(g + i * d->outputs + o, end - o);
        NAME(move_some)(m, sum, bias + o, kept_bias ? kept_bias + o : NULL, end - o);
    }
}

#endif
