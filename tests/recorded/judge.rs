//! How far an answer agrees with the recorded one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::Case;
use crate::process::Response;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// The right status and the right numbers; other words, int instead of float, or another order.
    Semantic(String),
    Fail(String),
}

use Verdict::{Fail, Pass, Semantic};

/// Fields that no two servers share.
const IGNORED: [&str; 7] = ["tsuid", "tsuids", "time", "stats", "trace", "created", "treeId"];

pub fn judge(case: &Case, response: &Response) -> Verdict {
    if response.status != case.status {
        return Fail(format!("status {}, expected {}: {}", response.status, case.status, response.text()));
    }
    let path = case.request["path"].as_str().unwrap_or_default();
    let got = response.json();
    if case.compare.starts_with("shape only") || case.compare.starts_with("status only") {
        return Pass;
    }
    // Every build has its own identity: only what it consists of is compared.
    if case.body.get("short_revision").is_some() {
        let fields = |body: &Json| -> BTreeSet<String> {
            body.as_object()
                .into_iter()
                .flatten()
                .filter(|(_, value)| value.is_string())
                .map(|(key, _)| key.clone())
                .collect()
        };
        return if fields(&case.body) == fields(&got) { Pass } else { Fail(format!("not a version: {got}")) };
    }
    match (&case.body, case.compare.as_str()) {
        (Json::Object(expected), how) if how.starts_with("uids") || how.starts_with("keys") => {
            let missing = expected.keys().find(|key| got.get(key.as_str()).is_none());
            return match missing {
                None => Pass,
                Some(key) if how.starts_with("keys") => Semantic(format!("no '{key}'")),
                Some(key) => Fail(format!("no '{key}' in {got}")),
            };
        }
        (Json::Array(expected), "as a set") => {
            let sorted = |list: &[Json]| list.iter().map(Json::to_string).collect::<BTreeSet<_>>();
            let agrees = got.as_array().is_some_and(|got| sorted(got) == sorted(expected));
            return if agrees { Pass } else { Fail(format!("{got}, expected {expected:?} in any order")) };
        }
        _ => {}
    }
    match &case.body {
        Json::Null => Pass,
        Json::Object(expected) if expected.contains_key("error") => error(&case.body["error"], &got["error"]),
        Json::Object(expected) if expected.contains_key("_raw") => {
            let agrees = expected["_raw"].as_str() == Some(&response.text());
            if agrees { Pass } else { Semantic("the text differs".into()) }
        }
        Json::Object(expected) if expected.contains_key("results") => lookup(&case.body, &got),
        Json::Array(expected) if path.contains("/query") && expected.iter().all(|group| group["dps"] != Json::Null) => {
            let Json::Array(got) = &got else { return Fail(format!("no list of results: {got}")) };
            query(expected, got)
        }
        expected => any(expected, &got, "").map_or(Pass, Fail),
    }
}

fn error(expected: &Json, got: &Json) -> Verdict {
    let Some(message) = got["message"].as_str() else { return Fail(format!("no message in the error object: {got}")) };
    if got["code"] != expected["code"] {
        return Fail(format!("error code {}, expected {}", got["code"], expected["code"]));
    }
    let expected = expected["message"].as_str().unwrap_or_default();
    if message == expected { Pass } else { Semantic(format!("'{message}', OpenTSDB says '{expected}'")) }
}

fn lookup(expected: &Json, got: &Json) -> Verdict {
    let series = |answer: &Json| {
        let results = answer["results"].as_array().cloned().unwrap_or_default();
        let mut series: Vec<String> = results.iter().map(identity).collect();
        series.sort();
        series
    };
    if series(expected) != series(got) {
        return Fail(format!("results {:?}, expected {:?}", series(got), series(expected)));
    }
    let but_results = |answer: &Json| {
        let mut answer = answer.clone();
        answer.as_object_mut().map(|fields| fields.remove("results"));
        answer
    };
    any(&but_results(expected), &but_results(got), "").map_or(Pass, Semantic)
}

/// Metric and tags, whatever order the tags are in.
fn identity(result: &Json) -> String {
    let tags: BTreeMap<String, Json> = serde_json::from_value(result["tags"].clone()).unwrap_or_default();
    format!("{} {tags:?}", result["metric"])
}

