//! The live table: counters and gauges that programs keep by name, summed in several scopes at once.
//!
//! A value is added in the *lane* that it came by and in every scope above that lane, under one lock, so that all of
//! them always agree. A lane is what one job of this node counts, say; above it are the node and everything. Scopes hold
//! numbers only: a name and its documentation stand in memory once. Lanes that are stored remember which of their
//! numbers changed, and [`CounterStore`] writes these as samples of the running totals. Until then it keeps them in a
//! [`tail`], which outlives this process.

mod cell;
mod feed;
pub mod store;
pub mod tail;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use telem_engine::{Clock, SeriesId, Timestamp};
use tokio::sync::Notify;

use self::cell::{CellNumber, CounterCell};
pub use self::cell::{CounterValue, GaugeValue};
pub use self::feed::{Feed, FeedEvent};
pub use self::store::{CounterStore, StoredNames};
use crate::decode::proxy::label::group_of;
use crate::decode::proxy::{COUNTER_DOC_BYTES_MAX, COUNTER_NAME_BYTES_MAX, CounterKind};
use crate::default_tags::DefaultTags;

/// Most names that a table knows.
pub const COUNTER_NAMES_MAX: usize = 2_000_000;
/// Most scopes above a lane.
const SCOPES_ABOVE_MAX: usize = 3;
/// Most readings that are copied under one lock.
const READINGS_AT_ONCE: usize = 4_096;

/// One sum, or one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopeId(u32);

/// Who sets gauges: of one source the last value counts, over several sources least and greatest and the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GaugeSource(pub u32);

impl GaugeSource {
    /// The clients of this server.
    pub const OWN: Self = Self(0);
}

/// What of a lane counts no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// Its gauges, which are about the present.
    Gauges,
    /// Its counters, too.
    All,
}

/// The tags that tell the series of a lane from those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneTags {
    pub default: DefaultTags,
    /// In the order of keys.
    pub more: Vec<(Arc<str>, Arc<str>)>,
    /// What stands before the names of its metrics, where others store the same under the plain ones.
    pub prefix: &'static str,
}

/// Why a message changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CounterRefusal {
    #[error("it is no message of Metric Proxy: {0}")]
    Malformed(String),
    #[error("it has more than {} bytes", crate::decode::proxy::MESSAGE_BYTES_MAX)]
    LongMessage,
    #[error("'{name}' was not declared on this job")]
    Undeclared { name: String },
    #[error("'{name}' is a {}, and a value of a {} was sent", is.name(), sent.name())]
    OtherKind { name: String, is: CounterKind, sent: CounterKind },
    #[error("a name has {found} bytes; at most {COUNTER_NAME_BYTES_MAX} are taken")]
    LongName { found: usize },
    #[error("the documentation of '{name}' has {found} bytes; at most {COUNTER_DOC_BYTES_MAX} are taken")]
    LongDoc { name: String, found: usize },
    #[error("there are {COUNTER_NAMES_MAX} names; no more are taken")]
    ManyNames,
    #[error("the job is '{id}': {why}")]
    Job { id: String, why: &'static str },
}

impl CounterRefusal {
    /// The kinds of reasons, as a metric counts them.
    pub const REASONS: [&'static str; 8] =
        ["malformed", "long_message", "undeclared", "other_kind", "long_name", "long_doc", "many_names", "job"];

    /// The place of its kind among [`CounterRefusal::REASONS`].
    pub fn reason(&self) -> usize {
        match self {
            Self::Malformed(_) => 0,
            Self::LongMessage => 1,
            Self::Undeclared { .. } => 2,
            Self::OtherKind { .. } => 3,
            Self::LongName { .. } => 4,
            Self::LongDoc { .. } => 5,
            Self::ManyNames => 6,
            Self::Job { .. } => 7,
        }
    }
}

/// One counter or gauge of a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterReading {
    /// With its labels, as its client wrote it.
    pub name: Arc<str>,
    pub doc: Arc<str>,
    pub value: CounterValue,
}

/// The table.
#[derive(Default)]
pub struct CounterTable {
    rows: Mutex<CounterRows>,
    /// Some number is to be kept.
    unkept: Arc<Notify>,
}

