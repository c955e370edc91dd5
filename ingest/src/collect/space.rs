//! The size and usage of file systems.
//!
//! The one idea: a call to a file system may hang for ever (a server of NFS or Lustre that is gone), so it is made on a
//! thread of its own. A mount that does not answer in time is left to that thread, and another thread goes on with the
//! other mounts. At most [`HUNG_MAX`] threads may hang; then no file system is examined until one returns.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::{Clock, Timestamp};

use super::mounts::{self, Mount};
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use crate::schedule::first_of;

/// How often file systems are asked: on a shared one it is a question to its servers.
pub const SPACE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a file system may take to answer before the others are asked without it.
pub const SPACE_DEADLINE: Duration = Duration::from_secs(5);
/// Most threads that may wait for file systems that hang.
pub const HUNG_MAX: usize = 4;

/// What a file system says about itself. Bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub size: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
}

/// Asks the file system at a path; may hang. A test puts another one in its place.
pub type SpaceProbe = Arc<dyn Fn(&Path) -> std::io::Result<Usage> + Send + Sync>;

/// What the operating system says.
pub fn ask_system() -> SpaceProbe {
    Arc::new(|path| {
        let said = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(said.f_frsize);
        Ok(Usage {
            size: bytes(said.f_blocks),
            free: bytes(said.f_bfree),
            available: bytes(said.f_bavail),
            files: said.f_files,
            files_free: said.f_ffree,
        })
    })
}

const METRICS: [&str; 5] = [
    "node_filesystem_size_bytes",
    "node_filesystem_free_bytes",
    "node_filesystem_avail_bytes",
    "node_filesystem_files",
    "node_filesystem_files_free",
];

pub struct Space {
    mounts: Source,
    tree: Tree,
    ask: SpaceProbe,
    clock: Arc<dyn Clock>,
    asked: Option<Timestamp>,
    round: Option<Arc<SpaceRound>>,
    /// Mounts whose threads did not come back yet.
    hung: Arc<Mutex<BTreeSet<PathBuf>>>,
    slots: Vec<(Mount, [Slot; METRICS.len()])>,
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("tree", &self.tree).field("hung", &self.hung).finish_non_exhaustive()
    }
}

/// One walk over the mounts on a thread of its own.
#[derive(Debug, Default)]
struct SpaceRound {
    progress: Mutex<SpaceProgress>,
}

#[derive(Debug, Default)]
struct SpaceProgress {
    /// The mount that is being asked, and since when (monotonic).
    asking: Option<(PathBuf, Duration)>,
    /// The caller no longer waits for this thread: its answers are dropped.
    left_behind: bool,
    waiting: Vec<Mount>,
    done: Vec<(Mount, Usage)>,
    finished: bool,
}

impl Space {
    pub fn new(tree: &Tree, ask: SpaceProbe, clock: Arc<dyn Clock>) -> Self {
        Self {
            mounts: tree.file_of_view("mounts"),
            tree: tree.clone(),
            ask,
            clock,
            asked: None,
            round: None,
            hung: Arc::default(),
            slots: Vec::new(),
        }
    }

    fn collect(&mut self, out: &mut Out<'_>) {
        let Some(round) = self.round.take() else { return };
        let (done, waiting, finished) = {
            let mut progress = lock(&round.progress);
            let done = std::mem::take(&mut progress.done);
            let since = progress.asking.as_ref().map(|(_, since)| *since);
            let overdue = since.is_some_and(|since| self.clock.monotonic().saturating_sub(since) > SPACE_DEADLINE);
            if overdue && let Some((point, _)) = &progress.asking {
                tracing::warn!(mountpoint = %point.display(), "a file system does not answer; going on without it");
                lock(&self.hung).insert(point.clone());
                progress.left_behind = true;
            }
            let waiting = if overdue { std::mem::take(&mut progress.waiting) } else { Vec::new() };
            (done, waiting, progress.finished || overdue)
        };
        for (mount, usage) in done {
            self.put(mount, usage, out);
        }
        if !finished {
            self.round = Some(round);
        } else if !waiting.is_empty() {
            self.begin(waiting);
        }
    }

