/*
 * question.c: SQL to the service, on a connection of its own, and its answer as Arrow's C data interface or row by row.
 *
 * A frame of rows is laid out as Arrow lays out its arrays. So the answer is read into memory once, and the arrays that
 * a caller gets point into the frames; the last one that is released frees its frame.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COLUMNS_MAX = 16384, SQL_BYTES_MAX = 1000000 };
static const uint64_t ANSWER_BYTES_MAX = UINT64_C(4) << 30;

enum column_type { IS_BOOL, IS_INT, IS_UINT, IS_FLOAT, IS_TEXT, IS_TIME };

static const struct {
    const char *format;
    enum column_type type;
} TYPES[] = {{"b", IS_BOOL}, {"l", IS_INT}, {"L", IS_UINT}, {"g", IS_FLOAT}, {"u", IS_TEXT}, {"tsu:UTC", IS_TIME}};

struct column {
    char *name;
    enum column_type type;
};

/* A frame of rows. Lives until the answer and all arrays that point into it are released. */
struct rows {
    struct rows *next;
    _Atomic size_t users;
    uint32_t count;
    const unsigned char **parts; /* of each column: bitmap or NULL, values, bytes of texts */
    _Alignas(16) unsigned char body[];
};

struct answer {
    struct column *columns;
    uint32_t column_count;
    struct rows *first, *last;
    uint64_t bytes;
    char error[TELEM__ERROR_BYTES];
};

static void release_rows(struct rows *rows)
{
    if (atomic_fetch_sub(&rows->users, 1) != 1) return;
    free(rows->parts);
    free(rows);
}

static void free_answer(struct answer *answer)
{
    if (!answer) return;
    for (struct rows *at = answer->first, *next; at; at = next) {
        next = at->next;
        release_rows(at);
    }
    for (uint32_t i = 0; i < answer->column_count; i++) free(answer->columns[i].name);
    free(answer->columns);
    free(answer);
}

/* ---- reading frames ---------------------------------------------------------------------------------------------- */

struct asking {
    int fd;
    uint64_t deadline_ms;
    uint32_t timeout_ms;
    struct asking *next; /* with `telem__questions` */
};

pthread_mutex_t telem__questions = PTHREAD_MUTEX_INITIALIZER;
static struct asking *all;

void telem__questions_after_fork(void)
{
    pthread_mutex_init(&telem__questions, NULL);
    struct stat found;
    for (; all; all = all->next)
        if (fstat(all->fd, &found) == 0 && S_ISSOCK(found.st_mode)) close(all->fd);
}

static uint64_t now_in_ms(void)
{
    return telem__monotonic_ns() / 1000000;
}

static bool wait_for_service(const struct asking *asking, short events)
{
    uint64_t now = now_in_ms();
    if (now >= asking->deadline_ms) {
        telem__fail("the service has not answered within %u ms", asking->timeout_ms);
        return false;
    }
    struct pollfd socket = {asking->fd, events, 0};
    uint64_t left = asking->deadline_ms - now;
    poll(&socket, 1, left > 1000 ? 1000 : (int)left);
    return true;
}

static bool send_whole(const struct asking *asking, const unsigned char *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t went = send(asking->fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (went >= 0) {
            at += went;
            bytes -= (size_t)went;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for_service(asking, POLLOUT)) return false;
        } else if (errno != EINTR) {
            telem__fail("the service hung up on a question: %s", strerror(errno));
            return false;
        }
    }
    return true;
}

static bool receive_whole(const struct asking *asking, unsigned char *at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = recv(asking->fd, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for_service(asking, POLLIN)) return false;
        } else if (got == 0 || errno != EINTR) {
            telem__fail("the service hung up on a question: %s", got == 0 ? "it has ended" : strerror(errno));
            return false;
        }
    }
    return true;
}

/* ---- what frames say --------------------------------------------------------------------------------------------- */

static bool is_bad(const char *what)
{
    telem__fail("the answer of the service has another shape than expected: %s", what);
    return false;
}

/* A text whose length is `wide` bytes; NULL if the body is too short. */
static const unsigned char *text_at(const unsigned char *at, const unsigned char *end, size_t wide, size_t *bytes)
{
    if ((size_t)(end - at) < wide) return NULL;
    *bytes = wide == 2 ? telem__get_u16(at) : telem__get_u32(at);
    at += wide;
    return (size_t)(end - at) < *bytes ? NULL : at;
}

