//! Determines which parts of the WAL are still good, and writes WAL files anew from them.
//!
//! If another file follows a WAL file, every byte of it was durable before that next file was created. So bytes in it
//! that are not a frame were damaged later, and the frames behind them are as good as those before. In the last file a
//! power loss may have left anything behind the last good frame. So that file ends there, as it does for every reader,
//! and the bytes that follow are set aside.

use std::collections::BTreeMap;
use std::ops::Range;

use super::series::placeholder;
use super::{Loss, LossKind, flip};
use crate::error::Result;
use crate::index::SeriesIndex;
use crate::recover::HEADER_DAMAGED;
use crate::series::{SeriesId, SeriesKey};
use crate::time::Timestamp;
use crate::wal::frame::{self, FRAME_HEAD_BYTES, Fields, PAYLOAD_BYTES_MAX, Record};
use crate::wal::list::WalEntry;
use crate::wal::{HEADER_BYTES, HEADER_BYTES_COVERED, Header};

/// Bytes that the search for whole frames in one file may checksum; what lies beyond counts as damaged.
const SEARCH_BYTES_MAX: usize = 256 << 20;
/// Series that a WAL may be the first to name without one of their frames; more is not to be believed.
const UNNAMED_MAX: u32 = 1 << 20;

/// What was found in a WAL file.
#[derive(Debug)]
struct WalScan {
    header: Option<Header>,
    frames: Vec<Range<usize>>,
    /// Bytes that are not a frame.
    holes: Vec<Range<usize>>,
    /// The file with single bits turned back, where that made frames whole; they are among `frames`.
    healed: Option<Vec<u8>>,
}

/// Where a WAL file stands among those that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalPosition {
    /// The one that was written last: it may end within a frame.
    Last,
    Earlier,
}

impl WalPosition {
    /// Of the file at `at` among `count`.
    pub fn of(at: usize, count: usize) -> Self {
        if at + 1 == count { Self::Last } else { Self::Earlier }
    }
}

/// The bytes of a WAL file, and what must be known to tell its frames.
#[derive(Clone, Copy, Debug)]
pub struct WalBytes<'a> {
    bytes: &'a [u8],
    position: WalPosition,
    header: Option<Header>,
    salt: u32,
    /// Whether the salt is known by more than the frames: these are the file's own then.
    is_salt_known: bool,
}

impl<'a> WalBytes<'a> {
    /// `listed` is the file in the list of WAL files, which has its salt too.
    pub fn new(bytes: &'a [u8], position: WalPosition, listed: Option<WalEntry>) -> Self {
        let header = Header::decode(bytes);
        let told = header.or_else(|| healed_header(bytes)).map(|header| header.salt);
        let told = told.or(listed.map(|listed| listed.start.salt)).filter(|salt| header.is_some() || *salt != 0);
        let salt = told.or_else(|| salt_of_frames(bytes)).unwrap_or(0);
        Self { bytes, position, header, salt, is_salt_known: told.is_some() }
    }

    /// Why it is written anew although nothing of it is lost.
    pub fn why_anew(&self, judged: &WalJudgement) -> &'static str {
        match (judged.unnamed.is_empty(), self.header) {
            (false, _) => "series that it speaks of are unknown",
            (true, None) => HEADER_DAMAGED,
            (true, Some(_)) => "a flipped bit is turned back",
        }
    }

    fn is_last(&self) -> bool {
        self.position == WalPosition::Last
    }

    /// Finds every whole frame; in a file that is not the last, also those that are whole except for one bit.
    fn scan(&self) -> WalScan {
        let Self { bytes, header, salt, .. } = *self;
        let mut found = WalScan { header, frames: Vec::new(), holes: Vec::new(), healed: None };
        let mut at = HEADER_BYTES.min(bytes.len());
        let mut budget = SEARCH_BYTES_MAX;
        let mut frame_size = |at| {
            let len = plausible(bytes, at)?;
            budget = budget.checked_sub(len)?;
            let size = FRAME_HEAD_BYTES + len;
            let crc = Fields::new(&bytes[at + 4..at + 8]).u32()?;
            (crc == frame::checksum(salt, len as u32, &bytes[at + 8..at + size])).then_some(size)
        };
        while at < bytes.len() {
            if let Some(size) = frame_size(at) {
                found.frames.push(at..at + size);
                at += size;
                continue;
            }
            // A frame whose length is good leads to the next one.
            let next = plausible(bytes, at).map(|len| at + FRAME_HEAD_BYTES + len);
            let next = next.filter(|next| (!self.is_last() && *next == bytes.len()) || frame_size(*next).is_some());
            let healed = |end: usize| Some((end, healed_frame(&bytes[at..end], salt)?));
            if let Some((end, good)) = next.filter(|_| !self.is_last()).and_then(healed) {
                found.healed.get_or_insert_with(|| bytes.to_vec())[at..end].copy_from_slice(&good);
                found.frames.push(at..end);
                at = end;
                continue;
            }
            let next = next.or_else(|| (at + 1..bytes.len()).find(|from| frame_size(*from).is_some()));
            let end = next.unwrap_or(bytes.len());
            found.holes.push(at..end);
            at = end;
        }
        found
    }
}

