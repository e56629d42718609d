/* Convolutions of 3 x 3 and group norms for one model, channels last.
 *
 * A convolution is done by Winograd's method F(4x4, 3x3): a tile of 4 x 4
 * outputs takes 36 products per pair of channels where the plain sum takes 144.
 * With d the 6 x 6 inputs of a tile, g the kernel and y its outputs,
 *
 *     y = A' [(G g G') * (B' d B)] A,
 *
 * so the work is 36 matrix products of (tiles x inputs) by (inputs x outputs).
 * The gradient of the inputs is the same convolution of the outputs' gradient e
 * with kernels turned round; that of the kernel is G' [(B' d B) * (A e A')] G,
 * 36 products of (inputs x tiles) by (tiles x outputs).
 *
 * The interpolation points are 0, 3/4, -3/4, 3/2, -3/2 and infinity: with the
 * usual 0, 1, -1, 2, -2 rounding errors are twice as large. As it is they are
 * up to twice those of a plain sum in a weight's gradient and two to eight
 * times those of one in an output: one or two millionths of the largest output
 * of the tile, not of each.
 *
 * The unit of work is a block of tiles whose 36 matrices stay in the cache.
 * Transformed kernels of large layers would not: they are made in blocks, each
 * just before it is used. Channels are multiples of 16.
 */

#ifndef LEVEL

#define POINTS 36   /* products per tile */
#define SIDE 64     /* channels per block of kernels */
#define AHEAD 8     /* kernels that are put together at a time */
#define GAP 16      /* floats between matrices, so that they don't share cache sets */
#define LARGE 16384 /* pairs of channels above which kernels are made in blocks */
#define SMALL 2048  /* pairs of channels whose sums over tiles are few enough to be written often */
#define FEW 1024    /* floats per point that a block of tiles takes, of inputs and outputs */
#define MORE 4096   /* the same where few tiles are summed over */
#define MANY 16384  /* the same where kernels are made in blocks, or many tiles are summed over */

/* Images (n, h, w, c) to (n, oh, ow, o). */
typedef struct {
    idx n, h, w, c, oh, ow, o, pad;
    idx high, wide, tiles; /* tiles per column and row of an image, and in all */
    idx first, last;       /* the tiles and */
    idx left, right;       /* the outputs that one thread computes */
} convolution;

/* The interpolation points, their squares, and what G divides by. */
#define P1 0.75f
#define P2 1.5f
#define S1 (P1 * P1)
#define S2 (P2 * P2)
#define G0 (1.0f / (S1 * S2))
#define G1 (1.0f / (2.0f * S1 * (S1 - S2)))
#define G2 (1.0f / (2.0f * S2 * (S2 - S1)))

/* B' d, of six values a step apart. */
#define ENTER(d, s, t, u) \
    do { \
        const vec e1 = d[4 * s] - S2 * d[2 * s], o1 = P1 * (d[3 * s] - S2 * d[s]); \
        const vec e2 = d[4 * s] - S1 * d[2 * s], o2 = P2 * (d[3 * s] - S1 * d[s]); \
        t[0] = S1 * S2 * d[0] - (S1 + S2) * d[2 * s] + d[4 * s]; \
        t[u] = e1 + o1, t[2 * u] = e1 - o1, t[3 * u] = e2 + o2, t[4 * u] = e2 - o2; \
        t[5 * u] = S1 * S2 * d[s] - (S1 + S2) * d[3 * s] + d[5 * s]; \
    } while (0)

/* A' m, six values to four. */
#define LEAVE(m, s, t, u) \
    do { \
        const vec p = m[s] + m[2 * s], q = m[s] - m[2 * s], r = m[3 * s] + m[4 * s], v = m[3 * s] - m[4 * s]; \
        t[0] = m[0] + p + r, t[u] = P1 * q + P2 * v, t[2 * u] = S1 * p + S2 * r; \
        t[3 * u] = S1 * P1 * q + S2 * P2 * v + m[5 * s]; \
    } while (0)

