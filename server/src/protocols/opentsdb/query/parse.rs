//! The JSON of a query as it was sent; at this stage only its filters are interpreted.
//!
//! Unknown fields are ignored (Grafana 12.4 sends all it has), except in `rateOptions`.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use telem_ingest::decode::lenient::{Flag, Long, Text, TextMap};
use telem_query::tsq::Fidelity;

use super::filters::{self, Filter, FilterRole};
use super::gaps::Gaps;
use super::manner::QueryReading;
use super::request::{QueryRequest, RateOptions, Sub};
use crate::protocols::opentsdb::body::{AtMost, from_json};
use crate::protocols::opentsdb::errors::OpenTsdbError;

/// Most sub-queries in one request.
pub const SUBS_MAX: usize = 1_000;
/// Most filters in one sub-query, tags included.
pub const FILTERS_MAX: usize = 64;
/// Most regular expressions in one request: each may take [`telem_query::expression::COMPILED_BYTES_MAX`].
pub const REGEXPS_MAX: usize = 64;
/// Most series asked for by number in one request: the search for each walks through the series of a metric.
pub const TSUIDS_MAX: usize = 64;

/// Most percentiles of histograms in one sub-query.
pub const PERCENTILES_MAX: usize = 64;

/// The sub-queries of a request as they are read: every one once, and all within limits.
#[derive(Debug)]
pub struct Subs {
    reading: QueryReading,
    kept: Vec<Sub>,
    given: usize,
    regexps: usize,
    tsuids: usize,
}

impl Subs {
    pub fn new(reading: QueryReading) -> Self {
        Subs { reading, kept: Vec::new(), given: 0, regexps: 0, tsuids: 0 }
    }

    /// Gives back the place of `sub`, or of the one that is the same.
    ///
    /// # Errors
    /// 400 when there are too many, or too much in them.
    pub fn add(&mut self, sub: Sub) -> Result<usize, OpenTsdbError> {
        self.given += 1;
        self.regexps += sub.filters.iter().filter(|filter| filter.kind == "regexp").count();
        self.tsuids += sub.tsuids.len();
        for (given, most, what) in [
            (self.given, SUBS_MAX, "sub-queries"),
            (self.regexps, REGEXPS_MAX, "regular expressions"),
            (self.tsuids, TSUIDS_MAX, "tsuids"),
        ] {
            if given > most {
                return Err(OpenTsdbError::bad_request(format!("more than {most} {what} in one request"))
                    .details("ask for the others in another request"));
            }
        }
        let once = !self.reading.manner.as_sent;
        if once && let Some(place) = self.kept.iter().position(|kept| self.same(kept, &sub)) {
            return Ok(place);
        }
        self.kept.push(sub);
        Ok(self.kept.len() - 1)
    }

    /// To the original two sub-queries are the same if they only group differently.
    fn same(&self, kept: &Sub, sub: &Sub) -> bool {
        let filters = match self.reading.fidelity {
            Fidelity::Sensible => kept.filters == sub.filters,
            Fidelity::OpenTsdb => {
                let pairs = || kept.filters.iter().zip(&sub.filters);
                kept.filters.len() == sub.filters.len() && pairs().all(|(a, b)| a.same_but_grouping(b))
            }
        };
        filters && kept.but_filters() == sub.but_filters()
    }

    pub fn done(self) -> Vec<Sub> {
        self.kept
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
    ms_resolution: Option<Flag>,
    show_query: Flag,
    #[serde(rename = "showTSUIDs")]
    show_tsuids: Flag,
    show_stats: Flag,
    show_summary: Flag,
    no_annotations: Flag,
    global_annotations: Flag,
    delete: Flag,
    #[serde(borrow)]
    queries: Option<AtMost<&'a RawValue, { SUBS_MAX + 1 }>>,
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
    #[serde(borrow)]
    percentiles: Option<AtMost<Text<'a>, { PERCENTILES_MAX + 1 }>>,
    show_histogram_buckets: Flag,
    pre_aggregate: Flag,
}

/// Which of two fields of a sub-query comes last in the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastWord {
    #[default]
    Neither,
    Tags,
    Filters,
}

impl<'de> Deserialize<'de> for LastWord {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(LastWordVisitor)
    }
}

struct LastWordVisitor;

impl<'de> Visitor<'de> for LastWordVisitor {
    type Value = LastWord;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sub-query")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<LastWord, A::Error> {
        let mut last = LastWord::Neither;
        while let Some(name) = fields.next_key::<Cow<'de, str>>()? {
            let given = fields.next_value::<Option<IgnoredAny>>()?.is_some();
            last = match (&*name, last) {
                ("tags", LastWord::Neither) if !given => {
                    return Err(serde::de::Error::custom("found null for 'tags', expected an object"));
                }
                ("tags", _) => LastWord::Tags,
                ("filters", _) if given => LastWord::Filters,
                ("filters", _) => LastWord::Neither,
                _ => last,
            };
        }
        Ok(last)
    }
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
    /// `showQuery` writes it as `group_by`, and the original reads either.
    #[serde(alias = "group_by")]
    group_by: Flag,
}

/// A whole number; one beyond 64 bits is the greatest there is. Grafana's backend knows only
/// floats and writes the default of `counterMax` as a number that is just too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Big(i64);

