/*
 * _core.c: what runs for each point, compiled: finding the series, keeping the point until the thread takes it, and writing
 * it for the service. The same as _lane.py, _points.py and _metrics.py have it in Python, which takes over where an argument is
 * out of the ordinary, such as a scalar of NumPy or a time of the caller's.
 *
 * All of it runs with the interpreter's lock, but for the writing of bodies, which is most of the work.
 * The limited API of 3.9: one build serves all later versions.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Part of the stable interface from 3.10 on, and the same before. */
#ifndef METH_FASTCALL
#define METH_FASTCALL 0x0080
#endif

#define TAGS_MAX 8
/* As SERIES_MAX of _sender.py. */
#define CACHE_MAX 100000
#define SET_BACK_US 1000000
/* A time, a value, and what stands around them. */
#define NUMBERS_BYTES_MAX 96

typedef PyObject *(*fast_call)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*fast_call_named)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

enum { NAME, DATA, TIMESTAMP, LEVEL, TAGK, TAGV, TAGS, ARGUMENTS };
static const char *const argument_names[ARGUMENTS] = {
    "ts_metric_name", "ts_data", "timestamp", "telemetry_level", "tagk", "tagv", "tags",
};
static PyObject *argument_texts[ARGUMENTS];
static PyTypeObject *series_type, *lane_type, *batch_type, *cell_type, *spread_type;

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc give_back = (freefunc)PyType_GetSlot(type, Py_tp_free);
    give_back(self);
    Py_DECREF(type);
}

/* ---- series ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *head;  /* str */
    PyObject *line;  /* str */
    PyObject *bytes; /* of `head` */
    const char *at;
    Py_ssize_t length;
    int64_t last;
    int was_told;
} Series;

static int series_init(PyObject *self, PyObject *args, PyObject *named)
{
    Series *series = (Series *)self;
    PyObject *head, *line = NULL;
    char *at;
    if (named && PyDict_Size(named) > 0) {
        PyErr_SetString(PyExc_TypeError, "Series(head, line='')");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "U|U", &head, &line)) return -1;
    PyObject *bytes = PyUnicode_AsUTF8String(head);
    PyObject *none = line ? NULL : PyUnicode_FromString("");
    if (!bytes || (!line && !none) || PyBytes_AsStringAndSize(bytes, &at, &series->length) < 0) {
        Py_XDECREF(bytes);
        Py_XDECREF(none);
        return -1;
    }
    Py_INCREF(head);
    Py_XDECREF(series->head);
    series->head = head;
    Py_XINCREF(line);
    Py_XDECREF(series->line);
    series->line = line ? line : none;
    Py_XDECREF(series->bytes);
    series->bytes = bytes;
    series->at = at;
    return 0;
}

static void series_dealloc(PyObject *self)
{
    Series *series = (Series *)self;
    Py_XDECREF(series->head);
    Py_XDECREF(series->line);
    Py_XDECREF(series->bytes);
    free_object(self);
}

static PyObject *given(PyObject *held)
{
    if (!held) held = Py_None;
    Py_INCREF(held);
    return held;
}

static PyObject *series_head(PyObject *self, void *unused) { return given(((Series *)self)->head); }
static PyObject *series_line(PyObject *self, void *unused) { return given(((Series *)self)->line); }
static PyObject *series_last(PyObject *self, void *unused) { return PyLong_FromLongLong(((Series *)self)->last); }
static PyObject *series_told(PyObject *self, void *unused) { return PyBool_FromLong(((Series *)self)->was_told); }

static int set_series_last(PyObject *self, PyObject *value, void *unused)
{
    long long last = value ? PyLong_AsLongLong(value) : 0;
    if (last == -1 && PyErr_Occurred()) return -1;
    ((Series *)self)->last = last;
    return 0;
}

static int set_series_told(PyObject *self, PyObject *value, void *unused)
{
    int told = value ? PyObject_IsTrue(value) : 0;
    if (told < 0) return -1;
    ((Series *)self)->was_told = told;
    return 0;
}

