//! The body of a request: metrics, filters, expressions, and the requested outputs.

use std::collections::BTreeSet;

use chrono_tz::Tz;
use serde_json::{Map, Value as Json, json};
use telem_query::tsq::Fidelity;

use super::arithmetic::Arithmetic;
use super::join::{By, JoinKind};
use crate::protocols::opentsdb::query::filters::{Filter, FilterRole};
use crate::protocols::opentsdb::query::parse::{SUBS_MAX, check_filters};
use crate::protocols::opentsdb::query::request::{QueryRequest, Sub};
use crate::protocols::opentsdb::{aggregators, time};

/// What is asked.
#[derive(Debug)]
pub struct Ask {
    pub asked: QueryRequest,
    /// One for each sub-query in `asked`.
    pub metrics: Vec<ExpressionMetric>,
    pub expressions: Vec<NamedExpression>,
    pub outputs: Vec<ExpressionOutput>,
    /// The request as it was understood, for the answer.
    pub echo: Json,
}

#[derive(Debug)]
pub struct ExpressionMetric {
    pub id: String,
    /// The value where a series has none.
    pub fill: f64,
}

/// An expression that others may name.
#[derive(Debug)]
pub struct NamedExpression {
    pub id: String,
    pub expression: Arithmetic,
    pub operator: JoinKind,
    pub by: By,
    /// Its value where it has none.
    pub fill: f64,
}

#[derive(Debug)]
pub struct ExpressionOutput {
    pub id: String,
    pub alias: Option<String>,
}

/// # Errors
/// Says what is missing or wrong.
pub fn read(body: &str, fidelity: Fidelity) -> Result<Ask, String> {
    // What follows the JSON is not looked at.
    let mut parsed = serde_json::Deserializer::from_str(body).into_iter::<Json>();
    let body = parsed.next().ok_or("Incoming data was null or empty")?.map_err(|error| error.to_string())?;
    if !body.is_object() {
        return Err(format!("expected an object, found {body}"));
    }
    let time = some(&body["time"]).ok_or("missing time")?;
    if fidelity == Fidelity::OpenTsdb {
        as_in_opentsdb(&body, time)?;
    }
    let (asked, echoed_time) = timespan(time)?;
    let filters: Vec<(String, Vec<Filter>, bool)> =
        list(&body["filters"])?.iter().map(filter_set).collect::<Result<_, _>>()?;
    distinct("filter", filters.iter().map(|(id, ..)| id))?;
    let metrics = list(&body["metrics"])?;
    if metrics.is_empty() {
        return Err("missing or empty metrics".to_owned());
    }
    if metrics.len() > SUBS_MAX {
        return Err(format!("more than {SUBS_MAX} metrics in one request"));
    }
    let mut asked = asked;
    let mut named = Vec::new();
    for metric in metrics {
        let sub = sub_query(metric, time, &filters, fidelity)?;
        asked.subs.push(sub);
        named.push(ExpressionMetric {
            id: id(metric)?,
            fill: fill(&metric["fillPolicy"])?.map_or(0.0, |(_, value)| value),
        });
    }
    let expressions: Vec<NamedExpression> =
        list(&body["expressions"])?.iter().map(expression).collect::<Result<_, _>>()?;
    let ids = || named.iter().map(|metric| &metric.id).chain(expressions.iter().map(|expression| &expression.id));
    distinct("metric or expression", ids())?;
    let known: BTreeSet<&str> = ids().map(String::as_str).collect();
    for NamedExpression { id, expression, .. } in &expressions {
        if let Some(missing) = expression.variables().into_iter().find(|name| !known.contains(name)) {
            return Err(format!("Expression [{id}] was missing input {missing}"));
        }
    }
    let outputs: Vec<ExpressionOutput> = list(&body["outputs"])?.iter().map(output).collect::<Result<_, _>>()?;
    let all = |ids: Vec<&String>| ids.into_iter().map(|id| ExpressionOutput { id: id.clone(), alias: None }).collect();
    let outputs = match (outputs.is_empty(), expressions.is_empty()) {
        (false, _) => outputs,
        (true, false) => all(expressions.iter().map(|expression| &expression.id).collect()),
        (true, true) => all(named.iter().map(|metric| &metric.id).collect()),
    };
    let echo = echo(&body, echoed_time, &filters)?;
    Ok(Ask { asked, metrics: named, expressions, outputs, echo })
}

