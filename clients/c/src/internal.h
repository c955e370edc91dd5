/*
 * internal.h: what the files of the library know of each other.
 *
 * A sample's way: a metric's function (take.c) writes it into the ring of its thread; the sender (sender.c), the one
 * thread of the library, collects all rings, gives times (times.c), packs batches (batch.c) and keeps them in a queue
 * until the service (link.c) has them. Names go into the registry (registry.c) once.
 *
 * Locks, in the order in which they are taken: `telem__api` (opening, starting, stopping), `telem__work` (all that the
 * sender has; released whenever it waits), `telem__questions` (the connections of questions), `telem__words` (the last
 * refusal). Nothing that takes a sample takes one.
 */
#ifndef TELEM_INTERNAL_H
#define TELEM_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "../include/telem.h"

#include <endian.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Names with `telem__` are for these files only, also in a static library. */
#pragma GCC visibility push(hidden)

#define TELEM__LIKELY(x) __builtin_expect(!!(x), 1)
#define TELEM__RARELY(x) __builtin_expect(!!(x), 0)
/* Not inlined and away from the code that runs often. */
#define TELEM__COLD __attribute__((noinline, cold))
#define TELEM__LINE 64

/* ---- limits ------------------------------------------------------------------------------------------------------ */
enum {
    TELEM__METRIC_BYTES_MAX = 512,
    TELEM__KEY_BYTES_MAX = 256,
    TELEM__VALUE_BYTES_MAX = 1024,
    TELEM__UNIT_BYTES_MAX = 64,
    TELEM__HELP_BYTES_MAX = 1024,
    TELEM__TAGS_MAX = 62, /* the service takes 64; `rank` and `pid` are added */
    TELEM__BOUNDS_MAX = 256,
    TELEM__CHUNK = 1024,
    TELEM__CHUNKS_MAX = 1024,
    TELEM__STRIPES_MAX = 32,
    TELEM__BATCH_SAMPLES_MAX = 30000, /* 32 bytes each at most: below a mebibyte */
    TELEM__QUEUE_BYTES_MAX = 8 << 20,
    TELEM__TEXT_BYTES_MAX = 65536,
    TELEM__TEXTS_MAX = 256,
    TELEM__TOLD_MAX = 65536,
    TELEM__GROUP_MAX = 1024, /* samples of one moment */
    TELEM__FRAME_BYTES_MAX = 16777216,
    TELEM__ERROR_BYTES = 512,
    TELEM__REFUSALS_KEPT = 16
};

/* ---- clock.c ----------------------------------------------------------------------------------------------------- */
/* Whether ticks are the CPU's counter; else they are nanoseconds of CLOCK_MONOTONIC. */
extern bool telem__has_counter;

