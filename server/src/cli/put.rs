//! `telem put`: sends samples from a shell, one from the command line or many from stdin.
//!
//! Only the form is checked here, line by line. The server checks names and values, and its errors are reported with
//! the number of the line. Lines are sent as they come: a batch is what arrived within a moment.

mod line;
mod service;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use clap::Args;
use telem_engine::{Clock, SystemClock, Timestamp};

use self::line::{PutLine, PutSample};
use self::service::{PutTarget, Refused, SendError};
use super::{CliFailure, times, units};
use crate::info::counted;

/// Most samples of one request.
const BATCH_SAMPLES_MAX: usize = 5_000;
/// And their bytes, as they were written.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long the first line of a batch waits for others.
const BATCH_WAIT: Duration = Duration::from_millis(100);
/// A longer line is refused.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Lines that were read and wait for their batch.
const LINES_WAITING_MAX: usize = 1_024;
/// Series whose times are remembered where `--time` gives all the same one; then it is a later one for all.
const SERIES_MAX: usize = 100_000;
/// How long to wait before a server that is away is tried again.
const AWAY_WAIT: Duration = Duration::from_millis(500);
/// Bad lines that are named; the others are counted.
const NAMED_MAX: usize = 100;

/// Send samples to a running telem from a shell
///
/// Finds the server as every process of a job does: by TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL. Adds the tag
/// host=NODE unless one is given, and over the job's socket rank=N if a launcher set one. 'telem put -' reads lines of
/// the same form from stdin, and of OpenTSDB's: put METRIC TIME VALUE TAG=VALUE...; empty lines and those that start
/// with # are skipped. Exits with 1 if any sample was refused; the others are stored. A server that hangs is given up
/// after 20 s. Samples without a time of their own never overwrite each other, not even with --time: the next one is
/// stored a microsecond later. Of two lines with the same metric, tags and time the later replaces the earlier.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct PutArgs {
    /// The metric, or '-' for lines from stdin
    metric: String,
    /// A number: 17, -4.5, 1e-3, NaN, inf or -inf
    // A word of its own for clap: so that it may begin with a hyphen, and options may follow it.
    #[arg(allow_hyphen_values = true)]
    value: Option<String>,
    /// Names and values of letters, digits and - _ . /
    #[arg(value_name = "TAG=VALUE")]
    tags: Vec<String>,
    /// Time of the sample: RFC 3339, seconds, or 5m-ago [default: now]
    ///
    /// Also a number with ms or us.
    #[arg(long, value_name = "T", value_parser = times::when)]
    time: Option<times::When>,
    /// The server: http://HOST:PORT or unix:PATH [default: the job's]
    ///
    /// Without it the one in the environment: TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How long lines from stdin wait for a server that is gone
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
    wait: Duration,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem put queue_length 17                                # inside a job
  telem put stage.seconds 12.5 stage=mesh run=3
  telem put temperature -4.5 --url http://127.0.0.1:4242   # from elsewhere";

const EXAMPLES: &str = "\
Examples:
  telem put queue_length 17
  telem put stage.seconds 12.5 stage=mesh run=3
  telem put checkpoint_bytes 1073741824 --time 5m-ago
  telem put temperature -4.5 --url http://127.0.0.1:4242
  nvidia-smi dmon | awk '/^ / {print \"gpu_watts\", $2, \"gpu=\" $1; fflush()}' | telem put -

Environment:
  TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL   the server; 'telem run' sets them for its job
  TELEM_TOKEN                                 the token, if the server needs one";

/// # Errors
/// Usage for words that make no sample; Failed without a server; BadNews when the server refused any.
pub fn run(args: PutArgs) -> Result<(), CliFailure> {
    let service = PutTarget::find(args.url.as_deref())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    let mut put = Put {
        service,
        url: args.url,
        wait: args.wait,
        time: args.time,
        clock: SystemClock::new(),
        last: Timestamp::MIN,
        said: SeriesTimes::default(),
        bad: RejectedLines::default(),
    };
    let words: Vec<&str> =
        [&args.metric].into_iter().chain(&args.value).chain(&args.tags).map(String::as_str).collect();
    if words == ["-"] {
        return put.lines(&runtime, read_lines());
    }
    let PutLine::Sample(sample) = line::of_words(&words).map_err(CliFailure::Usage)? else {
        return Err(CliFailure::usage("no sample: write METRIC VALUE [TAG=VALUE...]"));
    };
    let sample = put.timed(0, sample);
    let refused = runtime.block_on(put.service.send(&[sample]));
    let refused = refused.map_err(|error| CliFailure::Failed(error.into_message()))?;
    match refused.reasons.first() {
        None if refused.count == 0 => Ok(()),
        Some((_, reason)) => Err(CliFailure::failed(format!("refused: {reason}"))),
        None => Err(CliFailure::failed("refused, and the server gives no reason")),
    }
}

