//! Recorded trees in, samples out: what each level collects, and that nothing in a tree can do harm.

mod garbage;
mod job_and_files;
mod machines;
mod parts;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use telem_engine::{Options, SeriesKey, SystemClock, Timestamp, Value};
use tempfile::TempDir;

use super::*;

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/proc").join(name)
}

/// Copies over what is there, so that files stay open where they are: that is how the kernel changes them.
fn lay_over(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_symlink() {
            // As sysfs has them: they lead nowhere outside of the tree, or to nothing.
            let _ = fs::remove_file(&to);
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), to).unwrap()
        } else if entry.path().is_dir() {
            lay_over(&entry.path(), &to)
        } else {
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap()
        }
    }
}

/// A sampler over a tree of its own.
struct World {
    tree: TempDir,
    db: Db,
    sampler: Sampler,
    _database: TempDir,
}

impl World {
    /// Nothing in the tree.
    fn empty(level: u8) -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Self::over(level, tree, database)
    }

    fn recorded(level: u8) -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        lay_over(&recording("first"), tree.path());
        Self::over(level, tree, database)
    }

    /// The processes of the recording are those of a job.
    fn of_job(level: u8) -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        lay_over(&recording("first"), tree.path());
        for (pid, environ) in [(4242, "TELEM_JOB=j1\0PMI_RANK=3\0"), (4243, "TELEM_JOB=j1\0")] {
            fs::write(tree.path().join(format!("proc/{pid}/environ")), environ).unwrap();
        }
        Self::following(level, tree, database, Some(JobTarget::of_node("j1")))
    }

    fn over(level: u8, tree: TempDir, database: TempDir) -> Self {
        Self::following(level, tree, database, None)
    }

    fn following(level: u8, tree: TempDir, database: TempDir, job: Option<JobTarget>) -> Self {
        let db = Db::open(database.path(), Options::default()).unwrap();
        let options = CollectOptions {
            job,
            sysroot: tree.path().to_path_buf(),
            space: Arc::new(|_| Err(std::io::ErrorKind::Unsupported.into())),
            ..CollectOptions::new(level, "n1")
        };
        let sampler = Sampler::new(&options, db.clone(), Arc::new(SystemClock::new()));
        Self { tree, db, sampler, _database: database }
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The samples of a tick, by series; what telem says of itself is left out.
    fn tick(&mut self, second: i64) -> BTreeMap<String, Value> {
        let batch = self.sampler.sample(Timestamp::from_seconds(second), &[]);
        let mut samples = BTreeMap::new();
        for (id, time, value) in batch.iter() {
            let key = self.db.index().key(id).unwrap();
            // A process of the job begins with 0 at the tick before.
            if time < Timestamp::from_seconds(second) && key.metric() == "job_process_cpu_seconds_total" {
                continue;
            }
            // Measured by somebody else, a moment before.
            let is_own_time = key.metric().starts_with("cray_pm_") && time > Timestamp::from_seconds(second - 1);
            assert!(time == Timestamp::from_seconds(second) || is_own_time, "{key} at {time}");
            assert_eq!(key.tags().get("host"), Some("n1"));
            if !key.metric().starts_with("telem_") {
                let twice = samples.insert(label(&key), value);
                assert_eq!(twice, None, "{key}");
            }
        }
        samples
    }

    fn two_ticks(&mut self) -> [BTreeMap<String, Value>; 2] {
        let first = self.tick(1_000);
        lay_over(&recording("second"), self.tree.path());
        [first, self.tick(1_005)]
    }
}

/// `metric{key=value,...}` without the host; the braces too where nothing is left.
fn label(key: &SeriesKey) -> String {
    let tags: Vec<String> =
        key.tags().iter().filter(|(key, _)| *key != "host").map(|(key, value)| format!("{key}={value}")).collect();
    if tags.is_empty() { key.metric().to_owned() } else { format!("{}{{{}}}", key.metric(), tags.join(",")) }
}

