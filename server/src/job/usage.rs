//! The resource use of a command: processor time and memory of its processes on this node, and which of them used most.
//!
//! There are two sources. The kernel adds up the time of all processes that ended and were waited for, and reports it
//! to their parent, which is the supervisor; that is exact, and comes at the end. And a thread of the recorder samples
//! the processes below the command while it runs, more often at first and rarely where that is expensive. That gives
//! memory and names, but misses processes that ended between two samples.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use telem_engine::Clock;

use crate::footprint::{QueryThreads, TICKS_PER_SECOND};

/// When it is looked for the second time; then after twice that, and so on.
const INTERVAL_FIRST: Duration = Duration::from_millis(20);
/// How often it is looked at least.
pub(crate) const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// After a sample there is a pause of this many times its duration: sampling takes a five-hundredth of a core at most.
pub(crate) const REST: u32 = 500;
/// How often it is looked what queries took: idle threads of theirs live longer than this, or tell it at their end.
const QUERIES_INTERVAL: Duration = Duration::from_secs(5);
/// Most processes of a command that one look takes in.
pub(crate) const PROCESSES_MAX: usize = 16_384;
/// Most names of processes that are distinguished.
pub(crate) const NAMES_MAX: usize = 1_024;
/// The name of what is beyond.
const OTHERS: &str = "others";

/// A process as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenProcess {
    pid: u32,
    /// When it began, in ticks since the machine did: its number may become another's.
    started: u64,
    name: String,
    /// Processor time of its own, in ticks.
    ticks: u64,
    /// Bytes that it has in memory, and how many of them others may have too.
    resident: u64,
    shared: u64,
}

/// What all processes of one name took.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedUsage {
    pub name: String,
    pub processes: usize,
    pub cpu_seconds: f64,
}

/// What was seen of a command's processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobUsage {
    /// Most memory that they had at once when it was looked, in bytes; what they share counts once.
    pub memory_bytes_max: u64,
    /// The most expensive first.
    pub by_name: Vec<NamedUsage>,
}

impl JobUsage {
    /// Processor time of all that was seen.
    pub fn cpu_seconds(&self) -> f64 {
        self.by_name.iter().map(|named| named.cpu_seconds).sum()
    }
}

/// Looks, added up.
#[derive(Debug, Default)]
struct Course {
    memory_bytes_max: u64,
    /// Those of the last look, by number and start.
    alive: HashMap<(u32, u64), LiveProcess>,
    /// Processes that are gone, and their ticks, by name.
    gone: HashMap<String, (usize, u64)>,
}

#[derive(Debug)]
struct LiveProcess {
    name: String,
    ticks: u64,
    /// Ticks that it took under another name, before it ran another program.
    before: u64,
}

impl Course {
    fn add(&mut self, seen: Vec<SeenProcess>) {
        let own: u64 = seen.iter().map(|process| process.resident.saturating_sub(process.shared)).sum();
        // What several share is about what the one with most of it has.
        let shared = seen.iter().map(|process| process.shared).max().unwrap_or(0);
        self.memory_bytes_max = self.memory_bytes_max.max(own + shared);
        let mut last = std::mem::take(&mut self.alive);
        for SeenProcess { pid, started, name, ticks, .. } in seen {
            let before = match last.remove(&(pid, started)) {
                Some(same) if same.name == name => same.before,
                Some(old) => {
                    let so_far = old.ticks;
                    self.bury(old, 0);
                    so_far
                }
                None => 0,
            };
            self.alive.insert((pid, started), LiveProcess { name, ticks, before });
        }
        for process in last.into_values() {
            self.bury(process, 1);
        }
    }

    fn bury(&mut self, process: LiveProcess, processes: usize) {
        let is_known = self.gone.contains_key(&process.name);
        let name = if is_known || self.gone.len() < NAMES_MAX { process.name } else { OTHERS.to_owned() };
        let (count, sum) = self.gone.entry(name).or_default();
        *count += processes;
        *sum += process.ticks.saturating_sub(process.before);
    }

