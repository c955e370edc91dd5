//! What a client asks that HTTP answers too: the same handlers answer it, with the same limits, rights and refusals, and
//! where this is a member of a job its head.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::ipc::reader::StreamDecoder;
use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::{Extensions, HeaderValue, Method, header};
use axum::response::Response;
use futures::{Stream, StreamExt};
use serde_json::{Value as Json, json};
use telem_engine::Timestamp;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;

use super::outbox::{AnswerEnd, end_frame};
use super::rows::{self, SentColumns};
use crate::missing;
use crate::settings;

/// Longest error of a handler that is passed on.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The frames of an answer.
pub type QueryFrames = Pin<Box<dyn Stream<Item = Vec<u8>> + Send>>;

/// Where a client's requests go.
#[derive(Clone, Debug)]
pub struct Asking {
    pub http: Router,
    pub extensions: Extensions,
}

impl Asking {
    async fn ask(&self, method: Method, path: &'static str, body: String) -> Response {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = axum::http::Uri::from_static(path);
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.extensions_mut() = self.extensions.clone();
        match self.http.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// # Errors
    /// Why it was not taken.
    async fn post(&self, path: &'static str, body: Json) -> Result<(), String> {
        let response = self.ask(Method::POST, path, body.to_string()).await;
        match response.status().is_success() {
            true => Ok(()),
            false => Err(error(response).await),
        }
    }

    /// An annotation of the job, to the millisecond.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn note(&self, time: Timestamp, title: &[u8], description: &[u8]) -> Result<(), String> {
        let (title, description) = (text("title of a note", title)?, text("description of a note", description)?);
        let body = json!({"startTime": time.millis(), "description": title, "notes": description});
        self.post("/api/annotation", body).await
    }

    /// A setting of the job: a number, `true`, `false` and `null` are what they are in JSON.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn setting(&self, name: &[u8], value: &[u8]) -> Result<(), String> {
        let (name, value) = (text("name of a setting", name)?, text("value of a setting", value)?);
        self.post("/api/job", json!({"settings": {name: settings::scalar(value)}})).await
    }

    /// The frames of the answer to a question, END the last of them. Whoever drops them cancels the query.
    pub fn query(&self, number: u32, deadline_ms: u32, sql: &[u8]) -> QueryFrames {
        let sql = text("SQL", sql).map(str::to_owned);
        let limit = (deadline_ms > 0).then(|| Duration::from_millis(u64::from(deadline_ms)));
        let answer = Answer {
            number,
            limit,
            due: limit.map(|limit| Instant::now() + limit),
            missing: None,
            ready: VecDeque::new(),
            columns: None,
            phase: AnswerPhase::Asked { asking: self.clone(), sql },
        };
        Box::pin(futures::stream::unfold(answer, |mut answer| async move {
            let frame = answer.next().await?;
            Some((frame, answer))
        }))
    }
}

fn text<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("the {what} is not UTF-8: {error}"))
}

/// What a handler says that refused.
async fn error(response: Response) -> String {
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), ERROR_BYTES_MAX).await.unwrap_or_default();
    let json: Option<Json> = serde_json::from_slice(&body).ok();
    let message = json.as_ref().and_then(|json| json["error"]["message"].as_str());
    match message {
        Some(message) => message.to_owned(),
        // That nothing is new is no error.
        None => format!("the service answers {status}"),
    }
}

/// An answer on its way.
struct Answer {
    number: u32,
    limit: Option<Duration>,
    due: Option<Instant>,
    /// The nodes that it lacks, and why.
    missing: Option<String>,
    /// Frames that are made already.
    ready: VecDeque<Vec<u8>>,
    columns: Option<SentColumns>,
    phase: AnswerPhase,
}

enum AnswerPhase {
    Asked { asking: Asking, sql: Result<String, String> },
    Rows { body: BodyDataStream, decoder: Box<StreamDecoder>, bytes: Buffer },
    Ended,
}

impl Answer {
    /// The next frame; `None` after END.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if matches!(self.phase, AnswerPhase::Ended) {
                return None;
            }
            let step = match self.due {
                Some(due) => match timeout_at(due, self.step()).await {
                    Ok(step) => step,
                    Err(_) => Err(format!(
                        "the query took longer than {} ms, the deadline that its client set",
                        self.limit.unwrap_or_default().as_millis()
                    )),
                },
                None => self.step().await,
            };
            if let Err(error) = step {
                self.phase = AnswerPhase::Ended;
                self.ready.clear();
                self.ready.push_back(end_frame(self.number, AnswerEnd::Error, &error));
            }
        }
    }

    /// Goes on until there is a frame, or nothing more.
    ///
    /// # Errors
    /// What the query failed with.
    async fn step(&mut self) -> Result<(), String> {
        match &mut self.phase {
            AnswerPhase::Asked { asking, sql } => {
                let sql = sql.clone()?;
                // As JSON, so that no SQL is taken for that.
                let body = json!({ "sql": sql }).to_string();
                let response = asking.ask(Method::POST, "/api/sql?format=arrow", body).await;
                if !response.status().is_success() {
                    return Err(error(response).await);
                }
                let missing = response.headers().get(missing::NAME).and_then(|missing| missing.to_str().ok());
                self.missing = missing.map(str::to_owned);
                let body = response.into_body().into_data_stream();
                self.phase = AnswerPhase::Rows {
                    body,
                    decoder: Box::new(StreamDecoder::new()),
                    bytes: Buffer::from(vec![0; 0]),
                };
                Ok(())
            }
            AnswerPhase::Rows { body, decoder, bytes } => {
                if bytes.is_empty() {
                    match body.next().await {
                        Some(chunk) => *bytes = Buffer::from(chunk.map_err(|error| told(&error))?),
                        None => {
                            decoder.finish().map_err(|_| {
                                "the answer broke off: the query failed after its first rows".to_owned()
                            })?;
                            self.end();
                            return Ok(());
                        }
                    }
                }
                let batch = decoder.decode(bytes).map_err(|error| format!("bug in telem: an answer: {error}"))?;
                let schema = decoder.schema();
                if let (None, Some(schema)) = (&self.columns, &schema) {
                    let (columns, frame) = SentColumns::new(self.number, schema)?;
                    self.columns = Some(columns);
                    self.ready.push_back(frame);
                }
                if let Some(batch) = batch {
                    self.rows(&batch)?;
                }
                Ok(())
            }
            AnswerPhase::Ended => Ok(()),
        }
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let Some(columns) = &self.columns else { return Ok(()) };
        let batch = columns.plain(batch)?;
        rows::frames(self.number, &batch, &mut self.ready)
    }

    fn end(&mut self) {
        let end = match &self.missing {
            Some(missing) => end_frame(self.number, AnswerEnd::WithoutNodes, missing),
            None => end_frame(self.number, AnswerEnd::Whole, ""),
        };
        self.ready.push_back(end);
        self.phase = AnswerPhase::Ended;
    }
}

/// An error with its causes, of which the first alone says little.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.dedup();
    texts.join(": ")
}
