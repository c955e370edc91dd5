//! The one writer of a database: a bounded queue, batches in order, group commit.
//!
//! The engine is synchronous, so the writer has three threads of its own: one appends the batches of the queue in
//! order, one makes them durable, and one flushes. A Buffered batch is acknowledged after its append. A Synced one is
//! acknowledged after an fsync that began after its append; all waiting batches share that fsync. Buffered data is
//! synced after [`WriterOptions::sync_interval`] at the latest. An append waits for neither thread, except for the
//! moment in which a flush closes one WAL file and the next one begins.

mod commit;
mod flush;
pub(crate) mod kept;
mod queue;
mod store;
mod tallies;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use telem_engine::{Clock, Db, Durability, ErrorKind, SampleBatch, SystemClock};
use tokio::sync::{oneshot, watch};

use self::commit::Committer;
use self::flush::FlushScheduler;
pub use self::kept::Lost;
use self::kept::{Kept, KeptStats, is_for_now};
pub use self::queue::OTHERS_SHARE;
use self::queue::{BatchPatience, Queue, WriteJob};
use self::store::SampleStore;
pub use self::tallies::{ClientProcess, ClientTallies, TALLIED_PROCESSES_MAX};
use crate::accept::frames::{AcceptedFrame, BadFrame, SeriesTable};
use crate::accept::lines::{AcceptedLines, LineRules};
use crate::accept::puts::AcceptedPuts;
use crate::accept::{self, AcceptCounters, Accepted, DecoderMemory, Limits};
use crate::decode::Incoming;
use crate::decode::frames::{ClientTally, SampleBlocks};
use crate::decode::opentsdb::PutRules;
use crate::decode::opentsdb::telnet::TelnetRules;
use crate::default_tags::DefaultTags;
use crate::known::Memories;

/// Limits of the writer.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// What one request may bring.
    pub limits: Limits,
    /// Most samples that wait to be appended; more are Busy. A sample takes 28 bytes there, so
    /// this bounds the memory too. 1 Mi by default.
    pub queue_samples_max: usize,
    /// Most batches that wait to be appended; one more is Busy. 16,384 by default.
    pub queue_batches_max: usize,
    /// Most samples of collectors that wait in memory while the database refuses them, as on a full disk; more, and
    /// the oldest are lost. 28 bytes each. 262,144 by default: more than half an hour of a node's 110 a second.
    pub kept_samples_max: usize,
    /// Memory for the raw names that senders repeat, and what they mean, for each of line protocol and put. 64 MiB by
    /// default: enough for some 250,000 series, and taken as they come.
    pub known_bytes_max: usize,
    /// How long an acknowledged Buffered sample may wait for its fsync. 100 ms by default.
    pub sync_interval: Duration,
    /// How long a batch waits for a flush when flushes are behind: without that, a client that sends as fast as it can
    /// fills the memory. 100 ms by default, so short that on a slow disk it is in memory that samples wait.
    pub flush_wait_max: Duration,
    /// How long to wait after a flush that failed; doubled after each further failure. 1 s by default.
    pub flush_retry_first: Duration,
    /// The longest wait between two attempts to flush. 30 s by default.
    pub flush_retry_max: Duration,
    /// Called before each flush, which takes memory for a moment: lets the allocator of the program give back what is free.
    /// Does nothing by default.
    pub give_back: fn(),
    /// What becomes of samples when the directory of the database is removed under it. Refused by default.
    pub when_removed: WhenRemoved,
    /// The wall clock that incoming samples are held against.
    pub clock: Arc<dyn Clock>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            queue_samples_max: 1 << 20,
            queue_batches_max: 16_384,
            kept_samples_max: 1 << 18,
            known_bytes_max: 64 << 20,
            sync_interval: Duration::from_millis(100),
            flush_wait_max: Duration::from_millis(100),
            flush_retry_first: Duration::from_secs(1),
            flush_retry_max: Duration::from_secs(30),
            give_back: || (),
            when_removed: WhenRemoved::Refuse,
            clock: Arc::new(SystemClock::new()),
        }
    }
}

