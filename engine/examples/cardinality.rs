//! Measures what a database with very many series costs: to fill, to open, and to keep open.
//!
//! ```text
//! cargo run --release -p telem-engine --example cardinality [-- [--hosts N] [--metrics N] [--unique]]
//! ```
//! Every series has the tags `cluster`, `host` and `rack`, and with `--unique` a fourth whose value no other series
//! has. The database is filled with one sample per series, closed, and opened by a process of its own, so the figures
//! of that process are those of opening. CPU time is that of the process; memory is what the kernel counts as resident.

use std::fs;
use std::path::Path;
use std::process::Command;

use telem_engine::{
    Clock, Db, Durability, Options, SampleBatch, SeriesKey, SystemClock, TagPredicate, TagSet, Timestamp, Value,
};

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let (mut hosts, mut metrics, mut unique) = (10_000, 100, false);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
        match &*argument {
            "--hosts" => hosts = value()?.parse()?,
            "--metrics" => metrics = value()?.parse()?,
            "--unique" => unique = true,
            "--open" => return open(Path::new(&value()?)),
            _ => return Err(format!("no argument {argument}").into()),
        }
    }
    let dir = std::env::temp_dir().join(format!("telem-cardinality-{}", std::process::id()));
    let filled = fill(&dir, hosts, metrics, unique);
    // A fresh process: nothing of what filling took is left in its memory.
    let opened = filled.and_then(|()| {
        let status = Command::new(std::env::current_exe()?).arg("--open").arg(&dir).status()?;
        if status.success() { Ok(()) } else { Err(format!("opening ended with {status}").into()) }
    });
    fs::remove_dir_all(&dir)?;
    opened
}

fn fill(dir: &Path, hosts: usize, metrics: usize, unique: bool) -> Result<(), Failed> {
    let began = cpu_seconds()?;
    let db = Db::open(dir, Options::default())?;
    for host in 0..hosts {
        let mut batch = SampleBatch::with_capacity(metrics);
        for metric in 0..metrics {
            let mut tags = vec![
                ("cluster", "juno".to_owned()),
                ("host", format!("nid{host:06}")),
                ("rack", format!("r{:03}", host / 64)),
            ];
            if unique {
                tags.push(("task", format!("{:016x}", host * metrics + metric)));
            }
            let series = db.series(&SeriesKey::new(&format!("node_metric_{metric:04}"), TagSet::new(tags)?)?)?;
            batch.push(series, Timestamp::from_seconds(1_799_996_400), Value::Int(host as i64));
        }
        if db.flush_due() {
            db.flush()?;
        }
        db.append(&batch, Durability::Buffered)?;
    }
    let filled = cpu_seconds()? - began;
    db.close()?;
    let series = (hosts * metrics) as f64;
    println!("series                          {series:>12}");
    println!("fill, CPU-seconds a million     {:>12.3}", filled / series * 1e6);
    println!("close, CPU-seconds a million    {:>12.3}", (cpu_seconds()? - began - filled) / series * 1e6);
    println!("fill, peak resident bytes each  {:>12.1}", kilobytes("VmHWM")? as f64 * 1024.0 / series);
    Ok(())
}

fn open(dir: &Path) -> Result<(), Failed> {
    let (resident, began) = (kilobytes("VmRSS")?, cpu_seconds()?);
    let db = Db::open(dir, Options::default())?;
    let (opened, peak) = (cpu_seconds()? - began, kilobytes("VmHWM")?);
    let series = db.index().len() as f64;
    let bytes = |kilobytes: u64| (kilobytes - resident) as f64 * 1024.0 / series;
    println!("open, CPU-seconds a million     {:>12.3}", opened / series * 1e6);
    println!("open, resident bytes each       {:>12.1}", bytes(kilobytes("VmRSS")?));
    println!("open, peak resident bytes each  {:>12.1}", bytes(peak));
    let clock = SystemClock::new();
    let metric = db.index().metrics().first().cloned().ok_or("no metric")?;
    let began = clock.monotonic();
    let found = db.index().select(&metric, &[]).len();
    println!("select {found:>6} of a metric, ms    {:>12.3}", (clock.monotonic() - began).as_secs_f64() * 1e3);
    let one = TagPredicate { key: "host", accepts: &|host| host == "nid000007", among: None };
    let began = clock.monotonic();
    let found = db.index().select(&metric, &[one]).len();
    println!("select {found:>6} by its host, ms    {:>12.3}", (clock.monotonic() - began).as_secs_f64() * 1e3);
    db.close()?;
    Ok(())
}

/// Of all threads of this process.
fn cpu_seconds() -> Result<f64, Failed> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    // The kernel counts in hundredths of a second for everybody.
    Ok(ticks as f64 / 100.0)
}

/// A line of `/proc/self/status`.
fn kilobytes(name: &str) -> Result<u64, Failed> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?)
}
