/* Loops over the numbers of one model: convolutions and group norms of images, recurrent layers, attention,
 * small linear layers.
 *
 * They are compiled once per instruction set: the file includes itself with
 * LEVEL defined, and the widest level the processor has is chosen when the
 * module is loaded. */

#ifndef LEVEL

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef ptrdiff_t idx;

static inline idx ceil_div(idx a, idx b) { return (a + b - 1) / b; }
static inline idx least(idx a, idx b) { return a < b ? a : b; }
static inline idx most(idx a, idx b) { return a > b ? a : b; }

static float *scratch(idx floats)
{
    return aligned_alloc(64, (size_t)ceil_div(floats, 16) * 16 * sizeof(float));
}

#include "images.h"
#include "head.h"
#include "recurrence.h"
#include "windows.h"
#include "attention.h"
#include "clipped.h"
#include "linear.h"
#include "dense.h"
#include "text.h"

typedef struct {
    const char *name;
    int (*convolve)(const convolution *, const float *, const float *, idx, idx, int, const float *, float *, int);
    int (*kernel)(const convolution *, const float *, const float *, float *);
    int (*norm)(const float *, const float *, const float *, const float *, float *, float *, idx, idx, idx, idx,
                double, int);
    int (*norm_back)(const float *, const float *, const float *, const float *, const float *, const float *, float *,
                     float *, float *, float *, idx, idx, idx, idx, int, int);
    void (*total)(const float *, float *, idx, idx, idx);
    void (*add)(const float *, const float *, float *, idx);
    void (*mean)(const float *, float *, idx, idx, idx);
    void (*mean_back)(const float *, float *, idx, idx, idx, int);
    void (*head)(const float *, const float *, const float *, float *, idx, idx, idx);
    void (*head_back)(const float *, const float *, const float *, float *, float *, float *, idx, idx, idx, int);
    void (*step)(const float *, float, float *, idx);
    int (*recur)(const recurrence *, float *const *);
    int (*recur_back)(const recurrence *, float *const *);
    int (*recur_heard)(const recurrence *, float *const *);
    int (*slide)(const window *, const float *, const float *, const float *, float *);
    int (*slide_back)(const window *, const float *, const float *, float *, int);
    int (*slide_kernel)(const window *, const float *, const float *, float *);
    int (*apart)(const window *, const float *, const float *, const float *, float *);
    int (*apart_back)(const window *, const float *, const float *, float *, int);
    int (*apart_kernel)(const window *, const float *, const float *, float *);
    int (*attend)(const attention *, float *const *);
    int (*attend_back)(const attention *, float *const *);
    void (*gelu)(const float *, float *, float *, idx, int);
    int (*gram)(const window *, const float *, const float *, double *);
    int (*clipped)(const window *, const float *, const float *, const double *, double *, int);
    void (*upright)(const float *, idx, idx, idx, float *, idx);
    void (*linear)(const layer *, const float *, const float *, const float *, float *, idx, idx);
    void (*linear_back)(const layer *, const float *, const float *, float *, idx, idx);
    void (*linear_weights)(const layer *, const float *, const float *, float *, float *, idx, idx);
    void (*dense)(const dense *, const float *const *, const float *, const float *, float *, idx, idx);
    void (*dense_back)(const dense *, const float *, const float *, const float *, float *, idx, idx);
    void (*dense_move)(const dense *, const float *, const float *const *, const move *, float *, float *, float *,
                       float *, const float **, idx, idx);
    void (*multiplied)(const matrices *, const float *, const float *, const float *, float *, idx, idx);
    void (*sum_rows)(const float *, float *, idx, idx, idx);
    void (*add_row)(const float *, const float *, float *, idx, idx);
    void (*times)(const float *, const float *, float *, idx);
    void (*rectify)(const float *, float *, idx);
    void (*rectify_back)(const float *, const float *, float *, idx);
    void (*layer_norm)(const float *, const float *, const float *, float *, float *, float *, idx, idx, double);
    void (*layer_norm_back)(const float *, const float *, const float *, const float *, const float *, float *, float *,
                            float *, idx, idx);
    void (*look_up_back)(const float *, const words *, float *, idx, idx, idx, idx, idx);
} kernels;

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, LEVEL)
#define STRING_(a) #a
#define STRING(a) STRING_(a)
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#define UNROLL_ALL UNROLL
#else
#define UNROLL _Pragma("GCC unroll 9")
#define UNROLL_ALL _Pragma("GCC unroll 16")
#endif

#ifdef __x86_64__
#define LEVEL avx2
#define TARGET __attribute__((target("avx2,fma")))
#define V 8
#define UMAX 2
#include "_kernels.c"

#define LEVEL avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define V 16
#define UMAX 4
#include "_kernels.c"
#endif

static const kernels *const levels[] = {
#ifdef __x86_64__
    &kernels_avx2,
    &kernels_avx512,
#endif
    NULL,
};
static int usable;
static const kernels *active;

static int detect(PyObject *module)
{
    (void)module;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        usable = 1;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            usable = 2;
    }
#endif
    active = usable ? levels[usable - 1] : NULL;
    return 0;
}

