//! Finds the databases in directories that a user names.
//!
//! A database is one directory and belongs to one node; a job saves a directory with one such directory per node. A
//! user may name either, and several of them: if two hold the same sample, the later one wins.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::process::{Resource, getrlimit};
use telem_engine::check;
use telem_engine::disk::OsDisk;
use telem_engine::{Clock, DATABASE_FOLDERS, Db, Options, UnopenedDatabase};
use telem_query::MissingNode;

use crate::client::Address;

/// Most databases that are opened as one.
pub const DATABASES_MAX: usize = 4_096;
/// Directories that are looked into at once: a file system that many nodes share makes each look a wait.
const LOOKING_MAX: usize = 16;
/// Databases that are named, where there are many.
const NAMED_MAX: usize = 8;
/// Segments of each database that may stay open: a job of a day or two.
const SEGMENTS_EACH: usize = 4;
/// What the runs of a database of some thousand series take.
const SEGMENT_BYTES_EACH: u64 = 1 << 20;
/// What all of them may take.
const SEGMENT_BYTES_MAX: u64 = 512 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    #[error("there is no directory {}; {}", path.display(), instead(path))]
    Missing { path: PathBuf },
    #[error("{} is a server, and this command reads directories of databases", path.display())]
    Server { path: PathBuf },
    #[error("{} is a file; name the directory of a database, or one that holds databases", path.display())]
    NotADirectory { path: PathBuf },
    #[error(
        "{} holds no database: neither it, nor one of the {directories} directories in it, nor one in those has a file \
         MANIFEST; name the directory of a database, or one that holds databases",
        path.display()
    )]
    Empty { path: PathBuf, directories: usize },
    #[error("{found} databases; at most {DATABASES_MAX} are opened as one: name fewer")]
    TooMany { found: usize },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Engine(#[from] telem_engine::Error),
}

/// What to name in the place of a directory that is not there.
fn instead(path: &Path) -> String {
    let text = path.to_string_lossy();
    let server = text
        .rsplit_once(':')
        .filter(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok());
    match server {
        Some(_) => format!("a server is named with its scheme, as in http://{text}"),
        None => "name that of a database, or one that holds databases".to_owned(),
    }
}

/// What to do about a database that cannot be opened among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsoundPolicy {
    /// Nothing is opened.
    Fail,
    /// The others are, and the caller is informed.
    LeaveOut,
}

/// Databases that are open as one, and those that could not be.
#[derive(Debug)]
pub struct OpenedDatabases {
    pub db: Db,
    pub unopened: Vec<UnopenedDatabase>,
}

impl OpenedDatabases {
    /// The nodes that answers lack: those of databases that could not be opened. A saved node has its directory's name.
    pub fn absent(&self) -> Vec<MissingNode> {
        let absent = self.unopened.iter().map(|one| MissingNode {
            node: one.dir.file_name().unwrap_or(one.dir.as_os_str()).to_string_lossy().into_owned(),
            reason: one.error.to_string(),
        });
        absent.collect()
    }

    /// What people are to know who get less than was written.
    pub fn warnings(&self) -> Vec<String> {
        let unopened = self.unopened.iter().map(|one| {
            let dir = one.dir.display();
            format!("{dir} is left out: {}; `telem check {dir}` says more", one.error)
        });
        let lacking = self.db.recoveries().into_iter().filter_map(|(dir, recovery)| {
            let lacks = !recovery.damaged.is_empty() || !recovery.missing.is_empty();
            lacks.then(|| format!("{recovery}; `telem check {}` says more", dir.display()))
        });
        unopened.chain(lacking).collect()
    }
}

/// Opens `databases` as one, without changing anything, also while somebody writes them.
///
/// # Errors
/// That of the first database that cannot be opened; where such are left out, only when none can.
pub fn open(
    databases: &[PathBuf],
    unsound: UnsoundPolicy,
    clock: Arc<dyn Clock>,
) -> Result<OpenedDatabases, SavedError> {
    let options = engine_options(databases.len(), clock);
    let (db, unopened) = match unsound {
        UnsoundPolicy::Fail => (Db::open_together(databases, options)?, Vec::new()),
        UnsoundPolicy::LeaveOut => Db::open_together_but(databases, options)?,
    };
    Ok(OpenedDatabases { db, unopened })
}

