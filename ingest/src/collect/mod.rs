//! What the node, its processes and telem itself are doing, sampled on aligned ticks.
//!
//! The one idea: a subject (one file here) reads its files again at every tick and puts values
//! into slots, series whose ids were asked for once.

pub mod catalog;

pub use catalog::{Described, catalog, describe};