    fn put(&mut self, mount: Mount, usage: Usage, out: &mut Out<'_>) {
        let at = self.slots.iter().position(|(known, _)| *known == mount).unwrap_or_else(|| {
            let point = mount.point.to_string_lossy();
            let tags = [("device", &*mount.device), ("mountpoint", &*point), ("fstype", &*mount.kind)];
            let slots = METRICS.map(|metric| Slot::tagged(metric, &tags));
            self.slots.push((mount, slots));
            self.slots.len() - 1
        });
        let Usage { size, free, available, files, files_free } = usage;
        let numbers = [size, free, available, files, files_free];
        for (slot, number) in self.slots[at].1.iter_mut().zip(numbers) {
            out.int(slot, number);
        }
    }

    /// Starts a thread that asks `mounts`.
    fn begin(&mut self, mut mounts: Vec<Mount>) {
        if mounts.is_empty() || lock(&self.hung).len() >= HUNG_MAX {
            return;
        }
        // Taken from the end.
        mounts.reverse();
        let round = Arc::new(SpaceRound::default());
        lock(&round.progress).waiting = mounts;
        let walk = SpaceWalk {
            round: Arc::clone(&round),
            tree: self.tree.clone(),
            ask: Arc::clone(&self.ask),
            clock: Arc::clone(&self.clock),
            hung: Arc::clone(&self.hung),
        };
        match std::thread::Builder::new().name("telem-space".to_owned()).spawn(move || walk.run()) {
            Ok(_) => self.round = Some(round),
            Err(error) => tracing::debug!(%error, "no thread to ask file systems"),
        }
    }
}

impl Subject for Space {
    /// Puts what was answered since the last tick; asks again when that is due. Never waits.
    fn sample(&mut self, out: &mut Out<'_>) {
        self.collect(out);
        if self.round.is_none() && first_of(SPACE_INTERVAL, out.time(), self.asked) {
            self.asked = Some(out.time());
            let mounts = self.mounts.read().map(mounts::parse).unwrap_or_default();
            self.slots.retain(|(known, _)| mounts.contains(known));
            let hung = lock(&self.hung);
            let answering = mounts.into_iter().filter(|mount| !hung.contains(&mount.point)).collect();
            drop(hung);
            self.begin(answering);
        }
    }
}

/// What the thread holds.
struct SpaceWalk {
    round: Arc<SpaceRound>,
    tree: Tree,
    ask: SpaceProbe,
    clock: Arc<dyn Clock>,
    hung: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl SpaceWalk {
    fn run(&self) {
        while let Some(mount) = self.next() {
            let under_root = mount.point.strip_prefix("/").unwrap_or(&mount.point);
            let said = (self.ask)(&self.tree.path(under_root));
            let mut progress = lock(&self.round.progress);
            progress.asking = None;
            if progress.left_behind {
                drop(progress);
                lock(&self.hung).remove(&mount.point);
                tracing::info!(mountpoint = %mount.point.display(), "a file system answers again");
                return;
            }
            match said {
                // One without blocks has no size to tell: a pseudo file system of a kind not known here.
                Ok(usage) if usage.size > 0 => progress.done.push((mount, usage)),
                Ok(_) => {}
                Err(error) => tracing::debug!(mountpoint = %mount.point.display(), %error, "no answer"),
            }
        }
    }

    fn next(&self) -> Option<Mount> {
        let mut progress = lock(&self.round.progress);
        let mount = progress.waiting.pop();
        match &mount {
            Some(mount) => progress.asking = Some((mount.point.clone(), self.clock.monotonic())),
            None => progress.finished = true,
        }
        mount
    }
}

/// Nothing panics while it is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
