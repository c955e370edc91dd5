/* Compiled with -finstrument-functions: calls of its own, of a static function, of threads and of a library. */
#include <pthread.h>
#include <stddef.h>

int of_library(int more);

__attribute__((noinline)) static int hidden(int more)
{
    return more + 1;
}

__attribute__((noinline)) int seen(int more)
{
    return hidden(more) + 1;
}

static void *turns(void *unused)
{
    volatile int sum = 0;
    for (int i = 0; i < 1000; i++) sum = seen(sum);
    return unused;
}

int main(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, turns, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    volatile int sum = 0;
    for (int i = 0; i < 17; i++) sum = of_library(sum);
    return 0;
}
