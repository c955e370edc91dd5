//! The comparison without any run: figures that are known from elsewhere, and what holds for all values.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::compare::{Alignment, DiffMetric, DiffRun, Fact, MetricNumbers, RunsDiff, Sender, change, compare};
use super::counter::{CounterRates, SeriesIntegral, SeriesStretch};
use super::goal::{GoalSide, MetricGoal};
use super::read::common_steps;
use super::stats::{quantile, welch};
use super::*;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{found} is not {expected}");
}

#[test]
fn welch_agrees_with_known_values() {
    // With equal variances and counts df is 2(n-1), and I_x is elementary.
    let found = welch(&[-1.0, 1.0], &[1.0, 3.0]).unwrap();
    close(found.df, 2.0);
    close(found.t, 2.0_f64.sqrt());
    close(found.p, 1.0 - (2.0_f64 / 4.0).sqrt());
    // df 4: p is 1 - (3/2)·s + s³/2 with s = t/√(t²+4).
    let found = welch(&[1.0, 2.0, 3.0], &[3.0, 4.0, 5.0]).unwrap();
    close(found.df, 4.0);
    close(found.t, 2.0 / (2.0_f64 / 3.0).sqrt());
    let s = found.t / (found.t * found.t + 4.0).sqrt();
    close(found.p, 1.0 - 1.5 * s + s.powi(3) / 2.0);
    // Unequal variances: variances of the means 1/3 and 0.75, df by Welch and Satterthwaite.
    let found = welch(&[1.0, 2.0, 3.0], &[10.0, 13.0, 10.0, 13.0]).unwrap();
    let (a, b): (f64, f64) = (1.0 / 3.0, 0.75);
    close(found.t, 9.5 / (a + b).sqrt());
    close(found.df, (a + b) * (a + b) / (a * a / 2.0 + b * b / 3.0));
}

#[test]
fn nothing_is_significant_without_two_values_each_or_any_spread() {
    assert_eq!(welch(&[1.0], &[2.0, 3.0]), None);
    assert_eq!(welch(&[1.0, 2.0], &[]), None);
    assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), None, "copies of one number");
    assert_eq!(welch(&[f64::INFINITY, 1.0], &[2.0, 2.5]), None);
}

#[test]
fn significance_has_stars() {
    let mark = |b: [f64; 3]| welch(&[1.0, 1.1, 0.9], &b).unwrap().mark();
    assert_eq!([mark([1.0, 1.05, 0.98]), mark([9.0, 9.1, 8.9])], ["", "***"]);
}

#[test]
fn a_goal_is_a_metric_a_side_and_a_number() {
    let goal: MetricGoal = "train/loss <= 1e-1".parse().unwrap();
    assert_eq!(goal, MetricGoal { metric: "train/loss".to_owned(), side: GoalSide::AtMost, value: 0.1 });
    assert_eq!("acc>=0.9".parse::<MetricGoal>().unwrap().side, GoalSide::AtLeast);
    for wrong in ["loss", "loss<0.1", "<=1", "loss<=", "loss<=low", "loss<=nan"] {
        assert!(wrong.parse::<MetricGoal>().is_err(), "{wrong}");
    }
}

fn stretch(place: i64, first: f64, last: f64, increase: f64, from_us: i64, to_us: i64) -> SeriesStretch {
    SeriesStretch { place, count: 2, mean: 0.0, max: 0.0, first, last, increase, first_us: from_us, last_us: to_us }
}

#[test]
fn a_counter_that_starts_again_loses_nothing_and_its_rate_spans_gaps() {
    let second = 1_000_000;
    let found =
        CounterRates::of(&[stretch(0, 10.0, 12.0, 2.0, 0, second), stretch(5, 3.0, 5.0, 2.0, 2 * second, 3 * second)]);
    assert_eq!(found.rates, [(0, 2.0), (5, 2.5)]);
    assert_eq!((found.increase, found.seconds), (7.0, 3.0));
    close(found.mean().unwrap(), 7.0 / 3.0);
    assert_eq!(CounterRates::of(&[stretch(0, 1.0, 1.0, 0.0, 5, 5)]).mean(), None, "one reading has no rate");
}

