//! Determines which parts of a segment file are still good.

use std::path::Path;

use bytes::Bytes;

use super::{Loss, LossKind, LostRun, flip};
use crate::error::{Error, Result};
use crate::flush;
use crate::guarded::guarded;
use crate::index::SeriesIndex;
use crate::layout;
use crate::manifest::SegmentEntry;
use crate::segment::label::Label;
use crate::segment::read::{LoadedSegment, Piece};
use crate::segment::rebuild;
use crate::segment::write::{EncodedSegment, RunValues};
use crate::segment::{Run, SegmentWriter};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};

#[derive(Debug)]
pub enum SegmentFinding {
    /// Every byte is what was written.
    Sound { entry: SegmentEntry, runs: Vec<Run> },
    /// It can be written anew, from all of it or from what is left.
    Damaged { why: String, label: Label, source: RepairSource, runs: Vec<Run>, holes: Vec<Hole> },
    /// Nothing of it can be read. Its runs are known where its run index is.
    Lost { why: String, entry: Option<SegmentEntry>, runs: Vec<Run> },
}

/// Through what a damaged segment is read.
#[derive(Clone, Debug)]
pub enum RepairSource {
    /// Its run index, as `entry` knows it; blocks that are damaged are left out.
    Runs(SegmentEntry),
    /// Parquet alone.
    Parquet(Label),
    /// The bytes of `entry` except for one bit.
    Healed(SegmentEntry),
}

/// Rows of one run that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    pub series: SeriesId,
    pub first: Timestamp,
    pub last: Timestamp,
    pub rows: u64,
}

/// Judges the segment whose bytes these are. `entry` is what the manifest says of it, if there is a manifest; then
/// checksums prove every byte that is kept. Without, the file's own label and checksums must do.
pub fn examine(path: &Path, file: &str, bytes: &Bytes, entry: Option<&SegmentEntry>, node: &str) -> SegmentFinding {
    let judged = guarded(path, || {
        Ok(match entry {
            Some(entry) => against(path, bytes, entry, node),
            None => alone(path, file, bytes),
        })
    });
    judged.unwrap_or_else(|error| SegmentFinding::Lost { why: why(&error), entry: entry.cloned(), runs: Vec::new() })
}

fn against(path: &Path, bytes: &Bytes, entry: &SegmentEntry, node: &str) -> SegmentFinding {
    let label = Label::of(entry, node);
    let whole = usize::try_from(entry.file.bytes).unwrap_or(usize::MAX);
    if let Some(runs) = healed(path, bytes, entry) {
        let (why, source) = ("one bit is not what was written".to_owned(), RepairSource::Healed(entry.clone()));
        return SegmentFinding::Damaged { why, label, source, runs, holes: Vec::new() };
    }
    let found = bytes.len();
    let bytes = &bytes.slice(..whole.min(found));
    let loaded = match rebuild::load(path, bytes, entry) {
        Ok(loaded) => loaded,
        Err(error) if data_is_whole(bytes, entry) => return without_index(path, bytes, &label, &error, Some(entry)),
        Err(error) => return SegmentFinding::Lost { why: why(&error), entry: Some(entry.clone()), runs: Vec::new() },
    };
    let runs = loaded.runs().to_vec();
    match loaded.verify(entry) {
        Ok(()) if found > whole => {
            let why = format!("its length: found {found} bytes, expected {whole}, which are all there");
            SegmentFinding::Damaged { why, label, source: RepairSource::Runs(entry.clone()), runs, holes: Vec::new() }
        }
        Ok(()) => SegmentFinding::Sound { entry: entry.clone(), runs },
        Err(error) => in_part(path, bytes, &loaded, &label, entry, &error),
    }
}

/// The runs of a file that is whole once one bit is turned back.
fn healed(path: &Path, bytes: &Bytes, entry: &SegmentEntry) -> Option<Vec<Run>> {
    let good = Bytes::from(turned_back(bytes, entry)?);
    let loaded = rebuild::load(path, &good, entry).ok()?;
    loaded.verify(entry).ok()?;
    Some(loaded.runs().to_vec())
}

fn turned_back(bytes: &Bytes, entry: &SegmentEntry) -> Option<Vec<u8>> {
    (bytes.len() as u64 == entry.file.bytes)
        .then(|| flip::turned_back(bytes, entry.file.crc32, flip::CHECKED_BYTES_MAX))
        .flatten()
}

