//! Finds the process that started this one and others like it, for launchers that give their launches no name.
//!
//! A shell or a script may be in between; it has the same variables of the same task. The first ancestor without them
//! is the launcher, or its daemon on this node.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use telem_engine::options::Options;

use super::scheduler::{self, Surroundings};
use super::surroundings::ThisProcess;

/// Most processes that may be between a launcher and its task.
pub(crate) const DEPTH_MAX: usize = 64;

/// A process, unlike any other of this machine since it was booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LauncherProcess {
    pid: u32,
    /// As the kernel says it of processes.
    started: u64,
}

impl fmt::Display for LauncherProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// The launcher of this process; `None` where that is not in sight, as beyond the bounds of a container.
pub fn of_this_process() -> Option<LauncherProcess> {
    let pid = launcher(std::process::id(), parent, |pid| scheduler::is_same_task(&OfProcess::read(pid), &ThisProcess))?;
    Some(LauncherProcess { pid, started: Options::default().machine.started(pid)? })
}

/// The first process above `pid` that is not of its task.
fn launcher(pid: u32, parent: impl Fn(u32) -> Option<u32>, is_of_task: impl Fn(u32) -> bool) -> Option<u32> {
    let mut pid = pid;
    for _ in 0..DEPTH_MAX {
        pid = parent(pid)?;
        if !is_of_task(pid) {
            return Some(pid);
        }
    }
    None
}

/// proc_pid_stat(5): the fourth field; the second one, in parentheses, may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
    (parent != 0).then_some(parent)
}

/// The environment that a process was started with; none where we may not read it, as of another user's.
struct OfProcess(HashMap<String, String>);

impl OfProcess {
    fn read(pid: u32) -> Self {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let pairs = environment.split(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl Surroundings for OfProcess {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }
}
