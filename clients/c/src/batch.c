/*
 * batch.c: gives each sample its time, and packs samples into frames.
 *
 * The service keeps the later of two samples of one series and microsecond. So that none is lost, one whose microsecond
 * is taken moves to the next free one. Times of the clock only grow: the last one of a series is all there is to
 * remember. Times that a caller gives come in any order: those of the last TELEM__TOLD_MAX samples at least are kept.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

const unsigned char telem__opening[8] = {0xF7, 'T', 'L', 'M', 1, 0, 0, 0};

/* A series that is set more than once a microsecond runs ahead of the clock: so far and no further. */
static const int64_t AHEAD_MAX_US = 1000000;

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

void telem__put_head(unsigned char *at, uint32_t body, uint8_t type)
{
    telem__put_u32(at, body);
    telem__put_u32(at + 4, type);
}

/* ---- what is known of series ------------------------------------------------------------------------------------- */

struct info {
    int64_t last;     /* latest time of the clock; 0: none */
    uint32_t epoch;   /* the clock's, of `last` */
    uint32_t count;   /* in this batch */
    uint32_t start;   /* its place in `order` */
    bool was_told;    /* a caller gave times once */
    bool is_generic;
};

static struct info *infos;
static uint32_t info_count;
static uint32_t clock_epoch;

static uint32_t *order;     /* places in `taken`, by series */
static uint32_t *spare;     /* for sorting */
static uint32_t *touched;   /* series of this batch */
static uint32_t touched_count;

/* ---- times that were used ---------------------------------------------------------------------------------------- */

struct used {
    int64_t time;
    int64_t next;   /* from here on a free one is looked for */
    uint64_t value; /* of a step */
    uint32_t series;
    bool is_there;
};

struct table {
    struct used *rows;
    size_t size; /* a power of two */
    size_t count;
};

/* Two generations: the older one is forgotten as a whole, which costs nothing. */
static struct table young, old;

static size_t place_of(const struct table *table, uint32_t series, int64_t time)
{
    uint64_t hash = ((uint64_t)time + series * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xD6E8FEB86659FD93);
    size_t at = (size_t)(hash >> 32) & (table->size - 1);
    while (table->rows[at].is_there && (table->rows[at].time != time || table->rows[at].series != series))
        at = (at + 1) & (table->size - 1);
    return at;
}

static struct used *find_in(const struct table *table, uint32_t series, int64_t time)
{
    if (table->count == 0) return NULL;
    struct used *row = &table->rows[place_of(table, series, time)];
    return row->is_there ? row : NULL;
}

static struct used *find_used(uint32_t series, int64_t time)
{
    struct used *row = find_in(&young, series, time);
    return row ? row : find_in(&old, series, time);
}

static bool grow_table(struct table *table)
{
    struct table grown = {NULL, table->size ? table->size * 4 : 512, table->count};
    grown.rows = calloc(grown.size, sizeof *grown.rows);
    if (!grown.rows) return false;
    for (size_t i = 0; i < table->size; i++) {
        const struct used *row = &table->rows[i];
        if (row->is_there) grown.rows[place_of(&grown, row->series, row->time)] = *row;
    }
    free(table->rows);
    *table = grown;
    return true;
}

static void remember(uint32_t series, int64_t time, int64_t next, uint64_t value)
{
    if (young.count >= TELEM__TOLD_MAX) {
        free(old.rows);
        old = young;
        memset(&young, 0, sizeof young);
    }
    if (young.count * 2 >= young.size && !grow_table(&young)) return;
    struct used *row = &young.rows[place_of(&young, series, time)];
    if (!row->is_there) young.count++;
    *row = (struct used){time, next, value, series, true};
}

/* ---- settling ---------------------------------------------------------------------------------------------------- */

void telem__times_set_back(void)
{
    clock_epoch++;
}

static void follow_epoch(struct info *info)
{
    if (info->epoch == clock_epoch) return;
    info->epoch = clock_epoch;
    info->last = 0;
}

/* The time of the next sample of the clock in a series; 0 if it would be too far ahead. */
static inline int64_t settle_clock(struct info *info, int64_t us)
{
    if (us <= info->last) {
        if (info->last - us >= AHEAD_MAX_US) return 0;
        us = info->last + 1;
    }
    info->last = us;
    return us;
}

static int64_t free_time(uint32_t series, int64_t us)
{
    for (struct used *row = find_used(series, us); row; row = find_used(series, us)) us = row->next;
    return us;
}

