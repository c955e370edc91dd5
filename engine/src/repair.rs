//! Makes a damaged database one that opens again, with everything in it that can still be read.
//!
//! A repair decides first and acts then. [`plan`] reads every file and determines what the next manifest names. Intact
//! files are kept as they are, partly damaged files are written anew from their good parts, and unreadable files are
//! left out. Each loss is reported by file, series and time, as far as these are known. [`act`] then carries the plan
//! out. It may be interrupted anywhere and run again:
//!
//! 1. The losses are stored durably in `damaged/UNFINISHED.json`.
//! 2. New files are written under unused names. Every file that will be removed is copied to `damaged/`.
//! 3. WAL files are replaced, and then the manifest, each in one rename.
//! 4. Files that the manifest no longer names are removed; their copies remain.
//!
//! A repair never guesses: a checksum proves everything that it keeps. The exception is a lost manifest or run index,
//! which held the checksums itself; then the report says so. A disk that fails to read is not damage: it ends the
//! repair with an error before anything is changed.

mod act;
mod flip;
mod plan;
mod segments;
mod series;
mod wal;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::Result;
use crate::layout::Layout;
use crate::lock::WriterLock;
use crate::options::Options;
use crate::progress::Progress;
use crate::quantity::counted;
use crate::time::Timestamp;

pub use crate::layout::DAMAGED;
pub use series::LOST_METRIC;

/// Something that a repair does, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    pub act: Act,
    /// Relative to the database.
    pub file: String,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Writes a manifest from what is there.
    RebuildManifest,
    /// Turns one bit back, as a checksum proves.
    Heal,
    /// Writes a segment anew, with all of its rows and a correct run index.
    RebuildSegment,
    /// Writes a segment anew without the rows that cannot be read.
    SalvageSegment,
    /// Writes keys of series into a new file.
    RebuildSeries,
    /// Writes a WAL file anew without the bytes that are not frames.
    RebuildWal,
    /// Keeps the file in `damaged/`; the database goes on without it.
    SetAside,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::RebuildManifest => "rebuild the manifest",
            Act::Heal => "turn one bit back, all of it is there",
            Act::RebuildSegment => "rebuild the run index, all rows are there",
            Act::SalvageSegment => "write anew what can be read",
            Act::RebuildSeries => "write the keys of series anew",
            Act::RebuildWal => "write the WAL file anew from its good frames",
            Act::SetAside => "set aside in damaged/",
        };
        write!(f, "{}: {act} ({})", self.file, self.why)
    }
}

/// Something that cannot be read any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    #[serde(flatten)]
    pub kind: LossKind,
    /// Relative to the database.
    pub file: String,
    pub why: String,
    /// How many samples, where that is known; some of them may have been written again elsewhere.
    pub samples: Option<u64>,
    /// Times between which they lie, both included, microseconds; `None` where nothing is known.
    pub first: Option<i64>,
    pub last: Option<i64>,
    /// The series that lost them; empty where that is not known: then any series may have lost some.
    pub series: Vec<LostRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LossKind {
    /// All samples of a segment.
    Segment,
    /// Samples of some series of a segment.
    Rows,
    /// Bytes of appends in the WAL, which may include metadata.
    Wal { bytes: u64 },
    /// The names of series: their samples are kept under the metric [`LOST_METRIC`].
    Names,
    /// Metadata of metrics, annotations, the job's description.
    Metadata,
}

/// A stretch of time in which a series lost samples, or its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRun {
    pub id: u32,
    /// Its key, or its number where that is lost too.
    pub series: String,
    pub first: i64,
    pub last: i64,
}

/// Series that the text names of each loss.
const NAMED_MAX: usize = 4;

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.samples.map_or("an unknown number of samples".to_owned(), |count| counted(count, "sample"));
        match self.kind {
            LossKind::Segment => write!(f, "{}: all of its {samples}", self.file)?,
            LossKind::Rows => write!(f, "{}: {samples}", self.file)?,
            LossKind::Wal { bytes } => write!(f, "{}: {bytes} bytes of appends, {samples}", self.file)?,
            LossKind::Names => write!(f, "{}: the names of {} series", self.file, self.series.len())?,
            LossKind::Metadata => write!(f, "{}: metadata of metrics, annotations and the job", self.file)?,
        }
        if let (Some(first), Some(last)) = (self.first, self.last) {
            write!(f, " from {} to {}", Timestamp::from_micros(first).utc(), Timestamp::from_micros(last).utc())?;
        }
        if !self.series.is_empty() {
            let named: Vec<&str> = self.series.iter().take(NAMED_MAX).map(|run| &*run.series).collect();
            let more = self.series.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            write!(f, " of {}{more}", named.join(", "))?;
        }
        write!(f, " ({})", self.why)
    }
}

/// What a repair did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    pub actions: Vec<Action>,
    pub losses: Vec<Loss>,
    /// What is kept although no checksum proves it.
    pub unproven: Vec<String>,
    /// Whether it was done, and not only looked at.
    pub done: bool,
    /// Where all of this stands, for later.
    pub report_file: Option<PathBuf>,
}

impl RepairReport {
    /// Whether there is nothing to repair.
    pub fn is_nothing(&self) -> bool {
        self.actions.is_empty() && self.losses.is_empty()
    }
}

/// What [`repair`] would do with the database in `dir`. Writes nothing, and may run beside a writer: then its answer
/// is that of a moment.
///
/// # Errors
/// NotFound when `dir` holds no database; Unavailable when the disk fails or a newer telem wrote it.
pub fn look(dir: &Path, options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<RepairReport> {
    Ok(plan::make(options, &Layout::new(dir), progress)?.report())
}

/// Repairs the database in `dir`. Of a sound one nothing is changed.
///
/// # Errors
/// As [`look`]; Unavailable when somebody writes the database. Run again after an error: nothing is lost by one.
pub fn repair(dir: &Path, options: &Options, progress: &mut dyn FnMut(Progress<'_>)) -> Result<RepairReport> {
    let layout = Layout::new(dir);
    // Before the lock, which would be the first file in a foreign directory.
    plan::is_database(options, &layout)?;
    let lock = WriterLock::acquire(&options.disk, &*options.machine, &layout, options.lock_claim())?;
    let done = plan::make(options, &layout, progress).and_then(|plan| act::carry_out(options, &layout, &plan, &lock));
    // What was done is done; a lock that stays is that of a dead process to the next writer.
    if let Err(error) = lock.release() {
        warn!(%error, "the writer lock stays");
    }
    done
}
