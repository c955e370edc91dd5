//! A memtable compared with a plain list of everything that was appended.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Everything that was appended, in order.
type Appended = Vec<(SeriesId, Timestamp, Value)>;

fn batch(samples: &[(SeriesId, Timestamp, Value)]) -> SampleBatch {
    let mut batch = SampleBatch::default();
    samples.iter().for_each(|(series, time, value)| batch.push(*series, *time, *value));
    batch
}

fn sample(series: u32, micros: i64, value: i64) -> (SeriesId, Timestamp, Value) {
    (SeriesId(series), Timestamp::from_micros(micros), Value::Int(value))
}

/// What a reader of the first `rows` rows must find.
fn expected(appended: &Appended, series: SeriesId, range: TimeRange, rows: usize) -> Vec<(Timestamp, Value)> {
    let mut found = std::collections::BTreeMap::new();
    for (of, time, value) in &appended[..rows] {
        if *of == series && range.contains(*time) {
            found.insert(*time, *value);
        }
    }
    found.into_iter().collect()
}

fn check(memtable: &Memtable, appended: &Appended, series: SeriesId, range: TimeRange, rows: usize) {
    let visible = Rows(u32::try_from(rows).unwrap());
    let all = expected(appended, series, TimeRange::ALL, rows);
    let found = expected(appended, series, range, rows);
    assert_eq!(memtable.read(series, range, visible), found);
    assert_eq!(memtable.has(series, range, visible), !found.is_empty());
    assert_eq!(memtable.last(series, visible), all.last().copied());
    let bounds = all.first().zip(all.last()).map(|(first, last)| (first.0, last.0));
    assert_eq!(memtable.bounds_of(series, visible), bounds);
}

/// Times close together, hours apart, and at both ends of all time.
fn times() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0..40_i64,
        2 => (-3..4_i64).prop_map(|hour| hour * 3_600_000_000),
        1 => Just(i64::MIN),
        1 => Just(i64::MAX - 1),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![any::<i64>().prop_map(Value::Int), any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits)))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_finds_exactly_what_was_appended_before_it(
        batches in prop::collection::vec(
            prop::collection::vec((0..5_u32, times(), values()), 0..120), 1..8),
        from in times(), to in times(),
    ) {
        check_batches(batches, from, to)?;
    }

    /// Those that have each series once, those that have one twice, and those that end within a tick.
    #[test]
    fn samples_that_come_in_ticks_are_read_as_any_others(
        batches in prop::collection::vec(
            (prop::collection::vec(0..5_u32, 1..5), prop::collection::vec((times(), values()), 0..160)), 1..5),
        from in times(), to in times(),
    ) {
        let of_ticks = |(tick, samples): (Vec<u32>, Vec<(i64, Value)>)| {
            let series = tick.into_iter().cycle();
            series.zip(samples).map(|(series, (time, value))| (series, time, value)).collect()
        };
        check_batches(batches.into_iter().map(of_ticks).collect(), from, to)?;
    }
}

/// Numbers of series, times and values.
type Numbered = Vec<(u32, i64, Value)>;

fn check_batches(batches: Vec<Numbered>, from: i64, to: i64) -> Result<(), TestCaseError> {
    let memtable = Memtable::default();
    let mut appended = Appended::new();
    let mut seen = vec![0];
    for samples in batches {
        let samples: Appended = samples
            .into_iter()
            // Ids with gaps between.
            .map(|(series, time, value)| (SeriesId(series * series * 1_000), Timestamp::from_micros(time), value))
            .collect();
        memtable.append(&batch(&samples));
        appended.extend(samples);
        seen.push(appended.len());
        prop_assert_eq!(memtable.len(), appended.len());
    }
    let range = TimeRange::new(Timestamp::from_micros(from), Timestamp::from_micros(to));
    for series in (0..6).map(|series| SeriesId(series * series * 1_000)) {
        for rows in &seen {
            check(&memtable, &appended, series, range, *rows);
        }
        let count = appended.iter().filter(|(of, _, _)| *of == series).count();
        prop_assert_eq!(memtable.count(series), count as u64);
    }
    let mut series: Vec<SeriesId> = appended.iter().map(|(series, _, _)| *series).collect();
    series.sort_unstable();
    series.dedup();
    prop_assert_eq!(memtable.series(), series);
    let times = appended.iter().map(|(_, time, _)| *time);
    prop_assert_eq!(memtable.time_bounds(), times.clone().min().zip(times.clone().max()));
    let buckets: BTreeSet<i64> = times.map(|time| time.micros().div_euclid(3_600_000_000)).collect();
    let few = (buckets.len() <= 6).then_some(buckets);
    prop_assert_eq!(memtable.time_buckets(3_600_000_000, 6), few);
    Ok(())
}

