//! However a leaf is divided, and however few groups it adds up at a time, its answer is the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};
use proptest::prelude::*;
use telem_engine::{ExactSum, Step, TimeRange, Timestamp, Value};

use super::buckets::whole_ranges;
use super::grouped::{ChunkCut, GroupChunk};
use super::{SeriesId, SeriesRequest, SeriesSplit, Yield};
use crate::leaf::spare::PieceSizes;
use crate::leaf::{KnownSeries, LeafContext, Part, SpareCores};
use crate::question::tsq::{Downsample, Fill, Interval, Matcher, Rate, TagFilter};
use crate::question::{Aggregator, TsQuery};
use crate::testing::{Asked, EPOCH_SECONDS, StandingClock};

/// What rows of one group and bucket come to; floats by their bits.
type Cells = BTreeMap<(String, i64), (u64, i64, u64, u64)>;
/// Of a series its host and core, and second and value of each sample.
type SeriesSamples = (u8, u8, Vec<(i64, f64)>);
type Samples = Vec<SeriesSamples>;

/// Gaps, NaN, counters that start again, and sums that cancel.
fn samples() -> impl Strategy<Value = Samples> {
    let value = prop_oneof![
        6 => (0..1_000_i32).prop_map(f64::from),
        3 => -1e3..1e3,
        1 => prop_oneof![Just(f64::NAN), Just(1e16), Just(-1e16), Just(0.1)],
    ];
    let line = prop::collection::btree_map(0..600_i64, value, 1..20).prop_map(Vec::from_iter);
    prop::collection::vec((0..4_u8, 0..4_u8, line), 1..12)
}

fn load(series: &Samples) -> Asked {
    // Half of them in another database, in an order that is not that of their names.
    let text = |half: &[SeriesSamples]| {
        let line = |(host, core, samples): &SeriesSamples| {
            let samples: Vec<String> = samples.iter().map(|(second, value)| format!("{second}:{value:?}")).collect();
            format!("m{{core={core},host={host}}} {}\n", samples.join(" "))
        };
        half.iter().rev().map(line).collect::<String>()
    };
    let (one, other) = series.split_at(series.len() / 2);
    Asked::together(&[("n1", &text(one)), ("n2", &text(other))])
}

