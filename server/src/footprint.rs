//! The footprint of telem beside a job: it lowers its own priority, and reports its resource use.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use telem_query::LANE_THREAD;

/// The niceness of telem's threads.
const NICENESS: i32 = 10;
/// What is added to the score by which the kernel chooses the process to kill when memory runs out. Half of its range:
/// telem goes before whatever of the job holds less than half of the memory.
const OOM_SCORE_RAISE: i32 = 500;
const OOM_SCORE_MAX: i32 = 1000;
/// Processor time is reported in these units: `USER_HZ`, 100 a second to every program on Linux.
pub const TICKS_PER_SECOND: f64 = 100.0;

/// Lets the job have the processor first: for the thread that calls, and the threads that it starts.
pub fn yield_processor() {
    if let Err(error) = setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

/// Puts this process before the job when the kernel must kill. For the recorder, whose end is not taken for the end of
/// the job, and which starts no process that would inherit this.
pub fn yield_memory() {
    let path = "/proc/self/oom_score_adj";
    let now = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok()).unwrap_or(0);
    let raised = now.saturating_add(OOM_SCORE_RAISE).min(OOM_SCORE_MAX);
    if let Err(error) = fs::write(path, raised.to_string()) {
        tracing::debug!(%error, "the kernel may kill the job before telem");
    }
}

/// As many descriptors as we may have: connections and segments need them. A process that is started later inherits it.
pub fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// What this process took so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Footprint {
    pub cpu_seconds: f64,
    /// Most memory that it ever had, in bytes.
    pub memory_bytes_max: u64,
}

impl Footprint {
    /// `None` where the kernel does not say.
    pub fn now() -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).ok();
        Self::parse(&read("stat")?, &read("status")?)
    }

    fn parse(stat: &str, status: &str) -> Option<Self> {
        // The second field, the name in parentheses, may hold anything; utime is the 14th field, stime the 15th.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        let cpu_seconds = (ticks()? + ticks()?) / TICKS_PER_SECOND;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = peak.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Self { cpu_seconds, memory_bytes_max: kibibytes << 10 })
    }
}

/// A mapping without rights of this size at most that a mapping follows is the guard of a thread's stack.
const GUARD_BYTES_MAX: u64 = 64 << 10;

/// What of this process is in memory, in bytes, by what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// What the allocator has, whether somebody uses it or not.
    pub heap: u64,
    /// Stacks of threads.
    pub stacks: u64,
    /// Pages of files that are mapped: the binary and its libraries, also where they were changed.
    pub files: u64,
}

impl Resident {
    /// `None` where the kernel does not say.
    pub fn now() -> Option<Self> {
        let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
        Some(Self::parse(&smaps)).filter(|resident| resident.sum() > 0)
    }

    pub fn sum(&self) -> u64 {
        let Self { heap, stacks, files } = self;
        heap + stacks + files
    }

    /// proc_pid_smaps(5): a line with addresses, rights and file of each mapping, and lines of its figures below it.
    fn parse(smaps: &str) -> Self {
        let mut resident = Self::default();
        let (mut guard_end, mut counted) = (None, &mut resident.heap);
        for line in smaps.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                let kibibytes: u64 = size.trim().strip_suffix(" kB").and_then(|size| size.parse().ok()).unwrap_or(0);
                *counted += kibibytes << 10;
            } else if let Some(Mapping { start, end, is_open, name }) = Mapping::parse(line) {
                counted = match name {
                    name if name.starts_with('/') => &mut resident.files,
                    "" if guard_end == Some(start) && is_open => &mut resident.stacks,
                    "[stack]" => &mut resident.stacks,
                    _ => &mut resident.heap,
                };
                let is_guard = name.is_empty() && !is_open && end - start <= GUARD_BYTES_MAX;
                guard_end = is_guard.then_some(end);
            }
        }
        resident
    }
}

/// A stretch of addresses.
struct Mapping<'a> {
    start: u64,
    end: u64,
    /// It may be read or written.
    is_open: bool,
    /// Its file, or what the kernel calls it; mostly nothing.
    name: &'a str,
}

impl<'a> Mapping<'a> {
    /// `None` of a line that is no head of a mapping.
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        let (start, end) = (start?, end.filter(|end| *end >= start.unwrap_or(0))?);
        // Rights, offset, device, inode; then blanks and the name.
        let mut name = rest;
        for _ in 0..4 {
            name = name.split_once(' ').map_or("", |(_, rest)| rest);
        }
        Some(Self { start, end, is_open: !rest.starts_with("---"), name: name.trim_start() })
    }
}

/// Processor time of the threads of this process that answer queries, also of those that have ended since they were
/// looked at.
#[derive(Debug, Default)]
pub struct QueryThreads {
    /// Nanoseconds, by the number of the thread, and whether it tells at its end what it took.
    spent: HashMap<u32, (u64, bool)>,
    /// Of threads that are gone, besides those that say themselves what they took.
    gone: u64,
    /// Of those.
    ended: u64,
}

