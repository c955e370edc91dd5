use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use telem_engine::{TimeRange, Value, ValueRange};

use super::exec;
use super::names::{NameSubject, NameTest, Order};
use super::rows::{Column, RowKind};
use super::{LeafContext, NodeLeafExec, Part, Request, RowsRequest};
use crate::question::expression::Case;
use crate::testing::Asked;

fn all_values() -> (Request, SchemaRef) {
    let request = RowsRequest {
        rows: RowKind::Sample,
        columns: vec![Column::Value],
        tests: Vec::new(),
        range: TimeRange::ALL,
        values: ValueRange::ALL,
        limit: None,
        sorted_by: None,
    };
    (Request::Rows(request), Arc::new(Schema::new(vec![Field::new("value", DataType::Float64, false)])))
}

fn values(batches: impl Iterator<Item = datafusion::error::Result<RecordBatch>>) -> Vec<f64> {
    batches.flat_map(|batch| batch.unwrap().column(0).as_primitive::<Float64Type>().values().to_vec()).collect()
}

#[test]
fn parts_cover_everything_once_and_in_order() {
    let items: Vec<u32> = (0..17).collect();
    for count in 1..20 {
        let parts = (0..count).flat_map(|index| Part { index, count }.of(&items).to_vec());
        assert_eq!(parts.collect::<Vec<_>>(), items, "{count} parts");
    }
}

#[test]
fn the_partitions_of_a_leaf_answer_it_exactly_once() {
    let asked = Asked::empty();
    for series in 0..11 {
        asked.put("load", &[("core", &series.to_string())], [(0, Value::Int(series))]);
    }
    let context = LeafContext::new(asked.db.snapshot());
    let (request, schema) = all_values();
    for count in 1..5 {
        let mut all: Vec<f64> = Vec::new();
        for index in 0..count {
            all.extend(values(request.batches(&context, &schema, Part { index, count })));
        }
        all.sort_by(f64::total_cmp);
        assert_eq!(all, (0..11).map(f64::from).collect::<Vec<_>>(), "{count} partitions");
    }
}

/// Samples of [`running_leaf`]: many times what its channel holds.
const SAMPLES: i64 = 200_000;

fn running_leaf() -> (Asked, Arc<LeafContext>, datafusion::execution::SendableRecordBatchStream) {
    let asked = Asked::empty();
    asked.put("load", &[("host", "a")], (0..SAMPLES).map(|at| (at, Value::Int(at))));
    let context = Arc::new(LeafContext::new(asked.db.snapshot()));
    let config = SessionConfig::new().with_extension(Arc::clone(&context));
    let (request, schema) = all_values();
    let leaf = NodeLeafExec::new("n1".to_owned(), request, schema);
    let stream = leaf.execute(0, SessionContext::new_with_config(config).task_ctx()).unwrap();
    (asked, context, stream)
}

#[tokio::test]
async fn a_dropped_stream_stops_its_leaf() {
    let (_asked, context, mut stream) = running_leaf();
    let first = stream.next().await.unwrap().unwrap();
    assert!((first.num_rows() as i64) < SAMPLES);
    // The thread that answers holds the index as long as it works.
    let holders = || Arc::strong_count(context.snapshot.index());
    let working = holders();
    drop(stream);
    while holders() >= working {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_leaf_that_is_asked_to_stop_ends_in_an_error_not_quietly() {
    let (_asked, context, mut stream) = running_leaf();
    stream.next().await.unwrap().unwrap();
    context.stop.ask();
    // The error may overtake batches that wait in the channel, so it need not come last.
    let mut errors = Vec::new();
    while let Some(batch) = stream.next().await {
        errors.extend(batch.err().map(|error| error.message().into_owned()));
    }
    assert_eq!(errors, ["the query was stopped"]);
}

#[test]
fn a_leaf_that_finds_no_value_looks_whether_it_is_to_stop() {
    let asked = Asked::empty();
    asked.put("load", &[("host", "a")], (0..3 * SAMPLES).map(|at| (at, Value::Int(at % 2 * 2))));
    asked.db.flush().unwrap();
    let (Request::Rows(request), schema) = all_values() else { panic!("no request for rows") };
    let values = ValueRange::new(Bound::Included(1.0), Bound::Included(1.0));
    let request = Request::Rows(RowsRequest { values, ..request });
    let context = LeafContext::new(asked.db.snapshot());
    let batches = |request: &Request| request.batches(&context, &schema, Part::WHOLE);
    // The leaf itself hands out no batch without rows.
    assert!(batches(&request).count() > 1);
    assert_eq!(exec::read(&request, &context, &schema, Part::WHOLE).count(), 0);
    let mut stopped = exec::read(&request, &context, &schema, Part::WHOLE);
    context.stop.ask();
    let Some(Err(error)) = stopped.next() else { panic!("a quiet end") };
    assert_eq!(error.message(), "the query was stopped");
}

#[tokio::test]
async fn a_leaf_on_the_wrong_node_or_without_a_snapshot_is_an_error() {
    let (request, schema) = all_values();
    let leaf = NodeLeafExec::new("n2".to_owned(), request, schema);
    let bare = SessionContext::new().task_ctx();
    let Err(error) = leaf.execute(0, bare) else { panic!("executed without a snapshot") };
    assert!(error.message().contains("where there is no snapshot"), "{error}");
    let context = LeafContext::new(Asked::empty().db.snapshot());
    let config = SessionConfig::new().with_extension(Arc::new(context));
    let Err(error) = leaf.execute(0, SessionContext::new_with_config(config).task_ctx()) else {
        panic!("executed on another node")
    };
    assert!(error.message().contains("calls itself n1, not n2"), "{error}");
}

#[test]
fn tests_on_names_mean_what_sql_means() {
    let text = |text: &str| text.to_owned();
    let names = |names: &[&str], negated| NameTest::In { names: names.iter().map(|n| text(n)).collect(), negated };
    let like = |pattern, case, negated| NameTest::Like { pattern: text(pattern), case, negated };
    let regex = |pattern, case, negated| NameTest::Regex { pattern: text(pattern), case, negated };
    let compare = |order, name| NameTest::Compare { order, name: text(name) };
    let (cpu, upper) = ("cpu_0%", "CPU_0%");
    for (test, on_cpu, on_upper) in [
        (names(&[cpu], false), true, false),
        (names(&[cpu], true), false, true),
        (names(&["b", cpu, "a"], false), true, false),
        (names(&["b", "a"], true), true, true),
        (like("cpu%", Case::Matters, false), true, false),
        (like("cpu%", Case::Ignored, false), true, true),
        (like(r"c__\_0\%", Case::Matters, false), true, false),
        (like("%0", Case::Matters, true), true, true),
        (regex("p._", Case::Matters, false), true, false),
        (regex("^cpu", Case::Ignored, false), true, true),
        (regex("^cpu", Case::Matters, true), false, true),
        (compare(Order::Less, "a"), false, true),
        (compare(Order::GreaterOrEqual, cpu), true, false),
        (compare(Order::Greater, cpu), false, false),
        (compare(Order::LessOrEqual, cpu), true, true),
        (NameTest::Present, true, true),
        (NameTest::Absent, false, false),
    ] {
        let accepts = test.accepts().unwrap();
        assert_eq!((accepts(cpu), accepts(upper)), (on_cpu, on_upper), "{test}");
    }
    assert!(regex("(", Case::Matters, false).accepts().is_err());
    assert_eq!(
        format!("{} {}", NameSubject::Tag(text("host")), like("a%", Case::Ignored, true)),
        r#"tags[host] not ilike "a%""#
    );
}
