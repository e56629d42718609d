/* Convolutions of any kernel, stride and padding for one model, channels last, as products of windows.
 *
 * Images are padded one at a time, so that a line of a kernel meets one run of kw x c numbers in memory: no window is
 * copied. An output pixel is a sum over kh such runs; a kernel's gradient is a sum over the pixels of an image. The
 * inputs' gradient is a convolution of the padded outputs' gradient for each of the stride's phases, with those taps of
 * the kernel that meet it. All three are one loop over lines of runs.
 *
 * Outputs are multiples of 16, and so are inputs whose gradient is asked for. Of a convolution of each channel for itself
 * (`apart`) a vector of channels goes over a padded image at a time.
 */

#ifndef LEVEL

/* Images (n, h, w, c) to (n, oh, ow, o), by kernels of kh x kw, strides sh and sw, ph and pw zeros on each side. */
typedef struct {
    idx n, h, w, c, oh, ow, o, kh, kw, sh, sw, ph, pw;
} window;

/* One image of `lines` x `pixels` x `floats` in the middle of zeros; the frame of zeros is there already. */
static void frame(const float *from, float *to, idx lines, idx pixels, idx floats, idx above, idx before, idx width)
{
    for (idx l = 0; l < lines; l++)
        memcpy(to + ((above + l) * width + before) * floats, from + l * pixels * floats,
               (size_t)(pixels * floats) * sizeof *to);
}

static float *zeros(idx floats)
{
    float *room = scratch(floats);
    if (room)
        memset(room, 0, (size_t)floats * sizeof *room);
    return room;
}

#else /* LEVEL: the loops of one instruction set */

#if V == 16
#define PIXELS 8
#else
#define PIXELS 6
#endif
#define SIDES 2 /* vectors of outputs */