/// With what `databases` are opened to be read: as many segments stay open with their runs in memory as that many nodes
/// need to be asked again and again, within half of the files that this process may have open.
pub fn engine_options(databases: usize, clock: Arc<dyn Clock>) -> Options {
    let default = Options::default();
    let files = usize::try_from(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX);
    Options {
        segment_files_max: (databases * SEGMENTS_EACH).max(default.segment_files_max).min(files).max(1),
        segment_bytes_max: (databases as u64 * SEGMENT_BYTES_EACH).clamp(default.segment_bytes_max, SEGMENT_BYTES_MAX),
        clock,
        ..default
    }
}

/// The databases that `named` directories are and hold, at most two levels down: in the order given, those of one
/// directory by name (`n1-2` before `n1-10`). In a directory that is a database nothing is looked for, but in one of
/// those that a user named. One that is named twice is used once, at its last place.
///
/// # Errors
/// The first directory that is not a database and holds none, or that cannot be read; too many databases.
pub fn databases(named: &[PathBuf]) -> Result<Vec<PathBuf>, SavedError> {
    databases_where(named, |dir| Db::stands_in(dir, &OsDisk))
}

/// As [`databases`], and those too that have lost their manifest.
///
/// # Errors
/// As [`databases`].
pub fn databases_even_damaged(named: &[PathBuf]) -> Result<Vec<PathBuf>, SavedError> {
    databases_where(named, |dir| check::stands_in(dir, &OsDisk))
}

fn databases_where(
    named: &[PathBuf],
    stands_in: impl Fn(&Path) -> telem_engine::Result<bool> + Sync,
) -> Result<Vec<PathBuf>, SavedError> {
    let mut found = Vec::new();
    for dir in named {
        found.extend(databases_of(dir, &stands_in)?);
        if found.len() > DATABASES_MAX {
            return Err(SavedError::TooMany { found: found.len() });
        }
    }
    if let ([_], [_]) = (named, &*found) {
        return Ok(found);
    }
    let (mut known, mut databases) = (HashSet::new(), Vec::with_capacity(found.len()));
    for database in found.into_iter().rev() {
        if known.insert(fs::canonicalize(&database).map_err(io_error("look at", &database))?) {
            databases.push(database);
        }
    }
    databases.reverse();
    Ok(databases)
}

/// What to tell who named `databases`, or one directory in which they were found, perhaps without knowing of all;
/// `None` for a single one.
pub fn several(databases: &[PathBuf]) -> Option<String> {
    if databases.len() < 2 {
        return None;
    }
    let mut names: Vec<String> = databases.iter().take(NAMED_MAX).map(|dir| dir.display().to_string()).collect();
    if databases.len() > NAMED_MAX {
        names.push(format!("and {} more", databases.len() - NAMED_MAX));
    }
    Some(format!("{} databases read as one: {}", databases.len(), names.join(", ")))
}

