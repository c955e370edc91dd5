//! One frame of the WAL: `length u32 | CRC-32 u32 | type u8 | payload`, little-endian.
//!
//! The length counts the payload; the checksum covers length, type and payload, so that neither
//! a run of zeros nor a payload under another type passes for a frame. It begins with the salt of its file: blocks of
//! a file that was removed may stand in a new one after a power loss, and their frames are none here.

use crate::meta::MetaChange;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::Timestamp;
use crate::value::{Value, ValueType};

/// Length, checksum and type.
pub const FRAME_HEAD_BYTES: usize = 4 + 4 + 1;
/// Longest payload. What claims to be longer is not a frame.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;
/// Most samples in one frame, and so in one batch: 21 bytes each stay below the longest payload.
pub const SAMPLES_MAX: usize = 10_000_000;

const SERIES: u8 = 1;
/// As earlier versions wrote them: each with the id of its series.
const SAMPLES_EACH: u8 = 2;
const META: u8 = 3;
const SAMPLES: u8 = 4;

/// Every sample with its own time.
const TIMES_EACH: u8 = 0;
/// All samples at one time, as a collector's tick has them.
const TIMES_ONE: u8 = 1;
/// Several ticks, each with its samples one after the other.
const TIMES_TICKS: u8 = 2;
/// Bytes of a list of ticks, and of each tick in it.
const TICKS_BYTES: usize = 4;
const TICK_BYTES: usize = 4 + 8;
/// Numbers that are put into a small room first: what is made large at once is cleared before it is written.
const PUT_AT_ONCE: usize = 512;

/// What a frame says.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Series { id: SeriesId, key: SeriesKey },
    Samples(SampleBatch),
    Meta(MetaChange),
}

/// Whether `kind` is a type that this format has.
pub fn is_kind(kind: u8) -> bool {
    (SERIES..=SAMPLES).contains(&kind)
}

/// Whether a frame of type `kind` names a series, and is so never the last of an append.
pub fn names_series(kind: u8) -> bool {
    kind == SERIES
}

/// Behind what is in `out`, as all `put` functions, and without its checksum: [`seal`] adds that.
pub fn put_series(out: &mut Vec<u8>, id: SeriesId, key: &SeriesKey) {
    frame(out, SERIES, |out| {
        out.extend_from_slice(&id.0.to_le_bytes());
        put_text(out, key.metric());
        put_u16(out, key.tags().len());
        for (tag_key, tag_value) in key.tags().iter() {
            put_text(out, tag_key);
            put_text(out, tag_value);
        }
    });
}

/// The bytes of a frame with `batch`, at most.
pub fn samples_len(batch: &SampleBatch) -> u64 {
    let samples = batch.len() as u64;
    FRAME_HEAD_BYTES as u64 + 4 + 4 + 1 + samples * (4 + 8 + 8) + samples.div_ceil(8)
}

/// Callers have checked that the batch holds at most [`SAMPLES_MAX`].
pub fn put_samples(out: &mut Vec<u8>, batch: &SampleBatch) {
    assert!(batch.len() <= SAMPLES_MAX, "Db::append refuses larger batches");
    let times = batch.times();
    let ticks = ticks(times);
    frame(out, SAMPLES, |out| {
        let series = &batch.series()[..batch.period()];
        out.extend_from_slice(&(batch.len() as u32).to_le_bytes());
        out.extend_from_slice(&(series.len() as u32).to_le_bytes());
        put_all(out, series, |series| series.0.to_le_bytes());
        match ticks.as_deref() {
            Some([]) => out.push(TIMES_ONE),
            Some([(_, time)]) => {
                out.push(TIMES_ONE);
                out.extend_from_slice(&time.micros().to_le_bytes());
            }
            Some(ticks) => {
                out.push(TIMES_TICKS);
                out.extend_from_slice(&(ticks.len() as u32).to_le_bytes());
                for (samples, time) in ticks {
                    out.extend_from_slice(&samples.to_le_bytes());
                    out.extend_from_slice(&time.micros().to_le_bytes());
                }
            }
            None => {
                out.push(TIMES_EACH);
                put_all(out, times, |time| time.micros().to_le_bytes());
            }
        }
        put_all(out, batch.values(), |value| value.to_bits().to_le_bytes());
        for eight in batch.values().chunks(8) {
            let bits = eight.iter().enumerate().map(|(at, value)| u8::from(value.is_int()) << at);
            out.push(bits.fold(0, |all, bit| all | bit));
        }
    });
}

/// The numbers of samples at one time each and these times, if that is shorter than the times.
fn ticks(times: &[Timestamp]) -> Option<Vec<(u32, Timestamp)>> {
    let mut ticks = Vec::new();
    for tick in times.chunk_by(|a, b| a == b) {
        ticks.push((tick.len() as u32, tick[0]));
        if ticks.len() > 1 && TICKS_BYTES + TICK_BYTES * ticks.len() >= 8 * times.len() {
            return None;
        }
    }
    Some(ticks)
}

