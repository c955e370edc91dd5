//! The log on stderr: `TELEM_LOG` where set, else as verbose as `-v` and `-q` say.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::Verbosity;
use crate::config;

pub fn start(verbosity: Verbosity) {
    let default = match (verbosity.verbose, verbosity.quiet) {
        (0, 0) => "warn",
        (1, _) => "info",
        (2.., _) => "debug",
        (_, 1) => "error",
        (_, 2..) => "off",
    };
    // DataFusion and hyper speak up only when they are asked to by name.
    let filter = match config::environment("TELEM_LOG") {
        Some(wanted) => EnvFilter::builder().parse_lossy(wanted),
        None => EnvFilter::builder().parse_lossy(format!(
            "{},telem_engine={default},telem_ingest={default},telem_query={default},telem_server={default}",
            if default == "off" { "off" } else { "error" }
        )),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}
