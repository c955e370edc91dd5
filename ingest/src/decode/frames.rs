//! The client protocol: frames of names and of columns, as docs/format/client.md has them.
//!
//! Nothing is copied: a decoded frame is slices of its bytes, and numbers become numbers when they are taken. Every
//! length is held against the bytes that are there before anything is made of it.

#[cfg(test)]
mod tests;

use telem_engine::{MetricKind, Timestamp, Value, ValueType};

/// What a client sends first; then come version and flags.
pub const MAGIC: [u8; 4] = [0xF7, b'T', b'L', b'M'];
/// The version that is spoken here.
pub const VERSION: u16 = 1;
/// Bytes of an opening.
pub const OPENING_BYTES: usize = 8;
/// Bytes of the head of a frame.
pub const HEAD_BYTES: usize = 8;
/// Longest body of a frame from a client.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Highest level of a series.
pub const LEVEL_MAX: u8 = 4;

/// Fewest bytes of a series in a frame: all of its texts are empty, and it has no tag.
const SERIES_BYTES_MIN: usize = 1 + 1 + 2 + 2 + 2 + 2;

/// Types of frames from a client.
pub mod kind {
    pub const SERIES: u8 = 1;
    pub const SAMPLES: u8 = 2;
    pub const TALLY: u8 = 3;
    pub const NOTE: u8 = 4;
    pub const SETTING: u8 = 5;
    pub const FLUSH: u8 = 6;
    pub const QUERY: u8 = 7;
}

/// Why bytes are no frame. What follows them cannot be understood either.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the first bytes are {found:02x?}; this protocol begins with {MAGIC:02x?}")]
    Magic { found: [u8; 4] },
    #[error("the client speaks version {found}; this service speaks 1 to {VERSION}")]
    Version { found: u16 },
    #[error("the flags of the opening are {found:#x}; expected 0")]
    Flags { found: u16 },
    #[error("a frame of type {kind} has {found} bytes; at most {BODY_BYTES_MAX} are taken: send it in parts")]
    TooLong { kind: u8, found: u32 },
    #[error("no frame has type {found}; there are 1 to 7")]
    UnknownType { found: u8 },
    #[error("bytes {at} to {end} of a frame of type {kind} are not 0", end = at + 1)]
    NotZero { kind: u8, at: usize },
    #[error("a frame of type {kind} ends at byte {len}, in the middle of {what}")]
    Short { kind: u8, len: usize, what: &'static str },
    #[error("a frame of type {kind} has {rest} bytes behind its end")]
    Long { kind: u8, rest: usize },
    #[error("a frame with names says that it has {count} series; {len} bytes hold {max} at most")]
    ManySeries { count: u32, len: usize, max: usize },
    #[error("a series has kind {found}; there are 0 to 2")]
    SeriesKind { found: u8 },
    #[error("a series has level {found}; there are 0 to {LEVEL_MAX}")]
    Level { found: u8 },
    #[error("a block of samples has shape {found}; there are 0 and 1")]
    Shape { found: u8 },
    #[error("a block of samples has values of type {found}; there are 0 and 1")]
    ValueType { found: u8 },
}

/// Checks the first bytes of a connection, and says which version is spoken on it.
///
/// # Errors
/// When they are no opening, or one that cannot be met.
pub fn opening(bytes: [u8; OPENING_BYTES]) -> Result<u16, FrameError> {
    let [a, b, c, d, version_low, version_high, flags_low, flags_high] = bytes;
    if [a, b, c, d] != MAGIC {
        return Err(FrameError::Magic { found: [a, b, c, d] });
    }
    let found = u16::from_le_bytes([version_low, version_high]);
    if found == 0 {
        return Err(FrameError::Version { found });
    }
    let flags = u16::from_le_bytes([flags_low, flags_high]);
    if flags != 0 {
        return Err(FrameError::Flags { found: flags });
    }
    Ok(found.min(VERSION))
}

/// How a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    pub kind: u8,
    /// Bytes of its body, at most [`BODY_BYTES_MAX`].
    pub body: usize,
}

