//! Samples sorted by tags and then by time, without a sort: whoever merges them needs a batch of each side.
//!
//! Series with equal tags make a group. The samples of a group with one series are sorted as they are; those of a group
//! with several are merged, a batch of each at a time. What asks for this knows that groups are small
//! ([`MERGED_MAX`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::{Result, internal_err};
use telem_engine::{SeriesId, SeriesIndex};

use super::{Column, RowsRequest};
use crate::leaf::{Batches, Part};
use crate::options::BATCH_ROWS;

/// Series with equal tags that are merged where they are; of more, their samples are sorted instead.
pub(crate) const MERGED_MAX: usize = 16;
/// Fewest rows that are read of a series at once.
const BATCH_ROWS_MIN: usize = 64;

/// Series by their values of the tags `by`, in order: none comes first.
pub(crate) fn groups(by: &[String], series: &[SeriesId], index: &SeriesIndex) -> Vec<Vec<SeriesId>> {
    let mut groups: BTreeMap<Vec<Option<Arc<str>>>, Vec<SeriesId>> = BTreeMap::new();
    for id in series {
        let Some(key) = index.key(*id) else { continue };
        let tags = by.iter().map(|tag| key.tags().get(tag).map(Arc::from)).collect();
        groups.entry(tags).or_default().push(*id);
    }
    groups.into_values().collect()
}

/// The samples of a part of `selected`, as [`RowsRequest::sorted_by`] says. `scan` reads series, one after the other, in
/// batches of so many rows; `seamless` says whether it reads each of them from its start to its end.
pub(super) fn batches(
    request: &RowsRequest,
    groups: Vec<Vec<SeriesId>>,
    part: Part,
    seamless: bool,
    scan: impl Fn(Vec<SeriesId>, usize) -> Batches + Send + 'static,
) -> Result<Batches> {
    let Some(ts) = request.columns.iter().position(|column| *column == Column::Ts) else {
        return internal_err!("samples are sorted by time, and none is asked for");
    };
    let mut reads: Vec<Vec<SeriesId>> = Vec::new();
    let mut merged: Vec<bool> = Vec::new();
    for group in part.of(&groups) {
        match (group.len(), reads.last_mut(), merged.last()) {
            // Series that follow each other are read at once.
            (1, Some(last), Some(false)) if seamless => last.extend(group),
            (count, ..) => {
                reads.push(group.clone());
                merged.push(count > 1);
            }
        }
    }
    Ok(Box::new(reads.into_iter().zip(merged).flat_map(move |(series, merged)| -> Batches {
        if !merged {
            return scan(series, BATCH_ROWS);
        }
        let rows = (BATCH_ROWS / series.len()).max(BATCH_ROWS_MIN);
        let runs = series.into_iter().map(|series| scan(vec![series], rows)).collect();
        Box::new(TimeMerge { ts, runs, current: Vec::new(), next: BinaryHeap::new(), begun: false })
    })))
}

/// Merges runs, each of which is sorted by time.
struct TimeMerge {
    /// The column of times.
    ts: usize,
    runs: Vec<Batches>,
    /// The batch of each run, empty where that has ended, and how much of it was handed out.
    current: Vec<(RecordBatch, usize)>,
    /// The time of the next row of each run that has one.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    begun: bool,
}

impl TimeMerge {
    /// The next batch of a run with any rows, if there is one.
    fn read(&mut self, run: usize) -> Result<Option<RecordBatch>> {
        loop {
            match self.runs[run].next().transpose()? {
                Some(batch) if batch.num_rows() == 0 => {}
                read => return Ok(read),
            }
        }
    }

    /// Reads on in a run whose batch is used up.
    fn load(&mut self, run: usize) -> Result<()> {
        if let Some(batch) = self.read(run)? {
            self.next.push(Reverse((self.time(&batch, 0), run)));
            self.current[run] = (batch, 0);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        self.begun = true;
        for run in 0..self.runs.len() {
            let Some(batch) = self.read(run)? else { continue };
            // Runs without a sample are left out, so that both lists go together.
            let at = self.current.len();
            self.next.push(Reverse((self.time(&batch, 0), at)));
            self.current.push((batch, 0));
            self.runs.swap(at, run);
        }
        self.runs.truncate(self.current.len());
        Ok(())
    }

    fn time(&self, batch: &RecordBatch, row: usize) -> i64 {
        batch.column(self.ts).as_primitive::<TimestampMicrosecondType>().value(row)
    }

    /// Rows up to the end of one batch of one run.
    fn merge(&mut self) -> Result<Option<RecordBatch>> {
        if !self.begun {
            self.begin()?;
        }
        let mut rows: Vec<(usize, usize)> = Vec::new();
        let mut used_up = None;
        while let Some(Reverse((_, run))) = self.next.pop() {
            let (batch, at) = &mut self.current[run];
            rows.push((run, *at));
            *at += 1;
            if *at == batch.num_rows() {
                used_up = Some(run);
                break;
            }
            let (batch, at) = &self.current[run];
            self.next.push(Reverse((self.time(batch, *at), run)));
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.current.iter().map(|(batch, _)| batch).collect();
        let merged = interleave_record_batch(&batches, &rows)?;
        if let Some(run) = used_up {
            self.load(run)?;
        }
        Ok(Some(merged))
    }
}

impl Iterator for TimeMerge {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.merge().transpose()
    }
}
