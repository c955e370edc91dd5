//! The summary at the end of a job: what it did, what was recorded, where that is, what it cost, and what to type next.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use telem_engine::DbInfo;
use telem_ingest::decode::frames::ClientTally;
use telem_ingest::writer::{Lost, WriterStats};
use telem_query::energy::JobEnergy;

use super::child::Ending;
use super::company::Tally;
use super::notes::Notes;
use super::usage::{JobUsage, NamedUsage};
use crate::footprint::Footprint;
use crate::info::{counted, energy, grouped, rfc3339};
use crate::launch::hostlist;
use crate::saving::save::Saved;
use crate::service::Ready;
use crate::shell::quoted;

/// Most names of processes that are listed.
const NAMES_TOLD: usize = 3;
/// A name is listed if it took at least this share of all processor time.
const SHARE_TOLD: f64 = 0.01;
/// Unseen processor time is listed if it is at least this share of all.
const UNSEEN_TOLD: f64 = 0.1;
/// Less processor time is not worth a word, in seconds.
const CPU_TOLD: f64 = 0.005;
/// How long a command must have run for its processor time to be shown in cores.
const CORES_TOLD: Duration = Duration::from_secs(1);

/// The same for the memory of its processes, which is seen when it is looked.
const MEMORY_TOLD: Duration = Duration::from_millis(100);

/// What became of the command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandCourse {
    /// `None` if no process was left to report it.
    pub ending: Option<Ending>,
    pub took: Duration,
    /// As the kernel added it up.
    pub cpu_ms: Option<u64>,
    /// As it was seen meanwhile.
    pub seen: JobUsage,
}

#[derive(Debug)]
pub struct JobSummary {
    /// `None` where it was not closed in time.
    contents: Option<DbInfo>,
    losses: Losses,
    /// What programs of this node took and dropped before they sent it.
    clients: ClientTally,
    live: PathBuf,
    /// `None` where it was not to be saved.
    saved: Option<Saved>,
    footprint: Option<Footprint>,
    /// Of the processor time in it what queries took, in seconds.
    query_cpu_seconds: f64,
    /// What this node took of energy, for people.
    energy: Vec<String>,
    /// What other nodes said of theirs.
    others: Option<Tally>,
    course: Option<CommandCourse>,
}

/// Whether the service ended in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceEnd {
    /// Whether or not it closed its database.
    Ended,
    /// It may hang in its locks.
    NotInTime,
}

impl JobSummary {
    pub fn of(ready: &Ready, service: ServiceEnd, saved: Option<Saved>) -> Self {
        let contents = match service {
            ServiceEnd::Ended => ready.db.info().ok(),
            ServiceEnd::NotInTime => None,
        };
        let whole = ready.db.is_closed() || saved.as_ref().is_some_and(|saved| saved.failed.is_none());
        let losses = ready.writer.as_ref().map(|writer| Losses::of(&writer.stats(), whole)).unwrap_or_default();
        Self {
            contents,
            losses,
            clients: ready.writer.as_ref().map(|writer| writer.tallies().sum()).unwrap_or_default(),
            live: ready.data.clone(),
            saved,
            footprint: Footprint::now(),
            query_cpu_seconds: 0.0,
            energy: Vec::new(),
            others: None,
            course: None,
        }
    }

    /// With what other nodes have.
    pub fn with(self, others: Option<Tally>) -> Self {
        Self { others, ..self }
    }

    /// With what became of the command.
    pub fn after(self, course: CommandCourse) -> Self {
        Self { course: Some(course), ..self }
    }

    /// With the processor time of queries, in seconds, where that is known.
    pub fn beside(self, query_cpu_seconds: Option<f64>) -> Self {
        Self { query_cpu_seconds: query_cpu_seconds.unwrap_or_default(), ..self }
    }

    /// With what this node took of energy; `None` where that was not known in time.
    pub fn costing(self, energy: Option<Vec<JobEnergy>>) -> Self {
        let Some(energy) = energy else {
            return Self { energy: vec!["it takes a moment to add up: telem info tells it".to_owned()], ..self };
        };
        let on_this_node = |text| match self.others {
            Some(Tally { nodes: 1.., .. }) => format!("{text} · on this node"),
            _ => text,
        };
        // One line, and so that of nodes also says what of it are GPUs.
        let told = [energy::of_nodes(&energy), energy::of_gpus(&energy)].into_iter().flatten();
        let line = told.collect::<Vec<_>>().join(" · ");
        Self { energy: (!line.is_empty()).then(|| on_this_node(line)).into_iter().collect(), ..self }
    }

