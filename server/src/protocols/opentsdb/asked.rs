//! The running queries and those that ended last, for `/api/stats/query`: a ring in memory, so that its size is
//! constant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use telem_engine::Timestamp;

use super::json;

/// Most queries that ended and are remembered.
pub(crate) const ENDED_MAX: usize = 100;
/// Most bytes of a query's URI that are remembered.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 10;

#[derive(Debug, Default)]
pub struct QueryLog {
    // A std mutex: nobody awaits while holding it.
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    next: u64,
    /// As many as requests run.
    running: BTreeMap<u64, Query>,
    /// The latest last.
    ended: VecDeque<Query>,
}

#[derive(Clone, Debug)]
struct Query {
    /// Method and URI.
    text: String,
    started: Timestamp,
    end: Option<QueryEnd>,
}

#[derive(Clone, Copy, Debug)]
struct QueryEnd {
    at: Timestamp,
    /// `None`: the client went away.
    status: Option<StatusCode>,
}

/// A query that runs; dropped without [`Running::ended`] it counts as given up.
pub struct Running<'a> {
    log: &'a QueryLog,
    number: u64,
    started: Timestamp,
    ended: bool,
}

impl QueryLog {
    pub fn start(&self, mut text: String, now: Timestamp) -> Running<'_> {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        let mut log = self.lock();
        let number = log.next;
        log.next += 1;
        log.running.insert(number, Query { text, started: now, end: None });
        Running { log: self, number, started: now, ended: false }
    }

    /// `{"running":[...],"completed":[...]}`, the latest first; with `"leftBehind":N`, which is ours, where questions in
    /// SQL outlived their time.
    pub fn render(&self, left_behind: u64) -> Vec<u8> {
        let (running, ended): (Vec<Query>, Vec<Query>) = {
            let log = self.lock();
            (log.running.values().rev().cloned().collect(), log.ended.iter().rev().cloned().collect())
        };
        let mut out = b"{\"running\":".to_vec();
        json::list(&mut out, &running, render);
        out.extend_from_slice(b",\"completed\":");
        json::list(&mut out, &ended, render);
        if left_behind > 0 {
            out.extend_from_slice(b",\"leftBehind\":");
            json::int(&mut out, i64::try_from(left_behind).unwrap_or(i64::MAX));
        }
        out.push(b'}');
        out
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        // Every change is complete before it can panic.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, number: u64, end: QueryEnd) {
        let mut log = self.lock();
        let Some(query) = log.running.remove(&number) else { return };
        if log.ended.len() == ENDED_MAX {
            log.ended.pop_front();
        }
        log.ended.push_back(Query { end: Some(end), ..query });
    }
}

impl Running<'_> {
    pub fn ended(mut self, status: StatusCode, now: Timestamp) {
        self.ended = true;
        self.log.end(self.number, QueryEnd { at: now, status: Some(status) });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A cancelled query is not reported: it is only known that it had started.
            self.log.end(self.number, QueryEnd { at: self.started, status: None });
        }
    }
}

fn render(out: &mut Vec<u8>, query: &Query) {
    out.extend_from_slice(b"{\"query\":");
    json::string(out, &query.text);
    out.extend_from_slice(b",\"queryStartTimestamp\":");
    json::int(out, query.started.millis());
    if let Some(QueryEnd { at, status }) = query.end {
        out.extend_from_slice(b",\"queryCompletedTimestamp\":");
        json::int(out, at.millis());
        out.extend_from_slice(b",\"sentToClient\":");
        json::bool(out, status.is_some());
        if let Some(status) = status {
            out.extend_from_slice(b",\"httpResponse\":{\"code\":");
            json::int(out, status.as_u16().into());
            out.push(b'}');
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
