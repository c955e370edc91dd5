!> Metrics of a Fortran program, to the telem service of its job: telem.h of ../c for Fortran 2008.
!>
!>     use telem
!>     type(telem_gauge) :: residual
!>     residual = telem_gauge_open("residual", tags=[character(8) :: "solver", "cg"])
!>     call telem_set(residual, 1.0e-6)
!>
!> What holds for telem.h holds here. Nothing that logs stops the program or waits: a metric that could not be opened
!> does nothing, and telem_error() says why. telem_set, telem_add, telem_observe, telem_begin and telem_end neither
!> allocate, lock nor call the system, and any thread may call them. Texts lose the blanks at their end.
module telem
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_double, c_f_pointer, c_funloc, c_funptr, c_int, &
    c_int32_t, c_int64_t, c_loc, c_null_char, c_null_ptr, c_ptr, c_size_t, c_sizeof
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  implicit none
  private

  public :: telem_start, telem_connected, telem_level, telem_flush, telem_stop, telem_stats, telem_error
  public :: telem_gauge_open, telem_counter_open, telem_histogram_open, telem_timer_open, telem_is_open
  public :: telem_set, telem_set_at, telem_set_step, telem_add, telem_total, telem_observe, telem_begin, telem_end
  public :: telem_note, telem_setting, telem_sql, telem_sql_number

  !> Each value that is set is a sample.
  type, public :: telem_gauge
    private
    type(c_ptr) :: handle = c_null_ptr
  end type telem_gauge

  !> A total of this process, exact whatever threads add to it.
  type, public :: telem_counter
    private
    type(c_ptr) :: handle = c_null_ptr
  end type telem_counter

  !> Counts of observations by fixed bounds.
  type, public :: telem_histogram
    private
    type(c_ptr) :: handle = c_null_ptr
  end type telem_histogram

  !> Each span that ends is a sample, its seconds.
  type, public :: telem_timer
    private
    type(c_ptr) :: handle = c_null_ptr
  end type telem_timer

  !> From telem_begin to telem_end.
  type, bind(c), public :: telem_span
    private
    type(c_ptr) :: timer = c_null_ptr
    integer(c_int64_t) :: begin = 0
  end type telem_span

  !> What became of the samples of this process. At rest, taken = stored + refused + above_level + dropped_*.
  type, public :: telem_counts
    integer(int64) :: taken = 0             !< given to the library
    integer(int64) :: sent = 0              !< handed to the socket
    integer(int64) :: stored = 0            !< the service has them
    integer(int64) :: refused = 0           !< the service has refused them, with a reason
    integer(int64) :: above_level = 0       !< of a level that the job does not keep
    integer(int64) :: dropped_full = 0      !< a ring or the queue of unsent batches had no room
    integer(int64) :: dropped_unserved = 0  !< no service was named, or it was away for too long
    integer(int64) :: dropped_other = 0     !< anything else, such as a time before 1970
    integer(int64) :: connections = 0       !< how often a service was connected
  end type telem_counts

  !> What a value of an answer is.
  integer, parameter, public :: telem_null = 0, telem_bool = 1, telem_int = 2, telem_uint = 3, telem_float = 4, &
    telem_text = 5, telem_time = 6

  !> A value of an answer. A number is in `integer` and in `real`, whichever of both it is; of telem_bool `integer` is 1
  !> or 0, of telem_time the microseconds since 1970. A natural number beyond 63 bits is huge(integer), and right in
  !> `real`.
  type, public :: telem_value
    integer :: type = telem_null
    integer(int64) :: integer = 0
    real(real64) :: real = 0
    character(:), allocatable :: text
  end type telem_value

  !> The values of a row, in the order of the columns.
  type, public :: telem_row
    type(telem_value), allocatable :: values(:)
  end type telem_row

  !> The name of a column.
  type, public :: telem_column
    character(:), allocatable :: name
  end type telem_column

  !> The answer to a question in SQL. One without rows has no columns either.
  type, public :: telem_answer
    type(telem_column), allocatable :: columns(:)
    type(telem_row), allocatable :: rows(:)
  contains
    procedure :: column => column_of
  end type telem_answer

  !> call telem_set(gauge, value): now.
  interface telem_set
    module procedure set_real32, set_real64, set_int32, set_int64
  end interface telem_set

  !> call telem_set_at(gauge, value, time): `time` in microseconds since 1970.
  interface telem_set_at
    module procedure set_real32_at, set_real64_at, set_int32_at, set_int64_at
  end interface telem_set_at

  !> call telem_set_step(gauge, value, step [, time]): with the step of the program that it belongs to.
  interface telem_set_step
    module procedure set_real32_step32, set_real64_step32, set_int32_step32, set_int64_step32
    module procedure set_real32_step64, set_real64_step64, set_int32_step64, set_int64_step64
  end interface telem_set_step

  !> call telem_add(counter [, increment]): an increment below 0 does nothing.
  interface telem_add
    module procedure add_one, add_int32, add_int64
  end interface telem_add

  !> call telem_observe(histogram, value)
  interface telem_observe
    module procedure observe_real32, observe_real64, observe_int32, observe_int64
  end interface telem_observe

  !> Whether a metric could be opened; telem_error() says why not.
  interface telem_is_open
    module procedure is_open_gauge, is_open_counter, is_open_histogram, is_open_timer
  end interface telem_is_open

  type, bind(c) :: c_options
    integer(c_size_t) :: size
    type(c_ptr) :: socket
    integer(c_int32_t) :: ring_samples, interval_ms, exit_ms
    integer(c_int) :: process_tags
  end type c_options

  type, bind(c) :: c_counts
    integer(c_size_t) :: size
    integer(c_int64_t) :: taken, sent, stored, refused, above_level, dropped_full, dropped_unserved, dropped_other, &
      connections
  end type c_counts

  type, bind(c) :: c_about
    integer(c_size_t) :: size
    type(c_ptr) :: unit, help
    integer(c_int) :: level
  end type c_about

  !> Of the union the eight bytes of its largest parts.
  type, bind(c) :: c_value
    integer(c_int) :: type
    integer(c_int64_t) :: bits
    integer(c_size_t) :: bytes
  end type c_value

  !> What C is told of a metric: texts with a zero behind each, and where they are.
  type :: told_metric
    character(kind=c_char), pointer :: bytes(:) => null()
    type(c_ptr), pointer :: tags(:) => null()
    integer :: used = 0
    type(c_ptr) :: metric = c_null_ptr
    type(c_about) :: about
  end type told_metric

  !> Rows so far; the last ones of `rows` may be empty.
  type :: growing_answer
    integer :: used = 0
    type(telem_column), allocatable :: columns(:)
    type(telem_row), allocatable :: rows(:)
  end type growing_answer

  integer(c_int32_t), parameter :: patience_ms = 10000

  interface
    function c_telem_start(options) result(status) bind(c, name="telem_start")
      import :: c_options, c_int
      type(c_options), intent(in) :: options
      integer(c_int) :: status
    end function c_telem_start

    function c_telem_connected() result(state) bind(c, name="telem_connected")
      import :: c_int
      integer(c_int) :: state
    end function c_telem_connected

    function c_telem_level() result(level) bind(c, name="telem_level")
      import :: c_int
      integer(c_int) :: level
    end function c_telem_level

    function c_telem_flush(timeout_ms) result(status) bind(c, name="telem_flush")
      import :: c_int, c_int32_t
      integer(c_int32_t), value :: timeout_ms
      integer(c_int) :: status
    end function c_telem_flush

    subroutine c_telem_stop(timeout_ms) bind(c, name="telem_stop")
      import :: c_int32_t
      integer(c_int32_t), value :: timeout_ms
    end subroutine c_telem_stop

    subroutine c_telem_stats(counts) bind(c, name="telem_stats")
      import :: c_counts
      type(c_counts), intent(inout) :: counts
    end subroutine c_telem_stats

    function c_telem_error() result(text) bind(c, name="telem_error")
      import :: c_ptr
      type(c_ptr) :: text
    end function c_telem_error

    function c_telem_gauge_open(metric, tags, about) result(handle) bind(c, name="telem_gauge_open_about")
      import :: c_ptr, c_about
      type(c_ptr), value :: metric
      type(c_ptr), intent(in) :: tags(*)
      type(c_about), intent(in) :: about
      type(c_ptr) :: handle
    end function c_telem_gauge_open

    function c_telem_counter_open(metric, tags, about) result(handle) bind(c, name="telem_counter_open_about")
      import :: c_ptr, c_about
      type(c_ptr), value :: metric
      type(c_ptr), intent(in) :: tags(*)
      type(c_about), intent(in) :: about
      type(c_ptr) :: handle
    end function c_telem_counter_open

    function c_telem_histogram_open(metric, tags, bounds, count, about) result(handle) &
      bind(c, name="telem_histogram_open_about")
      import :: c_ptr, c_double, c_size_t, c_about
      type(c_ptr), value :: metric
      type(c_ptr), intent(in) :: tags(*)
      real(c_double), intent(in) :: bounds(*)
      integer(c_size_t), value :: count
      type(c_about), intent(in) :: about
      type(c_ptr) :: handle
    end function c_telem_histogram_open

    function c_telem_timer_open(metric, tags, about) result(handle) bind(c, name="telem_timer_open_about")
      import :: c_ptr, c_about
      type(c_ptr), value :: metric
      type(c_ptr), intent(in) :: tags(*)
      type(c_about), intent(in) :: about
      type(c_ptr) :: handle
    end function c_telem_timer_open

    subroutine c_telem_set(gauge, value) bind(c, name="telem_set")
      import :: c_ptr, c_double
      type(c_ptr), value :: gauge
      real(c_double), value :: value
    end subroutine c_telem_set

    subroutine c_telem_set_int(gauge, value) bind(c, name="telem_set_int")
      import :: c_ptr, c_int64_t
      type(c_ptr), value :: gauge
      integer(c_int64_t), value :: value
    end subroutine c_telem_set_int

    subroutine c_telem_set_at(gauge, value, time) bind(c, name="telem_set_at")
      import :: c_ptr, c_double, c_int64_t
      type(c_ptr), value :: gauge
      real(c_double), value :: value
      integer(c_int64_t), value :: time
    end subroutine c_telem_set_at

    subroutine c_telem_set_int_at(gauge, value, time) bind(c, name="telem_set_int_at")
      import :: c_ptr, c_int64_t
      type(c_ptr), value :: gauge
      integer(c_int64_t), value :: value, time
    end subroutine c_telem_set_int_at

    subroutine c_telem_set_step(gauge, value, step, time) bind(c, name="telem_set_step")
      import :: c_ptr, c_double, c_int64_t
      type(c_ptr), value :: gauge
      real(c_double), value :: value
      integer(c_int64_t), value :: step, time
    end subroutine c_telem_set_step

    subroutine c_telem_set_int_step(gauge, value, step, time) bind(c, name="telem_set_int_step")
      import :: c_ptr, c_int64_t
      type(c_ptr), value :: gauge
      integer(c_int64_t), value :: value, step, time
    end subroutine c_telem_set_int_step

    subroutine c_telem_add(counter, increment) bind(c, name="telem_add")
      import :: c_ptr, c_int64_t
      type(c_ptr), value :: counter
      integer(c_int64_t), value :: increment
    end subroutine c_telem_add

    function c_telem_total(counter) result(total) bind(c, name="telem_total")
      import :: c_ptr, c_int64_t
      type(c_ptr), value :: counter
      integer(c_int64_t) :: total
    end function c_telem_total

    subroutine c_telem_observe(histogram, value) bind(c, name="telem_observe")
      import :: c_ptr, c_double
      type(c_ptr), value :: histogram
      real(c_double), value :: value
    end subroutine c_telem_observe

    function c_telem_begin(timer) result(span) bind(c, name="telem_begin")
      import :: c_ptr, telem_span
      type(c_ptr), value :: timer
      type(telem_span) :: span
    end function c_telem_begin

    function c_telem_end(span) result(seconds) bind(c, name="telem_end")
      import :: c_double, telem_span
      type(telem_span), intent(inout) :: span
      real(c_double) :: seconds
    end function c_telem_end

    function c_telem_note(title, more) result(status) bind(c, name="telem_note")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: title(*), more(*)
      integer(c_int) :: status
    end function c_telem_note

    function c_telem_setting(name, value) result(status) bind(c, name="telem_setting")
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: name(*), value(*)
      integer(c_int) :: status
    end function c_telem_setting

    function c_telem_sql_rows(sql, timeout_ms, row, context) result(rows) bind(c, name="telem_sql_rows")
      import :: c_char, c_int32_t, c_int64_t, c_funptr, c_ptr
      character(kind=c_char), intent(in) :: sql(*)
      integer(c_int32_t), value :: timeout_ms
      type(c_funptr), value :: row
      type(c_ptr), value :: context
      integer(c_int64_t) :: rows
    end function c_telem_sql_rows

    function c_telem_sql_number(sql, timeout_ms, number) result(status) bind(c, name="telem_sql_number")
      import :: c_char, c_int32_t, c_double, c_int
      character(kind=c_char), intent(in) :: sql(*)
      integer(c_int32_t), value :: timeout_ms
      real(c_double), intent(inout) :: number
      integer(c_int) :: status
    end function c_telem_sql_number

    function c_strlen(text) result(bytes) bind(c, name="strlen")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: bytes
    end function c_strlen
  end interface

