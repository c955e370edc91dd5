//! Passes the values of runs on while pages are decoded, with their times in the form in which they are stored. A
//! caller that folds values needs no copy of them and, for most runs, no times.

use std::ops::Range;
use std::slice;

use super::{LoadedSegment, within};
use crate::error::Result;
use crate::segment::decimal;
use crate::segment::index::Run;
use crate::segment::summary::Kind;
use crate::segment::times::{Ticks, Times};
use crate::time::TimeRange;
use crate::value::{Value, Values};

/// Rows of one run whose times are read from the column at a time.
const TIMES_ROWS: usize = 1 << 20;

/// Consecutive values of one run.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    Ints(&'a [i64]),
    /// Floats: these, divided by ten to this power.
    Scaled(&'a [i64], u8),
    Floats(&'a [f64]),
    Mixed(&'a [Value]),
    /// This value, repeated; never NaN.
    Same(Value, usize),
}

impl Numbers<'_> {
    pub fn count(&self) -> usize {
        match self {
            Numbers::Ints(values) | Numbers::Scaled(values, _) => values.len(),
            Numbers::Floats(values) => values.len(),
            Numbers::Mixed(values) => values.len(),
            Numbers::Same(_, count) => *count,
        }
    }
}

impl From<Numbers<'_>> for Values {
    fn from(numbers: Numbers<'_>) -> Self {
        match numbers {
            Numbers::Ints(ints) => Values::Int(ints.to_vec()),
            Numbers::Scaled(ints, scale) => Values::Float(decimal::to_floats(ints, scale)),
            Numbers::Floats(floats) => Values::Float(floats.to_vec()),
            Numbers::Mixed(values) => values.iter().copied().collect(),
            Numbers::Same(Value::Int(int), count) => Values::Int(vec![int; count]),
            Numbers::Same(Value::Float(float), count) => Values::Float(vec![float; count]),
        }
    }
}

impl<'a> From<&'a Values> for Numbers<'a> {
    fn from(values: &'a Values) -> Self {
        match values {
            Values::Int(ints) => Numbers::Ints(ints),
            Values::Float(floats) => Numbers::Floats(floats),
            Values::Mixed(values) => Numbers::Mixed(values),
        }
    }
}

/// What is looked at besides how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Values,
    /// Only whether they are NaN: without NaN any value may represent all.
    NaN,
}

/// Rows of one run that are wanted.
#[derive(Clone, Debug)]
pub struct RunRows {
    pub run: Run,
    /// Counted through all of the segment.
    pub rows: Range<usize>,
}

enum KnownTimes<'a> {
    Ticks(Ticks<'a>),
    Read(Vec<i64>),
}

impl KnownTimes<'_> {
    fn from(&self, at: usize) -> Ticks<'_> {
        match self {
            KnownTimes::Ticks(ticks) => ticks.from(at),
            KnownTimes::Read(times) => Ticks::List(&times[at..]),
        }
    }
}