/// What becomes of samples while the directory of the database is not there. Synced ones are refused in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenRemoved {
    /// Refused: they would never be found.
    Refuse,
    /// Accepted: they are saved from memory in the end.
    KeepInMemory,
}

/// Why a batch was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    #[error("{waiting} {what} wait to be written; at most {max} may wait (option {option}); try again in a moment")]
    Busy { what: &'static str, waiting: usize, max: usize, option: &'static str },
    #[error(
        "a batch of {samples} samples is larger than the queue (option queue_samples_max: {max}); send it in parts"
    )]
    TooLarge { samples: usize, max: usize },
    #[error("the database is being closed and accepts no more samples")]
    Stopped,
    /// The database refused the batch, or could not make it durable.
    #[error(transparent)]
    Engine(#[from] Arc<telem_engine::Error>),
}

impl WriteError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            WriteError::Busy { .. } => ErrorKind::Busy,
            WriteError::TooLarge { .. } => ErrorKind::Invalid,
            WriteError::Stopped => ErrorKind::Unavailable,
            WriteError::Engine(error) => error.kind(),
        }
    }
}

/// Why the database was not closed in order. What was acknowledged as Synced is safe all the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ShutdownError {
    #[error("the database was not closed within {} s; the next open recovers all acknowledged samples", after.as_secs_f64())]
    Deadline { after: Duration },
    #[error("the writer died of a bug; see the log")]
    Died,
    #[error(transparent)]
    Engine(#[from] Arc<telem_engine::Error>),
}

/// A batch that is queued: as a future it ends when the batch is appended.
#[derive(Debug)]
pub struct PendingAppend(oneshot::Receiver<Result<(), WriteError>>);

impl Future for PendingAppend {
    type Output = Result<(), WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|told| told.unwrap_or(Err(WriteError::Stopped)))
    }
}

/// What a sample takes that waits to be appended: id, time, value and type.
pub const WAITING_SAMPLE_BYTES: u64 = 28;
/// How often a batch that may wait is tried again while memory is full, each after a flush or `flush_wait_max`.
pub const MEMORY_LOOKS_MAX: usize = 300;

type Ack = oneshot::Sender<Result<(), WriteError>>;
/// How the writer ended; `None` while it runs.
type WriterEnd = Option<Result<(), ShutdownError>>;

/// A handle; clones share one writer. When the last is dropped without [`Writer::shutdown`], the
/// writer drains its queue and closes the database on its own threads.
#[derive(Clone, Debug)]
pub struct Writer {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    db: Db,
    limits: Limits,
    clock: Arc<dyn Clock>,
    counters: AcceptCounters,
    memories: Memories<DecoderMemory>,
    tallies: Arc<ClientTallies>,
    shared: Arc<WriterState>,
    ended: watch::Receiver<WriterEnd>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// What the threads and the handles share.
#[derive(Debug)]
struct WriterState {
    store: Arc<dyn SampleStore>,
    /// The directory of the database.
    dir: PathBuf,
    when_removed: WhenRemoved,
    queue: Queue,
    committer: Committer,
    flusher: FlushScheduler,
    stats: WriterCounters,
}

/// What the writer did since its start.
#[derive(Debug, Default)]
struct WriterCounters {
    batches: AtomicU64,
    samples: AtomicU64,
    refused: AtomicU64,
    samples_refused: AtomicU64,
    kept: Arc<KeptStats>,
}

/// A copy of the writer's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Samples that passed their checks, and samples that did not.
    pub accepted: u64,
    pub rejected: u64,
    /// Batches and samples appended to the database.
    pub batches: u64,
    pub samples: u64,
    /// Batches that met a full queue or an error of the database.
    pub refused: u64,
    /// Samples of clients that the database refused; the clients were informed.
    pub samples_refused: u64,
    /// What clients of the client protocol took and dropped, by their own counts.
    pub clients: ClientTally,
    /// Samples that wait to be appended now.
    pub waiting: u64,
    /// Samples of collectors that wait because the database refused them.
    pub kept: u64,
    /// Samples of collectors that are in no database.
    pub lost: Lost,
    /// Samples of collectors that are in the memory of a database which could not be closed, and not on its disk.
    pub unwritten: Lost,
    pub syncs: u64,
    pub syncs_failed: u64,
    pub flushes: u64,
    pub flushes_failed: u64,
}

