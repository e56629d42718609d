/* Linear layers whose weights fit a core's cache, forwards and backwards, without a copy of anything but the weights.
 *
 *     Y = X W' + b,  dX = dY W,  dW = dY' X,  db = the sum of dY's rows
 *
 * Of matrices as small as these a library's product spends a fifth of its time on laying them out anew. Inputs and
 * outputs come in multiples of 16. Rows of X and dX, and rows of dW, are computed in the same way whoever computes the
 * others: several threads give the same numbers as one. */

#ifndef LEVEL

#define LINEAR_ROWS 256 /* of examples that are added up at once */

typedef struct {
    idx rows, inputs, outputs;
    idx x, w, g; /* floats between rows of inputs, weights and the outputs' gradient */
} layer;

#else /* LEVEL: the loops of one instruction set */

/* Rows of outputs by the turned weights. */
static TARGET void NAME(linear)(const layer *l, const float *x, const float *turned, const float *bias, float *out,
                                idx first, idx end)
{
    NAME(product)(x + first * l->x, l->x, 1, turned, l->outputs, bias, 0, out + first * l->outputs, l->outputs,
                  end - first, l->outputs, l->inputs);
}

/* Rows of the inputs' gradient. */
static TARGET void NAME(linear_back)(const layer *l, const float *g, const float *w, float *dx, idx first, idx end)
{
    NAME(product)(g + first * l->g, l->g, 1, w, l->w, NULL, 0, dx + first * l->inputs, l->inputs, end - first, l->inputs,
                  l->outputs);
}

/* Rows of the weights' gradient, and the biases'; `first` and `end` are multiples of 16. */
static TARGET void NAME(linear_weights)(const layer *l, const float *g, const float *x, float *dw, float *db, idx first,
                                        idx end)
{
    for (idx r = 0; r < l->rows; r += LINEAR_ROWS) {
        const idx count = least(LINEAR_ROWS, l->rows - r);
        float *to = dw + first * l->inputs;
        if (dw)
            NAME(product)(g + r * l->g + first, 1, l->g, x + r * l->x, l->x, r ? to : NULL, l->inputs, to, l->inputs,
                          end - first, l->inputs, count);
        for (idx c = first; db && c < end; c += V) {
            const float *own = g + r * l->g + c;
            vec sum = {0};
            for (idx i = 0; i < count; i++)
                sum += LOAD(own + i * l->g);
            if (r)
                sum += LOAD(db + c);
            STORE(db + c, sum);
        }
    }
}

#endif
