/*
 * _core.c: what runs for each point, compiled: finding the series, and giving the value to libtelem, the library of
 * clients/c, which is in here too. Its rings keep the point and its thread sends it, without the interpreter's lock. Where
 * an argument is out of the ordinary, such as a scalar of NumPy or a time of the caller's, Python takes over; and so it
 * does with points for a service that libtelem does not reach (_native.py says which).
 *
 * The limited API of 3.9: one build serves all later versions.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include "work.h"

#include <math.h>
#include <stdint.h>
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

typedef PyObject *(*fast_call)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*fast_call_named)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

enum { NAME, DATA, TIMESTAMP, LEVEL, TAGK, TAGV, TAGS, ARGUMENTS };
static const char *const argument_names[ARGUMENTS] = {
    "ts_metric_name", "ts_data", "timestamp", "telemetry_level", "tagk", "tagv", "tags",
};
static PyObject *argument_texts[ARGUMENTS];
static PyTypeObject *series_type, *lane_type, *cell_type, *spread_type;

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
    PyObject *head; /* str */
    PyObject *line; /* str */
    int64_t last;
    int was_told;
    /* For libtelem: its name, its keys and values by turns, all bytes; its kind in the protocol. */
    PyObject *metric;
    PyObject *tags;
    int kind;
    telem_gauge *gauge; /* opened with its first point */
} Series;

static int series_init(PyObject *self, PyObject *args, PyObject *named)
{
    Series *series = (Series *)self;
    PyObject *head, *line = NULL;
    if (named && PyDict_Size(named) > 0) {
        PyErr_SetString(PyExc_TypeError, "Series(head, line='')");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "U|U", &head, &line)) return -1;
    PyObject *none = line ? NULL : PyUnicode_FromString("");
    if (!line && !none) return -1;
    Py_INCREF(head);
    Py_XDECREF(series->head);
    series->head = head;
    Py_XINCREF(line);
    Py_XDECREF(series->line);
    series->line = line ? line : none;
    return 0;
}

static void series_dealloc(PyObject *self)
{
    Series *series = (Series *)self;
    Py_XDECREF(series->head);
    Py_XDECREF(series->line);
    Py_XDECREF(series->metric);
    Py_XDECREF(series->tags);
    free_object(self);
}

static PyObject *series_name(PyObject *self, PyObject *args)
{
    Series *series = (Series *)self;
    PyObject *metric, *tags;
    if (!PyArg_ParseTuple(args, "SO!", &metric, &PyTuple_Type, &tags)) return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(tags); i++)
        if (!PyBytes_Check(PyTuple_GetItem(tags, i))) {
            PyErr_SetString(PyExc_TypeError, "keys and values are bytes");
            return NULL;
        }
    if (!series->metric) {
        Py_INCREF(metric);
        Py_INCREF(tags);
        series->metric = metric;
        series->tags = tags;
    }
    Py_RETURN_NONE;
}