fn alone(path: &Path, file: &str, bytes: &Bytes) -> SegmentFinding {
    let mut label = match rebuild::label(path, bytes) {
        Ok(label) => label,
        Err(error) => return SegmentFinding::Lost { why: why(&error), entry: None, runs: Vec::new() },
    };
    let mut entry = label.entry(file.to_owned(), bytes);
    let loaded = match rebuild::load(path, bytes, &entry) {
        Ok(loaded) => loaded,
        Err(error) => return without_index(path, bytes, &label, &error, None),
    };
    let runs = loaded.runs();
    entry.first = runs.iter().map(|run| run.first.micros()).min().unwrap_or(entry.first);
    entry.last = runs.iter().map(|run| run.last.micros()).max().unwrap_or(entry.last);
    // No checksum covers the label: without a manifest it has to agree with what else is known.
    let window_of_label = label.window;
    if let Some(window) = window_after_name(file, &entry, window_of_label) {
        (label.window, entry.window_start, entry.window_end) = (window, window.start.micros(), window.end.micros());
    }
    // Nor the page index and the footer, by which rows are found.
    if let Err(error) = loaded.verify(&entry).and_then(|()| loaded.verify_pages()) {
        return match loaded.verify_data() {
            Ok(()) => without_index(path, bytes, &label, &error, None),
            Err(_) => in_part(path, bytes, &loaded, &label, &entry, &error),
        };
    }
    if label.window == window_of_label {
        return SegmentFinding::Sound { entry, runs: runs.to_vec() };
    }
    let TimeRange { start, end } = window_of_label;
    let why = format!("its window: found {start} to {end}, expected that of its name and its rows");
    let runs = runs.to_vec();
    SegmentFinding::Damaged { why, label, source: RepairSource::Runs(entry), runs, holes: Vec::new() }
}

/// The window that the name of a segment states, unless it is that of the label, or the rows say something else.
fn window_after_name(file: &str, entry: &SegmentEntry, window_of_label: TimeRange) -> Option<TimeRange> {
    let (first, last) = (Timestamp::from_micros(entry.first), Timestamp::from_micros(entry.last));
    let is_it = |window: &TimeRange| window.contains(last) && layout::is_segment_over(*window, file);
    (!layout::is_segment_over(window_of_label, file)).then(|| flush::windows_with(first).find(is_it)).flatten()
}

/// Its run index is sound, and something in the data is not.
fn in_part(
    path: &Path,
    bytes: &Bytes,
    loaded: &LoadedSegment,
    label: &Label,
    entry: &SegmentEntry,
    error: &Error,
) -> SegmentFinding {
    let runs = loaded.runs().to_vec();
    let holes: Vec<Hole> = runs.iter().flat_map(|run| holes(loaded, run)).collect();
    // All blocks are what was written, and the index says something else than they: they count.
    if holes.is_empty() {
        return without_index(path, bytes, label, error, Some(entry));
    }
    let lost: u64 = holes.iter().map(|hole| hole.rows).sum();
    if lost >= entry.rows {
        return SegmentFinding::Lost { why: why(error), entry: Some(entry.clone()), runs };
    }
    SegmentFinding::Damaged {
        why: why(error),
        label: label.clone(),
        source: RepairSource::Runs(entry.clone()),
        runs,
        holes,
    }
}

/// Its data is whole, as far as is known, and its run index contradicts the data.
fn without_index(
    path: &Path,
    bytes: &Bytes,
    label: &Label,
    error: &Error,
    entry: Option<&SegmentEntry>,
) -> SegmentFinding {
    let runs = rebuild::rewrite(path, bytes, label).and_then(|encoded| runs_of(path, &encoded, label));
    match runs {
        Ok(runs) => {
            let (label, source) = (label.clone(), RepairSource::Parquet(label.clone()));
            SegmentFinding::Damaged { why: why(error), label, source, runs, holes: Vec::new() }
        }
        Err(_) => SegmentFinding::Lost { why: why(error), entry: entry.cloned(), runs: Vec::new() },
    }
}

