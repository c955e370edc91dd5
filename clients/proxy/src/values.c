/*
 * values.c: counters and gauges, and how they are changed and taken.
 *
 * Each thread adds to sums of its own, which only ever go on, and the taker sends by how much they went on since it
 * looked last: no lock, no instruction that waits for another processor, no amount lost or counted twice. Where a
 * thread has no such sums, as in a signal handler that interrupted it right there, a cell of the value is added to by
 * compare-and-swap.
 */
#include "internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    BLOCK_VALUES = 1024,
    BLOCKS = PROXY__VALUES_MAX / BLOCK_VALUES,
    BUCKETS = 1 << 14,
    /* A page of sums. */
    PART_VALUES = 512,
    PARTS = PROXY__VALUES_MAX / PART_VALUES,
    /* Threads at once that have sums of their own. */
    LANES_MAX = 1024
};

/* Most counters count, by one: where a processor adds to memory in one instruction, which nothing of its thread
   interrupts, such calls are an integer apart. That is half of what a sum takes, whose next addition waits for this. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ONES 1
#else
#define COUNTS_ONES 0
#endif
#define ONE_BITS UINT64_C(0x3ff0000000000000)

/* The sums of one thread. From mmap and not from malloc: a signal handler may be the first that changes a value. */
struct part {
    /* Written by the thread: additions of one, and the sum of the others. */
    uint64_t ones[PART_VALUES];
    double sums[PART_VALUES];
    /* As the taker found them. */
    uint64_t seen_ones[PART_VALUES];
    double seen[PART_VALUES];
};

struct lane {
    /* The thread is between reading and writing a sum. */
    _Atomic int is_busy;
    /* By a thread that lives. */
    _Atomic int is_taken;
    struct lane *next;
    /* The last is that of gauges, which have no sums, and stays empty. */
    _Atomic(struct part *) parts[PARTS + 1];
};

pthread_mutex_t proxy__registry = PTHREAD_MUTEX_INITIALIZER;
_Atomic uint32_t proxy__value_count;
_Atomic int proxy__is_asleep;

static struct MetricProxyValue **blocks[BLOCKS];
static struct MetricProxyValue *buckets[BUCKETS];
static _Atomic(struct lane *) lanes;
static _Atomic uint32_t lane_count;
static __thread struct lane *own_lane __attribute__((tls_model("initial-exec")));
static pthread_key_t lane_key;
static bool has_lane_key;

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

