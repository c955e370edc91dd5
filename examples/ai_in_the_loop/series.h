/* The Taylor series of sin(x), in pieces that processes of MPI share. */
#ifndef SERIES_H
#define SERIES_H

/* The sum of the terms first, first + step, ... of `terms`: (-1)^k x^(2k+1) / (2k+1)! */
static inline double series(double x, int terms, int first, int step)
{
    double sum = 0, term = x;
    for (int k = 0; k < terms; k++) {
        if (k % step == first)
            sum += term;
        term *= -x * x / ((2.0 * k + 2) * (2.0 * k + 3));
    }
    return sum;
}

/* A number from 0 to 1 for each `n`, the same in every run. */
static inline double spread(unsigned long long n)
{
    n += 0x9e3779b97f4a7c15ull;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9ull;
    n = (n ^ n >> 27) * 0x94d049bb133111ebull;
    return (double)((n ^ n >> 31) >> 11) / 9007199254740992.0;
}

#endif
