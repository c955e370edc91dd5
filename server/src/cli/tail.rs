//! `telem tail`: prints the samples of metrics as they come.

mod cursor;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::Duration;

use arrow::array::Array;
use clap::Args;
use serde_json::{Map, Value as Json, json};
use telem_engine::{Clock, SystemClock, Timestamp};

use self::cursor::{TailCursor, TailSample};
use super::cells::{literal, numbers, texts, whole};
use super::glob::Glob;
use super::serve::stop_signals;
use super::times::When;
use super::watch::playing::{Playing, playing};
use super::watch::{self, NOW_US, WatchError, WatchKind, WatchTarget, time_literal};
use super::{CliFailure, times, units};

/// How long a server that does not answer any more is asked again.
const AWAY_MAX: Duration = Duration::from_secs(5);
/// Samples that are remembered, so that none is printed twice: some 100 MB.
const SEEN_MAX: usize = 1_000_000;
/// Most lines from before the start.
const LINES_MAX: usize = 1_000_000;
/// The last samples are looked for in this stretch before the end, then in longer ones.
const FIRST_STRETCH_US: i64 = 10_000_000;
const STRETCH_FACTOR: i64 = 8;
/// For new metrics that fit a pattern is looked once in so many times: their samples are late then, and not lost.
const RARELY: u32 = 5;
/// About so many samples are read at once where there are many.
const PART_SAMPLES: usize = 100_000;

/// Print the samples of metrics as they come
///
/// The last samples come first (--lines), then each new one, oldest first, every one once; one that was written late
/// is printed when it comes. Ends with Ctrl-C, with the job, or after --for. Of a saved database the last samples are
/// printed, or those of --since; --speed plays it as it was recorded, or faster.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct TailArgs {
    /// Names of metrics; * stands for any text, ? for one character
    #[arg(value_name = "METRIC", required = true)]
    metrics: Vec<Glob>,
    /// A server, or a saved job [default: the job's]
    ///
    /// http://HOST:PORT, unix:PATH of its socket, the connection file, or the directory of a database or a saved job.
    /// Without it the one in the environment: TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL.
    #[arg(long, value_name = "URL|FILE|DIR", alias = "url")]
    from: Option<String>,
    /// Only series with this tag; the value may have * and ?
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, Glob)>,
    /// Samples from before the start to print first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10, value_parser = lines, conflicts_with = "since")]
    lines: usize,
    /// Begin at this time: RFC 3339, seconds, or 5m-ago
    #[arg(long, value_name = "T", value_parser = times::when)]
    since: Option<When>,
    /// End after so long
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    lasting: Option<Duration>,
    /// Play a saved job from its beginning: 1 is as it was, 60 a minute a second
    #[arg(long, value_name = "N", value_parser = playing, conflicts_with = "lines")]
    speed: Option<Playing>,
    /// How often to look for new samples
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// How late samples may be written and still be printed
    #[arg(long, value_name = "TIME", default_value = "60s", hide_short_help = true, value_parser = units::duration)]
    late: Duration,
    /// Each sample as a line of JSON
    #[arg(long)]
    json: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem tail loss lr --for 2s                    # inside a job
  telem tail 'node_load*' --from http://127.0.0.1:4242 --tag host=n1 --for 1s
  telem tail loss --from ./telem-4711 --lines 100";

const EXAMPLES: &str = "\
Examples:
  telem tail loss --from http://127.0.0.1:4242 --for 1s
  telem tail 'train*' --from http://127.0.0.1:4242 --tag rank=0 --since 5m-ago --for 1s
  telem tail loss --from ./telem-4711 --lines 100
  telem tail loss --from ./telem-4711 --json | jq .value
  telem tail loss --from ./telem-4711 --speed 60
  ssh login1 telem tail loss --from http://n1:4242

Environment:
  TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL   the server; 'telem run' sets them for its job
  TELEM_TOKEN                                 the token, if the server needs one";

fn tag(text: &str) -> Result<(String, Glob), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            let value = value.parse().unwrap_or_else(|never: std::convert::Infallible| match never {});
            Ok((key.to_owned(), value))
        }
        _ => Err(format!("'{text}' is not a tag; write KEY=VALUE")),
    }
}

