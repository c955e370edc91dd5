//! What exporters show of themselves: Prometheus' text, version 0.0.4, and OpenMetrics.
//!
//! The one idea: a body is read line by line, and a line that cannot be read costs itself only. Both formats are read by
//! the same code, because they differ in few places: OpenMetrics has times in seconds, units, exemplars and an end, and
//! Prometheus' text has times in milliseconds and comments. Blanks may stand wherever either format allows some.
//! Histograms and summaries stay the series that they are sent as: `_bucket` with `le`, `_sum`, `_count`, `quantile`.
//!
//! Exemplars are passed over. A series that is there twice comes twice.

mod cursor;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use telem_engine::Timestamp;
use telem_engine::meta::MetricKind;

use self::cursor::LineCursor;

/// How much of what was found an error shows, in characters.
const FOUND_MAX: usize = 48;

/// Which of the two a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpositionFormat {
    /// Prometheus' text, version 0.0.4: times in milliseconds.
    Text,
    /// OpenMetrics: times in seconds, and `# EOF` at the end.
    OpenMetrics,
}

impl ExpositionFormat {
    /// By the `Content-Type` of an answer; whatever is not OpenMetrics is the text of Prometheus.
    pub fn of_content_type(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence.eq_ignore_ascii_case("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }
}

/// How much of one body is read.
#[derive(Clone, Copy, Debug)]
pub struct ExpositionLimits {
    /// Bytes of a line: names and labels of a sample, or the text of a `# HELP`.
    pub line_bytes_max: usize,
    /// Samples of a body: an exporter with more is none that one meant to read.
    pub samples_max: usize,
    /// Families of a body that `# TYPE`, `# HELP` and `# UNIT` speak of.
    pub families_max: usize,
    /// Labels of a sample: as many as a series may have tags.
    pub labels_max: usize,
    /// Refused lines that are told with their reasons; the others are counted.
    pub refused_told_max: usize,
}

impl Default for ExpositionLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: 64 << 10,
            samples_max: 1_000_000,
            families_max: 100_000,
            labels_max: 64,
            refused_told_max: 100,
        }
    }
}

/// What a `# TYPE` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExposedType {
    /// Nothing says it, or `untyped` and `unknown` do.
    #[default]
    Unknown,
    Gauge,
    Counter,
    Histogram,
    GaugeHistogram,
    Summary,
    Info,
    StateSet,
}

impl ExposedType {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "untyped" | "unknown" => Self::Unknown,
            "gauge" => Self::Gauge,
            "counter" => Self::Counter,
            "histogram" => Self::Histogram,
            "gaugehistogram" => Self::GaugeHistogram,
            "summary" => Self::Summary,
            "info" => Self::Info,
            "stateset" => Self::StateSet,
            _ => return None,
        })
    }

    /// In the words of the database, which has no word for histograms of what may fall.
    pub fn kind(self) -> MetricKind {
        match self {
            Self::Unknown => MetricKind::Unknown,
            Self::Gauge => MetricKind::Gauge,
            Self::Counter => MetricKind::Counter,
            Self::Histogram | Self::GaugeHistogram => MetricKind::Histogram,
            Self::Summary => MetricKind::Summary,
            Self::Info => MetricKind::Info,
            Self::StateSet => MetricKind::StateSet,
        }
    }

    /// What the series is whose name is that of the family with `suffix` behind it; `None` where such a family has none.
    fn series(self, suffix: &str) -> Option<MetricKind> {
        match (self, suffix) {
            (Self::Unknown, "") => Some(MetricKind::Unknown),
            (Self::Counter, "" | "_total") => Some(MetricKind::Counter),
            (Self::Histogram, "_bucket" | "_count" | "_sum") => Some(MetricKind::Counter),
            (Self::Summary, "_count" | "_sum") => Some(MetricKind::Counter),
            (Self::Counter | Self::Histogram | Self::Summary, "_created") => Some(MetricKind::Gauge),
            (Self::Gauge | Self::Summary | Self::StateSet, "") => Some(MetricKind::Gauge),
            (Self::GaugeHistogram, "_bucket" | "_gcount" | "_gsum") => Some(MetricKind::Gauge),
            (Self::Info, "" | "_info") => Some(MetricKind::Gauge),
            // Nothing is known of a series that a histogram should not have.
            (Self::Histogram | Self::GaugeHistogram, "") => Some(MetricKind::Unknown),
            _ => None,
        }
    }
}

/// What the series of a family may have behind its name.
const SUFFIXES: [&str; 8] = ["_total", "_created", "_bucket", "_count", "_sum", "_gcount", "_gsum", "_info"];

/// What a body says about some of its series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExposedFamily {
    pub name: String,
    /// Empty where nothing says it, like the unit.
    pub help: String,
    pub kind: ExposedType,
    pub unit: String,
}

/// One sample as it was sent: names unchecked by the rules of the database, labels in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct ExposedSample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
    /// `None` means when it was read, as nearly always.
    pub time: Option<Timestamp>,
    /// Where its family stands among [`Exposition::families`], if the lines before it name one.
    pub family: Option<usize>,
    /// What this very series is: a bucket of a histogram is a counter.
    pub kind: MetricKind,
}

