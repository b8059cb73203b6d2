/* Forward, backward, clipping and summing of the small MNIST network (see _kernel.c), one record at a time. */

PART void conv1(Work *w, const float *p) {
    const v16 bias = load(p + B1), zero = {0};
    for (int y = 0; y < 14; y++) {
        v16 acc[14];
        FULLY for (int x = 0; x < 14; x++) acc[x] = bias;
        for (int ky = 0; ky < 8; ky++) {
            const float *row = w->image + (2 * y + ky) * PAD;
            for (int kx = 0; kx < 8; kx++) {
                const v16 weight = load(p + W1 + (ky * 8 + kx) * 16);
                FULLY for (int x = 0; x < 14; x++) acc[x] += weight * row[2 * x + kx];
            }
        }
        FULLY for (int x = 0; x < 14; x++) store(w->a1 + (y * 14 + x) * 16, larger(acc[x], zero));
    }
}

/* Maximum over 2x2 windows with stride 1; side is the output's side, c the number of channels. */
INLINE void pool(const float *a, float *out, int side, int c) {
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int k = 0; k < c; k += 16) {
                const float *q = a + (y * (side + 1) + x) * c + k;
                const float *r = q + (side + 1) * c;
                store(out + (y * side + x) * c + k,
                      larger(larger(load(q), load(q + c)), larger(load(r), load(r + c))));
            }
}

/* Send each derivative to the first largest place of its window, then through the relu. */
INLINE void unpool(const float *a, const float *out, const float *dout, float *d, int side, int c) {
    const int wide = side + 1;
    memset(d, 0, sizeof(float) * (size_t)(wide * wide * c));
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++)
            for (int k = 0; k < c; k += 16) {
                const int at = (y * wide + x) * c + k;
                const v16 m = load(out + (y * side + x) * c + k);
                const v16 g = load(dout + (y * side + x) * c + k);
                const int place[4] = {at, at + c, at + wide * c, at + wide * c + c};
                i16 left = m > 0.0f;
                for (int j = 0; j < 4; j++) {
                    const i16 here = left & (load(a + place[j]) == m);
                    store(d + place[j], load(d + place[j]) + (v16)(here & (i16)g));
                    left &= ~here;
                }
            }
}

INLINE void conv2_rows(Work *w, const float *p, const int y, const int rows) {
    const v16 zero = {0};
    v16 lo[10], hi[10];
    FULLY for (int i = 0; i < 5 * rows; i++) lo[i] = load(p + B2), hi[i] = load(p + B2 + 16);
    for (int ky = 0; ky < 4; ky++)
        for (int kx = 0; kx < 4; kx++) {
            const float *in = w->p1 + ((2 * y + ky) * 13 + kx) * 16;
            const float *weight = p + W2 + (ky * 4 + kx) * 512;
            for (int ci = 0; ci < 16; ci++) {
                const v16 a = load(weight + ci * 32), b = load(weight + ci * 32 + 16);
                FULLY for (int i = 0; i < 5 * rows; i++) {
                    const float s = in[((i / 5) * 26 + (i % 5) * 2) * 16 + ci];
                    lo[i] += a * s;
                    hi[i] += b * s;
                }
            }
        }
    FULLY for (int i = 0; i < 5 * rows; i++) {
        store(w->a2 + (y * 5 + i) * 32, larger(lo[i], zero));
        store(w->a2 + (y * 5 + i) * 32 + 16, larger(hi[i], zero));
    }
}

PART void conv2(Work *w, const float *p) {
    for (int y = 0; y < 4; y += 2) conv2_rows(w, p, y, 2);
    conv2_rows(w, p, 4, 1);
}

PART void dense(Work *w, const float *p) {
    const v16 zero = {0};
    v16 lo = load(p + B3), hi = load(p + B3 + 16), lo2 = zero, hi2 = zero;
    for (int i = 0; i < P2; i += 2) {
        lo += load(p + W3 + i * 32) * w->p2[i];
        hi += load(p + W3 + i * 32 + 16) * w->p2[i];
        lo2 += load(p + W3 + i * 32 + 32) * w->p2[i + 1];
        hi2 += load(p + W3 + i * 32 + 48) * w->p2[i + 1];
    }
    store(w->h, larger(lo + lo2, zero));
    store(w->h + 16, larger(hi + hi2, zero));
    v16 out = load(w->b4);
    for (int i = 0; i < 32; i++) out += load(w->w4 + i * 16) * w->h[i];
    store(w->out, out);
}

