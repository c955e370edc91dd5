/*
 * link.c: the connection: what is sent on it, what comes back, and what becomes of the queue by that.
 *
 * What is in the queue is sent in its order, stays until the service has acknowledged it, and is sent again on the next
 * connection if it has not.
 */
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RETRY_MOST_MS = 5000, IN_BYTES = 131072, SERIES_FRAME_BYTES = 262144 };

struct telem__link telem__link = {.fd = -1};
_Atomic int telem__known_level = -1;
_Atomic int telem__is_connected;

/* What is being sent. */
static struct {
    const unsigned char *at;
    size_t bytes;
    struct telem__item *item; /* NULL: `own` */
    unsigned char *own;
    size_t own_room;
} out;

static unsigned char *in;
static size_t in_bytes;

/* As the service knows it. */
static struct {
    uint64_t taken, full, unserved, other;
    bool was_sent;
} tally;

bool telem__is_sending(void)
{
    return out.bytes > 0;
}

/* Whether the number is still our socket: programs close what they do not know, and open something else there. */
bool telem__is_ours(void)
{
    struct stat found;
    if (telem__link.fd < 0 || fstat(telem__link.fd, &found) != 0) return false;
    return S_ISSOCK(found.st_mode) && found.st_dev == telem__link.device && found.st_ino == telem__link.inode;
}

static void retry_later(uint64_t now)
{
    telem__link.tried_ms = now;
    telem__link.retry_at_ms = now + telem__link.retry_ms;
    telem__link.retry_ms = telem__link.retry_ms * 2 > RETRY_MOST_MS ? RETRY_MOST_MS : telem__link.retry_ms * 2;
}

void telem__hang_up(const char *why)
{
    if (telem__link.fd < 0) return;
    telem__debug("disconnected: %s", why);
    snprintf(telem__link.why, sizeof telem__link.why, "the service hung up: %s", why);
    if (telem__is_ours()) close(telem__link.fd);
    telem__link.fd = -1;
    telem__link.lost_ms = telem__now_ms();
    if (telem__link.is_welcome && telem__link.goodbyes == 0) telem__link.retry_ms = TELEM__RETRY_LEAST_MS;
    retry_later(telem__link.lost_ms);
    telem__link.is_welcome = false;
    atomic_store(&telem__is_connected, 0);
    out.bytes = 0;
    out.item = NULL;
    in_bytes = 0;
    tally.was_sent = false;
    telem__queue.next = telem__queue.first;
    for (struct telem__item *at = telem__queue.first; at; at = at->next) {
        at->was_sent = false;
        at->is_answered = false;
    }
}

/* The connection is the parent's: the child closes its end of it, and says nothing. */
void telem__link_after_fork(void)
{
    if (telem__is_ours()) close(telem__link.fd);
    memset(&telem__link, 0, sizeof telem__link);
    telem__link.fd = -1;
    memset(&tally, 0, sizeof tally);
    out.bytes = 0;
    out.item = NULL;
    in_bytes = 0;
    atomic_store(&telem__is_connected, 0);
    atomic_store(&telem__known_level, -1);
}

static bool has_own_room(size_t bytes)
{
    if (bytes <= out.own_room) return true;
    unsigned char *grown = realloc(out.own, bytes * 2);
    if (!grown) return false;
    out.own = grown;
    out.own_room = bytes * 2;
    return true;
}

static void send_own(size_t bytes)
{
    out.at = out.own;
    out.bytes = bytes;
    out.item = NULL;
}

