/* A last layer with a few classes: classes in rows, records in lanes, so that almost no lane is padding.
 *
 * `z` holds a row of `block` records for every class, `t` a row of weights for every class. Lanes behind the last
 * record hold numbers that nothing reads. */

/* z[c][r] = a[r] . t[c] */
INLINE void outputs_few(const float *a, const float *t, float *z, long wide, long block, const int classes, long n) {
    for (long r = 0; r < n; r++) {
        vec acc[FEW] = {{0}};
        for (long j = 0; j < wide; j += LANES) {
            const vec v = load(a + r * wide + j);
            FULLY for (int c = 0; c < classes; c++) acc[c] += v * load(t + c * wide + j);
        }
        FULLY for (int c = 0; c < classes; c++) z[c * block + r] = total(acc[c]);
    }
}

/* Softmax minus label, and norm = |z|^2 |a|^2 of every record; one that overflows becomes NaN. */
INLINE void loss_few(float *z, const float *bias, const int64_t *label, const float *length, float *norm, long block,
                     int classes, long n) {
    for (long r = 0; r < n; r += LANES) {
        ints own = {0};
        for (int i = 0; i < LANES; i++) own[i] = (int32_t)label[r + i];
        vec top = load(z + r) + bias[0], sum = {0}, squares = {0};
        for (int c = 1; c < classes; c++) top = larger(load(z + c * block + r) + bias[c], top);
        for (int c = 0; c < classes; c++) {
            const vec below = (load(z + c * block + r) + bias[c]) - top;
            const vec e = blend(below != below, below, exponential(below));
            store(z + c * block + r, e);
            sum += e;
        }
        for (int c = 0; c < classes; c++) {
            const vec v = load(z + c * block + r) / sum + __builtin_convertvector(own == c, vec); /* true is -1 */
            store(z + c * block + r, v);
            squares += v * v;
        }
        store(norm + r, (squares + VANISHED) * load(length + r));
    }
}

/* d[r] = sum over c of z[c][r] * t[c] */
INLINE void inputs_few(const float *z, const float *t, float *d, long wide, long block, const int classes, long n) {
    for (long j = 0; j < wide; j += LANES) {
        vec w[FEW];
        FULLY for (int c = 0; c < classes; c++) w[c] = load(t + c * wide + j);
        for (long r = 0; r < n; r++) {
            vec v = w[0] * z[r];
            FULLY for (int c = 1; c < classes; c++) v += w[c] * z[c * block + r];
            store(d + r * wide + j, v);
        }
    }
}

/* z times the factors of n records; returns their sum. */
INLINE float scale_few(float *z, const float *factor, long n) {
    vec sum = {0};
    long r = 0;
    for (; r + LANES <= n; r += LANES) {
        const vec v = load(z + r) * load(factor + r);
        store(z + r, v);
        sum += v;
    }
    float rest = total(sum);
    for (; r < n; r++) rest += z[r] *= factor[r];
    return rest;
}

/* g[c] += sum over r of z[c][r] * a[r], for `nv` vectors of columns. */
INLINE void outer_few(const float *z, const float *a, float *g, long wide, long block, const int classes, const int nv,
                      long n) {
    vec acc[FEW][4];
    FULLY for (int c = 0; c < classes; c++)
        FULLY for (int v = 0; v < nv; v++) acc[c][v] = load(g + c * wide + v * LANES);
    for (long r = 0; r < n; r++)
        FULLY for (int v = 0; v < nv; v++) {
            const vec own = load(a + r * wide + v * LANES);
            FULLY for (int c = 0; c < classes; c++) acc[c][v] += own * z[c * block + r];
        }
    FULLY for (int c = 0; c < classes; c++)
        FULLY for (int v = 0; v < nv; v++) store(g + c * wide + v * LANES, acc[c][v]);
}

INLINE void outer_few_all(const float *z, const float *a, float *g, long wide, long block, const int classes, long n) {
    long j = 0;
    for (; j + 4 * LANES <= wide && ROOMY; j += 4 * LANES) outer_few(z, a + j, g + j, wide, block, classes, 4, n);
    for (; j + 2 * LANES <= wide; j += 2 * LANES) outer_few(z, a + j, g + j, wide, block, classes, 2, n);
    for (; j < wide; j += LANES) outer_few(z, a + j, g + j, wide, block, classes, 1, n);
}
