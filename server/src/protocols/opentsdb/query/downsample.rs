//! The notation of downsampling: `interval-function[-fill]`.

use chrono_tz::Tz;
use telem_engine::Step;
use telem_query::question::Aggregator;
use telem_query::tsq::{Downsample, Fill, Interval};

use crate::protocols::opentsdb::aggregators;
use crate::protocols::opentsdb::time;

/// How buckets follow a calendar.
#[derive(Clone, Copy, Debug)]
pub struct CalendarRule {
    /// Also intervals without the suffix `c` do.
    pub always: bool,
    pub zone: Tz,
}

/// # Errors
/// Says what is wrong, close to OpenTSDB's words.
pub fn parse(text: &str, calendar: CalendarRule) -> Result<Downsample, String> {
    // Empty parts at the end do not count, as Java splits.
    let parts: Vec<&str> = text.trim_end_matches('-').split('-').collect();
    let (interval, function, fill) = match parts[..] {
        [interval, function] => (interval, function, None),
        [interval, function, fill] => (interval, function, Some(fill)),
        [] | [_] => {
            return Err(format!(
                "Invalid downsampling specifier '{text}': must provide at least interval and function"
            ));
        }
        _ => {
            return Err(format!(
                "Invalid downsampling specifier '{text}': must consist of interval, function, and optional fill policy"
            ));
        }
    };
    let interval = parse_interval(interval, calendar)?;
    let function =
        aggregators::by_name(function).ok_or_else(|| format!("No such downsampling function: {function}"))?;
    if function == Aggregator::None {
        return Err("cannot use the NONE aggregator for downsampling".to_owned());
    }
    let fill = match fill.map(str::to_lowercase).as_deref() {
        None | Some("none") => Fill::None,
        Some("nan") => Fill::Nan,
        Some("null") => Fill::Null,
        Some("zero") => Fill::Zero,
        Some(other) => return Err(format!("No such fill policy: '{other}': must be one of: none, nan, null, zero")),
    };
    Ok(Downsample { interval, function, fill })
}

fn parse_interval(text: &str, calendar: CalendarRule) -> Result<Interval, String> {
    if text.contains("all") {
        return Ok(Interval::All);
    }
    let (text, follows) = match text.strip_suffix('c') {
        Some(text) => (text, true),
        None => (text, calendar.always),
    };
    let duration = time::duration(text)?;
    if follows {
        if text[..text.len() - 1].contains(|c: char| !c.is_ascii_digit() && !matches!(c, 'm' | 'M')) {
            let units = text.trim_start_matches(|c: char| c.is_ascii_digit());
            return Err(format!("Invalid units in the duration: {units}"));
        }
        let too_long = || format!("Invalid duration (too long): {text}");
        let count = u32::try_from(duration.count).map_err(|_| too_long())?;
        return Ok(Interval::Calendar { count, unit: duration.unit, zone: calendar.zone });
    }
    let step = Step::from_micros(duration.millis.saturating_mul(1_000));
    step.map(Interval::Fixed).ok_or_else(|| format!("Zero or negative duration: {text}"))
}
