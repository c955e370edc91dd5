/*
 * strace.c: system calls of a command, of its threads and of its children, counted without a change of it.
 *
 *     proxy_exporter_strace [-c] [-o FILE] [--] COMMAND [ARGUMENT]...
 *
 * The command runs as if it had been started directly: same streams, signals, exit status. A call counts when it
 * returns. Whatever the command leaves behind when it ends goes on untraced. -c prints a table on stderr, or to FILE.
 * A machine that does not let processes be traced runs the command uncounted, and says so.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../include/metric_proxy_client.h"
#include "calls.h"

#if defined(__x86_64__)
#define OWN_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCH AUDIT_ARCH_AARCH64
#else
#define OWN_ARCH 0
#endif

enum { EXIT_NOT_FOUND = 127, EXIT_NOT_RUN = 126, EXIT_OWN = 125 };

/* As linux/ptrace.h has it since 5.3; that header and sys/ptrace.h do not go together everywhere. */
enum { GET_SYSCALL_INFO = 0x420e, INFO_ENTRY = 1, INFO_EXIT = 2, EVENT_STOP = 128 };
struct call_info {
    uint8_t op;
    uint8_t pad[3];
    uint32_t arch;
    uint64_t instruction_pointer, stack_pointer;
    union {
        struct {
            uint64_t number, arguments[6];
        } entry;
        struct {
            int64_t result;
            uint8_t is_error;
        } exit;
    } of;
};

static uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void complain(const char *what)
{
    fprintf(stderr, "proxy_exporter_strace: %s: %s\n", what, strerror(errno));
}

/* ---- what is counted --------------------------------------------------------------------------------------------- */

static struct MetricProxyClient *client;

/* `tables` of calls: those of this machine, and those of programs of 32 bits. */
static struct counted {
    struct MetricProxyValue *hits, *time, *size;
    uint64_t calls, nanoseconds;
} counted[2][CALLS];
static struct MetricProxyValue *total_read, *total_write;

enum direction { NEITHER, READS, WRITES };

/* Whether the result of the call is a number of bytes, and which way they went. */
static enum direction direction_of(const char *name)
{
    static const char *const reads[] = {"read", "pread64", "readv", "preadv", "preadv2", "recv", "recvfrom", "recvmsg",
                                        "recvmmsg", "recvmmsg_time64", "mq_timedreceive"};
    static const char *const writes[] = {"write", "pwrite64", "writev", "pwritev", "pwritev2", "send", "sendto",
                                         "sendmsg", "sendmmsg", "mq_timedsend", "vmsplice"};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        if (strcmp(name, reads[i]) == 0) return READS;
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (strcmp(name, writes[i]) == 0) return WRITES;
    return NEITHER;
}

static void put_name(char *to, size_t room, int is_other, uint32_t number)
{
    if (is_other)
        snprintf(to, room, "syscall32_%u", number);
    else if (call_names[number])
        snprintf(to, room, "%s", call_names[number]);
    else
        snprintf(to, room, "syscall_%u", number);
}

static struct MetricProxyValue *open_counter(const char *what, const char *call, const char *doc)
{
    char name[128];
    snprintf(name, sizeof name, "strace___%s___%s", what, call);
    return metric_proxy_counter_new(client, name, doc);
}

/* Which calls have sizes; looked up once each. */
static enum direction directions[CALLS];

static void count(int is_other, uint32_t number, uint64_t took, int64_t result, int is_error)
{
    struct counted *of = &counted[is_other][number];
    if (!of->hits) {
        char name[64];
        put_name(name, sizeof name, is_other, number);
        of->hits = open_counter("hits", name, "Number of calls for syscall");
        of->time = open_counter("time", name, "Time spent in syscall");
        if (!is_other) directions[number] = direction_of(name);
    }
    of->calls++;
    of->nanoseconds += took;
    metric_proxy_counter_inc(of->hits, 1);
    metric_proxy_counter_inc(of->time, (double)took * 1e-9);
    if (is_other || directions[number] == NEITHER || is_error || result <= 0) return;
    if (!of->size) {
        char name[64], doc[96];
        put_name(name, sizeof name, is_other, number);
        snprintf(doc, sizeof doc, "Total bytes size for %s", name);
        of->size = open_counter("size", name, doc);
    }
    metric_proxy_counter_inc(of->size, (double)result);
    metric_proxy_counter_inc(directions[number] == READS ? total_read : total_write, (double)result);
}

