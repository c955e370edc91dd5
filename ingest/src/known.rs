//! Remembers the meaning of the raw bytes of a metric and its tags, so that the next sample of a series costs a
//! comparison and no parsing.
//!
//! Senders repeat themselves: the same series, in the same order, tick after tick. A [`Keys`] finds the meaning of raw
//! bytes by their hash, and predicts which key follows which, so that one comparison is mostly enough. A decoder takes
//! a memory out of [`Memories`] for as long as it works, so nothing here is locked while bytes are read. The decoders
//! define what a memory contains.

#[cfg(test)]
mod tests;

use std::mem::size_of;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::{AHashMap, RandomState};

use crate::default_tags::DefaultTags;

/// Longer keys are parsed every time.
pub const KEY_BYTES_MAX: usize = 4 << 10;
/// Most decoders that remember something; one more at the same time works without.
pub const MEMORIES_MAX: usize = 4;
/// What is full forgets everything once it turned away this many times as many keys as it holds: then these are not
/// what is sent now.
const TURNED_AWAY_MAX: usize = 4;
/// Most kinds of senders, by the tags that they get, whose keys are distinguished; with one more everything is
/// forgotten.
pub(crate) const SENDERS_MAX: usize = 4_096;
/// No entry.
const NONE: u32 = u32::MAX;

/// The place of a key in its [`Keys`], until those are cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(u32);

/// Raw keys and what they mean. When full it turns new ones away: of more series than fit, sent one after another, those
/// that it has stay of use. Where they do not, it forgets all of them and learns anew; so no entry needs to know when it
/// was used.
#[derive(Debug)]
pub struct Keys<T> {
    bytes_max: usize,
    bytes: usize,
    /// Since it was full.
    turned_away: usize,
    hasher: RandomState,
    /// What the samples get whose keys are remembered: the same bytes of another sender are another key.
    senders: Vec<DefaultTags>,
    /// The one whose bytes come now.
    sender: u32,
    /// By hash. The key itself is compared too: of two keys with one hash the later is remembered.
    index: AHashMap<u64, u32>,
    entries: Vec<Entry<T>>,
    /// The key that was asked for last.
    last: u32,
}

#[derive(Debug)]
struct Entry<T> {
    sender: u32,
    key: Box<[u8]>,
    /// What was asked for after this, the last time.
    next: u32,
    meaning: T,
}

