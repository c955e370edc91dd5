//! Memory that several requests share: taken in blocks as they need it, and given back when they end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in blocks of this size.
pub const BLOCK_BYTES: usize = 64 << 10;

/// So much memory; clones share one budget.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    blocks: Arc<Semaphore>,
    bytes_max: usize,
}

/// What one request holds of it; given back when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryCharge(Option<OwnedSemaphorePermit>);

/// Others leave too little of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryTaken;

impl MemoryBudget {
    pub fn new(bytes_max: usize) -> Self {
        let blocks = bytes_max.div_ceil(BLOCK_BYTES).min(Semaphore::MAX_PERMITS);
        Self { blocks: Arc::new(Semaphore::new(blocks)), bytes_max }
    }

    /// How much there is in all.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// What is held of it, in whole blocks.
    pub fn bytes_taken(&self) -> usize {
        let blocks = self.bytes_max.div_ceil(BLOCK_BYTES).min(Semaphore::MAX_PERMITS);
        blocks.saturating_sub(self.blocks.available_permits()) * BLOCK_BYTES
    }

    /// Has `charge` hold enough for `bytes` in all.
    ///
    /// # Errors
    /// When others leave too little; it holds what it held then.
    pub fn grow(&self, charge: &mut MemoryCharge, bytes: usize) -> Result<(), MemoryTaken> {
        let missing = bytes.div_ceil(BLOCK_BYTES).saturating_sub(charge.blocks());
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| MemoryTaken)?;
        let more = Arc::clone(&self.blocks).try_acquire_many_owned(missing).map_err(|_| MemoryTaken)?;
        match &mut charge.0 {
            Some(before) => before.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }
}

impl MemoryCharge {
    fn blocks(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Gives back what is held beyond `bytes` in all.
    pub fn shrink(&mut self, bytes: usize) {
        let needed = bytes.div_ceil(BLOCK_BYTES);
        if let Some(blocks) = &mut self.0 {
            drop(blocks.split(blocks.num_permits().saturating_sub(needed)));
        }
    }
}
