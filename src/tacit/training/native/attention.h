/* Attention of short texts, one head of one text at a time in the cache, and GELU.
 *
 * Per head, with queries Q, keys K and values V of `width` numbers and weights P, which the way back is given:
 *
 *     P = softmax(scale Q K' + mask),  O = P V
 *     S = P (dO V' - <P, dO V'>) scale,  dQ = S K,  dK = S' Q,  dV = P' dO
 *
 * Weights and scores lie turned, a row per key: queries are in the lanes, so that largest scores and sums need no lane of
 * another. Rows are padded to a multiple of 16 queries. A text that looks at what is before it only skips the other half
 * of the products; a query of which everything is masked gives zeros. Gradients lie as (texts, places, heads, width), and
 * so does O. */

#ifndef LEVEL

#define ATTEND_ARRAYS 6
#define ATTEND_BACK_ARRAYS 8

typedef struct {
    idx batch, heads, queries, keys, width, causal;
    idx q[3], k[3], v[3], o[3]; /* floats between texts, heads and places */
    idx mask[4];                /* the same of a mask, and between its numbers */
    float scale;
} attention;

#else /* LEVEL: the loops of one instruction set */

/* to[c][r] = from[r][c]; rows of `to` have room for a multiple of 16, and the rest is zero. */
static TARGET void NAME(upright)(const float *from, idx fs, idx rows, idx columns, float *to, idx ts)
{
    idx done = 0;
#if V == 16
    /* Sixteen rows in registers: halves, quarters, pairs and single numbers change places with those across. */
    for (; done + 16 <= columns; done += 16)
        for (idx r = 0; r < rows; r += 16) {
            __m512 own[16];
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
                own[i] = r + i < rows ? _mm512_loadu_ps(from + (r + i) * fs + done) : _mm512_setzero_ps();
            _Pragma("GCC unroll 4") for (int far = 1; far < 16; far *= 2) {
                int32_t one[16], other[16];
                for (int i = 0; i < 16; i++)
                    one[i] = i & far ? 16 + i - far : i, other[i] = i & far ? 16 + i : i + far;
                const __m512i even = _mm512_loadu_si512(one), odd = _mm512_loadu_si512(other);
                _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
                    if (!(i & far)) {
                        const __m512 a = own[i], b = own[i + far];
                        own[i] = _mm512_permutex2var_ps(a, even, b);
                        own[i + far] = _mm512_permutex2var_ps(a, odd, b);
                    }
            }
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
                _mm512_storeu_ps(to + (done + i) * ts + r, own[i]);
        }
#endif
    NAME(turn)(from + done, fs, rows, columns - done, to + done * ts, ts);
}

/* Rows of `width` floats as rows of `wide`, the rest zero; `from` itself where that is no more. */
static TARGET const float *NAME(padded)(const float *from, idx *stride, idx rows, idx width, idx wide, float *room)
{
    if (width == wide)
        return from;
    for (idx r = 0; r < rows; r++) {
        memcpy(room + r * wide, from + r * *stride, (size_t)width * sizeof *room);
        memset(room + r * wide + width, 0, (size_t)(wide - width) * sizeof *room);
    }
    *stride = wide;
    return room;
}

/* A product of `rows` by `wide` into rows of `width` floats. */
INLINE void NAME(narrowed)(const float *x, idx xr, idx xj, const float *w, idx wj, float *out, idx or, idx rows, idx wide,
                           idx width, idx count, float *room)
{
    if (width == wide) {
        NAME(product)(x, xr, xj, w, wj, NULL, 0, out, or, rows, wide, count);
        return;
    }
    NAME(product)(x, xr, xj, w, wj, NULL, 0, room, wide, rows, wide, count);
    for (idx r = 0; r < rows; r++)
        memcpy(out + r * or, room + r * wide, (size_t)width * sizeof *out);
}

/* Products of rows of x, one per key, with the turned w, as far as a query may look at a key. */
INLINE void NAME(scores)(const attention *a, const float *x, idx xr, const float *w, idx wide, float *out)
{
    for (idx r = 0; r < a->keys; r += RMAX) {
        const idx first = a->causal ? least(wide, r / V * V) : 0;
        NAME(product)(x + r * xr, xr, 1, w + first, wide, NULL, 0, out + r * wide + first, wide, least(RMAX, a->keys - r),
                      wide - first, a->width);
    }
}

