/*
 * sender.c: the one thread of the library.
 *
 * It sleeps most of the time. When it wakes it looks into the rings; once an interval, or earlier when a ring fills, it
 * collects them all. The lock `telem__work` is free whenever it waits.
 */
#include "work.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LOOK_LEAST_MS = 2,
    LOOK_IDLE_MS = 200,
    IDLE_AFTER_MS = 2000,
    /* Many begin at once where a job does: who goes away and comes again makes them wait longer. */
    WELCOME_MS = 30000,
    /* What comes wakes at once. Between that only new flushes are looked for: hundreds of processes that wait must leave
       the CPU to the service. */
    WAIT_FOR_SOCKET_MS = 50,
    LOST_LATELY_MS = 5000,
    RETRY_WAITED_FOR_MS = 200,
    ALONE_MS = 500
};

struct telem__sender telem__sender;
struct telem__flushes telem__flushes;
pthread_cond_t telem__wake_sender;
pthread_cond_t telem__done;

static bool is_flush_wanted(void)
{
    return telem__flushes.asked > telem__flushes.done && telem__flushes.asked > telem__flushes.failed;
}

/* Begins, goes on with, or gives up what telem_flush asked for. */
static void work_on_flush(void)
{
    if (telem__flushes.asked > telem__flushes.begun) {
        struct telem__ring *ring = telem__first_ring();
        for (; ring; ring = ring->next) ring->target = atomic_load_explicit(&ring->head, memory_order_acquire);
        telem__flushes.begun = telem__flushes.asked;
    }
    if (telem__flushes.begun > telem__flushes.queued && telem__flushes.begun > telem__flushes.failed) {
        telem__collect(true);
        bool is_whole = !telem__link.is_welcome || telem__has_queue_room();
        struct telem__ring *ring = telem__first_ring();
        for (; ring; ring = ring->next)
            if ((int64_t)(ring->target - atomic_load_explicit(&ring->tail, memory_order_relaxed)) > 0) is_whole = false;
        if (is_whole && telem__append_flush(telem__flushes.begun)) telem__flushes.queued = telem__flushes.begun;
    }
    bool is_hopeless = telem__link.fd < 0 && telem__link.attempts != telem__flushes.attempts &&
                       !telem__link.was_ever && !telem__link.is_busy;
    if (is_flush_wanted() && is_hopeless) {
        telem__flushes.failed = telem__flushes.asked;
        pthread_cond_broadcast(&telem__done);
    }
}

/* Texts have no acknowledgement of their own: a flush behind them is one. */
static bool confirm_texts(void)
{
    if (telem__queue.texts == 0 || telem__flushes.own || !telem__link.is_welcome || telem__queue.next) return false;
    telem__flushes.own_count++;
    if (telem__append_flush(TELEM__OWN_FLUSH | telem__flushes.own_count)) telem__flushes.own = telem__flushes.own_count;
    return telem__flushes.own != 0;
}

static void look_into_rings(uint64_t now)
{
    bool has_some = false;
    unsigned most = telem__fullest(&has_some);
    uint32_t half = telem__settings.interval_ms / 2 > LOOK_LEAST_MS ? telem__settings.interval_ms / 2 : LOOK_LEAST_MS;
    if (half > LOOK_IDLE_MS) half = LOOK_IDLE_MS;
    if (has_some) telem__sender.active_ms = now;
    if (most >= 32) telem__sender.look_ms /= 2;
    if (most < 8) telem__sender.look_ms += telem__sender.look_ms / 4 + 1;
    if (telem__sender.look_ms < LOOK_LEAST_MS) telem__sender.look_ms = LOOK_LEAST_MS;
    if (telem__sender.look_ms > half) telem__sender.look_ms = half;
    bool is_due = now - telem__sender.round_ms >= telem__settings.interval_ms;
    if (is_due || most >= 64) telem__collect(false);
}

/* Whether nothing is left that a stop shall wait for. */
static bool is_finished(uint64_t now)
{
    if (now >= telem__sender.stop_by_ms) return true;
    if (telem__flushes.done >= telem__flushes.asked || telem__flushes.failed >= telem__flushes.asked) return true;
    bool was_tried = telem__link.attempts != telem__flushes.attempts;
    return telem__link.fd < 0 && was_tried && !telem__link.is_busy && now - telem__link.lost_ms > LOST_LATELY_MS;
}

/* When a service is looked for again: soon, where somebody waits for it. */
static uint64_t next_attempt(void)
{
    bool wants_first = is_flush_wanted() && telem__link.attempts == telem__flushes.attempts;
    uint64_t soon = telem__link.tried_ms + (wants_first ? 0 : RETRY_WAITED_FOR_MS);
    return is_flush_wanted() && soon < telem__link.retry_at_ms ? soon : telem__link.retry_at_ms;
}