impl FrameHead {
    /// # Errors
    /// For a type that does not exist, and a body that is too long.
    pub fn parse(bytes: [u8; HEAD_BYTES]) -> Result<Self, FrameError> {
        let [a, b, c, d, kind, zeros @ ..] = bytes;
        if !(kind::SERIES..=kind::QUERY).contains(&kind) {
            return Err(FrameError::UnknownType { found: kind });
        }
        if let Some(at) = zeros.iter().position(|byte| *byte != 0) {
            return Err(FrameError::NotZero { kind, at: 5 + at });
        }
        let found = u32::from_le_bytes([a, b, c, d]);
        match usize::try_from(found) {
            Ok(body) if body <= BODY_BYTES_MAX => Ok(Self { kind, body }),
            _ => Err(FrameError::TooLong { kind, found }),
        }
    }
}

/// What a client lost, since its process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTally {
    pub taken: u64,
    /// For want of room in its rings.
    pub dropped_full: u64,
    /// While there was no service.
    pub dropped_alone: u64,
    pub dropped_else: u64,
}

impl ClientTally {
    /// Whether all of it is counted in `later`, as it is while one program runs.
    pub(crate) fn grew_to(&self, later: &Self) -> bool {
        self.taken <= later.taken
            && self.dropped_full <= later.dropped_full
            && self.dropped_alone <= later.dropped_alone
            && self.dropped_else <= later.dropped_else
    }

    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            taken: self.taken.saturating_add(other.taken),
            dropped_full: self.dropped_full.saturating_add(other.dropped_full),
            dropped_alone: self.dropped_alone.saturating_add(other.dropped_alone),
            dropped_else: self.dropped_else.saturating_add(other.dropped_else),
        }
    }

    pub fn dropped(&self) -> u64 {
        self.dropped_full.saturating_add(self.dropped_alone).saturating_add(self.dropped_else)
    }
}

/// A frame from a client. Texts are as they came: whether they are UTF-8 is for whoever uses them.
#[derive(Clone, Debug)]
pub enum ClientFrame<'a> {
    Series(SeriesNames<'a>),
    Samples(SampleBlocks<'a>),
    Tally(ClientTally),
    /// `None`: now.
    Note {
        time: Option<Timestamp>,
        title: &'a [u8],
        description: &'a [u8],
    },
    Setting {
        name: &'a [u8],
        value: &'a [u8],
    },
    Flush {
        number: u64,
    },
    /// The deadline is in milliseconds; 0 is that of the service.
    Query {
        number: u32,
        deadline_ms: u32,
        sql: &'a [u8],
    },
}

impl<'a> ClientFrame<'a> {
    /// # Errors
    /// When `body` is none of this type. Names and blocks of samples are checked when they are taken.
    pub fn parse(kind: u8, body: &'a [u8]) -> Result<Self, FrameError> {
        let mut fields = FrameFields { rest: body, kind, len: body.len() };
        let frame = match kind {
            kind::SERIES => return SeriesNames::parse(fields).map(Self::Series),
            kind::SAMPLES => return SampleBlocks::parse(fields).map(Self::Samples),
            kind::TALLY => Self::Tally(ClientTally {
                taken: fields.u64("a count")?,
                dropped_full: fields.u64("a count")?,
                dropped_alone: fields.u64("a count")?,
                dropped_else: fields.u64("a count")?,
            }),
            kind::NOTE => Self::Note {
                time: Some(fields.time()?).filter(|time| time.micros() != 0),
                title: fields.text("a title")?,
                description: fields.long_text("a description")?,
            },
            kind::SETTING => Self::Setting { name: fields.text("a name")?, value: fields.long_text("a value")? },
            kind::FLUSH => Self::Flush { number: fields.u64("its number")? },
            kind::QUERY => Self::Query {
                number: fields.u32("its number")?,
                deadline_ms: fields.u32("its deadline")?,
                sql: fields.long_text("its SQL")?,
            },
            found => return Err(FrameError::UnknownType { found }),
        };
        fields.end()?;
        Ok(frame)
    }
}

/// The series of a frame, one after another.
#[derive(Clone, Debug)]
pub struct SeriesNames<'a> {
    /// The number of the first.
    pub first: u32,
    /// Those that were not taken yet.
    left: u32,
    fields: FrameFields<'a>,
}