void telem__connect(uint64_t now, const char *path)
{
    telem__link.attempts++;
    int made = path ? telem__dial(path) : -1;
    /* One that lets us wait is there: what waits to be sent is not hopeless. */
    telem__link.is_busy = path && made < 0 && errno == EAGAIN;
    struct stat found;
    if (made < 0 || fstat(made, &found) != 0 || !has_own_room(8)) {
        if (made >= 0) close(made);
        snprintf(telem__link.why, sizeof telem__link.why, "%s", telem_error());
        retry_later(now);
        return;
    }
    telem__link.fd = made;
    telem__link.device = found.st_dev;
    telem__link.inode = found.st_ino;
    telem__link.is_welcome = false;
    telem__link.began_ms = now;
    telem__link.announced = 0;
    telem__link.series_max = UINT32_MAX;
    telem__link.acked_stored = telem__link.acked_refused = 0;
    memcpy(out.own, telem__opening, 8);
    send_own(8);
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static size_t text_room(const char *text)
{
    return 2 + strlen(text);
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t bytes = strlen(text);
    telem__put_u16(at, (uint16_t)bytes);
    memcpy(at + 2, text, bytes);
    return at + 2 + bytes;
}

/* Whether the program has not given this tag itself. */
static bool adds_identity(const struct telem__series *series, unsigned which)
{
    for (unsigned i = 0; i < series->tag_count; i++)
        if (strcmp(series->tags[2 * i], telem__sender.identity.keys[which]) == 0) return false;
    return true;
}

static size_t series_room(const struct telem__series *series)
{
    size_t bytes = 4 + text_room(series->metric) + text_room(series->unit) + text_room(series->help);
    for (unsigned i = 0; i < 2u * series->tag_count; i++) bytes += text_room(series->tags[i]);
    for (unsigned i = 0; i < telem__sender.identity.count; i++)
        bytes += text_room(telem__sender.identity.keys[i]) + text_room(telem__sender.identity.values[i]);
    return bytes;
}

static unsigned char *put_series(unsigned char *at, const struct telem__series *series)
{
    unsigned tags = series->tag_count;
    for (unsigned i = 0; i < telem__sender.identity.count; i++) tags += adds_identity(series, i);
    at[0] = series->kind;
    at[1] = series->level;
    telem__put_u16(at + 2, (uint16_t)tags);
    at = put_text(at + 4, series->metric);
    at = put_text(at, series->unit);
    at = put_text(at, series->help);
    for (unsigned i = 0; i < 2u * series->tag_count; i++) at = put_text(at, series->tags[i]);
    for (unsigned i = 0; i < telem__sender.identity.count; i++)
        if (adds_identity(series, i)) {
            at = put_text(at, telem__sender.identity.keys[i]);
            at = put_text(at, telem__sender.identity.values[i]);
        }
    return at;
}

/* Names series from the first that the service does not know: as many as a frame takes. */
static bool announce(void)
{
    uint32_t count = atomic_load_explicit(&telem__series_count, memory_order_acquire);
    if (count > telem__link.series_max) count = telem__link.series_max;
    size_t at = 16;
    uint32_t until = telem__link.announced;
    while (until < count && at < SERIES_FRAME_BYTES) {
        const struct telem__series *series = telem__series_at(until);
        if (!has_own_room(at + series_room(series))) return false;
        at = (size_t)(put_series(out.own + at, series) - out.own);
        until++;
    }
    telem__put_head(out.own, (uint32_t)(at - 8), 1);
    telem__put_u32(out.own + 8, telem__link.announced);
    telem__put_u32(out.own + 12, until - telem__link.announced);
    telem__link.announced = until;
    send_own(at);
    return true;
}

static bool is_tally_new(telem_counts *now)
{
    memset(now, 0, sizeof *now);
    telem__sum_up(now);
    return !tally.was_sent || now->taken != tally.taken || now->dropped_full != tally.full ||
           now->dropped_unserved != tally.unserved || now->dropped_other != tally.other;
}

static void send_tally(const telem_counts *now)
{
    if (!has_own_room(40)) return;
    tally.was_sent = true;
    tally.taken = now->taken;
    tally.full = now->dropped_full;
    tally.unserved = now->dropped_unserved;
    tally.other = now->dropped_other;
    telem__put_head(out.own, 32, 3);
    telem__put_u64(out.own + 8, tally.taken);
    telem__put_u64(out.own + 16, tally.full);
    telem__put_u64(out.own + 24, tally.unserved);
    telem__put_u64(out.own + 32, tally.other);
    send_own(40);
}

/* Chooses what is sent next; false if there is nothing. */
static bool choose(bool is_round)
{
    telem_counts now;
    if (!telem__link.is_welcome) return false;
    struct telem__item *item = telem__queue.next;
    /* A batch whose series the service has no room for. */
    while (item && item->series_needed > telem__link.series_max) {
        struct telem__item *before = NULL;
        for (struct telem__item *at = telem__queue.first; at != item; at = at->next) before = at;
        telem__counts.other += item->samples;
        telem__unlink(before, item);
        item = telem__queue.next;
    }
    if (item && item->series_needed > telem__link.announced) return announce();
    if ((item ? item->type == TELEM__FLUSH : is_round) && is_tally_new(&now)) {
        send_tally(&now);
        return out.bytes > 0;
    }
    if (!item) return false;
    out.item = item;
    out.at = item->frame;
    out.bytes = item->bytes;
    return true;
}

static void sent_whole(void)
{
    struct telem__item *item = out.item;
    out.item = NULL;
    if (!item) return;
    item->was_sent = true;
    if (item->type == TELEM__BATCH && !item->was_handed) telem__counts.sent += item->samples;
    item->was_handed = true;
    telem__queue.next = item->next;
}

/* Sends until there is nothing, or the socket takes no more. */
void telem__send(bool is_round)
{
    while (telem__link.fd >= 0) {
        if (out.bytes == 0 && !choose(is_round)) return;
        if (!telem__is_ours()) {
            telem__hang_up("the program closed its socket");
            return;
        }
        ssize_t went = send(telem__link.fd, out.at, out.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (went < 0 && errno == EINTR) continue;
        if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) return;
        if (went < 0) {
            int error = errno;
            /* Its last words: what it has stored, and why it hangs up. */
            telem__receive();
            telem__hang_up(strerror(error));
            return;
        }
        out.at += went;
        out.bytes -= (size_t)went;
        if (out.bytes == 0) sent_whole();
    }
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

static void set_level(int level)
{
    if (atomic_exchange(&telem__known_level, level) == level) return;
    for (struct telem__ring *ring = telem__first_ring(); ring; ring = ring->next)
        ring->unfiltered = atomic_load_explicit(&ring->head, memory_order_acquire);
    atomic_store_explicit(&telem__gate, level, memory_order_relaxed);
}

static bool take_welcome(const unsigned char *body, size_t bytes)
{
    if (bytes < 8 || telem__get_u16(body) != 1) return false;
    telem__link.is_welcome = true;
    telem__link.was_ever = true;
    telem__link.series_max = telem__get_u32(body + 4);
    telem__link.retry_ms = TELEM__RETRY_LEAST_MS;
    telem__counts.connections++;
    atomic_store(&telem__is_connected, 1);
    set_level(body[2]);
    /* Who waits, waits for the totals too that are said again now. */
    bool is_flush_queued = telem__flushes.queued > telem__flushes.done && telem__flushes.queued > telem__flushes.failed;
    if (telem__sender.has_lost_totals && is_flush_queued) telem__flushes.queued--;
    telem__debug("connected, level %d", body[2]);
    return true;
}

static uint64_t at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

static bool take_ack(const unsigned char *body, size_t bytes)
{
    if (bytes < 24) return false;
    uint64_t sequence = telem__get_u64(body), samples = 0;
    bool has_totals = false;
    struct telem__item *before = NULL;
    for (struct telem__item *at = telem__queue.first, *next; at; at = next) {
        next = at->next;
        if (at->type == TELEM__BATCH && at->was_sent && at->number <= sequence) {
            samples += at->samples;
            has_totals |= at->has_totals;
            telem__unlink(before, at);
        } else {
            before = at;
        }
    }
    uint64_t stored = telem__get_u64(body + 8), refused = telem__get_u64(body + 16);
    uint64_t new_stored = at_most(stored - telem__link.acked_stored, samples);
    uint64_t new_refused = at_most(refused - telem__link.acked_refused, samples - new_stored);
    telem__link.acked_stored = stored;
    telem__link.acked_refused = refused;
    telem__counts.stored += new_stored;
    telem__counts.refused += new_refused;
    telem__counts.above += samples - new_stored - new_refused;
    if (has_totals) telem__totals_settled(new_refused > 0);
    telem__link.goodbyes = 0;
    return true;
}

/* A flush that could not be made durable is refused, and has no number of samples. */
static void refuse_flush(uint64_t number)
{
    struct telem__item *before = NULL;
    for (struct telem__item *at = telem__queue.first; at; before = at, at = at->next)
        if (at->type == TELEM__FLUSH && at->number == number && at->was_sent) {
            if (number & TELEM__OWN_FLUSH)
                telem__flushes.own = 0;
            else if (number > telem__flushes.failed)
                telem__flushes.failed = number;
            telem__unlink(before, at);
            pthread_cond_broadcast(&telem__done);
            return;
        }
}

static bool take_refused(const unsigned char *body, size_t bytes)
{
    if (bytes < 24) return false;
    uint16_t length = telem__get_u16(body + 22);
    if (24u + length > bytes) return false;
    telem__refusal((const char *)body + 24, length);
    if (telem__get_u64(body + 12) == 0 && telem__get_u32(body + 8) == UINT32_MAX) refuse_flush(telem__get_u64(body));
    return true;
}

/* An answered flush counts once all batches before it are acknowledged. */
static void settle_flushes(void)
{
    bool is_new = false;
    while (telem__queue.first && telem__queue.first->type == TELEM__FLUSH && telem__queue.first->is_answered) {
        uint64_t number = telem__queue.first->number;
        if (number & TELEM__OWN_FLUSH) {
            telem__flushes.own = 0;
        } else if (number > telem__flushes.done) {
            telem__flushes.done = number;
            is_new = true;
        }
        telem__unlink(NULL, telem__queue.first);
    }
    if (is_new) pthread_cond_broadcast(&telem__done);
}

static bool take_flushed(const unsigned char *body, size_t bytes)
{
    if (bytes < 8) return false;
    uint64_t number = telem__get_u64(body);
    struct telem__item *before = NULL;
    for (struct telem__item *at = telem__queue.first, *next; at; at = next) {
        next = at->next;
        if (at->type == TELEM__FLUSH && at->number == number && at->was_sent) {
            at->is_answered = true;
            break;
        }
        if (at->type == TELEM__TEXT && at->was_sent)
            telem__unlink(before, at);
        else
            before = at;
    }
    return true;
}

/* The service says why it hangs up. */
static void take_goodbye(const unsigned char *body, size_t bytes)
{
    uint16_t code = bytes >= 4 ? telem__get_u16(body) : 0;
    size_t length = bytes >= 4 ? telem__get_u16(body + 2) : 0;
    if (length + 4 > bytes) length = bytes > 4 ? bytes - 4 : 0;
    char why[300];
    snprintf(why, sizeof why, "%.*s", (int)at_most(length, 250), length ? (const char *)body + 4 : "");
    telem__refusal(why, strlen(why));
    if (code == 2 || code == 6) {
        telem__link.goodbyes++;
        /* Whatever it did not like would be sent again for ever. */
        struct telem__item *first = telem__queue.first;
        if (telem__link.goodbyes >= 2 && first && first->was_sent) {
            if (first->type == TELEM__BATCH) telem__counts.other += first->samples;
            if (first->has_totals) telem__totals_settled(true);
            telem__hang_up(why);
            telem__unlink(NULL, first);
            return;
        }
    }
    telem__hang_up(why);
}

static bool take_frame(uint8_t type, const unsigned char *body, size_t bytes)
{
    switch (type) {
    case 128: return take_welcome(body, bytes);
    case 129: return take_ack(body, bytes);
    case 130: return take_refused(body, bytes);
    case 131: return take_flushed(body, bytes);
    case 135: take_goodbye(body, bytes); return true;
    default: return true; /* answers that nobody asked for here */
    }
}

static void take_frames(void)
{
    size_t at = 0;
    while (telem__link.fd >= 0 && in_bytes - at >= 8) {
        size_t body = telem__get_u32(in + at);
        if (body > IN_BYTES - 8) {
            telem__hang_up("it does not speak the client protocol");
            return;
        }
        if (in_bytes - at < 8 + body) break;
        if (!take_frame(in[at + 4], in + at + 8, body)) {
            telem__hang_up("a frame is too short, or of another version");
            return;
        }
        at += 8 + body;
    }
    if (telem__link.fd < 0) return;
    memmove(in, in + at, in_bytes - at);
    in_bytes -= at;
    settle_flushes();
}

void telem__receive(void)
{
    if (telem__link.fd < 0) return;
    if (!telem__is_ours()) {
        telem__hang_up("the program closed its socket");
        return;
    }
    if (!in) in = malloc(IN_BYTES);
    if (!in) return;
    while (telem__link.fd >= 0) {
        ssize_t got = recv(telem__link.fd, in + in_bytes, IN_BYTES - in_bytes, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            telem__hang_up(got == 0 ? "it has ended, or was started again" : strerror(errno));
            return;
        }
        in_bytes += (size_t)got;
        take_frames();
    }
}
