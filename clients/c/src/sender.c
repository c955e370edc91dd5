/*
 * sender.c: the one thread of the library, and what starts, stops and forks it.
 *
 * It sleeps most of the time. When it wakes it looks into the rings; once an interval, or earlier when a ring fills, it
 * collects them all, packs batches, and queues them. What is in the queue is sent in its order, stays until the service
 * has acknowledged it, and is sent again on the next connection if it has not.
 *
 * All variables here belong to `telem__work`, which is free whenever the thread waits.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

_Atomic int telem__state = TELEM__NEW;
pthread_mutex_t telem__api = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t telem__work = PTHREAD_MUTEX_INITIALIZER;

enum {
    LOOK_LEAST_MS = 2,
    LOOK_IDLE_MS = 200,
    IDLE_AFTER_MS = 2000,
    RETRY_LEAST_MS = 100,
    RETRY_MOST_MS = 5000,
    WELCOME_MS = 5000,
    WAIT_FOR_SOCKET_MS = 5,
    LOST_LATELY_MS = 5000,
    IN_BYTES = 131072,
    SERIES_FRAME_BYTES = 262144,
    NO_LEVEL = 127
};

/* The high half of numbers of flushes that the library asks for itself. */
static const uint64_t OWN_FLUSH = UINT64_C(1) << 63;

static pthread_cond_t wake;  /* the sender waits */
static pthread_cond_t done;  /* callers wait */
static pthread_t thread;
static bool has_thread;
static bool is_forked;
static uint64_t next_start_ns;

/* The connection. */
static struct {
    int fd;
    dev_t device;
    ino_t inode;
    bool is_welcome;
    bool was_ever;       /* a service was connected once in this process */
    uint64_t began_ms;
    uint64_t lost_ms;
    uint64_t retry_at_ms;
    uint32_t retry_ms;
    uint32_t attempts;
    uint32_t announced;  /* series that it knows */
    uint32_t series_max;
    uint64_t acked_stored, acked_refused;
    unsigned goodbyes;   /* in a row that blamed this process, without an acknowledgement between */
    char why[TELEM__ERROR_BYTES];
} link_ = {.fd = -1};

/* What is being sent. */
static struct {
    const unsigned char *at;
    size_t bytes;
    struct telem__item *item; /* NULL: `own` */
    unsigned char *own;
    size_t own_room;
} out;

static unsigned char *in;
static size_t in_bytes;

static struct {
    struct telem__item *first, *last;
    struct telem__item *next; /* to be sent */
    size_t bytes;
    unsigned texts;
} queue;

static struct {
    uint64_t asked, begun, queued, done, failed;
    uint32_t attempts; /* of the connection, when it was asked */
    uint64_t own;      /* number of the library's own, not answered yet; 0: none */
    uint64_t own_count;
} flush;

static struct {
    uint64_t taken; /* of totals */
    uint64_t sent, stored, refused, above, full, unserved, other, connections;
} counts;

static struct {
    uint64_t taken, full, unserved, other;
    bool was_sent;
} tally;

static struct {
    uint32_t look_ms;
    uint64_t active_ms; /* when something was taken last */
    uint64_t round_ms;
    uint64_t sequence;
    int64_t totals_time;
    bool stops;
    bool is_over;
    uint64_t stop_by_ms;
    struct telem__taken *taken;
    struct telem__identity identity;
} me;

static _Atomic int known_level = -1;
static _Atomic int is_connected;

static uint64_t now_ms(void)
{
    return telem__monotonic_ns() / 1000000;
}

