/*
 * take.c: what a program calls for each sample. Nothing here allocates, locks or calls the system, but for the first
 * sample of a thread, which maps its ring.
 *
 * A ring has one writer, its thread, and one reader, the sender. A signal handler on the same thread would be a second
 * writer: `busy` keeps it out, and what it wanted to log is counted as lost.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

_Atomic(struct telem__ring *) telem__rings;
_Atomic int telem__gate = -1;
struct telem__skipped telem__skips[TELEM__STRIPES_MAX];

/* With glibc the fastest model also works in libraries that are loaded late, as these are few bytes. */
#if defined(__GLIBC__)
#define OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define OF_THREAD static _Thread_local
#endif
OF_THREAD struct telem__ring *own_ring;
OF_THREAD unsigned own_stripe;

static _Atomic unsigned stripes_given;
static uint64_t ring_samples;
static pthread_key_t end_of_thread;
static bool has_key;

/* ---- threads ----------------------------------------------------------------------------------------------------- */

unsigned telem__stripe(void)
{
    if (TELEM__RARELY(own_stripe == 0)) own_stripe = atomic_fetch_add(&stripes_given, 1) % 0x40000000 + 1;
    return own_stripe;
}

static void thread_ends(void *ring)
{
    own_ring = NULL;
    atomic_store_explicit(&((struct telem__ring *)ring)->state, TELEM__RING_ENDED, memory_order_release);
}

void telem__rings_init(uint32_t samples)
{
    ring_samples = samples;
    has_key = pthread_key_create(&end_of_thread, thread_ends) == 0;
}

/* When the library is unloaded: threads that end later must not call into it. */
void telem__rings_end(void)
{
    if (has_key) pthread_key_delete(end_of_thread);
    has_key = false;
}

static struct telem__ring *map_ring(void)
{
    size_t head = (sizeof(struct telem__ring) + 4095) & ~(size_t)4095;
    size_t bytes = head + ring_samples * sizeof(struct telem__slot);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    struct telem__ring *ring = at;
    ring->slots = (struct telem__slot *)((char *)at + head);
    ring->mask = ring_samples - 1;
    atomic_store_explicit(&ring->state, TELEM__RING_OWNED, memory_order_relaxed);
    struct telem__ring *first = atomic_load(&telem__rings);
    do ring->next = first;
    while (!atomic_compare_exchange_weak(&telem__rings, &first, ring));
    return ring;
}

static struct telem__ring *claim_ring(void)
{
    struct telem__ring *ring = atomic_load_explicit(&telem__rings, memory_order_acquire);
    for (; ring; ring = ring->next) {
        int is_free = TELEM__RING_FREE;
        if (atomic_load_explicit(&ring->state, memory_order_relaxed) == is_free &&
            atomic_compare_exchange_strong(&ring->state, &is_free, TELEM__RING_OWNED))
            break;
    }
    if (!ring) ring = map_ring();
    if (!ring) return NULL;
    ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
    /* The thread before may have been cancelled in the middle of a sample. */
    atomic_store_explicit(&ring->busy, 0, memory_order_relaxed);
    own_ring = ring;
    if (has_key) pthread_setspecific(end_of_thread, ring);
    return ring;
}