#[test]
fn energy_is_the_area_below_the_power_of_each_series() {
    let mut energy = SeriesIntegral::default();
    for (series, second, watts) in [("a", 0, 100.0), ("b", 0, 10.0), ("a", 2, 200.0), ("b", 1, 10.0)] {
        energy.add(series, second * 1_000_000, watts);
    }
    assert_eq!(energy.sum(), Some(310.0));
    assert_eq!(SeriesIntegral::default().sum(), None);
}

fn metric(sender: Sender, values: &[f64]) -> DiffMetric {
    let curve: BTreeMap<i64, f64> = (0..).zip(values.iter().copied()).collect();
    let figures = compare::DiffFigures::of_curve(&curve);
    DiffMetric { sender, figures, curve, ..DiffMetric::default() }
}

fn run(label: &str, metrics: &[(&str, DiffMetric)]) -> DiffRun {
    let metrics = metrics.iter().map(|(name, metric)| ((*name).to_owned(), metric.clone())).collect();
    DiffRun { label: label.to_owned(), facts: BTreeMap::new(), metrics }
}

fn names(diff: &RunsDiff) -> Vec<&str> {
    diff.metrics.iter().map(|one| &*one.metric).collect()
}

#[test]
fn what_changed_throughout_comes_before_what_goes_up_and_down() {
    let (own, telem) = (Sender::Program, Sender::Telem);
    let a = run(
        "a",
        &[
            ("noise", metric(own, &[1.0, 9.0, 1.0, 9.0])),
            ("loss", metric(own, &[8.0, 4.0, 2.0, 1.0])),
            ("same", metric(own, &[5.0; 4])),
            ("node_load1", metric(telem, &[1.0; 4])),
        ],
    );
    let b = run(
        "b",
        &[
            ("noise", metric(own, &[9.0, 1.0, 9.0, 1.0])),
            ("loss", metric(own, &[4.0, 2.0, 1.0, 0.5])),
            ("same", metric(own, &[5.0; 4])),
            ("node_load1", metric(telem, &[2.5; 4])),
        ],
    );
    let diff = compare(&[a, b], Alignment::Time);
    assert_eq!(names(&diff), ["loss", "node_load1", "noise", "same"]);
    close(diff.metrics[0].measure(), 2.0 / 3.0);
    assert_eq!(diff.metrics[0].changes[0].as_ref().unwrap().relative, Some(-0.5));
}

#[test]
fn facts_that_are_equal_are_left_out_and_one_that_a_run_lacks_differs() {
    let with = |facts: &[(Fact, &str)]| {
        let facts = facts.iter().map(|(fact, value)| (fact.clone(), (*value).to_owned())).collect();
        DiffRun { facts, ..DiffRun::default() }
    };
    let (lr, depth) = (Fact::Setting("lr".to_owned()), Fact::Setting("depth".to_owned()));
    let diff = compare(
        &[
            with(&[(lr.clone(), "1"), (depth.clone(), "3"), (Fact::Name, "x")]),
            with(&[(lr.clone(), "2"), (depth, "3")]),
        ],
        Alignment::Time,
    );
    let found: Vec<(Fact, Vec<Option<String>>)> = diff.facts.into_iter().map(|one| (one.fact, one.values)).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found, [(lr, vec![text("1"), text("2")]), (Fact::Name, vec![text("x"), None])]);
}

#[test]
fn a_metric_that_some_runs_lack_is_compared_where_it_is_and_named() {
    let one = || metric(Sender::Program, &[1.0, 2.0]);
    let runs =
        [run("a", &[("x", one()), ("y", one())]), run("b", &[("x", one()), ("z", one())]), run("c", &[("y", one())])];
    let diff = compare(&runs, Alignment::Time);
    assert_eq!(names(&diff), ["x", "y"]);
    let some: Vec<(&str, &[usize])> = diff.not_compared.iter().map(|(name, runs)| (&**name, &**runs)).collect();
    assert_eq!(some, [("x", &[0, 1][..]), ("y", &[0, 2]), ("z", &[1])]);
}

