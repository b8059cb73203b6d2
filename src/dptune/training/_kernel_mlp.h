/* Clipped gradient sums of small MLPs (relu or tanh) by book-keeping, in blocks of records that stay in the caches.
 *
 * Widths are padded to whole vectors in here only: padded lanes hold zeros and are never copied out. */

/* c[i][j] += sum over k of a[i * am + k * ak] * b[k * ldb + j], for `rows` rows and `nv` vectors of columns. */
INLINE void tile(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, const int rows,
                 const int nv, long depth) {
    v16 acc[12][4];
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int v = 0; v < nv; v++) acc[r][v] = load(c + r * ldc + v * 16);
    for (long k = 0; k < depth; k++) {
        v16 w[4];
        FULLY for (int v = 0; v < nv; v++) w[v] = load(b + k * ldb + v * 16);
        FULLY for (int r = 0; r < rows; r++) {
            const float s = a[r * am + k * ak];
            FULLY for (int v = 0; v < nv; v++) acc[r][v] += w[v] * s;
        }
    }
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int v = 0; v < nv; v++) store(c + r * ldc + v * 16, acc[r][v]);
}

#define STRIP(rows, nv)                                                                             \
    do {                                                                                            \
        long i = 0;                                                                                 \
        for (; i + rows <= m; i += rows) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, rows, nv, depth); \
        for (; i + 3 <= m; i += 3) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, 3, nv, depth); \
        for (; i < m; i++) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, 1, nv, depth);        \
    } while (0)

PART void strip4(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth) {
    STRIP(6, 4);
}
PART void strip2(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth) {
    STRIP(12, 2);
}
PART void strip1(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth) {
    STRIP(12, 1);
}
#undef STRIP

/* c (m rows of n columns, n a multiple of 16) += a b; am and ak are the strides of a. DEPTH rows of b at a time, so
 * that 64 columns of them stay in the first cache. */
PART void multiply(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long n,
                   long depth) {
    for (long part = 0; depth > 0; depth -= part, a += part * ak, b += part * ldb) {
        part = depth <= DEPTH + DEPTH / 3 ? depth : DEPTH; /* no short rest */
        long j = 0;
        for (; j + 64 <= n; j += 64) strip4(a, am, ak, b + j, ldb, c + j, ldc, m, part);
        if (j + 32 <= n) strip2(a, am, ak, b + j, ldb, c + j, ldc, m, part), j += 32;
        if (j < n) strip1(a, am, ak, b + j, ldb, c + j, ldc, m, part);
    }
}

/* exp for arguments up to 88, relative error about 1e-7. */
INLINE v16 exponential(v16 x) {
    x = larger(x, (v16){0} - 87.0f);
    x = -larger(-x, (v16){0} - 88.0f);
    v16 n = x * 1.44269504f + 12582912.0f; /* rounds to the nearest whole number */
    i16 whole = (i16)n - 0x4b400000;
    n -= 12582912.0f;
    v16 f = x - n * 0.693145752f - n * 1.42860677e-6f;
    v16 p = 1.0f + f * (1.0f + f * (0.5f + f * (0.16666667f + f * (4.16666667e-2f + f * (8.3333310e-3f
            + f * (1.3888889e-3f + f * 1.984127e-4f))))));
    return (v16)((i16)p + (whole << 23));
}

INLINE v16 hyperbolic(v16 x) {
    v16 z = x * x;
    v16 small = x * (1.0f + z * (-0.33333333f + z * (0.13333333f + z * (-5.3968254e-2f + z * 2.1869489e-2f))));
    v16 bounded = larger(-larger(-x, (v16){0} - 15.0f), (v16){0} - 15.0f);
    v16 large = 1.0f - 2.0f / (exponential(2.0f * bounded) + 1.0f);
    large = blend(x != x, x, large); /* keep NaN */
    return blend(z < 0.04f, small, large);
}

INLINE void activate(float *z, const float *bias, long records, long width, int tanh_) {
    const v16 zero = {0};
    for (long r = 0; r < records; r++)
        for (long j = 0; j < width; j += 16) {
            v16 v = load(z + r * width + j) + load(bias + j);
            store(z + r * width + j, tanh_ ? hyperbolic(v) : blend((v <= zero), zero, v));
        }
}

INLINE void slope(float *d, const float *a, long count, int tanh_) {
    for (long i = 0; i < count; i += 16) {
        v16 v = load(a + i), g = load(d + i);
        store(d + i, tanh_ ? g * (1.0f - v * v) : (v16)((i16)(v > 0.0f) & (i16)g));
    }
}

/* Softmax minus label, over the first `classes` lanes of each row; other lanes become zero. A row that overflows
 * becomes NaN. */
INLINE void loss(float *z, const float *bias, const int64_t *label, long records, int classes) {
    const i16 used = (i16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} < classes;
    const v16 least = (v16){0} - 3e38f, add = load(bias);
    for (long r = 0; r < records; r++) {
        const v16 v = load(z + r * 16) + add, below = v - largest(blend(used, v, least));
        const v16 e = (v16)(used & (i16)blend(below != below, below, exponential(below)));
        store(z + r * 16, e / total(e));
        z[r * 16 + label[r]] -= 1;
    }
}

