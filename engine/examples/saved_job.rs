//! Makes the saved databases of a job of many hosts, and measures opening them and answering a first dashboard.
//!
//! ```text
//! cargo run --release -p telem-engine --example saved_job -- make DIR [--hosts N] [--hours N] [--step SECONDS]
//! cargo run --release -p telem-engine --example saved_job -- ask DIR [--repeat N]
//! ```
//! `make` writes a directory with one database per host, merged and closed as `telem run` leaves it. Each host has 100
//! series under the names that the dashboard of a node queries: gauges with two decimals, counters, sizes and
//! constants, with values of its own from a fixed seed. The job begins at half past nine and ends the next day. `ask`
//! opens all of them as one database and reads what twelve panels of a day and of the last hour need. It prints CPU
//! seconds of the whole process and wall time.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use telem_engine::downsample::{DownsampleRequest, Function};
use telem_engine::{
    Clock, Db, Durability, Options, SampleBatch, SeriesId, SeriesKey, Snapshot, Step, SystemClock, TagSet, TimeRange,
    Timestamp, Value,
};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// 2026-01-05 09:30 UTC.
const START_S: i64 = 1_767_605_400;
/// Ticks in one batch.
const TICKS: i64 = 60;

/// How the values of a series go on.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Two decimals, between 0 and 100.
    Gauge,
    /// Bytes or events, which only grow.
    Counter,
    /// Seconds with two decimals, which only grow.
    Seconds,
    /// Bytes, in pages of 4 KiB, up and down.
    Size,
    /// Seldom another value.
    Constant,
}

/// A metric, its kind, and the tag besides the host with the values that it has.
type Metric = (&'static str, Kind, &'static str, &'static [&'static str]);

const ONE: &[&str] = &[""];
const MODES: &[&str] = &["user", "nice", "system", "irq", "softirq", "steal", "iowait", "idle"];
const RANKS: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7"];

const METRICS: [Metric; 44] = [
    ("cpu_percent", Kind::Gauge, "", ONE),
    ("load_average", Kind::Gauge, "", ONE),
    ("used_RAM", Kind::Gauge, "", ONE),
    ("num_running_processes", Kind::Constant, "", ONE),
    ("node_procs_running", Kind::Constant, "", ONE),
    ("node_procs_blocked", Kind::Constant, "", ONE),
    ("node_cpu_seconds_total", Kind::Seconds, "mode", MODES),
    ("node_pressure_cpu_waiting_seconds_total", Kind::Seconds, "", ONE),
    ("node_pressure_memory_waiting_seconds_total", Kind::Seconds, "", ONE),
    ("node_pressure_memory_stalled_seconds_total", Kind::Constant, "", ONE),
    ("node_pressure_io_waiting_seconds_total", Kind::Seconds, "", ONE),
    ("node_pressure_io_stalled_seconds_total", Kind::Constant, "", ONE),
    ("node_memory_AnonPages_bytes", Kind::Size, "", ONE),
    ("node_memory_Slab_bytes", Kind::Size, "", ONE),
    ("node_memory_Buffers_bytes", Kind::Size, "", ONE),
    ("node_memory_Cached_bytes", Kind::Size, "", ONE),
    ("node_memory_MemFree_bytes", Kind::Size, "", ONE),
    ("node_memory_MemTotal_bytes", Kind::Constant, "", ONE),
    ("node_memory_SwapTotal_bytes", Kind::Constant, "", ONE),
    ("node_memory_SwapFree_bytes", Kind::Constant, "", ONE),
    ("node_memory_Dirty_bytes", Kind::Size, "", ONE),
    ("node_memory_Writeback_bytes", Kind::Constant, "", ONE),
    ("node_vmstat_pgmajfault", Kind::Counter, "", ONE),
    ("node_vmstat_pswpin", Kind::Constant, "", ONE),
    ("node_vmstat_pswpout", Kind::Constant, "", ONE),
    ("node_vmstat_oom_kill", Kind::Constant, "", ONE),
    ("node_disk_read_bytes_total", Kind::Counter, "", ONE),
    ("node_disk_written_bytes_total", Kind::Counter, "", ONE),
    ("node_disk_reads_completed_total", Kind::Counter, "", ONE),
    ("node_disk_writes_completed_total", Kind::Counter, "", ONE),
    ("node_disk_io_time_seconds_total", Kind::Seconds, "", ONE),
    ("node_filesystem_avail_bytes", Kind::Size, "mountpoint", &["/", "/tmp", "/scratch"]),
    ("node_network_receive_bytes_total", Kind::Counter, "", ONE),
    ("node_network_transmit_bytes_total", Kind::Counter, "", ONE),
    ("node_network_receive_errs_total", Kind::Constant, "", ONE),
    ("node_network_transmit_errs_total", Kind::Constant, "", ONE),
    ("node_network_receive_drop_total", Kind::Constant, "", ONE),
    ("node_network_transmit_drop_total", Kind::Constant, "", ONE),
    ("node_infiniband_port_data_received_bytes_total", Kind::Counter, "", ONE),
    ("node_infiniband_port_data_transmitted_bytes_total", Kind::Counter, "", ONE),
    ("train.loss", Kind::Gauge, "rank", RANKS),
    ("train.samples", Kind::Counter, "rank", RANKS),
    ("gpu_utilization_percent", Kind::Gauge, "gpu", RANKS),
    ("gpu_memory_used_bytes", Kind::Size, "gpu", RANKS),
];

