//! Dragon's files as SQLite reads them, without changing them: read-only, waiting for a bounded time for whoever writes,
//! and in short reads, between which a program that still runs goes on writing.
//!
//! What was cut off in the middle of a write (a journal, or a log, stands beside the file) is completed in a copy. A file
//! system without locks is read without. The contents are not trusted: no views, triggers or functions of the file run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error as SqliteError, ErrorCode, OpenFlags, ffi};
use serde_json::{Map, Value as Json};

use super::pages::{DragonPages, LeftRows, ROW_BYTES_MAX};
use super::{DragonRow, HOST};
use crate::cli::CliFailure;
use crate::cli::import::Importing;
use crate::cli::import::file::ImportFile;

/// How long a file that another process writes is waited for.
pub const LOCKED_WAIT: Duration = Duration::from_secs(5);
/// How often it is tried: a program that writes all the time leaves short gaps.
const LOCKED_STEP: Duration = Duration::from_millis(2);
/// Rows of one read: so long nobody can write to the file.
pub const ROWS_AT_ONCE: u64 = 10_000;
/// Rows that are asked which host they are of.
const HOST_ROWS: u64 = 1_000;
/// What SQLite calls the files beside one that is being written.
const BESIDE: [&str; 2] = ["-journal", "-wal"];
/// Columns of a table that are read, in this order; a table without the last one has no tags.
pub const COLUMNS: [&str; 4] = ["metric", "timestamp", "value", "tags"];
/// Tables that are no rows of Dragon, and need no word.
const KNOWN_TABLES: [&str; 1] = ["flags"];

/// A table with rows of Dragon.
#[derive(Clone, Debug)]
pub struct DragonTable {
    pub name: String,
    /// The page where it begins.
    root: u32,
    /// Which column of the table each of [`COLUMNS`] is.
    columns: [Option<usize>; 4],
}

/// How reading a table ended.
#[derive(Debug)]
pub enum TableEnd {
    Whole,
    /// It cannot be read in rows at all.
    NoRows(String),
    /// The row of this number is too large.
    TooLarge(i64),
    /// Behind the row of this number SQLite finds the file damaged.
    Damaged(i64),
}

pub struct DragonDb<'f> {
    file: &'f ImportFile,
    connection: Connection,
    /// What is read: the file itself, or a copy.
    path: PathBuf,
    _copy: Option<CopiedDb>,
}

/// A copy, which goes with this.
struct CopiedDb(PathBuf);

/// Why a file is not read as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenTrouble {
    Locked,
    NoDatabase,
    /// A write that was not completed has to be, and a reader cannot.
    Unfinished,
    /// The file system has no locks.
    NoLocks,
    Damaged,
    Other,
}

impl OpenTrouble {
    fn of(error: &SqliteError) -> Self {
        let SqliteError::SqliteFailure(failure, _) = error else { return Self::Other };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Locked,
            (ErrorCode::NotADatabase, _) => Self::NoDatabase,
            (ErrorCode::ReadOnly | ErrorCode::CannotOpen, _) => Self::Unfinished,
            (
                _,
                ffi::SQLITE_IOERR_LOCK
                | ffi::SQLITE_IOERR_RDLOCK
                | ffi::SQLITE_IOERR_UNLOCK
                | ffi::SQLITE_IOERR_CHECKRESERVEDLOCK,
            ) => Self::NoLocks,
            (ErrorCode::FileLockingProtocolFailed, _) => Self::NoLocks,
            (ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure, _) => Self::Damaged,
            _ => Self::Other,
        }
    }
}

