//! The tag keys of metrics: the same few sets over and over, each stored once.

use ahash::AHashMap;

/// A set among those of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeySet(u32);

#[derive(Debug)]
pub struct KeySets {
    /// Ordinals of keys, sorted. The first is empty.
    sets: Vec<Box<[u32]>>,
    numbers: AHashMap<Box<[u32]>, u32>,
}

impl Default for KeySets {
    fn default() -> Self {
        Self { sets: vec![Box::default()], numbers: AHashMap::new() }
    }
}

impl KeySets {
    /// The ordinals of a set, sorted.
    pub fn keys(&self, set: KeySet) -> &[u32] {
        &self.sets[set.0 as usize]
    }

    /// The set with these keys, too.
    pub fn with(&mut self, set: KeySet, more: impl Iterator<Item = u32> + Clone) -> KeySet {
        let known = self.keys(set);
        if more.clone().all(|key| known.binary_search(&key).is_ok()) {
            return set;
        }
        let mut keys: Vec<u32> = known.iter().copied().chain(more).collect();
        keys.sort_unstable();
        keys.dedup();
        if let Some(number) = self.numbers.get(&*keys) {
            return KeySet(*number);
        }
        // There are no more sets than series.
        let number = self.sets.len() as u32;
        self.sets.push(keys.clone().into());
        self.numbers.insert(keys.into(), number);
        KeySet(number)
    }
}