/// With these, a host has 100 series.
const MORE: Metric = (
    "node_interrupts_total",
    Kind::Counter,
    "cpu",
    &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18"],
);

/// What a panel asks: a metric, the tag to whose values it is narrowed, and what is made of a bucket.
type Panel = (&'static str, Option<(&'static str, &'static str)>, Function);

const PANELS: [Panel; 12] = [
    ("load_average", None, Function::Avg),
    ("cpu_percent", None, Function::Avg),
    ("used_RAM", None, Function::Avg),
    ("node_procs_running", None, Function::Avg),
    ("node_cpu_seconds_total", Some(("mode", "user")), Function::First),
    ("node_cpu_seconds_total", Some(("mode", "system")), Function::First),
    ("node_memory_AnonPages_bytes", None, Function::Avg),
    ("node_memory_MemFree_bytes", None, Function::Avg),
    ("node_disk_read_bytes_total", None, Function::First),
    ("node_disk_written_bytes_total", None, Function::First),
    ("node_network_receive_bytes_total", None, Function::First),
    ("node_network_transmit_bytes_total", None, Function::First),
];

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let usage = "saved_job make|ask DIR [--hosts N] [--hours N] [--step SECONDS] [--repeat N]";
    let (verb, dir) = (arguments.next().ok_or(usage)?, PathBuf::from(arguments.next().ok_or(usage)?));
    let mut numbers = BTreeMap::from([("--hosts", 1_000), ("--hours", 24), ("--step", 10), ("--repeat", 3)]);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} wants a value"))?;
        *numbers.get_mut(&*argument).ok_or_else(|| format!("no argument {argument}"))? = value.parse()?;
    }
    match &*verb {
        "make" => make(&dir, numbers["--hosts"], numbers["--hours"] * 3_600, numbers["--step"]),
        "ask" => ask(&dir, numbers["--repeat"]),
        _ => Err(usage.into()),
    }
}

fn make(dir: &Path, hosts: i64, seconds: i64, step: i64) -> Result<(), Failed> {
    let next = AtomicUsize::new(1);
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let work = || -> Result<(), Failed> {
            loop {
                let host = next.fetch_add(1, Ordering::Relaxed);
                if host as i64 > hosts {
                    return Ok(());
                }
                make_host(dir, host, seconds, step)?;
            }
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread died")?)
    })
}

/// The database of one host, merged and closed.
fn make_host(dir: &Path, host: usize, seconds: i64, step: i64) -> Result<(), Failed> {
    let name = format!("nid{host:05}");
    let options = Options { node: name.clone(), memtable_bytes_flush: 96 << 20, ..Options::default() };
    let db = Db::open(&dir.join(&name), options)?;
    let mut state = host as u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut series: Vec<(SeriesId, Kind, f64)> = Vec::new();
    for (metric, kind, tag, values) in METRICS.iter().chain([&MORE]) {
        for value in *values {
            let tags = [("host", &*name), (tag, value)].into_iter().filter(|(tag, _)| !tag.is_empty());
            let key = SeriesKey::new(metric, TagSet::new(tags)?)?;
            series.push((db.series(&key)?, *kind, (unit() * 1e4).floor()));
        }
    }
    let mut from = 0;
    while from < seconds {
        let until = (from + TICKS * step).min(seconds);
        let mut batch = SampleBatch::with_capacity(series.len() * TICKS as usize);
        for at in (from..until).step_by(usize::try_from(step)?) {
            let time = Timestamp::from_seconds(START_S + at);
            for (id, kind, level) in &mut series {
                batch.push(*id, time, next_value(*kind, level, &mut unit));
            }
        }
        db.append(&batch, Durability::Buffered)?;
        from = until;
    }
    db.flush()?;
    db.compact()?;
    Ok(db.close()?)
}