#[derive(Default)]
struct CounterRows {
    numbers: AHashMap<Arc<str>, u32>,
    names: Vec<NameEntry>,
    /// Places of names that left.
    free_names: Vec<u32>,
    /// By number; `None` where one was closed.
    scopes: Vec<Option<CounterScope>>,
    no_doc: Arc<str>,
    /// The time of the last samples, and of the last values that were kept.
    stored_at: Option<Timestamp>,
}

struct NameEntry {
    text: Arc<str>,
    kind: CounterKind,
    /// The first that anybody said.
    doc: Arc<str>,
    /// How often in a row no lane had it when that was looked at.
    idle_looks: u8,
}

#[derive(Default)]
struct CounterScope {
    rows: AHashMap<u32, u32>,
    cells: Vec<CounterCell>,
    /// Of a sum: numbers whose names left, by a hash of the name. Two of the two million names that there may be have
    /// one hash with a probability of one in ten million.
    left: AHashMap<u64, CellNumber>,
    /// What every value of it is added to, too.
    above: Vec<ScopeId>,
    /// Counts changes of `above`, after which rows that were looked up count no more.
    edition: u32,
    source: u32,
    /// `None` of a sum.
    tags: Option<Arc<LaneTags>>,
    /// Rows that changed since they were stored. One whose cell says otherwise is there in vain.
    changed: Vec<u32>,
    /// Of these, rows that changed since they were kept.
    unkept: Vec<u32>,
    /// Told when there is the first of them.
    signal: Arc<Notify>,
}

impl fmt::Debug for CounterTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("CounterTable").field("names", &inner.names.len()).field("scopes", &inner.scopes.len()).finish()
    }
}

impl CounterTable {
    /// A sum, at first of nothing.
    pub fn open_sum(&self) -> ScopeId {
        self.lock().open(CounterScope::default())
    }

    /// A lane whose values are added to the sums `above`, and stored as samples with `tags`.
    pub fn open_lane(&self, tags: LaneTags, source: GaugeSource, above: &[ScopeId]) -> ScopeId {
        debug_assert!(above.len() <= SCOPES_ABOVE_MAX, "a lane is below three sums at most");
        let scope = CounterScope {
            above: above.to_vec(),
            tags: Some(Arc::new(tags)),
            source: source.0,
            signal: Arc::clone(&self.unkept),
            ..CounterScope::default()
        };
        self.lock().open(scope)
    }

    /// A lane that is not stored: a part of the sums `above`.
    pub fn open_part(&self, source: GaugeSource, above: &[ScopeId]) -> ScopeId {
        debug_assert!(above.len() <= SCOPES_ABOVE_MAX, "a lane is below three sums at most");
        self.lock().open(CounterScope { above: above.to_vec(), source: source.0, ..CounterScope::default() })
    }

    /// Puts a sum above a lane, with everything that the lane holds so far.
    pub fn put_above(&self, lane: ScopeId, sum: ScopeId) {
        let mut inner = self.lock();
        let Some(scope) = inner.scope(lane) else { return };
        if scope.above.contains(&sum) || scope.above.len() >= SCOPES_ABOVE_MAX {
            return;
        }
        let source = scope.source;
        let held: Vec<_> = scope.cells.iter().map(|cell| (cell.name, cell.doc.clone(), cell.number.clone())).collect();
        if let Some(scope) = inner.scope_mut(lane) {
            scope.above.push(sum);
            scope.edition += 1;
        }
        let Some(sum) = inner.scope_mut(sum) else { return };
        for (name, doc, number) in held {
            let row = sum.row_of(name, doc, &number);
            sum.cells[row as usize].number.merge(source, &number);
        }
    }

    /// Lets names leave that no lane has any more, when that was so `looks` times in a row; how many left. In the sums
    /// their numbers stay: they are there when somebody asks for one of these names, and go on when a lane gets it.
    pub fn let_idle_names_go(&self, looks: u8) -> usize {
        self.lock().let_idle_names_go(looks)
    }

    /// Forgets a scope. What its values were added to stays as it is.
    pub fn close(&self, scope: ScopeId) {
        let closed = self.lock().scopes.get_mut(scope.0 as usize).and_then(Option::take);
        // Its memory is given back without the lock.
        drop(closed);
    }

