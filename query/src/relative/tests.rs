//! Which texts become times, and to which moment they are relative.

use std::sync::Arc;

use telem_engine::{Db, Options};

use crate::run::Queries;
use crate::testing::{Asked, StandingClock, load_into, open, options, rows};

/// At second 0, and every minute until the clock of the tests stands, at 600.
const LOAD: &str = "load{host=a} 0:0 60:1 120:2 180:3 240:4 300:5 360:6 420:7 480:8 540:9 600:10";

#[tokio::test]
async fn a_text_that_is_compared_with_a_time_or_cast_to_one_is_relative_to_now() {
    let asked = Asked::load(LOAD);
    for (filter, expected) in [
        ("ts > '5m-ago'", 5),
        ("ts >= '5m-ago'", 6),
        ("'5m-ago' < ts", 5),
        ("ts <= 'now'", 11),
        ("ts >= 'now'", 1),
        ("ts BETWEEN '4m-ago' AND '180s-ago'", 2),
        ("ts NOT BETWEEN '9m-ago' AND 'now'", 1),
        ("ts IN ('1m-ago', '2m-ago')", 2),
        ("ts > CAST('2m-ago' AS TIMESTAMP)", 2),
        ("ts > TIMESTAMP '2m-ago'", 2),
        ("ts > '2m-ago'::timestamp - INTERVAL '1 minute'", 3),
        ("time_bucket('5 minutes', ts) >= '5m-ago'", 6),
        ("host <> '5m-ago'", 11),
        ("host <> 'now' AND ts > '1m-ago'", 1),
    ] {
        let table = asked.answer(&format!("SELECT count(*) AS rows FROM load WHERE {filter}")).await;
        assert!(table.contains(&format!("| {expected} ")), "{filter}:\n{table}");
    }
}

#[tokio::test]
async fn relative_times_stand_in_subqueries_joins_selections_and_downsample() {
    let asked = Asked::load(LOAD);
    for (sql, expected) in [
        ("SELECT count(*) FROM (SELECT * FROM samples WHERE ts > '5m-ago') WHERE value > 5", "| 5 "),
        ("SELECT count(*) FROM load WHERE value IN (SELECT value FROM load WHERE ts > '2m-ago')", "| 2 "),
        ("SELECT count(*) FROM load a JOIN load b ON a.ts = b.ts AND a.ts > '3m-ago'", "| 3 "),
        ("SELECT sum(CASE WHEN ts > '5m-ago' THEN 1 ELSE 0 END) AS late FROM load", "| 5 "),
        ("WITH late AS (SELECT * FROM load WHERE ts > '5m-ago') SELECT count(*) FROM late", "| 5 "),
        ("SELECT count(*) FROM load WHERE ts > '9m-ago' UNION ALL SELECT -1", "| 9 "),
        ("SELECT count(*) FROM downsample('load', '1 minute', start => '5m-ago', stop => 'now')", "| 5 "),
        ("SELECT count(*) FROM downsample('load', '1 minute') WHERE ts > '5m-ago'", "| 5 "),
        ("SELECT ts > '5m-ago', count(*) FROM load GROUP BY 1 ORDER BY 1", "| false "),
    ] {
        let table = asked.answer(sql).await;
        assert!(table.contains(expected), "{sql}:\n{table}");
    }
}

#[tokio::test]
async fn a_filter_on_a_relative_time_chooses_what_is_read() {
    let plan = Asked::load(LOAD).plan("SELECT value FROM load WHERE ts > '5m-ago'").await;
    assert!(!plan.contains("FilterExec"), "{plan}");
}

#[tokio::test]
async fn of_a_saved_database_relative_times_count_from_its_last_sample() {
    let dir = tempfile::tempdir().unwrap();
    load_into(&open(&dir.path().join("db"), "n1"), "load{} 0:0 60:1 120:2\nother{} 125:1");
    let db = Db::open_read_only(&dir.path().join("db"), Options::default()).unwrap();
    let queries = Queries::new(db, options()).unwrap();
    let answer = async |sql: &str| rows(queries.sql(sql).await.unwrap().batches).await.unwrap();
    // At second 125, although the clock stands at 600.
    assert_eq!(answer("SELECT count(*) FROM samples WHERE ts >= '5s-ago'").await, "2");
    assert_eq!(answer("SELECT count(*) FROM samples WHERE ts >= '2m-ago'").await, "3");
    assert_eq!(answer("SELECT max(ts) = 'now' FROM samples").await, "true");
    assert_eq!(answer("SELECT count(*) FROM samples WHERE ts > now() - INTERVAL '5 minutes'").await, "0");
}

#[tokio::test]
async fn an_empty_saved_database_answers() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), "n1"));
    let options = Options { clock: Arc::new(StandingClock), ..Options::default() };
    let queries = Queries::new(Db::open_read_only(dir.path(), options).unwrap(), crate::testing::options()).unwrap();
    let answer = queries.sql("SELECT count(*) FROM samples WHERE ts > '5m-ago'").await.unwrap();
    assert_eq!(rows(answer.batches).await.unwrap(), "0");
}

#[tokio::test]
async fn a_distance_that_cannot_be_read_is_told_how_it_is_written() {
    let asked = Asked::load(LOAD);
    for (filter, named) in [("ts > '5y-ago'", "'5y-ago'"), ("ts > '5 m-ago'", "'5 m-ago'")] {
        let answer = asked.answer(&format!("SELECT count(*) FROM load WHERE {filter}")).await;
        assert!(answer.starts_with("Invalid: ") && answer.contains(named) && answer.contains("5m-ago"), "{answer}");
    }
}
