use super::index::NewRun;
use super::read::LoadedSegment;
use super::summary::{Kind, Sum};
use super::times::Times;
use super::*;
use crate::disk::{Disk, OsDisk, ReadFile};
use crate::error::{Error, Result};
use crate::manifest::{FileEntry, SegmentEntry};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

use arrow::array::{ArrayRef, Float64Array, Int8Array, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use proptest::collection::vec;
use proptest::prelude::*;

type Samples = Vec<(Timestamp, Value)>;

fn samples(range: std::ops::Range<i64>, value: impl Fn(i64) -> Value) -> Samples {
    range.map(|at| (Timestamp::from_micros(at), value(at))).collect()
}

fn write(runs: &[(u32, Samples)]) -> (Vec<u8>, SegmentEntry) {
    let mut writer = SegmentWriter::new("nid001", TimeRange::ALL, 3, 3).unwrap();
    for (series, samples) in runs {
        writer.push(SeriesId(*series), samples).unwrap();
    }
    let encoded = writer.finish().unwrap().unwrap();
    let mut entry = entry(&encoded.bytes, encoded.rows);
    (entry.tail, entry.tail_crc32) = (encoded.tail, encoded.tail_crc32);
    assert_eq!(entry.rows, runs.iter().map(|(_, samples)| samples.len() as u64).sum::<u64>());
    (encoded.bytes, entry)
}

fn entry(bytes: &[u8], rows: u64) -> SegmentEntry {
    SegmentEntry {
        file: FileEntry {
            file: "segments/x.parquet".to_owned(),
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(bytes),
        },
        rows,
        window_start: i64::MIN,
        window_end: i64::MAX,
        first: i64::MIN,
        last: i64::MAX,
        sequence_min: 3,
        sequence_max: 3,
        tail: 0,
        tail_crc32: 0,
    }
}

fn open(bytes: &[u8], entry: &SegmentEntry) -> Result<LoadedSegment> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, bytes).unwrap();
    LoadedSegment::open(&OsDisk, &path, entry)
}

fn read_in(loaded: &LoadedSegment, series: &[u32], range: TimeRange) -> Vec<Samples> {
    let runs: Vec<Run> = series.iter().map(|series| *loaded.run(SeriesId(*series)).unwrap()).collect();
    let pieces = loaded.read(&runs, range).unwrap();
    let samples = |piece: super::read::Piece| -> Samples {
        let times: Vec<Timestamp> = piece.times.into_iter().map(Timestamp::from_micros).collect();
        assert_eq!(times.len(), piece.values.len());
        times.into_iter().zip(piece.values.iter()).collect()
    };
    pieces.into_iter().map(samples).collect()
}

fn read(loaded: &LoadedSegment, series: &[u32]) -> Vec<Samples> {
    read_in(loaded, series, TimeRange::ALL)
}

/// Writes `runs`, and reads them back whole, in parts and by the check.
fn round_trip(runs: &[(u32, Samples)]) -> LoadedSegment {
    let (bytes, entry) = write(runs);
    let loaded = open(&bytes, &entry).unwrap();
    loaded.verify(&entry).unwrap();
    let ids: Vec<u32> = runs.iter().map(|(series, _)| *series).collect();
    let all: Vec<Samples> = runs.iter().map(|(_, samples)| samples.clone()).collect();
    assert!(read(&loaded, &ids) == all, "all runs at once");
    for (series, samples) in runs {
        assert!(read(&loaded, &[*series])[0] == *samples, "series {series}");
        let (first, last) = (samples[0].0, samples[samples.len() - 1].0);
        let middle = samples[samples.len() / 2].0;
        let after = |time: Timestamp| time.saturating_add_micros(1);
        for (from, to) in [(first, middle), (middle, after(last)), (after(first), last), (after(last), Timestamp::MAX)]
        {
            let range = TimeRange::new(from, to);
            let expected: Samples = samples.iter().filter(|(time, _)| range.contains(*time)).copied().collect();
            let run = loaded.run(SeriesId(*series)).unwrap();
            assert_eq!(loaded.has_row(run, range).unwrap(), !expected.is_empty(), "series {series} in {range:?}");
            assert!(loaded.rows_in(run, range) >= expected.len() as u64);
            assert!(read_in(&loaded, &[*series], range)[0] == expected, "series {series} in {range:?}");
        }
        let run = loaded.run(SeriesId(*series)).unwrap();
        assert_eq!(loaded.last(run).unwrap(), samples.last().copied());
    }
    loaded
}

