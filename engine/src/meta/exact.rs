//! JSON whose floats are read back exactly as they were written.
//!
//! serde_json parses floats by a fast method that may miss the nearest float by one bit, so a number that is read,
//! written and read again could drift. It has an exact method as a feature, which would then apply to every crate of
//! the build. This module is for the one place that stores users' numbers in JSON. The price, paid at an open, is that
//! each level of the document is scanned once more.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Number, Value};

/// Objects and lists in each other at most: as many as serde_json takes, less the one around the job.
const DEPTH_MAX: usize = 126;

/// For `deserialize_with`.
///
/// # Errors
/// As serde_json has them for a [`Value`].
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    let raw = Box::<RawValue>::deserialize(from)?;
    value(raw.get(), 0).map_err(D::Error::custom)
}

/// As [`deserialize`], for what many share.
///
/// # Errors
/// As [`deserialize`].
pub fn deserialize_shared<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Value>, D::Error> {
    deserialize(from).map(Arc::new)
}

/// For `serialize_with`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize_shared<S: Serializer>(shared: &Arc<Value>, to: S) -> Result<S::Ok, S::Error> {
    shared.as_ref().serialize(to)
}

/// As [`deserialize`], for what may be null.
///
/// # Errors
/// As [`deserialize`].
pub fn deserialize_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(from)?;
    raw.map(|raw| value(raw.get(), 0)).transpose().map_err(D::Error::custom)
}

fn value(text: &str, depth: usize) -> Result<Value, Error> {
    let opens = text.as_bytes().first();
    if depth >= DEPTH_MAX && matches!(opens, Some(b'{' | b'[')) {
        return Err(Error::custom("recursion limit exceeded"));
    }
    match opens {
        Some(b'{') => {
            let JsonFields(fields) = serde_json::from_str(text)?;
            let fields = fields.into_iter().map(|(name, raw)| Ok((name, value(raw.get(), depth + 1)?)));
            Ok(Value::Object(fields.collect::<Result<Map<_, _>, Error>>()?))
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            let items = items.into_iter().map(|raw| value(raw.get(), depth + 1));
            Ok(Value::Array(items.collect::<Result<_, Error>>()?))
        }
        _ => scalar(text),
    }
}

fn scalar(text: &str) -> Result<Value, Error> {
    let read: Value = serde_json::from_str(text)?;
    if !read.is_f64() {
        return Ok(read);
    }
    // The standard library finds the nearest, and takes every number of JSON.
    let exact = text.parse().ok().and_then(Number::from_f64);
    Ok(exact.map_or(read, Value::Number))
}

/// In their order; of two with one name the later counts, as in a [`Value`].
struct JsonFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for JsonFields<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = JsonFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonFields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(JsonFields(fields))
            }
        }

        from.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests;
