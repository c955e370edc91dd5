//! Tasks: processes that a launcher started on many nodes, as `srun telem run -- ./app` does, and how they find each
//! other.
//!
//! The task with rank 0 is the head; it publishes in `.telem-<job>/head` how to join it. On every node the first task
//! keeps that node: it is the node's recorder, and the other tasks, its guests, send to it. The first is decided by a
//! name in that directory, which only one process can link. A name that a dead process left is taken over; only
//! processes of the same host can tell that, and only they check. The directory must be on a file system that all nodes
//! share.
//!
//! A launch without a scheduler has no name that all its nodes know. Then the tasks of each node find each other in the
//! same way, in a directory of that node, and there is no head: `mpirun -np 4 telem run -- ./app`.
//!
//! The head keeps its own node, even if it starts late: it leaves a [`Wish`]. The task that keeps the node meanwhile
//! checks for a wish while it waits for its head. It has recorded nothing yet, gives the node up and becomes a guest.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::getppid;
use serde::{Deserialize, Serialize};
use telem_engine::Clock;
use telem_engine::lock::{Machine, Process};

use super::Patience;
use super::scheduler::Surroundings;
use crate::private_dir::{self, Privacy, PrivateDirError};
use crate::private_file;

/// Most bytes of the name of a launch that become part of a name here.
pub(crate) const LAUNCH_BYTES_MAX: usize = 64;
/// Largest file here.
const BYTES_MAX: u64 = 1 << 20;
/// How long a process leaves the first place to one that its launcher calls the first of the node.
const COURTESY: Duration = Duration::from_secs(1);
/// Longest that a guest waits for its node's keeper to be ready: that waits for the head first.
pub(crate) const KEEPER_TIMEOUT: Duration = HEAD_TIMEOUT.saturating_add(Duration::from_secs(5));
/// Longest that a node's keeper waits for the head to publish how it is joined.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest that the head waits for its node to be given up: its keeper checks several times a second.
pub(crate) const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Most entries that are looked through: nodes and their processes.
const ENTRIES_MAX: usize = 1 << 20;
/// How often a place that a dead process left is fought for.
const ATTEMPTS: u32 = 20;

