//! The running server to which samples are sent, and its answers.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value as Json, json};

use super::NumberedSample;
use crate::cli::CliFailure;
use crate::client::{Address, Client, ClientError, NAME_ANOTHER};
use crate::config;
use crate::connection::Connection;

const PUT: &str = "/api/put?details&precision=us&non_finite=keep";
/// An answer lists at most 4 MiB of bad points.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How often a busy server is asked again, and after what time.
const BUSY_TRIES_MAX: usize = 30;
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// Longest silence of a server that was sent samples: it answers a put at once, and a job waits for this command.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Where samples go.
#[derive(Debug)]
pub struct PutTarget {
    /// The ways to the server, best first; the first that works is used from then on.
    clients: Vec<Client>,
    /// Becomes the tag `host` of samples that have none.
    node: String,
}

/// What the server did not take.
#[derive(Debug, Default, PartialEq)]
pub struct Refused {
    pub count: usize,
    /// By line; if there are very many, some are not reported.
    pub reasons: Vec<(usize, String)>,
}

/// Why samples could not be sent: a sentence for the user.
#[derive(Debug)]
pub enum SendError {
    /// The server cannot be reached or does not answer: it may come back.
    Away(String),
    /// It answered, and will not take them.
    Refused(String),
}

impl SendError {
    pub fn into_message(self) -> String {
        match self {
            Self::Away(message) | Self::Refused(message) => message,
        }
    }
}

impl From<ClientError> for SendError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Broken { .. } => {
                Self::Away(error.to_string())
            }
            ClientError::BadAddress { .. }
            | ClientError::Untrusted { .. }
            | ClientError::NoTls { .. }
            | ClientError::Tls { .. }
            | ClientError::Refused { .. }
            | ClientError::Request(_) => Self::Refused(error.to_string()),
        }
    }
}

impl PutTarget {
    /// The server at `url`, else the one that the environment names: the socket first, for which the kernel vouches.
    ///
    /// # Errors
    /// Usage for an invalid address, Failed without any address.
    pub fn find(url: Option<&str>) -> Result<PutTarget, CliFailure> {
        let file = config::environment("TELEM_CONNECTION").map(PathBuf::from);
        let read = file.as_deref().map(Connection::read);
        let unread = read.as_ref().and_then(|read| read.as_ref().err()).map(|error| match error.kind() {
            io::ErrorKind::NotFound => "cannot be read: no telem runs".to_owned(),
            io::ErrorKind::InvalidData => format!("is not a connection file ({error})"),
            _ => format!("cannot be read: {error}"),
        });
        let connection = read.and_then(Result::ok);
        let addresses = match (url, &connection) {
            (Some(url), _) => vec![Address::parse(url).map_err(CliFailure::usage)?],
            (None, connection) => {
                let of_file = connection.as_ref();
                let sockets = of_file.and_then(|file| file.socket.clone()).into_iter();
                let sockets = sockets.chain(config::environment("TELEM_SOCKET").map(PathBuf::from)).map(Address::Unix);
                let urls = of_file.map(|file| file.url.clone()).into_iter().chain(config::environment("TELEM_URL"));
                let mut addresses: Vec<Address> = sockets.collect();
                for url in urls {
                    addresses.push(Address::parse(&url).map_err(CliFailure::usage)?);
                }
                addresses.dedup();
                addresses
            }
        };
        if addresses.is_empty() {
            let what = match (&file, unread) {
                (Some(file), Some(why)) => format!("TELEM_CONNECTION names {}, which {why}", file.display()),
                _ => "no telem is named: TELEM_CONNECTION, TELEM_SOCKET and TELEM_URL are not set".to_owned(),
            };
            return Err(CliFailure::Failed(format!("{what}; start one ('telem run', 'telem serve'), or give --url")));
        }
        let node = match (url, connection) {
            (None, Some(connection)) => connection.node,
            _ => config::node(None, &config::host_name()).map_err(CliFailure::failed)?,
        };
        let client = |address| Client::new(address).with_silence(SILENCE_MAX);
        Ok(PutTarget { clients: addresses.into_iter().map(client).collect(), node })
    }

    /// Stores `samples`, as many as are good.
    ///
    /// # Errors
    /// [`SendError`], where the server cannot be reached or answers no put.
    pub async fn send(&mut self, samples: &[NumberedSample]) -> Result<Refused, SendError> {
        let points: Vec<Json> = samples.iter().map(|sample| point(sample, &self.node)).collect();
        let body = Bytes::from(Json::Array(points.clone()).to_string());
        let mut tries = 0;
        let (status, answer) = loop {
            let (status, answer) = self.ask(&body).await?;
            tries += 1;
            if status != StatusCode::SERVICE_UNAVAILABLE || tries >= BUSY_TRIES_MAX {
                break (status, answer);
            }
            tokio::time::sleep(BUSY_WAIT).await;
        };
        refused(samples, &points, &answer).ok_or_else(|| {
            let json: Option<Json> = serde_json::from_slice(&answer).ok();
            let foreign = format!("it is no telem; {NAME_ANOTHER}");
            let message = json.as_ref().and_then(|json| json["error"]["message"].as_str()).unwrap_or(&foreign);
            SendError::Refused(format!("the server answered {status}: {message}"))
        })
    }

    /// Asks by the first way that works; the others are forgotten then.
    async fn ask(&mut self, body: &Bytes) -> Result<(StatusCode, Vec<u8>), ClientError> {
        loop {
            match self.clients[0].exchange(PUT, body.clone()).await {
                Ok(answer) => {
                    let status = answer.status();
                    self.clients.truncate(1);
                    return Ok((status, answer.read(ANSWER_BYTES_MAX).await?));
                }
                Err(ClientError::Unreachable { .. }) if self.clients.len() > 1 => {
                    self.clients.remove(0);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn point(sample: &NumberedSample, node: &str) -> Json {
    let NumberedSample { sample, time, .. } = sample;
    let mut tags = serde_json::Map::new();
    tags.insert("host".to_owned(), Json::from(node));
    tags.extend(sample.tags.iter().map(|(key, value)| (key.clone(), Json::from(value.as_str()))));
    json!({"metric": sample.metric, "timestamp": time.micros(), "value": sample.value, "tags": tags})
}

/// What an answer of `/api/put?details` says; `None` for any other answer. Its list of bad points is in the order of
/// the points and shows them as sent, but without numbers, and of a point with more tags than one may have some: so
/// each is the next one that looks like that.
pub fn refused(samples: &[NumberedSample], points: &[Json], answer: &[u8]) -> Option<Refused> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let count = usize::try_from(answer["failed"].as_u64()?).ok()?;
    let mut rest = samples.iter().zip(points);
    let mut reasons = Vec::new();
    for error in answer["errors"].as_array()? {
        let shown = &error["datapoint"];
        let fields = ["metric", "timestamp", "value"];
        let same = |point: &Json| {
            let tags = shown["tags"].as_object();
            fields.iter().all(|field| point[*field] == shown[*field])
                && tags.is_some_and(|tags| tags.iter().all(|(key, value)| point["tags"][key] == *value))
        };
        let reason = error["error"].as_str().unwrap_or("no reason given").to_owned();
        if let Some((sample, _)) = rest.by_ref().find(|(_, point)| same(point)) {
            reasons.push((sample.line, reason));
        }
    }
    Some(Refused { count, reasons })
}
