//! One file per wire format: pure bytes to samples, no I/O.

mod digits;
pub mod lenient;
pub mod line;
pub mod opentsdb;
