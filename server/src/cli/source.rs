//! The source of answers: databases in directories, or a running server.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use bytes::Bytes;
use clap::Args;
use futures::StreamExt;
use telem_engine::{Clock, SystemClock};
use telem_query::{Queries, QueryOptions, RowOrder, SqlAnswer};

use super::CliFailure;
use super::one_job::NamedRun;
use crate::client::{Address, AnswerBody, Client, ClientError};
use crate::footprint::raise_descriptor_limit;
use crate::missing::{self, Lacking};
use crate::saving::saved::{self, OpenedDatabases, UnsoundPolicy};

/// No other query waits for one in a process of its own.
const LOCAL_DEADLINE: Duration = Duration::from_secs(3_600);

/// Where a command reads: from the directories that it names, or from a server.
#[derive(Debug)]
pub enum Origin {
    Directories(Vec<PathBuf>),
    Server(Address),
}

impl Origin {
    /// # Errors
    /// Usage when `named` is neither directories alone nor one server.
    pub fn parse(named: &[String]) -> Result<Self, CliFailure> {
        match named {
            [one] if Address::is_meant(one) => Ok(Self::Server(Address::parse(one).map_err(CliFailure::usage)?)),
            several => match several.iter().find(|one| Address::is_meant(one)) {
                Some(server) => Err(CliFailure::Usage(format!(
                    "{server} is a server: name it alone, or directories of databases without it"
                ))),
                None => Ok(Self::Directories(several.iter().map(PathBuf::from).collect())),
            },
        }
    }
}

/// What to do about a database that cannot be opened among several.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StrictArg {
    /// Fail if one of several databases or nodes is missing
    ///
    /// Without it, a database that cannot be opened, or a node of a running job that does not answer, is left out and
    /// named.
    #[arg(long)]
    pub strict: bool,
}

impl StrictArg {
    pub fn unsound(self) -> UnsoundPolicy {
        if self.strict { UnsoundPolicy::Fail } else { UnsoundPolicy::LeaveOut }
    }
}

/// Opens the databases that `dirs` are or hold as one, without changing anything, also while a server writes them.
pub fn open_read_only(dirs: &[PathBuf], strict: StrictArg) -> Result<OpenedDatabases, CliFailure> {
    let databases = saved::databases(dirs).map_err(CliFailure::failed)?;
    if databases.len() > 1 {
        raise_descriptor_limit();
    }
    let opened = saved::open(&databases, strict.unsound(), Arc::new(SystemClock::new())).map_err(CliFailure::failed)?;
    // A reader that gets less than was written must know, whatever it asked for.
    for warning in opened.warnings() {
        writeln!(io::stderr(), "warning: {warning}").unwrap_or_default();
    }
    Ok(opened)
}

/// One run that is asked several times: a saved one in this process, a live one at its server.
pub struct RunSource {
    run: NamedRun,
    target: RunTarget,
    lacking: Lacking,
}

enum RunTarget {
    Here(Queries),
    Server(Client),
}

impl RunSource {
    /// `named` is a directory or a server, with a [job](NamedRun) where there are several.
    ///
    /// # Errors
    /// Failed where there is no such run.
    pub fn open(named: &str, strict: StrictArg) -> Result<Self, CliFailure> {
        let run = NamedRun::parse(named);
        let target = match Origin::parse(std::slice::from_ref(&run.place))? {
            Origin::Server(address) => RunTarget::Server(Client::new(address)),
            Origin::Directories(dirs) => {
                let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
                let opened = open_read_only(&dirs, strict)?;
                let (deadline, absent) = (LOCAL_DEADLINE, opened.absent());
                let options = QueryOptions { deadline, absent, ..QueryOptions::new(clock) };
                RunTarget::Here(Queries::new(opened.db, options).map_err(CliFailure::failed)?)
            }
        };
        Ok(Self { run, target, lacking: Lacking::default() })
    }

    /// What it was named.
    pub fn run(&self) -> &NamedRun {
        &self.run
    }

    /// The nodes that did not answer.
    pub fn lacking(&self) -> &Lacking {
        &self.lacking
    }

    /// # Errors
    /// Failed where the question cannot be answered.
    pub async fn rows(&mut self, sql: &str, order: RowOrder) -> Result<SourceBatches, CliFailure> {
        let sql = &*self.run.narrowed(sql)?;
        let answer = match &self.target {
            RunTarget::Here(queries) => SourceBatches::of_queries(queries, sql, order).await?,
            RunTarget::Server(client) => SourceBatches::of_server_in(client, sql, order).await?,
        };
        if let Some(missing) = answer.missing() {
            self.lacking.add(missing);
        }
        Ok(answer)
    }

