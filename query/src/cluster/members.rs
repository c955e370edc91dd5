//! The nodes beside our own, and the series that each of them has.
//!
//! Nodes report the keys of their series as these appear ([`super::Knowing`]); here the keys get common ids. So a query
//! is planned without a request to any node: the head knows which names exist, which nodes a query concerns, and which
//! series are on two nodes. A node whose report is not complete takes part in every query.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use telem_engine::{Clock, Db, MergedIndex, SeriesId, SeriesIndex, SeriesKey};
use url::Url;

use super::knowing::KnownDelta;
use crate::error::Result;
use crate::leaf::{KnownSeries, Owner};

/// Most series that a head knows by name, of all nodes together: 2 million take some 150 MB. A node that
/// has more is asked always.
pub const SERIES_MAX: u32 = 2_000_000;

/// The nodes that a head asks besides its own database. Clones share one list.
#[derive(Clone, Debug)]
pub struct Members {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    merged: MergedIndex,
    clock: Arc<dyn Clock>,
    inner: RwLock<MemberTable>,
}

#[derive(Debug, Default)]
struct MemberTable {
    /// In the order in which they came; a node that left keeps its place.
    members: Vec<NodeMember>,
    by_node: BTreeMap<Arc<str>, u32>,
    /// Of each common series whose it is: a place in `members`, or [`OURS`].
    owners: Vec<u32>,
    /// The series that others have besides.
    shared: BTreeMap<SeriesId, BTreeSet<u32>>,
    /// How many series of our own database are known here.
    ours: u32,
}

/// Stands for our own database among owners.
const OURS: u32 = u32::MAX;
/// Stands for no node: a series that is known only by name.
const NOBODYS: u32 = u32::MAX - 1;

#[derive(Debug)]
struct NodeMember {
    node: Arc<str>,
    url: Url,
    state: NodeState,
    since: Duration,
    /// The number of its series that are known here; [`None`] until it reported any.
    learned: Option<u32>,
    /// What its own numbers of series mean, those of one edition.
    edition: u64,
    numbers: Arc<Vec<SeriesId>>,
    /// There is no room for its names.
    too_many: bool,
}

/// Whether a node can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    Up,
    /// It is not asked until it answers a probe or joins again.
    Down {
        reason: String,
    },
    /// It will not come back by itself.
    Left {
        reason: String,
    },
}

/// What is known of one node.
#[derive(Clone, Debug)]
pub struct MemberState {
    pub node: Arc<str>,
    pub url: Url,
    pub state: NodeState,
    /// How long it has been in that state.
    pub since: Duration,
    /// How many of its series are known by name.
    pub series: u32,
}

/// The nodes that a query concerns besides our own database.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryTargets {
    pub owners: Vec<Owner>,
    /// What the numbers mean that owners may use instead of names.
    pub numbers: Vec<(Arc<str>, Arc<Vec<SeriesId>>)>,
    /// Those that cannot be asked, and why.
    pub missing: Vec<(Arc<str>, String)>,
}

