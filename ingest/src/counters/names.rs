//! The names that scopes count under, each with its kind and documentation: a number everywhere else.

use std::sync::Arc;

use ahash::RandomState;
use telem_engine::{NumberTable, PagedTable};

use super::{COUNTER_NAMES_MAX, CounterRefusal};
use crate::decode::proxy::{COUNTER_NAME_BYTES_MAX, CounterKind};

/// Documentations that may be of no name any more before anybody looks.
const IDLE_DOCS_MAX: usize = 1_024;

/// A documentation among those of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DocNumber(u32);

#[derive(Debug)]
pub struct NameEntry {
    pub text: Arc<str>,
    pub kind: CounterKind,
    /// The first that anybody said.
    pub doc: DocNumber,
    /// How often in a row no lane had it when that was looked at.
    pub idle_looks: u8,
    /// It left, and another one may take its place.
    is_free: bool,
}

/// What names do that were not held for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleNames {
    Leave,
    /// There is no room to note who left.
    Stay,
}

#[derive(Debug, Default)]
pub struct CounterNames {
    entries: PagedTable<NameEntry>,
    numbers: NumberTable,
    hasher: RandomState,
    free: Vec<u32>,
    docs: DocTable,
}

impl CounterNames {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn entry(&self, number: u32) -> &NameEntry {
        &self.entries[number as usize]
    }

    pub fn text(&self, number: u32) -> &Arc<str> {
        &self.entry(number).text
    }

    /// The same hash for a name as long as the table is there.
    pub fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(name)
    }

    /// That of the name with this number.
    pub fn hash_of(&self, number: u32) -> u64 {
        self.hash(self.text(number).as_bytes())
    }

    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.numbers.find(self.hash(name), |number| self.entries[number as usize].text.as_bytes() == name)
    }

    /// The number of a name, which is new if it must be.
    pub fn number(&mut self, name: &str, kind: CounterKind) -> Result<u32, CounterRefusal> {
        if let Some(number) = self.find(name.as_bytes()) {
            return Ok(number);
        }
        if name.len() > COUNTER_NAME_BYTES_MAX {
            return Err(CounterRefusal::LongName { found: name.len() });
        }
        let entry = NameEntry { text: name.into(), kind, doc: DocNumber::default(), idle_looks: 0, is_free: false };
        let number = match self.free.pop() {
            Some(free) => {
                self.entries[free as usize] = entry;
                free
            }
            None if self.entries.len() >= COUNTER_NAMES_MAX => return Err(CounterRefusal::ManyNames),
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).map_err(|_| CounterRefusal::ManyNames)?
            }
        };
        self.enter(number);
        Ok(number)
    }

    fn enter(&mut self, number: u32) {
        let Self { entries, numbers, hasher, .. } = self;
        let hash = |number: u32| hasher.hash_one(entries[number as usize].text.as_bytes());
        numbers.insert(hash(number), number, hash);
    }

    /// Lets names leave that are not held when that was so `looks` times in a row, unless they stay; those that left, each
    /// with the hash of its name.
    pub fn let_idle_go(&mut self, is_held: &[bool], looks: u8, idle: IdleNames) -> Vec<(u32, u64)> {
        let mut gone = Vec::new();
        for (at, is_held) in is_held.iter().enumerate() {
            let entry = &mut self.entries[at];
            if entry.is_free {
                continue;
            }
            entry.idle_looks = if *is_held { 0 } else { entry.idle_looks.saturating_add(1) };
            if entry.idle_looks >= looks && idle == IdleNames::Leave {
                let text = std::mem::take(&mut entry.text);
                (entry.doc, entry.idle_looks, entry.is_free) = (DocNumber::default(), 0, true);
                let number = u32::try_from(at).unwrap_or(u32::MAX);
                gone.push((number, self.hasher.hash_one(text.as_bytes())));
                self.free.push(number);
            }
        }
        if !gone.is_empty() {
            self.numbers = NumberTable::default();
            for number in (0..).take(self.entries.len()) {
                if !self.entry(number).is_free {
                    self.enter(number);
                }
            }
        }
        gone
    }

    /// What names and documentations take in memory, with room for more.
    pub fn bytes(&self) -> usize {
        let text = |text: &Arc<str>| 2 * size_of::<usize>() + text.len();
        let names = self.entries.iter().map(|entry| text(&entry.text)).sum::<usize>();
        let docs = self.docs.texts.iter().map(|doc| size_of::<Arc<str>>() + text(doc)).sum::<usize>();
        self.entries.bytes() + self.numbers.bytes() + names + self.docs.numbers.bytes() + docs
    }

    pub fn doc(&self, doc: DocNumber) -> &Arc<str> {
        &self.docs.texts[doc.0 as usize]
    }

    /// The number of a documentation, which is new if it must be; and the first of its name, if that has none yet.
    pub fn describe(&mut self, name: u32, doc: &str) -> DocNumber {
        let doc = self.doc_number(doc);
        let entry = &mut self.entries[name as usize];
        if entry.doc == DocNumber::default() {
            entry.doc = doc;
        }
        doc
    }

    pub fn doc_number(&mut self, doc: &str) -> DocNumber {
        self.docs.number(doc)
    }

    /// How many documentations there are.
    pub fn docs(&self) -> usize {
        self.docs.texts.len() - self.docs.free.len()
    }

    /// Whether it is time to ask which of them are said of anything.
    pub fn has_many_docs(&self) -> bool {
        self.docs() > self.docs.usual
    }

    /// Forgets documentations that are neither these nor the first of a name.
    pub fn keep_docs(&mut self, held: impl Iterator<Item = DocNumber>) {
        let mut is_held = vec![false; self.docs.texts.len()];
        for doc in held.chain(self.entries.iter().map(|entry| entry.doc)) {
            is_held[doc.0 as usize] = true;
        }
        self.docs.keep(&is_held);
    }
}

