/* Forward, backward, clipping and summing of the small MNIST network (see _kernel.c).
 *
 * A few records at a time: convolutions one record after the other inside the first cache, dense layers for all of
 * them at once. Zeros are left out where there are many: black pixels at both ends of an image's row, and derivatives of
 * the second convolution that pooling or relu stopped. Every value of a record is computed by the
 * same operations in the same order wherever the record stands in its batch, so its share of a sum depends on no
 * other record. */

/* Where the pixels of an image that are not zero lie: for each row the first pair of columns and the one after the last. */
INLINE void find_span(const float *image, uint8_t (*span)[2]) {
    for (int r = 0; r < 28; r++) {
        uint32_t found = 0;
        FULLY for (int c = 0; c < 28; c += LANES) {
            const int at = c + LANES > 28 ? 28 - LANES : c;
            found |= nonzero(load(image + r * 28 + at)) << at;
        }
        span[r][0] = found ? (uint8_t)(__builtin_ctz(found) / 2) : 0;
        span[r][1] = found ? (uint8_t)((31 - __builtin_clz(found)) / 2 + 1) : 0;
    }
}

/* Pixel (2 i + odd, 2 j + right) meets row 1 - odd + 2 t and column 1 - right + 2 u of the kernel at the output's place
 * (i + 1 + odd - t, j + 1 + right - u), for t and u from 0 to 3: sixteen places, some of them in the margin of two
 * rows and columns that outputs and derivatives have here. ROWS of them at a time; the window of four places in each
 * stays in registers while it moves along the image's row. Before the relu. */
#define ROWS (ROOMY ? 2 : 1)
PART void conv1(const float *p, const float *image, const uint8_t (*span)[2], float *a1) {
    for (int i = 0; i < LINE * LINE; i++)
        FULLY for (int h = 0; h < 16; h += LANES) store(a1 + i * 16 + h, load(p + B1 + h));
    for (int part = 0; part < 16 / LANES * 16 / ROWS; part++) {
        const int odd = part & 1, right = part >> 1 & 1, t = (part >> 2) * ROWS % 4, h = (part >> 2) * ROWS / 4 * LANES;
        const float *weights = p + W1 + ((1 - odd + 2 * t) * 8 + 7 - right) * 16 + h;
        vec w[ROWS][4];
        FULLY for (int q = 0; q < ROWS; q++)
            FULLY for (int u = 0; u < 4; u++) w[q][u] = load(weights + q * 256 - u * 32);
        for (int i = 0; i < 14; i++) {
            const int first = span[2 * i + odd][0], end = span[2 * i + odd][1];
            if (first == end) continue;
            const float *row = image + (2 * i + odd) * 28 + right;
            float *to = a1 + ((i + 3 + odd - t) * LINE + first + right) * 16 + h;
            vec a[ROWS][4];
            FULLY for (int q = 0; q < ROWS; q++)
                FULLY for (int u = 0; u < 4; u++) a[q][u] = load(to + (u - q * LINE) * 16);
            for (int j = first; j < end; j++, to += 16) {
                const float s = row[2 * j];
                FULLY for (int q = 0; q < ROWS; q++) {
                    FULLY for (int u = 0; u < 4; u++) a[q][u] += w[q][u] * s;
                    store(to - q * LINE * 16, a[q][0]);
                    FULLY for (int u = 0; u < 3; u++) a[q][u] = a[q][u + 1];
                    a[q][3] = load(to + (4 - q * LINE) * 16);
                }
            }
            FULLY for (int q = 0; q < ROWS; q++)
                FULLY for (int u = 0; u < 3; u++) store(to + (u - q * LINE) * 16, a[q][u]);
        }
    }
}
#undef ROWS

/* Maximum over 2x2 windows with stride 1, at least zero; side is the output's side, line the input's row length, c the
 * number of channels. */
INLINE void pool(const float *a, float *out, const int side, const int line, const int c) {
    const vec zero = {0};
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int k = 0; k < c; k += LANES) {
                const float *q = a + (y * line + x) * c + k;
                const float *r = q + line * c;
                const vec top = larger(larger(load(q), load(q + c)), larger(load(r), load(r + c)));
                store(out + (y * side + x) * c + k, larger(top, zero));
            }
}

/* Send each derivative to the first largest place of its window, then through the relu: first to the upper or the
 * lower pair of the window, then to the left or the right place of the pair. */
