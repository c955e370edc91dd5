use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::db::{Db, Durability};
use crate::disk::sim::{Failure, Fault, Operation, SimDisk};
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::series::{SeriesKey, TagSet};

const PARTS: [DigestPart; 5] =
    [DigestPart::Samples, DigestPart::First, DigestPart::Last, DigestPart::Extremes, DigestPart::Sum];
const SERIES: usize = 3;

/// What happens to a database before it is asked.
#[derive(Clone, Debug)]
enum Event {
    /// Samples of one series, a second apart.
    Put {
        series: usize,
        from: i64,
        values: Vec<Value>,
    },
    Flush,
    Merge,
}

fn values() -> impl Strategy<Value = Vec<Value>> {
    let int = any::<i16>().prop_map(|int| Value::Int(int.into()));
    let large = any::<i64>().prop_map(Value::Int);
    let decimal = (-500..500).prop_map(|hundredths| Value::Float(f64::from(hundredths) / 100.0));
    let odd = select(vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, 1e300, 1e-300, 0.1]).prop_map(Value::Float);
    let mixed = prop_oneof![int.clone(), large.clone(), decimal.clone(), odd.clone()];
    prop_oneof![
        3 => vec(int, 1..40),
        1 => vec(large, 1..10),
        3 => vec(decimal, 1..40),
        2 => vec(odd, 1..6),
        1 => vec(mixed, 1..10),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let put = (0..SERIES, 0..200_i64, values()).prop_map(|(series, from, values)| Event::Put { series, from, values });
    vec(prop_oneof![6 => put, 2 => Just(Event::Flush), 1 => Just(Event::Merge)], 1..12)
}

struct Bed {
    db: Db,
    series: Vec<SeriesId>,
    stored: Vec<BTreeMap<i64, Value>>,
}

impl Bed {
    fn on(disk: &SimDisk, events: &[Event]) -> Self {
        let options = Options { disk: Arc::new(disk.clone()), ..Options::default() };
        let db = Db::open(Path::new("/db"), options).unwrap();
        let key = |number: usize| SeriesKey::new("m", TagSet::new([("host", number.to_string())]).unwrap()).unwrap();
        let series = (0..SERIES).map(|number| db.series(&key(number)).unwrap()).collect();
        let mut bed = Self { db, series, stored: vec![BTreeMap::new(); SERIES] };
        for event in events {
            match event {
                Event::Put { series, from, values } => bed.put(*series, *from, values),
                Event::Flush => {
                    bed.db.flush().unwrap();
                }
                Event::Merge => {
                    bed.db.flush().unwrap();
                    bed.db.compact().unwrap();
                }
            }
        }
        bed
    }

    fn put(&mut self, series: usize, from: i64, values: &[Value]) {
        let mut batch = SampleBatch::default();
        for (second, value) in (from..).zip(values) {
            batch.push(self.series[series], Timestamp::from_seconds(second), *value);
            self.stored[series].insert(second, *value);
        }
        self.db.append(&batch, Durability::Buffered).unwrap();
    }

    /// The digest of a series by its samples, one after the other.
    fn expected(&self, series: usize, range: TimeRange) -> Option<SeriesDigest> {
        let samples: Vec<(Timestamp, f64)> = self.stored[series]
            .iter()
            .map(|(second, value)| (Timestamp::from_seconds(*second), value.as_f64()))
            .filter(|(time, _)| range.contains(*time))
            .collect();
        let mut sum = ExactSum::default();
        samples.iter().for_each(|(_, value)| sum.add(*value));
        let mut sorted: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
        sorted.sort_by(|a, b| a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)));
        Some(SeriesDigest {
            series: self.series[series],
            samples: samples.len() as u64,
            first: *samples.first()?,
            last: *samples.last()?,
            least: *sorted.first()?,
            greatest: *sorted.last()?,
            sum,
        })
    }
}

/// NaN is NaN, whatever its bits.
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

fn part_of(digest: &SeriesDigest, part: DigestPart) -> Vec<u64> {
    let end = |(time, value): (Timestamp, f64)| vec![time.micros() as u64, bits(value)];
    match part {
        DigestPart::Samples => vec![digest.samples],
        DigestPart::First => end(digest.first),
        DigestPart::Last => end(digest.last),
        DigestPart::Extremes => vec![bits(digest.least), bits(digest.greatest)],
        DigestPart::Sum => digest.sum.terms().into_iter().map(bits).collect(),
    }
}

proptest! {
    #[test]
    fn a_digest_is_what_all_samples_come_to_wherever_they_are_stored(
        events in events(),
        bounds in (0..260_i64, 0..260_i64),
        everything in any::<bool>(),
        parts in subsequence(PARTS.to_vec(), 1..=PARTS.len()),
        order in vec(0..SERIES, 1..6),
    ) {
        let bed = Bed::on(&SimDisk::new(1), &events);
        let range = match everything {
            true => TimeRange::ALL,
            false => TimeRange::new(
                Timestamp::from_seconds(bounds.0.min(bounds.1)),
                Timestamp::from_seconds(bounds.0.max(bounds.1)),
            ),
        };
        let series = order.iter().map(|number| bed.series[*number]).collect();
        let request = DigestRequest { series, range, parts: parts.clone() };
        let found: Vec<SeriesDigest> = bed.db.snapshot().digests(request).map(|digest| digest.unwrap()).collect();
        let expected: Vec<SeriesDigest> = order.iter().filter_map(|number| bed.expected(*number, range)).collect();
        let names = |digests: &[SeriesDigest]| digests.iter().map(|digest| digest.series).collect::<Vec<_>>();
        prop_assert_eq!(names(&found), names(&expected));
        for (found, expected) in found.iter().zip(&expected) {
            for part in &parts {
                let (found, expected) = (part_of(found, *part), part_of(expected, *part));
                prop_assert_eq!(found, expected, "{:?}", part);
            }
        }
    }
}

#[test]
fn where_summaries_say_enough_no_page_is_read() {
    let disk = SimDisk::new(1);
    let mut bed = Bed::on(&disk, &[]);
    bed.put(0, 0, &[Value::Int(3), Value::Int(-7), Value::Int(5)]);
    bed.put(1, 0, &[Value::Float(0.25), Value::Float(4.5)]);
    bed.db.flush().unwrap();
    let snapshot = bed.db.snapshot();
    let ask = |number: usize, parts: &[DigestPart]| {
        let request = DigestRequest { series: vec![bed.series[number]], range: TimeRange::ALL, parts: parts.to_vec() };
        let digests = snapshot.digests(request).collect::<Result<Vec<_>>>();
        digests.map(|digests| digests.into_iter().next().unwrap())
    };
    // The run index is in memory from here on.
    ask(0, &[DigestPart::Last]).unwrap();
    disk.inject(Fault { failure: Failure::Once(Operation::Read), after: 0 });

    let ints = ask(0, &PARTS).unwrap();
    assert_eq!((ints.samples, ints.first.1, ints.last.1, ints.least, ints.greatest), (3, 3.0, 5.0, -7.0, 5.0));
    assert_eq!(ints.sum.value(), 1.0);
    let floats = ask(1, &PARTS[..4]).unwrap();
    assert_eq!((floats.samples, floats.first.1, floats.last.1), (2, 0.25, 4.5));
    assert_eq!((floats.least, floats.greatest), (0.25, 4.5));
    // Of floats the sum in a summary is a rounded one.
    assert!(ask(1, &PARTS).is_err());
}
