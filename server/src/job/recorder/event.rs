//! The events that the main thread of a recorder waits for.

use std::ffi::OsString;
use std::time::Duration;

use crate::job::link::ToRecorder;
use crate::job::prepared::RunningService;
use crate::job::signals::Caught;
use crate::launch::crew::CrewEvent;
use crate::saving::save::Saved;

/// What the main thread waits for.
#[derive(Debug)]
pub enum Event {
    /// A signal that was meant for every process of a job.
    Caught(Caught),
    Told(ToRecorder),
    /// Others are waited for before there is a service, no longer than this.
    Seeking(Duration),
    /// The supervisor is gone.
    Silence,
    Ready(Box<RunningService>),
    /// There is no service, because another process has one.
    Elsewhere(Vec<(String, OsString)>),
    /// There is no service, because the request cannot be fulfilled.
    Refused(String),
    /// Something about the agents.
    Crew(CrewEvent),
    /// The service ended, with what kept it from serving or from closing its database.
    Stopped(Result<(), String>),
    Saved(Saved),
}

impl From<Caught> for Event {
    fn from(caught: Caught) -> Self {
        Self::Caught(caught)
    }
}

impl From<Saved> for Event {
    fn from(saved: Saved) -> Self {
        Self::Saved(saved)
    }
}