static PyGetSetDef series_fields[] = {
    {"head", series_head, NULL, "The start of the JSON of each of its points.", NULL},
    {"line", series_line, NULL, "The start of its lines in line protocol, if it needs that.", NULL},
    {"last", series_last, set_series_last, "The latest time that it has used.", NULL},
    {"was_told", series_told, set_series_told, "Whether a caller ever said a time.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot series_slots[] = {
    {Py_tp_doc, "One metric with its tags."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, series_init},
    {Py_tp_dealloc, series_dealloc},
    {Py_tp_getset, series_fields},
    {0, NULL},
};
static PyType_Spec series_spec = {"telem._core.Series", sizeof(Series), 0, Py_TPFLAGS_DEFAULT, series_slots};

/* ---- points ------------------------------------------------------------------------------------------------------- */

typedef struct {
    Series *series;
    PyObject *moment; /* NULL: `micros` of the clock */
    int64_t micros;
    union {
        double real;
        int64_t whole;
    } value;
    int is_whole;
} Point;

static void drop_point(Point *point)
{
    Py_DECREF(point->series);
    Py_XDECREF(point->moment);
}

/* Whether `number` is one that is kept as it is. */
static int read_number(PyObject *number, Point *point)
{
    int beyond = 0;
    if (PyFloat_CheckExact(number)) {
        point->is_whole = 0;
        point->value.real = PyFloat_AsDouble(number);
        return 1;
    }
    if (!PyLong_CheckExact(number)) return 0;
    point->is_whole = 1;
    point->value.whole = PyLong_AsLongLongAndOverflow(number, &beyond);
    return !beyond;
}

typedef struct {
    PyObject_HEAD
    Point *points;
    Py_ssize_t count;
} Batch;

static void batch_dealloc(PyObject *self)
{
    Batch *batch = (Batch *)self;
    for (Py_ssize_t i = 0; i < batch->count; i++) drop_point(&batch->points[i]);
    free(batch->points);
    free_object(self);
}

static Py_ssize_t batch_length(PyObject *self) { return ((Batch *)self)->count; }

/* The time of a point that is not simply the next one of its series. */
static int ask_time(PyObject *times, Point *point)
{
    PyObject *when = point->moment ? given(point->moment) : PyLong_FromLongLong(point->micros);
    if (!when) return -1;
    PyObject *found = PyObject_CallMethod(times, "of", "OO", (PyObject *)point->series, when);
    Py_DECREF(when);
    if (!found) return -1;
    point->micros = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return point->micros == -1 && PyErr_Occurred() ? -1 : 0;
}

static size_t write_whole(char *to, int64_t value)
{
    char digits[24];
    uint64_t rest = value < 0 ? ~(uint64_t)value + 1 : (uint64_t)value;
    size_t count = 0, at = 0;
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) to[at++] = '-';
    while (count) to[at++] = digits[--count];
    return at;
}

/* As JSON, with the words that are none as texts; read back, it is the same number bit for bit. */
static size_t write_real(char *to, double value)
{
    if (isnan(value)) return (size_t)sprintf(to, "\"nan\"");
    if (isinf(value)) return (size_t)sprintf(to, value < 0 ? "\"-inf\"" : "\"inf\"");
    /* Most of what is logged is short: halves, counts, hundredths. */
    if (fabs(value) < 1e15 && value == (double)(int64_t)value && !(value == 0 && signbit(value))) {
        size_t at = write_whole(to, (int64_t)value);
        memcpy(to + at, ".0", 2);
        return at + 2;
    }
    size_t length = (size_t)snprintf(to, 40, "%.17g", value);
    int is_whole = 1;
    for (size_t i = 0; i < length; i++) {
        /* Where the locale has a comma. */
        if (to[i] == ',') to[i] = '.';
        if (to[i] == '.' || to[i] == 'e') is_whole = 0;
    }
    if (is_whole) {
        memcpy(to + length, ".0", 2);
        length += 2;
    }
    return length;
}

static size_t write_points(char *to, const Batch *batch)
{
    char *at = to;
    *at++ = '[';
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        const Point *point = &batch->points[i];
        if (i) *at++ = ',';
        memcpy(at, point->series->at, (size_t)point->series->length);
        at += point->series->length;
        at += write_whole(at, point->micros);
        memcpy(at, ",\"value\":", 9);
        at += 9;
        at += point->is_whole ? write_whole(at, point->value.whole) : write_real(at, point->value.real);
        *at++ = '}';
    }
    *at++ = ']';
    return (size_t)(at - to);
}

static PyObject *batch_body(PyObject *self, PyObject *times)
{
    Batch *batch = (Batch *)self;
    size_t room = 16;
    for (Py_ssize_t i = 0; i < batch->count; i++) {
        Point *point = &batch->points[i];
        Series *series = point->series;
        int64_t behind = series->last - point->micros;
        if (point->moment || series->was_told || (behind >= 0 && behind < SET_BACK_US)) {
            if (ask_time(times, point) < 0) return NULL;
        } else {
            series->last = point->micros;
        }
        room += (size_t)series->length + NUMBERS_BYTES_MAX;
    }
    char *text = malloc(room);
    size_t length;
    if (!text) return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    length = write_points(text, batch);
    Py_END_ALLOW_THREADS
    PyObject *body = PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
    free(text);
    return body;
}

static PyMethodDef batch_methods[] = {
    {"body", batch_body, METH_O, "The JSON of all points; to be called once, as it decides their times."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "Points that were taken from a lane."},
    {Py_tp_dealloc, batch_dealloc},
    {Py_sq_length, batch_length},
    {Py_tp_methods, batch_methods},
    {0, NULL},
};
static PyType_Spec batch_spec = {"telem._core.Batch", sizeof(Batch), 0, Py_TPFLAGS_DEFAULT, batch_slots};

