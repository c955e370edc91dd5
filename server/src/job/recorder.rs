//! The process that records the command beside it: service, collectors, saving, and the closing summary.
//!
//! It runs in a session of its own, so that no signal to the command's group or terminal reaches it. It is the first to
//! give way when processor time or memory is short. Work that may hang (disks, networks) runs on threads that the main
//! thread stops waiting for when a deadline has passed. When the supervisor is gone, the recorder goes on until the
//! command has ended, and saves.

mod event;
mod introduce;
pub(crate) mod threads;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::setsid;
use serde_json::Value as Json;
use telem_engine::Clock;
use telem_ingest::collect::JobTarget;
use telem_query::energy::{JobEnergy, of_jobs};
use tokio::runtime::Runtime;
use url::Url;

pub use self::event::Event;
use super::child::Ending;
use super::command::CommandProcess;
use super::company::{Company, EndPace, ShortCompany, Tally};
use super::link::{self, ToRecorder, ToSupervisor};
use super::notes::{AtWork, Notes};
use super::prepared::{Prepare, RunningService};
use super::reverse::{ReverseTunnel, TunnelRoute};
use super::service::ServiceThread;
use super::signals::Caught;
use super::summary::{CommandCourse, JobSummary, ServiceEnd};
use super::usage::UsageWatch;
use super::{HURRIED_TIMEOUT, STOP_TIMEOUT, describe, tunnel};
use crate::config;
use crate::footprint;
use crate::net::listen::DEFAULT_PORT;
use crate::saving::save::{Saved, Saver};
use crate::service::Ready;
use crate::settings::RunLabels;

/// How long something takes before it is worth a word.
const SLOW: Duration = Duration::from_secs(1);
/// How long the energy of the job may be looked for at its end, before it is said who tells it.
const ENERGY_TIMEOUT: Duration = Duration::from_millis(500);
/// How often a command without a parent is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What is to be recorded, and how.
pub struct RecordOptions {
    pub id: String,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub node: String,
    pub level: u8,
    /// The job whose processes are followed; it is set once the command runs.
    pub target: JobTarget,
    /// Whether the command is not to be started unless every node is recorded.
    pub strict: bool,
    /// Makes the threads of the service.
    pub runtime: fn() -> Result<Runtime, String>,
    pub prepare: Prepare,
    /// That of the service's options: set when the end must come soon.
    pub hurry: Arc<AtomicBool>,
    /// How often the saved copy is brought up to date.
    pub save_interval: Duration,
    /// Longest that the last step of saving may take.
    pub save_timeout: Duration,
    pub notes: Notes,
    pub clock: Arc<dyn Clock>,
    pub labels: RunLabels,
    /// The other end of a tunnel that is to be kept: the host, and the port there if it is not ours.
    pub tunnel: Option<(String, Option<u16>)>,
}

impl fmt::Debug for RecordOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordOptions").field("id", &self.id).field("command", &self.command).finish_non_exhaustive()
    }
}

/// Says something to the supervisor.
fn tell(word: &ToSupervisor) {
    // One that is gone needs no answer.
    let _ = link::tell(io::stdout(), word);
}

/// Records, as the supervisor says over stdin, and answers over stdout.
pub fn record(options: RecordOptions) {
    if let Err(error) = setsid() {
        tracing::debug!(%error, "signals to the command's group reach the recorder");
    }
    footprint::yield_processor();
    footprint::yield_memory();
    footprint::raise_descriptor_limit();
    let (send, events) = channel();
    let runtime = match threads::start(options.runtime, &send) {
        Ok(runtime) => runtime,
        Err(why) => return tell(&ToSupervisor::Failed { why }),
    };
    let RecordOptions {
        id,
        command,
        node,
        level,
        target,
        strict,
        prepare,
        hurry,
        save_interval,
        save_timeout,
        notes,
        clock,
        labels,
        tunnel,
        ..
    } = options;
    let service = ServiceThread::start(runtime, prepare, send.clone());
    let start = describe::Start { id, command, node, level, time: clock.now(), labels };
    let short = if strict { ShortCompany::EndsTheJob } else { ShortCompany::GoesOn };
    let mut job = Job {
        service,
        up: None,
        wanted_tunnel: tunnel,
        tunnel: None,
        company: Company::new(short, notes, Arc::clone(&clock)),
        stopped: false,
        command: None,
        usage: None,
        began: clock.monotonic(),
        target,
        alone: false,
        hurry,
        events,
        send,
        save_interval,
        save_timeout,
        notes,
        clock,
    };
    match job.start(start) {
        Some(description) => job.see_through(description),
        None => job.abandon(),
    }
    tell(&ToSupervisor::Done);
    job.service.leave();
}

