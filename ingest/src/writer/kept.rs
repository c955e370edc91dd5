//! Batches that the database refuses for the moment and that no client would send again. They wait in memory, in order
//! and up to a limit; samples beyond it are counted as lost.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use telem_engine::{Clock, Error, ErrorKind, SampleBatch, Timestamp};

/// How long nothing may be refused before samples count as written again: a disk that is all but full takes a small
/// batch and refuses the next large one.
pub(crate) const STEADY: Duration = Duration::from_secs(2);

/// Samples that are in no database and were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub samples: u64,
    /// Their earliest and their latest time.
    pub span: Option<(Timestamp, Timestamp)>,
}

impl Lost {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Lost) -> Lost {
        let span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (span, None) | (None, span) => span,
        };
        Lost { samples: self.samples + other.samples, span }
    }

    fn add(&mut self, batch: &SampleBatch) {
        self.samples += batch.len() as u64;
        for (_, time, _) in batch.iter() {
            let (from, to) = self.span.unwrap_or((time, time));
            self.span = Some((from.min(time), to.max(time)));
        }
    }
}

/// What others may ask.
#[derive(Debug, Default)]
pub(super) struct KeptStats {
    pub samples: AtomicU64,
    lost: Mutex<Lost>,
    unwritten: Mutex<Lost>,
}

impl KeptStats {
    pub fn unwritten(&self) -> Lost {
        *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lost(&self) -> Lost {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, batch: &SampleBatch) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
    }
}

#[derive(Debug)]
pub(super) struct Kept {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    samples_max: usize,
    batches: VecDeque<SampleBatch>,
    samples: usize,
    stats: Arc<KeptStats>,
    /// The time of the last refusal, from the first logged refusal until the log says that samples are written again.
    refused: Option<Duration>,
    lost_before: u64,
}

impl Kept {
    pub fn new(dir: &Path, clock: Arc<dyn Clock>, samples_max: usize, stats: Arc<KeptStats>) -> Self {
        Self {
            dir: dir.to_path_buf(),
            clock,
            samples_max,
            batches: VecDeque::new(),
            samples: 0,
            stats,
            refused: None,
            lost_before: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Keeps `batch` behind the others. If there is no room for it, the oldest are dropped.
    pub fn keep(&mut self, batch: SampleBatch) {
        self.samples += batch.len();
        self.batches.push_back(batch);
        while self.samples > self.samples_max
            && let Some(oldest) = self.batches.pop_front()
        {
            self.samples -= oldest.len();
            self.stats.lose(&oldest);
        }
        self.count();
    }

    /// Hands them to `append` one after another, until it refuses one. How many it took.
    pub fn drain(&mut self, mut append: impl FnMut(&SampleBatch) -> Result<(), Error>) -> (u64, Result<(), Error>) {
        let mut taken = 0;
        while let Some(oldest) = self.batches.front() {
            match append(oldest) {
                Ok(()) => taken += 1,
                Err(error) if is_for_now(&error) => return (taken, Err(error)),
                // It would be refused for ever.
                Err(_) => self.stats.lose(oldest),
            }
            self.samples -= oldest.len();
            self.batches.pop_front();
            self.count();
        }
        (taken, Ok(()))
    }

    /// As [`Kept::drain`], into memory alone: see [`KeptStats::unwritten`].
    pub fn drain_into_memory(
        &mut self,
        mut append: impl FnMut(&SampleBatch) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stats = Arc::clone(&self.stats);
        self.drain(|batch| {
            append(batch)?;
            stats.unwritten.lock().unwrap_or_else(PoisonError::into_inner).add(batch);
            Ok(())
        })
        .1
    }

    /// What was in memory alone is written.
    pub fn all_written(&self) {
        *self.stats.unwritten.lock().unwrap_or_else(PoisonError::into_inner) = Lost::default();
    }

    /// They will not be written any more.
    pub fn lose_all(&mut self) {
        for batch in self.batches.drain(..) {
            self.stats.lose(&batch);
        }
        self.samples = 0;
        self.count();
    }

    /// Records that the database refused samples. Returns whether to log it now.
    pub fn refused(&mut self, error: &Error) -> bool {
        if error.kind() != ErrorKind::Unavailable || self.refused.replace(self.clock.monotonic()).is_some() {
            return false;
        }
        self.lost_before = self.stats.lost().samples;
        let free = free(&self.dir);
        tracing::warn!(
            "samples cannot be written: {error}{free}. Meanwhile what clients send is refused; what is collected waits \
             in memory, up to {} samples, and then the oldest are lost",
            self.samples_max
        );
        true
    }

    /// Records that the database accepted samples. Returns whether to log it now: none wait, and none was refused for a
    /// while.
    pub fn works(&mut self) -> bool {
        let is_steady = |refused: Duration| self.clock.monotonic().saturating_sub(refused) >= STEADY;
        self.refused.is_some_and(is_steady) && self.works_at_last()
    }

    /// As [`Kept::works`], where nothing more will come.
    pub fn works_at_last(&mut self) -> bool {
        let works = self.is_empty() && self.refused.take().is_some();
        if works {
            let lost = self.stats.lost().samples - self.lost_before;
            tracing::warn!("samples are written again, including those that waited; {lost} were lost meanwhile");
        }
        works
    }

    fn count(&self) {
        self.stats.samples.store(self.samples as u64, Ordering::Relaxed);
    }
}

/// Whether the same batch may be taken later.
pub(super) fn is_for_now(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Busy)
}

/// The free space of the file system of `dir`, for people; empty if that is unknown.
fn free(dir: &Path) -> String {
    match rustix::fs::statvfs(dir) {
        Ok(found) => {
            format!(" ({} bytes are free in {})", found.f_bavail.saturating_mul(found.f_frsize), dir.display())
        }
        Err(error) => format!(" ({}: {error})", dir.display()),
    }
}

#[cfg(test)]
mod tests;