fn databases_of(
    dir: &Path,
    stands_in: &(impl Fn(&Path) -> telem_engine::Result<bool> + Sync),
) -> Result<Vec<PathBuf>, SavedError> {
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(SavedError::NotADirectory { path: dir.to_path_buf() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let path = dir.to_path_buf();
            let is_server = Address::is_meant(&path.to_string_lossy());
            return Err(if is_server { SavedError::Server { path } } else { SavedError::Missing { path } });
        }
        Err(source) => return Err(io_error("look at", dir)(source)),
    }
    let is_database = stands_in(dir)?;
    let mut inside = match directories_in(dir) {
        // One that may be read and not listed.
        Err(error) if is_database && is_not_ours(&error) => return Ok(vec![dir.to_path_buf()]),
        inside => inside?,
    };
    if is_database {
        inside.retain(|path| DATABASE_FOLDERS.iter().all(|folder| path.file_name() != Some(folder.as_ref())));
    }
    let mut databases = those_with(&inside, stands_in)?;
    // The others may be runs, each with a database for each node.
    let known: HashSet<&PathBuf> = databases.iter().collect();
    let mut of_runs = Vec::new();
    for run in inside.iter().filter(|run| !known.contains(run)) {
        match directories_in(run) {
            Ok(nodes) => of_runs.extend(nodes),
            // What others keep beside the runs is not ours to read.
            Err(error) if is_not_ours(&error) => {}
            Err(error) => return Err(error),
        }
    }
    databases.extend(those_with(&of_runs, stands_in)?);
    if is_database {
        databases.push(dir.to_path_buf());
    }
    if databases.is_empty() {
        return Err(SavedError::Empty { path: dir.to_path_buf(), directories: inside.len() });
    }
    databases.sort_by(|a, b| by_name(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(databases)
}

/// Whether it says that this user may not look there, or that what was there is gone by now.
fn is_not_ours(error: &SavedError) -> bool {
    let of_kind =
        |source: &io::Error| matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound);
    matches!(error, SavedError::Io { source, .. } if of_kind(source))
}

/// The directories in a directory. Links are followed: a directory of links is how saved databases of several jobs are put
/// side by side.
fn directories_in(dir: &Path) -> Result<Vec<PathBuf>, SavedError> {
    let mut inside = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error("list", dir))? {
        let entry = entry.map_err(io_error("list", dir))?;
        // Such as a copy that is not whole.
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        // The list says what most are.
        let is_directory = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => entry.path().is_dir(),
        };
        if is_directory {
            inside.push(entry.path());
        }
    }
    Ok(inside)
}

/// Those of `directories` in which a database stands, in any order.
fn those_with(
    directories: &[PathBuf],
    stands_in: &(impl Fn(&Path) -> telem_engine::Result<bool> + Sync),
) -> Result<Vec<PathBuf>, SavedError> {
    let share = directories.len().div_ceil(LOOKING_MAX).max(1);
    let look = |some: &[PathBuf]| -> telem_engine::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for directory in some {
            if stands_in(directory)? {
                found.push(directory.clone());
            }
        }
        Ok(found)
    };
    let found = thread::scope(|scope| {
        let threads: Vec<_> = directories.chunks(share).map(|some| scope.spawn(|| look(some))).collect();
        let died = || telem_engine::Error::Internal { what: "the thread that looks for databases died".to_owned() };
        let found = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(died())));
        found.collect::<telem_engine::Result<Vec<_>>>()
    });
    Ok(found?.concat())
}

fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SavedError + use<'a> {
    move |source| SavedError::Io { action, path: path.to_path_buf(), source }
}

/// Numbers in names by their value, so that the tenth run comes after the second.
fn by_name(a: &str, b: &str) -> Ordering {
    let (mut rest_a, mut rest_b) = (a, b);
    loop {
        let (part_a, part_b) = (part(rest_a), part(rest_b));
        let order = match (value(part_a), value(part_b)) {
            (Some(a), Some(b)) => a.len().cmp(&b.len()).then(a.cmp(b)),
            _ => part_a.cmp(part_b),
        };
        if order.is_ne() || part_a.is_empty() {
            // `n01` and `n1` are of one value and still two names.
            return order.then_with(|| a.cmp(b));
        }
        (rest_a, rest_b) = (&rest_a[part_a.len()..], &rest_b[part_b.len()..]);
    }
}

/// The digits that `text` starts with, or the text before the next digit.
fn part(text: &str) -> &str {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    &text[..end]
}

/// Digits without the zeros before them.
fn value(part: &str) -> Option<&str> {
    part.starts_with(|c: char| c.is_ascii_digit()).then(|| part.trim_start_matches('0'))
}
