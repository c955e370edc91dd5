//! Counters of hardware that begin anew: after their largest value, after a reset, with a driver that is loaded again.
//!
//! The one idea: what is stored only grows. A small step back is noise, and adds nothing; a larger one is a counter that
//! went around, or that began anew if it has no range. Whether it went once around or several times nobody can tell, so
//! a counter must be read more often than it takes to go around.

/// A step back by less than one of so many parts of the range, or of the counter, is noise.
const NOISE_SHARE: u64 = 100;

/// A counter that only grows, made of readings of one that may not.
#[derive(Clone, Debug, Default)]
pub struct Unwrapped {
    /// The value behind which it begins at 0 again, where it has one.
    range: Option<u64>,
    last: Option<u64>,
    total: u64,
}

impl Unwrapped {
    pub fn new(range: Option<u64>) -> Self {
        Self { range: range.filter(|range| *range > 0), last: None, total: 0 }
    }

    /// The counter after this reading. It begins with the first one as it is.
    pub fn next(&mut self, reading: u64) -> u64 {
        let grown = match self.last {
            None => reading,
            Some(last) if reading >= last => reading - last,
            // Noise: the highest value counts until it is passed.
            Some(last) if last - reading <= self.range.unwrap_or(last) / NOISE_SHARE => return self.total,
            Some(last) => match self.range.filter(|range| last <= *range) {
                Some(range) => range - last + reading,
                None => reading,
            },
        };
        self.last = Some(reading);
        self.total = self.total.saturating_add(grown);
        self.total
    }

    /// As [`Unwrapped::next`], where the reading may be missing: then the counter stays what it was. `None` where there
    /// never was one.
    pub fn next_or_last(&mut self, reading: Option<u64>) -> Option<u64> {
        match reading {
            Some(reading) => Some(self.next(reading)),
            None => self.last.map(|_| self.total),
        }
    }

    /// The source says that the next reading begins anew, however large it is.
    pub fn begin_anew(&mut self) {
        if self.last.is_some() {
            self.last = Some(0);
        }
    }
}

/// The sum of counters of which each may be silent for a while or begin anew. A member that says nothing counts as it
/// did before, so the sum neither falls nor jumps by all that the member ever counted.
pub fn sum_of(members: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    members.flatten().reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests;