fn text(ticks: &[BTreeMap<String, Value>]) -> String {
    let mut text = String::new();
    for (at, tick) in ticks.iter().enumerate() {
        writeln!(text, "tick {}", at + 1).unwrap();
        tick.iter().for_each(|(series, value)| writeln!(text, "{series} {value}").unwrap());
    }
    text
}

fn metric(series: &str) -> &str {
    series.split('{').next().unwrap()
}

#[test]
fn two_ticks_of_a_recorded_node_at_each_level() {
    for (level, golden) in [
        (2, expect_file!["../../../fixtures/proc/level2.txt"]),
        (3, expect_file!["../../../fixtures/proc/level3.txt"]),
        (4, expect_file!["../../../fixtures/proc/level4.txt"]),
    ] {
        golden.assert_eq(&text(&World::of_job(level).two_ticks()));
    }
}

#[test]
fn a_sum_over_all_series_of_a_name_says_the_same_at_level_2_and_3() {
    let sums = |level| {
        let mut sums: BTreeMap<(usize, String), f64> = BTreeMap::new();
        for (at, tick) in World::recorded(level).two_ticks().iter().enumerate() {
            for (series, value) in tick {
                // The two modes of a CPU that are compared are those of the whole node.
                *sums.entry((at, metric(series).to_owned())).or_default() += value.as_f64();
            }
        }
        sums
    };
    let (two, mut three) = (sums(2), sums(3));
    three.retain(|(_, metric), _| describe(metric).unwrap().level <= 2);
    assert_eq!(two.keys().collect::<Vec<_>>(), three.keys().collect::<Vec<_>>());
    for ((key, two), three) in two.iter().zip(three.values()) {
        // The kernel cuts the time of each CPU and mode to whole ticks.
        let of_cutting = if key.1 == "node_cpu_seconds_total" { 2.0 * 8.0 / 100.0 } else { 1e-6 };
        assert!((two - three).abs() <= of_cutting, "{key:?}: {two} and {three}");
    }
}

#[test]
fn a_node_without_files_yields_no_samples_and_no_series() {
    for level in 2..=3 {
        let mut world = World::empty(level);
        assert_eq!(world.tick(10), BTreeMap::new());
        assert_eq!(world.db.index().len(), 0);
    }
}

#[test]
fn files_that_come_and_go_are_noticed() {
    let mut world = World::empty(2);
    assert!(world.tick(10).is_empty());
    world.write("proc/loadavg", "1.50 0.75 0.25 1/98 22976\n");
    assert_eq!(world.tick(11)["load_average"], Value::Float(1.5));
    world.write("proc/loadavg", "nonsense");
    assert!(world.tick(12).is_empty());
    world.write("proc/loadavg", "2.00 0.75 0.25 1/98 22976\n");
    assert_eq!(world.tick(13)["node_load1"], Value::Float(2.0));
}

/// `cpu` lines of a node whose modes are all the same but user and idle.
fn stat(user: u64, idle: u64) -> String {
    format!("cpu {user} 0 10 {idle} 5 0 0 0 7 0\ncpu0 {user} 0 10 {idle} 5 0 0 0 7 0\n")
}

#[test]
fn cpu_percent_needs_two_readings_and_counts_what_is_neither_idle_nor_waiting() {
    let mut world = World::empty(2);
    world.write("proc/stat", stat(100, 1_000));
    assert!(!world.tick(1).contains_key("cpu_percent"));
    world.write("proc/stat", stat(130, 1_060));
    assert_eq!(world.tick(2)["cpu_percent"], Value::Float(33.33));
    assert!(!world.tick(3).contains_key("cpu_percent"), "no time passed");
    world.write("proc/stat", stat(230, 1_000));
    assert_eq!(world.tick(4)["cpu_percent"], Value::Float(100.0), "idle time that is taken back counts nothing");
}

#[test]
fn idle_time_that_the_kernel_takes_back_a_little_does_not_fall() {
    let mut world = World::empty(3);
    let mut idle = |second, ticks| {
        world.write("proc/stat", stat(1, ticks));
        world.tick(second)["node_cpu_seconds_total{cpu=0,mode=idle}"]
    };
    assert_eq!(idle(1, 1_000), Value::Float(10.0));
    assert_eq!(idle(2, 990), Value::Float(10.0));
    assert_eq!(idle(3, 1_010), Value::Float(10.1));
    assert_eq!(idle(4, 2), Value::Float(0.02), "a CPU that was taken away and came back starts anew");
}

