//! Measures what reading the GPUs of a node with 8 of NVIDIA's costs, all but the driver: the library is the stand-in of
//! `fixtures/nvml`, built here, whose own time is subtracted.
//!
//! It measures levels 2 and 3, ticks whose times are 1 s apart and that follow each other faster, but not faster than
//! GPM allows. Own CPU is that of the sampling thread, less what a tick without GPUs takes, and of the reader, a process of
//! its own.
//! CPU time is the kernel's (`schedstat`, ns), which counts up to where a thread last stopped running, so it is read
//! after a stop. Memory is how much this process grew, and what the reader has for itself
//! (`smaps_rollup`, private and dirty), which is this binary, smaller than telem.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use telem_engine::{Db, Options, SystemClock, Timestamp};
use telem_ingest::collect::{CollectOptions, Sampler, VendorReader, read_gpus_for_parent};

const TICKS: u64 = 600;
const GPUS: u32 = 8;
/// The least that GPM needs between two samples, and a little.
const PAUSE: Duration = Duration::from_millis(110);
const MARK: &str = "as-a-reader";

const OF_EACH: &str = "\
* nvmlSystemGetDriverVersion text 550.54.15
* nvmlDeviceGetName text NVIDIA H100 80GB HBM3
* nvmlDeviceGetUtilizationRates value 87 33
* nvmlDeviceGetMemoryInfo_v2 value 85520809984 620756992 64424509440 20475543552
* nvmlDeviceGetPowerUsage value 412345
* nvmlDeviceGetTotalEnergyConsumption value 110000250
* nvmlDeviceGetTemperature.0 value 61
* nvmlDeviceGetClockInfo.1 value 1980
* nvmlDeviceGetClockInfo.2 value 2619
* nvmlDeviceGetEnforcedPowerLimit value 700000
* nvmlDeviceGetFieldValues.74 value 1500000000
* nvmlDeviceGetFieldValues.251 value 200000000
* nvmlDeviceGetFieldValues.252 value 50000000
* nvmlDeviceGetFieldValues.253 value 0
* nvmlDeviceGetFieldValues.82 value 54
* nvmlDeviceGetTotalEccErrors.0 value 12
* nvmlDeviceGetTotalEccErrors.1 value 1
* nvmlDeviceGetPcieReplayCounter value 3
* nvmlDeviceGetMigMode value 0
* nvmlGpmQueryDeviceSupport value 1
* nvmlGpmMetricsGet.2 value 71.5
* nvmlGpmMetricsGet.3 value 40.25
* nvmlGpmMetricsGet.5 value 55.125
* nvmlGpmMetricsGet.10 value 62.75
* nvmlGpmMetricsGet.60 value 1000
* nvmlGpmMetricsGet.61 value 2000
frozen
";

fn main() {
    if std::env::args().any(|word| word == MARK) {
        return read_gpus_for_parent();
    }
    let check = std::env::args().any(|word| word == "--test");
    let ticks = if check { 3 } else { TICKS };
    let built = if cfg!(debug_assertions) { "with debug assertions" } else { "optimised" };
    println!("{GPUS} GPUs, {ticks} ticks, {built}");
    println!(
        "{:>5} {:>8} {:>14} {:>14} {:>14} {:>12} {:>12}",
        "level", "samples", "telem", "reader", "both a tick", "telem grew", "reader has"
    );
    for level in [2, 3] {
        measure(level, ticks);
    }
}

