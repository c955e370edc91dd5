//! One number of one scope.

use telem_engine::SeriesId;

use super::names::DocNumber;
use crate::decode::proxy::CounterKind;

/// What is known of a gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GaugeValue {
    pub min: f64,
    pub max: f64,
    /// 0 where it has no value.
    pub hits: f64,
    pub total: f64,
}

impl GaugeValue {
    /// One value that was set.
    pub fn of(value: f64) -> Self {
        Self { min: value, max: value, hits: 1.0, total: value }
    }

    /// Both as one.
    fn and(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            hits: self.hits + other.hits,
            total: self.total + other.total,
        }
    }

    /// NaN where it has no value.
    pub fn average(self) -> f64 {
        if self.hits == 1.0 { self.total } else { self.total / self.hits }
    }
}

/// What is known of a counter or gauge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterValue {
    Counter(f64),
    Gauge(GaugeValue),
}

impl CounterValue {
    pub fn kind(self) -> CounterKind {
        match self {
            Self::Counter(_) => CounterKind::Counter,
            Self::Gauge(_) => CounterKind::Gauge,
        }
    }

    /// This and what another source counted or set, where both are of one kind; else this.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Counter(a), Self::Counter(b)) => Self::Counter(a + b),
            (Self::Gauge(a), Self::Gauge(b)) if a.hits == 0.0 => Self::Gauge(if b.hits == 0.0 { a } else { b }),
            (Self::Gauge(a), Self::Gauge(b)) if b.hits != 0.0 => Self::Gauge(a.and(b)),
            _ => self,
        }
    }

    /// Whether anything was ever counted or set that is a number.
    pub fn has_data(self) -> bool {
        match self {
            Self::Counter(value) => value != 0.0 && value.is_finite(),
            Self::Gauge(gauge) => gauge.hits != 0.0 && gauge.average().is_finite(),
        }
    }
}

/// Where its samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellSeries {
    /// It was never stored.
    Unknown,
    Stored(SeriesId),
    /// No series can have its name.
    None,
}

#[derive(Debug)]
pub struct CounterCell {
    pub name: u32,
    pub doc: DocNumber,
    pub number: CellNumber,
}

/// What becomes of the number of a lane that is stored.
#[derive(Clone, Copy, Debug)]
pub struct StoredCell {
    /// As [`CellSeries`] in 32 bits: no database has so many series that its last ids have another meaning.
    series: u32,
    /// It is to become a sample.
    pub is_changed: bool,
    /// It is to be kept until then; never where it is not to become a sample.
    pub is_unkept: bool,
}

impl Default for StoredCell {
    fn default() -> Self {
        Self { series: Self::UNKNOWN, is_changed: false, is_unkept: false }
    }
}

impl StoredCell {
    const UNKNOWN: u32 = u32::MAX;
    const NONE: u32 = u32::MAX - 1;

    pub fn series(&self) -> CellSeries {
        match self.series {
            Self::UNKNOWN => CellSeries::Unknown,
            Self::NONE => CellSeries::None,
            series => CellSeries::Stored(SeriesId(series)),
        }
    }

    pub fn set_series(&mut self, series: CellSeries) {
        self.series = match series {
            CellSeries::Unknown => Self::UNKNOWN,
            CellSeries::None => Self::NONE,
            CellSeries::Stored(series) => series.0,
        };
    }
}

/// A counter, or a gauge with its sources.
#[derive(Clone, Debug)]
pub enum CellNumber {
    Counter(f64),
    /// Boxed: most numbers are counters.
    Gauge(Box<SourcedGauge>),
}

/// The last value of each source; most gauges have one.
#[derive(Clone, Debug, Default)]
pub struct SourcedGauge {
    sources: Vec<(u32, GaugeValue)>,
}

impl SourcedGauge {
    fn set(&mut self, source: u32, value: GaugeValue) {
        match self.sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, known)) => *known = value,
            None => self.sources.push((source, value)),
        }
    }

    fn value(&self) -> GaugeValue {
        let mut with_data = self.sources.iter().filter(|(_, value)| value.hits != 0.0).map(|(_, value)| *value);
        let Some(first) = with_data.next() else { return GaugeValue::default() };
        with_data.fold(first, GaugeValue::and)
    }
}

impl CellNumber {
    pub fn empty(kind: CounterKind) -> Self {
        match kind {
            CounterKind::Counter => Self::Counter(0.0),
            CounterKind::Gauge => Self::Gauge(Box::default()),
        }
    }

    /// One of the same kind without a value.
    pub fn emptied(&self) -> Self {
        match self {
            Self::Counter(_) => Self::empty(CounterKind::Counter),
            Self::Gauge(_) => Self::empty(CounterKind::Gauge),
        }
    }

    /// Adds to a counter, sets a gauge.
    #[inline]
    pub fn take(&mut self, source: u32, value: f64) {
        match self {
            Self::Counter(sum) => add(sum, value),
            Self::Gauge(gauge) => gauge.set(source, GaugeValue::of(value)),
        }
    }

    pub fn set_gauge(&mut self, source: u32, value: GaugeValue) {
        if let Self::Gauge(gauge) = self {
            gauge.set(source, value);
        }
    }

    /// Changes a counter by what one part of it changes. Where it has no other part, it is exactly what that is.
    pub fn move_counter(&mut self, before: f64, now: f64) {
        if let Self::Counter(sum) = self {
            if *sum == before {
                *sum = now;
            } else {
                add(sum, now - before);
            }
        }
    }

    /// Adds what another scope holds of one source.
    pub fn merge(&mut self, source: u32, other: &Self) {
        match (self, other) {
            (Self::Counter(sum), Self::Counter(value)) => add(sum, *value),
            (Self::Gauge(gauge), Self::Gauge(other)) => gauge.set(source, other.value()),
            (Self::Counter(_) | Self::Gauge(_), _) => {}
        }
    }

    pub fn value(&self) -> CounterValue {
        match self {
            Self::Counter(sum) => CounterValue::Counter(*sum),
            Self::Gauge(gauge) => CounterValue::Gauge(gauge.value()),
        }
    }

    /// What a sample of it has.
    pub fn sample(&self) -> f64 {
        match self {
            Self::Counter(sum) => *sum,
            Self::Gauge(gauge) => gauge.value().average(),
        }
    }
}

/// Adds to a counter. Finite amounts with which it would be infinite add nothing: nothing that comes later would count.
#[inline]
fn add(sum: &mut f64, value: f64) {
    let next = *sum + value;
    if next.is_finite() || !sum.is_finite() || !value.is_finite() {
        *sum = next;
    }
}
