/* Fused kernels: clipped gradient sums of the small MNIST network of models.dp_hypo_cnn(), and fast noise.
 *
 * One record at a time goes forward and backward inside the caches, with channels as vector lanes; its gradient
 * is clipped and added before the next record starts. Must agree with the torch engine (tests/training/
 * test_fused_engine.py) and must never add noise to padding: padded lanes exist in here only.
 * Network: conv 1->16 (8x8, stride 2, padding 3), relu, maxpool 2/1, conv 16->32 (4x4, stride 2), relu,
 * maxpool 2/1, dense 512->32, relu, dense 32->10.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define PART static __attribute__((noinline))

/* Offsets in the parameter vector: weights with output channels last, then biases. */
enum { W1 = 0, B1 = 1024, W2 = 1040, B2 = 9232, W3 = 9264, B3 = 25648, W4 = 25680, B4 = 26000, DIM = 26010 };
enum { RECORDS = 12, LINE = 18, CORNER = (2 * LINE + 2) * 16, A1 = LINE * LINE * 16 + 16, P1 = 12 * 12 * 16, A2 = 25 * 32, P2 = 512 };

/* Values of RECORDS records that the way back needs (a: before or after relu, p: after pooling), then those of one record.
 * a1 and d1 are 13x13 places with a margin of two above and left and three below and right; one more place may be read. */
typedef struct {
    float a1[RECORDS][A1], p1[RECORDS][P1], a2[RECORDS][A2], p2[RECORDS][P2], h[RECORDS][32], out[RECORDS][16];
    float d3[RECORDS][32], dp2[RECORDS][P2], d1[A1], dp1[P1], d2[A2];
    float g1[1024], g2[8192], gb1[16], gb2[32], s2[8192], s4[33 * 16];
    float w2t[8192], w3t[16384], w4[32 * 16], w4t[16 * 32], b4[16];
    double e2[8192], e4[33 * 16];
    int64_t label[RECORDS];
    uint32_t used2[25]; /* bit co: d2 at this place and channel is not zero */
    uint8_t span[RECORDS][28][2];
} Work __attribute__((aligned(64)));

/* Records that are mostly zero: their nonzero values and the places of those. One record's values begin at row.first and
 * end where the next row's begin; there is one row more than records. */
typedef struct {
    int64_t first;
    float norm2; /* the squared norm */
    int32_t label;
} Row;
typedef struct {
    int64_t records, columns;
    int64_t least, most; /* labels */
    Row *row;
    uint16_t *place;
    float *value;
} Packed;

/* Room for one MLP: padded weights (w), transposed ones (t), gradients (g), inputs (a), derivatives (d); use_w and use_g
 * are the weights and gradients themselves where no padding is needed. */
/* More than what a sum of squares may lose to numbers that are too small: see VANISHED in _shares.py. */
#define VANISHED 0x1p-110f
enum { BLOCK = 288, MOST = 8, FEW = 4, DEPTH = 96, AHEAD = 4, FIRST_CACHE = 32768 };
typedef struct {
    int layers, tanh_;
    int few;    /* the number of classes, where they are so few that records become lanes in the last layer; else zero */
    long block; /* records at a time: at most BLOCK, and fewer if their inputs would fill the second cache */
    long width[MOST + 1], wide[MOST + 1];
    float *w[MOST], *t[MOST], *g[MOST], *bias[MOST], *a[MOST], *d[MOST];
    const float *use_w[MOST];
    float *use_g[MOST];
    float *length[MOST];    /* 1 + the squared norms of records' inputs */
    uint64_t *active[MOST]; /* for relu: which inputs are not zero, `words` a record, and how many those are */
    long words[MOST], count[MOST];
    float *zeros;
    float norm[BLOCK]; /* of records' gradients: first the squared norms, then the factors that clip them */
    int64_t label[BLOCK];
    int64_t first[BLOCK]; /* of packed records: where values begin, how many there are, how many were used */
    uint32_t size[BLOCK], at[BLOCK];
} Mlp;

static long parameters_of(const Mlp *m) {
    long count = 0;
    for (int l = 0; l < m->layers; l++) count += (m->width[l] + 1) * m->width[l + 1];
    return count;
}

