//! Rows of the tables that SQL sees: samples or what they come to, and the descriptions of series, metrics, nodes,
//! devices and jobs.
//!
//! The request lists its columns by meaning, and only those are built. The index decides which series are read, before
//! a single sample is touched ([`RowsRequest::select`]).

mod alarms;
mod digests;
mod energy;
mod inventory;
mod jobs;
mod known;
mod notes;
mod samples;
mod sorted;
mod steps;
mod stretches;

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, MapArray, StringArray, StringViewArray, StructArray};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{Column as PhysicalColumn, Literal};
use datafusion::physical_plan::PhysicalExpr;
use serde::{Deserialize, Serialize};
use telem_engine::{SeriesId, SeriesIndex, SeriesKey, Snapshot, TagPredicate, TimeRange, ValueRange};

use super::names::{Accepts, NameSubject, NameTest};
use super::{Batches, LeafContext, Part, time_type};
use crate::question::serial;
pub use alarms::AlarmField;
pub use energy::EnergyField;
pub use inventory::DeviceField;
pub use jobs::JobField;
pub use notes::NoteField;
pub(crate) use sorted::{MERGED_MAX, groups};
pub use steps::has_steps;

/// A node that does not know a condition refuses all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowsRequest {
    pub rows: RowKind,
    /// One for every field of the answer's schema, in its order.
    pub columns: Vec<Column>,
    /// All must pass.
    pub tests: Vec<(NameSubject, NameTest)>,
    /// Of samples, and of digests of them.
    #[serde(with = "serial::range")]
    pub range: TimeRange,
    /// Of samples.
    #[serde(with = "serial::values")]
    pub values: ValueRange,
    /// Most rows that are needed; each part may return this many.
    pub limit: Option<usize>,
    /// Tags by whose values samples come sorted, and then by time; those without a tag come first. None: in the order
    /// of storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sorted_by: Option<Vec<String>>,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowKind {
    Sample,
    /// What the samples of a series come to.
    Digest,
    Series,
    Metric,
    Node,
    /// What a node recorded of a job.
    Job,
    /// A device of a node.
    Device,
    /// What a job took of energy on a node, or on one GPU of it.
    Energy,
    /// One time that an alarm was raised.
    Alarm,
    /// What somebody noted on a moment or a stretch of time.
    Note,
    /// Samples of a series of which none is further from the next one than so many microseconds.
    Stretch {
        apart: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Column {
    Metric,
    Node,
    /// The id of the job whose samples they are.
    Job,
    /// What the description of a job says.
    OfJob(JobField),
    /// What the inventory says of a device.
    OfDevice(DeviceField),
    OfEnergy(EnergyField),
    OfAlarm(AlarmField),
    OfNote(NoteField),
    /// The value of this tag, or NULL.
    Tag(String),
    /// The same in the type of a value of the map of all tags.
    TagInMap(String),
    /// All tags, as a map.
    Tags,
    Ts,
    /// As a float, always.
    Value,
    /// The integer as it was sent, NULL for a float.
    ValueInt,
    /// The step at which the sample was logged, or NULL.
    Step,
    Id,
    FirstTs,
    LastTs,
    LastValue,
    FirstValue,
    /// Of the values of a series.
    Least,
    Greatest,
    /// A term of their sum, which is that of all rows.
    Sum,
    SampleCount,
    /// The last value where it is an integer, else NULL.
    LastInt,
    /// The type of a metric.
    Kind,
    Unit,
    Help,
    SeriesCount,
    MetricCount,
}

impl RowsRequest {
    /// See [`super::Request::batches`].
    pub fn batches(&self, context: &LeafContext, schema: &SchemaRef, part: Part) -> Batches {
        if self.tells_jobs_apart() && matches!(self.rows, RowKind::Sample | RowKind::Digest | RowKind::Series) {
            let made = jobs::one_by_one(self, context, schema, part);
            return made.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))));
        }
        self.of_one_job(context, schema, part)
    }

    /// Without telling apart whose samples the context has.
    fn of_one_job(&self, context: &LeafContext, schema: &SchemaRef, part: Part) -> Batches {
        let made = match self.rows {
            RowKind::Sample => samples::batches(self, context, schema, part),
            RowKind::Digest => digests::digests(self, context, schema, part),
            RowKind::Series => known::series(self, context, schema, part),
            RowKind::Job => jobs::jobs(self, context, schema, part),
            RowKind::Device => inventory::devices(self, context, schema, part),
            RowKind::Energy => energy::energies(self, context, schema, part),
            RowKind::Alarm => alarms::alarms(self, context, schema, part),
            RowKind::Note => notes::notes(self, context, schema, part),
            RowKind::Stretch { apart } => stretches::stretches(self, context, schema, part, apart),
            RowKind::Metric => known::metrics(self, context, schema, part),
            RowKind::Node => known::nodes(self, context, schema, part),
        };
        made.unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }

    /// Those of the series of many nodes that pass all tests, unless nothing narrows them down; which nodes may have
    /// any is for [`RowsRequest::passes`] to say.
    pub fn named(&self, index: &SeriesIndex) -> Result<Option<Vec<SeriesId>>> {
        let tests = Tests::new(&self.tests)?;
        let Some(metrics) = &tests.named else { return Ok(None) };
        let predicates = tests.predicates();
        let mut selected = Vec::new();
        for metric in metrics.iter().filter(|metric| tests.metric.iter().all(|accepts| accepts(metric))) {
            selected.extend(index.select(metric, &predicates));
        }
        Ok(Some(selected))
    }

    /// Whether a node passes the tests on names of nodes.
    pub fn passes(&self) -> Result<impl Fn(&str) -> bool + use<>> {
        let tests = Tests::new(&self.tests)?;
        Ok(move |node: &str| tests.node.iter().all(|accepts| accepts(node)))
    }

    /// What a physical expression over the columns of the answer is, where it is one of them or a tag out of the map.
    pub fn column(&self, expr: &dyn PhysicalExpr) -> Option<Column> {
        let of_answer = |expr: &dyn PhysicalExpr| {
            let named = expr.downcast_ref::<PhysicalColumn>()?;
            self.columns.get(named.index()).cloned()
        };
        if let Some(column) = of_answer(expr) {
            return Some(column);
        }
        let call = expr.downcast_ref::<ScalarFunctionExpr>().filter(|call| call.name() == "get_field")?;
        let [tags, key] = call.args() else { return None };
        let key = key.downcast_ref::<Literal>()?.value().try_as_str()??.to_owned();
        (of_answer(&**tags)? == Column::Tags).then_some(Column::TagInMap(key))
    }

    /// Whether samples of equal series and times that several jobs wrote are several rows.
    fn tells_jobs_apart(&self) -> bool {
        self.columns.contains(&Column::Job) || self.tests.iter().any(|(subject, _)| *subject == NameSubject::Job)
    }

    /// Most rows that it reads, where that is told without reading any, and is about as many series as `series_max` or
    /// fewer.
    ///
    /// # Errors
    /// Io and Corrupt, from the indexes of segments.
    pub fn rows_max(&self, snapshot: &Snapshot, series_max: usize) -> Result<Option<u64>> {
        match self.rows {
            RowKind::Sample | RowKind::Digest if !self.tells_jobs_apart() => {
                let selected = self.select(snapshot)?;
                if selected.len() > series_max {
                    return Ok(None);
                }
                let samples = snapshot.samples_max(selected, self.range);
                samples.map(Some).map_err(engine_error)
            }
            RowKind::Series | RowKind::Metric | RowKind::Node => Ok(Some(snapshot.index().len() as u64)),
            _ => Ok(None),
        }
    }

    /// The series that pass all tests, metric by metric in the order of names, each metric's in canonical order.
    fn select(&self, snapshot: &Snapshot) -> Result<Vec<SeriesId>> {
        let tests = Tests::new(&self.tests)?;
        let nodes = tests.nodes(snapshot);
        let mut selected = Vec::new();
        for metric in tests.metrics(snapshot, &nodes) {
            selected.extend(tests.series(snapshot, &metric, &nodes));
        }
        Ok(selected)
    }
}