static void connect_again(uint64_t now)
{
    /* The file that names the socket may lie on a file system that hangs: nobody shall wait for us meanwhile. */
    pthread_mutex_unlock(&telem__work);
    char *path = telem__socket_path();
    pthread_mutex_lock(&telem__work);
    telem__connect(now, path);
    free(path);
}

/* Whether no other thread is left. Where `main` ended by pthread_exit, the process ends with its last thread: that must
   not be ours. */
static bool is_alone(uint64_t now)
{
    if (now - telem__sender.active_ms < ALONE_MS || now - telem__sender.alone_ms < ALONE_MS) return false;
    telem__sender.alone_ms = now;
    char text[512], state = 0;
    long threads = 0;
    snprintf(text, sizeof text, "/proc/self/task/%ld/stat", (long)getpid());
    int file = open(text, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    if (bytes <= 0) return false;
    text[bytes] = 0;
    /* Behind the name, which may hold anything: the state, 16 numbers, the number of threads. */
    const char *behind = strrchr(text, ')');
    const char *format = ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld";
    if (!behind || sscanf(behind, format, &state, &threads) != 2) return false;
    /* The first thread counts until the process ends. */
    return state == 'Z' && threads == 2;
}

static void stop_by_ourselves(uint64_t now)
{
    telem__flushes.asked++;
    telem__flushes.attempts = telem__link.attempts;
    telem__sender.stops = true;
    telem__sender.stop_by_ms = now + telem__settings.exit_ms;
    atomic_store(&telem__gate, -1);
    /* Nobody joins us. */
    atomic_store(&telem__state, TELEM__STOPPED);
    pthread_detach(pthread_self());
}

static void wait_for(uint64_t until_ms)
{
    uint64_t now = telem__now_ms();
    uint64_t ms = until_ms > now ? until_ms - now : 0;
    bool expects = telem__is_sending() || !telem__link.is_welcome || is_flush_wanted() || telem__flushes.own;
    bool waits_for_socket = telem__link.fd >= 0 && expects;
    if (ms == 0) ms = 1;
    if (waits_for_socket) {
        struct pollfd socket = {telem__link.fd, (short)(POLLIN | (telem__is_sending() ? POLLOUT : 0)), 0};
        if (ms > WAIT_FOR_SOCKET_MS) ms = WAIT_FOR_SOCKET_MS;
        pthread_mutex_unlock(&telem__work);
        poll(&socket, 1, (int)ms);
        pthread_mutex_lock(&telem__work);
        return;
    }
    struct timespec until;
    uint64_t at_ns = telem__monotonic_ns() + ms * 1000000;
    until.tv_sec = (time_t)(at_ns / 1000000000);
    until.tv_nsec = (long)(at_ns % 1000000000);
    pthread_cond_timedwait(&telem__wake_sender, &telem__work, &until);
}

static uint64_t next_look(uint64_t now)
{
    bool is_idle = now - telem__sender.active_ms > IDLE_AFTER_MS && !telem__queue.first;
    uint64_t next = now + (is_idle ? (uint32_t)LOOK_IDLE_MS : telem__sender.look_ms);
    if (telem__link.fd < 0 && next_attempt() < next) next = next_attempt();
    if (telem__sender.stops && telem__sender.stop_by_ms < next) next = telem__sender.stop_by_ms;
    return next;
}

/* What is left when the library stops belongs to nobody. */
static void give_up_rest(void)
{
    struct telem__ring *ring = telem__first_ring();
    for (; ring; ring = ring->next) {
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        telem__counts.unserved += head - atomic_load_explicit(&ring->tail, memory_order_relaxed);
        atomic_store_explicit(&ring->tail, head, memory_order_release);
    }
    while (telem__queue.first) {
        if (telem__queue.first->type == TELEM__BATCH) telem__counts.unserved += telem__queue.first->samples;
        telem__unlink(NULL, telem__queue.first);
    }
}

void *telem__run(void *nothing)
{
    (void)nothing;
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "telem");
#endif
    pthread_mutex_lock(&telem__work);
    telem__sender.has_begun = true;
    pthread_cond_broadcast(&telem__done);
    for (;;) {
        uint64_t now = telem__now_ms();
        if (telem__link.fd < 0 && now >= next_attempt()) connect_again(now);
        if (!telem__sender.stops && is_alone(now)) stop_by_ourselves(now);
        telem__receive();
        bool is_asked = telem__link.fd >= 0 && !telem__link.is_welcome;
        if (is_asked && now - telem__link.began_ms > WELCOME_MS) telem__hang_up("it does not answer");
        uint64_t round_before = telem__sender.round_ms;
        look_into_rings(now);
        work_on_flush();
        telem__send(telem__sender.round_ms != round_before);
        if (confirm_texts()) telem__send(false);
        if (telem__sender.stops && is_finished(now)) break;
        wait_for(next_look(now));
    }
    telem__hang_up("this process stops");
    give_up_rest();
    telem__sender.is_over = true;
    pthread_cond_broadcast(&telem__done);
    pthread_mutex_unlock(&telem__work);
    return NULL;
}
