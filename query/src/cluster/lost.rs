//! Nodes that were lost while a query ran.
//!
//! The code that loses a node returns an error that names it ([`lost`]), wherever in the tree that is. At the head such
//! errors are collected in the query's [`Attempt`], and the query runs again without those nodes. So an answer covers
//! whole nodes only.

pub(super) mod reason;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use datafusion::error::DataFusionError;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

use super::members::Members;
use crate::error::Error;
use crate::error::crossing::{Crossing, CrossingKind};
use reason::reason;

/// How much of the time that is left an attempt may take of it: what is not done then is asked without those who were
/// slow.
const ATTEMPT_SHARE: f64 = 0.6;
/// How much of it an attempt may wait before it begins.
const TURN_SHARE: f64 = 0.5;
/// Longest reason that is reported.
const REASON_CHARS_MAX: usize = 200;

/// What an answer that comes in parts does about a node that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Nothing is handed out before all nodes have answered wholly.
    Held,
    /// Rows are handed out as they come: what is lost after the first of them is an error.
    Streamed,
}

/// One attempt at a question, at the head. An extension of its task's configuration.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub parts: Delivery,
    /// When the whole question must be answered.
    question_due: Instant,
    /// Set when the first node is asked.
    time: Mutex<Option<Time>>,
    lost: Mutex<BTreeMap<String, String>>,
    /// Streams of nodes that have not said anything yet.
    awaited: watch::Sender<usize>,
}

/// How long nodes have.
#[derive(Clone, Copy, Debug)]
struct Time {
    due: Instant,
    after: Duration,
}

impl Attempt {
    /// An attempt at a question that must be answered by `question_due`.
    pub fn new(parts: Delivery, question_due: Instant) -> Self {
        let (time, lost, awaited) = (Mutex::default(), Mutex::default(), watch::Sender::new(0));
        Self { parts, question_due, time, lost, awaited }
    }

    /// Nodes that have not answered wholly by then are lost. Time runs from the beginning of a plan
    /// ([`Attempt::begin`]), else from when this is first asked.
    pub fn due(&self) -> Instant {
        self.time().due
    }

    /// How long it was until [`Attempt::due`] when that began.
    pub fn due_after(&self) -> Duration {
        self.time().after
    }

    /// The nodes' time runs anew: they are asked only now, whatever was waited for before.
    pub fn begin(&self) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.time();
    }

    /// How long it may wait for its turn.
    pub fn turn_due(&self) -> Instant {
        let now = Instant::now();
        now + self.question_due.saturating_duration_since(now).mul_f64(TURN_SHARE)
    }

    fn time(&self) -> Time {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| {
            let now = Instant::now();
            let after = self.question_due.saturating_duration_since(now).mul_f64(ATTEMPT_SHARE);
            Time { due: now + after, after }
        })
    }

    pub fn lose(&self, url: &Url, reason: &str) {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.entry(url.as_str().to_owned()).or_insert_with(|| shortened(reason));
    }

    /// Counts the node that an error is about as lost, if it is about any. `via` was asked.
    pub fn lose_by(&self, via: &Url, error: &DataFusionError) {
        match Crossing::of(error) {
            Some(Crossing { kind: CrossingKind::Lost, node, reason }) => self.lose_named(&node, &reason),
            _ => self.lose(via, &reason(error)),
        }
    }

    /// Counts the node at `url` as lost.
    pub fn lose_named(&self, url: &str, reason: &str) {
        if let Ok(url) = Url::parse(url) {
            self.lose(&url, reason);
        }
    }

    /// Addresses and reasons.
    pub fn lost(&self) -> BTreeMap<String, String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more stream is waited for; it is said or gone when what this returns is dropped.
    pub fn expect(self: &std::sync::Arc<Self>) -> AwaitedStream {
        self.awaited.send_modify(|awaited| *awaited += 1);
        AwaitedStream(std::sync::Arc::clone(self))
    }

    /// Until every stream that was begun has said something, or is gone.
    pub async fn all_began(&self) {
        let mut awaited = self.awaited.subscribe();
        // The sender lives as long as we do.
        let _ = awaited.wait_for(|awaited| *awaited == 0).await;
    }
}

/// See [`Attempt::expect`].
#[derive(Debug)]
pub(crate) struct AwaitedStream(std::sync::Arc<Attempt>);

impl Drop for AwaitedStream {
    fn drop(&mut self) {
        self.0.awaited.send_modify(|awaited| *awaited -= 1);
    }
}

/// The error that says which node was lost, and why.
pub(crate) fn lost(url: &Url, reason: &str) -> DataFusionError {
    Crossing::lost(url.as_str(), shortened(reason)).into()
}

/// As [`lost`], unless the error already says of another node that it was lost, or is the question's own fault.
pub(crate) fn lost_by(url: &Url, error: DataFusionError) -> DataFusionError {
    match Crossing::of(&error) {
        Some(told) if told.kind != CrossingKind::Unable => told.into(),
        None if Crossing::is_refusal(&error) => error,
        _ => lost(url, &reason(&error)),
    }
}

/// The error with the node's name where it says by address which node was lost: of the address nobody but us knows
/// whose it is.
pub(crate) fn named(error: DataFusionError, members: &Members) -> DataFusionError {
    let Some(Crossing { kind: CrossingKind::Lost, node: url, reason }) = Crossing::of(&error) else { return error };
    let node = Url::parse(&url).ok().and_then(|url| members.at(&url)).map_or(url, |node| node.to_string());
    DataFusionError::External(Box::new(Error::NodeLost { node, reason }))
}

fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    line.chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests;
