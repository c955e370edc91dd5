//! One file per wire format: pure bytes to samples, no I/O.

pub mod lenient;
pub mod opentsdb;