#[test]
fn steps_are_compared_at_equal_steps_only_and_time_keeps_the_last_value() {
    let mut a = metric(Sender::Program, &[1.0, 1.0, 1.0, 1.0]);
    let mut b = DiffMetric { curve: BTreeMap::from([(1, 2.0), (3, 4.0), (9, 100.0)]), ..a.clone() };
    let by_step = change(&a, &b, Alignment::Step);
    assert_eq!((by_step.compared, by_step.difference, by_step.relative), (2, Some(2.0), Some(2.0)));
    let by_time = change(&a, &b, Alignment::Time);
    assert_eq!((by_time.compared, by_time.difference), (3, Some((1.0 + 1.0 + 3.0) / 3.0)));
    assert_eq!(common_steps(&[&a.curve, &b.curve]), Some(1..=3));
    // Nothing in common: the means are all there is.
    a.curve = BTreeMap::from([(0, 1.0)]);
    b.curve = BTreeMap::from([(5, 3.0)]);
    b.figures.mean = Some(3.0);
    let apart = change(&a, &b, Alignment::Time);
    assert_eq!((apart.compared, apart.difference), (0, Some(2.0)));
    assert!(apart.measure > 0.9 && common_steps(&[&a.curve, &b.curve]).is_none());
}

/// A metric, and its values in two runs.
type ValuesOfTwo<'a> = (&'a str, Vec<f64>, Vec<f64>);

fn report(metrics: Vec<ValuesOfTwo<'_>>) -> DiffReport {
    let side = |label: &str, of: fn(&ValuesOfTwo<'_>) -> Vec<f64>| {
        let metrics: Vec<(&str, DiffMetric)> =
            metrics.iter().map(|one| (one.0, metric(Sender::Program, &of(one)))).collect();
        run(label, &metrics)
    };
    let runs = [side("runs/<a>", |one| one.1.clone()), side("runs/b", |one| one.2.clone())];
    DiffReport {
        runs: runs.iter().map(|run| run.label.clone()).collect(),
        alignment: Alignment::Time,
        width_us: 1_000_000,
        diff: compare(&runs, Alignment::Time),
        goals: Vec::new(),
        energy: BTreeMap::new(),
    }
}

#[test]
fn a_narrow_terminal_loses_figures_and_says_which() {
    let report = report(vec![("a.metric.with.a.long.name", vec![1.0, 2.0], vec![2.0, 3.0])]);
    let wide = text::tables(&report, 20, None);
    assert!(wide.contains("p95 A") && !wide.contains("no room"), "{wide}");
    let narrow = text::tables(&report, 20, Some(70));
    assert!(narrow.contains("no room for p95") && narrow.contains("mean A"), "{narrow}");
    let table: Vec<&str> = narrow.lines().filter(|line| line.contains("metric ") || line.contains("name ")).collect();
    assert!(table.len() == 2 && table.iter().all(|line| line.chars().count() <= 70), "{narrow}");
}

#[test]
fn a_page_escapes_what_it_names_and_draws_what_changed() {
    let page = html::page(&report(vec![("x<y>", vec![1.0, 2.0], vec![2.0, 3.0]), ("same", vec![1.0], vec![1.0])]), 20);
    assert!(page.contains("runs/&lt;a&gt;") && page.contains("x&lt;y&gt;") && !page.contains("<a>"), "{page}");
    assert_eq!((page.matches("<figure>").count(), page.matches("<polyline").count()), (1, 2));
}

fn values() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(prop_oneof![-1e3..1e3, Just(0.0), Just(f64::MAX), Just(f64::MIN)], 0..20)
}

