//! Messages of Metric Proxy's clients: JSON values with a zero byte behind each, over a Unix socket.
//!
//! A message is a job's description, the declaration of a counter or gauge, or a value of one. Values are nearly all of
//! them and all look alike, so [`scan_value`] finds name and number without parsing JSON; what it does not know goes to
//! [`parse`], which takes any JSON. Both agree where both understand a message. Clients send nothing else and are
//! answered nothing.

pub mod label;
mod split;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

pub use self::split::{MessagePiece, MessageSplitter};

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Longest name of a counter, with its labels, in bytes.
pub const COUNTER_NAME_BYTES_MAX: usize = 1_600;
/// Longest documentation of a counter, in bytes.
pub const COUNTER_DOC_BYTES_MAX: usize = 4 << 10;
/// Times of descriptions below this are in seconds, as older clients send them; others in milliseconds.
const SECONDS_MAX: u64 = 100_000_000_000;

/// What a name counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterKind {
    /// Its values are added.
    Counter,
    /// The last value counts.
    Gauge,
}

impl CounterKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// A job as a client describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DescribedJob {
    pub jobid: String,
    #[serde(default)]
    pub command: String,
    #[serde(default)]
    pub size: i32,
    #[serde(default)]
    pub nodelist: String,
    #[serde(default)]
    pub partition: String,
    #[serde(default)]
    pub cluster: String,
    #[serde(default)]
    pub run_dir: String,
    /// Milliseconds since 1970; 0 where it is not known.
    #[serde(default, deserialize_with = "milliseconds")]
    pub start_time: u64,
    #[serde(default, deserialize_with = "milliseconds")]
    pub end_time: u64,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum ProxyMessage<'a> {
    /// The connection belongs to this job from now on.
    Job(Box<DescribedJob>),
    /// A name, before its first value.
    Declaration { name: Cow<'a, str>, doc: Cow<'a, str>, kind: CounterKind, value: f64 },
    /// What is to be added to a counter, or a gauge's value.
    Value { name: Cow<'a, str>, kind: CounterKind, value: f64 },
}

/// A value whose name is not unescaped yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScannedValue<'a> {
    /// What stands between the quotes.
    pub raw_name: &'a [u8],
    pub kind: CounterKind,
    pub value: f64,
}

