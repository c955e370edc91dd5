//! What is asked again and again while people look on: a running server, or saved databases.
//!
//! A server that does not answer for a moment is away, which is no failure yet: whoever watches decides how long to wait.

pub mod playing;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use telem_engine::SystemClock;
use telem_query::{Queries, QueryOptions, RowOrder};

use super::CliFailure;
use super::cells::whole;
use super::one_job::NamedRun;
use super::source::{RowsError, SourceBatches, StrictArg, open_read_only};
use crate::client::{Address, Client, ClientError};
use crate::config;
use crate::connection::Connection;

/// A server that has said nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// And a whole answer takes no longer than this.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// `/api/info` is read up to here.
const INFO_BYTES_MAX: usize = 64 << 20;

/// In SQL: now, in microseconds.
pub const NOW_US: &str = "CAST(arrow_cast(now(), 'Timestamp(Microsecond, Some(\"UTC\"))') AS BIGINT)";

/// What is watched.
pub struct WatchTarget {
    run: NamedRun,
    label: String,
    place: WatchPlace,
    missing: Option<String>,
}

enum WatchPlace {
    Here(Queries),
    /// The ways to the server, best first; the first that works is used from then on.
    Server(Vec<Client>),
}

/// Whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    Running,
    Saved,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchError {
    /// The server cannot be reached or does not answer: it may come back.
    Away(String),
    Failed(String),
}

impl From<ArrowError> for WatchError {
    fn from(error: ArrowError) -> Self {
        Self::Failed(format!("an unexpected answer: {error}"))
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Away(message) | Self::Failed(message)) = self;
        f.write_str(message)
    }
}

impl From<WatchError> for CliFailure {
    fn from(error: WatchError) -> Self {
        CliFailure::failed(error)
    }
}

