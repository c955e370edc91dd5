use expect_test::{Expect, expect};

use telem_engine::meta::{MetaChange, MetricKind, MetricMeta};
use telem_engine::{Durability, Value};

use super::tag_column;
use crate::testing::Asked;

const LOAD: &str = "
    load{host=a,core=0} 0:1 60:2 120:3
    load{host=b,core=0} 0:10 60:2.5
    load{host=c} 30:7
    mem{host=a} 0:100
";

async fn check_answer(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load(LOAD).answer(sql).await);
}

async fn check_plan(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load(LOAD).plan(sql).await);
}

#[tokio::test]
async fn a_metric_is_a_table_with_its_tags_as_columns() {
    check_answer(
        "SELECT * FROM load ORDER BY ts, host",
        expect![[r#"
            +----------------------+-------+-----------+------+-------+------+------+
            | ts                   | value | value_int | node | job   | core | host |
            +----------------------+-------+-----------+------+-------+------+------+
            | 2024-01-01T00:00:00Z | 1.0   | 1         | n1   | local | 0    | a    |
            | 2024-01-01T00:00:00Z | 10.0  | 10        | n1   | local | 0    | b    |
            | 2024-01-01T00:00:30Z | 7.0   | 7         | n1   | local |      | c    |
            | 2024-01-01T00:01:00Z | 2.0   | 2         | n1   | local | 0    | a    |
            | 2024-01-01T00:01:00Z | 2.5   |           | n1   | local | 0    | b    |
            | 2024-01-01T00:02:00Z | 3.0   | 3         | n1   | local | 0    | a    |
            +----------------------+-------+-----------+------+-------+------+------+"#]],
    )
    .await;
}

/// Two runs on one node, with the same series at the same times.
fn two_runs() -> Asked {
    let run = |id: &str, lr: f64, code: i64| {
        serde_json::json!({
            "id": id, "name": format!("run {id}"), "command": ["train", "--lr", lr.to_string()], "user": "ada",
            "start": "2024-01-01T00:00:00Z", "end": "2024-01-01T00:01:30.5Z", "exit_code": code,
            "settings": {"lr": lr, "model": "vit"}, "tags": {"sweep": "7"},
        })
    };
    Asked::runs(&[
        ("n1", run("a", 0.1, 0), "loss{host=n1} 0:9 60:1.5\nload{host=n1} 0:1"),
        ("n1", run("b", 0.01, 3), "loss{host=n1} 0:9 60:2.5\nload{host=n1} 0:2"),
    ])
}

#[tokio::test]
async fn runs_of_one_node_stay_apart_by_the_column_job() {
    let asked = two_runs();
    let expected = expect![[r#"
        +-----+----------------------+-------+------+
        | job | ts                   | value | host |
        +-----+----------------------+-------+------+
        | a   | 2024-01-01T00:00:00Z | 9.0   | n1   |
        | a   | 2024-01-01T00:01:00Z | 1.5   | n1   |
        | b   | 2024-01-01T00:00:00Z | 9.0   | n1   |
        | b   | 2024-01-01T00:01:00Z | 2.5   | n1   |
        +-----+----------------------+-------+------+"#]];
    expected.assert_eq(&asked.answer("SELECT job, ts, value, host FROM loss ORDER BY job, ts").await);
    let expected = expect![[r#"
        +-----+------+
        | job | loss |
        +-----+------+
        | a   | 1.5  |
        | b   | 2.5  |
        +-----+------+"#]];
    expected.assert_eq(&asked.answer("SELECT job, last(value, ts) AS loss FROM loss GROUP BY job ORDER BY job").await);
    let expected = expect![[r#"
        +----------+--------------------+
        | count(*) | sum(samples.value) |
        +----------+--------------------+
        | 3        | 13.5               |
        +----------+--------------------+"#]];
    expected.assert_eq(&asked.answer("SELECT count(*), sum(value) FROM samples WHERE job = 'b'").await);
    let expected = expect![[r#"
        +--------+-----+------------+
        | metric | job | last_value |
        +--------+-----+------------+
        | load   | a   | 1.0        |
        | load   | b   | 2.0        |
        | loss   | a   | 1.5        |
        | loss   | b   | 2.5        |
        +--------+-----+------------+"#]];
    expected.assert_eq(&asked.answer("SELECT metric, job, last_value FROM series ORDER BY metric, job").await);
    // Who does not ask whose they are has each series and time once: of two runs the one that was named later.
    let expected = expect![[r#"
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 9.0   |
        | 2024-01-01T00:01:00Z | 2.5   |
        +----------------------+-------+"#]];
    expected.assert_eq(&asked.answer("SELECT ts, value FROM loss ORDER BY ts").await);
    let expected = expect![[r#"
        ProjectionExec: expr=[sum(loss.digest:sum)@0 as sum(loss.value)]
          AggregateExec: mode=Final, gby=[], aggr=[sum(loss.digest:sum)]
            CoalescePartitionsExec
              AggregateExec: mode=Partial, gby=[], aggr=[sum(loss.digest:sum)]
                NodeLeafExec: Rows: Digest, columns=[sum], metric in ["loss"], job in ["b", "c"]
    "#]];
    expected.assert_eq(&asked.plan("SELECT sum(value) FROM loss WHERE job IN ('b', 'c')").await);
}

#[tokio::test]
async fn jobs_say_what_ran_and_how_it_ended() {
    let asked = two_runs();
    let expected = expect![[r#"
        +-----+------+-------+-----------+---------+-----------+--------+------+-----------------+
        | job | node | name  | state     | took    | exit_code | signal | user | command         |
        +-----+------+-------+-----------+---------+-----------+--------+------+-----------------+
        | a   | n1   | run a | completed | PT90.5S | 0         |        | ada  | train --lr 0.1  |
        | b   | n1   | run b | failed    | PT90.5S | 3         |        | ada  | train --lr 0.01 |
        +-----+------+-------+-----------+---------+-----------+--------+------+-----------------+"#]];
    expected.assert_eq(
        &asked
            .answer(
                "SELECT job, node, name, state, \"end\" - begin AS took, exit_code, signal, user, command FROM jobs",
            )
            .await,
    );
    let expected = expect![[r#"
        +-----+-----------------------+-------+
        | job | settings              | sweep |
        +-----+-----------------------+-------+
        | a   | {lr: 0.1, model: vit} | 7     |
        +-----+-----------------------+-------+"#]];
    expected.assert_eq(&asked.answer("SELECT job, settings, tags['sweep'] AS sweep FROM jobs WHERE job <> 'b'").await);
    let expected = expect![[r#"
        +------+-----------------+
        | lr   | min(loss.value) |
        +------+-----------------+
        | 0.01 | 2.5             |
        | 0.1  | 1.5             |
        +------+-----------------+"#]];
    expected.assert_eq(
        &asked
            .answer("SELECT CAST(settings['lr'] AS DOUBLE) AS lr, min(value) FROM loss JOIN jobs USING (job) GROUP BY 1 ORDER BY 1")
            .await,
    );
    // Of what nobody described only its samples are known.
    let expected = expect![[r#"
        +-------+------+------+-------+----------+-------------+
        | job   | node | name | state | settings | description |
        +-------+------+------+-------+----------+-------------+
        | local | n1   |      |       |          |             |
        +-------+------+------+-------+----------+-------------+"#]];
    expected
        .assert_eq(&Asked::load(LOAD).answer("SELECT job, node, name, state, settings, description FROM jobs").await);
}

#[tokio::test]
async fn samples_holds_every_metric() {
    check_answer(
        "SELECT * FROM samples ORDER BY metric, ts, host",
        expect![[r#"
            +--------+------+------+-------+--------------------+----------------------+-------+-----------+------+
            | metric | host | node | job   | tags               | ts                   | value | value_int | step |
            +--------+------+------+-------+--------------------+----------------------+-------+-----------+------+
            | load   | a    | n1   | local | {core: 0, host: a} | 2024-01-01T00:00:00Z | 1.0   | 1         |      |
            | load   | b    | n1   | local | {core: 0, host: b} | 2024-01-01T00:00:00Z | 10.0  | 10        |      |
            | load   | c    | n1   | local | {host: c}          | 2024-01-01T00:00:30Z | 7.0   | 7         |      |
            | load   | a    | n1   | local | {core: 0, host: a} | 2024-01-01T00:01:00Z | 2.0   | 2         |      |
            | load   | b    | n1   | local | {core: 0, host: b} | 2024-01-01T00:01:00Z | 2.5   |           |      |
            | load   | a    | n1   | local | {core: 0, host: a} | 2024-01-01T00:02:00Z | 3.0   | 3         |      |
            | mem    | a    | n1   | local | {host: a}          | 2024-01-01T00:00:00Z | 100.0 | 100       |      |
            +--------+------+------+-------+--------------------+----------------------+-------+-----------+------+"#]],
    )
    .await;
}

#[tokio::test]
async fn the_other_tables_tell_what_is_known() {
    check_answer("SELECT * FROM series ORDER BY id", expect![[r#"
        +--------+------+------+-------+--------------------+----+----------------------+----------------------+------------+
        | metric | host | node | job   | tags               | id | first_ts             | last_ts              | last_value |
        +--------+------+------+-------+--------------------+----+----------------------+----------------------+------------+
        | load   | a    | n1   | local | {core: 0, host: a} | 0  | 2024-01-01T00:00:00Z | 2024-01-01T00:02:00Z | 3.0        |
        | load   | b    | n1   | local | {core: 0, host: b} | 1  | 2024-01-01T00:00:00Z | 2024-01-01T00:01:00Z | 2.5        |
        | load   | c    | n1   | local | {host: c}          | 2  | 2024-01-01T00:00:30Z | 2024-01-01T00:00:30Z | 7.0        |
        | mem    | a    | n1   | local | {host: a}          | 3  | 2024-01-01T00:00:00Z | 2024-01-01T00:00:00Z | 100.0      |
        +--------+------+------+-------+--------------------+----+----------------------+----------------------+------------+"#]]).await;
    check_answer(
        "SELECT * FROM metrics ORDER BY metric",
        expect![[r#"
            +--------+------+------+------+------+--------+
            | metric | node | type | unit | help | series |
            +--------+------+------+------+------+--------+
            | load   | n1   |      |      |      | 3      |
            | mem    | n1   |      |      |      | 1      |
            +--------+------+------+------+------+--------+"#]],
    )
    .await;
    check_answer(
        "SELECT * FROM nodes",
        expect![[r#"
        +------+---------+--------+
        | node | metrics | series |
        +------+---------+--------+
        | n1   | 2       | 4      |
        +------+---------+--------+"#]],
    )
    .await;
}

#[tokio::test]
async fn tables_are_the_same_after_a_flush_and_after_more_samples() {
    let asked = Asked::load(LOAD);
    for more in ["", "load{host=a,core=0} 60:9 -5:0"] {
        asked.load_more(more);
        for sql in ["SELECT * FROM samples ORDER BY metric, host, ts", "SELECT * FROM series ORDER BY id"] {
            let before = asked.answer(sql).await;
            asked.db.flush().unwrap();
            assert_eq!(asked.answer(sql).await, before, "{sql}");
        }
    }
    expect![[r#"
        +--------+------+----------------------+----------------------+------------+
        | metric | host | first_ts             | last_ts              | last_value |
        +--------+------+----------------------+----------------------+------------+
        | load   | a    | 2023-12-31T23:59:55Z | 2024-01-01T00:02:00Z | 3.0        |
        | mem    | a    | 2024-01-01T00:00:00Z | 2024-01-01T00:00:00Z | 100.0      |
        +--------+------+----------------------+----------------------+------------+"#]]
    .assert_eq(
        &asked
            .answer("SELECT metric, host, first_ts, last_ts, last_value FROM series WHERE host = 'a' ORDER BY id")
            .await,
    );
}

#[tokio::test]
async fn metrics_tell_what_is_known_of_them() {
    let asked = Asked::load(LOAD);
    let meta = MetricMeta { kind: MetricKind::Gauge, unit: "GB".to_owned(), help: "In use.".to_owned() };
    let change = MetaChange::Metric { name: "mem".into(), meta };
    asked.db.put_meta(change, Durability::Buffered).unwrap();
    expect![[r#"
        +--------+-------+------+---------+
        | metric | type  | unit | help    |
        +--------+-------+------+---------+
        | load   |       |      |         |
        | mem    | gauge | GB   | In use. |
        +--------+-------+------+---------+"#]]
    .assert_eq(&asked.answer("SELECT metric, type, unit, help FROM metrics ORDER BY metric").await);
}

#[tokio::test]
async fn unused_columns_are_not_asked_for() {
    check_plan(
        "SELECT max(value) FROM load",
        expect![[r#"
            ProjectionExec: expr=[max(load.digest:greatest)@0 as max(load.value)]
              AggregateExec: mode=Final, gby=[], aggr=[max(load.digest:greatest)]
                CoalescePartitionsExec
                  AggregateExec: mode=Partial, gby=[], aggr=[max(load.digest:greatest)]
                    NodeLeafExec: Rows: Digest, columns=[greatest], metric in ["load"]
        "#]],
    )
    .await;
    check_plan(
        "SELECT count(*) FROM load",
        expect![[r#"
            ProjectionExec: expr=[CASE WHEN sum(load.digest:samples)@0 IS NULL THEN 0 ELSE sum(load.digest:samples)@0 END as count(*)]
              AggregateExec: mode=Final, gby=[], aggr=[sum(load.digest:samples)]
                CoalescePartitionsExec
                  AggregateExec: mode=Partial, gby=[], aggr=[sum(load.digest:samples)]
                    NodeLeafExec: Rows: Digest, columns=[samples], metric in ["load"]
        "#]],
    )
    .await;
}

#[tokio::test]
async fn tests_on_tags_reach_the_leaf() {
    check_plan(
        "SELECT value FROM load WHERE host = 'a' AND core <> '1'",
        expect![[r#"
            NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], tags[host] in ["a"], tags[core] not in ["1"]
        "#]],
    )
    .await;
    check_plan(
        "SELECT value FROM load WHERE host IN ('a', 'b') AND core IS NULL",
        expect![[r#"
            NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], tags[host] in ["a", "b"], tags[core] absent
        "#]],
    )
    .await;
    check_plan(
        "SELECT value FROM load WHERE host LIKE 'a%' AND core ~ '^[0-9]+'",
        expect![[r#"
            NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], tags[host] like "a%", tags[core] ~ "^[0-9]+"
        "#]],
    )
    .await;
    check_plan(
        "SELECT value FROM samples WHERE metric LIKE 'lo%' AND tags['core'] = '0'",
        expect![[r#"
            NodeLeafExec: Rows: Sample, columns=[value], metric like "lo%", tags[core] in ["0"]
        "#]],
    )
    .await;
    check_plan(
        "SELECT value FROM samples WHERE metric = 'load' AND host >= 'b' AND node = 'n1'",
        expect![[r#"
            NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], tags[host] >= "b", node in ["n1"]
        "#]],
    )
    .await;
}

/// The leaf of each question, which has no filter above it.
async fn leaves(questions: &[&str]) -> String {
    let mut leaves = String::new();
    for sql in questions {
        let plan = Asked::load(LOAD).plan(sql).await;
        assert!(!plan.contains("FilterExec"), "{sql}\n{plan}");
        leaves += plan.lines().last().unwrap().trim();
        leaves.push('\n');
    }
    leaves
}

#[tokio::test]
async fn ranges_of_time_reach_the_leaf() {
    let plans = leaves(&[
        "SELECT value FROM load WHERE ts >= '2024-01-01T00:01:00Z' AND ts < '2024-01-01 00:02:00'",
        "SELECT value FROM load WHERE ts > TIMESTAMP '2024-01-01 00:01:00' AND ts <= to_timestamp(1704067260)",
        "SELECT value FROM load WHERE ts BETWEEN '2024-01-01' AND '2024-01-02'",
        "SELECT value FROM load WHERE ts >= now() - INTERVAL '5 minutes'",
        "SELECT value FROM load WHERE '2024-01-01T02:00:00+02:00' = ts",
        "SELECT value FROM load WHERE ts > DATE '2024-01-01'",
    ])
    .await;
    expect![[r#"
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067260000000us, ts < 1704067320000000us
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067260000001us, ts < 1704067260000001us
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067200000000us, ts < 1704153600000001us
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067500000000us
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067200000000us, ts < 1704067200000001us
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], ts >= 1704067200000001us
    "#]].assert_eq(&plans);
}

#[tokio::test]
async fn ranges_of_values_reach_the_leaf() {
    let plans = leaves(&[
        "SELECT ts FROM load WHERE value > 90 AND host = 'a'",
        "SELECT ts FROM load WHERE 90 <= value AND value < 100.5",
        "SELECT ts FROM samples WHERE value BETWEEN -1 AND 1e3",
        "SELECT ts FROM samples WHERE value = 2",
        "SELECT ts FROM samples WHERE NOT value >= 2 AND metric = 'load'",
        "SELECT value FROM load WHERE value > 1 LIMIT 2",
    ])
    .await;
    expect![[r#"
        NodeLeafExec: Rows: Sample, columns=[ts], metric in ["load"], tags[host] in ["a"], value > 90.0
        NodeLeafExec: Rows: Sample, columns=[ts], metric in ["load"], value >= 90.0 AND value < 100.5
        NodeLeafExec: Rows: Sample, columns=[ts], value >= -1.0 AND value <= 1000.0
        NodeLeafExec: Rows: Sample, columns=[ts], value >= 2.0 AND value <= 2.0
        NodeLeafExec: Rows: Sample, columns=[ts], metric in ["load"], value < 2.0
        NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], value > 1.0, limit=2
    "#]]
    .assert_eq(&plans);
    // All of the values of a series, or a digest of it would say too much.
    check_plan(
        "SELECT host, max(value) FROM load WHERE value < 3 GROUP BY host",
        expect![[r#"
        AggregateExec: mode=FinalPartitioned, gby=[host@0 as host], aggr=[max(load.value)]
          RepartitionExec: partitioning=Hash([host@0], 2), input_partitions=2
            AggregateExec: mode=Partial, gby=[host@1 as host], aggr=[max(load.value)]
              NodeLeafExec: Rows: Sample, columns=[value, tags[host]], metric in ["load"], value < 3.0
    "#]],
    )
    .await;
    // What a function makes of samples are no samples.
    for sql in [
        "SELECT * FROM downsample('load', '1 minute', 'max') WHERE value > 2",
        "SELECT * FROM asof('load', 'mem') WHERE load > 2",
    ] {
        let plan = Asked::load(LOAD).plan(sql).await;
        assert!(plan.contains("FilterExec"), "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_test_of_values_in_the_leaf_finds_what_one_above_it_finds() {
    let asked = Asked::load("load{host=a} 0:1 60:2 120:3\nload{host=b} 0:0.1 60:2.5 120:-7");
    let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2.0, 1e300, 5e-324];
    asked.put("load", &[("host", "c")], (0..).zip(special.map(Value::Float)));
    let mixed = [Value::Int(2), Value::Float(2.0), Value::Int((1 << 53) + 1), Value::Int(i64::MIN)];
    asked.put("load", &[("host", "d")], (0..).zip(mixed));
    for state in ["in memory", "in a segment", "written again"] {
        if state == "in a segment" {
            asked.db.flush().unwrap();
        } else if state == "written again" {
            // A value that passes is behind one that does not, and the other way round.
            asked.put("load", &[("host", "a")], [(60, Value::Int(0)), (120, Value::Int(2))].into_iter());
        }
        for condition in [
            "value > 2",
            "2 > value",
            "value >= 2",
            "value <= 2",
            "value = 2",
            "value <> 2",
            "value > 0",
            "value >= 0",
            "value < 0",
            "value = 0.0",
            "value = -0.0",
            "value >= -0.0 AND value <= 0.0",
            "value BETWEEN -7 AND 0.1",
            "value NOT BETWEEN -7 AND 0.1",
            "value > 2 AND value < 2.6",
            "value > 3 AND value < 2",
            "value > 'NaN'",
            "value >= 'NaN'",
            "value < 'Infinity'",
            "value >= 9007199254740993",
            "value IN (1, 2, 2.5)",
            "value > 2 OR host = 'a'",
            "value > NULL",
            "NOT value > 2",
            "value > 1 AND host <> 'c' AND ts > '2024-01-01T00:00:30Z'",
        ] {
            let rows = |condition: &str| {
                format!("SELECT host, ts, value, value_int FROM load WHERE {condition} ORDER BY host, ts")
            };
            let found = asked.answer(&rows(condition)).await;
            // What is drawn at random is known to nobody before the rows are there.
            let above = asked.answer(&rows(&format!("({condition}) OR random() > 2"))).await;
            assert_eq!(found, above, "{state}: {condition}");
            assert!(found.starts_with('+'), "{found}");
            let first =
                asked.answer(&format!("SELECT count(*) FROM (SELECT 1 FROM load WHERE {condition} LIMIT 3)")).await;
            let counted =
                asked.answer(&format!("SELECT least(count(*), 3) AS \"count(*)\" FROM load WHERE {condition}")).await;
            assert_eq!(first, counted, "{state}: {condition}");
        }
    }
}

#[tokio::test]
async fn values_are_tested_of_each_job_and_of_each_node() {
    let expected = expect![[r#"
        +-----+----------------------+-------+
        | job | ts                   | value |
        +-----+----------------------+-------+
        | a   | 2024-01-01T00:01:00Z | 1.5   |
        | b   | 2024-01-01T00:01:00Z | 2.5   |
        +-----+----------------------+-------+"#]];
    expected.assert_eq(&two_runs().answer("SELECT job, ts, value FROM loss WHERE value < 5 ORDER BY job").await);
    let expected = expect![[r#"
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:01:00Z | 2.5   |
        +----------------------+-------+"#]];
    expected.assert_eq(&two_runs().answer("SELECT ts, value FROM loss WHERE value BETWEEN 2 AND 3").await);
    let expected = expect![[r#"
        +------+------+----------------------+-------+
        | node | host | ts                   | value |
        +------+------+----------------------+-------+
        | n1   | a    | 2024-01-01T00:01:00Z | 4.0   |
        | n1   | a    | 2024-01-01T00:02:00Z | 6.0   |
        | n1   | c    | 2024-01-01T00:00:00Z | 5.0   |
        | n2   | b    | 2024-01-01T00:00:00Z | 3.0   |
        +------+------+----------------------+-------+"#]];
    expected.assert_eq(
        &two_nodes().answer("SELECT node, host, ts, value FROM load WHERE value > 1 ORDER BY 1, 2, 3").await,
    );
}

#[tokio::test]
async fn a_limit_reaches_the_leaf_only_when_all_filters_do() {
    check_plan(
        "SELECT value FROM load WHERE host = 'a' LIMIT 2",
        expect![[r#"
        CoalescePartitionsExec: fetch=2
          LocalLimitExec: fetch=2
            NodeLeafExec: Rows: Sample, columns=[value], metric in ["load"], tags[host] in ["a"], limit=2
    "#]],
    )
    .await;
    check_plan(
        "SELECT value_int FROM load WHERE value_int > 1 LIMIT 2",
        expect![[r#"
        CoalescePartitionsExec: fetch=2
          FilterExec: value_int@0 > 1, fetch=2
            NodeLeafExec: Rows: Sample, columns=[value_int], metric in ["load"]
    "#]],
    )
    .await;
}

#[tokio::test]
async fn single_tags_out_of_the_map_are_asked_of_the_leaf() {
    check_plan(
        "SELECT tags['core'] AS core, upper(tags['host']), ts FROM samples WHERE value_int > 2",
        expect![[r#"
            ProjectionExec: expr=[__datafusion_extracted_1@0 as core, upper(__datafusion_extracted_2@1) as upper(samples.tags[host]), ts@2 as ts]
              FilterExec: value_int@3 > 2, projection=[__datafusion_extracted_1@0, __datafusion_extracted_2@1, ts@2]
                NodeLeafExec: Rows: Sample, columns=[tags[core], tags[host], ts, value_int]
        "#]],
    )
    .await;
    check_answer(
        "SELECT tags['core'] AS core, upper(tags['host']), tags['none'], ts FROM samples WHERE value > 2 ORDER BY 2, ts",
        expect![[r#"
            +------+---------------------------+--------------------+----------------------+
            | core | upper(samples.tags[host]) | samples.tags[none] | ts                   |
            +------+---------------------------+--------------------+----------------------+
            |      | A                         |                    | 2024-01-01T00:00:00Z |
            | 0    | A                         |                    | 2024-01-01T00:02:00Z |
            | 0    | B                         |                    | 2024-01-01T00:00:00Z |
            | 0    | B                         |                    | 2024-01-01T00:01:00Z |
            |      | C                         |                    | 2024-01-01T00:00:30Z |
            +------+---------------------------+--------------------+----------------------+"#]],
    )
    .await;
}

#[tokio::test]
async fn aggregates_are_split_above_the_leaf() {
    check_plan(
        "SELECT host, avg(value) FROM load GROUP BY host",
        expect![[r#"
            ProjectionExec: expr=[host@0 as host, sum(load.digest:sum)@1 / CAST(sum(load.digest:samples)@2 AS Float64) as avg(load.value)]
              AggregateExec: mode=FinalPartitioned, gby=[host@0 as host], aggr=[sum(load.digest:sum), sum(load.digest:samples)]
                RepartitionExec: partitioning=Hash([host@0], 2), input_partitions=2
                  AggregateExec: mode=Partial, gby=[host@0 as host], aggr=[sum(load.digest:sum), sum(load.digest:samples)]
                    NodeLeafExec: Rows: Digest, columns=[tags[host], samples, sum], metric in ["load"]
        "#]],
    )
    .await;
}

#[test]
fn a_tag_named_like_a_fixed_column_gets_a_prefix_and_no_two_tags_share_a_column() {
    let names = ["ts", "tag_ts", "tag_tag_ts", "host", "tag_host", "value", "node"].map(tag_column);
    expect![[r#"["tag_ts", "tag_tag_ts", "tag_tag_tag_ts", "host", "tag_host", "tag_value", "tag_node"]"#]]
        .assert_eq(&format!("{names:?}"));
}

#[tokio::test]
async fn a_filter_in_the_leaf_keeps_the_rows_that_it_would_keep_above() {
    let asked = Asked::load(
        "load{host=a,core=0,gpu=a%b} 0:1 60:2 120:3
         load{host=A,core=10} 0:10 60:2.5
         load{host=b,gpu=a_b} 30:7
         load{host=b\\c,core=2} 1:1
         load{core=2} -86400:1 86400:2
         load{} 0:3",
    );
    for filter in [
        "host = 'a'",
        "'a' = host",
        "host <> 'a'",
        "NOT host = 'a'",
        "host IS NULL",
        "host IS NOT NULL",
        "NOT (host IS NULL)",
        "host = NULL",
        "host IN ('a', 'b')",
        "host IN ('a', 'b', 'c', 'd', 'e')",
        "host NOT IN ('a', 'b')",
        "host NOT IN ('a', NULL)",
        "host IN ('a', NULL)",
        "host = 'a' OR host = 'b'",
        "host = 'a' OR core = '2'",
        "host = 'a' AND host = 'b'",
        "host > 'a'",
        "'a' <= host",
        "host BETWEEN 'A' AND 'a'",
        "host NOT BETWEEN 'A' AND 'a'",
        "host LIKE 'b%'",
        "host NOT LIKE 'b%'",
        "host ILIKE 'a'",
        r"host LIKE 'b\\c'",
        r"gpu LIKE 'a\%b'",
        "gpu LIKE 'a_b'",
        "gpu LIKE '%'",
        "host ~ '^[ab]'",
        "host !~ '^[ab]'",
        "host ~* '^A$'",
        "host !~* 'b'",
        "starts_with(host, 'b')",
        "upper(host) = 'A'",
        "host IS DISTINCT FROM 'a'",
        "length(host) > 1",
        "core = 2",
        "CAST(core AS BIGINT) > 1",
        "node = 'n1'",
        "node <> 'n1'",
        "value > 2",
        "value_int IS NULL",
        "ts = '2024-01-01T00:01:00Z'",
        "ts <> '2024-01-01T00:01:00Z'",
        "ts > '2024-01-01T00:01:00Z'",
        "ts >= '2024-01-01T00:01:00Z'",
        "ts < '2024-01-01T00:01:00Z'",
        "ts <= '2024-01-01T00:01:00Z'",
        "ts BETWEEN '2024-01-01' AND '2024-01-01 00:01:00'",
        "ts NOT BETWEEN '2024-01-01' AND '2024-01-01 00:01:00'",
        "ts > to_timestamp_nanos(1704067200000000001)",
        "ts >= to_timestamp_nanos(1704067200000000001)",
        "ts < to_timestamp_nanos(1704067200000000001)",
        "ts <= to_timestamp_nanos(1704067200000000001)",
        "ts = to_timestamp_nanos(1704067200000000001)",
        "ts >= to_timestamp_seconds(1704067260)",
        "ts < to_timestamp_millis(1704067260000)",
        "ts >= DATE '2024-01-01'",
        "ts > TIMESTAMP '2024-01-01 00:00:30'",
        "ts > TIMESTAMPTZ '2024-01-01T02:00:30+02:00'",
        "ts IN (TIMESTAMP '2024-01-01 00:00:30', TIMESTAMP '2024-01-01 00:01:00')",
        "ts > now() - INTERVAL '9 minutes'",
        "CAST(ts AS DATE) = DATE '2024-01-01'",
        "date_trunc('minute', ts) = '2024-01-01T00:01:00Z'",
        "time_bucket('1 minute', ts) = '2024-01-01T00:00:00Z'",
        "ts IS NULL",
        "CASE WHEN host = 'a' THEN true ELSE false END",
        "true",
        "false",
    ] {
        let in_samples = filter.contains("host") || filter.contains("core") || filter.contains("gpu");
        for table in if in_samples { &["load", "samples"][..] } else { &["load"] } {
            let filter = match *table {
                "samples" => filter.replace("core", "tags['core']").replace("gpu", "tags['gpu']"),
                _ => filter.to_owned(),
            };
            let pushed =
                asked.answer(&format!("SELECT count(*) AS n, sum(value) AS s FROM {table} WHERE {filter}")).await;
            let above = format!(
                "SELECT sum(CASE WHEN {filter} THEN 1 ELSE 0 END) AS n, sum(CASE WHEN {filter} THEN value END) AS s FROM {table}"
            );
            assert_eq!(pushed, asked.answer(&above).await, "{table}: {filter}");
            assert!(pushed.starts_with('+'), "{table}: {filter}\n{pushed}");
        }
    }
}

/// A key in both databases, with a time in both, and keys of one alone.
fn two_nodes() -> Asked {
    Asked::together(&[
        ("n2", "load{host=a} 0:1 60:2\nload{host=b} 0:3\nmem{host=b} 0:9"),
        ("n1", "load{host=c} 0:5\nload{host=a} 60:4 120:6"),
    ])
}

async fn check_two(sql: &str, expected: Expect) {
    expected.assert_eq(&two_nodes().answer(sql).await);
}

#[tokio::test]
async fn several_databases_are_one_and_each_series_has_the_node_that_came_last() {
    check_two(
        "SELECT host, node, ts, value FROM load ORDER BY host, ts",
        expect![[r#"
        +------+------+----------------------+-------+
        | host | node | ts                   | value |
        +------+------+----------------------+-------+
        | a    | n1   | 2024-01-01T00:00:00Z | 1.0   |
        | a    | n1   | 2024-01-01T00:01:00Z | 4.0   |
        | a    | n1   | 2024-01-01T00:02:00Z | 6.0   |
        | b    | n2   | 2024-01-01T00:00:00Z | 3.0   |
        | c    | n1   | 2024-01-01T00:00:00Z | 5.0   |
        +------+------+----------------------+-------+"#]],
    )
    .await;
    check_two(
        "SELECT metric, host, node, last_value FROM series ORDER BY metric, host",
        expect![[r#"
        +--------+------+------+------------+
        | metric | host | node | last_value |
        +--------+------+------+------------+
        | load   | a    | n1   | 6.0        |
        | load   | b    | n2   | 3.0        |
        | load   | c    | n1   | 5.0        |
        | mem    | b    | n2   | 9.0        |
        +--------+------+------+------------+"#]],
    )
    .await;
    check_two(
        "SELECT metric, node, series FROM metrics ORDER BY metric, node",
        expect![[r#"
        +--------+------+--------+
        | metric | node | series |
        +--------+------+--------+
        | load   | n1   | 2      |
        | load   | n2   | 1      |
        | mem    | n2   | 1      |
        +--------+------+--------+"#]],
    )
    .await;
    check_two(
        "SELECT * FROM nodes ORDER BY node",
        expect![[r#"
        +------+---------+--------+
        | node | metrics | series |
        +------+---------+--------+
        | n1   | 1       | 2      |
        | n2   | 2       | 2      |
        +------+---------+--------+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_filter_on_the_node_keeps_the_series_of_that_node() {
    check_two(
        "SELECT host, count(*) AS n FROM samples WHERE node = 'n1' GROUP BY host ORDER BY host",
        expect![[r#"
            +------+---+
            | host | n |
            +------+---+
            | a    | 3 |
            | c    | 1 |
            +------+---+"#]],
    )
    .await;
    check_two(
        "SELECT metric, host FROM series WHERE node <> 'n1' ORDER BY metric, host",
        expect![[r#"
        +--------+------+
        | metric | host |
        +--------+------+
        | load   | b    |
        | mem    | b    |
        +--------+------+"#]],
    )
    .await;
    check_two(
        "SELECT metric, series FROM metrics WHERE node LIKE '%2' ORDER BY metric",
        expect![[r#"
        +--------+--------+
        | metric | series |
        +--------+--------+
        | load   | 1      |
        | mem    | 1      |
        +--------+--------+"#]],
    )
    .await;
    check_two(
        "SELECT * FROM nodes WHERE node IN ('n1', 'n3')",
        expect![[r#"
        +------+---------+--------+
        | node | metrics | series |
        +------+---------+--------+
        | n1   | 1       | 2      |
        +------+---------+--------+"#]],
    )
    .await;
    check_two(
        "SELECT count(*) AS n FROM load WHERE node = 'n1,n2'",
        expect![[r#"
        +---+
        | n |
        +---+
        | 0 |
        +---+"#]],
    )
    .await;
    check_two(
        "SELECT metric FROM metrics WHERE node = 'n1' AND metric = 'mem'",
        expect![[r#"
        +--------+
        | metric |
        +--------+
        +--------+"#]],
    )
    .await;
}
