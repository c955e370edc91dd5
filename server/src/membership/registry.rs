//! The registry: the members of the job and their state. It only decides, and time is an argument.
//!
//! A node is identified by its machine and the place of its data: a node that starts there again gets its name back,
//! whatever its last report was. Another node that wants the same name gets `NAME-2`, unless its database has that name
//! already.

mod offset;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use telem_engine::Timestamp;
use url::Url;

use self::offset::Offset;
use super::messages::{Figures, JoinAnswer, JoinRequest, Leave, Listed, Liveness, NodeReport, ReportAnswer};
use crate::config;
use crate::join::is_compatible;

/// Most nodes of a job.
pub const NODES_MAX: usize = 16_384;
/// A node that has not reported for so long is suspect: five reports are missing then.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(5);
/// Longest text of a node that is kept.
const TEXT_CHARS_MAX: usize = 500;

/// When something happens, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    pub steady: Duration,
}

/// What the head of a job is.
#[derive(Clone, Debug)]
pub struct HeadName {
    pub job: String,
    /// The node of the head; no other node gets its name.
    pub node: String,
    pub version: String,
    pub incarnation: String,
}

/// Why a node was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeRefusal {
    #[error(
        "the node runs telem {theirs}, and this head runs telem {ours}; start agents with the binary of their head"
    )]
    Version { ours: String, theirs: String },
    #[error("the node belongs to job '{theirs}', and this is the head of job '{ours}'")]
    Job { ours: String, theirs: String },
    #[error("the node's name cannot be used: {0}")]
    Name(String),
    #[error("the node gives '{url}' as its address, which is not an http or https URL with a host and a port")]
    Url { url: String },
    #[error("there is another node '{node}' on {host}, with data in {data}; start this one with another --node NAME")]
    Taken { node: String, host: String, data: String },
    #[error("the job already has {nodes_max} nodes, which is the limit")]
    Full { nodes_max: usize },
    #[error("this node has not joined: join first")]
    Unknown,
}

/// What a report is answered with, and means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub answer: ReportAnswer,
    /// The node had been silent for too long, or gone.
    pub is_back: bool,
}

/// The nodes of a job besides its head.
#[derive(Debug)]
pub struct Registry {
    head: HeadName,
    nodes_max: usize,
    nodes: BTreeMap<String, RegistryEntry>,
    is_ending: bool,
}

#[derive(Debug)]
struct RegistryEntry {
    request: JoinRequest,
    url: Url,
    state: Liveness,
    reason: Option<String>,
    since: Moment,
    heard: Moment,
    /// Of the last report.
    seq: Option<u64>,
    figures: Figures,
    offset: Offset,
    last_error: Option<String>,
}

impl RegistryEntry {
    fn new(request: &JoinRequest, url: Url, now: Moment) -> Self {
        Self {
            request: request.clone(),
            url,
            state: Liveness::Up,
            reason: None,
            since: now,
            heard: now,
            seq: None,
            figures: Figures::default(),
            offset: Offset::default(),
            last_error: None,
        }
    }

    fn turn(&mut self, state: Liveness, reason: Option<String>, now: Moment) {
        if self.state != state {
            self.since = now;
        }
        (self.state, self.reason) = (state, reason);
    }
}

impl Registry {
    pub fn new(head: HeadName) -> Self {
        Self::with_limit(head, NODES_MAX)
    }

    fn with_limit(head: HeadName, nodes_max: usize) -> Self {
        Self { head, nodes_max, nodes: BTreeMap::new(), is_ending: false }
    }

    /// Takes a node in, or again; the name that it gets.
    ///
    /// # Errors
    /// [`NodeRefusal`].
    pub fn join(&mut self, request: &JoinRequest, now: Moment) -> Result<JoinAnswer, NodeRefusal> {
        if !is_compatible(&request.version, &self.head.version) {
            return Err(NodeRefusal::Version { ours: self.head.version.clone(), theirs: shortened(&request.version) });
        }
        if request.job != self.head.job {
            return Err(NodeRefusal::Job { ours: self.head.job.clone(), theirs: shortened(&request.job) });
        }
        let url = usable(&request.url)?;
        let node = self.name_for(request)?;
        match self.nodes.get_mut(&node) {
            // The same process, which thinks that the head has forgotten it: what is known of it stays known.
            Some(entry) if entry.request.incarnation == request.incarnation => {
                (entry.request, entry.url, entry.heard) = (request.clone(), url, now);
                entry.turn(Liveness::Up, None, now);
            }
            _ => {
                self.nodes.insert(node.clone(), RegistryEntry::new(request, url, now));
            }
        }
        Ok(JoinAnswer { node, job: self.head.job.clone(), head_incarnation: self.head.incarnation.clone() })
    }

