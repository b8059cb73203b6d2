/* Large dense layers, whose weights and sums stay where torch has them: an output's weights side by side.
 *
 * Nothing is copied to tables and back. What changes its order are a record's inputs, and derivatives by them: `l->turned`
 * holds a group's inputs in torch's order, in rows that are not a power of two apart (those would fall into the same lines
 * of the first cache). Outputs that dropout sets to zero in this step for every record are left out, on the way back,
 * too: their derivatives are zeros. */

/* Where the inputs lie in torch's order, and which outputs count. */
PART void NAME(prepare_dense)(Net *n, Layer *l, const float *p, const int32_t *order, const float *masks) {
    const int32_t *at = order + l->weights;
    const Layer *end = n->layer + n->layers;
    long channels, i = 0;
    l->p = p + l->weights;
    for (; i < l->in; i++) l->place[i] = at[i * l->cols] - (int32_t)l->weights;
    l->apart = l->in > 1 ? l->place[1] : 1; /* places of an image, if the inputs are one with channels side by side */
    if (l->apart < 1 || l->in % l->apart) l->apart = 0;
    channels = l->apart ? l->in / l->apart : 1;
    for (i = 0; l->apart && i < l->in; i++)
        if (l->place[i] != i % channels * l->apart + i / channels) l->apart = 0;
    l->lives = 0;
    for (long j = 0; j < l->out; j++) {
        int lives = 1;
        for (const Layer *next = l + 1; masks && next < end && elementwise(next); next++)
            if (next->kind == MASK && masks[next->mask + j] == 0) lives = 0;
        l->live[l->lives] = (int32_t)j, l->lives += lives;
    }
}

/* Sums that the first group does not write: those of outputs that do not count, or all. */
PART void NAME(clear_dense)(const Layer *l, float *sum, double *exact, int all) {
    if (exact) memset(exact + l->weights, 0, (size_t)(l->in * l->out) * sizeof(double));
    for (long j = 0, k = 0; sum && j < l->out; j++) {
        const int lives = k < l->lives && l->live[k] == j;
        if (all || !lives) memset(sum + l->weights + j * l->in, 0, (size_t)l->in * sizeof(float));
        k += lives;
    }
}

/* A record's inputs into torch's order, or derivatives by them back from it. */
PART void NAME(turn_inputs)(const Layer *l, const float *from, float *to, int back) {
    const long places = l->apart, channels = places ? l->in / places : 0;
    if (places == 1) memcpy(to, from, (size_t)l->in * sizeof(float));
    else if (places && places % 16 == 0 && channels % 16 == 0) {
        if (back) NAME(turn_table)(from, to, channels, places, places, channels);
        else NAME(turn_table)(from, to, places, channels, channels, places);
    } else if (back)
        for (long i = 0; i < l->in; i++) to[i] = from[l->place[i]];
    else
        for (long i = 0; i < l->in; i++) to[l->place[i]] = from[i];
}

enum { NAME(DOT_ROWS) = ROOMY ? 4 : 3, NAME(DOT_OUTS) = ROOMY ? 6 : 4, NAME(DEEP) = 3072 };

/* y += the products of `rows` records' inputs with the weights of `outs` outputs. */
INLINE void NAME(dots)(const Layer *l, const float *x, const int32_t *live, float *y, long first, long end, const int rows,
                       const int outs) {
    vec acc[NAME(DOT_ROWS)][NAME(DOT_OUTS)];
    const float *own[NAME(DOT_OUTS)];
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int j = 0; j < outs; j++) acc[r][j] = (vec){0};
    FULLY for (int j = 0; j < outs; j++) own[j] = l->p + live[j] * l->in;
    for (long i = first; i < end; i += LANES) {
        vec v[NAME(DOT_ROWS)];
        FULLY for (int r = 0; r < rows; r++) v[r] = load(x + r * l->stride + i);
        FULLY for (int j = 0; j < outs; j++) {
            const vec w = load(own[j] + i);
            FULLY for (int r = 0; r < rows; r++) acc[r][j] += v[r] * w;
        }
    }
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int j = 0; j < outs; j++) y[r * l->wide + live[j]] += total(acc[r][j]);
}

#define DOTS(rows, outs) NAME(dots)(l, l->turned + r * l->stride, l->live + j, l->y + r * l->wide, first, end, rows, outs)
#define ALL_RECORDS(outs)                                                       \
    do {                                                                        \
        long r = 0;                                                             \
        for (; r + NAME(DOT_ROWS) <= count; r += NAME(DOT_ROWS)) DOTS(NAME(DOT_ROWS), outs); \
        for (; r < count; r++) DOTS(1, outs);                                   \
    } while (0)