/* ---- lanes -------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Point *points; /* a ring */
    Py_ssize_t room, first, count, count_max;
    PyObject *tell;
    int is_told;
    int is_closed;
} Lane;

static int lane_init(PyObject *self, PyObject *args, PyObject *named)
{
    Lane *lane = (Lane *)self;
    Py_ssize_t count_max;
    PyObject *tell;
    if (named && PyDict_Size(named) > 0) {
        PyErr_SetString(PyExc_TypeError, "Lane(points_max, tell)");
        return -1;
    }
    if (lane->tell || !PyArg_ParseTuple(args, "nO", &count_max, &tell)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a lane begins once");
        return -1;
    }
    Py_INCREF(tell);
    lane->tell = tell;
    lane->count_max = count_max;
    return 0;
}

static Py_ssize_t lane_empty(Lane *lane)
{
    Py_ssize_t count = 0;
    while (lane->count) {
        Point point = lane->points[lane->first];
        lane->first = (lane->first + 1) % lane->room;
        lane->count--;
        count++;
        drop_point(&point);
    }
    return count;
}

static void lane_dealloc(PyObject *self)
{
    Lane *lane = (Lane *)self;
    lane_empty(lane);
    free(lane->points);
    Py_XDECREF(lane->tell);
    free_object(self);
}

static Py_ssize_t lane_length(PyObject *self) { return ((Lane *)self)->count; }

static int grow(Lane *lane)
{
    Py_ssize_t room = lane->room ? 2 * lane->room : 256;
    if (room > lane->count_max) room = lane->count_max;
    Point *points = malloc((size_t)room * sizeof *points);
    if (!points) return 0;
    for (Py_ssize_t i = 0; i < lane->count; i++) points[i] = lane->points[(lane->first + i) % lane->room];
    free(lane->points);
    lane->points = points;
    lane->room = room;
    lane->first = 0;
    return 1;
}

/* 1 if the lane has it, with references of its own; 0 if it has no room; -1 and an error. */
static int push(Lane *lane, const Point *point)
{
    if (lane->is_closed || lane->count >= lane->count_max) return 0;
    if (lane->count == lane->room && !grow(lane)) return 0;
    Py_ssize_t at = lane->first + lane->count;
    if (at >= lane->room) at -= lane->room;
    lane->points[at] = *point;
    Py_INCREF(point->series);
    Py_XINCREF(point->moment);
    lane->count++;
    if (!lane->is_told) {
        lane->is_told = 1;
        PyObject *done = PyObject_CallObject(lane->tell, NULL);
        if (!done) return -1;
        Py_DECREF(done);
    }
    return 1;
}

