/*
 * life.c: how the library starts, flushes, stops, and is forked.
 */
#include "work.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much later than its deadline the thread may end before it is left behind. */
enum { GRACE_MS = 500 };

_Atomic int telem__state = TELEM__NEW;
pthread_mutex_t telem__api = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t telem__work = PTHREAD_MUTEX_INITIALIZER;

static pthread_t thread;
/* The process that has that thread. */
static pid_t thread_of;
static pid_t loaded_by;
static bool is_forked;
static uint64_t next_start_ns;

__attribute__((constructor)) static void begin_of_process(void)
{
    loaded_by = getpid();
}

/* Whether the thread of the library is in this process. It is in none that was made without fork's handlers, by `_Fork`
   or the bare system call: locks may be held there by threads that do not exist. */
static bool has_thread(void)
{
    return thread_of == getpid();
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void begin(void)
{
    uint64_t now = telem__now_ms();
    init_condition(&telem__wake_sender);
    init_condition(&telem__done);
    memset(&telem__sender, 0, sizeof telem__sender);
    telem__sender.look_ms = 5;
    telem__sender.active_ms = telem__sender.round_ms = now;
    telem__link.fd = -1;
    telem__link.retry_ms = TELEM__RETRY_LEAST_MS;
    telem__link.retry_at_ms = now;
    telem__identify(&telem__sender.identity, is_forked);
}

/* With `telem__api`. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (telem__monotonic_ns() < next_start_ns) return false;
    pthread_mutex_lock(&telem__work);
    begin();
    pthread_mutex_unlock(&telem__work);
    /* Before the thread, which sets it when it learns the level. */
    int level = atomic_load(&telem__known_level);
    atomic_store(&telem__gate, level < 0 ? TELEM__NO_LEVEL : level);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 262144);
    int error = pthread_create(&thread, &attributes, telem__run, NULL);
    /* A program with much memory of its own for each thread needs a larger stack. */
    if (error) error = pthread_create(&thread, NULL, telem__run, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        atomic_store(&telem__gate, -1);
        next_start_ns = telem__monotonic_ns() + 1000000000;
        telem__fail("the thread of the library cannot be started: %s", strerror(error));
        return false;
    }
    thread_of = getpid();
    atomic_store(&telem__state, TELEM__RUNNING);
    return true;
}

/* A thread that just starts may be in an allocator without a care for forks (AddressSanitizer's is one), the locks of
   which the child would have for ever. With both locks; a moment, and not for long. */
static void await_begun(void)
{
    uint64_t until_ns = telem__monotonic_ns() + 100000000;
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    while (atomic_load(&telem__state) == TELEM__RUNNING && !telem__sender.has_begun)
        if (pthread_cond_timedwait(&telem__done, &telem__work, &until) != 0) return;
}

static void before_fork(void)
{
    pthread_mutex_lock(&telem__api);
    pthread_mutex_lock(&telem__work);
    await_begun();
    pthread_mutex_lock(&telem__questions);
    pthread_mutex_lock(&telem__words);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&telem__words);
    pthread_mutex_unlock(&telem__questions);
    pthread_mutex_unlock(&telem__work);
    pthread_mutex_unlock(&telem__api);
}

/* The child has nothing of what its parent took, and no thread until it takes something itself. */
static void in_child(void)
{
    pthread_mutex_init(&telem__words, NULL);
    pthread_mutex_init(&telem__work, NULL);
    pthread_mutex_init(&telem__api, NULL);
    telem__questions_after_fork();
    telem__link_after_fork();
    telem__queue_after_fork();
    memset(&telem__flushes, 0, sizeof telem__flushes);
    free(telem__sender.taken);
    memset(&telem__sender, 0, sizeof telem__sender);
    is_forked = true;
    next_start_ns = 0;
    telem__rings_after_fork();
    telem__totals_after_fork();
    telem__batch_after_fork();
    int state = atomic_load(&telem__state);
    if (state == TELEM__RUNNING) {
        atomic_store(&telem__gate, -1);
        atomic_store(&telem__state, TELEM__ASLEEP);
    }
}

static int start(const telem_options *options)
{
    static bool watches_fork;
    if (telem__settings_init(options) != 0) return -1;
    /* A child that was forked before there was anything to log has the rank of its parent, too. */
    if (loaded_by != 0 && loaded_by != getpid()) is_forked = true;
    telem__clock_init();
    telem__registry_init();
    telem__rings_init(telem__settings.ring_samples);
    if (!watches_fork) watches_fork = pthread_atfork(before_fork, in_parent, in_child) == 0;
    if (!telem__settings.is_named) {
        atomic_store(&telem__state, TELEM__UNNAMED);
        return 0;
    }
    atomic_store(&telem__state, TELEM__ASLEEP);
    start_thread();
    return 0;
}

void telem__ensure(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__NEW) start(NULL);
    if (state == TELEM__ASLEEP) start_thread();
}

bool telem__try_api(void)
{
    for (int attempt = 0; attempt < 200; attempt++) {
        struct timespec short_while = {0, 100000};
        if (pthread_mutex_trylock(&telem__api) == 0) return true;
        nanosleep(&short_while, NULL);
    }
    return false;
}

