//! The places that a query takes while it runs.

use tokio::sync::OwnedSemaphorePermit;

use crate::leaf::RunningQuestion;

/// One among the queries that run, and one among those in SQL. They are free again when this is dropped.
#[derive(Debug)]
pub(super) struct QueryPlaces {
    pub _running: OwnedSemaphorePermit,
    pub _running_sql: Option<OwnedSemaphorePermit>,
    pub _counted: RunningQuestion,
}
