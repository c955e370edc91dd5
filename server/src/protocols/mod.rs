//! One folder per protocol: each turns requests into samples, a time-series query or SQL, and renders the answer.

pub mod client;
pub mod dragon;
pub mod influx;
pub mod info;
pub mod job;
pub mod opentsdb;
pub mod page;
pub mod proxy;
pub mod sql;
