//! A batch of samples on its way into the database, as columns.

use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::Value;

/// Ids of series that are compared before the first difference ends it.
const COMPARED_AT_ONCE: usize = 256;

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

    /// Samples as columns, as many as there are of all three.
    pub fn extend(
        &mut self,
        series: impl IntoIterator<Item = SeriesId>,
        times: impl IntoIterator<Item = Timestamp>,
        values: impl IntoIterator<Item = Value>,
    ) {
        self.series.extend(series);
        self.times.extend(times);
        self.values.extend(values);
        self.truncate(self.series.len().min(self.times.len()).min(self.values.len()));
    }

    /// Samples of one series, as many as there are both times and values.
    pub fn extend_column(
        &mut self,
        series: SeriesId,
        times: impl IntoIterator<Item = Timestamp>,
        values: impl IntoIterator<Item = Value>,
    ) {
        self.times.extend(times);
        self.values.extend(values);
        let samples = self.times.len().min(self.values.len());
        self.times.truncate(samples);
        self.values.truncate(samples);
        self.series.resize(samples, series);
    }

    /// Leaves the first `samples`.
    pub fn truncate(&mut self, samples: usize) {
        self.series.truncate(samples);
        self.times.truncate(samples);
        self.values.truncate(samples);
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

    /// After how many samples its series come again in the same order, over and over, as in ticks of the same series; the
    /// last may be cut short. As many as there are where they do not.
    pub(crate) fn period(&self) -> usize {
        let Some((first, rest)) = self.series.split_first() else { return 0 };
        let again = rest.iter().position(|series| series == first).map_or(self.len(), |at| at + 1);
        // Many at a time: the compiler makes vectors of this.
        let (later, earlier) = (self.series[again..].chunks(COMPARED_AT_ONCE), self.series.chunks(COMPARED_AT_ONCE));
        let differ = |a: &[SeriesId], b: &[SeriesId]| a.iter().zip(b).fold(0, |all, (a, b)| all | (a.0 ^ b.0));
        if later.zip(earlier).all(|(later, earlier)| differ(later, earlier) == 0) { again } else { self.len() }
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

    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (SeriesId, Timestamp, Value)> + DoubleEndedIterator + Clone + '_ {
        let samples = self.series.iter().zip(&self.times).zip(&self.values);
        samples.map(|((series, time), value)| (*series, *time, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_is_that_of_all_its_series() {
        let batch = |series: &[u32]| {
            let mut batch = SampleBatch::default();
            series.iter().for_each(|id| batch.push(SeriesId(*id), Timestamp::from_micros(0), Value::Int(0)));
            batch
        };
        let many: Vec<u32> = (0..1_000).map(|at| at % 300).collect();
        for (series, period) in [
            (&[][..], 0),
            (&[7], 1),
            (&[7, 7, 7], 1),
            (&[1, 2, 3, 1, 2, 3], 3),
            (&[1, 2, 3, 1, 2], 3),
            (&[1, 2, 3, 1, 3], 5),
            (&[1, 2, 1, 3, 1, 2, 1, 3], 8),
            (&many, 300),
            (&[&many[..], &[7]].concat(), 1_001),
        ] {
            assert_eq!(batch(series).period(), period, "{series:?}");
        }
    }

    #[test]
    fn columns_come_behind_what_is_there_and_are_as_long_as_the_shortest() {
        let times = |times: &[i64]| times.iter().map(|time| Timestamp::from_micros(*time)).collect::<Vec<_>>();
        let mut batch = SampleBatch::default();
        batch.push(SeriesId(7), Timestamp::from_micros(1), Value::Int(1));
        batch.extend_column(SeriesId(8), times(&[2, 3]), [Value::Float(2.0), Value::Int(3), Value::Int(4)]);
        batch.extend_column(SeriesId(9), times(&[5, 6]), [Value::Int(5)]);
        let found: Vec<_> = batch.iter().map(|(series, time, value)| (series.0, time.micros(), value)).collect();
        let expected = [(7, 1, Value::Int(1)), (8, 2, Value::Float(2.0)), (8, 3, Value::Int(3)), (9, 5, Value::Int(5))];
        assert_eq!(found, expected);
        batch.extend([SeriesId(1), SeriesId(2)], times(&[8, 9]), [Value::Int(6)]);
        assert_eq!(batch.iter().next_back(), Some((SeriesId(1), Timestamp::from_micros(8), Value::Int(6))));
        batch.truncate(1);
        assert_eq!(batch.iter().next(), Some((SeriesId(7), Timestamp::from_micros(1), Value::Int(1))));
        assert_eq!(batch.len(), 1);
    }
}
