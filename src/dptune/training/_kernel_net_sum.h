/* Forward, backward, norms, clipping and sums of described networks, a group of records at a time.
 *
 * Dense layers are computed for all records of a group at once; their gradients are never written down: their norms are
 * products of norms, and one product of matrices adds them. Everything else goes record by record, so that a record's
 * values stay in the caches; gradients of convolutions and norms are written down, squared and added. A record's
 * gradient is longer than 2^64, or not finite: it contributes nothing. */

#include "_kernel_net_whole.h"

#include "_kernel_net_dense.h"

/* Padded weights, transposed ones for the way back; sums at zero. */
PART void NAME(prepare_net)(Net *n, const float *p, const int32_t *order, const float *masks, int back) {
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k;
        if (!l->rows) continue;
        NAME(fetch_weights)(n, l, p, order, back);
        if (l->plain) NAME(prepare_dense)(n, l, p, order, masks);
        if (l->tiles) NAME(prepare_tiles)(l);
        l->any_few = 0;
        if (!back) continue;
        if (l->s) memset(l->s, 0, (size_t)(table_rows(l) * l->wide) * sizeof(float));
        if (l->e) memset(l->e, 0, (size_t)(table_rows(l) * l->wide) * sizeof(double));
        if (l->whole) memset(l->whole, 0, (size_t)(l->rows * l->wide) * sizeof(int32_t));
        if (!l->t) continue;
        if (l->kind == LINEAR) continue; /* they were fetched that way */
        const long piece = l->kw * l->ic;
        memset(l->t, 0, (size_t)(l->oc * l->kh * l->seg) * sizeof(float));
        for (long j = 0; j < l->oc; j++)
            for (long i = 0; i < l->depth; i++)
                l->t[(j * l->kh + i / piece) * l->seg + i % piece] = l->w[i * l->wide + j];
    }
}

/* A record's features, channels side by side. */
INLINE void NAME(fetch_record)(const Layer *l, const float *from, float *to) {
    const long places = l->ih * l->iw;
    if (l->ic == 1 || places == 1) memcpy(to, from, (size_t)l->in * sizeof(float));
    else
        for (long c = 0; c < l->ic; c++)
            for (long p = 0; p < places; p++) to[p * l->ic + c] = from[c * places + p];
    for (long i = l->in; i < l->into; i++) to[i] = 0;
}

/* One layer for record r. */
INLINE void NAME(forward_alone)(Net *n, Layer *l, const float *masks, long r) {
    const float *x = l->x + r * l->into;
    float *y = l->y + r * l->outof;
    if (l->pooled) { /* with the layer behind it */
        Layer *next = l + 1;
        NAME(pooled_forward)(n, l, x, l->y + r * next->outof, next->y + r * next->outof, next->at + r * next->outof,
                             l->stat + r * 2 * l->groups);
        return;
    }
    if (l->kind == CONV) NAME(conv_forward)(n, l, x, y);
    else if (l->kind == MAX_POOL) NAME(max_forward)(l, x, y, l->at + r * l->outof);
    else if (l->kind == AVERAGE_POOL) NAME(average)(l, x, y, NULL, NULL);
    else if (l->kind == ACTIVATION) NAME(activation)(l, x, y, NULL);
    else if (l->kind == NORM) NAME(norm_forward)(n, l, x, y, l->stat + r * 2 * l->groups);
    else
        for (long i = 0; i < l->outof; i++) y[i] = masks && i < l->out ? x[i] * masks[l->mask + i] : x[i];
    for (long i = l->out; i < l->outof; i++) y[i] = 0;
}

/* The outputs of `count` records whose features have been fetched. */
PART void NAME(forward_net)(Net *n, const float *masks, long count) {
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k;
        if (l->plain) {
            NAME(dense_forward)(l, count);
            continue;
        }
        if (l->kind == LINEAR) {
            for (long r = 0; r < count; r++)
                for (long j = 0; j < l->wide; j += LANES)
                    store(l->y + r * l->wide + j, l->bias ? load(l->w + l->in * l->wide + j) : (vec){0});
            multiply(l->x, l->into, 1, l->w, l->wide, l->y, l->wide, count, l->wide, l->in);
            continue;
        }
        int end = k;
        while (end < n->layers && per_record(n->layer + end)) end++;
        for (long r = 0; r < count; r++)
            for (int j = k; j < end; j += 1 + n->layer[j].pooled) NAME(forward_alone)(n, n->layer + j, masks, r);
        k = end - 1;
    }
}