fn some(json: &Json) -> Option<&Json> {
    (!json.is_null()).then_some(json)
}

/// A list, or none.
fn list(json: &Json) -> Result<&[Json], String> {
    match json {
        Json::Null => Ok(&[]),
        Json::Array(list) => Ok(list),
        other => Err(format!("expected a list, found {other}")),
    }
}

/// A text, or a number or truth value as one; nothing where there is nothing.
fn text(json: &Json) -> Option<String> {
    match json {
        Json::String(text) => Some(text.clone()),
        Json::Number(_) | Json::Bool(_) => Some(json.to_string()),
        _ => None,
    }
}

fn filled(json: &Json) -> Option<String> {
    text(json).filter(|text| !text.is_empty())
}

fn flag(json: &Json, default: bool) -> bool {
    match json {
        Json::Bool(flag) => *flag,
        Json::String(text) => text == "true",
        _ => default,
    }
}

/// The id of a part: letters and digits, and more than a single digit.
fn id(json: &Json) -> Result<String, String> {
    let id = filled(&json["id"]).ok_or("missing or empty id")?;
    match id.chars().find(|c| !c.is_alphanumeric()) {
        Some(illegal) => Err(format!("Invalid id (\"{id}\"): illegal character: {illegal}")),
        None if id.len() == 1 && id.starts_with(|c: char| c.is_ascii_digit()) => {
            Err("The ID cannot be an integer".to_owned())
        }
        None => Ok(id),
    }
}

fn distinct<'a>(what: &str, ids: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            return Err(format!("duplicated {what} id: {id}"));
        }
    }
    Ok(())
}

fn timespan(time: &Json) -> Result<(QueryRequest, Json), String> {
    let start = filled(&time["start"]).ok_or("missing or empty start")?;
    let aggregator = filled(&time["aggregator"]).ok_or("Missing or empty aggregator")?;
    aggregators::by_name(&aggregator).ok_or("Invalid aggregator")?;
    let downsampler = match some(&time["downsampler"]) {
        None => Json::Null,
        Some(downsampler) => {
            let interval = filled(&downsampler["interval"]).ok_or("Missing or empty interval")?;
            let function = filled(&downsampler["aggregator"]).ok_or("Missing or empty aggregator")?;
            json!({ "interval": interval, "aggregator": function, "fillPolicy": fill_echo(&downsampler["fillPolicy"])? })
        }
    };
    let echo = json!({
        "start": start,
        "end": text(&time["end"]),
        "timezone": text(&time["timezone"]),
        "downsampler": downsampler,
        "aggregator": aggregator,
        "rate": flag(&time["rate"], false),
    });
    let asked = QueryRequest {
        start: Some(start),
        end: filled(&time["end"]),
        timezone: filled(&time["timezone"]),
        ..QueryRequest::default()
    };
    Ok((asked, echo))
}

/// What only OpenTSDB refuses, with the reasons that it gives.
fn as_in_opentsdb(body: &Json, time: &Json) -> Result<(), String> {
    if let Some(interval) = filled(&time["downsampler"]["interval"]) {
        time::duration(&interval).map_err(|_| "Invalid time")?;
    }
    if let Json::String(rate) = &time["rate"]
        && !["true", "false"].contains(&rate.as_str())
    {
        return Err(format!("Cannot deserialize value of type `boolean` from String \"{rate}\""));
    }
    let filters = list(&body["filters"])?;
    for (at, metric) in list(&body["metrics"])?.iter().enumerate() {
        if text(&metric["timeOffset"]).is_some_and(|offset| time::parse(&offset, 0, Tz::UTC).is_err()) {
            return Err(format!("Invalid metric at index {at}"));
        }
        let filter = filters.iter().find(|filter| !filter["id"].is_null() && filter["id"] == metric["filter"]);
        if filter.is_some_and(|filter| filter["tags"].is_null()) {
            return Err("An internal null pointer exception was thrown".to_owned());
        }
    }
    let joins = list(&body["expressions"])?.iter().map(|expression| &expression["join"]);
    match joins.filter_map(some).any(|join| join["operator"].is_null()) {
        true => Err("The set operator cannot be null".to_owned()),
        false => Ok(()),
    }
}

