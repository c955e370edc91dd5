//! The writer lock: the file `WRITER`, created exclusively, names the process that writes.
//!
//! Kernel file locks do not work on every shared file system; an exclusive create does. The price is that a dead
//! process leaves the file behind, so the next one must judge whether that process is alive. On the same host the
//! answer is certain (process id, its start time, the id of the machine's boot). For another host it is unknown, and a
//! person must decide (option `take_over`).

use std::fmt::{self, Debug};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::disk::{self, Disk};
use crate::error::{Error, Result};
use crate::layout::{Layout, WRITER};

/// A lock file is a line of JSON; more than this is not one of ours.
const BYTES_MAX: u64 = 64 << 10;
/// How often a lock that vanishes or changes while it is judged is looked at again.
const TRIES: u32 = 8;

/// A process that writes, or wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub host: String,
    pub pid: u32,
    /// The kernel's id of this run of the machine.
    pub boot: String,
    /// When it started, in clock ticks since boot: tells two processes of one number apart.
    pub started: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} on {}", self.pid, self.host)
    }
}

/// What the lock asks of the operating system. Tests answer themselves.
pub trait Machine: Debug + Send + Sync {
    /// # Errors
    /// When the machine does not say.
    fn this_process(&self) -> io::Result<Process>;
    /// When the process with this number, on this machine, started; `None` if it does not exist.
    fn started(&self, pid: u32) -> Option<u64>;
}

/// Asks Linux, through `/proc`.
#[derive(Debug)]
pub struct Linux;

impl Machine for Linux {
    fn this_process(&self) -> io::Result<Process> {
        let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let pid = std::process::id();
        Ok(Process {
            host: line("/proc/sys/kernel/hostname")?,
            pid,
            boot: line("/proc/sys/kernel/random/boot_id")?,
            started: self.started(pid).ok_or(io::ErrorKind::NotFound)?,
        })
    }

