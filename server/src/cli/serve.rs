//! `telem serve`: runs the server without a job.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::dragon::DragonHost;
use super::run::save_interval;
use super::service::{self as args, Purpose, ServiceArgs, level};
use super::{CliFailure, units};
use crate::config;
use crate::footprint::raise_descriptor_limit;
use crate::job::signals::inherited_ignored_hang_up;
use crate::saving::upload::Sharing;
use crate::service::own_job::{Former, name_job};
use crate::service::{self, HeadOptions, JobSharing, Ready, ServiceOptions};

/// Signals that come within this are one: timeout(1) sends each to the process and to its group.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Store samples and answer queries until stopped
///
/// Listens on loopback and on a Unix socket. Processes of your user and of root need no token there; other users, and
/// all clients beyond loopback, send `Authorization: Bearer TOKEN` with the token of the connection file
/// (`connection.json` in the data directory). SIGTERM, SIGHUP and Ctrl-C finish running requests, flush and
/// close.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    service: ServiceArgs,
    /// What is recorded: 1 user metrics, 2 + hardware, up to 4
    ///
    /// 1 user metrics, 2 + the node's hardware, 3 + detail, 4 + processes. Samples up to this level are stored; 0
    /// stores nothing. `--telemetry-level` is the same option.
    #[arg(long, alias = "telemetry-level", short_alias = 'T', default_value_t = 1, value_name = "N", value_parser = level, allow_negative_numbers = true)]
    level: u8,
    /// The job these samples belong to [default: SLURM_JOB_ID, or 'local']
    #[arg(long, hide_short_help = true, value_name = "ID")]
    job: Option<String>,
    /// Be the head of a job: write what `telem node --join FILE` needs
    ///
    /// The file is readable by you alone.
    #[arg(long, value_name = "FILE")]
    join_file: Option<PathBuf>,
    /// A name or address at which nodes reach this machine; may be repeated [default: all of its addresses]
    #[arg(long, hide_short_help = true, value_name = "HOST", requires = "join_file")]
    advertise: Vec<String>,
    /// How long nodes go on after this head has died
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "10m", value_parser = units::duration, requires = "join_file")]
    head_gone_timeout: Duration,
    /// Where nodes save their databases, as DIR/NODE: directly if they see DIR, else through this head
    #[arg(long, hide_short_help = true, value_name = "DIR", requires = "join_file")]
    save: Option<PathBuf>,
    /// How often nodes update their copies, up to 60s; through the head at most every 10s
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "5s", value_parser = save_interval, requires = "save")]
    save_interval: Duration,
    /// Nodes save through this head even if they see DIR, so that few processes write to a shared file system at once
    #[arg(long, hide_short_help = true, requires = "save")]
    save_through_head: bool,
    /// There is none: whoever gives a directory so is told which option takes it.
    #[arg(hide = true, value_parser = no_directory)]
    directory: Option<String>,
}

