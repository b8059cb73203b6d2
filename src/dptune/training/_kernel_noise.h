/* Standard normals as a function of (key, step, place): Philox4x32-10 and Box-Muller, vectorised. */

typedef uint32_t uints __attribute__((vector_size(4 * LANES)));
typedef uint32_t half_uints __attribute__((vector_size(2 * LANES)));
typedef uint64_t longs __attribute__((vector_size(4 * LANES)));

/* Products of 32-bit numbers in 64-bit lanes. */
INLINE longs product(longs a, uint32_t b) {
#if defined(CHOICE) && LANES == 16
    return (longs)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b)); /* reads the low halves alone */
#elif defined(CHOICE) && LANES == 8
    return (longs)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(b));
#elif defined(CHOICE)
    return (longs)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(b));
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Philox4x32-10 (Salmon et al. 2011): LANES / 2 counters at a time, 32-bit words in 64-bit lanes. What all blocks of a
 * step share is laid out once: the rounds' keys, then the constant words of the counter. */
typedef struct {
    longs key[10][2], c1, c2, c3, places;
} NAME(Stream);

INLINE void begin(NAME(Stream) * s, const uint64_t key[2], uint64_t step) {
    const uint64_t low = 0xffffffffu;
    uint64_t k0 = key[0] & low, k1 = key[0] >> 32;
    for (int round = 0; round < 10; round++) {
        s->key[round][0] = (longs){0} + k0;
        s->key[round][1] = (longs){0} + k1;
        k0 = (k0 + 0x9E3779B9u) & low;
        k1 = (k1 + 0xBB67AE85u) & low;
    }
    s->c1 = (longs){0} + (key[1] & low); /* a second half of the key in the unused half of the counter */
    s->c2 = (longs){0} + (step & low);
    s->c3 = (longs){0} + (key[1] >> 32);
    for (int i = 0; i < LANES / 2; i++) s->places[i] = (uint64_t)i;
}

INLINE void philox(uint64_t first, const NAME(Stream) * s, longs out[4]) {
    const uint64_t low = 0xffffffffu;
    longs c0 = (s->places + first) & low, c1 = s->c1, c2 = s->c2, c3 = s->c3;
    FULLY for (int round = 0; round < 10; round++) {
        const longs a = product(c0, 0xD2511F53u), b = product(c2, 0xCD9E8D57u);
        c0 = (b >> 32) ^ c1 ^ s->key[round][0]; /* high halves hold leftovers from here on */
        c1 = b;
        c2 = (a >> 32) ^ c3 ^ s->key[round][1];
        c3 = a;
    }
    out[0] = c0 & low, out[1] = c1 & low, out[2] = c2 & low, out[3] = c3 & low;
}

