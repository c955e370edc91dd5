/*
 * scenario.c: a program that does what its first argument says, and prints what became of its samples as JSON.
 * tests/py/test_c_client.py runs it against a real service and asks that service in SQL.
 */
#define _GNU_SOURCE
#include "telem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static void print_counts(FILE *to)
{
    telem_counts c = {.size = sizeof c};
    telem_stats(&c);
    fprintf(to,
            "{\"pid\": %ld, \"taken\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"stored\": %" PRIu64
            ", \"refused\": %" PRIu64 ", \"above_level\": %" PRIu64 ", \"dropped_full\": %" PRIu64
            ", \"dropped_unserved\": %" PRIu64 ", \"dropped_other\": %" PRIu64 ", \"connections\": %" PRIu64 "}\n",
            (long)getpid(), c.taken, c.sent, c.stored, c.refused, c.above_level, c.dropped_full, c.dropped_unserved,
            c.dropped_other, c.connections);
    fflush(to);
}

static void must(int is_so, const char *what)
{
    if (is_so) return;
    fprintf(stderr, "%s failed: %s; errno: %s\n", what, telem_error(), strerror(errno));
    exit(3);
}

static void flush(void)
{
    must(telem_flush(PATIENCE_MS) == 0, "telem_flush");
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void pause_us(long us)
{
    struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {}
}

/* ---- what is stored ---------------------------------------------------------------------------------------------- */

static int values(void)
{
    const int64_t t = INT64_C(1767322800000000);
    const double bounds[] = {0.1, 1, 10, 1e6};
    telem_about about = {sizeof about, "W", "How much.", 1};
    telem_gauge *gauge = telem_gauge_open_about("gauge", TELEM_TAGS("model", "a b", "z", "\xC3\xBC"), &about);
    must(gauge != NULL, "telem_gauge_open");
    must(gauge == telem_gauge_open("gauge", TELEM_TAGS("z", "\xC3\xBC", "model", "a_b")), "the same handle");
    telem_set_at(gauge, 0.1, t);
    telem_set_at(gauge, -1e300, t + 1);
    telem_set_int_at(gauge, INT64_MAX, t + 2);
    telem_set_int_at(gauge, INT64_MIN, t + 3);
    telem_set_at(gauge, INFINITY, t + 4);
    telem_set_at(gauge, NAN, t + 5);
    telem_set_at(gauge, 5e-324, t + 6);
    /* A microsecond that is taken. */
    telem_gauge *twice = telem_gauge_open("twice", NULL);
    for (int i = 0; i < 5; i++) telem_set_int_at(twice, i, t);
    telem_set_int_at(twice, 5, t + 2);
    /* In any order. */
    telem_gauge *back = telem_gauge_open("back", NULL);
    for (int i = 999; i >= 0; i--) telem_set_int_at(back, i, t + i);
    /* Steps, shared by metrics of one time. */
    telem_gauge *loss = telem_gauge_open("loss", NULL), *rate = telem_gauge_open("rate", NULL);
    for (int i = 0; i < 10; i++) {
        telem_set_step(loss, i * 0.5, i, t + i);
        telem_set_int_step(rate, i * 2, i, t + i);
    }
    telem_set_step(loss, 99, 10, 0);
    /* Names. */
    telem_set_int_at(telem_gauge_open("a name: with%all \xFF", TELEM_TAGS("k 1", "v=2")), 1, t);
    must(telem_gauge_open("", NULL) == NULL && strstr(telem_error(), "empty"), "an empty name");
    must(telem_gauge_open("x", TELEM_TAGS("k", "")) == NULL, "an empty value");
    must(telem_counter_open("gauge", TELEM_TAGS("model", "a b", "z", "\xC3\xBC")) == NULL, "two kinds of one name");
    must(strstr(telem_error(), "is open as a gauge") != NULL, "its reason");
    char long_name[600];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    must(telem_gauge_open(long_name, NULL) == NULL && strstr(telem_error(), "at most 512"), "a long name");
    must(telem_gauge_open_about("x", NULL, &(telem_about){sizeof about, NULL, NULL, 7}) == NULL, "level 7");
    /* Nothing of this is a sample. */
    telem_set(NULL, 1);
    telem_add(NULL, 1);
    telem_observe(NULL, 1);
    telem_span none = telem_begin(NULL);
    must(telem_end(&none) == 0.0 && telem_end(NULL) == 0.0, "the span of no timer");
    /* A time before 1970 is counted. */
    telem_set_at(back, 1, 0);
    telem_set_at(back, 1, -5);
    /* Totals. */
    telem_counter *counter = telem_counter_open("counter", NULL);
    for (int i = 0; i < 100; i++) telem_add(counter, (uint64_t)i);
    must(telem_total(counter) == 4950, "the total");
    telem_histogram *histogram = telem_histogram_open("seconds", TELEM_TAGS("of", "x"), bounds, 4);
    must(histogram == telem_histogram_open("seconds", TELEM_TAGS("of", "x"), bounds, 4), "the same histogram");
    must(telem_histogram_open("seconds", TELEM_TAGS("of", "x"), bounds, 3) == NULL, "other bounds");
    must(telem_histogram_open("wrong", NULL, (const double[]){1, 1}, 2) == NULL, "bounds that do not rise");
    telem_observe(histogram, 0.1);
    telem_observe(histogram, 0.5);
    telem_observe(histogram, 0.5);
    telem_observe(histogram, 11);
    telem_observe(histogram, 1e9);
    telem_observe(histogram, NAN);
    /* Of a level that the job does not keep. */
    telem_gauge *fine = telem_gauge_open_about("fine", NULL, &(telem_about){sizeof about, NULL, NULL, 4});
    for (int i = 0; i < 7; i++) telem_set(fine, i);
    telem_timer *timer = telem_timer_open("span", NULL);
    telem_span span = telem_begin(timer);
    pause_us(2000);
    double seconds = telem_end(&span);
    must(seconds >= 0.002 && seconds < 10, "the seconds of a span");
    must(telem_end(&span) == 0.0, "a span ends once");
    must(telem_note("begins", "a note") == 0, "telem_note");
    must(telem_setting("solver", "cg") == 0, "telem_setting");
    flush();
    for (int i = 0; i < 3; i++) telem_set(fine, i);
    must(telem_connected() == 1 && telem_level() == 1, "telem_connected");
    flush();
    print_counts(stdout);
    printf("%.17g\n", seconds);
    return 0;
}

/* Prints the moments between which each sample was taken. */
static int times(void)
{
    telem_gauge *gauge = telem_gauge_open("timed", NULL);
    flush();
    for (int i = 0; i < 300; i++) {
        int64_t before = now_us();
        telem_set_int(gauge, i);
        int64_t after = now_us();
        printf("%d %" PRId64 " %" PRId64 "\n", i, before, after);
        pause_us(i % 3 == 0 ? 5000 : 50);
    }
    flush();
    print_counts(stdout);
    return 0;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static telem_gauge *shared_gauge;
static telem_counter *shared_counter;
static telem_histogram *shared_histogram;
static telem_timer *shared_timer;
static int calls;

static void *hammer(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "%d", (int)(intptr_t)number);
    telem_gauge *own = telem_gauge_open("own", TELEM_TAGS("thread", name));
    for (int i = 0; i < calls; i++) {
        telem_set_int(own, i);
        telem_set_int(shared_gauge, i);
        telem_add(shared_counter, 1);
        telem_observe(shared_histogram, i % 3);
        telem_span span = telem_begin(shared_timer);
        telem_end(&span);
        if (i % 100 == 99) pause_us(1000);
    }
    return NULL;
}

static void open_shared(void)
{
    shared_gauge = telem_gauge_open("shared", NULL);
    shared_counter = telem_counter_open("adds", NULL);
    shared_histogram = telem_histogram_open("spread", NULL, (const double[]){0, 1}, 2);
    shared_timer = telem_timer_open("spans", NULL);
    must(shared_gauge && shared_counter && shared_histogram && shared_timer, "opening");
}

/* In rounds, so that threads end and others take their rings. */
static int threads(int count, int of_each)
{
    calls = of_each;
    open_shared();
    for (int round = 0; round < 2; round++) {
        pthread_t running[64];
        for (int i = 0; i < count; i++)
            must(pthread_create(&running[i], NULL, hammer, (void *)(intptr_t)(round * count + i)) == 0, "a thread");
        for (int i = 0; i < count; i++) pthread_join(running[i], NULL);
    }
    must(telem_total(shared_counter) == (uint64_t)(2 * count * of_each), "the total");
    flush();
    print_counts(stdout);
    return 0;
}

/* A counter that several threads add to while another reads it. */
static void *only_add(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < calls; i++) telem_add(shared_counter, 3);
    return NULL;
}

