//! Decides what one `telem run` does about nodes, as a pure function of its options and its surroundings.

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::path::PathBuf;

use super::hostlist::{self, HostlistError};
use super::scheduler::{self, Scheduler, SchedulerError, Surroundings, Task, is_same_host};

/// Most agents on one machine: they are processes for trials.
pub const LOCAL_MAX: u32 = 64;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchOptions {
    pub hosts: Hosts,
    pub launcher: Launcher,
    pub job: JobName,
}

/// From where the name of the job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobName {
    /// A scheduler or the user said it, to all processes of the job.
    Common,
    /// Each process makes up its own.
    #[default]
    MadeUp,
}

/// On which hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Those of the job that this process is in.
    #[default]
    OfJob,
    List(String),
    File(PathBuf),
    /// So many processes on this one.
    Local(NonZeroU32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launcher {
    /// srun in an allocation of Slurm, else ssh.
    #[default]
    Auto,
    Srun,
    Ssh,
    /// None at all: this node alone is recorded.
    None,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// This node alone, as if there were no others.
    Alone,
    /// Start agents, and be their head.
    Launch(Fleet),
    /// One of many processes on many nodes: they find each other.
    Task { rank: u32 },
    /// One of many processes that have their node in common and nothing beyond: those of a node find each other.
    TaskOfNode(Launch),
}

/// What started many processes at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What it calls itself; `None` where only the process that is their common parent tells its processes from others.
    pub name: Option<String>,
    /// Whether some of them are on other nodes, which know nothing of this one.
    pub spread: bool,
}

/// Agents that are to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fleet {
    Local(NonZeroU32),
    Ssh(Vec<String>),
    Srun(Vec<String>),
}

impl Fleet {
    /// How many agents there are to be.
    pub fn len(&self) -> usize {
        match self {
            Self::Local(count) => count.get() as usize,
            Self::Ssh(hosts) | Self::Srun(hosts) => hosts.len(),
        }
    }

    /// Those it is for, where agents on this host are named after it.
    pub fn hosts(&self, host: &str) -> Vec<String> {
        match self {
            Self::Local(count) => (1..=count.get()).map(|nth| format!("{host}-{nth}")).collect(),
            Self::Ssh(hosts) | Self::Srun(hosts) => hosts.clone(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether all of them are on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("--nodes: {0}")]
    List(#[from] HostlistError),
    #[error("--hostfile: {0}")]
    File(SchedulerError),
    #[error("--hostfile: cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{asked} names no host")]
    Nobody { asked: String },
    #[error(
        "--launcher srun starts agents in a Slurm allocation, and this is not one (SLURM_JOB_ID is not set); use --launcher ssh"
    )]
    NoSlurm,
    #[error("the hosts of this job are not known: {0}; name them with --nodes or --hostfile, or use --launcher none")]
    Job(SchedulerError),
}

/// Checks what can be without a file.
///
/// # Errors
/// When what was asked for cannot be done.
pub fn check(wanted: &LaunchOptions, around: &dyn Surroundings) -> Result<(), PlanError> {
    if let Hosts::List(list) = &wanted.hosts {
        listed(list)?;
    }
    let in_slurm = around.variable("SLURM_JOB_ID").is_some();
    if wanted.launcher == Launcher::Srun && !in_slurm && !matches!(wanted.hosts, Hosts::Local(_)) {
        return Err(PlanError::NoSlurm);
    }
    Ok(())
}

fn listed(list: &str) -> Result<Vec<String>, PlanError> {
    let hosts = scheduler::once(hostlist::expand(list)?);
    if hosts.is_empty() { Err(PlanError::Nobody { asked: format!("--nodes '{list}'") }) } else { Ok(hosts) }
}

/// Decides. `host` is the name of this machine.
///
/// # Errors
/// When what was asked for cannot be done, and when a scheduler says what cannot be understood.
pub fn plan(wanted: &LaunchOptions, around: &dyn Surroundings, host: &str) -> Result<Role, PlanError> {
    if let Hosts::Local(count) = wanted.hosts {
        return Ok(Role::Launch(Fleet::Local(count)));
    }
    if wanted.launcher == Launcher::None {
        return Ok(Role::Alone);
    }
    let asked = match &wanted.hosts {
        Hosts::List(list) => Some(listed(list)?),
        Hosts::File(path) => {
            let text = around.file(path).map_err(|source| PlanError::Read { path: path.clone(), source })?;
            let hosts = scheduler::hosts_of_file(&path.display().to_string(), &text).map_err(PlanError::File)?;
            if hosts.is_empty() {
                return Err(PlanError::Nobody { asked: format!("--hostfile {}", path.display()) });
            }
            Some(hosts)
        }
        Hosts::OfJob | Hosts::Local(_) => None,
    };
    check(wanted, around)?;
    let (hosts, launcher) = match asked {
        Some(hosts) => {
            let launcher = if is_of_slurm(&hosts, around) { Launcher::Srun } else { Launcher::Ssh };
            (hosts, launcher)
        }
        None => {
            // A task was started by a launcher that starts the others too.
            if let Some(task) = scheduler::task(around) {
                return Ok(role_of(task, wanted.job));
            }
            let Some(nodes) = scheduler::nodes(around).map_err(PlanError::Job)? else { return Ok(Role::Alone) };
            let launcher = if nodes.scheduler == Scheduler::Slurm { Launcher::Srun } else { Launcher::Ssh };
            (nodes.hosts, launcher)
        }
    };
    let others: Vec<String> = hosts.into_iter().filter(|other| !is_here(other, host, around)).collect();
    if others.is_empty() {
        return Ok(Role::Alone);
    }
    let launcher = if wanted.launcher == Launcher::Auto { launcher } else { wanted.launcher };
    Ok(Role::Launch(match launcher {
        Launcher::Srun => Fleet::Srun(others),
        Launcher::Ssh | Launcher::Auto | Launcher::None => Fleet::Ssh(others),
    }))
}

fn role_of(task: Task, job: JobName) -> Role {
    let Task { rank, spread, count, launch: name } = task;
    match job {
        JobName::Common if spread => Role::Task { rank },
        _ if !spread && count == Some(1) => Role::Alone,
        _ => Role::TaskOfNode(Launch { name, spread }),
    }
}

/// Whether `other` means this machine.
fn is_here(other: &str, host: &str, around: &dyn Surroundings) -> bool {
    // What Slurm calls a node need not be what the node calls itself.
    let in_slurm = around.variable("SLURMD_NODENAME").is_some_and(|name| is_same_host(other, &name));
    in_slurm || is_same_host(other, host) || other.eq_ignore_ascii_case("localhost")
}

/// Whether these are nodes of the job of Slurm's that this process is in.
fn is_of_slurm(hosts: &[String], around: &dyn Surroundings) -> bool {
    let job = scheduler::nodes(around).ok().flatten().filter(|nodes| nodes.scheduler == Scheduler::Slurm);
    // Slurm knows its nodes by the names that it gave them.
    job.is_some_and(|job| {
        let known: std::collections::HashSet<String> = job.hosts.into_iter().collect();
        hosts.iter().all(|host| known.contains(host))
    })
}