/// Whether the bytes before the run index are what was written: the checksum of the file is that of its two parts,
/// and that of the second is known.
fn data_is_whole(bytes: &Bytes, entry: &SegmentEntry) -> bool {
    let tail = usize::try_from(entry.tail).unwrap_or(usize::MAX);
    let (Some(data), Some(tail_len)) = (bytes.get(..tail), entry.file.bytes.checked_sub(entry.tail)) else {
        return false;
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(data);
    hasher.combine(&crc32fast::Hasher::new_with_initial_len(entry.tail_crc32, tail_len));
    hasher.finalize() == entry.file.crc32
}

fn holes(loaded: &LoadedSegment, run: &Run) -> Vec<Hole> {
    let mut kept: Vec<i64> = Vec::new();
    let lost = rebuild::read_run(loaded, run, &mut |piece| {
        kept.extend(piece.times);
        Ok(())
    });
    let Ok(lost) = lost else { return Vec::new() };
    let missing = u64::from(run.rows).saturating_sub(kept.len() as u64);
    // Only the sum of the rows of several stretches is known; it is attributed to the first.
    lost.iter()
        .enumerate()
        .map(|(at, range)| Hole {
            series: run.series,
            first: range.start,
            last: range.end.saturating_add_micros(-1),
            rows: if at == 0 { missing } else { 0 },
        })
        .collect()
}

fn runs_of(path: &Path, encoded: &EncodedSegment, label: &Label) -> Result<Vec<Run>> {
    let bytes = Bytes::from(encoded.bytes.clone());
    let label = Label { tail: encoded.tail, rows: encoded.rows, ..label.clone() };
    Ok(rebuild::load(path, &bytes, &label.entry(String::new(), &bytes))?.runs().to_vec())
}

/// Writes anew what can be read of a segment, in the order of the keys that its series have now.
///
/// # Errors
/// Corrupt when even less can be read than before; Internal.
pub fn write_anew(
    path: &Path,
    bytes: &Bytes,
    label: &Label,
    source: &RepairSource,
    index: &SeriesIndex,
) -> Result<Option<EncodedSegment>> {
    let whole: Bytes;
    let loaded = match source {
        RepairSource::Healed(entry) => {
            let good = turned_back(bytes, entry)
                .ok_or_else(|| Error::Internal { what: "a bit that was found is lost".to_owned() })?;
            whole = Bytes::from(good);
            rebuild::load(path, &whole, entry)?
        }
        RepairSource::Runs(entry) => {
            let len = usize::try_from(entry.file.bytes).unwrap_or(usize::MAX);
            whole = bytes.slice(..len.min(bytes.len()));
            rebuild::load(path, &whole, entry)?
        }
        RepairSource::Parquet(label) => {
            let encoded = rebuild::rewrite(path, bytes, label)?;
            let label = Label { tail: encoded.tail, ..label.clone() };
            whole = Bytes::from(encoded.bytes);
            rebuild::load(path, &whole, &label.entry(String::new(), &whole))?
        }
    };
    let mut ids: Vec<SeriesId> = loaded.runs().iter().map(|run| run.series).collect();
    index.sort_canonical(&mut ids);
    let mut writer = SegmentWriter::new(&label.node, label.window, label.sequence_min, label.sequence_max)?;
    for id in ids {
        let Some(run) = loaded.run(id) else { continue };
        let mut whole: Option<Piece> = None;
        rebuild::read_run(&loaded, run, &mut |piece| {
            match &mut whole {
                Some(before) => before.append(piece),
                none => *none = Some(piece),
            }
            Ok(())
        })?;
        if let Some(Piece { times, values }) = &whole {
            writer.push_run(id, times, RunValues::from(values))?;
        }
    }
    writer.finish()
}

/// What is lost with the rows of `holes`.
pub fn loss_of(file: &str, why: &str, holes: &[Hole], keys: &dyn Fn(SeriesId) -> String) -> Loss {
    Loss {
        kind: LossKind::Rows,
        file: file.to_owned(),
        why: why.to_owned(),
        samples: Some(holes.iter().map(|hole| hole.rows).sum()),
        first: holes.iter().map(|hole| hole.first.micros()).min(),
        last: holes.iter().map(|hole| hole.last.micros()).max(),
        series: holes
            .iter()
            .map(|hole| LostRun {
                id: hole.series.0,
                series: keys(hole.series),
                first: hole.first.micros(),
                last: hole.last.micros(),
            })
            .collect(),
    }
}

/// What is lost with a whole segment.
pub fn loss_of_all(
    file: &str,
    why: &str,
    entry: Option<&SegmentEntry>,
    runs: &[Run],
    keys: &dyn Fn(SeriesId) -> String,
) -> Loss {
    let series = runs.iter().map(|run| LostRun {
        id: run.series.0,
        series: keys(run.series),
        first: run.first.micros(),
        last: run.last.micros(),
    });
    Loss {
        kind: LossKind::Segment,
        file: file.to_owned(),
        why: why.to_owned(),
        samples: entry.map(|entry| entry.rows),
        first: entry.map(|entry| entry.first),
        last: entry.map(|entry| entry.last),
        series: series.collect(),
    }
}

/// What an error says of a file, without the file's name.
pub fn why(error: &Error) -> String {
    match error {
        Error::Corrupt { what, found, expected, .. } => format!("{what}: found {found}, expected {expected}"),
        other => other.to_string(),
    }
}

/// Whether the rows of `runs` are in the order of their keys.
pub fn in_order(runs: &[Run], index: &SeriesIndex) -> bool {
    let mut runs: Vec<&Run> = runs.iter().collect();
    runs.sort_unstable_by_key(|run| run.row);
    let keys: Vec<_> = runs.iter().map(|run| index.key(run.series)).collect();
    keys.windows(2).all(|pair| pair[0] < pair[1])
}

/// Whether all that `other` may hold is in `one` too: it covers its window and its flushes.
pub fn covers(one: &SegmentEntry, other: &SegmentEntry) -> bool {
    one.window_start <= other.window_start
        && other.window_end <= one.window_end
        && one.sequence_min <= other.sequence_min
        && other.sequence_max <= one.sequence_max
}

/// Whether it is unknown which of two segments holds the later of two samples, because they share time and a flush.
pub fn collide(one: &SegmentEntry, other: &SegmentEntry) -> bool {
    let time = TimeRange::new(Timestamp::from_micros(one.window_start), Timestamp::from_micros(one.window_end));
    let other_time =
        TimeRange::new(Timestamp::from_micros(other.window_start), Timestamp::from_micros(other.window_end));
    !time.intersect(other_time).is_empty()
        && one.sequence_min <= other.sequence_max
        && other.sequence_min <= one.sequence_max
}
