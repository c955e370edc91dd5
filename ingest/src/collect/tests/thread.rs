//! The collecting thread: its ticks follow the given clock, and it ends when told to.

use std::borrow::Cow;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::collect::gpu::GpuSource;
use crate::collect::gpu::nvidia::NvidiaGpus;
use crate::collect::gpu::nvidia::tests::{Driver, H100, StandIn, as_child, is_gone};
use crate::collect::sampler::Part;
use crate::collect::series::Out;
use crate::collect::source::Tree;
use crate::collect::subject::{SourceState, Subject};
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
    assert!(collectors.stats().samples <= 1, "only the number of processes comes alone");
}

/// A source that hangs until it is let go: opening it waits for somebody who writes.
fn hanging(path: &Path) {
    fs::remove_file(path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

fn let_go(path: &Path) {
    drop(fs::OpenOptions::new().write(true).open(path).unwrap());
}

/// Collectors every second at level 4, over a recorded node.
struct Running {
    tree: TempDir,
    database: TempDir,
    db: Db,
    writer: Writer,
    clock: Arc<Hands>,
    collectors: Collectors,
    ticks: u64,
}

impl Running {
    fn over(tree: TempDir) -> Self {
        Self::with(tree, |_, _| {})
    }

    /// With more subjects than there are.
    fn with(tree: TempDir, more: impl FnOnce(&mut Sampler, Arc<dyn Clock>)) -> Self {
        let database = tempfile::tempdir().unwrap();
        let db = Db::open(database.path(), Options::default()).unwrap();
        let writer = Writer::start(db.clone(), WriterOptions::default()).unwrap();
        let clock = Arc::new(Hands { wall_millis: AtomicI64::new(100_900) });
        let options = CollectOptions { sysroot: tree.path().to_path_buf(), ..CollectOptions::new(4, "n1") };
        let shared: Arc<dyn Clock> = Arc::<Hands>::clone(&clock);
        let mut sampler = Sampler::new(&options, db.clone(), Arc::clone(&shared));
        more(&mut sampler, Arc::clone(&shared));
        let collectors = Collectors::start_sampler(&options, sampler, db.clone(), writer.clone(), shared);
        let collectors = collectors.unwrap().unwrap();
        Self { tree, database, db, writer, clock, collectors, ticks: 0 }
    }

    fn set(&self, millis: i64) {
        self.clock.wall_millis.store(millis, Ordering::Relaxed);
    }

    fn tick(&mut self, second: i64) {
        self.set(second * 1_000);
        self.ticks += 1;
        wait_for("a tick", || self.collectors.stats().ticks == self.ticks);
    }

    /// Stops; the seconds of the samples of each metric.
    async fn seconds<const N: usize>(self, metrics: [&str; N]) -> [Vec<i64>; N] {
        self.collectors.stop();
        self.writer.shutdown(Duration::from_secs(60)).await.unwrap();
        drop(self.db);
        let db = Db::open_read_only(self.database.path(), Options::default()).unwrap();
        let snapshot = db.snapshot();
        metrics.map(|metric| {
            let points = snapshot.points(snapshot.select(metric, &[]), telem_engine::TimeRange::ALL);
            points
                .flat_map(|points| points.unwrap().times.iter().map(|time| time.millis() / 1_000).collect::<Vec<_>>())
                .collect()
        })
    }
}

#[tokio::test]
async fn a_source_that_hangs_is_left_behind_and_taken_up_again_when_it_answers() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let meminfo = tree.path().join("proc/meminfo");
    hanging(&meminfo);
    let mut running = Running::over(tree);
    running.set(101_000);
    wait_for("a worker to read", || running.collectors.shared.is_in("memory"));
    running.set(102_000);
    wait_for("a tick to be skipped", || running.collectors.stats().ticks_skipped == 1);
    running.set(106_600);
    wait_for("memory to be left behind", || running.collectors.stats().hanging == 1);
    running.tick(107);
    running.tick(108);

    fs::rename(&meminfo, running.tree.path().join("fifo")).unwrap();
    fs::copy(recording("first").join("proc/meminfo"), &meminfo).unwrap();
    let_go(&running.tree.path().join("fifo"));
    wait_for("memory to answer", || running.collectors.stats().hanging == 0);
    running.tick(109);
    running.tick(110);
    let [load, memory] = running.seconds(["node_load1", "node_memory_MemFree_bytes"]).await;
    assert_eq!(load, [107, 108, 109, 110], "nothing of the tick that hung: when it was over its time was long past");
    assert_eq!(memory, [109, 110]);
}

#[tokio::test]
async fn a_walk_over_processes_keeps_no_tick_waiting() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let stat = tree.path().join("proc/4242/stat");
    hanging(&stat);
    let mut running = Running::over(tree);
    for second in 101..=104 {
        running.tick(second);
        wait_for("the walk", || running.collectors.shared.is_in("processes"));
    }
    assert_eq!(running.collectors.stats().ticks_skipped, 0);
    let_go(&stat);
    wait_for("the walk to end", || !running.collectors.shared.is_in("processes"));
    let [processes] = running.seconds(["num_running_processes"]).await;
    assert_eq!(processes, [101], "with the time of the tick it began at");
}

