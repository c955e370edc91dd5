//! Queries in a URI: `start=1h-ago&m=sum:1m-avg:rate{counter}:metric{key=value}{other=value}`.

use telem_query::tsq::Fidelity;

use super::filters::{self, Filter, FilterReader, FilterRole};
use super::gaps::Gaps;
use super::manner::QueryReading;
use super::parse::{self, Subs};
use super::request::{QueryRequest, RateOptions, Sub};
use crate::http::Params;
use crate::protocols::opentsdb::call::required;
use crate::protocols::opentsdb::errors::OpenTsdbError;

/// # Errors
/// 400 in OpenTSDB's words; for malformed tags what OpenTSDB makes of them.
pub fn query(params: &Params, reading: impl Into<QueryReading>) -> Result<QueryRequest, OpenTsdbError> {
    query_with(params, &[], reading).map(|(asked, _)| asked)
}

/// As [`query`], with more sub-queries, written as in `m=`; also gives the place of each of these.
///
/// # Errors
/// As [`query`].
pub fn query_with(
    params: &Params,
    more: &[String],
    reading: impl Into<QueryReading>,
) -> Result<(QueryRequest, Vec<usize>), OpenTsdbError> {
    let reading = reading.into();
    let fidelity = reading.fidelity;
    let start = required(params, "start")?.to_owned();
    let filled = |name: &str| params.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut subs = Subs::new(reading);
    let by_number = params.all("tsuid").map(|tsuids| by_number(tsuids, fidelity));
    let by_name = params.all("m").map(|m| by_metric(m, reading));
    for sub in by_number.chain(by_name) {
        subs.add(sub?)?;
    }
    let places: Vec<usize> = more.iter().map(|m| subs.add(by_metric(m, reading)?)).collect::<Result<_, _>>()?;
    let subs = subs.done();
    if subs.is_empty() {
        return Err(OpenTsdbError::bad_request("Missing sub queries"));
    }
    // OpenTSDB 2.4 reads neither of these in a URI.
    let beyond = fidelity == Fidelity::Sensible;
    let mut asked = QueryRequest {
        start: Some(start),
        end: filled("end"),
        timezone: filled("tz").or_else(|| filled("timezone")).filter(|_| beyond),
        use_calendar: beyond && (params.has("use_calendar") || params.has("useCalendar")),
        ms_resolution: params.has("ms") || params.has("msResolution"),
        show_query: params.has("show_query"),
        show_tsuids: params.has("show_tsuids"),
        show_stats: params.has("show_stats"),
        show_summary: params.has("show_summary"),
        no_annotations: params.has("no_annotations"),
        global_annotations: params.has("global_annotations"),
        arrays: params.has("arrays"),
        delete: beyond && params.has("delete"),
        by_browser: false,
        gaps: Gaps::default(),
        order: reading.manner.order,
        subs,
    };
    (reading.manner.times)(&mut asked);
    Ok((asked, places))
}

/// `aggregator:[part:]*metric{...}{...}`
fn by_metric(text: &str, reading: QueryReading) -> Result<Sub, OpenTsdbError> {
    let fidelity = reading.fidelity;
    let mut sub = Sub::default();
    let last = parts(text, "m", &mut sub, fidelity)?;
    if last.is_empty() && fidelity == Fidelity::OpenTsdb {
        return Err(OpenTsdbError::unforeseen(fidelity, "Metric cannot be null or empty"));
    }
    let named = metric_and_filters(last, reading.manner.filter);
    let (metric, filters) = named.map_err(|why| OpenTsdbError::unforeseen(fidelity, why))?;
    sub.metric = Some(metric).filter(|metric| !metric.is_empty());
    sub.filters = filters;
    Ok(sub)
}

/// `aggregator:[part:]*TSUID,TSUID`
fn by_number(text: &str, fidelity: Fidelity) -> Result<Sub, OpenTsdbError> {
    let mut sub = Sub::default();
    let last = parts(text, "tsuid", &mut sub, fidelity)?;
    sub.tsuids = last.split(',').filter(|tsuid| !tsuid.is_empty()).map(str::to_owned).collect();
    Ok(sub)
}

