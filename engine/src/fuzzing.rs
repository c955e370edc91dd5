//! What must hold for the engine's decoders with any input: the bodies of the fuzz targets in `tests/fuzz`.
//!
//! A target panics if its property does not hold. Each is defined beside its decoder. This module lists them, so that
//! ordinary tests replay the corpora through the same code ([`mod@tests`]) without a fuzzer. Checksums are corrected
//! before a decoder sees the bytes: otherwise they would stop the fuzzer, but not a person who writes a damaged file on
//! purpose.

pub(crate) mod files;
#[cfg(test)]
#[path = "../../tests/fuzz/replay.rs"]
mod tests;

pub use crate::manifest::fuzzing::manifest;
pub use crate::segment::fuzzing::{run_index, segment};
pub use crate::series_file::fuzzing::series_file;
pub use crate::wal::fuzzing::wal_frames;

/// Panics where the bytes do not hold what they must.
pub type Target = fn(&[u8]);

/// By the name of their folders in `tests/fuzz`.
pub const TARGETS: [(&str, Target); 5] = [
    ("manifest", manifest),
    ("run_index", run_index),
    ("segment", segment),
    ("series_file", series_file),
    ("wal_frames", wal_frames),
];
