//! How a panel can ask for the job that recorded a sample, where no series of the metric has a tag of that name.

use std::collections::BTreeSet;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::DataType;
use futures::StreamExt;
use telem_engine::ErrorKind;

use super::PanelTask;
use crate::http::ApiError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobNaming {
    /// Like a tag.
    Tag,
    /// All samples are of this one: there is nothing to tell apart.
    One(String),
    /// As the column of tables alone: over the nodes of a head, series have no such tag.
    Column,
}

impl JobNaming {
    /// Over nodes it is one job mostly, which each of them knows the id of.
    ///
    /// # Errors
    /// Those of the query that asks nodes for their jobs.
    pub async fn of(task: &PanelTask) -> Result<Self, ApiError> {
        if task.state.queries.members().is_none() || !task.panel.names_job(&task.state.index()) {
            return Ok(Self::Tag);
        }
        let mut jobs: BTreeSet<String> = BTreeSet::new();
        let mut batches = task.state.queries.sql("SELECT DISTINCT job FROM jobs").await?.batches;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(telem_query::Error::from)?;
            let ids = cast(batch.column(0), &DataType::Utf8).map_err(|error| {
                ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: ids of jobs: {error}"))
            })?;
            jobs.extend(ids.as_string::<i32>().iter().flatten().map(str::to_owned));
        }
        Ok(match (jobs.pop_first(), jobs.is_empty()) {
            (Some(one), true) => Self::One(one),
            _ => Self::Column,
        })
    }
}