/* Read the widths; returns how many parameters there are, or zero with an error. */
static Py_ssize_t widths_of(const Py_buffer *widths, Mlp *m) {
    Py_ssize_t floats = 0;
    m->layers = (int)(widths->len / 8) - 1;
    if (m->layers < 1 || m->layers > MOST) {
        PyErr_SetString(PyExc_ValueError, "between one and eight layers");
        return 0;
    }
    for (int l = 0; l <= m->layers; l++) {
        m->width[l] = (long)((const int64_t *)widths->buf)[l];
        m->wide[l] = (m->width[l] + 15) / 16 * 16;
        if (m->width[l] < 1 || m->width[l] > 65535) {
            PyErr_SetString(PyExc_ValueError, "widths between 1 and 65535");
            return 0;
        }
        if (l) floats += (m->width[l - 1] + 1) * m->width[l];
    }
    if (m->width[m->layers] > 16) {
        PyErr_SetString(PyExc_ValueError, "at most sixteen classes");
        return 0;
    }
    return floats;
}

/* Lay out the room from `next` on (or nowhere, if that is null); returns how many floats it takes. */
static size_t plan(Mlp *m, int packed, float *next) {
    const int last = m->layers - 1;
    long widest = 0;
    size_t size = 0;
    m->few = last && m->width[last + 1] > 1 && m->width[last + 1] <= FEW ? (int)m->width[last + 1] : 0;
    m->block = !packed && m->width[0] > 256 ? BLOCK / 3 : BLOCK;
    for (int l = 0; l <= last; l++) {
        const long in = m->width[l], step = l ? m->wide[l] : in, out = m->wide[l + 1];
        const int few = l == last && m->few, copied = !few && out != m->width[l + 1];
        m->words[l] = (m->wide[l] + 63) / 64;
        float **part[7] = {&m->w[l], &m->bias[l], &m->g[l], &m->t[l], &m->a[l], &m->d[l], &m->length[l]};
        const long floats[7] = {copied ? in * out : 0,
                                out,
                                few ? m->few * (step + 1) : copied ? (in + 1) * out : 0,
                                l ? m->width[l + 1] * step : 0,
                                l || !packed ? m->block * step : 0,
                                m->block * out,
                                m->block};
        for (int k = 0; k < 7; k++) {
            if (next) *part[k] = next + size;
            size += (size_t)(floats[k] + 31) / 16 * 16;
        }
        if (next) m->active[l] = (uint64_t *)(next + size);
        if (l) size += (size_t)(m->block * m->words[l] * 2 + 31) / 16 * 16;
        if (out > widest) widest = out;
    }
    if (next) m->zeros = memset(next + size, 0, (size_t)widest * sizeof(float));
    return size + (size_t)widest;
}

/* Room for one softmax regression over wide records: weights and gradients with a row for each class, what a block of
 * records needs, and the rule of clipping, which is that of _kernel_net.h. */
enum { SOME_ROWS = 16, PANEL = 512 };
typedef struct {
    long columns, classes, wide; /* `wide`: one more, for the biases, padded to whole vectors */
    long whole;                  /* those columns that fill whole vectors */
    double top, stability, floor;
    float *w, *none, *lanes, *own, *z, *d, *tail, *bias; /* `none`: a row of zeros */
    double *g;                                           /* in doubles: no record decides how others are rounded */
    double squares[SOME_ROWS];
} Wide;

/* Lay out the room from `next` on (or nowhere, if that is null); returns how many floats it takes. */
static size_t wide_plan(Wide *m, float *next) {
    m->wide = (m->columns + 1 + 15) / 16 * 16;
    const size_t wide = (size_t)m->wide, classes = (size_t)m->classes;
    float **part[8] = {&m->w, &m->none, &m->lanes, &m->own, &m->z, &m->d, &m->tail, &m->bias};
    const size_t floats[8] = {classes * wide, wide,           SOME_ROWS * 16 * 16, SOME_ROWS * 16,
                              SOME_ROWS * 16, SOME_ROWS * 16, SOME_ROWS * 16,      16};
    size_t size = 0;
    for (int k = 0; k < 8; k++) {
        if (next) *part[k] = next + size;
        size += floats[k];
    }
    if (next) m->g = (double *)(next + size);
    return size + 2 * classes * wide;
}

