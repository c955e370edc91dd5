//! Turns a parsed request into time-series queries: times, aggregators, intervals, series by number.

use axum::http::StatusCode;
use chrono_tz::Tz;
use telem_engine::{NameKind, SeriesIndex, SeriesKey, Timestamp};
use telem_query::TsQuery;
use telem_query::question::Aggregator;
use telem_query::tsq::{Downsample, Fidelity, Fill, Interval, Matcher, Rate, TagFilter};

use super::downsample::{self, CalendarRule};
use super::filters::{self, Filter};
use super::gaps::GapFilling;
use super::request::{QueryRequest, RateOptions, Sub};
use crate::protocols::opentsdb::errors::OpenTsdbError;
use crate::protocols::opentsdb::{aggregators, time, tsuid};

const HOUR_MICROS: i64 = 3_600_000_000;
/// The last time that OpenTSDB takes in a query: 13 digits of milliseconds.
const OPENTSDB_MILLIS_MAX: i64 = 9_999_999_999_999;

/// A sub-query ready to be answered.
#[derive(Clone, Debug)]
pub struct ResolvedQuery {
    /// Its place among the sub-queries that were asked.
    pub index: usize,
    pub source: SubQuerySource,
    /// What its fill policy writes into gaps.
    pub filling: GapFilling,
}

impl ResolvedQuery {
    pub fn query(&self) -> Option<&TsQuery> {
        match &self.source {
            SubQuerySource::Nothing => None,
            SubQuerySource::Query(query) => Some(query),
        }
    }
}

#[derive(Clone, Debug)]
pub enum SubQuerySource {
    /// Series by numbers that nobody has, or histograms.
    Nothing,
    Query(Box<TsQuery>),
}

/// What all sub-queries share.
struct Frame {
    start: Timestamp,
    end: Timestamp,
    always_calendar: bool,
    /// Or what is wrong with its name, which matters only where it is needed.
    zone: Result<Tz, String>,
    fidelity: Fidelity,
}

/// Whether `asked` ends before it begins, as far as both times can be read.
pub fn is_backwards(asked: &QueryRequest, now_millis: i64) -> bool {
    let zone = time::zone(asked.timezone.as_deref()).unwrap_or(Tz::UTC);
    let read = |text: &str| time::parse(text, now_millis, zone).ok();
    let start = asked.start.as_deref().and_then(read);
    let end = asked.end.as_deref().map_or(Some(now_millis), read);
    start.zip(end).is_some_and(|(start, end)| end <= start)
}

/// # Errors
/// 400 in OpenTSDB's words and in its order of checks.
pub fn resolve(
    asked: &QueryRequest,
    index: &SeriesIndex,
    now_millis: i64,
    fidelity: Fidelity,
) -> Result<Vec<ResolvedQuery>, OpenTsdbError> {
    let zone = time::zone(asked.timezone.as_deref());
    if fidelity == Fidelity::Sensible {
        zone.clone().map_err(OpenTsdbError::bad_request)?;
    }
    let read = |text: &str| match &zone {
        Err(why) if time::is_date(text) => Err(OpenTsdbError::bad_request(why)),
        _ => time::parse(text, now_millis, zone.clone().unwrap_or(Tz::UTC)).map_err(OpenTsdbError::bad_request),
    };
    let start = read(asked.start.as_deref().ok_or_else(|| OpenTsdbError::bad_request("Missing start time"))?)?;
    let end = asked.end.as_deref().map_or(Ok(now_millis), read)?;
    if end <= start {
        let text = format!("End time [{end}] must be greater than the start time [{start}]");
        return Err(OpenTsdbError::bad_request(text));
    }
    if asked.subs.is_empty() {
        return Err(OpenTsdbError::bad_request("Missing queries"));
    }
    let frame = Frame {
        start: Timestamp::from_millis(start),
        end: Timestamp::from_millis(end),
        always_calendar: asked.use_calendar,
        zone,
        fidelity,
    };
    // Every sub-query is looked at before a name of any is.
    let valid: Vec<Valid> = asked.subs.iter().map(|sub| frame.check(sub)).collect::<Result<_, _>>()?;
    if fidelity == Fidelity::OpenTsdb {
        storable(start)?;
        storable(end)?;
    }
    asked.subs.iter().zip(valid).enumerate().map(|(at, (sub, valid))| frame.sub(at, sub, valid, index)).collect()
}

/// How much of what a query reads anyway it answers with: rows of whole hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widen {
    ToTheStartOfTheHour,
    /// But for the last second, without which the query would read an hour more.
    ToAllThatIsRead,
}