    fn name_for(&self, request: &JoinRequest) -> Result<String, NodeRefusal> {
        let wanted = request.node.to_ascii_lowercase();
        let wanted = config::checked_name("node", &wanted).map_err(|error| NodeRefusal::Name(error.to_string()))?;
        let is_same = |entry: &RegistryEntry| {
            entry.request.incarnation == request.incarnation || entry.request.home == request.home
        };
        let holder = self.nodes.get(&wanted);
        if holder.is_some_and(is_same) {
            return Ok(wanted);
        }
        let is_free = |name: &str| name != self.head.node && !self.nodes.contains_key(name);
        if request.is_fixed && !is_free(&wanted) {
            let (host, data) = holder.map_or(("the head's machine".to_owned(), "its own place".to_owned()), |entry| {
                (entry.request.host.clone(), entry.request.data.display().to_string())
            });
            return Err(NodeRefusal::Taken { node: wanted, host, data });
        }
        if !request.is_fixed
            && let Some((name, _)) = self.nodes.iter().find(|(_, entry)| is_same(entry))
        {
            return Ok(name.clone());
        }
        if self.nodes.len() >= self.nodes_max {
            return Err(NodeRefusal::Full { nodes_max: self.nodes_max });
        }
        // One of these is free: there are fewer nodes.
        let mut names = (2..).map(|n| format!("{wanted}-{n}"));
        if is_free(&wanted) {
            return Ok(wanted);
        }
        Ok(names.find(|name| is_free(name)).unwrap_or_default())
    }

    /// Takes in how a node is.
    ///
    /// # Errors
    /// Unknown.
    pub fn report(&mut self, report: NodeReport, now: Moment) -> Result<Heard, NodeRefusal> {
        let is_ending = self.is_ending;
        let entry = self.entry(&report.node, &report.incarnation)?;
        let answer = ReportAnswer { known: None, end: is_ending };
        if entry.seq.is_some_and(|seq| seq >= report.seq) {
            return Ok(Heard { answer, is_back: false });
        }
        let is_back = entry.state != Liveness::Up;
        entry.heard = now;
        entry.turn(Liveness::Up, None, now);
        entry.seq = Some(report.seq);
        entry.figures = report.figures;
        entry.last_error = report.last_error.as_deref().map(shortened);
        if let Some(round_trip_us) = report.round_trip_us {
            entry.offset.add(report.now_us, now.wall.micros(), round_trip_us);
        }
        Ok(Heard { answer, is_back })
    }

    /// A node says farewell.
    ///
    /// # Errors
    /// Unknown.
    pub fn leave(&mut self, leave: &Leave, now: Moment) -> Result<(), NodeRefusal> {
        let entry = self.entry(&leave.node, &leave.incarnation)?;
        entry.heard = now;
        if let Some(figures) = leave.figures {
            entry.figures = figures;
        }
        entry.turn(Liveness::Left, Some(shortened(&leave.reason)), now);
        Ok(())
    }

    /// Where a node listens.
    pub fn url(&self, node: &str) -> Option<Url> {
        self.nodes.get(node).map(|entry| entry.url.clone())
    }

    /// Nodes that have just been silent for too long, and for how long.
    pub fn overdue(&mut self, now: Moment) -> Vec<(String, Duration)> {
        let mut overdue = Vec::new();
        for (node, entry) in &mut self.nodes {
            let silent = now.steady.saturating_sub(entry.heard.steady);
            if entry.state == Liveness::Up && silent > SUSPECT_AFTER {
                entry.turn(Liveness::Suspect, Some("it does not report any more".to_owned()), now);
                overdue.push((node.clone(), silent));
            }
        }
        overdue
    }

    /// Every node is to end.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    pub fn present(&self) -> Vec<String> {
        let present = self.nodes.iter().filter(|(_, entry)| entry.state != Liveness::Left);
        present.map(|(node, _)| node.clone()).collect()
    }

    pub fn list(&self, now: Moment) -> Vec<Listed> {
        let listed = |(node, entry): (&String, &RegistryEntry)| Listed {
            node: node.clone(),
            is_head: false,
            url: entry.url.to_string(),
            state: entry.state,
            reason: entry.reason.clone(),
            since_us: entry.since.wall.micros(),
            reported_ms: u64::try_from(now.steady.saturating_sub(entry.heard.steady).as_millis()).ok(),
            figures: entry.figures,
            version: entry.request.version.clone(),
            pid: entry.request.pid,
            host: entry.request.host.clone(),
            data: entry.request.data.clone(),
            clock_offset_us: entry.offset.best(),
            last_error: entry.last_error.clone(),
        };
        self.nodes.iter().map(listed).collect()
    }

    fn entry(&mut self, node: &str, incarnation: &str) -> Result<&mut RegistryEntry, NodeRefusal> {
        let entry = self.nodes.get_mut(node).filter(|entry| entry.request.incarnation == incarnation);
        entry.ok_or(NodeRefusal::Unknown)
    }
}

fn usable(text: &str) -> Result<Url, NodeRefusal> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.port().is_some());
    url.ok_or_else(|| NodeRefusal::Url { url: shortened(text) })
}

/// The part of a foreign text that is kept.
fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
