//! Samples that are spread over several databases, opened as one, give the answers of a single database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use crate::meta::{Annotation, JOB_SLOT_TAG, JobInterval, MetaChange, MetricKind, MetricMeta};
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::snapshot::{ScanRequest, SeriesByJob, Snapshot};
use crate::time::{HOUR, TimeRange, Timestamp};
use crate::value::{Value, ValueRange};
use crate::{Db, Durability, ErrorKind, Options, SampleBatch};

const SERIES: usize = 7;

/// What is done to one database, in order.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<(usize, i64, i64)>),
    Flush,
}

/// Canonical order is not the order of numbers.
fn key(series: usize) -> SeriesKey {
    let tags = TagSet::new([("host", ["n3", "n1", "n2"][series % 3])]).unwrap();
    SeriesKey::new(["m.b", "m.a", "m.c"][series / 3], tags).unwrap()
}

fn step() -> impl Strategy<Value = Step> {
    // Few times, so that databases contradict each other; four hours, so that segments differ.
    let sample = (0..SERIES, 0i64..16, any::<i64>()).prop_map(|(series, tick, value)| (series, tick * HOUR / 4, value));
    prop_oneof![3 => prop::collection::vec(sample, 1..12).prop_map(Step::Append), 1 => Just(Step::Flush)]
}

/// Databases with samples, and what they hold together.
struct Bed {
    dir: tempfile::TempDir,
    dirs: Vec<PathBuf>,
    expected: BTreeMap<SeriesKey, BTreeMap<i64, i64>>,
    node_of: BTreeMap<SeriesKey, String>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, dirs: Vec::new(), expected: BTreeMap::new(), node_of: BTreeMap::new() }
    }

    /// One more database. What it does not flush stays in its WAL.
    fn database(&mut self, node: &str, steps: &[Step]) -> Db {
        let path = self.dir.path().join(format!("{node}-{}", self.dirs.len()));
        let db = Db::open(&path, Options { node: node.to_owned(), ..Options::default() }).unwrap();
        for step in steps {
            match step {
                Step::Flush => drop(db.flush().unwrap()),
                Step::Append(samples) => {
                    let mut batch = SampleBatch::default();
                    for (series, time, value) in samples {
                        let key = key(*series);
                        let id = db.series(&key).unwrap();
                        batch.push(id, Timestamp::from_micros(*time), Value::Int(*value));
                        self.node_of.insert(key.clone(), node.to_owned());
                        self.expected.entry(key).or_default().insert(*time, *value);
                    }
                    db.append(&batch, Durability::Buffered).unwrap();
                }
            }
        }
        self.dirs.push(path);
        db
    }

    fn open(&self) -> Db {
        Db::open_together(&self.dirs, Options::default()).unwrap()
    }

    fn check(&self) {
        let db = self.open();
        let snapshot = db.snapshot();
        let index = snapshot.index();
        let keys: Vec<SeriesKey> = self.expected.keys().cloned().collect();
        let ids: Vec<SeriesId> = keys.iter().map(|key| index.id(key).unwrap()).collect();
        assert_eq!(index.len(), keys.len(), "a key is one series");
        let metrics: BTreeSet<&str> = keys.iter().map(SeriesKey::metric).collect();
        assert_eq!(snapshot.metrics().iter().map(|metric| &**metric).collect::<Vec<_>>(), Vec::from_iter(metrics));
        let selected: Vec<SeriesId> =
            snapshot.metrics().iter().flat_map(|metric| snapshot.select(metric, &[])).collect();
        assert_eq!(selected, ids, "canonical order");
        for (from, to) in [(i64::MIN, i64::MAX), (0, 1), (HOUR, 2 * HOUR), (HOUR / 4 + 1, 3 * HOUR + 1)] {
            self.check_range(&snapshot, &ids, from..to);
        }
        let mut by_database = ids.clone();
        snapshot.sort_by_database(&mut by_database);
        let in_order: BTreeSet<SeriesId> = ids.iter().copied().collect();
        assert_eq!(BTreeSet::from_iter(by_database), in_order, "every series once");
        let bounds = snapshot.time_bounds(&ids).unwrap();
        for ((id, key), bounds) in ids.iter().zip(&keys).zip(bounds) {
            let samples = &self.expected[key];
            let (first, last) = (samples.first_key_value().unwrap(), samples.last_key_value().unwrap());
            let at = |time: &i64| Timestamp::from_micros(*time);
            assert_eq!(bounds, Some((at(first.0), at(last.0))), "{key}");
            assert_eq!(snapshot.last(*id).unwrap(), Some((at(last.0), Value::Int(*last.1))), "{key}");
            assert_eq!(db.last(*id).unwrap(), Some((at(last.0), Value::Int(*last.1))), "{key}");
            assert_eq!(*snapshot.node_of(*id), *self.node_of[key], "{key}");
        }
        let info = db.info().unwrap();
        let stored = db.databases().unwrap().iter().map(|one| one.samples).sum::<u64>();
        assert_eq!((info.series, info.samples), (keys.len() as u64, stored));
    }

    fn check_range(&self, snapshot: &Snapshot, ids: &[SeriesId], range: std::ops::Range<i64>) {
        let (from, to) = (Timestamp::from_micros(range.start), Timestamp::from_micros(range.end));
        let times = TimeRange::new(from, to);
        let mut rows = 0;
        let mut found: BTreeMap<SeriesKey, BTreeMap<i64, i64>> = BTreeMap::new();
        for points in snapshot.points(ids.to_vec(), times) {
            let points = points.unwrap();
            let values = (0..points.times.len()).map(|at| (points.times[at].micros(), points.values.get(at)));
            let values = values.map(|(time, value)| (time, value.to_bits().cast_signed())).collect();
            rows += points.times.len();
            assert!(found.insert(snapshot.index().key(points.series).unwrap(), values).is_none(), "every series once");
        }
        let mut expected = BTreeMap::new();
        for ((key, samples), id) in self.expected.iter().zip(ids) {
            let inside: BTreeMap<i64, i64> =
                samples.range(range.clone()).map(|(time, value)| (*time, *value)).collect();
            assert_eq!(snapshot.has_points(*id, times).unwrap(), !inside.is_empty(), "{key}");
            if !inside.is_empty() {
                expected.insert(key.clone(), inside);
            }
        }
        assert_eq!(found, expected);
        let request = ScanRequest {
            series: ids.to_vec(),
            range: times,
            columns: Vec::new(),
            values: ValueRange::ALL,
            batch_rows: 5,
            limit: None,
        };
        assert_eq!(snapshot.scan(request).map(|batch| batch.unwrap().num_rows()).sum::<usize>(), rows);
    }
}

