/* Convolutions of 3 x 3 with stride 1 by fewer products: Winograd's minimal filtering.
 *
 * Outputs are taken in tiles of 2 x 2, 2 x 4 or 4 x 4. A tile's inputs (two more on each side) become as many values, the
 * weights become as many tables, a product of matrices for each replaces nine for each output, and the sums become the
 * outputs. The way back is the same in reverse: each step's transpose. Channels are lanes. */

#include "_kernel_net_sides.h"

enum { NAME(MOST_NODES) = 36 };

/* The same for both sides of a table of `nh` x `nw` values: first so many columns, then so many rows. */
#define BOTH(f, columns, rows)                                                                  \
    do {                                                                                        \
        FULLY for (int j = 0; j < (columns); j++) NAME(f)(t + j, nw, nh == 6);                  \
        FULLY for (int i = 0; i < (rows); i++) NAME(f)(t + i * nw, 1, nw == 6);                 \
    } while (0)

/* The tables of nine tables of `size` values (a multiple of 16). */
INLINE void NAME(tile_weights)(const float *w, float *u, long size, const int nh, const int nw) {
    for (long j = 0; j < size; j += LANES) {
        vec t[NAME(MOST_NODES)];
        FULLY for (int k = 0; k < 9; k++) t[k / 3 * nw + k % 3] = load(w + k * size + j);
        BOTH(side_weights, 3, nh);
        FULLY for (int k = 0; k < nh * nw; k++) store(u + k * size + j, t[k]);
    }
}

/* The way back for the first `some` values of tables that are `apart`. */
INLINE void NAME(untile_weights)(const float *u, float *g, long apart, long size, long some, const int nh, const int nw) {
    for (long j = 0; j < some; j += LANES) {
        vec t[NAME(MOST_NODES)];
        FULLY for (int k = 0; k < nh * nw; k++) t[k] = load(u + k * apart + j);
        BOTH(side_weights_back, nw, 3);
        FULLY for (int k = 0; k < 9; k++) store(g + k * size + j, t[k / 3 * nw + k % 3]);
    }
}

/* Where tile t_ begins in an image of rows `wide` values long with `c` channels. */
#define BEGIN(c, wide) (t_ / l->tw * (nh - 2) * (wide) + t_ % l->tw * (nw - 2) * (c))

/* Inputs of tiles first..end, tables `apart` with a row for each tile. */
INLINE void NAME(read_inputs)(const Layer *l, const float *x, float *v, long apart, long first, long end, const int nh,
                              const int nw) {
    const long c = l->ic, wide = l->broad * c;
    for (long t_ = first; t_ < end; t_++, v += c) {
        const float *from = x + BEGIN(c, wide);
        for (long j = 0; j < c; j += LANES) {
            vec t[NAME(MOST_NODES)];
            FULLY for (int k = 0; k < nh * nw; k++) t[k] = load(from + k / nw * wide + k % nw * c + j);
            BOTH(side_inputs, nw, nh);
            FULLY for (int k = 0; k < nh * nw; k++) store(v + k * apart + j, t[k]);
        }
    }
}

/* The way back: added to derivatives by the input with its margin. */
INLINE void NAME(write_inputs)(const Layer *l, float *x, const float *v, long apart, long first, long end, const int nh,
                               const int nw) {
    const long c = l->ic, wide = l->broad * c;
    for (long t_ = first; t_ < end; t_++, v += c) {
        float *to = x + BEGIN(c, wide);
        for (long j = 0; j < c; j += LANES) {
            vec t[NAME(MOST_NODES)];
            FULLY for (int k = 0; k < nh * nw; k++) t[k] = load(v + k * apart + j);
            BOTH(side_inputs_back, nw, nh);
            FULLY for (int k = 0; k < nh * nw; k++) {
                float *place = to + k / nw * wide + k % nw * c + j;
                store(place, load(place) + t[k]);
            }
        }
    }
}

/* How many rows and columns of a tile's outputs lie in the image. */
#define INSIDE                                                                                                \
    const long down = l->oh - t_ / l->tw * (nh - 2), right = l->ow - t_ % l->tw * (nw - 2);                   \
    const int rows = down < nh - 2 ? (int)down : nh - 2, columns = right < nw - 2 ? (int)right : nw - 2

