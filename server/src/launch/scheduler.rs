//! What schedulers and launchers tell a process about its job: its hosts, and whether this process is one of many
//! tasks. Pure functions of the environment and of the files that it names; docs/launching.md lists the sources.
//!
//! Launchers nest (`mpirun` in a Slurm job, `flux` under `srun`), and each passes its variables on to the next one. So
//! the innermost counts: variables of MPI libraries and of Flux take precedence over those of Slurm. A variable counts
//! only if it describes this process, not the script from which it was started.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::hostlist::{self, HostlistError};

/// Largest file of hosts, in bytes.
pub const FILE_BYTES_MAX: u64 = 8 << 20;
/// Steps of Slurm from this number on are no `srun` of the user: batch scripts, interactive shells, the extern step
/// (`SLURM_INTERACTIVE_STEP` and its neighbours in `slurm.h`).
const SLURM_STEPS_RESERVED: u32 = 0xffff_fff0;

#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    #[error("{from}: {source}")]
    List { from: String, source: HostlistError },
    #[error("cannot read {}, which {from} names: {source}", path.display())]
    File { from: String, path: PathBuf, source: io::Error },
    #[error("{from}: {what}")]
    Malformed { from: String, what: String },
}

/// What can be asked.
pub trait Surroundings {
    /// A variable of the environment; an empty one counts as unset.
    fn variable(&self, name: &str) -> Option<String>;
    /// # Errors
    /// When the file does not exist, or is larger than [`FILE_BYTES_MAX`].
    fn file(&self, path: &Path) -> io::Result<String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    Slurm,
    Pbs,
    Lsf,
    Pals,
}

/// The hosts of a job, each once, in the order of its scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHosts {
    pub scheduler: Scheduler,
    pub hosts: Vec<String>,
}

/// One of many processes that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub rank: u32,
    /// Whether they run on more than one node.
    pub spread: bool,
    /// How many there are in all; `None` where that is not said.
    pub count: Option<u32>,
    /// What the launcher calls this launch, on all nodes; `None` where it gives it no name.
    pub launch: Option<String>,
}

/// The hosts of the job that this process belongs to; `None` where no scheduler says.
///
/// # Errors
/// When a scheduler says something that cannot be understood.
pub fn nodes(around: &dyn Surroundings) -> Result<Option<JobHosts>, SchedulerError> {
    type Read = fn(&dyn Surroundings) -> Result<Option<Vec<String>>, SchedulerError>;
    // Slurm first: what it says of its jobs is exact, and some of its sites set the variables of PBS for old scripts.
    let readers: [(Scheduler, Read); 4] =
        [(Scheduler::Slurm, slurm), (Scheduler::Lsf, lsf), (Scheduler::Pals, pals), (Scheduler::Pbs, pbs)];
    for (scheduler, read) in readers {
        if let Some(hosts) = read(around)? {
            return Ok(Some(JobHosts { scheduler, hosts: once(hosts) }));
        }
    }
    Ok(None)
}

/// Which of many processes this is; `None` where it was started alone.
pub fn task(around: &dyn Surroundings) -> Option<Task> {
    let spread = |known: Option<bool>| known.or_else(|| slurm_step(around).map(|step| step.nodes > 1));
    if let Some(rank) = number(around, "OMPI_COMM_WORLD_RANK") {
        let spread = spread(exceeds(around, "OMPI_COMM_WORLD_SIZE", &["OMPI_COMM_WORLD_LOCAL_SIZE"]));
        let count = number(around, "OMPI_COMM_WORLD_SIZE");
        // Of version 5 the one, of version 4 both, of versions before the others.
        let names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"];
        let launch = names.iter().find_map(|name| around.variable(name));
        return Some(Task { rank, spread: spread.unwrap_or(false), count, launch });
    }
    if let Some(rank) = number(around, "FLUX_TASK_RANK") {
        let spread = number(around, "FLUX_JOB_NNODES").is_some_and(|nodes| nodes > 1);
        let (count, launch) = (number(around, "FLUX_JOB_SIZE"), around.variable("FLUX_JOB_ID"));
        return Some(Task { rank, spread, count: count.or(Some(1)), launch });
    }
    if let Some(rank) = number(around, "PALS_RANKID").or_else(|| number(around, "PMI_RANK")) {
        let local = ["PMI_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE"];
        let spread = spread(exceeds(around, "PMI_SIZE", &local)).unwrap_or(false);
        // Hydra gives its launches no name, and what others around it say is not about them.
        let is_hydras = ["MPI_LOCALRANKID", "HYDI_CONTROL_FD"].iter().any(|name| around.variable(name).is_some());
        let of_step = || slurm_step(around).filter(|_| !is_hydras).and_then(|step| step.name);
        let launch = around.variable("PALS_APID").or_else(of_step);
        return Some(Task { rank, spread, count: number(around, "PMI_SIZE"), launch });
    }
    if let Some(step) = slurm_step(around) {
        return Some(Task { rank: step.rank, spread: step.nodes > 1, count: Some(step.tasks), launch: step.name });
    }
    let rank = number(around, "PMIX_RANK")?;
    let hosts = nodes(around).ok().flatten().map_or(0, |nodes| nodes.hosts.len());
    Some(Task { rank, spread: hosts > 1, count: None, launch: around.variable("PMIX_NAMESPACE") })
}

