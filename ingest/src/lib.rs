//! Turns the outside into samples: collectors, wire decoders, limits, and the one writer of a database.
//!
//! This crate sees no query. It stands on `telem-engine`, and opens no socket: a server, or a program that embeds
//! telem, supplies the bytes.
//!
//! # Example
//! This is `examples/write.rs`; `cargo run -p telem-ingest --example write` runs it.
//! ```
#![doc = include_str!("../examples/write.rs")]
//! ```
//!
//! # Where to begin
//! There are two ways in. Bytes go through [`decode`], [`accept`] and [`writer`] to the engine; ticks of [`schedule`]
//! let [`collect`] sample this machine, and its samples go to the [`writer`] too. A [`Writer`] does the decoding and
//! checking as well: [`Writer::accept_lines`] takes line protocol, [`Writer::accept_points`], [`Writer::accept_puts`]
//! and [`Writer::accept`] take OpenTSDB's data points. Each returns a batch of good samples for [`Writer::submit`], and
//! the rejects with their reasons.
//!
//! | module | contents |
//! |---|---|
//! | [`writer`] | a bounded queue, batches in order, group commit |
//! | [`accept`] | limits and validation: a batch, and rejects with their reasons |
//! | [`decode`] | one file per wire format: line protocol, OpenTSDB's put and telnet |
//! | [`known`] | remembers what the raw bytes of names mean |
//! | [`default_tags`], [`rank`] | the `host` and `rank` of a sending process |
//! | [`collect`] | the node and the processes of a job, sampled |
//! | [`schedule`] | aligned ticks |
//! | [`own_thread`] | threads that end with their work |
//!
//! # Errors
//! A bad sample is never an error of its request: it becomes a reject with a [`accept::Reason`]. [`writer::WriteError`]
//! tells why a batch was not stored; `Busy` means to try again in a moment.
//!
//! # Features
//! `fuzzing` exposes the bodies of the fuzz targets. There are no others.

pub mod accept;
pub mod collect;
pub mod counters;
pub mod decode;
pub mod default_tags;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod known;
pub mod limits;
pub mod own_thread;
pub mod rank;
pub mod schedule;
pub mod writer;

pub use accept::lines::{AcceptedLines, LineRules};
pub use accept::{Accepted, Limits, Reject};
pub use collect::{CollectOptions, Collectors};
pub use decode::line::LinePrecision;
pub use default_tags::DefaultTags;
pub use schedule::Schedule;
pub use writer::{WriteError, Writer, WriterOptions, WriterStats};