/* Outputs of tiles first..end; those outside of the image are left out. */
INLINE void NAME(write_outputs)(const Layer *l, float *y, const float *m, long apart, long first, long end, const int nh,
                                const int nw) {
    const long c = l->oc, wide = l->ow * c;
    const float *bias = l->bias ? l->w + l->depth * l->wide : NULL;
    for (long t_ = first; t_ < end; t_++, m += c) {
        float *to = y + BEGIN(c, wide);
        INSIDE;
        for (long j = 0; j < c; j += LANES) {
            const vec add = bias ? load(bias + j) : (vec){0};
            vec t[NAME(MOST_NODES)];
            FULLY for (int k = 0; k < nh * nw; k++) t[k] = load(m + k * apart + j);
            BOTH(side_outputs, nw, nh - 2);
            FULLY for (int i = 0; i < nh - 2; i++) {
                if (i >= rows) break;
                FULLY for (int k = 0; k < nw - 2; k++)
                    if (k < columns) store(to + i * wide + k * c + j, t[i * nw + k] + add);
            }
        }
    }
}

/* Derivatives by the outputs of tiles first..end; their sum over places is added to `bias` where that is not null. */
INLINE void NAME(read_outputs)(const Layer *l, const float *d, float *m, long apart, long first, long end, float *bias,
                               const int nh, const int nw) {
    const long c = l->oc, wide = l->ow * c;
    for (long t_ = first; t_ < end; t_++, m += c) {
        const float *from = d + BEGIN(c, wide);
        INSIDE;
        for (long j = 0; j < c; j += LANES) {
            vec t[NAME(MOST_NODES)], all = {0};
            FULLY for (int i = 0; i < nh - 2; i++)
                FULLY for (int k = 0; k < nw - 2; k++) {
                    const vec own = i < rows && k < columns ? load(from + i * wide + k * c + j) : (vec){0};
                    t[i * nw + k] = own, all += own;
                }
            if (bias) store(bias + j, load(bias + j) + all);
            BOTH(side_outputs_back, nw - 2, nh);
            FULLY for (int k = 0; k < nh * nw; k++) store(m + k * apart + j, t[k]);
        }
    }
}
#undef BOTH
#undef BEGIN
#undef INSIDE

/* Each of these for every size of tiles. */
#define SIZES(name, given, passed)                                  \
    PART void NAME(name##_of)(given) {                              \
        if (l->nh == 6) NAME(name)(passed, 6, 6);                   \
        else if (l->nw == 6) NAME(name)(passed, 4, 6);              \
        else NAME(name)(passed, 4, 4);                              \
    }
#define GIVEN(...) __VA_ARGS__
SIZES(tile_weights, GIVEN(const Layer *l, const float *w, float *u, long size), GIVEN(w, u, size))
SIZES(untile_weights, GIVEN(const Layer *l, const float *u, float *g, long apart, long size, long some),
      GIVEN(u, g, apart, size, some))
SIZES(read_inputs, GIVEN(const Layer *l, const float *x, float *v, long apart, long first, long end),
      GIVEN(l, x, v, apart, first, end))
SIZES(write_inputs, GIVEN(const Layer *l, float *x, const float *v, long apart, long first, long end),
      GIVEN(l, x, v, apart, first, end))
SIZES(write_outputs, GIVEN(const Layer *l, float *y, const float *m, long apart, long first, long end),
      GIVEN(l, y, m, apart, first, end))
SIZES(read_outputs, GIVEN(const Layer *l, const float *d, float *m, long apart, long first, long end, float *bias),
      GIVEN(l, d, m, apart, first, end, bias))
#undef SIZES
#undef GIVEN

/* How many tiles are taken at a time: what they become stays in the second cache. */
INLINE long NAME(tiles_at_once)(const Layer *l) {
    const long parts = (l->tiles + l->some - 1) / l->some;
    return ((l->tiles + parts - 1) / parts + 11) / 12 * 12;
}

