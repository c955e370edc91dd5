//! The bounds of one query, on every thread that works for it: whether the query is still wanted, and the memory pool
//! in which its values are counted. DataFusion passes neither to the functions that it calls, so threads carry both.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use super::{PLANNED_BYTES_MAX, VALUE_BYTES_MAX};
use crate::error::Error;

thread_local! {
    static CURRENT: RefCell<Option<QuestionBounds>> = const { RefCell::new(None) };
}

/// What threads that work for one question at a time share.
#[derive(Clone, Debug)]
pub(crate) struct QuestionBounds {
    stopped: Arc<AtomicBool>,
    /// Whether it is for parts of any number of questions, which heads sent.
    for_heads: Arc<AtomicBool>,
    /// The reason, if it is neither the deadline nor a client that is gone.
    refused: Arc<Mutex<Option<TooMuch>>>,
    /// Most bytes of one value.
    value_bytes_max: Arc<AtomicU64>,
    /// Empty, and of the consumer that all values are counted under.
    memory: Arc<MemoryReservation>,
}

impl QuestionBounds {
    pub fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        let memory = MemoryConsumer::new("values that functions made").register(pool);
        let value_bytes_max = Arc::new(AtomicU64::new(VALUE_BYTES_MAX));
        let (stopped, for_heads) = Default::default();
        Self { stopped, for_heads, refused: Arc::default(), value_bytes_max, memory: Arc::new(memory) }
    }

    /// From now on whatever asks [`check`] on these threads ends with an error.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The threads are for another question now.
    pub fn begin(&self) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.stopped.store(false, Ordering::Relaxed);
        self.value_bytes_max.store(PLANNED_BYTES_MAX, Ordering::Relaxed);
    }

    /// The threads are for whatever heads send from now on.
    pub fn begin_for_heads(&self) {
        self.begin();
        self.for_heads.store(true, Ordering::Relaxed);
        self.value_bytes_max.store(VALUE_BYTES_MAX, Ordering::Relaxed);
    }

    /// This thread works under these bounds, for as long as it lives.
    pub fn rule_this_thread(&self) {
        CURRENT.set(Some(self.clone()));
    }
}

/// What a function would have made, and may not.
#[derive(Clone, Debug)]
pub(crate) struct TooMuch {
    pub function: String,
    pub what: &'static str,
    pub found: u64,
    pub max: u64,
}

impl From<TooMuch> for DataFusionError {
    fn from(TooMuch { function, what, found, max }: TooMuch) -> Self {
        DataFusionError::External(Box::new(Error::TooMuchMade { function, what, found, max }))
    }
}

/// Whether the question that this thread works for goes on.
///
/// # Errors
/// Stopped if its client is gone; TooMuchMade if it was refused before.
pub(crate) fn check() -> Result<()> {
    CURRENT.with_borrow(|current| match current {
        Some(bounds) if bounds.stopped.load(Ordering::Relaxed) => {
            let refused = bounds.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let stopped = || DataFusionError::External(Box::new(Error::Stopped));
            Err(refused.map_or_else(stopped, DataFusionError::from))
        }
        _ => Ok(()),
    })
}

/// Ends the question that this thread works for, wherever it is: an optimizer that could not work a constant out would
/// only try again.
pub(crate) fn refuse(much: TooMuch) -> DataFusionError {
    CURRENT.with_borrow(|current| {
        let Some(bounds) = current else { return much.into() };
        if !bounds.for_heads.load(Ordering::Relaxed) {
            bounds.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| much.clone());
            bounds.stop();
        }
        much.into()
    })
}

/// Most bytes of one value that a function makes here.
pub(crate) fn value_bytes_max() -> u64 {
    CURRENT.with_borrow(|current| {
        current.as_ref().map_or(VALUE_BYTES_MAX, |bounds| bounds.value_bytes_max.load(Ordering::Relaxed))
    })
}

/// The question that this thread works for is planned, and makes no larger values from now on.
pub(crate) fn planned(value_bytes_max: Option<u64>) {
    CURRENT.with_borrow(|current| {
        if let Some(bounds) = current {
            let max = value_bytes_max.unwrap_or(VALUE_BYTES_MAX);
            bounds.value_bytes_max.store(max, Ordering::Relaxed);
        }
    });
}

/// Reserves this many bytes for values from the pool of all queries, until the returned reservation is dropped. `None`
/// on a thread that works for no question.
///
/// # Errors
/// Memory, where there is not so much left.
pub(crate) fn reserve(bytes: usize) -> Result<Option<MemoryReservation>> {
    let empty = CURRENT.with_borrow(|current| current.as_ref().map(|bounds| bounds.memory.new_empty()));
    let Some(reservation) = empty else { return Ok(None) };
    reservation.try_grow(bytes)?;
    Ok(Some(reservation))
}