/// Documentations, each once: many names have the same.
#[derive(Debug)]
struct DocTable {
    /// By number; the first one is empty.
    texts: Vec<Arc<str>>,
    numbers: NumberTable,
    hasher: RandomState,
    free: Vec<u32>,
    /// More of them may be worth a look at which are needed.
    usual: usize,
}

impl Default for DocTable {
    fn default() -> Self {
        Self {
            texts: vec![Arc::default()],
            numbers: NumberTable::default(),
            hasher: RandomState::default(),
            free: Vec::new(),
            usual: IDLE_DOCS_MAX,
        }
    }
}

impl DocTable {
    fn number(&mut self, doc: &str) -> DocNumber {
        if doc.is_empty() {
            return DocNumber::default();
        }
        let hash = self.hasher.hash_one(doc);
        if let Some(known) = self.numbers.find(hash, |number| *self.texts[number as usize] == *doc) {
            return DocNumber(known);
        }
        let number = match self.free.pop() {
            Some(free) => {
                self.texts[free as usize] = doc.into();
                free
            }
            None => {
                self.texts.push(doc.into());
                // There are not more of them than cells and names, which have 32 bits for theirs.
                u32::try_from(self.texts.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.enter(number);
        DocNumber(number)
    }

    fn enter(&mut self, number: u32) {
        let Self { texts, numbers, hasher, .. } = self;
        let hash = |number: u32| hasher.hash_one(&*texts[number as usize]);
        numbers.insert(hash(number), number, hash);
    }

    fn keep(&mut self, is_held: &[bool]) {
        self.numbers = NumberTable::default();
        self.free.clear();
        for number in (1..).take(self.texts.len() - 1) {
            if is_held[number as usize] {
                self.enter(number);
            } else {
                self.texts[number as usize] = Arc::clone(&self.texts[0]);
                self.free.push(number);
            }
        }
        self.usual = 2 * (self.texts.len() - self.free.len()) + IDLE_DOCS_MAX;
    }
}