PART void NAME(tiles_forward)(Net *n, const Layer *l, const float *x, float *y) {
    const long block = NAME(tiles_at_once)(l), in = block * l->ic + 16, out = block * l->oc + 16, size = l->ic * l->oc;
    x = NAME(with_margin)(l, x, n->edged, l->tall, l->broad);
    for (long first = 0; first < l->tiles; first += block) {
        const long end = first + block < l->tiles ? first + block : l->tiles, count = end - first;
        NAME(read_inputs_of)(l, x, n->tile_x, in, first, end);
        for (int k = 0; k < l->nh * l->nw; k++)
            multiply_fresh(n->tile_x + k * in, l->ic, 1, l->u + k * size, l->oc, n->tile_y + k * out, l->oc, count,
                           l->oc, l->ic);
        NAME(write_outputs_of)(l, y, n->tile_y, out, first, end);
    }
}

/* The gradient of the weights into `g`, from tiles first.. that have been read. Where these are all, a few input channels
 * at a time, so that their tables stay in the second cache. Tables are not a power of two apart: those would fall into
 * the same lines of the first cache. */
INLINE void NAME(tiles_gradient)(Net *n, const Layer *l, float *g, long in, long out, long first, long count) {
    const long size = l->ic * l->oc, apart = size + 16;
    const int nodes = l->nh * l->nw, all = count == l->tiles, last = first + count == l->tiles;
    const long some = all && l->some_rows < l->ic ? l->some_rows : l->ic;
    for (long i = 0; i < l->ic; i += some) {
        const long rows = l->ic - i < some ? l->ic - i : some;
        for (int k = 0; k < nodes; k++) {
            const float *v = n->tile_x + k * in + i, *m = n->tile_y + k * out;
            if (first) multiply(v, 1, l->ic, m, l->oc, n->tile_g + k * apart, l->oc, rows, l->oc, count);
            else multiply_fresh(v, 1, l->ic, m, l->oc, n->tile_g + k * apart, l->oc, rows, l->oc, count);
        }
        if (last) NAME(untile_weights_of)(l, n->tile_g, g + i * l->oc, apart, size, rows * l->oc);
    }
}

/* The gradient of the weights into `g`, the derivatives by the input into `dx` (where that is not null). */
PART void NAME(tiles_backward)(Net *n, const Layer *l, const float *x, const float *d, float *g, float *dx) {
    const long block = NAME(tiles_at_once)(l), in = block * l->ic + 16, out = block * l->oc + 16, size = l->ic * l->oc;
    const long area = l->tall * l->broad * l->ic;
    float *into = l->tall == l->ih && l->broad == l->iw ? dx : n->edged + area + SLACK;
    float *bias = l->bias ? g + l->depth * l->wide : NULL;
    x = NAME(with_margin)(l, x, n->edged, l->tall, l->broad);
    if (bias) memset(bias, 0, (size_t)l->wide * sizeof(float));
    if (dx) memset(into, 0, (size_t)area * sizeof(float));
    for (long first = 0; first < l->tiles; first += block) {
        const long end = first + block < l->tiles ? first + block : l->tiles, count = end - first;
        NAME(read_inputs_of)(l, x, n->tile_x, in, first, end);
        NAME(read_outputs_of)(l, d, n->tile_y, out, first, end, bias);
        NAME(tiles_gradient)(n, l, g, in, out, first, count);
        if (!dx) continue;
        for (int k = 0; k < l->nh * l->nw; k++) /* nobody needs the inputs any more */
            multiply_fresh(n->tile_y + k * out, l->oc, 1, l->ut + k * size, l->ic, n->tile_x + k * in, l->ic, count, l->ic,
                           l->oc);
        NAME(write_inputs_of)(l, into, n->tile_x, in, first, end);
    }
    const long row = l->iw * l->ic, wide = l->broad * l->ic;
    for (long i = 0; dx && into != dx && i < l->ih; i++)
        memcpy(dx + i * row, into + (i + l->ph) * wide + l->pw * l->ic, (size_t)row * sizeof(float));
}

/* The weights in both ways that tiles need them. */
PART void NAME(prepare_tiles)(const Layer *l) {
    const long size = l->ic * l->oc;
    NAME(tile_weights_of)(l, l->w, l->u, size);
    for (long k = 0; l->ut && k < l->nh * l->nw; k++)
        NAME(turn_table)(l->u + k * size, l->ut + k * size, l->ic, l->oc, l->oc, l->ic);
}