struct Job {
    service: ServiceThread,
    /// The service, from when it is ready.
    up: Option<Box<RunningService>>,
    /// The other end of a tunnel that is to be kept.
    wanted_tunnel: Option<(String, Option<u16>)>,
    /// The tunnel, while it is.
    tunnel: Option<ReverseTunnel>,
    /// The other processes that record the job.
    company: Company,
    /// Whether the service has ended.
    stopped: bool,
    /// The process of the command, from when it runs.
    command: Option<CommandProcess>,
    /// Looks at what that takes.
    usage: Option<UsageWatch>,
    /// When it began, by the clock that never jumps.
    began: Duration,
    target: JobTarget,
    /// Whether the supervisor is gone.
    alone: bool,
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
    /// Waits for the service and then for the command. The description of that; `None` where it never runs.
    fn start(&mut self, mut start: describe::Start) -> Option<Json> {
        loop {
            match self.next(Duration::MAX) {
                Some(Event::Ready(up)) => self.service_ready(up, &start),
                Some(Event::Seeking(patience)) => tell(&ToSupervisor::Seeking { patience }),
                Some(Event::Elsewhere(environment)) => {
                    self.stopped = true;
                    tell(&ToSupervisor::Elsewhere { environment });
                    return None;
                }
                Some(Event::Refused(why)) => {
                    self.stopped = true;
                    tell(&ToSupervisor::Refused { why });
                    return None;
                }
                Some(Event::Crew(event)) => match self.company.hear(event) {
                    Ok(true) => self.tell_ready(&start),
                    Ok(false) => {}
                    Err(why) => {
                        tell(&ToSupervisor::Failed { why });
                        return None;
                    }
                },
                Some(Event::Stopped(ended)) => {
                    self.stopped = true;
                    let why = ended.err().unwrap_or_else(|| "it stopped".to_owned());
                    tell(&ToSupervisor::Failed { why });
                    return None;
                }
                Some(Event::Told(ToRecorder::Started { pid })) => {
                    self.command = CommandProcess::find(pid);
                    self.began = self.clock.monotonic();
                    self.watch_usage(pid);
                    if let Ok(pid) = u32::try_from(pid) {
                        self.target.begin(pid);
                    }
                    start.time = self.clock.now();
                    let description = describe::started(&start, config::environment);
                    if let Some(RunningService { ready, .. }) = self.up.as_deref() {
                        self.service.describe(&ready.db, description.clone());
                        self.notes.say(introduce::greeting(ready, &start.id));
                        self.notes.say(tunnel(&ready.url, &config::host_name()));
                        if let Some(dragon) = &ready.dragon {
                            self.notes.say(dragon.sentence());
                        }
                    }
                    return Some(description);
                }
                Some(Event::Told(ToRecorder::NotStarted) | Event::Silence) => return None,
                Some(Event::Told(_) | Event::Caught(_) | Event::Saved(_)) | None => {}
            }
        }
    }

    /// The command may start, unless agents are to be waited for.
    fn service_ready(&mut self, mut up: Box<RunningService>, start: &describe::Start) {
        let (agents, claim) = (up.agents.take(), up.claim.take());
        let events = self.send.clone();
        // The receiver is gone only when the process is about to end anyway.
        let hear = move |event| drop(events.send(Event::Crew(event)));
        if let Some(claim) = claim {
            self.company.keep(claim, introduce::environment(&up.ready, start, &up.places));
        }
        self.start_tunnel(&up.ready);
        let gathering = agents.and_then(|agents| self.company.start(agents, &up.ready, hear));
        self.up = Some(up);
        match gathering {
            Some(nodes) => tell(&ToSupervisor::Gathering { nodes }),
            None => self.tell_ready(start),
        }
    }

    /// Nothing waits for it.
    fn start_tunnel(&mut self, ready: &Ready) {
        let (Some((node, port)), Some(near_port)) = (self.wanted_tunnel.take(), ready.tunnel) else { return };
        let far_port = port.or_else(|| Url::parse(&ready.url).ok()?.port()).unwrap_or(DEFAULT_PORT);
        self.notes.say(format_args!(
            "port {far_port} of {node} is to lead here, by ssh -NR; who asks there needs the token of the connection file"
        ));
        let route = TunnelRoute { node, far_port, near_port };
        match ReverseTunnel::start(route, self.notes, Arc::clone(&self.clock)) {
            Ok(tunnel) => self.tunnel = Some(tunnel),
            Err(error) => self.notes.warn(format_args!("there is no tunnel: no thread for that: {error}")),
        }
    }

