! Calls of MPI whose counts and bytes are known, by Fortran: tests/py/test_mpi_profile.py compares. Built with -DF08 it
! uses the module mpi_f08, with -DINCLUDED the file mpif.h, else the module mpi.
program exact
#if defined(F08)
    use mpi_f08
    implicit none
    type(MPI_Request) :: requests(2)
#elif defined(INCLUDED)
    implicit none
    include 'mpif.h'
    integer :: requests(2)
#else
    use mpi
    implicit none
    integer :: requests(2)
#endif
    integer, parameter :: rounds = 100, n = 16
    integer :: rank, processes, right, left, i, ierr
    double precision :: out(n), in(n)

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, processes, ierr)
    right = mod(rank + 1, processes)
    left = mod(rank + processes - 1, processes)
    out = 1
    do i = 1, rounds
        if (mod(rank, 2) == 0) then
            call MPI_Send(out, n / 2, MPI_DOUBLE_PRECISION, right, 0, MPI_COMM_WORLD, ierr)
            call MPI_Recv(in, n, MPI_DOUBLE_PRECISION, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
        else
            call MPI_Recv(in, n, MPI_DOUBLE_PRECISION, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
            call MPI_Send(out, n / 2, MPI_DOUBLE_PRECISION, right, 0, MPI_COMM_WORLD, ierr)
        end if
    end do
    do i = 1, rounds
        call MPI_Irecv(in, n, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, requests(1), ierr)
        call MPI_Isend(out, n, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, requests(2), ierr)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
        call MPI_Barrier(MPI_COMM_WORLD, ierr)
        call MPI_Allreduce(MPI_IN_PLACE, out, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
        call MPI_Bcast(out, 3, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    end do
    if (rank == 0) print '(A,I0,A,F4.1)', 'done by ', processes, ' with ', out(1)
    call MPI_Finalize(ierr)
end program exact
