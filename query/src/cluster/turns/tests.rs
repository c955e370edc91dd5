use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use futures::{FutureExt, TryStreamExt};

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn none_after(turns: &Turns, tasks: usize) -> bool {
    turns.wait(tasks, soon()).now_or_never().is_none()
}

#[tokio::test]
async fn tasks_run_at_once_up_to_the_limit() {
    let turns = Turns::new(10);
    let (six, four) = (turns.wait(6, soon()).await.unwrap(), turns.wait(4, soon()).await.unwrap());
    assert!(none_after(&turns, 1));
    drop(four);
    assert!(none_after(&turns, 5));
    drop((turns.wait(4, soon()).await.unwrap(), six));
    turns.wait(10, soon()).await.unwrap();
}

#[tokio::test]
async fn a_small_question_does_not_overtake_a_large_one() {
    let turns = Turns::new(10);
    let held = turns.wait(6, soon()).await.unwrap();
    let mut large = Box::pin(turns.wait(8, soon()));
    assert!((&mut large).now_or_never().is_none());
    assert!(none_after(&turns, 2), "it came later");
    drop(held);
    large.await.unwrap();
}

#[tokio::test]
async fn a_question_of_more_tasks_than_may_run_runs_alone() {
    let turns = Turns::new(10);
    let alone = turns.wait(1_000, soon()).await.unwrap();
    assert!(none_after(&turns, 1));
    drop(alone);
    turns.wait(1, soon()).await.unwrap();
}

#[tokio::test]
async fn who_waits_too_long_is_told_that_others_are_busy() {
    let turns = Turns::new(10);
    let _held = turns.wait(10, soon()).await.unwrap();
    let error = turns.wait(1, Instant::now()).await.unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Busy);
    assert_eq!(error.to_string(), "queries run 10 tasks on nodes, which is the limit; try again in a moment");
}

#[tokio::test]
async fn a_turn_is_over_with_its_rows_or_when_nobody_reads_them() {
    let turns = Turns::new(10);
    let schema = Arc::new(Schema::empty());
    let batches = vec![Ok(arrow::array::RecordBatch::new_empty(Arc::clone(&schema)))];
    let rows = RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches));
    let turn = turns.wait(10, soon()).await.unwrap();
    let mut rows = turn.of(Box::pin(rows));
    assert!(rows.try_next().await.unwrap().is_some());
    assert!(none_after(&turns, 1));
    assert!(rows.try_next().await.unwrap().is_none());
    let turn = turns.wait(10, soon()).await.unwrap();
    let rows = turn.of(rows);
    assert!(none_after(&turns, 1));
    drop(rows);
    turns.wait(10, soon()).await.unwrap();
}
