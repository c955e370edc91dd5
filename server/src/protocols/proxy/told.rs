//! What an original that polls this server was told. An original adds to its sums what a counter rose by from one poll to
//! the next, and the whole of it at its first poll; it counts twice what a counter has when it meets its name. It drops
//! a child at the first poll that fails, and keeps its sums. So this server lets it poll an address that [`climb`](super::climb)
//! makes anew for each join, where a counter
//!
//! - is 0 in the first answer that has it, and
//! - has from then on what was counted beyond what originals were told before that join, or, in a life of this server
//!   before this one, could have been told.
//!
//! What an answer had counts as told when it was handed out whole to a client that still waited. If it did not arrive all
//! the same, what it had more than the one before is missing above; nothing is ever counted twice.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::AHashMap;
use telem_engine::Timestamp;
use telem_ingest::counters::{CounterReading, CounterValue};
use tokio::sync::Notify;

use super::shapes::finite;

/// What stands before the number of a join in the address that an original polls.
pub const SINCE: &str = "/since/";

/// The memory of whoever stands at the top of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootMemory {
    /// It never heard of this server, or was started anew since.
    Empty,
    /// It has what it was told before.
    Kept,
}

/// What was told above, by job.
#[derive(Default)]
pub struct ToldAbove {
    table: Mutex<ToldTable>,
    answered: Notify,
}

#[derive(Default)]
struct ToldTable {
    /// The number of the last join; 0 where there was none.
    join: u64,
    /// Who polls has more than this process told.
    is_remembered: bool,
    /// Answers that were begun. A join counts as one, so that none that was begun before it ends after it.
    answers: u64,
    /// When the last one was begun; before, when the join was.
    polled_at: Duration,
    /// One of the last join had what was counted.
    has_counts: bool,
    jobs: BTreeMap<String, ToldJob>,
    last: Option<LastTold>,
}

/// The last answer that was handed out whole.
#[derive(Clone, Copy)]
struct LastTold {
    began: Duration,
    /// Counters stand at 0 in it that have more.
    has_unsaid: bool,
}

#[derive(Default)]
struct ToldJob {
    /// Of its run; a sum has none.
    begin: Option<Timestamp>,
    /// It stood in the last answer.
    is_live: bool,
    /// The answer in which it stands.
    answer: u64,
    /// Nobody knows what was told of it, so what it has now counts as told.
    is_unknown: bool,
    counters: AHashMap<Arc<str>, ToldCounter>,
}

#[derive(Clone, Copy, Default)]
struct ToldCounter {
    /// What was told before this join.
    base: f64,
    /// What was told in all.
    told: f64,
    /// The same once the answer that is being made has arrived.
    telling: Option<f64>,
    /// Who polls knows its name.
    is_known: bool,
}

impl ToldCounter {
    fn told(value: f64) -> Self {
        Self { base: value, told: value, ..Self::default() }
    }
}

/// An answer that is being made.
#[derive(Debug)]
pub struct ToldAnswer {
    number: u64,
    began: Duration,
    has_unsaid: bool,
}

impl fmt::Debug for ToldAbove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.lock();
        f.debug_struct("ToldAbove").field("join", &table.join).field("jobs", &table.jobs.len()).finish_non_exhaustive()
    }
}

impl ToldAbove {
    fn lock(&self) -> MutexGuard<'_, ToldTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An earlier process may have told these.
    pub fn assume(&self, id: &str, begin: Option<Timestamp>, readings: &[CounterReading]) {
        let mut table = self.lock();
        let job = table.jobs.entry(id.to_owned()).or_insert_with(|| ToldJob { begin, ..ToldJob::default() });
        for reading in readings {
            if let CounterValue::Counter(value) = reading.value
                && reading.value.has_data()
            {
                job.counters.insert(Arc::clone(&reading.name), ToldCounter::told(value));
            }
        }
    }

