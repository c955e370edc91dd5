//! The fuzz target of run indexes.

use super::*;
use crate::segment::decimal;
use crate::value::Value;

/// Runs that are looked at row by row have this many rows at most.
const LOOKED_AT_ROWS: u32 = 4 << 10;

/// `rows u32`, and then what starts with the magic is an index, whose checksum is put right; anything else is the body
/// of one. Any bytes are an error, or runs that together are all rows and that are written again as they were read.
pub fn run_index(bytes: &[u8]) {
    let Some((rows, bytes)) = bytes.split_first_chunk() else { return };
    let rows = u64::from(u32::from_le_bytes(*rows));
    if bytes.starts_with(MAGIC) {
        let mut tail = bytes.to_vec();
        seal(&mut tail);
        let data_bytes = field(&tail, 12, 8);
        match RunIndex::decode(Path::new("x.parquet"), &tail, data_bytes, rows, TimeRange::ALL) {
            Ok((index, len)) => {
                assert!(len <= tail.len());
                check(&index, rows);
            }
            Err(error) => check_error(&error, tail.len().max(1 << 20)),
        }
        return;
    }
    match decode_body(bytes, rows, TimeRange::ALL) {
        Ok((runs, lists)) => {
            check(&RunIndex { runs, lists, body: bytes.to_vec(), checksums: Vec::new() }, rows);
        }
        Err(malformed) => check_error(&malformed.corrupt(Path::new("x.parquet")), bytes.len()),
    }
}

/// Puts the checksum of an index right, if it has a place.
pub fn seal(tail: &mut [u8]) {
    let (blocks, packed) = (field(tail, 20, 4), field(tail, 28, 4));
    let at = usize::try_from(32 + blocks * 4 + packed).unwrap_or(usize::MAX);
    if at.checked_add(4).is_some_and(|end| end <= tail.len()) {
        let crc = crc32fast::hash(&tail[..at]);
        tail[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

fn field(tail: &[u8], at: usize, len: usize) -> u64 {
    let bytes = tail.get(at..at + len).unwrap_or_default();
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The byte that an error names is there.
fn check_error(error: &Error, len: usize) {
    let text = error.to_string();
    let Error::Corrupt { what, .. } = error else { panic!("{text}") };
    let at = what.strip_prefix("byte ").and_then(|rest| rest.split(' ').next()).and_then(|at| at.parse::<usize>().ok());
    assert!(at.is_some_and(|at| at <= len), "{text}");
    assert!(text.len() < 1_024, "{text}");
}

fn check(index: &RunIndex, rows: u64) {
    let runs = index.runs();
    assert!(runs.windows(2).all(|pair| pair[0].series < pair[1].series));
    assert_eq!(runs.iter().map(|run| u64::from(run.rows)).sum::<u64>(), rows);
    for run in runs {
        assert!(run.first <= run.last && run.last < Timestamp::MAX && run.rows > 0);
        assert_eq!(index.run(run.series), Some(run));
        let summary = index.summary(run);
        assert_eq!(summary.is_some(), run.summary_at != 0);
        if let Some(Summary { first, last, min, max, .. }) = summary.filter(|_| run.constant) {
            assert!(first == last && first == min && first == max);
        }
        if run.rows <= LOOKED_AT_ROWS {
            check_times(index, run);
        }
    }
    check_written(index, rows);
}

/// The rows and times of a part of the run are a part of all of them.
fn check_times(index: &RunIndex, run: &Run) {
    let Some((all, times)) = index.times(run, TimeRange::ALL) else {
        assert_eq!(run.times, Times::Column);
        return;
    };
    assert_eq!((all, times.len()), (0..run.rows as usize, run.rows as usize));
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!((times[0], times[times.len() - 1]), (run.first.micros(), run.last.micros()));
    let middle = times[times.len() / 2];
    let bounds = [i64::MIN, times[0], times[0].saturating_add(1), middle, middle.saturating_add(1), run.last.micros()];
    for start in bounds {
        for end in bounds {
            let range = TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end));
            let (rows, part) = index.times(run, range).expect("the times are known");
            assert_eq!(rows.len(), part.len());
            assert!(times.iter().filter(|time| (start..end).contains(*time)).eq(&part), "{start}..{end}");
            assert_eq!(times[rows], part);
        }
    }
}

/// What was read is written, and is the same when it is read again.
fn check_written(index: &RunIndex, rows: u64) {
    let mut lists = SharedTimes::default();
    let moved: Vec<Option<Times>> = index.lists.iter().map(|list| lists.find(list)).collect();
    let mut runs = Vec::new();
    for run in index.runs() {
        let mut run = *run;
        if let Times::Shared { list, from } = run.times {
            let Some(Some(Times::Shared { list, from: at })) = moved.get(list as usize) else { return };
            // A writer calls one or two rows regular, which share nothing; in the column they could not stand.
            if run.first == run.last {
                return;
            }
            run.times = Times::Shared { list: *list, from: at + from };
        }
        runs.push(NewRun { run, summary: index.summary(&run) });
    }
    // What a summary of scaled values says of values that are none does not come back.
    let exact = |summary: &Summary, run: &Run| match run.kind {
        Kind::Scaled(scale) => [summary.first, summary.last, summary.min, summary.max]
            .iter()
            .all(|value| matches!(value, Value::Float(float) if decimal::to_int(*float, scale).is_some())),
        _ => true,
    };
    if !runs.iter().all(|new| new.summary.as_ref().is_none_or(|summary| exact(summary, &new.run))) {
        return;
    }
    let body = encode_body(runs.clone(), lists);
    let (again, lists) = decode_body(&body, rows, TimeRange::ALL).expect("what was written can be read");
    let again = RunIndex { runs: again, lists, body, checksums: Vec::new() };
    assert_eq!(again.runs().len(), runs.len());
    for (before, after) in index.runs().iter().zip(again.runs()) {
        let without_places = |run: &Run| Run { times: Times::Column, summary_at: 0, ..*run };
        assert_eq!(without_places(after), without_places(before));
        assert_eq!(again.summary(after), index.summary(before));
        if before.rows <= LOOKED_AT_ROWS
            && let (Some(after), Some(before)) =
                (again.times(after, TimeRange::ALL), index.times(before, TimeRange::ALL))
        {
            assert_eq!(after, before);
        }
    }
}
