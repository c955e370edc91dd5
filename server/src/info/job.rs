//! The description of a job for people: what ran, when, and how it ended. The writer of the description chooses its
//! fields. The fields of `telem run` are known here; a field that is missing or of another type is left out.

use std::collections::{HashMap, HashSet};
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
    let described: Vec<(&Json, String)> = of_databases
        .chain(&info.job)
        .chain(info.shared_jobs.iter().map(|job| &**job))
        .map(|job| (job, line(job)))
        .collect();
    let whole = || described.iter().filter(|(job, _)| !is_id_alone(job));
    let ids: HashSet<&str> = whole().filter_map(|(job, _)| job["id"].as_str()).collect();
    let whole: HashSet<&str> = whole().map(|(_, line)| &**line).collect();
    let is_part = |job: &Json, line: &str| {
        let is_of_whole = || is_mere_id(job) && job["id"].as_str().is_some_and(|id| ids.contains(id));
        is_id_alone(job) && (whole.contains(line) || is_of_whole())
    };
    let mut told = HashSet::new();
    let lines = described.iter().filter(|(job, line)| !is_part(job, line)).map(|(_, line)| line);
    lines.filter(|line| told.insert(&***line)).cloned().collect()
}

/// A job, and the nodes whose databases say that they are its own.
#[derive(Debug)]
pub struct JobNodes<'a> {
    job: &'a Json,
    nodes: Vec<String>,
}

/// Every job whose databases these are, each once.
pub fn with_nodes(info: &Info) -> Vec<JobNodes<'_>> {
    let alone = std::slice::from_ref(info);
    let databases = if info.databases.is_empty() { alone } else { &info.databases };
    jobs_of(databases.iter().flat_map(|database| {
        let described = database.job.iter().chain(database.shared_jobs.iter().map(|job| &**job));
        described.map(|job| (&*database.node, job))
    }))
}

/// Every job that is described, each once. `described` is what the databases of nodes say.
pub fn jobs_of<'a>(described: impl IntoIterator<Item = (&'a str, &'a Json)>) -> Vec<JobNodes<'a>> {
    let mut jobs: Vec<JobNodes<'a>> = Vec::new();
    let mut places = JobPlaces::default();
    let mut seen: HashSet<(usize, &str)> = HashSet::new();
    for (node, job) in described {
        let line = line(job);
        let place = places.find(job, &line).unwrap_or(jobs.len());
        match jobs.get_mut(place) {
            Some(known) => known.job = fuller(known.job, job),
            None => jobs.push(JobNodes { job, nodes: Vec::new() }),
        }
        if seen.insert((place, node)) {
            jobs[place].nodes.push(node.to_owned());
        }
        places.note(place, job, line);
    }
    jobs
}

/// Where jobs are that were described before, so that of a thousand databases none is compared with all others. Two say
/// the same job whose lines are equal; other nodes than the head know its id alone.
#[derive(Default)]
struct JobPlaces<'a> {
    by_line: HashMap<String, usize>,
    /// The first of an id.
    by_id: HashMap<&'a str, usize>,
    /// The job of which nothing but its id is known so far: of an id there is one at most, since whoever says no more
    /// means the first.
    mere: HashMap<&'a str, usize>,
}

impl<'a> JobPlaces<'a> {
    fn find(&self, job: &'a Json, line: &str) -> Option<usize> {
        let of_id = if is_mere_id(job) { &self.by_id } else { &self.mere };
        let by_id = job["id"].as_str().and_then(|id| of_id.get(id));
        self.by_line.get(line).into_iter().chain(by_id).min().copied()
    }

    fn note(&mut self, place: usize, job: &'a Json, line: String) {
        self.by_line.entry(line).or_insert(place);
        let Some(id) = job["id"].as_str() else { return };
        if !is_mere_id(job) {
            self.mere.remove(id);
        } else if !self.by_id.contains_key(id) {
            self.mere.insert(id, place);
        }
        self.by_id.entry(id).or_insert(place);
    }
}

/// An id without a start, so that nothing tells it from other runs of that id.
fn is_mere_id(job: &Json) -> bool {
    is_id_alone(job) && !job["start"].is_string()
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

/// Where the description of a job is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptionSource {
    /// The telem that records: a job without an end runs.
    Running,
    /// A saved database: it is not known whether a job without an end runs.
    Saved,
}

impl JobNodes<'_> {
    /// A line a fact. `until` is the time of its last sample.
    pub fn write(&self, f: &mut fmt::Formatter<'_>, source: DescriptionSource, until: Option<&str>) -> fmt::Result {
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
            (None, None, None) if source == DescriptionSource::Running => "running".to_owned(),
            (None, None, None) => "no end is recorded: it was killed, or it runs".to_owned(),
        };
        let time = |text: &str| DateTime::parse_from_rfc3339(text).ok().map(|time| time.with_timezone(&Utc));
        let start = job["start"].as_str().and_then(time);
        let end = job["end"].as_str().or(until).and_then(time);
        write!(f, "state      {outcome}")?;
        if let Some((start, end)) = start.zip(end) {
            let micros = end.signed_duration_since(start).num_microseconds().unwrap_or(0).max(0);
            let after = match (job["end"].is_string(), source) {
                (true, _) => " after",
                (false, DescriptionSource::Running) => " for",
                (false, DescriptionSource::Saved) => "; last sample after",
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