fn measure(level: u8, ticks: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let library = dir.path().join("libnvidia-ml.so.1");
    build(&library);
    fs::write(dir.path().join("nvml.txt"), script()).expect("a script");
    fs::create_dir_all(dir.path().join("proc/driver/nvidia")).expect("a tree");
    fs::write(dir.path().join("proc/driver/nvidia/version"), "NVRM version: 550.54.15\n").expect("a gate");

    let db = Db::open(&dir.path().join("db"), Options::default()).expect("a new database");
    let program = std::env::current_exe().expect("this binary");
    let library = library.to_str().expect("plain text").to_owned();
    let vendor_reader = VendorReader::Program { program, words: vec![MARK.into()], library: Some(library) };
    let options =
        CollectOptions { vendor_reader, sysroot: dir.path().to_path_buf(), ..CollectOptions::new(level, "n1") };
    let mut second = 0;
    // The same tree without a reader: what all other subjects do with nothing. Its ticks lie between the others, so that
    // whatever else the machine does takes from both alike.
    let nobody = CollectOptions { vendor_reader: VendorReader::Nobody, ..options.clone() };
    let mut others = Sampler::new(&nobody, db.clone(), Arc::new(SystemClock::new()));
    others.sample(Timestamp::from_seconds(0), &[]);
    let before = status_bytes(Path::new("/proc/self/status"), "VmRSS:");
    let mut sampler = Sampler::new(&options, db, Arc::new(SystemClock::new()));
    let mut tick = |sampler: &mut Sampler| {
        second += 1;
        sampler.sample(Timestamp::from_seconds(second), &[]).len() as u64
    };
    // The reader starts, and GPM has its first sample.
    while tick(&mut sampler) == 0 {
        thread::sleep(PAUSE);
    }
    let reader = child().expect("a reader");
    let (mut own, mut of_others, mut samples) = (0, 0, 0);
    let reader_before = process_nanos(reader);
    for second in 1..=ticks {
        thread::sleep(PAUSE / 2);
        let began = own_nanos();
        others.sample(Timestamp::from_seconds(second as i64), &[]);
        of_others += own_nanos() - began;
        thread::sleep(PAUSE / 2);
        let began = own_nanos();
        samples += tick(&mut sampler);
        own += own_nanos() - began;
    }
    let reader_cpu = process_nanos(reader) - reader_before;
    let grew = status_bytes(Path::new("/proc/self/status"), "VmRSS:").saturating_sub(before);
    let reader_has = status_bytes(Path::new(&format!("/proc/{reader}/smaps_rollup")), "Private_Dirty:");
    drop(sampler);
    // The reader ends when nobody asks any more, and its library writes what it used.
    let spent = dir.path().join("spent_ns.txt");
    while !spent.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(PAUSE);
    let spent: u64 = fs::read_to_string(spent).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let of_library = spent as f64 / second as f64 / 1e3;
    let a_tick = |nanos: u64| nanos as f64 / ticks as f64 / 1e3;
    let of_others = a_tick(of_others);
    let (own, reader_cpu) = (a_tick(own) - of_others, a_tick(reader_cpu) - of_library);
    println!(
        "{level:>5} {:>8.1} {own:>11.0} us {reader_cpu:>11.0} us {:>11.0} us {:>9.2} MB {:>9.2} MB",
        samples as f64 / ticks as f64,
        own + reader_cpu,
        grew as f64 / 1e6,
        reader_has as f64 / 1e6,
    );
    println!(
        "      beside the library, which took {of_library:.0} us a tick, and other subjects with nothing, {of_others:.0} us"
    );
}

fn script() -> String {
    let gpus = (0..GPUS).map(|gpu| {
        format!("{gpu} nvmlDeviceGetUUID text GPU-{gpu}\n{gpu} nvmlDeviceGetPciInfo_v3 text 00000000:{gpu:02x}:00.0\n")
    });
    format!("* nvmlDeviceGetCount_v2 value {GPUS}\n{}{OF_EACH}", gpus.collect::<String>())
}

fn build(library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/nvml/nvml.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-Wl,-soname,libnvidia-ml.so.1", "-o"]).arg(library).arg(source);
    assert!(compiler.arg("-ldl").status().expect("a C compiler").success());
}

/// The only process that this thread has started.
fn child() -> Option<u32> {
    let children = fs::read_to_string("/proc/thread-self/children").ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Of this thread, up to now.
fn own_nanos() -> u64 {
    // The kernel adds up what a thread used when it stops, and would leave out what followed the last wait.
    thread::sleep(Duration::from_micros(1));
    cpu_nanos(Path::new("/proc/thread-self/schedstat"))
}

/// Of all its threads.
fn process_nanos(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|task| cpu_nanos(&task.path().join("schedstat"))).sum()
}

fn cpu_nanos(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

fn status_bytes(path: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let kilobytes: Option<u64> = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    kilobytes.unwrap_or(0) * 1_024
}
