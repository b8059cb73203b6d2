/* Standard normals as a function of (key, step, place): Philox4x32-10 and Box-Muller, vectorised. */

/* Products of 32-bit numbers in 64-bit lanes. */
INLINE q8 product(q8 a, uint32_t b) {
#ifdef __AVX512F__
    return (q8)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(b)); /* reads the low halves alone */
#else
    return (a & 0xffffffffu) * b;
#endif
}

/* Philox4x32-10 (Salmon et al. 2011): eight counters at a time, 32-bit words in 64-bit lanes. What all blocks of a step
 * share is laid out once: the rounds' keys, then the constant words of the counter. */
typedef struct {
    q8 key[10][2], c1, c2, c3;
} NAME(Stream);

INLINE void begin(NAME(Stream) * s, const uint64_t key[2], uint64_t step) {
    const uint64_t low = 0xffffffffu;
    uint64_t k0 = key[0] & low, k1 = key[0] >> 32;
    for (int round = 0; round < 10; round++) {
        s->key[round][0] = (q8){0} + k0;
        s->key[round][1] = (q8){0} + k1;
        k0 = (k0 + 0x9E3779B9u) & low;
        k1 = (k1 + 0xBB67AE85u) & low;
    }
    s->c1 = (q8){0} + (key[1] & low); /* a second half of the key in the unused half of the counter */
    s->c2 = (q8){0} + (step & low);
    s->c3 = (q8){0} + (key[1] >> 32);
}

INLINE void philox(uint64_t first, const NAME(Stream) * s, q8 out[4]) {
    const uint64_t low = 0xffffffffu;
    q8 c0 = ((q8){0, 1, 2, 3, 4, 5, 6, 7} + first) & low, c1 = s->c1, c2 = s->c2, c3 = s->c3;
    FULLY for (int round = 0; round < 10; round++) {
        const q8 a = product(c0, 0xD2511F53u), b = product(c2, 0xCD9E8D57u);
        c0 = (b >> 32) ^ c1 ^ s->key[round][0]; /* high halves hold leftovers from here on */
        c1 = b;
        c2 = (a >> 32) ^ c3 ^ s->key[round][1];
        c3 = a;
    }
    out[0] = c0 & low, out[1] = c1 & low, out[2] = c2 & low, out[3] = c3 & low;
}

INLINE u16 join(q8 a, q8 b) {
    return __builtin_shufflevector(__builtin_convertvector(a, u8), __builtin_convertvector(b, u8), 0, 1, 2, 3, 4, 5,
                                   6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

INLINE v16 as_float(u16 bits) { return __builtin_convertvector((i16)bits, v16); }

/* -2 log(x) for x in (0, 1], relative error about 1e-7 (a polynomial in (m-1)/(m+1)). */
INLINE v16 minus_two_log(v16 x) {
    i16 bits = (i16)x;
    i16 e = (bits - 0x3f3504f3) >> 23;
    v16 m = (v16)(bits - (e << 23));
    v16 s = (m - 1.0f) / (m + 1.0f), z = s * s;
    v16 series = 2.0f + z * (0.66666667f + z * (0.4f + z * (0.285714286f + z * 0.2333f)));
    return -2.0f * (__builtin_convertvector(e, v16) * 0.69314718056f + s * series);
}

/* Normals from 128 random bits a quadruple: 40-bit radius, 24-bit angle (Box-Muller); 64 values a block. */
INLINE void normals(uint64_t first, const NAME(Stream) * s, float *out) {
    q8 words[2][4];
    float radius[16];
    philox(first, s, words[0]);
    philox(first + 8, s, words[1]);
    for (int pair = 0; pair < 4; pair += 2) {
        const u16 high = join(words[0][pair], words[1][pair]);
        const u16 low = join(words[0][pair + 1], words[1][pair + 1]);
        v16 u = as_float(high >> 8) * 256.0f + as_float(high & 255);
        u = (u + as_float(low & 255) * 0x1p-8f + 0x1p-9f) * 0x1p-32f;
        v16 r = minus_two_log(u);
        r = blend(r > 0.0f, r, (v16){0});
        store(radius, r);
        for (int i = 0; i < 16; i++) radius[i] = sqrtf(radius[i]);
        r = load(radius);
        /* angle in turns in [-1/2, 1/2): fold to [-1/4, 1/4] around the nearest half turn */
        v16 t = as_float(low >> 8) * 0x1p-24f - 0.5f;
        i16 far = (t > 0.25f) | (t < -0.25f);
        v16 half = blend(t > 0.0f, (v16){0} + 0.5f, (v16){0} - 0.5f);
        v16 a = blend(far, half - t, t) * 6.28318530718f; /* sin(pi - a) = sin a */
        v16 b = a * a;
        v16 sine = a * (1.0f + b * (-0.16666667f + b * (8.3333310e-3f + b * (-1.9840874e-4f + b * 2.7525562e-6f
                   + b * b * -2.3889859e-8f))));
        v16 cosine = 1.0f + b * (-0.5f + b * (4.1666666e-2f + b * (-1.3888889e-3f + b * (2.4801587e-5f
                   + b * (-2.7557319e-7f + b * 2.0876757e-9f)))));
        cosine = blend(far, -cosine, cosine);
        store(out + pair * 16, r * cosine);
        store(out + pair * 16 + 16, r * sine);
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
        for (int j = 0; j < 64; j += 16) store(total + i + j, (load(total + i + j) + load(block + j) * scale) * unit);
    }
    if (i < count) normals((uint64_t)i / 4, &s, block);
    for (int64_t j = 0; i + j < count; j++) total[i + j] = (total[i + j] + scale * block[j]) * unit;
}

/* p -= rate * g */
static void descend(float *p, const float *g, float rate, int64_t count) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) store(p + i, load(p + i) - load(g + i) * rate);
    for (; i < count; i++) p[i] -= g[i] * rate;
}

static void fill_words(const uint64_t *key, uint64_t step, uint64_t first, uint32_t *out) {
    q8 words[4];
    NAME(Stream) s;
    begin(&s, key, step);
    philox(first, &s, words);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 4; j++) out[i * 4 + j] = (uint32_t)words[j][i];
}