impl<'de> Deserialize<'de> for Big {
    fn deserialize<D: serde::Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(json)?.get();
        if raw.parse::<f64>().is_ok_and(|float| float >= i64::MAX as f64) {
            return Ok(Big(i64::MAX));
        }
        serde_json::from_str::<Long>(raw).map(|long| Big(long.0)).map_err(serde::de::Error::custom)
    }
}

/// A query from the body of a request.
///
/// # Errors
/// 400; for a query of nothing what OpenTSDB makes of it.
pub fn body(body: &str, reading: impl Into<QueryReading>) -> Result<QueryRequest, OpenTsdbError> {
    let reading = reading.into();
    let nothing = || OpenTsdbError::unforeseen(reading.fidelity, "An internal null pointer exception was thrown");
    if body.trim_start().starts_with("null") {
        return Err(nothing().details("found null, expected a query"));
    }
    let raw: RawQuery<'_> = from_json(body)?;
    let raw_subs = raw.queries.ok_or_else(|| nothing().details("found no 'queries', expected a list of them"))?;
    let mut subs = Subs::new(reading);
    for raw in raw_subs.0 {
        subs.add(sub(raw.get(), reading).map_err(OpenTsdbError::not_json)?)?;
    }
    let mut asked = QueryRequest {
        start: filled(raw.start),
        end: filled(raw.end),
        timezone: filled(raw.timezone),
        use_calendar: raw.use_calendar.0,
        by_browser: raw.ms_resolution.is_some(),
        gaps: Gaps::default(),
        order: reading.manner.order,
        ms_resolution: raw.ms_resolution.unwrap_or_default().0,
        show_query: raw.show_query.0,
        show_tsuids: raw.show_tsuids.0,
        show_stats: raw.show_stats.0,
        show_summary: raw.show_summary.0,
        no_annotations: raw.no_annotations.0,
        global_annotations: raw.global_annotations.0,
        arrays: false,
        delete: raw.delete.0,
        subs: subs.done(),
    };
    (reading.manner.times)(&mut asked);
    Ok(asked)
}

fn sub(text: &str, reading: QueryReading) -> Result<Sub, String> {
    let raw: RawSub<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    let mut tags = raw.tags.unwrap_or_default();
    let mut filters = raw.filters.unwrap_or_default().0;
    if reading.fidelity == Fidelity::OpenTsdb {
        // The original sets one field after the other, and both set its filters.
        match serde_json::from_str(text).map_err(|error| error.to_string())? {
            LastWord::Tags => filters.clear(),
            LastWord::Filters => tags = TextMap::default(),
            LastWord::Neither => {
                filters.clear();
                tags = TextMap::default();
            }
        }
    }
    check_filters(tags.entries.len() + tags.beyond + filters.len())?;
    for (key, value) in tags.entries {
        filters::add(
            &mut all,
            Filter::from_tag(&key, value.as_deref().unwrap_or_default(), reading.manner.filter)?
                .with_role(FilterRole::Groups),
        )?;
    }
    for filter in filters {
        let [kind, key, value] = [filter.kind, filter.tagk, filter.filter].map(|text| text.0.unwrap_or_default());
        all.push((reading.manner.filter)(&kind, &key, &value)?.with_role(FilterRole::of(filter.group_by.0)));
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
        histogram: histogram(raw.percentiles, raw.show_histogram_buckets.0)?,
        pre_aggregate: raw.pre_aggregate.0,
        sent: if reading.manner.as_sent { Some(sent(text)?) } else { None },
    })
}

/// A sub-query in its own words, but for an `index`, which the answer has.
fn sent(text: &str) -> Result<String, String> {
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    fields.shift_remove("index");
    Ok(serde_json::Value::Object(fields).to_string())
}

fn histogram(
    percentiles: Option<AtMost<Text<'_>, { PERCENTILES_MAX + 1 }>>,
    buckets: bool,
) -> Result<Option<Vec<f32>>, String> {
    let texts: Vec<String> = percentiles.unwrap_or_default().0.into_iter().filter_map(filled).collect();
    let percentiles = self::percentiles(texts.iter().map(String::as_str))?;
    Ok((buckets || !percentiles.is_empty()).then_some(percentiles))
}

/// # Errors
/// Says which one is not a number, or that there are too many.
pub fn percentiles<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<f32>, String> {
    let number = |text: &str| text.trim().parse().map_err(|_| format!("the percentile '{text}' is not a number"));
    let percentiles = texts.map(number).collect::<Result<Vec<f32>, String>>()?;
    match percentiles.len() > PERCENTILES_MAX {
        true => Err(format!("more than {PERCENTILES_MAX} percentiles in one sub-query")),
        false => Ok(percentiles),
    }
}

/// # Errors
/// Says so when these are more filters than one sub-query may have.
pub fn check_filters(given: usize) -> Result<(), String> {
    if given > FILTERS_MAX { Err(format!("more than {FILTERS_MAX} filters in one sub-query")) } else { Ok(()) }
}

fn filled(text: Text<'_>) -> Option<String> {
    text.0.map(|text| text.into_owned()).filter(|text| !text.is_empty())
}
