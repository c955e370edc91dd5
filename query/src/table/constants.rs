//! The arguments of a table function: constants, each read as what it means.

use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use telem_engine::{NameKind, SeriesIndex, TimeRange, Timestamp};

use crate::error::Error;
use crate::leaf::names::{NameSubject, NameTest};
use crate::leaf::time_type;

pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// What a text such as `5m-ago` means, if it is a time like that.
pub(super) type RelativeTimes<'a> = &'a dyn Fn(&str) -> Result<Option<Timestamp>>;

/// One constant for each parameter of a function, NULL for those left out.
#[derive(Debug)]
pub(super) struct Constants {
    function: &'static str,
    parameters: &'static [&'static str],
    values: Vec<ScalarValue>,
}

impl Constants {
    /// # Errors
    /// Where an argument is no constant.
    pub fn read(function: &'static str, parameters: &'static [&'static str], given: &[Expr]) -> Result<Self> {
        let mut values = Vec::with_capacity(parameters.len());
        for (at, name) in parameters.iter().enumerate() {
            values.push(match given.get(at) {
                None => ScalarValue::Null,
                Some(Expr::Literal(value, _)) => value.clone(),
                Some(other) => return plan_err!("{function}: {name} is {other}, expected a constant"),
            });
        }
        Ok(Self { function, parameters, values })
    }

    pub fn value(&self, at: usize) -> &ScalarValue {
        &self.values[at]
    }

    /// # Errors
    /// Where it is no text.
    pub fn text(&self, at: usize) -> Result<Option<String>> {
        match &self.values[at] {
            value if value.is_null() => Ok(None),
            value => match value.try_as_str() {
                Some(text) => Ok(text.map(str::to_owned)),
                None => plan_err!("{}: {} is {value}, expected a text", self.function, self.parameters[at]),
            },
        }
    }

    /// Words between commas; empty ones do not count.
    ///
    /// # Errors
    /// Where it is no text.
    pub fn words(&self, at: usize) -> Result<Option<Vec<String>>> {
        let words = |text: String| {
            text.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect::<Vec<_>>()
        };
        Ok(self.text(at)?.map(words))
    }

    /// Microseconds.
    ///
    /// # Errors
    /// Where it is no length of time of at least that much.
    pub fn duration(&self, at: usize, min: i64) -> Result<Option<i64>> {
        let value = &self.values[at];
        if value.is_null() {
            return Ok(None);
        }
        let interval = value.cast_to(&DataType::Interval(IntervalUnit::MonthDayNano));
        let micros = match interval {
            Ok(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months: 0, days, nanoseconds })))
                if nanoseconds % 1_000 == 0 =>
            {
                let days = i64::from(days).checked_mul(MICROS_PER_DAY);
                days.and_then(|days| days.checked_add(nanoseconds / 1_000))
            }
            _ => None,
        };
        match micros.filter(|micros| *micros >= min) {
            Some(micros) => Ok(Some(micros)),
            None => plan_err!(
                "{}: {} is {value}, expected a length of time in whole microseconds, without months, of {}, such as \
                 '10 seconds'",
                self.function,
                self.parameters[at],
                if min > 0 { "more than 0" } else { "0 or more" }
            ),
        }
    }

    /// # Errors
    /// Where it is no time.
    pub fn time(&self, at: usize, relative: RelativeTimes<'_>) -> Result<Option<Timestamp>> {
        let value = &self.values[at];
        if let Some(text) = value.try_as_str().flatten()
            && let Some(time) = relative(text)?
        {
            return Ok(Some(time));
        }
        match value.cast_to(&time_type()) {
            Ok(ScalarValue::TimestampMicrosecond(micros, _)) => Ok(micros.map(Timestamp::from_micros)),
            _ => plan_err!(
                "{}: {} is {value}, expected a time, such as '2024-01-31 12:00:00' or '5m-ago'",
                self.function,
                self.parameters[at]
            ),
        }
    }

    /// The half-open range between two times, each of which may be left out.
    ///
    /// # Errors
    /// Where one is no time.
    pub fn range(&self, start: usize, stop: usize, relative: RelativeTimes<'_>) -> Result<TimeRange> {
        let (start, stop) = (self.time(start, relative)?, self.time(stop, relative)?);
        Ok(TimeRange::new(start.unwrap_or(Timestamp::MIN), stop.unwrap_or(Timestamp::MAX)))
    }

    /// The metric, or those of its series that have tags: `'gpu_power_watts{gpu=0}'`.
    ///
    /// # Errors
    /// UnknownName, where there is none of that name.
    pub fn metric(&self, at: usize, index: &SeriesIndex) -> Result<Option<MetricChoice>> {
        let Some(text) = self.text(at)? else { return Ok(None) };
        let (function, parameter) = (self.function, self.parameters[at]);
        if index.knows(NameKind::Metric, &text) {
            return Ok(Some(MetricChoice { metric: text, tags: Vec::new() }));
        }
        let (metric, tags) = match text.split_once('{') {
            None => (text, Vec::new()),
            Some((metric, rest)) => {
                let pairs = rest.strip_suffix('}').map(|pairs| {
                    let pairs = pairs.split(',').map(str::trim).filter(|pair| !pair.is_empty());
                    pairs.map(|pair| pair.split_once('=')).collect::<Option<Vec<_>>>()
                });
                let Some(Some(pairs)) = pairs else {
                    return plan_err!(
                        "{function}: {parameter} is '{text}', expected a metric, perhaps with tags, such as \
                         'gpu_power_watts{{gpu=0}}'"
                    );
                };
                let bare = |word: &str| word.trim().trim_matches('"').to_owned();
                (metric.trim().to_owned(), pairs.into_iter().map(|(key, value)| (bare(key), bare(value))).collect())
            }
        };
        let unknown = |kind, name: &str| {
            Err(DataFusionError::External(Box::new(Error::UnknownName { kind, name: name.to_owned() })))
        };
        if !index.knows(NameKind::Metric, &metric) {
            return unknown(NameKind::Metric, &metric);
        }
        let keys = index.tag_keys(&metric);
        if let Some((key, _)) = tags.iter().find(|(key, _)| !keys.iter().any(|known| **known == **key)) {
            return unknown(NameKind::TagKey, key);
        }
        Ok(Some(MetricChoice { metric, tags }))
    }
}

/// A metric, and the tags that its series must have.
#[derive(Clone, Debug)]
pub(super) struct MetricChoice {
    pub metric: String,
    tags: Vec<(String, String)>,
}

impl MetricChoice {
    /// What the leaf is asked for.
    pub fn tests(&self) -> Vec<(NameSubject, NameTest)> {
        let one = |name: &str| NameTest::In { names: vec![name.to_owned()], negated: false };
        let tags = self.tags.iter().map(|(key, value)| (NameSubject::Tag(key.clone()), one(value)));
        std::iter::once((NameSubject::Metric, one(&self.metric))).chain(tags).collect()
    }
}