/* A e, four values to six. */
#define SPREAD(d, s, t, u) \
    do { \
        const vec e1 = d[0] + S1 * d[2 * s], o1 = P1 * d[s] + S1 * P1 * d[3 * s]; \
        const vec e2 = d[0] + S2 * d[2 * s], o2 = P2 * d[s] + S2 * P2 * d[3 * s]; \
        t[0] = d[0], t[u] = e1 + o1, t[2 * u] = e1 - o1, t[3 * u] = e2 + o2, t[4 * u] = e2 - o2; \
        t[5 * u] = d[3 * s]; \
    } while (0)

/* G g, three values to six. */
#define WIDEN(g, s, t, u) \
    do { \
        const vec e1 = G1 * (g[0] + S1 * g[2 * s]), o1 = G1 * P1 * g[s]; \
        const vec e2 = G2 * (g[0] + S2 * g[2 * s]), o2 = G2 * P2 * g[s]; \
        t[0] = G0 * g[0], t[u] = e1 + o1, t[2 * u] = e1 - o1, t[3 * u] = e2 + o2, t[4 * u] = e2 - o2; \
        t[5 * u] = g[2 * s]; \
    } while (0)

/* G' m, six values to three. */
#define NARROW(m, s, t, u) \
    do { \
        const vec p = G1 * (m[s] + m[2 * s]), r = G2 * (m[3 * s] + m[4 * s]); \
        t[0] = G0 * m[0] + p + r; \
        t[u] = G1 * P1 * (m[s] - m[2 * s]) + G2 * P2 * (m[3 * s] - m[4 * s]); \
        t[2 * u] = S1 * p + S2 * r + m[5 * s]; \
    } while (0)

#else /* LEVEL: the loops of one instruction set */

/* The first pixel of a tile. */
static inline TARGET void NAME(place)(const convolution *q, idx tile, idx *n, idx *y, idx *x)
{
    *x = tile % q->wide * 4;
    *y = tile / q->wide % q->high * 4;
    *n = tile / (q->wide * q->high);
}

/* B' d B of `count` tiles: to[point][tile][channel]. `edge` has room for the inputs of one tile: those at the edge of an
 * image are put there among zeros, so that there is one loop for all. */
static TARGET void NAME(enter)(const convolution *q, const float *from, idx first, idx count, float *to, idx step,
                               float *edge)
{
    for (idx i = 0; i < count; i++, to += q->c) {
        idx n, y, x, row = q->w * q->c;
        NAME(place)(q, first + i, &n, &y, &x);
        y -= q->pad, x -= q->pad;
        const float *at = from + n * q->h * row + y * row + x * q->c;
        if (y < 0 || x < 0 || y + 6 > q->h || x + 6 > q->w) {
            const idx left = most(0, -x), wide = least(6, q->w - x) - left;
            memset(edge, 0, (size_t)(POINTS * q->c) * sizeof *edge);
            for (idx k = most(0, -y); k < least(6, q->h - y); k++)
                memcpy(edge + (6 * k + left) * q->c, at + k * row + left * q->c, (size_t)(wide * q->c) * sizeof *edge);
            at = edge, row = 6 * q->c;
        }
        for (idx c = 0; c < q->c; c += V) {
            vec t[36];
            UNROLL for (int j = 0; j < 6; j++) {
                vec own[6];
                UNROLL for (int k = 0; k < 6; k++)
                    own[k] = LOAD(at + k * row + j * q->c + c);
                ENTER(own, 1, (t + j), 6);
            }
            UNROLL for (int k = 0; k < 6; k++) {
                vec own[6];
                ENTER((t + 6 * k), 1, own, 1);
                UNROLL for (int j = 0; j < 6; j++)
                    STORE(to + (6 * k + j) * step + c, own[j]);
            }
        }
    }
}

/* A' m A of one tile, and the bias: one vector of channels, `high` x `wide` pixels `row` and `pixel` floats apart. */
INLINE void NAME(leave_tile)(const float *from, idx step, vec more, float *at, idx row, idx pixel, const int add,
                             const idx high, const idx wide)
{
    vec t[24];
    UNROLL for (int j = 0; j < 6; j++) {
        vec own[6];
        UNROLL for (int k = 0; k < 6; k++)
            own[k] = LOAD(from + (6 * k + j) * step);
        LEAVE(own, 1, (t + j), 6);
    }
    UNROLL for (int k = 0; k < 4; k++) {
        vec own[4];
        LEAVE((t + 6 * k), 1, own, 1);
        UNROLL for (int j = 0; j < 4; j++)
            if (k < high && j < wide) {
                float *to = at + k * row + j * pixel;
                STORE(to, own[j] + (add ? LOAD(to) : more));
            }
    }
}

