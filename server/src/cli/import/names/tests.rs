//! Names that change, and names that would become one.

use super::*;

#[test]
fn two_names_never_become_one() {
    let mut names = CleanNames::default();
    let mut said = Vec::new();
    names.reserve("step");
    for (name, expected) in [
        ("loss", "loss"),
        ("a b", "a_b"),
        ("a:b", "a_b_2"),
        ("a_b", "a_b_3"),
        ("a b", "a_b"),
        ("größe/x-1.2", "größe/x-1.2"),
        ("step", "step_2"),
    ] {
        assert_eq!(names.metric(name, |line| said.push(line)), expected);
    }
    assert_eq!(
        said,
        [
            "metric 'a b' becomes a_b: names are letters, digits and -_./",
            "metric 'a:b' becomes a_b_2: names are letters, digits and -_./",
            "metric 'a_b' becomes a_b_3: its name is taken",
            "metric 'step' becomes step_2: its name is taken",
        ]
    );
    assert_eq!(names.key("a b", |_| {}), "a_b", "tags have names of their own");
}