/* Reads `count` integers: addresses first, then sizes. */
static int integers(PyObject *const *args, Py_ssize_t given, Py_ssize_t count, idx *to)
{
    if (given != count)
        return PyErr_Format(PyExc_TypeError, "expected %zd integers, got %zd", count, given) != NULL;
    if (!active)
        return PyErr_Format(PyExc_RuntimeError, "this processor has none of the levels: ask levels() first") != NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if ((to[i] = PyLong_AsSsize_t(args[i])) == -1 && PyErr_Occurred())
            return 0;
    return 1;
}

static convolution read_convolution(const idx *v)
{
    convolution q = {v[0], v[1], v[2], v[3], v[1] + 2 * v[5] - 2, v[2] + 2 * v[5] - 2, v[4], v[5], 0, 0, 0, 0, 0, 0, 0};
    q.high = ceil_div(q.oh, 4), q.wide = ceil_div(q.ow, 4);
    q.tiles = q.last = q.n * q.high * q.wide;
    q.right = q.o;
    return q;
}

static PyObject *answer(int done)
{
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static window read_window(const idx *v)
{
    window q = {v[0], v[1], v[2], v[3], 0, 0, v[4], v[5], v[6], v[7], v[8], v[9], v[10]};
    q.oh = (q.h + 2 * q.ph - q.kh) / q.sh + 1, q.ow = (q.w + 2 * q.pw - q.kw) / q.sw + 1;
    return q;
}

/* The kernels of images' and texts' layers by their numbers in a list of calls, and of how many arrays and sizes each is given;
 * native/calls.py has the same table. */
enum { CONVOLVE, KERNEL, SLIDE, SLIDE_BACK, SLIDE_KERNEL, NORM, NORM_BACK, TOTAL, ADD, GATHER, MEAN, MEAN_BACK, LINEAR,
       LINEAR_BACK, ENTROPY, STEP, APART, APART_BACK, APART_KERNEL, PRODUCT, UPRIGHT, SUM_ROWS, ADD_ROW, TIMES, RECTIFY,
       RECTIFY_BACK, GELU, LAYER_NORM, LAYER_NORM_BACK, LOOK_UP, LOOK_UP_BACK, SCATTER, ZERO, ATTEND, ATTEND_BACK, RECUR,
       RECUR_BACK, KINDS };
static const struct {
    int arrays, sizes;
} expected[KINDS] = {{4, 10}, {3, 6}, {4, 11}, {3, 12}, {3, 11}, {6, 6}, {10, 5}, {2, 3}, {3, 1}, {3, 3},
                     {2, 3}, {2, 4}, {4, 3}, {6, 4}, {5, 2}, {3, 1}, {4, 11},
                     {3, 12}, {3, 11}, {4, 8}, {2, 4}, {2, 3}, {3, 2}, {3, 1}, {2, 1},
                     {3, 1}, {3, 2}, {6, 3}, {8, 2}, {4, 5}, {4, 7}, {2, 13}, {1, 1}, {6, 23}, {8, 23},
                     {FORWARD_ARRAYS, 5}, {BACKWARD_ARRAYS, 6}};

/* Rows of a product by several threads, each with whole tiles. */
static void multiply_by(const matrices *m, float *const *at, int threads)
{
    const idx tiles = ceil_div(m->rows, 6);
    threads = (int)most(1, least(threads, m->rows * m->columns * m->count / DENSE_PART));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int part = 0; part < threads; part++)
        active->multiplied(m, at[0], at[1], at[2], at[3], tiles * part / threads * 6,
                           least(m->rows, tiles * (part + 1) / threads * 6));
}

/* Texts by several threads. */
static int attend_by(const idx *v, float *const *at, int back, int threads)
{
    attention a = {v[0], v[1], v[2], v[3], v[4], v[5], {v[6], v[7], v[8]}, {v[9], v[10], v[11]}, {v[12], v[13], v[14]},
                   {v[15], v[16], v[17]}, {v[18], v[19], v[20], v[21]}, 0.0f};
    double scale;
    memcpy(&scale, v + 22, sizeof scale);
    a.scale = (float)scale;
    const idx wide = ceil_div(a.queries, 16) * 16 * a.keys * a.heads, width = a.heads * a.width;
    const idx each[] = {back ? a.o[0] : a.q[0], back ? a.q[0] : a.k[0], back ? a.k[0] : a.v[0],
                        back ? a.v[0] : a.mask[0], back ? wide : a.o[0], back ? a.queries * width : wide,
                        a.keys * width, a.keys * width};
    int done = 1;
    threads = (int)most(1, least(threads, a.batch * a.heads * a.queries * a.keys * a.width / (DENSE_PART / 4)));
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const idx first = a.batch * part / threads;
        attention own = a;
        float *from[8];
        own.batch = a.batch * (part + 1) / threads - first;
        for (int i = 0; i < (back ? 8 : 6); i++)
            from[i] = at[i] ? at[i] + first * each[i] : NULL;
        done = done && (back ? active->attend_back(&own, from) : active->attend(&own, from));
    }
    return done;
}

/* Recurrent layers of all clients, each part of a client's batch by a thread of its own as far as there are threads. */
enum { FORWARDS, BACKWARDS, HEARD };

