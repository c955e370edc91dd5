//! Work that takes much memory for a moment, on a thread that ends with it.
//!
//! An allocator keeps room of every size for the thread that freed it; mimalloc up to 4 MiB a size, until that thread asks
//! for other room. A thread that rests between two pieces of work would keep some 20 MiB of each until the next. When a
//! thread ends, all of its room is everybody's, or goes back to the system.

use std::panic::resume_unwind;
use std::thread::{self, Builder};

/// Does `work` on a thread called `name`, and waits for it. Where the system gives no thread, it is done here. Before that
/// `give_back` makes the allocator let go of what is free, where it can.
pub fn run<R: Send>(name: &str, give_back: fn(), work: impl Fn() -> R + Sync) -> R {
    give_back();
    thread::scope(|scope| match Builder::new().name(name.to_owned()).spawn_scoped(scope, &work) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
        Err(error) => {
            tracing::debug!(%error, name, "work is done without a thread of its own");
            work()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_on_another_thread_and_its_panic_reaches_the_caller() {
        let here = thread::current().id();
        let who = || (thread::current().id(), thread::current().name().map(str::to_owned));
        let (there, name) = run("telem-test", || (), who);
        assert_ne!(there, here);
        assert_eq!(name.as_deref(), Some("telem-test"));
        let panic =
            std::panic::catch_unwind(|| run("telem-test", || (), || -> () { panic!("of the work") })).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the work"));
    }
}
