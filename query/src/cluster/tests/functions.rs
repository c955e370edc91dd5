//! Table functions over four nodes and one, against the plainest computation of the same.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::Cluster;
use crate::testing::{Asked, rows};

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

/// The answers of one node and of four to questions about these metrics.
fn ask(metrics: &[(&str, &[&str; 4], &Samples)], sql: &str) -> [String; 2] {
    let of = |nodes: usize| -> Vec<String> {
        let mut all = vec![String::new(); nodes];
        for (metric, tags, samples) in metrics {
            // Every metric exists, whatever samples there are.
            all[0] += &format!("{metric}{{{},more=1}} 100000:1\n", tags[0]);
            for (all, lines) in all.iter_mut().zip(lines(metric, tags, samples, nodes)) {
                *all += &lines;
            }
        }
        all
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let alone = Asked::load(&of(1)[0]);
        let on_one = rows(alone.queries.sql(sql).await.unwrap().batches).await.unwrap();
        let four = of(4);
        let cluster = Cluster::new(&[&four[0], &four[1], &four[2], &four[3]]);
        let on_four = rows(cluster.head.sql(sql).await.unwrap().batches).await.unwrap();
        [on_one, on_four]
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
             FROM gaps('m', '{longer_than} seconds') ORDER BY host, start"
        );
        for answer in ask(&[("m", &WITH_HOST, &samples)], &sql) {
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
            "SELECT 'host=' || host{}, to_unixtime(ts) - 1704067200, l, r FROM asof('l', 'r'{within}, by => 'host') \
             WHERE ts >= to_timestamp({}) AND ts < '2024-01-02' ORDER BY 1, ts",
            if with_rank { " || ',rank=' || rank" } else { "" },
            1_704_067_200 + start
        );
        for answer in ask(&[("l", tags, &left), ("r", &WITH_HOST, &right)], &sql) {
            prop_assert_eq!(answer, expected.join("\n"));
        }
    }
}