/// The tests of a request, ready to be asked.
struct Tests {
    metric: Vec<Accepts>,
    node: Vec<Accepts>,
    job: Vec<Accepts>,
    tags: Vec<TagTest>,
    absent: Vec<String>,
    /// Set when a test names its metrics, so that no others need be looked at.
    named: Option<Vec<String>>,
}

struct TagTest {
    key: String,
    accepts: Accepts,
    /// All values that pass, where the test names them.
    among: Option<Vec<String>>,
}

impl Tests {
    fn new(tests: &[(NameSubject, NameTest)]) -> Result<Self> {
        let mut ready = Tests {
            metric: Vec::new(),
            node: Vec::new(),
            job: Vec::new(),
            tags: Vec::new(),
            absent: Vec::new(),
            named: None,
        };
        for (subject, test) in tests {
            let accepts = test.accepts().map_err(DataFusionError::Execution)?;
            match (subject, test) {
                (NameSubject::Tag(key), NameTest::Absent) => ready.absent.push(key.clone()),
                (NameSubject::Tag(key), test) => {
                    let among = match test {
                        NameTest::In { names, negated: false } => Some(names.clone()),
                        _ => None,
                    };
                    ready.tags.push(TagTest { key: key.clone(), accepts, among });
                }
                (NameSubject::Node, _) => ready.node.push(accepts),
                (NameSubject::Job, _) => ready.job.push(accepts),
                (NameSubject::Metric, NameTest::In { names, negated: false }) => {
                    ready.named.get_or_insert_with(|| names.clone()).retain(|name| accepts(name));
                }
                (NameSubject::Metric, _) => ready.metric.push(accepts),
            }
        }
        Ok(ready)
    }