#include "_kernel_net.h"

/* The same source for every instruction set; the best one is chosen when the module is loaded. LANES floats fill a
 * register; FULLY unrolls loops over registers. */
#if defined(__clang__)
#define FULLY _Pragma("unroll")
#else
#define FULLY _Pragma("GCC unroll 64")
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CHOICE 1
#endif
#define LANES 4
#define NAME(x) x##_base
#include "_kernel_body.h"
#undef NAME
#undef LANES
#ifdef CHOICE
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define LANES 8
#define NAME(x) x##_v3
#include "_kernel_body.h"
#undef NAME
#undef LANES
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4")
#define LANES 16
#define NAME(x) x##_v4
#include "_kernel_body.h"
#undef NAME
#undef LANES
#pragma GCC pop_options
#endif

typedef struct {
    const char *name;
    void (*cnn_sum)(const float *, const float *, const int64_t *, const int64_t *, int64_t, float, float, float *,
                    double *, Work *);
    void (*cnn_forward)(const float *, const float *, int64_t, float *, Work *);
    void (*mlp_sum)(const float *, const float *, const Packed *, const int64_t *, const int64_t *, int64_t, float,
                    float *, Mlp *);
    void (*softmax_sum)(const float *, const float *, const int64_t *, const int64_t *, int64_t, double *, double *, Wide *);
    void (*mlp_forward)(const float *, int64_t, const int64_t *, int, int, const float *, long, float *, float *);
    void (*fill_normals)(const uint64_t *, uint64_t, float *, int64_t);
    void (*add_normals)(const uint64_t *, uint64_t, float, float, float *, int64_t);
    void (*descend)(float *, const float *, float, int64_t);
    void (*fill_words)(const uint64_t *, uint64_t, uint64_t, uint32_t *);
    void (*net_sum)(Net *, const float *, const int32_t *, const float *, const float *, const void *, const int64_t *,
                    int64_t, double, float *, double *, double *);
    void (*net_forward)(Net *, const float *, const int32_t *, const float *, int64_t, float *);
    void (*add_secure)(const uint64_t *, double *, int64_t, double, double, double);
} Kernels;

#define KERNELS(s)                                                                                      \
    {#s, cnn_sum_##s, cnn_forward_##s, mlp_sum_##s, softmax_sum_##s, mlp_forward_##s, fill_normals_##s, \
     add_normals_##s, descend_##s, fill_words_##s, net_sum_##s, net_forward_##s, add_secure_##s}
/* From the plainest to the fastest; those up to `known` run on this machine. */
static const Kernels kernels[] = {
    KERNELS(base),
#ifdef CHOICE
    KERNELS(v3),
    KERNELS(v4),
#endif
};
static int known = 0;
static Kernels use;

static void choose(void) {
#ifdef CHOICE
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        known = 1;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512cd"))
            known = 2;
    }
#endif
    use = kernels[known];
}

static PyObject *py_instructions(PyObject *self, PyObject *args) {
    const char *name = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "|z", &name)) return NULL;
    PyObject *names = PyTuple_New(known + 1);
    for (int k = 0; names && k <= known; k++) {
        PyTuple_SET_ITEM(names, k, PyUnicode_FromString(kernels[k].name));
        if (name && !strcmp(name, kernels[k].name)) use = kernels[k], name = NULL;
    }
    if (names && name) {
        PyErr_Format(PyExc_ValueError, "this machine has no instruction set %s", name);
        Py_CLEAR(names);
    }
    return names;
}

static int expect(const Py_buffer *b, Py_ssize_t bytes, const char *name) {
    if (b->len >= bytes) return 1;
    PyErr_Format(PyExc_ValueError, "%s holds %zd bytes, needs %zd", name, b->len, bytes);
    return 0;
}

/* Every index must name a record and every label a class: the kernels do not look again. */
static int in_range(const Py_buffer *index, const Py_buffer *y, int64_t classes) {
    const int64_t *places = index->buf, *labels = y->buf, records = y->len / 8;
    for (int64_t r = 0; r < index->len / 8; r++)
        if (places[r] < 0 || places[r] >= records || labels[places[r]] < 0 || labels[places[r]] >= classes) {
            PyErr_SetString(PyExc_IndexError, "record or label out of range");
            return 0;
        }
    return 1;
}

