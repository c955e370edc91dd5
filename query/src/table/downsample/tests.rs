use expect_test::{Expect, expect};

use crate::testing::Asked;

const LOAD: &str = "
    load{host=a,rack=r1} 0:1 20:3 60:5 240:8
    load{host=b,rack=r1} 0:10 60:20 120:30
    load{host=c,rack=r2} 30:100
    up{host=a} 0:0 60:60 120:180 180:20 240:80
";

async fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load(LOAD).answer(sql).await);
}

const TODAY: &str = "WHERE ts >= '2024-01-01' AND ts < '2024-01-01 00:05:00'";

#[tokio::test]
async fn every_series_stands_for_itself_unless_aggregated() {
    check(
        &format!("SELECT * FROM downsample('load', '1 minute') {TODAY} ORDER BY host, ts"),
        expect![[r#"
        +----------------------+-------+------+------+
        | ts                   | value | host | rack |
        +----------------------+-------+------+------+
        | 2024-01-01T00:00:00Z | 2.0   | a    | r1   |
        | 2024-01-01T00:01:00Z | 5.0   | a    | r1   |
        | 2024-01-01T00:04:00Z | 8.0   | a    | r1   |
        | 2024-01-01T00:00:00Z | 10.0  | b    | r1   |
        | 2024-01-01T00:01:00Z | 20.0  | b    | r1   |
        | 2024-01-01T00:02:00Z | 30.0  | b    | r1   |
        | 2024-01-01T00:00:00Z | 100.0 | c    | r2   |
        +----------------------+-------+------+------+"#]],
    )
    .await;
    check(
        &format!("SELECT * FROM downsample('load', '1 minute', 'max', aggregate => 'sum', by => 'rack') {TODAY} ORDER BY rack, ts"),
        expect![[r#"
            +----------------------+-------+------+
            | ts                   | value | rack |
            +----------------------+-------+------+
            | 2024-01-01T00:00:00Z | 13.0  | r1   |
            | 2024-01-01T00:01:00Z | 25.0  | r1   |
            | 2024-01-01T00:02:00Z | 36.0  | r1   |
            | 2024-01-01T00:04:00Z | 8.0   | r1   |
            | 2024-01-01T00:00:00Z | 100.0 | r2   |
            +----------------------+-------+------+"#]],
    )
    .await;
    check(
        &format!("SELECT * FROM downsample('load', INTERVAL '2 minutes', aggregate => 'count') {TODAY} ORDER BY ts"),
        expect![[r#"
            +----------------------+-------+
            | ts                   | value |
            +----------------------+-------+
            | 2024-01-01T00:00:00Z | 3.0   |
            | 2024-01-01T00:02:00Z | 2.0   |
            | 2024-01-01T00:04:00Z | 1.0   |
            +----------------------+-------+"#]],
    )
    .await;
}

#[tokio::test]
async fn gaps_are_filled_as_asked() {
    let mut answers = String::new();
    for fill in ["none", "null", "nan", "zero", "previous", "linear"] {
        let sql = format!(
            "SELECT ts, value FROM downsample('load', '1 minute', fill => '{fill}') {TODAY} AND host = 'a' ORDER BY ts"
        );
        answers += &format!("{fill}\n{}\n", Asked::load(LOAD).answer(&sql).await);
    }
    expect![[r#"
        none
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
        null
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:02:00Z |       |
        | 2024-01-01T00:03:00Z |       |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
        nan
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:02:00Z | NaN   |
        | 2024-01-01T00:03:00Z | NaN   |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
        zero
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:02:00Z | 0.0   |
        | 2024-01-01T00:03:00Z | 0.0   |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
        previous
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:02:00Z | 5.0   |
        | 2024-01-01T00:03:00Z | 5.0   |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
        linear
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T00:01:00Z | 5.0   |
        | 2024-01-01T00:02:00Z | 6.0   |
        | 2024-01-01T00:03:00Z | 7.0   |
        | 2024-01-01T00:04:00Z | 8.0   |
        +----------------------+-------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn a_counter_becomes_a_rate() {
    check(
        &format!("SELECT ts, value FROM downsample('up', '1 minute', 'last', rate => 'counter') {TODAY} ORDER BY ts"),
        expect![[r#"
            +----------------------+-------+
            | ts                   | value |
            +----------------------+-------+
            | 2024-01-01T00:01:00Z | 1.0   |
            | 2024-01-01T00:02:00Z | 2.0   |
            | 2024-01-01T00:04:00Z | 1.0   |
            +----------------------+-------+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_filter_on_time_chooses_buckets_and_never_cuts_one() {
    check(
        "SELECT ts, value FROM downsample('load', '1 minute', 'sum') \
         WHERE host = 'a' AND ts > '2023-12-31 23:59:10' AND ts < '2024-01-01 00:00:10'",
        expect![[r#"
            +----------------------+-------+
            | ts                   | value |
            +----------------------+-------+
            | 2024-01-01T00:00:00Z | 4.0   |
            +----------------------+-------+"#]],
    )
    .await;
    check(
        "SELECT ts, value FROM downsample('load', '1 minute', 'sum', start => '2024-01-01 00:00:10', stop => now()) \
         WHERE host = 'a' ORDER BY ts",
        expect![[r#"
            +----------------------+-------+
            | ts                   | value |
            +----------------------+-------+
            | 2024-01-01T00:01:00Z | 5.0   |
            | 2024-01-01T00:04:00Z | 8.0   |
            +----------------------+-------+"#]],
    )
    .await;
}

#[tokio::test]
async fn without_a_range_it_is_all_there_is() {
    let asked = Asked::load("load{host=a} -100000:1 0:2 5400:3");
    let mut answers = String::new();
    for interval in ["1 hour", "1 day", "1 month", "1 year", "all"] {
        let sql = format!("SELECT ts, value FROM downsample('load', '{interval}', 'sum') ORDER BY ts");
        answers += &format!("{interval}\n{}\n", asked.answer(&sql).await);
    }
    let sql = "SELECT ts, value FROM downsample('load', '1 day', 'sum') WHERE ts >= '2024-01-01'";
    answers += &format!("from a day on\n{}\n", asked.answer(sql).await);
    expect![[r#"
        1 hour
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2023-12-30T20:00:00Z | 1.0   |
        | 2024-01-01T00:00:00Z | 2.0   |
        | 2024-01-01T01:00:00Z | 3.0   |
        +----------------------+-------+
        1 day
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2023-12-30T00:00:00Z | 1.0   |
        | 2024-01-01T00:00:00Z | 5.0   |
        +----------------------+-------+
        1 month
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2023-12-01T00:00:00Z | 1.0   |
        | 2024-01-01T00:00:00Z | 5.0   |
        +----------------------+-------+
        1 year
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2023-01-01T00:00:00Z | 1.0   |
        | 2024-01-01T00:00:00Z | 5.0   |
        +----------------------+-------+
        all
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2023-12-30T20:13:20Z | 6.0   |
        +----------------------+-------+
        from a day on
        +----------------------+-------+
        | ts                   | value |
        +----------------------+-------+
        | 2024-01-01T00:00:00Z | 5.0   |
        +----------------------+-------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn filters_choose_series_before_they_are_read() {
    let plan = Asked::load(LOAD)
        .plan(&format!(
            "SELECT value FROM downsample('load', '1 minute') {TODAY} AND host IN ('a', 'b') AND rack ~ '1'"
        ))
        .await;
    expect![[r#"
        FilterExec: (host@2 = a OR host@2 = b) AND ts@0 >= 1704067200000000 AND ts@0 < 1704067500000000 AND rack@3 LIKE %1%, projection=[value@1]
          RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
            DownsampleExec: metric=load, filters=2, 1704067200000000us <= ts <= 1704067499999000us
    "#]].assert_eq(&plan);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let mut errors = String::new();
    for call in [
        "downsample('load')",
        "downsample()",
        "downsample('laod', '1 minute')",
        "downsample('load', 'often')",
        "downsample('load', '0 seconds')",
        "downsample('load', '1 month 1 day')",
        "downsample('load', '1 minute', 'median of medians')",
        "downsample('load', '1 minute', 'none')",
        "downsample('load', '1 minute', by => 'host')",
        "downsample('load', '1 minute', fill => 'maybe')",
        "downsample('load', '1 minute', rate => 'fast')",
        "downsample('load', '1 minute', start => 'yesterday')",
        "downsample('load', '1 minute', wrong => 1)",
        "downsample('load', '1 minute', metric => 'load')",
        "downsample('load', interval => '1 minute', 'avg')",
    ] {
        errors += &format!("{call}\n    {}\n", Asked::load(LOAD).answer(&format!("SELECT * FROM {call}")).await);
    }
    expect![[r#"
        downsample('load')
            Invalid: downsample needs an interval, such as '1 minute'
        downsample()
            Invalid: downsample needs a metric and an interval, as in downsample('node_load1', '1 minute')
        downsample('laod', '1 minute')
            NotFound: no series has the metric 'laod'
        downsample('load', 'often')
            Invalid: Parser error: Invalid input syntax for type interval: "often"; write it as '5 minutes' or '100 milliseconds'
        downsample('load', '0 seconds')
            Invalid: downsample: the interval is 0 seconds, expected one above 0
        downsample('load', '1 month 1 day')
            Invalid: downsample: the interval is 1 month 1 day, expected whole months, or whole milliseconds
        downsample('load', '1 minute', 'median of medians')
            Invalid: aggregator 'median of medians' is unknown; known are sum, min, max, avg, median, none, mult, dev, diff, count, zimsum, mimmin, mimmax, first, last, pfsum, squareSum, p50, p75, p90, p95, p99, p999, ep50r3, ep75r3, ep90r3, ep95r3, ep99r3, ep999r3, ep50r7, ep75r7, ep90r7, ep95r7, ep99r7, ep999r7
        downsample('load', '1 minute', 'none')
            Invalid: 'none' cannot downsample: it makes no one value of several
        downsample('load', '1 minute', by => 'host')
            Invalid: downsample: by => 'host' needs an aggregate, such as aggregate => 'sum'
        downsample('load', '1 minute', fill => 'maybe')
            Invalid: downsample: fill is 'maybe', expected none, null, nan, zero, previous or linear
        downsample('load', '1 minute', rate => 'fast')
            Invalid: downsample: rate is 'fast', expected counter or gauge
        downsample('load', '1 minute', start => 'yesterday')
            Invalid: downsample: start is yesterday, expected a time, such as '2024-01-31 12:00:00' or '5m-ago'
        downsample('load', '1 minute', wrong => 1)
            Invalid: downsample has no argument 'wrong'; it has metric, interval, function, aggregate, by, fill, rate, start, stop
        downsample('load', '1 minute', metric => 'load')
            Invalid: downsample: the argument 'metric' is given twice
        downsample('load', interval => '1 minute', 'avg')
            Invalid: downsample: an argument too many, or one without a name behind one with a name; arguments are metric, interval, function, aggregate, by, fill, rate, start, stop
    "#]].assert_eq(&errors);
}

#[tokio::test]
async fn it_joins_and_aggregates_like_any_table() {
    check(
        &format!(
            "SELECT l.ts, l.host, l.value AS load, u.value AS up \
             FROM (SELECT * FROM downsample('load', '1 minute', 'last') {TODAY}) AS l \
             JOIN (SELECT * FROM downsample('up', '1 minute', 'last') {TODAY}) AS u \
             ON l.ts = u.ts AND l.host = u.host ORDER BY l.ts"
        ),
        expect![[r#"
            +----------------------+------+------+------+
            | ts                   | host | load | up   |
            +----------------------+------+------+------+
            | 2024-01-01T00:00:00Z | a    | 3.0  | 0.0  |
            | 2024-01-01T00:01:00Z | a    | 5.0  | 60.0 |
            | 2024-01-01T00:04:00Z | a    | 8.0  | 80.0 |
            +----------------------+------+------+------+"#]],
    )
    .await;
}

#[tokio::test]
async fn saved_runs_with_equal_series_are_told_apart_by_their_job() {
    let job = |id: &str| serde_json::json!({"id": id});
    let runs = Asked::runs(&[("n1", job("7"), "loss{rank=0} 0:9 20:7"), ("n1", job("8"), "loss{rank=0} 0:1 70:2")]);
    let by_job = "SELECT * FROM downsample('loss', '1 minute', aggregate => 'sum', by => 'job,rank') ORDER BY job, ts";
    expect![[r#"
        +----------------------+-------+-----+------+
        | ts                   | value | job | rank |
        +----------------------+-------+-----+------+
        | 2024-01-01T00:00:00Z | 8.0   | 7   | 0    |
        | 2024-01-01T00:00:00Z | 1.0   | 8   | 0    |
        | 2024-01-01T00:01:00Z | 2.0   | 8   | 0    |
        +----------------------+-------+-----+------+"#]]
    .assert_eq(&runs.answer(by_job).await);
    // A tag of that name stays what it is.
    let tagged = Asked::runs(&[("n1", job("7"), "loss{job=mine} 0:9"), ("n1", job("8"), "loss{job=mine} 20:1")]);
    let by_tag = "SELECT value, tag_job FROM downsample('loss', '1 minute', aggregate => 'sum', by => 'job')";
    expect![[r#"
        +-------+---------+
        | value | tag_job |
        +-------+---------+
        | 5.0   | mine    |
        +-------+---------+"#]]
    .assert_eq(&tagged.answer(by_tag).await);
}
