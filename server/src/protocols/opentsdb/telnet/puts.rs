//! Runs of `put` lines: one batch each, through the same checks and the same writer as a put body.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;
use telem_engine::{Durability, ErrorKind, SampleBatch};
use telem_ingest::accept::puts::AcceptedPuts;
use telem_ingest::decode::opentsdb::telnet::{self, PutError, TelnetRules};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::{WriteError, Writer};
use tokio::time::Instant;

use super::super::put::LEVEL;
use super::{Telnet, lines};
use crate::state::Refusal;

/// How long a batch rests that met a full queue.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// How many bytes of `lines` are puts, before the first line that is not a put or too long.
pub fn run(lines: &[u8], line_bytes_max: usize) -> usize {
    let mut rest = lines;
    while !rest.is_empty() {
        let (line, others) = lines::first(rest);
        if line.len() > line_bytes_max || lines::command(line) != b"put" {
            break;
        }
        rest = others;
    }
    lines.len() - rest.len()
}

/// What became of a run.
#[derive(Debug, Default)]
struct DecodedLines {
    batch: SampleBatch,
    puts: u64,
    /// By the number of its line.
    errors: Vec<(usize, String)>,
    invalid_values: u64,
}

/// Stores the samples of a run, and answers the bad lines.
pub async fn store(telnet: &Telnet, tags: &DefaultTags, run: &[u8], answers: &mut BytesMut) {
    let text = String::from_utf8_lossy(run);
    let DecodedLines { batch, puts, errors, invalid_values } = sort(telnet, tags, &text);
    let counters = telnet.counters();
    counters.lines.fetch_add(puts, Ordering::Relaxed);
    counters.puts.fetch_add(puts, Ordering::Relaxed);
    counters.invalid_values.fetch_add(invalid_values, Ordering::Relaxed);
    counters.illegal_arguments.fetch_add(errors.len() as u64 - invalid_values, Ordering::Relaxed);
    for (_, error) in &errors {
        tell(answers, error);
    }
    let samples = batch.len();
    if let (Some(writer), false) = (&telnet.state().writer, batch.is_empty())
        && let Err(error) = write(writer, batch, telnet.limits().busy_timeout).await
    {
        counters.not_written.fetch_add(samples as u64, Ordering::Relaxed);
        tell(answers, &format!("storage error: {samples} data points of the last lines are not stored: {error}"));
    }
}

fn tell(answers: &mut BytesMut, error: &str) {
    answers.extend_from_slice(b"put: ");
    answers.extend_from_slice(error.as_bytes());
    answers.extend_from_slice(b"\n");
}

/// Work for the processor, but no more than one read brought.
fn sort(telnet: &Telnet, tags: &DefaultTags, run: &str) -> DecodedLines {
    let lines: Vec<&str> = run.lines().collect();
    let mut sorted = DecodedLines { puts: lines.len() as u64, ..DecodedLines::default() };
    let Some(writer) = &telnet.state().writer else {
        let refusal = telnet.state().refusal;
        let what = match refusal {
            Refusal::Saved => format!("illegal argument: {}", refusal.message()),
            Refusal::NoRoom => refusal.message().to_owned(),
        };
        sorted.errors = (0..lines.len()).map(|at| (at, what.clone())).collect();
        return sorted;
    };
    let rules: TelnetRules = telnet.rules();
    let numbered = lines.iter().copied().enumerate();
    let AcceptedPuts { accepted, refused } = if telnet.state().level < LEVEL {
        let refused = numbered.filter_map(|(at, line)| Some((at, telnet::put(line, &rules).err()?))).collect();
        AcceptedPuts { refused, ..AcceptedPuts::default() }
    } else {
        writer.accept_puts(tags, &rules, numbered)
    };
    let invalid = refused.iter().filter(|(_, error)| matches!(error, PutError::NotANumber(_)));
    sorted.invalid_values = invalid.count() as u64;
    let mut errors: Vec<(usize, String)> = refused.iter().map(|(at, error)| (*at, error.to_string())).collect();
    errors.extend(accepted.rejects.iter().map(|one| (one.index, format!("illegal argument: {}", one.reason))));
    errors.sort_by_key(|(at, _)| *at);
    let told = accepted.rejects.len();
    if accepted.rejected > told {
        let more = format!("illegal argument: {} more lines are not stored", accepted.rejected - told);
        errors.push((lines.len(), more));
    }
    (sorted.batch, sorted.errors) = (accepted.batch, errors);
    sorted
}

/// Nobody would send these again, so they wait where the writer is busy, and with them whoever sends more.
async fn write(writer: &Writer, batch: SampleBatch, patience: Duration) -> Result<(), WriteError> {
    let deadline = Instant::now() + patience;
    loop {
        let written = writer.submit(batch.clone(), Durability::Buffered).await;
        let busy = matches!(&written, Err(error) if error.kind() == ErrorKind::Busy);
        if !busy || Instant::now() >= deadline {
            return written;
        }
        tokio::time::sleep(BUSY_PAUSE).await;
    }
}