impl Writer {
    /// Starts the writer of `db`. There should be one for a database.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(db: Db, options: WriterOptions) -> std::io::Result<Writer> {
        let store: Arc<dyn SampleStore> = Arc::new(db.clone());
        Writer::start_on(store, db, options)
    }

    fn start_on(store: Arc<dyn SampleStore>, db: Db, options: WriterOptions) -> std::io::Result<Writer> {
        let dir = db.info().map(|info| info.dir).unwrap_or_default();
        let shared = Arc::new(WriterState {
            store,
            dir: dir.clone(),
            when_removed: options.when_removed,
            queue: Queue::new(options.queue_samples_max, options.queue_batches_max),
            committer: Committer::new(options.sync_interval),
            flusher: FlushScheduler::new(&options),
            stats: WriterCounters::default(),
        });
        let (ending, ended) = watch::channel(None);
        let stats = Arc::clone(&shared.stats.kept);
        let kept = Kept::new(&dir, Arc::clone(&options.clock), options.kept_samples_max, stats);
        start_threads(&shared, kept, ending)?;
        let handle = Handle {
            db,
            limits: options.limits,
            clock: options.clock,
            counters: AcceptCounters::default(),
            memories: Memories::new(options.known_bytes_max, DecoderMemory::new),
            tallies: Arc::default(),
            shared,
            ended,
        };
        Ok(Writer { handle: Arc::new(handle) })
    }

    /// What one request may bring.
    pub fn limits(&self) -> &Limits {
        &self.handle.limits
    }

    /// Sorts samples into a batch for [`Writer::submit`] and rejects. `samples` come with the
    /// caller's number, and get `tags` where they lack them. Work for the processor: give it a thread of its own for
    /// large requests.
    pub fn accept<'a>(&self, tags: &DefaultTags, samples: impl IntoIterator<Item = (usize, Incoming<'a>)>) -> Accepted {
        let Handle { db, limits, clock, counters, .. } = &*self.handle;
        accept::accept(db, clock.now(), limits, counters, tags, samples)
    }

    /// Counts samples that were refused before they came to [`Writer::accept`].
    pub fn count_rejected(&self, rejected: usize) {
        self.handle.counters.count(0, rejected);
    }

    /// Sorts the lines of a body of line protocol into a batch for [`Writer::submit`] and rejects. Work for the
    /// processor, as [`Writer::accept`].
    pub fn accept_lines(&self, tags: &DefaultTags, rules: LineRules, body: &[u8]) -> AcceptedLines {
        let Handle { db, limits, clock, counters, memories, .. } = &*self.handle;
        let mut memory = memories.take();
        memory.serve(tags);
        accept::lines::accept(db, clock.now(), limits, counters, &mut memory.lines, rules, body)
    }

    /// The batch of a put body of OpenTSDB if all of it is good and nothing about it is unusual; `None` says nothing
    /// but that [`Writer::accept`] must find out.
    pub fn accept_points(&self, tags: &DefaultTags, rules: &PutRules, body: &[u8]) -> Option<SampleBatch> {
        let Handle { db, limits, clock, counters, memories, .. } = &*self.handle;
        let mut memory = memories.take();
        memory.serve(tags);
        accept::points::accept(db, clock.now(), limits, counters, &mut memory.points, rules, body)
    }

    /// Sorts `put` lines of OpenTSDB's telnet, which come with the caller's numbers, into a batch for [`Writer::submit`],
    /// rejects, and lines that are no samples. Work for the processor, as [`Writer::accept`].
    pub fn accept_puts<'a>(
        &self,
        tags: &DefaultTags,
        rules: &TelnetRules,
        lines: impl IntoIterator<Item = (usize, &'a str)>,
    ) -> AcceptedPuts {
        let Handle { db, limits, clock, counters, memories, .. } = &*self.handle;
        let mut memory = memories.take();
        memory.serve(tags);
        accept::puts::accept(db, clock.now(), limits, counters, &mut memory.points, rules, lines)
    }

    /// Sorts the samples of a frame of the client protocol into a batch and rejects.
    ///
    /// # Errors
    /// [`BadFrame`]: nothing of it is taken then.
    pub fn accept_frame(
        &self,
        table: &mut impl SeriesTable,
        blocks: SampleBlocks<'_>,
    ) -> Result<AcceptedFrame, BadFrame> {
        let Handle { limits, clock, counters, .. } = &*self.handle;
        accept::frames::accept(clock.now(), limits, counters, table, blocks)
    }

    /// Queues `batch` as [`Writer::submit`] does, but waits for room in the queue, of which it leaves a quarter to
    /// those that do not wait. What comes back tells when it is appended, Buffered.
    ///
    /// # Errors
    /// TooLarge, Stopped.
    pub async fn submit_patiently(&self, batch: SampleBatch) -> Result<PendingAppend, WriteError> {
        self.queue_patiently(batch, Durability::Buffered).await
    }

    /// What the clients told that they lost.
    pub fn tallies(&self) -> &Arc<ClientTallies> {
        &self.handle.tallies
    }

    /// What comes back tells when everything that was queued before is durable, or that it cannot be.
    ///
    /// # Errors
    /// Stopped.
    pub async fn make_durable(&self) -> Result<PendingAppend, WriteError> {
        self.queue_patiently(SampleBatch::default(), Durability::Synced).await
    }

    async fn queue_patiently(&self, batch: SampleBatch, durability: Durability) -> Result<PendingAppend, WriteError> {
        let (ack, acknowledged) = oneshot::channel();
        let job = WriteJob { batch, durability, patience: BatchPatience::Waits, ack };
        self.handle.shared.queue.push_patiently(job).await?;
        Ok(PendingAppend(acknowledged))
    }

    /// Queues `batch` and waits until it is appended (Buffered) or durable (Synced). Batches are
    /// appended in the order in which they were submitted, each whole or not at all. Dropping the
    /// future does not take the batch back.
    ///
    /// # Errors
    /// [`WriteError`]; Busy comes at once, without waiting.
    pub async fn submit(&self, batch: SampleBatch, durability: Durability) -> Result<(), WriteError> {
        if batch.is_empty() {
            return Ok(());
        }
        let acknowledged = self.queue(batch, durability, BatchPatience::None)?;
        acknowledged.await.unwrap_or(Err(WriteError::Stopped))
    }

    /// Queues `batch` and does not wait: it will be appended in its turn, Buffered. Where the database refuses it for
    /// the moment it is kept and tried again: see [`WriterOptions::kept_samples_max`] and [`WriterStats::lost`].
    ///
    /// # Errors
    /// Busy, TooLarge, Stopped.
    pub fn offer(&self, batch: SampleBatch) -> Result<(), WriteError> {
        if !batch.is_empty() {
            self.queue(batch, Durability::Buffered, BatchPatience::Kept)?;
        }
        Ok(())
    }

    /// Waits until everything that was queued before is appended or refused.
    ///
    /// # Errors
    /// Busy, Stopped.
    pub async fn settle(&self) -> Result<(), WriteError> {
        let settled = self.queue(SampleBatch::default(), Durability::Buffered, BatchPatience::None)?;
        settled.await.unwrap_or(Err(WriteError::Stopped))
    }

    fn queue(
        &self,
        batch: SampleBatch,
        durability: Durability,
        patience: BatchPatience,
    ) -> Result<oneshot::Receiver<Result<(), WriteError>>, WriteError> {
        let (ack, acknowledged) = oneshot::channel();
        let queued = self.handle.shared.queue.push(WriteJob { batch, durability, patience, ack });
        queued.inspect_err(|_| {
            self.handle.shared.stats.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        Ok(acknowledged)
    }

    /// Takes no more batches, appends those that wait, makes everything durable, flushes and closes
    /// the database. Called again, it waits for the same end.
    ///
    /// # Errors
    /// Deadline when that takes longer than `deadline`; what the database reports.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        self.handle.shared.queue.close();
        let mut ended = self.handle.ended.clone();
        let wait = async {
            match ended.wait_for(Option::is_some).await {
                Ok(end) => end.clone().unwrap_or(Err(ShutdownError::Died)),
                Err(_) => Err(ShutdownError::Died),
            }
        };
        tokio::time::timeout(deadline, wait).await.unwrap_or(Err(ShutdownError::Deadline { after: deadline }))
    }

    pub fn stats(&self) -> WriterStats {
        let shared = &self.handle.shared;
        WriterStats {
            accepted: self.handle.counters.accepted(),
            rejected: self.handle.counters.rejected(),
            batches: load(&shared.stats.batches),
            samples: load(&shared.stats.samples),
            refused: load(&shared.stats.refused),
            samples_refused: load(&shared.stats.samples_refused),
            kept: load(&shared.stats.kept.samples),
            lost: shared.stats.kept.lost(),
            unwritten: shared.stats.kept.unwritten(),
            clients: self.handle.tallies.sum(),
            waiting: shared.queue.waiting_samples() as u64,
            syncs: load(&shared.committer.syncs),
            syncs_failed: load(&shared.committer.syncs_failed),
            flushes: load(&shared.flusher.flushes),
            flushes_failed: load(&shared.flusher.flushes_failed),
        }
    }

    /// About what the raw names take in memory that decoders remember, but those that read at this moment.
    pub fn known_bytes(&self) -> usize {
        self.handle.memories.resting_bytes(DecoderMemory::bytes)
    }
}

