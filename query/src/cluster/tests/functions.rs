//! Table functions over four nodes and one, against the plainest computation of the same.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use telem_engine::Db;

use super::Cluster;
use crate::run::Queries;
use crate::testing::{Asked, load_into, rows};

/// Samples by series, second and value, and the node of each.
type Samples = Vec<(usize, i64, i64, usize)>;

fn samples(seconds: i64) -> impl Strategy<Value = Samples> {
    prop::collection::vec((0..4_usize, 0..seconds, 0..9_i64, 0..4_usize), 0..60).prop_map(|mut samples| {
        // One value a time, wherever it is.
        samples.sort_unstable();
        samples.dedup_by_key(|(series, second, ..)| (*series, *second));
        samples
    })
}

/// What each node has of a metric, as [`crate::testing::load_into`] takes it.
fn lines(metric: &str, tags: &[&str; 4], samples: &Samples, nodes: usize) -> Vec<String> {
    let mut lines = vec![String::new(); nodes];
    for (series, second, value, node) in samples {
        lines[node % nodes] += &format!("{metric}{{{}}} {second}:{value}\n", tags[*series]);
    }
    lines
}

/// One node and four, for all cases of a test: what a task left with a worker holds its database open for a while.
struct OneAndFour {
    alone: Asked,
    cluster: Cluster,
    /// Each case has metrics of its own.
    cases: usize,
}

thread_local! {
    static NODES: RefCell<OneAndFour> =
        RefCell::new(OneAndFour { alone: Asked::empty(), cluster: Cluster::new(&[""; 4]), cases: 0 });
}

/// The answers of one node and of four to questions about these metrics, whose names end in `#` here and in `sql`.
fn ask(metrics: &[(&str, &[&str; 4], &Samples)], sql: &str) -> [String; 2] {
    NODES.with_borrow_mut(|nodes| {
        nodes.cases += 1;
        let numbered = |text: &str| text.replace('#', &nodes.cases.to_string());
        let load = |databases: &[&Db]| {
            for (metric, tags, samples) in metrics {
                let metric = numbered(metric);
                // Every metric exists, whatever samples there are.
                load_into(databases[0], &format!("{metric}{{{},more=1}} 100000:1", tags[0]));
                for (db, lines) in databases.iter().zip(lines(&metric, tags, samples, databases.len())) {
                    load_into(db, &lines);
                }
            }
        };
        load(&[&nodes.alone.db]);
        load(&nodes.cluster.databases().collect::<Vec<_>>());
        nodes.cluster.tell();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = async |queries: &Queries| rows(queries.sql(&numbered(sql)).await.unwrap().batches).await.unwrap();
        runtime.block_on(async { [answer(&nodes.alone.queries).await, answer(&nodes.cluster.head).await] })
    })
}

const WITH_HOST: [&str; 4] = ["host=a", "host=b", "host=c", "host=d"];
/// Several series of a host.
const WITH_RANK: [&str; 4] = ["host=a,rank=0", "host=a,rank=1", "host=b,rank=0", "host=b,rank=1"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The samples of one series are on any nodes.
    #[test]
    fn gaps_are_those_between_all_samples_of_a_series(samples in samples(90), longer_than in 1..12_i64) {
        let mut expected = Vec::new();
        let mut before: BTreeMap<usize, i64> = BTreeMap::new();
        for (series, second, ..) in &samples {
            if let Some(before) = before.insert(*series, *second)
                && second - before > longer_than
            {
                expected.push(format!("{} {before} {second} {:.1}", &WITH_HOST[*series][5..], (second - before) as f64));
            }
        }
        let sql = format!(
            "SELECT host, to_unixtime(start) - 1704067200, to_unixtime(stop) - 1704067200, seconds \
             FROM gaps('m#', '{longer_than} seconds') ORDER BY host, start"
        );
        for answer in ask(&[("m#", &WITH_HOST, &samples)], &sql) {
            prop_assert_eq!(answer, expected.join("\n"));
        }
    }

    #[test]
    fn asof_finds_the_latest_sample_at_or_before(
        left in samples(60),
        right in samples(60),
        tolerance in prop::option::of(0..9_i64),
        start in 0..30_i64,
        with_rank in any::<bool>(),
    ) {
        let tags = if with_rank { &WITH_RANK } else { &WITH_HOST };
        let mut expected = Vec::new();
        for (series, second, value, _) in left.iter().filter(|(_, second, ..)| *second >= start) {
            let host = if with_rank { *series / 2 } else { *series };
            let before = right.iter().filter(|(of, at, ..)| *of == host && at <= second);
            let latest = before.max_by_key(|(_, at, ..)| *at);
            let latest = latest.filter(|(_, at, ..)| tolerance.is_none_or(|tolerance| second - at <= tolerance));
            let found = latest.map_or_else(String::new, |(.., value, _)| format!("{value}.0"));
            expected.push(format!("{} {second} {value}.0 {found}", tags[*series]));
        }
        let within = tolerance.map_or_else(String::new, |tolerance| format!(", tolerance => '{tolerance} seconds'"));
        let sql = format!(
            "SELECT 'host=' || host{}, to_unixtime(ts) - 1704067200, l#, r# FROM asof('l#', 'r#'{within}, by => 'host') \
             WHERE ts >= to_timestamp({}) AND ts < '2024-01-02' ORDER BY 1, ts",
            if with_rank { " || ',rank=' || rank" } else { "" },
            1_704_067_200 + start
        );
        for answer in ask(&[("l#", tags, &left), ("r#", &WITH_HOST, &right)], &sql) {
            prop_assert_eq!(answer, expected.join("\n"));
        }
    }
}