static inline uint64_t telem__monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t telem__ticks(void)
{
#if defined(__x86_64__)
    if (TELEM__LIKELY(telem__has_counter)) return __rdtsc();
#elif defined(__aarch64__)
    if (TELEM__LIKELY(telem__has_counter)) {
        uint64_t value;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return telem__monotonic_ns();
}

/* The same moment on three clocks. */
struct telem__moment {
    uint64_t ticks;
    int64_t real_ns;
    uint64_t monotonic_ns;
};

/* How ticks between two moments become times. */
struct telem__scale {
    uint64_t ticks;   /* of the later moment */
    int64_t real_ns;  /* its time */
    double ns_a_tick; /* on the way to it */
};

void telem__clock_init(void);
struct telem__moment telem__moment_now(void);
/* Between the moment of the call before and now. `*set_back` where the clock was set back by more than it can wait. */
struct telem__scale telem__clock_follow(bool *set_back);
/* Seconds of so many ticks. */
double telem__seconds(uint64_t ticks);

static inline int64_t telem__real_ns(const struct telem__scale *scale, uint64_t ticks)
{
    return scale->real_ns - (int64_t)((double)(int64_t)(scale->ticks - ticks) * scale->ns_a_tick);
}

/* ---- rings (take.c) ---------------------------------------------------------------------------------------------- */
enum {
    TELEM__INT = 1,
    TELEM__TOLD = 2,
    TELEM__HAS_STEP = 4, /* the next one is its step */
    TELEM__IS_STEP = 8,
    TELEM__GONE = 16,
    TELEM__HAS_MORE = 32, /* the next one is of the same moment */
    TELEM__IS_MORE = 64   /* so is the one before */
};

/* A sample as its thread leaves it. */
struct telem__slot {
    uint64_t when; /* ticks; microseconds since 1970 if TELEM__TOLD */
    uint64_t value;
    uint32_t series;
    uint32_t flags;
};

enum { TELEM__RING_FREE, TELEM__RING_OWNED, TELEM__RING_ENDED };

/* Samples of one thread. They are never unmapped: a thread that ends leaves its ring to the next one. */
struct telem__ring {
    /* Written by the thread. */
    _Alignas(TELEM__LINE) _Atomic uint64_t head;
    uint64_t tail_seen;
    _Atomic uint32_t busy; /* also seen by signal handlers on the thread */
    _Atomic uint64_t full;
    _Atomic uint64_t nested;
    /* Written by the sender. */
    _Alignas(TELEM__LINE) _Atomic uint64_t tail;
    uint64_t target;     /* a flush waits until `tail` is there */
    uint64_t stop;       /* a round goes that far */
    uint64_t unfiltered; /* up to here the level of the job was not known */
    /* Written seldom. */
    _Alignas(TELEM__LINE) struct telem__slot *slots;
    uint64_t mask;
    _Atomic uint64_t base; /* `head` when the process began: not 0 after fork */
    _Atomic int state;
    struct telem__ring *next;
};

extern _Atomic(struct telem__ring *) telem__rings;

/* Series above it go the slow way: -1 while nothing is to be taken, 127 while the level is not known. */
extern _Atomic int telem__gate;

/* What threads without a ring lost. */
struct telem__skipped {
    _Alignas(TELEM__LINE) _Atomic uint64_t above;
    _Atomic uint64_t unserved;
    _Atomic uint64_t other;
};
extern struct telem__skipped telem__skips[TELEM__STRIPES_MAX];

/* A value of several that belong together. */
struct telem__part {
    telem_gauge *gauge;
    uint64_t value; /* the bits of a double, or an integer */
    bool is_integer;
};
/* Takes all of them with one time, now or microseconds that are given: all or none. `count` up to TELEM__GROUP_MAX, and
   to what a ring has. */
void telem__set_all(const struct telem__part *parts, uint32_t count, int64_t time);

void telem__rings_init(uint32_t samples);
void telem__rings_after_fork(void);
void telem__rings_end(void);
/* The stripe of the calling thread, below a power of two. */
unsigned telem__stripe(void);

/* ---- registry.c -------------------------------------------------------------------------------------------------- */
enum telem__class { TELEM__GAUGE, TELEM__COUNTER, TELEM__HISTOGRAM, TELEM__TIMER, TELEM__PART, TELEM__TOTAL };

struct telem__series {
    uint32_t number;
    uint8_t kind; /* of the protocol: 0 gauge, 1 counter, 2 histogram */
    uint8_t level;
    uint16_t tag_count;
    enum telem__class class;
    void *handle;
    char *metric;
    char *unit;
    char *help;
    char **tags; /* keys and values by turns, in the order of the keys */
    struct telem__series *next;
    uint64_t hash;
};

struct telem__cell {
    _Alignas(TELEM__LINE) _Atomic uint64_t value;
};

struct telem_gauge {
    uint32_t number;
    int level;
    _Atomic(struct telem__series *) step; /* once one was given */
    struct telem__series *series;
};

struct telem_timer {
    struct telem_gauge gauge;
};

struct telem_counter {
    uint32_t number;
    uint8_t level;
    uint64_t sent;
    struct telem_counter *next;
    struct telem__cell *cells;
};

struct telem_histogram {
    uint32_t first; /* its buckets, then its sum, then its count */
    uint8_t level;
    uint32_t count; /* of bounds */
    double *bounds;
    uint32_t words;           /* of 64 bits, that a stripe takes */
    _Atomic uint64_t *cells;  /* a stripe: count + 1 buckets, then its sum as the bits of a double */
    uint64_t *sent;           /* as read last, summed over stripes: count + 1 buckets */
    struct telem_histogram *next;
};

extern _Atomic uint32_t telem__series_count;
extern unsigned telem__stripes; /* a power of two */
extern _Atomic(struct telem_counter *) telem__counters;
extern _Atomic(struct telem_histogram *) telem__histograms;

void telem__registry_init(void);
struct telem__series *telem__series_at(uint32_t number);
/* The series `step` with the tags of another. NULL where there is no room, or the lock is taken. */
struct telem__series *telem__step_of(struct telem_gauge *gauge);
/* A gauge whose values are totals that only grow, such as seconds: known as a counter to the service (clients/mpi). */
telem_gauge *telem__total_open(const char *metric, const char *const *tags, const telem_about *about);
/* A series of a binding that keeps totals itself: a gauge to set, of a kind of the protocol. Values of tags stay as they
   are where it is no gauge to the service, such as `+Inf`. */
telem_gauge *telem__series_open(const char *metric, const char *const *tags, uint8_t kind);
void telem__totals_after_fork(void);
/* Copies `given` as UTF-8; what is no character becomes `_`, and of a name each ASCII character that is not legal. */
void telem__clean(char *to, const char *given, bool is_name);
/* A histogram's sum over all stripes. */
double telem__sum_of(const struct telem_histogram *histogram);

/* ---- process.c --------------------------------------------------------------------------------------------------- */
/* Tags that tell this process from others: `rank`, `pid`. */
struct telem__identity {
    unsigned count;
    char keys[2][8];
    char values[2][24];
};

struct telem__settings {
    char *socket; /* given by telem_start */
    char *connection_file;
    char *environment_socket;
    uint32_t ring_samples;
    uint32_t interval_ms;
    uint32_t exit_ms;
    int process_tags;
    bool is_named;
    bool debugs;
};
extern struct telem__settings telem__settings;

int telem__settings_init(const telem_options *options);
void telem__identify(struct telem__identity *identity, bool is_forked);
/* Where the service listens now; NULL if nobody says. To be freed. Reads a file, which a file system may take long for:
   not with a lock. */
char *telem__socket_path(void);
/* A socket connected to the service, with its opening not sent; -1, the thread's error and errno, which is EAGAIN where
   the service is there and has no time. Never blocks. */
int telem__dial(const char *path);
TELEM__COLD void telem__fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
TELEM__COLD void telem__debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The refusal that telem_error() shows where the thread has no error of its own. */
TELEM__COLD void telem__refusal(const char *text, size_t bytes);
/* The last refusal becomes the thread's error. */
TELEM__COLD void telem__fail_as_refused(void);
/* The refusal behind the first `*seen` of this process, of the last TELEM__REFUSALS_KEPT; false if there is none. */
bool telem__next_refusal(uint64_t *seen, char text[TELEM__ERROR_BYTES]);
extern pthread_mutex_t telem__words;

/* ---- question.c -------------------------------------------------------------------------------------------------- */
extern pthread_mutex_t telem__questions;
/* The connections of the parent's questions are not the child's. */
void telem__questions_after_fork(void);

/* ---- batch.c ----------------------------------------------------------------------------------------------------- */
/* A sample on its way into a batch. */
struct telem__taken {
    int64_t time; /* nanoseconds until it is settled, then microseconds; microseconds always if TELEM__TOLD */
    uint64_t value;
    uint32_t series;
    uint32_t flags;
};

enum telem__item_type { TELEM__BATCH, TELEM__TEXT, TELEM__FLUSH };

/* A frame that waits for the service. */
struct telem__item {
    struct telem__item *next;
    enum telem__item_type type;
    uint64_t number; /* sequence of a batch, number of a flush */
    uint64_t samples;
    uint32_t series_needed; /* names that must be sent before it */
    bool was_sent;          /* on this connection */
    bool was_handed;        /* on any */
    bool is_answered;
    bool has_totals;
    size_t bytes;
    unsigned char frame[];
};

/* Gives each sample its time, and packs them. NULL if none is left or there is no memory; `*lost` were dropped. */
struct telem__item *telem__pack(struct telem__taken *taken, uint32_t count, uint64_t sequence, uint64_t *lost);
/* Called when the clock was set back for good. */
void telem__times_set_back(void);
void telem__batch_after_fork(void);
/* `count` totals of one time, as a row each of integers and floats. */
struct telem__item *telem__pack_row(const struct telem__taken *taken, uint32_t count, int64_t time, uint64_t sequence);

static inline void telem__put_u16(unsigned char *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof value);
}

