//! The link of an agent to its head: it joins, reports, looks for a head that has gone, and says farewell.
//!
//! The agent never waits for it. If the head is gone, the link looks for it again and again at growing intervals, at
//! all of its addresses and at the address in the current join file.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use telem_engine::Clock;
use url::Url;

use super::messages::{self, JoinAnswer, JoinRequest, Leave, NodeReport, ReportAnswer};
use crate::client::{Address, Client, ClientConnection, ClientError};
use crate::join::Join;
use crate::state::VERSION;
use crate::tls::{Trust, UrlScheme};

/// Longest that a connection to the head may take to come about.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest that the head may take to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer of a head.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The identity of an agent.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name that it wants, or has.
    pub node: String,
    /// Its database exists and has that name.
    pub is_fixed: bool,
    pub home: String,
    pub incarnation: String,
    pub host: String,
    pub data: PathBuf,
    /// Where it listens.
    pub listens: SocketAddr,
    /// The name or address under which others reach it, instead of the one from which it reaches the head.
    pub advertise: Option<String>,
    /// Dragon's port is another than programs expect: the expected one, and why it is not that.
    pub dragon_moved: Option<(u16, String)>,
}

/// Why an agent is not joined.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Another attempt may help.
    #[error(transparent)]
    Away(#[from] ClientError),
    #[error("{address} is not a compatible head: it answered {found}")]
    NoHead { address: Address, found: String },
    /// The head does not know us.
    #[error("{address} no longer knows this node")]
    Unknown { address: Address },
    /// The head does not want us, as we are.
    #[error("the head refuses this node: {why} ({address} answered {status})")]
    Refused { address: Address, status: StatusCode, why: String },
}

/// A head that has taken us in.
#[derive(Debug)]
pub struct Link {
    line: ClientConnection,
    address: Address,
    clock: Arc<dyn Clock>,
    incarnation: String,
    pub joined: JoinAnswer,
    seq: u64,
    round_trip: Option<Duration>,
}

impl Link {
    /// Joins the first head of `join` that answers.
    ///
    /// # Errors
    /// The last attempt's; at once where a head refuses.
    pub async fn join(join: &Join, identity: &Identity, clock: &Arc<dyn Clock>) -> Result<Self, LinkError> {
        let mut last = None;
        // They were checked when the join file was read.
        for head in join.heads().unwrap_or_default() {
            match Self::join_at(&head, join, identity, clock).await {
                Err(error @ LinkError::Refused { .. }) => return Err(error),
                Err(error) => last = Some(error),
                joined => return joined,
            }
        }
        let nowhere = || ClientError::BadAddress { text: String::new(), why: "the join file names no head".to_owned() };
        Err(last.unwrap_or_else(|| nowhere().into()))
    }

