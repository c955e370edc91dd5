/*
 * text.c: notes and settings. They wait in the queue as batches do, and leave it when a flush behind them is answered.
 */
#include "work.h"

#include <stdlib.h>
#include <string.h>

static int queue_text(struct telem__item *item, const char *what)
{
    if (!item) {
        telem__fail("no memory for %s", what);
        return -1;
    }
    pthread_mutex_lock(&telem__work);
    bool has_room = telem__queue.texts < TELEM__TEXTS_MAX && telem__has_queue_room();
    if (has_room) {
        telem__append(item);
        telem__sender.active_ms = telem__now_ms();
        pthread_cond_signal(&telem__wake_sender);
    }
    pthread_mutex_unlock(&telem__work);
    if (has_room) return 0;
    free(item);
    telem__fail("no room for %s: %d wait for the service", what, TELEM__TEXTS_MAX);
    return -1;
}

static bool can_queue(const char *first, const char *second, size_t first_max, const char *what)
{
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    pthread_mutex_unlock(&telem__api);
    if (atomic_load(&telem__state) != TELEM__RUNNING) {
        telem__fail("no service is named, or the library was stopped: %s is lost", what);
        return false;
    }
    if (!first || !*first || strlen(first) > first_max || strlen(second) > TELEM__TEXT_BYTES_MAX) {
        telem__fail("%s: its name has %zu bytes (1 to %zu are taken), its text %zu (at most %d)", what,
                    first ? strlen(first) : 0, first_max, strlen(second), TELEM__TEXT_BYTES_MAX);
        return false;
    }
    return true;
}

/* A text and a long text, from `at` on. */
static void put_texts(unsigned char *at, const char *first, const char *second)
{
    size_t first_bytes = strlen(first), second_bytes = strlen(second);
    /* With room for the zero, which what follows overwrites. */
    char *copy = (char *)at + 2;
    telem__put_u16(at, (uint16_t)first_bytes);
    telem__clean(copy, first, false);
    at += 2 + first_bytes;
    telem__put_u32(at, (uint32_t)second_bytes);
    telem__clean((char *)at + 4, second, false);
}

/* Now, in microseconds. The service keeps notes by the millisecond, and the later of two. */
static uint64_t time_of_note(void)
{
    static uint64_t last_ms;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    pthread_mutex_lock(&telem__work);
    if (us / 1000 <= last_ms && last_ms - us / 1000 < 1000) us = (last_ms + 1) * 1000;
    last_ms = us / 1000;
    pthread_mutex_unlock(&telem__work);
    return us;
}

int telem_note(const char *title, const char *more)
{
    if (!more) more = "";
    if (!can_queue(title, more, 1024, "a note")) return -1;
    size_t body = 8 + 2 + strlen(title) + 4 + strlen(more);
    struct telem__item *item = telem__new_item(TELEM__TEXT, 4, body + 1);
    if (item) {
        item->bytes = 8 + body;
        telem__put_head(item->frame, (uint32_t)body, 4);
        telem__put_u64(item->frame + 8, time_of_note());
        put_texts(item->frame + 16, title, more);
    }
    return queue_text(item, "a note");
}

int telem_setting(const char *name, const char *value)
{
    if (!value) value = "";
    if (!can_queue(name, value, 256, "a setting")) return -1;
    size_t body = 2 + strlen(name) + 4 + strlen(value);
    struct telem__item *item = telem__new_item(TELEM__TEXT, 5, body + 1);
    if (item) {
        item->bytes = 8 + body;
        telem__put_head(item->frame, (uint32_t)body, 5);
        put_texts(item->frame + 8, name, value);
    }
    return queue_text(item, "a setting");
}
