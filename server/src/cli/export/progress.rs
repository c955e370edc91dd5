//! The progress of an export: a bar on a terminal, and one line at the end.

use std::io::{self, Write};
use std::path::Path;

use indicatif::ProgressBar;
use telem_engine::{Clock, SystemClock};

use super::choose::ExportMetric;
use super::place::Written;
use crate::cli::{Verbosity, progress};
use crate::info::{counted, grouped};

pub struct ExportProgress {
    bar: ProgressBar,
    quiet: bool,
    clock: SystemClock,
    samples: u64,
    /// Series of the metrics that are done, and those of this one that have begun.
    series_done: u64,
    series: u64,
}

impl ExportProgress {
    pub fn start(verbosity: Verbosity) -> Self {
        let quiet = verbosity.quiet > 0;
        let bar = if quiet { ProgressBar::hidden() } else { progress::bar("{bar:30} {percent:>3} % {wide_msg}") };
        Self { bar, quiet, clock: SystemClock::new(), samples: 0, series_done: 0, series: 0 }
    }

    /// The number of samples is unknown, so series are counted.
    pub fn begin(&mut self, metrics: &[&ExportMetric]) {
        self.bar.set_length(metrics.iter().map(|metric| metric.series).sum());
    }

    pub fn add(&mut self, metric: &ExportMetric, samples: usize, series_begun: u64) {
        self.samples += samples as u64;
        self.series += series_begun;
        if self.bar.is_hidden() {
            return;
        }
        // The last that began is not done.
        self.bar.set_position(self.series_done + self.series.saturating_sub(1).min(metric.series));
        let rate = self.samples as f64 / self.clock.monotonic().as_secs_f64().max(0.001);
        let (samples, rate) = (counted(self.samples, "sample"), grouped(rate as u64));
        self.bar.set_message(format!("{samples}, {rate}/s, {}", metric.name));
    }

    pub fn done(&mut self, metric: &ExportMetric) {
        self.series_done += metric.series;
        self.series = 0;
        self.bar.set_position(self.series_done);
    }

    pub fn warn(&self, what: &str) {
        self.say(&format!("warning: {what}"));
    }

    pub fn finish(&self, written: &Written, to: &Path) {
        self.bar.finish_and_clear();
        let seconds = self.clock.monotonic().as_secs_f64();
        let Written { samples, metrics, files, bytes, removed } = written;
        let size = bytes.map_or_else(String::new, |bytes| format!(", {}", counted(bytes, "byte")));
        if *removed > 0 {
            self.say(&format!(
                "removed {} of an earlier export, of metrics that this one has not",
                counted(*removed, "file")
            ));
        }
        self.say(&format!(
            "{} of {} in {}{size}, {seconds:.1} s: {}",
            counted(*samples, "sample"),
            counted(*metrics, "metric"),
            counted(*files, "file"),
            to.display()
        ));
    }

    pub fn say(&self, line: &str) {
        if !self.quiet {
            // There is nowhere to say that stderr is closed.
            self.bar.suspend(|| writeln!(io::stderr(), "{line}").unwrap_or_default());
        }
    }
}
