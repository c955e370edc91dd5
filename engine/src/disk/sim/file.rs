//! One simulated file: what the page cache holds, what the medium holds, and what a power loss
//! makes of the difference.
//!
//! A failed sync behaves as on Linux: the pages count as clean afterwards, some of them never
//! reached the medium, readers still see them, and the next sync that succeeds does not bring
//! them back.

use std::ops::Range;

use super::crash::{Filler, Survival};
use super::random::Random;

#[derive(Clone, Debug, Default)]
pub struct File {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// The stretches of `live` that the next sync writes.
    dirty: Vec<Range<usize>>,
    /// A failed sync lost pages that readers still see.
    lost_pages: bool,
}

impl File {
    /// A file whose every byte is durable.
    pub fn durable(bytes: Vec<u8>) -> Self {
        Self { durable: bytes.clone(), live: bytes, ..Self::default() }
    }

    pub fn live(&self) -> &[u8] {
        &self.live
    }

    pub fn append(&mut self, bytes: &[u8]) {
        let start = self.live.len();
        self.live.extend_from_slice(bytes);
        let end = self.live.len();
        match self.dirty.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ if start == end => {}
            _ => self.dirty.push(start..end),
        }
    }

    pub fn truncate(&mut self, len: usize) {
        self.live.truncate(len);
        for stretch in &mut self.dirty {
            stretch.end = stretch.end.min(len);
        }
        self.dirty.retain(|stretch| !stretch.is_empty());
    }

    pub fn sync(&mut self) {
        self.durable = self.synced();
        self.dirty.clear();
    }

    /// The medium took some blocks and lost the others, and the system forgets which.
    pub fn fail_sync(&mut self, random: &mut Random) {
        let block = block_bytes(random);
        for stretch in std::mem::take(&mut self.dirty) {
            for piece in blocks(&stretch, block) {
                if random.coin() {
                    if self.durable.len() < piece.end {
                        self.durable.resize(piece.end, 0);
                    }
                    self.durable[piece.clone()].copy_from_slice(&self.live[piece]);
                } else {
                    self.lost_pages = true;
                }
            }
        }
    }

    pub fn has_lost_pages(&self) -> bool {
        self.lost_pages
    }

    /// What the medium would hold if everything unsynced reached it.
    fn synced(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        bytes.resize(self.live.len(), 0);
        for stretch in &self.dirty {
            bytes[stretch.clone()].copy_from_slice(&self.live[stretch.clone()]);
        }
        bytes
    }

    /// The contents of the medium when the power comes back.
    pub fn after_power_loss(&self, survival: Survival, stale: &[u8], random: &mut Random) -> Vec<u8> {
        match survival {
            Survival::Nothing => self.durable.clone(),
            Survival::Everything => self.synced(),
            Survival::Prefix => {
                let mut bytes = self.synced();
                bytes.truncate(random.between(self.durable.len(), self.live.len()));
                bytes
            }
            Survival::Any => self.some_blocks(stale, random),
        }
    }

    /// Length and blocks persist independently of each other.
    fn some_blocks(&self, stale: &[u8], random: &mut Random) -> Vec<u8> {
        let (before, after) = (self.durable.len(), self.live.len());
        let between = random.between(before, after);
        let len = *random.pick(&[before, after, between]);
        let filler = *random.pick(&[Filler::Zeros, Filler::Zeros, Filler::Garbage, Filler::Stale]);
        let mut bytes = self.durable.clone();
        bytes.truncate(len);
        let unwritten = bytes.len()..len;
        bytes.extend(filler.bytes(unwritten, stale, random));
        let block = block_bytes(random);
        for stretch in &self.dirty {
            for piece in blocks(stretch, block) {
                let piece = piece.start.min(len)..piece.end.min(len);
                if random.coin() {
                    bytes[piece.clone()].copy_from_slice(&self.live[piece]);
                }
            }
        }
        bytes
    }
}

/// From less than a sector, so that small frames tear too, to a page.
fn block_bytes(random: &mut Random) -> usize {
    *random.pick(&[16, 64, 512, 4_096])
}

/// `stretch` cut at the multiples of `block`.
fn blocks(stretch: &Range<usize>, block: usize) -> impl Iterator<Item = Range<usize>> {
    let (start, end) = (stretch.start, stretch.end);
    (start / block..end.div_ceil(block)).map(move |at| (at * block).max(start)..((at + 1) * block).min(end))
}
