/* What is around the attention of a model of texts, as calls of a list: products of any strides, layer norms, tables of
 * embeddings, sums, and what is done number by number.
 *
 * A layer norm is y = (x - m) / s w + b of each row, its way back dx = (g w - mean(g w) - z mean(g w z)) / s with
 * z = (x - m) / s. Every number is added up in the same order whoever computes the others. */

#ifndef LEVEL

typedef struct {
    idx rows, columns, count;  /* of outputs, and products of each */
    idx xr, xj, wj, ir, or;    /* floats between rows of x, its numbers, and rows of w, of init and of the outputs */
} matrices;

/* Numbers of a batch of texts: of example i those behind whole[rows[i] * total + first]; of all the same without rows. */
typedef struct {
    const int64_t *whole, *rows;
    idx total, first;
} words;

static inline const int64_t *words_of(const words *t, idx example)
{
    return t->whole + (t->rows ? t->rows[example] * t->total : 0) + t->first;
}

/* Copies up to four axes of numbers, times a factor. */
static void scatter(const float *from, float *to, const idx *shape, const idx *fs, const idx *ts, float factor)
{
    for (idx a = 0; a < shape[0]; a++)
        for (idx b = 0; b < shape[1]; b++)
            for (idx c = 0; c < shape[2]; c++) {
                const float *own = from + a * fs[0] + b * fs[1] + c * fs[2];
                float *out = to + a * ts[0] + b * ts[1] + c * ts[2];
                if (fs[3] == 1 && ts[3] == 1 && factor == 1.0f)
                    memcpy(out, own, (size_t)shape[3] * sizeof *out);
                else
                    for (idx d = 0; d < shape[3]; d++)
                        out[d * ts[3]] = own[d * fs[3]] * factor;
            }
}

static void look_up(const float *table, const words *t, float *out, idx n, idx places, idx width)
{
    for (idx i = 0; i < n; i++) {
        const int64_t *own = words_of(t, i);
        for (idx p = 0; p < places; p++, out += width)
            memcpy(out, table + own[p] * width, (size_t)width * sizeof *out);
    }
}

#else /* LEVEL: the loops of one instruction set */

/* Some rows of a product. */
static TARGET void NAME(multiplied)(const matrices *m, const float *x, const float *w, const float *init, float *out,
                                    idx first, idx end)
{
    const idx whole = m->columns / V * V;
    x += first * m->xr, out += first * m->or;
    if (init)
        init += first * m->ir;
    NAME(product)(x, m->xr, m->xj, w, m->wj, init, m->ir, out, m->or, end - first, whole, m->count);
    for (idx r = 0; whole < m->columns && r < end - first; r++) {
        float sums[V];
        const idx rest = m->columns - whole;
        for (idx c = 0; c < rest; c++)
            sums[c] = init ? init[r * m->ir + whole + c] : 0.0f;
        for (idx j = 0; j < m->count; j++) {
            const float own = x[r * m->xr + j * m->xj];
            for (idx c = 0; c < rest; c++)
                sums[c] += own * w[j * m->wj + whole + c];
        }
        memcpy(out + r * m->or + whole, sums, (size_t)rest * sizeof *sums);
    }
}

static TARGET void NAME(sum_rows)(const float *x, float *out, idx rows, idx columns, idx between)
{
    memcpy(out, x, (size_t)columns * sizeof *out);
    for (idx r = 1; r < rows; r++)
        for (idx c = 0; c < columns; c++)
            out[c] += x[r * between + c];
}

/* out[r] = a[r] + b, of a row b that is the same for all. */
static TARGET void NAME(add_row)(const float *a, const float *b, float *out, idx rows, idx columns)
{
    for (idx r = 0; r < rows; r++, a += columns, out += columns)
        for (idx c = 0; c < columns; c++)
            out[c] = a[c] + b[c];
}

static TARGET void NAME(times)(const float *a, const float *b, float *out, idx count)
{
    for (idx i = 0; i < count; i++)
        out[i] = a[i] * b[i];
}

static TARGET void NAME(rectify)(const float *x, float *out, idx count)
{
    for (idx i = 0; i < count; i++)
        out[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static TARGET void NAME(rectify_back)(const float *g, const float *y, float *out, idx count)
{
    for (idx i = 0; i < count; i++)
        out[i] = y[i] <= 0.0f ? 0.0f : g[i];
}

/* The sum of all lanes. */
INLINE float NAME(all_of)(vec v) { return _mm_cvtss_f32(NAME(sums)(v, v, v, v)); }

/* Widths are multiples of 16. */
static TARGET void NAME(layer_norm)(const float *x, const float *w, const float *b, float *out, float *means,
                                    float *slopes, idx rows, idx width, double epsilon)
{
    for (idx r = 0; r < rows; r++, x += width, out += width) {
        vec total = {0}, square = {0};
        for (idx c = 0; c < width; c += V)
            total += LOAD(x + c);
        const float mean = NAME(all_of)(total) / (float)width;
        for (idx c = 0; c < width; c += V) {
            const vec own = LOAD(x + c) - mean;
            square += own * own;
        }
        const float slope = (float)(1.0 / sqrt((double)NAME(all_of)(square) / (double)width + epsilon));
        means[r] = mean, slopes[r] = slope;
        for (idx c = 0; c < width; c += V) {
            vec own = (LOAD(x + c) - mean) * slope;
            if (w)
                own *= LOAD(w + c);
            if (b)
                own += LOAD(b + c);
            STORE(out + c, own);
        }
    }
}

static TARGET void NAME(layer_norm_back)(const float *g, const float *x, const float *means, const float *slopes,
                                         const float *w, float *gx, float *gw, float *gb, idx rows, idx width)
{
    if (gw)
        memset(gw, 0, (size_t)width * sizeof *gw);
    if (gb)
        memset(gb, 0, (size_t)width * sizeof *gb);
    for (idx r = 0; r < rows; r++, g += width, x += width) {
        const float mean = means[r], slope = slopes[r];
        vec total = {0}, along = {0};
        for (idx c = 0; c < width; c += V) {
            const vec grad = LOAD(g + c), z = (LOAD(x + c) - mean) * slope;
            const vec own = w ? (vec)(grad * LOAD(w + c)) : grad;
            total += own, along += own * z;
            if (gw)
                STORE(gw + c, LOAD(gw + c) + grad * z);
            if (gb)
                STORE(gb + c, LOAD(gb + c) + grad);
        }
        if (!gx)
            continue;
        const float first = NAME(all_of)(total) / (float)width, second = NAME(all_of)(along) / (float)width;
        for (idx c = 0; c < width; c += V) {
            const vec grad = LOAD(g + c), z = (LOAD(x + c) - mean) * slope;
            const vec own = w ? (vec)(grad * LOAD(w + c)) : grad;
            STORE(gx + r * width + c, (own - first - z * second) * slope);
        }
    }
}

/* Gradients of a table's rows, added up in the order of the batch. */
static TARGET void NAME(look_up_back)(const float *g, const words *t, float *table, idx n, idx places, idx width,
                                      idx count, idx padding)
{
    memset(table, 0, (size_t)(count * width) * sizeof *table);
    for (idx i = 0; i < n; i++) {
        const int64_t *own = words_of(t, i);
        for (idx p = 0; p < places; p++, g += width) {
            float *to = table + own[p] * width;
            if (own[p] == padding)
                continue;
            for (idx c = 0; c < width; c++)
                to[c] += g[c];
        }
    }
}

#endif