static bool take_columns(struct answer *answer, const unsigned char *body, size_t bytes)
{
    if (bytes < 8 || answer->columns) return is_bad("columns");
    uint32_t count = telem__get_u32(body + 4);
    const unsigned char *at = body + 8, *end = body + bytes;
    if (count > COLUMNS_MAX) return is_bad("too many columns");
    answer->columns = calloc(count ? count : 1, sizeof *answer->columns);
    if (!answer->columns) return is_bad("no memory for its columns");
    for (uint32_t i = 0; i < count; i++) {
        size_t length;
        struct column *column = &answer->columns[i];
        const unsigned char *name = text_at(at, end, 2, &length);
        if (!name) return is_bad("the name of a column");
        column->name = strndup((const char *)name, length);
        answer->column_count = i + 1;
        at = name + length;
        const unsigned char *format = text_at(at, end, 2, &length);
        if (!format || !column->name) return is_bad("the type of a column");
        at = format + length;
        size_t known = 0;
        while (known < sizeof TYPES / sizeof *TYPES &&
               (strlen(TYPES[known].format) != length || memcmp(TYPES[known].format, format, length) != 0))
            known++;
        if (known == sizeof TYPES / sizeof *TYPES) return is_bad("a type that this library does not know");
        column->type = TYPES[known].type;
    }
    return true;
}

static size_t padded(size_t bytes)
{
    return (bytes + 7) & ~(size_t)7;
}

/* Checks that texts lie within their bytes, one behind the other. */
static bool are_offsets(const unsigned char *offsets, uint32_t count, size_t room)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t offset = telem__get_u32(offsets + 4 * (size_t)i);
        if (offset < before || offset > room || offset > INT32_MAX) return false;
        before = offset;
    }
    return telem__get_u32(offsets) == 0;
}

/* Finds the parts of each column. */
static bool take_rows(struct answer *answer, struct rows *rows, size_t bytes)
{
    if (bytes < 8 || !answer->columns) return is_bad("rows");
    size_t count = rows->count = telem__get_u32(rows->body + 4);
    const unsigned char *at = rows->body + 8, *end = rows->body + bytes;
    rows->parts = calloc(3 * (size_t)answer->column_count + 1, sizeof *rows->parts);
    if (!rows->parts) return is_bad("no memory for its rows");
    for (uint32_t i = 0; i < answer->column_count; i++) {
        const unsigned char **parts = rows->parts + 3 * (size_t)i;
        enum column_type type = answer->columns[i].type;
        if ((size_t)(end - at) < 8) return is_bad("a column is missing");
        bool has_bitmap = at[0];
        at += 8;
        size_t bitmap = padded((count + 7) / 8);
        size_t values = type == IS_BOOL ? bitmap : type == IS_TEXT ? padded(4 * (count + 1)) : 8 * count;
        size_t needed = values + (has_bitmap ? bitmap : 0);
        if ((size_t)(end - at) < needed) return is_bad("a column is too short");
        if (has_bitmap) {
            parts[0] = at;
            at += bitmap;
        }
        parts[1] = at;
        at += values;
        if (type != IS_TEXT) continue;
        if (!are_offsets(parts[1], rows->count, (size_t)(end - at))) return is_bad("texts lie outside of it");
        parts[2] = at;
        size_t texts = padded(telem__get_u32(parts[1] + 4 * count));
        if ((size_t)(end - at) < texts) return is_bad("texts are too short");
        at += texts;
    }
    return true;
}

static bool take_end(const unsigned char *body, size_t bytes)
{
    size_t length = 0;
    const unsigned char *why = bytes >= 5 ? text_at(body + 5, body + bytes, 4, &length) : NULL;
    if (!why) return is_bad("its end");
    if (body[4] == 0) return true;
    telem__fail("%s%.*s", body[4] == 1 ? "the answer is not whole: " : "", (int)(length > 400 ? 400 : length),
                (const char *)why);
    return false;
}

static bool take_bye(const unsigned char *body, size_t bytes)
{
    size_t length = 0;
    const unsigned char *why = bytes >= 2 ? text_at(body + 2, body + bytes, 2, &length) : NULL;
    telem__fail("the service hung up on a question: %.*s", (int)(length > 400 ? 400 : length),
                why ? (const char *)why : "");
    return false;
}