static int adds(int count, int of_each)
{
    pthread_t running[64];
    calls = of_each;
    open_shared();
    for (int i = 0; i < count; i++) pthread_create(&running[i], NULL, only_add, NULL);
    for (uint64_t before = 0, now = 0; now < (uint64_t)(3 * count) * (uint64_t)of_each; before = now) {
        now = telem_total(shared_counter);
        must(now >= before && now % 3 == 0, "a total that grows");
    }
    for (int i = 0; i < count; i++) pthread_join(running[i], NULL);
    flush();
    print_counts(stdout);
    return 0;
}

static volatile sig_atomic_t signals_seen;

static void on_alarm(int signal)
{
    (void)signal;
    int before = errno;
    signals_seen++;
    telem_set_int(shared_gauge, -signals_seen);
    telem_add(shared_counter, 1);
    telem_observe(shared_histogram, 1);
    errno = before;
}

static int signals(void)
{
    open_shared();
    flush();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &every, NULL);
    uint64_t made = 0;
    while (signals_seen < 1000) {
        for (int i = 0; i < 20; i++, made++) {
            telem_set_int(shared_gauge, (int64_t)made);
            telem_add(shared_counter, 1);
        }
        pause_us(10);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    must(telem_total(shared_counter) == made + (uint64_t)signals_seen, "the total");
    flush();
    printf("%" PRIu64 "\n", made + (uint64_t)signals_seen);
    print_counts(stdout);
    return 0;
}

