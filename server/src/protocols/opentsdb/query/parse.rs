//! The JSON of a query as it was asked, before anything in it is understood but its filters.
//!
//! Unknown fields are ignored (Grafana 12.4 sends all it has), but in `rateOptions`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use telem_ingest::decode::lenient::{Flag, Long, Text, TextMap};
use telem_query::tsq::Fidelity;

use super::filters::{self, Filter};
use crate::protocols::opentsdb::errors::Failure;

/// Most sub-queries in one request.
pub const SUBS_MAX: usize = 1_000;
/// Most filters in one sub-query, tags included.
pub const FILTERS_MAX: usize = 64;
/// Most regular expressions in one request: each may take [`telem_query::expression::COMPILED_BYTES_MAX`].
pub const REGEXPS_MAX: usize = 64;
/// Most series asked for by number in one request: the search for each walks through the series of a metric.
pub const TSUIDS_MAX: usize = 64;

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
    /// No notes are delivered.
    pub no_annotations: bool,
    /// Notes on no single series are delivered too.
    pub global_annotations: bool,
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

/// The sub-queries of a request as they are read: every one once, and all within limits.
#[derive(Debug, Default)]
pub struct Subs {
    kept: Vec<Sub>,
    given: usize,
    regexps: usize,
    tsuids: usize,
}

impl Subs {
    /// # Errors
    /// 400 when there are too many, or too much in them.
    pub fn add(&mut self, sub: Sub) -> Result<(), Failure> {
        self.given += 1;
        self.regexps += sub.filters.iter().filter(|filter| filter.kind == "regexp").count();
        self.tsuids += sub.tsuids.len();
        for (given, most, what) in [
            (self.given, SUBS_MAX, "sub-queries"),
            (self.regexps, REGEXPS_MAX, "regular expressions"),
            (self.tsuids, TSUIDS_MAX, "tsuids"),
        ] {
            if given > most {
                return Err(Failure::bad_request(format!("more than {most} {what} in one request"))
                    .details("ask for the others in another request"));
            }
        }
        if !self.kept.contains(&sub) {
            self.kept.push(sub);
        }
        Ok(())
    }

    pub fn done(self) -> Vec<Sub> {
        self.kept
    }
}

/// A list of which `MOST` elements are kept and the rest is not looked at. With one more than is allowed
/// it shows whether too many were sent, at no cost for how many.
#[derive(Clone, Debug, Default)]
pub struct AtMost<T, const MOST: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

struct AtMostVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for AtMostVisitor<T, MOST> {
    type Value = AtMost<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            match array.next_element()? {
                Some(element) => kept.push(element),
                None => return Ok(AtMost(kept)),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(AtMost(kept))
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
    no_annotations: Flag,
    global_annotations: Flag,
    delete: Flag,
    #[serde(borrow)]
    queries: Option<AtMost<RawSub<'a>, { SUBS_MAX + 1 }>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSub<'a> {
    #[serde(borrow)]
    aggregator: Text<'a>,
    #[serde(borrow)]
    metric: Text<'a>,
    #[serde(borrow)]
    tsuids: Option<AtMost<Text<'a>, { TSUIDS_MAX + 1 }>>,
    #[serde(borrow)]
    tags: Option<TextMap<'a>>,
    #[serde(borrow)]
    downsample: Text<'a>,
    rate: Flag,
    rate_options: Option<RawRate>,
    #[serde(borrow)]
    filters: Option<AtMost<RawFilter<'a>, { FILTERS_MAX + 1 }>>,
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
    let mut subs = Subs::default();
    for raw in raw_subs.0 {
        subs.add(sub(raw).map_err(Failure::not_json)?)?;
    }
    Ok(Asked {
        start: filled(raw.start),
        end: filled(raw.end),
        timezone: filled(raw.timezone),
        use_calendar: raw.use_calendar.0,
        ms_resolution: raw.ms_resolution.0,
        show_query: raw.show_query.0,
        show_tsuids: raw.show_tsuids.0,
        no_annotations: raw.no_annotations.0,
        global_annotations: raw.global_annotations.0,
        arrays: false,
        delete: raw.delete.0,
        subs: subs.done(),
    })
}

fn sub(raw: RawSub<'_>) -> Result<Sub, String> {
    let mut all = Vec::new();
    let tags = raw.tags.unwrap_or_default();
    let filters = raw.filters.unwrap_or_default().0;
    check_filters(tags.entries.len() + tags.beyond + filters.len())?;
    for (key, value) in tags.entries {
        filters::add(&mut all, Filter::from_tag(&key, value.as_deref().unwrap_or_default())?.grouped(true))?;
    }
    for filter in filters {
        let [kind, key, value] = [filter.kind, filter.tagk, filter.filter].map(|text| text.0.unwrap_or_default());
        all.push(Filter::of_kind(&kind, &key, &value)?.grouped(filter.group_by.0));
    }
    Ok(Sub {
        aggregator: filled(raw.aggregator),
        metric: filled(raw.metric),
        tsuids: raw.tsuids.unwrap_or_default().0.into_iter().filter_map(filled).collect(),
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

/// # Errors
/// Says so when these are more filters than one sub-query may have.
pub fn check_filters(given: usize) -> Result<(), String> {
    if given > FILTERS_MAX { Err(format!("more than {FILTERS_MAX} filters in one sub-query")) } else { Ok(()) }
}

fn filled(text: Text<'_>) -> Option<String> {
    text.0.map(|text| text.into_owned()).filter(|text| !text.is_empty())
}
