/* Bits of the operating system's generator, and standard normal numbers made of them.
 *
 * Linux has its generator twice: as a call into the kernel, and since 6.11 as code that the kernel maps into every
 * process (the vDSO), which is what getrandom() of newer C libraries calls. Both are the same ChaCha20 with the same
 * reseeding; the second saves the way in and computes with vectors. Its state lies in pages that the kernel empties
 * when a process forks, and may take back at any time: the next call then begins anew. A state serves one thread at a
 * time; those nobody uses lie in a list that is touched with the interpreter's lock held only, so that a fork finds it
 * whole.
 *
 * Of two uniform numbers of 53 bits each u and v the transform of Box and Muller makes two normal ones,
 * sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2 pi v). Logarithm, cosine and sine are fdlibm's polynomials (below
 * one unit in the last place each), without its branches: a compiler turns the loop into vectors.
 *
 * A uniform number takes the upper 53 bits of a word of 64. The lower eleven of five words are 55 bits, of which one more
 * number takes 53: six numbers of five words. No bit is used twice, so that independent bits make independent numbers of
 * the same law as if each had a word of its own. Most of the time is the system's generator's. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define PAIRS 1024 /* made of bits at a time: 16 KB of bits and as much of numbers stay in the first cache */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) /* other C libraries choose no clone at load time */
#define EVERY_LEVEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_LEVEL
#endif

typedef ssize_t (*drawer)(void *, size_t, unsigned, void *, size_t);

typedef struct {
    uint32_t size, protection, flags, reserved[13];
} layout; /* struct vgetrandom_opaque_params of the kernel */

static drawer mapped; /* NULL where the kernel has none */
static layout wanted;

typedef struct spare {
    struct spare *next;
    void *state;
} spare;
static spare *spares;

/* Take a state nobody uses, or make one; NULL where there is none to be had. The interpreter's lock is held. */
static spare *taken(void)
{
    if (mapped == NULL)
        return NULL;
    if (spares != NULL) {
        spare *own = spares;
        spares = own->next;
        return own;
    }
    spare *own = malloc(sizeof *own);
    if (own == NULL)
        return NULL;
    own->state = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), (int)wanted.protection, (int)wanted.flags, -1, 0);
    if (own->state == MAP_FAILED) {
        free(own);
        return NULL;
    }
    return own;
}

static void given_back(spare *own)
{
    if (own == NULL)
        return;
    own->next = spares;
    spares = own;
}

/* Fill memory with random bytes; -1, and errno, where the system gives none. */
static int draw(spare *own, unsigned char *out, size_t count)
{
    while (count > 0) {
        ssize_t got = own != NULL ? mapped(out, count, 0, own->state, wanted.size) : -ENOSYS;
        if (got <= 0 && got != -EINTR) { /* the call into the kernel says why, where it can't either */
            own = NULL;
            got = getrandom(out, count, 0);
            if (got < 0 && errno != EINTR)
                return -1;
        }
        if (got > 0) {
            out += got;
            count -= (size_t)got;
        }
    }
    return 0;
}

#define WORDS (2 * PAIRS + 4) /* room for whole sixths */

/* Make every sixth word of what the five before it have left. */
EVERY_LEVEL static void sixths(uint64_t *words, ptrdiff_t each)
{
    for (ptrdiff_t i = 0; i < each; i++) {
        const uint64_t *own = words + i, low = 0x7ff;
        words[5 * each + i] = (own[0] & low) << 9 | (own[each] & low) << 20 | (own[2 * each] & low) << 31 |
                              (own[3 * each] & low) << 42 | (own[4 * each] & low) << 53;
    }
}

/* Fill words whose upper 53 bits are random; those below are used up. */
static int draw_words(spare *own, uint64_t *words, ptrdiff_t count)
{
    ptrdiff_t each = (count + 5) / 6;
    if (draw(own, (unsigned char *)words, (size_t)(5 * each) * sizeof *words))
        return -1;
    sixths(words, each);
    return 0;
}

