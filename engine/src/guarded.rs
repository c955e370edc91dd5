//! Guards calls of the Parquet reader, which panics on some files that no writer makes, even if their checksums match.
//!
//! The caller gets the same error as for any other damaged file, and goes on.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};

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

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic")
}

#[cfg(test)]
mod tests;
