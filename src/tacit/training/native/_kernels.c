/* Loops over the numbers of one model: convolutions and group norms of images, recurrent layers, attention.
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
#include "recurrence.h"
#include "windows.h"
#include "attention.h"

typedef struct {
    const char *name;
    int (*convolve)(const convolution *, const float *, const float *, idx, idx, int, const float *, float *, int);
    int (*kernel)(const convolution *, const float *, const float *, float *);
    int (*norm)(const float *, const float *, const float *, const float *, float *, float *, idx, idx, idx, idx,
                double, int);
    int (*norm_back)(const float *, const float *, const float *, const float *, const float *, const float *, float *,
                     float *, float *, float *, idx, idx, idx, idx, int);
    int (*recur)(const recurrence *, float *const *);
    int (*recur_back)(const recurrence *, float *const *);
    int (*recur_heard)(const recurrence *, float *const *);
    int (*slide)(const window *, const float *, const float *, const float *, float *);
    int (*slide_back)(const window *, const float *, const float *, float *, int);
    int (*slide_kernel)(const window *, const float *, const float *, float *);
    int (*attend)(const attention *, float *const *);
    int (*attend_back)(const attention *, float *const *);
    void (*gelu)(const float *, float *, float *, idx, int);
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
#define UNROLL _Pragma("GCC unroll 8")
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
    convolution q = {v[0], v[1], v[2], v[3], v[1] + 2 * v[5] - 2, v[2] + 2 * v[5] - 2, v[4], v[5], 0, 0, 0};
    q.high = ceil_div(q.oh, 4), q.wide = ceil_div(q.ow, 4);
    q.tiles = q.n * q.high * q.wide;
    return q;
}

static PyObject *answer(int done)
{
    if (!done)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *convolve(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[14];
    if (!integers(args, given, 14, v))
        return NULL;
    const convolution q = read_convolution(v + 4);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->convolve(&q, (float *)v[0], (float *)v[1], v[10], v[11], (int)v[12], (float *)v[2], (float *)v[3],
                            (int)v[13]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *kernel(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[9];
    if (!integers(args, given, 9, v))
        return NULL;
    const convolution q = read_convolution(v + 3);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->kernel(&q, (float *)v[0], (float *)v[1], (float *)v[2]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

/* Sizes of a convolution by windows, checked: what is no convolution is refused. */
static int read_window(const idx *v, window *q)
{
    *q = (window){v[0], v[1], v[2], v[3], 0, 0, v[4], v[5], v[6], v[7], v[8], v[9], v[10]};
    int fits = q->n >= 0 && q->o % 16 == 0 && q->ph >= 0 && q->pw >= 0;
    for (int i = 1; i < 9; i++)
        fits = fits && v[i] > 0;
    fits = fits && q->kh <= q->h + 2 * q->ph && q->kw <= q->w + 2 * q->pw;
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "%zd images of %zd x %zd x %zd, %zd kernels of %zd x %zd: no convolution",
                            q->n, q->h, q->w, q->c, q->o, q->kh, q->kw) != NULL;
    q->oh = (q->h + 2 * q->ph - q->kh) / q->sh + 1, q->ow = (q->w + 2 * q->pw - q->kw) / q->sw + 1;
    return 1;
}

