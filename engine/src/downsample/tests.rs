use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::ExactSum;
use crate::db::{Db, Durability};
use crate::disk::sim::SimDisk;
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::series::{SeriesKey, TagSet};
use crate::value::Value;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const FUNCTIONS: [Function; 8] = [
    Function::Sum,
    Function::Count,
    Function::Min,
    Function::Max,
    Function::Avg,
    Function::First,
    Function::Last,
    Function::Dev,
];

/// Everything that was written to each series.
type Stored = BTreeMap<SeriesId, BTreeMap<i64, Value>>;

struct Bed {
    db: Db,
    stored: Stored,
}

impl Bed {
    fn new() -> Self {
        let options = Options { disk: Arc::new(SimDisk::new(1)), ..Options::default() };
        Self { db: Db::open(Path::new("/db"), options).unwrap(), stored: Stored::new() }
    }

    fn series(&self, number: u32) -> SeriesId {
        let tags = TagSet::new([("host", number.to_string())]).unwrap();
        self.db.series(&SeriesKey::new("m", tags).unwrap()).unwrap()
    }

    fn put(&mut self, number: u32, samples: impl IntoIterator<Item = (i64, Value)>) {
        let series = self.series(number);
        let mut batch = SampleBatch::default();
        for (time, value) in samples {
            batch.push(series, Timestamp::from_micros(time), value);
            self.stored.entry(series).or_default().insert(time, value);
        }
        self.db.append(&batch, Durability::Buffered).unwrap();
    }

    fn ask(&self, range: TimeRange, step: i64, function: Function) -> Vec<SeriesBuckets> {
        let series: Vec<SeriesId> = self.stored.keys().copied().collect();
        let step = Step::from_micros(step).unwrap();
        let request = DownsampleRequest { series, range, step, function };
        self.db.snapshot().downsample(request).map(Result::unwrap).collect()
    }

    /// The answer must be what the samples, one after the other, give.
    fn check(&self, range: TimeRange, step: i64, function: Function) -> std::result::Result<(), TestCaseError> {
        let found = self.ask(range, step, function);
        let expected = naive(&self.stored, range, step, function);
        let shape = |answer: &[SeriesBuckets]| -> Vec<(SeriesId, Vec<Timestamp>)> {
            answer.iter().map(|one| (one.series, one.starts.clone())).collect()
        };
        prop_assert_eq!(shape(&found), shape(&expected));
        for (found, expected) in found.iter().zip(&expected) {
            for ((start, found), expected) in found.starts.iter().zip(&found.values).zip(&expected.values) {
                prop_assert!(same(*found, *expected), "{function:?} at {start}: {found:?}, expected {expected:?}");
            }
        }
        Ok(())
    }
}

impl Bed {
    /// All functions in one pass must give what each gives alone.
    fn check_together(&self, range: TimeRange, step: i64) -> std::result::Result<(), TestCaseError> {
        let series: Vec<SeriesId> = self.stored.keys().copied().collect();
        let width = Step::from_micros(step).unwrap();
        let request = FoldRequest { series, range, step: width, functions: FUNCTIONS.to_vec() };
        let found: Vec<SeriesFolds> = self.db.snapshot().fold(request).map(Result::unwrap).collect();
        for (at, function) in FUNCTIONS.into_iter().enumerate() {
            let alone = self.ask(range, step, function);
            prop_assert_eq!(found.len(), alone.len());
            for (found, alone) in found.iter().zip(&alone) {
                prop_assert_eq!((found.series, &found.starts), (alone.series, &alone.starts));
                let equal = found.values[at].iter().zip(&alone.values).all(|(a, b)| same(*a, *b));
                prop_assert!(equal, "{function:?}: {:?}, alone {:?}", found.values[at], alone.values);
            }
        }
        Ok(())
    }
}

