/* The recursions of _recursion.py: over rows and columns, several losses at once; and along a table.
 *
 * The same operations in the same order as the numpy code, so the two agree to the last bit (no contraction into
 * fused multiply-adds; see pyproject.toml). A lane is one loss: a = exp(e). State: the best value of every column,
 * lanes last, and behind the columns one row that turns NaN when a gain was (a comparison would lose it).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <string.h>

enum { LANES = 8, GAINS = 9, MOST = 1 << 24 };

#define INLINE static inline __attribute__((always_inline))
#define EACH for (int k = 0; k < LANES; k++)

/* Wider vectors where the machine has them; the same operations, so the same bits. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

INLINE double larger(double x, double y) { return x > y ? x : y; }

WIDE static void upper(Py_ssize_t rows, Py_ssize_t cells, const double *gains, const double *losses, double *best) {
    Py_ssize_t plane = rows * cells;
    double a[LANES], odd = best[LANES * cells];
    EACH a[k] = losses[k];
    for (Py_ssize_t i = rows - 1; i >= 0; i--) {
        double entered[LANES], passed[LANES];
        EACH entered[k] = passed[k] = -INFINITY;
        for (Py_ssize_t j = 0; j < cells; j++) {
            const double *g = gains + i * cells + j;
            double high_a = g[0], high_b = g[plane], low_a = g[2 * plane], low_b = g[3 * plane], bend = g[4 * plane];
            double start_high = g[5 * plane], start_low = g[6 * plane], in = g[7 * plane], out = g[8 * plane];
            double *here = best + LANES * j;
            odd += (high_a + high_b + low_a + low_b + bend + start_high + start_low + in + out) * 0.0;
            EACH {
                double gain = larger(high_a - a[k] * low_a, high_b - a[k] * low_b);
                gain += a[k] * bend;
                entered[k] = larger(here[k] - in, entered[k]);
                gain += entered[k];
                passed[k] = larger(gain, passed[k]);
                double begun = larger(start_high - a[k] * start_low, 0.0);
                here[k] = larger(passed[k] + out, begun);
            }
        }
    }
    EACH best[LANES * cells + k] = odd;
}

WIDE static void lower(Py_ssize_t rows, Py_ssize_t nodes, const double *gains, const double *losses, double *best) {
    Py_ssize_t plane = rows * nodes;
    double a[LANES], odd = best[LANES * nodes];
    EACH a[k] = losses[k];
    for (Py_ssize_t i = rows - 1; i >= 0; i--) {
        double most[LANES] = {0};
        Py_ssize_t first = i + 1 < nodes ? i + 1 : nodes;
        for (Py_ssize_t j = first; j < nodes; j++) {
            double high = gains[i * nodes + j], low = gains[plane + i * nodes + j];
            double *here = best + LANES * j;
            odd += (high + low) * 0.0;
            EACH {
                double gain = high - a[k] * low;
                most[k] = larger(here[k], most[k]);
                here[k] = larger(most[k] + gain, 0.0);
            }
        }
        memset(best, 0, sizeof(double) * LANES * first); /* y is never below r */
    }
    EACH best[LANES * nodes + k] = odd;
}

typedef void recursion(Py_ssize_t, Py_ssize_t, const double *, const double *, double *);

static PyObject *run(PyObject *args, recursion *step, Py_ssize_t planes) {
    Py_buffer gains = {0}, a = {0}, best = {0};
    Py_ssize_t rows, columns, size = sizeof(double);
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "nny*y*w*", &rows, &columns, &gains, &a, &best)) return NULL;
    Py_ssize_t groups = a.len / (LANES * size);
    if (rows < 1 || columns < 1 || rows > MOST || columns > MOST || gains.len != planes * rows * columns * size ||
        a.len != groups * LANES * size || best.len != groups * (columns + 1) * LANES * size) {
        PyErr_SetString(PyExc_ValueError, "an array has another size than rows, columns and lanes say");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < groups; k++)
        step(rows, columns, gains.buf, (const double *)a.buf + LANES * k,
             (double *)best.buf + LANES * (columns + 1) * k);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&gains), PyBuffer_Release(&a), PyBuffer_Release(&best);
    return result;
}

static PyObject *py_upper(PyObject *self, PyObject *args) {
    (void)self;
    return run(args, upper, GAINS);
}

static PyObject *py_lower(PyObject *self, PyObject *args) {
    (void)self;
    return run(args, lower, 2);
}

/* y[n] = share x[n] + (1 - share) y[n - 1], in place; one value after the other, so there is nothing to vectorise. */
static PyObject *py_smooth(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer values = {0};
    double share;
    if (!PyArg_ParseTuple(args, "dw*", &share, &values)) return NULL;
    if (values.len % (Py_ssize_t)sizeof(double)) {
        PyErr_SetString(PyExc_ValueError, "not an array of doubles");
        PyBuffer_Release(&values);
        return NULL;
    }
    double *x = values.buf, kept = 1.0 - share, y = 0.0;
    Py_ssize_t count = values.len / (Py_ssize_t)sizeof(double);
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++) x[i] = y = y * kept + share * x[i];
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&values);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"upper", py_upper, METH_VARARGS, "upper(rows, cells, gains, a, best): go through a block of rows"},
    {"lower", py_lower, METH_VARARGS, "lower(rows, nodes, gains, a, best): go through all rows"},
    {"smooth", py_smooth, METH_VARARGS, "smooth(share, values): each a mean of itself and the one before, in place"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_programme", "Recursions over interleavings.", -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__programme(void) {
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "LANES", LANES) < 0) Py_CLEAR(made);
    return made;
}
