//! Membership: which nodes a job has, what each of them reports, and which of them has fallen silent.
//!
//! The head keeps a [`registry`]. Agents ([`agent`](crate::agent)) join it, report every second, and leave, by the
//! requests of [`messages`], which [`routes`] answers and [`link`] sends. Agents [`forward`] queries that they get. All
//! decisions are made in the registry, which knows no clock and no network; the other modules carry them out.

pub mod dial;
mod doctor;
pub mod forward;
pub mod last_error;
pub mod link;
pub mod messages;
pub mod own;
pub mod registry;
pub mod routes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::value::RawValue;
use telem_engine::Clock;
use telem_query::cluster::{KnownDelta, Members};
use tokio::sync::watch;
use url::Url;

use self::messages::{JoinAnswer, JoinRequest, Leave, Listed, NodeReport, ReportAnswer};
use self::registry::{Moment, NodeRefusal, Registry};

use crate::protocols::proxy::targets::node::{CountingNode, CountingNodes};
use crate::token::TokenError;

pub use self::doctor::watch as watch_over;

/// 64 random bits in hexadecimal: one life of a process.
///
/// # Errors
/// When the operating system gives no random bytes.
pub fn random_id() -> Result<String, TokenError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// The nodes of a job, at its head. Clones share them.
#[derive(Clone, Debug)]
pub struct NodeRoster {
    registry: Arc<Mutex<Registry>>,
    /// The same nodes, as queries see them.
    members: Members,
    /// Those that count something for clients of Metric Proxy.
    counting: Arc<watch::Sender<CountingNodes>>,
    clock: Arc<dyn Clock>,
}

impl NodeRoster {
    pub fn new(registry: Registry, clock: Arc<dyn Clock>) -> Self {
        let members = Members::new(Arc::clone(&clock));
        let counting = Arc::new(watch::Sender::new(CountingNodes::new()));
        Self { registry: Arc::new(Mutex::new(registry)), members, counting, clock }
    }

    /// The nodes that queries ask.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The nodes that count something for clients of Metric Proxy, as they become known.
    pub fn counting(&self) -> watch::Receiver<CountingNodes> {
        self.counting.subscribe()
    }

    /// # Errors
    /// Why the node may not join.
    pub fn join(&self, request: &JoinRequest) -> Result<JoinAnswer, NodeRefusal> {
        let joined = self.registry().join(request, self.now());
        match &joined {
            Ok(joined) => {
                tracing::info!(node = joined.node, url = %request.url, pid = request.pid, "a node joined");
                if let Ok(url) = Url::parse(&request.url) {
                    self.members.join(&joined.node, url.clone());
                    self.counting.send_if_modified(|nodes| match nodes.get_mut(&*joined.node) {
                        Some(node) => {
                            *node = CountingNode { url, joins: node.joins + 1 };
                            true
                        }
                        None => false,
                    });
                }
            }
            Err(refusal) => tracing::warn!(node = request.node, host = request.host, %refusal, "a node was refused"),
        }
        joined
    }

    /// Takes in how a node is, and what it has: names may be many, so not on the threads of the network.
    ///
    /// # Errors
    /// Unknown, for a node that is to join first.
    pub fn report(&self, report: NodeReport) -> Result<ReportAnswer, NodeRefusal> {
        let (node, known, has_counters) = (report.node.clone(), report.known.clone(), report.has_counters);
        let heard = self.registry().report(report, self.now())?;
        if has_counters {
            self.note_counters(&node);
        }
        if heard.is_back {
            // Else a query that has lost the node knows better.
            self.members.mark_up(&node);
        }
        let known = known.and_then(|known| self.learn(&node, &known));
        Ok(ReportAnswer { known, ..heard.answer })
    }

    fn note_counters(&self, node: &str) {
        let url = self.registry().url(node);
        self.counting.send_if_modified(|nodes| match url {
            Some(url) if !nodes.contains_key(node) => {
                nodes.insert(node.into(), CountingNode { url, joins: 0 });
                true
            }
            _ => false,
        });
    }

    /// How many of the node's series are known then.
    fn learn(&self, node: &str, known: &RawValue) -> Option<u32> {
        let delta: Result<KnownDelta, _> = serde_json::from_str(known.get());
        let learned = match &delta {
            Ok(delta) => self.members.learn(node, delta).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        learned.unwrap_or_else(|error| {
            tracing::warn!(node, error, "a node reports invalid names; it takes part in every query");
            None
        })
    }

    /// # Errors
    /// Unknown.
    pub fn leave(&self, leave: &Leave) -> Result<(), NodeRefusal> {
        self.registry().leave(leave, self.now())?;
        tracing::info!(node = leave.node, reason = leave.reason, "a node left");
        self.counting.send_if_modified(|nodes| nodes.remove(&*leave.node).is_some());
        self.members.leave(&leave.node, &format!("left: {}", leave.reason));
        Ok(())
    }

    /// All nodes besides the head, by name.
    pub fn list(&self) -> Vec<Listed> {
        self.registry().list(self.now())
    }

    /// From now on the answer to each node's next report tells it to save the rest and to end.
    pub fn end(&self) {
        self.registry().end();
    }

    /// Names of nodes that have not left: after [`NodeRoster::end`] those that are still at work, or gone without a
    /// word.
    pub fn present(&self) -> Vec<String> {
        self.registry().present()
    }

    /// Nodes that have just become silent for too long.
    fn overdue(&self) -> Vec<(String, Duration)> {
        self.registry().overdue(self.now())
    }

    fn now(&self) -> Moment {
        Moment { wall: self.clock.now(), steady: self.clock.monotonic() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
