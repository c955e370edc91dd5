//! From what was asked to what is queried: times, aggregators, intervals, series by number.

use chrono_tz::Tz;
use telem_engine::{SeriesIndex, SeriesKey, Timestamp};
use telem_query::TsQuery;
use telem_query::tsq::{Downsample, Fidelity, Fill, Matcher, Rate, TagFilter};

use super::downsample::{self, Calendar};
use super::parse::{Asked, RateOptions, Sub};
use crate::protocols::opentsdb::errors::Failure;
use crate::protocols::opentsdb::{aggregators, time, tsuid};

/// A sub-query ready to be answered.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Its place among the sub-queries that were asked.
    pub index: usize,
    pub source: Source,
    /// A gap that is shown as null.
    pub gaps_are_null: bool,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// Series by numbers that nobody has.
    Nothing,
    Query(Box<TsQuery>),
}

/// What all sub-queries share.
struct Frame {
    start: Timestamp,
    end: Timestamp,
    calendar: Calendar,
    fidelity: Fidelity,
}

/// # Errors
/// 400 in OpenTSDB's words and in its order of checks.
pub fn resolve(
    asked: &Asked,
    index: &SeriesIndex,
    now_millis: i64,
    fidelity: Fidelity,
) -> Result<Vec<Resolved>, Failure> {
    let zone = zone(asked.timezone.as_deref())?;
    let start = asked.start.as_deref().ok_or_else(|| Failure::bad_request("Missing start time"))?;
    let start = time::parse(start, now_millis, zone).map_err(Failure::bad_request)?;
    let end = match asked.end.as_deref() {
        Some(end) => time::parse(end, now_millis, zone).map_err(Failure::bad_request)?,
        None => now_millis,
    };
    if end <= start {
        let text = format!("End time [{end}] must be greater than the start time [{start}]");
        return Err(Failure::bad_request(text));
    }
    if asked.subs.is_empty() {
        return Err(Failure::bad_request("Missing queries"));
    }
    let frame = Frame {
        start: Timestamp::from_millis(start),
        end: Timestamp::from_millis(end),
        calendar: Calendar { always: asked.use_calendar, zone },
        fidelity,
    };
    asked.subs.iter().enumerate().map(|(at, sub)| frame.sub(at, sub, index)).collect()
}

fn zone(name: Option<&str>) -> Result<Tz, Failure> {
    let Some(name) = name else { return Ok(Tz::UTC) };
    name.parse().map_err(|_| {
        Failure::bad_request(format!("Invalid timezone name: '{name}'")).details("expected a name such as Europe/Paris")
    })
}

impl Frame {
    fn sub(&self, at: usize, sub: &Sub, index: &SeriesIndex) -> Result<Resolved, Failure> {
        let aggregator =
            sub.aggregator.as_deref().ok_or_else(|| Failure::bad_request("Missing the aggregation function"))?;
        let aggregator = aggregators::by_name(aggregator)
            .ok_or_else(|| Failure::bad_request(format!("No such aggregation function: {aggregator}")))?;
        if sub.metric.is_none() && sub.tsuids.is_empty() {
            return Err(Failure::bad_request("Missing the metric or tsuids, provide at least one"));
        }
        let downsample = sub.downsample.as_deref().map(|text| downsample::parse(text, self.calendar));
        let downsample: Option<Downsample> = downsample.transpose().map_err(Failure::bad_request)?;
        let gaps_are_null = downsample.as_ref().is_some_and(|downsample| downsample.fill == Fill::Null);
        let selected = match &sub.metric {
            Some(metric) => {
                let filters = sub.filters.iter().map(|filter| filter.to_tag_filter()).collect();
                Some(Selected { metric: metric.clone(), filters, explicit_tags: sub.explicit_tags })
            }
            None => self.by_numbers(&sub.tsuids, index)?,
        };
        let source = selected.map_or(Source::Nothing, |selected| {
            Source::Query(Box::new(TsQuery {
                metric: selected.metric,
                filters: selected.filters,
                explicit_tags: selected.explicit_tags,
                aggregator,
                downsample,
                rate: sub.rate.then(|| rate(sub.rate_options.unwrap_or_default())),
                start: self.start,
                end: self.end,
                fidelity: self.fidelity,
            }))
        });
        Ok(Resolved { index: at, source, gaps_are_null })
    }

    /// The series of TSUIDs; `None` when there are none.
    fn by_numbers(&self, tsuids: &[String], index: &SeriesIndex) -> Result<Option<Selected>, Failure> {
        let mut keys: Vec<SeriesKey> = Vec::new();
        for number in tsuids {
            let found = tsuid::find(index, number).map_err(|why| Failure::unforeseen(self.fidelity, why))?;
            keys.extend(found);
        }
        keys.sort();
        keys.dedup();
        match keys.as_slice() {
            [] => Ok(None),
            [key] => Ok(Some(Selected::one(key))),
            _ => Err(Failure::bad_request("several tsuids in one sub-query are not supported")
                .details("ask for each in a sub-query of its own, or for a metric with filters")),
        }
    }
}

/// Which series a sub-query reads.
struct Selected {
    metric: String,
    filters: Vec<TagFilter>,
    explicit_tags: bool,
}

impl Selected {
    fn one(key: &SeriesKey) -> Self {
        let filters = key.tags().iter().map(|(name, value)| TagFilter {
            key: name.to_owned(),
            matcher: Matcher::LiteralOr(vec![value.to_owned()]),
            group_by: false,
        });
        Selected { metric: key.metric().to_owned(), filters: filters.collect(), explicit_tags: true }
    }
}

fn rate(options: RateOptions) -> Rate {
    Rate {
        counter: options.counter,
        counter_max: Some(options.counter_max),
        reset_value: options.reset_value,
        drop_resets: options.drop_resets,
    }
}
