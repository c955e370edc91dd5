//! The OpenTSDB 2.4 HTTP API, and its [`telnet`] protocol: what Grafana and OpenTSDB's clients speak.
//!
//! OpenTSDB's paths ignore case and a trailing slash, contain an optional version and may override their method. So one
//! handler gets everything below `/api` that no other protocol claims: [`call`] reads the request, one file per
//! endpoint answers it, and [`errors`] renders errors.

mod aggregators;
pub(crate) mod annotation;
pub(crate) mod asked;
mod body;
pub(crate) mod call;
mod counters;
pub(crate) mod describe;
pub(crate) mod errors;
#[cfg(test)]
mod fuzzing;
mod graph;
pub(crate) mod json;
pub(crate) mod last;
pub(crate) mod lookup;
pub(crate) mod names;
pub(crate) mod put;
pub(crate) mod query;
mod refused;
pub(crate) mod stats;
pub(crate) mod suggest;
mod telnet;
#[cfg(test)]
mod tests;
mod time;
mod tsuid;
pub(crate) mod uid;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::HttpBody;
use axum::extract::{Request, State as FromState};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use telem_query::tsq::Fidelity;

use self::asked::QueryLog;
use self::call::{Call, Endpoint, Generation};
use self::counters::OpenTsdbCounters;
use self::errors::{OldFormat, OpenTsdbError};
use self::telnet::Telnet;
pub use self::telnet::TelnetLimits;
use crate::answers::AnswerCharge;
use crate::cors::{self, Verdict};
use crate::http;
use crate::missing;
use crate::protocol::{LineService, Protocol};
use crate::state::State;
use crate::walks::StopSign;

/// Where a Grafana finds the same API, with gaps that it can draw (see [`query`]).
const GRAFANA: &str = "/grafana";

/// The protocol, and what it remembers of itself.
#[derive(Debug)]
pub struct OpenTsdb {
    state: Arc<State>,
    counters: OpenTsdbCounters,
    queries: QueryLog,
    /// Held by who assigns names: two are not to be given one number.
    naming: Mutex<()>,
    telnet: TelnetLimits,
}

impl OpenTsdb {
    pub fn new(state: Arc<State>, telnet: TelnetLimits) -> Self {
        let (counters, queries, naming) = Default::default();
        Self { state, counters, queries, naming, telnet }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }
}

impl Protocol for OpenTsdb {
    /// Every path under `/api`, the older names without it that OpenTSDB still answers, and what a Grafana asks.
    fn routes(self: Arc<Self>) -> Router {
        let mut router = Router::new();
        for path in ["/api", "/api/", "/api/{*rest}", "/API", "/API/", "/API/{*rest}"].into_iter().chain(OLD_PATHS) {
            router = router.route(path, any(answer));
        }
        for rest in ["/api", "/api/", "/api/{*rest}"] {
            router = router.route(&format!("{GRAFANA}{rest}"), any(answer));
        }
        router.with_state(self)
    }

    fn lines(self: Arc<Self>) -> Option<Arc<dyn LineService>> {
        Some(Arc::new(Telnet::new(self)))
    }
}

/// Names from before there was an API.
const OLD_PATHS: [&str; 8] =
    ["/aggregators", "/diediedie", "/dropcaches", "/logs", "/q", "/stats", "/suggest", "/version"];

/// What an endpoint answers when all is well: JSON, or nothing (204).
pub(crate) struct Answer {
    status: StatusCode,
    /// JSON, unless `kind` says what else.
    json: Vec<u8>,
    kind: &'static str,
    /// In place of `json`, what is sent while it is made.
    pieces: Option<query::Pieces>,
    /// Nodes that did not answer, for the header `X-Telem-Missing`.
    missing: Option<HeaderValue>,
    /// What the answer has and does not show, for the header [`query::HIDDEN`].
    hidden: Option<HeaderValue>,
    /// What a large answer holds of the memory for answers.
    held: Option<AnswerCharge>,
}

const JSON: &str = "application/json; charset=UTF-8";
const TEXT: &str = "text/plain; charset=UTF-8";

impl Answer {
    fn ok(json: Vec<u8>) -> Self {
        Answer::with_status(StatusCode::OK, json)
    }

    fn with_status(status: StatusCode, json: Vec<u8>) -> Self {
        Answer { status, json, kind: JSON, pieces: None, missing: None, hidden: None, held: None }
    }

    /// The same answer, which says that it lacks these nodes.
    fn lacking(self, missing: &[telem_query::MissingNode]) -> Self {
        Answer { missing: missing::header(missing), ..self }
    }

