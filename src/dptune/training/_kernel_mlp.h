/* Clipped gradient sums of small MLPs (relu or tanh) by book-keeping, in blocks of records that stay in the caches.
 *
 * Widths are padded to whole vectors in here only: padded lanes hold zeros and are never copied out. */

/* c[i][j] += sum over k of a[i * am + k * ak] * b[k * ldb + j], for `rows` rows and `nv` vectors of columns. */
INLINE void tile(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, const int rows,
                 const int nv, long depth, int fresh) {
    vec acc[12][4];
    if (fresh) {
        FULLY for (int r = 0; r < rows; r++)
            FULLY for (int v = 0; v < nv; v++) acc[r][v] = (vec){0};
    } else {
        FULLY for (int r = 0; r < rows; r++)
            FULLY for (int v = 0; v < nv; v++) acc[r][v] = load(c + r * ldc + v * LANES);
    }
    for (long k = 0; k < depth; k++) {
        vec w[4];
        FULLY for (int v = 0; v < nv; v++) w[v] = load(b + k * ldb + v * LANES);
        FULLY for (int r = 0; r < rows; r++) {
            const float s = a[r * am + k * ak];
            FULLY for (int v = 0; v < nv; v++) acc[r][v] += w[v] * s;
        }
    }
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int v = 0; v < nv; v++) store(c + r * ldc + v * LANES, acc[r][v]);
}

#define TILE(rows, nv) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, rows, nv, depth, fresh)
#define STRIP(rows, nv)                                                                             \
    do {                                                                                            \
        long i = 0;                                                                                 \
        for (; i + rows <= m; i += rows) TILE(rows, nv);                                             \
        for (; i + 3 <= m; i += 3) TILE(3, nv);                                                     \
        for (; i < m; i++) TILE(1, nv);                                                             \
    } while (0)

#if ROOMY
PART void strip4(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth,
                 int fresh) {
    STRIP(6, 4);
}
#endif
PART void strip2(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth,
                 int fresh) {
    STRIP((ROOMY ? 12 : 6), 2);
}
PART void strip1(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth,
                 int fresh) {
    STRIP(12, 1);
}
#undef STRIP
#undef TILE

/* c (m rows of n columns, n a multiple of 16) += a b, or = a b where it is fresh; am and ak are the strides of a. DEPTH
 * rows of b at a time, so that 64 columns of them stay in the first cache. */
INLINE void multiply_parts(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long n,
                           long depth, int fresh) {
    for (long part = 0; depth > 0; depth -= part, a += part * ak, b += part * ldb, fresh = 0) {
        part = depth <= DEPTH + DEPTH / 3 ? depth : DEPTH; /* no short rest */
        long j = 0;
#if ROOMY
        for (; j + 4 * LANES <= n; j += 4 * LANES) strip4(a, am, ak, b + j, ldb, c + j, ldc, m, part, fresh);
#endif
        for (; j + 2 * LANES <= n; j += 2 * LANES) strip2(a, am, ak, b + j, ldb, c + j, ldc, m, part, fresh);
        if (j < n) strip1(a, am, ak, b + j, ldb, c + j, ldc, m, part, fresh);
    }
}
PART void multiply(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long n,
                   long depth) {
    multiply_parts(a, am, ak, b, ldb, c, ldc, m, n, depth, 0);
}
PART void multiply_fresh(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long n,
                         long depth) {
    multiply_parts(a, am, ak, b, ldb, c, ldc, m, n, depth, 1);
}

/* exp for arguments up to 88, relative error about 1e-7. */
INLINE vec exponential(vec x) {
    x = larger(x, (vec){0} - 87.0f);
    x = -larger(-x, (vec){0} - 88.0f);
    vec n = x * 1.44269504f + 12582912.0f; /* rounds to the nearest whole number */
    ints whole = (ints)n - 0x4b400000;
    n -= 12582912.0f;
    vec f = x - n * 0.693145752f - n * 1.42860677e-6f;
    vec p = 1.0f + f * (1.0f + f * (0.5f + f * (0.16666667f + f * (4.16666667e-2f + f * (8.3333310e-3f
            + f * (1.3888889e-3f + f * 1.984127e-4f))))));
    return (vec)((ints)p + (whole << 23));
}

