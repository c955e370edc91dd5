//! Decides which segments become one file, as a pure function.
//!
//! The rule keeps the last write the last. A merged file stands for every flush between the lowest and the highest
//! sequence of its inputs. Any other file that covers part of its window must be older than all of these flushes or
//! newer than all of them. So only neighbours in sequence are merged, among the files whose windows share time with the
//! new one. A file over other times may have any sequence, because none of its samples has a time in that window.

use std::collections::BTreeMap;

use crate::flush::window;
use crate::manifest::SegmentEntry;
use crate::time::{DAY, HOUR};
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
    /// Of all files together: the new one has no more.
    pub rows: u64,
    pub bytes: u64,
}

/// How large a merged file may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub rows_max: u64,
    /// Of what goes in.
    pub bytes_max: u64,
    /// Whether hours may be joined to a day.
    pub days: bool,
}

/// What one flush wrote, of the files in question. Never cut.
pub(super) type SegmentCluster<'a> = Vec<&'a SegmentEntry>;

/// One file for every day of UTC where it is within `bounds`, else one for every hour; more than one where an hour is
/// too large, or where a file over more time lies between them in sequence. A file that is alone stays as it is.
pub fn choose(entries: &[SegmentEntry], bounds: &Bounds) -> Vec<Merge> {
    let mut merges = Vec::new();
    for (day, members) in by_bucket(entries.iter(), DAY) {
        if members.len() < 2 {
            continue;
        }
        if bounds.days && bounds.hold(&members) {
            let window = window(day, DAY);
            merges.extend(neighbours(members, entries, window, bounds).iter().map(|files| merge(files, window)));
            continue;
        }
        for (hour, members) in by_bucket(members.into_iter(), HOUR) {
            let window = window(hour, HOUR);
            merges.extend(neighbours(members, entries, window, bounds).iter().map(|files| merge(files, window)));
        }
    }
    merges
}

impl Bounds {
    pub(super) fn hold(&self, entries: &[&SegmentEntry]) -> bool {
        rows(entries) <= self.rows_max && bytes(entries) <= self.bytes_max
    }
}

/// One file in the place of `clusters`, which lie in `window`.
pub(super) fn merge(clusters: &[SegmentCluster<'_>], window: TimeRange) -> Merge {
    let members: Vec<&SegmentEntry> = clusters.iter().flatten().copied().collect();
    let span = TimeSpan::around(members.iter().copied());
    Merge {
        files: members.iter().map(|entry| entry.file.file.clone()).collect(),
        window,
        sequence_min: span.min,
        sequence_max: span.max,
        rows: rows(&members),
        bytes: bytes(&members),
    }
}

/// The entries whose window lies in one bucket of `width`, by bucket.
pub(super) fn by_bucket<'a>(
    entries: impl Iterator<Item = &'a SegmentEntry>,
    width: i64,
) -> BTreeMap<i64, Vec<&'a SegmentEntry>> {
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

/// The longest stretches of `members`, which lie in `window`, that may become one file each: two or more, oldest first.
pub(super) fn neighbours<'a>(
    mut members: Vec<&'a SegmentEntry>,
    entries: &[SegmentEntry],
    window: TimeRange,
    bounds: &Bounds,
) -> Vec<Vec<SegmentCluster<'a>>> {
    members.sort_by_key(|entry| (entry.sequence_min, entry.sequence_max, entry.window_start));
    let others: Vec<TimeSpan> = entries
        .iter()
        .filter(|entry| shares_time(entry, window) && !members.iter().any(|member| std::ptr::eq(*member, *entry)))
        .map(TimeSpan::of)
        .collect();
    let mut stretches: Vec<ClusterStretch<'a>> = Vec::new();
    for cluster in clusters(&members) {
        let cluster = ClusterStretch::of(cluster);
        if let Some(stretch) = stretches.last_mut() {
            let fits =
                stretch.rows + cluster.rows <= bounds.rows_max && stretch.bytes + cluster.bytes <= bounds.bytes_max;
            let span = stretch.span.with(cluster.span);
            if fits && !others.iter().any(|other| other.meets(span)) {
                stretch.join(cluster);
                continue;
            }
        }
        stretches.push(cluster);
    }
    let whole = |stretch: &ClusterStretch<'_>| {
        let files: usize = stretch.clusters.iter().map(Vec::len).sum();
        let fits = stretch.rows <= bounds.rows_max && stretch.bytes <= bounds.bytes_max;
        files > 1 && fits && !others.iter().any(|other| other.meets(stretch.span))
    };
    stretches.retain(whole);
    stretches.into_iter().map(|stretch| stretch.clusters).collect()
}

/// Clusters that follow each other in sequence.
struct ClusterStretch<'a> {
    clusters: Vec<SegmentCluster<'a>>,
    span: TimeSpan,
    rows: u64,
    bytes: u64,
}

impl<'a> ClusterStretch<'a> {
    fn of(cluster: SegmentCluster<'a>) -> Self {
        let span = TimeSpan::around(cluster.iter().copied());
        Self { span, rows: rows(&cluster), bytes: bytes(&cluster), clusters: vec![cluster] }
    }

    fn join(&mut self, later: Self) {
        self.clusters.extend(later.clusters);
        self.span = self.span.with(later.span);
        self.rows += later.rows;
        self.bytes += later.bytes;
    }
}

/// Cuts `members`, sorted by sequence, wherever no sequence is on both sides. What one flush wrote stays together.
fn clusters<'a>(members: &[&'a SegmentEntry]) -> Vec<SegmentCluster<'a>> {
    let mut clusters: Vec<SegmentCluster<'a>> = Vec::new();
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

pub(super) fn rows(entries: &[&SegmentEntry]) -> u64 {
    entries.iter().map(|entry| entry.rows).sum()
}

fn bytes(entries: &[&SegmentEntry]) -> u64 {
    entries.iter().map(|entry| entry.file.bytes).sum()
}

fn shares_time(entry: &SegmentEntry, window: TimeRange) -> bool {
    Timestamp::from_micros(entry.window_start) < window.end && window.start < Timestamp::from_micros(entry.window_end)
}

/// The first and the last flush of a file, both included.
#[derive(Clone, Copy, Debug)]
struct TimeSpan {
    min: u64,
    max: u64,
}

impl TimeSpan {
    fn of(entry: &SegmentEntry) -> Self {
        Self { min: entry.sequence_min, max: entry.sequence_max }
    }

    fn around<'a>(entries: impl Iterator<Item = &'a SegmentEntry>) -> Self {
        entries.fold(Self { min: u64::MAX, max: 0 }, |span, entry| span.with(Self::of(entry)))
    }

    fn with(self, other: TimeSpan) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn meets(self, other: TimeSpan) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

#[cfg(test)]
pub(super) mod tests;
