//! Where a job runs and who records it there: hosts, agents, heads.
//!
//! Pure parts first: [`hostlist`] reads lists of hosts, [`scheduler`] what schedulers say about a job, [`plan`] decides
//! what one `telem run` does about it. Then what carries that out: [`agents`] are processes of their head, which [`crew`]
//! watches, and by [`task`] the processes find each other that somebody else started, with the help of [`launcher`] where
//! what started them has no name.

pub mod agents;
pub mod crew;
#[cfg(test)]
pub mod fuzzing;
pub mod hostlist;
pub mod launcher;
pub mod plan;
pub mod scheduler;
mod surroundings;
pub mod task;

use std::time::Duration;

pub use surroundings::ThisProcess;

/// Who waits for this process to be ready, as what waits for other processes sees him.
pub trait Patience {
    /// It may take so much longer from now on.
    fn ask(&self, time: Duration);
    /// Nobody waits any more.
    fn is_over(&self) -> bool;
}
