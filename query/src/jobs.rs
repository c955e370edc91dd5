//! Series that carry their job as a tag, for questions that know tags alone and name that one. Nothing is stored for it.

use std::sync::Arc;

use telem_engine::{JOB_TAG, SeriesByJob, Snapshot};

use crate::error::{Error, Result};
use crate::leaf::LeafContext;
use crate::question::TsQuery;
use crate::selection::check_names;

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
    /// Those of the engine; Stopped, where nobody waits for the answer any more.
    pub fn context(self, query: &TsQuery, context: &LeafContext) -> Result<Option<LeafContext>> {
        if !self.are_asked_for(query, &context.snapshot) {
            return Ok(None);
        }
        let of_jobs = |is_wanted: &dyn Fn(&str) -> bool| {
            let by_job = SeriesByJob::new(&context.snapshot, &query.metric, is_wanted, &|| context.stop.is_asked())?;
            if context.stop.is_asked() { Err(Error::Stopped) } else { Ok(by_job) }
        };
        // There may be thousands of others, each with as many series.
        let tests = query.filters.iter().filter(|filter| filter.key == JOB_TAG).map(|filter| &filter.matcher);
        let wanted = of_jobs(&|job| tests.clone().all(|test| test.accepts(job)))?;
        // A name that only other jobs have is known all the same.
        let by_job = match check_names(query, wanted.names().index()) {
            Ok(()) => wanted,
            Err(_) => of_jobs(&|_| true)?,
        };
        let snapshot = by_job.names().clone();
        Ok(Some(LeafContext { snapshot, by_job: Some(Arc::new(by_job)), ..context.clone() }))
    }
}
