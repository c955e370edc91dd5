//! The place where a node saves, as the node sees it: the directory that its head assigned, written directly or through
//! the head.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use bytes::Bytes;
use telem_engine::disk::{Disk, OsDisk};

use super::disk::{Asking, Heads, problem};
use super::{DirectoryGrant, DirectoryRequest, HeadDisk, UploadProgress};
use crate::saving::claim::claim;

/// How often, at the most, a node that sends its files is brought up to date: many nodes share one head.
pub const SENT_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// See the head of this file.
#[derive(Debug)]
pub struct NodePlace {
    asking: Arc<Asking>,
    /// Where the job is saved, for a node whose head is gone.
    save: Option<PathBuf>,
    found: Option<CopyDirectory>,
    /// A directory that was of no use.
    avoid: Option<PathBuf>,
    /// Writing directly has failed: files are sent from then on.
    send: bool,
}

/// A directory to save in.
#[derive(Clone, Debug)]
pub struct CopyDirectory {
    pub dir: PathBuf,
    pub disk: Arc<dyn Disk>,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The head's directory is seen here too.
    Directly,
    /// Through the head.
    Sent,
    /// The head is gone, and the directory was made here.
    Alone,
}

impl NodePlace {
    /// `heads` says where the head may be, and is asked again when none of that answers; `node` is the name that it gave.
    /// `save` is where the job is saved: should the head be gone from the start, `save/node` is written, if `save` is
    /// there.
    pub fn new(heads: Heads, node: &str, save: Option<PathBuf>) -> Self {
        let asking = Arc::new(Asking::new(heads, node.to_owned()));
        Self { asking, save, found: None, avoid: None, send: false }
    }

    /// The directory for a copy of `database`.
    ///
    /// # Errors
    /// What the head says, or why it does not.
    pub fn find(&mut self, database: &str) -> io::Result<CopyDirectory> {
        if let Some(found) = &self.found {
            return Ok(found.clone());
        }
        let wanted = DirectoryRequest { database: database.to_owned(), avoid: self.avoid.clone() };
        let body = Bytes::from(serde_json::to_vec(&wanted)?);
        let answered = match self.asking.ask(&Method::POST, "save", &body) {
            Ok(answered) => answered,
            Err(error) => return self.alone(error),
        };
        if !answered.status.is_success() {
            return Err(io::Error::other(problem(&answered)));
        }
        let given: DirectoryGrant = serde_json::from_slice(&answered.body)?;
        let is_shared = !self.send && given.probe.as_ref().is_some_and(super::Probe::is_shared);
        let found = match is_shared {
            true => CopyDirectory { dir: given.dir, disk: Arc::new(OsDisk), how: How::Directly },
            false => {
                let disk = HeadDisk::new(Arc::clone(&self.asking), given.dir.clone());
                CopyDirectory { dir: given.dir, disk: Arc::new(disk), how: How::Sent }
            }
        };
        tracing::info!(dir = %found.dir.display(), how = ?found.how, "where this node is saved");
        Ok(self.found.insert(found).clone())
    }

    /// A node whose head never came still saves what it has, where the job's directory is seen from here.
    fn alone(&mut self, error: io::Error) -> io::Result<CopyDirectory> {
        let Some(save) = self.save.as_ref().filter(|save| save.is_dir()) else { return Err(error) };
        tracing::warn!(%error, save = %save.display(), "no head says where to save; this node saves without one");
        let dir = claim(save, self.asking.node())?;
        let found = CopyDirectory { dir, disk: Arc::new(OsDisk), how: How::Alone };
        Ok(self.found.insert(found).clone())
    }

    /// The directory, where one was found; else the one above, or nothing.
    pub fn dir(&self) -> &Path {
        let found = self.found.as_ref().map(|found| &*found.dir);
        found.or(self.save.as_deref()).unwrap_or(Path::new(""))
    }

    /// The directory in which the job is saved, where this node can see it.
    pub fn save(&self) -> Option<&Path> {
        self.save.as_deref().filter(|save| save.is_dir())
    }

    /// The directory of the copy, where this node writes it directly.
    pub fn seen_from_here(&self) -> Option<PathBuf> {
        let found = self.found.as_ref().filter(|found| found.how != How::Sent);
        found.map(|found| found.dir.clone())
    }

    /// The directory is of no use, because another process writes there or it holds something else: the next is another.
    pub fn avoid(&mut self) {
        self.avoid = self.found.take().map(|found| found.dir);
    }

    /// The directory cannot be written from here; whether it may be tried through the head instead.
    pub fn send_instead(&mut self) -> bool {
        let directly = self.found.as_ref().is_some_and(|found| found.how == How::Directly);
        if directly {
            self.send = true;
            self.found = None;
        }
        directly
    }

    /// The head may have been started anew: it is asked again where to save.
    pub fn ask_again(&mut self) {
        if self.found.as_ref().is_some_and(|found| found.how == How::Sent) {
            self.found = None;
        }
    }

    /// How often the copy is brought up to date where it was to be `interval`.
    pub fn interval(&self, interval: Duration) -> Duration {
        match self.found.as_ref().map(|found| found.how) {
            Some(How::Sent) => interval.max(SENT_INTERVAL_MIN),
            _ => interval,
        }
    }

    /// Tells the head how far it is. A head that is gone need not know.
    pub fn tell(&self, progress: &UploadProgress) {
        let told = serde_json::to_vec(progress).map_err(io::Error::other);
        let told = told.and_then(|body| self.asking.ask(&Method::POST, "saved", &Bytes::from(body)));
        if let Err(error) = told {
            tracing::debug!(%error, "the progress of saving cannot be reported to the head");
        }
    }
}
