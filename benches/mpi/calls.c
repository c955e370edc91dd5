/* What calls of MPI take: medians of many rounds, in nanoseconds, one line of JSON. benches/mpi/run.py runs it with and
   without `telem run --mpi-profile`. Two processes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 201
#define LOOP 10000
#define PINGS 500

static double times[ROUNDS];

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(void)
{
    qsort(times, ROUNDS, sizeof *times, by_value);
    return times[ROUNDS / 2] * 1e9;
}

#define MEASURE(RESULT, CALLS, CALL)                                                                                   \
    for (int round = 0; round < ROUNDS; round++) {                                                                     \
        double began = MPI_Wtime();                                                                                    \
        for (int i = 0; i < CALLS; i++) {                                                                              \
            CALL;                                                                                                      \
        }                                                                                                              \
        times[round] = (MPI_Wtime() - began) / CALLS;                                                                  \
    }                                                                                                                  \
    double RESULT = median();

int main(int argc, char **argv)
{
    int rank, flag;
    char buffer[8] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MEASURE(probe, LOOP, MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE))
    MEASURE(nowhere, LOOP, MPI_Send(buffer, 8, MPI_CHAR, MPI_PROC_NULL, 1, MPI_COMM_WORLD))
    MEASURE(self, LOOP, MPI_Sendrecv(buffer, 1, MPI_CHAR, 0, 1, buffer + 1, 1, MPI_CHAR, 0, 1, MPI_COMM_SELF,
                                     MPI_STATUS_IGNORE))
    MPI_Barrier(MPI_COMM_WORLD);
    /* Two calls of each process, one after the other: four on the way of a message there and back. */
    MEASURE(ping, PINGS, if (rank == 0) {
        MPI_Send(buffer, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, 8, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(buffer, 8, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    })
    if (rank == 0)
        printf("{\"iprobe\": %.2f, \"send_to_nobody\": %.2f, \"sendrecv_to_itself\": %.2f, \"ping_pong\": %.2f}\n", probe,
               nowhere, self, ping);
    MPI_Finalize();
    return 0;
}
