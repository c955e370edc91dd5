//! What is told when a job has ended: what there is, where it is, and what it cost.

use std::fmt;
use std::path::PathBuf;

use telem_engine::DbInfo;
use telem_ingest::writer::{Lost, WriterStats};

use super::company::Tally;
use super::footprint::Footprint;
use super::save::Saved;
use crate::info::{grouped, rfc3339};
use crate::launch::hostlist;
use crate::service::Ready;

#[derive(Debug)]
pub struct Summary {
    /// `None` where it was not closed in time.
    contents: Option<DbInfo>,
    losses: Losses,
    live: PathBuf,
    /// `None` where it was not to be saved.
    saved: Option<Saved>,
    footprint: Option<Footprint>,
    /// What other nodes said of theirs.
    others: Option<Tally>,
}

impl Summary {
    /// `ended`: the service has, whether or not it closed its database.
    pub fn of(ready: &Ready, ended: bool, saved: Option<Saved>) -> Self {
        // One that has not may hang in its locks.
        let contents = if ended { ready.db.info().ok() } else { None };
        let whole = ready.db.is_closed() || saved.as_ref().is_some_and(|saved| saved.failed.is_none());
        let losses = ready.writer.as_ref().map(|writer| Losses::of(&writer.stats(), whole)).unwrap_or_default();
        Self { contents, losses, live: ready.data.clone(), saved, footprint: Footprint::now(), others: None }
    }

    /// With what other nodes have.
    pub fn with(self, others: Option<Tally>) -> Self {
        Self { others, ..self }
    }
}

impl Summary {
    fn live(&self) -> String {
        match self.live.is_dir() {
            true => format!("live data in {}", self.live.display()),
            false => format!("the live data in {} were removed", self.live.display()),
        }
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
            write!(f, " · {} samples LOST from {} to {}", grouped(samples), rfc3339(from), rfc3339(to))?;
        }
        if self.refused > 0 {
            write!(f, " · {} samples of clients were refused", grouped(self.refused))?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.contents {
            Some(info) => {
                let others = self.others.clone().unwrap_or_default();
                let samples = grouped(info.samples + others.samples);
                let series = grouped(info.series + others.series);
                write!(f, "{samples} samples in {series} series, {}", bytes(info.bytes + others.bytes))?;
                if others.nodes > 0 {
                    let own = usize::from(info.samples > 0);
                    write!(f, ", on {} nodes", grouped((others.nodes + own) as u64))?;
                }
            }
            None if self.live.is_dir() => {
                write!(f, "the database was not closed in time; opening it recovers what was acknowledged")?;
            }
            None => write!(f, "the database was not closed in time")?,
        }
        write!(f, "{}", self.losses)?;
        if let Some(Tally { unheard, .. }) = self.others.as_ref().filter(|others| !others.unheard.is_empty()) {
            let names = hostlist::fold(unheard);
            write!(f, " · of {names} nothing was heard at the end: what it sent before is there")?;
        }
        match &self.saved {
            Some(Saved { dir, failed: None, .. }) => write!(f, " · saved in {}", dir.display())?,
            Some(Saved { dir, failed: Some(why), nothing: true }) => {
                write!(f, " · NOTHING saved in {} ({why}): {}", dir.display(), self.live())?;
            }
            Some(Saved { dir, failed: Some(why), nothing: false }) => {
                write!(f, " · NOT all saved in {} ({why}): {}", dir.display(), self.live())?;
            }
            None => write!(f, " · {}", self.live())?,
        }
        if let Some(Footprint { cpu_seconds, memory_bytes_max }) = self.footprint {
            write!(f, " · telem took {cpu_seconds:.2} s of CPU and at most {}", bytes(memory_bytes_max))?;
        }
        Ok(())
    }
}

/// Bytes for people.
fn bytes(count: u64) -> String {
    let (value, unit) = match count {
        0..1_000 => return format!("{count} bytes"),
        1_000..1_000_000 => (count as f64 / 1e3, "kB"),
        1_000_000..1_000_000_000 => (count as f64 / 1e6, "MB"),
        _ => (count as f64 / 1e9, "GB"),
    };
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use telem_engine::Timestamp;

    use super::*;

    #[test]
    fn bytes_are_told_for_people() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567, 5_000_000_000].map(bytes),
            ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5.0 GB"]
        );
    }

    #[test]
    fn lost_samples_are_told_with_their_times_and_those_in_memory_where_it_was_not_written() {
        let span = |from, to| Some((Timestamp::from_seconds(from), Timestamp::from_seconds(to)));
        let stats = WriterStats {
            lost: Lost { samples: 1_000, span: span(0, 60) },
            unwritten: Lost { samples: 20, span: span(90, 100) },
            samples_refused: 7,
            ..WriterStats::default()
        };
        assert_eq!(
            Losses::of(&stats, true).to_string(),
            " · 1,000 samples LOST from 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z · 7 samples of clients were refused"
        );
        let all = Losses::of(&stats, false).to_string();
        assert!(all.contains("1,020 samples LOST from 1970-01-01T00:00:00Z to 1970-01-01T00:01:40Z"), "{all}");
        assert_eq!(Losses::of(&WriterStats::default(), false).to_string(), "");
    }
}
