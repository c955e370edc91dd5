//! What `--proxy` means to any service: the options with which it also serves clients of Metric Proxy.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{CliFailure, units};
use crate::protocols::proxy::tree::TreeShape;
use crate::protocols::proxy::{DEFAULT_PORT, JoinPolicy, ProxyOptions};

/// Where clients of Metric Proxy look for its socket, of the user `uid`.
pub fn default_socket(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/metric-proxy-{uid}.socket"))
}

/// What Metric Proxy's clients find at any service.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Be found by clients of Metric Proxy: at 127.0.0.1:1337 and /tmp/metric-proxy-UID.socket
    ///
    /// Its paths are at the port of telem, too, and its clients may use the socket of telem.
    #[arg(long, hide_short_help = true)]
    proxy: bool,
    /// Write /metrics as Metric Proxy does, even where that misleads
    #[arg(long, hide_short_help = true)]
    proxy_exact: bool,
    /// How long profiles of jobs are kept, by default a year
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "8760h", value_parser = units::age)]
    profiles_keep: Duration,
    /// What a shell runs when an alarm is raised or ends
    ///
    /// It is told by TELEM_ALARM (the name), TELEM_ALARM_STATE (raised, cleared), and _JOB, _METRIC, _CONDITION, _VALUE and
    /// _TIME. After a minute it is killed.
    #[arg(long, hide_short_help = true, value_name = "CMD")]
    on_alarm: Option<String>,
    /// What may be added with /join: anything, what is on this machine unless the token is shown, or nothing
    #[arg(long, hide_short_help = true, value_name = "WHAT", default_value = "loopback")]
    proxy_join: JoinChoice,
    /// How many children of Metric Proxy stand below each other one [default: all stand below this server]
    #[arg(long, hide_short_help = true, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    proxy_branches: Option<u32>,
    /// Whether a path may begin with the token, /t/TOKEN/..., as of proxies that cannot send a header
    #[arg(long, hide_short_help = true, value_name = "on|off", default_value = "on")]
    proxy_token_path: TokenPathChoice,
    /// Answer such paths over plain HTTP beyond this machine, too, where others can read the token
    #[arg(long, hide_short_help = true)]
    proxy_plain: bool,
}

/// As [`JoinPolicy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum JoinChoice {
    Any,
    #[default]
    Loopback,
    None,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TokenPathChoice {
    #[default]
    On,
    Off,
}

impl Default for ProxyArgs {
    fn default() -> Self {
        let profiles_keep = ProxyOptions::default().profiles_keep;
        let (proxy_join, proxy_token_path) = Default::default();
        Self {
            proxy: false,
            proxy_exact: false,
            profiles_keep,
            proxy_join,
            proxy_branches: None,
            proxy_token_path,
            proxy_plain: false,
            on_alarm: None,
        }
    }
}

impl ProxyArgs {
    /// Takes the port.
    ///
    /// # Errors
    /// Failed when another process has it.
    pub fn options(&self) -> Result<ProxyOptions, CliFailure> {
        let uid = rustix::process::getuid().as_raw();
        Ok(ProxyOptions {
            port: if self.proxy { Some(claim(DEFAULT_PORT)?) } else { None },
            socket: self.proxy.then(|| default_socket(uid)),
            ..self.options_elsewhere()
        })
    }

    /// The same, where others say at which port and socket.
    pub fn options_elsewhere(&self) -> ProxyOptions {
        ProxyOptions {
            is_exact: self.proxy_exact,
            profiles_keep: self.profiles_keep,
            on_alarm: self.on_alarm.clone(),
            join: match self.proxy_join {
                JoinChoice::Any => JoinPolicy::Anywhere,
                JoinChoice::Loopback => JoinPolicy::Here,
                JoinChoice::None => JoinPolicy::Nobody,
            },
            shape: self.proxy_branches.map_or(TreeShape::Flat, |most| TreeShape::Branches(most as usize)),
            has_token_path: self.proxy_token_path == TokenPathChoice::On,
            is_plain: self.proxy_plain,
            ..ProxyOptions::default()
        }
    }
}

/// A port of loopback that nobody else has.
pub fn claim(port: u16) -> Result<Arc<TcpListener>, CliFailure> {
    let taken = |error: io::Error| {
        let hint = "end the Metric Proxy that runs, or name another port with telem proxy -p PORT";
        CliFailure::Failed(format!("cannot listen on 127.0.0.1:{port}: {error}; {hint}"))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(taken)?;
    listener.set_nonblocking(true).map_err(taken)?;
    Ok(Arc::new(listener))
}
