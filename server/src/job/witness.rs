//! Determines whether a signal that telem got was sent to its whole process group, and so to the command as well.
//!
//! The kernel does not tell to whom a signal was sent. So a witness, a process that holds nothing, is in the same group
//! and dies of any signal that is sent to it. If it died of the same signal, the command got that signal too and does
//! not get it twice. The witness ends with telem, because its stdin does.
//!
//! Nothing is known of another signal that comes within the milliseconds before the next witness runs. That signal is
//! passed on, because a signal that comes twice is better than one that never comes.

use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Pid, Resource, Rlimit, WaitStatus, prlimit};

use super::signals::{bit, mask_in};

/// How long a signal to a group takes to reach all of it, at most, on a busy node.
const PATIENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(1);
/// For so long the death of a witness waits for the signal that telem got itself: events are handled one by one, and
/// a busy node takes its time.
const VALIDITY: Duration = Duration::from_secs(5);
/// From then on it tells for so long of every signal of that number: senders often send twice, to a process and to its
/// group.
const ECHO: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Witness {
    alive: Option<Alive>,
    /// One could not be had, or ended without a signal: there is to be no other.
    useless: bool,
    /// Those that still tell something: one may follow before the signal of the last was handled.
    deaths: Vec<Death>,
}

#[derive(Debug)]
struct Alive {
    pid: Pid,
    /// It reads from this, and so lives no longer than telem.
    _stdin: Option<ChildStdin>,
}

#[derive(Clone, Copy, Debug)]
struct Death {
    signal: i32,
    /// It is not reported later.
    until: Duration,
    told: bool,
}

impl Witness {
    /// Starts a witness, unless there is one. If the system has no process to spare, there is none.
    pub fn call(&mut self) {
        if self.alive.is_some() || self.useless {
            return;
        }
        let mut cat = Command::new("/bin/cat");
        cat.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match cat.spawn() {
            Ok(mut process) => {
                let pid = Pid::from_child(&process);
                // With this limit the kernel neither writes a core dump nor hands one to a program.
                let none = Rlimit { current: Some(1), maximum: Some(1) };
                let _ = prlimit(Some(pid), Resource::Core, none);
                self.alive = Some(Alive { pid, _stdin: process.stdin.take() });
            }
            Err(error) => {
                tracing::debug!(%error, "signals to the group reach the command twice");
                self.useless = true;
            }
        }
    }

    /// Takes note of what wait(2) said at `time`, if it is about the witness.
    pub fn became(&mut self, pid: Pid, status: WaitStatus, time: Duration) {
        if status.stopped() || self.alive.as_ref().is_none_or(|alive| alive.pid != pid) {
            return;
        }
        self.alive = None;
        self.useless = !status.signaled();
        let death = status.terminating_signal().map(|signal| Death { signal, until: time + VALIDITY, told: false });
        self.deaths.retain(|old| time < old.until && death.is_none_or(|death| death.signal != old.signal));
        self.deaths.extend(death);
    }

    /// Whether `signal`, which telem has just got, was sent to the group. `now` tells the time, and `reap` waits for
    /// children that ended. Takes [`PATIENCE`] at most.
    pub fn saw(&mut self, signal: i32, now: impl Fn() -> Duration, mut reap: impl FnMut(&mut Self)) -> bool {
        let deadline = now() + PATIENCE;
        loop {
            reap(self);
            let time = now();
            if let Some(death) = self.deaths.iter_mut().find(|death| death.signal == signal && time < death.until) {
                if !std::mem::replace(&mut death.told, true) {
                    death.until = time + ECHO;
                }
                return true;
            }
            // Stopped, it keeps what it is to die of.
            let Some(alive) = &self.alive else { return false };
            let status = fs::read_to_string(format!("/proc/{}/status", alive.pid.as_raw_nonzero()));
            if mask_in(&status.unwrap_or_default(), "ShdPnd:") & bit(signal) != 0 {
                return true;
            }
            if time >= deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
    }
}
