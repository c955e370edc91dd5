//! Merges two sides that are sorted by their tags and by time: each row of the left one gets the latest of the right.
//!
//! Of each side one batch is held, and of the right one also its latest row. So the memory does not depend on how many
//! samples there are.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, Float64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray};
use arrow::datatypes::{Float64Type, SchemaRef, TimestampMicrosecondType};
use arrow::row::{OwnedRow, Rows};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};

use super::NAME;
use crate::operator::rebuilt;
use crate::table::keys::KeyRows;
use crate::table::ordering;

/// Where the tags begin on both sides, behind the time.
const TAGS_AT: usize = 1;

/// Which rows of the two sides belong together.
#[derive(Clone, Debug)]
pub(super) struct AsofRule {
    /// The tags that must be equal: columns 1, 2, ... of both sides. The time is column 0.
    pub by: Vec<String>,
    /// Microseconds.
    pub tolerance: Option<i64>,
    /// The metric of the right side, for errors.
    pub right: String,
}

/// Where a column of the answer comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum AsofColumn {
    /// This column of the left side.
    Left(usize),
    /// The value of the right side, its last column.
    Right,
}

#[derive(Debug)]
pub(super) struct AsofExec {
    left: Arc<dyn ExecutionPlan>,
    right: Arc<dyn ExecutionPlan>,
    rule: AsofRule,
    output: Vec<AsofColumn>,
    properties: Arc<PlanProperties>,
}

impl AsofExec {
    pub fn new(
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
        rule: AsofRule,
        output: Vec<AsofColumn>,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { left, right, rule, output, properties: Arc::new(properties) }
    }

    fn over(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([left, right]) = <[_; 2]>::try_from(children) else {
            return internal_err!("{NAME} merges two sides");
        };
        Ok(Arc::new(Self::new(left, right, self.rule.clone(), self.output.clone(), self.schema())))
    }

    fn order(&self, side: &Arc<dyn ExecutionPlan>) -> Option<OrderingRequirements> {
        ordering(&side.schema(), (1..=self.rule.by.len()).chain([0])).map(OrderingRequirements::from)
    }
}

impl DisplayAs for AsofExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsofExec: by=[{}]", self.rule.by.join(", "))?;
        self.rule.tolerance.map_or(Ok(()), |tolerance| write!(f, ", tolerance={tolerance} us"))
    }
}

impl ExecutionPlan for AsofExec {
    fn name(&self) -> &str {
        "AsofExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.left, &self.right]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition; 2])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order(&self.left), self.order(&self.right)]
    }

    rebuilt!(|operator, children| operator.over(children));

