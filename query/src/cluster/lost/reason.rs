//! The reason for the loss of a node, as a sentence for users; errors of libraries are structures for their authors.

use std::error::Error;
use std::io::{self, ErrorKind};

use datafusion::error::DataFusionError;
use tonic::{Code, Status};

use crate::error::crossing::Crossing;

const REFUSED: &str = "nothing listens there (connection refused)";
const BROKE: &str = "its connection broke";
const CLOSED: &str = "its connection was closed";
const SILENT: &str = "it does not answer";
const NO_SIGN: &str = "it does not answer (no sign of life on its connection)";
const UNREADABLE: &str = "its connection failed: what it says cannot be read";
const NO_WAY: &str = "its address cannot be reached from here";

/// What an error says of the node that it came from.
pub(in crate::cluster) fn reason(error: &DataFusionError) -> String {
    if let Some(told) = Crossing::of(error) {
        return told.reason;
    }
    match error.find_root() {
        DataFusionError::External(inner) => why(&**inner),
        DataFusionError::IoError(inner) => why(inner),
        root => known(&root.message()).map_or_else(|| plain(&root.message()), str::to_owned),
    }
}

/// The first cause that says something: the system's where there is one, which is the innermost.
pub(in crate::cluster) fn why(error: &(dyn Error + 'static)) -> String {
    let causes: Vec<&(dyn Error + 'static)> = std::iter::successors(Some(error), |error| (*error).source()).collect();
    let of_system = causes.iter().rev().filter_map(|cause| cause.downcast_ref::<io::Error>()).find_map(of_io);
    let of_text = || causes.iter().rev().find_map(|cause| known(&cause.to_string()));
    let of_status = || causes.iter().find_map(|cause| cause.downcast_ref::<Status>()).map(of_status);
    let innermost = || plain(&causes.last().map_or_else(String::new, ToString::to_string));
    of_system.or_else(of_text).map(str::to_owned).or_else(of_status).unwrap_or_else(innermost)
}

fn of_io(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => REFUSED,
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => BROKE,
        ErrorKind::UnexpectedEof | ErrorKind::NotConnected => CLOSED,
        ErrorKind::TimedOut => SILENT,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => NO_WAY,
        _ => return None,
    })
}

/// tonic's message for a malformed answer.
fn of_status(status: &Status) -> String {
    match status.code() {
        Code::Unavailable | Code::Aborted | Code::DataLoss => CLOSED.to_owned(),
        Code::DeadlineExceeded => SILENT.to_owned(),
        Code::Cancelled => "it gave the question up".to_owned(),
        Code::Unauthenticated | Code::PermissionDenied => "it does not accept the token of this job".to_owned(),
        Code::Unimplemented => "it does not know this question; it may run another version of telem".to_owned(),
        _ => plain(status.message()),
    }
}

/// Where nothing but words is left, above all of errors that crossed a network.
fn known(text: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 16] = [
        ("KeepAliveTimedOut", NO_SIGN),
        ("keep-alive timed out", NO_SIGN),
        ("Connection refused", REFUSED),
        ("connection refused", REFUSED),
        ("broken pipe", BROKE),
        ("Broken pipe", BROKE),
        ("connection reset", BROKE),
        ("Connection reset", BROKE),
        ("error reading a body from connection", BROKE),
        ("connection closed", CLOSED),
        ("channel closed", CLOSED),
        ("deadline has elapsed", SILENT),
        ("Timeout expired", SILENT),
        ("No route to host", NO_WAY),
        ("h2 protocol error", UNREADABLE),
        ("http2 error", UNREADABLE),
    ];
    KNOWN.iter().find(|(words, _)| text.contains(words)).map(|(_, reason)| *reason)
}

/// The first line, unless it is a structure: then only that there was an error.
fn plain(text: &str) -> String {
    const SIGNS: [&str; 7] = ["{", "::", "Some(", "Error(", "Kind(", "code: ", "source: "];
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.is_empty() || SIGNS.iter().any(|sign| line.contains(sign)) {
        true => "its connection failed".to_owned(),
        false => super::shortened(line),
    }
}

#[cfg(test)]
mod tests;