/// The value of a message that looks as the original's library writes it; `None` of any other.
pub fn scan_value(message: &[u8]) -> Option<ScannedValue<'_>> {
    let rest = message.strip_prefix(br#"{"Value":{"name":""#)?;
    let (raw_name, rest) = raw_string(rest)?;
    let rest = rest.strip_prefix(br#","value":{""#)?;
    if let Some(rest) = rest.strip_prefix(br#"Counter":{"ts":"#) {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 || digits > 19 || (digits > 1 && rest[0] == b'0') {
            return None;
        }
        let (value, rest) = number(rest[digits..].strip_prefix(br#","value":"#)?)?;
        return (rest == b"}}}}").then_some(ScannedValue { raw_name, kind: CounterKind::Counter, value });
    }
    let (_, rest) = number(rest.strip_prefix(br#"Gauge":{"min":"#)?)?;
    let (_, rest) = number(rest.strip_prefix(br#","max":"#)?)?;
    let (hits, rest) = number(rest.strip_prefix(br#","hits":"#)?)?;
    let (total, rest) = number(rest.strip_prefix(br#","total":"#)?)?;
    let value = average(hits, total);
    (rest == b"}}}}").then_some(ScannedValue { raw_name, kind: CounterKind::Gauge, value })
}

/// What a gauge is, of which `hits` values were set that are `total` together.
fn average(hits: f64, total: f64) -> f64 {
    // Most send one value, and dividing by one must not change it.
    if hits == 1.0 { total } else { total / hits }
}

/// The bytes up to the closing quote, and what comes behind it.
fn raw_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', &bytes[at..])?;
        if bytes[at] == b'"' {
            return Some((&bytes[..at], &bytes[at + 1..]));
        }
        // What it escapes is no end, whatever it is.
        at += 2;
        if at > bytes.len() {
            return None;
        }
    }
}

/// The text between quotes without its escapes, where these are of the kind that stands for what follows it; `None` where
/// there are others. `room` is where it is written, if there are any.
pub fn unescape<'a>(raw: &'a [u8], room: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let Some(first) = memchr::memchr(b'\\', raw) else { return Some(raw) };
    room.clear();
    room.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    while let [b'\\', escaped, behind @ ..] = rest {
        if !matches!(escaped, b'"' | b'\\' | b'/') {
            return None;
        }
        room.push(*escaped);
        let next = memchr::memchr(b'\\', behind).unwrap_or(behind.len());
        room.extend_from_slice(&behind[..next]);
        rest = &behind[next..];
    }
    rest.is_empty().then_some(room)
}

/// A number as JSON writes it, or `null` for one that JSON cannot write; and what comes behind it.
fn number(bytes: &[u8]) -> Option<(f64, &[u8])> {
    if let Some(rest) = bytes.strip_prefix(b"null") {
        return Some((f64::NAN, rest));
    }
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let length = bytes.iter().take_while(|byte| is_part(byte)).count();
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    // Rust takes more than JSON: `.5`, `+1`, `01` are left to the parser, which refuses them.
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_json = match digits {
        [b'0'] | [b'0', b'.' | b'e' | b'E', ..] | [b'1'..=b'9', ..] => !text.ends_with('.') && !text.contains(".e"),
        _ => false,
    };
    let value: f64 = is_json.then(|| text.parse().ok())??;
    // A number too large for a float is an error of the parser.
    value.is_finite().then_some((value, &bytes[length..]))
}

/// Any message.
///
/// # Errors
/// What is wrong with the JSON, in a sentence.
pub fn parse(message: &[u8]) -> Result<ProxyMessage<'_>, String> {
    let message: WireMessage<'_> = serde_json::from_slice(message).map_err(|error| error.to_string())?;
    Ok(match message {
        WireMessage::JobDesc(job) => ProxyMessage::Job(job),
        WireMessage::Desc(WireDeclaration { name, doc, ctype }) => {
            let (kind, value) = ctype.meaning();
            // A gauge without values has none yet.
            let value = if kind == CounterKind::Gauge && ctype.is_empty() { f64::NAN } else { value };
            ProxyMessage::Declaration { name, doc, kind, value }
        }
        WireMessage::Value(WireValue { name, value }) => {
            let (kind, value) = value.meaning();
            ProxyMessage::Value { name, kind, value }
        }
    })
}

#[derive(Deserialize)]
enum WireMessage<'a> {
    JobDesc(Box<DescribedJob>),
    #[serde(borrow)]
    Desc(WireDeclaration<'a>),
    #[serde(borrow)]
    Value(WireValue<'a>),
}

#[derive(Deserialize)]
struct WireDeclaration<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    doc: Cow<'a, str>,
    ctype: WireNumbers,
}

#[derive(Deserialize)]
struct WireValue<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    value: WireNumbers,
}

#[derive(Clone, Copy, Deserialize)]
enum WireNumbers {
    Counter {
        #[serde(deserialize_with = "number_or_null")]
        value: f64,
    },
    Gauge {
        #[serde(deserialize_with = "number_or_null")]
        #[allow(dead_code, reason = "a message without it is refused")]
        min: f64,
        #[serde(deserialize_with = "number_or_null")]
        #[allow(dead_code, reason = "a message without it is refused")]
        max: f64,
        #[serde(deserialize_with = "number_or_null")]
        hits: f64,
        #[serde(deserialize_with = "number_or_null")]
        total: f64,
    },
}

impl WireNumbers {
    fn meaning(self) -> (CounterKind, f64) {
        match self {
            Self::Counter { value } => (CounterKind::Counter, value),
            Self::Gauge { hits, total, .. } => (CounterKind::Gauge, average(hits, total)),
        }
    }

    fn is_empty(self) -> bool {
        matches!(self, Self::Gauge { hits, .. } if hits == 0.0)
    }
}

fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::deserialize(from).map(in_milliseconds)
}

/// A time of a description in milliseconds since 1970, as which only newer clients send it.
pub fn in_milliseconds(time: u64) -> u64 {
    if time < SECONDS_MAX { time.saturating_mul(1_000) } else { time }
}

#[cfg(test)]
mod tests;
