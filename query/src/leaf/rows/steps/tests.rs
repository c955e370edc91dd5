use expect_test::expect;
use proptest::prelude::*;

use super::counters;
use crate::testing::Asked;

const TRAINING: &str = "
    loss{rank=0} 1:0.9 2:0.5 3:0.4 4:0.3
    step{rank=0} 1:10 2:20 4:40
    loss{rank=1} 1:0.8
    step{rank=1} 1:10.0
    train.loss{rank=0} 1:7 5:6
    train.step{rank=0} 1:1 5:1.5
    train.rate{rank=0} 1:3
    load{host=a} 1:1
";

#[test]
fn steps_of_a_group_come_before_those_of_the_program() {
    let names = |metric: &str| counters(metric).collect::<Vec<_>>();
    assert_eq!(names("train.loss"), ["train.step", "step"]);
    assert_eq!(names("a.b/train/loss"), ["a.b/train/step", "step"]);
    assert_eq!(names("loss"), ["step"]);
    assert_eq!(names("train.step"), ["step"]);
    assert_eq!(names("step"), Vec::<String>::new());
}

#[tokio::test]
async fn a_value_has_the_step_that_was_logged_with_it() {
    let asked = Asked::load(TRAINING);
    let expected = expect![[r#"
        +------+------+------+
        | rank | step | loss |
        +------+------+------+
        | 0    | 10   | 0.9  |
        | 0    | 20   | 0.5  |
        | 0    |      | 0.4  |
        | 0    | 40   | 0.3  |
        | 1    | 10   | 0.8  |
        +------+------+------+"#]];
    expected.assert_eq(&asked.answer("SELECT rank, step, value AS loss FROM loss ORDER BY rank, ts").await);
    let expected = expect![[r#"
        +------+-------+
        | step | value |
        +------+-------+
        | 1    | 7.0   |
        |      | 6.0   |
        +------+-------+"#]];
    expected.assert_eq(&asked.answer(r#"SELECT step, value FROM "train.loss" ORDER BY ts"#).await);
    let expected = expect![[r#"
        +--------+------+-------+
        | metric | step | value |
        +--------+------+-------+
        | loss   | 20   | 0.5   |
        | loss   | 40   | 0.3   |
        +--------+------+-------+"#]];
    expected.assert_eq(
        &asked
            .answer("SELECT metric, step, value FROM samples WHERE step >= 20 AND metric = 'loss' ORDER BY step")
            .await,
    );
}

#[tokio::test]
async fn a_metric_without_steps_has_no_such_column_and_a_tag_of_that_name_stays_one() {
    let asked = Asked::load(&format!("{TRAINING}\nlr{{rank=0,step=warm}} 1:1\nstep{{rank=0,step=warm}} 1:5"));
    for (metric, columns) in [
        ("load", "ts, value, value_int, node, job, host"),
        ("step", "ts, value, value_int, node, job, rank, step"),
        ("loss", "ts, value, value_int, step, node, job, rank"),
        ("lr", "ts, value, value_int, node, job, rank, step"),
    ] {
        let header = asked.answer(&format!("SELECT * FROM {metric} LIMIT 1")).await;
        let header = header.lines().nth(1).unwrap().split('|').map(str::trim).filter(|name| !name.is_empty());
        assert_eq!(header.collect::<Vec<_>>().join(", "), columns, "{metric}");
    }
}

#[tokio::test]
async fn many_series_have_each_its_own_steps_whether_they_are_of_one_time_or_not() {
    let mut text = String::new();
    for rank in 0..40 {
        // Of three stretches of time, far from each other.
        let begin = rank % 3 * 50_000;
        for (metric, kept) in [("loss", 1..8), ("rate", 0..7), ("step", rank % 4..6)] {
            let points: Vec<String> = kept.map(|at| format!("{}:{}", begin + at, rank * 100 + at)).collect();
            text += &format!("{metric}{{rank={rank}}} {}\n", points.join(" "));
        }
    }
    let asked = Asked::load(&text);
    for metric in ["loss", "rate"] {
        let by_column = asked.answer(&format!("SELECT rank, ts, value, step FROM {metric} ORDER BY rank, ts")).await;
        let join = format!(
            "SELECT v.rank, v.ts, v.value, step.value_int AS step FROM {metric} v LEFT JOIN step USING (ts, rank) \
             ORDER BY v.rank, v.ts"
        );
        assert_eq!(by_column, asked.answer(&join).await);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// However values and steps lie in memtable and segments, the column says what a join by time says.
    #[test]
    fn the_column_is_the_join_by_time(
        values in prop::collection::btree_map(0..300_i64, -9..9_i64, 1..80),
        steps in prop::collection::btree_map(0..300_i64, 0..99_i64, 1..80),
        flushes in prop::collection::vec(0..300_i64, 0..3),
    ) {
        let points = |name: &str, of: &std::collections::BTreeMap<i64, i64>, from: i64, to: i64| {
            let points: Vec<String> = of.range(from..to).map(|(at, value)| format!("{at}:{value}")).collect();
            if points.is_empty() { String::new() } else { format!("{name}{{rank=0}} {}\n", points.join(" ")) }
        };
        let mut cuts = flushes;
        cuts.extend([0, 300]);
        cuts.sort_unstable();
        let parts: Vec<String> =
            cuts.windows(2).map(|cut| points("v", &values, cut[0], cut[1]) + &points("step", &steps, cut[0], cut[1])).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let asked = Asked::empty();
            for part in &parts {
                asked.db.flush().unwrap();
                asked.load_more(part);
            }
            let by_column = asked.answer("SELECT ts, value, step FROM v ORDER BY ts").await;
            let join = "SELECT v.ts, v.value, step.value_int AS step FROM v LEFT JOIN step USING (ts, rank) ORDER BY v.ts";
            assert_eq!(by_column, asked.answer(join).await);
        });
    }
}
