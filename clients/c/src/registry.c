/*
 * registry.c: the metrics that a program opened. Each gets a number, in the order in which they came; the service
 * learns them in that order on every connection, so that what was packed once can be sent again as it is.
 *
 * Series are never forgotten. They are found by number without a lock.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic uint32_t telem__series_count;
unsigned telem__stripes = 1;
_Atomic(struct telem_counter *) telem__counters;
_Atomic(struct telem_histogram *) telem__histograms;

static struct telem__series **chunks[TELEM__CHUNKS_MAX];
static struct telem__series **buckets;
static size_t bucket_count;

void telem__registry_init(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned stripes = 1;
    while (stripes < TELEM__STRIPES_MAX && (long)stripes < 2 * cpus) stripes *= 2;
    telem__stripes = stripes;
}

struct telem__series *telem__series_at(uint32_t number)
{
    return chunks[number / TELEM__CHUNK][number % TELEM__CHUNK];
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Bytes of the character of UTF-8 at `at`, 0 if it is none. */
static size_t character(const unsigned char *at)
{
    if (at[0] < 0x80) return 1;
    if (at[0] >= 0xC2 && at[0] <= 0xDF) return (at[1] & 0xC0) == 0x80 ? 2 : 0;
    if (at[0] >= 0xE0 && at[0] <= 0xEF) {
        if ((at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80) return 0;
        if (at[0] == 0xE0 && at[1] < 0xA0) return 0;
        if (at[0] == 0xED && at[1] > 0x9F) return 0;
        return 3;
    }
    if (at[0] >= 0xF0 && at[0] <= 0xF4) {
        if ((at[1] & 0xC0) != 0x80 || (at[2] & 0xC0) != 0x80 || (at[3] & 0xC0) != 0x80) return 0;
        if (at[0] == 0xF0 && at[1] < 0x90) return 0;
        if (at[0] == 0xF4 && at[1] > 0x8F) return 0;
        return 4;
    }
    return 0;
}

static bool is_plain(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '/';
}

/* Copies `given` as UTF-8; what is no character becomes `_`, and of a name each ASCII character that is not legal. */
void telem__clean(char *to, const char *given, bool is_name)
{
    const unsigned char *at = (const unsigned char *)given;
    while (*at) {
        size_t bytes = character(at);
        if (bytes == 0 || (bytes == 1 && is_name && !is_plain(*at))) {
            *to++ = '_';
            at++;
        } else {
            memcpy(to, at, bytes);
            to += bytes;
            at += bytes;
        }
    }
    *to = 0;
}

static char *copy_text(const char *given, size_t bytes_max, bool is_name, const char *what)
{
    size_t bytes = given ? strlen(given) : 0;
    if (is_name && bytes == 0) {
        telem__fail("%s is empty; give it at least one letter", what);
        return NULL;
    }
    if (bytes > bytes_max) {
        telem__fail("%s '%.40s...' has %zu bytes; at most %zu are taken", what, given, bytes, bytes_max);
        return NULL;
    }
    char *copy = malloc(bytes + 1);
    if (!copy) {
        telem__fail("no memory for %s", what);
        return NULL;
    }
    telem__clean(copy, given ? given : "", is_name);
    return copy;
}

/* ---- series ------------------------------------------------------------------------------------------------------ */

static void free_series(struct telem__series *series)
{
    if (!series) return;
    if (series->tags)
        for (unsigned i = 0; i < 2u * series->tag_count; i++) free(series->tags[i]);
    free(series->tags);
    free(series->metric);
    free(series->unit);
    free(series->help);
    free(series);
}

/* Puts a pair where its key belongs; of two with one key the later counts. Takes both. */
static void put_tag(struct telem__series *series, char *key, char *value)
{
    unsigned at = 0;
    while (at < series->tag_count && strcmp(series->tags[2 * at], key) < 0) at++;
    if (at < series->tag_count && strcmp(series->tags[2 * at], key) == 0) {
        free(series->tags[2 * at + 1]);
        free(key);
        series->tags[2 * at + 1] = value;
        return;
    }
    memmove(&series->tags[2 * at + 2], &series->tags[2 * at], 2 * (series->tag_count - at) * sizeof(char *));
    series->tags[2 * at] = key;
    series->tags[2 * at + 1] = value;
    series->tag_count++;
}

/* A value may be any text in the library's own tags, such as `+Inf`. */
static bool add_tag(struct telem__series *series, const char *key, const char *value, bool is_own)
{
    if (series->tag_count >= TELEM__TAGS_MAX + 1) {
        telem__fail("metric '%s' has more than %d tags", series->metric, TELEM__TAGS_MAX);
        return false;
    }
    char *own_key = copy_text(key, TELEM__KEY_BYTES_MAX, true, "the key of a tag");
    char *own_value = own_key ? copy_text(value, TELEM__VALUE_BYTES_MAX, true, "the value of a tag") : NULL;
    if (!own_value) {
        free(own_key);
        return false;
    }
    if (is_own) strcpy(own_value, value);
    put_tag(series, own_key, own_value);
    return true;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (hash ^ 0xFF) * 1099511628211u;
}

static bool is_same(const struct telem__series *a, const struct telem__series *b)
{
    if (a->hash != b->hash || a->tag_count != b->tag_count || strcmp(a->metric, b->metric) != 0) return false;
    for (unsigned i = 0; i < 2u * a->tag_count; i++)
        if (strcmp(a->tags[i], b->tags[i]) != 0) return false;
    return true;
}

static struct telem__series *find(const struct telem__series *like)
{
    if (bucket_count == 0) return NULL;
    struct telem__series *at = buckets[like->hash & (bucket_count - 1)];
    while (at && !is_same(at, like)) at = at->next;
    return at;
}

static bool grow_buckets(uint32_t count)
{
    if (count < bucket_count) return true;
    size_t more = bucket_count ? bucket_count * 2 : 256;
    struct telem__series **grown = calloc(more, sizeof *grown);
    if (!grown) return false;
    for (size_t i = 0; i < bucket_count; i++) {
        struct telem__series *at = buckets[i];
        while (at) {
            struct telem__series *next = at->next;
            at->next = grown[at->hash & (more - 1)];
            grown[at->hash & (more - 1)] = at;
            at = next;
        }
    }
    free(buckets);
    buckets = grown;
    bucket_count = more;
    return true;
}

/* Room for one more; false and the thread's error if there is none. */
static bool has_room(void)
{
    uint32_t number = atomic_load_explicit(&telem__series_count, memory_order_relaxed);
    if (number >= (uint32_t)TELEM__CHUNK * TELEM__CHUNKS_MAX) {
        telem__fail("this process has %u series; that is the most it may have: use fewer values of tags", number);
        return false;
    }
    struct telem__series ***chunk = &chunks[number / TELEM__CHUNK];
    if (!*chunk) *chunk = calloc(TELEM__CHUNK, sizeof **chunk);
    if (!*chunk || !grow_buckets(number)) {
        telem__fail("no memory for one more series");
        return false;
    }
    return true;
}

static void insert(struct telem__series *series)
{
    uint32_t number = atomic_load_explicit(&telem__series_count, memory_order_relaxed);
    series->number = number;
    chunks[number / TELEM__CHUNK][number % TELEM__CHUNK] = series;
    struct telem__series **bucket = &buckets[series->hash & (bucket_count - 1)];
    series->next = *bucket;
    *bucket = series;
    atomic_store_explicit(&telem__series_count, number + 1, memory_order_release);
}

static void hash_series(struct telem__series *series)
{
    series->hash = hash_text(14695981039346656037u, series->metric);
    for (unsigned i = 0; i < 2u * series->tag_count; i++) series->hash = hash_text(series->hash, series->tags[i]);
}

/* A series that is not in the registry yet. */
static struct telem__series *make(const char *metric, const char *const *tags, const telem_about *given,
                                  enum telem__class class, uint8_t kind)
{
    telem_about about = {sizeof about, NULL, NULL, 0};
    if (given) {
        if (given->size < sizeof(size_t) || given->size > 4096) {
            telem__fail("telem_about of '%s' says a size of %zu; set it to sizeof(telem_about)",
                        metric ? metric : "", given->size);
            return NULL;
        }
        memcpy(&about, given, given->size < sizeof about ? given->size : sizeof about);
    }
    if (about.level < 0 || about.level > 4) {
        telem__fail("metric '%s' has level %d; levels are 1 to 4", metric ? metric : "", about.level);
        return NULL;
    }
    struct telem__series *series = calloc(1, sizeof *series);
    if (!series) {
        telem__fail("no memory for a metric");
        return NULL;
    }
    series->class = class;
    series->kind = kind;
    series->level = (uint8_t)(about.level ? about.level : 1);
    series->metric = copy_text(metric, TELEM__METRIC_BYTES_MAX, true, "the name of a metric");
    series->unit = series->metric ? copy_text(about.unit, TELEM__UNIT_BYTES_MAX, false, "the unit of a metric") : NULL;
    series->help = series->unit ? copy_text(about.help, TELEM__HELP_BYTES_MAX, false, "the help of a metric") : NULL;
    series->tags = series->help ? calloc(2 * (TELEM__TAGS_MAX + 2), sizeof *series->tags) : NULL;
    bool is_whole = series->tags != NULL;
    for (; is_whole && tags && tags[0]; tags += 2) {
        if (!tags[1]) {
            telem__fail("metric '%s': tag '%.100s' has no value", series->metric, tags[0]);
            is_whole = false;
        } else if (series->tag_count >= TELEM__TAGS_MAX) {
            telem__fail("metric '%s' has more than %d tags", series->metric, TELEM__TAGS_MAX);
            is_whole = false;
        } else {
            is_whole = add_tag(series, tags[0], tags[1], class == TELEM__TOTAL);
        }
    }
    if (!is_whole) {
        free_series(series);
        return NULL;
    }
    hash_series(series);
    return series;
}

/* What is there under the same names; NULL, or with `*clash` another kind of metric. */
static struct telem__series *find_handle(struct telem__series *series, bool *clash)
{
    struct telem__series *known = find(series);
    *clash = known && known->class != series->class;
    if (*clash) {
        static const char *const classes[] = {"a gauge", "a counter", "a histogram", "a timer",
                                              "a part of a histogram", "a total"};
        telem__fail("metric '%s' is open as %s with these tags", series->metric, classes[known->class]);
    }
    return known;
}

/* ---- gauges, timers ---------------------------------------------------------------------------------------------- */

static void *open_of_kind(const char *metric, const char *const *tags, const telem_about *about,
                          enum telem__class class, uint8_t kind)
{
    bool clash;
    telem_about seconds = {sizeof seconds, "s", NULL, 0};
    struct telem__series *series =
        make(metric, tags, about ? about : class == TELEM__TIMER ? &seconds : NULL, class, kind);
    if (!series) return NULL;
    struct telem__series *known = find_handle(series, &clash);
    if (known) {
        free_series(series);
        return clash ? NULL : known->handle;
    }
    struct telem_timer *timer = calloc(1, sizeof *timer);
    if (!timer || !has_room()) {
        if (!timer) telem__fail("no memory for a metric");
        free(timer);
        free_series(series);
        return NULL;
    }
    /* A gauge is the first part of a timer, so that both are taken from the same memory. */
    series->handle = timer;
    timer->gauge.series = series;
    timer->gauge.level = series->level;
    timer->gauge.number = atomic_load_explicit(&telem__series_count, memory_order_relaxed);
    insert(series);
    return timer;
}

static void *open_gauge(const char *metric, const char *const *tags, const telem_about *about, enum telem__class class)
{
    return open_of_kind(metric, tags, about, class, 0);
}

static struct telem__series *open_step(struct telem_gauge *gauge)
{
    const struct telem__series *of = gauge->series;
    const char *tags[2 * TELEM__TAGS_MAX + 1];
    for (unsigned i = 0; i < 2u * of->tag_count; i++) tags[i] = of->tags[i];
    tags[2 * of->tag_count] = NULL;
    telem_about about = {sizeof about, NULL, NULL, of->level};
    struct telem_gauge *step = open_gauge("step", tags, &about, TELEM__GAUGE);
    return step ? step->series : NULL;
}

struct telem__series *telem__step_of(struct telem_gauge *gauge)
{
    if (!telem__try_api()) return NULL;
    struct telem__series *step = atomic_load_explicit(&gauge->step, memory_order_relaxed);
    if (!step) step = open_step(gauge);
    if (step) atomic_store_explicit(&gauge->step, step, memory_order_release);
    pthread_mutex_unlock(&telem__api);
    return step;
}

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static void *lines(size_t bytes)
{
    void *at = NULL;
    bytes = (bytes + TELEM__LINE - 1) / TELEM__LINE * TELEM__LINE;
    if (posix_memalign(&at, TELEM__LINE, bytes) != 0) return NULL;
    memset(at, 0, bytes);
    return at;
}

static telem_counter *open_counter(const char *metric, const char *const *tags, const telem_about *about)
{
    bool clash;
    struct telem__series *series = make(metric, tags, about, TELEM__COUNTER, 1);
    if (!series) return NULL;
    struct telem__series *known = find_handle(series, &clash);
    if (known) {
        free_series(series);
        return clash ? NULL : known->handle;
    }
    struct telem_counter *counter = calloc(1, sizeof *counter);
    struct telem__cell *cells = counter ? lines(telem__stripes * sizeof *cells) : NULL;
    if (!cells || !has_room()) {
        if (!cells) telem__fail("no memory for a counter");
        free(cells);
        free(counter);
        free_series(series);
        return NULL;
    }
    counter->cells = cells;
    counter->level = series->level;
    counter->number = atomic_load_explicit(&telem__series_count, memory_order_relaxed);
    series->handle = counter;
    insert(series);
    counter->next = atomic_load_explicit(&telem__counters, memory_order_relaxed);
    atomic_store_explicit(&telem__counters, counter, memory_order_release);
    return counter;
}

/* ---- histograms -------------------------------------------------------------------------------------------------- */

/* The shortest text that is this number: 0.1, 10, 1e+20. */
static void show_bound(char *to, size_t bytes, double bound)
{
    int digits = 1;
    for (; digits <= 17; digits++) {
        snprintf(to, bytes, "%.*g", digits, bound);
        if (strtod(to, NULL) == bound) break;
    }
    /* Whole numbers without an exponent. */
    if (fabs(bound) < 1e15) snprintf(to, bytes, "%.*g", digits > 15 ? digits : fabs(bound) >= 1 ? 15 : digits, bound);
    /* Where the locale has a comma. */
    for (char *at = to; *at; at++)
        if (*at == ',') *at = '.';
}

static bool are_bounds(const char *metric, const double *bounds, size_t count)
{
    if (!bounds || count == 0 || count > TELEM__BOUNDS_MAX) {
        telem__fail("histogram '%s' has %zu bounds; it takes 1 to %d", metric ? metric : "", bounds ? count : 0,
                    TELEM__BOUNDS_MAX);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (!isfinite(bounds[i]) || (i > 0 && bounds[i] <= bounds[i - 1])) {
            telem__fail("histogram '%s': bound %zu is %g; bounds are finite, and each is above the one before",
                        metric ? metric : "", i, bounds[i]);
            return false;
        }
    return true;
}

/* A part of the histogram `of`: its buckets, its sum, its count. */
static struct telem__series *make_part(const struct telem__series *of, const char *suffix, const char *bound)
{
    char metric[TELEM__METRIC_BYTES_MAX + 16];
    const char *tags[2 * TELEM__TAGS_MAX + 1];
    bool is_sum = strcmp(suffix, "_sum") == 0;
    snprintf(metric, sizeof metric, "%s%s", of->metric, suffix);
    for (unsigned i = 0; i < 2u * of->tag_count; i++) tags[i] = of->tags[i];
    tags[2 * of->tag_count] = NULL;
    telem_about about = {sizeof about, is_sum ? of->unit : NULL, of->help, of->level};
    struct telem__series *part = make(metric, tags, &about, TELEM__PART, 2);
    if (part && bound) {
        if (!add_tag(part, "le", bound, true)) {
            free_series(part);
            return NULL;
        }
        hash_series(part);
    }
    if (part && find(part)) {
        telem__fail("histogram '%s' needs the name '%s', which is open already", of->metric, metric);
        free_series(part);
        return NULL;
    }
    return part;
}

static bool make_parts(const struct telem__series *of, const double *bounds, uint32_t count,
                       struct telem__series **parts)
{
    for (uint32_t i = 0; i < count + 3; i++) {
        char bound[40] = "+Inf";
        if (i < count) show_bound(bound, sizeof bound, bounds[i]);
        const char *suffix = i <= count ? "_bucket" : i == count + 1 ? "_sum" : "_count";
        parts[i] = make_part(of, suffix, i <= count ? bound : NULL);
        if (!parts[i]) return false;
    }
    return true;
}

static struct telem_histogram *allocate_histogram(const double *bounds, uint32_t count)
{
    struct telem_histogram *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->count = count;
    made->words = (count + 2 + 7) / 8 * 8;
    made->bounds = malloc(count * sizeof(double));
    made->sent = calloc(count + 1, sizeof *made->sent);
    made->cells = lines((size_t)telem__stripes * made->words * sizeof *made->cells);
    if (!made->bounds || !made->sent || !made->cells) {
        free(made->bounds);
        free(made->sent);
        free((void *)made->cells);
        free(made);
        return NULL;
    }
    memcpy(made->bounds, bounds, count * sizeof(double));
    return made;
}

static telem_histogram *open_parts(struct telem__series *series, const double *bounds, uint32_t count)
{
    struct telem__series *parts[TELEM__BOUNDS_MAX + 3] = {0};
    struct telem_histogram *made = allocate_histogram(bounds, count);
    if (!made) telem__fail("no memory for histogram '%s'", series->metric);
    bool is_whole = made && make_parts(series, bounds, count, parts);
    uint32_t first = atomic_load_explicit(&telem__series_count, memory_order_relaxed);
    for (uint32_t i = 0; is_whole && i < count + 3; i++) {
        /* Those that are in already stay: they are names without samples. */
        is_whole = has_room();
        if (is_whole) {
            parts[i]->handle = made;
            insert(parts[i]);
            parts[i] = NULL;
        }
    }
    if (!is_whole) {
        for (uint32_t i = 0; i < count + 3; i++) free_series(parts[i]);
        if (made) {
            free(made->bounds);
            free(made->sent);
            free((void *)made->cells);
        }
        free(made);
        return NULL;
    }
    made->first = first;
    made->level = series->level;
    made->next = atomic_load_explicit(&telem__histograms, memory_order_relaxed);
    atomic_store_explicit(&telem__histograms, made, memory_order_release);
    return made;
}

static telem_histogram *open_histogram(const char *metric, const char *const *tags, const double *bounds, size_t count,
                                       const telem_about *about)
{
    bool clash;
    if (!are_bounds(metric, bounds, count)) return NULL;
    struct telem__series *series = make(metric, tags, about, TELEM__HISTOGRAM, 2);
    if (!series) return NULL;
    /* Only its parts are series. It is found by its count. */
    struct telem__series *count_part = NULL;
    {
        char name[TELEM__METRIC_BYTES_MAX + 16];
        snprintf(name, sizeof name, "%s_count", series->metric);
        char *metric_of_series = series->metric;
        series->metric = name;
        hash_series(series);
        count_part = find(series);
        series->metric = metric_of_series;
        hash_series(series);
    }
    if (count_part && count_part->class == TELEM__PART) {
        struct telem_histogram *known = count_part->handle;
        free_series(series);
        if (known->count == count && memcmp(known->bounds, bounds, count * sizeof(double)) == 0) return known;
        telem__fail("histogram '%s' is open with other bounds", metric);
        return NULL;
    }
    telem_histogram *made = find_handle(series, &clash) ? NULL : open_parts(series, bounds, (uint32_t)count);
    free_series(series);
    return made;
}

double telem__sum_of(const struct telem_histogram *histogram)
{
    double sum = 0;
    for (unsigned i = 0; i < telem__stripes; i++) {
        const _Atomic uint64_t *cell = &histogram->cells[i * (size_t)histogram->words + histogram->count + 1];
        uint64_t bits = atomic_load_explicit(cell, memory_order_relaxed);
        double part;
        memcpy(&part, &bits, sizeof part);
        sum += part;
    }
    return sum;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Totals are those of one process. */
void telem__totals_after_fork(void)
{
    for (struct telem_counter *at = atomic_load(&telem__counters); at; at = at->next) {
        for (unsigned i = 0; i < telem__stripes; i++)
            atomic_store_explicit(&at->cells[i].value, 0, memory_order_relaxed);
        at->sent = 0;
    }
    for (struct telem_histogram *at = atomic_load(&telem__histograms); at; at = at->next) {
        for (size_t i = 0; i < (size_t)telem__stripes * at->words; i++)
            atomic_store_explicit(&at->cells[i], 0, memory_order_relaxed);
        memset(at->sent, 0, (at->count + 1) * sizeof *at->sent);
    }
}

telem_gauge *telem_gauge_open_about(const char *metric, const char *const *tags, const telem_about *about)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_gauge *made = open_gauge(metric, tags, about, TELEM__GAUGE);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_gauge *telem_gauge_open(const char *metric, const char *const *tags)
{
    return telem_gauge_open_about(metric, tags, NULL);
}

telem_gauge *telem__total_open(const char *metric, const char *const *tags, const telem_about *about)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_gauge *made = open_of_kind(metric, tags, about, TELEM__GAUGE, 1);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_gauge *telem__series_open(const char *metric, const char *const *tags, uint8_t kind)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_gauge *made = open_of_kind(metric, tags, NULL, kind ? TELEM__TOTAL : TELEM__GAUGE, kind);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_timer *telem_timer_open_about(const char *metric, const char *const *tags, const telem_about *about)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_timer *made = open_gauge(metric, tags, about, TELEM__TIMER);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_timer *telem_timer_open(const char *metric, const char *const *tags)
{
    return telem_timer_open_about(metric, tags, NULL);
}

telem_counter *telem_counter_open_about(const char *metric, const char *const *tags, const telem_about *about)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_counter *made = open_counter(metric, tags, about);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_counter *telem_counter_open(const char *metric, const char *const *tags)
{
    return telem_counter_open_about(metric, tags, NULL);
}

telem_histogram *telem_histogram_open_about(const char *metric, const char *const *tags, const double *bounds,
                                            size_t count, const telem_about *about)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    telem_histogram *made = open_histogram(metric, tags, bounds, count, about);
    pthread_mutex_unlock(&telem__api);
    return made;
}

telem_histogram *telem_histogram_open(const char *metric, const char *const *tags, const double *bounds, size_t count)
{
    return telem_histogram_open_about(metric, tags, bounds, count, NULL);
}
