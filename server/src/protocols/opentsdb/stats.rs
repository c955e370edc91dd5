//! `/api/stats` and telnet's `stats`: telem's counters, first under OpenTSDB's names where they count the same, then
//! under its own. The paths below it show what an operator of the original looks up: the process, its threads, the
//! queries.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::Method;
use telem_engine::Value;

use super::call::{Call, Generation};
use super::errors::OpenTsdbError;
use super::{Answer, OpenTsdb, allow, json};
use crate::self_metrics;
use crate::state::State;

/// Most threads that are listed.
pub(crate) const THREADS_MAX: usize = 1_000;

/// One number, and what tells it from others of its name.
struct StatsNumber {
    name: &'static str,
    value: String,
    kind: Option<&'static str>,
}

/// Everything that is counted.
fn numbers(tsdb: &OpenTsdb) -> Vec<StatsNumber> {
    let state = &tsdb.state;
    let mut numbers = Vec::with_capacity(48);
    let mut add =
        |name, value: u64, kind| numbers.push(StatsNumber { name, value: value.to_string(), kind: Some(kind) });
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (telnet, http) = (&tsdb.counters.telnet, &tsdb.counters.http);
    add("tsd.connectionmgr.connections", telnet.connections_open(), "open");
    add("tsd.connectionmgr.connections", load(&telnet.connections_refused), "rejected");
    add("tsd.connectionmgr.connections", load(&telnet.connections), "total");
    add("tsd.rpc.received", load(&telnet.lines), "telnet");
    add("tsd.rpc.received", load(&http.received), "http");
    add("tsd.rpc.requests", load(&telnet.puts), "put");
    add("tsd.rpc.errors", load(&telnet.illegal_arguments), "illegal_arguments");
    add("tsd.rpc.errors", load(&telnet.invalid_values), "invalid_values");
    add("tsd.rpc.errors", load(&telnet.not_written), "storage_errors");
    add("tsd.http.requests", load(&http.succeeded), "success");
    add("tsd.http.requests", load(&http.invalid), "invalid_requests");
    add("tsd.http.requests", load(&http.failed), "exceptions");
    if let Some(writer) = &state.writer {
        add("tsd.datapoints.added", writer.stats().accepted, "all");
        let tell = self_metrics::tell(state.db.clone(), writer.clone(), state.queries.clone());
        tell(&mut |name, value| {
            let value = match value {
                Value::Int(int) => int.to_string(),
                Value::Float(float) => float.to_string(),
            };
            numbers.push(StatsNumber { name, value, kind: None });
        });
    }
    numbers
}

