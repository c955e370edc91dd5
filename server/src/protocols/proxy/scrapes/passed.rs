//! Counters that somebody else keeps, as totals that never fall: what a child tells, and what it counted before it began
//! anew.
//!
//! A total is what the child tells now and an offset. The offset changes only when the child tells less than before, so
//! it is all that must outlive this process beside the totals themselves, and a poll that is missed costs nothing.

use std::collections::{BTreeMap, HashMap};

/// What it means that a counter is lower than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFall {
    /// It began anew: what it tells now comes on top.
    Reset,
    /// The child lost what it counted last, and goes on from there.
    Loss,
}

/// One counter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PassedCounter {
    offset: f64,
    /// What was told last.
    last: f64,
    /// The poll in which it was told.
    poll: u64,
}

/// The counters of one job of a child.
#[derive(Debug, Default)]
pub struct PassedCounters {
    counters: HashMap<Box<str>, PassedCounter>,
    poll: u64,
    /// Offsets changed since somebody looked.
    is_changed: bool,
}

impl PassedCounters {
    /// As they were left: totals that were reached, and their offsets.
    pub fn resume<N: AsRef<str>>(totals: impl IntoIterator<Item = (N, f64)>, offsets: &BTreeMap<String, f64>) -> Self {
        let offset = |name: &str| offsets.get(name).copied().unwrap_or(0.0);
        let mut counters: HashMap<Box<str>, PassedCounter> =
            offsets.iter().map(|(name, offset)| (name.as_str().into(), PassedCounter::of(*offset, 0.0))).collect();
        for (name, total) in totals {
            let offset = offset(name.as_ref());
            // A total that was not written before this process ended is lower than its offset.
            counters.insert(name.as_ref().into(), PassedCounter::of(offset, (total - offset).max(0.0)));
        }
        Self { counters, poll: 0, is_changed: false }
    }

    /// The child's counters begin anew, all of them.
    pub fn begin_anew(&mut self) {
        for counter in self.counters.values_mut() {
            self.is_changed |= counter.begin_anew();
        }
    }

    /// The total of a counter of which the child tells this.
    pub fn total(&mut self, name: &str, told: f64, fall: CounterFall) -> f64 {
        if !self.counters.contains_key(name) {
            self.counters.insert(name.into(), PassedCounter::default());
        }
        let Some(counter) = self.counters.get_mut(name) else { return told };
        if told < counter.last {
            match fall {
                CounterFall::Reset => counter.offset += counter.last,
                CounterFall::Loss => counter.offset += counter.last - told,
            }
            self.is_changed = true;
        }
        (counter.last, counter.poll) = (told, self.poll);
        counter.offset + told
    }

    /// All was told. Children leave out what is 0, so a counter that is missing began anew, unless the child only loses.
    pub fn end_poll(&mut self, fall: CounterFall) {
        if fall == CounterFall::Reset {
            for counter in self.counters.values_mut().filter(|counter| counter.poll != self.poll) {
                self.is_changed |= counter.begin_anew();
            }
        }
        self.poll += 1;
    }

    /// Whether what is told now may be later values of the same counters: none of them is lower than before, or missing.
    pub fn goes_on<'a>(&self, told: impl IntoIterator<Item = (&'a str, f64)>) -> bool {
        let told: HashMap<&str, f64> = told.into_iter().collect();
        self.counters
            .iter()
            .all(|(name, counter)| counter.last == 0.0 || told.get(&**name).is_some_and(|told| *told >= counter.last))
    }

    /// Whether any of them was more than 0 when it was told last.
    pub fn has_counted(&self) -> bool {
        self.counters.values().any(|counter| counter.last > 0.0)
    }

    /// Whether it was ever told.
    pub fn has(&self, name: &str) -> bool {
        self.counters.contains_key(name)
    }

    /// What was told last of a counter whose name begins so.
    pub fn with_prefix(&self, prefix: &str) -> Option<(&str, f64)> {
        let found = self.counters.iter().find(|(name, _)| name.starts_with(prefix));
        found.map(|(name, counter)| (&**name, counter.last))
    }

    /// The offsets, where any changed since the last time.
    pub fn changed_offsets(&mut self) -> Option<BTreeMap<&str, f64>> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let offsets = self.counters.iter().filter(|(_, counter)| counter.offset != 0.0);
        Some(offsets.map(|(name, counter)| (&**name, counter.offset)).collect())
    }
}

impl PassedCounter {
    fn of(offset: f64, last: f64) -> Self {
        Self { offset, last, poll: 0 }
    }

    /// Whether that changes its offset.
    fn begin_anew(&mut self) -> bool {
        let last = std::mem::take(&mut self.last);
        self.offset += last;
        last != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The totals of one counter that is told so; `None` where it is left out.
    fn totals(told: &[Option<f64>], fall: CounterFall) -> Vec<f64> {
        let mut counters = PassedCounters::default();
        let mut total = 0.0;
        let mut step = |told: &Option<f64>| {
            if let Some(told) = told {
                total = counters.total("work", *told, fall);
            }
            counters.end_poll(fall);
            total
        };
        told.iter().map(&mut step).collect()
    }

    #[test]
    fn the_first_value_counts_once_and_a_lower_one_is_new_increase() {
        let told = [Some(5.0), Some(8.0), Some(8.0), Some(3.0), Some(4.0)];
        assert_eq!(totals(&told, CounterFall::Reset), [5.0, 8.0, 8.0, 11.0, 12.0]);
    }

    #[test]
    fn a_counter_that_is_left_out_is_unchanged_and_comes_back_from_0() {
        assert_eq!(totals(&[Some(8.0), None, None, Some(4.0)], CounterFall::Reset), [8.0, 8.0, 8.0, 12.0]);
        assert_eq!(totals(&[Some(8.0), None, Some(12.0)], CounterFall::Reset), [8.0, 8.0, 20.0]);
    }

    #[test]
    fn a_child_that_only_loses_goes_on_from_where_it_is() {
        let told = [Some(100.0), Some(90.0), Some(95.0), None, Some(96.0)];
        assert_eq!(totals(&told, CounterFall::Loss), [100.0, 100.0, 105.0, 105.0, 106.0]);
    }

    #[test]
    fn totals_go_on_after_a_restart_whatever_of_them_was_written() {
        for written in [11.0, 8.0, 0.0] {
            let mut before = PassedCounters::default();
            for told in [8.0, 3.0] {
                before.total("work", told, CounterFall::Reset);
                before.end_poll(CounterFall::Reset);
            }
            let offsets = before.changed_offsets().unwrap();
            let offsets = offsets.into_iter().map(|(name, offset)| (name.to_owned(), offset)).collect();
            let mut after = PassedCounters::resume([("work", written)], &offsets);
            assert_eq!(after.total("work", 4.0, CounterFall::Reset), 12.0, "{written}");
            assert!(after.changed_offsets().is_none());
        }
    }

    #[test]
    fn a_child_that_began_anew_counts_on_top_even_where_it_is_higher() {
        let mut counters = PassedCounters::default();
        counters.total("work", 8.0, CounterFall::Reset);
        counters.end_poll(CounterFall::Reset);
        counters.begin_anew();
        assert_eq!(counters.total("work", 9.0, CounterFall::Reset), 17.0);
        assert_eq!(counters.with_prefix("wo"), Some(("work", 9.0)));
    }
}