fn asked(aggregator: Aggregator, seconds: i64, by: &[&str], rate: Option<Rate>) -> TsQuery {
    let interval = Interval::Fixed(Step::from_micros(seconds * 1_000_000).unwrap());
    let filter = |key: &&str| TagFilter { key: (*key).to_owned(), matcher: Matcher::AnyOrNone, group_by: true };
    TsQuery {
        filters: by.iter().map(filter).collect(),
        downsample: Some(Downsample { interval, function: Aggregator::Last, fill: Fill::None }),
        rate,
        ..TsQuery::new("m", aggregator, at(0), at(599))
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(EPOCH_SECONDS + seconds)
}

/// The answers of all parts together, and of each part the groups that it has.
fn cells(asked: &Asked, request: &SeriesRequest, parts: usize) -> (Cells, Vec<Vec<String>>) {
    let context = LeafContext::new(asked.db.snapshot());
    let schema = request.schema();
    let mut sums: BTreeMap<(String, i64), (ExactSum, i64, f64, f64)> = BTreeMap::new();
    let mut groups = Vec::new();
    for index in 0..parts {
        let mut of_part = Vec::new();
        for batch in request.batches(&context, &schema, Part { index, count: parts }) {
            let batch = batch.unwrap();
            let floats = |name: &str| batch.column_by_name(name).map(|one| one.as_primitive::<Float64Type>().clone());
            let value = floats("value").or_else(|| floats("sum")).unwrap();
            let counts = batch.column_by_name("count").unwrap().as_primitive::<Int64Type>();
            let (least, greatest) = (floats("least"), floats("greatest"));
            for row in 0..batch.num_rows() {
                let group = batch.column(0).as_string_view().value(row).to_owned();
                let time = batch.column(1).as_primitive::<TimestampMicrosecondType>().value(row);
                let cell = sums.entry((group.clone(), time)).or_insert((ExactSum::default(), 0, f64::NAN, f64::NAN));
                let number = |column: &Option<arrow::array::Float64Array>| {
                    column.as_ref().and_then(|column| column.iter().nth(row).flatten()).unwrap_or(f64::NAN)
                };
                cell.0.add(value.iter().nth(row).flatten().unwrap_or(0.0));
                cell.1 += counts.value(row);
                cell.2 = cell.2.min(number(&least));
                cell.3 = cell.3.max(number(&greatest));
                of_part.push(group);
            }
        }
        of_part.sort();
        of_part.dedup();
        groups.push(of_part);
    }
    let bits = |value: f64| if value.is_nan() { u64::MAX } else { (value + 0.0).to_bits() };
    let cell = |(sum, count, least, greatest): (ExactSum, i64, f64, f64)| {
        (bits(sum.value()), count, bits(least), bits(greatest))
    };
    (sums.into_iter().map(|(key, of)| (key, cell(of))).collect(), groups)
}

/// Of each group and bucket all samples, one after the other.
fn folded_one_by_one(series: &Samples, seconds: i64, by: &[&str], counter: bool, rate: bool) -> Cells {
    let mut all: BTreeMap<(u8, u8), BTreeMap<i64, f64>> = BTreeMap::new();
    let (one, other) = series.split_at(series.len() / 2);
    for (host, core, samples) in one.iter().rev().chain(other.iter().rev()) {
        // The later write of a time counts, and the later database: as they are loaded.
        all.entry((*host, *core)).or_default().extend(samples.iter().copied());
    }
    let mut sums: BTreeMap<(String, i64), (ExactSum, i64, f64, f64)> = BTreeMap::new();
    for ((host, core), samples) in all {
        let tag = |key: &&str| if *key == "host" { host.to_string() } else { core.to_string() };
        let group = by.iter().map(tag).collect::<Vec<_>>().join("\u{1f}");
        let mut before: Option<(i64, f64)> = None;
        // A series has one value in a bucket, whoever adds it up with those of others.
        let mut own: BTreeMap<i64, ExactSum> = BTreeMap::new();
        for (second, value) in samples.into_iter().filter(|(_, value)| !value.is_nan()) {
            let start = at(Step::from_micros(seconds * 1_000_000).unwrap().floor(at(second)).seconds() - EPOCH_SECONDS);
            let key = (group.clone(), start.micros());
            let cell = sums.entry(key).or_insert((ExactSum::default(), 0, f64::NAN, f64::NAN));
            cell.1 += 1;
            let seen = match before {
                _ if !rate => Some(value),
                Some((_, from)) if counter && value < from => None,
                Some((when, from)) => Some((value - from) * 1e6 / ((second - when) * 1_000_000) as f64),
                None => None,
            };
            own.entry(start.micros()).or_default().add(value);
            if let Some(seen) = seen {
                cell.2 = cell.2.min(seen);
                cell.3 = cell.3.max(seen);
            }
            before = Some((second, value));
        }
        for (start, sum) in own.into_iter().filter(|_| !rate) {
            sums.entry((group.clone(), start)).and_modify(|cell| cell.0.add(sum.value()));
        }
    }
    let bits = |value: f64| if value.is_nan() { u64::MAX } else { (value + 0.0).to_bits() };
    let cell = |(sum, count, least, greatest): (ExactSum, i64, f64, f64)| {
        (bits(sum.value()), count, bits(least), bits(greatest))
    };
    sums.into_iter().map(|(key, of)| (key, cell(of))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn folds_are_those_of_all_samples_one_by_one(
        series in samples(), seconds in prop::sample::select(vec![1_i64, 7, 60, 599]), counter in any::<bool>(),
        rate in any::<bool>(), parts in 1..4_usize,
        by in prop::sample::select(vec![&[][..], &["host"], &["core", "host"]]),
    ) {
        let (database, aggregator) = (load(&series), Aggregator::Avg);
        let rates = rate.then_some(Rate { counter, counter_max: None, reset_value: 0, drop_resets: counter });
        // The buckets of a fold are whole ones.
        let first = Step::from_micros(seconds * 1_000_000).unwrap().ceil(at(0)).micros();
        let mut expected = folded_one_by_one(&series, seconds, by, counter, rate);
        expected.retain(|(_, start), _| *start >= first);
        let query = Arc::new(asked(aggregator, seconds, by, rates));
        for split in [SeriesSplit::Evenly, SeriesSplit::ByGroup] {
            let request = SeriesRequest { query: Arc::clone(&query), yields: Yield::Folds, split };
            let (mut found, _) = cells(&database, &request, parts);
            found.retain(|_, cell| cell.1 > 0);
            if rate {
                // What rose into the first whole bucket is not known to who reads that one first.
                found.values_mut().chain(expected.values_mut()).for_each(|cell| cell.0 = 0);
                if first > at(0).micros() {
                    continue;
                }
            }
            prop_assert_eq!(&found, &expected, "{:?} of {} parts", split, parts);
        }
    }

    #[test]
    fn what_groups_contribute_does_not_depend_on_who_adds_it_up(
        series in samples(), seconds in prop::sample::select(vec![1_i64, 7, 60]), parts in 2..4_usize,
        aggregator in prop::sample::select(vec![
            Aggregator::Sum, Aggregator::Avg, Aggregator::Min, Aggregator::MimMax, Aggregator::Count,
            Aggregator::SquareSum, Aggregator::PfSum,
        ]),
        rate in prop::sample::select(vec![
            None, Some(Rate::default()),
            Some(Rate { counter: true, counter_max: None, reset_value: 0, drop_resets: true }),
        ]),
        by in prop::sample::select(vec![&[][..], &["host"], &["core", "host"]]),
    ) {
        let database = load(&series);
        let query = Arc::new(asked(aggregator, seconds, by, rate));
        let request = |split| SeriesRequest { query: Arc::clone(&query), yields: Yield::Buckets, split };
        let (whole, _) = cells(&database, &request(SeriesSplit::Evenly), 1);
        let (found, groups) = cells(&database, &request(SeriesSplit::ByGroup), parts);
        prop_assert_eq!(&found, &whole);
        let mut once: Vec<String> = groups.concat();
        let all = once.len();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), all, "a group is in one part");
        if !matches!(aggregator, Aggregator::Min | Aggregator::MimMax) {
            let (evenly, _) = cells(&database, &request(SeriesSplit::Evenly), parts);
            prop_assert_eq!(evenly, whole);
        }
    }
}

