//! What a segment says of itself in its footer.

use std::path::Path;

use parquet::file::metadata::FileMetaData;

use super::{FORMAT, FORMAT_SHIFTED, corrupt};
use crate::error::Result;
use crate::manifest::{FileEntry, SegmentEntry};
use crate::time::{TimeRange, Timestamp};

/// The node, the window and the flushes of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub node: String,
    pub window: TimeRange,
    pub sequence_min: u64,
    pub sequence_max: u64,
    pub rows: u64,
    /// Where its run index starts.
    pub tail: u64,
}

impl Label {
    /// What the manifest says of the same things.
    pub fn of(entry: &SegmentEntry, node: &str) -> Self {
        Self {
            node: node.to_owned(),
            window: TimeRange::new(
                Timestamp::from_micros(entry.window_start),
                Timestamp::from_micros(entry.window_end),
            ),
            sequence_min: entry.sequence_min,
            sequence_max: entry.sequence_max,
            rows: entry.rows,
            tail: entry.tail,
        }
    }

    /// The manifest's entry of a file with this label. Its first and last time are not known yet: they are the window's.
    pub fn entry(&self, file: String, bytes: &[u8]) -> SegmentEntry {
        let tail = usize::try_from(self.tail).unwrap_or(usize::MAX);
        SegmentEntry {
            file: FileEntry { file, bytes: bytes.len() as u64, crc32: crc32fast::hash(bytes) },
            rows: self.rows,
            window_start: self.window.start.micros(),
            window_end: self.window.end.micros(),
            first: self.window.start.micros(),
            last: self.window.end.micros(),
            sequence_min: self.sequence_min,
            sequence_max: self.sequence_max,
            tail: self.tail,
            tail_crc32: crc32fast::hash(bytes.get(tail..).unwrap_or_default()),
        }
    }
}

/// The label in the footer of a file of `bytes`.
///
/// # Errors
/// Corrupt when it is not of format 1.
pub fn label_in(path: &Path, footer: &FileMetaData, bytes: u64) -> Result<Label> {
    let value = |key: &str| -> Result<&str> {
        let mut pairs = footer.key_value_metadata().into_iter().flatten();
        let found = pairs.find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        found.ok_or_else(|| corrupt(path, "its Parquet footer", format!("no `{key}`"), "that of a segment"))
    };
    let wrong = |key: &str| corrupt(path, key, value(key).unwrap_or_default().to_owned(), "what format 1 says");
    if ![FORMAT, FORMAT_SHIFTED].contains(&value("telem.format")?) {
        return Err(wrong("telem.format"));
    }
    let pair = |key: &str, between: &str| value(key)?.split_once(between).ok_or_else(|| wrong(key));
    let number = |key: &str, text: &str| text.parse::<u64>().map_err(|_| wrong(key));
    let time = |text: &str| text.parse::<i64>().map(Timestamp::from_micros).map_err(|_| wrong("telem.window"));
    let (start, end) = pair("telem.window", "..")?;
    let (min, max) = pair("telem.sequence", "-")?;
    let (tail, tail_len) = pair("telem.runs", "+")?;
    let label = Label {
        node: value("telem.node")?.to_owned(),
        window: TimeRange::new(time(start)?, time(end)?),
        sequence_min: number("telem.sequence", min)?,
        sequence_max: number("telem.sequence", max)?,
        rows: number("telem.rows", value("telem.rows")?)?,
        tail: number("telem.runs", tail)?,
    };
    let index_end = label.tail.checked_add(number("telem.runs", tail_len)?);
    if index_end.is_none_or(|end| end > bytes) {
        return Err(wrong("telem.runs"));
    }
    if label.window.is_empty() {
        return Err(wrong("telem.window"));
    }
    if label.sequence_min > label.sequence_max {
        return Err(wrong("telem.sequence"));
    }
    if label.rows == 0 || i64::try_from(label.rows).ok() != Some(footer.num_rows()) {
        return Err(wrong("telem.rows"));
    }
    Ok(label)
}
