//! Reads put bodies in the form that most senders write, in one pass and without building anything.
//!
//! The scanner knows a part of what `/api/put` accepts: one object or an array of objects, each with exactly metric,
//! timestamp, value and tags, names without escapes, whole timestamps, and plain numbers. Its result is what
//! [`super::with_points`] would return. For any other body it reports that the body is unusual, and the caller starts
//! again with that function.

use telem_engine::{Timestamp, Value};

use super::{DataPoint, PutRules, number, time};
use crate::decode::Incoming;
use crate::decode::digits::Decimal;
use crate::decode::lenient::{Text, TextMap};
use crate::decode::words::starts_with;

/// Names that were seen before. An answer is the length of what `rest` starts with, and is believed: it must be a text
/// that scanning found before in the same place.
pub trait PointForesight {
    /// A new data point begins.
    fn begin(&mut self);
    /// A metric, in quotes.
    fn metric(&mut self, rest: &[u8]) -> Option<usize>;
    /// An object of tags.
    fn tags(&mut self, rest: &[u8]) -> Option<usize>;
}

/// A data point whose names are raw JSON.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawPoint<'a> {
    /// A string, quotes included.
    pub metric: &'a [u8],
    /// An object.
    pub tags: &'a [u8],
    pub time: Timestamp,
    pub value: Value,
}

/// What comes next in a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next<'a> {
    Point(RawPoint<'a>),
    End,
    /// Nothing that is known here.
    Unusual,
}

/// Reads a body point by point.
#[derive(Clone, Debug)]
pub struct PointScan<'a> {
    body: &'a [u8],
    at: usize,
    rules: PutRules,
    state: ScanState,
    /// The last timestamp as it was sent, and what it means: points of a tick have one.
    last_time: Option<(&'a [u8], Timestamp)>,
    /// Of the last point.
    shape: Option<Box<PointShape<'a>>>,
}

/// The members of a point in their order, each with all that stands between it and what is before it, and what stands
/// behind the last. A sender writes all of its points in one shape.
#[derive(Clone, Copy, Debug)]
struct PointShape<'a> {
    members: [(Literal<'a>, PointMember); MEMBERS],
    end: Literal<'a>,
}

const MEMBERS: usize = 4;

/// A short text that is expected: compared as one word, where that many bytes are left.
#[derive(Clone, Copy, Debug)]
struct Literal<'a> {
    text: &'a [u8],
    /// Its bytes, and which of them count: none of a text that is longer.
    word: u128,
    mask: u128,
}

impl<'a> Literal<'a> {
    fn new(text: &'a [u8]) -> Self {
        let (mut word, mut mask) = ([0; size_of::<u128>()], [0; size_of::<u128>()]);
        if let Some(room) = word.get_mut(..text.len()) {
            room.copy_from_slice(text);
            mask[..text.len()].fill(u8::MAX);
        }
        Self { text, word: u128::from_le_bytes(word), mask: u128::from_le_bytes(mask) }
    }

    #[inline(always)]
    fn begins(&self, rest: &[u8]) -> bool {
        match rest.first_chunk() {
            Some(head) if self.mask != 0 => (u128::from_le_bytes(*head) ^ self.word) & self.mask == 0,
            _ => rest.starts_with(self.text),
        }
    }
}

/// What a data point has.
#[derive(Clone, Copy, Debug)]
enum PointMember {
    Metric,
    Timestamp,
    Value,
    Tags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// Before the body.
    Start,
    /// Behind a point of an array.
    Between,
    End,
}

impl<'a> PointScan<'a> {
    pub fn new(body: &'a [u8], rules: &PutRules) -> Self {
        Self { body, at: 0, rules: *rules, state: ScanState::Start, last_time: None, shape: None }
    }