#[test]
fn any_choice_of_series_is_read_back_bit_for_bit() {
    let odd = [f64::NAN, -0.0, f64::INFINITY, 5e-324].map(Value::Float);
    let runs = [
        (9, samples(0..3, |at| odd[at as usize])),
        (2, samples(-40_000..1, |at| if at % 3 == 0 { Value::Int(at) } else { Value::Float(at as f64) })),
        (4, samples(7..8, |_| Value::Int(i64::MIN))),
        (0, samples(0..17_000, |at| Value::Int(if at % 2 == 0 { i64::MAX } else { i64::MIN }))),
    ];
    let (bytes, entry) = write(&runs);
    let loaded = open(&bytes, &entry).unwrap();
    assert_eq!(loaded.runs().len(), 4);
    assert!(loaded.run(SeriesId(1)).is_none());
    for choice in [vec![9], vec![2], vec![4], vec![0], vec![9, 4], vec![9, 0], vec![2, 4], vec![9, 2, 4, 0]] {
        let expected: Vec<_> =
            choice.iter().map(|id| runs.iter().find(|(series, _)| series == id).unwrap().1.clone()).collect();
        assert_eq!(read(&loaded, &choice), expected, "{choice:?}");
    }
    assert_eq!(read(&loaded, &[]), Vec::<Samples>::new());
    let run = loaded.run(SeriesId(2)).unwrap();
    assert_eq!((run.first.micros(), run.last.micros(), run.rows), (-40_000, 0, 40_001));
}

/// The label of a file.
fn format_of(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let at = text.find("telem.format").unwrap() + "telem.format".len();
    text[at..].chars().find(char::is_ascii_digit).unwrap().to_string()
}

#[test]
fn integers_without_low_bits_are_stored_without_them() {
    // Memory in use, in pages: a walk of 10 bits or so.
    let walk = |unit: i64| samples(0..50_000, move |at| Value::Int((1_000_000 + (at * 7_919) % 1_024) * unit));
    let of_pages = [(0, walk(4_096))];
    let loaded = round_trip(&of_pages);
    let run = loaded.run(SeriesId(0)).unwrap();
    assert_eq!(run.kind, Kind::Shifted(12));
    let summary = loaded.summary(run).unwrap();
    let values: Vec<i64> = of_pages[0].1.iter().map(|(_, value)| value.as_f64() as i64).collect();
    assert_eq!(summary.min, Value::Int(*values.iter().min().unwrap()));
    assert_eq!(summary.max, Value::Int(*values.iter().max().unwrap()));
    assert_eq!(summary.sum, Sum::Int(values.iter().map(|value| i128::from(*value)).sum()));

    let (pages, ones) = (write(&of_pages).0, write(&[(0, walk(1))]).0);
    assert_eq!((&*format_of(&pages), &*format_of(&ones)), ("2", "1"));
    // A row less than a bit more than of the walk itself.
    assert!(pages.len() < ones.len() + 50_000 / 8, "{} bytes, and {}", pages.len(), ones.len());
}

#[test]
fn what_gains_nothing_by_a_shift_is_stored_as_before() {
    let same = samples(0..1_000, |_| Value::Int(1 << 20));
    let few = samples(0..10, |at| Value::Int(at << 20));
    let odd = samples(0..1_000, |at| Value::Int((at << 20) + i64::from(at == 999)));
    let floats = samples(0..1_000, |at| Value::Float((at << 20) as f64));
    for run in [same, few, odd, floats] {
        let runs = [(3, run)];
        round_trip(&runs);
        assert_eq!(format_of(&write(&runs).0), "1");
    }
}