/* How many floats of an array are one example's, or, where examples share it, one client's. */
typedef struct {
    idx example, client;
} share;

static int recur_by(int way, const recurrence *q, float *const *at, int threads)
{
    const idx t = q->steps, in = q->inputs, h = q->size, own = (q->gru ? 3 : 4) * h, kept = (q->gru ? 5 : 6) * t * h;
    const share forward[FORWARD_ARRAYS] = {{t * in, 0}, {0, own * in}, {0, own}, {0, own * h}, {0, own},
                                           {h, 0}, {h, 0}, {t * h, 0}, {kept, 0}, {h, 0}};
    const share backward[BACKWARD_ARRAYS] = {{q->last ? h : t * h, 0}, {h, 0}, {t * in, 0}, {0, own * in}, {0, own * h},
                                             {h, 0}, {kept, 0}, {t * in, 0}, {0, own * in}, {0, own}, {0, own * h},
                                             {0, own}, {h, 0}, {h, 0}};
    const share heard[HEARD_ARRAYS] = {{t * h, 0}, {h, 0}, {0, own * in}, {0, own * h}, {kept, 0},
                                       {t * in, 0}, {4 * t * h, 0}, {h, 0}, {h, 0}};
    const share *const shares = way == FORWARDS ? forward : way == BACKWARDS ? backward : heard;
    const int arrays = way == FORWARDS ? FORWARD_ARRAYS : way == BACKWARDS ? BACKWARD_ARRAYS : HEARD_ARRAYS;
    int (*const loop)(const recurrence *, float *const *) =
        way == FORWARDS ? active->recur : way == BACKWARDS ? active->recur_back : active->recur_heard;
    const idx parts = parts_of(q), jobs = q->clients * parts, weights = own * (in + h + 2);
    float *spare = NULL; /* gradients of the weights of every part */
    if (way == BACKWARDS && parts > 1 && !(spare = scratch(jobs * weights)))
        return 0;
    int done = 1;
    threads = (int)most(1, least(least(threads, jobs), q->clients * q->batch * t * own * (h + in) / DENSE_PART));
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done) if (threads > 1)
    for (idx job = 0; job < jobs; job++) {
        const idx client = job / parts, part = job % parts, first = q->batch * part / parts;
        recurrence some = *q;
        float *from[BACKWARD_ARRAYS];
        some.clients = 1, some.batch = q->batch * (part + 1) / parts - first;
        for (int i = 0; i < arrays; i++) {
            const share s = shares[i];
            from[i] = at[i] ? at[i] + (s.example ? (client * q->batch + first) * s.example : client * s.client) : NULL;
        }
        if (spare)
            for (idx i = 8, behind = job * weights; i < 12; behind += shares[i++].client)
                from[i] = spare + behind;
        done = done && loop(&some, from);
    }
    for (idx client = 0; spare && client < q->clients; client++)
        for (idx i = 8, behind = 0; i < 12; behind += shares[i++].client) {
            float *to = at[i] + client * shares[i].client;
            const float *own_parts = spare + client * parts * weights + behind;
            memcpy(to, own_parts, (size_t)shares[i].client * sizeof *to);
            for (idx part = 1; part < parts; part++)
                active->add(to, own_parts + part * weights, to, shares[i].client);
        }
    free(spare);
    return done;
}

/* What is in a model of texts. */
static int call_text(idx kind, float *const *at, const idx *v, idx number, int threads)
{
    double own;
    switch (kind) {
    case PRODUCT:
        return multiply_by(&(matrices){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]}, at, threads), 1;
    case UPRIGHT:
        return active->upright(at[0], v[2], v[0], v[1], at[1], v[3]), 1;
    case SUM_ROWS:
        return active->sum_rows(at[0], at[1], v[0], v[1], v[2]), 1;
    case ADD_ROW:
        return active->add_row(at[0], at[1], at[2], v[0], v[1]), 1;
    case TIMES:
        return active->times(at[0], at[1], at[2], v[0]), 1;
    case RECTIFY:
        return active->rectify(at[0], at[1], v[0]), 1;
    case RECTIFY_BACK:
        return active->rectify_back(at[0], at[1], at[2], v[0]), 1;
    case GELU:
        return active->gelu(at[0], at[1], at[2], v[0], (int)v[1]), 1;
    case LAYER_NORM:
        memcpy(&own, v + 2, sizeof own);
        return active->layer_norm(at[0], at[1], at[2], at[3], at[4], at[5], v[0], v[1], own), 1;
    case LAYER_NORM_BACK:
        return active->layer_norm_back(at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], v[0], v[1]), 1;
    case LOOK_UP:
    case LOOK_UP_BACK: {
        const words t = {(const int64_t *)at[1], at[2] ? (const int64_t *)at[2] + number * v[0] : NULL, v[3], v[4]};
        if (kind == LOOK_UP)
            return look_up(at[0], &t, at[3], v[0], v[1], v[2]), 1;
        return active->look_up_back(at[0], &t, at[3], v[0], v[1], v[2], v[5], v[6]), 1;
    }
    case SCATTER:
        memcpy(&own, v + 12, sizeof own);
        return scatter(at[0], at[1], v, v + 4, v + 8, (float)own), 1;
    case ZERO:
        return memset(at[0], 0, (size_t)v[0] * sizeof(float)), 1;
    case RECUR:
    case RECUR_BACK: {
        const recurrence q = {1, v[0], v[1], v[2], v[3], (int)v[4], kind == RECUR_BACK ? (int)v[5] : 0};
        return recur_by(kind == RECUR ? FORWARDS : BACKWARDS, &q, at, threads);
    }
    default:
        return attend_by(v, at, kind == ATTEND_BACK, threads);
    }
}

