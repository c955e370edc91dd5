//! Small durable state of whoever uses a database: texts under names, of which the last one counts.
//!
//! The engine does not look into them. What they hold outlives the samples that it came from, as retention leaves
//! metadata alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::Meta;

/// Longest text of a record, in bytes.
pub const RECORD_BYTES_MAX: usize = 4 << 20;
/// Most bytes that all records of a database take, names included.
pub const RECORDS_BYTES_MAX: usize = 256 << 20;

/// A text that its writer finds again by its kind and key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    /// What it is, such as `proxy.run`: its writer's choice.
    pub kind: String,
    /// Which of them it is.
    pub key: String,
    /// Replaces what was there before; `None` removes it.
    pub text: Option<Arc<str>>,
}

impl StateRecord {
    pub fn new(kind: impl Into<String>, key: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Self { kind: kind.into(), key: key.into(), text: Some(text.into()) }
    }

    /// The removal of one.
    pub fn removal(kind: impl Into<String>, key: impl Into<String>) -> Self {
        Self { kind: kind.into(), key: key.into(), text: None }
    }

    pub(super) fn bytes(&self) -> usize {
        self.kind.len() + self.key.len() + self.text.as_deref().map_or(0, str::len)
    }
}

/// Records by kind and then key.
type RecordTree = BTreeMap<String, BTreeMap<String, Arc<str>>>;

/// All records, and how much they are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "RecordTree")]
pub(super) struct StateRecords {
    tree: RecordTree,
    bytes: usize,
}

impl From<RecordTree> for StateRecords {
    fn from(tree: RecordTree) -> Self {
        let of_kind = |(kind, keys): (&String, &BTreeMap<String, Arc<str>>)| {
            keys.iter().map(|(key, text)| kind.len() + key.len() + text.len()).sum::<usize>()
        };
        let bytes = tree.iter().map(of_kind).sum();
        Self { tree, bytes }
    }
}

impl Serialize for StateRecords {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.tree.serialize(to)
    }
}

impl StateRecords {
    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// What all of them take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn apply(&mut self, record: StateRecord) {
        let StateRecord { kind, key, text } = record;
        let names = kind.len() + key.len();
        let before = match text {
            Some(text) => {
                self.bytes += names + text.len();
                self.tree.entry(kind).or_default().insert(key, text)
            }
            None => {
                let Some(keys) = self.tree.get_mut(&kind) else { return };
                let before = keys.remove(&key);
                if keys.is_empty() {
                    self.tree.remove(&kind);
                }
                before
            }
        };
        if let Some(before) = before {
            self.bytes -= names + before.len();
        }
    }

    /// Takes in the records of another database, which win.
    pub fn absorb(&mut self, later: Self) {
        for (kind, keys) in later.tree {
            for (key, text) in keys {
                self.apply(StateRecord { kind: kind.clone(), key, text: Some(text) });
            }
        }
    }
}

impl Meta {
    /// The text of one record.
    pub fn record(&self, kind: &str, key: &str) -> Option<&Arc<str>> {
        self.records.tree.get(kind)?.get(key)
    }

    /// The records of a kind with their keys, sorted by key.
    pub fn records(&self, kind: &str) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.records.tree.get(kind).into_iter().flatten().map(|(key, text)| (&**key, text))
    }
}

#[cfg(test)]
mod tests {
    use super::super::MetaChange;
    use super::*;

    fn put(meta: &mut Meta, record: StateRecord) {
        meta.apply(MetaChange::Record(record));
    }

    fn found(meta: &Meta, kind: &str) -> Vec<(String, String)> {
        meta.records(kind).map(|(key, text)| (key.to_owned(), text.to_string())).collect()
    }

    #[test]
    fn the_last_record_of_a_kind_and_key_counts_and_a_removal_leaves_nothing() {
        let mut meta = Meta::default();
        put(&mut meta, StateRecord::new("alarm", "b", "1"));
        put(&mut meta, StateRecord::new("alarm", "a", "2"));
        put(&mut meta, StateRecord::new("alarm", "b", "3"));
        put(&mut meta, StateRecord::new("run", "b", "4"));
        assert_eq!(found(&meta, "alarm"), [("a".into(), "2".into()), ("b".into(), "3".into())]);
        assert_eq!(meta.record("run", "b").map(|text| &**text), Some("4"));
        let written = serde_json::to_string(&meta).unwrap();
        assert_eq!(serde_json::from_str::<Meta>(&written).unwrap(), meta);
        for (kind, key) in [("alarm", "a"), ("alarm", "b"), ("run", "b"), ("run", "unknown"), ("none", "b")] {
            put(&mut meta, StateRecord::removal(kind, key));
        }
        assert_eq!(meta, Meta::default());
        assert!(!serde_json::to_string(&meta).unwrap().contains("records"), "files without records stay as they were");
    }

    #[test]
    fn databases_that_are_opened_together_have_the_records_of_all_and_of_the_later_where_both_have_one() {
        let (mut first, mut later) = (Meta::default(), Meta::default());
        put(&mut first, StateRecord::new("run", "a", "1"));
        put(&mut first, StateRecord::new("run", "b", "2"));
        put(&mut later, StateRecord::new("run", "b", "3"));
        put(&mut later, StateRecord::new("alarm", "c", "4"));
        first.absorb(later);
        assert_eq!(found(&first, "run"), [("a".into(), "1".into()), ("b".into(), "3".into())]);
        assert_eq!(found(&first, "alarm"), [("c".into(), "4".into())]);
    }

    #[test]
    fn a_record_that_is_too_long_or_for_which_there_is_no_room_is_refused() {
        let long = MetaChange::Record(StateRecord::new("run", "a", "x".repeat(RECORD_BYTES_MAX)));
        assert!(long.check(&Meta::default()).unwrap_err().to_string().contains("record"));
        let mut meta = Meta::default();
        let text: Arc<str> = "x".repeat(RECORD_BYTES_MAX - 64).into();
        for number in 0..RECORDS_BYTES_MAX / RECORD_BYTES_MAX {
            put(&mut meta, StateRecord::new("run", number.to_string(), Arc::clone(&text)));
        }
        let more = MetaChange::Record(StateRecord::new("run", "more", text));
        assert!(more.check(&meta).unwrap_err().to_string().contains("records"));
        let removal = MetaChange::Record(StateRecord::removal("run", "0"));
        removal.check(&meta).unwrap();
    }
}