#[test]
fn series_of_one_database_are_put_next_to_each_other() {
    let mut bed = Bed::new();
    for (node, series) in [("a", [1, 0, 2]), ("b", [5, 4, 1]), ("c", [3, 6, 2])] {
        let samples = series.map(|series| (series, 0, 1)).to_vec();
        bed.database(node, &[Step::Append(samples), Step::Flush]);
    }
    let snapshot = bed.open().snapshot();
    let sorted = |series: &[usize]| {
        let mut ids: Vec<SeriesId> = series.iter().map(|one| snapshot.index().id(&key(*one)).unwrap()).collect();
        snapshot.sort_by_database(&mut ids);
        ids.into_iter().map(|id| snapshot.index().key(id).unwrap()).collect::<Vec<_>>()
    };
    // 1 and 2 are those of the first that has them; the order is kept else.
    assert_eq!(sorted(&[6, 5, 4, 3, 2, 1, 0]), [2, 1, 0, 5, 4, 6, 3].map(key));
    assert_eq!(sorted(&[0, 1, 2, 3, 4, 5, 6]), [0, 1, 2, 4, 5, 3, 6].map(key));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn databases_opened_as_one_answer_as_if_their_samples_had_come_one_database_after_another(
        databases in prop::collection::vec(prop::collection::vec(step(), 0..8), 1..5),
    ) {
        let mut bed = Bed::new();
        for (at, steps) in databases.iter().enumerate() {
            // Two databases may belong to one node.
            bed.database(["a", "b", "a", "c"][at], steps);
        }
        bed.check();
    }
}

