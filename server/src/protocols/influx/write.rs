//! `POST /write`, `POST /api/v2/write` and `POST /api/v3/write_lp`: line protocol in. Good lines are stored (unless the
//! server's level says to store nothing), and each bad one is reported with its reason.

use std::sync::Arc;

use axum::extract::{Request, State as Of};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value as Json, json};
use telem_engine::Durability;
use telem_ingest::accept::lines::{AcceptedLines, LineReason, LineReject, LineRules};
use telem_ingest::decode::line::LinePrecision;

use super::answer::{Dialect, InfluxError, respond};
use crate::http::{Params, body};
use crate::slots;
use crate::state::State;

/// What users send is of this level: a server of level 0 checks it, says that all is well, and keeps nothing of it.
const LEVEL: u8 = 1;
/// The parameter of a request whose samples get no tags from their connection: the client knows better.
const AS_SENT: &str = "as_sent";
/// Most bad lines that an answer names; the others are counted.
pub(crate) const LISTED_MAX: usize = 100;
/// How much of a bad line an answer of 3 shows.
const SHOWN_BYTES_MAX: usize = 512;

pub async fn v1(state: Of<Arc<State>>, request: Request) -> Response {
    answer(state, Dialect::V1, request).await
}

pub async fn v2(state: Of<Arc<State>>, request: Request) -> Response {
    answer(state, Dialect::V2, request).await
}

pub async fn v3(state: Of<Arc<State>>, request: Request) -> Response {
    answer(state, Dialect::V3, request).await
}

async fn answer(Of(state): Of<Arc<State>>, dialect: Dialect, request: Request) -> Response {
    match write(&state, dialect, request).await {
        Ok(()) => respond(StatusCode::NO_CONTENT, None),
        Err(failure) => failure.respond(dialect),
    }
}

/// What a request wants done with its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WriteWishes {
    precision: LinePrecision,
    durability: Durability,
    /// What becomes of the good lines when others are bad.
    rest: GoodLines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GoodLines {
    Stored,
    RefusedWithTheBad,
}

impl WriteWishes {
    fn of(params: &Params, dialect: Dialect) -> Result<Self, InfluxError> {
        let synced = match dialect {
            Dialect::V1 | Dialect::V2 => false,
            // There the answer waits for the disk unless the request says that it need not.
            Dialect::V3 => !truth(params, "no_sync")?.unwrap_or(false),
        };
        let durability = if synced || params.has("sync") { Durability::Synced } else { Durability::Buffered };
        let partial = match dialect {
            Dialect::V1 | Dialect::V2 => true,
            Dialect::V3 => truth(params, "accept_partial")?.unwrap_or(true),
        };
        let rest = if partial { GoodLines::Stored } else { GoodLines::RefusedWithTheBad };
        Ok(Self { precision: precision(params, dialect)?, durability, rest })
    }
}

fn truth(params: &Params, name: &str) -> Result<Option<bool>, InfluxError> {
    match params.get(name) {
        None | Some("") => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(other) => {
            let what = format!("invalid {name} '{other}': expected true or false");
            Err(InfluxError::new(StatusCode::BAD_REQUEST, what))
        }
    }
}

fn precision(params: &Params, dialect: Dialect) -> Result<LinePrecision, InfluxError> {
    let name = params.get("precision").filter(|name| !name.is_empty());
    let (known, expected) = match (dialect, name) {
        (Dialect::V3, None) => return Ok(LinePrecision::Guessed),
        (Dialect::V1 | Dialect::V2, None) => return Ok(LinePrecision::default()),
        (Dialect::V3, Some(name)) => (of_v3(name), "auto, nanosecond, microsecond, millisecond or second"),
        (Dialect::V1 | Dialect::V2, Some(name)) => (LinePrecision::by_name(name), "ns, us, ms, s, m or h"),
    };
    known.ok_or_else(|| {
        let what = format!("invalid precision '{}': expected {expected}", name.unwrap_or_default());
        InfluxError::new(StatusCode::BAD_REQUEST, what)
    })
}