/// The header that `bytes` start with, if one bit of it is turned around.
fn healed_header(bytes: &[u8]) -> Option<Header> {
    let (covered, crc) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_BYTES_COVERED);
    let good = flip::turned_back(covered, Fields::new(crc).u32()?, flip::SHORT_BYTES_MAX)?;
    Header::decode(&[&good, crc].concat())
}

/// The salt by which the first two frames are whole of which one follows the other, or one is all there is and is whole
/// by the salt where a header has it, or by none.
fn salt_of_frames(bytes: &[u8]) -> Option<u32> {
    let mut budget = SEARCH_BYTES_MAX;
    let mut salt_of = |at| {
        let len = plausible(bytes, at)?;
        budget = budget.checked_sub(len)?;
        let crc = Fields::new(&bytes[at + 4..at + 8]).u32()?;
        let end = at + FRAME_HEAD_BYTES + len;
        let unsalted = frame::checksum(0, len as u32, &bytes[at + 8..end]);
        // The checksum covers the frame without itself.
        Some((flip::checksum_before(crc ^ unsalted, end - at - 4), end))
    };
    let in_header = [Header::salt_field(bytes), 0];
    (HEADER_BYTES..bytes.len()).find_map(|at| {
        let (salt, end) = salt_of(at)?;
        let is_sure = in_header.contains(&salt) || salt_of(end).is_some_and(|(next, _)| next == salt);
        is_sure.then_some(salt)
    })
}

/// A frame in which one bit is turned around, of its type, its payload or its checksum. Its length leads to the next
/// frame, so no crash cut it short.
fn healed_frame(frame: &[u8], salt: u32) -> Option<Vec<u8>> {
    let crc = Fields::new(&frame[4..8]).u32()?;
    let found = frame::checksum(salt, (frame.len() - FRAME_HEAD_BYTES) as u32, &frame[8..]);
    let mut covered = frame[..4].to_vec();
    covered.extend_from_slice(&frame[8..]);
    let mut good = frame.to_vec();
    if (found ^ crc).count_ones() == 1 {
        good[4..8].copy_from_slice(&found.to_le_bytes());
    } else {
        // Without the salt, whatever it is, they differ by as much.
        let crc = crc ^ found ^ crc32fast::hash(&covered);
        let covered =
            flip::turned_back(&covered, crc, flip::SHORT_BYTES_MAX).filter(|covered| covered[..4] == frame[..4])?;
        good[8..].copy_from_slice(&covered[4..]);
    }
    frame::decode(good[FRAME_HEAD_BYTES - 1], &good[FRAME_HEAD_BYTES..]).is_some().then_some(good)
}

/// The payload's length of what may be a frame at `at`.
fn plausible(bytes: &[u8], at: usize) -> Option<usize> {
    let head = bytes.get(at..at + FRAME_HEAD_BYTES)?;
    let len = Fields::new(head).u32()? as usize;
    let fits = len <= PAYLOAD_BYTES_MAX && at + FRAME_HEAD_BYTES + len <= bytes.len();
    (fits && frame::is_kind(head[FRAME_HEAD_BYTES - 1])).then_some(len)
}