/// A series as a client names it.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSeries<'a> {
    pub kind: MetricKind,
    pub level: u8,
    pub metric: &'a [u8],
    pub unit: &'a [u8],
    pub help: &'a [u8],
    /// In the order in which they came.
    pub tags: Vec<(&'a [u8], &'a [u8])>,
    /// All its bytes, which [`NamedSeries::parse`] reads again.
    pub bytes: &'a [u8],
}

impl<'a> NamedSeries<'a> {
    /// One of [`NamedSeries::bytes`].
    ///
    /// # Errors
    /// When they are none.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let mut fields = FrameFields { rest: bytes, kind: kind::SERIES, len: bytes.len() };
        let series = Self::take(&mut fields)?;
        fields.end()?;
        Ok(series)
    }

    fn take(fields: &mut FrameFields<'a>) -> Result<Self, FrameError> {
        let begin = fields.rest;
        let kind = match fields.u8("a kind")? {
            0 => MetricKind::Gauge,
            1 => MetricKind::Counter,
            2 => MetricKind::Histogram,
            found => return Err(FrameError::SeriesKind { found }),
        };
        let level = fields.u8("a level")?;
        if level > LEVEL_MAX {
            return Err(FrameError::Level { found: level });
        }
        let tags = usize::from(fields.u16("the number of tags")?);
        let (metric, unit, help) = (fields.text("a metric")?, fields.text("a unit")?, fields.text("a help")?);
        // A tag takes four bytes at least.
        let mut found = Vec::with_capacity(tags.min(fields.rest.len() / 4));
        for _ in 0..tags {
            found.push((fields.text("a key")?, fields.text("a value")?));
        }
        let bytes = &begin[..begin.len() - fields.rest.len()];
        Ok(Self { kind, level, metric, unit, help, tags: found, bytes })
    }
}

impl<'a> SeriesNames<'a> {
    fn parse(mut fields: FrameFields<'a>) -> Result<Self, FrameError> {
        let (first, count) = (fields.u32("the first number")?, fields.u32("the count")?);
        let max = fields.rest.len() / SERIES_BYTES_MIN;
        if usize::try_from(count).is_ok_and(|count| count > max) {
            return Err(FrameError::ManySeries { count, len: fields.rest.len(), max });
        }
        Ok(Self { first, left: count, fields })
    }

    /// How many there are, taken ones left out.
    pub fn left(&self) -> u32 {
        self.left
    }
}

impl<'a> Iterator for SeriesNames<'a> {
    type Item = Result<NamedSeries<'a>, FrameError>;

    /// The last of a frame that has bytes behind its end is an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let end = self.fields.end();
            self.fields.rest = &[];
            return end.err().map(Err);
        }
        self.left -= 1;
        let series = NamedSeries::take(&mut self.fields);
        if series.is_err() {
            (self.left, self.fields.rest) = (0, &[]);
        }
        Some(series)
    }
}

/// The blocks of a frame of samples, one after another.
#[derive(Clone, Debug)]
pub struct SampleBlocks<'a> {
    pub sequence: u64,
    fields: FrameFields<'a>,
}

/// Samples that share what they can share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SampleBlock<'a> {
    /// Of one series.
    Column { series: u32, times: RawTimes<'a>, values: RawValues<'a> },
    /// At one time; as many numbers as values.
    Row { time: Timestamp, series: RawNumbers<'a>, values: RawValues<'a> },
}

impl SampleBlock<'_> {
    pub fn len(&self) -> usize {
        let (Self::Column { values, .. } | Self::Row { values, .. }) = self;
        values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Times as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawTimes<'a>(&'a [[u8; 8]]);

impl<'a> RawTimes<'a> {
    pub fn iter(self) -> impl ExactSizeIterator<Item = Timestamp> + Clone + use<'a> {
        self.0.iter().map(|bytes| Timestamp::from_micros(i64::from_le_bytes(*bytes)))
    }
}

/// Numbers of series as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawNumbers<'a>(&'a [[u8; 4]]);

impl<'a> RawNumbers<'a> {
    pub fn iter(self) -> impl ExactSizeIterator<Item = u32> + Clone + use<'a> {
        self.0.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Values of one type as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawValues<'a> {
    bits: &'a [[u8; 8]],
    kind: ValueType,
}

