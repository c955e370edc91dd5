//! `/proc/<pid>`: how many processes our user has; at level 4, what each of them uses.
//!
//! A walk over all processes is the most expensive part of collecting, so it runs at most every [`WALK_INTERVAL`].
//! Below level 4 it opens no file: the owner of the directory is the owner of the process. A process gets series when
//! two walks in a row found it, because a build starts thousands that live for a shorter time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, openat, statat};
use telem_engine::Timestamp;

use super::cpu::TICKS_PER_SECOND;
use super::series::{Out, Slot};
use super::source::Tree;
use super::subject::Subject;
use super::text::{fields, lines, number};
use crate::schedule::first_of;

/// How often processes are walked over.
pub const WALK_INTERVAL: Duration = Duration::from_secs(5);
/// Most processes that get series of their own: those with the most CPU time, and among equals with the most memory.
/// The others are counted as skipped.
pub const PROCESSES_MAX: usize = 1_000;
/// Most that is read of one file of a process.
const FILE_BYTES_MAX: u64 = 16 << 10;
/// What the kernel hands over of a directory at once.
const DIRECTORY_BYTES: usize = 32 << 10;

/// What `stat` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: u32,
    pub parent: u32,
    /// Its process group and its session, by the processes that lead them.
    pub group: u32,
    pub session: u32,
    pub comm: String,
    pub major_faults: u64,
    /// User and system together, threads included.
    pub ticks: u64,
    /// Of children that have ended and were waited for, and of theirs.
    pub reaped_ticks: u64,
    pub threads: u64,
    /// Ticks after the start of the node.
    pub started: u64,
    pub virtual_bytes: u64,
    pub resident_pages: u64,
}

/// `stat` of a process. Its name may hold blanks and parentheses.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let comm = text.get(open + 1..close)?;
    let after: Vec<&[u8]> = fields(text.get(close + 1..)?).take(24).collect();
    // Counted as proc(5) does, where the state is field 3.
    let field = |at: usize| number(after.get(at - 3)?);
    let id = |at: usize| field(at).and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    Some(Stat {
        pid: fields(&text[..open]).next().and_then(number).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0),
        parent: id(4),
        group: id(5),
        session: id(6),
        comm: String::from_utf8_lossy(comm).into_owned(),
        major_faults: field(12)?,
        ticks: field(14)?.saturating_add(field(15)?),
        reaped_ticks: field(16).unwrap_or(0).saturating_add(field(17).unwrap_or(0)),
        threads: field(20)?,
        started: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

/// What a process read and wrote, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIo {
    /// Of disks.
    pub read: u64,
    pub written: u64,
    /// By system calls, whatever is behind them.
    pub read_chars: Option<u64>,
    pub written_chars: Option<u64>,
}

/// `read_bytes`, `write_bytes`, `rchar` and `wchar` of `io`.
pub fn parse_io(text: &[u8]) -> Option<ProcessIo> {
    let find = |name: &[u8]| {
        lines(text).find_map(|line| {
            let mut fields = fields(line);
            (fields.next() == Some(name)).then(|| number(fields.next()?))?
        })
    };
    Some(ProcessIo {
        read: find(b"read_bytes:")?,
        written: find(b"write_bytes:")?,
        read_chars: find(b"rchar:"),
        written_chars: find(b"wchar:"),
    })
}

/// The size of a page as the kernel reported it to this process, in `auxv`.
pub fn parse_page_bytes(auxv: &[u8]) -> Option<u64> {
    const AT_PAGESZ: u64 = 6;
    let words =
        |pair: &[u8]| Some((u64::from_ne_bytes(pair.get(..8)?.try_into().ok()?), pair.get(8..)?.try_into().ok()?));
    let found = auxv.chunks_exact(16).filter_map(words).find(|(key, _)| *key == AT_PAGESZ);
    found.map(|(_, value)| u64::from_ne_bytes(value)).filter(|bytes| *bytes > 0)
}

