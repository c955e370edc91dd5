//! Small durable state of whoever uses a database: texts under names, of which the last one counts.
//!
//! The engine does not look into them. What they hold outlives the samples that it came from, as retention leaves
//! metadata alone.

mod numbers;
mod read;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use self::text::{Patterns, RecordText};
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
type RecordTree = BTreeMap<String, BTreeMap<String, RecordText>>;

/// All records, and how much they are.
#[derive(Clone, Debug, Default)]
pub(super) struct StateRecords {
    tree: RecordTree,
    bytes: usize,
    /// What the next text may be like.
    patterns: Patterns,
}

impl PartialEq for StateRecords {
    fn eq(&self, other: &Self) -> bool {
        self.tree == other.tree
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

    /// About what all of them take in memory, where long ones are compressed.
    pub fn held_bytes(&self) -> usize {
        let records = self.tree.values().flatten();
        records.map(|(key, text)| size_of::<String>() + key.len() + text.held_bytes()).sum()
    }

    pub fn apply(&mut self, record: StateRecord) {
        let StateRecord { kind, key, text } = record;
        match text {
            Some(text) => {
                let text = RecordText::new(text, &mut self.patterns);
                self.put(kind, key, text);
            }
            None => {
                let Some(keys) = self.tree.get_mut(&kind) else { return };
                if let Some(before) = keys.remove(&key) {
                    self.bytes -= kind.len() + key.len() + before.len();
                }
                if keys.is_empty() {
                    self.tree.remove(&kind);
                }
            }
        }
    }

    fn put(&mut self, kind: String, key: String, text: RecordText) {
        let names = kind.len() + key.len();
        self.bytes += names + text.len();
        if let Some(before) = self.tree.entry(kind).or_default().insert(key, text) {
            self.bytes -= names + before.len();
        }
    }

    /// Takes in the records of another database, which win.
    pub fn absorb(&mut self, later: Self) {
        for (kind, keys) in later.tree {
            for (key, text) in keys {
                self.put(kind.clone(), key, text);
            }
        }
    }
}

impl Meta {
    /// The text of one record.
    pub fn record(&self, kind: &str, key: &str) -> Option<Arc<str>> {
        self.records.tree.get(kind)?.get(key).map(RecordText::text)
    }

    /// How long that is, in bytes.
    pub fn record_bytes(&self, kind: &str, key: &str) -> Option<usize> {
        self.records.tree.get(kind)?.get(key).map(RecordText::len)
    }

    /// The records of a kind with their keys, sorted by key.
    pub fn records(&self, kind: &str) -> impl Iterator<Item = (&str, Arc<str>)> {
        self.records.tree.get(kind).into_iter().flatten().map(|(key, text)| (&**key, text.text()))
    }

    /// The keys of the records of a kind, sorted.
    pub fn record_keys(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.records.tree.get(kind).into_iter().flatten().map(|(key, _)| &**key)
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
        assert_eq!(meta.record("run", "b").as_deref(), Some("4"));
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
    fn a_long_text_is_compressed_in_memory_and_comes_back_as_it_was() {
        let counters: String =
            (0..100).map(|number| format!("{{\"name\":\"größe_{number}\",\"value\":1.0}},")).collect();
        let random: String = {
            let mut state = 1_u64;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from_u32((state >> 33) as u32 % 0xd800).unwrap()
            };
            (0..2_000).map(|_| next()).collect()
        };
        let mut meta = Meta::default();
        for (key, text) in [("counters", &counters), ("random", &random)] {
            put(&mut meta, StateRecord::new("profile", key, text.clone()));
            assert_eq!(meta.record("profile", key).as_deref(), Some(&**text));
            assert_eq!(meta.record_bytes("profile", key), Some(text.len()));
        }
        assert!(RecordText::new(counters.as_str().into(), &mut Patterns::default()).held_bytes() < counters.len() / 4);
        assert_eq!(meta.record_keys("profile").collect::<Vec<_>>(), ["counters", "random"]);
        // In a file it stands as it is.
        let written = serde_json::to_string(&meta).unwrap();
        assert!(written.contains(&serde_json::to_string(&counters).unwrap()));
        assert_eq!(serde_json::from_str::<Meta>(&written).unwrap(), meta);
        let bytes = meta.records.bytes();
        put(&mut meta, StateRecord::removal("profile", "random"));
        assert_eq!(bytes - meta.records.bytes(), "profile".len() + "random".len() + random.len());
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
