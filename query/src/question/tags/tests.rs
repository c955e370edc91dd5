use telem_engine::{SeriesKey, TagSet};

use super::{decode_tags, encode_tags};

#[test]
fn encoded_tags_read_back_and_sort_as_the_series_do() {
    let key = |tags: &[(&str, &str)]| SeriesKey::new("m", TagSet::new(tags.iter().copied()).unwrap()).unwrap();
    let mut keys = [
        key(&[]),
        key(&[("a", "1")]),
        key(&[("a", "1"), ("b", "2")]),
        key(&[("a", "1 x")]),
        key(&[("a", "10")]),
        key(&[("a b", "0")]),
        key(&[("b", "ü")]),
    ];
    keys.sort();
    let encoded: Vec<String> = keys.iter().map(|key| encode_tags(key.tags())).collect();
    assert!(encoded.is_sorted(), "{encoded:?}");
    for (key, encoded) in keys.iter().zip(&encoded) {
        assert_eq!(decode_tags(encoded).unwrap(), *key.tags());
    }
    assert!(decode_tags("a").is_err());
}
