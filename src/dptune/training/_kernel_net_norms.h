/* Group and layer normalisation of one record. Sums over places are taken for every channel by itself and in one order:
 * four places in single precision, those sums in double precision. Channels are lanes; a strip of them goes through all
 * places at once, so that what belongs to a channel stays in registers. */
enum { NAME(FOUR_PLACES) = 4 };

/* Sums over places of a vector of channels: of f = x - x0 and its square, x0 the first place's value. It is one of the
 * values, so it is at most sqrt(n) deviations away from the mean, and differences of close numbers are exact. */
INLINE void NAME(strip_sums)(const float *x, long c, long places, double *sum, double *square_) {
    const vec first = load(x);
    doubles s[2] = {{0}}, q[2] = {{0}};
    for (long p = 0; p < places; p += NAME(FOUR_PLACES)) {
        vec one = {0}, two = {0};
        for (long r = p; r < p + NAME(FOUR_PLACES) && r < places; r++) {
            const vec f = load(x + r * c) - first;
            one += f, two += f * f;
        }
        s[0] += lower(one), s[1] += upper(one), q[0] += lower(two), q[1] += upper(two);
    }
    *(loose_doubles *)sum = s[0], *(loose_doubles *)(sum + LANES / 2) = s[1];
    *(loose_doubles *)square_ = q[0], *(loose_doubles *)(square_ + LANES / 2) = q[1];
}

INLINE void NAME(sums_of_channels)(const float *x, long c, long places, double *sum, double *square_) {
    long k = 0;
    for (; k + LANES <= c; k += LANES) NAME(strip_sums)(x + k, c, places, sum + k, square_ + k);
    for (; k < c; k++) {
        double s = 0, q = 0;
        for (long p = 1; p < places; p++) {
            const double far = (double)x[p * c + k] - (double)x[k];
            s += far, q += far * far;
        }
        sum[k] = s, square_[k] = q;
    }
}

/* Means and inverse deviations of every group into `stat`. */
INLINE void NAME(moments)(Net *n, const Layer *l, const float *x, float *stat) {
    const long c = l->ic, part = c / l->groups, places = l->ih * l->iw;
    const double count = (double)(part * places), each = (double)places;
    double *sum = n->sums, *square_ = n->sums + c;
    NAME(sums_of_channels)(x, c, places, sum, square_);
    for (long g = 0; g < l->groups; g++) {
        double all = 0, spread_ = 0;
        for (long k = g * part; k < (g + 1) * part; k++) all += sum[k] + each * (double)x[k];
        const double mean = all / count;
        for (long k = g * part; k < (g + 1) * part; k++) {
            const double far = mean - (double)x[k];
            spread_ += square_[k] - 2 * far * sum[k] + each * far * far;
        }
        spread_ = spread_ < 0 ? 0 : spread_; /* by rounding; one that is no number stays none */
        stat[2 * g] = (float)mean;
        stat[2 * g + 1] = (float)(1.0 / sqrt(spread_ / count + (double)l->c[0]));
    }
}

PART void NAME(norm_forward)(Net *n, const Layer *l, const float *x, float *y, float *stat) {
    const long c = l->ic, part = c / l->groups, places = l->ih * l->iw;
    NAME(moments)(n, l, x, stat);
    float *mean = n->each, *steep = mean + c, *own_bias = mean + 2 * c;
    const int shared = l->rows && !l->each;
    for (long k = 0; k < c; k++) {
        mean[k] = stat[2 * (k / part)], steep[k] = stat[2 * (k / part) + 1] * (shared ? l->w[k] : 1);
        own_bias[k] = shared && l->bias ? l->w[l->wide + k] : 0;
    }
    long k = 0;
    for (; k + LANES <= c; k += LANES) {
        const vec mid = load(mean + k), over = load(steep + k), add = load(own_bias + k);
        for (long p = 0; p < places; p++) store(y + p * c + k, (load(x + p * c + k) - mid) * over + add);
    }
    for (; k < c; k++)
        for (long p = 0; p < places; p++) y[p * c + k] = (x[p * c + k] - mean[k]) * steep[k] + own_bias[k];
    for (long i = 0; l->rows && l->each && i < l->in; i++) y[i] = y[i] * l->w[i] + (l->bias ? l->w[l->wide + i] : 0);
    for (long i = l->out; i < l->outof; i++) y[i] = 0;
}

/* Sums over places of derivatives, and of them times the normalised values, of a vector of channels. */
INLINE void NAME(strip_slopes)(const float *x, const float *d, vec mid, vec over, long c, long places, double *slopes,
                               double *products) {
    doubles s[2] = {{0}}, q[2] = {{0}};
    for (long p = 0; p < places; p += NAME(FOUR_PLACES)) {
        vec one = {0}, two = {0};
        for (long r = p; r < p + NAME(FOUR_PLACES) && r < places; r++) {
            const vec own = load(d + r * c);
            one += own, two += own * ((load(x + r * c) - mid) * over);
        }
        s[0] += lower(one), s[1] += upper(one), q[0] += lower(two), q[1] += upper(two);
    }
    *(loose_doubles *)slopes = s[0], *(loose_doubles *)(slopes + LANES / 2) = s[1];
    *(loose_doubles *)products = q[0], *(loose_doubles *)(products + LANES / 2) = q[1];
}