INLINE vec hyperbolic(vec x) {
    vec z = x * x;
    vec small = x * (1.0f + z * (-0.33333333f + z * (0.13333333f + z * (-5.3968254e-2f + z * 2.1869489e-2f))));
    vec bounded = larger(-larger(-x, (vec){0} - 15.0f), (vec){0} - 15.0f);
    vec large = 1.0f - 2.0f / (exponential(2.0f * bounded) + 1.0f);
    large = blend(x != x, x, large); /* keep NaN */
    return blend(z < 0.04f, small, large);
}

#include "_kernel_few.h"

/* Rows that begin with the bias, for products that are added to them. */
INLINE void spread(const float *bias, float *z, long n, long width) {
    for (long r = 0; r < n; r++)
        for (long j = 0; j < width; j += LANES) store(z + r * width + j, load(bias + j));
}

/* The activation of every unit; length = 1 + its squared norm for every record. For relu also which units are active
 * (`words` a record); returns how many of them. */
INLINE long activate(float *z, float *length, uint64_t *active, long words, long n, long units, long width, int tanh_) {
    const vec zero = {0};
    long count = 0;
    for (long r = 0; r < n; r++, z += width) {
        vec squares = zero;
        for (long first = 0; first < width; first += 64) {
            uint64_t word = 0;
            for (long j = first; j < first + 64 && j < width; j += LANES) {
                vec v = load(z + j);
                if (tanh_) {
                    v = hyperbolic(v);
                } else {
                    const ints on = ~(v <= zero); /* keeps NaN */
                    v = (vec)(on & (ints)v);
                    word |= bits_of(on) << (j - first);
                }
                store(z + j, v);
                squares += v * v;
            }
            if (tanh_) continue;
            if (units - first < 64) word &= ((uint64_t)1 << (units - first)) - 1; /* padding may be NaN: never active */
            active[r * words + first / 64] = word;
            count += __builtin_popcountll(word);
        }
        length[r] = 1 + total(squares);
    }
    return count;
}

INLINE void slope(float *d, const float *a, long count, int tanh_) {
    for (long i = 0; i < count; i += LANES) {
        vec v = load(a + i), g = load(d + i);
        store(d + i, tanh_ ? g * (1.0f - v * v) : (vec)((ints)(v > 0.0f) & (ints)g));
    }
}

/* norm += the squared norm of d times `length`, for every record. */
INLINE void add_norms(const float *d, const float *length, float *norm, long n, long width) {
    for (long r = 0; r < n; r++) norm[r] += length[r] * (square(d + r * width, (int)width) + VANISHED);
}

/* Softmax minus label, over the first `classes` lanes of each row; other lanes become zero. A row that overflows
 * becomes NaN. */
INLINE void loss(float *z, const float *bias, const int64_t *label, long records, int classes) {
    ints used[16 / LANES] = {{0}};
    for (int i = 0; i < 16; i++) used[i / LANES][i % LANES] = i < classes ? -1 : 0;
    for (long r = 0; r < records; r++, z += 16) {
        vec top = (vec){0} - 3e38f, sum = {0}, e[16 / LANES];
        FULLY for (int i = 0; i < 16 / LANES; i++) {
            e[i] = load(z + i * LANES) + load(bias + i * LANES);
            top = larger(blend(used[i], e[i], (vec){0} - 3e38f), top);
        }
        const float most = largest(top);
        FULLY for (int i = 0; i < 16 / LANES; i++) {
            const vec below = e[i] - most;
            e[i] = (vec)(used[i] & (ints)blend(below != below, below, exponential(below)));
            sum += e[i];
        }
        const float all = total(sum);
        FULLY for (int i = 0; i < 16 / LANES; i++) store(z + i * LANES, e[i] / all);
        z[label[r]] -= 1;
    }
}

