//! Quotes words for a shell.

use std::borrow::Cow;

/// As a shell reads it back.
pub fn quoted(text: &str) -> String {
    // Allowed to hold NUL it refuses nothing.
    shlex::Quoter::new().allow_nul(true).quote(text).map_or_else(|_| text.to_owned(), Cow::into_owned)
}