    fn usage(&self) -> JobUsage {
        let mut by_name = self.gone.clone();
        for process in self.alive.values() {
            let (count, sum) = by_name.entry(process.name.clone()).or_default();
            *count += 1;
            *sum += process.ticks.saturating_sub(process.before);
        }
        let named = |(name, (processes, ticks)): (String, (usize, u64))| NamedUsage {
            name,
            processes,
            cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
        };
        let mut by_name: Vec<NamedUsage> = by_name.into_iter().map(named).collect();
        by_name.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds).then_with(|| a.name.cmp(&b.name)));
        JobUsage { memory_bytes_max: self.memory_bytes_max, by_name }
    }
}

/// A thread that looks, until this is dropped.
#[derive(Debug)]
pub struct UsageWatch {
    course: Arc<Mutex<Course>>,
    queries: Arc<Mutex<QueryThreads>>,
    _stop: Sender<()>,
}

impl UsageWatch {
    /// Looks at the process `pid` and those below it.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(pid: u32, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let (course, queries) = (Arc::<Mutex<Course>>::default(), Arc::<Mutex<QueryThreads>>::default());
        let (stop, stopped) = channel::<()>();
        let (its, its_queries) = (Arc::clone(&course), Arc::clone(&queries));
        let watch = move || {
            let (mut interval, mut queries_due) = (INTERVAL_FIRST, clock.monotonic() + QUERIES_INTERVAL);
            loop {
                let began = clock.monotonic();
                let seen = look(pid);
                its.lock().unwrap_or_else(PoisonError::into_inner).add(seen);
                let now = clock.monotonic();
                if now >= queries_due {
                    queries_due = now + QUERIES_INTERVAL;
                    its_queries.lock().unwrap_or_else(PoisonError::into_inner).look();
                }
                let rest = now.saturating_sub(began).saturating_mul(REST);
                if stopped.recv_timeout(interval.max(rest)) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                interval = (interval * 2).min(INTERVAL_MAX);
            }
        };
        thread::Builder::new().name("telem-usage".to_owned()).spawn(watch)?;
        Ok(Self { course, queries, _stop: stop })
    }

    /// What was seen so far.
    pub fn usage(&self) -> JobUsage {
        self.course.lock().unwrap_or_else(PoisonError::into_inner).usage()
    }

    /// Processor time of the threads that answer queries, in seconds.
    pub fn query_cpu_seconds(&self) -> f64 {
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        queries.look();
        queries.cpu_seconds()
    }
}

/// The process `root` and all below it, as far as the kernel knows their parents.
fn look(root: u32) -> Vec<SeenProcess> {
    let (mut seen, mut next) = (Vec::new(), vec![root]);
    while let Some(pid) = next.pop() {
        if seen.len() >= PROCESSES_MAX {
            break;
        }
        let Some(process) = read_process(pid) else { continue };
        seen.push(process);
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            next.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    seen
}

/// `None` where it is gone.
fn read_process(pid: u32) -> Option<SeenProcess> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_process(pid, &stat, &status)
}

/// proc_pid_stat(5) and proc_pid_status(5). One that has ended and was not waited for yet has no memory.
fn parse_process(pid: u32, stat: &str, status: &str) -> Option<SeenProcess> {
    let (head, rest) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first of these is the third field of the line: utime is the 14th, stime the 15th, starttime the 22nd.
    let field = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
    let bytes = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    let shared = bytes("RssFile:").unwrap_or(0) + bytes("RssShmem:").unwrap_or(0);
    let resident = bytes("VmRSS:").unwrap_or(0).max(shared);
    Some(SeenProcess { pid, started: field(22)?, name, ticks: field(14)? + field(15)?, resident, shared })
}

/// Processor time of children of this process that ended and were waited for, and of theirs, in seconds.
pub fn waited_for_cpu_seconds() -> Option<f64> {
    waited_for(&fs::read_to_string("/proc/self/stat").ok()?)
}

fn waited_for(stat: &str) -> Option<f64> {
    // cutime is the 16th field, cstime the 17th.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}
