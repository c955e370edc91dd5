//! What whoever stands at the top of a tree knows of this server, which decides what an original is told after a join, and
//! where this server stands. An original never forgets a child that asked it for a place, until it ends; who asks again
//! gets another place, and in the end one below itself.

use serde::{Deserialize, Serialize};
use telem_engine::StateRecord;

use super::super::live::ProxyLive;
use super::super::targets::TargetAddress;
use super::super::targets::fetch::{self, TargetReach};
use super::super::told::RootMemory;
use super::super::tree::key_of;

/// The record of where this server stood, and its key.
const PLACE: (&str, &str) = ("proxy.above", "place");
/// Most addresses of this server that are remembered, and most roots.
const NAMES_MAX: usize = 16;
/// Largest list of who stands where.
const TOPO_BYTES_MAX: usize = 16 << 20;

/// Where this server stood.
#[derive(Debug, Serialize, Deserialize)]
struct PlaceRecord {
    /// Host and port.
    root: String,
    /// It may hold a token.
    parent: String,
    /// Hosts and ports under which this server stood there, the last one last.
    own: Vec<String>,
    /// Roots below which an original was told what was counted: hosts and ports, the last one last. A place alone an
    /// original gives before that. `None` in older records, whose one root was told.
    #[serde(default)]
    told: Option<Vec<String>>,
}

impl PlaceRecord {
    fn find(live: &ProxyLive) -> Option<Self> {
        let (kind, key) = PLACE;
        live.state.db.snapshot().meta().record(kind, key).and_then(|text| serde_json::from_str(&text).ok())
    }

    fn told(&self) -> Vec<String> {
        self.told.clone().unwrap_or_else(|| vec![self.root.clone()])
    }

    fn keep(&self, live: &ProxyLive) {
        let (kind, key) = PLACE;
        live.keep(StateRecord::new(kind, key, serde_json::to_string(self).unwrap_or_default()));
    }
}

/// Roots below which an original was told what was counted.
pub fn told_roots(live: &ProxyLive) -> Vec<String> {
    PlaceRecord::find(live).map(|before| before.told()).unwrap_or_default()
}

/// Notes that an original is told from now on what was counted.
pub fn note_told(live: &ProxyLive) {
    if live.state.writer.is_none() {
        return;
    }
    if let Some(before) = PlaceRecord::find(live).filter(|before| !before.told().contains(&before.root)) {
        let told = Some(with_last(before.told(), &before.root));
        PlaceRecord { told, ..before }.keep(live);
    }
}

/// The last of these, with one more.
fn with_last(mut names: Vec<String>, last: &str) -> Vec<String> {
    names.retain(|name| *name != *last);
    names.push(last.to_owned());
    names.drain(..names.len().saturating_sub(NAMES_MAX));
    names
}

/// The top of a tree, as it answers now.
#[derive(Debug)]
pub struct TreeTop {
    root: TargetAddress,
    /// It is telem.
    pub is_ours: bool,
    /// What it has of what this server told before.
    pub memory: RootMemory,
    /// It has a place for this server.
    has_place: bool,
    before: Option<PlaceRecord>,
}

impl TreeTop {
    /// Asks a root what it knows of this server, which has the address `own` now.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(live: &ProxyLive, root: &TargetAddress, own: &str) -> Result<Self, String> {
        let before = PlaceRecord::find(live);
        let topo = fetch::get(root, TargetReach::Anywhere, "/topo", TOPO_BYTES_MAX).await?;
        let is_ours = topo.lineage.is_some();
        let pairs: Option<Vec<Vec<String>>> = serde_json::from_slice(&topo.body).ok();
        let is_own = |address: &str| {
            let is_old = |before: &PlaceRecord| before.own.iter().any(|old| old == address);
            address == own || before.as_ref().is_some_and(is_old)
        };
        // An original without children stands there as its own child.
        let is_child = |pair: &Vec<String>| {
            let child = pair.get(1).map_or("", |child| key_of(child));
            pair.first().is_none_or(|parent| key_of(parent) != child) && is_own(child)
        };
        let has_place = !is_ours && pairs.as_ref().is_some_and(|pairs| pairs.iter().any(is_child));
        // The successor of the original forgets who failed, and keeps what that counted. It alone knows this call.
        let may_forget = async || pairs.is_none() || fetch::acknowledged(root, "/period").await.is_ok();
        let is_root = |told: &String| *told == *root.authority();
        let may_have_been_told = before.as_ref().is_none_or(|before| before.told().iter().any(is_root));
        // Below one of ours stands an original, or nobody who is told anything of this.
        let is_there = has_place || (before.is_some() && (is_ours || may_forget().await));
        let memory = if is_there && may_have_been_told { RootMemory::Kept } else { RootMemory::Empty };
        Ok(Self { root: root.clone(), is_ours, memory, has_place, before })
    }

    /// The parent that this server has there already: the root itself where nobody knows which.
    pub fn parent(&self) -> Option<TargetAddress> {
        self.has_place.then(|| {
            let before = self.before.as_ref().filter(|before| before.root == self.root.authority());
            let known = before.and_then(|before| TargetAddress::parse(&before.parent).ok());
            known.unwrap_or_else(|| self.root.clone())
        })
    }

    /// Whether a parent is one of ours, which tells counters of an earlier life from those of this one by itself.
    pub async fn is_one_of_ours(&self, parent: &TargetAddress) -> bool {
        if parent.authority() == self.root.authority() {
            return self.is_ours;
        }
        let topo = fetch::get(parent, TargetReach::Anywhere, "/topo", TOPO_BYTES_MAX).await;
        topo.is_ok_and(|answer| answer.lineage.is_some())
    }

    /// Notes where this server stands from now on, under the address `own`, below who has `memory` of it.
    pub fn keep(&self, live: &ProxyLive, parent: &TargetAddress, own: &str, memory: RootMemory) {
        if live.state.writer.is_none() {
            return;
        }
        // As it stands now: a parent that did not acknowledge may poll all the same.
        let before = PlaceRecord::find(live);
        let (own_before, told) = before.map(|before| (before.own.clone(), before.told())).unwrap_or_default();
        let root = self.root.authority();
        let told = match memory {
            RootMemory::Kept => with_last(told, root),
            // What it was told it forgot.
            RootMemory::Empty => told.into_iter().filter(|told| *told != *root).collect(),
        };
        let own = with_last(own_before, own);
        PlaceRecord { root: root.to_owned(), parent: parent.secret_text(), own, told: Some(told) }.keep(live);
    }
}

/// Notes that this root was told, as after a join and two polls.
#[cfg(test)]
pub fn note_root(live: &ProxyLive, root: &str) {
    let told = Some(vec![root.to_owned()]);
    PlaceRecord { root: root.to_owned(), parent: root.to_owned(), own: Vec::new(), told }.keep(live);
}

#[cfg(test)]
mod tests;