/* The same of `count` tiles and `channels` of the outputs, written or added to what is there. */
static TARGET void NAME(leave)(const convolution *q, const float *from, idx first, idx count, idx step, idx channels,
                               const float *bias, float *to, int add)
{
    for (idx i = 0; i < count; i++, from += channels) {
        idx n, y, x;
        NAME(place)(q, first + i, &n, &y, &x);
        const idx row = q->ow * q->o, high = least(4, q->oh - y), wide = least(4, q->ow - x);
        float *at = to + n * q->oh * row + y * row + x * q->o;
        for (idx c = 0; c < channels; c += V) {
            const vec more = bias ? LOAD(bias + c) : (vec){0};
            if (high < 4 || wide < 4)
                NAME(leave_tile)(from + c, step, more, at + c, row, q->o, add, high, wide);
            else if (add)
                NAME(leave_tile)(from + c, step, more, at + c, row, q->o, 1, 4, 4);
            else
                NAME(leave_tile)(from + c, step, more, at + c, row, q->o, 0, 4, 4);
        }
    }
}

/* A e A' of one tile and one vector of channels. */
INLINE void NAME(spread_tile)(const float *at, idx row, idx pixel, float *to, idx step, const idx high, const idx wide)
{
    vec t[24];
    UNROLL for (int j = 0; j < 4; j++) {
        vec own[4];
        UNROLL for (int k = 0; k < 4; k++)
            own[k] = k < high && j < wide ? LOAD(at + k * row + j * pixel) : (vec){0};
        SPREAD(own, 1, (t + j), 4);
    }
    UNROLL for (int k = 0; k < 6; k++) {
        vec own[6];
        SPREAD((t + 4 * k), 1, own, 1);
        UNROLL for (int j = 0; j < 6; j++)
            STORE(to + (6 * k + j) * step, own[j]);
    }
}

/* The same of `count` tiles. */
static TARGET void NAME(spread)(const convolution *q, const float *from, idx first, idx count, float *to, idx step)
{
    for (idx i = 0; i < count; i++, to += q->o) {
        idx n, y, x;
        NAME(place)(q, first + i, &n, &y, &x);
        const idx row = q->ow * q->o, high = least(4, q->oh - y), wide = least(4, q->ow - x);
        const float *at = from + n * q->oh * row + y * row + x * q->o;
        for (idx c = 0; c < q->o; c += V)
            if (high < 4 || wide < 4)
                NAME(spread_tile)(at + c, row, q->o, to + c, step, high, wide);
            else
                NAME(spread_tile)(at + c, row, q->o, to + c, step, 4, 4);
    }
}

/* G g G' of a block of kernels: to[point][input][output]; `in` and `out` floats lie between neighbours. */
static TARGET void NAME(widen)(const float *w, idx in, idx out, int turned, idx inputs, idx outputs, float *to,
                               idx step, idx line)
{
    for (idx o = 0; o < outputs; o += V)
        for (idx c = 0; c < inputs; c += AHEAD) { /* so many are read before the first is used: stores take a while */
            const idx some = least(AHEAD, inputs - c);
            float own[AHEAD * 9][V];
            for (int l = 0; l < V; l++) {
                const float *at = w + c * in + (o + l) * out;
                for (idx i = 0; i < some; i++, at += in)
                    UNROLL for (int k = 0; k < 9; k++)
                        own[9 * i + k][l] = at[k];
            }
            for (idx i = 0; i < some; i++) {
                vec g[9], t[18];
                UNROLL for (int k = 0; k < 9; k++)
                    g[k] = LOAD(own[9 * i + (turned ? 8 - k : k)]);
                UNROLL for (int j = 0; j < 3; j++)
                    WIDEN((g + j), 3, (t + j), 3);
                UNROLL for (int k = 0; k < 6; k++) {
                    vec u[6];
                    WIDEN((t + 3 * k), 1, u, 1);
                    UNROLL for (int j = 0; j < 6; j++)
                        STORE(to + (6 * k + j) * step + (c + i) * line + o, u[j]);
                }
            }
        }
}

