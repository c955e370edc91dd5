/*
 * flood.c: so many samples a second for a while, in batches of a millisecond, over several series.
 *
 *     flood SAMPLES_A_SECOND SECONDS [SERIES]        prints JSON: what became of them, and CPU seconds
 *
 * One process can store a series a million times a second: that is what microseconds have room for.
 */
#define _GNU_SOURCE
#include "telem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { SERIES_MAX = 1024 };

static double now_s(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static telem_gauge *gauges[SERIES_MAX];
    double rate = argc > 1 ? atof(argv[1]) : 1e6, seconds = argc > 2 ? atof(argv[2]) : 5;
    int series = argc > 3 ? atoi(argv[3]) : 8;
    if (series < 1 || series > SERIES_MAX) return 2;
    for (int i = 0; i < series; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        gauges[i] = telem_gauge_open("flood", (const char *const[]){"series", name, NULL});
    }
    if (telem_flush(30000) != 0) {
        fprintf(stderr, "flood: %s\n", telem_error());
        return 1;
    }
    double began = now_s(CLOCK_MONOTONIC);
    uint64_t made = 0, wanted = (uint64_t)(rate * seconds);
    while (made < wanted) {
        double due = (now_s(CLOCK_MONOTONIC) - began) * rate;
        for (; made < wanted && (double)made < due; made++) telem_set(gauges[made % (uint64_t)series], (double)made);
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    double logged = now_s(CLOCK_MONOTONIC) - began;
    double own = now_s(CLOCK_THREAD_CPUTIME_ID);
    int flushed = telem_flush(120000);
    double all = now_s(CLOCK_MONOTONIC) - began;
    telem_counts counts = {.size = sizeof counts};
    telem_stats(&counts);
    printf("{\"flushed\": %s, \"logged_s\": %.3f, \"stored_s\": %.3f, \"own_cpu_s\": %.3f, \"cpu_s\": %.3f, "
           "\"taken\": %" PRIu64 ", \"stored\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"dropped_full\": %" PRIu64
           ", \"dropped_other\": %" PRIu64 "}\n",
           flushed == 0 ? "true" : "false", logged, all, own, now_s(CLOCK_PROCESS_CPUTIME_ID), counts.taken,
           counts.stored, counts.refused, counts.dropped_full, counts.dropped_other);
    return 0;
}
