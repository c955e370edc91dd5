/*
 * telem.h: metrics of a program, to the telem service of its job.
 *
 *     telem_gauge *loss = telem_gauge_open("loss", NULL);
 *     telem_set(loss, 0.25);
 *
 * What holds for every function:
 *   - Nothing waits for the service, but telem_flush, telem_stop and telem_sql, which have a deadline.
 *   - Nothing fails loudly. A metric that cannot be opened is NULL, every function takes NULL and does nothing with it,
 *     and telem_error() says why.
 *   - All functions may be called from any thread. After a metric is opened, telem_set, telem_add, telem_observe,
 *     telem_begin and telem_end neither allocate, lock nor call the system (but for the first call of a thread, the
 *     first step of a gauge, and the first call of a forked child).
 *   - They may be called in signal handlers, too. Where a handler interrupted telem_set or telem_end on its own thread,
 *     its sample is counted as dropped_other; telem_add and telem_observe have no such gap.
 *   - Nothing is printed, unless TELEM_DEBUG is set.
 *   - Without a service, each call costs as much, and what is taken is counted as dropped: see telem_stats.
 *
 * Times are microseconds since 1970. Texts are UTF-8. A metric lives as long as the process.
 *
 * Names are letters, digits and -_./ (other characters become `_`): a metric up to 512 bytes, the key of a tag up to
 * 256, its value up to 1,024; up to 62 tags.
 *
 * No sample overwrites another of its process: one whose microsecond is taken moves to the next free one, and samples
 * of one thread stay in their order. Two things bound that. A series that is set more than a million times a second
 * runs ahead of the clock, and what would be a second ahead is dropped (dropped_other). And of times that the caller
 * gives, the last 65,536 at least are remembered, over all series.
 */
#ifndef TELEM_H
#define TELEM_H

#include <stddef.h>
#include <stdint.h>

#define TELEM_VERSION_MAJOR 1
#define TELEM_VERSION_MINOR 0

/* Given by who compiles the sources into a library of their own, which shows none of this. */
#if defined(TELEM_API)
#elif defined(_MSC_VER) || !defined(__GNUC__)
#define TELEM_API
#else
#define TELEM_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the library ----------------------------------------------------------------------------------------------- */

/* How the library works; zeroes mean what is written first. */
typedef struct telem_options {
    size_t size;             /* sizeof(telem_options), so that later versions may add fields at the end */
    const char *socket;      /* path of the service's socket; NULL: TELEM_CONNECTION, else TELEM_SOCKET */
    uint32_t ring_samples;   /* samples that wait in each thread; 0: 65,536. Rounded up to a power of two */
    uint32_t interval_ms;    /* between two batches; 0: 100 */
    uint32_t exit_ms;        /* most time that the end of the process waits for what is not sent; 0: 2,000 */
    int process_tags;        /* 0: `rank` where a launcher set one, and `pid` where it did not or ranks are shared;
                                1: always both; -1: neither. Forked children have `pid`. A tag of a metric's own
                                with that name takes precedence */
} telem_options;

/* Starts the library before its first metric is opened, where something shall be set. 0, or -1 where it runs already
   or an option is wrong. Without this call it starts by itself, with TELEM_PROCESS_TAG (0: neither; both),
   TELEM_RING_SAMPLES, TELEM_INTERVAL_MS and TELEM_EXIT_MS of the environment; these also hold for what is zero here.
   TELEM_LEVEL=0 switches it off. */
TELEM_API int telem_start(const telem_options *options);

/* 1 if a service is connected, 0 if it is looked for, -1 if none is named or the level is 0. */
TELEM_API int telem_connected(void);

/* The level of the job, as the service said; -1 while nothing is known. */
TELEM_API int telem_level(void);

/* Waits until everything that was taken before this call is stored by the service: 0; -1 if that took longer than
   `timeout_ms` (then it goes on in the background), if the service cannot store it, or if there is no service: at once
   if none is named or none was ever reached, else within `timeout_ms`, as it may come back. */
TELEM_API int telem_flush(uint32_t timeout_ms);

/* Flushes, hangs up and ends the thread of the library. Metrics stay, and do nothing from then on. A process that ends
   by exit or by the return of main does this by itself, with `exit_ms`. What is not stored then counts as
   dropped_unserved. */
TELEM_API void telem_stop(uint32_t timeout_ms);

/* What became of the samples of this process. At rest, taken = stored + refused + above_level + dropped_*. */
typedef struct telem_counts {
    size_t size;                /* sizeof(telem_counts), set by the caller */
    uint64_t taken;             /* given to the library */
    uint64_t sent;              /* handed to the socket */
    uint64_t stored;            /* the service has them */
    uint64_t refused;           /* the service has refused them, with a reason */
    uint64_t above_level;       /* of a level that the job does not keep */
    uint64_t dropped_full;      /* a ring or the queue of unsent batches had no room */
    uint64_t dropped_unserved;  /* no service was named, or it was away for too long */
    uint64_t dropped_other;     /* anything else, such as a time before 1970 */
    uint64_t connections;       /* how often a service was connected */
} telem_counts;

TELEM_API void telem_stats(telem_counts *counts);

/* Why the last call of this thread that returned NULL or -1 did so; once that was read, the last refusal of the service
   if one came since. Never NULL. The text holds until the thread's next call. */
TELEM_API const char *telem_error(void);

/* ---- metrics --------------------------------------------------------------------------------------------------- */

/* Tags are an array of keys and values by turns with NULL at its end; NULL alone for none. Opening the same metric with
   the same tags again gives the same handle. */
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define TELEM_TAGS(...) ((const char *const[]){__VA_ARGS__, NULL})
#endif