#[test]
fn cpus_beyond_the_limit_get_no_series() {
    let mut world = World::empty(3);
    let line = |cpu: usize| format!("cpu{cpu} 1 1 1 1 1 1 1 1 0 0\n");
    world.write("proc/stat", line(cpu::CPUS_MAX - 1) + &line(cpu::CPUS_MAX));
    assert_eq!(world.tick(1).len(), 8);
}

#[test]
fn disks_are_hardware_and_only_where_sys_cannot_say_are_names_believed() {
    for (name, whole) in [
        ("sda", true),
        ("sda1", false),
        ("vdb", true),
        ("xvda", true),
        ("dasda", true),
        ("nvme0n1", true),
        ("nvme0n1p2", false),
        ("mmcblk0", true),
        ("mmcblk0p1", false),
        ("loop0", false),
        ("ram0", false),
        ("zram0", false),
        ("dm-3", false),
        ("md127", false),
        ("sd", false),
        ("nvme", false),
    ] {
        assert_eq!(disk::is_disk(name.as_bytes()), whole, "{name}");
    }
    let lines = "8 0 sda 1 0 2 3 4 0 6 7 8 9 10\n8 1 sda1 1 0 2 3 4 0 6 7 8 9 10\n253 0 dm-0 1 0 2 3 4 0 6 7 8 9 10\n";
    let mut without_sys = World::empty(3);
    without_sys.write("proc/diskstats", lines);
    let first = without_sys.tick(1);
    assert_eq!(first["node_disk_read_bytes_total{device=sda}"], Value::Int(1_024));
    assert_eq!(first.len(), 9);

    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("sys/block/dm-0")).unwrap();
    let mut in_a_container = World::over(3, tree, tempfile::tempdir().unwrap());
    in_a_container.write("proc/diskstats", lines);
    assert!(in_a_container.tick(1).is_empty(), "there is a /sys, and nothing in it is hardware");
}

#[test]
fn where_no_interface_is_hardware_all_but_loopback_count() {
    let mut world = World::empty(2);
    let line = |name: &str, bytes: u64| format!("{name:>6}:{bytes} 1 0 0 0 0 0 0 {bytes} 1 0 0 0 0 0 0\n");
    world.write(
        "proc/net/dev",
        format!("Inter-| Receive\n face |bytes\n{}{}{}", line("lo", 1_000), line("eth0", 5), line("eth1", 6)),
    );
    assert_eq!(world.tick(1)["node_network_receive_bytes_total"], Value::Int(11));
}

/// A container that has the host's root elsewhere: `proc/net` there still says what the container sees.
#[test]
fn below_another_root_the_network_is_that_of_its_first_process() {
    let tree = tempfile::tempdir().unwrap();
    let line = |bytes: u64| format!("eth0: {bytes} 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n");
    for (of, bytes) in [("proc", 5), ("proc/1", 7_000)] {
        fs::create_dir_all(tree.path().join(of).join("net")).unwrap();
        fs::write(tree.path().join(of).join("net/dev"), line(bytes)).unwrap();
    }
    let mut world = World::over(2, tree, tempfile::tempdir().unwrap());
    assert_eq!(world.tick(1)["node_network_receive_bytes_total"], Value::Int(7_000));
}

#[test]
fn devices_beyond_the_limit_make_room_when_others_are_gone() {
    let mut world = World::empty(3);
    let line = |name: usize| format!("veth{name}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n");
    let max = devices::DEVICES_MAX;
    world.write("proc/net/dev", (0..max).map(line).collect::<String>());
    assert_eq!(world.tick(1).len(), max * 8);
    world.write("proc/net/dev", (0..=max).map(line).collect::<String>());
    assert_eq!(world.tick(2).len(), max * 8, "one too many");
    world.write("proc/net/dev", (1..=max).map(line).collect::<String>());
    assert!(world.tick(3).contains_key(&format!("node_network_receive_bytes_total{{device=veth{max}}}")));
}