impl From<ClientError> for WatchError {
    fn from(error: ClientError) -> Self {
        let is_away = match &error {
            ClientError::Unreachable { .. } | ClientError::Silent { .. } | ClientError::Broken { .. } => true,
            ClientError::Refused { status, .. } => status.is_server_error(),
            ClientError::BadAddress { .. }
            | ClientError::Untrusted { .. }
            | ClientError::NoTls { .. }
            | ClientError::Tls { .. }
            | ClientError::Request(_) => false,
        };
        if is_away { Self::Away(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}

impl From<RowsError> for WatchError {
    fn from(error: RowsError) -> Self {
        match error {
            RowsError::Client(error) => error.into(),
            // An answer that is cut off, as by a server that ends.
            RowsError::Garbled(_) | RowsError::NoStream => Self::Away(error.to_string()),
            RowsError::Query(_) => Self::Failed(error.to_string()),
        }
    }
}

impl WatchTarget {
    /// A server by its URL or its connection file, a saved database by its directory; without any the server that the
    /// environment names.
    ///
    /// # Errors
    /// Usage for an invalid address, Failed where there is nothing to watch.
    pub fn find(named: Option<&str>) -> Result<Self, CliFailure> {
        let run = named.map_or_else(NamedRun::default, NamedRun::parse);
        let (label, addresses) = match named.map(|_| &*run.place) {
            Some(one) if Address::is_meant(one) => {
                (one.to_owned(), vec![Client::new(Address::parse(one).map_err(CliFailure::usage)?)])
            }
            Some(one) if Path::new(one).is_dir() => {
                let (label, place) = (one.to_owned(), WatchPlace::Here(queries(one)?));
                return Ok(Self { run, label, place, missing: None });
            }
            Some(file) => (file.to_owned(), of_file(Path::new(file))?),
            None => of_environment()?,
        };
        let clients = addresses
            .into_iter()
            .map(|client: Client| client.with_silence(SILENCE_MAX).with_connect_timeout(CONNECT_MAX));
        Ok(Self { run, label, place: WatchPlace::Server(clients.collect()), missing: None })
    }

    /// What the user calls it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What it was named.
    pub fn run(&self) -> &NamedRun {
        &self.run
    }

    /// The nodes that the last answer lacks, and why.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// # Errors
    /// [`WatchError`].
    pub async fn kind(&mut self) -> Result<WatchKind, WatchError> {
        let WatchPlace::Server(_) = &self.place else { return Ok(WatchKind::Saved) };
        let info = self.get("/api/info").await?;
        let is_saved = info["read_only"].as_bool().unwrap_or(false);
        Ok(if is_saved { WatchKind::Saved } else { WatchKind::Running })
    }

    /// What the server answers at `path`; null where it is no JSON, or no server.
    ///
    /// # Errors
    /// [`WatchError`].
    pub async fn get(&mut self, path: &str) -> Result<serde_json::Value, WatchError> {
        let WatchPlace::Server(clients) = &mut self.place else { return Ok(serde_json::Value::Null) };
        loop {
            let client = &clients[0];
            let answer = async { client.get(path).await?.read(INFO_BYTES_MAX).await };
            match within(async { answer.await.map_err(WatchError::from) }).await {
                Err(WatchError::Away(_)) if clients.len() > 1 => drop(clients.remove(0)),
                answer => return Ok(serde_json::from_slice(&answer?).unwrap_or_default()),
            }
        }
    }

    /// The time of the one who answers, in microseconds.
    ///
    /// # Errors
    /// [`WatchError`].
    pub async fn now_us(&mut self) -> Result<i64, WatchError> {
        for batch in self.ask(&format!("SELECT {NOW_US}")).await? {
            if let Some(now) = whole(&batch, 0)?.iter().flatten().next() {
                return Ok(now);
            }
        }
        Err(WatchError::Failed("the server does not tell its time".to_owned()))
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// [`WatchError`].
    pub async fn ask(&mut self, sql: &str) -> Result<Vec<RecordBatch>, WatchError> {
        let run = self.run.clone();
        let sql = &*run.narrowed(sql).map_err(|failure| WatchError::Failed(failure.into_message()))?;
        loop {
            let answer = async {
                let mut rows = match &self.place {
                    WatchPlace::Here(queries) => SourceBatches::of_queries(queries, sql, RowOrder::Any).await?,
                    WatchPlace::Server(clients) => {
                        SourceBatches::of_server(&clients[0], StrictArg { strict: false }, sql).await?
                    }
                };
                let mut batches = Vec::new();
                while let Some(batch) = rows.next().await? {
                    batches.push(batch);
                }
                Ok((batches, rows.missing().map(str::to_owned)))
            };
            let answer = within(answer).await;
            match (&mut self.place, answer) {
                (_, Ok((batches, missing))) => {
                    self.missing = missing;
                    return Ok(batches);
                }
                (WatchPlace::Server(clients), Err(WatchError::Away(_))) if clients.len() > 1 => {
                    clients.remove(0);
                }
                (_, Err(error)) => return Err(error),
            }
        }
    }
}

/// What hangs is away.
async fn within<T>(answer: impl Future<Output = Result<T, WatchError>>) -> Result<T, WatchError> {
    let late = || Err(WatchError::Away(format!("no whole answer within {} s", ANSWER_MAX.as_secs())));
    tokio::time::timeout(ANSWER_MAX, answer).await.unwrap_or_else(|_| late())
}

fn queries(dir: &str) -> Result<Queries, CliFailure> {
    let opened = open_read_only(&[PathBuf::from(dir)], StrictArg { strict: false })?;
    let options = QueryOptions {
        deadline: ANSWER_MAX,
        absent: opened.absent(),
        ..QueryOptions::new(Arc::new(SystemClock::new()))
    };
    Queries::new(opened.db, options).map_err(CliFailure::failed)
}

/// The clients that a connection file describes, its socket first: the kernel vouches for that.
fn of_file(file: &Path) -> Result<Vec<Client>, CliFailure> {
    let connection = Connection::read(file).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
            io::ErrorKind::InvalidData => format!("it is not a connection file ({error})"),
            _ => error.to_string(),
        };
        CliFailure::Failed(format!(
            "'{}' is neither a server, nor its connection file, nor a saved database: {why}",
            file.display()
        ))
    })?;
    let mut clients = Vec::new();
    for address in
        connection.socket.iter().map(|path| Ok(Address::Unix(path.clone()))).chain([Address::parse(&connection.url)])
    {
        let address = address.map_err(CliFailure::failed)?;
        let client = Client::with_token(address, Some(&connection.token));
        clients.push(match &connection.certificate {
            Some(certificate) => client.trusting(crate::tls::Trust::Job(certificate.clone())),
            None => client,
        });
    }
    Ok(clients)
}

fn of_environment() -> Result<(String, Vec<Client>), CliFailure> {
    if let Some(file) = config::environment("TELEM_CONNECTION") {
        return Ok((file.clone(), of_file(Path::new(&file))?));
    }
    if let Some(socket) = config::environment("TELEM_SOCKET") {
        return Ok((format!("unix:{socket}"), vec![Client::new(Address::Unix(PathBuf::from(socket)))]));
    }
    if let Some(url) = config::environment("TELEM_URL") {
        let client = Client::new(Address::parse(&url).map_err(CliFailure::usage)?);
        return Ok((url, vec![client]));
    }
    Err(CliFailure::failed(
        "no telem is named: TELEM_CONNECTION, TELEM_SOCKET and TELEM_URL are not set; name a server (http://HOST:PORT, \
         unix:PATH), its connection file, or a saved database",
    ))
}

/// The tags of each row, as pairs in the order of their keys.
pub fn tags(batch: &RecordBatch, column: usize) -> Result<Vec<Vec<(String, String)>>, WatchError> {
    let unexpected = || WatchError::Failed("an unexpected answer: its tags are no map".to_owned());
    let maps = batch.column(column).as_map_opt().ok_or_else(unexpected)?;
    let text = |of: &Arc<dyn Array>| cast(of, &DataType::Utf8).map_err(|_| unexpected());
    let (keys, values) = (text(maps.keys())?, text(maps.values())?);
    let (keys, values) = (keys.as_string::<i32>(), values.as_string::<i32>());
    let offsets = maps.value_offsets();
    let place = |row: usize| usize::try_from(offsets[row]).unwrap_or(0);
    let of_row = |row: usize| {
        (place(row)..place(row + 1)).map(|at| (keys.value(at).to_owned(), values.value(at).to_owned())).collect()
    };
    Ok((0..batch.num_rows()).map(of_row).collect())
}

/// A time in SQL.
pub fn time_literal(micros: i64) -> String {
    format!("arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')")
}