/* ---- lives and ends ---------------------------------------------------------------------------------------------- */

static void log_some(const char *metric, int count)
{
    telem_gauge *gauge = telem_gauge_open(metric, NULL);
    telem_counter *counter = telem_counter_open("lived", NULL);
    for (int i = 0; i < count; i++) {
        telem_set_int(gauge, i);
        telem_add(counter, 1);
    }
}

static int leave(const char *how)
{
    log_some("left", 1000);
    if (strcmp(how, "exit") == 0) exit(0);
    if (strcmp(how, "_exit") == 0) _exit(0);
    if (strcmp(how, "flush_exit") == 0) {
        flush();
        _exit(0);
    }
    if (strcmp(how, "stop") == 0) {
        telem_stop(PATIENCE_MS);
        log_some("left", 1000);
        print_counts(stdout);
    }
    return 0;
}

static int fork_some(void)
{
    log_some("forked", 1000);
    /* What the parent has not sent yet is its own. */
    for (int child = 0; child < 3; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            log_some("forked", 100 + child);
            if (child == 2) {
                pid_t grandchild = fork();
                if (grandchild == 0) {
                    log_some("forked", 10);
                    flush();
                    print_counts(stdout);
                    exit(0);
                }
                waitpid(grandchild, NULL, 0);
            }
            flush();
            print_counts(stdout);
            exit(0);
        }
    }
    while (wait(NULL) > 0 || errno == EINTR) {}
    /* A child that says nothing has no thread and no connection. */
    if (fork() == 0) {
        print_counts(stdout);
        exit(0);
    }
    wait(NULL);
    flush();
    print_counts(stdout);
    return 0;
}

static void *fork_in_a_loop(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            telem_set(shared_gauge, i);
            telem_add(shared_counter, 1);
            _exit(telem_flush(PATIENCE_MS) == 0 ? 0 : 1);
        }
        int status = 1;
        waitpid(pid, &status, 0);
        must(status == 0, "a child");
    }
    return NULL;
}

/* Forks while other threads log. */
static int fork_busy(void)
{
    pthread_t running[3];
    calls = 2000;
    open_shared();
    for (int i = 0; i < 2; i++) pthread_create(&running[i], NULL, hammer, (void *)(intptr_t)i);
    pthread_create(&running[2], NULL, fork_in_a_loop, NULL);
    for (int i = 0; i < 3; i++) pthread_join(running[i], NULL);
    flush();
    print_counts(stdout);
    return 0;
}

