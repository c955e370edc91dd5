//! Names and tags at their limits and one beyond.

use super::*;

fn tags(count: usize) -> Result<TagSet> {
    TagSet::new((0..count).map(|at| (format!("k{at}"), "v")))
}

#[test]
fn a_metric_is_taken_up_to_its_length_and_not_one_byte_further() {
    let named = |len: usize| SeriesKey::new(&"m".repeat(len), TagSet::default());
    assert!(named(METRIC_BYTES_MAX).is_ok());
    let error = named(METRIC_BYTES_MAX + 1).unwrap_err();
    assert!(matches!(error, Error::LongName { what: "metric", found: 513, max: 512, .. }), "{error}");
}

#[test]
fn a_tag_is_taken_up_to_the_lengths_of_its_key_and_value_and_not_one_byte_further() {
    let tag = |key: usize, value: usize| TagSet::new([("k".repeat(key), "v".repeat(value))]);
    assert!(tag(TAG_KEY_BYTES_MAX, TAG_VALUE_BYTES_MAX).is_ok());
    let error = tag(TAG_KEY_BYTES_MAX + 1, 1).unwrap_err();
    assert!(matches!(error, Error::LongName { what: "tag key", found: 257, max: 256, .. }), "{error}");
    let error = tag(1, TAG_VALUE_BYTES_MAX + 1).unwrap_err();
    assert!(matches!(error, Error::LongName { what: "tag value", found: 1_025, max: 1_024, .. }), "{error}");
}

#[test]
fn lengths_count_bytes_and_not_characters() {
    // Two bytes each.
    assert!(SeriesKey::new(&"ü".repeat(METRIC_BYTES_MAX / 2), TagSet::default()).is_ok());
    assert!(SeriesKey::new(&"ü".repeat(METRIC_BYTES_MAX / 2 + 1), TagSet::default()).is_err());
}

#[test]
fn a_series_carries_as_many_tags_as_are_allowed_and_not_one_more() {
    assert_eq!(tags(TAGS_MAX).unwrap().len(), TAGS_MAX);
    let error = tags(TAGS_MAX + 1).unwrap_err();
    assert!(matches!(error, Error::TooManyTags { found: 65, max: 64 }), "{error}");
}

#[test]
fn names_are_not_empty_hold_no_control_characters_and_keys_stand_once() {
    assert!(matches!(SeriesKey::new("", TagSet::default()), Err(Error::EmptyName { what: "metric" })));
    assert!(matches!(TagSet::new([("k", "")]), Err(Error::EmptyName { what: "tag value" })));
    assert!(matches!(TagSet::new([("a\nb", "v")]), Err(Error::ControlCharacter { found: '\n', .. })));
    assert!(matches!(TagSet::new([("k", "1"), ("k", "2")]), Err(Error::DuplicateTag { .. })));
}

#[test]
fn tags_are_the_same_in_any_order() {
    assert_eq!(TagSet::new([("b", "2"), ("a", "1")]).unwrap(), TagSet::new([("a", "1"), ("b", "2")]).unwrap());
}

#[test]
fn tags_in_common_are_those_on_which_all_agree_that_have_them() {
    let set = |tags: &[(&'static str, &'static str)]| TagSet::new(tags.iter().copied()).unwrap();
    for (sets, agreed, differ) in [
        (vec![], set(&[]), vec![]),
        (vec![set(&[("host", "a"), ("rack", "1")])], set(&[("host", "a"), ("rack", "1")]), vec![]),
        (
            vec![set(&[("host", "a"), ("rack", "1")]), set(&[("host", "b"), ("rack", "1")])],
            set(&[("rack", "1")]),
            vec!["host"],
        ),
        // One that only some have is no difference; the third differs from the first where the second agrees.
        (
            vec![
                set(&[("core", "0"), ("host", "a")]),
                set(&[("host", "a"), ("rack", "1")]),
                set(&[("core", "1"), ("host", "a")]),
            ],
            set(&[("host", "a"), ("rack", "1")]),
            vec!["core"],
        ),
    ] {
        let (found, keys) = TagSet::in_common(&sets);
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        assert_eq!((found, keys), (agreed, differ), "{sets:?}");
    }
}