    /// Makes a name known in a lane and above it. One that is known stays as it is, and so does its kind.
    ///
    /// # Errors
    /// For a name or documentation that is too long, and when there are too many.
    pub fn declare(
        &self,
        lane: ScopeId,
        name: &str,
        doc: &str,
        kind: CounterKind,
        value: f64,
    ) -> Result<(), CounterRefusal> {
        self.lock().declare(lane, name, doc, kind, value)
    }

    /// Adds to a counter, or sets a gauge, in a lane and above it.
    ///
    /// # Errors
    /// When the lane does not know the name, or it is of the other kind.
    pub fn update(&self, lane: ScopeId, name: &str, kind: CounterKind, value: f64) -> Result<(), CounterRefusal> {
        self.lock().update(lane, name, kind, value)
    }

    /// Sets a gauge of a lane whose source tells least, greatest, hits and total itself.
    ///
    /// # Errors
    /// As [`CounterTable::update`].
    pub fn set_gauge(&self, lane: ScopeId, name: &str, value: GaugeValue) -> Result<(), CounterRefusal> {
        self.lock().set_gauge(lane, name, value)
    }

    /// Gives counters and gauges of a lane these values, and changes what is above it by as much. What it does not know
    /// is declared. What was refused comes back.
    pub fn tell(&self, lane: ScopeId, readings: &[CounterReading]) -> Vec<CounterRefusal> {
        let mut refusals = Vec::new();
        for block in readings.chunks(READINGS_AT_ONCE) {
            let mut inner = self.lock();
            refusals.extend(block.iter().filter_map(|reading| inner.tell(lane, reading).err()));
        }
        refusals
    }

    /// Takes the values of a lane out of what is above it: of its gauges, or of its counters too.
    pub fn withdraw(&self, lane: ScopeId, what: Withdrawal) {
        let mut inner = self.lock();
        let Some(scope) = inner.scope(lane) else { return };
        let gone: Vec<CounterReading> = scope
            .cells
            .iter()
            .filter_map(|cell| {
                let reading = inner.reading(cell);
                match (reading.value, what) {
                    (CounterValue::Gauge(_), _) => {
                        Some(CounterReading { value: CounterValue::Gauge(GaugeValue::default()), ..reading })
                    }
                    (CounterValue::Counter(_), Withdrawal::All) => {
                        Some(CounterReading { value: CounterValue::Counter(0.0), ..reading })
                    }
                    (CounterValue::Counter(_), Withdrawal::Gauges) => None,
                }
            })
            .collect();
        for reading in gone {
            // It is known, and of its kind.
            let _ = inner.tell(lane, &reading);
        }
    }

    /// Gives a counter of `sum` this value, by what that takes in a `lane` below it; and its documentation there.
    ///
    /// # Errors
    /// As [`CounterTable::update`].
    pub fn replace(
        &self,
        lane: ScopeId,
        sum: ScopeId,
        name: &str,
        doc: &str,
        value: f64,
    ) -> Result<(), CounterRefusal> {
        self.lock().replace(lane, sum, name, doc, value)
    }

    /// One reading of a scope.
    pub fn find(&self, scope: ScopeId, name: &str) -> Option<CounterReading> {
        let inner = self.lock();
        let scope = inner.scope(scope)?;
        if let Some(row) = inner.numbers.get(name).and_then(|number| scope.rows.get(number)) {
            return Some(inner.reading(&scope.cells[*row as usize]));
        }
        let number = scope.left.get(&inner.hash(name))?;
        Some(CounterReading { name: name.into(), doc: Arc::clone(&inner.no_doc), value: number.value() })
    }

    /// The first documentation that a name got, whatever was done with it since.
    pub fn first_doc(&self, name: &str) -> Option<Arc<str>> {
        let inner = self.lock();
        inner.numbers.get(name).map(|number| Arc::clone(&inner.names[*number as usize].doc))
    }

    /// Whether a scope knows a name with this in front of its labels.
    pub fn knows_group(&self, scope: ScopeId, group: &str) -> bool {
        let inner = self.lock();
        let Some(scope) = inner.scope(scope) else { return false };
        scope.cells.iter().any(|cell| group_of(&inner.names[cell.name as usize].text) == group)
    }

