//! The decision on what a recorder does, and the arguments of its service: made by the command line, carried out by
//! `recorder`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::member::MemberOf;
use crate::launch::Patience;
use crate::launch::agents::AgentsOptions;
use crate::launch::task::Claim;
use crate::saving::save::Destination;
use crate::service::{Ready, ServiceOptions};

/// Makes the directories that a service needs, and says with what it is to be started.
pub type Prepare = Box<dyn FnOnce(&dyn Patience) -> Result<Preparation, String> + Send>;

/// What becomes of a recorder.
#[derive(Debug)]
pub enum Preparation {
    Serve(Box<PreparedJob>),
    /// Another process records this node, and is reached so.
    Elsewhere {
        environment: Vec<(String, OsString)>,
    },
    /// The request cannot be fulfilled: the user is told, and the command is not run.
    Refused {
        why: String,
    },
}

#[derive(Debug)]
pub struct PreparedJob {
    pub options: ServiceOptions,
    pub places: Places,
    /// Agents that it is to start.
    pub agents: Option<AgentsOptions>,
    /// The node, where others may want to record it too.
    pub claim: Option<Claim>,
    /// The head that it belongs to.
    pub head: Option<MemberOf>,
}

/// The directories of a run.
#[derive(Debug, Default)]
pub struct Places {
    /// Where the database is saved, if it is.
    pub destination: Option<Destination>,
    /// The live data, if it need not stay: it is removed when it is saved.
    pub passing: Option<PathBuf>,
    /// What the command is to preload so that its calls of MPI are counted.
    pub mpi_library: Option<PathBuf>,
}

impl Places {
    /// The directory in which the databases of all nodes of the job are saved.
    pub fn saved_below(&self) -> Option<&Path> {
        self.destination.as_ref().map(Destination::parent)
    }

    /// Leaves no trace of a run that did not begin.
    pub fn discard(mut self) {
        if let Some(mut destination) = self.destination.take() {
            destination.discard();
        }
        self.remove_live();
    }

    pub(super) fn remove_live(&self) {
        let Some(dir) = &self.passing else { return };
        if let Err(error) = fs::remove_dir_all(dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(dir = %dir.display(), %error, "the live data stay");
            return;
        }
        if let Some(of_job) = dir.parent() {
            // Another run of the job may still have data there.
            let _ = fs::remove_dir(of_job);
        }
    }
}

/// A service that is ready.
#[derive(Debug)]
pub struct RunningService {
    pub ready: Ready,
    pub places: Places,
    pub agents: Option<AgentsOptions>,
    pub claim: Option<Claim>,
}
