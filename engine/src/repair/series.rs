//! The keys of all series, collected from every file that holds some.
//!
//! Ids are dense, and segments and the WAL refer to series by id alone. So an id whose key is lost gets a placeholder
//! name that says so. Its samples stay readable, and a person may recognise them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use arrow::array::{Array, UInt32Array};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use crate::error::{Error, Result};
use crate::guarded::{guarded, plainly};
use crate::manifest::SeriesEntry;
use crate::segment::blocks::FileBytes;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::series_file;

/// The metric of series whose keys are lost; the tag `id` tells them apart.
pub const LOST_METRIC: &str = "telem_lost_series";

/// A series file that can be read.
#[derive(Debug)]
pub struct FoundKeys {
    pub entry: SeriesEntry,
    pub keys: Vec<SeriesKey>,
    /// False for one that a good manifest does not name: it only tells keys that are lost elsewhere.
    pub named: bool,
}

/// A stretch of the ids of the next manifest.
#[derive(Clone, Debug)]
pub enum SeriesPart {
    Kept(SeriesEntry),
    Made { first_id: u32, keys: Vec<SeriesKey> },
}

#[derive(Debug, Default)]
pub struct SeriesChain {
    pub parts: Vec<SeriesPart>,
    /// By id, without a gap.
    pub keys: Vec<SeriesKey>,
    /// Ids whose keys are unknown.
    pub lost: Vec<u32>,
}

/// The first id of a series file and its keys, as the file itself says.
///
/// # Errors
/// Corrupt.
pub fn read(path: &Path, bytes: &[u8]) -> Result<(u32, Vec<SeriesKey>)> {
    let corrupt = |found: String| Error::Corrupt {
        path: path.to_path_buf(),
        what: "its Parquet".to_owned(),
        found,
        expected: "a series file".to_owned(),
    };
    guarded(path, || {
        // Of a schema that Arrow left beside Parquet's own, see `series_file::decode_raw`.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder =
            ParquetRecordBatchReaderBuilder::try_new_with_options(FileBytes(Bytes::copy_from_slice(bytes)), options)
                .map_err(|error| corrupt(plainly(&error)))?;
        let rows = builder.metadata().file_metadata().num_rows();
        let mut reader = builder.with_batch_size(1).build().map_err(|error| corrupt(plainly(&error)))?;
        let first = reader.next().transpose().map_err(|error| corrupt(plainly(&error)))?;
        let id = first.as_ref().and_then(|batch| batch.column_by_name("id"));
        let ids = id.and_then(|column| column.as_any().downcast_ref::<UInt32Array>()).filter(|ids| !ids.is_empty());
        let first_id = ids.ok_or_else(|| corrupt("no ids".to_owned()))?.value(0);
        let count = u32::try_from(rows).map_err(|_| corrupt(format!("{rows} rows")))?;
        Ok((first_id, decode(path, bytes, first_id, count)?))
    })
}

/// The keys of a series file that the manifest knows.
///
/// # Errors
/// Corrupt.
pub fn decode(path: &Path, bytes: &[u8], first_id: u32, count: u32) -> Result<Vec<SeriesKey>> {
    let mut keys = Vec::new();
    guarded(path, || {
        series_file::decode(path, bytes.to_vec(), first_id, count, |_, key| {
            keys.push(key);
            Ok(())
        })
    })?;
    Ok(keys)
}

/// The name of a series whose key is lost.
///
/// # Errors
/// None: the name is a good one.
pub fn placeholder(id: SeriesId) -> Result<SeriesKey> {
    SeriesKey::new(LOST_METRIC, TagSet::new([("id", id.0.to_string())])?)
}

/// Files and new stretches for all ids of the named files and all below `end`; of files that start with the same id
/// the longest. `in_wal` are keys that the WAL still tells.
///
/// # Errors
/// None in practice; see [`placeholder`].
pub fn chain(found: &[FoundKeys], in_wal: &BTreeMap<u32, SeriesKey>, end: u32) -> Result<SeriesChain> {
    let mut known: BTreeMap<u32, SeriesKey> = in_wal.clone();
    let unnamed_first = found.iter().filter(|one| !one.named).chain(found.iter().filter(|one| one.named));
    for one in unnamed_first {
        known.extend((one.entry.first_id..).zip(one.keys.iter().cloned()));
    }
    let mut files: Vec<&FoundKeys> = found.iter().filter(|one| one.named && one.entry.count > 0).collect();
    files.sort_by_key(|one| (one.entry.first_id, Reverse(one.entry.count)));
    let mut chain = SeriesChain::default();
    let mut used: HashSet<SeriesKey> = HashSet::new();
    loop {
        let next = chain.keys.len() as u32;
        let mut here = files.iter().filter(|one| one.entry.first_id == next);
        if let Some(file) = here.find(|one| one.keys.iter().all(|key| !used.contains(key))) {
            used.extend(file.keys.iter().cloned());
            chain.keys.extend(file.keys.iter().cloned());
            chain.parts.push(SeriesPart::Kept(file.entry.clone()));
            continue;
        }
        let until = files.iter().map(|one| one.entry.first_id).find(|first| *first > next).unwrap_or(end);
        if until <= next {
            return Ok(chain);
        }
        let mut keys = Vec::new();
        for id in next..until {
            let key = match known.get(&id).filter(|key| !used.contains(*key)) {
                Some(key) => key.clone(),
                None => {
                    chain.lost.push(id);
                    placeholder(SeriesId(id))?
                }
            };
            used.insert(key.clone());
            keys.push(key);
        }
        chain.keys.extend(keys.iter().cloned());
        chain.parts.push(SeriesPart::Made { first_id: next, keys });
    }
}

#[cfg(test)]
mod tests;
