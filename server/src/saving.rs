//! What a job keeps: a copy of each live database, in a lasting place.
//!
//! [`save`] lets the copy grow while the job runs, in a directory that is [`claim`]ed; where a node cannot write there,
//! [`upload`] takes its files at the head. [`saved`] finds the databases again that somebody names.

pub mod claim;
pub mod save;
pub mod saved;
pub mod upload;
