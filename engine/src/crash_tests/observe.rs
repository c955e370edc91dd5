//! Everything that a reader can see of a database, through every function that reads.

use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType, UInt32Type};

use super::model::{Content, Sample, SeriesNumber, difference};
use super::{SERIES, key};
use crate::db::Db;
use crate::error::Result;
use crate::options::Options;
use crate::series::SeriesId;
use crate::snapshot::{ScanColumn, ScanRequest, Snapshot};
use crate::time::{TimeRange, Timestamp};
use crate::value::{Value, ValueRange};

/// In the model, metadata is the samples of a series of its own: the metric's number is the time.
const META: SeriesNumber = SERIES;

pub fn meta_sample(metric: usize, number: i64) -> Sample {
    // Several series share a metric: the first of them stands for it.
    let first = (0..SERIES).find(|at| key(*at).metric() == key(metric).metric()).unwrap_or(metric);
    (META, Timestamp::from_micros(first as i64), Value::Int(number))
}

/// All that `db` holds, after every way of reading it gave the same.
pub fn database(db: &Db) -> Content {
    let snapshot = db.snapshot();
    let content = content(&snapshot);
    for number in 0..SERIES {
        let last = content.range((number, Timestamp::MIN)..(number + 1, Timestamp::MIN)).next_back();
        let last = last.map(|((_, time), value)| (*time, *value));
        if let Some(id) = db.index().id(&key(number)) {
            assert_eq!(db.last(id).unwrap(), last, "db.last of {}", key(number));
            assert_eq!(snapshot.last(id).unwrap(), last, "snapshot.last of {}", key(number));
        } else {
            assert_eq!(last, None, "samples of {}, which is not in the index", key(number));
        }
    }
    content
}

/// All that `snapshot` holds: points and scan agree, for all times and for parts.
pub fn content(snapshot: &Snapshot) -> Content {
    let all = points(snapshot, TimeRange::ALL);
    assert_same(&all, &scan(snapshot, TimeRange::ALL), "scan against points");
    for range in some_ranges(&all) {
        let part: Content =
            all.iter().filter(|((_, time), _)| range.contains(*time)).map(|(at, v)| (*at, *v)).collect();
        assert_same(&part, &points(snapshot, range), "points of a part of time");
        assert_same(&part, &scan(snapshot, range), "scan of a part of time");
        for (number, id) in series(snapshot) {
            let expected = part.keys().any(|(series, _)| *series == number);
            assert_eq!(snapshot.has_points(id, range).unwrap(), expected, "has_points of {} in {range:?}", key(number));
        }
    }
    with_meta(snapshot, all)
}

/// The known series of the database, each with its number; panics on one that nobody sent.
fn series(snapshot: &Snapshot) -> Vec<(SeriesNumber, SeriesId)> {
    let index = snapshot.index();
    let mut known = Vec::new();
    for at in 0..index.len() {
        let id = SeriesId(at as u32);
        let found = index.key(id).expect("ids are dense");
        let number = (0..SERIES).find(|number| key(*number) == found);
        let number = number.unwrap_or_else(|| panic!("nobody sent the series {found}"));
        assert_eq!(index.id(&found), Some(id));
        assert!(index.select(found.metric(), &[]).contains(&id), "{found} is missing from its metric's postings");
        known.push((number, id));
    }
    known
}

fn canonical(snapshot: &Snapshot) -> Vec<SeriesId> {
    let mut ids: Vec<SeriesId> = series(snapshot).into_iter().map(|(_, id)| id).collect();
    snapshot.index().sort_canonical(&mut ids);
    ids
}

fn number_of(snapshot: &Snapshot, id: SeriesId) -> SeriesNumber {
    let found = snapshot.index().key(id).expect("the snapshot gave this id");
    (0..SERIES).find(|number| key(*number) == found).expect("series() has checked all of them")
}

fn points(snapshot: &Snapshot, range: TimeRange) -> Content {
    try_points(snapshot, range).unwrap()
}

/// All samples and metadata, unless some of it cannot be read.
pub fn try_content(snapshot: &Snapshot) -> Result<Content> {
    let content = try_points(snapshot, TimeRange::ALL)?;
    assert_same(&content, &try_scan(snapshot, TimeRange::ALL)?, "scan against points");
    Ok(with_meta(snapshot, content))
}

