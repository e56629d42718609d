/* Convolution, linear and max-pool kernels whose innermost axis is a lane.
 *
 * Small models have 1, 10 or 20 channels: too few to fill a SIMD register, so
 * kernels that vectorise over channels or pixels waste most of it. Here
 * activations are (N, H, W, C, L) and the innermost axis L, a multiple of 16,
 * holds independent problems: either clients (each lane has its own weights,
 * (Co, Ci, kh, kw, L)) or examples of client n (the lanes share the weights
 * (N, Co, Ci, kh, kw)). Every instruction then does useful work in each of its
 * lanes, whatever the shape.
 *
 * The lanes of one register are a slab, and a slab is the unit of work: its
 * activations fit the L2 cache. All multiply-accumulate work is one register
 * tile over arbitrary strides,
 *
 *     out[p][u] = init[p][u] + sum over r, j of x[r][p][j] * w[r][j][u].
 *
 * The window of one kernel row, kw * Ci vectors, is contiguous, so
 *   - r = kernel row, j = (kx, ci), p = position, u = output channel is the
 *     convolution;
 *   - r = output row, j = output column, p = (kx, ci), u = output channel is
 *     the weight gradient;
 *   - the convolution of the zero-padded output gradient with flipped weights
 *     is the input gradient.
 *
 * The loops are compiled once per instruction set: the file includes itself
 * with LEVEL defined, and the widest level the processor has is chosen when
 * the module is loaded. */

#ifndef LEVEL

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST 16 /* floats in the widest register; L is a multiple of it */
#define DEAD 255  /* argmax of an output that relu set to zero */

typedef ptrdiff_t idx;

/* Strides, in floats, of a slab inside an (H, W, C, L) array. */
typedef struct {
    idx row, pos, chan;
} view;

/* Operands of a register tile; strides in floats. */
typedef struct {
    const float *x, *w, *init;
    float *out;
    idx xr, xp, xj, wr, wj, wu, ip, iu, op, ou;
    idx rows, taps;
} tile;

/* A layer, as the caller describes it. */
typedef struct {
    idx n, h, w, ci, co, kh, kw, lanes;
    idx clients; /* 1: every lane is a client; 0: every n is one, lanes are its examples */
    idx pool, relu;
    idx wset, bset; /* floats from one client's weights, and biases, to the next, if it is n */
} layer;

/* A layer, as the slabs see it. */
typedef struct {
    idx sets, slabs; /* weight sets, and slabs that use each of them */
    idx h, w, oh, ow, ph, pw; /* input, convolved and pooled size */
    idx taps; /* kw * ci: vectors in the window of one kernel row */
    idx size, step; /* weights in a set; floats from one to the next in the parameter */
    idx unit; /* floats from one to the next when packed: a vector or a scalar */
    int natural; /* the parameter's own order is already (co, ky, kx, ci) */
    int packed; /* the input slab is copied so that its vectors are adjacent */
    view x, out; /* strides in the caller's input and output */
    idx xsize, osize; /* floats in one n and lane of them */
} plan;

/* What a level offers; arguments as in its definitions below. */
typedef struct {
    const char *name;
    int (*forward)(const layer *, const float *, const float *, const float *, float *, uint8_t *);
    int (*backward)(const layer *, const float *, const float *, const float *, const uint8_t *, float *, float *,
                    float *);
    void (*pool_forward)(const float *, float *, uint8_t *, idx, idx, idx, idx, idx, idx);
    void (*pool_backward)(const float *, const uint8_t *, float *, idx, idx, idx, idx, idx);
} kernels;

static const float zeros[WIDEST];

static inline idx ceil_div(idx a, idx b) { return (a + b - 1) / b; }
static inline idx least(idx a, idx b) { return a < b ? a : b; }
static inline idx most(idx a, idx b) { return a > b ? a : b; }

static float *scratch(idx floats)
{
    return aligned_alloc(64, (size_t)ceil_div(floats, 16) * 16 * sizeof(float));
}

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, LEVEL)
#define STRING_(a) #a
#define STRING(a) STRING_(a)
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* V floats a register; tiles of up to PMAX positions by UMAX channels, of EDGE
 * positions near a border; BAND vectors stay in the cache between two passes. */