static struct telem__ring *first_ring(void)
{
    return atomic_load_explicit(&telem__rings, memory_order_acquire);
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void sum_up(telem_counts *to)
{
    to->taken = counts.taken;
    to->sent = counts.sent;
    to->stored = counts.stored;
    to->refused = counts.refused;
    to->above_level = counts.above;
    to->dropped_full = counts.full;
    to->dropped_unserved = counts.unserved;
    to->dropped_other = counts.other;
    to->connections = counts.connections;
    bool is_stopped = atomic_load(&telem__state) == TELEM__STOPPED;
    for (struct telem__ring *ring = first_ring(); ring; ring = ring->next) {
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
    sum_up(&all);
    pthread_mutex_unlock(&telem__work);
    size_t size = given->size;
    all.size = size;
    if (size > sizeof all) memset((char *)given + sizeof all, 0, size - sizeof all);
    memcpy(given, &all, size < sizeof all ? size : sizeof all);
}

/* ---- queue ------------------------------------------------------------------------------------------------------- */

/* Takes the item behind `before` out; NULL: the first. */
static void unlink_item(struct telem__item *before, struct telem__item *item)
{
    if (before)
        before->next = item->next;
    else
        queue.first = item->next;
    if (queue.last == item) queue.last = before;
    if (queue.next == item) queue.next = item->next;
    queue.bytes -= item->bytes;
    if (item->type == TELEM__TEXT) queue.texts--;
    free(item);
}

static void append(struct telem__item *item)
{
    item->next = NULL;
    if (queue.last)
        queue.last->next = item;
    else
        queue.first = item;
    queue.last = item;
    if (!queue.next) queue.next = item;
    queue.bytes += item->bytes;
    if (item->type == TELEM__TEXT) queue.texts++;
}

static bool has_queue_room(void)
{
    return queue.bytes < TELEM__QUEUE_BYTES_MAX;
}

/* The oldest batch that no service ever saw: one that it saw may be stored, and is told apart by its answer only. */
static bool drop_oldest(void)
{
    struct telem__item *before = NULL;
    for (struct telem__item *at = queue.first; at; before = at, at = at->next)
        if (at->type == TELEM__BATCH && !at->was_handed) {
            counts.unserved += at->samples;
            unlink_item(before, at);
            return true;
        }
    return false;
}

static void append_batch(struct telem__item *item)
{
    /* Connected, nothing is collected while the queue is full: the rings hold it. */
    while (!link_.is_welcome && queue.bytes + item->bytes > TELEM__QUEUE_BYTES_MAX)
        if (!drop_oldest()) {
            counts.unserved += item->samples;
            free(item);
            return;
        }
    append(item);
}

static struct telem__item *new_item(enum telem__item_type type, uint8_t frame_type, size_t body)
{
    struct telem__item *item = malloc(sizeof *item + 8 + body);
    if (!item) return NULL;
    memset(item, 0, sizeof *item);
    item->type = type;
    item->bytes = 8 + body;
    telem__put_head(item->frame, (uint32_t)body, frame_type);
    return item;
}

static bool append_flush(uint64_t number)
{
    struct telem__item *item = new_item(TELEM__FLUSH, 6, 8);
    if (!item) return false;
    item->number = number;
    telem__put_u64(item->frame + 8, number);
    append(item);
    return true;
}

/* ---- collecting -------------------------------------------------------------------------------------------------- */

static void pack_taken(uint32_t count)
{
    uint64_t lost;
    struct telem__item *item = telem__pack(me.taken, count, ++me.sequence, &lost);
    counts.other += lost;
    if (item) append_batch(item);
}

/* Moves samples of a ring into `me.taken`, from `count` on. How many are in it then. */
static uint32_t drain(struct telem__ring *ring, uint32_t count, const struct telem__scale *scale, uint64_t cutoff)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed), began = tail;
    int level = atomic_load_explicit(&known_level, memory_order_relaxed);
    while (tail != ring->stop && count < TELEM__BATCH_SAMPLES_MAX - 1) {
        const struct telem__slot *slot = &ring->slots[tail & ring->mask];
        if (!(slot->flags & TELEM__TOLD) && (int64_t)(slot->when - cutoff) > 0) break;
        /* A pair stays together. */
        unsigned slots = slot->flags & TELEM__HAS_STEP ? 2 : 1;
        if (TELEM__RARELY((int64_t)(ring->unfiltered - tail) > 0) && level >= 0 &&
            telem__series_at(slot->series)->level > level) {
            counts.above += slots;
            tail += slots;
            continue;
        }
        for (unsigned i = 0; i < slots; i++, tail++, count++) {
            slot = &ring->slots[tail & ring->mask];
            struct telem__taken *to = &me.taken[count];
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
    struct telem__ring *rings = first_ring();
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
        if (link_.is_welcome && !has_queue_room()) return;
        for (struct telem__ring *ring = rings; ring; ring = ring->next) {
            count = drain(ring, count, scale, cutoff);
            if (count >= TELEM__BATCH_SAMPLES_MAX - 1) break;
        }
        if (count) {
            me.active_ms = now_ms();
            pack_taken(count);
        }
    } while (count >= TELEM__BATCH_SAMPLES_MAX - 1);
}

static uint32_t flush_totals(uint32_t count)
{
    if (count == 0) return 0;
    struct telem__item *item = telem__pack_row(me.taken, count, me.totals_time, ++me.sequence);
    counts.taken += count;
    if (item)
        append_batch(item);
    else
        counts.other += count;
    me.active_ms = now_ms();
    return 0;
}

static uint32_t put_total(uint32_t count, uint32_t series, uint64_t value, uint32_t flags)
{
    me.taken[count].series = series;
    me.taken[count].value = value;
    me.taken[count].flags = flags;
    return count + 1;
}

static uint64_t as_integer(uint64_t total)
{
    return total > INT64_MAX ? (uint64_t)INT64_MAX : total;
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
static void collect_totals(int64_t now_us, bool set_back)
{
    int level = atomic_load_explicit(&known_level, memory_order_relaxed);
    if (level < 0) level = NO_LEVEL;
    if (link_.is_welcome && !has_queue_room()) return;
    me.totals_time = now_us > me.totals_time || set_back ? now_us : me.totals_time + 1;
    uint32_t count = 0;
    struct telem_counter *counter = atomic_load_explicit(&telem__counters, memory_order_acquire);
    for (; counter; counter = counter->next) {
        uint64_t total = telem_total(counter);
        if (total == counter->sent) continue;
        counter->sent = total;
        if (counter->level > level) {
            counts.taken++;
            counts.above++;
            continue;
        }
        if (count == TELEM__BATCH_SAMPLES_MAX) count = flush_totals(count);
        count = put_total(count, counter->number, as_integer(total), TELEM__INT);
    }
    struct telem_histogram *histogram = atomic_load_explicit(&telem__histograms, memory_order_acquire);
    for (; histogram; histogram = histogram->next) {
        if (!read_buckets(histogram)) continue;
        if (histogram->level > level) {
            counts.taken += histogram->count + 3;
            counts.above += histogram->count + 3;
            continue;
        }
        if (count + histogram->count + 3 > TELEM__BATCH_SAMPLES_MAX) count = flush_totals(count);
        count = put_histogram(histogram, count);
    }
    flush_totals(count);
}

/* `cutoff`: samples that are taken meanwhile wait for the next round, so that no thread's run ahead of another's. */
static void round_up(bool everything)
{
    bool set_back;
    if (!me.taken) me.taken = malloc(TELEM__BATCH_SAMPLES_MAX * sizeof *me.taken);
    if (!me.taken) return;
    struct telem__scale scale = telem__clock_follow(&set_back);
    if (set_back) telem__times_set_back();
    collect_rings(&scale, everything ? scale.ticks + INT64_MAX / 2 : scale.ticks);
    collect_totals(scale.real_ns / 1000, set_back);
    me.round_ms = now_ms();
}

/* The share of the fullest ring that is used, in 1/256. */
static unsigned fullest(bool *has_some)
{
    uint64_t most = 0;
    for (struct telem__ring *ring = first_ring(); ring; ring = ring->next) {
        uint64_t used = atomic_load_explicit(&ring->head, memory_order_relaxed) -
                        atomic_load_explicit(&ring->tail, memory_order_relaxed);
        if (used) *has_some = true;
        uint64_t share = used * 256 / (ring->mask + 1);
        if (share > most) most = share;
    }
    return (unsigned)most;
}

/* ---- the connection ---------------------------------------------------------------------------------------------- */

/* Whether the number is still our socket: programs close what they do not know, and open something else there. */
static bool is_ours(void)
{
    struct stat found;
    return link_.fd >= 0 && fstat(link_.fd, &found) == 0 && S_ISSOCK(found.st_mode) && found.st_dev == link_.device &&
           found.st_ino == link_.inode;
}

static void lose(const char *why)
{
    if (link_.fd < 0) return;
    telem__debug("disconnected: %s", why);
    snprintf(link_.why, sizeof link_.why, "the service hung up: %s", why);
    if (is_ours()) close(link_.fd);
    link_.fd = -1;
    link_.lost_ms = now_ms();
    if (link_.is_welcome && link_.goodbyes == 0) link_.retry_ms = RETRY_LEAST_MS;
    link_.retry_at_ms = link_.lost_ms + link_.retry_ms;
    link_.retry_ms = link_.retry_ms * 2 > RETRY_MOST_MS ? RETRY_MOST_MS : link_.retry_ms * 2;
    link_.is_welcome = false;
    atomic_store(&is_connected, 0);
    out.bytes = 0;
    out.item = NULL;
    in_bytes = 0;
    tally.was_sent = false;
    queue.next = queue.first;
    for (struct telem__item *at = queue.first; at; at = at->next) {
        at->was_sent = false;
        at->is_answered = false;
    }
}

static bool has_own_room(size_t bytes)
{
    if (bytes <= out.own_room) return true;
    unsigned char *grown = realloc(out.own, bytes * 2);
    if (!grown) return false;
    out.own = grown;
    out.own_room = bytes * 2;
    return true;
}

static void send_own(size_t bytes)
{
    out.at = out.own;
    out.bytes = bytes;
    out.item = NULL;
}

static void dial(uint64_t now)
{
    link_.attempts++;
    int made = telem__dial();
    struct stat found;
    if (made < 0 || fstat(made, &found) != 0 || !has_own_room(8)) {
        if (made >= 0) close(made);
        snprintf(link_.why, sizeof link_.why, "%s", telem_error());
        link_.retry_at_ms = now + link_.retry_ms;
        link_.retry_ms = link_.retry_ms * 2 > RETRY_MOST_MS ? RETRY_MOST_MS : link_.retry_ms * 2;
        return;
    }
    link_.fd = made;
    link_.device = found.st_dev;
    link_.inode = found.st_ino;
    link_.is_welcome = false;
    link_.began_ms = now;
    link_.announced = 0;
    link_.series_max = UINT32_MAX;
    link_.acked_stored = link_.acked_refused = 0;
    memcpy(out.own, telem__opening, 8);
    send_own(8);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static size_t text_room(const char *text)
{
    return 2 + strlen(text);
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t bytes = strlen(text);
    telem__put_u16(at, (uint16_t)bytes);
    memcpy(at + 2, text, bytes);
    return at + 2 + bytes;
}

/* Whether the program has not given this tag itself. */
static bool adds_identity(const struct telem__series *series, unsigned which)
{
    for (unsigned i = 0; i < series->tag_count; i++)
        if (strcmp(series->tags[2 * i], me.identity.keys[which]) == 0) return false;
    return true;
}

static size_t series_room(const struct telem__series *series)
{
    size_t bytes = 4 + text_room(series->metric) + text_room(series->unit) + text_room(series->help);
    for (unsigned i = 0; i < 2u * series->tag_count; i++) bytes += text_room(series->tags[i]);
    for (unsigned i = 0; i < me.identity.count; i++)
        bytes += text_room(me.identity.keys[i]) + text_room(me.identity.values[i]);
    return bytes;
}

static unsigned char *put_series(unsigned char *at, const struct telem__series *series)
{
    unsigned tags = series->tag_count;
    for (unsigned i = 0; i < me.identity.count; i++) tags += adds_identity(series, i);
    at[0] = series->kind;
    at[1] = series->level;
    telem__put_u16(at + 2, (uint16_t)tags);
    at = put_text(at + 4, series->metric);
    at = put_text(at, series->unit);
    at = put_text(at, series->help);
    for (unsigned i = 0; i < 2u * series->tag_count; i++) at = put_text(at, series->tags[i]);
    for (unsigned i = 0; i < me.identity.count; i++)
        if (adds_identity(series, i)) {
            at = put_text(at, me.identity.keys[i]);
            at = put_text(at, me.identity.values[i]);
        }
    return at;
}

/* Names series from the first that the service does not know: as many as a frame takes. */
static bool announce(void)
{
    uint32_t count = atomic_load_explicit(&telem__series_count, memory_order_acquire);
    if (count > link_.series_max) count = link_.series_max;
    size_t at = 16;
    uint32_t until = link_.announced;
    while (until < count && at < SERIES_FRAME_BYTES) {
        const struct telem__series *series = telem__series_at(until);
        if (!has_own_room(at + series_room(series))) return false;
        at = (size_t)(put_series(out.own + at, series) - out.own);
        until++;
    }
    telem__put_head(out.own, (uint32_t)(at - 8), 1);
    telem__put_u32(out.own + 8, link_.announced);
    telem__put_u32(out.own + 12, until - link_.announced);
    link_.announced = until;
    send_own(at);
    return true;
}

static bool is_tally_new(telem_counts *now)
{
    memset(now, 0, sizeof *now);
    sum_up(now);
    return !tally.was_sent || now->taken != tally.taken || now->dropped_full != tally.full ||
           now->dropped_unserved != tally.unserved || now->dropped_other != tally.other;
}

static void send_tally(const telem_counts *now)
{
    if (!has_own_room(40)) return;
    tally.was_sent = true;
    tally.taken = now->taken;
    tally.full = now->dropped_full;
    tally.unserved = now->dropped_unserved;
    tally.other = now->dropped_other;
    telem__put_head(out.own, 32, 3);
    telem__put_u64(out.own + 8, tally.taken);
    telem__put_u64(out.own + 16, tally.full);
    telem__put_u64(out.own + 24, tally.unserved);
    telem__put_u64(out.own + 32, tally.other);
    send_own(40);
}

/* Chooses what is sent next; false if there is nothing. */
static bool choose(bool is_round)
{
    telem_counts now;
    if (!link_.is_welcome) return false;
    struct telem__item *item = queue.next;
    /* A batch whose series the service has no room for. */
    while (item && item->series_needed > link_.series_max) {
        struct telem__item *before = NULL;
        for (struct telem__item *at = queue.first; at != item; at = at->next) before = at;
        counts.other += item->samples;
        unlink_item(before, item);
        item = queue.next;
    }
    if (item && item->series_needed > link_.announced) return announce();
    if ((item ? item->type == TELEM__FLUSH : is_round) && is_tally_new(&now)) {
        send_tally(&now);
        return out.bytes > 0;
    }
    if (!item) return false;
    out.item = item;
    out.at = item->frame;
    out.bytes = item->bytes;
    return true;
}

static void sent_whole(void)
{
    struct telem__item *item = out.item;
    out.item = NULL;
    if (!item) return;
    item->was_sent = true;
    if (item->type == TELEM__BATCH && !item->was_handed) counts.sent += item->samples;
    item->was_handed = true;
    queue.next = item->next;
}

/* Sends until there is nothing, or the socket takes no more. */
static void pump(bool is_round)
{
    while (link_.fd >= 0) {
        if (out.bytes == 0 && !choose(is_round)) return;
        if (out.item) out.item->was_handed |= out.item->type != TELEM__BATCH;
        ssize_t went = send(link_.fd, out.at, out.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (went < 0 && errno == EINTR) continue;
        if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) return;
        if (went < 0) {
            lose(strerror(errno));
            return;
        }
        out.at += went;
        out.bytes -= (size_t)went;
        if (out.bytes == 0) sent_whole();
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static void set_level(int level)
{
    if (atomic_exchange(&known_level, level) == level) return;
    for (struct telem__ring *ring = first_ring(); ring; ring = ring->next)
        ring->unfiltered = atomic_load_explicit(&ring->head, memory_order_acquire);
    atomic_store_explicit(&telem__gate, level, memory_order_relaxed);
}

static bool take_welcome(const unsigned char *body, size_t bytes)
{
    if (bytes < 8 || telem__get_u16(body) != 1) return false;
    link_.is_welcome = true;
    link_.was_ever = true;
    link_.series_max = telem__get_u32(body + 4);
    link_.retry_ms = RETRY_LEAST_MS;
    counts.connections++;
    atomic_store(&is_connected, 1);
    set_level(body[2]);
    telem__debug("connected, level %d", body[2]);
    return true;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static bool take_ack(const unsigned char *body, size_t bytes)
{
    if (bytes < 24) return false;
    uint64_t sequence = telem__get_u64(body), samples = 0;
    struct telem__item *before = NULL;
    for (struct telem__item *at = queue.first, *next; at; at = next) {
        next = at->next;
        if (at->type == TELEM__BATCH && at->was_sent && at->number <= sequence) {
            samples += at->samples;
            unlink_item(before, at);
        } else {
            before = at;
        }
    }
    uint64_t stored = telem__get_u64(body + 8), refused = telem__get_u64(body + 16);
    uint64_t new_stored = at_most(stored - link_.acked_stored, samples);
    uint64_t new_refused = at_most(refused - link_.acked_refused, samples - new_stored);
    link_.acked_stored = stored;
    link_.acked_refused = refused;
    counts.stored += new_stored;
    counts.refused += new_refused;
    counts.above += samples - new_stored - new_refused;
    link_.goodbyes = 0;
    return true;
}

/* A flush that could not be made durable is refused, and has no number of samples. */
static void refuse_flush(uint64_t number)
{
    struct telem__item *before = NULL;
    for (struct telem__item *at = queue.first; at; before = at, at = at->next)
        if (at->type == TELEM__FLUSH && at->number == number && at->was_sent) {
            if (number & OWN_FLUSH)
                flush.own = 0;
            else if (number > flush.failed)
                flush.failed = number;
            unlink_item(before, at);
            pthread_cond_broadcast(&done);
            return;
        }
}

static bool take_refused(const unsigned char *body, size_t bytes)
{
    if (bytes < 24) return false;
    uint16_t length = telem__get_u16(body + 22);
    if (24u + length > bytes) return false;
    telem__refusal((const char *)body + 24, length);
    if (telem__get_u64(body + 12) == 0 && telem__get_u32(body + 8) == UINT32_MAX) refuse_flush(telem__get_u64(body));
    return true;
}

/* An answered flush counts once all batches before it are acknowledged. */
static void settle_flushes(void)
{
    bool is_new = false;
    while (queue.first && queue.first->type == TELEM__FLUSH && queue.first->is_answered) {
        uint64_t number = queue.first->number;
        if (number & OWN_FLUSH) {
            flush.own = 0;
        } else if (number > flush.done) {
            flush.done = number;
            is_new = true;
        }
        unlink_item(NULL, queue.first);
    }
    if (is_new) pthread_cond_broadcast(&done);
}

static bool take_flushed(const unsigned char *body, size_t bytes)
{
    if (bytes < 8) return false;
    uint64_t number = telem__get_u64(body);
    struct telem__item *before = NULL;
    for (struct telem__item *at = queue.first, *next; at; at = next) {
        next = at->next;
        if (at->type == TELEM__FLUSH && at->number == number && at->was_sent) {
            at->is_answered = true;
            break;
        }
        if (at->type == TELEM__TEXT && at->was_sent)
            unlink_item(before, at);
        else
            before = at;
    }
    return true;
}

/* The service says why it hangs up. */
static void take_goodbye(const unsigned char *body, size_t bytes)
{
    uint16_t code = bytes >= 4 ? telem__get_u16(body) : 0;
    size_t length = bytes >= 4 ? telem__get_u16(body + 2) : 0;
    if (length + 4 > bytes) length = bytes > 4 ? bytes - 4 : 0;
    char why[300];
    snprintf(why, sizeof why, "%.*s", (int)at_most(length, 250), length ? (const char *)body + 4 : "");
    telem__refusal(why, strlen(why));
    if (code == 2 || code == 6) {
        link_.goodbyes++;
        /* Whatever it did not like would be sent again for ever. */
        struct telem__item *first = queue.first;
        if (link_.goodbyes >= 2 && first && first->was_sent) {
            if (first->type == TELEM__BATCH) counts.other += first->samples;
            lose(why);
            unlink_item(NULL, first);
            return;
        }
    }
    lose(why);
}

static bool take_frame(uint8_t type, const unsigned char *body, size_t bytes)
{
    switch (type) {
    case 128: return take_welcome(body, bytes);
    case 129: return take_ack(body, bytes);
    case 130: return take_refused(body, bytes);
    case 131: return take_flushed(body, bytes);
    case 135: take_goodbye(body, bytes); return true;
    default: return true; /* answers that nobody asked for here */
    }
}

static void take_frames(void)
{
    size_t at = 0;
    while (link_.fd >= 0 && in_bytes - at >= 8) {
        size_t body = telem__get_u32(in + at);
        if (body > IN_BYTES - 8) {
            lose("it does not speak the client protocol");
            return;
        }
        if (in_bytes - at < 8 + body) break;
        if (!take_frame(in[at + 4], in + at + 8, body)) {
            lose("a frame is too short, or of another version");
            return;
        }
        at += 8 + body;
    }
    if (link_.fd < 0) return;
    memmove(in, in + at, in_bytes - at);
    in_bytes -= at;
    settle_flushes();
}

static void receive(void)
{
    if (link_.fd < 0) return;
    if (!is_ours()) {
        lose("the program closed its socket");
        return;
    }
    if (!in) in = malloc(IN_BYTES);
    if (!in) return;
    while (link_.fd >= 0) {
        ssize_t got = recv(link_.fd, in + in_bytes, IN_BYTES - in_bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            lose(got == 0 ? "it has ended, or was started again" : strerror(errno));
            return;
        }
        in_bytes += (size_t)got;
        take_frames();
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static bool is_flush_wanted(void)
{
    return flush.asked > flush.done && flush.asked > flush.failed;
}

/* Begins, goes on with, or gives up what telem_flush asked for. */
static void work_on_flush(void)
{
    if (flush.asked > flush.begun) {
        struct telem__ring *ring = first_ring();
        for (; ring; ring = ring->next) ring->target = atomic_load_explicit(&ring->head, memory_order_acquire);
        flush.begun = flush.asked;
    }
    if (flush.begun > flush.queued && flush.begun > flush.failed) {
        round_up(true);
        bool is_whole = !link_.is_welcome || has_queue_room();
        struct telem__ring *ring = first_ring();
        for (; ring; ring = ring->next)
            if ((int64_t)(ring->target - atomic_load_explicit(&ring->tail, memory_order_relaxed)) > 0) is_whole = false;
        if (is_whole && append_flush(flush.begun)) flush.queued = flush.begun;
    }
    bool is_hopeless = link_.fd < 0 && link_.attempts != flush.attempts && !link_.was_ever;
    if (is_flush_wanted() && is_hopeless) {
        flush.failed = flush.asked;
        pthread_cond_broadcast(&done);
    }
}

/* Texts have no acknowledgement of their own: a flush behind them is one. */
static bool confirm_texts(void)
{
    if (queue.texts == 0 || flush.own || !link_.is_welcome || queue.next) return false;
    flush.own_count++;
    if (append_flush(OWN_FLUSH | flush.own_count)) flush.own = flush.own_count;
    return flush.own != 0;
}

static void look_into_rings(uint64_t now)
{
    bool has_some = false;
    unsigned most = fullest(&has_some);
    uint32_t half = telem__settings.interval_ms / 2 > LOOK_LEAST_MS ? telem__settings.interval_ms / 2 : LOOK_LEAST_MS;
    if (half > LOOK_IDLE_MS) half = LOOK_IDLE_MS;
    if (has_some) me.active_ms = now;
    if (most >= 32) me.look_ms /= 2;
    if (most < 8) me.look_ms += me.look_ms / 4 + 1;
    if (me.look_ms < LOOK_LEAST_MS) me.look_ms = LOOK_LEAST_MS;
    if (me.look_ms > half) me.look_ms = half;
    bool is_due = now - me.round_ms >= telem__settings.interval_ms;
    if (is_due || most >= 64) round_up(false);
}

/* Whether nothing is left that a stop shall wait for. */
static bool is_finished(uint64_t now)
{
    if (now >= me.stop_by_ms) return true;
    if (flush.done >= flush.asked || flush.failed >= flush.asked) return true;
    return link_.fd < 0 && link_.attempts != flush.attempts && now - link_.lost_ms > LOST_LATELY_MS;
}

static void wait_for(uint64_t until_ms)
{
    uint64_t now = now_ms();
    uint64_t ms = until_ms > now ? until_ms - now : 0;
    bool waits_for_socket = link_.fd >= 0 && (out.bytes || !link_.is_welcome || is_flush_wanted() || flush.own);
    if (ms == 0) ms = 1;
    if (waits_for_socket) {
        struct pollfd socket = {link_.fd, (short)(POLLIN | (out.bytes ? POLLOUT : 0)), 0};
        if (ms > WAIT_FOR_SOCKET_MS) ms = WAIT_FOR_SOCKET_MS;
        pthread_mutex_unlock(&telem__work);
        poll(&socket, 1, (int)ms);
        pthread_mutex_lock(&telem__work);
        return;
    }
    struct timespec until;
    uint64_t at_ns = telem__monotonic_ns() + ms * 1000000;
    until.tv_sec = (time_t)(at_ns / 1000000000);
    until.tv_nsec = (long)(at_ns % 1000000000);
    pthread_cond_timedwait(&wake, &telem__work, &until);
}

static uint64_t next_look(uint64_t now)
{
    bool is_idle = now - me.active_ms > IDLE_AFTER_MS && !queue.first;
    uint64_t next = now + (is_idle ? (uint32_t)LOOK_IDLE_MS : me.look_ms);
    if (link_.fd < 0 && link_.retry_at_ms < next) next = link_.retry_at_ms;
    if (me.stops && me.stop_by_ms < next) next = me.stop_by_ms;
    return next;
}

/* What is left when the library stops belongs to nobody. */
static void give_up_rest(void)
{
    struct telem__ring *ring = first_ring();
    for (; ring; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        counts.unserved += head - atomic_load_explicit(&ring->tail, memory_order_relaxed);
        atomic_store_explicit(&ring->tail, head, memory_order_release);
    }
    while (queue.first) {
        if (queue.first->type == TELEM__BATCH) counts.unserved += queue.first->samples;
        unlink_item(NULL, queue.first);
    }
}

static void *send_all(void *nothing)
{
    (void)nothing;
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "telem");
#endif
    pthread_mutex_lock(&telem__work);
    for (;;) {
        uint64_t now = now_ms();
        bool wants_now = is_flush_wanted() && link_.attempts == flush.attempts;
        if (link_.fd < 0 && (now >= link_.retry_at_ms || wants_now)) dial(now);
        receive();
        if (link_.fd >= 0 && !link_.is_welcome && now - link_.began_ms > WELCOME_MS) lose("it does not answer");
        uint64_t round_before = me.round_ms;
        look_into_rings(now);
        work_on_flush();
        pump(me.round_ms != round_before);
        if (confirm_texts()) pump(false);
        if (me.stops && is_finished(now)) break;
        wait_for(next_look(now));
    }
    lose("this process stops");
    give_up_rest();
    me.is_over = true;
    pthread_cond_broadcast(&done);
    pthread_mutex_unlock(&telem__work);
    return NULL;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void begin(void)
{
    uint64_t now = now_ms();
    init_condition(&wake);
    init_condition(&done);
    memset(&me, 0, sizeof me);
    me.look_ms = 5;
    me.active_ms = me.round_ms = now;
    link_.fd = -1;
    link_.retry_ms = RETRY_LEAST_MS;
    link_.retry_at_ms = now;
    telem__identify(&me.identity, is_forked);
}

/* With `telem__api`. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (telem__monotonic_ns() < next_start_ns) return false;
    pthread_mutex_lock(&telem__work);
    begin();
    pthread_mutex_unlock(&telem__work);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 262144);
    int error = pthread_create(&thread, &attributes, send_all, NULL);
    /* A program with much memory of its own for each thread needs a larger stack. */
    if (error) error = pthread_create(&thread, NULL, send_all, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        next_start_ns = telem__monotonic_ns() + 1000000000;
        telem__fail("the thread of the library cannot be started: %s", strerror(error));
        return false;
    }
    has_thread = true;
    int level = atomic_load(&known_level);
    atomic_store(&telem__gate, level < 0 ? NO_LEVEL : level);
    atomic_store(&telem__state, TELEM__RUNNING);
    return true;
}

static void before_fork(void)
{
    pthread_mutex_lock(&telem__api);
    pthread_mutex_lock(&telem__work);
    pthread_mutex_lock(&telem__words);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&telem__words);
    pthread_mutex_unlock(&telem__work);
    pthread_mutex_unlock(&telem__api);
}

/* The child has nothing of what its parent took, and no thread until it takes something itself. */
static void in_child(void)
{
    pthread_mutex_init(&telem__words, NULL);
    pthread_mutex_init(&telem__work, NULL);
    pthread_mutex_init(&telem__api, NULL);
    if (is_ours()) close(link_.fd);
    memset(&link_, 0, sizeof link_);
    link_.fd = -1;
    while (queue.first) unlink_item(NULL, queue.first);
    memset(&flush, 0, sizeof flush);
    memset(&counts, 0, sizeof counts);
    memset(&tally, 0, sizeof tally);
    out.bytes = 0;
    out.item = NULL;
    in_bytes = 0;
    free(me.taken);
    memset(&me, 0, sizeof me);
    is_forked = true;
    has_thread = false;
    next_start_ns = 0;
    atomic_store(&is_connected, 0);
    atomic_store(&known_level, -1);
    telem__rings_after_fork();
    telem__totals_after_fork();
    telem__batch_after_fork();
    int state = atomic_load(&telem__state);
    if (state == TELEM__RUNNING) {
        atomic_store(&telem__gate, -1);
        atomic_store(&telem__state, TELEM__ASLEEP);
    }
}

static int start(const telem_options *options)
{
    static bool watches_fork;
    if (telem__settings_init(options) != 0) return -1;
    telem__clock_init();
    telem__registry_init();
    telem__rings_init(telem__settings.ring_samples);
    if (!watches_fork) watches_fork = pthread_atfork(before_fork, in_parent, in_child) == 0;
    begin();
    if (!telem__settings.is_named) {
        atomic_store(&telem__state, TELEM__UNNAMED);
        return 0;
    }
    atomic_store(&telem__state, TELEM__ASLEEP);
    start_thread();
    return 0;
}

void telem__ensure(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__NEW) start(NULL);
    if (state == TELEM__ASLEEP) start_thread();
}

bool telem__try_api(void)
{
    for (int attempt = 0; attempt < 200; attempt++) {
        struct timespec short_while = {0, 100000};
        if (pthread_mutex_trylock(&telem__api) == 0) return true;
        nanosleep(&short_while, NULL);
    }
    return false;
}

bool telem__wake(void)
{
    if (!telem__try_api()) return false;
    int state = atomic_load(&telem__state);
    bool runs = state == TELEM__RUNNING || (state == TELEM__ASLEEP && start_thread());
    pthread_mutex_unlock(&telem__api);
    return runs;
}

int telem_start(const telem_options *options)
{
    pthread_mutex_lock(&telem__api);
    int result = -1;
    if (atomic_load(&telem__state) == TELEM__NEW)
        result = start(options);
    else
        telem__fail("the library runs already: call telem_start before the first metric is opened");
    pthread_mutex_unlock(&telem__api);
    return result;
}

int telem_connected(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__UNNAMED || state == TELEM__STOPPED || state == TELEM__NEW) return -1;
    if (atomic_load(&known_level) == 0) return -1;
    return atomic_load(&is_connected);
}

int telem_level(void)
{
    return atomic_load(&known_level);
}

static bool wait_until_done(uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(&done, &telem__work, &until) != ETIMEDOUT;
}

int telem_flush(uint32_t timeout_ms)
{
    uint64_t deadline = telem__monotonic_ns() + (uint64_t)timeout_ms * 1000000;
    int state = atomic_load(&telem__state);
    if (state == TELEM__ASLEEP && telem__wake()) state = TELEM__RUNNING;
    if (state != TELEM__RUNNING) {
        telem__fail(state == TELEM__STOPPED ? "the library was stopped"
                    : state == TELEM__NEW   ? "no metric is open"
                                            : "no service is named: TELEM_CONNECTION and TELEM_SOCKET are not set");
        return -1;
    }
    pthread_mutex_lock(&telem__work);
    uint64_t number = ++flush.asked;
    flush.attempts = link_.attempts;
    pthread_cond_signal(&wake);
    while (flush.done < number && flush.failed < number && !me.is_over)
        if (!wait_until_done(deadline)) break;
    int result = flush.done >= number ? 0 : -1;
    if (result != 0 && link_.fd < 0)
        telem__fail("%s", link_.why);
    else if (result != 0 && flush.failed >= number)
        telem__fail_as_refused();
    else if (result != 0)
        telem__fail("the service has not stored everything within %u ms", timeout_ms);
    pthread_mutex_unlock(&telem__work);
    return result;
}

/* With `telem__api`. */
static void stop(uint32_t timeout_ms)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__RUNNING) {
        pthread_mutex_lock(&telem__work);
        flush.asked++;
        flush.attempts = link_.attempts;
        me.stops = true;
        me.stop_by_ms = now_ms() + timeout_ms;
        pthread_cond_signal(&wake);
        pthread_mutex_unlock(&telem__work);
        /* It ends by itself soon after its deadline. */
        pthread_join(thread, NULL);
        has_thread = false;
    }
    if (state != TELEM__NEW) {
        atomic_store(&telem__gate, -1);
        atomic_store(&telem__state, TELEM__STOPPED);
    }
}

void telem_stop(uint32_t timeout_ms)
{
    pthread_mutex_lock(&telem__api);
    stop(timeout_ms);
    pthread_mutex_unlock(&telem__api);
}

/* At the end of the process, or when the library is unloaded. */
__attribute__((destructor)) static void end_of_process(void)
{
    if (atomic_load(&telem__state) == TELEM__NEW) return;
    /* A signal handler that ends the process may have interrupted who has the lock. */
    if (!telem__try_api()) return;
    stop(telem__settings.exit_ms);
    telem__rings_end();
    pthread_mutex_unlock(&telem__api);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static int queue_text(struct telem__item *item, const char *what)
{
    if (!item) {
        telem__fail("no memory for %s", what);
        return -1;
    }
    pthread_mutex_lock(&telem__work);
    bool has_room = queue.texts < TELEM__TEXTS_MAX && has_queue_room();
    if (has_room) {
        append(item);
        me.active_ms = now_ms();
        pthread_cond_signal(&wake);
    }
    pthread_mutex_unlock(&telem__work);
    if (has_room) return 0;
    free(item);
    telem__fail("no room for %s: %d wait for the service", what, TELEM__TEXTS_MAX);
    return -1;
}

static bool can_queue(const char *first, const char *second, size_t first_max, const char *what)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    pthread_mutex_unlock(&telem__api);
    if (atomic_load(&telem__state) != TELEM__RUNNING) {
        telem__fail("no service is named, or the library was stopped: %s is lost", what);
        return false;
    }
    if (!first || !*first || strlen(first) > first_max || strlen(second) > TELEM__TEXT_BYTES_MAX) {
        telem__fail("%s: its name has %zu bytes (1 to %zu are taken), its text %zu (at most %d)", what,
                    first ? strlen(first) : 0, first_max, strlen(second), TELEM__TEXT_BYTES_MAX);
        return false;
    }
    return true;
}

/* A text and a long text, from `at` on. */
static void put_texts(unsigned char *at, const char *first, const char *second)
{
    size_t first_bytes = strlen(first), second_bytes = strlen(second);
    /* With room for the zero, which what follows overwrites. */
    char *copy = (char *)at + 2;
    telem__put_u16(at, (uint16_t)first_bytes);
    telem__clean(copy, first, false);
    at += 2 + first_bytes;
    telem__put_u32(at, (uint32_t)second_bytes);
    telem__clean((char *)at + 4, second, false);
}

/* Now, in microseconds. The service keeps notes by the millisecond, and the later of two. */
static uint64_t time_of_note(void)
{
    static uint64_t last_ms;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    pthread_mutex_lock(&telem__work);
    if (us / 1000 <= last_ms && last_ms - us / 1000 < 1000) us = (last_ms + 1) * 1000;
    last_ms = us / 1000;
    pthread_mutex_unlock(&telem__work);
    return us;
}

int telem_note(const char *title, const char *more)
{
    if (!more) more = "";
    if (!can_queue(title, more, 1024, "a note")) return -1;
    size_t body = 8 + 2 + strlen(title) + 4 + strlen(more);
    struct telem__item *item = new_item(TELEM__TEXT, 4, body + 1);
    if (item) {
        item->bytes = 8 + body;
        telem__put_head(item->frame, (uint32_t)body, 4);
        telem__put_u64(item->frame + 8, time_of_note());
        put_texts(item->frame + 16, title, more);
    }
    return queue_text(item, "a note");
}

int telem_setting(const char *name, const char *value)
{
    if (!value) value = "";
    if (!can_queue(name, value, 256, "a setting")) return -1;
    size_t body = 2 + strlen(name) + 4 + strlen(value);
    struct telem__item *item = new_item(TELEM__TEXT, 5, body + 1);
    if (item) {
        item->bytes = 8 + body;
        telem__put_head(item->frame, (uint32_t)body, 5);
        put_texts(item->frame + 8, name, value);
    }
    return queue_text(item, "a setting");
}