/// Which of its node's processes this is, as launchers say it.
const LOCAL_RANKS: [&str; 6] = [
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "PALS_LOCAL_RANKID",
    "PMI_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
];

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(
        "the tasks of this job cannot meet: {0}; start telem in a directory that all nodes share and that you may write, or with --launcher none"
    )]
    Place(#[from] PrivateDirError),
    #[error("cannot {action} {}: {source}; start telem in a directory that all nodes share and that you may write, or with --launcher none", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// Where the processes of a job meet.
#[derive(Clone, Debug)]
pub struct Meeting {
    dir: PathBuf,
    host: String,
}

/// What a process of a node is to its other processes.
#[derive(Debug)]
pub enum TaskPart {
    /// Its recorder.
    Keeper(Claim),
    /// The recorder is another process, which is reached so.
    Guest { environment: Vec<(String, OsString)> },
    /// The recorder is another process, which says nothing.
    Unheard,
}

/// What a keeper tells its guests, which belong to the same user on the same machine.
#[derive(Debug, Serialize, Deserialize)]
struct KeeperMessage {
    environment: Vec<(String, OsString)>,
}

impl Meeting {
    /// In `.telem-JOB` below `dir`; a job of Slurm may start several programs, which then meet apart.
    pub fn of(dir: &Path, job: &str, host: &str, around: &dyn Surroundings) -> Self {
        let step = around.variable("SLURM_STEP_ID").filter(|step| step.bytes().all(|byte| byte.is_ascii_digit()));
        let name = match step.as_deref() {
            None | Some("0") => format!(".telem-{job}"),
            Some(step) => format!(".telem-{job}.{step}"),
        };
        Self { dir: dir.join(name), host: host.to_owned() }
    }

    /// In `launch-NAME` below `dir`, which only the processes of one user on one machine see.
    pub fn of_launch(dir: &Path, name: &str, host: &str) -> Self {
        let plain =
            |byte: u8| if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) { char::from(byte) } else { '-' };
        // The distinguishing part of launches is at the end of their names.
        let kept = name.len().saturating_sub(LAUNCH_BYTES_MAX);
        let name: String = name.bytes().skip(kept).map(plain).collect();
        Self { dir: dir.join(format!("launch-{name}")), host: host.to_owned() }
    }

    /// The join file of the head.
    pub fn head(&self) -> PathBuf {
        self.dir.join("head")
    }

    /// Makes the place, under another name where a stranger took that one: all tasks find the same.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(&mut self) -> Result<(), TaskError> {
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let base = self.dir.parent().unwrap_or(Path::new("/"));
        let found = private_dir::below(base, &name, own_uid(), Privacy::Unwritten)?;
        found.tell_passed("the tasks of this job meet");
        self.dir = found.path;
        Ok(())
    }

    /// Makes the place that was found, again.
    fn reopen(&self) -> Result<(), TaskError> {
        Ok(private_dir::own(&self.dir, own_uid(), Privacy::Unwritten)?)
    }

    /// What this process is on its node. Waits for a live keeper to be ready, as long as `patience` allows.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn enter(
        &self,
        rank: u32,
        around: &dyn Surroundings,
        machine: &dyn Machine,
        clock: &Arc<dyn Clock>,
        patience: &dyn Patience,
    ) -> Result<TaskPart, TaskError> {
        match rank {
            0 => self.enter_as_head(machine, clock, patience),
            _ => self.enter_as_task(around, machine, clock, patience),
        }
    }

    /// As [`Meeting::enter`] for a process that is not the head; of a launch without a head that is every one.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn enter_as_task(
        &self,
        around: &dyn Surroundings,
        machine: &dyn Machine,
        clock: &Arc<dyn Clock>,
        patience: &dyn Patience,
    ) -> Result<TaskPart, TaskError> {
        let is_first = LOCAL_RANKS.iter().find_map(|name| around.variable(name)).is_none_or(|rank| rank.trim() == "0");
        let start = clock.monotonic();
        if !is_first {
            // Rank 0 is to keep its node, and is the first of it with most launchers.
            while !self.is_taken() && clock.monotonic() < start + COURTESY {
                std::thread::park_timeout(LOOK_INTERVAL);
            }
        }
        if let Some(claim) = self.claim_unwished(machine)? {
            return Ok(TaskPart::Keeper(claim));
        }
        self.await_keeper(machine, clock, patience)
    }

    /// The head's part: the keeper, unless another task records this node already and does not give it up.
    fn enter_as_head(
        &self,
        machine: &dyn Machine,
        clock: &Arc<dyn Clock>,
        patience: &dyn Patience,
    ) -> Result<TaskPart, TaskError> {
        let mut wish = None;
        let deadline = clock.monotonic() + HANDOVER_TIMEOUT;
        loop {
            if let Some(claim) = self.claim(machine)? {
                return Ok(TaskPart::Keeper(claim));
            }
            if let Some(guest) = self.as_guest(machine) {
                return Ok(guest);
            }
            if wish.is_none() {
                patience.ask(HANDOVER_TIMEOUT);
                wish = self.wish(machine);
            }
            if clock.monotonic() >= deadline || patience.is_over() {
                return Ok(TaskPart::Unheard);
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }

    /// Gives a node up to the head, and becomes that one's guest; its keeper again where the head dies at once.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn give_up(
        &self,
        claim: Claim,
        machine: &dyn Machine,
        clock: &Arc<dyn Clock>,
        patience: &dyn Patience,
    ) -> Result<TaskPart, TaskError> {
        drop(claim);
        self.await_keeper(machine, clock, patience)
    }

    /// Waits for the keeper that has the node, or is about to, to say how it is reached.
    fn await_keeper(
        &self,
        machine: &dyn Machine,
        clock: &Arc<dyn Clock>,
        patience: &dyn Patience,
    ) -> Result<TaskPart, TaskError> {
        patience.ask(KEEPER_TIMEOUT);
        let deadline = clock.monotonic() + KEEPER_TIMEOUT;
        loop {
            if let Some(guest) = self.as_guest(machine) {
                return Ok(guest);
            }
            if clock.monotonic() >= deadline || patience.is_over() {
                return Ok(TaskPart::Unheard);
            }
            std::thread::park_timeout(LOOK_INTERVAL);
            // It may have died meanwhile.
            if let Some(claim) = self.claim_unwished(machine)? {
                return Ok(TaskPart::Keeper(claim));
            }
        }
    }

    /// Signs in with the keeper, once that says how it is reached.
    fn as_guest(&self, machine: &dyn Machine) -> Option<TaskPart> {
        let environment = self.told()?;
        self.sign_in(machine);
        Some(TaskPart::Guest { environment })
    }

    /// Whether the head runs on this node, and waits to keep it.
    pub fn is_wished(&self, machine: &dyn Machine) -> bool {
        let Ok(me) = machine.this_process() else { return false };
        private_file::read(&self.wish_path(), BYTES_MAX).is_ok_and(|wish| is_alive(&wish, &me, machine))
    }

    /// `None` where it cannot be left for now.
    fn wish(&self, machine: &dyn Machine) -> Option<Wish> {
        let text = serde_json::to_vec(&machine.this_process().ok()?).ok()?;
        let path = self.wish_path();
        match private_file::write(&path, &text) {
            Ok(()) => Some(Wish { path, text }),
            Err(error) => {
                tracing::debug!(%error, "the keeper of the head's node does not hear of it");
                None
            }
        }
    }

    /// As [`Meeting::claim`], and never what the head waits for.
    fn claim_unwished(&self, machine: &dyn Machine) -> Result<Option<Claim>, TaskError> {
        if self.is_wished(machine) { Ok(None) } else { self.claim(machine) }
    }

    /// Takes the node, unless a process that lives has it.
    fn claim(&self, machine: &dyn Machine) -> Result<Option<Claim>, TaskError> {
        let cannot = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| TaskError::Io { action, path, source }
        };
        let path = self.claim_path();
        let me = machine.this_process().map_err(cannot("find out about this process for", &path))?;
        let text = serde_json::to_vec(&me).map_err(io::Error::from).map_err(cannot("write", &path))?;
        let own = self.dir.join(format!("{}.{}", self.host, me.pid));
        for _ in 0..ATTEMPTS {
            // Linked and not made: the name appears with what it holds, also where many nodes share the file system.
            match private_file::write(&own, &text) {
                Ok(()) => {}
                // The last one of others has just left.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.reopen()?;
                    continue;
                }
                Err(error) => return Err(cannot("write", &own)(error)),
            }
            let linked = fs::hard_link(&own, &path);
            let _ = fs::remove_file(&own);
            match linked {
                Ok(()) => return Ok(Some(Claim { meeting: self.clone(), text })),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot("link", &path)(error)),
            }
            match private_file::read(&path, BYTES_MAX) {
                Ok(theirs) if is_alive(&theirs, &me, machine) => return Ok(None),
                Ok(theirs) => self.clear(&theirs, me.pid),
                // Gone just now, or not to be read for a moment.
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Removes what a dead process left, and puts back what another has put there meanwhile.
    fn clear(&self, dead: &[u8], pid: u32) {
        let (path, aside) = (self.claim_path(), self.dir.join(format!("{}.{pid}.old", self.host)));
        if fs::rename(&path, &aside).is_err() {
            return;
        }
        match private_file::read(&aside, BYTES_MAX) {
            Ok(found) if found != dead => {
                let _ = fs::hard_link(&aside, &path);
            }
            _ => {
                let _ = fs::remove_file(self.told_path());
            }
        }
        let _ = fs::remove_file(aside);
    }

    /// Lets the keeper know of the process that runs the command, which is the parent of this one.
    fn sign_in(&self, machine: &dyn Machine) {
        let parent = getppid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
        let Some((me, parent)) = machine.this_process().ok().zip(parent) else { return };
        let Some(started) = machine.started(parent) else { return };
        let guest = Process { pid: parent, started, ..me };
        let path = self.dir.join(format!("{}{parent}", self.guest_prefix()));
        let written =
            serde_json::to_vec(&guest).map_err(io::Error::from).and_then(|text| private_file::write(&path, &text));
        if let Err(error) = written {
            tracing::debug!(%error, "the recorder of this node may end before this process");
        }
    }

    fn guest_prefix(&self) -> String {
        format!("{}.guest-", self.host)
    }

    /// The files of guests.
    fn guests(&self) -> Vec<PathBuf> {
        let prefix = self.guest_prefix();
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let of_guests = entries.filter(|entry| {
            entry.file_name().to_str().and_then(|name| name.strip_prefix(&prefix)).is_some_and(is_number)
        });
        of_guests.map(|entry| entry.path()).collect()
    }

    fn is_taken(&self) -> bool {
        self.claim_path().exists()
    }

    fn claim_path(&self) -> PathBuf {
        self.dir.join(format!("{}.keeper", self.host))
    }

    fn wish_path(&self) -> PathBuf {
        self.dir.join(format!("{}.head", self.host))
    }

    fn told_path(&self) -> PathBuf {
        self.dir.join(format!("{}.json", self.host))
    }

    fn told(&self) -> Option<Vec<(String, OsString)>> {
        let text = private_file::read(&self.told_path(), BYTES_MAX).ok()?;
        serde_json::from_slice::<KeeperMessage>(&text).ok().map(|told| told.environment)
    }
}

