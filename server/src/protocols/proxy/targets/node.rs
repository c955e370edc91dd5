//! The nodes of our own job, at its head: each that counts something is polled as a child, so that `main` covers all of
//! them, and alarms watch over all of them. A node is known by its name, wherever it listens.
//!
//! A node stores what its clients count itself, and questions cover all nodes. The copy that a head keeps, so that its
//! totals never fall, is in metrics of other names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use telem_query::MissingNode;
use tokio::sync::watch;
use url::Url;

use super::super::tags::is_node;
use super::records::TargetRecord;
use super::{ProxyTargets, ScrapeKind, ScrapeTarget, TargetPlace, fetch};
use crate::client::{Address, Client, ClientError};
use crate::tls::Trust;
use crate::token::Token;

/// The looks of a head at what this node counts.
#[derive(Debug, Default)]
pub struct HeadLooks {
    begun: AtomicU64,
    /// The last of those that are over.
    over: watch::Sender<u64>,
}

impl HeadLooks {
    /// A look begins; its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// All was told.
    pub fn end(&self, look: u64) {
        self.over.send_modify(|over| *over = look.max(*over));
    }

    /// Until a look is over that begins from now on.
    pub async fn next(&self) {
        let wanted = self.begun.load(Ordering::Relaxed) + 1;
        // The sender is ours.
        let _ = self.over.subscribe().wait_for(|over| *over >= wanted).await;
    }
}

/// The nodes that count something, by name.
pub type CountingNodes = BTreeMap<Arc<str>, CountingNode>;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountingNode {
    pub url: Url,
    /// How often it joined: it was away in between.
    pub joins: u64,
}

/// The nodes of the job of a head.
#[derive(Clone, Debug)]
pub struct PolledNodes {
    pub counting: watch::Receiver<CountingNodes>,
    pub token: Token,
    /// The certificate of the job, where its nodes speak TLS.
    pub certificate: Option<String>,
}

impl PolledNodes {
    fn client(&self, node: &CountingNode) -> Result<Client, ClientError> {
        let client = Client::with_token(Address::parse(node.url.as_str())?, Some(self.token.secret()));
        let client = fetch::patient(client);
        Ok(match &self.certificate {
            Some(certificate) => client.trusting(Trust::Job(certificate.clone())),
            None => client,
        })
    }
}

impl ProxyTargets {
    /// Has every node polled that counts something, every `period`, for ever.
    pub async fn follow_nodes(&self, nodes: &PolledNodes, period: Duration) {
        let mut counting = nodes.counting.clone();
        let mut met = CountingNodes::new();
        loop {
            let now = counting.borrow_and_update().clone();
            for (name, node) in now.iter().filter(|(name, node)| met.get(*name) != Some(*node)) {
                match nodes.client(node) {
                    Ok(client) => self.meet(name, client, period),
                    Err(error) => tracing::error!(%error, node = %name, "what a node counts is missing from the sums"),
                }
            }
            for name in met.keys().filter(|name| !now.contains_key(*name)) {
                self.part_with(name);
            }
            met = now;
            if counting.changed().await.is_err() {
                return;
            }
        }
    }

    /// A node is there, perhaps at another place than before.
    fn meet(&self, name: &Arc<str>, client: Client, period: Duration) {
        let target = {
            let mut targets = self.targets();
            let number = super::next_number(&targets);
            let new = || {
                let record = TargetRecord { number, ..TargetRecord::default() };
                Arc::new(ScrapeTarget::new(Arc::clone(name), TargetPlace::Node(Arc::clone(name), None), record))
            };
            Arc::clone(targets.entry(Arc::clone(name)).or_insert_with(new))
        };
        {
            let mut status = target.lock();
            status.place = TargetPlace::Node(Arc::clone(name), Some(client));
            (status.kind, status.period, status.is_polled) = (Some(ScrapeKind::Proxy), period, true);
        }
        target.keep(&self.state);
        target.wake.notify_one();
        self.changed.notify_one();
        tracing::debug!(node = %name, "what a node counts is in the sums of its head");
    }

    /// A node said farewell: its jobs are over, and what they counted stays.
    fn part_with(&self, name: &Arc<str>) {
        let Some(target) = self.targets().get(name).cloned() else { return };
        target.lock().place = TargetPlace::Node(Arc::clone(name), None);
        target.wake.notify_one();
    }

    /// The nodes that did not answer when they were asked last: the sums have what they told before.
    pub fn silent_nodes(&self) -> Vec<MissingNode> {
        let targets = self.targets();
        let silent = targets.values().filter_map(|target| {
            let status = target.lock();
            match (&status.place, &status.error) {
                (TargetPlace::Node(name, Some(_)), Some(why)) => {
                    Some(MissingNode { node: name.to_string(), reason: why.clone() })
                }
                _ => None,
            }
        });
        silent.collect()
    }

    /// Whether a node had a job live when it was asked last.
    pub fn was_on_a_node(&self, job: &str) -> bool {
        self.targets().values().any(|target| is_node(&target.key) && target.lock().starts.contains_key(job))
    }
}
