//! Questions about few rows are planned by fewer rules and read on one thread: with the same plans and answers.

use datafusion::physical_plan::displayable;
use telem_engine::Value;

use super::*;
use crate::options::{QueryOptions, RowOrder};
use crate::session::Session;
use crate::testing::{Asked, options};

/// Over `load` of three hosts in a segment and in memory, and `power` of two.
fn asked(one_thread_rows_max: u64) -> Asked {
    let asked = Asked::with(QueryOptions { one_thread_rows_max, ..options() });
    let load = |host: &str, seconds: std::ops::Range<i64>| {
        let sample = |at: i64| (at, Value::Float((at * 37 % 101) as f64 / 4.0));
        asked.put("load", &[("host", host), ("rack", &host[..1])], seconds.map(sample));
    };
    load("a1", 0..300);
    load("a2", 10..200);
    asked.db.flush().unwrap();
    load("a2", 150..320);
    load("b1", 0..40);
    asked.put("power", &[("host", "a1")], (0..60).map(|at| (at, Value::Int(at * at))));
    asked.put("power", &[("host", "b1")], (0..60).map(|at| (at, Value::Int(90 - at))));
    asked
}

const PLAIN: [&str; 21] = [
    "SELECT ts, value FROM load WHERE host = 'a1' ORDER BY ts",
    "SELECT ts, host, value FROM load WHERE value > 24 AND rack = 'a' ORDER BY host, ts",
    "SELECT ts, value * 2 AS twice FROM load WHERE host IN ('a1', 'b1') ORDER BY twice DESC, ts, value LIMIT 7",
    "SELECT host, max(value) AS most, count(*) AS samples FROM load GROUP BY host ORDER BY host",
    "SELECT time_bucket('1m', ts) AS minute, rack, avg(value) FROM load GROUP BY 1, 2 HAVING count(*) > 3 ORDER BY 1, 2",
    "SELECT host, last(value, ts) FROM load WHERE ts >= '2024-01-01T00:01:00Z' GROUP BY host ORDER BY host",
    "SELECT sum(value) FROM load WHERE host = 'nobody'",
    "SELECT metric, tags['host'] AS host, min(value) FROM samples WHERE metric = 'power' GROUP BY 1, 2 ORDER BY 2",
    "SELECT metric, series FROM metrics ORDER BY metric",
    "SELECT * FROM (SELECT host, value FROM load WHERE ts < '2024-01-01T00:00:05Z') WHERE value < 10 ORDER BY host, value",
    "SELECT host, value FROM load ORDER BY value DESC, host, ts LIMIT 3 OFFSET 2",
    "SELECT 1 + 2 AS three",
    "SELECT upper(host) AS name, stddev(value) FROM load WHERE host LIKE 'a%' GROUP BY host ORDER BY 1",
    "SELECT count(*) FROM load WHERE false",
    "SELECT host, max(value) FROM load GROUP BY host HAVING host = 'a1' AND max(value) > 3 ORDER BY 1 LIMIT 2",
    "SELECT CAST(ts AS DATE) AS day, count(*) FROM load GROUP BY 1 HAVING CAST(ts AS DATE) = '2024-01-01' ORDER BY 1",
    "SELECT host, rack, sum(value) FROM load GROUP BY ROLLUP (host, rack) ORDER BY 1, 2",
    "SELECT host FROM load WHERE rack = 'a' ORDER BY ts, host LIMIT 4",
    "SELECT count(*) FILTER (WHERE value > 3) AS high, count(*) FROM load WHERE host = 'a1'",
    "SELECT tags['host'] AS host, value FROM samples WHERE tags['rack'] = 'a' AND metric = 'load' ORDER BY ts, 1 LIMIT 5",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v (n, name) WHERE n > 1",
];
const OTHERS: [&str; 8] = [
    "SELECT DISTINCT rack FROM load ORDER BY rack",
    "SELECT count(DISTINCT host) FROM load",
    "SELECT load.ts, load.value, power.value AS w FROM load JOIN power ON load.ts = power.ts AND load.host = power.host \
     WHERE load.host = 'a1' ORDER BY load.ts LIMIT 5",
    "SELECT host FROM load UNION SELECT host FROM power ORDER BY host",
    "SELECT host, value FROM load WHERE value = (SELECT max(value) FROM load) ORDER BY host, ts",
    "SELECT host, ts, row_number() OVER (PARTITION BY host ORDER BY ts) AS n FROM load ORDER BY host, n LIMIT 4",
    "SELECT host FROM load WHERE host IN (SELECT host FROM power WHERE value > 3000) GROUP BY host",
    "WITH few AS (SELECT * FROM load LIMIT 3) SELECT count(*) FROM few",
];

#[tokio::test]
async fn one_thread_answers_what_several_do() {
    let (one, several) = (asked(64 << 10), asked(0));
    for sql in PLAIN.iter().chain(&OTHERS) {
        let answer = one.answer(sql).await;
        assert!(answer.starts_with('+'), "{sql}: {answer}");
        assert_eq!(answer, several.answer(sql).await, "{sql}");
    }
}

#[tokio::test]
async fn what_reads_little_has_one_part_and_what_may_be_much_has_several() {
    let is_one = async |asked: &Asked, sql: &str| {
        let plan = asked.plan(sql).await;
        assert!(plan.contains("NodeLeafExec"), "{plan}");
        !plan.contains("Coalesce") && !plan.contains("mode=Partial")
    };
    let (sum, all) = ("SELECT sum(value * 2) FROM load WHERE host = 'a1'", "SELECT sum(value * 2) FROM load");
    // 300 samples, and of all hosts 700: those that were written again and those out of the range of a memtable count.
    let asked = asked(300);
    assert!(is_one(&asked, sum).await);
    assert!(!is_one(&asked, all).await);
    assert!(
        !is_one(&asked, "SELECT sum(value) FROM load WHERE host = 'a1' UNION ALL SELECT sum(value * 2) FROM load")
            .await
    );
    // A join may make 60 rows of each.
    let join =
        "SELECT sum(l.value + p.value) FROM load l JOIN power p ON l.ts > p.ts WHERE l.host = 'a1' AND p.host = 'a1'";
    assert!(asked.plan(join).await.contains("mode=Partial"));
}