fn own_uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the process of another claim runs. If that is unknown, it counts as running.
fn is_alive(claim: &[u8], me: &Process, machine: &dyn Machine) -> bool {
    let Ok(owner) = serde_json::from_slice::<Process>(claim) else { return false };
    if owner.host != me.host {
        return true;
    }
    owner.boot == me.boot && machine.started(owner.pid) == Some(owner.started)
}

/// That this process, the head, is to keep its node. Stands until this is dropped, and counts while the process lives.
#[derive(Debug)]
struct Wish {
    path: PathBuf,
    text: Vec<u8>,
}

impl Drop for Wish {
    fn drop(&mut self) {
        if private_file::read(&self.path, BYTES_MAX).is_ok_and(|found| found == self.text) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A node that is ours to keep, until this is dropped.
#[derive(Debug)]
pub struct Claim {
    meeting: Meeting,
    text: Vec<u8>,
}

impl Claim {
    /// Tells guests how the recorder is reached.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn tell(&self, environment: &[(String, OsString)]) -> io::Result<()> {
        let told = KeeperMessage { environment: environment.to_vec() };
        private_file::write(&self.meeting.told_path(), &serde_json::to_vec(&told)?)
    }

    /// Whether any guest still runs.
    pub fn has_guests(&self, machine: &dyn Machine) -> bool {
        let Ok(me) = machine.this_process() else { return false };
        let runs =
            |path: PathBuf| private_file::read(&path, BYTES_MAX).is_ok_and(|guest| is_alive(&guest, &me, machine));
        self.meeting.guests().into_iter().any(runs)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let path = self.meeting.claim_path();
        if private_file::read(&path, BYTES_MAX).is_ok_and(|found| found == self.text) {
            let _ = fs::remove_file(self.meeting.told_path());
            self.meeting.guests().into_iter().for_each(|guest| drop(fs::remove_file(guest)));
            let _ = fs::remove_file(path);
        }
        // The last one out closes the door.
        let _ = fs::remove_dir(&self.meeting.dir);
    }
}