bool telem__wake(void)
{
    if (!telem__try_api()) return false;
    int state = atomic_load(&telem__state);
    bool runs = state == TELEM__RUNNING || (state == TELEM__ASLEEP && start_thread());
    pthread_mutex_unlock(&telem__api);
    return runs;
}

int telem_start(const telem_options *options)
{
    pthread_mutex_lock(&telem__api);
    int result = -1;
    if (atomic_load(&telem__state) == TELEM__NEW)
        result = start(options);
    else
        telem__fail("the library runs already: call telem_start before the first metric is opened");
    pthread_mutex_unlock(&telem__api);
    return result;
}

int telem_connected(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__UNNAMED || state == TELEM__STOPPED || state == TELEM__NEW) return -1;
    if (atomic_load(&telem__known_level) == 0) return -1;
    return atomic_load(&telem__is_connected);
}

int telem_level(void)
{
    return atomic_load(&telem__known_level);
}

static bool wait_until_done(uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000), (long)(deadline_ns % 1000000000)};
    return pthread_cond_timedwait(&telem__done, &telem__work, &until) != ETIMEDOUT;
}

uint64_t telem__flush_ask(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__ASLEEP && telem__wake()) state = TELEM__RUNNING;
    if (state != TELEM__RUNNING) {
        telem__fail(state == TELEM__STOPPED ? "the library was stopped"
                    : state == TELEM__NEW   ? "no metric is open"
                                            : "no service is named: TELEM_CONNECTION and TELEM_SOCKET are not set");
        return 0;
    }
    if (!has_thread()) {
        telem__fail("this process was made without the handlers of fork; fork() lets its children log");
        return 0;
    }
    pthread_mutex_lock(&telem__work);
    uint64_t number = ++telem__flushes.asked;
    telem__flushes.attempts = telem__link.attempts;
    pthread_cond_signal(&telem__wake_sender);
    pthread_mutex_unlock(&telem__work);
    return number;
}

int telem__flush_wait(uint64_t number, uint32_t timeout_ms)
{
    uint64_t deadline = telem__monotonic_ns() + (uint64_t)timeout_ms * 1000000;
    pthread_mutex_lock(&telem__work);
    while (telem__flushes.done < number && telem__flushes.failed < number && !telem__sender.is_over)
        if (!wait_until_done(deadline)) break;
    bool is_done = telem__flushes.done >= number;
    bool has_failed = !is_done && (telem__flushes.failed >= number || telem__sender.is_over);
    if (!is_done && telem__link.fd < 0)
        telem__fail("%s", telem__link.why);
    else if (!is_done && telem__flushes.failed >= number)
        telem__fail_as_refused();
    else if (!is_done)
        telem__fail("the service has not stored everything within %u ms", timeout_ms);
    pthread_mutex_unlock(&telem__work);
    return is_done ? 1 : has_failed ? -1 : 0;
}

int telem_flush(uint32_t timeout_ms)
{
    uint64_t number = telem__flush_ask();
    return number != 0 && telem__flush_wait(number, timeout_ms) > 0 ? 0 : -1;
}

/* A signal handler that ends the process may have interrupted who has the lock. */
static bool lock_work_until(uint64_t deadline_ms)
{
    struct timespec short_while = {0, 100000};
    while (pthread_mutex_trylock(&telem__work) != 0) {
        if (telem__now_ms() >= deadline_ms) return false;
        nanosleep(&short_while, NULL);
        if (short_while.tv_nsec < 10000000) short_while.tv_nsec *= 2;
    }
    return true;
}

/* It ends by itself soon after its deadline, unless something that it asked of the system hangs. With `telem__work`. */
static bool is_over_until(uint64_t deadline_ms)
{
    while (!telem__sender.is_over)
        if (!wait_until_done(deadline_ms * 1000000)) return false;
    return true;
}

/* With `telem__api`. */
static void stop(uint32_t timeout_ms)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__RUNNING && has_thread()) {
        uint64_t stop_by_ms = telem__now_ms() + timeout_ms;
        bool ends = lock_work_until(stop_by_ms + GRACE_MS);
        if (ends) {
            telem__flushes.asked++;
            telem__flushes.attempts = telem__link.attempts;
            telem__sender.stops = true;
            telem__sender.stop_by_ms = stop_by_ms;
            pthread_cond_signal(&telem__wake_sender);
            ends = is_over_until(stop_by_ms + GRACE_MS);
            pthread_mutex_unlock(&telem__work);
        }
        if (ends)
            pthread_join(thread, NULL);
        else
            pthread_detach(thread);
    }
    if (state != TELEM__NEW) {
        atomic_store(&telem__gate, -1);
        atomic_store(&telem__state, TELEM__STOPPED);
    }
}

void telem_stop(uint32_t timeout_ms)
{
    pthread_mutex_lock(&telem__api);
    stop(timeout_ms);
    pthread_mutex_unlock(&telem__api);
}

/* At the end of the process, or when the library is unloaded. */
__attribute__((destructor)) static void end_of_process(void)
{
    int state = atomic_load(&telem__state);
    if (state == TELEM__NEW || (state == TELEM__RUNNING && !has_thread())) return;
    /* A signal handler that ends the process may have interrupted who has the lock. */
    if (!telem__try_api()) return;
    stop(telem__settings.exit_ms);
    telem__rings_end();
    pthread_mutex_unlock(&telem__api);
}
