/* Networks that are described (see _network.py): what one layer is, and where its values lie.
 *
 * A description arrives as whole numbers, FIELDS for every layer, and CONSTANTS numbers for its formula. A record's
 * values are stored place after place with channels side by side, without padding between places; every row ends on a
 * whole vector, and what is behind its last value is zero. Layers with weights have a table of `rows` rows with one
 * column for every output, padded to `wide`; the bias is the last row. The same tables hold a record's gradient (`g`)
 * and the sum (`s`, or `e` for exact sums). */
enum { LINEAR, CONV, MAX_POOL, AVERAGE_POOL, ACTIVATION, NORM, MASK };
enum { RELU, TANH, SIGMOID, SILU, GELU, GELU_TANH, ELU };
enum { FIELDS = 17, CONSTANTS = 4, MOST_LAYERS = 256, GROUP = 32, SMALL_GROUP = 2, MLP_GROUP = 96, PATCHES = 32768, SLACK = 64 };
enum { FEW_PLACES = 56, FEW_VALUES = 64, PLAIN = 65536, TILE_VALUES = 6400, MOST_LARGE = 4 };
static const int64_t MOST_VALUES = (int64_t)1 << 31;

/* How a record's gradient is clipped: it is multiplied by top / max(norm + stability, floor), so that it is at most `top`
 * long. By layer, the norm is that of a layer's part, and top and floor are over the root of the number of layers. */
typedef struct {
    double top, stability, floor;
    int by_layer;
} Rule;

typedef struct {
    int kind, act, bias, each; /* each: a norm with weights of their own for every value, not for every channel */
    long ic, ih, iw, oc, oh, ow, kh, kw, sh, sw, ph, pw, groups;
    float c[CONSTANTS];
    long in, out, places;       /* values of one record; places of its output */
    long into, outof;           /* lengths of their rows */
    long rows, cols, wide;      /* of the table of weights; rows is zero where there are none */
    long depth, patch, seg;     /* convolutions: inputs of one output, row length of patches, padded row of the kernel */
    long edge_h, edge_w;        /* sides of the input with its margin */
    long weights;               /* where they begin in the vector of parameters */
    long mask;                  /* where a mask begins in the vector of masks */
    /* Convolutions that are computed in tiles (_kernel_net_tiles.h): the sides of a tile's inputs (4 or 6), how many tiles,
     * and at a time, the sides of the input that makes them whole, and the weights that they need. */
    int nh, nw;
    long tiles, tw, some, some_rows, tall, broad;
    float *u, *ut;
    int pooled;                 /* a norm that is computed together with the pooling behind it (_kernel_net_pooled.h) */
    /* Dense layers whose weights stay in torch's order (_kernel_net_dense.h): those; inputs of a group in that order and
     * derivatives by them, rows `stride` apart; each input's place; places of the image that they are; outputs that count,
     * and derivatives by those. */
    int plain;
    const float *p;
    float *turned, *back, *few_d;
    long stride, apart, lives;
    int32_t *place, *live;
    int alone;                  /* one gradient is kept for each record of a group, not one in all */
    int below;                  /* a layer before this one has weights */
    float *x, *y, *d;           /* inputs, outputs, derivatives by outputs (where they are kept for the group) */
    float *w, *t, *g, *s;
    double *e;
    int32_t *whole;             /* what a few records add to an exact sum of gradients that are written down */
    /* Convolutions whose derivatives are mostly zero (after pooling): gradient and sums with outputs as rows of `long_`
     * values, and whether this record's gradient is there. */
    long long_;
    int sparse, few, any_few;   /* whether they may be; of this record; of any in this sum */
    float *g_few, *s_few;
    double *e_few;
    int32_t *at;                /* which value of a window was the largest */
    double *norm;               /* squared, of every record's gradient */
    float *factor;              /* that clips it */
    float *stat;                /* means and inverse deviations of a norm */
} Layer;

