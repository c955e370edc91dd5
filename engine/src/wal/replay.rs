//! Reads a WAL file back, up to the first frame that is not whole.
//!
//! The bytes behind that frame tell what happened. If no whole frame follows, a crash interrupted a write; it was never
//! acknowledged as durable and is dropped. If whole frames follow, bytes that were good once are damaged; they are kept
//! for inspection. A header is durable before anything follows it: one that is not whole in a longer file is damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{self, FRAME_HEAD_BYTES, PAYLOAD_BYTES_MAX, Record};
use super::list::{Likeness, WalEntry, WalStart};
use super::{HEADER_BYTES, Header};
use crate::disk::{Disk, ReadFile};
use crate::error::{Error, Result};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;
/// Most bytes that the search for a whole frame may checksum; beyond it the bytes count as damaged.
const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// How a WAL file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its last frame.
    Whole,
    /// With a frame that was cut short at this offset.
    Torn { at: u64 },
    /// A frame at this offset is damaged: whole frames follow it, or it is whole and says nothing.
    Damaged { at: u64 },
    /// At once: its header is damaged, and the file is longer than that.
    Headless,
}

/// A WAL file being read.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    header: Option<Header>,
    /// Bytes from `start` on, a window of the file.
    window: Vec<u8>,
    start: u64,
    /// Offset of the next frame.
    at: u64,
}

