//! Work that may examine millions of names or series: beside the threads of the network, a few at a time, one per
//! connection, within a deadline, and only as long as its client waits.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use telem_engine::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::ApiError;
use crate::http::asker::Asker;

/// How much of it there may be.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// Walks at once.
    pub running_max: usize,
    /// Walks that wait for one of those to end.
    pub waiting_max: usize,
    /// Longest that one waits.
    pub wait_max: Duration,
    /// Longest that one takes.
    pub deadline: Duration,
    /// Large answers that are written at once; others wait, for as long as their clients do.
    pub renders_max: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self {
            running_max: 2,
            waiting_max: 64,
            wait_max: Duration::from_secs(10),
            deadline: Duration::from_secs(30),
            renders_max: 4,
        }
    }
}

/// The places for such work; clones share them.
#[derive(Clone, Debug)]
pub struct Walks {
    limits: WalkLimits,
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    renders: Arc<Semaphore>,
}

impl Default for Walks {
    fn default() -> Self {
        Self::new(WalkLimits::default())
    }
}

/// Tells work that nobody wants it any more; clones are one sign.
#[derive(Clone, Debug, Default)]
pub struct StopSign(Arc<AtomicBool>);

impl StopSign {
    /// # Errors
    /// Unavailable, once the work is to end: somebody may still be told so.
    pub fn check(&self) -> Result<(), ApiError> {
        if self.0.load(Ordering::Relaxed) { Err(given_up()) } else { Ok(()) }
    }
}

/// Puts the sign up when it is dropped.
struct StopWhenDropped(StopSign);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Walks {
    pub fn new(limits: WalkLimits) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count));
        Self {
            limits,
            running: places(limits.running_max.max(1)),
            waiting: places(limits.waiting_max),
            renders: places(limits.renders_max.max(1)),
        }
    }

    /// Does `work` for `asker` when its turn comes. `work` looks at the sign now and then, and ends when that says so; it
    /// never begins if that is up before.
    ///
    /// # Errors
    /// Those of `work`; Busy when there is no turn in time; Unavailable when it takes too long, or its client is gone.
    pub async fn walk<T, E>(
        &self,
        asker: &Asker,
        work: impl FnOnce(&StopSign) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
    {
        let places = tokio::select! {
            places = self.turn(asker) => places?,
            () = asker.gone() => return Err(given_up().into()),
        };
        let stop = StopWhenDropped(StopSign::default());
        let sign = stop.0.clone();
        let walking = tokio::task::spawn_blocking(move || {
            let _held = places;
            sign.check()?;
            work(&sign)
        });
        tokio::select! {
            walked = walking => walked.map_err(bug)?,
            () = asker.gone() => Err(given_up().into()),
            () = tokio::time::sleep(self.limits.deadline) => {
                let what = format!(
                    "looking through the names of series took longer than {} s, the most that is allowed (limit \
                     WalkLimits::deadline); name a metric, or more tags",
                    self.limits.deadline.as_secs_f64()
                );
                Err(ApiError::of_kind(ErrorKind::Unavailable, what).into())
            }
        }
    }

    async fn turn(&self, asker: &Asker) -> Result<[OwnedSemaphorePermit; 2], ApiError> {
        let WalkLimits { running_max, wait_max, .. } = self.limits;
        let busy = || {
            let what = format!(
                "{running_max} requests that look through the names of series run already, and others wait; try again \
                 in a moment"
            );
            ApiError::of_kind(ErrorKind::Busy, what)
        };
        let places = async {
            let own = asker.turn().await.map_err(|_| busy())?;
            if let Ok(place) = Arc::clone(&self.running).try_acquire_owned() {
                return Ok([own, place]);
            }
            let _waiting = self.waiting.try_acquire().map_err(|_| busy())?;
            let place = Arc::clone(&self.running).acquire_owned().await.map_err(|_| busy())?;
            Ok([own, place])
        };
        tokio::time::timeout(wait_max, places).await.map_err(|_| busy())?
    }

    /// Does a bounded piece of `work`, such as writing a part of an answer, when its turn comes.
    ///
    /// # Errors
    /// Those of `work`.
    pub async fn render<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<ApiError> + Send + 'static,
    {
        let place = Arc::clone(&self.renders).acquire_owned().await.map_err(|_| given_up())?;
        let rendering = tokio::task::spawn_blocking(move || {
            let _place = place;
            work()
        });
        rendering.await.map_err(bug)?
    }
}

fn given_up() -> ApiError {
    ApiError::of_kind(ErrorKind::Unavailable, "the client went away before it was answered")
}

fn bug(panic: tokio::task::JoinError) -> ApiError {
    ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {panic}"))
}
