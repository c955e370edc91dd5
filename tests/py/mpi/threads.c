/* Calls of MPI by many threads, which begin and end: what they did must not be lost with them. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

#define GENERATIONS 20
#define THREADS 4
#define CALLS 1000

static void *probe(void *unused)
{
    int flag;
    for (int i = 0; i < CALLS; i++)
        MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    return unused;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    for (int generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, probe, NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    printf("%d\n", GENERATIONS * THREADS * CALLS);
    fflush(stdout);
    if (argc > 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Finalize();
    return 0;
}
