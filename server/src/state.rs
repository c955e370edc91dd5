//! The state that every request handler gets: the database, the writer, the queries, and the limits.
//!
//! It is shared as `Arc<State>`; nothing in it changes while the server runs. Each protocol keeps its own counters and
//! memories.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use telem_engine::{Clock, Db, SeriesIndex};
use telem_ingest::writer::Writer;
use telem_query::Queries;
use telem_query::tsq::Fidelity;

use crate::answers::AnswerBudget;
use crate::cors::Cors;
use crate::http::body::BodyLimits;
use crate::slots::JobSlots;
use crate::walks::Walks;

/// The state of one running server.
#[derive(Debug)]
pub struct State {
    /// The tag `host` of samples that say none and that no connection says it for.
    pub node: Arc<str>,
    /// The job of the server itself.
    pub job: Arc<str>,
    pub db: Db,
    /// `None` when the database is open read-only.
    pub writer: Option<Writer>,
    pub queries: Queries,
    /// Samples of a higher level are not kept; 0 keeps nothing.
    pub level: u8,
    /// What the OpenTSDB protocol answers where the original misleads.
    pub fidelity: Fidelity,
    pub clock: Arc<dyn Clock>,
    pub limits: ServerLimits,
    /// Which pages of other origins may ask.
    pub cors: Cors,
    /// Why nothing is written, where there is no writer.
    pub refusal: Refusal,
    /// Where jobs share the server.
    pub slots: Option<Arc<JobSlots>>,
    /// The version of telem, as in `telem --version`.
    pub version: &'static str,
}

/// Why a server takes no samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What it serves was saved.
    Saved,
    /// Its disk has no room.
    NoRoom,
}

impl Refusal {
    pub fn status(self) -> StatusCode {
        match self {
            Self::Saved => StatusCode::FORBIDDEN,
            Self::NoRoom => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub fn message(self) -> &'static str {
        match self {
            Self::Saved => "this database is served read-only; send samples to the telem that writes it",
            Self::NoRoom => {
                "the disk of this database is full, so that nothing can be stored; free space, and send it again: the \
                 server tries every few seconds whether there is room"
            }
        }
    }
}

impl State {
    /// The names of all series that can be asked for: of our own database and, at a head, of all nodes.
    pub fn index(&self) -> Arc<SeriesIndex> {
        self.queries.index()
    }
}

/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Every limit of the server that is not a limit of the engine, of the writer or of queries.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    pub bodies: BodyLimits,
    /// Largest request body that only asks something. 1 MiB by default.
    pub question_bytes_max: usize,
    /// Memory that answers to OpenTSDB's queries share until they are read.
    pub answers: AnswerBudget,
    /// Values that wait until all sub-queries of a request are answered, so that an error still has a status of its
    /// own; with more of them the answer begins. 1 million by default, 24 MB.
    pub answer_values_waiting: u64,
    /// Work that walks over all names or series.
    pub walks: Walks,
    /// Most open connections, a quarter of them for clients that need the token; one more is told 503.
    pub connections_max: usize,
    /// Longest that the head of a request may take to arrive, idle time before it included.
    pub header_timeout: Duration,
    /// Longest that a client may take no byte of an answer.
    pub write_idle_timeout: Duration,
    /// Longest that running requests are waited for when the server stops.
    pub shutdown_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            bodies: BodyLimits::default(),
            question_bytes_max: 1 << 20,
            answers: AnswerBudget::new(512 << 20),
            answer_values_waiting: 1_000_000,
            walks: Walks::default(),
            connections_max: 512,
            header_timeout: Duration::from_secs(90),
            write_idle_timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