    fn end_tunnel(&mut self) {
        if let Some(tunnel) = self.tunnel.take() {
            tunnel.end();
        }
    }

    fn tell_ready(&self, start: &describe::Start) {
        if let Some(RunningService { ready, places, .. }) = self.up.as_deref() {
            let live = ready.data.clone().into();
            let environment = introduce::environment(ready, start, places);
            tell(&ToSupervisor::Ready { environment, live });
        }
    }

    /// From the start of the command to the last words.
    fn see_through(&mut self, description: Json) {
        let destination = self.up.as_deref().and_then(|up| up.places.destination.as_ref());
        let place = destination.map(|destination| destination.path().to_path_buf()).unwrap_or_default();
        let saver = self.start_saving();
        let CommandEnd { ending, hurried, cpu_ms } = self.until_ended(saver.as_ref());
        self.end_tunnel();
        let seen = self.usage.as_ref().map(UsageWatch::usage).unwrap_or_default();
        let took = self.clock.monotonic().saturating_sub(self.began);
        let course = CommandCourse { ending, took, cpu_ms, seen };
        self.hurry.store(hurried, Ordering::Relaxed);
        let urgent = self.dismiss(ending, EndPace::of(hurried));
        let Some(up) = self.up.take() else { return };
        let RunningService { ready, places, .. } = *up;
        self.company.tell_saved(&ready, EndPace::of(urgent.is_some()));
        let mut deadline = urgent.unwrap_or_else(|| self.clock.monotonic() + STOP_TIMEOUT);
        let description = describe::ended(description, ending, self.clock.now());
        self.service.stop(Some((ready.db.clone(), description)));
        self.await_stop(&mut deadline);
        let saved = saver.map(|saver| {
            saver.finish();
            if !self.hurry.load(Ordering::Relaxed) {
                deadline = self.clock.monotonic() + self.save_timeout;
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
        let tally = Tally::of(&ready);
        let queries = self.usage.take().map(|watch| watch.query_cpu_seconds());
        let energy = if self.stopped { self.energy(&ready) } else { Some(Vec::new()) };
        let service = if self.stopped { ServiceEnd::Ended } else { ServiceEnd::NotInTime };
        let summary = JobSummary::of(&ready, service, saved).with(tally).after(course).beside(queries);
        summary.costing(energy).tell(self.notes);
        if complete {
            places.remove_live();
        }
        self.company.leave();
    }

    /// What the job took of energy on this node; `None` where that takes too long to find out.
    fn energy(&self, ready: &Ready) -> Option<Vec<JobEnergy>> {
        let until = self.clock.monotonic() + ENERGY_TIMEOUT;
        let is_hurried = || self.hurry.load(Ordering::Relaxed);
        let is_late = || self.clock.monotonic() >= until;
        let energy = of_jobs(&ready.db.snapshot(), &|| is_hurried() || is_late()).ok()?;
        match (is_hurried(), is_late()) {
            // Nobody waits for words.
            (true, _) => Some(Vec::new()),
            (false, true) => None,
            (false, false) => Some(energy),
        }
    }

    /// The command's usage is only reported at the end; without a thread for it less is known.
    fn watch_usage(&mut self, pid: i32) {
        let Ok(pid) = u32::try_from(pid) else { return };
        match UsageWatch::start(pid, Arc::clone(&self.clock)) {
            Ok(watch) => self.usage = Some(watch),
            Err(error) => tracing::debug!(%error, "the command's resource use is not measured"),
        }
    }

    /// Ends the agents, before the head that they report to ends. When all must be over, once that is urgent.
    fn dismiss(&mut self, ending: Option<Ending>, pace: EndPace) -> Option<Duration> {
        let mut urgent = (pace == EndPace::Hurried).then(|| self.clock.monotonic() + HURRIED_TIMEOUT);
        let mut deadline = self.clock.monotonic() + self.company.dismiss(ending, pace, self.save_timeout);
        let slow = self.clock.monotonic() + SLOW;
        let mut shown = None;
        while !self.company.is_dismissed(self.up.as_deref().map(|up| &up.ready)) {
            let now = self.clock.monotonic();
            if now >= deadline {
                break;
            }
            if now >= slow && shown.is_none() {
                shown = Some(self.notes.at_work("waiting for the other nodes to save their samples".to_owned()));
            }
            match self.next(deadline.min(now + LOOK_INTERVAL)) {
                Some(Event::Crew(event)) => drop(self.company.hear(event)),
                Some(Event::Told(ToRecorder::Hurry)) => {
                    self.hurry.store(true, Ordering::Relaxed);
                    let now = self.clock.monotonic();
                    urgent = Some(urgent.unwrap_or(now + HURRIED_TIMEOUT));
                    deadline = deadline.min(now + self.company.dismiss(ending, EndPace::Hurried, Duration::ZERO));
                }
                Some(Event::Stopped(ended)) => self.service_ended(ended),
                _ => {}
            }
        }
        urgent
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

    /// Waits for the end of the command.
    fn until_ended(&mut self, saver: Option<&Saver>) -> CommandEnd {
        let mut hurried = false;
        loop {
            let farewell = match self.next_look() {
                Some(Event::Told(ToRecorder::Ended { ending, hurried, cpu_ms })) => {
                    return CommandEnd { ending: Some(ending), hurried, cpu_ms };
                }
                Some(Event::Told(ToRecorder::Farewell)) => true,
                // Some send what they send to every process of a job.
                Some(Event::Caught(Caught::Signal(got))) => {
                    hurried |= got.hurries();
                    got.is_a_farewell()
                }
                Some(Event::Silence) => {
                    self.alone = true;
                    false
                }
                Some(Event::Stopped(ended)) => {
                    self.service_ended(ended);
                    false
                }
                Some(Event::Crew(event)) => {
                    drop(self.company.hear(event));
                    false
                }
                Some(
                    Event::Caught(Caught::Child)
                    | Event::Told(_)
                    | Event::Seeking(_)
                    | Event::Ready(_)
                    | Event::Elsewhere(_)
                    | Event::Refused(_)
                    | Event::Saved(_),
                )
                | None => false,
            };
            if let (true, Some(saver)) = (farewell, saver) {
                saver.save_now();
            }
            if self.alone && self.command.as_ref().is_none_or(CommandProcess::has_ended) {
                return CommandEnd { ending: None, hurried, cpu_ms: None };
            }
        }
    }

    fn service_ended(&mut self, ended: Result<(), String>) {
        if !std::mem::replace(&mut self.stopped, true) && self.up.is_some() {
            let why = ended.err().unwrap_or_else(|| "it stopped".to_owned());
            self.notes.warn(format_args!("the command continues, but telem no longer records it: {why}"));
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

    /// Waits for what `pick` picks, until `deadline`. A signal to the supervisor brings that near, a second one ends it.
    fn wait<T>(&mut self, deadline: &mut Duration, at_what: &str, pick: impl Fn(Event) -> Option<T>) -> Option<T> {
        let slow = self.clock.monotonic() + SLOW;
        let mut shown: Option<AtWork> = None;
        loop {
            let until = if shown.is_none() { slow.min(*deadline) } else { *deadline };
            match self.next(until) {
                Some(Event::Told(ToRecorder::Hurry)) => {
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
        self.end_tunnel();
        self.dismiss(None, EndPace::Hurried);
        self.service.stop(None);
        let mut deadline = self.clock.monotonic() + HURRIED_TIMEOUT;
        if !self.stopped
            && self.await_stop(&mut deadline)
            && let Some(up) = self.up.take()
        {
            up.places.discard();
        }
    }

    /// The next event; `None` when it is time to look for the command.
    fn next_look(&self) -> Option<Event> {
        let soon = self.clock.monotonic() + LOOK_INTERVAL;
        self.next(if self.alone { soon } else { Duration::MAX })
    }

    /// The next event; `None` when `deadline` has passed.
    fn next(&self, deadline: Duration) -> Option<Event> {
        let patience = deadline.saturating_sub(self.clock.monotonic());
        // It is never disconnected: we hold a sender.
        self.events.recv_timeout(patience).ok()
    }
}

/// The end of a command.
struct CommandEnd {
    /// `None` if no process was left to report it.
    ending: Option<Ending>,
    /// telem was told to end too.
    hurried: bool,
    /// Processor time of all that ended before it, as the kernel added it up.
    cpu_ms: Option<u64>,
}