impl<'f> DragonDb<'f> {
    /// # Errors
    /// Failed when it is no database of SQLite, or cannot be opened in time.
    pub fn open(file: &'f ImportFile, importing: &mut Importing) -> Result<Self, CliFailure> {
        let path = file.path().to_path_buf();
        let trouble = match connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY) {
            Ok(connection) => return Ok(Self { file, connection, path, _copy: None }),
            Err(error) => error,
        };
        let beside: Vec<PathBuf> = BESIDE.iter().map(|end| with_end(&path, end)).filter(|path| path.exists()).collect();
        match OpenTrouble::of(&trouble) {
            OpenTrouble::Unfinished if !beside.is_empty() => {
                let line = "a write to it was not completed: it is read in a copy, where that is undone";
                importing.report.say(&format!("{}: {line}", file.name));
                let copy = CopiedDb::of(&path, &beside, importing)?;
                let connection = connect(&copy.0, OpenFlags::SQLITE_OPEN_READ_WRITE)
                    .and_then(|connection| {
                        // A log becomes part of the file, where damage is looked for.
                        connection.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
                        Ok(connection)
                    })
                    .map_err(|error| refusal(file, &error))?;
                Ok(Self { file, connection, path: copy.0.clone(), _copy: Some(copy) })
            }
            OpenTrouble::NoLocks => {
                let line = "its file system has no locks: no process may write to it meanwhile";
                importing.report.say(&format!("{}: {line}", file.name));
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                let connection = connect(&immutable(&path), flags).map_err(|error| refusal(file, &error))?;
                Ok(Self { file, connection, path, _copy: None })
            }
            _ => Err(refusal(file, &trouble)),
        }
    }

    /// The tables with rows of Dragon, and what other tables are called and have.
    pub fn tables(&self) -> Result<(Vec<DragonTable>, Vec<String>), CliFailure> {
        let failed = |error: SqliteError| refusal(self.file, &error);
        let text = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
                    ORDER BY name";
        let mut asked = self.connection.prepare(text).map_err(failed)?;
        let named = asked.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?)));
        let named: Vec<(String, Option<i64>)> = named.and_then(Iterator::collect).map_err(failed)?;
        let (mut tables, mut others) = (Vec::new(), Vec::new());
        for (name, root) in named {
            let columns = self.columns(&name).map_err(failed)?;
            let place = |wanted: &str| columns.iter().position(|column| column.eq_ignore_ascii_case(wanted));
            let places = COLUMNS.map(place);
            let root = root.and_then(|root| u32::try_from(root).ok()).filter(|root| *root > 0);
            match (places, root) {
                ([Some(_), Some(_), Some(_), _], Some(root)) => {
                    tables.push(DragonTable { name, root, columns: places })
                }
                _ if KNOWN_TABLES.contains(&&*name) => {}
                _ => others.push(format!("{} ({})", name.escape_debug(), columns.join(", ").escape_debug())),
            }
        }
        Ok((tables, others))
    }

    fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut asked = self.connection.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY cid")?;
        let named = asked.query_map([table], |row| row.get(0))?;
        named.collect()
    }

    /// The hosts that the first rows of a table have as their tag.
    pub fn hosts(&self, table: &DragonTable) -> Vec<String> {
        let mut hosts = Vec::new();
        let take = |row: &DragonRow<'_>| {
            if let ValueRef::Text(tags) = row.tags
                && let Ok(tags) = serde_json::from_slice::<Map<String, Json>>(tags)
                && let Some(Json::String(host)) = tags.get(HOST)
                && !hosts.contains(host)
            {
                hosts.push(host.clone());
            }
            Ok(())
        };
        match self.some_rows(table, i64::MIN, HOST_ROWS, take) {
            // Damage is found again by who reads the rows.
            Ok(_) | Err(_) => hosts,
        }
    }

    /// Gives every row behind the row `after` of a table to `take`, in the order in which they were written.
    ///
    /// # Errors
    /// What `take` failed with, or why the file cannot be read any more.
    pub fn rows(
        &self,
        table: &DragonTable,
        mut after: i64,
        mut take: impl FnMut(&DragonRow<'_>) -> Result<(), CliFailure>,
    ) -> Result<TableEnd, CliFailure> {
        loop {
            let read = self.some_rows(table, after, ROWS_AT_ONCE, |row| {
                after = row.rowid;
                take(row)
            });
            let error = match read {
                Ok(count) if count < ROWS_AT_ONCE => return Ok(TableEnd::Whole),
                Ok(_) => continue,
                Err(RowsFailure::Taking(failure)) => return Err(failure),
                Err(RowsFailure::Disorder) => return Ok(TableEnd::Damaged(after)),
                Err(RowsFailure::Reading(error)) => error,
            };
            match (&error, OpenTrouble::of(&error)) {
                (_, OpenTrouble::Damaged | OpenTrouble::NoDatabase) => return Ok(TableEnd::Damaged(after)),
                (SqliteError::SqliteFailure(failure, _), _) if failure.code == ErrorCode::TooBig => {
                    let text = format!("SELECT min(rowid) FROM {} WHERE rowid > ?1", quoted(&table.name));
                    let large = self.connection.query_row(&text, [after], |row| row.get(0));
                    return large.map(TableEnd::TooLarge).map_err(|error| refusal(self.file, &error));
                }
                (SqliteError::SqlInputError { msg, .. }, _) => return Ok(TableEnd::NoRows(msg.clone())),
                _ => return Err(refusal(self.file, &error)),
            }
        }
    }

    /// Gives at most `most` rows behind `after` to `take`, and says how many there were.
    fn some_rows(
        &self,
        table: &DragonTable,
        after: i64,
        most: u64,
        mut take: impl FnMut(&DragonRow<'_>) -> Result<(), CliFailure>,
    ) -> Result<u64, RowsFailure> {
        let [metric, time, value, tags] = COLUMNS;
        let tags = table.columns[3].map_or("NULL", |_| tags);
        let text = format!(
            "SELECT rowid, {metric}, {time}, {value}, {tags} FROM {} WHERE rowid > ?1 ORDER BY rowid LIMIT ?2",
            quoted(&table.name)
        );
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut asked = self.connection.prepare(&text).map_err(RowsFailure::Reading)?;
        let mut rows = asked.query([after, most]).map_err(RowsFailure::Reading)?;
        let (mut count, mut last) = (0, after);
        while let Some(row) = rows.next().map_err(RowsFailure::Reading)? {
            let cell = |at: usize| row.get_ref(at).map_err(RowsFailure::Reading);
            let rowid: i64 = row.get(0).map_err(RowsFailure::Reading)?;
            // SQLite takes what lacks of the last page of a file that was cut off for zeros.
            if rowid <= last {
                return Err(RowsFailure::Disorder);
            }
            last = rowid;
            let row = DragonRow { rowid, metric: cell(1)?, time: cell(2)?, value: cell(3)?, tags: cell(4)? };
            take(&row).map_err(RowsFailure::Taking)?;
            count += 1;
        }
        Ok(count)
    }

    /// What is left of a table behind the row `after`, where SQLite finds the file damaged. `None` where even its first
    /// page is.
    pub fn pages(&self, table: &DragonTable, after: i64, lost: LostLeaves) -> Option<LeftRows> {
        let pages = DragonPages::open(&self.path)?;
        let roots = self.roots().unwrap_or_default();
        Some(LeftRows::of(pages, table.root, table.columns, after, (lost == LostLeaves::LookedFor).then_some(&roots)))
    }

    /// Where all tables and indexes begin.
    fn roots(&self) -> rusqlite::Result<Vec<u32>> {
        let mut asked = self.connection.prepare("SELECT rootpage FROM sqlite_master WHERE rootpage > 0")?;
        let roots = asked.query_map([], |row| row.get(0))?;
        roots.collect()
    }
}

/// Whether leaves that nothing leads to are looked for: they do not say of which table they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostLeaves {
    /// There is one table that they may be of.
    LookedFor,
    Left,
}

