//! The rank of a process as its launcher set it, in the environment with which the process was started.
//!
//! The variables and their precedence are those of `clients/python`, so a process has the same rank everywhere.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Where launchers say a process's rank, the innermost first: under `srun torchrun` SLURM_PROCID is that of torchrun,
/// which all of its workers share, and RANK is the worker's own.
const RANK_NAMES: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
/// Most that is read of an environment. Linux takes one of 6 MiB at most, and launchers' variables are short.
pub const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// The environment with which a process was started, as `/proc/PID/environ` has it.
///
/// # Errors
/// Of a process that has ended, or that is another user's.
pub fn read_environment(path: &Path, environment: &mut Vec<u8>) -> io::Result<()> {
    environment.clear();
    File::open(path)?.take(ENVIRONMENT_BYTES_MAX).read_to_end(environment).map(drop)
}

/// The value of a variable; if it occurs twice, the first one counts, as in C.
pub fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let value = |entry: &'a [u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    environment.split(|byte| *byte == 0).find_map(value)
}

/// The rank that `environment` says. None in a batch script of Slurm, which says 0 to everything that is started
/// there without `srun`.
pub fn of_environment(environment: &[u8]) -> Option<u32> {
    RANK_NAMES.into_iter().find_map(|name| {
        let value = variable(environment, name)?;
        let is_of_step =
            name != "SLURM_PROCID" || variable(environment, "SLURM_STEP_ID").is_some_and(|id| !id.is_empty());
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| is_number && is_of_step)?;
        text.parse().ok()
    })
}

/// The environment of a process of this user that runs now; none where it cannot be read.
pub fn environment_of(pid: u32) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    read_environment(Path::new(&format!("/proc/{pid}/environ")), &mut environment).ok()?;
    Some(environment)
}
