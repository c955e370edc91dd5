use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use telem_engine::{Error, Options, SeriesId, SeriesKey, TagSet, TimeRange, Timestamp, Value};
use tempfile::TempDir;

use super::*;
use crate::decode::line::LinePrecision;

/// What a door of the [`GatedStore`] does to one call that arrives at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Through,
    Fail,
    /// The disk is full.
    Full,
    Panic,
}

/// A door in the way of one operation: open, or telling the test of every call and waiting for its word.
#[derive(Debug, Default)]
struct Door(Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<Pass>)>>);

/// The test's side of a closed door.
struct Keeper {
    arrivals: mpsc::Receiver<()>,
    passes: mpsc::Sender<Pass>,
}

impl Door {
    fn shut(&self) -> Keeper {
        let (arrived, arrivals) = mpsc::channel();
        let (passes, pass) = mpsc::channel();
        *self.0.lock().unwrap() = Some((arrived, pass));
        Keeper { arrivals, passes }
    }

    fn go_through(&self) -> telem_engine::Result<()> {
        let door = self.0.lock().unwrap();
        let Some((arrived, pass)) = &*door else { return Ok(()) };
        // A keeper that went away leaves the door open.
        arrived.send(()).ok();
        match pass.recv().unwrap_or(Pass::Through) {
            Pass::Through => Ok(()),
            Pass::Fail => Err(Error::Internal { what: "the test said so".to_owned() }),
            Pass::Full => {
                let source = std::io::ErrorKind::StorageFull.into();
                Err(Error::Io { action: "append to", path: "wal".into(), source })
            }
            Pass::Panic => {
                drop(door);
                panic!("the test said so")
            }
        }
    }
}

impl Keeper {
    /// Waits for a call and lets it do as `pass` says.
    fn pass(&self, pass: Pass) {
        self.arrivals.recv().unwrap();
        self.passes.send(pass).unwrap();
    }
}

#[derive(Debug)]
struct GatedStore {
    db: Db,
    append: Door,
    sync: Door,
    flush: Door,
    flush_due: AtomicBool,
    behind: AtomicBool,
    closed: Mutex<Option<mpsc::Sender<()>>>,
}

impl SampleStore for GatedStore {
    fn append(&self, batch: &SampleBatch) -> telem_engine::Result<()> {
        self.append.go_through()?;
        SampleStore::append(&self.db, batch)
    }

    fn append_in_memory(&self, batch: &SampleBatch) -> telem_engine::Result<()> {
        SampleStore::append_in_memory(&self.db, batch)
    }

    fn sync(&self) -> telem_engine::Result<()> {
        self.sync.go_through()?;
        SampleStore::sync(&self.db)
    }

    fn flush_due(&self) -> bool {
        self.flush_due.load(Ordering::SeqCst)
    }

    fn flush_is_behind(&self) -> bool {
        self.behind.load(Ordering::SeqCst)
    }

    fn flush(&self) -> telem_engine::Result<()> {
        self.flush.go_through()?;
        self.flush_due.store(false, Ordering::SeqCst);
        SampleStore::flush(&self.db)
    }

    fn close(&self) -> telem_engine::Result<()> {
        if let Some(closed) = self.closed.lock().unwrap().take() {
            closed.send(()).ok();
        }
        SampleStore::close(&self.db)
    }
}

struct Rig {
    writer: Writer,
    store: Arc<GatedStore>,
    series: SeriesId,
    _dir: TempDir,
}

/// Long enough that a test that needs it to pass never ends.
const NEVER: Duration = Duration::from_secs(3_600);

fn rig(options: WriterOptions) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(&dir.path().join("db"), Options::default()).unwrap();
    let series = db.series(&SeriesKey::new("m", TagSet::default()).unwrap()).unwrap();
    let store = Arc::new(GatedStore {
        db: db.clone(),
        append: Door::default(),
        sync: Door::default(),
        flush: Door::default(),
        flush_due: AtomicBool::new(false),
        behind: AtomicBool::new(false),
        closed: Mutex::default(),
    });
    let writer = Writer::start_on(Arc::clone(&store) as Arc<dyn SampleStore>, db, options).unwrap();
    Rig { writer, store, series, _dir: dir }
}

fn unhurried() -> WriterOptions {
    WriterOptions { sync_interval: NEVER, ..WriterOptions::default() }
}

impl Rig {
    /// A batch of samples at these seconds.
    fn batch(&self, seconds: impl IntoIterator<Item = i64>) -> SampleBatch {
        let mut batch = SampleBatch::default();
        for second in seconds {
            batch.push(self.series, Timestamp::from_seconds(second), Value::Int(second));
        }
        batch
    }