static TARGET int NAME(convolve)(const convolution *q, const float *x, const float *w, idx in, idx out, int turned,
                                 const float *bias, float *y, int add)
{
    const int whole = q->c * q->o <= LARGE;
    const idx cb = whole ? q->c : least(q->c, SIDE), ob = whole ? q->o : least(q->o, SIDE);
    const idx room = whole ? FEW / (q->c + q->o) : MANY / q->c;
    const idx block = least(q->last - q->first, most(room - room % RMAX, 2 * RMAX));
    const idx vs = block * q->c + GAP, ms = block * ob + GAP, us = cb * ob + GAP;
    float *v = scratch(POINTS * (vs + ms + us + q->c));
    if (!v)
        return 0;
    float *m = v + POINTS * vs, *u = m + POINTS * ms, *edge = u + POINTS * us;
    if (whole)
        NAME(widen)(w, in, out, turned, q->c, q->o, u, us, ob);
    for (idx first = q->first; first < q->last; first += block) {
        const idx count = least(block, q->last - first);
        NAME(enter)(q, x, first, count, v, vs, edge);
        for (idx o = q->left; o < q->right; o += ob) {
            const idx outputs = least(ob, q->right - o);
            for (idx c = 0; c < q->c; c += cb) {
                const idx inputs = least(cb, q->c - c);
                if (!whole)
                    NAME(widen)(w + c * in + o * out, in, out, turned, inputs, outputs, u, us, ob);
                for (int p = 0; p < POINTS; p++)
                    NAME(product)(v + p * vs + c, q->c, 1, u + p * us, ob, c ? m + p * ms : NULL, outputs, m + p * ms,
                                  outputs, count, outputs, inputs);
            }
            NAME(leave)(q, m, first, count, ms, outputs, bias ? bias + o : NULL, y + o, add);
        }
    }
    free(v);
    return 1;
}

static TARGET int NAME(kernel)(const convolution *q, const float *x, const float *e, float *gw)
{
    const idx room = q->c * q->o < SMALL ? MORE : 2 * MANY;
    const idx block = least(q->tiles, most(room / (q->c + q->o), 16));
    const idx cb = least(q->c, SIDE), ob = least(q->o, SIDE);
    const idx vs = block * q->c + GAP, es = block * q->o + GAP, us = cb * ob + GAP;
    float *v = scratch(POINTS * (vs + es + us + q->c));
    if (!v)
        return 0;
    float *d = v + POINTS * vs, *u = d + POINTS * es, *edge = u + POINTS * us;
    for (idx first = 0; first < q->tiles; first += block) {
        const idx count = least(block, q->tiles - first);
        NAME(enter)(q, x, first, count, v, vs, edge);
        NAME(spread)(q, e, first, count, d, es);
        for (idx o = 0; o < q->o; o += ob)
            for (idx c = 0; c < q->c; c += cb) {
                const idx inputs = least(cb, q->c - c), outputs = least(ob, q->o - o);
                for (int p = 0; p < POINTS; p++)
                    NAME(product)(v + p * vs + c, 1, q->c, d + p * es + o, q->o, NULL, 0, u + p * us, ob, inputs,
                                  outputs, count);
                for (idx i = 0; i < inputs; i++)
                    for (idx k = 0; k < outputs; k += V) {
                        vec t[18], g[9];
                        UNROLL for (int j = 0; j < 6; j++) {
                            vec own[6];
                            UNROLL for (int l = 0; l < 6; l++)
                                own[l] = LOAD(u + (6 * l + j) * us + i * ob + k);
                            NARROW(own, 1, (t + j), 6);
                        }
                        UNROLL for (int l = 0; l < 3; l++)
                            NARROW((t + 6 * l), 1, (g + 3 * l), 1);
                        float own[9][V];
                        UNROLL for (int l = 0; l < 9; l++)
                            STORE(own[l], g[l]);
                        float *to = gw + ((o + k) * q->c + c + i) * 9;
                        for (int l = 0; l < V; l++, to += q->c * 9)
                            UNROLL for (int s = 0; s < 9; s++)
                                to[s] = first ? to[s] + own[s][l] : own[s][l];
                    }
            }
    }
    free(v);
    return 1;
}

