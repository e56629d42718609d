/* Norms and clipped sums of examples' gradients of convolutions, in double precision, straight from the images.
 *
 * The gradient of image i is the sum over positions t of b_it a_it', a_it being a window of the image and b_it the
 * gradient of the outputs there. Nobody copies a window: the numbers of tap k of window t are a pixel, at a place that
 * is the sum of one that depends on t and one that depends on k. Images come padded, (n, h, w, c), gradients as
 * (n, oh, ow, o), both of float32; products of two such numbers are exact as doubles.
 */

#ifndef LEVEL

#define BLOCK (1 << 19) /* doubles of pixels and gradients that are put in order at a time: 4 MB */
#define SHARES 4         /* of the rows, so that threads have something to do where there are few columns */

#else /* LEVEL: the loops of one instruction set */

#define D (V / 2) /* doubles of a register */
#if V == 16
#define TALL 3
#define ACROSS 9
#else
#define TALL 4
#define ACROSS 3
#endif

typedef double NAME(dvec) __attribute__((vector_size(8 * D), aligned(8), may_alias));
#define dvec NAME(dvec)

/* The products of all rows of x, (rows, width), with each other. `wide` has room for them as doubles, filled up with
 * zeros to whole registers. */
static TARGET void NAME(products)(const float *x, idx rows, idx width, double *wide, double *out)
{
    const idx whole = ceil_div(width, D) * D;
    for (idx r = 0; r < rows; r++)
        for (idx j = 0; j < whole; j++)
            wide[r * whole + j] = j < width ? (double)x[r * width + j] : 0.0;
    for (idx r = 0; r < rows; r++)
        for (idx s = r; s < rows; s += 4) { /* four at a time, the last of them again where there are fewer */
            const idx some = least(4, rows - s);
            const double *a = wide + r * whole, *b[4];
            dvec acc[4] = {{0}, {0}, {0}, {0}};
            for (int k = 0; k < 4; k++)
                b[k] = wide + (s + least(k, some - 1)) * whole;
            for (idx j = 0; j < whole; j += D)
                UNROLL for (int k = 0; k < 4; k++)
                    acc[k] += *(const dvec *)(a + j) * *(const dvec *)(b[k] + j);
            for (idx k = 0; k < some; k++) {
                double total = 0.0;
                for (int l = 0; l < D; l++)
                    total += acc[k][l];
                out[r * rows + s + k] = out[(s + k) * rows + r] = total;
            }
        }
}

/* Of one image: the square of the gradient's norm by the products of windows and of gradients with each other, and the
 * square of the sum of what single positions can add to it. A product of two windows is the sum of the products of their
 * pixels. */
static TARGET int NAME(gram)(const window *q, const float *x, const float *e, double *found)
{
    const idx pixels = q->h * q->w, places = q->oh * q->ow, most_rows = most(pixels, places);
    const idx width = ceil_div(most(q->c, q->o), D) * D;
    double *room = malloc((size_t)(most_rows * width + pixels * pixels + places * places + places) * sizeof *room);
    if (!room)
        return 0;
    double *of_x = room + most_rows * width, *of_e = of_x + pixels * pixels, *along = of_e + places * places;
    NAME(products)(x, pixels, q->c, room, of_x);
    NAME(products)(e, places, q->o, room, of_e);
    double total = 0.0, reach = 0.0;
    for (idx t = 0; t < places; t++) {
        const idx own = t / q->ow * q->sh * q->w + t % q->ow * q->sw; /* the first pixel of the window */
        memset(along, 0, (size_t)places * sizeof *along);
        for (idx i = 0; i < q->kh; i++)
            for (idx j = 0; j < q->kw; j++) {
                const idx tap = i * q->ph * q->w + j * q->pw;
                const double *with = of_x + (own + tap) * pixels + tap;
                for (idx y = 0, s = 0; y < q->oh; y++)
                    for (idx k = 0; k < q->ow; k++, s++)
                        along[s] += with[y * q->sh * q->w + k * q->sw];
            }
        for (idx s = 0; s < places; s++)
            total += along[s] * of_e[t * places + s];
        reach += sqrt(along[t] * of_e[t * places + t]);
    }
    found[0] = total, found[1] = reach * reach;
    free(room);
    return 1;
}

/* out[r][u] = sum over positions k of e[k][r] x[at[k] + to[u]]: TALL rows by U registers. */
INLINE void NAME(of_pixels)(const double *e, const double *x, const idx *at, const idx *to, idx count, double *out,
                       const int U)
{
    dvec acc[TALL][ACROSS];
    UNROLL for (int r = 0; r < TALL; r++)
        UNROLL for (int u = 0; u < U; u++)
            acc[r][u] = (dvec){0};
    for (idx k = 0; k < count; k++, e += TALL) {
        const double *from = x + at[k];
        UNROLL for (int u = 0; u < U; u++) {
            const dvec own = *(const dvec *)(from + to[u]);
            UNROLL for (int r = 0; r < TALL; r++)
                acc[r][u] += e[r] * own;
        }
    }
    UNROLL for (int r = 0; r < TALL; r++)
        UNROLL for (int u = 0; u < U; u++)
            *(dvec *)(out + (r * ACROSS + u) * D) = acc[r][u];
}

#define MEET(u) \
    static TARGET void NAME(meet_##u)(const double *e, const double *x, const idx *at, const idx *to, idx count, \
                                      double *out) \
    { \
        NAME(of_pixels)(e, x, at, to, count, out, u); \
    }