fn append(samples: &[(usize, i64, i64)]) -> Step {
    Step::Append(samples.to_vec())
}

#[test]
fn the_later_directory_wins_over_segments_and_wals_of_the_earlier() {
    let mut bed = Bed::new();
    bed.database("a", &[append(&[(0, 1, 10), (0, 2, 20)]), Step::Flush, append(&[(0, 1, 11), (0, 3, 30)])]);
    bed.database("b", &[append(&[(0, 1, 12)]), Step::Flush]);
    bed.check();
    assert_eq!(bed.expected[&key(0)], BTreeMap::from([(1, 12), (2, 20), (3, 30)]));
    // The other way round the other wins: that of the WAL, which is the later write of its database.
    bed.dirs.reverse();
    bed.expected.insert(key(0), BTreeMap::from([(1, 11), (2, 20), (3, 30)]));
    bed.node_of.insert(key(0), "a".to_owned());
    bed.check();
}

#[test]
fn one_directory_is_opened_as_itself_and_none_is_an_error() {
    let mut bed = Bed::new();
    bed.database("a", &[append(&[(0, 1, 10)])]);
    bed.check();
    let one = bed.open();
    assert_eq!((one.snapshot().node(), one.info().unwrap().dir), ("a", bed.dirs[0].clone()));
    assert_eq!(one.databases().unwrap(), [one.info().unwrap()]);
    assert_eq!(one.recoveries(), [(&*bed.dirs[0], one.recovery())]);
    assert_eq!(Db::open_together(&[], Options::default()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_directory_that_is_no_database_is_named() {
    let mut bed = Bed::new();
    bed.database("a", &[]);
    let nothing = bed.dir.path().join("nothing");
    bed.dirs.push(nothing.clone());
    let error = Db::open_together(&bed.dirs, Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&nothing.display().to_string()), "{error}");
}

#[test]
fn several_databases_are_read_only_and_tell_what_each_of_them_is() {
    let mut bed = Bed::new();
    bed.database("b", &[append(&[(0, HOUR, 1), (1, 7, 2)]), Step::Flush, append(&[(0, HOUR + 1, 3)])]);
    bed.database("a", &[append(&[(0, 5, 1)])]);
    let db = bed.open();
    assert!(db.is_read_only());
    assert!(matches!(db.series(&key(6)).unwrap_err(), crate::Error::ReadOnly { .. }));
    let info = db.info().unwrap();
    assert_eq!((info.node.as_str(), &*info.dir), ("a,b", bed.dir.path()));
    assert_eq!((info.series, info.metrics, info.samples, info.samples_unflushed), (2, 1, 4, 2));
    assert_eq!(info.time_bounds.unwrap().0, Timestamp::from_micros(5));
    assert_eq!(info.time_bounds.unwrap().1, Timestamp::from_micros(HOUR + 1));
    let each = db.databases().unwrap();
    let summary = each.iter().map(|one| (one.node.as_str(), one.series, one.samples, one.dir.clone()));
    let expected = [("b", 2, 3, bed.dirs[0].clone()), ("a", 1, 1, bed.dirs[1].clone())];
    assert_eq!(summary.collect::<Vec<_>>(), expected);
    assert_eq!(info.bytes, each.iter().map(|one| one.bytes).sum::<u64>());
    assert_eq!(info.database, format!("{},{}", each[0].database, each[1].database));
    assert_eq!(db.recoveries().iter().map(|(_, report)| report.samples).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(db.recovery().samples, 2);
    let names: Vec<String> = db.snapshot().nodes().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn metadata_is_that_of_all_and_the_later_database_wins() {
    let mut bed = Bed::new();
    let metric = |name: &str, unit: &str| MetaChange::Metric {
        name: name.into(),
        meta: MetricMeta { kind: MetricKind::Gauge, unit: unit.to_owned(), help: String::new() },
    };
    let note = |start: i64, tsuid: Option<&str>, text: &str| {
        MetaChange::Annotate(Annotation {
            tsuid: tsuid.map(str::to_owned),
            start: Timestamp::from_micros(start),
            description: text.to_owned(),
            ..Annotation::default()
        })
    };
    let job = |id: &str| MetaChange::Job(serde_json::json!({ "id": id }));
    let first = [metric("x", "s"), metric("y", "B"), note(1, None, "one"), note(2, Some("01"), "mine"), job("7")];
    let second = [metric("x", "ms"), note(1, None, "again"), note(3, Some("01"), "another's number"), job("8")];
    for (node, changes) in [("a", first.to_vec()), ("b", second.to_vec())] {
        let db = bed.database(node, &[]);
        for change in changes {
            db.put_meta(change, Durability::Buffered).unwrap();
        }
    }
    let db = bed.open();
    let snapshot = db.snapshot();
    let unit = |name| snapshot.meta().metric(name).unwrap().unit.clone();
    assert_eq!([unit("x"), unit("y")], ["ms", "B"]);
    let notes: Vec<&str> = snapshot.meta().annotations().iter().map(|note| &*note.description).collect();
    // A number of a series is that of its own database: of the first it is still right.
    assert_eq!(notes, ["again", "mine"]);
    let jobs: Vec<_> = db.databases().unwrap().into_iter().map(|one| one.job.unwrap()["id"].clone()).collect();
    assert_eq!(jobs, ["7", "8"]);
}

#[test]
fn nothing_is_written_where_the_databases_stand() {
    let mut bed = Bed::new();
    bed.database("a", &[append(&[(0, 1, 10)]), Step::Flush]);
    bed.database("b", &[append(&[(1, 1, 10)])]);
    let before = files(bed.dir.path());
    bed.check();
    assert_eq!(files(bed.dir.path()), before);
}

/// Every file below `dir` with its length.
fn files(dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), path.metadata().unwrap().len());
        }
    }
    found
}

