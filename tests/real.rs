//! The real path behind the oracle's types: a database on disk, and its answers to the same queries.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use telem_engine::{
    Db, Durability, NameKind, Options, SampleBatch, SeriesKey, Step, SystemClock, TagSet, Timestamp, Value,
};
use telem_query::expression::{Case, Expression};
use telem_query::question::Aggregator as Real;
use telem_query::question::aggregator::{Estimation, Percentile};
use telem_query::tsq;
use telem_query::{Error, Queries, QueryOptions, TsQuery};

use crate::oracle::{Aggregator, Calendar, Estimate, Fill, Group, Matching, Number, Question, Refusal, Unit, Width};
use crate::script::Load;

pub fn open(dir: &Path) -> Db {
    Db::open(dir, Options::default()).unwrap()
}

pub fn open_node(dir: &Path, node: &str) -> Db {
    Db::open(dir, Options { node: node.to_owned(), ..Options::default() }).unwrap()
}

pub fn queries(db: &Db) -> Queries {
    Queries::new(db.clone(), QueryOptions { threads: 2, ..QueryOptions::new(Arc::new(SystemClock::new())) }).unwrap()
}

pub fn write(db: &Db, load: &Load) {
    let id = db.series(&key(&load.metric, &load.tags)).unwrap();
    let mut batch = SampleBatch::default();
    for (time, value) in &load.samples {
        let value = match value {
            Number::Int(int) => Value::Int(*int),
            Number::Float(float) => Value::Float(*float),
        };
        batch.push(id, Timestamp::from_micros(time * 1000), value);
    }
    db.append(&batch, Durability::Buffered).unwrap();
}

fn key(metric: &str, tags: &BTreeMap<String, String>) -> SeriesKey {
    SeriesKey::new(metric, TagSet::new(tags).unwrap()).unwrap()
}

/// The answer of `queries`, in the oracle's words.
pub async fn answer(queries: &Queries, question: &Question) -> Result<Vec<Group>, Refusal> {
    let answer = match queries.timeseries(ts_query(question)).await {
        Ok(answer) => answer,
        Err(Error::UnknownName { kind, name }) => {
            let kind = match kind {
                NameKind::Metric => "metrics",
                NameKind::TagKey => "tagk",
                NameKind::TagValue => "tagv",
            };
            return Err(Refusal::UnknownName { kind, name });
        }
        Err(Error::Infinite { .. }) => return Err(Refusal::Infinity),
        Err(error) => panic!("{error} for {question:#?}"),
    };
    assert!(answer.missing.is_empty(), "{:?}", answer.missing);
    let groups = answer.groups.into_iter().map(|group| Group {
        tags: group.tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        aggregate_tags: group.aggregate_tags,
        points: group.points.into_iter().map(|(time, value)| (millis(time), number(value))).collect(),
    });
    Ok(groups.collect())
}

fn millis(time: Timestamp) -> i64 {
    assert_eq!(time.micros() % 1000, 0, "{time:?} is no whole millisecond");
    time.micros() / 1000
}

fn number(value: Value) -> Number {
    match value {
        Value::Int(int) => Number::Int(int),
        Value::Float(float) => Number::Float(float),
    }
}

fn ts_query(question: &Question) -> TsQuery {
    let filters = question.filters.iter().map(|filter| tsq::TagFilter {
        key: filter.key.clone(),
        group_by: filter.group_by,
        matcher: match filter.matching.clone() {
            Matching::LiteralOr(names) => tsq::Matcher::LiteralOr(names),
            Matching::ILiteralOr(names) => tsq::Matcher::ILiteralOr(names),
            Matching::NotLiteralOr(names) => tsq::Matcher::NotLiteralOr(names),
            Matching::NotILiteralOr(names) => tsq::Matcher::NotILiteralOr(names),
            Matching::Wildcard(glob) => tsq::Matcher::Wildcard(glob),
            Matching::IWildcard(glob) => tsq::Matcher::IWildcard(glob),
            Matching::Regexp(expression) => {
                tsq::Matcher::Regexp(Expression::new(expression.as_str(), Case::Matters).unwrap())
            }
        },
    });
    TsQuery {
        metric: question.metric.clone(),
        filters: filters.collect(),
        explicit_tags: question.explicit_tags,
        series: question.only.as_ref().map(|only| only.iter().map(|tags| key(&question.metric, tags)).collect()),
        aggregator: aggregator(question.aggregator),
        downsample: question.downsample.map(|downsample| tsq::Downsample {
            interval: match downsample.width {
                Width::All => tsq::Interval::All,
                Width::Millis(millis) => tsq::Interval::Fixed(Step::from_micros(millis * 1000).unwrap()),
                Width::Calendar(Calendar { count, unit, zone }) => {
                    tsq::Interval::Calendar { count, unit: calendar_unit(unit), zone }
                }
            },
            function: aggregator(downsample.function),
            fill: match downsample.fill {
                Fill::None => tsq::Fill::None,
                Fill::Nan => tsq::Fill::Nan,
                Fill::Null => tsq::Fill::Null,
                Fill::Zero => tsq::Fill::Zero,
            },
        }),
        rate: question.rate.map(|rate| tsq::Rate {
            counter: rate.counter,
            counter_max: Some(rate.counter_max),
            reset_value: rate.reset_value,
            drop_resets: rate.drop_resets,
        }),
        start: Timestamp::from_micros(question.start_ms * 1000),
        end: Timestamp::from_micros(question.end_ms * 1000),
        fidelity: if question.exact { tsq::Fidelity::OpenTsdb } else { tsq::Fidelity::Sensible },
    }
}

fn calendar_unit(unit: Unit) -> tsq::CalendarUnit {
    match unit {
        Unit::Millisecond => tsq::CalendarUnit::Millisecond,
        Unit::Second => tsq::CalendarUnit::Second,
        Unit::Minute => tsq::CalendarUnit::Minute,
        Unit::Hour => tsq::CalendarUnit::Hour,
        Unit::Day => tsq::CalendarUnit::Day,
        Unit::Week => tsq::CalendarUnit::Week,
        Unit::Month => tsq::CalendarUnit::Month,
        Unit::Year => tsq::CalendarUnit::Year,
    }
}

fn aggregator(aggregator: Aggregator) -> Real {
    match aggregator {
        Aggregator::Sum => Real::Sum,
        Aggregator::Min => Real::Min,
        Aggregator::Max => Real::Max,
        Aggregator::Avg => Real::Avg,
        Aggregator::Median => Real::Median,
        Aggregator::None => Real::None,
        Aggregator::Mult => Real::Mult,
        Aggregator::Dev => Real::Dev,
        Aggregator::Diff => Real::Diff,
        Aggregator::Count => Real::Count,
        Aggregator::ZimSum => Real::ZimSum,
        Aggregator::MimMin => Real::MimMin,
        Aggregator::MimMax => Real::MimMax,
        Aggregator::First => Real::First,
        Aggregator::Last => Real::Last,
        Aggregator::PfSum => Real::PfSum,
        Aggregator::SquareSum => Real::SquareSum,
        Aggregator::Percentile(percent, estimate) => Real::Percentile(Percentile {
            per_mille: (percent * 10.0).round() as u16,
            estimation: match estimate {
                Estimate::Legacy => Estimation::Legacy,
                Estimate::R3 => Estimation::R3,
                Estimate::R7 => Estimation::R7,
            },
        }),
    }
}
