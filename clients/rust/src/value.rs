//! Numbers that are logged, values of answers, times.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A value of a sample: an integer of 64 bits or a float.
///
/// Made of any number by `into()`. A natural number beyond 63 bits becomes a float.
///
/// ```
/// use telem_client::Number;
///
/// assert_eq!(Number::from(7_usize), Number::Int(7));
/// assert_eq!(Number::from(0.5_f32), Number::Float(0.5));
/// assert_eq!(Number::from(u64::MAX), Number::Float(18_446_744_073_709_551_616.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Kept as it is.
    Int(i64),
    /// Kept bit for bit.
    Float(f64),
}

macro_rules! number {
    ($variant:ident: $($from:ty),+) => {
        $(impl From<$from> for Number {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })+
    };
}

number!(Int: i8, i16, i32, i64, u8, u16, u32);
number!(Float: f32, f64);

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Float(value as f64), Self::Int)
    }
}

impl From<usize> for Number {
    fn from(value: usize) -> Self {
        (value as u64).into()
    }
}

impl From<isize> for Number {
    fn from(value: isize) -> Self {
        Self::Int(value as i64)
    }
}

/// A time, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

impl From<SystemTime> for Micros {
    fn from(time: SystemTime) -> Self {
        let whole = |since: Duration| i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self(whole(since)),
            Err(before) => Self(-whole(before.duration())),
        }
    }
}

impl From<Micros> for SystemTime {
    fn from(time: Micros) -> Self {
        let since = Duration::from_micros(time.0.unsigned_abs());
        if time.0 < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since }
    }
}

/// A value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A natural number.
    UInt(u64),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
    /// A time.
    Time(Micros),
}

impl Value {
    /// As a number: integers are rounded to the nearest float; `None` for anything but numbers.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::UInt(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Null | Self::Bool(_) | Self::Text(_) | Self::Time(_) => None,
        }
    }

    /// As an integer; `None` for floats, and for natural numbers that are too large.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            Self::UInt(value) => i64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// As a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    /// As a text.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(value) = self { Some(value) } else { None }
    }

    /// As a time.
    pub fn as_time(&self) -> Option<Micros> {
        if let Self::Time(value) = self { Some(*value) } else { None }
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        *self == Self::Null
    }
}

impl Display for Value {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => to.write_str("NULL"),
            Self::Bool(value) => value.fmt(to),
            Self::Int(value) => value.fmt(to),
            Self::UInt(value) => value.fmt(to),
            Self::Float(value) => value.fmt(to),
            Self::Text(value) => value.fmt(to),
            Self::Time(Micros(value)) => value.fmt(to),
        }
    }
}