/* The same for packed records, whose labels are known. */
static int in_packed_range(const Py_buffer *index, const Packed *packed, int64_t classes) {
    const int64_t *places = index->buf;
    int out = packed->least < 0 || packed->most >= classes;
    for (int64_t r = 0; r < index->len / 8; r++) out |= places[r] < 0 || places[r] >= packed->records;
    if (out) PyErr_SetString(PyExc_IndexError, "record or label out of range");
    return !out;
}

/* With unit 0 a sum in single precision; otherwise an exact sum in double precision, in units of 1 / unit. */
static PyObject *py_cnn_sum(PyObject *self, PyObject *args) {
    Py_buffer p = {0}, x = {0}, y = {0}, index = {0}, sum = {0};
    float clip, unit;
    PyObject *result = NULL;
    Work *w = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*ffw*", &p, &x, &y, &index, &clip, &unit, &sum)) return NULL;
    const int64_t records = y.len / 8;
    if (!expect(&p, DIM * 4, "parameters") || !expect(&sum, DIM * (unit != 0 ? 8 : 4), "sum") ||
        !expect(&x, records * 784 * 4, "x"))
        goto done;
    if (!in_range(&index, &y, 10)) goto done;
    w = aligned_alloc(64, (sizeof(Work) + 63) / 64 * 64);
    if (!w) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    use.cnn_sum(p.buf, x.buf, y.buf, index.buf, index.len / 8, clip, unit != 0 ? unit : 1, unit != 0 ? NULL : sum.buf,
                unit != 0 ? sum.buf : NULL, w);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(w);
    PyBuffer_Release(&p), PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&index);
    PyBuffer_Release(&sum);
    return result;
}

static PyObject *py_cnn_forward(PyObject *self, PyObject *args) {
    Py_buffer p = {0}, x = {0}, out = {0};
    PyObject *result = NULL;
    Work *w = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*w*", &p, &x, &out)) return NULL;
    const int64_t count = x.len / (784 * 4);
    if (!expect(&p, DIM * 4, "parameters") || !expect(&out, count * 40, "logits")) goto done;
    w = aligned_alloc(64, (sizeof(Work) + 63) / 64 * 64);
    if (!w) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    use.cnn_forward(p.buf, x.buf, count, out.buf, w);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(w);
    PyBuffer_Release(&p), PyBuffer_Release(&x), PyBuffer_Release(&out);
    return result;
}

static void forget(Packed *k) {
    if (k) free(k->row), free(k->place), free(k->value), free(k);
}

static void forget_capsule(PyObject *capsule) { forget(PyCapsule_GetPointer(capsule, "packed")); }

static Packed *allot(int64_t records, int64_t columns, int64_t values) {
    Packed *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->records = records, k->columns = columns;
    k->row = malloc((size_t)(records + 1) * sizeof *k->row);
    k->place = malloc((size_t)(values + 1) * sizeof *k->place);
    k->value = malloc((size_t)(values + 1) * sizeof *k->value);
    if (k->row && k->place && k->value) return k;
    forget(k);
    return NULL;
}

static void fill(Packed *k, const float *x, const int64_t *y) {
    int64_t at = 0;
    for (int64_t r = 0; r < k->records; r++) {
        double square = 0;
        k->row[r].first = at;
        for (int64_t j = 0; j < k->columns; j++, x++)
            if (*x != 0) {
                k->place[at] = (uint16_t)j;
                k->value[at++] = *x;
                square += (double)*x * *x;
            }
        k->row[r].norm2 = (float)square;
        k->row[r].label = (int32_t)y[r];
        if (y[r] < k->least) k->least = y[r];
        if (y[r] > k->most) k->most = y[r];
    }
    k->row[k->records] = (Row){at, 0, 0};
}

