//! The memory of answers until their clients have read them.
//!
//! An answer grows within a budget that all answers share, and releases what the client has read. So many slow clients
//! get `503` instead of filling the memory of the node.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use telem_engine::ErrorKind;

use crate::http::ApiError;
use crate::memory::{MemoryBudget, MemoryCharge, MemoryTaken};

/// Memory that all answers share; clones share one budget.
#[derive(Clone, Debug)]
pub struct AnswerBudget(MemoryBudget);

impl AnswerBudget {
    pub fn new(bytes_max: usize) -> Self {
        Self(MemoryBudget::new(bytes_max))
    }

    /// Memory that they may take together.
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max()
    }

    /// Memory that they take now.
    pub fn bytes_taken(&self) -> usize {
        self.0.bytes_taken()
    }

    /// What an answer of no bytes holds.
    pub fn start(&self) -> AnswerCharge {
        AnswerCharge { budget: self.clone(), charge: MemoryCharge::default() }
    }
}

/// What one answer holds of the budget; given back when it is dropped.
#[derive(Debug)]
pub struct AnswerCharge {
    budget: AnswerBudget,
    charge: MemoryCharge,
}

impl AnswerCharge {
    /// Holds enough for `bytes` in all.
    ///
    /// # Errors
    /// Invalid for an answer that is larger than the whole budget, Busy while others leave too little of it.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let bytes_max = self.budget.bytes_max();
        if bytes > bytes_max {
            let what = format!("the answer is larger than {bytes_max} bytes; query less time or fewer series");
            return Err(ApiError::of_kind(ErrorKind::Invalid, what));
        }
        self.budget.0.grow(&mut self.charge, bytes).map_err(|MemoryTaken| {
            let what = format!(
                "answers that are being read take {bytes_max} bytes together, the most that is allowed; try again in a \
                 moment"
            );
            ApiError::of_kind(ErrorKind::Busy, what)
        })
    }

    /// Gives back what is held beyond `bytes` in all.
    pub fn shrink(&mut self, bytes: usize) {
        self.charge.shrink(bytes);
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
