//! From names to series and back: the series of this database, their tag postings, and the
//! sorted names behind suggestions.
//!
//! Append-only and shared by every snapshot: a series that appears after a snapshot was taken
//! may be selected through it, and has no samples there. Everything is derived from the keys in
//! the order of their ids, so that order is all that needs to be durable.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ahash::AHashMap;

use crate::error::{Error, Result};
use crate::series::{SeriesId, SeriesKey, TagSet};

/// The three kinds of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    Metric,
    TagKey,
    TagValue,
}

/// Keeps the series whose value of `key` satisfies `accepts`; a series without `key` is dropped.
pub struct TagPredicate<'a> {
    pub key: &'a str,
    /// Asked once for every distinct value, not once a series.
    pub accepts: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for TagPredicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TagPredicate({})", self.key)
    }
}

/// Sorted, without duplicates.
type Postings = Vec<SeriesId>;
/// Name to its ordinal: the how-manieth name of its kind this database saw, from 0.
type Names = BTreeMap<Arc<str>, u32>;

#[derive(Debug, Default)]
pub struct SeriesIndex {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    keys: Vec<SeriesKey>,
    ids: AHashMap<SeriesKey, SeriesId>,
    metrics: Names,
    tag_keys: Names,
    tag_values: Names,
    by_metric: AHashMap<Arc<str>, MetricEntry>,
}

#[derive(Debug, Default)]
struct MetricEntry {
    series: Postings,
    tags: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Postings>>,
}

impl SeriesIndex {
    /// The id of `key`, given out now if it has none; the flag says whether it is new.
    ///
    /// # Errors
    /// Unavailable when the database already holds `series_max` series.
    pub(crate) fn get_or_insert(&self, key: &SeriesKey, series_max: u32) -> Result<(SeriesId, bool)> {
        if let Some(id) = self.id(key) {
            return Ok((id, false));
        }
        let mut inner = self.write();
        // Another thread may have come between the two locks.
        if let Some(id) = inner.ids.get(key) {
            return Ok((*id, false));
        }
        let next = u32::try_from(inner.keys.len()).unwrap_or(u32::MAX);
        if next >= series_max {
            return Err(Error::TooManySeries { key: key.to_string(), max: series_max });
        }
        let id = SeriesId(next);
        inner.insert(id, key);
        Ok((id, true))
    }

    pub fn id(&self, key: &SeriesKey) -> Option<SeriesId> {
        self.read().ids.get(key).copied()
    }

    pub fn key(&self, id: SeriesId) -> Option<SeriesKey> {
        self.read().keys.get(id.0 as usize).cloned()
    }

