//! Signals while a job runs: which of them telem catches, and which it passes on.
//!
//! What a terminal sends goes to the whole process group, so the job has it already. What somebody sends to
//! telem's process id was meant for the job. The kernel says which was which. A signal that was ignored when
//! telem started stays ignored, so that the job inherits that too (`nohup`, a shell's background).
//!
//! Job control (TSTP, TTIN, TTOU, CONT) is left to the terminal, which stops and continues the whole group.

use std::io;
use std::sync::mpsc::Sender;
use std::{fs, thread};

use rustix::process::{Signal, getpid};
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use super::Event;

/// Those that are passed on. XFSZ is among them because a full quota must not end telem before the job.
const CAUGHT: [i32; 10] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ, SIGURG];

/// A signal that telem got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub signal: Signal,
    /// Sent by another process, not by the kernel (a terminal, a limit).
    pub sent: bool,
}

impl Received {
    /// Whether the job has to be given it: `false` when the terminal already did, and for telem's own limits.
    pub fn is_for_the_job(self, session_leader: bool) -> bool {
        // A terminal that hangs up tells the leader of its session alone.
        self.sent || (self.signal == Signal::HUP && session_leader)
    }

    /// Whether this may be the last moment to save anything.
    pub fn is_a_farewell(self) -> bool {
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::XCPU].contains(&self.signal)
    }

    /// Whether the end is near for telem itself: Slurm and others send this, wait, and kill.
    pub fn hurries(self) -> bool {
        self.sent && [Signal::TERM, Signal::INT, Signal::XCPU].contains(&self.signal)
    }

    /// Whether a process that does nothing about it lives on.
    pub fn is_harmless(self) -> bool {
        self.signal == Signal::URG || (!self.sent && [Signal::XFSZ, Signal::XCPU].contains(&self.signal))
    }
}

/// Sends an event for every signal from now on, and for every change of a child.
///
/// # Errors
/// When the operating system refuses a handler or a thread.
pub fn start(events: Sender<Event>) -> io::Result<()> {
    let ignored = ignored();
    let caught = CAUGHT.into_iter().filter(|signal| ignored & bit(*signal) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(caught.chain([SIGCHLD]))?;
    let run = move || {
        for origin in signals.forever() {
            if let Some(event) = event(&origin)
                && events.send(event).is_err()
            {
                // Nobody waits for signals any more: the process is about to end.
                return;
            }
        }
    };
    thread::Builder::new().name("telem-signals".to_owned()).spawn(run)?;
    Ok(())
}

fn event(origin: &Origin) -> Option<Event> {
    if origin.signal == SIGCHLD {
        return Some(Event::ChildChanged);
    }
    let signal = Signal::from_named_raw(origin.signal)?;
    let sender = origin.process.map(|process| process.pid);
    let sent = was_sent(origin.cause, sender, getpid().as_raw_nonzero().get());
    Some(Event::Signal(Received { signal, sent }))
}

/// Whether another process sent it. The kernel names ourselves for a write beyond a limit of ours (SIGXFSZ).
fn was_sent(cause: Cause, sender: Option<i32>, own: i32) -> bool {
    cause != Cause::Kernel && sender != Some(own)
}

/// Whether this process leads its session, and so is the only one that a terminal tells when it hangs up.
///
/// From procfs, because getsid(2) knows no number for a session whose leader is in another PID namespace, as in
/// containers.
pub fn leads_its_session() -> bool {
    leads_in(&fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

fn leads_in(stat: &str) -> bool {
    // pid (comm) state ppid pgrp session: proc_pid_stat(5). The name may hold anything, also parentheses.
    let pid = stat.split(' ').next();
    let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(3));
    session.is_some() && session == pid
}

/// The signals that this process ignores, bit `n - 1` for signal `n`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status)
}

fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::siginfo::Sent;

    use super::*;

    const fn got(signal: Signal, sent: bool) -> Received {
        Received { signal, sent }
    }

    #[test]
    fn what_was_sent_to_telem_is_passed_on_and_what_the_terminal_sent_is_not() {
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::URG] {
            assert!(got(signal, true).is_for_the_job(false), "{signal:?}");
            assert!(!got(signal, false).is_for_the_job(false), "{signal:?}");
        }
        assert!(got(Signal::HUP, false).is_for_the_job(true), "a hang-up reaches the session's leader only");
        assert!(!got(Signal::INT, false).is_for_the_job(true));
    }

    #[test]
    fn what_a_limit_of_telems_own_brings_is_not_sent() {
        let kill = Cause::Sent(Sent::User);
        assert!(was_sent(kill, Some(1), 42) && was_sent(kill, Some(0), 42) && was_sent(Cause::Unknown, None, 42));
        assert!(!was_sent(Cause::Kernel, None, 42));
        assert!(!was_sent(kill, Some(42), 42), "a write beyond the limit of a file's size");
        assert!(!got(Signal::XFSZ, false).is_for_the_job(true) && got(Signal::XFSZ, false).is_harmless());
    }

    #[test]
    fn a_scheduler_hurries_and_a_person_at_the_terminal_does_not() {
        assert!(got(Signal::TERM, true).hurries());
        assert!(!got(Signal::INT, false).hurries() && got(Signal::INT, false).is_a_farewell());
        assert!(!got(Signal::USR1, true).is_a_farewell());
    }

    #[test]
    fn the_leader_of_a_session_is_read_from_the_stat_of_the_process() {
        assert!(leads_in("42 (telem) S 1 42 42 34816 42"));
        assert!(leads_in("42 (a) 7 (b) S 1 42 42 34816 42"));
        assert!(!leads_in("42 (telem) S 1 42 7 34816 42"));
        assert!(!leads_in("42 (telem) S 1 42 0 0 -1"), "the session's leader is in another namespace");
        assert!(!leads_in(""));
    }

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status = "Name:\ttelem\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\nSigCgt:\t0\n";
        assert_eq!(ignored_in(status), bit(SIGHUP) | bit(SIGINT) | bit(13));
        assert_eq!(ignored_in(""), 0);
    }
}
