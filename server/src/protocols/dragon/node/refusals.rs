//! What the port refuses, said in the log once a reason: its clients read no answer.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Most reasons that are told; then one line says that there are more.
pub const REASONS_MAX: usize = 64;
/// Longest reason that is told, in characters, and the longest of its kind: paths and names come from outside.
const REASON_CHARS_MAX: usize = 512;
/// Longest kind of a reason that is told apart, in characters.
const KIND_CHARS_MAX: usize = 256;

/// The reasons that were told.
#[derive(Debug, Default)]
pub struct RefusalLog {
    told: Mutex<BTreeSet<String>>,
}

impl RefusalLog {
    /// Tells `reason`, unless one of its `kind` was told before. Whether it was told.
    pub fn tell(&self, kind: &str, reason: &str) -> bool {
        let kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
        let reasons = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() > REASONS_MAX || !told.insert(kind) {
                return false;
            }
            told.len()
        };
        if reasons > REASONS_MAX {
            tracing::warn!("Dragon's port refuses more, for reasons beyond the {REASONS_MAX} that were told");
            return false;
        }
        let told = |c: char| if c.is_control() { ' ' } else { c };
        let reason: String = reason.chars().map(told).take(REASON_CHARS_MAX).collect();
        tracing::warn!("Dragon's port refuses this, which its sender does not notice: {reason} (told once)");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_and_their_number_is_bounded() {
        let log = RefusalLog::default();
        assert!(log.tell("null", "the value of a is null") && !log.tell("null", "the value of b is null"));
        assert_eq!((1..200).filter(|nth| log.tell(&format!("path /{nth}"), "no")).count(), REASONS_MAX - 1);
        assert!(log.told.lock().unwrap().len() <= REASONS_MAX + 1);
    }
}