INLINE uints join(longs a, longs b) {
    const half_uints lo = __builtin_convertvector(a, half_uints), hi = __builtin_convertvector(b, half_uints);
#if LANES == 16
    return __builtin_shufflevector(lo, hi, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
    return __builtin_shufflevector(lo, hi, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    return __builtin_shufflevector(lo, hi, 0, 1, 2, 3);
#endif
}

INLINE vec as_float(uints bits) { return __builtin_convertvector((ints)bits, vec); }

/* -2 log(x) for x in (0, 1], relative error about 1e-7 (a polynomial in (m-1)/(m+1)). */
INLINE vec minus_two_log(vec x) {
    ints bits = (ints)x;
    ints e = (bits - 0x3f3504f3) >> 23;
    vec m = (vec)(bits - (e << 23));
    vec s = (m - 1.0f) / (m + 1.0f), z = s * s;
    vec series = 2.0f + z * (0.66666667f + z * (0.4f + z * (0.285714286f + z * 0.2333f)));
    return -2.0f * (__builtin_convertvector(e, vec) * 0.69314718056f + s * series);
}

/* Normals from 128 random bits a quadruple: 40-bit radius, 24-bit angle (Box-Muller); 64 values a block, in the same
 * order for all LANES. */
INLINE void normals(uint64_t first, const NAME(Stream) * s, float *out) {
    for (int h = 0; h < 16; h += LANES) {
        longs found[2][4];
        philox(first + (uint64_t)h, s, found[0]);
        philox(first + (uint64_t)h + LANES / 2, s, found[1]);
        for (int pair = 0; pair < 4; pair += 2) {
            const uints high = join(found[0][pair], found[1][pair]);
            const uints low = join(found[0][pair + 1], found[1][pair + 1]);
            vec u = as_float(high >> 8) * 256.0f + as_float(high & 255);
            u = (u + as_float(low & 255) * 0x1p-8f + 0x1p-9f) * 0x1p-32f;
            vec r = minus_two_log(u);
            r = blend(r > 0.0f, r, (vec){0});
            float radius[LANES];
            store(radius, r);
            for (int i = 0; i < LANES; i++) radius[i] = sqrtf(radius[i]);
            r = load(radius);
            /* angle in turns in [-1/2, 1/2): fold to [-1/4, 1/4] around the nearest half turn */
            vec t = as_float(low >> 8) * 0x1p-24f - 0.5f;
            ints far = (t > 0.25f) | (t < -0.25f);
            vec half_turn = blend(t > 0.0f, (vec){0} + 0.5f, (vec){0} - 0.5f);
            vec a = blend(far, half_turn - t, t) * 6.28318530718f; /* sin(pi - a) = sin a */
            vec b = a * a;
            vec sine = a * (1.0f + b * (-0.16666667f + b * (8.3333310e-3f + b * (-1.9840874e-4f + b * 2.7525562e-6f
                       + b * b * -2.3889859e-8f))));
            vec cosine = 1.0f + b * (-0.5f + b * (4.1666666e-2f + b * (-1.3888889e-3f + b * (2.4801587e-5f
                       + b * (-2.7557319e-7f + b * 2.0876757e-9f)))));
            cosine = blend(far, -cosine, cosine);
            store(out + pair * 16 + h, r * cosine);
            store(out + pair * 16 + 16 + h, r * sine);
        }
    }
}

static void fill_normals(const uint64_t *key, uint64_t step, float *out, int64_t count) {
    float block[64];
    int64_t i = 0;
    NAME(Stream) s;
    begin(&s, key, step);
    for (; i + 64 <= count; i += 64) normals((uint64_t)i / 4, &s, out + i);
    if (i < count) {
        normals((uint64_t)i / 4, &s, block);
        memcpy(out + i, block, (size_t)(count - i) * sizeof(float));
    }
}

/* total = (total + scale * normals) * unit */
static void add_normals(const uint64_t *key, uint64_t step, float scale, float unit, float *total, int64_t count) {
    float block[64];
    int64_t i = 0;
    NAME(Stream) s;
    begin(&s, key, step);
    for (; i + 64 <= count; i += 64) {
        normals((uint64_t)i / 4, &s, block);
        for (int j = 0; j < 64; j += LANES) store(total + i + j, (load(total + i + j) + load(block + j) * scale) * unit);
    }
    if (i < count) normals((uint64_t)i / 4, &s, block);
    for (int64_t j = 0; i + j < count; j++) total[i + j] = (total[i + j] + scale * block[j]) * unit;
}

/* p -= rate * g */
static void descend(float *p, const float *g, float rate, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store(p + i, load(p + i) - load(g + i) * rate);
    for (; i < count; i++) p[i] -= g[i] * rate;
}

static void fill_words(const uint64_t *key, uint64_t step, uint64_t first, uint32_t *out) {
    longs found[4];
    NAME(Stream) s;
    begin(&s, key, step);
    for (int h = 0; h < 8; h += LANES / 2) {
        philox(first + (uint64_t)h, &s, found);
        for (int i = 0; i < LANES / 2; i++)
            for (int j = 0; j < 4; j++) out[(h + i) * 4 + j] = (uint32_t)found[j][i];
    }
}
