//! Measures what a whole telem takes from the job beside it: CPU and memory of the process, as the kernel counts them.
//!
//! It runs `telem run --level 2 --interval 1s -- sleep 60`, saving included, and `telem serve` for as long, each on
//! this machine and on the tree of a large node. The binary is the one of the same profile as this program, or
//! `-- --telem PATH`. `--seconds N` and `--level N` change the run.
//!
//! CPU is given as two shares of a core: over all time from the start to shortly before the end, start-up included, and
//! over that time without the first [`SETTLING`]. Memory is what is resident shortly before the end: `own` is telem's
//! alone; `file` are pages of its binary, which the kernel takes back when the job needs them. `peak` includes the end
//! of the run (flush, merge, last step of saving), as telem itself reports it.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;
use std::{fs, iter, thread};

use telem_benches::node_tree::{NodeSize, grow};
use telem_engine::{Clock, SystemClock};

const SECONDS: u64 = 60;
/// From then on telem does the same every second.
const SETTLING: Duration = Duration::from_secs(2);
/// The last look is that long before the end.
const BEFORE_THE_END: Duration = Duration::from_millis(500);
/// `USER_HZ` of Linux.
const TICKS_PER_SECOND: f64 = 100.0;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is measured.
struct Question {
    telem: PathBuf,
    level: u8,
    lasting: Duration,
}

/// telem at one moment. Bytes.
#[derive(Default)]
struct Reading {
    cpu: Duration,
    resident: u64,
    own: u64,
    file: u64,
    peak: u64,
    threads: u64,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1);
    // `cargo test --benches` and `-- --test` only check that it runs.
    let check = args.iter().any(|arg| arg == "--test");
    let telem = value("--telem").map_or_else(telem_beside_us, |path| Ok(fs::canonicalize(path)?))?;
    if !telem.exists() {
        println!("there is no {}: build telem-server in this profile, or name a binary with --telem", telem.display());
        return if check { Ok(()) } else { Err("nothing to measure".into()) };
    }
    let seconds = if check { 3 } else { value("--seconds").map_or(Ok(SECONDS), |text| text.parse())? };
    let level = value("--level").map_or(Ok(2), |text| text.parse())?;
    let question = Question { telem, level, lasting: Duration::from_secs(seconds) };

    let dir = tempfile::tempdir()?;
    let size = if check { NodeSize { processes: 100, ..NodeSize::LARGE } } else { NodeSize::LARGE };
    let tree = dir.path().join("tree");
    grow(&tree, size)?;
    let large = format!("{} CPUs, {} processes, recorded", size.cpus, size.processes);
    println!("{}, level {level}, a tick every second, {seconds} s each", question.telem.display());
    println!(
        "{:<6} {:<36} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "", "node", "settled", "with start", "resident", "own", "file", "peak", "threads"
    );
    for command in ["run", "serve"] {
        for (node, root) in [("this machine", Path::new("/")), (&*large, &*tree)] {
            measure(&question, command, node, root)?;
        }
    }
    Ok(())
}

/// `target/PROFILE/telem`, where this is `target/PROFILE/deps/footprint-...`.
fn telem_beside_us() -> Result<PathBuf> {
    let ours = std::env::current_exe()?;
    let profile = ours.parent().and_then(Path::parent).ok_or("this program stands in no directory")?;
    Ok(profile.join("telem"))
}