const METRICS: [&str; 10] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_threads",
    "process_major_page_faults_total",
    "process_open_fds",
    "process_read_bytes_total",
    "process_written_bytes_total",
    "process_io_read_chars_total",
    "process_io_written_chars_total",
];

/// A process that was met.
#[derive(Debug)]
struct Known {
    started: u64,
    /// The walk that met it last.
    walk: u64,
    comm: String,
    /// Made when it is met again.
    slots: Option<[Slot; METRICS.len()]>,
}

#[derive(Debug)]
pub struct Processes {
    tree: Tree,
    uid: u32,
    each: bool,
    page_bytes: u64,
    count: Slot,
    walked: Option<Timestamp>,
    walk: u64,
    known: HashMap<u32, Known>,
    skipped: Slot,
    skipped_told: bool,
    buffers: Buffers,
}

/// Used again by every walk.
#[derive(Debug, Default)]
struct Buffers {
    ours: Vec<u32>,
    directory: Vec<u8>,
    file: Vec<u8>,
}

impl Processes {
    pub fn new(tree: &Tree, uid: u32, level: u8) -> Self {
        let mut auxv = Vec::new();
        let page_bytes = read(&tree.path("proc/self/auxv"), &mut auxv).and_then(parse_page_bytes);
        Self {
            tree: tree.clone(),
            uid,
            each: level >= 4,
            page_bytes: page_bytes.unwrap_or(4_096),
            count: Slot::new("num_running_processes"),
            walked: None,
            walk: 0,
            known: HashMap::new(),
            skipped: Slot::new("telem_ingest_processes_skipped"),
            skipped_told: false,
            buffers: Buffers::default(),
        }
    }

    fn sample_each(&mut self, buffers: &mut Buffers, out: &mut Out<'_>) {
        let mut met = Vec::with_capacity(buffers.ours.len());
        for pid in &buffers.ours {
            let stat = self.tree.path(format!("proc/{pid}/stat"));
            // A process that has ended meanwhile is not an error.
            let Some(stat) = read(&stat, &mut buffers.file).and_then(parse_stat) else { continue };
            // Threads of the kernel, which root has hundreds of, and processes that only wait to be reaped.
            if stat.virtual_bytes > 0 {
                met.push((*pid, stat));
            }
        }
        let skipped = keep_largest(&mut met);
        out.int(&mut self.skipped, skipped as u64);
        if skipped > 0 && !std::mem::replace(&mut self.skipped_told, true) {
            let have = if skipped == 1 { "process has" } else { "processes have" };
            tracing::warn!(
                "{skipped} {have} no series of their own: only the {PROCESSES_MAX} with the most CPU time do"
            );
        }
        for (pid, stat) in met {
            let dir = self.tree.path(format!("proc/{pid}"));
            let known = match self.known.get_mut(&pid) {
                Some(known) if known.started == stat.started && known.comm == stat.comm => known,
                _ => {
                    let met = Known { started: stat.started, walk: self.walk, comm: stat.comm, slots: None };
                    self.known.insert(pid, met);
                    continue;
                }
            };
            known.walk = self.walk;
            let slots = known.slots.get_or_insert_with(|| {
                let pid = pid.to_string();
                METRICS.map(|metric| Slot::tagged(metric, &[("comm", &stat.comm), ("pid", &pid)]))
            });
            let [
                cpu,
                resident,
                virtual_memory,
                threads,
                faults,
                fds,
                read_bytes,
                written_bytes,
                read_chars,
                written_chars,
            ] = slots;
            out.float(cpu, stat.ticks as f64 / TICKS_PER_SECOND);
            out.int(resident, stat.resident_pages.saturating_mul(self.page_bytes));
            out.int(virtual_memory, stat.virtual_bytes);
            out.int(threads, stat.threads);
            out.int(faults, stat.major_faults);
            if let Some(open) = entries(&dir.join("fd"), &mut buffers.directory) {
                out.int(fds, open);
            }
            if let Some(io) = read(&dir.join("io"), &mut buffers.file).and_then(parse_io) {
                out.int(read_bytes, io.read);
                out.int(written_bytes, io.written);
                for (slot, chars) in [(read_chars, io.read_chars), (written_chars, io.written_chars)] {
                    if let Some(chars) = chars {
                        out.int(slot, chars);
                    }
                }
            }
        }
        let walk = self.walk;
        self.known.retain(|_, known| known.walk == walk);
    }
}