fn filter_set(json: &Json) -> Result<(String, Vec<Filter>, bool), String> {
    let tags = list(&json["tags"])?;
    check_filters(tags.len())?;
    let filters = tags.iter().map(|tag| {
        let [kind, key, filter] = ["type", "tagk", "filter"].map(|name| text(&tag[name]).unwrap_or_default());
        let group_by = flag(&tag["groupBy"], flag(&tag["group_by"], false));
        Ok(Filter::of_kind(&kind, &key, &filter)?.with_role(FilterRole::of(group_by)))
    });
    Ok((id(json)?, filters.collect::<Result<_, String>>()?, flag(&json["explicitTags"], false)))
}

fn sub_query(
    metric: &Json,
    time: &Json,
    filters: &[(String, Vec<Filter>, bool)],
    fidelity: Fidelity,
) -> Result<Sub, String> {
    let name = filled(&metric["metric"]).ok_or("missing or empty metric")?;
    let aggregator = filled(&metric["aggregator"]);
    if aggregator.as_deref().is_some_and(|name| aggregators::by_name(name).is_none()) {
        return Err("Invalid aggregator".to_owned());
    }
    let (filters, explicit_tags) = match filled(&metric["filter"]) {
        None => (Vec::new(), false),
        Some(wanted) => {
            let found = filters.iter().find(|(id, ..)| *id == wanted);
            let found = found.ok_or_else(|| format!("unrecognized filter id {wanted} in metric {name}"))?;
            (found.1.clone(), found.2)
        }
    };
    let downsample = some(&time["downsampler"]).map(|downsampler| -> Result<String, String> {
        let part = |name: &str| text(&downsampler[name]).unwrap_or_default();
        // OpenTSDB reads the policy, and forgets it.
        let fill = fill(&downsampler["fillPolicy"])?.filter(|_| fidelity == Fidelity::Sensible);
        let fill = fill.map_or(String::new(), |(policy, _)| format!("-{policy}"));
        Ok(format!("{}-{}{fill}", part("interval"), part("aggregator")))
    });
    Ok(Sub {
        aggregator: aggregator.or_else(|| filled(&time["aggregator"])),
        metric: Some(name),
        downsample: downsample.transpose()?,
        rate: flag(&time["rate"], false),
        filters,
        explicit_tags,
        ..Sub::default()
    })
}

/// A fill policy by its name, and its value.
fn fill(json: &Json) -> Result<Option<(String, f64)>, String> {
    if json.is_null() {
        return Ok(None);
    }
    let given = match &json["value"] {
        Json::Number(number) => number.as_f64().unwrap_or(0.0),
        Json::String(text) => text.parse().map_err(|_| format!("the fill value '{text}' is not a number"))?,
        _ => 0.0,
    };
    let policy = text(&json["policy"]).map(|name| name.to_lowercase());
    let found = match policy.as_deref() {
        None if given == 0.0 => ("zero", 0.0),
        None if given.is_nan() => ("nan", f64::NAN),
        None | Some("scalar") => ("scalar", given),
        Some(name @ ("none" | "nan" | "null")) if given == 0.0 || given.is_nan() => (name, f64::NAN),
        Some("zero") if given == 0.0 => ("zero", 0.0),
        Some(name @ ("none" | "nan" | "null" | "zero")) => {
            return Err(format!("the fill policy '{name}' takes no value, found {given}"));
        }
        Some(other) => {
            return Err(format!("the fill policy '{other}' is unknown, expected none, nan, null, zero or scalar"));
        }
    };
    Ok(Some((found.0.to_owned(), found.1)))
}