/* Reads frames until the end of the answer. */
static bool read_answer(const struct asking *asking, struct answer *answer)
{
    for (;;) {
        unsigned char head[8];
        if (!receive_whole(asking, head, 8)) return false;
        size_t bytes = telem__get_u32(head);
        if (bytes > TELEM__FRAME_BYTES_MAX) return is_bad("it does not speak the client protocol");
        answer->bytes += bytes;
        if (answer->bytes > ANSWER_BYTES_MAX) {
            telem__fail("the answer has more than 4 GiB; ask for less, such as with LIMIT");
            return false;
        }
        struct rows *rows = malloc(sizeof *rows + bytes + 1);
        if (!rows) {
            telem__fail("no memory for an answer of %llu bytes", (unsigned long long)answer->bytes);
            return false;
        }
        memset(rows, 0, sizeof *rows);
        atomic_store(&rows->users, 1);
        bool is_good = receive_whole(asking, rows->body, bytes);
        bool is_kept = false, is_end = false;
        if (is_good && head[4] == 132) {
            is_good = take_columns(answer, rows->body, bytes);
        } else if (is_good && head[4] == 133) {
            is_good = take_rows(answer, rows, bytes);
            is_kept = is_good && rows->count > 0;
        } else if (is_good && head[4] == 134) {
            is_good = take_end(rows->body, bytes);
            is_end = true;
        } else if (is_good && head[4] == 135) {
            is_good = take_bye(rows->body, bytes);
        }
        if (is_kept) {
            if (answer->last)
                answer->last->next = rows;
            else
                answer->first = rows;
            answer->last = rows;
        } else {
            release_rows(rows);
        }
        if (!is_good || is_end) return is_good;
    }
}

static bool send_question(const struct asking *asking, const char *sql, size_t bytes)
{
    unsigned char *sent = malloc(8 + 8 + 12 + bytes);
    if (!sent) {
        telem__fail("no memory for a question of %zu bytes", bytes);
        return false;
    }
    memcpy(sent, telem__opening, 8);
    telem__put_head(sent + 8, (uint32_t)(12 + bytes), 7);
    telem__put_u32(sent + 16, 1);
    telem__put_u32(sent + 20, asking->timeout_ms);
    telem__put_u32(sent + 24, (uint32_t)bytes);
    memcpy(sent + 28, sql, bytes);
    bool is_sent = send_whole(asking, sent, 28 + bytes);
    free(sent);
    return is_sent;
}

/* A service that hears nothing for now is asked again until the deadline. */
static bool dial_until(struct asking *asking)
{
    char *path = telem__socket_path();
    bool is_busy = path != NULL;
    while (is_busy) {
        pthread_mutex_lock(&telem__questions);
        asking->fd = telem__dial(path);
        is_busy = asking->fd < 0 && errno == EAGAIN && now_in_ms() < asking->deadline_ms;
        if (asking->fd >= 0) {
            asking->next = all;
            all = asking;
        }
        pthread_mutex_unlock(&telem__questions);
        struct timespec short_while = {0, 2000000};
        if (is_busy) nanosleep(&short_while, NULL);
    }
    free(path);
    return asking->fd >= 0;
}

static void hang_up(struct asking *asking)
{
    if (asking->fd < 0) return;
    pthread_mutex_lock(&telem__questions);
    struct asking **at = &all;
    while (*at && *at != asking) at = &(*at)->next;
    /* Not there in a child that a signal handler made in the middle of this: it has closed it. */
    if (*at) {
        *at = asking->next;
        close(asking->fd);
    }
    pthread_mutex_unlock(&telem__questions);
}

static struct answer *ask(const char *sql, uint32_t timeout_ms)
{
    size_t bytes = sql ? strlen(sql) : 0;
    if (bytes == 0 || bytes > SQL_BYTES_MAX) {
        telem__fail("a question of %zu bytes; 1 to %d are taken", bytes, SQL_BYTES_MAX);
        return NULL;
    }
    struct asking asking = {-1, now_in_ms() + timeout_ms, timeout_ms, NULL};
    pthread_mutex_lock(&telem__api);
    telem__ensure();
    pthread_mutex_unlock(&telem__api);
    int state = atomic_load(&telem__state);
    if (!telem__settings.is_named) {
        telem__fail("no service is named: TELEM_CONNECTION and TELEM_SOCKET are not set");
        return NULL;
    }
    if (state == TELEM__RUNNING && telem_flush(timeout_ms) != 0) return NULL;
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer) {
        telem__fail("no memory for an answer");
        return NULL;
    }
    bool is_whole = dial_until(&asking) && send_question(&asking, sql, bytes) && read_answer(&asking, answer);
    hang_up(&asking);
    if (is_whole && !answer->columns) is_whole = is_bad("no columns");
    if (is_whole) return answer;
    free_answer(answer);
    return NULL;
}

/* ---- Arrow ------------------------------------------------------------------------------------------------------- */

