//! What the databases of runs say, read by several threads: on a file system that many nodes share most of the time is
//! spent waiting for it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use telem_engine::disk::OsDisk;
use telem_engine::{Db, DbGlance, Options, Timestamp};

use super::cache::{DatabaseStamp, RunCache};
use super::row::{RunRow, last_values};

/// Databases that are read at once.
const READERS: usize = 16;

/// The row of each of `databases`, in their order, with the last values of `metrics`.
pub fn rows(databases: &[PathBuf], metrics: &[String], now: Timestamp, cache: &RunCache) -> Vec<RunRow> {
    let next = AtomicUsize::new(0);
    let read = || {
        let mut rows = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(dir) = databases.get(at) else { return rows };
            rows.push((at, row(dir, metrics, now, cache)));
        }
    };
    let mut rows: Vec<(usize, RunRow)> = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS.min(databases.len())).map(|_| scope.spawn(read)).collect();
        // A reader that panics ends the command as it would here.
        let joined =
            readers.into_iter().map(|reader| reader.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        joined.flatten().collect()
    });
    rows.sort_unstable_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row(dir: &Path, metrics: &[String], now: Timestamp, cache: &RunCache) -> RunRow {
    if let Some(row) = cache.get(dir, metrics) {
        return row;
    }
    // Before it is read: what somebody writes meanwhile is read by the next call.
    let stamp = DatabaseStamp::of(dir);
    let read = || {
        // Where no values are asked for and all is in order, two small files say it all.
        if metrics.is_empty()
            && let Some(glance) = DbGlance::read(dir, &OsDisk)?
        {
            return Ok(RunRow::of(&glance, now));
        }
        let db = Db::open_read_only(dir, Options::default())?;
        let snapshot = db.snapshot();
        let mut row = RunRow::of(&DbGlance::of(db.info()?, &snapshot), now);
        row.lasts = last_values(&snapshot, metrics)?;
        Ok(row)
    };
    match read() {
        Ok(row) => {
            if let Ok(stamp) = stamp {
                cache.put(dir, stamp, &row);
            }
            row
        }
        Err(error) => {
            let error: telem_engine::Error = error;
            RunRow::broken(dir, &error.to_string())
        }
    }
}
