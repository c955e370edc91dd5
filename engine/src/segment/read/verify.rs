//! Verifies a whole segment against its run index and the manifest: every byte, every row.

use arrow::array::{TimestampMicrosecondArray, UInt32Array};

use super::{LoadedSegment, ValueColumns, column};
use crate::disk::ReadFile;
use crate::error::{Error, Result};
use crate::manifest::SegmentEntry;
use crate::segment::corrupt;
use crate::segment::index::Run;
use crate::segment::label::{Label, label_in};
use crate::segment::summary::Summing;
use crate::time::{TimeRange, Timestamp};

/// Bytes read at a time.
const CHECK_BYTES: usize = 1 << 20;

/// A run whose rows are being looked at.
struct Current<'a> {
    run: &'a Run,
    /// As far as they are known without the column.
    times: Option<Vec<i64>>,
    seen: u32,
    last: Timestamp,
    summing: Option<Summing>,
}

impl LoadedSegment {
    /// What the file says of itself in its footer.
    ///
    /// # Errors
    /// Corrupt when it does not.
    pub fn label(&self) -> Result<Label> {
        let footer = self.footer()?;
        label_in(&self.path, footer.metadata().file_metadata(), self.blocks.file().len())
    }

    /// Checks all bytes against `entry`, and that the columns hold what the run index says.
    ///
    /// # Errors
    /// Io; Corrupt with the first thing that is wrong.
    pub fn verify(&self, entry: &SegmentEntry) -> Result<()> {
        self.check_bytes(entry)?;
        let mut runs: Vec<&Run> = self.runs().iter().collect();
        runs.sort_unstable_by_key(|run| run.row);
        let mut runs = runs.into_iter();
        let mut current: Option<Current<'_>> = None;
        let rows = 0..usize::try_from(entry.rows).unwrap_or(usize::MAX);
        for batch in self.batches(&["series", "ts", "int", "scale", "float"], std::slice::from_ref(&rows))? {
            let batch = batch?;
            let series: &UInt32Array = column(&batch, "series", &self.path)?;
            let times: &TimestampMicrosecondArray = column(&batch, "ts", &self.path)?;
            let values = ValueColumns::of(&self.path, &batch)?;
            for row in 0..batch.num_rows() {
                let mut one = match current.take() {
                    Some(one) => one,
                    None => match runs.next() {
                        Some(run) => self.start(run),
                        None => return Err(self.wrong("a row", "one", "none: all runs have ended")),
                    },
                };
                let (value, kind) = values.value(row)?;
                self.check_row(&mut one, series.value(row), Timestamp::from_micros(times.value(row)))?;
                match &mut one.summing {
                    Some(summing) => summing.add(value, kind),
                    empty => *empty = Some(Summing::start(value, kind)),
                }
                if one.seen == one.run.rows {
                    self.check_summary(&one)?;
                } else {
                    current = Some(one);
                }
            }
        }
        match (current, runs.next()) {
            (None, None) => Ok(()),
            _ => Err(self.wrong("its rows", "an end inside a run", &entry.rows.to_string())),
        }
    }

    /// Checks that the data, which is all before the run index, is what the checksums there say.
    ///
    /// # Errors
    /// Io; Corrupt with the first block that is not.
    pub fn verify_data(&self) -> Result<()> {
        self.blocks.verify().map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => corrupt(&self.path, "its data", error.to_string(), "what was written"),
            _ => Error::io("read", &self.path)(error),
        })
    }

    fn start<'a>(&self, run: &'a Run) -> Current<'a> {
        let times = self.index.times(run, TimeRange::new(run.first, Timestamp::MAX)).map(|(_, times)| times);
        Current { run, times, seen: 0, last: Timestamp::MIN, summing: None }
    }

    fn check_row(&self, one: &mut Current<'_>, series: u32, time: Timestamp) -> Result<()> {
        let run = one.run;
        if series != run.series.0 {
            let expected = format!("series {}, as the run index says", run.series.0);
            return Err(self.wrong("the series of a row", &format!("series {series}"), &expected));
        }
        if one.seen > 0 && time <= one.last {
            let found = format!("{} after {} in series {series}", time.utc(), one.last.utc());
            return Err(self.wrong("its order", &found, "ascending times in every series"));
        }
        let expected = match &one.times {
            Some(times) => times.get(one.seen as usize).copied().map(Timestamp::from_micros),
            None if one.seen == 0 => Some(run.first),
            None if one.seen + 1 == run.rows => Some(run.last),
            None => None,
        };
        if let Some(expected) = expected.filter(|expected| *expected != time) {
            let expected = format!("{}, as the run index says of series {series}", expected.utc());
            return Err(self.wrong("the time of a row", &time.utc(), &expected));
        }
        one.last = time;
        one.seen += 1;
        Ok(())
    }

    fn check_summary(&self, one: &Current<'_>) -> Result<()> {
        let run = one.run;
        let Some(summing) = one.summing else { return Ok(()) };
        let found = summing.finish();
        let expected = (run.kind, self.index.summary(run), run.constant);
        // Zeros of either sign are equal; a summary keeps the one that came first, on both sides.
        if found == expected {
            return Ok(());
        }
        let what = format!("the values of series {}", run.series.0);
        Err(self.wrong(&what, &format!("{found:?}"), &format!("{expected:?}, as the run index says")))
    }

    fn check_bytes(&self, entry: &SegmentEntry) -> Result<()> {
        let file = self.blocks.file();
        let found = crc32_of(file, entry.file.bytes).map_err(Error::io("read", &self.path))?;
        if found == entry.file.crc32 {
            return Ok(());
        }
        Err(self.wrong("its checksum", &format!("{found:08x}"), &format!("{:08x}", entry.file.crc32)))
    }

    fn wrong(&self, what: &str, found: &str, expected: &str) -> Error {
        corrupt(&self.path, what, found.to_owned(), expected)
    }
}

fn crc32_of(file: &dyn ReadFile, bytes: u64) -> std::io::Result<u32> {
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; CHECK_BYTES];
    let mut at = 0;
    while at < bytes {
        let part = &mut buffer[..(bytes - at).min(CHECK_BYTES as u64) as usize];
        file.read_at(at, part)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(hasher.finalize())
}
