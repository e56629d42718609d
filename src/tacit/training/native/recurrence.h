/* Recurrent layers: LSTM and GRU in one direction, for clients one after another.
 *
 * A step's products, its gates and, on the way back, its share of all weights'
 * gradients are done while the step's numbers are in the cache. Inside, arrays
 * are (steps, batch, ...). A step has four blocks of `size` gates: i, f, g, o of
 * an LSTM; r, z and n of a GRU, whose n has one block for what the state gives
 * and one for what the input gives:
 *
 *     LSTM  c = f c + i g,  h = o tanh(c)
 *     GRU   n = tanh(input + r state),  h = n + z (h - n)
 *
 * `size` is a multiple of 16. */

#ifndef LEVEL

#define FORWARD_ARRAYS 13
#define BACKWARD_ARRAYS 16
#define HEARD_ARRAYS 12
#define ROWS 128 /* of examples and steps whose share of the weights' gradients is added at once */

typedef struct {
    idx clients, batch, steps, inputs, size;
    int gru;
} recurrence;

#ifdef __x86_64__
#include <immintrin.h>
#endif

#else /* LEVEL: the loops of one instruction set */

#if V == 16
#define MINIMUM(a, b) ((vec)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MAXIMUM(a, b) ((vec)_mm512_max_ps((__m512)(a), (__m512)(b)))
#else
#define MINIMUM(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MAXIMUM(a, b) ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#endif

INLINE vec NAME(choose)(ivec which, vec yes, vec no)
{
    return (vec)((which & (ivec)yes) | (~which & (ivec)no));
}

/* As in Cephes: powers of two by the exponent, the rest by a polynomial; about one unit in the last place. */
INLINE vec NAME(exponential)(vec x)
{
    const vec most = (vec){0} + 87.0f, shift = (vec){0} + 12582912.0f; /* its last bits are whole numbers */
    x = MAXIMUM(-most, MINIMUM(most, x)); /* NaN stays: of two numbers one of which is none the second is returned */
    const vec moved = x * 1.44269504f + shift, whole = moved - shift;
    const vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * (vec)(((ivec)moved - 0x4B400000 + 127) << 23);
}

INLINE vec NAME(inverse)(vec x)
{
#if V == 16
    const vec near = (vec)_mm512_rcp14_ps((__m512)x); /* one step of Newton's from 14 bits to all */
    return near * (2.0f - x * near);
#else
    return 1.0f / x;
#endif
}

/* Zero where it would be less than any usual number: times a huge input it would still count. */
INLINE vec NAME(sigmoid)(vec x) { return UNLESS(x < -87.0f, NAME(inverse)(1.0f + NAME(exponential)(-x))); }

INLINE vec NAME(tangent)(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    const vec size = (vec)((ivec)x ^ sign), e = NAME(exponential)(-2.0f * size), z = x * x;
    const vec far = (vec)((ivec)((1.0f - e) * NAME(inverse)(1.0f + e)) | sign);
    vec p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return NAME(choose)(size < 0.625f, x + x * z * p, far);
}

/* to[c][r] = from[r][c], in blocks that stay in the cache. */
static TARGET void NAME(turn)(const float *from, idx fs, idx rows, idx columns, float *to, idx ts)
{
    for (idx r = 0; r < rows; r += 16)
        for (idx c = 0; c < columns; c++)
            for (idx i = r; i < least(r + 16, rows); i++)
                to[c * ts + i] = from[i * fs + c];
}

/* Where an input's share of gate g goes among the four blocks; the state's share of it stays where it is. */
static inline TARGET idx NAME(column)(const recurrence *q, idx g) { return q->gru && g >= 2 * q->size ? g + q->size : g; }