struct stream {
    struct answer *answer;
    struct rows *next;
};

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        struct ArrowSchema *child = schema->children[i];
        if (child->release) child->release(child);
    }
    free(schema->private_data);
    schema->release = NULL;
}

static void release_column(struct ArrowSchema *schema)
{
    free(schema->private_data);
    schema->release = NULL;
}

static int get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *to)
{
    const struct answer *answer = ((struct stream *)stream->private_data)->answer;
    size_t count = answer->column_count;
    struct ArrowSchema *children = calloc(1, count * (sizeof *children + sizeof children) + 1);
    if (!children) return ENOMEM;
    struct ArrowSchema **list = (struct ArrowSchema **)(children + count);
    for (size_t i = 0; i < count; i++) {
        /* A child may be moved out of its parent and live longer. */
        char *name = strdup(answer->columns[i].name);
        list[i] = &children[i];
        children[i].format = TYPES[answer->columns[i].type].format;
        children[i].name = name ? name : "";
        children[i].flags = ARROW_FLAG_NULLABLE;
        children[i].private_data = name;
        children[i].release = release_column;
    }
    memset(to, 0, sizeof *to);
    to->format = "+s";
    to->name = "";
    to->n_children = (int64_t)count;
    to->children = list;
    to->private_data = children;
    to->release = release_schema;
    return 0;
}

/* What a column's array keeps. */
struct held {
    struct rows *rows;
    const void *buffers[3];
};

static void release_array(struct ArrowArray *array)
{
    struct held *held = array->private_data;
    release_rows(held->rows);
    free(held);
    array->release = NULL;
}

static void release_batch(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        struct ArrowArray *child = array->children[i];
        if (child->release) child->release(child);
    }
    free(array->private_data);
    array->release = NULL;
}

static int get_next(struct ArrowArrayStream *stream, struct ArrowArray *to)
{
    struct stream *from = stream->private_data;
    struct rows *rows = from->next;
    memset(to, 0, sizeof *to);
    if (!rows) return 0;
    size_t count = from->answer->column_count;
    /* One block: the children, the list of them, and the one buffer of the parent. */
    struct ArrowArray *children = calloc(1, count * (sizeof *children + sizeof children) + sizeof(void *));
    if (!children) return ENOMEM;
    struct ArrowArray **list = (struct ArrowArray **)(children + count);
    to->buffers = (const void **)(list + count);
    to->n_buffers = 1;
    to->length = rows->count;
    to->n_children = (int64_t)count;
    to->children = list;
    to->private_data = children;
    to->release = release_batch;
    for (size_t i = 0; i < count; i++) list[i] = &children[i];
    for (size_t i = 0; i < count; i++) {
        struct held *held = calloc(1, sizeof *held);
        if (!held) {
            release_batch(to);
            return ENOMEM;
        }
        const unsigned char **parts = rows->parts + 3 * i;
        held->rows = rows;
        atomic_fetch_add(&rows->users, 1);
        for (int part = 0; part < 3; part++) held->buffers[part] = parts[part];
        children[i].length = rows->count;
        children[i].null_count = parts[0] ? -1 : 0;
        children[i].n_buffers = from->answer->columns[i].type == IS_TEXT ? 3 : 2;
        children[i].buffers = held->buffers;
        children[i].private_data = held;
        children[i].release = release_array;
    }
    from->next = rows->next;
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *stream)
{
    (void)stream;
    return "no memory";
}

static void release_stream(struct ArrowArrayStream *stream)
{
    struct stream *held = stream->private_data;
    free_answer(held->answer);
    free(held);
    stream->release = NULL;
}

