//! What Extra-P reads and prints: points as lines of JSON, and its report of models.
//!
//! `___` in the name of a metric separates levels, of which Extra-P makes a path. The second of three levels tells what
//! is counted, where it is one of a few words.

#[cfg(test)]
mod tests;

use serde::Serialize;

use super::formula::{Formula, FormulaError};

/// What separates levels in names here, and in paths there.
const LEVELS: (&str, &str) = ("___", "->");
/// Words for what is counted.
const COUNTED: [&str; 3] = ["hits", "time", "size"];
const COUNTED_ELSE: &str = "various";
/// Lines of a report that are read: two for each of 100,000 metrics, and as many more.
pub const REPORT_LINES_MAX: usize = 1_000_000;

/// One line of what Extra-P reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtrapPoint {
    pub params: ExtrapParameters,
    pub metric: String,
    pub callpath: String,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExtrapParameters {
    pub size: f64,
}

impl ExtrapPoint {
    /// A value of the metric called `name` in a job of that size.
    pub fn new(name: &str, size: f64, value: f64) -> Self {
        let levels: Vec<&str> = name.split(LEVELS.0).collect();
        let counted = levels.get(1).filter(|level| levels.len() >= 3 && COUNTED.contains(level));
        Self {
            params: ExtrapParameters { size },
            metric: (*counted.unwrap_or(&COUNTED_ELSE)).to_owned(),
            callpath: name.replace(LEVELS.0, LEVELS.1),
            value,
        }
    }
}

/// A model that Extra-P printed.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtrapModel {
    /// The name of the metric, as it is here.
    pub name: String,
    /// Or why its text is no formula that can be evaluated.
    pub formula: Result<Formula, FormulaError>,
    pub rss: f64,
}

/// The models of a report; metrics without one are left out, and so is what was cut off.
pub fn models(report: &str) -> Vec<ExtrapModel> {
    let (mut models, mut name, mut text) = (Vec::new(), None, None);
    for line in report.lines().take(REPORT_LINES_MAX) {
        let line = line.trim();
        if let Some(path) = line.strip_prefix("Callpath:") {
            (name, text) = (Some(path.trim().replace(LEVELS.1, LEVELS.0)), None);
        } else if let Some(model) = line.strip_prefix("Model:") {
            text = Some(model.trim()).filter(|model| *model != "None");
        } else if let Some(rss) = line.strip_prefix("RSS:") {
            let (Some(name), Some(text)) = (&name, text.take()) else { continue };
            let Ok(rss) = rss.trim().parse() else { continue };
            models.push(ExtrapModel { name: name.clone(), formula: text.parse(), rss });
        }
    }
    models
}