#[tokio::test]
async fn what_is_shorter_than_an_interval_has_a_sample_at_its_start_and_one_at_its_end() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let db = Db::open(database.path(), Options::default()).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions::default()).unwrap();
    let clock = Arc::new(Hands { wall_millis: AtomicI64::new(5_020) });
    let options = CollectOptions {
        interval: Duration::from_secs(60),
        sysroot: tree.path().to_path_buf(),
        at_ends: true,
        ..CollectOptions::new(2, "n1")
    };
    let collectors =
        Collectors::start(&options, db.clone(), writer.clone(), Arc::<Hands>::clone(&clock)).unwrap().unwrap();
    wait_for("the first tick", || collectors.stats().ticks == 1);
    clock.wall_millis.store(7_345, Ordering::Relaxed);
    collectors.stop();
    writer.shutdown(Duration::from_secs(60)).await.unwrap();
    let db = Db::open_read_only(database.path(), Options::default()).unwrap();
    let snapshot = db.snapshot();
    let points = snapshot.points(snapshot.select("node_load1", &[]), telem_engine::TimeRange::ALL).next();
    let millis: Vec<i64> = points.unwrap().unwrap().times.iter().map(|time| time.millis()).collect();
    assert_eq!(millis, [5_020, 7_345]);
}

fn infiniband(tree: &Path, lanes: u64) -> PathBuf {
    let counters = tree.join("sys/class/infiniband/mlx5_0/ports/1/counters");
    fs::create_dir_all(&counters).unwrap();
    fs::write(counters.join("port_rcv_data"), format!("{lanes}\n")).unwrap();
    counters.join("port_rcv_data")
}

#[tokio::test]
async fn hardware_that_is_there_has_a_thread_from_the_first_tick_on_and_what_is_not_there_has_none() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let mut running = Running::over(tree);
    running.tick(101);
    wait_for("the search", || running.collectors.stats().samples > 0 && !running.collectors.shared.is_in("processes"));
    running.tick(102);
    assert_eq!(running.collectors.shared.running(), [Part::Node, Part::Processes]);
    running.seconds(["node_load1"]).await;

    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    infiniband(tree.path(), 25);
    let mut running = Running::over(tree);
    running.tick(101);
    wait_for("the part of devices", || running.collectors.shared.has_sampled(Part::Fabrics, 101));
    running.tick(102);
    wait_for("the second tick", || running.collectors.shared.has_sampled(Part::Fabrics, 102));
    assert_eq!(running.collectors.shared.running(), [Part::Node, Part::Fabrics, Part::Processes]);
    let [received] = running.seconds(["node_infiniband_port_data_received_bytes_total"]).await;
    assert_eq!(received, [101, 102]);
}

#[tokio::test]
async fn hardware_that_comes_later_is_found_within_a_minute() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let mut running = Running::over(tree);
    running.tick(101);
    wait_for("the search", || running.collectors.stats().samples > 20 && !running.collectors.shared.is_in("processes"));
    infiniband(running.tree.path(), 25);
    running.tick(120);
    wait_for("the part of devices", || running.collectors.shared.has_sampled(Part::Fabrics, 120));
    let [received] = running.seconds(["node_infiniband_port_data_received_bytes_total"]).await;
    assert_eq!(received, [120]);
}

