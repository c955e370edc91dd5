//! Where a `telem run` of one node saves: in a directory of its own below the one that the user named.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::saving::claim::claim;

/// How the name of the directory above was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Who started telem: it is that one or none.
    Asked,
    /// telem, after the job: where a stranger took that name, another one will do.
    OfJob,
}

/// How many names that telem chooses are tried: `telem-JOB`, `telem-JOB-2`, ..., `telem-JOB-9`.
pub(crate) const NAMES_MAX: u32 = 9;
/// What the mode of a directory says where anybody may put something into it.
const WRITTEN_BY_ALL: u32 = 0o002;

/// Where a database is saved: the first of `DIR/node`, `DIR/node-2`, ... that nobody has.
#[derive(Clone, Debug)]
pub struct Destination {
    parent: PathBuf,
    naming: Naming,
    name: String,
    claimed: Option<PathBuf>,
}

impl Destination {
    pub fn new(parent: PathBuf, naming: Naming, node: &str) -> Self {
        Self { parent, naming, name: node.to_owned(), claimed: None }
    }

    /// Makes the directory, unless that was done.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn claim(&mut self) -> io::Result<&Path> {
        if self.claimed.is_none() {
            if self.naming == Naming::OfJob {
                self.choose_parent();
            }
            self.claimed = Some(claim(&self.parent, &self.name)?);
        }
        Ok(self.path())
    }

    /// Takes another name for the directory above where a stranger has that one: in a directory where anybody may
    /// write, somebody may have put there a file, a link, or a directory to read what is saved.
    fn choose_parent(&mut self) {
        let names = (2..=NAMES_MAX).map(|n| {
            let mut name = self.parent.file_name().unwrap_or_default().to_owned();
            name.push(format!("-{n}"));
            self.parent.with_file_name(name)
        });
        let Some(taken) = in_the_way(&self.parent) else { return };
        let Some(other) = names.into_iter().find(|name| in_the_way(name).is_none()) else { return };
        tracing::warn!("the samples are saved in {}, because {taken}", other.display());
        self.parent = other;
    }

    /// As [`Destination::claim`], but not waited for longer than `patience`: a file system that hangs is for the saving
    /// thread to wait for, which claims again.
    ///
    /// # Errors
    /// When it cannot be made, and TimedOut.
    pub fn claim_within(&mut self, patience: Duration) -> io::Result<()> {
        let (send, claimed) = channel();
        let mut own = self.clone();
        let claim = move || {
            let made = own.claim().map(|_| ());
            if let Err(unheard) = send.send((made, own)) {
                // Nobody waited: what was made at last is nobody's.
                let (_, mut own) = unheard.0;
                own.discard();
            }
        };
        thread::Builder::new().name("telem-claim".to_owned()).spawn(claim)?;
        let (made, own) = claimed.recv_timeout(patience).map_err(|_| {
            let why = format!("its file system has not answered for {} s", patience.as_secs_f64());
            io::Error::new(io::ErrorKind::TimedOut, why)
        })?;
        *self = own;
        made
    }

    /// The directory above.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// The directory, or its parent while it does not exist.
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

/// Why nothing of ours can be saved below `dir`, as far as its name alone says that.
fn in_the_way(dir: &Path) -> Option<String> {
    let found = fs::symlink_metadata(dir).ok()?;
    if !dir.is_dir() {
        return Some(format!("{} is in the way and no directory", dir.display()));
    }
    let uid = rustix::process::getuid().as_raw();
    let around = dir.parent().and_then(|parent| fs::metadata(parent).ok());
    let is_anybodys = around.is_some_and(|around| around.mode() & WRITTEN_BY_ALL != 0);
    (is_anybodys && found.uid() != uid).then(|| format!("{} belongs to uid {}", dir.display(), found.uid()))
}