#[test]
fn a_segment_of_a_database_without_the_series_is_not_even_opened() {
    let mut bed = Bed::new();
    bed.database("a", &[append(&[(0, 1, 10), (1, 1, 10)]), Step::Flush]);
    bed.database("b", &[append(&[(2, 1, 20), (1, 2, 10)]), Step::Flush]);
    let db = bed.open();
    for entry in std::fs::read_dir(bed.dirs[1].join("segments")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let snapshot = db.snapshot();
    let id = |series| snapshot.index().id(&key(series)).unwrap();
    let points = |series| snapshot.points(vec![id(series)], TimeRange::ALL).next().unwrap();
    assert_eq!(points(0).unwrap().times.len(), 1);
    assert!(snapshot.last(id(0)).unwrap().is_some());
    for series in [1, 2] {
        let error = points(series).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("open the database again"), "{error}");
    }
}

#[test]
fn hundreds_of_small_databases_are_one_in_the_order_in_which_they_were_named() {
    let mut bed = Bed::new();
    for host in 0..300_i64 {
        // A series of its own, one that all have, and for every third host a WAL instead of a segment.
        let node = format!("n{host:03}");
        let mut steps = vec![Step::Append(vec![(0, 0, host), (0, (host + 1) * HOUR, host)])];
        if host % 3 > 0 {
            steps.push(Step::Flush);
        }
        bed.database(&node, &steps);
    }
    bed.check();
    let db = bed.open();
    let found: Vec<_> = db.recoveries().into_iter().map(|(dir, _)| dir.to_path_buf()).collect();
    assert_eq!(found, bed.dirs);
}

#[test]
fn a_database_that_cannot_be_opened_is_left_out_and_named() {
    let mut bed = Bed::new();
    for host in 0..40_i64 {
        bed.database(&format!("n{host}"), &[Step::Append(vec![(0, host * HOUR, host)]), Step::Flush]).close().unwrap();
    }
    let damaged = [3, 17].map(|at| bed.dirs[at].clone());
    for dir in &damaged {
        std::fs::write(dir.join("MANIFEST"), b"not what was written").unwrap();
    }
    let refused = Db::open_together(&bed.dirs, Options::default()).unwrap_err();
    assert!(refused.to_string().contains(&*damaged[0].to_string_lossy()), "{refused}");
    let (db, unopened) = Db::open_together_but(&bed.dirs, Options::default()).unwrap();
    let named: Vec<_> = unopened.iter().map(|one| (one.dir.clone(), one.error.kind())).collect();
    assert_eq!(named, damaged.clone().map(|dir| (dir, ErrorKind::Corrupt)));
    assert_eq!(db.databases().unwrap().len(), 38);
    assert_eq!(db.info().unwrap().samples, 38);
    let none = Db::open_together_but(&damaged, Options::default()).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Corrupt, "{none}");
}

