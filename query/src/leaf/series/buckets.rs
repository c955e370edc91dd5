//! What each series contributes to every bucket of a fixed grid, ready to be aggregated.

use std::sync::Arc;

use arrow::array::{BooleanArray, Float64Array};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use telem_engine::Timestamp;

use super::{BATCH_ROWS, Lines, Names, Source, external, times_array};
use crate::functions::Aggregator;
use crate::pipeline::Pipeline;
use crate::pipeline::contribution::Contribution;
use crate::pipeline::grid::Grid;
use crate::selection::group_key;

pub(super) struct Buckets {
    source: Source,
    pipeline: Pipeline,
    lines: Lines,
    walk: Option<Walk>,
}

impl Buckets {
    pub(super) fn new(source: Source) -> Self {
        let pipeline = Pipeline::new(&source.query);
        let lines = source.lines(&pipeline);
        Self { source, pipeline, lines, walk: None }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        let aggregator = self.source.query.aggregator;
        let mut names = Names::default();
        let mut rows = Rows::default();
        while rows.times.len() < BATCH_ROWS {
            if self.walk.is_none() && !self.next_series()? {
                break;
            }
            let Some(walk) = &mut self.walk else { break };
            let before = rows.times.len();
            let finished = walk.fill(&mut rows, BATCH_ROWS, aggregator);
            names.push(&walk.group, rows.times.len() - before)?;
            if finished {
                self.walk = None;
            }
        }
        if rows.times.is_empty() {
            return Ok(None);
        }
        let nothing = nothing(aggregator);
        let values: Float64Array =
            rows.values.into_iter().map(|value| if nothing(value) { None } else { Some(value) }).collect();
        let columns =
            vec![names.finish(), times_array(rows.times), Arc::new(values), Arc::new(BooleanArray::from(rows.reals))];
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.source.schema), columns)?))
    }

    fn next_series(&mut self) -> Result<bool, DataFusionError> {
        for line in self.lines.by_ref() {
            self.source.check_wanted()?;
            let (series, line) = line.map_err(|error| external(error.into()))?;
            let contribution = self.pipeline.contribution(line);
            if let Some(walk) = Walk::new(contribution, &self.pipeline) {
                let group = group_key(&self.source.query, &self.source.key(series)?);
                self.walk = Some(Walk { group, ..walk });
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Iterator for Buckets {
    type Item = Result<RecordBatch, DataFusionError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch().transpose()
    }
}

#[derive(Default)]
struct Rows {
    times: Vec<Timestamp>,
    values: Vec<f64>,
    reals: Vec<bool>,
}

/// A series on its way along the grid.
struct Walk {
    group: String,
    contribution: Contribution,
    grid: Grid,
    /// Points at or before `at` as far as is known.
    passed: usize,
    at: Timestamp,
    last: Timestamp,
}

impl Walk {
    /// `None` where the series brings nothing to the range of the query.
    fn new(contribution: Contribution, pipeline: &Pipeline) -> Option<Self> {
        let grid = pipeline.buckets?.grid;
        let (alive_from, alive_to) = contribution.alive()?;
        let (from, last) = (alive_from.max(pipeline.start), alive_to.min(pipeline.end));
        let at = match grid {
            // One bucket, there if the series really has a value in it.
            Grid::All { start, .. } => contribution.next_real(0).filter(|time| *time == start)?,
            Grid::Fixed(_) | Grid::Calendar { .. } => grid.ceil(from),
        };
        let passed = contribution.before(at);
        (at <= last).then_some(Self { group: String::new(), contribution, grid, passed, at, last })
    }

    /// Adds rows until there are `rows_max` or the series ends; whether it ended.
    fn fill(&mut self, rows: &mut Rows, rows_max: usize, aggregator: Aggregator) -> bool {
        while self.at <= self.last {
            if rows.times.len() == rows_max {
                return false;
            }
            self.passed = self.contribution.pass(self.passed, self.at);
            let real = self.contribution.is_real(self.passed, self.at);
            // Of a group of one series nothing but its own points is shown.
            if real || aggregator != Aggregator::None {
                let value = self.contribution.float(self.passed, self.at);
                rows.times.push(self.at);
                rows.values.push(if aggregator == Aggregator::SquareSum { value * value } else { value });
                rows.reals.push(real);
            }
            let next = match self.grid {
                Grid::All { .. } => return true,
                _ => self.grid.next(self.at),
            };
            if next <= self.at {
                return true;
            }
            self.at = next;
        }
        true
    }
}

/// Which contributions add nothing to the aggregate, so that NULL can stand for them. An infinite
/// minimum is none (see [`Aggregator::of_floats`]), and DataFusion's `MIN` takes the largest
/// number for infinity.
fn nothing(aggregator: Aggregator) -> fn(f64) -> bool {
    match aggregator {
        Aggregator::None => |_| false,
        Aggregator::Min | Aggregator::MimMin => |value| value.is_nan() || value == f64::INFINITY,
        Aggregator::Max | Aggregator::MimMax => |value| value.is_nan() || value == f64::NEG_INFINITY,
        _ => f64::is_nan,
    }
}
