//! What targets are asked, and how much of an answer is read.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, header};
use bytes::Bytes;
use serde::Deserialize;

use super::address::{TargetAddress, is_here};
use super::{LINEAGE, ScrapeKind};
use crate::client::{Client, ClientError};

/// A request with it is about the one node that is asked, and not for its head.
pub const OWN_NODE: &str = "x-telem-own-node";
/// Its value where counters that are 0 are wanted, too.
pub const OWN_NODE_WHOLE: &str = "whole";

/// What a node is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    /// Counters with data, as a child tells them.
    Data,
    /// All that are declared: of a program that may count many things most are 0.
    Whole,
}

/// Longest that a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest silence within an answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Longest that a whole answer may take.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Largest answer of a proxy, and of an exporter.
pub const PROXY_BYTES_MAX: usize = 256 << 20;
pub const EXPORTER_BYTES_MAX: usize = 64 << 20;
/// Largest profile of a job.
pub const PROFILE_BYTES_MAX: usize = 64 << 20;
/// Largest of a page, and of an acknowledgement.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// What marks a proxy's page.
const MARK: &str = "<html>";
/// Both formats are read.
const ACCEPTED: &str = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.8";

/// Which targets may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetReach {
    Anywhere,
    /// On this machine only.
    Here,
}

/// What a target answered.
#[derive(Debug)]
pub struct TargetAnswer {
    pub body: Vec<u8>,
    pub content_type: String,
    /// Which database counts there, where it is one of ours.
    pub lineage: Option<String>,
}

/// Asks for a path.
///
/// # Errors
/// Says why there is no answer, or none with a status of 2xx; without what of the address is secret.
pub async fn get(
    address: &TargetAddress,
    reach: TargetReach,
    path: &str,
    bytes_max: usize,
) -> Result<TargetAnswer, String> {
    let header = (path == "/metrics").then_some((header::ACCEPT, HeaderValue::from_static(ACCEPTED)));
    whole(address, reach, path, bytes_max, header).await
}

/// Asks a child for its jobs, and says who asks.
///
/// # Errors
/// As [`get`].
pub async fn jobs(address: &TargetAddress, reach: TargetReach, own: Option<&str>) -> Result<TargetAnswer, String> {
    let own = own.and_then(|own| Some((HeaderName::from_static(LINEAGE), own.parse().ok()?)));
    whole(address, reach, "/job", PROXY_BYTES_MAX, own).await
}

/// Asks a child for the profile of a job that is over there: of the run that began at `start`, or else of the latest.
///
/// # Errors
/// As [`get`]; also where it has none.
pub async fn profile(
    address: &TargetAddress,
    reach: TargetReach,
    id: &str,
    start: Option<u64>,
) -> Result<TargetAnswer, String> {
    let mut path = format!("/profiles/get?jobid={}", encoded(id));
    if let Some(start) = start {
        path.push_str(&format!("&start={start}"));
    }
    whole(address, reach, &path, PROFILE_BYTES_MAX, None).await
}

/// A value of a parameter. A blank is no plus, which not everybody reads as one.
pub fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Asks a node of our own job, which would hand the question on to us, for what it counts itself.
///
/// # Errors
/// As [`get`].
pub async fn node_jobs(
    node: &str,
    client: &Client,
    own: Option<&str>,
    choice: NodeChoice,
) -> Result<TargetAnswer, String> {
    let own = own.and_then(|own| Some((HeaderName::from_static(LINEAGE), own.parse().ok()?)));
    let wanted = match choice {
        NodeChoice::Data => "true",
        NodeChoice::Whole => OWN_NODE_WHOLE,
    };
    let headers = own.into_iter().chain([(HeaderName::from_static(OWN_NODE), HeaderValue::from_static(wanted))]);
    let answer = exchange(std::slice::from_ref(client), &node, "/job", PROXY_BYTES_MAX, headers.collect());
    let answer = tokio::time::timeout(ANSWER_MAX, answer).await;
    answer.map_err(|_| format!("{node} did not answer whole within {} s", ANSWER_MAX.as_secs()))?
}

/// The client of a target: it does not wait long.
pub fn patient(client: Client) -> Client {
    client.with_connect_timeout(CONNECT_MAX).with_silence(SILENCE_MAX)
}

async fn whole(
    address: &TargetAddress,
    reach: TargetReach,
    path: &str,
    bytes_max: usize,
    header: Option<(HeaderName, HeaderValue)>,
) -> Result<TargetAnswer, String> {
    let asked = async {
        let clients = match reach {
            TargetReach::Anywhere => vec![address.client(None, CONNECT_MAX, SILENCE_MAX)],
            TargetReach::Here => clients_at(address, &places(address).await?),
        };
        exchange(&clients, address, path, bytes_max, header.into_iter().collect()).await
    };
    let answer = tokio::time::timeout(ANSWER_MAX, asked).await;
    let answer = answer.map_err(|_| format!("{address} did not answer whole within {} s", ANSWER_MAX.as_secs()))?;
    answer.map_err(|why| address.censored(&why))
}

/// What asks a target at each of these addresses.
fn clients_at(address: &TargetAddress, places: &[SocketAddr]) -> Vec<Client> {
    places.iter().map(|place| address.client(Some(*place), CONNECT_MAX, SILENCE_MAX)).collect()
}

