//! A batch of samples on its way into the database, as columns.

use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::Value;

/// Samples in the order in which they were written: of two with the same series and time the later wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleBatch {
    series: Vec<SeriesId>,
    times: Vec<Timestamp>,
    values: Vec<Value>,
}

impl SampleBatch {
    pub fn with_capacity(samples: usize) -> Self {
        Self {
            series: Vec::with_capacity(samples),
            times: Vec::with_capacity(samples),
            values: Vec::with_capacity(samples),
        }
    }

    #[inline]
    pub fn push(&mut self, series: SeriesId, time: Timestamp, value: Value) {
        self.series.push(series);
        self.times.push(time);
        self.values.push(value);
    }

    pub fn len(&self) -> usize {
        self.series.len()
    }

    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    pub fn clear(&mut self) {
        self.series.clear();
        self.times.clear();
        self.values.clear();
    }

    /// The highest id among its series; `None` when it is empty.
    pub(crate) fn highest_series(&self) -> Option<SeriesId> {
        self.series.iter().copied().max()
    }

    pub(crate) fn series(&self) -> &[SeriesId] {
        &self.series
    }

    pub(crate) fn times(&self) -> &[Timestamp] {
        &self.times
    }

    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (SeriesId, Timestamp, Value)> + Clone + '_ {
        let samples = self.series.iter().zip(&self.times).zip(&self.values);
        samples.map(|((series, time), value)| (*series, *time, *value))
    }
}
