//! Which series take part, apart from what their values are: a series whose only sample lies in the
//! window but outside of the range still decides the tags of its group.

use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;

use super::{BATCH_ROWS, Names, Source, external};
use crate::pipeline::Pipeline;
use crate::selection::encode_tags;

pub(super) struct Groups {
    source: Source,
    pipeline: Pipeline,
    next: usize,
}

impl Groups {
    pub(super) fn new(source: Source) -> Self {
        let pipeline = Pipeline::new(&source.query);
        Self { source, pipeline, next: 0 }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let mut names = Names::default();
        while names.rows < BATCH_ROWS && self.next < self.source.series.len() {
            self.source.check_wanted()?;
            let series = self.source.series[self.next];
            self.next += 1;
            let snapshot = &self.source.context.snapshot;
            if snapshot.has_points(series, self.pipeline.window).map_err(|error| external(error.into()))? {
                names.push(&encode_tags(self.source.key(series)?.tags()), 1)?;
            }
        }
        if names.rows == 0 {
            return Ok(None);
        }
        Ok(Some(RecordBatch::try_new(self.source.schema.clone(), vec![names.finish()])?))
    }
}

impl Iterator for Groups {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}
