//! The process that was started as `telem run`: the command's parent, and as little else as possible.
//!
//! It starts the recorder, asks it for the command's environment, starts the command, passes signals to it, and exits
//! with its code. It opens no file outside of /proc, holds no samples and waits for nothing without a deadline. The
//! recorder may hang, crash or be killed; the command runs on with its directory, its terminal and its parent
//! unchanged.
//!
//! The command gets signals exactly as often as without telem. Signals from a terminal are left to the terminal, and
//! signals to the whole group to their sender ([`Witness`]); signals to telem alone are passed on. URG, which kills no
//! process and so is not visible to a witness, is always passed on; so is any signal that comes while there is no
//! witness.
//!
//! Once the command runs, telem closes its own copies of the shared input and output. So a reader of the command's
//! output sees its end when the command closes it, and telem writes on stderr alone.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};
use telem_engine::Clock;

use super::child::{self, Child, Ending};
use super::link::{self, ToRecorder, ToSupervisor};
use super::notes::Notes;
use super::signals::{self, Caught, Received, Standing};
use super::witness::Witness;
use super::{HURRIED_TIMEOUT, STOP_TIMEOUT, usage};
use crate::launch::crew::JOIN_TIMEOUT;

/// Longest that the command waits for the recorder, unless that waits for others; then it starts without.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// The exit code where what was asked for cannot be done, as where an option is wrong.
const USAGE: u8 = 2;
/// How much longer agents are waited for than the recorder allows them.
const JOIN_GRACE: Duration = Duration::from_secs(2);
/// How much longer the recorder is waited for than it allows itself, so that it may say what it did not do.
const GRACE: Duration = Duration::from_millis(400);
const _: () = assert!(HURRIED_TIMEOUT.as_millis() + GRACE.as_millis() < 5_000, "whoever ends telem waits so long");
/// How long a recorder that is to leave no trace is waited for.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the system may take to say how the recorder ended.
const OBITUARY_TIMEOUT: Duration = Duration::from_millis(200);
/// Most signals that are reported to the recorder: the supervisor must not wait if it does not listen.
const FAREWELLS_MAX: u32 = 1_000;
/// How long a signal that is sent to a group may take from one of its processes to another.
const SPREAD: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(1);

/// What is to be run, and how.
pub struct JobOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What telem is to be started with to be the recorder.
    pub recorder: Vec<OsString>,
    /// Whether the command is not to be started without the recorder.
    pub strict: bool,
    /// What is added to the environment of a command that is not recorded.
    pub unrecorded: Vec<(String, OsString)>,
    /// Longest that the last step of saving may take.
    pub save_timeout: Duration,
    pub notes: Notes,
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for JobOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobOptions").field("command", &self.command).finish_non_exhaustive()
    }
}

/// What the main thread waits for.
#[derive(Debug)]
enum SupervisorEvent {
    Caught(Caught),
    Told(ToSupervisor),
    /// The recorder says nothing any more.
    Silence,
}

impl From<Caught> for SupervisorEvent {
    fn from(caught: Caught) -> Self {
        Self::Caught(caught)
    }
}

/// Runs it. Returns the exit code that telem is to have.
pub fn run(options: JobOptions) -> u8 {
    let (send, events) = channel();
    if let Err(error) = signals::start(send.clone()) {
        if options.strict {
            options.notes.error(format_args!("telem cannot catch signals: {error}; with --strict nothing is run"));
            return 1;
        }
        options.notes.warn(format_args!("the command runs, but without telem: it cannot catch signals: {error}"));
        return become_the_command(&options.command, options.notes);
    }
    let JobOptions { command, recorder, strict, unrecorded, save_timeout, notes, clock } = options;
    let mut supervisor = Supervisor {
        recorder: None,
        child: None,
        witness: Witness::default(),
        standing: Standing::now(),
        live: None,
        has_agents: false,
        unrecorded,
        save_timeout,
        events,
        notes,
        clock,
    };
    match Recorder::start(&recorder, send.clone()) {
        Ok(recorder) => supervisor.recorder = Some(recorder),
        Err(error) if strict => {
            notes.error(format_args!(
                "telem does not record: no process for that: {error}; with --strict nothing is run"
            ));
            return 1;
        }
        Err(error) => supervisor.not_recorded(format_args!("no process for that: {error}")),
    }
    let started = supervisor.await_ready(strict).and_then(|environment| supervisor.start(&command, &environment));
    let code = match started {
        Ok(()) => {
            if let Some(Err(error)) = supervisor.child.as_ref().map(|child| child.watch(send)) {
                tracing::debug!(%error, "only SIGCHLD will tell that the command has ended");
            }
            supervisor.see_through()
        }
        Err(code) => {
            supervisor.abandon();
            code
        }
    };
    supervisor.reap();
    code
}

