use super::read::{Loaded, Run};
use super::*;
use crate::disk::OsDisk;
use crate::error::{Error, Result};
use crate::manifest::{FileEntry, SegmentEntry};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

use arrow::array::{ArrayRef, Float64Array, Int8Array, Int64Array, TimestampMicrosecondArray, UInt32Array};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;

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
    let entry = entry(&encoded.bytes, encoded.rows);
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
    }
}

fn open(bytes: &[u8], entry: &SegmentEntry) -> Result<Loaded> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, bytes).unwrap();
    Loaded::open(&OsDisk, &path, entry, None)
}

fn read(loaded: &Loaded, series: &[u32]) -> Vec<Samples> {
    let runs: Vec<Run> = series.iter().map(|series| *loaded.run(SeriesId(*series)).unwrap()).collect();
    let mut found = vec![Vec::new(); runs.len()];
    loaded.read(&runs, |run, time, value| found[run].push((time, value))).unwrap();
    found
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

#[test]
fn a_segment_with_no_sample_is_no_file() {
    let writer = SegmentWriter::new("n", TimeRange::ALL, 1, 1).unwrap();
    assert!(writer.finish().unwrap().is_none());
}

/// A segment with these columns, whoever wrote it.
fn foreign(
    series: Vec<u32>,
    ts: Vec<i64>,
    int: Vec<Option<i64>>,
    scale: Vec<Option<i8>>,
    float: Vec<Option<f64>>,
) -> Vec<u8> {
    let columns: Vec<ArrayRef> = vec![
        std::sync::Arc::new(UInt32Array::from(series)),
        std::sync::Arc::new(TimestampMicrosecondArray::from(ts).with_timezone("UTC")),
        std::sync::Arc::new(Int64Array::from(int)),
        std::sync::Arc::new(Int8Array::from(scale)),
        std::sync::Arc::new(Float64Array::from(float)),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn floats_stored_as_scaled_integers_are_understood() {
    let ints = vec![Some(12_345), Some(-5), Some(7), Some(0)];
    let bytes = foreign(
        vec![0; 4],
        vec![1, 2, 3, 4],
        ints,
        vec![Some(2), Some(4), None, Some(0)],
        vec![None, None, None, Some(1.5)],
    );
    let loaded = open(&bytes, &entry(&bytes, 4)).unwrap();
    let values: Vec<Value> = read(&loaded, &[0])[0].iter().map(|(_, value)| *value).collect();
    assert_eq!(values, [Value::Float(123.45), Value::Float(-0.0005), Value::Int(7), Value::Float(1.5)]);
}

#[test]
fn rows_that_break_the_order_or_have_no_value_are_corrupt() {
    let ints = |count: usize| vec![Some(1); count];
    let none = |count: usize| vec![None; count];
    let cases = [
        ("same time twice", foreign(vec![0, 0], vec![1, 1], ints(2), vec![None; 2], none(2))),
        ("times descend", foreign(vec![0, 0], vec![2, 1], ints(2), vec![None; 2], none(2))),
        ("a series in two places", foreign(vec![0, 1, 0], vec![1, 1, 2], ints(3), vec![None; 3], none(3))),
    ];
    for (what, bytes) in cases {
        let rows = if what == "a series in two places" { 3 } else { 2 };
        assert!(matches!(open(&bytes, &entry(&bytes, rows)), Err(Error::Corrupt { .. })), "{what}");
    }
    for (scale, int) in [(Some(19), Some(1)), (Some(-1), Some(1)), (None, None)] {
        let bytes = foreign(vec![0], vec![1], vec![int], vec![scale], vec![None]);
        let loaded = open(&bytes, &entry(&bytes, 1)).unwrap();
        let run = *loaded.run(SeriesId(0)).unwrap();
        assert!(matches!(loaded.read(&[run], |_, _, _| {}), Err(Error::Corrupt { .. })), "{scale:?} {int:?}");
    }
}

#[test]
fn bytes_other_than_the_manifests_are_corrupt() {
    let (bytes, entry) = write(&[(0, samples(0..100, Value::Int))]);
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(matches!(open(&flipped, &entry), Err(Error::Corrupt { .. })), "byte {at}");
    }
    assert!(open(&bytes[..bytes.len() - 1], &entry).is_err());
    assert!(open(b"", &entry).is_err());
}
