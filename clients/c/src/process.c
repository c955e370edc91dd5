/*
 * process.c: what the environment says: where the service is, who this process is, how the library shall work. And the
 * library's words: errors of a thread, refusals of the service, lines for TELEM_DEBUG.
 */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct telem__settings telem__settings;
pthread_mutex_t telem__words = PTHREAD_MUTEX_INITIALIZER;

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* A thread's own: why its last call failed, or the refusal that it read last. */
struct error {
    bool is_unread; /* one of a call, which no refusal hides */
    uint64_t refusals; /* how many there were when it was written */
    char text[TELEM__ERROR_BYTES];
};

static char last_refusals[TELEM__REFUSALS_KEPT][TELEM__ERROR_BYTES];
static uint64_t refusals;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t error_key;
static bool has_error_key;

static void make_key(void)
{
    has_error_key = pthread_key_create(&error_key, free) == 0;
}

static struct error *error_of_thread(void)
{
    pthread_once(&key_once, make_key);
    if (!has_error_key) return NULL;
    struct error *error = pthread_getspecific(error_key);
    if (error) return error;
    error = calloc(1, sizeof *error);
    if (error && pthread_setspecific(error_key, error) != 0) {
        free(error);
        return NULL;
    }
    return error;
}

void telem__fail(const char *format, ...)
{
    int number = errno;
    struct error *error = error_of_thread();
    if (error) {
        va_list rest;
        va_start(rest, format);
        vsnprintf(error->text, sizeof error->text, format, rest);
        va_end(rest);
        error->is_unread = true;
        telem__debug("%s", error->text);
    }
    errno = number;
}

void telem__refusal(const char *text, size_t bytes)
{
    if (bytes > TELEM__ERROR_BYTES - 1) bytes = TELEM__ERROR_BYTES - 1;
    pthread_mutex_lock(&telem__words);
    char *to = last_refusals[refusals++ % TELEM__REFUSALS_KEPT];
    memcpy(to, text, bytes);
    to[bytes] = 0;
    pthread_mutex_unlock(&telem__words);
    telem__debug("refused: %.*s", (int)bytes, text);
}

/* With `telem__words`. Empty where there was none. */
static const char *last_refusal(void)
{
    return last_refusals[(refusals + TELEM__REFUSALS_KEPT - 1) % TELEM__REFUSALS_KEPT];
}

bool telem__next_refusal(uint64_t *seen, char text[TELEM__ERROR_BYTES])
{
    pthread_mutex_lock(&telem__words);
    bool is_there = *seen < refusals;
    if (is_there) {
        if (refusals - *seen > TELEM__REFUSALS_KEPT) *seen = refusals - TELEM__REFUSALS_KEPT;
        memcpy(text, last_refusals[(*seen)++ % TELEM__REFUSALS_KEPT], TELEM__ERROR_BYTES);
    }
    pthread_mutex_unlock(&telem__words);
    return is_there;
}

void telem__fail_as_refused(void)
{
    struct error *error = error_of_thread();
    if (!error) return;
    pthread_mutex_lock(&telem__words);
    memcpy(error->text, last_refusal(), sizeof error->text);
    error->refusals = refusals;
    pthread_mutex_unlock(&telem__words);
    error->is_unread = true;
}

const char *telem_error(void)
{
    struct error *error = error_of_thread();
    if (!error) return "";
    if (!error->is_unread) {
        pthread_mutex_lock(&telem__words);
        if (error->refusals != refusals) memcpy(error->text, last_refusal(), sizeof error->text);
        error->refusals = refusals;
        pthread_mutex_unlock(&telem__words);
    }
    error->is_unread = false;
    return error->text;
}

