/*
 * client.c: how the library begins, sends, ends, and is forked.
 *
 * One thread sends. It waits on a word (futex), so that whoever wakes it up takes no lock. `work` guards what the
 * thread works with and is not held while the kernel takes bytes: a fork waits for a flush to be written down, never for
 * the server.
 */
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_LEAST_MS = 100, RETRY_MOST_MS = 5000, PERIOD_MS_MAX = 3600000, EXIT_MS = 2000, STACK_BYTES = 256 * 1024 };
enum { MS = 1000000 };

/* LOST: the thread hung in the kernel at the end, and none follows it. */
enum state { NEW, RUNNING, ASLEEP, ENDED, LOST };

struct MetricProxyClient {
    int unused;
};

static struct MetricProxyClient client;
static _Atomic int state = NEW;
/* Who begins, ends, declares functions; a fork takes it. */
static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t work = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static bool debugs;
static uint64_t period_ns = 1000 * (uint64_t)MS, exit_ms = EXIT_MS;
static char *path;
static struct proxy__buffer job;
static uint32_t begun, released;

/* What the thread is asked for. Tickets count up; `answered` follows `asked`, and `failed` says which was the last that
   did not get everything away. */
static _Atomic uint32_t bell, answered_bell;
static _Atomic bool is_rung, stops, is_over;
static _Atomic uint64_t asked, answered, failed;
static _Atomic uint64_t stop_by_ns;

/* ---- small things ------------------------------------------------------------------------------------------------ */

uint64_t proxy__now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t proxy__unix_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

void proxy__debug(const char *format, ...)
{
    if (!debugs) return;
    char line[512];
    int bytes = snprintf(line, sizeof line, "proxyclient[%ld]: ", (long)getpid());
    va_list rest;
    va_start(rest, format);
    int more = vsnprintf(line + bytes, sizeof line - (size_t)bytes - 1, format, rest);
    va_end(rest);
    if (more < 0) return;
    size_t length = strlen(line);
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0) return;
}

