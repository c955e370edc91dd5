//! Looks after the lanes of questions: one task for all of them, and none while nobody asks.
//!
//! A question has its lane until it is over or nobody wants it, and whoever waits for it gives the lane back then
//! ([`LaneHold`]). But a client may read slowly or not at all, so all lanes are looked at from time to time: what has
//! ended is given back, what works for long gives way to short questions, and what is past its deadline is stopped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::places::QueryPlaces;
use crate::lanes::{Lane, Lanes, SHORT_MAX};
use crate::leaf::Stop;

/// How often lanes are looked at. Whoever waits for a question at its deadline does not wait for this.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often none is found before nobody looks any more: to begin again wakes a thread up.
const LOOKS_WITHOUT_LANES_MAX: u32 = 20;

/// The lanes that questions have.
#[derive(Debug)]
pub(super) struct LaneWatch {
    lanes: Arc<Lanes>,
    /// Where they are looked at from.
    home: Handle,
    held: Mutex<HeldLanes>,
}

#[derive(Debug, Default)]
struct HeldLanes {
    /// By number.
    held: HashMap<u64, HeldLane>,
    next: u64,
    watched: bool,
}

/// A lane and the question that has it.
#[derive(Debug)]
pub(super) struct HeldLane {
    pub lane: Lane,
    pub places: QueryPlaces,
    /// Ends the question where it waits.
    pub ending: AbortHandle,
    /// Ends its leaves.
    pub leaves: Stop,
    pub begun: Instant,
    pub due: Instant,
    /// Whether short questions go first already.
    pub gave_way: bool,
}

impl LaneWatch {
    pub fn new(lanes: Arc<Lanes>, home: Handle) -> Self {
        Self { lanes, home, held: Mutex::default() }
    }

    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Looks after a lane until what is returned is dropped, or its question is over.
    pub fn hold(self: &Arc<Self>, lane: HeldLane) -> LaneHold {
        let mut all = self.held();
        let number = all.next;
        all.next += 1;
        all.held.insert(number, lane);
        if !all.watched {
            all.watched = true;
            self.home.spawn(Arc::clone(self).watch());
        }
        LaneHold { watch: Arc::clone(self), number }
    }

    /// Lets go of all lanes: what runs in them is dropped where it waits.
    pub fn clear(&self) {
        let held = std::mem::take(&mut self.held().held);
        drop(held);
    }

    async fn watch(self: Arc<Self>) {
        let mut looks_without_lanes = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let mut all = self.held();
            looks_without_lanes = if all.held.is_empty() { looks_without_lanes + 1 } else { 0 };
            if looks_without_lanes == LOOKS_WITHOUT_LANES_MAX {
                all.watched = false;
                return;
            }
            let now = Instant::now();
            let is_long = |held: &HeldLane| now.duration_since(held.begun) >= SHORT_MAX;
            for held in all.held.values_mut().filter(|held| !held.gave_way && is_long(held)) {
                held.lane.give_way();
                held.gave_way = true;
            }
            let over = |held: &HeldLane| held.ending.is_finished() || now >= held.due;
            let over: Vec<HeldLane> = all.held.extract_if(|_, held| over(held)).map(|(_, held)| held).collect();
            drop(all);
            over.into_iter().for_each(|held| self.end(held));
        }
    }

    /// The question is over: its place is free once nothing of it runs in the lane, or the lane is left behind.
    fn end(&self, held: HeldLane) {
        let HeldLane { lane, places, ending, leaves, .. } = held;
        leaves.ask();
        ending.abort();
        if let Some(lane) = self.lanes.give_back_now(lane) {
            let lanes = Arc::clone(&self.lanes);
            self.home.spawn(async move {
                lanes.give_back(lane).await;
                drop(places);
            });
        }
    }

    fn held(&self) -> MutexGuard<'_, HeldLanes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lane of a question that somebody waits for.
#[derive(Debug)]
pub(super) struct LaneHold {
    watch: Arc<LaneWatch>,
    number: u64,
}

impl Drop for LaneHold {
    fn drop(&mut self) {
        let held = self.watch.held().held.remove(&self.number);
        if let Some(held) = held {
            self.watch.end(held);
        }
    }
}
