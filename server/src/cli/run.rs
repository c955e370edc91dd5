//! `telem run`: runs a command with a service beside it.

mod nodes;
mod prepare;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, SystemClock};
use telem_ingest::collect::JobTarget;

use self::nodes::RunNodesArgs;
use self::prepare::{RunOptions, SaveTimes};
use super::dragon::{self, DragonHost, TunnelEnd};
use super::service::{self, Purpose, ServiceArgs, level};
use super::{CliFailure, Verbosity, proxy_run, units};
use crate::config;
use crate::footprint;
use crate::job::Preparation;
use crate::job::mpi_profile::COMPILER;
use crate::job::notes::Notes;
use crate::job::recorder::{self, RecordOptions};
use crate::job::supervisor::{self, JobOptions};
use crate::launch::plan::JobName;
use crate::protocols::dragon::node::environment_without_a_port;
use crate::protocols::proxy::own;
use crate::saving::save::{Destination, INTERVAL_MAX, Naming};
use crate::settings::{self, RunLabels};

/// The subcommand that is the recorder; not for users.
const RECORD: &str = "record";

/// Run a command and record its nodes and its metrics
///
/// Queries are answered while it runs.
///
/// The command runs as if telem were not there: it keeps its streams, its terminal and its signals, and telem exits
/// with its exit code (128+n for a signal). If telem cannot record, it says so and still runs the command. Samples are
/// saved while the command runs, so a job that is killed leaves a readable database that lacks only its last seconds.
/// The command finds the service through TELEM_CONNECTION, TELEM_SOCKET and TELEM_URL.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES, override_usage = "telem run [OPTIONS] -- COMMAND [ARG]...")]
pub struct RunArgs {
    /// What is recorded: 1 user metrics, 2 + hardware, up to 4
    ///
    /// 1 user metrics, 2 + the node's hardware, 3 + detail, 4 + processes. Samples up to this level are stored; 0
    /// stores nothing. `--telemetry-level` is the same option.
    #[arg(long, alias = "telemetry-level", short_alias = 'T', default_value_t = 2, value_name = "N", value_parser = level, allow_negative_numbers = true)]
    level: u8,
    /// Name of the job [default: the scheduler's]
    ///
    /// Without a scheduler the name is made from the time.
    #[arg(long, value_name = "ID")]
    job: Option<String>,
    /// What to call this run, as `telem ls` shows it
    #[arg(long, value_name = "TEXT", env = "TELEM_NAME", hide_env = true)]
    name: Option<String>,
    /// A word to find the run by; may be repeated
    #[arg(long, value_name = "KEY=VALUE", hide_short_help = true)]
    tag: Vec<String>,
    /// A setting of the run, or a file of them; may be repeated
    ///
    /// A file has an object of them, as JSON, YAML (.yaml, .yml) or TOML (.toml). Objects in objects become names with
    /// dots, as in `model.depth`; lists stay JSON. What comes later wins.
    #[arg(long, value_name = "KEY=VALUE|FILE", hide_short_help = true)]
    config: Vec<String>,
    /// Where to save it, as DIR/NODE [default: ./telem-JOB]
    ///
    /// Another run into the same DIR adds DIR/NODE-2.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Leave the samples in the live data
    #[arg(long, hide_short_help = true, conflicts_with = "save")]
    no_save: bool,
    /// How often the saved copy is updated, up to 60s; it lacks at most this much if everything is killed
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5s", value_parser = save_interval)]
    save_interval: Duration,
    /// Longest time for saving the rest after the command has ended
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5m", value_parser = units::duration)]
    save_timeout: Duration,
    /// Do not run the command if it cannot be recorded
    #[arg(long)]
    strict: bool,
    /// Count the calls of MPI, their bytes and their time
    ///
    /// A library that counts them is built by MPICC, kept in ~/.cache/telem/mpi, and preloaded into the command
    /// (LD_PRELOAD). Programs that use no MPI, or another one, run as without it. Metrics are mpi_calls_total,
    /// mpi_bytes_total and mpi_seconds_total, by function and rank.
    #[arg(long, hide_short_help = true, value_name = "MPICC", num_args = 0..=1, require_equals = true, default_missing_value = COMPILER)]
    mpi_profile: Option<OsString>,
    /// Exporters of Metric Proxy for the command: mpi, strace, finstrument; with commas
    ///
    /// mpi=FILE names the compiler wrapper of another MPI than that of mpicc. `telem proxy-run --help` says more. What
    /// they count is of this job.
    #[arg(short, long = "exporter", hide_short_help = true, value_delimiter = ',', value_name = "NAME")]
    exporters: Vec<String>,
    /// Let clients on that host ask here, through ssh
    ///
    /// Keeps `ssh -NR localhost:PORT:...` to NODE alive while the job runs. Who asks there needs the token of the
    /// connection file, whichever user it is. PORT is the one of --listen unless it is given.
    #[arg(long, hide_short_help = true, value_name = "NODE[:PORT]", value_parser = TunnelEnd::parse)]
    tunnel: Option<TunnelEnd>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten, next_help_heading = "Nodes")]
    nodes: RunNodesArgs,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem run -- python train.py
  telem run --level 3 --save out -- ./solver input.toml && telem info out
  telem run -- srun ./solver          # in a Slurm script: all nodes of the job";