typedef struct {
    int layers, group, first;   /* first: how many layers before the first dense one */
    int small;                  /* whether exact sums of `settled` records fit 32 bits */
    long settled;
    int squared;                /* the loss: half the squared error, or softmax and cross-entropy */
    Rule rule;
    long dimension, classes;
    Layer layer[MOST_LAYERS];
    int32_t *which[2]; /* of a few places: those that are not zero for every channel, and for every place the channels */
    float *value[2];
    int32_t *counts;
    float *patches, *lanes, *edged, *slopes, *ping[2];
    float *tile_x, *tile_y, *tile_g;
    double *sums;
    float *each; /* a norm's figures of every channel */
    int32_t *places; /* of one output's weights in torch's order; and sixteen rows of weights */
    float *turned;
    int64_t label[MLP_GROUP];
    double target[MLP_GROUP], length[MLP_GROUP]; /* length: the norm of a record's gradient; zero where it overflows */
} Net;

static long rounded(long n) { return (n + 15) / 16 * 16; }
/* Rows of its tables, and the bias in there: what stays in torch's order has no row. */
static long table_rows(const Layer *l) { return l->plain ? l->bias : l->rows; }
static long bias_row(const Layer *l) { return l->plain ? 0 : l->rows - l->bias; }
static int per_record(const Layer *l) { return l->kind != LINEAR; }
static int elementwise(const Layer *l) { return l->kind == ACTIVATION || l->kind == MASK; }
/* Whether the way back through an activation needs its input: others need their output alone. */
static int needs_input(const Layer *l) {
    return l->kind == ACTIVATION && (l->act == SILU || l->act == GELU || l->act == GELU_TANH);
}

/* Tiles where they need fewer operations: 16 products for 4 outputs, not 36 (or 24 for 8, or 36 for 16), and two and a
 * half for each of those and each weight to and fro. The first `sizes` of these sizes are tried; large tiles are taken
 * where they are not too few. */
static void plan_tiles(Layer *l, int sizes) {
    const long plain = l->places * 72;
    long least = 0;
    if (l->kh != 3 || l->kw != 3 || l->sh != 1 || l->sw != 1 || l->ic % 16 || l->oc % 16) return;
    for (int size = 0; size < sizes; size++) {
        const int nh = size == 2 ? 6 : 4, nw = size ? 6 : 4;
        const long high = (l->oh + nh - 3) / (nh - 2), wide = (l->ow + nw - 3) / (nw - 2);
        const long work = nh * nw * (10 * high * wide + 60);
        if (nh * nw * (10 * high * wide + 25) > plain || (least && work >= least)) continue;
        least = work, l->nh = nh, l->nw = nw;
        l->tiles = high * wide, l->tw = wide, l->tall = (nh - 2) * high + 2, l->broad = (nw - 2) * wide + 2;
        l->some_rows = 65536 / (nh * nw * l->oc) / 6 * 6 + 6; /* of weights at a time */
        l->some = TILE_VALUES * 16 / (nh * nw) / (l->ic + l->oc) + 12;
    }
}

/* Whether a norm goes to pooling that may be computed with it. Groups of few values have a way back of their own. */
static int goes_to_windows(const Layer *l) {
    const Layer *next = l + 1;
    if (l->kind != NORM || next->kind != MAX_POOL || l->each || l->ic % 16 || l->ih % 2 || l->iw % 2) return 0;
    if (l->ic / l->groups * l->ih * l->iw <= FEW_VALUES || next->ic != l->ic || next->ih != l->ih) return 0;
    return next->kh == 2 && next->kw == 2 && next->sh == 2 && next->sw == 2 && !next->ph && !next->pw;
}

