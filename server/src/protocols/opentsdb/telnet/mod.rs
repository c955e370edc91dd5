//! OpenTSDB's telnet protocol: a line is a command, most of them `put`, and silence means that all is well.
//!
//! It is spoken on the port of HTTP; `net` tells the two apart by the first byte and decides who may speak.
//! [`conversation`] reads and writes, [`lines`] cuts what came into lines, [`puts`] stores runs of samples, and
//! [`commands`] answers everything else. Here stands what all connections share.

mod commands;
mod conversation;
mod lines;
mod puts;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use telem_ingest::decode::opentsdb;
use telem_ingest::decode::opentsdb::telnet::{Fraction, Rules};
use telem_ingest::default_tags::DefaultTags;
use telem_query::tsq::Fidelity;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::counters::TelnetCounters;
use crate::state::State;

/// What all connections share that speak telnet.
#[derive(Debug)]
pub struct Telnet {
    state: Arc<State>,
    places: Arc<Semaphore>,
}

impl Telnet {
    pub fn new(state: Arc<State>) -> Self {
        let places = state.limits.telnet.connections_max.clamp(1, Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(places)), state }
    }

    /// Answers a client, whose `first` bytes came already, until one of both has enough. Its samples get `tags` where they
    /// lack them. When `stopping` turns true, what is on its way is still stored.
    pub async fn converse<S>(&self, stream: S, first: BytesMut, tags: &DefaultTags, stopping: watch::Receiver<bool>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        conversation::hold(self, stream, first, tags, stopping).await;
    }

    /// Says in a line why a client is not served, and hangs up.
    pub async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, reason: &str) {
        conversation::refuse(self, stream, reason).await;
    }

    /// What was said since the start, on all connections.
    fn counters(&self) -> &TelnetCounters {
        &self.state.opentsdb.telnet
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    fn rules(&self) -> Rules {
        match self.state.fidelity {
            Fidelity::Sensible => Rules { tags_max: telem_engine::series::TAGS_MAX, fraction: Fraction::Counts },
            Fidelity::OpenTsdb => Rules { tags_max: opentsdb::TAGS_MAX, fraction: Fraction::PointLeftOut },
        }
    }
}