const EXAMPLES: &str = "\
Examples:
  telem run -- python train.py
  telem run --level 3 --save out -- ./solver input.toml && telem info out
  telem run --name 'lr 3e-4' --config lr=3e-4 -- python train.py   # then: telem ls
  telem run -- srun ./solver                             # in a Slurm script: all nodes of the job
  srun telem run --save $SCRATCH/out -- ./solver         # the same, started by Slurm
  telem run --nodes n[01-16] -- mpirun ./solver          # agents by ssh
  telem run --mpi-profile -- mpirun ./solver             # calls of MPI are counted too
  telem run -- sh -c 'telem put stage 1; ./solver'       # the job sends a metric of its own

Environment of the command:
  TELEM_CONNECTION   file with URL, socket and token, readable by you alone
  TELEM_SOCKET       path of the Unix socket
  TELEM_URL          such as http://127.0.0.1:4242
  TELEM_LEVEL        the level
  TELEM_JOB          the job
  TELEM_SAVED        the directory where the job is saved; empty if it is not
  PROXY_PATH, PROXY_PERIOD, PROXY_JOB_ID   for programs with Metric Proxy's library
With --dragon also DRAGON_TELEMETRY_LEVEL, DRAGON_TELEMETRY_CONFIG where a port is
not the usual one, NO_PROXY, and PYTHONPATH with telem's classes first.
With --mpi-profile also LD_PRELOAD, with a library of telem last.

Environment:
  TELEM_TOKEN   the token to require, instead of a random one
  TELEM_LOG     what to log, as in telem_engine=debug,info";

/// The exit code of the command, or of telem's own where it did not run.
pub fn run(mut args: RunArgs, verbosity: Verbosity) -> ExitCode {
    // What was written wrongly is said before anything is started.
    if let Err(failure) = args.check() {
        return failure.report();
    }
    let options = JobOptions {
        command: proxy_run::attaching(&args.exporters, args.command),
        recorder: recorder_arguments(std::env::args_os().skip(1)),
        strict: args.strict,
        unrecorded: if args.service.reach.dragon.is_wanted() { environment_without_a_port() } else { Vec::new() },
        save_timeout: args.save_timeout,
        notes: Notes { quiet: verbosity.is_quiet() },
        clock: Arc::new(SystemClock::new()),
    };
    ExitCode::from(supervisor::run(options))
}

/// The other process of a run, which records.
pub fn record(args: RunArgs, verbosity: Verbosity) -> ExitCode {
    match record_options(args, verbosity) {
        Ok(options) => recorder::record(options),
        Err(failure) => return failure.report(),
    }
    ExitCode::SUCCESS
}

/// The same words for the recorder: no option before the name of the subcommand has a value.
fn recorder_arguments(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let name = words.iter_mut().find(|word| !word.as_encoded_bytes().starts_with(b"-"));
    if let Some(name) = name {
        *name = RECORD.into();
    }
    words
}

impl RunArgs {
    /// What can be seen to be wrong without asking a file system.
    fn check(&mut self) -> Result<(), CliFailure> {
        // The recorder tells what there is to be told of it.
        self.service.settle(DragonHost::Run)?;
        let save = self.save(&self.job()?);
        self.labels()?;
        self.service.node()?;
        self.nodes.check()?;
        let in_itself = |data: &PathBuf| !self.no_save && std::path::absolute(data).is_ok_and(|data| data == save);
        if self.service.data.as_ref().is_some_and(in_itself) {
            return Err(CliFailure::usage(format!(
                "--data and --save are both {}; name two directories",
                save.display()
            )));
        }
        Ok(())
    }

