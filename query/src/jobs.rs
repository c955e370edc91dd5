//! Series that carry their job as a tag, for questions that know tags alone and name that one. Nothing is stored for it.

use std::sync::Arc;

use telem_engine::{JOB_TAG, SeriesByJob, Snapshot};

use crate::error::Result;
use crate::leaf::LeafContext;
use crate::question::TsQuery;

/// Whether series may have their job as a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobTags {
    /// Where a question names it.
    Known,
    /// Not over the nodes of a job that runs.
    Unknown,
}

impl JobTags {
    /// Whether `query` names the tag of jobs, which no series of its metric carries.
    pub fn are_asked_for(self, query: &TsQuery, snapshot: &Snapshot) -> bool {
        query.filters.iter().any(|filter| filter.key == JOB_TAG) && self.can_be_of(&query.metric, snapshot)
    }

    /// Whether the series of `metric` can have their job as a tag.
    pub fn can_be_of(self, metric: &str, snapshot: &Snapshot) -> bool {
        self == JobTags::Known && snapshot.can_have_jobs(metric)
    }

    /// What sees the same samples in series that have their job as a tag, where `query` asks for it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn context(self, query: &TsQuery, context: &LeafContext) -> Result<Option<LeafContext>> {
        if !self.are_asked_for(query, &context.snapshot) {
            return Ok(None);
        }
        let by_job = Arc::new(SeriesByJob::new(&context.snapshot, &query.metric)?);
        let snapshot = by_job.names().clone();
        Ok(Some(LeafContext { snapshot, by_job: Some(by_job), ..context.clone() }))
    }
}