#[test]
fn infiniband_is_asked_once_a_second_and_counts_lanes() {
    let mut world = World::empty(2);
    for (port, lanes) in [(1, 10), (2, 20)] {
        world.write(&format!("sys/class/infiniband/mlx5_0/ports/{port}/counters/port_rcv_data"), format!("{lanes}\n"));
    }
    assert_eq!(text(&[world.tick(1)]), "tick 1\nnode_infiniband_port_data_received_bytes_total 120\n");
    let batch = world.sampler.sample(Timestamp::from_millis(1_900), &[]);
    assert!(batch.is_empty());
}

fn write_process(world: &World, pid: u32, comm: &str, started: u64) {
    let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 0 1 0 2 0 30 12 0 0 20 0 3 0 {started} 4096 5 0 0");
    world.write(&format!("proc/{pid}/stat"), stat);
}

#[test]
fn processes_are_walked_over_every_five_seconds_and_described_when_met_again() {
    let mut world = World::empty(4);
    write_process(&world, 7, "a (b) c", 100);
    let first = world.tick(10);
    assert_eq!(first["num_running_processes"], Value::Int(1));
    assert_eq!(first.len(), 1, "nobody knows yet whether it stays");
    assert!(world.tick(14).is_empty());
    let second = world.tick(15);
    assert_eq!(second["process_cpu_seconds_total{comm=a (b) c,pid=7}"], Value::Float(0.42));
    assert_eq!(second["process_resident_memory_bytes{comm=a (b) c,pid=7}"], Value::Int(5 * 4_096));
    assert_eq!(second["process_threads{comm=a (b) c,pid=7}"], Value::Int(3));

    write_process(&world, 7, "other", 900);
    assert_eq!(world.tick(20).len(), 1, "another process with the same number");
    assert!(world.tick(25).contains_key("process_threads{comm=other,pid=7}"));
}

#[test]
fn threads_of_the_kernel_are_counted_and_not_described() {
    let mut world = World::empty(4);
    world.write("proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 0 0 0 0 0 0 12 0 0 20 0 1 0 1 0 0 0 0");
    world.tick(10);
    assert_eq!(text(&[world.tick(15)]), "tick 1\nnum_running_processes 1\n");
}

#[test]
fn beyond_the_limit_the_processes_with_the_most_cpu_time_have_series_and_the_others_are_counted() {
    let mut world = World::empty(4);
    let max = u32::try_from(processes::PROCESSES_MAX).unwrap();
    let write = |world: &World, pid: u32, ticks: u32, pages: u32| {
        let stat = format!("{pid} (many) S 1 1 1 0 -1 0 1 0 2 0 {ticks} 0 0 0 20 0 3 0 1 4096 {pages} 0 0");
        world.write(&format!("proc/{pid}/stat"), stat);
    };
    (1..=max).for_each(|pid| write(&world, pid, 50, 5));
    let skipped = |world: &mut World, second| {
        let batch = world.sampler.sample(Timestamp::from_seconds(second), &[]);
        let of = |id| world.db.index().key(id).unwrap();
        batch.iter().find(|(id, ..)| of(*id).metric() == "telem_ingest_processes_skipped").map(|(_, _, value)| value)
    };
    assert_eq!(skipped(&mut world, 5), Some(Value::Int(0)), "as many as may be");
    // One that computed more, and one that holds more memory.
    write(&world, max + 1, 51, 5);
    write(&world, max + 2, 50, 6);
    assert_eq!(skipped(&mut world, 10), Some(Value::Int(2)));
    let second = world.tick(15);
    assert_eq!(second["num_running_processes"], Value::Int(i64::from(max) + 2));
    let described = |pid: u32| second.contains_key(&format!("process_threads{{comm=many,pid={pid}}}"));
    assert!(described(max + 1) && described(max + 2) && described(max - 2));
    assert!(!described(max - 1) && !described(max));
    assert_eq!(skipped(&mut world, 20), Some(Value::Int(2)), "of one walk, however many there were");
}