static PyObject *slide(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[15];
    window q;
    if (!integers(args, given, 15, v) || !read_window(v + 4, &q))
        return NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->slide(&q, (float *)v[0], (float *)v[1], (float *)v[2], (float *)v[3]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *slide_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[15];
    window q;
    if (!integers(args, given, 15, v) || !read_window(v + 3, &q))
        return NULL;
    if (q.c % 16)
        return PyErr_Format(PyExc_ValueError, "the gradient of %zd channels, which are no multiple of 16", q.c);
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->slide_back(&q, (float *)v[0], (float *)v[1], (float *)v[2], (int)v[14]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *slide_kernel(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[14];
    window q;
    if (!integers(args, given, 14, v) || !read_window(v + 3, &q))
        return NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->slide_kernel(&q, (float *)v[0], (float *)v[1], (float *)v[2]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *norm(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[11];
    const double epsilon = given == 12 ? PyFloat_AsDouble(args[11]) : 0.0;
    if (PyErr_Occurred() || !integers(args, given - (given == 12), 11, v))
        return NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->norm((float *)v[0], (float *)v[1], (float *)v[2], (float *)v[3], (float *)v[4], (float *)v[5], v[6],
                        v[7], v[8], v[9], epsilon, (int)v[10]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *norm_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    idx v[15];
    if (!integers(args, given, 15, v))
        return NULL;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = active->norm_back((float *)v[0], (float *)v[1], (float *)v[2], (float *)v[3], (float *)v[4], (float *)v[5],
                             (float *)v[6], (float *)v[7], (float *)v[8], (float *)v[9], v[10], v[11], v[12], v[13],
                             (int)v[14]);
    Py_END_ALLOW_THREADS
    return answer(done);
}

typedef int (*recurrent_loop)(const recurrence *, float *const *);

#define FEWEST 8 /* examples of a thread, which turns all weights for itself */

/* Gives every thread some examples of one client. `each` says how many floats of an array are one example's; of what
 * examples share it is none. */
static int in_parts(recurrent_loop loop, const recurrence *q, float *const *at, const idx *each, int arrays, int threads)
{
    int done = 1;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(&& : done)
    for (int part = 0; part < threads; part++) {
        const idx first = q->batch * part / threads;
        recurrence own = *q;
        own.batch = q->batch * (part + 1) / threads - first;
        float *from[26];
        for (int i = 0; i < arrays; i++)
            from[i] = at[i] ? at[i] + first * each[i] : NULL;
        done = done && (own.batch == 0 || loop(&own, from));
    }
    return done;
}

static PyObject *recurrent(PyObject *const *args, Py_ssize_t given, int arrays, int way)
{
    idx v[32];
    float *at[26];
    if (!integers(args, given, arrays + 7, v))
        return NULL;
    for (int i = 0; i < arrays; i++)
        at[i] = (float *)v[i];
    const idx *s = v + arrays;
    const recurrence q = {s[0], s[1], s[2], s[3], s[4], (int)s[5]};
    const idx t = q.steps, in = q.inputs, h = q.size;
    const idx kept = (q.gru ? 5 : 6) * t * h;
    const idx forward[FORWARD_ARRAYS] = {t * in, 0, 0, 0, 0, h, h, t * h, kept, h};
    const idx heard[HEARD_ARRAYS] = {t * h, h, 0, 0, kept, t * in, 4 * t * h, h, h};
    const recurrent_loop loop = way == 0 ? active->recur : way == 1 ? active->recur_back : active->recur_heard;
    const int threads = q.clients == 1 && way != 1 ? (int)most(1, least(s[6], q.batch / FEWEST)) : 1;
    int done;
    Py_BEGIN_ALLOW_THREADS
    done = threads == 1 ? loop(&q, at) : in_parts(loop, &q, at, way ? heard : forward, arrays, threads);
    Py_END_ALLOW_THREADS
    return answer(done);
}

static PyObject *recur(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, FORWARD_ARRAYS, 0);
}

static PyObject *recur_back(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, BACKWARD_ARRAYS, 1);
}

static PyObject *recur_heard(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    (void)self;
    return recurrent(args, given, HEARD_ARRAYS, 2);
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
    {"convolve", FAST(convolve), METH_FASTCALL,
     "convolve(x, weight, bias, out, n, h, w, c, o, pad, floats between inputs of a kernel, between outputs, turned,"
     " add)"},
    {"kernel", FAST(kernel), METH_FASTCALL, "kernel(x, grad, grad_weight, n, h, w, c, o, pad)"},
    {"slide", FAST(slide), METH_FASTCALL, "slide(x, weight, bias, out, n, h, w, c, o, kh, kw, sh, sw, ph, pw)"},
    {"slide_back", FAST(slide_back), METH_FASTCALL,
     "slide_back(grad, weight, grad_x, n, h, w, c, o, kh, kw, sh, sw, ph, pw, add)"},
    {"slide_kernel", FAST(slide_kernel), METH_FASTCALL,
     "slide_kernel(x, grad, grad_weight, n, h, w, c, o, kh, kw, sh, sw, ph, pw)"},
    {"norm", FAST(norm), METH_FASTCALL, "norm(x, added, weight, bias, out, moments, n, pixels, c, groups, relu, eps)"},
    {"norm_back", FAST(norm_back), METH_FASTCALL,
     "norm_back(grad, x, out, weight, bias, moments, grad_x, grad_added, grad_weight, grad_bias, n, pixels, c, groups, "
     "relu)"},
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
#include "recurrence.h"
#include "windows.h"
#include "attention.h"

static const kernels NAME(kernels) = {STRING(LEVEL), NAME(convolve), NAME(kernel), NAME(norm), NAME(norm_back),
                                      NAME(recur), NAME(recur_back), NAME(recur_heard), NAME(slide),
                                      NAME(slide_back), NAME(slide_kernel), NAME(attend),
                                      NAME(attend_back), NAME(gelu)};

#undef vec
#undef ivec
#undef UNLESS
#undef LOAD
#undef STORE
#undef INLINE
#undef MINIMUM
#undef MAXIMUM
#undef PLACED
#undef RMAX
#undef TILE
#undef TILES
#undef ROW
#undef LEVEL
#undef TARGET
#undef V
#undef UMAX

#endif
