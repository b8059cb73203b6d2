/* Layers of described networks, one record at a time (see _kernel_net.h for how values lie). Every value of a record is
 * computed by the same operations in the same order wherever the record stands in its batch. */

/* ---- convolutions, as products with patches ---- */

/* The input with a margin of zeros, `tall` x `broad` places in all; itself where there is none. */
INLINE const float *NAME(with_margin)(const Layer *l, const float *x, float *room, long tall, long broad) {
    if (tall == l->ih && broad == l->iw) return x;
    const long row = l->iw * l->ic, wide = broad * l->ic, before = l->pw * l->ic, after = wide - before - row;
    float *to = room + l->ph * wide;
    memset(room, 0, (size_t)(l->ph * wide) * sizeof(float));
    for (long i = 0; i < l->ih; i++, to += wide) {
        memset(to, 0, (size_t)before * sizeof(float));
        memcpy(to + before, x + i * row, (size_t)row * sizeof(float));
        memset(to + before + row, 0, (size_t)after * sizeof(float));
    }
    memset(to, 0, (size_t)((tall - l->ih - l->ph) * wide) * sizeof(float));
    return room;
}

/* The inputs of places first..end of the output, a row each; whole vectors are copied, the next piece overwrites what
 * was too much. */
PART void NAME(gather_patches)(const Layer *l, const float *x, float *to, long first, long end) {
    const long wide = l->edge_w * l->ic, piece = l->kw * l->ic;
    for (long p = first; p < end; p++, to += l->patch) {
        const float *from = x + p / l->ow * l->sh * wide + p % l->ow * l->sw * l->ic;
        for (long k = 0; k < l->kh; k++)
            for (long j = 0; j < piece; j += LANES) store(to + k * piece + j, load(from + k * wide + j));
    }
}

/* The way back: derivatives by patches are added to those by the input with its margin. */
PART void NAME(scatter_patches)(const Layer *l, const float *from, float *d, long first, long end) {
    const long wide = l->edge_w * l->ic;
    for (long p = first; p < end; p++) {
        float *to = d + p / l->ow * l->sh * wide + p % l->ow * l->sw * l->ic;
        for (long k = 0; k < l->kh; k++, from += l->seg)
            for (long j = 0; j < l->seg; j += LANES) store(to + k * wide + j, load(to + k * wide + j) + load(from + j));
    }
}

/* How many places are computed at a time. */
INLINE long NAME(block_of)(const Layer *l) {
    const long fits = PATCHES / l->patch / 12 * 12;
    return fits < 24 ? 24 : fits;
}

/* Rows of `cols` values, padded to `wide` with zeros. */
INLINE void NAME(pad_rows)(const float *from, float *to, long rows, long cols, long wide) {
    for (long r = 0; r < rows; r++, from += cols, to += wide) {
        memcpy(to, from, (size_t)cols * sizeof(float));
        memset(to + cols, 0, (size_t)(wide - cols) * sizeof(float));
    }
}

#include "_kernel_net_order.h"

#include "_kernel_net_tiles.h"

PART void NAME(conv_forward)(Net *n, const Layer *l, const float *x, float *y) {
    const long block = NAME(block_of)(l);
    const float *bias = l->bias ? l->w + l->depth * l->wide : NULL;
    if (l->tiles) {
        NAME(tiles_forward)(n, l, x, y);
        return;
    }
    x = NAME(with_margin)(l, x, n->edged, l->edge_h, l->edge_w);
    for (long first = 0; first < l->places; first += block) {
        const long end = first + block < l->places ? first + block : l->places, count = end - first;
        float *z = l->wide == l->oc ? y + first * l->oc : n->slopes;
        NAME(gather_patches)(l, x, n->patches, first, end);
        for (long p = 0; p < count; p++)
            for (long j = 0; j < l->wide; j += LANES) store(z + p * l->wide + j, bias ? load(bias + j) : (vec){0});
        multiply(n->patches, l->patch, 1, l->w, l->wide, z, l->wide, count, l->wide, l->depth);
        for (long p = 0; z == n->slopes && p < count; p++)
            memcpy(y + (first + p) * l->oc, z + p * l->wide, (size_t)l->oc * sizeof(float));
    }
}

/* ---- the way back where most derivatives are zero, as behind pooling ---- */

/* Whether they are: at most four of ten; three, or one, where small or large tiles are the other way. It depends on this
 * record alone. */
