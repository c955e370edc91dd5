//! What of targets outlives the process, as records of the database.
//!
//! | kind | key | text |
//! |---|---|---|
//! | `proxy.target` | host and port, or a node of our own job | how it is polled, and what is known of a child's jobs |
//! | `proxy.offset` | host and port, the id of a child's job, the number of a part | offsets of its counters |
//! | `proxy.self` | `lineage` | a random name of this database |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use telem_engine::{Durability, MetaChange, Snapshot, StateRecord};

use super::ScrapeKind;
use crate::state::State;
use crate::token::Token;

const TARGET: &str = "proxy.target";
const OFFSET: &str = "proxy.offset";
const OWN: &str = "proxy.self";
const LINEAGE_KEY: &str = "lineage";
/// Most offsets in one record.
const PART_OFFSETS: usize = 16_384;
/// As much of a random token is a name that nobody else has.
const LINEAGE_CHARS: usize = 32;

/// A target's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Before every path that is asked; it may hold a token of that server.
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub kind: Option<ScrapeKind>,
    pub period_ms: u64,
    pub number: u32,
    /// It is polled again after a restart.
    pub is_polled: bool,
    /// Only where it is on this machine.
    #[serde(default)]
    pub is_limited: bool,
    #[serde(default)]
    pub lineage: Option<String>,
    /// When the jobs of a child began, by their ids.
    #[serde(default)]
    pub starts: BTreeMap<String, u64>,
}

/// Whether anything was ever polled.
pub fn has_targets(snapshot: &Snapshot) -> bool {
    snapshot.meta().record_keys(TARGET).next().is_some()
}

/// All targets, by host and port; nodes of our own job by name.
pub fn targets(state: &State) -> Vec<(String, TargetRecord)> {
    let snapshot = state.db.snapshot();
    let read = |(key, text): (&str, std::sync::Arc<str>)| match serde_json::from_str(&text) {
        Ok(record) => Some((key.to_owned(), record)),
        Err(error) => {
            tracing::warn!(%error, at = key, "the record of a target cannot be read");
            None
        }
    };
    snapshot.meta().records(TARGET).filter_map(read).collect()
}

pub fn keep_target(state: &State, key: &str, record: &TargetRecord) {
    keep(state, StateRecord::new(TARGET, key, serde_json::to_string(record).unwrap_or_default()));
}

/// The offsets of a child's job.
pub fn offsets(state: &State, target: &str, job: &str) -> BTreeMap<String, f64> {
    let snapshot = state.db.snapshot();
    let parts = (0..).map_while(|part| snapshot.meta().record(OFFSET, &offset_key(target, job, part)));
    let mut offsets = BTreeMap::new();
    for text in parts {
        match serde_json::from_str::<BTreeMap<String, f64>>(&text) {
            Ok(part) => offsets.extend(part),
            Err(error) => tracing::warn!(%error, at = target, job, "offsets of a child cannot be read"),
        }
    }
    offsets
}

/// Keeps them in the place of earlier ones. Offsets never leave, so there are no fewer parts than before.
pub fn keep_offsets(state: &State, target: &str, job: &str, offsets: &BTreeMap<&str, f64>) {
    let all: Vec<(&&str, &f64)> = offsets.iter().collect();
    for (part, offsets) in all.chunks(PART_OFFSETS).enumerate() {
        let offsets: BTreeMap<&str, f64> = offsets.iter().map(|(name, offset)| (**name, **offset)).collect();
        let text = serde_json::to_string(&offsets).unwrap_or_default();
        keep(state, StateRecord::new(OFFSET, offset_key(target, job, part), text));
    }
}

/// Forgets those of a job that will not go on.
pub fn forget_offsets(state: &State, target: &str, job: &str) {
    let keys: Vec<String> = {
        let snapshot = state.db.snapshot();
        let keys = (0..).map(|part| offset_key(target, job, part));
        keys.take_while(|key| snapshot.meta().record_bytes(OFFSET, key).is_some()).collect()
    };
    for key in keys {
        keep(state, StateRecord::removal(OFFSET, key));
    }
}

fn offset_key(target: &str, job: &str, part: usize) -> String {
    format!("{target}\n{job}\n{part}")
}

/// The name of this database, by which others know that its counters go on; `None` where nothing is written.
pub fn lineage(state: &State) -> Option<String> {
    let known = state.db.snapshot().meta().record(OWN, LINEAGE_KEY).map(|name| name.to_string());
    if known.is_some() || state.writer.is_none() {
        return known;
    }
    let random = Token::random().inspect_err(|error| tracing::warn!(%error, "this database has no name")).ok()?;
    let name: String = random.secret().chars().take(LINEAGE_CHARS).collect();
    keep(state, StateRecord::new(OWN, LINEAGE_KEY, name.clone()));
    Some(name)
}

fn keep(state: &State, record: StateRecord) {
    if state.writer.is_none() {
        return;
    }
    let kind = record.kind.clone();
    if let Err(error) = state.db.put_meta(MetaChange::Record(record), Durability::Buffered) {
        tracing::warn!(%error, kind, "what is known of a target will not outlive this process");
    }
}
