//! Decides how much of the data that was never synced survives a power loss.

use std::ops::Range;

use super::random::Random;

/// Drawn anew for every file and every directory, except that some power losses are the clean
/// extremes: these are the likeliest in life and the easiest to read when a test fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    Nothing,
    Everything,
    /// In order, up to somewhere: also up to the middle of a write.
    Prefix,
    /// Any part, in any order.
    Any,
}

/// One draw for a whole power loss; `None` means that everything on the disk draws for itself.
pub fn draw_for_all(random: &mut Random) -> Option<Survival> {
    match random.below(8) {
        0 => Some(Survival::Nothing),
        1 => Some(Survival::Everything),
        2 => Some(Survival::Prefix),
        _ => None,
    }
}

pub fn draw(random: &mut Random) -> Survival {
    *random.pick(&[Survival::Nothing, Survival::Everything, Survival::Prefix, Survival::Any, Survival::Any])
}

/// The contents where a file grew and its data did not arrive.
#[derive(Clone, Copy, Debug)]
pub enum Filler {
    Zeros,
    Garbage,
    /// What another file held in the same place before: whole, valid frames perhaps.
    Stale,
}

impl Filler {
    pub fn bytes(self, stretch: Range<usize>, stale: &[u8], random: &mut Random) -> Vec<u8> {
        match self {
            Filler::Zeros => vec![0; stretch.len()],
            Filler::Garbage => random.bytes(stretch.len()),
            Filler::Stale => stretch.map(|at| stale.get(at).copied().unwrap_or(0)).collect(),
        }
    }
}
