//! Gauges, counters, histograms, and how they and timers are opened.

use std::ffi::CString;
use std::fmt::Display;

use crate::ffi::{Opening, RawCounter, RawGauge, RawHistogram};
use crate::session::{ClientError, c_text};
use crate::span::Timer;
use crate::value::{Micros, Number};

/// Keys and values that tell series of one metric apart.
///
/// ```
/// use telem_client::{Gauge, Tags};
///
/// let tags = Tags::new().with("model", "resnet").with("layer", 3);
/// let loss = Gauge::tagged("loss", &tags);
/// let same = Gauge::tagged("loss", &Tags::from([("layer", "3"), ("model", "resnet")]));
/// # assert!(loss.is_open() && same.is_open());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Vec<(String, String)>);

impl Tags {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// These and one more.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Display) -> Self {
        self.0.push((key.into(), value.to_string()));
        self
    }
}

impl<K: Into<String>, V: Display> FromIterator<(K, V)> for Tags {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(tags: I) -> Self {
        Self(tags.into_iter().map(|(key, value)| (key.into(), value.to_string())).collect())
    }
}

impl<K: Into<String>, V: Display, const N: usize> From<[(K, V); N]> for Tags {
    fn from(tags: [(K, V); N]) -> Self {
        tags.into_iter().collect()
    }
}

/// What is said of a metric before it is opened: tags, unit, help, level.
///
/// ```
/// use telem_client::Metric;
///
/// # fn main() -> Result<(), telem_client::ClientError> {
/// let power = Metric::new("rack_power")
///     .tag("rack", 7)
///     .unit("W")
///     .help("What the rack draws.")
///     .level(2)
///     .gauge()?;
/// power.set(12_500);
/// assert!(Metric::new("").gauge().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "gauge, counter, histogram or timer opens it"]
pub struct Metric {
    name: String,
    tags: Tags,
    unit: Option<String>,
    help: Option<String>,
    level: u8,
}

impl Metric {
    /// Nothing but its name is said.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), tags: Tags::new(), unit: None, help: None, level: 0 }
    }

    /// One more tag.
    pub fn tag(mut self, key: impl Into<String>, value: impl Display) -> Self {
        self.tags = self.tags.with(key, value);
        self
    }

    /// More tags.
    pub fn tags(mut self, tags: &Tags) -> Self {
        self.tags.0.extend_from_slice(&tags.0);
        self
    }

    /// Such as `"s"` or `"bytes"`.
    pub fn unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into());
        self
    }

    /// One sentence.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The lowest level of a job that keeps it, 1 to 4; without it 1.
    pub fn level(mut self, level: u8) -> Self {
        self.level = level;
        self
    }

    /// As a gauge.
    ///
    /// # Errors
    /// Why it cannot be opened, such as a name that is empty or too long, or one that is a counter already. A program
    /// that goes on without it takes `unwrap_or_default()`: that one does nothing.
    pub fn gauge(self) -> Result<Gauge, ClientError> {
        let raw = self.opening()?.gauge();
        raw.is_open().then_some(Gauge { raw }).ok_or_else(ClientError::last)
    }

    /// As a counter.
    ///
    /// # Errors
    /// As of [`Metric::gauge`].
    pub fn counter(self) -> Result<Counter, ClientError> {
        let raw = self.opening()?.counter();
        raw.is_open().then_some(Counter { raw }).ok_or_else(ClientError::last)
    }

    /// As a histogram; `bounds` are the upper bounds of its buckets, included, in rising order. The last bucket has
    /// none.
    ///
    /// # Errors
    /// As of [`Metric::gauge`], and where the bounds do not rise.
    pub fn histogram(self, bounds: &[f64]) -> Result<Histogram, ClientError> {
        let raw = self.opening()?.histogram(bounds);
        raw.is_open().then_some(Histogram { raw }).ok_or_else(ClientError::last)
    }

    /// As a timer; its unit is `s` unless another was said.
    ///
    /// # Errors
    /// As of [`Metric::gauge`].
    pub fn timer(mut self) -> Result<Timer, ClientError> {
        self.unit.get_or_insert_with(|| "s".to_owned());
        let raw = self.opening()?.timer();
        raw.is_open().then_some(Timer { raw }).ok_or_else(ClientError::last)
    }

    fn opening(&self) -> Result<Opening, ClientError> {
        let optional = |text: &Option<String>, what| text.as_deref().map(|text| c_text(text, what)).transpose();
        let tags = self.tags.0.iter().flat_map(|(key, value)| [key, value]);
        let tags: Result<Vec<CString>, ClientError> = tags.map(|text| c_text(text, "a tag")).collect();
        Ok(Opening {
            metric: c_text(&self.name, "the name of a metric")?,
            tags: tags?,
            unit: optional(&self.unit, "the unit of a metric")?,
            help: optional(&self.help, "the help of a metric")?,
            level: self.level.into(),
        })
    }
}