impl<'a> RawValues<'a> {
    pub fn iter(self) -> impl ExactSizeIterator<Item = Value> + Clone + use<'a> {
        let kind = self.kind;
        self.bits.iter().map(move |bytes| Value::from_bits(u64::from_le_bytes(*bytes), kind))
    }

    pub fn are_ints(&self) -> bool {
        self.kind == ValueType::Int
    }

    pub fn len(&self) -> usize {
        self.bits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }
}

impl<'a> SampleBlocks<'a> {
    fn parse(mut fields: FrameFields<'a>) -> Result<Self, FrameError> {
        Ok(Self { sequence: fields.u64("its sequence")?, fields })
    }

    /// Most samples that there can be: a row takes fewest bytes of one.
    pub fn samples_max(&self) -> usize {
        self.fields.rest.len() / 12
    }

    fn block(&mut self) -> Result<SampleBlock<'a>, FrameError> {
        let fields = &mut self.fields;
        let shape = fields.u8("a shape")?;
        let kind = match fields.u8("a type")? {
            0 => ValueType::Float,
            1 => ValueType::Int,
            found => return Err(FrameError::ValueType { found }),
        };
        fields.zeros(2)?;
        match shape {
            0 => {
                let (series, count) = (fields.u32("a number")?, fields.u32("a count")?);
                fields.zeros(4)?;
                let times = RawTimes(fields.many(count, "times")?);
                Ok(SampleBlock::Column { series, times, values: fields.values(count, kind)? })
            }
            1 => {
                let (count, time) = (fields.u32("a count")?, fields.time()?);
                let series = RawNumbers(fields.many(count, "numbers of series")?);
                fields.zeros(if count % 2 == 1 { 4 } else { 0 })?;
                Ok(SampleBlock::Row { time, series, values: fields.values(count, kind)? })
            }
            found => Err(FrameError::Shape { found }),
        }
    }
}

impl<'a> Iterator for SampleBlocks<'a> {
    type Item = Result<SampleBlock<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fields.rest.is_empty() {
            return None;
        }
        let block = self.block();
        if block.is_err() {
            self.fields.rest = &[];
        }
        Some(block)
    }
}

/// Takes fields off the front of a frame's body.
#[derive(Clone, Debug)]
struct FrameFields<'a> {
    rest: &'a [u8],
    /// The frame that they belong to.
    kind: u8,
    len: usize,
}

impl<'a> FrameFields<'a> {
    fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], FrameError> {
        let short = FrameError::Short { kind: self.kind, len: self.len, what };
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], FrameError> {
        let short = FrameError::Short { kind: self.kind, len: self.len, what };
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, FrameError> {
        self.array(what).map(u8::from_le_bytes)
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, FrameError> {
        self.array(what).map(u16::from_le_bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, FrameError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, FrameError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Timestamp, FrameError> {
        self.array("a time").map(i64::from_le_bytes).map(Timestamp::from_micros)
    }

    fn text(&mut self, what: &'static str) -> Result<&'a [u8], FrameError> {
        let len = self.u16(what)?;
        self.bytes(usize::from(len), what)
    }

    fn long_text(&mut self, what: &'static str) -> Result<&'a [u8], FrameError> {
        let len = self.u32(what)?;
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX), what)
    }

    /// `count` fields of `N` bytes each.
    fn many<const N: usize>(&mut self, count: u32, what: &'static str) -> Result<&'a [[u8; N]], FrameError> {
        let len = usize::try_from(count).ok().and_then(|count| count.checked_mul(N)).unwrap_or(usize::MAX);
        Ok(self.bytes(len, what)?.as_chunks::<N>().0)
    }

    fn values(&mut self, count: u32, kind: ValueType) -> Result<RawValues<'a>, FrameError> {
        Ok(RawValues { bits: self.many(count, "values")?, kind })
    }

    fn zeros(&mut self, len: usize) -> Result<(), FrameError> {
        let at = self.len - self.rest.len();
        let zeros = self.bytes(len, "zeros")?;
        match zeros.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Err(FrameError::NotZero { kind: self.kind, at }),
        }
    }

    fn end(&self) -> Result<(), FrameError> {
        match self.rest.len() {
            0 => Ok(()),
            rest => Err(FrameError::Long { kind: self.kind, rest }),
        }
    }
}