/* Derivatives of the loss: softmax minus label of the cross-entropy, or the error. Half the squared error goes on in a
 * straight line beyond an error of 1, so its derivative is never more than that; one that is no number stays none. */
INLINE void NAME(loss_net)(Net *n, long count) {
    Layer *l = n->layer + n->layers - 1;
    for (long r = 0; r < count; r++) {
        const float *z = l->y + r * l->outof;
        float *d = l->d + r * l->outof;
        if (n->squared) {
            const double error = (double)z[0] - n->target[r];
            memset(d, 0, (size_t)l->outof * sizeof(float));
            d[0] = (float)(error > 1 ? 1 : error < -1 ? -1 : error);
            continue;
        }
        double most = (double)z[0], all = 0;
        for (long j = 1; j < l->out; j++) most = (double)z[j] > most ? (double)z[j] : most;
        for (long j = 0; j < l->out; j++) all += exp((double)z[j] - most);
        for (long j = 0; j < l->out; j++)
            d[j] = (float)(exp((double)z[j] - most) / all - (j == n->label[r] ? 1.0 : 0.0));
        for (long j = l->out; j < l->outof; j++) d[j] = 0;
    }
}

/* The gradient of layer l for record r. */
INLINE float *NAME(gradient_of)(const Layer *l, long r) { return l->g + (l->alone ? r * l->rows * l->wide : 0); }

/* Record r back through layers first..end; the derivatives by the first one's input go to `out`. */
PART void NAME(backward_alone)(Net *n, int first, int end, const float *masks, long r, float *out) {
    float *d = n->layer[end - 1].d + r * n->layer[end - 1].outof;
    int turn = 0;
    for (int k = end - 1; k >= first; k--) {
        Layer *l = n->layer + k;
        const float *x = l->x + r * l->into;
        if (!l->below && !l->rows) return;
        float *dx = l->below ? (k == first ? out : n->ping[turn]) : NULL;
        if (elementwise(l)) {
            if (l->kind == ACTIVATION) NAME(activation)(l, x, l->y + r * l->outof, d);
            else
                for (long i = 0; masks && i < l->out; i++) d[i] *= masks[l->mask + i];
            if (k == first && out && out != d) memcpy(out, d, (size_t)l->into * sizeof(float));
            continue;
        }
        if (l->kind == MAX_POOL && k > first && l[-1].pooled) continue; /* with the layer before it */
        if (l->kind == CONV) NAME(conv_backward)(n, l, x, d, NAME(gradient_of)(l, r), dx);
        else if (l->pooled)
            NAME(pooled_backward)(n, l, x, l->y + r * l[1].outof, l[1].at + r * l[1].outof, l->stat + r * 2 * l->groups, d,
                                  l->rows ? NAME(gradient_of)(l, r) : NULL, dx);
        else if (l->kind == MAX_POOL) NAME(max_backward)(l, l->at + r * l->outof, d, dx);
        else if (l->kind == AVERAGE_POOL) NAME(average)(l, x, NULL, d, dx);
        else NAME(norm_backward)(n, l, x, l->stat + r * 2 * l->groups, d, l->rows ? NAME(gradient_of)(l, r) : NULL, dx);
        if (l->few) l->norm[r] += wide_square(l->g_few, (int)(l->oc * l->long_));
        if (l->rows) {
            const long skipped = l->few ? l->depth * l->wide : 0; /* its bias alone is there */
            l->norm[r] += wide_square(NAME(gradient_of)(l, r) + skipped, (int)(l->rows * l->wide - skipped));
        }
        if (!dx) return;
        for (long i = l->in; i < l->into; i++) dx[i] = 0;
        d = dx, turn = 1 - turn;
    }
}

/* A dense layer: norms of its gradients, derivatives by its inputs. */
INLINE void NAME(backward_dense)(Layer *l, float *dx, long count) {
    for (long r = 0; r < count; r++) {
        /* The bias has an input of one. Where there is none, inputs count as at least 2^-30 long: those that are next to
         * nothing could have derivatives that overflow once they are scaled. */
        const double inputs = wide_square(l->x + r * l->into, (int)l->into) + (l->bias ? 1 : 0x1p-60);
        /* Inputs beyond 2^64 would make a clipped gradient of derivatives that are too small for their last bits. */
        l->norm[r] += isfinite((float)inputs) ? inputs * wide_square(l->d + r * l->wide, (int)l->wide) : INFINITY;
    }
    if (!dx) return;
    if (l->plain) {
        NAME(dense_inputs)(l, dx, count);
        return;
    }
    memset(dx, 0, (size_t)(count * l->into) * sizeof(float));
    multiply(l->d, l->wide, 1, l->t, l->into, dx, l->into, count, l->into, l->out);
}

