//! Where databases stand below some directories.

use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use telem_engine::disk::OsDisk;
use telem_engine::{DATABASE_FOLDERS, Db, MANIFEST_FILE, Options, check};

use super::row::run_dir;
use super::spread::spread;

/// Directories that are looked into at most, so that a walk that began at `/` by mistake ends.
pub const LOOKED_MAX: usize = 200_000;

/// A directory that holds a database, be it broken.
#[derive(Debug)]
pub struct DatabasePlace {
    pub dir: PathBuf,
    /// The names of the files in it; `None` where it may not be listed.
    pub files: Option<Vec<OsString>>,
}

/// All databases below `dirs`, at most `depth` directories deep, in the order in which they are found. What cannot be
/// listed below a directory is passed over; links are not followed. Each directory is listed once, and no file is opened
/// where all is in order.
///
/// # Errors
/// Io, when one of `dirs` itself cannot be listed; and where there are more than [`LOOKED_MAX`] directories.
pub fn databases(dirs: &[PathBuf], depth: usize) -> io::Result<Vec<DatabasePlace>> {
    let named = |dir: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()));
    let (mut found, mut looked) = (Vec::new(), 0);
    for dir in dirs {
        let dir = std::path::absolute(dir)?;
        fs::read_dir(&dir).map_err(|error| named(&dir, error))?;
        let mut level = vec![dir];
        for _ in 0..=depth {
            looked += level.len();
            if looked > LOOKED_MAX {
                return Err(io::Error::other(format!("more than {LOOKED_MAX} directories: name one further down")));
            }
            let mut below = Vec::new();
            for seen in spread(&level, |dir| look(dir)) {
                match seen {
                    DirectoryRole::Database(place) => found.push(place),
                    DirectoryRole::Directories(inside) => below.extend(inside),
                }
            }
            below.sort();
            level = below;
        }
    }
    // Nothing is found twice below one directory.
    if dirs.len() > 1 {
        let mut known = HashSet::new();
        found.retain(|place| known.insert(fs::canonicalize(&place.dir).unwrap_or_else(|_| place.dir.clone())));
    }
    Ok(found)
}

/// What a directory is for this walk.
enum DirectoryRole {
    Database(DatabasePlace),
    /// None, but it may hold some: the directories in it that are not hidden.
    Directories(Vec<PathBuf>),
}

fn look(dir: &Path) -> DirectoryRole {
    let Ok(entries) = fs::read_dir(dir) else {
        let stands = Db::stands_in(dir, &OsDisk).unwrap_or(false);
        let place = || DatabasePlace { dir: dir.to_path_buf(), files: None };
        return if stands { DirectoryRole::Database(place()) } else { DirectoryRole::Directories(Vec::new()) };
    };
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => directories.push(entry.file_name()),
            // A link that leads nowhere is no manifest.
            Ok(kind) if kind.is_symlink() && !entry.path().exists() => {}
            _ => files.push(entry.file_name()),
        }
    }
    let has_manifest = files.iter().chain(&directories).any(|name| name == MANIFEST_FILE);
    if has_manifest || has_lost_its_manifest(dir, &directories) {
        return DirectoryRole::Database(DatabasePlace { dir: dir.to_path_buf(), files: Some(files) });
    }
    directories.retain(|name| !name.as_encoded_bytes().starts_with(b"."));
    DirectoryRole::Directories(directories.iter().map(|name| dir.join(name)).collect())
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

/// Whether `dir` is a saved run: a database, or the directory around those of its nodes. One that cannot be opened says
/// no node, and so is in no run.
pub fn is_run(dir: &Path) -> bool {
    let is_of_run = |database: &Path| {
        is_database(database).unwrap_or(false)
            && Db::open_read_only(database, Options::default())
                .and_then(|db| db.info())
                .is_ok_and(|info| run_dir(database, &info.node) == dir)
    };
    is_database(dir).unwrap_or(false)
        || fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| is_of_run(&entry.path()))
}

/// Whether `dir` holds a database, be it broken.
///
/// # Errors
/// Where that cannot be found out.
pub fn is_database(dir: &Path) -> telem_engine::Result<bool> {
    match Db::stands_in(dir, &OsDisk) {
        Ok(true) => Ok(true),
        Ok(false) => {
            let directories = DATABASE_FOLDERS.iter().filter(|folder| dir.join(folder).is_dir());
            Ok(has_lost_its_manifest(dir, &directories.map(OsString::from).collect::<Vec<_>>()))
        }
        Err(error) if is_no_file(&error) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether `dir`, with these `directories` in it, has what is in a database but for its manifest. One folder of such a
/// name may be anything.
fn has_lost_its_manifest(dir: &Path, directories: &[OsString]) -> bool {
    let folders =
        ["meta", "segments", "series", "wal"].iter().filter(|name| directories.iter().any(|one| one == *name));
    folders.count() > 2 && check::stands_in(dir, &OsDisk).unwrap_or(false)
}

/// Whether something stands in the place of a file that is none, such as a pipe.
pub fn is_no_file(error: &telem_engine::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::InvalidInput)
}
