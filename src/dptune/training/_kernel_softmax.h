/* Clipped gradient sums of softmax regressions over wide records, in one pass over a few records at a time.
 *
 * A row is read from memory once: while it is in the caches its outputs, their derivatives, its norm and its part of the
 * sum are computed, and the rows of the next block are asked for. Every record takes the same loops in the same order,
 * whatever its place: a block that is not full is filled with rows of zeros. Columns behind the last whole vector are
 * copied to rows of their own, padded with zeros. */

#if ROOMY
#define TOGETHER 4 /* records at once: with five classes, what registers hold */
#define BACK 2     /* vectors of columns at once, on the way back */
#else
#define TOGETHER 2
#define BACK 1
#endif
#define AT_ONCE 5  /* classes */
#define FEW_ROWS 4 /* records that are added up in single precision */

/* z[r][c] += row[r] . w[c] over `vectors` vectors; with `squares` also the rows' own squares. The lanes of z are added up
 * at the end, when all columns were seen. */
INLINE void rows_forward(const float *const *row, const float *w, long wide, long vectors, float *z, float *square,
                         const int classes, const int squares) {
    for (int r = 0; r < SOME_ROWS; r += TOGETHER) {
        vec acc[TOGETHER][AT_ONCE], own[TOGETHER];
        FULLY for (int k = 0; k < TOGETHER; k++) {
            own[k] = squares ? load(square + (r + k) * LANES) : (vec){0};
            FULLY for (int c = 0; c < classes; c++) acc[k][c] = load(z + ((r + k) * 16 + c) * LANES);
        }
        for (long v = 0; v < vectors; v++) {
            vec x[TOGETHER];
            FULLY for (int k = 0; k < TOGETHER; k++) {
                x[k] = load(row[r + k] + v * LANES);
                if (squares) own[k] += x[k] * x[k];
            }
            FULLY for (int c = 0; c < classes; c++) {
                const vec one = load(w + c * wide + v * LANES);
                FULLY for (int k = 0; k < TOGETHER; k++) acc[k][c] += x[k] * one;
            }
        }
        FULLY for (int k = 0; k < TOGETHER; k++) {
            if (squares) store(square + (r + k) * LANES, own[k]);
            FULLY for (int c = 0; c < classes; c++) store(z + ((r + k) * 16 + c) * LANES, acc[k][c]);
        }
    }
}

/* g[c] += sum over r of d[c][r] * row[r], for `nv` vectors of columns. No more than FEW_ROWS are added up in single
 * precision, the rest in doubles: otherwise one record more could turn the rounding of all that follow. */
INLINE void rows_back(const float *const *row, const float *d, double *g, long wide, const int classes, const int nv) {
    doubles acc[AT_ONCE][2 * BACK];
    FULLY for (int c = 0; c < classes; c++)
        FULLY for (int v = 0; v < 2 * nv; v++) acc[c][v] = *(const loose_doubles *)(g + c * wide + v * (LANES / 2));
    for (int r = 0; r < SOME_ROWS; r += FEW_ROWS) {
        FULLY for (int v = 0; v < nv; v++) {
            vec x[FEW_ROWS];
            FULLY for (int k = 0; k < FEW_ROWS; k++) x[k] = load(row[r + k] + v * LANES);
            FULLY for (int c = 0; c < classes; c++) {
                const float *s = d + c * SOME_ROWS + r;
                vec few = x[0] * s[0];
                FULLY for (int k = 1; k < FEW_ROWS; k++) few += x[k] * s[k];
                half part[2];
                memcpy(part, &few, sizeof few);
                FULLY for (int h = 0; h < 2; h++) acc[c][2 * v + h] += __builtin_convertvector(part[h], doubles);
            }
        }
    }
    FULLY for (int c = 0; c < classes; c++)
        FULLY for (int v = 0; v < 2 * nv; v++) *(loose_doubles *)(g + c * wide + v * (LANES / 2)) = acc[c][v];
}

