//! Cores that no question uses, lent to one that has much to do.
//!
//! Its work is cut into pieces that lie in a list. The thread of the question takes one after the other until none is
//! left. Threads that may block take some too, as long as few questions run ([`SpareCores`]): with more of them every core
//! has work, and a change of threads would only cost. Nobody waits for a thread that has not begun. A thread that began
//! late, or was waited for, tells that something else uses its core, such as the job: then none is asked for a while,
//! longer each time. What is made of the pieces comes in their order, so it does not depend on who made what.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::Result;
use telem_engine::Clock;
use tokio::runtime::Handle;

use super::{LeafContext, Reading, Stop};

/// How long after questions were too many no core is spare: those of a dashboard come one after the other.
const CALM_AFTER: Duration = Duration::from_millis(20);
/// How long none is where another process was found to use it: this first, and twice as long each time that it is found
/// again, since a single thread is late now and then.
const BUSY_FOR: Duration = Duration::from_millis(4);
/// How often that is doubled, at the most: to a quarter of a second.
const BUSY_DOUBLED_MAX: u32 = 6;
/// A thread on a spare core begins sooner, even if it must be made, and even on a virtual machine.
const LATE: Duration = Duration::from_millis(1);
/// About half a millisecond, and a fourth of one: to wake another thread up, and to wait for it, takes some hundredths, and
/// a tenth on a virtual machine.
const PIECE_SIZES: PieceSizes = PieceSizes { shared_rows_min: 128 << 10, rows_min: 64 << 10 };
/// Rows of a piece above which there are more pieces instead, so that other questions soon have their cores back: some
/// milliseconds.
const PIECE_ROWS_MAX: u64 = 1 << 20;
/// Rows of a question that is read in pieces even if no core is spare when it begins, since one may be later: a tenth of a
/// second.
const LONG_ROWS_MIN: u64 = 16 << 20;
/// What a series costs besides its rows, in rows.
const ROWS_OF_SERIES: u64 = 64;
/// Pieces for each core: with one each the slowest thread would be waited for.
const PIECES_OF_CORE: usize = 2;
/// How often who waits for the pieces of others looks whether anybody still waits for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many questions run, and so how many cores are spare. Clones are of the same question; by default there are none.
#[derive(Clone, Debug, Default)]
pub struct SpareCores {
    questions: Option<Arc<Questions>>,
    /// How many the question has.
    own: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Questions {
    cores: usize,
    running: AtomicUsize,
    /// Threads that work for any of them beside its own.
    lent: AtomicUsize,
    /// In microseconds of the clock.
    crowded_until: AtomicU64,
    /// How often others were late, less half of that for each question that they helped in time.
    lates: AtomicU32,
    clock: Arc<dyn Clock>,
    sizes: PieceSizes,
}

/// How much work is worth another thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct PieceSizes {
    /// Rows below which a question is answered by its thread alone.
    pub shared_rows_min: u64,
    /// Fewest rows of a piece.
    pub rows_min: u64,
}

impl Questions {
    fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// No core is spare for so long.
    fn crowd(&self, time: Duration) {
        let until = u64::try_from((self.now() + time).as_micros()).unwrap_or(u64::MAX);
        self.crowded_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Something else uses a core. Threads that are late at the same time count once.
    fn late(&self) {
        if self.is_crowded() {
            return;
        }
        let before = self.lates.load(Ordering::Relaxed);
        self.lates.store((before + 1).min(BUSY_DOUBLED_MAX), Ordering::Relaxed);
        self.crowd(BUSY_FOR * (1 << before));
    }

    /// Others helped as they should.
    fn in_time(&self) {
        let before = self.lates.load(Ordering::Relaxed);
        if before > 0 {
            self.lates.store(before / 2, Ordering::Relaxed);
        }
    }

    /// How many threads beside its own each question may have, where so many leaves are read, and how many cores no
    /// question has.
    fn share(&self, leaves: u64) -> (usize, usize) {
        let (running, lent) = (self.running.load(Ordering::Relaxed), self.lent.load(Ordering::Relaxed));
        // What is read for heads is no question here.
        let of_heads = usize::try_from(leaves).unwrap_or(usize::MAX).saturating_sub(running.max(1) + lent);
        let running = running.saturating_add(of_heads);
        let others = others(self.cores, running);
        if others == 0 || self.is_crowded() {
            return (0, 0);
        }
        (others, self.cores.saturating_sub(running.max(1) + lent))
    }

    fn is_crowded(&self) -> bool {
        let until = Duration::from_micros(self.crowded_until.load(Ordering::Relaxed));
        !until.is_zero() && self.now() < until
    }
}

/// A core that one question uses beside its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct LentCore {
    questions: Arc<Questions>,
    /// How many the question has.
    own: Arc<AtomicUsize>,
    reading: Reading,
    since: Duration,
}

impl LentCore {
    /// Its thread begins.
    pub(crate) fn begin(&self) {
        if self.questions.now().saturating_sub(self.since) > LATE {
            self.questions.late();
        }
    }