/* Children that were forked before the first metric: all have the rank of their parent. */
static int fork_first(void)
{
    for (int child = 0; child < 2; child++)
        if (fork() == 0) {
            log_some("forked_first", 10);
            flush();
            print_counts(stdout);
            exit(0);
        }
    while (wait(NULL) > 0 || errno == EINTR) {}
    return 0;
}

/* Children that no handler of fork knows of end as they wish. */
static int fork_bare(void)
{
    log_some("forked_bare", 100);
    flush();
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        log_some("forked_bare", 10);
        must(telem_flush(PATIENCE_MS) == -1, "a flush that cannot be");
        exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    must(status == 0, "a child");
    log_some("forked_bare", 100);
    flush();
    print_counts(stdout);
    return 0;
}

static void *ask_in_vain(void *nothing)
{
    double number;
    (void)nothing;
    telem_sql_number("SELECT 1", PATIENCE_MS, &number);
    return NULL;
}

/* Forks while a question waits for its answer: how many sockets the child has. */
static int fork_asking(void)
{
    pthread_t asking;
    char byte;
    log_some("asking", 1);
    must(pthread_create(&asking, NULL, ask_in_vain, NULL) == 0, "a thread");
    must(read(STDIN_FILENO, &byte, 1) == 1, "a line");
    pid_t child = fork();
    if (child == 0) {
        int sockets = 0;
        struct stat found;
        for (int fd = 3; fd < 1024; fd++) sockets += fstat(fd, &found) == 0 && S_ISSOCK(found.st_mode);
        printf("%d\n", sockets);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    _exit(0);
}

/* The last word is a thread's, not that of `main`: the process ends with it. */
static void *outlive(void *first)
{
    must(pthread_join(*(pthread_t *)first, NULL) == 0, "the end of main");
    log_some("outlived", 100);
    return NULL;
}

static int main_ends(void)
{
    static pthread_t first, other;
    first = pthread_self();
    log_some("outlived", 100);
    must(pthread_create(&other, NULL, outlive, &first) == 0, "a thread");
    pthread_exit(NULL);
}

static pthread_key_t at_the_end;

static void log_at_the_end(void *gauge)
{
    telem_set_int(gauge, 2);
}

static void *log_and_end(void *gauge)
{
    pthread_setspecific(at_the_end, gauge);
    telem_set_int(gauge, 1);
    return NULL;
}

/* Threads that end with samples in their rings, and log in their destructors, too. */
static int thread_ends(int count)
{
    telem_gauge *gauge = telem_gauge_open("ended", NULL);
    pthread_key_create(&at_the_end, log_at_the_end);
    for (int i = 0; i < count; i++) {
        pthread_t one;
        must(pthread_create(&one, NULL, log_and_end, gauge) == 0, "a thread");
        pthread_join(one, NULL);
    }
    flush();
    print_counts(stdout);
    return 0;
}

static void *set_for_ever(void *gauge)
{
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    while (gauge) telem_set_int(gauge, 1);
    return NULL;
}

static void *set_some(void *gauge)
{
    for (int i = 0; i < 100; i++) telem_set_int(gauge, i);
    return NULL;
}

/* Threads that are cancelled anywhere in a sample: those after them get their rings. */
static int cancel(void)
{
    enum { THREADS = 40 };
    pthread_t running[THREADS];
    telem_gauge *gauge = telem_gauge_open("before_cancel", NULL), *after = telem_gauge_open("after_cancel", NULL);
    for (int i = 0; i < THREADS; i++) {
        must(pthread_create(&running[i], NULL, set_for_ever, gauge) == 0, "a thread");
        pause_us(1000);
        pthread_cancel(running[i]);
        pthread_join(running[i], NULL);
    }
    /* The first finds the rings empty, the second gives them away. */
    for (int i = 0; i < 2; i++) flush();
    for (int i = 0; i < THREADS; i++) must(pthread_create(&running[i], NULL, set_some, after) == 0, "a thread");
    for (int i = 0; i < THREADS; i++) pthread_join(running[i], NULL);
    flush();
    print_counts(stdout);
    return 0;
}

static void end_process(int signal)
{
    (void)signal;
    exit(0);
}

/* A handler that ends the process interrupts a call that has a lock. */
static int handler_exits(void)
{
    telem_counts counts = {.size = sizeof counts};
    log_some("handled", 10);
    signal(SIGALRM, end_process);
    struct itimerval once = {{0, 0}, {0, 20000}};
    setitimer(ITIMER_REAL, &once, NULL);
    while (counts.taken > 0 || counts.size > 0) telem_stats(&counts);
    return 4;
}

/* Totals that were said long before the service came, and much after them that had no room. */
static int outage(int count)
{
    telem_counter *counter = telem_counter_open("total_of_outage", NULL);
    telem_histogram *histogram = telem_histogram_open("spread_of_outage", NULL, (const double[]){1}, 1);
    telem_gauge *gauge = telem_gauge_open("outage", NULL);
    telem_counts counts = {.size = sizeof counts};
    char byte;
    telem_add(counter, 1000);
    telem_observe(histogram, 0.5);
    while (counts.taken < 5) {
        pause_us(1000);
        telem_stats(&counts);
    }
    for (int i = 0; i < count; i++) {
        telem_set_int(gauge, i);
        if (i % 5000 == 4999) pause_us(10000);
    }
    printf("logged\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    flush();
    print_counts(stdout);
    return 0;
}

/* Whose words are heard last: those of the service, of a call, of the service again. */
static int words(void)
{
    char last[600] = "";
    for (int i = 0; i < 2; i++) {
        telem_set_at(telem_gauge_open("word", NULL), 1, INT64_C(7258118400000000) + i * 1000000);
        /* Refusals of one series are told once a second. */
        for (int64_t begin = now_us(); strcmp(telem_error(), last) == 0 && now_us() - begin < PATIENCE_MS * 1000;)
            pause_us(10000);
        printf("%s\n", telem_error());
        must(telem_gauge_open("", NULL) == NULL, "an empty name");
        snprintf(last, sizeof last, "%s", telem_error());
        printf("%s\n", last);
    }
    return 0;
}

/* The service hangs up with a reason: that of the flush, and that. */
static int last_words(void)
{
    log_some("last_words", 10);
    must(telem_flush(2000) == -1, "a flush that fails");
    printf("%s\n", telem_error());
    printf("%s\n", telem_error());
    fflush(stdout);
    _exit(0);
}

/* The file that names the service cannot be read, and nothing here waits for it. */
static int hang(void)
{
    log_some("hang", 100);
    if (fork() == 0) _exit(0);
    wait(NULL);
    must(telem_flush(100) == -1, "a flush that fails");
    print_counts(stdout);
    return 0;
}

static int steal(void)
{
    log_some("stolen", 10);
    flush();
    log_some("stolen", 100);
    setenv("STEAL", "1", 1);
    for (int i = 0; i < 5; i++) flush();
    print_counts(stdout);
    return 0;
}

static int exec_self(const char *self)
{
    log_some("before_exec", 500);
    flush();
    execl(self, self, "leave", "return", (char *)NULL);
    return 4;
}

static int close_all(const char *path)
{
    log_some("closing", 100);
    flush();
    for (int fd = 3; fd < 1024; fd++) close(fd);
    /* The program opens a file under every number that the library may have had. */
    int files[300];
    for (int i = 0; i < 300; i++) files[i] = open(path, O_CREAT | O_RDWR | O_APPEND, 0600);
    log_some("closing", 100);
    flush();
    for (int i = 0; i < 300; i++) must(fcntl(files[i], F_GETFD) >= 0, "a file that stays open");
    struct stat found;
    must(fstat(files[0], &found) == 0 && found.st_size == 0, "a file that nobody wrote to");
    print_counts(stdout);
    return 0;
}

static int go_daemon(const char *path)
{
    log_some("daemon", 100);
    if (fork() != 0) _exit(0);
    setsid();
    if (fork() != 0) _exit(0);
    for (int fd = 0; fd < 1024; fd++) close(fd);
    must(chdir("/") == 0, "chdir");
    /* The first file that it opens gets the number 0. */
    FILE *to = fopen(path, "w");
    log_some("daemon", 50);
    flush();
    print_counts(to);
    fclose(to);
    return 0;
}

static int overrun(void)
{
    telem_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.ring_samples = 100;
    must(telem_start(&options) == 0, "telem_start");
    must(telem_start(&options) == -1, "a second telem_start");
    telem_gauge *gauge = telem_gauge_open("overrun", NULL);
    for (int i = 0; i < 200000; i++) telem_set_int(gauge, i);
    flush();
    print_counts(stdout);
    return 0;
}

/* Logs until its input ends, whatever becomes of the service. */
static int run_on(void)
{
    telem_gauge *gauge = telem_gauge_open("run", NULL);
    telem_counter *counter = telem_counter_open("runs", NULL);
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    char byte;
    for (int64_t i = 0; read(STDIN_FILENO, &byte, 1) != 0; i++) {
        telem_set_int(gauge, i);
        telem_add(counter, 1);
        if (i == 100) {
            printf("runs\n");
            fflush(stdout);
        }
        pause_us(500);
    }
    int done = telem_flush(PATIENCE_MS);
    print_counts(stdout);
    printf("%d %d %" PRIu64 "\n", done, telem_connected(), telem_total(counter));
    return 0;
}

/* More than the library keeps, while the service does not move: it goes on when the input ends. */
static int stalled(int count)
{
    telem_gauge *gauge = telem_gauge_open("stalled", NULL);
    char byte;
    flush();
    printf("ready\n");
    fflush(stdout);
    must(read(STDIN_FILENO, &byte, 1) == 1, "a line");
    for (int i = 0; i < count; i++) {
        telem_set_int(gauge, i);
        if (i % 5000 == 4999) pause_us(10000);
    }
    printf("logged\n");
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {}
    flush();
    print_counts(stdout);
    return 0;
}

/* What the service does not take is counted, and its reason can be read. */
static int refused(void)
{
    telem_gauge *gauge = telem_gauge_open("refused", NULL);
    for (int i = 0; i < 10; i++) telem_set_at(gauge, i, INT64_C(7258118400000000) + i);
    telem_set(gauge, 1);
    telem_flush(PATIENCE_MS);
    print_counts(stdout);
    printf("%s\n", telem_error());
    return 0;
}

/* Nobody is there: each call is counted, and none waits. */
static int alone(void)
{
    log_some("alone", 1000);
    int64_t before = now_us();
    int done = telem_flush(30000);
    int64_t waited = now_us() - before;
    printf("%d %d %" PRId64 " %s\n", done, telem_connected(), waited, telem_error());
    telem_stop(1000);
    print_counts(stdout);
    return 0;
}

static int count_threads(void)
{
    log_some("alone", 10);
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "Threads:", 8) == 0) printf("%s", line + 8);
    if (status) fclose(status);
    return 0;
}