/* Whether numbers of a layer are possible; sizes are computed on the way. */
static int read_layer(Layer *l, const int64_t *f, const float *constants) {
    for (int k = 2; k < 15; k++)
        if (f[k] < 0 || f[k] >= MOST_VALUES) return 0;
    if (f[0] < LINEAR || f[0] > MASK || f[1] < RELU || f[1] > ELU) return 0;
    *l = (Layer){.kind = (int)f[0], .act = (int)f[1], .ic = f[2], .ih = f[3], .iw = f[4], .oc = f[5], .oh = f[6],
                 .ow = f[7], .kh = f[8], .kw = f[9], .sh = f[10], .sw = f[11], .ph = f[12], .pw = f[13],
                 .groups = f[14], .bias = (int)(f[15] & 1), .each = (int)(f[15] >> 1 & 1), .mask = f[16]};
    memcpy(l->c, constants, sizeof l->c);
    if (l->ic < 1 || l->ih < 1 || l->iw < 1 || l->oc < 1 || l->oh < 1 || l->ow < 1) return 0;
    if ((double)l->ic * (double)l->ih * (double)l->iw > 1e9 || (double)l->oc * (double)l->oh * (double)l->ow > 1e9) return 0;
    l->in = l->ic * l->ih * l->iw, l->places = l->oh * l->ow, l->out = l->oc * l->places;
    l->into = rounded(l->in), l->outof = rounded(l->out);
    l->edge_h = l->ih + 2 * l->ph, l->edge_w = l->iw + 2 * l->pw;
    if (l->kind == CONV || l->kind == MAX_POOL || l->kind == AVERAGE_POOL) {
        if (l->kh < 1 || l->kw < 1 || l->sh < 1 || l->sw < 1) return 0;
        if ((double)l->edge_h * (double)l->edge_w * (double)l->ic > 1e9) return 0;
        if ((l->oh - 1) * l->sh + l->kh > l->edge_h || (l->ow - 1) * l->sw + l->kw > l->edge_w) return 0;
        if (l->kind != CONV && (l->oc != l->ic || l->ph >= l->kh || l->pw >= l->kw)) return 0;
    } else if (l->kind != LINEAR && l->in != l->out) return 0;
    if (l->kind == LINEAR) {
        l->rows = l->in + l->bias, l->cols = l->out;
        l->plain = l->in % 16 == 0 && (double)l->in * (double)l->out >= PLAIN, l->stride = l->in + 16;
    }
    if (l->kind == CONV) {
        l->depth = l->kh * l->kw * l->ic, l->seg = rounded(l->kw * l->ic);
        l->patch = rounded(l->depth) + 16, l->long_ = rounded(l->depth);
        l->rows = l->depth + l->bias, l->cols = l->oc;
        plan_tiles(l, 1);
    }
    if (l->kind == NORM) {
        if (l->groups < 1 || l->ic % l->groups || (l->each && l->groups != 1)) return 0;
        l->rows = f[15] >> 2 & 1 ? 1 + l->bias : 0; /* it may have no weights */
        l->cols = l->each ? l->in : l->ic;
    }
    l->wide = rounded(l->cols);
    return (double)l->rows * (double)l->wide < 2e9;
}

/* Take `count` floats from the room, on a line of the cache and with room to run over its end. */
static float *take(char *room, size_t *used, size_t count, size_t bytes) {
    float *found = room ? (float *)(room + *used) : NULL;
    *used += (count * bytes + SLACK * sizeof(float) + 63) / 64 * 64;
    return found;
}