impl WriterState {
    /// Passes a batch to the database, unless that is known to store it in vain.
    fn append(&self, batch: &SampleBatch) -> telem_engine::Result<()> {
        if self.when_removed == WhenRemoved::Refuse && self.committer.removed.load(Ordering::Relaxed) {
            return Err(telem_engine::Error::Removed { path: self.dir.clone() });
        }
        self.store.append(batch)
    }

    /// The same, but where memory is full of samples that are not flushed yet, it waits for a flush.
    fn append_patiently(&self, batch: &SampleBatch) -> telem_engine::Result<()> {
        let mut looks = MEMORY_LOOKS_MAX;
        loop {
            let ended = self.flusher.ended();
            match self.append(batch) {
                Err(telem_engine::Error::MemtableFull { .. }) if looks > 0 => {
                    self.flusher.wake();
                    self.flusher.wait(ended);
                    looks -= 1;
                }
                appended => return appended,
            }
        }
    }

    /// Batches are in the database.
    fn appended(&self, batches: u64, samples: u64) {
        self.stats.batches.fetch_add(batches, Ordering::Relaxed);
        self.stats.samples.fetch_add(samples, Ordering::Relaxed);
        if self.store.flush_due() {
            let ended = self.flusher.wake();
            if self.store.flush_is_behind() {
                self.flusher.wait(ended);
            }
        }
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn start_threads(shared: &Arc<WriterState>, kept: Kept, ending: watch::Sender<WriterEnd>) -> std::io::Result<()> {
    let spawn = |name: &str, run: fn(&WriterState)| {
        let shared = Arc::clone(shared);
        thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))
    };
    let commit = spawn("telem-commit", |shared| shared.committer.run(&*shared.store, &shared.flusher))?;
    let flush = match spawn("telem-flush", |shared| shared.flusher.run(&*shared.store)) {
        Ok(flush) => flush,
        Err(error) => {
            shared.committer.stop();
            return Err(error);
        }
    };
    let appender = Appender { shared: Arc::clone(shared), kept, others: vec![commit, flush], ending };
    let started = thread::Builder::new().name("telem-append".to_owned()).spawn(move || appender.run());
    if let Err(error) = started {
        shared.committer.stop();
        shared.flusher.stop();
        return Err(error);
    }
    Ok(())
}