/// A sample and the line it stood in.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedSample {
    pub line: usize,
    pub sample: PutSample,
    pub time: Timestamp,
}

/// Sends samples, and remembers what went wrong.
struct Put {
    service: PutTarget,
    /// Where it was looked for.
    url: Option<String>,
    wait: Duration,
    /// For samples that bring none.
    time: Option<times::When>,
    clock: SystemClock,
    /// The time that was given last to a sample without one.
    last: Timestamp,
    said: SeriesTimes,
    bad: RejectedLines,
}

impl Put {
    /// A sample without a time has that of its reading, each a microsecond after the one before at least, so that none
    /// overwrites another.
    fn timed(&mut self, line: usize, sample: PutSample) -> NumberedSample {
        let now = self.clock.now();
        let time = match (sample.time, self.time) {
            (Some(own), _) => own.at(now),
            (None, Some(given)) => self.said.free(&sample, given.at(now)),
            (None, None) => {
                self.last = now.max(self.last.saturating_add_micros(1));
                self.last
            }
        };
        NumberedSample { line, sample, time }
    }

    fn lines(mut self, runtime: &tokio::runtime::Runtime, lines: Receiver<Read>) -> Result<(), CliFailure> {
        let (mut number, mut stored, mut ended) = (0, 0, false);
        while !ended {
            let (read, end) = batch_of(&lines, &self.clock);
            ended = end;
            let mut samples = Vec::new();
            for read in read {
                number += 1;
                match read.and_then(|text| line::parse(&text)) {
                    Ok(PutLine::Sample(sample)) => samples.push(self.timed(number, sample)),
                    Ok(PutLine::Nothing) => {}
                    Err(reason) => self.bad.add(number, &reason),
                }
            }
            if samples.is_empty() {
                continue;
            }
            let refused = self.send(runtime, &samples).map_err(|error| {
                let first = samples.first().map_or(0, |sample| sample.line);
                CliFailure::Failed(format!("{error}; {}, nothing from line {first} on", were_stored(stored)))
            })?;
            stored += samples.len() - refused.count.min(samples.len());
            for (line, reason) in &refused.reasons {
                let sample = samples.iter().find(|sample| sample.line == *line).map(|sample| &sample.sample);
                let shown = sample.map_or(String::new(), |sample| format!("{} {}: ", sample.metric, sample.value));
                self.bad.add(*line, &format!("{shown}{reason}"));
            }
            self.bad.count += refused.count - refused.reasons.len().min(refused.count);
        }
        self.bad.tell(stored)
    }

    /// Sends until the server has answered, or has been away for as long as was said. Samples that are sent again have the
    /// same times: they are the same samples.
    fn send(&mut self, runtime: &tokio::runtime::Runtime, samples: &[NumberedSample]) -> Result<Refused, String> {
        let until = self.clock.monotonic() + self.wait;
        let mut is_told = false;
        loop {
            match runtime.block_on(self.service.send(samples)) {
                Err(SendError::Away(why)) if self.clock.monotonic() < until => {
                    if !is_told {
                        let wait = self.wait.as_secs_f64();
                        // There is nowhere to say that stderr is closed.
                        writeln!(io::stderr(), "telem: {why}; waiting for it, up to {wait} s").unwrap_or_default();
                        is_told = true;
                    }
                    // Made inside: a timer belongs to a runtime.
                    runtime.block_on(async { tokio::time::sleep(AWAY_WAIT).await });
                    // One that was started again has another port and another token.
                    if let Ok(found) = PutTarget::find(self.url.as_deref()) {
                        self.service = found;
                    }
                }
                outcome => return outcome.map_err(SendError::into_message),
            }
        }
    }
}

/// The times of samples that have that of `--time`.
#[derive(Debug, Default)]
struct SeriesTimes {
    /// The latest of each series, by its names.
    last: HashMap<String, Timestamp>,
    /// Everything before it may be taken.
    floor: Option<Timestamp>,
}