/// A line for each number, as a `put` of it would be written.
pub fn lines(tsdb: &OpenTsdb) -> String {
    let mut out = String::new();
    for line in each_line(tsdb) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn each_line(tsdb: &OpenTsdb) -> Vec<String> {
    let state = &tsdb.state;
    let node = state.db.snapshot().node().to_owned();
    let seconds = state.clock.now().seconds();
    let line = |number: StatsNumber| {
        let kind = number.kind.map_or(String::new(), |kind| format!(" type={kind}"));
        format!("{} {seconds} {}{kind} host={node}", number.name, number.value)
    };
    numbers(tsdb).into_iter().map(line).collect()
}

pub fn answer(tsdb: &OpenTsdb, call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let mut out = Vec::new();
    match call.generation {
        Generation::Old if call.params.has("json") => {
            json::list(&mut out, each_line(tsdb), |out, line| json::string(out, &line));
        }
        Generation::Old => return Ok(Answer::text(lines(tsdb))),
        Generation::Api => {
            let state = &tsdb.state;
            let node = state.db.snapshot().node().to_owned();
            let seconds = state.clock.now().seconds();
            json::list(&mut out, numbers(tsdb), |out, number| {
                out.extend_from_slice(b"{\"metric\":");
                json::string(out, number.name);
                out.extend_from_slice(b",\"timestamp\":");
                json::int(out, seconds);
                out.extend_from_slice(b",\"value\":");
                json::string(out, &number.value);
                out.extend_from_slice(b",\"tags\":");
                let host = std::iter::once(("host", node.as_str()));
                json::string_map(out, host.chain(number.kind.map(|kind| ("type", kind))));
                out.push(b'}');
            });
        }
    }
    Ok(Answer::ok(out))
}

pub fn queries(tsdb: &OpenTsdb, call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    Ok(Answer::ok(tsdb.queries.render(tsdb.state.queries.stats().left_behind)))
}

/// telem has no storage servers behind it, and so no connections to them.
pub fn region_clients(call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    Ok(Answer::ok(b"[]".to_vec()))
}

/// Where the original tells of its Java machine: the process, as far as the kernel tells.
pub fn process(state: &State, call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load: Option<f64> = load.and_then(|text| text.split(' ').next()?.parse().ok());
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |name: &str| kilobytes(&memory, name).map_or(-1, |kilobytes| kilobytes * 1_024);
    let (now, uptime) = (state.clock.now().millis(), state.clock.monotonic());
    let uptime = i64::try_from(uptime.as_millis()).unwrap_or(i64::MAX);
    let mut out = b"{\"os\":{\"systemLoadAverage\":".to_vec();
    json::float(&mut out, load.filter(|load| load.is_finite()).unwrap_or(-1.0));
    out.extend_from_slice(b"},\"gc\":{},\"runtime\":{\"startTime\":");
    json::int(&mut out, now.saturating_sub(uptime));
    out.extend_from_slice(b",\"uptime\":");
    json::int(&mut out, uptime);
    out.extend_from_slice(b",\"vmName\":\"telem\",\"vmVendor\":\"telem\",\"vmVersion\":");
    json::string(&mut out, state.version);
    out.extend_from_slice(b"},\"memory\":{\"heapMemoryUsage\":{\"init\":-1,\"used\":");
    json::int(&mut out, bytes("VmRSS:"));
    out.extend_from_slice(b",\"committed\":");
    json::int(&mut out, bytes("VmSize:"));
    out.extend_from_slice(b",\"max\":");
    json::int(&mut out, bytes("VmHWM:"));
    out.extend_from_slice(b"}},\"pools\":{}}");
    Ok(Answer::ok(out))
}

/// The number of a line such as `VmRSS:     1234 kB`.
fn kilobytes(status: &str, name: &str) -> Option<i64> {
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The threads of the process, without what they are doing.
pub fn threads(call: &Call) -> Result<Answer, OpenTsdbError> {
    allow(call, &[Method::GET, Method::POST])?;
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().take(THREADS_MAX);
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let mut out = Vec::new();
    json::list(&mut out, stats.filter_map(|stat| Thread::parse(&stat)), |out, thread: Thread| {
        let mut head = String::new();
        // A String takes every write.
        let _ = write!(head, "{{\"threadID\":{},\"name\":", thread.id);
        out.extend_from_slice(head.as_bytes());
        json::string(out, &thread.name);
        out.extend_from_slice(b",\"state\":");
        json::string(out, thread.state);
        out.extend_from_slice(b",\"interrupted\":false,\"priority\":");
        json::int(out, thread.priority);
        out.extend_from_slice(b",\"stack\":[]}");
    });
    Ok(Answer::ok(out))
}

#[derive(Debug, PartialEq)]
struct Thread {
    id: i64,
    name: String,
    /// In the words of Java.
    state: &'static str,
    /// As the kernel counts.
    priority: i64,
}

impl Thread {
    /// `7 (name with (anything)) S 1 ...`, see proc(5).
    fn parse(stat: &str) -> Option<Thread> {
        let (id, rest) = stat.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = match fields.next()? {
            "R" => "RUNNABLE",
            "S" => "WAITING",
            "D" => "BLOCKED",
            "Z" | "X" => "TERMINATED",
            _ => "TIMED_WAITING",
        };
        // The priority is the 18th field, the state was the third.
        let priority = fields.nth(14)?.parse().ok()?;
        Some(Thread { id: id.parse().ok()?, name: name.to_owned(), state, priority })
    }
}

#[cfg(test)]
mod tests;