INLINE void unpool(const float *a, const float *dout, float *d, const int side, const int line, const int c) {
    for (int k = 0; k < c; k += LANES) {
        vec top[12], down[12];
        FULLY for (int x = 0; x < side; x++) {
            top[x] = larger(load(a + x * c + k), load(a + (x + 1) * c + k));
            down[x] = (vec){0};
        }
        for (int y = 0; y <= side; y++) {
            const float *row = a + y * line * c + k, *below = row + line * c, *from = dout + y * side * c + k;
            float *to = d + y * line * c + k;
            vec here = load(row), right = {0};
            FULLY for (int x = 0; x < side; x++) {
                vec pair = down[x];
                if (y < side) {
                    const vec bottom = larger(load(below + x * c), load(below + (x + 1) * c));
                    const ints up = top[x] >= bottom, g = (ints)load(from + x * c);
                    pair += (vec)(up & g);
                    down[x] = (vec)(~up & g);
                    top[x] = bottom;
                }
                const vec next = load(row + (x + 1) * c);
                const ints left = here >= next;
                store(to + x * c, (vec)((here > 0.0f) & (ints)(right + (vec)(left & (ints)pair))));
                right = (vec)(~left & (ints)pair);
                here = next;
            }
            store(to + side * c, (vec)((here > 0.0f) & (ints)right));
        }
    }
}

/* PLACES of the output at a time, with VECTORS of channels. */
#define PLACES (ROOMY ? 25 : 5)
#define VECTORS (ROOMY ? 1 : 2)
PART void conv2(const float *p, const float *p1, float *a2) {
    const vec zero = {0};
    for (int part = 0; part < 25; part += PLACES)
        for (int c = 0; c < 32; c += VECTORS * LANES) {
            const float *from = p1 + part / 5 * 24 * 16;
            vec acc[PLACES][VECTORS];
            FULLY for (int i = 0; i < PLACES; i++)
                FULLY for (int v = 0; v < VECTORS; v++) acc[i][v] = load(p + B2 + c + v * LANES);
            for (int k = 0; k < 16; k++) {
                const float *in = from + ((k / 4) * 12 + k % 4) * 16, *weights = p + W2 + k * 512 + c;
                for (int ci = 0; ci < 16; ci++) {
                    vec w[VECTORS];
                    FULLY for (int v = 0; v < VECTORS; v++) w[v] = load(weights + ci * 32 + v * LANES);
                    FULLY for (int i = 0; i < PLACES; i++) {
                        const float s = in[((i / 5) * 24 + (i % 5) * 2) * 16 + ci];
                        FULLY for (int v = 0; v < VECTORS; v++) acc[i][v] += w[v] * s;
                    }
                }
            }
            FULLY for (int i = 0; i < PLACES; i++)
                FULLY for (int v = 0; v < VECTORS; v++)
                    store(a2 + (part + i) * 32 + c + v * LANES, larger(acc[i][v], zero));
        }
}
#undef PLACES
#undef VECTORS

/* Where place i of the second convolution's output begins to read. */
#define PATCH(i) (((i) / 5 * 24 + (i) % 5 * 2) * 16)

/* Most derivatives of the second convolution are zero, after pooling and relu: only the others are used. Half of the
 * kernel at a time, so that its weights stay in the first cache. */
PART void back_conv2_input(Work *w) {
    memset(w->dp1, 0, sizeof w->dp1);
    for (int part = 0; part < 2 * 16 / LANES; part++)
        for (int i = 0; i < 25; i++) {
            const int half = part % 2, h = part / 2 * LANES;
            vec acc[8];
            FULLY for (int k = 0; k < 8; k++) acc[k] = (vec){0};
            for (uint32_t left = w->used2[i]; left; left &= left - 1) {
                const int co = __builtin_ctz(left);
                const float s = w->d2[i * 32 + co], *weights = w->w2t + (half * 32 + co) * 128 + h;
                FULLY for (int k = 0; k < 8; k++) acc[k] += load(weights + k * 16) * s;
            }
            float *to = w->dp1 + PATCH(i) + half * 2 * 192 + h;
            FULLY for (int k = 0; k < 8; k++) {
                float *place = to + (k / 4 * 12 + k % 4) * 16;
                store(place, load(place) + acc[k]);
            }
        }
}

