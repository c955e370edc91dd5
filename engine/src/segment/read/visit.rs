//! Hands out the values of runs while pages are decoded, and their times in the form in which they are known: who
//! folds values needs neither a copy of them nor, for most runs, any times.

use std::ops::Range;
use std::slice;

use arrow::datatypes::{Float64Type, Int64Type, TimestampMicrosecondType};

use super::{Loaded, within};
use crate::error::Result;
use crate::segment::index::Run;
use crate::segment::summary::Kind;
use crate::segment::times::Times;
use crate::time::TimeRange;
use crate::value::Value;

/// Rows of one run whose times are read from the column at a time.
const TIMES_ROWS: usize = 1 << 20;

/// When consecutive samples of one series were taken, microseconds.
#[derive(Clone, Copy, Debug)]
pub enum Ticks<'a> {
    /// The first, and then one each `step`; the step of a single sample means nothing.
    Regular { first: i64, step: i64 },
    /// Ascending.
    List(&'a [i64]),
}

impl<'a> Ticks<'a> {
    pub fn time(self, at: usize) -> i64 {
        match self {
            Ticks::Regular { first, .. } if at == 0 => first,
            Ticks::Regular { first, step } => first + at as i64 * step,
            Ticks::List(times) => times[at],
        }
    }

    /// Those from the one at this place on.
    pub fn from(self, at: usize) -> Self {
        match self {
            Ticks::Regular { step, .. } => Ticks::Regular { first: self.time(at), step },
            Ticks::List(times) => Ticks::List(&times[at..]),
        }
    }

    /// How many from `at` on, and before `len`, come before `end`; the one at `at` does.
    pub fn before(self, at: usize, len: usize, end: i64) -> usize {
        match self {
            Ticks::Regular { step, .. } if step > 0 => {
                let after = (i128::from(end) - i128::from(self.time(at)) - 1) / i128::from(step);
                usize::try_from(after).map_or(len - at, |after| (len - at).min(after.saturating_add(1)))
            }
            Ticks::Regular { .. } => 1,
            Ticks::List(times) => {
                // The end is mostly near, seen from here: all before `known` come before it.
                let (mut known, mut reach) = (at, 16);
                while known + reach < len && times[known + reach] < end {
                    known += reach;
                    reach *= 2;
                }
                let to = len.min(known + reach + 1);
                known - at + times[known..to].partition_point(|time| *time < end)
            }
        }
    }

    /// How many fall into every bucket of this width, where it is as many into each.
    pub fn per_bucket(self, width: i64) -> Option<usize> {
        match self {
            Ticks::Regular { step, .. } if step > 0 && width % step == 0 => usize::try_from(width / step).ok(),
            _ => None,
        }
    }
}

/// Consecutive values of one run.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    Ints(&'a [i64]),
    /// Floats: these, divided by ten to this power.
    Scaled(&'a [i64], u8),
    Floats(&'a [f64]),
    Mixed(&'a [Value]),
    /// This one, so many times; never NaN.
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

/// What is looked at besides how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Values,
    /// Only whether they are NaN: where there are none, any value may stand for all.
    NaN,
}

/// Rows of one run that are wanted.
struct Part<'a> {
    /// The place of the run in the request.
    place: usize,
    run: Run,
    /// Of the segment.
    rows: Range<usize>,
    ticks: Known<'a>,
}

enum Known<'a> {
    Ticks(Ticks<'a>),
    Read(Vec<i64>),
}

impl Known<'_> {
    fn from(&self, at: usize) -> Ticks<'_> {
        match self {
            Known::Ticks(ticks) => ticks.from(at),
            Known::Read(times) => Ticks::List(&times[at..]),
        }
    }
}

impl Loaded {
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
        let mut from_column = self.numbers::<TimestampMicrosecondType>("ts", &in_column)?.into_iter();
        let mut parts = Vec::with_capacity(runs.len());
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| !is_long(run)) {
            let first_row = run.row as usize;
            parts.push(match self.index.ticks(run, range) {
                Some((rows, ticks)) => {
                    let rows = first_row + rows.start..first_row + rows.end;
                    Part { place, run: *run, rows, ticks: Known::Ticks(ticks) }
                }
                None => {
                    let (rows, times) = within(from_column.next().unwrap_or_default(), range);
                    let rows = first_row + rows.start..first_row + rows.end;
                    Part { place, run: *run, rows, ticks: Known::Read(times) }
                }
            });
        }
        self.visit_parts(&parts, need, take)?;
        for (place, run) in runs.iter().enumerate().filter(|(_, run)| is_long(run)) {
            for first in run.rows().step_by(TIMES_ROWS) {
                let rows = first..run.rows().end.min(first + TIMES_ROWS);
                let times = self.numbers::<TimestampMicrosecondType>("ts", slice::from_ref(&rows))?.swap_remove(0);
                let (rows, times) = within(times, range);
                let rows = first + rows.start..first + rows.end;
                let part = Part { place, run: *run, rows, ticks: Known::Read(times) };
                self.visit_parts(slice::from_ref(&part), need, take)?;
            }
        }
        Ok(())
    }

    fn visit_parts(
        &self,
        parts: &[Part<'_>],
        need: Need,
        take: &mut dyn FnMut(usize, Ticks<'_>, Numbers<'_>),
    ) -> Result<()> {
        let mut ints: Vec<&Part<'_>> = Vec::new();
        let (mut floats, mut mixed) = (Vec::new(), Vec::new());
        for part in parts.iter().filter(|part| !part.rows.is_empty()) {
            if (part.run.constant || need == Need::NaN)
                && let Some(summary) = self.index.summary(&part.run)
            {
                take(part.place, part.ticks.from(0), Numbers::Same(summary.first, part.rows.len()));
                continue;
            }
            match part.run.kind {
                Kind::Int | Kind::Scaled(_) => ints.push(part),
                Kind::Float => floats.push(part),
                Kind::Mixed => mixed.push(part),
            }
        }
        let rows = |parts: &[&Part<'_>]| -> Vec<Range<usize>> { parts.iter().map(|part| part.rows.clone()).collect() };
        self.each::<Int64Type>("int", &rows(&ints), &mut |at, from, values| {
            let part = ints[at];
            let numbers = match part.run.kind {
                Kind::Scaled(scale) => Numbers::Scaled(values, scale),
                _ => Numbers::Ints(values),
            };
            take(part.place, part.ticks.from(from), numbers);
        })?;
        self.each::<Float64Type>("float", &rows(&floats), &mut |at, from, values| {
            take(floats[at].place, floats[at].ticks.from(from), Numbers::Floats(values));
        })?;
        for part in mixed {
            // Seldom, and 16 bytes each: one after the other, not more at a time than of others.
            for first in part.rows.clone().step_by(TIMES_ROWS) {
                let rows = first..part.rows.end.min(first + TIMES_ROWS);
                for values in self.mixed(slice::from_ref(&rows))? {
                    take(part.place, part.ticks.from(first - part.rows.start), Numbers::Mixed(&values));
                }
            }
        }
        Ok(())
    }
}
