//! The bytes of a trace: frames, each a length of eight bytes and so many bytes of one value.
//!
//! Every number is little-endian. A text is its length in four bytes and its UTF-8, a list the number of its elements in
//! four bytes and these. A structure is the number of its fields in four bytes, and of each field its name, as a text, and
//! its value. A choice is the name of what was chosen, as a text, and its structure.
//!
//! Nothing is allocated by what a length says: a frame grows with the bytes that come, up to [`TRACE_FRAME_BYTES_MAX`],
//! and what is in it is read where it stands.

use std::io::{self, ErrorKind, Read};

use telem_engine::Timestamp;
use telem_engine::limits::count;
use telem_ingest::counters::{CounterValue, GaugeValue};

use crate::protocols::proxy::shapes::JobDesc;

/// Longest frame: three and a half million counters in one period.
pub const TRACE_FRAME_BYTES_MAX: u64 = 256 << 20;
/// Longest description of a job.
pub const TRACE_DESC_BYTES_MAX: usize = 64 << 10;
/// What stands before the bytes of a frame.
const LENGTH_BYTES: u64 = 8;
/// What the shortest value takes in a frame, which is that of a counter.
const VALUE_BYTES_MIN: u64 = 73;
/// Times below the first are in seconds, below the second in milliseconds, and else in microseconds: versions differ.
const SECONDS_END: f64 = 1e11;
const MILLIS_END: f64 = 1e14;
/// Bits below are no time as a float, but an integer, as earlier versions wrote times.
const INTEGERS_END: u64 = 1 << 52;
/// How much of a text that is not expected is shown.
const SHOWN_CHARS: usize = 32;
/// What the first frame holds.
const DESC: &str = "Desc";

/// What stands next in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameFound<'a> {
    /// All bytes of a frame, the first of which is the file's byte `at`.
    Frame {
        at: u64,
        bytes: &'a [u8],
    },
    /// The file ends within it: its writer was killed, or still writes.
    CutOff {
        at: u64,
        expected: u64,
        found: u64,
    },
    /// Such a length was never written: where the next frame begins is not known.
    TooLong {
        at: u64,
        length: u64,
    },
    End,
}

/// Reads frames one by one into the same memory.
#[derive(Debug)]
pub struct TraceFrames<R> {
    from: R,
    at: u64,
    bytes: Vec<u8>,
}

impl<R: Read> TraceFrames<R> {
    pub fn new(from: R) -> Self {
        Self { from, at: 0, bytes: Vec::new() }
    }

    /// Where the next frame begins.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// # Errors
    /// Those of the file.
    pub fn read(&mut self) -> io::Result<FrameFound<'_>> {
        let at = self.at;
        match self.take(LENGTH_BYTES)? {
            0 => return Ok(FrameFound::End),
            LENGTH_BYTES => {}
            found => return Ok(FrameFound::CutOff { at, expected: LENGTH_BYTES, found }),
        }
        let length = self.bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if length > TRACE_FRAME_BYTES_MAX {
            return Ok(FrameFound::TooLong { at, length });
        }
        let found = self.take(length)?;
        if found < length {
            return Ok(FrameFound::CutOff { at, expected: LENGTH_BYTES + length, found: LENGTH_BYTES + found });
        }
        self.at = at + LENGTH_BYTES + length;
        Ok(FrameFound::Frame { at: at + LENGTH_BYTES, bytes: &self.bytes })
    }

    /// Reads so many bytes, or up to the end of the file; how many came.
    fn take(&mut self, length: u64) -> io::Result<u64> {
        self.bytes.clear();
        match self.from.by_ref().take(length).read_to_end(&mut self.bytes) {
            // A packed file ends within its packing.
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
            _ => Ok(self.bytes.len() as u64),
        }
    }
}

/// Whether a file that starts so is a trace: its first frame describes the job.
pub fn is_start(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    let length = u64::from_le_bytes(*length);
    length <= TRACE_FRAME_BYTES_MAX && FrameText { rest, end: 0 }.text("a frame") == Ok(DESC)
}

