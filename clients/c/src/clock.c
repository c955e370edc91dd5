/*
 * clock.c: from the CPU's counter to times.
 *
 * A sample carries ticks. The sender reads counter and clock together in each of its rounds, and places the samples
 * between two such moments on the line through both: what the clock was slewed by in between is in it. A clock that was
 * set in between makes that line wrong; then the later moment and the counter's own rate count.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool telem__has_counter;

/* Both belong to the sender, but for the first read at the start. */
static struct telem__moment before;
static struct telem__moment origin;
/* Bits of a double: nanoseconds a tick; 0 while not known. */
static _Atomic uint64_t rate_bits;

/* A clock is slewed by 500 millionths at most. */
static const double SLEW_MAX = 600e-6;
/* What reading two clocks one after the other may cost. */
static const double READ_NS = 5000.0;
static const int64_t SET_BACK_NS = 1000000000;

static double rate_of(uint64_t bits)
{
    double rate;
    memcpy(&rate, &bits, sizeof rate);
    return rate;
}

static void set_rate(double rate)
{
    uint64_t bits;
    memcpy(&bits, &rate, sizeof bits);
    atomic_store_explicit(&rate_bits, bits, memory_order_relaxed);
}

#if defined(__x86_64__)
/* Whether the kernel trusts the counter: it measures whether those of all cores agree. */
static bool kernel_trusts_counter(void)
{
    char name[32] = "";
    int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (file < 0) return true;
    ssize_t got = read(file, name, sizeof name - 1);
    close(file);
    if (got <= 0) return true;
    return strncmp(name, "tsc", 3) == 0 || strncmp(name, "kvm-clock", 9) == 0 || strncmp(name, "hyperv", 6) == 0;
}

static bool find_counter(void)
{
    unsigned a, b, c, d;
    bool is_invariant = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
    return is_invariant && kernel_trusts_counter();
}
#elif defined(__aarch64__)
static bool find_counter(void)
{
    return true;
}
#else
static bool find_counter(void)
{
    return false;
}
#endif

struct telem__moment telem__moment_now(void)
{
    struct telem__moment best = {0, 0, 0};
    uint64_t narrowest = UINT64_MAX;
    /* The narrowest of a few reads is one that was not interrupted. */
    for (int attempt = 0; attempt < 4; attempt++) {
        struct timespec real, monotonic;
        uint64_t first = telem__ticks();
        clock_gettime(CLOCK_REALTIME, &real);
        uint64_t second = telem__ticks();
        clock_gettime(CLOCK_MONOTONIC, &monotonic);
        uint64_t third = telem__ticks();
        if (third - first < narrowest) {
            narrowest = third - first;
            best.ticks = first + (second - first) / 2;
            best.real_ns = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec;
            best.monotonic_ns = (uint64_t)monotonic.tv_sec * 1000000000u + (uint64_t)monotonic.tv_nsec;
        }
    }
    return best;
}

void telem__clock_init(void)
{
    telem__has_counter = find_counter();
    if (!telem__has_counter) set_rate(1.0);
    before = origin = telem__moment_now();
}

/* The counter's own rate, from all the time since the start. */
static double follow_rate(const struct telem__moment *now)
{
    double known = rate_of(atomic_load_explicit(&rate_bits, memory_order_relaxed));
    if (!telem__has_counter) return known;
    double last_ticks = (double)(now->ticks - before.ticks);
    double last_ns = (double)(now->monotonic_ns - before.monotonic_ns);
    bool slept = known > 0 && last_ns > 1e6 && (last_ticks <= 0 || last_ns / last_ticks > known * 1.01 ||
                                                last_ns / last_ticks < known * 0.99);
    if (slept) {
        origin = *now;
        return known;
    }
    double ticks = (double)(now->ticks - origin.ticks);
    double ns = (double)(now->monotonic_ns - origin.monotonic_ns);
    if (ns < 1e6 || ticks <= 0) return known > 0 ? known : ns > 0 && ticks > 0 ? ns / ticks : 1.0;
    set_rate(ns / ticks);
    return ns / ticks;
}

struct telem__scale telem__clock_follow(bool *set_back)
{
    struct telem__moment now = telem__moment_now();
    double rate = follow_rate(&now);
    double ticks = (double)(int64_t)(now.ticks - before.ticks);
    double real_ns = (double)(now.real_ns - before.real_ns);
    double expected_ns = ticks * rate;
    double off_ns = real_ns - expected_ns;
    struct telem__scale scale = {now.ticks, now.real_ns, rate};
    bool was_set = off_ns > expected_ns * SLEW_MAX + READ_NS || -off_ns > expected_ns * SLEW_MAX + READ_NS;
    /* Over less than a millisecond, reading the clocks costs more than any slew. */
    if (!was_set && ticks > 0 && expected_ns > 1e6) scale.ns_a_tick = real_ns / ticks;
    *set_back = -off_ns >= (double)SET_BACK_NS;
    before = now;
    return scale;
}

/* While no sender has measured the rate, each asks by itself. */
static TELEM__COLD double first_rate(void)
{
    struct telem__moment now = telem__moment_now();
    double ticks = (double)(now.ticks - origin.ticks);
    double ns = (double)(now.monotonic_ns - origin.monotonic_ns);
    if (ticks <= 0) return 1.0;
    if (ns > 20e6) set_rate(ns / ticks);
    return ns / ticks;
}

double telem__seconds(uint64_t ticks)
{
    double rate = rate_of(atomic_load_explicit(&rate_bits, memory_order_relaxed));
    if (TELEM__RARELY(rate == 0)) rate = first_rate();
    return (double)ticks * rate * 1e-9;
}