/// Each value that is set is a sample.
///
/// A handle of the size of a pointer, for any thread. Opening the same metric with the same tags again gives the same
/// one. `Gauge::default()` is of no metric and does nothing.
///
/// ```
/// use std::sync::LazyLock;
/// use std::time::SystemTime;
/// use telem_client::{Gauge, Micros};
///
/// static LOSS: LazyLock<Gauge> = LazyLock::new(|| Gauge::new("loss"));
///
/// LOSS.set(0.25);                                     // a float, now
/// LOSS.set_step(0.125, 7);                            // with the step of the program
/// LOSS.set_at(1, Micros(1_767_322_800_000_000));      // an integer, at another time
/// LOSS.set_at(0.5, SystemTime::now());
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    raw: RawGauge,
}

impl Gauge {
    /// Without tags; see [`Metric`] for more. One that cannot be opened does nothing, and [`Gauge::is_open`] says so.
    pub fn new(name: &str) -> Self {
        Metric::new(name).gauge().unwrap_or_default()
    }

    /// With tags.
    pub fn tagged(name: &str, tags: &Tags) -> Self {
        Metric::new(name).tags(tags).gauge().unwrap_or_default()
    }

    /// Whether it is of a metric.
    pub fn is_open(&self) -> bool {
        self.raw.is_open()
    }

    /// A sample of now.
    #[inline]
    pub fn set(&self, value: impl Into<Number>) {
        match value.into() {
            Number::Float(value) => self.raw.set(value),
            Number::Int(value) => self.raw.set_int(value),
        }
    }

    /// A sample of another time. One before 1970 is counted as dropped.
    #[inline]
    pub fn set_at(&self, value: impl Into<Number>, time: impl Into<Micros>) {
        match value.into() {
            Number::Float(value) => self.raw.set_at(value, time.into().0),
            Number::Int(value) => self.raw.set_int_at(value, time.into().0),
        }
    }

    /// A sample of now, with the step of the program that it belongs to.
    #[inline]
    pub fn set_step(&self, value: impl Into<Number>, step: i64) {
        self.take_step(value.into(), step, 0);
    }

    /// The same of another time.
    #[inline]
    pub fn set_step_at(&self, value: impl Into<Number>, step: i64, time: impl Into<Micros>) {
        // C takes 0 for now.
        let Micros(time) = time.into();
        self.take_step(value.into(), step, if time > 0 { time } else { -1 });
    }

    #[inline]
    fn take_step(&self, value: Number, step: i64, time: i64) {
        match value {
            Number::Float(value) => self.raw.set_step(value, step, time),
            Number::Int(value) => self.raw.set_int_step(value, step, time),
        }
    }
}

/// A total of this process, exact whatever threads add to it.
///
/// ```
/// use telem_client::Counter;
///
/// let requests = Counter::new("requests_total");
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| requests.increment()));
///     }
/// });
/// assert_eq!(requests.total(), 4000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    raw: RawCounter,
}

impl Counter {
    /// Without tags; see [`Metric`] for more. One that cannot be opened does nothing.
    pub fn new(name: &str) -> Self {
        Metric::new(name).counter().unwrap_or_default()
    }

    /// With tags.
    pub fn tagged(name: &str, tags: &Tags) -> Self {
        Metric::new(name).tags(tags).counter().unwrap_or_default()
    }

    /// Whether it is of a metric.
    pub fn is_open(&self) -> bool {
        self.raw.is_open()
    }

    /// Adds so much.
    #[inline]
    pub fn add(&self, increment: u64) {
        self.raw.add(increment);
    }

    /// Adds 1.
    #[inline]
    pub fn increment(&self) {
        self.raw.add(1);
    }

    /// The total so far.
    pub fn total(&self) -> u64 {
        self.raw.total()
    }
}

/// Counts of observations by fixed bounds.
///
/// ```
/// use telem_client::Histogram;
///
/// let bytes = Histogram::new("message_bytes", &[1e3, 1e6, 1e9]);
/// bytes.observe(4096.0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Histogram {
    raw: RawHistogram,
}

impl Histogram {
    /// Without tags; see [`Metric`] for more, and [`Metric::histogram`] for the bounds. One that cannot be opened does
    /// nothing.
    pub fn new(name: &str, bounds: &[f64]) -> Self {
        Metric::new(name).histogram(bounds).unwrap_or_default()
    }

    /// With tags.
    pub fn tagged(name: &str, bounds: &[f64], tags: &Tags) -> Self {
        Metric::new(name).tags(tags).histogram(bounds).unwrap_or_default()
    }

    /// Whether it is of a metric.
    pub fn is_open(&self) -> bool {
        self.raw.is_open()
    }

    /// One observation.
    #[inline]
    pub fn observe(&self, value: f64) {
        self.raw.observe(value);
    }
}
