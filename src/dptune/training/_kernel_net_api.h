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

/* With unit 0 a sum in single precision; otherwise an exact sum in double precision, in units of 1 / unit. */
static PyObject *py_net_sum(PyObject *self, PyObject *args) {
    Py_buffer fields = {0}, constants = {0}, p = {0}, masks = {0}, x = {0}, y = {0}, index = {0}, room = {0}, sum = {0};
    double clip, unit;
    int rule = FLAT;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*ddw*w*|i", &fields, &constants, &p, &masks, &x, &y, &index, &clip, &unit,
                          &room, &sum, &rule))
        return NULL;
    Net *n = new_net();
    const int exact = unit != 0;
    if (!n || !read_or_refuse(n, &fields, &constants, masks.len) || !expect(&p, n->dimension * 4, "parameters") ||
        !expect(&sum, n->dimension * (exact ? 8 : 4), "sum") || !expect(&x, y.len / 8 * n->layer[0].in * 4, "x") ||
        !in_range(&index, &y, n->classes) || !lay_out_checked(n, exact, &room))
        goto done;
    if (rule < FLAT || rule > BY_LAYER) {
        PyErr_SetString(PyExc_ValueError, "no such rule of clipping");
        goto done;
    }
    n->rule = rule;
    Py_BEGIN_ALLOW_THREADS
    use.net_sum(n, p.buf, masks.buf, x.buf, y.buf, index.buf, index.len / 8, clip, exact ? unit : 1,
                exact ? NULL : sum.buf, exact ? sum.buf : NULL);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(n);
    PyBuffer_Release(&fields), PyBuffer_Release(&constants), PyBuffer_Release(&p), PyBuffer_Release(&masks);
    PyBuffer_Release(&x), PyBuffer_Release(&y), PyBuffer_Release(&index), PyBuffer_Release(&room);
    PyBuffer_Release(&sum);
    return result;
}

static PyObject *py_net_forward(PyObject *self, PyObject *args) {
    Py_buffer fields = {0}, constants = {0}, p = {0}, x = {0}, room = {0}, out = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*w*", &fields, &constants, &p, &x, &room, &out)) return NULL;
    Net *n = new_net();
    if (!n || !read_or_refuse(n, &fields, &constants, -1) || !expect(&p, n->dimension * 4, "parameters")) goto done;
    const int64_t count = x.len / 4 / n->layer[0].in;
    if (!expect(&out, count * n->classes * 4, "outputs") || !lay_out_checked(n, 0, &room)) goto done;
    Py_BEGIN_ALLOW_THREADS
    use.net_forward(n, p.buf, x.buf, count, out.buf);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(n);
    PyBuffer_Release(&fields), PyBuffer_Release(&constants), PyBuffer_Release(&p), PyBuffer_Release(&x);
    PyBuffer_Release(&room), PyBuffer_Release(&out);
    return result;
}
