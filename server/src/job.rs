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
pub mod save;
mod service;
mod signals;
mod summary;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value as Json;
use telem_engine::Clock;
use tokio::runtime::Runtime;

use self::child::{Child, Ending};
use self::notes::{AtWork, Notes};
use self::save::{Destination, Saved, Saver};
use self::service::Service;
use self::signals::Received;
use self::summary::Summary;
use crate::config;
use crate::service::{Ready, ServiceOptions};

/// Longest that the command waits for the service to be ready; then it starts without.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest that the service may take to stop and close its database when the command has ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// The same for everything after the end of the command, once somebody said that telem is to end.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(4_500);

/// How long something takes before it is worth a word.
const SLOW: Duration = Duration::from_secs(1);

/// Makes the directories that a service needs, and says with what it is to be started.
pub type Prepare = Box<dyn FnOnce() -> Result<Prepared, String> + Send>;

#[derive(Debug)]
pub struct Prepared {
    pub options: ServiceOptions,
    pub places: Places,
}

/// The directories of a run.
#[derive(Debug, Default)]
pub struct Places {
    /// Where the database is saved, if it is.
    pub destination: Option<Destination>,
    /// The live data, where nobody asked for them to stay: they go when they are saved.
    pub passing: Option<PathBuf>,
}

impl Places {
    /// Leaves no trace of a run that did not begin.
    fn discard(mut self) {
        if let Some(mut destination) = self.destination.take() {
            destination.discard();
        }
        self.remove_live();
    }

    fn remove_live(&self) {
        let Some(dir) = &self.passing else { return };
        if let Err(error) = fs::remove_dir_all(dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %dir.display(), %error, "the live data stay");
            return;
        }
        if let Some(of_job) = dir.parent() {
            // Another run of the job may still have data there.
            let _ = fs::remove_dir(of_job);
        }
    }
}

/// A service that is ready.
#[derive(Debug)]
pub struct Up {
    pub ready: Ready,
    pub places: Places,
}

/// What is to be run, and how.
pub struct JobOptions {
    pub id: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub node: String,
    pub level: u8,
    pub runtime: Runtime,
    pub prepare: Prepare,
    /// That of the service's options: set when the end must come soon.
    pub hurry: Arc<AtomicBool>,
    /// Whether the command is not to be started without the service.
    pub strict: bool,
    /// How often the saved copy is brought up to date.
    pub save_interval: Duration,
    /// Longest that the last step of saving may take.
    pub save_timeout: Duration,
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
    Ready(Box<Up>),
    /// The service ended, with what kept it from serving or from closing its database.
    Stopped(Result<(), String>),
    Saved(Saved),
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
    let JobOptions {
        id,
        command,
        node,
        level,
        runtime,
        prepare,
        hurry,
        strict,
        save_interval,
        save_timeout,
        notes,
        clock,
    } = options;
    let service = Service::start(runtime, prepare, send.clone());
    let started = describe::Start { id, command, node, level, time: clock.now() };
    let mut job =
        Job { service, up: None, stopped: false, hurry, events, send, save_interval, save_timeout, notes, clock };
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
    /// The service, from when it is ready.
    up: Option<Box<Up>>,
    /// Whether the service has ended.
    stopped: bool,
    /// Tells the service that the end must come soon.
    hurry: Arc<AtomicBool>,
    events: Receiver<Event>,
    send: Sender<Event>,
    save_interval: Duration,
    save_timeout: Duration,
    notes: Notes,
    clock: Arc<dyn Clock>,
}