    /// What its user calls the run, and started it with.
    fn labels(&self) -> Result<RunLabels, CliFailure> {
        let name = self.name.clone().filter(|name| !name.is_empty());
        name.as_deref().map_or(Ok(()), settings::check_name).map_err(CliFailure::usage)?;
        Ok(RunLabels {
            name,
            tags: settings::tags(&self.tag).map_err(CliFailure::usage)?,
            settings: settings::settings(&self.config).map_err(CliFailure::usage)?,
        })
    }

    /// Where the database is to be saved, unless it is not.
    fn save(&self, id: &str) -> PathBuf {
        let save = self.save.clone().unwrap_or_else(|| PathBuf::from(format!("telem-{id}")));
        std::path::absolute(&save).unwrap_or(save)
    }

    /// Whether other processes of the same launch have the same name for the job.
    fn job_name(&self) -> JobName {
        let is_common = self.job.is_some() || config::scheduled_job(config::environment).is_some();
        if is_common { JobName::Common } else { JobName::MadeUp }
    }

    fn naming(&self) -> Naming {
        if self.save.is_some() { Naming::Asked } else { Naming::OfJob }
    }

    fn job(&self) -> Result<String, CliFailure> {
        let clock = SystemClock::new();
        let made_up = || config::fresh_job(clock.now(), std::process::id());
        config::launched_job(self.job.as_deref(), config::environment, made_up).map_err(CliFailure::usage)
    }
}

fn record_options(mut args: RunArgs, verbosity: Verbosity) -> Result<RecordOptions, CliFailure> {
    let notes = Notes { quiet: verbosity.is_quiet() };
    for note in args.service.settle(DragonHost::Run)? {
        notes.say(note);
    }
    let tunnel = args.tunnel.take().or_else(|| dragon::tunnel(args.service.reach.dragon.config()?));
    let id = args.job()?;
    let (save, naming, job_name) = (args.save(&id), args.naming(), args.job_name());
    let labels = args.labels()?;
    let RunArgs { level, no_save, save_interval, save_timeout, strict, mpi_profile, nodes, service, command, .. } =
        args;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let node = service.node()?;
    let destination = (!no_save).then(|| Destination::new(save, naming, &node));
    let hurry = Arc::default();
    let purpose = Purpose { job: id.clone(), level };
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let own_job = own::describe(&id, &words.join(" "), &node, config::environment);
    let is_tunnelled = tunnel.is_some();
    let supervisor = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
    let target =
        supervisor.map_or_else(|| JobTarget::of_node(&id), |supervisor| JobTarget::of_command(&id, supervisor));
    let saving = SaveTimes { interval: save_interval, timeout: save_timeout };
    Ok(RecordOptions {
        id,
        command,
        node,
        level,
        target: target.clone(),
        strict,
        runtime: || service::runtime(footprint::yield_processor).map_err(CliFailure::into_message),
        prepare: Box::new({
            let (hurry, clock) = (Arc::clone(&hurry), Arc::clone(&clock));
            move |patience| {
                let wanted = RunOptions {
                    service,
                    purpose,
                    job_name,
                    destination,
                    strict,
                    nodes,
                    is_tunnelled,
                    saving,
                    mpi_compiler: mpi_profile,
                    notes,
                    clock,
                };
                let mut prepared = wanted.run(patience)?;
                if let Preparation::Serve(prepared) = &mut prepared {
                    prepared.options.hurry = hurry;
                    prepared.options.protocols.proxy.own_job = Some(own_job);
                    prepared.options.collect.follow(target);
                }
                Ok(prepared)
            }
        }),
        hurry,
        save_interval,
        save_timeout,
        notes,
        clock,
        labels,
        tunnel: tunnel.map(|TunnelEnd { node, port }| (node, port)),
    })
}

/// How often a copy is brought up to date.
pub fn save_interval(text: &str) -> Result<Duration, String> {
    let interval = units::duration(text)?;
    if interval > INTERVAL_MAX {
        return Err(format!("'{text}' is more than {} s", INTERVAL_MAX.as_secs()));
    }
    Ok(interval)
}