fn query(expected: &[Json], got: &[Json]) -> Verdict {
    if expected.len() != got.len() {
        let tags: Vec<&Json> = got.iter().map(|group| &group["tags"]).collect();
        return Fail(format!("{} groups, expected {}: {tags:?}", got.len(), expected.len()));
    }
    let mut remarks: Vec<String> = Vec::new();
    let mut left: Vec<&Json> = got.iter().collect();
    for group in expected {
        let same: Vec<usize> = (0..left.len()).filter(|at| identity(left[*at]) == identity(group)).collect();
        let Some(first) = same.first() else { return Fail(format!("no group {}", identity(group))) };
        let differences: Vec<Option<String>> = same.iter().map(|at| points(&group["dps"], &left[*at]["dps"])).collect();
        let Some(agrees) = differences.iter().position(Option::is_none) else {
            return Fail(format!("{}: {}", identity(left[*first]), differences[0].as_deref().unwrap_or_default()));
        };
        let found = left.remove(same[agrees]);
        let keys = |group: &Json| serde_json::from_value::<BTreeSet<String>>(group["aggregateTags"].clone()).ok();
        if keys(found) != keys(group) {
            return Fail(format!("aggregateTags {}, expected {}", found["aggregateTags"], group["aggregateTags"]));
        }
        for notes in ["annotations", "globalAnnotations"].iter().filter(|notes| group.get(**notes).is_some()) {
            if let Some(why) = any(&group[*notes], &found[*notes], notes) {
                return Fail(why);
            }
        }
        if group.get("query").is_some()
            && let Some(why) = any(&group["query"], &found["query"], "query")
        {
            remarks.push(why);
        }
        if !same_types(&group["dps"], &found["dps"]) {
            remarks.push("an int is shown as a float or a float as an int".into());
        }
    }
    if expected.iter().map(identity).ne(got.iter().map(identity)) {
        remarks.push("order of the groups".into());
    }
    remarks.into_iter().next().map_or(Pass, Semantic)
}

/// The first difference between two `dps`, which are objects or lists of pairs.
fn points(expected: &Json, got: &Json) -> Option<String> {
    let pairs = |dps: &Json| -> Vec<(String, Json)> {
        match dps {
            Json::Object(map) => map.iter().map(|(time, value)| (time.clone(), value.clone())).collect(),
            Json::Array(list) => list.iter().map(|pair| (pair[0].to_string(), pair[1].clone())).collect(),
            _ => Vec::new(),
        }
    };
    if expected.is_object() != got.is_object() {
        return Some("dps is a list for an object or an object for a list".into());
    }
    let (expected, got) = (pairs(expected), pairs(got));
    for ((time, value), (got_time, got_value)) in expected.iter().zip(&got) {
        if time != got_time || !same_number(value, got_value) {
            return Some(format!("{got_value} at {got_time}, expected {value} at {time}"));
        }
    }
    (expected.len() != got.len()).then(|| format!("{} points, expected {}", got.len(), expected.len()))
}

fn same_types(expected: &Json, got: &Json) -> bool {
    let types = |dps: &Json| -> Vec<bool> {
        match dps {
            Json::Object(map) => map.values().map(Json::is_f64).collect(),
            Json::Array(list) => list.iter().map(|pair| pair[1].is_f64()).collect(),
            _ => Vec::new(),
        }
    };
    types(expected) == types(got)
}

fn same_number(a: &Json, b: &Json) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0),
        _ => a == b,
    }
}

/// The first difference; `got` may say more than `expected`.
fn any(expected: &Json, got: &Json, path: &str) -> Option<String> {
    match (expected, got) {
        (Json::Object(expected), Json::Object(got)) => {
            let checked = expected.iter().filter(|(key, _)| !IGNORED.contains(&key.as_str()));
            checked.into_iter().find_map(|(key, value)| match got.get(key) {
                Some(found) => any(value, found, &format!("{path}.{key}")),
                None => Some(format!("{path}.{key} is missing")),
            })
        }
        (Json::Array(expected), Json::Array(got)) if expected.len() == got.len() => {
            expected.iter().zip(got).enumerate().find_map(|(at, (a, b))| any(a, b, &format!("{path}[{at}]")))
        }
        _ => (!same_number(expected, got)).then(|| format!("{path}: {got}, expected {expected}")),
    }
}