    /// How many names a scope has.
    pub fn len(&self, scope: ScopeId) -> usize {
        self.lock().scope(scope).map_or(0, |scope| scope.cells.len())
    }

    pub fn is_empty(&self, scope: ScopeId) -> bool {
        self.len(scope) == 0
    }

    /// Readings of a scope from the `first` on in the order in which it met them, as many as are copied at once; none
    /// behind the last. Values that come between two calls may be in one and not in the other.
    pub fn readings(&self, scope: ScopeId, first: usize) -> Vec<CounterReading> {
        let inner = self.lock();
        let Some(scope) = inner.scope(scope) else { return Vec::new() };
        scope.cells.iter().skip(first).take(READINGS_AT_ONCE).map(|cell| inner.reading(cell)).collect()
    }

    /// All readings of a scope.
    pub fn all(&self, scope: ScopeId) -> Vec<CounterReading> {
        let mut all = Vec::with_capacity(self.len(scope));
        loop {
            let more = self.readings(scope, all.len());
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CounterRows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CounterRows {
    fn open(&mut self, scope: CounterScope) -> ScopeId {
        if let Some(free) = self.scopes.iter().position(Option::is_none) {
            self.scopes[free] = Some(scope);
            return ScopeId(u32::try_from(free).unwrap_or(u32::MAX));
        }
        self.scopes.push(Some(scope));
        ScopeId(u32::try_from(self.scopes.len() - 1).unwrap_or(u32::MAX))
    }

    fn scope(&self, id: ScopeId) -> Option<&CounterScope> {
        self.scopes.get(id.0 as usize)?.as_ref()
    }

    /// The lane of a change, unless it was closed meanwhile: another one may have its number then.
    fn scope_of(&mut self, change: &StoredChange) -> Option<&mut CounterScope> {
        let scope = self.scopes.get_mut(change.lane.0 as usize)?.as_mut()?;
        let is_same = scope.tags.as_ref().is_some_and(|tags| Arc::ptr_eq(tags, &change.tags));
        (is_same && (change.row as usize) < scope.cells.len()).then_some(scope)
    }

    fn scope_mut(&mut self, id: ScopeId) -> Option<&mut CounterScope> {
        self.scopes.get_mut(id.0 as usize)?.as_mut()
    }

    fn reading(&self, cell: &CounterCell) -> CounterReading {
        let name = Arc::clone(&self.names[cell.name as usize].text);
        CounterReading { name, doc: Arc::clone(&cell.doc), value: cell.number.value() }
    }

    fn hash(&self, name: &str) -> u64 {
        self.numbers.hasher().hash_one(name)
    }

    fn let_idle_names_go(&mut self, looks: u8) -> usize {
        let mut is_held = vec![false; self.names.len()];
        for free in &self.free_names {
            is_held[*free as usize] = true;
        }
        for cell in self.scopes.iter().flatten().filter(|scope| !scope.is_sum()).flat_map(|scope| &scope.cells) {
            is_held[cell.name as usize] = true;
        }
        let has_room = self.scopes.iter().flatten().all(|scope| scope.left.len() < COUNTER_NAMES_MAX);
        let mut gone: AHashMap<u32, u64> = AHashMap::default();
        for (number, is_held) in is_held.into_iter().enumerate() {
            let entry = &mut self.names[number];
            entry.idle_looks = if is_held { 0 } else { entry.idle_looks.saturating_add(1) };
            if entry.idle_looks >= looks && has_room {
                let text = std::mem::take(&mut entry.text);
                (entry.doc, entry.idle_looks) = (Arc::clone(&self.no_doc), 0);
                self.numbers.remove(&text);
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                gone.insert(number, self.numbers.hasher().hash_one(&*text));
                self.free_names.push(number);
            }
        }
        if gone.is_empty() {
            return 0;
        }
        for scope in self.scopes.iter_mut().flatten() {
            match scope.is_sum() {
                true => scope.let_go(&gone),
                // Rows above it have moved.
                false => scope.edition += 1,
            }
        }
        gone.len()
    }

    /// The number of a name, which is new if it must be.
    fn number(&mut self, name: &str, kind: CounterKind) -> Result<u32, CounterRefusal> {
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        if name.len() > COUNTER_NAME_BYTES_MAX {
            return Err(CounterRefusal::LongName { found: name.len() });
        }
        let text: Arc<str> = name.into();
        let entry = NameEntry { text: Arc::clone(&text), kind, doc: Arc::clone(&self.no_doc), idle_looks: 0 };
        let number = match self.free_names.pop() {
            Some(free) => {
                self.names[free as usize] = entry;
                free
            }
            None if self.names.len() >= COUNTER_NAMES_MAX => return Err(CounterRefusal::ManyNames),
            None => {
                self.names.push(entry);
                u32::try_from(self.names.len() - 1).map_err(|_| CounterRefusal::ManyNames)?
            }
        };
        self.numbers.insert(text, number);
        Ok(number)
    }

    fn above(&self, lane: ScopeId) -> Vec<ScopeId> {
        self.scope(lane).map(|scope| scope.above.clone()).unwrap_or_default()
    }

    fn declare(
        &mut self,
        lane: ScopeId,
        name: &str,
        doc: &str,
        kind: CounterKind,
        value: f64,
    ) -> Result<(), CounterRefusal> {
        if doc.len() > COUNTER_DOC_BYTES_MAX {
            return Err(CounterRefusal::LongDoc { name: name.to_owned(), found: doc.len() });
        }
        let number = self.number(name, kind)?;
        let kind = self.names[number as usize].kind;
        if self.scope(lane).is_some_and(|scope| scope.rows.contains_key(&number)) {
            return Ok(());
        }
        let doc: Arc<str> = if doc.is_empty() { Arc::clone(&self.no_doc) } else { doc.into() };
        let entry = &mut self.names[number as usize];
        if entry.doc.is_empty() {
            entry.doc = Arc::clone(&doc);
        }
        let (empty, hash) = (CellNumber::empty(kind), self.hash(name));
        for scope in std::iter::once(lane).chain(self.above(lane)) {
            if let Some(scope) = self.scope_mut(scope) {
                let row = scope.row_of(number, Arc::clone(&doc), &empty);
                scope.come_back(row, hash);
            }
        }
        if (kind == CounterKind::Counter && value != 0.0) || (kind == CounterKind::Gauge && !value.is_nan()) {
            self.update(lane, name, kind, value)?;
        }
        Ok(())
    }

    fn known(&self, lane: ScopeId, name: &str, kind: CounterKind) -> Result<u32, CounterRefusal> {
        let undeclared = || CounterRefusal::Undeclared { name: name.to_owned() };
        let number = *self.numbers.get(name).ok_or_else(undeclared)?;
        if !self.scope(lane).is_some_and(|scope| scope.rows.contains_key(&number)) {
            return Err(undeclared());
        }
        let is = self.names[number as usize].kind;
        if is != kind {
            return Err(CounterRefusal::OtherKind { name: name.to_owned(), is, sent: kind });
        }
        Ok(number)
    }

    fn update(&mut self, lane: ScopeId, name: &str, kind: CounterKind, value: f64) -> Result<(), CounterRefusal> {
        let number = self.known(lane, name, kind)?;
        let source = self.scope(lane).map_or(0, |scope| scope.source);
        for scope in std::iter::once(lane).chain(self.above(lane)) {
            let Some(scope) = self.scope_mut(scope) else { continue };
            let row = scope.row_of(number, Arc::default(), &CellNumber::empty(kind));
            scope.change(row, |cell| cell.take(source, value));
        }
        Ok(())
    }

    fn set_gauge(&mut self, lane: ScopeId, name: &str, value: GaugeValue) -> Result<(), CounterRefusal> {
        let number = self.known(lane, name, CounterKind::Gauge)?;
        let source = self.scope(lane).map_or(0, |scope| scope.source);
        for scope in std::iter::once(lane).chain(self.above(lane)) {
            let Some(scope) = self.scope_mut(scope) else { continue };
            let row = scope.row_of(number, Arc::default(), &CellNumber::empty(CounterKind::Gauge));
            scope.change(row, |cell| cell.set_gauge(source, value));
        }
        Ok(())
    }

    fn tell(&mut self, lane: ScopeId, reading: &CounterReading) -> Result<(), CounterRefusal> {
        let (name, kind) = (&*reading.name, reading.value.kind());
        let row = |inner: &Self| {
            let number = *inner.numbers.get(name)?;
            inner.scope(lane)?.rows.get(&number).copied()
        };
        if row(self).is_none() {
            let nothing = if kind == CounterKind::Counter { 0.0 } else { f64::NAN };
            self.declare(lane, name, &reading.doc, kind, nothing)?;
        }
        let number = self.known(lane, name, kind)?;
        let Some(known) = row(self).and_then(|row| Some(self.scope(lane)?.cells[row as usize].number.value())) else {
            return Ok(());
        };
        // What does not change is no sample.
        if known == reading.value {
            return Ok(());
        }
        let source = self.scope(lane).map_or(0, |scope| scope.source);
        for scope in std::iter::once(lane).chain(self.above(lane)) {
            let Some(scope) = self.scope_mut(scope) else { continue };
            let row = scope.row_of(number, Arc::default(), &CellNumber::empty(kind));
            match (reading.value, known) {
                (CounterValue::Gauge(gauge), _) if gauge.hits == 0.0 => {
                    // That it has no value any more is no sample either.
                    scope.cells[row as usize].number.set_gauge(source, gauge);
                }
                (CounterValue::Gauge(gauge), _) => scope.change(row, |cell| cell.set_gauge(source, gauge)),
                (CounterValue::Counter(value), CounterValue::Counter(before)) => {
                    scope.change(row, |cell| cell.move_counter(before, value));
                }
                (CounterValue::Counter(_), CounterValue::Gauge(_)) => {}
            }
        }
        Ok(())
    }

    fn replace(
        &mut self,
        lane: ScopeId,
        sum: ScopeId,
        name: &str,
        doc: &str,
        value: f64,
    ) -> Result<(), CounterRefusal> {
        let undeclared = || CounterRefusal::Undeclared { name: name.to_owned() };
        if !self.numbers.contains_key(name)
            && let Some(left) = self.scope(sum).and_then(|sum| sum.left.get(&self.hash(name)))
        {
            // It comes back with what it was.
            let kind = left.value().kind();
            self.declare(lane, name, doc, kind, if kind == CounterKind::Counter { 0.0 } else { f64::NAN })?;
        }
        let number = *self.numbers.get(name).ok_or_else(undeclared)?;
        let NameEntry { kind: is, .. } = self.names[number as usize];
        if is != CounterKind::Counter {
            return Err(CounterRefusal::OtherKind { name: name.to_owned(), is, sent: CounterKind::Counter });
        }
        let doc: Arc<str> = if doc.is_empty() { Arc::clone(&self.no_doc) } else { doc.into() };
        let of_lane = self.scope(lane).and_then(|scope| scope.counter(number)).unwrap_or(0.0);
        let row = |inner: &Self| inner.scope(sum).and_then(|sum| sum.rows.get(&number).copied());
        let before = row(self).and_then(|_| self.scope(sum)?.counter(number)).ok_or_else(undeclared)?;
        // Of what others counted the lane takes back as much as the difference is.
        let others = before - of_lane;
        let own = if others == 0.0 || !others.is_finite() { value } else { value - others };
        for scope in std::iter::once(lane).chain(self.above(lane)) {
            let number_of_scope = if scope == lane { own } else { value };
            let Some(scope) = self.scope_mut(scope) else { continue };
            let row = scope.row_of(number, Arc::clone(&doc), &CellNumber::empty(CounterKind::Counter));
            scope.cells[row as usize].doc = Arc::clone(&doc);
            scope.change(row, |cell| *cell = CellNumber::Counter(number_of_scope));
        }
        Ok(())
    }
}

impl CounterScope {
    /// The row of a name, which is made like `like` if there is none.
    fn row_of(&mut self, name: u32, doc: Arc<str>, like: &CellNumber) -> u32 {
        if let Some(row) = self.rows.get(&name) {
            return *row;
        }
        // There are no more rows than names, whose numbers fit.
        let row = u32::try_from(self.cells.len()).unwrap_or(u32::MAX);
        self.cells.push(CounterCell::new(name, doc, like.emptied()));
        self.rows.insert(name, row);
        row
    }

    fn is_sum(&self) -> bool {
        self.tags.is_none() && self.above.is_empty()
    }

    /// Of a sum: rows of these names leave, and their numbers stay.
    fn let_go(&mut self, gone: &AHashMap<u32, u64>) {
        if !self.cells.iter().any(|cell| gone.contains_key(&cell.name)) {
            return;
        }
        let cells = std::mem::take(&mut self.cells);
        self.rows = AHashMap::default();
        for cell in cells {
            match gone.get(&cell.name) {
                Some(hash) => {
                    self.left.insert(*hash, cell.number);
                }
                None => {
                    self.rows.insert(cell.name, u32::try_from(self.cells.len()).unwrap_or(u32::MAX));
                    self.cells.push(cell);
                }
            }
        }
    }

    /// A row is of a name that may have left before.
    fn come_back(&mut self, row: u32, hash: u64) {
        let cell = &mut self.cells[row as usize];
        if let Some(left) = self.left.remove(&hash)
            && left.value().kind() == cell.number.value().kind()
        {
            cell.number = left;
        }
    }

    fn counter(&self, name: u32) -> Option<f64> {
        match self.cells[*self.rows.get(&name)? as usize].number {
            CellNumber::Counter(value) => Some(value),
            CellNumber::Gauge(_) => None,
        }
    }

    #[inline]
    fn change(&mut self, row: u32, change: impl FnOnce(&mut CellNumber)) {
        let cell = &mut self.cells[row as usize];
        change(&mut cell.number);
        if self.tags.is_some() && !(cell.is_changed && cell.is_unkept) {
            self.note_change(row);
        }
    }

    fn note_change(&mut self, row: u32) {
        let cell = &mut self.cells[row as usize];
        if !std::mem::replace(&mut cell.is_changed, true) {
            self.changed.push(row);
        }
        if !std::mem::replace(&mut cell.is_unkept, true) {
            if self.unkept.is_empty() {
                self.signal.notify_one();
            }
            self.unkept.push(row);
        }
    }
}

/// A number of a lane that is to be stored.
#[derive(Clone, Debug)]
struct StoredChange {
    lane: ScopeId,
    row: u32,
    name: Arc<str>,
    doc: Arc<str>,
    kind: CounterKind,
    value: f64,
    series: cell::CellSeries,
    tags: Arc<LaneTags>,
}

impl StoredChange {
    fn of(lane: ScopeId, row: u32, cell: &CounterCell, names: &[NameEntry], tags: &Arc<LaneTags>) -> Self {
        let NameEntry { text, kind, .. } = &names[cell.name as usize];
        let (name, doc, tags) = (Arc::clone(text), Arc::clone(&cell.doc), Arc::clone(tags));
        Self { lane, row, name, doc, kind: *kind, value: cell.number.sample(), series: cell.series, tags }
    }
}

/// Numbers of lanes that are to outlive this process.
#[derive(Debug)]
struct UnkeptNumbers {
    /// When they were that. Samples that were taken earlier are earlier.
    time: Timestamp,
    values: Vec<(SeriesId, f64)>,
    /// Those that were never stored. They count as stored then.
    new: Vec<StoredChange>,
}

/// Which numbers are to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptPart {
    /// Those that changed since they were kept.
    Changed,
    /// All that are not stored.
    Whole,
}

impl CounterTable {
    /// Until something changed that is not kept.
    pub async fn changed(&self) {
        self.unkept.notified().await;
    }

    /// What changed since it was asked last, and when; of one lane, or of all. It counts as stored then.
    fn take_changes(&self, of: Option<ScopeId>, max: usize, clock: &dyn Clock) -> (Timestamp, Vec<StoredChange>) {
        let mut inner = self.lock();
        // Under the lock, so that it tells these numbers from those that are kept before or after.
        // A clock may go back: a total of now is the last one all the same.
        let now = clock.now().max(inner.stored_at.unwrap_or(Timestamp::MIN));
        let mut changes = Vec::new();
        let CounterRows { names, scopes, .. } = &mut *inner;
        for (number, scope) in scopes.iter_mut().enumerate() {
            let lane = ScopeId(u32::try_from(number).unwrap_or(u32::MAX));
            let (Some(scope), true) = (scope, of.is_none_or(|of| of == lane)) else { continue };
            let Some(tags) = scope.tags.clone() else { continue };
            while changes.len() < max {
                let Some(row) = scope.changed.pop() else {
                    // What is stored needs not be kept.
                    scope.unkept.clear();
                    break;
                };
                let cell = &mut scope.cells[row as usize];
                cell.is_unkept = false;
                if std::mem::take(&mut cell.is_changed) {
                    changes.push(StoredChange::of(lane, row, cell, names, &tags));
                }
            }
        }
        if !changes.is_empty() {
            inner.stored_at = Some(now);
        }
        (now, changes)
    }

    /// What is to be kept. It counts as kept then.
    fn take_unkept(&self, part: KeptPart, clock: &dyn Clock) -> UnkeptNumbers {
        let mut inner = self.lock();
        // Later than every sample that was taken before.
        let behind = |stored: Timestamp| Timestamp::from_micros(stored.micros().saturating_add(1));
        let time = clock.now().max(inner.stored_at.map_or(Timestamp::MIN, behind));
        let (mut values, mut new) = (Vec::new(), Vec::new());
        let CounterRows { names, scopes, .. } = &mut *inner;
        for (number, scope) in scopes.iter_mut().enumerate() {
            let lane = ScopeId(u32::try_from(number).unwrap_or(u32::MAX));
            let Some(scope) = scope else { continue };
            let Some(tags) = scope.tags.clone() else { continue };
            for row in scope.unkept.drain(..) {
                let cell = &mut scope.cells[row as usize];
                if !std::mem::take(&mut cell.is_unkept) {
                    continue;
                }
                match cell.series {
                    cell::CellSeries::Stored(series) if part == KeptPart::Changed => {
                        values.push((series, cell.number.sample()));
                    }
                    cell::CellSeries::Unknown => {
                        cell.is_changed = false;
                        new.push(StoredChange::of(lane, row, cell, names, &tags));
                    }
                    cell::CellSeries::Stored(_) | cell::CellSeries::None => {}
                }
            }
            if part == KeptPart::Whole {
                let cells = scope.changed.iter().map(|row| &scope.cells[*row as usize]).filter(|cell| cell.is_changed);
                values.extend(cells.filter_map(|cell| match cell.series {
                    cell::CellSeries::Stored(series) => Some((series, cell.number.sample())),
                    cell::CellSeries::Unknown | cell::CellSeries::None => None,
                }));
            }
        }
        if !values.is_empty() || !new.is_empty() {
            inner.stored_at = Some(time);
        }
        UnkeptNumbers { time, values, new }
    }

    /// Everything counts as stored.
    pub fn forget_changes(&self) {
        for scope in self.lock().scopes.iter_mut().flatten() {
            scope.unkept.clear();
            for row in std::mem::take(&mut scope.changed) {
                let cell = &mut scope.cells[row as usize];
                (cell.is_changed, cell.is_unkept) = (false, false);
            }
        }
    }

    /// They are still to be stored.
    fn put_back(&self, changes: &[StoredChange]) {
        let mut inner = self.lock();
        for change in changes {
            if let Some(scope) = inner.scope_of(change) {
                scope.note_change(change.row);
            }
        }
    }

    fn note_series(&self, found: &[(&StoredChange, cell::CellSeries)]) {
        let mut inner = self.lock();
        for (change, series) in found {
            if let Some(scope) = inner.scope_of(change) {
                scope.cells[change.row as usize].series = *series;
            }
        }
    }

    /// The series of a lane that hold samples of it, with the names of their counters.
    pub fn series_of(&self, lane: ScopeId) -> Vec<(Arc<str>, SeriesId)> {
        let inner = self.lock();
        let Some(scope) = inner.scope(lane) else { return Vec::new() };
        let series = scope.cells.iter().filter_map(|cell| match cell.series {
            cell::CellSeries::Stored(series) => Some((Arc::clone(&inner.names[cell.name as usize].text), series)),
            cell::CellSeries::Unknown | cell::CellSeries::None => None,
        });
        series.collect()
    }
}
