//! One connection: reads frames, stores their samples in order, and acknowledges them.
//!
//! Reading, writing and waiting for the writer go on side by side. What bounds a connection are the batches that wait to
//! be appended and the answers that its client did not take: with too many of either nothing more is read of it, and the
//! client's `send` waits.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;

use futures::StreamExt;
use telem_engine::ErrorKind;
use telem_engine::series::TAGS_MAX;
use telem_ingest::accept::frames::{AcceptedFrame, BadFrame};
use telem_ingest::decode::frames::{self, ClientFrame, FrameHead, SampleBlocks, SeriesFrame};
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::writer::{ClientProcess, PendingAppend, WriteError};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::ask::{ClientRequests, QueryFrames};
use super::bounds::{FAREWELL_TIMEOUT, LAST_BYTES_MAX, SILENCE};
use super::describe::{self, SaidOfMetric};
use super::inbox::{ArrivedMessage, FrameInbox, WholeFrame};
use super::outbox::{AnswerEnd, NO_SERIES, Outbox, Welcome};
use super::refusals::FrameRefusals;
use super::series::{ConnectionSeries, LaterTags, SeriesRules};
use super::{ClientProtocol, Farewell, RefusalCode};
use crate::protocol::{ByteStream, FrameClient};
use crate::slots::{JobCaller, ProcessMark};

/// Series of a frame that are looked up before other connections get their turn.
const SERIES_AT_ONCE: usize = 512;

/// Speaks with a client until one of both has enough. `place` is its place among the connections.
pub async fn hold(protocol: &ClientProtocol, client: FrameClient, place: OwnedSemaphorePermit) {
    let FrameClient { stream, extensions, http, mut stopping } = client;
    let (state, limits) = (&protocol.state, &protocol.limits);
    let tags = extensions.get::<DefaultTags>().cloned().unwrap_or_default();
    let caller = extensions.get::<JobCaller>().filter(|caller| !caller.is_servers_own()).cloned();
    let process = match extensions.get::<ProcessMark>() {
        Some(mark) => ClientProcess::Known { pid: mark.pid(), started: mark.started() },
        None => ClientProcess::Unknown(protocol.connection_number()),
    };
    let tags_max = state.writer.as_ref().map_or(TAGS_MAX, |writer| writer.limits().tags_max);
    // Without a writer names are looked at, and given no ids.
    let later_tags = match caller.is_some() || state.writer.is_none() {
        true => LaterTags::MayDiffer,
        false => LaterTags::TheSame,
    };
    let rules = SeriesRules { tags_max, level: state.level, later_tags };
    let names = protocol.names.clone();
    let series = ConnectionSeries::new(state.db.clone(), rules, tags.clone(), names);
    let (reader, writer) = tokio::io::split(stream);
    let mut conversation = Dialogue {
        protocol,
        asking: ClientRequests { http, extensions },
        tags,
        caller,
        process,
        series,
        reader,
        writer,
        inbox: FrameInbox::new(protocol.frames.clone()),
        out: Outbox::default(),
        waiting: VecDeque::new(),
        refusals: FrameRefusals::new(limits.refused_interval, limits.refusals_max),
        query: None,
        sequence: None,
        stored: 0,
        refused: 0,
        is_open: false,
        end: None,
        alarm: None,
        refusals_alarm: None,
    };
    if let Err(error) = conversation.run(&mut stopping).await {
        tracing::debug!(%error, "a client that speaks in frames takes no more answers");
    }
    drop(place);
}

/// Says why, and hangs up.
pub async fn leave(mut stream: Box<dyn ByteStream>, farewell: Farewell) {
    let mut out = Outbox::default();
    out.goodbye(&farewell);
    let told = async {
        stream.write_all_buf(&mut out.bytes).await?;
        stream.shutdown().await
    };
    if let Ok(Err(error)) = timeout(FAREWELL_TIMEOUT, told).await {
        tracing::debug!(%error, "a client that was to be refused was already gone");
    }
}

/// Why no more is read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DialogueEnd {
    /// The client has sent everything.
    Theirs,
    Ours(Farewell),
}

/// What the writer has not done yet, in the order in which it was sent.
#[derive(Debug)]
enum PendingWork {
    Samples { sequence: u64, samples: u64, refused: u64, append: Option<PendingAppend> },
    Flush { number: u64, append: PendingAppend, deadline: Pin<Box<Sleep>> },
}

/// What became of the first of [`PendingWork`].
enum WorkEnd {
    Appended(Result<(), WriteError>),
    Late,
}

