/*
 * collect.c: a round of the sender: from the rings and the totals into batches.
 */
#include "work.h"

#include <stdlib.h>
#include <string.h>

enum {
    TOTALS_PAUSE_LEAST_MS = 5000,
    TOTALS_PAUSE_MOST_MS = 300000,
    /* With so many in a batch there is room for all that may be of one moment. */
    COLLECTED_MAX = TELEM__BATCH_SAMPLES_MAX - TELEM__GROUP_MAX
};

static void pack_taken(uint32_t count)
{
    uint64_t lost;
    struct telem__item *item = telem__pack(telem__sender.taken, count, ++telem__sender.sequence, &lost);
    telem__counts.other += lost;
    if (item) telem__append_batch(item);
}

/* Moves samples of a ring into `telem__sender.taken`, from `count` on. How many are in it then. */
static uint32_t drain(struct telem__ring *ring, uint32_t count, const struct telem__scale *scale, uint64_t cutoff)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed), began = tail;
    int level = atomic_load_explicit(&telem__known_level, memory_order_relaxed);
    while (tail != ring->stop && count <= COLLECTED_MAX) {
        const struct telem__slot *slot = &ring->slots[tail & ring->mask];
        if (!(slot->flags & TELEM__TOLD) && (int64_t)(slot->when - cutoff) > 0) break;
        /* What is of one moment stays together. */
        unsigned slots = 1;
        while (ring->slots[(tail + slots - 1) & ring->mask].flags & (TELEM__HAS_STEP | TELEM__HAS_MORE)) slots++;
        if (TELEM__RARELY((int64_t)(ring->unfiltered - tail) > 0) && level >= 0 &&
            telem__series_at(slot->series)->level > level) {
            telem__counts.above += slots;
            tail += slots;
            continue;
        }
        for (unsigned i = 0; i < slots; i++, tail++, count++) {
            slot = &ring->slots[tail & ring->mask];
            struct telem__taken *to = &telem__sender.taken[count];
            to->time = slot->flags & TELEM__TOLD ? (int64_t)slot->when : telem__real_ns(scale, slot->when);
            to->value = slot->value;
            to->series = slot->series;
            to->flags = slot->flags;
        }
    }
    if (tail != began) atomic_store_explicit(&ring->tail, tail, memory_order_release);
    return count;
}

/* Everything up to `cutoff`, as far as the queue has room. */
static void collect_rings(const struct telem__scale *scale, uint64_t cutoff)
{
    struct telem__ring *rings = telem__first_ring();
    for (struct telem__ring *ring = rings; ring; ring = ring->next) {
        int state = atomic_load_explicit(&ring->state, memory_order_acquire);
        ring->stop = atomic_load_explicit(&ring->head, memory_order_acquire);
        /* One that has ended and is empty has no one behind it. */
        if (state == TELEM__RING_ENDED && ring->stop == atomic_load_explicit(&ring->tail, memory_order_relaxed))
            atomic_store_explicit(&ring->state, TELEM__RING_FREE, memory_order_release);
    }
    uint32_t count;
    do {
        count = 0;
        if (telem__link.is_welcome && !telem__has_queue_room()) return;
        for (struct telem__ring *ring = rings; ring; ring = ring->next) {
            count = drain(ring, count, scale, cutoff);
            if (count > COLLECTED_MAX) break;
        }
        if (count) {
            telem__sender.active_ms = telem__now_ms();
            pack_taken(count);
        }
    } while (count > COLLECTED_MAX);
}

static uint32_t flush_totals(uint32_t count)
{
    if (count == 0) return 0;
    uint64_t sequence = ++telem__sender.sequence;
    struct telem__item *item = telem__pack_row(telem__sender.taken, count, telem__sender.totals_time, sequence);
    telem__counts.taken += count;
    if (item) {
        telem__append_batch(item);
    } else {
        telem__counts.other += count;
        telem__sender.has_lost_totals = true;
    }
    telem__sender.active_ms = telem__now_ms();
    return 0;
}

static uint32_t put_total(uint32_t count, uint32_t series, uint64_t value, uint32_t flags)
{
    telem__sender.taken[count].series = series;
    telem__sender.taken[count].value = value;
    telem__sender.taken[count].flags = flags;
    return count + 1;
}

static uint64_t as_integer(uint64_t total)
{
    return total > INT64_MAX ? (uint64_t)INT64_MAX : total;
}

/* A total is said where it changed, so one that was lost on its way would be missing until it changes again. All are
   said again: at once after an outage, with a flush, and ever more seldom to a service that refuses them. */
void telem__totals_settled(bool are_lost)
{
    struct telem__sender *sender = &telem__sender;
    if (!are_lost) {
        sender->totals_pause_ms = 0;
        return;
    }
    uint32_t pause = sender->totals_pause_ms ? sender->totals_pause_ms * 2 : TOTALS_PAUSE_LEAST_MS;
    sender->totals_pause_ms = pause > TOTALS_PAUSE_MOST_MS ? TOTALS_PAUSE_MOST_MS : pause;
    sender->totals_again_ms = telem__now_ms() + sender->totals_pause_ms;
    sender->has_lost_totals = true;
}