impl<T> Keys<T> {
    /// Takes about `bytes_max` of memory at most.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            turned_away: 0,
            hasher: RandomState::new(),
            senders: vec![DefaultTags::default()],
            sender: 0,
            index: AHashMap::new(),
            entries: Vec::new(),
            last: NONE,
        }
    }

    /// What comes now is of a sender whose samples get `tags` where they lack them.
    pub fn serve(&mut self, tags: &DefaultTags) {
        let known = self.senders.iter().position(|known| known == tags);
        let at = known.unwrap_or_else(|| {
            if self.senders.len() >= SENDERS_MAX {
                self.forget();
                self.senders.clear();
            }
            self.senders.push(tags.clone());
            self.senders.len() - 1
        });
        self.sender = u32::try_from(at).unwrap_or(NONE);
    }

    /// Of the sender whose bytes come now.
    pub fn tags(&self) -> &DefaultTags {
        &self.senders[self.sender as usize]
    }

    /// The key that followed the last one the last time. Whether it does so again is for the caller to see, and to
    /// say by [`Keys::follow`].
    pub fn foreseen(&self) -> Option<(At, &[u8])> {
        let next = self.entries.get(self.last as usize)?.next;
        let entry = self.entries.get(next as usize).filter(|entry| entry.sender == self.sender)?;
        Some((At(next), &entry.key))
    }

    pub fn find(&self, key: &[u8]) -> Option<At> {
        let at = *self.index.get(&self.hash(key))?;
        let entry = self.entries.get(at as usize)?;
        (entry.sender == self.sender && *entry.key == *key).then_some(At(at))
    }

    /// `at` is the key that is asked for now.
    pub fn follow(&mut self, at: At) {
        if let Some(last) = self.entries.get_mut(self.last as usize) {
            last.next = at.0;
        }
        self.last = at.0;
    }

    /// The raw bytes of a key; as [`Keys::meaning`].
    pub fn key(&self, at: At) -> Option<&[u8]> {
        self.entries.get(at.0 as usize).map(|entry| &*entry.key)
    }

    /// `None` after everything was forgotten, which only [`Keys::insert`] and [`Keys::make_room`] do.
    pub fn meaning(&self, at: At) -> Option<&T> {
        self.entries.get(at.0 as usize).map(|entry| &entry.meaning)
    }

    pub fn meaning_mut(&mut self, at: At) -> Option<&mut T> {
        self.entries.get_mut(at.0 as usize).map(|entry| &mut entry.meaning)
    }

    /// Remembers what `key` means, if there is room and the key is not too long.
    pub fn insert(&mut self, key: &[u8], meaning: T) -> Option<At> {
        // An entry of the map takes 12 bytes and the map is at least half full; a block of memory has a head.
        if key.len() > KEY_BYTES_MAX || !self.make_room(key.len() + size_of::<Entry<T>>() + 24 + 16) {
            return None;
        }
        let at = u32::try_from(self.entries.len()).ok().filter(|at| *at != NONE)?;
        self.index.insert(self.hash(key), at);
        self.entries.push(Entry { sender: self.sender, key: key.into(), next: NONE, meaning });
        Some(At(at))
    }

    /// Counts so much more memory, if there is room for it.
    pub fn make_room(&mut self, bytes: usize) -> bool {
        if self.bytes + bytes <= self.bytes_max {
            self.bytes += bytes;
            return true;
        }
        self.turned_away += 1;
        if self.turned_away > TURNED_AWAY_MAX * self.entries.len() {
            self.forget();
        }
        false
    }

    fn forget(&mut self) {
        self.index.clear();
        self.entries.clear();
        (self.bytes, self.turned_away, self.last) = (0, 0, NONE);
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one((self.sender, key))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The memories of one database's decoders. The one that was used last is handed out first, because it is the fullest.
#[derive(Debug)]
pub struct Memories<M> {
    /// For each of them and each format.
    bytes_max: usize,
    /// Makes a memory that takes at most about this many bytes for each format.
    make: fn(usize) -> M,
    resting: Arc<Mutex<Resting<M>>>,
}

impl<M> Clone for Memories<M> {
    fn clone(&self) -> Self {
        Self { bytes_max: self.bytes_max, make: self.make, resting: Arc::clone(&self.resting) }
    }
}

#[derive(Debug)]
struct Resting<M> {
    memories: Vec<M>,
    made: usize,
}

impl<M> Memories<M> {
    /// Together they take about `bytes_max` at most for each format.
    pub fn new(bytes_max: usize, make: fn(usize) -> M) -> Self {
        let resting = Resting { memories: Vec::new(), made: 0 };
        Self { bytes_max: bytes_max / MEMORIES_MAX, make, resting: Arc::new(Mutex::new(resting)) }
    }

    /// A memory that no other caller has; an empty one without room if all are in use.
    pub fn take(&self) -> Taken<'_, M> {
        let mut resting = self.lock();
        let memory = resting.memories.pop();
        let made = memory.is_none() && resting.made < MEMORIES_MAX;
        resting.made += usize::from(made);
        drop(resting);
        let kept = made || memory.is_some();
        let bytes_max = if kept { self.bytes_max } else { 0 };
        Taken { memories: self, memory: Some(memory.unwrap_or_else(|| (self.make)(bytes_max))), kept }
    }

    /// The sum of `bytes` of each that nobody works with at this moment.
    pub fn resting_bytes(&self, bytes: impl Fn(&M) -> usize) -> usize {
        self.lock().memories.iter().map(bytes).sum()
    }

    /// No code panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, Resting<M>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A memory that goes back when it is dropped.
#[derive(Debug)]
pub struct Taken<'a, M> {
    memories: &'a Memories<M>,
    /// There until it is dropped.
    memory: Option<M>,
    kept: bool,
}

impl<M> Deref for Taken<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.memory.as_ref().expect("only drop takes it")
    }
}

impl<M> DerefMut for Taken<'_, M> {
    fn deref_mut(&mut self) -> &mut M {
        self.memory.as_mut().expect("only drop takes it")
    }
}

impl<M> Drop for Taken<'_, M> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take().filter(|_| self.kept) {
            self.memories.lock().memories.push(memory);
        }
    }
}