/// The names of 3, which takes short ones too.
fn of_v3(name: &str) -> Option<LinePrecision> {
    match name {
        "auto" => Some(LinePrecision::Guessed),
        "nanosecond" => Some(LinePrecision::Nanos),
        "microsecond" => Some(LinePrecision::Micros),
        "millisecond" => Some(LinePrecision::Millis),
        "second" => Some(LinePrecision::Seconds),
        short => {
            LinePrecision::by_name(short).filter(|unit| !matches!(unit, LinePrecision::Minutes | LinePrecision::Hours))
        }
    }
}

async fn write(state: &State, dialect: Dialect, request: Request) -> Result<(), InfluxError> {
    let Some(writer) = state.writer.clone() else {
        return Err(InfluxError::new(state.refusal.status(), state.refusal.message()));
    };
    let params = Params::parse(request.uri().query().unwrap_or_default());
    let wishes = WriteWishes::of(&params, dialect)?;
    let rules = LineRules { precision: wishes.precision, keep: state.level >= LEVEL };
    let tags = slots::tags_of(&request).await;
    let tags = if params.has(AS_SENT) { tags.of_slot_alone() } else { tags };
    let decoder = writer.clone();
    let decode = move |body: &[u8]| {
        let accepted = decoder.accept_lines(&tags, rules, body);
        let data = if dialect == Dialect::V3 { bad_lines(body, &accepted.rejects) } else { Vec::new() };
        (accepted, data)
    };
    let (accepted, data) = body::read_and_decode(request, &state.limits.bodies, decode).await?;
    let AcceptedLines { batch, good, rejects, rejected, .. } = accepted;
    if rejected == 0 || wishes.rest == GoodLines::Stored {
        writer.submit(batch, wishes.durability).await?;
    }
    if rejected == 0 {
        return Ok(());
    }
    let failure = match dialect {
        Dialect::V1 | Dialect::V2 => in_one_text(good, &rejects, rejected),
        Dialect::V3 => line_by_line(wishes.rest, data, rejected),
    };
    let line = rejects.first().map(|reject| reject.line);
    Err(InfluxError { line, ..failure })
}

fn in_one_text(good: usize, rejects: &[LineReject], rejected: usize) -> InfluxError {
    let mut told: Vec<String> =
        rejects.iter().take(LISTED_MAX).map(|reject| format!("line {}: {}", reject.line, reject.reason)).collect();
    if rejected > told.len() {
        told.push(format!("and {} more", rejected - told.len()));
    }
    let told = told.join("\n");
    let message = if good == 0 { told } else { format!("partial write: {told} dropped={rejected}") };
    InfluxError::new(StatusCode::BAD_REQUEST, message)
}

/// Clients of 3 look for these words.
fn line_by_line(rest: GoodLines, mut data: Vec<Json>, rejected: usize) -> InfluxError {
    let listed = data.len();
    let (words, data) = match rest {
        GoodLines::Stored => ("partial write of line protocol occurred", Json::from(data)),
        GoodLines::RefusedWithTheBad => {
            let first = if data.is_empty() { Json::Null } else { data.swap_remove(0) };
            ("parsing failed for write_lp endpoint", first)
        }
    };
    let message = match rest {
        GoodLines::Stored if rejected > listed => format!("{words}; {listed} of {rejected} bad lines are listed"),
        _ => words.to_owned(),
    };
    InfluxError { data: Some(Box::new(data)), ..InfluxError::new(StatusCode::BAD_REQUEST, message) }
}

/// The bad lines of `body` as 3 tells them.
fn bad_lines(body: &[u8], rejects: &[LineReject]) -> Vec<Json> {
    let mut lines = body.split(|byte| *byte == b'\n').zip(1..).peekable();
    let told = rejects.iter().take(LISTED_MAX).map(|reject| {
        // Rejects come in the order of the lines; one line may have several.
        while lines.next_if(|(_, number)| *number < reject.line).is_some() {}
        let line = lines.peek().map_or(b"".as_slice(), |(line, _)| line).trim_ascii_end();
        let message = match &reject.reason {
            LineReason::Broken { error, .. } => error.to_string(),
            other => other.to_string(),
        };
        json!({
            "original_line": String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES_MAX)]),
            "line_number": reject.line,
            "error_message": message,
        })
    });
    told.collect()
}
