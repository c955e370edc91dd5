use expect_test::expect;

use crate::testing::Asked;

const DATA: &str = "
    load{host=a} 0:1 1:1 2:1 8:1 13:1
    load{host=b} 0:1 6:1
    load{host=c,start=x} 0:1
    bare{} 0:1 10:1
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
async fn a_gap_is_between_two_samples_that_are_further_apart() {
    let answers = answers(&[
        "SELECT * FROM gaps('load', longer_than => '5 seconds') ORDER BY host, start",
        "SELECT host, start, seconds FROM gaps('load', '4999 milliseconds') ORDER BY host, start",
        "SELECT start, stop FROM gaps('bare', '1s')",
        "SELECT host, sum(seconds) FROM gaps('load', '1s') WHERE host <> 'b' GROUP BY host",
        "SELECT host, seconds FROM gaps('load{host=b}', '1s')",
        "SELECT host, seconds FROM gaps('load', '1s', start => '2024-01-01T00:00:01Z', stop => '2024-01-01T00:00:13Z')",
        "SELECT host, seconds FROM gaps('load', '1s') WHERE start >= '2024-01-01T00:00:08Z'",
        "SELECT count(*) FROM gaps('load', '1 hour')",
    ])
    .await;
    expect![[r#"
        +------+-----------+----------------------+----------------------+---------+
        | host | tag_start | start                | stop                 | seconds |
        +------+-----------+----------------------+----------------------+---------+
        | a    |           | 2024-01-01T00:00:02Z | 2024-01-01T00:00:08Z | 6.0     |
        | b    |           | 2024-01-01T00:00:00Z | 2024-01-01T00:00:06Z | 6.0     |
        +------+-----------+----------------------+----------------------+---------+
        +------+----------------------+---------+
        | host | start                | seconds |
        +------+----------------------+---------+
        | a    | 2024-01-01T00:00:02Z | 6.0     |
        | a    | 2024-01-01T00:00:08Z | 5.0     |
        | b    | 2024-01-01T00:00:00Z | 6.0     |
        +------+----------------------+---------+
        +----------------------+----------------------+
        | start                | stop                 |
        +----------------------+----------------------+
        | 2024-01-01T00:00:00Z | 2024-01-01T00:00:10Z |
        +----------------------+----------------------+
        +------+---------------------+
        | host | sum(gaps().seconds) |
        +------+---------------------+
        | a    | 11.0                |
        +------+---------------------+
        +------+---------+
        | host | seconds |
        +------+---------+
        | b    | 6.0     |
        +------+---------+
        +------+---------+
        | host | seconds |
        +------+---------+
        | a    | 6.0     |
        +------+---------+
        +------+---------+
        | host | seconds |
        +------+---------+
        | a    | 5.0     |
        +------+---------+
        +----------+
        | count(*) |
        +----------+
        | 0        |
        +----------+
    "#]]
    .assert_eq(&answers);
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let answers = answers(&[
        "SELECT * FROM gaps('load')",
        "SELECT * FROM gaps('nothing', '1s')",
        "SELECT * FROM gaps('load', '0 seconds')",
        "SELECT * FROM gaps('load', 5)",
        "SELECT * FROM gaps('load', '1s', by => 'host')",
        "SELECT * FROM gaps(load, '1s')",
    ])
    .await;
    expect![[r#"
        Invalid: gaps needs a metric and how long a gap is at least, as in gaps('node_load1', longer_than => '5 seconds')
        NotFound: no series has the metric 'nothing'
        Invalid: gaps: longer_than is 0 seconds, expected a length of time in whole microseconds, without months, of more than 0, such as '10 seconds'
        Invalid: gaps: longer_than is 5, expected a length of time in whole microseconds, without months, of more than 0, such as '10 seconds'
        Invalid: gaps has no argument 'by'; it has metric, longer_than, start, stop
        Invalid: gaps: metric is load, expected a constant
    "#]].assert_eq(&answers);
}