/// Lets a query answer with more than it was asked for. Where that would move its buckets, it is left as it is.
pub fn widen(sub: &mut ResolvedQuery, how: Widen) {
    let SubQuerySource::Query(query) = &mut sub.source else { return };
    let same_window = match &query.downsample {
        None => true,
        Some(downsample) => match downsample.interval {
            Interval::Fixed(step) => HOUR_MICROS % step.micros() == 0,
            Interval::All | Interval::Calendar { .. } => false,
        },
    };
    if same_window {
        let into_hour = query.start.micros().rem_euclid(HOUR_MICROS);
        query.start = query.start.saturating_add_micros(-into_hour);
        if how == Widen::ToAllThatIsRead {
            // What is read ends with the hour in which the second after the end lies.
            let second = query.end.saturating_add_micros(1_000_000);
            let left = HOUR_MICROS - second.micros().rem_euclid(HOUR_MICROS);
            query.end = second.saturating_add_micros(left - 1_001_000);
        }
    }
}

/// OpenTSDB fails at a time that its rows cannot name.
fn storable(millis: i64) -> Result<(), OpenTsdbError> {
    match (0..=OPENTSDB_MILLIS_MAX).contains(&millis) {
        true => Ok(()),
        false => Err(OpenTsdbError::unforeseen(Fidelity::OpenTsdb, format!("Invalid timestamp: {millis}"))),
    }
}

/// The parts of a sub-query that make sense by themselves.
struct Valid {
    aggregator: Aggregator,
    downsample: Option<Downsample>,
}

impl Frame {
    fn check(&self, sub: &Sub) -> Result<Valid, OpenTsdbError> {
        let aggregator =
            sub.aggregator.as_deref().ok_or_else(|| OpenTsdbError::bad_request("Missing the aggregation function"))?;
        let aggregator = aggregators::by_name(aggregator)
            .ok_or_else(|| OpenTsdbError::bad_request(format!("No such aggregation function: {aggregator}")))?;
        if sub.metric.is_none() && sub.tsuids.is_empty() {
            return Err(OpenTsdbError::bad_request("Missing the metric or tsuids, provide at least one"));
        }
        let downsample = sub.downsample.as_deref().map(|text| {
            let zone = self.zone.clone().unwrap_or(Tz::UTC);
            downsample::parse(text, CalendarRule { always: self.always_calendar, zone })
        });
        let downsample: Option<Downsample> = downsample.transpose().map_err(OpenTsdbError::bad_request)?;
        if let Some(percentiles) = &sub.histogram {
            let function = downsample.as_ref().map(|downsample| downsample.function);
            self.check_histogram(aggregator, function, percentiles).map_err(OpenTsdbError::bad_request)?;
        }
        if downsample.is_some() {
            self.zone.clone().map_err(OpenTsdbError::bad_request)?;
        }
        Ok(Valid { aggregator, downsample })
    }

    /// telem keeps no histograms. The original, asked for them where there are only numbers, finds nothing.
    fn check_histogram(
        &self,
        aggregator: Aggregator,
        downsample: Option<Aggregator>,
        percentiles: &[f32],
    ) -> Result<(), String> {
        if self.fidelity == Fidelity::Sensible {
            return Err("telem keeps no histograms: ask for an aggregator such as p99 instead".to_owned());
        }
        if !matches!(aggregator, Aggregator::None | Aggregator::Sum) {
            return Err("Only NONE or SUM aggregation function supported for histogram query".to_owned());
        }
        if downsample.is_some_and(|function| function != Aggregator::Sum) {
            return Err("Only SUM downsampling aggregation supported for histogram query".to_owned());
        }
        match percentiles.iter().find(|percentile| !(0.0..=100.0).contains(*percentile)) {
            Some(percentile) => Err(format!("Invalid percentile parameters: {percentile}")),
            None => Ok(()),
        }
    }