/// The thread that appends, and at the end closes the database.
struct Appender {
    shared: Arc<WriterState>,
    kept: Kept,
    others: Vec<JoinHandle<()>>,
    ending: watch::Sender<WriterEnd>,
}

impl Appender {
    fn run(mut self) {
        while let Some(job) = self.shared.queue.pop() {
            self.append(job);
        }
        let end = self.close();
        self.ending.send_replace(Some(end));
    }

    fn append(&mut self, WriteJob { batch, durability, patience, ack }: WriteJob) {
        if batch.is_empty() {
            match durability {
                // A caller waits for the queue to be processed.
                Durability::Buffered => drop(ack.send(Ok(()))),
                Durability::Synced => self.shared.committer.appended(Some(ack)),
            }
            return;
        }
        let keep = patience == BatchPatience::Kept;
        // Those that waited are older.
        if !self.append_kept() && keep {
            self.kept.keep(batch);
            let _ = ack.send(Ok(()));
            return;
        }
        let shared = &*self.shared;
        let appended = match patience {
            BatchPatience::Waits => shared.append_patiently(&batch),
            BatchPatience::None | BatchPatience::Kept => shared.append(&batch),
        };
        if let Err(error) = appended {
            self.kept.refused(&error);
            // A full memtable is emptied by a flush alone.
            shared.flusher.wake();
            shared.stats.refused.fetch_add(1, Ordering::Relaxed);
            if keep && is_for_now(&error) {
                self.kept.keep(batch);
                let _ = ack.send(Ok(()));
                return;
            }
            shared.stats.samples_refused.fetch_add(batch.len() as u64, Ordering::Relaxed);
            // The waiting caller may be gone; then the result is not needed.
            let _ = ack.send(Err(WriteError::Engine(Arc::new(error))));
            return;
        }
        shared.appended(1, batch.len() as u64);
        // Where none can be made durable, they are not written yet.
        if !shared.committer.is_failing() {
            self.kept.works();
        }
        match durability {
            Durability::Buffered => {
                shared.committer.appended(None);
                let _ = ack.send(Ok(()));
            }
            Durability::Synced => shared.committer.appended(Some(ack)),
        }
    }