/* Whether libtelem has it; else the thread's error of libtelem says why not. */
static int is_open(Series *series)
{
    const char *tags[2 * TELEM__TAGS_MAX + 3];
    if (series->gauge) return 1;
    Py_ssize_t count = series->metric ? PyTuple_Size(series->tags) : -1;
    if (count < 0) return 0;
    /* One too many is for libtelem to refuse. */
    if (count > 2 * TELEM__TAGS_MAX + 2) count = 2 * TELEM__TAGS_MAX + 2;
    for (Py_ssize_t i = 0; i < count; i++) tags[i] = PyBytes_AsString(PyTuple_GetItem(series->tags, i));
    tags[count] = NULL;
    series->gauge = telem__series_open(PyBytes_AsString(series->metric), tags, (uint8_t)series->kind);
    return series->gauge != NULL;
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

static PyObject *series_kind(PyObject *self, void *unused) { return PyLong_FromLong(((Series *)self)->kind); }

static int set_series_kind(PyObject *self, PyObject *value, void *unused)
{
    long kind = value ? PyLong_AsLong(value) : 0;
    if (kind == -1 && PyErr_Occurred()) return -1;
    ((Series *)self)->kind = kind < 0 || kind > 2 ? 0 : (int)kind;
    return 0;
}

static PyMethodDef series_methods[] = {
    {"name", series_name, METH_VARARGS, "What libtelem calls it: its metric, its keys and values by turns."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef series_fields[] = {
    {"head", series_head, NULL, "The start of the JSON of each of its points.", NULL},
    {"line", series_line, NULL, "The start of its lines in line protocol, if it needs that.", NULL},
    {"last", series_last, set_series_last, "The latest time that it has used.", NULL},
    {"kind", series_kind, set_series_kind, "0 a gauge, 1 a counter, 2 a part of a histogram.", NULL},
    {"was_told", series_told, set_series_told, "Whether a caller ever said a time.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot series_slots[] = {
    {Py_tp_doc, "One metric with its tags."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, series_init},
    {Py_tp_dealloc, series_dealloc},
    {Py_tp_methods, series_methods},
    {Py_tp_getset, series_fields},
    {0, NULL},
};
static PyType_Spec series_spec = {"telem._core.Series", sizeof(Series), 0, Py_TPFLAGS_DEFAULT, series_slots};

/* ---- numbers ------------------------------------------------------------------------------------------------------ */

typedef struct {
    union {
        double real;
        int64_t whole;
    } value;
    int is_whole;
} Number;

/* Whether `given` is one that is kept as it is. */
static int read_number(PyObject *given, Number *number)
{
    int beyond = 0;
    if (PyFloat_CheckExact(given)) {
        number->is_whole = 0;
        number->value.real = PyFloat_AsDouble(given);
        return 1;
    }
    if (!PyLong_CheckExact(given)) return 0;
    number->is_whole = 1;
    number->value.whole = PyLong_AsLongLongAndOverflow(given, &beyond);
    return !beyond;
}

/* ---- lanes -------------------------------------------------------------------------------------------------------- */

/* The way into libtelem, which is one in the process. */
typedef struct {
    PyObject_HEAD
    PyObject *tell;
    int is_told;
    int is_closed;
} Lane;

static int lane_init(PyObject *self, PyObject *args, PyObject *named)
{
    Lane *lane = (Lane *)self;
    PyObject *tell;
    if ((named && PyDict_Size(named) > 0) || lane->tell) {
        PyErr_SetString(PyExc_TypeError, "Lane(tell), once");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O", &tell)) return -1;
    Py_INCREF(tell);
    lane->tell = tell;
    return 0;
}

static void lane_dealloc(PyObject *self)
{
    Py_XDECREF(((Lane *)self)->tell);
    free_object(self);
}

static int tell_once(Lane *lane)
{
    if (lane->is_told || !lane->tell) return 1;
    lane->is_told = 1;
    PyObject *done = PyObject_CallObject(lane->tell, NULL);
    if (!done) return -1;
    Py_DECREF(done);
    return 1;
}

/* 1 if libtelem has taken it, which then counts what becomes of it; 0 if it was not given; -1 and an error. */
static int take(Lane *lane, Series *series, const Number *number, int64_t micros)
{
    if (lane->is_closed || !is_open(series)) return 0;
    if (micros && number->is_whole)
        telem_set_int_at(series->gauge, number->value.whole, micros);
    else if (micros)
        telem_set_at(series->gauge, number->value.real, micros);
    else if (number->is_whole)
        telem_set_int(series->gauge, number->value.whole);
    else
        telem_set(series->gauge, number->value.real);
    return tell_once(lane);
}

/* Puts a point of now into a lane of either kind; as `take`. */
static int push(PyObject *lane, Series *series, PyObject *shown, const Number *number)
{
    if (Py_TYPE(lane) == lane_type) return take((Lane *)lane, series, number, 0);
    PyObject *done = PyObject_CallMethod(lane, "put", "OOL", (PyObject *)series, shown, (long long)now_us());
    if (!done) return -1;
    int result = PyObject_IsTrue(done);
    Py_DECREF(done);
    return result;
}

/* The microseconds that a caller said; 0: it is a time of the clock. */
static int64_t told_time(PyObject *when)
{
    if (PyLong_Check(when)) return 0;
    PyObject *is_told = PyObject_GetAttrString(when, "is_told");
    int told = is_told ? PyObject_IsTrue(is_told) : -1;
    Py_XDECREF(is_told);
    if (told <= 0) return told;
    PyObject *micros = PyObject_GetAttrString(when, "micros");
    if (!micros) return -1;
    int64_t found = PyLong_AsLongLong(micros);
    Py_DECREF(micros);
    return found;
}

static PyObject *lane_put(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Number number;
    if (count != 3 || Py_TYPE(args[0]) != series_type || !read_number(args[1], &number)) {
        PyErr_SetString(PyExc_TypeError, "put(series, a float or an int of 64 bits, when)");
        return NULL;
    }
    int64_t micros = told_time(args[2]);
    if (micros == -1 && PyErr_Occurred()) return NULL;
    int result = take((Lane *)self, (Series *)args[0], &number, micros);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

/* Points of one moment, of which a longer list is more than one. How many series libtelem refused. */
static PyObject *lane_put_all(PyObject *self, PyObject *args)
{
    Lane *lane = (Lane *)self;
    PyObject *points, *when;
    long refused = 0;
    uint32_t ready = 0;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &points, &when)) return NULL;
    int64_t micros = told_time(when);
    if (micros == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t count = PyList_Size(points);
    if (micros == 0 && count > TELEM__GROUP_MAX) micros = now_us();
    struct telem__part *parts = calloc((size_t)(count ? count : 1), sizeof *parts);
    if (!parts) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(points, i);
        Number number;
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2 || Py_TYPE(PyTuple_GetItem(pair, 0)) != series_type ||
            !read_number(PyTuple_GetItem(pair, 1), &number)) {
            free(parts);
            PyErr_SetString(PyExc_TypeError, "pairs of a series and a float or an int of 64 bits");
            return NULL;
        }
        Series *series = (Series *)PyTuple_GetItem(pair, 0);
        if (!is_open(series)) {
            refused++;
            continue;
        }
        parts[ready].gauge = series->gauge;
        parts[ready].is_integer = number.is_whole;
        memcpy(&parts[ready].value, &number.value, sizeof parts[ready].value);
        ready++;
    }
    for (uint32_t at = 0; at < ready && !lane->is_closed; at += TELEM__GROUP_MAX)
        telem__set_all(parts + at, ready - at < TELEM__GROUP_MAX ? ready - at : TELEM__GROUP_MAX, micros);
    free(parts);
    if (ready && tell_once(lane) < 0) return NULL;
    return PyLong_FromLong(refused);
}

static telem_counts counts_now(void)
{
    telem_counts counts = {.size = sizeof counts};
    Py_BEGIN_ALLOW_THREADS
    telem_stats(&counts);
    Py_END_ALLOW_THREADS
    return counts;
}

static uint64_t waiting(const telem_counts *counts)
{
    uint64_t gone = counts->stored + counts->refused + counts->above_level + counts->dropped_full +
                    counts->dropped_unserved + counts->dropped_other;
    return counts->taken > gone ? counts->taken - gone : 0;
}

static Py_ssize_t lane_length(PyObject *self)
{
    telem_counts counts = counts_now();
    return (Py_ssize_t)waiting(&counts);
}

static PyObject *lane_counts(PyObject *self, PyObject *unused)
{
    telem_counts counts = counts_now();
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsK}", "taken", counts.taken, "stored", counts.stored, "refused", counts.refused,
                         "above_level", counts.above_level, "full", counts.dropped_full, "unserved",
                         counts.dropped_unserved, "other", counts.dropped_other, "connections", counts.connections,
                         "waiting", waiting(&counts));
}

static PyObject *lane_ask_flush(PyObject *self, PyObject *unused)
{
    uint64_t number;
    Py_BEGIN_ALLOW_THREADS
    number = telem__flush_ask();
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(number);
}

static PyObject *lane_await_flush(PyObject *self, PyObject *args)
{
    unsigned long long number;
    unsigned int ms;
    int found;
    if (!PyArg_ParseTuple(args, "KI", &number, &ms)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    found = telem__flush_wait(number, ms);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(found);
}

static PyObject *lane_away(PyObject *self, PyObject *unused)
{
    uint64_t ms = 0;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&telem__work);
    if (telem__link.fd < 0 && telem__link.attempts != telem__flushes.attempts) ms = telem__now_ms() - telem__link.lost_ms;
    pthread_mutex_unlock(&telem__work);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble((double)ms / 1e3);
}

static PyObject *lane_refusals(PyObject *self, PyObject *given_seen)
{
    char text[TELEM__ERROR_BYTES];
    uint64_t seen = PyLong_AsUnsignedLongLong(given_seen);
    if (PyErr_Occurred()) return NULL;
    PyObject *texts = PyList_New(0);
    while (texts && telem__next_refusal(&seen, text)) {
        PyObject *one = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (!one || PyList_Append(texts, one) < 0) {
            Py_XDECREF(one);
            Py_DECREF(texts);
            return NULL;
        }
        Py_DECREF(one);
    }
    return texts ? Py_BuildValue("KN", (unsigned long long)seen, texts) : NULL;
}

static PyObject *lane_error(PyObject *self, PyObject *unused)
{
    const char *text = telem_error();
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *lane_close(PyObject *self, PyObject *unused)
{
    ((Lane *)self)->is_closed = 1;
    Py_RETURN_NONE;
}

/* What waits is given up, and the thread ends. */
static PyObject *lane_clear(PyObject *self, PyObject *unused)
{
    telem_counts before = counts_now();
    Py_BEGIN_ALLOW_THREADS
    telem_stop(0);
    Py_END_ALLOW_THREADS
    telem_counts after = counts_now();
    return PyLong_FromUnsignedLongLong(after.dropped_unserved - before.dropped_unserved);
}

static PyObject *lane_start(PyObject *self, PyObject *unused)
{
    telem_options options = {.size = sizeof options, .process_tags = -1, .exit_ms = 1};
    int is_running;
    Py_BEGIN_ALLOW_THREADS
    is_running = telem_start(&options) == 0 && atomic_load(&telem__state) == TELEM__RUNNING;
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(is_running);
}

static PyMethodDef lane_methods[] = {
    {"put", (PyCFunction)(void (*)(void))(fast_call)lane_put, METH_FASTCALL, "False where the series is refused."},
    {"put_all", lane_put_all, METH_VARARGS, "Points of one moment; how many of their series are refused."},
    {"counts", lane_counts, METH_NOARGS, "What became of all points of this process."},
    {"ask_flush", lane_ask_flush, METH_NOARGS, "Begins a flush: its number, or 0."},
    {"await_flush", lane_await_flush, METH_VARARGS, "1 where it is done, 0 after so many milliseconds, -1 where it failed."},
    {"away", lane_away, METH_NOARGS, "For how many seconds the service cannot be reached, tried since the last flush."},
    {"refusals", lane_refusals, METH_O, "The refusals behind the first so many: how many there are, their texts."},
    {"error", lane_error, METH_NOARGS, "Why the last series was refused."},
    {"close", lane_close, METH_NOARGS, "From now on nothing is taken."},
    {"clear", lane_clear, METH_NOARGS, "Ends sending for good; how many points it gives up."},
    {"start", lane_start, METH_NOARGS, "Starts libtelem; whether it has a service to look for. Once in a process."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot lane_slots[] = {
    {Py_tp_doc, "The way into libtelem. Lane(tell): `tell` is called where the first point comes."},
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
    PyObject *lane; /* of either kind */
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
    Number number;
    Series *series;
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
    int is_ordinary = logger->lane && (!all[TIMESTAMP] || all[TIMESTAMP] == Py_None) && read_number(all[DATA], &number) &&
                      read_key(all, &like);
    if (!is_ordinary) return call_slowly(self, "_add_data", args, count, names);
    Entry *found = look_up(logger, &like);
    if (found) {
        series = found->series;
        Py_INCREF(series);
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
        series = like.series = (Series *)made;
        remember(logger, &like);
        let_go(&like);
    }
    PyObject *lane = given(logger->lane);
    int result = push(lane, series, all[DATA], &number);
    Py_DECREF(lane);
    Py_DECREF(series);
    if (result > 0) Py_RETURN_NONE;
    PyErr_Clear();
    /* There it is counted. */
    return result == 0 ? call_slowly(self, "_add_data", args, count, names) : given(Py_None);
}

static PyObject *logger_aim(PyObject *self, PyObject *lane)
{
    Logger *logger = (Logger *)self;
    PyObject *before = logger->lane;
    Py_INCREF(lane);
    logger->lane = lane;
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
    PyObject *lane; /* of either kind */
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
    if (series != Py_None && Py_TYPE(series) != series_type) {
        PyErr_SetString(PyExc_TypeError, "a Series is expected");
        return NULL;
    }
    PyObject *lane_before = setter->lane;
    Series *series_before = setter->series;
    Py_INCREF(lane);
    setter->lane = lane;
    setter->series = series == Py_None ? NULL : (Series *)series;
    Py_XINCREF(setter->series);
    Py_XDECREF(lane_before);
    Py_XDECREF(series_before);
    Py_RETURN_NONE;
}

static PyObject *setter_set(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Setter *setter = (Setter *)self;
    Number number;
    if (count != 1 || names || !setter->series || !read_number(args[0], &number))
        return call_slowly(self, "_set", args, count, names);
    /* Held, as `put` of a lane in Python may aim it elsewhere. */
    PyObject *lane = given(setter->lane);
    Series *series = (Series *)given((PyObject *)setter->series);
    int result = push(lane, series, args[0], &number);
    Py_DECREF(series);
    Py_DECREF(lane);
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
    Number number;
    if (read_number(amount, &number) && number.is_whole) {
        cell_put(cell, number.value.whole);
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
    Number number;
    if (!total || names || count > 1 || !PyObject_TypeCheck(total, cell_type))
        return call_slowly(self, "_inc", args, count, names);
    if (count == 0) {
        cell_put((Cell *)total, 1);
        Py_RETURN_NONE;
    }
    if (!PyLong_CheckExact(args[0]) || !read_number(args[0], &number) || number.value.whole < 0)
        return call_slowly(self, "_inc", args, count, names);
    cell_put((Cell *)total, number.value.whole);
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
               (lane_type = add_type(module, &lane_spec, "Lane")) &&
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
