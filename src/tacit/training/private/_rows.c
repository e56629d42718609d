/* Squared norms and weighted sums of rows of float32 numbers, in double precision: every row is read once.
 *
 * PyTorch has no product of a float32 and a double; with it each number is first written as a double, and read again.
 * The threads are PyTorch's own: the file is compiled for OpenMP and linked with none, so that it finds the runtime
 * that PyTorch has loaded. A second one would have its threads wait, busily, on the same cores. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COLUMNS 1024 /* sums of as many columns, 8 KB of doubles, stay in the first cache */

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) /* other C libraries choose no clone at load time */
#define EVERY_LEVEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_LEVEL
#endif

#define LANES 32 /* sums that go on side by side, so that additions need not wait for each other */

EVERY_LEVEL static double square(const float *row, ptrdiff_t width)
{
    double sums[LANES] = {0.0};
    ptrdiff_t j = 0;
    for (; j + LANES <= width; j += LANES)
        for (ptrdiff_t k = 0; k < LANES; k++)
            sums[k] += (double)row[j + k] * (double)row[j + k];
    double total = 0.0;
    for (; j < width; j++)
        total += (double)row[j] * (double)row[j];
    for (ptrdiff_t k = 0; k < LANES; k++)
        total += sums[k];
    return total;
}

EVERY_LEVEL static void add_scaled(double *restrict sums, const float *restrict row, double factor, ptrdiff_t width)
{
    for (ptrdiff_t j = 0; j < width; j++)
        sums[j] += factor * (double)row[j];
}

#define TOGETHER 4 /* rows of a sum of outer products that are added to while an input is in a register */

/* sums[k][j] += factor right[i][k] left[i][j] over all examples i, for TOGETHER rows k or one; a factor of zero is left out */
EVERY_LEVEL static void add_outer(double *restrict sums, ptrdiff_t width, const float *restrict left, ptrdiff_t left_step,
                                  const float *restrict right, ptrdiff_t right_step, const double *restrict factors,
                                  ptrdiff_t examples, int together)
{
    for (ptrdiff_t i = 0; i < examples; i++, left += left_step, right += right_step) {
        if (factors[i] == 0.0)
            continue;
        const double first = factors[i] * (double)right[0];
        if (!together) {
            for (ptrdiff_t j = 0; j < width; j++)
                sums[j] += first * (double)left[j];
            continue;
        }
        const double second = factors[i] * (double)right[1], third = factors[i] * (double)right[2];
        const double fourth = factors[i] * (double)right[3];
        for (ptrdiff_t j = 0; j < width; j++) {
            const double own = (double)left[j];
            sums[j] += first * own;
            sums[width + j] += second * own;
            sums[2 * width + j] += third * own;
            sums[3 * width + j] += fourth * own;
        }
    }
}

static int numbers(PyObject *const *args, Py_ssize_t given, Py_ssize_t expected, Py_ssize_t *values)
{
    if (given != expected) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", expected, given);
        return -1;
    }
    for (Py_ssize_t i = 0; i < given; i++) {
        values[i] = PyNumber_AsSsize_t(args[i], PyExc_OverflowError);
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* rows, count, width, squares, threads */
static PyObject *squares(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_ssize_t v[5];
    if (numbers(args, given, 5, v) < 0)
        return NULL;
    const float *rows = (const float *)v[0];
    double *found = (double *)v[3];
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)v[4]) schedule(static)
    for (ptrdiff_t i = 0; i < v[1]; i++)
        found[i] = square(rows + i * v[2], v[2]);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* factors, rows, count, width, sums, threads: a row whose factor is zero is not read */
