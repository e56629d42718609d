/* Recurrent layers: LSTM and GRU in one direction, for clients one after another.
 *
 * A step's products, its gates and, on the way back, its share of all weights'
 * gradients are done while the step's numbers are in the cache. A step has four
 * blocks of `size` gates: i, f, g, o of an LSTM; r, z and n of a GRU, whose n has
 * one block for what the state gives and one for what the input gives:
 *
 *     LSTM  c = f c + i g,  h = o tanh(c)
 *     GRU   n = tanh(input + r state),  h = n + z (h - n)
 *
 * For the way back an example keeps one row per step, (steps, batch, row): the
 * gates, and then of an LSTM the cell before and the tangent of the one after,
 * whose product with o is the state; of a GRU the state before. What a step will
 * need next is asked for a step ahead: rows of many clients are out of the cache
 * by the time the way back begins.
 *
 * `size` is a multiple of UNITS. */

#ifndef LEVEL

#define FORWARD_ARRAYS 10
#define BACKWARD_ARRAYS 14
#define HEARD_ARRAYS 9
#define UNITS 16 /* of the state, whose gates lie side by side */
#define ROWS 128 /* of examples and steps, about, whose share of the weights' gradients is added at once */
#define ASKED (1 << 16) /* floats that are asked for meanwhile */
#define PART 16 /* examples of a part of a client's batch, at least */

typedef struct {
    idx clients, batch, steps, inputs, size;
    int gru, last; /* last: the state of the last step alone has a gradient, of `size` numbers per example */
} recurrence;

/* A client's batch is cut into as many parts of their own, however many threads there are: rows that are kept lie part
 * by part, and gradients of the weights are added up part by part, so that threads change no number. */
static inline idx parts_of(const recurrence *q) { return most(1, q->batch / PART); }

#ifdef __x86_64__
#include <immintrin.h>
#endif

#else /* LEVEL: the loops of one instruction set */

#if V == 16
#define MINIMUM(a, b) ((vec)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MAXIMUM(a, b) ((vec)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define PLACED(v, places) ((vec)_mm512_permutexvar_ps((__m512i)(places), (__m512)(v)))
#else
#define MINIMUM(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MAXIMUM(a, b) ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define PLACED(v, places) ((vec)_mm256_permutevar8x32_ps((__m256)(v), (__m256i)(places)))
#endif

INLINE vec NAME(choose)(ivec which, vec yes, vec no)
{
    return (vec)((which & (ivec)yes) | (~which & (ivec)no));
}

/* e^x is 2^n e^r: returns e^r - 1 by a polynomial as in Cephes, which is as exact for the smallest r, and makes `power`
 * 2^n. */
INLINE vec NAME(less_one)(vec x, vec *power)
{
    const vec most = (vec){0} + 87.0f, shift = (vec){0} + 12583039.0f; /* its last bits are whole numbers and 127 */
    x = MAXIMUM(-most, MINIMUM(most, x)); /* NaN stays: of two numbers one of which is none the second is returned */
    const vec moved = x * 1.44269504f + shift, whole = moved - shift;
    const vec r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    *power = (vec)((ivec)moved << 23);
    return p * (r * r) + r;
}

