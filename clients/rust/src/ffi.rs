//! The C library, `telem.h`, behind safe functions: all unsafe code of this crate.

#![allow(unsafe_code, reason = "functions of C are called; nothing outside of this module needs it")]

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_void};
use std::ptr;

use crate::options::ClientOptions;
use crate::session::Counts;
use crate::value::{Micros, Value};

/// Declares a handle of C: a pointer to what lives as long as the process, or NULL, which every function takes.
macro_rules! handle {
    ($name:ident) => {
        #[derive(Clone, Copy, Debug)]
        pub struct $name(*mut c_void);

        // SAFETY: what it points at is never freed or moved, and telem.h says that any thread may call its functions.
        unsafe impl Send for $name {}
        // SAFETY: as above; a shared reference gives no more than a copy of the pointer, which only C dereferences.
        unsafe impl Sync for $name {}

        impl $name {
            pub fn is_open(self) -> bool {
                !self.0.is_null()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(ptr::null_mut())
            }
        }
    };
}

handle!(RawGauge);
handle!(RawCounter);
handle!(RawHistogram);
handle!(RawTimer);

/// A span that has not ended, or one that has: then its timer is NULL.
#[derive(Debug)]
#[repr(C)]
pub struct RawSpan {
    timer: *mut c_void,
    begin: u64,
}

// SAFETY: it is a handle of C, which any thread may use, and a number; only `end`, which takes it alone, changes it.
unsafe impl Send for RawSpan {}
// SAFETY: a shared reference reads nothing of it.
unsafe impl Sync for RawSpan {}

#[repr(C)]
struct RawOptions {
    size: usize,
    socket: *const c_char,
    ring_samples: u32,
    interval_ms: u32,
    exit_ms: u32,
    process_tags: c_int,
}

#[derive(Default)]
#[repr(C)]
struct RawCounts {
    size: usize,
    taken: u64,
    sent: u64,
    stored: u64,
    refused: u64,
    above_level: u64,
    dropped_full: u64,
    dropped_unserved: u64,
    dropped_other: u64,
    connections: u64,
}

#[repr(C)]
struct RawAbout {
    size: usize,
    unit: *const c_char,
    help: *const c_char,
    level: c_int,
}

#[repr(C)]
struct RawValue {
    kind: c_int,
    part: RawPart,
    bytes: usize,
}

#[repr(C)]
union RawPart {
    boolean: c_int,
    integer: i64,
    natural: u64,
    real: c_double,
    text: *const c_char,
}

type RawRow = extern "C" fn(*mut c_void, usize, *const *const c_char, *const RawValue) -> c_int;

/// `telem_type`.
mod kind {
    pub const BOOL: i32 = 1;
    pub const INT: i32 = 2;
    pub const UINT: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const TEXT: i32 = 5;
    pub const TIME: i32 = 6;
}

type Texts = *const *const c_char;

// SAFETY: these are the declarations of telem.h, whose sources are compiled with this crate. What C guarantees for any
// argument is declared safe: it takes every handle that it gave, NULL included, and any number.
unsafe extern "C" {
    fn telem_start(options: *const RawOptions) -> c_int;
    pub safe fn telem_connected() -> c_int;
    pub safe fn telem_level() -> c_int;
    pub safe fn telem_flush(timeout_ms: u32) -> c_int;
    pub safe fn telem_stop(timeout_ms: u32);
    fn telem_stats(counts: *mut RawCounts);
    safe fn telem_error() -> *const c_char;
    fn telem_gauge_open_about(metric: *const c_char, tags: Texts, about: *const RawAbout) -> *mut c_void;
    fn telem_counter_open_about(metric: *const c_char, tags: Texts, about: *const RawAbout) -> *mut c_void;
    fn telem_timer_open_about(metric: *const c_char, tags: Texts, about: *const RawAbout) -> *mut c_void;
    fn telem_histogram_open_about(
        metric: *const c_char,
        tags: Texts,
        bounds: *const c_double,
        count: usize,
        about: *const RawAbout,
    ) -> *mut c_void;
    fn telem_set(gauge: *mut c_void, value: c_double);
    fn telem_set_int(gauge: *mut c_void, value: i64);
    fn telem_set_at(gauge: *mut c_void, value: c_double, time: i64);
    fn telem_set_int_at(gauge: *mut c_void, value: i64, time: i64);
    fn telem_set_step(gauge: *mut c_void, value: c_double, step: i64, time: i64);
    fn telem_set_int_step(gauge: *mut c_void, value: i64, step: i64, time: i64);
    fn telem_add(counter: *mut c_void, increment: u64);
    fn telem_total(counter: *const c_void) -> u64;
    fn telem_observe(histogram: *mut c_void, value: c_double);
    fn telem_begin(timer: *mut c_void) -> RawSpan;
    fn telem_end(span: *mut RawSpan) -> c_double;
    fn telem_note(title: *const c_char, more: *const c_char) -> c_int;
    fn telem_setting(name: *const c_char, value: *const c_char) -> c_int;
    fn telem_sql_rows(sql: *const c_char, timeout_ms: u32, row: RawRow, context: *mut c_void) -> i64;
    fn telem_sql_number(sql: *const c_char, timeout_ms: u32, number: *mut c_double) -> c_int;
}

