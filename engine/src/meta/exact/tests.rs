use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::disk::sim::Random;
use crate::meta::{Meta, MetaChange};

fn exact(text: &str) -> Result<Value, Error> {
    deserialize(&mut serde_json::Deserializer::from_str(text))
}

/// The fast way of serde_json misses some by a bit: why there is another. When it does not any more, this module can go.
#[test]
fn floats_that_the_fast_way_misses_are_read_as_they_were_written() {
    let mut random = Random::new(1);
    let floats = std::iter::repeat_with(|| f64::from_bits(random.next())).filter(|float| float.is_finite());
    let mut missed = 0;
    for written in floats.take(10_000) {
        let text = json!(written).to_string();
        let fast: Value = serde_json::from_str(&text).unwrap();
        missed += usize::from(fast.as_f64().unwrap().to_bits() != written.to_bits());
        assert_eq!(exact(&text).unwrap().as_f64().unwrap().to_bits(), written.to_bits(), "{text}");
    }
    assert!(missed > 0);
}

#[test]
fn everything_else_is_read_as_serde_json_reads_it() {
    for text in [
        r#"{"b": [1, -2, 18446744073709551615, "x\u00e9\n", null, true], "a": {"": {}}, "c": []}"#,
        r#" {"twice": 1, "x": 2, "twice": 3} "#,
        "-0",
        "1e3",
        "123456789012345678901234567890",
        "\"\\ud83d\\ude00\"",
    ] {
        let expected: Value = serde_json::from_str(text).unwrap();
        let read = exact(text).unwrap();
        assert_eq!((&read, read.to_string()), (&expected, expected.to_string()), "{text}");
    }
    for text in ["1e999", "{\"a\": 1e999}", "\"\\ud800\"", "{\"a\" 1}", "[1,]", ""] {
        assert!(exact(text).is_err() && serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_nested_too_deep_is_an_error_and_no_end_of_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let job = |depth| format!("{{\"job\":{}}}", nested(depth));
    assert!(serde_json::from_str::<MetaChange>(&job(DEPTH_MAX)).is_ok());
    assert!(serde_json::from_str::<MetaChange>(&job(DEPTH_MAX + 1)).is_err());
    assert!(serde_json::from_str::<Meta>(&job(1_000_000)).is_err());
}

proptest! {
    #[test]
    fn a_description_with_any_floats_is_the_same_after_any_number_of_reads(
        floats in prop::collection::vec(any::<u64>().prop_map(f64::from_bits), 1..20),
    ) {
        let floats: Vec<f64> = floats.into_iter().filter(|float| float.is_finite()).collect();
        let mut meta = Meta::default();
        meta.apply(MetaChange::Job(json!({"floats": floats, "deep": [{"first": floats.first()}]})));
        let written = serde_json::to_string(&meta).unwrap();
        let read: Meta = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), written);
        let change = MetaChange::Job(meta.job().cloned().unwrap());
        let again: MetaChange = serde_json::from_slice(&serde_json::to_vec(&change).unwrap()).unwrap();
        prop_assert_eq!(again, change);
    }
}