    fn readable(&self) -> Vec<i64> {
        let points = self.store.db.snapshot().points(vec![self.series], TimeRange::ALL).next();
        points.map_or_else(Vec::new, |points| points.unwrap().times.iter().map(|time| time.seconds()).collect())
    }

    async fn put(&self, second: i64, durability: Durability) -> Result<(), WriteError> {
        self.writer.submit(self.batch([second]), durability).await
    }
}

/// Polls once: enough for a submit to stand in the queue.
fn poll_once<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_buffered_batch_is_readable_when_it_is_acknowledged_although_fsync_hangs() {
    let rig = rig(WriterOptions { sync_interval: Duration::ZERO, ..WriterOptions::default() });
    let sync = rig.store.sync.shut();
    rig.put(1, Durability::Buffered).await.unwrap();
    sync.arrivals.recv().unwrap();
    rig.put(2, Durability::Buffered).await.unwrap();
    assert_eq!(rig.readable(), [1, 2]);
}

#[tokio::test]
async fn a_synced_batch_is_acknowledged_after_an_fsync_that_began_after_it() {
    let rig = rig(unhurried());
    let sync = rig.store.sync.shut();
    let mut first = pin!(rig.put(1, Durability::Synced));
    assert!(poll_once(&mut first).is_pending());
    sync.arrivals.recv().unwrap();
    let mut second = pin!(rig.put(2, Durability::Synced));
    assert!(poll_once(&mut second).is_pending());
    sync.passes.send(Pass::Through).unwrap();
    first.await.unwrap();
    assert!(poll_once(&mut second).is_pending(), "the first fsync began before the second batch");
    sync.pass(Pass::Through);
    second.await.unwrap();
}

#[tokio::test]
async fn all_who_wait_share_one_fsync() {
    let rig = rig(unhurried());
    let sync = rig.store.sync.shut();
    let mut first = pin!(rig.put(0, Durability::Synced));
    assert!(poll_once(&mut first).is_pending());
    sync.arrivals.recv().unwrap();
    let mut waiting: Vec<_> = (1..=10).map(|second| Box::pin(rig.put(second, Durability::Synced))).collect();
    for submit in &mut waiting {
        assert!(poll_once(&mut submit.as_mut()).is_pending());
    }
    // Batches keep their order: when this one is appended, the others are.
    rig.put(11, Durability::Buffered).await.unwrap();
    sync.passes.send(Pass::Through).unwrap();
    sync.pass(Pass::Through);
    first.await.unwrap();
    for submit in waiting {
        submit.await.unwrap();
    }
    assert_eq!(rig.writer.stats().syncs, 2);
}

#[tokio::test]
async fn buffered_samples_are_synced_although_nobody_waits() {
    let rig = rig(WriterOptions { sync_interval: Duration::from_millis(1), ..WriterOptions::default() });
    let sync = rig.store.sync.shut();
    rig.put(1, Durability::Buffered).await.unwrap();
    sync.pass(Pass::Through);
}

#[tokio::test]
async fn a_failed_fsync_is_told_to_all_who_wait_and_tried_again() {
    let rig = rig(WriterOptions { sync_interval: Duration::from_millis(1), ..WriterOptions::default() });
    let sync = rig.store.sync.shut();
    let mut submit = pin!(rig.put(1, Durability::Synced));
    assert!(poll_once(&mut submit).is_pending());
    sync.pass(Pass::Fail);
    let error = submit.await.unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Internal, "bug in telem: the test said so".to_owned()));
    sync.pass(Pass::Through);
}

#[tokio::test]
async fn samples_that_cannot_be_synced_are_flushed() {
    let rig = rig(unhurried());
    let (sync, flush) = (rig.store.sync.shut(), rig.store.flush.shut());
    let mut synced = pin!(rig.put(1, Durability::Synced));
    assert!(poll_once(&mut synced).is_pending());
    sync.arrivals.recv().unwrap();
    // The appender has asked before it acknowledges: from here on nobody but the failed fsync can wake the flusher.
    rig.put(2, Durability::Buffered).await.unwrap();
    rig.store.flush_due.store(true, Ordering::SeqCst);
    sync.passes.send(Pass::Fail).unwrap();
    flush.pass(Pass::Through);
    synced.await.unwrap_err();
}

