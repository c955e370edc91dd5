//! The times that OpenTSDB reads, and the durations in them and in downsampling.

use chrono::{Days, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone};
use chrono_tz::Tz;
use telem_query::tsq::CalendarUnit;

/// A time of a query, in milliseconds since the epoch.
///
/// Seconds (to 10 digits) or milliseconds, `123ms`, `<10 digits>.<1 to 3 digits>`, `now`, `5m-ago`, `yyyy/MM/dd`, and
/// `yyyy/MM/dd-HH:mm[:ss]` with a blank or a hyphen between, in `zone`. `now` is the wall clock.
///
/// # Errors
/// Says what is wrong, close to OpenTSDB's words.
pub fn parse(text: &str, now_millis: i64, zone: Tz) -> Result<i64, String> {
    if let Some(digits) = text.strip_suffix("ms").filter(|digits| is_digits(digits)) {
        return digits.parse().map_err(|_| format!("Invalid time: {text}. The number is too large"));
    }
    let lower = text.to_lowercase();
    if lower == "now" {
        return Ok(now_millis);
    }
    if let Some(before) = lower.strip_suffix("-ago") {
        let before = duration(before)?;
        return Ok(now_millis.saturating_sub(before.millis));
    }
    if is_date(text) {
        return date(text, zone);
    }
    if let Some((seconds, fraction)) = text.split_once('.') {
        return dotted(seconds, fraction).ok_or_else(|| {
            format!(
                "Invalid time: {text}. Millisecond timestamps must be in the format <seconds>.<ms> where the \
                 milliseconds are limited to 3 digits"
            )
        });
    }
    let number: i64 = text.parse().map_err(|_| format!("Invalid time: {text}. It is not a number, date or 'now'"))?;
    if number < 0 {
        return Err(format!("Invalid time: {text}. It is negative"));
    }
    Ok(if text.len() <= 10 { number * 1_000 } else { number })
}

/// Whether `text` is a date, which needs a time zone.
pub fn is_date(text: &str) -> bool {
    text.contains(['/', ':'])
}

/// The zone of this name; without one UTC. Also the three letters that Java still knows.
///
/// # Errors
/// Says that there is none.
pub fn zone(name: Option<&str>) -> Result<Tz, String> {
    let Some(name) = name else { return Ok(Tz::UTC) };
    let known = SHORT_ZONES.iter().find(|(short, _)| *short == name).map_or(name, |(_, long)| *long);
    known.parse().map_err(|_| format!("Invalid timezone name: '{name}', expected one such as Europe/Paris"))
}

/// Names of zones that are not in the time zone database, but in Java.
const SHORT_ZONES: [(&str, &str); 25] = [
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
];

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Seconds of 10 digits and their fraction. OpenTSDB drops the dot, so that `1356998400.5` becomes
/// a time in 1970; here it is half a second.
fn dotted(seconds: &str, fraction: &str) -> Option<i64> {
    if seconds.len() != 10 || !is_digits(seconds) || fraction.len() > 3 || !is_digits(fraction) {
        return None;
    }
    format!("{seconds}{fraction:0<3}").parse().ok()
}

/// A date in `zone`. Where the clocks jump forward, a time that was skipped is an hour later; of a
/// time that came twice the second is meant, as in the original.
fn date(text: &str, zone: Tz) -> Result<i64, String> {
    let invalid = || format!("Invalid date: {text}. Expected yyyy/MM/dd, yyyy/MM/dd-HH:mm or yyyy/MM/dd-HH:mm:ss");
    let (day, time) = match text.len() {
        10 => (text, None),
        16 | 19 if text.is_char_boundary(10) => (&text[..10], text[10..].strip_prefix(['-', ' '])),
        _ => return Err(invalid()),
    };
    let day = NaiveDate::parse_from_str(day, "%Y/%m/%d").map_err(|_| invalid())?;
    let time = match (text.len(), time) {
        (10, _) => NaiveTime::MIN,
        (16, Some(time)) => NaiveTime::parse_from_str(time, "%H:%M").map_err(|_| invalid())?,
        (_, Some(time)) => NaiveTime::parse_from_str(time, "%H:%M:%S").map_err(|_| invalid())?,
        (_, None) => return Err(invalid()),
    };
    in_zone(day.and_time(time), zone).ok_or_else(invalid)
}

fn in_zone(local: NaiveDateTime, zone: Tz) -> Option<i64> {
    let found = zone.from_local_datetime(&local).latest();
    let found = found.or_else(|| zone.from_local_datetime(&local.checked_add_signed(TimeDelta::hours(1))?).earliest());
    // A zone that skipped a whole day, as Samoa did.
    let found = found.or_else(|| zone.from_local_datetime(&local.checked_add_days(Days::new(1))?).earliest());
    found.map(|time| time.timestamp_millis())
}

/// A duration such as `5m`: what it says, and its nominal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    pub count: i64,
    pub unit: CalendarUnit,
    /// A month counts 30 days, a year 365.
    pub millis: i64,
}

/// Leading digits, and the unit by the last letter: `ms s m h d w n y`, upper or lower case. What
/// stands between them is not looked at (`1.5m` is a minute), as in OpenTSDB.
///
/// # Errors
/// Says what is wrong, in OpenTSDB's words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == text.len() {
        return Err(format!("Invalid duration, must have an integer and unit: {text}"));
    }
    let count: i64 = text[..digits].parse().map_err(|_| format!("Invalid duration (number): {text}"))?;
    if count <= 0 {
        return Err(format!("Zero or negative duration: {text}"));
    }
    let lower = text[digits..].to_ascii_lowercase();
    let last = lower.char_indices().next_back().map_or("", |(at, _)| &lower[at..]);
    let name = if lower.ends_with("ms") { "ms" } else { last };
    let unit = CalendarUnit::named(name).ok_or_else(|| format!("Invalid duration (suffix): {text}"))?;
    let millis = count.checked_mul(unit.nominal_millis()).filter(|millis| millis.checked_mul(1_000).is_some());
    let millis = millis.ok_or_else(|| format!("Invalid duration (too long): {text}"))?;
    Ok(Duration { count, unit, millis })
}