/* Of a series whose callers give times. */
static int64_t settle_told(uint32_t series, int64_t us, bool is_told)
{
    const struct info *info = &infos[series];
    int64_t first = us;
    /* What the clock gave before is not in the table, but for its last. */
    if (is_told ? us == info->last : us <= info->last && info->last - us < AHEAD_MAX_US) us = info->last + 1;
    us = free_time(series, us);
    remember(series, us, us + 1, 0);
    /* The next sample of the same time need not try all those that were moved already. */
    if (first != us) remember(series, first, us + 1, 0);
    return us;
}

/* The step of several metrics that have the same tags and time is one. */
static bool is_free_for_step(uint32_t series, int64_t us, uint64_t step)
{
    const struct used *row = find_used(series, us);
    return !row || (row->value == step && row->next == us + 1);
}

static void settle_pair(struct telem__taken *value, struct telem__taken *step)
{
    bool is_told = value->flags & TELEM__TOLD;
    int64_t us = is_told ? value->time : value->time / 1000, first = us, tried;
    const struct info *info = &infos[value->series];
    if (is_told ? us == info->last : us <= info->last && info->last - us < AHEAD_MAX_US) us = info->last + 1;
    do {
        tried = us;
        us = free_time(value->series, us);
        while (!is_free_for_step(step->series, us, step->value)) us++;
    } while (tried != us);
    remember(value->series, us, us + 1, 0);
    if (first != us) remember(value->series, first, us + 1, 0);
    remember(step->series, us, us + 1, step->value);
    value->time = step->time = us;
}

/* The nearest microsecond that is free in all of them. */
static void settle_group(struct telem__taken *taken, uint32_t count)
{
    bool is_told = taken->flags & TELEM__TOLD;
    int64_t us = is_told ? taken->time : taken->time / 1000, first = us, tried;
    do {
        tried = us;
        for (uint32_t i = 0; i < count; i++) {
            const struct info *info = &infos[taken[i].series];
            if (is_told ? us == info->last : us <= info->last && info->last - us < AHEAD_MAX_US) us = info->last + 1;
            us = free_time(taken[i].series, us);
        }
    } while (tried != us);
    for (uint32_t i = 0; i < count; i++) {
        remember(taken[i].series, us, us + 1, 0);
        if (first != us) remember(taken[i].series, first, us + 1, 0);
        taken[i].time = us;
    }
}

static uint32_t group_length(const struct telem__taken *taken)
{
    uint32_t length = 1;
    while (taken[length - 1].flags & TELEM__HAS_MORE) length++;
    return length;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static void free_scratch(void)
{
    free(infos);
    free(order);
    free(spare);
    free(touched);
    infos = NULL;
    order = spare = touched = NULL;
    info_count = 0;
}

/* A child begins anew. The sender of its parent was between two batches. */
void telem__batch_after_fork(void)
{
    free_scratch();
    free(young.rows);
    free(old.rows);
    memset(&young, 0, sizeof young);
    memset(&old, 0, sizeof old);
}

static bool has_scratch(void)
{
    uint32_t series = atomic_load_explicit(&telem__series_count, memory_order_acquire);
    if (series > info_count) {
        uint32_t more = info_count ? info_count : 256;
        while (more < series) more *= 2;
        struct info *grown = realloc(infos, more * sizeof *infos);
        if (!grown) return false;
        memset(grown + info_count, 0, (more - info_count) * sizeof *infos);
        infos = grown;
        info_count = more;
    }
    if (!order) order = malloc(TELEM__BATCH_SAMPLES_MAX * sizeof *order);
    if (!spare) spare = malloc(TELEM__BATCH_SAMPLES_MAX * sizeof *spare);
    if (!touched) touched = malloc(TELEM__BATCH_SAMPLES_MAX * sizeof *touched);
    return order && spare && touched;
}

static void group(const struct telem__taken *taken, uint32_t count)
{
    touched_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct info *info = &infos[taken[i].series];
        if (info->count++ == 0) {
            touched[touched_count++] = taken[i].series;
            follow_epoch(info);
        }
        if (taken[i].flags & (TELEM__TOLD | TELEM__HAS_STEP | TELEM__IS_STEP | TELEM__HAS_MORE | TELEM__IS_MORE))
            info->was_told = true;
    }
    uint32_t start = 0;
    for (uint32_t i = 0; i < touched_count; i++) {
        struct info *info = &infos[touched[i]];
        info->start = start;
        start += info->count;
        info->count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct info *info = &infos[taken[i].series];
        order[info->start + info->count++] = i;
    }
}

