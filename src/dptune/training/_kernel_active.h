/* Products with the outputs of relu that leave out the units at zero, about half of them.
 *
 * A record's active units are the bits of `words` 64-bit words. Results differ from those of multiply() by rounding
 * alone. */

/* The lanes of a comparison that hold, as bits. */
INLINE uint64_t bits_of(ints mask) { return nonzero(__builtin_convertvector(mask, vec)); }

/* c[r] = start[r] + sum over the active k of 64 of a[r][k] * b[k], for `nv` vectors of columns. */
INLINE void add_active(const float *a, long lda, const uint64_t *active, long words, const float *b, long ldb,
                       const float *start, long lds, float *c, long ldc, const int nv, long n) {
    for (long r = 0; r < n; r++) {
        const float *own = a + r * lda;
        vec acc[4];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(start + r * lds + v * LANES);
        for (uint64_t left = active[r * words]; left; left &= left - 1) {
            const int k = __builtin_ctzll(left);
            const float s = own[k];
            FULLY for (int v = 0; v < nv; v++) acc[v] += load(b + k * ldb + v * LANES) * s;
        }
        FULLY for (int v = 0; v < nv; v++) store(c + r * ldc + v * LANES, acc[v]);
    }
}

/* c (n rows of `wide` columns) = start (rows `lds` apart) + a b, where `active` names the units of a. The rows of b that
 * belong to one word stay in the first cache. */
PART void multiply_active(const float *a, long lda, const uint64_t *active, long words, const float *b,
                          const float *start, long lds, float *c, long wide, long n) {
    for (long w = 0; w < words; w++, a += 64, b += 64 * wide, start = c, lds = wide) {
        long j = 0;
        for (; j + 4 * LANES <= wide; j += 4 * LANES)
            add_active(a, lda, active + w, words, b + j, wide, start + j, lds, c + j, wide, 4, n);
        for (; j < wide; j += LANES)
            add_active(a, lda, active + w, words, b + j, wide, start + j, lds, c + j, wide, 1, n);
    }
}

/* Exchange rows and columns of a square of bits: ever smaller squares off the diagonal change places. */
INLINE void transpose_bits(uint64_t rows[64]) {
    uint64_t low = 0xffffffffu;
    for (int side = 32; side; side >>= 1, low ^= low << side)
        for (int block = 0; block < 64; block += 2 * side)
            for (int i = block; i < block + side; i++) {
                const uint64_t moved = ((rows[i] >> side) ^ rows[i + side]) & low;
                rows[i] ^= moved << side;
                rows[i + side] ^= moved;
            }
}

/* g[i] += sum over the records r with unit i active of a[r][i] * d[r], for `nv` vectors of columns. */
INLINE void add_outer(const float *a, long lda, const uint64_t *active, const float *d, float *g, long ld, const int nv,
                      long units) {
    for (long i = 0; i < units; i++) {
        vec acc[4];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(g + i * ld + v * LANES);
        for (uint64_t left = active[i]; left; left &= left - 1) {
            const long r = __builtin_ctzll(left);
            const float s = a[r * lda + i];
            FULLY for (int v = 0; v < nv; v++) acc[v] += load(d + r * ld + v * LANES) * s;
        }
        FULLY for (int v = 0; v < nv; v++) store(g + i * ld + v * LANES, acc[v]);
    }
}

/* g += the transpose of a times d, over n records; 64 records and 64 units at a time stay in the first cache. */
PART void outer_active(const float *a, long lda, const uint64_t *active, long words, const float *d, float *g, long wide,
                       long units, long n) {
    uint64_t bits[64];
    for (long r = 0; r < n; r += 64)
        for (long w = 0; w < words; w++) {
            const long rows = n - r < 64 ? n - r : 64, left = units - w * 64 < 64 ? units - w * 64 : 64;
            for (long i = 0; i < rows; i++) bits[i] = active[(r + i) * words + w];
            for (long i = rows; i < 64; i++) bits[i] = 0;
            transpose_bits(bits);
            long j = 0;
            const float *from = a + r * lda + w * 64, *own = d + r * wide;
            float *to = g + w * 64 * wide;
            for (; j + 4 * LANES <= wide; j += 4 * LANES) add_outer(from, lda, bits, own + j, to + j, wide, 4, left);
            for (; j < wide; j += LANES) add_outer(from, lda, bits, own + j, to + j, wide, 1, left);
        }
}
