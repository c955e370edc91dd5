//! The series of counters.
//!
//! A name has the series that its base and labels spell. Two names may spell one, such as those whose labels stand in
//! another order, and some names spell none. So a series belongs to the first name that gets it. Every other one has a
//! series of its own, with its text in the tag [`NAME_TAG`]. Whose a series is, a record of the database says wherever
//! its metric and tags do not.

use std::borrow::Cow;
use std::sync::Arc;

use ahash::AHashMap;
use telem_engine::series::{METRIC_BYTES_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX};
use telem_engine::{JOB_SLOT_TAG, SeriesKey, Snapshot, StateRecord, TagSet};

use super::LaneTags;
use crate::decode::proxy::label::FullName;

/// The kind of the records that say whose a series is, by its key.
pub const NAME_RECORD: &str = "proxy.name";
/// The tag of a series that one name has for itself.
pub const NAME_TAG: &str = "proxy.name";

/// What tags of telem's own begin with, besides that of a slot: no label of a client is one.
const OWN_TAGS: &str = "proxy.";

/// Who has which series, while names get theirs.
#[derive(Debug)]
pub struct SpelledSeries {
    snapshot: Snapshot,
    has_records: bool,
    /// Of these there are no records yet.
    new: AHashMap<SeriesKey, Arc<str>>,
}

impl SpelledSeries {
    pub fn new(snapshot: Snapshot) -> Self {
        let has_records = snapshot.meta().record_keys(NAME_RECORD).next().is_some();
        Self { snapshot, has_records, new: AHashMap::new() }
    }

    /// The series of a name in a lane, which is new if it must be.
    ///
    /// # Errors
    /// Invalid, where the lane's own tags are more than a series may have.
    pub fn key(&mut self, name: &Arc<str>, tags: &LaneTags) -> telem_engine::Result<SeriesKey> {
        if let Ok(spelled) = spelled_key(name, tags) {
            let is_its_spelling = counter_name(&spelled, tags) == **name;
            match self.owner(&spelled) {
                Some(owner) if owner == *name => return Ok(spelled),
                None if is_its_spelling => return Ok(spelled),
                None if self.snapshot.index().id(&spelled).is_none() => {
                    self.new.insert(spelled.clone(), Arc::clone(name));
                    return Ok(spelled);
                }
                _ => {}
            }
        }
        let own = own_key(name, tags)?;
        if self.owner(&own).is_none() {
            self.new.insert(own.clone(), Arc::clone(name));
        }
        Ok(own)
    }

    fn owner(&self, key: &SeriesKey) -> Option<Arc<str>> {
        let recorded = || self.has_records.then(|| owner(&self.snapshot, key)).flatten();
        self.new.get(key).cloned().or_else(recorded)
    }

    /// What the database is to know for ever.
    pub fn records(self) -> impl Iterator<Item = StateRecord> {
        self.new.into_iter().map(|(key, name)| StateRecord::new(NAME_RECORD, key.to_string(), name))
    }
}

fn owner(snapshot: &Snapshot, key: &SeriesKey) -> Option<Arc<str>> {
    snapshot.meta().record(NAME_RECORD, &key.to_string())
}

/// Whether a series holds what was counted under a name, where it is that of `labels`.
pub fn is_of_name(snapshot: &Snapshot, key: &SeriesKey, name: &str, labels: impl FnOnce() -> bool) -> bool {
    match owner(snapshot, key) {
        Some(owner) => *owner == *name,
        None => labels(),
    }
}

/// The series in which a database has the samples of a counter in a lane, if there are any.
pub fn stored_key(snapshot: &Snapshot, name: &str, tags: &LaneTags) -> Option<SeriesKey> {
    let own = || own_key(name, tags).ok().filter(|own| owner(snapshot, own).is_some_and(|owner| *owner == *name));
    if snapshot.meta().record_keys(NAME_RECORD).next().is_some()
        && let Some(own) = own()
    {
        return Some(own);
    }
    series_key(name, tags).ok().filter(|key| is_of_name(snapshot, key, name, || true))
}