fn lines(text: &str) -> Result<usize, String> {
    let number: Option<usize> = text.parse().ok();
    let number = number.filter(|number| *number <= LINES_MAX);
    number.ok_or_else(|| format!("'{text}' is not a number of lines from 0 to {LINES_MAX}"))
}

/// # Errors
/// Failed where there is nothing to watch, or the server refuses.
pub fn run(args: &TailArgs) -> Result<(), CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliFailure::failed)?;
    runtime.block_on(async {
        let stop = stop_signals().map_err(CliFailure::failed)?;
        let lasting = async {
            match args.lasting {
                Some(lasting) => tokio::time::sleep(lasting).await,
                None => std::future::pending().await,
            }
        };
        let tail = async {
            let target = WatchTarget::find(args.from.as_deref())?;
            Tail { args, target, missing: None, names: BTreeSet::new(), asked: 0 }.follow().await
        };
        tokio::select! {
            done = tail => done,
            () = stop => Ok(()),
            () = lasting => Ok(()),
        }
    })
}

struct Tail<'a> {
    args: &'a TailArgs,
    target: WatchTarget,
    /// The nodes that were named as missing.
    missing: Option<String>,
    /// The metrics as they were found last, and how often they were needed.
    names: BTreeSet<String>,
    asked: u32,
}

/// The times of the metrics' samples.
#[derive(Clone, Copy, Debug)]
struct TailBounds {
    first_us: i64,
    last_us: i64,
}