pub use telem_connected as connected;
pub use telem_flush as flush;
pub use telem_level as level;
pub use telem_stop as stop;

/// Why the last call of this thread failed, or what the service refused last.
pub fn reason() -> String {
    let text = telem_error();
    // SAFETY: telem_error never gives NULL, its text ends with a zero and holds until the next call of this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub fn start(options: &ClientOptions, socket: Option<&CStr>) -> c_int {
    let raw = RawOptions {
        size: size_of::<RawOptions>(),
        socket: socket.map_or(ptr::null(), CStr::as_ptr),
        ring_samples: options.ring_samples,
        interval_ms: options.interval_ms,
        exit_ms: options.exit_ms,
        process_tags: options.process_tags,
    };
    // SAFETY: the options and their text live during the call, which copies what it keeps.
    unsafe { telem_start(&raw) }
}

pub fn counts() -> Counts {
    let mut raw = RawCounts { size: size_of::<RawCounts>(), ..RawCounts::default() };
    // SAFETY: the counts are a place of the size that they state.
    unsafe { telem_stats(&mut raw) };
    Counts {
        taken: raw.taken,
        sent: raw.sent,
        stored: raw.stored,
        refused: raw.refused,
        above_level: raw.above_level,
        dropped_full: raw.dropped_full,
        dropped_unserved: raw.dropped_unserved,
        dropped_other: raw.dropped_other,
        connections: raw.connections,
    }
}

/// What C is told of a metric.
pub struct Opening {
    pub metric: CString,
    /// Keys and values by turns.
    pub tags: Vec<CString>,
    pub unit: Option<CString>,
    pub help: Option<CString>,
    pub level: c_int,
}

impl Opening {
    /// Calls `open` with name, tags and the rest as C takes them.
    fn with(&self, open: impl FnOnce(*const c_char, Texts, *const RawAbout) -> *mut c_void) -> *mut c_void {
        let text = |text: &Option<CString>| text.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let about =
            RawAbout { size: size_of::<RawAbout>(), unit: text(&self.unit), help: text(&self.help), level: self.level };
        let tags: Vec<*const c_char> = self.tags.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        open(self.metric.as_ptr(), tags.as_ptr(), &about)
    }

    pub fn gauge(&self) -> RawGauge {
        // SAFETY: all texts end with a zero, the tags with NULL, and they live during the call, which copies them.
        RawGauge(self.with(|metric, tags, about| unsafe { telem_gauge_open_about(metric, tags, about) }))
    }

    pub fn counter(&self) -> RawCounter {
        // SAFETY: as for a gauge.
        RawCounter(self.with(|metric, tags, about| unsafe { telem_counter_open_about(metric, tags, about) }))
    }

    pub fn timer(&self) -> RawTimer {
        // SAFETY: as for a gauge.
        RawTimer(self.with(|metric, tags, about| unsafe { telem_timer_open_about(metric, tags, about) }))
    }

    pub fn histogram(&self, bounds: &[f64]) -> RawHistogram {
        RawHistogram(self.with(|metric, tags, about| {
            // SAFETY: as for a gauge; so many bounds are there, and the call copies them.
            unsafe { telem_histogram_open_about(metric, tags, bounds.as_ptr(), bounds.len(), about) }
        }))
    }
}

impl RawGauge {
    pub fn set(self, value: f64) {
        // SAFETY: the handle is one of C's gauges, or NULL.
        unsafe { telem_set(self.0, value) }
    }

    pub fn set_int(self, value: i64) {
        // SAFETY: as above.
        unsafe { telem_set_int(self.0, value) }
    }

    pub fn set_at(self, value: f64, time: i64) {
        // SAFETY: as above.
        unsafe { telem_set_at(self.0, value, time) }
    }