#[test]
fn shifted_integers_may_lie_at_both_ends_and_beside_others() {
    let ends = |at: i64| Value::Int(if at % 2 == 0 { i64::MIN } else { i64::MAX & !0xff });
    let shifts = [4, 31, 62].map(|shift| (shift, samples(0..40, move |at| Value::Int((at % 2) << shift))));
    let mut runs = vec![(1, samples(0..20_000, ends)), (2, samples(0..5, |at| Value::Int(at << 30)))];
    runs.extend(shifts);
    let loaded = round_trip(&runs);
    let kinds: Vec<Kind> = runs.iter().map(|(id, _)| loaded.run(SeriesId(*id)).unwrap().kind).collect();
    assert_eq!(kinds, [Kind::Shifted(8), Kind::Int, Kind::Shifted(4), Kind::Shifted(31), Kind::Shifted(62)]);
}

#[test]
fn the_rest_of_a_long_run_is_shifted_as_its_beginning_where_it_can_be() {
    let cut = 1 << 20;
    let alike = samples(0..cut + 50, |at| Value::Int(at % 1_000 * 64));
    let more = samples(0..cut + 50, move |at| Value::Int(at % 1_000 * if at < cut { 64 } else { 4_096 }));
    let fewer = samples(0..cut + 50, move |at| Value::Int(at % 1_000 * if at < cut { 64 } else { 1 }));
    let loaded = round_trip(&[(0, alike), (1, more), (2, fewer)]);
    let kinds = [0, 1, 2].map(|id| loaded.run(SeriesId(id)).unwrap().kind);
    assert_eq!(kinds, [Kind::Shifted(6), Kind::Shifted(6), Kind::Mixed]);
}

#[test]
fn a_segment_with_no_sample_is_no_file() {
    let writer = SegmentWriter::new("n", TimeRange::ALL, 1, 1).unwrap();
    assert!(writer.finish().unwrap().is_none());
}

/// Columns of a segment, whoever wrote them: series, time, `int`, `scale`, `float`.
type Row = (u32, i64, Option<i64>, Option<i8>, Option<f64>);

/// A segment with these rows, and a run index that says what `claimed` are.
fn foreign(rows: &[Row], claimed: &[(u32, Samples)]) -> (Vec<u8>, SegmentEntry) {
    let columns: Vec<ArrayRef> = vec![
        std::sync::Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.0))),
        std::sync::Arc::new(
            TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.1)).with_timezone("UTC"),
        ),
        std::sync::Arc::new(rows.iter().map(|row| row.2).collect::<Int64Array>()),
        std::sync::Arc::new(rows.iter().map(|row| row.3).collect::<Int8Array>()),
        std::sync::Arc::new(rows.iter().map(|row| row.4).collect::<Float64Array>()),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.flush().unwrap();
    writer.sync().unwrap();
    let tail = writer.bytes_written();
    let (good, good_entry) = write(claimed);
    let claims = open(&good, &good_entry).unwrap();
    let runs = claims.runs().iter().map(|run| NewRun { run: *run, summary: claims.summary(run) }).collect();
    let checksums = blocks::checksums(&writer.inner()[..tail]);
    let index = index::encode(runs, times::SharedTimes::default(), tail as u64, &checksums).unwrap();
    writer.write_all(&index).unwrap();
    let bytes = writer.into_inner().unwrap();
    let mut entry = entry(&bytes, rows.len() as u64);
    (entry.tail, entry.tail_crc32) = (tail as u64, crc32fast::hash(&bytes[tail..]));
    (bytes, entry)
}

fn ints(values: &[i64]) -> Samples {
    values.iter().enumerate().map(|(at, int)| (Timestamp::from_micros(at as i64), Value::Int(*int))).collect()
}

