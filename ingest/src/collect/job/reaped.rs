//! What a process reaped: the CPU time of its ended children, less the time that was counted while they existed.

/// A command and its rank.
pub type Name = (String, Option<u32>);

/// The account of one process.
#[derive(Debug, Default)]
pub struct Reaper {
    /// Ticks that were reaped, all of which are counted.
    settled: u64,
    /// Ticks that the last reading added.
    grown: u64,
    /// Ticks of children that have ended, counted while they were there: since the last reading, and since the one
    /// before, where the child ended after its parent was read.
    owed: u64,
    owed_before: u64,
    /// The name of all children that ended since the last reading; the inner `None` where they had several.
    ended: Option<Option<Name>>,
}

/// What a process reaped that no tick had seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnseenTime {
    pub ticks: u64,
    /// Of the children, where all of which something is known had one name.
    pub name: Option<Name>,
}

impl Reaper {
    /// `settled`: ticks of before the job, or of before it was looked at.
    pub fn since(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Takes note that it has reaped so much by now.
    pub fn read(&mut self, reaped_ticks: u64) {
        self.grown = reaped_ticks.saturating_sub(self.settled);
        self.settled = self.settled.max(reaped_ticks);
    }

    /// A child has ended of which so much was counted; `name` where it was a child of this very process.
    pub fn owes(&mut self, ticks: u64, name: Option<&Name>) {
        self.owed = self.owed.saturating_add(ticks);
        let Some(name) = name else { return };
        self.ended = Some(match self.ended.take() {
            None => Some(name.clone()),
            Some(known) => known.filter(|known| known == name),
        });
    }

    /// All of which is counted: as a child of its own, and as what it reaped.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// What was reaped since the last reading and not counted before.
    pub fn settle(&mut self) -> UnseenTime {
        let grown = std::mem::take(&mut self.grown);
        let owed = self.owed.saturating_add(self.owed_before);
        let paid = grown.min(owed);
        // What a child that ignores it, or a stranger, reaped is never paid: it may not stand in the way of others.
        self.owed_before = (owed - paid).min(std::mem::take(&mut self.owed));
        UnseenTime { ticks: grown - paid, name: self.ended.take().flatten() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(comm: &str) -> Name {
        (comm.to_owned(), None)
    }

    #[test]
    fn children_that_nobody_saw_are_what_was_reaped() {
        let mut reaper = Reaper::since(100);
        reaper.read(130);
        assert_eq!(reaper.settle(), UnseenTime { ticks: 30, name: None });
        reaper.read(130);
        assert_eq!(reaper.settle(), UnseenTime::default());
    }

    #[test]
    fn of_children_that_were_seen_only_the_rest_counts_and_under_their_name() {
        let mut reaper = Reaper::default();
        reaper.read(130);
        reaper.owes(100, Some(&name("cc1")));
        assert_eq!(reaper.settle(), UnseenTime { ticks: 30, name: Some(name("cc1")) });
        reaper.read(200);
        reaper.owes(10, Some(&name("cc1")));
        reaper.owes(10, Some(&name("as")));
        assert_eq!(reaper.settle(), UnseenTime { ticks: 50, name: None });
    }

    #[test]
    fn a_child_that_ended_after_its_parent_was_read_is_paid_with_the_next_reading() {
        let mut reaper = Reaper::default();
        reaper.read(0);
        reaper.owes(100, Some(&name("a")));
        assert_eq!(reaper.settle().ticks, 0);
        reaper.read(105);
        assert_eq!(reaper.settle().ticks, 5);
    }

    #[test]
    fn what_nobody_waited_for_does_not_swallow_what_comes_later() {
        let mut reaper = Reaper::default();
        reaper.read(0);
        reaper.owes(100, None);
        assert_eq!(reaper.settle().ticks, 0);
        reaper.read(0);
        assert_eq!(reaper.settle().ticks, 0);
        reaper.read(40);
        assert_eq!(reaper.settle().ticks, 40);
    }
}