proptest! {
    #[test]
    fn the_measure_is_bounded_the_same_either_way_and_zero_for_a_run_and_itself(a in values(), b in values()) {
        let (a, b) = (metric(Sender::Program, &a), metric(Sender::Program, &b));
        for alignment in [Alignment::Time, Alignment::Step] {
            let there = change(&a, &b, alignment).measure;
            prop_assert!((0.0..=2.0).contains(&there), "{}", there);
            prop_assert_eq!(there, change(&b, &a, alignment).measure);
            prop_assert_eq!(change(&a, &a, alignment).measure, 0.0);
        }
    }

    #[test]
    fn a_few_outliers_do_not_change_the_order(at in 0_usize..20, outlier in -1e9..1e9_f64) {
        let mut wild = vec![1.0; 20];
        wild[at] = outlier;
        let runs = [
            run("a", &[("wild", metric(Sender::Program, &[1.0; 20])), ("shift", metric(Sender::Program, &[1.0; 20]))]),
            run("b", &[("wild", metric(Sender::Program, &wild)), ("shift", metric(Sender::Program, &[1.05; 20]))]),
        ];
        let diff = compare(&runs, Alignment::Time);
        prop_assert_eq!(names(&diff)[0], "shift");
    }

    #[test]
    fn p_is_a_probability_and_the_sign_of_t_follows_the_order(
        a in prop::collection::vec(-1e6..1e6_f64, 2..20), b in prop::collection::vec(-1e6..1e6_f64, 2..20),
    ) {
        if let (Some(there), Some(back)) = (welch(&a, &b), welch(&b, &a)) {
            prop_assert!((0.0..=1.0).contains(&there.p) && there.p.to_bits() == back.p.to_bits());
            prop_assert_eq!(there.t, -back.t);
            prop_assert!(there.df >= (a.len().min(b.len()) - 1) as f64 - 1e-6);
            prop_assert!(there.df <= (a.len() + b.len() - 2) as f64 + 1e-6);
        }
    }

    #[test]
    fn a_quantile_lies_between_the_least_and_the_greatest(mut values in values(), q in 0.0..=1.0_f64) {
        values.retain(|value| value.abs() < 1e300);
        values.sort_by(f64::total_cmp);
        match quantile(&values, q) {
            None => prop_assert!(values.is_empty()),
            Some(found) => prop_assert!(found >= values[0] && found <= values[values.len() - 1]),
        }
    }

    #[test]
    fn any_page_and_any_table_can_be_made(a in values(), b in values()) {
        let report = report(vec![("m", a, b)]);
        prop_assert!(html::page(&report, 20).ends_with("</html>\n"));
        prop_assert!(!html::page(&report, 20).contains("NaN,"));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json::text(&report).unwrap()).is_ok());
        text::tables(&report, 20, Some(60));
    }
}

#[test]
fn words_of_json_are_lower_case() {
    assert_eq!(serde_json::to_string(&(MetricNumbers::Rate, Sender::Telem)).unwrap(), r#"["rate","telem"]"#);
}

#[test]
fn what_diverged_in_one_run_alone_changed_as_much_as_can_be() {
    let metric = |values: &[f64], nan: u64| {
        let mut metric = DiffMetric { curve: (0..).zip(values.iter().copied()).collect(), ..DiffMetric::default() };
        metric.figures.nan = nan;
        metric
    };
    let measured = |a: &DiffMetric, b: &DiffMetric| change(a, b, Alignment::Time).measure;
    let (sound, infinite) = (metric(&[1.0, 2.0, 1.0], 0), metric(&[f64::INFINITY; 3], 0));
    assert_eq!(
        [measured(&sound, &infinite), measured(&infinite, &sound), measured(&infinite, &infinite)],
        [2.0, 2.0, 0.0]
    );
    let (broken, nothing) = (metric(&[1.0, 2.0, 1.0], 4), metric(&[], 9));
    assert_eq!([measured(&sound, &broken), measured(&nothing, &sound), measured(&broken, &broken)], [2.0, 2.0, 0.0]);
    assert_eq!(quantile(&[1.0, 2.0, f64::INFINITY], 0.5), Some(2.0));
    assert_eq!(quantile(&[1.0, f64::INFINITY, f64::INFINITY], 0.95), Some(f64::INFINITY));
}
