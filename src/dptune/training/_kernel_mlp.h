/* Clipped gradient sums of small MLPs (relu or tanh) by book-keeping, in blocks of records that stay in the caches.
 *
 * Widths are padded to whole vectors in here only: padded lanes hold zeros and are never copied out. */

/* c[i][j] += sum over k of a[i * am + k * ak] * b[k * ldb + j], for `rows` rows and `nv` vectors of columns. */
INLINE void tile(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, const int rows,
                 const int nv, long depth) {
    vec acc[12][4];
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int v = 0; v < nv; v++) acc[r][v] = load(c + r * ldc + v * LANES);
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

#define STRIP(rows, nv)                                                                             \
    do {                                                                                            \
        long i = 0;                                                                                 \
        for (; i + rows <= m; i += rows) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, rows, nv, depth); \
        for (; i + 3 <= m; i += 3) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, 3, nv, depth); \
        for (; i < m; i++) tile(a + i * am, am, ak, b, ldb, c + i * ldc, ldc, 1, nv, depth);        \
    } while (0)

#if ROOMY
PART void strip4(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth) {
    STRIP(6, 4);
}
#endif
PART void strip2(const float *a, long am, long ak, const float *b, long ldb, float *c, long ldc, long m, long depth) {
    STRIP((ROOMY ? 12 : 6), 2);
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
#if ROOMY
        for (; j + 4 * LANES <= n; j += 4 * LANES) strip4(a, am, ak, b + j, ldb, c + j, ldc, m, part);
#endif
        for (; j + 2 * LANES <= n; j += 2 * LANES) strip2(a, am, ak, b + j, ldb, c + j, ldc, m, part);
        if (j < n) strip1(a, am, ak, b + j, ldb, c + j, ldc, m, part);
    }
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

INLINE void activate(float *z, const float *bias, long records, long width, int tanh_) {
    const vec zero = {0};
    for (long r = 0; r < records; r++)
        for (long j = 0; j < width; j += LANES) {
            vec v = load(z + r * width + j) + load(bias + j);
            store(z + r * width + j, tanh_ ? hyperbolic(v) : blend((v <= zero), zero, v));
        }
}