/// Returns, with the code to exit with, only when the command cannot be run.
fn become_the_command(command: &[OsString], notes: Notes) -> u8 {
    let error = child::replace_this_process(command, &[]);
    notes.error(&error);
    error.exit_code()
}

/// The process beside the command that records.
#[derive(Debug)]
struct Recorder {
    pid: Pid,
    /// The receiver of events.
    to: ChildStdin,
    /// What wait(2) said of its end.
    status: Option<WaitStatus>,
    /// How often the end was announced to it.
    farewells: u32,
}

impl Recorder {
    fn start(arguments: &[OsString], events: Sender<SupervisorEvent>) -> io::Result<Recorder> {
        // This very program, also where its file was replaced or removed meanwhile.
        let mut telem = Command::new("/proc/self/exe");
        telem.arg0("telem").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = telem.spawn()?;
        let pid = Pid::from_child(&process);
        let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let listen = move || {
            link::listen(from, |word| events.send(SupervisorEvent::Told(word)).is_ok());
            let _ = events.send(SupervisorEvent::Silence);
        };
        let heard = thread::Builder::new().name("telem-link".to_owned()).spawn(listen);
        let recorder = Recorder { pid, to, status: None, farewells: 0 };
        if let Err(error) = heard {
            recorder.kill();
            return Err(error);
        }
        Ok(recorder)
    }

    fn tell(&mut self, word: ToRecorder) {
        if word == ToRecorder::Farewell {
            self.farewells += 1;
            if self.farewells > FAREWELLS_MAX {
                return;
            }
        }
        // One that listens no more is found out by its silence.
        let _ = link::tell(&self.to, &word);
    }

    fn kill(&self) {
        // It stays to be waited for, so its number is its own.
        if self.status.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    fn has_ended(&self) -> bool {
        self.status.is_some()
    }
}

struct Supervisor {
    /// `None` when nothing is recorded.
    recorder: Option<Recorder>,
    /// The command, from when it runs.
    child: Option<Child>,
    witness: Witness,
    standing: Standing,
    /// Where the live data are, once that is known.
    live: Option<PathBuf>,
    /// Whether the recorder has started agents.
    has_agents: bool,
    /// What is added to the environment of a command that is not recorded.
    unrecorded: Vec<(String, OsString)>,
    save_timeout: Duration,
    events: Receiver<SupervisorEvent>,
    notes: Notes,
    clock: Arc<dyn Clock>,
}

impl Supervisor {
    /// Waits until the recorder is ready or will not be. Returns the environment of the command, or the code to exit
    /// with.
    fn await_ready(&mut self, strict: bool) -> Result<Vec<(String, OsString)>, u8> {
        if self.recorder.is_none() {
            return Ok(self.unrecorded.clone());
        }
        let mut deadline = self.clock.monotonic() + READY_TIMEOUT;
        let why = loop {
            match self.next(deadline) {
                Some(SupervisorEvent::Told(ToSupervisor::Seeking { patience })) => {
                    deadline = self.clock.monotonic() + patience + READY_TIMEOUT;
                }
                Some(SupervisorEvent::Told(ToSupervisor::Gathering { .. })) => {
                    self.has_agents = true;
                    deadline = self.clock.monotonic() + JOIN_TIMEOUT + JOIN_GRACE;
                }
                Some(SupervisorEvent::Told(ToSupervisor::Elsewhere { environment })) => {
                    self.leave_recorder();
                    return Ok(environment);
                }
                Some(SupervisorEvent::Told(ToSupervisor::Ready { environment, live })) => {
                    self.live = Some(PathBuf::from(live));
                    return Ok(environment);
                }
                Some(SupervisorEvent::Told(ToSupervisor::Refused { why })) => {
                    self.notes.error(why);
                    return Err(USAGE);
                }
                Some(SupervisorEvent::Told(ToSupervisor::Failed { why })) => break why,
                Some(SupervisorEvent::Silence) => break self.obituary(),
                Some(SupervisorEvent::Caught(Caught::Signal(got))) if !got.is_harmless() => {
                    return Err(Ending::killed_by(got.number).exit_code());
                }
                Some(SupervisorEvent::Caught(_)) => self.reap(),
                Some(SupervisorEvent::Told(ToSupervisor::Done)) => {}
                None => break "it was not ready in time".to_owned(),
            }
        };
        if strict {
            self.notes.error(format_args!("telem does not record: {why}; with --strict nothing is run"));
            return Err(1);
        }
        self.leave_recorder();
        self.not_recorded(why);
        Ok(self.unrecorded.clone())
    }

