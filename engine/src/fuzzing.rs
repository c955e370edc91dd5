//! What must hold of the engine's decoders for any bytes: the bodies of the fuzz targets in `tests/fuzz`.
//!
//! They panic where it does not. Each stands beside its decoder; this is their list, so that ordinary tests replay the
//! corpora through the same code ([`mod@tests`]) with no fuzzer at hand. Checksums are put right before a decoder sees
//! the bytes: they would keep a fuzzer out, and keep nobody out who writes a database by hand.

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
