/*
 * traced.c: programs whose system calls are known: `traced NAME`. What is to be counted of each stands in `check`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition)                                                     \
    do {                                                                    \
        if (condition) break;                                               \
        fprintf(stderr, "traced: %s: %s\n", #condition, strerror(errno));   \
        exit(99);                                                           \
    } while (0)

static const char *self;

static void ask_parent(int times)
{
    for (int i = 0; i < times; i++) syscall(SYS_getppid);
}

/* What state the task is in, by the kernel's word: 'S' where it sleeps in a call. */
static char state_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t many = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[many] = 0;
    char *end = strrchr(text, ')');
    return end ? end[2] : 0;
}

/* What the task is blocked in; -1 where it is in none. */
static long call_of(pid_t pid)
{
    char path[64];
    long number = -1;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    if (fscanf(file, "%ld", &number) != 1) number = -1;
    fclose(file);
    return number;
}

static int has_pending(pid_t pid)
{
    char path[64], line[256];
    unsigned long long pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "ShdPnd: %llx", &pending) == 1) break;
    fclose(file);
    return pending != 0;
}

static void await_call(pid_t pid, long number)
{
    while (state_of(pid) != 'S' || call_of(pid) != number) sched_yield();
}

/* ---- calls of all sorts ------------------------------------------------------------------------------------------ */

static int plain(void)
{
    char bytes[1000];
    ask_parent(1234);
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 77; i++) MUST(write(null, bytes, 10) == 10);
    for (int i = 0; i < 33; i++) MUST(pread(zero, bytes, sizeof bytes, 0) == sizeof bytes);
    for (int i = 0; i < 11; i++) MUST(syscall(SYS_getsid, 0) >= 0);
    struct iovec parts[2] = {{bytes, 3}, {bytes, 4}};
    for (int i = 0; i < 5; i++) MUST(writev(null, parts, 2) == 7);
    for (int i = 0; i < 9; i++) MUST(read(-1, bytes, 1) == -1 && errno == EBADF);
    return 7;
}

/* Those that x86-64 has by another name as well, and that the C library therefore calls otherwise there. */
static int other_names(void)
{
    int ends[2];
    struct pollfd none = {-1, POLLIN, 0};
    struct timespec at_once = {0, 0};
    struct timeval also = {0, 0};
    struct epoll_event event;
    struct stat about;
    char bytes[64];
    mkdir("/tmp/names", 0700);
    for (int i = 0; i < 3; i++) MUST(mkdir("/tmp/names/a", 0700) == 0 && rmdir("/tmp/names/a") == 0);
    for (int i = 0; i < 4; i++) MUST(poll(&none, 1, 0) == 0 && ppoll(&none, 1, &at_once, NULL) == 0);
    for (int i = 0; i < 5; i++) MUST(select(0, NULL, NULL, NULL, &also) == 0);
    for (int i = 0; i < 6; i++) {
        MUST(pipe(ends) == 0);
        MUST(dup2(ends[0], 100) == 100);
        close(ends[0]), close(ends[1]);
    }
    close(100);
    int queue = epoll_create(1), counter = eventfd(0, 0);
    for (int i = 0; i < 7; i++) MUST(epoll_wait(queue, &event, 1, 0) == 0);
    for (int i = 0; i < 8; i++) MUST(stat("/proc/self", &about) == 0);
    for (int i = 0; i < 9; i++) MUST(access("/proc", R_OK) == 0);
    for (int i = 0; i < 10; i++) MUST(readlink("/proc/self/exe", bytes, sizeof bytes) > 0);
    for (int i = 0; i < 11; i++) MUST(syscall(SYS_getrandom, bytes, 8, 0) == 8);
    for (int i = 0; i < 12; i++) MUST(symlink("b", "/tmp/names/l") == 0 && unlink("/tmp/names/l") == 0);
    for (int i = 0; i < 13; i++) MUST(fcntl(counter, F_GETFD) == 0);
    return 0;
}

/* Numbers that are none, one in the table and the others beyond it; what comes after them is still right. */
static int no_such(void)
{
    for (int i = 0; i < 6; i++) MUST(syscall(511) == -1 && errno == ENOSYS);
    for (int i = 0; i < 6; i++) MUST(syscall(512) == -1 && errno == ENOSYS);
    for (int i = 0; i < 6; i++) MUST(syscall(-1) == -1 && errno == ENOSYS);
    for (int i = 0; i < 6; i++) MUST(syscall(100000) == -1 && errno == ENOSYS);
    ask_parent(60);
    return 0;
}

/* ---- processes and threads --------------------------------------------------------------------------------------- */

static int again(void)
{
    for (int i = 0; i < 30; i++) syscall(SYS_getpgid, 0);
    return 3;
}