INLINE int NAME(mostly_zero)(const Layer *l, const float *d) {
    long count = 0, i = 0;
    if (!l->g_few) return 0;
    for (; i + LANES <= l->out; i += LANES) count += __builtin_popcount(nonzero(load(d + i)));
    for (; i < l->out; i++) count += d[i] != 0;
    return count * 10 <= l->out * (!l->tiles ? 4 : l->nw == 4 ? 3 : 1);
}

/* The derivatives that are not zero, listed for every channel and for every place. */
INLINE void NAME(list_slopes)(Net *n, const Layer *l, const float *slopes, long count) {
    int32_t *by_channel = n->counts, *by_place = n->counts + l->wide;
    memset(by_channel, 0, (size_t)l->wide * sizeof *by_channel);
    for (long p = 0; p < count; p++) {
        int32_t found = 0;
        for (long j = 0; j < l->wide; j += LANES)
            for (uint32_t left = nonzero(load(slopes + p * l->wide + j)); left; left &= left - 1) {
                const long c = j + __builtin_ctz(left);
                const float v = slopes[p * l->wide + c];
                const long at = c * FEW_PLACES + by_channel[c]++;
                n->which[0][at] = (int32_t)p, n->value[0][at] = v;
                n->which[1][p * l->wide + found] = (int32_t)c, n->value[1][p * l->wide + found++] = v;
            }
        by_place[p] = found;
    }
}

/* to (a row of `nv` vectors) = or += the listed rows, each times its value. */
INLINE void NAME(add_listed)(const int32_t *which, const float *value, long count, const float *rows, long ld, float *to,
                             int fresh, const int nv) {
    vec acc[8];
    FULLY for (int v = 0; v < nv; v++) acc[v] = fresh ? (vec){0} : load(to + v * LANES);
    for (long k = 0; k < count; k++) {
        const float *row = rows + which[k] * ld, s = value[k];
        FULLY for (int v = 0; v < nv; v++) acc[v] += load(row + v * LANES) * s;
    }
    FULLY for (int v = 0; v < nv; v++) store(to + v * LANES, acc[v]);
}

#define LISTED(nv)                                                                                                 \
    for (; j + nv * LANES <= width; j += nv * LANES)                                                               \
        for (long r = 0; r < rows; r++)                                                                            \
            NAME(add_listed)(which + r * step, value + r * step, counts[r], from + j, ld, to + r * ldt + j, fresh, nv);
/* The same for every row of `to`; 8 vectors of all rows at a time, so that what is read stays in the first cache. */
PART void NAME(add_lists)(const int32_t *which, const float *value, const int32_t *counts, long step, long rows,
                          const float *from, long ld, float *to, long ldt, long width, int fresh) {
    long j = 0;
    LISTED(8)
    LISTED(4)
    LISTED(2)
    LISTED(1)
}
#undef LISTED

/* The gradient of the weights into `g`, the derivatives by the input into `dx` (where that is not null). */
PART void NAME(conv_backward)(Net *n, Layer *l, const float *x, const float *d, float *g, float *dx) {
    const int few = NAME(mostly_zero)(l, d);
    const long block = few ? FEW_PLACES : NAME(block_of)(l);
    const long area = l->edge_h * l->edge_w * l->ic, columns = l->kh * l->seg;
    float *into = l->ph || l->pw ? n->edged + area + SLACK : dx;
    l->few = few;
    if (l->tiles && !few) {
        NAME(tiles_backward)(n, l, x, d, g, dx);
        return;
    }
    x = NAME(with_margin)(l, x, n->edged, l->edge_h, l->edge_w);
    if (few) memset(l->g_few, 0, (size_t)(l->oc * l->long_) * sizeof(float));
    memset(g + l->depth * l->wide, 0, (size_t)(l->bias * l->wide) * sizeof(float));
    if (dx) memset(into, 0, (size_t)area * sizeof(float));
    for (long first = 0; first < l->places; first += block) {
        const long end = first + block < l->places ? first + block : l->places, count = end - first;
        const float *slopes = d + first * l->oc;
        if (l->wide != l->oc) {
            NAME(pad_rows)(slopes, n->slopes, count, l->oc, l->wide);
            slopes = n->slopes;
        }
        NAME(gather_patches)(l, x, n->patches, first, end);
        if (few) {
            NAME(list_slopes)(n, l, slopes, count);
            NAME(add_lists)(n->which[0], n->value[0], n->counts, FEW_PLACES, l->oc, n->patches, l->patch, l->g_few,
                            l->long_, l->long_, 0);
        } else if (first) multiply(n->patches, 1, l->patch, slopes, l->wide, g, l->wide, l->depth, l->wide, count);
        else multiply_fresh(n->patches, 1, l->patch, slopes, l->wide, g, l->wide, l->depth, l->wide, count);
        for (long p = 0; l->bias && p < count; p++) {
            float *to = g + l->depth * l->wide;
            for (long j = 0; j < l->wide; j += LANES) store(to + j, load(to + j) + load(slopes + p * l->wide + j));
        }
        if (!dx) continue;
        if (few)
            NAME(add_lists)(n->which[1], n->value[1], n->counts + l->wide, l->wide, count, l->t, columns, n->lanes,
                            columns, columns, 1);
        else multiply_fresh(slopes, l->wide, 1, l->t, columns, n->lanes, columns, count, columns, l->oc);
        NAME(scatter_patches)(l, n->lanes, into, first, end);
    }
    for (long o = 0; few && o < l->oc; o++) /* behind the end of a patch there is anything */
        for (long i = l->depth; i < l->long_; i++) l->g_few[o * l->long_ + i] = 0;
    const long row = l->iw * l->ic, wide = l->edge_w * l->ic;
    for (long i = 0; dx && into != dx && i < l->ih; i++)
        memcpy(dx + i * row, into + (i + l->ph) * wide + l->pw * l->ic, (size_t)row * sizeof(float));
}

