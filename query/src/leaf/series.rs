//! The leaf of time-series queries: what a query asks of each selected series.
//!
//! Everything that a query needs of one series is computed here, next to its samples; no series looks at another. The
//! kind of request fixes the columns, see [`Yield`].

mod buckets;
mod folds;
mod grouped;
mod groups;
mod naming;
mod points;

pub use buckets::{STATES_MAX, is_added_up, is_cut};
pub use folds::{adds_extremes, can_fold};
pub use grouped::SeriesSplit;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use serde::{Deserialize, Serialize};
use telem_engine::downsample::{DownsampleRequest, SeriesBuckets};
use telem_engine::{SeriesByJob, SeriesId, SeriesKey, SeriesPoints, TimeRange, Timestamp, Values};

use super::{Batches, LeafContext, Part, stopped};
use crate::error::Error;
use crate::options::BATCH_ROWS;
use crate::pipeline::{Line, Pipeline};
use crate::question::TsQuery;
use crate::question::serial;
use crate::selection;

/// The series that a query selects, and what to make of each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeriesRequest {
    #[serde(with = "serial::shared")]
    pub query: Arc<TsQuery>,
    pub yields: Yield,
    pub split: SeriesSplit,
}

/// What a leaf hands out of every selected series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Yield {
    /// `series`: the tags of every series that has a sample in the window (see
    /// [`selection::encode_tags`](crate::selection)), or of many that the head knows by number. It belongs to a group,
    /// whatever its values.
    Groups,
    /// `group, ts, value, count, real`: what series contribute to every bucket of a fixed grid, with aggregates in
    /// view: the `value` of `count` contributions that count to the aggregator, NULL where there are none. Those of one
    /// group and bucket may be added up, or be on rows of their own. Of a sum that no float holds the rest follows on
    /// rows whose `count` is 0. `real` marks one that is no stand-in.
    Buckets,
    /// [`Yield::Buckets`] and [`Yield::Groups`] at once, which saves a round over many nodes: a column `series` more,
    /// NULL but on the rows that name series. These have nothing else but the group of the series, where it is one.
    NamedBuckets,
    /// `group, ts, sum, count, least, greatest`: of each group and bucket all samples that are numbers, or of a rate their
    /// number and the rises between them. Those of one group and bucket may be on several rows, which are to be put
    /// together; what has no number is NULL.
    Folds,
    /// `series, ts, int, float`: the downsampled, unfilled or else the raw points of each series,
    /// and of `int` and `float` the one that the point is. An error past `points_max` of them. Of the series in `raw`
    /// the samples as they are: other nodes have some of theirs.
    Points {
        points_max: u64,
        #[serde(with = "serial::keys")]
        raw: Vec<SeriesKey>,
    },
}

impl SeriesRequest {
    /// The columns of the answer.
    pub fn schema(&self) -> SchemaRef {
        let ts = Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))), false);
        let name = |name: &str| Field::new(name, DataType::Utf8View, false);
        Arc::new(Schema::new(match self.yields {
            Yield::Groups => vec![name("series")],
            Yield::Buckets | Yield::NamedBuckets => {
                let named = self.yields == Yield::NamedBuckets;
                let mut fields = vec![
                    name("group"),
                    ts.with_nullable(named),
                    Field::new("value", DataType::Float64, true),
                    Field::new("count", DataType::Int64, false),
                    Field::new("real", DataType::Boolean, false),
                ];
                fields.extend(named.then(|| name("series").with_nullable(true)));
                fields
            }
            Yield::Folds => vec![
                name("group"),
                ts,
                Field::new("sum", DataType::Float64, false),
                Field::new("count", DataType::Int64, false),
                Field::new("least", DataType::Float64, true),
                Field::new("greatest", DataType::Float64, true),
            ],
            Yield::Points { .. } => vec![
                name("series"),
                ts,
                Field::new("int", DataType::Int64, true),
                Field::new("float", DataType::Float64, true),
            ],
        }))
    }

    /// See [`super::Request::batches`].
    pub fn batches(&self, context: &LeafContext, schema: &SchemaRef, part: Part) -> Batches {
        self.part(context, schema, part).unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }

    fn part(&self, context: &LeafContext, schema: &SchemaRef, part: Part) -> Result<Batches, DataFusionError> {
        let mut selected = match &context.selected {
            Some(selected) => selected.to_vec(),
            None => selection::select(&self.query, &context.snapshot),
        };
        context.snapshot.sort_by_database(&mut selected);
        let (query, context, schema) = (Arc::clone(&self.query), context.clone(), Arc::clone(schema));
        let source = SeriesSource { query, context, schema, part };
        let chunks = |groups_max: usize| {
            grouped::chunks(&source.query, self.split, groups_max, part, &source.context, &selected)
        };
        Ok(match &self.yields {
            Yield::Groups => Box::new(groups::GroupBatches::new(source, part.of(&selected).to_vec())),
            Yield::Buckets | Yield::NamedBuckets => {
                let chunks = chunks(buckets::groups_max(&self.query))?;
                Box::new(buckets::BucketBatches::new(source, chunks, &self.yields))
            }
            Yield::Folds => {
                let no_grid = || DataFusionError::Internal("a fold over buckets of no fixed step".to_owned());
                let grid = folds::FoldGrid::of(&self.query).ok_or_else(no_grid)?;
                let chunks = chunks(grid.groups_max())?;
                Box::new(folds::FoldBatches::new(source, grid, chunks))
            }
            Yield::Points { points_max, raw } => {
                Box::new(points::PointBatches::new(source, part.of(&selected), *points_max, raw))
            }
        })
    }
}