/* Both for a panel of columns and all classes, five at a time. */
#define GROUP(n)                                                                                              \
    PART void rows_forward_##n(const float *const *row, const float *w, long wide, long vectors, float *z,    \
                               float *square, int squares) {                                                  \
        if (squares) rows_forward(row, w, wide, vectors, z, square, n, 1);                                    \
        else rows_forward(row, w, wide, vectors, z, square, n, 0);                                            \
    }                                                                                                         \
    PART void rows_back_##n(const float *const *row, const float *d, double *g, long wide, long vectors) {    \
        const float *at[SOME_ROWS];                                                                           \
        memcpy(at, row, sizeof at);                                                                           \
        long v = 0;                                                                                           \
        for (; v + BACK <= vectors; v += BACK) {                                                              \
            rows_back(at, d, g + v * LANES, wide, n, BACK);                                                   \
            for (int r = 0; r < SOME_ROWS; r++) at[r] += BACK * LANES;                                        \
        }                                                                                                     \
        for (; v < vectors; v++) {                                                                            \
            rows_back(at, d, g + v * LANES, wide, n, 1);                                                      \
            for (int r = 0; r < SOME_ROWS; r++) at[r] += LANES;                                               \
        }                                                                                                     \
    }
GROUP(1)
GROUP(2)
GROUP(3)
GROUP(4)
GROUP(5)
#undef GROUP

/* The rows from column `from` on; those behind the last whole vector are in `tail`. */
INLINE void rows_at(const Wide *m, const float *const *row, long from, const float **at) {
    for (int r = 0; r < SOME_ROWS; r++) at[r] = from < m->whole ? row[r] + from : m->tail + r * 16;
}

PART void rows_outputs(Wide *m, const float *const *row, const float *const *next) {
    const float *at[SOME_ROWS];
    memset(m->lanes, 0, sizeof(float) * SOME_ROWS * 16 * LANES);
    for (int r = 0; r < SOME_ROWS; r++) m->squares[r] = 0;
    for (long from = 0; from < m->columns;) {
        const long end = from < m->whole ? (from + PANEL < m->whole ? from + PANEL : m->whole) : m->columns;
        const long vectors = (end - from + LANES - 1) / LANES;
        rows_at(m, row, from, at);
        if (next && from < m->whole) /* they are far apart in memory */
            for (int r = 0; r < SOME_ROWS; r++)
                for (long j = from; j < end; j += 16) __builtin_prefetch(next[r] + j, 0, 2);
        memset(m->own, 0, sizeof(float) * SOME_ROWS * LANES);
        for (int c = 0; c < m->classes; c += AT_ONCE) {
            const float *w = m->w + c * m->wide + from;
            float *z = m->lanes + c * LANES;
            switch (m->classes - c) {
            case 1: rows_forward_1(at, w, m->wide, vectors, z, m->own, c == 0); break;
            case 2: rows_forward_2(at, w, m->wide, vectors, z, m->own, c == 0); break;
            case 3: rows_forward_3(at, w, m->wide, vectors, z, m->own, c == 0); break;
            case 4: rows_forward_4(at, w, m->wide, vectors, z, m->own, c == 0); break;
            default: rows_forward_5(at, w, m->wide, vectors, z, m->own, c == 0);
            }
        }
        for (int r = 0; r < SOME_ROWS; r++) m->squares[r] += total(load(m->own + r * LANES)); /* in doubles */
        from = end;
    }
    memset(m->z, 0, sizeof(float) * SOME_ROWS * 16);
    for (int r = 0; r < SOME_ROWS; r++)
        for (int c = 0; c < m->classes; c++) m->z[r * 16 + c] = total(load(m->lanes + (r * 16 + c) * LANES));
}

PART void rows_gradients(const Wide *m, const float *const *row) {
    const float *at[SOME_ROWS];
    for (long from = 0; from < m->columns;) {
        const long end = from < m->whole ? (from + PANEL < m->whole ? from + PANEL : m->whole) : m->columns;
        const long vectors = (end - from + LANES - 1) / LANES;
        rows_at(m, row, from, at);
        for (int c = 0; c < m->classes; c += AT_ONCE) {
            const float *d = m->d + c * SOME_ROWS;
            double *g = m->g + c * m->wide + from;
            switch (m->classes - c) {
            case 1: rows_back_1(at, d, g, m->wide, vectors); break;
            case 2: rows_back_2(at, d, g, m->wide, vectors); break;
            case 3: rows_back_3(at, d, g, m->wide, vectors); break;
            case 4: rows_back_4(at, d, g, m->wide, vectors); break;
            default: rows_back_5(at, d, g, m->wide, vectors);
            }
        }
        from = end;
    }
}

