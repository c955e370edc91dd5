//! Sends bodies over a few connections, each waiting for an answer before it sends the next.

use std::fs;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bodies::{self, Body};
use crate::{Failed, http};

/// How long a server that says it is busy (429, 503) is left alone.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long an answer is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// The first bytes of an answer that is an error are shown.
const SHOWN_BYTES: usize = 500;

#[derive(Debug)]
pub struct Options {
    pub bodies: PathBuf,
    pub to: String,
    pub path: String,
    pub connections: usize,
    pub deadline_s: u64,
    /// Separated by semicolons.
    pub headers: String,
    /// Bodies from the first on, as long as they hold no more than this.
    pub samples_max: u64,
}

struct Work {
    bodies: Vec<Body>,
    /// What every request begins with, up to the length.
    head: String,
    next: AtomicUsize,
    busy: AtomicU64,
    stop: AtomicBool,
    deadline: Instant,
}

/// A line of JSON: what was sent, and what it took, reading the file not counted.
///
/// # Errors
/// When the server refuses a body or does not answer in time.
pub fn send(options: &Options) -> Result<String, Failed> {
    let bodies = bodies::read(&options.bodies, options.samples_max)?;
    let samples: u64 = bodies.iter().map(|body| u64::from(body.samples)).sum();
    let bytes: u64 = bodies.iter().map(|body| body.bytes.len() as u64).sum();
    let headers: String = options
        .headers
        .split(';')
        .filter(|header| !header.is_empty())
        .map(|header| format!("{}\r\n", header.trim()))
        .collect();
    let work = Work {
        bodies,
        head: format!("POST {} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: ", options.path, options.to),
        next: AtomicUsize::new(0),
        busy: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        deadline: Instant::now() + Duration::from_secs(options.deadline_s),
    };
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    thread::scope(|scope| {
        let connections: Vec<_> =
            (0..options.connections).map(|_| scope.spawn(|| connection(&work, &options.to))).collect();
        let ended: Vec<_> = connections.into_iter().map(|thread| thread.join()).collect();
        ended.into_iter().try_for_each(|ended| ended.map_err(|_| "a thread died")?)
    })?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    Ok(format!(
        r#"{{"samples":{samples},"bodies":{},"bytes":{bytes},"seconds":{seconds:.6},"client_cpu_s":{cpu:.6},"busy_answers":{}}}"#,
        work.bodies.len(),
        work.busy.load(Ordering::Relaxed)
    ))
}

fn connection(work: &Work, to: &str) -> Result<(), Failed> {
    let outcome = send_all(work, to);
    if outcome.is_err() {
        work.stop.store(true, Ordering::Relaxed);
    }
    outcome
}

fn send_all(work: &Work, to: &str) -> Result<(), Failed> {
    let mut kept = None;
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    while !work.stop.load(Ordering::Relaxed) {
        let Some(body) = work.bodies.get(work.next.fetch_add(1, Ordering::Relaxed)) else { break };
        loop {
            if Instant::now() > work.deadline {
                return Err("the deadline is over before all was sent".into());
            }
            request.clear();
            write!(request, "{}{}\r\n\r\n", work.head, body.bytes.len())?;
            request.extend_from_slice(&body.bytes);
            let (mut stream, mut answers) = kept.take().map_or_else(|| connect(to), Ok)?;
            stream.write_all(&request)?;
            let head = http::head(&mut answers)?.ok_or("the server closed the connection")?;
            http::body(&mut answers, &head, &mut answer)?;
            // Some servers end a connection that is a few minutes old.
            if !head.close {
                kept = Some((stream, answers));
            }
            let status = head.first.split(' ').nth(1).unwrap_or("");
            match status {
                status if status.starts_with('2') => break,
                "429" | "503" => {
                    work.busy.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(BUSY_PAUSE);
                }
                _ => {
                    let said = String::from_utf8_lossy(&answer[..answer.len().min(SHOWN_BYTES)]).into_owned();
                    return Err(format!("{}: {said}", head.first).into());
                }
            }
        }
    }
    Ok(())
}

fn connect(to: &str) -> Result<(TcpStream, BufReader<TcpStream>), Failed> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let answers = BufReader::new(stream.try_clone()?);
    Ok((stream, answers))
}

/// CPU time of all threads, to a hundredth of a second.
fn cpu_seconds() -> Result<f64, Failed> {
    let fields = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = fields.rsplit_once(')').ok_or("no name in /proc/self/stat")?.1.split_whitespace().collect();
    // utime and stime, in hundredths of a second for everybody.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}