impl Replay {
    /// # Errors
    /// Io. A damaged header is not an error: the file ends there.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.open(path).map_err(Error::io("open", path))?;
        let mut replay = Self { path: path.to_path_buf(), file, header: None, window: Vec::new(), start: 0, at: 0 };
        replay.header = replay.peek(0, HEADER_BYTES)?.and_then(Header::decode);
        if replay.header.is_some() {
            replay.at = HEADER_BYTES as u64;
        }
        Ok(replay)
    }

    pub fn header(&self) -> Option<Header> {
        self.header
    }

    fn salt(&self) -> u32 {
        self.header.map_or(0, |header| header.salt)
    }

    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Offset up to which the file was read as whole frames.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next record; `None` where the file ends, for whichever reason [`Replay::end`] gives.
    ///
    /// # Errors
    /// Io.
    pub fn next(&mut self) -> Result<Option<Record>> {
        if self.header.is_none() {
            return Ok(None);
        }
        let Some(size) = self.frame_size(self.at)? else { return Ok(None) };
        let Some(bytes) = self.peek(self.at, size)? else { return Ok(None) };
        let Some(record) = frame::decode(bytes[FRAME_HEAD_BYTES - 1], &bytes[FRAME_HEAD_BYTES..]) else {
            return Ok(None);
        };
        self.at += size as u64;
        Ok(Some(record))
    }

    /// Puts the record that was just read back: it cannot be used, so the file ends before it.
    pub fn refuse(&mut self, at: u64) -> End {
        self.at = at;
        End::Damaged { at }
    }

    /// Whether this is the file that `listed` speaks of. To be asked before the first frame is read.
    ///
    /// # Errors
    /// Io.
    pub fn likeness(&mut self, listed: &WalEntry) -> Result<Likeness> {
        if self.header.is_none_or(|header| header.number != listed.number) {
            return Ok(Likeness::Broken);
        }
        if self.salt() != listed.start.salt {
            return Ok(Likeness::Another);
        }
        let mut at = HEADER_BYTES as u64;
        while at < listed.start.bytes {
            let Some(size) = self.frame_size(at)? else { return Ok(Likeness::Broken) };
            let kind = self.peek(at, FRAME_HEAD_BYTES)?.map(|head| head[FRAME_HEAD_BYTES - 1]);
            at += size as u64;
            // Of the file that was begun, only frames of series come before the end of the first append.
            if at != listed.start.bytes && kind.is_none_or(|kind| !frame::names_series(kind)) {
                return Ok(Likeness::Another);
            }
        }
        let is_same = at == listed.start.bytes && self.crc32_before(at)? == listed.start.crc32;
        Ok(if is_same { Likeness::Same } else { Likeness::Another })
    }

    /// How the file begins, as [`WalStart`] has it; of one that holds no append all that is whole.
    ///
    /// # Errors
    /// Io.
    pub fn start(&mut self) -> Result<WalStart> {
        let mut end = if self.header.is_some() { HEADER_BYTES as u64 } else { 0 };
        while end > 0 && end < self.at {
            let Some(size) = self.frame_size(end)? else { break };
            let kind = self.peek(end, FRAME_HEAD_BYTES)?.map(|head| head[FRAME_HEAD_BYTES - 1]);
            end += size as u64;
            if kind.is_none_or(|kind| !frame::names_series(kind)) {
                break;
            }
        }
        Ok(WalStart { bytes: end, crc32: self.crc32_before(end)?, salt: self.salt() })
    }

    fn crc32_before(&mut self, end: u64) -> Result<u32> {
        let mut hasher = crc32fast::Hasher::new();
        let mut at = 0;
        while at < end {
            let len = (end - at).min(READ_BYTES as u64) as usize;
            match self.peek(at, len)? {
                Some(bytes) => hasher.update(bytes),
                None => break,
            }
            at += len as u64;
        }
        Ok(hasher.finalize())
    }

    /// Why [`Replay::next`] found no more.
    ///
    /// # Errors
    /// Io.
    pub fn end(&mut self) -> Result<End> {
        let at = self.at;
        if self.header.is_none() {
            let has_more = self.len() > HEADER_BYTES as u64;
            return Ok(if has_more { End::Headless } else { End::Torn { at } });
        }
        if at == self.len() {
            return Ok(End::Whole);
        }
        let mut budget = SEARCH_BYTES_MAX;
        for from in at..self.len().saturating_sub(FRAME_HEAD_BYTES as u64 - 1) {
            if let Some(len) = self.plausible(from)? {
                budget = budget.saturating_sub(len as u64);
                if budget == 0 || self.frame_size(from)?.is_some() {
                    return Ok(End::Damaged { at });
                }
            }
        }
        Ok(End::Torn { at })
    }

    /// The size of the frame at `from`, if there is a whole one.
    fn frame_size(&mut self, from: u64) -> Result<Option<usize>> {
        let Some(len) = self.plausible(from)? else { return Ok(None) };
        let size = FRAME_HEAD_BYTES + len;
        let salt = self.salt();
        let Some(bytes) = self.peek(from, size)? else { return Ok(None) };
        let mut fields = frame::Fields::new(&bytes[4..8]);
        let good = fields.u32() == Some(frame::checksum(salt, len as u32, &bytes[8..]));
        Ok(good.then_some(size))
    }

    /// The payload length of what may be a frame at `from`, judged by length and type alone.
    fn plausible(&mut self, from: u64) -> Result<Option<usize>> {
        let rest = self.len().saturating_sub(from);
        let Some(head) = self.peek(from, FRAME_HEAD_BYTES)? else { return Ok(None) };
        let len = frame::Fields::new(head).u32().unwrap_or(u32::MAX) as usize;
        let fits = len <= PAYLOAD_BYTES_MAX && (FRAME_HEAD_BYTES + len) as u64 <= rest;
        Ok((fits && frame::is_kind(head[FRAME_HEAD_BYTES - 1])).then_some(len))
    }

    /// `len` bytes from `from`; `None` when the file ends before.
    fn peek(&mut self, from: u64, len: usize) -> Result<Option<&[u8]>> {
        let file_len = self.file.len();
        if from.checked_add(len as u64).is_none_or(|end| end > file_len) {
            return Ok(None);
        }
        let in_window = from >= self.start && from + len as u64 <= self.start + self.window.len() as u64;
        if !in_window {
            let want = (file_len - from).min(len.max(READ_BYTES) as u64) as usize;
            self.window.resize(want, 0);
            self.start = from;
            self.file.read_at(from, &mut self.window).map_err(Error::io("read", &self.path))?;
        }
        let offset = (from - self.start) as usize;
        Ok(Some(&self.window[offset..offset + len]))
    }
}
