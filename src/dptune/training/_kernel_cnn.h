/* Forward, backward, clipping and summing of the small MNIST network (see _kernel.c).
 *
 * A few records at a time: convolutions one record after the other inside the first cache, dense layers for all of
 * them at once. Products with the padding and with places that no later layer reads are left out: pooling and the
 * second convolution use 13 of the 14 rows and columns of the first one. Every value of a record is computed by the
 * same operations in the same order wherever the record stands in its batch, so its share of a sum depends on no
 * other record. */

/* Whether column 2 x + kx - 3 lies inside the image. */
#define INSIDE(x, kx) (2 * (x) + (kx) >= 3 && 2 * (x) + (kx) < 31)

PART void conv1(const float *p, const float *image, float *a1) {
    const v16 bias = load(p + B1), zero = {0};
    for (int y = 0; y < 13; y++) {
        v16 acc[13];
        FULLY for (int x = 0; x < 13; x++) acc[x] = bias;
        const int first = 2 * y < 3 ? 3 - 2 * y : 0, end = 2 * y > 23 ? 31 - 2 * y : 8;
        for (int ky = first; ky < end; ky++) {
            const float *row = image + (2 * y + ky - 3) * 28, *weights = p + W1 + ky * 128;
            FULLY for (int kx = 0; kx < 8; kx++) {
                const v16 weight = load(weights + kx * 16);
                FULLY for (int x = 0; x < 13; x++)
                    if (INSIDE(x, kx)) acc[x] += weight * row[2 * x + kx - 3];
            }
        }
        FULLY for (int x = 0; x < 13; x++) store(a1 + (y * 13 + x) * 16, larger(acc[x], zero));
    }
}

/* Maximum over 2x2 windows with stride 1; side is the output's side, c the number of channels. */
INLINE void pool(const float *a, float *out, const int side, const int c) {
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int k = 0; k < c; k += 16) {
                const float *q = a + (y * (side + 1) + x) * c + k;
                const float *r = q + (side + 1) * c;
                store(out + (y * side + x) * c + k,
                      larger(larger(load(q), load(q + c)), larger(load(r), load(r + c))));
            }
}

/* Send each derivative to the first largest place of its window, then through the relu: first to the upper or the
 * lower pair of the window, then to the left or the right place of the pair. */
INLINE void unpool(const float *a, const float *dout, float *d, const int side, const int c) {
    const int wide = side + 1;
    for (int k = 0; k < c; k += 16) {
        v16 top[12], down[12];
        FULLY for (int x = 0; x < side; x++) {
            top[x] = larger(load(a + x * c + k), load(a + (x + 1) * c + k));
            down[x] = (v16){0};
        }
        for (int y = 0; y <= side; y++) {
            const float *row = a + y * wide * c + k, *below = row + wide * c, *from = dout + y * side * c + k;
            float *to = d + y * wide * c + k;
            v16 here = load(row), right = {0};
            FULLY for (int x = 0; x < side; x++) {
                v16 pair = down[x];
                if (y < side) {
                    const v16 bottom = larger(load(below + x * c), load(below + (x + 1) * c));
                    const i16 up = top[x] >= bottom, g = (i16)load(from + x * c);
                    pair += (v16)(up & g);
                    down[x] = (v16)(~up & g);
                    top[x] = bottom;
                }
                const v16 next = load(row + (x + 1) * c);
                const i16 left = here >= next;
                store(to + x * c, (v16)((here > 0.0f) & (i16)(right + (v16)(left & (i16)pair))));
                right = (v16)(~left & (i16)pair);
                here = next;
            }
            store(to + side * c, (v16)((here > 0.0f) & (i16)right));
        }
    }
}

PART void conv2(const float *p, const float *p1, float *a2) {
    const v16 zero = {0};
    for (int half = 0; half < 32; half += 16) {
        v16 acc[25];
        FULLY for (int i = 0; i < 25; i++) acc[i] = load(p + B2 + half);
        for (int k = 0; k < 16; k++) {
            const float *in = p1 + ((k / 4) * 12 + k % 4) * 16, *weights = p + W2 + k * 512 + half;
            for (int ci = 0; ci < 16; ci++) {
                const v16 weight = load(weights + ci * 32);
                FULLY for (int i = 0; i < 25; i++) acc[i] += weight * in[((i / 5) * 24 + (i % 5) * 2) * 16 + ci];
            }
        }
        FULLY for (int i = 0; i < 25; i++) store(a2 + i * 32 + half, larger(acc[i], zero));
    }
}

PART void back_conv2_input(Work *w) {
    memset(w->dp1, 0, sizeof w->dp1);
    for (int k = 0; k < 16; k++) {
        v16 acc[25];
        FULLY for (int i = 0; i < 25; i++) acc[i] = (v16){0};
        for (int co = 0; co < 32; co++) {
            const v16 weight = load(w->w2t + (k * 32 + co) * 16);
            FULLY for (int i = 0; i < 25; i++) acc[i] += weight * w->d2[i * 32 + co];
        }
        const int ky = k / 4, kx = k % 4;
        FULLY for (int i = 0; i < 25; i++) {
            float *to = w->dp1 + ((2 * (i / 5) + ky) * 12 + 2 * (i % 5) + kx) * 16;
            store(to, load(to) + acc[i]);
        }
    }
}

