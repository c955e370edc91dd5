/*
 * scenario.c: what tests/py/test_proxy_client.py does with the library: `scenario NAME ARGUMENT...`.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "metric_proxy_client.h"

static struct MetricProxyClient *client;

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct MetricProxyValue *counter(const char *name)
{
    struct MetricProxyValue *made = metric_proxy_counter_new(client, name, "of a test");
    if (!made) {
        fprintf(stderr, "no counter %s\n", name);
        exit(2);
    }
    return made;
}

/* Blocks until the test says so. */
static void await_word(const char *said)
{
    char line[64];
    printf("%s\n", said);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(3);
}

static int session(void)
{
    client = metric_proxy_init();
    struct MetricProxyValue *plain =
        metric_proxy_counter_new(client, "wire_counter", "A \"quoted\" doc \\ with\ttabs,\nlines, \x01 and \xc3\xa9");
    struct MetricProxyValue *gauge = metric_proxy_gauge_new(client, "wire_gauge{rank=\"0\"}", "gauge doc");
    metric_proxy_counter_inc(plain, 1.25);
    metric_proxy_counter_inc(plain, 2.25);
    metric_proxy_gauge_set(gauge, 3);
    metric_proxy_gauge_set(gauge, 7);
    return metric_proxy_release(client);
}

static int numbers(int count, char **texts)
{
    client = metric_proxy_init();
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "number_%d", i);
        if (metric_proxy_counter_inc(counter(name), strtod(texts[i], NULL)) != 0) return 4;
    }
    return metric_proxy_release(client);
}

static int limits(void)
{
    char name[1602], *doc = malloc(10000);
    client = metric_proxy_init();
    if (metric_proxy_init() != client) return 4;
    struct MetricProxyValue *one = counter("one"), *gauge = metric_proxy_gauge_new(client, "gauge", "");
    if (counter("one") != one || metric_proxy_gauge_new(client, "one", "other") != one) return 5;
    if (metric_proxy_counter_new(NULL, "a", "b") || metric_proxy_counter_new(client, NULL, "b")) return 6;
    if (metric_proxy_counter_new(client, "a", NULL) || metric_proxy_counter_new(client, "", "b")) return 7;
    if (metric_proxy_counter_new(client, "a\xff", "b") || metric_proxy_counter_new(client, "a", "\xed\xa0\x80")) return 8;
    if (metric_proxy_counter_inc(NULL, 1) != 1 || metric_proxy_counter_inc(gauge, 1) != 1) return 9;
    if (metric_proxy_gauge_set(NULL, 1) != 1 || metric_proxy_gauge_set(one, 1) != 1) return 10;
    if (metric_proxy_counter_inc(one, NAN) != 1 || metric_proxy_counter_inc(one, INFINITY) != 1) return 11;
    if (metric_proxy_gauge_set(gauge, NAN) != 1 || metric_proxy_gauge_set(gauge, -INFINITY) != 1) return 12;
    memset(name, 'n', sizeof name);
    name[1601] = 0;
    if (metric_proxy_counter_new(client, name, "too long")) return 13;
    name[1600] = 0;
    /* Two bytes each, so that the limit is in the middle of one. */
    for (int i = 0; i < 9998; i += 2) memcpy(doc + i, "\xc3\xa9", 2);
    doc[9998] = 0;
    memmove(doc + 1, doc, 9999 - 1);
    doc[0] = 'x';
    doc[9998] = 0;
    doc[9997] = 0;
    if (!metric_proxy_counter_new(client, name, doc)) return 14;
    metric_proxy_counter_inc(one, 1.7e308);
    metric_proxy_counter_inc(one, 1.7e308);
    metric_proxy_gauge_set(gauge, 0);
    free(doc);
    int first = metric_proxy_release(client), last = metric_proxy_release(client);
    return metric_proxy_release(NULL) == 1 ? first + last : 15;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static struct MetricProxyValue *shared, *fraction;
static int rounds;
static pthread_barrier_t together;

static void *add(void *argument)
{
    char name[32];
    snprintf(name, sizeof name, "own_%d", (int)(intptr_t)argument);
    struct MetricProxyValue *own = counter(name);
    pthread_barrier_wait(&together);
    for (int i = 0; i < rounds; i++) {
        metric_proxy_counter_inc(shared, 1);
        metric_proxy_counter_inc(fraction, i % 2 ? -0.25 : 0.5);
        metric_proxy_counter_inc(own, 2);
    }
    return NULL;
}

static int threads(int count, int each)
{
    pthread_t running[64];
    client = metric_proxy_init();
    shared = counter("shared");
    fraction = counter("fraction");
    rounds = each;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) pthread_create(&running[i], NULL, add, (void *)(intptr_t)i);
    for (int i = 0; i < count; i++) pthread_join(running[i], NULL);
    return metric_proxy_release(client);
}