#[tokio::test]
async fn the_queue_takes_its_limit_of_samples_and_is_then_busy_at_once() {
    let rig = rig(WriterOptions { queue_samples_max: 5, ..unhurried() });
    let append = rig.store.append.shut();
    let mut in_the_works = pin!(rig.put(0, Durability::Buffered));
    assert!(poll_once(&mut in_the_works).is_pending());
    append.arrivals.recv().unwrap();
    let mut fits = pin!(rig.writer.submit(rig.batch(1..=5), Durability::Buffered));
    assert!(poll_once(&mut fits).is_pending());
    let error = rig.put(6, Durability::Buffered).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(
        error.to_string(),
        "5 samples wait to be written; at most 5 may wait (option queue_samples_max); try again in a moment"
    );
    append.passes.send(Pass::Through).unwrap();
    append.pass(Pass::Through);
    in_the_works.await.unwrap();
    fits.await.unwrap();
    assert_eq!(rig.readable(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(rig.writer.stats().refused, 1);
}

#[tokio::test]
async fn the_queue_takes_its_limit_of_batches_and_is_then_busy_at_once() {
    let rig = rig(WriterOptions { queue_batches_max: 1, ..unhurried() });
    let append = rig.store.append.shut();
    let mut in_the_works = pin!(rig.put(0, Durability::Buffered));
    assert!(poll_once(&mut in_the_works).is_pending());
    append.arrivals.recv().unwrap();
    let mut fits = pin!(rig.put(1, Durability::Buffered));
    assert!(poll_once(&mut fits).is_pending());
    assert_eq!(rig.put(2, Durability::Buffered).await.unwrap_err().kind(), ErrorKind::Busy);
    append.passes.send(Pass::Through).unwrap();
    append.pass(Pass::Through);
    fits.await.unwrap();
}

#[tokio::test]
async fn a_batch_that_could_never_wait_is_invalid_and_not_busy() {
    let rig = rig(WriterOptions { queue_samples_max: 2, ..unhurried() });
    rig.writer.submit(rig.batch(1..=2), Durability::Buffered).await.unwrap();
    let error = rig.writer.submit(rig.batch(1..=3), Durability::Buffered).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn names_that_senders_repeat_are_remembered_up_to_the_limit_and_those_beyond_are_parsed_each_time() {
    let rules = LineRules { precision: LinePrecision::Nanos, keep: true };
    let lines = |count: usize| (0..count).map(|n| format!("m,host=h{n:03} v=1i {n}\n")).collect::<String>();
    let remembered = |rig: &Rig| rig.writer.handle.memories.take().lines.len();
    let send =
        |rig: &Rig, count: usize| rig.writer.accept_lines(&DefaultTags::default(), rules, lines(count).as_bytes()).good;
    let known_bytes_max = 40_000;
    let rig = rig(WriterOptions { known_bytes_max, ..unhurried() });
    let fit = (1..).find(|count| send(&rig, *count) == *count && remembered(&rig) < *count).unwrap() - 1;
    // One decoder of a few gets its share of it.
    assert!((20..200).contains(&fit), "{fit}");
    for _ in 0..2 {
        assert_eq!((send(&rig, fit), remembered(&rig)), (fit, fit), "at the limit");
        assert_eq!((send(&rig, fit + 1), remembered(&rig)), (fit + 1, fit), "one series more");
    }
    let without = self::rig(WriterOptions { known_bytes_max: 0, ..unhurried() });
    assert_eq!((send(&without, fit), remembered(&without)), (fit, 0));
}

#[tokio::test]
async fn what_the_engine_refuses_is_refused_with_its_reason_and_the_next_batch_goes_on() {
    let rig = rig(unhurried());
    let mut unknown = SampleBatch::default();
    unknown.push(SeriesId(7), Timestamp::from_seconds(1), Value::Int(1));
    let error = rig.writer.submit(unknown, Durability::Synced).await.unwrap_err();
    assert_eq!(error.to_string(), "series 7 is not in this database");
    rig.put(1, Durability::Synced).await.unwrap();
    assert_eq!(rig.readable(), [1]);
}

#[tokio::test]
async fn a_flush_that_is_due_runs_beside_appends() {
    let rig = rig(unhurried());
    let flush = rig.store.flush.shut();
    rig.store.flush_due.store(true, Ordering::SeqCst);
    rig.put(1, Durability::Buffered).await.unwrap();
    flush.arrivals.recv().unwrap();
    rig.put(2, Durability::Synced).await.unwrap();
    flush.passes.send(Pass::Through).unwrap();
}

#[tokio::test]
async fn a_batch_waits_for_a_flush_that_is_behind_but_not_for_one_that_fails() {
    let rig = rig(WriterOptions { flush_wait_max: NEVER, flush_retry_first: NEVER, ..unhurried() });
    rig.store.behind.store(true, Ordering::SeqCst);
    for (pass, ended) in [(Pass::Through, (1, 0)), (Pass::Fail, (1, 1))] {
        let flush = rig.store.flush.shut();
        rig.store.flush_due.store(true, Ordering::SeqCst);
        let passing = std::thread::spawn(move || flush.pass(pass));
        rig.put(1, Durability::Buffered).await.unwrap();
        let stats = rig.writer.stats();
        assert_eq!((stats.flushes, stats.flushes_failed), ended);
        passing.join().unwrap();
    }
    rig.put(2, Durability::Buffered).await.unwrap();
}

#[tokio::test]
async fn a_failed_flush_is_tried_again_without_another_append() {
    let retry = Duration::from_millis(1);
    let rig = rig(WriterOptions { flush_retry_first: retry, flush_retry_max: retry, ..unhurried() });
    let flush = rig.store.flush.shut();
    rig.store.flush_due.store(true, Ordering::SeqCst);
    rig.put(1, Durability::Buffered).await.unwrap();
    for _ in 0..3 {
        flush.pass(Pass::Fail);
    }
    flush.pass(Pass::Through);
    rig.writer.shutdown(NEVER).await.unwrap();
    let stats = rig.writer.stats();
    assert_eq!((stats.flushes, stats.flushes_failed), (1, 3));
}

#[tokio::test]
async fn settling_waits_for_what_was_queued_before_and_counts_as_nothing() {
    let rig = rig(unhurried());
    let append = rig.store.append.shut();
    let mut put = pin!(rig.put(1, Durability::Buffered));
    assert!(poll_once(&mut put).is_pending());
    let mut settled = pin!(rig.writer.settle());
    assert!(poll_once(&mut settled).is_pending());
    append.pass(Pass::Through);
    settled.await.unwrap();
    assert_eq!((rig.writer.stats().batches, rig.writer.stats().samples), (1, 1));
    rig.writer.shutdown(NEVER).await.unwrap();
    assert!(matches!(rig.writer.settle().await, Err(WriteError::Stopped)));
}

#[tokio::test]
async fn shutdown_appends_and_syncs_what_waits_and_closes_the_database() {
    let rig = rig(unhurried());
    let (closed, is_closed) = mpsc::channel();
    *rig.store.closed.lock().unwrap() = Some(closed);
    let append = rig.store.append.shut();
    let mut first = pin!(rig.put(1, Durability::Synced));
    let mut second = pin!(rig.put(2, Durability::Synced));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    let mut shutdown = pin!(rig.writer.shutdown(NEVER));
    assert!(poll_once(&mut shutdown).is_pending());
    assert!(matches!(rig.put(3, Durability::Buffered).await, Err(WriteError::Stopped)));
    append.pass(Pass::Through);
    append.pass(Pass::Through);
    shutdown.await.unwrap();
    first.await.unwrap();
    second.await.unwrap();
    is_closed.try_recv().unwrap();
    rig.writer.shutdown(NEVER).await.unwrap();
}

#[tokio::test]
async fn shutdown_gives_up_at_its_deadline() {
    let rig = rig(unhurried());
    let sync = rig.store.sync.shut();
    let mut submit = pin!(rig.put(1, Durability::Synced));
    assert!(poll_once(&mut submit).is_pending());
    sync.arrivals.recv().unwrap();
    let error = rig.writer.shutdown(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, ShutdownError::Deadline { .. }), "{error}");
    drop(sync);
}

#[tokio::test]
async fn the_last_handle_to_go_closes_the_database() {
    let Rig { writer, store, _dir, .. } = rig(unhurried());
    let (closed, is_closed) = mpsc::channel();
    *store.closed.lock().unwrap() = Some(closed);
    let clone = writer.clone();
    drop(writer);
    assert!(is_closed.try_recv().is_err());
    drop(clone);
    is_closed.recv().unwrap();
}

#[tokio::test]
async fn nobody_waits_for_a_writer_that_died() {
    let rig = rig(unhurried());
    let append = rig.store.append.shut();
    let mut first = pin!(rig.put(1, Durability::Buffered));
    let mut second = pin!(rig.put(2, Durability::Synced));
    assert!(poll_once(&mut first).is_pending());
    assert!(poll_once(&mut second).is_pending());
    append.pass(Pass::Panic);
    assert!(matches!(first.await, Err(WriteError::Stopped)));
    assert!(matches!(second.await, Err(WriteError::Stopped)));
    assert!(matches!(rig.put(3, Durability::Buffered).await, Err(WriteError::Stopped)));
    assert!(matches!(rig.writer.shutdown(NEVER).await, Err(ShutdownError::Died)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Batches of any sizes, any of which the database may refuse or fail to sync: what was
    /// acknowledged is readable, and nothing is there that was refused.
    #[test]
    fn whatever_was_acknowledged_is_readable(
        batches in prop::collection::vec((1_i64..20, any::<bool>(), prop::bool::weighted(0.2)), 1..30)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rig = rig(unhurried());
            let append = rig.store.append.shut();
            for (_, _, refused) in &batches {
                append.passes.send(if *refused { Pass::Fail } else { Pass::Through }).unwrap();
            }
            let mut expected = Vec::new();
            let mut next = 0;
            let mut submits = Vec::new();
            for (samples, synced, refused) in batches {
                let seconds = next..next + samples;
                next += samples;
                let durability = if synced { Durability::Synced } else { Durability::Buffered };
                let mut submit = Box::pin(rig.writer.submit(rig.batch(seconds.clone()), durability));
                let acknowledged = poll_once(&mut submit.as_mut());
                submits.push((submit, acknowledged, refused));
                if !refused {
                    expected.extend(seconds);
                }
            }
            for (submit, acknowledged, refused) in submits {
                let result = match acknowledged {
                    Poll::Ready(result) => result,
                    Poll::Pending => submit.await,
                };
                assert_eq!(result.is_err(), refused);
            }
            assert_eq!(rig.readable(), expected);
        });
    }
}

#[tokio::test]
async fn what_is_offered_while_the_disk_is_full_is_kept_and_written_in_its_order_later() {
    let rig = rig(unhurried());
    let append = rig.store.append.shut();
    rig.writer.offer(rig.batch([1])).unwrap();
    append.pass(Pass::Full);
    rig.writer.offer(rig.batch([2])).unwrap();
    append.pass(Pass::Full);
    rig.writer.settle().await.unwrap();
    let stats = rig.writer.stats();
    assert_eq!((stats.kept, stats.lost, stats.samples), (2, Lost::default(), 0));
    rig.writer.offer(rig.batch([3])).unwrap();
    (0..3).for_each(|_| append.pass(Pass::Through));
    rig.writer.settle().await.unwrap();
    assert_eq!(rig.readable(), [1, 2, 3]);
    let stats = rig.writer.stats();
    assert_eq!((stats.kept, stats.lost, stats.samples, stats.batches), (0, Lost::default(), 3, 3));
}

#[tokio::test]
async fn a_client_learns_that_the_disk_is_full_and_its_samples_are_not_kept() {
    let rig = rig(unhurried());
    let append = rig.store.append.shut();
    let mut put = pin!(rig.put(1, Durability::Buffered));
    assert!(poll_once(&mut put).is_pending());
    append.pass(Pass::Full);
    assert_eq!(put.await.unwrap_err().kind(), ErrorKind::Unavailable);
    let stats = rig.writer.stats();
    assert_eq!((stats.samples_refused, stats.kept, stats.lost.samples), (1, 0, 0));
}

#[tokio::test]
async fn beyond_the_limit_of_kept_samples_the_oldest_are_lost_and_counted_with_their_times() {
    let rig = rig(WriterOptions { kept_samples_max: 3, ..unhurried() });
    let append = rig.store.append.shut();
    for seconds in [[1, 2], [3, 4], [5, 6]] {
        rig.writer.offer(rig.batch(seconds)).unwrap();
        append.pass(Pass::Full);
    }
    rig.writer.settle().await.unwrap();
    let stats = rig.writer.stats();
    let lost = Lost { samples: 4, span: Some((Timestamp::from_seconds(1), Timestamp::from_seconds(4))) };
    assert_eq!((stats.kept, stats.lost), (2, lost));
    rig.writer.offer(rig.batch([7])).unwrap();
    (0..2).for_each(|_| append.pass(Pass::Through));
    rig.writer.settle().await.unwrap();
    assert_eq!(rig.readable(), [5, 6, 7]);
}

#[tokio::test]
async fn what_still_waits_when_the_writer_ends_is_flushed_from_memory() {
    let rig = rig(unhurried());
    let append = rig.store.append.shut();
    for second in [1, 2] {
        rig.writer.offer(rig.batch([second])).unwrap();
        append.pass(Pass::Full);
    }
    let mut shutdown = pin!(rig.writer.shutdown(NEVER));
    assert!(poll_once(&mut shutdown).is_pending());
    append.pass(Pass::Full);
    shutdown.await.unwrap();
    assert_eq!(rig.readable(), [1, 2]);
    assert_eq!((rig.writer.stats().kept, rig.writer.stats().lost.samples), (0, 0));
}
