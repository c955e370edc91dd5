//! Tests of the engine's promises against a disk that fails: no acknowledged sample is lost, no sample appears that was
//! not sent, and damage is reported, never returned as data.
//!
//! - [`random_steps`]: any sequence of steps, faults and crashes, against the [`model`].
//! - [`every_operation`]: one scenario, stopped or failed at each of its disk operations.
//! - [`keeping`]: merges in the background and retention, stopped or failed at each of their disk operations.
//! - [`mirroring`]: a copy of a database, with either machine stopped or failed at each of its disk operations.
//! - [`decay`]: flipped bits and cut files.
//! - [`repairing`]: what a repair makes of damaged files, and a repair that is itself stopped at each of its disk
//!   operations.
//! - [`extremes`]: the values at the borders of every encoding, through everything that stores or moves them.
//!
//! `PROPTEST_CASES=10000 cargo test -p telem-engine crash_tests` runs more cases of each (the default is 128); the
//! exhaustive tests then try more crash images of every moment. A failure of [`random_steps`] prints its seed and its
//! shrunk steps, and writes them to a file that later runs try first. The other tests use fixed seeds.

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