/* ---- the server comes and goes ----------------------------------------------------------------------------------- */

static int steps(void)
{
    client = metric_proxy_init();
    struct MetricProxyValue *one = counter("steps"), *gauge = metric_proxy_gauge_new(client, "level", "");
    metric_proxy_gauge_set(gauge, 4);
    metric_proxy_counter_inc(one, 1);
    await_word("one");
    metric_proxy_counter_inc(one, 10);
    await_word("two");
    metric_proxy_counter_inc(counter("late"), 5);
    metric_proxy_counter_inc(one, -100);
    await_word("three");
    return metric_proxy_release(client);
}

/* A server that does not read: the program goes on, and what it counts is kept. */
static int stalled(int values, int each)
{
    client = metric_proxy_init();
    struct MetricProxyValue **all = calloc((size_t)values, sizeof *all);
    for (int i = 0; i < values; i++) {
        char name[32];
        snprintf(name, sizeof name, "stalled_%d", i);
        all[i] = counter(name);
    }
    await_word("declared");
    double began = seconds(CLOCK_MONOTONIC), longest = 0;
    for (int turn = 0; turn < each; turn++)
        for (int i = 0; i < values; i++) {
            double before = seconds(CLOCK_MONOTONIC);
            metric_proxy_counter_inc(all[i], 1);
            double took = seconds(CLOCK_MONOTONIC) - before;
            if (took > longest) longest = took;
        }
    printf("%.6f %.6f\n", seconds(CLOCK_MONOTONIC) - began, longest);
    await_word("counted");
    began = seconds(CLOCK_MONOTONIC);
    int result = metric_proxy_release(client);
    printf("%d %.3f\n", result, seconds(CLOCK_MONOTONIC) - began);
    free(all);
    return 0;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static int forks(void)
{
    int status, result = 0;
    client = metric_proxy_init();
    struct MetricProxyValue *one = counter("forked"), *gauge = metric_proxy_gauge_new(client, "gauge", "");
    metric_proxy_gauge_set(gauge, 1);
    metric_proxy_counter_inc(one, 1000);
    /* One that counts and exits, one that says nothing, one that runs another program. */
    if (fork() == 0) {
        metric_proxy_counter_inc(one, 1);
        metric_proxy_counter_inc(counter("of_child"), 7);
        exit(0);
    }
    if (fork() == 0) exit(0);
    if (fork() == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(9);
    }
    if (fork() == 0) {
        metric_proxy_counter_inc(one, 100);
        _exit(metric_proxy_release(client));
    }
    metric_proxy_counter_inc(one, 10);
    while (wait(&status) > 0) result |= status;
    return result ? 20 : metric_proxy_release(client);
}

static void *add_for_ever(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) metric_proxy_counter_inc(shared, 1);
    return NULL;
}

static int fork_busy(int children)
{
    pthread_t running[3];
    int stop = 0, status, result = 0;
    client = metric_proxy_init();
    shared = counter("shared");
    for (int i = 0; i < 3; i++) pthread_create(&running[i], NULL, add_for_ever, &stop);
    for (int i = 0; i < children; i++) {
        if (fork() == 0) {
            char name[32];
            snprintf(name, sizeof name, "child_%d", i);
            metric_proxy_counter_inc(counter(name), i + 1);
            exit(0);
        }
        wait(&status);
        result |= status;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) pthread_join(running[i], NULL);
    return result ? 20 : metric_proxy_release(client);
}

/* Does not release: what was counted is sent at the end of the process. */
static int leave(const char *how)
{
    client = metric_proxy_init();
    metric_proxy_counter_inc(counter("left"), 3);
    if (strcmp(how, "_exit") == 0) _exit(7);
    if (strcmp(how, "exit") == 0) exit(7);
    return 7;
}

static int close_all(const char *path)
{
    client = metric_proxy_init();
    struct MetricProxyValue *one = counter("closing");
    metric_proxy_counter_inc(one, 1);
    await_word("open");
    FILE *files[32];
    for (int fd = 3; fd < 1024; fd++) close(fd);
    for (int i = 0; i < 32; i++) files[i] = fopen(path, "a");
    dup2(fileno(files[0]), 200);
    metric_proxy_counter_inc(one, 2);
    return metric_proxy_release(client);
}