static void wait_on(_Atomic uint32_t *word, uint32_t seen, uint64_t wait_ns)
{
    struct timespec wait = {(time_t)(wait_ns / 1000000000), (long)(wait_ns % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &wait, NULL, 0);
}

static void ring(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Once until the thread has heard it. */
void proxy__wake(void)
{
    if (!atomic_exchange(&is_rung, true)) ring(&bell);
}

static uint64_t number_of(const char *name, uint64_t otherwise, uint64_t least, uint64_t most)
{
    const char *text = getenv(name);
    char *end;
    if (!text || text[0] < '0' || text[0] > '9') return otherwise;
    unsigned long value = strtoul(text, &end, 10);
    if (*end) return otherwise;
    return value < least ? least : value > most ? most : value;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* A message of the batch that is lost if it is not sent whole. */
struct amount {
    struct MetricProxyValue *value;
    double amount;
    size_t end;
};

static struct {
    struct proxy__buffer batch;
    struct amount *amounts;
    size_t amount_count, amount_room;
    /* How many values this connection knows. */
    uint32_t announced;
    uint64_t retry_ms, retry_at_ns;
} sender;

/* Those of which the kernel did not take the last byte go back. With `work`. */
static void put_back_after(size_t sent)
{
    for (size_t i = sender.amount_count; i > 0 && sender.amounts[i - 1].end > sent; i--)
        proxy__put_back(sender.amounts[i - 1].value, sender.amounts[i - 1].amount);
}

/* Sends the batch; false if the connection is gone. A server that does not read is waited for, as amounts are kept
   where they are meanwhile; until somebody wants the thread to end. With `work`, which it leaves for a while. */
static bool send_batch(void)
{
    size_t sent = 0;
    bool is_gone = false, is_late = false;
    while (sent < sender.batch.bytes && !is_gone && !is_late) {
        const char *at = sender.batch.at + sent;
        size_t bytes = sender.batch.bytes - sent;
        pthread_mutex_unlock(&work);
        sent += proxy__send(at, bytes, proxy__now_ns() + 100 * (uint64_t)MS, &is_gone);
        pthread_mutex_lock(&work);
        is_late = atomic_load(&stops) && proxy__now_ns() >= atomic_load(&stop_by_ns);
    }
    bool is_whole = sent == sender.batch.bytes;
    if (!is_whole) {
        put_back_after(sent);
        proxy__hang_up(is_gone ? "the server went away" : "the server does not read");
    }
    sender.batch.bytes = 0;
    sender.amount_count = 0;
    return is_whole;
}

static bool has_batch_room(size_t more)
{
    if (sender.batch.bytes + more > PROXY__BATCH_BYTES_MAX && !send_batch()) return false;
    return proxy__has_room(&sender.batch, more);
}

/* Declares what this connection does not know yet. */
static bool announce(void)
{
    uint32_t count = atomic_load_explicit(&proxy__value_count, memory_order_acquire);
    for (; sender.announced < count; sender.announced++) {
        struct MetricProxyValue *value = proxy__value_at(sender.announced);
        if (!has_batch_room(PROXY__MESSAGE_ROOM + value->name_bytes + value->doc_bytes)) return false;
        proxy__write_desc(&sender.batch, value);
    }
    return true;
}

static bool has_amount_room(void)
{
    if (sender.amount_count < sender.amount_room) return true;
    size_t room = sender.amount_room ? sender.amount_room * 2 : 64;
    struct amount *grown = realloc(sender.amounts, room * sizeof *grown);
    if (!grown) return false;
    sender.amounts = grown;
    sender.amount_room = room;
    return true;
}

/* Writes down what came since the last time. */
static bool take_amounts(void)
{
    uint64_t ts_us = proxy__unix_us();
    for (uint32_t i = 0; i < sender.announced; i++) {
        struct MetricProxyValue *value = proxy__value_at(i);
        double amount;
        if (!proxy__take(value, &amount)) continue;
        if (!has_batch_room(PROXY__MESSAGE_ROOM + value->name_bytes) || !has_amount_room()) {
            proxy__put_back(value, amount);
            return false;
        }
        proxy__write_value(&sender.batch, value, amount, ts_us);
        sender.amounts[sender.amount_count++] = (struct amount){value, amount, sender.batch.bytes};
    }
    return true;
}

/* With `work`. */
static bool connect_anew(bool is_urgent)
{
    uint64_t now = proxy__now_ns();
    if (!is_urgent && now < sender.retry_at_ns) return false;
    /* Of a batch that had no room to be finished. */
    put_back_after(0);
    sender.amount_count = sender.batch.bytes = 0;
    sender.announced = 0;
    if (!proxy__dial(path)) {
        sender.retry_ms = sender.retry_ms * 2 > RETRY_MOST_MS ? RETRY_MOST_MS : sender.retry_ms * 2;
        sender.retry_at_ns = now + sender.retry_ms * MS;
        return false;
    }
    sender.retry_ms = RETRY_LEAST_MS;
    proxy__show_gauges_again();
    if (!proxy__has_room(&sender.batch, job.bytes)) {
        proxy__hang_up("there is no memory");
        return false;
    }
    memcpy(sender.batch.at, job.at, job.bytes);
    sender.batch.bytes = job.bytes;
    return true;
}

/* One round: declarations, and amounts if it is time for them. Whether everything went. With `work`. */
static bool round_of(bool with_amounts, bool is_urgent)
{
    /* A connection that breaks in the middle is made anew once. */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!proxy__is_connected() && !connect_anew(is_urgent)) return false;
        if (announce() && (!with_amounts || take_amounts()) && (sender.batch.bytes == 0 || send_batch())) return true;
    }
    return false;
}

static void *run(void *unused)
{
    (void)unused;
    uint64_t next_ns = proxy__now_ns(), looked_ns = 0;
    proxy__within = 1;
    pthread_mutex_lock(&work);
    for (bool ends = false; !ends;) {
        uint32_t heard = atomic_load(&bell);
        atomic_store(&is_rung, false);
        ends = atomic_load(&stops);
        uint64_t ticket = atomic_load(&asked), now = proxy__now_ns();
        bool is_asked = ticket != atomic_load(&answered), is_time = is_asked || ends || now >= next_ns;
        uint32_t count = atomic_load_explicit(&proxy__value_count, memory_order_acquire);
        if (is_time || sender.announced < count) {
            bool went = round_of(is_time, is_asked || ends);
            looked_ns = now;
            if (is_asked && !went) atomic_store(&failed, ticket);
            while (is_time && next_ns <= now) next_ns = now - (now - next_ns) % period_ns + period_ns;
        }
        if (is_asked) {
            atomic_store(&answered, ticket);
            ring(&answered_bell);
        }
        if (ends) break;
        now = proxy__now_ns();
        uint64_t until = next_ns;
        /* A server that is away is looked for more often than amounts are due. */
        if (sender.announced == 0 && sender.retry_at_ns > looked_ns && sender.retry_at_ns < until)
            until = sender.retry_at_ns;
        pthread_mutex_unlock(&work);
        if (until > now) wait_on(&bell, heard, until - now);
        pthread_mutex_lock(&work);
    }
    proxy__hang_up("the end");
    atomic_store(&is_over, true);
    pthread_mutex_unlock(&work);
    ring(&answered_bell);
    return NULL;
}

/* With `life`. */
static bool start_thread(void)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sender.retry_ms = RETRY_LEAST_MS;
    sender.retry_at_ns = 0;
    sender.announced = 0;
    sender.batch.bytes = sender.amount_count = 0;
    atomic_store(&stops, false);
    atomic_store(&is_over, false);
    /* Signals are the program's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = pthread_create(&thread, &attributes, run, NULL);
    /* A program with much memory of its own for each thread needs a larger stack. */
    if (error) error = pthread_create(&thread, NULL, run, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        proxy__debug("the thread of the library cannot be started: %s", strerror(error));
        return false;
    }
    atomic_store(&state, RUNNING);
    return true;
}