/* Records that are mostly zero: z[r] = start[r] + sum of value * w[place] over the places of record r below `end` that
 * were not used before. `nv` vectors of columns; `ld` is the row length of w and z, `lds` that of start. */
INLINE void gather(const Packed *x, Mlp *m, long n, long end, const float *w, const float *start, long lds, float *z,
                   long ld, const int nv) {
    for (long r = 0; r < n; r++) {
        const uint16_t *place = x->place + m->first[r];
        const float *value = x->value + m->first[r];
        const uint32_t size = m->size[r];
        uint32_t k = m->at[r];
        vec acc[8];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(start + r * lds + v * LANES);
        for (; k < size && place[k] < end; k++) {
            const float s = value[k];
            const float *row = w + place[k] * ld;
            FULLY for (int v = 0; v < nv; v++) acc[v] += load(row + v * LANES) * s;
        }
        FULLY for (int v = 0; v < nv; v++) store(z + r * ld + v * LANES, acc[v]);
        m->at[r] = k;
    }
}

/* The way back: g[place] += value * d[r]. */
INLINE void scatter(const Packed *x, Mlp *m, long n, long end, const float *d, float *g, long ld, const int nv) {
    for (long r = 0; r < n; r++) {
        const uint16_t *place = x->place + m->first[r];
        const float *value = x->value + m->first[r];
        const uint32_t size = m->size[r];
        uint32_t k = m->at[r];
        vec own[8];
        FULLY for (int v = 0; v < nv; v++) own[v] = load(d + r * ld + v * LANES);
        for (; k < size && place[k] < end; k++) {
            const float s = value[k];
            float *row = g + place[k] * ld;
            FULLY for (int v = 0; v < nv; v++) store(row + v * LANES, load(row + v * LANES) + own[v] * s);
        }
        m->at[r] = k;
    }
}

/* Both over all places, as many at a time as keep their rows in the first cache; z begins with the bias. */
#define GATHER(nv) gather(x, m, n, end, w + j, end == rows ? bias + j : z + j, end == rows ? 0 : ld, z + j, ld, nv)
#define SCATTER(nv) scatter(x, m, n, end, d + j, g + j, ld, nv)
#define ALL(part)                                                                      \
    for (long j = 0, nv; j < ld; j += nv * LANES) {                                    \
        const long left = (ld - j) / LANES;                                            \
        nv = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;                        \
        const long rows = FIRST_CACHE / (nv * 4 * LANES);                              \
        memset(m->at, 0, (size_t)n * sizeof *m->at);                                   \
        for (long end = rows; end < x->columns + rows; end += rows) {                  \
            if (nv == 8) part(8);                                                      \
            else if (nv == 4) part(4);                                                 \
            else if (nv == 2) part(2);                                                 \
            else part(1);                                                              \
        }                                                                              \
    }
PART void gather_all(const Packed *x, Mlp *m, long n, const float *w, const float *bias, float *z, long ld) {
    ALL(GATHER)
}
PART void scatter_all(const Packed *x, Mlp *m, long n, const float *d, float *g, long ld) { ALL(SCATTER) }
#undef GATHER
#undef SCATTER
#undef ALL

/* Padded copies of the weights, transposed ones for the way back; gradients at zero. Weights whose rows are whole
 * vectors need no copy. */