#[test]
fn what_every_node_tells_and_this_one_does_not_is_said_once() {
    let mut world = World::empty(2);
    let proc = world.tree.path().join("proc");
    world.tick(10);
    let all = "no CPU times, no load average, no memory, no network interfaces, no processes";
    assert_eq!(world.sampler.take_lacks(), Some(format!("{all} in {}", proc.display())));
    world.tick(15);
    assert_eq!(world.sampler.take_lacks(), None);

    let mut whole = World::recorded(4);
    whole.two_ticks();
    assert_eq!(whole.sampler.take_lacks(), None, "and nothing of what some nodes do not have");
    for name in ["stat", "loadavg", "meminfo", "net/dev"] {
        whole.write(&format!("proc/{name}"), [0xff, 0, b'\n', 7]);
        whole.write(&format!("proc/1/{name}"), [0xff, 0, b'\n', 7]);
    }
    whole.tick(1_007);
    let damaged = whole.sampler.take_lacks().unwrap();
    assert!(damaged.starts_with("no CPU times, no load average, no memory, no network interfaces in "), "{damaged}");
}

#[test]
fn processes_of_others_are_not_ours() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let db = Db::open(database.path(), Options::default()).unwrap();
    let uid = rustix::process::getuid().as_raw() + 1;
    let options = CollectOptions { uid, sysroot: tree.path().to_path_buf(), ..CollectOptions::new(4, "n1") };
    let sampler = Sampler::new(&options, db.clone(), Arc::new(SystemClock::new()));
    let mut world = World { tree, db, sampler, _database: database };
    let [_, second] = world.two_ticks();
    assert_eq!(second["num_running_processes"], Value::Int(0));
    assert!(!second.keys().any(|series| series.starts_with("process_")));
}

#[test]
fn telem_tells_of_itself_at_level_4() {
    let tree = tempfile::tempdir().unwrap();
    let database = tempfile::tempdir().unwrap();
    let db = Db::open(database.path(), Options::default()).unwrap();
    let told = OwnMetrics::new(|put| put("telem_engine_series", Value::Int(42)));
    let options = CollectOptions { own: told, sysroot: tree.path().to_path_buf(), ..CollectOptions::new(4, "n1") };
    let mut sampler = Sampler::new(&options, db.clone(), Arc::new(SystemClock::new()));
    for second in [1, 2] {
        let batch =
            sampler.sample(Timestamp::from_seconds(second), &[("telem_ingest_ticks_total", Value::Int(second))]);
        let value = |name: &str| {
            batch.iter().find(|(id, ..)| db.index().key(*id).unwrap().metric() == name).map(|(_, _, value)| value)
        };
        assert_eq!(value("telem_engine_series"), Some(Value::Int(42)));
        assert_eq!(value("telem_ingest_ticks_total"), Some(Value::Int(second)));
        assert!(value("telem_server_resident_memory_bytes").unwrap().as_f64() > 100_000.0, "of this process");
    }
}

#[test]
fn a_full_database_refuses_series_and_keeps_those_it_has() {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    lay_over(&recording("first"), tree.path());
    let db = Db::open(database.path(), Options { series_max: 10, ..Options::default() }).unwrap();
    let options = CollectOptions { sysroot: tree.path().to_path_buf(), ..CollectOptions::new(2, "n1") };
    let mut sampler = Sampler::new(&options, db, Arc::new(SystemClock::new()));
    assert_eq!(sampler.sample(Timestamp::from_seconds(1), &[]).len(), 10);
    assert!(sampler.take_refused() > 20);
}

#[test]
fn the_database_describes_what_its_level_collects() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    describe_all(&db, 3).unwrap();
    let snapshot = db.snapshot();
    let meta = snapshot.meta().metric("node_memory_MemFree_bytes").unwrap();
    assert_eq!((meta.unit.as_str(), meta.help.as_str()), ("bytes", "Memory that nothing uses"));
    assert!(snapshot.meta().metric("process_threads").is_none());
    assert_eq!(snapshot.meta().metrics().count(), catalog().iter().filter(|metric| metric.level <= 3).count());
}
