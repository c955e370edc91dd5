//! The answer to `stats`: a line for each number, as a `put` of it would be written.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Telnet;
use crate::service::own;

/// OpenTSDB's names for what this protocol counts, then what telem tells of itself under names of its own.
pub fn lines(telnet: &Telnet) -> String {
    let (state, counters) = (&telnet.state, &telnet.counters);
    let node = state.db.snapshot().node().to_owned();
    let seconds = state.clock.now().seconds();
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display, kind: &str| {
        let kind = if kind.is_empty() { String::new() } else { format!(" type={kind}") };
        out.push_str(&format!("{name} {seconds} {value}{kind} host={node}\n"));
    };
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let open = state.limits.telnet.connections_max.saturating_sub(telnet.places.available_permits());
    line("tsd.connectionmgr.connections", &open, "open");
    line("tsd.connectionmgr.connections", &load(&counters.connections_refused), "rejected");
    line("tsd.connectionmgr.connections", &load(&counters.connections), "total");
    line("tsd.rpc.received", &load(&counters.lines), "telnet");
    line("tsd.rpc.requests", &load(&counters.puts), "put");
    line("tsd.rpc.errors", &load(&counters.illegal_arguments), "illegal_arguments");
    line("tsd.rpc.errors", &load(&counters.invalid_values), "invalid_values");
    line("tsd.rpc.errors", &load(&counters.not_written), "storage_errors");
    if let Some(writer) = &state.writer {
        let tell = own::tell(state.db.clone(), writer.clone(), state.queries.clone());
        tell(&mut |name, value| line(name, &value, ""));
    }
    out
}
