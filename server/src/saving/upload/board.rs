//! How far the nodes of a job have saved, as they report it; and the last report of those that fell silent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use telem_engine::{Clock, Db, Options, Timestamp};

use super::Uploads;
use crate::info::{counted, grouped, rfc3339};

/// How often somebody who waits for the end is shown how far it is.
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// Longest that the directories of nodes which are not done are looked at.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// Nodes that lack something and are named in a summary.
const NAMED_MAX: usize = 16;
/// Longest reason of a node that is kept.
const REASON_CHARS_MAX: usize = 1_000;

/// How far one node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UploadProgress {
    /// Bytes that were copied, by the process that tells it.
    pub bytes: u64,
    /// Bytes that the copy lacked at the last report.
    pub lacking: u64,
    /// The node has ended, and the copy is all of it.
    pub done: bool,
    /// The node has ended, and the copy is not all of it: why.
    pub failed: Option<String>,
}

impl UploadProgress {
    fn is_over(&self) -> bool {
        self.done || self.failed.is_some()
    }
}

/// How far all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    pub nodes: usize,
    /// Of those the ones whose copy is all that there was.
    pub done: usize,
    pub bytes: u64,
    pub lacking: u64,
    /// Some of those that are waited for.
    pub waiting_for: Vec<String>,
}

/// What came of saving one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSaved {
    pub node: String,
    /// `None`: it never asked for a directory.
    pub dir: Option<PathBuf>,
    pub outcome: UploadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadOutcome {
    Whole,
    /// The copy opens, and lacks what came after its last sample.
    Lacking {
        samples: u64,
        until: Option<Timestamp>,
        why: String,
    },
    /// There is nothing that opens.
    Nothing {
        why: String,
    },
}

/// What came of saving all nodes: for people, a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedNodes {
    pub save: PathBuf,
    pub nodes: Vec<NodeSaved>,
}

impl Uploads {
    /// Takes note of what a node tells; false when it has no directory.
    pub fn note(&self, node: &str, progress: UploadProgress) -> bool {
        let mut nodes = self.nodes();
        let Some(one) = nodes.get_mut(node) else { return false };
        let failed = progress.failed.map(|why| why.chars().take(REASON_CHARS_MAX).collect());
        one.progress = UploadProgress { failed, ..progress };
        self.inner.changed.notify_all();
        true
    }

    /// How far `expected` nodes are, and all others that are saved here.
    pub fn overview(&self, expected: &[String]) -> Overview {
        let nodes = self.nodes();
        let absent = expected.iter().filter(|node| !nodes.contains_key(*node));
        let running = nodes.iter().filter(|(_, one)| !one.progress.is_over()).map(|(node, _)| node);
        let waiting_for = running.chain(absent.clone()).take(NAMED_MAX).cloned().collect();
        Overview {
            nodes: nodes.len() + absent.count(),
            done: nodes.values().filter(|one| one.progress.done).count(),
            bytes: nodes.values().map(|one| one.progress.bytes).sum(),
            lacking: nodes.values().map(|one| one.progress.lacking).sum(),
            waiting_for,
        }
    }

    /// Waits until every one of `expected` that is not `gone` has told that it is done, or that it is not; until
    /// `deadline` (monotonic) at the longest. Whoever has a directory is waited for too. `show` is told how far it is.
    ///
    /// Blocks its thread.
    pub fn wait(
        &self,
        expected: &[String],
        gone: impl Fn(&str) -> bool,
        deadline: Duration,
        clock: &dyn Clock,
        mut show: impl FnMut(&Overview),
    ) -> SavedNodes {
        loop {
            show(&self.overview(expected));
            let nodes = self.nodes();
            let is_over = |node: &str| nodes.get(node).is_some_and(|one| one.progress.is_over()) || gone(node);
            let over = expected.iter().all(|node| is_over(node)) && nodes.keys().all(|node| is_over(node));
            let left = deadline.saturating_sub(clock.monotonic());
            if over || left.is_zero() {
                break;
            }
            // A poisoned lock guards good data: see `nodes`.
            drop(self.inner.changed.wait_timeout(nodes, left.min(SHOWN_EVERY)));
        }
        self.outcome(expected)
    }

