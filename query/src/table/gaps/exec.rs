//! Makes gaps of the stretches between them, which are sorted by series and start.
//!
//! One batch is held, and the end of what the series has reached so far.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use arrow::row::OwnedRow;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, PlanProperties,
};
use futures::StreamExt;

use super::NAME;
use crate::operator::rebuilt;
use crate::table::keys::KeyRows;
use crate::table::ordering;

const MICROS_PER_SECOND: f64 = 1e6;

/// A column of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum GapColumn {
    /// The tag in this column of the stretches.
    Tag(usize),
    Start,
    Stop,
    Seconds,
}

#[derive(Debug)]
pub(super) struct GapsExec {
    /// Tags, first and last time.
    stretches: Arc<dyn ExecutionPlan>,
    tags: usize,
    /// Microseconds.
    longer_than: i64,
    output: Vec<GapColumn>,
    properties: Arc<PlanProperties>,
}

impl GapsExec {
    pub fn new(
        stretches: Arc<dyn ExecutionPlan>,
        tags: usize,
        longer_than: i64,
        output: Vec<GapColumn>,
        schema: SchemaRef,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { stretches, tags, longer_than, output, properties: Arc::new(properties) }
    }

    fn over(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([stretches]) = <[_; 1]>::try_from(children) else {
            return internal_err!("{NAME} reads one input");
        };
        Ok(Arc::new(Self::new(stretches, self.tags, self.longer_than, self.output.clone(), self.schema())))
    }
}

impl DisplayAs for GapsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GapsExec: longer_than={} us", self.longer_than)
    }
}

impl ExecutionPlan for GapsExec {
    fn name(&self) -> &str {
        "GapsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.stretches]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::SinglePartition])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![ordering(&self.stretches.schema(), 0..=self.tags).map(OrderingRequirements::from)]
    }

    rebuilt!(|operator, children| operator.over(children));

    fn execute(&self, _partition: usize, task: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let search = GapSearch {
            stretches: self.stretches.execute(0, Arc::clone(&task))?,
            keys: KeyRows::new(self.tags)?,
            tags: self.tags,
            longer_than: self.longer_than,
            reached: None,
            output: self.output.clone(),
            schema: self.schema(),
            memory: MemoryConsumer::new(self.name()).register(task.memory_pool()),
        };
        let batches = futures::stream::try_unfold(search, |mut search| async move {
            Ok(search.next().await?.map(|batch| (batch, search)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

struct GapSearch {
    stretches: SendableRecordBatchStream,
    keys: KeyRows,
    tags: usize,
    longer_than: i64,
    /// The tags of the series that the last row was of, and the last time that it reached.
    reached: Option<(OwnedRow, i64)>,
    output: Vec<GapColumn>,
    schema: SchemaRef,
    memory: MemoryReservation,
}

/// The gaps that end at stretches of one batch.
#[derive(Default)]
struct FoundGaps {
    rows: Vec<u32>,
    starts: Vec<i64>,
    stops: Vec<i64>,
}

impl GapSearch {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(batch) = self.stretches.next().await.transpose()? else { return Ok(None) };
            self.memory.try_resize(2 * batch.get_array_memory_size())?;
            let found = self.search(&batch)?;
            if !found.rows.is_empty() {
                return self.batch(&batch, found).map(Some);
            }
        }
    }

    fn search(&mut self, batch: &RecordBatch) -> Result<FoundGaps> {
        let keys = self.keys.of(batch, 0)?;
        let times = |column: usize| batch.column(column).as_primitive::<TimestampMicrosecondType>().values().clone();
        let (firsts, lasts) = (times(self.tags), times(self.tags + 1));
        let mut found = FoundGaps::default();
        for (row, (first, last)) in (0_u32..).zip(firsts.iter().zip(lasts.iter())) {
            let key = keys.row(row as usize);
            match &mut self.reached {
                Some((known, reached)) if known.row() == key => {
                    let is_far = first.checked_sub(*reached).is_none_or(|between| between > self.longer_than);
                    if first > reached && is_far {
                        found.rows.push(row);
                        found.starts.push(*reached);
                        found.stops.push(*first);
                    }
                    *reached = (*reached).max(*last);
                }
                reached => *reached = Some((key.owned(), *last)),
            }
        }
        Ok(found)
    }

    fn batch(&self, stretches: &RecordBatch, found: FoundGaps) -> Result<RecordBatch> {
        let FoundGaps { rows, starts, stops } = found;
        let count = rows.len();
        let rows = UInt32Array::from(rows);
        let times = |times: &[i64]| -> ArrayRef {
            Arc::new(TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC"))
        };
        let mut arrays = Vec::with_capacity(self.output.len());
        for column in &self.output {
            arrays.push(match column {
                GapColumn::Tag(at) => take(stretches.column(*at), &rows, None)?,
                GapColumn::Start => times(&starts),
                GapColumn::Stop => times(&stops),
                GapColumn::Seconds => {
                    let between = starts.iter().zip(&stops).map(|(start, stop)| i128::from(*stop) - i128::from(*start));
                    let seconds = between.map(|micros| micros as f64 / MICROS_PER_SECOND);
                    Arc::new(Float64Array::from_iter_values(seconds))
                }
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}
