//! What a database must hold, may hold, and must not hold.
//!
//! The model gets samples batch by batch, in the order in which the database got them. When `Synced`, `sync`, `flush`
//! or `close` succeeds, the batches that it covers must survive from then on. A power loss may lose later batches, but
//! only from the end: what survives is a prefix of the order, in whole batches. A batch that the database refused may
//! come back if the process dies before the next flush, because its frame may be in the WAL.

use std::collections::BTreeMap;

use super::SERIES;
use crate::time::Timestamp;
use crate::value::Value;

/// A series by its number, see [`super::key`]; [`SERIES`] stands for metadata, which is no sample in the WAL.
pub type SeriesNumber = usize;
pub type Sample = (SeriesNumber, Timestamp, Value);
pub type Content = BTreeMap<(SeriesNumber, Timestamp), Value>;

/// No more refused batches than this come back at once: each was the last of its WAL file.
const COME_BACK_MAX: usize = 2;

#[derive(Clone, Debug, Default)]
pub struct Model {
    /// What flushes made durable.
    flushed: Content,
    /// What came since, oldest first.
    batches: Vec<Batch>,
    /// How many of `batches` must be there, unless they were refused.
    synced: usize,
    /// A flush may or may not have come to its end: no telling what recovery finds in the WAL.
    flush_in_doubt: bool,
}

#[derive(Clone, Debug)]
struct Batch {
    samples: Vec<Sample>,
    refused: bool,
}

/// What recovery says that it replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replayed {
    pub samples: u64,
}

impl Model {
    pub fn accept(&mut self, samples: &[Sample]) {
        self.batches.push(Batch { samples: samples.to_vec(), refused: false });
    }

    pub fn refuse(&mut self, samples: &[Sample]) {
        self.batches.push(Batch { samples: samples.to_vec(), refused: true });
    }

    /// Everything accepted must be there from now on.
    pub fn sync(&mut self) {
        self.synced = self.batches.len();
    }

    /// As [`Model::sync`], and what was refused is gone for good.
    pub fn flush(&mut self) {
        *self = Self { flushed: self.live(), ..Self::default() };
    }

    /// No success counts any more: the medium itself lost something.
    pub fn forget_syncs(&mut self) {
        self.synced = 0;
    }

    /// A flush failed or was cut off.
    pub fn doubt_flush(&mut self) {
        self.flush_in_doubt = true;
    }

    /// What a reader sees.
    pub fn live(&self) -> Content {
        let accepted = self.batches.iter().filter(|batch| !batch.refused);
        content(&self.flushed, accepted)
    }

    /// Settles what is there after the process died and `found` was recovered: nothing accepted is lost.
    pub fn settle_after_kill(&mut self, found: &Content, replayed: Replayed) -> Result<(), String> {
        let Some(kept) = self.explain(found, self.batches.len(), replayed) else {
            return Err(format!("after a kill, {replayed:?}: {}", difference(&self.live(), found)));
        };
        let synced = kept[..self.synced].iter().filter(|kept| **kept).count();
        let mut kept = kept.into_iter();
        self.batches.retain(|_| kept.next().unwrap_or(false));
        for batch in &mut self.batches {
            batch.refused = false;
        }
        self.synced = synced;
        Ok(())
    }

    /// Settles what is there after a power loss: a prefix is kept, and all of it is durable.
    pub fn settle_after_power_loss(&mut self, found: &Content, replayed: Replayed) -> Result<(), String> {
        let lens = self.synced..=self.batches.len();
        let Some(kept) = lens.rev().find_map(|len| self.explain(found, len, replayed)) else {
            let mut must = self.clone();
            must.batches.truncate(self.synced);
            return Err(format!(
                "after a power loss, {replayed:?}: no prefix of {} batches, {} of them synced, explains what is there\n\
                 against what must be there: {}\nagainst all of it: {}",
                self.batches.len(),
                self.synced,
                difference(&must.live(), found),
                difference(&self.live(), found)
            ));
        };
        let mut kept_batches = kept.iter();
        self.batches.retain(|_| kept_batches.next().copied().unwrap_or(false));
        for batch in &mut self.batches {
            batch.refused = false;
        }
        self.synced = self.batches.len();
        Ok(())
    }

    /// Which of the first `len` batches were kept, if these can make `found`: all accepted ones
    /// and at most [`COME_BACK_MAX`] refused ones.
    fn explain(&self, found: &Content, len: usize, replayed: Replayed) -> Option<Vec<bool>> {
        let refused: Vec<usize> = (0..len).filter(|at| self.batches[*at].refused).collect();
        choices(&refused, COME_BACK_MAX).into_iter().find_map(|back| {
            let kept: Vec<bool> = (0..len).map(|at| !self.batches[at].refused || back.contains(&at)).collect();
            let batches = || self.batches.iter().zip(&kept).filter_map(|(batch, kept)| kept.then_some(batch));
            let samples = batches().flat_map(|batch| &batch.samples).filter(|(series, ..)| *series < SERIES).count();
            let counted = samples as u64 == replayed.samples || self.flush_in_doubt;
            (counted && content(&self.flushed, batches()) == *found).then_some(kept)
        })
    }
}

fn content<'a>(base: &Content, batches: impl Iterator<Item = &'a Batch>) -> Content {
    let mut content = base.clone();
    for batch in batches {
        content.extend(batch.samples.iter().map(|(series, time, value)| ((*series, *time), *value)));
    }
    content
}

/// Every choice of at most `max` of `from`, the empty one first.
fn choices(from: &[usize], max: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut start = 0;
    for _ in 0..max {
        let end = all.len();
        for at in start..end {
            let last: Option<usize> = all[at].last().copied();
            for next in from.iter().filter(|next| last.is_none_or(|last| **next > last)) {
                let mut longer = all[at].clone();
                longer.push(*next);
                all.push(longer);
            }
        }
        start = end;
    }
    all
}

/// Where two contents differ, for people.
pub fn difference(expected: &Content, found: &Content) -> String {
    let missing = expected.iter().filter(|(at, _)| !found.contains_key(at));
    let surplus = found.iter().filter(|(at, _)| !expected.contains_key(at));
    let changed = expected.iter().filter_map(|(at, value)| match found.get(at) {
        Some(other) if other != value => Some((at, value, other)),
        _ => None,
    });
    let (missing, surplus): (Vec<_>, Vec<_>) = (missing.collect(), surplus.collect());
    let changed: Vec<_> = changed.collect();
    format!(
        "{} samples expected, {} found; {} missing: {:?}; {} that nobody sent: {:?}; {} changed: {:?}",
        expected.len(),
        found.len(),
        missing.len(),
        first(&missing),
        surplus.len(),
        first(&surplus),
        changed.len(),
        first(&changed),
    )
}

/// Enough to see what is wrong.
fn first<T>(of: &[T]) -> &[T] {
    &of[..of.len().min(3)]
}
