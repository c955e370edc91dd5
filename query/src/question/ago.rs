//! Relative times as people write them, `5m-ago`, and the units of every duration in text.
//!
//! This is the only parser of them: for SQL, for options of the command line, and for OpenTSDB's times, which are more
//! lenient in some points.

#[cfg(test)]
mod tests;

use super::tsq::CalendarUnit;

/// What ends a time that is relative to another.
const AGO: &str = "-ago";
/// The time itself to which the others are relative.
const NOW: &str = "now";
const EXPECTED: &str = "write a whole number with us, ms, s, m, h, d or w before '-ago', as in 5m-ago";

impl CalendarUnit {
    /// The unit of this short name: `ms s m h d w n y`. A month is `n`, because `m` is a minute.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "ms" => Self::Millisecond,
            "s" => Self::Second,
            "m" => Self::Minute,
            "h" => Self::Hour,
            "d" => Self::Day,
            "w" => Self::Week,
            "n" => Self::Month,
            "y" => Self::Year,
            _ => return None,
        })
    }

    /// Its nominal length: a month counts 30 days, a year 365.
    pub fn nominal_millis(self) -> i64 {
        const DAY: i64 = 86_400_000;
        match self {
            Self::Millisecond => 1,
            Self::Second => 1_000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        }
    }
}

/// How many microseconds before now a text means: `now`, or digits, one of `us ms s m h d w`, and `-ago`. Months and
/// years are refused, because their length would be a guess. `None` for a text that is of another kind.
///
/// # Errors
/// A sentence for the user, where the text ends in `-ago` and cannot be read.
pub fn micros_before_now(text: &str) -> Option<Result<i64, String>> {
    if text == NOW {
        return Some(Ok(0));
    }
    let stretch = text.strip_suffix(AGO)?;
    Some(stretch_micros(stretch).ok_or_else(|| format!("'{text}' is not a time; {EXPECTED}")))
}

/// Whether a text may hold a time that is relative to now: the quick look before the thorough one.
pub fn may_hold(text: &str) -> bool {
    text.contains(AGO) || text.contains("'now'")
}

fn stretch_micros(text: &str) -> Option<i64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let micros_each = match (unit, CalendarUnit::named(unit)) {
        ("us", _) => 1,
        (_, None | Some(CalendarUnit::Month | CalendarUnit::Year)) => return None,
        (_, Some(unit)) => unit.nominal_millis() * 1_000,
    };
    digits.parse::<i64>().ok()?.checked_mul(micros_each)
}