PART void forward(Work *w, const float *p, const float *x) {
    for (int y = 0; y < 28; y++) memcpy(w->image + (y + 3) * PAD + 3, x + y * 28, 28 * sizeof(float));
    conv1(w, p);
    pool(w->a1, w->p1, 13, 16);
    conv2(w, p);
    pool(w->a2, w->p2, 4, 32);
    dense(w, p);
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
            float *to = w->dp1 + ((2 * (i / 5) + ky) * 13 + 2 * (i % 5) + kx) * 16;
            store(to, load(to) + acc[i]);
        }
    }
}

PART void back_conv2_weights(Work *w) {
    for (int k = 0; k < 16; k++)
        for (int half = 0; half < 16; half += 8) {
            v16 lo[8], hi[8];
            FULLY for (int i = 0; i < 8; i++) lo[i] = hi[i] = (v16){0};
            const float *in = w->p1 + ((k / 4) * 13 + k % 4) * 16 + half;
            for (int y = 0; y < 5; y++)
                for (int x = 0; x < 5; x++) {
                    const v16 a = load(w->d2 + (y * 5 + x) * 32), b = load(w->d2 + (y * 5 + x) * 32 + 16);
                    const float *s = in + (y * 26 + x * 2) * 16;
                    FULLY for (int i = 0; i < 8; i++) lo[i] += a * s[i], hi[i] += b * s[i];
                }
            FULLY for (int i = 0; i < 8; i++) {
                store(w->g2 + (k * 16 + half + i) * 32, lo[i]);
                store(w->g2 + (k * 16 + half + i) * 32 + 16, hi[i]);
            }
        }
}

PART void back_conv1_weights(Work *w) {
    for (int ky = 0; ky < 8; ky += 2) {
        v16 acc[16];
        FULLY for (int i = 0; i < 16; i++) acc[i] = (v16){0};
        for (int y = 0; y < 14; y++) {
            const float *row = w->image + (2 * y + ky) * PAD;
            for (int x = 0; x < 14; x++) {
                const v16 d = load(w->d1 + (y * 14 + x) * 16);
                const float *s = row + 2 * x;
                FULLY for (int i = 0; i < 8; i++) acc[i] += d * s[i], acc[8 + i] += d * s[PAD + i];
            }
        }
        FULLY for (int i = 0; i < 16; i++) store(w->g1 + (ky * 8 + i) * 16, acc[i]);
    }
}

INLINE float square(const float *p, int n) {
    v16 s = {0};
    for (int i = 0; i < n; i += 16) s += load(p + i) * load(p + i);
    return total(s);
}

INLINE void add_scaled(float *to, const float *from, float f, int n) {
    for (int i = 0; i < n; i += 16) store(to + i, load(to + i) + load(from + i) * f);
}

/* One record's derivatives down to the first layer; returns the squared norm of its gradient. */
PART float backward(Work *w, int label) {
    float most = w->out[0], sum = 0;
    for (int i = 1; i < 10; i++) most = w->out[i] > most ? w->out[i] : most;
    for (int i = 0; i < 10; i++) sum += (w->out[i] = expf(w->out[i] - most));
    for (int i = 0; i < 10; i++) w->out[i] /= sum;
    for (int i = 10; i < 16; i++) w->out[i] = 0;
    w->out[label] -= 1;
    const v16 d4 = load(w->out);
    for (int i = 0; i < 32; i++) w->d3[i] = w->h[i] > 0 ? total(load(w->w4 + i * 16) * d4) : 0;
    for (int i = 0; i < P2; i += 128) {
        v16 acc[8];
        FULLY for (int j = 0; j < 8; j++) acc[j] = (v16){0};
        for (int k = 0; k < 32; k++) {
            const float s = w->d3[k];
            FULLY for (int j = 0; j < 8; j++) acc[j] += load(w->w3t + k * P2 + i + j * 16) * s;
        }
        FULLY for (int j = 0; j < 8; j++) store(w->dp2 + i + j * 16, acc[j]);
    }
    unpool(w->a2, w->p2, w->dp2, w->d2, 4, 32);
    back_conv2_weights(w);
    back_conv2_input(w);
    unpool(w->a1, w->p1, w->dp1, w->d1, 13, 16);
    back_conv1_weights(w);
    v16 b1 = {0}, b2 = {0}, b3 = {0};
    for (int i = 0; i < 196; i++) b1 += load(w->d1 + i * 16);
    for (int i = 0; i < 25; i++) b2 += load(w->d2 + i * 32), b3 += load(w->d2 + i * 32 + 16);
    store(w->gb1, b1);
    store(w->gb2, b2);
    store(w->gb2 + 16, b3);
    return square(w->g1, 1024) + square(w->gb1, 16) + square(w->g2, 8192) + square(w->gb2, 32) +
           (square(w->p2, P2) + 1) * square(w->d3, 32) + (square(w->h, 32) + 1) * square(w->out, 16);
}

