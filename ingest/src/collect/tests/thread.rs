//! The thread: its ticks follow the clock it was given, and it ends when told.

use std::sync::atomic::AtomicI64;

use super::*;
use crate::writer::WriterOptions;

/// Both clocks stand still until a test moves them.
#[derive(Debug)]
struct Hands {
    wall_millis: AtomicI64,
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.wall_millis.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.wall_millis.load(Ordering::Relaxed).unsigned_abs())
    }
}

fn wait_for(what: &str, happened: impl Fn() -> bool) {
    let patience = SystemClock::new();
    while !happened() {
        assert!(patience.monotonic() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[tokio::test]
async fn each_tick_of_the_clock_writes_samples_with_its_time() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let db = Db::open(database.path(), Options::default()).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions::default()).unwrap();
    let clock = Arc::new(Hands { wall_millis: AtomicI64::new(5_020) });
    let interval = Duration::from_millis(100);
    let options = CollectOptions { interval, sysroot: tree.path().to_path_buf(), ..CollectOptions::new(2, "n1") };
    let collectors =
        Collectors::start(&options, db.clone(), writer.clone(), Arc::<Hands>::clone(&clock)).unwrap().unwrap();
    for (millis, ticks) in [(5_100, 1), (5_210, 2), (5_240, 2), (5_300, 3)] {
        clock.wall_millis.store(millis, Ordering::Relaxed);
        wait_for("a tick", || collectors.stats().ticks == ticks);
    }
    clock.wall_millis.store(5_960, Ordering::Relaxed);
    wait_for("late ticks to be counted", || collectors.stats().ticks_skipped == 6);
    let stats = collectors.stats();
    collectors.stop();
    writer.shutdown(Duration::from_secs(60)).await.unwrap();

    let db = Db::open_read_only(database.path(), Options::default()).unwrap();
    let snapshot = db.snapshot();
    let series = snapshot.select("node_load1", &[]);
    assert_eq!(series.len(), 1);
    let points = snapshot.points(series, telem_engine::TimeRange::ALL).next().unwrap().unwrap();
    let millis: Vec<i64> = points.times.iter().map(|time| time.millis()).collect();
    assert_eq!(millis, [5_100, 5_200, 5_300]);
    assert_eq!(db.info().unwrap().samples, stats.samples);
    assert_eq!((stats.ticks, stats.samples_refused), (3, 0));
}

#[tokio::test]
async fn below_level_2_there_is_nothing_to_start() {
    let database = tempfile::tempdir().unwrap();
    let db = Db::open(database.path(), Options::default()).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions::default()).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for level in [0, 1] {
        let options = CollectOptions::new(level, "n1");
        assert!(Collectors::start(&options, db.clone(), writer.clone(), Arc::clone(&clock)).unwrap().is_none());
    }
    let impossible = CollectOptions { interval: Duration::from_millis(99), ..CollectOptions::new(2, "n1") };
    assert!(matches!(Collectors::start(&impossible, db, writer, clock), Err(CollectError::Interval(_))));
}

#[tokio::test]
async fn what_the_writer_cannot_take_is_counted() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let db = Db::open(database.path(), Options::default()).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions { queue_samples_max: 1, ..WriterOptions::default() }).unwrap();
    let clock = Arc::new(Hands { wall_millis: AtomicI64::new(1_000) });
    let options = CollectOptions { sysroot: tree.path().to_path_buf(), ..CollectOptions::new(2, "n1") };
    let collectors = Collectors::start(&options, db, writer, clock).unwrap().unwrap();
    wait_for("a tick to be refused", || collectors.stats().samples_refused > 20);
    assert_eq!(collectors.stats().samples, 0);
}