    /// Says all of it: a line each for what is of one kind.
    pub fn tell(&self, notes: Notes) {
        for line in self.course.iter().flat_map(CommandCourse::lines) {
            notes.say(line);
        }
        match &self.saved {
            Some(Saved { failed: Some(_), .. }) => notes.error(self.recorded()),
            _ => notes.say(labelled("recorded", self.recorded())),
        }
        if let Some(dropped) = self.dropped() {
            notes.warn(labelled("dropped", dropped));
        }
        for energy in &self.energy {
            notes.say(labelled("energy", energy.clone()));
        }
        if let Some(cost) = self.cost() {
            notes.say(labelled("telem", cost));
        }
        if let Some(next) = self.next() {
            notes.say(labelled("next", next));
        }
    }

    fn live(&self) -> String {
        match self.live.is_dir() {
            true => format!("live data in {}", self.live.display()),
            false => format!("the live data in {} was removed", self.live.display()),
        }
    }

    /// What there is, and where.
    fn recorded(&self) -> String {
        let mut text = match &self.contents {
            Some(info) => {
                let others = self.others.clone().unwrap_or_default();
                let samples = counted(info.samples + others.samples, "sample");
                let series = grouped(info.series + others.series);
                let mut text = format!("{samples} in {series} series, {}", bytes(info.bytes + others.bytes));
                if others.nodes > 0 {
                    let own = usize::from(info.samples > 0);
                    text += &format!(", on {}", counted((others.nodes + own) as u64, "node"));
                }
                text
            }
            None if self.live.is_dir() => {
                "the database was not closed in time; opening it recovers what was acknowledged".to_owned()
            }
            None => "the database was not closed in time".to_owned(),
        };
        text += &self.losses.to_string();
        if let Some(Tally { unheard, .. }) = self.others.as_ref().filter(|others| !others.unheard.is_empty()) {
            let names = hostlist::fold(unheard);
            text += &format!(" · {names} did not report at the end: its earlier samples are there");
        }
        text += &match &self.saved {
            Some(Saved { dir, failed: None, .. }) => format!(" · saved in {}", dir.display()),
            Some(Saved { dir, failed: Some(why), nothing: true }) => {
                format!(" · NOTHING saved in {} ({why}): {}", dir.display(), self.live())
            }
            Some(Saved { dir, failed: Some(why), nothing: false }) => {
                format!(" · NOT all saved in {} ({why}): {}", dir.display(), self.live())
            }
            None => format!(" · {}", self.live()),
        };
        text
    }

    /// What programs dropped before they sent it; nothing where they dropped nothing.
    fn dropped(&self) -> Option<String> {
        let ClientTally { dropped_full, dropped_alone, dropped_else, .. } = self.clients;
        let elsewhere = self.others.as_ref().map_or(0, |others| others.clients_dropped);
        let kinds = [
            (dropped_full, "for want of room in the program"),
            (dropped_alone, "while there was no service"),
            (dropped_else, "for other reasons"),
            (elsewhere, "on other nodes"),
        ];
        let told = kinds.into_iter().filter(|(samples, _)| *samples > 0);
        let told: Vec<String> = told.map(|(samples, why)| format!("{} {why}", grouped(samples))).collect();
        let all = self.clients.dropped().saturating_add(elsewhere);
        (all > 0).then(|| format!("{} by the programs themselves: {}", counted(all, "sample"), told.join(", ")))
    }

    /// What telem took itself, on this node.
    fn cost(&self) -> Option<String> {
        let Footprint { cpu_seconds, memory_bytes_max } = self.footprint?;
        let memory = bytes(memory_bytes_max);
        let queries = self.query_cpu_seconds.min(cpu_seconds);
        if queries < CPU_TOLD {
            return Some(format!("took {cpu_seconds:.2} s of CPU and at most {memory}"));
        }
        let recording = cpu_seconds - queries;
        Some(format!("took {recording:.2} s of CPU to record, {queries:.2} s to answer queries, and at most {memory}"))
    }

    /// What to type to see it; nothing where nothing is left.
    fn next(&self) -> Option<String> {
        let dir = match &self.saved {
            Some(Saved { dir, failed: None, .. }) if self.others.is_some() => dir.parent().unwrap_or(dir),
            Some(Saved { dir, failed: None, .. }) => dir,
            Some(Saved { .. }) | None if self.live.is_dir() => &self.live,
            Some(Saved { .. }) | None => return None,
        };
        let here = std::env::current_dir().ok();
        let short = here.and_then(|here| dir.strip_prefix(here).ok()).filter(|short| *short != Path::new(""));
        let dir = quoted(&short.unwrap_or(dir).to_string_lossy());
        Some(format!("telem info {dir} · telem replay {dir}"))
    }
}