#[test]
fn what_the_columns_hold_is_held_against_the_run_index() {
    let row = |series: u32, time: i64, int: i64| -> Row { (series, time, Some(int), None, None) };
    let claimed = [(0, ints(&[5, 6, 7])), (1, ints(&[8]))];
    let good = [row(0, 0, 5), row(0, 1, 6), row(0, 2, 7), row(1, 0, 8)];
    let (bytes, entry) = foreign(&good, &claimed);
    open(&bytes, &entry).unwrap().verify(&entry).unwrap();
    let with = |at: usize, row: Row| {
        let mut rows = good;
        rows[at] = row;
        rows
    };
    let cases: [(&str, [Row; 4]); 10] = [
        ("the series of a row", with(1, row(1, 1, 6))),
        ("the time of a row: found 1969-12-31T23:59:59.999999Z, expected 1970-", with(0, row(0, -1, 5))),
        ("the time of a row", with(2, row(0, 3, 7))),
        ("its order: found 1970-01-01T00:00:00Z after 1970-01-01T00:00:00Z in", with(1, row(0, 0, 6))),
        ("the values of series 0", with(0, row(0, 0, 4))),
        ("the values of series 0", with(2, (0, 2, Some(7), Some(0), None))),
        ("the value of a row", with(3, (1, 0, None, None, None))),
        ("the scale of a row", with(3, (1, 0, Some(8), Some(19), None))),
        ("the scale of a row", with(3, (1, 0, Some(8), Some(-63), None))),
        ("the value of a row", with(3, (1, 0, Some(1 << 40), Some(-40), None))),
    ];
    for (what, rows) in cases {
        let (bytes, entry) = foreign(&rows, &claimed);
        let error = open(&bytes, &entry).unwrap().verify(&entry).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains(what), "{what}: {error}");
    }
}

#[test]
fn columns_that_lack_what_the_run_index_promises_are_corrupt() {
    let odd = |at: i64| if at == 1 { Value::Float(0.1 + 0.2) } else { Value::Int(at) };
    for rows in [
        [(0, 0, Some(0), Some(19), None), (0, 1, None, None, Some(0.3)), (0, 2, Some(2), None, None)],
        [(0, 0, Some(0), Some(-63), None), (0, 1, None, None, Some(0.3)), (0, 2, Some(2), None, None)],
        [(0, 0, Some(i64::MAX), Some(-1), None), (0, 1, None, None, Some(0.3)), (0, 2, Some(2), None, None)],
        [(0, 0, None, None, None), (0, 1, None, None, Some(0.3)), (0, 2, Some(2), None, None)],
    ] {
        let (bytes, entry) = foreign(&rows, &[(0, samples(0..3, odd))]);
        let loaded = open(&bytes, &entry).unwrap();
        assert!(matches!(loaded.read(loaded.runs(), TimeRange::ALL), Err(Error::Corrupt { .. })), "{rows:?}");
    }
    let rows = [(0, 0, Some(0), None, None), (0, 1, None, None, Some(1.0))];
    let (bytes, entry) = foreign(&rows, &[(0, ints(&[0, 1]))]);
    let loaded = open(&bytes, &entry).unwrap();
    assert!(matches!(loaded.read(loaded.runs(), TimeRange::ALL), Err(Error::Corrupt { .. })));
}

/// Looks the same on every run, and like nothing.
fn noise(at: i64) -> f64 {
    ((at as f64) * 12.9898).sin() * 43_758.545_312_3
}

#[test]
fn floats_that_are_decimals_are_stored_as_integers() {
    let kind = |value: &dyn Fn(i64) -> f64| {
        let loaded = round_trip(&[(0, samples(0..1_000, |at| Value::Float(value(at))))]);
        loaded.runs()[0].kind
    };
    assert_eq!(kind(&|at| at as f64), Kind::Scaled(0));
    assert_eq!(kind(&|at| (at * 7 % 10_000) as f64 / 100.0), Kind::Scaled(2));
    assert_eq!(kind(&|at| -(at as f64 + 1.0) / 1e6), Kind::Scaled(6));
    assert_eq!(kind(&|at| -(at as f64) / 1e6), Kind::Mixed, "the first of them is -0.0");
    assert_eq!(kind(&noise), Kind::Float);
    assert_eq!(kind(&|at| if at == 700 { f64::NAN } else { at as f64 / 10.0 }), Kind::Mixed);
    assert_eq!(kind(&|at| if at < 500 { at as f64 } else { noise(at) }), Kind::Float);
    assert_eq!(kind(&|at| if at == 999 { 0.001 } else { 7.0 }), Kind::Scaled(3));
    assert_eq!(kind(&|_| 1e300), Kind::Float);
}

