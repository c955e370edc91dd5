//! The note in live data that says where it is saved, for `telem recover` after the job was killed.
//!
//! It is a small file in the directory of the live data. It is written when saving begins and again when the place is
//! known, and removed when everything is saved. Live data without a note was left by an earlier version, or was not
//! meant to be saved.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use telem_engine::lock::{Machine, Process};
use telem_engine::{Options, SAVE_NOTE};

use crate::private_file;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveNote {
    /// The process that saves them, as long as it lives.
    pub process: Process,
    /// The directory of the job's saved databases, absolute; `None` if only the head has it.
    pub save: Option<PathBuf>,
    /// The directory of the copy in it, where there is one that this machine sees.
    pub copy: Option<PathBuf>,
}

impl SaveNote {
    /// Of this process.
    ///
    /// # Errors
    /// When the machine does not say who that is.
    pub fn new(save: Option<PathBuf>, copy: Option<PathBuf>) -> io::Result<Self> {
        let process = Options::default().machine.this_process()?;
        Ok(Self { process, save, copy })
    }

    /// The note in live data, if there is a readable one.
    pub fn read(live: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(live.join(SAVE_NOTE)).ok()?).ok()
    }

    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, live: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        private_file::write(&live.join(SAVE_NOTE), &text)
    }

    pub fn remove(live: &Path) {
        // What stays says where the data are saved, which is true.
        let _ = fs::remove_file(live.join(SAVE_NOTE));
    }
}

/// Whether `process` ran on this machine and is dead. Of another machine nothing is known.
pub fn is_dead(process: &Process, machine: &dyn Machine) -> bool {
    let Ok(me) = machine.this_process() else { return false };
    process.host == me.host && (process.boot != me.boot || machine.started(process.pid) != Some(process.started))
}
