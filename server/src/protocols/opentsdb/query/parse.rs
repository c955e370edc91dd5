//! The JSON of a query as it was asked, before anything in it is understood but its filters.
//!
//! Unknown fields are ignored (Grafana 12.4 sends all it has), but in `rateOptions`.

use serde::Deserialize;
use telem_ingest::decode::lenient::{ENTRIES_MAX, Flag, Long, Text, TextMap};
use telem_query::tsq::Fidelity;

use super::filters::{self, Filter};
use crate::protocols::opentsdb::errors::Failure;

/// A request to `/api/query`, from JSON or from a URI.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    pub start: Option<String>,
    pub end: Option<String>,
    pub timezone: Option<String>,
    pub use_calendar: bool,
    /// Times in the answer are milliseconds.
    pub ms_resolution: bool,
    pub show_query: bool,
    pub show_tsuids: bool,
    /// Points are `[time, value]` pairs instead of an object.
    pub arrays: bool,
    pub delete: bool,
    /// Every one once.
    pub subs: Vec<Sub>,
}

/// One sub-query as asked. What is missing, null or empty is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sub {
    pub aggregator: Option<String>,
    pub metric: Option<String>,
    pub tsuids: Vec<String>,
    pub downsample: Option<String>,
    pub rate: bool,
    pub rate_options: Option<RateOptions>,
    pub filters: Vec<Filter>,
    pub explicit_tags: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateOptions {
    pub counter: bool,
    pub counter_max: i64,
    pub reset_value: i64,
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { counter: false, counter_max: i64::MAX, reset_value: 0, drop_resets: false }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawQuery<'a> {
    #[serde(borrow)]
    start: Text<'a>,
    #[serde(borrow)]
    end: Text<'a>,
    #[serde(borrow)]
    timezone: Text<'a>,
    use_calendar: Flag,
    ms_resolution: Flag,
    show_query: Flag,
    #[serde(rename = "showTSUIDs")]
    show_tsuids: Flag,
    delete: Flag,
    #[serde(borrow)]
    queries: Option<Vec<RawSub<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSub<'a> {
    #[serde(borrow)]
    aggregator: Text<'a>,
    #[serde(borrow)]
    metric: Text<'a>,
    #[serde(borrow)]
    tsuids: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    tags: Option<TextMap<'a>>,
    #[serde(borrow)]
    downsample: Text<'a>,
    rate: Flag,
    rate_options: Option<RawRate>,
    #[serde(borrow)]
    filters: Option<Vec<RawFilter<'a>>>,
    explicit_tags: Flag,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RawRate {
    counter: Flag,
    counter_max: Option<Big>,
    reset_value: Option<Big>,
    drop_resets: Flag,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawFilter<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    tagk: Text<'a>,
    #[serde(borrow)]
    filter: Text<'a>,
    group_by: Flag,
}

/// A whole number; one beyond 64 bits is the greatest there is. Grafana's backend knows only
/// floats and writes the default of `counterMax` as a number that is just too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Big(i64);

impl<'de> Deserialize<'de> for Big {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let raw = <&serde_json::value::RawValue>::deserialize(json)?.get();
        if raw.parse::<f64>().is_ok_and(|float| float >= i64::MAX as f64) {
            return Ok(Big(i64::MAX));
        }
        serde_json::from_str::<Long>(raw).map(|long| Big(long.0)).map_err(serde::de::Error::custom)
    }
}

/// Reads JSON as OpenTSDB does: what follows it is not looked at, and an array is no object.
///
/// # Errors
/// 400 with the position and what was found.
pub fn from_json<'a, T: Deserialize<'a>>(body: &'a str) -> Result<T, Failure> {
    if !body.trim_start().starts_with('{') {
        let found: String = body.trim().chars().take(16).collect();
        return Err(Failure::not_json(format!("found '{found}', expected an object")));
    }
    let mut json = serde_json::Deserializer::from_str(body);
    T::deserialize(&mut json).map_err(|error| Failure::not_json(error.to_string()))
}

/// A query from the body of a request.
///
/// # Errors
/// 400; for a query of nothing what OpenTSDB makes of it.
pub fn body(body: &str, fidelity: Fidelity) -> Result<Asked, Failure> {
    let nothing = || Failure::unforeseen(fidelity, "An internal null pointer exception was thrown");
    if body.trim_start().starts_with("null") {
        return Err(nothing().details("found null, expected a query"));
    }
    let raw: RawQuery<'_> = from_json(body)?;
    let raw_subs = raw.queries.ok_or_else(|| nothing().details("found no 'queries', expected a list of them"))?;
    let mut subs: Vec<Sub> = Vec::with_capacity(raw_subs.len());
    for raw in raw_subs {
        let sub = sub(raw).map_err(Failure::not_json)?;
        if !subs.contains(&sub) {
            subs.push(sub);
        }
    }
    Ok(Asked {
        start: filled(raw.start),
        end: filled(raw.end),
        timezone: filled(raw.timezone),
        use_calendar: raw.use_calendar.0,
        ms_resolution: raw.ms_resolution.0,
        show_query: raw.show_query.0,
        show_tsuids: raw.show_tsuids.0,
        arrays: false,
        delete: raw.delete.0,
        subs,
    })
}

fn sub(raw: RawSub<'_>) -> Result<Sub, String> {
    let mut all = Vec::new();
    let tags = raw.tags.unwrap_or_default();
    if tags.beyond > 0 {
        return Err(format!("{} tags; at most {ENTRIES_MAX} are allowed in one sub-query", ENTRIES_MAX + tags.beyond));
    }
    for (key, value) in tags.entries {
        filters::add(&mut all, Filter::from_tag(&key, value.as_deref().unwrap_or_default())?.grouped(true));
    }
    for filter in raw.filters.unwrap_or_default() {
        let [kind, key, value] = [filter.kind, filter.tagk, filter.filter].map(|text| text.0.unwrap_or_default());
        all.push(Filter::of_kind(&kind, &key, &value)?.grouped(filter.group_by.0));
    }
    Ok(Sub {
        aggregator: filled(raw.aggregator),
        metric: filled(raw.metric),
        tsuids: raw.tsuids.unwrap_or_default().into_iter().filter_map(filled).collect(),
        downsample: filled(raw.downsample),
        rate: raw.rate.0,
        rate_options: raw.rate_options.map(|raw| RateOptions {
            counter: raw.counter.0,
            counter_max: raw.counter_max.map_or(i64::MAX, |max| max.0),
            reset_value: raw.reset_value.map_or(0, |reset| reset.0),
            drop_resets: raw.drop_resets.0,
        }),
        filters: all,
        explicit_tags: raw.explicit_tags.0,
    })
}

fn filled(text: Text<'_>) -> Option<String> {
    text.0.map(|text| text.into_owned()).filter(|text| !text.is_empty())
}