/* Scores of the V queries from `at` become weights; `mask` is that of the text and head. */
INLINE void NAME(soft)(const attention *a, float *s, idx wide, const float *mask, idx at)
{
    const idx end = a->causal ? least(a->keys, at + V) : a->keys;
    const vec least_ = (vec){0} - INFINITY;
    ivec lane;
    for (int i = 0; i < V; i++)
        lane[i] = (int32_t)at + i;
    vec top = least_;
    for (idx j = 0; j < end; j++) {
        vec x = LOAD(s + j * wide) * a->scale;
        if (mask) {
            vec own = {0};
            for (int i = 0; i < V && at + i < a->queries; i++)
                own[i] = mask[(at + i) * a->mask[2] + j * a->mask[3]];
            x += own;
        }
        if (a->causal && j > at)
            x = NAME(choose)(lane < (int32_t)j, least_, x);
        STORE(s + j * wide, x);
        top = MAXIMUM(top, x);
    }
    top = NAME(choose)(top == least_, (vec){0}, top);
    vec sum = {0};
    for (idx j = 0; j < end; j++) {
        const vec x = LOAD(s + j * wide) - top, e = UNLESS(x < -87.0f, NAME(exponential)(x));
        STORE(s + j * wide, e);
        sum += e;
    }
    const vec each = UNLESS(sum == 0.0f, 1.0f / sum);
    for (idx j = 0; j < end; j++)
        STORE(s + j * wide, LOAD(s + j * wide) * each);
    for (idx j = end; j < a->keys; j++)
        STORE(s + j * wide, (vec){0});
}

/* Gradients of the weights of V queries from `at` become those of their scores. */
INLINE void NAME(soft_back)(const attention *a, const float *p, float *s, idx wide, idx at)
{
    const idx end = a->causal ? least(a->keys, at + V) : a->keys;
    vec mean = {0};
    for (idx j = 0; j < end; j++)
        mean += LOAD(s + j * wide) * LOAD(p + j * wide);
    for (idx j = 0; j < end; j++)
        STORE(s + j * wide, (LOAD(s + j * wide) - mean) * LOAD(p + j * wide) * a->scale);
    for (idx j = end; j < a->keys; j++)
        STORE(s + j * wide, (vec){0});
}

/* Turned weights or scores times rows of w: one row per query. */
INLINE void NAME(mixed)(const attention *a, const float *s, idx long_, const float *w, idx wr, float *out, idx or, idx wide,
                        float *room)
{
    for (idx r = 0; r < a->queries; r += RMAX) {
        const idx rows = least(RMAX, a->queries - r), end = a->causal ? least(a->keys, r + rows) : a->keys;
        NAME(narrowed)(s + r, 1, long_, w, wr, out + r * or, or, rows, wide, a->width, end, room);
    }
}

/* The same by keys: one row per key. */
INLINE void NAME(gathered)(const attention *a, const float *s, idx long_, const float *w, idx wr, float *out, idx or,
                           idx wide, float *room)
{
    for (idx r = 0; r < a->keys; r += RMAX) {
        const idx first = a->causal ? least(a->queries, r) : 0;
        NAME(narrowed)(s + r * long_ + first, long_, 1, w + first * wr, wr, out + r * or, or, least(RMAX, a->keys - r), wide,
                       a->width, a->queries - first, room);
    }
}

static TARGET int NAME(attend)(const attention *a, float *const *at)
{
    const idx d = a->width, tq = a->queries, tk = a->keys, wide = ceil_div(d, 16) * 16, long_ = ceil_div(tq, 16) * 16;
    float *qt = scratch(d * long_ + (tk + RMAX) * wide);
    if (!qt)
        return 0;
    float *vp = qt + d * long_, *room = vp + tk * wide;
    memset(qt, 0, (size_t)(d * long_) * sizeof *qt);
    for (idx b = 0; b < a->batch; b++)
        for (idx h = 0; h < a->heads; h++) {
            float *p = at[5] + (b * a->heads + h) * tk * long_;
            idx vr = a->v[2];
            const float *v = NAME(padded)(at[2] + b * a->v[0] + h * a->v[1], &vr, tk, d, wide, vp);
            NAME(upright)(at[0] + b * a->q[0] + h * a->q[1], a->q[2], tq, d, qt, long_);
            NAME(scores)(a, at[1] + b * a->k[0] + h * a->k[1], a->k[2], qt, long_, p);
            for (idx i = 0; i < long_; i += V)
                NAME(soft)(a, p + i, long_, at[3] ? at[3] + b * a->mask[0] + h * a->mask[1] : NULL, i);
            NAME(mixed)(a, p, long_, v, vr, at[4] + b * a->o[0] + h * a->o[1], a->o[2], wide, room);
        }
    free(qt);
    return 1;
}

