//! The index from names to series and back: the series of this database, their tag postings, and the sorted names from
//! which suggestions are made.
//!
//! The index is append-only and shared by every snapshot. A series that appears after a snapshot was taken may be
//! selected through it, and has no samples there. Everything is derived from the keys in the order of their ids, so
//! only that order needs to be durable.
//!
//! Each name is stored once and is a number everywhere else, so a series with three tags takes some 70 bytes.

mod ids;
mod key_sets;
mod keys;
mod merged;
mod names;
mod nodes;
mod numbers;
mod order;
mod postings;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ahash::{AHashMap, AHashSet};

use self::key_sets::{KeySet, KeySets};
use self::keys::{KeyTable, WORDS_MAX};
use self::names::NameTable;
use self::postings::Postings;
use crate::error::{Error, Result};
use crate::paged::PagedTable;
use crate::series::{self, RawKey, SeriesId, SeriesKey, TagSet};

pub use self::ids::{Ids, JOB_TAG};
pub use self::merged::MergedIndex;
pub use self::nodes::Nodes;
pub use self::numbers::NumberTable;

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
    /// All values that it may accept, where these are known: then only their series are looked at.
    pub among: Option<&'a [String]>,
}

impl fmt::Debug for TagPredicate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TagPredicate({})", self.key)
    }
}

/// Series by the values of some of their tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesGroups {
    /// Of each series the place of its group.
    pub of_series: Vec<u32>,
    /// Of each group the value of each key, if its series have it: in the order in which groups were seen first.
    pub values: Vec<Vec<Option<Arc<str>>>>,
}

/// What an index takes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexBytes {
    pub names: usize,
    /// What leads from names to series and back.
    pub series: usize,
}

/// A place of the map by tags, with its byte of control.
const TAG_ENTRY_BYTES: usize = size_of::<((u32, u32), Postings)>() + 1;

#[derive(Debug)]
pub struct SeriesIndex {
    edition: u64,
    inner: RwLock<IndexState>,
}

impl Default for SeriesIndex {
    fn default() -> Self {
        // The keys of its hashes are random, which is all that is needed here.
        Self { edition: RandomState::new().hash_one(()), inner: RwLock::default() }
    }
}

#[derive(Debug, Default)]
struct IndexState {
    metrics: NameTable,
    tag_keys: NameTable,
    tag_values: NameTable,
    keys: KeyTable,
    /// By ordinal of the metric.
    by_metric: PagedTable<Metric>,
    key_sets: KeySets,
    /// By ordinals of key and value.
    by_tag: AHashMap<(u32, u32), Postings>,
    /// By ordinal of the key: the ordinals of its values, in the order of first sight.
    values_of: Vec<Vec<u32>>,
}

