//! Where the nodes of a job are saved. At the head: which node has which directory, and how far it is. At a node that
//! cannot write there: a [disk](HeadDisk) whose files are the head's.
//!
//! A node asks the head for its directory, and is told of a probe file in it: a node that can read the probe writes
//! there directly. Other nodes send the same files part by part, as an engine [`Mirror`](telem_engine::Mirror) makes
//! them, under a temporary name until they are whole and durable. So a copy is equally sound on both ways, wherever it
//! was interrupted. Only the mirror's file names are accepted, and no name is ever used as a path.

mod board;
mod disk;
mod place;
mod routes;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use telem_engine::disk::{Disk, OsDisk};
use telem_engine::mirror;
use tokio::sync::Semaphore;

use crate::config::{ConfigError, checked_name};
use crate::http::body::{BodyBudget, BodyLimits};
use crate::saving::claim::claim;
use crate::token::Token;
pub use board::{NodeSaved, Overview, SavedNodes, UploadOutcome, UploadProgress};
pub use disk::HeadDisk;
pub use place::NodePlace;
pub use routes::routes;
use store::UploadStore;

/// Largest part of a file that is sent at a time, and so what one request holds in memory.
pub const PART_BYTES_MAX: usize = 4 << 20;
/// Memory that the parts of all nodes take together.
const PARTS_BYTES_MAX: usize = 64 << 20;
/// Requests of nodes that use the disk at once; one more is told to retry.
const AT_DISK_MAX: usize = 8;
/// Most nodes that are saved.
const NODES_MAX: usize = 16_384;
/// Directories of one name that are looked at: a node that came back as often has other troubles.
const NAMES_LOOKED_AT: u32 = 64;

/// How nodes write their directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Themselves, if they see where the job is saved; else through the head.
    #[default]
    Found,
    /// Through the head, all of them: for a file system that is not to be asked by many nodes.
    ThroughHead,
}

/// Where a job is saved, at its head. Clones are the same.
#[derive(Clone)]
pub struct Uploads {
    inner: Arc<Inner>,
}

struct Inner {
    save: PathBuf,
    token: Token,
    sharing: Sharing,
    /// From when the first node asks.
    probe: OnceLock<Option<Probe>>,
    limits: BodyLimits,
    at_disk: Arc<Semaphore>,
    /// Held while the disk is asked for a directory, which may take long: two nodes must not find the same.
    giving: Mutex<()>,
    nodes: Mutex<BTreeMap<String, NodeCopy>>,
    /// Something in `nodes` changed.
    changed: Condvar,
}

/// The directory of a node, and how far it is.
#[derive(Clone, Debug)]
struct NodeCopy {
    /// The id of the database whose copy it is.
    database: String,
    store: Arc<UploadStore>,
    progress: UploadProgress,
}

/// A file in the directory where the job is saved that nobody can guess: who can read it shares the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    pub path: PathBuf,
    pub contents: String,
}

/// What a node asks for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryRequest {
    /// The id of its database: a copy of it that was begun is gone on with.
    pub database: String,
    /// A directory that it was given and could not use.
    #[serde(default)]
    pub avoid: Option<PathBuf>,
}

/// The answer to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryGrant {
    /// On the head, absolute.
    pub dir: PathBuf,
    pub probe: Option<Probe>,
}

#[derive(Debug, thiserror::Error)]
pub enum UploadsError {
    #[error(transparent)]
    Name(#[from] ConfigError),
    #[error("{NODES_MAX} nodes are saved here already, which is the limit")]
    TooMany,
    #[error("cannot create a directory in {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Engine(#[from] telem_engine::Error),
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").field("save", &self.inner.save).finish_non_exhaustive()
    }
}

impl Uploads {
    /// The nodes of a job are saved in directories below `save`, which is made for the first of them. `token` is the
    /// job's: every request needs it, wherever it comes from. Where no probe can be written, nodes send their files.
    pub fn new(save: &Path, token: Token, sharing: Sharing) -> Uploads {
        let limits =
            BodyLimits { bytes_max: PART_BYTES_MAX, budget: BodyBudget::new(PARTS_BYTES_MAX), ..BodyLimits::default() };
        let inner = Inner {
            save: std::path::absolute(save).unwrap_or_else(|_| save.to_path_buf()),
            token,
            sharing,
            probe: OnceLock::new(),
            limits,
            at_disk: Arc::new(Semaphore::new(AT_DISK_MAX)),
            giving: Mutex::default(),
            nodes: Mutex::default(),
            changed: Condvar::new(),
        };
        Uploads { inner: Arc::new(inner) }
    }

    /// The directory above those of the nodes.
    pub fn save(&self) -> &Path {
        &self.inner.save
    }

