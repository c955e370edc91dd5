//! The counters of the OpenTSDB protocols, HTTP and telnet, since the server started; [`super::stats`] shows them.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenTsdbCounters {
    pub telnet: TelnetCounters,
    pub http: HttpCounters,
}

#[derive(Debug, Default)]
pub(super) struct TelnetCounters {
    connections_open: AtomicU64,
    pub connections: AtomicU64,
    pub connections_refused: AtomicU64,
    pub lines: AtomicU64,
    pub puts: AtomicU64,
    /// Puts that were not stored, by the reason.
    pub illegal_arguments: AtomicU64,
    pub invalid_values: AtomicU64,
    pub not_written: AtomicU64,
}

impl TelnetCounters {
    /// Counts a connection, as open until the guard is dropped.
    pub fn open(&self) -> OpenConnection<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self)
    }

    pub fn connections_open(&self) -> u64 {
        self.connections_open.load(Ordering::Relaxed)
    }
}

pub(super) struct OpenConnection<'a>(&'a TelnetCounters);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests by how they ended.
#[derive(Debug, Default)]
pub(super) struct HttpCounters {
    pub received: AtomicU64,
    pub succeeded: AtomicU64,
    pub invalid: AtomicU64,
    pub failed: AtomicU64,
}

impl HttpCounters {
    pub fn ended(&self, status: StatusCode) {
        let counter = match status {
            status if status.is_client_error() => &self.invalid,
            status if status.is_server_error() => &self.failed,
            _ => &self.succeeded,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
