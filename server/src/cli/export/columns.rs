//! The columns of a file, and how the rows of a metric fill them.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use telem_query::table::tag_column;

use super::choose::ExportMetric;

/// Columns that are not tags. `host` is a tag, and is in every file.
const FIXED: [&str; 5] = ["metric", "node", "ts", "value", "value_int"];
const HOST: &str = "host";
/// Another, where several jobs are told apart.
const JOB: &str = "job";
const TAG_PREFIX: &str = "tag_";
/// Most columns of one file: each holds some memory while it is written.
const COLUMNS_MAX: usize = 1_000;
/// Columns of an answer before those of its tags, see [`answer_schema`].
pub const BEFORE_TAGS: usize = 4;

/// Whether a file says whose samples it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobColumn {
    /// They are all of one job, or nobody knows.
    Absent,
    Present,
}

/// The columns of one file.
#[derive(Clone, Debug)]
pub struct Columns {
    schema: SchemaRef,
    job: JobColumn,
    /// Sorted, without the host.
    keys: Vec<String>,
}

impl Columns {
    /// Columns for series with these tags.
    ///
    /// # Errors
    /// A sentence for the user when they are too many: it names a metric that has too many by itself.
    pub fn of(metrics: &[&ExportMetric], job: JobColumn) -> Result<Self, String> {
        let tags = |metric: &ExportMetric| metric.keys.iter().filter(|key| *key != HOST).count();
        if let Some(metric) = metrics.iter().find(|metric| tags(metric) > COLUMNS_MAX) {
            return Err(format!(
                "metric {0} has {1} tags, and a file takes {COLUMNS_MAX} at most; leave it out with --exclude '{0}' (its \
                 samples come with their tags in one column from `telem sql`: SELECT * FROM samples WHERE metric = '{0}')",
                metric.name,
                tags(metric)
            ));
        }
        let keys = metrics.iter().flat_map(|metric| &metric.keys).map(String::as_str);
        let keys: BTreeSet<&str> = keys.filter(|key| *key != HOST).collect();
        if keys.len() > COLUMNS_MAX {
            return Err(format!(
                "the metrics have {} tags together, and a file takes {COLUMNS_MAX} at most; write a file a metric (-o OUT/), \
                 or choose metrics (--metric, --exclude)",
                keys.len()
            ));
        }
        let name = |name: &str, nullable| Field::new(name, DataType::Utf8View, nullable);
        let mut fields = vec![name("metric", false), name(HOST, true), name("node", false)];
        if job == JobColumn::Present {
            fields.push(name(JOB, false));
        }
        fields.extend(keys.iter().map(|key| name(&column_of(key, job), true)));
        fields.push(Field::new("ts", utc(), false));
        fields.push(Field::new("value", DataType::Float64, false));
        fields.push(Field::new("value_int", DataType::Int64, true));
        let keys = keys.into_iter().map(str::to_owned).collect();
        Ok(Self { schema: Arc::new(Schema::new(fields)), job, keys })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What turns the answers for `metric` (see [`answer_schema`]) into rows of these columns.
    pub fn rows_of(&self, metric: &ExportMetric) -> FileRows {
        let place = |key: &str| metric.keys.iter().position(|known| known == key).map(|at| at + BEFORE_TAGS);
        let tags = self.keys.iter().map(|key| place(key)).collect();
        let one = StringViewArray::from_iter_values([&metric.name]);
        let (schema, job) = (Arc::clone(&self.schema), self.job);
        FileRows { schema, job, metric: Arc::new(one), host: place(HOST), tags, cache: None }
    }
}

/// The column that shows tag `key`: its own name, except that names of fixed columns (and names that already look like
/// that) get one more prefix, as in SQL. In any case of letters: many tools do not tell `Value` from `value`.
fn column_of(key: &str, job: JobColumn) -> String {
    let mut bare = key;
    while let Some(rest) = bare.strip_prefix(TAG_PREFIX) {
        bare = rest;
    }
    let others = (job == JobColumn::Present).then_some(&JOB);
    let fixed = FIXED.iter().chain(others).any(|fixed| fixed.eq_ignore_ascii_case(bare));
    if fixed { format!("{TAG_PREFIX}{key}") } else { key.to_owned() }
}

/// The columns of an answer for `metric`: what every metric has, then its tags in the order of their keys.
pub fn answer_schema(metric: &ExportMetric) -> SchemaRef {
    let name = |name: &str| Field::new(name, DataType::Utf8View, true);
    let mut fields = vec![
        Field::new("ts", utc(), false),
        Field::new("value", DataType::Float64, false),
        Field::new("value_int", DataType::Int64, true),
        name("node"),
    ];
    fields.extend(metric.keys.iter().map(|key| name(&tag_column(key))));
    Arc::new(Schema::new(fields))
}

/// What is asked of a metric's table, in the order of [`answer_schema`].
pub fn select_list(metric: &ExportMetric) -> String {
    let names: Vec<String> = answer_schema(metric).fields().iter().map(|field| quoted(field.name())).collect();
    names.join(", ")
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// A name in SQL.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Lays the answers for one metric out in the columns of a file.
#[derive(Debug)]
pub struct FileRows {
    schema: SchemaRef,
    job: JobColumn,
    /// The name of the metric, once.
    metric: ArrayRef,
    /// Where the answer has the host, and each tag of the file.
    host: Option<usize>,
    tags: Vec<Option<usize>>,
    /// The metric's name and NULLs, as many as the longest batch had rows.
    cache: Option<(ArrayRef, ArrayRef)>,
}

impl FileRows {
    /// The rows of an answer, which are all of `job`.
    ///
    /// # Errors
    /// When the answer lacks a name or a value that every sample has.
    pub fn of(&mut self, answer: &RecordBatch, job: Option<&str>) -> Result<RecordBatch, ArrowError> {
        let rows = answer.num_rows();
        let (metric, nulls) = match &self.cache {
            Some((metric, nulls)) if metric.len() >= rows => (metric.slice(0, rows), nulls.slice(0, rows)),
            _ => {
                let metric = take(&self.metric, &UInt32Array::from(vec![0; rows]), None)?;
                let nulls = new_null_array(&DataType::Utf8View, rows);
                self.cache = Some((Arc::clone(&metric), Arc::clone(&nulls)));
                (metric, nulls)
            }
        };
        let tag = |place: &Option<usize>| place.map_or_else(|| Arc::clone(&nulls), |at| Arc::clone(answer.column(at)));
        let mut columns = vec![metric, tag(&self.host), Arc::clone(answer.column(3))];
        if self.job == JobColumn::Present {
            let one = StringViewArray::from(vec![job]);
            columns.push(take(&one, &UInt32Array::from(vec![0; rows]), None)?);
        }
        columns.extend(self.tags.iter().map(tag));
        columns.extend(answer.columns()[..3].iter().map(Arc::clone));
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}
