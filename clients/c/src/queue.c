/*
 * queue.c: the frames that wait, in the order in which they are sent, and what became of all samples.
 */
#include "work.h"

#include <stdlib.h>
#include <string.h>

struct telem__queue telem__queue;
struct telem__counts telem__counts;

void telem__sum_up(telem_counts *to)
{
    to->taken = telem__counts.taken;
    to->sent = telem__counts.sent;
    to->stored = telem__counts.stored;
    to->refused = telem__counts.refused;
    to->above_level = telem__counts.above;
    to->dropped_full = telem__counts.full;
    to->dropped_unserved = telem__counts.unserved;
    to->dropped_other = telem__counts.other;
    to->connections = telem__counts.connections;
    bool is_stopped = atomic_load(&telem__state) == TELEM__STOPPED;
    for (struct telem__ring *ring = telem__first_ring(); ring; ring = ring->next) {
        uint64_t full = atomic_load_explicit(&ring->full, memory_order_relaxed);
        uint64_t nested = atomic_load_explicit(&ring->nested, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        uint64_t base = atomic_load_explicit(&ring->base, memory_order_relaxed);
        to->taken += head - base + full + nested;
        to->dropped_full += full;
        to->dropped_other += nested;
        /* What a thread wrote while the library stopped. */
        if (is_stopped) to->dropped_unserved += head - atomic_load_explicit(&ring->tail, memory_order_relaxed);
    }
    for (unsigned i = 0; i < TELEM__STRIPES_MAX; i++) {
        uint64_t above = atomic_load_explicit(&telem__skips[i].above, memory_order_relaxed);
        uint64_t unserved = atomic_load_explicit(&telem__skips[i].unserved, memory_order_relaxed);
        uint64_t other = atomic_load_explicit(&telem__skips[i].other, memory_order_relaxed);
        to->taken += above + unserved + other;
        to->above_level += above;
        to->dropped_unserved += unserved;
        to->dropped_other += other;
    }
}

void telem_stats(telem_counts *given)
{
    telem_counts all;
    if (!given || given->size < sizeof(size_t) || given->size > 4096) return;
    memset(&all, 0, sizeof all);
    pthread_mutex_lock(&telem__work);
    telem__sum_up(&all);
    pthread_mutex_unlock(&telem__work);
    size_t size = given->size;
    all.size = size;
    if (size > sizeof all) memset((char *)given + sizeof all, 0, size - sizeof all);
    memcpy(given, &all, size < sizeof all ? size : sizeof all);
}

/* ---- the queue -------------------------------------------------------------------------------------------------- */

/* Takes the item behind `before` out; NULL: the first. */
void telem__unlink(struct telem__item *before, struct telem__item *item)
{
    if (before)
        before->next = item->next;
    else
        telem__queue.first = item->next;
    if (telem__queue.last == item) telem__queue.last = before;
    if (telem__queue.next == item) telem__queue.next = item->next;
    telem__queue.bytes -= item->bytes;
    if (item->type == TELEM__TEXT) telem__queue.texts--;
    free(item);
}

void telem__append(struct telem__item *item)
{
    item->next = NULL;
    if (telem__queue.last)
        telem__queue.last->next = item;
    else
        telem__queue.first = item;
    telem__queue.last = item;
    if (!telem__queue.next) telem__queue.next = item;
    telem__queue.bytes += item->bytes;
    if (item->type == TELEM__TEXT) telem__queue.texts++;
}

bool telem__has_queue_room(void)
{
    return telem__queue.bytes < TELEM__QUEUE_BYTES_MAX;
}

/* The oldest batch that no service ever saw: one that it saw may be stored, and is told apart by its answer only. */
static bool drop_oldest(void)
{
    struct telem__item *before = NULL;
    for (struct telem__item *at = telem__queue.first; at; before = at, at = at->next)
        if (at->type == TELEM__BATCH && !at->was_handed) {
            telem__counts.unserved += at->samples;
            telem__sender.has_lost_totals |= at->has_totals;
            telem__unlink(before, at);
            return true;
        }
    return false;
}

void telem__append_batch(struct telem__item *item)
{
    /* Connected, nothing is collected while the queue is full: the rings hold it. */
    while (!telem__link.is_welcome && telem__queue.bytes + item->bytes > TELEM__QUEUE_BYTES_MAX)
        if (!drop_oldest()) {
            telem__counts.unserved += item->samples;
            telem__sender.has_lost_totals |= item->has_totals;
            free(item);
            return;
        }
    telem__append(item);
}

struct telem__item *telem__new_item(enum telem__item_type type, uint8_t frame_type, size_t body)
{
    struct telem__item *item = malloc(sizeof *item + 8 + body);
    if (!item) return NULL;
    memset(item, 0, sizeof *item);
    item->type = type;
    item->bytes = 8 + body;
    telem__put_head(item->frame, (uint32_t)body, frame_type);
    return item;
}

/* Flushes of callers that were not sent yet: a later one answers for them. So they do not pile up. */
static void unlink_unsent_flushes(void)
{
    struct telem__item *before = NULL;
    for (struct telem__item *at = telem__queue.first, *next; at; at = next) {
        next = at->next;
        bool is_begun = at->was_sent || (at == telem__queue.next && telem__is_sending());
        if (at->type == TELEM__FLUSH && !(at->number & TELEM__OWN_FLUSH) && !is_begun)
            telem__unlink(before, at);
        else
            before = at;
    }
}

bool telem__append_flush(uint64_t number)
{
    if (!(number & TELEM__OWN_FLUSH)) unlink_unsent_flushes();
    struct telem__item *item = telem__new_item(TELEM__FLUSH, 6, 8);
    if (!item) return false;
    item->number = number;
    telem__put_u64(item->frame + 8, number);
    telem__append(item);
    return true;
}

void telem__queue_after_fork(void)
{
    while (telem__queue.first) telem__unlink(NULL, telem__queue.first);
    memset(&telem__counts, 0, sizeof telem__counts);
}