    fn execute(&self, _partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let merge = AsofMerge {
            left: self.left.execute(0, Arc::clone(&task))?,
            right: RightSide {
                batches: self.right.execute(0, Arc::clone(&task))?,
                keys: KeyRows::new(self.rule.by.len())?,
                batch: None,
                at: 0,
                latest: None,
            },
            keys: KeyRows::new(self.rule.by.len())?,
            rule: self.rule.clone(),
            output: self.output.clone(),
            schema: self.schema(),
            memory: MemoryConsumer::new(self.name()).register(task.memory_pool()),
        };
        let batches = futures::stream::try_unfold(merge, |mut merge| async move {
            Ok(merge.next().await?.map(|batch| (batch, merge)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

struct RightBatch {
    keys: Rows,
    times: TimestampMicrosecondArray,
    values: Float64Array,
    bytes: usize,
}

/// The latest row of the right side that was passed.
struct LatestRow {
    key: OwnedRow,
    time: i64,
    value: f64,
    /// Another value of the same time, if there is one.
    other: Option<f64>,
}

struct RightSide {
    batches: SendableRecordBatchStream,
    keys: KeyRows,
    batch: Option<RightBatch>,
    /// The next row of the batch.
    at: usize,
    latest: Option<LatestRow>,
}

impl RightSide {
    /// Makes sure that there is a next row; false where there is none any more.
    async fn has_next(&mut self) -> Result<bool> {
        while self.batch.as_ref().is_none_or(|batch| self.at >= batch.times.len()) {
            let Some(batch) = self.batches.try_next().await? else { return Ok(false) };
            let [times, .., values] = batch.columns() else {
                return internal_err!("the right side of {NAME} has {} columns", batch.num_columns());
            };
            self.batch = Some(RightBatch {
                keys: self.keys.of(&batch, TAGS_AT)?,
                times: times.as_primitive::<TimestampMicrosecondType>().clone(),
                values: values.as_primitive::<Float64Type>().clone(),
                bytes: batch.get_array_memory_size(),
            });
            self.at = 0;
        }
        Ok(true)
    }

    /// Passes all rows up to the one at `time` in the group `key`.
    async fn pass(&mut self, key: &arrow::row::Row<'_>, time: i64) -> Result<()> {
        while self.has_next().await? {
            let Some(batch) = &self.batch else { break };
            while self.at < batch.times.len() {
                let (row, at) = (batch.keys.row(self.at), batch.times.value(self.at));
                if row.cmp(key).then(at.cmp(&time)) == Ordering::Greater {
                    return Ok(());
                }
                let value = batch.values.value(self.at);
                match &mut self.latest {
                    Some(latest) if latest.key.row() == row && latest.time == at => {
                        if latest.value.total_cmp(&value).is_ne() {
                            latest.other = Some(value);
                        }
                    }
                    Some(latest) if latest.key.row() == row => {
                        (latest.time, latest.value, latest.other) = (at, value, None);
                    }
                    latest => *latest = Some(LatestRow { key: row.owned(), time: at, value, other: None }),
                }
                self.at += 1;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.batch.as_ref().map_or(0, |batch| batch.bytes + batch.keys.size())
    }
}

struct AsofMerge {
    left: SendableRecordBatchStream,
    right: RightSide,
    keys: KeyRows,
    rule: AsofRule,
    output: Vec<AsofColumn>,
    schema: SchemaRef,
    memory: MemoryReservation,
}

impl AsofMerge {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(batch) = self.left.next().await.transpose()? else { return Ok(None) };
        let keys = self.keys.of(&batch, TAGS_AT)?;
        self.memory.try_resize(batch.get_array_memory_size() + keys.size() + self.right.bytes())?;
        let times = batch.column(0).as_primitive::<TimestampMicrosecondType>();
        let mut found: Vec<Option<f64>> = Vec::with_capacity(batch.num_rows());
        for (at, time) in times.values().iter().enumerate() {
            let key = keys.row(at);
            self.right.pass(&key, *time).await?;
            found.push(self.found(&key, *time)?);
        }
        let mut arrays = Vec::with_capacity(self.output.len());
        for column in &self.output {
            arrays.push(match column {
                AsofColumn::Left(at) => Arc::clone(batch.column(*at)),
                AsofColumn::Right => Arc::new(Float64Array::from(found.clone())),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?))
    }

    /// The value that belongs to a row of the left side.
    fn found(&self, key: &arrow::row::Row<'_>, time: i64) -> Result<Option<f64>> {
        let Some(latest) = self.right.latest.as_ref().filter(|latest| latest.key.row() == *key) else {
            return Ok(None);
        };
        let near = |tolerance: i64| time.checked_sub(latest.time).is_some_and(|between| between <= tolerance);
        if !self.rule.tolerance.is_none_or(near) {
            return Ok(None);
        }
        let Some(other) = latest.other else { return Ok(Some(latest.value)) };
        let (AsofRule { by, right, .. }, group) = (&self.rule, self.right.keys.describe(&latest.key, &self.rule.by)?);
        let (low, high) = (latest.value.min(other), latest.value.max(other));
        let of_group = if group.is_empty() { String::new() } else { format!(" for {group}") };
        exec_err!(
            "{NAME}: {low} and {high} are both values of {right}{of_group} at {}, so these are several series, and \
             expected is one: by has the tags [{}]; name more tags there that both metrics have, or choose one series, \
             as in {NAME}(..., '{right}{{TAG=VALUE}}')",
            crate::functions::rfc3339(latest.time),
            by.join(", ")
        )
    }
}