    /// The nodes that pass, sorted.
    fn nodes(&self, snapshot: &Snapshot) -> Vec<Arc<str>> {
        let passes = |node: &&Arc<str>| self.node.iter().all(|accepts| accepts(node));
        snapshot.nodes().iter().filter(passes).cloned().collect()
    }

    /// The metrics that pass, some of which may have no series of `nodes`.
    fn metrics(&self, snapshot: &Snapshot, nodes: &[Arc<str>]) -> Vec<Arc<str>> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let mut metrics = match &self.named {
            Some(names) => names.iter().map(|name| Arc::from(&**name)).collect(),
            None => snapshot.metrics(),
        };
        metrics.retain(|metric| self.metric.iter().all(|accepts| accepts(metric)));
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }

    fn predicates(&self) -> Vec<TagPredicate<'_>> {
        let of = |test| {
            let TagTest { key, accepts, among }: &TagTest = test;
            TagPredicate { key, accepts, among: among.as_deref() }
        };
        self.tags.iter().map(of).collect()
    }

    fn series(&self, snapshot: &Snapshot, metric: &str, nodes: &[Arc<str>]) -> Vec<SeriesId> {
        let mut series = snapshot.select(metric, &self.predicates());
        if !self.absent.is_empty() {
            series.retain(|id| {
                let key = snapshot.index().key(*id);
                key.is_some_and(|key| self.absent.iter().all(|absent| key.tags().get(absent).is_none()))
            });
        }
        if nodes.len() < snapshot.nodes().len() {
            series.retain(|id| nodes.binary_search(&snapshot.node_of(*id)).is_ok());
        }
        series
    }
}

/// One name, or one map of tags, for each of `series`. `None` when the column is neither.
fn column_of_names(context: &LeafContext, column: &Column, series: &[SeriesId]) -> Result<Option<ArrayRef>> {
    let LeafContext { snapshot, job, .. } = context;
    let index = snapshot.index();
    let known = index.len();
    if let Some(unknown) = series.iter().find(|id| id.0 as usize >= known) {
        return internal_err!("rows of series {}, which the index does not know", unknown.0);
    }
    Ok(Some(match column {
        Column::Metric => views(index.metrics_of(series)),
        Column::Node => views(series.iter().map(|id| Some(snapshot.node_of(*id)))),
        Column::Job => views(series.iter().map(|_| job.as_ref().map(|of| &of.job))),
        Column::Tag(key) => views(index.values_of(series, key)),
        Column::TagInMap(key) => Arc::new(index.values_of(series, key).into_iter().collect::<StringArray>()),
        Column::Tags => {
            let keys: Vec<SeriesKey> = series.iter().filter_map(|id| index.key(*id)).collect();
            Arc::new(tags_of(&keys)?)
        }
        _ => return Ok(None),
    }))
}

fn views(names: impl IntoIterator<Item = Option<impl AsRef<str>>>) -> ArrayRef {
    Arc::new(names.into_iter().collect::<StringViewArray>())
}

