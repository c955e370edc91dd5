//! The identity of this process: its job, its node, its directories. Pure functions of their arguments.

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use chrono::DateTime;
use telem_engine::Timestamp;

const NAME_BYTES_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "{what} '{name}' is not a name: at most {NAME_BYTES_MAX} letters, digits, '.', '_' and '-', the first not '.'"
    )]
    BadName { what: &'static str, name: String },
    #[error("there is no user '{name}' (for --allow-user): {why}")]
    NoUser { name: String, why: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// The environment as functions see it: a name to its value, empty ones left out.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A name that may become part of a path.
///
/// # Errors
/// BadName.
pub fn checked_name(what: &'static str, name: &str) -> Result<String, ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(plain) {
        return Err(ConfigError::BadName { what, name: name.to_owned() });
    }
    Ok(name.to_owned())
}

/// What a database calls the job of what no job sent.
pub const NO_JOB: &str = "local";

/// The job this process belongs to: as asked for, else the scheduler's, else [`NO_JOB`].
///
/// # Errors
/// BadName.
pub fn job(wanted: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Result<String, ConfigError> {
    match wanted {
        Some(name) => checked_name("job", name),
        None => Ok(scheduled_job(env).unwrap_or_else(|| NO_JOB.to_owned())),
    }
}

/// Where schedulers say which job this is.
pub const SCHEDULED_JOBS: [&str; 7] =
    ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "OAR_JOB_ID", "PJM_JOBID"];

/// The job of a command that is launched: as asked for, else the scheduler's, else what `made_up` gives.
///
/// # Errors
/// BadName, for one that was asked for.
pub fn launched_job(
    wanted: Option<&str>,
    env: impl Fn(&str) -> Option<String>,
    made_up: impl FnOnce() -> String,
) -> Result<String, ConfigError> {
    if let Some(name) = wanted {
        return checked_name("job", name);
    }
    Ok(scheduled_job(env).unwrap_or_else(made_up))
}

/// What the scheduler calls this job: what a path cannot have in its id becomes `-`.
pub fn scheduled_job(env: impl Fn(&str) -> Option<String>) -> Option<String> {
    SCHEDULED_JOBS.into_iter().find_map(env).map(|id| plain_job(&id)).filter(|id| !id.is_empty())
}

/// The id of a job as a path can have it.
pub fn plain_job(id: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let id: String = id.chars().map(plain).take(NAME_BYTES_MAX).collect();
    id.trim_start_matches(['.', '-']).to_owned()
}

/// A name for a job that has none: when it began (UTC) and its process.
pub fn fresh_job(now: Timestamp, pid: u32) -> String {
    let time = DateTime::from_timestamp_micros(now.micros()).unwrap_or_default();
    format!("{}-{pid}", time.format("%Y%m%d-%H%M%S"))
}

/// The node this process runs on: as asked for, else the host name without its domain, in lower case.
///
/// # Errors
/// BadName.
pub fn node(wanted: Option<&str>, host_name: &str) -> Result<String, ConfigError> {
    match wanted {
        Some(name) => checked_name("node", name),
        None => checked_name("node", &host_name.split('.').next().unwrap_or("").to_ascii_lowercase()),
    }
}

/// The host name as the kernel has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A directory below which live data may stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    pub path: PathBuf,
    /// The variable of the environment that names it.
    pub variable: Option<&'static str>,
}

/// Where live data may be unless `--data` says otherwise, best first: on the fastest disk that the job was given. Where
/// none of those can be used there is one that every machine has, and memory.
pub fn data_bases(env: impl Fn(&str) -> Option<String>) -> Vec<Base> {
    let named = ["TELEM_DATA", "SLURM_TMPDIR", "TMPDIR"].into_iter();
    let named = named.filter_map(|variable| Some(Base { path: env(variable)?.into(), variable: Some(variable) }));
    let always = ["/tmp", "/dev/shm"].map(|path| Base { path: path.into(), variable: None });
    let mut bases: Vec<Base> = Vec::new();
    for base in named.chain(always) {
        if !bases.iter().any(|known| known.path == base.path) {
            bases.push(base);
        }
    }
    bases
}

/// The name of our private directory in public places: live data is in `JOB/NODE` below it.
pub fn private_name(uid: u32) -> String {
    format!("telem-{uid}")
}

/// What a directory lies on, as far as it matters to data that must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Local,
    /// Takes memory from the job, and is gone with the machine.
    Memory,
    /// Shared by many nodes: every sync is a request to a server that all of them use.
    Shared(&'static str),
}

/// # Errors
/// When the file system of `dir` cannot be asked.
pub fn file_system(dir: &Path) -> Result<FileSystem, ConfigError> {
    let found = rustix::fs::statfs(dir).map_err(|error| ConfigError::Io {
        action: "look at the file system of",
        path: dir.to_path_buf(),
        source: error.into(),
    })?;
    Ok(file_system_of(found.f_type.cast_unsigned() & 0xffff_ffff))
}

/// By the magic numbers of Linux (`statfs(2)`, and the sources of Lustre, GPFS and BeeGFS).
fn file_system_of(magic: u64) -> FileSystem {
    match magic {
        0x0102_1994 | 0x8584_58f6 => FileSystem::Memory,
        0x6969 => FileSystem::Shared("NFS"),
        0x0bd0_0bd0 => FileSystem::Shared("Lustre"),
        0x4750_4653 => FileSystem::Shared("GPFS"),
        0x1983_0326 => FileSystem::Shared("BeeGFS"),
        0x00c3_6400 => FileSystem::Shared("CephFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => FileSystem::Shared("SMB"),
        _ => FileSystem::Local,
    }
}

/// The uid of a user, by name or by number.
///
/// # Errors
/// NoUser.
pub fn uid_of(user: &str) -> Result<u32, ConfigError> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let no_user = |why: String| ConfigError::NoUser { name: user.to_owned(), why };
    // `id` asks the directory services of the site too; /etc/passwd knows local users only.
    let asked = Command::new("id").args(["-u", "--", user]).output().map_err(|error| no_user(error.to_string()))?;
    let said = String::from_utf8_lossy(&asked.stdout).trim().parse();
    said.map_err(|_| no_user(String::from_utf8_lossy(&asked.stderr).trim().to_owned()))
}
