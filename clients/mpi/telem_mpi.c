/*
 * telem_mpi.c: what a program's calls of MPI were and took, without a change of the program.
 *
 * A library that is preloaded (LD_PRELOAD) and stands before MPI's own: each function below counts its calls, the bytes
 * it was given or got, and its time, and calls the one behind it. Once a second what has changed goes to telem.
 *
 *   - Both names of a function are taken, MPI_Send and PMPI_Send: bindings of Fortran call either, and another tool
 *     between the program and MPI calls the second. What is called inside of a call that is counted is not counted.
 *   - Nothing here needs MPI's library. A process that has none, such as a shell, is left as it is; of one that has,
 *     the functions behind are looked up when they are first called, also where the library was loaded later.
 *   - Arguments are passed on as they came, handles as wide as a register. So a program of another MPI than this was
 *     compiled for runs as it does without telem, and nothing is counted of it.
 *
 * Who gets it is the sink: telem itself, or what TELEM_MPI_SINK names, which then takes what came and what went apart and
 * counts the functions that only look something up, too.
 *
 * `telem run --mpi-profile` builds it together with the C client. By hand:
 *     find ../c/src -name '*.c' | xargs mpicc -O2 -fPIC -shared -pthread -o libtelem-mpi.so telem_mpi.c -Wl,--as-needed \
 *           -Wl,--version-script=telem_mpi.map
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef TELEM_MPI_SINK
#include "../c/include/telem.h"
/* Of the client that is built with this. */
telem_gauge *telem__total_open(const char *metric, const char *const *tags, const telem_about *about);
#endif

/* The newest version of MPI whose functions are wrapped, if its header has them: 40 is 4.0. */
#ifndef TELEM_MPI_VERSION
#define TELEM_MPI_VERSION (MPI_VERSION * 10 + MPI_SUBVERSION)
#endif

/* A handle of MPI: an int or a pointer, in a register or in a place of the stack of that width. */
typedef intptr_t handle;

/* ---- the table: every function that is counted ----------------------------------------------------------------------

   X(name, parameters, arguments, bytes, in, out) for each function; R(...) where its status is needed to know the bytes.
   `bytes` are evaluated after a call that succeeded; `in` and `out`, what came and went, where the sink wants those
   instead. S is the end of the names, N the type of counts and D that of displacements: nothing, int and int, or _c,
   MPI_Count and MPI_Aint (MPI 4). */

