//! The one integration test of telem: everything that needs more than one crate, or the real binary.
//!
//! Read [`oracle`] first: the naive answer that everything else is measured against. One binary, so that
//! DataFusion is linked once; run a part of it with `./test rust NAME`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod adding;
mod architecture;
mod bad_input;
mod check;
mod circles;
mod client_frames;
mod collect;
mod compact;
mod dashboards;
mod diff;
mod disk;
mod dragon;
mod export;
mod floors;
mod grafana;
mod hardware;
mod hostile;
mod import;
mod influx;
mod jobs;
mod kill;
mod launch;
mod limits;
mod many_runs;
mod memory;
mod names;
mod nodes;
mod opentsdb;
mod oracle;
mod page;
mod pages;
mod process;
mod property;
mod prose;
mod proxy;
mod proxy_tree;
mod real;
mod recorded;
mod replay;
mod report;
mod run;
mod runs;
mod saving;
mod script;
mod slt_scripts;
mod spread;
mod strangers;
mod tail;
mod top;
mod tsq_scripts;

/// What drives the few asynchronous calls of these tests.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
