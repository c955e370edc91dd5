use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use telem_engine::Timestamp;

use super::*;

/// A clock on which five seconds pass from one look to the next.
#[derive(Debug, Default)]
struct Hurried(AtomicU64);

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(5, Ordering::Relaxed))
    }
}

/// Whose patience ends after so many looks.
struct Looks {
    left: AtomicU64,
    asked: Mutex<Vec<Duration>>,
}

impl Looks {
    fn new(left: u64) -> Self {
        Self { left: AtomicU64::new(left), asked: Mutex::default() }
    }
}

impl Patience for Looks {
    fn ask(&self, time: Duration) {
        self.asked.lock().unwrap().push(time);
    }

    fn is_over(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

/// Looks for a head in an empty directory.
fn sought(patience: &Looks) -> String {
    let dir = tempfile::tempdir().unwrap();
    let seeking = Seeking { patience, notes: Notes { quiet: true }, clock: &Hurried::default(), is_here: &|| false };
    seeking.head(&dir.path().join("head"), "7", Vec::new()).unwrap_err()
}

#[test]
fn a_head_is_waited_for_a_minute_and_the_command_with_it() {
    let patience = Looks::new(1_000);
    let why = sought(&patience);
    assert!(why.starts_with("there is no head after 60 s: cannot read "), "{why}");
    assert_eq!(*patience.asked.lock().unwrap(), [Duration::from_secs(60)]);
    assert_eq!(patience.left.load(Ordering::Relaxed), 1_000 - 11, "a look every five seconds, before the last");
}

#[test]
fn a_head_is_not_waited_for_when_nobody_waits_for_this_process() {
    let why = sought(&Looks::new(2));
    assert!(why.starts_with("the wait for the head has ended: "), "{why}");
}
