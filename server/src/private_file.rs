//! Files that contain a secret: they appear as a whole or not at all, and are readable only by their user.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many names are tried for a file that is not whole yet: in public places any of them may be taken.
pub(crate) const NAMES_MAX: u32 = 9;
/// What reads and writes are, besides their user's.
const MODE_OF_OTHERS: u32 = 0o077;
const ROOT: u32 = 0;

/// Why a private file cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has mode {mode:04o}, so other users may know its secret; chmod 600 it, or create a new secret", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{} belongs to uid {found}, and this process runs as uid {uid}", path.display())]
    NotOurs { path: PathBuf, found: u32, uid: u32 },
    #[error("{} has {found} bytes; at most {bytes_max} are read", path.display())]
    Large { path: PathBuf, found: u64, bytes_max: u64 },
}

/// Writes `content` to `path` whole or not at all, with mode 0600.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let (mut file, new) = create_beside(path)?;
    // On a shared file system others see what was synced when the name appears.
    let written = file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        // Useless by now; the error that counts is the first one.
        fs::remove_file(&new).unwrap_or_default();
        return Err(error);
    }
    Ok(())
}

/// A new file that nobody else has opened, and its name.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut n = 1;
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        if n > 1 {
            name.push(format!("-{n}"));
        }
        let new = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < NAMES_MAX => n += 1,
            made => return made.map(|file| (file, new)),
        }
    }
}

/// What `path` holds, if it is ours (or root's) and nobody else could have read it.
///
/// # Errors
/// [`PrivateFileError`].
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, PrivateFileError> {
    let cannot = |source| PrivateFileError::Read { path: path.to_path_buf(), source };
    let file = File::open(path).map_err(cannot)?;
    // Of the open file: a name may mean another file a moment later.
    let found = file.metadata().map_err(cannot)?;
    let uid = rustix::process::getuid().as_raw();
    if found.uid() != uid && found.uid() != ROOT && uid != ROOT {
        return Err(PrivateFileError::NotOurs { path: path.to_path_buf(), found: found.uid(), uid });
    }
    if found.is_file() && found.mode() & MODE_OF_OTHERS != 0 {
        return Err(PrivateFileError::Open { path: path.to_path_buf(), mode: found.mode() & 0o7777 });
    }
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content).map_err(cannot)?;
    if content.len() as u64 > bytes_max {
        return Err(PrivateFileError::Large { path: path.to_path_buf(), found: found.len(), bytes_max });
    }
    Ok(content)
}