fn decode(bytes: &[u8], frame: &Range<usize>) -> Option<Record> {
    let bytes = &bytes[frame.clone()];
    frame::decode(bytes[FRAME_HEAD_BYTES - 1], &bytes[FRAME_HEAD_BYTES..])
}

/// The keys that the WAL tells; of two for one id the first.
pub fn keys(wal: &WalBytes<'_>, known: &mut BTreeMap<u32, SeriesKey>) {
    let scanned = wal.scan();
    let bytes = scanned.healed.as_deref().unwrap_or(wal.bytes);
    let end = if wal.is_last() { scanned.holes.first().map_or(bytes.len(), |hole| hole.start) } else { bytes.len() };
    for frame in scanned.frames.iter().filter(|frame| frame.end <= end) {
        if let Some(Record::Series { id, key }) = decode(bytes, frame) {
            known.entry(id.0).or_insert(key);
        }
    }
}

/// What becomes of one WAL file.
#[derive(Debug)]
pub struct WalJudgement {
    /// Bytes from the start that a reader takes, or that a repair makes readable: the header, and the frames before the
    /// first that is not whole.
    pub whole: u64,
    /// The bytes that take its place; `None` when it stays as it is, empty when it goes.
    pub anew: Option<Vec<u8>>,
    pub losses: Vec<Loss>,
    /// Series that it uses and that no file named.
    pub unnamed: Vec<SeriesId>,
}

/// Judges a file behind those that made `index`, and adds its series to that.
///
/// # Errors
/// Those of the index.
pub fn judge(file: &str, number: u64, wal: &WalBytes<'_>, index: &SeriesIndex) -> Result<WalJudgement> {
    let is_last = wal.is_last();
    let scanned = wal.scan();
    let bytes = scanned.healed.as_deref().unwrap_or(wal.bytes);
    let end = scanned.holes.first().map_or(bytes.len(), |hole| hole.start);
    let whole = if wal.is_salt_known { end as u64 } else { 0 };
    let mut judged = WalJudgement { whole, anew: None, losses: Vec::new(), unnamed: Vec::new() };
    if scanned.header.is_some_and(|header| header.number != number) {
        let samples = samples_in(bytes, &scanned.frames);
        judged.losses.push(loss(file, "its header is that of another file", samples, bytes.len()));
        judged.anew = Some(Vec::new());
        return Ok(judged);
    }
    let mut writer = Anew {
        out: Vec::new(),
        salt: wal.salt,
        index,
        changed: scanned.header.is_none() || scanned.healed.is_some(),
        unnamed: Vec::new(),
    };
    let series_before = scanned.header.map_or(index.len(), |header| header.series_before as usize);
    let header = Header { number, series_before: index.len().min(series_before) as u32, salt: wal.salt };
    writer.out.extend_from_slice(&header.encode());
    if header.series_before as usize != series_before {
        writer.changed = true;
        let why = "an earlier file, or the frames in it that name series, are lost";
        judged.losses.push(loss(file, why, None, 0));
    }
    if !writer.name_all_below(series_before)? {
        let samples = samples_in(bytes, &scanned.frames);
        judged.losses.push(loss(file, "too many series that it builds on are unknown", samples, bytes.len()));
        judged.anew = Some(Vec::new());
        return Ok(judged);
    }
    let torn_at = is_last.then(|| scanned.holes.first().map(|hole| hole.start)).flatten();
    let mut end = torn_at.unwrap_or(bytes.len());
    // A last file without a good header is nothing to its readers, and its frames may be those of another file.
    if is_last && !wal.is_salt_known {
        end = 0;
    }
    let mut refused_at = None;
    for frame in scanned.frames.iter().filter(|frame| frame.end <= end) {
        if !writer.take(bytes, frame)? {
            refused_at = Some(frame.start);
            break;
        }
    }
    let (changed, unnamed, out) = (writer.changed, writer.unnamed, writer.out);
    judged.unnamed = unnamed;
    if !is_last {
        for hole in scanned.holes.iter().filter(|hole| hole.start < refused_at.unwrap_or(usize::MAX)) {
            let why = format!("bytes {} to {} are not a frame", hole.start, hole.end);
            judged.losses.push(loss(file, &why, None, hole.len()));
        }
    }
    let behind =
        |at: usize| -> Vec<Range<usize>> { scanned.frames.iter().filter(|frame| frame.start >= at).cloned().collect() };
    if let Some(at) = refused_at {
        let samples = samples_in(bytes, &behind(at));
        judged.losses.push(loss(file, "a frame contradicts what is known of series", samples, bytes.len() - at));
    } else if is_last && end < bytes.len() {
        let behind = behind(end);
        let is_headless = scanned.header.is_none() && bytes.len() > HEADER_BYTES;
        // A write that was cut short is what every open drops and reports: no damage.
        if behind.is_empty() && !is_headless && (!changed || end == 0) {
            return Ok(judged);
        }
        if is_headless && end == 0 {
            let samples = samples_in(bytes, &behind);
            judged.losses.push(loss(file, HEADER_DAMAGED, samples, bytes.len()));
        } else if !behind.is_empty() {
            let samples = samples_in(bytes, &behind);
            judged.losses.push(loss(file, "a frame is damaged and whole frames follow it", samples, bytes.len() - end));
        }
    }
    if changed || !judged.losses.is_empty() {
        let holds_nothing = out.len() == HEADER_BYTES && judged.unnamed.is_empty();
        judged.anew = Some(if holds_nothing { Vec::new() } else { out });
    }
    Ok(judged)
}

