//! Where answers come from: a database in a directory, or a running server.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use bytes::Bytes;
use futures::StreamExt;
use telem_engine::{Clock, Db, Options, SystemClock};
use telem_query::{Queries, QueryOptions, SqlAnswer};

use super::Failure;
use crate::client::{Body, Client};
use crate::protocols::sql::MISSING_HEADER;

/// Opens the database in `dir` without changing anything, also while a server writes it.
pub fn open_read_only(dir: &Path) -> Result<Db, Failure> {
    let options = Options { clock: Arc::new(SystemClock::new()), ..Options::default() };
    let db = Db::open_read_only(dir, options).map_err(Failure::failed)?;
    // Who gets less than was written must know, whatever they asked for.
    let recovery = db.recovery();
    if !recovery.damaged.is_empty() || !recovery.missing.is_empty() {
        eprintln!("warning: {recovery}; `telem check {}` says more", dir.display());
    }
    Ok(db)
}

/// The rows of one answer, batch by batch.
pub struct Batches {
    schema: SchemaRef,
    missing: Option<String>,
    rows: Rows,
}

enum Rows {
    Local {
        answer: SqlAnswer,
        /// What runs the query: it stops with this.
        _queries: Queries,
    },
    Remote(Box<Remote>),
}

struct Remote {
    body: Body,
    decoder: StreamDecoder,
    /// What came and is not decoded yet.
    buffer: Buffer,
    /// A batch that came with the schema.
    first: Option<RecordBatch>,
}

impl Batches {
    /// Asks the database in `dir`, in this process. Names the nodes that did not answer.
    pub async fn of_directory(dir: &Path, sql: &str, limits: impl FnOnce(&mut QueryOptions)) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut options = QueryOptions::new(clock);
        limits(&mut options);
        let queries = Queries::new(open_read_only(dir)?, options).map_err(Failure::failed)?;
        let answer = queries.sql(sql).await.map_err(Failure::failed)?;
        let missing: Vec<String> = answer.missing.iter().map(|one| format!("{}={}", one.node, one.reason)).collect();
        let missing = (!missing.is_empty()).then(|| missing.join(", "));
        Ok(Self { schema: answer.batches.schema(), missing, rows: Rows::Local { answer, _queries: queries } })
    }

    /// Asks a running server.
    pub async fn of_server(client: &Client, sql: &str) -> Result<Self, Failure> {
        let asked = client.post("/api/sql?format=arrow", Bytes::from(sql.to_owned())).await;
        let body = asked.map_err(Failure::failed)?;
        let missing = body.header(MISSING_HEADER).map(str::to_owned);
        let mut remote =
            Remote { body, decoder: StreamDecoder::new(), buffer: Buffer::from(Bytes::new()), first: None };
        remote.first = remote.next().await?;
        let Some(schema) = remote.decoder.schema() else {
            return Err(Failure::failed("the server's answer is no Arrow stream"));
        };
        Ok(Self { schema, missing, rows: Rows::Remote(Box::new(remote)) })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The nodes that did not answer, and why.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        match &mut self.rows {
            Rows::Local { answer, .. } => {
                let batch = answer.batches.next().await.transpose();
                batch.map_err(|error| Failure::failed(telem_query::Error::from(error)))
            }
            Rows::Remote(remote) => match remote.first.take() {
                Some(batch) => Ok(Some(batch)),
                None => remote.next().await,
            },
        }
    }
}

impl Remote {
    /// The next batch; `None` at the end, and then the schema is known.
    async fn next(&mut self) -> Result<Option<RecordBatch>, Failure> {
        let garbled = |error| Failure::Failed(format!("the server's answer cannot be decoded: {error}"));
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.buffer).map_err(garbled)? {
                return Ok(Some(batch));
            }
            match self.body.chunk().await.map_err(Failure::failed)? {
                Some(chunk) => self.buffer = Buffer::from(chunk),
                None => {
                    self.decoder.finish().map_err(garbled)?;
                    return Ok(None);
                }
            }
        }
    }
}