fn try_points(snapshot: &Snapshot, range: TimeRange) -> Result<Content> {
    let mut content = Content::new();
    for points in snapshot.points(canonical(snapshot), range) {
        let points = points?;
        let number = number_of(snapshot, points.series);
        assert!(!points.times.is_empty() && points.times.len() == points.values.len());
        assert!(points.times.is_sorted_by(|a, b| a < b), "times of {} are not increasing", key(number));
        for (at, time) in points.times.iter().enumerate() {
            content.insert((number, *time), points.values.get(at));
        }
    }
    Ok(content)
}

fn scan(snapshot: &Snapshot, range: TimeRange) -> Content {
    try_scan(snapshot, range).unwrap()
}

/// Three rows a batch, so that series and batches do not end together.
fn try_scan(snapshot: &Snapshot, range: TimeRange) -> Result<Content> {
    let mut content = Content::new();
    let request = |columns: &[ScanColumn]| ScanRequest {
        series: canonical(snapshot),
        range,
        columns: columns.to_vec(),
        values: ValueRange::ALL,
        batch_rows: 3,
        limit: None,
    };
    // Each column alone is what it is among all.
    let mut alone = ScanColumn::ALL.map(|column| snapshot.scan(request(&[column])));
    for batch in snapshot.scan(request(&ScanColumn::ALL)) {
        let batch = batch?;
        for (at, alone) in alone.iter_mut().enumerate() {
            assert_eq!(batch.column(at), alone.next().unwrap()?.column(0), "column {at}");
        }
        let ids = batch.column(0).as_primitive::<UInt32Type>();
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        let floats = batch.column(2).as_primitive::<Float64Type>();
        let ints = batch.column(3).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let value = if ints.is_valid(row) { Value::Int(ints.value(row)) } else { Value::Float(floats.value(row)) };
            assert_eq!(floats.value(row).to_bits(), value.as_f64().to_bits(), "a value is its number as a float");
            let number = number_of(snapshot, SeriesId(ids.value(row)));
            let before = content.insert((number, Timestamp::from_micros(times.value(row))), value);
            assert_eq!(before, None, "a scan gives a sample twice");
        }
    }
    assert!(alone.iter_mut().all(|alone| alone.next().is_none()));
    Ok(content)
}

/// Stretches that start and end on samples and beside them.
fn some_ranges(content: &Content) -> Vec<TimeRange> {
    let mut times: Vec<Timestamp> = content.keys().map(|(_, time)| *time).collect();
    times.sort();
    times.dedup();
    let middle = times.get(times.len() / 2).copied().unwrap_or_default();
    let late = times.get(times.len() * 3 / 4).copied().unwrap_or_default();
    vec![
        TimeRange::new(Timestamp::MIN, middle),
        TimeRange::new(middle, late),
        TimeRange::new(late.saturating_add_micros(1), Timestamp::MAX),
        TimeRange::new(late, late),
    ]
}

fn with_meta(snapshot: &Snapshot, mut content: Content) -> Content {
    for (name, meta) in snapshot.meta().metrics() {
        let number = (0..SERIES).find(|number| key(*number).metric() == name).expect("a metric that was sent");
        let help: i64 = meta.help.parse().expect("help texts are numbers here");
        let (series, time, value) = meta_sample(number, help);
        content.insert((series, time), value);
    }
    content
}

pub fn assert_same(expected: &Content, found: &Content, what: &str) {
    assert!(expected == found, "{what}: {}", difference(expected, found));
}

/// `telem check` finds nothing wrong; torn bytes that a recovery set aside may lie there.
pub fn assert_sound(dir: &Path, options: &Options) {
    let mut report = crate::check::check(dir, options, &mut |_| {}).unwrap();
    report.findings.retain(|finding| !finding.file.to_string_lossy().contains(".damaged"));
    assert!(report.findings.is_empty(), "check finds: {:?}", report.findings);
}

/// A repair would find nothing to do but to put away what a recovery set aside.
pub fn assert_nothing_to_repair(dir: &Path, options: &Options) {
    let mut report = crate::repair::look(dir, options, &mut |_| {}).unwrap();
    report.actions.retain(|action| !action.file.contains(".damaged"));
    assert!(report.is_nothing(), "a repair would do {report:?}");
}