static int by_time(const void *one, const void *other)
{
    const struct counted *a = *(struct counted *const *)one, *b = *(struct counted *const *)other;
    return a->nanoseconds < b->nanoseconds ? 1 : a->nanoseconds > b->nanoseconds ? -1 : 0;
}

static void print_table(FILE *to)
{
    static struct counted *met[2 * CALLS];
    size_t many = 0;
    uint64_t time = 0, calls = 0;
    for (size_t i = 0; i < 2 * CALLS; i++) {
        struct counted *one = &counted[i / CALLS][i % CALLS];
        if (!one->calls) continue;
        met[many++] = one;
        time += one->nanoseconds;
        calls += one->calls;
    }
    qsort(met, many, sizeof *met, by_time);
    fprintf(to, "%12s %10s  %s\n", "seconds", "calls", "syscall");
    for (size_t i = 0; i < many; i++) {
        char name[64];
        size_t at = (size_t)(met[i] - counted[0]);
        put_name(name, sizeof name, at >= CALLS, (uint32_t)(at % CALLS));
        fprintf(to, "%12.6f %10llu  %s\n", (double)met[i]->nanoseconds * 1e-9, (unsigned long long)met[i]->calls, name);
    }
    fprintf(to, "%12.6f %10llu  total\n", (double)time * 1e-9, (unsigned long long)calls);
}

/* ---- who is traced ----------------------------------------------------------------------------------------------- */

struct task {
    pid_t pid;
    /* Between entry and exit of a call. */
    int is_within, is_other;
    uint32_t number;
    uint64_t began;
    struct task *next;
};

enum { BUCKETS = 4096 };
static struct task *tasks[BUCKETS];

static struct task *find_task(pid_t pid)
{
    struct task *at = tasks[(unsigned)pid % BUCKETS];
    while (at && at->pid != pid) at = at->next;
    return at;
}

static struct task *add_task(pid_t pid)
{
    struct task *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->pid = pid;
    made->next = tasks[(unsigned)pid % BUCKETS];
    tasks[(unsigned)pid % BUCKETS] = made;
    return made;
}

static void remove_task(pid_t pid)
{
    for (struct task **at = &tasks[(unsigned)pid % BUCKETS]; *at; at = &(*at)->next) {
        if ((*at)->pid != pid) continue;
        struct task *gone = *at;
        *at = gone->next;
        free(gone);
        return;
    }
}

static void at_call(struct task *task, uint64_t now)
{
    struct call_info info;
    if (ptrace((enum __ptrace_request)GET_SYSCALL_INFO, task->pid, (void *)sizeof info, &info) < 0) return;
    if (info.op == INFO_ENTRY) {
        task->is_within = info.of.entry.number < CALLS;
        task->number = (uint32_t)(task->is_within ? info.of.entry.number : 0);
        task->is_other = OWN_ARCH && info.arch != OWN_ARCH;
        task->began = now;
    } else if (info.op == INFO_EXIT && task->is_within) {
        task->is_within = 0;
        count(task->is_other, task->number, now - task->began, info.of.exit.result, info.of.exit.is_error);
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static pid_t command;

/* A signal of a terminal reaches the command anyway; one that was sent to this process is meant for the command. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    (void)context;
    int was = errno;
    if (info->si_code <= 0 && command > 0) kill(command, signal);
    errno = was;
}

static void pass_signals_on(void)
{
    static const int passed[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGALRM};
    struct sigaction how;
    memset(&how, 0, sizeof how);
    how.sa_sigaction = pass_on;
    how.sa_flags = SA_SIGINFO | SA_RESTART;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) sigaction(passed[i], &how, NULL);
    signal(SIGTSTP, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
}

/* The command waits until it is traced. */
static pid_t start(char **arguments, int *go)
{
    int channel[2];
    if (pipe(channel) != 0) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char word;
        close(channel[1]);
        while (read(channel[0], &word, 1) < 0 && errno == EINTR) continue;
        close(channel[0]);
        execvp(arguments[0], arguments);
        int code = errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
        complain(arguments[0]);
        _exit(code);
    }
    close(channel[0]);
    *go = channel[1];
    return pid;
}

static int is_traceable(pid_t pid)
{
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                   PTRACE_O_TRACEEXEC;
    int status;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) != 0) return 0;
    if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) != 0 || waitpid(pid, &status, __WALL) != pid) return 0;
    struct call_info info;
    if (ptrace((enum __ptrace_request)GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) < 0) {
        ptrace(PTRACE_DETACH, pid, NULL, NULL);
        return 0;
    }
    return ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0;
}

