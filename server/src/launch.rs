//! Where a job runs, and which processes record it there: hosts, agents, heads.
//!
//! The pure parts come first: [`hostlist`] reads lists of hosts, [`scheduler`] reads what schedulers say about a job,
//! and [`plan`] decides what one `telem run` does about it. The others carry that out: [`agents`] are processes of
//! their head, which [`crew`] watches. By [`task`], processes that a launcher started find each other; [`launcher`]
//! helps if their launch has no name.

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

/// The caller that waits for this process, as seen by code that waits for other processes.
pub trait Patience {
    /// It may take so much longer from now on.
    fn ask(&self, time: Duration);
    /// Nobody waits any more.
    fn is_over(&self) -> bool;
}
