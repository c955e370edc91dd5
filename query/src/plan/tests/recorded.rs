//! The recorded answers of a real OpenTSDB 2.4.1 (`fixtures/opentsdb`), compared with the planner's, without HTTP.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;
use telem_engine::{Timestamp, Value};

use super::support::{World, downsample};
use crate::answer::{TsAnswer, TsGroup};
use crate::question::expression::{Case, Expression};
use crate::question::tsq::{Fidelity, Matcher, Rate, TagFilter, TsQuery};

#[test]
fn recorded_queries_are_answered_as_opentsdb_did() {
    let world = World::new();
    let order = read("datasets/_order");
    for name in order["datasets"].as_array().unwrap() {
        put(&world, &read(&format!("datasets/{}", name.as_str().unwrap())));
    }
    let mut wrong = Vec::new();
    let mut cases = 0;
    for file in ["01-javatest-queries", "02-javatest-downsample", "03-javatest-aggregators"] {
        for case in read(file).as_array().unwrap() {
            cases += 1;
            if let Err(why) = check(&world, case) {
                wrong.push(format!("{}: {why}", case["id"]));
            }
        }
    }
    assert_eq!(cases, 101);
    assert!(wrong.is_empty(), "{} of {cases} are wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn read(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fixtures/opentsdb/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn put(world: &World, dataset: &Json) {
    for sample in dataset["put"].as_array().unwrap() {
        let tags: Vec<(&str, &str)> =
            sample["tags"].as_object().unwrap().iter().map(|(key, value)| (&**key, value.as_str().unwrap())).collect();
        let value = &sample["value"];
        let value = value.as_i64().map_or_else(|| Value::Float(value.as_f64().unwrap()), Value::Int);
        world.put(sample["metric"].as_str().unwrap(), &tags, [(time(&sample["timestamp"]), value)]);
    }
}

/// Seconds up to 32 bits, milliseconds above.
fn time(json: &Json) -> Timestamp {
    let number = json.as_i64().unwrap();
    if number >> 32 == 0 { Timestamp::from_seconds(number) } else { Timestamp::from_millis(number) }
}

fn check(world: &World, case: &Json) -> Result<(), String> {
    let body = &case["request"]["body"];
    let asked = &body["queries"][0];
    if asked["downsample"].as_str().is_some_and(|text| text.ends_with("-none")) {
        let refused = world.ask(&query(body, asked)).is_err();
        return if refused && case["expect"]["status"] == 400 { Ok(()) } else { Err("accepted".to_owned()) };
    }
    let answer = world.ask(&query(body, asked)).map_err(|error| error.to_string())?;
    let expected = case["expect"]["body"].as_array().unwrap();
    if answer.groups.len() != expected.len() {
        return Err(format!("{} groups, expected {}", answer.groups.len(), expected.len()));
    }
    expected.iter().try_for_each(|expected| check_group(&answer, expected, body["msResolution"] == true))
}

fn check_group(answer: &TsAnswer, expected: &Json, millis: bool) -> Result<(), String> {
    let tags: BTreeMap<String, String> = serde_json::from_value(expected["tags"].clone()).unwrap();
    let aggregate_tags: Vec<String> = serde_json::from_value(expected["aggregateTags"].clone()).unwrap();
    let group: &TsGroup = answer
        .groups
        .iter()
        .find(|group| group.tags.iter().eq(tags.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
        .ok_or(format!("no group {tags:?}"))?;
    if group.aggregate_tags != aggregate_tags {
        return Err(format!("aggregate tags {:?}, expected {aggregate_tags:?}", group.aggregate_tags));
    }
    // Several times of one second share a key, and the last of them stays.
    let key = |time: Timestamp| if millis { time.millis() } else { time.seconds() }.to_string();
    let found: BTreeMap<String, Value> = group.points.iter().map(|(time, value)| (key(*time), *value)).collect();
    let expected = expected["dps"].as_object().unwrap();
    if found.len() != expected.len() {
        return Err(format!("{} points, expected {}", found.len(), expected.len()));
    }
    for (time, expected) in expected {
        let found = *found.get(time).ok_or(format!("nothing at {time}"))?;
        let same = match (found, expected) {
            (Value::Int(found), Json::Number(_)) => expected.as_i64() == Some(found),
            (Value::Float(found), Json::Number(number)) => {
                let number = number.as_f64().unwrap();
                number == found || (number - found).abs() <= 1e-9 * number.abs()
            }
            (Value::Float(found), _) => found.is_nan() && expected == "NaN",
            (Value::Int(_), _) => false,
        };
        if !same || found.is_int() != expected.is_i64() {
            return Err(format!("{found} at {time}, expected {expected}"));
        }
    }
    Ok(())
}

fn query(body: &Json, asked: &Json) -> TsQuery {
    let tags = asked["tags"].as_object().into_iter().flatten();
    TsQuery {
        metric: asked["metric"].as_str().unwrap().to_owned(),
        filters: tags.map(|(key, value)| filter(key, value.as_str().unwrap())).collect(),
        explicit_tags: asked["explicitTags"] == true,
        series: None,
        aggregator: asked["aggregator"].as_str().unwrap().parse().unwrap(),
        downsample: asked["downsample"].as_str().map(downsample),
        rate: (asked["rate"] == true).then(|| rate(&asked["rateOptions"])),
        start: time(&body["start"]),
        end: time(&body["end"]),
        fidelity: Fidelity::OpenTsdb,
    }
}

fn filter(key: &str, value: &str) -> TagFilter {
    let expression = value.strip_prefix("regexp(").and_then(|value| value.strip_suffix(')'));
    let matcher = match expression {
        Some(expression) => Matcher::Regexp(Expression::new(expression, Case::Matters).unwrap()),
        None if value.contains('*') => Matcher::IWildcard(value.to_owned()),
        None => Matcher::LiteralOr(value.split('|').map(str::to_owned).collect()),
    };
    TagFilter { key: key.to_owned(), matcher, group_by: true }
}

fn rate(options: &Json) -> Rate {
    Rate {
        counter: options["counter"] == true,
        counter_max: options["counterMax"].as_i64(),
        reset_value: options["resetValue"].as_i64().unwrap_or(0),
        drop_resets: options["dropResets"] == true,
    }
}
