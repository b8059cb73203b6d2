/* Convolutions of 3 x 3 with stride 1 by fewer products: Winograd's minimal filtering F(2x2, 3x3).
 *
 * Outputs are taken in tiles of 2 x 2. A tile's 4 x 4 inputs become 16 values (B'xB), the weights become 16 tables (GwG'),
 * 16 products of matrices replace 36, and 16 sums become four outputs (A'mA). The way back is the same in reverse: each
 * step's transpose, so derivatives are those of what was computed forward. Constants are 1 and 1/2: the error is about
 * twice that of plain products (larger tiles save more and lose a digit). Channels are lanes. */

/* Four values of a row or column, `step` apart, in place. */
#define FOUR(f, at, step)                                                                            \
    do {                                                                                             \
        const vec p0 = at[0], p1 = at[(step)], p2 = at[2 * (step)], p3 = at[3 * (step)];             \
        f                                                                                            \
    } while (0)

/* B'xB: inputs of a tile. */
INLINE void NAME(tile_of_inputs)(vec t[16]) {
    FULLY for (int side = 0; side < 2; side++)
        FULLY for (int i = 0; i < 4; i++) {
            vec *at = t + (side ? 4 * i : i);
            const int step = side ? 1 : 4;
            FOUR(at[0] = p0 - p2; at[step] = p1 + p2; at[2 * step] = p2 - p1; at[3 * step] = p1 - p3;, at, step);
        }
}

/* BvB': its transpose. */
INLINE void NAME(inputs_of_tile)(vec t[16]) {
    FULLY for (int side = 0; side < 2; side++)
        FULLY for (int i = 0; i < 4; i++) {
            vec *at = t + (side ? 4 * i : i);
            const int step = side ? 1 : 4;
            FOUR(at[0] = p0; at[step] = p1 - p2 + p3; at[2 * step] = p1 + p2 - p0; at[3 * step] = -p3;, at, step);
        }
}
#undef FOUR

/* A'mA: four outputs, in t[0], t[1], t[4] and t[5]. */
INLINE void NAME(outputs_of_tile)(vec t[16]) {
    FULLY for (int i = 0; i < 4; i++) {
        const vec a = t[i] + t[4 + i] + t[8 + i], b = t[4 + i] - t[8 + i] - t[12 + i];
        t[i] = a, t[4 + i] = b;
    }
    FULLY for (int i = 0; i < 8; i += 4) {
        const vec a = t[i] + t[i + 1] + t[i + 2], b = t[i + 1] - t[i + 2] - t[i + 3];
        t[i] = a, t[i + 1] = b;
    }
}

/* AdA': its transpose. */
INLINE void NAME(tile_of_outputs)(vec t[16]) {
    FULLY for (int i = 0; i < 8; i += 4) {
        const vec a = t[i], b = t[i + 1];
        t[i + 1] = a + b, t[i + 2] = a - b, t[i + 3] = -b;
    }
    FULLY for (int i = 0; i < 4; i++) {
        const vec a = t[i], b = t[4 + i];
        t[4 + i] = a + b, t[8 + i] = a - b, t[12 + i] = -b;
    }
}

/* GwG' of nine tables of `size` values (a multiple of 16): sixteen tables. */
PART void NAME(tile_weights)(const float *w, float *u, long size) {
    for (long j = 0; j < size; j += LANES) {
        vec t[16];
        FULLY for (int i = 0; i < 3; i++) {
            const vec a = load(w + i * size + j), b = load(w + (3 + i) * size + j), c = load(w + (6 + i) * size + j);
            t[i] = a, t[4 + i] = 0.5f * (a + c + b), t[8 + i] = 0.5f * (a + c - b), t[12 + i] = c;
        }
        FULLY for (int i = 0; i < 16; i += 4) {
            const vec a = t[i], b = t[i + 1], c = t[i + 2];
            t[i + 1] = 0.5f * (a + c + b), t[i + 2] = 0.5f * (a + c - b), t[i + 3] = c;
        }
        FULLY for (int k = 0; k < 16; k++) store(u + k * size + j, t[k]);
    }
}

/* G'uG: its transpose. */
PART void NAME(untile_weights)(const float *u, float *g, long size) {
    for (long j = 0; j < size; j += LANES) {
        vec t[16];
        FULLY for (int k = 0; k < 16; k++) t[k] = load(u + k * size + j);
        FULLY for (int i = 0; i < 4; i++) {
            const vec a = 0.5f * (t[4 + i] + t[8 + i]), b = 0.5f * (t[4 + i] - t[8 + i]);
            t[i] += a, t[4 + i] = b, t[8 + i] = a + t[12 + i];
        }
        FULLY for (int i = 0; i < 3; i++) {
            const vec a = 0.5f * (t[4 * i + 1] + t[4 * i + 2]), b = 0.5f * (t[4 * i + 1] - t[4 * i + 2]);
            store(g + 3 * i * size + j, t[4 * i] + a);
            store(g + (3 * i + 1) * size + j, b);
            store(g + (3 * i + 2) * size + j, a + t[4 * i + 3]);
        }
    }
}