/* The gradient of the second convolution's weights, one output channel after the other, TAPS of the kernel at a time;
 * returns its square norm. */
#define TAPS (ROOMY ? 16 : 8)
PART double back_conv2_weights(Work *w, const float *p1) {
    uint32_t used[32] = {0}; /* bit i of channel co: the derivative at place i is not zero */
    for (int i = 0; i < 25; i++) {
        w->used2[i] = 0;
        FULLY for (int c = 0; c < 32; c += LANES) w->used2[i] |= nonzero(load(w->d2 + i * 32 + c)) << c;
        for (int co = 0; co < 32; co++) used[co] |= (w->used2[i] >> co & 1) << i;
    }
    double norm = 0;
    for (int h = 0; h < 16; h += LANES) {
        vec square = {0};
        for (int part = 0; part < 32 * 16 / TAPS; part++) {
            const int co = part * TAPS / 16, first = part * TAPS % 16;
            vec acc[TAPS];
            FULLY for (int k = 0; k < TAPS; k++) acc[k] = (vec){0};
            for (uint32_t left = used[co]; left; left &= left - 1) {
                const int i = __builtin_ctz(left);
                const float s = w->d2[i * 32 + co], *in = p1 + PATCH(i) + first * 48 + h;
                FULLY for (int k = 0; k < TAPS; k++) acc[k] += load(in + (k / 4 * 12 + k % 4) * 16) * s;
            }
            float *to = w->g2 + co * 256 + first * 16 + h;
            FULLY for (int k = 0; k < TAPS; k += 2) {
                store(to + k * 16, acc[k]);
                store(to + k * 16 + 16, acc[k + 1]);
                square += acc[k] * acc[k] + acc[k + 1] * acc[k + 1];
            }
        }
        norm += total(square);
    }
    return norm;
}
#undef TAPS
#undef PATCH

/* The gradient of the first convolution's weights (see conv1), ROWS of the kernel at a time; returns its square norm. */
#define ROWS (ROOMY ? 4 : 2)
PART double back_conv1_weights(Work *w, const float *image, const uint8_t (*span)[2]) {
    double norm = 0;
    for (int part = 0; part < 16 / LANES * 16 / ROWS; part++) {
        const int odd = part & 1, right = part >> 1 & 1, t = (part >> 2) * ROWS % 4, h = (part >> 2) * ROWS / 4 * LANES;
        vec acc[ROWS * 4], square = {0};
        FULLY for (int k = 0; k < ROWS * 4; k++) acc[k] = (vec){0};
        for (int i = 0; i < 14; i++) {
            const float *row = image + (2 * i + odd) * 28 + right;
            const float *from = w->d1 + ((i + 3 + odd - t) * LINE + 3 + right) * 16 + h;
            for (int j = span[2 * i + odd][0]; j < span[2 * i + odd][1]; j++) {
                const float s = row[2 * j];
                FULLY for (int k = 0; k < ROWS * 4; k++) acc[k] += load(from + (j - k / 4 * LINE - k % 4) * 16) * s;
            }
        }
        float *to = w->g1 + ((1 - odd + 2 * t) * 8 + 1 - right) * 16 + h;
        FULLY for (int k = 0; k < ROWS * 4; k++) {
            store(to + (k / 4 * 16 + k % 4 * 2) * 16, acc[k]);
            square += acc[k] * acc[k];
        }
        norm += total(square);
    }
    return norm;
}
#undef ROWS

/* sum += f * from; rounded to whole numbers and summed exactly if `exact` is there. */
INLINE void add_scaled(float *sum, double *exact, const float *from, float f, int n) {
    if (exact) {
        add_rounded(exact, from, f, n);
        return;
    }
    for (int i = 0; i < n; i += LANES) store(sum + i, load(sum + i) + load(from + i) * f);
}

PART void prepare(Work *w, const float *p) {
    memset(w->d1, 0, sizeof w->d1); /* its margin stays zero */
    memset(w->w4, 0, sizeof w->w4);
    memset(w->w4t, 0, sizeof w->w4t);
    memset(w->b4, 0, sizeof w->b4);
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 10; j++) w->w4[i * 16 + j] = w->w4t[j * 32 + i] = p[W4 + i * 10 + j];
    memcpy(w->b4, p + B4, 10 * sizeof(float));
    for (int k = 0; k < 16; k++)
        for (int ci = 0; ci < 16; ci++)
            for (int co = 0; co < 32; co++)
                w->w2t[((k / 8 * 32 + co) * 8 + k % 8) * 16 + ci] = p[W2 + (k * 16 + ci) * 32 + co];
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < P2; i++) w->w3t[k * P2 + i] = p[W3 + i * 32 + k];
}

