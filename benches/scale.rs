//! Measures what a query over many nodes costs the head: CPU, bytes and time, from one node to a thousand.
//!
//! `scale` starts itself again as a few processes that hold virtual nodes. Each node has its own database, worker and
//! listener, and shares nothing with the others. The head is a separate process, so the kernel's figures for its CPU
//! and its sockets are the head's alone. All processes share the cores of this machine, so wall time grows with the
//! number of nodes by construction; the head's CPU and bytes are the figures that carry over.
//!
//! ```text
//! cargo run --locked --release -p telem-server --example scale -- [--nodes 1,4,16,64,256,1024] [--series 8] [--csv FILE]
//! ```
//!
//! Two queries are measured, each flat and through the tree: an average by host and minute over an hour, whose answer
//! grows with the nodes, and the same average over all hosts, whose answer does not. `panels` runs twelve of them at
//! once, as a dashboard does.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io, thread};

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use telem_engine::{
    Clock, Db, Durability, Options, SampleBatch, SeriesKey, Step, SystemClock, TagSet, Timestamp, Value,
};
use telem_query::cluster::{Dial, DialTcp, Knowing, KnownDelta, Members, NodeConnection, Wire};
use telem_query::question::Aggregator;
use telem_query::tsq::{Downsample, Fidelity, Fill, Interval, Matcher, TagFilter};
use telem_query::{Queries, QueryOptions, TsQuery};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use url::Url;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Start of the hour that is asked for.
const START: i64 = 1_700_000_000 / 3_600 * 3_600;
/// Samples of a series: an hour at 10 s.
const SAMPLES: i64 = 360;
/// Virtual nodes of one process.
const NODES_PER_PROCESS: usize = 256;
const REPETITIONS: u32 = 10;
const PANELS: usize = 12;
/// Questions that may fail before all nodes are connected.
const WARMING_MAX: u32 = 60;
const WARMING_PAUSE: Duration = Duration::from_secs(1);
const TOKEN: &str = "the token of a benchmark";