static int call(idx kind, float *const *at, const idx *v, idx number, int threads)
{
    convolution q;
    window w;
    double epsilon;
    if (kind >= PRODUCT)
        return call_text(kind, at, v, number, threads);
    if (kind == CONVOLVE || kind == KERNEL)
        q = read_convolution(v);
    if (kind == SLIDE || kind == SLIDE_BACK || kind == SLIDE_KERNEL || kind >= APART)
        w = read_window(v);
    switch (kind) {
    case CONVOLVE:
        return active->convolve(&q, at[0], at[1], v[6], v[7], (int)v[8], at[2], at[3], (int)v[9]);
    case KERNEL:
        return active->kernel(&q, at[0], at[1], at[2]);
    case SLIDE:
        return active->slide(&w, at[0], at[1], at[2], at[3]);
    case SLIDE_BACK:
        return active->slide_back(&w, at[0], at[1], at[2], (int)v[11]);
    case SLIDE_KERNEL:
        return active->slide_kernel(&w, at[0], at[1], at[2]);
    case NORM:
        memcpy(&epsilon, v + 5, sizeof epsilon);
        return active->norm(at[0], at[1], at[2], at[3], at[4], at[5], v[0], v[1], v[2], v[3], epsilon, (int)v[4]);
    case NORM_BACK:
        return active->norm_back(at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9], v[0], v[1], v[2],
                                 v[3], (int)v[4], 0);
    case TOTAL:
        return active->total(at[0], at[1], v[0], v[1], v[2]), 1;
    case ADD:
        return active->add(at[0], at[1], at[2], v[0]), 1;
    case GATHER:
        return gather(at[0], (const int64_t *)at[1] + number * v[0], at[2], v[0], v[1], v[2]), 1;
    case MEAN:
        return active->mean(at[0], at[1], v[0], v[1], v[2]), 1;
    case MEAN_BACK:
        return active->mean_back(at[0], at[1], v[0], v[1], v[2], (int)v[3]), 1;
    case LINEAR:
        return active->head(at[0], at[1], at[2], at[3], v[0], v[1], v[2]), 1;
    case LINEAR_BACK:
        return active->head_back(at[0], at[1], at[2], at[3], at[4], at[5], v[0], v[1], v[2], (int)v[3]), 1;
    case ENTROPY:
        *at[4] += (float)entropy(at[0], (const int64_t *)at[1], (const int64_t *)at[2] + number * v[0], at[3], v[0],
                                 v[1]);
        return 1;
    case STEP:
        return active->step(at[0], *at[1], at[2], v[0]), 1;
    case APART:
        return active->apart(&w, at[0], at[1], at[2], at[3]);
    case APART_BACK:
        return active->apart_back(&w, at[0], at[1], at[2], (int)v[11]);
    default:
        return active->apart_kernel(&w, at[0], at[1], at[2]);
    }
}

#define PLACE_BITS 40 /* of where an array begins; the bits above say in whose memory */
#define MOST_ARRAYS BACKWARD_ARRAYS
#define MOST_SIZES 23

/* Runs a list of calls: for each its kind, its arrays and its sizes. `number` says for the how manieth time, for those
 * who read the rows of a batch. The answer says whether there was memory. */
static int run_calls(const idx *list, const idx *end, const idx *bases, idx *at_fault, Py_ssize_t count, idx number,
                     int threads)
{
    while (list < end) {
        const idx kind = *list++;
        if (kind < 0 || kind >= KINDS || end - list < expected[kind].arrays + expected[kind].sizes)
            return *at_fault = 1, 1;
        float *at[MOST_ARRAYS];
        idx sizes[MOST_SIZES];
        for (int i = 0; i < expected[kind].arrays; i++, list++) {
            if (*list >= 0 && *list >> PLACE_BITS >= count)
                return *at_fault = 1, 1;
            at[i] = *list < 0 ? NULL : (float *)bases[*list >> PLACE_BITS] + (*list & (((idx)1 << PLACE_BITS) - 1));
        }
        for (int i = 0; i < expected[kind].sizes; i++)
            sizes[i] = *list++;
        if (!call(kind, at, sizes, number, threads))
            return 0;
    }
    return 1;
}

static PyObject *perform(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx *v = PyMem_Calloc((size_t)given + 1, sizeof *v), fault = 0;
    if (!v)
        return PyErr_NoMemory();
    if (given < 4 || !integers(args, given, given, v)) {
        PyMem_Free(v);
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a list, its length and two numbers");
    }
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
    const idx *list = (const idx *)v[0];
    for (idx number = 0; number < v[2] && done && !fault; number++)
        done = run_calls(list, list + v[1], v + 4, &fault, given - 4, number, (int)most(1, v[3]));
    Py_END_ALLOW_THREADS
    PyMem_Free(v);
    if (fault)
        return PyErr_Format(PyExc_ValueError, "no list of calls");
    return answer(done);
}

