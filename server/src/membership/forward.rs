//! Forwards queries from an agent to its head, which asks all nodes, so that a program gets one answer wherever it
//! runs. Without a head the agent answers for its own node alone, and says so.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use telem_engine::ErrorKind;
use telem_query::MissingNode;
use tokio::sync::watch;

use crate::client::{self, Client, ClientError};
use crate::http::asker::{ASKED_AT, NO_TOKEN, PathPrefix, ShownToken};
use crate::http::body::{self, BodyLimits};
use crate::http::{self, ApiError};
use crate::missing;
use crate::protocols::proxy::calls::ProxyCall;
use crate::protocols::proxy::reply;
use crate::protocols::proxy::targets::LINEAGE;
use crate::protocols::proxy::targets::fetch::OWN_NODE;
use crate::slots;

/// How to reach the head, while there is one.
pub type InSight = watch::Receiver<Option<Client>>;

/// How much longer than a query may take a head may be silent.
pub const GRACE: Duration = Duration::from_secs(10);
/// The parts of a client's request for the process that answers.
const PASSED_ON: [HeaderName; 6] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    HeaderName::from_static(slots::HEADER),
    HeaderName::from_static(LINEAGE),
];
/// What holds for one connection only.
const OF_CONNECTION: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::TRAILER];

#[derive(Debug)]
struct Forward {
    head: InSight,
    node: String,
    limits: BodyLimits,
}

/// The same paths; what is asked there goes to the head while there is one.
pub fn over(router: Router, head: InSight, node: &str, limits: BodyLimits) -> Router {
    let forward = Arc::new(Forward { head, node: node.to_owned(), limits });
    router.layer(middleware::from_fn_with_state(forward, forwarded))
}

/// The node that answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answerer {
    /// This node: it is about what it has, or tells it something.
    Node,
    /// The head; while there is none, this node for what it knows.
    HeadFirst,
    /// The head alone.
    Head,
}

impl Answerer {
    fn of(request: &Request) -> Self {
        let path = request.uri().path();
        match ProxyCall::of(path) {
            Some(_) if request.headers().contains_key(OWN_NODE) => Self::Node,
            Some(ProxyCall::Asks) => Self::HeadFirst,
            Some(ProxyCall::Changes) => Self::Head,
            None if is_question(request.method(), path) => Self::HeadFirst,
            None => Self::Node,
        }
    }
}

/// Whether it queries samples or nodes of the job, or is about the job itself. Samples that are sent do not count: a node stores its own.
fn is_question(method: &Method, path: &str) -> bool {
    let view = ["/grafana", "/dragon"].into_iter().find_map(|view| path.strip_prefix(view));
    let path = view.unwrap_or(path).to_ascii_lowercase();
    let mut words = path.split('/').filter(|word| !word.is_empty()).peekable();
    let is_api = words.next_if_eq(&"api").is_some();
    if is_api {
        let is_version = |word: &&str| word.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok());
        words.next_if(is_version);
    }
    match (is_api, words.next(), words.next()) {
        (true, Some("query"), _) | (true, Some("search"), Some("lookup")) => true,
        (true, Some("job"), Some("end")) => true,
        (true, Some("sql" | "suggest" | "job" | "jobs"), None) | (false, Some("q" | "suggest"), None) => true,
        (true, Some("nodes"), None) => method == Method::GET,
        _ => false,
    }
}

async fn forwarded(State(forward): State<Arc<Forward>>, request: Request, next: Next) -> Response {
    let answerer = Answerer::of(&request);
    if answerer == Answerer::Node {
        return next.run(request).await;
    }
    let Some(head) = forward.head.borrow().clone() else {
        return match answerer {
            Answerer::Head => unheard("there is no head that could do that now; try again later"),
            Answerer::HeadFirst | Answerer::Node => forward.alone("there is no head", request, next).await,
        };
    };
    let (mut parts, given) = request.into_parts();
    let whole = body::read(Request::from_parts(parts.clone(), given), &forward.limits).await;
    let asked: Bytes = match whole {
        Ok(asked) => asked,
        Err(error) => return error.into_response(),
    };
    // It is read, and unpacked.
    for name in [header::CONTENT_ENCODING, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let headers = passed_on(&parts.headers).chain(asked_at(&parts)).chain(asker(&parts.extensions));
    let sent = head.pass(parts.method.clone(), path, headers.collect::<Vec<_>>(), asked.clone());
    let mut sight = forward.head.clone();
    let answer = tokio::select! {
        answer = sent => Some(answer),
        // The member that reports to it notices sooner than a query.
        _ = sight.wait_for(|head| head.is_none()) => None,
    };
    match answer {
        Some(Ok(answer)) => return response(answer),
        Some(Err(error @ ClientError::Silent { .. })) => {
            return ApiError::of_kind(ErrorKind::Unavailable, error.to_string()).into_response();
        }
        Some(Err(error)) if answerer == Answerer::Head => return unheard(&format!("{error}; ask whether it was done")),
        Some(Err(error)) => tracing::debug!(%error, "a query is not forwarded"),
        None if answerer == Answerer::Head => {
            return unheard("the head does not answer any more; ask whether it was done");
        }
        None => {}
    }
    forward.alone("the head does not answer", Request::from_parts(parts, Body::from(asked)), next).await
}

impl Forward {
    /// Our own answer, which says that it covers only this node.
    async fn alone(&self, why: &str, request: Request, next: Next) -> Response {
        let asks_strictly = request.uri().query().is_some_and(|query| query.split('&').any(|one| one == "strict=true"));
        if asks_strictly {
            let what =
                format!("other nodes ({why}) would be missing from the answer; without strict it covers {}", self.node);
            return ApiError::of_kind(ErrorKind::Unavailable, what).into_response();
        }
        let reason = format!("{why}: these are the samples of {} alone", self.node);
        let mut answer = next.run(request).await;
        if let Some(lacking) = missing::header(&[MissingNode { node: "other nodes".to_owned(), reason }]) {
            answer.headers_mut().insert(missing::NAME, lacking);
        }
        answer
    }
}

/// A call of Metric Proxy's API that nobody heard, or perhaps nobody did.
fn unheard(why: &str) -> Response {
    reply::failed(StatusCode::SERVICE_UNAVAILABLE, why)
}

/// Where the client asked, for answers that lead it back.
fn asked_at(parts: &Parts) -> Option<(HeaderName, HeaderValue)> {
    let host = parts.headers.get(header::HOST)?.to_str().ok().filter(|host| host.contains(':'))?;
    let prefix = parts.extensions.get::<PathPrefix>().map_or("", |prefix| &prefix.0);
    let mut place = HeaderValue::from_str(&format!("{host}{prefix}")).ok()?;
    place.set_sensitive(true);
    Some((HeaderName::from_static(ASKED_AT), place))
}

/// The token that the head is shown is ours.
fn asker(extensions: &Extensions) -> Option<(HeaderName, HeaderValue)> {
    let has_token = extensions.get::<ShownToken>().is_some();
    (!has_token).then(|| (HeaderName::from_static(NO_TOKEN), HeaderValue::from_static("true")))
}

fn passed_on(headers: &HeaderMap) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    PASSED_ON.into_iter().filter_map(|name| headers.get(&name).cloned().map(|value| (name, value)))
}

fn response(answer: client::AnswerBody) -> Response {
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    let chunks = futures::stream::unfold(answer, |mut answer| async move {
        let chunk = answer.chunk().await.transpose()?;
        Some((chunk, answer))
    });
    let mut response = Response::new(http::streamed(chunks));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
