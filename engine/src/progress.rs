//! Progress of long work on the files of a database.

use std::path::Path;

/// How far a check or a repair is.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file that was just checked.
    pub file: &'a Path,
    pub bytes_done: u64,
    pub bytes_total: u64,
}