INLINE void lay_out(const float *p, float *sum, Mlp *m) {
    for (int l = 0; l < m->layers; l++) {
        const long in = m->width[l], out = m->width[l + 1], wide = m->wide[l + 1], back = m->wide[l];
        if (l == m->layers - 1 && m->few) {
            memset(m->g[l], 0, (size_t)(out * (back + 1)) * sizeof(float));
        } else {
            m->use_w[l] = out == wide ? p : m->w[l];
            m->use_g[l] = out == wide ? sum : m->g[l];
            memset(m->use_g[l], 0, (size_t)((in + 1) * wide) * sizeof(float));
            for (long i = 0; out != wide && i < in; i++) {
                memcpy(m->w[l] + i * wide, p + i * out, (size_t)out * sizeof(float));
                for (long j = out; j < wide; j++) m->w[l][i * wide + j] = 0;
            }
        }
        memset(m->bias[l], 0, (size_t)wide * sizeof(float));
        memcpy(m->bias[l], p + in * out, (size_t)out * sizeof(float));
        if (l > 0)
            for (long j = 0; j < out; j++) {
                for (long i = 0; i < in; i++) m->t[l][j * back + i] = p[i * out + j];
                for (long i = in; i < back; i++) m->t[l][j * back + i] = 0;
            }
        p += (in + 1) * out;
        sum += (in + 1) * out;
    }
}

/* A squared norm of any length. */
INLINE float square_of(const float *p, long n) {
    const long whole = n / LANES * LANES;
    float sum = square(p, (int)whole);
    for (long i = whole; i < n; i++) sum += p[i] * p[i];
    return sum;
}

/* Inputs and labels of `n` records. They are far apart in memory, so they are asked for ahead of their use. */
INLINE void fetch(const float *x, const int64_t *y, const int64_t *index, long n, Mlp *m) {
    const long width = m->width[0];
    for (long r = 0; r < n; r++) {
        const float *next = x + index[r + AHEAD < n ? r + AHEAD : r] * width;
        for (long j = 0; j < width; j += 16) __builtin_prefetch(next + j);
        memcpy(m->a[0] + r * width, x + index[r] * width, (size_t)width * sizeof(float));
        m->label[r] = y[index[r]];
        m->length[0][r] = 1 + square_of(m->a[0] + r * width, width);
    }
}

INLINE void fetch_packed(const Packed *x, const int64_t *index, long n, Mlp *m) {
    for (long r = 0; r < n; r++) __builtin_prefetch(x->row + index[r]);
    for (long r = 0; r < n; r++) {
        const Row *row = x->row + index[r];
        m->first[r] = row->first;
        m->size[r] = (uint32_t)(row[1].first - row->first);
        m->length[0][r] = 1 + row->norm2;
        m->label[r] = row->label;
        for (uint32_t k = 0; k < m->size[r]; k += 16) __builtin_prefetch(x->value + m->first[r] + k);
        for (uint32_t k = 0; k < m->size[r]; k += 32) __builtin_prefetch(x->place + m->first[r] + k);
    }
}

/* Turn squared norms into the factors that clip records' gradients: 0 for one that overflows. */
INLINE void factors(float *norm, float clip, long n) {
    float roots[LANES];
    for (long r = 0; r < n; r += LANES) {
        store(roots, load(norm + r));
        for (int i = 0; i < LANES; i++) roots[i] = sqrtf(roots[i]);
        const vec root = load(roots), factor = blend(root > clip, clip / root, (vec){0} + 1.0f);
        store(norm + r, (vec)((ints)(root - root == 0.0f) & (ints)factor));
    }
}

/* Let a record contribute nothing: not even its features are read again, some of which may be infinite. */
PART void drop(Mlp *m, int packed, long r) {
    if (packed) m->size[r] = 0;
    for (int l = 0; l < m->layers; l++) {
        const long in = l ? m->wide[l] : m->width[0], wide = m->wide[l + 1];
        if (l || !packed) memset(m->a[l] + r * in, 0, (size_t)in * sizeof(float));
        if (l && !m->tanh_) memset(m->active[l] + r * m->words[l], 0, (size_t)m->words[l] * sizeof(uint64_t));
        if (l == m->layers - 1 && m->few)
            for (int c = 0; c < m->few; c++) m->d[l][c * m->block + r] = 0;
        else
            memset(m->d[l] + r * wide, 0, (size_t)wide * sizeof(float));
    }
}

