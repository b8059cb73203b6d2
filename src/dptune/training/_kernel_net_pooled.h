/* A norm whose values go to the maximum of windows of 2 x 2 places that lie side by side, and nowhere else.
 *
 * Both are one pass over the norm's inputs. Normalised values are never written down: `l->y` holds the input that was
 * the largest of its window after normalisation, `at` which of the four it was. On the way back derivatives are zero
 * everywhere else, so sums over places have a quarter of the terms. Channels are lanes, a multiple of 16. */

/* The four places of a window, counted from its first. */
#define CORNERS const long corner[4] = {0, c, l->iw * c, l->iw * c + c}

PART void NAME(pooled_forward)(Net *n, const Layer *l, const float *x, float *chosen, float *y, int32_t *at, float *stat) {
    const long c = l->ic, part = c / l->groups;
    float *mean = n->each, *steep = mean + c, *own_bias = mean + 2 * c;
    CORNERS;
    NAME(moments)(n, l, x, stat);
    for (long k = 0; k < c; k++) {
        mean[k] = stat[2 * (k / part)], steep[k] = stat[2 * (k / part) + 1] * (l->rows ? l->w[k] : 1);
        own_bias[k] = l->rows && l->bias ? l->w[l->wide + k] : 0;
    }
    for (long i = 0; i < l->ih; i += 2)
        for (long j = 0; j < l->iw; j += 2, y += c, chosen += c, at += c) {
            const float *window = x + (i * l->iw + j) * c;
            for (long k = 0; k < c; k += LANES) {
                const vec mid = load(mean + k), over = load(steep + k), add = load(own_bias + k);
                vec input = load(window + k), most = (input - mid) * over + add;
                ints which = {0};
                FULLY for (int q = 1; q < 4; q++) {
                    const vec other = load(window + corner[q] + k), value = (other - mid) * over + add;
                    const ints more = value > most;
                    most = blend(more, value, most), input = blend(more, other, input);
                    which = (more & ((ints){0} + q)) | (~more & which);
                }
                store(y + k, most), store(chosen + k, input);
                memcpy(at + k, &which, sizeof which);
            }
        }
}

/* As norm_backward, from derivatives `d` by what the windows gave. */
PART void NAME(pooled_backward)(Net *n, const Layer *l, const float *x, const float *chosen, const int32_t *at,
                                const float *stat, const float *d, float *g, float *dx) {
    const long c = l->ic, part = c / l->groups;
    float *mean = n->each, *inverse = mean + c, *s = mean + 2 * c, *m = mean + 3 * c;
    CORNERS;
    for (long k = 0; k < c; k++) mean[k] = stat[2 * (k / part)], inverse[k] = stat[2 * (k / part) + 1];
    NAME(sums_of_slopes)(chosen, d, mean, inverse, c, l->ih * l->iw / 4, n->sums, n->sums + c);
    NAME(means_of_slopes)(n, l, g);
    if (!dx) return;
    for (long k = 0; k < c; k++)
        s[k] = (float)n->sums[2 * c + k / part], m[k] = inverse[k] * (float)n->sums[3 * c + k / part];
    for (long i = 0; i < l->ih; i += 2)
        for (long j = 0; j < l->iw; j += 2, d += c, at += c) {
            const long window = (i * l->iw + j) * c;
            for (long k = 0; k < c; k += LANES) {
                const vec mid = load(mean + k), over = load(inverse + k), less = load(s + k), turn_ = load(m + k);
                const vec e = l->rows ? load(d + k) * load(l->w + k) : load(d + k), zero = {0};
                ints which;
                memcpy(&which, at + k, sizeof which);
                FULLY for (int q = 0; q < 4; q++) {
                    const long p = window + corner[q] + k;
                    const vec own = blend(which == q, e, zero);
                    store(dx + p, over * (own - less - (load(x + p) - mid) * turn_));
                }
            }
        }
}
#undef CORNERS