/* What may be said of a metric; zeroes and NULL mean nothing is said. */
typedef struct telem_about {
    size_t size;       /* sizeof(telem_about) */
    const char *unit;  /* such as "s" or "bytes" */
    const char *help;  /* one sentence */
    int level;         /* the lowest level of a job that keeps it: 1 to 4; 0 means 1 */
} telem_about;

typedef struct telem_gauge telem_gauge;
typedef struct telem_counter telem_counter;
typedef struct telem_histogram telem_histogram;
typedef struct telem_timer telem_timer;

/* A gauge: each value that is set is a sample, with the time of the call or one that is given. */
TELEM_API telem_gauge *telem_gauge_open(const char *metric, const char *const *tags);
TELEM_API telem_gauge *telem_gauge_open_about(const char *metric, const char *const *tags, const telem_about *about);
TELEM_API void telem_set(telem_gauge *gauge, double value);
TELEM_API void telem_set_int(telem_gauge *gauge, int64_t value);
TELEM_API void telem_set_at(telem_gauge *gauge, double value, int64_t time);
TELEM_API void telem_set_int_at(telem_gauge *gauge, int64_t value, int64_t time);
/* The same with the step of the program it belongs to; `time` 0 is now. The step is a sample of its own, of the metric
   `step` with the same tags and time. */
TELEM_API void telem_set_step(telem_gauge *gauge, double value, int64_t step, int64_t time);
TELEM_API void telem_set_int_step(telem_gauge *gauge, int64_t value, int64_t step, int64_t time);

/* A counter: a total of this process, exact whatever threads add to it. It is sent once an interval where it changed. A
   forked child begins at 0. */
TELEM_API telem_counter *telem_counter_open(const char *metric, const char *const *tags);
TELEM_API telem_counter *telem_counter_open_about(const char *metric, const char *const *tags,
                                                  const telem_about *about);
TELEM_API void telem_add(telem_counter *counter, uint64_t increment);
TELEM_API uint64_t telem_total(const telem_counter *counter);

/* A histogram of fixed buckets. `bounds` are their upper bounds, included, in rising order, 256 at most; the last
   bucket has none. What is no number counts in the last one and leaves the sum. It is sent as METRIC_bucket with the
   tag `le`, METRIC_sum and METRIC_count, once an interval where it changed. */
TELEM_API telem_histogram *telem_histogram_open(const char *metric, const char *const *tags, const double *bounds,
                                                size_t count);
TELEM_API telem_histogram *telem_histogram_open_about(const char *metric, const char *const *tags,
                                                      const double *bounds, size_t count, const telem_about *about);
TELEM_API void telem_observe(telem_histogram *histogram, double value);

/* A timer: each span that ends is a sample, its seconds at the time of its end. */
typedef struct telem_span {
    telem_timer *timer;
    uint64_t begin;
} telem_span;

TELEM_API telem_timer *telem_timer_open(const char *metric, const char *const *tags);
TELEM_API telem_timer *telem_timer_open_about(const char *metric, const char *const *tags, const telem_about *about);
TELEM_API telem_span telem_begin(telem_timer *timer);
/* Ends a span and gives its seconds; a second end of the same span does nothing and gives 0. */
TELEM_API double telem_end(telem_span *span);

/* ---- texts ----------------------------------------------------------------------------------------------------- */

/* An annotation at this moment: seen in Grafana and exports. `more` may be NULL. 0, or -1 where there is no room. */
TELEM_API int telem_note(const char *title, const char *more);

/* A setting of the job, such as ("solver", "cg"). 0, or -1 where there is no room. */
TELEM_API int telem_setting(const char *name, const char *value);

/* ---- questions ------------------------------------------------------------------------------------------------- */

/* Arrow's C data interface, as its specification defines it, so that any Arrow library takes the answer. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};
#endif

/* Asks the service in SQL, after a flush of what this process logged. 0 and the answer in `answer`, which the caller
   releases; -1 if there is none within `timeout_ms`: telem_error() says why, nodes that did not answer included. */
TELEM_API int telem_sql(const char *sql, uint32_t timeout_ms, struct ArrowArrayStream *answer);

/* One value of a row. */
typedef enum telem_type {
    TELEM_NULL,
    TELEM_BOOL,
    TELEM_INT,
    TELEM_UINT,
    TELEM_FLOAT,
    TELEM_TEXT,
    TELEM_TIME
} telem_type;
typedef struct telem_value {
    telem_type type;
    union {
        int boolean;
        int64_t integer;     /* TELEM_INT; of TELEM_TIME the microseconds since 1970 */
        uint64_t natural;    /* TELEM_UINT */
        double real;         /* TELEM_FLOAT */
        const char *text;    /* TELEM_TEXT: UTF-8, with a zero behind it */
    } as;
    size_t bytes;            /* of the text, without its zero */
} telem_value;

/* Takes a row: `count` values with their columns' names, valid during the call. Another value than 0 ends the query. */
typedef int (*telem_row)(void *context, size_t count, const char *const *columns, const telem_value *values);

/* The same row by row. The number of rows, or -1. */
TELEM_API int64_t telem_sql_rows(const char *sql, uint32_t timeout_ms, telem_row row, void *context);

/* One number, such as the average of the last minute: 0 and the first column of the first row as a double; -1 if there
   is no row, or no number in it. */
TELEM_API int telem_sql_number(const char *sql, uint32_t timeout_ms, double *number);

#ifdef __cplusplus
}
#endif
#endif