/* The factors that clip record r, times `unit`; zero for one that overflows. Whatever the rule, no part is longer than
 * its share of `top` afterwards, and all together no longer than `top`. */
INLINE void NAME(clip_record)(Net *n, long r, double unit) {
    const Rule *rule = &n->rule;
    double all = 0, parts = 0;
    for (int k = 0; k < n->layers; k++)
        if (n->layer[k].rows) all += n->layer[k].norm[r], parts++;
    const int fine = isfinite((float)all);
    const double share = rule->by_layer ? 1 / sqrt(parts) : 1, floor_ = rule->floor * share;
    n->length[r] = fine ? sqrt(all) : 0;
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k;
        if (!l->rows) continue;
        const double norm = sqrt(rule->by_layer ? l->norm[r] : all) + rule->stability;
        const double factor = rule->top * share / (norm > floor_ ? norm : floor_) * unit;
        l->factor[r] = !fine ? 0 : factor < 0x1p120 ? (float)factor : 0x1p120f; /* a smaller factor is always allowed */
    }
}


/* Record r's gradients of layers first..end that were written down, each times its factor. */
INLINE void NAME(add_alone)(Net *n, int first, int end, long r) {
    for (int k = first; k < end; k++) {
        Layer *l = n->layer + k;
        if (!l->g || l->factor[r] == 0) continue;
        const float f = l->factor[r];
        const long skipped = l->few ? l->depth * l->wide : 0;
        if (l->few) {
            const size_t turned = (size_t)(l->oc * l->long_);
            if (!l->any_few && l->s_few) memset(l->s_few, 0, turned * sizeof(float));
            if (!l->any_few && l->e_few) memset(l->e_few, 0, turned * sizeof(double));
            l->any_few = 1;
            add_scaled(l->s_few, l->e_few, l->g_few, f, (int)turned);
        }
        const float *g = NAME(gradient_of)(l, r) + skipped;
        const long count = l->rows * l->wide - skipped;
        if (l->whole && n->small) NAME(add_written_whole)(l->whole + skipped, g, f, count);
        else add_scaled(l->s + skipped, l->e ? l->e + skipped : NULL, g, f, (int)count);
    }
}

/* Everything that was not added record by record. */
INLINE void NAME(add_group)(Net *n, long count, int first, float *sum, double *exact) {
    for (int k = n->first; k < n->layers; k++) {
        Layer *l = n->layer + k;
        if (l->g)
            for (long r = 0; r < count; r++) NAME(add_alone)(n, k, k + 1, r);
        if (l->kind != LINEAR) continue;
        for (long r = 0; r < count; r++) {
            float *d = l->d + r * l->wide, *x = l->x + r * l->into;
            const float f = l->factor[r];
            if (f == 0) memset(x, 0, (size_t)l->into * sizeof(float)), memset(d, 0, (size_t)l->wide * sizeof(float));
            if (f == 0 && l->plain) memset(l->turned + r * l->stride, 0, (size_t)l->in * sizeof(float));
            for (long j = 0; j < l->wide; j += LANES) store(d + j, load(d + j) * f);
            if (l->bias)
                add_scaled(l->s + bias_row(l) * l->wide, l->e ? l->e + bias_row(l) * l->wide : NULL, d, 1, (int)l->wide);
        }
        if (l->plain) {
            if (sum) NAME(dense_sums)(l, sum + l->weights, count, first);
            else NAME(dense_exact)(l, exact + l->weights, count, n->small);
            continue;
        }
        if (l->s) multiply(l->x, 1, l->into, l->d, l->wide, l->s, l->wide, l->in, l->wide, count);
        if (l->e && n->small) {
            NAME(add_dense_whole)(l, count);
            continue;
        }
        for (long i = 0; l->e && i < l->in; i++) /* a row of the sum at a time: whole numbers add in any order */
            for (long r = 0; r < count; r++)
                if (l->x[r * l->into + i] != 0)
                    add_rounded(l->e + i * l->wide, l->d + r * l->wide, l->x[r * l->into + i], (int)l->wide);
    }
}