    fn no_content() -> Self {
        Answer::with_status(StatusCode::NO_CONTENT, Vec::new())
    }

    /// For people.
    fn text(text: impl Into<Vec<u8>>) -> Self {
        Answer { kind: TEXT, ..Answer::ok(text.into()) }
    }

    fn html(page: impl Into<Vec<u8>>) -> Self {
        Answer { kind: "text/html; charset=UTF-8", ..Answer::ok(page.into()) }
    }
}

async fn answer(FromState(tsdb): FromState<Arc<OpenTsdb>>, request: Request) -> Response {
    answer_by(|tsdb, call, request| Box::pin(dispatch(tsdb, call, request)), tsdb, request).await
}

/// Finds the answer to a call: [`dispatch`], or what a view of this API has in its place.
pub(crate) type Dispatch =
    for<'a> fn(&'a Arc<OpenTsdb>, &'a Call, Request) -> BoxFuture<'a, Result<Answer, OpenTsdbError>>;

/// Answers a request whose path begins with that of the API.
pub(crate) async fn answer_by(dispatch: Dispatch, tsdb: Arc<OpenTsdb>, request: Request) -> Response {
    let counters = &tsdb.counters.http;
    counters.received.fetch_add(1, Ordering::Relaxed);
    let page = tsdb.state.cors.judge(request.headers());
    let mut response = match &page {
        Verdict::Refused { origin } => respond(Err(OpenTsdbError::strange_page(origin)), None),
        Verdict::Admitted(_) if request.method() == Method::OPTIONS => StatusCode::OK.into_response(),
        Verdict::Admitted(_) | Verdict::NoPage => answer_call(dispatch, &tsdb, request).await,
    };
    if let Verdict::Admitted(origin) = page {
        cors::allow(response.headers_mut(), origin);
    }
    counters.ended(response.status());
    response
}

async fn answer_call(dispatch: Dispatch, tsdb: &Arc<OpenTsdb>, request: Request) -> Response {
    let state = &tsdb.state;
    let call = match Call::read(&request) {
        Ok(call) => call,
        Err(failure) => return respond(Err(failure), None),
    };
    // Only where the original is asked for: a page that shows such an answer as a script reads it. Browsers tell
    // when another site's page asks (see `net::access`), old ones do not.
    let callback = call.callback().filter(|_| state.fidelity == Fidelity::OpenTsdb);
    let running = matches!(
        call.endpoint,
        Endpoint::Query | Endpoint::Expression | Endpoint::Graphite | Endpoint::Last | Endpoint::Graph
    )
    .then(|| {
        let text = format!("{} {}", request.method(), request.uri());
        tsdb.queries.start(text, state.clock.now())
    });
    let answer = dispatch(tsdb, &call, request).await;
    let answer = answer.map_err(|failure| match call.generation {
        Generation::Api => failure,
        Generation::Old if call.params.has("json") => failure.of_old(OldFormat::Json),
        Generation::Old => failure.of_old(OldFormat::Text),
    });
    let response = respond(answer, callback.as_deref());
    if let Some(running) = running {
        running.ended(response.status(), state.clock.now());
    }
    response
}

/// The answer of OpenTSDB's own API.
///
/// # Errors
/// As OpenTSDB reports them.
pub(crate) async fn dispatch(tsdb: &Arc<OpenTsdb>, call: &Call, request: Request) -> Result<Answer, OpenTsdbError> {
    let state = &tsdb.state;
    match call.endpoint {
        Endpoint::Put => put::answer(state, call, request).await,
        Endpoint::Query => query::answer(state, call, request).await,
        Endpoint::Expression => query::expression::answer(state, call, request).await,
        Endpoint::Graphite => query::graphite::answer(state, call, request).await,
        Endpoint::Last => last::answer(state, call, request).await,
        Endpoint::Annotation => annotation::one(state, call, request).await,
        Endpoint::GlobalAnnotations => annotation::global(state, call, request).await,
        Endpoint::Annotations => annotation::bulk(state, call, request).await,
        Endpoint::Suggest => suggest::answer(suggest::OPENTSDB, state, call, request).await,
        Endpoint::Lookup => lookup::answer(state, call, request).await,
        Endpoint::Search(ref kind) => lookup::other(state, call, kind, request).await,
        Endpoint::Aggregators => describe::aggregators(call, &aggregators::names()),
        Endpoint::Filters => describe::filters(call),
        Endpoint::Config => describe::config(state, call),
        Endpoint::Version => describe::version(state, call),
        Endpoint::DropCaches => describe::drop_caches(call),
        Endpoint::Stats => stats::answer(tsdb, call),
        Endpoint::QueryStats => stats::queries(tsdb, call),
        Endpoint::ProcessStats => stats::process(state, call),
        Endpoint::ThreadStats => stats::threads(call),
        Endpoint::RegionClients => stats::region_clients(call),
        Endpoint::UidAssign => uid::assign(tsdb, call, request).await,
        Endpoint::UidRename => uid::rename(tsdb, call, request).await,
        Endpoint::UidMeta => uid::uid_meta(tsdb, call, request).await,
        Endpoint::TsMeta => uid::ts_meta(state, call, request).await,
        Endpoint::Graph => graph::answer(state, call, request.uri().query()).await,
        Endpoint::Rollup => put::refuse(state, call, request, refused::NO_ROLLUPS).await,
        Endpoint::Histogram => refused::histogram(call),
        Endpoint::Tree(ref of) => refused::tree(call, of),
        Endpoint::Logs => Err(refused::logs()),
        Endpoint::Die => Err(refused::die()),
    }
}

