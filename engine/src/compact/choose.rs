//! Which segments become one file: a pure decision.
//!
//! The rule that keeps the last write the last. A merged file stands for every flush between the lowest and the
//! highest sequence of what went into it, and whatever else lies over its window must be older than all of these
//! or newer than all of them. So only neighbours in sequence are merged, among the files whose windows share time
//! with the new one; a file over other times may have any sequence, because no sample of it meets one of theirs.

use std::collections::BTreeMap;

use crate::flush::{DAY, HOUR, window};
use crate::manifest::SegmentEntry;
use crate::time::{TimeRange, Timestamp};

/// Segments that become one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// Names, two or more, oldest first.
    pub files: Vec<String>,
    /// Of the new segment.
    pub window: TimeRange,
    pub sequence_min: u64,
    pub sequence_max: u64,
}

/// One file for every day of UTC with at most `rows_max` rows, else one for every hour; more than one where an hour has
/// more rows, or where a file over more time lies between them in sequence. A file that is alone stays as it is.
pub fn choose(entries: &[SegmentEntry], rows_max: u64) -> Vec<Merge> {
    let mut merges = Vec::new();
    for (day, members) in by_bucket(entries.iter(), DAY) {
        if members.len() < 2 {
            continue;
        }
        if rows(&members) <= rows_max {
            merges.extend(neighbours(members, entries, window(day, DAY), rows_max));
            continue;
        }
        for (hour, members) in by_bucket(members.into_iter(), HOUR) {
            merges.extend(neighbours(members, entries, window(hour, HOUR), rows_max));
        }
    }
    merges
}

/// The entries whose window lies in one bucket of `width`, by bucket.
fn by_bucket<'a>(entries: impl Iterator<Item = &'a SegmentEntry>, width: i64) -> BTreeMap<i64, Vec<&'a SegmentEntry>> {
    let mut buckets: BTreeMap<i64, Vec<&SegmentEntry>> = BTreeMap::new();
    for entry in entries {
        let first = entry.window_start.div_euclid(width);
        let last = entry.window_end.saturating_sub(1).div_euclid(width);
        if first == last {
            buckets.entry(first).or_default().push(entry);
        }
    }
    buckets
}

/// The longest stretches of `members`, which lie in `window`, that may become one file each.
fn neighbours(
    mut members: Vec<&SegmentEntry>,
    entries: &[SegmentEntry],
    window: TimeRange,
    rows_max: u64,
) -> Vec<Merge> {
    members.sort_by_key(|entry| (entry.sequence_min, entry.sequence_max, entry.window_start));
    let others: Vec<Span> = entries
        .iter()
        .filter(|entry| shares_time(entry, window) && !members.iter().any(|member| std::ptr::eq(*member, *entry)))
        .map(Span::of)
        .collect();
    let mut stretches: Vec<Vec<&SegmentEntry>> = Vec::new();
    for cluster in clusters(&members) {
        if let Some(stretch) = stretches.last_mut() {
            let span = Span::around(stretch.iter().chain(&cluster).copied());
            let fits = rows(stretch) + rows(&cluster) <= rows_max;
            if fits && !others.iter().any(|other| other.meets(span)) {
                stretch.extend(cluster);
                continue;
            }
        }
        stretches.push(cluster);
    }
    let whole = |stretch: &Vec<&SegmentEntry>| {
        let span = Span::around(stretch.iter().copied());
        stretch.len() > 1 && rows(stretch) <= rows_max && !others.iter().any(|other| other.meets(span))
    };
    stretches.retain(whole);
    let merge = |stretch: Vec<&SegmentEntry>| {
        let span = Span::around(stretch.iter().copied());
        let files = stretch.iter().map(|entry| entry.file.file.clone()).collect();
        Merge { files, window, sequence_min: span.min, sequence_max: span.max }
    };
    stretches.into_iter().map(merge).collect()
}

/// Cuts `members`, sorted by sequence, wherever no sequence is on both sides. What one flush wrote stays together.
fn clusters<'a>(members: &[&'a SegmentEntry]) -> Vec<Vec<&'a SegmentEntry>> {
    let mut clusters: Vec<Vec<&SegmentEntry>> = Vec::new();
    let mut end = None;
    for member in members {
        match clusters.last_mut() {
            Some(cluster) if end.is_some_and(|end| member.sequence_min <= end) => cluster.push(member),
            _ => clusters.push(vec![member]),
        }
        end = end.max(Some(member.sequence_max));
    }
    clusters
}

fn rows(entries: &[&SegmentEntry]) -> u64 {
    entries.iter().map(|entry| entry.rows).sum()
}

fn shares_time(entry: &SegmentEntry, window: TimeRange) -> bool {
    Timestamp::from_micros(entry.window_start) < window.end && window.start < Timestamp::from_micros(entry.window_end)
}

/// The flushes that a file stands for, both included.
#[derive(Clone, Copy, Debug)]
struct Span {
    min: u64,
    max: u64,
}

impl Span {
    fn of(entry: &SegmentEntry) -> Self {
        Self { min: entry.sequence_min, max: entry.sequence_max }
    }

    fn around<'a>(entries: impl Iterator<Item = &'a SegmentEntry>) -> Self {
        let all = Self { min: u64::MAX, max: 0 };
        entries.fold(all, |span, entry| Self {
            min: span.min.min(entry.sequence_min),
            max: span.max.max(entry.sequence_max),
        })
    }

    fn meets(self, other: Span) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

#[cfg(test)]
mod tests;
