//! The body that Dragon's `Telemetry` class posts: `{"timestamp": 1733466126, "dps": [{"metric": "loss", "value": 0.5,
//! "tags": {"rank": 3}}]}`, with one timestamp for all of its points, or none.
//!
//! Dragon stores whatever comes. Here a value must be a number in the end: texts that look like one are that number,
//! `true` and `false` are 1 and 0, and everything else is refused with a reason. A tag's value is a text, or a number
//! or truth value, of which the text is taken as it was sent; a tag with the value null is left out.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use telem_engine::{Timestamp, Value};

use super::Incoming;
use super::opentsdb::NonFinite;
use super::opentsdb::number;

/// A whole number beyond it is no time in seconds but one in milliseconds, as everywhere in OpenTSDB's world.
const SECONDS_MAX: i64 = u32::MAX as i64;
/// How much of a wrong value an error shows, in characters.
const SHOWN_MAX: usize = 64;

/// Why nothing of a body can be used.
#[derive(Debug, thiserror::Error)]
pub enum DragonBodyError {
    #[error(
        "the body is no JSON object of the form {{\"dps\": [{{\"metric\", \"value\", \"tags\"}}], \"timestamp\"}}: {0}"
    )]
    NotJson(#[source] serde_json::Error),
    /// Dragon's own words for it.
    #[error("'dps'")]
    NoPoints,
    #[error("the timestamp is {found}: expected seconds since 1970, with or without a fraction")]
    BadTime { found: String },
}

/// Why one point cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DragonPointError {
    #[error("a point is {found}: expected an object with 'metric' and 'value'")]
    NotAnObject { found: String },
    /// Dragon's own words for it.
    #[error("'metric'")]
    NoMetric,
    #[error("the metric is {found}: expected a text")]
    BadMetric { found: String },
    /// Dragon's own words for it.
    #[error("'value'")]
    NoValue,
    #[error("the value of {metric} is null: expected a number")]
    NullValue { metric: String },
    #[error("the value of {metric} is {found}: expected a number")]
    BadValue { metric: String, found: String },
    #[error("the value of {metric} is not finite: expected a number that 64 bits can hold")]
    NotFinite { metric: String },
    #[error("the tags of {metric} are {found}: expected an object such as {{\"rank\": 3}}")]
    BadTags { metric: String, found: String },
    #[error("the tag {tag} of {metric} is {found}: expected a text or a number")]
    BadTag { metric: String, tag: String, found: String },
}

impl DragonPointError {
    /// The same for all points that are refused for the same reason.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotAnObject { .. } => "no object",
            Self::NoMetric => "no metric",
            Self::BadMetric { .. } => "metric",
            Self::NoValue => "no value",
            Self::NullValue { .. } => "null",
            Self::BadValue { .. } => "value",
            Self::NotFinite { .. } => "not finite",
            Self::BadTags { .. } => "tags",
            Self::BadTag { .. } => "tag",
        }
    }
}

/// When the points of a body were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DragonTime {
    /// The body does not say.
    Unsaid,
    /// The whole second in which they were taken, as the class stamps them: several points of a series share it.
    Second(i64),
    /// A moment that the caller gave.
    Moment(Timestamp),
}

/// One point, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct DragonPoint {
    pub metric: String,
    pub tags: Vec<(String, String)>,
    pub value: Value,
}

impl DragonPoint {
    pub fn at(&self, time: Timestamp) -> Incoming<'_> {
        let tags = self.tags.iter().map(|(key, value)| (Cow::from(&**key), Cow::from(&**value)));
        Incoming { metric: Cow::from(&*self.metric), tags: tags.collect(), time, value: self.value }
    }
}

/// A body whose points are not looked at yet.
#[derive(Debug)]
pub struct DragonBody<'a> {
    pub time: DragonTime,
    points: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawDragonBody<'a> {
    #[serde(borrow, default)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dps: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct RawDragonPoint<'a> {
    #[serde(borrow, default)]
    metric: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tags: Option<&'a RawValue>,
}

/// As it is there, null included.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> DragonBody<'a> {
    /// # Errors
    /// Where nothing of it can be used.
    pub fn parse(body: &'a [u8]) -> Result<Self, DragonBodyError> {
        let is_object = body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        // Else a list would be taken for the fields in their order.
        let read = match is_object {
            true => serde_json::from_slice(body),
            false => Err(serde::de::Error::custom("it is no object")),
        };
        let RawDragonBody { timestamp, dps } = read.map_err(DragonBodyError::NotJson)?;
        let points = dps.ok_or(DragonBodyError::NoPoints)?;
        Ok(Self { time: timestamp.map_or(Ok(DragonTime::Unsaid), time)?, points })
    }

    pub fn len(&self) -> usize {
        self.points.len()
    }

    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Its points in their order.
    pub fn points(&self) -> impl Iterator<Item = Result<DragonPoint, DragonPointError>> + '_ {
        self.points.iter().map(|raw| point(raw.get()))
    }
}