/// Everything that a snapshot answers: the samples of every series, the node of each, and the newest of each.
fn all(snapshot: &Snapshot) -> BTreeMap<SeriesKey, (String, Vec<(Timestamp, Value)>)> {
    let mut found = BTreeMap::new();
    for metric in snapshot.metrics() {
        let selected = snapshot.select(&metric, &[]);
        for points in snapshot.points(selected, TimeRange::ALL) {
            let points = points.unwrap();
            let samples: Vec<_> =
                points.times.iter().enumerate().map(|(at, time)| (*time, points.values.get(at))).collect();
            assert_eq!(snapshot.last(points.series).unwrap(), samples.last().copied());
            let node = snapshot.node_of(points.series).to_string();
            found.insert(snapshot.index().key(points.series).unwrap(), (node, samples));
        }
    }
    found
}

/// A job that has its databases to itself.
fn of_job(snapshot: &Snapshot, job: &str) -> Option<Snapshot> {
    let jobs = snapshot.jobs(|id| id == job);
    let pieces = &jobs.first()?.pieces;
    assert_eq!((jobs.len(), pieces.len(), &*pieces[0].ranges), (1, 1, &[TimeRange::ALL][..]));
    Some(pieces[0].snapshot.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 40 } else { 400 }))]

    #[test]
    fn a_job_among_several_is_what_its_own_databases_are(
        databases in prop::collection::vec((0usize..3, prop::collection::vec(step(), 0..4)), 1..7),
    ) {
        let mut bed = Bed::new();
        for (at, (job, steps)) in databases.iter().enumerate() {
            let db = bed.database(["n1", "n2"][at % 2], steps);
            let described = MetaChange::Job(serde_json::json!({ "id": format!("job-{job}") }));
            db.put_meta(described, Durability::Buffered).unwrap();
        }
        let snapshot = bed.open().snapshot();
        let parts: Vec<String> = snapshot.job_parts().iter().map(|part| format!("{}", part.job)).collect();
        prop_assert_eq!(&parts, &databases.iter().map(|(job, _)| format!("job-{job}")).collect::<Vec<_>>());
        for job in ["job-0", "job-1", "job-2", "job-3"] {
            let dirs: Vec<PathBuf> =
                bed.dirs.iter().zip(&parts).filter(|(_, of)| *of == job).map(|(dir, _)| dir.clone()).collect();
            let Some(of_job) = of_job(&snapshot, job) else {
                prop_assert!(dirs.is_empty());
                continue;
            };
            let alone = Db::open_together(&dirs, Options::default()).unwrap().snapshot();
            prop_assert_eq!(all(&of_job), all(&alone));
            prop_assert_eq!(of_job.job_parts(), alone.job_parts());
        }
    }
}

#[test]
fn a_database_that_is_read_alone_is_its_own_job_and_no_other() {
    let mut bed = Bed::new();
    let db = bed.database("n1", &[append(&[(0, 1, 10)]), Step::Flush, append(&[(0, 2, 20)])]);
    let undescribed = db.snapshot().job_parts();
    assert_eq!((&*undescribed[0].job, &undescribed[0].description), ("local", &None));
    db.put_meta(MetaChange::Job(serde_json::json!({"id": "4711", "name": "trial"})), Durability::Buffered).unwrap();
    let snapshot = db.snapshot();
    let parts = snapshot.job_parts();
    assert_eq!((&*parts[0].job, &*parts[0].node, parts.len()), ("4711", "n1", 1));
    assert_eq!(parts[0].description.as_ref().unwrap()["name"], "trial");
    assert_eq!(all(&of_job(&snapshot, "4711").unwrap()), all(&snapshot));
    assert!(of_job(&snapshot, "4712").is_none());
}

