//! Decides which merges are due while a database is open, as a pure function.
//!
//! A merge reads and writes all of its input, so a sample should go through few merges. There are three rules:
//!
//! - When a window is over, everything in it becomes one file: first an hour, then the day, once the day is over and if
//!   it is small enough. Samples that come later are merged once they are an eighth of what the window holds.
//! - Before that, and for late samples, [`FILES_MIN`] files or more become one if that file is at least four times as
//!   large as the largest of them. So a window has few files, and each further merge of a sample needs four times the
//!   samples.
//! - Only neighbours in sequence are merged, as [`super::choose`] says.
//!
//! A window is over when its end has passed and the newest flush brought nothing to it.

use std::collections::BTreeMap;

use super::choose::{Bounds, Merge, SegmentCluster, by_bucket, merge, neighbours, rows};
use crate::flush::window;
use crate::manifest::{SegmentEntry, SeriesEntry};
use crate::time::{DAY, HOUR};
use crate::time::{TimeRange, Timestamp};

/// Fewer files of a window that is not over are left alone.
pub const FILES_MIN: usize = 8;
/// How many times its largest file a merge of such files makes at least.
const GROWTH: u64 = 4;
/// What comes to a merged window waits until it has this part of its rows.
const LATE_PART: u64 = 8;

/// The merges that are due at `now`, of few rows first. Each is right only as long as `entries` are what is there.
pub fn due(entries: &[SegmentEntry], now: Timestamp, bounds: &Bounds) -> Vec<Merge> {
    let Some(newest) = entries.iter().map(|entry| entry.sequence_max).max() else { return Vec::new() };
    let is_over = |window: TimeRange, members: &[&SegmentEntry]| {
        window.end <= now && members.iter().all(|entry| entry.sequence_max < newest)
    };
    let mut found = Vec::new();
    // Over more than an hour, and not in a day that becomes one file: by window.
    let mut wide: BTreeMap<(i64, i64), Vec<&SegmentEntry>> = BTreeMap::new();
    let mut in_days = 0;
    for (day, members) in by_bucket(entries.iter(), DAY) {
        in_days += members.len();
        let whole = window(day, DAY);
        if bounds.days && is_over(whole, &members) && bounds.hold(&members) {
            let stretches = neighbours(members, entries, whole, bounds);
            found.extend(stretches.iter().filter_map(|stretch| all_or_newest(stretch, whole)));
            continue;
        }
        for entry in members.iter().filter(|entry| entry.window_end - entry.window_start > HOUR) {
            wide.entry((entry.window_start, entry.window_end)).or_default().push(entry);
        }
        for (hour, members) in by_bucket(members.into_iter(), HOUR) {
            let whole = window(hour, HOUR);
            let over = is_over(whole, &members);
            let part = |stretch: &Vec<SegmentCluster<'_>>| {
                if over { all_or_newest(stretch, whole) } else { newest_of(stretch, whole) }
            };
            found.extend(neighbours(members, entries, whole, bounds).iter().filter_map(part));
        }
    }
    if in_days < entries.len() {
        for entry in entries.iter().filter(|entry| !is_in_a_day(entry)) {
            wide.entry((entry.window_start, entry.window_end)).or_default().push(entry);
        }
    }
    for ((start, end), members) in wide {
        let whole = TimeRange::new(Timestamp::from_micros(start), Timestamp::from_micros(end));
        let stretches = neighbours(members, entries, whole, bounds);
        found.extend(stretches.iter().filter_map(|stretch| newest_of(stretch, whole)));
    }
    found.sort_by_key(|merge| (merge.rows, merge.window.start));
    found
}

fn is_in_a_day(entry: &SegmentEntry) -> bool {
    entry.window_start.div_euclid(DAY) == entry.window_end.saturating_sub(1).div_euclid(DAY)
}

/// Everything, unless most of it was merged for this window already; else as [`newest_of`].
fn all_or_newest(stretch: &[SegmentCluster<'_>], window: TimeRange) -> Option<Merge> {
    let members: Vec<&SegmentEntry> = stretch.iter().flatten().copied().collect();
    let largest = members.iter().max_by_key(|entry| entry.rows)?;
    let covers = (largest.window_start, largest.window_end) == (window.start.micros(), window.end.micros());
    let merged = covers && largest.sequence_min < largest.sequence_max;
    let rest = rows(&members) - largest.rows;
    if merged && rest.saturating_mul(LATE_PART) < largest.rows {
        return newest_of(stretch, window);
    }
    Some(merge(stretch, window))
}

/// As many of the newest files as are worth a merge.
fn newest_of(stretch: &[SegmentCluster<'_>], window: TimeRange) -> Option<Merge> {
    let (mut files, mut all, mut largest) = (0, 0_u64, 0);
    let mut from = None;
    for (at, cluster) in stretch.iter().enumerate().rev() {
        files += cluster.len();
        all += rows(cluster);
        largest = cluster.iter().map(|entry| entry.rows).fold(largest, u64::max);
        if files >= FILES_MIN && largest.saturating_mul(GROWTH) <= all {
            from = Some(at);
        }
    }
    from.map(|from| merge(&stretch[from..], window))
}

/// Which series files become one, if any should: the newest, as many as hold no more than those behind them together,
/// and no more than `series_max` series.
pub fn due_series(entries: &[SeriesEntry], files_min: usize, series_max: u64) -> Option<std::ops::Range<usize>> {
    if entries.len() < files_min.max(2) {
        return None;
    }
    let mut behind = 0;
    let mut from = None;
    for (at, entry) in entries.iter().enumerate().rev() {
        let count = u64::from(entry.count);
        if behind + count > series_max {
            break;
        }
        if count <= behind {
            from = Some(at);
        }
        behind += count;
    }
    from.map(|from| from..entries.len())
}

#[cfg(test)]
mod tests;