#[derive(Debug, Default)]
struct Metric {
    series: Postings,
    /// The keys that any of its series carries.
    tag_keys: KeySet,
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
        if let Some(id) = inner.id(key) {
            return Ok((id, false));
        }
        let next = u32::try_from(inner.keys.len()).unwrap_or(u32::MAX);
        if next >= series_max {
            return Err(Error::TooManySeries { key: key.to_string(), max: series_max });
        }
        let mut words = [0; WORDS_MAX];
        let words = inner.intern(key, &mut words);
        inner.insert(words);
        Ok((SeriesId(next), true))
    }

    /// [`SeriesIndex::get_or_insert`] of a key whose names are not checked yet; each is checked when it is seen first.
    ///
    /// # Errors
    /// Invalid when a name breaks its rule, a tag occurs twice, or there are too many.
    pub(crate) fn get_or_insert_raw(&self, key: &RawKey<'_>) -> Result<(SeriesId, bool)> {
        if !key.is_sorted() {
            let tags = TagSet::new(key.tags.iter().copied())?;
            return self.get_or_insert(&SeriesKey::new(key.metric, tags)?, u32::MAX);
        }
        let mut inner = self.write();
        let mut words = [0; WORDS_MAX];
        let words = inner.intern_raw(key, &mut words)?;
        if let Some(id) = inner.keys.find(words) {
            return Ok((id, false));
        }
        let id = SeriesId(u32::try_from(inner.keys.len()).unwrap_or(u32::MAX));
        inner.insert(words);
        Ok((id, true))
    }

    /// Makes room for this many more series.
    pub(crate) fn reserve(&self, series: usize) {
        self.write().keys.reserve(series);
    }

    /// A number drawn when this index was made: to somebody else an id means a series only together with it. A
    /// database that is opened again may give an id that no file knew to another series.
    pub fn edition(&self) -> u64 {
        self.edition
    }

    pub fn id(&self, key: &SeriesKey) -> Option<SeriesId> {
        self.read().id(key)
    }

    pub fn key(&self, id: SeriesId) -> Option<SeriesKey> {
        self.read().key(id)
    }

    /// The metric of each of `ids`; `None` where there is no such series.
    pub fn metrics_of(&self, ids: &[SeriesId]) -> Vec<Option<Arc<str>>> {
        let inner = self.read();
        let metric = |id: &SeriesId| inner.keys.get(*id)?.first().map(|metric| Arc::clone(inner.metrics.text(*metric)));
        ids.iter().map(metric).collect()
    }

    /// The value of tag `key` of each of `ids`; `None` where it has none, and where there is no such series.
    pub fn values_of(&self, ids: &[SeriesId], key: &str) -> Vec<Option<Arc<str>>> {
        let inner = self.read();
        let Some(key) = inner.tag_keys.ordinal(key) else { return vec![None; ids.len()] };
        let value = |id: &SeriesId| inner.value_of(*id, key).map(|value| Arc::clone(inner.tag_values.text(value)));
        ids.iter().map(value).collect()
    }

    pub fn len(&self) -> usize {
        self.read().keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All metrics, sorted by bytes.
    pub fn metrics(&self) -> Vec<Arc<str>> {
        self.metrics_before(SeriesId(u32::MAX))
    }

    /// The tag keys that series of `metric` carry, sorted by bytes.
    pub fn tag_keys(&self, metric: &str) -> Vec<Arc<str>> {
        let inner = self.read();
        let Some(metric) = inner.metrics.ordinal(metric) else { return Vec::new() };
        inner.tag_keys.in_order(inner.key_sets.keys(inner.by_metric[metric as usize].tag_keys).iter().copied())
    }

    /// The values of tag `key` among the series of `metric`, sorted by bytes.
    pub fn tag_values(&self, metric: &str, key: &str) -> Vec<Arc<str>> {
        let inner = self.read();
        let (Some(metric), Some(key)) = (inner.metrics.ordinal(metric), inner.tag_keys.ordinal(key)) else {
            return Vec::new();
        };
        let series = inner.by_metric[metric as usize].series.as_slice();
        let values: AHashSet<u32> = series.iter().filter_map(|id| inner.value_of(*id, key)).collect();
        inner.tag_values.in_order(values.into_iter())
    }

    /// How many series `metric` has.
    pub fn series_count(&self, metric: &str) -> usize {
        let inner = self.read();
        inner.metrics.ordinal(metric).map_or(0, |metric| inner.by_metric[metric as usize].series.as_slice().len())
    }

    /// The tag keys that series of `metric` carry, sorted by bytes, each with the number of its values among them. In one
    /// pass over the series, and no name is looked at: those of a page of metrics are asked for at every look.
    pub fn tag_value_counts(&self, metric: &str) -> Vec<(Arc<str>, usize)> {
        let inner = self.read();
        let Some(metric) = inner.metrics.ordinal(metric) else { return Vec::new() };
        let Metric { series, tag_keys } = &inner.by_metric[metric as usize];
        let (series, tag_keys) = (series.as_slice(), inner.key_sets.keys(*tag_keys));
        let mut values: Vec<AHashSet<u32>> = vec![AHashSet::new(); tag_keys.len()];
        for words in series.iter().filter_map(|id| inner.keys.get(*id)) {
            for tag in words[1..].chunks_exact(2) {
                if let Ok(at) = tag_keys.binary_search(&tag[0]) {
                    values[at].insert(tag[1]);
                }
            }
        }
        let text = |key: &u32| Arc::clone(inner.tag_keys.text(*key));
        let mut counts: Vec<_> = tag_keys.iter().map(text).zip(values.iter().map(|values| values.len())).collect();
        counts.sort_unstable();
        counts
    }

    /// Groups `series` by their values of the tags `keys`: each is a number on the way, and no key is put together.
    ///
    /// # Errors
    /// Internal, for a series that this index does not know.
    pub fn group(&self, series: &[SeriesId], keys: &[&str]) -> Result<SeriesGroups> {
        let inner = self.read();
        let keys: Vec<Option<u32>> = keys.iter().map(|key| inner.tag_keys.ordinal(key)).collect();
        // Nothing is allocated a series where few tags make groups, as nearly always.
        match keys[..] {
            [key] => inner.group_by(series, |value| [key.and_then(value)]),
            [first, second] => inner.group_by(series, |value| [first.and_then(value), second.and_then(value)]),
            _ => inner.group_by(series, |value| -> Vec<_> { keys.iter().map(|key| key.and_then(value)).collect() }),
        }
    }

    /// The first `max` names of `kind` that start with `prefix`, sorted by bytes.
    pub fn suggest(&self, kind: NameKind, prefix: &str, max: usize) -> Vec<String> {
        let inner = self.read();
        let names = inner.names(kind);
        let text = |ordinal: &u32| &**names.text(*ordinal);
        names.sorted(|sorted| {
            let from = sorted.partition_point(|ordinal| text(ordinal) < prefix);
            let found = sorted[from..].iter().map(text).take_while(|name| name.starts_with(prefix));
            found.take(max).map(str::to_owned).collect()
        })
    }

    /// The first `max` names of `kind` that contain `part`, sorted by bytes.
    pub fn containing(&self, kind: NameKind, part: &str, max: usize) -> Vec<String> {
        let inner = self.read();
        let names = inner.names(kind);
        let found = |sorted: &[u32]| {
            let texts = sorted.iter().map(|ordinal| &**names.text(*ordinal));
            texts.filter(|name| name.contains(part)).take(max).map(str::to_owned).collect()
        };
        names.sorted(found)
    }

    /// Whether any series of the database carries this name.
    pub fn knows(&self, kind: NameKind, name: &str) -> bool {
        self.ordinal(kind, name).is_some()
    }

    /// The number of this name among those of its kind, in the order of first sight, from 0; it never changes.
    pub fn ordinal(&self, kind: NameKind, name: &str) -> Option<u32> {
        self.read().names(kind).ordinal(name)
    }

    /// The name of an ordinal, if that many were seen.
    pub fn name(&self, kind: NameKind, ordinal: u32) -> Option<Arc<str>> {
        let inner = self.read();
        let names = inner.names(kind);
        ((ordinal as usize) < names.len()).then(|| Arc::clone(names.text(ordinal)))
    }

    /// The metrics of the series below `end`, sorted by bytes.
    pub(crate) fn metrics_before(&self, end: SeriesId) -> Vec<Arc<str>> {
        let inner = self.read();
        let known =
            |metric: &&u32| inner.by_metric[**metric as usize].series.as_slice().first().is_some_and(|id| *id < end);
        let text = |metric: &u32| Arc::clone(inner.metrics.text(*metric));
        inner.metrics.sorted(|sorted| sorted.iter().filter(known).map(text).collect())
    }

    /// The series of `metric` that satisfy every predicate, in canonical order.
    pub fn select(&self, metric: &str, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        self.select_before(SeriesId(u32::MAX), metric, predicates)
    }

    /// How many series [`SeriesIndex::select`] finds at the most, told without a look at any of them.
    pub fn select_bound(&self, metric: &str, predicates: &[TagPredicate<'_>]) -> usize {
        let inner = self.read();
        let Some(metric) = inner.metrics.ordinal(metric) else { return 0 };
        let of_metric = inner.by_metric[metric as usize].series.as_slice().len();
        let named = predicates.iter().filter_map(|predicate| inner.among(predicate));
        named.map(|postings| count(&postings)).fold(of_metric, usize::min)
    }

    /// [`SeriesIndex::select`] among the series below `end`.
    pub(crate) fn select_before(&self, end: SeriesId, metric: &str, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        let inner = self.read();
        let Some(metric) = inner.metrics.ordinal(metric) else { return Vec::new() };
        // A tag that no series has is told before any is looked at.
        let keys: Option<Vec<u32>> = predicates.iter().map(|predicate| inner.tag_keys.ordinal(predicate.key)).collect();
        let Some(keys) = keys else { return Vec::new() };
        let mut ids = inner.candidates(end, metric, predicates);
        for (predicate, key) in predicates.iter().zip(keys) {
            inner.keep(&mut ids, key, predicate.accepts);
        }
        inner.sort(&mut ids);
        ids
    }

    /// Sorts ids in canonical order (of their keys). Ids this index does not know come last.
    pub fn sort_canonical(&self, ids: &mut [SeriesId]) {
        self.read().sort(ids);
    }

    /// What it takes in memory, with room for more.
    pub(crate) fn bytes(&self) -> IndexBytes {
        let inner = self.read();
        let names = [&inner.metrics, &inner.tag_keys, &inner.tag_values].map(NameTable::bytes).iter().sum::<usize>();
        let metrics = inner.by_metric.iter().map(|metric| metric.series.bytes()).sum::<usize>();
        let tags = inner.by_tag.capacity() * TAG_ENTRY_BYTES;
        let of_tags = inner.by_tag.values().map(Postings::bytes).sum::<usize>();
        let values = inner.values_of.iter().map(|values| values.capacity() * size_of::<u32>()).sum::<usize>();
        IndexBytes { names, series: inner.keys.bytes() + inner.by_metric.bytes() + metrics + tags + of_tags + values }
    }

    fn read(&self) -> RwLockReadGuard<'_, IndexState> {
        // Every change below is complete before it can panic, so a poisoned lock guards good data.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, IndexState> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of all these together.
fn count(postings: &[&[SeriesId]]) -> usize {
    postings.iter().map(|ids| ids.len()).sum()
}

impl IndexState {
    fn names(&self, kind: NameKind) -> &NameTable {
        match kind {
            NameKind::Metric => &self.metrics,
            NameKind::TagKey => &self.tag_keys,
            NameKind::TagValue => &self.tag_values,
        }
    }

    fn id(&self, key: &SeriesKey) -> Option<SeriesId> {
        let mut words = [0; WORDS_MAX];
        words[0] = self.metrics.ordinal(key.metric())?;
        let tags = key.tags().iter();
        let len = 1 + 2 * tags.len();
        for ((tag_key, tag_value), pair) in tags.zip(words[1..].chunks_exact_mut(2)) {
            pair[0] = self.tag_keys.ordinal(tag_key)?;
            pair[1] = self.tag_values.ordinal(tag_value)?;
        }
        self.keys.find(&words[..len])
    }

    fn key(&self, id: SeriesId) -> Option<SeriesKey> {
        let (metric, tags) = self.keys.get(id)?.split_first()?;
        let text = |names: &NameTable, ordinal| Arc::clone(names.text(ordinal));
        let tags = tags.chunks_exact(2);
        let tags = tags.map(|tag| (text(&self.tag_keys, tag[0]), text(&self.tag_values, tag[1])));
        Some(SeriesKey::from_interned(text(&self.metrics, *metric), TagSet::from_interned(tags.collect())))
    }

    /// Groups `series` by what `values` makes of each: it is handed what tells the value of a key.
    fn group_by<V: AsRef<[Option<u32>]> + Hash + Eq>(
        &self,
        series: &[SeriesId],
        values: impl Fn(&dyn Fn(u32) -> Option<u32>) -> V,
    ) -> Result<SeriesGroups> {
        let mut places: AHashMap<V, u32> = AHashMap::new();
        let mut groups = SeriesGroups { of_series: Vec::with_capacity(series.len()), values: Vec::new() };
        for id in series {
            let words = self.keys.get(*id).ok_or(Error::UnknownSeries { id: id.0 })?;
            let value = |key: u32| words[1..].chunks_exact(2).find(|tag| tag[0] == key).map(|tag| tag[1]);
            let place = *places.entry(values(&value)).or_insert_with_key(|values| {
                let text = |value: &Option<u32>| value.map(|value| Arc::clone(self.tag_values.text(value)));
                groups.values.push(values.as_ref().iter().map(text).collect());
                groups.values.len() as u32 - 1
            });
            groups.of_series.push(place);
        }
        Ok(groups)
    }

    /// The value of tag `key` of a series.
    fn value_of(&self, id: SeriesId, key: u32) -> Option<u32> {
        let tags = self.keys.get(id)?.get(1..)?;
        tags.chunks_exact(2).find(|tag| tag[0] == key).map(|tag| tag[1])
    }

    /// The words of a key, its names made known.
    fn intern<'w>(&mut self, key: &SeriesKey, words: &'w mut [u32; WORDS_MAX]) -> &'w [u32] {
        let mut len = 1;
        words[0] = self.metrics.intern(key.metric_shared());
        for (tag_key, tag_value) in key.tags().shared() {
            words[len] = self.tag_keys.intern(tag_key);
            words[len + 1] = self.tag_values.intern(tag_value);
            len += 2;
        }
        &words[..len]
    }

    /// [`IndexState::intern`] of a key with sorted tags. Nothing is made known unless all its names are good.
    fn intern_raw<'w>(&mut self, key: &RawKey<'_>, words: &'w mut [u32; WORDS_MAX]) -> Result<&'w [u32]> {
        let len = 1 + 2 * key.tags.len();
        if self.find_words(key, &mut words[..len]).is_none() {
            let tags = key.tags.iter().map(|(tag_key, tag_value)| -> Result<_> {
                Ok((series::tag_key(tag_key)?, series::tag_value(tag_value)?))
            });
            let checked = TagSet::from_interned(tags.collect::<Result<_>>()?);
            return Ok(self.intern(&SeriesKey::from_interned(series::metric(key.metric)?, checked), words));
        }
        Ok(&words[..len])
    }

    /// Fills in the words of a key whose names are all known.
    fn find_words(&self, key: &RawKey<'_>, words: &mut [u32]) -> Option<()> {
        words[0] = self.metrics.ordinal(key.metric)?;
        for ((tag_key, tag_value), pair) in key.tags.iter().zip(words[1..].chunks_exact_mut(2)) {
            pair[0] = self.tag_keys.ordinal(tag_key)?;
            pair[1] = self.tag_values.ordinal(tag_value)?;
        }
        Some(())
    }

    /// Adds the series with this key, which has the next id.
    fn insert(&mut self, words: &[u32]) {
        let id = SeriesId(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        let (metric, tags) = (words[0] as usize, words[1..].chunks_exact(2));
        self.by_metric.grow_to(self.metrics.len());
        self.values_of.resize_with(self.tag_keys.len(), Vec::new);
        let metric = &mut self.by_metric[metric];
        // Ids grow, so pushing keeps every posting list sorted.
        metric.series.push(id);
        metric.tag_keys = self.key_sets.with(metric.tag_keys, tags.clone().map(|tag| tag[0]));
        for tag in tags {
            let (key, value) = (tag[0], tag[1]);
            let postings = self.by_tag.entry((key, value)).or_default();
            if postings.as_slice().is_empty() {
                self.values_of[key as usize].push(value);
            }
            postings.push(id);
        }
        self.keys.push(words);
    }

    /// The series of `metric` below `end` in the order of their ids; at least those that satisfy every predicate.
    fn candidates(&self, end: SeriesId, metric: u32, predicates: &[TagPredicate<'_>]) -> Vec<SeriesId> {
        let all = self.by_metric[metric as usize].series.as_slice();
        let all = &all[..all.partition_point(|id| *id < end)];
        let named = predicates.iter().filter_map(|predicate| self.among(predicate));
        let named = named.min_by_key(|postings| count(postings));
        match named {
            // To look at the key of one takes as long as to copy some.
            Some(named) if count(&named) < all.len() / 4 => {
                let is_of_metric = |id: &SeriesId| self.keys.get(*id).is_some_and(|words| words[0] == metric);
                let ids = named.into_iter().flatten().copied();
                let mut ids: Vec<SeriesId> = ids.filter(|id| *id < end && is_of_metric(id)).collect();
                ids.sort_unstable();
                ids
            }
            _ => all.to_vec(),
        }
    }

    /// The series of each value that a predicate names; `None` where it names none.
    fn among(&self, predicate: &TagPredicate<'_>) -> Option<Vec<&[SeriesId]>> {
        let (values, key) = (predicate.among?, self.tag_keys.ordinal(predicate.key)?);
        let mut values: Vec<u32> = values.iter().filter_map(|value| self.tag_values.ordinal(value)).collect();
        values.sort_unstable();
        values.dedup();
        Some(values.iter().filter_map(|value| self.by_tag.get(&(key, *value)).map(Postings::as_slice)).collect())
    }

    /// Keeps those of `ids`, which are sorted, whose value of `key` is accepted.
    fn keep(&self, ids: &mut Vec<SeriesId>, key: u32, accepts: &dyn Fn(&str) -> bool) {
        let accepts = |value: u32| accepts(self.tag_values.text(value));
        let values = &self.values_of[key as usize];
        if values.len() > ids.len() {
            // Most values are those of other series.
            let mut known: AHashMap<u32, bool> = AHashMap::new();
            ids.retain(|id| {
                self.value_of(*id, key).is_some_and(|value| *known.entry(value).or_insert_with(|| accepts(value)))
            });
            return;
        }
        let accepted: AHashSet<u32> = values.iter().copied().filter(|value| accepts(*value)).collect();
        let postings = || accepted.iter().filter_map(|value| self.by_tag.get(&(key, *value)).map(Postings::as_slice));
        let found: usize = postings().map(<[SeriesId]>::len).sum();
        // Looking one up among `ids` takes a few steps.
        if found < ids.len() / 8 {
            let mut kept: Vec<SeriesId> =
                postings().flatten().filter(|id| ids.binary_search(id).is_ok()).copied().collect();
            kept.sort_unstable();
            *ids = kept;
        } else {
            ids.retain(|id| self.value_of(*id, key).is_some_and(|value| accepted.contains(&value)));
        }
    }
}