impl PendingWork {
    /// It may be dropped at any time and called again.
    async fn settle(&mut self) -> WorkEnd {
        match self {
            Self::Samples { append: None, .. } => WorkEnd::Appended(Ok(())),
            Self::Samples { append: Some(append), .. } => WorkEnd::Appended(append.await),
            Self::Flush { append, deadline, .. } => tokio::select! {
                biased;
                appended = append => WorkEnd::Appended(appended),
                () = deadline => WorkEnd::Late,
            },
        }
    }
}

/// A question that is being answered.
struct FrameQuery {
    number: u32,
    frames: QueryFrames,
}

/// When a frame is late.
struct FrameAlarm {
    /// When its first byte came, or reading went on.
    began: Instant,
    /// How many bytes had come when it was looked last, and when that was.
    bytes: u64,
    looked: Instant,
    sleep: Pin<Box<Sleep>>,
}

struct Dialogue<'a> {
    protocol: &'a ClientProtocol,
    asking: ClientRequests,
    /// What its samples get where they lack it, without the slot of its job.
    tags: DefaultTags,
    /// Its job, where jobs share the server and it is none of the server's.
    caller: Option<JobCaller>,
    process: ClientProcess,
    series: ConnectionSeries,
    reader: ReadHalf<Box<dyn ByteStream>>,
    writer: WriteHalf<Box<dyn ByteStream>>,
    inbox: FrameInbox,
    out: Outbox,
    waiting: VecDeque<PendingWork>,
    refusals: FrameRefusals,
    query: Option<FrameQuery>,
    /// Of the last frame of samples.
    sequence: Option<u64>,
    stored: u64,
    refused: u64,
    /// The opening was answered.
    is_open: bool,
    end: Option<DialogueEnd>,
    /// Made when a frame comes in parts.
    alarm: Option<FrameAlarm>,
    refusals_alarm: Option<Pin<Box<Sleep>>>,
}