#define TABLE_COUNTED(X, R, S, N, D)                                                                                   \
    X(Send##S, (const void *buf, N n, handle type, int dest, int tag, handle comm),                                    \
      (buf, n, type, dest, tag, comm), to(dest, n, type),                                                              \
      0, to(dest, n, type))                                                                                            \
    X(Bsend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm),                                   \
      (buf, n, type, dest, tag, comm), to(dest, n, type),                                                              \
      0, to(dest, n, type))                                                                                            \
    X(Ssend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm),                                   \
      (buf, n, type, dest, tag, comm), to(dest, n, type),                                                              \
      0, to(dest, n, type))                                                                                            \
    X(Rsend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm),                                   \
      (buf, n, type, dest, tag, comm), to(dest, n, type),                                                              \
      0, to(dest, n, type))                                                                                            \
    X(Isend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),                    \
      (buf, n, type, dest, tag, comm, request), to(dest, n, type),                                                     \
      0, to(dest, n, type))                                                                                            \
    X(Ibsend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),                   \
      (buf, n, type, dest, tag, comm, request), to(dest, n, type),                                                     \
      0, to(dest, n, type))                                                                                            \
    X(Issend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),                   \
      (buf, n, type, dest, tag, comm, request), to(dest, n, type),                                                     \
      0, to(dest, n, type))                                                                                            \
    X(Irsend##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),                   \
      (buf, n, type, dest, tag, comm, request), to(dest, n, type),                                                     \
      0, to(dest, n, type))                                                                                            \
    X(Send_init##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),                \
      (buf, n, type, dest, tag, comm, request), 0, 0, 0)                                                               \
    X(Bsend_init##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),               \
      (buf, n, type, dest, tag, comm, request), 0, 0, 0)                                                               \
    X(Ssend_init##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),               \
      (buf, n, type, dest, tag, comm, request), 0, 0, 0)                                                               \
    X(Rsend_init##S, (const void *buf, N n, handle type, int dest, int tag, handle comm, void *request),               \
      (buf, n, type, dest, tag, comm, request), 0, 0, 0)                                                               \
    X(Recv_init##S, (void *buf, N n, handle type, int source, int tag, handle comm, void *request),                    \
      (buf, n, type, source, tag, comm, request), 0, 0, 0)                                                             \
    R(Recv##S, (void *buf, N n, handle type, int source, int tag, handle comm, void *status),                          \
      (buf, n, type, source, tag, comm, status), came(status),                                                         \
      came(status), 0)                                                                                                 \
    X(Irecv##S, (void *buf, N n, handle type, int source, int tag, handle comm, void *request),                        \
      (buf, n, type, source, tag, comm, request), to(source, n, type),                                                 \
      to(source, n, type), 0)                                                                                          \
    R(Mrecv##S, (void *buf, N n, handle type, void *message, void *status),                                            \
      (buf, n, type, message, status), came(status),                                                                   \
      came(status), 0)                                                                                                 \
    X(Imrecv##S, (void *buf, N n, handle type, void *message, void *request),                                          \
      (buf, n, type, message, request), sized(n, type),                                                                \
      sized(n, type), 0)                                                                                               \
    R(Sendrecv##S, (const void *out, N outs, handle outtype, int dest, int outtag, void *in, N ins, handle intype,     \
                    int source, int intag, handle comm, void *status),                                                 \
      (out, outs, outtype, dest, outtag, in, ins, intype, source, intag, comm, status),                                \
      to(dest, outs, outtype) + came(status),                                                                          \
      came(status), to(dest, outs, outtype))                                                                           \
    R(Sendrecv_replace##S, (void *buf, N n, handle type, int dest, int outtag, int source, int intag, handle comm,     \
                            void *status),                                                                             \
      (buf, n, type, dest, outtag, source, intag, comm, status), to(dest, n, type) + came(status),                     \
      came(status), to(dest, n, type))                                                                                 \
    X(Bcast##S, (void *buf, N n, handle type, int root, handle comm),                                                  \
      (buf, n, type, root, comm), from_root(root, n, type),                                                            \
      at_root(root, comm) ? 0 : from_root(root, n, type), at_root(root, comm) ? sized(n, type) : 0)                    \
    X(Ibcast##S, (void *buf, N n, handle type, int root, handle comm, void *request),                                  \
      (buf, n, type, root, comm, request), from_root(root, n, type),                                                   \
      at_root(root, comm) ? 0 : from_root(root, n, type), at_root(root, comm) ? sized(n, type) : 0)                    \
    X(Gather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, int root, handle comm),     \
      (out, outs, outtype, in, ins, intype, root, comm),                                                               \
      out == MPI_IN_PLACE ? sized(ins, intype) : from_root(root, outs, outtype),                                       \
      at_root(root, comm) ? peers(comm) * sized(ins, intype) : 0,                                                      \
      out == MPI_IN_PLACE ? 0 : from_root(root, outs, outtype))                                                        \
    X(Igather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, int root, handle comm,     \
                   void *request),                                                                                     \
      (out, outs, outtype, in, ins, intype, root, comm, request),                                                      \
      out == MPI_IN_PLACE ? sized(ins, intype) : from_root(root, outs, outtype),                                       \
      at_root(root, comm) ? peers(comm) * sized(ins, intype) : 0,                                                      \
      out == MPI_IN_PLACE ? 0 : from_root(root, outs, outtype))                                                        \
    X(Gatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at, handle intype,        \
                   int root, handle comm),                                                                             \
      (out, outs, outtype, in, ins, at, intype, root, comm),                                                           \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : from_root(root, outs, outtype),                        \
      at_root(root, comm) ? sum##S(ins, peers(comm)) * size_of(intype) : 0,                                            \
      out == MPI_IN_PLACE ? 0 : from_root(root, outs, outtype))                                                        \
    X(Igatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at, handle intype,       \
                    int root, handle comm, void *request),                                                             \
      (out, outs, outtype, in, ins, at, intype, root, comm, request),                                                  \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : from_root(root, outs, outtype),                        \
      at_root(root, comm) ? sum##S(ins, peers(comm)) * size_of(intype) : 0,                                            \
      out == MPI_IN_PLACE ? 0 : from_root(root, outs, outtype))                                                        \
    X(Scatter##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, int root, handle comm),    \
      (out, outs, outtype, in, ins, intype, root, comm),                                                               \
      in == MPI_IN_PLACE ? sized(outs, outtype) : from_root(root, ins, intype),                                        \
      in == MPI_IN_PLACE ? 0 : from_root(root, ins, intype),                                                           \
      at_root(root, comm) ? peers(comm) * sized(outs, outtype) : 0)                                                    \
    X(Iscatter##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, int root, handle comm,    \
                    void *request),                                                                                    \
      (out, outs, outtype, in, ins, intype, root, comm, request),                                                      \
      in == MPI_IN_PLACE ? sized(outs, outtype) : from_root(root, ins, intype),                                        \
      in == MPI_IN_PLACE ? 0 : from_root(root, ins, intype),                                                           \
      at_root(root, comm) ? peers(comm) * sized(outs, outtype) : 0)                                                    \
    X(Scatterv##S, (const void *out, const N *outs, const D *at, handle outtype, void *in, N ins, handle intype,       \
                    int root, handle comm),                                                                            \
      (out, outs, at, outtype, in, ins, intype, root, comm),                                                           \
      in == MPI_IN_PLACE ? sized(outs[rank_in(comm)], outtype) : from_root(root, ins, intype),                         \
      in == MPI_IN_PLACE ? 0 : from_root(root, ins, intype),                                                           \
      at_root(root, comm) ? sum##S(outs, peers(comm)) * size_of(outtype) : 0)                                          \
    X(Iscatterv##S, (const void *out, const N *outs, const D *at, handle outtype, void *in, N ins, handle intype,      \
                     int root, handle comm, void *request),                                                            \
      (out, outs, at, outtype, in, ins, intype, root, comm, request),                                                  \
      in == MPI_IN_PLACE ? sized(outs[rank_in(comm)], outtype) : from_root(root, ins, intype),                         \
      in == MPI_IN_PLACE ? 0 : from_root(root, ins, intype),                                                           \
      at_root(root, comm) ? sum##S(outs, peers(comm)) * size_of(outtype) : 0)                                          \
    X(Allgather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm),            \
      (out, outs, outtype, in, ins, intype, comm),                                                                     \
      out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype),                                                 \
      peers(comm) * sized(ins, intype), out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype))               \
    X(Iallgather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm,            \
                      void *request),                                                                                  \
      (out, outs, outtype, in, ins, intype, comm, request),                                                            \
      out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype),                                                 \
      peers(comm) * sized(ins, intype), out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype))               \
    X(Allgatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at, handle intype,     \
                      handle comm),                                                                                    \
      (out, outs, outtype, in, ins, at, intype, comm),                                                                 \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : sized(outs, outtype),                                  \
      sum##S(ins, peers(comm)) * size_of(intype),                                                                      \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : sized(outs, outtype))                                  \
    X(Iallgatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at, handle intype,    \
                       handle comm, void *request),                                                                    \
      (out, outs, outtype, in, ins, at, intype, comm, request),                                                        \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : sized(outs, outtype),                                  \
      sum##S(ins, peers(comm)) * size_of(intype),                                                                      \
      out == MPI_IN_PLACE ? sized(ins[rank_in(comm)], intype) : sized(outs, outtype))                                  \
    X(Alltoall##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm),             \
      (out, outs, outtype, in, ins, intype, comm),                                                                     \
      peers(comm) * (out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype)),                                 \
      peers(comm) * sized(ins, intype),                                                                                \
      peers(comm) * (out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype)))                                 \
    X(Ialltoall##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm,             \
                     void *request),                                                                                   \
      (out, outs, outtype, in, ins, intype, comm, request),                                                            \
      peers(comm) * (out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype)),                                 \
      peers(comm) * sized(ins, intype),                                                                                \
      peers(comm) * (out == MPI_IN_PLACE ? sized(ins, intype) : sized(outs, outtype)))                                 \
    X(Alltoallv##S, (const void *out, const N *outs, const D *outat, handle outtype, void *in, const N *ins,           \
                     const D *inat, handle intype, handle comm),                                                       \
      (out, outs, outat, outtype, in, ins, inat, intype, comm),                                                        \
      out == MPI_IN_PLACE ? sum##S(ins, peers(comm)) * size_of(intype) : sum##S(outs, peers(comm)) * size_of(outtype), \
      sum##S(ins, peers(comm)) * size_of(intype),                                                                      \
      out == MPI_IN_PLACE ? sum##S(ins, peers(comm)) * size_of(intype) : sum##S(outs, peers(comm)) * size_of(outtype)) \
    X(Ialltoallv##S, (const void *out, const N *outs, const D *outat, handle outtype, void *in, const N *ins,          \
                      const D *inat, handle intype, handle comm, void *request),                                       \
      (out, outs, outat, outtype, in, ins, inat, intype, comm, request),                                               \
      out == MPI_IN_PLACE ? sum##S(ins, peers(comm)) * size_of(intype) : sum##S(outs, peers(comm)) * size_of(outtype), \
      sum##S(ins, peers(comm)) * size_of(intype),                                                                      \
      out == MPI_IN_PLACE ? sum##S(ins, peers(comm)) * size_of(intype) : sum##S(outs, peers(comm)) * size_of(outtype)) \
    X(Alltoallw##S, (const void *out, const N *outs, const D *outat, const void *outtypes, void *in, const N *ins,     \
                     const D *inat, const void *intypes, handle comm),                                                 \
      (out, outs, outat, outtypes, in, ins, inat, intypes, comm),                                                      \
      out == MPI_IN_PLACE ? sum_each##S(ins, intypes, peers(comm)) : sum_each##S(outs, outtypes, peers(comm)),         \
      sum_each##S(ins, intypes, peers(comm)),                                                                          \
      out == MPI_IN_PLACE ? sum_each##S(ins, intypes, peers(comm)) : sum_each##S(outs, outtypes, peers(comm)))         \
    X(Ialltoallw##S, (const void *out, const N *outs, const D *outat, const void *outtypes, void *in, const N *ins,    \
                      const D *inat, const void *intypes, handle comm, void *request),                                 \
      (out, outs, outat, outtypes, in, ins, inat, intypes, comm, request),                                             \
      out == MPI_IN_PLACE ? sum_each##S(ins, intypes, peers(comm)) : sum_each##S(outs, outtypes, peers(comm)),         \
      sum_each##S(ins, intypes, peers(comm)),                                                                          \
      out == MPI_IN_PLACE ? sum_each##S(ins, intypes, peers(comm)) : sum_each##S(outs, outtypes, peers(comm)))         \
    X(Reduce##S, (const void *out, void *in, N n, handle type, handle op, int root, handle comm),                      \
      (out, in, n, type, op, root, comm), from_root(root, n, type),                                                    \
      at_root(root, comm) ? sized(n, type) : 0, from_root(root, n, type))                                              \
    X(Ireduce##S, (const void *out, void *in, N n, handle type, handle op, int root, handle comm, void *request),      \
      (out, in, n, type, op, root, comm, request), from_root(root, n, type),                                           \
      at_root(root, comm) ? sized(n, type) : 0, from_root(root, n, type))                                              \
    X(Allreduce##S, (const void *out, void *in, N n, handle type, handle op, handle comm),                             \
      (out, in, n, type, op, comm), sized(n, type),                                                                    \
      sized(n, type), sized(n, type))                                                                                  \
    X(Iallreduce##S, (const void *out, void *in, N n, handle type, handle op, handle comm, void *request),             \
      (out, in, n, type, op, comm, request), sized(n, type),                                                           \
      sized(n, type), sized(n, type))                                                                                  \
    X(Reduce_scatter##S, (const void *out, void *in, const N *ins, handle type, handle op, handle comm),               \
      (out, in, ins, type, op, comm), sum##S(ins, peers(comm)) * size_of(type),                                        \
      sized(ins[rank_in(comm)], type), sum##S(ins, peers(comm)) * size_of(type))                                       \
    X(Ireduce_scatter##S, (const void *out, void *in, const N *ins, handle type, handle op, handle comm,               \
                           void *request),                                                                             \
      (out, in, ins, type, op, comm, request), sum##S(ins, peers(comm)) * size_of(type),                               \
      sized(ins[rank_in(comm)], type), sum##S(ins, peers(comm)) * size_of(type))                                       \
    X(Reduce_scatter_block##S, (const void *out, void *in, N n, handle type, handle op, handle comm),                  \
      (out, in, n, type, op, comm), peers(comm) * sized(n, type),                                                      \
      sized(n, type), peers(comm) * sized(n, type))                                                                    \
    X(Ireduce_scatter_block##S, (const void *out, void *in, N n, handle type, handle op, handle comm, void *request),  \
      (out, in, n, type, op, comm, request), peers(comm) * sized(n, type),                                             \
      sized(n, type), peers(comm) * sized(n, type))                                                                    \
    X(Scan##S, (const void *out, void *in, N n, handle type, handle op, handle comm),                                  \
      (out, in, n, type, op, comm), sized(n, type),                                                                    \
      sized(n, type), sized(n, type))                                                                                  \
    X(Iscan##S, (const void *out, void *in, N n, handle type, handle op, handle comm, void *request),                  \
      (out, in, n, type, op, comm, request), sized(n, type),                                                           \
      sized(n, type), sized(n, type))                                                                                  \
    X(Exscan##S, (const void *out, void *in, N n, handle type, handle op, handle comm),                                \
      (out, in, n, type, op, comm), sized(n, type),                                                                    \
      sized(n, type), sized(n, type))                                                                                  \
    X(Iexscan##S, (const void *out, void *in, N n, handle type, handle op, handle comm, void *request),                \
      (out, in, n, type, op, comm, request), sized(n, type),                                                           \
      sized(n, type), sized(n, type))                                                                                  \
    X(Neighbor_allgather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm),   \
      (out, outs, outtype, in, ins, intype, comm), sized(outs, outtype),                                               \
      sources(comm) * sized(ins, intype), sized(outs, outtype))                                                        \
    X(Ineighbor_allgather##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm,   \
                               void *request),                                                                         \
      (out, outs, outtype, in, ins, intype, comm, request), sized(outs, outtype),                                      \
      sources(comm) * sized(ins, intype), sized(outs, outtype))                                                        \
    X(Neighbor_allgatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at,           \
                               handle intype, handle comm),                                                            \
      (out, outs, outtype, in, ins, at, intype, comm), sized(outs, outtype),                                           \
      sum##S(ins, sources(comm)) * size_of(intype), sized(outs, outtype))                                              \
    X(Ineighbor_allgatherv##S, (const void *out, N outs, handle outtype, void *in, const N *ins, const D *at,          \
                                handle intype, handle comm, void *request),                                            \
      (out, outs, outtype, in, ins, at, intype, comm, request), sized(outs, outtype),                                  \
      sum##S(ins, sources(comm)) * size_of(intype), sized(outs, outtype))                                              \
    X(Neighbor_alltoall##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm),    \
      (out, outs, outtype, in, ins, intype, comm), neighbours(comm) * sized(outs, outtype),                            \
      sources(comm) * sized(ins, intype), neighbours(comm) * sized(outs, outtype))                                     \
    X(Ineighbor_alltoall##S, (const void *out, N outs, handle outtype, void *in, N ins, handle intype, handle comm,    \
                              void *request),                                                                          \
      (out, outs, outtype, in, ins, intype, comm, request), neighbours(comm) * sized(outs, outtype),                   \
      sources(comm) * sized(ins, intype), neighbours(comm) * sized(outs, outtype))                                     \
    X(Neighbor_alltoallv##S, (const void *out, const N *outs, const D *outat, handle outtype, void *in, const N *ins,  \
                              const D *inat, handle intype, handle comm),                                              \
      (out, outs, outat, outtype, in, ins, inat, intype, comm),                                                        \
      sum##S(outs, neighbours(comm)) * size_of(outtype),                                                               \
      sum##S(ins, sources(comm)) * size_of(intype), sum##S(outs, neighbours(comm)) * size_of(outtype))                 \
    X(Ineighbor_alltoallv##S, (const void *out, const N *outs, const D *outat, handle outtype, void *in, const N *ins, \
                               const D *inat, handle intype, handle comm, void *request),                              \
      (out, outs, outat, outtype, in, ins, inat, intype, comm, request),                                               \
      sum##S(outs, neighbours(comm)) * size_of(outtype),                                                               \
      sum##S(ins, sources(comm)) * size_of(intype), sum##S(outs, neighbours(comm)) * size_of(outtype))                 \
    X(Neighbor_alltoallw##S, (const void *out, const N *outs, const void *outat, const void *outtypes, void *in,       \
                              const N *ins, const void *inat, const void *intypes, handle comm),                       \
      (out, outs, outat, outtypes, in, ins, inat, intypes, comm), sum_each##S(outs, outtypes, neighbours(comm)),       \
      sum_each##S(ins, intypes, sources(comm)), sum_each##S(outs, outtypes, neighbours(comm)))                         \
    X(Ineighbor_alltoallw##S, (const void *out, const N *outs, const void *outat, const void *outtypes, void *in,      \
                               const N *ins, const void *inat, const void *intypes, handle comm, void *request),       \
      (out, outs, outat, outtypes, in, ins, inat, intypes, comm, request),                                             \
      sum_each##S(outs, outtypes, neighbours(comm)),                                                                   \
      sum_each##S(ins, intypes, sources(comm)), sum_each##S(outs, outtypes, neighbours(comm)))                         \
    X(Put##S, (const void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle win),       \
      (buf, n, type, rank, at, there, theretype, win), to(rank, n, type),                                              \
      0, to(rank, n, type))                                                                                            \
    X(Get##S, (void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle win),             \
      (buf, n, type, rank, at, there, theretype, win), to(rank, n, type),                                              \
      to(rank, n, type), 0)                                                                                            \
    X(Accumulate##S, (const void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle op,  \
                      handle win),                                                                                     \
      (buf, n, type, rank, at, there, theretype, op, win), to(rank, n, type),                                          \
      0, to(rank, n, type))                                                                                            \
    X(Get_accumulate##S, (const void *buf, N n, handle type, void *got, N gots, handle gottype, int rank, MPI_Aint at, \
                          N there, handle theretype, handle op, handle win),                                           \
      (buf, n, type, got, gots, gottype, rank, at, there, theretype, op, win), to(rank, there, theretype),             \
      to(rank, gots, gottype), to(rank, n, type))                                                                      \
    X(Rput##S, (const void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle win,       \
                void *request),                                                                                        \
      (buf, n, type, rank, at, there, theretype, win, request), to(rank, n, type),                                     \
      0, to(rank, n, type))                                                                                            \
    X(Rget##S, (void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle win,             \
                void *request),                                                                                        \
      (buf, n, type, rank, at, there, theretype, win, request), to(rank, n, type),                                     \
      to(rank, n, type), 0)                                                                                            \
    X(Raccumulate##S, (const void *buf, N n, handle type, int rank, MPI_Aint at, N there, handle theretype, handle op, \
                       handle win, void *request),                                                                     \
      (buf, n, type, rank, at, there, theretype, op, win, request), to(rank, n, type),                                 \
      0, to(rank, n, type))                                                                                            \
    X(Rget_accumulate##S, (const void *buf, N n, handle type, void *got, N gots, handle gottype, int rank,             \
                           MPI_Aint at, N there, handle theretype, handle op, handle win, void *request),              \
      (buf, n, type, got, gots, gottype, rank, at, there, theretype, op, win, request), to(rank, there, theretype),    \
      to(rank, gots, gottype), to(rank, n, type))                                                                      \
    R(File_read##S, (handle file, void *buf, N n, handle type, void *status),                                          \
      (file, buf, n, type, status), came(status),                                                                      \
      came(status), 0)                                                                                                 \
    R(File_read_all##S, (handle file, void *buf, N n, handle type, void *status),                                      \
      (file, buf, n, type, status), came(status),                                                                      \
      came(status), 0)                                                                                                 \
    R(File_read_shared##S, (handle file, void *buf, N n, handle type, void *status),                                   \
      (file, buf, n, type, status), came(status),                                                                      \
      came(status), 0)                                                                                                 \
    R(File_read_ordered##S, (handle file, void *buf, N n, handle type, void *status),                                  \
      (file, buf, n, type, status), came(status),                                                                      \
      came(status), 0)                                                                                                 \
    R(File_read_at##S, (handle file, MPI_Offset at, void *buf, N n, handle type, void *status),                        \
      (file, at, buf, n, type, status), came(status),                                                                  \
      came(status), 0)                                                                                                 \
    R(File_read_at_all##S, (handle file, MPI_Offset at, void *buf, N n, handle type, void *status),                    \
      (file, at, buf, n, type, status), came(status),                                                                  \
      came(status), 0)                                                                                                 \
    R(File_write##S, (handle file, const void *buf, N n, handle type, void *status),                                   \
      (file, buf, n, type, status), came(status),                                                                      \
      0, came(status))                                                                                                 \
    R(File_write_all##S, (handle file, const void *buf, N n, handle type, void *status),                               \
      (file, buf, n, type, status), came(status),                                                                      \
      0, came(status))                                                                                                 \
    R(File_write_shared##S, (handle file, const void *buf, N n, handle type, void *status),                            \
      (file, buf, n, type, status), came(status),                                                                      \
      0, came(status))                                                                                                 \
    R(File_write_ordered##S, (handle file, const void *buf, N n, handle type, void *status),                           \
      (file, buf, n, type, status), came(status),                                                                      \
      0, came(status))                                                                                                 \
    R(File_write_at##S, (handle file, MPI_Offset at, const void *buf, N n, handle type, void *status),                 \
      (file, at, buf, n, type, status), came(status),                                                                  \
      0, came(status))                                                                                                 \
    R(File_write_at_all##S, (handle file, MPI_Offset at, const void *buf, N n, handle type, void *status),             \
      (file, at, buf, n, type, status), came(status),                                                                  \
      0, came(status))                                                                                                 \
    X(File_iread##S, (handle file, void *buf, N n, handle type, void *request),                                        \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      sized(n, type), 0)                                                                                               \
    X(File_iread_shared##S, (handle file, void *buf, N n, handle type, void *request),                                 \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      sized(n, type), 0)                                                                                               \
    X(File_iread_at##S, (handle file, MPI_Offset at, void *buf, N n, handle type, void *request),                      \
      (file, at, buf, n, type, request), sized(n, type),                                                               \
      sized(n, type), 0)                                                                                               \
    X(File_iwrite##S, (handle file, const void *buf, N n, handle type, void *request),                                 \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      0, sized(n, type))                                                                                               \
    X(File_iwrite_shared##S, (handle file, const void *buf, N n, handle type, void *request),                          \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      0, sized(n, type))                                                                                               \
    X(File_iwrite_at##S, (handle file, MPI_Offset at, const void *buf, N n, handle type, void *request),               \
      (file, at, buf, n, type, request), sized(n, type),                                                               \
      0, sized(n, type))                                                                                               \
    X(File_read_all_begin##S, (handle file, void *buf, N n, handle type), (file, buf, n, type), sized(n, type),        \
      sized(n, type), 0)                                                                                               \
    X(File_read_ordered_begin##S, (handle file, void *buf, N n, handle type), (file, buf, n, type), sized(n, type),    \
      sized(n, type), 0)                                                                                               \
    X(File_read_at_all_begin##S, (handle file, MPI_Offset at, void *buf, N n, handle type),                            \
      (file, at, buf, n, type), sized(n, type),                                                                        \
      sized(n, type), 0)                                                                                               \
    X(File_write_all_begin##S, (handle file, const void *buf, N n, handle type), (file, buf, n, type), sized(n, type), \
      0, sized(n, type))                                                                                               \
    X(File_write_ordered_begin##S, (handle file, const void *buf, N n, handle type),                                   \
      (file, buf, n, type), sized(n, type),                                                                            \
      0, sized(n, type))                                                                                               \
    X(File_write_at_all_begin##S, (handle file, MPI_Offset at, const void *buf, N n, handle type),                     \
      (file, at, buf, n, type), sized(n, type),                                                                        \
      0, sized(n, type))

/* Nonblocking collective reads and writes came with MPI 3.1. */
#define TABLE_COUNTED_31(X, R, S, N, D)                                                                                \
    X(File_iread_all##S, (handle file, void *buf, N n, handle type, void *request),                                    \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      sized(n, type), 0)                                                                                               \
    X(File_iread_at_all##S, (handle file, MPI_Offset at, void *buf, N n, handle type, void *request),                  \
      (file, at, buf, n, type, request), sized(n, type),                                                               \
      sized(n, type), 0)                                                                                               \
    X(File_iwrite_all##S, (handle file, const void *buf, N n, handle type, void *request),                             \
      (file, buf, n, type, request), sized(n, type),                                                                   \
      0, sized(n, type))                                                                                               \
    X(File_iwrite_at_all##S, (handle file, MPI_Offset at, const void *buf, N n, handle type, void *request),           \
      (file, at, buf, n, type, request), sized(n, type),                                                               \
      0, sized(n, type))

/* What has no counts, or one of another kind. */
#define TABLE_PLAIN(X, R)                                                                                              \
    X(Wait, (void *request, void *status), (request, status), 0, 0, 0)                                                 \
    X(Waitall, (int n, void *requests, void *statuses), (n, requests, statuses), 0, 0, 0)                              \
    X(Waitany, (int n, void *requests, int *index, void *status), (n, requests, index, status), 0, 0, 0)               \
    X(Waitsome, (int n, void *requests, int *done, int *indices, void *statuses),                                      \
      (n, requests, done, indices, statuses), 0, 0, 0)                                                                 \
    X(Test, (void *request, int *flag, void *status), (request, flag, status), 0, 0, 0)                                \
    X(Testall, (int n, void *requests, int *flag, void *statuses), (n, requests, flag, statuses), 0, 0, 0)             \
    X(Testany, (int n, void *requests, int *index, int *flag, void *status),                                           \
      (n, requests, index, flag, status), 0, 0, 0)                                                                     \
    X(Testsome, (int n, void *requests, int *done, int *indices, void *statuses),                                      \
      (n, requests, done, indices, statuses), 0, 0, 0)                                                                 \
    X(Request_get_status, (handle request, int *flag, void *status), (request, flag, status), 0, 0, 0)                 \
    X(Request_free, (void *request), (request), 0, 0, 0)                                                               \
    X(Cancel, (void *request), (request), 0, 0, 0)                                                                     \
    X(Start, (void *request), (request), 0, 0, 0)                                                                      \
    X(Startall, (int n, void *requests), (n, requests), 0, 0, 0)                                                       \
    X(Probe, (int source, int tag, handle comm, void *status), (source, tag, comm, status), 0, 0, 0)                   \
    X(Iprobe, (int source, int tag, handle comm, int *flag, void *status), (source, tag, comm, flag, status), 0, 0, 0) \
    X(Mprobe, (int source, int tag, handle comm, void *message, void *status),                                         \
      (source, tag, comm, message, status), 0, 0, 0)                                                                   \
    X(Improbe, (int source, int tag, handle comm, int *flag, void *message, void *status),                             \
      (source, tag, comm, flag, message, status), 0, 0, 0)                                                             \
    X(Barrier, (handle comm), (comm), 0, 0, 0)                                                                         \
    X(Ibarrier, (handle comm, void *request), (comm, request), 0, 0, 0)                                                \
    X(Comm_dup, (handle comm, void *made), (comm, made), 0, 0, 0)                                                      \
    X(Comm_dup_with_info, (handle comm, handle info, void *made), (comm, info, made), 0, 0, 0)                         \
    X(Comm_idup, (handle comm, void *made, void *request), (comm, made, request), 0, 0, 0)                             \
    X(Comm_split, (handle comm, int color, int key, void *made), (comm, color, key, made), 0, 0, 0)                    \
    X(Comm_split_type, (handle comm, int type, int key, handle info, void *made), (comm, type, key, info, made), 0,    \
      0, 0)                                                                                                            \
    X(Comm_create, (handle comm, handle group, void *made), (comm, group, made), 0, 0, 0)                              \
    X(Comm_create_group, (handle comm, handle group, int tag, void *made), (comm, group, tag, made), 0, 0, 0)          \
    X(Comm_free, (void *comm), (comm), 0, 0, 0)                                                                        \
    X(Comm_disconnect, (void *comm), (comm), 0, 0, 0)                                                                  \
    X(Comm_spawn, (const char *command, void *argv, int n, handle info, int root, handle comm, void *made,             \
                   int *codes),                                                                                        \
      (command, argv, n, info, root, comm, made, codes), 0, 0, 0)                                                      \
    X(Comm_spawn_multiple, (int n, void *commands, void *argvs, const int *counts, const void *infos, int root,        \
                            handle comm, void *made, int *codes),                                                      \
      (n, commands, argvs, counts, infos, root, comm, made, codes), 0, 0, 0)                                           \
    X(Comm_accept, (const char *port, handle info, int root, handle comm, void *made),                                 \
      (port, info, root, comm, made), 0, 0, 0)                                                                         \
    X(Comm_connect, (const char *port, handle info, int root, handle comm, void *made),                                \
      (port, info, root, comm, made), 0, 0, 0)                                                                         \
    X(Intercomm_create, (handle comm, int leader, handle other, int remote, int tag, void *made),                      \
      (comm, leader, other, remote, tag, made), 0, 0, 0)                                                               \
    X(Intercomm_merge, (handle comm, int high, void *made), (comm, high, made), 0, 0, 0)                               \
    X(Cart_create, (handle comm, int n, const int *sizes, const int *periods, int reorder, void *made),                \
      (comm, n, sizes, periods, reorder, made), 0, 0, 0)                                                               \
    X(Cart_sub, (handle comm, const int *kept, void *made), (comm, kept, made), 0, 0, 0)                               \
    X(Graph_create, (handle comm, int n, const int *index, const int *edges, int reorder, void *made),                 \
      (comm, n, index, edges, reorder, made), 0, 0, 0)                                                                 \
    X(Dist_graph_create, (handle comm, int n, const int *sources, const int *degrees, const int *targets,              \
                          const int *weights, handle info, int reorder, void *made),                                   \
      (comm, n, sources, degrees, targets, weights, info, reorder, made), 0, 0, 0)                                     \
    X(Dist_graph_create_adjacent, (handle comm, int ins, const int *sources, const int *inweights, int outs,           \
                                   const int *targets, const int *outweights, handle info, int reorder, void *made),   \
      (comm, ins, sources, inweights, outs, targets, outweights, info, reorder, made), 0, 0, 0)                        \
    X(Win_create, (void *base, MPI_Aint size, int unit, handle info, handle comm, void *win),                          \
      (base, size, unit, info, comm, win), 0, 0, 0)                                                                    \
    X(Win_allocate, (MPI_Aint size, int unit, handle info, handle comm, void *base, void *win),                        \
      (size, unit, info, comm, base, win), 0, 0, 0)                                                                    \
    X(Win_allocate_shared, (MPI_Aint size, int unit, handle info, handle comm, void *base, void *win),                 \
      (size, unit, info, comm, base, win), 0, 0, 0)                                                                    \
    X(Win_create_dynamic, (handle info, handle comm, void *win), (info, comm, win), 0, 0, 0)                           \
    X(Win_free, (void *win), (win), 0, 0, 0)                                                                           \
    X(Win_fence, (int assert, handle win), (assert, win), 0, 0, 0)                                                     \
    X(Win_lock, (int type, int rank, int assert, handle win), (type, rank, assert, win), 0, 0, 0)                      \
    X(Win_unlock, (int rank, handle win), (rank, win), 0, 0, 0)                                                        \
    X(Win_lock_all, (int assert, handle win), (assert, win), 0, 0, 0)                                                  \
    X(Win_unlock_all, (handle win), (win), 0, 0, 0)                                                                    \
    X(Win_flush, (int rank, handle win), (rank, win), 0, 0, 0)                                                         \
    X(Win_flush_all, (handle win), (win), 0, 0, 0)                                                                     \
    X(Win_flush_local, (int rank, handle win), (rank, win), 0, 0, 0)                                                   \
    X(Win_flush_local_all, (handle win), (win), 0, 0, 0)                                                               \
    X(Win_sync, (handle win), (win), 0, 0, 0)                                                                          \
    X(Win_start, (handle group, int assert, handle win), (group, assert, win), 0, 0, 0)                                \
    X(Win_post, (handle group, int assert, handle win), (group, assert, win), 0, 0, 0)                                 \
    X(Win_complete, (handle win), (win), 0, 0, 0)                                                                      \
    X(Win_wait, (handle win), (win), 0, 0, 0)                                                                          \
    X(Win_test, (handle win, int *flag), (win, flag), 0, 0, 0)                                                         \
    X(Fetch_and_op, (const void *buf, void *got, handle type, int rank, MPI_Aint at, handle op, handle win),           \
      (buf, got, type, rank, at, op, win), to(rank, 1, type),                                                          \
      to(rank, 1, type), to(rank, 1, type))                                                                            \
    X(Compare_and_swap, (const void *buf, const void *compared, void *got, handle type, int rank, MPI_Aint at,         \
                         handle win),                                                                                  \
      (buf, compared, got, type, rank, at, win), to(rank, 1, type),                                                    \
      to(rank, 1, type), to(rank, 1, type))                                                                            \
    X(File_open, (handle comm, const char *name, int mode, handle info, void *file),                                   \
      (comm, name, mode, info, file), 0, 0, 0)                                                                         \
    X(File_close, (void *file), (file), 0, 0, 0)                                                                       \
    X(File_sync, (handle file), (file), 0, 0, 0)                                                                       \
    X(File_set_size, (handle file, MPI_Offset size), (file, size), 0, 0, 0)                                            \
    X(File_preallocate, (handle file, MPI_Offset size), (file, size), 0, 0, 0)                                         \
    X(File_set_view, (handle file, MPI_Offset at, handle type, handle filetype, const char *data, handle info),        \
      (file, at, type, filetype, data, info), 0, 0, 0)                                                                 \
    X(File_read_all_end, (handle file, void *buf, void *status), (file, buf, status), 0, 0, 0)                         \
    X(File_read_ordered_end, (handle file, void *buf, void *status), (file, buf, status), 0, 0, 0)                     \
    X(File_read_at_all_end, (handle file, void *buf, void *status), (file, buf, status), 0, 0, 0)                      \
    X(File_write_all_end, (handle file, const void *buf, void *status), (file, buf, status), 0, 0, 0)                  \
    X(File_write_ordered_end, (handle file, const void *buf, void *status), (file, buf, status), 0, 0, 0)              \
    X(File_write_at_all_end, (handle file, const void *buf, void *status), (file, buf, status), 0, 0, 0)

#define TABLE_PLAIN_4(X, R)                                                                                            \
    X(Pready, (int part, handle request), (part, request), 0, 0, 0)                                                    \
    X(Pready_range, (int low, int high, handle request), (low, high, request), 0, 0, 0)                                \
    X(Parrived, (handle request, int part, int *flag), (request, part, flag), 0, 0, 0)                                 \
    X(Comm_create_from_group, (handle group, const char *tag, handle info, handle errors, void *made),                 \
      (group, tag, info, errors, made), 0, 0, 0)

#if TELEM_MPI_VERSION >= 40
#define TABLE(X, R)                                                                                                    \
    TABLE_COUNTED(X, R, , int, int)                                                                                    \
    TABLE_COUNTED_31(X, R, , int, int)                                                                                 \
    TABLE_COUNTED(X, R, _c, MPI_Count, MPI_Aint)                                                                       \
    TABLE_COUNTED_31(X, R, _c, MPI_Count, MPI_Aint)                                                                    \
    TABLE_PLAIN(X, R)                                                                                                  \
    TABLE_PLAIN_4(X, R)
#elif TELEM_MPI_VERSION >= 31
#define TABLE(X, R)                                                                                                    \
    TABLE_COUNTED(X, R, , int, int)                                                                                    \
    TABLE_COUNTED_31(X, R, , int, int)                                                                                 \
    TABLE_PLAIN(X, R)
#else
#define TABLE(X, R)                                                                                                    \
    TABLE_COUNTED(X, R, , int, int)                                                                                    \
    TABLE_PLAIN(X, R)
#endif

/* Those without bytes. Each of their arguments fits into a register, and they return an int or an address, so one body
   serves all of them. */
#ifdef TELEM_MPI_SINK
#include "lookups.h"
#define LOOKUPS_AROUND(X) X(Type_free)
#else
#define LOOKUPS(X)
#define LOOKUPS_AROUND(X)
#endif

/* Functions with bodies of their own. */
#define OWN_FUNCTIONS(X) X(Init) X(Init_thread) X(Finalize) LOOKUPS_AROUND(X)

enum function {
#define NUMBER(NAME, ...) F_##NAME,
    TABLE(NUMBER, NUMBER) LOOKUPS(NUMBER) OWN_FUNCTIONS(NUMBER)
#undef NUMBER
    FUNCTIONS
};

static const char *const names[FUNCTIONS] = {
#define NAME_OF(NAME, ...) "MPI_" #NAME,
    TABLE(NAME_OF, NAME_OF) LOOKUPS(NAME_OF) OWN_FUNCTIONS(NAME_OF)
#undef NAME_OF
};

/* ---- time --------------------------------------------------------------------------------------------------------- */

static inline uint64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A clock of the processor where there is one that costs less than the system's. */
static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return nanoseconds();
#endif
}

/* ---- what was counted --------------------------------------------------------------------------------------------- */

/* Written by one thread and read by the one that sends, so neither waits for the other. */
struct tally {
#ifdef TELEM_MPI_SINK
    uint64_t calls, in, out, ticks;
#else
    uint64_t calls, bytes, ticks;
#endif
};

struct tallies {
    struct tally of[FUNCTIONS];
    struct tallies *next;
    int taken; /* by a thread that lives */
};

static struct tallies *all_tallies;
static pthread_key_t tallies_key;
static __thread struct tallies *own_tallies __attribute__((tls_model("initial-exec")));
/* How deep this thread is in calls that are counted. */
static __thread int depth __attribute__((tls_model("initial-exec")));
/* Whether calls are counted: from the end of MPI_Init to that of MPI_Finalize. */
static int counting;

static void leave_tallies(void *tallies)
{
    __atomic_store_n(&((struct tallies *)tallies)->taken, 0, __ATOMIC_RELEASE);
}

static __attribute__((noinline)) struct tallies *take_tallies(void)
{
    struct tallies *one = __atomic_load_n(&all_tallies, __ATOMIC_ACQUIRE);
    for (; one; one = one->next) {
        int free = 0;
        if (__atomic_compare_exchange_n(&one->taken, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            break;
    }
    if (!one) {
        one = calloc(1, sizeof *one);
        if (!one)
            return NULL;
        one->taken = 1;
        one->next = __atomic_load_n(&all_tallies, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&all_tallies, &one->next, one, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
            ;
    }
    /* A thread that ends leaves them to the next one. */
    pthread_setspecific(tallies_key, one);
    own_tallies = one;
    return one;
}

static inline void raise_by(uint64_t *total, uint64_t more)
{
    __atomic_store_n(total, *total + more, __ATOMIC_RELAXED);
}

#ifdef TELEM_MPI_SINK
#define BYTES_OF(CODE, BYTES, IN, OUT) (CODE) == MPI_SUCCESS ? (IN) : 0, (CODE) == MPI_SUCCESS ? (OUT) : 0
#define NO_BYTES 0, 0
static inline void count(enum function function, uint64_t took, uint64_t in, uint64_t out)
#else
#define BYTES_OF(CODE, BYTES, IN, OUT) (CODE) == MPI_SUCCESS ? (BYTES) : 0
#define NO_BYTES 0
static inline void count(enum function function, uint64_t took, uint64_t bytes)
#endif
{
    struct tallies *own = own_tallies;
    if (__builtin_expect(!own, 0) && !(own = take_tallies()))
        return;
    struct tally *tally = &own->of[function];
    raise_by(&tally->calls, 1);
#ifdef TELEM_MPI_SINK
    raise_by(&tally->in, in);
    raise_by(&tally->out, out);
#else
    raise_by(&tally->bytes, bytes);
#endif
    /* Clocks of two processors may differ by less than a call takes. */
    raise_by(&tally->ticks, (int64_t)took > 0 ? took : 0);
}

/* ---- the functions behind ----------------------------------------------------------------------------------------- */

#define LIBRARIES_MAX 64

struct libraries {
    size_t count;
    char *paths[LIBRARIES_MAX];
};

static int note_library(struct dl_phdr_info *info, size_t size, void *context)
{
    struct libraries *found = context;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    if (name && strstr(name, "libmpi") && found->count < LIBRARIES_MAX) {
        char *path = strdup(info->dlpi_name);
        if (path)
            found->paths[found->count++] = path;
    }
    return 0;
}

/* What `name` is behind this library; NULL where there is nothing. */
static void *behind(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found)
        return found;
    /* A library that was loaded for one module, as Python does, is not in the common scope. */
    struct libraries libraries = {0};
    dl_iterate_phdr(note_library, &libraries);
    for (size_t i = 0; i < libraries.count; i++) {
        void *library = found ? NULL : dlopen(libraries.paths[i], RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            found = dlsym(library, name);
            /* It stays loaded: what was found is called from now on. */
            if (!found)
                dlclose(library);
        }
        free(libraries.paths[i]);
    }
    return found;
}

/* The same for what is no function: a program may have a copy of its own, which is the one that counts. */
static void *data_behind(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : behind(name);
}

static __attribute__((noinline)) void *look_up(void **place, const char *name)
{
    void *found = behind(name);
    if (found)
        __atomic_store_n(place, found, __ATOMIC_RELAXED);
    return found;
}

/* What is asked of MPI to know bytes; never counted. */
static struct {
    int (*type_size)(MPI_Datatype, MPI_Count *);
    int (*elements)(const void *, MPI_Datatype, MPI_Count *);
    int (*comm_rank)(MPI_Comm, int *);
    int (*comm_size)(MPI_Comm, int *);
    int (*comm_remote_size)(MPI_Comm, int *);
    int (*comm_test_inter)(MPI_Comm, int *);
    int (*topo_test)(MPI_Comm, int *);
    int (*cartdim_get)(MPI_Comm, int *);
    int (*graph_neighbors_count)(MPI_Comm, int, int *);
    int (*dist_graph_neighbors_count)(MPI_Comm, int *, int *, int *);
    /* Constants, which are addresses in Open MPI. */
    MPI_Comm world;
    MPI_Datatype byte, null;
} mpi;

/* Whether the library behind is of the kind that this was compiled for, and has what is needed. */
static int meet_mpi(void)
{
    static const char *const wanted[] = {
        "PMPI_Type_size_x", "PMPI_Get_elements_x", "PMPI_Comm_rank", "PMPI_Comm_size", "PMPI_Comm_remote_size",
        "PMPI_Comm_test_inter", "PMPI_Topo_test", "PMPI_Cartdim_get", "PMPI_Graph_neighbors_count",
        "PMPI_Dist_graph_neighbors_count",
    };
    void **const places[] = {
        (void **)&mpi.type_size, (void **)&mpi.elements, (void **)&mpi.comm_rank, (void **)&mpi.comm_size,
        (void **)&mpi.comm_remote_size, (void **)&mpi.comm_test_inter, (void **)&mpi.topo_test,
        (void **)&mpi.cartdim_get, (void **)&mpi.graph_neighbors_count, (void **)&mpi.dist_graph_neighbors_count,
    };
    void *open_mpi = data_behind("ompi_mpi_comm_world");
#ifdef OPEN_MPI
    if (!open_mpi)
        return 0;
    mpi.world = (MPI_Comm)open_mpi;
    mpi.byte = (MPI_Datatype)data_behind("ompi_mpi_byte");
    mpi.null = (MPI_Datatype)data_behind("ompi_mpi_datatype_null");
#else
    if (open_mpi)
        return 0;
    mpi.world = MPI_COMM_WORLD;
    mpi.byte = MPI_BYTE;
    mpi.null = MPI_DATATYPE_NULL;
#endif
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!(*places[i] = behind(wanted[i])))
            return 0;
    }
    return 1;
}

/* ---- bytes -------------------------------------------------------------------------------------------------------- */

/* Sizes of types that a thread has met. Freeing a type makes all of them old: its handle may come back as another. */
#define KNOWN_TYPES 16

struct known_type {
    handle type;
    uint64_t size;
    uint32_t age;
};

static __thread struct known_type known_types[KNOWN_TYPES] __attribute__((tls_model("initial-exec")));
static uint32_t types_age = 1;

static __attribute__((noinline)) uint64_t ask_size(handle type, struct known_type *known, uint32_t age)
{
    MPI_Count size = 0;
    if ((MPI_Datatype)type == mpi.null || mpi.type_size((MPI_Datatype)type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    *known = (struct known_type){type, (uint64_t)size, age};
    return (uint64_t)size;
}

static inline uint64_t size_of(handle type)
{
    uintptr_t bits = (uintptr_t)type;
    struct known_type *known = &known_types[(bits ^ bits >> 4 ^ bits >> 9) % KNOWN_TYPES];
    uint32_t age = __atomic_load_n(&types_age, __ATOMIC_RELAXED);
    if (known->type == type && known->age == age)
        return known->size;
    return ask_size(type, known, age);
}

static inline uint64_t sized(int64_t n, handle type)
{
    return n > 0 ? (uint64_t)n * size_of(type) : 0;
}

/* To or from another process. */
static inline uint64_t to(int rank, int64_t n, handle type)
{
    return rank == MPI_PROC_NULL ? 0 : sized(n, type);
}

/* In a collective with a root. The side of the root of an intercommunicator gives other arguments. */
static inline uint64_t from_root(int root, int64_t n, handle type)
{
    return root == MPI_PROC_NULL || root == MPI_ROOT ? 0 : sized(n, type);
}

static inline uint64_t came(const void *status)
{
    MPI_Count bytes = 0;
    return mpi.elements(status, mpi.byte, &bytes) == MPI_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0;
}

static inline int rank_in(handle comm)
{
    int rank = 0;
    mpi.comm_rank((MPI_Comm)comm, &rank);
    return rank;
}

/* With how many processes each one exchanges in a collective. */
static inline uint64_t peers(handle comm)
{
    int is_inter = 0, size = 0;
    mpi.comm_test_inter((MPI_Comm)comm, &is_inter);
    (is_inter ? mpi.comm_remote_size : mpi.comm_size)((MPI_Comm)comm, &size);
    return size > 0 ? (uint64_t)size : 0;
}

/* To how many neighbours of a topology a process sends, and from how many it receives. */
static uint64_t neighbours_of(handle comm, int receives)
{
    int topology = MPI_UNDEFINED, n = 0, ins = 0, weighted = 0;
    mpi.topo_test((MPI_Comm)comm, &topology);
    if (topology == MPI_CART) {
        mpi.cartdim_get((MPI_Comm)comm, &n);
        n *= 2;
    } else if (topology == MPI_GRAPH) {
        mpi.graph_neighbors_count((MPI_Comm)comm, rank_in(comm), &n);
    } else if (topology == MPI_DIST_GRAPH) {
        mpi.dist_graph_neighbors_count((MPI_Comm)comm, &ins, &n, &weighted);
        if (receives)
            n = ins;
    }
    return n > 0 ? (uint64_t)n : 0;
}

static inline uint64_t neighbours(handle comm)
{
    return neighbours_of(comm, 0);
}

#ifdef TELEM_MPI_SINK
static inline uint64_t sources(handle comm)
{
    return neighbours_of(comm, 1);
}

/* Whether this process is the root of a collective; of the side that has it, between two groups. */
static inline int at_root(int root, handle comm)
{
    int is_inter = 0;
    if (root < 0)
        return root == MPI_ROOT;
    mpi.comm_test_inter((MPI_Comm)comm, &is_inter);
    return !is_inter && rank_in(comm) == root;
}
#endif

#define SUMS(S, N)                                                                                                     \
    static inline uint64_t sum##S(const N *counts, uint64_t n)                                                         \
    {                                                                                                                  \
        uint64_t sum = 0;                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            sum += (uint64_t)counts[i];                                                                                \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static inline uint64_t sum_each##S(const N *counts, const void *types, uint64_t n)                                 \
    {                                                                                                                  \
        uint64_t sum = 0;                                                                                              \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            sum += sized(counts[i], (handle)((const MPI_Datatype *)types)[i]);                                         \
        return sum;                                                                                                    \
    }
SUMS(, int)
#if TELEM_MPI_VERSION >= 40
SUMS(_c, MPI_Count)
#endif

/* ---- what is sent ------------------------------------------------------------------------------------------------- */

#define SENDER_STACK_BYTES (256 * 1024)
#define LAST_WORDS_MS 500

static pthread_mutex_t sender_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sender_wake;
static pthread_t sender;
static int sender_runs, sender_ends;
static pid_t sender_pid;
static uint64_t first_tick, first_nanosecond;
static struct tally sent[FUNCTIONS];

/* A sink has: SINK_INTERVAL_NS between two rounds; sink_begin, whether it is worth counting; sink_meet, with the rank
   in MPI_COMM_WORLD; sink_add, what came since the last time; sink_flush, where the process ends at once; sink_end. */
#ifdef TELEM_MPI_SINK
#include TELEM_MPI_SINK
#else
#define SINK_INTERVAL_NS 1000000000u

static struct {
    telem_counter *calls, *bytes;
    telem_gauge *seconds;
    double total_seconds;
} series[FUNCTIONS];
static char rank_text[16];

static int sink_begin(void)
{
    /* The number of the process tells the programs of a job apart, which have the same ranks, and those that MPI spawned
       itself. */
    const telem_options options = {
        .size = sizeof options, .interval_ms = 250, .ring_samples = 4096, .process_tags = 1};
    telem_start(&options);
    return telem_connected() >= 0; /* or there is no service that it could be sent to */
}

static void sink_note(const char *title, const char *text)
{
    telem_note(title, text);
}

static void sink_meet(int rank)
{
    snprintf(rank_text, sizeof rank_text, "%d", rank);
}

static void open_series(enum function function)
{
    static const telem_about about_calls = {sizeof(telem_about), "calls", "Calls of the function.", 1};
    static const telem_about about_bytes = {sizeof(telem_about), "bytes",
                                            "Bytes that calls of the function were given or got.", 1};
    static const telem_about about_seconds = {sizeof(telem_about), "s", "Time in calls of the function.", 1};
    const char *const tags[] = {"function", names[function], "rank", rank_text, "program",
                                program_invocation_short_name, NULL};
    series[function].calls = telem_counter_open_about("mpi_calls_total", tags, &about_calls);
    series[function].bytes = telem_counter_open_about("mpi_bytes_total", tags, &about_bytes);
    series[function].seconds = telem__total_open("mpi_seconds_total", tags, &about_seconds);
}

static void sink_add(enum function function, const struct tally *more, double seconds)
{
    if (!series[function].calls)
        open_series(function);
    telem_add(series[function].calls, more->calls);
    if (more->bytes)
        telem_add(series[function].bytes, more->bytes);
    series[function].total_seconds += seconds;
    telem_set(series[function].seconds, series[function].total_seconds);
}

static void sink_flush(uint32_t timeout_ms)
{
    telem_flush(timeout_ms);
}

static void sink_end(void)
{
}
#endif

/* Gives the sink what has changed. Only one thread at a time does. */
static void send_changes(void)
{
    uint64_t now_ticks = ticks(), now_nanoseconds = nanoseconds();
    double seconds_per_tick = 1e-9;
    if (now_ticks > first_tick)
        seconds_per_tick *= (double)(now_nanoseconds - first_nanosecond) / (double)(now_ticks - first_tick);
    static struct tally sums[FUNCTIONS];
    memset(sums, 0, sizeof sums);
    for (struct tallies *one = __atomic_load_n(&all_tallies, __ATOMIC_ACQUIRE); one; one = one->next) {
        const uint64_t *from = (const uint64_t *)one->of;
        uint64_t *to = (uint64_t *)sums;
        for (size_t i = 0; i < sizeof sums / sizeof(uint64_t); i++)
            to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    }
    for (int i = 0; i < FUNCTIONS; i++) {
        if (sums[i].calls == sent[i].calls)
            continue;
        struct tally more;
        const uint64_t *now = (const uint64_t *)&sums[i], *before = (const uint64_t *)&sent[i];
        for (size_t at = 0; at < sizeof more / sizeof(uint64_t); at++)
            ((uint64_t *)&more)[at] = now[at] - before[at];
        sink_add(i, &more, (double)more.ticks * seconds_per_tick);
        sent[i] = sums[i];
    }
}

static void *send_every_second(void *unused)
{
    (void)unused;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&sender_lock);
    while (!sender_ends) {
        uint64_t after = (uint64_t)next.tv_nsec + SINK_INTERVAL_NS;
        next.tv_sec += (time_t)(after / 1000000000u);
        next.tv_nsec = (long)(after % 1000000000u);
        while (!sender_ends && pthread_cond_timedwait(&sender_wake, &sender_lock, &next) != ETIMEDOUT)
            ;
        if (!sender_ends)
            send_changes();
    }
    pthread_mutex_unlock(&sender_lock);
    return NULL;
}

/* At the end of a process that did not call MPI_Finalize, too; not of a child that it forked. */
static void send_the_rest(void)
{
    if (!sender_runs || getpid() != sender_pid)
        return;
    pthread_mutex_lock(&sender_lock);
    sender_ends = 1;
    send_changes();
    pthread_cond_signal(&sender_wake);
    pthread_mutex_unlock(&sender_lock);
}

static int start_sender(void)
{
    sigset_t every, before;
    pthread_condattr_t clock;
    pthread_attr_t attributes;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&sender_wake, &clock);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SENDER_STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are the program's. */
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    int failed = pthread_create(&sender, &attributes, send_every_second, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    pthread_condattr_destroy(&clock);
    return !failed;
}

/* Whether this is the process that says what concerns all of them. */
static int is_first(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID",
                                        "FLUX_TASK_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return !strcmp(rank, "0");
    }
    return 1;
}

/* MPI runs from here on. */
static void begin(void)
{
    static int begun;
    if (__atomic_exchange_n(&begun, 1, __ATOMIC_ACQ_REL))
        return;
    if (!sink_begin())
        return;
    if (!meet_mpi()) {
        if (is_first())
            sink_note("MPI is not profiled", "the program has another MPI than the one of --mpi-profile: name its "
                                              "compiler wrapper, as in --mpi-profile=mpicc.openmpi");
        return;
    }
    int rank = -1;
    if (mpi.comm_rank(mpi.world, &rank) != MPI_SUCCESS || pthread_key_create(&tallies_key, leave_tallies))
        return;
    sink_meet(rank);
    first_tick = ticks();
    first_nanosecond = nanoseconds();
    sender_pid = getpid();
    sender_runs = start_sender();
    if (sender_runs) {
        atexit(send_the_rest);
        __atomic_store_n(&counting, 1, __ATOMIC_RELEASE);
    }
}

/* ---- the functions ------------------------------------------------------------------------------------------------ */

#define UNLIKELY(CONDITION) __builtin_expect(!!(CONDITION), 0)

#define ENTRY(NAME, PREFIX, PARAMETERS, ARGUMENTS, BYTES, IN, OUT, BEFORE)                                                   \
    static void *PREFIX##_##NAME##_behind;                                                                             \
    int telem_##PREFIX##_##NAME PARAMETERS __asm__(#PREFIX "_" #NAME);                                                 \
    int telem_##PREFIX##_##NAME PARAMETERS                                                                             \
    {                                                                                                                  \
        int(*next) PARAMETERS = __atomic_load_n(&PREFIX##_##NAME##_behind, __ATOMIC_RELAXED);                          \
        if (UNLIKELY(!next) && !(next = look_up(&PREFIX##_##NAME##_behind, #PREFIX "_" #NAME)))                        \
            return MPI_ERR_OTHER;                                                                                      \
        if (UNLIKELY(depth || !__atomic_load_n(&counting, __ATOMIC_RELAXED)))                                          \
            return next ARGUMENTS;                                                                                     \
        BEFORE                                                                                                         \
        depth = 1;                                                                                                     \
        uint64_t began = ticks();                                                                                      \
        int code = next ARGUMENTS;                                                                                     \
        uint64_t took = ticks() - began;                                                                               \
        count(F_##NAME, took, BYTES_OF(code, BYTES, IN, OUT));                                                         \
        depth = 0;                                                                                                     \
        return code;                                                                                                   \
    }

#define WRAP(NAME, PARAMETERS, ARGUMENTS, BYTES, IN, OUT)                                                              \
    ENTRY(NAME, MPI, PARAMETERS, ARGUMENTS, BYTES, IN, OUT, )                                                          \
    ENTRY(NAME, PMPI, PARAMETERS, ARGUMENTS, BYTES, IN, OUT, )

#define OWN_STATUS                                                                                                     \
    MPI_Status own;                                                                                                    \
    if (status == (void *)MPI_STATUS_IGNORE)                                                                           \
        status = &own;

#define WRAP_STATUS(NAME, PARAMETERS, ARGUMENTS, BYTES, IN, OUT)                                                       \
    ENTRY(NAME, MPI, PARAMETERS, ARGUMENTS, BYTES, IN, OUT, OWN_STATUS)                                                \
    ENTRY(NAME, PMPI, PARAMETERS, ARGUMENTS, BYTES, IN, OUT, OWN_STATUS)

TABLE(WRAP, WRAP_STATUS)

#ifdef TELEM_MPI_SINK
/* More arguments than any of them has: what is read beyond those of the caller is its own frame, and nobody looks. */
#define ANY_PARAMETERS                                                                                                 \
    (handle a, handle b, handle c, handle d, handle e, handle f, handle g, handle h, handle i, handle j, handle k,     \
     handle l)
#define LOOKUP_AS(NAME, PREFIX)                                                                                        \
    static void *PREFIX##_##NAME##_behind;                                                                             \
    handle telem_##PREFIX##_##NAME ANY_PARAMETERS __asm__(#PREFIX "_" #NAME);                                          \
    handle telem_##PREFIX##_##NAME ANY_PARAMETERS                                                                      \
    {                                                                                                                  \
        handle(*next) ANY_PARAMETERS = __atomic_load_n(&PREFIX##_##NAME##_behind, __ATOMIC_RELAXED);                   \
        if (UNLIKELY(!next) && !(next = look_up(&PREFIX##_##NAME##_behind, #PREFIX "_" #NAME)))                        \
            return MPI_ERR_OTHER;                                                                                      \
        if (UNLIKELY(depth || !__atomic_load_n(&counting, __ATOMIC_RELAXED)))                                          \
            return next(a, b, c, d, e, f, g, h, i, j, k, l);                                                           \
        depth = 1;                                                                                                     \
        uint64_t began = ticks();                                                                                      \
        handle result = next(a, b, c, d, e, f, g, h, i, j, k, l);                                                      \
        count(F_##NAME, ticks() - began, NO_BYTES);                                                                    \
        depth = 0;                                                                                                     \
        return result;                                                                                                 \
    }
#define LOOKUP(NAME) LOOKUP_AS(NAME, MPI) LOOKUP_AS(NAME, PMPI)
LOOKUPS(LOOKUP)
#endif

/* A call that is passed on, between what is done before and after it. */
#define AROUND(NAME, PREFIX, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                                                     \
    static void *PREFIX##_##NAME##_behind;                                                                             \
    int telem_##PREFIX##_##NAME PARAMETERS __asm__(#PREFIX "_" #NAME);                                                 \
    int telem_##PREFIX##_##NAME PARAMETERS                                                                             \
    {                                                                                                                  \
        int(*next) PARAMETERS = __atomic_load_n(&PREFIX##_##NAME##_behind, __ATOMIC_RELAXED);                          \
        if (UNLIKELY(!next) && !(next = look_up(&PREFIX##_##NAME##_behind, #PREFIX "_" #NAME)))                        \
            return MPI_ERR_OTHER;                                                                                      \
        if (depth)                                                                                                     \
            return next ARGUMENTS;                                                                                     \
        BEFORE                                                                                                         \
        depth = 1;                                                                                                     \
        uint64_t began = ticks();                                                                                      \
        int code = next ARGUMENTS;                                                                                     \
        uint64_t took = ticks() - began;                                                                               \
        depth = 0;                                                                                                     \
        AFTER                                                                                                          \
        return code;                                                                                                   \
    }

#define WRAP_AROUND(NAME, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                                                        \
    AROUND(NAME, MPI, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                                                            \
    AROUND(NAME, PMPI, PARAMETERS, ARGUMENTS, BEFORE, AFTER)

static void began_with(enum function function, int code, uint64_t took)
{
    if (code != MPI_SUCCESS)
        return;
    begin();
    if (__atomic_load_n(&counting, __ATOMIC_ACQUIRE))
        count(function, took, NO_BYTES);
}

WRAP_AROUND(Init, (int *argc, void *argv), (argc, argv), , began_with(F_Init, code, took);)
WRAP_AROUND(Init_thread, (int *argc, void *argv, int required, int *provided), (argc, argv, required, provided), ,
            began_with(F_Init_thread, code, took);)
WRAP_AROUND(Finalize, (void), (), , {
    if (__atomic_exchange_n(&counting, 0, __ATOMIC_ACQ_REL)) {
        count(F_Finalize, took, NO_BYTES);
        send_the_rest();
        sink_end();
    }
})
/* Counted with those that only look something up; sizes of types are asked for anew. */
static void freed_type(uint64_t took)
{
#ifdef TELEM_MPI_SINK
    if (__atomic_load_n(&counting, __ATOMIC_RELAXED))
        count(F_Type_free, took, NO_BYTES);
#else
    (void)took;
#endif
}

WRAP_AROUND(Type_free, (void *type), (type), __atomic_add_fetch(&types_age, 1, __ATOMIC_RELAXED);, freed_type(took);)
/* It does not return, and no end of the process follows that would send the rest. */
WRAP_AROUND(Abort, (handle comm, int status), (comm, status), {
    if (__atomic_exchange_n(&counting, 0, __ATOMIC_ACQ_REL)) {
        send_the_rest();
        sink_flush(LAST_WORDS_MS);
    }
}, (void)took;)
