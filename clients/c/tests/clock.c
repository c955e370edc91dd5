/*
 * clock.c: a clock that is slewed or set, for programs that it is preloaded into: CLOCK_REALTIME runs faster by
 * CLOCK_SLEW_PPM, and is set by CLOCK_STEP_MS once the process is 250 ms old.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long real_ns(clockid_t id)
{
    struct timespec now;
    syscall(SYS_clock_gettime, id, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long began_ns;

__attribute__((constructor)) static void begin(void)
{
    began_ns = real_ns(CLOCK_MONOTONIC);
}

static double setting(const char *name)
{
    const char *text = getenv(name);
    return text ? atof(text) : 0;
}

int clock_gettime(clockid_t id, struct timespec *to)
{
    long long now = real_ns(id);
    if (id == CLOCK_REALTIME) {
        long long age = real_ns(CLOCK_MONOTONIC) - began_ns;
        now += (long long)((double)age * setting("CLOCK_SLEW_PPM") * 1e-6);
        if (age > 250000000) now += (long long)(setting("CLOCK_STEP_MS") * 1e6);
    }
    to->tv_sec = now / 1000000000;
    to->tv_nsec = now % 1000000000;
    return 0;
}