static bool is_in_order(const struct telem__taken *taken, const uint32_t *run, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (taken[run[i]].time < taken[run[i - 1]].time) return false;
    return true;
}

/* By time; those of one time stay in their order. */
static void sort_run(const struct telem__taken *taken, uint32_t *run, uint32_t count)
{
    uint32_t *from = run, *to = spare;
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t low = 0; low < count; low += 2 * width) {
            uint32_t middle = low + width < count ? low + width : count;
            uint32_t high = middle + width < count ? middle + width : count;
            uint32_t a = low, b = middle, at = low;
            while (a < middle && b < high) to[at++] = taken[from[b]].time < taken[from[a]].time ? from[b++] : from[a++];
            while (a < middle) to[at++] = from[a++];
            while (b < high) to[at++] = from[b++];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != run) memcpy(run, from, count * sizeof *run);
}

static void settle_all(struct telem__taken *taken, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct telem__taken *one = &taken[i];
        if (!infos[one->series].was_told || one->flags & (TELEM__IS_STEP | TELEM__IS_MORE)) continue;
        if (one->flags & TELEM__HAS_STEP)
            settle_pair(one, one + 1);
        else if (one->flags & TELEM__HAS_MORE)
            settle_group(one, group_length(one));
        else
            one->time = settle_told(one->series, one->flags & TELEM__TOLD ? one->time : one->time / 1000,
                                    one->flags & TELEM__TOLD);
    }
    for (uint32_t i = 0; i < touched_count; i++) {
        struct info *info = &infos[touched[i]];
        if (info->was_told) continue;
        uint32_t *run = order + info->start;
        if (!is_in_order(taken, run, info->count)) sort_run(taken, run, info->count);
        for (uint32_t k = 0; k < info->count; k++) {
            struct telem__taken *one = &taken[run[k]];
            one->time = settle_clock(info, one->time / 1000);
            if (one->time == 0) one->flags |= TELEM__GONE;
        }
    }
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

/* Of one run: how many are integers, how many floats. */
struct shares {
    uint32_t of[2];
};

static struct shares shares_of(const struct telem__taken *taken, const uint32_t *run, uint32_t count)
{
    struct shares shares = {{0, 0}};
    for (uint32_t i = 0; i < count; i++)
        if (!(taken[run[i]].flags & TELEM__GONE)) shares.of[taken[run[i]].flags & TELEM__INT]++;
    return shares;
}

static unsigned char *put_column(unsigned char *at, const struct telem__taken *taken, const uint32_t *run,
                                 uint32_t count, uint32_t series, unsigned type, uint32_t kept)
{
    at[0] = 0;
    at[1] = (unsigned char)type;
    at[2] = at[3] = 0;
    telem__put_u32(at + 4, series);
    telem__put_u32(at + 8, kept);
    telem__put_u32(at + 12, 0);
    unsigned char *times = at + 16, *values = times + 8 * (size_t)kept;
    for (uint32_t i = 0; i < count; i++) {
        const struct telem__taken *one = &taken[run[i]];
        if (one->flags & TELEM__GONE || (one->flags & TELEM__INT) != type) continue;
        telem__put_u64(times, (uint64_t)one->time);
        telem__put_u64(values, one->value);
        times += 8;
        values += 8;
    }
    return values;
}

static size_t row_bytes(uint32_t count)
{
    return 16 + 4 * ((size_t)count + (count & 1)) + 8 * (size_t)count;
}

static unsigned char *put_row(unsigned char *at, const struct telem__taken *taken, const uint32_t *run, uint32_t count,
                              int64_t time, unsigned type)
{
    at[0] = 1;
    at[1] = (unsigned char)type;
    at[2] = at[3] = 0;
    telem__put_u32(at + 4, count);
    telem__put_u64(at + 8, (uint64_t)time);
    at += 16;
    for (uint32_t i = 0; i < count; i++, at += 4) telem__put_u32(at, taken[run[i]].series);
    if (count & 1) {
        telem__put_u32(at, 0);
        at += 4;
    }
    for (uint32_t i = 0; i < count; i++, at += 8) telem__put_u64(at, taken[run[i]].value);
    return at;
}

