//! The live table: counters and gauges that programs keep by name, summed in several scopes at once.
//!
//! A value is added in the *lane* that it came by and in every scope above that lane, under one lock, so that all of
//! them always agree. A lane is what one job of this node counts, say; above it are the node and everything. Scopes hold
//! numbers only: a name and its documentation stand in memory once. Lanes that are stored remember which of their
//! numbers changed ([`changes`]), and [`CounterStore`] writes these as samples of the running totals. Until then it keeps
//! them in a [`tail`], which outlives this process.

mod cell;
mod changes;
mod feed;
mod names;
pub mod naming;
mod scope;
pub mod store;
pub mod tail;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use telem_engine::Timestamp;
use tokio::sync::Notify;

use self::cell::{CellNumber, CounterCell};
pub use self::cell::{CounterValue, GaugeValue};
pub use self::feed::{Feed, FeedEvent};
use self::names::{CounterNames, DocNumber, IdleNames};
use self::scope::{CounterScope, NO_ROW};
pub use self::store::CounterStore;
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

/// A process that sets gauges: of one source the last value counts, over several sources least and greatest and the sum.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaneTags {
    pub default: DefaultTags,
    /// In the order of keys.
    pub more: Vec<(Arc<str>, Arc<str>)>,
    /// What stands before the names of its metrics, where others store the same under the plain ones.
    pub prefix: &'static str,
}

