//! What an import says: progress, what each file was taken for, rows that were refused, and a line at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use indicatif::ProgressBar;
use telem_engine::{Clock, SystemClock};

use crate::cli::{CliFailure, Verbosity, progress};
use crate::info::{counted, grouped};

/// Refused rows that are named one by one.
const NAMED_MAX: u64 = 10;
/// The bar moves when so many bytes more are read.
const BAR_STEP: u64 = 4 << 20;

/// Where something stands in a file.
#[derive(Clone, Copy, Debug)]
pub enum RowPlace<'a> {
    Line(&'a str, u64),
    Row(&'a str, u64),
    Record(&'a str, u64),
}

impl fmt::Display for RowPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{file}:{line}"),
            Self::Row(file, row) => write!(f, "{file}, row {row}"),
            Self::Record(file, record) => write!(f, "{file}, record {record}"),
        }
    }
}

/// Why a row, or a cell of it, was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedKind {
    Row,
    Time,
    Value,
    Name,
    Record,
    Part,
}

impl RefusedKind {
    fn name(self, count: u64) -> &'static str {
        match (self, count) {
            (Self::Row, 1) => "row that is not of the table",
            (Self::Row, _) => "rows that are not of the table",
            (Self::Time, 1) => "row without a good time",
            (Self::Time, _) => "rows without a good time",
            (Self::Value, 1) => "value that is no number",
            (Self::Value, _) => "values that are no numbers",
            (Self::Name, 1) => "bad name",
            (Self::Name, _) => "bad names",
            (Self::Record, 1) => "broken record",
            (Self::Record, _) => "broken records",
            (Self::Part, 1) => "part that cannot be read",
            (Self::Part, _) => "parts that cannot be read",
        }
    }
}

/// What becomes of an import with rows of which no sample can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongRows {
    /// They are counted, and the first are told.
    Counted,
    /// The first one ends it.
    EndIt,
}

pub struct ImportReport {
    bar: ProgressBar,
    quiet: bool,
    /// It is not told what each file is.
    brief: bool,
    wrong: WrongRows,
    clock: SystemClock,
    /// Bytes of the files before this one, and when the bar was moved.
    bytes_before: u64,
    moved: u64,
    refused: BTreeMap<RefusedKind, u64>,
}

/// What an import came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportTotals {
    /// Samples that were given, and those that are left of them.
    pub accepted: u64,
    pub samples: u64,
    pub series: u64,
    pub metrics: u64,
    pub nodes: u64,
    pub bytes: u64,
}

impl ImportReport {
    pub fn start(verbosity: Verbosity, wrong: WrongRows, bytes: u64) -> Self {
        let quiet = verbosity.is_quiet();
        let bar = if quiet { ProgressBar::hidden() } else { progress::bar("{bar:30} {percent:>3} % {wide_msg}") };
        bar.set_length(bytes);
        Self {
            bar,
            quiet,
            brief: false,
            wrong,
            clock: SystemClock::new(),
            bytes_before: 0,
            moved: 0,
            refused: BTreeMap::new(),
        }
    }

    /// For thousands of files that nobody named: only what is wrong with them is told, and what they come to.
    #[must_use]
    pub fn brief(self) -> Self {
        Self { brief: true, ..self }
    }

    /// So many bytes of the file are read, and there are so many samples.
    pub fn at(&mut self, bytes: u64, samples: u64) {
        let at = self.bytes_before + bytes;
        if self.bar.is_hidden() || at < self.moved + BAR_STEP {
            return;
        }
        self.moved = at;
        self.bar.set_position(at);
        let rate = samples as f64 / self.clock.monotonic().as_secs_f64().max(0.001);
        self.bar.set_message(format!("{}, {}/s", counted(samples, "sample"), grouped(rate as u64)));
    }

    /// A file of so many bytes is read.
    pub fn done(&mut self, bytes: u64) {
        self.bytes_before += bytes;
        self.bar.set_position(self.bytes_before);
    }

    /// What a long step at the end has done.
    pub fn merging(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message("merging");
    }

    /// What a file is, and what is not taken of it because it is made anew.
    pub fn describe(&self, line: &str) {
        if !self.brief {
            self.say(line);
        }
    }

    pub fn say(&self, line: &str) {
        if !self.quiet {
            // There is nowhere to say that stderr is closed.
            self.bar.suspend(|| writeln!(io::stderr(), "{line}").unwrap_or_default());
        }
    }

    /// Names what is not taken; of many only the first.
    ///
    /// # Errors
    /// The same, where nothing may be left out.
    pub fn refuse(&mut self, place: RowPlace<'_>, kind: RefusedKind, why: &str) -> Result<(), CliFailure> {
        if self.wrong == WrongRows::EndIt {
            return Err(CliFailure::Failed(format!("{place}: {why} (--strict)")));
        }
        let before: u64 = self.refused.values().sum();
        *self.refused.entry(kind).or_default() += 1;
        if before < NAMED_MAX {
            self.say(&format!("warning: {place}: {why}"));
        } else if before == NAMED_MAX {
            self.say("warning: more are counted only");
        }
        Ok(())
    }

    /// How many were refused, by kind; empty where none were.
    pub fn refused(&self) -> String {
        let kinds = self.refused.iter().map(|(kind, count)| format!("{} {}", grouped(*count), kind.name(*count)));
        let kinds: Vec<String> = kinds.collect();
        if kinds.is_empty() { String::new() } else { format!("; left out: {}", kinds.join(", ")) }
    }

    pub fn finish(&self, stored: &ImportTotals, save: &Path) {
        self.bar.finish_and_clear();
        let seconds = self.clock.monotonic().as_secs_f64();
        let ImportTotals { accepted, samples, series, metrics, nodes, bytes } = *stored;
        let nodes = if nodes == 1 { String::new() } else { format!(" on {} nodes", grouped(nodes)) };
        let again = match accepted - samples.min(accepted) {
            0 => String::new(),
            count => {
                format!("; {} replaced by a later one of the same series and time", counted(count, "sample"))
            }
        };
        self.say(&format!(
            "{} of {} and {} series{nodes}, {}, {seconds:.1} s: {}{again}{}",
            counted(samples, "sample"),
            counted(metrics, "metric"),
            grouped(series),
            counted(bytes, "byte"),
            save.display(),
            self.refused()
        ));
    }
}