/* ---- pooling ---- */

/* The window of an output's row or column, cut to the input. */
INLINE void NAME(window)(long o, long stride, long padding, long size, long side, long *first, long *end) {
    *first = o * stride - padding;
    *end = *first + size < side ? *first + size : side;
    if (*first < 0) *first = 0;
}

PART void NAME(max_forward)(const Layer *l, const float *x, float *y, int32_t *at) {
    const long c = l->ic;
    for (long i = 0; i < l->oh; i++)
        for (long j = 0; j < l->ow; j++, y += c, at += c) {
            long top, bottom, left, right;
            NAME(window)(i, l->sh, l->ph, l->kh, l->ih, &top, &bottom);
            NAME(window)(j, l->sw, l->pw, l->kw, l->iw, &left, &right);
            memcpy(y, x + (top * l->iw + left) * c, (size_t)c * sizeof(float));
            for (long k = 0; k < c; k++) at[k] = (int32_t)(top * l->iw + left);
            for (long r = top; r < bottom; r++)
                for (long q = left; q < right; q++) {
                    const float *from = x + (r * l->iw + q) * c;
                    const int32_t place = (int32_t)(r * l->iw + q);
                    for (long k = 0; k < c; k++) {
                        const int more = from[k] > y[k];
                        y[k] = more ? from[k] : y[k];
                        at[k] = more ? place : at[k];
                    }
                }
        }
}

PART void NAME(max_backward)(const Layer *l, const int32_t *at, const float *d, float *dx) {
    const long c = l->ic;
    memset(dx, 0, (size_t)l->into * sizeof(float));
    for (long p = 0; p < l->places; p++, at += c, d += c)
        for (long k = 0; k < c; k++) dx[at[k] * c + k] += d[k];
}

/* What one window's sum is multiplied by; c[0]: whether the margin counts. */
INLINE float NAME(share_of)(const Layer *l, long i, long j, long inside) {
    if (l->c[0] == 0) return 1.0f / (float)inside;
    const long bottom = i * l->sh - l->ph + l->kh, right = j * l->sw - l->pw + l->kw;
    const long most_h = l->ih + l->ph, most_w = l->iw + l->pw;
    const long high = l->kh - (bottom > most_h ? bottom - most_h : 0), wide = l->kw - (right > most_w ? right - most_w : 0);
    return 1.0f / (float)(high * wide);
}