static struct telem__item *new_batch(size_t blocks, uint64_t sequence, uint64_t samples)
{
    size_t bytes = 16 + blocks;
    struct telem__item *item = malloc(sizeof *item + bytes);
    if (!item) return NULL;
    memset(item, 0, sizeof *item);
    item->type = TELEM__BATCH;
    item->number = sequence;
    item->samples = samples;
    item->bytes = bytes;
    telem__put_head(item->frame, (uint32_t)(bytes - 8), 2);
    telem__put_u64(item->frame + 8, sequence);
    return item;
}

static const struct telem__taken *compared;

/* By time, then by type: those that share both are one row. */
static int compare_singles(const void *a, const void *b)
{
    const struct telem__taken *one = &compared[*(const uint32_t *)a], *other = &compared[*(const uint32_t *)b];
    if (one->time != other->time) return one->time < other->time ? -1 : 1;
    return (int)(one->flags & TELEM__INT) - (int)(other->flags & TELEM__INT);
}

static uint32_t row_length(const struct telem__taken *taken, const uint32_t *singles, uint32_t count)
{
    uint32_t length = 1;
    compared = taken;
    while (length < count && compare_singles(&singles[0], &singles[length]) == 0) length++;
    return length;
}

struct telem__item *telem__pack(struct telem__taken *taken, uint32_t count, uint64_t sequence, uint64_t *lost)
{
    *lost = count;
    if (!has_scratch()) return NULL;
    group(taken, count);
    settle_all(taken, count);

    /* First how long it becomes. Series with a single sample become rows; `spare` has those. */
    size_t bytes = 0;
    uint32_t kept = 0, singles = 0, highest = 0;
    for (uint32_t i = 0; i < touched_count; i++) {
        const struct info *info = &infos[touched[i]];
        struct shares shares = shares_of(taken, order + info->start, info->count);
        uint32_t whole = shares.of[0] + shares.of[1];
        kept += whole;
        if (whole && touched[i] >= highest) highest = touched[i] + 1;
        if (whole == 1) {
            uint32_t k = 0;
            while (taken[order[info->start + k]].flags & TELEM__GONE) k++;
            spare[singles++] = order[info->start + k];
        } else {
            for (unsigned type = 0; type < 2; type++)
                if (shares.of[type]) bytes += 16 + 16 * (size_t)shares.of[type];
        }
    }
    compared = taken;
    qsort(spare, singles, sizeof *spare, compare_singles);
    for (uint32_t i = 0, length; i < singles; i += length) {
        length = row_length(taken, spare + i, singles - i);
        bytes += row_bytes(length);
    }

    struct telem__item *item = kept ? new_batch(bytes, sequence, kept) : NULL;
    if (item) {
        unsigned char *at = item->frame + 16;
        for (uint32_t i = 0; i < touched_count; i++) {
            const struct info *info = &infos[touched[i]];
            const uint32_t *run = order + info->start;
            struct shares shares = shares_of(taken, run, info->count);
            if (shares.of[0] + shares.of[1] == 1) continue;
            for (unsigned type = 0; type < 2; type++)
                if (shares.of[type]) at = put_column(at, taken, run, info->count, touched[i], type, shares.of[type]);
        }
        for (uint32_t i = 0, length; i < singles; i += length) {
            const struct telem__taken *one = &taken[spare[i]];
            length = row_length(taken, spare + i, singles - i);
            at = put_row(at, taken, spare + i, length, one->time, one->flags & TELEM__INT);
        }
        item->series_needed = highest;
        *lost = count - kept;
    }
    for (uint32_t i = 0; i < touched_count; i++) infos[touched[i]].count = 0;
    return item;
}

struct telem__item *telem__pack_row(const struct telem__taken *taken, uint32_t count, int64_t time, uint64_t sequence)
{
    if (!has_scratch()) return NULL;
    uint32_t of[2] = {0, 0}, highest = 0;
    for (uint32_t i = 0; i < count; i++) of[taken[i].flags & TELEM__INT]++;
    size_t bytes = (of[0] ? row_bytes(of[0]) : 0) + (of[1] ? row_bytes(of[1]) : 0);
    struct telem__item *item = new_batch(bytes, sequence, count);
    if (!item) return NULL;
    item->has_totals = true;
    unsigned char *at = item->frame + 16;
    for (unsigned type = 0; type < 2; type++) {
        uint32_t length = 0;
        for (uint32_t i = 0; i < count; i++)
            if ((taken[i].flags & TELEM__INT) == type) order[length++] = i;
        if (length) at = put_row(at, taken, order, length, time, type);
    }
    for (uint32_t i = 0; i < count; i++)
        if (taken[i].series >= highest) highest = taken[i].series + 1;
    item->series_needed = highest;
    return item;
}
