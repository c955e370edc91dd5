//! A query has one answer, bit for bit: however often it runs, and however its samples are spread over nodes, memtables
//! and segments.

use std::path::Path;

use arrow::array::cast::AsArray;
use arrow::datatypes::{DataType, Float64Type};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use telem_engine::{ExactSum, Options, Timestamp, Value};

use super::*;
use crate::answer::{FoldSink, FoldedRows};
use crate::question::aggregator::TABLE;
use crate::question::tsq::Rate;
use crate::testing::Asked;

const NODES: usize = 5;
/// Samples of each series.
const SAMPLES: i64 = 80;

/// Every node has series of its own: floats of all digits and sizes, what cancels, decimals, odd values, integers.
fn lines(node: usize) -> String {
    let value = |kind: usize, at: i64| {
        let step = at * 7 + node as i64 * 13 + 1;
        match kind {
            0 => format!("{:e}", (step as f64).sin() * 10_f64.powi((step % 30) as i32 - 15)),
            1 => ["1e16", "1.0", "-1e16", "0.1", "-1e-20"][(at as usize + node) % 5].to_owned(),
            2 => format!("{}.{:02}", step % 997, step % 89),
            3 if step % 31 == 0 => ["NaN", "-0.0", "0.0"][node % 3].to_owned(),
            3 => format!("{:e}", 1.0 / step as f64),
            _ => (step * step * step).to_string(),
        }
    };
    let mut lines = String::new();
    for kind in 0..5 {
        let metric = if kind == 4 { "whole" } else { "m" };
        lines += &format!("{metric}{{host=h{node},kind=k{kind},rack=r{}}}", node % 3);
        for at in 0..SAMPLES {
            // Each series a little beside the others, and one that comes late.
            if kind != 2 || at > 20 {
                lines += &format!(" {}:{}", at * 9 + (node as i64 + at) % 2, value(kind, at));
            }
        }
        lines.push('\n');
    }
    // Of two in three values, as a program counts them.
    lines += &format!("step{{host=h{node},kind=k0,rack=r{}}}", node % 3);
    for at in (0..SAMPLES).filter(|at| at % 3 > 0) {
        lines += &format!(" {}:{at}", at * 9 + (node as i64 + at) % 2);
    }
    lines.push('\n');
    lines
}

enum Question {
    Series(Box<TsQuery>),
    Fold(Box<TsQuery>),
    Sql(&'static str),
}

/// What was folded: of each line and bucket the parts together.
#[derive(Default)]
struct FoldedCells {
    adds: bool,
    buckets: BTreeMap<(String, Timestamp), FoldedCell>,
}

#[derive(Default)]
struct FoldedCell {
    sum: ExactSum,
    count: u64,
    least: Option<f64>,
    greatest: Option<f64>,
}

impl FoldSink for FoldedCells {
    fn clear(&mut self) {
        self.buckets.clear();
    }

