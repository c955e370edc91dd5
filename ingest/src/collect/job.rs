//! The processes of the job: at level 3, at every tick, from the first tick that finds a process.
//!
//! The one idea: CPU time is counted once. While a process exists, its time is counted in a series of its own or, for
//! the many and the short-lived, in the series of its command. After its end, the time that no tick saw is part of what
//! its parent reaped. So the sum of `job_process_cpu_seconds_total` is the CPU time of the job, except for processes
//! that no parent waited for.
//!
//! [`members`] knows which processes belong to the job, [`reaped`] what parents reaped, and [`series`] which series
//! report it.

mod marks;
pub(crate) mod members;
mod own_series;
mod reaped;
pub(crate) mod series;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use telem_engine::Timestamp;

use self::members::{JobMembers, Listing};
use self::reaped::Reaper;
use self::series::JobSeries;
use super::processes::{WALK_INTERVAL, parse_page_bytes, parse_stat, read};
use super::series::Out;
use super::source::Tree;
use super::subject::Subject;
use crate::schedule::first_of;

/// Most processes that are read at every tick; while there are more they are read every [`WALK_INTERVAL`].
pub const JOB_EVERY_TICK_MAX: usize = 1_000;

/// The job whose processes are followed. Clones share one state: the command is set once it runs.
#[derive(Clone, Debug)]
pub struct JobTarget {
    /// The value of TELEM_JOB.
    id: String,
    source: JobSource,
}

#[derive(Clone, Debug)]
enum JobSource {
    /// A command that this telem started.
    Command { supervisor: SupervisorUse, command: Arc<OnceLock<JobCommand>> },
    /// Whatever of the job runs on this node.
    Node,
}

/// The parent of the command.
#[derive(Clone, Copy, Debug)]
struct SupervisorUse {
    pid: u32,
    /// Ticks of CPU of what it had reaped before the command began.
    reaped_before: u64,
}

/// The process that was started as the command of the job.
#[derive(Clone, Debug)]
pub struct JobCommand {
    pid: u32,
    comm: String,
    /// `None` of one that was gone at once: then another has its number.
    started: Option<u64>,
}

impl JobTarget {
    /// A job whose command will be started by the process `supervisor`.
    pub fn of_command(id: &str, supervisor: u32) -> Self {
        Self::of_command_in(Path::new("/"), id, supervisor)
    }

    fn of_command_in(root: &Path, id: &str, supervisor: u32) -> Self {
        let stat = Tree::new(root).path(format!("proc/{supervisor}/stat"));
        let reaped_before = read(&stat, &mut Vec::new()).and_then(parse_stat).map_or(0, |stat| stat.reaped_ticks);
        let supervisor = SupervisorUse { pid: supervisor, reaped_before };
        Self { id: id.to_owned(), source: JobSource::Command { supervisor, command: Arc::default() } }
    }

    /// A job some of whose processes run on this node, started by others.
    pub fn of_node(id: &str) -> Self {
        Self { id: id.to_owned(), source: JobSource::Node }
    }

    /// The command runs.
    pub fn begin(&self, pid: u32) {
        self.begin_in(Path::new("/"), pid);
    }

    fn begin_in(&self, root: &Path, pid: u32) {
        let JobSource::Command { command, .. } = &self.source else { return };
        let stat = read(&Tree::new(root).path(format!("proc/{pid}/stat")), &mut Vec::new()).and_then(parse_stat);
        let started = stat.as_ref().map(|stat| stat.started);
        let comm = stat.map_or_else(|| "command".to_owned(), |stat| stat.comm);
        // It begins once.
        let _ = command.set(JobCommand { pid, comm, started });
    }

    fn supervisor(&self) -> Option<SupervisorUse> {
        match &self.source {
            JobSource::Command { supervisor, .. } => Some(*supervisor),
            JobSource::Node => None,
        }
    }

    fn has_command(&self) -> bool {
        matches!(self.source, JobSource::Command { .. })
    }

    fn command(&self) -> Option<&JobCommand> {
        match &self.source {
            JobSource::Command { command, .. } => command.get(),
            JobSource::Node => None,
        }
    }

    /// Whether there can be no process yet.
    fn is_awaited(&self) -> bool {
        self.has_command() && self.command().is_none()
    }
}

/// A reading of the job: when, and when the one before was.
#[derive(Clone, Copy, Debug)]
pub struct JobReading {
    time: Timestamp,
    before: Option<Timestamp>,
}

#[derive(Debug)]
pub struct JobProcesses {
    target: JobTarget,
    members: JobMembers,
    /// What the supervisor reaped: the command and what that left to it.
    supervisor: Reaper,
    series: JobSeries,
    walked: Option<Timestamp>,
    /// Used again by every walk.
    listing: Listing,
}

impl JobProcesses {
    pub fn new(tree: &Tree, uid: u32, target: JobTarget) -> Self {
        let page_bytes = read(&tree.path("proc/self/auxv"), &mut Vec::new()).and_then(parse_page_bytes);
        Self {
            supervisor: Reaper::since(target.supervisor().map_or(0, |supervisor| supervisor.reaped_before)),
            members: JobMembers::new(tree, uid, &target),
            series: JobSeries::new(page_bytes.unwrap_or(4_096)),
            target,
            walked: None,
            listing: Listing::default(),
        }
    }

    /// Books what ended and what was reaped since the walk before.
    fn settle(&mut self) {
        let supervisor = self.target.supervisor().map(|supervisor| supervisor.pid);
        for ended in self.members.take_ended() {
            self.series.note_end(&ended);
            let reaper = match ended.reaper {
                Some(pid) if Some(pid) == supervisor => Some(&mut self.supervisor),
                Some(pid) => self.members.reaper_mut(pid),
                None => None,
            };
            if let Some(reaper) = reaper {
                reaper.owes(ended.counted_ticks, ended.is_direct.then_some(&ended.name));
            }
        }
        if let Some(command) = self.target.command() {
            let share = self.supervisor.settle();
            self.series.count_reaped(share, || (command.comm.clone(), None));
        }
        for process in self.members.iter_mut() {
            let share = process.reaper.settle();
            self.series.count_reaped(share, || process.name.clone());
        }
    }
}

impl Subject for JobProcesses {
    fn sample(&mut self, out: &mut Out<'_>) {
        let is_due = self.members.len() <= JOB_EVERY_TICK_MAX || first_of(WALK_INTERVAL, out.time(), self.walked);
        if !is_due {
            return;
        }
        let reading = JobReading { time: out.time(), before: self.walked.replace(out.time()) };
        if self.target.is_awaited() {
            return;
        }
        // Parents before their children: what was reaped of a child that is still there cannot be in it.
        let supervisor = self.target.supervisor().and_then(|supervisor| self.members.stat_of(supervisor.pid));
        self.members.look(reading.time, self.target.command(), &mut self.listing);
        if let Some(stat) = &supervisor {
            self.supervisor.read(stat.reaped_ticks);
        }
        self.settle();
        self.series.tell(&mut self.members, reading, out);
    }
}