impl Subject for Processes {
    fn sample(&mut self, out: &mut Out<'_>) {
        if !first_of(WALK_INTERVAL, out.time(), self.walked) {
            return;
        }
        self.walked = Some(out.time());
        self.walk += 1;
        let mut buffers = std::mem::take(&mut self.buffers);
        buffers.ours.clear();
        match walk(&self.tree.path("proc"), self.uid, &mut buffers.directory, &mut buffers.ours) {
            // A recording without processes.
            Ok(0) => out.lacks("processes"),
            Ok(_) => {
                out.int(&mut self.count, buffers.ours.len() as u64);
                if self.each {
                    self.sample_each(&mut buffers, out);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "processes cannot be walked over");
                out.lacks("processes");
            }
        }
        self.buffers = buffers;
    }
}

/// Leaves [`PROCESSES_MAX`] of `met`; how many there were beyond that.
fn keep_largest(met: &mut Vec<(u32, Stat)>) -> usize {
    let skipped = met.len().saturating_sub(PROCESSES_MAX);
    if skipped > 0 {
        met.sort_unstable_by_key(|(pid, stat)| (Reverse((stat.ticks, stat.resident_pages)), *pid));
        met.truncate(PROCESSES_MAX);
    }
    skipped
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Collects into `ours` the processes whose directory belongs to `uid`. Returns how many processes all users have.
pub(super) fn walk(proc: &Path, uid: u32, buffer: &mut Vec<u8>, ours: &mut Vec<u32>) -> rustix::io::Result<usize> {
    let mut all = 0;
    let dir = open_directory(proc)?;
    let mut listing = RawDir::new(dir.as_fd(), space_in(buffer));
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = number(name.to_bytes()).and_then(|pid| u32::try_from(pid).ok()) else { continue };
        all += 1;
        if statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_uid == uid) {
            ours.push(pid);
        }
    }
    Ok(all)
}

/// Collects into `found` the numbers of all processes.
pub(super) fn pids(proc: &Path, buffer: &mut Vec<u8>, found: &mut Vec<u32>) -> rustix::io::Result<()> {
    let dir = open_directory(proc)?;
    let mut listing = RawDir::new(dir.as_fd(), space_in(buffer));
    while let Some(entry) = listing.next() {
        found.extend(number(entry?.file_name().to_bytes()).and_then(|pid| u32::try_from(pid).ok()));
    }
    Ok(())
}

/// How many entries a directory has.
pub(super) fn entries(path: &Path, buffer: &mut Vec<u8>) -> Option<u64> {
    let dir = open_directory(path).ok()?;
    let mut listing = RawDir::new(dir.as_fd(), space_in(buffer));
    let mut count = 0;
    while let Some(entry) = listing.next() {
        let dots = matches!(entry.ok()?.file_name().to_bytes(), b"." | b"..");
        count += u64::from(!dots);
    }
    Some(count)
}

fn space_in(buffer: &mut Vec<u8>) -> &mut [MaybeUninit<u8>] {
    buffer.clear();
    buffer.reserve(DIRECTORY_BYTES);
    buffer.spare_capacity_mut()
}

/// The file as it is now, in a buffer that is used again.
pub(super) fn read<'a>(path: &Path, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    buffer.clear();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(buffer).ok()?;
    Some(buffer)
}
