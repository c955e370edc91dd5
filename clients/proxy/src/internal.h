/*
 * internal.h: what the files of the library know of each other.
 *
 * Who changes a value adds to a sum of its own thread (values.c). One thread takes what came, writes it as messages into
 * one buffer (wire.c) and hands that to the kernel in one call (link.c); client.c says when. What did not leave the
 * process goes back.
 */
#ifndef PROXY_INTERNAL_H
#define PROXY_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "metric_proxy_client.h"

enum {
    PROXY__NAME_BYTES_MAX = 1600,
    PROXY__DOC_BYTES_MAX = 4096,
    PROXY__VALUES_MAX = 1 << 20,
    /* What is made before it is sent; a flush of more is sent in parts. */
    PROXY__BATCH_BYTES_MAX = 4 << 20,
    PROXY__LINE = 64
};

enum proxy__kind { PROXY__COUNTER, PROXY__GAUGE };

/* One cache line, so that two values never share one. */
struct MetricProxyValue {
    /* The bits of a double: of a counter what came here instead of to the sum of a thread (values.c), 0 for nothing; of a
       gauge what was set since it was taken, PROXY__UNSET for nothing. */
    _Atomic uint64_t cell;
    /* Of a gauge: what was taken last, for a server that does not know it. */
    uint64_t last;
    /* Where its sum is: the place of a part's address within a lane, and of the sum within that part. */
    uint32_t part_at, sum_at;
    uint32_t number;
    uint32_t kind;
    /* As they stand in JSON, without quotes. */
    uint32_t name_bytes, doc_bytes;
    uint32_t hash;
    char *text;
    struct MetricProxyValue *same_bucket;
} __attribute__((aligned(PROXY__LINE)));

/* A NaN that no arithmetic makes; nothing that is not finite gets into a cell. */
#define PROXY__UNSET UINT64_C(0x7ff4dead7ff4dead)

static inline double proxy__double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t proxy__bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* ---- values.c ---------------------------------------------------------------------------------------------------- */

/* How many there are; those below may be read by anybody. */
extern _Atomic uint32_t proxy__value_count;
/* Set in a forked child until it changes a value. */
extern _Atomic int proxy__is_asleep;

struct MetricProxyValue *proxy__value_at(uint32_t number);
struct MetricProxyValue *proxy__declare(enum proxy__kind kind, const char *name, const char *doc);
/* Takes what came; false where nothing did. */
bool proxy__take(struct MetricProxyValue *value, double *amount);
/* Puts back what was taken and not sent. */
void proxy__put_back(struct MetricProxyValue *value, double amount);
/* Gauges are to be sent once more. */
void proxy__show_gauges_again(void);
/* A child begins with nothing. */
void proxy__forget_amounts(void);
void proxy__values_init(void);
void proxy__values_after_fork(void);
/* Taken by the registry; of client.c's fork handlers. */
extern pthread_mutex_t proxy__registry;

/* ---- wire.c ------------------------------------------------------------------------------------------------------ */

struct proxy__buffer {
    char *at;
    size_t bytes, room;
};

bool proxy__has_room(struct proxy__buffer *buffer, size_t more);
/* Each needs room for this much: proxy__has_room. */
enum { PROXY__MESSAGE_ROOM = 320, PROXY__NUMBER_ROOM = 40 };
void proxy__write_desc(struct proxy__buffer *to, const struct MetricProxyValue *value);
void proxy__write_value(struct proxy__buffer *to, const struct MetricProxyValue *value, double amount, uint64_t ts_us);
/* The shortest text that reads as the same number, with a fraction or an exponent. Its bytes. */
size_t proxy__write_number(char *to, double value);
/* Escapes as JSON wants it: at most six bytes a byte. Its end. */
char *proxy__write_text(char *to, const char *from, size_t bytes);
bool proxy__is_utf8(const char *text, size_t bytes);
/* How many of at most `most` bytes do not cut a character. */
size_t proxy__cut(const char *text, size_t bytes, size_t most);

/* ---- job.c ------------------------------------------------------------------------------------------------------- */

/* The description of the job as a message. Asks the environment, so a thread of the program calls it. */
bool proxy__write_job(struct proxy__buffer *to);

/* ---- link.c ------------------------------------------------------------------------------------------------------ */

/* Whether there is a connection. Hangs up if the server did. */
bool proxy__is_connected(void);
bool proxy__dial(const char *path);
void proxy__hang_up(const char *why);
void proxy__link_after_fork(void);
/* Hands bytes to the kernel until `until_ns`; how many it took. All of them, unless the connection is gone or the time
   is over. Without any lock. */
size_t proxy__send(const char *at, size_t bytes, uint64_t until_ns, bool *is_gone);

/* ---- client.c ---------------------------------------------------------------------------------------------------- */

uint64_t proxy__now_ns(void);
uint64_t proxy__unix_us(void);
void proxy__debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* There is something new to be declared. */
void proxy__wake(void);
/* Begins anew in a forked child. False where that cannot be now. */
bool proxy__awake(void);
/* Begins without counting it in has_started. Only the first call does anything. */
void proxy__begin(void);

/* ---- functions.c ------------------------------------------------------------------------------------------------- */

extern pthread_mutex_t proxy__functions;
/* Of this thread: within the library, where functions are not counted. */
extern __thread int proxy__within __attribute__((tls_model("initial-exec")));

#endif
