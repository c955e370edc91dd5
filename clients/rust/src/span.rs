//! Timers, and spans that end with their scope.

use std::time::Duration;

use crate::ffi::{RawSpan, RawTimer};
use crate::metric::{Metric, Tags};

/// Each span that ends is a sample, its seconds at the time of its end.
///
/// ```
/// use telem_client::Timer;
///
/// let solve = Timer::new("solve_seconds");
/// {
///     let _span = solve.span();
///     // what is measured; the span ends here
/// }
/// let sum: u64 = solve.measure(|| (0..1000).sum());
/// let took = solve.span().end();
/// # assert_eq!(sum, 499_500);
/// # assert!(took < std::time::Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer {
    pub(crate) raw: RawTimer,
}

impl Timer {
    /// Without tags; see [`Metric`] for more. One that cannot be opened does nothing.
    pub fn new(name: &str) -> Self {
        Metric::new(name).timer().unwrap_or_default()
    }

    /// With tags.
    pub fn tagged(name: &str, tags: &Tags) -> Self {
        Metric::new(name).tags(tags).timer().unwrap_or_default()
    }

    /// Whether it is of a metric.
    pub fn is_open(&self) -> bool {
        self.raw.is_open()
    }

    /// Begins a span.
    #[inline]
    pub fn span(&self) -> Span {
        Span { raw: self.raw.begin() }
    }

    /// Does `work` in a span, which also ends if `work` panics.
    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let _span = self.span();
        work()
    }
}

/// From [`Timer::span`] to the end of its scope, on whatever thread that is.
#[derive(Debug)]
#[must_use = "it ends when it is dropped; bind it to a name such as `_span`"]
pub struct Span {
    raw: RawSpan,
}

impl Span {
    /// Ends it now; what it took, or zero of a timer that is not open.
    pub fn end(mut self) -> Duration {
        Duration::try_from_secs_f64(self.raw.end()).unwrap_or_default()
    }

    /// Ends it without a sample.
    pub fn cancel(mut self) {
        self.raw.cancel();
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        self.raw.end();
    }
}
