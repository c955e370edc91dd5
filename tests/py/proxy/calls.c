/* A known number of system calls, by a thread, a child and a program that the child runs; ends with 7. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *of_thread(void *unused)
{
    for (int i = 0; i < 100; i++) syscall(SYS_getppid);
    return unused;
}

int main(int argc, char **argv)
{
    char bytes[1000];
    if (argc > 1 && strcmp(argv[1], "die") == 0) return raise(SIGTERM);
    if (argc > 1 && strcmp(argv[1], "again") == 0) {
        for (int i = 0; i < 30; i++) syscall(SYS_getpgid, 0);
        return 0;
    }
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY), status;
    for (int i = 0; i < 50; i++) {
        if (pread(zero, bytes, sizeof bytes, 0) != sizeof bytes) return 1;
        if (write(null, bytes, 10) != 10) return 2;
    }
    if (read(-1, bytes, 1) != -1) return 3;
    pthread_t thread;
    pthread_create(&thread, NULL, of_thread, NULL);
    pthread_join(thread, NULL);
    if (fork() == 0) {
        for (int i = 0; i < 200; i++) syscall(SYS_getppid);
        if (vfork() == 0) {
            execl(argv[0], argv[0], "again", (char *)NULL);
            _exit(9);
        }
        wait(&status);
        _exit(status ? 9 : 3);
    }
    wait(&status);
    return WEXITSTATUS(status) + 4;
}
