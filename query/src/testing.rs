//! Shared by the tests of queries: a database from a few lines of text, and answers as text.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use futures::TryStreamExt;
use telem_engine::{Clock, Db, Durability, MetaChange, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value};
use tempfile::TempDir;

use crate::error::{Error, Result};
use crate::options::QueryOptions;
use crate::run::Queries;

/// 2024-01-01T00:00:00Z, from which the times of tests count.
pub const EPOCH_SECONDS: i64 = 1_704_067_200;

/// It is always ten minutes past [`EPOCH_SECONDS`].
#[derive(Debug)]
pub struct StandingClock;

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(EPOCH_SECONDS + 600)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

/// A database in a directory that goes with it, and the queries to ask it.
pub struct Asked {
    pub queries: Queries,
    pub db: Db,
    _dir: TempDir,
}

/// Code in a query that nothing stops: `hold('KEY')` ends when the test says [`release`]d.
pub fn hold() -> ScalarUDF {
    let hold = |args: &[ColumnarValue]| {
        let (held, changed) = &*RELEASED;
        if let [ColumnarValue::Scalar(key)] = args {
            let key = key.try_as_str().flatten().unwrap_or_default().to_owned();
            let released = held.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_while(released, |released| !released.contains(&key)));
        }
        Ok(ColumnarValue::Scalar(ScalarValue::Int64(Some(1))))
    };
    create_udf("hold", vec![DataType::Utf8], DataType::Int64, Volatility::Volatile, Arc::new(hold))
}

/// Lets go of what is held under this key, now and later.
pub fn release(key: &str) {
    let (held, changed) = &*RELEASED;
    held.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
    changed.notify_all();
}

/// Keys that were released, of all tests of this process.
static RELEASED: LazyLock<(Mutex<BTreeSet<String>>, Condvar)> = LazyLock::new(Default::default);

/// Of several threads, however little is read: what they make of their parts is put together.
pub fn options() -> QueryOptions {
    QueryOptions { threads: 2, one_thread_rows_max: 0, ..QueryOptions::new(Arc::new(StandingClock)) }
}

impl Asked {
    pub fn empty() -> Self {
        Self::with(options())
    }

    pub fn with(options: QueryOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir.path().join("db"), "n1");
        Self { queries: Queries::new(db.clone(), options).unwrap(), db, _dir: dir }
    }

    /// Databases, each with its node and its lines as [`Asked::load`] takes them, opened as one.
    pub fn together(databases: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut dirs = Vec::new();
        for (at, (node, text)) in databases.iter().enumerate() {
            dirs.push(dir.path().join(at.to_string()));
            load_into(&open(&dirs[at], node), text);
        }
        let db = Db::open_together(&dirs, Options::default()).unwrap();
        Self { queries: Queries::new(db.clone(), options()).unwrap(), db, _dir: dir }
    }

    /// As [`Asked::together`], each with the description of a job.
    pub fn runs(databases: &[(&str, serde_json::Value, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut dirs = Vec::new();
        for (at, (node, job, text)) in databases.iter().enumerate() {
            dirs.push(dir.path().join(at.to_string()));
            let db = open(&dirs[at], node);
            load_into(&db, text);
            db.put_meta(MetaChange::Job(job.clone()), Durability::Buffered).unwrap();
        }
        let db = Db::open_together(&dirs, Options::default()).unwrap();
        Self { queries: Queries::new(db.clone(), options()).unwrap(), db, _dir: dir }
    }

    /// Each line is a series and its samples, at seconds after [`EPOCH_SECONDS`]:
    /// `load{host=a,core=0} 0:1 60:2.5`. A value without a point or a letter is an Int.
    pub fn load(text: &str) -> Self {
        Self::empty().and(text)
    }

    pub fn and(self, text: &str) -> Self {
        self.load_more(text);
        self
    }

    pub fn load_more(&self, text: &str) {
        load_into(&self.db, text);
    }

    pub fn put(&self, metric: &str, tags: &[(&str, &str)], samples: impl IntoIterator<Item = (i64, Value)>) {
        put_into(&self.db, metric, tags, samples);
    }

    /// The answer as a table, or the error and its kind.
    pub async fn answer(&self, sql: &str) -> String {
        match self.try_answer(sql).await {
            Ok(table) => table,
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    }

    pub async fn try_answer(&self, sql: &str) -> Result<String> {
        let answer = self.queries.sql(sql).await?;
        let schema = answer.batches.schema();
        let mut batches: Vec<_> = answer.batches.try_collect().await.map_err(Error::from)?;
        if batches.is_empty() {
            batches.push(arrow::record_batch::RecordBatch::new_empty(schema));
        }
        Ok(pretty_format_batches(&batches).unwrap().to_string())
    }

    pub async fn plan(&self, sql: &str) -> String {
        self.queries.explain(sql).await.unwrap_or_else(|error| format!("{:?}: {error}", error.kind()))
    }
}

pub fn open(dir: &Path, node: &str) -> Db {
    Db::open(dir, Options { node: node.to_owned(), ..Options::default() }).unwrap()
}

/// The rows of an answer, a line each, with a space between values.
pub async fn rows(batches: SendableRecordBatchStream) -> Result<String> {
    let batches: Vec<RecordBatch> = batches.try_collect().await.map_err(Error::from)?;
    let mut lines = Vec::new();
    for batch in &batches {
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &FormatOptions::default()));
        let columns: Vec<ArrayFormatter<'_>> = columns.collect::<std::result::Result<_, _>>().unwrap();
        let line =
            |row: usize| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" ");
        lines.extend((0..batch.num_rows()).map(line));
    }
    Ok(lines.join("\n"))
}

pub fn load_into(db: &Db, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (key, samples) = line.split_once('}').unwrap();
        let (metric, tags) = key.split_once('{').unwrap();
        let tags: Vec<_> =
            tags.split(',').filter(|tag| !tag.is_empty()).map(|tag| tag.split_once('=').unwrap()).collect();
        let samples = samples.split_whitespace().map(|sample| {
            let (seconds, value) = sample.split_once(':').unwrap();
            let value = value.parse().map_or_else(|_| Value::Float(value.parse().unwrap()), Value::Int);
            (seconds.parse().unwrap(), value)
        });
        put_into(db, metric, &tags, samples);
    }
}

pub fn put_into(db: &Db, metric: &str, tags: &[(&str, &str)], samples: impl IntoIterator<Item = (i64, Value)>) {
    let key = SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap();
    let series = db.series(&key).unwrap();
    let mut batch = SampleBatch::default();
    for (seconds, value) in samples {
        batch.push(series, Timestamp::from_seconds(EPOCH_SECONDS + seconds), value);
    }
    db.append(&batch, Durability::Buffered).unwrap();
}
