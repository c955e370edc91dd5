//! Where a `telem run` of one node saves: a directory of its own below the one that was named.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::super::claim::claim;

/// Where a database is saved: the first of `DIR/node`, `DIR/node-2`, ... that nobody has.
#[derive(Debug)]
pub struct Destination {
    parent: PathBuf,
    name: String,
    claimed: Option<PathBuf>,
}

impl Destination {
    pub fn new(parent: PathBuf, node: &str) -> Self {
        Self { parent, name: node.to_owned(), claimed: None }
    }

    /// Makes the directory, unless that was done.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn claim(&mut self) -> io::Result<&Path> {
        if self.claimed.is_none() {
            self.claimed = Some(claim(&self.parent, &self.name)?);
        }
        Ok(self.path())
    }

    /// As [`Destination::claim`], but not waited for longer than `patience`: a file system that hangs is for the saving
    /// thread to wait for, which claims again.
    ///
    /// # Errors
    /// When it cannot be made, and TimedOut.
    pub fn claim_within(&mut self, patience: Duration) -> io::Result<()> {
        let (send, claimed) = channel();
        let mut own = Self { claimed: self.claimed.clone(), parent: self.parent.clone(), name: self.name.clone() };
        let claim = move || {
            let made = own.claim().map(|_| ());
            if let Err(unheard) = send.send((made, own.claimed.clone())) {
                // Nobody waited: what was made at last is nobody's.
                own.claimed = unheard.0.1;
                own.discard();
            }
        };
        thread::Builder::new().name("telem-claim".to_owned()).spawn(claim)?;
        let (made, path) = claimed.recv_timeout(patience).map_err(|_| {
            let why = format!("its file system has not answered for {} s", patience.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, why)
        })?;
        self.claimed = path;
        made
    }

    /// The directory above.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The directory; while there is none, the one above.
    pub fn path(&self) -> &Path {
        self.claimed.as_deref().unwrap_or(&self.parent)
    }

    /// The id of the database that is saved there.
    pub fn node(&self) -> String {
        let claimed = self.claimed.as_deref().and_then(Path::file_name);
        claimed.map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned())
    }

    /// Lets go of the directory, which others took or removed: the next claim makes another.
    pub(super) fn give_up(&mut self) {
        self.claimed = None;
    }

    /// Removes what was made, where nothing lies in it.
    pub fn discard(&mut self) {
        if let Some(claimed) = self.claimed.take() {
            // What is not empty, or not there, stays as it is.
            let _ = fs::remove_dir(claimed);
            let _ = fs::remove_dir(&self.parent);
        }
    }
}
