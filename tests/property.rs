//! Random series and random queries: the real path must agree with the oracle.
//!
//! Writes are flushed to segments now and then, and segments are merged, before more writes come; so late and
//! overwritten samples lie above, below and beside others in time. The seed is printed when a case fails;
//! `TELEM_SEED=N` starts from it again, `PROPTEST_CASES=N` sets the number of cases.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use chrono_tz::Tz;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::oracle::{self, Aggregator, Downsample, Filter, Group, Number, Question, RateOptions, Refusal};
use crate::script::{self, EPOCH_MS, Load};
use crate::{real, runtime};

const CASES: u32 = 64;
const QUESTIONS_PER_CASE: usize = 8;
const AGGREGATORS: [&str; 35] = [
    "sum",
    "min",
    "max",
    "avg",
    "median",
    "none",
    "mult",
    "dev",
    "diff",
    "count",
    "zimsum",
    "mimmin",
    "mimmax",
    "first",
    "last",
    "pfsum",
    "squareSum",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "ep50r3",
    "ep75r3",
    "ep90r3",
    "ep95r3",
    "ep99r3",
    "ep999r3",
    "ep50r7",
    "ep75r7",
    "ep90r7",
    "ep95r7",
    "ep99r7",
    "ep999r7",
];
const INTERVALS: [&str; 12] = ["500ms", "1s", "10s", "30s", "1m", "7m", "13m", "1h", "100m", "5h", "1d", "0all"];

const CALENDARS: [&str; 16] =
    ["1hc", "6hc", "7hc", "12hc", "90mc", "45mc", "1dc", "2dc", "5dc", "1wc", "2wc", "3wc", "1nc", "2nc", "5nc", "1yc"];
/// With and without daylight saving time, on either side of the equator, with odd offsets. All have every midnight.
const ZONES: [Tz; 6] = [
    Tz::UTC,
    Tz::America__New_York,
    Tz::Europe__Berlin,
    Tz::Australia__Lord_Howe,
    Tz::Asia__Kolkata,
    Tz::Pacific__Kiritimati,
];

#[test]
fn telem_answers_random_questions_as_the_oracle_does() {
    ask(loads(load().boxed()), question().boxed());
}

#[test]
fn telem_answers_questions_about_calendars_as_the_oracle_does() {
    ask(loads(prop_oneof![4 => sparse_load(), 1 => load()].boxed()), calendar_question().boxed());
}

fn loads(load: BoxedStrategy<Load>) -> BoxedStrategy<Vec<(Load, After)>> {
    let after = prop_oneof![3 => Just(After::Nothing), 2 => Just(After::Flush), 1 => Just(After::Merge)];
    prop::collection::vec((load, after), 1..9).boxed()
}

