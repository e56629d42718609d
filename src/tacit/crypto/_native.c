/* tacit.crypto._native: modular arithmetic on eight numbers at once, for CPUs with AVX-512 IFMA.
 *
 * Everything here takes and fills buffers of big-endian rows and runs without the interpreter's lock; native.py cuts
 * the rows among threads. This file is the way in and out of Python: it checks every size, because the parts below
 * trust theirs.
 *
 *   core/lanes.h       eight lanes of 52-bit limbs
 *   core/montgomery.h  products and squares modulo m
 *   core/pairs.h       the same modulo m^2, on halves
 *   core/bytes.h       rows to limbs and back
 *   core/ring.h        one ring of either kind
 *   core/power.h       every base to one exponent
 *   core/table.h       one base to every exponent
 *   core/vectors.h     products, sums, inverses and quotients of vectors */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifdef __x86_64__

#include "core/power.h"
#include "core/table.h"
#include "core/vectors.h"

#define MOST_LIMBS 250
#define MOST_BYTES (1 << 20) /* of a row; without a bound an empty buffer could have rows of any width */

/* The first arguments of most functions: constants, whether they are of a square, the bytes of a row. */
typedef struct {
    Py_buffer constants;
    int pair;
    Py_ssize_t row_width;
    idx width, k, size;
} ring_arguments;

static int missing(void)
{
    __builtin_cpu_init();
    return !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("avx512vbmi"));
}

static int refuse(const char *what)
{
    PyErr_Format(PyExc_ValueError, "tacit.crypto._native: %s", what);
    return 0;
}

static int read_ring(ring_arguments *r)
{
    const idx rows = r->pair ? 6 : 3;
    if (missing())
        return refuse("this CPU has no AVX-512 IFMA and VBMI");
    if (r->constants.len < rows || r->constants.len % rows)
        return refuse("constants are not 3 rows, or 6 of a square");
    r->width = r->constants.len / rows;
    const uint8_t *m = r->constants.buf;
    const idx bits = bits_of(m, r->width);
    r->k = limbs_of(bits);
    r->size = r->pair ? 2 * r->k : r->k;
    if (bits < 2 || !(m[r->width - 1] & 1) || r->k > MOST_LIMBS)
        return refuse("the modulus is even, below 3 or too long");
    if (r->row_width < 1 || r->row_width > (r->pair ? 2 * r->width : r->width))
        return refuse("rows are wider than the modulus");
    return 1;
}

/* Whether a buffer holds whole rows, and how many. */
static int count_rows(const Py_buffer *b, Py_ssize_t width, idx *count)
{
    if (width < 1 || width > MOST_BYTES || b->len % width)
        return refuse("a buffer is not a whole number of rows");
    *count = b->len / width;
    return 1;
}

static int same(idx a, idx b) { return a == b ? 1 : refuse("buffers hold different numbers of rows"); }

static int is_aligned(const Py_buffer *b)
{
    return (uintptr_t)b->buf % sizeof(vec) == 0 ? 1 : refuse("a buffer of limbs does not start at a multiple of 64");
}

static PyObject *answer(int ok, idx outside) { return ok ? PyLong_FromSsize_t(outside) : NULL; }

static int allocate(arena *a, idx vectors)
{
    if (claim(a, vectors))
        return 1;
    PyErr_NoMemory();
    return 0;
}

/* Whether the exponent has so many digits; places beyond them would cost a squaring each and change nothing. */
static int check_places(const Py_buffer *exponent, Py_ssize_t places, int window)
{
    return places >= 0 && exponent->len <= MOST_BYTES && places <= (8 * exponent->len + window - 1) / window
               ? 1 : refuse("places are negative, or more than the exponent has");
}

/* power(constants, pair, row_width, bases, exponent, places, window, secret, out) -> bases that are too large */
static PyObject *native_power(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer bases, exponent, out;
    Py_ssize_t places;
    int window, secret;
    if (!PyArg_ParseTuple(args, "y*iny*y*niiw*", &r.constants, &r.pair, &r.row_width, &bases, &exponent, &places,
                          &window, &secret, &out))
        return NULL;
    idx count, count_out, outside = 0;
    arena a = {0};
    int ok = read_ring(&r) && count_rows(&bases, r.row_width, &count) && count_rows(&out, r.row_width, &count_out) &&
             same(count, count_out) && (window == 1 || window == 4 || window == 5 ? 1 : refuse("windows are of 1, 4 or 5 bits")) &&
             check_places(&exponent, places, window) &&
             allocate(&a, ring_vectors(r.k) + power_vectors(r.size, window));
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, r.pair, r.row_width);
        outside = power_rows(&x, &a, out.buf, bases.buf, count, exponent.buf, exponent.len, places, window, secret);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&bases);
    PyBuffer_Release(&exponent);
    PyBuffer_Release(&out);
    return answer(ok, outside);
}