    fn not_recorded(&self, why: impl fmt::Display) {
        self.notes.warn(format_args!("the command runs, but telem does not record it: {why}"));
    }

    /// Starts the command; or the code to exit with.
    fn start(&mut self, command: &[OsString], environment: &[(String, OsString)]) -> Result<(), u8> {
        let mut started = Child::start(command, environment);
        if started.as_ref().is_err_and(child::StartError::is_scarcity) && self.recorder.is_some() {
            // What it holds is what the command lacks.
            self.end_recorder();
            started = Child::start(command, &self.unrecorded);
            if let (Ok(_), Some(live)) = (&started, &self.live) {
                let live = live.display();
                self.not_recorded(format_args!("the system has too few resources for both; {live} stays"));
            }
        }
        let child = match started {
            Ok(child) => child,
            // No process may be added. One is here that the command can have: this.
            Err(error) if error.is_scarcity() => {
                self.not_recorded(format_args!("the system has no process left beside it: {error}"));
                return Err(become_the_command(command, self.notes));
            }
            Err(error) => {
                self.notes.error(&error);
                return Err(error.exit_code());
            }
        };
        if let Err(error) = child::leave_it_the_streams() {
            tracing::debug!(%error, "the command's input and output stay open as long as telem");
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.tell(ToRecorder::Started { pid: child.pid().as_raw_nonzero().get() });
        }
        self.child = Some(child);
        self.witness.call();
        Ok(())
    }

    /// From the start of the command to the exit code of telem.
    fn see_through(&mut self) -> u8 {
        let (ending, hurried) = self.until_ended();
        if let Some(recorder) = &mut self.recorder {
            // In whole milliseconds, because messages must be comparable.
            let cpu_ms = usage::waited_for_cpu_seconds().map(|seconds| (seconds * 1e3) as u64);
            recorder.tell(ToRecorder::Ended { ending, hurried, cpu_ms });
            // Agents end first, and may take as long.
            let turns = if self.has_agents { 2 } else { 1 };
            let patience = if hurried { HURRIED_TIMEOUT } else { (STOP_TIMEOUT + self.save_timeout) * turns };
            self.await_recorder(patience + GRACE);
        }
        ending.exit_code()
    }

    /// Waits for the end of the command, and gives it its signals. Also returns whether telem was told to end too.
    fn until_ended(&mut self) -> (Ending, bool) {
        let mut hurried = false;
        loop {
            self.reap();
            if let Some(ending) = self.child.as_ref().map_or(Some(Ending::Exited(1)), Child::ending) {
                return (ending, hurried);
            }
            match self.next(Duration::MAX) {
                Some(SupervisorEvent::Caught(Caught::Signal(got))) => {
                    hurried |= got.hurries();
                    if let (true, Some(recorder)) = (got.is_a_farewell(), &mut self.recorder) {
                        recorder.tell(ToRecorder::Farewell);
                    }
                    self.pass_on(got);
                }
                Some(SupervisorEvent::Silence) => self.recorder_died(),
                Some(SupervisorEvent::Caught(Caught::Child) | SupervisorEvent::Told(_)) | None => {}
            }
        }
    }

    /// Gives the command what telem got, unless the command got it too.
    fn pass_on(&mut self, got: Received) {
        let stands_apart = self.child.as_ref().is_some_and(Child::stands_apart);
        let number = got.number;
        if number == Signal::CONT.as_raw() {
            thread::sleep(SPREAD);
            if let Some(child) = self.child.as_ref().filter(|child| child.is_stopped()) {
                child.pass_on(number);
            }
            return;
        }
        let wanted = got.is_for_the_job(self.standing) || (stands_apart && got.is_of_a_terminal());
        if !wanted || (!stands_apart && got.sent && self.was_sent_to_the_group(number)) {
            return;
        }
        if let Some(child) = &self.child {
            child.pass_on(number);
        }
    }

    fn was_sent_to_the_group(&mut self, number: i32) -> bool {
        if number == Signal::URG.as_raw() {
            return false;
        }
        let clock = Arc::clone(&self.clock);
        let mut witness = std::mem::take(&mut self.witness);
        let saw = witness.saw(number, || clock.monotonic(), |witness| self.reap_for(witness));
        witness.call();
        self.witness = witness;
        saw
    }

    /// Waits for children that ended or stopped, also for those that were left to process 1, which we may be.
    fn reap(&mut self) {
        let mut witness = std::mem::take(&mut self.witness);
        self.reap_for(&mut witness);
        if self.child.as_ref().is_some_and(|child| child.ending().is_none()) {
            witness.call();
        }
        self.witness = witness;
    }