/* So many samples a second, of a few series, for a while; `code` is how it ends. What is refused is flushed, too. */
static int steady(int per_second, int ms, int code)
{
    telem_gauge *gauges[4];
    for (int i = 0; i < 4; i++) {
        const char part[] = {(char)('a' + i), 0};
        gauges[i] = telem_gauge_open("steady", TELEM_TAGS("part", part));
    }
    telem_counter *counter = telem_counter_open("steadies", NULL);
    int64_t begin = now_us(), made = 0, wanted = (int64_t)per_second * ms / 1000;
    while (made < wanted) {
        int64_t due = (now_us() - begin) * per_second / 1000000;
        for (; made < due && made < wanted; made++) {
            telem_set_int(gauges[made % 4], made);
            telem_add(counter, 1);
        }
        pause_us(1000);
    }
    must(telem_flush(PATIENCE_MS) == 0 || code != 0, "telem_flush");
    print_counts(stdout);
    return code;
}

static int count_row(void *context, size_t count, const char *const *columns, const telem_value *values)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        const telem_value *v = &values[i];
        printf("%s%s=", i ? " " : "", columns[i]);
        switch (v->type) {
        case TELEM_NULL: printf("NULL"); break;
        case TELEM_BOOL: printf("%s", v->as.boolean ? "true" : "false"); break;
        case TELEM_INT: printf("%" PRId64, v->as.integer); break;
        case TELEM_UINT: printf("%" PRIu64 "u", v->as.natural); break;
        case TELEM_FLOAT: printf("%g", v->as.real); break;
        case TELEM_TEXT: printf("'%s'%zu", v->as.text, v->bytes); break;
        case TELEM_TIME: printf("@%" PRId64, v->as.integer); break;
        }
    }
    printf("\n");
    return 0;
}

