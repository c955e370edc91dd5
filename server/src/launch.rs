//! Where a job runs and who records it there: hosts, agents, heads.
//!
//! Pure parts first: [`hostlist`] reads lists of hosts, [`scheduler`] what schedulers say about a job.

#[cfg(test)]
pub mod fuzzing;
pub mod hostlist;
pub mod scheduler;