/* About one unit in the last place. */
INLINE vec NAME(exponential)(vec x)
{
    vec power;
    const vec less = NAME(less_one)(x, &power);
    return power * less + power;
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
INLINE vec NAME(sigmoid)(vec x)
{
    vec power;
    const vec less = NAME(less_one)(-x, &power);
    return UNLESS(x < -87.0f, NAME(inverse)(power * less + (1.0f + power)));
}

/* By 1 - e^-2x, which is 1 where the tangent is; about two units in the last place. */
INLINE vec NAME(tangent)(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    vec power;
    const vec less = NAME(less_one)(-2.0f * (vec)((ivec)x ^ sign), &power), e = (1.0f - power) - power * less;
    return (vec)((ivec)(e * NAME(inverse)(2.0f - e)) | sign);
}

/* Turns a square: rows and columns whose numbers differ in one bit change places, bit by bit. */
INLINE void NAME(turn_square)(const float *from, idx fs, float *to, idx ts)
{
    ivec places;
    vec rows[V];
    UNROLL_ALL for (int i = 0; i < V; i++)
        places[i] = i, rows[i] = LOAD(from + i * fs);
    UNROLL_ALL for (int bit = 1; bit < V; bit *= 2)
        UNROLL_ALL for (int i = 0; i < V; i++)
            if (!(i & bit)) {
                const vec a = rows[i], b = rows[i | bit];
                const ivec odd = (places & bit) != 0, others = places ^ bit;
                rows[i] = NAME(choose)(odd, PLACED(b, others), a);
                rows[i | bit] = NAME(choose)(odd, b, PLACED(a, others));
            }
    UNROLL_ALL for (int i = 0; i < V; i++)
        STORE(to + i * ts, rows[i]);
}

/* to[c][r] = from[r][c] */
static TARGET void NAME(turn)(const float *from, idx fs, idx rows, idx columns, float *to, idx ts)
{
    const idx whole_rows = rows - rows % V, whole = columns - columns % V;
    for (idx r = 0; r < whole_rows; r += V)
        for (idx c = 0; c < whole; c += V)
            NAME(turn_square)(from + r * fs + c, fs, to + c * ts + r, ts);
    for (idx r = 0; r < rows; r++)
        for (idx c = r < whole_rows ? whole : 0; c < columns; c++)
            to[c * ts + r] = from[r * fs + c];
}

/* Where an input's share of gate g goes among the four blocks; the state's share of it stays where it is. */
static inline TARGET idx NAME(column)(const recurrence *q, idx g) { return q->gru && g >= 2 * q->size ? g + q->size : g; }

/* Weights as a step reads them: of UNITS units after each other, for every number of state and input the weights of
 * their four gates. */
static TARGET void NAME(pack)(const recurrence *q, const float *wih, const float *bih, const float *whh,
                              const float *bhh, float *w, float *start)
{
    const idx size = q->size, inputs = q->inputs, both = size + inputs, own = (q->gru ? 3 : 4) * size;
    for (idx g = 0; g < own; g += UNITS) {
        const idx c = NAME(column)(q, g), place = g / size * UNITS, other = c / size * UNITS, unit = g % size;
        float *to = w + unit * 4 * both, *from = start + unit * 4;
        NAME(turn)(whh + g * size, size, UNITS, size, to + place, 4 * UNITS);
        NAME(turn)(wih + g * inputs, inputs, UNITS, inputs, to + size * 4 * UNITS + other, 4 * UNITS);
        for (idx u = 0; u < UNITS; u++) {
            from[other + u] = c == g ? bih[g + u] + bhh[g + u] : bih[g + u];
            if (c != g)
                from[place + u] = bhh[g + u];
        }
    }
}

/* Squashes the gates of UNITS units of an example; `kept` is its row, from these units on. */
INLINE void NAME(squash)(const recurrence *q, const float *g, const float *before, float *cell, float *kept, float *after,
                         float *out)
{
    const idx size = q->size;
    for (idx u = 0; u < UNITS; u += V) {
        const vec first = NAME(sigmoid)(LOAD(g + u)), second = NAME(sigmoid)(LOAD(g + UNITS + u));
        vec third = LOAD(g + 2 * UNITS + u), fourth = LOAD(g + 3 * UNITS + u), new;
        if (q->gru) {
            const vec previous = LOAD(before + u);
            fourth = NAME(tangent)(fourth + first * third);
            new = fourth + second * (previous - fourth);
            STORE(kept + 4 * size + u, previous);
        } else {
            const vec previous = LOAD(cell + u);
            third = NAME(tangent)(third);
            fourth = NAME(sigmoid)(fourth);
            new = second * previous + first * third;
            STORE(cell + u, new);
            new = NAME(tangent)(new);
            STORE(kept + 4 * size + u, previous);
            STORE(kept + 5 * size + u, new);
            new *= fourth;
        }
        STORE(kept + u, first);
        STORE(kept + size + u, second);
        STORE(kept + 2 * size + u, third);
        STORE(kept + 3 * size + u, fourth);
        STORE(after + u, new);
        STORE(out + u, new);
    }
}

/* One client's layer, or of a part of his batch. */
static TARGET int NAME(recur)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, both = size + inputs;
    const idx all = batch * size, row = (q->gru ? 5 : 6) * size, wide = 4 * UNITS;
    float *w = scratch((both + 1) * 4 * size + batch * (wide + 2 * both));
    if (!w)
        return 0;
    float *start = w + both * 4 * size, *gates = start + 4 * size, *before = gates + batch * wide;
    float *after = before + batch * both; /* state and input of each example */
    const float *x = at[0];
    float *out = at[7], *kept = at[8], *cell = at[9];
    NAME(pack)(q, at[1], at[2], at[3], at[4], w, start);
    for (idx b = 0; b < batch; b++)
        memcpy(before + b * both, at[5] + b * size, (size_t)size * sizeof *before);
    memcpy(cell, at[6], (size_t)all * sizeof *cell);
    for (idx t = 0; t < steps; t++, kept += batch * row) {
        for (idx b = 0; b < batch; b++)
            memcpy(before + b * both + size, x + (b * steps + t) * inputs, (size_t)inputs * sizeof *x);
        for (idx u = 0; u < size; u += UNITS) {
            const float *own_w = w + u * 4 * both, *own_start = start + u * 4;
            NAME(product)(before, both, 1, own_w, wide, own_start, 0, gates, wide, batch, q->gru ? 2 * UNITS : wide, both);
            if (q->gru) {
                NAME(product)(before, both, 1, own_w + 2 * UNITS, wide, own_start + 2 * UNITS, 0, gates + 2 * UNITS,
                              wide, batch, UNITS, size);
                NAME(product)(before + size, both, 1, own_w + size * wide + 3 * UNITS, wide, own_start + 3 * UNITS, 0,
                              gates + 3 * UNITS, wide, batch, UNITS, inputs);
            }
            for (idx b = 0; b < batch; b++)
                NAME(squash)(q, gates + b * wide, before + b * both + u, cell + b * size + u, kept + b * row + u,
                             after + b * both + u, out + (b * steps + t) * size + u);
        }
        float *swapped = before;
        before = after, after = swapped;
    }
    free(w);
    return 1;
}