#[test]
fn every_rule_that_plain_plans_do_without_is_there() {
    let session = Session::new(&options()).unwrap();
    assert_eq!(PlainRules::unknown(session.template()), Vec::<&str>::new());
}

#[tokio::test]
async fn rules_that_are_left_out_change_no_plain_plan() {
    let (asked, options) = (asked(64 << 10), QueryOptions { one_thread_rows_max: 64 << 10, ..options() });
    let session = Session::new(&options).unwrap();
    let view = View::alone(asked.db.snapshot());
    let state = || {
        let context = LeafContext::new(view.snapshot.clone());
        session.state(&context, &view, options.clock.now(), RowOrder::Any)
    };
    // Each pass counts on where it names what it takes out of several expressions.
    let numbers = regex::Regex::new(r"(__[a-z]+_[a-z]+_)\d+").unwrap();
    for sql in PLAIN.map(str::to_owned).into_iter().chain(made_up()) {
        let mut plain = state();
        let logical = plain.statement_to_plan(parse(&sql).unwrap()).await.unwrap();
        assert!(PlainPlan::of(&logical).is_some(), "{sql}");
        let plan = physical(&logical, &mut plain, &view, session.plain()).await.unwrap();
        // By all rules, on one thread as well.
        let mut all = state();
        let context = LeafContext { thread: LeafThread::OfTheQuery, ..LeafContext::new(view.snapshot.clone()) };
        all.config_mut().set_extension(Arc::new(context));
        all.config_mut().options_mut().execution.target_partitions = 1;
        let expected = all.query_planner().create_physical_plan(&all.optimize(&logical).unwrap(), &*all).await.unwrap();
        let shown = |plan: Arc<dyn ExecutionPlan>| {
            numbers.replace_all(&displayable(&*plan).indent(true).to_string(), "$1").into_owned()
        };
        assert_eq!(shown(plan), shown(expected), "{sql}");
    }
    for sql in OTHERS {
        let logical = state().statement_to_plan(parse(sql).unwrap()).await.unwrap();
        assert_eq!(PlainPlan::of(&logical).is_some(), sql.starts_with("WITH"), "{sql}");
    }
}

/// Plain statements of parts that are put together in all ways.
fn made_up() -> impl Iterator<Item = String> {
    let selects = [
        // Whose samples they are is not told without reading.
        "ts, value, value_int, host, rack, node",
        "ts, value",
        "value, host AS h, ts",
        "upper(host), value + 1 AS more, ts",
        "count(*), max(value)",
        "host, avg(value) AS mean",
        "time_bucket('1m', ts) AS minute, rack, sum(value), last(value, ts)",
        "upper(host), count(*) + 1 AS more",
    ];
    let filters = [
        "",
        "WHERE host = 'a1'",
        "WHERE value > 3 AND ts >= '2024-01-01T00:00:10Z' AND host IN ('a1', 'b1')",
        "WHERE value_int IS NULL OR value * 2 > 7",
        "WHERE host LIKE 'a%' AND value_int > 2 AND upper(rack) = 'A' AND 1 = 1",
        "WHERE 1 = 2 AND value > 3",
        "WHERE host = 'a1' AND host = 'b1'",
        "WHERE value = 1 AND value = 2 AND value_int > 0",
        "WHERE ts > now() - INTERVAL '1 hour' AND CASE WHEN host = 'a1' THEN value > 3 ELSE true END",
        "AS l WHERE l.host = 'a1' AND NOT (l.value < 2)",
    ];
    let orders = ["", "ORDER BY 1", "ORDER BY 2 DESC, 1", "LIMIT 3", "ORDER BY 1, 2 LIMIT 4 OFFSET 1", "LIMIT 0"];
    let groups = ["", "", "", "", "", "GROUP BY host", "GROUP BY 1, 2", "GROUP BY 1"];
    selects.into_iter().zip(groups).flat_map(move |(select, group)| {
        filters.into_iter().flat_map(move |filter| {
            orders.into_iter().map(move |order| format!("SELECT {select} FROM load {filter} {group} {order}"))
        })
    })
}

#[tokio::test]
async fn a_state_that_is_used_again_has_nothing_of_the_question_before() {
    let session = Session::new(&options()).unwrap();
    let (first, second) = (Asked::load("load{host=a} 0:1"), Asked::load("power{host=a} 0:1"));
    let state_of = |asked: &Asked| {
        let view = View::alone(asked.db.snapshot());
        session.state(&LeafContext::new(view.snapshot.clone()), &view, options().clock.now(), RowOrder::Stored)
    };
    let statement = |sql: &str| parse(sql).unwrap();
    let state = state_of(&first);
    assert!(state.statement_to_plan(statement("SELECT * FROM load")).await.is_ok());
    let partitions = state.config().target_partitions();
    drop(state);
    let view = View::alone(second.db.snapshot());
    let state = session.state(&LeafContext::new(view.snapshot.clone()), &view, options().clock.now(), RowOrder::Any);
    assert!(state.statement_to_plan(statement("SELECT * FROM load")).await.is_err());
    assert!(state.statement_to_plan(statement("SELECT * FROM power")).await.is_ok());
    assert_eq!((partitions, state.config().target_partitions()), (1, 2));
}
