//! How soon freed memory goes back to the system.
//!
//! Under load a body, an answer and what a merge unpacked are each freed and asked for anew within a second, which is
//! how long the allocator of the binary keeps memory by itself: it held as much again as the samples took. What is
//! wanted again at once and is large, pages of memtables, the engine keeps. Whoever sets MIMALLOC_PURGE_DELAY, in
//! milliseconds, is obeyed instead.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::time::Duration;

// Its library is linked where a crate names it.
use mimalloc as _;
use telem_engine::Clock;
use tokio::time::Instant;

/// `mi_option_purge_delay` in mimalloc.h of version 3.
const PURGE_DELAY: c_int = 15;
/// Memory that was free for so long goes back. Half of it costs page faults and saves next to nothing.
const PURGE_DELAY_MS: c_long = 50;
/// How often the threads of a service are woken, in microseconds.
const WAKE_INTERVAL_US: i64 = 1_000_000;
/// A thread that did nothing for so long gives back what it has: all but the time between two wakes.
const REST_MIN: Duration = Duration::from_millis(900);

#[allow(unsafe_code, reason = "the crate of the allocator has no way to set its options")]
// SAFETY: declared as in mimalloc.h of the version that is linked.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    fn mi_collect(force: bool);
    fn mi_option_get(option: c_int) -> c_long;
    #[cfg(test)]
    fn mi_malloc(bytes: usize) -> *mut u8;
    #[cfg(test)]
    fn mi_free(block: *mut u8);
}

/// Called once, before there is another thread.
#[allow(unsafe_code, reason = "see above")]
pub fn give_back_soon() {
    // SAFETY: sets a number that the allocator reads when it frees; nothing points to it. No other thread is there.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Gives back at once what is free: pages of this thread that hold nothing, and those that no thread has. By itself the
/// allocator keeps an empty page of each size for the thread that used it, and looks at the others only while memory is
/// asked for or a thread ends, which may be long after. For the moment before work that takes much memory for a while,
/// too: a page of up to 4 MiB that it fills in part keeps all of what others left there. Where the environment sets
/// another delay than ours, that is waited for.
#[allow(unsafe_code, reason = "see above")]
pub fn give_back() {
    // SAFETY: reads a number, and frees pages that hold nothing; any thread may call both at any time.
    unsafe { mi_collect(mi_option_get(PURGE_DELAY) == PURGE_DELAY_MS) }
}

/// [`give_back`] for a thread that is about to rest and did so all the time since it last came here: what requests took
/// would stay with it until others come. Where they come one after the other it keeps that, or each would find its memory
/// gone.
pub fn give_back_at_rest() {
    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    let now = Instant::now();
    if has_rested(LAST.replace(Some(now)), now) {
        give_back();
    }
}

fn has_rested(last: Option<Instant>, now: Instant) -> bool {
    last.is_some_and(|last| now.saturating_duration_since(last) >= REST_MIN)
}

/// Wakes the workers of this runtime that rest, for ever, so that they come to [`give_back_at_rest`]. At the full second,
/// when collectors work, too: a job is disturbed once, and on all nodes at the same time.
pub async fn wake_workers_forever(clock: &dyn Clock) {
    loop {
        let beyond = clock.now().micros().rem_euclid(WAKE_INTERVAL_US);
        tokio::time::sleep(Duration::from_micros((WAKE_INTERVAL_US - beyond) as u64)).await;
        // Of a task that begins one worker is told; of a second one, another.
        for _ in 0..2 {
            drop(tokio::spawn(async {}));
        }
    }
}

#[cfg(test)]
#[allow(unsafe_code, reason = "asks the allocator itself, which tests do not use otherwise")]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::LazyLock;

    use super::*;

    /// The delay before it was set, which is done with the first look at this.
    static BEFORE: LazyLock<c_long> = LazyLock::new(|| {
        // SAFETY: reads a number.
        let before = unsafe { mi_option_get(PURGE_DELAY) };
        give_back_soon();
        before
    });

    /// An option that another version of the allocator has in this place would hold another number before.
    #[test]
    fn the_option_that_is_set_is_that_of_the_delay() {
        assert_eq!(*BEFORE, 1_000, "what version 3 of mimalloc does by itself");
        // SAFETY: reads a number.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, PURGE_DELAY_MS);
    }

    const BLOCK_BYTES: usize = 256 << 10;
    const PAGE_BYTES: usize = 4 << 10;

    /// Pages of blocks at these addresses that are in memory.
    fn resident(blocks: &[usize]) -> usize {
        let pages = File::open("/proc/self/pagemap").unwrap();
        let is_resident = |page: usize| {
            let mut entry = [0; 8];
            pages.read_exact_at(&mut entry, (page * 8) as u64).unwrap();
            // Its highest bit: the page is there.
            entry[7] & 0x80 != 0
        };
        let first_and_last = |block: &usize| (block / PAGE_BYTES, (block + BLOCK_BYTES - 1) / PAGE_BYTES);
        blocks.iter().map(first_and_last).map(|(from, to)| (from..=to).filter(|page| is_resident(*page)).count()).sum()
    }

    #[test]
    fn what_was_freed_goes_back_when_it_is_said() {
        LazyLock::force(&BEFORE);
        let blocks: Vec<usize> = (0..64)
            .map(|_| {
                // SAFETY: as malloc's.
                let block = unsafe { mi_malloc(BLOCK_BYTES) };
                assert!(!block.is_null());
                // SAFETY: so many bytes are at `block`.
                unsafe { block.write_bytes(1, BLOCK_BYTES) };
                block.expose_provenance()
            })
            .collect();
        let all = 64 * BLOCK_BYTES / PAGE_BYTES;
        assert!(resident(&blocks) >= all);
        for block in &blocks {
            // SAFETY: it came from there, and nothing uses it any more.
            unsafe { mi_free(std::ptr::with_exposed_provenance_mut(*block)) };
        }
        assert!(resident(&blocks) > all / 2, "the allocator does not keep what is freed, and need not be told");
        give_back();
        assert!(resident(&blocks) < all / 16, "{} pages of {all} stay", resident(&blocks));
    }

    #[test]
    fn a_thread_has_rested_if_it_did_nothing_from_one_wake_to_the_next() {
        let now = Instant::now();
        assert!(!has_rested(None, now), "it begins");
        assert!(!has_rested(Some(now), now + REST_MIN / 2), "it did something meanwhile");
        assert!(has_rested(Some(now), now + Duration::from_micros(WAKE_INTERVAL_US as u64)));
    }
}
