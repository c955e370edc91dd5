//! The oracle compared with the answers of a real OpenTSDB 2.4.1.

use std::collections::BTreeMap;

use chrono_tz::Tz;
use serde_json::Value as Json;

use super::{Filter, Number, Question, RateOptions, Refusal, Series};
use crate::recorded;

#[test]
fn the_oracle_gives_every_recorded_answer_of_opentsdb() {
    let series = stored_series();
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in ["01-javatest-queries", "02-javatest-downsample", "03-javatest-aggregators"] {
        for case in recorded::cases(file) {
            checked += 1;
            if let Err(why) = check(&series, &case) {
                wrong.push(format!("{file}/{}: {why}", case.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {checked} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(checked, 101, "cases are missing from fixtures/opentsdb");
}

fn check(series: &[Series], case: &recorded::Case) -> Result<(), String> {
    let body = &case.request["body"];
    let subs = body["queries"].as_array().unwrap();
    let [sub] = &subs[..] else { return Err(format!("{} sub-queries, the oracle takes one", subs.len())) };
    let question = question(body, sub);
    if case.status == 400 {
        return if question.is_none() { Ok(()) } else { Err("OpenTSDB refuses this, the oracle does not".into()) };
    }
    let question = question.ok_or("the oracle cannot read the question")?;
    let answer = super::answer(series, &question).map_err(|refusal| format!("{refusal:?}"))?;
    let millis = body["msResolution"].as_bool().unwrap_or(false);
    let expected = case.body.as_array().unwrap();
    if expected.len() != answer.len() {
        return Err(format!("{} groups, expected {}", answer.len(), expected.len()));
    }
    for (group, expected) in answer.iter().zip(expected) {
        let tags: BTreeMap<String, String> = serde_json::from_value(expected["tags"].clone()).unwrap();
        let mut aggregate_tags: Vec<String> = serde_json::from_value(expected["aggregateTags"].clone()).unwrap();
        aggregate_tags.sort();
        if (&tags, &aggregate_tags) != (&group.tags, &group.aggregate_tags) {
            return Err(format!(
                "tags {:?} {:?}, expected {tags:?} {aggregate_tags:?}",
                group.tags, group.aggregate_tags
            ));
        }
        // Several milliseconds of one second share a key in the original's answer: the last one stands.
        let mut points = BTreeMap::new();
        for (time, value) in &group.points {
            points.insert(if millis { *time } else { time / 1000 }, *value);
        }
        let dps = expected["dps"].as_object().unwrap();
        if dps.len() != points.len() {
            return Err(format!("{} points, expected {}", points.len(), dps.len()));
        }
        for ((time, value), (expected_time, expected)) in points.into_iter().zip(dps) {
            let expected = number(expected);
            if time.to_string() != *expected_time || !value.agrees(expected) {
                return Err(format!("{value:?} at {time}, expected {expected:?} at {expected_time}"));
            }
        }
    }
    Ok(())
}

/// What all datasets together leave in the store.
fn stored_series() -> Vec<Series> {
    let mut series: BTreeMap<(String, BTreeMap<String, String>), BTreeMap<i64, Number>> = BTreeMap::new();
    for sample in recorded::dataset_samples() {
        let metric = sample["metric"].as_str().unwrap().to_owned();
        let tags = serde_json::from_value(sample["tags"].clone()).unwrap();
        let time = sample["timestamp"].as_i64().unwrap();
        let millis = if time >> 32 != 0 { time } else { time * 1000 };
        series.entry((metric, tags)).or_default().insert(millis, number(&sample["value"]));
    }
    series.into_iter().map(|((metric, tags), points)| Series { metric, tags, points }).collect()
}

fn number(json: &Json) -> Number {
    match json {
        Json::String(nan) if nan == "NaN" => Number::Float(f64::NAN),
        Json::Null => Number::Float(f64::NAN),
        _ => json.as_i64().map_or_else(|| Number::Float(json.as_f64().unwrap()), Number::Int),
    }
}

/// The question of a recorded request; `None` if it asks for what OpenTSDB refuses.
fn question(body: &Json, sub: &Json) -> Option<Question> {
    let millis = |time: &Json| time.as_i64().map(|time| if time >> 32 != 0 { time } else { time * 1000 });
    let mut filters: Vec<Filter> = Vec::new();
    if let Some(tags) = sub["tags"].as_object() {
        for (key, value) in tags {
            filters.push(super::filter(key, value.as_str()?, true)?);
        }
    }
    let downsample = match sub["downsample"].as_str() {
        Some(text) => {
            let zone = body["timezone"].as_str().unwrap_or("UTC").parse().ok()?;
            Some(super::downsample(text, zone)?)
        }
        None => None,
    };
    let options = &sub["rateOptions"];
    let rate = sub["rate"].as_bool().unwrap_or(false).then(|| RateOptions {
        counter: options["counter"].as_bool().unwrap_or(false),
        counter_max: options["counterMax"].as_i64().unwrap_or(i64::MAX),
        reset_value: options["resetValue"].as_i64().unwrap_or(0),
        drop_resets: options["dropResets"].as_bool().unwrap_or(false),
    });
    Some(Question {
        metric: sub["metric"].as_str()?.to_owned(),
        filters,
        explicit_tags: sub["explicitTags"].as_bool().unwrap_or(false),
        only: None,
        aggregator: super::aggregator(sub["aggregator"].as_str()?)?,
        downsample,
        rate,
        start_ms: millis(&body["start"])?,
        end_ms: millis(&body["end"])?,
        exact: true,
    })
}

/// Two series a{host=x} with one point at 0 and 60 s, a{host=y} with one at 30 s.
fn two_series() -> Vec<Series> {
    let series = |host: &str, points: &[(i64, i64)]| Series {
        metric: "a".into(),
        tags: BTreeMap::from([("host".into(), host.into())]),
        points: points.iter().map(|(time, value)| (time * 1000, Number::Int(*value))).collect(),
    };
    vec![series("x", &[(0, 10), (60, 20)]), series("y", &[(30, 1)])]
}

fn ask(aggregator: &str, filter: &str) -> Result<Vec<(i64, Number)>, Refusal> {
    let question = Question {
        metric: "a".into(),
        filters: vec![super::filter("host", filter, false).unwrap()],
        explicit_tags: false,
        only: None,
        aggregator: super::aggregator(aggregator).unwrap(),
        downsample: None,
        rate: None,
        start_ms: 0,
        end_ms: 60_000,
        exact: false,
    };
    Ok(super::answer(&two_series(), &question)?.into_iter().flat_map(|group| group.points).collect())
}

#[test]
fn a_series_between_its_points_is_interpolated() {
    let points = ask("sum", "*").unwrap();
    assert_eq!(format!("{points:?}"), "[(0, Int(10)), (30000, Int(16)), (60000, Int(20))]");
}

#[test]
fn an_unknown_literal_value_is_refused_and_an_unknown_pattern_is_not() {
    assert_eq!(ask("sum", "z").unwrap_err(), Refusal::UnknownName { kind: "tagv", name: "z".into() });
    assert!(ask("sum", "z*").unwrap().is_empty());
    assert_eq!(ask("sum", "not_literal_or(z)").unwrap().len(), 3);
}

#[test]
fn the_window_reads_whole_hours_around_the_range() {
    let hour = 3_600_000;
    assert_eq!(super::window(hour + 1, 2 * hour - 1_001, None), (hour, 2 * hour));
    assert_eq!(super::window(hour, 2 * hour, None), (hour, 3 * hour));
    let minute = super::downsample("1m-avg", Tz::UTC);
    assert_eq!(super::window(hour, 2 * hour, minute.as_ref()), (hour, 3 * hour));
    assert_eq!(super::window(hour, 2 * hour - 61_000, minute.as_ref()), (hour, 2 * hour));
}
