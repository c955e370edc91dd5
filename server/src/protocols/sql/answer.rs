//! An answer on its way out: encoded batch by batch, as fast as the client takes it.

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use telem_engine::ErrorKind;
use telem_query::SqlAnswer;

use crate::http::{self, ApiError};
use crate::missing;
use crate::rows::{Encoder, Format};

/// Starts the answer once its first batch is there, so that most errors still get a status of their own.
///
/// # Errors
/// What the query fails with before its first batch.
pub async fn respond(answer: SqlAnswer, format: Format) -> Result<Response, ApiError> {
    let SqlAnswer { batches, missing } = answer;
    let encoder = Encoder::new(format, &batches.schema()).map_err(unshowable)?;
    let mut rows = RowStream { batches, encoder, format, ended: false };
    let first = rows.next_chunk().await?;
    let rest = futures::stream::unfold(rows, |mut rows| async move { Some((rows.next_or_last().await?, rows)) });
    let chunks = futures::stream::iter(first.map(Ok)).chain(rest);
    let mut response = Response::builder().header(header::CONTENT_TYPE, format.content_type());
    if let Some(missing) = missing::header(&missing) {
        response = response.header(missing::NAME, missing);
    }
    response
        .body(http::streamed(chunks))
        .map_err(|error| ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: an answer's head: {error}")))
}

struct RowStream<S> {
    batches: S,
    encoder: Encoder,
    format: Format,
    ended: bool,
}

impl<S, E> RowStream<S>
where
    S: Stream<Item = Result<RecordBatch, E>> + Unpin,
    telem_query::Error: From<E>,
{
    /// The next bytes; `None` after the last.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ApiError> {
        while !self.ended {
            let bytes = match self.batches.next().await {
                Some(batch) => self.encoder.batch(&batch.map_err(telem_query::Error::from)?).map_err(unshowable)?,
                None => {
                    self.ended = true;
                    self.encoder.finish().map_err(unshowable)?
                }
            };
            if !bytes.is_empty() {
                return Ok(Some(Bytes::from(bytes)));
            }
        }
        Ok(None)
    }

    /// The next bytes once the answer has begun: an error is its last line, or cuts it off.
    async fn next_or_last(&mut self) -> Option<Result<Bytes, ApiError>> {
        match self.next_chunk().await {
            Ok(chunk) => chunk.map(Ok),
            Err(error) => {
                tracing::warn!(%error, "a query failed after its answer had begun");
                self.ended = true;
                match self.format {
                    Format::Ndjson => Some(Ok(Bytes::from(format!("{}\n", error.to_json())))),
                    Format::Json | Format::Csv | Format::Arrow | Format::Parquet => Some(Err(error)),
                }
            }
        }
    }
}

fn unshowable(error: ArrowError) -> ApiError {
    let what = format!("a column cannot be shown in this format: {error}; CAST it, or ask for format=arrow");
    ApiError::new(StatusCode::BAD_REQUEST, what)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// The chunks of an answer with these batches.
    pub fn chunks<S>(batches: S, encoder: Encoder, format: Format) -> impl Stream<Item = Result<Bytes, ApiError>>
    where
        S: Stream<Item = Result<RecordBatch, telem_query::Error>> + Unpin,
    {
        let rows = RowStream { batches, encoder, format, ended: false };
        futures::stream::unfold(rows, |mut rows| async move { Some((rows.next_or_last().await?, rows)) })
    }
}
