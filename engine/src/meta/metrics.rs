//! What is known of metrics: a description stands in memory once where many in a row have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::MetricMeta;

/// Descriptions by the names of metrics.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<Arc<str>, MetricMeta>")]
pub(super) struct MetricTable {
    by_name: BTreeMap<Arc<str>, Arc<MetricMeta>>,
    /// The one that came last.
    last: Arc<MetricMeta>,
}

impl PartialEq for MetricTable {
    fn eq(&self, other: &Self) -> bool {
        self.by_name == other.by_name
    }
}

impl From<BTreeMap<Arc<str>, MetricMeta>> for MetricTable {
    fn from(read: BTreeMap<Arc<str>, MetricMeta>) -> Self {
        let mut table = Self::default();
        for (name, meta) in read {
            table.insert(name, meta);
        }
        table
    }
}

impl Serialize for MetricTable {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.by_name.serialize(to)
    }
}

impl MetricTable {
    pub fn get(&self, name: &str) -> Option<&MetricMeta> {
        self.by_name.get(name).map(|meta| &**meta)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &MetricMeta)> {
        self.by_name.iter().map(|(name, meta)| (&**name, &**meta))
    }

    /// About what it takes in memory; a name is taken to be held here alone.
    pub fn held_bytes(&self) -> usize {
        let entry = size_of::<(Arc<str>, Arc<MetricMeta>)>();
        let mut before: Option<&Arc<MetricMeta>> = None;
        let mut bytes = 0;
        for (name, meta) in &self.by_name {
            bytes += entry + name.len();
            if before.is_none_or(|before| !Arc::ptr_eq(before, meta)) {
                bytes += size_of::<MetricMeta>() + meta.unit.len() + meta.help.len();
            }
            before = Some(meta);
        }
        bytes
    }

    pub fn insert(&mut self, name: Arc<str>, meta: MetricMeta) {
        if *self.last != meta {
            self.last = Arc::new(meta);
        }
        self.by_name.insert(name, Arc::clone(&self.last));
    }

    /// Takes in what another table knows, which wins.
    pub fn absorb(&mut self, later: Self) {
        self.by_name.extend(later.by_name);
    }
}
