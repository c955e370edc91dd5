//! One question about each of many directories, asked by several threads: on a file system that many nodes share most
//! of the time is spent waiting for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Directories that are looked into at once.
const THREADS: usize = 16;

/// What `ask` says of each of `items`, in their order.
pub fn spread<T: Sync, R: Send>(items: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return answers };
            answers.push((at, ask(item)));
        }
    };
    let mut answers: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS.min(items.len())).map(|_| scope.spawn(work)).collect();
        // One that panics ends the command as it would here.
        let joined = threads.into_iter().map(|one| one.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        joined.flatten().collect()
    });
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