/* Inputs of tiles first..end, sixteen tables `apart` with a row for each tile. */
PART void NAME(read_inputs)(const Layer *l, const float *x, float *v, long apart, long first, long end) {
    const long c = l->ic, wide = l->broad * c;
    for (long t = first; t < end; t++, v += c) {
        const float *from = x + t / l->tw * 2 * wide + t % l->tw * 2 * c;
        for (long j = 0; j < c; j += LANES) {
            vec at[16];
            FULLY for (int k = 0; k < 16; k++) at[k] = load(from + k / 4 * wide + k % 4 * c + j);
            NAME(tile_of_inputs)(at);
            FULLY for (int k = 0; k < 16; k++) store(v + k * apart + j, at[k]);
        }
    }
}

/* The way back: added to derivatives by the input with its margin. */
PART void NAME(write_inputs)(const Layer *l, float *x, const float *v, long apart, long first, long end) {
    const long c = l->ic, wide = l->broad * c;
    for (long t = first; t < end; t++, v += c) {
        float *to = x + t / l->tw * 2 * wide + t % l->tw * 2 * c;
        for (long j = 0; j < c; j += LANES) {
            vec at[16];
            FULLY for (int k = 0; k < 16; k++) at[k] = load(v + k * apart + j);
            NAME(inputs_of_tile)(at);
            FULLY for (int k = 0; k < 16; k++) {
                float *place = to + k / 4 * wide + k % 4 * c + j;
                store(place, load(place) + at[k]);
            }
        }
    }
}

/* Outputs of tiles first..end; those outside of the image are left out. */
PART void NAME(write_outputs)(const Layer *l, float *y, const float *m, long apart, long first, long end) {
    const long c = l->oc, wide = l->ow * c;
    const float *bias = l->bias ? l->w + l->depth * l->wide : NULL;
    for (long t = first; t < end; t++, m += c) {
        const long row = t / l->tw * 2, column = t % l->tw * 2;
        float *to = y + row * wide + column * c;
        const int lower_ = row + 1 < l->oh, right = column + 1 < l->ow;
        for (long j = 0; j < c; j += LANES) {
            const vec add = bias ? load(bias + j) : (vec){0};
            vec at[16];
            FULLY for (int k = 0; k < 16; k++) at[k] = load(m + k * apart + j);
            NAME(outputs_of_tile)(at);
            store(to + j, at[0] + add);
            if (right) store(to + c + j, at[1] + add);
            if (lower_) store(to + wide + j, at[4] + add);
            if (right && lower_) store(to + wide + c + j, at[5] + add);
        }
    }
}

/* Derivatives by the outputs of tiles first..end; their sum over places is added to `bias` where that is not null. */
PART void NAME(read_outputs)(const Layer *l, const float *d, float *m, long apart, long first, long end, float *bias) {
    const long c = l->oc, wide = l->ow * c;
    for (long t = first; t < end; t++, m += c) {
        const long row = t / l->tw * 2, column = t % l->tw * 2;
        const float *from = d + row * wide + column * c;
        const int lower_ = row + 1 < l->oh, right = column + 1 < l->ow;
        for (long j = 0; j < c; j += LANES) {
            const vec zero = {0};
            vec at[16];
            at[0] = load(from + j);
            at[1] = right ? load(from + c + j) : zero;
            at[4] = lower_ ? load(from + wide + j) : zero;
            at[5] = right && lower_ ? load(from + wide + c + j) : zero;
            if (bias) store(bias + j, load(bias + j) + ((at[0] + at[1]) + (at[4] + at[5])));
            NAME(tile_of_outputs)(at);
            FULLY for (int k = 0; k < 16; k++) store(m + k * apart + j, at[k]);
        }
    }
}

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
        NAME(read_inputs)(l, x, n->tile_x, in, first, end);
        for (int k = 0; k < 16; k++)
            multiply_fresh(n->tile_x + k * in, l->ic, 1, l->u + k * size, l->oc, n->tile_y + k * out, l->oc, count,
                           l->oc, l->ic);
        NAME(write_outputs)(l, y, n->tile_y, out, first, end);
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
        NAME(read_inputs)(l, x, n->tile_x, in, first, end);
        NAME(read_outputs)(l, d, n->tile_y, out, first, end, bias);
        for (int k = 0; k < 16; k++) {
            float *v = n->tile_x + k * in, *m = n->tile_y + k * out;
            if (first) multiply(v, 1, l->ic, m, l->oc, n->tile_g + k * size, l->oc, l->ic, l->oc, count);
            else multiply_fresh(v, 1, l->ic, m, l->oc, n->tile_g + k * size, l->oc, l->ic, l->oc, count);
            if (dx) /* nobody needs the inputs any more */
                multiply_fresh(m, l->oc, 1, l->ut + k * size, l->ic, v, l->ic, count, l->ic, l->oc);
        }
        if (dx) NAME(write_inputs)(l, into, n->tile_x, in, first, end);
    }
    NAME(untile_weights)(n->tile_g, g, size);
    const long row = l->iw * l->ic, wide = l->broad * l->ic;
    for (long i = 0; dx && into != dx && i < l->ih; i++)
        memcpy(dx + i * row, into + (i + l->ph) * wide + l->pw * l->ic, (size_t)row * sizeof(float));
}

/* The weights in both ways that tiles need them. */
PART void NAME(prepare_tiles)(const Layer *l) {
    const long size = l->ic * l->oc;
    NAME(tile_weights)(l->w, l->u, size);
    for (long k = 0; l->ut && k < 16; k++)
        NAME(turn_table)(l->u + k * size, l->ut + k * size, l->ic, l->oc, l->oc, l->ic);
}
