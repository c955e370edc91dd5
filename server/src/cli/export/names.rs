//! File names for metrics: whatever a metric is called, its file has a plain name within the one directory.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Longest stem of a file's name: with its end, and what it is called until it is whole, it stays below the 255 bytes
/// that file systems allow.
const STEM_BYTES_MAX: usize = 180;

/// Gives every metric a file name of its own.
#[derive(Debug, Default)]
pub struct FileNames {
    /// In lower case: some file systems do not tell case apart.
    taken: HashSet<String>,
}

impl FileNames {
    /// The name for `metric`, without the end that tells the format. Letters and digits of ASCII, `_`, `-` and `.` stand
    /// for themselves, except where `.`, `_` and `-` come first: files that begin so are hidden, skipped or taken for
    /// options. Everything else is `%` and two hexadecimal digits a byte. A name that is too long is cut,
    /// and one that is taken already is not given twice: both end with `~` and a number made of the metric.
    pub fn name(&mut self, metric: &str) -> String {
        let mut name = encoded(metric, NON_ALPHANUMERIC, BEHIND_THE_FIRST);
        if name.len() <= STEM_BYTES_MAX && self.taken.insert(name.to_lowercase()) {
            return name;
        }
        name.truncate(whole(&name, STEM_BYTES_MAX - NUMBER_BYTES));
        let mut number = fnv_1a(metric.as_bytes());
        loop {
            let numbered = format!("{name}~{number:016x}");
            if self.taken.insert(numbered.to_lowercase()) {
                return numbered;
            }
            number = number.wrapping_add(1);
        }
    }

    /// Whether a name was free, which it is not any more.
    pub fn take(&mut self, name: &str) -> bool {
        self.taken.insert(name.to_lowercase())
    }
}

/// What stands for something else behind the first character: all but letters, digits, `_`, `-` and `.`.
const BEHIND_THE_FIRST: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.');

/// `text` with `%` and two hexadecimal digits for each byte that its place does not allow.
pub fn encoded(text: &str, first: &'static AsciiSet, behind: &'static AsciiSet) -> String {
    let (one, more) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    utf8_percent_encode(one, first).chain(utf8_percent_encode(more, behind)).collect()
}

/// So many bytes of an encoded name at most, which end with a whole character of it.
fn whole(name: &str, bytes_max: usize) -> usize {
    let end = bytes_max.min(name.len());
    name[..end].rfind('%').filter(|at| end - at < 3).unwrap_or(end)
}

/// `~` and 16 digits.
const NUMBER_BYTES: usize = 17;

/// FNV-1a of 64 bits: the same in every version and on every machine, so that a metric keeps its file.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
