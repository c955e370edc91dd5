//! The marks that identify a process of the job wherever it runs: its environment and the scheduler's control group.

use std::collections::HashSet;
use std::fs::read_link;
use std::path::PathBuf;

use crate::collect::cgroup::scheduler_level;
use crate::collect::processes::{parse_stat, read};
use crate::collect::source::Tree;
use crate::collect::text::lines;
use crate::rank;

/// Tells the processes of a job which telem it belongs to.
const TELEM_JOB: &str = "TELEM_JOB";
/// What schedulers call a job, in the environment of everything that they start for it.
const SCHEDULER_NAMES: [&str; 4] = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"];
/// How many processes are above us at most.
const ABOVE_MAX: usize = 64;

/// What shows that a process belongs to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The telem that started the command.
    Telem,
    /// The scheduler, whose job may be more than the command.
    Scheduler,
}

#[derive(Debug)]
pub struct Marks {
    tree: Tree,
    job: Vec<u8>,
    /// The scheduler's number of this job, from our own environment.
    scheduler: Option<(&'static str, Vec<u8>)>,
    /// The control group that the scheduler made for the job.
    cgroup: Option<String>,
    /// Another telem's processes are not the job's, though they run in it.
    program: Option<PathBuf>,
    /// Our parent, and its parents: the job is below us, or beside us.
    above: HashSet<u32>,
}

impl Marks {
    pub fn of_this_process(tree: &Tree, job: &str) -> Self {
        let mut file = Vec::new();
        let cgroup = read(&tree.path("proc/self/cgroup"), &mut file).and_then(job_cgroup);
        let known = rank::read_environment(&tree.path("proc/self/environ"), &mut file).is_ok();
        let scheduler = SCHEDULER_NAMES.into_iter().filter(|_| known).find_map(|name| {
            let value = rank::variable(&file, name).filter(|value| !value.is_empty())?;
            Some((name, value.to_vec()))
        });
        let mut above = HashSet::new();
        let mut stat = tree.path("proc/self/stat");
        while let Some(parent) = read(&stat, &mut file).and_then(parse_stat).map(|stat| stat.parent) {
            if parent == 0 || above.len() >= ABOVE_MAX || !above.insert(parent) {
                break;
            }
            stat = tree.path(format!("proc/{parent}/stat"));
        }
        let program = read_link(tree.path("proc/self/exe")).ok();
        Self { tree: tree.clone(), job: job.as_bytes().to_vec(), scheduler, cgroup, program, above }
    }

    /// What says that the process was started for this job.
    pub fn of(&self, pid: u32) -> Option<Mark> {
        if self.above.contains(&pid) {
            return None;
        }
        let program = read_link(self.tree.path(format!("proc/{pid}/exe"))).ok();
        if program.is_some() && program == self.program {
            return None;
        }
        let mut file = Vec::new();
        if rank::read_environment(&self.tree.path(format!("proc/{pid}/environ")), &mut file).is_ok() {
            // Of several jobs of telem in one of the scheduler's, each has its own.
            if let Some(job) = rank::variable(&file, TELEM_JOB) {
                return (job == self.job).then_some(Mark::Telem);
            }
            let told =
                self.scheduler.as_ref().map(|(name, value)| rank::variable(&file, name) == Some(value.as_slice()));
            if told == Some(true) {
                return Some(Mark::Scheduler);
            }
        }
        let cgroup = self.cgroup.as_ref()?;
        let text = read(&self.tree.path(format!("proc/{pid}/cgroup")), &mut file)?;
        is_within(text, cgroup).then_some(Mark::Scheduler)
    }

    /// The rank that its launcher set.
    pub fn rank_of(&self, pid: u32) -> Option<u32> {
        let mut environment = Vec::new();
        rank::read_environment(&self.tree.path(format!("proc/{pid}/environ")), &mut environment).ok()?;
        rank::of_environment(&environment)
    }
}

/// Where a line of `/proc/PID/cgroup` leads: `0::/a/b`, `4:memory:/a/b`.
fn path_of(line: &[u8]) -> Option<&str> {
    std::str::from_utf8(line).ok()?.splitn(3, ':').nth(2)
}

/// The control group of the scheduler's job that a process stands in: of the first line that leads into one.
fn job_cgroup(text: &[u8]) -> Option<String> {
    lines(text).find_map(|line| scheduler_level(path_of(line)?))
}

fn is_within(text: &[u8], cgroup: &str) -> bool {
    lines(text)
        .filter_map(path_of)
        .any(|path| path.strip_prefix(cgroup).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_of_the_job_is_the_one_below_the_schedulers_own() {
        for (text, expected) in [
            (
                "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n",
                "/system.slice/slurmstepd.scope/job_4711",
            ),
            (
                "0::/system.slice/slurmstepd.scope/s0ABC1DEF2GHJ3/step_0\n",
                "/system.slice/slurmstepd.scope/s0ABC1DEF2GHJ3",
            ),
            ("0::/system.slice/n1_slurmstepd.scope/job_1\n", "/system.slice/n1_slurmstepd.scope/job_1"),
            ("4:memory:/slurm/uid_1000/job_4711/step_0\n", "/slurm/uid_1000/job_4711"),
            ("9:pids:/\n4:memory:/slurm_n1/uid_1000/job_4711/step_batch\n0::/\n", "/slurm_n1/uid_1000/job_4711"),
            ("0::/pbs_jobs.service/jobid/17.pbs/x\n", "/pbs_jobs.service/jobid/17.pbs"),
        ] {
            assert_eq!(job_cgroup(text.as_bytes()).as_deref(), Some(expected), "{text}");
            assert!(is_within(text.as_bytes(), expected));
            assert!(!is_within(format!("0::{expected}2/step_0\n").as_bytes(), expected), "another job");
        }
        for none in
            ["0::/\n", "0::/user.slice/user-1000.slice/session-3.scope\n", "0::/system.slice/slurmstepd.scope\n", ""]
        {
            assert_eq!(job_cgroup(none.as_bytes()), None, "{none}");
        }
    }
}
