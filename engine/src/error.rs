//! The errors of the engine. Kinds drive behaviour; messages are for people and may change.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller should do about an error. Nodes tell it each other by these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The input is wrong: it will be wrong again.
    Invalid,
    /// The requested object does not exist.
    NotFound,
    /// A limit is reached for the moment: try again.
    Busy,
    /// The database or its disk cannot serve this now: a person must act, then try again.
    Unavailable,
    /// Bytes on disk are not what was written.
    Corrupt,
    /// A bug of ours.
    Internal,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} is empty")]
    EmptyName { what: &'static str },
    #[error("{what} '{name}...' has {found} bytes; at most {max} are allowed")]
    LongName { what: &'static str, name: String, found: usize, max: usize },
    #[error("{what} '{name}' holds the control character {found:?}")]
    ControlCharacter { what: &'static str, name: String, found: char },
    #[error("tag '{key}' occurs twice")]
    DuplicateTag { key: String },
    #[error("{found} tags; at most {max} are allowed on a series")]
    TooManyTags { found: usize, max: usize },
    #[error("no more than {max} series fit in this database (option series_max); '{key}' would be one more")]
    TooManySeries { key: String, max: u32 },
    #[error("series {id} is not in this database")]
    UnknownSeries { id: u32 },
    #[error("the memtable holds {found} bytes and its flush lags behind (limit {max}); try again in a moment")]
    MemtableFull { found: u64, max: u64 },
    #[error("the files of database {} hold {found} bytes; the limit is {max}: nothing more is stored until some are removed", path.display())]
    DatabaseFull { path: PathBuf, found: u64, max: u64 },
    #[error("database {} is open read-only: {action} is not possible", path.display())]
    ReadOnly { path: PathBuf, action: &'static str },
    #[error("{} is not a telem database: {why}", path.display())]
    NotADatabase { path: PathBuf, why: String },
    #[error("{} is not empty, it holds {found}; choose another directory", path.display())]
    NotEmpty { path: PathBuf, found: String },
    #[error("{} is written by {owner}; {advice}", path.display())]
    Locked { path: PathBuf, owner: String, advice: String },
    #[error("{}: {what}: found {found}, expected {expected}; run `telem check`", path.display())]
    Corrupt { path: PathBuf, what: String, found: String, expected: String },
    #[error("{} has format {found} and this telem reads up to {max}; use a newer telem", path.display())]
    Format { path: PathBuf, found: u32, max: u32 },
    #[error(
        "{} was written before format 1 was final, and this telem does not read it; export it with the telem that \
         wrote it (`telem export`), or choose another directory",
        path.display()
    )]
    Unfinished { path: PathBuf },
    #[error("{found} samples in one batch; at most {max} are allowed: send it in parts")]
    LargeBatch { found: usize, max: usize },
    #[error("a sample of series {id} at {time}: the last microsecond that a time can express is not a valid time")]
    LastTime { id: u32, time: Timestamp },
    #[error("{what} has {found} bytes; at most {max} are allowed")]
    LongText { what: &'static str, found: usize, max: usize },
    #[error("database {} is closed", path.display())]
    Closed { path: PathBuf },
    #[error("database {} takes no more samples until a flush succeeds: {cause}", path.display())]
    WalFailed { path: PathBuf, cause: String },
    #[error("cannot {action} {}: {source}{}", path.display(), advice(source))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{} was flushed during each of {tries} attempts to read it; try again in a moment", path.display())]
    Moving { path: PathBuf, tries: u32 },
    #[error(
        "{} is missing: its writer has merged it since, or it was removed; open the database again, or restart \
         the server that reads it; `telem check` says what is missing",
        path.display()
    )]
    Gone { path: PathBuf },
    #[error(
        "the directory of database {} was removed, moved or replaced while it is open: new samples cannot be \
         made durable; restore it, or restart with a directory that is not cleaned up",
        path.display()
    )]
    Removed { path: PathBuf },
    #[error("bug in telem: {what}")]
    Internal { what: String },
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::EmptyName { .. }
            | Error::LongName { .. }
            | Error::ControlCharacter { .. }
            | Error::DuplicateTag { .. }
            | Error::TooManyTags { .. }
            | Error::LargeBatch { .. }
            | Error::LastTime { .. }
            | Error::LongText { .. }
            | Error::NotEmpty { .. }
            | Error::ReadOnly { .. } => ErrorKind::Invalid,
            Error::UnknownSeries { .. } | Error::NotADatabase { .. } => ErrorKind::NotFound,
            Error::MemtableFull { .. } | Error::Moving { .. } => ErrorKind::Busy,
            Error::TooManySeries { .. }
            | Error::DatabaseFull { .. }
            | Error::Locked { .. }
            | Error::Format { .. }
            | Error::Unfinished { .. }
            | Error::Closed { .. }
            | Error::WalFailed { .. }
            | Error::Gone { .. }
            | Error::Removed { .. }
            | Error::Io { .. } => ErrorKind::Unavailable,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Whether it goes well once there is room on the disk.
    pub fn is_out_of_room(&self) -> bool {
        matches!(self, Error::Io { source, .. } if is_out_of_room(source))
    }

    /// For `map_err`: says what was tried on which file.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { action, path: path.to_path_buf(), source }
    }
}

/// Whether `error` says that a disk, a quota or a file can take no more.
pub fn is_out_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What a user can do about the commonest failures of a disk.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => "; free space or choose another directory",
        io::ErrorKind::QuotaExceeded => "; your quota is used up: free space or choose another directory",
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; you need the right to this file, or a directory of your own"
        }
        io::ErrorKind::FileTooLarge => {
            "; this process may not write larger files (`ulimit -f`): raise that limit and start it again"
        }
        _ => "",
    }
}
