//! The columns of panels: buckets of a round step, counted from 1970 like those of every downsampling.

use telem_engine::{ErrorKind, Step, Timestamp};

use super::COLUMNS_MAX;
use crate::http::ApiError;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Steps that people read well, in milliseconds. Longer ones are twice as long as those before.
const ROUND: [i64; 31] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
];

/// Columns from `start` on, a step each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanelGrid {
    /// Where the first one begins.
    pub start: Timestamp,
    pub step: Step,
    pub columns: usize,
}

/// The round step with which at most `columns` cover `span` milliseconds.
pub fn round_step(span: i64, columns: usize) -> i64 {
    let least = parts_of(span.max(1), columns.max(1) as i64);
    let mut longer = ROUND[ROUND.len() - 1];
    ROUND.into_iter().find(|step| *step >= least).unwrap_or_else(|| {
        while longer < least {
            longer = longer.saturating_mul(2);
        }
        longer
    })
}

/// How many of `part` make `whole`, both above 0; a part of one counts.
fn parts_of(whole: i64, part: i64) -> i64 {
    (whole - 1) / part + 1
}

impl PanelGrid {
    /// Whole columns of `step` milliseconds that cover the range.
    ///
    /// # Errors
    /// Invalid for more columns than may be.
    pub fn new(start: Timestamp, end: Timestamp, step: i64) -> Result<Self, ApiError> {
        let invalid = |what: String| ApiError::of_kind(ErrorKind::Invalid, what);
        let micros = step.checked_mul(1_000).and_then(Step::from_micros);
        let step = micros.ok_or_else(|| invalid(format!("the step is {step} ms, expected one above 0")))?;
        let first = step.floor(start);
        let span = end.micros().saturating_sub(first.micros());
        let columns = parts_of(span.max(1), step.micros());
        match usize::try_from(columns) {
            Ok(columns) if columns <= COLUMNS_MAX + 1 => Ok(Self { start: first, step, columns }),
            _ => Err(invalid(format!(
                "steps of {} ms make {columns} columns, {COLUMNS_MAX} at most: ask for longer steps, or less time",
                step.micros() / 1_000
            ))),
        }
    }

    /// The columns from that of `time` on.
    pub fn since(self, time: Timestamp) -> Self {
        let passed = time.micros().saturating_sub(self.start.micros()).max(0) / self.step.micros();
        let passed = usize::try_from(passed).unwrap_or(usize::MAX).min(self.columns - 1);
        Self { start: self.at(passed), columns: self.columns - passed, ..self }
    }

    /// Where a column begins; where the last one ends, for one beyond it.
    pub fn at(&self, column: usize) -> Timestamp {
        self.start.saturating_add_micros((column as i64).saturating_mul(self.step.micros()))
    }

    pub fn end(&self) -> Timestamp {
        self.at(self.columns)
    }

    /// The column of a time.
    pub fn column(&self, time: Timestamp) -> Option<usize> {
        let after = time.micros().checked_sub(self.start.micros()).filter(|after| *after >= 0)?;
        usize::try_from(after / self.step.micros()).ok().filter(|column| *column < self.columns)
    }

    pub fn step_millis(&self) -> i64 {
        self.step.micros() / 1_000
    }
}