/// Fills `sub` from all parts but the last, which is given back. Parts that say nothing known are ignored.
fn parts<'a>(text: &'a str, param: &str, sub: &mut Sub, fidelity: Fidelity) -> Result<&'a str, OpenTsdbError> {
    if text.is_empty() {
        let what = if param == "tsuid" { "tsuid query" } else { "query" };
        return Err(OpenTsdbError::bad_request(format!("The {what} string was empty")));
    }
    let parts: Vec<&str> = text.split(':').collect();
    let [aggregator, middle @ .., last] = &parts[..] else {
        let text = format!("Invalid parameter {param}={text} (not enough :-separated parts)");
        return Err(OpenTsdbError::bad_request(text));
    };
    if parts.len() > 5 {
        let text = format!("Invalid parameter {param}={text} (too many :-separated parts)");
        return Err(OpenTsdbError::bad_request(text));
    }
    sub.aggregator = Some((*aggregator).to_owned()).filter(|name| !name.is_empty());
    for part in middle {
        let lower = part.to_lowercase();
        if lower.starts_with("rate") {
            sub.rate = true;
            if part.contains('{') {
                sub.rate_options = Some(rate_options(part)?);
            }
        } else if part.starts_with(|c: char| c.is_ascii_digit()) {
            sub.downsample = Some((*part).to_owned());
        } else if lower.starts_with("explicit_tags") {
            sub.explicit_tags = true;
        } else if lower.starts_with("percentiles") {
            sub.histogram = Some(percentiles(part, fidelity)?);
        } else if lower.starts_with("show-histogram-buckets") {
            sub.histogram.get_or_insert_default();
        } else if lower == "pre-agg" {
            sub.pre_aggregate = true;
        } else if part.is_empty() && fidelity == Fidelity::OpenTsdb {
            return Err(OpenTsdbError::unforeseen(fidelity, "String index out of range: 0"));
        }
    }
    Ok(last)
}

/// `percentiles[50,99.9]`
fn percentiles(text: &str, fidelity: Fidelity) -> Result<Vec<f32>, OpenTsdbError> {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(inner, _)| inner);
    let inner = inner.ok_or_else(|| {
        OpenTsdbError::bad_request(format!("Malformed percentiles: {text}")).details("expected percentiles[50,99.9]")
    })?;
    parse::percentiles(inner.split(',')).map_err(|why| OpenTsdbError::unforeseen(fidelity, why))
}

/// `rate{counter|dropcounter[,max[,reset]]}`. The options are the text between the fifth character and the last, as in
/// the original: a bracket that is missing takes a letter with it.
fn rate_options(text: &str) -> Result<RateOptions, OpenTsdbError> {
    let wrong = |why: String| OpenTsdbError::bad_request(why);
    let end = text.char_indices().next_back().map_or(0, |(at, _)| at);
    let inner = text.get("rate{".len()..end).filter(|_| text.len() > "rate{".len());
    let inner = inner.ok_or_else(|| wrong(format!("Invalid rate options specification: {text}")))?;
    let parts: Vec<&str> = inner.split(',').collect();
    if parts.len() > 3 {
        return Err(wrong(format!(
            "Incorrect number of values in rate options specification, must be counter[,counter max value,reset \
             value], received: {} parts",
            parts.len()
        )));
    }
    let number = |at: usize, what: &str, default: i64| match parts.get(at).filter(|text| !text.is_empty()) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| wrong(format!("{what} of counter was not a number, received '{text}'"))),
    };
    Ok(RateOptions {
        counter: parts[0].ends_with("counter"),
        counter_max: number(1, "Max value", i64::MAX)?,
        reset_value: number(2, "Reset value", 0)?,
        drop_resets: parts[0] == "dropcounter",
    })
}

/// `metric{grouping tags}{other tags}`; either braces may be missing or empty.
fn metric_and_filters(text: &str, read: FilterReader) -> Result<(String, Vec<Filter>), String> {
    let mut filters = Vec::new();
    let Some((metric, braces)) = text.split_once('{') else { return Ok((text.to_owned(), filters)) };
    let inner = braces.strip_suffix('}').ok_or_else(|| format!("Missing '}}' at the end of: {text}"))?;
    let (grouping, other) = match inner.split_once('}') {
        None => (inner, ""),
        Some((grouping, rest)) => (grouping, rest.rsplit_once('{').map_or("", |(_, other)| other)),
    };
    let given = |tags: &str| tags.split(',').filter(|tag| !tag.is_empty()).count();
    parse::check_filters(given(grouping) + given(other))?;
    for tag in other.split(',').take_while(|tag| !tag.is_empty()) {
        filters.push(tag_filter(tag, read).map_err(|why| format!("When parsing filter '{tag}': {why}"))?);
    }
    if !grouping.is_empty() {
        // An empty tag ends the list where other tags follow it.
        let ended = |tag: &str| tag.is_empty() && inner.contains('}');
        for tag in grouping.split(',').take_while(|tag| !ended(tag)) {
            let filter = tag_filter(tag, read).map_err(|why| format!("When parsing tag '{tag}': {why}"))?;
            filters::add(&mut filters, filter.with_role(FilterRole::Groups))?;
        }
    }
    Ok((metric.to_owned(), filters))
}

fn tag_filter(tag: &str, read: FilterReader) -> Result<Filter, String> {
    let (key, value) = tag.split_once('=').ok_or_else(|| format!("invalid tag: {tag}"))?;
    if key.is_empty() || value.is_empty() || value.contains('=') {
        return Err(format!("invalid tag: {tag}"));
    }
    Filter::from_tag(key, value, read)
}
