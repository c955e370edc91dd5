use expect_test::expect;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::testing::Asked;

const LOAD: &str = "
    load{host=a,core=0} 0:1 60:2 120:3
    load{host=a,core=1} 0:-0.0 60:0.0 120:1e300
    load{host=b,core=0} 0:10 60:2.5 120:NaN
    load{host=c} 30:7 31:9007199254740993 120:-1e300
    mem{host=a} 0:100 200:0.1
    mem{} 1:1
";

/// Aggregates that digests answer.
const ANSWERED: [&str; 11] = [
    "count(*)",
    "count(value)",
    "min(value)",
    "max(value)",
    "sum(value)",
    "avg(value)",
    "first(value, ts)",
    "last(value, ts)",
    "min(ts)",
    "max(ts)",
    "last(value, ts) - first(value, ts)",
];
const GROUPS: [&str; 7] = ["metric", "host", "node", "job", "tags['core']", "upper(host)", "tags['none']"];
const CONDITIONS: [&str; 6] = [
    "true",
    "metric = 'load'",
    "host IN ('a', 'c') AND ts >= '2024-01-01T00:00:30Z'",
    "ts > '2024-01-01T00:01:00Z' AND ts <= '2024-01-01T00:02:00Z'",
    "ts < '2023-01-01'",
    "tags['core'] = '0'",
];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn digests_answer_what_samples_answer(
        aggregates in subsequence(ANSWERED.to_vec(), 1..5),
        groups in subsequence(GROUPS.to_vec(), 0..3),
        condition in select(CONDITIONS.to_vec()),
        flushed in any::<bool>(),
    ) {
        let asked = Asked::load(LOAD);
        if flushed {
            asked.db.flush().unwrap();
            asked.load_more("load{host=b,core=0} 120:4 180:5\nload{host=d} 60:1");
        }
        let columns: Vec<&str> = groups.iter().chain(&aggregates).copied().collect();
        let by = match groups.len() {
            0 => String::new(),
            count => {
                let order: Vec<String> = (1..=count).map(|at| at.to_string()).collect();
                format!("GROUP BY {} ORDER BY {}", groups.join(", "), order.join(", "))
            }
        };
        let from = |table: &str| format!("SELECT {} FROM {table} s {by}", columns.join(", "));
        let digested = from(&format!("(SELECT * FROM samples WHERE {condition})"));
        // What is limited may be no digest.
        let sampled = from(&format!("(SELECT * FROM samples WHERE {condition} LIMIT 1000000)"));
        let runtime = runtime();
        let plan = |sql: &str| runtime.block_on(asked.plan(sql));
        prop_assert!(plan(&digested).contains("Rows: Digest"), "{digested}\n{}", plan(&digested));
        prop_assert!(plan(&sampled).contains("Rows: Sample"), "{sampled}\n{}", plan(&sampled));
        let (found, expected) = runtime.block_on(async { (asked.answer(&digested).await, asked.answer(&sampled).await) });
        prop_assert_eq!(found, expected, "{}", digested);
    }
}

#[tokio::test]
async fn the_last_value_of_each_series_of_a_metric_needs_no_samples() {
    let plan = Asked::load(LOAD).plan("SELECT host, last(value, ts) AS newest, count(*) FROM load GROUP BY host").await;
    let expected = expect![[r#"
        ProjectionExec: expr=[host@0 as host, last(load.digest:last_value,load.digest:last_ts)@1 as newest, sum(load.digest:samples)@2 as count(*)]
          AggregateExec: mode=FinalPartitioned, gby=[host@0 as host], aggr=[last(load.digest:last_value,load.digest:last_ts), sum(load.digest:samples)]
            RepartitionExec: partitioning=Hash([host@0], 2), input_partitions=2
              AggregateExec: mode=Partial, gby=[host@0 as host], aggr=[last(load.digest:last_value,load.digest:last_ts), sum(load.digest:samples)]
                NodeLeafExec: Rows: Digest, columns=[tags[host], samples, last_ts, last_value], metric in ["load"]
    "#]];
    expected.assert_eq(&plan);
}

#[tokio::test]
async fn what_depends_on_single_samples_is_asked_of_samples() {
    let asked = Asked::load(LOAD);
    let of_samples = [
        "SELECT time_bucket('1m', ts) AS t, max(value) FROM load GROUP BY t",
        "SELECT host, max(value) FROM load WHERE value > 2 GROUP BY host",
        "SELECT host, max(value) FILTER (WHERE ts > '2024-01-01T00:00:30Z') FROM load GROUP BY host",
        "SELECT host, count(DISTINCT value) FROM load GROUP BY host",
        "SELECT host, sum(value * 2) FROM load GROUP BY host",
        "SELECT host, count(value_int) FROM load GROUP BY host",
        "SELECT host, median(value) FROM load GROUP BY host",
        "SELECT random() > 0.5 AS half, max(value) FROM load GROUP BY half",
        "SELECT host, core, max(value) FROM load GROUP BY GROUPING SETS ((host), (core))",
    ];
    for sql in of_samples {
        let plan = asked.plan(sql).await;
        assert!(plan.contains("Rows: Sample"), "{sql}\n{plan}");
    }
}
