//! `telem node`: runs the agent of one node of a job.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, SystemClock};
use tokio::sync::watch;

use super::CliFailure;
use super::serve::stop_signals;
use super::service::{self as args, NodeServiceArgs, address};
use crate::agent::{self, AgentOptions};
use crate::config;
use crate::footprint::{raise_descriptor_limit, yield_memory, yield_processor};
use crate::join::{DragonJoin, Join, JoinError, Lifeline};
use crate::private_file::PrivateFileError;
use crate::protocols::dragon::node::{DragonOptions, DragonPort};
use crate::service::Ready;

/// How long a join file that is not there yet is waited for: agents may start before their head.
pub(crate) const JOIN_FILE_WAIT: Duration = Duration::from_secs(60);
/// How often it is looked for.
const JOIN_FILE_LOOK: Duration = Duration::from_millis(200);

/// Record one node of a job, and answer its head's queries
///
/// `telem run` starts it on every node. It samples the node, stores these samples and those of the processes on it, and
/// answers queries of the head. If the head dies, it goes on, and joins again when a head returns at the addresses of
/// the join file, which it reads again. SIGTERM flushes and closes within 5 s.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct NodeArgs {
    /// The join file that the head wrote; '-' reads it from stdin
    ///
    /// It must be readable by you alone.
    #[arg(long, value_name = "FILE")]
    join: PathBuf,
    /// Name of this node [default: the short host name]
    ///
    /// The head gives NAME-2 if another node has it.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Directory of the live database
    ///
    /// It is created if it does not exist; the default one is removed when the job is over and saved [default:
    /// ${TELEM_DATA:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}/telem-UID/JOB/NODE].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen [default: any free port]
    ///
    /// By default on loopback if the head listens there, else on all interfaces.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Name or address under which others reach this node [default: the address from which it reaches the head]
    #[arg(long, hide_short_help = true, value_name = "HOST")]
    advertise: Option<String>,
    #[command(flatten)]
    service: NodeServiceArgs,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem node --join ./job.join --data ./n1 --node n1
  ssh n2 telem node --join - < ./job.join";

const EXAMPLES: &str = "\
Examples:
  telem serve --data ./head --join-file ./job.join       # a head
  telem node --join ./job.join --data ./n1 --node n1     # a node
  ssh n2 telem node --join - < ./job.join                # another one
  telem nodes http://127.0.0.1:4242                      # all of them

Environment:
  TELEM_LOG   what to log, as in telem_engine=debug,info";

/// # Errors
/// Usage for invalid names; Failed for everything else.
pub fn run(args: NodeArgs) -> Result<(), CliFailure> {
    yield_memory();
    yield_processor();
    raise_descriptor_limit();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let (join, lifeline) = wait_for(&args.join, &*clock)?;
    let host = config::host_name();
    let node = config::node(args.node.as_deref(), &host).map_err(CliFailure::usage)?.to_ascii_lowercase();
    let data = args.data.map(|dir| std::path::absolute(&dir).unwrap_or(dir));
    let service = args.service;
    // Before the head learns of this node: the command may start then.
    let dragon = join.dragon.as_ref().and_then(claim);
    let options = AgentOptions {
        source: args.join,
        home: home(&host, data.as_deref(), args.node.as_deref()),
        join,
        lifeline,
        node,
        host,
        listen: args.listen,
        advertise: args.advertise,
        dragon: dragon.as_ref().map(|dragon| dragon.port.clone()),
        is_passing: data.is_none(),
        place: Box::new(move |join, node| match &data {
            Some(dir) => args::wanted_data(dir).map_err(CliFailure::into_message),
            None => {
                let base = join.dragon.as_ref().and_then(|dragon| dragon.data_base.as_deref());
                args::standing_data(&join.job, node, base).map_err(CliFailure::into_message)
            }
        }),
        prepare: Box::new(move |join, node, data| {
            let mut options = service.options(join, node, data).map_err(CliFailure::into_message)?;
            options.protocols.dragon.clone_from(&dragon);
            Ok(options)
        }),
        ready: Box::new(|ready: &Ready| writeln!(io::stderr(), "{ready}").unwrap_or_default()),
        clock,
    };
    let runtime = args::runtime(yield_processor)?;
    let ended = runtime.block_on(async {
        let signals = stop_signals().map_err(CliFailure::failed)?;
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            signals.await;
            stop.send_replace(true);
        });
        agent::run(options, stopped).await.map_err(CliFailure::failed)
    });
    // What hangs is left behind: the end of the process is its end.
    runtime.shutdown_background();
    writeln!(io::stderr(), "ended: {}", ended?).unwrap_or_default();
    Ok(())
}

/// Dragon's port on this node; without it the node is recorded all the same.
fn claim(wanted: &DragonJoin) -> Option<DragonOptions> {
    let DragonJoin { port, keys, data_base } = wanted.clone();
    match DragonPort::claim(port) {
        Ok(port) => Some(DragonOptions { port, keys, file: None, data_base, is_of_many: true }),
        Err(error) => {
            tracing::warn!("programs of Dragon's find no server on this node: {error}");
            None
        }
    }
}

/// What stays the same when this agent is started again, and differs from that of every other.
fn home(host: &str, data: Option<&Path>, node: Option<&str>) -> String {
    match (data, node) {
        (Some(data), _) => format!("{host}:{}", data.display()),
        (None, node) => {
            let bases = config::data_bases(config::environment);
            let base = bases.first().map(|base| base.path.display().to_string()).unwrap_or_default();
            format!("{host}:{base}:{}", node.unwrap_or_default())
        }
    }
}

fn wait_for(path: &Path, clock: &dyn Clock) -> Result<(Join, Lifeline), CliFailure> {
    loop {
        match Join::read_by_agent(path) {
            Err(JoinError::File(PrivateFileError::Read { source, .. }))
                if source.kind() == io::ErrorKind::NotFound && clock.monotonic() < JOIN_FILE_WAIT =>
            {
                std::thread::sleep(JOIN_FILE_LOOK);
            }
            join => return join.map_err(CliFailure::failed),
        }
    }
}