fn respond(answer: Result<Answer, OpenTsdbError>, callback: Option<&str>) -> Response {
    let (status, kind, body, pieces, notes, retry_after) = match answer {
        Ok(Answer { status, json, kind, pieces, missing, hidden, held }) => {
            let body = match held {
                Some(held) => held.around(json),
                None => Bytes::from(json),
            };
            (status, kind, body, pieces, [(missing::NAME, missing), (query::HIDDEN, hidden)], None)
        }
        Err(failure) => {
            let notes = [(missing::NAME, None), (query::HIDDEN, None)];
            (failure.status, failure.kind(), Bytes::from(failure.body()), None, notes, failure.retry_after)
        }
    };
    let callback = callback.filter(|_| kind == JSON);
    let kind = if callback.is_some() { "application/javascript; charset=UTF-8" } else { kind };
    let kind = [(header::CONTENT_TYPE, kind)];
    let around = callback.map(|callback| [format!("{callback}("), ")".to_owned()]);
    let mut response = match (pieces, around) {
        (Some(pieces), None) => (status, kind, http::streamed(pieces)).into_response(),
        (Some(pieces), Some(around)) => {
            let [before, behind] = around.map(|text| futures::stream::iter([Ok(Bytes::from(text))]));
            (status, kind, http::streamed(before.chain(pieces).chain(behind))).into_response()
        }
        (None, _) if body.is_empty() => status.into_response(),
        (None, None) => (status, kind, body).into_response(),
        (None, Some([before, behind])) => {
            let wrapped = [before.as_bytes(), &body, behind.as_bytes()].concat();
            (status, kind, wrapped).into_response()
        }
    };
    for (name, note) in notes {
        if let Some(note) = note {
            response.headers_mut().insert(name, note);
        }
    }
    if let Some(after) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    response
}

/// Refuses every method but these.
fn allow(call: &Call, methods: &[Method]) -> Result<(), OpenTsdbError> {
    if methods.contains(&call.method) { Ok(()) } else { Err(OpenTsdbError::method_not_allowed(&call.method)) }
}

/// Whether anything was sent besides the head: what may say all in its parameters says it there, else.
fn has_body(request: &Request) -> bool {
    !request.body().is_end_stream()
}

/// The text of a JSON body that asks something, no longer than a question may be.
async fn text_body(state: &State, request: Request) -> Result<String, OpenTsdbError> {
    let limits = state.limits.bodies.at_most(state.limits.question_bytes_max);
    let bytes_max = limits.bytes_max;
    let body = crate::http::body::read(request, &limits).await.map_err(|error| match error.status {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let text = format!("the body is larger than {bytes_max} bytes, the most that a question may take");
            OpenTsdbError::new(error.status, text).details("ask for less in one request")
        }
        _ => error.into(),
    })?;
    if body.is_empty() {
        return Err(OpenTsdbError::bad_request("Missing message content")
            .details("Supply valid JSON formatted data in the body of your request"));
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// Does `work`, which looks at names, series or annotations, of which there may be millions, for who asks.
async fn walk<T: Send + 'static>(
    state: &State,
    call: &Call,
    work: impl FnOnce(&StopSign) -> Result<T, OpenTsdbError> + Send + 'static,
) -> Result<T, OpenTsdbError> {
    state.limits.walks.walk(&call.asker, work).await
}
