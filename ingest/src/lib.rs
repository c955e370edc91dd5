//! Everything that turns the outside into samples: collectors, wire decoders, limits, the one writer.
//!
//! Never sees a query. The way in: [`decode`] -> [`accept`] -> [`writer`] -> the engine, and beside it
//! [`schedule`] -> [`collect`] -> [`writer`].

pub mod accept;
pub mod collect;
pub mod decode;
pub mod default_tags;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod known;
pub mod limits;
pub mod rank;
pub mod schedule;
pub mod writer;
