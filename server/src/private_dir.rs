//! Private directories in places where any user may write, such as `/tmp`.
//!
//! A stranger may have taken any name there: by a file, by a link that leads elsewhere or nowhere, by a directory of
//! another user. So a directory is created first and examined then; the name itself is examined, never the target of a
//! link. If a name is taken, the next of a few is tried, so that no other user can keep a job from being recorded.

#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many names are tried in one place: `NAME`, `NAME-2`, ..., `NAME-9`.
pub const NAMES_MAX: u32 = 9;

/// Why a directory is not ours alone.
#[derive(Debug, thiserror::Error)]
pub enum PrivateDirError {
    #[error("{} {found}, and must be a directory of uid {uid} with mode 0700", path.display())]
    Unsafe { path: PathBuf, found: String, uid: u32 },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> PrivateDirError + use<'a> {
    move |source| PrivateDirError::Io { action, path: path.to_path_buf(), source }
}

/// What other users may do in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// No other user may enter it: mode 0700.
    Closed,
    /// No other user may write in it. For shared file systems, some of which have modes of their own.
    Unwritten,
}

/// A directory that is ours alone, and the names before it that were taken.
#[derive(Debug)]
pub struct PrivateDir {
    pub path: PathBuf,
    pub passed: Vec<PrivateDirError>,
}

/// Makes `dir`, with mode 0700, unless it is there, and checks that it is of `uid` and so private.
///
/// # Errors
/// Unsafe when it is a link, a file, owned by another user or open to others; Io when it cannot be created.
pub fn own(dir: &Path, uid: u32, privacy: Privacy) -> Result<(), PrivateDirError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error("create", dir)(error)),
        _ => check(dir, uid, privacy),
    }
}

/// Checks that `dir` is a directory of `uid` and so private.
///
/// # Errors
/// Unsafe when it is not; Io where it is not there.
pub fn check(dir: &Path, uid: u32, privacy: Privacy) -> Result<(), PrivateDirError> {
    let is_private = |mode: u32| match privacy {
        Privacy::Closed => mode & 0o777 == 0o700,
        Privacy::Unwritten => mode & 0o022 == 0,
    };
    // Of the name itself, not of its target: in /tmp any user can place a link.
    let found = fs::symlink_metadata(dir).map_err(io_error("look at", dir))?;
    let wrong = if found.is_symlink() {
        "is not a directory but a link".to_owned()
    } else if !found.is_dir() {
        "is not a directory".to_owned()
    } else if found.uid() != uid {
        format!("belongs to uid {}", found.uid())
    } else if !is_private(found.mode()) {
        format!("has mode {:04o}", found.mode() & 0o777)
    } else {
        return Ok(());
    };
    Err(PrivateDirError::Unsafe { path: dir.to_path_buf(), found: wrong, uid })
}

/// The names that are tried for `name`, in their order.
pub fn names(name: &str) -> impl Iterator<Item = String> {
    (1..=NAMES_MAX).map(move |n| if n == 1 { name.to_owned() } else { format!("{name}-{n}") })
}

/// Those of the names below `base` that are there and so private; nothing is made.
pub fn found_below(base: &Path, name: &str, uid: u32, privacy: Privacy) -> Vec<PathBuf> {
    names(name).map(|name| base.join(name)).filter(|path| check(path, uid, privacy).is_ok()).collect()
}

/// Makes or finds `base/name`; where that name is taken `base/name-2`, and so on. All processes of `uid` find the same
/// one as long as its place is not changed.
///
/// # Errors
/// The first, where no name can be used.
pub fn below(base: &Path, name: &str, uid: u32, privacy: Privacy) -> Result<PrivateDir, PrivateDirError> {
    let mut passed = Vec::new();
    for name in names(name) {
        let path = base.join(name);
        match own(&path, uid, privacy) {
            Ok(()) => return Ok(PrivateDir { path, passed }),
            Err(taken @ PrivateDirError::Unsafe { .. }) => passed.push(taken),
            // Another name would fare no better.
            Err(error) => return Err(passed.into_iter().next().unwrap_or(error)),
        }
    }
    let last = base.join(format!("{name}-{NAMES_MAX}"));
    let full = io::Error::new(io::ErrorKind::AlreadyExists, "all names up to it are taken");
    Err(passed.into_iter().next().unwrap_or(io_error("create", &last)(full)))
}

impl PrivateDir {
    /// Says which names were taken, if any were.
    pub fn tell_passed(&self, purpose: &str) {
        if let Some(first) = self.passed.first() {
            tracing::warn!("{purpose} in {}, because {first}; find out who put it there", self.path.display());
        }
    }
}