#[test]
fn extremes_come_back_bit_for_bit() {
    let floats = [
        f64::MIN,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff0_0000_0000_0001),
        0.0,
        -0.0,
        9_007_199_254_740_991.0,
        9_007_199_254_740_993.0,
        0.1,
        1e22,
    ];
    let ints = [i64::MIN, i64::MAX, 0, -1, 1, i64::MIN + 1, 1 << 53, (1 << 53) + 1];
    let at = |at: i64, of: &[f64]| Value::Float(of[at as usize % of.len()]);
    round_trip(&[
        (0, samples(0..16, |time| at(time, &floats))),
        (1, samples(0..64, |time| Value::Int(ints[time as usize % ints.len()]))),
        (2, samples(0..64, |time| if time % 2 == 0 { Value::Int(ints[time as usize % 8]) } else { at(time, &floats) })),
        (3, samples(0..3, |_| Value::Float(f64::NAN))),
        (4, samples(0..3, |_| Value::Float(-0.0))),
        (5, samples(0..2, |_| Value::Int(i64::MIN))),
        (6, vec![(Timestamp::MIN, Value::Int(1)), (Timestamp::from_micros(i64::MAX - 1), Value::Int(2))]),
        (
            7,
            vec![
                (Timestamp::MIN, Value::Int(1)),
                (Timestamp::from_micros(0), Value::Int(2)),
                (Timestamp::from_micros(i64::MAX - 1), Value::Int(2)),
            ],
        ),
    ]);
}

#[test]
fn ticks_that_are_further_apart_than_a_width_can_say_come_back() {
    let times = [-6_000_000_000_000_000_000, 0, 6_000_000_000_000_000_000];
    let run: Samples = times.iter().map(|time| (Timestamp::from_micros(*time), Value::Int(*time))).collect();
    // Beside one that has no step at all.
    let other: Samples = [1, 2, 4].map(|time| (Timestamp::from_micros(time), Value::Int(time))).to_vec();
    round_trip(&[(1, run.clone()), (2, other), (3, run)]);
}

/// Times of a process whose ticks come late by up to five milliseconds.
fn late_ticks(count: i64, from: i64) -> Vec<i64> {
    (0..count).map(|at| from + at * 1_000_000 + (noise(at + from).abs() as i64 % 5) * 1_000).collect()
}

#[test]
fn times_that_tick_or_are_shared_are_not_read_from_the_column() {
    let value = |times: &[i64]| -> Samples {
        times.iter().map(|time| (Timestamp::from_micros(*time), Value::Int(time % 97))).collect()
    };
    let (shared, lonely) = (late_ticks(1_000, 0), late_ticks(1_000, 333));
    let mut runs: Vec<(u32, Samples)> = (0..40).map(|series| (series, value(&shared))).collect();
    runs.push((40, value(&shared[100..900])));
    runs.push((41, value(&lonely)));
    runs.push((42, samples(0..1_000, Value::Int)));
    runs.push((43, samples(5..6, Value::Int)));
    let loaded = round_trip(&runs);
    let times = |series: u32| loaded.run(SeriesId(series)).unwrap().times;
    assert_eq!(times(0), Times::Shared { list: 0, from: 0 });
    assert_eq!(times(39), Times::Shared { list: 0, from: 0 });
    assert_eq!(times(40), Times::Shared { list: 0, from: 100 });
    assert_eq!(times(41), Times::Column, "one series is not worth a list");
    assert_eq!(times(42), Times::Regular { step: 1 });
    assert_eq!(times(43), Times::Regular { step: 0 });
}

#[test]
fn times_that_are_a_part_of_later_ones_are_shared_too() {
    let shared = late_ticks(1_000, 0);
    let value = |times: &[i64]| -> Samples {
        times.iter().map(|time| (Timestamp::from_micros(*time), Value::Int(time % 97))).collect()
    };
    let mut runs = vec![(0, value(&shared[10..20]))];
    runs.extend((1..40).map(|series| (series, value(&shared))));
    let loaded = round_trip(&runs);
    assert_eq!(loaded.run(SeriesId(0)).unwrap().times, Times::Shared { list: 0, from: 10 });
}