PART void prepare(Work *w, const float *p) {
    memset(w->image, 0, sizeof w->image);
    memset(w->w4, 0, sizeof w->w4);
    memset(w->b4, 0, sizeof w->b4);
    for (int i = 0; i < 32; i++) memcpy(w->w4 + i * 16, p + W4 + i * 10, 10 * sizeof(float));
    memcpy(w->b4, p + B4, 10 * sizeof(float));
    for (int k = 0; k < 16; k++)
        for (int ci = 0; ci < 16; ci++)
            for (int co = 0; co < 32; co++) w->w2t[(k * 32 + co) * 16 + ci] = p[W2 + (k * 16 + ci) * 32 + co];
    for (int i = 0; i < P2; i++)
        for (int k = 0; k < 32; k++) w->w3t[k * P2 + i] = p[W3 + i * 32 + k];
}

/* Sum of clipped gradients over the records at index[0..count). Scratch holds count * (512 + 32) floats. */
static void cnn_sum(const float *p, const float *x, const int64_t *y, const int64_t *index, int64_t count,
                           float clip, float *sum, float *scratch, Work *w) {
    prepare(w, p);
    memset(sum, 0, DIM * sizeof(float));
    float *inputs = scratch, *deltas = scratch + count * P2;
    for (int64_t r = 0; r < count; r++) {
        forward(w, p, x + index[r] * 784);
        const float norm = sqrtf(backward(w, (int)y[index[r]]));
        memcpy(inputs + r * P2, w->p2, sizeof w->p2);
        if (!isfinite(norm)) { /* an overflowing record contributes nothing */
            memset(inputs + r * P2, 0, sizeof w->p2);
            memset(deltas + r * 32, 0, sizeof w->d3);
            continue;
        }
        const float f = norm > clip ? clip / norm : 1;
        add_scaled(sum + W1, w->g1, f, 1024);
        add_scaled(sum + B1, w->gb1, f, 16);
        add_scaled(sum + W2, w->g2, f, 8192);
        add_scaled(sum + B2, w->gb2, f, 32);
        for (int i = 0; i < 32; i++) deltas[r * 32 + i] = f * w->d3[i];
        add_scaled(sum + B3, w->d3, f, 32);
        for (int i = 0; i < 32; i++)
            for (int j = 0; j < 10; j++) sum[W4 + i * 10 + j] += f * w->h[i] * w->out[j];
        for (int j = 0; j < 10; j++) sum[B4 + j] += f * w->out[j];
    }
    for (int i = 0; i < P2; i += 8) {
        v16 lo[8], hi[8];
        FULLY for (int j = 0; j < 8; j++) lo[j] = hi[j] = (v16){0};
        for (int64_t r = 0; r < count; r++) {
            const v16 a = load(deltas + r * 32), b = load(deltas + r * 32 + 16);
            const float *s = inputs + r * P2 + i;
            FULLY for (int j = 0; j < 8; j++) lo[j] += a * s[j], hi[j] += b * s[j];
        }
        FULLY for (int j = 0; j < 8; j++) {
            store(sum + W3 + (i + j) * 32, lo[j]);
            store(sum + W3 + (i + j) * 32 + 16, hi[j]);
        }
    }
}

static void cnn_forward(const float *p, const float *x, int64_t count, float *logits, Work *w) {
    prepare(w, p);
    for (int64_t r = 0; r < count; r++) {
        forward(w, p, x + r * 784);
        memcpy(logits + r * 10, w->out, 10 * sizeof(float));
    }
}
