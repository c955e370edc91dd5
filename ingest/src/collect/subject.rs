//! What a collector is: a [`Subject`], which reads some sources at each tick, and what it says of them.
//!
//! The other files of this folder implement it, and `sampler.rs` lists them.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use telem_engine::{DeviceKind, InventoryEntry};

use super::series::Out;

/// How often sources are looked for: hardware hardly comes and goes, and who has none should not pay for it.
pub const SEARCH_INTERVAL: Duration = Duration::from_secs(60);

/// How often counters that go around are read where ticks are further apart. Those of CPUs that hold 65,532 J, the least
/// that is known, last that long at 2,184 W.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// What a subject knows of one of its sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// This node does not have it.
    Absent,
    /// The node has it, and it may not or cannot be read.
    Refused {
        path: PathBuf,
        /// Such as the error of the system, without the path.
        why: String,
        /// What somebody can do about it, such as `an administrator can ...`.
        remedy: &'static str,
    },
    Present,
}

impl SourceState {
    /// A subject that has one source. It is asked at each tick, and most answers are one of these two, at no cost.
    pub fn alone(found: Self) -> Cow<'static, [Self]> {
        static ABSENT: [SourceState; 1] = [SourceState::Absent];
        static PRESENT: [SourceState; 1] = [SourceState::Present];
        match found {
            SourceState::Absent => Cow::Borrowed(&ABSENT),
            SourceState::Present => Cow::Borrowed(&PRESENT),
            refused @ SourceState::Refused { .. } => Cow::Owned(vec![refused]),
        }
    }
}

/// What one file of this folder samples.
pub trait Subject: std::fmt::Debug + Send {
    /// Puts the samples of a tick.
    fn sample(&mut self, out: &mut Out<'_>);

    /// Reads what goes around before the next tick, where ticks are further apart than [`REFRESH_INTERVAL`].
    fn refresh(&mut self) {}

    /// Looks for its sources: before the first tick, and then every [`SEARCH_INTERVAL`]. Costs one `stat` or one listing
    /// for each source that is absent, and neither opens nor wakes a device.
    fn search(&mut self) {}

    /// What it knows of its sources now. It is asked after each search and each sample: what is refused may be known
    /// only once it was asked for.
    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(SourceState::Present)
    }

    /// What it knows of all its devices, where that may have changed since it was asked before. It is asked after each
    /// search and each sample, so most answers should be `None`, at no cost. One that is left out is lost from then on.
    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        None
    }

    /// As what the inventory has those of its sources that cannot be read; `None` leaves them out.
    fn device_kind(&self) -> Option<DeviceKind> {
        None
    }

    /// The shortest time between two samples, however short the interval of the collectors; zero for every tick.
    fn interval(&self) -> Duration {
        Duration::ZERO
    }
}