/* Keep the nonzero values of every record alone; None where they are more than `share` of all. */
static PyObject *py_pack(PyObject *self, PyObject *args) {
    Py_buffer x = {0}, y = {0};
    double share;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*d", &x, &y, &share)) return NULL;
    const int64_t records = y.len / 8, columns = records ? x.len / 4 / records : 0, values = records * columns;
    int64_t filled = 0;
    if (columns < 1 || columns > 65535) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t i = 0; i < values; i++) filled += ((const float *)x.buf)[i] != 0;
    Py_END_ALLOW_THREADS
    if ((double)filled > share * (double)values) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    Packed *k = allot(records, columns, filled);
    if (!k) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    fill(k, x.buf, y.buf);
    Py_END_ALLOW_THREADS
    if (!(result = PyCapsule_New(k, "packed", forget_capsule))) forget(k);
done:
    PyBuffer_Release(&x), PyBuffer_Release(&y);
    return result;
}

static PyObject *py_mlp_room(PyObject *self, PyObject *args) {
    Py_buffer widths = {0};
    int packed;
    Mlp m = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "y*p", &widths, &packed)) return NULL;
    const Py_ssize_t floats = widths_of(&widths, &m);
    PyBuffer_Release(&widths);
    return floats ? PyLong_FromSize_t((plan(&m, packed, NULL) + 16) * sizeof(float)) : NULL;
}

static PyObject *py_mlp_sum(PyObject *self, PyObject *args) {
    Py_buffer p = {0}, x = {0}, y = {0}, index = {0}, widths = {0}, room = {0}, sum = {0};
    PyObject *capsule, *result = NULL;
    const Packed *packed = NULL;
    float clip;
    Mlp m = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*Oy*y*y*pfw*w*", &p, &x, &capsule, &y, &index, &widths, &m.tanh_, &clip, &room,
                          &sum))
        return NULL;
    if (capsule != Py_None && !(packed = PyCapsule_GetPointer(capsule, "packed"))) goto done;
    const Py_ssize_t floats = widths_of(&widths, &m);
    if (!floats) goto done;
    if (packed && (packed->records < y.len / 8 || packed->columns != m.width[0])) {
        PyErr_SetString(PyExc_ValueError, "the packed records are others");
        goto done;
    }
    if (!expect(&p, floats * 4, "parameters") || !expect(&sum, floats * 4, "sum") ||
        (!packed && !expect(&x, y.len / 8 * m.width[0] * 4, "x")) ||
        !expect(&room, (Py_ssize_t)((plan(&m, packed != NULL, NULL) + 16) * sizeof(float)), "room") ||
        !(packed ? in_packed_range(&index, packed, m.width[m.layers]) : in_range(&index, &y, m.width[m.layers])))
        goto done;
    plan(&m, packed != NULL, (float *)(((uintptr_t)room.buf + 63) / 64 * 64));
    Py_BEGIN_ALLOW_THREADS
    use.mlp_sum(p.buf, x.buf, packed, y.buf, index.buf, index.len / 8, clip, sum.buf, &m);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&p), PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&index);
    PyBuffer_Release(&widths), PyBuffer_Release(&room), PyBuffer_Release(&sum);
    return result;
}

static PyObject *py_softmax_room(PyObject *self, PyObject *args) {
    Wide m = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "ll", &m.columns, &m.classes)) return NULL;
    if (m.columns < 1 || m.columns > 65535 || m.classes < 1 || m.classes > 16) {
        PyErr_SetString(PyExc_ValueError, "between 1 and 65535 features, and at most sixteen classes");
        return NULL;
    }
    return PyLong_FromSize_t((wide_plan(&m, NULL) + 16) * sizeof(float));
}

