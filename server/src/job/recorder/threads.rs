//! The threads of a recorder: those that report events to the main thread, and those of the service.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::runtime::Runtime;

use super::Event;
use crate::job::{link, signals};

/// Threads that a service must be able to have: it takes some twenty on a machine with two processors, and at most six
/// more for queries on a larger one.
pub(crate) const THREADS_MIN: usize = 32;

/// The threads that tell the main thread what happens, and those of the service.
pub fn start(runtime: fn() -> Result<Runtime, String>, events: &Sender<Event>) -> Result<Runtime, String> {
    signals::start(events.clone()).map_err(|error| format!("cannot catch signals: {error}"))?;
    let heard = events.clone();
    let listen = move || {
        link::listen(io::stdin(), |word| heard.send(Event::Told(word)).is_ok());
        let _ = heard.send(Event::Silence);
    };
    let listening = thread::Builder::new().name("telem-link".to_owned()).spawn(listen);
    listening.map_err(|error| format!("cannot start a thread: {error}"))?;
    spare_threads()?;
    // tokio panics where the system has no thread left, which is no news worth a backtrace.
    let told = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let made = panic::catch_unwind(AssertUnwindSafe(runtime));
    panic::set_hook(told);
    made.unwrap_or_else(|_| Err("cannot start the threads of the service: the system has none left".to_owned()))
}

/// Finds out whether there are threads for a service. Libraries panic where they get none, in the middle of their work.
fn spare_threads() -> Result<(), String> {
    let (end, ended) = channel::<()>();
    let ended = Arc::new(Mutex::new(ended));
    let wait = || {
        let ended = Arc::clone(&ended);
        move || {
            let _ = ended.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    };
    let started: Vec<_> = (0..THREADS_MIN)
        .map_while(|_| thread::Builder::new().name("telem-spare".to_owned()).spawn(wait()).ok())
        .collect();
    let count = started.len();
    drop(end);
    for thread in started {
        let _ = thread.join();
    }
    if count == THREADS_MIN {
        return Ok(());
    }
    Err(format!("the system has {count} threads left for it (ulimit -u), and {THREADS_MIN} are needed"))
}