    pub fn len(&self) -> usize {
        self.read().keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All metrics, sorted by bytes.
    pub fn metrics(&self) -> Vec<Arc<str>> {
        self.read().metrics.keys().cloned().collect()
    }

    /// The tag keys that series of `metric` carry, sorted by bytes.
    pub fn tag_keys(&self, metric: &str) -> Vec<Arc<str>> {
        self.read().by_metric.get(metric).map_or_else(Vec::new, |entry| entry.tags.keys().cloned().collect())
    }

    /// The values of tag `key` among the series of `metric`, sorted by bytes.
    pub fn tag_values(&self, metric: &str, key: &str) -> Vec<Arc<str>> {
        let inner = self.read();
        let values = inner.by_metric.get(metric).and_then(|entry| entry.tags.get(key));
        values.map_or_else(Vec::new, |values| values.keys().cloned().collect())
    }

    /// The first `max` names of `kind` that start with `prefix`, sorted by bytes.
    pub fn suggest(&self, kind: NameKind, prefix: &str, max: usize) -> Vec<String> {
        let inner = self.read();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        inner
            .names(kind)
            .range::<str, _>(from)
            .map(|(name, _)| name)
            .take_while(|name| name.starts_with(prefix))
            .take(max)
            .map(|name| name.to_string())
            .collect()
    }

    /// Whether any series of the database carries this name.
    pub fn knows(&self, kind: NameKind, name: &str) -> bool {
        self.ordinal(kind, name).is_some()
    }

    /// The how-manieth name of its kind this database saw, from 0; stable for ever.
    pub fn ordinal(&self, kind: NameKind, name: &str) -> Option<u32> {
        self.read().names(kind).get(name).copied()
    }

    /// The metrics of the series below `end`, sorted by bytes.
    pub(crate) fn metrics_before(&self, end: SeriesId) -> Vec<Arc<str>> {
        let inner = self.read();
        let known = |metric: &&Arc<str>| {
            inner.by_metric.get(*metric).is_some_and(|entry| entry.series.first().is_some_and(|first| *first < end))
        };
        inner.metrics.keys().filter(known).cloned().collect()
    }

    /// The series of `metric` that satisfy every predicate, in canonical order.
    pub fn select(&self, metric: &str, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        self.select_before(SeriesId(u32::MAX), metric, predicates)
    }

    /// [`SeriesIndex::select`] among the series below `end`.
    pub(crate) fn select_before(&self, end: SeriesId, metric: &str, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        let inner = self.read();
        let Some(entry) = inner.by_metric.get(metric) else { return Vec::new() };
        let mut selected: Option<Postings> = None;
        for predicate in predicates {
            let Some(values) = entry.tags.get(predicate.key) else { return Vec::new() };
            let accepted = values.iter().filter(|(value, _)| (predicate.accepts)(value));
            let mut ids: Postings = accepted.flat_map(|(_, ids)| ids.iter().copied()).collect();
            ids.sort_unstable();
            selected = Some(match selected {
                Some(before) => intersect(&before, &ids),
                None => ids,
            });
        }
        let mut ids = selected.unwrap_or_else(|| entry.series.clone());
        ids.truncate(ids.partition_point(|id| *id < end));
        ids.sort_unstable_by(|a, b| inner.keys[a.0 as usize].cmp(&inner.keys[b.0 as usize]));
        ids
    }

    /// Sorts ids in canonical order (of their keys). Ids this index does not know come last.
    pub fn sort_canonical(&self, ids: &mut [SeriesId]) {
        let inner = self.read();
        ids.sort_unstable_by(|a, b| match (inner.keys.get(a.0 as usize), inner.keys.get(b.0 as usize)) {
            (Some(a), Some(b)) => a.cmp(b),
            (known_a, known_b) => known_b.is_some().cmp(&known_a.is_some()).then(a.cmp(b)),
        });
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        // Every change below is complete before it can panic, so a poisoned lock guards good data.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn names(&self, kind: NameKind) -> &Names {
        match kind {
            NameKind::Metric => &self.metrics,
            NameKind::TagKey => &self.tag_keys,
            NameKind::TagValue => &self.tag_values,
        }
    }

    fn insert(&mut self, id: SeriesId, key: &SeriesKey) {
        let metric = intern(&mut self.metrics, key.metric_shared());
        let mut tags = Vec::with_capacity(key.tags().len());
        for (tag_key, tag_value) in key.tags().shared() {
            tags.push((intern(&mut self.tag_keys, tag_key), intern(&mut self.tag_values, tag_value)));
        }
        let entry = self.by_metric.entry(Arc::clone(&metric)).or_default();
        // Ids grow, so pushing keeps every posting list sorted.
        entry.series.push(id);
        for (tag_key, tag_value) in &tags {
            let values = entry.tags.entry(Arc::clone(tag_key)).or_default();
            values.entry(Arc::clone(tag_value)).or_default().push(id);
        }
        let key = SeriesKey::from_interned(metric, TagSet::from_interned(tags));
        self.keys.push(key.clone());
        self.ids.insert(key, id);
    }
}

/// The one shared copy of `name`.
fn intern(names: &mut Names, name: &Arc<str>) -> Arc<str> {
    if let Some((known, _)) = names.get_key_value(name) {
        return Arc::clone(known);
    }
    let ordinal =
        u32::try_from(names.len()).expect("names are fewer than series times tags, and series_max bounds those");
    names.insert(Arc::clone(name), ordinal);
    Arc::clone(name)
}

fn intersect(a: &[SeriesId], b: &[SeriesId]) -> Postings {
    let mut both = Vec::with_capacity(a.len().min(b.len()));
    let (mut at_a, mut at_b) = (0, 0);
    while at_a < a.len() && at_b < b.len() {
        match a[at_a].cmp(&b[at_b]) {
            std::cmp::Ordering::Less => at_a += 1,
            std::cmp::Ordering::Greater => at_b += 1,
            std::cmp::Ordering::Equal => {
                both.push(a[at_a]);
                at_a += 1;
                at_b += 1;
            }
        }
    }
    both
}