static TARGET int NAME(recur)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, wide = 4 * size;
    const idx own = (q->gru ? 3 : 4) * size, all = batch * size;
    const idx both = q->gru ? 2 * size : wide, xr = steps * inputs; /* gates that input and state add to */
    float *wh = scratch((size + inputs + 1) * wide);
    if (!wh)
        return 0;
    float *wx = wh + size * wide, *start = wx + inputs * wide;
    for (idx k = 0; k < q->clients; k++) {
        const float *x = at[0] + k * batch * steps * inputs, *wih = at[1] + k * own * inputs, *bih = at[2] + k * own;
        const float *whh = at[3] + k * own * size, *bhh = at[4] + k * own;
        float *out = at[7] + k * steps * all, *gates = at[8] + k * steps * 4 * all, *states = at[9] + k * (steps + 1) * all;
        float *cells = q->gru ? NULL : at[10] + k * (steps + 1) * all, *curved = q->gru ? NULL : at[11] + k * steps * all;
        NAME(turn)(whh, size, own, size, wh, wide);
        NAME(turn)(wih, inputs, both, inputs, wx, wide);
        if (q->gru)
            NAME(turn)(wih + both * inputs, inputs, size, inputs, wx + 3 * size, wide);
        for (idx g = 0; g < own; g++) {
            const idx c = NAME(column)(q, g);
            start[c] = c == g ? bih[g] + bhh[g] : bih[g];
            if (c != g)
                start[g] = bhh[g];
        }
        memcpy(states, at[5] + k * all, (size_t)all * sizeof *states);
        if (cells)
            memcpy(cells, at[6] + k * all, (size_t)all * sizeof *cells);
        for (idx t = 0; t < steps; t++, x += inputs, gates += 4 * all, states += all) {
            NAME(product)(x, xr, 1, wx, wide, start, 0, gates, wide, batch, both, inputs);
            NAME(product)(states, size, 1, wh, wide, gates, wide, gates, wide, batch, both, size);
            if (q->gru) {
                NAME(product)(states, size, 1, wh + both, wide, start + both, 0, gates + both, wide, batch, size, size);
                NAME(product)(x, xr, 1, wx + 3 * size, wide, start + 3 * size, 0, gates + 3 * size, wide, batch, size,
                              inputs);
            }
            for (idx b = 0; b < batch; b++) {
                float *g = gates + b * wide, *h = states + all + b * size, *to = out + (b * steps + t) * size;
                for (idx u = 0; u < size; u += V) {
                    const vec first = NAME(sigmoid)(LOAD(g + u)), second = NAME(sigmoid)(LOAD(g + size + u));
                    STORE(g + u, first);
                    STORE(g + size + u, second);
                    vec new;
                    if (q->gru) {
                        new = NAME(tangent)(LOAD(g + 3 * size + u) + first * LOAD(g + 2 * size + u));
                        STORE(g + 3 * size + u, new);
                        new += second * (LOAD(h - all + u) - new);
                    } else {
                        const idx p = t * all + b * size + u;
                        const vec third = NAME(tangent)(LOAD(g + 2 * size + u));
                        const vec fourth = NAME(sigmoid)(LOAD(g + 3 * size + u));
                        STORE(g + 2 * size + u, third);
                        STORE(g + 3 * size + u, fourth);
                        new = second * LOAD(cells + p) + first * third;
                        STORE(cells + all + p, new);
                        new = NAME(tangent)(new);
                        STORE(curved + p, new);
                        new *= fourth;
                    }
                    STORE(h + u, new);
                    STORE(to + u, new);
                }
            }
        }
        if (cells)
            memcpy(at[12] + k * all, cells + steps * all, (size_t)all * sizeof *cells);
    }
    free(wh);
    return 1;
}

