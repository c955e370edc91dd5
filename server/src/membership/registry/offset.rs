//! The offset of a node's clock from ours, from the time it sends and the duration of the exchange.
//!
//! As in NTP's clock filter (RFC 5905 §10), the quickest of the last few exchanges counts, because it waited least.

use std::collections::VecDeque;

/// Exchanges that are remembered.
const EXCHANGES_MAX: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Offset {
    /// How long each took, and the offset it showed, both in microseconds.
    exchanges: VecDeque<(u64, i64)>,
}

impl Offset {
    /// The node said that it was `theirs` when it was `ours` here, after half of `round_trip_us`.
    pub fn add(&mut self, theirs: i64, ours: i64, round_trip_us: u64) {
        let on_its_way = i64::try_from(round_trip_us / 2).unwrap_or(i64::MAX);
        if self.exchanges.len() == EXCHANGES_MAX {
            self.exchanges.pop_front();
        }
        let offset = theirs.saturating_sub(ours).saturating_add(on_its_way);
        self.exchanges.push_back((round_trip_us, offset));
    }

    /// How far it is ahead, in microseconds; `None` before the first exchange.
    pub fn best(&self) -> Option<i64> {
        self.exchanges.iter().min_by_key(|(round_trip_us, _)| *round_trip_us).map(|(_, offset)| *offset)
    }
}