#[test]
fn databases_that_nobody_described_are_a_job_each_where_they_are_of_one_node() {
    let mut bed = Bed::new();
    for node in ["n1", "n2", "n1", "n1"] {
        bed.database(node, &[append(&[(0, 1, 10)])]);
    }
    let parts = bed.open().snapshot().job_parts();
    let jobs: Vec<(&str, &str)> = parts.iter().map(|part| (&*part.node, &*part.job)).collect();
    assert_eq!(jobs, [("n1", "local"), ("n2", "local"), ("n1", "local-2"), ("n1", "local-3")]);
}

#[test]
fn a_node_that_knows_the_id_of_its_job_alone_has_the_description_of_the_head() {
    let mut bed = Bed::new();
    let full = serde_json::json!({ "id": "7", "name": "trial" });
    for (node, job) in
        [("n1", serde_json::json!({ "id": "7" })), ("n2", full.clone()), ("n3", serde_json::json!({ "id": "7" }))]
    {
        let db = bed.database(node, &[]);
        db.put_meta(MetaChange::Job(job), Durability::Buffered).unwrap();
    }
    let snapshot = bed.open().snapshot();
    assert!(snapshot.job_parts().iter().all(|part| part.description.as_deref() == Some(&full)));
    assert_eq!(snapshot.meta().job(), Some(&full));
}

#[test]
fn runs_with_one_id_are_numbered_by_their_start_and_nodes_belong_to_the_run_that_went_on_then() {
    let mut bed = Bed::new();
    let run = |start: &str| serde_json::json!({"id": "7", "command": ["train"], "start": start});
    let id = serde_json::json!({"id": "7"});
    let (first, second) = (run("1970-01-01T00:00:00Z"), run("1970-01-01T01:00:00+00:00"));
    // Two runs of an hour in one allocation, each over two nodes; the later one's databases come first. What was recovered
    // of the first stands in a second database. Then a node whose head came a little later, as with a launcher.
    for (node, job, at) in [
        ("n1", &second, 3_601),
        ("n2", &id, 3_602),
        ("n1", &first, 1),
        ("n2", &id, 2),
        ("n1", &first, 60),
        ("n3", &run("1970-01-01T00:00:01Z"), 2),
        ("n4", &serde_json::json!({"id": "8"}), 2),
    ] {
        let db = bed.database(node, &[append(&[(0, at * 1_000_000, 10)])]);
        db.put_meta(MetaChange::Job(job.clone()), Durability::Buffered).unwrap();
        db.flush().unwrap();
    }
    let db = bed.open();
    let jobs =
        |snapshot: &Snapshot| -> Vec<String> { snapshot.job_parts().iter().map(|part| part.job.to_string()).collect() };
    let expected = ["7-2", "7-2", "7", "7", "7", "7", "8"];
    assert_eq!(jobs(&db.snapshot()), expected);
    // The description is that of its own run.
    assert_eq!(db.snapshot().job_parts()[1].description.as_deref(), Some(&second));
    // And so are the tags of whoever knows tags alone.
    let snapshot = db.snapshot();
    let tags: std::collections::BTreeSet<String> = snapshot
        .metrics()
        .iter()
        .flat_map(|metric| {
            let by_job = SeriesByJob::new(&snapshot, metric, |_| true, &|| false).unwrap();
            let names = by_job.names();
            let tag = |series| names.index().key(series).unwrap().tags().get("job").unwrap().to_owned();
            names.select(metric, &[]).into_iter().map(tag).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), ["7", "7-2", "8"]);
    // Of jobs that nobody asks for there are none, and none at all once nobody waits.
    let metric = &*snapshot.metrics()[0];
    let known = |by_job: SeriesByJob| by_job.names().index().len();
    let all = known(SeriesByJob::new(&snapshot, metric, |_| true, &|| false).unwrap());
    let one = known(SeriesByJob::new(&snapshot, metric, |job| job == "7", &|| false).unwrap());
    assert!(0 < one && one < all, "{one} of {all}");
    assert_eq!(known(SeriesByJob::new(&snapshot, metric, |_| true, &|| true).unwrap()), 0);
}

