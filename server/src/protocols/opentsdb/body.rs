//! The JSON of requests, read as OpenTSDB reads it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::errors::OpenTsdbError;

/// A list of which `MOST` elements are kept and the rest is not looked at. With one more than is allowed
/// it shows whether too many were sent, at no cost for how many.
#[derive(Clone, Debug, Default)]
pub struct AtMost<T, const MOST: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

struct AtMostVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMostVisitor<T, MOST> {
    type Value = AtMost<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            match array.next_element()? {
                Some(element) => kept.push(element),
                None => return Ok(AtMost(kept)),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(AtMost(kept))
    }
}

/// Reads JSON as OpenTSDB does: anything behind it is ignored, and an array is not an object.
///
/// # Errors
/// 400 with the position and what was found.
pub fn from_json<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, OpenTsdbError> {
    if !body.trim_start().starts_with('{') {
        let found: String = body.trim().chars().take(16).collect();
        return Err(OpenTsdbError::not_json(format!("found '{found}', expected an object")));
    }
    let mut json = serde_json::Deserializer::from_str(body);
    T::deserialize(&mut json).map_err(|error| OpenTsdbError::not_json(error.to_string()))
}
