/*
 * work.h: what the sender's files share. All of it belongs to `telem__work`, which is free whenever the sender waits.
 */
#ifndef TELEM_WORK_H
#define TELEM_WORK_H

#include "internal.h"

#include <sys/types.h>

#pragma GCC visibility push(hidden)

enum { TELEM__NO_LEVEL = 127, TELEM__RETRY_LEAST_MS = 100 };

/* The high half of numbers of flushes that the library asks for itself. */
#define TELEM__OWN_FLUSH (UINT64_C(1) << 63)

/* The connection. */
struct telem__link {
    int fd;
    dev_t device;
    ino_t inode;
    bool is_welcome;
    bool was_ever; /* a service was connected once in this process */
    bool is_busy;  /* the last attempt found one that had no time */
    uint64_t began_ms;
    uint64_t lost_ms;
    uint64_t tried_ms;
    uint64_t retry_at_ms;
    uint32_t retry_ms;
    uint32_t attempts;
    uint32_t announced; /* series that it knows */
    uint32_t series_max;
    uint64_t acked_stored, acked_refused;
    unsigned goodbyes; /* in a row that blamed this process, without an acknowledgement between */
    char why[TELEM__ERROR_BYTES];
};
extern struct telem__link telem__link;

/* Frames that wait for the service, or for its word that it has them. */
struct telem__queue {
    struct telem__item *first, *last;
    struct telem__item *next; /* to be sent */
    size_t bytes;
    unsigned texts;
};
extern struct telem__queue telem__queue;

/* Numbers of flushes, each the highest that came so far. */
struct telem__flushes {
    uint64_t asked, begun, queued, done, failed;
    uint32_t attempts; /* of the connection, when it was asked */
    uint64_t own;      /* number of the library's own, not answered yet; 0: none */
    uint64_t own_count;
};
extern struct telem__flushes telem__flushes;

struct telem__counts {
    uint64_t taken; /* of totals */
    uint64_t sent, stored, refused, above, full, unserved, other, connections;
};
extern struct telem__counts telem__counts;

struct telem__sender {
    uint32_t look_ms;
    uint64_t active_ms; /* when something was taken last */
    uint64_t round_ms;
    uint64_t sequence;
    int64_t totals_time;
    bool has_lost_totals;       /* the last word about some totals did not arrive: all are said again */
    uint64_t totals_again_ms;   /* not before */
    uint32_t totals_pause_ms;   /* what a refusal of them costs, each time twice as long */
    uint64_t alone_ms;          /* when it was asked last whether other threads are left */
    bool has_begun; /* its thread runs */
    bool stops;
    bool is_over;
    uint64_t stop_by_ms;
    struct telem__taken *taken;
    struct telem__identity identity;
};
extern struct telem__sender telem__sender;

/* Read without the lock. */
extern _Atomic int telem__known_level;
extern _Atomic int telem__is_connected;

extern pthread_cond_t telem__wake_sender; /* the sender waits */
extern pthread_cond_t telem__done;        /* callers wait */

static inline uint64_t telem__now_ms(void)
{
    return telem__monotonic_ns() / 1000000;
}

static inline struct telem__ring *telem__first_ring(void)
{
    return atomic_load_explicit(&telem__rings, memory_order_acquire);
}

/* ---- queue.c ----------------------------------------------------------------------------------------------------- */
void telem__sum_up(telem_counts *to);
/* Takes the item behind `before` out and frees it; NULL: the first. */
void telem__unlink(struct telem__item *before, struct telem__item *item);
void telem__append(struct telem__item *item);
void telem__append_batch(struct telem__item *item);
bool telem__append_flush(uint64_t number);
bool telem__has_queue_room(void);
struct telem__item *telem__new_item(enum telem__item_type type, uint8_t frame_type, size_t body);
void telem__queue_after_fork(void);

/* ---- collect.c --------------------------------------------------------------------------------------------------- */
/* A round: all rings and all totals into the queue, up to now or with what is taken meanwhile. */
void telem__collect(bool everything);
/* What became of a batch of totals. */
void telem__totals_settled(bool are_lost);
/* The share of the fullest ring that is used, in 1/256. */
unsigned telem__fullest(bool *has_some);

/* ---- link.c ------------------------------------------------------------------------------------------------------ */
void telem__connect(uint64_t now, const char *path);
void telem__hang_up(const char *why);
/* Sends until there is nothing, or the socket takes no more. */
void telem__send(bool is_round);
void telem__receive(void);
bool telem__is_sending(void);
bool telem__is_ours(void);
void telem__link_after_fork(void);

/* ---- sender.c ---------------------------------------------------------------------------------------------------- */
void *telem__run(void *nothing);

#pragma GCC visibility pop
#endif
