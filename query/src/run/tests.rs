use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices};
use expect_test::{Expect, expect};
use futures::{StreamExt, TryStreamExt};
use telem_engine::{Annotation, Durability, MetaChange, Timestamp, Value};

use crate::answer::{FoldSink, FoldedRows};
use crate::error::{Error, ErrorKind};
use crate::leaf::{LeafThread, Stop};
use crate::options::{QueryOptions, RowOrder};
use crate::question::Aggregator;
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{Downsample, Fidelity, Fill, Interval, Matcher, TagFilter, TsQuery};
use crate::run::bounded::QueryLanguage;
use crate::testing::{Asked, EPOCH_SECONDS, options, release};

async fn check(asked: &Asked, sql: &str, expected: Expect) {
    expected.assert_eq(&asked.answer(sql).await);
}

#[tokio::test]
async fn an_empty_database_answers() {
    let asked = Asked::empty();
    check(
        &asked,
        "SELECT * FROM samples",
        expect![[r#"
            +--------+------+------+-----+------+----+-------+-----------+------+
            | metric | host | node | job | tags | ts | value | value_int | step |
            +--------+------+------+-----+------+----+-------+-----------+------+
            +--------+------+------+-----+------+----+-------+-----------+------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT count(*), max(value) FROM samples",
        expect![[r#"
        +----------+--------------------+
        | count(*) | max(samples.value) |
        +----------+--------------------+
        | 0        |                    |
        +----------+--------------------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT * FROM series",
        expect![[r#"
            +--------+------+------+-----+------+----+----------+---------+------------+
            | metric | host | node | job | tags | id | first_ts | last_ts | last_value |
            +--------+------+------+-----+------+----+----------+---------+------------+
            +--------+------+------+-----+------+----+----------+---------+------------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT metric FROM metrics",
        expect![[r#"
        +--------+
        | metric |
        +--------+
        +--------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT * FROM nodes",
        expect![[r#"
        +------+---------+--------+
        | node | metrics | series |
        +------+---------+--------+
        | n1   | 0       | 0      |
        +------+---------+--------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT 1 AS One",
        expect![[r#"
        +-----+
        | One |
        +-----+
        | 1   |
        +-----+"#]],
    )
    .await;
}

#[tokio::test]
async fn what_writes_is_refused() {
    let asked = Asked::load("load{host=a} 0:1");
    let mut refused = String::new();
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE load",
        "INSERT INTO load VALUES (1)",
        "DELETE FROM load",
        "UPDATE load SET value = 1",
        "TRUNCATE TABLE load",
        "COPY load TO '/tmp/x.parquet'",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "EXPLAIN INSERT INTO load VALUES (1)",
        "EXPLAIN ANALYZE COPY load TO '/tmp/x.parquet'",
        "SET datafusion.execution.batch_size = 1",
        "RESET datafusion.execution.batch_size",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "SELECT * INTO t FROM load",
        "SELECT 1; SELECT 2",
        "",
        "SELECT * FROM '/etc/passwd'",
    ] {
        let answer = asked.answer(sql).await;
        refused += &format!("{sql}\n    {answer}\n");
    }
    expect![[r#"
        CREATE TABLE t AS SELECT 1
            Invalid: SQL here only reads: found CREATE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        CREATE VIEW v AS SELECT 1
            Invalid: SQL here only reads: found CREATE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'
            Invalid: SQL here only reads: found CREATE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        DROP TABLE load
            Invalid: SQL here only reads: found DROP, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        INSERT INTO load VALUES (1)
            Invalid: SQL here only reads: found INSERT, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        DELETE FROM load
            Invalid: SQL here only reads: found DELETE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        UPDATE load SET value = 1
            Invalid: SQL here only reads: found UPDATE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        TRUNCATE TABLE load
            Invalid: SQL here only reads: found TRUNCATE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        COPY load TO '/tmp/x.parquet'
            Invalid: SQL here only reads: found COPY, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        COPY (SELECT 1) TO '/tmp/x.csv'
            Invalid: SQL here only reads: found COPY, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        EXPLAIN INSERT INTO load VALUES (1)
            Invalid: SQL here only reads: found INSERT, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        EXPLAIN ANALYZE COPY load TO '/tmp/x.parquet'
            Invalid: SQL here only reads: found COPY, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        SET datafusion.execution.batch_size = 1
            Invalid: SQL here only reads: found SET, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        RESET datafusion.execution.batch_size
            Invalid: SQL here only reads: found RESET, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        BEGIN
            Invalid: SQL here only reads: found BEGIN, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        PREPARE p AS SELECT 1
            Invalid: SQL here only reads: found PREPARE, expected SELECT, WITH, VALUES, EXPLAIN, SHOW or DESCRIBE
        SELECT * INTO t FROM load
            Invalid: DDL not supported: CreateMemoryTable
        SELECT 1; SELECT 2
            Invalid: 2 statements; expected one at a time

            Invalid: the SQL is empty; expected one statement
        SELECT * FROM '/etc/passwd'
            NotFound: there is no table or metric '/etc/passwd'; tables are samples, series, metrics, nodes, jobs, notes, inventory, job_energy, alarms and one for every metric (SHOW TABLES)
    "#]].assert_eq(&refused);
}

#[tokio::test]
async fn errors_say_what_is_unknown_and_what_may_be_meant() {
    let asked = Asked::load("node_load1{host=a} 0:1\nsys.cpu.user{host=a} 0:1");
    let mut errors = String::new();
    // DataFusion draws the function it suggests from a hash map.
    let unknown = asked.answer("SELECT nope(value) FROM node_load1").await;
    assert!(unknown.starts_with("Invalid: Invalid function 'nope'"), "{unknown}");
    for sql in [
        "SELECT * FROM node_laod1",
        "SELECT * FROM NODE_LOAD1",
        "SELECT * FROM nothing_like_it",
        "SELECT * FROM sys.cpu.user",
        "SELECT hots FROM node_load1",
        "SELECT Host FROM node_load1",
        "SELECT x.value FROM node_load1 AS y",
        "SELECT value FROM node_load1 WHERE",
        "SELECT value FROM node_load1 WHERE host ~ '('",
        "SELECT host + 1 FROM node_load1",
        "SELECT value_int / 0 FROM node_load1",
        "SELECT ts FROM node_load1 WHERE ts > 'yesterday'",
        "SELECT ts FROM node_load1 WHERE ts > '5 minutes ago'",
        "SELECT value FROM node_load1 GROUP BY host",
        "SELECT max(value), host FROM node_load1",
        "SELECT quantile(value, 0.9) FROM node_load1",
        "SELECT TOP 2 value FROM node_load1",
        "SELECT rank FROM samples",
    ] {
        errors += &format!("{sql}\n    {}\n", asked.answer(sql).await);
    }
    expect![[r#"
        SELECT * FROM node_laod1
            NotFound: there is no table or metric 'node_laod1'; is node_load1 meant? Names are case-sensitive
        SELECT * FROM NODE_LOAD1
            NotFound: there is no table or metric 'NODE_LOAD1'; is node_load1 meant? Names are case-sensitive
        SELECT * FROM nothing_like_it
            NotFound: there is no table or metric 'nothing_like_it'; tables are samples, series, metrics, nodes, jobs, notes, inventory, job_energy, alarms and one for every metric (SHOW TABLES)
        SELECT * FROM sys.cpu.user
            NotFound: there is no table or metric 'sys.cpu.user'; a name with dots needs quotes: "sys.cpu.user"
        SELECT hots FROM node_load1
            Invalid: there is no column hots; there are node_load1.ts, node_load1.value, node_load1.value_int, node_load1.node, node_load1.job, node_load1.host
        SELECT Host FROM node_load1
            Invalid: there is no column "Host"; is node_load1.host meant? Names are case-sensitive
        SELECT x.value FROM node_load1 AS y
            Invalid: there is no column x.value; is y.value meant? Names are case-sensitive
        SELECT value FROM node_load1 WHERE
            Invalid: cannot read the SQL: sql parser error: Expected: an expression, found: EOF
        SELECT value FROM node_load1 WHERE host ~ '('
            Invalid: the regular expression '(': unclosed group
        SELECT host + 1 FROM node_load1
            Invalid: Cannot coerce arithmetic expression Utf8View + Int64 to valid types
        SELECT value_int / 0 FROM node_load1
            Invalid: Divide by zero error
        SELECT ts FROM node_load1 WHERE ts > 'yesterday'
            Invalid: Parser error: Error parsing timestamp from 'yesterday': timestamp must contain at least 10 characters; write a time as '2026-01-31T12:00:00Z', or '5m-ago'
        SELECT ts FROM node_load1 WHERE ts > '5 minutes ago'
            Invalid: Parser error: Error parsing timestamp from '5 minutes ago': error parsing date; write a time as '2026-01-31T12:00:00Z', or '5m-ago'
        SELECT value FROM node_load1 GROUP BY host
            Invalid: node_load1.value is in SELECT, but neither in GROUP BY nor in an aggregate function such as max()
        SELECT max(value), host FROM node_load1
            Invalid: node_load1.host is in SELECT, but neither in GROUP BY nor in an aggregate function such as max()
        SELECT quantile(value, 0.9) FROM node_load1
            Invalid: there is no function 'quantile'; a quantile is percentile_cont(0.99) WITHIN GROUP (ORDER BY value), and of many samples approx_percentile_cont, in the same way
        SELECT TOP 2 value FROM node_load1
            Invalid: TOP is not understood; write LIMIT 10 at the end of the query
        SELECT rank FROM samples
            Invalid: there is no column rank; there are samples.metric, samples.host, samples.node, samples.job, samples.tags, samples.ts, samples.value, samples.value_int, samples.step; a tag is tags['rank']
    "#]].assert_eq(&errors);
}

#[tokio::test]
async fn from_without_select_asks_for_all_columns() {
    let asked = Asked::load("node_load1{host=a} 0:1 1:2");
    let all = asked.answer("SELECT * FROM node_load1 ORDER BY ts LIMIT 1").await;
    assert_eq!(asked.answer("FROM node_load1 ORDER BY ts LIMIT 1").await, all);
    assert_eq!(asked.answer("SELECT * FROM (FROM node_load1) ORDER BY ts LIMIT 1").await, all);
    assert!(asked.answer("EXPLAIN FROM node_load1").await.contains("node_load1 projection=[ts, value,"));
}

#[tokio::test]
async fn notes_are_rows() {
    let asked = Asked::load("loss{host=a} 0:1");
    let note = |seconds, description: &str, notes: &str, custom: &[(&str, &str)]| Annotation {
        start: Timestamp::from_seconds(EPOCH_SECONDS + seconds),
        end: (seconds > 0).then(|| Timestamp::from_seconds(EPOCH_SECONDS + 2 * seconds)),
        description: description.to_owned(),
        notes: notes.to_owned(),
        custom: custom.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        tsuid: None,
    };
    let of_a_series = Annotation { tsuid: Some("000001".to_owned()), ..note(30, "of a series", "", &[]) };
    for note in [
        of_a_series,
        note(60, "restarted", "", &[]),
        note(0, "warmed up", "all caches", &[("epoch", "3"), ("by", "me")]),
    ] {
        asked.db.put_meta(MetaChange::Annotate(note), Durability::Buffered).unwrap();
    }
    check(
        &asked,
        "SELECT * FROM notes",
        expect![[r#"
            +----------------------+----------------------+-----------+------------+--------------------+
            | ts                   | end_ts               | text      | details    | fields             |
            +----------------------+----------------------+-----------+------------+--------------------+
            | 2024-01-01T00:00:00Z |                      | warmed up | all caches | {by: me, epoch: 3} |
            | 2024-01-01T00:01:00Z | 2024-01-01T00:02:00Z | restarted |            | {}                 |
            +----------------------+----------------------+-----------+------------+--------------------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT text, fields['epoch'] AS epoch FROM notes WHERE ts < '2024-01-01T00:00:30Z'",
        expect![[r#"
            +-----------+-------+
            | text      | epoch |
            +-----------+-------+
            | warmed up | 3     |
            +-----------+-------+"#]],
    )
    .await;
    assert!(asked.answer("SELECT count(*) FROM notes").await.contains("| 2 "));
}

#[tokio::test]
async fn names_keep_their_case_and_may_be_anything() {
    let asked = Asked::empty();
    let one = || [(0, Value::Int(1))];
    asked.put("sys.cpu.user", &[("host", "a")], one());
    asked.put("Load", &[("Rack", "r1"), ("rack", "r2")], one());
    asked.put("samples", &[("host", "x")], one());
    asked.put("it's \"quoted\"", &[("wärme", "größe 1")], one());
    asked.put("odd", &[("ts", "t"), ("tag_ts", "u"), ("value", "v"), ("node", "w"), ("tags", "z")], one());
    check(
        &asked,
        "SELECT value FROM \"sys.cpu.user\"",
        expect![[r#"
        +-------+
        | value |
        +-------+
        | 1.0   |
        +-------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT Rack, rack, MAX(value) AS Peak FROM Load GROUP BY Rack, rack",
        expect![[r#"
        +------+------+------+
        | Rack | rack | Peak |
        +------+------+------+
        | r1   | r2   | 1.0  |
        +------+------+------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT value, host FROM metric.samples",
        expect![[r#"
        +-------+------+
        | value | host |
        +-------+------+
        | 1.0   | x    |
        +-------+------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT metric, count(*) FROM samples GROUP BY metric ORDER BY metric",
        expect![[r#"
        +---------------+----------+
        | metric        | count(*) |
        +---------------+----------+
        | Load          | 1        |
        | it's "quoted" | 1        |
        | odd           | 1        |
        | samples       | 1        |
        | sys.cpu.user  | 1        |
        +---------------+----------+"#]],
    )
    .await;
    check(
        &asked,
        r#"SELECT value, "wärme" FROM "it's ""quoted""" WHERE "wärme" = 'größe 1'"#,
        expect![[r#"
        +-------+---------+
        | value | wärme   |
        +-------+---------+
        | 1.0   | größe 1 |
        +-------+---------+"#]],
    )
    .await;
    check(
        &asked,
        "SELECT * FROM odd",
        expect![[r#"
            +----------------------+-------+-----------+------+-------+----------+------------+------+--------+-----------+
            | ts                   | value | value_int | node | job   | tag_node | tag_tag_ts | tags | tag_ts | tag_value |
            +----------------------+-------+-----------+------+-------+----------+------------+------+--------+-----------+
            | 2024-01-01T00:00:00Z | 1.0   | 1         | n1   | local | w        | u          | z    | t      | v         |
            +----------------------+-------+-----------+------+-------+----------+------------+------+--------+-----------+"#]],
    )
    .await;
    check(
        &asked,
        "SHOW TABLES",
        expect![[r#"
            +---------------+--------------------+---------------+------------+
            | table_catalog | table_schema       | table_name    | table_type |
            +---------------+--------------------+---------------+------------+
            | telem         | public             | samples       | BASE TABLE |
            | telem         | public             | series        | BASE TABLE |
            | telem         | public             | metrics       | BASE TABLE |
            | telem         | public             | nodes         | BASE TABLE |
            | telem         | public             | jobs          | BASE TABLE |
            | telem         | public             | notes         | BASE TABLE |
            | telem         | public             | inventory     | BASE TABLE |
            | telem         | public             | job_energy    | BASE TABLE |
            | telem         | public             | alarms        | BASE TABLE |
            | telem         | public             | Load          | BASE TABLE |
            | telem         | public             | it's "quoted" | BASE TABLE |
            | telem         | public             | odd           | BASE TABLE |
            | telem         | public             | sys.cpu.user  | BASE TABLE |
            | telem         | information_schema | tables        | VIEW       |
            | telem         | information_schema | views         | VIEW       |
            | telem         | information_schema | columns       | VIEW       |
            | telem         | information_schema | df_settings   | VIEW       |
            | telem         | information_schema | schemata      | VIEW       |
            | telem         | information_schema | routines      | VIEW       |
            | telem         | information_schema | parameters    | VIEW       |
            +---------------+--------------------+---------------+------------+"#]],
    )
    .await;
    for like in ["LIKE 'o_d'", "ILIKE 'O%D'"] {
        check(
            &asked,
            &format!("SHOW TABLES {like}"),
            expect![[r#"
                +---------------+--------------+------------+------------+
                | table_catalog | table_schema | table_name | table_type |
                +---------------+--------------+------------+------------+
                | telem         | public       | odd        | BASE TABLE |
                +---------------+--------------+------------+------------+"#]],
        )
        .await;
    }
    check(
        &asked,
        "SHOW TABLES LIKE 'it''s%'",
        expect![[r#"
            +---------------+--------------+---------------+------------+
            | table_catalog | table_schema | table_name    | table_type |
            +---------------+--------------+---------------+------------+
            | telem         | public       | it's "quoted" | BASE TABLE |
            +---------------+--------------+---------------+------------+"#]],
    )
    .await;
    // Never another question than the one that was asked.
    for more in ["FROM nowhere LIKE 'o%'", "LIKE 'o%' LIMIT 1", "LIKE 'o%' STARTS WITH 'x'"] {
        asked.try_answer(&format!("SHOW TABLES {more}")).await.unwrap_err();
    }
    asked.try_answer("SHOW FULL TABLES LIKE 'o%'").await.unwrap_err();
    check(
        &asked,
        "DESCRIBE Load",
        expect![[r#"
            +-------------+----------------------+-------------+
            | column_name | data_type            | is_nullable |
            +-------------+----------------------+-------------+
            | ts          | Timestamp(µs, "UTC") | NO          |
            | value       | Float64              | NO          |
            | value_int   | Int64                | YES         |
            | node        | Utf8View             | NO          |
            | job         | Utf8View             | NO          |
            | Rack        | Utf8View             | YES         |
            | rack        | Utf8View             | YES         |
            +-------------+----------------------+-------------+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_metric_that_appears_later_is_found() {
    let asked = Asked::load("load{host=a} 0:1");
    assert!(asked.answer("SELECT * FROM late").await.starts_with("NotFound"));
    let asked = asked.and("late{host=a} 0:1");
    check(
        &asked,
        "SELECT value FROM late",
        expect![[r#"
        +-------+
        | value |
        +-------+
        | 1.0   |
        +-------+"#]],
    )
    .await;
}

/// Never ends before any deadline, and yields to those who would stop it.
const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 1000000000000000)";

#[tokio::test]
async fn a_query_over_its_deadline_ends_in_an_error_and_others_go_on() {
    // Enough for a short query on a machine that is busy.
    let asked = Asked::with(QueryOptions { deadline: Duration::from_secs(5), ..options() });
    check(
        &asked,
        ENDLESS,
        expect![
            "Unavailable: the query did not finish within 5 s (limit --query-deadline); query less time or fewer series"
        ],
    )
    .await;
    check(
        &asked,
        "SELECT 1",
        expect![[r#"
        +----------+
        | Int64(1) |
        +----------+
        | 1        |
        +----------+"#]],
    )
    .await;
}

#[tokio::test]
async fn a_deadline_without_time_stops_even_planning() {
    let asked = Asked::with(QueryOptions { deadline: Duration::ZERO, ..options() });
    let error = asked.try_answer(ENDLESS).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
}

/// The sum over every second of `load`.
fn load() -> TsQuery {
    TsQuery {
        metric: "load".to_owned(),
        filters: Vec::new(),
        explicit_tags: false,
        series: None,
        aggregator: Aggregator::Sum,
        downsample: None,
        rate: None,
        start: Timestamp::MIN,
        end: Timestamp::MAX,
        fidelity: Fidelity::Sensible,
    }
}

#[tokio::test]
async fn the_questions_of_a_round_share_one_deadline() {
    let asked = Asked::load("load{host=a} 0:1");
    let mut round = asked.queries.round();
    assert_eq!(round.timeseries(load()).await.unwrap().groups.len(), 1);
    round.due.at -= round.due.after;
    let error = round.timeseries(load()).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert_eq!(asked.queries.round().timeseries(load()).await.unwrap().groups.len(), 1);
}

#[tokio::test]
async fn small_questions_are_answered_together_up_to_the_first_that_cannot_be() {
    let asked = Asked::load("load{host=a} 0:1\nload{host=b} 0:2\nmem{host=a} 0:3");
    let named = |metric: &str| TsQuery { metric: metric.to_owned(), ..load() };
    let questions = [load(), named("mem"), named("disk"), load()];
    let round = asked.queries.round();
    let together = round.timeseries_together(questions.iter()).await.unwrap();
    let told: Vec<_> = together.iter().map(|timed| timed.answer.as_ref().map(|answer| answer.groups.len())).collect();
    assert!(matches!(told[..], [Ok(1), Ok(1), Err(Error::UnknownName { .. })]), "{told:?}");
    for (query, timed) in questions.iter().zip(together) {
        let alone = round.timeseries(query.clone()).await;
        assert_eq!(format!("{alone:?}"), format!("{:?}", timed.answer));
    }
    assert_eq!(asked.queries.stats().running, 0);
    assert!(round.timeseries_together([].iter()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_question_about_many_series_is_asked_alone() {
    let asked = Asked::empty();
    for host in 0..200 {
        asked.put("wide", &[("host", &host.to_string())], [(0, Value::Int(host))]);
    }
    asked.load_more("load{host=a} 0:1");
    let wide = TsQuery { metric: "wide".to_owned(), ..load() };
    let together = |questions: Vec<TsQuery>| {
        let round = asked.queries.round();
        async move { round.timeseries_together(questions.iter()).await.unwrap().len() }
    };
    assert_eq!(together(vec![wide.clone(), load(), load()]).await, 1);
    assert_eq!(together(vec![load(), load(), wide, load()]).await, 2);
}

#[tokio::test]
async fn much_of_an_answer_is_handed_out_before_the_next_question() {
    let asked = Asked::empty();
    asked.put("load", &[("host", "a")], (0..40_000).map(|second| (second, Value::Int(second))));
    let round = asked.queries.round();
    let questions = [load(), load(), load()];
    assert_eq!(round.timeseries_together(questions.iter()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn the_questions_of_a_round_see_one_state_of_the_database() {
    let asked = Asked::load("load{host=a} 0:1");
    let round = asked.queries.round();
    asked.load_more("load{host=a} 60:2");
    for (answer, points) in [(round.timeseries(load()).await, 1), (asked.queries.timeseries(load()).await, 2)] {
        assert_eq!(answer.unwrap().groups[0].points.len(), points);
    }
}

#[tokio::test]
async fn a_query_over_the_memory_ends_in_an_error_and_others_go_on() {
    let asked = Asked::with(QueryOptions { memory_bytes_max: 1 << 20, ..options() });
    for sql in [
        "SELECT value FROM generate_series(1, 10000000) ORDER BY value DESC",
        "SELECT value, count(*) FROM generate_series(1, 10000000) GROUP BY value ORDER BY 1 LIMIT 1",
    ] {
        let error = asked.try_answer(sql).await.unwrap_err();
        assert!(matches!(error, Error::Memory(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("--query-memory"), "{error}");
    }
    check(
        &asked,
        "SELECT 1",
        expect![[r#"
        +----------+
        | Int64(1) |
        +----------+
        | 1        |
        +----------+"#]],
    )
    .await;
}

#[tokio::test]
async fn one_query_too_many_is_busy_until_another_ends() {
    let asked = Asked::with(QueryOptions { queries_max: 1, queries_waiting_max: 0, ..options() });
    let running = asked.queries.sql(ENDLESS).await.unwrap();
    let error = asked.try_answer("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::TooManyQueries { running: 1 }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(running);
    // The place is given back when the other thread has let go of the query.
    loop {
        match asked.try_answer("SELECT 1").await {
            Ok(_) => break,
            Err(Error::TooManyQueries { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn a_join_that_multiplies_its_rows_gives_its_place_back() {
    let asked = Asked::with(QueryOptions { queries_max: 1, queries_waiting_max: 1, ..options() });
    for condition in ["true", "a.value % 2 = b.value % 2"] {
        // 10^12 rows, from leaves that are soon read.
        let sql = format!(
            "SELECT sum(a.value * b.value) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b \
             WHERE {condition}"
        );
        drop(asked.queries.sql(&sql).await.unwrap());
        // Its turn comes only when the other query has ended.
        asked.answer("SELECT 1").await;
    }
}

#[tokio::test]
async fn a_query_waits_its_turn() {
    let asked = Asked::with(QueryOptions { queries_max: 1, queries_waiting_max: 1, ..options() });
    let running = asked.queries.sql(ENDLESS).await.unwrap();
    let ending = async move {
        tokio::task::yield_now().await;
        drop(running);
    };
    let (answer, ()) = tokio::join!(asked.answer("SELECT 1 AS one"), ending);
    expect![[r#"
        +-----+
        | one |
        +-----+
        | 1   |
        +-----+"#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_busy() {
    let asked = Asked::with(QueryOptions { queries_max: 1, queue_wait: Duration::from_millis(1), ..options() });
    let _running = asked.queries.sql(ENDLESS).await.unwrap();
    let error = asked.try_answer("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::TooManyQueries { .. }), "{error:?}");
}

/// Asks what does not end before it is released, until its time is over.
async fn outlive(asked: &Asked, key: &str) {
    let error = asked.try_answer(&format!("SELECT hold('{key}') FROM load")).await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
}

/// Waits until so many questions are left behind.
async fn left_behind(asked: &Asked, count: u64) {
    while asked.queries.stats().left_behind != count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn questions_that_outlive_their_time_hold_no_place_until_there_are_too_many() {
    // Enough for a short query on a machine that is busy.
    let bounds = QueryOptions { deadline: Duration::from_secs(5), queries_max: 1, left_behind_max: 2, ..options() };
    let asked = Asked::with(QueryOptions { threads: 1, ..bounds }).and("load{host=a} 0:1");
    for count in [1, 2] {
        let before = asked.try_answer("SELECT 1").await;
        assert!(before.is_ok(), "with {} left behind: {before:?}", count - 1);
        outlive(&asked, &format!("outlives {count}")).await;
        left_behind(&asked, count).await;
    }
    let error = asked.try_answer("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::LeftBehind { count: 2 }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Busy);
    expect![
        "2 SQL queries still run after their time was over, so no more SQL is accepted until one of them ends; time-series queries are answered"
    ]
    .assert_eq(&error.to_string());
    assert_eq!(asked.queries.timeseries(load()).await.unwrap().groups.len(), 1);

    release("outlives 1");
    left_behind(&asked, 1).await;
    asked.try_answer("SELECT 1").await.unwrap();
    release("outlives 2");
    left_behind(&asked, 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_place_back_though_its_query_does_not_end() {
    let asked = Asked::with(QueryOptions { queries_max: 1, threads: 1, ..options() }).and("load{host=a} 0:1");
    drop(asked.queries.sql("SELECT hold('left') FROM load").await.unwrap());
    // It waits for its turn.
    asked.try_answer("SELECT 1").await.unwrap();
    release("left");
    left_behind(&asked, 0).await;
}

#[tokio::test]
async fn sql_leaves_a_quarter_of_the_places_to_time_series() {
    let bounds = QueryOptions { queries_max: 4, queries_waiting_max: 0, ..options() };
    let asked = Asked::with(bounds).and("load{host=a} 0:1");
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(asked.queries.sql(ENDLESS).await.unwrap());
    }
    let error = asked.try_answer("SELECT 1").await.unwrap_err();
    assert!(matches!(error, Error::TooManyQueries { .. }), "{error:?}");
    assert_eq!(asked.queries.timeseries(load()).await.unwrap().groups.len(), 1);
}

#[tokio::test]
async fn what_is_held_up_ends_with_the_process() {
    let asked = Asked::with(QueryOptions { deadline: Duration::from_millis(200), ..options() });
    asked.load_more("load{host=a} 0:1");
    outlive(&asked, "for ever").await;
    // Nothing waits for its thread.
    drop(asked);
}

#[tokio::test]
async fn a_text_that_is_too_long_or_nested_too_deep_is_refused() {
    let asked = Asked::empty();
    let long = format!("SELECT '{}'", "x".repeat(1 << 20));
    expect!["Invalid: the SQL has 1048585 bytes; at most 1048576 are allowed"].assert_eq(&asked.answer(&long).await);
    let deep = format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000));
    expect!["Invalid: cannot read the SQL: sql parser error: recursion limit exceeded"]
        .assert_eq(&asked.answer(&deep).await);
}

#[tokio::test]
async fn a_chain_of_operators_is_answered_up_to_its_limit_and_refused_above() {
    let asked = Asked::empty();
    let chain = |first: &str, link: &str, links: usize| format!("SELECT {first}{}", link.repeat(links));
    for (first, link) in [("1", " + 1"), ("true", " OR true"), ("1", "::int"), ("1", " UNION ALL SELECT 1")] {
        let answer = asked.try_answer(&chain(first, link, 40)).await;
        assert!(answer.is_ok(), "{link}: {answer:?}");
        let error = asked.try_answer(&chain(first, link, 1_001)).await.unwrap_err().to_string();
        assert!(error.contains("has 1001 operators; at most 1000"), "{link}: {error}");
    }
    let list = format!("SELECT 1 IN ({}1)", "2, ".repeat(2_000));
    assert!(asked.try_answer(&list).await.is_ok());
    let tables = format!("SELECT 1 FROM nodes a0{}", (1..=100).map(|at| format!(", nodes a{at}")).collect::<String>());
    expect!["Invalid: the SQL names tables 101 times; at most 100 are allowed"].assert_eq(&asked.answer(&tables).await);
}

#[tokio::test]
async fn the_longest_chains_that_are_allowed_do_not_end_the_process() {
    let asked = Asked::empty();
    let sum = format!("SELECT 1{}", " + 1".repeat(1_000));
    let answer = asked.try_answer(&sum).await;
    assert!(answer.is_ok(), "{answer:?}");
}

#[tokio::test]
async fn an_answer_holds_what_was_there_when_it_was_asked_for() {
    let asked = Asked::empty();
    asked.put("load", &[("host", "a")], (0..50_000).map(|at| (at, Value::Int(at))));
    let mut answer = asked.queries.sql("SELECT value FROM load").await.unwrap();
    asked.put("load", &[("host", "a")], (50_000..50_010).map(|at| (at, Value::Int(at))));
    let (mut rows, mut batches) = (0, 0);
    while let Some(batch) = answer.batches.next().await {
        rows += batch.unwrap().num_rows();
        batches += 1;
    }
    assert_eq!((rows, batches), (50_000, 7));
}

#[tokio::test]
async fn a_panic_in_a_plan_is_a_bug_of_ours_and_others_go_on() {
    let asked = Asked::empty();
    let workers = &asked.queries.inner.workers;
    for thread in [LeafThread::OfItsOwn, LeafThread::OfTheQuery] {
        let ticket = workers.admit(QueryLanguage::TimeSeries, workers.due()).await.unwrap();
        let panicking = workers.run::<()>(ticket, Stop::default(), thread, async { panic!("lost the thread") });
        let error = panicking.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        expect!["bug in telem: the query panicked: lost the thread"].assert_eq(&error.to_string());
    }
    check(
        &asked,
        "SELECT 1",
        expect![[r#"
        +----------+
        | Int64(1) |
        +----------+
        | 1        |
        +----------+"#]],
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_nobody_reads_stops_its_leaves() {
    let asked = Asked::empty();
    let workers = &asked.queries.inner.workers;
    for thread in [LeafThread::OfItsOwn, LeafThread::OfTheQuery] {
        let stop = Stop::default();
        let ticket = workers.admit(QueryLanguage::TimeSeries, workers.due()).await.unwrap();
        let (held, mut ended) = tokio::sync::mpsc::channel::<()>(1);
        let running = workers.run::<()>(ticket, stop.clone(), thread, async move {
            let _held = held;
            std::future::pending().await
        });
        assert!(!stop.is_asked());
        drop(running);
        assert!(stop.is_asked());
        assert_eq!(tokio::time::timeout(Duration::from_secs(180), ended.recv()).await, Ok(None), "its work goes on");
    }
}

#[test]
fn queries_may_be_dropped_where_async_code_runs() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let asked = Asked::empty();
        let _answer = asked.queries.sql(ENDLESS).await.unwrap();
        drop(asked);
    });
}

#[tokio::test]
async fn functions_that_make_any_amount_of_memory_of_a_number_are_not_there() {
    let asked = Asked::empty();
    for sql in [
        "SELECT repeat('x', 2000000000)",
        "SELECT range(0, 100000000000)",
        "SELECT generate_series(0, 100000000000)",
        "SELECT list_repeat(1, 100000000000)",
        "SELECT list_resize([1], 100000000000)",
        "SELECT lpad('x', 2000000000), rpad('x', 2000000000)",
        "SELECT array_transform([1], x -> 'a long text'), list_filter([1], x -> true), any_match([1], x -> true)",
    ] {
        let answer = asked.answer(sql).await;
        assert!(answer.starts_with("Invalid: Invalid function"), "{sql}\n{answer}");
    }
    check(
        &asked,
        "SELECT count(*) FROM generate_series(1, 100000)",
        expect![[r#"
        +----------+
        | count(*) |
        +----------+
        | 100000   |
        +----------+"#]],
    )
    .await;
}

#[tokio::test]
async fn plans_and_columns_can_be_asked_for() {
    let asked = Asked::load("load{host=a} 0:1");
    check(
        &asked,
        "SHOW COLUMNS FROM load",
        expect![[r#"
            +---------------+--------------+------------+-------------+----------------------+-------------+
            | table_catalog | table_schema | table_name | column_name | data_type            | is_nullable |
            +---------------+--------------+------------+-------------+----------------------+-------------+
            | telem         | public       | load       | ts          | Timestamp(µs, "UTC") | NO          |
            | telem         | public       | load       | value       | Float64              | NO          |
            | telem         | public       | load       | value_int   | Int64                | YES         |
            | telem         | public       | load       | node        | Utf8View             | NO          |
            | telem         | public       | load       | job         | Utf8View             | NO          |
            | telem         | public       | load       | host        | Utf8View             | YES         |
            +---------------+--------------+------------+-------------+----------------------+-------------+"#]],
    )
    .await;
    check(&asked, "EXPLAIN FORMAT INDENT SELECT sum(value) FROM load WHERE host = 'a'", expect![[r#"
        +---------------+--------------------------------------------------------------------------------------------+
        | plan_type     | plan                                                                                       |
        +---------------+--------------------------------------------------------------------------------------------+
        | logical_plan  | Projection: sum(load.digest:sum) AS sum(load.value)                                        |
        |               |   Aggregate: groupBy=[[]], aggr=[[sum(load.digest:sum)]]                                   |
        |               |     TableScan: load projection=[digest:sum], full_filters=[load.host = Utf8View("a")]      |
        | physical_plan | ProjectionExec: expr=[sum(load.digest:sum)@0 as sum(load.value)]                           |
        |               |   AggregateExec: mode=Final, gby=[], aggr=[sum(load.digest:sum)]                           |
        |               |     CoalescePartitionsExec                                                                 |
        |               |       AggregateExec: mode=Partial, gby=[], aggr=[sum(load.digest:sum)]                     |
        |               |         NodeLeafExec: Rows: Digest, columns=[sum], metric in ["load"], tags[host] in ["a"] |
        |               |                                                                                            |
        +---------------+--------------------------------------------------------------------------------------------+"#]]).await;
    let analyzed = asked.answer("EXPLAIN ANALYZE SELECT * FROM load").await;
    assert!(analyzed.contains("NodeLeafExec") && analyzed.contains("output_rows=1"), "{analyzed}");
}

#[tokio::test]
async fn rows_can_be_had_in_the_order_in_which_samples_are_stored() {
    // Enough series for several parts of a leaf; late samples stand in memory, early ones in segments.
    let asked = Asked::empty();
    for series in (0..40).rev() {
        let host = format!("h{series:02}");
        asked.put("load", &[("host", &host)], (500..1_000).map(|at| (at, Value::Int(at))));
        asked.put("a", &[("host", &host), ("core", "0")], [(1, Value::Int(1))]);
    }
    asked.db.flush().unwrap();
    for series in 0..40 {
        asked.put("load", &[("host", &format!("h{series:02}"))], (0..500).map(|at| (at, Value::Int(at))));
    }
    let sql = "SELECT metric, host, ts FROM samples WHERE ts >= TIMESTAMP '2024-01-01T00:00:01Z'";
    let answer = asked.queries.sql_in(RowOrder::Stored, sql).await.unwrap();
    let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
    let all = concat_batches(&batches[0].schema(), &batches).unwrap();
    let columns: Vec<SortColumn> =
        all.columns().iter().map(|values| SortColumn { values: Arc::clone(values), options: None }).collect();
    let sorted = lexsort_to_indices(&columns, None).unwrap();
    assert_eq!(all.num_rows(), 40 * 1_000);
    assert!(sorted.values().iter().enumerate().all(|(at, from)| at == *from as usize));
}

#[tokio::test]
async fn a_regular_expression_that_is_too_large_is_the_fault_of_the_question() {
    let asked = Asked::load("m{host=a} 0:1");
    let large = "(a{1000}){1000}";
    for condition in [
        format!("host ~ '{large}'"),
        format!("host !~* '{large}'"),
        format!("CAST(value AS VARCHAR) ~ '{large}'"),
        format!("host SIMILAR TO '{large}'"),
        format!("regexp_like(host, '{large}')"),
        format!("regexp_count(host, '{large}') > 0"),
        format!("regexp_replace(host, '{large}', 'x') = 'x'"),
        format!("host IN (SELECT host FROM m WHERE host ~ '{large}')"),
    ] {
        let answer = asked.answer(&format!("SELECT value FROM m WHERE {condition}")).await;
        let expected =
            "Invalid: the regular expression '(a{1000}){1000}': it is too large: compiled it takes more than 1024 KiB";
        assert!(answer.starts_with(expected), "{condition}: {answer}");
    }
    // Where it comes from rows.
    let answer = asked.answer("SELECT regexp_like(host, concat('(a{1000})', '{', 1000 * value_int, '}')) FROM m").await;
    assert!(answer.starts_with("Invalid: ") && answer.contains("too large"), "{answer}");
    let error = Expression::new(large, Case::Matters).unwrap_err();
    assert!(error.starts_with("it is too large"), "{error}");
}

/// Two runs on one node, with the same series at the same times.
fn two_runs() -> Asked {
    let run = |id: &str| serde_json::json!({"id": id, "start": "2024-01-01T00:00:00Z"});
    Asked::runs(&[
        ("n1", run("a"), "loss{rank=0} 0:9 60:1\nloss{rank=1} 0:5\nother{job=mine} 0:1"),
        ("n1", run("b"), "loss{rank=0} 0:8 60:2\nother{job=mine} 0:2"),
    ])
}

/// The groups of a query for `metric` with a filter on the tag `job`: tags, aggregated tags, values.
async fn by_job(asked: &Asked, metric: &str, matcher: Matcher, group_by: bool) -> String {
    let at = |seconds| Timestamp::from_seconds(EPOCH_SECONDS + seconds);
    let filters = vec![TagFilter { key: "job".to_owned(), matcher, group_by }];
    let query = TsQuery { filters, ..TsQuery::new(metric, Aggregator::Sum, at(0), at(100)) };
    if let Err(error) = asked.queries.round().check(&query) {
        return format!("{:?}: {error}", error.kind());
    }
    match asked.queries.timeseries(query).await {
        Ok(answer) => {
            let group = |group: &crate::answer::TsGroup| {
                let values: Vec<String> = group.points.iter().map(|(_, value)| value.as_f64().to_string()).collect();
                format!(
                    "{:?} {:?} {}",
                    group.tags.iter().collect::<BTreeMap<_, _>>(),
                    group.aggregate_tags,
                    values.join(" ")
                )
            };
            answer.groups.iter().map(group).collect::<Vec<_>>().join("\n")
        }
        Err(error) => format!("{:?}: {error}", error.kind()),
    }
}

#[tokio::test]
async fn saved_runs_with_equal_series_are_told_apart_by_a_tag_that_is_not_stored() {
    let asked = two_runs();
    let any = || Matcher::Wildcard("*".to_owned());
    let one = |job: &str| Matcher::LiteralOr(vec![job.to_owned()]);
    let expected = expect![[r#"
        {"job": "a"} ["rank"] 14 1
        {"job": "b", "rank": "0"} [] 8 2"#]];
    expected.assert_eq(&by_job(&asked, "loss", any(), true).await);
    let expected = expect![[r#"{"job": "a"} ["rank"] 14 1"#]];
    expected.assert_eq(&by_job(&asked, "loss", one("a"), false).await);
    // Both at once: nothing of the one hides anything of the other.
    let expected = expect![[r#"{} ["job", "rank"] 22 3"#]];
    expected.assert_eq(&by_job(&asked, "loss", any(), false).await);
    let expected = expect!["NotFound: no series has the tag value 'c'"];
    expected.assert_eq(&by_job(&asked, "loss", one("c"), true).await);
    // A tag of that name is what it is.
    let expected = expect![[r#"{"job": "mine"} [] 2"#]];
    expected.assert_eq(&by_job(&asked, "other", any(), true).await);
}

/// What a fold makes of each line and bucket: `tags second sum/count least greatest`.
#[derive(Default)]
struct FoldedText(Vec<String>);

impl FoldSink for FoldedText {
    fn clear(&mut self) {
        self.0.clear();
    }

    fn take(&mut self, rows: &FoldedRows<'_>) -> bool {
        let tags: Vec<String> =
            rows.tags.iter().map(|(key, value)| format!("{key}={}", value.unwrap_or("-"))).collect();
        for (at, time) in rows.times.iter().enumerate() {
            let second = time.micros() / 1_000_000 - EPOCH_SECONDS;
            let (sum, count, least, greatest) = (rows.sums[at], rows.counts[at], rows.least[at], rows.greatest[at]);
            self.0.push(format!("{} {second} {sum}/{count} {least} {greatest}", tags.join(",")));
        }
        true
    }
}

async fn folded(asked: &Asked, metric: &str, keys: &[&str], seconds: i64) -> Vec<String> {
    let at = |seconds| Timestamp::from_seconds(EPOCH_SECONDS + seconds);
    let filter = |key: &&str| TagFilter { key: (*key).to_owned(), matcher: Matcher::AnyOrNone, group_by: true };
    let step = telem_engine::Step::from_micros(seconds * 1_000_000).unwrap();
    let downsample = Downsample { interval: Interval::Fixed(step), function: Aggregator::Avg, fill: Fill::None };
    let query = TsQuery {
        filters: keys.iter().map(filter).collect(),
        downsample: Some(downsample),
        ..TsQuery::new(metric, Aggregator::Avg, at(0), at(119))
    };
    let (mut text, missing) = asked.queries.fold(query, FoldedText::default()).await.unwrap();
    assert_eq!(missing, []);
    text.0.sort();
    text.0
}

#[tokio::test]
async fn a_fold_has_all_samples_of_a_line_in_each_bucket_and_what_is_no_number_is_none() {
    let asked = Asked::load(
        "load{host=a,core=0} 0:1 10:3 70:8.5\nload{host=a,core=1} 5:6 61:NaN\nload{host=b} 0:NaN 130:1\nload{core=9} 119:4",
    );
    asked.db.flush().unwrap();
    asked.load_more("load{host=a,core=0} 20:-2.0 71:0.5");
    assert_eq!(
        folded(&asked, "load", &["host"], 60).await,
        ["host=- 60 4/1 4 4", "host=a 0 8/4 -2 6", "host=a 60 9/2 0.5 8.5"]
    );
    assert_eq!(folded(&asked, "load", &[], 120).await, [" 0 21/7 -2 8.5"]);
    // More buckets than are added up at once: lines are handed out in between.
    for host in 0..700 {
        asked.put("many", &[("host", &host.to_string())], (0..120).map(|second| (second, Value::Int(second + host))));
    }
    let many = folded(&asked, "many", &["host"], 1).await;
    assert_eq!(many.len(), 700 * 120);
    assert!(many.contains(&"host=699 119 818/1 818 818".to_owned()));
}

#[tokio::test]
async fn a_fold_tells_the_jobs_of_equal_series_apart() {
    let asked = two_runs();
    assert_eq!(
        folded(&asked, "loss", &["job"], 60).await,
        ["job=a 0 14/2 5 9", "job=a 60 1/1 1 1", "job=b 0 8/1 8 8", "job=b 60 2/1 2 2"]
    );
}

#[tokio::test]
async fn what_is_still_recorded_is_of_its_job_too() {
    let asked = Asked::load("loss{rank=0} 0:9");
    let expected = expect![[r#"{"job": "local", "rank": "0"} [] 9"#]];
    expected.assert_eq(&by_job(&asked, "loss", Matcher::Wildcard("*".to_owned()), true).await);
    let expected = expect!["NotFound: no series has the tag value 'c'"];
    expected.assert_eq(&by_job(&asked, "loss", Matcher::LiteralOr(vec!["c".to_owned()]), true).await);
}