/* A child has the rings of all its parent's threads, and of those only the thread that forked. */
void telem__rings_after_fork(void)
{
    for (struct telem__ring *ring = atomic_load(&telem__rings); ring; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
        atomic_store_explicit(&ring->tail, head, memory_order_relaxed);
        atomic_store_explicit(&ring->base, head, memory_order_relaxed);
        atomic_store_explicit(&ring->full, 0, memory_order_relaxed);
        atomic_store_explicit(&ring->nested, 0, memory_order_relaxed);
        if (ring != own_ring) {
            atomic_store_explicit(&ring->busy, 0, memory_order_relaxed);
            atomic_store_explicit(&ring->state, TELEM__RING_FREE, memory_order_relaxed);
        }
    }
    memset(telem__skips, 0, sizeof telem__skips);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static void skip(_Atomic uint64_t *counter, uint64_t samples)
{
    atomic_fetch_add_explicit(counter, samples, memory_order_relaxed);
}

/* The ring of a thread that has none yet, or whose sample may not be wanted; NULL, and the samples counted. */
static struct telem__ring *look_for_ring(int level, uint64_t samples)
{
    struct telem__skipped *skips = &telem__skips[telem__stripe() & (TELEM__STRIPES_MAX - 1)];
    int state = atomic_load_explicit(&telem__state, memory_order_acquire);
    if (state == TELEM__STOPPED || state == TELEM__NEW) return NULL;
    if (state == TELEM__UNNAMED) {
        skip(&skips->unserved, samples);
        return NULL;
    }
    if (state == TELEM__ASLEEP && !telem__wake()) {
        skip(&skips->other, samples);
        return NULL;
    }
    if (level > atomic_load_explicit(&telem__gate, memory_order_relaxed)) {
        if (atomic_load_explicit(&telem__state, memory_order_acquire) != TELEM__STOPPED) skip(&skips->above, samples);
        return NULL;
    }
    struct telem__ring *ring = own_ring ? own_ring : claim_ring();
    if (!ring) skip(&skips->other, samples);
    return ring;
}

/* The same, and the program's errno stays. */
static TELEM__COLD struct telem__ring *find_ring(int level, uint64_t samples)
{
    int number = errno;
    struct telem__ring *ring = look_for_ring(level, samples);
    errno = number;
    return ring;
}

static inline void fence(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* The ring with its door shut and room for `samples`; NULL, and they are counted. */
static inline struct telem__ring *enter(int level, uint64_t samples, uint64_t *head)
{
    struct telem__ring *ring = own_ring;
    if (TELEM__RARELY(!ring || level > atomic_load_explicit(&telem__gate, memory_order_relaxed))) {
        ring = find_ring(level, samples);
        if (!ring) return NULL;
    }
    if (TELEM__RARELY(atomic_load_explicit(&ring->busy, memory_order_relaxed))) {
        skip(&ring->nested, samples);
        return NULL;
    }
    atomic_store_explicit(&ring->busy, 1, memory_order_relaxed);
    fence();
    *head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (TELEM__RARELY(*head + samples - ring->tail_seen > ring->mask + 1)) {
        ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (*head + samples - ring->tail_seen > ring->mask + 1) {
            skip(&ring->full, samples);
            fence();
            atomic_store_explicit(&ring->busy, 0, memory_order_relaxed);
            return NULL;
        }
    }
    return ring;
}

static inline void leave(struct telem__ring *ring, uint64_t head)
{
    atomic_store_explicit(&ring->head, head, memory_order_release);
    fence();
    atomic_store_explicit(&ring->busy, 0, memory_order_relaxed);
}

static inline void write_slot(struct telem__ring *ring, uint64_t at, uint64_t when, uint64_t value, uint32_t series,
                              uint32_t flags)
{
    struct telem__slot *slot = &ring->slots[at & ring->mask];
    slot->when = when;
    slot->value = value;
    slot->series = series;
    slot->flags = flags;
}

static inline void take(const telem_gauge *gauge, uint64_t value, uint32_t flags)
{
    uint64_t head;
    if (TELEM__RARELY(!gauge)) return;
    struct telem__ring *ring = enter(gauge->level, 1, &head);
    if (TELEM__RARELY(!ring)) return;
    write_slot(ring, head, telem__ticks(), value, gauge->number, flags);
    leave(ring, head + 1);
}

/* A sample that no ring can have. */
static TELEM__COLD void lose(uint64_t samples)
{
    int state = atomic_load_explicit(&telem__state, memory_order_acquire);
    if (state != TELEM__STOPPED)
        skip(&telem__skips[telem__stripe() & (TELEM__STRIPES_MAX - 1)].other, samples);
}

static inline void take_at(const telem_gauge *gauge, uint64_t value, uint32_t flags, int64_t time)
{
    uint64_t head;
    if (TELEM__RARELY(!gauge)) return;
    if (TELEM__RARELY(time <= 0)) {
        lose(1);
        return;
    }
    struct telem__ring *ring = enter(gauge->level, 1, &head);
    if (TELEM__RARELY(!ring)) return;
    write_slot(ring, head, (uint64_t)time, value, gauge->number, flags | TELEM__TOLD);
    leave(ring, head + 1);
}

static inline void take_step(telem_gauge *gauge, uint64_t value, uint32_t flags, int64_t step, int64_t time)
{
    uint64_t head;
    if (TELEM__RARELY(!gauge)) return;
    struct telem__series *steps = atomic_load_explicit(&gauge->step, memory_order_acquire);
    if (TELEM__RARELY(!steps)) steps = telem__step_of(gauge);
    if (TELEM__RARELY(!steps || time < 0)) {
        lose(2);
        return;
    }
    struct telem__ring *ring = enter(gauge->level, 2, &head);
    if (TELEM__RARELY(!ring)) return;
    uint64_t when = time ? (uint64_t)time : telem__ticks();
    uint32_t told = time ? TELEM__TOLD : 0;
    write_slot(ring, head, when, value, gauge->number, flags | told | TELEM__HAS_STEP);
    write_slot(ring, head + 1, when, (uint64_t)step, steps->number, TELEM__INT | told | TELEM__IS_STEP);
    leave(ring, head + 2);
}

void telem__set_all(const struct telem__part *parts, uint32_t count, int64_t time)
{
    uint64_t head;
    int level = 0;
    if (count == 0) return;
    for (uint32_t i = 0; i < count; i++)
        if (parts[i].gauge->level > level) level = parts[i].gauge->level;
    if (TELEM__RARELY(time < 0 || count > TELEM__GROUP_MAX)) {
        lose(count);
        return;
    }
    struct telem__ring *ring = enter(level, count, &head);
    if (TELEM__RARELY(!ring)) return;
    uint64_t when = time ? (uint64_t)time : telem__ticks();
    for (uint32_t i = 0; i < count; i++) {
        uint32_t flags = (parts[i].is_integer ? TELEM__INT : 0) | (time ? TELEM__TOLD : 0);
        if (i) flags |= TELEM__IS_MORE;
        if (i + 1 < count) flags |= TELEM__HAS_MORE;
        write_slot(ring, head + i, when, parts[i].value, parts[i].gauge->number, flags);
    }
    leave(ring, head + count);
}

static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void telem_set(telem_gauge *gauge, double value)
{
    take(gauge, bits_of(value), 0);
}

void telem_set_int(telem_gauge *gauge, int64_t value)
{
    take(gauge, (uint64_t)value, TELEM__INT);
}

void telem_set_at(telem_gauge *gauge, double value, int64_t time)
{
    take_at(gauge, bits_of(value), 0, time);
}

void telem_set_int_at(telem_gauge *gauge, int64_t value, int64_t time)
{
    take_at(gauge, (uint64_t)value, TELEM__INT, time);
}

void telem_set_step(telem_gauge *gauge, double value, int64_t step, int64_t time)
{
    take_step(gauge, bits_of(value), 0, step, time);
}

void telem_set_int_step(telem_gauge *gauge, int64_t value, int64_t step, int64_t time)
{
    take_step(gauge, (uint64_t)value, TELEM__INT, step, time);
}

telem_span telem_begin(telem_timer *timer)
{
    telem_span span = {timer, 0};
    if (TELEM__LIKELY(timer != NULL)) span.begin = telem__ticks();
    return span;
}

double telem_end(telem_span *span)
{
    uint64_t head;
    if (TELEM__RARELY(!span || !span->timer)) return 0.0;
    uint64_t now = telem__ticks();
    telem_gauge *gauge = &span->timer->gauge;
    double seconds = now > span->begin ? telem__seconds(now - span->begin) : 0.0;
    span->timer = NULL;
    struct telem__ring *ring = enter(gauge->level, 1, &head);
    if (TELEM__LIKELY(ring != NULL)) {
        write_slot(ring, head, now, bits_of(seconds), gauge->number, 0);
        leave(ring, head + 1);
    }
    return seconds;
}

/* ---- totals ------------------------------------------------------------------------------------------------------ */

/* A forked child has no sender until it has something to send. */
static inline void wake_for_total(void)
{
    if (TELEM__RARELY(atomic_load_explicit(&telem__gate, memory_order_relaxed) < 0) &&
        atomic_load_explicit(&telem__state, memory_order_acquire) == TELEM__ASLEEP)
        telem__wake();
}

void telem_add(telem_counter *counter, uint64_t increment)
{
    if (TELEM__RARELY(!counter)) return;
    wake_for_total();
    struct telem__cell *cell = &counter->cells[telem__stripe() & (telem__stripes - 1)];
    atomic_fetch_add_explicit(&cell->value, increment, memory_order_relaxed);
}

uint64_t telem_total(const telem_counter *counter)
{
    uint64_t total = 0;
    if (!counter) return 0;
    for (unsigned i = 0; i < telem__stripes; i++)
        total += atomic_load_explicit(&counter->cells[i].value, memory_order_relaxed);
    return total;
}

/* The first bucket whose bound is not below `value`. */
static inline uint32_t bucket_of(const telem_histogram *histogram, double value)
{
    uint32_t low = 0, high = histogram->count;
    if (TELEM__RARELY(isnan(value))) return high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (histogram->bounds[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void telem_observe(telem_histogram *histogram, double value)
{
    if (TELEM__RARELY(!histogram)) return;
    wake_for_total();
    _Atomic uint64_t *cells = histogram->cells + (telem__stripe() & (telem__stripes - 1)) * (size_t)histogram->words;
    /* One that is no number is counted and leaves the sum: it would be no number from then on. */
    if (TELEM__LIKELY(!isnan(value))) {
        _Atomic uint64_t *sum = &cells[histogram->count + 1];
        uint64_t bits = atomic_load_explicit(sum, memory_order_relaxed), next;
        do {
            double so_far;
            memcpy(&so_far, &bits, sizeof so_far);
            next = bits_of(so_far + value);
        } while (!atomic_compare_exchange_weak_explicit(sum, &bits, next, memory_order_relaxed, memory_order_relaxed));
    }
    /* Last, so that who sees the count sees the sum. */
    atomic_fetch_add_explicit(&cells[bucket_of(histogram, value)], 1, memory_order_release);
}