#[tokio::test]
async fn a_device_that_hangs_costs_no_tick_of_the_node_and_does_not_delay_the_end() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let counter = infiniband(tree.path(), 25);
    hanging(&counter);
    let mut running = Running::over(tree);
    running.tick(101);
    wait_for("the device", || running.collectors.shared.is_in("InfiniBand"));
    for second in 102..=105 {
        running.tick(second);
    }
    assert!(running.collectors.shared.is_in("InfiniBand"));
    assert_eq!(running.collectors.stats().ticks_skipped, 0);
    running.collectors.shared.stop();
    wait_for("all others to end", || running.collectors.shared.running() == [Part::Fabrics]);
    assert_eq!(running.collectors.shared.wait_for_end(Duration::ZERO), Err(vec!["InfiniBand"]));
    let_go(&counter);
    wait_for("the device to end too", || running.collectors.shared.running().is_empty());
}

fn energy(tree: &Path, micros: u64) {
    let zone = tree.join("sys/class/powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    for (file, text) in [("name", "package-0\n"), ("max_energy_range_uj", "65532610987\n")] {
        fs::write(zone.join(file), text).unwrap();
    }
    fs::write(zone.join("energy_uj"), format!("{micros}\n")).unwrap();
}

#[tokio::test]
async fn a_slow_fabric_costs_its_own_ticks_and_none_of_energy_or_file_systems() {
    let tree = tempfile::tempdir().unwrap();
    lay_over(&recording("first"), tree.path());
    let counter = infiniband(tree.path(), 25);
    hanging(&counter);
    energy(tree.path(), 1_000_000);
    let stats = tree.path().join("proc/fs/lustre/llite/scratch-ffff8a12");
    fs::create_dir_all(&stats).unwrap();
    fs::write(stats.join("stats"), "read_bytes 1 samples [bytes] 4096 4096 4096\n").unwrap();
    let mut running = Running::over(tree);
    for second in 101..=105 {
        running.tick(second);
        for part in [Part::Energy, Part::FileSystems] {
            wait_for("a part", || running.collectors.shared.has_sampled(part, second));
        }
        wait_for("the fabric", || running.collectors.shared.is_in("InfiniBand"));
    }
    let stats = running.collectors.stats();
    assert_eq!((stats.ticks_skipped, stats.device_ticks_skipped), (0, 4));
    let_go(&counter);
    let metrics = ["node_rapl_package_joules_total", "lustre_client_read_bytes_total"];
    let all: Vec<i64> = (101..=105).collect();
    assert_eq!(running.seconds(metrics).await, [all.clone(), all]);
}

/// How often it was read between two ticks.
#[derive(Debug)]
struct Between(Arc<AtomicI64>);