/* The way back of a group; afterwards every record has its factor, and its convolutions before the first dense layer
 * have been added. */
PART void NAME(backward_net)(Net *n, const float *masks, long count, double unit) {
    for (int k = 0; k < n->layers; k++)
        for (long r = 0; n->layer[k].rows && r < count; r++) n->layer[k].norm[r] = 0;
    for (int end = n->layers; end > 0;) {
        Layer *l = n->layer + end - 1;
        int first = end - 1;
        if (l->kind == LINEAR) {
            NAME(backward_dense)(l, l->below ? n->layer[end - 2].d : NULL, count);
            end--;
            continue;
        }
        while (first > 0 && per_record(n->layer + first - 1)) first--;
        for (long r = 0; r < count; r++) {
            float *out = first ? n->layer[first - 1].d + r * n->layer[first - 1].outof : NULL;
            NAME(backward_alone)(n, first, end, masks, r, out);
            if (first) continue;
            NAME(clip_record)(n, r, unit);
            NAME(add_alone)(n, 0, end, r);
        }
        end = first;
    }
    for (long r = 0; !n->first && r < count; r++) NAME(clip_record)(n, r, unit);
}

/* Sum of clipped gradients over the records at index[0..count), into `sum`, or into `exact` in units of 1 / unit with
 * every record's coordinates rounded to whole numbers; norms of gradients into `norms` where that is not null. Targets
 * are labels, or numbers for the squared error. */
static void NAME(net_sum)(Net *n, const float *p, const int32_t *order, const float *masks, const float *x, const void *y,
                          const int64_t *index, int64_t count, double unit, float *sum, double *exact, double *norms) {
    NAME(prepare_net)(n, p, order, masks, 1);
    for (int k = 0; k < n->layers; k++)
        if (n->layer[k].plain) NAME(clear_dense)(n->layer + k, sum, exact, count == 0);
    n->small = n->rule.top * unit * (n->settled + 1) < 0x1p30; /* sums of so many shares, in lattice steps */
    long added = 0;
    for (int64_t first = 0; first < count; first += n->group) {
        const long some = count - first < n->group ? (long)(count - first) : n->group;
        for (long r = 0; r < some; r++) {
            if (n->squared) n->target[r] = ((const double *)y)[index[first + r]];
            else n->label[r] = ((const int64_t *)y)[index[first + r]];
            NAME(fetch_record)(n->layer, x + index[first + r] * n->layer[0].in, n->layer[0].x + r * n->layer[0].into);
        }
        NAME(forward_net)(n, masks, some);
        NAME(loss_net)(n, some);
        NAME(backward_net)(n, masks, some, unit);
        if (norms) memcpy(norms + first, n->length, (size_t)some * sizeof(double));
        NAME(add_group)(n, some, first == 0, sum, exact);
        added += some;
        if (added + n->group <= n->settled && first + some < count) continue;
        for (int k = 0; n->small && k < n->layers; k++)
            if (n->layer[k].whole) NAME(settle_whole)(n->layer + k);
        added = 0;
    }
    for (int k = 0; k < n->layers; k++) {
        const Layer *l = n->layer + k;
        for (long j = 0; l->any_few && j < l->oc; j++)
            for (long i = 0; i < l->depth; i++) {
                if (exact) l->e[i * l->wide + j] += l->e_few[j * l->long_ + i];
                else l->s[i * l->wide + j] += l->s_few[j * l->long_ + i];
            }
        if (l->rows) NAME(give_sums)(n, l, order, sum, exact);
    }
}

/* Outputs; the bits of each are a function of its record alone. */
static void NAME(net_forward)(Net *n, const float *p, const int32_t *order, const float *x, int64_t count, float *out) {
    const Layer *last = n->layer + n->layers - 1;
    NAME(prepare_net)(n, p, order, NULL, 0);
    for (int64_t first = 0; first < count; first += n->group) {
        const long some = count - first < n->group ? (long)(count - first) : n->group;
        for (long r = 0; r < some; r++)
            NAME(fetch_record)(n->layer, x + (first + r) * n->layer[0].in, n->layer[0].x + r * n->layer[0].into);
        NAME(forward_net)(n, NULL, some);
        for (long r = 0; r < some; r++)
            memcpy(out + (first + r) * last->out, last->y + r * last->outof, (size_t)last->out * sizeof(float));
    }
}