#[test]
fn samples_of_several_connections_and_of_one_that_runs_backwards_are_read_in_order() {
    let in_pairs = |at: i64| at ^ 1;
    let in_turns_of_ten = |at: i64| at / 20 * 20 + (at % 20 + 10) % 20;
    let backwards = |at: i64| 999 - at;
    // The second half is behind the first, every time comes twice.
    let twice = |at: i64| at % 500;
    for time in [in_pairs as fn(i64) -> i64, in_turns_of_ten, backwards, twice] {
        let appended: Appended = (0..1_000).map(|at| sample(0, time(at), at)).collect();
        let memtable = Memtable::default();
        memtable.append(&batch(&appended));
        check(&memtable, &appended, SeriesId(0), TimeRange::ALL, 1_000);
    }
}

#[test]
fn a_series_that_ticks_takes_little_more_than_its_samples() {
    let memtable = Memtable::default();
    for second in 0..600 {
        memtable.append(&batch(&(0..100).map(|series| sample(series, second * 1_000_000, second)).collect::<Vec<_>>()));
    }
    let a_sample = memtable.bytes() as f64 / memtable.len() as f64;
    assert!(a_sample < 17.5, "{a_sample} bytes a sample");
}

#[test]
fn times_that_jump_back_and_forth_take_a_bounded_room() {
    let memtable = Memtable::default();
    for round in 0..5_000 {
        // Far apart, and together where large blocks are due.
        let hour = if round % 28 == 27 { 3_600_000_000 * (round % 2 + 1) } else { 0 };
        memtable.append(&batch(&[sample(7, hour + round, round)]));
    }
    let a_sample = memtable.bytes() as f64 / memtable.len() as f64;
    assert!(a_sample < 64.0, "{a_sample} bytes a sample");
}

#[test]
fn many_series_with_one_sample_each_take_less_than_forty_bytes() {
    let memtable = Memtable::default();
    memtable.append(&batch(&(0..50_000).map(|series| sample(series, 0, 1)).collect::<Vec<_>>()));
    let a_series = memtable.bytes() / 50_000;
    assert!(a_series < 40, "{a_series} bytes a series");
}

#[test]
fn readers_and_the_appender_do_not_disturb_each_other() {
    let memtable = Arc::new(Memtable::default());
    let tick = |second: i64| batch(&(0..64).map(|series| sample(series, second, second)).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let reader = Arc::clone(&memtable);
        scope.spawn(move || {
            loop {
                let visible = reader.rows();
                for series in (0..64).map(SeriesId) {
                    // A tick has all series, so each has as many samples as ticks are visible.
                    assert_eq!(reader.read(series, TimeRange::ALL, visible).len(), visible.0 as usize / 64);
                }
                if visible.0 == 64 * 500 {
                    return;
                }
            }
        });
        (0..500).for_each(|second| memtable.append(&tick(second)));
    });
}

#[test]
fn pages_of_a_memtable_that_is_gone_are_those_of_the_next() {
    let spare = Arc::new(SparePages::new(256 << 10));
    let samples = 30_000_u32;
    let fill = |memtable: &Memtable, from: i64| {
        let mut batch = SampleBatch::default();
        for at in 0..samples {
            batch.push(
                SeriesId(at % 7),
                Timestamp::from_micros(from + i64::from(at)),
                Value::Int(from + i64::from(at)),
            );
        }
        memtable.append(&batch);
    };
    let first = Memtable::with_spare(&spare);
    fill(&first, 0);
    assert_eq!(spare.bytes(), 0);
    let held = first.bytes();
    drop(first);
    let given = spare.bytes();
    assert!(given > held / 2 && given <= 320 << 10, "{given} bytes are spare of {held}, and at most one memtable's");

    let second = Memtable::with_spare(&spare);
    fill(&second, 1_000_000);
    assert_eq!(spare.bytes(), 0, "all are taken");
    let read = second.read(SeriesId(3), TimeRange::ALL, second.rows());
    assert_eq!(read.len(), samples as usize / 7 + 1);
    assert_eq!(read[0], (Timestamp::from_micros(1_000_003), Value::Int(1_000_003)), "nothing of the first is left");
    drop(second);

    spare.release_unused();
    assert_eq!(spare.bytes(), given, "they were used since");
    spare.release_unused();
    assert_eq!(spare.bytes(), 0);
}
