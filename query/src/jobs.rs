//! Series that carry their job as a tag, for questions that know tags alone and name that one. Nothing is stored for it:
//! saved databases are opened once more.

use telem_engine::{Db, JOB_TAG, SeriesIndex, Snapshot};

use crate::error::{Error, Result};
use crate::question::TsQuery;

/// What can be asked by job: saved databases without other nodes.
#[derive(Clone, Debug)]
pub(crate) struct JobsOfDb {
    db: Option<Db>,
}

impl JobsOfDb {
    pub fn saved(db: &Db) -> Self {
        Self { db: db.is_read_only().then(|| db.clone()) }
    }

    /// Of one job that runs, which is no tag of anything.
    pub fn none() -> Self {
        Self { db: None }
    }

    /// Whether `query` names the tag of jobs, which no series of its metric carries in `index`.
    pub fn are_asked_for(&self, query: &TsQuery, index: &SeriesIndex) -> bool {
        query.filters.iter().any(|filter| filter.key == JOB_TAG) && self.can_be_tags(&query.metric, index)
    }

    /// Whether the series of `metric` can have their job as a tag.
    pub fn can_be_tags(&self, metric: &str, index: &SeriesIndex) -> bool {
        self.db.is_some() && !index.tag_keys(metric).iter().any(|key| &**key == JOB_TAG)
    }

    /// The same samples in series that have their job as a tag, where `query` asks for it.
    ///
    /// # Errors
    /// Those of the engine, where the databases went away.
    pub async fn snapshot(&self, query: &TsQuery, index: &SeriesIndex) -> Result<Option<Snapshot>> {
        let Some(db) = self.db.clone().filter(|_| self.are_asked_for(query, index)) else { return Ok(None) };
        // The first such question opens the databases again.
        let opened = tokio::task::spawn_blocking(move || db.by_job()).await;
        let opened = opened.map_err(|error| Error::Internal(format!("opening by job: {error}")))?;
        // It was there when it was opened first.
        let gone = |error| match error {
            telem_engine::Error::NotADatabase { path, .. } => telem_engine::Error::Gone { path },
            error => error,
        };
        Ok(opened.map_err(gone)?.map(|db| db.snapshot()))
    }
}