static PyObject *lane_put(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Point point = {NULL, NULL, 0, {0}, 0};
    if (count != 3 || Py_TYPE(args[0]) != series_type || !read_number(args[1], &point)) {
        PyErr_SetString(PyExc_TypeError, "put(series, a float or an int of 64 bits, when)");
        return NULL;
    }
    point.series = (Series *)args[0];
    if (PyLong_Check(args[2])) {
        point.micros = PyLong_AsLongLong(args[2]);
        if (point.micros == -1 && PyErr_Occurred()) return NULL;
    } else {
        point.moment = args[2];
    }
    int result = push((Lane *)self, &point);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

static PyObject *lane_take(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Lane *lane = (Lane *)self;
    Py_ssize_t most = count == 2 ? PyLong_AsSsize_t(args[0]) : -1;
    if (most < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "take(count_max, hand)");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(batch_type, Py_tp_alloc);
    Batch *batch = (Batch *)allocate(batch_type, 0);
    if (!batch) return NULL;
    if (most > lane->count) most = lane->count;
    batch->points = malloc((size_t)(most ? most : 1) * sizeof *batch->points);
    if (!batch->points) {
        Py_DECREF(batch);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < most; i++) {
        batch->points[i] = lane->points[lane->first];
        lane->first = (lane->first + 1) % lane->room;
    }
    lane->count -= most;
    batch->count = most;
    return (PyObject *)batch;
}

static PyObject *lane_listen(PyObject *self, PyObject *unused)
{
    ((Lane *)self)->is_told = 0;
    Py_RETURN_NONE;
}

static PyObject *lane_close(PyObject *self, PyObject *unused)
{
    ((Lane *)self)->is_closed = 1;
    Py_RETURN_NONE;
}

static PyObject *lane_clear(PyObject *self, PyObject *unused) { return PyLong_FromSsize_t(lane_empty((Lane *)self)); }

static PyMethodDef lane_methods[] = {
    {"put", (PyCFunction)(void (*)(void))(fast_call)lane_put, METH_FASTCALL, "False where there is no room."},
    {"take", (PyCFunction)(void (*)(void))(fast_call)lane_take, METH_FASTCALL, "As many points as there are, in order."},
    {"listen", lane_listen, METH_NOARGS, "A point that comes from now on is told again."},
    {"close", lane_close, METH_NOARGS, "From now on there is no room."},
    {"clear", lane_clear, METH_NOARGS, "Forgets all points; how many there were."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot lane_slots[] = {
    {Py_tp_doc, "A bounded queue of points. Lane(points_max, tell): `tell` is called where the first point comes."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, lane_init},
    {Py_tp_dealloc, lane_dealloc},
    {Py_sq_length, lane_length},
    {Py_tp_methods, lane_methods},
    {0, NULL},
};
static PyType_Spec lane_spec = {"telem._core.Lane", sizeof(Lane), 0, Py_TPFLAGS_DEFAULT, lane_slots};

/* In Python, which has everything that there is to say about arguments. */
static PyObject *call_slowly(PyObject *self, const char *name, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *result = NULL, *slow = PyObject_GetAttrString(self, name);
    PyObject *tuple = PyTuple_New(count), *named = PyDict_New();
    if (!slow || !tuple || !named) goto done;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(tuple, i, args[i]);
    }
    for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(named, PyTuple_GetItem(names, i), args[count + i]) < 0) goto done;
    result = PyObject_Call(slow, tuple, named);
done:
    Py_XDECREF(slow);
    Py_XDECREF(tuple);
    Py_XDECREF(named);
    return result;
}

/* ---- add_data ----------------------------------------------------------------------------------------------------- */

/* A metric with tags as a caller gave them, and its series. */
typedef struct {
    size_t hash;
    Series *series; /* NULL: the entry is free */
    PyObject *name;
    int pairs;
    PyObject *tags[2 * TAGS_MAX];
} Entry;

typedef struct {
    PyObject_HEAD
    Lane *lane;
    long level;
    Entry *entries;
    size_t room, used; /* `room` is a power of two */
} Logger;

static void drop_entry(Entry *entry)
{
    Py_DECREF(entry->series);
    Py_DECREF(entry->name);
    for (int i = 0; i < 2 * entry->pairs; i++) Py_DECREF(entry->tags[i]);
}

static void forget(Logger *logger)
{
    Entry *entries = logger->entries;
    size_t room = logger->room;
    logger->entries = NULL;
    logger->room = logger->used = 0;
    for (size_t i = 0; i < room; i++)
        if (entries[i].series) drop_entry(&entries[i]);
    free(entries);
}

static void logger_dealloc(PyObject *self)
{
    forget((Logger *)self);
    Py_XDECREF(((Logger *)self)->lane);
    free_object(self);
}

static int is_same(PyObject *a, PyObject *b)
{
    if (a == b) return 1;
    if (Py_TYPE(a) != Py_TYPE(b)) return 0;
    /* Both are texts or both are integers: this calls nobody's code. */
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
}

static Entry *look_up(const Logger *logger, const Entry *like)
{
    if (!logger->room) return NULL;
    for (size_t at = like->hash & (logger->room - 1);; at = (at + 1) & (logger->room - 1)) {
        Entry *entry = &logger->entries[at];
        if (!entry->series) return NULL;
        if (entry->hash != like->hash || entry->pairs != like->pairs || !is_same(entry->name, like->name)) continue;
        int i = 0;
        while (i < 2 * like->pairs && is_same(entry->tags[i], like->tags[i])) i++;
        if (i == 2 * like->pairs) return entry;
    }
}

static void place(Logger *logger, const Entry *entry)
{
    size_t at = entry->hash & (logger->room - 1);
    while (logger->entries[at].series) at = (at + 1) & (logger->room - 1);
    logger->entries[at] = *entry;
}

/* While other code runs, which may change the caller's dict. */
static void hold(Entry *entry)
{
    Py_INCREF(entry->name);
    for (int i = 0; i < 2 * entry->pairs; i++) Py_INCREF(entry->tags[i]);
}

static void let_go(Entry *entry)
{
    Py_DECREF(entry->name);
    for (int i = 0; i < 2 * entry->pairs; i++) Py_DECREF(entry->tags[i]);
}

/* Keeps what was found; where there is no memory it is looked for again the next time. */
static void remember(Logger *logger, Entry *entry)
{
    if (logger->used >= CACHE_MAX) forget(logger);
    if (2 * (logger->used + 1) > logger->room) {
        Entry *before = logger->entries;
        size_t room_before = logger->room, room = room_before ? 2 * room_before : 64;
        Entry *entries = calloc(room, sizeof *entries);
        if (!entries) return;
        logger->entries = entries;
        logger->room = room;
        for (size_t i = 0; i < room_before; i++)
            if (before[i].series) place(logger, &before[i]);
        free(before);
    }
    Py_INCREF(entry->series);
    hold(entry);
    place(logger, entry);
    logger->used++;
}

static int add_tag(Entry *entry, PyObject *key, PyObject *value)
{
    if (entry->pairs >= TAGS_MAX || !PyUnicode_CheckExact(key)) return 0;
    if (!PyUnicode_CheckExact(value) && !PyLong_CheckExact(value)) return 0;
    entry->tags[2 * entry->pairs] = key;
    entry->tags[2 * entry->pairs + 1] = value;
    entry->pairs++;
    entry->hash = (entry->hash * 1000003) ^ (size_t)PyObject_Hash(key);
    entry->hash = (entry->hash * 1000003) ^ (size_t)PyObject_Hash(value);
    return 1;
}

/* Whether the arguments are ordinary ones. */
static int read_key(PyObject *const *all, Entry *entry)
{
    entry->series = NULL;
    entry->pairs = 0;
    entry->name = all[NAME];
    if (!entry->name || !PyUnicode_CheckExact(entry->name)) return 0;
    entry->hash = (size_t)PyObject_Hash(entry->name);
    if (all[TAGK] && all[TAGV] && all[TAGK] != Py_None && all[TAGV] != Py_None && !add_tag(entry, all[TAGK], all[TAGV]))
        return 0;
    if (all[TAGS] && all[TAGS] != Py_None) {
        PyObject *key, *value;
        Py_ssize_t at = 0;
        if (!PyDict_CheckExact(all[TAGS])) return 0;
        while (PyDict_Next(all[TAGS], &at, &key, &value))
            if (!add_tag(entry, key, value)) return 0;
    }
    /* A dict's hashes are spread by its own means; here the high bits help the low ones. */
    entry->hash ^= entry->hash >> 17;
    return 1;
}

static PyObject *add_data(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Logger *logger = (Logger *)self;
    PyObject *all[ARGUMENTS] = {NULL};
    Point point = {NULL, NULL, 0, {0}, 0};
    Entry like;
    long level = 1;
    if (count > TAGS) return call_slowly(self, "_add_data", args, count, names);
    for (Py_ssize_t i = 0; i < count; i++) all[i] = args[i];
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int which = 0;
        while (which < ARGUMENTS && argument_texts[which] != name) which++;
        if (which == ARGUMENTS || all[which]) return call_slowly(self, "_add_data", args, count, names);
        all[which] = args[count + i];
    }
    if (all[LEVEL]) {
        if (!PyLong_CheckExact(all[LEVEL])) return call_slowly(self, "_add_data", args, count, names);
        level = PyLong_AsLong(all[LEVEL]);
        if (level == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return call_slowly(self, "_add_data", args, count, names);
        }
    }
    if (!all[NAME] || !all[DATA]) return call_slowly(self, "_add_data", args, count, names);
    if (level > logger->level) Py_RETURN_NONE;
    int is_ordinary = logger->lane && (!all[TIMESTAMP] || all[TIMESTAMP] == Py_None) && read_number(all[DATA], &point) &&
                      read_key(all, &like);
    if (!is_ordinary) return call_slowly(self, "_add_data", args, count, names);
    Entry *found = look_up(logger, &like);
    if (found) {
        point.series = found->series;
        Py_INCREF(point.series);
    } else {
        hold(&like);
        PyObject *made = PyObject_CallMethod(self, "_find", "OOOO", all[NAME], all[TAGK] ? all[TAGK] : Py_None,
                                             all[TAGV] ? all[TAGV] : Py_None, all[TAGS] ? all[TAGS] : Py_None);
        if (!made || Py_TYPE(made) != series_type) {
            PyErr_Clear();
            Py_XDECREF(made);
            let_go(&like);
            return call_slowly(self, "_add_data", args, count, names);
        }
        point.series = like.series = (Series *)made;
        remember(logger, &like);
        let_go(&like);
    }
    point.micros = now_us();
    int result = push(logger->lane, &point);
    Py_DECREF(point.series);
    if (result > 0) Py_RETURN_NONE;
    PyErr_Clear();
    /* There it is counted. */
    return result == 0 ? call_slowly(self, "_add_data", args, count, names) : given(Py_None);
}