#define LEVEL portable
#define TARGET
#define V 4
#define PMAX 4
#define UMAX 3
#define EDGE(broadcast) 4
#define BAND 1280
#include "_kernels.c"

#ifdef __x86_64__
#define LEVEL avx2
#define TARGET __attribute__((target("avx2,fma")))
#define V 8
#define PMAX 4
#define UMAX 3
#define EDGE(broadcast) 4
#define BAND 640
#include "_kernels.c"

#define LEVEL avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define V 16
#define PMAX 5
#define UMAX 5
#define EDGE(broadcast) ((broadcast) ? 1 : 2)
#define BAND 1280
#include "_kernels.c"
#endif

static const kernels *const levels[] = {
    &kernels_portable,
#ifdef __x86_64__
    &kernels_avx2,
    &kernels_avx512,
#endif
};
static int usable = 1;
static const kernels *active = &kernels_portable;

static int detect(PyObject *module)
{
    (void)module;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        usable = 2;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            usable = 3;
    }
#endif
    active = levels[usable - 1];
    return 0;
}

/* Reads `count` integers: addresses first, then sizes. */
static int integers(PyObject *const *args, Py_ssize_t given, Py_ssize_t count, idx *to)
{
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "expected %zd integers, got %zd", count, given);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if ((to[i] = PyLong_AsSsize_t(args[i])) == -1 && PyErr_Occurred())
            return 0;
    return 1;
}

static layer read_layer(const idx *v)
{
    return (layer){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12]};
}

