//! What of the table is to be stored or kept: the numbers of lanes that changed, and the series that hold their samples.

use std::sync::Arc;

use telem_engine::{Clock, SeriesId, Timestamp};

use super::cell::{CellSeries, CounterCell};
use super::names::CounterNames;
use super::scope::CounterScope;
use super::{CounterRows, CounterTable, LaneTags, ScopeId};
use crate::decode::proxy::CounterKind;

/// Room for rows that changed that a lane keeps: most change again soon, and many at once are many lanes' first.
const ROWS_KEPT: usize = 1_024;

/// A number of a lane that is to be stored.
#[derive(Clone, Debug)]
pub(super) struct StoredChange {
    pub lane: ScopeId,
    pub row: u32,
    pub name: Arc<str>,
    pub doc: Arc<str>,
    pub kind: CounterKind,
    pub value: f64,
    pub series: CellSeries,
    pub tags: Arc<LaneTags>,
}

impl StoredChange {
    fn of(lane: ScopeId, row: u32, scope: &CounterScope, names: &CounterNames, tags: &Arc<LaneTags>) -> Self {
        let CounterCell { name, doc, number } = &scope.cells[row as usize];
        let entry = names.entry(*name);
        Self {
            lane,
            row,
            name: Arc::clone(&entry.text),
            doc: Arc::clone(names.doc(*doc)),
            kind: entry.kind,
            value: number.sample(),
            series: scope.stored[row as usize].series(),
            tags: Arc::clone(tags),
        }
    }
}

/// Numbers of lanes that are to outlive this process.
#[derive(Debug)]
pub(super) struct UnkeptNumbers {
    /// When they were that. Samples that were taken earlier are earlier.
    pub time: Timestamp,
    pub values: Vec<(SeriesId, f64)>,
    /// Those that were never stored. They count as stored then.
    pub new: Vec<StoredChange>,
}

/// Which numbers are to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptPart {
    /// Those that changed since they were kept.
    Changed,
    /// All that are not stored.
    Whole,
}

impl CounterRows {
    /// The lane of a change, unless it was closed meanwhile: another one may have its number then.
    fn scope_of(&mut self, change: &StoredChange) -> Option<&mut CounterScope> {
        let scope = self.scopes.get_mut(change.lane.0 as usize)?.as_mut()?;
        let is_same = scope.tags.as_ref().is_some_and(|tags| Arc::ptr_eq(tags, &change.tags));
        (is_same && (change.row as usize) < scope.stored.len()).then_some(scope)
    }
}

impl CounterTable {
    /// Until something changed that is not kept.
    pub async fn changed(&self) {
        self.unkept.notified().await;
    }

    /// What changed since it was asked last, and when; of one lane, or of all. It counts as stored then.
    pub(super) fn take_changes(
        &self,
        of: Option<ScopeId>,
        max: usize,
        clock: &dyn Clock,
    ) -> (Timestamp, Vec<StoredChange>) {
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
                    scope.unkept.shrink_to(ROWS_KEPT);
                    scope.changed.shrink_to(ROWS_KEPT);
                    break;
                };
                let stored = &mut scope.stored[row as usize];
                stored.is_unkept = false;
                if std::mem::take(&mut stored.is_changed) {
                    changes.push(StoredChange::of(lane, row, scope, names, &tags));
                }
            }
        }
        if !changes.is_empty() {
            inner.stored_at = Some(now);
        }
        (now, changes)
    }

    /// What is to be kept. It counts as kept then.
    pub(super) fn take_unkept(&self, part: KeptPart, clock: &dyn Clock) -> UnkeptNumbers {
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
            let mut unkept = std::mem::take(&mut scope.unkept);
            for row in unkept.drain(..) {
                let stored = &mut scope.stored[row as usize];
                if !std::mem::take(&mut stored.is_unkept) {
                    continue;
                }
                match stored.series() {
                    CellSeries::Stored(series) if part == KeptPart::Changed => {
                        values.push((series, scope.cells[row as usize].number.sample()));
                    }
                    CellSeries::Unknown => {
                        stored.is_changed = false;
                        new.push(StoredChange::of(lane, row, scope, names, &tags));
                    }
                    CellSeries::Stored(_) | CellSeries::None => {}
                }
            }
            unkept.shrink_to(ROWS_KEPT);
            scope.unkept = unkept;
            if part == KeptPart::Whole {
                let rows = scope.changed.iter().map(|row| *row as usize).filter(|row| scope.stored[*row].is_changed);
                values.extend(rows.filter_map(|row| match scope.stored[row].series() {
                    CellSeries::Stored(series) => Some((series, scope.cells[row].number.sample())),
                    CellSeries::Unknown | CellSeries::None => None,
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
                let stored = &mut scope.stored[row as usize];
                (stored.is_changed, stored.is_unkept) = (false, false);
            }
        }
    }

    /// They are still to be stored.
    pub(super) fn put_back(&self, changes: &[StoredChange]) {
        let mut inner = self.lock();
        for change in changes {
            if let Some(scope) = inner.scope_of(change) {
                scope.note_change(change.row);
            }
        }
    }

    pub(super) fn note_series(&self, found: &[(&StoredChange, CellSeries)]) {
        let mut inner = self.lock();
        for (change, series) in found {
            if let Some(scope) = inner.scope_of(change) {
                scope.stored[change.row as usize].set_series(*series);
            }
        }
    }

    /// The series of a lane that hold samples of it, with the names of their counters.
    pub fn series_of(&self, lane: ScopeId) -> Vec<(Arc<str>, SeriesId)> {
        let inner = self.lock();
        let Some(scope) = inner.scope(lane) else { return Vec::new() };
        let series = scope.cells.iter().zip(&scope.stored).filter_map(|(cell, stored)| match stored.series() {
            CellSeries::Stored(series) => Some((Arc::clone(inner.names.text(cell.name)), series)),
            CellSeries::Unknown | CellSeries::None => None,
        });
        series.collect()
    }
}