/// Whether a body said that it was whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpositionEnd {
    /// As always in Prometheus' text. A body of OpenMetrics was cut.
    #[default]
    Unmarked,
    /// By `# EOF`.
    Marked,
}

/// What one body holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exposition {
    /// In the order in which the body first speaks of them.
    pub families: Vec<ExposedFamily>,
    /// In the order of the body.
    pub samples: Vec<ExposedSample>,
    /// The first lines that could not be read; [`Self::refused`] counts all.
    pub rejects: Vec<ExpositionReject>,
    pub refused: u64,
    pub end: ExpositionEnd,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct ExpositionReject {
    /// From 1.
    pub line: usize,
    pub error: ExpositionError,
}

/// Why a line could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    #[error("column {column}: expected {expected}, found {found}")]
    Unexpected {
        /// From 1, in characters.
        column: usize,
        expected: &'static str,
        found: String,
    },
    #[error("the line is no UTF-8 from byte {byte} on")]
    NotUtf8 {
        /// From 1.
        byte: usize,
    },
    #[error("the line has {found} bytes, expected at most {max} (`line_bytes_max`)")]
    TooLong { found: usize, max: usize },
    #[error("the sample has more than {max} labels (`labels_max`)")]
    TooManyLabels { max: usize },
    #[error("the body has more than {max} samples (`samples_max`)")]
    TooManySamples { max: usize },
    #[error("the body has more than {max} families (`families_max`)")]
    TooManyFamilies { max: usize },
    #[error("the label {label} is there twice")]
    LabelAgain { label: String },
    #[error("{family} has another {what} already, and keeps it: {found}")]
    SaidAgain { family: String, what: &'static str, found: String },
    #[error("expected nothing after # EOF, found {found}")]
    AfterEnd { found: String },
}

impl Exposition {
    /// Reads all of `body` that can be read.
    pub fn parse(body: &[u8], format: ExpositionFormat, limits: &ExpositionLimits) -> Self {
        let mut reader = ExpositionReader { format, limits, read: Self::default(), families: HashMap::new() };
        for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
            let len = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
            let line = &line[..len];
            if let Err(error) = reader.line(line) {
                reader.read.refused += 1;
                if reader.read.rejects.len() < limits.refused_told_max {
                    reader.read.rejects.push(ExpositionReject { line: at + 1, error });
                }
            }
        }
        reader.read
    }
}

/// What braces hold: maybe the name of the metric, and labels.
type BracedNames = (Option<String>, Vec<(String, String)>);

struct ExpositionReader<'a> {
    format: ExpositionFormat,
    limits: &'a ExpositionLimits,
    read: Exposition,
    /// Places of families, by name.
    families: HashMap<String, usize>,
}