/// Whether a process with this environment is the same task of the same launch: what launchers tell one process alone,
/// and hand on to whatever that starts.
pub fn is_same_task(one: &dyn Surroundings, other: &dyn Surroundings) -> bool {
    OF_A_TASK.iter().all(|name| one.variable(name) == other.variable(name))
}

/// What launchers tell each process apart from the others. Descriptors of Hydra are numbers of its own.
const OF_A_TASK: [&str; 12] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_ID",
    "PMI_FD",
    "PMI_PORT",
    "MPI_LOCALRANKID",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
];

/// The step of Slurm's that this process is a task of; `None` for what runs in a batch script or a shell of a job.
fn slurm_step(around: &dyn Surroundings) -> Option<SchedulerStep> {
    number(around, "SLURM_STEP_ID").filter(|step| *step < SLURM_STEPS_RESERVED)?;
    let nodes = number(around, "SLURM_STEP_NUM_NODES").or_else(|| number(around, "SLURM_NNODES"));
    let tasks = number(around, "SLURM_STEP_NUM_TASKS").or_else(|| number(around, "SLURM_NTASKS"));
    let name = around.variable("SLURM_JOB_ID").zip(around.variable("SLURM_STEP_ID"));
    Some(SchedulerStep {
        rank: number(around, "SLURM_PROCID")?,
        nodes: nodes.unwrap_or(1),
        tasks: tasks.unwrap_or(1),
        name: name.map(|(job, step)| format!("{job}.{step}")),
    })
}

struct SchedulerStep {
    rank: u32,
    nodes: u32,
    tasks: u32,
    name: Option<String>,
}

/// Whether there are more processes than there are on this node; `None` where that is not said.
fn exceeds(around: &dyn Surroundings, all: &str, here: &[&str]) -> Option<bool> {
    let here = here.iter().find_map(|name| number(around, name))?;
    Some(number(around, all)? > here)
}

fn number(around: &dyn Surroundings, name: &str) -> Option<u32> {
    around.variable(name)?.trim().parse().ok()
}

fn slurm(around: &dyn Surroundings) -> Result<Option<Vec<String>>, SchedulerError> {
    let of_step = slurm_step(around).map(|_| "SLURM_STEP_NODELIST");
    let names = of_step.into_iter().chain(["SLURM_JOB_NODELIST", "SLURM_NODELIST"]);
    first(around, names, expand)
}

fn lsf(around: &dyn Surroundings) -> Result<Option<Vec<String>>, SchedulerError> {
    if let Some(hosts) = first(around, ["LSB_DJOB_HOSTFILE"], |name, path| file(around, name, path))? {
        return Ok(Some(hosts));
    }
    let counted = |name: &str, list: &str| {
        let words: Vec<&str> = list.split_ascii_whitespace().collect();
        let (pairs, odd) = words.as_chunks::<2>();
        let wrong = pairs.iter().map(|[_, slots]| slots).find(|slots| slots.parse::<u32>().is_err());
        if let Some(word) = odd.first().or(wrong) {
            let what = format!("'{word}' in '{list}' is not of a pair HOST SLOTS");
            return Err(SchedulerError::Malformed { from: name.to_owned(), what });
        }
        let hosts: Vec<&str> = pairs.iter().map(|[host, _]| *host).collect();
        expand(name, &hosts.join(","))
    };
    if let Some(hosts) = first(around, ["LSB_MCPU_HOSTS"], counted)? {
        return Ok(Some(hosts));
    }
    first(around, ["LSB_HOSTS"], expand)
}