static PyObject *py_softmax_sum(PyObject *self, PyObject *args) {
    Py_buffer p = {0}, x = {0}, y = {0}, index = {0}, room = {0}, sum = {0}, norms = {0};
    PyObject *result = NULL;
    Wide m = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*ll(ddd)w*w*w*", &p, &x, &y, &index, &m.columns, &m.classes, &m.top, &m.stability,
                          &m.floor, &room, &sum, &norms))
        return NULL;
    if (m.columns < 1 || m.columns > 65535 || m.classes < 1 || m.classes > 16 || !(m.top >= 0 && m.top < INFINITY) ||
        !(m.stability >= 0) || !(m.floor > 0)) {
        PyErr_SetString(PyExc_ValueError, "not a softmax regression, or not a rule of clipping");
        goto done;
    }
    const Py_ssize_t floats = (m.columns + 1) * m.classes;
    if (!expect(&p, floats * 4, "parameters") || !expect(&sum, floats * 8, "sum") ||
        !expect(&x, y.len / 8 * m.columns * 4, "x") || !expect(&norms, index.len, "norms") ||
        !expect(&room, (Py_ssize_t)((wide_plan(&m, NULL) + 16) * sizeof(float)), "room") || !in_range(&index, &y, m.classes))
        goto done;
    wide_plan(&m, (float *)(((uintptr_t)room.buf + 63) / 64 * 64));
    Py_BEGIN_ALLOW_THREADS
    use.softmax_sum(p.buf, x.buf, y.buf, index.buf, index.len / 8, sum.buf, norms.buf, &m);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&p), PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&index);
    PyBuffer_Release(&room), PyBuffer_Release(&sum), PyBuffer_Release(&norms);
    return result;
}

/* Weights and biases of every layer padded to whole vectors, where `room` is given; returns how many floats they need
 * with two rows of the widest layer, or zero if a width is out of range. */
static size_t pad(const float *p, const int64_t *width, int layers, long *widest, float *room) {
    size_t floats = 0;
    *widest = 0;
    for (int l = 0; l < layers; l++) {
        if (width[l] < 1 || width[l] > 1 << 24 || width[l + 1] < 1 || width[l + 1] > 1 << 24) return 0;
        const long out = (long)width[l + 1], wide = (out + 15) / 16 * 16;
        for (long i = 0; room && i <= width[l]; i++, room += wide, p += out) {
            memcpy(room, p, (size_t)out * sizeof(float));
            memset(room + out, 0, (size_t)(wide - out) * sizeof(float));
        }
        floats += (size_t)(width[l] + 1) * (size_t)wide;
        if (wide > *widest) *widest = wide;
    }
    return floats + 2 * (size_t)*widest;
}

static PyObject *py_mlp_forward(PyObject *self, PyObject *args) {
    Py_buffer p = {0}, x = {0}, widths = {0}, out = {0};
    float shape[3], *room = NULL;
    int relu;
    long widest;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*pfffw*", &p, &x, &widths, &relu, shape, shape + 1, shape + 2, &out)) return NULL;
    const int64_t *width = widths.buf;
    const int layers = (int)(widths.len / 8) - 1;
    const size_t floats = layers < 1 ? 0 : pad(NULL, width, layers, &widest, NULL);
    if (!floats) {
        PyErr_SetString(PyExc_ValueError, "a layer with widths between 1 and 2^24");
        goto done;
    }
    const int64_t count = x.len / 4 / width[0];
    Py_ssize_t parameters = 0;
    for (int l = 0; l < layers; l++) parameters += (Py_ssize_t)((width[l] + 1) * width[l + 1]);
    if (!expect(&p, parameters * 4, "parameters") || !expect(&out, (Py_ssize_t)(count * width[layers] * 4), "outputs"))
        goto done;
    room = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
    if (!room) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    pad(p.buf, width, layers, &widest, room);
    use.mlp_forward(x.buf, count, width, layers, relu, shape, widest, out.buf, room);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(room);
    PyBuffer_Release(&p), PyBuffer_Release(&x), PyBuffer_Release(&widths), PyBuffer_Release(&out);
    return result;
}

static PyObject *py_normals(PyObject *self, PyObject *args) {
    unsigned long long step;
    Py_buffer key = {0}, out = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*Kw*", &key, &step, &out)) return NULL;
    if (!expect(&key, 16, "key")) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.fill_normals(key.buf, step, out.buf, out.len / 4);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&key), PyBuffer_Release(&out);
    return result;
}

static PyObject *py_add_normals(PyObject *self, PyObject *args) {
    unsigned long long step;
    float scale, unit;
    Py_buffer key = {0}, total = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*Kffw*", &key, &step, &scale, &unit, &total)) return NULL;
    if (!expect(&key, 16, "key")) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.add_normals(key.buf, step, scale, unit, total.buf, total.len / 4);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&key), PyBuffer_Release(&total);
    return result;
}

