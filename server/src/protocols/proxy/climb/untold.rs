//! What an original above was not told of yet when this server was stopped, for the next process: an original that could not
//! poll once more has it from that one. Only what differs is kept; of everything else the next process takes for granted
//! that it was told. What one root was told says nothing of another one, so each record is of a root. One that was told
//! nothing at all is told everything anyway.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use telem_engine::{StateRecord, Timestamp};

use super::super::live::ProxyLive;
use super::top::told_roots;

/// The kind of its records. Each key is a root's host and port, a blank, and a number.
const UNTOLD: &str = "proxy.untold";
/// Most counters in a record.
const PART_COUNTERS: usize = 8_192;

/// Counters of a job that have more than was told of them.
#[derive(Debug, Serialize, Deserialize)]
struct UntoldPart {
    job: String,
    /// Of its run, in microseconds since 1970; a sum has none.
    begin: Option<i64>,
    /// By name, what was told: the bits of a double, as numbers in JSON may come back changed.
    told: Vec<(String, u64)>,
}

/// The host and port of the root that this server is to stand below.
fn root(live: &ProxyLive) -> Option<&str> {
    live.options.root.as_ref().map(|(root, _)| root.authority())
}

fn is_of(key: &str, root: &str) -> bool {
    key.rsplit_once(' ').is_some_and(|(of, _)| of == root)
}

/// Keeps what was counted and not told. Nobody is told anything any more.
pub fn keep(live: &ProxyLive) {
    if live.state.writer.is_none() {
        return;
    }
    live.told.end_join();
    let told = told_roots(live);
    let snapshot = live.state.db.snapshot();
    for key in snapshot.meta().record_keys(UNTOLD).filter(|key| !told.iter().any(|root| is_of(key, root))) {
        live.keep(StateRecord::removal(UNTOLD, key));
    }
    let Some(root) = root(live).filter(|root| told.iter().any(|told| told == root)) else { return };
    forget(live);
    let mut records = 0;
    for (desc, scope) in live.recent_jobs() {
        let begin = live.runs.begin(&desc.jobid);
        let untold = live.told.untold(&desc.jobid, begin, live.table.all(scope));
        for part in untold.chunks(PART_COUNTERS) {
            let told = part.iter().map(|(name, told)| (name.to_string(), told.to_bits())).collect();
            let part = UntoldPart { job: desc.jobid.clone(), begin: begin.map(Timestamp::micros), told };
            let text = serde_json::to_string(&part).unwrap_or_default();
            live.keep(StateRecord::new(UNTOLD, format!("{root} {records}"), text));
            records += 1;
        }
    }
    if records > 0 {
        tracing::info!("what the parent was not told of yet is told after the next start");
    }
}

/// Takes back of what counts as told what a process before this one kept.
pub fn correct(live: &ProxyLive) {
    let Some(root) = root(live) else { return };
    for (key, text) in live.state.db.snapshot().meta().records(UNTOLD).filter(|(key, _)| is_of(key, root)) {
        match serde_json::from_str::<UntoldPart>(&text) {
            Ok(UntoldPart { job, begin, told }) => {
                let told = told.into_iter().map(|(name, bits)| (Arc::from(name), f64::from_bits(bits)));
                live.told.correct(&job, begin.map(Timestamp::from_micros), told);
            }
            Err(error) => tracing::warn!(%error, key, "what an original was not told cannot be read"),
        }
    }
}

/// Forgets it: from now on it may be told.
pub fn forget(live: &ProxyLive) {
    let Some(root) = root(live) else { return };
    let snapshot = live.state.db.snapshot();
    for key in snapshot.meta().record_keys(UNTOLD).filter(|key| is_of(key, root)) {
        live.keep(StateRecord::removal(UNTOLD, key));
    }
}
