/*
 * Makes training data: an MPI job, each process of which computes its share of points of sin(x) by the Taylor series and
 * writes it to the common file by MPI-IO.
 *
 *     mpirun -n 2 generate TERMS SAMPLES LOW HIGH SEED FILE
 *
 * FILE has SAMPLES pairs of x and y, doubles.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "series.h"
#include "telem.h"

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int terms = argc == 7 ? atoi(argv[1]) : 0, samples = argc == 7 ? atoi(argv[2]) : 0;
    if (terms < 1 || samples < 1) {
        if (rank == 0)
            fprintf(stderr, "usage: generate TERMS SAMPLES LOW HIGH SEED FILE\n");
        MPI_Finalize();
        return 2;
    }
    double low = atof(argv[3]), high = atof(argv[4]);
    unsigned long long seed = strtoull(argv[5], NULL, 10);
    telem_timer *time = telem_timer_open("generate_seconds", NULL);
    telem_counter *made = telem_counter_open("samples_generated_total", NULL);

    int first = (int)((long)samples * rank / size), end = (int)((long)samples * (rank + 1) / size), n = end - first;
    double *pairs = malloc(2 * sizeof(double) * (size_t)(n ? n : 1));
    if (!pairs) {
        fprintf(stderr, "generate: no memory for %d samples\n", n);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    telem_span span = telem_begin(time);
    for (int i = 0; i < n; i++) {
        double x = low + (high - low) * spread(seed * 1000003 + (unsigned long long)(first + i));
        pairs[2 * i] = x;
        pairs[2 * i + 1] = series(x, terms, 0, 1);
        telem_add(made, 1);
    }
    telem_end(&span);
    MPI_File file;
    int failed = MPI_File_open(MPI_COMM_WORLD, argv[6], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    if (!failed) {
        MPI_Offset at = (MPI_Offset)first * 2 * (MPI_Offset)sizeof(double);
        failed = MPI_File_write_at_all(file, at, pairs, 2 * n, MPI_DOUBLE, MPI_STATUS_IGNORE);
        failed |= MPI_File_close(&file);
    }
    if (failed) {
        fprintf(stderr, "generate: cannot write %s\n", argv[6]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    free(pairs);
    MPI_Finalize();
    return 0;
}
