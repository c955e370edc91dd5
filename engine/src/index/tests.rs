//! The index compared with one that scans all keys.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn key(metric: &str, tags: &[(&str, &str)]) -> SeriesKey {
    SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap()
}

fn insert(index: &SeriesIndex, key: &SeriesKey) -> (SeriesId, bool) {
    index.get_or_insert(key, u32::MAX).unwrap()
}

fn insert_raw(index: &SeriesIndex, metric: &str, tags: &[(&str, &str)]) -> Result<(SeriesId, bool)> {
    index.get_or_insert_raw(&RawKey { metric, tags })
}

/// Few names, so that series share them.
fn keys() -> impl Strategy<Value = Vec<SeriesKey>> {
    let names = || prop::sample::select(vec!["a", "b", "ba", "ü", "z"]);
    let tags = prop::collection::btree_map(names(), prop_oneof![names(), Just("only here")], 0..4);
    let key = (names(), tags).prop_map(|(metric, tags)| key(metric, &tags.into_iter().collect::<Vec<_>>()));
    prop::collection::vec(key, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_is_found_as_by_going_through_all_keys(
        keys in keys(), raw in any::<bool>(), accepted in prop::collection::btree_set("[abz]|only here", 0..3),
        end in 0..80_u32,
    ) {
        let index = SeriesIndex::default();
        let mut known: Vec<SeriesKey> = Vec::new();
        for key in &keys {
            let expected = known.iter().position(|other| other == key).unwrap_or(known.len());
            let is_new = expected == known.len();
            let tags: Vec<(&str, &str)> = key.tags().iter().collect();
            let found = if raw { insert_raw(&index, key.metric(), &tags).unwrap() } else { insert(&index, key) };
            prop_assert_eq!(found, (SeriesId(expected as u32), is_new));
            if is_new {
                known.push(key.clone());
            }
        }
        prop_assert_eq!(index.len(), known.len());
        let ids = || (0..).map(SeriesId).zip(&known);
        for (id, key) in ids() {
            let found = index.key(id);
            prop_assert_eq!(found.as_ref(), Some(key));
            prop_assert_eq!(index.id(key), Some(id));
        }
        let mut all: Vec<SeriesId> = (0..known.len() as u32).rev().chain([5_000]).map(SeriesId).collect();
        index.sort_canonical(&mut all);
        let mut sorted: Vec<SeriesId> = ids().map(|(id, _)| id).collect();
        sorted.sort_by_key(|id| &known[id.0 as usize]);
        sorted.push(SeriesId(5_000));
        prop_assert_eq!(all, sorted);

        let end = SeriesId(end);
        let mut metrics: Vec<&str> = ids().filter(|(id, _)| *id < end).map(|(_, key)| key.metric()).collect();
        metrics.sort_unstable();
        metrics.dedup();
        let found = index.metrics_before(end);
        prop_assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), metrics);
        for metric in ["a", "b", "ba", "ü", "z", "never"] {
            let of = || ids().filter(|(_, key)| key.metric() == metric);
            let mut tag_keys: Vec<&str> = of().flat_map(|(_, key)| key.tags().iter().map(|tag| tag.0)).collect();
            tag_keys.sort_unstable();
            tag_keys.dedup();
            let found = index.tag_keys(metric);
            prop_assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), tag_keys.clone());
            prop_assert_eq!(index.series_count(metric), of().count());
            let values_of = |tag: &str| of().filter_map(|(_, key)| key.tags().get(tag)).collect::<BTreeSet<_>>().len();
            let counts: Vec<(Arc<str>, usize)> = tag_keys.iter().map(|tag| (Arc::from(*tag), values_of(tag))).collect();
            prop_assert_eq!(index.tag_value_counts(metric), counts);
            let series = index.select(metric, &[]);
            for tags in [&[][..], &["a"], &["z", "never", "a"]] {
                let values_of = |id: &SeriesId| -> Vec<Option<Arc<str>>> {
                    tags.iter().map(|tag| known[id.0 as usize].tags().get(tag).map(Arc::from)).collect()
                };
                let groups = index.group(&series, tags).unwrap();
                let found = groups.of_series.iter().map(|group| groups.values[*group as usize].clone());
                prop_assert_eq!(found.collect::<Vec<_>>(), series.iter().map(values_of).collect::<Vec<_>>());
                let firsts: BTreeSet<_> = groups.values.iter().collect();
                prop_assert_eq!(firsts.len(), groups.values.len());
                let mut seen = 0;
                let in_order = groups.of_series.iter().all(|group| {
                    let is_next_or_known = *group <= seen;
                    seen = seen.max(*group + 1);
                    is_next_or_known
                });
                prop_assert!(in_order, "groups in the order of their first series");
            }
            for tag in ["a", "z", "never"] {
                let mut values: Vec<&str> = of().filter_map(|(_, key)| key.tags().get(tag)).collect();
                values.sort_unstable();
                values.dedup();
                let found = index.tag_values(metric, tag);
                prop_assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), values);
                let accepts = |value: &str| accepted.contains(value);
                let has_b = |value: &str| value.contains('b');
                let among: Vec<String> = accepted.iter().map(ToString::to_string).collect();
                let named = TagPredicate { key: tag, accepts: &accepts, among: Some(&among) };
                let has_b = || TagPredicate { key: "b", accepts: &has_b, among: None };
                let predicates = [TagPredicate { among: None, ..named }, has_b()];
                let by_name = [has_b(), named];
                for predicates in [&predicates[..], &predicates[..1], &by_name, &by_name[1..], &[]] {
                    let satisfies = |key: &SeriesKey| {
                        predicates.iter().all(|one| key.tags().get(one.key).is_some_and(|value| (one.accepts)(value)))
                    };
                    let mut expected: Vec<SeriesId> =
                        of().filter(|(id, key)| *id < end && satisfies(key)).map(|(id, _)| id).collect();
                    expected.sort_by_key(|id| &known[id.0 as usize]);
                    prop_assert_eq!(index.select_before(end, metric, predicates), expected);
                }
            }
        }
    }
}

