//! The arguments of `downsample`: literals are turned into their meaning.

use std::str::FromStr;

use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use telem_engine::{Step, Timestamp};

use super::NAME;
use crate::error::Error;
use crate::question::Aggregator;
use crate::question::tsq::{self, CalendarUnit, Interval, Rate};
use crate::table::constants::{Constants, MICROS_PER_DAY, RelativeTimes};

/// In the order in which they may be given without names. All but the first two may be left out.
pub(crate) const PARAMETERS: [&str; 9] =
    ["metric", "interval", "function", "aggregate", "by", "fill", "rate", "start", "stop"];

#[derive(Clone, Debug, PartialEq)]
pub struct Arguments {
    pub metric: String,
    /// `'5 minutes'`, an INTERVAL, months and years of the calendar in UTC, or `'all'` for one bucket.
    pub interval: Interval,
    /// Makes one value of a series' samples in a bucket. `avg`.
    pub function: Aggregator,
    /// Turns the values of the series of a group into one. Without it every series is a line of its own.
    pub aggregate: Aggregator,
    /// Tag keys, separated by commas: series that differ in one belong to different groups, and
    /// series that lack one to none.
    pub by: Vec<String>,
    pub fill: GapFill,
    /// `'counter'`, whose resets are left out, or `'gauge'`: the change per second.
    pub rate: Option<Rate>,
    pub start: Option<Timestamp>,
    /// Exclusive.
    pub stop: Option<Timestamp>,
}

/// The value of a bucket without samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GapFill {
    /// No row.
    #[default]
    None,
    Null,
    Nan,
    Zero,
    /// The value of the bucket before, or NULL.
    Previous,
    /// On the straight line between the buckets around; NULL at the ends.
    Linear,
}

impl GapFill {
    /// The fill of the pipeline: gaps that are filled later are marked first.
    pub fn of_buckets(self) -> tsq::Fill {
        match self {
            GapFill::None => tsq::Fill::None,
            GapFill::Nan => tsq::Fill::Nan,
            GapFill::Zero => tsq::Fill::Zero,
            GapFill::Null | GapFill::Previous | GapFill::Linear => tsq::Fill::Null,
        }
    }
}

impl Arguments {
    /// `given` has one literal for each of [`PARAMETERS`], NULL for those left out; `relative` says which time a text
    /// such as `5m-ago` means.
    ///
    /// # Errors
    /// What is wrong with which argument.
    pub fn parse(given: &[Expr], relative: RelativeTimes<'_>) -> Result<Self> {
        let given = Constants::read(NAME, &PARAMETERS, given)?;
        let Some(metric) = given.text(0)? else {
            return plan_err!("{NAME} needs a metric and an interval, as in {NAME}('node_load1', '1 minute')");
        };
        let aggregator = |at: usize, default: Aggregator| -> Result<Aggregator> {
            let Some(name) = given.text(at)? else { return Ok(default) };
            Aggregator::from_str(&name).map_err(|unknown| DataFusionError::External(Box::new(Error::from(unknown))))
        };
        let (function, aggregate) = (aggregator(2, Aggregator::Avg)?, aggregator(3, Aggregator::None)?);
        let by = given.words(4)?.unwrap_or_default();
        if !by.is_empty() && aggregate == Aggregator::None {
            return plan_err!("{NAME}: by => '{}' needs an aggregate, such as aggregate => 'sum'", by.join(","));
        }
        Ok(Self {
            metric,
            interval: interval(given.value(1))?,
            function,
            aggregate,
            by,
            fill: fill(given.text(5)?.as_deref())?,
            rate: rate(given.text(6)?.as_deref())?,
            start: given.time(7, relative)?,
            stop: given.time(8, relative)?,
        })
    }
}

fn interval(value: &ScalarValue) -> Result<Interval> {
    if value.try_as_str().flatten() == Some("all") {
        return Ok(Interval::All);
    }
    let wanted = DataType::Interval(IntervalUnit::MonthDayNano);
    let ScalarValue::IntervalMonthDayNano(Some(interval)) = value.cast_to(&wanted)? else {
        return plan_err!("{NAME} needs an interval, such as '1 minute'");
    };
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    match (u32::try_from(months), days, nanoseconds) {
        (Ok(months), 0, 0) if months > 0 => {
            let years = months % 12 == 0;
            let (count, unit) = if years { (months / 12, CalendarUnit::Year) } else { (months, CalendarUnit::Month) };
            Ok(Interval::Calendar { count, unit, zone: chrono_tz::UTC })
        }
        (Ok(0), days, nanos) if nanos % 1_000_000 == 0 => {
            let micros = i64::from(days).checked_mul(MICROS_PER_DAY).and_then(|days| days.checked_add(nanos / 1_000));
            match micros.and_then(Step::from_micros) {
                Some(step) => Ok(Interval::Fixed(step)),
                None => plan_err!("{NAME}: the interval is {value}, expected one above 0"),
            }
        }
        _ => plan_err!("{NAME}: the interval is {value}, expected whole months, or whole milliseconds"),
    }
}

fn fill(name: Option<&str>) -> Result<GapFill> {
    Ok(match name {
        None | Some("none") => GapFill::None,
        Some("null") => GapFill::Null,
        Some("nan") => GapFill::Nan,
        Some("zero") => GapFill::Zero,
        Some("previous") => GapFill::Previous,
        Some("linear") => GapFill::Linear,
        Some(other) => {
            return plan_err!("{NAME}: fill is '{other}', expected none, null, nan, zero, previous or linear");
        }
    })
}

fn rate(name: Option<&str>) -> Result<Option<Rate>> {
    Ok(match name {
        None => None,
        Some("counter") => Some(Rate { counter: true, drop_resets: true, ..Rate::default() }),
        Some("gauge") => Some(Rate::default()),
        Some(other) => return plan_err!("{NAME}: rate is '{other}', expected counter or gauge"),
    })
}