impl LoadedSegment {
    /// Hands the samples of `runs` (sorted by row, each once) in `range` to `take`, with the place of their run: those
    /// of one run in the order of time, in as many pieces as they come in.
    ///
    /// # Errors
    /// Io and Corrupt; some may have been handed out then.
    pub fn visit(
        &self,
        runs: &[Run],
        range: TimeRange,
        need: Need,
        take: &mut dyn FnMut(usize, Ticks<'_>, Numbers<'_>),
    ) -> Result<()> {
        let is_long = |run: &Run| run.times == Times::Column && run.rows as usize > TIMES_ROWS;
        let in_column: Vec<Range<usize>> =
            runs.iter().filter(|run| run.times == Times::Column && !is_long(run)).map(Run::rows).collect();
        let mut from_column = self.ints("ts", &in_column)?.into_iter();
        let (mut wanted, mut known) = (Vec::with_capacity(runs.len()), Vec::with_capacity(runs.len()));
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| !is_long(run)) {
            let (rows, ticks) = match self.index.ticks(run, range) {
                Some((rows, ticks)) => (rows, KnownTimes::Ticks(ticks)),
                None => {
                    let (rows, times) = within(from_column.next().unwrap_or_default(), range);
                    (rows, KnownTimes::Read(times))
                }
            };
            let first_row = run.row as usize;
            wanted.push(RunRows { run: *run, rows: first_row + rows.start..first_row + rows.end });
            known.push((place, ticks));
        }
        self.visit_values(&wanted, need, &mut |at, from, numbers| {
            let (place, ticks) = &known[at];
            take(*place, ticks.from(from), numbers);
        })?;
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| is_long(run)) {
            for first in run.rows().step_by(TIMES_ROWS) {
                let rows = first..run.rows().end.min(first + TIMES_ROWS);
                let times = self.ints("ts", slice::from_ref(&rows))?.swap_remove(0);
                let (rows, times) = within(times, range);
                let wanted = RunRows { run: *run, rows: first + rows.start..first + rows.end };
                self.visit_values(slice::from_ref(&wanted), need, &mut |_, from, numbers| {
                    take(place, Ticks::List(&times[from..]), numbers);
                })?;
            }
        }
        Ok(())
    }

    /// The rows of `run` in `range`, counted from its first; `None` where only its times, which would have to be read,
    /// tell.
    pub fn known_rows(&self, run: &Run, range: TimeRange) -> Option<Range<usize>> {
        self.index.rows_in(run, range)
    }

    /// Hands the times of `wanted` (sorted by row, apart) to `take`: the place of what was asked for, from where in it,
    /// when these were, and how many they are.
    ///
    /// # Errors
    /// Io and Corrupt; some may have been handed out then.
    pub fn visit_times(&self, wanted: &[RunRows], take: &mut dyn FnMut(usize, usize, Ticks<'_>, usize)) -> Result<()> {
        let mut in_column = Vec::new();
        for (at, RunRows { run, rows }) in wanted.iter().enumerate().filter(|(_, wanted)| !wanted.rows.is_empty()) {
            let row = run.row as usize;
            match self.index.ticks_of(run, rows.start - row..rows.end - row) {
                Some(ticks) => take(at, 0, ticks, rows.len()),
                None => in_column.push(at),
            }
        }
        let rows: Vec<Range<usize>> = in_column.iter().map(|at| wanted[*at].rows.clone()).collect();
        self.each_int("ts", &rows, &mut |at, from, times| {
            take(in_column[at], from, Ticks::List(times), times.len());
        })
    }

    /// Hands the values of `wanted` (sorted by row, apart) to `take`: the place of what was asked for, from where in it,
    /// and these.
    ///
    /// # Errors
    /// Io and Corrupt; some may have been handed out then.
    pub fn visit_values(
        &self,
        wanted: &[RunRows],
        need: Need,
        take: &mut dyn FnMut(usize, usize, Numbers<'_>),
    ) -> Result<()> {
        let (mut ints, mut floats, mut mixed) = (Vec::new(), Vec::new(), Vec::new());
        for (at, RunRows { run, rows }) in wanted.iter().enumerate().filter(|(_, wanted)| !wanted.rows.is_empty()) {
            if (run.constant || need == Need::NaN)
                && let Some(summary) = self.index.summary(run)
            {
                take(at, 0, Numbers::Same(summary.first, rows.len()));
                continue;
            }
            match run.kind {
                Kind::Int | Kind::Shifted(_) | Kind::Scaled(_) => ints.push(at),
                Kind::Float => floats.push(at),
                Kind::Mixed => mixed.push(at),
            }
        }
        let rows = |of: &[usize]| -> Vec<Range<usize>> { of.iter().map(|at| wanted[*at].rows.clone()).collect() };
        let mut shifted_back = Vec::new();
        self.each_int("int", &rows(&ints), &mut |at, from, values| {
            let numbers = match wanted[ints[at]].run.kind {
                Kind::Shifted(shift) => {
                    shifted_back.clear();
                    shifted_back.extend(values.iter().map(|value| value << shift));
                    Numbers::Ints(&shifted_back)
                }
                Kind::Scaled(scale) => Numbers::Scaled(values, scale),
                _ => Numbers::Ints(values),
            };
            take(ints[at], from, numbers);
        })?;
        self.each_float("float", &rows(&floats), &mut |at, from, values| {
            take(floats[at], from, Numbers::Floats(values));
        })?;
        for at in mixed {
            // Seldom, and 16 bytes each: one after the other, not more at a time than of others.
            let rows = &wanted[at].rows;
            for first in rows.clone().step_by(TIMES_ROWS) {
                let part = first..rows.end.min(first + TIMES_ROWS);
                for values in self.mixed(slice::from_ref(&part))? {
                    take(at, first - rows.start, Numbers::Mixed(&values));
                }
            }
        }
        Ok(())
    }
}
