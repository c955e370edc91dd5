//! The series of several databases under common ids, without their samples: what the head of a job keeps.

use std::sync::Arc;

use super::SeriesIndex;
use crate::error::Result;
use crate::series::{SeriesId, SeriesKey};

/// A common index that grows while its sources do. It is in memory only.
#[derive(Clone, Debug, Default)]
pub struct MergedIndex(Arc<SeriesIndex>);

impl MergedIndex {
    /// The common id of `key`, given out now if it has none.
    ///
    /// # Errors
    /// Unavailable when there are `series_max` series already.
    pub fn insert(&self, key: &SeriesKey, series_max: u32) -> Result<SeriesId> {
        Ok(self.0.get_or_insert(key, series_max)?.0)
    }

    pub fn index(&self) -> &Arc<SeriesIndex> {
        &self.0
    }
}
