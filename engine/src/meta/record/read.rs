//! Records out of a file of metadata. Each text is packed as it is read, beside those before it.

use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{StateRecord, StateRecords};

impl<'de> Deserialize<'de> for StateRecords {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ByKind)
    }
}

struct ByKind;

impl<'de> Visitor<'de> for ByKind {
    type Value = StateRecords;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("records by kind and key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut kinds: A) -> Result<StateRecords, A::Error> {
        let mut records = StateRecords::default();
        while let Some(kind) = kinds.next_key::<String>()? {
            kinds.next_value_seed(OfKind { kind, records: &mut records })?;
        }
        Ok(records)
    }
}

struct OfKind<'a> {
    kind: String,
    records: &'a mut StateRecords,
}

impl<'de> DeserializeSeed<'de> for OfKind<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OfKind<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("texts by key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut keys: A) -> Result<(), A::Error> {
        while let Some((key, text)) = keys.next_entry()? {
            self.records.apply(StateRecord { kind: self.kind.clone(), key, text: Some(text) });
        }
        Ok(())
    }
}