impl CommandCourse {
    fn lines(&self) -> Vec<String> {
        let ending = match self.ending {
            Some(Ending::Exited(code)) => format!("exit code {code}"),
            Some(Ending::Killed { signal }) => format!("killed by {}", signal_name(signal)),
            None => "its end was not observed".to_owned(),
        };
        let mut text = format!("ran {}, {ending}", span(self.took));
        let cpu = self.cpu_seconds();
        text += &format!(" · {} of CPU", seconds(cpu));
        if self.took >= CORES_TOLD {
            text += &format!(" ({:.1} cores)", cpu / self.took.as_secs_f64());
        }
        if self.took >= MEMORY_TOLD && self.seen.memory_bytes_max > 0 {
            text += &format!(" · peak memory {}", bytes(self.seen.memory_bytes_max));
        }
        let mut lines = vec![labelled("command", text)];
        lines.extend(self.dearest().map(|dearest| labelled("most CPU", dearest)));
        lines
    }

    /// What was seen counts where it is more: of processes that still run, or that no parent waited for, the kernel
    /// adds up nothing.
    fn cpu_seconds(&self) -> f64 {
        let added_up = self.cpu_ms.map_or(0.0, |ms| ms as f64 / 1e3);
        added_up.max(self.seen.cpu_seconds())
    }

    /// The processes with the most processor time, by name; `None` where there is nothing to compare.
    fn dearest(&self) -> Option<String> {
        let all = self.cpu_seconds();
        let is_told = |seconds: f64| seconds >= CPU_TOLD && seconds >= all * SHARE_TOLD;
        let named = self.seen.by_name.iter().filter(|named| is_told(named.cpu_seconds)).take(NAMES_TOLD);
        let mut told: Vec<String> = named
            .map(|NamedUsage { name, processes, cpu_seconds }| match processes {
                0 | 1 => format!("{} {}", printable(name), seconds(*cpu_seconds)),
                several => {
                    format!("{} {} ({} processes)", printable(name), seconds(*cpu_seconds), grouped(*several as u64))
                }
            })
            .collect();
        let unseen = all - self.seen.cpu_seconds();
        if unseen >= all * UNSEEN_TOLD && unseen >= CPU_TOLD && !told.is_empty() {
            told.push(format!("{} in processes that ended unseen", seconds(unseen)));
        }
        (told.len() > 1).then(|| told.join(" · "))
    }
}

/// So that the following texts are aligned.
fn labelled(label: &str, text: String) -> String {
    format!("{label:<9} {text}")
}

fn signal_name(signal: u8) -> String {
    match signal_hook::low_level::signal_name(i32::from(signal)) {
        Some(name) => format!("{name} (signal {signal})"),
        None => format!("signal {signal}"),
    }
}

/// A name that a process gave itself may hold anything.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Seconds of processor time, for people.
fn seconds(time: f64) -> String {
    match time {
        ..10.0 => format!("{time:.2} s"),
        ..600.0 => format!("{time:.1} s"),
        _ => span(Duration::from_secs_f64(time)),
    }
}

/// A time for people.
fn span(time: Duration) -> String {
    let whole = time.as_secs();
    match whole {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

/// Samples that a full disk or the like kept out of the database.
#[derive(Debug, Default, PartialEq, Eq)]
struct Losses {
    lost: Lost,
    refused: u64,
}

impl Losses {
    /// `whole`: what is in memory was written.
    fn of(stats: &WriterStats, whole: bool) -> Self {
        let lost = if whole { stats.lost } else { stats.lost.and(stats.unwritten) };
        Self { lost, refused: stats.samples_refused }
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Lost { samples, span: Some((from, to)) } = self.lost {
            write!(f, " · {} LOST from {} to {}", counted(samples, "sample"), rfc3339(from), rfc3339(to))?;
        }
        if self.refused > 0 {
            let were = if self.refused == 1 { "was" } else { "were" };
            write!(f, " · {} of clients {were} refused", counted(self.refused, "sample"))?;
        }
        Ok(())
    }
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    let (value, unit) = match count {
        0..1_000 => return counted(count, "byte"),
        1_000..1_000_000 => (count as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (count as f64 / 1e6, "MB"),
        _ => (count as f64 / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}
