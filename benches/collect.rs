//! Measures what collecting costs the job: CPU as a share of one core, and memory.
//!
//! It measures two things, for this machine and for the tree of a large node (256 CPUs, 5,000 processes; at level 3
//! also with a job of 256 and of 5,000 processes):
//! * one tick on one thread, read and appended to a database, over an hour of ticks whose times are 1 s apart. So work
//!   that is done every 5 s counts with its share, and memory holds as many samples as it ever does before a flush;
//! * all of it together (threads, group commit, fsync) at 1 s for [`LIVE`] of real time, as `telem serve` runs it.
//!
//! CPU time is the kernel's (`schedstat`, ns), so other load on the machine disturbs it little. The large node's tree
//! consists of plain files; a real kernel works more, because it makes their text anew for every read. Memory is how
//! much the process grew, with an hour of unflushed samples. Later rows reuse memory that earlier rows released.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use telem_benches::node_tree::{JOB, NodeSize, grow};
use telem_engine::{Clock, Db, Durability, Options, SystemClock, Timestamp};
use telem_ingest::collect::{CollectOptions, Collectors, JobTarget, Sampler};
use telem_ingest::writer::{Writer, WriterOptions};

const TICKS: i64 = 3_600;
const LIVE: Duration = Duration::from_secs(10);
/// When the simulated ticks begin.
const START: i64 = 1_767_322_800;

fn main() {
    // `cargo test --benches` and `-- --test` only check that it runs.
    let check = std::env::args().any(|arg| arg == "--test");
    let (ticks, live) = if check { (10, Duration::from_secs(1)) } else { (TICKS, LIVE) };
    let built = if cfg!(debug_assertions) { "debug" } else { "optimised" };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let size = if check { NodeSize { processes: 100, ..NodeSize::LARGE } } else { NodeSize::LARGE };
    grow(dir.path(), size).expect("the tree of a large node");
    let large = format!("{} CPUs, {} processes, recorded", size.cpus, size.processes);
    println!("{built} build; a tick every second");
    println!(
        "{:<38} {:>5} {:>8} {:>10} {:>10} {:>12} {:>9}",
        "node", "level", "samples", "read", "append", "of one core", "memory"
    );
    for (name, root) in [("this machine", Path::new("/")), (&*large, dir.path())] {
        for level in [2, 3, 4] {
            ticks_on_one_thread(name, root, level, ticks, None);
        }
    }
    let dearest = tempfile::tempdir().expect("a temporary directory");
    grow(dearest.path(), NodeSize { job_processes: size.processes, ..size }).expect("the tree of a large node");
    for (processes, root) in [(size.job_processes.min(size.processes), dir.path()), (size.processes, dearest.path())] {
        let name = format!("the same, a job of {processes} processes");
        ticks_on_one_thread(&name, root, 3, ticks, Some(JobTarget::of_node(JOB)));
    }
    for (name, root) in [("this machine", Path::new("/")), (&*large, dir.path())] {
        running(name, root, live);
    }
}

/// Reads and appends, one thread, times as fast as it goes.
fn ticks_on_one_thread(name: &str, root: &Path, level: u8, ticks: i64, job: Option<JobTarget>) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    let options = CollectOptions { job, sysroot: root.to_path_buf(), ..CollectOptions::new(level, "n1") };
    let memory_before = resident_bytes();
    let mut sampler = Sampler::new(&options, db.clone(), Arc::new(SystemClock::new()));
    // The first tick opens the files and makes the series.
    let first = sampler.sample(Timestamp::from_seconds(START), &[]);
    db.append(&first, Durability::Buffered).expect("room for it");
    let (mut read, mut append, mut samples) = (0, 0, 0);
    for tick in 1..=ticks {
        let began = thread_cpu_nanos();
        let batch = sampler.sample(Timestamp::from_seconds(START + tick), &[]);
        let sampled = thread_cpu_nanos();
        db.append(&batch, Durability::Buffered).expect("room for it");
        append += thread_cpu_nanos() - sampled;
        read += sampled - began;
        samples += batch.len() as u64;
    }
    let ticks = ticks.unsigned_abs();
    let memory = resident_bytes().saturating_sub(memory_before);
    println!(
        "{name:<38} {level:>5} {:>8.1} {:>7.0} us {:>7.0} us {:>10.3} % {:>6.1} MB",
        samples as f64 / ticks as f64,
        read as f64 / ticks as f64 / 1e3,
        append as f64 / ticks as f64 / 1e3,
        (read + append) as f64 / ticks as f64 / 1e9 * 100.0,
        memory as f64 / 1e6,
    );
}

/// Collectors and writer as a service runs them, at level 2.
fn running(name: &str, root: &Path, live: Duration) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let memory_before = resident_bytes();
    let db = Db::open(dir.path(), Options::default()).expect("a new database");
    let writer = Writer::start(db.clone(), WriterOptions::default()).expect("its threads");
    let options = CollectOptions { sysroot: root.to_path_buf(), ..CollectOptions::new(2, "n1") };
    let began = all_threads_cpu_nanos();
    let collectors = Collectors::start(&options, db, writer, Arc::clone(&clock)).expect("a thread").expect("level 2");
    thread::sleep(live);
    let used = all_threads_cpu_nanos() - began;
    let stats = collectors.stats();
    let memory = resident_bytes().saturating_sub(memory_before);
    println!(
        "running {:.0} s on {name}: {:.3} % of one core, {:.1} MB, {} ticks, {} skipped, {} samples",
        live.as_secs_f64(),
        used as f64 / live.as_nanos() as f64 * 100.0,
        memory as f64 / 1e6,
        stats.ticks,
        stats.ticks_skipped,
        stats.samples,
    );
    collectors.stop();
}

fn thread_cpu_nanos() -> u64 {
    cpu_nanos(Path::new("/proc/thread-self/schedstat"))
}

/// Of all threads that are alive.
fn all_threads_cpu_nanos() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks.flatten().map(|task| cpu_nanos(&task.path().join("schedstat"))).sum()
}

fn cpu_nanos(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kilobytes: Option<u64> = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    kilobytes.unwrap_or(0) * 1_024
}
