//! Merges files, and drops them where retention says so, while the server runs, on a thread that mostly rests.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use telem_engine::{Clock, Db, ErrorKind, Result, UpkeepReport};
use telem_ingest::own_thread;

use crate::allocator;

/// How often it is asked whether something is due.
const PAUSE: Duration = Duration::from_secs(5);
/// How much longer it rests than it worked: it takes a fifth of a processor where one is idle.
const REST: u32 = 4;
/// The longest rest after work. On a busy machine work takes long because others work, and is no reason to rest.
const REST_MAX: Duration = Duration::from_secs(15);
/// After a failure, unless that was a damaged file, which is not tried again.
const RETRY: Duration = Duration::from_secs(60);
const NICENESS: i32 = 10;

/// Works from [`UpkeepThread::start`] until it is dropped; a merge that runs then stops soon, and nobody waits for it
/// here.
#[derive(Debug)]
pub(super) struct UpkeepThread {
    stop: Arc<UpkeepStop>,
}

#[derive(Debug, Default)]
struct UpkeepStop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl UpkeepThread {
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(db: Db, clock: Arc<dyn Clock>) -> std::io::Result<UpkeepThread> {
        let stop = Arc::new(UpkeepStop::default());
        let its = Arc::clone(&stop);
        thread::Builder::new().name("telem-upkeep".to_owned()).spawn(move || work(&db, &*clock, &its))?;
        Ok(UpkeepThread { stop })
    }
}

impl Drop for UpkeepThread {
    fn drop(&mut self) {
        *self.stop.lock() = true;
        self.stop.changed.notify_all();
    }
}

impl UpkeepStop {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rests for `time`; true when it is the end.
    fn rest(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn work(db: &Db, clock: &dyn Clock, stop: &UpkeepStop) {
    // Of this thread only: that is what "this process" means to Linux here. Where it is refused merges are merely
    // less polite.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut rest = PAUSE;
    while !stop.rest(rest) && !db.is_closed() {
        let began = clock.monotonic();
        // A merge takes much memory, and then there is none for minutes.
        let done = own_thread::run("telem-upkeep", allocator::give_back, || db.upkeep(&|| !*stop.lock()));
        rest = rest_after(&done, clock.monotonic().saturating_sub(began));
        if let Err(error) = done
            && !db.is_closed()
        {
            tracing::warn!(%error, ?rest, "files are not merged or dropped");
        }
    }
}

fn rest_after(done: &Result<UpkeepReport>, took: Duration) -> Duration {
    match done {
        Ok(report) if report.is_idle() => PAUSE,
        Ok(_) => took.saturating_mul(REST).min(REST_MAX),
        Err(error) if error.kind() == ErrorKind::Corrupt => PAUSE,
        Err(_) => RETRY,
    }
}

#[cfg(test)]
mod tests;