#[test]
fn the_run_index_sums_up_what_a_run_holds() {
    let loaded = round_trip(&[
        (0, ints(&[5, -3, 9, 4])),
        (1, samples(0..3, |at| Value::Float([0.5, 0.25, -1.0][at as usize]))),
        (2, samples(0..3, |at| Value::Float([0.1, f64::NAN, 0.3][at as usize]))),
        (3, samples(0..4, |_| Value::Float(0.1))),
        (4, samples(0..2, |at| if at == 0 { Value::Int(1) } else { Value::Float(1.0) })),
        (5, ints(&[i64::MAX, i64::MAX, i64::MIN])),
    ]);
    let summary = |series: u32| loaded.summary(loaded.run(SeriesId(series)).unwrap());
    let zero = summary(0).unwrap();
    assert_eq!((zero.first, zero.last, zero.sum), (Value::Int(5), Value::Int(4), Sum::Int(15)));
    assert_eq!((zero.min, zero.max), (Value::Int(-3), Value::Int(9)));
    let one = summary(1).unwrap();
    assert_eq!((one.first, one.last, one.sum), (Value::Float(0.5), Value::Float(-1.0), Sum::Float(-0.25)));
    assert_eq!((one.min, one.max), (Value::Float(-1.0), Value::Float(0.5)));
    assert_eq!((summary(2), summary(4)), (None, None), "NaN and two types must be looked at");
    assert_eq!(summary(3).unwrap().sum, Sum::Float(0.1 + 0.1 + 0.1 + 0.1));
    assert!(loaded.run(SeriesId(3)).unwrap().constant);
    assert_eq!(summary(5).unwrap().sum, Sum::Int(i128::from(i64::MAX) - 1));
}

#[test]
fn a_run_longer_than_what_is_looked_at_at_once_is_one_run() {
    let mut writer = SegmentWriter::new("n", TimeRange::ALL, 3, 3).unwrap();
    let regular = samples(0..(1 << 20) + 10, |at| Value::Float(at as f64 / 2.0));
    let irregular = samples(0..(1 << 20) + 10, Value::Int).into_iter().filter(|(time, _)| time.micros() != 3);
    let irregular: Samples = irregular.collect();
    for (series, samples) in [(0, &regular), (1, &irregular)] {
        for part in samples.chunks(300_000) {
            writer.push(SeriesId(series), part).unwrap();
        }
    }
    let encoded = writer.finish().unwrap().unwrap();
    let mut entry = entry(&encoded.bytes, encoded.rows);
    (entry.tail, entry.tail_crc32) = (encoded.tail, encoded.tail_crc32);
    let loaded = open(&encoded.bytes, &entry).unwrap();
    loaded.verify(&entry).unwrap();
    assert_eq!(loaded.run(SeriesId(0)).unwrap().times, Times::Regular { step: 1 });
    assert_eq!(loaded.run(SeriesId(1)).unwrap().times, Times::Column);
    assert!(read(&loaded, &[0, 1]) == [regular, irregular]);
}

#[test]
fn bytes_other_than_the_manifests_are_corrupt() {
    let (bytes, entry) = write(&[(0, samples(0..100, |at| Value::Int(at * at)))]);
    let loaded = open(&bytes, &entry).unwrap();
    let good = loaded.read(loaded.runs(), TimeRange::ALL).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        // A reader checks what it reads, and it reads what an answer depends on.
        let found = open(&flipped, &entry).and_then(|loaded| loaded.read(loaded.runs(), TimeRange::ALL));
        match found {
            Ok(pieces) => assert_eq!(pieces, good, "byte {at}"),
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "byte {at}: {error}"),
        }
        let checked = open(&flipped, &entry).and_then(|loaded| loaded.verify(&entry));
        assert!(matches!(checked, Err(Error::Corrupt { .. })), "byte {at}");
    }
    assert!(open(&bytes[..bytes.len() - 1], &entry).is_err());
    assert!(open(b"", &entry).is_err());
}

/// The real disk, which counts the bytes that are read.
#[derive(Debug, Default)]
struct Counting(std::sync::Arc<std::sync::atomic::AtomicU64>);