/* Of DP-SGD's passes, layer by layer and by several threads. */

/* Gives every thread some tiles, or of large kernels, which it would transform for itself, some outputs. */
static int convolve_by(const convolution *q, const idx *v, int threads)
{
    int done = 1;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done)
    for (int part = 0; part < threads; part++) {
        convolution own = *q;
        if (q->c * q->o > LARGE)
            own.left = q->o / 16 * part / threads * 16, own.right = q->o / 16 * (part + 1) / threads * 16;
        else
            own.first = q->tiles * part / threads, own.last = q->tiles * (part + 1) / threads;
        done = done && (own.first == own.last || own.left == own.right ||
                        active->convolve(&own, (float *)v[0], (float *)v[1], v[10], v[11], (int)v[12], (float *)v[2],
                                         (float *)v[3], (int)v[13]));
    }
    return done;
}

static PyObject *convolve(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[15];
    if (!integers(args, given, 15, v))
        return NULL;
    const convolution q = read_convolution(v + 4);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = convolve_by(&q, v, (int)most(1, v[14]));
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *kernel_each(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[10];
    if (!integers(args, given, 10, v))
        return NULL;
    const idx n = v[3], image = v[4] * v[5] * v[6], kernels_of = 9 * v[6] * v[7];
    v[3] = 1;
    const convolution q = read_convolution(v + 3);
    const idx output = q.oh * q.ow * q.o;
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)most(1, v[9])) schedule(static) reduction(&& : done)
    for (idx i = 0; i < n; i++)
        done = done && active->kernel(&q, (float *)v[0] + i * image, (float *)v[1] + i * output,
                                      (float *)v[2] + i * kernels_of);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *norm(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[12];
    const double epsilon = given == 13 ? PyFloat_AsDouble(args[12]) : 0.0;
    if (PyErr_Occurred() || !integers(args, given - (given == 13), 12, v))
        return NULL;
    const int threads = (int)most(1, least(v[11], v[6]));
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done)
    for (int part = 0; part < threads; part++) {
        const idx first = v[6] * part / threads, count = v[6] * (part + 1) / threads - first;
        const idx at = first * v[7] * v[8];
        done = done && active->norm((float *)v[0] + at, v[1] ? (float *)v[1] + at : NULL, (float *)v[2], (float *)v[3],
                                    (float *)v[4] + at, (float *)v[5] + 2 * first * v[9], count, v[7], v[8], v[9],
                                    epsilon, (int)v[10]);
    }
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *norm_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[17];
    if (!integers(args, given, 17, v))
        return NULL;
    const int each = (int)v[15], threads = each ? (int)most(1, least(v[16], v[10])) : 1;
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done)
    for (int part = 0; part < threads; part++) {
        const idx first = v[10] * part / threads, count = v[10] * (part + 1) / threads - first;
        const idx at = first * v[11] * v[12], rows = first * v[12];
        done = done && active->norm_back((float *)v[0] + at, (float *)v[1] + at, v[2] ? (float *)v[2] + at : NULL,
                                         (float *)v[3], (float *)v[4], (float *)v[5] + 2 * first * v[13],
                                         (float *)v[6] + at, v[7] ? (float *)v[7] + at : NULL, (float *)v[8] + rows,
                                         (float *)v[9] + rows, count, v[11], v[12], v[13], (int)v[14], each);
    }
    Py_END_ALLOW_THREADS
    return answer(done);
}

/* What examples' gradients are made of, of images that are padded already: n, h, w, c, o, kh, kw, sh, sw, dh, dw. */
static int read_positions(const idx *v, window *q)
{
    *q = (window){v[0], v[1], v[2], v[3], 0, 0, v[4], v[5], v[6], v[7], v[8], v[9], v[10]};
    int fits = q->n >= 0;
    for (int i = 1; i < 11; i++)
        fits = fits && v[i] > 0;
    const idx high = (q->kh - 1) * q->ph + 1, wide = (q->kw - 1) * q->pw + 1;
    if (!fits || high > q->h || wide > q->w)
        return PyErr_Format(PyExc_ValueError, "%zd images of %zd x %zd x %zd, %zd kernels of %zd x %zd: no convolution",
                            q->n, q->h, q->w, q->c, q->o, q->kh, q->kw) != NULL;
    q->oh = (q->h - high) / q->sh + 1, q->ow = (q->w - wide) / q->sw + 1;
    return 1;
}

static PyObject *gram(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[15];
    window q;
    if (!integers(args, given, 15, v) || !read_positions(v + 3, &q))
        return NULL;
    int done = 1;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)most(1, v[14])) schedule(static) reduction(&& : done)
    for (idx i = 0; i < q.n; i++)
        done = done && active->gram(&q, (float *)v[0] + i * q.h * q.w * q.c, (float *)v[1] + i * q.oh * q.ow * q.o,
                                    (double *)v[2] + 2 * i);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *clipped(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[16];
    window q;
    if (!integers(args, given, 16, v) || !read_positions(v + 4, &q))
        return NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->clipped(&q, (float *)v[0], (float *)v[1], (double *)v[2], (double *)v[3], (int)most(1, v[15]));
    Py_END_ALLOW_THREADS
    return answer(done);
}