static PyObject *forward(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[18];
    if (!integers(args, given, 18, v))
        return NULL;
    layer a = read_layer(v + 5);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->forward(&a, (float *)v[0], (float *)v[1], (float *)v[2], (float *)v[3], (uint8_t *)v[4]);
    Py_END_ALLOW_THREADS
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *backward(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[20];
    if (!integers(args, given, 20, v))
        return NULL;
    layer a = read_layer(v + 7);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->backward(&a, (float *)v[0], (float *)v[1], (float *)v[2], (uint8_t *)v[3], (float *)v[4],
                            (float *)v[5], (float *)v[6]);
    Py_END_ALLOW_THREADS
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *pool_forward(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[9];
    if (!integers(args, given, 9, v))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    active->pool_forward((float *)v[0], (float *)v[1], (uint8_t *)v[2], v[3], v[4], v[5], v[6], v[7], v[8]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *pool_backward(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[8];
    if (!integers(args, given, 8, v))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    active->pool_backward((float *)v[0], (uint8_t *)v[1], (float *)v[2], v[3], v[4], v[5], v[6], v[7]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *level_names(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < usable; i++) {
        PyObject *name = PyUnicode_FromString(levels[i]->name);
        if (!name || PyList_Append(list, name))
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyObject *use_level(PyObject *self, PyObject *index)
{
    (void)self;
    long i = PyLong_AsLong(index);
    if (i == -1 && PyErr_Occurred())
        return NULL;
    if (i < 0 || i >= usable)
        return PyErr_Format(PyExc_ValueError, "level %ld: this processor has 0 to %d", i, usable - 1);
    active = levels[i];
    Py_RETURN_NONE;
}

#define FAST(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef methods[] = {
    {"forward", FAST(forward), METH_FASTCALL,
     "forward(x, weight, bias, out, argmax, n, h, w, ci, co, kh, kw, lanes, clients, pool, relu, wset, bset)"},
    {"backward", FAST(backward), METH_FASTCALL,
     "backward(x, weight, grad, argmax, grad_x, grad_weight, grad_bias, n, h, w, ci, co, kh, kw, lanes, clients, "
     "pool, relu, wset, bset)"},
    {"pool_forward", FAST(pool_forward), METH_FASTCALL, "pool_forward(x, out, argmax, n, h, w, c * lanes, k, relu)"},
    {"pool_backward", FAST(pool_backward), METH_FASTCALL,
     "pool_backward(grad, argmax, grad_x, n, h, w, c * lanes, k)"},
    {"levels", level_names, METH_NOARGS, "levels(): instruction sets this processor has, narrowest first"},
    {"use_level", use_level, METH_O, "use_level(index into levels())"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)detect}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }

#else /* LEVEL: the loops of one instruction set */

typedef float NAME(vec) __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(4 * V), aligned(4), may_alias));
typedef uint8_t NAME(bvec) __attribute__((vector_size(V), aligned(1), may_alias));
#define vec NAME(vec)
#define ivec NAME(ivec)
#define bvec NAME(bvec)
#define LOAD(p) (*(const vec *)(p))
#define STORE(p, v) (*(vec *)(p) = (v))
#define INLINE static inline __attribute__((always_inline)) TARGET

static TARGET plan NAME(make_plan)(const layer *a)
{
    plan q;
    const idx slabs = a->lanes / V, pixel = a->kh * a->kw == 1 && a->pool == 1;
    const idx ph = (a->h - a->kh + 1) / a->pool, pw = (a->w - a->kw + 1) / a->pool;
    q.sets = a->clients ? slabs : a->n;
    q.slabs = a->clients ? a->n : slabs;
    q.h = a->h, q.w = a->w;
    q.x = (view){a->w * a->ci * a->lanes, a->ci * a->lanes, a->lanes};
    q.out = (view){pw * a->co * a->lanes, a->co * a->lanes, a->lanes};
    q.xsize = a->h * a->w * a->ci, q.osize = ph * pw * a->co;
    if (pixel && a->clients) { /* rows and pixels alike are positions */
        q.w = a->n * a->h * a->w, q.h = 1, q.slabs = 1;
    } else if (pixel && a->h * a->w == 1) { /* so are the slabs of a linear layer */
        q.w = slabs, q.slabs = 1;
        q.x.pos = q.out.pos = V;
    }
    q.oh = q.h - a->kh + 1, q.ow = q.w - a->kw + 1;
    q.ph = q.oh / a->pool, q.pw = q.ow / a->pool;
    q.taps = a->kw * a->ci;
    q.size = a->co * a->kh * q.taps;
    q.step = a->clients ? a->lanes : 1;
    q.unit = a->clients ? V : 1;
    q.natural = a->kh * a->kw == 1 || a->ci == 1;
    q.packed = a->lanes > V && a->kh * a->kw > 1;
    return q;
}

/* First float of slab i of weight set s in an array of `size` floats an n and lane. */
static inline TARGET idx NAME(slab_at)(const layer *a, idx s, idx i, idx size)
{
    return (a->clients ? i : s) * size * a->lanes + (a->clients ? s : i) * V;
}

/* (co, ci, ky, kx) to (co, ky, kx, ci), or flipped to (ci, ky, -kx, co). */
static TARGET void NAME(pack_weights)(const layer *a, const plan *q, const float *w, float *to, int flipped)
{
    for (idx o = 0; o < a->co; o++)
        for (idx c = 0; c < a->ci; c++)
            for (idx y = 0; y < a->kh; y++)
                for (idx x = 0; x < a->kw; x++, w += q->step) {
                    float *at = to + q->unit * (flipped ? ((c * a->kh + y + 1) * a->kw - 1 - x) * a->co + o
                                                        : ((o * a->kh + y) * a->kw + x) * a->ci + c);
                    if (a->clients)
                        STORE(at, LOAD(w));
                    else
                        *at = *w;
                }
}

static inline TARGET float NAME(lane_sum)(const float *v)
{
    float a[V / 2];
    for (int l = 0; l < V / 2; l++)
        a[l] = v[l] + v[l + V / 2];
    for (int half = V / 4; half; half /= 2)
        for (int l = 0; l < half; l++)
            a[l] += a[l + half];
    return a[0];
}

/* Vectors (co, ky, kx, ci) to the parameter's order: every lane, or their sum. */
static TARGET void NAME(unpack_weights)(const layer *a, const plan *q, const float *from, float *w)
{
    for (idx o = 0; o < a->co; o++)
        for (idx c = 0; c < a->ci; c++)
            for (idx y = 0; y < a->kh; y++)
                for (idx x = 0; x < a->kw; x++, w += q->step) {
                    const float *at = from + (((o * a->kh + y) * a->kw + x) * a->ci + c) * V;
                    if (a->clients)
                        STORE(w, LOAD(at));
                    else
                        *w = NAME(lane_sum)(at);
                }
}

static TARGET void NAME(pack_slab)(const float *x, view v, idx h, idx w, idx c, float *to)
{
    for (idx y = 0; y < h; y++)
        for (idx p = 0; p < w; p++)
            for (idx k = 0; k < c; k++, to += V)
                STORE(to, LOAD(x + y * v.row + p * v.pos + k * v.chan));
}

/* P positions by U channels of accumulators; w holds vectors, or scalars to broadcast. */
INLINE void NAME(tile)(const tile *t, const int P, const int U, const int broadcast)
{
    vec acc[PMAX][UMAX];
    UNROLL for (int p = 0; p < P; p++)
        UNROLL for (int u = 0; u < U; u++)
            acc[p][u] = LOAD(t->init + p * t->ip + u * t->iu);
    const idx xp = t->xp, xj = t->xj, wu = t->wu, wj = t->wj;
    const float *xr = t->x, *wr = t->w;
    for (idx r = 0; r < t->rows; r++, xr += t->xr, wr += t->wr) {
        const float *x = xr, *w = wr;
        for (idx j = 0; j < t->taps; j++, x += xj, w += wj) {
            vec xv[PMAX];
            UNROLL for (int p = 0; p < P; p++)
                xv[p] = LOAD(x + p * xp);
            UNROLL for (int u = 0; u < U; u++)
                if (broadcast) {
                    UNROLL for (int p = 0; p < P; p++)
                        acc[p][u] += xv[p] * w[u * wu];
                } else {
                    const vec wv = LOAD(w + u * wu);
                    UNROLL for (int p = 0; p < P; p++)
                        acc[p][u] += xv[p] * wv;
                }
        }
    }
    UNROLL for (int p = 0; p < P; p++)
        UNROLL for (int u = 0; u < U; u++)
            STORE(t->out + p * t->op + u * t->ou, acc[p][u]);
}

#define TILE(p, u) \
    static TARGET void NAME(tile_##p##u)(const tile *t) { NAME(tile)(t, p, u, 0); } \
    static TARGET void NAME(cast_##p##u)(const tile *t) { NAME(tile)(t, p, u, 1); }
#if UMAX == 5
#define TILES(p) TILE(p, 1) TILE(p, 2) TILE(p, 3) TILE(p, 4) TILE(p, 5)
#define ROW(f, p) {NAME(f##_##p##1), NAME(f##_##p##2), NAME(f##_##p##3), NAME(f##_##p##4), NAME(f##_##p##5)}
#define ROWS(f) {ROW(f, 1), ROW(f, 2), ROW(f, 3), ROW(f, 4), ROW(f, 5)}
TILES(5)
#else
#define TILES(p) TILE(p, 1) TILE(p, 2) TILE(p, 3)
#define ROW(f, p) {NAME(f##_##p##1), NAME(f##_##p##2), NAME(f##_##p##3)}
#define ROWS(f) {ROW(f, 1), ROW(f, 2), ROW(f, 3), ROW(f, 4)}
#endif
TILES(1)
TILES(2)
TILES(3)
TILES(4)
static void (*const NAME(tiles)[2][PMAX][UMAX])(const tile *) = {ROWS(tile), ROWS(cast)};

/* The tile of positions p0 to p1 and channels u0 to u1 of `t`. */
INLINE void NAME(run)(tile t, idx p0, idx p1, idx u0, idx u1, int broadcast)
{
    t.x += p0 * t.xp;
    t.w += u0 * t.wu;
    t.init += p0 * t.ip + u0 * t.iu;
    t.out += p0 * t.op + u0 * t.ou;
    NAME(tiles)[broadcast][p1 - p0 - 1][u1 - u0 - 1](&t);
}

/* All tiles of `rows` by `positions` by `channels`; rows step x, init and out.
 * Channels are the outer loop, so that a block's weights stay in the cache. */
static TARGET void NAME(product)(tile t, idx rows, idx positions, idx channels, idx xstep, idx istep, idx ostep,
                                 int broadcast)
{
    const idx us = ceil_div(channels, UMAX), ps = ceil_div(positions, PMAX);
    for (idx u = 0; u < us; u++) {
        tile row = t;
        for (idx y = 0; y < rows; y++, row.x += xstep, row.init += istep, row.out += ostep)
            for (idx p = 0; p < ps; p++)
                NAME(run)(row, p * positions / ps, (p + 1) * positions / ps, u * channels / us,
                          (u + 1) * channels / us, broadcast);
    }
}

INLINE void NAME(pool_by)(const float *x, view in, idx ph, idx pw, idx c, const idx k, idx relu, float *out,
                          uint8_t *argmax, view to)
{
    for (idx y = 0; y < ph; y++)
        for (idx p = 0; p < pw; p++) {
            const float *at = x + y * k * in.row + p * k * in.pos;
            idx o = y * to.row + p * to.pos;
            for (idx i = 0; i < c; i++, at += in.chan, o += to.chan) {
                vec best = LOAD(at);
                ivec where = {0};
                for (idx ty = 0; ty < k; ty++)
                    for (idx tx = ty == 0; tx < k; tx++) {
                        const vec v = LOAD(at + ty * in.row + tx * in.pos);
                        const ivec take = (v > best) | (v != v); /* the first maximum; NaN wins */
                        best = (vec)((take & (ivec)v) | (~take & (ivec)best));
                        where = (take & (int32_t)(ty * k + tx)) | (~take & where);
                    }
                if (relu) {
                    const ivec dead = best <= 0.0f;
                    best = (vec)(~dead & (ivec)best);
                    where |= dead;
                }
                STORE(out + o, best);
                *(bvec *)(argmax + o) = __builtin_convertvector(where, bvec);
            }
        }
}

/* Maxima of k by k windows, with optional relu, and where each one was. */
static TARGET void NAME(pool)(const float *x, view in, idx ph, idx pw, idx c, idx k, idx relu, float *out,
                              uint8_t *argmax, view to)
{
    if (k == 1)
        NAME(pool_by)(x, in, ph, pw, c, 1, relu, out, argmax, to);
    else if (k == 2)
        NAME(pool_by)(x, in, ph, pw, c, 2, relu, out, argmax, to);
    else
        NAME(pool_by)(x, in, ph, pw, c, k, relu, out, argmax, to);
}

INLINE void NAME(unpool_by)(const float *g, const uint8_t *argmax, view in, idx ph, idx pw, idx c, const idx k,
                            float *out, view to, float *sums)
{
    for (idx y = 0; y < ph; y++)
        for (idx p = 0; p < pw; p++) {
            float *at = out + y * k * to.row + p * k * to.pos;
            idx o = y * in.row + p * in.pos;
            for (idx i = 0; i < c; i++, at += to.chan, o += in.chan) {
                vec v = LOAD(g + o);
                if (argmax) {
                    const ivec where = __builtin_convertvector(*(const bvec *)(argmax + o), ivec);
                    for (idx ty = 0; ty < k; ty++)
                        for (idx tx = 0; tx < k; tx++)
                            STORE(at + ty * to.row + tx * to.pos,
                                  (vec)((where == (int32_t)(ty * k + tx)) & (ivec)v));
                    v = (vec)((where != DEAD) & (ivec)v);
                } else {
                    STORE(at, v);
                }
                if (sums)
                    STORE(sums + i * V, LOAD(sums + i * V) + v);
            }
        }
}

/* Puts each gradient back where its maximum was, zero elsewhere; adds it to its channel's sum. */
static TARGET void NAME(unpool)(const float *g, const uint8_t *argmax, view in, idx ph, idx pw, idx c, idx k,
                                float *out, view to, float *sums)
{
    if (k == 1)
        NAME(unpool_by)(g, argmax, in, ph, pw, c, 1, out, to, sums);
    else if (k == 2)
        NAME(unpool_by)(g, argmax, in, ph, pw, c, 2, out, to, sums);
    else
        NAME(unpool_by)(g, argmax, in, ph, pw, c, k, out, to, sums);
}

/* Pooling treats lanes alike, so `c` = C * L is simply many slabs of channels. */
static TARGET void NAME(pool_forward)(const float *x, float *out, uint8_t *argmax, idx n, idx h, idx w, idx c, idx k,
                                      idx relu)
{
    const idx ph = h / k, pw = w / k;
    for (idx i = 0; i < n; i++)
        NAME(pool)(x + i * h * w * c, (view){w * c, c, V}, ph, pw, c / V, k, relu, out + i * ph * pw * c,
                   argmax + i * ph * pw * c, (view){pw * c, c, V});
}

static TARGET void NAME(pool_backward)(const float *g, const uint8_t *argmax, float *gx, idx n, idx h, idx w, idx c,
                                       idx k)
{
    const idx ph = h / k, pw = w / k;
    for (idx i = 0; i < n; i++, g += ph * pw * c, argmax += ph * pw * c, gx += h * w * c) {
        NAME(unpool)(g, argmax, (view){pw * c, c, V}, ph, pw, c / V, k, gx, (view){w * c, c, V}, NULL);
        for (idx y = 0; w > pw * k && y < ph * k; y++) /* what no window covers */
            memset(gx + (y * w + pw * k) * c, 0, (size_t)((w - pw * k) * c) * sizeof *gx);
        memset(gx + ph * k * w * c, 0, (size_t)((h - ph * k) * w * c) * sizeof *gx);
    }
}

/* Convolution with bias; with argmax, also pooled and rectified, one band of rows at a time. */
static TARGET int NAME(forward)(const layer *a, const float *x, const float *w, const float *b, float *out,
                                uint8_t *argmax)
{
    const plan q = NAME(make_plan)(a);
    const view dense = {q.w * a->ci * V, a->ci * V, V}, wide = {q.ow * a->co * V, a->co * V, V};
    const view xv = q.packed ? dense : q.x, ov = argmax ? wide : q.out;
    const idx band = argmax ? most(BAND / (q.ow * a->co * a->pool), 1) : q.oh;
    const idx xsize = q.packed ? q.h * dense.row : 0, csize = argmax ? band * a->pool * wide.row : 0;
    float *bias = scratch(a->co * V + xsize + csize + q.size * q.unit);
    if (!bias)
        return 0;
    float *slab = bias + a->co * V, *conv = slab + xsize, *weights = conv + csize;
    const idx unit = q.natural ? q.step : q.unit;
    for (idx s = 0; s < q.sets; s++) {
        const float *ws = w + s * (a->clients ? V : a->wset), *bs = b ? b + s * (a->clients ? V : a->bset) : NULL;
        if (!q.natural)
            NAME(pack_weights)(a, &q, ws, weights, 0);
        for (idx o = 0; o < a->co * V; o++)
            bias[o] = !bs ? 0 : a->clients ? bs[o / V * q.step + o % V] : bs[o / V];
        for (idx i = 0; i < q.slabs; i++) {
            const float *xs = x + NAME(slab_at)(a, s, i, q.xsize);
            if (q.packed) {
                NAME(pack_slab)(xs, q.x, q.h, q.w, a->ci, slab);
                xs = slab;
            }
            for (idx y = 0; y < q.ph; y += band) {
                const idx rows = least(band, q.ph - y), o = NAME(slab_at)(a, s, i, q.osize) + y * q.out.row;
                const tile t = {.x = xs + y * a->pool * xv.row, .xr = xv.row, .xp = xv.pos, .xj = xv.chan,
                                .w = q.natural ? ws : weights, .wr = q.taps * unit, .wj = unit,
                                .wu = a->kh * q.taps * unit,
                                .init = bias, .ip = 0, .iu = V,
                                .out = argmax ? conv : out + o, .op = ov.pos, .ou = ov.chan,
                                .rows = a->kh, .taps = q.taps};
                NAME(product)(t, rows * a->pool, q.ow, a->co, xv.row, 0, ov.row, !a->clients);
                if (argmax)
                    NAME(pool)(conv, wide, rows, q.pw, a->co, a->pool, a->relu, out + o, argmax + o, q.out);
            }
        }
    }
    free(bias);
    return 1;
}

/* Every input position sums the kernel taps that reach it: a convolution of the
 * padded gradient with flipped weights. Rows take their valid taps only, and
 * columns the union of their tile's, so tiles are narrower near the borders. */
static TARGET void NAME(input_gradient)(const layer *a, const plan *q, tile t, view g)
{
    const idx edge = a->kw - 1, left = least(edge, q->w), right = most(left, q->ow);
    const idx us = ceil_div(a->ci, UMAX), bounds[] = {0, left, right, q->w};
    for (idx u = 0; u < us; u++)
        for (idx y = 0; y < q->h; y++) {
            const idx first = most(y - q->oh + 1, 0), last = least(y, a->kh - 1);
            for (int part = 0; part < 3; part++) {
                const idx width = bounds[part + 1] - bounds[part], ps = ceil_div(width, part == 1 ? PMAX : EDGE(!a->clients));
                for (idx p = 0; p < ps; p++) {
                    const idx p0 = bounds[part] + p * width / ps, p1 = bounds[part] + (p + 1) * width / ps;
                    const idx k0 = most(edge - p1 + 1, 0), k1 = least(q->w - p0, a->kw);
                    tile row = t;
                    row.x += (y - first) * g.row + k0 * g.pos;
                    row.w += first * t.wr + k0 * a->co * t.wj;
                    row.out += y * q->x.row;
                    row.rows = last - first + 1;
                    row.taps = (k1 - k0) * a->co;
                    NAME(run)(row, p0, p1, u * a->ci / us, (u + 1) * a->ci / us, !a->clients);
                }
            }
        }
}

/* (feature, lane) vectors of every position to rows of features, one per lane. */
static TARGET void NAME(transpose)(const float *x, view v, idx positions, idx features, idx stride, float *to)
{
    for (idx p = 0; p < positions; p++, to += V * stride)
        for (idx f = 0; f < features; f++)
            for (idx l = 0; l < V; l++)
                to[l * stride + f] = x[p * v.pos + f * v.chan + l];
}

/* Gradients of weight, bias (if gb) and input (if gx). */
static TARGET int NAME(backward)(const layer *a, const float *x, const float *w, const float *g, const uint8_t *argmax,
                                 float *gx, float *gw, float *gb)
{
    const plan q = NAME(make_plan)(a);
    const int pixel = a->kh * a->kw == 1;
    /* Shared weights of a linear layer: a product over examples needs no sums over lanes. */
    const int linear = pixel && !a->clients && q.h == 1 && q.slabs == 1;
    const int direct = a->clients && q.natural; /* the weight gradient is written in place */
    const idx pad = gx ? a->kw - 1 : 0, stride = ceil_div(a->ci, V) * V;
    const view dense = {q.w * a->ci * V, a->ci * V, V};
    const view wide = {(q.ow + 2 * pad) * a->co * V, a->co * V, V};
    const view xv = q.packed ? dense : q.x;
    const idx band = most(BAND / (q.ow * least(a->co, UMAX) * a->pool), 1);
    const idx csize = q.oh * wide.row, xsize = linear ? q.w * V * stride : q.packed ? q.h * dense.row : 0;
    const idx wsize = linear ? a->co * stride : direct ? 0 : q.size * V;
    float *conv = scratch(csize + a->co * V + xsize + wsize + (gx && !pixel ? q.size * q.unit : 0));
    if (!conv)
        return 0;
    float *sums = conv + csize, *slab = sums + a->co * V, *weights = slab + xsize, *flipped = weights + wsize;
    memset(conv, 0, (size_t)csize * sizeof *conv); /* borders stay zero */
    for (idx s = 0; s < q.sets; s++) {
        const float *ws = w + s * (a->clients ? V : a->wset);
        float *gws = gw + s * (a->clients ? V : q.size), *gbs = gb ? gb + s * (a->clients ? V : a->co) : NULL;
        if (gx && !pixel)
            NAME(pack_weights)(a, &q, ws, flipped, 1);
        memset(sums, 0, (size_t)(a->co * V) * sizeof *sums);
        for (idx i = 0; i < q.slabs; i++) {
            const float *xs = x + NAME(slab_at)(a, s, i, q.xsize);
            if (q.packed) {
                NAME(pack_slab)(xs, q.x, q.h, q.w, a->ci, slab);
                xs = slab;
            }
            for (idx y = 0; y < q.ph; y += band) {
                const idx rows = least(band, q.ph - y), o = NAME(slab_at)(a, s, i, q.osize) + y * q.out.row;
                float *grad = conv + y * a->pool * wide.row + pad * wide.pos;
                NAME(unpool)(g + o, argmax ? argmax + o : NULL, q.out, rows, q.pw, a->co, a->pool, grad, wide, sums);
                if (linear)
                    continue;
                const int first = i + y == 0;
                const idx unit = direct ? q.step : V, kernel = a->kh * q.taps * unit;
                float *to = direct ? gws : weights;
                const tile t = {.x = xs + y * a->pool * xv.row, .xr = xv.row, .xp = xv.chan, .xj = xv.pos,
                                .w = grad, .wr = wide.row, .wj = wide.pos, .wu = V,
                                .init = first ? zeros : to, .ip = first ? 0 : unit, .iu = first ? 0 : kernel,
                                .out = to, .op = unit, .ou = kernel,
                                .rows = rows * a->pool, .taps = q.ow};
                NAME(product)(t, a->kh, q.taps, a->co, xv.row, first ? 0 : q.taps * unit, q.taps * unit, 0);
            }
            if (linear) {
                NAME(transpose)(xs, q.x, q.w, a->ci, stride, slab);
                const tile t = {.x = slab, .xr = V * stride, .xp = V, .xj = stride,
                                .w = conv, .wr = wide.pos, .wj = 1, .wu = V,
                                .init = zeros, .out = weights, .op = V, .ou = stride,
                                .rows = q.w, .taps = V};
                NAME(product)(t, 1, stride / V, a->co, 0, 0, 0, 1);
            }
            if (gx) {
                const idx unit = pixel ? q.step : q.unit;
                const tile t = {.x = conv, .xr = -wide.row, .xp = wide.pos, .xj = V,
                                .w = pixel ? ws : flipped, .wr = a->kw * a->co * unit,
                                .wj = pixel ? a->ci * unit : unit,
                                .wu = pixel ? unit : a->kh * a->kw * a->co * unit,
                                .init = zeros, .out = gx + NAME(slab_at)(a, s, i, q.xsize),
                                .op = q.x.pos, .ou = q.x.chan};
                NAME(input_gradient)(a, &q, t, wide);
            }
        }
        if (linear)
            for (idx o = 0; o < a->co; o++)
                memcpy(gws + o * a->ci, weights + o * stride, (size_t)a->ci * sizeof *gws);
        else if (!direct)
            NAME(unpack_weights)(a, &q, weights, gws);
        for (idx o = 0; gbs && o < a->co; o++)
            if (a->clients)
                STORE(gbs + o * q.step, LOAD(sums + o * V));
            else
                gbs[o] = NAME(lane_sum)(sums + o * V);
    }
    free(conv);
    return 1;
}

static const kernels NAME(kernels) = {STRING(LEVEL), NAME(forward), NAME(backward), NAME(pool_forward),
                                      NAME(pool_backward)};

#undef vec
#undef ivec
#undef bvec
#undef LOAD
#undef STORE
#undef INLINE
#undef TILE
#undef TILES
#undef ROW
#undef ROWS
#undef LEVEL
#undef TARGET
#undef V
#undef PMAX
#undef UMAX
#undef EDGE
#undef BAND

#endif
