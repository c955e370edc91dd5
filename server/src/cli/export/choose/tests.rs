//! Globs, and the error if they match nothing.

use super::*;

fn known(names: &[&str]) -> Vec<ExportMetric> {
    names.iter().map(|name| ExportMetric { name: (*name).to_owned(), ..ExportMetric::default() }).collect()
}

fn globs(texts: &[&str]) -> Vec<Glob> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_star_stands_for_any_text_and_a_question_mark_for_one_character() {
    for (glob, yes, no) in [
        ("load", &["load"][..], &["Load", "load1", "", "loa"][..]),
        ("load?", &["load1", "loadé"], &["load", "load15"]),
        ("node_*_bytes", &["node_x_bytes", "node__bytes", "node_a_bytes_bytes"], &["node_bytes", "node_x_bytes_total"]),
        ("*", &["", "anything"], &[]),
        ("*a*b", &["ab", "aab", "xaybzb"], &["ba", "abc", "b"]),
        ("?*", &["x", "xy"], &[""]),
        ("a**b", &["ab", "axb"], &["a"]),
        ("", &[""], &["a"]),
        ("100%", &["100%"], &["1000"]),
        ("[ab]", &["[ab]"], &["a"]),
        ("*.θ", &["cpu.θ"], &["cpu.Θ"]),
    ] {
        let [glob] = &globs(&[glob])[..] else { unreachable!() };
        assert!(yes.iter().all(|name| glob.matches(name)), "{glob} matches {yes:?}");
        assert!(!no.iter().any(|name| glob.matches(name)), "{glob} matches none of {no:?}");
    }
}

#[test]
fn a_glob_of_many_stars_takes_no_time() {
    let [glob] = &globs(&[&"a*".repeat(200)])[..] else { unreachable!() };
    assert!(!glob.matches(&format!("{}b", "a".repeat(199))));
    assert!(glob.matches(&"a".repeat(512)));
}

#[test]
fn every_metric_that_some_glob_matches_is_chosen_once() {
    let known = known(&["cpu", "load1", "load5", "train.loss"]);
    let chosen = |texts: &[&str]| {
        let globs = globs(texts);
        let (chosen, unmatched) = choose(&known, &globs, &[]).unwrap();
        let names: Vec<String> = chosen.iter().map(|metric| metric.name.clone()).collect();
        (names.join(" "), unmatched.len())
    };
    assert_eq!(chosen(&[]), ("cpu load1 load5 train.loss".to_owned(), 0));
    assert_eq!(chosen(&["load*", "*1", "train.loss"]), ("load1 load5 train.loss".to_owned(), 0));
    assert_eq!(chosen(&["gpu", "cpu"]), ("cpu".to_owned(), 1));
}

#[test]
fn what_is_excluded_is_not_chosen_whatever_else_matches_it() {
    let known = known(&["cpu", "load1", "load5", "train.loss"]);
    let chosen = |texts: &[&str], excluded: &[&str]| {
        let (texts, excluded) = (globs(texts), globs(excluded));
        let (chosen, unmatched) = choose(&known, &texts, &excluded)?;
        let names: Vec<String> = chosen.iter().map(|metric| metric.name.clone()).collect();
        Ok::<_, String>((names.join(" "), unmatched.len()))
    };
    assert_eq!(chosen(&[], &["load*"]), Ok(("cpu train.loss".to_owned(), 0)));
    assert_eq!(chosen(&["load*"], &["load1", "gpu"]), Ok(("load5".to_owned(), 1)));
    assert_eq!(chosen(&["load*"], &["*"]), Err("--exclude leaves none of 2 metrics".to_owned()));
}

#[test]
fn where_nothing_matches_the_names_that_may_be_meant_are_told() {
    let known_few = known(&["node_load1", "node_load5", "train.loss"]);
    let hint = |known: &[ExportMetric], texts: &[&str]| choose(known, &globs(texts), &[]).map(|_| ()).unwrap_err();
    assert_eq!(
        hint(&known_few, &["node_laod1"]),
        "no metric matches 'node_laod1'; close to it: node_load1, node_load5. Names are case-sensitive"
    );
    assert_eq!(
        hint(&known_few, &["Train.*", "Acc"]),
        "no metric matches 'Train.*' or 'Acc'; close to it: train.loss. Names are case-sensitive"
    );
    assert_eq!(hint(&known_few, &["zzz"]), "no metric matches 'zzz'; there are: node_load1, node_load5, train.loss");
    let many: Vec<String> = (0..20).map(|at| format!("metric{at:02}")).collect();
    let many = known(&many.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        hint(&many, &["zzz"]),
        "no metric matches 'zzz'; there are 20 metrics, such as metric00, metric01, metric02, metric03, metric04"
    );
    assert_eq!(hint(&[], &[]), "there are no samples yet, so there is nothing to export");
}