/// How the threads begin that `query/src/run/bounded.rs` and `query/src/lanes.rs` name; the kernel keeps 15 bytes of a
/// name.
const QUERY_THREAD: &str = "telem-query";
/// Nanoseconds of a second.
const NANOSECONDS: f64 = 1e9;

impl QueryThreads {
    /// Takes note of what they took so far. Idle ones live for ten seconds: it is to be called more often than that.
    pub fn look(&mut self) {
        // First: none counts twice that ends meanwhile.
        self.ended = u64::try_from(telem_query::ended_lane_threads().as_nanos()).unwrap_or(u64::MAX);
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let seen = tasks.filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let thread = task.file_name().to_str()?.parse().ok()?;
            let spent = || fs::read_to_string(task.path().join("schedstat")).ok();
            let tells = name.trim_end() == LANE_THREAD;
            name.starts_with(QUERY_THREAD).then(|| Some((thread, (parse_schedstat(&spent()?)?, tells)))).flatten()
        });
        self.add(seen.collect());
    }

    fn add(&mut self, seen: HashMap<u32, (u64, bool)>) {
        for (thread, (spent, tells)) in std::mem::take(&mut self.spent) {
            // A number that was given to another thread starts again from 0.
            if !tells && seen.get(&thread).is_none_or(|(now, _)| *now < spent) {
                self.gone += spent;
            }
        }
        self.spent = seen;
    }

    pub fn cpu_seconds(&self) -> f64 {
        let living: u64 = self.spent.values().map(|(spent, _)| spent).sum();
        (self.gone + self.ended + living) as f64 / NANOSECONDS
    }
}

/// Documentation/scheduler/sched-stats.rst of Linux: time on a processor, in nanoseconds, comes first.
fn parse_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_query_threads_is_kept_when_they_are_gone() {
        let mut queries = QueryThreads::default();
        queries.add([(1, (500_000_000, false)), (2, (1_000_000_000, false)), (3, (9_000_000_000, true))].into());
        queries.add([(1, (700_000_000, false))].into());
        // The third says itself what it took.
        assert!((queries.cpu_seconds() - 1.7).abs() < 1e-9);
        // Another thread has the number of the first.
        queries.add([(1, (100_000_000, false))].into());
        assert!((queries.cpu_seconds() - 1.8).abs() < 1e-9);
        assert_eq!((parse_schedstat("123 45 6\n"), parse_schedstat("")), (Some(123), None));
    }

    #[test]
    fn threads_of_queries_are_told_from_others_by_their_name() {
        let busy = std::thread::Builder::new().name("telem-query-x".to_owned()).spawn(|| {
            let mut queries = QueryThreads::default();
            while queries.cpu_seconds() == 0.0 {
                queries.look();
            }
            queries.spent.len()
        });
        assert!(busy.unwrap().join().unwrap() >= 1);
    }

    #[test]
    fn the_footprint_is_read_past_any_name() {
        let stat = "7 (a) 1 2 (b) S 1 7 7 0 -1 4194560 900 0 0 0 150 50 99 99 20 0 6 0 100 1000 200";
        let found = Footprint::parse(stat, "Name:\ta) 1\nVmHWM:\t   46000 kB\n").unwrap();
        assert_eq!(found, Footprint { cpu_seconds: 2.0, memory_bytes_max: 46_000 << 10 });
    }

    #[test]
    fn what_is_resident_is_told_by_what_it_is() {
        let smaps = "\
55d0c0000000-55d0c8000000 r-xp 00000000 fd:01 1234                       /opt/a telem (deleted)
Size:             131072 kB
Rss:               20480 kB
Pss:               20480 kB
55d0c9000000-55d0c9100000 rw-p 00000000 00:00 0                          [heap]
Rss:                 100 kB
7f0000000000-7f0040000000 rw-p 00000000 00:00 0 
Rss:                3000 kB
7f0050000000-7f0050001000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0050001000-7f0050201000 rw-p 00000000 00:00 0 
Rss:                  24 kB
7f0050201000-7f0050301000 rw-p 00000000 00:00 0 
Rss:                   7 kB
7f0060000000-7f0070000000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0070000000-7f0070100000 rw-p 00000000 00:00 0 
Rss:                   9 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  40 kB
VmFlags: rd wr mr mw me gd ac 
";
        let kib = |count: u64| count << 10;
        let expected = Resident { heap: kib(100 + 3000 + 7 + 9), stacks: kib(24 + 40), files: kib(20_480) };
        assert_eq!(Resident::parse(smaps), expected);
    }

    #[test]
    fn this_process_has_a_heap_stacks_of_threads_and_files_in_memory() {
        let (began, ends) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let thread = std::thread::spawn(move || {
            began.0.send(()).unwrap();
            ends.1.recv().unwrap_or_default();
        });
        began.1.recv().unwrap();
        let Resident { heap, stacks, files } = Resident::now().unwrap();
        assert!(heap > 100 << 10 && stacks > 4 << 10 && files > 1 << 20, "{heap} {stacks} {files}");
        drop(ends.0);
        thread.join().unwrap();
    }

    #[test]
    fn this_process_has_a_footprint() {
        assert!(Footprint::now().unwrap().memory_bytes_max > 1 << 20);
    }
}