/* out[r][c] = init[r][c] + sum over lines l and j of x[l][r][j] w[l][j][c]: R rows by U vectors. */
INLINE void NAME(strip)(const float *x, idx xl, idx xr, idx xj, const float *w, idx wl, idx wj, const float *init,
                        idx ir, float *out, idx or, idx lines, idx count, const int R, const int U)
{
    vec acc[PIXELS][SIDES];
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++)
            acc[r][u] = init ? LOAD(init + r * ir + u * V) : (vec){0};
    for (idx l = 0; l < lines; l++) {
        const float *a = x + l * xl, *b = w + l * wl;
        for (idx j = 0; j < count; j++, a += xj, b += wj) {
            vec wv[SIDES];
            UNROLL for (int u = 0; u < U; u++)
                wv[u] = LOAD(b + u * V);
            UNROLL for (int r = 0; r < R; r++) {
                const float own = a[r * xr];
                UNROLL for (int u = 0; u < U; u++)
                    acc[r][u] += own * wv[u];
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int u = 0; u < U; u++)
            STORE(out + r * or + u * V, acc[r][u]);
}

#define STRIP(r, u) \
    static TARGET void NAME(strip_##r##u)(const float *x, idx xl, idx xr, idx xj, const float *w, idx wl, idx wj, \
                                          const float *init, idx ir, float *out, idx or, idx lines, idx count) \
    { \
        NAME(strip)(x, xl, xr, xj, w, wl, wj, init, ir, out, or, lines, count, r, u); \
    }
#define BOTH(r) STRIP(r, 1) STRIP(r, 2)
#define PAIR(r) {NAME(strip_##r##1), NAME(strip_##r##2)}
BOTH(1) BOTH(2) BOTH(3) BOTH(4) BOTH(5) BOTH(6)
#if PIXELS == 8
BOTH(7) BOTH(8)
#endif

/* `rows` by `columns` floats, columns a multiple of V. */
static TARGET void NAME(strips)(const float *x, idx xl, idx xr, idx xj, const float *w, idx wl, idx wj,
                                const float *init, idx ir, float *out, idx or, idx lines, idx count, idx rows,
                                idx columns)
{
    static void (*const all[PIXELS][SIDES])(const float *, idx, idx, idx, const float *, idx, idx, const float *, idx,
                                          float *, idx, idx, idx) = {
        PAIR(1), PAIR(2), PAIR(3), PAIR(4), PAIR(5), PAIR(6),
#if PIXELS == 8
        PAIR(7), PAIR(8),
#endif
    };
    for (idx c = 0; c < columns; c += SIDES * V)
        for (idx r = 0; r < rows; r += PIXELS)
            all[least(PIXELS, rows - r) - 1][least(SIDES, (columns - c) / V) - 1](
                x + r * xr, xl, xr, xj, w + c, wl, wj, init ? init + r * ir + c : init, ir, out + r * or + c, or, lines,
                count);
}

/* y = x * w + bias. */
static TARGET int NAME(slide)(const window *q, const float *x, const float *w, const float *bias, float *y)
{
    const idx high = q->h + 2 * q->ph, wide = q->w + 2 * q->pw, run = q->kw * q->c, taps = q->kh * q->kw;
    const int framed = q->ph || q->pw;
    float *own = zeros(framed ? high * wide * q->c : 1), *kernel = scratch(taps * q->c * q->o);
    if (!own || !kernel)
        return free(own), free(kernel), 0;
    for (idx o = 0; o < q->o; o += V)
        for (idx c = 0; c < q->c; c++)
            for (idx k = 0; k < taps; k++)
                for (idx l = 0; l < V; l++)
                    kernel[(k * q->c + c) * q->o + o + l] = w[((o + l) * q->c + c) * taps + k];
    for (idx i = 0; i < q->n; i++, x += q->h * q->w * q->c) {
        if (framed)
            frame(x, own, q->h, q->w, q->c, q->ph, q->pw, wide);
        for (idx l = 0; l < q->oh; l++, y += q->ow * q->o)
            NAME(strips)((framed ? own : x) + l * q->sh * wide * q->c, wide * q->c, q->sw * q->c, 1, kernel, run * q->o,
                         q->o, bias, 0, y, q->o, q->kh, run, q->ow, q->o);
    }
    return free(own), free(kernel), 1;
}

/* The gradient of x, written or added to what is there. */
static TARGET int NAME(slide_back)(const window *q, const float *e, const float *w, float *gx, int add)
{
    const idx most_h = ceil_div(q->kh, q->sh), most_w = ceil_div(q->kw, q->sw), taps = q->kh * q->kw;
    const idx high = most_h - 1 + most(q->oh, (q->h - 1 + q->ph) / q->sh + 1);
    const idx wide = most_w - 1 + most(q->ow, (q->w - 1 + q->pw) / q->sw + 1);
    const int framed = high > q->oh || wide > q->ow;
    float *own = zeros(framed ? high * wide * q->o : 1), *kernel = scratch(taps * q->c * q->o);
    if (!own || !kernel)
        return free(own), free(kernel), 0;
    float *to = kernel; /* phase after phase; in each the taps in the order in which they meet the gradient */
    for (idx py = 0; py < q->sh; py++)
        for (idx px = 0; px < q->sw; px++)
            for (idx a = ceil_div(q->kh - py, q->sh) - 1; a >= 0; a--)
                for (idx b = ceil_div(q->kw - px, q->sw) - 1; b >= 0; b--)
                    for (idx o = 0; o < q->o; o++, to += q->c)
                        for (idx c = 0; c < q->c; c++)
                            to[c] = w[(o * q->c + c) * taps + (py + q->sh * a) * q->kw + px + q->sw * b];
    for (idx i = 0; i < q->n; i++, e += q->oh * q->ow * q->o, gx += q->h * q->w * q->c) {
        if (framed)
            frame(e, own, q->oh, q->ow, q->o, most_h - 1, most_w - 1, wide);
        const float *phase = kernel;
        for (idx py = 0; py < q->sh; py++)
            for (idx px = 0; px < q->sw; px++) {
                const idx lines = ceil_div(q->kh - py, q->sh), each = ceil_div(q->kw - px, q->sw);
                const idx first = ((px - q->pw) % q->sw + q->sw) % q->sw, x0 = (first + q->pw - px) / q->sw;
                const idx count = first < q->w ? ceil_div(q->w - first, q->sw) : 0;
                for (idx y = ((py - q->ph) % q->sh + q->sh) % q->sh; y < q->h; y += q->sh) {
                    float *at = gx + (y * q->w + first) * q->c;
                    if (lines && each) {
                        const idx y0 = (y + q->ph - py) / q->sh - lines + most_h, left = x0 - each + most_w;
                        NAME(strips)((framed ? own : e) + (y0 * wide + left) * q->o, wide * q->o, q->o, 1, phase,
                                     each * q->o * q->c, q->c, add ? at : NULL, q->sw * q->c, at, q->sw * q->c, lines,
                                     each * q->o, count, q->c);
                    } else if (!add)
                        for (idx p = 0; p < count; p++)
                            memset(at + p * q->sw * q->c, 0, (size_t)q->c * sizeof *at);
                }
                phase += lines * each * q->o * q->c;
            }
    }
    return free(own), free(kernel), 1;
}

/* The gradient of w. */
static TARGET int NAME(slide_kernel)(const window *q, const float *x, const float *e, float *gw)
{
    const idx high = q->h + 2 * q->ph, wide = q->w + 2 * q->pw, run = q->kw * q->c, taps = q->kh * q->kw;
    const int framed = q->ph || q->pw;
    float *own = zeros(framed ? high * wide * q->c : 1), *sums = zeros(taps * q->c * q->o);
    if (!own || !sums)
        return free(own), free(sums), 0;
    for (idx i = 0; i < q->n; i++, x += q->h * q->w * q->c, e += q->oh * q->ow * q->o) {
        if (framed)
            frame(x, own, q->h, q->w, q->c, q->ph, q->pw, wide);
        for (idx k = 0; k < q->kh; k++) {
            float *to = sums + k * run * q->o;
            NAME(strips)((framed ? own : x) + k * wide * q->c, q->sh * wide * q->c, 1, q->sw * q->c, e, q->ow * q->o,
                         q->o, to, q->o, to, q->o, q->oh, q->ow, run, q->o);
        }
    }
    for (idx o = 0; o < q->o; o += V)
        for (idx c = 0; c < q->c; c++)
            for (idx k = 0; k < taps; k++)
                for (idx l = 0; l < V; l++)
                    gw[((o + l) * q->c + c) * taps + k] = sums[(k * q->c + c) * q->o + o + l];
    return free(own), free(sums), 1;
}

#define TAPS 9 /* of a kernel that stays in registers */

/* y = x * w + bias, each channel for itself: one vector of channels of one padded image. */
INLINE void NAME(apart_lane)(const window *q, const float *x, idx wide, const float *w, vec bias, float *y, const idx kh,
                             const idx kw)
{
    for (idx l = 0; l < q->oh; l++)
        for (idx p = 0; p < q->ow; p++) {
            const float *at = x + (l * q->sh * wide + p * q->sw) * q->c;
            vec acc = bias;
            UNROLL for (idx i = 0; i < kh; i++)
                UNROLL for (idx j = 0; j < kw; j++)
                    acc += LOAD(at + (i * wide + j) * q->c) * LOAD(w + (i * kw + j) * V);
            STORE(y + (l * q->ow + p) * q->o, acc);
        }
}

/* The gradient of x, added to a padded image. */
INLINE void NAME(apart_back_lane)(const window *q, const float *e, float *gx, idx wide, const float *w, const idx kh,
                                  const idx kw)
{
    for (idx l = 0; l < q->oh; l++)
        for (idx p = 0; p < q->ow; p++) {
            float *at = gx + (l * q->sh * wide + p * q->sw) * q->c;
            const vec own = LOAD(e + (l * q->ow + p) * q->o);
            UNROLL for (idx i = 0; i < kh; i++)
                UNROLL for (idx j = 0; j < kw; j++) {
                    float *to = at + (i * wide + j) * q->c;
                    STORE(to, LOAD(to) + own * LOAD(w + (i * kw + j) * V));
                }
        }
}

/* The gradient of w of one line of a kernel, added to sums[kw][V]. */
INLINE void NAME(apart_kernel_lane)(const window *q, const float *x, idx wide, const float *e, float *sums, const idx kw)
{
    for (idx first = 0; first < kw; first += TAPS) {
        vec acc[TAPS] = {{0}};
        const idx some = least(TAPS, kw - first);
        for (idx l = 0; l < q->oh; l++)
            for (idx p = 0; p < q->ow; p++) {
                const float *at = x + (l * q->sh * wide + p * q->sw + first) * q->c;
                const vec own = LOAD(e + (l * q->ow + p) * q->o);
                UNROLL for (idx j = 0; j < some; j++)
                    acc[j] += own * LOAD(at + j * q->c);
            }
        for (idx j = 0; j < some; j++)
            STORE(sums + (first + j) * V, LOAD(sums + (first + j) * V) + acc[j]);
    }
}

/* One vector's kernels, turned: to[tap][V]. */
static TARGET void NAME(apart_taps)(const float *w, float *to, idx taps)
{
    for (idx k = 0; k < taps; k++)
        for (idx l = 0; l < V; l++)
            to[k * V + l] = w[l * taps + k];
}

static TARGET int NAME(apart)(const window *q, const float *x, const float *w, const float *bias, float *y)
{
    const idx high = q->h + 2 * q->ph, wide = q->w + 2 * q->pw, taps = q->kh * q->kw;
    float *own = zeros(high * wide * q->c), *kernel = scratch(taps * q->c);
    if (!own || !kernel)
        return free(own), free(kernel), 0;
    for (idx c = 0; c < q->c; c += V)
        NAME(apart_taps)(w + c * taps, kernel + c * taps, taps);
    for (idx i = 0; i < q->n; i++, x += q->h * q->w * q->c, y += q->oh * q->ow * q->o) {
        frame(x, own, q->h, q->w, q->c, q->ph, q->pw, wide);
        for (idx c = 0; c < q->c; c += V) {
            const vec more = bias ? LOAD(bias + c) : (vec){0};
            if (q->kh == 3 && q->kw == 3)
                NAME(apart_lane)(q, own + c, wide, kernel + c * taps, more, y + c, 3, 3);
            else
                NAME(apart_lane)(q, own + c, wide, kernel + c * taps, more, y + c, q->kh, q->kw);
        }
    }
    return free(own), free(kernel), 1;
}

static TARGET int NAME(apart_back)(const window *q, const float *e, const float *w, float *gx, int add)
{
    const idx high = q->h + 2 * q->ph, wide = q->w + 2 * q->pw, taps = q->kh * q->kw;
    float *own = scratch(high * wide * q->c), *kernel = scratch(taps * q->c);
    if (!own || !kernel)
        return free(own), free(kernel), 0;
    for (idx c = 0; c < q->c; c += V)
        NAME(apart_taps)(w + c * taps, kernel + c * taps, taps);
    for (idx i = 0; i < q->n; i++, e += q->oh * q->ow * q->o) {
        memset(own, 0, (size_t)(high * wide * q->c) * sizeof *own);
        for (idx c = 0; c < q->c; c += V)
            if (q->kh == 3 && q->kw == 3)
                NAME(apart_back_lane)(q, e + c, own + c, wide, kernel + c * taps, 3, 3);
            else
                NAME(apart_back_lane)(q, e + c, own + c, wide, kernel + c * taps, q->kh, q->kw);
        for (idx l = 0; l < q->h; l++, gx += q->w * q->c) {
            const float *from = own + ((q->ph + l) * wide + q->pw) * q->c;
            for (idx k = 0; k < q->w * q->c; k++)
                gx[k] = add ? gx[k] + from[k] : from[k];
        }
    }
    return free(own), free(kernel), 1;
}

static TARGET int NAME(apart_kernel)(const window *q, const float *x, const float *e, float *gw)
{
    const idx high = q->h + 2 * q->ph, wide = q->w + 2 * q->pw, taps = q->kh * q->kw;
    float *own = zeros(high * wide * q->c), *sums = zeros(taps * q->c);
    if (!own || !sums)
        return free(own), free(sums), 0;
    for (idx i = 0; i < q->n; i++, x += q->h * q->w * q->c, e += q->oh * q->ow * q->o) {
        frame(x, own, q->h, q->w, q->c, q->ph, q->pw, wide);
        for (idx c = 0; c < q->c; c += V)
            for (idx k = 0; k < q->kh; k++) {
                float *to = sums + c * taps + k * q->kw * V;
                if (q->kw == 3)
                    NAME(apart_kernel_lane)(q, own + k * wide * q->c + c, wide, e + c, to, 3);
                else
                    NAME(apart_kernel_lane)(q, own + k * wide * q->c + c, wide, e + c, to, q->kw);
            }
    }
    for (idx c = 0; c < q->c; c++)
        for (idx k = 0; k < taps; k++)
            gw[c * taps + k] = sums[c / V * V * taps + k * V + c % V];
    return free(own), free(sums), 1;
}

#undef TAPS
#undef PIXELS
#undef SIDES
#undef STRIP
#undef BOTH
#undef PAIR

#endif