/* Forwards, backwards, or backwards for whoever makes the weights' gradients. */
static PyObject *recurrent(PyObject *const *args, Py_ssize_t given, int way)
{
    static const int arrays[] = {FORWARD_ARRAYS, BACKWARD_ARRAYS, HEARD_ARRAYS};
    idx v[BACKWARD_ARRAYS + 7];
    float *at[BACKWARD_ARRAYS];
    if (!integers(args, given, arrays[way] + 7, v))
        return NULL;
    for (int i = 0; i < arrays[way]; i++)
        at[i] = (float *)v[i];
    const idx *s = v + arrays[way];
    const recurrence q = {s[0], s[1], s[2], s[3], s[4], (int)s[5], 0};
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = recur_by(way, &q, at, (int)most(1, s[6]));
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *recur(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, FORWARDS);
}

static PyObject *recur_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, BACKWARDS);
}

static PyObject *recur_heard(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, HEARD);
}

static PyObject *attentive(PyObject *const *args, Py_ssize_t given, int arrays, int back)
{
    idx v[30];
    float *at[ATTEND_BACK_ARRAYS];
    if (given != arrays + 23)
        return PyErr_Format(PyExc_TypeError, "expected %d integers and a scale, got %zd", arrays + 22, given);
    attention a = {.scale = (float)PyFloat_AsDouble(args[given - 1])};
    if (PyErr_Occurred() || !integers(args, given - 1, arrays + 22, v))
        return NULL;
    for (int i = 0; i < arrays; i++)
        at[i] = (float *)v[i];
    memcpy(&a, v + arrays, 22 * sizeof *v);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = (back ? active->attend_back : active->attend)(&a, at);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *attend(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return attentive(args, given, ATTEND_ARRAYS, 0);
}

static PyObject *attend_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return attentive(args, given, ATTEND_BACK_ARRAYS, 1);
}

static PyObject *gelu(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[5];
    if (!integers(args, given, 5, v))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    active->gelu((float *)v[0], (float *)v[1], (float *)v[2], v[3], (int)v[4]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Sizes of a linear layer, checked, and how many threads are to compute it. */
static int read_layer(const idx *v, layer *l)
{
    *l = (layer){v[0], v[1], v[2], v[3], v[4], v[5]};
    if (l->rows > 0 && l->inputs > 0 && l->outputs > 0 && l->inputs % 16 == 0 && l->outputs % 16 == 0 && v[6] > 0)
        return 1;
    return PyErr_Format(PyExc_ValueError, "%zd rows of %zd inputs and %zd outputs, by %zd threads: no layer in multiples of 16",
                        l->rows, l->inputs, l->outputs, v[6]) != NULL;
}

static PyObject *linear(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[11];
    layer l;
    if (!integers(args, given, 11, v) || !read_layer(v + 4, &l))
        return NULL;
    const float *x = (float *)v[0], *w = (float *)v[1], *bias = (float *)v[2];
    float *out = (float *)v[3], *turned;
    const idx threads = v[10];
    Py_BEGIN_ALLOW_THREADS
    turned = scratch(l.inputs * l.outputs);
    if (turned) {
        active->upright(w, l.w, l.outputs, l.inputs, turned, l.outputs);
        if (threads == 1)
            active->linear(&l, x, turned, bias, out, 0, l.rows);
        else {
#pragma omp parallel for num_threads((int)threads) schedule(static)
            for (idx part = 0; part < threads; part++)
                active->linear(&l, x, turned, bias, out, l.rows * part / threads, l.rows * (part + 1) / threads);
        }
    }
    free(turned);
    Py_END_ALLOW_THREADS
    return answer(turned != NULL);
}

static PyObject *linear_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[13];
    layer l;
    if (!integers(args, given, 13, v) || !read_layer(v + 6, &l))
        return NULL;
    const float *g = (float *)v[0], *x = (float *)v[1], *w = (float *)v[2];
    float *dx = (float *)v[3], *dw = (float *)v[4], *db = (float *)v[5];
    const idx threads = v[12], blocks = l.outputs / 16;
    Py_BEGIN_ALLOW_THREADS
    if (threads == 1) {
        if (dx)
            active->linear_back(&l, g, w, dx, 0, l.rows);
        active->linear_weights(&l, g, x, dw, db, 0, l.outputs);
    } else {
#pragma omp parallel for num_threads((int)threads) schedule(static)
        for (idx part = 0; part < threads; part++) {
            if (dx)
                active->linear_back(&l, g, w, dx, l.rows * part / threads, l.rows * (part + 1) / threads);
            active->linear_weights(&l, g, x, dw, db, blocks * part / threads * 16, blocks * (part + 1) / threads * 16);
        }
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* A perceptron's layers in their order: inputs, outputs, the function behind it, and where weights, biases (-1 for none)
 * and outputs are, in floats behind the beginning of the model and of the room. */
typedef struct {
    idx inputs, outputs, function, weight, bias, out;
} dense_layer;

typedef struct {
    const dense_layer *layers;
    idx count; /* of layers */
    const float *features;
    const int64_t *labels;
    float *model, *kept, *room; /* nothing is kept without momentum */
    double *total;
    idx grads[2], n, threads;           /* where gradients of outputs are in the room, by turns */
    move move;
} perceptron;

/* One step of one client; `x` and `from` are room for n pointers each per layer and thread. */
static void perceptron_step(const perceptron *p, const int64_t *rows, const float **x, const float **from)
{
    for (idx l = 0; l < p->count; l++) {
        const dense_layer *own = p->layers + l;
        for (idx i = 0; i < p->n; i++)
            x[l * p->n + i] = l ? p->room + own[-1].out + i * own->inputs : p->features + rows[i] * own->inputs;
        const dense d = {p->n, own->inputs, own->outputs, (int)own->function};
        const float *bias = own->bias < 0 ? NULL : p->model + own->bias;
        const int threads = dense_threads(&d, p->threads);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int part = 0; part < threads; part++)
            active->dense(&d, x + l * p->n, p->model + own->weight, bias, p->room + own->out,
                          own->outputs * part / threads, own->outputs * (part + 1) / threads);
    }
    const dense_layer *last = p->layers + p->count - 1;
    float *grad = p->room + p->grads[0], *other = p->room + p->grads[1];
    *p->total += entropy(p->room + last->out, p->labels, rows, grad, p->n, last->outputs);
    for (idx l = p->count - 1; l >= 0; l--) {
        const dense_layer *own = p->layers + l;
        const dense d = {p->n, own->inputs, own->outputs, l ? (int)own[-1].function : AS_IT_IS};
        const int threads = dense_threads(&d, p->threads);
        float *w = p->model + own->weight, *bias = own->bias < 0 ? NULL : p->model + own->bias;
        float *kept = p->kept ? p->kept + own->weight : NULL;
        float *kept_bias = p->kept && bias ? p->kept + own->bias : NULL;
        const idx vectors = l ? ceil_div(own->inputs, 16) : 0; /* nobody asks for the features' gradient */
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int part = 0; part < threads; part++)
            if (vectors)
                active->dense_back(&d, grad, p->room + own[-1].out, w, other, vectors * part / threads * 16,
                                   least(own->inputs, vectors * (part + 1) / threads * 16));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int part = 0; part < threads; part++)
            active->dense_move(&d, grad, x + l * p->n, &p->move, w, bias, kept, kept_bias, from + part * p->n,
                               own->outputs * part / threads, own->outputs * (part + 1) / threads);
        float *spare = grad;
        grad = other, other = spare;
    }
}