/* To standard error, without the signal that a program gets whose reader is gone. */
static void write_line(const char *line, size_t bytes)
{
    struct timespec at_once = {0, 0};
    sigset_t broken, pending, before;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    bool is_broken = write(STDERR_FILENO, line, bytes) < 0 && errno == EPIPE;
    if (is_broken && !sigismember(&pending, SIGPIPE)) sigtimedwait(&broken, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void telem__debug(const char *format, ...)
{
    if (!telem__settings.debugs) return;
    int number = errno;
    char line[TELEM__ERROR_BYTES + 64];
    int bytes = snprintf(line, sizeof line, "telem[%ld]: ", (long)getpid());
    va_list rest;
    va_start(rest, format);
    int more = vsnprintf(line + bytes, sizeof line - (size_t)bytes - 1, format, rest);
    va_end(rest);
    if (more >= 0) {
        size_t length = strlen(line);
        line[length++] = '\n';
        write_line(line, length);
    }
    errno = number;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static const char *said(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* `path` so that it means the same wherever the process goes. */
static char *absolute(const char *path)
{
    char here[4096];
    if (!path || !*path) return NULL;
    if (path[0] == '/' || !getcwd(here, sizeof here)) return strdup(path);
    char *whole = malloc(strlen(here) + strlen(path) + 2);
    if (whole) sprintf(whole, "%s/%s", here, path);
    return whole;
}

static uint32_t number_of(const char *name, uint32_t otherwise, uint32_t low, uint32_t high)
{
    const char *text = said(name);
    char *end;
    if (!text) return otherwise;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || !isdigit((unsigned char)text[0]) || value < low || value > high) {
        telem__debug("%s is '%.40s'; expected %u to %u: %u counts", name, text, low, high, otherwise);
        return otherwise;
    }
    return (uint32_t)value;
}

static bool is_switched_off(const char *value)
{
    static const char *const words[] = {"0", "false", "no", "off"};
    if (!value) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0) return true;
    return false;
}

static uint32_t power_of_two(uint32_t least)
{
    uint32_t power = 16;
    while (power < least) power *= 2;
    return power;
}

int telem__settings_init(const telem_options *given)
{
    struct telem__settings *settings = &telem__settings;
    telem_options options;
    memset(&options, 0, sizeof options);
    settings->debugs = said("TELEM_DEBUG") && !is_switched_off(said("TELEM_DEBUG"));
    if (given) {
        if (given->size < sizeof(size_t) || given->size > 4096) {
            telem__fail("telem_options says a size of %zu; set it to sizeof(telem_options)", given->size);
            return -1;
        }
        memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    }
    if (options.ring_samples > 1u << 26 || options.interval_ms > 3600000 || options.process_tags < -1 ||
        options.process_tags > 1) {
        telem__fail("telem_options: ring_samples %u (at most 67,108,864), interval_ms %u (at most 3,600,000), "
                    "process_tags %d (-1, 0 or 1): one is out of its range",
                    options.ring_samples, options.interval_ms, options.process_tags);
        return -1;
    }
    settings->ring_samples =
        power_of_two(options.ring_samples ? options.ring_samples : number_of("TELEM_RING_SAMPLES", 65536, 1, 1u << 26));
    settings->interval_ms =
        options.interval_ms ? options.interval_ms : number_of("TELEM_INTERVAL_MS", 100, 1, 3600000);
    settings->exit_ms = options.exit_ms ? options.exit_ms : number_of("TELEM_EXIT_MS", 2000, 0, 3600000);
    settings->process_tags = options.process_tags;
    const char *tag = said("TELEM_PROCESS_TAG");
    if (options.process_tags == 0 && is_switched_off(tag)) settings->process_tags = -1;
    if (options.process_tags == 0 && tag && strcmp(tag, "both") == 0) settings->process_tags = 1;
    settings->socket = absolute(options.socket);
    if (!settings->socket) {
        settings->connection_file = absolute(said("TELEM_CONNECTION"));
        settings->environment_socket = absolute(said("TELEM_SOCKET"));
    }
    const char *level = said("TELEM_LEVEL");
    bool is_off = level && strcmp(level, "0") == 0;
    settings->is_named =
        !is_off && (settings->socket || settings->connection_file || settings->environment_socket);
    return 0;
}

/* ---- identity ---------------------------------------------------------------------------------------------------- */

/* The rank as the innermost launcher set it, and whether no other process can have it: in a batch script Slurm says 0
   to everything that is started there without `srun`. */
static const char *rank_of(bool *is_own)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = said(names[i]);
        if (!value || strlen(value) > 20 || strspn(value, "0123456789") != strlen(value)) continue;
        *is_own = strcmp(names[i], "SLURM_PROCID") != 0 || said("SLURM_STEP_ID");
        return value;
    }
    *is_own = false;
    return NULL;
}

void telem__identify(struct telem__identity *identity, bool is_forked)
{
    bool is_own;
    const char *rank = rank_of(&is_own);
    identity->count = 0;
    if (telem__settings.process_tags < 0) return;
    if (rank) {
        strcpy(identity->keys[identity->count], "rank");
        snprintf(identity->values[identity->count++], sizeof identity->values[0], "%s", rank);
    }
    if (!is_own || is_forked || telem__settings.process_tags > 0) {
        strcpy(identity->keys[identity->count], "pid");
        snprintf(identity->values[identity->count++], sizeof identity->values[0], "%ld", (long)getpid());
    }
}