static void *ask_often(void *nothing)
{
    (void)nothing;
    for (int i = 0; i < 10; i++) {
        double number = -1;
        must(telem_sql_number("SELECT count(*) FROM asked", PATIENCE_MS, &number) == 0 && number == 3, "a question");
    }
    return NULL;
}

static int ask(const char *sql)
{
    telem_gauge *gauge = telem_gauge_open("asked", TELEM_TAGS("name", "x"));
    for (int i = 0; i < 3; i++) telem_set_at(gauge, i * 1.5, INT64_C(1767322800000000) + i);
    /* What was logged before is in the answer. */
    int64_t rows = telem_sql_rows(sql, PATIENCE_MS, count_row, NULL);
    printf("%" PRId64 " rows\n", rows);
    if (rows < 0) printf("%s\n", telem_error());
    pthread_t running[4];
    for (int i = 0; i < 4; i++) pthread_create(&running[i], NULL, ask_often, NULL);
    for (int i = 0; i < 4; i++) pthread_join(running[i], NULL);
    struct ArrowArrayStream stream;
    must(telem_sql("SELECT * FROM asked", PATIENCE_MS, &stream) == 0, "telem_sql");
    struct ArrowSchema schema;
    struct ArrowArray array;
    must(stream.get_schema(&stream, &schema) == 0, "a schema");
    must(stream.get_next(&stream, &array) == 0 && array.release && array.length == 3, "a batch");
    /* Batches may outlive their stream. */
    stream.release(&stream);
    array.release(&array);
    schema.release(&schema);
    must(telem_sql("SELECT * FROM", PATIENCE_MS, &stream) == -1 && stream.release == NULL, "a wrong question");
    printf("%s\n", telem_error());
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *more = argc > 2 ? argv[2] : "";
    int first = atoi(more), second = argc > 3 ? atoi(argv[3]) : 0;
    if (strcmp(what, "values") == 0) return values();
    if (strcmp(what, "times") == 0) return times();
    if (strcmp(what, "threads") == 0) return threads(first, second);
    if (strcmp(what, "adds") == 0) return adds(first, second);
    if (strcmp(what, "signals") == 0) return signals();
    if (strcmp(what, "leave") == 0) return leave(more);
    if (strcmp(what, "fork") == 0) return fork_some();
    if (strcmp(what, "fork_busy") == 0) return fork_busy();
    if (strcmp(what, "fork_first") == 0) return fork_first();
    if (strcmp(what, "fork_bare") == 0) return fork_bare();
    if (strcmp(what, "fork_asking") == 0) return fork_asking();
    if (strcmp(what, "main_ends") == 0) return main_ends();
    if (strcmp(what, "thread_ends") == 0) return thread_ends(first);
    if (strcmp(what, "cancel") == 0) return cancel();
    if (strcmp(what, "handler_exits") == 0) return handler_exits();
    if (strcmp(what, "outage") == 0) return outage(first);
    if (strcmp(what, "words") == 0) return words();
    if (strcmp(what, "last_words") == 0) return last_words();
    if (strcmp(what, "hang") == 0) return hang();
    if (strcmp(what, "steal") == 0) return steal();
    if (strcmp(what, "exec") == 0) return exec_self(argv[0]);
    if (strcmp(what, "close_all") == 0) return close_all(more);
    if (strcmp(what, "daemon") == 0) return go_daemon(more);
    if (strcmp(what, "overrun") == 0) return overrun();
    if (strcmp(what, "run") == 0) return run_on();
    if (strcmp(what, "stalled") == 0) return stalled(first);
    if (strcmp(what, "refused") == 0) return refused();
    if (strcmp(what, "alone") == 0) return alone();
    if (strcmp(what, "threads_of_process") == 0) return count_threads();
    if (strcmp(what, "steady") == 0) return steady(first, second, argc > 4 ? atoi(argv[4]) : 0);
    if (strcmp(what, "ask") == 0) return ask(more);
    fprintf(stderr, "unknown: %s\n", what);
    return 2;
}
