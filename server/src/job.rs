//! A command under telem, from its start to its saved samples.
//!
//! The job comes first. It is started as if telem were not there, gets its signals, and its exit code is telem's.
//! The main thread does nothing but that: it waits for events, and whatever may hang (disks, networks) happens on
//! other threads, which it stops waiting for when a deadline has passed.

pub mod child;
pub mod claim;
pub mod describe;
pub mod footprint;
pub mod notes;
mod service;
mod signals;
mod summary;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::{Signal, getpid, getsid};
use serde_json::Value as Json;
use telem_engine::Clock;
use tokio::runtime::Runtime;

use self::child::{Child, Ending};
use self::notes::Notes;
use self::service::Service;
use self::signals::Received;
use self::summary::Summary;
use crate::config;
use crate::service::{Ready, ServiceOptions};

/// Longest that the command waits for the service to be ready; then it starts without.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest that the service may take to stop and close its database when the command has ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(75);
/// The same for everything after the end of the command, once somebody said that telem is to end.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(4_500);

/// Makes the directories that a service needs, and says with what it is to be started.
pub type Prepare = Box<dyn FnOnce() -> Result<ServiceOptions, String> + Send>;

/// What is to be run, and how.
pub struct JobOptions {
    pub id: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub node: String,
    pub level: u8,
    pub runtime: Runtime,
    pub prepare: Prepare,
    /// Whether the command is not to be started without the service.
    pub strict: bool,
    pub notes: Notes,
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for JobOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobOptions").field("id", &self.id).field("command", &self.command).finish_non_exhaustive()
    }
}

/// What the main thread waits for.
#[derive(Debug)]
pub enum Event {
    Signal(Received),
    /// The command ended, stopped or went on.
    ChildChanged,
    Ready(Box<Ready>),
    /// The service ended, with what kept it from serving or from closing its database.
    Stopped(Result<(), String>),
}

/// Why the command was not started.
#[derive(Debug)]
enum NotStarted {
    /// A signal came first.
    Interrupted(Signal),
    /// The service did not start, and `strict` asks for it.
    NoService,
}

/// Runs it. Returns the exit code that telem is to have.
pub fn run(options: JobOptions) -> u8 {
    let (send, events) = channel();
    if let Err(error) = signals::start(send.clone()) {
        options.notes.error(format_args!("cannot catch signals: {error}; the command runs without telem"));
        return child::replace_this_process(&options.command);
    }
    let JobOptions { id, command, node, level, runtime, prepare, strict, notes, clock } = options;
    let service = Service::start(runtime, prepare, send.clone());
    let started = describe::Start { id, command, node, level, time: clock.now() };
    let mut job = Job { service, ready: None, stopped: false, events, _send: send, notes, clock };
    let code = match job.start(&started, strict) {
        Ok((child, description)) => job.see_through(child, description),
        Err(code) => {
            job.abandon();
            code
        }
    };
    job.service.leave();
    code
}

struct Job {
    service: Service,
    /// The service, while and after it served.
    ready: Option<Box<Ready>>,
    /// Whether the service has ended.
    stopped: bool,
    events: Receiver<Event>,
    /// Keeps the channel open, whoever has ended.
    _send: Sender<Event>,
    notes: Notes,
    clock: Arc<dyn Clock>,
}

impl Job {
    /// The running command and its description; or the code to exit with.
    fn start(&mut self, start: &describe::Start, strict: bool) -> Result<(Child, Json), u8> {
        self.await_ready(strict).map_err(|why| match why {
            NotStarted::Interrupted(signal) => Ending::Killed { signal: signal.as_raw() as u8 }.exit_code(),
            NotStarted::NoService => 1,
        })?;
        let environment = self.ready.as_deref().map(|ready| environment(ready, start)).unwrap_or_default();
        let child = Child::start(&start.command, &environment).map_err(|error| {
            self.notes.error(&error);
            error.exit_code()
        })?;
        // Only now: the command inherits none of this.
        footprint::yield_processor();
        footprint::yield_memory();
        footprint::raise_descriptor_limit();
        let description = describe::started(start, config::environment);
        if let Some(ready) = &self.ready {
            self.service.describe(&ready.db, description.clone());
            self.notes.say(greeting(ready, &start.id));
            self.notes.say(tunnel(&ready.url, &config::host_name()));
        }
        Ok((child, description))
    }