#[derive(Debug)]
struct CountingFile(std::sync::Arc<dyn ReadFile>, std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Counting {
    fn bytes(&self) -> u64 {
        self.0.swap(0, std::sync::atomic::Ordering::Relaxed)
    }
}

impl ReadFile for CountingFile {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.1.fetch_add(buffer.len() as u64, std::sync::atomic::Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
}

#[test]
fn one_series_of_one_hour_reads_the_index_and_the_blocks_of_a_page() {
    let hour = 3_600;
    let value = |at: i64| Value::Float((noise(at) * 100.0).round() / 100.0);
    let runs: Vec<(u32, Samples)> = (0..100).map(|series| (series, samples(0..hour * 8, value))).collect();
    let (bytes, entry) = write(&runs);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, &bytes).unwrap();
    let counting = Counting::default();
    let file = CountingFile(OsDisk.open(&path).unwrap(), std::sync::Arc::clone(&counting.0));
    let loaded = LoadedSegment::parse(std::sync::Arc::new(file), &path, &entry, None).unwrap();
    let tail = entry.file.bytes - entry.tail;
    assert_eq!(counting.bytes(), tail, "opening reads the run index and the footer");
    assert!(tail < entry.file.bytes / 100, "{tail} of {}", entry.file.bytes);

    let run = *loaded.run(SeriesId(50)).unwrap();
    loaded.has_row(&run, TimeRange::new(Timestamp::from_micros(7), Timestamp::from_micros(8))).unwrap();
    loaded.last(&run).unwrap();
    assert_eq!(counting.bytes(), 0, "the run index knows");

    let range = TimeRange::new(Timestamp::from_micros(hour), Timestamp::from_micros(2 * hour));
    let pieces = loaded.read(&[run], range).unwrap();
    assert_eq!(pieces[0].times.len(), hour as usize);
    // An hour is at most two pages of two to four bytes a row, and a block more at each end.
    let read = counting.bytes();
    assert!(read > 0 && read < 2 * 4 * PAGE_ROWS as u64 + 2 * blocks::BLOCK_BYTES as u64, "{read} bytes");
}

/// Steps between times: regular ones, late ones, and such as reach the ends of all time.
fn times() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![Just(1_000_000), 1..2_000_i64, any::<u32>().prop_map(i64::from), 1..i64::MAX];
    let regular = (any::<i64>(), step.clone(), 1..40_i64)
        .prop_map(|(first, step, count)| (0..count).map_while(|at| first.checked_add(step.checked_mul(at)?)).collect());
    let irregular = (any::<i64>(), vec(step, 0..40)).prop_map(|(first, steps)| {
        let mut times = vec![first];
        for step in steps {
            let Some(next) = times[times.len() - 1].checked_add(step) else { break };
            times.push(next);
        }
        times
    });
    let times = prop_oneof![regular, irregular];
    times.prop_map(|mut times: Vec<i64>| {
        // The last microsecond is no time.
        times.retain(|time| *time < i64::MAX);
        if times.is_empty() { vec![0] } else { times }
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        (-100_000..100_000_i32).prop_map(|int| Value::Float(f64::from(int) / 100.0)),
        Just(Value::Float(-0.0)),
    ]
}

/// Values that a run repeats: of one kind, or of any.
fn values() -> impl Strategy<Value = Vec<Value>> {
    let decimals = (0..8_u8, vec(any::<i32>(), 1..40)).prop_map(|(scale, ints)| {
        ints.into_iter().map(|int| Value::Float(f64::from(int) / 10_f64.powi(scale.into()))).collect::<Vec<_>>()
    });
    let ints = vec(any::<i64>().prop_map(Value::Int), 1..40);
    let shifted = (0..63_u8, vec(any::<i16>(), 1..40))
        .prop_map(|(shift, ints)| ints.into_iter().map(|int| Value::Int(i64::from(int) << shift)).collect::<Vec<_>>());
    prop_oneof![decimals, ints, shifted, vec(any_value(), 1..40), any_value().prop_map(|value| vec![value])]
}

proptest! {
    #[test]
    fn any_runs_are_read_back_bit_for_bit(
        lists in vec(times(), 1..4),
        series in vec((any::<prop::sample::Index>(), 0..50_usize, values()), 1..60),
    ) {
        let runs: Vec<(u32, Samples)> = series.iter().enumerate().map(|(at, (list, skipped, values))| {
            let times = list.get(&lists);
            let times = &times[(*skipped).min(times.len() - 1)..];
            let samples = times.iter().zip(values.iter().cycle());
            // Ids in another order than rows.
            (at as u32 ^ 5, samples.map(|(time, value)| (Timestamp::from_micros(*time), *value)).collect())
        }).collect();
        round_trip(&runs);
    }
}