static int again(void)
{
    for (int i = 0; i < 3; i++) {
        client = metric_proxy_init();
        metric_proxy_counter_inc(counter("again"), 1);
        if (metric_proxy_release(client)) return 4;
    }
    return 0;
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static double cpu_of_process(void)
{
    return seconds(CLOCK_PROCESS_CPUTIME_ID);
}

/* Short turns and many of them: on a machine with other work the shortest is one that nothing interrupted. */
enum { CALLS = 500000, TURNS = 150, CALLS_TOGETHER = 20000000 };

static void *add_to_shared(void *unused)
{
    for (int i = 0; i < CALLS_TOGETHER / 4; i++) metric_proxy_counter_inc(shared, 1);
    return unused;
}

/* Processor time of an addition where four threads add to one counter. */
static double cost_together(void)
{
    pthread_t running[4];
    shared = counter("cost_shared");
    double began = cpu_of_process();
    for (int i = 0; i < 4; i++) pthread_create(&running[i], NULL, add_to_shared, NULL);
    for (int i = 0; i < 4; i++) pthread_join(running[i], NULL);
    return (cpu_of_process() - began) / CALLS_TOGETHER;
}

/* A function of another library that does nearly nothing: no call takes less. By this name a compiler calls it. */
extern int least_call(int number) __asm__("toascii");

/* What a call takes in this turn, if that is less than `best`. */
#define KEEP_LEAST(best, call)                                                      \
    do {                                                                            \
        double began = seconds(CLOCK_THREAD_CPUTIME_ID);                            \
        for (int i = 0; i < CALLS; i++) call;                                       \
        double took = (seconds(CLOCK_THREAD_CPUTIME_ID) - began) / CALLS;           \
        if (took < best) best = took;                                               \
    } while (0)

static int cost(int values)
{
    client = metric_proxy_init();
    struct MetricProxyValue *one = counter("cost"), *gauge = metric_proxy_gauge_new(client, "cost_gauge", "");
    struct MetricProxyValue *eight[8];
    double best = 1, best_other = 1, best_eight = 1, best_set = 1, best_call = 1;
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "cost_%d", i);
        eight[i] = counter(name);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        KEEP_LEAST(best_call, least_call(i));
        KEEP_LEAST(best, metric_proxy_counter_inc(one, 1));
        KEEP_LEAST(best_eight, metric_proxy_counter_inc(eight[i % 8], 1));
        KEEP_LEAST(best_other, metric_proxy_counter_inc(one, 2.5));
        KEEP_LEAST(best_set, metric_proxy_gauge_set(gauge, i));
    }
    printf("least_call_ns %.2f\ncounter_inc_of_8_in_turn_ns %.2f\n", best_call * 1e9, best_eight * 1e9);
    printf("counter_inc_ns %.2f\ncounter_inc_of_other_than_one_ns %.2f\n", best * 1e9, best_other * 1e9);
    printf("gauge_set_ns %.2f\n", best_set * 1e9);
    printf("counter_inc_of_4_threads_ns %.2f\n", cost_together() * 1e9);
    struct MetricProxyValue **all = calloc((size_t)values, sizeof *all);
    double began = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < values; i++) {
        char name[64];
        snprintf(name, sizeof name, "flushed_total{number=\"%d\",rank=\"0\"}", i);
        all[i] = counter(name);
    }
    printf("counter_new_us %.3f\n", (seconds(CLOCK_MONOTONIC) - began) / values * 1e6);
    await_word("declared");
    for (int i = 0; i < values; i++) metric_proxy_counter_inc(all[i], i % 2 ? i : i + 0.1 * i / 3);
    double cpu = cpu_of_process();
    began = seconds(CLOCK_MONOTONIC);
    int result = metric_proxy_release(client);
    printf("flush_ms %.3f\nflush_cpu_ms %.3f\n", (seconds(CLOCK_MONOTONIC) - began) * 1e3,
           (cpu_of_process() - cpu) * 1e3);
    free(all);
    return result;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int first = argc > 2 ? atoi(argv[2]) : 0, second = argc > 3 ? atoi(argv[3]) : 0;
    if (!strcmp(what, "session")) return session();
    if (!strcmp(what, "numbers")) return numbers(argc - 2, argv + 2);
    if (!strcmp(what, "limits")) return limits();
    if (!strcmp(what, "threads")) return threads(first, second);
    if (!strcmp(what, "steps")) return steps();
    if (!strcmp(what, "stalled")) return stalled(first, second);
    if (!strcmp(what, "forks")) return forks();
    if (!strcmp(what, "fork_busy")) return fork_busy(first);
    if (!strcmp(what, "leave") && argc > 2) return leave(argv[2]);
    if (!strcmp(what, "close_all") && argc > 2) return close_all(argv[2]);
    if (!strcmp(what, "again")) return again();
    if (!strcmp(what, "cost")) return cost(first);
    fprintf(stderr, "scenario: no '%s'\n", what);
    return 64;
}
