//! Points of one series and one whole second are all kept: in the order of their arrival each gets the next free
//! microsecond of that second, the first one the second itself.
//!
//! Dragon's class stamps whole seconds, and of equal times the later one would count alone. How far a second of a series
//! is filled is remembered for some time; what was forgotten, or stored by an earlier server, is looked up in the
//! database. Times with a fraction are somebody else's business: a point that was sent with the time of a microsecond
//! which is given away here replaces that point.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use telem_engine::{SampleBatch, SeriesId, Timestamp};

/// Pairs of a series and a second that are remembered at the least; at the most it is twice as many.
pub const PAIRS_MAX: usize = 65_536;
/// Most points of a series in a second: its microseconds.
pub const POINTS_PER_SECOND_MAX: u32 = 1_000_000;

/// The memory.
#[derive(Debug, Default)]
pub struct SecondSpread {
    filled: Mutex<FilledSeconds>,
}

/// The next free microsecond of each pair: those that were used lately, and those before them.
#[derive(Debug, Default)]
struct FilledSeconds {
    recent: HashMap<(SeriesId, i64), u32>,
    older: HashMap<(SeriesId, i64), u32>,
}

impl FilledSeconds {
    fn knows(&self, pair: (SeriesId, i64)) -> bool {
        self.recent.contains_key(&pair) || self.older.contains_key(&pair)
    }

    /// Takes the next microsecond of a pair, of which `found` were taken before if it is not known.
    fn take(&mut self, pair: (SeriesId, i64), found: impl FnOnce() -> u32) -> Option<u32> {
        let next = match self.recent.get_mut(&pair) {
            Some(next) => next,
            None => {
                let next = self.older.remove(&pair).unwrap_or_else(found);
                if self.recent.len() >= PAIRS_MAX {
                    self.older = std::mem::take(&mut self.recent);
                }
                self.recent.entry(pair).or_insert(next)
            }
        };
        let taken = *next;
        if taken >= POINTS_PER_SECOND_MAX {
            return None;
        }
        *next += 1;
        Some(taken)
    }
}

impl SecondSpread {
    /// The same samples, all of which have the time `second`, with microseconds of their own; and how many had to be
    /// left out. `stored` says how much of that second a series has filled in the database.
    pub fn spread(
        &self,
        batch: &SampleBatch,
        second: i64,
        mut stored: impl FnMut(SeriesId) -> u32,
    ) -> (SampleBatch, usize) {
        let unknown: Vec<SeriesId> = {
            let filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
            let series = batch.iter().map(|(series, ..)| series);
            series.filter(|series| !filled.knows((*series, second))).collect()
        };
        // Without the lock: a disk may be slow. What another request enters meanwhile counts more.
        let mut found: HashMap<SeriesId, u32> = HashMap::with_capacity(unknown.len());
        for series in unknown {
            found.entry(series).or_insert_with(|| stored(series));
        }
        let (mut spread, mut beyond) = (SampleBatch::with_capacity(batch.len()), 0);
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        for (series, _, value) in batch.iter() {
            let known = found.get(&series).copied();
            match filled.take((series, second), || known.unwrap_or_else(|| stored(series))) {
                Some(micros) => {
                    let time = Timestamp::from_seconds(second).saturating_add_micros(i64::from(micros));
                    spread.push(series, time, value);
                }
                None => beyond += 1,
            }
        }
        (spread, beyond)
    }
}

#[cfg(test)]
mod tests {
    use telem_engine::Value;

    use super::*;

    fn batch(series: impl IntoIterator<Item = u32>) -> SampleBatch {
        let mut batch = SampleBatch::default();
        for (at, series) in series.into_iter().enumerate() {
            batch.push(SeriesId(series), Timestamp::from_seconds(10), Value::Int(at as i64));
        }
        batch
    }

    fn micros(of: &SecondSpread, series: &[u32], second: i64, stored: u32) -> Vec<i64> {
        let (spread, beyond) = of.spread(&batch(series.iter().copied()), second, |_| stored);
        assert_eq!(beyond, 0);
        spread.iter().map(|(_, time, _)| time.micros() - second * 1_000_000).collect()
    }

    #[test]
    fn points_of_a_second_get_its_microseconds_in_the_order_of_arrival() {
        let spread = SecondSpread::default();
        assert_eq!(micros(&spread, &[1, 1, 2, 1], 10, 0), [0, 1, 0, 2]);
        assert_eq!(micros(&spread, &[1, 2], 10, 0), [3, 1]);
        assert_eq!(micros(&spread, &[1], 11, 0), [0], "of the next second the first");
        assert_eq!(micros(&spread, &[1], 10, 0), [4], "a late one");
        assert_eq!(micros(&spread, &[1], -3, 0), [0]);
    }

    #[test]
    fn what_the_database_has_comes_first() {
        let spread = SecondSpread::default();
        assert_eq!(micros(&spread, &[1, 1], 10, 7), [7, 8]);
        assert_eq!(micros(&spread, &[1], 10, 99), [9], "it is asked once");
    }

    #[test]
    fn what_was_forgotten_is_asked_for_again_and_the_memory_is_bounded() {
        let spread = SecondSpread::default();
        micros(&spread, &[7], 10, 0);
        for second in 0..3 {
            let many = batch(0..PAIRS_MAX as u32);
            spread.spread(&many, 1_000 + second, |_| 0);
        }
        assert_eq!(micros(&spread, &[7], 10, 5), [5]);
        let filled = spread.filled.lock().unwrap();
        assert!(filled.recent.len() + filled.older.len() <= 2 * PAIRS_MAX);
    }

    #[test]
    fn a_second_has_no_more_than_its_microseconds() {
        let spread = SecondSpread::default();
        let (kept, beyond) = spread.spread(&batch([1, 1, 1]), 10, |_| POINTS_PER_SECOND_MAX - 1);
        assert_eq!((kept.len(), beyond), (1, 2));
        assert_eq!(kept.iter().next().unwrap().1, Timestamp::from_micros(10_999_999));
    }
}
