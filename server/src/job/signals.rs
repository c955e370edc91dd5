//! Signals while a job runs: which of them telem catches, and which it passes on.
//!
//! A signal from a terminal goes to the whole process group, so the job has got it already; the kernel tells which
//! signals were sent that way. A signal from a process may be sent to telem's process id alone or to its whole group,
//! which [`super::witness`] distinguishes. A signal that was ignored when telem started stays ignored, so that the job
//! inherits that too (`nohup`, a shell's background).
//!
//! TSTP, TTIN and TTOU are left to the terminal, which stops the whole group. Besides the signals that cannot be
//! caught, telem does not catch ABRT, BUS, SYS and TRAP: they mean that a process has a bug, and then it is telem
//! itself.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::{fs, io, thread};

use rustix::process::{Signal, getpid};
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGURG, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::{Cause, Origin};

use crate::startup;

/// Those that are passed on and have a name everywhere. XFSZ is among them because a full quota must not end telem
/// before the job; CONT is passed on to a job that is stopped.
const CAUGHT: [i32; 14] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGXFSZ, SIGURG, SIGCONT, SIGIO, SIGPROF,
    SIGVTALRM,
];
/// Those that only Linux has: STKFLT and PWR.
const OF_LINUX: [i32; 2] = [Signal::STKFLT.as_raw(), Signal::POWER.as_raw()];
/// The real-time signals that programs may use; C libraries keep the first two or three, and refuse them.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The two that glibc uses for its threads. No process can catch them, telem included: it dies of them.
const INTERNAL: [i32; 2] = [32, 33];

/// A signal that telem got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub number: i32,
    /// Sent by another process, not by the kernel (a terminal, a limit).
    pub sent: bool,
}

impl Received {
    /// Whether the job may have to be given it: `false` for telem's own limits, and when the terminal already did.
    pub fn is_for_the_job(self, standing: Standing) -> bool {
        // A terminal that hangs up tells the leader of its session alone.
        self.sent || (self.number == SIGHUP && standing.leads_session)
    }

    /// Whether a terminal sends this to its foreground group.
    pub fn is_of_a_terminal(self) -> bool {
        !self.sent && [SIGINT, SIGQUIT].contains(&self.number)
    }

    /// Whether this may be the last moment to save anything.
    pub fn is_a_farewell(self) -> bool {
        [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU].contains(&self.number)
    }

    /// Whether the end is near for telem itself: Slurm and others send this, wait, and kill.
    pub fn hurries(self) -> bool {
        self.sent && [SIGTERM, SIGINT, SIGXCPU].contains(&self.number)
    }

    /// Whether a process that does nothing about it lives on.
    pub fn is_harmless(self) -> bool {
        [SIGURG, SIGCONT].contains(&self.number) || (!self.sent && [SIGXFSZ, SIGXCPU].contains(&self.number))
    }
}

/// What the thread for signals tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caught {
    Signal(Received),
    /// A child ended, stopped or went on.
    Child,
}

/// Sends an event for every signal from now on, and for every change of a child.
///
/// # Errors
/// When the operating system refuses a handler or a thread.
pub fn start<E: From<Caught> + Send + 'static>(events: Sender<E>) -> io::Result<()> {
    let ignored = ignored();
    let caught = CAUGHT.into_iter().chain(OF_LINUX).filter(|signal| ignored & bit(*signal) == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(caught.chain([SIGCHLD]))?;
    for signal in REAL_TIME.filter(|signal| ignored & bit(*signal) == 0) {
        if let Err(error) = signals.add_signal(signal) {
            tracing::debug!(%error, signal, "this signal is not passed on");
        }
    }
    let run = move || {
        for origin in signals.forever() {
            if events.send(caught_of(&origin).into()).is_err() {
                // Signals are not awaited any more: the process is about to end.
                return;
            }
        }
    };
    thread::Builder::new().name("telem-signals".to_owned()).spawn(run)?;
    Ok(())
}

/// A write beyond the limit of a file's size (`ulimit -f`) fails from now on, as on a full disk, and does not end the
/// process. Whatever this process starts has the signal as it was: one that was ignored stays so, and one that is caught
/// here is not caught there.
pub fn outlive_file_limit() {
    if ignored() & bit(SIGXFSZ) != 0 {
        return;
    }
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::debug!(%error, "a write beyond the limit of a file's size ends the process");
    }
}

fn caught_of(origin: &Origin) -> Caught {
    if origin.signal == SIGCHLD {
        return Caught::Child;
    }
    let sender = origin.process.map(|process| process.pid);
    let sent = was_sent(origin.cause, sender, getpid().as_raw_nonzero().get());
    Caught::Signal(Received { number: origin.signal, sent })
}

/// Whether another process sent it. The kernel names ourselves for a write beyond a limit of ours (SIGXFSZ).
fn was_sent(cause: Cause, sender: Option<i32>, own: i32) -> bool {
    cause != Cause::Kernel && sender != Some(own)
}

/// The session, group and terminal of this process: proc_pid_stat(5).
///
/// From procfs, because getsid(2) knows no number for a session whose leader is in another PID namespace, as in
/// containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// It leads its session, and so is the only one that a terminal tells when it hangs up.
    pub leads_session: bool,
    /// It leads the group in the foreground of a terminal, below a shell that waits for it to stop as well as to end.
    pub is_a_shells_job: bool,
}