/* Gradients of a step's gates, before they were squashed; `back` becomes what of the state's goes past the gates. */
INLINE void NAME(slopes)(const recurrence *q, const float *g, const float *before, const float *curved,
                         const float *grad, float *back, float *cell, float *d, float *sums)
{
    const idx size = q->size;
    for (idx u = 0; u < size; u += V) {
        const vec first = LOAD(g + u), second = LOAD(g + size + u), third = LOAD(g + 2 * size + u);
        const vec fourth = LOAD(g + 3 * size + u), previous = LOAD(before + u);
        const vec h = LOAD(back + u) + (grad ? LOAD(grad + u) : (vec){0});
        vec e[4];
        if (q->gru) {
            const vec n = h * (1.0f - second) * (1.0f - fourth * fourth);
            e[0] = n * third * first * (1.0f - first);
            e[1] = h * (previous - fourth) * second * (1.0f - second);
            e[2] = n * first;
            e[3] = n;
            STORE(back + u, h * second);
        } else {
            const vec bent = LOAD(curved + u), c = LOAD(cell + u) + h * fourth * (1.0f - bent * bent);
            e[0] = c * third * first * (1.0f - first);
            e[1] = c * previous * second * (1.0f - second);
            e[2] = c * first * (1.0f - third * third);
            e[3] = h * bent * fourth * (1.0f - fourth);
            STORE(cell + u, c * second);
        }
        UNROLL for (int i = 0; i < 4; i++) {
            STORE(d + i * size + u, e[i]);
            if (sums)
                STORE(sums + i * size + u, LOAD(sums + i * size + u) + e[i]);
        }
    }
}

static TARGET int NAME(recur_back)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, wide = 4 * size;
    const idx own = (q->gru ? 3 : 4) * size, all = batch * size, padded = ceil_div(inputs, 16) * 16;
    const idx both = q->gru ? 2 * size : wide, some = least(steps, ceil_div(ROWS, batch)), rows = some * batch;
    float *d = scratch(rows * (wide + padded + inputs) + wide * padded + (size + inputs + 1) * wide);
    if (!d)
        return 0;
    float *ex = d + rows * wide, *xs = ex + rows * padded, *wx = xs + rows * inputs, *gwh = wx + wide * padded;
    float *gwx = gwh + size * wide, *sums = gwx + inputs * wide;
    for (idx k = 0; k < q->clients; k++) {
        const float *grad = at[0] ? at[0] + k * steps * all : NULL, *x = at[2] + k * steps * batch * inputs;
        const float *wih = at[3] + k * own * inputs, *whh = at[4] + k * own * size;
        const float *gates = at[5] + k * steps * 4 * all, *states = at[6] + k * (steps + 1) * all;
        const float *cells = q->gru ? states : at[7] + k * (steps + 1) * all;
        const float *curved = q->gru ? states : at[8] + k * steps * all;
        float *gx = at[9] ? at[9] + k * steps * batch * inputs : NULL, *gwih = at[10] + k * own * inputs;
        float *gbih = at[11] + k * own, *gwhh = at[12] + k * own * size, *gbhh = at[13] + k * own;
        float *back = at[14] + k * all, *cell = at[15] + k * all;
        memset(wx, 0, (size_t)(wide * padded) * sizeof *wx);
        for (idx g = 0; gx && g < own; g++)
            memcpy(wx + NAME(column)(q, g) * padded, wih + g * inputs, (size_t)inputs * sizeof *wx);
        memset(gwh, 0, (size_t)((size + inputs + 1) * wide) * sizeof *gwh);
        memset(back, 0, (size_t)all * sizeof *back);
        if (at[1])
            memcpy(cell, at[1] + k * all, (size_t)all * sizeof *cell);
        else
            memset(cell, 0, (size_t)all * sizeof *cell);
        for (idx end = steps, first; end > 0; end = first) {
            first = most(0, end - some);
            const idx count = (end - first) * batch;
            for (idx t = end - 1; t >= first; t--) {
                float *own_d = d + (t - first) * batch * wide, *own_x = xs + (t - first) * batch * inputs;
                for (idx b = 0; b < batch; b++) {
                    NAME(slopes)(q, gates + (t * batch + b) * wide, cells + t * all + b * size,
                                 curved + t * all + b * size, grad ? grad + (b * steps + t) * size : NULL,
                                 back + b * size, cell + b * size, own_d + b * wide, sums);
                    memcpy(own_x + b * inputs, x + (b * steps + t) * inputs, (size_t)inputs * sizeof *xs);
                }
                NAME(product)(own_d, wide, 1, whh, size, q->gru ? back : NULL, size, back, size, batch, size, own);
            }
            NAME(product)(states + first * all, 1, size, d, wide, gwh, wide, gwh, wide, size, own, count);
            NAME(product)(xs, 1, inputs, d, wide, gwx, wide, gwx, wide, inputs, both, count);
            if (q->gru)
                NAME(product)(xs, 1, inputs, d + 3 * size, wide, gwx + 3 * size, wide, gwx + 3 * size, wide, inputs,
                              size, count);
            if (!gx)
                continue;
            NAME(product)(d, wide, 1, wx, padded, NULL, 0, ex, padded, count, padded, both);
            if (q->gru)
                NAME(product)(d + 3 * size, wide, 1, wx + 3 * size * padded, padded, ex, padded, ex, padded, count,
                              padded, size);
            for (idx t = first; t < end; t++)
                for (idx b = 0; b < batch; b++)
                    memcpy(gx + (b * steps + t) * inputs, ex + ((t - first) * batch + b) * padded,
                           (size_t)inputs * sizeof *gx);
        }
        NAME(turn)(gwh, wide, size, own, gwhh, size);
        NAME(turn)(gwx, wide, inputs, both, gwih, inputs);
        if (q->gru)
            NAME(turn)(gwx + 3 * size, wide, inputs, size, gwih + both * inputs, inputs);
        for (idx g = 0; g < own; g++)
            gbhh[g] = sums[g], gbih[g] = sums[NAME(column)(q, g)];
    }
    free(d);
    return 1;
}

