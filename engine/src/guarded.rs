//! Guards calls of the Parquet reader, which panics on some files that no writer makes, even if their checksums match;
//! and says in plain words what it said.
//!
//! The caller gets the same error as for any other damaged file, and goes on.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};

/// What stands before the texts of errors of Parquet, and of Arrow around them.
const KINDS: [&str; 6] =
    ["Parquet argument error: ", "Parquet error: ", "External error: ", "External: ", "Arrow: ", "Io error: "];

/// What `read` gives, where a panic is Corrupt. Whatever it was using must not be used again then.
///
/// # Errors
/// Those of `read`; Corrupt.
pub fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        Err(Error::Corrupt {
            path: path.to_path_buf(),
            what: "its Parquet".to_owned(),
            found: format!("what its reader does not expect ({})", said(&*panic)),
            expected: "what telem writes".to_owned(),
        })
    })
}

/// What an error of the Parquet reader says, without the names of its kinds: those are words of its own code.
pub fn plainly(error: &dyn fmt::Display) -> String {
    let mut text = error.to_string();
    while let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) {
        text = rest.to_owned();
    }
    text.strip_prefix("EOF: ").map_or_else(|| text.clone(), |rest| format!("an early end: {rest}"))
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}

#[cfg(test)]
mod tests;