/// Why a frame is not taken. Bytes are counted from the begin of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    #[error("byte {}: expected {expected}, found the end of the frame", count(*at))]
    Short { at: u64, expected: &'static str },
    #[error("byte {}: expected {expected}, found '{found}'", count(*at))]
    Name { at: u64, expected: String, found: String },
    #[error("byte {}: expected {expected}, found {}", count(*at), count(*found))]
    Number { at: u64, expected: String, found: u64 },
    #[error("byte {}: {what} is not UTF-8", count(*at))]
    NotText { at: u64, what: &'static str },
    #[error("byte {}: expected a time since 1970, found {found}", count(*at))]
    Time { at: u64, found: String },
}

/// What a frame holds.
#[derive(Clone, Debug)]
pub enum TraceFrame<'a> {
    /// The job, and when the trace began.
    Desc { time: Timestamp, desc: JobDesc },
    /// What a number stands for from here on.
    Named { id: u64, name: &'a str, doc: &'a str },
    /// Everything that has data, at one time.
    Values { time: Timestamp, values: FrameValues<'a> },
}

impl<'a> TraceFrame<'a> {
    /// Reads all of a frame, the first byte of which is the file's byte `at`: values are known to be whole then.
    ///
    /// # Errors
    /// The first byte that is not as it must be.
    pub fn decode(bytes: &'a [u8], at: u64) -> Result<Self, FrameFault> {
        let mut frame = FrameText { rest: bytes, end: at + bytes.len() as u64 };
        let kind_at = frame.at();
        let decoded = match frame.text("the kind of a frame")? {
            DESC => {
                frame.structure(2)?;
                let time = frame.time()?;
                frame.field("desc")?;
                Self::Desc { time, desc: frame.desc()? }
            }
            "CounterMetadata" => {
                frame.structure(2)?;
                frame.time()?;
                frame.field("metadata")?;
                frame.structure(3)?;
                frame.field("id")?;
                let id = u64::from_le_bytes(frame.number("the number of a counter")?);
                let (name, doc) = (frame.named_text("name")?, frame.named_text("doc")?);
                Self::Named { id, name, doc }
            }
            "Counters" => {
                frame.structure(2)?;
                let time = frame.time()?;
                frame.field("counters")?;
                let count_at = frame.at();
                let left = u32::from_le_bytes(frame.number("how many counters there are")?);
                let most = frame.rest.len() as u64 / VALUE_BYTES_MIN;
                if u64::from(left) > most {
                    let expected = format!("at most {} counters, for which the frame has room", count(most));
                    return Err(FrameFault::Number { at: count_at, expected, found: left.into() });
                }
                let values = FrameValues { left, frame: frame.clone() };
                for _ in 0..left {
                    frame.value()?;
                }
                Self::Values { time, values }
            }
            found => {
                let expected = "Desc, CounterMetadata or Counters".to_owned();
                return Err(FrameFault::Name { at: kind_at, expected, found: shown(found) });
            }
        };
        match frame.rest.len() as u64 {
            0 => Ok(decoded),
            found => Err(FrameFault::Number {
                at: frame.at(),
                expected: "no byte behind the frame's value".to_owned(),
                found,
            }),
        }
    }
}

/// The values of a frame with the numbers of their counters.
#[derive(Clone, Debug)]
pub struct FrameValues<'a> {
    left: u32,
    frame: FrameText<'a>,
}

impl Iterator for FrameValues<'_> {
    type Item = (u64, CounterValue);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // All of them were read before.
        self.frame.value().ok()
    }
}

/// What is left of a frame.
#[derive(Clone, Debug)]
struct FrameText<'a> {
    rest: &'a [u8],
    /// The byte of the file behind it.
    end: u64,
}

impl<'a> FrameText<'a> {
    fn at(&self) -> u64 {
        self.end.saturating_sub(self.rest.len() as u64)
    }

    fn number<const BYTES: usize>(&mut self, expected: &'static str) -> Result<[u8; BYTES], FrameFault> {
        let Some((number, rest)) = self.rest.split_first_chunk() else {
            return Err(FrameFault::Short { at: self.at(), expected });
        };
        self.rest = rest;
        Ok(*number)
    }