impl Members {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { merged: MergedIndex::default(), clock, inner: RwLock::default() };
        Self { shared: Arc::new(shared) }
    }

    /// A node that answers queries at `url`. A node that joins again may have another address, and reports its names
    /// again.
    pub fn join(&self, node: &str, url: Url) {
        let since = self.shared.clock.monotonic();
        let mut inner = self.write();
        match inner.by_node.get(node).copied() {
            Some(at) => {
                let member = &mut inner.members[at as usize];
                member.state = NodeState::Up;
                (member.url, member.since) = (url, since);
                member.forget();
            }
            None => {
                let (at, node) = (inner.members.len() as u32, Arc::<str>::from(node));
                inner.by_node.insert(Arc::clone(&node), at);
                inner.members.push(NodeMember {
                    node,
                    url,
                    state: NodeState::Up,
                    since,
                    learned: None,
                    edition: 0,
                    numbers: Arc::default(),
                    too_many: false,
                });
            }
        }
    }

    /// Takes in the names of series that `node` has; how many of them are known then, so that the node can go on from
    /// there: a delta that leaves a gap changes nothing. `None` for a node that has not joined.
    ///
    /// # Errors
    /// When a name breaks its rule.
    pub fn learn(&self, node: &str, delta: &KnownDelta) -> Result<Option<u32>> {
        let keys = delta.keys()?;
        let mut inner = self.write();
        let Some(at) = inner.by_node.get(node).copied() else { return Ok(None) };
        let member = &mut inner.members[at as usize];
        if member.edition != delta.edition {
            member.forget();
            member.edition = delta.edition;
        }
        let known = member.learned.unwrap_or(0);
        if delta.from > known {
            return Ok(Some(known));
        }
        for (number, key) in (delta.from..).zip(&keys) {
            match self.shared.merged.insert(key, SERIES_MAX) {
                Ok(id) => {
                    inner.own(id, at);
                    inner.members[at as usize].number(number, id);
                }
                Err(_) => inner.members[at as usize].too_many = true,
            }
        }
        let known = known.max(delta.from.saturating_add(keys.len() as u32));
        inner.members[at as usize].learned = Some(known);
        Ok(Some(known))
    }

    /// Records a series of `node` that was found before the node reported it.
    pub(crate) fn find(&self, node: &str, key: &SeriesKey) {
        let mut inner = self.write();
        let Some(at) = inner.by_node.get(node).copied() else { return };
        if let Ok(id) = self.shared.merged.insert(key, SERIES_MAX) {
            inner.own(id, at);
        }
    }

    /// The node will not be asked any more, and is missing from answers for this reason.
    pub fn leave(&self, node: &str, reason: &str) {
        self.turn(node, |_| Some(NodeState::Left { reason: reason.to_owned() }));
    }

    /// The node is not asked until [`Members::mark_up`]: it did not answer, for this reason.
    pub fn mark_down(&self, node: &str, reason: &str) {
        self.turn(node, |state| {
            let reason = reason.to_owned();
            (*state == NodeState::Up).then_some(NodeState::Down { reason })
        });
    }

    /// The node answers again.
    pub fn mark_up(&self, node: &str) {
        self.turn(node, |state| matches!(state, NodeState::Down { .. }).then_some(NodeState::Up));
    }

    /// All nodes, sorted by name.
    pub fn list(&self) -> Vec<MemberState> {
        let now = self.shared.clock.monotonic();
        let inner = self.read();
        let members = inner.by_node.values().map(|at| &inner.members[*at as usize]);
        members
            .map(|member| MemberState {
                node: Arc::clone(&member.node),
                url: member.url.clone(),
                state: member.state.clone(),
                since: now.saturating_sub(member.since),
                series: member.learned.unwrap_or(0),
            })
            .collect()
    }

    /// The node that has this address, or had it last.
    pub(crate) fn at(&self, url: &Url) -> Option<Arc<str>> {
        let inner = self.read();
        let found = inner.members.iter().filter(|member| member.url == *url);
        found.min_by_key(|member| matches!(member.state, NodeState::Left { .. })).map(|member| Arc::clone(&member.node))
    }

    pub fn len(&self) -> usize {
        self.read().members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of all series of all nodes, under common ids.
    pub fn index(&self) -> &Arc<SeriesIndex> {
        self.shared.merged.index()
    }

    /// Takes in what came up in our own database since the last time.
    pub(crate) fn learn_ours(&self, db: &Db) {
        let index = db.index();
        let count = u32::try_from(index.len()).unwrap_or(u32::MAX);
        if self.read().ours == count {
            return;
        }
        let mut inner = self.write();
        for id in inner.ours..count {
            let Some(key) = index.key(SeriesId(id)) else { break };
            // Without room our own series are still found: our own database takes part in every query.
            if let Ok(id) = self.shared.merged.insert(&key, SERIES_MAX) {
                inner.own(id, OURS);
            }
            inner.ours = id + 1;
        }
    }

    /// The nodes that these series concern; `None` is all there are. `passes` says which nodes may be asked at all.
    pub(crate) fn concerned(&self, series: Option<&[SeriesId]>, passes: &dyn Fn(&str) -> bool) -> QueryTargets {
        let inner = self.read();
        let mut asked = vec![series.is_none(); inner.members.len()];
        // Our own database belongs to no node here: it takes part in every query.
        let mut mark = |owner: u32| {
            if let Some(asked) = asked.get_mut(owner as usize) {
                *asked = true;
            }
        };
        for id in series.unwrap_or_default() {
            mark(inner.owners.get(id.0 as usize).copied().unwrap_or(NOBODYS));
            inner.shared.get(id).into_iter().flatten().for_each(|owner| mark(*owner));
        }
        let mut concerned = QueryTargets::default();
        for (member, asked) in inner.members.iter().zip(asked) {
            let unknown = member.learned.is_none() || member.too_many;
            if !(asked || unknown) || !passes(&member.node) {
                continue;
            }
            match &member.state {
                NodeState::Up => {
                    let count = member.numbers.len() as u32;
                    let told = (count > 0).then_some(KnownSeries { edition: member.edition, count });
                    let (node, url) = (Arc::clone(&member.node), member.url.clone());
                    concerned.owners.push(Owner { node: Arc::clone(&node), url, told });
                    concerned.numbers.push((node, Arc::clone(&member.numbers)));
                }
                NodeState::Down { reason } | NodeState::Left { reason } => {
                    concerned.missing.push((Arc::clone(&member.node), reason.clone()));
                }
            }
        }
        concerned
    }

    /// Those of `series` (in any order) that are on more than one node.
    pub(crate) fn on_several(&self, series: &[SeriesId]) -> Vec<SeriesId> {
        let inner = self.read();
        if inner.shared.is_empty() {
            return Vec::new();
        }
        series.iter().filter(|id| inner.shared.contains_key(id)).copied().collect()
    }

    fn turn(&self, node: &str, turned: impl FnOnce(&NodeState) -> Option<NodeState>) {
        let since = self.shared.clock.monotonic();
        let mut inner = self.write();
        let Some(at) = inner.by_node.get(node).copied() else { return };
        let member = &mut inner.members[at as usize];
        if let Some(state) = turned(&member.state) {
            tracing::info!(node, ?state, "a node changed its state");
            (member.state, member.since) = (state, since);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, MemberTable> {
        self.shared.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, MemberTable> {
        self.shared.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeMember {
    /// Its earlier reports no longer count: it reports everything again.
    fn forget(&mut self) {
        self.learned = None;
        self.numbers = Arc::default();
    }

    /// Its series of this number is that one. Numbers without a gap are kept.
    fn number(&mut self, number: u32, id: SeriesId) {
        if self.numbers.len() == number as usize {
            Arc::make_mut(&mut self.numbers).push(id);
        }
    }
}

impl MemberTable {
    fn own(&mut self, id: SeriesId, owner: u32) {
        let at = id.0 as usize;
        if self.owners.len() <= at {
            self.owners.resize(at + 1, NOBODYS);
        }
        match self.owners[at] {
            NOBODYS => self.owners[at] = owner,
            first if first == owner => {}
            _ => {
                self.shared.entry(id).or_default().insert(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