    pub fn set_int_at(self, value: i64, time: i64) {
        // SAFETY: as above.
        unsafe { telem_set_int_at(self.0, value, time) }
    }

    /// `time` 0 is now.
    pub fn set_step(self, value: f64, step: i64, time: i64) {
        // SAFETY: as above.
        unsafe { telem_set_step(self.0, value, step, time) }
    }

    pub fn set_int_step(self, value: i64, step: i64, time: i64) {
        // SAFETY: as above.
        unsafe { telem_set_int_step(self.0, value, step, time) }
    }
}

impl RawCounter {
    pub fn add(self, increment: u64) {
        // SAFETY: the handle is one of C's counters, or NULL.
        unsafe { telem_add(self.0, increment) }
    }

    pub fn total(self) -> u64 {
        // SAFETY: as above.
        unsafe { telem_total(self.0) }
    }
}

impl RawHistogram {
    pub fn observe(self, value: f64) {
        // SAFETY: the handle is one of C's histograms, or NULL.
        unsafe { telem_observe(self.0, value) }
    }
}

impl RawTimer {
    pub fn begin(self) -> RawSpan {
        // SAFETY: the handle is one of C's timers, or NULL.
        unsafe { telem_begin(self.0) }
    }
}

impl RawSpan {
    /// Its seconds; 0 if it has ended.
    pub fn end(&mut self) -> f64 {
        // SAFETY: the span is one that telem_begin gave, and nobody else has it during the call.
        unsafe { telem_end(self) }
    }

    /// Ends it without a sample.
    pub fn cancel(&mut self) {
        self.timer = ptr::null_mut();
    }
}

pub fn note(title: &CStr, more: &CStr) -> c_int {
    // SAFETY: both texts end with a zero and are copied.
    unsafe { telem_note(title.as_ptr(), more.as_ptr()) }
}

pub fn setting(name: &CStr, value: &CStr) -> c_int {
    // SAFETY: both texts end with a zero and are copied.
    unsafe { telem_setting(name.as_ptr(), value.as_ptr()) }
}

pub fn sql_number(question: &CStr, timeout_ms: u32) -> Option<f64> {
    let mut number = 0.0;
    // SAFETY: the text ends with a zero, and the number is a place for one.
    (unsafe { telem_sql_number(question.as_ptr(), timeout_ms, &mut number) } == 0).then_some(number)
}

/// Columns and rows so far.
#[derive(Default)]
pub struct Taken {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

/// None where there is no answer.
pub fn sql(question: &CStr, timeout_ms: u32) -> Option<Taken> {
    let mut taken = Taken::default();
    let context = ptr::from_mut(&mut taken).cast();
    // SAFETY: the text ends with a zero. C calls `take_row` with this context during the call alone, from this thread.
    let rows = unsafe { telem_sql_rows(question.as_ptr(), timeout_ms, take_row, context) };
    (rows >= 0).then_some(taken)
}

extern "C" fn take_row(
    context: *mut c_void,
    count: usize,
    columns: *const *const c_char,
    values: *const RawValue,
) -> c_int {
    if count == 0 {
        return 0;
    }
    // SAFETY: the context is the one that `sql` gave, which nobody else uses during the call; there are so many columns
    // and values, and they are valid during this call.
    let (taken, columns, values) = unsafe {
        (
            &mut *context.cast::<Taken>(),
            std::slice::from_raw_parts(columns, count),
            std::slice::from_raw_parts(values, count),
        )
    };
    if taken.columns.is_empty() {
        // SAFETY: each name is a text with a zero at its end.
        let name = |column: &*const c_char| unsafe { CStr::from_ptr(*column) }.to_string_lossy().into_owned();
        taken.columns = columns.iter().map(name).collect();
    }
    taken.rows.push(values.iter().map(RawValue::read).collect());
    0
}

impl RawValue {
    fn read(&self) -> Value {
        // SAFETY: C says in `kind` which part of the union it has set; of a text there are so many bytes.
        unsafe {
            match self.kind {
                kind::BOOL => Value::Bool(self.part.boolean != 0),
                kind::INT => Value::Int(self.part.integer),
                kind::UINT => Value::UInt(self.part.natural),
                kind::FLOAT => Value::Float(self.part.real),
                kind::TEXT => {
                    let bytes = std::slice::from_raw_parts(self.part.text.cast::<u8>(), self.bytes);
                    Value::Text(String::from_utf8_lossy(bytes).into_owned())
                }
                kind::TIME => Value::Time(Micros(self.part.integer)),
                _ => Value::Null,
            }
        }
    }
}