/* From outputs to derivatives times the factors that clip them, classes in rows; the squared norm of a gradient is a
 * product. A record whose gradient overflows adds nothing: its row is not read again, since it may hold infinities. */
PART void rows_clip(const Wide *m, const float **row, const int64_t *label, long n, double *norms) {
    loss(m->z, m->bias, label, SOME_ROWS, (int)m->classes);
    for (long r = 0; r < SOME_ROWS; r++) {
        float own = 0;
        for (int c = 0; c < m->classes; c++) own += m->z[r * 16 + c] * m->z[r * 16 + c];
        const double all = (m->squares[r] + 1) * ((double)own + VANISHED);
        const int fine = r < n && isfinite((float)all) && isfinite((float)m->squares[r]);
        const double norm = fine ? sqrt(all) : 0, stable = norm + m->stability;
        const double factor = m->top / (stable > m->floor ? stable : m->floor);
        const float f = !fine ? 0 : factor < 0x1p120 ? (float)factor : 0x1p120f;
        if (r < n) norms[r] = norm;
        if (!fine) row[r] = m->none, memset(m->tail + r * 16, 0, 16 * sizeof(float));
        for (int c = 0; c < m->classes; c++) {
            const float d = fine ? m->z[r * 16 + c] * f : 0;
            m->d[c * SOME_ROWS + r] = d;
            m->g[c * m->wide + m->columns] += d; /* the bias */
        }
    }
}

/* `m` was laid out by wide_plan(). */
static void softmax_sum(const float *p, const float *x, const int64_t *y, const int64_t *index, int64_t count, double *sum,
                        double *norms, Wide *m) {
    const long columns = m->columns, classes = m->classes;
    if (!finite_all(p, (columns + 1) * classes)) { /* as in mlp_sum */
        memset(sum, 0, (size_t)((columns + 1) * classes) * sizeof(double));
        memset(norms, 0, (size_t)count * sizeof(double));
        return;
    }
    m->whole = columns / LANES * LANES;
    memset(m->w, 0, (size_t)(classes * m->wide) * sizeof(float));
    memset(m->g, 0, (size_t)(classes * m->wide) * sizeof(double));
    memset(m->none, 0, (size_t)m->wide * sizeof(float));
    memset(m->bias, 0, 16 * sizeof(float));
    for (long j = 0; j < columns; j++)
        for (long c = 0; c < classes; c++) m->w[c * m->wide + j] = p[j * classes + c];
    memcpy(m->bias, p + columns * classes, (size_t)classes * sizeof(float));
    for (int64_t first = 0; first < count; first += SOME_ROWS) {
        const long n = count - first < SOME_ROWS ? count - first : SOME_ROWS;
        const float *row[SOME_ROWS], *next[SOME_ROWS];
        int64_t label[SOME_ROWS] = {0};
        for (long r = 0; r < SOME_ROWS; r++) {
            row[r] = r < n ? x + index[first + r] * columns : m->none;
            if (r < n) label[r] = y[index[first + r]];
            next[r] = x + index[first + SOME_ROWS + r < count ? first + SOME_ROWS + r : first] * columns;
            memset(m->tail + r * 16, 0, 16 * sizeof(float));
            memcpy(m->tail + r * 16, row[r] + m->whole, (size_t)(columns - m->whole) * sizeof(float));
        }
        rows_outputs(m, row, first + SOME_ROWS < count ? next : NULL);
        rows_clip(m, row, label, n, norms + first);
        rows_gradients(m, row);
    }
    for (long j = 0; j <= columns; j++)
        for (long c = 0; c < classes; c++) sum[j * classes + c] = m->g[c * m->wide + j];
}

#undef TOGETHER
#undef BACK
#undef AT_ONCE
#undef FEW_ROWS