fn no_directory(text: &str) -> Result<String, String> {
    Err(format!(
        "a directory to keep samples in is given as --data {text}; a saved one is opened by `telem replay {text}`"
    ))
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem serve --data ./trial
  telem serve --data ./trial --level 2               # also samples this node
  telem serve --data ./trial --listen 0.0.0.0:4242   # all need the token";

const EXAMPLES: &str = "\
Examples:
  telem serve --data ./trial
  telem serve --data ./trial --level 2                 # also samples this node, every second
  telem serve --data ./trial --listen :0               # any free port; stderr says which
  telem serve --data ./trial --listen 0.0.0.0:4242     # all clients need the token
  telem serve --data ./trial --allow-user grafana      # the user grafana needs no token
  telem serve --data ./trial --listen 0.0.0.0:4242 --tls
  telem serve --data ./trial --join-file ./job.join    # the head of `telem node --join ./job.join`
  curl http://127.0.0.1:4242/api/put \\
    -d '{\"metric\":\"loss\",\"timestamp\":1767225600,\"value\":2.3,\"tags\":{\"rank\":\"0\"}}'

Environment:
  TELEM_TOKEN   the token to require, instead of a random one
  TELEM_LOG     what to log, as in telem_engine=debug,info";

/// # Errors
/// Usage for invalid names; Failed for everything else.
pub fn run(args: ServeArgs) -> Result<(), CliFailure> {
    raise_descriptor_limit();
    let ServeArgs {
        service: mut wanted,
        level,
        job,
        join_file,
        advertise,
        head_gone_timeout,
        save,
        save_interval,
        save_through_head,
        directory: _,
    } = args;
    let job = config::job(job.as_deref(), config::environment).map_err(CliFailure::usage)?;
    for note in wanted.settle(DragonHost::Serve)? {
        writeln!(io::stderr(), "{note}").unwrap_or_default();
    }
    let interval = wanted.interval();
    let base = wanted.data_base();
    let standing = |job: &str, node: &str| args::standing_data(job, node, base.as_deref());
    let mut options = shared_options(wanted, level, job, standing)?;
    if let (Some(dragon), Some(_)) = (&mut options.protocols.dragon, &join_file) {
        dragon.is_of_many = true;
    }
    options.head = join_file.map(|file| HeadOptions {
        join_file: Some(file),
        advertise,
        interval,
        head_gone_timeout,
        save: save.map(|dir| std::path::absolute(&dir).unwrap_or(dir)),
        save_interval,
        sharing: if save_through_head { Sharing::ThroughHead } else { Sharing::Found },
        ..HeadOptions::default()
    });
    serve(options)
}

/// The options of a service that jobs share. `default_data` is as of [`ServiceArgs::options`].
///
/// # Errors
/// Usage for invalid names; Failed for everything else.
pub(super) fn shared_options(
    wanted: ServiceArgs,
    level: u8,
    job: String,
    default_data: impl FnOnce(&str, &str) -> Result<PathBuf, CliFailure>,
) -> Result<ServiceOptions, CliFailure> {
    let mut options = wanted.options(Purpose { job, level }, default_data)?;
    options.job_sharing = JobSharing::Several;
    Ok(options)
}

/// Serves until it is told to stop.
///
/// # Errors
/// Failed.
pub(super) fn serve(options: ServiceOptions) -> Result<(), CliFailure> {
    let runtime = args::runtime(|| {})?;
    runtime.block_on(async {
        let stop = stop_signals().map_err(CliFailure::failed)?;
        let own = Some(options.job.clone()).filter(|job| job != config::NO_JOB);
        let ready = |ready: &Ready| {
            if let (Some(job), Some(_)) = (&own, &ready.writer) {
                name_job(ready.db.clone(), job.clone(), Former::Kept);
            }
            writeln!(io::stderr(), "{ready}").unwrap_or_default();
        };
        service::run_even_when_full(options, ready, stop).await.map_err(CliFailure::failed)
    })
}

/// The first SIGTERM, SIGINT or SIGHUP. Another SIGTERM or SIGINT that comes later than [`ONE_WISH`] ends the process at
/// once. A SIGHUP never does: whoever closes a session sends it behind SIGTERM. One that was ignored at the start
/// (`nohup`) stays ignored.
pub fn stop_signals() -> io::Result<impl Future<Output = ()>> {
    let mut signals = StopSignals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
        hang_up: match inherited_ignored_hang_up() {
            true => None,
            false => Some(signal(SignalKind::hangup())?),
        },
    };
    let (first, stop) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        signals.next().await;
        first.send(()).unwrap_or_default();
        let mut over = std::pin::pin!(tokio::time::sleep(ONE_WISH));
        loop {
            tokio::select! {
                () = &mut over => break,
                _ = signals.next() => {}
            }
        }
        while signals.next().await == StopWish::HungUp {}
        std::process::exit(1);
    });
    Ok(async { stop.await.unwrap_or_default() })
}

/// What asks for the end.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    /// `None` where it is ignored.
    hang_up: Option<Signal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopWish {
    Asked,
    /// The terminal is gone.
    HungUp,
}

impl StopSignals {
    async fn next(&mut self) -> StopWish {
        let Self { terminate, interrupt, hang_up } = self;
        let hung_up = async {
            match hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => StopWish::Asked,
            _ = interrupt.recv() => StopWish::Asked,
            _ = hung_up => StopWish::HungUp,
        }
    }
}