/* The first layers of one record, kept in row r. */
PART void features(Work *w, const float *p, const float *image, int r) {
    find_span(image, w->span[r]);
    conv1(p, image, w->span[r], w->a1[r]);
    pool(w->a1[r] + CORNER, w->p1[r], 12, LINE, 16);
    conv2(p, w->p1[r], w->a2[r]);
    pool(w->a2[r], w->p2[r], 4, 5, 32);
}

/* The dense layers of n records, up to the last one's bias. */
PART void dense(Work *w, const float *p, int n) {
    const vec zero = {0};
    memset(w->h, 0, sizeof w->h);
    memset(w->out, 0, sizeof w->out);
    multiply(w->p2[0], P2, 1, p + W3, 32, w->h[0], 32, n, 32, P2);
    for (int r = 0; r < n; r++)
        for (int j = 0; j < 32; j += LANES) store(w->h[r] + j, larger(load(w->h[r] + j) + load(p + B3 + j), zero));
    multiply(w->h[0], 32, 1, w->w4, 16, w->out[0], 16, n, 16, 32);
}

PART void back_dense(Work *w, int n) {
    loss(w->out[0], w->b4, w->label, n, 10);
    memset(w->d3, 0, sizeof w->d3);
    memset(w->dp2, 0, sizeof w->dp2);
    multiply(w->out[0], 16, 1, w->w4t, 32, w->d3[0], 32, n, 32, 10);
    slope(w->d3[0], w->h[0], n * 32, 0);
    multiply(w->d3[0], 32, 1, w->w3t, P2, w->dp2[0], P2, n, P2, 32);
}

/* A square norm that neither overflows nor vanishes: it will be multiplied by another one. */
INLINE double wide_square(const float *p, int n) {
    doubles part[8] = {{0}}; /* sums that do not wait for each other */
    int i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        FULLY for (int k = 0; k < 4; k++) {
            const vec v = load(p + i + k * LANES);
            const doubles lo = lower(v), hi = upper(v);
            part[2 * k] += lo * lo, part[2 * k + 1] += hi * hi;
        }
    for (; i < n; i += LANES) {
        const doubles lo = lower(load(p + i)), hi = upper(load(p + i));
        part[0] += lo * lo, part[1] += hi * hi;
    }
    double all = 0;
    for (int k = 1; k < 8; k++) part[0] += part[k];
    for (int k = 0; k < LANES / 2; k++) all += part[0][k];
    return all;
}

/* One record's derivatives down to the first layer; returns the squared norm of its gradient. */
PART double backward(Work *w, const float *image, int r) {
    unpool(w->a2[r], w->dp2[r], w->d2, 4, 5, 32);
    double norm = back_conv2_weights(w, w->p1[r]);
    back_conv2_input(w);
    unpool(w->a1[r] + CORNER, w->dp1, w->d1 + CORNER, 12, LINE, 16);
    norm += back_conv1_weights(w, image, w->span[r]);
    for (int h = 0; h < 16; h += LANES) {
        vec sum = {0};
        for (int y = 0; y < 13; y++)
            for (int x = 0; x < 13; x++) sum += load(w->d1 + CORNER + (y * LINE + x) * 16 + h);
        store(w->gb1 + h, sum);
    }
    for (int h = 0; h < 32; h += LANES) {
        vec sum = {0};
        for (int i = 0; i < 25; i++) sum += load(w->d2 + i * 32 + h);
        store(w->gb2 + h, sum);
    }
    norm += square(w->gb1, 16) + square(w->gb2, 32);
    const double inputs = wide_square(w->p2[r], P2) + 1, hidden = wide_square(w->h[r], 32) + 1;
    /* Inputs beyond 2^64 would make a clipped gradient of derivatives that are too small for their last bits. */
    if (!(isfinite((float)inputs) && isfinite((float)hidden))) return INFINITY;
    return norm + inputs * wide_square(w->d3[r], 32) + hidden * wide_square(w->out[r], 16);
}