    /// What there is of each node now. Of those that are not done their directories are opened to see, which is not
    /// waited for longer than ten seconds: a file system may hang.
    pub fn outcome(&self, expected: &[String]) -> SavedNodes {
        let (uploads, expected) = (self.clone(), expected.to_vec());
        let (send, looked) = sync_channel(1);
        let look = {
            let expected = expected.clone();
            move || {
                let _ = send.send(uploads.outcome_by(&expected, &looked_at));
            }
        };
        let started = thread::Builder::new().name("telem-look".to_owned()).spawn(look);
        let looked = started.ok().and_then(|_| looked.recv_timeout(LOOK_PATIENCE).ok());
        let blind =
            |_: &Path, why: String| UploadOutcome::Nothing { why: format!("{why}; its directory does not answer") };
        looked.unwrap_or_else(|| self.outcome_by(&expected, &blind))
    }

    fn outcome_by(&self, expected: &[String], look: &dyn Fn(&Path, String) -> UploadOutcome) -> SavedNodes {
        let known: Vec<(String, super::NodeCopy)> =
            self.nodes().iter().map(|(node, one)| (node.clone(), one.clone())).collect();
        let absent = expected.iter().filter(|node| !known.iter().any(|(known, _)| known == *node));
        let never = absent.map(|node| NodeSaved {
            node: node.clone(),
            dir: None,
            outcome: UploadOutcome::Nothing { why: "it never asked where to save".to_owned() },
        });
        let found = known.iter().map(|(node, one)| {
            let dir = one.store.dir().to_path_buf();
            let outcome = match &one.progress {
                progress if progress.done => UploadOutcome::Whole,
                progress => {
                    let silent = "it did not say that it was done".to_owned();
                    look(&dir, progress.failed.clone().unwrap_or(silent))
                }
            };
            NodeSaved { node: node.clone(), dir: Some(dir), outcome }
        });
        SavedNodes { save: self.inner.save.clone(), nodes: found.chain(never).collect() }
    }
}

fn looked_at(dir: &Path, why: String) -> UploadOutcome {
    let info = Db::open_read_only(dir, Options::default()).and_then(|db| db.info());
    match info {
        Ok(info) => {
            UploadOutcome::Lacking { samples: info.samples, until: info.time_bounds.map(|(_, last)| last), why }
        }
        Err(error) => UploadOutcome::Nothing { why: format!("{why}; {error}") },
    }
}

impl SavedNodes {
    pub fn is_whole(&self) -> bool {
        self.nodes.iter().all(|one| one.outcome == UploadOutcome::Whole)
    }
}

impl fmt::Display for Overview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} saved, {} to go",
            self.done,
            counted(self.nodes as u64, "node"),
            counted(self.lacking, "byte")
        )?;
        match &*self.waiting_for {
            [] => Ok(()),
            [one] => write!(f, ", waiting for {one}"),
            [first, ..] => write!(f, ", waiting for {first} and others"),
        }
    }
}

impl fmt::Display for NodeSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            UploadOutcome::Whole => write!(f, "{}: whole", self.node),
            UploadOutcome::Lacking { samples, until: Some(until), why } => {
                let (samples, until) = (counted(*samples, "sample"), rfc3339(*until));
                write!(f, "{}: {samples} up to {until}, what came later is missing ({why})", self.node)
            }
            UploadOutcome::Lacking { until: None, why, .. } => write!(f, "{}: no sample ({why})", self.node),
            UploadOutcome::Nothing { why } => write!(f, "{}: NOTHING ({why})", self.node),
        }
    }
}

impl fmt::Display for SavedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nodes.iter().filter(|one| one.outcome == UploadOutcome::Whole).count();
        let all = self.nodes.len();
        if whole == all {
            return write!(f, "other nodes saved in {}: {}", self.save.display(), grouped(all as u64));
        }
        write!(f, "NOT all nodes are saved whole in {}, only {whole} of {all}", self.save.display())?;
        let lacking = self.nodes.iter().filter(|one| one.outcome != UploadOutcome::Whole);
        for one in lacking.take(NAMED_MAX) {
            write!(f, "; {one}")?;
        }
        match all - whole {
            more if more > NAMED_MAX => write!(f, "; and {} more", more - NAMED_MAX),
            _ => Ok(()),
        }
    }
}