impl Dialogue<'_> {
    /// # Errors
    /// When the client takes no more answers.
    async fn run(&mut self, stopping: &mut watch::Receiver<bool>) -> io::Result<()> {
        self.watch_frame(true);
        let mut is_stopping = false;
        let mut last_bytes = 0;
        loop {
            if let Some(end) = self.end.clone()
                && self.waiting.is_empty()
            {
                return self.close(end).await;
            }
            let limits = &self.protocol.limits;
            let may_listen = self.end.is_none()
                && self.waiting.len() < limits.batches_waiting_max
                && self.out.len() < limits.answers_bytes_max;
            let may_ask = self.out.len() < limits.answers_bytes_max;
            let silence = is_stopping && self.waiting.is_empty() && may_listen;
            tokio::select! {
                biased;
                () = stop(stopping), if !is_stopping => {
                    is_stopping = true;
                    self.query = None;
                    last_bytes = self.inbox.bytes + LAST_BYTES_MAX as u64;
                }
                written = self.writer.write_buf(&mut self.out.bytes), if !self.out.is_empty() => {
                    if written? == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    self.out.tidy();
                }
                settled = settle(&mut self.waiting), if !self.waiting.is_empty() => self.settled(settled),
                frame = next_frame(&mut self.query), if self.query.is_some() && may_ask => self.answered(frame),
                arrived = self.inbox.read(&mut self.reader), if may_listen => {
                    if let Err(farewell) = self.hear(arrived).await {
                        self.end = Some(DialogueEnd::Ours(farewell));
                    }
                    if is_stopping && self.inbox.bytes > last_bytes {
                        self.stop();
                    }
                }
                () = tokio::time::sleep(SILENCE), if silence => self.stop(),
                () = ring(&mut self.alarm), if may_listen && self.alarm.is_some() => self.look_at_frame(),
                () = sound(&mut self.refusals_alarm), if self.refusals_alarm.is_some() => {
                    self.refusals_alarm = None;
                    self.tell_refusals();
                }
            }
        }
    }

    fn stop(&mut self) {
        self.end = Some(DialogueEnd::Ours(Farewell::new(RefusalCode::Stopping, "the service stops")));
    }

    /// Handles what came.
    ///
    /// # Errors
    /// Why the connection ends.
    async fn hear(&mut self, arrived: io::Result<ArrivedMessage>) -> Result<(), Farewell> {
        match arrived {
            Ok(ArrivedMessage::Some) => self.watch_frame(false),
            Ok(ArrivedMessage::Head(bytes)) if !self.is_open => {
                let version = frames::opening(bytes)?;
                self.inbox.opened();
                self.alarm = None;
                self.is_open = true;
                self.welcome(version);
            }
            Ok(ArrivedMessage::Head(bytes)) => {
                self.inbox.expect(FrameHead::parse(bytes)?);
                self.watch_frame(false);
            }
            Ok(ArrivedMessage::Frame) => {
                self.alarm = None;
                if let Some(frame) = self.inbox.take() {
                    self.handle(frame).await?;
                }
            }
            Ok(ArrivedMessage::End) => {
                self.query = None;
                self.end = Some(DialogueEnd::Theirs);
            }
            Err(error) => {
                tracing::debug!(%error, "a client that speaks in frames broke off");
                self.query = None;
                self.end = Some(DialogueEnd::Theirs);
            }
        }
        Ok(())
    }

    fn welcome(&mut self, version: u16) {
        let state = &self.protocol.state;
        let job = self.caller.as_ref().map_or_else(|| state.job.to_string(), |caller| caller.id().to_string());
        self.out.welcome(Welcome {
            version,
            level: state.level,
            series_max: self.protocol.limits.series_max,
            node: &state.node,
            job: &job,
        });
    }

    async fn handle(&mut self, frame: WholeFrame) -> Result<(), Farewell> {
        match ClientFrame::parse(frame.kind, &frame.body)? {
            ClientFrame::Series(names) => self.name(names).await?,
            ClientFrame::Samples(blocks) => self.store(blocks).await?,
            ClientFrame::Tally(tally) => {
                if let Some(writer) = &self.protocol.state.writer {
                    writer.tallies().tell(self.process, tally);
                }
            }
            ClientFrame::Note { time, title, description } => {
                let now = self.protocol.state.clock.now();
                let noted = self.asking.note(time.unwrap_or(now), title, description);
                self.request(timeout(self.protocol.limits.request_timeout, noted).await);
            }
            ClientFrame::Setting { name, value } => {
                let set = self.asking.setting(name, value);
                self.request(timeout(self.protocol.limits.request_timeout, set).await);
            }
            ClientFrame::Flush { number } => self.flush(number).await?,
            ClientFrame::Query { number, deadline_ms, sql } => match &self.query {
                Some(running) => {
                    let what = format!(
                        "query {} still runs, and a connection has one at a time; wait for its end",
                        running.number
                    );
                    self.out.end(number, AnswerEnd::Error, &what);
                }
                None => {
                    let frames = self.asking.query(number, deadline_ms, sql);
                    self.query = Some(FrameQuery { number, frames });
                }
            },
        }
        self.tell_refusals();
        Ok(())
    }

    /// A note or a setting that was not taken is refused.
    fn request(&mut self, done: Result<Result<(), String>, tokio::time::error::Elapsed>) {
        let reason = match done {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(_) => {
                let waited = self.protocol.limits.request_timeout.as_secs_f64();
                format!("it was not written within {waited} s; it may be there all the same")
            }
        };
        self.refusals.add(0, NO_SERIES, 0, RefusalCode::NotTaken, reason);
    }

    async fn name(&mut self, names: SeriesFrame<'_>) -> Result<(), Farewell> {
        let max = self.protocol.limits.series_max;
        if usize::try_from(names.first).ok() != Some(self.series.len()) {
            let what = format!(
                "a frame of names begins with series {}; expected {}, the count so far",
                names.first,
                self.series.len()
            );
            return Err(Farewell::new(RefusalCode::Shape, what));
        }
        if names.first.saturating_add(names.left()) > max {
            let what = format!("a connection names {max} series at most; {} more are too many", names.left());
            return Err(Farewell::new(RefusalCode::ManySeries, what));
        }
        let mut told: Vec<SaidOfMetric> = Vec::new();
        let state = &self.protocol.state;
        let snapshot = state.db.snapshot();
        for (at, series) in names.enumerate() {
            let series = series?;
            let named = self.series.add(&series);
            named.map_err(|_| {
                let bytes = self.protocol.limits.names_bytes_max;
                let what = format!("names of series take {bytes} bytes, the most for all connections together");
                Farewell::new(RefusalCode::ManySeries, what)
            })?;
            if state.writer.is_some() {
                let known = std::str::from_utf8(series.metric).ok().and_then(|name| snapshot.meta().metric(name));
                let said = self.series.described(&series, known);
                told.extend(said.filter(|said| told.last() != Some(said)));
            }
            if at % SERIES_AT_ONCE == SERIES_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
        }
        // What describes metrics is copied while somebody looks at it.
        drop(snapshot);
        self.refuse_names(0);
        // Samples do not depend on that.
        if let Err(error) = describe::write(state.db.clone(), told).await {
            tracing::warn!(?error, "metrics of a client are not described");
        }
        Ok(())
    }

    fn refuse_names(&mut self, samples: u64) {
        for refused in std::mem::take(&mut self.series.refused) {
            self.refusals.add(0, refused.number, samples, refused.code, refused.reason);
        }
    }

    async fn store(&mut self, blocks: SampleBlocks<'_>) -> Result<(), Farewell> {
        let sequence = blocks.sequence;
        if self.sequence.is_some_and(|last| last >= sequence) {
            let last = self.sequence.unwrap_or_default();
            let what = format!("samples have sequence {sequence} after {last}; sequences grow");
            return Err(Farewell::new(RefusalCode::Shape, what));
        }
        let protocol = self.protocol;
        if let Some(caller) = &self.caller {
            // What is stored now belongs to the job as it is now, which may have begun again.
            let slot = caller.slot().await;
            self.series.move_to(self.tags.clone().in_slot(slot));
        }
        self.sequence = Some(sequence);
        let Some(writer) = &protocol.state.writer else { return self.refuse_all(blocks) };
        let AcceptedFrame { batch, refused, rejects } =
            writer.accept_frame(&mut self.series, blocks).map_err(|bad| match bad {
                BadFrame::Shape(error) => error.into(),
                BadFrame::Unnamed { .. } => Farewell::new(RefusalCode::UnknownSeries, bad.to_string()),
            })?;
        self.refuse_names(0);
        for reject in rejects {
            self.refusals.add(sequence, reject.series, reject.samples, RefusalCode::Time, reject.reason.to_string());
        }
        let samples = batch.len() as u64;
        let append = match samples {
            0 => None,
            _ => match writer.submit_patiently(batch).await {
                Ok(append) => Some(append),
                Err(error) => {
                    self.not_written(sequence, samples, &error)?;
                    self.waiting.push_back(PendingWork::Samples {
                        sequence,
                        samples: 0,
                        refused: refused + samples,
                        append: None,
                    });
                    return Ok(());
                }
            },
        };
        self.waiting.push_back(PendingWork::Samples { sequence, samples, refused, append });
        Ok(())
    }

    /// There is no writer.
    fn refuse_all(&mut self, blocks: SampleBlocks<'_>) -> Result<(), Farewell> {
        let sequence = blocks.sequence;
        let mut samples = 0;
        for block in blocks {
            samples += block?.len() as u64;
        }
        let reason = self.protocol.state.refusal.message().to_owned();
        self.refusals.add(sequence, NO_SERIES, samples, RefusalCode::NotWritten, reason);
        self.waiting.push_back(PendingWork::Samples { sequence, samples: 0, refused: samples, append: None });
        Ok(())
    }

    /// # Errors
    /// When the service stops: the client keeps what is not acknowledged.
    fn not_written(&mut self, sequence: u64, samples: u64, error: &WriteError) -> Result<(), Farewell> {
        if matches!(error, WriteError::Stopped) || error.kind() == ErrorKind::Busy {
            return Err(Farewell::new(RefusalCode::Stopping, error.to_string()));
        }
        self.refusals.add(sequence, NO_SERIES, samples, RefusalCode::NotWritten, error.to_string());
        Ok(())
    }

    async fn flush(&mut self, number: u64) -> Result<(), Farewell> {
        let protocol = self.protocol;
        let Some(writer) = &protocol.state.writer else {
            let reason = protocol.state.refusal.message();
            self.out.refused(number, NO_SERIES, 0, RefusalCode::NotWritten, reason);
            return Ok(());
        };
        let append = writer.make_durable().await;
        let append = append.map_err(|error| Farewell::new(RefusalCode::Stopping, error.to_string()))?;
        let deadline = Box::pin(sleep_until(Instant::now() + protocol.limits.flush_timeout));
        self.waiting.push_back(PendingWork::Flush { number, append, deadline });
        Ok(())
    }

    /// The first of those that wait has an end.
    fn settled(&mut self, settled: WorkEnd) {
        let Some(first) = self.waiting.pop_front() else { return };
        match (first, settled) {
            (PendingWork::Samples { sequence, samples, refused, .. }, WorkEnd::Appended(appended)) => {
                let (mut stored, mut refused) = (samples, refused);
                if let Err(error) = appended {
                    if let Err(farewell) = self.not_written(sequence, samples, &error) {
                        // Nothing that follows may be acknowledged either.
                        self.waiting.clear();
                        self.end = Some(DialogueEnd::Ours(farewell));
                        return;
                    }
                    (stored, refused) = (0, refused + samples);
                }
                self.stored += stored;
                self.refused += refused;
                self.out.ack(sequence, self.stored, self.refused);
            }
            (PendingWork::Flush { number, .. }, WorkEnd::Appended(Ok(()))) => self.out.flushed(number),
            (PendingWork::Flush { number, .. }, WorkEnd::Appended(Err(error))) => {
                self.refusals.tell_all(&mut self.out);
                self.out.refused(number, NO_SERIES, 0, RefusalCode::NotWritten, &error.to_string());
            }
            (PendingWork::Flush { number, .. } | PendingWork::Samples { sequence: number, .. }, WorkEnd::Late) => {
                let waited = self.protocol.limits.flush_timeout.as_secs_f64();
                let what = format!("what was sent is not durable after {waited} s; the disk is slow; try again");
                self.out.refused(number, NO_SERIES, 0, RefusalCode::NotWritten, &what);
            }
        }
        self.tell_refusals();
    }

    fn answered(&mut self, frame: Option<Vec<u8>>) {
        match frame {
            Some(frame) => self.out.frame(&frame),
            None => self.query = None,
        }
    }

    fn tell_refusals(&mut self) {
        self.refusals.tell(&mut self.out);
        self.refusals_alarm = self.refusals.due().map(|due| Box::pin(sleep_until(due)));
    }

    /// A part of a frame came, or, for the `opening`, nothing yet.
    fn watch_frame(&mut self, opening: bool) {
        if self.alarm.is_none() && (opening || self.inbox.is_within()) {
            let now = Instant::now();
            let limits = &self.protocol.limits;
            let sleep = Box::pin(sleep_until(now + limits.frame_idle_when_short.min(limits.frame_timeout)));
            self.alarm = Some(FrameAlarm { began: now, bytes: self.inbox.bytes, looked: now, sleep });
        }
    }

    /// Ends the connection whose frame takes too long.
    fn look_at_frame(&mut self) {
        let limits = &self.protocol.limits;
        let Some(alarm) = &mut self.alarm else { return };
        let now = Instant::now();
        let is_idle = alarm.bytes == self.inbox.bytes;
        let (took, silent) = (now - alarm.began, now - alarm.looked);
        if took >= limits.frame_timeout {
            let what = format!("a frame is not whole after {} s", limits.frame_timeout.as_secs_f64());
            self.end = Some(DialogueEnd::Ours(Farewell::new(RefusalCode::Slow, what)));
        } else if is_idle && silent >= limits.frame_idle_when_short && self.inbox.holds_up_others() {
            let what = format!(
                "nothing came for {} s within a frame, whose memory others wait for",
                limits.frame_idle_when_short.as_secs_f64()
            );
            self.end = Some(DialogueEnd::Ours(Farewell::new(RefusalCode::Slow, what)));
        } else {
            (alarm.bytes, alarm.looked) = (self.inbox.bytes, now);
            let left = limits.frame_timeout - took;
            alarm.sleep.as_mut().reset(now + limits.frame_idle_when_short.min(left));
        }
    }

    /// # Errors
    /// When the client takes no more answers.
    async fn close(&mut self, end: DialogueEnd) -> io::Result<()> {
        self.refusals.tell_all(&mut self.out);
        if let DialogueEnd::Ours(farewell) = end {
            self.out.goodbye(&farewell);
        }
        let told = async {
            self.writer.write_all_buf(&mut self.out.bytes).await?;
            self.writer.shutdown().await
        };
        timeout(FAREWELL_TIMEOUT, told).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Returns once the server stops.
async fn stop(stopping: &mut watch::Receiver<bool>) {
    // An error says that it is gone already.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn settle(waiting: &mut VecDeque<PendingWork>) -> WorkEnd {
    match waiting.front_mut() {
        Some(first) => first.settle().await,
        None => std::future::pending().await,
    }
}

async fn next_frame(query: &mut Option<FrameQuery>) -> Option<Vec<u8>> {
    match query {
        Some(running) => running.frames.next().await,
        None => std::future::pending().await,
    }
}

async fn ring(alarm: &mut Option<FrameAlarm>) {
    match alarm {
        Some(alarm) => alarm.sleep.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn sound(alarm: &mut Option<Pin<Box<Sleep>>>) {
    match alarm {
        Some(alarm) => alarm.as_mut().await,
        None => std::future::pending().await,
    }
}