static PyObject *combine(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_ssize_t v[6];
    if (numbers(args, given, 6, v) < 0)
        return NULL;
    const double *factors = (const double *)v[0];
    const float *rows = (const float *)v[1];
    double *sums = (double *)v[4];
    ptrdiff_t count = v[2], width = v[3];
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)v[5]) schedule(static)
    for (ptrdiff_t start = 0; start < width; start += COLUMNS) {
        ptrdiff_t columns = width - start < COLUMNS ? width - start : COLUMNS;
        for (ptrdiff_t i = 0; i < count; i++)
            if (factors[i] != 0.0)
                add_scaled(sums + start, rows + i * width + start, factors[i], columns);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The gradients of one parameter: rows that were formed, outer products of an input and an output's gradient, or one row
 * of a table each. */
enum { FORMED, OUTER, TABLE };
#define FIELDS 9
typedef struct {
    Py_ssize_t left;  /* FORMED: rows; OUTER: inputs; TABLE: numbers of rows, int64 */
    Py_ssize_t right; /* gradients */
    Py_ssize_t left_step, right_step; /* numbers from one example to the next */
    Py_ssize_t unit;  /* whose norms they count in, and whose factors they have */
    Py_ssize_t kind;
    Py_ssize_t width;  /* FORMED: of a row; OUTER: of an input; TABLE: how many rows there are */
    Py_ssize_t height; /* OUTER, TABLE: of a gradient */
    Py_ssize_t to;     /* where the sum begins */
} block;

/* Reads `fixed` integers, and blocks behind them; refuses a row that the table has not. */
static block *blocks(PyObject *const *args, Py_ssize_t given, Py_ssize_t fixed, Py_ssize_t *values, Py_ssize_t *count)
{
    *count = (given - fixed) / FIELDS;
    if (given < fixed || (given - fixed) % FIELDS)
        return PyErr_Format(PyExc_TypeError, "expected %zd arguments and %d for each block, got %zd", fixed, FIELDS, given),
               NULL;
    if (numbers(args, fixed, fixed, values) < 0)
        return NULL;
    block *found = PyMem_Calloc((size_t)*count + 1, sizeof *found);
    if (!found)
        return PyErr_NoMemory(), NULL;
    for (Py_ssize_t k = 0; k < *count; k++) {
        block *own = found + k;
        if (numbers(args + fixed + k * FIELDS, FIELDS, FIELDS, (Py_ssize_t *)own) < 0)
            return PyMem_Free(found), NULL;
        const int64_t *rows = (const int64_t *)own->left;
        for (Py_ssize_t i = 0; own->kind == TABLE && i < values[0]; i++) {
            const int64_t row = rows[i * own->left_step];
            if (row < 0 || row >= own->width) {
                PyErr_Format(PyExc_IndexError, "row %lld of a table of %zd", (long long)row, own->width);
                return PyMem_Free(found), NULL;
            }
        }
    }
    return found;
}

/* examples, squares (units, examples) of zeros, threads, blocks */
static PyObject *squares_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_ssize_t v[3], count;
    block *all = blocks(args, given, 3, v, &count);
    if (!all)
        return NULL;
    double *found = (double *)v[1];
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads((int)v[2]) schedule(static)
    for (ptrdiff_t i = 0; i < v[0]; i++)
        for (Py_ssize_t k = 0; k < count; k++) {
            const block *own = all + k;
            const float *left = (const float *)own->left + i * own->left_step;
            double square_of = own->kind == TABLE ? 1.0 : square(left, own->width);
            if (own->kind != FORMED)
                square_of *= square((const float *)own->right + i * own->right_step, own->height);
            found[own->unit * v[0] + i] += square_of;
        }
    Py_END_ALLOW_THREADS
    PyMem_Free(all);
    Py_RETURN_NONE;
}

static void combine_block(const block *own, const double *factors, ptrdiff_t examples, double *sums)
{
    const float *left = (const float *)own->left, *right = (const float *)own->right;
    const ptrdiff_t width = own->width, height = own->height;
    if (own->kind == FORMED) {
#pragma omp for schedule(static) nowait
        for (ptrdiff_t start = 0; start < width; start += COLUMNS)
            for (ptrdiff_t i = 0; i < examples; i++)
                if (factors[i] != 0.0)
                    add_scaled(sums + start, left + i * own->left_step + start, factors[i],
                               width - start < COLUMNS ? width - start : COLUMNS);
    } else if (own->kind == OUTER) {
#pragma omp for schedule(static) nowait
        for (ptrdiff_t k = 0; k < height; k += TOGETHER) {
            const ptrdiff_t rows = height - k < TOGETHER ? height - k : TOGETHER;
            for (ptrdiff_t r = 0; r < rows; r += rows == TOGETHER ? TOGETHER : 1)
                add_outer(sums + (k + r) * width, width, left, own->left_step, right + k + r, own->right_step, factors,
                          examples, rows == TOGETHER);
        }
    } else {
        const int64_t *rows = (const int64_t *)own->left;
#pragma omp single nowait
        for (ptrdiff_t i = 0; i < examples; i++)
            if (factors[i] != 0.0)
                add_scaled(sums + rows[i * own->left_step] * height, right + i * own->right_step, factors[i], height);
    }
}

/* examples, factors (units, examples), sums, threads, blocks: what has the factor zero is not read */
static PyObject *combine_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Py_ssize_t v[4], count;
    block *all = blocks(args, given, 4, v, &count);
    if (!all)
        return NULL;
    const double *factors = (const double *)v[1];
    double *sums = (double *)v[2];
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel num_threads((int)v[3])
    for (Py_ssize_t k = 0; k < count; k++)
        combine_block(all + k, factors + all[k].unit * v[0], v[0], sums + all[k].to);
    Py_END_ALLOW_THREADS
    PyMem_Free(all);
    Py_RETURN_NONE;
}

#define FAST(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef methods[] = {
    {"squares", FAST(squares), METH_FASTCALL, "squares(rows, count, width, squares, threads)"},
    {"combine", FAST(combine), METH_FASTCALL, "combine(factors, rows, count, width, sums, threads)"},
    {"squares_of", FAST(squares_of), METH_FASTCALL, "squares_of(examples, squares, threads, *blocks)"},
    {"combine_of", FAST(combine_of), METH_FASTCALL, "combine_of(examples, factors, sums, threads, *blocks)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_rows", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