    fn take(&mut self, rows: &FoldedRows<'_>) -> bool {
        let merged = |one: Option<f64>, other: f64, by: fn(f64, f64) -> f64| match (one, other.is_nan()) {
            (one, true) => one,
            (None, false) => Some(other),
            (Some(one), false) => Some(by(one, other)),
        };
        let plus: fn(f64, f64) -> f64 = |one, other| one + other;
        for (at, time) in rows.times.iter().enumerate() {
            let bucket = self.buckets.entry((format!("{:?}", rows.tags), *time)).or_default();
            bucket.sum.add(rows.sums[at]);
            bucket.count += rows.counts[at];
            bucket.least = merged(bucket.least, rows.least[at], if self.adds { plus } else { f64::min });
            bucket.greatest = merged(bucket.greatest, rows.greatest[at], if self.adds { plus } else { f64::max });
        }
        true
    }
}

impl FoldedCells {
    fn text(&self) -> String {
        let mut text = String::new();
        for ((tags, time), bucket) in &self.buckets {
            // Which of two zeros is less is nobody's business.
            let bits = |value: f64| {
                if value.is_nan() { "NaN".to_owned() } else { format!("{:x} {value:e}", (value + 0.0).to_bits()) }
            };
            // Extremes that are added up are rounded on the way.
            let digits = |value: f64| if self.adds { format!("{value:.9e}") } else { bits(value) };
            let sum = bits(bucket.sum.value());
            let [least, greatest] = [bucket.least, bucket.greatest].map(|one| one.map(digits));
            text += &format!("{tags} {} {sum} {} {least:?} {greatest:?}\n", time.micros(), bucket.count);
        }
        text
    }
}

const SQL: [&str; 41] = [
    "SELECT sum(value) FROM m",
    "SELECT avg(value) FROM m",
    "SELECT stddev(value), stddev_pop(value) FROM m WHERE kind <> 'k3'",
    "SELECT var(value), var_pop(value) FROM m WHERE kind = 'k2'",
    "SELECT min(value), max(value) FROM m",
    "SELECT host, sum(value) FROM m GROUP BY host ORDER BY host",
    "SELECT rack, sum(value), avg(value), count(*) FROM m GROUP BY rack ORDER BY rack",
    "SELECT kind, sum(value), avg(value) FROM m GROUP BY kind ORDER BY kind",
    "SELECT kind, min(value), max(value) FROM m GROUP BY kind ORDER BY kind",
    "SELECT kind, var(value), stddev_pop(value) FROM m GROUP BY kind ORDER BY kind",
    "SELECT time_bucket('1 minute', ts) AS t, sum(value) FROM m GROUP BY 1 ORDER BY 1",
    "SELECT time_bucket('1 minute', ts) AS t, rack, avg(value) FROM m GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT time_bucket('10 seconds', ts) AS t, sum(value), avg(value), var(value) FROM m GROUP BY 1 ORDER BY 1",
    "SELECT sum(value * 0.1), avg(value / 3) FROM m",
    "SELECT sum(value + 0.1) FROM m WHERE kind = 'k2'",
    "SELECT sum(DISTINCT value), avg(DISTINCT value) FROM m",
    "SELECT sum(DISTINCT value), avg(DISTINCT value), count(*) FROM m",
    "SELECT rack, sum(DISTINCT value), sum(value) FROM m GROUP BY rack ORDER BY rack",
    "SELECT sum(value) FILTER (WHERE kind = 'k1'), sum(value) FILTER (WHERE kind = 'k0') FROM m",
    "SELECT rack, avg(value) FILTER (WHERE value > 0) FROM m GROUP BY rack ORDER BY rack",
    "SELECT corr(value, value * value) FROM m WHERE kind = 'k2'",
    "SELECT covar_samp(value, value + 1), covar_pop(value, sqrt(abs(value))) FROM m WHERE kind <> 'k3'",
    "SELECT regr_slope(value, x), regr_intercept(value, x), regr_r2(value, x) FROM (SELECT value, cbrt(value) AS x FROM m WHERE kind = 'k0')",
    "SELECT regr_avgx(value, x), regr_avgy(value, x), regr_sxx(value, x), regr_syy(value, x), regr_sxy(value, x) FROM (SELECT value, cbrt(value) AS x FROM m WHERE kind = 'k2')",
    "SELECT rack, corr(value, ln(abs(value) + 1)) FROM m WHERE kind <> 'k3' GROUP BY rack ORDER BY rack",
    "SELECT median(value) FROM m WHERE kind <> 'k3'",
    "SELECT host, kind, first(value, ts), last(value, ts) FROM m GROUP BY host, kind ORDER BY host, kind",
    "SELECT first(value, ts), last(value, ts) FROM m WHERE kind <> 'k3'",
    "SELECT host, kind, rate(value, ts), increase(value, ts), delta(value, ts) FROM m GROUP BY host, kind ORDER BY host, kind",
    "SELECT sum(each) FROM (SELECT host, kind, increase(value, ts) AS each FROM m GROUP BY host, kind)",
    "SELECT host, ts, sum(value) OVER (PARTITION BY host ORDER BY ts, kind ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) AS w FROM m ORDER BY host, ts, kind",
    "SELECT host, ts, avg(value) OVER (PARTITION BY host ORDER BY ts, kind) AS w FROM m WHERE kind <> 'k3' ORDER BY host, ts, kind",
    "SELECT sum(value), avg(value), stddev(value) FROM whole",
    "SELECT sum(value_int), avg(value_int), min(value_int), max(value_int) FROM whole",
    "SELECT sum(CAST(value AS FLOAT)), avg(CAST(value AS FLOAT)) FROM m WHERE kind = 'k2'",
    "SELECT rack, sum(s) FROM (SELECT rack, host, sum(value) AS s FROM m GROUP BY rack, host) GROUP BY rack ORDER BY rack",
    "SELECT step, count(*), sum(value), avg(m) FROM m WHERE step < 40 GROUP BY step ORDER BY step",
    "SELECT metric, sum(value), avg(value) FROM samples GROUP BY metric ORDER BY metric",
    "SELECT * FROM downsample('m', '1 minute', 'sum', aggregate => 'sum', by => 'rack') ORDER BY ts, rack",
    "SELECT * FROM downsample('m', '30 seconds', 'avg', aggregate => 'avg') ORDER BY ts",
    "SELECT sum(value) FROM downsample('m', '1 minute', 'avg')",
];

fn questions() -> Vec<(String, Question)> {
    let interval = |seconds: i64| Interval::Fixed(telem_engine::Step::from_micros(seconds * 1_000_000).unwrap());
    let mut questions: Vec<(String, Question)> =
        SQL.iter().map(|sql| ((*sql).to_owned(), Question::Sql(sql))).collect();
    let all = TABLE.map(|known| known.aggregator);
    for (at, aggregator) in all.into_iter().enumerate() {
        let function = match all[(at * 11 + 3) % all.len()] {
            Aggregator::None => Aggregator::Avg,
            function => function,
        };
        let down = |interval, function, fill| Some(Downsample { interval, function, fill });
        let matcher = || Matcher::Wildcard("*".to_owned());
        let by_rack = || vec![TagFilter { key: "rack".to_owned(), matcher: matcher(), group_by: true }];
        let rate = Rate { counter: false, counter_max: None, reset_value: 0, drop_resets: false };
        let end = telem_engine::Timestamp::from_seconds(EPOCH + 719);
        let of = |metric: &str, downsample| TsQuery { metric: metric.to_owned(), downsample, end, ..query(aggregator) };
        let asked = [
            of("m", None),
            of("whole", down(interval(60), function, Fill::None)),
            TsQuery { filters: by_rack(), ..of("m", down(interval(60), Aggregator::Sum, Fill::None)) },
            TsQuery { filters: by_rack(), ..of("m", down(interval(60), Aggregator::Avg, Fill::Zero)) },
            TsQuery { rate: Some(rate), ..of("m", down(interval(10), function, Fill::None)) },
            of("m", down(Interval::All, function, Fill::None)),
        ];
        // Every aggregator in two of these ways, and by turns in all.
        let asked = asked.into_iter().skip(at % 3).step_by(3);
        questions.extend(asked.map(|query| (format!("{query:?}"), Question::Series(Box::new(query)))));
    }
    questions.extend(folds().into_iter().map(|query| (format!("fold {query:?}"), Question::Fold(Box::new(query)))));
    questions
}

/// Folds of lines that are on one node, and of lines that are on all.
fn folds() -> Vec<TsQuery> {
    let by = |keys: &[&str]| -> Vec<TagFilter> {
        let filter = |key: &&str| TagFilter { key: (*key).to_owned(), matcher: Matcher::AnyOrNone, group_by: true };
        keys.iter().map(filter).collect()
    };
    let rate = Rate { counter: true, counter_max: None, reset_value: 0, drop_resets: true };
    let step = telem_engine::Step::from_micros(60_000_000).unwrap();
    let end = telem_engine::Timestamp::from_seconds(EPOCH + 719);
    let mut folds = Vec::new();
    for keys in [&[][..], &["rack"], &["host"], &["kind", "nowhere", "host"]] {
        for rate in [None, Some(rate)] {
            let downsample =
                Some(Downsample { interval: Interval::Fixed(step), function: Aggregator::Avg, fill: Fill::None });
            let of = |aggregator| TsQuery {
                metric: "m".to_owned(),
                downsample: downsample.clone(),
                rate,
                end,
                filters: by(keys),
                ..query(aggregator)
            };
            folds.push(of(Aggregator::Avg));
            folds.push(TsQuery { metric: "whole".to_owned(), ..of(Aggregator::Sum) });
        }
    }
    folds
}

/// All bits of an answer, or its error.
async fn answer(queries: &Queries, question: &Question) -> String {
    match question {
        Question::Series(query) => match queries.timeseries((**query).clone()).await {
            Err(error) => error.to_string(),
            Ok(answer) => {
                assert_eq!(answer.missing, []);
                let mut text = String::new();
                for group in answer.groups {
                    text += &format!(
                        "{:?} {:?} {:?}\n",
                        group.tags.iter().collect::<Vec<_>>(),
                        group.aggregate_tags,
                        group.series
                    );
                    for (time, value) in group.points {
                        let bits = match value {
                            Value::Int(int) => format!("i{int}"),
                            Value::Float(float) if float.is_nan() => "NaN".to_owned(),
                            Value::Float(float) => format!("{:x} {float:e}", float.to_bits()),
                        };
                        text += &format!("{} {bits}\n", time.micros());
                    }
                }
                text
            }
        },
        Question::Fold(query) => {
            let adds = query.rate.is_some() && query.aggregator == Aggregator::Sum;
            let sink = FoldedCells { adds, ..FoldedCells::default() };
            match queries.fold((**query).clone(), sink).await {
                Err(error) => error.to_string(),
                Ok((lines, missing)) => {
                    assert_eq!(missing, []);
                    lines.text()
                }
            }
        }
        Question::Sql(sql) => match queries.sql(sql).await {
            Err(error) => error.to_string(),
            Ok(answer) => {
                assert_eq!(answer.missing, []);
                match answer.batches.try_collect::<Vec<RecordBatch>>().await {
                    Err(error) => error.to_string(),
                    Ok(batches) => batches.iter().map(bits).collect(),
                }
            }
        },
    }
}

fn bits(batch: &RecordBatch) -> String {
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for column in batch.columns() {
            let exactly = *column.data_type() == DataType::Float64 && column.is_valid(row);
            let float =
                exactly.then(|| column.as_primitive::<Float64Type>().value(row)).filter(|float| !float.is_nan());
            text += &match float {
                Some(float) => format!(" {:x} {float:e}", float.to_bits()),
                None => format!(" {}", ArrayFormatter::try_new(column, &FormatOptions::default()).unwrap().value(row)),
            };
        }
        text.push('\n');
    }
    text
}

