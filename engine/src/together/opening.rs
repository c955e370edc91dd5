//! Opens many databases at once, and returns them in their order.
//!
//! On a file system that many nodes share, most of the time is spent waiting for it, so there are more threads than
//! processors. The databases are dealt to the threads in turn, and each thread is at most one database ahead of the
//! caller. So only a few of them, and not thousands, are in memory twice.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::options::Options;
use crate::recover::{self, RecoveredDatabase};

/// Most databases that are read at once.
const READERS: usize = 16;
/// Databases that a reader may have ready for the caller.
const AHEAD: usize = 1;

/// Opens each of `dirs` read-only and gives what it found to `take`, in their order.
///
/// # Errors
/// The first of `take`, and nothing more is read; Io when the system has no thread left.
pub fn each(
    dirs: &[PathBuf],
    options: &Options,
    mut take: impl FnMut(&Layout, Result<RecoveredDatabase>) -> Result<()>,
) -> Result<()> {
    let readers = READERS.min(dirs.len()).max(1);
    thread::scope(|scope| {
        let mut found: Vec<Receiver<Result<RecoveredDatabase>>> = Vec::with_capacity(readers);
        for first in 0..readers {
            let (send, receive) = sync_channel(AHEAD);
            let read = move || {
                for dir in dirs.iter().skip(first).step_by(readers) {
                    // After an error no more databases are taken.
                    if send.send(recover::read_only(options, &Layout::new(dir))).is_err() {
                        return;
                    }
                }
            };
            let named = thread::Builder::new().name("telem-open".to_owned());
            named.spawn_scoped(scope, read).map_err(Error::io("start a thread to read", &dirs[first]))?;
            found.push(receive);
        }
        for (at, dir) in dirs.iter().enumerate() {
            let recovered = found[at % readers].recv();
            let died = || Error::Internal { what: format!("the thread that read {} died", dir.display()) };
            take(&Layout::new(dir), recovered.map_err(|_| died())?)?;
        }
        Ok(())
    })
}
