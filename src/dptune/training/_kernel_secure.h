/* Secure noise: normals from a cryptographic stream, rounded to the lattice and added to a sum, in one pass.
 *
 * The stream holds two 64-bit words for every pair of normals: all radii first, then all angles. As in noise.py, of
 * which this is a faster form: Box-Muller from 53-bit uniforms in double precision. Sums and noise are whole numbers of
 * lattice steps, and all that is done with them is exact. */

/* log(u) for u in (0, 1): u = 2^e m with m within the roots of 1/2 and 2, log m by the series of artanh((m-1) / (m+1)).
 * The first term that is left out is below 2^-56 of the sum. */
INLINE doubles NAME(logarithm)(doubles u) {
    const longs bits = (longs)u, fraction = bits & 0x000fffffffffffffu;
    const longs high = (longs)(fraction > 0x6a09e667f3bccu); /* all ones where m is above the root of 2: halve it */
    const doubles m = (doubles)(fraction | (0x3ff0000000000000u - (high & 0x0010000000000000u)));
    const doubles e = __builtin_convertvector((bits >> 52) + (high & 1), doubles) - 1023.0;
    const doubles s = (m - 1.0) / (m + 1.0), z = s * s;
    doubles p = {0};
    FULLY for (int k = 23; k >= 3; k -= 2) p = p * z + 2.0 / k;
    return e * 0x1.62e42fefa39efp-1 + (2.0 * s + s * z * p);
}

/* Cosine and sine of 2 pi t, t in [0, 1]: the quarter is taken off exactly, the rest is at most pi / 4. */
INLINE void NAME(turn)(doubles t, doubles *cosine, doubles *sine) {
    static const double even[10] = {1.0, -1 / 2.0, 1 / 24.0, -1 / 720.0, 1 / 40320.0, -1 / 3628800.0, 1 / 479001600.0,
                                    -1 / 87178291200.0, 1 / 20922789888000.0, -1 / 6402373705728000.0};
    static const double odd[10] = {1.0, -1 / 6.0, 1 / 120.0, -1 / 5040.0, 1 / 362880.0, -1 / 39916800.0,
                                   1 / 6227020800.0, -1 / 1307674368000.0, 1 / 355687428096000.0,
                                   -1 / 121645100408832000.0};
    const doubles quarter = (t * 4.0 + 0x1.8p52) - 0x1.8p52, x = (t - quarter * 0.25) * 6.283185307179586, z = x * x;
    const longs q = __builtin_convertvector(quarter, longs), swap = -(q & 1);
    doubles c = {0}, s = {0};
    FULLY for (int k = 9; k >= 0; k--) c = c * z + even[k], s = s * z + odd[k];
    s *= x;
    /* The signs of quarters: the cosine's in the second and third, the sine's in the third and fourth. */
    *cosine = (doubles)((((longs)c & ~swap) | ((longs)s & swap)) ^ (((q + 1) & 2) << 62));
    *sine = (doubles)((((longs)s & ~swap) | ((longs)c & swap)) ^ ((q & 2) << 62));
}

INLINE int NAME(any)(longs mask) {
    uint64_t found = 0;
    for (int i = 0; i < LANES / 2; i++) found |= mask[i];
    return found != 0;
}

/* The nearest whole number; those of 2^51 and more are whole already (or are one step from it, and stay). */
INLINE doubles NAME(nearest)(doubles v) {
    const doubles rounded_ = (v + 0x1.8p52) - 0x1.8p52;
    const longs large = (longs)(v >= 0x1p51) | (longs)(v <= -0x1p51);
    doubles rest = v;
    if (__builtin_expect(NAME(any)(large), 0))
        for (int i = 0; i < LANES / 2; i++) rest[i] = rint(v[i]);
    return (doubles)(((longs)rest & large) | ((longs)rounded_ & ~large));
}

/* total (in steps: times `inverse`) + noise, modulo 2^53 steps, then times `back`. */
INLINE void NAME(add_noise)(double *total, doubles noise, double inverse, double back, long count) {
    double room[LANES / 2] = {0};
    double *at = count < LANES / 2 ? room : total;
    if (at == room) memcpy(room, total, (size_t)count * sizeof(double));
    doubles sum = NAME(nearest)(*(loose_doubles *)at * inverse) + NAME(nearest)(noise);
    const doubles two = (doubles){0} + 0x1p53;
    sum -= (doubles)((longs)two & (longs)(sum >= 0x1p52));
    sum += (doubles)((longs)two & (longs)(sum < -0x1p52));
    *(loose_doubles *)at = sum * back;
    if (at == room) memcpy(total, room, (size_t)count * sizeof(double));
}

static void NAME(add_secure)(const uint64_t *stream, double *total, int64_t size, double scale, double inverse,
                             double back) {
    const int64_t pairs = (size + 1) / 2, rest = size - pairs, wide = LANES / 2;
    for (int64_t i = 0; i < pairs; i += wide) {
        const long count = pairs - i < wide ? (long)(pairs - i) : (long)wide;
        const long second = rest - i < count ? (long)(rest - i) : count;
        uint64_t words[2][LANES / 2] = {0};
        memcpy(words[0], stream + i, (size_t)count * 8), memcpy(words[1], stream + pairs + i, (size_t)count * 8);
        longs first, angle;
        memcpy(&first, words[0], sizeof first), memcpy(&angle, words[1], sizeof angle);
        const doubles u = (__builtin_convertvector(first >> 11, doubles) + 0.5) * 0x1p-53;
        const doubles square = -2.0 * NAME(logarithm)(u);
        doubles radius, cosine, sine;
        for (int k = 0; k < LANES / 2; k++) radius[k] = sqrt(square[k]);
        NAME(turn)(__builtin_convertvector(angle >> 11, doubles) * 0x1p-53, &cosine, &sine);
        NAME(add_noise)(total + i, cosine * radius * scale, inverse, back, count);
        if (second > 0) NAME(add_noise)(total + pairs + i, sine * radius * scale, inverse, back, second);
    }
}