/* ---- forks ------------------------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&proxy__functions);
    pthread_mutex_lock(&proxy__registry);
    pthread_mutex_lock(&work);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&work);
    pthread_mutex_unlock(&proxy__registry);
    pthread_mutex_unlock(&proxy__functions);
    pthread_mutex_unlock(&life);
}

/* The child has no thread and sends nothing until it changes a value itself; what its parent had not sent is the
   parent's. */
static void in_child(void)
{
    pthread_mutex_init(&work, NULL);
    pthread_mutex_init(&proxy__registry, NULL);
    pthread_mutex_init(&proxy__functions, NULL);
    pthread_mutex_init(&life, NULL);
    proxy__link_after_fork();
    proxy__values_after_fork();
    sender.announced = 0;
    sender.batch.bytes = sender.amount_count = 0;
    atomic_store(&is_rung, false);
    atomic_store(&answered, atomic_load(&asked));
    int was = atomic_load(&state);
    if (was == NEW) return;
    atomic_store(&state, ASLEEP);
    atomic_store(&proxy__is_asleep, 1);
}

/* A signal handler may have interrupted who has the lock. */
static bool try_life(void)
{
    for (int attempt = 0; attempt < 200; attempt++) {
        struct timespec short_while = {0, 100000};
        if (pthread_mutex_trylock(&life) == 0) return true;
        nanosleep(&short_while, NULL);
    }
    return false;
}

