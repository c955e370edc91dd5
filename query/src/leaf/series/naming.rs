//! How a leaf identifies the series in its answer: by name, or by number if the head knows them (see [`numbers`]).

use telem_engine::SeriesId;

use crate::leaf::LeafContext;
use crate::leaf::numbers::{self, KnownSeries};

/// Series whose numbers say enough.
pub(super) struct SeriesNumbers {
    told: Option<KnownSeries>,
    series: Vec<SeriesId>,
}

impl SeriesNumbers {
    pub(super) fn new(context: &LeafContext) -> Self {
        Self { told: context.told, series: Vec::new() }
    }

    /// Whether the series need not be named.
    pub(super) fn take(&mut self, series: SeriesId, context: &LeafContext) -> bool {
        let known = self.told.is_some_and(|told| told.knows(series, context.snapshot.index()));
        if known {
            self.series.push(series);
        }
        known
    }

    /// Takes in those that another took.
    pub(super) fn append(&mut self, later: SeriesNumbers) {
        self.series.extend(later.series);
    }

    /// All that were taken, as one word; `None` for none.
    pub(super) fn word(&mut self, context: &LeafContext) -> Option<String> {
        let series = std::mem::take(&mut self.series);
        (!series.is_empty()).then(|| numbers::encode(context.snapshot.node(), series))
    }
}
