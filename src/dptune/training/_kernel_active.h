/* Products with the outputs of relu that leave out the units at zero, about half of them.
 *
 * A record's active units are the bits of `words` 64-bit words. Results differ from those of multiply() by rounding
 * alone. */

/* The lanes of a comparison that hold, as bits. */
INLINE uint64_t bits_of(i16 mask) {
#if defined(CHOICE) && defined(__AVX512DQ__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(CHOICE) && defined(__AVX2__)
    const v16 lanes = (v16)mask;
    const v8f low = __builtin_shufflevector(lanes, lanes, 0, 1, 2, 3, 4, 5, 6, 7);
    const v8f high = __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15);
    return (uint64_t)_mm256_movemask_ps((__m256)low) | (uint64_t)_mm256_movemask_ps((__m256)high) << 8;
#else
    uint64_t bits = 0;
    for (int i = 0; i < 16; i++) bits |= (uint64_t)(mask[i] & 1) << i;
    return bits;
#endif
}

/* c[r] = start[r] + sum over the active k of 64 of a[r][k] * b[k], for `nv` vectors of columns. */
INLINE void add_active(const float *a, long lda, const uint64_t *active, long words, const float *b, long ldb,
                       const float *start, long lds, float *c, long ldc, const int nv, long n) {
    for (long r = 0; r < n; r++) {
        const float *own = a + r * lda;
        v16 acc[4];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(start + r * lds + v * 16);
        for (uint64_t left = active[r * words]; left; left &= left - 1) {
            const int k = __builtin_ctzll(left);
            const float s = own[k];
            FULLY for (int v = 0; v < nv; v++) acc[v] += load(b + k * ldb + v * 16) * s;
        }
        FULLY for (int v = 0; v < nv; v++) store(c + r * ldc + v * 16, acc[v]);
    }
}

/* c (n rows of `wide` columns) = start (rows `lds` apart) + a b, where `active` names the units of a. The rows of b that
 * belong to one word stay in the first cache. */
PART void multiply_active(const float *a, long lda, const uint64_t *active, long words, const float *b,
                          const float *start, long lds, float *c, long wide, long n) {
    for (long w = 0; w < words; w++, a += 64, b += 64 * wide, start = c, lds = wide) {
        long j = 0;
        for (; j + 64 <= wide; j += 64)
            add_active(a, lda, active + w, words, b + j, wide, start + j, lds, c + j, wide, 4, n);
        for (; j < wide; j += 16)
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
        v16 acc[4];
        FULLY for (int v = 0; v < nv; v++) acc[v] = load(g + i * ld + v * 16);
        for (uint64_t left = active[i]; left; left &= left - 1) {
            const long r = __builtin_ctzll(left);
            const float s = a[r * lda + i];
            FULLY for (int v = 0; v < nv; v++) acc[v] += load(d + r * ld + v * 16) * s;
        }
        FULLY for (int v = 0; v < nv; v++) store(g + i * ld + v * 16, acc[v]);
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
            for (; j + 64 <= wide; j += 64) add_outer(from, lda, bits, own + j, to + j, wide, 4, left);
            for (; j < wide; j += 16) add_outer(from, lda, bits, own + j, to + j, wide, 1, left);
        }
}
