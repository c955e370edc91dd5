//! The series, samples and range of each metric: for people, and in JSON for programs.

use std::fmt;

use serde::{Deserialize, Serialize};
use telem_engine::{Db, MetricKind, ValueFigures};
use telem_ingest::collect::catalog;

use super::human;

/// One metric of a database, or of several that are open as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricFigures {
    pub metric: String,
    /// If it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `unknown` if it is not known.
    #[serde(default, rename = "type")]
    pub kind: MetricKind,
    pub series: u64,
    /// Stored samples; one that was written again counts again until a merge drops it.
    pub samples: u64,
    /// The least and the greatest value; null if all are NaN.
    pub min: Option<f64>,
    pub max: Option<f64>,
}

impl MetricFigures {
    /// Of every metric, by name.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn all(db: &Db) -> telem_engine::Result<Vec<Self>> {
        let snapshot = db.snapshot();
        let mut all = Vec::new();
        let metrics = snapshot.metrics();
        let series: Vec<_> = metrics.iter().map(|metric| snapshot.select(metric, &[])).collect();
        // All at once: a segment is looked at once and not once for each metric.
        let mut figures = snapshot.figures(&series.concat())?.into_iter();
        for (metric, series) in metrics.iter().zip(&series) {
            let mut sum = ValueFigures::default();
            figures.by_ref().take(series.len()).for_each(|figures| sum.add(figures));
            let meta = snapshot.meta().metric(metric);
            all.push(Self {
                metric: metric.to_string(),
                unit: meta.map(|meta| meta.unit.to_string()).filter(|unit| !unit.is_empty()),
                kind: meta.map_or(MetricKind::Unknown, |meta| meta.kind),
                series: series.len() as u64,
                samples: sum.samples,
                min: sum.range.map(|(min, _)| min),
                max: sum.range.map(|(_, max)| max),
            });
        }
        Ok(all)
    }

    /// Whether telem itself measures it.
    fn is_collected(&self) -> bool {
        catalog::describe(&self.metric).is_some()
    }

    fn value(&self, value: Option<f64>) -> String {
        match (value, self.unit.as_deref()) {
            (None, _) => "-".to_owned(),
            (Some(value), Some("bytes")) => human::bytes(value),
            (Some(value), _) => human::short(value),
        }
    }
}

/// Metrics as lines: first those that the job sent, then those that telem measures.
#[derive(Debug)]
pub struct MetricLines<'a> {
    pub metrics: &'a [MetricFigures],
    /// Most that are shown.
    pub metrics_max: usize,
}

const COLUMNS: [&str; 6] = ["metric", "unit", "series", "samples", "min", "max"];
/// Columns with numbers, which are aligned on the right.
const NUMBERS: std::ops::RangeInclusive<usize> = 2..=5;

impl fmt::Display for MetricLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&MetricFigures> = self.metrics.iter().collect();
        sorted.sort_by_key(|figures| figures.is_collected());
        let shown = sorted.iter().take(self.metrics_max);
        let row = |figures: &&MetricFigures| {
            [
                super::shown(&figures.metric),
                figures.unit.clone().unwrap_or_default(),
                human::grouped(figures.series),
                human::grouped(figures.samples),
                figures.value(figures.min),
                figures.value(figures.max),
            ]
        };
        let rows: Vec<[String; 6]> = [COLUMNS.map(str::to_owned)].into_iter().chain(shown.map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
        for row in &rows {
            let cell = |(column, cell): (usize, &String)| {
                let width = widths[column];
                if NUMBERS.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            };
            let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
            write!(f, "\n{}", line.trim_end())?;
        }
        match self.metrics.len().saturating_sub(self.metrics_max) {
            0 => Ok(()),
            more => {
                write!(f, "\nand {} more metrics, which `telem info ... | less` shows", human::grouped(more as u64))
            }
        }
    }
}