MEET(1) MEET(2) MEET(3)
#if ACROSS == 9
MEET(4) MEET(5) MEET(6) MEET(7) MEET(8) MEET(9)
#endif

/* Puts images in order: to[register of channels][image][pixel][channel]; `which` are their numbers. */
static TARGET void NAME(in_registers)(const window *q, const float *x, const idx *which, idx images, idx channel,
                                      double *to)
{
    const idx real = least(D, q->c - channel), pixels = q->h * q->w;
    for (idx i = 0; i < images; i++) {
        const float *from = x + which[i] * pixels * q->c + channel;
        for (idx p = 0; p < pixels; p++, from += q->c, to += D)
            for (idx l = 0; l < D; l++)
                to[l] = l < real ? (double)from[l] : 0.0;
    }
}

/* Puts gradients times factors in order: to[position][row], TALL of them. */
static TARGET void NAME(in_rows)(const window *q, const float *e, const double *factors, const idx *which, idx images,
                                 idx row, double *to)
{
    const idx real = least(TALL, q->o - row), places = q->oh * q->ow;
    for (idx i = 0; i < images; i++) {
        const float *from = e + which[i] * places * q->o + row;
        for (idx p = 0; p < places; p++, from += q->o, to += TALL)
            for (idx r = 0; r < TALL; r++)
                to[r] = r < real ? factors[which[i]] * (double)from[r] : 0.0;
    }
}

/* Some rows of the sum, all taps of some channels, out of registers; `add` to what is there. */
static TARGET void NAME(hand_out)(const window *q, const double *found, idx row, idx column, idx columns, double *sums,
                                  int add)
{
    const idx taps = q->kh * q->kw;
    for (idx r = 0; r < least(TALL, q->o - row); r++)
        for (idx u = 0; u < columns; u++) {
            const idx channel = (column + u) / taps * D, tap = (column + u) % taps;
            const double *from = found + (r * ACROSS + u) * D;
            double *to = sums + ((row + r) * q->c + channel) * taps + tap;
            for (idx l = 0; l < least(D, q->c - channel); l++)
                to[l * taps] = add ? to[l * taps] + from[l] : from[l];
        }
}

/* The sum of examples' gradients times factors, (o, c, kh, kw). What has the factor zero is not read. */
static TARGET int NAME(clipped)(const window *q, const float *x, const float *e, const double *factors, double *sums,
                                int threads)
{
    static void (*const meets[ACROSS])(const double *, const double *, const idx *, const idx *, idx, double *) = {
        NAME(meet_1), NAME(meet_2), NAME(meet_3),
#if ACROSS == 9
        NAME(meet_4), NAME(meet_5), NAME(meet_6), NAME(meet_7), NAME(meet_8), NAME(meet_9),
#endif
    };
    const idx pixels = q->h * q->w, places = q->oh * q->ow, taps = q->kh * q->kw;
    const idx registers = ceil_div(q->c, D), rows = ceil_div(q->o, TALL), columns = registers * taps;
    const idx each = pixels * registers * D + places * rows * TALL, at_once = least(most(1, BLOCK / each), most(1, q->n));
    double *xs = aligned_alloc(64, (size_t)ceil_div(at_once * pixels * registers * D, 8) * 64);
    double *es = aligned_alloc(64, (size_t)ceil_div(at_once * places * rows * TALL, 8) * 64);
    idx *at = malloc((size_t)(at_once * (places + 1) + columns) * sizeof *at);
    if (!xs || !es || !at)
        return free(xs), free(es), free(at), 0;
    idx *which = at + at_once * places, *to = which + at_once;
    int add = 0;
    for (idx next = 0; next < q->n;) {
        idx images = 0;
        for (; next < q->n && images < at_once; next++)
            if (factors[next] != 0.0)
                which[images++] = next;
        if (!images)
            break;
        for (idx k = 0; k < images * places; k++) {
            const idx t = k % places;
            at[k] = (k / places * pixels + t / q->ow * q->sh * q->w + t % q->ow * q->sw) * D;
        }
        for (idx k = 0; k < columns; k++) {
            const idx tap = k % taps;
            to[k] = (k / taps * images * pixels + tap / q->kw * q->ph * q->w + tap % q->kw * q->pw) * D;
        }
#pragma omp parallel num_threads(threads)
        {
#pragma omp for schedule(static)
            for (idx c = 0; c < registers; c++)
                NAME(in_registers)(q, x, which, images, c * D, xs + c * images * pixels * D);
#pragma omp for schedule(static)
            for (idx r = 0; r < rows; r++)
                NAME(in_rows)(q, e, factors, which, images, r * TALL, es + r * images * places * TALL);
#pragma omp for schedule(static)
            for (idx share = 0; share < ceil_div(columns, ACROSS) * SHARES; share++) {
                const idx column = share / SHARES * ACROSS, some = least(ACROSS, columns - column);
                for (idx r = rows * (share % SHARES) / SHARES; r < rows * (share % SHARES + 1) / SHARES; r++) {
                    double found[TALL * ACROSS * D];
                    meets[some - 1](es + r * images * places * TALL, xs, at, to + column, images * places, found);
                    NAME(hand_out)(q, found, r * TALL, column, some, sums, add);
                }
            }
        }
        add = 1;
    }
    if (!add)
        memset(sums, 0, (size_t)(q->o * q->c * taps) * sizeof *sums);
    return free(xs), free(es), free(at), 1;
}

#undef D
#undef TALL
#undef ACROSS
#undef dvec
#undef MEET

#endif
