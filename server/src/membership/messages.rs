//! The messages between nodes and their head, in JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Where a node joins.
pub const JOIN: &str = "/api/nodes/join";
/// Where it says how it is.
pub const REPORT: &str = "/api/nodes/report";
/// Where it says farewell.
pub const LEAVE: &str = "/api/nodes/leave";
/// The list of all nodes.
pub const LIST: &str = "/api/nodes";

/// A node wants to belong to a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub job: String,
    pub version: String,
    /// The name that it wants.
    pub node: String,
    /// Its database exists and has that name: it can have no other.
    pub is_fixed: bool,
    /// What stays the same when it is started again: its machine, and where its data stand.
    pub home: String,
    /// Unlike that of every other start of an agent.
    pub incarnation: String,
    /// Where it answers questions.
    pub url: String,
    pub pid: u32,
    pub host: String,
    pub data: PathBuf,
    pub now_us: i64,
    /// Dragon's port on it is another than programs expect: the expected one, and why it is not that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dragon_moved: Option<(u16, String)>,
}

/// It does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinAnswer {
    /// The name that it has got.
    pub node: String,
    pub job: String,
    pub head_incarnation: String,
}

/// How a node is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: String,
    pub incarnation: String,
    /// Counts from 0; a report that comes after a later one is passed over.
    pub seq: u64,
    /// What it has that the head does not know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Box<RawValue>>,
    #[serde(flatten)]
    pub figures: Figures,
    /// It has counters and gauges of clients of Metric Proxy.
    #[serde(default)]
    pub has_counters: bool,
    pub now_us: i64,
    /// How long the exchange before this one took.
    #[serde(default)]
    pub round_trip_us: Option<u64>,
    #[serde(default)]
    pub last_error: Option<String>,
}

fn is_none_dropped(samples: &u64) -> bool {
    *samples == 0
}

/// What a node says of its database and of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The age of its latest sample.
    pub lag_ms: Option<i64>,
    pub samples: u64,
    pub series: u64,
    pub bytes: u64,
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    /// What it reads now to answer questions: leaves, its own and those of heads.
    #[serde(default)]
    pub leaves: u64,
    /// Samples that its clients dropped before they were sent, by their own counts.
    #[serde(default, skip_serializing_if = "is_none_dropped")]
    pub clients_dropped: u64,
}

/// The answer to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAnswer {
    /// How many of the node's series the head knows; `None` where it does not want to.
    #[serde(default)]
    pub known: Option<u32>,
    /// The job is over: the node is to save what is left, and to end.
    #[serde(default)]
    pub end: bool,
}

/// A node ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Leave {
    pub node: String,
    pub incarnation: String,
    pub reason: String,
    /// How it is at its end.
    #[serde(default)]
    pub figures: Option<Figures>,
}

/// Whether a node can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    Up,
    /// It has not reported for a while.
    Suspect,
    /// It said farewell.
    Left,
}

impl Liveness {
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Left => "left",
        }
    }
}

/// A node in the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    pub node: String,
    pub is_head: bool,
    pub url: String,
    pub state: Liveness,
    /// Why it is in that state, where that is not plain.
    pub reason: Option<String>,
    /// Since when, microseconds since 1970 by the clock of the head.
    pub since_us: i64,
    /// How long ago it reported; `None` for the head itself.
    pub reported_ms: Option<u64>,
    #[serde(flatten)]
    pub figures: Figures,
    pub version: String,
    pub pid: u32,
    pub host: String,
    pub data: PathBuf,
    /// How far its clock is ahead of that of the head.
    pub clock_offset_us: Option<i64>,
    pub last_error: Option<String>,
}
