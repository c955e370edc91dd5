//! From the readings of counters and powers to rates and energy. No input and no output.

use std::collections::BTreeMap;

/// What a stretch of time holds of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeriesStretch {
    /// Since the start, in widths of a stretch.
    pub place: i64,
    pub count: u64,
    pub mean: f64,
    pub max: f64,
    pub first: f64,
    pub last: f64,
    /// Within the stretch, without the step from the one before. Only of counters.
    pub increase: f64,
    /// Microseconds.
    pub first_us: i64,
    pub last_us: i64,
}

/// The rates of one series, and its whole increase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterRates {
    /// By stretch: the increase per second since the last reading of the stretch before.
    pub rates: Vec<(i64, f64)>,
    pub increase: f64,
    pub seconds: f64,
}

impl CounterRates {
    /// Of stretches by time. A reading below its predecessor means that the counter started again at 0.
    pub fn of(stretches: &[SeriesStretch]) -> Self {
        let mut found = Self::default();
        let mut before: Option<&SeriesStretch> = None;
        for stretch in stretches {
            let (from_us, step) = match before {
                None => (stretch.first_us, 0.0),
                Some(before) if stretch.first < before.last => (before.last_us, stretch.first),
                Some(before) => (before.last_us, stretch.first - before.last),
            };
            before = Some(stretch);
            let seconds = (stretch.last_us - from_us) as f64 / 1e6;
            if seconds <= 0.0 {
                continue;
            }
            let increase = step + stretch.increase;
            found.rates.push((stretch.place, increase / seconds));
            found.increase += increase;
            found.seconds += seconds;
        }
        found
    }

    pub fn mean(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.increase / self.seconds)
    }
}

/// The integral over time of several series, whose samples come one series after the other or mixed, each by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesIntegral {
    /// The last sample of each series: microseconds and value.
    before: BTreeMap<String, (i64, f64)>,
    sum: Option<f64>,
}

impl SeriesIntegral {
    pub fn add(&mut self, series: &str, time_us: i64, value: f64) {
        match self.before.get_mut(series) {
            None => {
                self.before.insert(series.to_owned(), (time_us, value));
            }
            Some(before) => {
                let area = (before.1 + value) / 2.0 * ((time_us - before.0) as f64 / 1e6);
                *self.sum.get_or_insert(0.0) += area;
                *before = (time_us, value);
            }
        }
    }

    pub fn sum(&self) -> Option<f64> {
        self.sum
    }
}
