//! The server of telem: HTTP, protocols, command line.
//!
//! It knows no storage internals: only a [`telem_engine::Db`], its snapshots and the domain types. It is a library so
//! that tests can use every part of it; the binary is `main.rs`, which calls [`cli::main`]. Read [`state`] first: what
//! every request handler gets. Then read [`protocol`]: what answers; [`service::router`]: which protocols there are;
//! and [`net`]: which requests come that far. The modules stand on floors, and each uses only those below its own
//! (ARCHITECTURE.md).

pub mod agent;
pub mod allocator;
pub mod answers;
pub mod cli;
pub mod client;
pub mod config;
pub mod connection;
pub mod cors;
pub mod footprint;
pub mod http;
pub mod info;
pub mod job;
pub mod join;
pub mod launch;
pub mod limits;
pub mod membership;
pub mod memory;
pub mod missing;
pub mod net;
pub mod page;
pub mod private_dir;
pub mod private_file;
pub mod protocol;
pub mod protocols;
pub mod rows;
pub mod saving;
pub mod self_metrics;
pub mod service;
pub mod settings;
pub mod shell;
pub mod slots;
pub mod startup;
pub mod state;
#[cfg(test)]
mod testing;
pub mod tls;
pub mod token;
pub mod walks;
