//! The crew: the agents of a head from start to end, watched by a thread that reports changes.
//!
//! It starts them, waits a few seconds for them to join, then checks now and then whether they still run. At the end
//! the head tells them, in the answers to their reports, to save the rest and to end. Agents that do not end in time
//! get SIGTERM, and then SIGKILL. Every wait has a deadline.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use telem_engine::Clock;

use super::agents::{Agents, Ended};

/// Longest that the command waits for agents to join.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the time that agents have to end is left for signals.
const SIGNAL_TIME: Duration = Duration::from_millis(900);
/// The part of that which SIGTERM gets.
pub(crate) const TERM_TIME: Duration = Duration::from_millis(700);
/// Agents that have less time than this are to hurry.
const CALM_TIME: Duration = Duration::from_secs(5);
/// How often they are looked at while something is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// And how often else.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The nodes that have joined the head.
pub trait CrewMembers: Send {
    /// Names of nodes that joined and did not leave.
    fn present(&self) -> Vec<String>;
    /// Tells them to save what is left and to end.
    fn end(&self);
}

/// What the thread says.
#[derive(Debug)]
pub enum CrewEvent {
    /// None could be started.
    None(io::Error),
    /// As many have joined as will be waited for.
    Gathered { joined: usize, wanted: usize },
    /// Some have ended that were to go on.
    Lost(Ended),
    /// Some did not end in time, and were ended. A host list.
    Late(String),
    /// All have ended, or were ended. `stayed`: those whose end was not seen.
    Dismissed { stayed: Vec<String> },
}

#[derive(Debug)]
enum CrewOrder {
    Dismiss { patience: Duration },
}

/// The thread. It leaves the agents to themselves when this is dropped.
#[derive(Debug)]
pub struct Crew {
    orders: Sender<CrewOrder>,
}

impl Crew {
    /// Lets `start` start agents, of which `wanted` are to join.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        wanted: usize,
        start: impl FnOnce() -> io::Result<Agents> + Send + 'static,
        members: Box<dyn CrewMembers>,
        clock: Arc<dyn Clock>,
        tell: impl Fn(CrewEvent) + Send + 'static,
    ) -> io::Result<Crew> {
        let (orders, given) = channel();
        let run = move || match start() {
            Ok(agents) => {
                Watch { agents, members, clock, orders: given, failed: false, forced: false }.run(wanted, tell)
            }
            Err(error) => {
                tell(CrewEvent::None(error));
                tell(CrewEvent::Gathered { joined: 0, wanted });
                if given.recv().is_ok() {
                    tell(CrewEvent::Dismissed { stayed: Vec::new() });
                }
            }
        };
        thread::Builder::new().name("telem-crew".to_owned()).spawn(run)?;
        Ok(Crew { orders })
    }

    /// Ends the agents within `patience`; [`CrewEvent::Dismissed`] follows. Again, with less, when it is to be sooner.
    pub fn dismiss(&self, patience: Duration) {
        // A thread that is gone has said so.
        let _ = self.orders.send(CrewOrder::Dismiss { patience });
    }
}

struct Watch {
    agents: Agents,
    members: Box<dyn CrewMembers>,
    clock: Arc<dyn Clock>,
    orders: Receiver<CrewOrder>,
    /// Some ended that were to go on: what they said is kept.
    failed: bool,
    /// Their time is over.
    forced: bool,
}

impl Watch {
    fn run(mut self, wanted: usize, tell: impl Fn(CrewEvent)) {
        let Some(mut deadline) = self.gather(wanted, &tell).or_else(|| self.watch(&tell)) else { return };
        self.members.end();
        self.hurry(deadline);
        while self.agents.running() > 0 && self.clock.monotonic() + SIGNAL_TIME < deadline {
            match self.orders.recv_timeout(LOOK_INTERVAL) {
                Ok(CrewOrder::Dismiss { patience }) => {
                    deadline = deadline.min(self.clock.monotonic() + patience);
                    self.hurry(deadline);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // No caller waits any more: all were informed.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look(&tell, true);
        }
        self.forced = true;
        self.agents.terminate();
        self.until_none_runs(TERM_TIME, &tell);
        self.agents.kill();
        self.until_none_runs(SIGNAL_TIME.saturating_sub(TERM_TIME), &tell);
        if !self.failed && self.agents.running() == 0 {
            self.agents.remove_logs();
        }
        tell(CrewEvent::Dismissed { stayed: self.members.present() });
    }

    /// They end in order when their head tells them to; without time for that, they get SIGTERM.
    fn hurry(&self, deadline: Duration) {
        if self.agents.are_here() && deadline.saturating_sub(self.clock.monotonic()) < CALM_TIME {
            self.agents.terminate();
        }
    }

    /// Until as many have joined as can. The deadline of their end, if that comes first.
    fn gather(&mut self, wanted: usize, tell: &impl Fn(CrewEvent)) -> Option<Duration> {
        let deadline = self.clock.monotonic() + JOIN_TIMEOUT;
        loop {
            let joined = self.members.present().len();
            self.look(tell, false);
            if joined >= wanted || self.agents.running() == 0 || self.clock.monotonic() >= deadline {
                tell(CrewEvent::Gathered { joined, wanted });
                return None;
            }
            match self.orders.recv_timeout(LOOK_INTERVAL) {
                Ok(CrewOrder::Dismiss { patience }) => {
                    tell(CrewEvent::Gathered { joined, wanted });
                    return Some(self.clock.monotonic() + patience);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Waits until they must end, and returns the deadline; `None` if no sender is left.
    fn watch(&mut self, tell: &impl Fn(CrewEvent)) -> Option<Duration> {
        loop {
            match self.orders.recv_timeout(WATCH_INTERVAL) {
                Ok(CrewOrder::Dismiss { patience }) => return Some(self.clock.monotonic() + patience),
                Err(RecvTimeoutError::Timeout) => self.look(tell, false),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn until_none_runs(&mut self, patience: Duration, tell: &impl Fn(CrewEvent)) {
        let deadline = self.clock.monotonic() + patience;
        while self.agents.running() > 0 && self.clock.monotonic() < deadline {
            thread::park_timeout(LOOK_INTERVAL);
            self.look(tell, true);
        }
    }

    /// Tells of those that ended, unless they were to.
    fn look(&mut self, tell: &impl Fn(CrewEvent), ending: bool) {
        for ended in self.agents.ended() {
            match (ending, ended.in_order) {
                (true, true) => {}
                (true, false) if self.forced => {
                    self.failed = true;
                    tell(CrewEvent::Late(ended.hosts));
                }
                _ => {
                    self.failed = true;
                    tell(CrewEvent::Lost(ended));
                }
            }
        }
    }
}
