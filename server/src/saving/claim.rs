//! Reserves a directory by creating it: two processes that do so at once never get the same one.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// How many names are tried: `n`, `n-2`, ..., `n-10000`.
const NAMES_MAX: u32 = 10_000;

/// Makes `parent/name`, or where that is taken `parent/name-2` and so on, with mode 0700; `parent` is made if it
/// is not there.
///
/// # Errors
/// When a directory cannot be made; AlreadyExists when all names are taken.
pub fn claim(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let make_parent = || DirBuilder::new().recursive(true).create(parent);
    make_parent()?;
    let mut n = 1;
    while n <= NAMES_MAX {
        let dir = parent.join(if n == 1 { name.to_owned() } else { format!("{name}-{n}") });
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
            // Another job has just tidied up: tried again, and no more often than there are names.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_parent()?;
                n += 1;
            }
            Err(error) => return Err(error),
        }
    }
    let all = format!("{name} to {name}-{NAMES_MAX} are all taken in {}", parent.display());
    Err(io::Error::new(io::ErrorKind::AlreadyExists, all))
}
