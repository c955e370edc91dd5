//! The socket of Metric Proxy's clients: reads their messages, and answers nothing.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use telem_ingest::counters::{Feed, FeedEvent};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{Semaphore, watch};

use super::live::ProxyLive;
use super::runs::RunSeat;
use super::seats;
use crate::protocol::{ByteStream, ValueClient, ValueService};

/// Most connections.
pub const CONNECTIONS_MAX: usize = 10_000;
/// A connection that sends so many messages in a row that cannot be taken is no client.
pub const REFUSALS_MAX: u32 = 1_000;
/// Most that one read brings.
const READ_MAX: usize = 64 << 10;

thread_local! {
    /// Where reads of all connections go: what one brings is taken before another one reads on this thread. Thousands of
    /// clients that are silent take none.
    static ROOM: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_MAX].into());
}

/// Takes what clients send.
#[derive(Debug)]
pub struct ProxySocket {
    live: Arc<ProxyLive>,
    places: Semaphore,
}

impl ProxySocket {
    pub fn new(live: Arc<ProxyLive>) -> Self {
        Self { live, places: Semaphore::new(CONNECTIONS_MAX) }
    }

    async fn take(&self, client: ValueClient) {
        let Ok(_place) = self.places.try_acquire() else {
            tracing::warn!("{CONNECTIONS_MAX} clients of Metric Proxy are connected; another one was turned away");
            return;
        };
        let mut connection = ValueConnection {
            live: Arc::clone(&self.live),
            feed: Feed::new(self.live.jobless),
            seat: None,
            refused: 0,
        };
        let _connected = self.live.clients.enter();
        connection.read(client.stream, client.stopping, self.live.clients.dismissed()).await;
        if let Some(seat) = connection.seat.take() {
            seats::leave(&self.live, seat).await;
        } else if let Err(error) = self.live.store_jobless().await {
            tracing::warn!(%error, "the last values of a client without a job are not stored");
        }
    }
}

/// The server stops, or leaves its tree.
async fn stop(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

impl ValueService for ProxySocket {
    fn converse(&self, client: ValueClient) -> BoxFuture<'_, ()> {
        Box::pin(self.take(client))
    }
}

struct ValueConnection {
    live: Arc<ProxyLive>,
    feed: Feed,
    seat: Option<RunSeat>,
    /// In a row.
    refused: u32,
}

impl ValueConnection {
    /// Until the client hangs up, sends nonsense only, or the server stops or dismisses it.
    async fn read(
        &mut self,
        mut stream: Box<dyn ByteStream>,
        mut stopping: watch::Receiver<bool>,
        mut dismissed: watch::Receiver<bool>,
    ) {
        if self.live.store.is_none() {
            tracing::warn!("a client of Metric Proxy was turned away: this database is served read-only");
            return;
        }
        loop {
            let before = self.feed.taken();
            let read = tokio::select! {
                // What is on its way already is taken before the end.
                biased;
                read = poll_fn(|context| self.poll_take(&mut stream, context)) => read,
                () = stop(&mut stopping) => return,
                () = stop(&mut dismissed) => return,
            };
            let (length, mut events) = match read {
                Ok((0, _)) => return,
                Ok(taken) => taken,
                Err(error) => {
                    tracing::debug!(%error, "a connection of a client of Metric Proxy ended");
                    return;
                }
            };
            loop {
                let told = self.hear(events).await;
                if !self.feed.is_waiting() {
                    break;
                }
                let lane = told.unwrap_or(self.feed.lane());
                events = self.feed.switch(lane, &self.live.table);
            }
            let taken = self.feed.taken() - before;
            if taken > 0 {
                self.live.count(taken);
                self.refused = 0;
            }
            if self.refused >= REFUSALS_MAX {
                tracing::warn!("{REFUSALS_MAX} messages in a row could not be taken; the connection is ended");
                return;
            }
            if length == READ_MAX {
                // A client that sends without a pause must not keep others waiting that ask.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads once, and takes what came: how many bytes, none where the client hung up, and what they brought beside values.
    fn poll_take(
        &mut self,
        stream: &mut Box<dyn ByteStream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(usize, Vec<FeedEvent>)>> {
        ROOM.with_borrow_mut(|room| {
            let mut read = ReadBuf::new(room);
            ready!(Pin::new(stream).poll_read(context, &mut read))?;
            let bytes = read.filled();
            Poll::Ready(Ok((bytes.len(), self.feed.take(bytes, &self.live.table))))
        })
    }

    /// The lane of the job that the client named, if it did.
    async fn hear(&mut self, events: Vec<FeedEvent>) -> Option<telem_ingest::counters::ScopeId> {
        let mut lane = None;
        for event in events {
            match event {
                FeedEvent::Refused(refusal) => {
                    self.refused += 1;
                    self.live.refuse(&refusal);
                }
                FeedEvent::Job(told) => {
                    // It is in one job at a time.
                    if self.seat.as_ref().is_some_and(|seat| seat.id == told.jobid) {
                        continue;
                    }
                    if let Some(seat) = self.seat.take() {
                        seats::leave(&self.live, seat).await;
                    }
                    if told.jobid.is_empty() {
                        lane = Some(self.live.jobless);
                        continue;
                    }
                    match seats::join(&self.live, *told).await {
                        Ok(seat) => {
                            lane = Some(seat.lane);
                            self.seat = Some(seat);
                        }
                        Err(refusal) => {
                            self.live.refuse(&refusal);
                            lane = Some(self.live.jobless);
                        }
                    }
                }
            }
        }
        lane
    }
}
