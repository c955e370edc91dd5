//! What clients told that they took and dropped, by process: each tells totals, and may connect again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::decode::frames::ClientTally;

/// Most processes whose totals are told apart.
pub const TALLIED_PROCESSES_MAX: usize = 65_536;

/// One process, and no other that gets its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientProcess {
    /// By its number, and by when it was started.
    Known { pid: u32, started: u64 },
    /// By the number of its connection, where the kernel says no more.
    Unknown(u64),
}

/// The counts of all processes.
#[derive(Debug, Default)]
pub struct ClientTallies {
    of: Mutex<Tallied>,
}

#[derive(Debug, Default)]
struct Tallied {
    processes: HashMap<ClientProcess, ClientTally>,
    /// Of processes that are not told apart any more.
    others: ClientTally,
}

impl ClientTallies {
    /// A process said what it counted since it began.
    pub fn tell(&self, process: ClientProcess, tally: ClientTally) {
        let mut of = self.lock();
        if !of.processes.contains_key(&process) && of.processes.len() >= TALLIED_PROCESSES_MAX {
            // All at once, so that it is seldom: most of them are long gone.
            let gone = of.processes.drain().fold(ClientTally::default(), |sum, (_, tally)| sum.plus(tally));
            of.others = of.others.plus(gone);
        }
        let before = of.processes.insert(process, tally);
        if let Some(before) = before.filter(|before| !before.grew_to(&tally)) {
            // The process runs another program by now, which began to count anew.
            of.others = of.others.plus(before);
        }
    }

    /// Of all processes together.
    pub fn sum(&self) -> ClientTally {
        let of = self.lock();
        of.processes.values().fold(of.others, |sum, tally| sum.plus(*tally))
    }

    /// No code panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, Tallied> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: ClientProcess = ClientProcess::Known { pid: 7, started: 1 };

    fn dropped(taken: u64, dropped_full: u64) -> ClientTally {
        ClientTally { taken, dropped_full, ..ClientTally::default() }
    }

    #[test]
    fn a_later_total_of_a_process_replaces_the_one_before_and_processes_add_up() {
        let tallies = ClientTallies::default();
        tallies.tell(PROCESS, dropped(10, 1));
        tallies.tell(PROCESS, dropped(20, 3));
        tallies.tell(ClientProcess::Known { pid: 7, started: 2 }, dropped(5, 0));
        tallies.tell(ClientProcess::Unknown(0), dropped(1, 1));
        assert_eq!(tallies.sum(), dropped(26, 4));
    }

    #[test]
    fn what_a_process_counted_before_it_ran_another_program_stays_counted() {
        let tallies = ClientTallies::default();
        tallies.tell(PROCESS, dropped(10, 4));
        tallies.tell(PROCESS, dropped(2, 1));
        tallies.tell(PROCESS, dropped(3, 1));
        assert_eq!(tallies.sum(), dropped(13, 5));
    }

    #[test]
    fn nothing_is_forgotten_when_there_are_more_processes_than_are_told_apart() {
        let tallies = ClientTallies::default();
        for number in 0..=TALLIED_PROCESSES_MAX as u64 {
            tallies.tell(ClientProcess::Unknown(number), dropped(1, 1));
        }
        assert_eq!(tallies.sum(), dropped(TALLIED_PROCESSES_MAX as u64 + 1, TALLIED_PROCESSES_MAX as u64 + 1));
    }
}
