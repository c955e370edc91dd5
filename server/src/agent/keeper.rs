//! Saves the samples of an agent to the place that its head names, on a thread beside the agent; finished when the
//! database is closed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use telem_engine::Db;

use crate::join::Join;
use crate::membership::link;
use crate::saving::save::{Saved, Saver};
use crate::saving::upload::NodePlace;

/// The copy of an agent's database.
#[derive(Debug)]
pub struct Keeper {
    saver: Saver,
    saved: Receiver<Saved>,
}

impl Keeper {
    /// Starts saving the database of `node`; `None` where nothing is saved, or nothing can be. `source` is the join file,
    /// which says where a head is that was started again.
    pub async fn start(db: Db, join: Join, source: PathBuf, node: String) -> Option<Self> {
        let started = tokio::task::spawn_blocking(move || Self::begin(db, &join, &source, &node)).await;
        let started = started.unwrap_or_else(|panic| Err(io::Error::other(panic.to_string())));
        started.unwrap_or_else(|error| {
            tracing::error!(%error, "the samples of this node are not saved");
            None
        })
    }

    fn begin(db: Db, join: &Join, source: &Path, node: &str) -> io::Result<Option<Self>> {
        let Some(save) = &join.save else { return Ok(None) };
        let (first, source) = (join.clone(), source.to_path_buf());
        let heads = move || {
            // What came on standard input does not come again; a head with another token is for another life.
            let now = if source == Path::new("-") { None } else { Join::read(&source).ok() };
            let join = now.filter(|now| now.token == first.token).unwrap_or_else(|| first.clone());
            let heads = join.heads().unwrap_or_default();
            heads.iter().filter_map(|head| link::client(head, &join).ok()).collect()
        };
        let place = NodePlace::new(Box::new(heads), node, Some(save.clone()));
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