static PyObject *descend(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[14];
    double rates[3];
    if (!integers(args, given - 3, 14, v))
        return NULL;
    for (int i = 0; i < 3; i++)
        if ((rates[i] = PyFloat_AsDouble(args[14 + i])) == -1.0 && PyErr_Occurred())
            return NULL;
    const perceptron p = {(const dense_layer *)v[0], v[1], (const float *)v[2], (const int64_t *)v[3], (float *)v[5],
                          (float *)v[6], (float *)v[7], (double *)v[8], {v[9], v[10]}, v[11], most(1, v[13]),
                          {(float)rates[0], (float)rates[1], (float)rates[2]}};
    if (p.count < 1 || p.n < 1)
        return PyErr_Format(PyExc_ValueError, "%zd layers and %zd examples are no step", p.count, p.n);
    const float **pointers = malloc((size_t)((p.count + p.threads) * p.n) * sizeof *pointers);
    if (!pointers)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    for (idx step = 0; step < v[12]; step++)
        perceptron_step(&p, (const int64_t *)v[4] + step * p.n, pointers, pointers + p.count * p.n);
    Py_END_ALLOW_THREADS
    free(pointers);
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
/* OpenMP's, since version 5; others have no such function, and their threads wait as they like. */
extern int omp_pause_resource_all(int kind) __attribute__((weak));

static PyObject *rest(PyObject *self, PyObject *nothing)
{
    (void)self, (void)nothing;
    int done = -1;
    if (omp_pause_resource_all != NULL) {
        Py_BEGIN_ALLOW_THREADS
        done = omp_pause_resource_all(1); /* softly: what is wanted again is made again */
        Py_END_ALLOW_THREADS
    }
    return PyBool_FromLong(done == 0);
}

static PyMethodDef methods[] = {
    {"perform", FAST(perform), METH_FASTCALL,
     "perform(list of calls, its length, how many times, threads, addresses to which the list refers)"},
    {"convolve", FAST(convolve), METH_FASTCALL,
     "convolve(x, weight, bias, out, n, h, w, c, o, pad, floats between inputs of a kernel, between outputs, turned,"
     " add, threads)"},
    {"kernel_each", FAST(kernel_each), METH_FASTCALL,
     "kernel_each(x, grad, grad_weights, n, h, w, c, o, pad, threads): of each image"},
    {"gram", FAST(gram), METH_FASTCALL, "gram(x, grad, found, n, h, w, c, o, kh, kw, sh, sw, dh, dw, threads)"},
    {"clipped", FAST(clipped), METH_FASTCALL,
     "clipped(x, grad, factors, sums, n, h, w, c, o, kh, kw, sh, sw, dh, dw, threads)"},
    {"norm", FAST(norm), METH_FASTCALL, "norm(x, added, weight, bias, out, moments, n, pixels, c, groups, relu, threads, eps)"},
    {"norm_back", FAST(norm_back), METH_FASTCALL,
     "norm_back(grad, x, out, weight, bias, moments, grad_x, grad_added, grad_weight, grad_bias, n, pixels, c, groups, "
     "relu, each, threads)"},
    {"recur", FAST(recur), METH_FASTCALL,
     "recur(x, weight_ih, bias_ih, weight_hh, bias_hh, hidden, cell, out, kept, last_cell, clients, batch, steps, inputs, "
     "size, gru, threads)"},
    {"recur_back", FAST(recur_back), METH_FASTCALL,
     "recur_back(grad_out, grad_last, x, weight_ih, weight_hh, hidden, kept, grad_x, grad_weight_ih, grad_bias_ih, "
     "grad_weight_hh, grad_bias_hh, grad_hidden, grad_cell, clients, batch, steps, inputs, size, gru, threads)"},
    {"recur_heard", FAST(recur_heard), METH_FASTCALL,
     "recur_heard(grad_out, grad_last, weight_ih, weight_hh, kept, grad_x, grad_gates, grad_hidden, grad_cell, clients, "
     "batch, steps, inputs, size, gru, threads): of one client"},
    {"attend", FAST(attend), METH_FASTCALL,
     "attend(query, key, value, mask, out, weights, batch, heads, queries, keys, width, causal, 3 strides of query, key, "
     "value and out each, 4 of mask, scale)"},
    {"attend_back", FAST(attend_back), METH_FASTCALL,
     "attend_back(grad, query, key, value, weights, grad_query, grad_key, grad_value, and as attend; out's are grad's)"},
    {"gelu", FAST(gelu), METH_FASTCALL, "gelu(x, out, slope, count, by tanh)"},
    {"linear", FAST(linear), METH_FASTCALL,
     "linear(x, weight, bias, out, rows, inputs, outputs, floats between rows of x, of weight, 0, threads)"},
    {"linear_back", FAST(linear_back), METH_FASTCALL,
     "linear_back(grad, x, weight, grad_x, grad_weight, grad_bias, rows, inputs, outputs, floats between rows of x, of "
     "weight, of grad, threads)"},
    {"descend", FAST(descend), METH_FASTCALL,
     "descend(layers, how many, features, labels, rows, model, momenta or 0, room, total, two places of gradients in the "
     "room, examples of a batch, steps, threads, rate, momentum, decay): steps of a perceptron"},
    {"rest", rest, METH_NOARGS, "rest(): end the threads that wait for this one's next parallel loop"},
    {"levels", level_names, METH_NOARGS, "levels(): instruction sets this processor has, narrowest first"},
    {"use_level", use_level, METH_O, "use_level(index into levels())"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)detect}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&definition); }

