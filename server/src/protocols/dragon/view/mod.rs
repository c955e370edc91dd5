//! What Dragon's aggregator answers, below `/dragon`: a data source of Grafana's that Dragon's dashboards work with as
//! they are.
//!
//! It is a view of the OpenTSDB API: the same parser, plans and renderer, in a [`Manner`](query::manner::Manner) of its
//! own ([`lines`]). Endpoints that Dragon does not have are answered as below `/api`, since Grafana asks some of them.
//! What would end telemetry or restart nodes does neither.

mod lines;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use futures::future::BoxFuture;
use serde_json::{Value as Json, json};
use telem_engine::NameKind;

use crate::http::{ApiError, Params, body};
use crate::protocols::opentsdb::call::{Call, Endpoint};
use crate::protocols::opentsdb::errors::OpenTsdbError;
use crate::protocols::opentsdb::suggest::{self, SuggestRule};
use crate::protocols::opentsdb::{self, Answer, OpenTsdb, describe, query};
use crate::state::State;

/// Where a data source finds it.
const DRAGON: &str = "/dragon";

/// The aggregators that Dragon tells of. A query may use every other one of OpenTSDB's too.
const AGGREGATORS: [&str; 5] = ["min", "sum", "max", "avg", "dev"];

/// `q` is found anywhere in a name, metrics are meant if nothing else is said, and all names are told.
const SUGGEST: SuggestRule = SuggestRule { kind: Some(NameKind::Metric), max: suggest::MAX_MAX, anywhere: true };

/// Why no node is restarted.
const NO_REBOOT: &str = "telem records a job and never restarts its nodes; restart them with the launcher of the job";

/// Every path below `/dragon`.
pub(crate) fn routes(tsdb: Arc<OpenTsdb>) -> Router {
    let below = Router::new()
        .route("/api/token", post(token))
        .route("/api/reboot", post(reboot))
        .route("/api/telemetry_shutdown", get(shut_down))
        .route("/api", any(answer))
        .route("/api/{*rest}", any(answer));
    Router::new().nest(DRAGON, below).with_state(tsdb)
}

async fn answer(Of(tsdb): Of<Arc<OpenTsdb>>, request: Request) -> Response {
    opentsdb::answer_by(dispatch, tsdb, request).await
}

fn dispatch<'a>(
    tsdb: &'a Arc<OpenTsdb>,
    call: &'a Call,
    request: Request,
) -> BoxFuture<'a, Result<Answer, OpenTsdbError>> {
    Box::pin(async move {
        let state = tsdb.state();
        match call.endpoint {
            Endpoint::Query => {
                // Whoever asks here draws: gaps are such as Grafana can show.
                let call = Call { of_grafana: true, ..call.clone() };
                query::answer_in(lines::MANNER, state, &call, request).await
            }
            Endpoint::Suggest => suggest::answer(SUGGEST, state, call, request).await,
            Endpoint::Aggregators => describe::aggregators(call, &AGGREGATORS),
            _ => opentsdb::dispatch(tsdb, call, request).await,
        }
    })
}

/// What is sent to `/api/token` and `/api/reboot`: short.
async fn told(state: &State, request: Request) -> Result<String, ApiError> {
    let limits = state.limits.bodies.at_most(state.limits.question_bytes_max);
    Ok(String::from_utf8_lossy(&body::read(request, &limits).await?).into_owned())
}

/// Hands the key back as a token. It grants nothing: whoever comes here was admitted already, by the rules that hold for
/// every request, and a token is looked at by these rules alone. So telem's own token as a key gives a header that is
/// admitted from everywhere, and any other key one that changes nothing.
async fn token(Of(tsdb): Of<Arc<OpenTsdb>>, request: Request) -> Result<Response, ApiError> {
    let text = told(tsdb.state(), request).await?;
    let asked: Json = serde_json::from_str(&text).unwrap_or_default();
    let key = asked["auth_key"].as_str().filter(|key| is_word(key));
    Ok(match key {
        Some(key) => answer_json(StatusCode::OK, &json!({ "access_token": format!("Bearer {key}") })),
        None => {
            let why = "expected {\"auth_key\": \"KEY\"}, a key of visible ASCII characters";
            answer_json(StatusCode::BAD_REQUEST, &json!({ "msg": "Bad auth_key", "details": why }))
        }
    })
}

/// Whether this can stand in a header.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

async fn reboot(Of(tsdb): Of<Arc<OpenTsdb>>, request: Request) -> Result<Response, ApiError> {
    let form = Params::parse(&told(tsdb.state(), request).await?);
    let list = |name: &str| -> Vec<&str> {
        let words = form.get(name).unwrap_or_default().split(',');
        words.map(str::trim).filter(|word| !word.is_empty()).collect()
    };
    let answer = json!({
        "reboot": false,
        "hostnames": list("hostnames"),
        "h_uids": list("h_uids"),
        "error": NO_REBOOT,
    });
    Ok(answer_json(StatusCode::NOT_IMPLEMENTED, &answer))
}

/// Parts of a program say so while others still record, so that it ends nothing.
async fn shut_down() -> Response {
    let note = "nothing ends: telem records until its command has ended";
    answer_json(StatusCode::OK, &json!({ "shutdown_begin": true, "note": note }))
}

fn answer_json(status: StatusCode, json: &Json) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=UTF-8")], json.to_string()).into_response()
}
