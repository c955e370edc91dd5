//! GPUs.

pub mod nvidia;
