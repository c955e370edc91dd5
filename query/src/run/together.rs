//! Small questions of one request. The thread of the request takes one after the other until none is left; where a core is
//! spare ([`LentCore`]) and the first of them tells that the others take long enough, another thread takes some too.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::bounded::QueryDeadline;
use super::{QueryService, TOGETHER_VALUES_MAX, TimedAnswer, ask};
use crate::answer::TsAnswer;
use crate::leaf::{LeafContext, LentCore};
use crate::question::TsQuery;

/// What the questions that are left must take for another thread to help: to wake it up, and to wait for it, takes some
/// hundredths of a millisecond.
const SHARED_MIN: Duration = Duration::from_millis(1);

/// Questions, and how many were taken. Answers end with the first that is an error, and with that of which all have too
/// many values.
pub(super) struct Together {
    inner: Arc<QueryService>,
    context: LeafContext,
    due: QueryDeadline,
    questions: Vec<TsQuery>,
    taken: AtomicUsize,
    values: AtomicUsize,
    ended: AtomicBool,
    /// See [`SHARED_MIN`].
    shared_min: Duration,
}

impl Together {
    pub fn new(inner: Arc<QueryService>, context: LeafContext, due: QueryDeadline, questions: Vec<TsQuery>) -> Self {
        let (taken, values, ended) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { inner, context, due, questions, taken, values, ended, shared_min: SHARED_MIN }
    }

    /// The answers, from that of the first question on, on a thread that may block if their leaves read on it.
    pub async fn answers(self) -> Vec<TimedAnswer> {
        let all = Arc::new(self);
        let spare = all.context.spare.clone();
        let began = spare.now();
        let mut answers: Vec<(usize, TimedAnswer)> = all.next().await.into_iter().collect();
        let asked = spare.now();
        let others = match all.is_worth_help(asked.saturating_sub(began)) {
            true => all.context.lend().map(|core| Arc::clone(&all).helped_by(core)),
            false => None,
        };
        while let Some(answer) = all.next().await {
            answers.push(answer);
        }
        if let Some(others) = others {
            // It is not waited for if it has not begun.
            others.abort();
            let mut done = spare.now();
            match others.await {
                Ok(others) => answers.extend(others),
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                // To wait for it would have helped no more.
                Err(_) => done = asked,
            }
            spare.waited(asked, done);
        }
        in_order(answers)
    }

    /// Whether those that are left take long enough, where one takes so long.
    fn is_worth_help(&self, one: Duration) -> bool {
        let left = self.questions.len() - self.taken.load(Ordering::Relaxed).min(self.questions.len());
        left > 1 && one.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX)) >= self.shared_min
    }

    fn helped_by(self: Arc<Self>, core: LentCore) -> tokio::task::JoinHandle<Vec<(usize, TimedAnswer)>> {
        let threads = Handle::current();
        let runtime = threads.clone();
        threads.spawn_blocking(move || {
            core.begin();
            runtime.block_on(async {
                let mut answers = Vec::new();
                while core.may_go_on()
                    && let Some(answer) = self.next().await
                {
                    answers.push(answer);
                }
                answers
            })
        })
    }

    /// Takes the next question, if there is one, and answers it.
    async fn next(&self) -> Option<(usize, TimedAnswer)> {
        if self.ended.load(Ordering::Relaxed) {
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