impl Job {
    /// The running command and its description; or the code to exit with.
    fn start(&mut self, start: &describe::Start, strict: bool) -> Result<(Child, Json), u8> {
        self.await_ready(strict).map_err(|why| match why {
            NotStarted::Interrupted(signal) => Ending::killed_by(signal).exit_code(),
            NotStarted::NoService => 1,
        })?;
        let environment = self.up.as_deref().map(|up| environment(&up.ready, start)).unwrap_or_default();
        let child = Child::start(&start.command, &environment).map_err(|error| {
            self.notes.error(&error);
            error.exit_code()
        })?;
        if let Err(error) = child.watch(self.send.clone()) {
            tracing::warn!(%error, "only SIGCHLD will tell that the command has ended");
        }
        // Only now: the command inherits none of this.
        footprint::yield_processor();
        footprint::yield_memory();
        footprint::raise_descriptor_limit();
        let description = describe::started(start, config::environment);
        if let Some(Up { ready, .. }) = self.up.as_deref() {
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
                Some(Event::Ready(up)) => {
                    self.up = Some(up);
                    return Ok(());
                }
                Some(Event::Stopped(ended)) => {
                    self.stopped = true;
                    break ended.err().unwrap_or_default();
                }
                Some(Event::Signal(got)) if !got.is_harmless() => return Err(NotStarted::Interrupted(got.signal)),
                Some(_) => {}
                None => break format!("it was not ready within {} s", READY_TIMEOUT.as_secs()),
            }
        };
        if strict {
            self.notes.error(format_args!("telem does not record: {why}; with --strict nothing is run"));
            return Err(NotStarted::NoService);
        }
        self.notes.warn(format_args!("the command runs, but telem does not record it: {why}"));
        Ok(())
    }

    /// From the start of the command to the exit code of telem.
    fn see_through(&mut self, mut child: Child, description: Json) -> u8 {
        let destination = self.up.as_deref().and_then(|up| up.places.destination.as_ref());
        let place = destination.map(|destination| destination.path().to_path_buf()).unwrap_or_default();
        let saver = self.start_saving();
        let End { ending, hurried } = self.until_ended(&mut child, saver.as_ref());
        let Some(up) = self.up.take() else { return ending.exit_code() };
        let Up { ready, places } = *up;
        let now = self.clock.monotonic();
        let mut deadline = now + if hurried { HURRIED_TIMEOUT } else { STOP_TIMEOUT };
        self.hurry.store(hurried, Ordering::Relaxed);
        let description = describe::ended(description, ending, self.clock.now());
        self.service.stop(Some((ready.db.clone(), description)));
        self.await_stop(&mut deadline);
        let saved = saver.map(|saver| {
            saver.finish();
            if !hurried {
                deadline = deadline.max(self.clock.monotonic() + self.save_timeout);
            }
            let saving = format!("saving the rest of {}", ready.data.display());
            let saved = self.wait(&mut deadline, &saving, |event| match event {
                Event::Saved(saved) => Some(saved),
                _ => None,
            });
            saved.unwrap_or_else(|| Saved::not_in_time(place))
        });
        // What could not be closed was saved from memory.
        let complete = self.stopped && saved.as_ref().is_some_and(|saved| saved.failed.is_none());
        self.notes.say(Summary::of(&ready, self.stopped, saved));
        if complete {
            places.remove_live();
        }
        ending.exit_code()
    }

    fn start_saving(&mut self) -> Option<Saver> {
        let up = self.up.as_deref_mut()?;
        let destination = up.places.destination.take()?;
        match Saver::start(up.ready.db.clone(), destination, self.save_interval, self.send.clone()) {
            Ok(saver) => Some(saver),
            Err(error) => {
                self.notes.warn(format_args!("the samples are not saved: no thread for that: {error}"));
                None
            }
        }
    }

    /// Waits for the end of the command, and gives it its signals.
    fn until_ended(&mut self, child: &mut Child, saver: Option<&Saver>) -> End {
        let session_leader = signals::leads_its_session();
        let mut hurried = false;
        loop {
            match self.next(Duration::MAX) {
                Some(Event::Signal(got)) => {
                    hurried |= got.hurries();
                    if got.is_for_the_job(session_leader) {
                        child.pass_on(got.signal);
                    }
                    if let (true, Some(saver)) = (got.is_a_farewell(), saver) {
                        saver.save_now();
                    }
                }
                Some(Event::Stopped(ended)) => self.service_ended(ended),
                // One that comes too late: the command has no way to know of it.
                Some(Event::Ready(_)) => self.service.stop(None),
                Some(Event::ChildChanged | Event::Saved(_)) | None => {}
            }
            if let Some(ending) = child.ending() {
                return End { ending, hurried };
            }
        }
    }

    fn service_ended(&mut self, ended: Result<(), String>) {
        if !std::mem::replace(&mut self.stopped, true) && self.up.is_some() {
            let why = ended.err().unwrap_or_else(|| "it stopped".to_owned());
            self.notes.warn(format_args!("the command runs on, but telem does not record it any more: {why}"));
        }
    }

    /// Whether the service has closed its database in order, before the deadline.
    fn await_stop(&mut self, deadline: &mut Duration) -> bool {
        if self.stopped {
            return false;
        }
        let ended = self.wait(deadline, "closing the database", |event| match event {
            Event::Stopped(ended) => Some(ended),
            _ => None,
        });
        self.stopped = ended.is_some();
        match ended {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                self.notes.error(error);
                false
            }
            None => false,
        }
    }

    /// Waits for what `pick` picks, until `deadline`. A signal brings that near, a second one ends it.
    fn wait<T>(&mut self, deadline: &mut Duration, at_what: &str, pick: impl Fn(Event) -> Option<T>) -> Option<T> {
        let slow = self.clock.monotonic() + SLOW;
        let mut shown: Option<AtWork> = None;
        loop {
            let until = if shown.is_none() { slow.min(*deadline) } else { *deadline };
            match self.next(until) {
                Some(Event::Signal(got)) if got.is_a_farewell() => {
                    let now = self.clock.monotonic();
                    let soon = now + HURRIED_TIMEOUT;
                    self.hurry.store(true, Ordering::Relaxed);
                    *deadline = if *deadline > soon { soon } else { now };
                }
                Some(event) => {
                    if let Some(picked) = pick(event) {
                        return Some(picked);
                    }
                }
                None if self.clock.monotonic() >= *deadline => return None,
                None => shown = Some(self.notes.at_work(at_what.to_owned())),
            }
        }
    }

    /// Stops the service of a command that never ran, and leaves no trace of it.
    fn abandon(&mut self) {
        self.hurry.store(true, Ordering::Relaxed);
        self.service.stop(None);
        let mut deadline = self.clock.monotonic() + HURRIED_TIMEOUT;
        if !self.stopped
            && self.await_stop(&mut deadline)
            && let Some(up) = self.up.take()
        {
            up.places.discard();
        }
    }

    /// The next event; `None` when `deadline` has passed.
    fn next(&self, deadline: Duration) -> Option<Event> {
        let patience = deadline.saturating_sub(self.clock.monotonic());
        // It is never disconnected: we hold a sender.
        self.events.recv_timeout(patience).ok()
    }
}

/// The end of a command.
struct End {
    ending: Ending,
    /// Somebody said that telem is to end too.
    hurried: bool,
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
pub fn tunnel(url: &str, host: &str) -> String {
    let address = url.trim_start_matches("http://");
    let port = address.rsplit(':').next().unwrap_or(address);
    format!("ssh command: ssh -NL localhost:{port}:localhost:{port} {host}")
}

#[cfg(test)]
mod tests;