    /// Whether it may begin with more work: its question has no more cores than it may have by now.
    pub(crate) fn may_go_on(&self) -> bool {
        self.own.load(Ordering::Relaxed) <= self.questions.share(self.reading.leaves()).0
    }
}

impl Drop for LentCore {
    fn drop(&mut self) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        self.questions.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question that runs.
#[derive(Debug)]
pub(crate) struct RunningQuestion(SpareCores);

impl Drop for RunningQuestion {
    fn drop(&mut self) {
        if let Some(questions) = &self.0.questions {
            questions.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl SpareCores {
    /// Those of so many, as long as no question uses them.
    pub(crate) fn of(cores: usize, clock: Arc<dyn Clock>) -> Self {
        Self::in_pieces_of(PIECE_SIZES, cores, clock)
    }

    pub(super) fn in_pieces_of(sizes: PieceSizes, cores: usize, clock: Arc<dyn Clock>) -> Self {
        let (running, lent, crowded_until) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        let lates = AtomicU32::new(0);
        let questions = Questions { cores, running, lent, crowded_until, lates, clock, sizes };
        Self { questions: Some(Arc::new(questions)), own: Arc::default() }
    }

    /// The same for another question, which has none of them yet.
    pub(crate) fn of_another(&self) -> Self {
        Self { questions: self.questions.clone(), own: Arc::default() }
    }

    /// One more question, until what this returns is dropped.
    pub(crate) fn begin(&self) -> RunningQuestion {
        if let Some(questions) = &self.questions {
            let running = questions.running.fetch_add(1, Ordering::Relaxed) + 1;
            if running > 1 && others(questions.cores, running) == 0 {
                questions.crowd(CALM_AFTER);
            }
        }
        RunningQuestion(self.clone())
    }

    /// The time that [`SpareCores::waited`] takes.
    pub(crate) fn now(&self) -> Duration {
        self.questions.as_ref().map_or(Duration::ZERO, |questions| questions.now())
    }

    /// A question that asked others for help at `asked` was done with `own` pieces of work at `done`, and waited for the
    /// others until now. Who works at the same speed is waited for as long as a piece takes.
    pub(crate) fn waited(&self, asked: Duration, done: Duration, own: usize) {
        let Some(questions) = &self.questions else { return };
        let Some(piece) = u32::try_from(own).ok().and_then(|own| done.saturating_sub(asked).checked_div(own)) else {
            return;
        };
        match self.now().saturating_sub(done) > LATE + 2 * piece {
            true => questions.late(),
            false => questions.in_time(),
        }
    }

    /// How many more threads the question may have now, where so many leaves are read.
    fn others(&self, leaves: u64) -> usize {
        let Some(questions) = &self.questions else { return 0 };
        let (share, free) = questions.share(leaves);
        share.saturating_sub(self.own.load(Ordering::Relaxed)).min(free)
    }

    /// One of them, if there is one.
    fn lend(&self, reading: &Reading) -> Option<LentCore> {
        let questions = self.questions.as_ref().filter(|_| self.others(reading.leaves()) > 0)?;
        // Others may take cores at the same moment.
        let is_left = |lent: usize| (lent + 1 < questions.cores).then_some(lent + 1);
        questions.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_left).ok()?;
        self.own.fetch_add(1, Ordering::Relaxed);
        let (own, since) = (Arc::clone(&self.own), questions.now());
        Some(LentCore { questions: Arc::clone(questions), own, reading: reading.clone(), since })
    }
}

/// How many of `cores` each of the questions that run may have beside its own.
fn others(cores: usize, running: usize) -> usize {
    (cores / running.max(1)).saturating_sub(1)
}

/// In how many pieces so many rows are read.
fn pieces(rows: u64, cores: usize, sizes: PieceSizes) -> usize {
    if cores < 2 || rows < sizes.shared_rows_min {
        return 1;
    }
    let of_cores = (rows / sizes.rows_min.max(1)).min((cores * PIECES_OF_CORE) as u64);
    let pieces = of_cores.max(rows / PIECE_ROWS_MAX);
    usize::try_from(pieces).unwrap_or(usize::MAX).max(1)
}

impl LeafContext {
    /// A core beside that of its thread, if one is spare.
    pub(crate) fn lend(&self) -> Option<LentCore> {
        self.spare.lend(&self.reading)
    }

    /// In how many pieces so many series are read, and of how many rows, where `rows` tells those of all.
    pub(super) fn pieces(&self, series: usize, rows: impl FnOnce() -> u64) -> (usize, u64) {
        let Some(questions) = self.spare.questions.as_ref().filter(|questions| questions.cores > 1) else {
            return (1, 0);
        };
        let rows = rows();
        let weight = rows.saturating_add((series as u64).saturating_mul(ROWS_OF_SERIES));
        let cores = match self.spare.others(self.reading.leaves()) {
            0 if weight >= LONG_ROWS_MIN => questions.cores,
            others => others + 1,
        };
        (pieces(weight, cores, questions.sizes), rows)
    }

    /// What `work` makes of each of `pieces`, in their order.
    ///
    /// # Errors
    /// The first of those of `work`; and when no client waits any longer.
    ///
    /// # Panics
    /// Where `work` does so, whoever did it.
    pub(super) fn worked_off<P, T, W>(&self, pieces: Vec<P>, work: W) -> Result<Vec<T>>
    where
        P: Send + 'static,
        T: Send + 'static,
        W: Fn(P) -> Result<T> + Send + Sync + 'static,
    {
        let list = Arc::new(PieceList::new(pieces, work));
        // However this thread ends, the others begin with no further piece.
        let _emptied = EmptiedAtEnd(&*list);
        let runtime = Handle::try_current().ok();
        let (mut asked, mut own) = (None, 0);
        loop {
            while let Some(runtime) = &runtime
                && list.wants_help()
                && let Some(core) = self.lend()
            {
                list.state().others_asked += 1;
                asked.get_or_insert(core.since);
                let list = Arc::clone(&list);
                drop(runtime.spawn_blocking(move || list.help(&core)));
            }
            let Some((at, piece)) = list.take() else { break };
            let made = (list.work)(piece);
            list.put(at, made);
            own += usize::from(asked.is_some());
        }
        let Some(asked) = asked else { return list.finish(&self.stop) };
        let done = self.spare.now();
        let made = list.finish(&self.stop);
        self.spare.waited(asked, done, own);
        made
    }
}

/// Pieces of work, and what was made of those that are done.
struct PieceList<P, T, W> {
    state: Mutex<PieceStates<P, T>>,
    /// Told when a thread beside that of the question is done with a piece.
    changed: Condvar,
    work: W,
}

struct PieceStates<P, T> {
    waiting: VecDeque<(usize, P)>,
    /// By the places of the pieces.
    made: Vec<Option<Result<T>>>,
    /// Threads that were asked for help and have not ended.
    others_asked: usize,
    /// Pieces that they work on.
    with_others: usize,
    panic: Option<Box<dyn Any + Send>>,
    failed: bool,
}

impl<P, T, W: Fn(P) -> Result<T>> PieceList<P, T, W> {
    fn new(pieces: Vec<P>, work: W) -> Self {
        let made = pieces.iter().map(|_| None).collect();
        let waiting = pieces.into_iter().enumerate().collect();
        let state = PieceStates { waiting, made, others_asked: 0, with_others: 0, panic: None, failed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), work }
    }

    fn state(&self) -> MutexGuard<'_, PieceStates<P, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<(usize, P)> {
        self.state().waiting.pop_front()
    }