    /// Tries those that wait again. Whether none is left.
    fn append_kept(&mut self) -> bool {
        if self.kept.is_empty() {
            return true;
        }
        let shared = &*self.shared;
        let before = load(&shared.stats.kept.samples);
        let (taken, done) = self.kept.drain(|batch| shared.append(batch));
        if taken > 0 {
            shared.appended(taken, before - load(&shared.stats.kept.samples));
            shared.committer.appended(None);
        }
        match &done {
            Err(error) => {
                self.kept.refused(error);
                shared.flusher.wake();
            }
            Ok(()) if shared.committer.is_failing() => {}
            Ok(()) => {
                self.kept.works();
            }
        }
        done.is_ok()
    }

    fn close(&mut self) -> Result<(), ShutdownError> {
        self.shared.committer.stop();
        self.shared.flusher.stop();
        for thread in self.others.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the writer panicked");
            }
        }
        if !self.append_kept() {
            // Closing flushes what is in memory; if that fails too, the samples may be saved elsewhere.
            let store = &self.shared.store;
            if let Err(error) = self.kept.drain_into_memory(|batch| store.append_in_memory(batch)) {
                tracing::error!(%error, "samples that waited are lost");
                self.kept.lose_all();
            }
        }
        let closed = self.shared.store.close().map_err(|error| {
            // Callers that wait for the end get the result.
            tracing::debug!(%error, "the database could not be closed in order");
            ShutdownError::Engine(Arc::new(error))
        });
        if closed.is_ok() {
            self.kept.all_written();
            self.kept.works_at_last();
        }
        closed
    }
}

/// Even when the thread panics, so that no caller waits for an answer that cannot come.
impl Drop for Appender {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.queue.clear();
        self.shared.committer.stop();
        self.shared.flusher.stop();
    }
}