static PyObject *logger_aim(PyObject *self, PyObject *lane)
{
    Logger *logger = (Logger *)self;
    Lane *before = logger->lane;
    if (Py_TYPE(lane) != lane_type) {
        PyErr_SetString(PyExc_TypeError, "a Lane is expected");
        return NULL;
    }
    Py_INCREF(lane);
    logger->lane = (Lane *)lane;
    forget(logger);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *logger_level(PyObject *self, void *unused) { return PyLong_FromLong(((Logger *)self)->level); }

static int set_logger_level(PyObject *self, PyObject *value, void *unused)
{
    long level = value ? PyLong_AsLong(value) : 0;
    if (level == -1 && PyErr_Occurred()) return -1;
    ((Logger *)self)->level = level;
    return 0;
}

static PyGetSetDef logger_fields[] = {
    {"_level", logger_level, set_logger_level, "The highest level of points that are kept.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef logger_methods[] = {
    {"add_data", (PyCFunction)(void (*)(void))(fast_call_named)add_data, METH_FASTCALL | METH_KEYWORDS,
     "add_data($self, ts_metric_name, ts_data, timestamp=None, telemetry_level=1, tagk=None, tagv=None, *, tags=None)\n"
     "--\n\nOne point of a metric: see Telemetry._add_data."},
    {"_aim", logger_aim, METH_O, "Points go into this lane from now on."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot logger_slots[] = {
    {Py_tp_doc, "The base of Telemetry."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, logger_dealloc},
    {Py_tp_getset, logger_fields},
    {Py_tp_methods, logger_methods},
    {0, NULL},
};
static PyType_Spec logger_spec = {"telem._core.Logger", sizeof(Logger), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  logger_slots};

/* ---- gauges ------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Lane *lane;
    Series *series; /* NULL: nothing is kept */
} Setter;

static void setter_dealloc(PyObject *self)
{
    Py_XDECREF(((Setter *)self)->lane);
    Py_XDECREF(((Setter *)self)->series);
    free_object(self);
}

static PyObject *setter_aim(PyObject *self, PyObject *args)
{
    Setter *setter = (Setter *)self;
    PyObject *lane, *series;
    if (!PyArg_ParseTuple(args, "OO", &lane, &series)) return NULL;
    if (Py_TYPE(lane) != lane_type || (series != Py_None && Py_TYPE(series) != series_type)) {
        PyErr_SetString(PyExc_TypeError, "a Lane and a Series are expected");
        return NULL;
    }
    Lane *lane_before = setter->lane;
    Series *series_before = setter->series;
    Py_INCREF(lane);
    setter->lane = (Lane *)lane;
    setter->series = series == Py_None ? NULL : (Series *)series;
    Py_XINCREF(setter->series);
    Py_XDECREF(lane_before);
    Py_XDECREF(series_before);
    Py_RETURN_NONE;
}

static PyObject *setter_set(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Setter *setter = (Setter *)self;
    Point point = {NULL, NULL, 0, {0}, 0};
    if (count != 1 || names || !setter->series || !read_number(args[0], &point))
        return call_slowly(self, "_set", args, count, names);
    point.series = setter->series;
    point.micros = now_us();
    int result = push(setter->lane, &point);
    if (result > 0) Py_RETURN_NONE;
    PyErr_Clear();
    return result == 0 ? call_slowly(self, "_set", args, count, names) : given(Py_None);
}

static PyMethodDef setter_methods[] = {
    {"set", (PyCFunction)(void (*)(void))(fast_call_named)setter_set, METH_FASTCALL | METH_KEYWORDS,
     "set($self, value, timestamp=None)\n--\n\nOne value, by default of now: see Gauge._set."},
    {"_aim", setter_aim, METH_VARARGS, "Values go into this lane, for this series; None: nowhere."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot setter_slots[] = {
    {Py_tp_doc, "The base of Gauge."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, setter_dealloc},
    {Py_tp_methods, setter_methods},
    {0, NULL},
};
static PyType_Spec setter_spec = {"telem._core.Setter", sizeof(Setter), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  setter_slots};

/* ---- totals ------------------------------------------------------------------------------------------------------- */

/* A total: whole as long as only integers are added and it fits. */
typedef struct {
    PyObject_HEAD
    int is_told;
    int is_kept;
    int64_t whole;
    double rest;
    int has_rest;
} Cell;

static int tell_of(PyObject *self, int *is_told, int is_kept)
{
    if (*is_told || !is_kept) return 0;
    *is_told = 1;
    PyObject *done = PyObject_CallMethod(self, "_tell", NULL);
    if (!done) {
        PyErr_Clear();
        return -1;
    }
    Py_DECREF(done);
    return 0;
}

static void cell_put(Cell *cell, int64_t amount)
{
    if (amount > INT64_MAX - cell->whole) {
        cell->rest += (double)amount;
        cell->has_rest = 1;
    } else {
        cell->whole += amount;
    }
    tell_of((PyObject *)cell, &cell->is_told, cell->is_kept);
}

/* `amount` is not negative. */
static PyObject *cell_add(PyObject *self, PyObject *amount)
{
    Cell *cell = (Cell *)self;
    Point point;
    if (read_number(amount, &point) && point.is_whole) {
        cell_put(cell, point.value.whole);
    } else {
        double real = PyFloat_AsDouble(amount);
        if (real == -1 && PyErr_Occurred()) return NULL;
        cell->rest += real;
        cell->has_rest = 1;
        tell_of(self, &cell->is_told, cell->is_kept);
    }
    Py_RETURN_NONE;
}

static PyObject *cell_listen(PyObject *self, PyObject *unused)
{
    ((Cell *)self)->is_told = 0;
    Py_RETURN_NONE;
}

static PyObject *cell_total(PyObject *self, void *unused)
{
    Cell *cell = (Cell *)self;
    if (cell->has_rest) return PyFloat_FromDouble((double)cell->whole + cell->rest);
    return PyLong_FromLongLong(cell->whole);
}

static PyObject *cell_kept(PyObject *self, void *unused) { return PyBool_FromLong(((Cell *)self)->is_kept); }

static int set_cell_kept(PyObject *self, PyObject *value, void *unused)
{
    int kept = value ? PyObject_IsTrue(value) : 0;
    if (kept < 0) return -1;
    ((Cell *)self)->is_kept = kept;
    return 0;
}

static PyGetSetDef cell_fields[] = {
    {"total", cell_total, NULL, "What was added.", NULL},
    {"is_kept", cell_kept, set_cell_kept, "Whether it is sent.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef cell_methods[] = {
    {"add", cell_add, METH_O, "Adds a number that is not negative."},
    {"_listen", cell_listen, METH_NOARGS, "What is added from now on is told again, by `_tell`."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot cell_slots[] = {
    {Py_tp_doc, "The total of a counter."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, free_object},
    {Py_tp_getset, cell_fields},
    {Py_tp_methods, cell_methods},
    {0, NULL},
};
static PyType_Spec cell_spec = {"telem._core.Cell", sizeof(Cell), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, cell_slots};

/* The buckets of a histogram. */
typedef struct {
    PyObject_HEAD
    int is_told;
    int is_kept;
    Py_ssize_t count; /* of bounds */
    double *bounds;
    int64_t *counts; /* one more */
    double sum;
} Spread;

static void spread_dealloc(PyObject *self)
{
    free(((Spread *)self)->bounds);
    free(((Spread *)self)->counts);
    free_object(self);
}

static PyObject *spread_begin(PyObject *self, PyObject *bounds)
{
    Spread *spread = (Spread *)self;
    Py_ssize_t count = PyTuple_Check(bounds) ? PyTuple_Size(bounds) : -1;
    if (count < 0 || spread->bounds) {
        PyErr_SetString(PyExc_TypeError, "a tuple of bounds, once");
        return NULL;
    }
    double *made = malloc((size_t)(count + 1) * sizeof *made);
    int64_t *counts = calloc((size_t)count + 1, sizeof *counts);
    for (Py_ssize_t i = 0; made && i < count; i++) made[i] = PyFloat_AsDouble(PyTuple_GetItem(bounds, i));
    if (!made || !counts || PyErr_Occurred()) {
        free(made);
        free(counts);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    spread->bounds = made;
    spread->counts = counts;
    spread->count = count;
    Py_RETURN_NONE;
}

static void spread_put(Spread *spread, double value)
{
    Py_ssize_t low = 0, high = spread->count;
    if (!spread->counts) return;
    if (isnan(value)) {
        low = high;
    } else {
        spread->sum += value;
        while (low < high) {
            Py_ssize_t middle = low + (high - low) / 2;
            if (spread->bounds[middle] < value)
                low = middle + 1;
            else
                high = middle;
        }
    }
    spread->counts[low]++;
    tell_of((PyObject *)spread, &spread->is_told, spread->is_kept);
}

static PyObject *spread_add(PyObject *self, PyObject *number)
{
    double value = PyFloat_AsDouble(number);
    if (value == -1 && PyErr_Occurred()) return NULL;
    spread_put((Spread *)self, value);
    Py_RETURN_NONE;
}

static PyObject *spread_listen(PyObject *self, PyObject *unused)
{
    ((Spread *)self)->is_told = 0;
    Py_RETURN_NONE;
}

static PyObject *spread_counts(PyObject *self, void *unused)
{
    Spread *spread = (Spread *)self;
    Py_ssize_t count = spread->counts ? spread->count + 1 : 0;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        PyObject *one = PyLong_FromLongLong(spread->counts[i]);
        if (!one || PyList_SetItem(list, i, one) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *spread_sum(PyObject *self, void *unused) { return PyFloat_FromDouble(((Spread *)self)->sum); }
static PyObject *spread_kept(PyObject *self, void *unused) { return PyBool_FromLong(((Spread *)self)->is_kept); }

static int set_spread_kept(PyObject *self, PyObject *value, void *unused)
{
    int kept = value ? PyObject_IsTrue(value) : 0;
    if (kept < 0) return -1;
    ((Spread *)self)->is_kept = kept;
    return 0;
}

static PyGetSetDef spread_fields[] = {
    {"counts", spread_counts, NULL, "Of each bucket, the last of which has no bound.", NULL},
    {"sum", spread_sum, NULL, "Of all values.", NULL},
    {"is_kept", spread_kept, set_spread_kept, "Whether it is sent.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef spread_methods[] = {
    {"add", spread_add, METH_O, "One value more."},
    {"_begin", spread_begin, METH_O, "Says the bounds."},
    {"_listen", spread_listen, METH_NOARGS, "What is added from now on is told again, by `_tell`."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot spread_slots[] = {
    {Py_tp_doc, "The buckets of a histogram."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, spread_dealloc},
    {Py_tp_getset, spread_fields},
    {Py_tp_methods, spread_methods},
    {0, NULL},
};
static PyType_Spec spread_spec = {"telem._core.Spread", sizeof(Spread), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                  spread_slots};

/* What Counter and Histogram are made of: a call that goes to the total they share with others of their name. */
typedef struct {
    PyObject_HEAD
    PyObject *total; /* a Cell or a Spread, or NULL */
} Adder;

static void adder_dealloc(PyObject *self)
{
    Py_XDECREF(((Adder *)self)->total);
    free_object(self);
}

static PyObject *adder_aim(PyObject *self, PyObject *total)
{
    Adder *adder = (Adder *)self;
    PyObject *before = adder->total;
    if (total != Py_None && !PyObject_TypeCheck(total, cell_type) && !PyObject_TypeCheck(total, spread_type)) {
        PyErr_SetString(PyExc_TypeError, "a Cell or a Spread is expected");
        return NULL;
    }
    adder->total = total == Py_None ? NULL : given(total);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *adder_inc(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *total = ((Adder *)self)->total;
    Point point;
    if (!total || names || count > 1 || !PyObject_TypeCheck(total, cell_type))
        return call_slowly(self, "_inc", args, count, names);
    if (count == 0) {
        cell_put((Cell *)total, 1);
        Py_RETURN_NONE;
    }
    if (!PyLong_CheckExact(args[0]) || !read_number(args[0], &point) || point.value.whole < 0)
        return call_slowly(self, "_inc", args, count, names);
    cell_put((Cell *)total, point.value.whole);
    Py_RETURN_NONE;
}

static PyObject *adder_observe(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *total = ((Adder *)self)->total;
    if (!total || names || count != 1 || !PyFloat_CheckExact(args[0]) || !PyObject_TypeCheck(total, spread_type))
        return call_slowly(self, "_observe", args, count, names);
    spread_put((Spread *)total, PyFloat_AsDouble(args[0]));
    Py_RETURN_NONE;
}

static PyMethodDef incrementer_methods[] = {
    {"inc", (PyCFunction)(void (*)(void))(fast_call_named)adder_inc, METH_FASTCALL | METH_KEYWORDS,
     "inc($self, amount=1)\n--\n\n`amount` is a number that is not negative."},
    {"_aim", adder_aim, METH_O, "Where it is counted; None: nowhere."},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef observer_methods[] = {
    {"observe", (PyCFunction)(void (*)(void))(fast_call_named)adder_observe, METH_FASTCALL | METH_KEYWORDS,
     "observe($self, value)\n--\n\nOne value more: see Histogram._observe."},
    {"_aim", adder_aim, METH_O, "Where it is counted; None: nowhere."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot incrementer_slots[] = {
    {Py_tp_doc, "The base of Counter."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, adder_dealloc},
    {Py_tp_methods, incrementer_methods},
    {0, NULL},
};
static PyType_Slot observer_slots[] = {
    {Py_tp_doc, "The base of Histogram."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, adder_dealloc},
    {Py_tp_methods, observer_methods},
    {0, NULL},
};
static PyType_Spec incrementer_spec = {"telem._core.Incrementer", sizeof(Adder), 0,
                                       Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, incrementer_slots};
static PyType_Spec observer_spec = {"telem._core.Observer", sizeof(Adder), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                    observer_slots};

/* ---- the module --------------------------------------------------------------------------------------------------- */

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "telem._core", "What runs for each point, compiled.", -1,
                                        NULL, NULL, NULL, NULL, NULL};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return NULL;
    Py_INCREF(type);
    if (PyModule_AddObject(module, name, type) < 0) {
        Py_DECREF(type);
        Py_DECREF(type);
        return NULL;
    }
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&module_def);
    if (!module) return NULL;
    int is_whole = 1;
    for (int i = 0; i < ARGUMENTS; i++) {
        argument_texts[i] = PyUnicode_InternFromString(argument_names[i]);
        is_whole = is_whole && argument_texts[i];
    }
    is_whole = is_whole && (series_type = add_type(module, &series_spec, "Series")) &&
               (lane_type = add_type(module, &lane_spec, "Lane")) && (batch_type = add_type(module, &batch_spec, "Batch")) &&
               (cell_type = add_type(module, &cell_spec, "Cell")) &&
               (spread_type = add_type(module, &spread_spec, "Spread")) && add_type(module, &logger_spec, "Logger") &&
               add_type(module, &setter_spec, "Setter") && add_type(module, &incrementer_spec, "Incrementer") &&
               add_type(module, &observer_spec, "Observer");
    if (!is_whole) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