/* Read the description; false if it is not possible. */
static int read_net(Net *n, const Py_buffer *fields, const Py_buffer *constants, Py_ssize_t masks) {
    const int64_t *f = fields->buf;
    int weights = 0, tiled = 0, bent = 0;
    double held = 0, dense = 0;
    n->layers = (int)(fields->len / 8 / FIELDS);
    if (n->layers < 1 || n->layers > MOST_LAYERS || fields->len != n->layers * FIELDS * 8) return 0;
    if (constants->len != n->layers * CONSTANTS * 4) return 0;
    n->dimension = 0, n->first = n->layers;
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k;
        if (!read_layer(l, f + k * FIELDS, (const float *)constants->buf + k * CONSTANTS)) return 0;
        if (k && l->in != n->layer[k - 1].out) return 0;
        if (l->kind == MASK && masks >= 0 && (l->mask < 0 || l->mask > masks / 4 - l->in)) return 0;
        tiled += l->tiles > 0, bent += l->kind == ACTIVATION && l->act != RELU;
        l->below = weights, weights |= l->rows > 0;
        l->weights = n->dimension, n->dimension += l->rows * l->cols;
        if (l->kind == LINEAR && n->first == n->layers) n->first = k;
        held += (double)(l->outof + l->into);
        if (l->kind == LINEAR) dense += (double)l->rows * (double)l->wide;
    }
    /* Large tiles lose up to three times what small ones do. They are used where that was measured to leave gradients
     * within 1e-6: in a few layers, and where no activation but relu makes more of it (docs/engine.md). */
    for (int k = 0; k < n->layers && bent == 0 && tiled <= MOST_LARGE; k++)
        if (n->layer[k].tiles) plan_tiles(n->layer + k, 3);
    n->classes = n->layer[n->layers - 1].out;
    /* Many records share what is read of dense layers, few share the caches. */
    n->group = !n->first ? MLP_GROUP : dense * 16 <= held ? SMALL_GROUP : GROUP;
    n->settled = n->group > GROUP ? n->group : GROUP;
    while (n->group > 1 && held * n->group > 1.2e7) n->group /= 2;
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k;
        l->alone = l->rows && per_record(l) && k > n->first;
        l->pooled = k + 1 < n->layers && goes_to_windows(l);
        l->sparse = !l->alone && k + 1 < n->layers && l[1].kind != NORM; /* derivatives by a norm's inputs are no zeros */
    }
    return weights && n->dimension < MOST_VALUES;
}

