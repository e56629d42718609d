/* What is before and behind the convolutions of one model: a batch's images out of all, means over pixels, a small linear
 * layer, cross-entropy and the step against a gradient. Channels, a linear layer's inputs, are multiples of 16. */

#ifndef LEVEL

/* to[i][pixel][channel] of the images that the rows name. */
static void gather(const float *from, const int64_t *rows, float *to, idx n, idx channels, idx pixels)
{
    for (idx i = 0; i < n; i++, to += channels * pixels) {
        const float *at = from + rows[i] * channels * pixels;
        for (idx c = 0; c < channels; c++)
            for (idx p = 0; p < pixels; p++)
                to[p * channels + c] = at[c * pixels + p];
    }
}

/* Returns the cross-entropy of logits (n, classes), added up; grad = that of the mean. Where a logit is not finite
 * neither is what comes of it. */
static double entropy(const float *logits, const int64_t *labels, const int64_t *rows, float *grad, idx n, idx classes)
{
    double sum = 0.0;
    for (idx i = 0; i < n; i++, logits += classes, grad += classes) {
        const int64_t wanted = labels[rows[i]];
        float top = logits[0], all = 0.0f;
        for (idx c = 1; c < classes; c++)
            top = logits[c] > top ? logits[c] : top;
        for (idx c = 0; c < classes; c++)
            all += grad[c] = expf(logits[c] - top);
        sum += (double)logf(all) + (double)top - (double)logits[wanted];
        for (idx c = 0; c < classes; c++)
            grad[c] = (grad[c] / all - (c == wanted)) / (float)n;
    }
    return sum;
}

#else /* LEVEL: the loops of one instruction set */

/* to[i][c] = the mean of x[i][pixel][c]. */
static TARGET void NAME(mean)(const float *x, float *to, idx n, idx pixels, idx channels)
{
    for (idx i = 0; i < n; i++, x += pixels * channels, to += channels)
        for (idx c = 0; c < channels; c += V) {
            vec acc = {0};
            for (idx p = 0; p < pixels; p++)
                acc += LOAD(x + p * channels + c);
            STORE(to + c, acc / (float)pixels);
        }
}

static TARGET void NAME(mean_back)(const float *e, float *gx, idx n, idx pixels, idx channels, int add)
{
    for (idx i = 0; i < n; i++, e += channels)
        for (idx p = 0; p < pixels; p++, gx += channels)
            for (idx c = 0; c < channels; c += V) {
                vec own = LOAD(e + c) / (float)pixels;
                if (add)
                    own += LOAD(gx + c);
                STORE(gx + c, own);
            }
}

/* y = x w' + bias, weights (outputs, inputs). */
static TARGET void NAME(head)(const float *x, const float *w, const float *bias, float *y, idx n, idx inputs,
                                idx outputs)
{
    for (idx i = 0; i < n; i++, x += inputs)
        for (idx o = 0; o < outputs; o++) {
            vec acc = {0};
            for (idx c = 0; c < inputs; c += V)
                acc += LOAD(x + c) * LOAD(w + o * inputs + c);
            float sum = bias ? bias[o] : 0.0f;
            for (int l = 0; l < V; l++)
                sum += acc[l];
            *y++ = sum;
        }
}

/* The gradients of weights and bias, and of x where asked for. */
static TARGET void NAME(head_back)(const float *e, const float *x, const float *w, float *gx, float *gw, float *gb,
                                     idx n, idx inputs, idx outputs, int add)
{
    for (idx o = 0; o < outputs; o++) {
        gb[o] = 0.0f;
        for (idx i = 0; i < n; i++)
            gb[o] += e[i * outputs + o];
        for (idx c = 0; c < inputs; c += V) {
            vec acc = {0};
            for (idx i = 0; i < n; i++)
                acc += e[i * outputs + o] * LOAD(x + i * inputs + c);
            STORE(gw + o * inputs + c, acc);
        }
    }
    for (idx i = 0; gx && i < n; i++)
        for (idx c = 0; c < inputs; c += V) {
            float *to = gx + i * inputs + c;
            vec acc = add ? LOAD(to) : (vec){0};
            for (idx o = 0; o < outputs; o++)
                acc += e[i * outputs + o] * LOAD(w + o * inputs + c);
            STORE(to, acc);
        }
}

/* w -= rate g. */
static TARGET void NAME(step)(const float *g, float rate, float *w, idx count)
{
    for (idx i = 0; i < count; i++)
        w[i] -= rate * g[i];
}

#endif
