//! The frame that a connection is sending. Memory is taken when its bytes come, and given back when it was read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BufMut;
use telem_ingest::decode::frames::{FrameHead, HEAD_BYTES, OPENING_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bounds::FIRST_BYTES;

/// Memory is counted in blocks of this size.
const BLOCK_BYTES: usize = 4 << 10;

/// The memory of all frames on their way in.
#[derive(Clone, Debug)]
pub struct FrameMemory {
    blocks: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// What one frame holds of it; given back when it is dropped.
pub type FrameCharge = OwnedSemaphorePermit;

impl FrameMemory {
    pub fn new(bytes_max: usize) -> Self {
        let blocks = (bytes_max / BLOCK_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self { blocks: Arc::new(Semaphore::new(blocks)), waiting: Arc::default() }
    }

    /// Whether frames wait for it.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Room for a whole frame at once: none that has a part of its room waits for more.
    async fn take(&self, bytes: usize) -> io::Result<FrameCharge> {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES)).map_err(io::Error::other)?;
        if let Ok(charge) = Arc::clone(&self.blocks).try_acquire_many_owned(blocks) {
            return Ok(charge);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = WaitingFrame(&self.waiting);
        // It is never closed.
        Arc::clone(&self.blocks).acquire_many_owned(blocks).await.map_err(io::Error::other)
    }
}

/// One that waits for memory.
struct WaitingFrame<'a>(&'a AtomicUsize);

impl Drop for WaitingFrame<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivedMessage {
    /// Eight bytes: the opening, or the head of a frame.
    Head([u8; HEAD_BYTES]),
    /// The frame is whole.
    Frame,
    /// Bytes, but not all.
    Some,
    /// The client sends nothing more.
    End,
}

/// A whole frame, with the memory that it holds.
#[derive(Debug)]
pub struct WholeFrame {
    pub kind: u8,
    pub body: Vec<u8>,
    _charge: Option<FrameCharge>,
}

#[derive(Debug)]
pub struct FrameInbox {
    memory: FrameMemory,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that are there.
    have: usize,
    /// What the head said.
    frame: Option<FrameHead>,
    body: Vec<u8>,
    charge: Option<FrameCharge>,
    /// Bytes that came since the connection began.
    pub bytes: u64,
}

const _: () = assert!(OPENING_BYTES == HEAD_BYTES, "the opening is read as the head of a frame is");

impl FrameInbox {
    pub fn new(memory: FrameMemory) -> Self {
        Self { memory, head: [0; HEAD_BYTES], have: 0, frame: None, body: Vec::new(), charge: None, bytes: 0 }
    }

    /// Whether a part of a frame is there.
    pub fn is_within(&self) -> bool {
        self.have > 0
    }

    /// Whether it holds memory that others wait for.
    pub fn holds_up_others(&self) -> bool {
        self.charge.is_some() && self.memory.is_short()
    }

    /// The head that came says this.
    pub fn expect(&mut self, frame: FrameHead) {
        self.frame = Some(frame);
    }

    /// The head that came was the opening.
    pub fn opened(&mut self) {
        self.have = 0;
    }

    /// Takes the frame that is whole.
    pub fn take(&mut self) -> Option<WholeFrame> {
        let frame = self.frame.take()?;
        self.have = 0;
        Some(WholeFrame { kind: frame.kind, body: std::mem::take(&mut self.body), _charge: self.charge.take() })
    }

    /// Reads once. It may be dropped at any time and called again.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> io::Result<ArrivedMessage> {
        let Some(frame) = self.frame else {
            let read = from.read(&mut self.head[self.have..]).await?;
            self.have += read;
            self.bytes += read as u64;
            return Ok(match read {
                0 => ArrivedMessage::End,
                _ if self.have == HEAD_BYTES => ArrivedMessage::Head(self.head),
                _ => ArrivedMessage::Some,
            });
        };
        let missing = frame.body - self.body.len();
        if missing == 0 {
            return Ok(ArrivedMessage::Frame);
        }
        if self.body.len() == self.body.capacity() {
            let room = if self.body.is_empty() { frame.body.min(FIRST_BYTES) } else { frame.body };
            if room > FIRST_BYTES && self.charge.is_none() {
                self.charge = Some(self.memory.take(frame.body).await?);
            }
            self.body.reserve_exact(room - self.body.len());
        }
        let read = from.read_buf(&mut (&mut self.body).limit(missing)).await?;
        self.bytes += read as u64;
        Ok(match read {
            0 => ArrivedMessage::End,
            read if read == missing => ArrivedMessage::Frame,
            _ => ArrivedMessage::Some,
        })
    }
}