static inline void telem__put_u32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static inline void telem__put_u64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint16_t telem__get_u16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return le16toh(value);
}

static inline uint32_t telem__get_u32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static inline uint64_t telem__get_u64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

void telem__put_head(unsigned char *at, uint32_t body, uint8_t type);
extern const unsigned char telem__opening[8];

/* ---- sender.c ---------------------------------------------------------------------------------------------------- */
enum telem__state { TELEM__NEW, TELEM__UNNAMED, TELEM__RUNNING, TELEM__ASLEEP, TELEM__STOPPED };
extern _Atomic int telem__state;
extern pthread_mutex_t telem__api;
extern pthread_mutex_t telem__work;

/* Starts the library if it was not yet. With `telem__api`. */
void telem__ensure(void);
/* Locks `telem__api` where that may be in a signal handler, which may have interrupted who has it: 20 ms at most. */
bool telem__try_api(void);
/* A flush in steps, for who has other things to look after meanwhile: its number, or 0 and the thread's error. */
uint64_t telem__flush_ask(void);
/* 1 once it is done, 0 if that takes longer, -1 and the thread's error if it failed. */
int telem__flush_wait(uint64_t number, uint32_t timeout_ms);
/* Starts the sender of a forked child. From the slow way of a sample: takes no lock that is taken. */
bool telem__wake(void);

#pragma GCC visibility pop
#endif
