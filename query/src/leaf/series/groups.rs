//! The series that take part, whatever their values are: even a series whose only sample lies in the window but outside
//! of the range decides the tags of its group.

use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::SeriesId;

use super::naming::SeriesNumbers;
use super::{BATCH_ROWS, NameColumn, SeriesSource, external};
use crate::pipeline::Pipeline;
use crate::question::tags::encode_tags;

pub(super) struct GroupBatches {
    source: SeriesSource,
    series: Vec<SeriesId>,
    pipeline: Pipeline,
    next: usize,
    numbered: SeriesNumbers,
}

impl GroupBatches {
    pub(super) fn new(source: SeriesSource, series: Vec<SeriesId>) -> Self {
        let pipeline = Pipeline::new(&source.query);
        let numbered = SeriesNumbers::new(&source.context);
        Self { source, series, pipeline, next: 0, numbered }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let mut names = NameColumn::default();
        while names.rows < BATCH_ROWS && self.next < self.series.len() {
            self.source.check_wanted()?;
            let series = self.series[self.next];
            self.next += 1;
            let context = &self.source.context;
            let there = self.source.has_points(series, self.pipeline.window);
            if there.map_err(|error| external(error.into()))? && !self.numbered.take(series, context) {
                names.push(&encode_tags(self.source.key(series)?.tags()), 1)?;
            }
        }
        if self.next == self.series.len()
            && let Some(word) = self.numbered.word(&self.source.context)
        {
            names.push(&word, 1)?;
        }
        if names.rows == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(self.source.schema.clone(), vec![names.finish()])?))
    }
}

impl Iterator for GroupBatches {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}
