/*
 * record.c: runs a command with a server of Metric Proxy's socket, and prints what came.
 *
 *     record NAME COMMAND [ARGUMENT]...
 *
 * Lines are `@NAME KIND TEXT`: `out` what the command printed, `N` a message of connection number N, and at the end
 * `exit` or `signal` with what the command ended with.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LISTENER, ENDS, PRINTED, FIRST, SOURCES_MAX = 64, BYTES_MAX = 8 << 20 };

/* What comes from each, until a line or message is whole. */
static struct source {
    char *bytes;
    size_t many;
} sources[SOURCES_MAX];
static struct pollfd from[SOURCES_MAX];
static int known = FIRST;
static const char *name;

static void fail(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static void print_whole(int at)
{
    struct source *one = &sources[at];
    char mark = at == PRINTED ? '\n' : 0, *end;
    while (one->many && (end = memchr(one->bytes, mark, one->many))) {
        size_t length = (size_t)(end - one->bytes);
        if (at == PRINTED)
            printf("@%s out %.*s\n", name, (int)length, one->bytes);
        else
            printf("@%s %d %.*s\n", name, at - FIRST, (int)length, one->bytes);
        one->many -= length + 1;
        memmove(one->bytes, end + 1, one->many);
    }
}

/* 0 once nothing more comes from there. */
static int take(int at)
{
    struct source *one = &sources[at];
    if (!one->bytes && !(one->bytes = malloc(BYTES_MAX))) fail("malloc");
    ssize_t got = read(from[at].fd, one->bytes + one->many, BYTES_MAX - one->many);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (got <= 0) {
        close(from[at].fd);
        from[at].fd = -1;
        return 0;
    }
    one->many += (size_t)got;
    print_whole(at);
    return 1;
}

static void welcome(void)
{
    int one = accept4(from[LISTENER].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (one < 0) return;
    if (known == SOURCES_MAX) fail("too many connections");
    from[known].fd = one;
    from[known++].events = POLLIN;
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/socket"};
    sigset_t children;
    int printed[2], status = 0, has_ended = 0;
    if (argc < 3) return EXIT_FAILURE;
    name = argv[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    unlink(address.sun_path);
    from[LISTENER].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(from[LISTENER].fd, (struct sockaddr *)&address, sizeof address) != 0) fail("bind");
    if (listen(from[LISTENER].fd, 64) != 0 || pipe2(printed, O_CLOEXEC) != 0) fail("listen");
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    from[ENDS].fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    from[PRINTED].fd = printed[0];
    fcntl(printed[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < FIRST; i++) from[i].events = POLLIN;
    pid_t command = fork();
    if (command == 0) {
        sigprocmask(SIG_UNBLOCK, &children, NULL);
        setenv("PROXY_PATH", address.sun_path, 1);
        setenv("PROXY_EXIT_MS", "60000", 1);
        dup2(printed[1], STDOUT_FILENO);
        dup2(printed[1], STDERR_FILENO);
        execvp(argv[2], argv + 2);
        fail(argv[2]);
    }
    close(printed[1]);
    /* What it left in the sockets is read to its end; a child that goes on may still print, and is not waited for. */
    for (;;) {
        int open = 0;
        for (int i = FIRST; i < known; i++) open += from[i].fd >= 0;
        int ready = poll(from, (nfds_t)known, has_ended && !open ? 100 : -1);
        if (ready == 0) break;
        if (ready < 0) continue;
        if (from[ENDS].revents) {
            struct signalfd_siginfo said;
            while (read(from[ENDS].fd, &said, sizeof said) > 0) continue;
            has_ended |= waitpid(command, &status, WNOHANG) == command;
        }
        for (int i = PRINTED; i < known; i++)
            if (from[i].fd >= 0 && from[i].revents) take(i);
        if (from[LISTENER].revents) welcome();
    }
    if (WIFSIGNALED(status))
        printf("@%s signal %d\n", name, WTERMSIG(status));
    else
        printf("@%s exit %d\n", name, WEXITSTATUS(status));
    return 0;
}
