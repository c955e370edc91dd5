//! How soon freed memory goes back to the system.
//!
//! Under load a body, an answer and what a merge unpacked are each freed and asked for anew within a second, which is
//! how long the allocator of the binary keeps memory by itself: it held as much again as the samples took. What is
//! wanted again at once and is large, pages of memtables, the engine keeps. Whoever sets MIMALLOC_PURGE_DELAY, in
//! milliseconds, is obeyed instead.

use std::ffi::{c_int, c_long};

// Its library is linked where a crate names it.
use mimalloc as _;

/// `mi_option_purge_delay` in mimalloc.h of version 3.
const PURGE_DELAY: c_int = 15;
/// Memory that was free for so long goes back. Half of it costs page faults and saves next to nothing.
const PURGE_DELAY_MS: c_long = 50;

#[allow(unsafe_code, reason = "the crate of the allocator has no way to set its options")]
// SAFETY: declared as in mimalloc.h of the version that is linked.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Called once, before there is another thread.
#[allow(unsafe_code, reason = "see above")]
pub fn give_back_soon() {
    // SAFETY: sets a number that the allocator reads when it frees; nothing points to it. No other thread is there.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "reads an option")]
mod tests {
    use super::*;

    /// An option that another version of the allocator has in this place would hold another number before.
    #[test]
    fn the_option_that_is_set_is_that_of_the_delay() {
        // SAFETY: reads a number.
        let delay = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay(), 1_000, "what version 3 of mimalloc does by itself");
        give_back_soon();
        assert_eq!(delay(), PURGE_DELAY_MS);
    }
}