/// Every row of the answer to [`Yield::NamedBuckets`], in order; floats by their bits.
fn rows(context: &LeafContext, request: &SeriesRequest) -> Vec<String> {
    let mut rows = Vec::new();
    for batch in request.batches(context, &request.schema(), Part::WHOLE) {
        let batch = batch.unwrap();
        let (groups, series) = (batch.column(0).as_string_view(), batch.column(5).as_string_view());
        let times = batch.column(1).as_primitive::<TimestampMicrosecondType>();
        let values = batch.column(2).as_primitive::<Float64Type>();
        let (counts, reals) = (batch.column(3).as_primitive::<Int64Type>(), batch.column(4).as_boolean());
        for row in 0..batch.num_rows() {
            let value = values.is_valid(row).then(|| values.value(row).to_bits());
            let (time, name) = (times.is_valid(row).then(|| times.value(row)), series.is_valid(row));
            let name = name.then(|| series.value(row));
            let (group, count, real) = (groups.value(row), counts.value(row), reals.value(row));
            rows.push(format!("{group:?} {time:?} {value:?} {count} {real} {name:?}"));
        }
    }
    rows
}

/// A snapshot's leaves, whose work is cut into many pieces: twice as many as there are cores.
fn cut_for(cores: usize, database: &Asked) -> LeafContext {
    let spare =
        SpareCores::in_pieces_of(PieceSizes { shared_rows_min: 1, rows_min: 1 }, cores, Arc::new(StandingClock));
    LeafContext { spare, ..LeafContext::new(database.db.snapshot()) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_come_to_what_one_thread_makes(
        series in samples(), seconds in prop::sample::select(vec![1_i64, 7, 60, 599]), cores in 2..6_usize,
        aggregator in prop::sample::select(vec![
            Aggregator::Sum, Aggregator::Avg, Aggregator::Min, Aggregator::MimMax, Aggregator::Count,
            Aggregator::SquareSum, Aggregator::PfSum, Aggregator::ZimSum,
        ]),
        rate in prop::sample::select(vec![None, Some(Rate::default())]),
        by in prop::sample::select(vec![&[][..], &["host"], &["core"], &["core", "host"]]),
        is_told in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let _entered = runtime.enter();
        let database = load(&series);
        let query = Arc::new(asked(aggregator, seconds, by, rate));
        let request = SeriesRequest { query, yields: Yield::NamedBuckets, split: SeriesSplit::Evenly };
        let told = |context: LeafContext| {
            let told = is_told.then(|| KnownSeries::of(context.snapshot.index()));
            LeafContext { told, ..context }
        };
        let alone = rows(&told(LeafContext::new(database.db.snapshot())), &request);
        let cut = rows(&told(cut_for(cores, &database)), &request);
        prop_assert_eq!(cut, alone, "{} cores", cores);
    }
}

#[test]
fn many_groups_are_cut_where_one_ends_and_few_anywhere() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let _entered = runtime.enter();
    let database = Asked::empty();
    for host in 0..40 {
        for core in 0..5 {
            let samples = (0..600).map(|second| (second, Value::Float(f64::from(host) / 3.0 + second as f64 * 0.1)));
            database.put("m", &[("core", &core.to_string()), ("host", &format!("{host:02}"))], samples);
        }
    }
    for by in [&[][..], &["host"], &["core"], &["core", "host"]] {
        let query = Arc::new(asked(Aggregator::Sum, 60, by, None));
        let request = SeriesRequest { query, yields: Yield::NamedBuckets, split: SeriesSplit::Evenly };
        let alone = rows(&LeafContext::new(database.db.snapshot()), &request);
        for cores in 2..5 {
            assert_eq!(rows(&cut_for(cores, &database), &request), alone, "by {by:?}, {cores} cores");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_window_is_cut_where_buckets_begin(
        start in -1_000_i64..1_000, length in 0..5_000_i64, step in 1..700_i64,
        first in -2_000_i64..4_000, lasts in 0..6_000_i64, count in 1..9_usize,
    ) {
        let at = Timestamp::from_micros;
        let (window, step) = (TimeRange::new(at(start), at(start + length)), Step::from_micros(step).unwrap());
        let Some(ranges) = whole_ranges(window, step, (at(first), at(first + lasts)), count) else { return Ok(()) };
        prop_assert!((2..=count).contains(&ranges.len()));
        prop_assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (window.start, window.end));
        for pair in ranges.windows(2) {
            prop_assert_eq!(pair[0].end, pair[1].start);
            prop_assert_eq!(step.floor(pair[0].end), pair[0].end);
            prop_assert!(!pair[0].is_empty());
        }
    }
}

#[test]
fn a_long_series_is_read_in_ranges_of_time() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let _entered = runtime.enter();
    let database = Asked::empty();
    // The second has samples in a few of the ranges only, and some are written twice.
    let value = |second: i64| Value::Float(second as f64 * 0.1 - 1e15 * f64::from(second % 7 == 0));
    database.put("m", &[("host", "a")], (0..600).map(|second| (second, value(second))));
    database.db.flush().unwrap();
    database.put("m", &[("host", "a")], (300..330).map(|second| (second, Value::Int(second))));
    database.put("m", &[("host", "b")], (40..45).chain([590]).map(|second| (second, value(second))));
    for function in [Aggregator::Sum, Aggregator::Avg, Aggregator::Count, Aggregator::Dev, Aggregator::First] {
        for (rate, seconds) in [(None, 1), (None, 7), (Some(Rate::default()), 7), (None, 250)] {
            let query = asked(Aggregator::Sum, seconds, &["host"], rate);
            let downsample = query.downsample.clone().map(|downsample| Downsample { function, ..downsample });
            let query = Arc::new(TsQuery { downsample, ..query });
            let request = SeriesRequest { query, yields: Yield::NamedBuckets, split: SeriesSplit::Evenly };
            let alone = rows(&LeafContext::new(database.db.snapshot()), &request);
            for cores in 2..5 {
                assert_eq!(
                    rows(&cut_for(cores, &database), &request),
                    alone,
                    "{function:?}, {seconds} s, {cores} cores"
                );
            }
        }
    }
}