    pub fn next(&mut self, foresight: &mut impl PointForesight) -> Next<'a> {
        self.advance(foresight).unwrap_or(Next::Unusual)
    }

    /// `None` for what is unusual.
    fn advance(&mut self, foresight: &mut impl PointForesight) -> Option<Next<'a>> {
        if self.state == ScanState::End {
            return Some(Next::End);
        }
        self.skip_blanks();
        match (self.state, self.peek()?) {
            (ScanState::Start, b'{') => {
                self.state = ScanState::End;
                return self.point(foresight).map(Next::Point);
            }
            (ScanState::Start, b'[') | (ScanState::Between, b',') => self.at += 1,
            (ScanState::Between, b']') => {
                self.state = ScanState::End;
                return Some(Next::End);
            }
            _ => return None,
        }
        self.state = ScanState::Between;
        self.skip_blanks();
        self.point(foresight).map(Next::Point)
    }

    fn point(&mut self, foresight: &mut impl PointForesight) -> Option<RawPoint<'a>> {
        let start = self.at;
        if let Some(shape) = self.shape.take() {
            let point = self.point_like(&shape, foresight);
            self.shape = Some(shape);
            if point.is_some() {
                return point;
            }
            self.at = start;
        }
        self.any_point(foresight)
    }

    /// A point of this shape. What is between its members is known, and so not read.
    fn point_like(&mut self, shape: &PointShape<'a>, foresight: &mut impl PointForesight) -> Option<RawPoint<'a>> {
        foresight.begin();
        // Each is among the members once.
        let nothing = &self.body[..0];
        let mut point = RawPoint { metric: nothing, tags: nothing, time: Timestamp::MIN, value: Value::Int(0) };
        for (before, member) in &shape.members {
            self.expect_all(before)?;
            match member {
                PointMember::Metric => point.metric = self.metric(foresight)?,
                PointMember::Timestamp => point.time = self.timestamp()?,
                PointMember::Value => point.value = self.value()?,
                PointMember::Tags => point.tags = self.tags(foresight)?,
            }
        }
        self.expect_all(&shape.end)?;
        Some(point)
    }

    fn any_point(&mut self, foresight: &mut impl PointForesight) -> Option<RawPoint<'a>> {
        foresight.begin();
        let (mut metric, mut tags, mut timestamp, mut value) = (None, None, None, None);
        let (mut members, mut known) = ([(Literal::new(b""), PointMember::Metric); MEMBERS], 0);
        let mut end = self.at;
        self.expect(b'{')?;
        loop {
            self.skip_blanks();
            let member = self.member()?;
            self.skip_blanks();
            self.expect(b':')?;
            self.skip_blanks();
            // Of five one comes twice.
            *members.get_mut(known)? = (Literal::new(&self.body[end..self.at]), member);
            known += 1;
            // Of equal keys the last counts; they are unusual.
            let before = match member {
                PointMember::Metric => metric.replace(self.metric(foresight)?).is_some(),
                PointMember::Timestamp => timestamp.replace(self.timestamp()?).is_some(),
                PointMember::Value => value.replace(self.value()?).is_some(),
                PointMember::Tags => tags.replace(self.tags(foresight)?).is_some(),
            };
            if before {
                return None;
            }
            end = self.at;
            self.skip_blanks();
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        let point = RawPoint { metric: metric?, tags: tags?, time: timestamp?, value: value? };
        self.shape = Some(Box::new(PointShape { members, end: Literal::new(&self.body[end..self.at]) }));
        Some(point)
    }

    /// Compared at once with each that there is: the compiler makes words of these.
    fn member(&mut self) -> Option<PointMember> {
        let rest = &self.body[self.at..];
        let (member, len) = if rest.starts_with(b"\"metric\"") {
            (PointMember::Metric, b"\"metric\"".len())
        } else if rest.starts_with(b"\"timestamp\"") {
            (PointMember::Timestamp, b"\"timestamp\"".len())
        } else if rest.starts_with(b"\"value\"") {
            (PointMember::Value, b"\"value\"".len())
        } else if rest.starts_with(b"\"tags\"") {
            (PointMember::Tags, b"\"tags\"".len())
        } else {
            return None;
        };
        self.at += len;
        Some(member)
    }

    fn metric(&mut self, foresight: &mut impl PointForesight) -> Option<&'a [u8]> {
        let start = self.at;
        match foresight.metric(&self.body[start..]) {
            Some(len) => self.at += len,
            None => {
                self.string()?;
            }
        }
        Some(&self.body[start..self.at])
    }

    fn tags(&mut self, foresight: &mut impl PointForesight) -> Option<&'a [u8]> {
        let start = self.at;
        if let Some(len) = foresight.tags(&self.body[start..]) {
            self.at += len;
            return Some(&self.body[start..self.at]);
        }
        self.expect(b'{')?;
        // Its entries are read by the caller, if it does not know them yet.
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                }
                b'}' => {
                    self.at += 1;
                    return Some(&self.body[start..self.at]);
                }
                b'{' | b'[' => return None,
                _ => self.at += 1,
            }
        }
    }

    /// A string without escapes, quotes included.
    fn string(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.expect(b'"')?;
        let end = self.body[self.at..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))?;
        self.at += end;
        self.expect(b'"')?;
        Some(&self.body[start..self.at])
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        let rest = &self.body[self.at..];
        if let Some((text, time)) = self.last_time
            && starts_with(rest, text)
            && !matches!(rest.get(text.len()), Some(b'0'..=b'9' | b'.'))
        {
            self.at += text.len();
            return Some(time);
        }
        let decimal = Decimal::read(rest);
        if !is_json(rest, &decimal) {
            return None;
        }
        self.at += decimal.len;
        let time = time(decimal.int().filter(|timestamp| *timestamp > 0)?, self.rules.precision)?;
        self.last_time = Some((&rest[..decimal.len], time));
        Some(time)
    }

    fn value(&mut self) -> Option<Value> {
        let rest = &self.body[self.at..];
        if rest.first() == Some(&b'"') {
            let quoted = self.string()?;
            let text = std::str::from_utf8(quoted.get(1..quoted.len() - 1)?).ok()?;
            return number::parse(text, self.rules.non_finite).ok();
        }
        let decimal = Decimal::read(rest);
        if !is_json(rest, &decimal) {
            return None;
        }
        self.at += decimal.len;
        let simple = if decimal.point { decimal.float().map(Value::Float) } else { decimal.int().map(Value::Int) };
        let exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if let Some(value) = simple.filter(|_| !exponent) {
            return Some(value);
        }
        if exponent {
            self.exponent()?;
        }
        let text = std::str::from_utf8(&rest[..rest.len() - (self.body.len() - self.at)]).ok()?;
        number::parse(text, self.rules.non_finite).ok()
    }

    fn exponent(&mut self) -> Option<()> {
        self.at += 1;
        if matches!(self.peek(), Some(b'+' | b'-')) {
            self.at += 1;
        }
        let digits = self.body[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    #[inline(always)]
    fn expect_all(&mut self, literal: &Literal<'_>) -> Option<()> {
        literal.begins(&self.body[self.at..]).then(|| self.at += literal.text.len())
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }
}

/// Whether JSON writes numbers so: no zero in front of digits, digits before and behind a point.
fn is_json(rest: &[u8], decimal: &Decimal) -> bool {
    let whole = decimal.digits - decimal.fraction;
    let first = rest.get(usize::from(decimal.negative));
    (whole == 1 || (whole > 1 && first != Some(&b'0'))) && (!decimal.point || decimal.fraction > 0)
}

impl RawPoint<'_> {
    /// Reads the names and hands the sample to `take`. `None` where something is wrong with it.
    pub fn with_sample<R>(&self, rules: &PutRules, take: impl FnOnce(Incoming<'_>) -> Option<R>) -> Option<R> {
        let Text(metric) = serde_json::from_slice(self.metric).ok()?;
        let tags: TextMap<'_> = serde_json::from_slice(self.tags).ok()?;
        // Any timestamp and value will do: these two are good, and read already.
        let point = DataPoint { metric, timestamp: 1, value: Some("0".into()), tags: Some(tags) };
        let sample = point.sample(rules).ok()?;
        take(Incoming { time: self.time, value: self.value, ..sample })
    }
}