impl Subject for Between {
    fn sample(&mut self, _: &mut Out<'_>) {}

    fn refresh(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// 2,000 W for two minutes go three times around the counter of a package.
#[tokio::test]
async fn energy_is_exact_however_long_the_interval() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let at = |second: u64| energy(tree.path(), second * 2_000_000_000 % 65_532_610_987);
    at(0);
    let db = Db::open(database.path(), Options::default()).unwrap();
    let writer = Writer::start(db.clone(), WriterOptions::default()).unwrap();
    let clock = Arc::new(Hands { wall_millis: AtomicI64::new(0) });
    let interval = Duration::from_secs(120);
    let options = CollectOptions { interval, sysroot: tree.path().to_path_buf(), ..CollectOptions::new(2, "n1") };
    let shared: Arc<dyn Clock> = Arc::<Hands>::clone(&clock);
    let mut sampler = Sampler::new(&options, db.clone(), Arc::clone(&shared));
    let between = Arc::new(AtomicI64::new(0));
    sampler.add(Part::Energy, "what comes after the energy of CPUs", Box::new(Between(Arc::clone(&between))));
    let collectors = Collectors::start_sampler(&options, sampler, db.clone(), writer.clone(), shared).unwrap().unwrap();
    wait_for("the first tick", || collectors.shared.has_sampled(Part::Energy, 0));
    for turn in 1..4 {
        at(turn * 30);
        clock.wall_millis.store(turn as i64 * 30_000, Ordering::Relaxed);
        wait_for("energy to be read", || between.load(Ordering::Relaxed) == turn as i64);
    }
    assert_eq!(collectors.stats().ticks, 1);
    at(120);
    wait_for("the part", || collectors.shared.has_sampled(Part::Energy, 0));
    clock.wall_millis.store(120_000, Ordering::Relaxed);
    wait_for("the second tick", || collectors.shared.has_sampled(Part::Energy, 120));
    collectors.stop();
    writer.shutdown(Duration::from_secs(60)).await.unwrap();
    drop(db);
    let db = Db::open_read_only(database.path(), Options::default()).unwrap();
    let snapshot = db.snapshot();
    let series = snapshot.select("node_rapl_package_joules_total", &[]);
    let points = snapshot.points(series, telem_engine::TimeRange::ALL).next().unwrap().unwrap();
    let joules: Vec<f64> = (0..points.times.len()).map(|at| points.values.get(at).as_f64()).collect();
    assert_eq!(joules, [0.0, 240_000.0]);
}

/// GPUs whose library is played; how often one of them answered, and the process that reads them.
#[derive(Debug)]
struct Played {
    gpus: NvidiaGpus,
    answers: Arc<AtomicI64>,
    reader: Arc<AtomicI64>,
}

const PLAYED: &str = "played GPUs";

impl Subject for Played {
    fn search(&mut self) {
        self.gpus.search();
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        Cow::Owned(self.gpus.found())
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let up = self.gpus.sample(out).iter().filter(|(_, sample)| sample.up).count();
        self.answers.fetch_add(up as i64, Ordering::Relaxed);
        if let Some(pid) = self.gpus.reader_pid() {
            self.reader.store(i64::from(pid), Ordering::Relaxed);
        }
    }
}

struct RunningGpus {
    running: Running,
    stand_in: StandIn,
    answers: Arc<AtomicI64>,
    reader: Arc<AtomicI64>,
}

impl RunningGpus {
    fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        lay_over(&recording("first"), tree.path());
        fs::create_dir_all(tree.path().join("proc/driver/nvidia")).unwrap();
        fs::write(tree.path().join("proc/driver/nvidia/version"), "").unwrap();
        let stand_in = StandIn::new(Driver::New, H100);
        let [answers, reader]: [Arc<AtomicI64>; 2] = Default::default();
        let (how, root) = (as_child(&stand_in), Tree::new(tree.path()));
        let (counted, pid) = (Arc::clone(&answers), Arc::clone(&reader));
        let running = Running::with(tree, |sampler, clock| {
            let gpus = NvidiaGpus::new(&root, 4, how, clock);
            sampler.add(Part::Gpu, PLAYED, Box::new(Played { gpus, answers: counted, reader: pid }));
        });
        Self { running, stand_in, answers, reader }
    }

    fn answers(&self) -> i64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Lets the part have that tick too.
    fn tick(&mut self, second: i64) {
        self.running.tick(second);
        wait_for("the part", || self.running.collectors.shared.has_taken(Part::Gpu, second));
        wait_for("the GPUs", || !self.running.collectors.shared.is_in(PLAYED));
    }
}

#[tokio::test]
async fn calls_that_take_800_ms_cost_no_tick_of_another_subject() {
    let mut node = RunningGpus::new();
    node.stand_in.plays(&format!("{H100}* nvmlDeviceGetPowerUsage sleep_ms 800\n"));
    let mut second = 100;
    while node.answers() < 4 {
        assert!(second < 200, "no answer");
        second += 1;
        // The node's own tick is over while a GPU is asked: it waits for no answer.
        node.tick(second);
    }
    let stats = node.running.collectors.stats();
    assert_eq!((stats.ticks, stats.ticks_skipped, stats.hanging), ((second - 100) as u64, 0, 0));
    let [load] = node.running.seconds(["node_load1"]).await;
    assert_eq!(load, (101..=second).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_call_that_never_returns_costs_no_tick_and_does_not_delay_the_end() {
    let mut node = RunningGpus::new();
    let mut second = 100;
    while node.answers() < 2 {
        assert!(second < 200, "no answer");
        second += 1;
        node.tick(second);
    }
    node.stand_in.plays(&format!("{H100}* nvmlDeviceGetPowerUsage never\n"));
    for _ in 0..3 {
        second += 1;
        node.tick(second);
    }
    let reader = u32::try_from(node.reader.load(Ordering::Relaxed)).unwrap();
    assert_eq!(node.running.collectors.stats().ticks_skipped, 0);
    node.running.collectors.shared.stop();
    assert_eq!(node.running.collectors.shared.wait_for_end(STOP_TIMEOUT), Ok(()), "nothing is left behind");
    drop(node);
    is_gone(reader);
}