bool proxy__awake(void)
{
    if (!try_life()) return false;
    if (atomic_load(&proxy__is_asleep)) {
        /* Nobody else changes a value before this is done. */
        proxy__forget_amounts();
        if (start_thread()) atomic_store(&proxy__is_asleep, 0);
    }
    bool is_awake = !atomic_load(&proxy__is_asleep);
    pthread_mutex_unlock(&life);
    return is_awake;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

/* With `life`. */
static void begin(void)
{
    if (atomic_load(&state) == NEW) {
        const char *said = getenv("PROXY_PATH"), *debug = getenv("TELEM_DEBUG");
        char usual[64];
        debugs = debug && *debug && strcmp(debug, "0") != 0;
        period_ns = number_of("PROXY_PERIOD", 1000, 1, PERIOD_MS_MAX) * MS;
        exit_ms = number_of("PROXY_EXIT_MS", EXIT_MS, 0, PERIOD_MS_MAX);
        snprintf(usual, sizeof usual, "/tmp/metric-proxy-%lu.socket", (unsigned long)getuid());
        path = strdup(said && *said ? said : usual);
        if (!path || !proxy__write_job(&job)) return;
        proxy__values_init();
        pthread_atfork(before_fork, in_parent, in_child);
        atomic_store(&state, ENDED);
    }
    if (atomic_load(&state) == ENDED) start_thread();
}

void proxy__begin(void)
{
    proxy__within++;
    pthread_mutex_lock(&life);
    if (atomic_load(&state) == NEW) begin();
    pthread_mutex_unlock(&life);
    proxy__within--;
}

/* Both are counted where they are made, and sent with the first or the last that is sent. */
static void count_call(const char *name, const char *doc)
{
    struct MetricProxyValue *calls = metric_proxy_counter_new(&client, name, doc);
    metric_proxy_counter_inc(calls, 1);
}

struct MetricProxyClient *metric_proxy_init(void)
{
    proxy__within++;
    pthread_mutex_lock(&life);
    begun++;
    if (atomic_load(&state) != ASLEEP) begin();
    pthread_mutex_unlock(&life);
    count_call("has_started", "Number of calls to metric_proxy_init");
    proxy__within--;
    return &client;
}

/* Waits until the thread has answered, and not longer. */
static bool await(uint64_t ticket, uint64_t until_ns)
{
    for (;;) {
        uint32_t heard = atomic_load(&answered_bell);
        uint64_t now = proxy__now_ns();
        if (atomic_load(&answered) >= ticket || atomic_load(&is_over) || now >= until_ns) break;
        wait_on(&answered_bell, heard, until_ns - now);
    }
    return atomic_load(&answered) >= ticket && atomic_load(&failed) < ticket;
}

static uint64_t ask(void)
{
    uint64_t ticket = atomic_fetch_add(&asked, 1) + 1;
    ring(&bell);
    return ticket;
}

/* Sends the rest and ends the thread; whether everything went. With `life`, while the thread runs. */
static bool end(void)
{
    uint64_t until = proxy__now_ns() + exit_ms * MS;
    atomic_store(&stop_by_ns, until);
    /* First the question: a thread that ends answers what it was asked before. */
    uint64_t ticket = atomic_fetch_add(&asked, 1) + 1;
    atomic_store(&stops, true);
    ring(&bell);
    bool went = await(ticket, until);
    for (;;) {
        uint32_t heard = atomic_load(&answered_bell);
        /* It looks at its deadline every 100 ms. */
        uint64_t now = proxy__now_ns(), late = until + 300 * (uint64_t)MS;
        if (atomic_load(&is_over) || now >= late) break;
        wait_on(&answered_bell, heard, late - now);
    }
    bool is_joined = atomic_load(&is_over);
    if (is_joined)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    atomic_store(&state, is_joined ? ENDED : LOST);
    return went;
}

int metric_proxy_release(struct MetricProxyClient *of)
{
    if (!of) return 1;
    bool went = false;
    proxy__within++;
    count_call("has_finished", "Number of calls to metric_proxy_release");
    pthread_mutex_lock(&life);
    bool runs = atomic_load(&state) == RUNNING, is_last = ++released >= begun;
    if (is_last) {
        if (runs) went = end();
        released = begun = 0;
    }
    pthread_mutex_unlock(&life);
    if (runs && !is_last) went = await(ask(), proxy__now_ns() + exit_ms * MS);
    proxy__within--;
    return went ? 0 : 1;
}

/* At the end of the process, or when the library is unloaded. */
__attribute__((destructor)) static void end_of_process(void)
{
    if (atomic_load(&state) != RUNNING || !try_life()) return;
    proxy__within++;
    if (atomic_load(&state) == RUNNING) end();
    proxy__within--;
    pthread_mutex_unlock(&life);
}
