//! One sum, or one lane: its numbers, and where they are in the sums above it.

use std::sync::Arc;

use ahash::AHashMap;
use telem_engine::{NumberTable, PagedTable};
use tokio::sync::Notify;

use super::cell::{CellNumber, CounterCell, StoredCell};
use super::names::DocNumber;
use super::{LaneTags, ScopeId};

/// No row: the sum is gone.
pub const NO_ROW: u32 = u32::MAX;

#[derive(Debug, Default)]
pub struct CounterScope {
    /// In the order in which they came.
    pub cells: PagedTable<CounterCell>,
    /// By name: rows of those that are not at the place of their name's number, where all are until names leave or come
    /// in another order.
    rows: NumberTable,
    /// By row, where it is stored.
    pub stored: PagedTable<StoredCell>,
    /// Of a sum: numbers whose names left, by a hash of the name. Two of the two million names that there may be have
    /// one hash with a probability of one in ten million.
    pub left: AHashMap<u64, CellNumber>,
    /// What every value of it is added to, too.
    pub above: Vec<ScopeId>,
    /// The rows of its names there: row after row, one for each of `above`. Empty while they are the same as here.
    rows_above: Vec<u32>,
    pub source: u32,
    /// `None` of what is not stored.
    pub tags: Option<Arc<LaneTags>>,
    /// Rows that changed since they were stored. One whose cell says otherwise is there in vain.
    pub changed: Vec<u32>,
    /// Of these, rows that changed since they were kept.
    pub unkept: Vec<u32>,
    /// Told when there is the first of them.
    pub signal: Arc<Notify>,
}

impl CounterScope {
    /// One that is added to these, too.
    pub fn below(above: &[ScopeId], source: u32) -> Self {
        Self { above: above.to_vec(), source, ..Self::default() }
    }

    /// The same with samples of its own.
    #[must_use]
    pub fn stored(self, tags: LaneTags, signal: &Arc<Notify>) -> Self {
        Self { tags: Some(Arc::new(tags)), signal: Arc::clone(signal), ..self }
    }

    pub fn row(&self, name: u32) -> Option<u32> {
        if self.cells.get(name as usize).is_some_and(|cell| cell.name == name) {
            return Some(name);
        }
        self.rows.find(hash(name), |row| self.cells[row as usize].name == name)
    }

    /// The row of a name, which is made like `like` if there is none.
    pub fn row_of(&mut self, name: u32, doc: DocNumber, like: &CellNumber) -> u32 {
        if let Some(row) = self.row(name) {
            return row;
        }
        self.cells.push(CounterCell { name, doc, number: like.emptied() });
        if self.tags.is_some() {
            self.stored.push(StoredCell::default());
        }
        self.enter_last()
    }

    /// Makes the last cell known.
    fn enter_last(&mut self) -> u32 {
        // There are no more rows than names, whose numbers fit.
        let row = u32::try_from(self.cells.len() - 1).unwrap_or(NO_ROW);
        let Self { rows, cells, .. } = self;
        if cells[row as usize].name != row {
            let hash_of = |row: u32| hash(cells[row as usize].name);
            rows.insert(hash_of(row), row, hash_of);
        }
        row
    }

    pub fn is_sum(&self) -> bool {
        self.tags.is_none() && self.above.is_empty()
    }

    /// Where a row is in the sum that is `at` that place of `above`.
    #[inline]
    pub fn row_above(&self, row: u32, at: usize) -> u32 {
        if self.rows_above.is_empty() {
            return row;
        }
        self.rows_above.get(row as usize * self.above.len() + at).copied().unwrap_or(NO_ROW)
    }

    /// Says where the last row is in the sums above.
    pub fn link_last(&mut self, rows: &[u32]) {
        // There are no more rows than names, whose numbers fit.
        let last = u32::try_from(self.cells.len().saturating_sub(1)).unwrap_or(NO_ROW);
        if self.rows_above.is_empty() {
            if rows.iter().all(|row| *row == last) {
                return;
            }
            self.rows_above = (0..last).flat_map(|row| rows.iter().map(move |_| row)).collect();
        }
        self.rows_above.extend_from_slice(rows);
    }

    /// Says it of all rows.
    pub fn link(&mut self, rows: Vec<u32>) {
        let sums = self.above.len().max(1);
        let is_same = rows.chunks(sums).zip(0..).all(|(above, row)| above.iter().all(|above| *above == row));
        self.rows_above = if is_same { Vec::new() } else { rows };
    }

    /// Gives back room that is there for what comes next.
    pub fn shrink(&mut self) {
        self.cells.shrink();
        self.stored.shrink();
        self.rows_above.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.unkept.shrink_to_fit();
    }

    /// Of a sum: rows of these names leave, and their numbers stay.
    pub fn let_go(&mut self, gone: &AHashMap<u32, u64>) {
        if !self.cells.iter().any(|cell| gone.contains_key(&cell.name)) {
            return;
        }
        self.rows = NumberTable::default();
        for cell in std::mem::take(&mut self.cells) {
            match gone.get(&cell.name) {
                Some(hash) => {
                    self.left.insert(*hash, cell.number);
                }
                None => {
                    self.cells.push(cell);
                    self.enter_last();
                }
            }
        }
    }

    /// A row is of a name that may have left before.
    pub fn come_back(&mut self, row: u32, hash: u64) {
        let cell = &mut self.cells[row as usize];
        if let Some(left) = self.left.remove(&hash)
            && left.value().kind() == cell.number.value().kind()
        {
            cell.number = left;
        }
    }

    /// What its numbers take, with room for more.
    pub fn bytes(&self) -> usize {
        let lists = self.rows_above.capacity() + self.changed.capacity() + self.unkept.capacity();
        let left = self.left.capacity() * (size_of::<(u64, CellNumber)>() + 1);
        self.cells.bytes() + self.stored.bytes() + self.rows.bytes() + lists * size_of::<u32>() + left
    }

    pub fn counter(&self, name: u32) -> Option<f64> {
        match self.cells[self.row(name)? as usize].number {
            CellNumber::Counter(value) => Some(value),
            CellNumber::Gauge(_) => None,
        }
    }

    #[inline]
    pub fn change(&mut self, row: u32, change: impl FnOnce(&mut CellNumber)) {
        change(&mut self.cells[row as usize].number);
        if let Some(stored) = self.stored.get(row as usize)
            && !(stored.is_changed && stored.is_unkept)
        {
            self.note_change(row);
        }
    }

    pub fn note_change(&mut self, row: u32) {
        let stored = &mut self.stored[row as usize];
        if !std::mem::replace(&mut stored.is_changed, true) {
            self.changed.push(row);
        }
        if !std::mem::replace(&mut stored.is_unkept, true) {
            if self.unkept.is_empty() {
                self.signal.notify_one();
            }
            self.unkept.push(row);
        }
    }
}

/// Numbers of names are counted up: the upper half of this product tells them apart as the lower could not.
fn hash(name: u32) -> u64 {
    (u64::from(name).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32
}