static int check_table(const ring_arguments *r, const Py_buffer *table, idx *places)
{
    const idx place = place_bytes(r->size);
    if (!table->len || table->len % place)
        return refuse("the table has another size");
    *places = table->len / place;
    return is_aligned(table);
}

/* build_table(constants, pair, row_width, base, table) -> whether the base is too large */
static PyObject *native_build_table(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer base, table;
    if (!PyArg_ParseTuple(args, "y*iny*w*", &r.constants, &r.pair, &r.row_width, &base, &table))
        return NULL;
    idx count, places, outside = 0;
    arena a = {0};
    int ok = read_ring(&r) && count_rows(&base, r.row_width, &count) && same(count, 1) &&
             check_table(&r, &table, &places) && allocate(&a, ring_vectors(r.k) + build_vectors(r.size));
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, r.pair, r.row_width);
        outside = build_table(&x, &a, table.buf, base.buf, places);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&base);
    PyBuffer_Release(&table);
    return answer(ok, outside);
}

/* table_powers(constants, pair, row_width, table, exponents, exponent_width, out) -> 0 */
static PyObject *native_table_powers(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer table, exponents, out;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "y*iny*y*nw*", &r.constants, &r.pair, &r.row_width, &table, &exponents, &width, &out))
        return NULL;
    idx count, count_out, places;
    arena a = {0};
    int ok = read_ring(&r) && check_table(&r, &table, &places) && count_rows(&exponents, width, &count) &&
             count_rows(&out, r.row_width, &count_out) && same(count, count_out) &&
             allocate(&a, ring_vectors(r.k) + table_power_vectors(r.size, places));
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, r.pair, r.row_width);
        table_powers(&x, &a, out.buf, table.buf, places, exponents.buf, width, count);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&table);
    PyBuffer_Release(&exponents);
    PyBuffer_Release(&out);
    return answer(ok, 0);
}

/* The buffers of a tuple of objects; each holds `count` rows of its own width. */
typedef struct {
    Py_ssize_t number;
    Py_buffer *buffers;
} buffer_list;

static void release_list(buffer_list *l)
{
    for (Py_ssize_t i = 0; i < l->number; i++)
        PyBuffer_Release(l->buffers + i);
    PyMem_Free(l->buffers);
}

static int read_list(PyObject *tuple, buffer_list *l)
{
    const Py_ssize_t number = PyTuple_Size(tuple);
    if (number < 0)
        return 0;
    l->buffers = PyMem_Calloc((size_t)number + 1, sizeof *l->buffers);
    if (!l->buffers) {
        PyErr_NoMemory();
        return 0;
    }
    for (; l->number < number; l->number++)
        if (PyObject_GetBuffer(PyTuple_GetItem(tuple, l->number), l->buffers + l->number, PyBUF_SIMPLE) < 0)
            return 0;
    return 1;
}

/* product(constants, pair=0, row_width, vectors, factor, out) -> rows that are too large */
static PyObject *native_product(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer factor, out;
    PyObject *tuple;
    if (!PyArg_ParseTuple(args, "y*inOy*w*", &r.constants, &r.pair, &r.row_width, &tuple, &factor, &out))
        return NULL;
    idx count, outside = 0;
    arena a = {0};
    buffer_list list = {0};
    const uint8_t **vectors = NULL;
    int ok = read_ring(&r) && same(r.pair, 0) && same(factor.len, r.row_width) &&
             count_rows(&out, r.row_width, &count) && read_list(tuple, &list) &&
             (list.number > 0 ? 1 : refuse("no vector was given")) && allocate(&a, ring_vectors(r.k) + 3 * r.k);
    for (Py_ssize_t i = 0; ok && i < list.number; i++)
        ok = same(list.buffers[i].len, out.len);
    if (ok && !(vectors = PyMem_Calloc((size_t)list.number, sizeof *vectors))) {
        PyErr_NoMemory();
        ok = 0;
    }
    if (ok) {
        for (Py_ssize_t i = 0; i < list.number; i++)
            vectors[i] = list.buffers[i].buf;
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, 0, r.row_width);
        outside = product_rows(&x, &a, out.buf, vectors, list.number, factor.buf, count);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(vectors);
    release_list(&list);
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&factor);
    PyBuffer_Release(&out);
    return answer(ok, outside);
}

