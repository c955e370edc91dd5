use telem_engine::{Options, SeriesKey, TagSet};
use tempfile::TempDir;

use super::*;

struct TailPlace {
    dir: TempDir,
    db: Db,
}

impl TailPlace {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(&dir.path().join("data"), Options::default()).unwrap();
        Self { dir, db }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("data").join(COUNTERS_TAIL)
    }

    /// A series with a sample at `second`.
    fn series(&self, metric: &str, second: i64) -> SeriesId {
        let series = self.db.series(&SeriesKey::new(metric, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        batch.push(series, at(second), Value::Float(0.0));
        self.db.append(&batch, Durability::Buffered).unwrap();
        series
    }

    fn last(&self, series: SeriesId) -> (Timestamp, f64) {
        match self.db.last(series).unwrap().unwrap() {
            (time, Value::Float(value)) => (time, value),
            (_, Value::Int(value)) => panic!("{value} is no float"),
        }
    }

    fn recovered(&self) -> usize {
        CounterTail::of(&self.db).recover(&self.db).unwrap()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(1_795_600_000_000_000 + second * 1_000_000)
}

#[test]
fn the_last_value_of_each_series_becomes_a_sample_of_its_time_once() {
    let place = TailPlace::new();
    let (a, b) = (place.series("a", 0), place.series("b", 0));
    let mut tail = CounterTail::of(&place.db);
    tail.keep(&place.db, KeptPart::Changed, at(1), &[(a, 1.0), (b, 10.0)]);
    tail.keep(&place.db, KeptPart::Changed, at(2), &[(a, 2.5)]);
    assert_eq!(place.recovered(), 2);
    assert_eq!((place.last(a), place.last(b)), ((at(2), 2.5), (at(1), 10.0)));
    assert!(!place.path().exists());
    assert_eq!(place.recovered(), 0);
}

#[test]
fn what_has_a_sample_as_late_or_later_is_no_news_and_an_emptied_tail_is_none() {
    let place = TailPlace::new();
    let (a, b) = (place.series("a", 5), place.series("b", 5));
    let mut tail = CounterTail::of(&place.db);
    tail.keep(&place.db, KeptPart::Changed, at(4), &[(a, 1.0)]);
    tail.keep(&place.db, KeptPart::Changed, at(5), &[(b, 1.0)]);
    assert_eq!(place.recovered(), 0);
    let mut tail = CounterTail::of(&place.db);
    tail.keep(&place.db, KeptPart::Changed, at(6), &[(a, 1.0)]);
    assert!(tail.has_values());
    tail.clear();
    assert!(!tail.has_values());
    tail.keep(&place.db, KeptPart::Changed, at(7), &[(b, 2.0)]);
    assert_eq!(place.recovered(), 1);
    assert_eq!((place.last(a).0, place.last(b)), (at(5), (at(7), 2.0)));
}

#[test]
fn a_long_tail_is_written_anew_with_the_last_values_alone() {
    let place = TailPlace::new();
    let series: Vec<(SeriesId, f64)> = (0..100).map(|n| (place.series(&format!("m{n}"), 0), f64::from(n))).collect();
    let mut tail = CounterTail::of(&place.db);
    tail.bytes = TAIL_BYTES_MAX + 1;
    assert!(tail.is_long());
    tail.keep(&place.db, KeptPart::Changed, at(1), &series[..1]);
    tail.keep(&place.db, KeptPart::Whole, at(2), &series);
    let whole = fs::metadata(place.path()).unwrap().len();
    assert_eq!(whole, (HEADER_BYTES + FRAME_HEAD_BYTES + TIME_BYTES + 100 * ENTRY_BYTES) as u64);
    assert!(!tail.is_long());
    tail.keep(&place.db, KeptPart::Changed, at(3), &[(series[7].0, 70.0)]);
    assert_eq!(place.recovered(), 100);
    assert_eq!((place.last(series[7].0).1, place.last(series[8].0).1), (70.0, 8.0));
}

#[test]
fn what_is_torn_or_of_another_series_counts_not_and_what_is_whole_before_it_does() {
    let place = TailPlace::new();
    let (a, b) = (place.series("a", 0), place.series("b", 0));
    let mut tail = CounterTail::of(&place.db);
    tail.keep(&place.db, KeptPart::Changed, at(1), &[(a, 1.0)]);
    let one = fs::read(place.path()).unwrap();
    tail.keep(&place.db, KeptPart::Changed, at(2), &[(a, 2.0), (b, 2.0)]);
    let two = fs::read(place.path()).unwrap();
    for length in 0..two.len() {
        fs::write(place.path(), &two[..length]).unwrap();
        let found = read(&place.path()).unwrap();
        let expected = if length < one.len() { None } else { Some(1.0) };
        assert_eq!(found.get(&a).map(|kept| kept.value), expected, "{length}");
    }
    for at in one.len()..two.len() {
        let mut damaged = two.clone();
        damaged[at] ^= 0x10;
        fs::write(place.path(), &damaged).unwrap();
        assert_eq!(read(&place.path()).unwrap()[&a].value, 1.0, "{at}");
    }
    // As after a power loss: the id is that of a series of another name.
    let other = TailPlace::new();
    let c = other.series("c", 0);
    fs::write(other.path(), &two).unwrap();
    assert_eq!((other.recovered(), other.last(c).1), (0, 0.0));
}

#[test]
fn a_tail_that_cannot_be_written_is_whole_once_it_can() {
    let place = TailPlace::new();
    let (a, b) = (place.series("a", 0), place.series("b", 0));
    let mut tail = CounterTail::at(place.dir.path().join("gone").join(COUNTERS_TAIL));
    tail.keep(&place.db, KeptPart::Changed, at(1), &[(a, 1.0)]);
    assert!(tail.is_long() && !tail.has_values());
    fs::create_dir(place.dir.path().join("gone")).unwrap();
    tail.keep(&place.db, KeptPart::Whole, at(2), &[(a, 1.0), (b, 3.0)]);
    assert!(!tail.is_long());
    assert_eq!(tail.recover(&place.db).unwrap(), 2);
    assert_eq!((place.last(a).1, place.last(b).1), (1.0, 3.0));
}

#[test]
fn a_tail_that_this_version_cannot_read_is_left_to_one_that_can() {
    let place = TailPlace::new();
    let a = place.series("a", 0);
    let mut tail = CounterTail::of(&place.db);
    tail.keep(&place.db, KeptPart::Changed, at(1), &[(a, 1.0)]);
    let mut other = fs::read(place.path()).unwrap();
    other[MAGIC.len()] += 1;
    fs::write(place.path(), &other).unwrap();
    let mut tail = CounterTail::of(&place.db);
    assert_eq!(tail.recover(&place.db).unwrap(), 0);
    tail.keep(&place.db, KeptPart::Changed, at(2), &[(a, 2.0)]);
    tail.keep(&place.db, KeptPart::Whole, at(3), &[(a, 3.0)]);
    tail.clear();
    assert_eq!(fs::read(place.path()).unwrap(), other);
}
