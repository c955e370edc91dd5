//! A command under telem, from its start to its saved samples.
//!
//! The job comes first. There are two processes, so that no failure of the one that records reaches the other, which is
//! the command's parent. Read [`supervisor`], then [`recorder`], then [`link`], the messages between them.

pub mod child;
mod command;
pub(crate) mod company;
pub mod describe;
pub(crate) mod exporters;
mod link;
pub mod member;
pub mod mpi_profile;
pub mod notes;
mod prepared;
pub mod recorder;
pub(crate) mod reverse;
mod service;
pub mod signals;
mod summary;
pub mod supervisor;
pub(crate) mod usage;
mod witness;

use std::time::Duration;

pub use self::prepared::{Places, Preparation, PreparedJob, RunningService};
pub use self::recorder::Event;

/// Longest that the service may take to stop and close its database when the command has ended.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// The same for everything after the end of the command, once telem was told to end.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(4_500);

/// How a user at home reaches a service on a compute node.
pub fn tunnel(url: &str, host: &str) -> String {
    let address = url.trim_start_matches("http://");
    let port = address.rsplit(':').next().unwrap_or(address);
    format!("ssh command: ssh -NL localhost:{port}:localhost:{port} {host}")
}

#[cfg(test)]
mod tests;