/* d times the factor of every record, and their sum added to the bias, for `nv` vectors of columns. */
INLINE void scale_rows(float *d, const float *factor, float *bias, long ld, const int nv, long n) {
    vec sum[4];
    FULLY for (int v = 0; v < nv; v++) sum[v] = load(bias + v * LANES);
    for (long r = 0; r < n; r++)
        FULLY for (int v = 0; v < nv; v++) {
            const vec own = load(d + r * ld + v * LANES) * factor[r];
            store(d + r * ld + v * LANES, own);
            sum[v] += own;
        }
    FULLY for (int v = 0; v < nv; v++) store(bias + v * LANES, sum[v]);
}

PART void scale_all(float *d, const float *factor, float *bias, long wide, long n) {
    long j = 0;
    for (; j + 4 * LANES <= wide; j += 4 * LANES) scale_rows(d + j, factor, bias + j, wide, 4, n);
    for (; j < wide; j += LANES) scale_rows(d + j, factor, bias + j, wide, 1, n);
}

/* Whether a product leaves out enough to be worth its loops: units of layer `l`, `wide` columns. */
INLINE int mostly_idle(const Mlp *m, int l, long wide, long n) {
    return !m->tanh_ && wide >= 64 && 4 * m->count[l] <= 3 * n * m->width[l];
}

INLINE void go_forward(const Packed *packed, Mlp *m, long n) {
    const int last = m->layers - 1;
    for (int l = 0; l <= last - (m->few > 0); l++) {
        const long wide = m->wide[l + 1], step = l ? m->wide[l] : m->width[0];
        float *z = l == last ? m->d[last] : m->a[l + 1];
        if (l == 0 && packed) {
            gather_all(packed, m, n, m->use_w[0], m->bias[0], z, wide);
        } else if (l && mostly_idle(m, l, wide, n)) {
            multiply_active(m->a[l], step, m->active[l], m->words[l], m->use_w[l], m->bias[l], 0, z, wide, n);
        } else {
            spread(m->bias[l], z, n, wide);
            multiply(m->a[l], step, 1, m->use_w[l], wide, z, wide, n, wide, m->width[l]);
        }
        if (l < last)
            m->count[l + 1] = activate(z, m->length[l + 1], m->active[l + 1], m->words[l + 1], n, m->width[l + 1], wide,
                                       m->tanh_);
    }
}

/* The derivatives of the outputs and what the records' squared norms owe to the last layer. */
INLINE void at_the_top(Mlp *m, long n) {
    const int last = m->layers - 1;
    const long wide = m->wide[last];
    float *z = m->d[last], *length = m->length[last];
    if (!m->few) {
        loss(z, m->zeros, m->label, n, (int)m->width[last + 1]);
        memset(m->norm, 0, (size_t)n * sizeof(float));
        add_norms(z, length, m->norm, n, 16);
        return;
    }
    if (m->few == 2) outputs_few(m->a[last], m->t[last], z, wide, m->block, 2, n);
    else if (m->few == 3) outputs_few(m->a[last], m->t[last], z, wide, m->block, 3, n);
    else outputs_few(m->a[last], m->t[last], z, wide, m->block, 4, n);
    loss_few(z, m->bias[last], m->label, length, m->norm, m->block, m->few, n);
}

INLINE void go_back(Mlp *m, long n) {
    for (int l = m->layers - 1; l > 0; l--) {
        const long wide = m->wide[l], above = m->wide[l + 1];
        const int top = l == m->layers - 1;
        float *d = m->d[l - 1];
        if (top && m->few == 2) {
            inputs_few(m->d[l], m->t[l], d, wide, m->block, 2, n);
        } else if (top && m->few == 3) {
            inputs_few(m->d[l], m->t[l], d, wide, m->block, 3, n);
        } else if (top && m->few == 4) {
            inputs_few(m->d[l], m->t[l], d, wide, m->block, 4, n);
        } else if (!top && mostly_idle(m, l + 1, wide, n)) {
            multiply_active(m->d[l], above, m->active[l + 1], m->words[l + 1], m->t[l], m->zeros, 0, d, wide, n);
        } else {
            memset(d, 0, (size_t)(n * wide) * sizeof(float));
            multiply(m->d[l], above, 1, m->t[l], wide, d, wide, n, wide, m->width[l + 1]);
        }
        for (long r = 0; r < n; r++) { /* while the row is in the first cache */
            slope(d + r * wide, m->a[l] + r * wide, wide, m->tanh_);
            add_norms(d + r * wide, m->length[l - 1] + r, m->norm + r, 1, wide);
        }
    }
}