    /// What of a job's counters was not told: each that has more, with what was told of it.
    pub fn untold(&self, id: &str, begin: Option<Timestamp>, readings: Vec<CounterReading>) -> Vec<(Arc<str>, f64)> {
        let table = self.lock();
        let job = table.jobs.get(id).filter(|job| job.begin == begin);
        let is_unknown = job.map_or(table.is_remembered && begin.is_none(), |job| job.is_unknown);
        let of_one = |reading: CounterReading| {
            let CounterValue::Counter(now) = reading.value else { return None };
            let known = job.and_then(|job| job.counters.get(&reading.name)).map(|counter| counter.told);
            let told = known.unwrap_or(if is_unknown { finite(now) } else { 0.0 });
            (told != finite(now)).then_some((reading.name, told))
        };
        readings.into_iter().filter_map(of_one).collect()
    }

    /// An earlier process told less of these than was assumed.
    pub fn correct(&self, id: &str, begin: Option<Timestamp>, told: impl Iterator<Item = (Arc<str>, f64)>) {
        let mut table = self.lock();
        let Some(job) = table.jobs.get_mut(id).filter(|job| job.begin == begin) else { return };
        job.counters.extend(told.map(|(name, told)| (name, ToldCounter::told(told))));
    }

    /// Begins another join, whose number in the address it gives; the one before ends. `at` is the time by a clock that
    /// never jumps.
    pub fn join(&self, now: Timestamp, at: Duration, memory: RootMemory) -> u64 {
        let mut table = self.lock();
        table.answers += 1;
        table.polled_at = at;
        table.has_counts = false;
        table.is_remembered = memory == RootMemory::Kept;
        if memory == RootMemory::Empty {
            table.jobs.retain(|_, job| job.begin.is_none());
            table.jobs.values_mut().for_each(|job| job.counters = AHashMap::new());
        }
        table.jobs.values_mut().for_each(|job| job.is_live = false);
        table.last = None;
        // No other life of this server had it.
        let number = u64::try_from(now.micros()).unwrap_or(0).max(table.join + 1);
        table.join = number;
        number
    }

    /// Ends the last join: who polls for it gets nothing from now on, also of what was begun.
    pub fn end_join(&self) {
        let mut table = self.lock();
        table.answers += 1;
        // A number that nobody was told.
        table.join += 1;
    }

    /// Begins an answer to who polls for this join; `None` where there was another one since.
    pub fn answer(&self, join: u64, began: Duration) -> Option<ToldAnswer> {
        let mut table = self.lock();
        if join == 0 || join != table.join {
            return None;
        }
        table.answers += 1;
        table.polled_at = began;
        Some(ToldAnswer { number: table.answers, began, has_unsaid: false })
    }

    /// Whether there was no other join since this one.
    pub fn is_last(&self, join: u64) -> bool {
        join != 0 && join == self.lock().join
    }

    /// When who polls for the last join did so last, or was asked to.
    pub fn polled_at(&self) -> Duration {
        self.lock().polled_at
    }

    /// Whether the answer that was begun is the first of its join that has what was counted: the one before, in which
    /// everything is 0, was handed out whole. Says so once.
    pub fn is_first_with_counts(&self) -> bool {
        let mut table = self.lock();
        let is_first = table.last.is_some() && !table.has_counts;
        table.has_counts |= is_first;
        is_first
    }

    /// Whether there was such an answer.
    pub fn has_counts(&self) -> bool {
        self.lock().has_counts
    }

    /// A job stands in an answer from now on. `begin` is that of its run.
    pub fn begin_job(&self, answer: &ToldAnswer, id: &str, begin: Option<Timestamp>) {
        let mut table = self.lock();
        let is_unknown = table.is_remembered && begin.is_none();
        let job =
            table.jobs.entry(id.to_owned()).or_insert_with(|| ToldJob { is_unknown, begin, ..ToldJob::default() });
        if job.begin != begin {
            *job = ToldJob { begin, ..ToldJob::default() };
        }
        for counter in job.counters.values_mut() {
            // What an answer had that did not arrive is not told.
            counter.telling = None;
            if !job.is_live {
                *counter = ToldCounter::told(counter.told);
            }
        }
        job.answer = answer.number;
    }