/// As many cases as are wanted, from a seed that is printed when one fails.
fn ask(loads: BoxedStrategy<Vec<(Load, After)>>, question: BoxedStrategy<Question>) {
    let chosen = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seed = chosen.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let cases = std::env::var("PROPTEST_CASES").ok().map_or(CASES, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let strategy = (loads, prop::collection::vec(question, QUESTIONS_PER_CASE));
    let result = runner.run(&strategy, |(loads, questions)| {
        let (loads, after): (Vec<Load>, Vec<After>) = loads.into_iter().unzip();
        check(&loads, &after, &questions).map_err(TestCaseError::fail)
    });
    if let Err(failure) = result {
        panic!("seed {seed} (TELEM_SEED={seed}): {failure}");
    }
}

/// What becomes of the samples in memory once a load is written.
#[derive(Clone, Copy, Debug)]
enum After {
    Nothing,
    Flush,
    /// Flushed, and all segments of an hour become one.
    Merge,
}

fn check(loads: &[Load], after: &[After], questions: &[Question]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let db = real::open(dir.path());
    for (load, after) in loads.iter().zip(after) {
        real::write(&db, load);
        if matches!(after, After::Flush | After::Merge) {
            db.flush().unwrap();
        }
        if matches!(after, After::Merge) {
            db.compact().unwrap();
        }
    }
    let queries = real::queries(&db);
    let stored = script::stored(loads);
    for question in questions {
        let expected = oracle::answer(&stored, question);
        let got = runtime().block_on(real::answer(&queries, question));
        compare(expected, got, Tolerance::of(&stored, question)).map_err(|why| format!("{why}\n{question:?}\n"))?;
    }
    Ok(())
}

/// A value above it shows that a counter without a limit of its own wrapped, at 2^63.
const WRAPPED: f64 = 1e12;

/// What floats may differ by for having been added in another order: relative to the largest value that
/// takes part, because the sum of large values may be small.
#[derive(Clone, Copy, Debug)]
struct Tolerance {
    usual: f64,
    /// Where a counter that wrapped takes part; its rate is positive and hides nothing it is added to.
    wrapped: f64,
}

impl Tolerance {
    fn of(stored: &[oracle::Series], question: &Question) -> Self {
        let wrapped = tolerance(stored, question);
        let hides = matches!(question.aggregator, Aggregator::Diff | Aggregator::Dev);
        let usual = match question.rate {
            Some(rate) if !hides && rate.counter_max as f64 > WRAPPED => {
                let rate = RateOptions { counter: false, ..rate };
                tolerance(stored, &Question { rate: Some(rate), ..question.clone() })
            }
            _ => wrapped,
        };
        Self { usual, wrapped }
    }

    fn near(self, a: f64, b: f64) -> bool {
        let allowed = if a.abs() > WRAPPED { self.wrapped } else { self.usual };
        (a - b).abs() <= allowed
    }
}

fn tolerance(stored: &[oracle::Series], question: &Question) -> f64 {
    let values = stored.iter().flat_map(|series| series.points.values());
    let mut largest = values.map(|value| value.as_f64().abs()).fold(1.0, f64::max);
    if let Some(rate) = question.rate {
        largest = if rate.counter { largest.max(rate.counter_max as f64) } else { largest };
        // Points are a millisecond apart at least.
        largest *= 1_000.0;
    }
    let functions = [Some(question.aggregator), question.downsample.map(|downsample| downsample.function)];
    for function in functions.into_iter().flatten() {
        match function {
            Aggregator::SquareSum => largest = largest * largest,
            Aggregator::Dev => largest *= 1e5,
            _ => {}
        }
    }
    largest * 1e-13
}

fn compare(
    expected: Result<Vec<Group>, Refusal>,
    got: Result<Vec<Group>, Refusal>,
    tolerance: Tolerance,
) -> Result<(), String> {
    let (mut expected, mut got) = match (expected, got) {
        (Ok(expected), Ok(got)) => (expected, got),
        (Err(expected), Err(got)) if expected == got => return Ok(()),
        (expected, got) => return Err(format!("telem answers {got:?}, the oracle {expected:?}")),
    };
    let by_tags = |a: &Group, b: &Group| (&a.tags, &a.aggregate_tags).cmp(&(&b.tags, &b.aggregate_tags));
    expected.sort_by(by_tags);
    got.sort_by(by_tags);
    let names = |groups: &[Group]| -> Vec<_> {
        groups.iter().map(|group| (group.tags.clone(), group.aggregate_tags.clone())).collect()
    };
    if names(&expected) != names(&got) {
        return Err(format!("telem has groups {:?}, the oracle {:?}", names(&got), names(&expected)));
    }
    for (expected, got) in expected.iter().zip(&got) {
        let times = |group: &Group| -> Vec<i64> { group.points.iter().map(|(time, _)| time - EPOCH_MS).collect() };
        if times(expected) != times(got) {
            return Err(format!("{:?}: telem has times {:?}, the oracle {:?}", got.tags, times(got), times(expected)));
        }
        for ((time, expected), (_, got)) in expected.points.iter().zip(&got.points) {
            let near = match (expected, got) {
                (Number::Float(a), Number::Float(b)) => tolerance.near(*a, *b),
                _ => false,
            };
            if !near && !expected.agrees(*got) {
                let at = script::show_offset(time - EPOCH_MS);
                return Err(format!("at {at}: telem says {got:?}, the oracle {expected:?} ({tolerance:?})"));
            }
        }
    }
    Ok(())
}

fn load() -> impl Strategy<Value = Load> {
    let start = prop_oneof![Just(0), -7_200_000..9_000_000_i64, (-120..150_i64).prop_map(|minutes| minutes * 60_000)];
    load_of(start.boxed(), vec![1, 250, 1_000, 10_000, 30_000, 60_000, 61_000, 600_000, 1_800_000])
}

/// Samples over weeks and months, across the days on which clocks change.
fn sparse_load() -> impl Strategy<Value = Load> {
    let start = (-60 * 24..200 * 24_i64).prop_map(|hours| hours * 3_600_000);
    load_of(start.boxed(), vec![600_000, 3_600_000, 11_220_000, 21_600_000, 86_400_000, 259_200_000, 604_800_000])
}

fn load_of(start: BoxedStrategy<i64>, steps: Vec<i64>) -> impl Strategy<Value = Load> {
    let metric = prop_oneof![9 => Just("m"), 1 => Just("other")];
    let tags = (
        prop::option::weighted(0.9, select(vec!["a", "b", "c", "Web01", "web.x"])),
        prop::option::of(select(vec!["x", "y"])),
    );
    let step = select(steps);
    (metric, tags, start, step, values()).prop_map(|(metric, (host, dc), start, step, values)| Load {
        metric: metric.into(),
        tags: tag_map(host, dc),
        samples: values
            .into_iter()
            .enumerate()
            .filter_map(|(at, value)| Some((EPOCH_MS + start + at as i64 * step, value?)))
            .collect(),
    })
}

fn tag_map(host: Option<&str>, dc: Option<&str>) -> BTreeMap<String, String> {
    let given = [("host", host), ("dc", dc)].into_iter();
    given.filter_map(|(key, value)| Some((key.into(), value?.into()))).collect()
}

/// One kind of values a load: small ints, a counter that restarts, any ints, floats, both, with gaps.
fn values() -> impl Strategy<Value = Vec<Option<Number>>> {
    let float = || (-4_000..4_000_i32).prop_map(|quarters| Number::Float(f64::from(quarters) / 4.0));
    let small = || (-100..100_i64).prop_map(Number::Int);
    let list = |value: BoxedStrategy<Number>| prop::collection::vec(prop::option::weighted(0.85, value), 1..24).boxed();
    prop_oneof![
        4 => list(small().boxed()),
        4 => list(float().boxed()),
        2 => list(prop_oneof![small(), float()].boxed()),
        2 => list((0..1_000_000_i64).prop_map(Number::Int).boxed()),
        1 => list(prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN)].prop_map(Number::Int).boxed()),
    ]
}

