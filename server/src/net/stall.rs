//! Ends a connection whose peer stopped reading: otherwise an answer that is never read holds its query for ever.
//!
//! Over HTTP/2 a peer can go on reading and still take nothing of one answer; [`StallWatch`] ends that answer alone.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail with `TimedOut` when no byte is taken for `limit`.
#[derive(Debug)]
pub struct StallGuard<S> {
    inner: S,
    limit: Duration,
    alarm: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> StallGuard<S> {
    pub fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, alarm: Box::pin(tokio::time::sleep(limit)), waiting: false }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.alarm.as_mut().reset(Instant::now() + self.limit);
        }
        match self.alarm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the client took no byte for {} s", self.limit.as_secs_f64()),
            ))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, closed)
    }
}

/// Watches the answers of one connection of HTTP/2.
#[derive(Debug)]
pub struct StallWatch {
    limit: Duration,
    answers: Mutex<Vec<Weak<Mutex<WatchedAnswer>>>>,
}

#[derive(Debug)]
struct WatchedAnswer {
    /// `None` once it has been given up.
    body: Option<Body>,
    /// Since when something of it waits to be taken; `None` while it is waited for itself.
    waiting: Option<Instant>,
}

impl StallWatch {
    pub fn new(limit: Duration) -> Self {
        Self { limit, answers: Mutex::default() }
    }

    /// `body`, which is dropped when nothing of it is taken for as long as the limit says.
    pub fn around(&self, body: Body) -> WatchedBody {
        let answer = Arc::new(Mutex::new(WatchedAnswer { body: Some(body), waiting: Some(Instant::now()) }));
        let mut answers = locked(&self.answers);
        answers.retain(|answer| answer.strong_count() > 0);
        answers.push(Arc::downgrade(&answer));
        WatchedBody { answer, limit: self.limit }
    }

    /// Gives up what is not taken; until it is dropped.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(self.limit / 4).await;
            let answers: Vec<_> = locked(&self.answers).iter().filter_map(Weak::upgrade).collect();
            for answer in answers {
                let mut answer = locked(&answer);
                if answer.waiting.is_some_and(|since| since.elapsed() > self.limit) {
                    answer.body = None;
                }
            }
        }
    }
}

/// See [`StallWatch::around`].
#[derive(Debug)]
pub struct WatchedBody {
    answer: Arc<Mutex<WatchedAnswer>>,
    limit: Duration,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut answer = locked(&self.answer);
        let Some(body) = &mut answer.body else {
            let what = format!("the client took nothing of its answer for {} s", self.limit.as_secs_f64());
            return Poll::Ready(Some(Err(what.into())));
        };
        let frame = Pin::new(body).poll_frame(cx);
        answer.waiting = frame.is_ready().then(Instant::now);
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        locked(&self.answer).body.as_ref().is_some_and(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        locked(&self.answer).body.as_ref().map_or_else(SizeHint::default, hyper::body::Body::size_hint)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
