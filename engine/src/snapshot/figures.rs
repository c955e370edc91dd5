//! Counts, ranges and sums of series, mostly from the summaries in segments.

use std::sync::Arc;

use super::sources::Sources;
use super::{Snapshot, Values, Visible};
use crate::error::Result;
use crate::segment::Segment;
use crate::series::SeriesId;
use crate::time::TimeRange;
use crate::value::Value;

/// How many samples some series have, and between which values they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueFigures {
    /// Stored samples. One that was written again is counted again until a merge drops it.
    pub samples: u64,
    /// The least and the greatest value; `None` if every sample is NaN.
    pub range: Option<(f64, f64)>,
}

impl ValueFigures {
    /// Those of all samples of both.
    pub fn add(&mut self, other: ValueFigures) {
        self.samples += other.samples;
        if let Some((min, max)) = other.range {
            let known = self.range.unwrap_or((min, max));
            self.range = Some((known.0.min(min), known.1.max(max)));
        }
    }

    fn of(samples: u64, values: impl Iterator<Item = Value>) -> Self {
        let mut range: Option<(f64, f64)> = None;
        for value in values.map(Value::as_f64).filter(|value| !value.is_nan()) {
            let known = range.unwrap_or((value, value));
            range = Some((known.0.min(value), known.1.max(value)));
        }
        Self { samples, range }
    }

    fn of_values(values: &Values) -> Self {
        Self::of(values.len() as u64, values.iter())
    }
}

impl Snapshot {
    /// Most samples that `series` have in `range`, told without a look at any: of a memtable all of a series count, and
    /// one that was written again counts again.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments.
    pub fn samples_max(&self, series: Vec<SeriesId>, range: TimeRange) -> Result<u64> {
        let counts = |visible: &Visible| series.iter().map(|series| visible.memtable.count(*series)).sum::<u64>();
        let of_memtables = self.memtables.iter().map(counts).sum::<u64>();
        let (mut sources, mut of_segments) = (Sources::new(self, series, range), 0);
        while let Some((_, runs)) = sources.next()? {
            of_segments += runs.iter().map(|found| found.rows).sum::<u64>();
        }
        Ok(of_memtables + of_segments)
    }

    /// The figures of each of `series`, in their order. Of segments the summaries of runs are looked at; pages are read
    /// only of a run that has none, because it holds a NaN or both types.
    ///
    /// # Errors
    /// Io and Corrupt, from the segments.
    pub fn figures(&self, series: &[SeriesId]) -> Result<Vec<ValueFigures>> {
        let mut figures = vec![ValueFigures::default(); series.len()];
        for Visible { memtable, rows, .. } in &self.memtables {
            for (figures, series) in figures.iter_mut().zip(series) {
                let samples = memtable.read(*series, TimeRange::ALL, *rows);
                figures.add(ValueFigures::of(samples.len() as u64, samples.into_iter().map(|(_, value)| value)));
            }
        }
        let may = |segment: &&Arc<Segment>| series.iter().any(|one| segment.may_hold(*one));
        for segment in self.segments.iter().filter(may) {
            let loaded = segment.load()?;
            for (figures, series) in figures.iter_mut().zip(series) {
                let Some(run) = loaded.run(*series) else { continue };
                match loaded.summary(run) {
                    Some(summary) => {
                        let of_run = [summary.min, summary.max].into_iter();
                        figures.add(ValueFigures::of(u64::from(run.rows), of_run));
                    }
                    None => {
                        for piece in loaded.read(std::slice::from_ref(run), TimeRange::ALL)? {
                            figures.add(ValueFigures::of_values(&piece.values));
                        }
                    }
                }
            }
        }
        Ok(figures)
    }
}

#[cfg(test)]
mod tests;
