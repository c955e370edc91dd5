/*
 * ticks.c: the clock of the C library of telem beside those of the system: `ticks` prints what it found.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 40 };

static void pause_ms(long ms)
{
    struct timespec pause = {0, ms * 1000000};
    nanosleep(&pause, NULL);
}

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* By how much the library's seconds differ from those of the system, in thousandths. */
static double off_by(long ms)
{
    uint64_t first = telem__ticks(), began_ns = telem__monotonic_ns();
    pause_ms(ms);
    uint64_t ended_ns = telem__monotonic_ns(), last = telem__ticks();
    double system_s = (double)(ended_ns - began_ns) * 1e-9;
    return (telem__seconds(last - first) - system_s) / system_s * 1e3;
}

int main(void)
{
    double off_us[ROUNDS];
    bool set_back, was_set_back = false;
    telem__clock_init();
    printf("has_counter %d\n", telem__has_counter);
    pause_ms(30);
    /* Before the sender has measured the rate, and then when it has. */
    printf("first_off_thousandths %.4f\n", off_by(300));
    struct telem__scale scale = telem__clock_follow(&set_back);
    printf("off_thousandths %.4f\n", off_by(300));
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec before, after;
        pause_ms(10);
        clock_gettime(CLOCK_REALTIME, &before);
        uint64_t ticks = telem__ticks();
        clock_gettime(CLOCK_REALTIME, &after);
        pause_ms(10);
        scale = telem__clock_follow(&set_back);
        was_set_back |= set_back;
        int64_t at_ns = telem__real_ns(&scale, ticks);
        int64_t before_ns = (int64_t)before.tv_sec * 1000000000 + before.tv_nsec;
        int64_t after_ns = (int64_t)after.tv_sec * 1000000000 + after.tv_nsec;
        int64_t off_ns = at_ns < before_ns ? before_ns - at_ns : at_ns > after_ns ? at_ns - after_ns : 0;
        off_us[i] = (double)off_ns * 1e-3;
    }
    qsort(off_us, ROUNDS, sizeof *off_us, by_size);
    printf("middle_off_us %.3f\nmost_off_us %.3f\n", off_us[ROUNDS / 2], off_us[ROUNDS - 1]);
    printf("was_set_back %d\n", was_set_back);
    printf("ns_a_tick %.6f\n", scale.ns_a_tick);
#if defined(__aarch64__)
    uint64_t hertz;
    __asm__("mrs %0, cntfrq_el0" : "=r"(hertz));
    printf("ns_a_tick_named %.6f\n", 1e9 / (double)hertz);
#endif
    return 0;
}