/* Add the dense layers' gradients of n records whose derivatives are already scaled. */
PART void add_dense(Work *w, float *sum, double *exact, int n) {
    if (!exact) {
        multiply(w->p2[0], 1, P2, w->d3[0], 32, sum + W3, 32, P2, 32, n);
        multiply(w->h[0], 1, 32, w->out[0], 16, w->s4, 16, 32, 16, n);
    }
    for (int r = 0; r < n; r++) {
        if (exact) {
            for (int i = 0; i < P2; i++) add_rounded(exact + W3 + i * 32, w->d3[r], w->p2[r][i], 32);
            for (int i = 0; i < 32; i++) add_rounded(w->e4 + i * 16, w->out[r], w->h[r][i], 16);
        }
        add_scaled(sum + B3, exact ? exact + B3 : 0, w->d3[r], 1, 32);
        add_scaled(w->s4 + 512, exact ? w->e4 + 512 : 0, w->out[r], 1, 16);
    }
}

/* Sum of clipped gradients over the records at index[0..count), into `sum`, or into `exact` in units of 1 / unit with
 * every record's coordinates rounded to whole numbers. */
static void cnn_sum(const float *p, const float *x, const int64_t *y, const int64_t *index, int64_t count, float clip,
                    float unit, float *sum, double *exact, Work *w) {
    prepare(w, p);
    if (exact) memset(exact, 0, DIM * sizeof(double));
    else memset(sum, 0, DIM * sizeof(float));
    memset(w->s2, 0, sizeof w->s2);
    memset(w->s4, 0, sizeof w->s4);
    if (exact) memset(w->e2, 0, sizeof w->e2);
    memset(w->e4, 0, sizeof w->e4);
    for (int64_t first = 0; first < count; first += RECORDS) {
        const int n = count - first < RECORDS ? (int)(count - first) : RECORDS;
        for (int r = 0; r < n; r++) {
            w->label[r] = y[index[first + r]];
            features(w, p, x + index[first + r] * 784, r);
        }
        dense(w, p, n);
        back_dense(w, n);
        for (int r = 0; r < n; r++) {
            const float norm = sqrtf((float)backward(w, x + index[first + r] * 784, r));
            const int fine = isfinite(norm); /* an overflowing record contributes nothing */
            const float f = (norm > clip ? clip / norm : 1) * unit;
            if (fine) {
                add_scaled(sum + W1, exact ? exact + W1 : 0, w->g1, f, 1024);
                add_scaled(sum + B1, exact ? exact + B1 : 0, w->gb1, f, 16);
                add_scaled(w->s2, exact ? w->e2 : 0, w->g2, f, 8192);
                add_scaled(sum + B2, exact ? exact + B2 : 0, w->gb2, f, 32);
            } else {
                memset(w->p2[r], 0, sizeof w->p2[r]);
                memset(w->h[r], 0, sizeof w->h[r]);
            }
            for (int j = 0; j < 32; j++) w->d3[r][j] = fine ? f * w->d3[r][j] : 0;
            for (int j = 0; j < 16; j++) w->out[r][j] = fine ? f * w->out[r][j] : 0;
        }
        add_dense(w, sum, exact, n);
    }
    for (int i = 0; i < 256; i++)
        for (int co = 0; co < 32; co++) {
            if (exact) exact[W2 + i * 32 + co] = w->e2[co * 256 + i];
            else sum[W2 + i * 32 + co] = w->s2[co * 256 + i];
        }
    for (int i = 0; i < 33; i++) /* the bias of the last layer is row 32 */
        for (int j = 0; j < 10; j++) {
            if (exact) exact[W4 + i * 10 + j] = w->e4[i * 16 + j];
            else sum[W4 + i * 10 + j] = w->s4[i * 16 + j];
        }
}

static void cnn_forward(const float *p, const float *x, int64_t count, float *logits, Work *w) {
    prepare(w, p);
    for (int64_t first = 0; first < count; first += RECORDS) {
        const int n = count - first < RECORDS ? (int)(count - first) : RECORDS;
        for (int r = 0; r < n; r++) features(w, p, x + (first + r) * 784, r);
        dense(w, p, n);
        for (int r = 0; r < n; r++)
            for (int j = 0; j < 10; j++) logits[(first + r) * 10 + j] = w->out[r][j] + w->b4[j];
    }
}
