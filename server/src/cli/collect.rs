//! The options of every command that collects: how often, and from where.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use telem_ingest::collect::CollectOptions;
use telem_ingest::schedule::check_interval;

use super::{CliFailure, units};

/// Time between samples, where nothing else is said.
const INTERVAL: Duration = Duration::from_secs(1);

/// The hidden command that asks the libraries of vendors of GPUs.
pub const READ_GPUS: &str = "read-gpus";

/// How the node is sampled at level 2 and above.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Time between samples, 100ms to 1h [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    /// Where proc and sys are read: the host's root as a container sees it, or a recording
    #[arg(long, hide_short_help = true, value_name = "DIR", default_value = "/")]
    sysroot: PathBuf,
}

impl CollectArgs {
    pub fn of(interval: Duration, sysroot: PathBuf) -> Self {
        Self { interval: Some(interval), sysroot }
    }

    pub fn interval(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL)
    }

    /// What it is unless the command line says something else.
    pub fn suggest_interval(&mut self, interval: Duration) {
        self.interval.get_or_insert(interval);
    }

    /// # Errors
    /// Usage when there is no `proc` where it is to be read.
    pub fn options(&self, level: u8, host: &str) -> Result<CollectOptions, CliFailure> {
        if level >= 2 && !self.sysroot.join("proc").is_dir() {
            let sysroot = self.sysroot.display();
            return Err(CliFailure::usage(format!(
                "--sysroot {sysroot} holds no directory proc; name the directory above it"
            )));
        }
        let (interval, sysroot) = (self.interval(), self.sysroot.clone());
        let mut options = CollectOptions { interval, sysroot, ..CollectOptions::new(level, host) };
        options.read_gpus_by("/proc/self/exe", &[READ_GPUS]);
        Ok(options)
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = units::duration(text)?;
    check_interval(interval).map_err(|_| format!("'{text}' is not from 100ms to 1h"))?;
    Ok(interval)
}
