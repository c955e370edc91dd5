/* Calls of MPI whose counts and bytes are known: tests/py/test_mpi_profile.py compares. Its argument is a file for
   MPI-IO. Run by any number of processes, at least 2. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 100
#define COUNT 16

int main(int argc, char **argv)
{
    int rank, size, flag;
    double out[COUNT] = {0}, in[COUNT], everyone[64 * COUNT];
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;

    /* Half of what is sent fits; the receiver has room for more than comes. */
    for (int i = 0; i < ROUNDS; i++) {
        if (rank % 2 == 0) {
            MPI_Send(out, COUNT / 2, MPI_DOUBLE, right, 0, MPI_COMM_WORLD);
            MPI_Recv(in, COUNT, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, COUNT, MPI_DOUBLE, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, COUNT / 2, MPI_DOUBLE, right, 0, MPI_COMM_WORLD);
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Irecv(in, COUNT, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, COUNT, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Send(out, COUNT, MPI_DOUBLE, MPI_PROC_NULL, 2, MPI_COMM_WORLD);
    MPI_Sendrecv(out, 3, MPI_INT, right, 3, in, COUNT, MPI_INT, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iprobe(left, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);

    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Bcast(out, COUNT, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, out, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce(out, in, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Allgather(out, 4, MPI_FLOAT, everyone, 4, MPI_FLOAT, MPI_COMM_WORLD);
    }
    MPI_Alltoall(everyone, 5, MPI_DOUBLE, everyone + 32 * COUNT, 5, MPI_DOUBLE, MPI_COMM_WORLD);
    int counts[64], at[64], total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i + 1;
        at[i] = total;
        total += counts[i];
    }
    MPI_Gatherv(out, rank + 1, MPI_DOUBLE, everyone, counts, at, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Iallreduce(out, in, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);

    /* Types that are freed: the next one may have the same handle and another size. */
    for (int n = 1; n <= 4; n++) {
        MPI_Datatype type;
        MPI_Type_contiguous(n, MPI_DOUBLE, &type);
        MPI_Type_commit(&type);
        MPI_Ssend_init(out, 1, type, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &requests[0]);
        MPI_Request_free(&requests[0]);
        MPI_Scatter(everyone, 1, type, in, 1, type, 0, MPI_COMM_WORLD);
        MPI_Type_free(&type);
    }

    MPI_Win win;
    MPI_Win_create(in, sizeof in, sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(out, 7, MPI_DOUBLE, right, 0, 7, MPI_DOUBLE, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);

    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) {
        fprintf(stderr, "%s cannot be opened\n", argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_File_write_at(file, (MPI_Offset)rank * 1000, out, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    /* At the end of the file less comes than is asked for. */
    MPI_File_read_at(file, (MPI_Offset)(size - 1) * 1000 + 40, in, 10, MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);

    if (rank == 0)
        printf("done by %d\n", size);
    MPI_Finalize();
    return 0;
}
