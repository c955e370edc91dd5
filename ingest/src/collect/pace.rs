//! What is done less often than at every tick: a question to a device, a walk, a search.
//!
//! The one idea: turns are the first ticks of multiples of the interval, so they are the same on all nodes. The last
//! tick of what is recorded is a turn too: a counter that is not read then loses the end of a short job.

use std::time::Duration;

use telem_engine::Timestamp;

use super::series::Out;
use crate::schedule::first_of;

/// A shortest interval, and when its last turn was.
#[derive(Clone, Debug)]
pub struct Pace {
    every: Duration,
    last: Option<Timestamp>,
}

impl Pace {
    /// At every tick where `every` is zero.
    pub fn every(every: Duration) -> Self {
        Self { every, last: None }
    }

    /// Whether this tick has a turn, which is taken by that.
    pub fn is_due(&mut self, out: &Out<'_>) -> bool {
        let due = first_of(self.every, out.time(), self.last) || (out.is_last() && self.last != Some(out.time()));
        self.take(due, out.time())
    }

    /// As [`Pace::is_due`], for what is not worth doing at the end.
    pub fn is_due_at(&mut self, time: Timestamp) -> bool {
        let due = first_of(self.every, time, self.last);
        self.take(due, time)
    }

    fn take(&mut self, due: bool, time: Timestamp) -> bool {
        if due {
            self.last = Some(time);
        }
        due
    }
}