/// Why a message changes nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CounterRefusal {
    #[error("it is no message of Metric Proxy: {0}")]
    Malformed(String),
    #[error("it has more than {} bytes", crate::decode::proxy::MESSAGE_BYTES_MAX)]
    LongMessage,
    #[error("'{name}' was not declared on this job")]
    Undeclared { name: String },
    #[error("'{name}' is a {}, and a value of a {} was sent", is.name(), sent.name())]
    OtherKind { name: String, is: CounterKind, sent: CounterKind },
    #[error(
        "{value} cannot be added to the counter '{name}': its sum, and all sums above, would be no number for good"
    )]
    NotFinite { name: String, value: f64 },
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
    pub const REASONS: [&'static str; 9] = [
        "malformed",
        "long_message",
        "undeclared",
        "other_kind",
        "not_finite",
        "long_name",
        "long_doc",
        "many_names",
        "job",
    ];

    /// The place of its kind among [`CounterRefusal::REASONS`].
    pub fn reason(&self) -> usize {
        match self {
            Self::Malformed(_) => 0,
            Self::LongMessage => 1,
            Self::Undeclared { .. } => 2,
            Self::OtherKind { .. } => 3,
            Self::NotFinite { .. } => 4,
            Self::LongName { .. } => 5,
            Self::LongDoc { .. } => 6,
            Self::ManyNames => 7,
            Self::Job { .. } => 8,
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
    names: CounterNames,
    /// By number; `None` where one was closed.
    scopes: Vec<Option<CounterScope>>,
    /// The time of the last samples, and of the last values that were kept.
    stored_at: Option<Timestamp>,
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
        let scope = CounterScope::below(above, source.0).stored(tags, &self.unkept);
        self.lock().open(scope)
    }

    /// A lane that is not stored: a part of the sums `above`.
    pub fn open_part(&self, source: GaugeSource, above: &[ScopeId]) -> ScopeId {
        debug_assert!(above.len() <= SCOPES_ABOVE_MAX, "a lane is below three sums at most");
        self.lock().open(CounterScope::below(above, source.0))
    }

    /// Puts a sum above a lane, with everything that the lane holds so far.
    pub fn put_above(&self, lane: ScopeId, sum: ScopeId) {
        let mut inner = self.lock();
        let Some(scope) = inner.scope(lane) else { return };
        if scope.above.contains(&sum) || scope.above.len() >= SCOPES_ABOVE_MAX {
            return;
        }
        let source = scope.source;
        let held: Vec<_> = scope.cells.iter().map(|cell| (cell.name, cell.doc, cell.number.clone())).collect();
        if let Some(scope) = inner.scope_mut(sum) {
            for (name, doc, number) in held {
                let row = scope.row_of(name, doc, &number);
                scope.cells[row as usize].number.merge(source, &number);
            }
        }
        if let Some(scope) = inner.scope_mut(lane) {
            scope.above.push(sum);
        }
        inner.link(lane);
    }

    /// Lets names leave that no lane has any more, when that was so `looks` times in a row; how many left. In the sums
    /// their numbers stay: they are there when somebody asks for one of these names, and go on when a lane gets it.
    pub fn let_idle_names_go(&self, looks: u8) -> usize {
        self.lock().let_idle_names_go(looks)
    }

    /// Whether all numbers of a lane are samples.
    pub fn is_stored(&self, lane: ScopeId) -> bool {
        let inner = self.lock();
        let has_changes = |scope: &CounterScope| {
            let is_changed = |row: &u32| scope.stored.get(*row as usize).is_some_and(|stored| stored.is_changed);
            scope.changed.iter().any(is_changed)
        };
        !inner.scope(lane).is_some_and(has_changes)
    }

    /// Gives back room of a scope that is there for what comes next: nothing comes for a while.
    pub fn shrink(&self, scope: ScopeId) {
        if let Some(scope) = self.lock().scope_mut(scope) {
            scope.shrink();
        }
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
    /// When the lane does not know the name, or it is of the other kind; and for NaN and infinity to a counter.
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
        if let Some(row) = inner.names.find(name.as_bytes()).and_then(|number| scope.row(number)) {
            return Some(inner.reading(&scope.cells[row as usize]));
        }
        let number = scope.left.get(&inner.names.hash(name.as_bytes()))?;
        Some(CounterReading { name: name.into(), doc: Arc::default(), value: number.value() })
    }

    /// The first documentation that a name got, whatever was done with it since.
    pub fn first_doc(&self, name: &str) -> Option<Arc<str>> {
        let inner = self.lock();
        let number = inner.names.find(name.as_bytes())?;
        Some(Arc::clone(inner.names.doc(inner.names.entry(number).doc)))
    }

    /// Whether a scope knows a name with this in front of its labels.
    pub fn knows_group(&self, scope: ScopeId, group: &str) -> bool {
        let inner = self.lock();
        let Some(scope) = inner.scope(scope) else { return false };
        scope.cells.iter().any(|cell| group_of(inner.names.text(cell.name)) == group)
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
        scope.cells.iter_from(first).take(READINGS_AT_ONCE).map(|cell| inner.reading(cell)).collect()
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

    /// What it takes in memory.
    pub fn bytes(&self) -> usize {
        let inner = self.lock();
        inner.names.bytes() + inner.scopes.iter().flatten().map(CounterScope::bytes).sum::<usize>()
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

    fn scope_mut(&mut self, id: ScopeId) -> Option<&mut CounterScope> {
        self.scopes.get_mut(id.0 as usize)?.as_mut()
    }

    fn reading(&self, cell: &CounterCell) -> CounterReading {
        let (name, doc) = (self.names.text(cell.name), self.names.doc(cell.doc));
        CounterReading { name: Arc::clone(name), doc: Arc::clone(doc), value: cell.number.value() }
    }

    fn let_idle_names_go(&mut self, looks: u8) -> usize {
        let mut is_held = vec![false; self.names.len()];
        for cell in self.scopes.iter().flatten().filter(|scope| !scope.is_sum()).flat_map(|scope| &scope.cells) {
            is_held[cell.name as usize] = true;
        }
        let has_room = self.scopes.iter().flatten().all(|scope| scope.left.len() < COUNTER_NAMES_MAX);
        let idle = if has_room { IdleNames::Leave } else { IdleNames::Stay };
        let gone: AHashMap<u32, u64> = self.names.let_idle_go(&is_held, looks, idle).into_iter().collect();
        if gone.is_empty() {
            return 0;
        }
        for scope in self.scopes.iter_mut().flatten().filter(|scope| scope.is_sum()) {
            scope.let_go(&gone);
        }
        // Rows of the sums have moved.
        for lane in (0..).map(ScopeId).take(self.scopes.len()) {
            self.link(lane);
        }
        self.keep_docs();
        gone.len()
    }

    fn keep_docs(&mut self) {
        let Self { names, scopes, .. } = self;
        names.keep_docs(scopes.iter().flatten().flat_map(|scope| &scope.cells).map(|cell| cell.doc));
    }

    /// Says where the rows of a lane are in the sums above it.
    fn link(&mut self, lane: ScopeId) {
        let Some(scope) = self.scope(lane) else { return };
        let row = |name: u32, sum: &ScopeId| self.scope(*sum).and_then(|sum| sum.row(name)).unwrap_or(NO_ROW);
        let rows = scope.cells.iter().flat_map(|cell| scope.above.iter().map(move |sum| row(cell.name, sum))).collect();
        if let Some(scope) = self.scope_mut(lane) {
            scope.link(rows);
        }
    }

    /// The row of a name in a lane; where it has none, it gets one, there and in the sums above.
    fn row_of(&mut self, lane: ScopeId, name: u32, doc: DocNumber) -> Option<u32> {
        let scope = self.scope(lane)?;
        if let Some(row) = scope.row(name) {
            return Some(row);
        }
        let mut above = [lane; SCOPES_ABOVE_MAX];
        let sums = scope.above.len();
        above[..sums].copy_from_slice(&scope.above);
        let (like, hash) = (CellNumber::empty(self.names.entry(name).kind), self.names.hash_of(name));
        let mut rows = [NO_ROW; SCOPES_ABOVE_MAX];
        for (row, sum) in rows.iter_mut().zip(&above[..sums]) {
            let Some(sum) = self.scope_mut(*sum) else { continue };
            *row = sum.row_of(name, doc, &like);
            sum.come_back(*row, hash);
        }
        let scope = self.scope_mut(lane)?;
        let row = scope.row_of(name, doc, &like);
        scope.come_back(row, hash);
        scope.link_last(&rows[..sums]);
        Some(row)
    }

    /// Changes a number of a lane, and that name's in the sums above it.
    #[inline]
    fn change(&mut self, lane: ScopeId, row: u32, mut change: impl FnMut(ScopeId, &mut CounterScope, u32)) {
        let Some(scope) = self.scope_mut(lane) else { return };
        let (name, sums) = (scope.cells[row as usize].name, scope.above.len());
        change(lane, scope, row);
        for at in 0..sums {
            let Some((sum, row)) = self.scope(lane).map(|scope| (scope.above[at], scope.row_above(row, at))) else {
                return;
            };
            if let Some(scope) = self.scope_mut(sum)
                // One that was opened since has the number of a sum that is gone.
                && scope.cells.get(row as usize).is_some_and(|cell| cell.name == name)
            {
                change(sum, scope, row);
            }
        }
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
        let number = self.names.number(name, kind)?;
        let kind = self.names.entry(number).kind;
        if self.scope(lane).is_some_and(|scope| scope.row(number).is_some()) {
            return Ok(());
        }
        if self.names.has_many_docs() {
            self.keep_docs();
        }
        let doc = self.names.describe(number, doc);
        self.row_of(lane, number, doc);
        if (kind == CounterKind::Counter && value != 0.0) || (kind == CounterKind::Gauge && !value.is_nan()) {
            self.update(lane, name, kind, value)?;
        }
        Ok(())
    }

    /// The row of a name that a lane knows as one of this kind.
    fn known(&self, lane: ScopeId, name: &str, kind: CounterKind) -> Result<u32, CounterRefusal> {
        let undeclared = || CounterRefusal::Undeclared { name: name.to_owned() };
        let number = self.names.find(name.as_bytes()).ok_or_else(undeclared)?;
        let row = self.scope(lane).and_then(|scope| scope.row(number)).ok_or_else(undeclared)?;
        let is = self.names.entry(number).kind;
        if is != kind {
            return Err(CounterRefusal::OtherKind { name: name.to_owned(), is, sent: kind });
        }
        Ok(row)
    }

    fn source(&self, lane: ScopeId) -> u32 {
        self.scope(lane).map_or(0, |scope| scope.source)
    }

    fn update(&mut self, lane: ScopeId, name: &str, kind: CounterKind, value: f64) -> Result<(), CounterRefusal> {
        let row = self.known(lane, name, kind)?;
        if kind == CounterKind::Counter && !value.is_finite() {
            return Err(CounterRefusal::NotFinite { name: name.to_owned(), value });
        }
        self.take(lane, row, value);
        Ok(())
    }

    /// Adds to a counter of a lane, or sets a gauge.
    #[inline]
    fn take(&mut self, lane: ScopeId, row: u32, value: f64) {
        let source = self.source(lane);
        self.change(lane, row, |_, scope, row| scope.change(row, |number| number.take(source, value)));
    }

    fn set_gauge(&mut self, lane: ScopeId, name: &str, value: GaugeValue) -> Result<(), CounterRefusal> {
        let row = self.known(lane, name, CounterKind::Gauge)?;
        let source = self.source(lane);
        self.change(lane, row, |_, scope, row| scope.change(row, |number| number.set_gauge(source, value)));
        Ok(())
    }

    fn tell(&mut self, lane: ScopeId, reading: &CounterReading) -> Result<(), CounterRefusal> {
        let (name, kind) = (&*reading.name, reading.value.kind());
        let row = match self.known(lane, name, kind) {
            Err(CounterRefusal::Undeclared { .. }) => {
                let nothing = if kind == CounterKind::Counter { 0.0 } else { f64::NAN };
                self.declare(lane, name, &reading.doc, kind, nothing)?;
                self.known(lane, name, kind)?
            }
            known => known?,
        };
        let Some(known) = self.scope(lane).map(|scope| scope.cells[row as usize].number.value()) else { return Ok(()) };
        // What does not change is no sample.
        if known == reading.value {
            return Ok(());
        }
        let source = self.source(lane);
        self.change(lane, row, |_, scope, row| match (reading.value, known) {
            (CounterValue::Gauge(gauge), _) if gauge.hits == 0.0 => {
                // That it has no value any more is no sample either.
                scope.cells[row as usize].number.set_gauge(source, gauge);
            }
            (CounterValue::Gauge(gauge), _) => scope.change(row, |cell| cell.set_gauge(source, gauge)),
            (CounterValue::Counter(value), CounterValue::Counter(before)) => {
                scope.change(row, |cell| cell.move_counter(before, value));
            }
            (CounterValue::Counter(_), CounterValue::Gauge(_)) => {}
        });
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
        if self.names.find(name.as_bytes()).is_none()
            && let Some(left) = self.scope(sum).and_then(|sum| sum.left.get(&self.names.hash(name.as_bytes())))
        {
            // It comes back with what it was.
            let kind = left.value().kind();
            self.declare(lane, name, doc, kind, if kind == CounterKind::Counter { 0.0 } else { f64::NAN })?;
        }
        let number = self.names.find(name.as_bytes()).ok_or_else(undeclared)?;
        let is = self.names.entry(number).kind;
        if is != CounterKind::Counter {
            return Err(CounterRefusal::OtherKind { name: name.to_owned(), is, sent: CounterKind::Counter });
        }
        let before = self.scope(sum).and_then(|sum| sum.counter(number)).ok_or_else(undeclared)?;
        if self.names.has_many_docs() {
            self.keep_docs();
        }
        let doc = self.names.doc_number(doc);
        let of_lane = self.scope(lane).and_then(|scope| scope.counter(number)).unwrap_or(0.0);
        // Of what others counted the lane takes back as much as the difference is.
        let others = before - of_lane;
        let own = if others == 0.0 || !others.is_finite() { value } else { value - others };
        let Some(row) = self.row_of(lane, number, doc) else { return Ok(()) };
        self.change(lane, row, |of, scope, row| {
            let number = if of == lane { own } else { value };
            scope.cells[row as usize].doc = doc;
            scope.change(row, |cell| *cell = CellNumber::Counter(number));
        });
        Ok(())
    }
}
