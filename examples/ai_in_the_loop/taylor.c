/*
 * The simulation: an MPI job that computes sin(x) by its Taylor series, the terms shared by all processes.
 *
 *     mpirun -n 2 taylor TERMS STEPS PAUSE_MS FILE LOW:HIGH [LOW:HIGH]...
 *
 * It makes steps with PAUSE_MS between them. In each one it computes points that lie in a range. In STEPS steps it goes
 * through the ranges, so the points come from elsewhere as it goes on; then it stays in the last one until there is a
 * file FILE.end. Rank 0 writes the points to FILE, for whoever learns from them, and logs the first one, which wanders
 * through the range.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "series.h"
#include "telem.h"

#define POINTS 32
#define RANGES_MAX 16
/* Steps in which the first point goes once to and fro. */
#define SWEEP 40
/* Nobody may come to end it: it makes at most so many times STEPS. */
#define PATIENCE 20

struct observed {
    int64_t step;
    double x[POINTS], y[POINTS];
};

/* Whether it was told to end. */
static int is_over(const char *path)
{
    char end[4096];
    return snprintf(end, sizeof end, "%s.end", path) < (int)sizeof end && access(end, F_OK) == 0;
}

/* As a whole: who reads sees this step's or the one before. */
static int publish(const char *path, const struct observed *observed)
{
    char new[4096];
    if (snprintf(new, sizeof new, "%s.new", path) >= (int)sizeof new)
        return -1;
    FILE *file = fopen(new, "wb");
    if (!file)
        return -1;
    size_t written = fwrite(observed, sizeof *observed, 1, file);
    return fclose(file) == 0 && written == 1 ? rename(new, path) : -1;
}

int main(int argc, char **argv)
{
    int rank, size, ranges = argc - 5;
    double low[RANGES_MAX], high[RANGES_MAX];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int wrong = ranges < 1 || ranges > RANGES_MAX;
    for (int i = 0; i < ranges && !wrong; i++)
        wrong = sscanf(argv[5 + i], "%lf:%lf", &low[i], &high[i]) != 2;
    int terms = wrong ? 0 : atoi(argv[1]), steps = wrong ? 0 : atoi(argv[2]), pause_ms = wrong ? 0 : atoi(argv[3]);
    if (terms < 1 || steps < 1 || pause_ms < 0) {
        if (rank == 0)
            fprintf(stderr, "usage: taylor TERMS STEPS PAUSE_MS FILE LOW:HIGH [LOW:HIGH]...\n");
        MPI_Finalize();
        return 2;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", terms);
    const char *const tags[] = {"terms", number, NULL};
    const telem_about about = {.size = sizeof about, .unit = "s", .help = "Time of a process for its terms of a step."};
    telem_timer *term_time = telem_timer_open_about("taylor_seconds", NULL, &about);
    telem_gauge *x_now = telem_gauge_open("taylor_x", NULL);
    telem_gauge *actual = telem_gauge_open("taylor_sin_actual", NULL);
    telem_gauge *off = telem_gauge_open("taylor_series_error", tags);

    for (int step = 0, over = 0; !over && step < PATIENCE * steps; step++) {
        struct observed observed = {.step = step};
        double share[POINTS];
        int range = step < steps ? (int)((long)step * ranges / steps) : ranges - 1;
        double width = high[range] - low[range];
        telem_span span = telem_begin(term_time);
        for (int i = 0; i < POINTS; i++) {
            double place = i ? spread((unsigned long long)step * POINTS + i) : 0.5 - 0.5 * cos(6.283185307 * step / SWEEP);
            observed.x[i] = low[range] + width * place;
            share[i] = series(observed.x[i], terms, rank, size);
        }
        telem_end(&span);
        MPI_Reduce(share, observed.y, POINTS, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            double worst = 0;
            for (int i = 0; i < POINTS; i++)
                worst = fmax(worst, fabs(observed.y[i] - sin(observed.x[i])));
            telem_set_step(x_now, observed.x[0], step, 0);
            telem_set(actual, observed.y[0]);
            telem_set(off, worst);
            if (publish(argv[4], &observed)) {
                fprintf(stderr, "taylor: cannot write %s\n", argv[4]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            over = step >= steps && is_over(argv[4]);
        }
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    MPI_Finalize();
    return 0;
}
