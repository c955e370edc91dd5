//! Where databases stand below some directories.

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use telem_engine::disk::OsDisk;
use telem_engine::{DATABASE_FOLDERS, Db, check};

/// Directories that are looked into at most, so that a walk that began at `/` by mistake ends.
pub const LOOKED_MAX: usize = 200_000;

/// All databases below `dirs`, at most `depth` directories deep, in the order in which they are found. What cannot be
/// listed below a directory is passed over; links are not followed.
///
/// # Errors
/// Io, when one of `dirs` itself cannot be listed; and where there are more than [`LOOKED_MAX`] directories.
pub fn databases(dirs: &[PathBuf], depth: usize) -> io::Result<Vec<PathBuf>> {
    let named = |dir: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()));
    let (mut found, mut looked) = (Vec::new(), 0);
    for dir in dirs {
        let dir = std::path::absolute(dir)?;
        fs::read_dir(&dir).map_err(|error| named(&dir, error))?;
        let mut level = vec![dir];
        for _ in 0..=depth {
            let mut below = Vec::new();
            for dir in level {
                looked += 1;
                if looked > LOOKED_MAX {
                    return Err(io::Error::other(format!("more than {LOOKED_MAX} directories: name one further down")));
                }
                match is_database(&dir) {
                    Ok(false) => below.extend(directories(&dir)),
                    Ok(true) => found.push(dir),
                    // What cannot be read, for want of permission, is somebody else's.
                    Err(_) => {}
                }
            }
            below.sort();
            level = below;
        }
    }
    let mut known = HashSet::new();
    found.retain(|dir| known.insert(fs::canonicalize(dir).unwrap_or_else(|_| dir.clone())));
    Ok(found)
}

/// All databases in `dir` and below it, whatever they are called and however deep they lie, also within the directory of
/// another database. Links are not followed.
///
/// # Errors
/// Io, when a directory cannot be looked into: nobody knows then what is in it. As [`databases`] where there are too many.
pub fn all_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut found, mut left, mut looked) = (Vec::new(), vec![dir.to_path_buf()], 0);
    while let Some(dir) = left.pop() {
        looked += 1;
        if looked > LOOKED_MAX {
            return Err(io::Error::other(format!("more than {LOOKED_MAX} directories: name one further down")));
        }
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()));
        let is_database = is_database(&dir).map_err(io::Error::other)?;
        for entry in fs::read_dir(&dir).map_err(named)? {
            let entry = entry.map_err(named)?;
            let is_own = is_database && DATABASE_FOLDERS.iter().any(|folder| entry.file_name() == *folder);
            if entry.file_type().map_err(named)?.is_dir() && !is_own {
                left.push(entry.path());
            }
        }
        if is_database {
            found.push(dir);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether `dir` holds a database, be it broken.
fn is_database(dir: &Path) -> telem_engine::Result<bool> {
    match Db::stands_in(dir, &OsDisk) {
        Ok(stands) => Ok(stands || has_lost_its_manifest(dir)),
        Err(error) if is_no_file(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether `dir` has what is in a database but for its manifest. One folder of such a name may be anything.
fn has_lost_its_manifest(dir: &Path) -> bool {
    let folders = ["meta", "segments", "series", "wal"].iter().filter(|folder| dir.join(folder).is_dir()).count();
    folders > 2 && check::stands_in(dir, &OsDisk).unwrap_or(false)
}

/// Whether something stands in the place of a file that is none, such as a pipe.
fn is_no_file(error: &telem_engine::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::InvalidInput)
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    entries.filter(|entry| is_directory(entry) && !is_hidden(entry)).map(|entry| entry.path()).collect()
}
