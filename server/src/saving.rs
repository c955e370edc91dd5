//! The saving of a job: a copy of each live database, in a lasting place.
//!
//! [`save`] extends the copy while the job runs, in a directory that [`claim`] reserves. If a node cannot write there,
//! [`upload`] sends its files through the head. [`saved`] finds the databases in directories that a user names.

pub mod claim;
pub mod save;
pub mod saved;
pub mod upload;
