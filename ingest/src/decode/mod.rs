//! The decoders, one file per wire format: they turn bytes into samples, without I/O.

mod digits;
pub mod dragon;
pub mod exposition;
pub mod frames;
pub mod lenient;
pub mod line;
pub mod opentsdb;
pub mod proxy;
pub(crate) mod words;

use std::borrow::Cow;

use telem_engine::{Timestamp, Value};

/// A sample as a wire format brought it: names unchecked, tags in any order.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming<'a> {
    pub metric: Cow<'a, str>,
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub time: Timestamp,
    pub value: Value,
}