    fn reap_for(&mut self, witness: &mut Witness) {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) => {
                    witness.became(pid, status, self.clock.monotonic());
                    self.became(pid, status);
                }
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => {
                    if let Some(child) = &mut self.child {
                        child.was_lost();
                    }
                    return;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn became(&mut self, pid: Pid, status: WaitStatus) {
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.pid == pid && !status.stopped()) {
            recorder.status = Some(status);
        }
        let Some(child) = self.child.as_mut().filter(|child| child.pid() == pid) else { return };
        child.became(status);
        // A shell that waits for its job to stop is to see that; a parent that waits only for its end must not wait
        // longer.
        if status.stopped() && self.standing.is_a_shells_job && Standing::now().is_a_shells_job && !child.stands_apart()
        {
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// Why the recorder says nothing any more.
    fn obituary(&mut self) -> String {
        let deadline = self.clock.monotonic() + OBITUARY_TIMEOUT;
        loop {
            self.reap();
            let Some(recorder) = &self.recorder else { return String::new() };
            if let Some(status) = recorder.status {
                return match (status.terminating_signal(), status.exit_status()) {
                    (Some(signal), _) => format!("its recorder was killed by signal {signal}"),
                    (None, code) => format!("its recorder ended with code {}", code.unwrap_or_default()),
                };
            }
            if self.clock.monotonic() >= deadline {
                return "its recorder is silent".to_owned();
            }
            thread::sleep(PAUSE);
        }
    }

    fn recorder_died(&mut self) {
        if self.recorder.is_none() {
            return;
        }
        let why = self.obituary();
        self.leave_recorder();
        let live = self.live_data();
        self.notes.warn(format_args!("the command continues, but telem no longer records it: {why}{live}"));
    }

    fn live_data(&self) -> String {
        self.live.as_ref().map(|live| format!("; live data in {}", live.display())).unwrap_or_default()
    }

    /// Waits for the recorder to say that it is done. A signal brings the end near, a second one is the end.
    fn await_recorder(&mut self, patience: Duration) {
        let mut deadline = self.clock.monotonic() + patience;
        let mut hurried = patience <= HURRIED_TIMEOUT + GRACE;
        let why = loop {
            match self.next(deadline) {
                Some(SupervisorEvent::Told(ToSupervisor::Done)) => return,
                Some(SupervisorEvent::Silence) => break self.obituary(),
                Some(SupervisorEvent::Caught(Caught::Signal(got))) if got.is_a_farewell() => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.tell(ToRecorder::Hurry);
                    }
                    let soon = if hurried { GRACE } else { HURRIED_TIMEOUT + GRACE };
                    deadline = deadline.min(self.clock.monotonic() + soon);
                    hurried = true;
                }
                Some(SupervisorEvent::Caught(_)) => self.reap(),
                Some(SupervisorEvent::Told(_)) => {}
                None => break "telem's recorder takes too long and is left behind".to_owned(),
            }
        };
        let live = self.live_data();
        self.notes.error(format_args!("NOT all saved: {why}{live}"));
    }

    /// Tells the recorder of a command that never ran to leave no trace of it.
    fn abandon(&mut self) {
        let deadline = self.clock.monotonic() + ABANDON_TIMEOUT;
        let Some(recorder) = &mut self.recorder else { return };
        recorder.tell(ToRecorder::NotStarted);
        loop {
            match self.next(deadline) {
                Some(SupervisorEvent::Told(ToSupervisor::Done) | SupervisorEvent::Silence) | None => return,
                Some(_) => {}
            }
        }
    }

    /// Goes on without it. It ends by itself when it finds that its reader is gone, unless it hangs.
    fn leave_recorder(&mut self) {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.tell(ToRecorder::NotStarted);
        }
    }

    /// Ends it at once, for what it holds.
    fn end_recorder(&mut self) {
        let deadline = self.clock.monotonic() + ABANDON_TIMEOUT;
        while let Some(recorder) = &self.recorder {
            recorder.kill();
            self.reap();
            if self.recorder.as_ref().is_none_or(Recorder::has_ended) || self.clock.monotonic() >= deadline {
                self.recorder = None;
            } else {
                thread::sleep(PAUSE);
            }
        }
    }

    /// The next event; `None` when `deadline` has passed.
    fn next(&self, deadline: Duration) -> Option<SupervisorEvent> {
        let patience = deadline.saturating_sub(self.clock.monotonic());
        // It is never disconnected: the thread for signals holds a sender.
        self.events.recv_timeout(patience).ok()
    }
}