    /// Waits until the service is ready or will not be.
    fn await_ready(&mut self, strict: bool) -> Result<(), NotStarted> {
        let deadline = self.clock.monotonic() + READY_TIMEOUT;
        let why = loop {
            match self.next(deadline) {
                Some(Event::Ready(ready)) => {
                    self.ready = Some(ready);
                    break None;
                }
                Some(Event::Stopped(ended)) => {
                    self.stopped = true;
                    break Some(ended.err().unwrap_or_default());
                }
                Some(Event::Signal(got)) if !got.is_harmless() => return Err(NotStarted::Interrupted(got.signal)),
                Some(Event::Signal(_) | Event::ChildChanged) => {}
                None => break Some(format!("it was not ready within {} s", READY_TIMEOUT.as_secs())),
            }
        };
        match why {
            None => Ok(()),
            Some(why) if strict => {
                self.notes.error(format_args!("telem does not record: {why}; with --strict nothing is run"));
                Err(NotStarted::NoService)
            }
            Some(why) => {
                self.notes.warn(format_args!("the command runs, but telem does not record it: {why}"));
                Ok(())
            }
        }
    }

    /// From the start of the command to the exit code of telem.
    fn see_through(&mut self, mut child: Child, description: Json) -> u8 {
        let (ending, hurried) = self.until_ended(&mut child);
        let mut deadline = self.clock.monotonic() + if hurried { HURRIED_TIMEOUT } else { STOP_TIMEOUT };
        if let Some(ready) = self.ready.take() {
            let description = describe::ended(description, ending, self.clock.now());
            self.service.stop(Some((ready.db.clone(), description)));
            let closed = self.await_stop(&mut deadline);
            self.notes.say(Summary::of(&ready, closed));
        }
        ending.exit_code()
    }

    /// Waits for the end of the command, and gives it its signals. Also whether telem is to end soon.
    fn until_ended(&mut self, child: &mut Child) -> (Ending, bool) {
        let session_leader = getsid(None).is_ok_and(|session| session == getpid());
        let mut hurried = false;
        loop {
            match self.next(Duration::MAX) {
                Some(Event::Signal(got)) => {
                    hurried |= got.hurries();
                    if got.is_for_the_job(session_leader) {
                        child.pass_on(got.signal);
                    }
                }
                Some(Event::Stopped(ended)) => self.service_ended(ended),
                // One that comes too late: the command has no way to know of it.
                Some(Event::Ready(_)) => self.service.stop(None),
                Some(Event::ChildChanged) | None => {}
            }
            if let Some(ending) = child.ending() {
                return (ending, hurried);
            }
        }
    }

    fn service_ended(&mut self, ended: Result<(), String>) {
        if !std::mem::replace(&mut self.stopped, true) && self.ready.is_some() {
            let why = ended.err().unwrap_or_else(|| "it stopped".to_owned());
            self.notes.warn(format_args!("the command runs on, but telem does not record it any more: {why}"));
        }
    }

    /// Whether the service has closed its database in order, before the deadline. Signals bring that nearer.
    fn await_stop(&mut self, deadline: &mut Duration) -> bool {
        while !self.stopped {
            match self.next(*deadline) {
                Some(Event::Stopped(ended)) => {
                    self.stopped = true;
                    if let Err(error) = &ended {
                        self.notes.error(error);
                    }
                    return ended.is_ok();
                }
                Some(Event::Signal(got)) if got.is_a_farewell() => {
                    let now = self.clock.monotonic();
                    let soon = now + HURRIED_TIMEOUT;
                    // The second one ends it at once.
                    *deadline = if *deadline > soon { soon } else { now };
                }
                Some(_) => {}
                None => return false,
            }
        }
        false
    }

    /// Stops the service of a command that never ran, and leaves no trace of it.
    fn abandon(&mut self) {
        self.service.stop(None);
        let mut deadline = self.clock.monotonic() + HURRIED_TIMEOUT;
        self.await_stop(&mut deadline);
    }

    /// The next event; `None` when `deadline` has passed.
    fn next(&self, deadline: Duration) -> Option<Event> {
        let patience = deadline.saturating_sub(self.clock.monotonic());
        // It is never disconnected: we hold a sender.
        self.events.recv_timeout(patience).ok()
    }
}

/// What the command is told, so that its processes find the service.
fn environment(ready: &Ready, start: &describe::Start) -> Vec<(&'static str, OsString)> {
    vec![
        ("TELEM_CONNECTION", absolute(&ready.connection_file).into()),
        ("TELEM_SOCKET", absolute(&ready.socket).into()),
        ("TELEM_URL", ready.url.clone().into()),
        ("TELEM_LEVEL", start.level.to_string().into()),
        ("TELEM_JOB", start.id.clone().into()),
    ]
}

/// The command may go elsewhere.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

fn greeting(ready: &Ready, job: &str) -> String {
    let recovery = ready.recovery.as_ref().map(|text| format!(" · recovered: {text}")).unwrap_or_default();
    format!("listening on {} · job {job} · live data in {}{recovery}", ready.url, ready.data.display())
}

/// How somebody at home reaches a service on a compute node.
fn tunnel(url: &str, host: &str) -> String {
    let address = url.trim_start_matches("http://");
    let port = address.rsplit(':').next().unwrap_or(address);
    format!("ssh command: ssh -NL localhost:{port}:localhost:{port} {host}")
}

#[cfg(test)]
mod tests;