impl SeriesTimes {
    /// `time`, or as little later as keeps it apart from those that `sample`'s series has already.
    fn free(&mut self, sample: &PutSample, time: Timestamp) -> Timestamp {
        let mut words: Vec<String> = sample.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.sort();
        words.insert(0, sample.metric.clone());
        let series = words.join(" ");
        if self.last.len() >= SERIES_MAX && !self.last.contains_key(&series) {
            self.floor = self.last.drain().map(|(_, last)| last.saturating_add_micros(1)).max();
        }
        let after = self.last.get(&series).map(|last| last.saturating_add_micros(1));
        let free = [after, self.floor].into_iter().flatten().fold(time, Timestamp::max);
        self.last.insert(series, free);
        free
    }
}

/// Lines that did not become stored samples.
#[derive(Debug, Default)]
struct RejectedLines {
    count: usize,
    named: usize,
}

impl RejectedLines {
    fn add(&mut self, line: usize, reason: &str) {
        self.count += 1;
        if self.named < NAMED_MAX {
            self.named += 1;
            // There is nowhere to say that stderr is closed.
            writeln!(io::stderr(), "line {line}: {reason}").unwrap_or_default();
        }
    }

    fn tell(&self, stored: usize) -> Result<(), CliFailure> {
        if self.count == 0 {
            return Ok(());
        }
        let unnamed = self.count - self.named;
        let more = if unnamed > 0 { format!(" ({unnamed} of them not named above)") } else { String::new() };
        let were = if self.count == 1 { "was" } else { "were" };
        let lines = counted(self.count as u64, "line");
        Err(CliFailure::Failed(format!("{lines} {were} refused{more}, {}", were_stored(stored))))
    }
}

fn were_stored(samples: usize) -> String {
    format!("{} {} stored", counted(samples as u64, "sample"), if samples == 1 { "was" } else { "were" })
}

/// A line as it was read, or why it cannot be.
type Read = Result<String, String>;

/// Reads stdin on a thread of its own, which ends with stdin or with the receiver.
fn read_lines() -> Receiver<Read> {
    let (send, lines) = sync_channel(LINES_WAITING_MAX);
    thread::spawn(move || read_into(&mut io::stdin().lock(), &send));
    lines
}

fn read_into(input: &mut impl BufRead, send: &SyncSender<Read>) {
    let mut line = Vec::new();
    loop {
        let read = match next_line(input, &mut line) {
            Ok(0) => return,
            Ok(bytes) if bytes > LINE_BYTES_MAX => Err(format!("{bytes} bytes; a line has at most {LINE_BYTES_MAX}")),
            Ok(_) => String::from_utf8(line.clone()).map_err(|error| format!("no UTF-8: {error}")),
            Err(error) => Err(format!("stdin cannot be read: {error}")),
        };
        let is_broken = read.as_ref().is_err_and(|why| why.starts_with("stdin"));
        if send.send(read).is_err() || is_broken {
            return;
        }
    }
}

/// The next line into `line`, of which no more than the most that a line may have is kept; how long it is, 0 at the end.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    line.clear();
    let mut bytes = 0;
    loop {
        let part = match input.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = part.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(part.len());
        if line.len() + taken <= LINE_BYTES_MAX {
            line.extend_from_slice(&part[..taken]);
        }
        input.consume(taken);
        bytes += taken;
        if end.is_some() || taken == 0 {
            return Ok(bytes);
        }
    }
}

/// The lines that came within a moment, and whether those were the last.
fn batch_of(lines: &Receiver<Read>, clock: &dyn Clock) -> (Vec<Read>, bool) {
    let Ok(first) = lines.recv() else { return (Vec::new(), true) };
    let until = clock.monotonic() + BATCH_WAIT;
    let mut bytes = first.as_ref().map_or(0, String::len);
    let mut batch = vec![first];
    while batch.len() < BATCH_SAMPLES_MAX && bytes < BATCH_BYTES_MAX {
        match lines.recv_timeout(until.saturating_sub(clock.monotonic())) {
            Ok(line) => {
                bytes += line.as_ref().map_or(0, String::len);
                batch.push(line);
            }
            Err(RecvTimeoutError::Timeout) => return (batch, false),
            Err(RecvTimeoutError::Disconnected) => return (batch, true),
        }
    }
    (batch, false)
}
