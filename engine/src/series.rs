//! The identity of a series: a metric and its tags. This is the only module that validates names.
//!
//! A [`SeriesKey`] can only be built from valid names, so all other code trusts them: they are never empty, never
//! longer than their limit, and contain no control character. Further rules of a wire protocol are checked by that
//! protocol.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Longest metric name, in bytes of UTF-8.
pub const METRIC_BYTES_MAX: usize = 512;
/// Longest tag key, in bytes of UTF-8.
pub const TAG_KEY_BYTES_MAX: usize = 256;
/// Longest tag value, in bytes of UTF-8.
pub const TAG_VALUE_BYTES_MAX: usize = 1_024;
/// Most tags that one series may carry.
pub const TAGS_MAX: usize = 64;

/// The number of a series inside one database, dense from 0 in the order of first sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// The tags of a series: sorted by key, every key once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagSet(Arc<[(Arc<str>, Arc<str>)]>);

impl TagSet {
    /// Sorts `tags` by key and checks every name.
    ///
    /// # Errors
    /// Invalid when a name breaks its rule, a key occurs twice, or there are more than [`TAGS_MAX`].
    pub fn new<K: AsRef<str>, V: AsRef<str>>(tags: impl IntoIterator<Item = (K, V)>) -> Result<Self> {
        let mut sorted: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for (key, value) in tags {
            sorted.push((tag_key(key.as_ref())?, tag_value(value.as_ref())?));
        }
        if sorted.len() > TAGS_MAX {
            return Err(Error::TooManyTags { found: sorted.len(), max: TAGS_MAX });
        }
        sorted.sort();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::DuplicateTag { key: pair[0].0.to_string() });
        }
        Ok(Self(sorted.into()))
    }

    /// Tags whose names were checked before, in order: what [`crate::index`] hands out again.
    pub(crate) fn from_interned(tags: Arc<[(Arc<str>, Arc<str>)]>) -> Self {
        debug_assert!(tags.is_sorted());
        Self(tags)
    }

    /// Those of some series that all agree on which have the key, and the keys, sorted, on which these differ.
    pub fn in_common<'a>(sets: impl IntoIterator<Item = &'a TagSet>) -> (TagSet, Vec<Arc<str>>) {
        let mut sets = sets.into_iter();
        let first = sets.next().cloned().unwrap_or_default();
        let Some(second) = sets.next() else { return (first, Vec::new()) };
        let mut tags: BTreeMap<&Arc<str>, Option<&Arc<str>>> =
            first.0.iter().map(|(key, value)| (key, Some(value))).collect();
        for (key, value) in std::iter::once(second).chain(sets).flat_map(|set| set.0.iter()) {
            let agreed = tags.entry(key).or_insert(Some(value));
            if *agreed != Some(value) {
                *agreed = None;
            }
        }
        let differ = tags.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| Arc::clone(key)).collect();
        let agree = tags.into_iter().filter_map(|(key, value)| Some((Arc::clone(key), Arc::clone(value?))));
        (TagSet(agree.collect()), differ)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn shared(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.0
    }
}

/// A metric and its tags. The order of keys, by metric and then tag by tag, byte by byte, is
/// the canonical order of series: in segments, in answers, and for `first`, `last` and `diff`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    metric: Arc<str>,
    tags: TagSet,
}

impl SeriesKey {
    /// # Errors
    /// Invalid when the metric's name breaks its rule.
    pub fn new(metric: &str, tags: TagSet) -> Result<Self> {
        Ok(Self { metric: self::metric(metric)?, tags })
    }

    /// [`SeriesKey::new`] with a name that stands in memory already, and is not to stand there twice.
    ///
    /// # Errors
    /// Invalid when the metric's name breaks its rule.
    pub fn of_shared(metric: Arc<str>, tags: TagSet) -> Result<Self> {
        check_name("metric", &metric, METRIC_BYTES_MAX)?;
        Ok(Self { metric, tags })
    }

    pub(crate) fn from_interned(metric: Arc<str>, tags: TagSet) -> Self {
        Self { metric, tags }
    }

    pub fn metric(&self) -> &str {
        &self.metric
    }

    pub fn metric_shared(&self) -> &Arc<str> {
        &self.metric
    }

    pub fn tags(&self) -> &TagSet {
        &self.tags
    }
}

impl fmt::Display for SeriesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{", self.metric)?;
        for (at, (key, value)) in self.tags.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        write!(f, "}}")
    }
}

/// A key whose names are not checked yet, as a file holds it. It is borrowed, so that a key with known names costs
/// nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawKey<'a> {
    pub metric: &'a str,
    pub tags: &'a [(&'a str, &'a str)],
}

impl RawKey<'_> {
    /// Whether its tags are as many and in the order as those of a [`TagSet`].
    pub fn is_sorted(&self) -> bool {
        self.tags.len() <= TAGS_MAX && self.tags.is_sorted_by(|before, after| before.0 < after.0)
    }
}

/// A good name of a metric.
pub(crate) fn metric(name: &str) -> Result<Arc<str>> {
    check_name("metric", name, METRIC_BYTES_MAX).map(|()| Arc::from(name))
}

/// A good key of a tag.
pub(crate) fn tag_key(name: &str) -> Result<Arc<str>> {
    check_name("tag key", name, TAG_KEY_BYTES_MAX).map(|()| Arc::from(name))
}

/// A good value of a tag.
pub(crate) fn tag_value(name: &str) -> Result<Arc<str>> {
    check_name("tag value", name, TAG_VALUE_BYTES_MAX).map(|()| Arc::from(name))
}

fn check_name(what: &'static str, name: &str, bytes_max: usize) -> Result<()> {
    if name.is_empty() {
        return Err(Error::EmptyName { what });
    }
    if name.len() > bytes_max {
        return Err(Error::LongName { what, name: name.chars().take(32).collect(), found: name.len(), max: bytes_max });
    }
    if let Some(bad) = name.chars().find(|c| c.is_control()) {
        return Err(Error::ControlCharacter { what, name: name.escape_debug().to_string(), found: bad });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