    fn started(&self, pid: u32) -> Option<u64> {
        start_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// The start of a process from its line in `/proc/PID/stat`; `None` for one that is dead and only waits
/// for its parent to take notice, for ever where the first process of a container never does.
fn start_in(stat: &str) -> Option<u64> {
    // The second field is the command in brackets, which may hold anything; the 22nd is the start.
    let (_, after_command) = stat.rsplit_once(')')?;
    let mut fields = after_command.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") { None } else { fields.nth(18)?.parse().ok() }
}

/// What to do about a lock file that is there.
#[derive(Debug, PartialEq, Eq)]
enum Judgement {
    /// Its owner is dead.
    TakeOver,
    /// Its owner lives.
    Alive,
    /// It cannot be known here.
    Unknown,
}

fn judge(owner: &Process, me: &Process, started: Option<u64>) -> Judgement {
    if owner.host != me.host {
        return Judgement::Unknown;
    }
    if owner.boot != me.boot || started != Some(owner.started) { Judgement::TakeOver } else { Judgement::Alive }
}

/// Held as long as a database is open for writing.
#[derive(Debug)]
pub struct WriterLock {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    dir: PathBuf,
    /// What the file holds while it is ours.
    content: Vec<u8>,
    /// The process that held it before and did not release it.
    pub taken_over_from: Option<String>,
}

/// What is done about a lock of another process that may still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockClaim {
    /// It is left to it.
    IfFree,
    /// It is taken over: a person knows better.
    TakeOver,
}

impl WriterLock {
    /// # Errors
    /// Unavailable, naming the owner, when another process writes or may write; Io.
    pub fn acquire(disk: &Arc<dyn Disk>, machine: &dyn Machine, layout: &Layout, claim: LockClaim) -> Result<Self> {
        let path = layout.writer();
        let me = machine.this_process().map_err(Error::io("learn the process of", &path))?;
        let mut content = serde_json::to_vec(&me)
            .map_err(|error| Error::Internal { what: format!("a lock cannot be written as JSON: {error}") })?;
        content.push(b'\n');
        let mut taken_over_from = None;
        for _ in 0..TRIES {
            match disk::write_file(&**disk, &path, &content) {
                Ok(()) => {
                    if let Err(error) = disk.sync_dir(layout.dir()) {
                        let _ = disk.remove(&path);
                        return Err(Error::io("sync", layout.dir())(error));
                    }
                    let dir = layout.dir().to_path_buf();
                    return Ok(Self { disk: Arc::clone(disk), path, dir, content, taken_over_from });
                }
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {}
                // The name is ours but its content is not written: leave no lock that cannot be judged.
                Err(error @ Error::Io { action: "write" | "sync", .. }) => {
                    let _ = disk.remove(&path);
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
            let stale = match disk::read_file(&**disk, &path, BYTES_MAX) {
                Ok(stale) => stale,
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let owner = allowed(&stale, &me, machine, claim).map_err(|(owner, advice)| Error::Locked {
                path: layout.dir().to_path_buf(),
                owner,
                advice,
            })?;
            if remove_stale(&**disk, layout, &path, &stale, me.pid)? {
                warn!(%owner, "took over the writer lock");
                taken_over_from = Some(owner);
            }
        }
        let (owner, advice) = ("several processes that start now".to_owned(), "start one of them".to_owned());
        Err(Error::Locked { path: layout.dir().to_path_buf(), owner, advice })
    }

    /// Whether the file still names us: another process may have taken over.
    ///
    /// # Errors
    /// Io; Unavailable when another process writes now.
    pub fn check(&self) -> Result<()> {
        let found = disk::read_file(&*self.disk, &self.path, BYTES_MAX);
        let owner = match found {
            Ok(found) if found == self.content => return Ok(()),
            Ok(found) => serde_json::from_slice::<Process>(&found)
                .map_or("an unknown process".to_owned(), |owner| owner.to_string()),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                "no process (its writer lock was removed)".to_owned()
            }
            Err(error) => return Err(error),
        };
        let advice = "this process lost the database and writes no more to it".to_owned();
        Err(Error::Locked { path: self.dir.clone(), owner, advice })
    }

    /// From now on this is the lock of the same database in another place.
    pub fn follow(&mut self, layout: &Layout) {
        (self.path, self.dir) = (layout.writer(), layout.dir().to_path_buf());
    }

    /// Gives the lock back, if it is still ours.
    ///
    /// # Errors
    /// Io.
    pub fn release(&self) -> Result<()> {
        match self.check() {
            Ok(()) => disk::remove_if_there(&*self.disk, &self.path),
            Err(Error::Locked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What the lock of a database says to one who only looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockTrace {
    /// There is no lock: nobody writes.
    Free,
    /// Its owner is dead and did not give it back.
    Left(Process),
    /// Its owner lives, or may: one on another host, or one that a damaged file does not name.
    Held,
}

/// The process that holds, or left, the lock of the database in `dir`. Nothing is changed.
///
/// # Errors
/// Io, where the lock cannot be read, or the machine does not say.
pub fn trace(dir: &Path, disk: &dyn Disk, machine: &dyn Machine) -> Result<LockTrace> {
    let path = Layout::new(dir).writer();
    let found = match disk::read_file(disk, &path, BYTES_MAX) {
        Ok(found) => found,
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(LockTrace::Free),
        Err(error) => return Err(error),
    };
    let me = machine.this_process().map_err(Error::io("learn the process of", &path))?;
    let Ok(owner) = serde_json::from_slice::<Process>(&found) else { return Ok(LockTrace::Held) };
    Ok(match judge(&owner, &me, machine.started(owner.pid)) {
        Judgement::TakeOver => LockTrace::Left(owner),
        Judgement::Alive | Judgement::Unknown => LockTrace::Held,
    })
}

/// The owner of `stale`, if we may take over; else the owner and what to do.
fn allowed(
    stale: &[u8],
    me: &Process,
    machine: &dyn Machine,
    claim: LockClaim,
) -> std::result::Result<String, (String, String)> {
    let Ok(owner) = serde_json::from_slice::<Process>(stale) else {
        let owner = format!("a process whose {WRITER} file is damaged");
        let advice = "if no telem process uses it, open it with --take-over".to_owned();
        return if claim == LockClaim::TakeOver { Ok(owner) } else { Err((owner, advice)) };
    };
    let advice = match judge(&owner, me, machine.started(owner.pid)) {
        Judgement::TakeOver => return Ok(owner.to_string()),
        _ if claim == LockClaim::TakeOver => return Ok(owner.to_string()),
        Judgement::Alive => {
            "stop it, or query it: its address is in the connection file; `telem sql DIR` reads without writing"
                .to_owned()
        }
        Judgement::Unknown => {
            format!("if it no longer runs on {}, open the database with --take-over", owner.host)
        }
    };
    Err((owner.to_string(), advice))
}

/// Removes the lock if it still holds `stale`. It is moved away first, so that of two processes that judged the same
/// lock only one can remove it; a process that then finds another lock puts it back.
fn remove_stale(disk: &dyn Disk, layout: &Layout, path: &Path, stale: &[u8], pid: u32) -> Result<bool> {
    let aside = layout.dir().join(format!("{WRITER}.{pid}"));
    match disk.rename(path, &aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("rename", path)(error)),
    }
    if disk::read_file(disk, &aside, BYTES_MAX)? == stale {
        disk::remove_if_there(disk, &aside)?;
        return Ok(true);
    }
    disk.rename(&aside, path).map_err(Error::io("rename", &aside))?;
    Ok(false)
}

#[cfg(test)]
mod tests;