fn fill_echo(json: &Json) -> Result<Json, String> {
    let shown = |value: f64| if value.is_nan() { json!("NaN") } else { json!(value) };
    Ok(fill(json)?.map_or(Json::Null, |(policy, value)| json!({ "policy": policy, "value": shown(value) })))
}

fn operator(join: &Json) -> Result<(JoinKind, &'static str), String> {
    match text(&join["operator"]).map(|name| name.to_lowercase()).as_deref() {
        None | Some("union") => Ok((JoinKind::Union, "union")),
        Some("intersection") => Ok((JoinKind::Intersection, "intersection")),
        Some(other) => Err(format!("the operator '{other}' is unknown, expected union or intersection")),
    }
}

fn expression(json: &Json) -> Result<NamedExpression, String> {
    let id = id(json)?;
    let text = filled(&json["expr"]).ok_or("missing or empty expr")?;
    let expression = Arithmetic::parse(&text)?;
    if expression.variables().is_empty() {
        return Err("The expression didn't appear to have any variables".to_owned());
    }
    let join = &json["join"];
    let by = By { query_tags: flag(&join["useQueryTags"], false), aggregate_tags: flag(&join["includeAggTags"], true) };
    let fill = fill(&json["fillPolicy"])?.map_or(f64::NAN, |(_, value)| value);
    Ok(NamedExpression { id, expression, operator: operator(join)?.0, by, fill })
}

fn output(json: &Json) -> Result<ExpressionOutput, String> {
    Ok(ExpressionOutput { id: id(json)?, alias: text(&json["alias"]) })
}

fn echo(body: &Json, time: Json, filters: &[(String, Vec<Filter>, bool)]) -> Result<Json, String> {
    let filters = filters.iter().map(|(id, tags, explicit_tags)| {
        let tags = tags
            .iter()
            .map(|tag| json!({ "tagk": tag.key, "filter": tag.text, "group_by": tag.group_by, "type": tag.kind }));
        json!({ "id": id, "tags": tags.collect::<Vec<Json>>(), "explicitTags": explicit_tags })
    });
    let metrics = list(&body["metrics"])?.iter().map(|metric| {
        let mut shown = texts(metric, &["id", "metric", "filter", "aggregator", "timeOffset"]);
        shown.insert("fillPolicy".to_owned(), fill_echo(&metric["fillPolicy"])?);
        Ok(Json::Object(shown))
    });
    let metrics = metrics.collect::<Result<Vec<Json>, String>>()?;
    let expressions = list(&body["expressions"])?.iter().map(|expression| {
        let mut shown = texts(expression, &["id", "expr"]);
        let join = &expression["join"];
        let (query_tags, aggregate_tags) = (flag(&join["useQueryTags"], false), flag(&join["includeAggTags"], true));
        let join = json!({
            "operator": operator(join)?.1,
            "useQueryTags": query_tags,
            "includeAggTags": aggregate_tags,
        });
        shown.insert("join".to_owned(), join);
        shown.insert("fillPolicy".to_owned(), fill_echo(&expression["fillPolicy"])?);
        Ok(Json::Object(shown))
    });
    let expressions = expressions.collect::<Result<Vec<Json>, String>>()?;
    let outputs: Vec<Json> =
        list(&body["outputs"])?.iter().map(|output| Json::Object(texts(output, &["id", "alias"]))).collect();
    let given = |name: &str, list: Vec<Json>| if body[name].is_null() { Json::Null } else { Json::Array(list) };
    Ok(json!({
        "name": text(&body["name"]),
        "time": time,
        "filters": given("filters", filters.collect()),
        "metrics": metrics,
        "expressions": given("expressions", expressions),
        "outputs": given("outputs", outputs),
    }))
}

fn texts(json: &Json, names: &[&str]) -> Map<String, Json> {
    names.iter().map(|name| ((*name).to_owned(), text(&json[*name]).map_or(Json::Null, Json::String))).collect()
}
