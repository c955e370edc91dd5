//! The fuzz target of whole segments.

use std::path::Path;
use std::sync::Arc;

use super::blocks::{self, BLOCK_BYTES};
use super::index::Run;
use super::read::{LoadedSegment, Piece};
use crate::disk::InMemory;
use crate::manifest::{FileEntry, SegmentEntry};
use crate::time::{TimeRange, Timestamp};

pub use super::index::fuzzing::run_index;

/// Of a file with more rows none are read: rows that compress to nothing would take all memory.
const ROWS_MAX: u32 = 64 << 10;
const MAGIC: &[u8] = b"TELEMRUN";

/// `rows u32`, and then a file with a run index, whose checksums are put right. Any bytes are an error, or samples that
/// are the same read alone, all at once and in parts; where the file is found to be good, reading it cannot fail.
pub fn segment(bytes: &[u8]) {
    let Some((rows, bytes)) = bytes.split_first_chunk() else { return };
    let rows = u32::from_le_bytes(*rows);
    let Some(tail) = bytes.windows(MAGIC.len()).rposition(|bytes| bytes == MAGIC) else { return };
    let mut bytes = bytes.to_vec();
    seal(&mut bytes, tail);
    let entry = SegmentEntry {
        file: FileEntry {
            file: "segments/x.parquet".to_owned(),
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(&bytes),
        },
        rows: u64::from(rows),
        window_start: i64::MIN,
        window_end: i64::MAX,
        first: i64::MIN,
        last: i64::MAX,
        sequence_min: 1,
        sequence_max: 1,
        tail: tail as u64,
        tail_crc32: crc32fast::hash(&bytes[tail..]),
    };
    let Ok(loaded) = LoadedSegment::parse(Arc::new(InMemory(bytes)), Path::new("x.parquet"), &entry, None) else {
        return;
    };
    if rows <= ROWS_MAX {
        let good = loaded.verify(&entry).is_ok();
        check_rows(&loaded, good);
    }
}

/// Makes the run index at `tail` tell the truth about the bytes before it.
fn seal(bytes: &mut [u8], tail: usize) {
    let (data, index) = bytes.split_at_mut(tail);
    let checksums = blocks::checksums(data);
    debug_assert_eq!(checksums.len(), tail.div_ceil(BLOCK_BYTES));
    if let Some(data_bytes) = index.get_mut(12..20) {
        data_bytes.copy_from_slice(&(tail as u64).to_le_bytes());
    }
    let counted = index.get(20..24).is_some_and(|count| *count == (checksums.len() as u32).to_le_bytes());
    if let Some(places) = index.get_mut(32..32 + checksums.len() * 4).filter(|_| counted) {
        for (place, checksum) in places.chunks_exact_mut(4).zip(checksums) {
            place.copy_from_slice(&checksum.to_le_bytes());
        }
    }
    super::index::fuzzing::seal(index);
}

fn check_rows(loaded: &LoadedSegment, good: bool) {
    let mut runs: Vec<Run> = loaded.runs().to_vec();
    runs.sort_unstable_by_key(|run| run.row);
    let all = loaded.read(&runs, TimeRange::ALL);
    assert!(all.is_ok() || !good, "a good file cannot be read: {all:?}");
    for (at, run) in runs.iter().enumerate().take(16) {
        let alone = loaded.read(std::slice::from_ref(run), TimeRange::ALL);
        let last = loaded.last(run);
        let middle = run.first.micros().midpoint(run.last.micros());
        let half = TimeRange::new(Timestamp::from_micros(middle), Timestamp::MAX);
        let part = loaded.read(std::slice::from_ref(run), half);
        let has_half = loaded.has_row(run, half);
        if !good {
            continue;
        }
        let piece = &all.as_ref().expect("seen above")[at];
        check_piece(run, piece);
        let alone = alone.expect("it can be read").remove(0);
        assert_eq!(alone.times, piece.times);
        assert!(alone.values.iter().eq(piece.values.iter()), "{run:?}");
        assert_eq!(last.expect("it can be read").map(|(time, _)| time), Some(run.last));
        let from = piece.times.partition_point(|time| *time < middle);
        let part = part.expect("it can be read").remove(0);
        assert_eq!(part.times, piece.times[from..]);
        assert!(part.values.iter().eq(piece.values.iter().skip(from)));
        assert_eq!(has_half.ok(), Some(!part.times.is_empty()));
    }
}

fn check_piece(run: &Run, piece: &Piece) {
    assert_eq!((piece.times.len(), piece.values.len()), (run.rows as usize, run.rows as usize));
    assert!(piece.times.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(piece.times.first(), Some(&run.first.micros()));
    assert_eq!(piece.times.last(), Some(&run.last.micros()));
}
