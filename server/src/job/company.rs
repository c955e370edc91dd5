//! The other processes that record a job, from the view of the recorder of one node: agents that it started, nodes that
//! joined it, and the other processes of its own node.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use telem_engine::Clock;
use telem_engine::options::Options;

use super::child::Ending;
use super::notes::{AtWork, Notes};
use super::{HURRIED_TIMEOUT, STOP_TIMEOUT};
use crate::info::counted;
use crate::join::Join;
use crate::launch::agents::{Agents, AgentsOptions};
use crate::launch::crew::{Crew, CrewEvent, CrewMembers};
use crate::launch::hostlist;
use crate::launch::task::Claim;
use crate::membership::NodeRoster;
use crate::membership::messages::Liveness;
use crate::saving::upload::Overview;
use crate::service::Ready;

/// How much of a hurried end agents get. The rest is for the head's own database.
pub(crate) const HURRIED_AGENTS_TIMEOUT: Duration = Duration::from_millis(2_900);
/// How long the word of their end may take.
const DISMISSED_GRACE: Duration = Duration::from_millis(200);
/// Longest that a recorder whose command ended well waits for others that end by themselves: nodes that joined it, and
/// processes of its node that send to it.
pub(crate) const OTHERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is looked whether the other processes of this node run.
const GUESTS_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Longest that giving a node back may take: it is a name on a file system that may hang.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

impl CrewMembers for NodeRoster {
    fn present(&self) -> Vec<String> {
        NodeRoster::present(self)
    }

    fn end(&self) {
        NodeRoster::end(self);
    }
}

/// What the nodes of a head, besides its own, have at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub nodes: usize,
    pub samples: u64,
    pub series: u64,
    pub bytes: u64,
    /// Samples that their clients dropped.
    pub clients_dropped: u64,
    /// Those that have not said farewell.
    pub unheard: Vec<String>,
}

impl Tally {
    /// `None` where no other node ever joined.
    pub fn of(ready: &Ready) -> Option<Self> {
        let listed = ready.nodes.as_ref()?.list();
        let mut tally = Self::default();
        for node in listed.into_iter().filter(|node| !node.is_head) {
            tally.nodes += 1;
            tally.samples += node.figures.samples;
            tally.series += node.figures.series;
            tally.bytes += node.figures.bytes;
            tally.clients_dropped += node.figures.clients_dropped;
            if node.state != Liveness::Left {
                tally.unheard.push(node.node);
            }
        }
        (tally.nodes > 0).then_some(tally)
    }
}

/// How much time there is for an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndPace {
    Calm,
    Hurried,
}

impl EndPace {
    pub fn of(hurried: bool) -> Self {
        if hurried { Self::Hurried } else { Self::Calm }
    }
}

/// What becomes of a job some of whose nodes did not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortCompany {
    /// It goes on with those that did.
    GoesOn,
    /// It ends before the command starts.
    EndsTheJob,
}

/// Everybody else.
#[derive(Debug)]
pub struct Company {
    short: ShortCompany,
    notes: Notes,
    clock: Arc<dyn Clock>,
    crew: Option<Crew>,
    /// Shown while agents are waited for.
    shown: Option<AtWork>,
    /// Why agents are missing, while the command waits.
    missing: Vec<String>,
    gathered: bool,
    dismissed: bool,
    /// The deadline for nodes that were not started from here.
    others: Option<Duration>,
    claim: Option<Arc<Claim>>,
    /// Ends when the other processes of this node have.
    guests: Option<Receiver<()>>,
}

impl Company {
    pub fn new(short: ShortCompany, notes: Notes, clock: Arc<dyn Clock>) -> Self {
        Self {
            short,
            notes,
            clock,
            crew: None,
            shown: None,
            missing: Vec::new(),
            gathered: false,
            dismissed: false,
            others: None,
            claim: None,
            guests: None,
        }
    }

    /// Keeps the node for the processes on it, which learn how to reach this one.
    pub fn keep(&mut self, claim: Claim, environment: Vec<(String, OsString)>) {
        let claim = Arc::new(claim);
        self.claim = Some(Arc::clone(&claim));
        // The file system may hang; nothing waits for that.
        let tell = move || {
            if let Err(error) = claim.tell(&environment) {
                tracing::warn!(%error, "the other processes of this node do not learn where to send");
            }
        };
        if let Err(error) = thread::Builder::new().name("telem-claim".to_owned()).spawn(tell) {
            tracing::warn!(%error, "the other processes of this node do not learn where to send");
        }
    }

    /// Starts agents. How many nodes there will be; `None` when there is nothing to wait for.
    pub fn start(
        &mut self,
        options: AgentsOptions,
        ready: &Ready,
        hear: impl Fn(CrewEvent) + Send + 'static,
    ) -> Option<usize> {
        let (join, nodes) = (ready.join.clone()?, ready.nodes.clone()?);
        // For those alone: the input of others may be a file.
        let mut join = Join { orphan_timeout: options.orphan_timeout, ..join };
        if options.fleet.is_local() {
            // Programs of this machine find the head's.
            join.dragon = None;
        }
        let wanted = options.fleet.len();
        let hosts = hostlist::fold(&options.fleet.hosts(&options.host));
        let started = join.to_json().map_err(std::io::Error::from).and_then(|join| {
            let start = move || Agents::start(&options, &join);
            Crew::start(wanted, start, Box::new(nodes), Arc::clone(&self.clock), hear)
        });
        match started {
            Ok(crew) => {
                self.shown = Some(self.notes.at_work(format!("waiting for agents on {hosts}")));
                self.crew = Some(crew);
                Some(wanted)
            }
            Err(error) => {
                self.notes.warn(format_args!("{hosts} are not recorded: no thread for that: {error}"));
                None
            }
        }
    }