/// To the last bit.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn naive(stored: &Stored, range: TimeRange, step: i64, function: Function) -> Vec<SeriesBuckets> {
    let mut answer = Vec::new();
    for (series, samples) in stored {
        let inside = samples.range(range.start.micros()..range.end.micros());
        let mut buckets: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
        let mut seen = false;
        for (time, value) in inside {
            seen = true;
            let start = time.div_euclid(step) * step;
            if start >= range.start.micros() {
                buckets.entry(start).or_default().push(value.as_f64());
            }
        }
        if seen {
            let (starts, values) =
                buckets.into_iter().map(|(start, values)| (start, of(function, &values))).unzip::<_, _, Vec<i64>, _>();
            let starts = starts.into_iter().map(Timestamp::from_micros).collect();
            answer.push(SeriesBuckets { series: *series, starts, values });
        }
    }
    answer
}

fn of(function: Function, all: &[f64]) -> f64 {
    let numbers: Vec<f64> = all.iter().copied().filter(|value| !value.is_nan()).collect();
    let count = numbers.len() as f64;
    let mut sum = ExactSum::default();
    numbers.iter().for_each(|value| sum.add(*value));
    let sum = sum.value();
    let finite = |value: f64| if value.is_infinite() { f64::NAN } else { value };
    match function {
        // Rises are not among the functions that are asked for here.
        Function::LeastRise(_) | Function::GreatestRise(_) => f64::NAN,
        Function::Count => count,
        Function::First => all[0],
        Function::Last => all[all.len() - 1],
        _ if numbers.is_empty() => f64::NAN,
        Function::Sum => sum,
        Function::Avg => sum / count,
        // Of nothing but infinities there is no least; one that is really least stays.
        Function::Min if numbers.iter().all(|value| *value == f64::INFINITY) => finite(f64::INFINITY),
        Function::Min => numbers.iter().copied().fold(f64::INFINITY, f64::min),
        Function::Max if numbers.iter().all(|value| *value == f64::NEG_INFINITY) => finite(f64::INFINITY),
        Function::Max => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Function::Dev => {
            let mut mean = numbers[0];
            let mut squares = 0.0;
            for (at, value) in numbers.iter().enumerate().skip(1) {
                let next = mean + (value - mean) / (at + 1) as f64;
                squares += (value - mean) * (value - next);
                mean = next;
            }
            if numbers.len() == 1 { 0.0 } else { (squares / count).sqrt() }
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Put { series: u32, start: i64, step: i64, late: bool, values: Vec<Value> },
    Flush,
    Compact,
}

fn values() -> impl Strategy<Value = Vec<Value>> {
    let cents = || (-40_000..40_000_i32).prop_map(|cents| Value::Float(f64::from(cents) / 100.0));
    let float = || any::<i32>().prop_map(|bits| Value::Float(f64::from(bits).sin()));
    let int = || (-1_000..1_000_i64).prop_map(Value::Int);
    let odd = || select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0]).prop_map(Value::Float);
    prop_oneof![
        3 => vec(cents(), 1..80),
        2 => vec(float(), 1..80),
        3 => vec(int(), 1..80),
        1 => (int(), 1..80_usize).prop_map(|(value, count)| vec![value; count]),
        1 => vec(prop_oneof![4 => float(), 1 => odd()], 1..80),
        1 => vec(prop_oneof![int(), cents(), float(), odd()], 1..80),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let put = (
        0..3_u32,
        // About three hours, so that some buckets have samples of several segments.
        prop_oneof![(-90..90_i64).prop_map(|minutes| minutes * 60 * SECOND), -2 * HOUR..2 * HOUR],
        select(vec![1_000, 250_000, SECOND, 7 * SECOND, 60 * SECOND]),
        any::<bool>(),
        values(),
    );
    prop_oneof![
        6 => put.prop_map(|(series, start, step, late, values)| Act::Put { series, start, step, late, values }),
        2 => Just(Act::Flush),
        1 => Just(Act::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn buckets_are_those_of_the_samples_wherever_these_stand(
        acts in vec(act(), 1..12),
        questions in vec(
            (
                prop_oneof![Just((-3 * HOUR, 6 * HOUR)), (-2 * HOUR..2 * HOUR, 1..3 * HOUR), (-2..2_i64, 1..3_i64).prop_map(|(from, length)| (from * HOUR, length * HOUR))],
                select(vec![1_000, SECOND, 10 * SECOND, 60 * SECOND, 420 * SECOND, HOUR, 5 * HOUR, 24 * HOUR]),
                select(FUNCTIONS.to_vec()),
            ),
            12,
        ),
    ) {
        let mut bed = Bed::new();
        for act in acts {
            match act {
                Act::Put { series, start, step, late, values } => {
                    // One clock that is late now and then: times that are no ticks.
                    let late = |at: i64| if late { at * at % 13 * step / 20 } else { 0 };
                    let times = (0..values.len() as i64).map(|at| start + at * step + late(at));
                    bed.put(series, times.zip(values));
                }
                Act::Flush => drop(bed.db.flush().unwrap()),
                Act::Compact => drop(bed.db.compact().unwrap()),
            }
        }
        for ((from, length), step, function) in questions {
            let range = TimeRange::new(Timestamp::from_micros(from), Timestamp::from_micros(from + length));
            bed.check(range, step, function)?;
            bed.check_together(range, step)?;
        }
    }
}

#[test]
fn a_late_hour_over_a_long_day_is_merged_in_parts() {
    let mut bed = Bed::new();
    bed.put(0, (0..180_000).map(|at| (at * SECOND / 4, Value::Int(at % 100))));
    bed.db.flush().unwrap();
    // Every other sample of the whole day once more, and one between.
    bed.put(0, (0..90_000).map(|at| (at * SECOND / 2, Value::Float(0.5))));
    bed.put(0, [(7 * HOUR + 1, Value::Int(1_000))]);
    for function in [Function::Avg, Function::Last] {
        bed.check(day(), 60 * SECOND, function).unwrap();
        bed.check(day(), 5 * HOUR, function).unwrap();
    }
}

fn day() -> TimeRange {
    TimeRange::new(Timestamp::from_micros(0), Timestamp::from_micros(24 * HOUR))
}

#[test]
fn long_runs_that_tick_or_share_times_or_do_neither_make_the_same_buckets() {
    for late in [0, 1, 2] {
        let mut bed = Bed::new();
        for series in 0..3_u32 {
            // Regular; late alike, as of one clock; late each in its own way.
            let own = i64::from(series) * (late - 1).max(0);
            let time = |at: i64| at * SECOND + if late > 0 { at * (at + own) % 977 } else { 0 };
            let value = |at: i64| match series {
                0 => Value::Int(at * 7 % 1_000),
                1 => Value::Float((at * 13 % 10_000) as f64 / 100.0),
                _ => Value::Float((at as f64).sin()),
            };
            bed.put(series, (0..6_000).map(|at| (time(at), value(at))));
        }
        bed.db.flush().unwrap();
        for function in FUNCTIONS {
            for step in [10 * SECOND, 61 * SECOND, HOUR] {
                bed.check(day(), step, function).unwrap();
                let part = TimeRange::new(Timestamp::from_micros(HOUR / 2 + 7), Timestamp::from_micros(HOUR + 1_001));
                bed.check(part, step, function).unwrap();
            }
        }
    }
}

#[test]
fn a_sample_after_the_last_tick_of_a_run_counts_in_the_bucket_of_that_tick() {
    // Buckets that are filled four at a time, and some that remain.
    for (minutes, function) in (29..33).flat_map(|minutes| FUNCTIONS.map(|function| (minutes, function))) {
        let mut bed = Bed::new();
        bed.put(0, (0..minutes).map(|at| (at * 60 * SECOND, Value::Int(at))));
        bed.db.flush().unwrap();
        bed.put(0, [((minutes - 1) * 60 * SECOND + 59, Value::Float(0.5))]);
        bed.check(day(), 60 * SECOND, function).unwrap();
    }
}

#[test]
fn a_late_sample_under_a_flushed_hour_counts_in_its_bucket_alone() {
    let mut bed = Bed::new();
    bed.put(0, (0..3 * 3_600).map(|at| (at * SECOND, Value::Int(1))));
    bed.db.flush().unwrap();
    bed.put(0, [(HOUR + SECOND / 2, Value::Int(10)), (HOUR + 60 * SECOND, Value::Int(100))]);
    for _ in 0..2 {
        for function in FUNCTIONS {
            bed.check(day(), HOUR, function).unwrap();
            bed.check(day(), 60 * SECOND, function).unwrap();
        }
        // The same from a second segment.
        bed.db.flush().unwrap();
    }
    let sums = bed.ask(day(), HOUR, Function::Sum);
    assert_eq!(sums[0].values, [3_600.0, 3_600.0 + 10.0 + 99.0, 3_600.0]);
}

#[test]
fn sums_of_large_integers_as_floats_are_rounded_once() {
    let mut bed = Bed::new();
    let large = [i64::MAX, 1, -i64::MAX, 3, (1 << 53) + 2, 1];
    bed.put(0, large.iter().enumerate().map(|(at, int)| (at as i64, Value::Int(*int))));
    bed.db.flush().unwrap();
    let found = bed.ask(day(), HOUR, Function::Sum)[0].values[0];
    assert_eq!(found, large.iter().map(|int| i128::from(*int)).sum::<i128>() as f64);
}

#[test]
fn sums_are_the_same_from_memtable_segments_and_summaries() {
    // Of what the order of additions changes in every way: floats of all digits, decimals, what cancels.
    let value = |series: i64, at: i64| match series {
        0 => (at as f64).sin() * 10_f64.powi((at % 40) as i32 - 20),
        1 => (at * 37 % 10_007) as f64 / 100.0,
        2 => [1e16, 1.0, -1e16, 0.1][at as usize % 4],
        3 => [1e308, 1e308, -1e308, -1e308][at as usize % 4],
        4 => 0.1,
        _ => (at * 7 % 1_000) as f64,
    };
    let samples = 4_000;
    let ask = |bed: &Bed| {
        let mut answers = Vec::new();
        for function in [Function::Sum, Function::Avg] {
            for step in [10 * SECOND, 600 * SECOND, 2 * HOUR, 24 * HOUR] {
                bed.check(day(), step, function).unwrap();
                let bits = |one: SeriesBuckets| one.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                answers.push(bed.ask(day(), step, function).into_iter().map(bits).collect::<Vec<_>>());
            }
        }
        answers
    };
    let mut first = None;
    for parts in [1, 3, 40] {
        let mut bed = Bed::new();
        for part in 0..parts {
            let of_part = |at: &i64| at * parts / samples == part;
            for series in 0..6 {
                let times = (0..samples).filter(of_part);
                bed.put(series, times.map(|at| (at * SECOND, Value::Float(value(i64::from(series), at)))));
            }
            if part + 1 < parts {
                bed.db.flush().unwrap();
            }
        }
        assert_eq!(first.get_or_insert_with(|| ask(&bed)), &ask(&bed), "{parts} parts, one in the memtable");
        bed.db.flush().unwrap();
        assert_eq!(first.as_ref(), Some(&ask(&bed)), "{parts} segments");
        bed.db.compact().unwrap();
        assert_eq!(first.as_ref(), Some(&ask(&bed)), "merged of {parts}");
    }
}

#[test]
fn the_ends_of_all_time_have_buckets_too() {
    let mut bed = Bed::new();
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX - 2, i64::MAX - 1];
    bed.put(0, ends.iter().map(|time| (*time, Value::Int(1))));
    for _ in 0..2 {
        for step in [1, SECOND, HOUR, i64::MAX] {
            let found = bed.ask(TimeRange::ALL, step, Function::Count);
            let count: f64 = found[0].values.iter().sum();
            // Of the first bucket a part may lie before all time.
            assert!((4.0..=6.0).contains(&count), "{count} in steps of {step}");
        }
        bed.db.flush().unwrap();
    }
}

#[test]
fn a_run_around_the_range_with_no_sample_within_is_no_series_of_the_answer() {
    let mut bed = Bed::new();
    for (number, times) in [(0, [0, 1_000, 3_780 * SECOND]), (1, [0, 1_890 * SECOND, 3_780 * SECOND])] {
        bed.put(number, times.map(|time| (time, Value::Float(0.5))));
    }
    bed.db.flush().unwrap();
    bed.db.compact().unwrap();
    let range = TimeRange::new(Timestamp::from_seconds(600), Timestamp::from_seconds(1_800));
    for function in FUNCTIONS {
        bed.check(range, 60 * SECOND, function).unwrap();
        bed.check(range, HOUR, function).unwrap();
        // The next bucket begins after the last sample.
        bed.check(range, 5 * HOUR, function).unwrap();
    }
}

#[test]
fn a_series_may_be_asked_for_twice_and_one_without_samples_is_left_out() {
    let mut bed = Bed::new();
    bed.put(0, (0..100).map(|at| (at * SECOND, Value::Int(at))));
    bed.put(1, (0..100).map(|at| (at * SECOND, Value::Int(-at))));
    let nobody = bed.series(2);
    bed.db.flush().unwrap();
    let (a, b) = (bed.series(0), bed.series(1));
    let request = DownsampleRequest {
        series: vec![b, a, nobody, b],
        range: day(),
        step: Step::from_micros(60 * SECOND).unwrap(),
        function: Function::Min,
    };
    let found: Vec<SeriesBuckets> = bed.db.snapshot().downsample(request).map(Result::unwrap).collect();
    assert_eq!(found.iter().map(|one| one.series).collect::<Vec<_>>(), [b, a, b]);
    assert_eq!((&*found[0].values, &*found[1].values), (&[-59.0, -99.0][..], &[0.0, 60.0][..]));
    assert_eq!(found[0].values, found[2].values);
}

/// Counters and gauges whose samples stand in a memtable, in segments, and on both sides of a bucket.
#[test]
fn a_rise_is_that_from_a_sample_to_the_next_and_counts_in_the_bucket_of_the_later_one() {
    let mut bed = Bed::new();
    // A burst of one second, and a counter that starts again.
    let counts = [0, 10, 20, 520, 530, 540, 5, 15, 25, 35];
    let samples = |range: std::ops::Range<usize>| range.map(|at| (at as i64 * SECOND, Value::Int(counts[at])));
    bed.put(0, samples(0..4));
    bed.db.flush().unwrap();
    bed.put(0, samples(4..7));
    bed.db.flush().unwrap();
    bed.put(0, samples(7..10));
    let ask = |function| {
        let (range, step) =
            (TimeRange::new(Timestamp::from_micros(0), Timestamp::from_micros(10 * SECOND)), 5 * SECOND);
        let found = bed.ask(range, step, function).remove(0);
        assert_eq!(found.starts, [0, 5 * SECOND].map(Timestamp::from_micros));
        found.values
    };
    assert_eq!(ask(Function::LeastRise(Rising::Counter)), [10.0, 10.0]);
    assert_eq!(ask(Function::GreatestRise(Rising::Counter)), [500.0, 10.0]);
    assert_eq!(ask(Function::LeastRise(Rising::Gauge)), [10.0, -535.0]);
    // The first sample of all has none before it.
    bed.put(1, [(SECOND, Value::Float(f64::NAN)), (2 * SECOND, Value::Float(1.0)), (7 * SECOND, Value::Float(2.5))]);
    let found = bed.ask(day(), 5 * SECOND, Function::LeastRise(Rising::Gauge)).remove(1);
    assert!(found.values[0].is_nan());
    assert_eq!(found.values[1], 0.3);
}