/* Gradients of the gates of a step of all examples, before they were squashed, and their sums; `back` becomes what of
 * the state's gradient goes past the gates. */
static TARGET void NAME(slopes)(const recurrence *q, const float *kept, const float *grad, idx gr, float *back,
                                float *cell, float *d, idx dr, float *sums)
{
    const idx size = q->size, row = (q->gru ? 5 : 6) * size;
    for (idx b = 0; b < q->batch; b++, kept += row, back += size, cell += size, d += dr) {
        for (idx u = 0; u < size; u += V) {
            const float *g = kept + u;
            const vec first = LOAD(g), second = LOAD(g + size), third = LOAD(g + 2 * size), fourth = LOAD(g + 3 * size);
            const vec previous = LOAD(g + 4 * size), h = LOAD(back + u) + (grad ? LOAD(grad + u) : (vec){0});
            vec e[4];
            if (q->gru) {
                const vec n = h * (1.0f - second) * (1.0f - fourth * fourth);
                e[0] = n * third * first * (1.0f - first);
                e[1] = h * (previous - fourth) * second * (1.0f - second);
                e[2] = n * first;
                e[3] = n;
                STORE(back + u, h * second);
            } else {
                const vec bent = LOAD(g + 5 * size), c = LOAD(cell + u) + h * fourth * (1.0f - bent * bent);
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
            if (grad)
                __builtin_prefetch(grad + u - size); /* of the step before */
        }
        grad = grad ? grad + gr : NULL;
    }
}

/* States before some steps, beside the inputs of these steps: a row of each example and step. */
static TARGET void NAME(meet)(const recurrence *q, const float *kept, const float *hidden, const float *x, idx first,
                              idx end, float *to)
{
    const idx size = q->size, inputs = q->inputs, row = (q->gru ? 5 : 6) * size;
    for (idx t = first; t < end; t++)
        for (idx b = 0; b < q->batch; b++, to += size + inputs) {
            const float *own = kept + (t * q->batch + b) * row, *last = own - q->batch * row;
            if (q->gru || t == 0)
                memcpy(to, q->gru ? own + 4 * size : hidden + b * size, (size_t)size * sizeof *to);
            else
                for (idx u = 0; u < size; u += V)
                    STORE(to + u, LOAD(last + 3 * size + u) * LOAD(last + 5 * size + u));
            memcpy(to + size, x + (b * q->steps + t) * inputs, (size_t)inputs * sizeof *to);
        }
}

/* Adds to the weights' gradients what some rows give, in pieces; in between, what lies before `end` is asked for. */
static TARGET void NAME(add_weights)(const recurrence *q, const float *met, const float *d, float *gw, idx count,
                                     const float *begin, const float *end)
{
    const idx size = q->size, inputs = q->inputs, both = size + inputs, wide = 4 * size, shared = q->gru ? 2 * size : wide;
    const idx high = RMAX, across = UMAX * V, pieces = ceil_div(both, high) * ceil_div(shared, across);
    const idx share = ceil_div(least(end - begin, ASKED), pieces);
    for (idx c = 0; c < shared; c += across)
        for (idx r = 0; r < both; r += high) {
            for (const float *stop = end - least(share, end - begin); end > stop; end -= 16)
                __builtin_prefetch(end - 16, 0, 2);
            float *own = gw + r * wide + c;
            NAME(product)(met + r, 1, both, d + c, wide, own, wide, own, wide, least(high, both - r),
                          least(across, shared - c), count);
        }
    if (q->gru) {
        float *of_state = gw + 2 * size, *of_input = gw + size * wide + 3 * size;
        NAME(product)(met, 1, both, d + 2 * size, wide, of_state, wide, of_state, wide, size, size, count);
        NAME(product)(met + size, 1, both, d + 3 * size, wide, of_input, wide, of_input, wide, inputs, size, count);
    }
}

/* Weights of the inputs in rows of whole vectors. */
static TARGET void NAME(pad_inputs)(const recurrence *q, const float *wih, float *to, idx padded)
{
    const idx own = (q->gru ? 3 : 4) * q->size;
    memset(to, 0, (size_t)(4 * q->size * padded) * sizeof *to);
    for (idx g = 0; g < own; g++)
        memcpy(to + NAME(column)(q, g) * padded, wih + g * q->inputs, (size_t)q->inputs * sizeof *to);
}

static TARGET void NAME(begin)(float *to, const float *from, idx count)
{
    if (from)
        memcpy(to, from, (size_t)count * sizeof *to);
    else
        memset(to, 0, (size_t)count * sizeof *to);
}

/* The gradient of a step's states, or NULL where there is none. */
static inline TARGET const float *NAME(of_step)(const recurrence *q, const float *grad, idx t)
{
    if (q->last)
        return t == q->steps - 1 ? grad : NULL;
    return grad ? grad + t * q->size : NULL;
}

static TARGET int NAME(recur_back)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, wide = 4 * size;
    const idx own = (q->gru ? 3 : 4) * size, all = batch * size, row = (q->gru ? 5 : 6) * size;
    const idx padded = ceil_div(inputs, 16) * 16, both = size + inputs, shared = q->gru ? 2 * size : wide;
    const idx parts = most(1, steps * batch / ROWS), some = ceil_div(steps, parts), rows = some * batch;
    float *d = scratch(rows * (wide + padded + both) + wide * padded + (both + 1) * wide);
    if (!d)
        return 0;
    float *ex = d + rows * wide, *met = ex + rows * padded, *wx = met + rows * both, *gw = wx + wide * padded;
    float *sums = gw + both * wide, *gx = at[7], *gwih = at[8], *gbih = at[9], *gwhh = at[10], *gbhh = at[11];
    float *back = at[12], *cell = at[13];
    const float *grad = at[0], *x = at[2], *whh = at[4], *kept = at[6];
    if (gx)
        NAME(pad_inputs)(q, at[3], wx, padded);
    NAME(begin)(gw, NULL, (both + 1) * wide);
    NAME(begin)(back, NULL, all);
    NAME(begin)(cell, at[1], all);
    for (idx end = steps, first; end > 0; end = first) { /* rows from the last to the first */
        first = most(0, end - some);
        const idx count = (end - first) * batch;
        for (idx t = end - 1; t >= first; t--) {
            float *own_d = d + (t - first) * batch * wide;
            NAME(slopes)(q, kept + t * batch * row, NAME(of_step)(q, grad, t), q->last ? size : steps * size, back, cell,
                         own_d, wide, sums);
            NAME(product)(own_d, wide, 1, whh, size, q->gru ? back : NULL, size, back, size, batch, size, own);
        }
        NAME(meet)(q, kept, at[5], x, first, end, met);
        NAME(add_weights)(q, met, d, gw, count, at[6], kept + first * batch * row);
        if (!gx)
            continue;
        NAME(product)(d, wide, 1, wx, padded, NULL, 0, ex, padded, count, padded, shared);
        if (q->gru)
            NAME(product)(d + 3 * size, wide, 1, wx + 3 * size * padded, padded, ex, padded, ex, padded, count, padded,
                          size);
        for (idx t = first; t < end; t++)
            for (idx b = 0; b < batch; b++)
                memcpy(gx + (b * steps + t) * inputs, ex + ((t - first) * batch + b) * padded,
                       (size_t)inputs * sizeof *gx);
    }
    NAME(turn)(gw, wide, size, own, gwhh, size);
    NAME(turn)(gw + size * wide, wide, inputs, shared, gwih, inputs);
    if (q->gru)
        NAME(turn)(gw + size * wide + 3 * size, wide, inputs, size, gwih + shared * inputs, inputs);
    for (idx g = 0; g < own; g++)
        gbhh[g] = sums[g], gbih[g] = sums[NAME(column)(q, g)];
    free(d);
    return 1;
}