/* The outputs of a group. Those that do not count are zero. */
PART void NAME(dense_forward)(const Layer *l, long count) {
    memset(l->y, 0, (size_t)(count * l->wide) * sizeof(float));
    for (long r = 0; r < count; r++) {
        NAME(turn_inputs)(l, l->x + r * l->into, l->turned + r * l->stride, 0);
        for (long k = 0; l->bias && k < l->lives; k++) l->y[r * l->wide + l->live[k]] = l->w[l->live[k]];
    }
    for (long first = 0; first < l->in; first += NAME(DEEP)) {
        const long end = first + NAME(DEEP) < l->in ? first + NAME(DEEP) : l->in;
        long j = 0;
        for (; j + NAME(DOT_OUTS) <= l->lives; j += NAME(DOT_OUTS)) ALL_RECORDS(NAME(DOT_OUTS));
        for (; j < l->lives; j++) ALL_RECORDS(1);
    }
}
#undef ALL_RECORDS
#undef DOTS

/* The derivatives by outputs that count, side by side. */
INLINE void NAME(living)(const Layer *l, long count) {
    for (long r = 0; r < count; r++)
        for (long k = 0; k < l->lives; k++) l->few_d[r * l->wide + k] = l->d[r * l->wide + l->live[k]];
}

/* Derivatives by the inputs of a group: 64 columns of the weights at a time, copied side by side. */
PART void NAME(dense_inputs)(const Layer *l, float *dx, long count) {
    NAME(living)(l, count);
    if (!l->lives) memset(l->back, 0, (size_t)(count * l->stride) * sizeof(float));
    for (long first = 0; l->lives && first < l->in; first += 64) {
        const long some = l->in - first < 64 ? l->in - first : 64;
        for (long k = 0; k < l->lives; k++)
            for (long i = 0; i < some; i += LANES) store(l->t + k * some + i, load(l->p + l->live[k] * l->in + first + i));
        multiply_fresh(l->few_d, l->wide, 1, l->t, some, l->back + first, l->stride, count, some, l->lives);
    }
    for (long r = 0; r < count; r++) NAME(turn_inputs)(l, l->back + r * l->stride, dx + r * l->into, 1);
}

/* sum (`rows` of the outputs that count, `nv` vectors of inputs) += derivatives times inputs of `count` records. */
INLINE void NAME(outer)(const Layer *l, long j, long i, float *sum, long count, int fresh, const int rows, const int nv) {
    vec acc[6][4];
    float *own[6];
    FULLY for (int r = 0; r < rows; r++) {
        own[r] = sum + l->live[j + r] * l->in + i;
        FULLY for (int v = 0; v < nv; v++) acc[r][v] = fresh ? (vec){0} : load(own[r] + v * LANES);
    }
    for (long k = 0; k < count; k++) {
        vec x[4];
        FULLY for (int v = 0; v < nv; v++) x[v] = load(l->turned + k * l->stride + i + v * LANES);
        FULLY for (int r = 0; r < rows; r++) {
            const float s = l->few_d[k * l->wide + j + r];
            FULLY for (int v = 0; v < nv; v++) acc[r][v] += x[v] * s;
        }
    }
    FULLY for (int r = 0; r < rows; r++)
        FULLY for (int v = 0; v < nv; v++) store(own[r] + v * LANES, acc[r][v]);
}

#define OUTER(nv)                                                                             \
    for (; i + nv * LANES <= l->in; i += nv * LANES) {                                        \
        long j = 0;                                                                           \
        for (; j + 6 <= l->lives; j += 6) NAME(outer)(l, j, i, sum, count, fresh, 6, nv);     \
        for (; j < l->lives; j++) NAME(outer)(l, j, i, sum, count, fresh, 1, nv);             \
    }
/* A group's sum, from derivatives that have been scaled. */
PART void NAME(dense_sums)(const Layer *l, float *sum, long count, int fresh) {
    long i = 0;
    NAME(living)(l, count);
#if ROOMY
    OUTER(4)
#endif
    OUTER(2)
    OUTER(1)
}
#undef OUTER

/* The same in whole numbers: 1024 inputs at a time, so that a group's stay in the second cache. */
PART void NAME(dense_exact)(const Layer *l, double *sum, long count, int small) {
    for (long first = 0; first < l->in; first += 1024) {
        const long end = first + 1024 < l->in ? first + 1024 : l->in;
        for (long k = 0; k < l->lives; k++) {
            double *e = sum + l->live[k] * l->in;
            int32_t which[MLP_GROUP];
            float value[MLP_GROUP];
            long found = 0, i = first;
            for (long r = 0; r < count; r++) {
                which[found] = (int32_t)r, value[found] = l->d[r * l->wide + l->live[k]];
                found += value[found] != 0;
            }
            for (long r = 0; !small && r < found; r++)
                add_rounded(e + first, l->turned + which[r] * l->stride + first, value[r], (int)(end - first));
            if (!small) continue;
            for (; i + 4 * LANES <= end; i += 4 * LANES)
                NAME(add_whole)(which, value, found, l->turned + i, l->stride, e + i, 4);
            for (; i < end; i += LANES) NAME(add_whole)(which, value, found, l->turned + i, l->stride, e + i, 1);
        }
    }
}