#else /* LEVEL: the loops of one instruction set */

#include "product.h"
#include "images.h"
#include "head.h"
#include "recurrence.h"
#include "windows.h"
#include "attention.h"
#include "clipped.h"
#include "linear.h"
#include "dense.h"
#include "text.h"

static const kernels NAME(kernels) = {STRING(LEVEL), NAME(convolve), NAME(kernel), NAME(norm), NAME(norm_back),
                                      NAME(total), NAME(add), NAME(mean), NAME(mean_back), NAME(head), NAME(head_back),
                                      NAME(step), NAME(recur), NAME(recur_back), NAME(recur_heard), NAME(slide),
                                      NAME(slide_back), NAME(slide_kernel), NAME(apart), NAME(apart_back),
                                      NAME(apart_kernel), NAME(attend), NAME(attend_back), NAME(gelu), NAME(gram),
                                      NAME(clipped), NAME(upright), NAME(linear), NAME(linear_back),
                                      NAME(linear_weights), NAME(dense), NAME(dense_back), NAME(dense_move),
                                      NAME(multiplied), NAME(sum_rows), NAME(add_row), NAME(times), NAME(rectify),
                                      NAME(rectify_back), NAME(layer_norm), NAME(layer_norm_back), NAME(look_up_back)};

#undef vec
#undef ivec
#undef UNLESS
#undef LOAD
#undef STORE
#undef INLINE
#undef MINIMUM
#undef MAXIMUM
#undef PLACED
#undef DENSE_ROWS
#undef MASKED_LOAD
#undef MASKED_STORE
#undef DOTS
#undef BACK
#undef MOVED
#undef FOUR
#undef ROW_OF_FOUR
#undef TWO
#undef ROW_OF_TWO
#undef BY_DOTS
#undef BY_TILES
#undef TILES_OF
#undef DOTS_TILES
#undef RMAX
#undef TILE
#undef TILES
#undef ROW
#undef LEVEL
#undef TARGET
#undef V
#undef UMAX

#endif
