//! The lines of `fixtures/influx`: what a real InfluxDB and InfluxDB 3's own parser made of them, compared with our
//! parser.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value as Json;

use super::*;

/// Measurement, tags, field, time.
type Place = (String, Vec<(String, String)>, String, Option<i64>);

/// What a body says, the last write of each place, and whether all of it is good.
struct Said {
    stored: BTreeMap<Place, FieldValue>,
    /// By line.
    good: Vec<bool>,
}

fn say(body: &str) -> Said {
    let mut said = Said { stored: BTreeMap::new(), good: Vec::new() };
    let mut lines = Lines::new(body.as_bytes());
    let mut fields = Vec::new();
    while let Some(read) = lines.read(&mut Blind, &mut fields) {
        let places = read.map_err(|broken| broken.error).and_then(|line| places(line, &fields));
        said.good.push(places.is_ok());
        said.stored.extend(places.unwrap_or_default());
    }
    said
}

fn places(line: SampleLine<'_>, fields: &[Field<'_>]) -> Result<Vec<(Place, FieldValue)>, LineError> {
    let (measurement, tags) = series(line.series)?;
    let mut tags: Vec<(String, String)> =
        tags.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
    tags.sort();
    let place = |field: &Field<'_>| {
        Ok(((measurement.to_string(), tags.clone(), name(field.key)?.into_owned(), line.time), field.value))
    };
    fields.iter().map(place).collect()
}

fn cases() -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/influx/lines.json");
    let Json::Array(cases) = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() else { panic!("no list") };
    assert!(cases.len() >= 700);
    cases
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_default()
}

fn number(kind: &str, value: &Json) -> FieldValue {
    match kind {
        "float" => FieldValue::Number(Value::Float(text(value).parse().unwrap())),
        "integer" | "int" => FieldValue::Number(Value::Int(value.as_i64().unwrap())),
        "boolean" => FieldValue::Number(Value::Int(value.as_bool().unwrap().into())),
        "unsigned" => FieldValue::Number(Value::Int(value.as_u64().unwrap().try_into().unwrap())),
        "string" => FieldValue::Text,
        other => panic!("type {other}"),
    }
}

/// Of one field.
fn has_another_type((one, value): (&Place, &FieldValue), (other, other_value): (&Place, &FieldValue)) -> bool {
    let kind = |value: &FieldValue| match value {
        FieldValue::Number(value) => Some(value.is_int()),
        _ => None,
    };
    (&one.0, &one.2) == (&other.0, &other.2) && kind(value) != kind(other_value)
}

#[test]
fn a_real_influxdb_stores_the_same_of_every_body() {
    let mut compared = 0;
    for case in cases() {
        let (body, error) = (text(&case["body"]), text(&case["error"]));
        // One field has one type there; here every sample has its own.
        let typed = error.contains("field type conflict");
        // The name is taken there; here it is one like another.
        let time = error.contains("\"time\" on measurement") || body == "m v=1,time=2";
        // Of the year 2262; here it is refused for being ahead of the clock.
        let last = error.contains("time outside range");
        // After a quote that is not closed, or a backslash, the next line belongs to this there; here it does not.
        let open = |line: &str| line.matches('"').count() % 2 == 1 || line.ends_with('\\');
        let swallowed = body.contains('\n') && body.lines().any(open);
        // Here a quote needs no escape but in a string; and some names with two backslashes cannot be asked for there.
        let quote = body.contains("\\\"") || body.contains("\\\\");
        // Unsigned integers came later, and line breaks of other systems not at all.
        if typed || time || last || swallowed || quote || body == "m v=1u" || body.contains('\r') {
            continue;
        }
        let said = say(body);
        // What is asked for there comes back in one type.
        if said.stored.iter().any(|one| said.stored.iter().any(|other| has_another_type(one, other))) {
            continue;
        }
        compared += 1;
        let stored: BTreeMap<Place, FieldValue> = case["stored"]
            .as_array()
            .unwrap()
            .iter()
            .map(|sample| {
                let tags = sample["tags"].as_object().unwrap().iter();
                let tags = tags.map(|(key, value)| (key.clone(), text(value).to_owned())).collect();
                let (measurement, field) = (text(&sample["measurement"]).to_owned(), text(&sample["field"]).to_owned());
                let value = number(text(&sample["type"]), &sample["value"]);
                ((measurement, tags, field, sample["time"].as_i64()), value)
            })
            .collect();
        assert_eq!(said.stored, stored, "{body}\n{error}");
        assert_eq!(said.good.iter().all(|good| *good), case["status"] == 204, "{body}\n{error}");
    }
    assert!(compared >= 600, "{compared} compared");
}

#[test]
fn the_parser_of_influxdb_3_reads_the_same_where_it_reads_a_line() {
    let mut compared = 0;
    for case in cases() {
        let body = text(&case["body"]);
        let [line] = case["crate"].as_array().unwrap().as_slice() else { continue };
        let said = say(body);
        if line.get("error").is_some() || said.good != [true] {
            continue;
        }
        // Both ways are in use; InfluxDB 1.x, which is followed here, drops this backslash.
        if body.split([',', ' ']).next().is_some_and(|measurement| measurement.contains("\\=")) {
            continue;
        }
        compared += 1;
        let pairs = |json: &Json| -> Vec<(String, Json)> {
            json.as_array().unwrap().iter().map(|pair| (text(&pair[0]).to_owned(), pair[1].clone())).collect()
        };
        let mut tags: Vec<(String, String)> =
            pairs(&line["tags"]).into_iter().map(|(key, value)| (key, text(&value).to_owned())).collect();
        tags.sort();
        let stored: BTreeMap<Place, FieldValue> = pairs(&line["fields"])
            .into_iter()
            .map(|(field, value)| {
                let value = match &value {
                    Json::String(kind) => number(kind, &value),
                    Json::Bool(_) => number("boolean", &value),
                    Json::Object(typed) => {
                        let (kind, value) = typed.iter().next().unwrap();
                        number(kind, value)
                    }
                    other => panic!("{other}"),
                };
                ((text(&line["measurement"]).to_owned(), tags.clone(), field, line["time"].as_i64()), value)
            })
            .collect();
        assert_eq!(said.stored, stored, "{body}");
    }
    assert!(compared >= 250, "{compared} compared");
}
