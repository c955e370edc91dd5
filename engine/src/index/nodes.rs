//! The node that owns each series.

use std::sync::Arc;

use super::ids::Ids;
use crate::series::SeriesId;

/// Whose each series is.
#[derive(Clone, Debug)]
pub enum Nodes {
    One(Arc<str>),
    Several {
        /// Sorted, every name once.
        names: Arc<[Arc<str>]>,
        /// Of each series the position in `names`.
        of_series: Arc<[u32]>,
        /// The names with commas between.
        all: Arc<str>,
    },
}

impl Nodes {
    pub fn names(&self) -> &[Arc<str>] {
        match self {
            Nodes::One(name) => std::slice::from_ref(name),
            Nodes::Several { names, .. } => names,
        }
    }

    pub fn of(&self, series: SeriesId) -> &Arc<str> {
        match self {
            Nodes::One(name) => name,
            Nodes::Several { names, of_series, all } => {
                of_series.get(series.0 as usize).map_or(all, |at| &names[*at as usize])
            }
        }
    }

    pub fn all(&self) -> &str {
        match self {
            Nodes::One(name) => name,
            Nodes::Several { all, .. } => all,
        }
    }

    /// `ids` and `names` of each database, in the order in which they were named.
    pub fn of_several(ids: &[Arc<Ids>], nodes: &[String], series: usize) -> Self {
        let mut names: Vec<Arc<str>> = nodes.iter().map(|name| Arc::from(&**name)).collect();
        names.sort_unstable();
        names.dedup();
        let mut of_series = vec![0; series];
        for (ids, node) in ids.iter().zip(nodes) {
            let at = names.partition_point(|name| **name < **node);
            for series in &ids.common {
                of_series[series.0 as usize] = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
        let all = names.join(",");
        Nodes::Several { names: names.into(), of_series: of_series.into(), all: all.into() }
    }
}
