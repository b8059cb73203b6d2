/* Outputs of MLPs for predictions. One record after the other, each by the same instructions in the same order, so that
 * its bits do not depend on how many records are judged with it, or on which. */

/* z = bias + x w for one record, `nv` vectors of columns; `wide` is the row length of w. */
INLINE void dense_row(const float *x, const float *w, const float *bias, float *z, long in, long wide, const int nv) {
    vec acc[4];
    FULLY for (int v = 0; v < nv; v++) acc[v] = load(bias + v * LANES);
    for (long k = 0; k < in; k++)
        FULLY for (int v = 0; v < nv; v++) acc[v] += load(w + k * wide + v * LANES) * x[k];
    FULLY for (int v = 0; v < nv; v++) store(z + v * LANES, acc[v]);
}

/* Widths: inputs, hidden..., classes. `room` holds for every layer weights and bias padded to whole vectors, then two
 * rows of `widest` units. Hidden units are relu(z), or tanh(inner z) outer + shift. */
static void mlp_forward(const float *x, int64_t count, const int64_t *width, int layers, int relu, const float *shape,
                        long widest, float *out, float *room) {
    const vec zero = {0};
    float *rows = room;
    for (int l = 0; l < layers; l++) rows += (width[l] + 1) * ((width[l + 1] + 15) / 16 * 16);
    for (int64_t r = 0; r < count; r++, out += width[layers]) {
        const float *in = x + r * width[0], *w = room;
        float *z = rows;
        for (int l = 0; l < layers; l++) {
            const long wide = (long)(width[l + 1] + 15) / 16 * 16;
            const float *bias = w + width[l] * wide;
            long j = 0;
            z = rows + (l & 1) * widest;
            for (; j + 4 * LANES <= wide; j += 4 * LANES) dense_row(in, w + j, bias + j, z + j, (long)width[l], wide, 4);
            for (; j < wide; j += LANES) dense_row(in, w + j, bias + j, z + j, (long)width[l], wide, 1);
            for (j = 0; l + 1 < layers && j < wide; j += LANES) {
                const vec v = load(z + j);
                store(z + j, relu ? (vec)(~(v <= zero) & (ints)v) : hyperbolic(v * shape[0]) * shape[1] + shape[2]);
            }
            in = z;
            w = bias + wide;
        }
        memcpy(out, z, (size_t)width[layers] * sizeof(float));
    }
}
