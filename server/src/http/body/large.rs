//! The threads that process large bodies: a few, and always the same.
//!
//! An allocator keeps memory for each thread that ever allocated. Decoding thirty bodies on thirty threads would leave
//! the memory of each body with its thread; with two threads it is kept only twice.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use telem_engine::ErrorKind;
use tokio::sync::{Semaphore, oneshot};

use crate::http::ApiError;

type BodyJob = Box<dyn FnOnce() + Send>;

/// Places for large bodies, with a thread each; clones share them. One more waits for its turn.
#[derive(Clone)]
pub struct LargeBodies {
    places: Arc<Semaphore>,
    places_max: usize,
    wait_max: Duration,
    threads: Arc<Mutex<BodyThreads>>,
}

/// Started when there is work; they end with the last clone.
#[derive(Default)]
struct BodyThreads {
    jobs: Option<Sender<BodyJob>>,
    next: Option<Arc<Mutex<Receiver<BodyJob>>>>,
    started: usize,
}

impl fmt::Debug for LargeBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LargeBodies({} free)", self.places())
    }
}

impl LargeBodies {
    /// `places` at once; others wait for `wait_max`.
    pub fn new(places: usize, wait_max: Duration) -> Self {
        let places_max = places.max(1);
        Self { places: Arc::new(Semaphore::new(places_max)), places_max, wait_max, threads: Arc::default() }
    }

    /// How many are free.
    pub fn places(&self) -> usize {
        self.places.available_permits()
    }

    /// Longest that one waits for a place.
    pub fn wait_max(&self) -> Duration {
        self.wait_max
    }

    /// Does `work` when its turn comes. It can check whether its client still waits. If none does before it begins, it
    /// never does.
    ///
    /// # Errors
    /// Busy when its turn does not come in time; Internal when it panics, or when there is no thread for it.
    pub async fn work<R: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fn() -> bool) -> R + Send + 'static,
    ) -> Result<R, ApiError> {
        let turn = tokio::time::timeout(self.wait_max, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = turn else {
            let what = format!(
                "large bodies are decoded a few at a time (limit BodyLimits::large), and this one had no turn within {} s; \
                 try again in a moment",
                self.wait_max.as_secs_f64()
            );
            return Err(ApiError::of_kind(ErrorKind::Busy, what));
        };
        let (done, result) = oneshot::channel();
        self.start(Box::new(move || {
            if done.is_closed() {
                return;
            }
            let made = work(&|| !done.is_closed());
            // Before its end is reported.
            drop(place);
            // The caller may be gone.
            let _ = done.send(made);
        }))?;
        result.await.map_err(|_| bug("a body that was decoded"))
    }

    fn start(&self, job: BodyJob) -> Result<(), ApiError> {
        let mut threads = locked(&self.threads);
        threads.jobs(self.places_max)?.send(job).map_err(|_| bug("a thread for bodies"))
    }
}

impl BodyThreads {
    /// The way to the threads, of which there is one more until there are enough.
    fn jobs(&mut self, threads_max: usize) -> Result<&Sender<BodyJob>, ApiError> {
        if self.jobs.is_none() {
            let (jobs, next) = channel();
            (self.jobs, self.next) = (Some(jobs), Some(Arc::new(Mutex::new(next))));
        }
        if self.started < threads_max
            && let Some(next) = self.next.clone()
        {
            let begun = std::thread::Builder::new().name("telem-body".to_owned()).spawn(move || serve(&next));
            match begun {
                Ok(_) => self.started += 1,
                Err(error) if self.started == 0 => {
                    let what = format!("the system gives no thread for large bodies: {error}; try again in a moment");
                    return Err(ApiError::of_kind(ErrorKind::Busy, what));
                }
                // The others do it.
                Err(_) => {}
            }
        }
        self.jobs.as_ref().ok_or_else(|| bug("a thread for bodies"))
    }
}

/// Does one job after another until no sender is left.
fn serve(next: &Mutex<Receiver<BodyJob>>) {
    loop {
        let job = locked(next).recv();
        let Ok(job) = job else { return };
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!("the decoder of a body panicked");
        }
    }
}

fn bug(what: &str) -> ApiError {
    ApiError::of_kind(ErrorKind::Internal, format!("bug in telem: {what} was lost"))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
