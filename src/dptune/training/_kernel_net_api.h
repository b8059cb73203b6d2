/* Python's way to described networks. Everything is checked here: the kernels do not look again. */

static int read_or_refuse(Net *n, const Py_buffer *fields, const Py_buffer *constants, Py_ssize_t masks) {
    if (read_net(n, fields, constants, masks)) return 1;
    PyErr_SetString(PyExc_ValueError, "not a possible network, or too large for one");
    return 0;
}

/* A description is too large for the stack of a thread. */
static Net *new_net(void) {
    Net *n = calloc(1, sizeof *n);
    if (!n) PyErr_NoMemory();
    return n;
}

static PyObject *py_net_room(PyObject *self, PyObject *args) {
    Py_buffer fields = {0}, constants = {0};
    int exact;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*p", &fields, &constants, &exact)) return NULL;
    Net *n = new_net();
    if (n && read_or_refuse(n, &fields, &constants, -1)) result = PyLong_FromSize_t(lay_out_net(n, exact, NULL) + 64);
    free(n);
    PyBuffer_Release(&fields), PyBuffer_Release(&constants);
    return result;
}

/* The room begins on a line of the cache. */
static int lay_out_checked(Net *n, int exact, const Py_buffer *room) {
    if (!expect(room, (Py_ssize_t)(lay_out_net(n, exact, NULL) + 64), "room")) return 0;
    lay_out_net(n, exact, (char *)(((uintptr_t)room->buf + 63) / 64 * 64));
    return 1;
}

/* Whether places are those of records and, where targets are labels, these are of classes. */
static int places_fit(const Net *n, const Py_buffer *index, const Py_buffer *y) {
    if (!n->squared) return in_range(index, y, n->classes);
    const int64_t *places = index->buf;
    for (int64_t r = 0; r < index->len / 8; r++)
        if (places[r] < 0 || places[r] >= y->len / 8) {
            PyErr_SetString(PyExc_IndexError, "record out of range");
            return 0;
        }
    return 1;
}

/* Whether every place of the kernel's order names one of torch's, and outputs of a layer follow each other in there. */
static int order_fits(const Net *n, const Py_buffer *order) {
    if (!expect(order, n->dimension * 4, "order")) return 0;
    uint32_t most = 0, apart = 0;
    for (int k = 0; k < n->layers; k++) {
        const Layer *l = n->layer + k;
        const long depth = l->rows - l->bias;
        for (long i = 0; i < l->rows; i++) {
            const int32_t *at = (const int32_t *)order->buf + l->weights + i * l->cols;
            if (l->plain && i < depth) { /* the others are not read */
                apart |= (uint32_t)at[0] - (uint32_t)l->weights >= (uint32_t)depth;
                continue;
            }
            for (long j = 0; j < l->cols; j++) most = (uint32_t)at[j] > most ? (uint32_t)at[j] : most;
            for (long j = 0; l->kind != NORM && i < depth && j < l->cols; j++)
                apart |= ((uint32_t)at[j] - (uint32_t)at[0]) ^ (uint32_t)(j * depth);
        }
    }
    if (most < n->dimension && !apart) return 1;
    PyErr_SetString(PyExc_IndexError, "place of a parameter out of range");
    return 0;
}

static int rule_or_refuse(const Net *n) {
    const Rule *r = &n->rule;
    if (r->top >= 0 && r->top < INFINITY && r->stability >= 0 && r->floor > 0 && !(n->squared && n->classes != 1)) return 1;
    PyErr_SetString(PyExc_ValueError, "not a rule of clipping, or a squared error of several outputs");
    return 0;
}

/* With unit 0 a sum in single precision; otherwise an exact sum in double precision, in units of 1 / unit. */
static PyObject *py_net_sum(PyObject *self, PyObject *args) {
    Py_buffer fields = {0}, constants = {0}, p = {0}, masks = {0}, x = {0}, y = {0}, index = {0}, room = {0}, sum = {0};
    Py_buffer norms = {0}, order = {0};
    Rule rule;
    double unit;
    int squared;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*(dddp)dpw*w*w*", &fields, &constants, &order, &p, &masks, &x, &y, &index,
                          &rule.top, &rule.stability, &rule.floor, &rule.by_layer, &unit, &squared, &room, &sum, &norms))
        return NULL;
    Net *n = new_net();
    const int exact = unit != 0;
    if (n) n->rule = rule, n->squared = squared;
    if (!n || !read_or_refuse(n, &fields, &constants, masks.len) || !expect(&p, n->dimension * 4, "parameters") ||
        !rule_or_refuse(n) || !order_fits(n, &order) || !expect(&norms, index.len, "norms") ||
        !expect(&sum, n->dimension * (exact ? 8 : 4), "sum") || !expect(&x, y.len / 8 * n->layer[0].in * 4, "x") ||
        !places_fit(n, &index, &y) || !lay_out_checked(n, exact, &room))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    use.net_sum(n, p.buf, order.buf, masks.buf, x.buf, y.buf, index.buf, index.len / 8, exact ? unit : 1,
                exact ? NULL : sum.buf, exact ? sum.buf : NULL, norms.buf);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(n);
    PyBuffer_Release(&fields), PyBuffer_Release(&constants), PyBuffer_Release(&p), PyBuffer_Release(&masks);
    PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&index), PyBuffer_Release(&room);
    PyBuffer_Release(&sum), PyBuffer_Release(&norms), PyBuffer_Release(&order);
    return result;
}

static PyObject *py_net_forward(PyObject *self, PyObject *args) {
    Py_buffer fields = {0}, constants = {0}, order = {0}, p = {0}, x = {0}, room = {0}, out = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*", &fields, &constants, &order, &p, &x, &room, &out)) return NULL;
    Net *n = new_net();
    if (!n || !read_or_refuse(n, &fields, &constants, -1) || !expect(&p, n->dimension * 4, "parameters") ||
        !order_fits(n, &order))
        goto done;
    const int64_t count = x.len / 4 / n->layer[0].in;
    if (!expect(&out, count * n->classes * 4, "outputs") || !lay_out_checked(n, 0, &room)) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.net_forward(n, p.buf, order.buf, x.buf, count, out.buf);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(n);
    PyBuffer_Release(&fields), PyBuffer_Release(&constants), PyBuffer_Release(&p), PyBuffer_Release(&x);
    PyBuffer_Release(&room), PyBuffer_Release(&out), PyBuffer_Release(&order);
    return result;
}
