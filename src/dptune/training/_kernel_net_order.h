/* Weights and sums of described networks between torch's order and the tables of _kernel_net.h.
 *
 * In torch's order the weights of one output of a dense layer or a convolution lie side by side: output j's begin j times
 * `depth` further on than the first one's (order_fits has looked). So one row of them is read or written at a time, in
 * whatever order the inputs have, and sixteen rows become columns of a table together. */

/* Four rows of four values as columns. */
INLINE void NAME(turn_four)(const float *from, float *to, long wide, long apart) {
    typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
    const quad a = *(const quad *)from, b = *(const quad *)(from + wide), c = *(const quad *)(from + 2 * wide);
    const quad d = *(const quad *)(from + 3 * wide);
    const quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const quad ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(quad *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(quad *)(to + apart) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(quad *)(to + 2 * apart) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    *(quad *)(to + 3 * apart) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
}

/* Rows of `from` (with `cols` values, `wide` apart) as columns of `to`, whose rows are `apart`; both are padded to 16. */
PART void NAME(turn_table)(const float *from, float *to, long rows, long cols, long wide, long apart) {
    for (long i = 0; i < rows; i += 16) { /* 16 x 16 at a time: one line of the cache of each */
        const long some = rows - i < 16 ? rows - i : 16;
        for (long j = 0; j < cols; j += 16) {
            if (some == 16 && j + 16 <= cols) {
                FULLY for (int a = 0; a < 16; a += 4)
                    FULLY for (int b = 0; b < 16; b += 4)
                        NAME(turn_four)(from + (i + a) * wide + j + b, to + (j + b) * apart + i + a, wide, apart);
                continue;
            }
            float block[16][16] = {{0}};
            for (long a = 0; a < some; a++)
                for (long b = 0; b < 16; b++) block[b][a] = from[(i + a) * wide + j + b];
            for (long b = 0; b < 16 && j + b < cols; b++) memcpy(to + (j + b) * apart + i, block[b], sizeof block[b]);
        }
    }
}

/* Where the weights of the first output lie; how many it has. */
INLINE long NAME(first_places)(Net *n, const Layer *l, const int32_t *at) {
    const long depth = l->rows - l->bias;
    for (long i = 0; i < depth; i++) n->places[i] = at[i * l->cols];
    return depth;
}

/* A layer's weights, padded with zeros; for the way back those of dense layers also with outputs as rows. */
PART void NAME(fetch_weights)(Net *n, const Layer *l, const float *p, const int32_t *order, int back) {
    const int32_t *at = order + l->weights;
    if (l->kind == NORM) {
        for (long i = 0; i < l->rows; i++)
            for (long j = 0; j < l->wide; j++) l->w[i * l->wide + j] = j < l->cols ? p[at[i * l->cols + j]] : 0;
        return;
    }
    const long depth = l->rows - l->bias, apart = rounded(depth);
    if (!l->plain) NAME(first_places)(n, l, at);
    for (long first = 0; !l->plain && first < l->cols; first += 16) {
        const long end = first + 16 < l->cols ? first + 16 : l->cols;
        float *rows = back && l->kind == LINEAR && l->t ? l->t + first * apart : n->turned;
        for (long j = first; j < end; j++) {
            float *to = rows + (j - first) * apart;
            const float *from = p + j * depth;
            for (long i = 0; i < depth; i++) to[i] = from[n->places[i]];
            for (long i = depth; i < apart; i++) to[i] = 0;
        }
        NAME(turn_table)(rows, l->w + first, end - first, depth, apart, l->wide);
    }
    for (long j = 0; l->bias && j < l->wide; j++)
        l->w[bias_row(l) * l->wide + j] = j < l->cols ? p[at[depth * l->cols + j]] : 0;
}

/* The way back: a layer's sums. */
PART void NAME(give_sums)(Net *n, const Layer *l, const int32_t *order, float *sum, double *exact) {
    const int32_t *at = order + l->weights;
    const long depth = l->kind == NORM || l->plain ? 0 : NAME(first_places)(n, l, at), apart = rounded(depth);
    const long left = l->kind == NORM ? 0 : l->rows - l->bias; /* biases, and norms */
    for (long first = 0; depth && sum && first < l->cols; first += 16) {
        const long end = first + 16 < l->cols ? first + 16 : l->cols;
        NAME(turn_table)(l->s + first, n->turned, depth, end - first, l->wide, apart);
        for (long j = first; j < end; j++) {
            const float *from = n->turned + (j - first) * apart;
            for (long i = 0; i < depth; i++) sum[n->places[i] + j * depth] = from[i];
        }
    }
    for (long first = 0; depth && exact && first < l->cols; first += 8) {
        double *rows = (double *)n->turned;
        const long end = first + 8 < l->cols ? first + 8 : l->cols;
        for (long i = 0; i < depth; i++)
            for (long j = first; j < end; j++) rows[(j - first) * apart + i] = l->e[i * l->wide + j];
        for (long j = first; j < end; j++) {
            const double *from = rows + (j - first) * apart;
            for (long i = 0; i < depth; i++) exact[n->places[i] + j * depth] = from[i];
        }
    }
    for (long i = left; i < l->rows; i++)
        for (long j = 0; j < l->cols; j++) {
            const long row = l->plain ? 0 : i;
            if (exact) exact[at[i * l->cols + j]] = l->e[row * l->wide + j];
            else sum[at[i * l->cols + j]] = l->s[row * l->wide + j];
        }
}