#[test]
fn a_leaf_in_pieces_stops_when_it_is_asked_to() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let _entered = runtime.enter();
    let database = load(&(0..8).map(|host| (host, 0, vec![(1, 1.0), (70, 2.0)])).collect());
    let query = Arc::new(asked(Aggregator::Sum, 60, &["host"], None));
    let request = SeriesRequest { query, yields: Yield::Buckets, split: SeriesSplit::Evenly };
    let context = cut_for(2, &database);
    context.stop.ask();
    let ended: Vec<_> = request.batches(&context, &request.schema(), Part::WHOLE).collect();
    let [Err(error)] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!(error.message(), "the query was stopped");
}

#[test]
fn a_piece_has_the_groups_of_its_series() {
    let ids = |count: u32| (0..count).map(SeriesId).collect::<Vec<_>>();
    let chunk = |places: &[usize]| GroupChunk::of(vec![String::new(); 4], ids(places.len() as u32), places.to_vec());
    let cut = |places: &[usize], count, at| {
        let pieces = chunk(places).cut(count, at);
        pieces.into_iter().map(|piece| (piece.series.len(), piece.groups)).collect::<Vec<_>>()
    };
    let together = [0, 0, 0, 1, 1, 2, 3, 3];
    assert_eq!(cut(&together, 2, ChunkCut::Anywhere), [(4, 0..2), (4, 1..4)]);
    assert_eq!(cut(&together, 2, ChunkCut::BetweenGroups), [(5, 0..2), (3, 2..4)]);
    assert_eq!(cut(&together, 8, ChunkCut::BetweenGroups), [(3, 0..1), (2, 1..2), (1, 2..3), (2, 3..4)]);
    assert_eq!(cut(&[0, 1, 2, 3, 0, 1], 2, ChunkCut::Anywhere), [(3, 0..3), (3, 0..4)]);
    assert_eq!(cut(&[3, 0, 3], 1, ChunkCut::Anywhere), [(3, 0..4)]);
    assert!(chunk(&together).is_together() && !chunk(&[1, 0]).is_together());
}

#[test]
fn more_groups_than_are_added_up_at_once_come_out_once_each() {
    let database = Asked::empty();
    // 600 buckets: some hundred groups at a time.
    for host in 0..400 {
        for core in ["0", "1"] {
            let samples = [0, 300, 599].map(|second| (second, Value::Int(host + second)));
            database.put("m", &[("core", core), ("host", &format!("{host:03}"))], samples);
        }
    }
    let query = Arc::new(asked(Aggregator::Sum, 1, &["host"], None));
    for (split, parts) in [(SeriesSplit::Evenly, 1), (SeriesSplit::ByGroup, 1), (SeriesSplit::ByGroup, 3)] {
        let request = SeriesRequest { query: Arc::clone(&query), yields: Yield::Buckets, split };
        let context = LeafContext::new(database.db.snapshot());
        let (mut rows, mut of_parts) = (0, Vec::new());
        for index in 0..parts {
            let batches = request.batches(&context, &request.schema(), Part { index, count: parts });
            let found: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
            of_parts.push(found);
            rows += found;
        }
        assert_eq!(rows, 400 * 600, "{split:?} of {parts} parts");
        assert!(of_parts.iter().all(|found| *found > 400 * 600 / parts / 2), "{of_parts:?}");
    }
}
