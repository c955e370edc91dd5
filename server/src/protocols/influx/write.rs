//! `POST /write` and `POST /api/v2/write`: line protocol in. Good lines are stored (unless the server's level says to
//! keep nothing), each bad one is named with its reason.

use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::StatusCode;
use axum::response::Response;
use telem_engine::Durability;
use telem_ingest::accept::default_tags::DefaultTags;
use telem_ingest::accept::lines::{AcceptedLines, LineRules};
use telem_ingest::decode::line::Precision;

use super::answer::{Dialect, Failure, respond};
use crate::http::{self, body};
use crate::protocols::opentsdb::Params;
use crate::state::State;

/// What users send is of this level: a server of level 0 checks it, says that all is well, and keeps nothing of it.
const LEVEL: u8 = 1;
/// The parameter of a request whose samples get no tags from their connection: the client knows better.
const AS_SENT: &str = "as_sent";
/// Most bad lines that an answer names; the others are counted.
const LISTED_MAX: usize = 100;

pub async fn v1(state: Of<Arc<State>>, request: Request) -> Response {
    answer(state, Dialect::V1, request).await
}

pub async fn v2(state: Of<Arc<State>>, request: Request) -> Response {
    answer(state, Dialect::V2, request).await
}

async fn answer(Of(state): Of<Arc<State>>, dialect: Dialect, request: Request) -> Response {
    match write(&state, request).await {
        Ok(()) => respond(StatusCode::NO_CONTENT, None),
        Err(failure) => failure.respond(dialect),
    }
}

async fn write(state: &State, request: Request) -> Result<(), Failure> {
    let Some(writer) = state.writer.clone() else {
        let what = "this database is served read-only; send samples to the telem that writes it";
        return Err(Failure::new(StatusCode::FORBIDDEN, what));
    };
    let params = Params::parse(request.uri().query().unwrap_or_default());
    let durability = if params.has("sync") { Durability::Synced } else { Durability::Buffered };
    let rules = LineRules { precision: precision(&params)?, keep: state.level >= LEVEL };
    let tags = if params.has(AS_SENT) { DefaultTags::default() } else { http::default_tags(&request) };
    let body = body::read(request, &state.limits).await?;
    let decoder = writer.clone();
    let accepted = body::decode(body, &state.limits, move |body| decoder.accept_lines(&tags, rules, body)).await?;
    let AcceptedLines { batch, good, rejects, rejected, .. } = accepted;
    writer.submit(batch, durability).await?;
    if rejected == 0 {
        return Ok(());
    }
    let mut told: Vec<String> =
        rejects.iter().take(LISTED_MAX).map(|reject| format!("line {}: {}", reject.line, reject.reason)).collect();
    if rejected > told.len() {
        told.push(format!("and {} more", rejected - told.len()));
    }
    let told = told.join("\n");
    let message = if good == 0 { told } else { format!("partial write: {told} dropped={rejected}") };
    let line = rejects.first().map(|reject| reject.line);
    Err(Failure { line, ..Failure::new(StatusCode::BAD_REQUEST, message) })
}

fn precision(params: &Params) -> Result<Precision, Failure> {
    let Some(name) = params.get("precision").filter(|name| !name.is_empty()) else { return Ok(Precision::default()) };
    Precision::by_name(name).ok_or_else(|| {
        let what = format!("invalid precision '{name}': expected ns, us, ms, s, m or h");
        Failure::new(StatusCode::BAD_REQUEST, what)
    })
}