static int check_kept(const ring_arguments *r, const Py_buffer *kept, idx count)
{
    if (kept->len != (count + LANES - 1) / LANES * r->k * (idx)sizeof(vec))
        return refuse("the running products have another size");
    return is_aligned(kept);
}

/* fold(constants, pair=0, row_width, rows, kept, out) -> rows that are too large; kept may be empty */
static PyObject *native_fold(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer rows, kept, out;
    if (!PyArg_ParseTuple(args, "y*iny*w*w*", &r.constants, &r.pair, &r.row_width, &rows, &kept, &out))
        return NULL;
    idx count = 0, outside = 0;
    arena a = {0};
    int ok = read_ring(&r) && same(r.pair, 0) && count_rows(&rows, r.row_width, &count) &&
             (count > 0 ? 1 : refuse("there are no rows")) && same(out.len, LANES * r.row_width) &&
             (!kept.len || check_kept(&r, &kept, count)) && allocate(&a, ring_vectors(r.k) + 2 * r.k);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, 0, r.row_width);
        outside = fold_rows(&x, &a, out.buf, kept.len ? kept.buf : NULL, rows.buf, count);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&kept);
    PyBuffer_Release(&out);
    return answer(ok, outside);
}

/* unfold(constants, pair=0, row_width, rows, kept, inverses, out) -> 0 */
static PyObject *native_unfold(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer rows, kept, inverses, out;
    if (!PyArg_ParseTuple(args, "y*iny*y*y*w*", &r.constants, &r.pair, &r.row_width, &rows, &kept, &inverses, &out))
        return NULL;
    idx count = 0;
    arena a = {0};
    int ok = read_ring(&r) && same(r.pair, 0) && count_rows(&rows, r.row_width, &count) &&
             same(inverses.len, LANES * r.row_width) && same(out.len, rows.len) && check_kept(&r, &kept, count) &&
             allocate(&a, ring_vectors(r.k) + 2 * r.k);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, 0, r.row_width);
        unfold_rows(&x, &a, out.buf, kept.buf, rows.buf, inverses.buf, count);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&kept);
    PyBuffer_Release(&inverses);
    PyBuffer_Release(&out);
    return answer(ok, 0);
}

/* affine(constants, pair=0, row_width, terms, factors, times, out) -> rows of times that are too large; factors: the
 * constant times R^2, then for every piece of every term its factor times R^2, mod m; times may be empty */
static PyObject *native_affine(PyObject *self, PyObject *args)
{
    (void)self;
    ring_arguments r;
    Py_buffer factors, times, out;
    PyObject *tuple;
    if (!PyArg_ParseTuple(args, "y*inOy*y*w*", &r.constants, &r.pair, &r.row_width, &tuple, &factors, &times, &out))
        return NULL;
    idx count = 0, number = 0, given = 0, outside = 0;
    arena a = {0};
    buffer_list list = {0};
    piece *pieces = NULL;
    int ok = read_ring(&r) && same(r.pair, 0) && count_rows(&out, r.row_width, &count) &&
             count_rows(&factors, r.row_width, &given) && (!times.len || same(times.len, out.len)) &&
             read_list(tuple, &list) && (count > 0 ? 1 : refuse("there are no rows"));
    for (Py_ssize_t i = 0; ok && i < list.number; i++) {
        ok = list.buffers[i].len > 0 && list.buffers[i].len % count == 0 ? 1 : refuse("a term has other rows");
        number += ok ? pieces_of(list.buffers[i].len / count, r.k) : 0;
    }
    ok = ok && same(given, number + 1) && allocate(&a, ring_vectors(r.k) + (given + TERMS + 2) * r.k);
    if (ok && !(pieces = PyMem_Calloc((size_t)number + 1, sizeof *pieces))) {
        PyErr_NoMemory();
        ok = 0;
    }
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        const ring x = make_ring(&a, r.constants.buf, r.width, r.k, 0, r.row_width);
        const uint8_t *factor = factors.buf;
        vec *constant = take(&a, r.k);
        parse_constant(constant, factor, r.row_width, r.k);
        piece *next = pieces;
        for (Py_ssize_t i = 0; i < list.number; i++) {
            const idx width = list.buffers[i].len / count, limbs = (8 * width + LIMB - 1) / LIMB;
            for (idx first = 0; first < limbs; first += r.k) {
                factor += r.row_width;
                *next = (piece){list.buffers[i].buf, width, first, least(r.k, limbs - first), take(&a, r.k)};
                parse_constant(next++->constant, factor, r.row_width, r.k);
            }
        }
        outside = affine_rows(&x, &a, out.buf, pieces, number, constant, times.len ? times.buf : NULL, count);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(pieces);
    release_list(&list);
    discard(&a);
    PyBuffer_Release(&r.constants);
    PyBuffer_Release(&factors);
    PyBuffer_Release(&times);
    PyBuffer_Release(&out);
    return answer(ok, outside);
}

