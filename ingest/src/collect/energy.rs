//! Power and energy of the node, from every source that it has, and from the best of them under one name.
//!
//! Each source stores what it says under its own name. What it says of the whole, or of its part, it also writes on a
//! board ([`PowerBoard`]), from which [`NodePower`] takes the best: sources overlap, so they are never added up but for
//! packages, memory and GPUs, which lie beside each other.

mod board;
pub(crate) mod cray;
mod meters;
mod rapl;
#[cfg(test)]
mod tests;

pub use board::{NodePower, PowerBoard, PowerTicks};
pub use cray::{ACCELERATORS_MAX, PmCounters};
pub use meters::PowerMeters;
pub(super) use meters::{sensors, word};
pub use rapl::{Rapl, ZONES_MAX};

/// Joules to a thousandth: what the sources resolve.
fn joules(micros: u64) -> f64 {
    (micros / 1_000) as f64 / 1_000.0
}