/// Why rows end before the table does.
enum RowsFailure {
    Reading(SqliteError),
    /// Rows do not follow each other.
    Disorder,
    Taking(CliFailure),
}

impl CopiedDb {
    fn of(path: &Path, beside: &[PathBuf], importing: &Importing) -> Result<Self, CliFailure> {
        let dir = importing.store.scratch_dir();
        let copy = Self(dir.join(".copy.db"));
        let one = |from: &Path, to: &Path| {
            fs::copy(from, to).map(|_| ()).map_err(|error| {
                CliFailure::Failed(format!("cannot copy {} to {}: {error}", from.display(), dir.display()))
            })
        };
        one(path, &copy.0)?;
        for (end, other) in BESIDE.iter().flat_map(|end| beside.iter().map(move |other| (end, other))) {
            if with_end(path, end) == *other {
                one(other, &with_end(&copy.0, end))?;
            }
        }
        Ok(copy)
    }
}

impl Drop for CopiedDb {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            // Most of them are not there; what is left goes with the directory around it.
            fs::remove_file(with_end(&self.0, end)).unwrap_or_default();
        }
    }
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_handler(Some(|tries: i32| {
        let goes_on = LOCKED_STEP * tries.unsigned_abs() < LOCKED_WAIT;
        if goes_on {
            std::thread::sleep(LOCKED_STEP);
        }
        goes_on
    }))?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::try_from(ROW_BYTES_MAX).unwrap_or(i32::MAX))?;
    for (config, value) in [
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        // Nothing is written: with this, SQLite reads what is left of a file that was cut off.
        (DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true),
    ] {
        connection.set_db_config(config, value)?;
    }
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    Ok(connection)
}

/// What is encoded in the path of an address.
const OF_A_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// The address of a file that nobody changes.
fn immutable(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    PathBuf::from(format!("file:{}?immutable=1", percent_encode(path.as_os_str().as_bytes(), OF_A_PATH)))
}

fn refusal(file: &ImportFile, error: &SqliteError) -> CliFailure {
    match OpenTrouble::of(error) {
        OpenTrouble::Locked => file.failed(format!(
            "another process writes to it and has had it locked for {} s: end that process, or import a copy",
            LOCKED_WAIT.as_secs()
        )),
        OpenTrouble::NoDatabase => file.failed("is no SQLite database, or an encrypted one"),
        OpenTrouble::Damaged => {
            file.failed(format!("its first page is damaged, so nothing in it can be found: {error}"))
        }
        _ => file.cannot_read(error),
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests;