static void *map_zeros(size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* A thread that ends leaves its sums to the next one. */
static void leave_lane(void *lane)
{
    own_lane = NULL;
    atomic_store_explicit(&((struct lane *)lane)->is_taken, 0, memory_order_release);
}

void proxy__values_init(void)
{
    has_lane_key = pthread_key_create(&lane_key, leave_lane) == 0;
}

static struct lane *left_lane(void)
{
    for (struct lane *at = atomic_load_explicit(&lanes, memory_order_acquire); at; at = at->next) {
        int free = 0;
        if (atomic_compare_exchange_strong_explicit(&at->is_taken, &free, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return at;
    }
    return NULL;
}

static struct lane *take_lane(void)
{
    if (!has_lane_key) return NULL;
    struct lane *taken = left_lane();
    if (!taken) {
        if (atomic_fetch_add_explicit(&lane_count, 1, memory_order_relaxed) >= LANES_MAX ||
            !(taken = map_zeros(sizeof *taken))) {
            atomic_fetch_sub_explicit(&lane_count, 1, memory_order_relaxed);
            return NULL;
        }
        atomic_init(&taken->is_taken, 1);
        taken->next = atomic_load_explicit(&lanes, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&lanes, &taken->next, taken, memory_order_release,
                                                      memory_order_relaxed))
            continue;
    }
    /* One that was cancelled in the middle left it so. */
    atomic_store_explicit(&taken->is_busy, 0, memory_order_relaxed);
    if (pthread_setspecific(lane_key, taken) != 0) {
        atomic_store_explicit(&taken->is_taken, 0, memory_order_release);
        return NULL;
    }
    return taken;
}

/* ---- changing ---------------------------------------------------------------------------------------------------- */

/* Infinite or no number: all bits of the exponent are set. */
static inline bool is_finite(double value)
{
    return (proxy__bits(value) & UINT64_C(0x7ff0000000000000)) != UINT64_C(0x7ff0000000000000);
}

static inline bool is_awake(void)
{
    return __builtin_expect(!atomic_load_explicit(&proxy__is_asleep, memory_order_relaxed), 1) || proxy__awake();
}

static void add_to_cell(struct MetricProxyValue *value, double amount)
{
    uint64_t found = atomic_load_explicit(&value->cell, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&value->cell, &found, proxy__bits(proxy__double(found) + amount),
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

/* A sum has one writer, and a double is read and written whole. Atomic accesses would be the same, but compilers lead
   them through other registers, which is half of what an addition costs. */
static inline double read_sum(const double *sum)
{
#ifdef __SANITIZE_THREAD__
    return proxy__double(__atomic_load_n((const uint64_t *)sum, __ATOMIC_RELAXED));
#else
    return *(const volatile double *)sum;
#endif
}

static inline void write_sum(double *sum, double value)
{
#ifdef __SANITIZE_THREAD__
    __atomic_store_n((uint64_t *)sum, proxy__bits(value), __ATOMIC_RELAXED);
#else
    *(volatile double *)sum = value;
#endif
}

static inline void add_one(uint64_t *ones)
{
#if COUNTS_ONES
    __asm__ volatile("addq $1, %0" : "+m"(*ones) : : "cc");
#else
    (void)ones;
#endif
}

/* Compared as bits: one jump, where a comparison of doubles takes two. */
static inline bool is_one(double amount)
{
#if COUNTS_ONES
    uint64_t bits;
    /* A copy: the compiler would keep the amount in a register from which an addition must fetch it back. */
    __asm__("movq %1, %0" : "=r"(bits) : "x"(amount));
    return bits == ONE_BITS;
#else
    (void)amount;
    return false;
#endif
}

static inline struct part *part_of(const struct lane *lane, const struct MetricProxyValue *value)
{
    return atomic_load_explicit((_Atomic(struct part *) *)((const char *)lane + value->part_at), memory_order_relaxed);
}

static inline uint64_t *one_of(struct part *part, const struct MetricProxyValue *value)
{
    return (uint64_t *)((char *)part->ones + value->sum_at);
}

static inline double *sum_of(struct part *part, const struct MetricProxyValue *value)
{
    return (double *)((char *)part->sums + value->sum_at);
}

/* Adds to the sum of this thread; false where that cannot be. */
static inline bool add_to_sum(struct lane *lane, double *sum, double amount)
{
    if (__builtin_expect(atomic_load_explicit(&lane->is_busy, memory_order_relaxed), 0)) return false;
    atomic_store_explicit(&lane->is_busy, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    double more = read_sum(sum) + amount;
    bool adds = is_finite(more);
    if (__builtin_expect(adds, 1)) write_sum(sum, more);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&lane->is_busy, 0, memory_order_relaxed);
    return adds;
}

/* What is no counter or not finite; the first time of a thread, or of one of its parts; in a signal handler. */
static __attribute__((noinline)) int add_slowly(struct MetricProxyValue *value, double amount)
{
    if (!value || value->kind != PROXY__COUNTER || !is_finite(amount)) return 1;
    if (!is_awake()) return 0;
    struct lane *lane = own_lane;
    if (!lane) own_lane = lane = take_lane();
    if (lane) {
        _Atomic(struct part *) *place = &lane->parts[value->number / PART_VALUES];
        struct part *made = NULL, *none = NULL;
        if (!atomic_load(place) && (made = map_zeros(sizeof *made)) &&
            !atomic_compare_exchange_strong(place, &none, made))
            munmap(made, sizeof *made);
        struct part *part = atomic_load(place);
        if (part && is_one(amount)) {
            add_one(one_of(part, value));
            return 0;
        }
        if (part && add_to_sum(lane, sum_of(part, value), amount)) return 0;
    }
    add_to_cell(value, amount);
    return 0;
}

/* In one line of the processor's cache, up to where it adds. */
__attribute__((aligned(PROXY__LINE))) int metric_proxy_counter_inc(struct MetricProxyValue *counter, double value)
{
    struct lane *lane = own_lane;
    struct part *part;
    if (__builtin_expect(!counter || !lane || !(part = part_of(lane, counter)), 0)) return add_slowly(counter, value);
    if (__builtin_expect(is_one(value), 1)) {
        add_one(one_of(part, counter));
        return 0;
    }
    if (__builtin_expect(!add_to_sum(lane, sum_of(part, counter), value), 0)) return add_slowly(counter, value);
    /* A return of its own, and no jump back to the one above. */
    int none = 0;
    __asm__("" : "+r"(none));
    return none;
}

/* In a forked child. */
static __attribute__((noinline)) int set_slowly(struct MetricProxyValue *gauge, double value)
{
    if (proxy__awake()) atomic_store_explicit(&gauge->cell, proxy__bits(value), memory_order_relaxed);
    return 0;
}

__attribute__((aligned(PROXY__LINE))) int metric_proxy_gauge_set(struct MetricProxyValue *gauge, double value)
{
    if (__builtin_expect(!gauge || gauge->kind != PROXY__GAUGE || !is_finite(value), 0)) return 1;
    if (__builtin_expect(atomic_load_explicit(&proxy__is_asleep, memory_order_relaxed), 0))
        return set_slowly(gauge, value);
    atomic_store_explicit(&gauge->cell, proxy__bits(value), memory_order_relaxed);
    return 0;
}

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static bool take_gauge(struct MetricProxyValue *gauge, double *amount)
{
    if (atomic_load_explicit(&gauge->cell, memory_order_relaxed) == PROXY__UNSET) return false;
    uint64_t set = atomic_exchange_explicit(&gauge->cell, PROXY__UNSET, memory_order_relaxed);
    gauge->last = set;
    *amount = proxy__double(set);
    return true;
}

bool proxy__take(struct MetricProxyValue *value, double *amount)
{
    if (value->kind == PROXY__GAUGE) return take_gauge(value, amount);
    double sum = 0;
    if (atomic_load_explicit(&value->cell, memory_order_relaxed) != 0)
        sum = proxy__double(atomic_exchange_explicit(&value->cell, 0, memory_order_relaxed));
    for (struct lane *at = atomic_load_explicit(&lanes, memory_order_acquire); at; at = at->next) {
        struct part *part = atomic_load_explicit(&at->parts[value->number / PART_VALUES], memory_order_acquire);
        if (!part) continue;
        uint64_t ones = __atomic_load_n(&part->ones[value->number % PART_VALUES], __ATOMIC_RELAXED);
        uint64_t *seen_ones = &part->seen_ones[value->number % PART_VALUES];
        if (ones != *seen_ones) {
            sum += (double)(ones - *seen_ones);
            *seen_ones = ones;
        }
        double now = read_sum(&part->sums[value->number % PART_VALUES]);
        double *seen = &part->seen[value->number % PART_VALUES];
        if (now == *seen) continue;
        sum += now - *seen;
        *seen = now;
    }
    /* Finite amounts may add up to what is not. */
    if (isnan(sum)) return false;
    *amount = isinf(sum) ? (sum > 0 ? DBL_MAX : -DBL_MAX) : sum;
    return sum != 0;
}

void proxy__put_back(struct MetricProxyValue *value, double amount)
{
    uint64_t unset = PROXY__UNSET;
    if (value->kind == PROXY__COUNTER)
        add_to_cell(value, amount);
    else
        /* Unless a newer one was set. */
        atomic_compare_exchange_strong(&value->cell, &unset, proxy__bits(amount));
}

void proxy__show_gauges_again(void)
{
    uint32_t count = atomic_load_explicit(&proxy__value_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct MetricProxyValue *value = proxy__value_at(i);
        if (value->kind == PROXY__GAUGE && value->last != PROXY__UNSET)
            proxy__put_back(value, proxy__double(value->last));
    }
}

/* Threads of the parent are none of the child's; what its own one counted is the parent's. */
void proxy__values_after_fork(void)
{
    own_lane = NULL;
    atomic_store(&lanes, NULL);
    atomic_store(&lane_count, 0);
    if (has_lane_key) pthread_setspecific(lane_key, NULL);
}

void proxy__forget_amounts(void)
{
    uint32_t count = atomic_load_explicit(&proxy__value_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) {
        struct MetricProxyValue *value = proxy__value_at(i);
        value->last = PROXY__UNSET;
        atomic_store(&value->cell, value->kind == PROXY__GAUGE ? PROXY__UNSET : 0);
    }
}

/* ---- the registry ------------------------------------------------------------------------------------------------ */

struct MetricProxyValue *proxy__value_at(uint32_t number)
{
    return blocks[number / BLOCK_VALUES][number % BLOCK_VALUES];
}

static uint32_t hash_of(const char *text, size_t bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static struct MetricProxyValue *make(enum proxy__kind kind, const char *name, size_t name_bytes, const char *doc,
                                     size_t doc_bytes)
{
    struct MetricProxyValue *value = NULL;
    char *text = malloc(name_bytes + doc_bytes + 1);
    if (!text || posix_memalign((void **)&value, PROXY__LINE, sizeof *value) != 0) {
        free(text);
        return NULL;
    }
    memset(value, 0, sizeof *value);
    memcpy(text, name, name_bytes);
    memcpy(text + name_bytes, doc, doc_bytes);
    value->text = text;
    value->name_bytes = (uint32_t)name_bytes;
    value->doc_bytes = (uint32_t)doc_bytes;
    value->kind = kind;
    atomic_init(&value->cell, kind == PROXY__GAUGE ? PROXY__UNSET : 0);
    value->last = PROXY__UNSET;
    return value;
}

/* With the registry's lock. */
static struct MetricProxyValue *find_or_make(enum proxy__kind kind, const char *name, size_t name_bytes,
                                             const char *doc, size_t doc_bytes)
{
    uint32_t hash = hash_of(name, name_bytes);
    struct MetricProxyValue **bucket = &buckets[hash % BUCKETS];
    for (struct MetricProxyValue *at = *bucket; at; at = at->same_bucket)
        if (at->hash == hash && at->name_bytes == name_bytes && memcmp(at->text, name, name_bytes) == 0) return at;
    uint32_t number = atomic_load_explicit(&proxy__value_count, memory_order_relaxed);
    if (number == PROXY__VALUES_MAX) {
        proxy__debug("'%.200s' is not declared: there are %u values already", name, number);
        return NULL;
    }
    struct MetricProxyValue ***block = &blocks[number / BLOCK_VALUES];
    if (!*block && !(*block = calloc(BLOCK_VALUES, sizeof **block))) return NULL;
    struct MetricProxyValue *value = make(kind, name, name_bytes, doc, doc_bytes);
    if (!value) return NULL;
    value->hash = hash;
    value->number = number;
    uint32_t part = kind == PROXY__COUNTER ? number / PART_VALUES : PARTS;
    value->part_at = (uint32_t)(offsetof(struct lane, parts) + part * sizeof(struct part *));
    value->sum_at = number % PART_VALUES * (uint32_t)sizeof(double);
    value->same_bucket = *bucket;
    *bucket = value;
    (*block)[number % BLOCK_VALUES] = value;
    atomic_store_explicit(&proxy__value_count, number + 1, memory_order_release);
    return value;
}

struct MetricProxyValue *proxy__declare(enum proxy__kind kind, const char *name, const char *doc)
{
    char name_text[PROXY__NAME_BYTES_MAX * 6], doc_text[PROXY__DOC_BYTES_MAX * 6];
    size_t name_bytes = strlen(name), doc_bytes = strlen(doc);
    if (name_bytes == 0 || name_bytes > PROXY__NAME_BYTES_MAX || !proxy__is_utf8(name, name_bytes) ||
        !proxy__is_utf8(doc, doc_bytes)) {
        proxy__debug("'%.200s' is not declared: a name has 1 to %d bytes of UTF-8", name, PROXY__NAME_BYTES_MAX);
        return NULL;
    }
    doc_bytes = proxy__cut(doc, doc_bytes, PROXY__DOC_BYTES_MAX);
    char *name_end = proxy__write_text(name_text, name, name_bytes);
    char *doc_end = proxy__write_text(doc_text, doc, doc_bytes);
    pthread_mutex_lock(&proxy__registry);
    struct MetricProxyValue *value =
        find_or_make(kind, name_text, (size_t)(name_end - name_text), doc_text, (size_t)(doc_end - doc_text));
    pthread_mutex_unlock(&proxy__registry);
    return value;
}

static struct MetricProxyValue *declared(struct MetricProxyClient *client, enum proxy__kind kind, const char *name,
                                         const char *doc)
{
    if (!client || !name || !doc || !is_awake()) return NULL;
    struct MetricProxyValue *value = proxy__declare(kind, name, doc);
    if (value) proxy__wake();
    return value;
}

struct MetricProxyValue *metric_proxy_counter_new(struct MetricProxyClient *client, const char *name, const char *doc)
{
    return declared(client, PROXY__COUNTER, name, doc);
}

struct MetricProxyValue *metric_proxy_gauge_new(struct MetricProxyClient *client, const char *name, const char *doc)
{
    return declared(client, PROXY__GAUGE, name, doc);
}