/// `N` bytes of each.
fn put_all<T, const N: usize>(out: &mut Vec<u8>, all: &[T], bytes: impl Fn(&T) -> [u8; N]) {
    out.reserve(N * all.len());
    let mut room = [[0; N]; PUT_AT_ONCE];
    for part in all.chunks(PUT_AT_ONCE) {
        room.iter_mut().zip(part).for_each(|(room, one)| *room = bytes(one));
        out.extend_from_slice(room[..part.len()].as_flattened());
    }
}

pub fn put_meta(out: &mut Vec<u8>, json: &[u8]) {
    frame(out, META, |out| out.extend_from_slice(json));
}

fn frame(out: &mut Vec<u8>, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    out.push(kind);
    payload(out);
    let len = (out.len() - start - FRAME_HEAD_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Gives `frames`, which are whole, the checksums that they have in the file of this salt.
pub fn seal(frames: &mut [u8], salt: u32) {
    let mut rest = frames;
    while let Some((head, behind)) = rest.split_first_chunk_mut::<8>() {
        let [len, crc] = head.as_chunks_mut::<4>().0 else { return };
        let (covered, next) = behind.split_at_mut(1 + u32::from_le_bytes(*len) as usize);
        *crc = checksum(salt, u32::from_le_bytes(*len), covered).to_le_bytes();
        rest = next;
    }
}

/// The checksum of a frame in the file of this salt: its length, then its type and payload.
pub fn checksum(salt: u32, len: u32, kind_and_payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(&len.to_le_bytes());
    hasher.update(kind_and_payload);
    hasher.finalize()
}

fn put_u16(out: &mut Vec<u8>, number: usize) {
    // Names have at most 1,024 bytes and series at most 64 tags: see `series`.
    out.extend_from_slice(&(number as u16).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_u16(out, text.len());
    out.extend_from_slice(text.as_bytes());
}

/// What a payload says; `None` when it says nothing that this format has.
pub fn decode(kind: u8, payload: &[u8]) -> Option<Record> {
    match kind {
        SERIES => series(payload),
        SAMPLES | SAMPLES_EACH => samples(kind, payload).map(Record::Samples),
        META => serde_json::from_slice(payload).ok().map(Record::Meta),
        _ => None,
    }
}

fn series(payload: &[u8]) -> Option<Record> {
    let mut fields = Fields::new(payload);
    let id = SeriesId(fields.u32()?);
    let metric = fields.text()?;
    let tags = fields.u16()?;
    let tags: Vec<(&str, &str)> = (0..tags).map(|_| Some((fields.text()?, fields.text()?))).collect::<Option<_>>()?;
    let key = SeriesKey::new(metric, TagSet::new(tags).ok()?).ok()?;
    fields.is_empty().then_some(Record::Series { id, key })
}

fn samples(kind: u8, payload: &[u8]) -> Option<SampleBatch> {
    let mut fields = Fields::new(payload);
    let count = fields.u32()? as usize;
    let period = if kind == SAMPLES { fields.u32()? as usize } else { count };
    // Before room is made for what a few bytes say.
    if period > count || (period == 0 && count > 0) || count > payload.len() / size_of::<u64>() {
        return None;
    }
    let series = fields.bytes(period.checked_mul(4)?)?.as_chunks().0;
    let times = match fields.u8()? {
        TIMES_EACH => fields.bytes(count.checked_mul(8)?)?.as_chunks().0.iter().copied().map(time).collect(),
        TIMES_ONE if count == 0 => Vec::new(),
        TIMES_ONE => vec![time(fields.array()?); count],
        TIMES_TICKS => tick_times(&mut fields, count)?,
        _ => return None,
    };
    let bits = fields.bytes(count.checked_mul(8)?)?.as_chunks().0;
    let ints = fields.bytes(count.div_ceil(8))?;
    if !fields.is_empty() {
        return None;
    }
    let is_int = |at: usize| ints[at / 8] >> (at % 8) & 1 == 1;
    let values = bits.iter().enumerate().map(|(at, bits)| {
        let kind = ValueType::of_bit(is_int(at));
        Value::from_bits(u64::from_le_bytes(*bits), kind)
    });
    let mut batch = SampleBatch::with_capacity(count);
    // Again from the first on; as many as there are times.
    let series = series.iter().cycle().take(count).map(|id| SeriesId(u32::from_le_bytes(*id)));
    batch.extend(series, times, values);
    Some(batch)
}

fn time(bytes: [u8; 8]) -> Timestamp {
    Timestamp::from_micros(i64::from_le_bytes(bytes))
}

/// The times of `count` samples that come in ticks.
fn tick_times(fields: &mut Fields<'_>, count: usize) -> Option<Vec<Timestamp>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..fields.u32()? {
        let samples = fields.u32()? as usize;
        let tick = time(fields.array()?);
        let end = times.len() + samples;
        if samples == 0 || end > count {
            return None;
        }
        times.resize(end, tick);
    }
    (times.len() == count).then_some(times)
}

/// Takes little-endian fields off the front of bytes; `None` when they run out.
#[derive(Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(len))?).ok()
    }
}