    /// Takes note of what happened to agents. Whether the command may start now that it did.
    ///
    /// # Errors
    /// Why it is not to start at all.
    pub fn hear(&mut self, event: CrewEvent) -> Result<bool, String> {
        match event {
            CrewEvent::None(error) => self.miss(format!("no agents: {error}")),
            CrewEvent::Lost(ended) if ended.in_order => {
                self.miss(format!("{} ended before its job did: {}", ended.hosts, ended.why));
            }
            CrewEvent::Lost(ended) => self.miss(format!("{} is not recorded: {}", ended.hosts, ended.why)),
            CrewEvent::Late(hosts) => {
                self.notes.warn(format_args!("{hosts} did not end in time: some of its last samples may be missing"));
            }
            CrewEvent::Gathered { joined, wanted } => {
                self.shown = None;
                self.gathered = true;
                if joined < wanted && self.short == ShortCompany::EndsTheJob {
                    let why = if self.missing.is_empty() { "too late".to_owned() } else { self.missing.join("; ") };
                    return Err(format!("{joined} of {} joined: {why}", counted(wanted as u64, "agent")));
                }
                if joined < wanted && self.missing.is_empty() {
                    self.notes.warn(format_args!(
                        "{joined} of {} joined so far; the others may join while the command runs",
                        counted(wanted as u64, "agent")
                    ));
                }
                return Ok(true);
            }
            CrewEvent::Dismissed { stayed } => {
                self.dismissed = true;
                if !stayed.is_empty() {
                    tracing::debug!(nodes = %hostlist::fold(&stayed), "no farewell");
                }
            }
        }
        Ok(false)
    }

    fn miss(&mut self, why: String) {
        self.notes.warn(&why);
        if !self.gathered {
            self.missing.push(why);
        }
    }

    /// Tells agents to end. How long that may take.
    pub fn dismiss(&mut self, ending: Option<Ending>, pace: EndPace, save_timeout: Duration) -> Duration {
        let hurried = pace == EndPace::Hurried;
        let patience = if hurried { HURRIED_AGENTS_TIMEOUT.min(HURRIED_TIMEOUT) } else { STOP_TIMEOUT + save_timeout };
        if let Some(crew) = &self.crew {
            crew.dismiss(patience);
            return patience + DISMISSED_GRACE;
        }
        // A launcher may end all processes of a command one of which failed, and waits for nothing but its end.
        let well = ending == Some(Ending::Exited(0)) && !hurried;
        let patience = if well { OTHERS_TIMEOUT } else { Duration::ZERO };
        if well {
            self.guests = self.claim.clone().map(watch_guests);
        }
        self.others = Some(self.clock.monotonic() + patience);
        patience
    }

    /// Whether there is no process left to wait for.
    pub fn is_dismissed(&self, ready: Option<&Ready>) -> bool {
        if self.crew.is_some() {
            return self.dismissed;
        }
        let waits = self.others.is_some_and(|until| self.clock.monotonic() < until);
        let present = || ready.and_then(|ready| ready.nodes.as_ref()).is_some_and(|nodes| !nodes.present().is_empty());
        let has_guests = || self.guests.as_ref().is_some_and(|gone| gone.try_recv() == Err(TryRecvError::Empty));
        !waits || !(has_guests() || present())
    }

    /// What came of saving the nodes of agents.
    pub fn tell_saved(&self, ready: &Ready, pace: EndPace) {
        let (Some(uploads), Some(nodes), true) = (&ready.uploads, &ready.nodes, self.crew.is_some()) else { return };
        let others = nodes.list().into_iter().filter(|node| !node.is_head);
        let expected: Vec<String> = others.map(|node| node.node).collect();
        if expected.is_empty() {
            return;
        }
        if pace == EndPace::Hurried {
            // There is no time to examine what a node that did not finish has left.
            let Overview { nodes, done, .. } = uploads.overview(&expected);
            if done < nodes {
                self.notes.warn(format_args!(
                    "{done} of {} had time to report that everything is saved",
                    counted(nodes as u64, "node")
                ));
            }
            return;
        }
        let saved = uploads.outcome(&expected);
        if saved.is_whole() {
            self.notes.say(saved);
        } else {
            self.notes.error(saved);
        }
    }

    /// Gives the node back.
    pub fn leave(&mut self) {
        self.crew = None;
        let Some(claim) = self.claim.take() else { return };
        let (done, waits) = channel();
        let give_back = move || {
            drop(claim);
            let _ = done.send(());
        };
        if thread::Builder::new().name("telem-claim".to_owned()).spawn(give_back).is_ok() {
            let _ = waits.recv_timeout(CLAIM_TIMEOUT);
        }
    }
}

/// Says when no other process of this node runs any more.
fn watch_guests(claim: Arc<Claim>) -> Receiver<()> {
    let (gone, waits) = channel();
    let watch = move || {
        let machine = Options::default().machine;
        let mut looks = OTHERS_TIMEOUT.as_millis() / GUESTS_LOOK_INTERVAL.as_millis();
        while claim.has_guests(&*machine) && looks > 0 {
            thread::park_timeout(GUESTS_LOOK_INTERVAL);
            looks -= 1;
        }
        let _ = gone.send(());
    };
    // Without a thread there is no waiting.
    let _ = thread::Builder::new().name("telem-guests".to_owned()).spawn(watch);
    waits
}
