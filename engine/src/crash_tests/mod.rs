//! What the engine promises, tried against a disk that fails: nothing acknowledged is lost, nothing
//! appears that nobody sent, and damage is reported, never returned as data.
//!
//! - [`random_steps`]: any sequence of steps, faults and deaths, against the [`model`].
//! - [`every_operation`]: one scenario, stopped or failed at each of its disk operations.
//! - [`keeping`]: merges in the background and retention, stopped or failed at each of their disk operations.
//! - [`mirroring`]: a copy of a database, with either machine stopped or failed at each of its disk operations.
//! - [`decay`]: flipped bits and cut files.
//! - [`repairing`]: what a repair makes of them, and a repair that is itself stopped at each of its disk operations.
//! - [`extremes`]: the values at the borders of every encoding, through everything that stores or moves them.
//!
//! `PROPTEST_CASES=10000 cargo test -p telem-engine crash_tests` runs more of each (128 unless
//! asked otherwise; the exhaustive tests try more crash images of every moment then). A failure of
//! [`random_steps`] prints its seed and its steps, shrunk, and writes them to a file that is tried
//! first from then on; the others draw from fixed seeds.

mod decay;
mod every_operation;
mod extremes;
mod keeping;
mod mirroring;
mod model;
mod observe;
mod random_steps;
mod repairing;
mod report;
mod sim_machine;
mod world;

use crate::series::{SeriesKey, TagSet};

/// How many series the tests know.
const SERIES: usize = 6;

/// The key of a series by its number: two metrics of several series, and names that are hard on encodings.
fn key(number: usize) -> SeriesKey {
    let (metric, tags): (&str, &[(&str, &str)]) = match number {
        0 => ("cpu", &[("host", "a")]),
        1 => ("cpu", &[("host", "b")]),
        2 => ("cpu", &[("core", "1"), ("host", "a")]),
        3 => ("loss", &[]),
        4 => ("température °C", &[("raum", "β/γ"), ("ä", "=,{}\"")]),
        5 => ("loss", &[("rank", "0")]),
        _ => unreachable!("there are {SERIES} series"),
    };
    SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap()
}