async fn answers(queries: &Queries, questions: &[(String, Question)]) -> Vec<String> {
    let mut all = Vec::new();
    for (_, question) in questions {
        all.push(answer(queries, question).await);
    }
    all
}

fn compare(questions: &[(String, Question)], expected: &[String], found: &[String], how: &str) {
    for (((text, _), expected), found) in questions.iter().zip(expected).zip(found) {
        let differ = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
        assert!(expected == found, "{how}: {text}\n{differ:?}");
    }
}

/// A database as its process would find it after it was killed.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let there = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &there),
            false if entry.file_name() == "WRITER" => {}
            false => drop(std::fs::copy(entry.path(), there).unwrap()),
        }
    }
}

fn copies(dirs: &[TempDir]) -> Vec<TempDir> {
    let copied = dirs.iter().map(|dir| {
        let to = tempfile::tempdir().unwrap();
        copy(dir.path(), to.path());
        to
    });
    copied.collect()
}

/// How often each place is asked: `TELEM_REPETITIONS` says otherwise.
fn repetitions() -> usize {
    std::env::var("TELEM_REPETITIONS").map_or(1, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_question_has_the_same_answer_bit_for_bit() {
    let lines: Vec<String> = (0..NODES).map(lines).collect();
    let texts: Vec<&str> = lines.iter().map(String::as_str).collect();
    let questions = questions();
    assert!(questions.len() >= 100);
    let alone = Asked::load(&lines.concat());
    let expected = answers(&alone.queries, &questions).await;
    assert!(expected.iter().filter(|answer| !answer.is_empty()).count() > 100);
    alone.db.flush().unwrap();
    compare(&questions, &expected, &answers(&alone.queries, &questions).await, "flushed");

    for (flat_max, rounds) in [(16, repetitions()), (2, repetitions())] {
        let options = || QueryOptions { flat_max, ..options() };
        let cluster = Cluster::with(&texts, options());
        for round in 0..rounds {
            compare(
                &questions,
                &expected,
                &answers(&cluster.head, &questions).await,
                &format!("round {round}, fan {flat_max}"),
            );
            // From then on some from a segment, some from a merged one, some from the WAL.
            for (at, db) in cluster.databases().enumerate().filter(|_| round == 0) {
                if at % 3 < 2 {
                    db.flush().unwrap();
                }
                if at % 3 == 1 {
                    db.compact().unwrap();
                }
            }
        }
        if flat_max > NODES {
            continue;
        }
        let again = Cluster::on(copies(&cluster.dirs), options(), SILENCE);
        again.tell();
        compare(&questions, &expected, &answers(&again.head, &questions).await, "started again");
        let dirs: Vec<_> = copies(&cluster.dirs);
        let places: Vec<_> = dirs.iter().map(|dir| dir.path().join("db")).collect();
        let replayed = Queries::new(Db::open_together(&places, Options::default()).unwrap(), options()).unwrap();
        compare(&questions, &expected, &answers(&replayed, &questions).await, "replayed");
    }
}

#[tokio::test]
async fn sums_of_what_cancels_on_three_nodes_are_exact() {
    let cluster = Cluster::new(&["m{host=a} 0:1e16", "m{host=b} 0:1.0", "m{host=c} 0:-1e16"]);
    for _ in 0..10 {
        assert_eq!(cluster.sum().await.0, "0:1");
        let (text, _) = cluster.sql("SELECT sum(value), avg(value) * 3 FROM m").await.unwrap();
        assert_eq!(text, "1.0 1.0");
    }
}
