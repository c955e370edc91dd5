!> Heat in a plate whose left edge is hot: Jacobi steps until nothing changes. It logs the residual of each step, what a
!> step takes, and asks in SQL how it went.
program heat
  use, intrinsic :: iso_fortran_env, only: real64
  use telem
  implicit none
  integer, parameter :: n = 64
  integer :: steps_max = 2000
  real(real64), parameter :: tolerance = 1.0e-2_real64
  real(real64) :: old(0:n + 1, 0:n + 1), new(0:n + 1, 0:n + 1), residual, slowest
  type(telem_gauge) :: residuals
  type(telem_counter) :: updates
  type(telem_timer) :: sweeps
  type(telem_span) :: span
  character(16) :: argument
  integer :: step, i, j, stat

  call get_command_argument(1, argument, status=stat)
  if (stat == 0) read (argument, *) steps_max

  residuals = telem_gauge_open("heat_residual", tags=[character(8) :: "solver", "jacobi"], &
    help="Largest change in a step.")
  updates = telem_counter_open("heat_updates_total", unit="cells")
  sweeps = telem_timer_open("heat_step_seconds")
  call telem_setting("solver", "jacobi")

  old = 0
  old(:, 0) = 100
  new = old
  do step = 1, steps_max
    span = telem_begin(sweeps)
    do j = 1, n
      do i = 1, n
        new(i, j) = 0.25_real64*(old(i - 1, j) + old(i + 1, j) + old(i, j - 1) + old(i, j + 1))
      end do
    end do
    residual = maxval(abs(new - old))
    old = new
    call telem_end(span)
    call telem_set_step(residuals, residual, step)
    call telem_add(updates, n*n)
    if (residual < tolerance) exit
  end do
  call telem_note("heat is done", "residual below the tolerance, or no step left")

  print '(a, i0, a, es10.3)', "steps: ", min(step, steps_max), ", residual: ", residual
  slowest = 0
  call telem_sql_number("SELECT max(value) FROM heat_step_seconds", slowest, stat=stat)
  if (stat == 0) then
    print '(a, es10.3, a)', "slowest step: ", slowest, " s"
  else
    print '(2a)', "slowest step: not known: ", telem_error()
  end if
end program heat
