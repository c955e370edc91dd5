//! What must hold for the decoders with any input: the bodies of the fuzz targets in `tests/fuzz`.
//!
//! A target panics if its property does not hold. The bodies are here and not in the targets, so that ordinary tests
//! replay the corpora through the same code ([`mod@tests`]) without a fuzzer. Each compares a decoder with a second
//! one: with and without the memory of earlier input, the fast path and the complete one, our number parser and the
//! standard library's.

mod client_frames;
mod dragon_points;
mod exposition_text;
mod gpu_metrics;
mod kernel_text;
mod line_protocol;
mod memory_disk;
mod numbers;
mod plain_line;
mod proxy_messages;
mod put_json;
#[cfg(test)]
#[path = "../../tests/fuzz/replay.rs"]
mod tests;

use std::path::Path;
use std::sync::Arc;

use telem_engine::{Db, Options, SampleBatch, Timestamp};

use memory_disk::MemoryDisk;

pub use client_frames::client_frames;
pub use dragon_points::dragon_points;
pub use exposition_text::exposition_text;
pub use gpu_metrics::gpu_metrics;
pub use kernel_text::kernel_text;
pub use line_protocol::line_protocol;
pub use numbers::numbers;
pub use proxy_messages::proxy_messages;
pub use put_json::put_json;

/// Panics where the bytes do not hold what they must.
pub type Target = fn(&[u8]);

/// By the name of their folders in `tests/fuzz`.
pub const TARGETS: [(&str, Target); 9] = [
    ("client_frames", client_frames),
    ("dragon_points", dragon_points),
    ("exposition_text", exposition_text),
    ("gpu_metrics", gpu_metrics),
    ("kernel_text", kernel_text),
    ("line_protocol", line_protocol),
    ("numbers", numbers),
    ("proxy_messages", proxy_messages),
    ("put_json", put_json),
];

/// The clock of the receiver: later than most times that are sent.
const NOW: Timestamp = Timestamp::from_seconds(4_000_000_000);

/// An empty database that touches no file.
fn database() -> Db {
    let options = Options {
        disk: Arc::new(MemoryDisk::default()),
        machine: Arc::new(memory_disk::NoMachine),
        ..Options::default()
    };
    Db::open(Path::new("/db"), options).expect("a disk of memory does not fail")
}

/// Samples with the names of their series.
fn named(db: &Db, batch: &SampleBatch) -> Vec<String> {
    let key = |series| db.index().key(series).expect("the database gave out this id");
    batch.iter().map(|(series, time, value)| format!("{} {time} {value} {}", key(series), value.is_int())).collect()
}