contains

  ! ---- the library ---------------------------------------------------------------------------------------------------

  !> Starts the library before its first metric is opened, where something shall be set; without this call it starts by
  !> itself. `process_tags`: 1 for `rank` and `pid` always, -1 for neither. `stat` is 0, or -1 where it runs already or
  !> something is out of its range.
  subroutine telem_start(socket, ring_samples, interval_ms, exit_ms, process_tags, stat)
    character(*), intent(in), optional :: socket
    integer, intent(in), optional :: ring_samples, interval_ms, exit_ms, process_tags
    integer, intent(out), optional :: stat
    character(kind=c_char), allocatable, target :: path(:)
    type(c_options) :: options
    integer(c_int) :: status

    options = c_options(0, c_null_ptr, 0, 0, 0, 0)
    options%size = c_sizeof(options)
    if (present(ring_samples)) options%ring_samples = int(ring_samples, c_int32_t)
    if (present(interval_ms)) options%interval_ms = int(interval_ms, c_int32_t)
    if (present(exit_ms)) options%exit_ms = int(exit_ms, c_int32_t)
    if (present(process_tags)) options%process_tags = int(process_tags, c_int)
    if (present(socket)) then
      path = characters(trim(socket)//c_null_char)
      options%socket = c_loc(path(1))
    end if
    status = c_telem_start(options)
    if (present(stat)) stat = int(status)
  end subroutine telem_start

  !> 1 if a service is connected, 0 if it is looked for, -1 if none is named or the level is 0.
  integer function telem_connected()
    telem_connected = int(c_telem_connected())
  end function telem_connected

  !> The level of the job, as the service said; -1 while nothing is known.
  integer function telem_level()
    telem_level = int(c_telem_level())
  end function telem_level

  !> Waits until everything that was taken before this call is stored by the service. `stat` is 0, or -1 if that took
  !> longer than `timeout_ms` (10,000 where it is absent), or if there is no service.
  subroutine telem_flush(timeout_ms, stat)
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    integer(c_int) :: status

    status = c_telem_flush(patience(timeout_ms))
    if (present(stat)) stat = int(status)
  end subroutine telem_flush

  !> Flushes, hangs up and ends the thread of the library. A program that ends by `end program` or `stop` does so by
  !> itself.
  subroutine telem_stop(timeout_ms)
    integer, intent(in), optional :: timeout_ms

    call c_telem_stop(patience(timeout_ms))
  end subroutine telem_stop

  function telem_stats() result(counts)
    type(telem_counts) :: counts
    type(c_counts) :: given

    given = c_counts(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    given%size = c_sizeof(given)
    call c_telem_stats(given)
    counts = telem_counts(taken=given%taken, sent=given%sent, stored=given%stored, refused=given%refused, &
      above_level=given%above_level, dropped_full=given%dropped_full, dropped_unserved=given%dropped_unserved, &
      dropped_other=given%dropped_other, connections=given%connections)
  end function telem_stats

  !> Why the last call of this thread failed, or the last refusal of the service.
  function telem_error() result(text)
    character(:), allocatable :: text

    text = text_at(c_telem_error())
  end function telem_error

  ! ---- metrics -------------------------------------------------------------------------------------------------------

  ! `tags` are keys and values by turns. Opening the same metric with the same tags again gives the same one. `level` is
  ! the lowest level of a job that keeps it, 1 to 4.

  function telem_gauge_open(metric, tags, unit, help, level) result(gauge)
    character(*), intent(in) :: metric
    character(*), intent(in), optional :: tags(:), unit, help
    integer, intent(in), optional :: level
    type(telem_gauge) :: gauge
    type(told_metric) :: told

    call tell(told, metric, "", tags, unit, help, level)
    gauge%handle = c_telem_gauge_open(told%metric, told%tags, told%about)
    call forget(told)
  end function telem_gauge_open

  function telem_counter_open(metric, tags, unit, help, level) result(counter)
    character(*), intent(in) :: metric
    character(*), intent(in), optional :: tags(:), unit, help
    integer, intent(in), optional :: level
    type(telem_counter) :: counter
    type(told_metric) :: told

    call tell(told, metric, "", tags, unit, help, level)
    counter%handle = c_telem_counter_open(told%metric, told%tags, told%about)
    call forget(told)
  end function telem_counter_open

  !> `bounds` are the upper bounds of the buckets, included, in rising order; the last bucket has none.
  function telem_histogram_open(metric, bounds, tags, unit, help, level) result(histogram)
    character(*), intent(in) :: metric
    real(real64), intent(in) :: bounds(:)
    character(*), intent(in), optional :: tags(:), unit, help
    integer, intent(in), optional :: level
    type(telem_histogram) :: histogram
    type(told_metric) :: told

    call tell(told, metric, "", tags, unit, help, level)
    histogram%handle = c_telem_histogram_open(told%metric, told%tags, bounds, size(bounds, kind=c_size_t), told%about)
    call forget(told)
  end function telem_histogram_open

  function telem_timer_open(metric, tags, unit, help, level) result(timer)
    character(*), intent(in) :: metric
    character(*), intent(in), optional :: tags(:), unit, help
    integer, intent(in), optional :: level
    type(telem_timer) :: timer
    type(told_metric) :: told

    call tell(told, metric, "s", tags, unit, help, level)
    timer%handle = c_telem_timer_open(told%metric, told%tags, told%about)
    call forget(told)
  end function telem_timer_open

  logical function is_open_gauge(metric)
    type(telem_gauge), intent(in) :: metric
    is_open_gauge = c_associated(metric%handle)
  end function is_open_gauge

  logical function is_open_counter(metric)
    type(telem_counter), intent(in) :: metric
    is_open_counter = c_associated(metric%handle)
  end function is_open_counter

  logical function is_open_histogram(metric)
    type(telem_histogram), intent(in) :: metric
    is_open_histogram = c_associated(metric%handle)
  end function is_open_histogram

  logical function is_open_timer(metric)
    type(telem_timer), intent(in) :: metric
    is_open_timer = c_associated(metric%handle)
  end function is_open_timer

  subroutine set_real32(gauge, value)
    type(telem_gauge), intent(in) :: gauge
    real(real32), intent(in) :: value
    call c_telem_set(gauge%handle, real(value, c_double))
  end subroutine set_real32

  subroutine set_real64(gauge, value)
    type(telem_gauge), intent(in) :: gauge
    real(real64), intent(in) :: value
    call c_telem_set(gauge%handle, value)
  end subroutine set_real64

  subroutine set_int32(gauge, value)
    type(telem_gauge), intent(in) :: gauge
    integer(int32), intent(in) :: value
    call c_telem_set_int(gauge%handle, int(value, c_int64_t))
  end subroutine set_int32

  subroutine set_int64(gauge, value)
    type(telem_gauge), intent(in) :: gauge
    integer(int64), intent(in) :: value
    call c_telem_set_int(gauge%handle, value)
  end subroutine set_int64

  subroutine set_real32_at(gauge, value, time)
    type(telem_gauge), intent(in) :: gauge
    real(real32), intent(in) :: value
    integer(int64), intent(in) :: time
    call c_telem_set_at(gauge%handle, real(value, c_double), time)
  end subroutine set_real32_at

  subroutine set_real64_at(gauge, value, time)
    type(telem_gauge), intent(in) :: gauge
    real(real64), intent(in) :: value
    integer(int64), intent(in) :: time
    call c_telem_set_at(gauge%handle, value, time)
  end subroutine set_real64_at

  subroutine set_int32_at(gauge, value, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int32), intent(in) :: value
    integer(int64), intent(in) :: time
    call c_telem_set_int_at(gauge%handle, int(value, c_int64_t), time)
  end subroutine set_int32_at

  subroutine set_int64_at(gauge, value, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int64), intent(in) :: value
    integer(int64), intent(in) :: time
    call c_telem_set_int_at(gauge%handle, value, time)
  end subroutine set_int64_at

  subroutine set_real32_step32(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    real(real32), intent(in) :: value
    integer(int32), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_step(gauge%handle, real(value, c_double), int(step, c_int64_t), time_or_now(time))
  end subroutine set_real32_step32

  subroutine set_real64_step32(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    real(real64), intent(in) :: value
    integer(int32), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_step(gauge%handle, value, int(step, c_int64_t), time_or_now(time))
  end subroutine set_real64_step32

  subroutine set_int32_step32(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int32), intent(in) :: value, step
    integer(int64), intent(in), optional :: time
    call c_telem_set_int_step(gauge%handle, int(value, c_int64_t), int(step, c_int64_t), time_or_now(time))
  end subroutine set_int32_step32

  subroutine set_int64_step32(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int64), intent(in) :: value
    integer(int32), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_int_step(gauge%handle, value, int(step, c_int64_t), time_or_now(time))
  end subroutine set_int64_step32

  subroutine set_real32_step64(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    real(real32), intent(in) :: value
    integer(int64), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_step(gauge%handle, real(value, c_double), step, time_or_now(time))
  end subroutine set_real32_step64

  subroutine set_real64_step64(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    real(real64), intent(in) :: value
    integer(int64), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_step(gauge%handle, value, step, time_or_now(time))
  end subroutine set_real64_step64

  subroutine set_int32_step64(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int32), intent(in) :: value
    integer(int64), intent(in) :: step
    integer(int64), intent(in), optional :: time
    call c_telem_set_int_step(gauge%handle, int(value, c_int64_t), step, time_or_now(time))
  end subroutine set_int32_step64

  subroutine set_int64_step64(gauge, value, step, time)
    type(telem_gauge), intent(in) :: gauge
    integer(int64), intent(in) :: value, step
    integer(int64), intent(in), optional :: time
    call c_telem_set_int_step(gauge%handle, value, step, time_or_now(time))
  end subroutine set_int64_step64

  subroutine add_one(counter)
    type(telem_counter), intent(in) :: counter
    call c_telem_add(counter%handle, 1_c_int64_t)
  end subroutine add_one

  subroutine add_int32(counter, increment)
    type(telem_counter), intent(in) :: counter
    integer(int32), intent(in) :: increment
    if (increment > 0) call c_telem_add(counter%handle, int(increment, c_int64_t))
  end subroutine add_int32

  subroutine add_int64(counter, increment)
    type(telem_counter), intent(in) :: counter
    integer(int64), intent(in) :: increment
    if (increment > 0) call c_telem_add(counter%handle, increment)
  end subroutine add_int64

  integer(int64) function telem_total(counter)
    type(telem_counter), intent(in) :: counter
    telem_total = c_telem_total(counter%handle)
  end function telem_total

  subroutine observe_real32(histogram, value)
    type(telem_histogram), intent(in) :: histogram
    real(real32), intent(in) :: value
    call c_telem_observe(histogram%handle, real(value, c_double))
  end subroutine observe_real32

  subroutine observe_real64(histogram, value)
    type(telem_histogram), intent(in) :: histogram
    real(real64), intent(in) :: value
    call c_telem_observe(histogram%handle, value)
  end subroutine observe_real64

  subroutine observe_int32(histogram, value)
    type(telem_histogram), intent(in) :: histogram
    integer(int32), intent(in) :: value
    call c_telem_observe(histogram%handle, real(value, c_double))
  end subroutine observe_int32

  subroutine observe_int64(histogram, value)
    type(telem_histogram), intent(in) :: histogram
    integer(int64), intent(in) :: value
    call c_telem_observe(histogram%handle, real(value, c_double))
  end subroutine observe_int64

  function telem_begin(timer) result(span)
    type(telem_timer), intent(in) :: timer
    type(telem_span) :: span
    span = c_telem_begin(timer%handle)
  end function telem_begin

  !> Ends a span and gives its seconds; a second end of the same span does nothing and gives 0.
  subroutine telem_end(span, seconds)
    type(telem_span), intent(inout) :: span
    real(real64), intent(out), optional :: seconds
    real(c_double) :: passed
    passed = c_telem_end(span)
    if (present(seconds)) seconds = passed
  end subroutine telem_end

  ! ---- texts ---------------------------------------------------------------------------------------------------------

  !> An annotation at this moment: seen in Grafana, SQL and exports. `stat` is -1 where there is no room.
  subroutine telem_note(title, more, stat)
    character(*), intent(in) :: title
    character(*), intent(in), optional :: more
    integer, intent(out), optional :: stat
    integer(c_int) :: status

    if (present(more)) then
      status = c_telem_note(trim(title)//c_null_char, trim(more)//c_null_char)
    else
      status = c_telem_note(trim(title)//c_null_char, c_null_char)
    end if
    if (present(stat)) stat = int(status)
  end subroutine telem_note

  !> A setting of the job, such as ("solver", "cg").
  subroutine telem_setting(name, value, stat)
    character(*), intent(in) :: name, value
    integer, intent(out), optional :: stat
    integer(c_int) :: status

    status = c_telem_setting(trim(name)//c_null_char, trim(value)//c_null_char)
    if (present(stat)) stat = int(status)
  end subroutine telem_setting

  ! ---- questions -----------------------------------------------------------------------------------------------------

  !> One number, such as the average of the last minute: the first column of the first row. `stat` is 0, or -1 if there
  !> is none within `timeout_ms` (10,000 where it is absent); then `number` stays as it is.
  subroutine telem_sql_number(sql, number, timeout_ms, stat)
    character(*), intent(in) :: sql
    real(real64), intent(inout) :: number
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    integer(c_int) :: status

    status = c_telem_sql_number(trim(sql)//c_null_char, patience(timeout_ms), number)
    if (present(stat)) stat = int(status)
  end subroutine telem_sql_number

  !> All rows of an answer. `stat` is 0, or -1 if there is none.
  subroutine telem_sql(sql, answer, timeout_ms, stat)
    character(*), intent(in) :: sql
    type(telem_answer), intent(out) :: answer
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    type(growing_answer), target :: growing
    integer(c_int64_t) :: rows
    integer :: i

    rows = c_telem_sql_rows(trim(sql)//c_null_char, patience(timeout_ms), c_funloc(take_row), c_loc(growing))
    if (rows < 0) growing%used = 0
    if (allocated(growing%columns)) call move_alloc(growing%columns, answer%columns)
    if (.not. allocated(answer%columns)) allocate (answer%columns(0))
    allocate (answer%rows(growing%used))
    do i = 1, growing%used
      call move_alloc(growing%rows(i)%values, answer%rows(i)%values)
    end do
    if (present(stat)) stat = merge(0, -1, rows >= 0)
  end subroutine telem_sql

  !> The number of the column of that name; 0 if there is none.
  integer function column_of(self, name)
    class(telem_answer), intent(in) :: self
    character(*), intent(in) :: name

    do column_of = 1, size(self%columns)
      if (self%columns(column_of)%name == name) return
    end do
    column_of = 0
  end function column_of

  function take_row(context, count, columns, values) result(ends) bind(c, name="")
    type(c_ptr), value :: context
    integer(c_size_t), value :: count
    type(c_ptr), intent(in) :: columns(*)
    type(c_value), intent(in) :: values(*)
    integer(c_int) :: ends
    type(growing_answer), pointer :: growing
    integer :: i

    call c_f_pointer(context, growing)
    if (.not. allocated(growing%columns)) then
      allocate (growing%columns(count))
      do i = 1, int(count)
        growing%columns(i)%name = text_at(columns(i))
      end do
    end if
    call make_room(growing)
    growing%used = growing%used + 1
    allocate (growing%rows(growing%used)%values(count))
    do i = 1, int(count)
      call read_value(values(i), growing%rows(growing%used)%values(i))
    end do
    ends = 0
  end function take_row

  !> For one more row. Rows move without their values.
  subroutine make_room(growing)
    type(growing_answer), intent(inout) :: growing
    type(telem_row), allocatable :: more(:)
    integer :: i

    if (.not. allocated(growing%rows)) allocate (growing%rows(16))
    if (growing%used < size(growing%rows)) return
    allocate (more(2*growing%used))
    do i = 1, growing%used
      call move_alloc(growing%rows(i)%values, more(i)%values)
    end do
    call move_alloc(more, growing%rows)
  end subroutine make_room

  subroutine read_value(from, to)
    type(c_value), intent(in) :: from
    type(telem_value), intent(inout) :: to
    character(kind=c_char), pointer :: bytes(:)

    to%type = int(from%type)
    select case (to%type)
    case (telem_bool)
      to%integer = merge(1_int64, 0_int64, from%bits /= 0)
      to%real = real(to%integer, real64)
    case (telem_int, telem_time)
      to%integer = from%bits
      to%real = real(from%bits, real64)
    case (telem_uint)
      to%integer = merge(from%bits, huge(to%integer), from%bits >= 0)
      to%real = real(from%bits, real64)
      if (from%bits < 0) to%real = to%real + 2.0_real64**64
    case (telem_float)
      to%real = transfer(from%bits, to%real)
      if (abs(to%real) < 2.0_real64**63) to%integer = int(to%real, int64)
    case (telem_text)
      call c_f_pointer(transfer(from%bits, c_null_ptr), bytes, [from%bytes])
      to%text = joined(bytes)
    end select
  end subroutine read_value

  ! ---- texts of C ----------------------------------------------------------------------------------------------------

  pure function characters(text)
    character(*), intent(in) :: text
    character(kind=c_char) :: characters(len(text))
    integer :: i

    do i = 1, len(text)
      characters(i) = text(i:i)
    end do
  end function characters

  pure function joined(bytes)
    character(kind=c_char), intent(in) :: bytes(:)
    character(size(bytes)) :: joined
    integer :: i

    do i = 1, size(bytes)
      joined(i:i) = bytes(i)
    end do
  end function joined

  function text_at(place) result(text)
    type(c_ptr), intent(in) :: place
    character(:), allocatable :: text
    character(kind=c_char), pointer :: bytes(:)

    call c_f_pointer(place, bytes, [c_strlen(place)])
    text = joined(bytes)
  end function text_at

  !> `own_unit` is that of the metric's kind.
  subroutine tell(told, metric, own_unit, tags, unit, help, level)
    type(told_metric), intent(inout) :: told
    character(*), intent(in) :: metric, own_unit
    character(*), intent(in), optional :: tags(:), unit, help
    integer, intent(in), optional :: level
    integer :: room, count, i

    room = len(metric) + len(own_unit) + 2
    count = 0
    if (present(unit)) room = room + len(unit) + 1
    if (present(help)) room = room + len(help) + 1
    if (present(tags)) then
      count = size(tags)
      room = room + count*(len(tags) + 1)
    end if
    allocate (told%bytes(room), told%tags(count + 1))
    told%about = c_about(0, c_null_ptr, c_null_ptr, 0)
    told%about%size = c_sizeof(told%about)
    call append(told, metric, told%metric)
    call append(told, own_unit, told%about%unit)
    if (present(unit)) call append(told, unit, told%about%unit)
    if (present(help)) call append(told, help, told%about%help)
    if (present(level)) told%about%level = int(level, c_int)
    do i = 1, count
      call append(told, tags(i), told%tags(i))
    end do
    told%tags(count + 1) = c_null_ptr
  end subroutine tell

  subroutine append(told, text, place)
    type(told_metric), intent(inout) :: told
    character(*), intent(in) :: text
    type(c_ptr), intent(out) :: place
    integer :: length

    length = len_trim(text)
    told%bytes(told%used + 1:told%used + length) = characters(text(:length))
    told%bytes(told%used + length + 1) = c_null_char
    place = c_loc(told%bytes(told%used + 1))
    told%used = told%used + length + 1
  end subroutine append

  subroutine forget(told)
    type(told_metric), intent(inout) :: told

    deallocate (told%bytes, told%tags)
  end subroutine forget

  pure function patience(timeout_ms) result(limit_ms)
    integer, intent(in), optional :: timeout_ms
    integer(c_int32_t) :: limit_ms

    limit_ms = patience_ms
    if (present(timeout_ms)) limit_ms = int(max(timeout_ms, 0), c_int32_t)
  end function patience

  !> C takes 0 for now; a time that is given and none is refused there as one before 1970.
  pure function time_or_now(time) result(given)
    integer(int64), intent(in), optional :: time
    integer(c_int64_t) :: given

    given = 0
    if (present(time)) given = merge(time, -1_int64, time > 0)
  end function time_or_now
end module telem