static PyObject *py_descend(PyObject *self, PyObject *args) {
    float rate;
    Py_buffer p = {0}, g = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "w*y*f", &p, &g, &rate)) return NULL;
    if (!expect(&g, p.len, "gradient")) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.descend(p.buf, g.buf, rate, p.len / 4);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&p), PyBuffer_Release(&g);
    return result;
}

static PyObject *py_add_secure(PyObject *self, PyObject *args) {
    double scale, inverse, back;
    Py_buffer stream = {0}, total = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*dddw*", &stream, &scale, &inverse, &back, &total)) return NULL;
    if (!expect(&stream, (total.len / 8 + 1) / 2 * 16, "stream")) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.add_secure(stream.buf, total.buf, total.len / 8, scale, inverse, back);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    PyBuffer_Release(&stream), PyBuffer_Release(&total);
    return result;
}

static PyObject *py_words(PyObject *self, PyObject *args) {
    unsigned long long step, first;
    Py_buffer key = {0};
    uint32_t out[32];
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*KK", &key, &step, &first)) return NULL;
    if (expect(&key, 16, "key")) {
        use.fill_words(key.buf, step, first, out);
        result = PyBytes_FromStringAndSize((const char *)out, sizeof out);
    }
    PyBuffer_Release(&key);
    return result;
}

#include "_kernel_net_api.h"

static PyMethodDef methods[] = {
    {"cnn_sum", py_cnn_sum, METH_VARARGS, "cnn_sum(parameters, x, y, index, clip, unit, out): sum of clipped gradients"},
    {"cnn_forward", py_cnn_forward, METH_VARARGS, "cnn_forward(parameters, x, out): logits"},
    {"mlp_sum", py_mlp_sum, METH_VARARGS,
     "mlp_sum(parameters, x, packed, y, index, widths, tanh, clip, room, out): sum of clipped gradients"},
    {"softmax_room", py_softmax_room, METH_VARARGS, "softmax_room(features, classes): bytes of room that softmax_sum needs"},
    {"softmax_sum", py_softmax_sum, METH_VARARGS,
     "softmax_sum(parameters, x, y, index, features, classes, (top, stability, floor), room, out, norms): sum of clipped "
     "gradients"},
    {"mlp_forward", py_mlp_forward, METH_VARARGS,
     "mlp_forward(parameters, x, widths, relu, inner, outer, shift, out): outputs, each row by itself"},
    {"mlp_room", py_mlp_room, METH_VARARGS, "mlp_room(widths, packed): bytes of room that mlp_sum needs"},
    {"pack", py_pack, METH_VARARGS, "pack(x, y, share): nonzero values alone, or None if there are too many"},
    {"normals", py_normals, METH_VARARGS, "normals(key, step, out): standard normals of (key, step)"},
    {"add_normals", py_add_normals, METH_VARARGS,
     "add_normals(key, step, scale, unit, total): total = (total + scale * normals) * unit"},
    {"descend", py_descend, METH_VARARGS, "descend(parameters, gradient, rate): parameters -= rate * gradient"},
    {"instructions", py_instructions, METH_VARARGS,
     "instructions(name=None): the instruction sets of this machine, plainest first; with a name, use that one"},
    {"add_secure", py_add_secure, METH_VARARGS,
     "add_secure(stream, scale, inverse, back, total): total = (total * inverse + normals * scale, both rounded) * back"},
    {"words", py_words, METH_VARARGS, "words(key, step, first): 32 words of the generator, for known answers"},
    {"net_room", py_net_room, METH_VARARGS,
     "net_room(fields, constants, exact): bytes of room that net_sum and net_forward need"},
    {"net_sum", py_net_sum, METH_VARARGS,
     "net_sum(fields, constants, order, parameters, masks, x, y, index, (top, stability, floor, by_layer), unit, squared, room, "
     "out, norms): sum of clipped gradients"},
    {"net_forward", py_net_forward, METH_VARARGS,
     "net_forward(fields, constants, order, parameters, x, room, out): outputs, each row by itself"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Fused kernels of the training engines.", -1,
                                    methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernel(void) {
    choose();
    return PyModule_Create(&module);
}