fn pals(around: &dyn Surroundings) -> Result<Option<Vec<String>>, SchedulerError> {
    if let Some(hosts) = first(around, ["PALS_HOSTLIST"], expand)? {
        return Ok(Some(hosts));
    }
    first(around, ["PALS_HOSTFILE"], |name, path| file(around, name, path))
}

fn pbs(around: &dyn Surroundings) -> Result<Option<Vec<String>>, SchedulerError> {
    first(around, ["PBS_NODEFILE"], |name, path| file(around, name, path))
}

/// What `read` makes of the first of these variables that is there.
fn first<'a, T>(
    around: &dyn Surroundings,
    names: impl IntoIterator<Item = &'a str>,
    read: impl Fn(&str, &str) -> Result<T, SchedulerError>,
) -> Result<Option<T>, SchedulerError> {
    let found = names.into_iter().find_map(|name| Some((name, around.variable(name)?)));
    found.map(|(name, value)| read(name, &value)).transpose()
}

fn file(around: &dyn Surroundings, from: &str, path: &str) -> Result<Vec<String>, SchedulerError> {
    let path = PathBuf::from(path);
    match around.file(&path) {
        Ok(text) => hosts_of_file(&path.display().to_string(), &text),
        Err(source) => Err(SchedulerError::File { from: from.to_owned(), path, source }),
    }
}

fn expand(from: &str, list: &str) -> Result<Vec<String>, SchedulerError> {
    hostlist::expand(list).map_err(|source| SchedulerError::List { from: from.to_owned(), source })
}

/// The hosts of a file, each once: a host or a list of them at the start of each line, after which there may be slots
/// (`n1:4`, `n1 slots=4`), `#` before remarks. Or what Flux writes: a resource set R (RFC 20 of Flux), as JSON.
///
/// # Errors
/// When it is neither. `from` names the file.
pub fn hosts_of_file(from: &str, text: &str) -> Result<Vec<String>, SchedulerError> {
    if text.trim_start().starts_with('{') {
        return flux_resources(from, text);
    }
    let mut hosts = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_ascii_whitespace().next() else { continue };
        // An address of IPv6 has more than one colon.
        let host = match word.split_once(':') {
            Some((host, slots)) if slots.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => word,
        };
        hosts.extend(expand(&format!("{from}, line {}", n + 1), host)?);
        if hosts.len() > FILE_HOSTS_MAX {
            let what = format!("there are more than {FILE_HOSTS_MAX} hosts");
            return Err(SchedulerError::Malformed { from: from.to_owned(), what });
        }
    }
    Ok(once(hosts))
}

/// Most hosts that a file may name, counting repetitions: files of PBS have a line for each slot.
pub(crate) const FILE_HOSTS_MAX: usize = 16 * hostlist::HOSTS_MAX;

fn flux_resources(from: &str, text: &str) -> Result<Vec<String>, SchedulerError> {
    #[derive(Deserialize)]
    struct Resources {
        execution: Execution,
    }
    #[derive(Deserialize)]
    struct Execution {
        nodelist: Vec<String>,
    }
    let resources: Resources = serde_json::from_str(text).map_err(|error| SchedulerError::Malformed {
        from: from.to_owned(),
        what: format!("no list of hosts, and no resource set of Flux either: {error}"),
    })?;
    expand(from, &resources.execution.nodelist.join(",")).map(once)
}

/// Each name at its first place. Host names ignore case.
pub fn once(hosts: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    hosts.into_iter().filter(|host| seen.insert(host.to_ascii_lowercase())).collect()
}

/// Whether two names are of one host: as they are, or one without the domain that the other has.
pub fn is_same_host(one: &str, other: &str) -> bool {
    let is_address = |name: &str| name.parse::<std::net::IpAddr>().is_ok();
    if one.eq_ignore_ascii_case(other) {
        return true;
    }
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    // Of two names in two domains nothing is known.
    let (full, other_full) = (one.contains('.'), other.contains('.'));
    full != other_full && !is_address(one) && !is_address(other) && short(one) == short(other)
}
