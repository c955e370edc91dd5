//! The lines of a panel while their values come in.

use std::collections::HashMap;

use telem_engine::{ErrorKind, Timestamp};

use super::super::nodes::AbsentNode;
use super::CELLS_MAX;
use super::grid::PanelGrid;
use crate::answers::AnswerCharge;
use crate::http::ApiError;

/// Bytes of a cell, with the number of its samples while they are folded.
const CELL_BYTES: usize = 3 * size_of::<f64>() + size_of::<u32>();

/// What names a line: the values of the keys that make lines.
pub type LineName = Vec<Option<String>>;

/// All lines of a panel.
#[derive(Debug)]
pub struct PanelLines {
    pub grid: PanelGrid,
    pub lines: Vec<PanelLine>,
    pub missing: Vec<AbsentNode>,
    /// The samples of each line, where they are the answer.
    pub raw: Option<Vec<RawLine>>,
    places: HashMap<LineName, usize>,
    charge: AnswerCharge,
}

/// NaN is nothing.
#[derive(Clone, Debug)]
pub struct PanelLine {
    pub name: LineName,
    pub avg: Vec<f64>,
    pub min: Vec<f64>,
    pub max: Vec<f64>,
    pub samples: u64,
}

#[derive(Clone, Debug, Default)]
pub struct RawLine {
    pub times: Vec<f64>,
    pub values: Vec<f64>,
}

/// Which of the three values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinePart {
    Avg,
    Min,
    Max,
}

impl PanelLines {
    pub fn new(grid: PanelGrid, charge: AnswerCharge) -> Self {
        Self { grid, lines: Vec::new(), missing: Vec::new(), raw: None, places: HashMap::new(), charge }
    }

    /// Where the line of that name is, a new one if there is none.
    ///
    /// # Errors
    /// Invalid for more cells than are looked at; Busy while others hold the memory.
    pub fn place(&mut self, name: &LineName) -> Result<usize, ApiError> {
        if let Some(place) = self.places.get(name) {
            return Ok(*place);
        }
        let (place, columns) = (self.lines.len(), self.grid.columns);
        let cells = (place + 1).saturating_mul(columns);
        if cells > CELLS_MAX {
            let what = format!(
                "the panel has more than {place} lines of {columns} columns, {CELLS_MAX} cells at most: ask for fewer \
                 columns, name fewer tags in by, or filter with where"
            );
            return Err(ApiError::of_kind(ErrorKind::Invalid, what));
        }
        self.charge.grow(cells.saturating_mul(CELL_BYTES))?;
        let empty = || vec![f64::NAN; columns];
        let line = PanelLine { name: name.clone(), avg: empty(), min: empty(), max: empty(), samples: 0 };
        self.lines.push(line);
        self.places.insert(name.clone(), place);
        Ok(place)
    }

    /// The place of a line that is there.
    pub fn known(&self, name: &LineName) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Gives all lines the same value of a key, if there is such a key.
    pub fn name_all(&mut self, key: Option<usize>, value: &str) {
        let Some(key) = key else { return };
        for line in &mut self.lines {
            line.name[key] = Some(value.to_owned());
        }
        self.places = self.lines.iter().enumerate().map(|(place, line)| (line.name.clone(), place)).collect();
    }

    /// Sets one value; a time outside of the grid is nobody's.
    pub fn set(&mut self, place: usize, part: LinePart, time: Timestamp, value: f64) {
        let Some(column) = self.grid.column(time) else { return };
        let Some(line) = self.lines.get_mut(place) else { return };
        let values = match part {
            LinePart::Avg => &mut line.avg,
            LinePart::Min => &mut line.min,
            LinePart::Max => &mut line.max,
        };
        values[column] = value;
    }

    /// Forgets all lines.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.places.clear();
        self.charge.shrink(0);
    }

    /// Samples of the line that has most.
    pub fn longest(&self) -> usize {
        let most = self.lines.iter().map(|line| line.samples).max().unwrap_or(0);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Adds those that are not there.
    pub fn lack(&mut self, missing: impl IntoIterator<Item = AbsentNode>) {
        for one in missing {
            if !self.missing.iter().any(|known| known.node == one.node) {
                self.missing.push(one);
            }
        }
    }
}