/// The series that a name spells in a lane.
///
/// # Errors
/// Invalid, for a name that no series can have.
pub fn series_key(name: &str, tags: &LaneTags) -> telem_engine::Result<SeriesKey> {
    let (metric, tags) = metric_and_tags(name, tags)?;
    SeriesKey::new(&metric, tags)
}

/// The same, whose metric shares its text with the name where both are one.
fn spelled_key(name: &Arc<str>, tags: &LaneTags) -> telem_engine::Result<SeriesKey> {
    let (metric, tags) = metric_and_tags(name, tags)?;
    match metric {
        Cow::Borrowed(metric) if metric.len() == name.len() => SeriesKey::of_shared(Arc::clone(name), tags),
        metric => SeriesKey::new(&metric, tags),
    }
}

fn metric_and_tags<'a>(name: &'a str, tags: &LaneTags) -> telem_engine::Result<(Cow<'a, str>, TagSet)> {
    let FullName { base, labels } = FullName::new(name);
    // No name is none, whatever stands before it.
    let is_plain = base.is_empty() || tags.prefix.is_empty();
    let metric = if is_plain { base.into() } else { format!("{}{base}", tags.prefix).into() };
    Ok((metric, lane_tags(&labels, None, tags)?))
}

/// The tags of a counter in a lane; with its name, where it has a series for itself.
fn lane_tags(labels: &[(&str, Cow<'_, str>)], name: Option<&str>, tags: &LaneTags) -> telem_engine::Result<TagSet> {
    // What tells lanes apart is ours to say.
    let is_ours = |key: &str| {
        key == JOB_SLOT_TAG || key.starts_with(OWN_TAGS) || tags.more.iter().any(|(ours, _)| **ours == *key)
    };
    let labels = labels.iter().map(|(key, value)| (*key, &**value)).filter(|(key, _)| !is_ours(key));
    let more = tags.more.iter().map(|(key, value)| (&**key, &**value));
    let all: Vec<(&str, &str)> = labels.chain(name.map(|name| (NAME_TAG, name))).chain(more).collect();
    tags.default.complete(&all, TAGS_MAX)
}

/// The series that only this name has: as much of what it spells as a series can have, and the name itself.
fn own_key(name: &str, tags: &LaneTags) -> telem_engine::Result<SeriesKey> {
    let FullName { base, labels } = FullName::new(name);
    let text = tag_text(name);
    let all = lane_tags(&labels, Some(&text), tags).or_else(|_| lane_tags(&[], Some(&text), tags))?;
    SeriesKey::new(&metric_text(base, tags.prefix), all)
}

/// A base as a metric can be called.
fn metric_text(base: &str, prefix: &str) -> String {
    let mut text = String::from(prefix);
    for c in base.chars().map(|c| if c.is_control() { '_' } else { c }) {
        if text.len() + c.len_utf8() > METRIC_BYTES_MAX {
            break;
        }
        text.push(c);
    }
    if base.is_empty() {
        text.push('_');
    }
    text
}

/// The metric of the series that only this name has.
pub fn own_metric(name: &str, prefix: &str) -> String {
    metric_text(FullName::new(name).base, prefix)
}

/// A hash of a name that stays what it is, also on other machines: FNV-1a. What is stored may depend on it.
pub fn stable_hash(name: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A name as the value of a tag, which no other name has: escaped, and where it is long its beginning with a hash of it.
fn tag_text(name: &str) -> String {
    let mut text = name.escape_debug().to_string();
    if text.len() > TAG_VALUE_BYTES_MAX || text.is_empty() {
        let hash = format!("#{:016x}", stable_hash(name));
        let mut end = text.len().min(TAG_VALUE_BYTES_MAX - hash.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(&hash);
    }
    text
}

/// The name that a series spells: the tags that its lane added are left out.
pub fn counter_name(key: &SeriesKey, tags: &LaneTags) -> String {
    let added = tags.default.complete::<&str, &str>(&[], TAGS_MAX).unwrap_or_default();
    let is_added = |name: &str, value: &str| {
        added.get(name) == Some(value) || tags.more.iter().any(|(key, ours)| **key == *name && **ours == *value)
    };
    let base = key.metric().strip_prefix(tags.prefix).unwrap_or(key.metric());
    FullName::written(base, key.tags().iter().filter(|(name, value)| !is_added(name, value)))
}