    /// The directory of `node`: the one that it has, one with a copy of its database that an earlier process began, or
    /// a new one. No two nodes have the same.
    ///
    /// # Errors
    /// [`UploadsError`].
    pub fn give(&self, node: &str, wanted: &DirectoryRequest) -> Result<DirectoryGrant, UploadsError> {
        checked_name("node", node)?;
        let _giving = self.inner.giving.lock().unwrap_or_else(PoisonError::into_inner);
        let avoided = |dir: &Path| wanted.avoid.as_deref() == Some(dir);
        let (known, others): (Vec<_>, Vec<_>) = {
            let nodes = self.nodes();
            if nodes.len() >= NODES_MAX && !nodes.contains_key(node) {
                return Err(UploadsError::TooMany);
            }
            let all =
                nodes.iter().map(|(name, one)| (name == node, one.database.clone(), one.store.dir().to_path_buf()));
            all.partition(|(is_own, database, dir)| *is_own && *database == wanted.database && !avoided(dir))
        };
        let dir = match known.into_iter().next() {
            Some((_, _, dir)) => dir,
            None => {
                let is_taken = |dir: &Path| avoided(dir) || others.iter().any(|(_, _, other)| other == dir);
                let dir = match self.begun(node, &wanted.database, is_taken)? {
                    Some(begun) => begun,
                    None => self.fresh(node)?,
                };
                let store = Arc::new(UploadStore::new(dir.clone()));
                let saving = NodeCopy { database: wanted.database.clone(), store, progress: UploadProgress::default() };
                self.nodes().insert(node.to_owned(), saving);
                self.inner.changed.notify_all();
                dir
            }
        };
        Ok(DirectoryGrant { dir, probe: self.probe() })
    }

    fn probe(&self) -> Option<Probe> {
        let write = || match self.inner.sharing {
            Sharing::ThroughHead => None,
            Sharing::Found => Probe::write(&self.inner.save).map_or_else(
                |error| {
                    let dir = self.inner.save.display();
                    tracing::warn!(%error, %dir, "no probe can be written there: all nodes send their files");
                    None
                },
                Some,
            ),
        };
        self.inner.probe.get_or_init(write).clone()
    }

    /// A directory of this node with a copy of `database`.
    fn begun(
        &self,
        node: &str,
        database: &str,
        is_taken: impl Fn(&Path) -> bool,
    ) -> Result<Option<PathBuf>, UploadsError> {
        for n in 1..=NAMES_LOOKED_AT {
            let dir = self.inner.save.join(if n == 1 { node.to_owned() } else { format!("{node}-{n}") });
            if !dir.is_dir() {
                break;
            }
            if is_taken(&dir) {
                continue;
            }
            match mirror::database_in(&dir, &OsDisk) {
                Ok(found) if found.as_deref() == Some(database) => return Ok(Some(dir)),
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "not gone on with"),
            }
        }
        Ok(None)
    }

    fn fresh(&self, node: &str) -> Result<PathBuf, UploadsError> {
        let failed = |source| UploadsError::Io { path: self.inner.save.clone(), source };
        let dir = claim(&self.inner.save, node).map_err(failed)?;
        OsDisk.sync_dir(&self.inner.save).map_err(failed)?;
        Ok(dir)
    }

    fn store(&self, node: &str) -> Option<Arc<UploadStore>> {
        self.nodes().get(node).map(|one| Arc::clone(&one.store))
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, NodeCopy>> {
        // Every change is one insertion.
        self.inner.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Probe {
    fn write(dir: &Path) -> io::Result<Probe> {
        let random = || Token::random().map_err(io::Error::other);
        let (name, contents) = (random()?, random()?.secret().to_owned());
        let path = dir.join(format!(".telem-probe-{}", &name.secret()[..16]));
        let mut file = OsDisk.create(&path)?;
        file.append(contents.as_bytes())?;
        file.sync()?;
        Ok(Probe { path, contents })
    }

    /// Whether the directory in which the probe was written is the one of that name here, and files can be made in it.
    pub fn is_shared(&self) -> bool {
        let reads = || std::fs::read(&self.path).is_ok_and(|found| found == self.contents.as_bytes());
        reads() && self.can_write_beside()
    }

    fn can_write_beside(&self) -> bool {
        let Ok(own) = Token::random() else { return false };
        let mut name = self.path.clone().into_os_string();
        name.push(format!("-{}", &own.secret()[..16]));
        let made = OsDisk.create(Path::new(&name)).is_ok();
        made && OsDisk.remove(Path::new(&name)).is_ok()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(Some(probe)) = self.probe.get() {
            // Of no use to anybody any more, and of no harm where it stays.
            let _ = std::fs::remove_file(&probe.path);
        }
    }
}
