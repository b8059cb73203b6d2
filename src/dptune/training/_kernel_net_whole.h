/* Exact sums over a group whose shares add up within 32 bits (docs/theorems/exact_sums.md): whole numbers that are added
 * as such, and to the sum in double precision once for the group. */

/* The vector rounded to whole numbers of 32 bits. */
INLINE ints NAME(whole)(vec v) {
#if defined(CHOICE) && LANES == 16
    return (ints)_mm512_cvtps_epi32((__m512)v);
#elif defined(CHOICE) && LANES == 8
    return (ints)_mm256_cvtps_epi32((__m256)v);
#elif defined(CHOICE)
    return (ints)_mm_cvtps_epi32((__m128)v);
#else
    ints found;
    for (int i = 0; i < LANES; i++) found[i] = (int32_t)lrintf(v[i]);
    return found;
#endif
}

/* e (a row of `nv` vectors) += the listed rows of d, each times its value and rounded to whole numbers. */
INLINE void NAME(add_whole)(const int32_t *which, const float *value, long count, const float *d, long ld, double *e,
                            const int nv) {
    ints acc[4];
    FULLY for (int v = 0; v < nv; v++) acc[v] = (ints){0};
    for (long k = 0; k < count; k++) {
        const float *row = d + which[k] * ld, s = value[k];
        FULLY for (int v = 0; v < nv; v++) acc[v] += NAME(whole)(load(row + v * LANES) * s);
    }
    FULLY for (int v = 0; v < nv; v++) {
        int32_t part[LANES];
        memcpy(part, acc + v, sizeof part);
        for (int i = 0; i < LANES; i++) e[v * LANES + i] += (double)part[i];
    }
}

/* A dense layer's exact sum over a group whose shares add up within 32 bits: a row of the table at a time, in whole
 * numbers that stay in registers. */
PART void NAME(add_dense_whole)(const Layer *l, long count) {
    float inputs[16][MLP_GROUP];
    for (long first = 0; first < l->in; first += 16) {
        const long some = l->in - first < 16 ? l->in - first : 16;
        for (long r = 0; r < count; r++)
            for (long i = 0; i < some; i++) inputs[i][r] = l->x[r * l->into + first + i];
        for (long i = 0; i < some; i++) {
            int32_t which[MLP_GROUP];
            float value[MLP_GROUP];
            long found = 0, j = 0;
            for (long r = 0; r < count; r++) {
                which[found] = (int32_t)r, value[found] = inputs[i][r];
                found += inputs[i][r] != 0;
            }
            double *e = l->e + (first + i) * l->wide;
            for (; j + 4 * LANES <= l->wide; j += 4 * LANES)
                NAME(add_whole)(which, value, found, l->d + j, l->wide, e + j, 4);
            for (; j < l->wide; j += LANES) NAME(add_whole)(which, value, found, l->d + j, l->wide, e + j, 1);
        }
    }
}

/* The same for a gradient that was written down. */
INLINE void NAME(add_written_whole)(int32_t *to, const float *g, float f, long count) {
    for (long i = 0; i < count; i += LANES) {
        ints sum;
        memcpy(&sum, to + i, sizeof sum);
        sum += NAME(whole)(load(g + i) * f);
        memcpy(to + i, &sum, sizeof sum);
    }
}

/* As many records as 32 bits are known to hold: their whole numbers go to the layer's sum. */
INLINE void NAME(settle_whole)(const Layer *l) {
    const long count = l->rows * l->wide;
    for (long i = 0; i < count; i++) l->e[i] += (double)l->whole[i];
    memset(l->whole, 0, (size_t)count * sizeof(int32_t));
}
