use super::*;
use crate::segment::blocks;
use crate::segment::summary::Summing;
use crate::value::Value;

const DATA: &[u8] = b"data";

fn run(series: u32, row: u32, rows: u32, first: i64, times: Times) -> NewRun {
    let last = match times {
        Times::Regular { step } => first + step * i64::from(rows - 1),
        _ => first + 1_000,
    };
    let summing = Summing::start(Value::Int(i64::from(series)), Kind::Int);
    let (kind, summary, constant) = summing.finish();
    let (first, last) = (Timestamp::from_micros(first), Timestamp::from_micros(last));
    let run = Run { series: SeriesId(series), row, rows, first, last, times, kind, constant, summary_at: 0 };
    NewRun { run, summary }
}

fn some() -> Vec<NewRun> {
    vec![
        run(7, 0, 10, 1_000, Times::Regular { step: 5 }),
        run(3, 10, 1, -4, Times::Regular { step: 0 }),
        run(u32::MAX, 11, 4, 1_001, Times::Regular { step: 6 }),
        run(0, 15, 20, 0, Times::Column),
    ]
}

fn bytes_of(runs: Vec<NewRun>) -> Vec<u8> {
    encode(runs, SharedTimes::default(), DATA.len() as u64, &blocks::checksums(DATA)).unwrap()
}

fn read(bytes: &[u8]) -> Result<RunIndex, Malformed> {
    decode(bytes, DATA.len() as u64, 35, TimeRange::ALL).map(|(index, _)| index)
}

#[test]
fn runs_come_back_as_they_were_sorted_by_series() {
    let mut bytes = bytes_of(some());
    let len = bytes.len();
    bytes.extend_from_slice(b"the footer");
    let (index, read) = decode(&bytes, DATA.len() as u64, 35, TimeRange::ALL).unwrap();
    assert_eq!(read, len);
    assert_eq!(index.checksums, blocks::checksums(DATA));
    let mut expected = some();
    expected.sort_by_key(|new| new.run.series);
    for (found, NewRun { run, summary }) in index.runs().iter().zip(&expected) {
        assert_eq!(Run { summary_at: 0, ..*found }, *run);
        assert_eq!(index.summary(found), *summary);
        assert_eq!(index.run(run.series), Some(found));
    }
    assert_eq!(index.run(SeriesId(1)), None);
}

#[test]
fn rows_in_a_range_are_counted_without_times() {
    let index = read(&bytes_of(some())).unwrap();
    let run = index.run(SeriesId(7)).unwrap();
    for (from, to, rows) in [
        (i64::MIN, i64::MAX, Some(0..10)),
        (1_000, 1_046, Some(0..10)),
        (1_001, 1_045, Some(1..9)),
        (1_005, 1_006, Some(1..2)),
        (1_006, 1_007, Some(2..2)),
        (i64::MIN, 1_000, Some(0..0)),
        (1_046, i64::MAX, Some(10..10)),
    ] {
        let range = TimeRange::new(Timestamp::from_micros(from), Timestamp::from_micros(to));
        assert_eq!(index.rows_in(run, range), rows, "{from}..{to}");
    }
    let column = index.run(SeriesId(0)).unwrap();
    let part = TimeRange::new(Timestamp::from_micros(5), Timestamp::MAX);
    assert_eq!((index.rows_in(column, TimeRange::ALL), index.rows_in(column, part)), (Some(0..20), None));
}

#[test]
fn runs_that_overlap_leave_rows_or_lie_outside_are_refused() {
    let with = |at: usize, new: NewRun| {
        let mut runs = some();
        runs[at] = new;
        runs
    };
    let gap = with(0, run(7, 0, 9, 1_000, Times::Regular { step: 5 }));
    let overlap = with(1, run(3, 9, 1, -4, Times::Regular { step: 0 }));
    let twice = with(1, run(3, 10, 2, -4, Times::Regular { step: 1 }));
    for runs in [gap, overlap, twice, some()[..3].to_vec()] {
        assert!(read(&bytes_of(runs)).is_err());
    }
    let window = TimeRange::new(Timestamp::from_micros(-4), Timestamp::from_micros(1_045));
    assert!(decode(&bytes_of(some()), DATA.len() as u64, 35, window).is_err(), "a run ends at 1,045");
    assert!(decode(&bytes_of(some()), 5, 35, TimeRange::ALL).is_err(), "the data is 4 bytes");
}

#[test]
fn a_damaged_index_is_refused_and_never_panics() {
    let bytes = bytes_of(some());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(read(&flipped).is_err(), "byte {at}, bit {bit}");
        }
        assert!(read(&bytes[..at]).is_err(), "cut at {at}");
    }
    // Past the checksum: any body must be refused or make an index.
    let body = encode_body(some(), SharedTimes::default());
    for at in 0..body.len() {
        for change in 0..=255 {
            let mut other = body.clone();
            other[at] = change;
            if let Ok((runs, _)) = decode_body(&other, 35, TimeRange::ALL) {
                assert_eq!(runs.iter().map(|run| run.rows).sum::<u32>(), 35);
            }
        }
        assert!(decode_body(&body[..at], 35, TimeRange::ALL).is_err());
    }
}

/// Room was made for as many runs as the number in front said, which ended the process.
#[test]
fn a_number_of_runs_that_the_bytes_cannot_hold_takes_no_memory() {
    let mut body = vec![0];
    varint::put(&mut body, 1 << 40);
    assert!(decode_body(&body, u64::MAX, TimeRange::ALL).is_err());
}