    /// All rows at once.
    ///
    /// # Errors
    /// As [`RunSource::rows`].
    pub async fn ask(&mut self, sql: &str) -> Result<Vec<RecordBatch>, CliFailure> {
        let mut answer = self.rows(sql, RowOrder::Any).await?;
        let mut batches = Vec::new();
        while let Some(batch) = answer.next().await? {
            batches.push(batch);
        }
        Ok(batches)
    }
}

/// Why rows do not come.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    #[error(transparent)]
    Query(#[from] telem_query::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the server's answer cannot be decoded: {0}")]
    Garbled(#[from] ArrowError),
    #[error("the server's answer is not an Arrow stream")]
    NoStream,
}

impl From<RowsError> for CliFailure {
    fn from(error: RowsError) -> Self {
        CliFailure::failed(error)
    }
}

/// The rows of one answer, batch by batch.
pub struct SourceBatches {
    schema: SchemaRef,
    missing: Option<String>,
    rows: SqlRows,
}

enum SqlRows {
    Local {
        answer: SqlAnswer,
        /// What runs the query: it stops with this.
        _queries: Queries,
    },
    Remote(Box<Remote>),
}

struct Remote {
    body: AnswerBody,
    decoder: StreamDecoder,
    /// What came and is not decoded yet.
    buffer: Buffer,
    /// A batch that came with the schema.
    first: Option<RecordBatch>,
}

impl SourceBatches {
    /// Asks the databases in `dirs`, in this process. Names the nodes that did not answer.
    pub async fn of_directories(
        dirs: &[PathBuf],
        strict: StrictArg,
        sql: &str,
        limits: impl FnOnce(&mut QueryOptions),
    ) -> Result<Self, CliFailure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut options = QueryOptions::new(clock);
        limits(&mut options);
        let opened = open_read_only(dirs, strict)?;
        options.absent = opened.absent();
        let queries = Queries::new(opened.db, options).map_err(CliFailure::failed)?;
        Ok(Self::of_queries(&queries, sql, RowOrder::Any).await?)
    }

    /// Asks a database that is open in this process.
    pub async fn of_queries(queries: &Queries, sql: &str, order: RowOrder) -> Result<Self, RowsError> {
        let answer = queries.sql_in(order, sql).await?;
        let missing: Vec<String> = answer.missing.iter().map(|one| format!("{}={}", one.node, one.reason)).collect();
        let missing = (!missing.is_empty()).then(|| missing.join(", "));
        Ok(Self {
            schema: answer.batches.schema(),
            missing,
            rows: SqlRows::Local { answer, _queries: queries.clone() },
        })
    }

    /// Asks a running server.
    pub async fn of_server(client: &Client, strict: StrictArg, sql: &str) -> Result<Self, RowsError> {
        let path = if strict.strict { "/api/sql?format=arrow&strict=true" } else { "/api/sql?format=arrow" };
        Self::of_path(client, path, sql).await
    }

    /// Asks a running server for rows in an order.
    pub async fn of_server_in(client: &Client, sql: &str, order: RowOrder) -> Result<Self, RowsError> {
        let path = match order {
            RowOrder::Any => "/api/sql?format=arrow",
            RowOrder::Stored => "/api/sql?format=arrow&order=stored",
        };
        Self::of_path(client, path, sql).await
    }

    async fn of_path(client: &Client, path: &str, sql: &str) -> Result<Self, RowsError> {
        let body = client.post(path, Bytes::from(sql.to_owned())).await?;
        let missing = body.header(missing::NAME).map(str::to_owned);
        let mut remote =
            Remote { body, decoder: StreamDecoder::new(), buffer: Buffer::from(Bytes::new()), first: None };
        remote.first = remote.next().await?;
        let schema = remote.decoder.schema().ok_or(RowsError::NoStream)?;
        Ok(Self { schema, missing, rows: SqlRows::Remote(Box::new(remote)) })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The nodes that did not answer, and why.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub async fn next(&mut self) -> Result<Option<RecordBatch>, RowsError> {
        match &mut self.rows {
            SqlRows::Local { answer, .. } => {
                let batch = answer.batches.next().await.transpose();
                Ok(batch.map_err(telem_query::Error::from)?)
            }
            SqlRows::Remote(remote) => match remote.first.take() {
                Some(batch) => Ok(Some(batch)),
                None => remote.next().await,
            },
        }
    }
}

impl Remote {
    /// The next batch; `None` at the end, and then the schema is known.
    async fn next(&mut self) -> Result<Option<RecordBatch>, RowsError> {
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.buffer)? {
                return Ok(Some(batch));
            }
            match self.body.chunk().await? {
                Some(chunk) => self.buffer = Buffer::from(chunk),
                None => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
            }
        }
    }
}
