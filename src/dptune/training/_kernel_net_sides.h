/* The arithmetic of tiles (_kernel_net_tiles.h) along one side of them: Winograd's minimal filtering with 3 weights.
 *
 * A side of two outputs takes the points 0, 1, -1 and infinity (4 values), a side of four 0, 3/4, -3/4, 3/2, -3/2 and
 * infinity (6 values): in single precision these lose half of what the usual 1 and 2 lose. Each function works in place
 * on values `step` apart; `four` is known to the compiler. Functions named "back" are the transposes of those before them,
 * so derivatives are those of what was computed forward. */

#define P 0.75f                                /* the points */
#define Q 1.5f
#define PP (P * P)                             /* their powers; all are exact */
#define QQ (Q * Q)
#define ALL (PP * QQ)
#define C_P (1.0f / (2 * PP * (PP - QQ)))       /* what weights are multiplied by */
#define C_Q (1.0f / (2 * QQ * (QQ - PP)))
#define C_0 (1.0f / ALL)

/* Inputs (4 or 6) become as many values. */
INLINE void NAME(side_inputs)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step], c = t[2 * step], d = t[3 * step];
    if (!four) {
        t[0] = a - c, t[step] = b + c, t[2 * step] = c - b, t[3 * step] = b - d;
        return;
    }
    const vec e = t[4 * step], f = t[5 * step];
    const vec even_p = e - QQ * c, odd_p = P * (d - QQ * b), even_q = e - PP * c, odd_q = Q * (d - PP * b);
    t[0] = e + ALL * a - (PP + QQ) * c, t[5 * step] = f + ALL * b - (PP + QQ) * d;
    t[step] = even_p + odd_p, t[2 * step] = even_p - odd_p;
    t[3 * step] = even_q + odd_q, t[4 * step] = even_q - odd_q;
}

INLINE void NAME(side_inputs_back)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step], c = t[2 * step], d = t[3 * step];
    if (!four) {
        t[step] = b - c + d, t[2 * step] = b + c - a, t[3 * step] = -d;
        return;
    }
    const vec e = t[4 * step], f = t[5 * step];
    const vec even_p = b + c, odd_p = b - c, even_q = d + e, odd_q = d - e;
    t[0] = ALL * a;
    t[step] = ALL * f - (P * QQ) * odd_p - (Q * PP) * odd_q;
    t[2 * step] = -(PP + QQ) * a - QQ * even_p - PP * even_q;
    t[3 * step] = P * odd_p + Q * odd_q - (PP + QQ) * f;
    t[4 * step] = a + (even_p + even_q);
}

/* Sums (4 or 6) become two or four outputs. */
INLINE void NAME(side_outputs)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step], c = t[2 * step], d = t[3 * step];
    if (!four) {
        t[0] = a + b + c, t[step] = b - c - d;
        return;
    }
    const vec e = t[4 * step], f = t[5 * step];
    const vec even_p = b + c, odd_p = b - c, even_q = d + e, odd_q = d - e;
    t[0] = a + (even_p + even_q);
    t[step] = P * odd_p + Q * odd_q;
    t[2 * step] = PP * even_p + QQ * even_q;
    t[3 * step] = (P * PP) * odd_p + (Q * QQ) * odd_q + f;
}

INLINE void NAME(side_outputs_back)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step];
    if (!four) {
        t[step] = a + b, t[2 * step] = a - b, t[3 * step] = -b;
        return;
    }
    const vec c = t[2 * step], d = t[3 * step];
    const vec even_p = a + PP * c, odd_p = P * b + (P * PP) * d, even_q = a + QQ * c, odd_q = Q * b + (Q * QQ) * d;
    t[step] = even_p + odd_p, t[2 * step] = even_p - odd_p;
    t[3 * step] = even_q + odd_q, t[4 * step] = even_q - odd_q, t[5 * step] = d;
}

/* Three weights become 4 or 6. */
INLINE void NAME(side_weights)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step], c = t[2 * step];
    if (!four) {
        t[step] = 0.5f * (a + c + b), t[2 * step] = 0.5f * (a + c - b), t[3 * step] = c;
        return;
    }
    const vec even_p = C_P * (a + PP * c), odd_p = (C_P * P) * b, even_q = C_Q * (a + QQ * c), odd_q = (C_Q * Q) * b;
    t[0] = C_0 * a, t[step] = even_p + odd_p, t[2 * step] = even_p - odd_p;
    t[3 * step] = even_q + odd_q, t[4 * step] = even_q - odd_q, t[5 * step] = c;
}

INLINE void NAME(side_weights_back)(vec *t, const int step, const int four) {
    const vec a = t[0], b = t[step], c = t[2 * step], d = t[3 * step];
    if (!four) {
        const vec even = 0.5f * (b + c);
        t[0] = a + even, t[step] = 0.5f * (b - c), t[2 * step] = even + d;
        return;
    }
    const vec e = t[4 * step], f = t[5 * step];
    const vec even_p = C_P * (b + c), odd_p = (C_P * P) * (b - c), even_q = C_Q * (d + e), odd_q = (C_Q * Q) * (d - e);
    t[0] = C_0 * a + (even_p + even_q), t[step] = odd_p + odd_q, t[2 * step] = PP * even_p + QQ * even_q + f;
}

#undef P
#undef Q
#undef PP
#undef QQ
#undef ALL
#undef C_P
#undef C_Q
#undef C_0