int telem_sql(const char *sql, uint32_t timeout_ms, struct ArrowArrayStream *answer)
{
    if (!answer) {
        telem__fail("there is no place for the answer");
        return -1;
    }
    memset(answer, 0, sizeof *answer);
    struct stream *held = calloc(1, sizeof *held);
    if (held) held->answer = ask(sql, timeout_ms);
    if (!held || !held->answer) {
        free(held);
        return -1;
    }
    held->next = held->answer->first;
    answer->get_schema = get_schema;
    answer->get_next = get_next;
    answer->get_last_error = get_last_error;
    answer->release = release_stream;
    answer->private_data = held;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool has_bit(const unsigned char *bitmap, size_t row)
{
    return bitmap[row / 8] >> (row % 8) & 1;
}

/* The texts of a row one behind the other, each with a zero. */
struct texts {
    char *at;
    size_t room;
};

static bool has_text_room(struct texts *texts, size_t bytes)
{
    if (bytes <= texts->room) return true;
    char *grown = realloc(texts->at, bytes * 2);
    if (!grown) return false;
    texts->at = grown;
    texts->room = bytes * 2;
    return true;
}

static size_t text_bytes(const struct answer *answer, const struct rows *rows, size_t row)
{
    size_t bytes = 1;
    for (uint32_t i = 0; i < answer->column_count; i++) {
        const unsigned char *offsets = rows->parts[3 * (size_t)i + 1] + 4 * row;
        if (answer->columns[i].type == IS_TEXT) bytes += telem__get_u32(offsets + 4) - telem__get_u32(offsets) + 1;
    }
    return bytes;
}

static void value_at(enum column_type type, const unsigned char **parts, size_t row, telem_value *value, char **text)
{
    memset(value, 0, sizeof *value);
    if (parts[0] && !has_bit(parts[0], row)) return;
    if (type == IS_BOOL) {
        value->type = TELEM_BOOL;
        value->as.boolean = has_bit(parts[1], row);
        return;
    }
    if (type == IS_TEXT) {
        uint32_t from = telem__get_u32(parts[1] + 4 * row), to = telem__get_u32(parts[1] + 4 * row + 4);
        memcpy(*text, parts[2] + from, to - from);
        (*text)[to - from] = 0;
        value->type = TELEM_TEXT;
        value->as.text = *text;
        value->bytes = to - from;
        *text += value->bytes + 1;
        return;
    }
    uint64_t bits = telem__get_u64(parts[1] + 8 * row);
    if (type == IS_FLOAT) {
        value->type = TELEM_FLOAT;
        memcpy(&value->as.real, &bits, 8);
    } else if (type == IS_UINT) {
        value->type = TELEM_UINT;
        value->as.natural = bits;
    } else {
        value->type = type == IS_TIME ? TELEM_TIME : TELEM_INT;
        value->as.integer = (int64_t)bits;
    }
}

static int64_t give_rows(const struct answer *answer, telem_row row, void *context)
{
    size_t count = answer->column_count;
    struct texts texts = {NULL, 0};
    telem_value *values = calloc(count ? count : 1, sizeof *values);
    const char **names = calloc(count ? count : 1, sizeof *names);
    int64_t given = values && names ? 0 : -1;
    bool goes_on = given == 0;
    for (size_t i = 0; goes_on && i < count; i++) names[i] = answer->columns[i].name;
    for (const struct rows *rows = answer->first; goes_on && rows; rows = rows->next)
        for (uint32_t at = 0; goes_on && at < rows->count; at++) {
            goes_on = has_text_room(&texts, text_bytes(answer, rows, at));
            if (!goes_on) {
                given = -1;
                break;
            }
            char *text = texts.at;
            for (size_t i = 0; i < count; i++)
                value_at(answer->columns[i].type, rows->parts + 3 * i, at, &values[i], &text);
            given++;
            goes_on = row(context, count, names, values) == 0;
        }
    if (given < 0) telem__fail("no memory for a row");
    free(texts.at);
    free(values);
    free(names);
    return given;
}

int64_t telem_sql_rows(const char *sql, uint32_t timeout_ms, telem_row row, void *context)
{
    if (!row) {
        telem__fail("there is no function that takes the rows");
        return -1;
    }
    struct answer *answer = ask(sql, timeout_ms);
    if (!answer) return -1;
    int64_t given = give_rows(answer, row, context);
    free_answer(answer);
    return given;
}

struct number {
    bool is_found;
    double value;
};

static int take_number(void *context, size_t count, const char *const *columns, const telem_value *values)
{
    struct number *number = context;
    (void)columns;
    if (count == 0) return 1;
    number->is_found = true;
    switch (values[0].type) {
    case TELEM_BOOL: number->value = values[0].as.boolean; break;
    case TELEM_INT: number->value = (double)values[0].as.integer; break;
    case TELEM_TIME: number->value = (double)values[0].as.integer; break;
    case TELEM_UINT: number->value = (double)values[0].as.natural; break;
    case TELEM_FLOAT: number->value = values[0].as.real; break;
    default: number->is_found = false;
    }
    return 1;
}

int telem_sql_number(const char *sql, uint32_t timeout_ms, double *number)
{
    struct number found = {false, 0};
    int64_t rows = telem_sql_rows(sql, timeout_ms, take_number, &found);
    if (rows < 0) return -1;
    if (!found.is_found || !number) {
        telem__fail(rows == 0 ? "the answer has no row" : "the first column of the answer's first row is no number");
        return -1;
    }
    *number = found.value;
    return 0;
}