fn next_value(kind: Kind, level: &mut f64, unit: &mut impl FnMut() -> f64) -> Value {
    match kind {
        Kind::Gauge => {
            *level = (*level + 2.0 * unit() - 1.0).clamp(0.0, 100.0);
            Value::Float((*level * 100.0).round() / 100.0)
        }
        Kind::Counter => {
            // Idle most of the time, as most interfaces and disks are.
            *level += if unit() < 0.7 { 0.0 } else { (unit() * 40_000.0).floor() };
            Value::Int(*level as i64)
        }
        Kind::Seconds => {
            *level += unit();
            Value::Float((*level * 100.0).round() / 100.0)
        }
        Kind::Size => {
            *level = (*level + (unit() * 9.0).floor() - 4.0).max(0.0);
            Value::Int(*level as i64 * 4_096)
        }
        Kind::Constant => {
            *level = if unit() < 0.001 { (unit() * 9.0).floor() } else { *level };
            Value::Int(*level as i64)
        }
    }
}

fn ask(dir: &Path, repeat: i64) -> Result<(), Failed> {
    let mut dirs: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    dirs.sort();
    let clock = SystemClock::new();
    for round in 0..repeat {
        let options = Options { segment_files_max: 16_384, segment_bytes_max: 512 << 20, ..Options::default() };
        let opening = Meter::start(&clock)?;
        let db = Db::open_together(&dirs, options)?;
        opening.stop(&format!("round {round}: open {} databases", dirs.len()))?;
        let info = db.info()?;
        let (first, last) = info.time_bounds.ok_or("there are no samples")?;
        println!("  {} samples of {} series in {} segments", info.samples, info.series, info.segment_files.len());
        let snapshot = db.snapshot();
        let end = last.micros() + 1;
        for (what, from, step_s) in [
            ("a day by 5 minutes", first.micros(), 300),
            ("the last hour by minute", end - 3_600_000_000, 60),
            ("a day by 5 minutes, again", first.micros(), 300),
            ("the last hour by minute, again", end - 3_600_000_000, 60),
        ] {
            let range = TimeRange::new(Timestamp::from_micros(from), Timestamp::from_micros(end));
            let all = Meter::start(&clock)?;
            let mut buckets = 0;
            for panel in PANELS {
                buckets += buckets_of(&snapshot, panel, range, step_s)?;
            }
            all.stop(&format!("  12 panels of {what}: {buckets} buckets"))?;
        }
    }
    Ok(())
}

fn buckets_of(
    snapshot: &Snapshot,
    (metric, tag, function): Panel,
    range: TimeRange,
    step_s: i64,
) -> Result<usize, Failed> {
    let wanted = |found: &str| tag.is_none_or(|(_, value)| value == found);
    let predicates: Vec<_> =
        tag.iter().map(|(key, _)| telem_engine::TagPredicate { key, accepts: &wanted, among: None }).collect();
    let series = snapshot.select(metric, &predicates);
    let step = Step::from_micros(step_s * 1_000_000).ok_or("a step is positive")?;
    let mut found = 0;
    for buckets in snapshot.downsample(DownsampleRequest { series, range, step, function }) {
        found += black_box(buckets?).values.len();
    }
    Ok(found)
}

/// Seconds of the clock and of this process's processors.
struct Meter<'a> {
    clock: &'a SystemClock,
    began: f64,
    cpu: f64,
}

impl<'a> Meter<'a> {
    fn start(clock: &'a SystemClock) -> Result<Self, Failed> {
        Ok(Self { clock, began: clock.monotonic().as_secs_f64(), cpu: cpu_seconds()? })
    }

    fn stop(self, what: &str) -> Result<(), Failed> {
        let (cpu, wall) = (cpu_seconds()? - self.cpu, self.clock.monotonic().as_secs_f64() - self.began);
        println!("{what}: {cpu:.2} s of CPU, {wall:.2} s");
        Ok(())
    }
}

/// Of all threads of this process, those that ended included.
fn cpu_seconds() -> Result<f64, Failed> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in parentheses, may hold anything.
    let after = stat.rsplit_once(')').ok_or("a strange /proc/self/stat")?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}
