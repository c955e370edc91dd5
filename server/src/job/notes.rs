//! telem's messages on stderr while a job runs: few lines, each marked as telem's, never in the way.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::ProgressBar;

/// How often a running wait is drawn.
const TICK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub struct Notes {
    /// -q: only errors are printed.
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

    /// Shows on a terminal that telem is at work, until this is dropped.
    pub fn at_work(self, at_what: String) -> AtWork {
        let shown = !self.quiet && io::stderr().is_terminal();
        AtWork(shown.then(|| {
            let spinner = ProgressBar::new_spinner().with_message(format!("telem: {at_what}"));
            spinner.enable_steady_tick(TICK);
            spinner
        }))
    }

    pub fn error(self, text: impl Display) {
        line(&format!("telem: error: {text}\n"));
    }
}

#[derive(Debug)]
pub struct AtWork(Option<ProgressBar>);

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(spinner) = &self.0 {
            spinner.finish_and_clear();
        }
    }
}

/// In one write, so that it does not mix with what the job says.
fn line(text: &str) {
    // There is nowhere to say that stderr is closed.
    io::stderr().write_all(text.as_bytes()).unwrap_or_default();
}
