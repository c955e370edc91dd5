//! Clocks, which are always passed as arguments, so that tests decide what time it is.

#[cfg(test)]
pub(crate) mod sim;

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::time::Timestamp;

pub trait Clock: Debug + Send + Sync {
    /// The wall clock. It may jump, also backwards.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment of this process; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The clocks of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn new() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine")]
        let now = SystemTime::now();
        let micros = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
        };
        Timestamp::from_micros(micros)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}
