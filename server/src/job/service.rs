//! The service beside a job, on threads of its own, so that the job never waits for it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telem_engine::{Db, Durability, MetaChange};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::prepared::Prepare;
use super::{Event, Preparation, PreparedJob, RunningService};
use crate::launch::Patience;
use crate::service::{self, Ready, ServiceError};
use crate::settings;

#[derive(Debug)]
pub struct ServiceThread {
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    /// It is not wanted any more.
    unwanted: Arc<AtomicBool>,
}

/// That of the job for a service that is not there yet.
struct AwaitedJob {
    events: Sender<Event>,
    unwanted: Arc<AtomicBool>,
}

impl Patience for AwaitedJob {
    fn ask(&self, time: Duration) {
        // The receiver is gone only when the process is about to end anyway.
        let _ = self.events.send(Event::Seeking(time));
    }

    fn is_over(&self) -> bool {
        self.unwanted.load(Ordering::Relaxed)
    }
}

impl ServiceThread {
    /// Prepares and starts it; what comes of that, now and at its end, arrives as events.
    pub fn start(runtime: Runtime, prepare: Prepare, events: Sender<Event>) -> ServiceThread {
        let (stop, stopped) = oneshot::channel();
        let unwanted = Arc::new(AtomicBool::new(false));
        let awaited = AwaitedJob { events: events.clone(), unwanted: Arc::clone(&unwanted) };
        let served = serve(prepare, awaited, async { stopped.await.unwrap_or(()) });
        let task = runtime.spawn(served);
        runtime.spawn(async move {
            let ended = task.await.unwrap_or_else(|panic| Err(format!("the service died of a bug: {panic}")));
            // The receiver is gone only when the process is about to end anyway.
            let _ = events.send(Event::Stopped(ended));
        });
        ServiceThread { runtime, stop: Some(stop), unwanted }
    }

    /// Keeps `description` as the job's. It is not waited for: the disk may hang.
    pub fn describe(&self, db: &Db, description: serde_json::Value) {
        let db = db.clone();
        self.runtime.spawn_blocking(move || {
            if let Err(error) = put(&db, description) {
                tracing::warn!(%error, "the description of the job was not stored");
            }
        });
    }

    /// Tells it to stop, after `last` became the job's description. [`Event::Stopped`] follows.
    pub fn stop(&mut self, last: Option<(Db, serde_json::Value)>) {
        let Some(stop) = self.stop.take() else { return };
        self.unwanted.store(true, Ordering::Relaxed);
        self.runtime.spawn(async move {
            if let Some((db, description)) = last {
                let described = tokio::task::spawn_blocking(move || put_last(&db, description)).await;
                if let Err(error) = described {
                    tracing::warn!(%error, "the description of the job was not stored");
                }
            }
            // A service that has stopped by itself does not listen.
            let _ = stop.send(());
        });
    }

    /// Leaves its threads to the end of the process.
    pub fn leave(self) {
        self.runtime.shutdown_background();
    }
}

fn put(db: &Db, description: serde_json::Value) -> telem_engine::Result<()> {
    let _turn = settings::turn();
    let description = settings::kept(description, db.snapshot().meta().job());
    db.put_meta(MetaChange::Job(description), Durability::Buffered)
}

/// The job of a database that knows of none: a command that asks at once is to read its own. It is described when it runs.
fn name(db: &Db, job: String) {
    if db.snapshot().meta().job().is_none()
        && let Err(error) = put(db, serde_json::json!({ "id": job }))
    {
        tracing::warn!(%error, "the name of the job was not stored");
    }
}

/// Also where the disk refuses it: what is in memory at the end is flushed, or saved elsewhere.
fn put_last(db: &Db, description: serde_json::Value) {
    let in_memory = || {
        let _turn = settings::turn();
        let description = settings::kept(description.clone(), db.snapshot().meta().job());
        db.put_meta_in_memory(MetaChange::Job(description))
    };
    let put = put(db, description.clone()).or_else(|_| in_memory());
    if let Err(error) = put {
        tracing::warn!(%error, "the end of the job was not stored");
    }
}

async fn serve(
    prepare: Prepare,
    awaited: AwaitedJob,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    // Directories are made there, and any of them may hang.
    let events = awaited.events.clone();
    let prepared =
        tokio::task::spawn_blocking(move || prepare(&awaited)).await.map_err(|panic| panic.to_string())??;
    let prepared = match prepared {
        Preparation::Serve(prepared) => *prepared,
        Preparation::Elsewhere { environment } => {
            let _ = events.send(Event::Elsewhere(environment));
            return Ok(());
        }
        Preparation::Refused { why } => {
            let _ = events.send(Event::Refused(why));
            return Ok(());
        }
    };
    let PreparedJob { options, places, agents, claim, head } = prepared;
    let rest = Arc::new(Mutex::new(Some((places, agents, claim))));
    let ready = {
        let (rest, job) = (Arc::clone(&rest), options.job.clone());
        move |ready: &Ready| {
            if let Some((places, agents, claim)) = take(&rest) {
                let up = Box::new(RunningService { ready: ready.clone(), places, agents, claim });
                let (events, job) = (events.clone(), job.clone());
                tokio::task::spawn_blocking(move || {
                    name(&up.ready.db, job);
                    // A caller that gave up waiting goes on without it.
                    let _ = events.send(Event::Ready(up));
                });
            }
        }
    };
    let served = match head {
        None => service::run(options, ready, stop).await.map_err(|error: ServiceError| error.to_string()),
        Some(head) => head.serve(options, ready, stop).await,
    };
    if let Some((places, ..)) = take(&rest) {
        places.discard();
    }
    served
}

fn take<T>(rest: &Mutex<Option<T>>) -> Option<T> {
    rest.lock().unwrap_or_else(PoisonError::into_inner).take()
}