/* quotient(rows, width, inverse, out, out_width) -> 0; inverse: 1 / divisor mod 2^(52 limbs), limbs even */
static PyObject *native_quotient(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer rows, inverse, out;
    Py_ssize_t width, out_width;
    if (!PyArg_ParseTuple(args, "y*ny*w*n", &rows, &width, &inverse, &out, &out_width))
        return NULL;
    idx count, count_out, limbs = 0;
    arena a = {0};
    int ok = (missing() ? refuse("this CPU has no AVX-512 IFMA and VBMI") : 1) && count_rows(&rows, width, &count) &&
             count_rows(&out, out_width, &count_out) && same(count, count_out) &&
             (inverse.len > 0 ? 1 : refuse("the divisor's inverse is empty"));
    limbs = ok ? (8 * out_width + 2 * LIMB - 1) / (2 * LIMB) * 2 : 0;
    ok = ok && (limbs < 1024 ? 1 : refuse("the divisor is too long")) && allocate(&a, 3 * limbs);
    if (ok) {
        Py_BEGIN_ALLOW_THREADS
        quotient_rows(&a, out.buf, out_width, rows.buf, width, inverse.buf, inverse.len, limbs, count);
        Py_END_ALLOW_THREADS
    }
    discard(&a);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&inverse);
    PyBuffer_Release(&out);
    return answer(ok, 0);
}

/* limbs(bits) -> the limbs of a modulus of so many bits */
static PyObject *native_limbs(PyObject *self, PyObject *bits)
{
    (void)self;
    const Py_ssize_t x = PyLong_AsSsize_t(bits);
    if (x == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromSsize_t(limbs_of(most(x, 1)));
}

#else /* another processor: the module says so, and offers nothing else */

#define MOST_LIMBS 0
static int missing(void) { return 1; }

#endif

/* supported() -> whether this CPU can run the rest */
static PyObject *native_supported(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyBool_FromLong(!missing());
}

static PyMethodDef methods[] = {
    {"supported", native_supported, METH_NOARGS, "Whether this CPU has AVX-512 F, BW, DQ, VL, IFMA and VBMI."},
#ifdef __x86_64__
    {"limbs", native_limbs, METH_O, "The limbs of a modulus of so many bits."},
    {"power", native_power, METH_VARARGS, "Every base to one exponent."},
    {"build_table", native_build_table, METH_VARARGS, "Powers of one base."},
    {"table_powers", native_table_powers, METH_VARARGS, "One base to every exponent."},
    {"product", native_product, METH_VARARGS, "The product of many vectors."},
    {"fold", native_fold, METH_VARARGS, "The products of every eighth row."},
    {"unfold", native_unfold, METH_VARARGS, "Inverses from a fold."},
    {"affine", native_affine, METH_VARARGS, "Sums of multiples, times a vector."},
    {"quotient", native_quotient, METH_VARARGS, "Exact quotients."},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "Modular arithmetic on eight numbers at once (AVX-512 IFMA).", -1, methods,
    NULL,                  NULL,      NULL,                                                          NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *m = PyModule_Create(&module);
    if (m && PyModule_AddIntConstant(m, "MOST_LIMBS", MOST_LIMBS) < 0) {
        Py_DECREF(m);
        return NULL;
    }
    return m;
}
