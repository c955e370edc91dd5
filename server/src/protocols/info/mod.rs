//! `GET /api/info`: the contents of the database as JSON, as `telem info` prints them. With `?by_metric=true` also
//! those of each metric, for which every segment is examined; with `?memory=true` also what the server holds in memory.

mod memory;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use telem_engine::ErrorKind;

use crate::http::ApiError;
use crate::http::asker::Asker;
use crate::info::{ClientsDropped, Info};
use crate::protocol::Protocol;
use crate::state::State;
use crate::walks::StopSign;

/// What `/api/info` answers with.
#[derive(Debug)]
pub struct InfoApi {
    state: Arc<State>,
    /// Protocols that hold much of their own.
    others: Vec<Arc<dyn Protocol>>,
}

impl InfoApi {
    pub fn new(state: Arc<State>, others: Vec<Arc<dyn Protocol>>) -> Self {
        Self { state, others }
    }
}

/// The names of all parts of memory that are counted, but for those of `others`.
#[cfg(test)]
pub fn parts(state: &State) -> impl Iterator<Item = &'static str> {
    let counted = memory::counted(state).map(|(part, _)| part);
    counted.into_iter().chain(crate::info::ServerMemory::OF_PROCESS).map(|(name, _)| name)
}

impl Protocol for InfoApi {
    fn routes(self: Arc<Self>) -> Router {
        Router::new().route("/api/info", get(info)).with_state(self)
    }
}

async fn info(Of(api): Of<Arc<InfoApi>>, request: Request) -> Result<Response, ApiError> {
    let query = request.uri().query().unwrap_or_default();
    let has = |wanted: &str| query.split('&').any(|parameter| parameter == wanted);
    let (by_metric, of_memory) = (has("by_metric=true"), has("memory=true"));
    let state = &api.state;
    let db = state.db.clone();
    // The answer waits for a lock that the writer holds while it appends.
    let asker = Asker::of(&request);
    let clock = Arc::clone(&state.clock);
    let its = Arc::clone(&api);
    let look = move |stop: &StopSign| {
        // Before anything is read for this answer.
        let held = || memory::held(&its.state, its.others.iter().flat_map(|other| other.held()));
        let memory = if of_memory { held() } else { None };
        let info = match by_metric {
            true => Info::with_metrics(&db, &*clock, &|| stop.check().is_err()),
            false => Info::of(&db),
        }?;
        Ok::<_, telem_engine::Error>(Info { memory, ..info })
    };
    let mut info = state.limits.walks.walk(&asker, move |stop| Ok::<_, ApiError>(look(stop)?)).await?;
    info.version = Some(state.version.to_owned());
    info.level = state.writer.is_some().then_some(state.level);
    let clients = state.writer.as_ref().map(|writer| writer.tallies().sum()).filter(|tally| tally.dropped() > 0);
    info.clients_dropped = clients.map(|tally| ClientsDropped {
        taken: tally.taken,
        for_room: tally.dropped_full,
        without_service: tally.dropped_alone,
        otherwise: tally.dropped_else,
    });
    let text = serde_json::to_string(&info)
        .map_err(|error| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {error}")))?;
    Ok(([(header::CONTENT_TYPE, "application/json; charset=UTF-8")], text).into_response())
}
