/*
 * faults.c: what the system does at a bad moment, preloaded before the library's sender.
 *
 * FAULT says which: `hang`: the file HANG is on a file system that does not answer. `hang_up`: whoever is sent samples
 * hangs up first. `steal`: once STEAL is set, the program closes the library's socket and opens one of its own there,
 * between two calls of the library.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000, SAMPLES = 2 };

static int last_of_sender = -1;
static int stolen = -1;

static int is_fault(const char *name)
{
    const char *fault = getenv("FAULT");
    return fault && strcmp(fault, name) == 0;
}

static int is_sender(void)
{
    char name[16] = "";
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, "telem") == 0;
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    const char *hang = getenv("HANG");
    while (is_fault("hang") && hang && strcmp(path, hang) == 0) pause();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    const unsigned char *frame = bytes;
    if (is_sender()) last_of_sender = fd;
    if (fd == stolen) _exit(9);
    if (is_fault("hang_up") && count >= 8 && frame[4] == SAMPLES && frame[5] == 0) {
        struct pollfd socket = {fd, 0, 0};
        poll(&socket, 1, PATIENCE_MS);
    }
    return syscall(SYS_sendto, fd, bytes, count, flags, NULL, 0);
}

/* The sender reads this clock once in each of its rounds, before it sends. */
int clock_gettime(clockid_t clock, struct timespec *to)
{
    if (clock == CLOCK_REALTIME && stolen < 0 && is_fault("steal") && getenv("STEAL") && is_sender()) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && dup2(pair[0], last_of_sender) >= 0)
            stolen = last_of_sender;
    }
    return (int)syscall(SYS_clock_gettime, clock, to);
}