/* The way back of one client for whoever makes the weights' gradients himself, example by example: at[6] becomes the
 * gradients of all gates, (batch, steps, 4 size). Examples are apart. */
static TARGET int NAME(recur_heard)(const recurrence *q, float *const *at)
{
    const idx batch = q->batch, steps = q->steps, inputs = q->inputs, size = q->size, wide = 4 * size;
    const idx own = (q->gru ? 3 : 4) * size, all = batch * size, padded = ceil_div(inputs, 16) * 16;
    const idx row = (q->gru ? 5 : 6) * size, apart = steps * wide; /* floats from one example's gates to the next's */
    const float *grad = at[0], *wih = at[2], *whh = at[3], *kept = at[4];
    float *gx = at[5], *d = at[6], *back = at[7], *cell = at[8];
    NAME(begin)(back, NULL, all);
    NAME(begin)(cell, at[1], all);
    for (idx t = steps - 1; t >= 0; t--) {
        NAME(slopes)(q, kept + t * batch * row, NAME(of_step)(q, grad, t), steps * size, back, cell, d + t * wide, apart,
                     NULL);
        NAME(product)(d + t * wide, apart, 1, whh, size, q->gru ? back : NULL, size, back, size, batch, size, own);
    }
    if (!gx)
        return 1;
    float *wx = scratch((wide + steps) * padded);
    if (!wx)
        return 0;
    float *ex = wx + wide * padded;
    NAME(pad_inputs)(q, wih, wx, padded);
    for (idx b = 0; b < batch; b++, d += apart) {
        NAME(product)(d, wide, 1, wx, padded, NULL, 0, ex, padded, steps, padded, q->gru ? 2 * size : wide);
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