fn question() -> impl Strategy<Value = Question> {
    let start = prop_oneof![Just(0), -3_600_000..7_200_000_i64, (-60..120_i64).prop_map(|minutes| minutes * 60_000)];
    let length = prop_oneof![1..60_000_i64, 60_000..7_200_000_i64, (1..120_i64).prop_map(|minutes| minutes * 60_000)];
    let downsample =
        (select(INTERVALS.to_vec()), select(AGGREGATORS.to_vec()), select(vec!["", "-nan", "-null", "-zero"]))
            .prop_map(|(interval, function, fill)| {
                oracle::downsample(&format!("{interval}-{function}{fill}"), Tz::UTC)
            });
    let downsample = prop::option::weighted(0.6, downsample).prop_map(Option::flatten);
    question_of(downsample.boxed(), start.boxed(), length.boxed())
}

fn calendar_question() -> impl Strategy<Value = Question> {
    let start = (-70 * 24..200 * 24_i64, -90..90_i64).prop_map(|(hours, minutes)| (hours * 60 + minutes) * 60_000);
    let length = prop_oneof![1..96_i64, 96..2_400_i64].prop_map(|hours| hours * 3_600_000);
    let fill = select(vec!["", "-nan", "-null", "-zero"]);
    let downsample = (select(CALENDARS.to_vec()), select(AGGREGATORS.to_vec()), fill, select(ZONES.to_vec()))
        .prop_map(|(interval, function, fill, zone)| oracle::downsample(&format!("{interval}-{function}{fill}"), zone));
    question_of(downsample.boxed(), start.boxed(), length.boxed())
}

