//! The points themselves, for aggregators that need all of them in one place, and for grids that differ between the
//! series of a group.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::{SeriesId, SeriesKey, Timestamp, Value};

use super::{BATCH_ROWS, NameColumn, SeriesLines, SeriesSource, external, times_array};
use crate::error::Error;
use crate::pipeline::{Line, Pipeline};
use crate::question::tags::encode_tags;

pub(super) struct PointBatches {
    source: SeriesSource,
    pipeline: Pipeline,
    lines: SeriesLines,
    /// Series whose samples are sent as they are, which follow the others.
    raw: Option<SeriesLines>,
    points_max: u64,
    points: u64,
    /// The series that is being handed out, and how many of its points are out.
    pending: Option<(String, Line, usize)>,
}

impl PointBatches {
    pub(super) fn new(source: SeriesSource, series: &[SeriesId], points_max: u64, raw: &[SeriesKey]) -> Self {
        let pipeline = Pipeline::new(&source.query);
        let index = source.context.snapshot.index();
        let raw: Vec<SeriesId> = raw.iter().filter_map(|key| index.id(key)).collect();
        let (raw, rest): (Vec<SeriesId>, Vec<SeriesId>) = series.iter().partition(|id| raw.contains(id));
        let raw = (!raw.is_empty()).then(|| source.raw_lines(&pipeline, raw));
        let lines = source.lines(&pipeline, rest);
        Self { source, pipeline, lines, raw, points_max, points: 0, pending: None }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let mut names = NameColumn::default();
        let (mut times, mut ints, mut floats): (Vec<Timestamp>, Vec<_>, Vec<_>) = (Vec::new(), Vec::new(), Vec::new());
        while times.len() < BATCH_ROWS {
            let Some((name, line, from)) = self.next_series()? else { break };
            let to = line.len().min(from + BATCH_ROWS - times.len());
            names.push(&name, to - from)?;
            times.extend_from_slice(&line.times[from..to]);
            for at in from..to {
                let (int, float) = match line.values.get(at) {
                    Value::Int(int) => (Some(int), None),
                    Value::Float(float) => (None, Some(float)),
                };
                ints.push(int);
                floats.push(float);
            }
            if to < line.len() {
                self.pending = Some((name, line, to));
            }
        }
        if times.is_empty() {
            return Ok(None);
        }
        self.points += times.len() as u64;
        if self.points > self.points_max {
            return Err(external(Error::TooLarge { what: "points", max: self.points_max }));
        }
        let (ints, floats) = (Arc::new(Int64Array::from(ints)), Arc::new(Float64Array::from(floats)));
        let columns = vec![names.finish(), times_array(times), ints, floats];
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.source.schema), columns)?))
    }

    fn next_series(&mut self) -> Result<Option<(String, Line, usize)>, DataFusionError> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        for line in self.lines.by_ref() {
            self.source.check_wanted()?;
            let (series, line) = line.map_err(|error| external(error.into()))?;
            let line = self.pipeline.ship(line);
            if !line.is_empty() {
                return Ok(Some((encode_tags(self.source.key(series)?.tags()), line, 0)));
            }
        }
        for line in self.raw.iter_mut().flatten() {
            self.source.check_wanted()?;
            let (series, line) = line.map_err(|error| external(error.into()))?;
            if !line.is_empty() {
                return Ok(Some((encode_tags(self.source.key(series)?.tags()), line, 0)));
            }
        }
        Ok(None)
    }
}

impl Iterator for PointBatches {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}
