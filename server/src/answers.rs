//! The memory of answers until their clients have read them.
//!
//! An answer grows within a budget that all answers share, and releases what the client has read. So many slow clients
//! get `503` instead of filling the memory of the node.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use telem_engine::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::ApiError;

/// Memory is counted in blocks of this size.
const BLOCK_BYTES: usize = 64 << 10;

/// Memory that all answers share; clones share one budget.
#[derive(Clone, Debug)]
pub struct AnswerBudget {
    blocks: Arc<Semaphore>,
    bytes_max: usize,
}

impl AnswerBudget {
    pub fn new(bytes_max: usize) -> Self {
        let blocks = bytes_max.div_ceil(BLOCK_BYTES).min(Semaphore::MAX_PERMITS);
        Self { blocks: Arc::new(Semaphore::new(blocks)), bytes_max }
    }

    /// What an answer of no bytes holds.
    pub fn start(&self) -> AnswerCharge {
        AnswerCharge { budget: self.clone(), blocks: None }
    }
}

/// What one answer holds of the budget; given back when it is dropped.
#[derive(Debug)]
pub struct AnswerCharge {
    budget: AnswerBudget,
    blocks: Option<OwnedSemaphorePermit>,
}

impl AnswerCharge {
    /// Holds enough for `bytes` in all.
    ///
    /// # Errors
    /// Invalid for an answer that is larger than the whole budget, Busy while others leave too little of it.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let bytes_max = self.budget.bytes_max;
        if bytes > bytes_max {
            let what = format!("the answer is larger than {bytes_max} bytes; query less time or fewer series");
            return Err(ApiError::of_kind(ErrorKind::Invalid, what));
        }
        let held = self.blocks.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(BLOCK_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let more = u32::try_from(missing).ok();
        let more = more.and_then(|more| Arc::clone(&self.budget.blocks).try_acquire_many_owned(more).ok());
        let Some(more) = more else {
            let what = format!(
                "answers that are being read take {bytes_max} bytes together, the most that is allowed; try again in a \
                 moment"
            );
            return Err(ApiError::of_kind(ErrorKind::Busy, what));
        };
        match &mut self.blocks {
            Some(before) => before.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// Gives back what is held beyond `bytes` in all.
    pub fn shrink(&mut self, bytes: usize) {
        let needed = bytes.div_ceil(BLOCK_BYTES);
        if let Some(blocks) = &mut self.blocks {
            drop(blocks.split(blocks.num_permits().saturating_sub(needed)));
        }
    }

    /// Bytes that hold this until the last of them is dropped.
    pub fn around(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _held: self })
    }
}

struct HeldBytes {
    bytes: Vec<u8>,
    _held: AnswerCharge,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
