//! `telem proxy`: the server, with the options of Metric Proxy v2.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::CliFailure;
use super::dragon::DragonHost;
use super::proxy_options::{claim, default_socket};
use super::service::{ServiceArgs, level};
use super::{proxy_data, serve};
use crate::config;
use crate::footprint::raise_descriptor_limit;
use crate::protocols::proxy::targets::{PERIOD_MAX, PERIOD_MIN, TargetAddress};
use crate::protocols::proxy::{DEFAULT_PORT, ProxyOptions};

/// Whether who listens there listens at this port of loopback, too.
fn includes(listen: SocketAddr, port: u16) -> bool {
    let is_loopback = listen.ip().is_unspecified() || listen.ip() == Ipv4Addr::LOCALHOST;
    port != 0 && listen.port() == port && is_loopback
}

/// Take the place of a Metric Proxy v2
///
/// This is `telem serve` with the options of Metric Proxy v2. Programs that are linked against its client library, and
/// its proxy_run, find the socket; its HTTP API is at the port. Unlike the original it listens on loopback: --listen opens
/// telem's own port, where all paths of the API are as well, to those who know the token.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(mut_arg("node", |arg| arg.hide_short_help(true)), mut_arg("interval", |arg| arg.hide_short_help(true)))]
#[command(mut_arg("proxy", |arg| arg.hide(true)))]
pub struct ProxyCommandArgs {
    /// Port of its HTTP API, on loopback
    #[arg(short, long, default_value_t = DEFAULT_PORT, value_name = "PORT")]
    port: u16,
    /// Socket of its clients [default: /tmp/metric-proxy-UID.socket]
    #[arg(short, long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Directory of what is known of jobs [default: ~/.proxyprofiles]
    ///
    /// Where Metric Proxy left profiles and traces in it, they are taken over at the first start, and the database is
    /// DIR/telem/NODE, as it is by default. Else it is DIR itself, as with --data.
    #[arg(short, long, value_name = "DIR", conflicts_with = "data")]
    target_prefix: Option<PathBuf>,
    /// Period in which values become samples, in ms: 10 to 3600000
    #[arg(short = 'S', long, value_name = "MS", default_value_t = 1_000)]
    sampling_period: u64,
    /// Poll these: HOST:PORT[@MS], several with commas
    ///
    /// Other proxies and exporters of Prometheus; every 100 ms, unless MS says otherwise. They are polled again after a
    /// restart.
    #[arg(short = 's', long, value_name = "LIST", value_delimiter = ',')]
    sub_proxies: Vec<String>,
    /// Be a child of this proxy: HOST:PORT[@MS]
    ///
    /// It polls every 100 ms, unless MS says otherwise. A path may stand behind the port, as in `HOST:PORT/t/TOKEN`. While
    /// it does not answer, it is asked again.
    #[arg(short = 'r', long, value_name = "ROOT")]
    root_proxy: Option<String>,
    /// Taken and ignored: samples go by --retention-age and --retention-bytes
    #[arg(short, long, value_name = "MB", hide_short_help = true)]
    max_trace_size: Option<f64>,
    /// Keep no profiles of jobs
    #[arg(short, long, visible_alias = "inhibit-profile-agreggation", hide_short_help = true)]
    inhibit_profile_aggregation: bool,
    /// Refused: telem has no controller of the ADMIRE project
    #[arg(short = 'c', long, alias = "connect-to-intelligent-controller", hide = true)]
    admire_controller: bool,
    /// What is recorded of the node beside, and has traces: 1 nothing, 2 its hardware, 3 each interface and core, up to 4
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = level, allow_negative_numbers = true, hide_short_help = true)]
    level: u8,
    /// The job of what belongs to no other [default: SLURM_JOB_ID, or 'local']
    #[arg(long, hide_short_help = true, value_name = "ID")]
    job: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

const EXAMPLES: &str = "\
Examples:
  telem proxy
  telem proxy -p 1337 -u /tmp/proxy.sock -t ./profiles -S 500
  proxy_run -j myjob -u /tmp/proxy.sock -- ./app
  curl http://127.0.0.1:1337/job/list";

fn address(option: &str, text: &str) -> Result<(TargetAddress, Duration), CliFailure> {
    // As the original, which ends with 1.
    TargetAddress::with_period(text.trim()).map_err(|why| CliFailure::Failed(format!("{option}: {why}")))
}

/// # Errors
/// Usage for invalid options; Failed for everything else.
pub fn run(args: ProxyCommandArgs) -> Result<(), CliFailure> {
    raise_descriptor_limit();
    let ProxyCommandArgs {
        port,
        unix,
        target_prefix,
        sampling_period,
        sub_proxies,
        root_proxy,
        max_trace_size,
        inhibit_profile_aggregation,
        admire_controller,
        level,
        job,
        service: mut wanted,
    } = args;
    if admire_controller {
        return Err(CliFailure::usage(
            "-c asks for the controller of the ADMIRE project, which telem does not have; leave it out: alarms run a \
             command of yours instead",
        ));
    }
    let targets = sub_proxies.iter().map(|target| address("-s", target)).collect::<Result<Vec<_>, _>>()?;
    let root = root_proxy.map(|root| address("-r", &root)).transpose()?;
    let wanted_period = Duration::from_millis(sampling_period);
    let period = wanted_period.clamp(PERIOD_MIN, PERIOD_MAX);
    if period != wanted_period {
        let note = format!("-S {sampling_period}: values become samples every {} ms", period.as_millis());
        writeln!(io::stderr(), "{note}").unwrap_or_default();
    }
    if max_trace_size.is_some() {
        let note = "-m limits no traces here: samples go by --retention-age and --retention-bytes";
        writeln!(io::stderr(), "{note}").unwrap_or_default();
    }
    let job = config::job(job.as_deref(), config::environment).map_err(CliFailure::usage)?;
    for note in wanted.settle(DragonHost::Serve)? {
        writeln!(io::stderr(), "{note}").unwrap_or_default();
    }
    if wanted.reach.listen.is_none_or(|listen| listen.ip().is_loopback()) {
        // The original is open to all, and its children come from other machines.
        let open = format!("--listen 0.0.0.0:{port} opens it to others, who need the token");
        writeln!(io::stderr(), "only this machine reaches it; {open}").unwrap_or_default();
    }
    let uid = rustix::process::getuid().as_raw();
    // One port cannot be listened on twice.
    let is_own_port = wanted.reach.listen.is_some_and(|listen| includes(listen, port));
    let proxy = ProxyOptions {
        port: if is_own_port { None } else { Some(claim(port)?) },
        socket: Some(unix.unwrap_or_else(|| default_socket(uid))),
        period,
        has_profiles: !inhibit_profile_aggregation,
        targets,
        root,
        ..wanted.reach.proxy.options_elsewhere()
    };
    let base = wanted.data_base();
    let data =
        |_: &str, node: &str| proxy_data::settle(target_prefix.as_deref(), node, base.as_deref(), config::environment);
    let mut options = serve::shared_options(wanted, level, job, data)?;
    options.protocols.proxy = proxy;
    serve::serve(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_listened_on_anyway_is_not_taken_twice() {
        let listens = |at: &str, port| includes(at.parse().unwrap(), port);
        assert!(listens("0.0.0.0:1337", 1337) && listens("127.0.0.1:1337", 1337) && listens("[::]:1337", 1337));
        assert!(!listens("0.0.0.0:4242", 1337) && !listens("10.0.0.1:1337", 1337) && !listens("127.0.0.1:0", 0));
    }
}
