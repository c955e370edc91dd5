//! What an original above was not told of yet when this server was stopped, for the next process: an original that could not
//! poll once more has it from that one. Only what differs is kept; of everything else the next process takes for granted
//! that it was told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use telem_engine::{StateRecord, Timestamp};

use super::super::live::ProxyLive;

/// The kind of its records, whose keys are numbers.
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

/// Keeps what was counted and not told. Nobody is told anything any more.
pub fn keep(live: &ProxyLive) {
    if live.state.writer.is_none() {
        return;
    }
    live.told.end_join();
    forget(live);
    let mut records = 0;
    for (desc, scope) in live.recent_jobs() {
        let begin = live.runs.begin(&desc.jobid);
        let untold = live.told.untold(&desc.jobid, begin, live.table.all(scope));
        for part in untold.chunks(PART_COUNTERS) {
            let told = part.iter().map(|(name, told)| (name.to_string(), told.to_bits())).collect();
            let part = UntoldPart { job: desc.jobid.clone(), begin: begin.map(Timestamp::micros), told };
            let text = serde_json::to_string(&part).unwrap_or_default();
            live.keep(StateRecord::new(UNTOLD, records.to_string(), text));
            records += 1;
        }
    }
    if records > 0 {
        tracing::info!("what the parent was not told of yet is told after the next start");
    }
}

/// Takes back of what counts as told what a process before this one kept.
pub fn correct(live: &ProxyLive) {
    for (key, text) in live.state.db.snapshot().meta().records(UNTOLD) {
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
    let snapshot = live.state.db.snapshot();
    for key in snapshot.meta().record_keys(UNTOLD) {
        live.keep(StateRecord::removal(UNTOLD, key));
    }
}