    fn text(&mut self, what: &'static str) -> Result<&'a str, FrameFault> {
        let at = self.at();
        let length = u32::from_le_bytes(self.number(what)?);
        let bytes = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let Some((text, rest)) = bytes else {
            let expected = format!("{what} of at most {} bytes, which the frame has", count(self.rest.len() as u64));
            return Err(FrameFault::Number { at, expected, found: length.into() });
        };
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| FrameFault::NotText { at, what })
    }

    fn structure(&mut self, fields: u32) -> Result<(), FrameFault> {
        let at = self.at();
        match u32::from_le_bytes(self.number("how many fields there are")?) {
            found if found == fields => Ok(()),
            found => Err(FrameFault::Number { at, expected: format!("{fields} fields"), found: found.into() }),
        }
    }

    fn field(&mut self, name: &str) -> Result<(), FrameFault> {
        let at = self.at();
        match self.text("the name of a field")? {
            found if found == name => Ok(()),
            found => Err(FrameFault::Name { at, expected: format!("the field {name}"), found: shown(found) }),
        }
    }

    fn named_text(&mut self, name: &'static str) -> Result<&'a str, FrameFault> {
        self.field(name)?;
        self.text(name)
    }

    fn named_float(&mut self, name: &str) -> Result<f64, FrameFault> {
        self.field(name)?;
        self.number("a number of 8 bytes").map(f64::from_le_bytes)
    }

    fn named_int(&mut self, name: &str) -> Result<u64, FrameFault> {
        self.field(name)?;
        self.number("a number of 8 bytes").map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Timestamp, FrameFault> {
        self.field("ts")?;
        let at = self.at();
        let bits = u64::from_le_bytes(self.number("a time")?);
        let number = if bits < INTEGERS_END { bits as f64 } else { f64::from_bits(bits) };
        let scale = match number {
            number if number < SECONDS_END => 1e6,
            number if number < MILLIS_END => 1e3,
            _ => 1.0,
        };
        let micros = (number * scale).round();
        // A year before this cannot be told from damage, and neither can one beyond what a timestamp holds.
        if !(micros > 0.0 && micros < i64::MAX as f64) {
            return Err(FrameFault::Time { at, found: number.to_string() });
        }
        Ok(Timestamp::from_micros(micros as i64))
    }

    fn desc(&mut self) -> Result<JobDesc, FrameFault> {
        let (at, length) = (self.at(), self.rest.len());
        if length > TRACE_DESC_BYTES_MAX {
            let expected = format!("a description of at most {} bytes", count(TRACE_DESC_BYTES_MAX as u64));
            return Err(FrameFault::Number { at, expected, found: length as u64 });
        }
        self.structure(9)?;
        let [jobid, command] = [self.named_text("jobid")?, self.named_text("command")?];
        self.field("size")?;
        let size = i32::from_le_bytes(self.number("a size")?);
        let [nodelist, partition] = [self.named_text("nodelist")?, self.named_text("partition")?];
        let [cluster, run_dir] = [self.named_text("cluster")?, self.named_text("run_dir")?];
        let [start_time, end_time] = [self.named_int("start_time")?, self.named_int("end_time")?];
        let [jobid, command] = [jobid, command].map(str::to_owned);
        let [nodelist, partition, cluster, run_dir] = [nodelist, partition, cluster, run_dir].map(str::to_owned);
        Ok(JobDesc { jobid, command, size, nodelist, partition, cluster, run_dir, start_time, end_time })
    }

    fn value(&mut self) -> Result<(u64, CounterValue), FrameFault> {
        self.structure(2)?;
        let id = self.named_int("id")?;
        self.field("value")?;
        let at = self.at();
        let value = match self.text("the kind of a value")? {
            "Counter" => {
                self.structure(2)?;
                self.named_int("ts")?;
                CounterValue::Counter(self.named_float("value")?)
            }
            "Gauge" => {
                self.structure(4)?;
                let [min, max] = [self.named_float("min")?, self.named_float("max")?];
                let [hits, total] = [self.named_float("hits")?, self.named_float("total")?];
                CounterValue::Gauge(GaugeValue { min, max, hits, total })
            }
            found => {
                return Err(FrameFault::Name { at, expected: "Counter or Gauge".to_owned(), found: shown(found) });
            }
        };
        Ok((id, value))
    }
}

/// The begin of a text that was found.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect::<String>().escape_debug().to_string();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