/* What a task that stopped goes on with. */
static void go_on(struct task *task, int status, int *has_begun)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    uint64_t now = nanoseconds();
    unsigned long former;
    if (signal == (SIGTRAP | 0x80)) {
        if (*has_begun || task->pid != command)
            at_call(task, now);
        else
            task->began = now;
        signal = 0;
    } else if (event == EVENT_STOP) {
        if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) {
            ptrace(PTRACE_LISTEN, task->pid, NULL, NULL);
            return;
        }
        signal = 0;
    } else if (event == PTRACE_EVENT_EXEC) {
        /* A thread that calls it becomes the process: its call goes on under another number. */
        if (ptrace(PTRACE_GETEVENTMSG, task->pid, NULL, &former) == 0 && (pid_t)former != task->pid) {
            struct task *caller = find_task((pid_t)former);
            if (caller) {
                task->is_within = caller->is_within;
                task->is_other = caller->is_other;
                task->number = caller->number;
                task->began = caller->began;
                remove_task((pid_t)former);
            }
        }
        /* What this program did between fork and exec is not the command's; its exec is. */
        if (!*has_begun && task->pid == command) {
            for (uint32_t i = 0; i < CALLS; i++)
                if (call_names[i] && strcmp(call_names[i], "execve") == 0) task->number = i, task->is_within = 1;
            *has_begun = 1;
        }
        signal = 0;
    } else if (event != 0) {
        signal = 0;
    }
    ptrace(PTRACE_SYSCALL, task->pid, NULL, (void *)(intptr_t)signal);
}

/* Until the command has ended: its status. */
static int trace(void)
{
    int has_begun = 0;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return EXIT_OWN << 8;
        if (WIFSTOPPED(status)) {
            struct task *task = find_task(pid);
            if (!task) task = add_task(pid);
            if (task)
                go_on(task, status, &has_begun);
            else
                ptrace(PTRACE_DETACH, pid, NULL, NULL);
        } else {
            remove_task(pid);
            if (pid == command) return status;
        }
    }
}

static int wait_untraced(void)
{
    int status;
    while (waitpid(command, &status, __WALL) < 0)
        if (errno != EINTR) return EXIT_OWN << 8;
    return status;
}

/* As the command did. */
static int end_as(int status)
{
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    struct rlimit none = {0, 0};
    sigset_t one;
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, WTERMSIG(status));
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const char *table = NULL;
    int option, prints = 0, go = -1;
    while ((option = getopt(argc, argv, "+co:")) != -1) {
        if (option == 'c') prints = 1;
        if (option == 'o') table = optarg;
        if (option == '?') return EXIT_OWN;
    }
    if (optind == argc) {
        fprintf(stderr, "usage: proxy_exporter_strace [-c] [-o FILE] [--] COMMAND [ARGUMENT]...\n");
        return EXIT_OWN;
    }
    command = start(argv + optind, &go);
    if (command < 0) {
        complain("the command cannot be started");
        return EXIT_OWN;
    }
    pass_signals_on();
    int is_traced = is_traceable(command);
    if (!is_traced) complain("system calls are not counted");
    client = metric_proxy_init();
    total_read = metric_proxy_counter_new(client, "total___strace___size___read", "Total read size");
    total_write = metric_proxy_counter_new(client, "total___strace___size___write", "Total write size");
    close(go);
    int status = is_traced && add_task(command) ? trace() : wait_untraced();
    metric_proxy_release(client);
    if (prints && is_traced) {
        FILE *to = table ? fopen(table, "we") : stderr;
        if (to) print_table(to);
        else complain(table);
        if (to && to != stderr) fclose(to);
    }
    return end_as(status);
}
