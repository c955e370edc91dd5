//! What metrics are: their types, units and helps, said by frames that name series, or by `POST /api/describe`.
//!
//! The body is `{"METRIC": {"type": "counter", "unit": "s", "help": TEXT}, ...}`, each field of which may be missing. What is
//! known of a metric stays; only what is missing is added. Samples do not depend on any of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::StatusCode;
use serde::Deserialize;
use telem_engine::{Db, Durability, Error, ErrorKind, MetaChange, MetricKind, MetricMeta, SeriesKey, TagSet};

use super::bounds::{DESCRIBED_METRICS_MAX, DESCRIPTION_BYTES_MAX, HELP_BYTES_MAX, UNIT_BYTES_MAX};
use crate::http::{ApiError, body};
use crate::state::State;

/// What `said` adds to what is known.
pub fn completed(known: Option<&MetricMeta>, said: MetricMeta) -> MetricMeta {
    let before = known.cloned().unwrap_or_default();
    let or = |known: String, said: String| if known.is_empty() { said } else { known };
    let kind = if before.kind == MetricKind::Unknown { said.kind } else { before.kind };
    MetricMeta { kind, unit: or(before.unit, said.unit), help: or(before.help, said.help) }
}

/// Writes down what metrics are, as far as there is room for more of them.
pub async fn write(db: Db, mut changes: Vec<MetaChange>) -> Result<(), ApiError> {
    let name = |change: &MetaChange| match change {
        MetaChange::Metric { name, .. } => Some(name.clone()),
        _ => None,
    };
    changes.sort_by_key(name);
    changes.dedup_by_key(|change| name(change));
    if changes.is_empty() {
        return Ok(());
    }
    // It waits for the disk.
    let written = tokio::task::spawn_blocking(move || {
        let known = db.snapshot().meta().metrics().count();
        for change in changes.into_iter().take(DESCRIBED_METRICS_MAX.saturating_sub(known)) {
            db.put_meta(change, Durability::Buffered)?;
        }
        Ok::<(), Error>(())
    });
    let written = written.await;
    written.map_err(|panic| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}")))??;
    Ok(())
}

/// One metric of a body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SaidMetric {
    #[serde(default, rename = "type")]
    kind: MetricKind,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    help: String,
}

/// `POST /api/describe`.
pub async fn take(Of(state): Of<Arc<State>>, request: Request) -> Result<StatusCode, ApiError> {
    let bad = |why: String| ApiError::of_kind(ErrorKind::Invalid, why);
    let text = body::read(request, &state.limits.bodies.at_most(DESCRIPTION_BYTES_MAX)).await?;
    if state.writer.is_none() {
        let why = "this service is read-only and takes no descriptions: send them to the one that takes samples";
        return Err(ApiError::of_kind(ErrorKind::Unavailable, why.to_owned()));
    }
    let said: BTreeMap<String, SaidMetric> = serde_json::from_slice(&text).map_err(|error| {
        bad(format!("the body is no {{\"METRIC\":{{\"type\":...,\"unit\":...,\"help\":...}},...}}: {error}"))
    })?;
    let snapshot = state.db.snapshot();
    let mut changes = Vec::new();
    for (name, SaidMetric { kind, unit, help }) in said {
        SeriesKey::new(&name, TagSet::default()).map_err(|error| bad(format!("the metric {name:?}: {error}")))?;
        for (what, text, max) in [("unit", &unit, UNIT_BYTES_MAX), ("help", &help, HELP_BYTES_MAX)] {
            if text.len() > max {
                let found = text.len();
                return Err(bad(format!("the {what} of {name:?} has {found} bytes; {max} are the most: shorten it")));
            }
        }
        let known = snapshot.meta().metric(&name);
        let meta = completed(known, MetricMeta { kind, unit, help });
        if Some(&meta) != known {
            changes.push(MetaChange::Metric { name, meta });
        }
    }
    drop(snapshot);
    write(state.db.clone(), changes).await?;
    Ok(StatusCode::NO_CONTENT)
}
