//! Runs a time-series query and returns its lines as rows.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, RecordBatchOptions, StringViewArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::TryStreamExt;
use telem_engine::{TagSet, Timestamp, Value};

use super::arguments::GapFill;
use crate::answer::{TsAnswer, TsGroup};
use crate::jobs::JobTags;
use crate::leaf::LeafContext;
use crate::leaf::rows::Column;
use crate::operator::rebuilt;
use crate::options::{BATCH_ROWS, QueryOptions};
use crate::plan::{self, PlanContext};
use crate::question::TsQuery;
use crate::view::View;

#[derive(Debug)]
pub struct DownsampleExec {
    query: TsQuery,
    fill: GapFill,
    columns: Vec<Column>,
    properties: Arc<PlanProperties>,
}

impl DownsampleExec {
    pub fn new(query: TsQuery, fill: GapFill, columns: Vec<Column>, schema: SchemaRef) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { query, fill, columns, properties: Arc::new(properties) }
    }
}

impl DisplayAs for DownsampleExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TsQuery { metric, filters, start, end, .. } = &self.query;
        write!(f, "DownsampleExec: metric={metric}, filters={}, {start} <= ts <= {end}", filters.len())
    }
}

impl ExecutionPlan for DownsampleExec {
    fn name(&self) -> &str {
        "DownsampleExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    rebuilt!(|leaf, _children| Ok(leaf));

    fn execute(&self, _partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let config = task.session_config();
        let (Some(view), Some(options)) = (config.get_extension::<View>(), config.get_extension::<QueryOptions>())
        else {
            return internal_err!("downsample is executed where there is nothing to see or no limits");
        };
        let memory = MemoryConsumer::new(self.name()).register(task.memory_pool());
        let (query, fill) = (self.query.clone(), self.fill);
        let (columns, schema) = (self.columns.clone(), self.schema());
        let jobs = config.get_extension::<JobTags>();
        let batches = futures::stream::once(async move {
            let (view, task_ctx) = match by_job(jobs.as_deref(), &query, &task)? {
                Some(context) => seen(context, &task),
                None => (View::clone(&view), task),
            };
            let context = PlanContext { view, task_ctx, options: &options };
            // Filters may leave no time at all; to the pipeline that would be a mistake.
            let answer = match query.end < query.start {
                true => Ok(TsAnswer::default()),
                false => plan::answer(&query, &context).await,
            };
            let answer = answer.map_err(|error| DataFusionError::External(Box::new(error)))?;
            let points: usize = answer.groups.iter().map(|group| group.points.len()).sum();
            memory.try_grow(points * size_of::<(Timestamp, Value)>())?;
            Ok::<_, DataFusionError>(futures::stream::iter(LineBatches::new(answer, fill, columns, schema, memory)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches.try_flatten())))
    }
}

/// The leaf's context, if `query` names the tag of jobs.
fn by_job(jobs: Option<&JobTags>, query: &TsQuery, task: &TaskContext) -> Result<Option<LeafContext>> {
    let Some(jobs) = jobs else { return Ok(None) };
    let Some(context) = task.session_config().get_extension::<LeafContext>() else {
        return internal_err!("downsample is executed where leaves have nothing to read");
    };
    jobs.context(query, &context).map_err(|error| DataFusionError::External(Box::new(error)))
}

/// What sees nothing but `context`.
fn seen(context: LeafContext, task: &TaskContext) -> (View, Arc<TaskContext>) {
    let snapshot = context.snapshot.clone();
    let config = task.session_config().clone().with_extension(Arc::new(context));
    // Plans of time series carry their functions.
    let (scalar, higher_order) = (HashMap::new(), HashMap::new());
    let (aggregate, window) = (HashMap::new(), HashMap::new());
    let (session, runtime) = (task.session_id(), task.runtime_env());
    let task = TaskContext::new(task.task_id(), session, config, scalar, higher_order, aggregate, window, runtime);
    (View::alone(snapshot), Arc::new(task))
}

/// Makes batches of an answer as they are asked for.
struct LineBatches<M> {
    groups: std::vec::IntoIter<TsGroup>,
    /// The group that did not fit into the last batch wholly, and how much of it did.
    begun: Option<(TsGroup, Vec<Option<f64>>, usize)>,
    fill: GapFill,
    columns: Vec<Column>,
    schema: SchemaRef,
    /// Held as long as the answer is.
    _memory: M,
}

impl<M> LineBatches<M> {
    fn new(answer: TsAnswer, fill: GapFill, columns: Vec<Column>, schema: SchemaRef, memory: M) -> Self {
        Self { groups: answer.groups.into_iter(), begun: None, fill, columns, schema, _memory: memory }
    }

    fn batch(&self, rows: &BatchRows) -> Result<RecordBatch> {
        let of_rows = UInt32Array::from(rows.groups.clone());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            arrays.push(match column {
                Column::Ts => Arc::new(TimestampMicrosecondArray::from(rows.times.clone()).with_timezone("UTC")),
                Column::Value => Arc::new(Float64Array::from(rows.values.clone())),
                Column::Tag(key) => {
                    let names: StringViewArray = rows.tags.iter().map(|tags| tags.get(key)).collect();
                    take(&names, &of_rows, None)?
                }
                other => return internal_err!("downsample has no column {other}"),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.times.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// The rows of one batch, and the tags of the groups they are of.
#[derive(Default)]
struct BatchRows {
    times: Vec<i64>,
    values: Vec<Option<f64>>,
    groups: Vec<u32>,
    tags: Vec<TagSet>,
}

impl<M> Iterator for LineBatches<M> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rows = BatchRows::default();
        while rows.times.len() < BATCH_ROWS {
            let (group, values, from) = match self.begun.take() {
                Some(begun) => begun,
                None => {
                    let Some(group) = self.groups.next() else { break };
                    let values = filled(&group.points, self.fill);
                    (group, values, 0)
                }
            };
            let to = group.points.len().min(from + BATCH_ROWS - rows.times.len());
            let number = u32::try_from(rows.tags.len()).expect("a batch has fewer groups than rows");
            rows.times.extend(group.points[from..to].iter().map(|(time, _)| time.micros()));
            rows.values.extend(&values[from..to]);
            rows.groups.extend(std::iter::repeat_n(number, to - from));
            rows.tags.push(group.tags.clone());
            if to < group.points.len() {
                self.begun = Some((group, values, to));
            }
        }
        if rows.times.is_empty() { None } else { Some(self.batch(&rows)) }
    }
}

/// The values of one line, its gaps (which are NaN there) treated as `fill` says.
fn filled(points: &[(Timestamp, Value)], fill: GapFill) -> Vec<Option<f64>> {
    let mut values: Vec<Option<f64>> = points.iter().map(|(_, value)| Some(value.as_f64())).collect();
    if matches!(fill, GapFill::None | GapFill::Nan | GapFill::Zero) {
        return values;
    }
    for value in &mut values {
        *value = value.filter(|value| !value.is_nan());
    }
    let mut last: Option<(usize, f64)> = None;
    for at in 0..values.len() {
        match (values[at], last, fill) {
            (Some(value), Some((before, from)), GapFill::Linear) => {
                let slope = (value - from) / (points[at].0.micros() - points[before].0.micros()) as f64;
                for gap in before + 1..at {
                    let since = (points[gap].0.micros() - points[before].0.micros()) as f64;
                    values[gap] = Some(from + slope * since);
                }
                last = Some((at, value));
            }
            (Some(value), ..) => last = Some((at, value)),
            (None, Some((_, value)), GapFill::Previous) => values[at] = Some(value),
            (None, ..) => {}
        }
    }
    values
}