INLINE void slope(float *d, const float *a, long count, int tanh_) {
    for (long i = 0; i < count; i += LANES) {
        vec v = load(a + i), g = load(d + i);
        store(d + i, tanh_ ? g * (1.0f - v * v) : (vec)((ints)(v > 0.0f) & (ints)g));
    }
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

/* Records that are mostly zero: z[r] += sum of value * w[place] over the places of record r below `end` that were not
 * used before. `nv` vectors of columns; `ld` is the row length of all three. */
INLINE void gather(const Packed *x, Mlp *m, long n, long end, const float *w, float *z, long ld, const int nv) {
    for (long r = 0; r < n; r++) {
        const uint16_t *place = x->place + m->first[r];
        const float *value = x->value + m->first[r];
        const uint32_t size = m->size[r];
        uint32_t k = m->at[r];
        vec acc[8];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(z + r * ld + v * LANES);
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

/* One of the two over all places, as many at a time as keep their rows in the first cache. */
#define ALL(name, part)                                                                                        \
    PART void name(const Packed *x, Mlp *m, long n, const float *from, float *to, long ld) {                   \
        for (long j = 0, nv; j < ld; j += nv * LANES) {                                                           \
            const long left = (ld - j) / LANES;                                                                \
            nv = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;                                            \
            const long rows = FIRST_CACHE / (nv * 4 * LANES);                                                  \
            memset(m->at, 0, (size_t)n * sizeof *m->at);                                                       \
            for (long end = rows; end < x->columns + rows; end += rows) {                                      \
                if (nv == 8) part(x, m, n, end, from + j, to + j, ld, 8);                                      \
                else if (nv == 4) part(x, m, n, end, from + j, to + j, ld, 4);                                 \
                else if (nv == 2) part(x, m, n, end, from + j, to + j, ld, 2);                                 \
                else part(x, m, n, end, from + j, to + j, ld, 1);                                              \
            }                                                                                                  \
        }                                                                                                      \
    }
ALL(gather_all, gather)
ALL(scatter_all, scatter)
#undef ALL

/* Padded copies of the weights, transposed ones for the way back; gradients at zero. Weights whose rows are whole
 * vectors need no copy. */
INLINE void lay_out(const float *p, float *sum, Mlp *m) {
    for (int l = 0; l < m->layers; l++) {
        const long in = m->width[l], out = m->width[l + 1], wide = m->wide[l + 1], back = m->wide[l];
        m->use_w[l] = out == wide ? p : m->w[l];
        m->use_g[l] = out == wide ? sum : m->g[l];
        memset(m->use_g[l], 0, (size_t)((in + 1) * wide) * sizeof(float));
        if (out != wide)
            for (long i = 0; i < in; i++) {
                memcpy(m->w[l] + i * wide, p + i * out, (size_t)out * sizeof(float));
                for (long j = out; j < wide; j++) m->w[l][i * wide + j] = 0;
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

/* Inputs and labels of `n` records. They are far apart in memory, so they are asked for ahead of their use. */
INLINE void fetch(const float *x, const int64_t *y, const int64_t *index, long n, Mlp *m) {
    const long width = m->width[0];
    for (long r = 0; r < n; r++) {
        const float *next = x + index[r + AHEAD < n ? r + AHEAD : r] * width;
        for (long j = 0; j < width; j += 16) __builtin_prefetch(next + j);
        memcpy(m->a[0] + r * width, x + index[r] * width, (size_t)width * sizeof(float));
        m->label[r] = y[index[r]];
    }
}

INLINE void fetch_packed(const Packed *x, const int64_t *index, long n, Mlp *m) {
    for (long r = 0; r < n; r++) __builtin_prefetch(x->row + index[r]);
    for (long r = 0; r < n; r++) {
        const Row *row = x->row + index[r];
        m->first[r] = row->first;
        m->size[r] = (uint32_t)(row[1].first - row->first);
        m->norm2[r] = row->norm2;
        m->label[r] = row->label;
        for (uint32_t k = 0; k < m->size[r]; k += 16) __builtin_prefetch(x->value + m->first[r] + k);
        for (uint32_t k = 0; k < m->size[r]; k += 32) __builtin_prefetch(x->place + m->first[r] + k);
    }
}

/* The factor that clips a record's gradient (0 if it overflows), given its inputs and derivatives in `m`. */
INLINE float clipping(const Mlp *m, int packed, long r, float clip) {
    float norm = 0;
    for (int l = 0; l < m->layers; l++) {
        float inputs = 1;
        if (l == 0 && packed) {
            inputs += m->norm2[r];
        } else {
            const long in = l ? m->wide[l] : m->width[0], whole = in / 16 * 16;
            inputs += square(m->a[l] + r * in, (int)whole);
            for (long i = whole; i < in; i++) inputs += m->a[l][r * in + i] * m->a[l][r * in + i];
        }
        norm += inputs * square(m->d[l] + r * m->wide[l + 1], (int)m->wide[l + 1]);
    }
    norm = sqrtf(norm);
    return !isfinite(norm) ? 0 : norm > clip ? clip / norm : 1;
}

/* Widths: inputs, hidden..., classes. Works on blocks of records; `m` was laid out by plan(). Inputs come from `x`, or
 * from `packed` if that is given. */
static void mlp_sum(const float *p, const float *x, const Packed *packed, const int64_t *y, const int64_t *index,
                    int64_t count, float clip, float *sum, Mlp *m) {
    const int last = m->layers - 1;
    lay_out(p, sum, m);
    for (int64_t first = 0; first < count; first += m->block, index += m->block) {
        const long n = count - first < m->block ? count - first : m->block;
        if (packed) fetch_packed(packed, index, n, m);
        else fetch(x, y, index, n, m);
        for (int l = 0; l <= last; l++) {
            const long wide = m->wide[l + 1], step = l ? m->wide[l] : m->width[0];
            float *z = l == last ? m->d[last] : m->a[l + 1];
            memset(z, 0, (size_t)(n * wide) * sizeof(float));
            if (l == 0 && packed) gather_all(packed, m, n, m->use_w[0], z, wide);
            else multiply(m->a[l], step, 1, m->use_w[l], wide, z, wide, n, wide, m->width[l]);
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
            const float f = clipping(m, packed != NULL, r, clip);
            for (int l = 0; l <= last; l++) {
                const long wide = m->wide[l + 1];
                float *d = m->d[l] + r * wide, *bias = m->use_g[l] + m->width[l] * wide;
                if (f == 0) { /* an overflowing record contributes nothing */
                    if (l || !packed) {
                        const long in = l ? m->wide[l] : m->width[0];
                        memset(m->a[l] + r * in, 0, (size_t)in * sizeof(float));
                    }
                    memset(d, 0, (size_t)wide * sizeof(float));
                    continue;
                }
                for (long j = 0; j < wide; j += LANES) {
                    const vec v = load(d + j) * f;
                    store(d + j, v);
                    store(bias + j, load(bias + j) + v);
                }
            }
        }
        for (int l = 0; l <= last; l++) {
            const long in = l ? m->wide[l] : m->width[0], wide = m->wide[l + 1];
            if (l == 0 && packed) scatter_all(packed, m, n, m->d[0], m->use_g[0], wide);
            else multiply(m->a[l], 1, in, m->d[l], wide, m->use_g[l], wide, m->width[l], wide, n);
        }
    }
    for (int l = 0; l < m->layers; l++) {
        const long out = m->width[l + 1];
        if (m->use_g[l] != sum)
            for (long i = 0; i <= m->width[l]; i++)
                memcpy(sum + i * out, m->g[l] + i * m->wide[l + 1], (size_t)out * sizeof(float));
        sum += (m->width[l] + 1) * out;
    }
}
