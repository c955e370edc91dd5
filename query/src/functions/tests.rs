use expect_test::{Expect, expect};

use crate::testing::Asked;

/// `up` is read every 10 s; it begins again at 0 after 30 s.
const COUNTERS: &str = "
    up{host=a} 0:0 10:10 20:30 30:60 40:5 50:25
    up{host=b} 20:7 0:5 10:6
    once{host=a} 0:5
    temp{host=a} 0:20.5 60:21.5 120:NaN 180:19.25
";

async fn check(sql: &str, expected: Expect) {
    expected.assert_eq(&Asked::load(COUNTERS).answer(sql).await);
}

#[tokio::test]
async fn rate_and_increase_survive_a_reset_and_delta_does_not_care() {
    check(
        "SELECT host, rate(value, ts), increase(value, ts), delta(value, ts) FROM up GROUP BY host ORDER BY host",
        expect![[r#"
            +------+----------------------+--------------------------+-----------------------+
            | host | rate(up.value,up.ts) | increase(up.value,up.ts) | delta(up.value,up.ts) |
            +------+----------------------+--------------------------+-----------------------+
            | a    | 1.7                  | 85.0                     | 25.0                  |
            | b    | 0.1                  | 2.0                      | 2.0                   |
            +------+----------------------+--------------------------+-----------------------+"#]],
    )
    .await;
}

#[tokio::test]
async fn one_reading_has_no_rate() {
    check(
        "SELECT rate(value, ts), increase(value, ts), delta(value, ts) FROM once",
        expect![[r#"
        +--------------------------+------------------------------+---------------------------+
        | rate(once.value,once.ts) | increase(once.value,once.ts) | delta(once.value,once.ts) |
        +--------------------------+------------------------------+---------------------------+
        |                          |                              |                           |
        +--------------------------+------------------------------+---------------------------+"#]],
    )
    .await;
    check(
        "SELECT rate(value, ts) FROM once WHERE value > 9",
        expect![[r#"
        +--------------------------+
        | rate(once.value,once.ts) |
        +--------------------------+
        |                          |
        +--------------------------+"#]],
    )
    .await;
}

#[tokio::test]
async fn several_series_in_a_group_are_an_error_that_says_what_to_write() {
    let busy = "
        cpu{host=a,mode=idle} 0:0 10:9 20:18
        cpu{host=a,mode=user} 0:0 10:1 20:2
    ";
    let asked = Asked::load(busy);
    let mut answers = String::new();
    for sql in [
        "SELECT host, rate(value, ts) FROM cpu GROUP BY host",
        "SELECT increase(value, ts) FROM cpu",
        "SELECT delta(value, ts) FROM samples",
        "SELECT host, sum(each) AS rate FROM \
         (SELECT host, mode, rate(value, ts) AS each FROM cpu GROUP BY host, mode) GROUP BY host",
        "SELECT rate(a.value, a.ts) AS rate FROM cpu a JOIN cpu b USING (host) WHERE a.mode = 'user'",
    ] {
        answers += &format!("{}\n", asked.answer(sql).await);
    }
    expect![[r#"
        Invalid: rate: 1 and 9 are both of 2024-01-01T00:00:10Z, so a group holds several series, and expected is one: name all tags of the metric in GROUP BY (DESCRIBE shows them), and sum around that, as in SELECT host, sum(each) FROM (SELECT host, mode, rate(value, ts) AS each FROM ... GROUP BY host, mode) GROUP BY host
        Invalid: increase: 1 and 9 are both of 2024-01-01T00:00:10Z, so a group holds several series, and expected is one: name all tags of the metric in GROUP BY (DESCRIBE shows them), and sum around that, as in SELECT host, sum(each) FROM (SELECT host, mode, increase(value, ts) AS each FROM ... GROUP BY host, mode) GROUP BY host
        Invalid: delta: 1 and 9 are both of 2024-01-01T00:00:10Z, so a group holds several series, and expected is one: name all tags of the metric in GROUP BY (DESCRIBE shows them), and sum around that, as in SELECT host, sum(each) FROM (SELECT host, mode, delta(value, ts) AS each FROM ... GROUP BY host, mode) GROUP BY host
        +------+------+
        | host | rate |
        +------+------+
        | a    | 1.0  |
        +------+------+
        +------+
        | rate |
        +------+
        | 0.1  |
        +------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn first_and_last_go_by_time_whatever_the_order_of_rows() {
    check(
        "SELECT host, first(value, ts), last(value, ts), last(host, ts), last(ts, ts), last(value_int, ts) \
         FROM up GROUP BY host ORDER BY host",
        expect![[r#"
            +------+-----------------------+----------------------+---------------------+----------------------+--------------------------+
            | host | first(up.value,up.ts) | last(up.value,up.ts) | last(up.host,up.ts) | last(up.ts,up.ts)    | last(up.value_int,up.ts) |
            +------+-----------------------+----------------------+---------------------+----------------------+--------------------------+
            | a    | 0.0                   | 25.0                 | a                   | 2024-01-01T00:00:50Z | 25                       |
            | b    | 5.0                   | 7.0                  | b                   | 2024-01-01T00:00:20Z | 7                        |
            +------+-----------------------+----------------------+---------------------+----------------------+--------------------------+"#]],
    )
    .await;
    check(
        "SELECT first(value, ts), last(value, ts) FROM up WHERE host = 'none'",
        expect![[r#"
        +-----------------------+----------------------+
        | first(up.value,up.ts) | last(up.value,up.ts) |
        +-----------------------+----------------------+
        |                       |                      |
        +-----------------------+----------------------+"#]],
    )
    .await;
}

#[tokio::test]
async fn buckets_of_time_take_widths_as_text_or_interval() {
    check(
        "SELECT time_bucket('20 seconds', ts) AS bucket, sum(value) FROM up GROUP BY bucket ORDER BY bucket",
        expect![[r#"
            +----------------------+---------------+
            | bucket               | sum(up.value) |
            +----------------------+---------------+
            | 2024-01-01T00:00:00Z | 21.0          |
            | 2024-01-01T00:00:20Z | 97.0          |
            | 2024-01-01T00:00:40Z | 30.0          |
            +----------------------+---------------+"#]],
    )
    .await;
    check(
        "SELECT time_bucket(INTERVAL '1 minute', ts, '2024-01-01T00:00:30Z') AS bucket, count(*) \
         FROM temp GROUP BY 1 ORDER BY 1",
        expect![[r#"
            +----------------------+----------+
            | bucket               | count(*) |
            +----------------------+----------+
            | 2023-12-31T23:59:30Z | 1        |
            | 2024-01-01T00:00:30Z | 1        |
            | 2024-01-01T00:01:30Z | 1        |
            | 2024-01-01T00:02:30Z | 1        |
            +----------------------+----------+"#]],
    )
    .await;
    check(
        "SELECT time_bucket('1 month', ts) AS month, count(*) FROM up GROUP BY month",
        expect![[r#"
        +----------------------+----------+
        | month                | count(*) |
        +----------------------+----------+
        | 2024-01-01T00:00:00Z | 9        |
        +----------------------+----------+"#]],
    )
    .await;
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let mut errors = String::new();
    for sql in [
        "SELECT time_bucket(5, ts) FROM up",
        "SELECT time_bucket('5 minutes') FROM up",
        "SELECT time_bucket('five', ts) FROM up",
        "SELECT time_bucket('0 seconds', ts) FROM up",
        "SELECT rate(value) FROM up",
        "SELECT rate(host, ts) FROM up",
        "SELECT last(value, value) FROM up",
    ] {
        errors += &format!("{sql}\n    {}\n", Asked::load(COUNTERS).answer(sql).await);
    }
    expect![[r#"
        SELECT time_bucket(5, ts) FROM up
            Invalid: time_bucket: the width is a Int64, expected an interval such as '5 minutes' or INTERVAL '1 hour'
        SELECT time_bucket('5 minutes') FROM up
            Invalid: time_bucket takes a width, a time and perhaps an origin; 1 arguments given
        SELECT time_bucket('five', ts) FROM up
            Invalid: Parser error: Invalid input syntax for type interval: "five"; write it as '5 minutes' or '100 milliseconds'
        SELECT time_bucket('0 seconds', ts) FROM up
            Invalid: DATE_BIN stride must be non-zero
        SELECT rate(value) FROM up
            Invalid: rate takes a value and its time, as in rate(value, ts); 1 arguments given
        SELECT rate(host, ts) FROM up
            Invalid: rate: the value is a Utf8View, expected a number
        SELECT last(value, value) FROM up
            Invalid: last: the time is a Float64, expected a timestamp
    "#]]
    .assert_eq(&errors);
}

#[tokio::test]
async fn aggregates_are_made_in_parts_and_merged() {
    let plan = Asked::load(COUNTERS).plan("SELECT host, rate(value, ts), last(value, ts) FROM up GROUP BY host").await;
    expect![[r#"
        AggregateExec: mode=FinalPartitioned, gby=[host@0 as host], aggr=[rate(up.value,up.ts), last(up.value,up.ts)]
          RepartitionExec: partitioning=Hash([host@0], 2), input_partitions=2
            AggregateExec: mode=Partial, gby=[host@2 as host], aggr=[rate(up.value,up.ts), last(up.value,up.ts)]
              NodeLeafExec: Rows: Sample, columns=[ts, value, tags[host]], metric in ["up"]
    "#]]
    .assert_eq(&plan);
}
