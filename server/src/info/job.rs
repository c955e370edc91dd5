//! The description of a job for people: what ran, when, and how it ended. The writer of the description chooses its
//! fields. The fields of `telem run` are known here; a field that is missing or of another type is left out.

use std::fmt;

use chrono::{DateTime, Utc};
use serde_json::Value as Json;

use super::{Info, human};
use crate::launch::hostlist;

/// Settings and tags that are shown; `--json` has all.
const PAIRS_MAX: usize = 20;

/// A line for every job whose databases these are, the same job of several nodes once.
pub fn jobs(info: &Info) -> Vec<String> {
    let of_databases = info
        .databases
        .iter()
        .flat_map(|database| database.job.iter().chain(database.shared_jobs.iter().map(|job| &**job)));
    let mut lines: Vec<String> = Vec::new();
    let described: Vec<&Json> =
        of_databases.chain(&info.job).chain(info.shared_jobs.iter().map(|job| &**job)).collect();
    let is_part =
        |job: &Json| is_id_alone(job) && described.iter().any(|other| !is_id_alone(other) && is_same(job, other));
    for line in described.iter().filter(|job| !is_part(job)).map(|job| line(job)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A job, and the nodes whose databases say that they are its own.
#[derive(Debug)]
pub struct JobNodes<'a> {
    job: &'a Json,
    nodes: Vec<String>,
}

/// Every job whose databases these are, each once.
pub fn with_nodes(info: &Info) -> Vec<JobNodes<'_>> {
    let mut jobs: Vec<JobNodes<'_>> = Vec::new();
    let mut add = |job, node: &str| {
        let known = jobs.iter_mut().find(|known| is_same(known.job, job));
        match known {
            Some(known) if known.nodes.iter().any(|known| known == node) => {}
            Some(known) => {
                known.nodes.push(node.to_owned());
                known.job = fuller(known.job, job);
            }
            None => jobs.push(JobNodes { job, nodes: vec![node.to_owned()] }),
        }
    };
    let alone = [info];
    let databases: Vec<&Info> =
        if info.databases.is_empty() { alone.to_vec() } else { info.databases.iter().collect() };
    for database in databases {
        for job in database.job.iter().chain(database.shared_jobs.iter().map(|job| &**job)) {
            add(job, &database.node);
        }
    }
    jobs
}

/// Whether two databases are of one job. Other nodes than the head know its id alone.
fn is_same(one: &Json, other: &Json) -> bool {
    let has_start = |job: &Json| job["start"].is_string();
    line(one) == line(other)
        || one["id"] == other["id"] && (is_id_alone(one) && !has_start(one) || is_id_alone(other) && !has_start(other))
}

fn is_id_alone(job: &Json) -> bool {
    job["id"].is_string() && job["command"].is_null()
}

fn fuller<'a>(one: &'a Json, other: &'a Json) -> &'a Json {
    if is_id_alone(one) { other } else { one }
}

impl<'a> JobNodes<'a> {
    pub fn job(&self) -> &'a Json {
        self.job
    }

    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }
}

impl JobNodes<'_> {
    /// A line a fact. `runs` says of a job without an end whether it runs; `until` is the time of its last sample.
    pub fn write(&self, f: &mut fmt::Formatter<'_>, runs: bool, until: Option<&str>) -> fmt::Result {
        let Self { job, nodes } = self;
        let text = |name: &str| job[name].as_str().map(shown);
        writeln!(f, "job        {}", name(job))?;
        if let Some(name) = text("name") {
            writeln!(f, "name       {name}")?;
        }
        for field in ["settings", "tags"] {
            if let Some(pairs) = pairs(&job[field]) {
                writeln!(f, "{field:<10} {pairs}")?;
            }
        }
        let outcome = match (job["exit_code"].as_i64(), job["signal"].as_i64(), text("end")) {
            (Some(code), _, _) => format!("ended with exit code {code}"),
            (None, Some(signal), _) => format!("killed by signal {signal}"),
            (None, None, Some(_)) => "ended (how is not recorded)".to_owned(),
            (None, None, None) if runs => "running".to_owned(),
            (None, None, None) => "no end is recorded: it was killed, or it runs".to_owned(),
        };
        let time = |text: &str| DateTime::parse_from_rfc3339(text).ok().map(|time| time.with_timezone(&Utc));
        let start = job["start"].as_str().and_then(time);
        let end = job["end"].as_str().or(until).and_then(time);
        write!(f, "state      {outcome}")?;
        if let Some((start, end)) = start.zip(end) {
            let micros = end.signed_duration_since(start).num_microseconds().unwrap_or(0).max(0);
            let after = match (job["end"].is_string(), runs) {
                (true, _) => " after",
                (false, true) => " for",
                (false, false) => "; last sample after",
            };
            write!(f, "{after} {}", human::stretch(micros))?;
        }
        writeln!(f)?;
        match start {
            Some(start) => writeln!(f, "began      {} UTC", start.format("%Y-%m-%d %H:%M:%S"))?,
            None => text("start").map_or(Ok(()), |start| writeln!(f, "began      {start}"))?,
        }
        match &**nodes {
            [node] => writeln!(f, "node       {node}"),
            several => writeln!(f, "nodes      {}: {}", human::grouped(several.len() as u64), hostlist::fold(several)),
        }
    }
}

/// `lr=0.1, depth=12`, the first of many; `None` where there are none.
fn pairs(fields: &Json) -> Option<String> {
    let fields = fields.as_object().filter(|fields| !fields.is_empty())?;
    let pair = |(name, value): (&String, &Json)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={}", shown(name), shown(&value))
    };
    let mut pairs: Vec<String> = fields.iter().take(PAIRS_MAX).map(pair).collect();
    if fields.len() > PAIRS_MAX {
        pairs.push(format!("and {} more", fields.len() - PAIRS_MAX));
    }
    Some(pairs.join(", "))
}

/// Its id, and what ran.
fn name(job: &Json) -> String {
    let mut name = job["id"].as_str().map_or_else(|| "(without an id)".to_owned(), shown);
    if let Some(words) = job["command"].as_array() {
        let words: Vec<String> = words.iter().filter_map(Json::as_str).map(quoted).collect();
        name.push_str(&format!(": {}", words.join(" ")));
    }
    name
}

fn line(job: &Json) -> String {
    let text = |name: &str| job[name].as_str().map(shown);
    let mut line = name(job);
    match (text("start"), text("end")) {
        (Some(start), Some(end)) => line.push_str(&format!("; {start} to {end}")),
        (Some(start), None) => line.push_str(&format!("; since {start}, its end is not recorded")),
        _ => {}
    }
    if let Some(code) = job["exit_code"].as_i64() {
        line.push_str(&format!(", exit code {code}"));
    } else if let Some(signal) = job["signal"].as_i64() {
        line.push_str(&format!(", killed by signal {signal}"));
    }
    line
}

/// A word of a command line, in quotes where a shell would need them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-+=./:,@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", shown(&word.replace('\'', "'\\''"))),
    }
}

/// Text of somebody else's, without what would move a terminal's cursor.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
