/*
 * calls.c: nanoseconds that a call of the C library costs the thread that makes it, connected to a service.
 *
 *     calls THREADS BATCHES        prints JSON, one line for each kind of call
 *
 * Batches of 1,000 calls with a pause between them, so that no ring fills and the sender works as it does in a job. The
 * clock runs around a batch. All threads use the same metric.
 */
#define _GNU_SOURCE
#include "telem.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 1000, BATCHES_MAX = 100000, THREADS_MAX = 16 };

static telem_gauge *gauge;
static telem_counter *counter;
static telem_histogram *histogram;
static telem_timer *timer;
static int batches;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void nothing(void)
{
    for (int i = 0; i < CALLS; i++) __asm__ volatile("" : : "r"(i) : "memory");
}

static void set(void)
{
    for (int i = 0; i < CALLS; i++) telem_set(gauge, i * 0.5);
}

static void set_at(void)
{
    static int64_t micros = INT64_C(1767322800000000);
    int64_t from = __atomic_fetch_add(&micros, CALLS, __ATOMIC_RELAXED);
    for (int i = 0; i < CALLS; i++) telem_set_at(gauge, i * 0.5, from + i);
}

static void add(void)
{
    for (int i = 0; i < CALLS; i++) telem_add(counter, 1);
}

static void observe(void)
{
    for (int i = 0; i < CALLS; i++) telem_observe(histogram, i & 15);
}

static void span(void)
{
    for (int i = 0; i < CALLS; i++) {
        telem_span one = telem_begin(timer);
        telem_end(&one);
    }
}

struct worker {
    pthread_t thread;
    void (*batch)(void);
    double ns[BATCHES_MAX];
};

static pthread_barrier_t start;

static void *work(void *given)
{
    struct worker *worker = given;
    pthread_barrier_wait(&start);
    for (int i = 0; i < batches; i++) {
        int64_t began = now_ns();
        worker->batch();
        worker->ns[i] = (double)(now_ns() - began) / CALLS;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        /* On a busy machine the sender may not get a core for long: a call that finds its ring full is a cheap one. */
        if (i % 30 == 29) telem_flush(60000);
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static void measure(const char *name, void (*batch)(void), int threads)
{
    static struct worker workers[THREADS_MAX];
    static double all[THREADS_MAX * BATCHES_MAX];
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i].batch = batch;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    size_t count = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        memcpy(all + count, workers[i].ns, (size_t)batches * sizeof *all);
        count += (size_t)batches;
    }
    qsort(all, count, sizeof *all, compare);
    printf("{\"peer\": \"telem C\", \"call\": \"%s\", \"threads\": %d, \"median_ns\": %.2f, \"p90_ns\": %.2f}\n", name,
           threads, all[count / 2], all[count * 9 / 10]);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    batches = argc > 2 ? atoi(argv[2]) : 500;
    if (threads < 1 || threads > THREADS_MAX || batches < 1 || batches > BATCHES_MAX) return 2;
    gauge = telem_gauge_open("bench_gauge", NULL);
    counter = telem_counter_open("bench_counter", NULL);
    histogram = telem_histogram_open("bench_histogram", NULL, (const double[]){1, 2, 4, 8, 16}, 5);
    timer = telem_timer_open("bench_timer", NULL);
    if (telem_flush(10000) != 0) {
        fprintf(stderr, "calls: %s\n", telem_error());
        return 1;
    }
    measure("empty loop", nothing, threads);
    measure("gauge", set, threads);
    measure("gauge, time given", set_at, threads);
    measure("counter", add, threads);
    measure("histogram", observe, threads);
    measure("span", span, threads);
    telem_flush(60000);
    telem_counts counts = {.size = sizeof counts};
    telem_stats(&counts);
    uint64_t lost = counts.taken - counts.stored;
    printf("{\"lost\": %" PRIu64 ", \"taken\": %" PRIu64 "}\n", lost, counts.taken);
    return 0;
}
