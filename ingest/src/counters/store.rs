//! Running totals of lanes, written as samples.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use telem_engine::{
    Clock, Db, Durability, MetaChange, MetricKind, MetricMeta, SampleBatch, SeriesId, Timestamp, Value,
};

use tokio::task::spawn_blocking;

use super::cell::CellSeries;
use super::changes::{KeptPart, StoredChange, UnkeptNumbers};
use super::naming::SpelledSeries;
use super::tail::CounterTail;
use super::{CounterTable, ScopeId};
use crate::decode::proxy::CounterKind;
use crate::writer::{WriteError, Writer};

/// Most numbers that are stored in one batch.
const BATCH_SAMPLES_MAX: usize = 8_192;

/// Writes what changed in a table to a database.
#[derive(Clone, Debug)]
pub struct CounterStore {
    db: Db,
    writer: Writer,
    clock: Arc<dyn Clock>,
    tail: Arc<Mutex<CounterTail>>,
    /// Held from when changes are taken until they outlive this process: who finds none afterwards may rely on that.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Changes that were taken. Those that are not written in the end are changes again, also where nobody waits for that.
struct UnwrittenChanges<'a> {
    table: &'a CounterTable,
    changes: &'a [StoredChange],
}

impl Drop for UnwrittenChanges<'_> {
    fn drop(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        // A series is there with its first sample, and nothing can be kept of it before.
        let new = self.changes.iter().filter(|change| change.series == CellSeries::Unknown);
        let unknown: Vec<_> = new.map(|change| (change, CellSeries::Unknown)).collect();
        self.table.note_series(&unknown);
        self.table.put_back(self.changes);
    }
}

impl CounterStore {
    pub fn new(db: Db, writer: Writer, clock: Arc<dyn Clock>) -> Self {
        let tail = Arc::new(Mutex::new(CounterTail::of(&db)));
        Self { db, writer, clock, tail, turn: Arc::default() }
    }

    /// Makes samples of what an earlier process kept; how many.
    ///
    /// # Errors
    /// Those of the database, and of the file.
    pub fn recover(&self) -> telem_engine::Result<usize> {
        self.tail().recover(&self.db)
    }

    fn tail(&self) -> MutexGuard<'_, CounterTail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a sample for each number that changed since the last time, of one lane or of all, and waits until these can
    /// be read and outlive this process.
    ///
    /// # Errors
    /// Busy and what else a writer says; then the rest is stored next time.
    pub async fn store(&self, table: &CounterTable, of: Option<ScopeId>) -> Result<(), WriteError> {
        loop {
            let _turn = self.turn.lock().await;
            let (now, changes) = table.take_changes(of, BATCH_SAMPLES_MAX, &*self.clock);
            if changes.is_empty() {
                break;
            }
            self.write(table, &changes, now).await?;
        }
        let _turn = self.turn.lock().await;
        if of.is_none() && self.tail().has_values() {
            // Behind samples that others took.
            self.writer.settle().await?;
            let tail = Arc::clone(&self.tail);
            let cleared = spawn_blocking(move || tail.lock().unwrap_or_else(PoisonError::into_inner).clear());
            if let Err(panic) = cleared.await {
                tracing::error!(%panic, "what was kept of counters stays");
            }
        }
        Ok(())
    }