impl ExpositionReader<'_> {
    fn line(&mut self, line: &[u8]) -> Result<(), ExpositionError> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.read.end == ExpositionEnd::Marked {
            return Err(ExpositionError::AfterEnd { found: found(&String::from_utf8_lossy(line)) });
        }
        let max = self.limits.line_bytes_max;
        if line.len() > max {
            return Err(ExpositionError::TooLong { found: line.len(), max });
        }
        let line = str::from_utf8(line).map_err(|error| ExpositionError::NotUtf8 { byte: error.valid_up_to() + 1 })?;
        let mut cursor = LineCursor::new(line);
        cursor.skip_blanks();
        match cursor.take('#') {
            true => self.remark(cursor),
            false => self.sample(cursor),
        }
    }

    /// What follows `#`: something about a family, the end, or a comment.
    fn remark(&mut self, mut cursor: LineCursor<'_>) -> Result<(), ExpositionError> {
        cursor.skip_blanks();
        let is_open = self.format == ExpositionFormat::OpenMetrics;
        match cursor.word() {
            "HELP" => {
                let family = self.family(&mut cursor)?;
                let help = cursor::unescaped(cursor.rest());
                self.say(family, "help", |family| &mut family.help, help)
            }
            "TYPE" => {
                let family = self.family(&mut cursor)?;
                let kind = cursor.typed(ExposedType::parse, "a type such as counter, gauge or histogram")?;
                cursor.end()?;
                let family = self.family_mut(family)?;
                if family.kind != ExposedType::Unknown && family.kind != kind {
                    let (family, found) = (found(&family.name), format!("{:?}", family.kind).to_lowercase());
                    return Err(ExpositionError::SaidAgain { family, what: "type", found });
                }
                family.kind = kind;
                Ok(())
            }
            "UNIT" if is_open => {
                let family = self.family(&mut cursor)?;
                let unit = cursor.rest().trim_end().to_owned();
                self.say(family, "unit", |family| &mut family.unit, unit)
            }
            "EOF" if is_open => {
                cursor.end()?;
                self.read.end = ExpositionEnd::Marked;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The name of the family that a remark is about; leaves the cursor at what is said of it.
    fn family(&self, cursor: &mut LineCursor<'_>) -> Result<String, ExpositionError> {
        cursor.skip_blanks();
        let name = cursor.metric_or_quoted()?;
        if !cursor.skip_blanks() && !cursor.is_at_end() {
            return Err(cursor.unexpected("a blank after the name"));
        }
        Ok(name)
    }

    fn family_mut(&mut self, name: String) -> Result<&mut ExposedFamily, ExpositionError> {
        let (count, max) = (self.read.families.len(), self.limits.families_max);
        let at = match self.families.get(&name) {
            Some(at) => *at,
            None if count >= max => return Err(ExpositionError::TooManyFamilies { max }),
            None => {
                self.families.insert(name.clone(), count);
                self.read.families.push(ExposedFamily { name, ..ExposedFamily::default() });
                count
            }
        };
        Ok(&mut self.read.families[at])
    }

    /// Keeps a text about a family; the first one stays.
    fn say(
        &mut self,
        family: String,
        what: &'static str,
        field: fn(&mut ExposedFamily) -> &mut String,
        text: String,
    ) -> Result<(), ExpositionError> {
        let shown = found(&family);
        let said = field(self.family_mut(family)?);
        if !said.is_empty() && *said != text {
            return Err(ExpositionError::SaidAgain { family: shown, what, found: found(said) });
        }
        *said = text;
        Ok(())
    }

    fn sample(&mut self, mut cursor: LineCursor<'_>) -> Result<(), ExpositionError> {
        let name = match cursor.peek() {
            Some('{') => None,
            _ => Some(cursor.metric()?.to_owned()),
        };
        let is_apart = cursor.skip_blanks();
        let (name, labels) = match cursor.take('{') {
            true => self.labels(&mut cursor, name)?,
            false if is_apart => (name, Vec::new()),
            false => return Err(cursor.unexpected("a blank or { after the name")),
        };
        let Some(name) = name else { return Err(cursor.unexpected("a quoted name of the metric within the braces")) };
        cursor.skip_blanks();
        let value = cursor.typed(cursor::float, "a number, NaN, +Inf or -Inf")?;
        let time = match cursor.peek() {
            None | Some('#') => None,
            Some(_) if self.format == ExpositionFormat::Text => {
                Some(cursor.typed(cursor::millis, "a time in milliseconds, or the end of the line")?)
            }
            Some(_) => Some(cursor.typed(cursor::seconds, "a time in seconds, or the end of the line")?),
        };
        let has_exemplar = self.format == ExpositionFormat::OpenMetrics && cursor.peek() == Some('#');
        if !has_exemplar {
            cursor.end()?;
        }
        let max = self.limits.samples_max;
        if self.read.samples.len() >= max {
            return Err(ExpositionError::TooManySamples { max });
        }
        let (family, kind) = self.belonging(&name);
        self.read.samples.push(ExposedSample { name, labels, value, time, family, kind });
        Ok(())
    }

    /// What stands between braces; the name of the metric too, where it is quoted.
    fn labels(&self, cursor: &mut LineCursor<'_>, mut name: Option<String>) -> Result<BracedNames, ExpositionError> {
        let mut labels: Vec<(String, String)> = Vec::new();
        loop {
            cursor.skip_blanks();
            if cursor.take('}') {
                return Ok((name, labels));
            }
            let key = match cursor.peek() {
                Some('"') => cursor.quoted("the end of a name, a \"")?,
                _ => cursor.label()?.to_owned(),
            };
            cursor.skip_blanks();
            if cursor.take('=') {
                cursor.skip_blanks();
                let value = cursor.quoted("a value within \"\"")?;
                if key.is_empty() {
                    return Err(cursor.unexpected("a label with a name before it"));
                }
                if labels.iter().any(|(known, _)| *known == key) {
                    return Err(ExpositionError::LabelAgain { label: found(&key) });
                }
                let max = self.limits.labels_max;
                if labels.len() >= max {
                    return Err(ExpositionError::TooManyLabels { max });
                }
                labels.push((key, value));
            } else if name.is_none() && labels.is_empty() && cursor.was_quoted() && !key.is_empty() {
                name = Some(key);
            } else {
                return Err(cursor.unexpected("= after the name of a label"));
            }
            cursor.skip_blanks();
            if !cursor.take(',') && cursor.peek() != Some('}') {
                return Err(cursor.unexpected(", or } after a label"));
            }
        }
    }

    /// The family of a sample, and what the series is.
    fn belonging(&self, name: &str) -> (Option<usize>, MetricKind) {
        let ends = SUFFIXES.iter().filter_map(|suffix| Some((name.strip_suffix(suffix)?, *suffix)));
        let fits = |(family, suffix): (&str, &str)| {
            let at = *self.families.get(family)?;
            Some((Some(at), self.read.families[at].kind.series(suffix)?))
        };
        fits((name, "")).or_else(|| ends.filter(|(stem, _)| !stem.is_empty()).find_map(fits)).unwrap_or_default()
    }
}

/// As much of a text as an error shows, without control characters.
fn found(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut shown: String = text.chars().take(FOUND_MAX).map(plain).collect();
    if text.chars().nth(FOUND_MAX).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}
