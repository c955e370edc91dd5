//! What errors of SQLite mean for who opens a file.

use super::*;

#[test]
fn a_file_system_without_locks_and_a_file_that_is_locked_are_told_apart() {
    let trouble = |code| OpenTrouble::of(&SqliteError::SqliteFailure(ffi::Error::new(code), None));
    for (code, expected) in [
        (ffi::SQLITE_BUSY, OpenTrouble::Locked),
        (ffi::SQLITE_IOERR_LOCK, OpenTrouble::NoLocks),
        (ffi::SQLITE_IOERR_RDLOCK, OpenTrouble::NoLocks),
        (ffi::SQLITE_PROTOCOL, OpenTrouble::NoLocks),
        (ffi::SQLITE_READONLY_ROLLBACK, OpenTrouble::Unfinished),
        (ffi::SQLITE_CANTOPEN, OpenTrouble::Unfinished),
        (ffi::SQLITE_NOTADB, OpenTrouble::NoDatabase),
        (ffi::SQLITE_CORRUPT, OpenTrouble::Damaged),
        (ffi::SQLITE_IOERR_READ, OpenTrouble::Damaged),
        (ffi::SQLITE_NOMEM, OpenTrouble::Other),
    ] {
        assert_eq!(trouble(code), expected, "{code}");
    }
}

#[test]
fn a_file_is_read_without_locks_by_any_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ts_é ?&#%41_n1.db");
    let written = Connection::open(&path).unwrap();
    written.execute_batch("CREATE TABLE datapoints (metric, timestamp, value, tags)").unwrap();
    // Nobody else could lock it now.
    written.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let read = connect(&immutable(&path), flags).unwrap();
    let count: i64 = read.query_row("SELECT count(*) FROM datapoints", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

#[test]
fn names_of_tables_are_quoted() {
    assert_eq!(quoted("a\"; DROP TABLE b; --"), "\"a\"\"; DROP TABLE b; --\"");
}