/* ---- the service's socket ---------------------------------------------------------------------------------------- */

enum { CONNECTION_FILE_BYTES_MAX = 65536 };

static char *read_file(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return NULL;
    char *text = malloc(CONNECTION_FILE_BYTES_MAX);
    size_t length = 0;
    while (text && length < CONNECTION_FILE_BYTES_MAX - 1) {
        ssize_t got = read(file, text + length, CONNECTION_FILE_BYTES_MAX - 1 - length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(file);
    if (text) text[length] = 0;
    return text;
}

static size_t put_character(char *to, unsigned long code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xC0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xE0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3F));
        to[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (char)(0xF0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3F));
    to[2] = (char)(0x80 | (code >> 6 & 0x3F));
    to[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

static bool read_hex(const char *at, unsigned long *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)at[i])) return false;
        *code = *code * 16 + (unsigned long)(at[i] <= '9' ? at[i] - '0' : (at[i] | 0x20) - 'a' + 10);
    }
    return true;
}

/* Reads the text of JSON whose quote is before `at` into `to`, which has room for it. Behind its end, or NULL. */
static const char *read_text(const char *at, char *to)
{
    while (*at && *at != '"') {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        at++;
        unsigned long code, low;
        switch (*at) {
        case 'n': *to++ = '\n'; break;
        case 't': *to++ = '\t'; break;
        case 'r': *to++ = '\r'; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'u':
            if (!read_hex(at + 1, &code)) return NULL;
            at += 4;
            if (code >= 0xD800 && code < 0xDC00 && at[1] == '\\' && at[2] == 'u' && read_hex(at + 3, &low)) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                at += 6;
            }
            to += put_character(to, code);
            break;
        case 0: return NULL;
        default: *to++ = *at;
        }
        at++;
    }
    *to = 0;
    return *at == '"' ? at + 1 : NULL;
}

/* The text under `name` of an object of JSON, at its first depth. To be freed. */
static char *text_of(const char *json, const char *name)
{
    char *text = malloc(strlen(json) + 1);
    int depth = 0;
    bool is_name = false;
    const char *at = json;
    while (text && at && *at) {
        if (*at == '{' || *at == '[') depth++;
        if (*at == '}' || *at == ']') depth--;
        if (*at != '"') {
            at++;
            continue;
        }
        at = read_text(at + 1, text);
        if (!at) break;
        if (is_name) return text;
        at += strspn(at, " \t\r\n");
        if (*at != ':') continue;
        at++;
        at += strspn(at, " \t\r\n");
        is_name = depth == 1 && *at == '"' && strcmp(text, name) == 0;
    }
    free(text);
    return NULL;
}

char *telem__socket_path(void)
{
    const struct telem__settings *settings = &telem__settings;
    if (settings->socket) return strdup(settings->socket);
    if (settings->connection_file) {
        char *json = read_file(settings->connection_file);
        char *found = json ? text_of(json, "socket") : NULL;
        free(json);
        if (found && *found) return found;
        free(found);
    }
    if (settings->environment_socket) return strdup(settings->environment_socket);
    telem__fail("no service: %s does not exist, or names no socket", settings->connection_file);
    return NULL;
}

/* Moves it beyond the numbers that programs use: one that closed its standard output would write there. */
static int move_up(int socket)
{
    int moved = fcntl(socket, F_DUPFD_CLOEXEC, 200);
    if (moved < 0) moved = fcntl(socket, F_DUPFD_CLOEXEC, 10);
    if (moved < 0) return socket;
    close(socket);
    return moved;
}

/* A path that is too long for an address is reached through its directory. */
static int connect_to(int socket, const char *path)
{
    struct sockaddr_un address;
    int directory = -1;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
    } else {
        const char *slash = strrchr(path, '/');
        char *parent = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;
        directory = parent ? open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        free(parent);
        if (directory < 0 || strlen(slash) > 60) {
            if (directory >= 0) close(directory);
            errno = ENAMETOOLONG;
            return -1;
        }
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d%s", directory, slash);
    }
    int done = connect(socket, (struct sockaddr *)&address, sizeof address);
    int error = errno;
    if (directory >= 0) close(directory);
    errno = error;
    return done;
}

int telem__dial(const char *path)
{
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0) made = move_up(made);
    if (made >= 0 && connect_to(made, path) == 0) return made;
    int error = errno;
    bool is_busy = error == EAGAIN;
    telem__fail("no service at %s: %s", path, is_busy ? "it is there, and too many others wait" : strerror(error));
    if (made >= 0) close(made);
    errno = error;
    return -1;
}
