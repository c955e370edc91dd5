//! Serialises the engine's types, which do not know about wire formats: times as microseconds, series as their names.
//! Input is validated as if a user had written it.

use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use telem_engine::{SeriesKey, Step, TimeRange, Timestamp, ValueRange};

use super::tags::{decode_tags, encode_tags};

pub(crate) mod timestamp {
    use super::*;

    pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        time.micros().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        i64::deserialize(from).map(Timestamp::from_micros)
    }
}

pub(crate) mod range {
    use super::*;

    pub fn serialize<S: Serializer>(range: &TimeRange, to: S) -> Result<S::Ok, S::Error> {
        (range.start.micros(), range.end.micros()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TimeRange, D::Error> {
        let (start, end) = <(i64, i64)>::deserialize(from)?;
        Ok(TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end)))
    }
}

pub(crate) mod values {
    use super::*;

    /// By the bits of both ends: JSON has no NaN.
    pub fn serialize<S: Serializer>(values: &ValueRange, to: S) -> Result<S::Ok, S::Error> {
        let (least, greatest) = values.bounds();
        (least.to_bits(), greatest.to_bits()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ValueRange, D::Error> {
        let (least, greatest) = <(u64, u64)>::deserialize(from)?;
        let end = |bits| Bound::Included(f64::from_bits(bits));
        Ok(ValueRange::new(end(least), end(greatest)))
    }
}

pub(crate) mod step {
    use super::*;

    pub fn serialize<S: Serializer>(step: &Step, to: S) -> Result<S::Ok, S::Error> {
        step.micros().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Step, D::Error> {
        let micros = i64::deserialize(from)?;
        Step::from_micros(micros).ok_or_else(|| de::Error::custom(format!("a step of {micros} us")))
    }
}

pub(crate) mod zone {
    use chrono_tz::Tz;

    use super::*;

    pub fn serialize<S: Serializer>(zone: &Tz, to: S) -> Result<S::Ok, S::Error> {
        zone.name().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tz, D::Error> {
        let name = String::deserialize(from)?;
        name.parse().map_err(|_| de::Error::custom(format!("there is no time zone '{name}'")))
    }
}

/// A series as its metric and its tags.
type NamedSeries = (String, String);

fn named(keys: &[SeriesKey]) -> Vec<NamedSeries> {
    keys.iter().map(|key| (key.metric().to_owned(), encode_tags(key.tags()))).collect()
}

fn keys_of<E: de::Error>(named: Vec<NamedSeries>) -> Result<Vec<SeriesKey>, E> {
    let key = |(metric, tags): NamedSeries| {
        let tags = decode_tags(&tags).map_err(E::custom)?;
        SeriesKey::new(&metric, tags).map_err(E::custom)
    };
    named.into_iter().map(key).collect()
}

pub(crate) mod keys {
    use super::*;

    pub fn serialize<S: Serializer>(keys: &[SeriesKey], to: S) -> Result<S::Ok, S::Error> {
        named(keys).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SeriesKey>, D::Error> {
        keys_of(Vec::<NamedSeries>::deserialize(from)?)
    }
}

pub(crate) mod series {
    use super::*;

    pub fn serialize<S: Serializer>(series: &Option<Vec<SeriesKey>>, to: S) -> Result<S::Ok, S::Error> {
        series.as_deref().map(named).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<SeriesKey>>, D::Error> {
        Option::<Vec<NamedSeries>>::deserialize(from)?.map(keys_of).transpose()
    }
}

/// What is shared by many leaves is written with each.
pub(crate) mod shared {
    use super::*;

    pub fn serialize<S: Serializer, T: Serialize>(shared: &Arc<T>, to: S) -> Result<S::Ok, S::Error> {
        shared.as_ref().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Arc<T>, D::Error> {
        T::deserialize(from).map(Arc::new)
    }
}