fn measure(question: &Question, command: &str, node: &str, root: &Path) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let clock = SystemClock::new();
    let sleep_until = |time: Duration| thread::sleep(time.saturating_sub(clock.monotonic()));
    let began = clock.monotonic();
    let mut telem = Command::new(&question.telem);
    telem.arg(command).args(["--interval", "1s", "--listen", "127.0.0.1:0", "--level", &question.level.to_string()]);
    telem.arg("--sysroot").arg(root).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match command {
        "run" => telem.arg("--save").arg(dir.path()).args(["--", "sleep", &question.lasting.as_secs().to_string()]),
        _ => telem.arg("--data").arg(dir.path().join("data")),
    };
    let mut running = Running(telem.spawn()?);
    let mut said = BufReader::new(running.0.stderr.take().ok_or("no stderr")?);
    // Both say this last of what they say at first.
    await_line(&mut said, "listening on ")?;
    sleep_until(began + SETTLING);
    let settled = running.read()?;
    let settled_at = clock.monotonic();
    sleep_until(began + question.lasting.saturating_sub(BEFORE_THE_END));
    let end = running.read()?;
    let ended_at = clock.monotonic();
    if command == "serve" {
        // It ends at SIGTERM; its last words say nothing of what it took.
        Command::new("kill").arg(running.0.id().to_string()).status()?;
    }
    let mut last_words = String::new();
    said.read_to_string(&mut last_words)?;
    running.0.wait()?;
    let peak = told_peak(&last_words).unwrap_or(end.peak as f64 / 1e6);
    println!(
        "{command:<6} {node:<36} {:>8.3} % {:>8.3} % {:>6.1} MB {:>6.1} MB {:>6.1} MB {peak:>6.1} MB {:>8}",
        percent(end.cpu - settled.cpu, ended_at - settled_at),
        percent(end.cpu, ended_at - began),
        end.resident as f64 / 1e6,
        end.own as f64 / 1e6,
        end.file as f64 / 1e6,
        end.threads,
    );
    Ok(())
}

fn percent(cpu: Duration, time: Duration) -> f64 {
    cpu.as_secs_f64() / time.as_secs_f64() * 100.0
}

/// Killed where an error ends the measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Most often it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Of all processes of telem together: `telem run` is two, beside the command and a witness of signals.
    fn read(&self) -> Result<Reading> {
        let telem = self.0.id();
        let exe = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
        let children = fs::read_to_string(format!("/proc/{telem}/task/{telem}/children"))?;
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        let ours = children.filter(|pid| exe(*pid) == exe(telem));
        iter::once(telem).chain(ours).map(read_process).sum()
    }
}

fn read_process(pid: u32) -> Result<Reading> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
    let (stat, status, shares) = (file("stat")?, file("status")?, file("smaps_rollup")?);
    // Behind the name, which may hold anything: utime is the 14th field of all, stime the 15th.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).ok_or("a stat without a name")?;
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    let number = |text: &str, name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let bytes = |text: &str, name: &str| number(text, name) * 1_024;
    Ok(Reading {
        cpu: Duration::from_secs_f64(ticks / TICKS_PER_SECOND),
        // What processes share counts once, in parts.
        resident: bytes(&shares, "Pss:"),
        own: bytes(&status, "RssAnon:"),
        file: bytes(&shares, "Pss_File:"),
        peak: bytes(&status, "VmHWM:"),
        threads: number(&status, "Threads:"),
    })
}

impl iter::Sum for Reading {
    fn sum<I: Iterator<Item = Self>>(readings: I) -> Self {
        readings.fold(Self::default(), |sum, one| Self {
            cpu: sum.cpu + one.cpu,
            resident: sum.resident + one.resident,
            own: sum.own + one.own,
            file: sum.file + one.file,
            // Not at one time; the recorder's is by far the largest.
            peak: sum.peak.max(one.peak),
            threads: sum.threads + one.threads,
        })
    }
}

fn await_line(said: &mut BufReader<ChildStderr>, wanted: &str) -> Result<()> {
    let mut line = String::new();
    while said.read_line(&mut line)? > 0 {
        if line.contains(wanted) {
            return Ok(());
        }
        line.clear();
    }
    Err("telem ended before it listened".into())
}

/// Megabytes, from "... telem took 0.19 s of CPU and at most 74.3 MB".
fn told_peak(words: &str) -> Option<f64> {
    words.rsplit_once("at most ")?.1.split_once(" MB")?.0.parse().ok()
}