/* y = [max(0,] (x - mean) / deviation * weight + bias [+ added] [)], up to 6 where relu is 2, mean and deviation over a
 * group of channels of one image; moments[n][group] = mean, 1 / deviation. */
static TARGET int NAME(norm)(const float *x, const float *added, const float *weight, const float *bias, float *y,
                             float *moments, idx n, idx pixels, idx channels, idx groups, double epsilon, int relu)
{
    const idx own = channels / groups;
    float *sums = scratch(3 * channels), *scale = sums + channels, *shift = scale + channels;
    if (!sums)
        return 0;
    for (idx i = 0; i < n; i++, x += pixels * channels, y += pixels * channels, moments += 2 * groups) {
        for (int second = 0; second < 2; second++) { /* squares of what is left without the mean: no cancellation */
            for (idx c = 0; c < channels; c += V) {
                vec acc[4] = {{0}, {0}, {0}, {0}};
                const vec one = (vec){0} + 1.0f, mean = second ? LOAD(shift + c) : (vec){0};
                const float *at = x + c;
                idx p = 0;
                for (; p + 4 <= pixels; p += 4, at += 4 * channels)
                    UNROLL for (int k = 0; k < 4; k++) {
                        const vec d = LOAD(at + k * channels) - mean;
                        acc[k] += d * (second ? d : one);
                    }
                for (; p < pixels; p++, at += channels) {
                    const vec d = LOAD(at) - mean;
                    acc[0] += d * (second ? d : one);
                }
                STORE(sums + c, (acc[0] + acc[1]) + (acc[2] + acc[3]));
            }
            for (idx g = 0; g < groups; g++) {
                double total = 0.0;
                for (idx c = g * own; c < (g + 1) * own; c++)
                    total += sums[c];
                total /= (double)(own * pixels);
                if (second) /* squares beyond float32 are no reason for a result of 0 */
                    total = total < INFINITY ? 1.0 / sqrt(total + epsilon) : NAN;
                moments[2 * g + second] = (float)total;
                for (idx c = g * own; c < (g + 1) * own; c++)
                    if (second) {
                        scale[c] = (weight ? weight[c] : 1.0f) * moments[2 * g + 1];
                        shift[c] = (bias ? bias[c] : 0.0f) - scale[c] * moments[2 * g];
                    } else
                        shift[c] = moments[2 * g];
            }
        }
        for (idx p = 0; p < pixels; p++)
            for (idx c = 0; c < channels; c += V) {
                vec v = LOAD(x + p * channels + c) * LOAD(scale + c) + LOAD(shift + c);
                if (added)
                    v += LOAD(added + (i * pixels + p) * channels + c);
                if (relu)
                    v = UNLESS(v < 0.0f, v); /* NaN stays */
                if (relu == 2)
                    v = UNLESS(v > 6.0f, v) + UNLESS(~(v > 6.0f), (vec){0} + 6.0f);
                STORE(y + p * channels + c, v);
            }
    }
    free(sums);
    return 1;
}

/* What a rectifier lets through of the gradient e: where its result y is below zero, or six if it ends there, nothing.
 * Without y it is found from x once more. */
INLINE vec NAME(passed)(const float *e, const float *x, const float *y, const float *scale, const float *level, int relu)
{
    if (!relu)
        return LOAD(e);
    vec v = LOAD(x) * LOAD(scale) + LOAD(level);
    if (y)
        v = LOAD(y);
    const vec own = UNLESS(v <= 0.0f, LOAD(e));
    return relu == 2 ? UNLESS(v >= 6.0f, own) : own;
}

/* The gradients of x, of what was added (if asked for), of weight and bias: added up over images, or those of `each` one
 * after the other. y may be left out where nothing was added; gx may be e. */