fn main() -> Result<()> {
    // Of every node a few files and connections are open.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().skip_while(|arg| *arg != name).nth(1);
    let number = |name: &str, default: usize| value(name).map_or(Ok(default), |text| text.parse());
    if args.first().is_some_and(|role| role == "nodes") {
        return nodes(number("--from", 0)?, number("--count", 1)?, number("--series", 8)?);
    }
    if args.first().is_some_and(|role| role == "head") {
        return head(number("--flat-max", 16)?);
    }
    let counts = value("--nodes").map_or("1,4,16,64,256,1024", String::as_str);
    let counts: Vec<usize> = counts.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let series = number("--series", 8)?;
    let mut lines = vec![format!("nodes,shape,{}", Figures::NAMES.join(","))];
    println!("{:>6} {:>6}  {}", "nodes", "shape", Figures::NAMES.join("  "));
    for count in counts {
        let held = Held::start(count, series)?;
        for (shape, flat_max) in [("flat", usize::MAX >> 1), ("tree", 16)] {
            let output = Command::new(std::env::current_exe()?)
                .args(["head", "--flat-max", &flat_max.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .and_then(|mut head| {
                    head.stdin.take().expect("it is piped").write_all(held.told.as_bytes())?;
                    head.wait_with_output()
                })?;
            let text = String::from_utf8(output.stdout)?;
            let figures = text.trim();
            if !output.status.success() || figures.is_empty() {
                return Err(format!("the head of {count} nodes failed: {}", output.status).into());
            }
            println!("{count:>6} {shape:>6}  {}", figures.replace(',', "  "));
            lines.push(format!("{count},{shape},{figures}"));
        }
    }
    if let Some(file) = value("--csv") {
        fs::write(file, lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// The processes that hold nodes. They end with their input.
struct Held {
    processes: Vec<Child>,
    /// What they told of themselves: a line each node.
    told: String,
}

impl Held {
    fn start(count: usize, series: usize) -> Result<Held> {
        let mut held = Held { processes: Vec::new(), told: String::new() };
        for from in (0..count).step_by(NODES_PER_PROCESS) {
            let here = NODES_PER_PROCESS.min(count - from);
            let mut process = Command::new(std::env::current_exe()?)
                .args(["nodes", "--from", &from.to_string(), "--count", &here.to_string()])
                .args(["--series", &series.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let told = BufReader::new(process.stdout.take().ok_or("no output")?);
            held.processes.push(process);
            for line in told.lines().take(here) {
                held.told.push_str(&line?);
                held.told.push('\n');
            }
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

/// Holds nodes until the input ends. Prints of each its address and what it has.
fn nodes(from: usize, count: usize, series: usize) -> Result<()> {
    let dir = std::env::temp_dir().join(format!("telem-scale-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut kept = Vec::new();
    for node in from..from + count {
        let name = format!("n{node:04}");
        let db = Db::open(&dir.join(&name), Options { node: name.clone(), ..Options::default() })?;
        for at in 0..series {
            fill(&db, &name, at)?;
        }
        let options = QueryOptions { threads: 1, ..QueryOptions::new(Arc::new(SystemClock::new())) };
        let wire = Wire::new(TOKEN.to_owned(), Arc::new(DialTcp));
        let queries = Queries::over(db.clone(), Members::new(Arc::new(SystemClock::new())), wire, options)?;
        let worker = queries.worker().ok_or("no worker")?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let told = serde_json::to_string(&Knowing::new(db).delta())?;
        println!("{name} http://{}/ {told}", listener.local_addr()?);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let worker = TowerToHyperService::new(worker.clone());
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), worker).await;
                });
            }
        });
        kept.push(queries);
    }
    io::stdout().flush()?;
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    drop(kept);
    Ok(fs::remove_dir_all(&dir)?)
}

fn fill(db: &Db, host: &str, at: usize) -> Result<()> {
    let core = at.to_string();
    let key = SeriesKey::new("cpu", TagSet::new([("host", host), ("core", &core)])?)?;
    let series = db.series(&key)?;
    let mut batch = SampleBatch::default();
    for sample in 0..SAMPLES {
        let value = ((sample * 37 + at as i64 * 11) % 400) as f64 / 4.0;
        batch.push(series, Timestamp::from_seconds(START + sample * 10), Value::Float(value));
    }
    Ok(db.append(&batch, Durability::Buffered)?)
}

/// What the head is asked for, and what that took of it.
struct Figures;

impl Figures {
    const NAMES: [&'static str; 9] = [
        "by_host_ms",
        "by_host_cpu_ms",
        "all_ms",
        "all_cpu_ms",
        "all_cpu_us_a_node",
        "all_kb_out",
        "all_kb_in",
        "panels_ms",
        "rss_mb",
    ];
}

fn head(flat_max: usize) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let dir = std::env::temp_dir().join(format!("telem-scale-head-{}", std::process::id()));
    let db = Db::open(&dir, Options { node: "head".to_owned(), ..Options::default() })?;
    let members = Members::new(Arc::clone(&clock));
    let counting = Counting::default();
    let wire = Wire {
        silence_max: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(60),
        ..Wire::new(TOKEN.to_owned(), Arc::new(counting.clone()))
    };
    let options = QueryOptions { flat_max, strict: true, ..QueryOptions::new(Arc::clone(&clock)) };
    let queries = Queries::over(db, members.clone(), wire, options)?;
    for line in io::stdin().lines() {
        let line = line?;
        let mut words = line.splitn(3, ' ');
        let (Some(node), Some(url), Some(told)) = (words.next(), words.next(), words.next()) else { continue };
        members.join(node, Url::parse(url)?);
        members.learn(node, &serde_json::from_str::<KnownDelta>(told)?)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ask = |grouped: bool| -> Result<usize> {
        let answer = runtime.block_on(queries.timeseries(question(grouped)))?;
        Ok(answer.groups.iter().map(|group| group.points.len()).sum())
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    // Connections come about once. On few cores a thousand of them may take longer than the engine waits for a plan;
    // who was missing is back as soon as it answers a probe.
    let mut tries = 1;
    while let Err(error) = ask(true) {
        if tries == WARMING_MAX {
            return Err(error);
        }
        tries += 1;
        thread::sleep(WARMING_PAUSE);
    }
    let by_host = measured(&*clock, &counting, || ask(true))?;
    let all = measured(&*clock, &counting, || ask(false))?;
    let begun = clock.monotonic();
    let panels = (0..PANELS).map(|_| queries.timeseries(question(true)));
    // All nodes share the cores of this machine: a dashboard of very many of them outlasts what is waited for.
    let panels = match runtime.block_on(futures::future::try_join_all(panels)) {
        Ok(_) => format!("{:.1}", ms(clock.monotonic().saturating_sub(begun))),
        Err(error) => {
            eprintln!("{PANELS} questions at once: {error}");
            "NaN".to_owned()
        }
    };
    let nodes = members.list().len().max(1) as f64;
    let kb = |bytes: u64| bytes as f64 / 1e3 / f64::from(REPETITIONS);
    println!(
        "{:.1},{:.2},{:.1},{:.2},{:.0},{:.1},{:.1},{},{:.0}",
        ms(by_host.wall),
        ms(by_host.cpu),
        ms(all.wall),
        ms(all.cpu),
        ms(all.cpu) * 1e3 / nodes,
        kb(all.sent),
        kb(all.received),
        panels,
        resident_mb()?,
    );
    drop(queries);
    Ok(fs::remove_dir_all(&dir)?)
}

/// Of one question: the median of its time, the mean of its CPU; of all repetitions the bytes.
struct Measured {
    wall: Duration,
    cpu: Duration,
    sent: u64,
    received: u64,
}

fn measured(clock: &dyn Clock, counting: &Counting, mut ask: impl FnMut() -> Result<usize>) -> Result<Measured> {
    let (cpu, sent, received) = (cpu_time()?, counting.sent(), counting.received());
    let mut walls = Vec::new();
    for _ in 0..REPETITIONS {
        let begun = clock.monotonic();
        ask()?;
        walls.push(clock.monotonic().saturating_sub(begun));
    }
    // The kernel's count of CPU has steps of 10 ms; what was begun is ended.
    thread::sleep(Duration::from_millis(20));
    walls.sort();
    Ok(Measured {
        wall: walls[walls.len() / 2],
        cpu: (cpu_time()? - cpu) / REPETITIONS,
        sent: counting.sent() - sent,
        received: counting.received() - received,
    })
}

/// The average by the minute of an hour, of each host or of all.
fn question(grouped: bool) -> TsQuery {
    let by_host = TagFilter { key: "host".to_owned(), matcher: Matcher::Wildcard("*".to_owned()), group_by: true };
    let interval = Interval::Fixed(Step::from_micros(60_000_000).expect("a minute is a step"));
    TsQuery {
        metric: "cpu".to_owned(),
        filters: if grouped { vec![by_host] } else { Vec::new() },
        explicit_tags: false,
        series: None,
        aggregator: Aggregator::Avg,
        downsample: Some(Downsample { interval, function: Aggregator::Avg, fill: Fill::None }),
        rate: None,
        start: Timestamp::from_seconds(START),
        end: Timestamp::from_seconds(START + 3_599),
        fidelity: Fidelity::Sensible,
    }
}

/// CPU of this process, user and system.
fn cpu_time() -> Result<Duration> {
    let stat = fs::read_to_string("/proc/self/schedstat")?;
    let mut all: u64 = stat.split_whitespace().next().ok_or("no schedstat")?.parse()?;
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        if task.file_name().to_string_lossy() != std::process::id().to_string() {
            let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            all += stat.split_whitespace().next().map_or(Ok(0), str::parse)?;
        }
    }
    Ok(Duration::from_nanos(all))
}

fn resident_mb() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1e3)
}

/// Plain TCP that counts bytes.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<[AtomicU64; 2]>);

impl Counting {
    fn sent(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    fn received(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }
}

impl Dial for Counting {
    fn dial(&self, url: &Url) -> BoxFuture<'static, io::Result<Box<dyn NodeConnection>>> {
        let (counts, dialled) = (self.clone(), DialTcp.dial(url));
        async move { Ok(Box::new(Counted { inner: dialled.await?, counts }) as Box<dyn NodeConnection>) }.boxed()
    }
}

struct Counted {
    inner: Box<dyn NodeConnection>,
    counts: Counting,
}

type Turn<'a, 'b> = &'a mut std::task::Context<'b>;

impl AsyncRead for Counted {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: Turn<'_, '_>,
        buf: &mut ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = std::pin::Pin::new(&mut self.inner).poll_read(cx, buf);
        self.counts.0[1].fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: Turn<'_, '_>,
        buf: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        let written = std::pin::Pin::new(&mut self.inner).poll_write(cx, buf);
        if let std::task::Poll::Ready(Ok(bytes)) = &written {
            self.counts.0[0].fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: std::pin::Pin<&mut Self>, cx: Turn<'_, '_>) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: std::pin::Pin<&mut Self>, cx: Turn<'_, '_>) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