/* The gradient of the second convolution's weights; returns its square norm. */
PART float back_conv2_weights(Work *w, const float *p1) {
    v16 square = {0};
    for (int k = 0; k < 16; k++)
        for (int half = 0; half < 16; half += 8) {
            v16 lo[8], hi[8];
            FULLY for (int i = 0; i < 8; i++) lo[i] = hi[i] = (v16){0};
            const float *in = p1 + ((k / 4) * 12 + k % 4) * 16 + half;
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 5; x++) {
                    const v16 a = load(w->d2 + (y * 5 + x) * 32), b = load(w->d2 + (y * 5 + x) * 32 + 16);
                    const float *s = in + (y * 24 + x * 2) * 16;
                    FULLY for (int i = 0; i < 8; i++) lo[i] += a * s[i], hi[i] += b * s[i];
                }
            FULLY for (int i = 0; i < 8; i++) {
                store(w->g2 + (k * 16 + half + i) * 32, lo[i]);
                store(w->g2 + (k * 16 + half + i) * 32 + 16, hi[i]);
                square += lo[i] * lo[i] + hi[i] * hi[i];
            }
        }
    return total(square);
}

/* The gradient of the first convolution's weights; returns its square norm. */
PART float back_conv1_weights(Work *w, const float *image) {
    v16 square = {0};
    for (int ky = 0; ky < 8; ky += 2) {
        v16 acc[16];
        FULLY for (int i = 0; i < 16; i++) acc[i] = (v16){0};
        for (int y = ky ? 0 : 1; y < 13; y++) {
            const int at = 2 * y + ky - 3;
            const float *upper = at < 0 ? w->zeros : image + at * 28;
            const float *lower = at + 1 > 27 ? w->zeros : image + (at + 1) * 28;
            FULLY for (int x = 0; x < 13; x++) {
                const v16 d = load(w->d1 + (y * 13 + x) * 16);
                FULLY for (int kx = 0; kx < 8; kx++)
                    if (INSIDE(x, kx)) {
                        acc[kx] += d * upper[2 * x + kx - 3];
                        acc[8 + kx] += d * lower[2 * x + kx - 3];
                    }
            }
        }
        FULLY for (int i = 0; i < 16; i++) {
            store(w->g1 + (ky * 8 + i) * 16, acc[i]);
            square += acc[i] * acc[i];
        }
    }
    return total(square);
}
#undef INSIDE

/* sum += f * from; rounded to whole numbers and summed exactly if `exact` is there. */
INLINE void add_scaled(float *sum, double *exact, const float *from, float f, int n) {
    if (exact) {
        add_rounded(exact, from, f, n);
        return;
    }
    for (int i = 0; i < n; i += 16) store(sum + i, load(sum + i) + load(from + i) * f);
}

PART void prepare(Work *w, const float *p) {
    memset(w->zeros, 0, sizeof w->zeros);
    memset(w->w4, 0, sizeof w->w4);
    memset(w->w4t, 0, sizeof w->w4t);
    memset(w->b4, 0, sizeof w->b4);
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 10; j++) w->w4[i * 16 + j] = w->w4t[j * 32 + i] = p[W4 + i * 10 + j];
    memcpy(w->b4, p + B4, 10 * sizeof(float));
    for (int k = 0; k < 16; k++)
        for (int ci = 0; ci < 16; ci++)
            for (int co = 0; co < 32; co++) w->w2t[(k * 32 + co) * 16 + ci] = p[W2 + (k * 16 + ci) * 32 + co];
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < P2; i++) w->w3t[k * P2 + i] = p[W3 + i * 32 + k];
}

/* The first layers of one record, kept in row r. */
PART void features(Work *w, const float *p, const float *image, int r) {
    conv1(p, image, w->a1[r]);
    pool(w->a1[r], w->p1[r], 12, 16);
    conv2(p, w->p1[r], w->a2[r]);
    pool(w->a2[r], w->p2[r], 4, 32);
}

/* The dense layers of n records, up to the last one's bias. */
PART void dense(Work *w, const float *p, int n) {
    const v16 zero = {0};
    memset(w->h, 0, sizeof w->h);
    memset(w->out, 0, sizeof w->out);
    multiply(w->p2[0], P2, 1, p + W3, 32, w->h[0], 32, n, 32, P2);
    for (int r = 0; r < n; r++)
        for (int j = 0; j < 32; j += 16) store(w->h[r] + j, larger(load(w->h[r] + j) + load(p + B3 + j), zero));
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
    d8 s = {0};
    for (int i = 0; i < n; i += 16) {
        const v16 v = load(p + i);
        const d8 lo = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), d8);
        const d8 hi = __builtin_convertvector(__builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15), d8);
        s += lo * lo + hi * hi;
    }
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

/* One record's derivatives down to the first layer; returns the squared norm of its gradient. */
PART double backward(Work *w, const float *image, int r) {
    unpool(w->a2[r], w->dp2[r], w->d2, 4, 32);
    double norm = back_conv2_weights(w, w->p1[r]);
    back_conv2_input(w);
    unpool(w->a1[r], w->dp1, w->d1, 12, 16);
    norm += back_conv1_weights(w, image);
    v16 b1 = {0}, b2 = {0}, b3 = {0};
    for (int i = 0; i < 169; i++) b1 += load(w->d1 + i * 16);
    for (int i = 0; i < 25; i++) b2 += load(w->d2 + i * 32), b3 += load(w->d2 + i * 32 + 16);
    store(w->gb1, b1);
    store(w->gb2, b2);
    store(w->gb2 + 16, b3);
    norm += square(w->gb1, 16) + square(w->gb2, 32);
    norm += (wide_square(w->p2[r], P2) + 1) * wide_square(w->d3[r], 32);
    return norm + (wide_square(w->h[r], 32) + 1) * wide_square(w->out[r], 16);
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
    memset(w->s4, 0, sizeof w->s4);
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
                add_scaled(sum + W2, exact ? exact + W2 : 0, w->g2, f, 8192);
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