impl Standing {
    pub fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/self/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Self {
        // pid (comm) state ppid pgrp session tty_nr tpgid. The name may hold anything, also parentheses.
        let pid = stat.split(' ').next();
        let rest = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let mut fields = rest.split_ascii_whitespace().skip(2);
        let [group, session, terminal, foreground] = [(); 4].map(|()| fields.next());
        let leads_session = session.is_some() && session == pid;
        let leads_foreground = group.is_some() && group == pid && foreground == pid;
        let is_a_shells_job = leads_foreground && !leads_session && terminal != Some("0");
        Self { leads_session, is_a_shells_job }
    }
}

/// The signals that this process ignores, bit `n - 1` for signal `n`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask_in(&status, "SigIgn:")
}

/// Whether this process was started with SIGPIPE ignored: Rust's runtime ignores it in any case.
pub fn inherited_ignored_pipe() -> bool {
    mask_in(startup::status(), "SigIgn:") & bit(Signal::PIPE.as_raw()) != 0
}

/// Whether this process was started by nohup(1), or by whoever else wants it to outlive a terminal.
pub fn inherited_ignored_hang_up() -> bool {
    mask_in(startup::status(), "SigIgn:") & bit(SIGHUP) != 0
}

/// Whether this process was started with those signals ignored that the C library keeps to itself. It is what
/// posix_spawn(3) does to its children, also to telem itself; asking for a group id would undo it for one of them.
pub fn inherited_ignored_internal() -> bool {
    INTERNAL.iter().all(|signal| mask_in(startup::status(), "SigIgn:") & bit(*signal) != 0)
}

/// A set of signals in the status of a process, bit `n - 1` for signal `n`; none where it is not there.
pub fn mask_in(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

pub fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::siginfo::Sent;

    use super::*;

    const LEADER: Standing = Standing { leads_session: true, is_a_shells_job: false };
    const MEMBER: Standing = Standing { leads_session: false, is_a_shells_job: false };

    const fn got(number: i32, sent: bool) -> Received {
        Received { number, sent }
    }

    #[test]
    fn what_was_sent_to_telem_is_passed_on_and_what_the_terminal_sent_is_not() {
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGURG] {
            assert!(got(signal, true).is_for_the_job(MEMBER), "{signal}");
            assert!(!got(signal, false).is_for_the_job(MEMBER), "{signal}");
        }
        assert!(got(SIGHUP, false).is_for_the_job(LEADER), "a hang-up reaches the session's leader only");
        assert!(!got(SIGINT, false).is_for_the_job(LEADER));
        assert!(got(SIGINT, false).is_of_a_terminal() && !got(SIGINT, true).is_of_a_terminal());
    }

    #[test]
    fn what_a_limit_of_telems_own_brings_is_not_sent() {
        let kill = Cause::Sent(Sent::User);
        assert!(was_sent(kill, Some(1), 42) && was_sent(kill, Some(0), 42) && was_sent(Cause::Unknown, None, 42));
        assert!(!was_sent(Cause::Kernel, None, 42));
        assert!(!was_sent(kill, Some(42), 42), "a write beyond the limit of a file's size");
        assert!(!got(SIGXFSZ, false).is_for_the_job(LEADER) && got(SIGXFSZ, false).is_harmless());
    }

    #[test]
    fn a_scheduler_hurries_and_a_person_at_the_terminal_does_not() {
        assert!(got(SIGTERM, true).hurries());
        assert!(!got(SIGINT, false).hurries() && got(SIGINT, false).is_a_farewell());
        assert!(!got(SIGUSR1, true).is_a_farewell());
    }

    #[test]
    fn where_the_process_stands_is_read_from_its_stat() {
        let leads_session = |stat| Standing::of(stat).leads_session;
        assert!(leads_session("42 (telem) S 1 42 42 34816 42"));
        assert!(leads_session("42 (a) 7 (b) S 1 42 42 34816 42"));
        assert!(!leads_session("42 (telem) S 1 42 7 34816 42"));
        assert!(!leads_session("42 (telem) S 1 42 0 0 -1"), "the session's leader is in another namespace");
        assert_eq!(Standing::of(""), Standing::default());

        let is_a_shells_job = |stat| Standing::of(stat).is_a_shells_job;
        assert!(is_a_shells_job("42 (telem) S 1 42 7 34816 42"));
        assert!(!is_a_shells_job("42 (telem) S 1 42 42 34816 42"), "no process would continue the leader of a session");
        assert!(!is_a_shells_job("42 (telem) S 1 40 7 34816 40"), "a script at a terminal waits for the end alone");
        assert!(!is_a_shells_job("42 (telem) S 1 42 7 34816 7"), "in the background");
        assert!(!is_a_shells_job("42 (telem) S 1 42 7 0 -1"), "no terminal");
    }

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let status = "Name:\ttelem\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001003\nSigCgt:\t0\n";
        assert_eq!(mask_in(status, "SigIgn:"), bit(SIGHUP) | bit(SIGINT) | bit(13));
        assert_eq!(mask_in("", "SigIgn:"), 0);
    }
}
