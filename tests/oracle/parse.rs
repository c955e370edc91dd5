//! The words of OpenTSDB's queries: aggregator names, downsample specifications, tag filters.

use chrono_tz::Tz;
use regex::Regex;

use super::reduce::Estimate;
use super::{Aggregator, Calendar, Downsample, Fill, Filter, Matching, Unit, Width};

pub fn aggregator(name: &str) -> Option<Aggregator> {
    use Aggregator::*;
    Some(match name {
        "sum" => Sum,
        "min" => Min,
        "max" => Max,
        "avg" => Avg,
        "median" => Median,
        "none" => None,
        "mult" => Mult,
        "dev" => Dev,
        "diff" => Diff,
        "count" => Count,
        "zimsum" => ZimSum,
        "mimmin" => MimMin,
        "mimmax" => MimMax,
        "first" => First,
        "last" => Last,
        "pfsum" => PfSum,
        "squareSum" => SquareSum,
        _ => {
            let (digits, estimate) = if let Some(digits) = name.strip_prefix("ep") {
                let r3 = digits.strip_suffix("r3").map(|digits| (digits, Estimate::R3));
                r3.or_else(|| digits.strip_suffix("r7").map(|digits| (digits, Estimate::R7)))?
            } else {
                (name.strip_prefix('p')?, Estimate::Legacy)
            };
            let percent = match digits {
                "50" => 50.0,
                "75" => 75.0,
                "90" => 90.0,
                "95" => 95.0,
                "99" => 99.0,
                "999" => 99.9,
                _ => return Option::None,
            };
            Percentile(percent, estimate)
        }
    })
}

/// `1m-avg`, `0all-sum`, `30s-max-nan`, `1dc-sum` in the calendar of `zone`. `None` for anything the oracle does not cover.
pub fn downsample(text: &str, zone: Tz) -> Option<Downsample> {
    let mut parts = text.split('-');
    let interval = parts.next()?;
    let function = aggregator(parts.next()?).filter(|function| *function != Aggregator::None)?;
    let fill = match parts.next() {
        None | Some("none") => Fill::None,
        Some("nan") => Fill::Nan,
        Some("null") => Fill::Null,
        Some("zero") => Fill::Zero,
        Some(_) => return None,
    };
    let width = if interval.ends_with("all") {
        Width::All
    } else if let Some(interval) = interval.strip_suffix('c') {
        Width::Calendar(calendar(interval, zone)?)
    } else {
        Width::Millis(millis(interval)?)
    };
    Some(Downsample { width, function, fill })
}

fn calendar(text: &str, zone: Tz) -> Option<Calendar> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let unit = match &text[unit_at..] {
        "ms" => Unit::Millisecond,
        "s" => Unit::Second,
        "m" => Unit::Minute,
        "h" => Unit::Hour,
        "d" => Unit::Day,
        "w" => Unit::Week,
        "n" => Unit::Month,
        "y" => Unit::Year,
        _ => return None,
    };
    let count = text[..unit_at].parse().ok().filter(|count| *count > 0)?;
    Some(Calendar { count, unit, zone })
}

/// `90s`, `1m`, `500ms`.
pub fn millis(text: &str) -> Option<i64> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let unit = match &text[unit_at..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        "n" => 30 * 86_400_000,
        "y" => 365 * 86_400_000,
        _ => return None,
    };
    Some(text[..unit_at].parse::<i64>().ok()?.checked_mul(unit)?).filter(|millis| *millis > 0)
}

/// One entry of a `tags` map: a literal, `a|b`, a glob, or `type(expression)`.
pub fn filter(key: &str, value: &str, group_by: bool) -> Option<Filter> {
    let list = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    let called = value.strip_suffix(')').and_then(|rest| rest.split_once('('));
    let matching = match called {
        Some(("literal_or", names)) => Matching::LiteralOr(list(names)),
        Some(("iliteral_or", names)) => Matching::ILiteralOr(list(names)),
        Some(("not_literal_or", names)) => Matching::NotLiteralOr(list(names)),
        Some(("not_iliteral_or", names)) => Matching::NotILiteralOr(list(names)),
        Some(("wildcard", glob)) => Matching::Wildcard(glob.to_owned()),
        Some(("iwildcard", glob)) => Matching::IWildcard(glob.to_owned()),
        Some(("regexp", expression)) => Matching::Regexp(Regex::new(expression).ok()?),
        Some(_) => return None,
        None if value.contains('*') => Matching::IWildcard(value.to_owned()),
        None => Matching::LiteralOr(list(value)),
    };
    Some(Filter { key: key.to_owned(), matching, group_by })
}
