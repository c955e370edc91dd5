//! A large answer on its way out: computed and written while the client reads, one piece at a time.
//!
//! Computed results wait as points, which take less memory than their JSON. They are written when the client has taken
//! the previous piece. No work goes on when the client is gone: the work belongs to the body of the answer and is
//! dropped with it.

#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::Answering;
use super::render::AnswerBuffer;
use crate::http::ApiError;
use crate::protocols::opentsdb::errors::OpenTsdbError;

/// What is written at once, roughly: a millisecond of work.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that are written ahead of a client that reads slowly.
const PIECES_AHEAD: usize = 1;

/// The bytes of an answer that has begun. An error cuts it off: it never looks whole.
pub struct Pieces {
    /// Taken when it is over.
    work: Option<BoxFuture<'static, Result<(), OpenTsdbError>>>,
    written: mpsc::Receiver<Bytes>,
}

impl Pieces {
    /// The answer of what `out` holds, and of what is still to be computed.
    pub(super) fn new(out: AnswerBuffer, rest: Answering) -> Self {
        let (to, written) = mpsc::channel(PIECES_AHEAD);
        Pieces { work: Some(Box::pin(work(out, rest, to))), written }
    }
}

async fn work(mut out: AnswerBuffer, mut rest: Answering, to: mpsc::Sender<Bytes>) -> Result<(), OpenTsdbError> {
    // Who receives them polls this, so they are received as long as this is polled.
    let send = async |piece: Vec<u8>| drop(to.send(Bytes::from(piece)).await);
    send(AnswerBuffer::START.to_vec()).await;
    loop {
        loop {
            let piece;
            let written = rest.state.limits.walks.render(move || {
                let piece = out.piece(PIECE_BYTES);
                Ok::<_, OpenTsdbError>((out, piece))
            });
            (out, piece) = written.await?;
            let Some(piece) = piece else { break };
            send(piece).await;
        }
        let Some((sub, answer, took)) = rest.next().await? else { break };
        out.add(&sub, answer.groups, took)?;
    }
    send(out.end()).await;
    Ok(())
}

impl Stream for Pieces {
    type Item = Result<Bytes, ApiError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(work) = &mut self.work {
            match work.as_mut().poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.work = None,
                Poll::Ready(Err(failure)) => {
                    tracing::warn!(error = failure.message, "a query failed after its answer had begun");
                    self.work = None;
                    self.written.close();
                    while self.written.try_recv().is_ok() {}
                    return Poll::Ready(Some(Err(failure.into())));
                }
            }
        }
        self.written.poll_recv(cx).map(|piece| piece.map(Ok))
    }
}