fn samples_in(bytes: &[u8], frames: &[Range<usize>]) -> Option<u64> {
    let count = |frame| match decode(bytes, frame) {
        Some(Record::Samples(batch)) => batch.len() as u64,
        _ => 0,
    };
    (!frames.is_empty()).then(|| frames.iter().map(count).sum())
}

/// Samples in damaged bytes cannot be counted.
pub fn loss(file: &str, why: &str, samples: Option<u64>, bytes: usize) -> Loss {
    Loss {
        kind: LossKind::Wal { bytes: bytes as u64 },
        file: file.to_owned(),
        why: why.to_owned(),
        samples,
        first: None,
        last: None,
        series: Vec::new(),
    }
}

/// A WAL file that is put together.
struct Anew<'a> {
    out: Vec<u8>,
    salt: u32,
    index: &'a SeriesIndex,
    changed: bool,
    unnamed: Vec<SeriesId>,
}

impl Anew<'_> {
    /// False when the frame contradicts what is known; applied, it would show wrong data.
    fn take(&mut self, bytes: &[u8], frame: &Range<usize>) -> Result<bool> {
        let good = match decode(bytes, frame) {
            None => false,
            Some(Record::Meta(_)) => true,
            Some(Record::Series { id, key }) => {
                let again = self.index.id(&key) == Some(id);
                let new = self.index.id(&key).is_none() && id.0 as usize >= self.index.len();
                if new && self.name_all_below(id.0 as usize)? {
                    self.index.get_or_insert(&key, u32::MAX)?.0 == id
                } else {
                    again
                }
            }
            Some(Record::Samples(batch)) => {
                let end = batch.series().iter().map(|id| id.0 as usize + 1).max().unwrap_or(0);
                batch.times().iter().all(|time| *time != Timestamp::MAX) && self.name_all_below(end)?
            }
        };
        if good {
            self.out.extend_from_slice(&bytes[frame.clone()]);
        }
        Ok(good)
    }

    /// Gives names to the series below `end` that have none.
    fn name_all_below(&mut self, end: usize) -> Result<bool> {
        let known = self.index.len();
        if end > known + UNNAMED_MAX as usize {
            return Ok(false);
        }
        for id in (known..end).map(|id| SeriesId(id as u32)) {
            let key = placeholder(id)?;
            if self.index.get_or_insert(&key, u32::MAX)?.0 != id {
                return Ok(false);
            }
            let end = self.out.len();
            frame::put_series(&mut self.out, id, &key);
            frame::seal(&mut self.out[end..], self.salt);
            self.unnamed.push(id);
            self.changed = true;
        }
        Ok(true)
    }
}