    fn sub(&self, at: usize, sub: &Sub, valid: Valid, index: &SeriesIndex) -> Result<ResolvedQuery, OpenTsdbError> {
        let Valid { aggregator, downsample } = valid;
        let filling = match &downsample {
            Some(downsample) if downsample.fill == Fill::Null => GapFilling::Null,
            _ => GapFilling::Other,
        };
        if sub.pre_aggregate && self.fidelity == Fidelity::OpenTsdb {
            return Err(OpenTsdbError::bad_request("An internal null pointer exception was thrown")
                .details("nothing was aggregated when it was written"));
        }
        let selected = match (&sub.metric, &sub.tsuids[..]) {
            (Some(metric), []) => Some(SelectedSeries {
                metric: metric.clone(),
                filters: self.filters(sub, index)?,
                explicit_tags: sub.explicit_tags,
                series: None,
            }),
            // Numbers come first: the metric and its filters are then not looked at.
            (_, tsuids) => self.by_numbers(tsuids, index)?,
        };
        let selected = match (selected, &sub.histogram) {
            (Some(selected), Some(_)) => {
                selected.check_names(index)?;
                None
            }
            (selected, _) => selected,
        };
        let source = selected.map_or(SubQuerySource::Nothing, |selected| {
            SubQuerySource::Query(Box::new(TsQuery {
                metric: selected.metric,
                filters: selected.filters,
                explicit_tags: selected.explicit_tags,
                series: selected.series,
                aggregator,
                downsample,
                rate: sub.rate.then(|| rate(sub.rate_options.unwrap_or_default())),
                start: self.start,
                end: self.end,
                fidelity: self.fidelity,
            }))
        });
        Ok(ResolvedQuery { index: at, source, filling })
    }

    fn filters(&self, sub: &Sub, index: &SeriesIndex) -> Result<Vec<TagFilter>, OpenTsdbError> {
        if self.fidelity == Fidelity::Sensible {
            return Ok(sub.filters.iter().map(Filter::to_tag_filter).collect());
        }
        let meant = filters::as_opentsdb(&sub.filters, |key| index.ordinal(NameKind::TagKey, key));
        // The plan looks up the values that count. Those that do not must be known as well.
        let counts = |value: &String| {
            meant.iter().any(|filter| matches!(&filter.matcher, Matcher::LiteralOr(values) if values.contains(value)))
        };
        let mut forgotten = sub.filters.iter().flat_map(Filter::literals).filter(|value| !counts(value));
        match forgotten.find(|value| !index.knows(NameKind::TagValue, value)) {
            Some(value) => Err(OpenTsdbError::unknown_name(StatusCode::BAD_REQUEST, NameKind::TagValue, value)),
            None => Ok(meant),
        }
    }

    /// The series of TSUIDs, if there are any.
    fn by_numbers(&self, tsuids: &[String], index: &SeriesIndex) -> Result<Option<SelectedSeries>, OpenTsdbError> {
        let metric_of = |number: &String| number.get(..tsuid::DIGITS).map(str::to_uppercase);
        if let [first, others @ ..] = tsuids
            && let Some(other) = others.iter().find(|other| metric_of(other) != metric_of(first))
        {
            let [first, other] = [first, other].map(|number| metric_of(number).unwrap_or_default());
            let text = format!("One or more TSUIDs did not share the same metric [{first}] [{other}]");
            return Err(OpenTsdbError::unforeseen(self.fidelity, text));
        }
        let mut keys: Vec<SeriesKey> = Vec::new();
        for number in tsuids {
            if number.len() < tsuid::DIGITS {
                let text = format!("begin 0, end {}, length {}", tsuid::DIGITS, number.len());
                return Err(OpenTsdbError::unforeseen(self.fidelity, text));
            }
            let found = tsuid::find(index, number).map_err(OpenTsdbError::bad_request)?;
            if found.is_none() && self.fidelity == Fidelity::OpenTsdb {
                tsuid::check_width(number).map_err(OpenTsdbError::bad_request)?;
            }
            keys.extend(found);
        }
        keys.sort();
        keys.dedup();
        let metric = keys.first().map(|key| key.metric().to_owned());
        let selected =
            |metric| SelectedSeries { metric, filters: Vec::new(), explicit_tags: false, series: Some(keys) };
        Ok(metric.map(selected))
    }
}

/// Which series a sub-query reads.
struct SelectedSeries {
    metric: String,
    filters: Vec<TagFilter>,
    explicit_tags: bool,
    series: Option<Vec<SeriesKey>>,
}

impl SelectedSeries {
    /// That somebody knows the metric, the tag keys and the literal values.
    fn check_names(&self, index: &SeriesIndex) -> Result<(), OpenTsdbError> {
        let keys = self.filters.iter().map(|filter| (NameKind::TagKey, &filter.key));
        let values = self.filters.iter().flat_map(|filter| match &filter.matcher {
            Matcher::LiteralOr(values) => &values[..],
            _ => &[],
        });
        let names = [(NameKind::Metric, &self.metric)].into_iter().chain(keys);
        let mut names = names.chain(values.map(|value| (NameKind::TagValue, value)));
        match names.find(|(kind, name)| !index.knows(*kind, name)) {
            Some((kind, name)) => Err(OpenTsdbError::unknown_name(StatusCode::BAD_REQUEST, kind, name)),
            None => Ok(()),
        }
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
