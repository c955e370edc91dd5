//! What metrics are: their types, units and helps, said by frames that name series, or by `POST /api/describe`.
//!
//! The body is `{"METRIC": {"type": "counter", "unit": "s", "help": TEXT}, ...}`, each field of which may be missing. What is
//! known of a metric stays; only what is missing is added. Samples do not depend on any of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::StatusCode;
use serde::Deserialize;
use telem_engine::{Db, ErrorKind, MetricKind, MetricMeta, SeriesKey, TagSet};

use super::bounds::{DESCRIBED_METRICS_MAX, DESCRIPTION_BYTES_MAX, HELP_BYTES_MAX, UNIT_BYTES_MAX};
use crate::http::{ApiError, body};
use crate::state::State;

/// What somebody says of a metric.
#[derive(Debug, PartialEq, Eq)]
pub struct SaidOfMetric {
    pub name: String,
    pub meta: MetricMeta,
}

/// Writes down what metrics are, as far as there is room for more of them.
pub async fn write(db: Db, said: Vec<SaidOfMetric>) -> Result<(), ApiError> {
    if said.is_empty() {
        return Ok(());
    }
    // It waits for the disk.
    let written = tokio::task::spawn_blocking(move || {
        said.iter().try_for_each(|said| db.complete_metric(&said.name, &said.meta, DESCRIBED_METRICS_MAX))
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
    let mut told = Vec::new();
    for (name, SaidMetric { kind, unit, help }) in said {
        SeriesKey::new(&name, TagSet::default()).map_err(|error| bad(format!("the metric {name:?}: {error}")))?;
        for (what, text, max) in [("unit", &unit, UNIT_BYTES_MAX), ("help", &help, HELP_BYTES_MAX)] {
            if text.len() > max {
                let found = text.len();
                return Err(bad(format!("the {what} of {name:?} has {found} bytes; {max} are the most: shorten it")));
            }
        }
        told.push(SaidOfMetric { name, meta: MetricMeta { kind, unit, help } });
    }
    write(state.db.clone(), told).await?;
    Ok(StatusCode::NO_CONTENT)
}
