//! The options that select the nodes on which a job is recorded.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::{CliFailure, units};
use crate::launch::ThisProcess;
use crate::launch::plan::{self, Hosts, JobName, LOCAL_MAX, LaunchOptions};

#[derive(Debug, Args)]
pub struct RunNodesArgs {
    /// Other hosts to record [default: the scheduler's]
    ///
    /// A list such as a,b[001-003]. Without it the hosts of the scheduler's job.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["hostfile", "local"])]
    nodes: Option<String>,
    /// A file that names them, one per line; or Flux's R
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with = "local")]
    hostfile: Option<PathBuf>,
    /// N agents on this machine instead, as separate processes with names and data of their own, for trials
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(LOCAL_MAX)))]
    local: Option<u32>,
    /// What starts agents on other hosts: srun in an allocation of Slurm, else ssh; or none
    #[arg(long, hide_short_help = true, value_enum, value_name = "HOW", default_value_t = LauncherArg::Auto)]
    launcher: LauncherArg,
    /// Name or address at which agents reach this host [default: all of its addresses, in turn]
    #[arg(long, hide_short_help = true, value_name = "HOST")]
    advertise: Option<String>,
    /// How long agents go on after this process has died [default: not at all on this machine; elsewhere 1m, or 10m
    /// while their ssh or srun still runs]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = units::duration)]
    head_gone_timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LauncherArg {
    Auto,
    Srun,
    Ssh,
    None,
}

impl RunNodesArgs {
    /// What can be seen to be wrong without asking a file system.
    pub fn check(&self) -> Result<(), CliFailure> {
        plan::check(&self.launch_options(JobName::default()), &ThisProcess).map_err(CliFailure::usage)
    }

    pub fn launch_options(&self, job: JobName) -> LaunchOptions {
        let hosts = match (&self.nodes, &self.hostfile, self.local.and_then(NonZeroU32::new)) {
            (_, _, Some(count)) => Hosts::Local(count),
            (_, Some(path), None) => Hosts::File(path.clone()),
            (Some(list), None, None) => Hosts::List(list.clone()),
            (None, None, None) => Hosts::OfJob,
        };
        let launcher = match self.launcher {
            LauncherArg::Auto => plan::Launcher::Auto,
            LauncherArg::Srun => plan::Launcher::Srun,
            LauncherArg::Ssh => plan::Launcher::Ssh,
            LauncherArg::None => plan::Launcher::None,
        };
        LaunchOptions { hosts, launcher, job }
    }

    pub fn advertise(&self) -> Vec<String> {
        self.advertise.clone().into_iter().collect()
    }

    /// As it was given.
    pub fn head_gone_timeout(&self) -> Option<Duration> {
        self.head_gone_timeout
    }
}
