!> A program that does what its first argument says, and prints what became of its samples.
!> tests/py/test_fortran_client.py runs it against a real service and asks that service in SQL.
program scenario
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, output_unit, real32, real64
  use, intrinsic :: ieee_arithmetic, only: ieee_positive_inf, ieee_quiet_nan, ieee_value
  use telem
  implicit none
  integer(int64), parameter :: t = 1767322800000000_int64
  integer, parameter :: patience_ms = 60000
  character(32) :: name

  call get_command_argument(1, name)
  select case (name)
  case ("values"); call log_values()
  case ("threads"); call log_in_threads()
  case ("sql"); call ask()
  case ("options"); call start_with_options()
  case ("unserved"); call log_without_a_service()
  case ("cost"); call measure_cost()
  case default; call must(.false., "there is no scenario of that name")
  end select

contains

  subroutine must(is_so, what)
    logical, intent(in) :: is_so
    character(*), intent(in) :: what

    if (is_so) return
    write (error_unit, '(4a)') what, " failed: ", telem_error()
    error stop 3
  end subroutine must

  subroutine flush_all()
    integer :: stat

    call telem_flush(patience_ms, stat)
    call must(stat == 0, "telem_flush")
  end subroutine flush_all

  subroutine print_counts()
    type(telem_counts) :: counts
    character(*), parameter :: form = &
      '("{""taken"": ", i0, ", ""stored"": ", i0, ", ""refused"": ", i0, ", ""above_level"": ", i0, '// &
      '", ""dropped"": ", i0, "}")'

    counts = telem_stats()
    write (output_unit, form) counts%taken, counts%stored, counts%refused, counts%above_level, &
      counts%dropped_full + counts%dropped_unserved + counts%dropped_other
  end subroutine print_counts

  subroutine log_values()
    type(telem_gauge) :: gauge, again, steps, none, fine
    type(telem_counter) :: counter
    type(telem_histogram) :: histogram
    type(telem_timer) :: timer
    type(telem_span) :: span
    real(real64) :: seconds
    integer :: i, stat

    gauge = telem_gauge_open("gauge   ", &
      tags=[character(24) :: "model", "a b   ", "z", "u", "long_key_of_a_tag", "v"], &
      unit="W  ", help="How much.", level=1)
    call must(telem_is_open(gauge), "telem_gauge_open")
    call telem_set_at(gauge, 0.1_real64, t)
    call telem_set_at(gauge, 0.1_real32, t + 1)
    call telem_set_at(gauge, huge(1_int64), t + 2)
    call telem_set_at(gauge, ibset(0_int64, 63), t + 3)
    call telem_set_at(gauge, ibset(0_int32, 31), t + 4)
    call telem_set_at(gauge, ieee_value(1.0_real64, ieee_positive_inf), t + 5)
    call telem_set_at(gauge, ieee_value(1.0_real64, ieee_quiet_nan), t + 6)
    call telem_set_at(gauge, -tiny(1.0_real64), t + 7)
    again = telem_gauge_open("gauge", tags=[character(24) :: "z", "u", "long_key_of_a_tag", "v", "model", "a b"])
    call telem_set_at(again, 8, t + 8)

    steps = telem_gauge_open("loss")
    do i = 1, 10
      call telem_set_step(steps, 0.5_real64*i, i, t + i)
      call telem_set_step(steps, 0.5_real32*i, int(10 + i, int64), t + 10 + i)
      call telem_set_step(steps, i, 20 + i, t + 20 + i)
      call telem_set_step(steps, int(i, int64), int(30 + i, int64), t + 30 + i)
    end do
    call telem_set_step(steps, 99.0_real64, 41)
    call telem_set_step(steps, 1.0_real64, 42, 0_int64)

    ! Of now.
    gauge = telem_gauge_open("now")
    call telem_set(gauge, 1.5_real64)
    call telem_set(gauge, 2.5_real32)
    call telem_set(gauge, 3_int32)
    call telem_set(gauge, 4_int64)

    counter = telem_counter_open("counter", unit="bytes")
    call telem_add(counter)
    call telem_add(counter, 9_int32)
    call telem_add(counter, 5000000000_int64)
    call telem_add(counter, -7)
    call must(telem_total(counter) == 5000000010_int64, "the total")

    histogram = telem_histogram_open("seconds", [0.1_real64, 1.0_real64, 10.0_real64], tags=[character(2) :: "of", "x"])
    call telem_observe(histogram, 0.1_real64)
    call telem_observe(histogram, 0.5_real32)
    call telem_observe(histogram, 10)
    call telem_observe(histogram, 11_int64)

    timer = telem_timer_open("span")
    span = telem_begin(timer)
    do while (telem_total(counter) < 0)
    end do
    call telem_end(span, seconds)
    call must(seconds >= 0 .and. seconds < 10, "the seconds of a span")
    call telem_end(span, seconds)
    call must(abs(seconds) <= 0, "a span ends once")

    ! Nothing of this is a sample.
    none = telem_gauge_open("   ")
    call must(.not. telem_is_open(none), "an empty name")
    call must(index(telem_error(), "empty") > 0, "its reason")
    call telem_set(none, 1)
    call must(.not. telem_is_open(telem_gauge_open("x", tags=["k", "v", "l"])), "a key without a value")
    call must(index(telem_error(), "has no value") > 0, "the reason of that")
    call must(.not. telem_is_open(telem_gauge_open("x", level=7)), "level 7")
    call must(.not. telem_is_open(telem_counter_open("loss")), "two kinds of one name")
    call must(.not. telem_is_open(telem_histogram_open("y", [1.0_real64, 1.0_real64])), "bounds that do not rise")

    fine = telem_gauge_open("fine", level=4)
    call telem_note("begins   ", "a note ", stat)
    call must(stat == 0, "telem_note")
    call telem_setting("solver  ", "cg  ", stat)
    call must(stat == 0, "telem_setting")
    call flush_all()
    call telem_set(fine, 1)
    call must(telem_connected() == 1, "telem_connected")
    call must(telem_level() == 1, "telem_level")
    call flush_all()
    call print_counts()
  end subroutine log_values

  subroutine log_in_threads()
    type(telem_counter) :: counter
    type(telem_gauge) :: gauge
    integer :: i

    counter = telem_counter_open("adds")
    gauge = telem_gauge_open("own")
    !$omp parallel do
    do i = 1, 4000
      call telem_add(counter, 3)
      call telem_set_at(gauge, i, t + i)
    end do
    !$omp end parallel do
    ! The end of the program sends it.
  end subroutine log_in_threads

  subroutine ask()
    type(telem_answer) :: answer
    type(telem_gauge) :: gauge
    real(real64) :: number
    integer :: i, stat

    gauge = telem_gauge_open("asked", tags=[character(4) :: "tag", "x"])
    do i = 1, 100
      call telem_set_at(gauge, i, t + i)
    end do
    number = -1
    call telem_sql_number("SELECT sum(value) FROM asked   ", number, patience_ms, stat)
    call must(stat == 0 .and. abs(number - 5050) <= 0, "telem_sql_number")
    call telem_sql_number("SELECT value FROM asked WHERE FALSE", number, patience_ms, stat)
    call must(stat == -1 .and. abs(number - 5050) <= 0, "a number of no row")

    call telem_sql("SELECT ts, value_int AS n, value / 8 AS eighth, tag, value_int > 50 AS above, NULL AS nothing "// &
      "FROM asked ORDER BY ts", answer, patience_ms, stat)
    call must(stat == 0 .and. size(answer%rows) == 100 .and. size(answer%columns) == 6, "telem_sql")
    call must(answer%column("eighth") == 3 .and. answer%column("none") == 0, "the number of a column")
    do i = 1, 100
      associate (values => answer%rows(i)%values)
        call must(values(1)%type == telem_time .and. values(1)%integer == t + i, "a time")
        call must(values(2)%type == telem_int .and. values(2)%integer == i, "an integer")
        call must(values(3)%type == telem_float .and. abs(values(3)%real - i/8.0_real64) <= 0, "a float")
        call must(values(4)%type == telem_text .and. values(4)%text == "x", "a text")
        call must(values(5)%type == telem_bool .and. values(5)%integer == merge(1, 0, i > 50), "a boolean")
        call must(values(6)%type == telem_null, "NULL")
      end associate
    end do
    call telem_sql("SELECT CAST(18446744073709551615 AS BIGINT UNSIGNED) AS most", answer, patience_ms, stat)
    call must(stat == 0 .and. answer%rows(1)%values(1)%integer == huge(1_int64), "a large natural number")
    call must(abs(answer%rows(1)%values(1)%real - 2.0_real64**64) <= 0, "the same as a real")
    call telem_sql("SELECT value FROM asked WHERE FALSE", answer, patience_ms, stat)
    call must(stat == 0 .and. size(answer%rows) == 0 .and. size(answer%columns) == 0, "an answer without rows")
    call telem_sql("SELECT nonsense FROM asked", answer, patience_ms, stat)
    call must(stat == -1 .and. size(answer%rows) == 0, "a wrong question")
    call must(index(telem_error(), "nonsense") > 0, "the reason of that")
    print '(a)', "asked"
  end subroutine ask

  subroutine start_with_options()
    character(4096) :: path
    type(telem_gauge) :: gauge
    integer :: stat

    call get_command_argument(2, path)
    call telem_start(socket=path, ring_samples=100, interval_ms=10, exit_ms=1000, process_tags=-1, stat=stat)
    call must(stat == 0, "telem_start")
    call telem_start(interval_ms=10, stat=stat)
    call must(stat == -1, "a second start")
    gauge = telem_gauge_open("options")
    call telem_set(gauge, 7)
    call flush_all()
    call print_counts()
    call telem_stop(patience_ms)
    call telem_set(gauge, 8)
  end subroutine start_with_options

  subroutine log_without_a_service()
    type(telem_gauge) :: gauge
    type(telem_answer) :: answer
    real(real64) :: number
    integer :: i, stat

    gauge = telem_gauge_open("unserved")
    do i = 1, 1000
      call telem_set(gauge, i)
    end do
    call must(telem_connected() == -1, "telem_connected")
    call must(telem_level() == -1, "telem_level")
    call telem_flush(10, stat)
    call must(stat == -1, "telem_flush without a service")
    call telem_flush()
    number = 1
    call telem_sql_number("SELECT 1", number, stat=stat)
    call must(stat == -1 .and. abs(number - 1) <= 0, "telem_sql_number without a service")
    call must(index(telem_error(), "no service is named") > 0, "its reason")
    call telem_sql("SELECT 1", answer, stat=stat)
    call must(stat == -1 .and. size(answer%rows) == 0, "telem_sql without a service")
    call print_counts()
    call telem_stop()
  end subroutine log_without_a_service

  !> Prints nanoseconds of one telem_set and one telem_add, below the room of the ring.
  subroutine measure_cost()
    integer, parameter :: count = 50000
    type(telem_gauge) :: gauge
    type(telem_counter) :: counter
    integer(int64) :: begin, middle, end, rate
    integer :: i, round

    gauge = telem_gauge_open("cost")
    counter = telem_counter_open("cost_total")
    do round = 1, 9
      call system_clock(begin, rate)
      do i = 1, count
        call telem_set(gauge, real(i, real64))
      end do
      call system_clock(middle)
      do i = 1, count
        call telem_add(counter)
      end do
      call system_clock(end)
      print '(f8.1, f8.1)', 1.0e9_real64*real(middle - begin, real64)/real(rate, real64)/count, &
        1.0e9_real64*real(end - middle, real64)/real(rate, real64)/count
      call flush_all()
    end do
  end subroutine measure_cost
end program scenario
