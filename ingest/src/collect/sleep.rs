//! Cards that sleep: they are not woken, and those that would like to sleep are not kept awake.
//!
//! The one idea: `power/runtime_status` can be read without waking a card, and nothing else of it is opened before that
//! file says that it is awake. Each answer of a card that may sleep puts its sleep off, so one that does nothing for
//! [`QUIET_FOR`] is not asked for [`LET_GO_FOR`]; if it is still awake then, somebody else holds it, and it is not let go
//! again so soon. The words are those of the kernel's `Documentation/ABI/testing/sysfs-devices-power`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use telem_engine::Timestamp;

/// How long a card does nothing before it is let go.
pub const QUIET_FOR: Duration = Duration::from_secs(30);
/// How long it is not asked then. Drivers let a card sleep 1 to 10 s after its last use.
pub const LET_GO_FOR: Duration = Duration::from_secs(15);
/// How long a card does nothing before it is let go, when it did not sleep the time before: somebody else holds it awake,
/// and letting go costs samples only.
pub const QUIET_FOR_HELD: Duration = Duration::from_secs(600);

/// How a card is before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakefulness {
    Awake,
    Asleep,
    /// There is no such card any more.
    Gone,
}

/// Of the card with that directory. Opens `power/runtime_status` and nothing else.
pub fn wakefulness(device: &Path) -> Wakefulness {
    match fs::read(device.join("power/runtime_status")) {
        Ok(status) => of_status(&status),
        // A kernel without power management has no such file.
        Err(_) if device.is_dir() => Wakefulness::Awake,
        Err(_) => Wakefulness::Gone,
    }
}

/// What is unknown or `unsupported` never sleeps.
pub fn of_status(status: &[u8]) -> Wakefulness {
    match status.trim_ascii() {
        b"suspended" | b"suspending" | b"resuming" => Wakefulness::Asleep,
        _ => Wakefulness::Awake,
    }
}

/// Whether somebody works on a card, and until when it is let go.
#[derive(Debug, Default)]
pub struct QuietWatch {
    quiet_since: Option<Timestamp>,
    let_go: Option<Timestamp>,
    /// It was let go, and did not sleep.
    is_held: bool,
}

impl QuietWatch {
    pub fn may_ask(&mut self, now: Timestamp) -> bool {
        let waits = self.let_go.is_some_and(|since| is_within(LET_GO_FOR, since, now));
        if !waits && self.let_go.take().is_some() {
            self.quiet_since = None;
            self.is_held = true;
        }
        !waits
    }

    /// Takes in what an awake card said of its work; `None` is not known, which is no reason to hold it.
    pub fn hear(&mut self, utilization_percent: Option<f64>, device: &Path, now: Timestamp) {
        // What is derived from idle time is hardly ever exactly zero.
        if utilization_percent.is_some_and(|percent| percent >= 1.0) {
            self.quiet_since = None;
            return;
        }
        let since = *self.quiet_since.get_or_insert(now);
        if is_within(if self.is_held { QUIET_FOR_HELD } else { QUIET_FOR }, since, now) {
            return;
        }
        self.quiet_since = None;
        // Cards of servers stay on, whoever asks them.
        if fs::read(device.join("power/control")).is_ok_and(|control| control.trim_ascii() == b"auto") {
            self.let_go = Some(now);
        }
    }

    /// It sleeps.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// A clock that was set back ends every wait.
fn is_within(time: Duration, since: Timestamp, now: Timestamp) -> bool {
    let passed = u64::try_from(now.micros() - since.micros()).ok().map(Duration::from_micros);
    passed.is_some_and(|passed| passed < time)
}