static inline double logarithm(double x) /* of a number from 2^-54 to 1 */
{
    uint64_t bits;
    memcpy(&bits, &x, 8);
    /* x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2) */
    uint64_t shifted = bits - 0x3fe6a09e667f3bcdull;
    double k = (double)(int32_t)((int64_t)shifted >> 52), m;
    uint64_t reduced = (shifted & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull;
    memcpy(&m, &reduced, 8);
    double f = m - 1.0, s = f / (2.0 + f), z = s * s, w = z * z, half = 0.5 * f * f;
    double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double odd = z * (6.666666666666735130e-01 +
                      w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double tail = s * (half + even + odd) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half - tail) - f);
}

EVERY_LEVEL static void transform(const uint64_t *bits, double *cosines, double *sines, ptrdiff_t pairs)
{
    const double nearest = 0x1.8p52; /* added and taken away again it rounds to the nearest integer */
    for (ptrdiff_t i = 0; i < pairs; i++) {
        double u = ((double)(int64_t)(bits[i] >> 11) + 0.5) * 0x1p-53;
        double v = ((double)(int64_t)(bits[pairs + i] >> 11) + 0.5) * 0x1p-53;
        double radius = sqrt(-2.0 * logarithm(u));
        double turned = 4.0 * v + nearest, quarter = turned - nearest; /* 0 to 4 quarters of a turn */
        double y = (4.0 * v - quarter) * 1.57079632679489661923, z = y * y; /* from -pi/4 to pi/4 */
        double r = 8.33333333332248946124e-03 +
                   z * (-1.98412698298579493134e-04 +
                        z * (2.75573137070700676789e-06 +
                             z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
        double sine = y + z * y * (-1.66666666666666324348e-01 + z * r);
        double c = z * (4.16666666666666019037e-02 +
                        z * (-1.38888888888741095749e-03 +
                             z * (2.48015872894767294178e-05 +
                                  z * (-2.75573143513906633035e-07 +
                                       z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
        double half = 0.5 * z, w = 1.0 - half, cosine = w + (((1.0 - w) - half) + z * c);
        uint64_t q;
        memcpy(&q, &turned, 8);
        double one = q & 1 ? sine : cosine, other = q & 1 ? cosine : sine;
        cosines[i] = (q + 1) & 2 ? -radius * one : radius * one; /* below zero in the second and third quarter */
        sines[i] = q & 2 ? -radius * other : radius * other;
    }
}

/* Turn bits into normal numbers: a pair's two are as far apart as there are pairs. */
static void normals(const uint64_t *bits, double *out, ptrdiff_t count)
{
    ptrdiff_t pairs = (count + 1) / 2;
    double sines[PAIRS]; /* the sine of the last pair is left out where the count is odd */
    transform(bits, out, count == 2 * pairs ? out + pairs : sines, pairs);
    if (count < 2 * pairs)
        memcpy(out + pairs, sines, (size_t)(count - pairs) * sizeof *sines);
}

static int buffer_of(PyObject *given, Py_buffer *view, int flags, Py_ssize_t unit)
{
    if (PyObject_GetBuffer(given, view, flags | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (view->len % unit == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "expected a multiple of %zd bytes, got %zd", unit, view->len);
    PyBuffer_Release(view);
    return -1;
}

/* The same of numbers of one kind: d or f, as the struct module names them. */
static int numbers_of(PyObject *given, Py_buffer *view, const char *kind)
{
    if (buffer_of(given, view, PyBUF_WRITABLE | PyBUF_FORMAT, *kind == 'd' ? sizeof(double) : sizeof(float)) < 0)
        return -1;
    if (view->format != NULL && strcmp(view->format, kind) == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "expected numbers of kind %s, got %s", kind, view->format ? view->format : "B");
    PyBuffer_Release(view);
    return -1;
}

static PyObject *random_bytes(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer out;
    if (buffer_of(given, &out, PyBUF_WRITABLE, 1) < 0)
        return NULL;
    spare *own = taken();
    int failed;
    Py_BEGIN_ALLOW_THREADS
    failed = draw(own, out.buf, (size_t)out.len);
    Py_END_ALLOW_THREADS
    given_back(own);
    PyBuffer_Release(&out);
    return failed ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

static PyObject *normal(PyObject *Py_UNUSED(module), PyObject *given)
{
    Py_buffer out;
    if (numbers_of(given, &out, "d") < 0)
        return NULL;
    spare *own = taken();
    int failed = 0;
    Py_BEGIN_ALLOW_THREADS
    uint64_t bits[WORDS];
    double *place = out.buf;
    for (ptrdiff_t left = out.len / (ptrdiff_t)sizeof(double); left > 0 && !failed;) {
        ptrdiff_t count = left < 2 * PAIRS ? left : 2 * PAIRS;
        failed = draw_words(own, bits, (count + 1) / 2 * 2);
        if (!failed)
            normals(bits, place, count);
        place += count;
        left -= count;
    }
    Py_END_ALLOW_THREADS
    given_back(own);
    PyBuffer_Release(&out);
    return failed ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

/* Round numbers to multiples of a step and add noise that is rounded so, or write the noise alone. */
EVERY_LEVEL static void meet(double *numbers, const double *standard, ptrdiff_t count, double std, double step, int alone)
{
    for (ptrdiff_t i = 0; i < count; i++) {
        double noise = rint(standard[i] * std / step), before = alone ? 0.0 : rint(numbers[i] / step);
        numbers[i] = before * step + noise * step;
    }
}

EVERY_LEVEL static void divide(const double *numbers, ptrdiff_t count, double over, float *into)
{
    for (ptrdiff_t i = 0; i < count; i++)
        into[i] = (float)(numbers[i] / over);
}

#define SHARE (1 << 16) /* numbers that a thread takes at a time */
#define MOST_THREADS 256

/* Numbers that meet their noise: threads take shares of them until none is left, or one of them fails. */
typedef struct {
    double *numbers, std, step, over;
    float *into; /* or NULL */
    ptrdiff_t count, taken;
    int alone, failed; /* failed: an error of the system's, or 0 */
} meeting;

typedef struct {
    meeting *own;
    spare *state;
    pthread_t thread;
} hand;

static void *meet_shares(void *given)
{
    hand *mine = given;
    meeting *own = mine->own;
    uint64_t bits[WORDS];
    double standard[2 * PAIRS];
    for (;;) {
        ptrdiff_t at = __atomic_fetch_add(&own->taken, SHARE, __ATOMIC_RELAXED);
        ptrdiff_t end = at + SHARE < own->count ? at + SHARE : own->count;
        if (at >= own->count || __atomic_load_n(&own->failed, __ATOMIC_RELAXED))
            return NULL;
        while (at < end) {
            ptrdiff_t count = end - at < 2 * PAIRS ? end - at : 2 * PAIRS;
            if (draw_words(mine->state, bits, (count + 1) / 2 * 2)) {
                __atomic_store_n(&own->failed, errno ? errno : EIO, __ATOMIC_RELAXED);
                return NULL;
            }
            normals(bits, standard, count);
            meet(own->numbers + at, standard, count, own->std, own->step, own->alone);
            if (own->into != NULL)
                divide(own->numbers + at, count, own->over, own->into + at);
            at += count;
        }
    }
}

/* Meet all shares with so many threads, or fewer where the system has no more; this one is one of them. */
static void meet_all(hand *hands, int threads)
{
    int begun = 1;
    sigset_t all, before; /* signals are for the interpreter's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (begun < threads && pthread_create(&hands[begun].thread, NULL, meet_shares, &hands[begun]) == 0)
        begun++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    meet_shares(&hands[0]);
    while (--begun > 0)
        pthread_join(hands[begun].thread, NULL);
}

static PyObject *on_grid(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *divided;
    Py_buffer out, room = {.buf = NULL};
    meeting own = {.taken = 0};
    int threads;
    if (!PyArg_ParseTuple(args, "OddpdOi", &given, &own.std, &own.step, &own.alone, &own.over, &divided, &threads))
        return NULL;
    if (numbers_of(given, &out, "d") < 0)
        return NULL;
    if (divided != Py_None && numbers_of(divided, &room, "f") < 0) {
        PyBuffer_Release(&out);
        return NULL;
    }
    if (room.buf != NULL && 2 * room.len != out.len) {
        PyBuffer_Release(&out);
        PyBuffer_Release(&room);
        return PyErr_Format(PyExc_ValueError, "expected room for as many numbers, half of %zd bytes", out.len);
    }
    own.numbers = out.buf;
    own.into = room.buf;
    own.count = out.len / (ptrdiff_t)sizeof(double);
    ptrdiff_t shares = (own.count + SHARE - 1) / SHARE;
    threads = threads < shares ? threads : (int)shares;
    threads = threads < 1 ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS;
    hand hands[MOST_THREADS];
    for (int i = 0; i < threads; i++)
        hands[i] = (hand){.own = &own, .state = taken()};
    Py_BEGIN_ALLOW_THREADS
    meet_all(hands, threads);
    Py_END_ALLOW_THREADS
    for (int i = 0; i < threads; i++)
        given_back(hands[i].state);
    PyBuffer_Release(&out);
    if (room.buf != NULL)
        PyBuffer_Release(&room);
    errno = own.failed;
    return own.failed ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

static PyObject *of_bits(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *from, *to;
    Py_buffer bits, out;
    if (!PyArg_ParseTuple(args, "OO", &from, &to) || buffer_of(from, &bits, 0, 8) < 0)
        return NULL;
    if (buffer_of(to, &out, PyBUF_WRITABLE, 8) < 0) {
        PyBuffer_Release(&bits);
        return NULL;
    }
    ptrdiff_t count = out.len / 8, each = ((count + 1) / 2 * 2 + 5) / 6;
    int fits = count <= 2 * PAIRS && bits.len == 5 * each * 8;
    if (fits && count > 0) {
        uint64_t words[WORDS];
        memcpy(words, bits.buf, (size_t)bits.len);
        sixths(words, each);
        normals(words, out.buf, count);
    }
    PyBuffer_Release(&bits);
    PyBuffer_Release(&out);
    if (!fits)
        return PyErr_Format(PyExc_ValueError, "expected five words for six of at most %d numbers", 2 * PAIRS);
    return Py_NewRef(Py_None);
}

static PyObject *is_mapped(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(mapped != NULL);
}

static int find(PyObject *Py_UNUSED(module))
{
    unsigned char one;
    if (getrandom(&one, 1, GRND_NONBLOCK) < 0 && (errno == ENOSYS || errno == EPERM)) { /* Python knows other ways */
        PyErr_SetString(PyExc_ImportError, "the system has no getrandom(), or forbids it");
        return -1;
    }
    void *image = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    drawer found = NULL;
    if (image != NULL)
        *(void **)&found = dlsym(image, "__vdso_getrandom");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (found != NULL && found(NULL, 0, 0, &wanted, ~(size_t)0) == 0 && wanted.size > 0 && wanted.size <= page)
        mapped = found;
    return 0;
}

static PyMethodDef methods[] = {
    {"random", random_bytes, METH_O, "random(out): fill a buffer with bytes of the system's generator"},
    {"normal", normal, METH_O, "normal(out): fill a buffer of doubles with standard normal numbers"},
    {"on_grid", on_grid, METH_VARARGS,
     "on_grid(numbers, std, step, alone, over, into, threads): add noise of a standard deviation, both rounded to "
     "multiples of a step; into, if not None, takes what comes out, divided, as float32"},
    {"of_bits", of_bits, METH_VARARGS, "of_bits(bits, out): the normal numbers that bits make"},
    {"mapped", is_mapped, METH_NOARGS, "mapped(): whether the kernel's generator is mapped into the process"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)find}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_noise", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__noise(void) { return PyModuleDef_Init(&definition); }
