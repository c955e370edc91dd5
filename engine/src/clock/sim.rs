//! A clock that stands still until a test moves it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::Clock;
use crate::time::Timestamp;

#[derive(Debug)]
pub struct SimClock {
    wall_micros: AtomicI64,
    monotonic_micros: AtomicU64,
}

impl SimClock {
    pub fn at(now: Timestamp) -> Self {
        Self { wall_micros: AtomicI64::new(now.micros()), monotonic_micros: AtomicU64::new(0) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.monotonic_micros.fetch_add(micros, Ordering::Relaxed);
        self.wall_micros.fetch_add(i64::try_from(micros).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Sets the wall clock, forward or back; the other takes no notice.
    pub fn jump_to(&self, now: Timestamp) {
        self.wall_micros.store(now.micros(), Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall_micros.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.monotonic_micros.load(Ordering::Relaxed))
    }
}

#[test]
fn a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone() {
    let clock = SimClock::at(Timestamp::from_seconds(100));
    clock.advance(Duration::from_secs(5));
    clock.jump_to(Timestamp::from_seconds(-3));
    assert_eq!(clock.now(), Timestamp::from_seconds(-3));
    assert_eq!(clock.monotonic(), Duration::from_secs(5));
}