/// A time as JSON has it; a text that holds a number is that number.
fn time(raw: &RawValue) -> Result<DragonTime, DragonBodyError> {
    let bad = || DragonBodyError::BadTime { found: shown(raw.get()) };
    let text = match raw.get().as_bytes().first() {
        Some(b'"') => Cow::from(text(raw.get()).ok_or_else(bad)?),
        Some(b'-' | b'0'..=b'9') => Cow::from(raw.get()),
        _ => return Err(bad()),
    };
    let whole = match number::parse(text.trim(), NonFinite::Refuse).map_err(|_| bad())? {
        Value::Int(whole) => whole,
        Value::Float(seconds) if seconds.fract() == 0.0 && seconds.abs() <= SECONDS_MAX as f64 => seconds as i64,
        Value::Float(seconds) => {
            let micros = (seconds * 1e6).round();
            if micros.abs() >= 9.2e18 {
                return Err(bad());
            }
            return Ok(DragonTime::Moment(Timestamp::from_micros(micros as i64)));
        }
    };
    Ok(if whole > SECONDS_MAX {
        DragonTime::Moment(Timestamp::from_millis(whole))
    } else if whole.checked_mul(1_000_000).is_some() {
        DragonTime::Second(whole)
    } else {
        return Err(bad());
    })
}

fn point(raw: &str) -> Result<DragonPoint, DragonPointError> {
    let not_an_object = || DragonPointError::NotAnObject { found: shown(raw) };
    if !raw.starts_with('{') {
        return Err(not_an_object());
    }
    let RawDragonPoint { metric, value, tags } = serde_json::from_str(raw).map_err(|_| not_an_object())?;
    let metric = metric.ok_or(DragonPointError::NoMetric)?.get();
    let metric = text(metric).ok_or_else(|| DragonPointError::BadMetric { found: shown(metric) })?;
    let value = self::value(&metric, value.ok_or(DragonPointError::NoValue)?.get())?;
    let tags = match tags {
        Some(tags) => self::tags(&metric, tags.get())?,
        None => Vec::new(),
    };
    Ok(DragonPoint { metric, tags, value })
}

fn value(metric: &str, raw: &str) -> Result<Value, DragonPointError> {
    let bad = || DragonPointError::BadValue { metric: shown(metric), found: shown(raw) };
    let number = match raw.as_bytes().first() {
        Some(b't') => return Ok(Value::Int(1)),
        Some(b'f') => return Ok(Value::Int(0)),
        Some(b'n') => return Err(DragonPointError::NullValue { metric: shown(metric) }),
        Some(b'"') => Cow::from(text(raw).ok_or_else(bad)?),
        Some(b'-' | b'0'..=b'9') => Cow::from(raw),
        _ => return Err(bad()),
    };
    let number = number.trim();
    match number::parse(number, NonFinite::Refuse) {
        Ok(value) => Ok(value),
        Err(number::NumberError::NotFinite { .. }) => Err(DragonPointError::NotFinite { metric: shown(metric) }),
        // An integer beyond 64 bits, as Python has them.
        Err(number::NumberError::NotANumber) if is_digits(number) => match number.parse::<f64>() {
            Ok(float) if float.is_finite() => Ok(Value::Float(float)),
            _ => Err(DragonPointError::NotFinite { metric: shown(metric) }),
        },
        Err(number::NumberError::NotANumber) => Err(bad()),
    }
}

fn is_digits(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The tags of a point in their order; a key that is there twice stays, for whoever checks names.
struct DragonTags<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for DragonTags<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DragonTagsVisitor;
        impl<'de> Visitor<'de> for DragonTagsVisitor {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tags")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut tags = Vec::new();
                while let Some(tag) = map.next_entry()? {
                    tags.push(tag);
                }
                Ok(tags)
            }
        }
        deserializer.deserialize_map(DragonTagsVisitor).map(Self)
    }
}

fn tags(metric: &str, raw: &str) -> Result<Vec<(String, String)>, DragonPointError> {
    let bad = || DragonPointError::BadTags { metric: shown(metric), found: shown(raw) };
    let DragonTags(sent) = serde_json::from_str(raw).map_err(|_| bad())?;
    let mut tags = Vec::with_capacity(sent.len());
    for (key, value) in sent {
        let raw = value.get();
        let value = match raw.as_bytes().first() {
            Some(b'n') => continue,
            Some(b'"') => text(raw),
            Some(b't' | b'f' | b'-' | b'0'..=b'9') => Some(raw.to_owned()),
            _ => None,
        };
        let Some(value) = value else {
            return Err(DragonPointError::BadTag { metric: shown(metric), tag: shown(&key), found: shown(raw) });
        };
        tags.push((key, value));
    }
    Ok(tags)
}

/// The text that JSON means; `None` where it is no text.
fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// As much as an error shows.
fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(SHOWN_MAX).map(plain).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests;
