//! What a node reports about itself to the head: the keys of its series, each once.

use serde::{Deserialize, Serialize};
use telem_engine::{Db, SeriesId, SeriesKey};

use crate::error::Result;
use crate::question::tags::{decode_tags, encode_tags};

/// Most keys in one delta; the rest follows with the next.
pub const KEYS_MAX: u32 = 10_000;

/// Keys of series in the order in which a node saw them, from one position on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDelta {
    /// Of the index that gave the series their numbers; in another they mean nothing.
    pub edition: u64,
    /// How many series come before.
    pub from: u32,
    /// Metric by metric as they came: a metric, and the tags of some of its series in the form in which groups travel.
    pub series: Vec<(String, Vec<String>)>,
}

impl KnownDelta {
    pub(super) fn keys(&self) -> Result<Vec<SeriesKey>> {
        let mut keys = Vec::new();
        for (metric, series) in &self.series {
            for tags in series {
                keys.push(SeriesKey::new(metric, decode_tags(tags)?)?);
            }
        }
        Ok(keys)
    }

    fn push(&mut self, key: &SeriesKey) {
        let tags = encode_tags(key.tags());
        match self.series.last_mut() {
            Some((metric, series)) if metric == key.metric() => series.push(tags),
            _ => self.series.push((key.metric().to_owned(), vec![tags])),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

/// Tells what is new in one database.
#[derive(Clone, Debug)]
pub struct Knowing {
    db: Db,
    told: u32,
    /// The head has heard of us, if only that there is nothing.
    is_heard: bool,
}

impl Knowing {
    pub fn new(db: Db) -> Self {
        Self { db, told: 0, is_heard: false }
    }

    /// Whether there is anything to report, including the absence of series to a head that cannot know it.
    pub fn has_news(&self) -> bool {
        !self.is_heard || self.told < self.count()
    }

    /// The next keys, [`KEYS_MAX`] at most. They count as reported when [`Knowing::mark_reported`] says so.
    pub fn delta(&self) -> KnownDelta {
        let mut delta = KnownDelta { edition: self.db.index().edition(), from: self.told, series: Vec::new() };
        let end = self.count().min(self.told.saturating_add(KEYS_MAX));
        for id in self.told..end {
            let Some(key) = self.db.index().key(SeriesId(id)) else { break };
            delta.push(&key);
        }
        delta
    }

    /// The head knows this many.
    pub fn mark_reported(&mut self, known: u32) {
        (self.told, self.is_heard) = (known.min(self.count()), true);
    }

    /// The head knows nothing of us, or nothing any more.
    pub fn forget(&mut self) {
        (self.told, self.is_heard) = (0, false);
    }

    fn count(&self) -> u32 {
        u32::try_from(self.db.index().len()).unwrap_or(u32::MAX)
    }
}