static TARGET int NAME(attend_back)(const attention *a, float *const *at)
{
    const idx d = a->width, tq = a->queries, tk = a->keys, wide = ceil_div(d, 16) * 16, long_ = ceil_div(tq, 16) * 16;
    const idx to = a->heads * d; /* floats between places of a gradient */
    float *gt = scratch((d + tk) * long_ + (2 * tq + tk + RMAX) * wide);
    if (!gt)
        return 0;
    float *s = gt + d * long_, *qp = s + tk * long_, *gp = qp + tq * wide, *kp = gp + tq * wide, *room = kp + tk * wide;
    memset(gt, 0, (size_t)(d * long_) * sizeof *gt);
    for (idx b = 0; b < a->batch; b++)
        for (idx h = 0; h < a->heads; h++) {
            const float *p = at[4] + (b * a->heads + h) * tk * long_, *own = at[0] + b * a->o[0] + h * a->o[1];
            idx gr = a->o[2], qr = a->q[2], kr = a->k[2];
            const float *g = NAME(padded)(own, &gr, tq, d, wide, gp);
            const float *q = NAME(padded)(at[1] + b * a->q[0] + h * a->q[1], &qr, tq, d, wide, qp);
            const float *k = NAME(padded)(at[2] + b * a->k[0] + h * a->k[1], &kr, tk, d, wide, kp);
            NAME(upright)(own, a->o[2], tq, d, gt, long_);
            NAME(scores)(a, at[3] + b * a->v[0] + h * a->v[1], a->v[2], gt, long_, s);
            for (idx i = 0; i < long_; i += V)
                NAME(soft_back)(a, p + i, s + i, long_, i);
            NAME(mixed)(a, s, long_, k, kr, at[5] + (b * tq * a->heads + h) * d, to, wide, room);
            NAME(gathered)(a, s, long_, q, qr, at[6] + (b * tk * a->heads + h) * d, to, wide, room);
            NAME(gathered)(a, p, long_, g, gr, at[7] + (b * tk * a->heads + h) * d, to, wide, room);
        }
    free(gt);
    return 1;
}

/* A ratio of polynomials, as Eigen's; about a unit in the last place of one. */
INLINE vec NAME(error)(vec x)
{
    const vec most = (vec){0} + 4.0f;
    x = MAXIMUM(-most, MINIMUM(most, x));
    const vec z = x * x;
    vec p = z * -2.72614225801306e-10f + 2.77068142495902e-08f;
    p = p * z - 2.10102402082508e-06f;
    p = p * z - 5.69250639462346e-05f;
    p = p * z - 7.34990630326855e-04f;
    p = p * z - 2.95459980854025e-03f;
    p = p * z - 1.60960333262415e-02f;
    vec q = z * -1.45660718464996e-05f - 2.13374055278905e-04f;
    q = q * z - 1.68282697438203e-03f;
    q = q * z - 7.37332916720468e-03f;
    q = q * z - 1.42647390514189e-02f;
    return x * p * NAME(inverse)(q);
}

/* GELU of x and its slope there. */
INLINE vec NAME(bent)(vec x, vec *slope, int curve)
{
    if (curve) {
        const vec t = NAME(tangent)(0.79788456f * (x + 0.044715f * x * x * x)), share = 0.5f * (1.0f + t);
        *slope = share + 0.5f * x * (1.0f - t * t) * (0.79788456f + 0.10703222f * x * x);
        return x * share;
    }
    /* Where the function would be less than a unit in the last place of one it is zero, however large x is. */
    const vec share = UNLESS(x < -5.6f, 0.5f * (1.0f + NAME(error)(x * 0.70710678f))), z = -0.5f * x * x;
    *slope = share + x * 0.39894228f * UNLESS(z < -87.0f, NAME(exponential)(z));
    return x * share;
}

static TARGET void NAME(gelu)(const float *x, float *out, float *slope, idx count, int curve)
{
    idx i = 0;
    for (vec own; i + V <= count; i += V) {
        STORE(out + i, NAME(bent)(LOAD(x + i), &own, curve));
        STORE(slope + i, own);
    }
    if (i < count) {
        float last[V] = {0};
        const size_t bytes = (size_t)(count - i) * sizeof *x;
        vec own;
        memcpy(last, x + i, bytes);
        const vec found = NAME(bent)(LOAD(last), &own, curve);
        memcpy(out + i, &found, bytes);
        memcpy(slope + i, &own, bytes);
    }
}

#endif
