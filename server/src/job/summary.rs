//! What is told when a job has ended: what there is, where it is, and what it cost.

use std::fmt;
use std::path::PathBuf;

use telem_engine::DbInfo;

use super::footprint::Footprint;
use super::save::Saved;
use crate::info::grouped;
use crate::service::Ready;

#[derive(Debug)]
pub struct Summary {
    /// Of the closed database; `None` where it was not closed in time.
    contents: Option<DbInfo>,
    live: PathBuf,
    /// `None` where it was not to be saved.
    saved: Option<Saved>,
    footprint: Option<Footprint>,
}

impl Summary {
    pub fn of(ready: &Ready, closed: bool, saved: Option<Saved>) -> Self {
        // One that is not closed may hang in its locks.
        let contents = if closed { ready.db.info().ok() } else { None };
        Self { contents, live: ready.data.clone(), saved, footprint: Footprint::now() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.contents {
            Some(info) => {
                let (samples, series) = (grouped(info.samples), grouped(info.series));
                write!(f, "{samples} samples in {series} series, {}", bytes(info.bytes))?;
            }
            None => write!(f, "the database was not closed in time; opening it recovers everything")?,
        }
        match &self.saved {
            Some(Saved { dir, failed: None }) => write!(f, " · saved in {}", dir.display())?,
            Some(Saved { dir, failed: Some(why) }) => {
                write!(f, " · NOT all saved in {} ({why}): live data in {}", dir.display(), self.live.display())?;
            }
            None => write!(f, " · live data in {}", self.live.display())?,
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
    use super::*;

    #[test]
    fn bytes_are_told_for_people() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567, 5_000_000_000].map(bytes),
            ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB", "5.0 GB"]
        );
    }
}
