use expect_test::expect;

use telem_engine::Value;

use crate::options::QueryOptions;
use crate::testing::{Asked, options};

const DATA: &str = "
    loss{host=a,rank=0} 0:1.0 10:0.9 20:0.8 40:0.6
    loss{host=b,rank=1} 5:2.0 20:1.5
    loss{rank=2} 20:3.0
    load{host=a} 5:50.0 10:51.0 19:52.0
    load{host=b} 0:70.0
    load{host=c} 0:99.0
    gpu{host=a,gpu=0} 0:300.0 20:310.0
    gpu{host=a,gpu=1} 0:200.0 20:310.0
";

async fn answers(sqls: &[&str]) -> String {
    let asked = Asked::load(DATA);
    let mut answers = String::new();
    for sql in sqls {
        answers += &format!("{}\n", asked.answer(sql).await);
    }
    answers
}

#[tokio::test]
async fn every_sample_stands_beside_the_latest_of_the_other_metric() {
    let answers = answers(&[
        "SELECT * FROM asof('loss', 'load') ORDER BY host, ts",
        "SELECT ts, host, loss, load FROM asof('loss', 'load', tolerance => '9 seconds') ORDER BY host, ts",
        "SELECT ts, loss, load FROM asof('loss', 'load', '0s', 'host') WHERE host = 'a' ORDER BY ts",
        "SELECT ts, loss, load FROM asof('loss', 'load', by => 'host', tolerance => '1 minute') \
         WHERE ts > '2024-01-01T00:00:10Z' AND host IS NOT NULL ORDER BY ts, loss",
        "SELECT count(*), count(load), min(load) FROM asof('loss', 'load', start => '2024-01-01T00:00:20Z')",
        "SELECT host, corr(loss, load) FROM asof('loss', 'load') GROUP BY host HAVING count(load) > 1",
    ])
    .await;
    expect![[r#"
        +----------------------+------+------+------+------+
        | ts                   | host | rank | loss | load |
        +----------------------+------+------+------+------+
        | 2024-01-01T00:00:00Z | a    | 0    | 1.0  |      |
        | 2024-01-01T00:00:10Z | a    | 0    | 0.9  | 51.0 |
        | 2024-01-01T00:00:20Z | a    | 0    | 0.8  | 52.0 |
        | 2024-01-01T00:00:40Z | a    | 0    | 0.6  | 52.0 |
        | 2024-01-01T00:00:05Z | b    | 1    | 2.0  | 70.0 |
        | 2024-01-01T00:00:20Z | b    | 1    | 1.5  | 70.0 |
        | 2024-01-01T00:00:20Z |      | 2    | 3.0  |      |
        +----------------------+------+------+------+------+
        +----------------------+------+------+------+
        | ts                   | host | loss | load |
        +----------------------+------+------+------+
        | 2024-01-01T00:00:00Z | a    | 1.0  |      |
        | 2024-01-01T00:00:10Z | a    | 0.9  | 51.0 |
        | 2024-01-01T00:00:20Z | a    | 0.8  | 52.0 |
        | 2024-01-01T00:00:40Z | a    | 0.6  |      |
        | 2024-01-01T00:00:05Z | b    | 2.0  | 70.0 |
        | 2024-01-01T00:00:20Z | b    | 1.5  |      |
        | 2024-01-01T00:00:20Z |      | 3.0  |      |
        +----------------------+------+------+------+
        +----------------------+------+------+
        | ts                   | loss | load |
        +----------------------+------+------+
        | 2024-01-01T00:00:00Z | 1.0  |      |
        | 2024-01-01T00:00:10Z | 0.9  | 51.0 |
        | 2024-01-01T00:00:20Z | 0.8  |      |
        | 2024-01-01T00:00:40Z | 0.6  |      |
        +----------------------+------+------+
        +----------------------+------+------+
        | ts                   | loss | load |
        +----------------------+------+------+
        | 2024-01-01T00:00:20Z | 0.8  | 52.0 |
        | 2024-01-01T00:00:20Z | 1.5  | 70.0 |
        | 2024-01-01T00:00:40Z | 0.6  | 52.0 |
        +----------------------+------+------+
        +----------+--------------------+------------------+
        | count(*) | count(asof().load) | min(asof().load) |
        +----------+--------------------+------------------+
        | 4        | 3                  | 52.0             |
        +----------+--------------------+------------------+
        +------+-------------------------------+
        | host | corr(asof().loss,asof().load) |
        +------+-------------------------------+
        | a    | -0.7559289460184544           |
        | b    |                               |
        +------+-------------------------------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn one_series_is_chosen_by_its_tags_and_several_are_an_error_where_they_differ() {
    let answers = answers(&[
        "SELECT ts, loss, gpu FROM asof('loss{rank=0}', 'gpu{gpu=1}') ORDER BY ts",
        "SELECT ts, gpu, gpu_left, gpu_right FROM asof('gpu{gpu=0}', 'gpu{gpu=1}', by => 'host') ORDER BY ts",
        "SELECT loss FROM asof('loss', 'gpu', start => '2024-01-01T00:00:20Z') WHERE host = 'a' ORDER BY loss",
        "SELECT * FROM asof('loss', 'gpu')",
        "SELECT * FROM asof('loss', 'load', by => '')",
    ])
    .await;
    expect![[r#"
        +----------------------+------+-------+
        | ts                   | loss | gpu   |
        +----------------------+------+-------+
        | 2024-01-01T00:00:00Z | 1.0  | 200.0 |
        | 2024-01-01T00:00:10Z | 0.9  | 200.0 |
        | 2024-01-01T00:00:20Z | 0.8  | 310.0 |
        | 2024-01-01T00:00:40Z | 0.6  | 310.0 |
        +----------------------+------+-------+
        +----------------------+-----+----------+-----------+
        | ts                   | gpu | gpu_left | gpu_right |
        +----------------------+-----+----------+-----------+
        | 2024-01-01T00:00:00Z | 0   | 300.0    | 200.0     |
        | 2024-01-01T00:00:20Z | 0   | 310.0    | 310.0     |
        +----------------------+-----+----------+-----------+
        +------+
        | loss |
        +------+
        | 0.6  |
        | 0.8  |
        +------+
        Invalid: asof: 200 and 300 are both values of gpu for host=a at 2024-01-01T00:00:00Z, so these are several series, and expected is one: by has the tags [host]; name more tags there that both metrics have, or choose one series, as in asof(..., 'gpu{TAG=VALUE}')
        Invalid: asof: 70 and 99 are both values of load at 2024-01-01T00:00:00Z, so these are several series, and expected is one: by has the tags []; name more tags there that both metrics have, or choose one series, as in asof(..., 'load{TAG=VALUE}')
    "#]].assert_eq(&answers);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let answers = answers(&[
        "SELECT * FROM asof('loss')",
        "SELECT * FROM asof('loss', 'nothing')",
        "SELECT * FROM asof('loss', 'load{rack=1}')",
        "SELECT * FROM asof('loss', 'load{host}')",
        "SELECT * FROM asof('loss', 'load', by => 'rank')",
        "SELECT * FROM asof('loss', 'load', tolerance => 'soon')",
        "SELECT * FROM asof('loss', 'load', tolerance => '-1 second')",
        "SELECT * FROM asof('loss', 'load', tolerance => '1 month')",
        "SELECT * FROM asof('loss', 'load', within => '1 second')",
        "SELECT * FROM asof('loss', 7)",
        "SELECT * FROM asof('loss', 'load', start => 'noon')",
    ])
    .await;
    expect![[r#"
        Invalid: asof needs two metrics, as in asof('loss', 'node_load1', tolerance => '10 seconds')
        NotFound: no series has the metric 'nothing'
        NotFound: no series has the tag key 'rack'
        Invalid: asof: right is 'load{host}', expected a metric, perhaps with tags, such as 'gpu_power_watts{gpu=0}'
        Invalid: asof: by names the tag 'rank', which load has not; expected tags that both metrics have: host
        Invalid: asof: tolerance is soon, expected a length of time in whole microseconds, without months, of 0 or more, such as '10 seconds'
        Invalid: asof: tolerance is -1 second, expected a length of time in whole microseconds, without months, of 0 or more, such as '10 seconds'
        Invalid: asof: tolerance is 1 month, expected a length of time in whole microseconds, without months, of 0 or more, such as '10 seconds'
        Invalid: asof has no argument 'within'; it has left, right, tolerance, by, start, stop
        Invalid: asof: right is 7, expected a text
        Invalid: asof: start is noon, expected a time, such as '2024-01-31 12:00:00' or '5m-ago'
    "#]].assert_eq(&answers);
}

#[tokio::test]
async fn the_words_of_other_databases_are_answered_with_how_it_is_written_here() {
    let answers = answers(&[
        "SELECT * FROM loss ASOF JOIN load MATCH_CONDITION (loss.ts >= load.ts) ON loss.host = load.host",
        "SELECT * FROM loss ASOF JOIN load USING (host, ts)",
        "SELECT * FROM loss ASOF LEFT JOIN load ON loss.ts >= load.ts",
    ])
    .await;
    expect![[r#"
        Invalid: ASOF JOIN is a table here: SELECT * FROM asof('left', 'right', tolerance => '10 seconds', by => 'host')
        Invalid: ASOF JOIN is a table here: SELECT * FROM asof('left', 'right', tolerance => '10 seconds', by => 'host')
        Invalid: cannot read the SQL: sql parser error: Expected: JOIN, found: LEFT at Line: 1, Column: 25; an ASOF LEFT JOIN is a table here: SELECT * FROM asof('left', 'right')
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn both_sides_read_only_what_can_meet() {
    let asked = Asked::load(DATA);
    let plan = asked
        .plan(
            "SELECT loss, load FROM asof('loss', 'load', tolerance => '10 seconds') \
             WHERE host = 'a' AND ts >= '2024-01-01T00:00:20Z' AND ts < '2024-01-01T00:00:30Z'",
        )
        .await;
    expect![[r#"
        CooperativeExec
          AsofExec: by=[host], tolerance=10000000 us
            SortPreservingMergeExec: [tags[host]@1 ASC, ts@0 ASC]
              NodeLeafExec: Rows: Sample, columns=[ts, tags[host], value], metric in ["loss"], tags[host] in ["a"], ts >= 1704067220000000us, ts < 1704067230000000us, sorted by [host], ts
            SortPreservingMergeExec: [tags[host]@1 ASC, ts@0 ASC]
              NodeLeafExec: Rows: Sample, columns=[ts, tags[host], value], metric in ["load"], tags[host] in ["a"], ts >= 1704067210000000us, ts < 1704067230000000us, sorted by [host], ts
    "#]].assert_eq(&plan);
}

#[tokio::test]
async fn it_needs_memory_for_batches_and_not_for_samples() {
    let asked = Asked::with(QueryOptions { memory_bytes_max: 4 << 20, ..options() });
    for (metric, rank) in [("loss", "0"), ("loss", "1"), ("load", "")] {
        let tags = [("host", "a"), ("rank", rank)];
        let tags = if rank.is_empty() { &tags[..1] } else { &tags };
        asked.put(metric, tags, (0..200_000).map(|at| (at, Value::Int(at))));
    }
    let counted = asked.answer("SELECT count(*), count(load), max(loss - load) FROM asof('loss', 'load')").await;
    expect![[r#"
        +----------+--------------------+--------------------------------+
        | count(*) | count(asof().load) | max(asof().loss - asof().load) |
        +----------+--------------------+--------------------------------+
        | 400000   | 400000             | 0.0                            |
        +----------+--------------------+--------------------------------+"#]]
    .assert_eq(&counted);
    let sorted = asked.answer("SELECT host, ts, value FROM loss ORDER BY host, ts").await;
    assert!(sorted.contains("--query-memory"), "{}", &sorted[..sorted.len().min(300)]);
}

#[tokio::test]
async fn of_many_series_with_equal_tags_the_samples_are_sorted() {
    let ranks: String =
        (0..20).map(|rank| format!("loss{{host=a,rank={rank}}} {}:1 {}:2\n", rank, 40 - rank)).collect();
    let asked = Asked::load(&format!("{ranks}load{{host=a}} 0:0.5 20:20.5"));
    let sql = "SELECT count(*), min(load), max(load), sum(load) FROM asof('loss', 'load')";
    expect![[r#"
        +----------+------------------+------------------+------------------+
        | count(*) | min(asof().load) | max(asof().load) | sum(asof().load) |
        +----------+------------------+------------------+------------------+
        | 40       | 0.5              | 20.5             | 420.0            |
        +----------+------------------+------------------+------------------+"#]]
    .assert_eq(&asked.answer(sql).await);
    let plan = asked.plan(sql).await;
    assert_eq!(plan.matches("SortExec:").count(), 1, "{plan}");
}