/// What each job has of the metrics `loss` and `power`, as `job metric: time=value ...`, with the tag `job` alone.
fn by_jobs(snapshot: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for metric in ["loss", "power"] {
        let by_job = SeriesByJob::new(snapshot, metric, |_| true, &|| false).unwrap();
        for series in by_job.names().select(metric, &[]) {
            let key = by_job.names().index().key(series).unwrap();
            let tags: Vec<String> = key.tags().iter().map(|(key, value)| format!("{key}={value}")).collect();
            let points = by_job.points(series, TimeRange::ALL).unwrap();
            assert_eq!(points.is_some(), by_job.has_points(series, TimeRange::ALL).unwrap());
            let Some(points) = points else { continue };
            let at = |(at, time): (usize, &Timestamp)| format!("{}={}", time.micros(), points.values.get(at).as_f64());
            let points: Vec<String> = points.times.iter().enumerate().map(at).collect();
            lines.push(format!("{metric} {}: {}", tags.join(","), points.join(" ")));
        }
    }
    lines
}

#[test]
fn jobs_that_share_a_database_are_told_apart_while_it_is_written_saved_and_beside_others() {
    let mut bed = Bed::new();
    let db = bed.database("n1", &[]);
    let append = |metric: &str, slot: Option<&str>, samples: &[(i64, i64)]| {
        let tags = slot.map(|slot| (JOB_SLOT_TAG, slot));
        let key = SeriesKey::new(metric, TagSet::new(tags).unwrap()).unwrap();
        let series = db.series(&key).unwrap();
        let mut batch = SampleBatch::default();
        for (time, value) in samples {
            batch.push(series, Timestamp::from_micros(*time), Value::Int(*value));
        }
        db.append(&batch, Durability::Buffered).unwrap();
    };
    let job = |slot, since: Option<i64>, begin, end: Option<i64>, id: &str| {
        let at = Timestamp::from_micros;
        let job = serde_json::json!({ "id": id });
        let interval =
            JobInterval { slot, since: since.map(at), begin: at(begin), end: end.map(at), job: Arc::new(job) };
        db.put_meta(MetaChange::JobInterval(interval), Durability::Buffered).unwrap();
    };
    append("power", None, &[(5, 100), (15, 101), (35, 103)]);
    job(0, None, 10, None, "a");
    append("loss", Some("0"), &[(11, 1), (12, 2)]);
    job(1, None, 11, None, "b");
    append("loss", Some("1"), &[(12, 20)]);
    db.flush().unwrap();
    // The first one ends, and the same id runs again in its place.
    job(0, None, 10, Some(20), "a");
    job(0, Some(21), 30, None, "a");
    append("loss", Some("0"), &[(31, 3)]);
    append("power", None, &[(25, 102)]);
    let expected = [
        "loss job=a: 11=1 12=2",
        "loss job=a-2: 31=3",
        "loss job=b: 12=20",
        "power job=a: 15=101",
        "power job=a-2: 35=103",
        "power job=b: 15=101 25=102 35=103",
        "power job=local: 5=100",
    ];
    assert_eq!(by_jobs(&db.snapshot()), expected);
    let ids =
        |snapshot: &Snapshot| -> Vec<String> { snapshot.job_parts().iter().map(|part| part.job.to_string()).collect() };
    assert_eq!(ids(&db.snapshot()), ["a", "b", "a-2", "local"]);
    drop(db);
    assert_eq!(by_jobs(&Db::open_read_only(&bed.dirs[0], Options::default()).unwrap().snapshot()), expected);

    // Beside a run that has its database to itself.
    let other = bed.database("n2", &[]);
    other.put_meta(MetaChange::Job(serde_json::json!({"id": "c"})), Durability::Buffered).unwrap();
    let series = other.series(&SeriesKey::new("loss", TagSet::default()).unwrap()).unwrap();
    let mut batch = SampleBatch::default();
    batch.push(series, Timestamp::from_micros(12), Value::Int(7));
    other.append(&batch, Durability::Buffered).unwrap();
    drop(other);
    let together = bed.open().snapshot();
    let mut with_other = expected.map(str::to_owned).to_vec();
    with_other.insert(3, "loss job=c: 12=7".to_owned());
    assert_eq!(by_jobs(&together), with_other);
    assert_eq!(ids(&together), ["a", "b", "a-2", "local", "c"]);
}