    fn put(&self, at: usize, made: Result<T>) {
        self.state().put(at, made);
    }

    /// Whether there is a piece for one more thread, beside one for the thread that asks and each that helps already.
    fn wants_help(&self) -> bool {
        let state = self.state();
        state.waiting.len() > 1 + state.others_asked
    }

    /// Works pieces off beside the thread of the question.
    fn help(&self, core: &LentCore) {
        core.begin();
        while core.may_go_on() {
            let mut state = self.state();
            let Some((at, piece)) = state.waiting.pop_front() else { break };
            state.with_others += 1;
            drop(state);
            let made = catch_unwind(AssertUnwindSafe(|| (self.work)(piece)));
            let mut state = self.state();
            state.with_others -= 1;
            match made {
                Ok(made) => state.put(at, made),
                Err(panic) => {
                    state.waiting.clear();
                    state.panic = Some(panic);
                }
            }
            let is_last = state.with_others == 0 || state.has_ended();
            drop(state);
            if is_last {
                self.changed.notify_one();
            }
        }
        self.state().others_asked -= 1;
    }

    /// What was made, once the pieces of others are done too.
    fn finish(&self, stop: &Stop) -> Result<Vec<T>> {
        let mut state = self.state();
        while state.with_others > 0 && !state.has_ended() {
            if stop.is_asked() {
                return Err(super::stopped());
            }
            state = self.changed.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(panic) = state.panic.take() {
            drop(state);
            resume_unwind(panic);
        }
        let made = std::mem::take(&mut state.made);
        drop(state);
        let pieces = made.len();
        let made = made.into_iter().flatten().collect::<Result<Vec<T>>>()?;
        assert_eq!(made.len(), pieces, "a piece was lost");
        Ok(made)
    }
}

impl<P, T> PieceStates<P, T> {
    fn put(&mut self, at: usize, made: Result<T>) {
        if made.is_err() {
            // The answer is this error, whatever the others are.
            self.waiting.clear();
            self.failed = true;
        }
        self.made[at] = Some(made);
    }

    /// Whether the rest does not matter.
    fn has_ended(&self) -> bool {
        self.failed || self.panic.is_some()
    }
}

struct EmptiedAtEnd<'a, P, T, W: Fn(P) -> Result<T>>(&'a PieceList<P, T, W>);

impl<P, T, W: Fn(P) -> Result<T>> Drop for EmptiedAtEnd<'_, P, T, W> {
    fn drop(&mut self) {
        self.0.state().waiting.clear();
    }
}

#[cfg(test)]
mod tests;