/* The way back of one client for whoever makes the weights' gradients himself, example by example: at[9] becomes the
 * gradients of all gates, (batch, steps, 4 size). Examples are apart. */
static TARGET int NAME(recur_heard)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, wide = 4 * size;
    const idx own = (q->gru ? 3 : 4) * size, all = batch * size, padded = ceil_div(inputs, 16) * 16;
    const idx both = q->gru ? 2 * size : wide, row = steps * wide; /* floats from one example to the next */
    const float *grad = at[0], *wih = at[2], *whh = at[3], *gates = at[4], *states = at[5];
    const float *cells = q->gru ? states : at[6], *curved = q->gru ? states : at[7];
    float *gx = at[8], *d = at[9], *back = at[10], *cell = at[11];
    memset(back, 0, (size_t)all * sizeof *back);
    if (at[1])
        memcpy(cell, at[1], (size_t)all * sizeof *cell);
    else
        memset(cell, 0, (size_t)all * sizeof *cell);
    for (idx t = steps - 1; t >= 0; t--) {
        for (idx b = 0; b < batch; b++)
            NAME(slopes)(q, gates + (t * batch + b) * wide, cells + t * all + b * size, curved + t * all + b * size,
                         grad ? grad + (b * steps + t) * size : NULL, back + b * size, cell + b * size,
                         d + b * row + t * wide, NULL);
        NAME(product)(d + t * wide, row, 1, whh, size, q->gru ? back : NULL, size, back, size, batch, size, own);
    }
    if (!gx)
        return 1;
    float *wx = scratch((wide + steps) * padded);
    if (!wx)
        return 0;
    float *ex = wx + wide * padded;
    memset(wx, 0, (size_t)(wide * padded) * sizeof *wx);
    for (idx g = 0; g < own; g++)
        memcpy(wx + NAME(column)(q, g) * padded, wih + g * inputs, (size_t)inputs * sizeof *wx);
    for (idx b = 0; b < batch; b++, d += row) {
        NAME(product)(d, wide, 1, wx, padded, NULL, 0, ex, padded, steps, padded, both);
        if (q->gru)
            NAME(product)(d + 3 * size, wide, 1, wx + 3 * size * padded, padded, ex, padded, ex, padded, steps, padded,
                          size);
        for (idx t = 0; t < steps; t++)
            memcpy(gx + (b * steps + t) * inputs, ex + t * padded, (size_t)inputs * sizeof *gx);
    }
    free(wx);
    return 1;
}

#endif