static bool says_totals_again(bool is_flush)
{
    if (!telem__sender.has_lost_totals || !telem__link.is_welcome) return false;
    return is_flush || telem__now_ms() >= telem__sender.totals_again_ms;
}

/* Reads a histogram's buckets over all stripes; whether they changed. */
static bool read_buckets(struct telem_histogram *histogram)
{
    bool changed = false;
    for (uint32_t bucket = 0; bucket <= histogram->count; bucket++) {
        uint64_t sum = 0;
        for (unsigned i = 0; i < telem__stripes; i++)
            sum += atomic_load_explicit(&histogram->cells[i * (size_t)histogram->words + bucket], memory_order_acquire);
        changed |= sum != histogram->sent[bucket];
        histogram->sent[bucket] = sum;
    }
    return changed;
}

static bool is_used(const struct telem_histogram *histogram)
{
    for (uint32_t bucket = 0; bucket <= histogram->count; bucket++)
        if (histogram->sent[bucket] > 0) return true;
    return false;
}

static uint32_t put_histogram(struct telem_histogram *histogram, uint32_t count)
{
    uint64_t so_far = 0;
    double sum = telem__sum_of(histogram);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    for (uint32_t i = 0; i <= histogram->count; i++) {
        so_far += histogram->sent[i];
        count = put_total(count, histogram->first + i, as_integer(so_far), TELEM__INT);
    }
    count = put_total(count, histogram->first + histogram->count + 1, bits, 0);
    return put_total(count, histogram->first + histogram->count + 2, as_integer(so_far), TELEM__INT);
}

/* Totals that changed, all with one time, which is theirs alone. */
static void collect_totals(int64_t now_us, bool set_back, bool is_flush)
{
    int level = atomic_load_explicit(&telem__known_level, memory_order_relaxed);
    if (level < 0) level = TELEM__NO_LEVEL;
    if (telem__link.is_welcome && !telem__has_queue_room()) return;
    telem__sender.totals_time = now_us > telem__sender.totals_time || set_back ? now_us : telem__sender.totals_time + 1;
    uint32_t count = 0;
    bool again = says_totals_again(is_flush);
    if (again) telem__sender.has_lost_totals = false;
    struct telem_counter *counter = atomic_load_explicit(&telem__counters, memory_order_acquire);
    for (; counter; counter = counter->next) {
        uint64_t total = telem_total(counter);
        if (total == counter->sent && !(again && total > 0)) continue;
        counter->sent = total;
        if (counter->level > level) {
            telem__counts.taken++;
            telem__counts.above++;
            continue;
        }
        if (count == TELEM__BATCH_SAMPLES_MAX) count = flush_totals(count);
        count = put_total(count, counter->number, as_integer(total), TELEM__INT);
    }
    struct telem_histogram *histogram = atomic_load_explicit(&telem__histograms, memory_order_acquire);
    for (; histogram; histogram = histogram->next) {
        if (!read_buckets(histogram) && !(again && is_used(histogram))) continue;
        if (histogram->level > level) {
            telem__counts.taken += histogram->count + 3;
            telem__counts.above += histogram->count + 3;
            continue;
        }
        if (count + histogram->count + 3 > TELEM__BATCH_SAMPLES_MAX) count = flush_totals(count);
        count = put_histogram(histogram, count);
    }
    flush_totals(count);
}

/* `cutoff`: samples that are taken meanwhile wait for the next round, so that no thread's run ahead of another's. */
void telem__collect(bool everything)
{
    bool set_back;
    if (!telem__sender.taken) telem__sender.taken = malloc(TELEM__BATCH_SAMPLES_MAX * sizeof *telem__sender.taken);
    if (!telem__sender.taken) return;
    struct telem__scale scale = telem__clock_follow(&set_back);
    if (set_back) telem__times_set_back();
    collect_rings(&scale, everything ? scale.ticks + INT64_MAX / 2 : scale.ticks);
    collect_totals(scale.real_ns / 1000, set_back, everything);
    telem__sender.round_ms = telem__now_ms();
}

/* The share of the fullest ring that is used, in 1/256. */
unsigned telem__fullest(bool *has_some)
{
    uint64_t most = 0;
    for (struct telem__ring *ring = telem__first_ring(); ring; ring = ring->next) {
        uint64_t used = atomic_load_explicit(&ring->head, memory_order_relaxed) -
                        atomic_load_explicit(&ring->tail, memory_order_relaxed);
        if (used) *has_some = true;
        uint64_t share = used * 256 / (ring->mask + 1);
        if (share > most) most = share;
    }
    return (unsigned)most;
}
