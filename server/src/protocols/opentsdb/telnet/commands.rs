//! The answers to lines other than `put`.

use bytes::BytesMut;

use super::super::{describe, stats};
use super::{Telnet, lines};

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCommand {
    GoOn,
    HangUp,
}

/// Answers the line with a command. What follows the command in it counts for nothing, as in OpenTSDB.
pub fn answer(telnet: &Telnet, line: &[u8], answers: &mut BytesMut) -> AfterCommand {
    let said: &str = match lines::command(line) {
        b"exit" => return AfterCommand::HangUp,
        b"version" => &describe::version_line(telnet.state()),
        b"stats" => &stats::lines(&telnet.tsdb),
        b"help" => "available commands: put version stats help dropcaches exit\n",
        b"dropcaches" => "Caches dropped.\n",
        b"rollup" => "rollup: illegal argument: No rollup or aggregations were configured\n",
        b"histogram" => {
            "histogram: illegal argument: Histogram storage has not been enabled. Check the \
             'tsd.core.histograms.config' configuration.\n"
        }
        b"diediedie" => {
            "diediedie: illegal argument: a client does not stop this server; send SIGTERM to its process\n"
        }
        other => &format!("unknown command: {}.  Try `help'.\n", String::from_utf8_lossy(other)),
    };
    answers.extend_from_slice(said.as_bytes());
    AfterCommand::GoOn
}