/// Asks the first of `clients` that is reached: a name may have an address of IPv6 where nobody listens. `address` is what
/// the target is called where something is wrong.
async fn exchange(
    clients: &[Client],
    address: &(dyn fmt::Display + Sync),
    path: &str,
    bytes_max: usize,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Result<TargetAnswer, String> {
    let mut unreachable = format!("{address} has no address");
    let mut answered = None;
    for client in clients {
        match client.pass(Method::GET, path, headers.clone(), Bytes::new()).await {
            Err(error @ ClientError::Unreachable { .. }) => unreachable = error.to_string(),
            other => {
                answered = Some(other);
                break;
            }
        }
    }
    let answer = answered.ok_or(unreachable)?.map_err(|error| error.to_string())?;
    let status = answer.status();
    let content_type = answer.header(header::CONTENT_TYPE.as_str()).unwrap_or_default().to_owned();
    let lineage = answer.header(LINEAGE).map(str::to_owned);
    let body = answer.read(bytes_max + 1).await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(refusal(address, path, status.as_u16(), &body));
    }
    if body.len() > bytes_max {
        return Err(format!("the answer of {address} is larger than {bytes_max} bytes"));
    }
    Ok(TargetAnswer { body, content_type, lineage })
}

fn refusal(address: &dyn fmt::Display, path: &str, status: u16, body: &[u8]) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let told: Option<TargetAck> = serde_json::from_slice(body).ok();
    let why = told.map(|told| format!(": {}", told.operation.chars().take(256).collect::<String>()));
    format!("{address} answered {path} with status {status}{}", why.unwrap_or_default())
}

/// Why there is no address to ask.
#[derive(Debug)]
pub enum PlaceFailure {
    /// It is not on this machine, as it must be.
    NotHere(String),
    /// Its name is not found.
    Unknown(String),
}

impl From<PlaceFailure> for String {
    fn from(failure: PlaceFailure) -> Self {
        match failure {
            PlaceFailure::NotHere(why) | PlaceFailure::Unknown(why) => why,
        }
    }
}

/// Whether a target may be asked.
///
/// # Errors
/// NotHere where it must be on this machine and is not, Unknown where its name is not found then.
pub async fn check_reach(address: &TargetAddress, reach: TargetReach) -> Result<(), PlaceFailure> {
    match reach {
        TargetReach::Anywhere => Ok(()),
        TargetReach::Here => places(address).await.map(|_| ()),
    }
}

/// The addresses of a target that are on this machine; there is one at least.
async fn places(address: &TargetAddress) -> Result<Vec<SocketAddr>, PlaceFailure> {
    let found = tokio::time::timeout(CONNECT_MAX, address.resolve()).await;
    let late = |_| format!("the name of {address} is not found within {} s", CONNECT_MAX.as_secs());
    let mut found = found.map_err(late).flatten().map_err(PlaceFailure::Unknown)?;
    found.retain(|place| is_here(place.ip()));
    if found.is_empty() {
        return Err(PlaceFailure::NotHere(format!(
            "{address} is not on this machine, and who joins it showed no token; send 'Authorization: Bearer TOKEN' with \
             the token of the connection file, or start the server with --proxy-join any"
        )));
    }
    Ok(found)
}

/// What a target is.
///
/// # Errors
/// When it is neither, or does not answer.
pub async fn probe(address: &TargetAddress, reach: TargetReach) -> Result<ScrapeKind, String> {
    let page = get(address, reach, "/is_admire_proxy.html", PAGE_BYTES_MAX).await;
    let has_mark = |answer: &TargetAnswer| String::from_utf8_lossy(&answer.body).contains(MARK);
    if page.as_ref().is_ok_and(has_mark) {
        return Ok(ScrapeKind::Proxy);
    }
    let metrics = get(address, reach, "/metrics", EXPORTER_BYTES_MAX).await?;
    if has_mark(&metrics) {
        return Err(format!("{address} is neither a proxy nor an exporter: its /metrics is a page"));
    }
    Ok(ScrapeKind::Prometheus)
}

/// An acknowledgement of a proxy.
#[derive(Debug, Deserialize)]
struct TargetAck {
    operation: String,
    #[serde(default)]
    success: bool,
}

/// What a proxy acknowledges.
///
/// # Errors
/// When it does not.
pub async fn acknowledged(address: &TargetAddress, path: &str) -> Result<String, String> {
    let answer = get(address, TargetReach::Anywhere, path, PAGE_BYTES_MAX).await?;
    let path = path.split('?').next().unwrap_or_default();
    match serde_json::from_slice(&answer.body) {
        Ok(TargetAck { operation, success: true }) => Ok(operation),
        Ok(TargetAck { operation, success: false }) => Err(format!("{address} refused {path}: {operation}")),
        Err(error) => Err(format!("{address} answered {path} with no acknowledgement: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;

    use super::*;

    #[tokio::test]
    async fn a_target_is_asked_at_the_first_of_its_addresses_that_is_reached() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 2], here.port()));
        let routes = Router::new().route("/x", get(|| async { "yes" }));
        tokio::spawn(async { axum::serve(listener, routes).await.unwrap() });
        let address = TargetAddress::parse(&format!("localhost:{}", here.port())).unwrap();
        let ask = async |places: &[SocketAddr], path: &str| {
            let answer = exchange(&clients_at(&address, places), &address, path, 64, Vec::new()).await;
            answer.map(|answer| answer.body)
        };
        assert_eq!(ask(&[nobody, here], "/x").await.unwrap(), b"yes");
        let refused = ask(&[here, nobody], "/y").await.unwrap_err();
        assert!(refused.contains("answered /y with status 404"), "{refused}");
        let unreachable = ask(&[nobody], "/x").await.unwrap_err();
        assert!(unreachable.contains("cannot reach http://127.0.0.2"), "{unreachable}");
    }
}
