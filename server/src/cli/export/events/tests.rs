//! The directories of runs, and the steps of times.

use super::*;

#[test]
fn every_set_of_tags_has_a_directory_of_its_own() {
    let mut names = FileNames::default();
    let mut run = |tags: &[(&str, &str)]| {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        names.run(&tags).display().to_string()
    };
    assert_eq!(run(&[]), "");
    assert_eq!(run(&[("host", "n1"), ("rank", "0")]), "host=n1,rank=0");
    assert_eq!(run(&[("run", "a/b"), ("rank", "0")]), "a/b/rank=0");
    assert_eq!(run(&[("run", "../..")]), "%2E./%2E.");
    assert_eq!(run(&[("path", "/dev/x y")]), "path=%2Fdev%2Fx%20y");
    assert!(run(&[("RUN", "x")]).starts_with("RUN=x") && run(&[("Run", "x")]).starts_with("Run%3Dx"));
    assert!(run(&[("k", &"v".repeat(1_000))]).len() < 200);
    assert!(!run(&[("run", "/a")]).starts_with('/'));
}

#[test]
fn the_step_of_a_time_is_the_one_then_or_before() {
    let steps = [(10, 1), (20, 2), (30, 5)];
    let found: Vec<Option<i64>> = [5, 10, 15, 20, 29, 30, 99].iter().map(|ts| step_at(&steps, *ts)).collect();
    assert_eq!(found, [1, 1, 1, 2, 2, 5, 5].map(Some));
    assert_eq!(step_at(&[], 1), None);
}