    /// Keeps what changed since it was stored or kept last, so that it outlives this process: of what has samples already,
    /// beside them; of what has none, as a first one.
    ///
    /// # Errors
    /// As [`CounterStore::store`].
    pub async fn keep(&self, table: &CounterTable) -> Result<(), WriteError> {
        let _turn = self.turn.lock().await;
        let part = if self.tail().is_long() { KeptPart::Whole } else { KeptPart::Changed };
        let UnkeptNumbers { time, values, new } = table.take_unkept(part, &*self.clock);
        // It runs to its end whatever becomes of this.
        let kept = (!values.is_empty()).then(|| {
            let (tail, db) = (Arc::clone(&self.tail), self.db.clone());
            spawn_blocking(move || {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.keep(&db, part, time, &values);
            })
        });
        let mut rest = UnwrittenChanges { table, changes: &new };
        let mut written = Ok(());
        while let (Ok(()), Some(part)) = (&written, rest.changes.chunks(BATCH_SAMPLES_MAX).next()) {
            rest.changes = &rest.changes[part.len()..];
            written = self.write(table, part, time).await;
        }
        if let Some(Err(panic)) = match kept {
            Some(kept) => Some(kept.await),
            None => None,
        } {
            tracing::error!(%panic, "changes of counters are not kept");
        }
        written
    }

    async fn write(&self, table: &CounterTable, changes: &[StoredChange], now: Timestamp) -> Result<(), WriteError> {
        let mut unwritten = UnwrittenChanges { table, changes };
        let batch = self.batch(table, changes, now);
        self.writer.submit(batch, Durability::Buffered).await?;
        unwritten.changes = &[];
        Ok(())
    }

    fn batch(&self, table: &CounterTable, changes: &[StoredChange], now: Timestamp) -> SampleBatch {
        let mut batch = SampleBatch::with_capacity(changes.len());
        let (mut names, mut found) = (None, Vec::new());
        let mut groups: BTreeMap<Arc<str>, MetricMeta> = BTreeMap::new();
        for change in changes {
            let series = match change.series {
                CellSeries::Stored(series) => Some(series),
                CellSeries::None => None,
                CellSeries::Unknown => {
                    let names = names.get_or_insert_with(|| SpelledSeries::new(self.db.snapshot()));
                    let series = self.series(change, names, &mut groups);
                    found.push((change, series.map_or(CellSeries::None, CellSeries::Stored)));
                    series
                }
            };
            if let Some(series) = series {
                batch.push(series, now, Value::Float(change.value));
            }
        }
        if !found.is_empty() {
            table.note_series(&found);
        }
        // A snapshot that is held makes a change of metadata a copy of all of them.
        let records: Vec<_> = names.into_iter().flat_map(SpelledSeries::records).collect();
        self.describe(groups);
        for record in records {
            if let Err(error) = self.db.put_meta(MetaChange::Record(record), Durability::Buffered) {
                tracing::warn!(%error, "the name of a counter will not outlive this process");
            }
        }
        batch
    }

    /// The series of a number that was never stored.
    fn series(
        &self,
        change: &StoredChange,
        names: &mut SpelledSeries,
        groups: &mut BTreeMap<Arc<str>, MetricMeta>,
    ) -> Option<SeriesId> {
        let key = names
            .key(&change.name, &change.tags)
            .inspect_err(|error| tracing::warn!(name = %change.name, %error, "a counter has no samples"))
            .ok()?;
        let series = self
            .db
            .series(&key)
            .inspect_err(|error| tracing::warn!(name = %change.name, %error, "a counter has no samples"))
            .ok()?;
        if !groups.contains_key(key.metric()) {
            let kind = match change.kind {
                CounterKind::Counter => MetricKind::Counter,
                CounterKind::Gauge => MetricKind::Gauge,
            };
            let meta = MetricMeta { kind, unit: String::new(), help: change.doc.to_string() };
            groups.insert(Arc::clone(key.metric_shared()), meta);
        }
        Some(series)
    }

    /// Describes metrics of which nobody said anything before.
    fn describe(&self, groups: BTreeMap<Arc<str>, MetricMeta>) {
        let snapshot = self.db.snapshot();
        let new: Vec<_> = groups.into_iter().filter(|(name, _)| snapshot.meta().metric(name).is_none()).collect();
        drop(snapshot);
        for (name, meta) in new {
            if let Err(error) = self.db.put_meta(MetaChange::Metric { name, meta }, Durability::Buffered) {
                tracing::warn!(%error, "a metric has no description");
                return;
            }
        }
    }
}
