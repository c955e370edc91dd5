//! OpenTSDB's telnet protocol: a line is a command, most of them `put`, and no answer means success.
//!
//! It uses the port of HTTP; `net` distinguishes the two by the first byte and checks the client's rights.
//! [`conversation`] reads and writes, [`lines`] cuts the input into lines, [`puts`] stores runs of samples, and
//! [`commands`] answers all other lines. This file holds what all connections share.

mod commands;
mod conversation;
mod limits;
mod lines;
mod puts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use telem_ingest::decode::opentsdb;
use telem_ingest::decode::opentsdb::telnet::{Fraction, TelnetRules};
use telem_query::tsq::Fidelity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::limits::TelnetLimits;
use super::OpenTsdb;
use super::counters::TelnetCounters;
use crate::protocol::{ByteStream, LineClient, LineService};
use crate::state::State;

/// What all connections share that speak telnet.
#[derive(Debug)]
pub struct Telnet {
    tsdb: Arc<OpenTsdb>,
    places: Arc<Semaphore>,
}

impl Telnet {
    pub fn new(tsdb: Arc<OpenTsdb>) -> Self {
        let places = tsdb.telnet.connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(places)), tsdb }
    }

    fn state(&self) -> &State {
        &self.tsdb.state
    }

    fn limits(&self) -> &TelnetLimits {
        &self.tsdb.telnet
    }

    /// What was said since the start, on all connections.
    fn counters(&self) -> &TelnetCounters {
        &self.tsdb.counters.telnet
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    fn rules(&self) -> TelnetRules {
        match self.state().fidelity {
            Fidelity::Sensible => TelnetRules { tags_max: telem_engine::series::TAGS_MAX, fraction: Fraction::Counts },
            Fidelity::OpenTsdb => TelnetRules { tags_max: opentsdb::TAGS_MAX, fraction: Fraction::PointLeftOut },
        }
    }
}

impl LineService for Telnet {
    fn converse(&self, client: LineClient) -> BoxFuture<'_, ()> {
        Box::pin(conversation::hold(self, client))
    }

    fn refuse<'a>(&'a self, stream: Box<dyn ByteStream>, reason: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(conversation::refuse(self, stream, reason))
    }
}