/* Widths: inputs, hidden..., classes. Works on blocks of records; `m` was laid out by plan(). */
static void mlp_sum(const float *p, const float *x, const int64_t *y, const int64_t *index, int64_t count, float clip,
                    float *sum, Mlp *m) {
    long at = 0;
    for (int l = 0; l < m->layers; l++) { /* padded copies of the weights, transposed ones for the way back */
        const long in = m->width[l], out = m->width[l + 1], wide = m->wide[l + 1], back = m->wide[l];
        memset(m->bias[l], 0, (size_t)wide * sizeof(float));
        memset(m->g[l], 0, (size_t)((in + 1) * wide) * sizeof(float));
        for (long i = 0; i < in; i++) {
            memcpy(m->w[l] + i * wide, p + at + i * out, (size_t)out * sizeof(float));
            for (long j = out; j < wide; j++) m->w[l][i * wide + j] = 0;
        }
        memcpy(m->bias[l], p + at + in * out, (size_t)out * sizeof(float));
        if (l > 0) {
            memset(m->t[l], 0, (size_t)(out * back) * sizeof(float));
            for (long i = 0; i < in; i++)
                for (long j = 0; j < out; j++) m->t[l][j * back + i] = p[at + i * out + j];
        }
        at += (in + 1) * out;
    }
    const int last = m->layers - 1;
    for (int64_t first = 0; first < count; first += m->block) {
        const long n = count - first < m->block ? count - first : m->block;
        for (long r = 0; r < n; r++) {
            if (r + AHEAD < n) /* records are far apart in memory */
                for (long j = 0; j < m->width[0]; j += 16)
                    __builtin_prefetch(x + index[first + r + AHEAD] * m->width[0] + j);
            memcpy(m->a[0] + r * m->width[0], x + index[first + r] * m->width[0], (size_t)m->width[0] * sizeof(float));
            m->label[r] = y[index[first + r]];
        }
        for (int l = 0; l < m->layers; l++) {
            const long wide = m->wide[l + 1], step = l ? m->wide[l] : m->width[0];
            float *z = l == last ? m->d[last] : m->a[l + 1];
            memset(z, 0, (size_t)(n * wide) * sizeof(float));
            multiply(m->a[l], step, 1, m->w[l], wide, z, wide, n, wide, m->width[l]);
            if (l < last) activate(z, m->bias[l], n, wide, m->tanh_);
        }
        loss(m->d[last], m->bias[last], m->label, n, (int)m->width[last + 1]);
        for (int l = last; l > 0; l--) {
            const long wide = m->wide[l];
            memset(m->d[l - 1], 0, (size_t)(n * wide) * sizeof(float));
            multiply(m->d[l], m->wide[l + 1], 1, m->t[l], wide, m->d[l - 1], wide, n, wide, m->width[l + 1]);
            slope(m->d[l - 1], m->a[l], n * wide, m->tanh_);
        }
        for (long r = 0; r < n; r++) {
            float norm = 0;
            for (int l = 0; l <= last; l++) {
                const long in = l ? m->wide[l] : m->width[0], whole = in / 16 * 16;
                float inputs = square(m->a[l] + r * in, (int)whole) + 1;
                for (long i = whole; i < in; i++) inputs += m->a[l][r * in + i] * m->a[l][r * in + i];
                norm += inputs * square(m->d[l] + r * m->wide[l + 1], (int)m->wide[l + 1]);
            }
            norm = sqrtf(norm);
            const int fine = isfinite(norm);
            const float f = norm > clip ? clip / norm : 1;
            for (int l = 0; l <= last; l++) {
                const long in = l ? m->wide[l] : m->width[0], wide = m->wide[l + 1];
                float *d = m->d[l] + r * wide;
                if (!fine) { /* an overflowing record contributes nothing */
                    memset(m->a[l] + r * in, 0, (size_t)in * sizeof(float));
                    memset(d, 0, (size_t)wide * sizeof(float));
                    continue;
                }
                float *bias = m->g[l] + m->width[l] * wide;
                for (long j = 0; j < wide; j += 16) {
                    const v16 v = load(d + j) * f;
                    store(d + j, v);
                    store(bias + j, load(bias + j) + v);
                }
            }
        }
        for (int l = 0; l <= last; l++) {
            const long in = l ? m->wide[l] : m->width[0], wide = m->wide[l + 1];
            multiply(m->a[l], 1, in, m->d[l], wide, m->g[l], wide, m->width[l], wide, n);
        }
    }
    at = 0;
    for (int l = 0; l < m->layers; l++) {
        const long out = m->width[l + 1];
        for (long i = 0; i <= m->width[l]; i++, at += out)
            memcpy(sum + at, m->g[l] + i * m->wide[l + 1], (size_t)out * sizeof(float));
    }
}
