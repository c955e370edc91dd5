//! Questions of one request. The thread of the request takes one after the other until none is left; where cores are spare
//! ([`LentCore`]) and the first of them tells that the others take long enough, other threads take some too.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use telem_engine::SeriesIndex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::bounded::QueryDeadline;
use super::{QueryService, TOGETHER_VALUES_MAX, TimedAnswer, ask};
use crate::answer::TsAnswer;
use crate::leaf::series::is_added_up;
use crate::leaf::{LeafContext, LentCore};
use crate::pipeline::Pipeline;
use crate::question::TsQuery;
use crate::question::tsq::Matcher;
use crate::selection::select_bound;

/// What the questions that are left must take for each thread that helps: to wake it up, and to wait for it, takes some
/// hundredths of a millisecond, and a tenth on a virtual machine.
const SHARED_MIN: Duration = Duration::from_micros(750);
/// After so long no further question is taken: answers are to be handed out, and others may want the place.
const HELD_MAX: Duration = Duration::from_secs(1);
/// A question about all of so many series takes that long.
const MANY_SERIES: u64 = 64;

/// Questions, and how many were taken. Answers end with the first that is an error, and with that of which all have too
/// many values.
pub(super) struct QuestionList {
    inner: Arc<QueryService>,
    context: LeafContext,
    due: QueryDeadline,
    questions: Vec<TsQuery>,
    taken: AtomicUsize,
    values: AtomicUsize,
    ended: AtomicBool,
    /// See [`SHARED_MIN`].
    shared_min: Duration,
    /// See [`HELD_MAX`].
    held_max: Duration,
    began: Duration,
}

impl QuestionList {
    pub fn new(inner: Arc<QueryService>, context: LeafContext, due: QueryDeadline, questions: Vec<TsQuery>) -> Self {
        let (taken, values, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        let (shared_min, held_max, began) = (SHARED_MIN, HELD_MAX, context.spare.now());
        Self { inner, context, due, questions, taken, values, ended, shared_min, held_max, began }
    }

    /// The answers, from that of the first question on, on a thread that may block if their leaves read on it.
    pub async fn answers(self) -> Vec<TimedAnswer> {
        let all = Arc::new(self);
        let spare = all.context.spare.clone();
        let began = spare.now();
        let mut answers = Vec::new();
        let of_many = all.others_of_many();
        if of_many == 0 {
            answers.extend(all.next().await);
        }
        let asked = spare.now();
        let others_max = if of_many == 0 { all.others_max(asked.saturating_sub(began)) } else { of_many };
        let mut others = Vec::new();
        while others.len() < others_max
            && let Some(core) = all.context.lend()
        {
            others.push(QuestionThread::begin(Arc::clone(&all), core));
        }
        let before = answers.len();
        while let Some(answer) = all.next().await {
            answers.push(answer);
        }
        let own = answers.len() - before;
        let done = spare.now();
        // A thread that has not begun is not waited for.
        others.retain(QuestionThread::has_begun);
        let any = !others.is_empty();
        for other in others {
            match other.thread.await {
                Ok(others) => answers.extend(others),
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                // The threads end, and so does whoever waits for the answers.
                Err(_) => {}
            }
        }
        if any {
            spare.waited(asked, done, own);
        }
        in_order(answers)
    }

    /// How many threads may help from the first question on, since all are about many series; 0 where it is measured
    /// first.
    fn others_of_many(&self) -> usize {
        let others = self.questions.len().saturating_sub(1);
        let index = self.context.snapshot.index();
        let is_of_many = |question| selects_all(question) && series_max(question, index) >= MANY_SERIES;
        let are_of_many = || self.questions.iter().all(is_of_many);
        if others > 0 && are_of_many() && self.are_small() { others } else { 0 }
    }

    /// How many threads may help with those that are left, where one takes so long: each has enough to do.
    fn others_max(&self, one: Duration) -> usize {
        let left = self.questions.len() - self.taken.load(Ordering::Relaxed).min(self.questions.len());
        let took = one.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)).as_micros();
        let worth = took.checked_div(self.shared_min.as_micros()).unwrap_or(u128::MAX);
        let worth = usize::try_from(worth).unwrap_or(usize::MAX).min(left.saturating_sub(1));
        if worth > 0 && self.are_small() { worth } else { 0 }
    }

    /// Whether the answers of all threads may wait in memory: none is made that is not kept.
    fn are_small(&self) -> bool {
        let index = self.context.snapshot.index();
        let values = self.questions.iter().map(|question| values_max(question, index));
        values.fold(0, u64::saturating_add) <= TOGETHER_VALUES_MAX as u64
    }

    /// Takes the next question, if there is one, and answers it.
    async fn next(&self) -> Option<(usize, TimedAnswer)> {
        let is_long = || self.context.spare.now().saturating_sub(self.began) >= self.held_max;
        if self.ended.load(Ordering::Relaxed) || self.taken.load(Ordering::Relaxed) > 0 && is_long() {
            return None;
        }
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        let query = self.questions.get(at)?;
        let (inner, clock) = (&self.inner, &self.inner.options.clock);
        let began = clock.monotonic();
        let mut answer = ask::timeseries(inner, self.context.clone(), query, self.due).await;
        if let Ok(answer) = &mut answer {
            answer.missing.extend_from_slice(&inner.options.absent);
        }
        let values = answer.as_ref().map_or(0, values);
        let before = self.values.fetch_add(values, Ordering::Relaxed);
        if answer.is_err() || before + values > TOGETHER_VALUES_MAX {
            self.ended.store(true, Ordering::Relaxed);
        }
        Some((at, TimedAnswer { answer, took: clock.monotonic().saturating_sub(began) }))
    }
}