static int forked(void)
{
    int status;
    if (fork() == 0) {
        ask_parent(201);
        if (fork() == 0) {
            ask_parent(20);
            execl(self, self, "again", (char *)NULL);
        }
        MUST(wait(&status) > 0 && WEXITSTATUS(status) == 3);
        _exit(4);
    }
    MUST(wait(&status) > 0 && WEXITSTATUS(status) == 4);
    ask_parent(2);
    return 5;
}

static int of_clone(void *unused)
{
    (void)unused;
    ask_parent(10);
    return 1;
}

/* Children by clone3, which the C library may or may not call, and ones that share this process' memory, by clone. */
static int clones(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int status;
    for (int i = 0; i < 3; i++) {
        uint64_t how[8] = {[4] = SIGCHLD};
        long child = syscall(SYS_clone3, how, sizeof how);
        if (child == 0) _exit(of_clone(NULL));
        MUST(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 1);
        child = clone(of_clone, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        MUST(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 1);
    }
    return 0;
}

static pthread_barrier_t together;

static void *ask_much(void *unused)
{
    pthread_barrier_wait(&together);
    ask_parent(100);
    return unused;
}

static int threads(void)
{
    pthread_t running[8];
    pthread_barrier_init(&together, NULL, 8);
    for (int i = 0; i < 8; i++) MUST(pthread_create(&running[i], NULL, ask_much, NULL) == 0);
    for (int i = 0; i < 8; i++) pthread_join(running[i], NULL);
    return 0;
}

static void *run_again(void *unused)
{
    ask_parent(50);
    execl(self, self, "again", (char *)NULL);
    return unused;
}

/* Another thread than the first becomes the next program, while the others are blocked. */
static int thread_runs(void)
{
    pthread_t one;
    MUST(pthread_create(&one, NULL, run_again, NULL) == 0);
    for (;;) pause();
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static int killed(int by)
{
    ask_parent(40);
    if (by == SIGSEGV) *(volatile int *)(uintptr_t)8 = 1;
    kill(getpid(), by);
    return 98;
}

static int child_is_killed(void)
{
    int status, ends[2];
    char byte;
    struct iovec all = {&byte, 1};
    MUST(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        ask_parent(70);
        MUST(readv(ends[0], &all, 1) == 1);
        _exit(0);
    }
    await_call(child, SYS_readv);
    kill(child, SIGKILL);
    MUST(wait(&status) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ask_parent(3);
    return 6;
}

static void *sleep_for_ever(void *number)
{
    __atomic_store_n((int *)number, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    for (;;) syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    return number;
}

/* The process ends while its threads are blocked. */
static int others_blocked(void)
{
    pthread_t running[3];
    int numbers[3] = {0};
    for (int i = 0; i < 3; i++) MUST(pthread_create(&running[i], NULL, sleep_for_ever, &numbers[i]) == 0);
    for (int i = 0; i < 3; i++) {
        while (!__atomic_load_n(&numbers[i], __ATOMIC_ACQUIRE)) sched_yield();
        await_call(numbers[i], SYS_ppoll);
    }
    ask_parent(25);
    return 8;
}

/* A child that outlives the command. */
static int leaves(void)
{
    int ends[2];
    char byte;
    MUST(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        ask_parent(15);
        /* Ends with the parent. */
        while (read(ends[0], &byte, 1) > 0) continue;
        for (int i = 0; i < 1000; i++) syscall(SYS_getpgid, 0);
        int file = open("/tmp/left", O_WRONLY | O_CREAT, 0600);
        MUST(write(file, "left\n", 5) == 5);
        _exit(0);
    }
    await_call(child, SYS_read);
    return 9;
}

/* ---- calls that are interrupted ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;

static void take(int signal)
{
    (void)signal;
    caught++;
}

static void take_with(int signal, int flags)
{
    struct sigaction how;
    memset(&how, 0, sizeof how);
    how.sa_handler = take;
    how.sa_flags = flags;
    sigaction(signal, &how, NULL);
}

/* A child is blocked in readv(2), takes a signal, and then gets its ten bytes. */
static int interrupted(int flags)
{
    int status, ends[2];
    char bytes[10] = "";
    struct iovec all = {bytes, sizeof bytes};
    MUST(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        take_with(SIGUSR1, flags);
        ask_parent(12);
        ssize_t got = readv(ends[0], &all, 1);
        if (!(flags & SA_RESTART)) {
            MUST(got == -1 && errno == EINTR);
            got = readv(ends[0], &all, 1);
        }
        MUST(got == 10 && caught == 1);
        _exit(2);
    }
    await_call(child, SYS_readv);
    kill(child, SIGUSR1);
    /* From when it has taken the signal until it is in the call again it does not sleep. */
    while (has_pending(child)) sched_yield();
    await_call(child, SYS_readv);
    MUST(write(ends[1], bytes, 10) == 10);
    MUST(wait(&status) == child && WEXITSTATUS(status) == 2);
    return 0;
}

/* A child is stopped in the middle of a sleep and goes on: the kernel has it call restart_syscall. */
static int stopped(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct timespec pause = {0, 800000000};
        ask_parent(21);
        MUST(syscall(SYS_nanosleep, &pause, NULL) == 0);
        _exit(2);
    }
    await_call(child, SYS_nanosleep);
    kill(child, SIGSTOP);
    MUST(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    kill(child, SIGCONT);
    MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 2);
    return 0;
}

static int trapped(void)
{
    take_with(SIGTRAP, 0);
    for (int i = 0; i < 5; i++) raise(SIGTRAP);
    MUST(caught == 5);
    ask_parent(14);
    return 0;
}

/* Until it is told to end, which its exit status says. */
static void end_well(int signal)
{
    (void)signal;
    _exit(5);
}

static int waits(void)
{
    signal(SIGTERM, end_well);
    ask_parent(16);
    MUST(write(STDOUT_FILENO, "ready\n", 6) == 6);
    for (;;) pause();
}

/* ---- 32 bits ----------------------------------------------------------------------------------------------------- */

/* A program of ARM, by hand: 25 times getppid, one write of 6 bytes, an end with 11. */
static int runs_32_bits(void)
{
    enum { BASE = 0x10000, HEAD = 52 + 32 };
    static const uint32_t code[] = {
        0xe3a04019, /* mov r4, #25 */
        0xe3a07040, /* mov r7, #64: getppid */
        0xef000000, /* svc 0 */
        0xe2544001, /* subs r4, r4, #1 */
        0x1afffffb, /* bne to the second */
        0xe3a00001, /* mov r0, #1 */
        0xe28f1014, /* add r1, pc, #20: of the text */
        0xe3a02006, /* mov r2, #6 */
        0xe3a07004, /* mov r7, #4: write */
        0xef000000, /* svc 0 */
        0xe3a0000b, /* mov r0, #11 */
        0xe3a07001, /* mov r7, #1: exit */
        0xef000000, /* svc 0 */
        0x6d726133, /* "3arm2\n" */
        0x00000a32,
    };
    uint32_t size = HEAD + sizeof code;
    const uint32_t head[HEAD / 4] = {
        0x464c457f, 0x00010101, 0, 0,       /* ELF, 32 bits, little endian */
        0x00280002, 1, BASE + HEAD, 52, 0,  /* executable, ARM; entry, program headers */
        0x05000000, 0x00200034, 0x00280001, /* EABI 5; sizes; one program header */
        0,
        1, 0, BASE, BASE, size, size, 5, 0x1000,
    };
    int file = open("/tmp/arm", O_WRONLY | O_CREAT | O_TRUNC, 0700), status;
    MUST(write(file, head, HEAD) == HEAD);
    MUST(write(file, code, sizeof code) == (ssize_t)sizeof code);
    close(file);
    if (fork() == 0) {
        ask_parent(4);
        execl("/tmp/arm", "arm", (char *)NULL);
        _exit(errno == ENOEXEC ? 12 : 13);
    }
    MUST(wait(&status) > 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    self = argv[0];
    if (!strcmp(what, "plain")) return plain();
    if (!strcmp(what, "other_names")) return other_names();
    if (!strcmp(what, "no_such")) return no_such();
    if (!strcmp(what, "again")) return again();
    if (!strcmp(what, "forked")) return forked();
    if (!strcmp(what, "clones")) return clones();
    if (!strcmp(what, "threads")) return threads();
    if (!strcmp(what, "thread_runs")) return thread_runs();
    if (!strcmp(what, "terminated")) return killed(SIGTERM);
    if (!strcmp(what, "killed")) return killed(SIGKILL);
    if (!strcmp(what, "faulted")) return killed(SIGSEGV);
    if (!strcmp(what, "child_is_killed")) return child_is_killed();
    if (!strcmp(what, "others_blocked")) return others_blocked();
    if (!strcmp(what, "leaves")) return leaves();
    if (!strcmp(what, "restarted")) return interrupted(SA_RESTART);
    if (!strcmp(what, "interrupted")) return interrupted(0);
    if (!strcmp(what, "stopped")) return stopped();
    if (!strcmp(what, "trapped")) return trapped();
    if (!strcmp(what, "waits")) return waits();
    if (!strcmp(what, "runs_32_bits")) return runs_32_bits();
    fprintf(stderr, "traced: no '%s'\n", what);
    return 64;
}