static TARGET int NAME(norm_back)(const float *e, const float *x, const float *y, const float *weight,
                                  const float *bias, const float *moments, float *gx, float *ga, float *gw, float *gb,
                                  idx n, idx pixels, idx channels, idx groups, int relu, int each)
{
    const idx own = channels / groups, size = pixels * channels;
    float *mean = scratch(8 * channels), *inverse = mean + channels, *first = inverse + channels;
    if (!mean)
        return 0;
    float *second = first + channels, *scale = second + channels, *along = scale + channels, *shift = along + channels;
    float *level = shift + channels;
    memset(gw, 0, (size_t)(channels * (each ? n : 1)) * sizeof *gw);
    memset(gb, 0, (size_t)(channels * (each ? n : 1)) * sizeof *gb);
    for (idx i = 0; i < n; i++, e += size, x += size, gx += size, moments += 2 * groups) {
        for (idx c = 0; c < channels; c++) {
            mean[c] = moments[2 * (c / own)], inverse[c] = moments[2 * (c / own) + 1];
            scale[c] = (weight ? weight[c] : 1.0f) * inverse[c];
            level[c] = (bias ? bias[c] : 0.0f) - scale[c] * mean[c];
        }
        const float *out = y ? y + i * size : NULL;
        for (idx c = 0; c < channels; c += V) {
            vec a[2] = {{0}, {0}}, b[2] = {{0}, {0}};
            const vec m = LOAD(mean + c);
            idx p = 0;
            for (; p + 2 <= pixels; p += 2)
                UNROLL for (int k = 0; k < 2; k++) {
                    const idx at = (p + k) * channels + c;
                    const vec g = NAME(passed)(e + at, x + at, out ? out + at : NULL, scale + c, level + c, relu);
                    a[k] += g, b[k] += g * (LOAD(x + at) - m);
                }
            for (; p < pixels; p++) {
                const idx at = p * channels + c;
                const vec g = NAME(passed)(e + at, x + at, out ? out + at : NULL, scale + c, level + c, relu);
                a[0] += g, b[0] += g * (LOAD(x + at) - m);
            }
            const vec sum = a[0] + a[1], product = (b[0] + b[1]) * LOAD(inverse + c);
            STORE(first + c, sum);
            STORE(second + c, product);
            STORE(gw + c, LOAD(gw + c) + product);
            STORE(gb + c, LOAD(gb + c) + sum);
        }
        for (idx g = 0; g < groups; g++) {
            double sum = 0.0, product = 0.0;
            for (idx c = g * own; c < (g + 1) * own; c++) {
                const double factor = weight ? weight[c] : 1.0;
                sum += factor * first[c], product += factor * second[c];
            }
            sum /= (double)(own * pixels), product /= (double)(own * pixels);
            for (idx c = g * own; c < (g + 1) * own; c++) { /* gx = inverse (weight g - sum - normal x product) */
                along[c] = (float)(-product * inverse[c] * inverse[c]);
                shift[c] = (float)(-sum * inverse[c]) - along[c] * mean[c];
            }
        }
        for (idx p = 0; p < pixels; p++)
            for (idx c = 0; c < channels; c += V) {
                const idx at = p * channels + c;
                const vec g = NAME(passed)(e + at, x + at, out ? out + at : NULL, scale + c, level + c, relu);
                if (ga)
                    STORE(ga + i * size + at, g);
                STORE(gx + at, g * LOAD(scale + c) + LOAD(x + at) * LOAD(along + c) + LOAD(shift + c));
            }
        if (each)
            gw += channels, gb += channels;
    }
    free(mean);
    return 1;
}

/* to[c] = the sum of x over images and pixels, image by image: a long sum in one go would round more. */
static TARGET void NAME(total)(const float *x, float *to, idx n, idx pixels, idx channels)
{
    for (idx c = 0; c < channels; c += V) {
        vec all = {0};
        for (idx i = 0; i < n; i++) {
            vec acc[4] = {{0}, {0}, {0}, {0}};
            const float *at = x + i * pixels * channels + c;
            idx p = 0;
            for (; p + 4 <= pixels; p += 4, at += 4 * channels)
                UNROLL for (int k = 0; k < 4; k++)
                    acc[k] += LOAD(at + k * channels);
            for (; p < pixels; p++, at += channels)
                acc[0] += LOAD(at);
            all += (acc[0] + acc[1]) + (acc[2] + acc[3]);
        }
        STORE(to + c, all);
    }
}

/* to = a + b, or a without b. */
static TARGET void NAME(add)(const float *a, const float *b, float *to, idx count)
{
    if (!b)
        memcpy(to, a, (size_t)count * sizeof *to);
    else
        for (idx i = 0; i < count; i++)
            to[i] = a[i] + b[i];
}

#endif
