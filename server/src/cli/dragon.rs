//! `--dragon` and `--telemetry-config`: what the YAML of Dragon Telemetry means to a service of telem.
//!
//! | key | here |
//! |---|---|
//! | `tsdb_server_port` | the port of Dragon's node server; if it is taken the next free one |
//! | `aggregator_port` | the port of telem itself, unless `--listen` says one; if it is taken the next free one: a job must not stay without a record because of a number |
//! | `collector_rate` | `--interval`, unless that is given |
//! | `default_tmdb_window` | of `telem serve` what `--retention-age` is, unless that is given; of `telem run` nothing: what a job saves is not cut because of a default that was copied |
//! | `default_tmdb_dir` | what `TELEM_DATA` is, unless `--data` is given: the live data get a directory of their own below it |
//! | `delete_tmdb` | nothing: a job is saved while it runs, and stays |
//! | `remote_tunnel_node`, `remote_tunnel_port` | `--tunnel` of `telem run`, unless that is given |
//! | `dump_node`, `dump_dir` | nothing: `--save` has the samples while the job runs |
//! | `auth_key` | nothing: who needs a token needs that of the connection file, which cannot be guessed |

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::Args;

use super::CliFailure;
use crate::config;
use crate::protocols::dragon::config::{DragonConfig, KEYS, is_host};
use crate::protocols::dragon::node::{DEFAULT_PORT, DragonOptions, DragonPort};

/// Where Dragon itself is told of a YAML.
const CONFIG_VARIABLE: &str = "DRAGON_TELEMETRY_CONFIG";

/// Whether Dragon's programs are to find a server.
#[derive(Debug, Default, Args)]
pub struct DragonArgs {
    /// Take what programs of Dragon Telemetry send, at 4243
    ///
    /// It is its node server, on loopback; if the port is taken the next free one. `telem run` tells the command.
    #[arg(long, hide_short_help = true)]
    dragon: bool,
    /// The YAML of Dragon Telemetry; implies --dragon [default: $DRAGON_TELEMETRY_CONFIG if --dragon is given]
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    telemetry_config: Option<PathBuf>,
    /// What it says.
    #[arg(skip)]
    config: Option<Box<DragonConfig>>,
}

/// What kind of service the keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DragonHost {
    Run,
    Serve,
    Replay,
}

/// The other end of a tunnel, as `--tunnel NODE[:PORT]` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelEnd {
    pub node: String,
    /// `None`: the one that the service has.
    pub port: Option<u16>,
}

impl TunnelEnd {
    /// # Errors
    /// A sentence for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (node, port) = match text.rsplit_once(':') {
            Some((node, port)) => (node, Some(port.parse().ok().filter(|port| *port > 0))),
            None => (text, None),
        };
        match (is_host(node), port) {
            (true, None) => Ok(Self { node: node.to_owned(), port: None }),
            (true, Some(Some(port))) => Ok(Self { node: node.to_owned(), port: Some(port) }),
            _ => Err(format!("'{text}' is not NODE or NODE:PORT; write such as login1 or ada@login1:4242")),
        }
    }
}

impl DragonArgs {
    pub fn is_wanted(&self) -> bool {
        self.dragon || self.telemetry_config.is_some()
    }

    /// What the YAML says, if Dragon's programs are to find a server.
    ///
    /// # Errors
    /// Usage for a file that cannot be read or says something else than it should.
    pub fn read(&self) -> Result<Option<DragonConfig>, CliFailure> {
        if !self.is_wanted() {
            return Ok(None);
        }
        let of_environment = || config::environment(CONFIG_VARIABLE).map(PathBuf::from);
        let Some(path) = self.telemetry_config.clone().or_else(of_environment) else {
            return Ok(Some(DragonConfig::default()));
        };
        // Programs that run elsewhere read it too.
        let path = std::path::absolute(&path).unwrap_or(path);
        DragonConfig::read(&path).map(Some).map_err(CliFailure::usage)
    }

    /// Keeps what was read.
    pub fn settle(&mut self, config: Option<DragonConfig>) {
        self.config = config.map(Box::new);
    }

    /// What was read.
    pub fn config(&self) -> Option<&DragonConfig> {
        self.config.as_deref()
    }

    /// Takes the port.
    ///
    /// # Errors
    /// Failed when there is none.
    pub fn options(&self) -> Result<Option<DragonOptions>, CliFailure> {
        let Some(config) = &self.config else { return Ok(None) };
        let port = DragonPort::claim(config.tsdb_server_port.unwrap_or(DEFAULT_PORT)).map_err(CliFailure::failed)?;
        let file = Some(&config.path).filter(|path| !path.as_os_str().is_empty()).cloned();
        Ok(Some(DragonOptions {
            port,
            keys: config.keys.clone(),
            file,
            data_base: config.default_tmdb_dir.clone(),
            is_of_many: false,
        }))
    }
}

/// The tunnel that a YAML wants.
pub fn tunnel(config: &DragonConfig) -> Option<TunnelEnd> {
    let port = config.remote_tunnel_port.or(config.aggregator_port).filter(|port| *port > 0);
    Some(TunnelEnd { node: config.remote_tunnel_node.clone()?, port })
}

/// What the user is told of the keys: a line each for those that mean nothing here, or that drop samples.
pub fn notes(config: &DragonConfig, host: DragonHost) -> Vec<String> {
    let mut notes = Vec::new();
    let mut say = |key: &str, what: &str| notes.push(format!("{}: {key} {what}", config.path.display()));
    if config.collector_rate.is_some() && host == DragonHost::Replay {
        say("collector_rate", "has no meaning here: a replay collects nothing");
    }
    if let Some(window) = config.default_tmdb_window {
        let seconds = window.as_secs_f64();
        let what = match host {
            DragonHost::Replay => "has no meaning here: a replay drops nothing".to_owned(),
            DragonHost::Run => "has no meaning here: a job is saved whole, unless --retention-age is given".to_owned(),
            DragonHost::Serve => format!("drops samples that are {seconds} s old, unless --retention-age is given"),
        };
        say("default_tmdb_window", &what);
    }
    if config.default_tmdb_dir.is_some() && host == DragonHost::Replay {
        say("default_tmdb_dir", "has no meaning here: what is replayed is named on the command line");
    }
    if config.delete_tmdb == Some(true) {
        say("delete_tmdb", "has no meaning here: what is saved stays, and `telem rm` removes it");
    }
    if config.remote_tunnel_node.is_some() && host != DragonHost::Run {
        say("remote_tunnel_node", "has no meaning here: only `telem run` keeps a tunnel");
    }
    if config.remote_tunnel_port.is_some() && config.remote_tunnel_node.is_none() {
        say("remote_tunnel_port", "has no meaning without remote_tunnel_node");
    }
    for (key, found) in [("dump_node", &config.dump_node), ("dump_dir", &config.dump_dir)] {
        if found.is_some() {
            say(
                key,
                "has no meaning here: the samples are in a database of telem (--save, --data), which can be copied",
            );
        }
    }
    if config.auth_key.is_some() {
        say("auth_key", "has no meaning here: who needs a token needs that of the connection file, or of TELEM_TOKEN");
    }
    for key in &config.unknown {
        let hint = match key.as_str() {
            "default_tmdb_directory" => "is it to be default_tmdb_dir?".to_owned(),
            _ => format!("there are {}", KEYS.join(", ")),
        };
        notes.push(format!("warning: {}: '{key}' is no key of Dragon Telemetry; {hint}", config.path.display()));
    }
    notes
}