impl Column {
    /// The column under this name in an answer. A node answers NULL for a tag it has not, so every tag may be NULL.
    pub fn field(&self, name: &str) -> Field {
        let (data_type, nullable) = match self {
            Column::Metric | Column::Node | Column::Job => (DataType::Utf8View, false),
            Column::OfJob(field) => (field.data_type(), true),
            Column::OfDevice(field) => (field.data_type(), true),
            Column::OfEnergy(field) => (field.data_type(), true),
            Column::OfAlarm(field) => (field.data_type(), true),
            Column::OfNote(field) => (field.data_type(), *field != NoteField::Begin),
            Column::Tag(_) | Column::Kind | Column::Unit | Column::Help => (DataType::Utf8View, true),
            Column::TagInMap(_) => (DataType::Utf8, true),
            Column::Tags => (tags_type(), false),
            Column::Ts => (time_type(), false),
            Column::FirstTs | Column::LastTs => (time_type(), true),
            Column::Value | Column::Sum => (DataType::Float64, false),
            Column::FirstValue | Column::LastValue | Column::Least | Column::Greatest => (DataType::Float64, true),
            Column::ValueInt | Column::Step | Column::LastInt => (DataType::Int64, true),
            Column::Id => (DataType::UInt32, false),
            Column::SampleCount | Column::SeriesCount | Column::MetricCount => (DataType::Int64, false),
        };
        Field::new(name, data_type, nullable)
    }
}

/// The type of a column of tags.
pub fn tags_type() -> DataType {
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(tag_fields()), false)), true)
}

fn tag_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)])
}

fn tags_of(series: &[SeriesKey]) -> Result<MapArray> {
    let mut offsets = Vec::with_capacity(series.len() + 1);
    let mut entries = 0;
    offsets.push(0);
    for key in series {
        // At most 64 tags on each of at most a batch of rows.
        entries += i32::try_from(key.tags().len()).unwrap_or(0);
        offsets.push(entries);
    }
    let pairs = || series.iter().flat_map(|key| key.tags().iter());
    let names: StringArray = pairs().map(|(name, _)| Some(name)).collect();
    let values: StringArray = pairs().map(|(_, value)| Some(value)).collect();
    let entries = StructArray::try_new(tag_fields(), vec![Arc::new(names), Arc::new(values)], None)?;
    let field = Arc::new(Field::new("entries", DataType::Struct(tag_fields()), false));
    Ok(MapArray::try_new(field, OffsetBuffer::new(ScalarBuffer::from(offsets)), entries, None, true)?)
}

fn unanswerable(rows: RowKind, column: &Column) -> DataFusionError {
    DataFusionError::Internal(format!("a row of {rows:?} has no column {column:?}"))
}

impl fmt::Display for RowsRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self.columns.iter().map(Column::to_string).collect();
        write!(f, "{:?}, columns=[{}]", self.rows, columns.join(", "))?;
        for (subject, test) in &self.tests {
            write!(f, ", {subject} {test}")?;
        }
        if self.range.start != TimeRange::ALL.start {
            write!(f, ", ts >= {}", self.range.start)?;
        }
        if self.range.end != TimeRange::ALL.end {
            write!(f, ", ts < {}", self.range.end)?;
        }
        if self.values != ValueRange::ALL {
            write!(f, ", {}", self.values)?;
        }
        if let Some(by) = &self.sorted_by {
            write!(f, ", sorted by [{}], ts", by.join(", "))?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::Tag(key) | Column::TagInMap(key) => write!(f, "tags[{key}]"),
            Column::Metric => f.write_str("metric"),
            Column::Node => f.write_str("node"),
            Column::Job => f.write_str("job"),
            Column::OfJob(field) => f.write_str(field.name()),
            Column::OfDevice(field) => f.write_str(field.name()),
            Column::OfEnergy(field) => f.write_str(field.name()),
            Column::OfAlarm(field) => f.write_str(field.name()),
            Column::OfNote(field) => f.write_str(field.name()),
            Column::Tags => f.write_str("tags"),
            Column::Ts => f.write_str("ts"),
            Column::Value => f.write_str("value"),
            Column::ValueInt => f.write_str("value_int"),
            Column::Step => f.write_str("step"),
            Column::Id => f.write_str("id"),
            Column::FirstTs => f.write_str("first_ts"),
            Column::LastTs => f.write_str("last_ts"),
            Column::LastValue => f.write_str("last_value"),
            Column::FirstValue => f.write_str("first_value"),
            Column::Least => f.write_str("least"),
            Column::Greatest => f.write_str("greatest"),
            Column::Sum => f.write_str("sum"),
            Column::SampleCount => f.write_str("samples"),
            Column::LastInt => f.write_str("last_int"),
            Column::Kind => f.write_str("type"),
            Column::Unit => f.write_str("unit"),
            Column::Help => f.write_str("help"),
            Column::SeriesCount => f.write_str("series"),
            Column::MetricCount => f.write_str("metrics"),
        }
    }
}

/// An error of the engine on its way through DataFusion; [`crate::Error`] finds it again.
fn engine_error(error: telem_engine::Error) -> DataFusionError {
    DataFusionError::External(Box::new(crate::Error::Engine(error)))
}