    async fn join_at(head: &Url, join: &Join, identity: &Identity, clock: &Arc<dyn Clock>) -> Result<Self, LinkError> {
        let client = client(head, join)?;
        let address = client.address().clone();
        let client = client.with_connect_timeout(CONNECT_TIMEOUT).with_silence(ANSWER_TIMEOUT);
        let mut line = client.open().await?;
        let request = JoinRequest {
            job: join.job.clone(),
            version: VERSION.to_owned(),
            node: identity.node.clone(),
            is_fixed: identity.is_fixed,
            home: identity.home.clone(),
            incarnation: identity.incarnation.clone(),
            url: url(identity, &line, UrlScheme::of(join.certificate.as_ref())).await,
            pid: std::process::id(),
            host: identity.host.clone(),
            data: identity.data.clone(),
            dragon_moved: identity.dragon_moved.clone(),
            now_us: clock.now().micros(),
        };
        let joined: JoinAnswer = exchange(&mut line, &address, messages::JOIN, &request).await?;
        if joined.job != join.job {
            let found = format!("that it is of job '{}'", joined.job);
            return Err(LinkError::NoHead { address, found });
        }
        let (clock, incarnation) = (Arc::clone(clock), identity.incarnation.clone());
        Ok(Self { line, address, clock, incarnation, joined, seq: 0, round_trip: None })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What asks this head something else.
    pub fn client(&self) -> &Client {
        self.line.client()
    }

    /// Says how we are. `filled` puts into the report what is not known here.
    ///
    /// # Errors
    /// After any of them this is of no use.
    pub async fn report(&mut self, filled: impl FnOnce(&mut NodeReport)) -> Result<ReportAnswer, LinkError> {
        let mut report = NodeReport {
            node: self.joined.node.clone(),
            incarnation: self.incarnation.clone(),
            seq: self.seq,
            known: None,
            figures: messages::Figures::default(),
            has_counters: false,
            now_us: 0,
            round_trip_us: self.round_trip.and_then(|took| u64::try_from(took.as_micros()).ok()),
            last_error: None,
        };
        filled(&mut report);
        self.seq += 1;
        let began = self.clock.monotonic();
        report.now_us = self.clock.now().micros();
        let reported = exchange(&mut self.line, &self.address, messages::REPORT, &report).await?;
        self.round_trip = Some(self.clock.monotonic().saturating_sub(began));
        Ok(reported)
    }

    /// Says farewell, and how we are at the end.
    ///
    /// # Errors
    /// [`LinkError`].
    pub async fn leave(mut self, reason: &str, figures: messages::Figures) -> Result<(), LinkError> {
        let (node, incarnation) = (self.joined.node.clone(), self.incarnation.clone());
        let leave = Leave { node, incarnation, reason: reason.to_owned(), figures: Some(figures) };
        send(&mut self.line, &self.address, messages::LEAVE, &leave).await.map(|_| ())
    }
}

/// Sends a request to a head of `join` as an agent: with the token, trusting only the job.
///
/// # Errors
/// BadAddress.
pub fn client(head: &Url, join: &Join) -> Result<Client, ClientError> {
    let client = Client::with_token(Address::parse(head.as_str())?, Some(&join.token));
    Ok(match &join.certificate {
        Some(certificate) => client.trusting(Trust::Job(certificate.clone())),
        None => client,
    })
}

/// Where others reach us: an address, so that no name needs to be resolved.
async fn url(identity: &Identity, line: &ClientConnection, scheme: UrlScheme) -> String {
    let (own, port) = (identity.listens.ip(), identity.listens.port());
    let advertised = match &identity.advertise {
        Some(host) => resolve(host, port).await,
        None => None,
    };
    let ip = advertised.or(Some(own).filter(|ip| !ip.is_unspecified())).or(line.local()).unwrap_or(own);
    format!("{scheme}://{}", SocketAddr::new(ip.to_canonical(), port))
}

/// The first address of `host` beyond loopback, where it has one: many machines call themselves 127.0.1.1.
async fn resolve(host: &str, port: u16) -> Option<IpAddr> {
    let found = tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((host, port))).await.ok()?.ok()?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    found.iter().find(|ip| !ip.is_loopback()).or(found.first()).copied()
}

async fn exchange<T: DeserializeOwned>(
    line: &mut ClientConnection,
    address: &Address,
    path: &str,
    message: &impl Serialize,
) -> Result<T, LinkError> {
    let answer = send(line, address, path, message).await?;
    serde_json::from_slice(&answer)
        .map_err(|error| LinkError::NoHead { address: address.clone(), found: error.to_string() })
}

async fn send(
    line: &mut ClientConnection,
    address: &Address,
    path: &str,
    message: &impl Serialize,
) -> Result<Vec<u8>, LinkError> {
    let no_head = |found: String| LinkError::NoHead { address: address.clone(), found };
    let body = serde_json::to_vec(message).map_err(|error| no_head(error.to_string()))?;
    let (status, answer) = line.post(path, Bytes::from(body), ANSWER_BYTES_MAX).await?;
    if status.is_success() {
        return Ok(answer);
    }
    let json: Option<serde_json::Value> = serde_json::from_slice(&answer).ok();
    let why = json.as_ref().and_then(|json| json["error"]["message"].as_str()).unwrap_or("without a reason").to_owned();
    let address = address.clone();
    match status {
        StatusCode::NOT_FOUND if path != messages::JOIN => Err(LinkError::Unknown { address }),
        StatusCode::NOT_FOUND => Err(no_head(format!("{status}: {why}"))),
        status if status.is_client_error() => Err(LinkError::Refused { address, status, why }),
        status => Err(no_head(format!("{status}: {why}"))),
    }
}

/// Whether a join file is still that of the life that an agent leads.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinFileState {
    /// It says the same, or cannot be read, or is another job's.
    No,
    /// The head is elsewhere.
    Moved(Box<Join>),
    /// Its secrets are new: the agent must serve with those.
    Anew(Box<Join>),
}

/// Reads the join file again, if it is one.
pub fn renewed(path: &Path, join: &Join) -> JoinFileState {
    if path == Path::new("-") {
        return JoinFileState::No;
    }
    match Join::read(path) {
        Ok(now) if now == *join => JoinFileState::No,
        Ok(now) if now.job != join.job => {
            tracing::warn!(path = %path.display(), job = now.job, "the join file now belongs to another job");
            JoinFileState::No
        }
        Ok(now) if (&now.token, &now.certificate, &now.key) == (&join.token, &join.certificate, &join.key) => {
            JoinFileState::Moved(Box::new(now))
        }
        Ok(now) => JoinFileState::Anew(Box::new(now)),
        Err(error) => {
            tracing::debug!(%error, "the join file cannot be read again");
            JoinFileState::No
        }
    }
}