/* Lay out the room from `room` on (or nowhere); returns the bytes that it takes. */
static size_t lay_out_net(Net *n, int exact, char *room) {
    size_t used = 0, widest = 0, patches = 0, spreads = 0, edged = 0, slopes = 0, channels = 0, lists = 0;
    size_t tile_x = 0, tile_y = 0, tile_g = 0, deepest = 0;
    const size_t group = (size_t)n->group;
    float *last = take(room, &used, group * (size_t)n->layer[0].into, 4);
    for (int k = 0; k < n->layers; k++) {
        Layer *l = n->layer + k, *before = k ? l - 1 : NULL;
        const size_t table = (size_t)(table_rows(l) * l->wide);
        const int in_place = l->kind == MASK ? 1 : l->kind == ACTIVATION && !needs_input(l) && !(before && before->kind == ACTIVATION);
        /* A norm's inputs stay as they are, and so do outputs that an activation needs on the way back. */
        l->x = last;
        l->y = in_place && !(l->kind == MASK && before && before->kind == ACTIVATION)
                   ? last : take(room, &used, group * (size_t)(l->pooled ? l[1].outof : l->outof), 4);
        last = l->y;
        if (l->rows) {
            l->w = take(room, &used, table, 4);
            l->g = l->kind == LINEAR ? NULL : take(room, &used, table * (l->alone ? group : 1), 4);
            l->s = exact ? NULL : take(room, &used, table, 4);
            l->e = exact ? (double *)take(room, &used, table, 8) : NULL;
            l->whole = exact && l->kind != LINEAR ? (int32_t *)take(room, &used, table, 4) : NULL;
            l->norm = (double *)take(room, &used, group, 8);
            l->factor = take(room, &used, group, 4);
        }
        if (l->plain) {
            l->turned = take(room, &used, group * (size_t)l->stride, 4);
            l->back = l->below ? take(room, &used, group * (size_t)l->stride, 4) : NULL;
            l->t = take(room, &used, (size_t)l->wide * 64, 4);
            l->few_d = take(room, &used, group * (size_t)l->wide, 4);
            l->place = (int32_t *)take(room, &used, (size_t)l->in, 4);
            l->live = (int32_t *)take(room, &used, (size_t)l->wide, 4);
        } else if (l->kind == LINEAR) l->t = l->below ? take(room, &used, (size_t)(l->out * l->into), 4) : NULL;
        if (l->kind == CONV) {
            size_t block = (size_t)(PATCHES / l->patch + FEW_PLACES);
            if ((size_t)l->places < block) block = (size_t)l->places;
            l->t = l->below ? take(room, &used, (size_t)(l->oc * l->kh * l->seg), 4) : NULL;
            if (l->sparse) {
                const size_t turned = (size_t)(l->oc * l->long_);
                l->g_few = take(room, &used, turned, 4);
                l->s_few = exact ? NULL : take(room, &used, turned, 4);
                l->e_few = exact ? (double *)take(room, &used, turned, 8) : NULL;
            }
            if ((size_t)l->wide > lists) lists = (size_t)l->wide;
            if (block * (size_t)l->patch > patches) patches = block * (size_t)l->patch;
            if (block * (size_t)(l->kh * l->seg) > spreads) spreads = block * (size_t)(l->kh * l->seg);
            if (block * (size_t)l->wide > slopes) slopes = block * (size_t)l->wide;
            if ((size_t)(l->edge_h * l->edge_w * l->ic) > edged) edged = (size_t)(l->edge_h * l->edge_w * l->ic);
        }
        if (l->tiles) {
            const size_t some = (size_t)(l->some < l->tiles ? l->some : l->tiles) + 12, size = (size_t)(l->ic * l->oc);
            const size_t nodes = (size_t)(l->nh * l->nw);
            l->u = take(room, &used, nodes * size, 4);
            l->ut = l->below ? take(room, &used, nodes * size, 4) : NULL;
            if (nodes * (some * (size_t)l->ic + 16) > tile_x) tile_x = nodes * (some * (size_t)l->ic + 16);
            if (nodes * (some * (size_t)l->oc + 16) > tile_y) tile_y = nodes * (some * (size_t)l->oc + 16);
            if (nodes * (size + 16) > tile_g) tile_g = nodes * (size + 16);
            if ((size_t)(l->tall * l->broad * l->ic) > edged) edged = (size_t)(l->tall * l->broad * l->ic);
        }
        if (l->kind == MAX_POOL) l->at = (int32_t *)take(room, &used, group * (size_t)l->outof, 4);
        if (l->kind == NORM) l->stat = take(room, &used, group * 2 * (size_t)l->groups, 4);
        if ((size_t)l->into > widest) widest = (size_t)l->into;
        if ((size_t)l->outof > widest) widest = (size_t)l->outof;
        if (l->kind != NORM && (size_t)l->rows > deepest) deepest = (size_t)l->rows;
        if ((size_t)l->ic > channels) channels = (size_t)l->ic;
    }
    for (int k = n->layers - 1; k >= 0; k--) { /* of dense layers, and of the last layer before one or in all */
        Layer *l = n->layer + k;
        if (k == n->layers - 1 || !per_record(l) || !per_record(l + 1)) l->d = take(room, &used, group * (size_t)l->outof, 4);
    }
    n->patches = take(room, &used, patches, 4);
    n->lanes = take(room, &used, spreads, 4);
    n->slopes = take(room, &used, slopes, 4);
    n->edged = take(room, &used, 2 * edged + 2 * SLACK, 4);
    n->tile_x = take(room, &used, tile_x, 4);
    n->tile_y = take(room, &used, tile_y, 4);
    n->tile_g = take(room, &used, tile_g, 4);
    n->ping[0] = take(room, &used, widest, 4);
    n->ping[1] = take(room, &used, widest, 4);
    for (int k = 0; k < 2; k++) {
        n->which[k] = (int32_t *)take(room, &used, lists * FEW_PLACES, 4);
        n->value[k] = take(room, &used, lists * FEW_PLACES, 4);
    }
    n->counts = (int32_t *)take(room, &used, lists + FEW_PLACES, 4);
    n->sums = (double *)take(room, &used, 4 * channels, 8);
    n->each = take(room, &used, 4 * channels, 4);
    n->places = (int32_t *)take(room, &used, deepest, 4);
    n->turned = take(room, &used, 16 * (size_t)rounded((long)deepest), 4);
    return used;
}