fn question_of(
    downsample: BoxedStrategy<Option<Downsample>>,
    start: BoxedStrategy<i64>,
    length: BoxedStrategy<i64>,
) -> impl Strategy<Value = Question> {
    let rate = (any::<bool>(), prop::option::of(1_i64..2_000_000), prop_oneof![Just(0), 1_i64..500], any::<bool>())
        .prop_map(|(counter, max, reset_value, drop_resets)| RateOptions {
            counter,
            counter_max: max.unwrap_or(i64::MAX),
            reset_value,
            drop_resets,
        });
    let only = prop::collection::vec((select(vec!["a", "b", "c", "Web01"]), any::<bool>()), 1..3);
    let only = only
        .prop_map(|series| series.into_iter().map(|(host, in_x)| tag_map(Some(host), in_x.then_some("x"))).collect());
    let metric = prop_oneof![30 => Just("m"), 2 => Just("other"), 1 => Just("unknown")];
    (
        (
            metric,
            select(AGGREGATORS.to_vec()),
            downsample,
            prop::option::weighted(0.4, rate),
            prop::option::weighted(0.1, only),
        ),
        (prop::collection::vec(filter(), 0..3), prop::bool::weighted(0.15), start, length, any::<bool>()),
    )
        .prop_map(
            |((metric, aggregator, downsample, rate, only), (filters, explicit_tags, start, length, exact))| {
                let mut question = Question {
                    metric: metric.into(),
                    filters,
                    explicit_tags,
                    only,
                    aggregator: oracle::aggregator(aggregator).unwrap(),
                    downsample,
                    rate,
                    start_ms: EPOCH_MS + start,
                    end_ms: EPOCH_MS + start + length,
                    exact,
                };
                tame(&mut question);
                question
            },
        )
}

/// Steers clear of what has no defined answer: products and variances beyond what a double holds depend on
/// the order of the operations, and a bucket a millisecond wide over hours is beyond the limit of answers.
fn tame(question: &mut Question) {
    let unstable = |function: Aggregator| matches!(function, Aggregator::Mult | Aggregator::Dev);
    let downsampled = question.downsample.is_some_and(|downsample| unstable(downsample.function));
    if question.rate.is_some() && (unstable(question.aggregator) || downsampled) {
        question.rate = None;
    }
    if let Some(downsample) = &mut question.downsample
        && (unstable(question.aggregator)
            || downsample.function == Aggregator::SquareSum
            || unstable(downsample.function))
    {
        downsample.function = Aggregator::Max;
    }
}

fn filter() -> impl Strategy<Value = Filter> {
    let value = select(vec![
        "*",
        "a",
        "a|b",
        "nobody",
        "iliteral_or(A|WEB01)",
        "not_literal_or(a|nobody)",
        "not_iliteral_or(web01)",
        "wildcard(web*)",
        "iwildcard(web*)",
        "wildcard(*0*)",
        "wildcard(w*x)",
        "regexp(^[ab]$)",
        "regexp(e)",
    ]);
    let key = prop_oneof![6 => Just("host"), 3 => Just("dc"), 1 => Just("rack")];
    (key, value, any::<bool>()).prop_map(|(key, value, group_by)| oracle::filter(key, value, group_by).unwrap())
}