INLINE void NAME(sums_of_slopes)(const float *x, const float *d, const float *mean, const float *inverse, long c,
                                 long places, double *slopes, double *products) {
    long k = 0;
    for (; k + LANES <= c; k += LANES)
        NAME(strip_slopes)(x + k, d + k, load(mean + k), load(inverse + k), c, places, slopes + k, products + k);
    for (; k < c; k++) {
        double s = 0, q = 0;
        for (long p = 0; p < places; p++) {
            const float own = d[p * c + k], both = own * ((x[p * c + k] - mean[k]) * inverse[k]);
            s += (double)own, q += (double)both;
        }
        slopes[k] = s, products[k] = q;
    }
}

/* The same where every value has a weight of its own; gradients are written down on the way. */
INLINE void NAME(slopes_of_each)(const Layer *l, const float *x, const float *d, const float *mean, const float *inverse,
                                 float *g, double *slopes, double *products) {
    const long c = l->ic, places = l->ih * l->iw;
    memset(slopes, 0, (size_t)c * sizeof(double)), memset(products, 0, (size_t)c * sizeof(double));
    for (long p = 0; p < places; p++)
        for (long k = 0; k < c; k++) {
            const long i = p * c + k;
            const double v = ((double)x[i] - (double)mean[k]) * (double)inverse[k];
            const double own = (double)d[i], e = own * (double)l->w[i];
            slopes[k] += e, products[k] += e * v;
            g[i] = (float)(own * v);
            if (l->bias) g[l->wide + i] = d[i];
        }
}

/* Few values in a group: what is left after the means is little, and is then divided by a small deviation. */
INLINE void NAME(back_few)(const Layer *l, const float *x, const float *d, const float *mean, const float *inverse,
                           const double *own_s, const double *own_p, float *dx) {
    const long c = l->ic, part = c / l->groups;
    for (long i = 0; i < l->in; i++) {
        const long k = i % c, q = k / part;
        const double own = l->rows ? (double)l->w[l->each ? i : k] : 1;
        const double v = ((double)x[i] - (double)mean[k]) * (double)inverse[k];
        dx[i] = (float)((double)inverse[k] * ((double)d[i] * own - own_s[q] - v * own_p[q]));
    }
}

/* From sums over places for every channel, the gradient into `g`, and means over every group of derivatives by what is
 * before the weights, and of them times the normalised values: the third and the fourth part of n->sums. */
INLINE void NAME(means_of_slopes)(Net *n, const Layer *l, float *g) {
    const long c = l->ic, part = c / l->groups;
    const double count = (double)(part * l->ih * l->iw);
    double *slopes = n->sums, *products = n->sums + c;
    if (l->rows && !l->each) {
        memset(g, 0, (size_t)(l->rows * l->wide) * sizeof(float));
        for (long k = 0; k < c; k++) {
            g[k] = (float)products[k];
            if (l->bias) g[l->wide + k] = (float)slopes[k];
            slopes[k] *= (double)l->w[k], products[k] *= (double)l->w[k];
        }
    }
    for (long q = 0; q < l->groups; q++) {
        double all = 0, v = 0;
        for (long k = q * part; k < (q + 1) * part; k++) all += slopes[k], v += products[k];
        n->sums[2 * c + q] = all / count, n->sums[3 * c + q] = v / count;
    }
}

/* With v the normalised values and e = d w: dx = inverse (e - mean(e) - v mean(e v)), means over the group. */
PART void NAME(norm_backward)(Net *n, const Layer *l, const float *x, const float *stat, const float *d, float *g,
                              float *dx) {
    const long c = l->ic, part = c / l->groups, places = l->ih * l->iw;
    const double count = (double)(part * places);
    double *slopes = n->sums, *products = n->sums + c, *own_s = n->sums + 2 * c, *own_p = n->sums + 3 * c;
    float *mean = n->each, *inverse = mean + c, *s = mean + 2 * c, *m = mean + 3 * c;
    if (l->rows && l->each) memset(g, 0, (size_t)(l->rows * l->wide) * sizeof(float));
    for (long k = 0; k < c; k++) mean[k] = stat[2 * (k / part)], inverse[k] = stat[2 * (k / part) + 1];
    if (l->rows && l->each) NAME(slopes_of_each)(l, x, d, mean, inverse, g, slopes, products);
    else NAME(sums_of_slopes)(x, d, mean, inverse, c, places, slopes, products);
    NAME(means_of_slopes)(n, l, g);
    if (!dx) return;
    if (count <= FEW_VALUES) {
        NAME(back_few)(l, x, d, mean, inverse, own_s, own_p, dx);
        for (long i = l->in; i < l->into; i++) dx[i] = 0;
        return;
    }
    for (long k = 0; k < c; k++) s[k] = (float)own_s[k / part], m[k] = inverse[k] * (float)own_p[k / part];
    const int each = l->rows && l->each;
    long k = 0;
    for (; k + LANES <= c; k += LANES) {
        const vec mid = load(mean + k), over = load(inverse + k), less = load(s + k), turn_ = load(m + k);
        const vec shared = l->rows ? load(l->w + k) : (vec){0} + 1.0f;
        for (long p = 0; p < places; p++) {
            const long i = p * c + k;
            const vec e = load(d + i) * (each ? load(l->w + i) : shared);
            store(dx + i, over * (e - less - (load(x + i) - mid) * turn_));
        }
    }
    for (; k < c; k++)
        for (long p = 0; p < places; p++) {
            const long i = p * c + k;
            const float e = d[i] * (each ? l->w[i] : l->rows ? l->w[k] : 1);
            dx[i] = inverse[k] * (e - s[k] - (x[i] - mean[k]) * m[k]);
        }
    for (long i = l->in; i < l->into; i++) dx[i] = 0;
}