PART void NAME(average)(const Layer *l, const float *restrict x, float *restrict y, const float *restrict d,
                        float *restrict dx) {
    const long c = l->ic;
    if (dx) memset(dx, 0, (size_t)l->into * sizeof(float));
    for (long i = 0; i < l->oh; i++)
        for (long j = 0; j < l->ow; j++) {
            long top, bottom, left, right, p = (i * l->ow + j) * c;
            NAME(window)(i, l->sh, l->ph, l->kh, l->ih, &top, &bottom);
            NAME(window)(j, l->sw, l->pw, l->kw, l->iw, &left, &right);
            const float share = NAME(share_of)(l, i, j, (bottom - top) * (right - left));
            if (!dx) memset(y + p, 0, (size_t)c * sizeof(float));
            for (long r = top; r < bottom; r++)
                for (long q = left; q < right; q++) {
                    const long from = (r * l->iw + q) * c;
                    if (dx)
                        for (long k = 0; k < c; k++) dx[from + k] += d[p + k] * share;
                    else
                        for (long k = 0; k < c; k++) y[p + k] += x[from + k];
                }
            if (!dx)
                for (long k = 0; k < c; k++) y[p + k] *= share;
        }
}

/* ---- activations ---- */

INLINE vec NAME(sigmoid)(vec x) { return 0.5f + 0.5f * hyperbolic(0.5f * x); }

/* erf, by the library: there is no short formula of this precision. */
INLINE vec NAME(error_function)(vec x) {
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int i = 0; i < LANES; i++) part[i] = erff(part[i]);
    return load(part);
}

INLINE vec NAME(activated)(const Layer *l, vec x, const int act) {
    const vec zero = {0};
    switch (act) {
    case RELU: return (vec)(~(x <= zero) & (ints)x); /* keeps NaN */
    case TANH: return hyperbolic(x);
    case SIGMOID: return NAME(sigmoid)(x * l->c[1]) * l->c[0] - l->c[2]; /* scale, temperature, offset */
    case SILU: return x * NAME(sigmoid)(x);
    case GELU: return 0.5f * x * (1.0f + NAME(error_function)(x * 0.70710678f));
    case GELU_TANH: return x * NAME(sigmoid)(1.59576912f * (x + 0.044715f * x * x * x));
    default: { /* c[0] (exp(x) - 1), or x; then times c[1] */
        const vec small = x * (1.0f + x * (0.5f + x * (0.16666667f + x * (4.1666667e-2f + x * 8.3333333e-3f))));
        const vec least = exponential(blend(x > zero, zero, x)) - 1.0f;
        const vec below = blend(x > zero - 0.06f, small, least) * l->c[0];
        return blend(x <= zero, below, x) * l->c[1];
    }
    }
}

/* The derivative at input x, where the output is y. */
INLINE vec NAME(steepness)(const Layer *l, vec x, vec y, const int act) {
    const vec zero = {0}, one = zero + 1.0f;
    switch (act) {
    case RELU: return blend(y > zero, one, zero);
    case TANH: return 1.0f - y * y;
    case SIGMOID: {
        const vec s = (y + l->c[2]) / l->c[0];
        return l->c[0] * l->c[1] * (s * (1.0f - s));
    }
    case SILU: {
        const vec s = NAME(sigmoid)(x);
        return s * (1.0f + x * (1.0f - s));
    }
    case GELU:
        return 0.5f * (1.0f + NAME(error_function)(x * 0.70710678f)) + x * 0.39894228f * exponential(-0.5f * x * x);
    case GELU_TANH: {
        const vec s = NAME(sigmoid)(1.59576912f * (x + 0.044715f * x * x * x));
        return s + x * s * (1.0f - s) * (1.59576912f * (1.0f + 0.134145f * x * x));
    }
    default: return blend(y > zero, zero + l->c[1], y + l->c[0] * l->c[1]);
    }
}

#define EACH(act)                                                                              \
    for (long i = 0; i < l->out; i += LANES) {                                                 \
        if (d) store(d + i, load(d + i) * NAME(steepness)(l, load(x + i), load(y + i), act));  \
        else store(y + i, NAME(activated)(l, load(x + i), act));                               \
    }                                                                                          \
    break;
/* The activation of a record's values, or (where `d` is not null) derivatives by the output made those by the input. */
PART void NAME(activation)(const Layer *l, const float *x, float *y, float *d) {
    switch (l->act) {
    case RELU: EACH(RELU)
    case TANH: EACH(TANH)
    case SIGMOID: EACH(SIGMOID)
    case SILU: EACH(SILU)
    case GELU: EACH(GELU)
    case GELU_TANH: EACH(GELU_TANH)
    default: EACH(ELU)
    }
    float *to = d ? d : y;
    for (long i = l->out; i < l->outof; i++) to[i] = 0;
}
#undef EACH

#include "_kernel_net_norms.h"

#include "_kernel_net_pooled.h"
