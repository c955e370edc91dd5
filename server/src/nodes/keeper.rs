//! Saving what an agent stores, where its head says: a thread beside the agent, finished when its database is closed.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use telem_engine::Db;

use super::link;
use crate::job::save::{Saved, Saver};
use crate::join::Join;
use crate::upload::NodePlace;

/// The copy of an agent's database.
#[derive(Debug)]
pub struct Keeper {
    saver: Saver,
    saved: Receiver<Saved>,
}

impl Keeper {
    /// Starts saving the database of `node`; `None` where nothing is saved, or nothing can be.
    pub async fn start(db: Db, join: Join, node: String) -> Option<Self> {
        let started = tokio::task::spawn_blocking(move || Self::begin(db, &join, &node)).await;
        let started = started.unwrap_or_else(|panic| Err(io::Error::other(panic.to_string())));
        started.unwrap_or_else(|error| {
            tracing::error!(%error, "what this node stores is not saved");
            None
        })
    }

    fn begin(db: Db, join: &Join, node: &str) -> io::Result<Option<Self>> {
        let Some(save) = &join.save else { return Ok(None) };
        // They were checked when the join file was read.
        let heads = join.heads().unwrap_or_default();
        let heads = heads.iter().map(|head| link::client(head, join).map_err(io::Error::other));
        let place = NodePlace::new(heads.collect::<io::Result<_>>()?, node, Some(save.clone()))?;
        let (tell, saved) = channel();
        Ok(Some(Self { saver: Saver::start(db, place, join.save_interval, tell)?, saved }))
    }

    /// Saves the rest of a database that is closed; what came of it, `None` if it takes longer than `timeout`.
    pub async fn finish(self, timeout: Duration) -> Option<Saved> {
        self.saver.finish();
        let waited = tokio::task::spawn_blocking(move || self.saved.recv_timeout(timeout).ok());
        waited.await.ok().flatten()
    }
}
