//! File names of metrics are plain, reversible where they can be, and unique.

use std::path::{Component, Path};

use proptest::prelude::*;

use super::*;

#[test]
fn a_name_stands_for_itself_where_it_can() {
    let mut names = FileNames::default();
    for (metric, expected) in [
        ("node_load1", "node_load1"),
        ("train.loss", "train.loss"),
        ("sys.cpu/user", "sys.cpu%2Fuser"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        (".", "%2E"),
        ("..", "%2E."),
        ("_index.json", "%5Findex.json"),
        ("-rf", "%2Drf"),
        ("50%", "50%25"),
        ("a b*?", "a%20b%2A%3F"),
        ("θ", "%CE%B8"),
    ] {
        assert_eq!(names.name(metric), expected, "{metric}");
    }
}

#[test]
fn names_that_differ_by_case_only_or_are_too_long_get_a_number() {
    let mut names = FileNames::default();
    assert_eq!(names.name("load"), "load");
    assert_eq!(names.name("Load"), "Load~4f20edb48a6287c9");
    let long = "/".repeat(512);
    let name = names.name(&long);
    assert!(name.len() <= STEM_BYTES_MAX && name.contains('~'), "{name}");
    assert_eq!(names.name(&"x".repeat(STEM_BYTES_MAX)), "x".repeat(STEM_BYTES_MAX));
    assert!(names.name(&"x".repeat(STEM_BYTES_MAX + 1)).contains("x~"));
    assert_eq!(FileNames::default().name(&long), name, "a metric keeps its file");
}

proptest! {
    #[test]
    fn any_metrics_have_plain_names_of_their_own(metrics in prop::collection::hash_set("\\PC{1,60}|[aA]{1,3}|[./]{1,4}|/{100,300}", 1..20)) {
        let mut names = FileNames::default();
        let mut seen = HashSet::new();
        for metric in &metrics {
            let name = names.name(metric);
            prop_assert!(seen.insert(name.to_lowercase()), "{metric} has the name of another: {name}");
            prop_assert!(name.len() <= STEM_BYTES_MAX && !name.starts_with(['.', '_', '-']), "{name}");
            let parts: Vec<_> = Path::new(&name).components().collect();
            prop_assert_eq!(parts, [Component::Normal(name.as_ref())]);
        }
    }
}