#[test]
fn a_series_that_is_not_there_has_no_group() {
    let index = SeriesIndex::default();
    insert(&index, &key("load", &[("host", "a")]));
    assert!(index.group(&[SeriesId(0), SeriesId(1)], &["host"]).is_err());
}

#[test]
fn one_host_of_very_many_is_selected() {
    let index = SeriesIndex::default();
    for host in 0..2_000 {
        insert(&index, &key("load", &[("cluster", "juno"), ("host", &format!("nid{host:04}"))]));
    }
    let is_one = |value: &str| value == "nid1234";
    let named = ["nid1234".to_owned(), "never".to_owned(), "nid1234".to_owned()];
    for among in [None, Some(&named[..])] {
        let one = TagPredicate { key: "host", accepts: &is_one, among };
        assert_eq!(index.select("load", &[one]), [SeriesId(1_234)]);
    }
    let every = TagPredicate { key: "cluster", accepts: &|_| true, among: None };
    assert_eq!(index.select("load", &[every]).len(), 2_000);
}

#[test]
fn names_are_suggested_in_their_order_also_those_that_came_after_the_last_question() {
    let index = SeriesIndex::default();
    for metric in ["node_load5", "node_load1", "gpu_watts"] {
        insert(&index, &key(metric, &[]));
    }
    assert_eq!(index.suggest(NameKind::Metric, "node_", 10), ["node_load1", "node_load5"]);
    insert(&index, &key("node_load15", &[("host", "b")]));
    insert(&index, &key("node_load15", &[("host", "a")]));
    assert_eq!(index.suggest(NameKind::Metric, "node_", 2), ["node_load1", "node_load15"]);
    assert_eq!(index.suggest(NameKind::TagValue, "", 10), ["a", "b"]);
    let containing = |part, max| index.containing(NameKind::Metric, part, max);
    assert_eq!(containing("load1", 10), ["node_load1", "node_load15"]);
    assert_eq!(containing("_", 2), ["gpu_watts", "node_load1"]);
    assert!(containing("LOAD", 10).is_empty() && containing("", 0).is_empty());
    let ordinals = ["b", "a", "c"].map(|value| index.ordinal(NameKind::TagValue, value));
    assert_eq!(ordinals, [Some(0), Some(1), None], "ordinals are in the order of first sight");
    for ordinal in ordinals.into_iter().flatten() {
        let name = index.name(NameKind::TagValue, ordinal).unwrap();
        assert_eq!(index.ordinal(NameKind::TagValue, &name), Some(ordinal));
    }
    assert_eq!(index.name(NameKind::TagValue, u32::MAX), None);
}

#[test]
fn a_key_with_a_bad_name_leaves_nothing_behind() {
    let index = SeriesIndex::default();
    insert(&index, &key("a", &[]));
    for tags in
        [&[("good", "x"), ("k", "")][..], &[("good", "x"), ("", "v")], &[("good", "x\u{7}")], &[("k", "1"), ("k", "2")]]
    {
        assert!(insert_raw(&index, "b", tags).is_err(), "{tags:?}");
    }
    assert!(insert_raw(&index, "", &[("good", "x")]).is_err());
    assert_eq!((index.len(), index.metrics().len()), (1, 1));
    assert!(!index.knows(NameKind::TagKey, "good"));
}

#[test]
fn raw_tags_in_any_order_are_the_same_series() {
    let index = SeriesIndex::default();
    let (id, _) = insert_raw(&index, "m", &[("z", "1"), ("a", "2")]).unwrap();
    assert_eq!(index.id(&key("m", &[("a", "2"), ("z", "1")])), Some(id));
    assert_eq!(insert_raw(&index, "m", &[("a", "2"), ("z", "1")]).unwrap(), (id, false));
}

#[test]
fn series_are_taken_up_to_the_limit_and_known_ones_beyond_it() {
    let index = SeriesIndex::default();
    for (at, metric) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(index.get_or_insert(&key(metric, &[]), 2).unwrap(), (SeriesId(at as u32), true));
    }
    let error = index.get_or_insert(&key("c", &[]), 2).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    assert_eq!(index.get_or_insert(&key("a", &[]), 2).unwrap(), (SeriesId(0), false));
    assert!(!index.knows(NameKind::Metric, "c"), "what is refused leaves nothing behind");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// As most series of a metric have: they are sorted by numbers, unless their values differ in too many ways.
    #[test]
    fn series_with_the_same_tags_are_sorted_as_their_keys(
        tags in 1..40_usize, values in 1..2_000_u32, series in 1..60_usize, seed in any::<u64>(),
    ) {
        let index = SeriesIndex::default();
        let mut draw = seed | 1;
        let mut drawn = |below: u32| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (draw >> 33) as u32 % below
        };
        for _ in 0..series {
            let metric = format!("m{}", drawn(3));
            let tags = (0..tags).map(|tag| (format!("t{tag}"), format!("v{}", drawn(values))));
            insert(&index, &SeriesKey::new(&metric, TagSet::new(tags).unwrap()).unwrap());
        }
        let mut ids: Vec<SeriesId> = (0..index.len() as u32).map(SeriesId).collect();
        let mut expected = ids.clone();
        expected.sort_by_key(|id| index.key(*id));
        index.sort_canonical(&mut ids);
        prop_assert_eq!(ids, expected);
    }
}
