//! What telem says on stderr while a job runs: few lines, each named as telem's, never in the way.

use std::fmt::Display;
use std::io::{self, Write};

#[derive(Clone, Copy, Debug)]
pub struct Notes {
    /// -q: only errors are told.
    pub quiet: bool,
}

impl Notes {
    pub fn say(self, text: impl Display) {
        if !self.quiet {
            line(&format!("telem: {text}\n"));
        }
    }

    pub fn warn(self, text: impl Display) {
        if !self.quiet {
            line(&format!("telem: warning: {text}\n"));
        }
    }

    pub fn error(self, text: impl Display) {
        line(&format!("telem: error: {text}\n"));
    }
}

/// In one write, so that it does not mix with what the job says.
fn line(text: &str) {
    // There is nowhere to say that stderr is closed.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
}