/* Add the weighted sum over n records; m->norm holds their factors. */
INLINE void add_gradients(const Packed *packed, Mlp *m, long n) {
    for (int l = 0; l < m->layers; l++) {
        const long in = l ? m->wide[l] : m->width[0], wide = m->wide[l + 1];
        if (l == m->layers - 1 && m->few) {
            for (int c = 0; c < m->few; c++) m->g[l][m->few * in + c] += scale_few(m->d[l] + c * m->block, m->norm, n);
            if (m->few == 2) outer_few_all(m->d[l], m->a[l], m->g[l], in, m->block, 2, n);
            else if (m->few == 3) outer_few_all(m->d[l], m->a[l], m->g[l], in, m->block, 3, n);
            else outer_few_all(m->d[l], m->a[l], m->g[l], in, m->block, 4, n);
            continue;
        }
        scale_all(m->d[l], m->norm, m->use_g[l] + m->width[l] * wide, wide, n);
        if (l && mostly_idle(m, l, wide, n))
            outer_active(m->a[l], in, m->active[l], m->words[l], m->d[l], m->use_g[l], wide, m->width[l], n);
        else if (l == 0 && packed) scatter_all(packed, m, n, m->d[0], m->use_g[0], wide);
        else multiply(m->a[l], 1, in, m->d[l], wide, m->use_g[l], wide, m->width[l], wide, n);
    }
}

/* Gradients that were padded or turned around. */
INLINE void copy_out(const Mlp *m, float *sum) {
    for (int l = 0; l < m->layers; l++) {
        const long in = m->width[l], out = m->width[l + 1];
        if (l == m->layers - 1 && m->few) {
            for (int c = 0; c < m->few; c++) {
                for (long i = 0; i < in; i++) sum[i * out + c] = m->g[l][c * m->wide[l] + i];
                sum[in * out + c] = m->g[l][m->few * m->wide[l] + c];
            }
        } else if (m->use_g[l] != sum) {
            for (long i = 0; i <= in; i++)
                memcpy(sum + i * out, m->g[l] + i * m->wide[l + 1], (size_t)out * sizeof(float));
        }
        sum += (in + 1) * out;
    }
}

INLINE int finite_all(const float *p, long n) {
    vec sum = {0};
    long i = 0;
    for (; i + LANES <= n; i += LANES) sum += load(p + i) - load(p + i);
    float rest = total(sum);
    for (; i < n; i++) rest += p[i] - p[i];
    return rest == 0;
}

/* Widths: inputs, hidden..., classes. Works on blocks of records; `m` was laid out by plan(). Inputs come from `x`, or
 * from `packed` if that is given. */
static void mlp_sum(const float *p, const float *x, const Packed *packed, const int64_t *y, const int64_t *index,
                    int64_t count, float clip, float *sum, Mlp *m) {
    if (!finite_all(p, parameters_of(m))) { /* 0 times infinity: who is left out would depend on the company */
        memset(sum, 0, (size_t)parameters_of(m) * sizeof(float));
        return;
    }
    lay_out(p, sum, m);
    for (int64_t first = 0; first < count; first += m->block, index += m->block) {
        const long n = count - first < m->block ? count - first : m->block;
        if (packed) fetch_packed(packed, index, n, m);
        else fetch(x, y, index, n, m);
        go_forward(packed, m, n);
        at_the_top(m, n);
        go_back(m, n);
        factors(m->norm, clip, n);
        for (long r = 0; r < n; r++)
            if (m->norm[r] == 0) drop(m, packed != NULL, r);
        add_gradients(packed, m, n);
    }
    copy_out(m, sum);
}