impl Tail<'_> {
    async fn follow(&mut self) -> Result<(), CliFailure> {
        let kind = self.target.kind().await?;
        if let Some(playing) = self.args.speed {
            return self.play(playing).await;
        }
        let (mut cursor, first) = self.first(kind).await?;
        self.warn_of_missing();
        self.print(&first)?;
        if kind == WatchKind::Saved {
            return match self.bounds().await? {
                Some(_) => Ok(()),
                None => Err(self.no_metric()),
            };
        }
        let clock = SystemClock::new();
        let mut away_since = None;
        loop {
            tokio::time::sleep(self.args.interval).await;
            match self.read(cursor.floor_us(), None).await {
                Ok((read, now_us)) => {
                    away_since = None;
                    self.warn_of_missing();
                    let new = cursor.unseen(read, now_us);
                    self.print(&new)?;
                }
                Err(WatchError::Away(why)) => {
                    let since = *away_since.get_or_insert(clock.monotonic());
                    if clock.monotonic().saturating_sub(since) >= AWAY_MAX {
                        let label = self.target.label();
                        writeln!(io::stderr(), "{label} has ended, or cannot be reached any more: {why}")
                            .unwrap_or_default();
                        return Ok(());
                    }
                }
                Err(failed) => return Err(failed.into()),
            }
        }
    }

    /// Prints what there is in the order and, times the speed, at the distance in which it was measured.
    async fn play(&mut self, playing: Playing) -> Result<(), CliFailure> {
        let Some(TailBounds { first_us, last_us }) = self.bounds().await? else { return Err(self.no_metric()) };
        let since = self.args.since.map(|since| since.at(Timestamp::from_micros(last_us)).micros());
        let first_us = since.map_or(first_us, |since| since.max(first_us));
        let clock = SystemClock::new();
        let mut from_us = first_us;
        while from_us <= last_us {
            let until_us = playing.time_us(first_us, clock.monotonic()).min(last_us);
            let (mut read, _) = self.read(from_us, Some(until_us)).await?;
            read.sort_by(TailSample::by_time);
            self.print(&read)?;
            from_us = until_us.saturating_add(1);
            if from_us <= last_us {
                tokio::time::sleep(self.args.interval).await;
            }
        }
        Ok(())
    }

    fn no_metric(&self) -> CliFailure {
        let place = self.target.label();
        let names: Vec<String> = self.args.metrics.iter().map(Glob::to_string).collect();
        let tags: Vec<String> = self.args.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let of = if tags.is_empty() { String::new() } else { format!(" with {}", tags.join(" and ")) };
        CliFailure::Failed(format!("{place} has no sample of {}{of}; `telem info` lists metrics", names.join(", ")))
    }

    /// What is printed at once, and where to go on.
    async fn first(&mut self, kind: WatchKind) -> Result<(TailCursor, Vec<TailSample>), CliFailure> {
        let late_us = micros(self.args.late);
        let bounds = self.bounds().await?;
        let now_us = match kind {
            WatchKind::Running => self.target.now_us().await?,
            WatchKind::Saved => bounds.map_or(0, |bounds| bounds.last_us),
        };
        if let Some(since) = self.args.since {
            let since_us = since.at(Timestamp::from_micros(now_us)).micros();
            let mut cursor = TailCursor::new(since_us, late_us, SEEN_MAX);
            self.read_up(&mut cursor, since_us, bounds).await?;
            return Ok((cursor, Vec::new()));
        }
        let Some(TailBounds { first_us, last_us }) = bounds else {
            return Ok((TailCursor::new(i64::MIN, late_us, SEEN_MAX), Vec::new()));
        };
        let mut stretch_us = FIRST_STRETCH_US.max(late_us);
        loop {
            let from_us = last_us.min(now_us).saturating_sub(stretch_us);
            let (read, now_us) = self.read(from_us, None).await?;
            if read.len() >= self.args.lines || from_us <= first_us {
                let mut cursor = TailCursor::new(from_us, late_us, SEEN_MAX);
                let mut first = cursor.unseen(read, now_us);
                first.drain(..first.len().saturating_sub(self.args.lines));
                return Ok((cursor, first));
            }
            stretch_us = stretch_us.saturating_mul(STRETCH_FACTOR);
        }
    }

    /// Once for the same nodes.
    fn warn_of_missing(&mut self) {
        let missing = self.target.missing().map(str::to_owned);
        if let Some(missing) = missing.as_ref().filter(|_| missing != self.missing) {
            writeln!(io::stderr(), "warning: nodes are missing from the answer: {missing}").unwrap_or_default();
        }
        self.missing = missing;
    }

    /// Prints what there is from a time on: in parts, because all of it may not fit the memory.
    async fn read_up(
        &mut self,
        cursor: &mut TailCursor,
        since_us: i64,
        bounds: Option<TailBounds>,
    ) -> Result<(), CliFailure> {
        let Some(TailBounds { first_us, last_us }) = bounds else { return Ok(()) };
        let (mut from_us, mut stretch_us) = (since_us.max(first_us), FIRST_STRETCH_US);
        while from_us <= last_us {
            let until_us = from_us.saturating_add(stretch_us).min(last_us);
            let (read, now_us) = self.read(from_us, Some(until_us)).await?;
            if read.len() < PART_SAMPLES / STRETCH_FACTOR as usize {
                stretch_us = stretch_us.saturating_mul(STRETCH_FACTOR);
            } else if read.len() > PART_SAMPLES {
                stretch_us = (stretch_us / STRETCH_FACTOR).max(1);
            }
            let new = cursor.unseen(read, now_us);
            self.print(&new)?;
            from_us = until_us.saturating_add(1);
        }
        Ok(())
    }

    async fn bounds(&mut self) -> Result<Option<TailBounds>, WatchError> {
        let Some(which) = self.which().await? else { return Ok(None) };
        let sql =
            format!("SELECT CAST(min(first_ts) AS BIGINT), CAST(max(last_ts) AS BIGINT) FROM series WHERE {which}");
        for batch in self.target.ask(&sql).await? {
            let (first, last) = (whole(&batch, 0)?, whole(&batch, 1)?);
            if batch.num_rows() > 0 && first.is_valid(0) && last.is_valid(0) {
                return Ok(Some(TailBounds { first_us: first.value(0), last_us: last.value(0) }));
            }
        }
        Ok(None)
    }

    /// The condition for the metrics and tags; `None` where there is no such metric yet.
    async fn which(&mut self) -> Result<Option<String>, WatchError> {
        let patterns = &self.args.metrics;
        let is_plain = |glob: &Glob| !glob.to_string().contains(['*', '?']);
        let mut names: BTreeSet<String> = patterns.iter().filter(|glob| is_plain(glob)).map(Glob::to_string).collect();
        // Before their first samples are too late.
        let is_soon = self.args.interval.saturating_mul(2 * RARELY) < self.args.late;
        let is_due = !is_soon || self.asked.is_multiple_of(RARELY);
        self.asked = self.asked.wrapping_add(1);
        if !is_due {
            names.clone_from(&self.names);
        } else if !patterns.iter().all(is_plain) {
            for batch in self.target.ask("SELECT DISTINCT metric FROM metrics").await? {
                let known = texts(&batch, 0)?;
                let known = known.iter().flatten();
                names.extend(known.filter(|name| patterns.iter().any(|glob| glob.matches(name))).map(str::to_owned));
            }
        }
        if names.is_empty() {
            self.asked = 0;
            return Ok(None);
        }
        self.names.clone_from(&names);
        let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
        let mut which = format!("metric IN ({})", names.join(", "));
        for (key, value) in self.args.tags.iter().filter(|(_, value)| is_plain(value)) {
            which.push_str(&format!(" AND tags[{}] = {}", literal(key), literal(&value.to_string())));
        }
        Ok(Some(which))
    }

    /// The samples from a time on, up to and with another, and the server's time.
    async fn read(&mut self, from_us: i64, until_us: Option<i64>) -> Result<(Vec<TailSample>, i64), WatchError> {
        let mut now_us = i64::MAX;
        let mut samples = Vec::new();
        let Some(which) = self.which().await? else { return Ok((samples, now_us)) };
        let until = until_us.map_or_else(String::new, |until| format!(" AND ts <= {}", time_literal(until)));
        let sql = format!(
            "SELECT metric, tags, CAST(ts AS BIGINT), value, value_int, {NOW_US} \
             FROM samples WHERE {which} AND ts >= {}{until}",
            time_literal(from_us)
        );
        for batch in self.target.ask(&sql).await? {
            let (metrics, tags) = (texts(&batch, 0)?, watch::tags(&batch, 1)?);
            let (times, values) = (whole(&batch, 2)?, numbers(&batch, 3)?);
            let (wholes, nows) = (whole(&batch, 4)?, whole(&batch, 5)?);
            for (row, tags) in tags.into_iter().enumerate() {
                now_us = now_us.min(nows.value(row));
                if !self.is_wanted(&tags) {
                    continue;
                }
                samples.push(TailSample {
                    micros: times.value(row),
                    metric: metrics.value(row).to_owned(),
                    tags,
                    value: values.value(row),
                    whole: wholes.is_valid(row).then(|| wholes.value(row)),
                });
            }
        }
        Ok((samples, now_us))
    }

    fn is_wanted(&self, tags: &[(String, String)]) -> bool {
        let has = |key: &str, value: &Glob| tags.iter().any(|(of, is)| of == key && value.matches(is));
        self.args.tags.iter().all(|(key, value)| has(key, value))
    }

    fn print(&self, samples: &[TailSample]) -> Result<(), CliFailure> {
        let mut out = io::stdout().lock();
        for sample in samples {
            writeln!(out, "{}", if self.args.json { as_json(sample) } else { as_text(sample) })?;
        }
        Ok(out.flush()?)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// `2026-11-23T06:46:52.500Z loss{rank=0} 0.25`
fn as_text(sample: &TailSample) -> String {
    let TailSample { metric, tags, .. } = sample;
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
    let value = match sample.whole {
        Some(whole) => whole.to_string(),
        None => value(sample.value),
    };
    format!("{} {metric}{tags} {value}", time(sample.micros))
}

/// All digits of it, and no more.
fn value(value: f64) -> String {
    if value.is_finite() && (value == 0.0 || (1e-6..1e16).contains(&value.abs())) {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}

fn as_json(sample: &TailSample) -> String {
    let tags: Map<String, Json> =
        sample.tags.iter().map(|(key, value)| (key.clone(), Json::from(value.clone()))).collect();
    let value = sample.whole.map_or_else(|| json!(sample.value), Json::from);
    json!({"time": time(sample.micros), "metric": sample.metric, "tags": tags, "value": value}).to_string()
}

/// RFC 3339, to the millisecond, or to the microsecond where there are any.
fn time(micros: i64) -> String {
    let format = if micros % 1_000 == 0 { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.6fZ" };
    let time = chrono::DateTime::from_timestamp_micros(micros);
    time.map_or_else(|| format!("{micros}us"), |time| time.format(format).to_string())
}
