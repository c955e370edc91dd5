use expect_test::{Expect, expect};

use crate::testing::Asked;

const TRAINING: &str = "
    loss{rank=0} 1:0.9 2:0.5
    step{rank=0} 1:10 2:20
    lr{rank=0} 1:0.1 2:0.2
    train.loss{rank=0} 1:7
    rank{rank=0} 1:3
";

async fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load(TRAINING).answer(sql).await);
}

#[tokio::test]
async fn a_metric_is_a_column_of_its_own_table() {
    let asked = Asked::load(TRAINING);
    let expected = expect![[r#"
        +------+------+
        | step | loss |
        +------+------+
        | 10   | 0.9  |
        | 20   | 0.5  |
        +------+------+"#]];
    for sql in [
        "SELECT step, loss FROM loss ORDER BY ts",
        "SELECT step, loss FROM loss ORDER BY loss DESC",
        "SELECT step, loss FROM metric.loss AS l WHERE loss > 0 ORDER BY step",
        "SELECT l.step, l.loss FROM (SELECT step, loss FROM loss) AS l ORDER BY 1",
        "WITH l AS (SELECT step, loss FROM loss) SELECT step, loss FROM l ORDER BY 1",
        "SELECT min(step) AS step, loss FROM loss GROUP BY loss ORDER BY step",
        "SELECT loss.step, loss.loss FROM loss ORDER BY loss.loss DESC",
        "SELECT l.step, l.loss FROM metric.loss l JOIN lr USING (ts, rank) WHERE lr.lr > 0 ORDER BY step",
        "SELECT a.step, b.loss FROM loss a JOIN loss b USING (ts, rank) WHERE a.loss = b.loss ORDER BY 1",
    ] {
        expected.assert_eq(&asked.answer(sql).await);
    }
    check(
        r#"SELECT "train.loss" * 2 AS twice FROM "train.loss""#,
        expect![[r#"
            +-------+
            | twice |
            +-------+
            | 14.0  |
            +-------+"#]],
    )
    .await;
    check(
        "SELECT max(loss) AS loss, count(*) FILTER (WHERE loss < 0.6) AS low FROM loss GROUP BY rank ORDER BY loss",
        expect![[r#"
            +------+-----+
            | loss | low |
            +------+-----+
            | 0.9  | 1   |
            +------+-----+"#]],
    )
    .await;
}

#[tokio::test]
async fn metrics_that_are_joined_are_told_apart() {
    check(
        "SELECT step.value AS step, loss, lr FROM loss JOIN lr USING (ts) JOIN step USING (ts) WHERE lr > 0.1",
        expect![[r#"
            +------+------+-----+
            | step | loss | lr  |
            +------+------+-----+
            | 20.0 | 0.5  | 0.2 |
            +------+------+-----+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_name_that_means_something_else_keeps_its_meaning() {
    // A tag.
    check(
        "SELECT rank FROM rank",
        expect![[r#"
            +------+
            | rank |
            +------+
            | 0    |
            +------+"#]],
    )
    .await;
    // A table of WITH.
    check(
        "WITH loss AS (SELECT 1 AS loss) SELECT loss FROM loss",
        expect![[r#"
            +------+
            | loss |
            +------+
            | 1    |
            +------+"#]],
    )
    .await;
    // A name of the answer.
    check(
        "SELECT -value AS loss FROM loss ORDER BY loss",
        expect![[r#"
            +------+
            | loss |
            +------+
            | -0.9 |
            | -0.5 |
            +------+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_column_of_the_answer_with_that_name_is_told_from_the_metric() {
    // The column of values is that of the table.
    check(
        "SELECT loss, -value AS value FROM loss ORDER BY loss",
        expect![[r#"
            +------+-------+
            | loss | value |
            +------+-------+
            | 0.5  | -0.5  |
            | 0.9  | -0.9  |
            +------+-------+"#]],
    )
    .await;
    // Aggregates see the table.
    check(
        "SELECT step, max(loss) AS loss FROM loss GROUP BY step HAVING max(loss) > 0.1 ORDER BY max(loss), -loss",
        expect![[r#"
            +------+------+
            | step | loss |
            +------+------+
            | 20   | 0.5  |
            | 10   | 0.9  |
            +------+------+"#]],
    )
    .await;
}