/// A thread that takes questions too.
struct QuestionThread {
    thread: JoinHandle<Vec<(usize, TimedAnswer)>>,
    /// Set by the first of both: the thread when it begins, or who does not wait for it any more.
    decided: Arc<AtomicBool>,
}

impl QuestionThread {
    fn begin(all: Arc<QuestionList>, core: LentCore) -> Self {
        let threads = Handle::current();
        let runtime = threads.clone();
        let decided = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&decided);
        let thread = threads.spawn_blocking(move || {
            core.begin();
            let mut answers = Vec::new();
            if begun.swap(true, Ordering::AcqRel) {
                return answers;
            }
            runtime.block_on(async {
                while core.may_go_on()
                    && let Some(answer) = all.next().await
                {
                    answers.push(answer);
                }
            });
            answers
        });
        Self { thread, decided }
    }

    /// Whether it has begun; it takes no question where it has not.
    fn has_begun(&self) -> bool {
        self.decided.swap(true, Ordering::AcqRel)
    }
}

/// How many values an answer can have, as far as the question tells: of samples as they are it does not.
fn values_max(question: &TsQuery, index: &SeriesIndex) -> u64 {
    let is_one_line = is_added_up(question) && question.filters.iter().all(|filter| !filter.group_by);
    let lines = if is_one_line { 1 } else { series_max(question, index) };
    Pipeline::new(question).steps().unwrap_or(u64::MAX).saturating_mul(lines)
}

/// About how many series a question is, at the most.
fn series_max(question: &TsQuery, index: &SeriesIndex) -> u64 {
    select_bound(question, index).min(index.series_count(&question.metric)) as u64
}

/// Whether it is about every series of its metric that has the tags of its filters.
fn selects_all(question: &TsQuery) -> bool {
    let accepts_all = |matcher: &Matcher| match matcher {
        Matcher::AnyOrNone => true,
        Matcher::Wildcard(text) | Matcher::IWildcard(text) => text == "*",
        _ => false,
    };
    question.series.is_none() && question.filters.iter().all(|filter| accepts_all(&filter.matcher))
}

fn values(answer: &TsAnswer) -> usize {
    answer.groups.iter().map(|group| group.points.len()).sum()
}

/// The answers that one thread would have given, by itself: one after the other, up to the one that was the last.
fn in_order(mut answers: Vec<(usize, TimedAnswer)>) -> Vec<TimedAnswer> {
    answers.sort_unstable_by_key(|(at, _)| *at);
    let mut sum = 0;
    let is_last = |(_, TimedAnswer { answer, .. }): &(usize, TimedAnswer)| {
        sum += answer.as_ref().map_or(0, values);
        answer.is_err() || sum > TOGETHER_VALUES_MAX
    };
    let kept = answers.iter().position(is_last).map_or(answers.len(), |last| last + 1);
    answers.truncate(kept);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[cfg(test)]
mod tests;
