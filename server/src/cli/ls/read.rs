//! What the databases of runs say.

use std::path::Path;
use std::sync::Arc;

use telem_engine::disk::Disk;
use telem_engine::{Db, DbGlance, Options, Timestamp};

use super::cache::{RunCache, has_wal};
use super::find::{DatabasePlace, is_no_file};
use super::row::{RunRow, last_values};
use super::spread::spread;

/// The row of each of `places`, in their order, with a setting, a tag or the last value for each of `columns`. Of a
/// database that this user may not read there is none.
pub fn rows(
    places: &[DatabasePlace],
    columns: &[String],
    now: Timestamp,
    cache: &RunCache,
    disk: &Arc<dyn Disk>,
) -> Vec<RunRow> {
    spread(places, |place| row(place, columns, now, cache, disk)).into_iter().flatten().collect()
}

fn row(
    place: &DatabasePlace,
    columns: &[String],
    now: Timestamp,
    cache: &RunCache,
    disk: &Arc<dyn Disk>,
) -> Option<RunRow> {
    let dir = &*place.dir;
    if let Some(row) = cache.get(dir, columns) {
        return Some(row);
    }
    // Before it is read: what somebody writes meanwhile is read by the next call.
    let stamp = cache.stamp(dir);
    let (row, may_have_wal) = match glanced(place, columns, now, &**disk) {
        Ok(Some(row)) => (Ok(row), false),
        Ok(None) => (opened(dir, columns, now, disk), true),
        Err(error) => (Err(error), true),
    };
    match row {
        Ok(row) => {
            if let Some(stamp) = stamp.filter(|_| !may_have_wal || !has_wal(dir)) {
                cache.put(dir, stamp, &row);
            }
            Some(row)
        }
        Err(error) => is_ours(dir, &**disk).then(|| RunRow::broken(dir, &error.to_string())),
    }
}

/// What one small file says: of a run that is over, unless values of metrics are asked for.
fn glanced(
    place: &DatabasePlace,
    columns: &[String],
    now: Timestamp,
    disk: &dyn Disk,
) -> telem_engine::Result<Option<RunRow>> {
    let Some(files) = &place.files else { return Ok(None) };
    let Some(glance) = DbGlance::read_among(&place.dir, files, disk)? else { return Ok(None) };
    let row = RunRow::of(&glance, now);
    Ok(columns.iter().all(|name| row.has_label(name)).then_some(row))
}

fn opened(dir: &Path, columns: &[String], now: Timestamp, disk: &Arc<dyn Disk>) -> telem_engine::Result<RunRow> {
    let db = Db::open_read_only(dir, Options { disk: Arc::clone(disk), ..Options::default() })?;
    let snapshot = db.snapshot();
    let mut row = RunRow::of(&DbGlance::of(db.info()?, &snapshot), now);
    row.lasts = last_values(&snapshot, columns)?;
    Ok(row)
}

/// Whether this user may read the manifest there: what one may not read is somebody else's, and no broken run.
fn is_ours(dir: &Path, disk: &dyn Disk) -> bool {
    Db::stands_in(dir, disk).map_or_else(|error| is_no_file(&error), |_| true)
}
