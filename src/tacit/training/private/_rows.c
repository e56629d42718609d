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

#define FAST(f) ((PyCFunction)(void (*)(void))(f))
static PyMethodDef methods[] = {
    {"squares", FAST(squares), METH_FASTCALL, "squares(rows, count, width, squares, threads)"},
    {"combine", FAST(combine), METH_FASTCALL, "combine(factors, rows, count, width, sums, threads)"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_rows", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&definition); }