    /// Makes of a job's readings what an answer has of them; whether the answer is still one.
    #[must_use]
    pub fn tell(&self, answer: &mut ToldAnswer, id: &str, readings: &mut Vec<CounterReading>) -> bool {
        let mut table = self.lock();
        if answer.number != table.answers {
            return false;
        }
        let Some(job) = table.jobs.get_mut(id) else { return false };
        readings.retain_mut(|reading| {
            let CounterValue::Counter(value) = &mut reading.value else { return reading.value.has_data() };
            let now = finite(*value);
            let counter = match job.counters.get_mut(&reading.name) {
                Some(counter) => counter,
                None if now == 0.0 => return false,
                None => {
                    let before = if job.is_unknown { now } else { 0.0 };
                    job.counters.entry(Arc::clone(&reading.name)).or_insert(ToldCounter::told(before))
                }
            };
            if counter.is_known {
                *value = now - counter.base;
                counter.telling = Some(now);
            } else {
                answer.has_unsaid |= now != counter.base;
                *value = 0.0;
                counter.telling = Some(counter.base);
            }
            true
        });
        true
    }

    /// What an answer must say once more of a job, all of which it has said: an original takes a counter that it misses
    /// for one that begins anew.
    /// `None` where the answer is none any more.
    pub fn vanished(&self, answer: &ToldAnswer, id: &str) -> Option<Vec<CounterReading>> {
        let mut table = self.lock();
        if answer.number != table.answers {
            return None;
        }
        let job = table.jobs.get_mut(id)?;
        let missing = job.counters.iter_mut().filter(|(_, counter)| counter.is_known && counter.telling.is_none());
        let again = missing.map(|(name, counter)| {
            counter.telling = Some(counter.told);
            let value = CounterValue::Counter(counter.told - counter.base);
            CounterReading { name: Arc::clone(name), doc: "".into(), value }
        });
        Some(again.collect())
    }

    /// An answer was handed out whole. Of a job that it does not have anything is kept only while that may go on, as
    /// `goes_on` says.
    pub fn end(&self, answer: &ToldAnswer, goes_on: impl Fn(&str, Timestamp) -> bool) {
        {
            let mut table = self.lock();
            if answer.number != table.answers {
                return;
            }
            table.jobs.retain(|id, job| {
                job.is_live = job.answer == answer.number;
                if !job.is_live {
                    return job.begin.is_some_and(|begin| goes_on(id, begin));
                }
                job.is_unknown = false;
                for counter in job.counters.values_mut() {
                    if let Some(told) = counter.telling.take() {
                        (counter.told, counter.is_known) = (told, true);
                    }
                }
                true
            });
            table.last = Some(LastTold { began: answer.began, has_unsaid: answer.has_unsaid });
        }
        self.answered.notify_waiters();
    }

    /// Until an answer that began at `time` or later was handed out whole.
    pub async fn answered_since(&self, time: Duration) {
        self.until(|last| last.began > time).await;
    }

    /// The same, of one that has all of every counter.
    pub async fn all_told_since(&self, time: Duration) {
        self.until(|last| last.began > time && !last.has_unsaid).await;
    }

    async fn until(&self, is_met: impl Fn(LastTold) -> bool) {
        loop {
            let answered = self.answered.notified();
            tokio::pin!(answered);
            // From here on it is heard.
            answered.as_mut().enable();
            if self.lock().last.is_some_and(&is_met) {
                return;
            }
            answered.await;
        }
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let entry = size_of::<(Arc<str>, ToldCounter)>() + 1;
        self.lock().jobs.values().map(|job| job.counters.capacity() * entry).sum()
    }
}