impl fmt::Display for SeriesRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.yields {
            Yield::Groups => "groups",
            Yield::Buckets => "buckets",
            Yield::NamedBuckets => "groups and buckets",
            Yield::Folds => "folds",
            Yield::Points { .. } => "points",
        };
        write!(f, "{what} of {}", self.query.metric)?;
        if let Some(downsample) = &self.query.downsample {
            write!(f, ", downsample {}", downsample.function)?;
        }
        if self.query.rate.is_some() {
            write!(f, ", rate")?;
        }
        write!(f, ", for {}", self.query.aggregator)
    }
}

/// What all answers start from.
struct SeriesSource {
    query: Arc<TsQuery>,
    context: LeafContext,
    schema: SchemaRef,
    part: Part,
}

type SeriesLines = Box<dyn Iterator<Item = telem_engine::Result<(SeriesId, Line)>> + Send>;

impl SeriesSource {
    /// The samples in the window of every one of `series` that has any, in their order.
    fn raw_lines(&self, pipeline: &Pipeline, series: Vec<SeriesId>) -> SeriesLines {
        if let Some(by_job) = &self.context.by_job {
            let (by_job, window) = (Arc::clone(by_job), pipeline.window);
            let points = move |series| by_job.points(series, window).transpose();
            return Box::new(series.into_iter().filter_map(points).map(|points| points.map(line)));
        }
        let points = self.context.snapshot.points(series, pipeline.window);
        Box::new(points.map(|points| points.map(line)))
    }

    /// Whether a series has samples in `window`.
    fn has_points(&self, series: SeriesId, window: TimeRange) -> telem_engine::Result<bool> {
        match &self.context.by_job {
            Some(by_job) => by_job.has_points(series, window),
            None => self.context.snapshot.has_points(series, window),
        }
    }

    /// Every one of `series` that has a sample in the window, in their order, downsampled if it is to be: by the engine,
    /// where it can.
    fn lines(&self, pipeline: &Pipeline, series: Vec<SeriesId>) -> SeriesLines {
        let (pipeline, snapshot) = (*pipeline, &self.context.snapshot);
        if let Some(by_job) = &self.context.by_job {
            let by_job = Arc::clone(by_job);
            return Box::new(
                series.into_iter().filter_map(move |series| of_job(&by_job, series, &pipeline).transpose()),
            );
        }
        if let Some((step, function)) = pipeline.in_engine() {
            let request = DownsampleRequest { series, range: pipeline.window, step, function };
            let line =
                |made: SeriesBuckets| (made.series, Line { times: made.starts, values: Values::Float(made.values) });
            return Box::new(snapshot.downsample(request).map(move |made| made.map(line)));
        }
        let lines = self.raw_lines(&pipeline, series);
        Box::new(lines.map(move |line| line.map(|(series, line)| (series, pipeline.downsample(line)))))
    }

    fn key(&self, series: SeriesId) -> Result<telem_engine::SeriesKey, DataFusionError> {
        let unknown = || telem_engine::Error::UnknownSeries { id: series.0 };
        self.context.snapshot.index().key(series).ok_or_else(|| external(unknown().into()))
    }

    /// # Errors
    /// When no client waits for the answer any longer.
    fn check_wanted(&self) -> Result<(), DataFusionError> {
        if self.context.stop.is_asked() {
            return Err(stopped());
        }
        Ok(())
    }
}

fn line(points: SeriesPoints) -> (SeriesId, Line) {
    (points.series, Line { times: points.times, values: points.values })
}

/// A series of a job, downsampled if it is to be; `None` if it has no sample in the window.
fn of_job(
    by_job: &SeriesByJob,
    series: SeriesId,
    pipeline: &Pipeline,
) -> telem_engine::Result<Option<(SeriesId, Line)>> {
    if let (Some((step, function)), Some((own, range))) = (pipeline.in_engine(), by_job.single(series)) {
        let range = pipeline.window.intersect(range);
        if range.is_empty() {
            return Ok(None);
        }
        let request = DownsampleRequest { series: vec![own.series], range, step, function };
        let made = own.snapshot.downsample(request).next().transpose()?;
        let line = |made: SeriesBuckets| Line { times: made.starts, values: Values::Float(made.values) };
        return Ok(made.map(|made| (series, line(made))));
    }
    let points = by_job.points(series, pipeline.window)?;
    Ok(points.map(line).map(|(series, line)| (series, pipeline.downsample(line))))
}

/// An error of ours on its way through DataFusion.
fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Names that many consecutive rows share, stored once for each stretch.
#[derive(Debug, Default)]
struct NameColumn {
    builder: StringViewBuilder,
    rows: usize,
}

impl NameColumn {
    fn push(&mut self, name: &str, rows: usize) -> Result<(), ArrowError> {
        self.rows += rows;
        self.builder.try_append_value_n(name, rows)
    }

    fn finish(&mut self) -> ArrayRef {
        self.rows = 0;
        Arc::new(self.builder.finish())
    }
}

fn times_array(times: Vec<Timestamp>) -> ArrayRef {
    let micros: Vec<i64> = times.into_iter().map(Timestamp::micros).collect();
    Arc::new(TimestampMicrosecondArray::from(micros).with_timezone("UTC"))
}

#[cfg(test)]
mod tests;
