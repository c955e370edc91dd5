//! The meaning of queries, and the form of their answers.

use std::sync::Arc;
use std::time::Duration;

use chrono_tz::Tz;
use proptest::prelude::*;
use telem_engine::{Db, Options, SeriesIndex, SeriesKey, TagSet, Timestamp, Value};
use telem_query::TsGroup;
use telem_query::question::Aggregator;
use telem_query::tsq::{CalendarUnit, Downsample, Fidelity, Fill, Interval, Matcher, Rate, TagFilter};

use super::downsample::{self, CalendarRule};
use super::filters::{Filter, FilterRole};
use super::gaps::GapFilling;
use super::parse;
use super::request::{QueryRequest, RateOptions, Sub};
use super::resolve::{self, ResolvedQuery, SubQuerySource};
use super::stats::Stats;
use super::{render, uri};
use crate::answers::AnswerBudget;
use crate::http::Params;
use crate::protocols::opentsdb::annotation::DeliveredNotes;
use crate::protocols::opentsdb::tests::Still;

const NOW_MILLIS: i64 = 1_700_000_000_000;

fn ask(body: &str) -> QueryRequest {
    parse::body(body, Fidelity::Sensible).unwrap()
}

/// The one sub-query of a body whose sub-query holds these fields.
fn sub(fields: &str) -> Result<Sub, String> {
    let asked = parse::body(&format!(r#"{{"start":1,"queries":[{{{fields}}}]}}"#), Fidelity::Sensible);
    asked.map(|asked| asked.subs[0].clone()).map_err(|failure| failure.details.unwrap_or(failure.message))
}

/// What is said about a question: `ok`, or status, message and details.
fn verdict(asked: Result<QueryRequest, super::OpenTsdbError>, fidelity: Fidelity) -> String {
    let resolved = asked.and_then(|asked| {
        resolve::resolve(&asked, &SeriesIndex::default(), NOW_MILLIS, fidelity).map(|resolved| resolved.len())
    });
    match resolved {
        Ok(_) => "ok".to_owned(),
        Err(failure) => format!("{} {}", failure.status.as_u16(), failure.message),
    }
}

#[test]
fn a_panel_of_grafana_is_understood() {
    let asked = ask(r#"{"start":1356998400000,"queries":[{"metric":"m","aggregator":"sum","rate":true,
            "rateOptions":{"counter":true,"counterMax":100,"resetValue":5,"dropResets":true},
            "downsample":"1m-avg-null","filters":[{"type":"literal_or","tagk":"host","filter":"a|b","groupBy":true}],
            "explicitTags":true,"refId":"A","datasource":{"type":"opentsdb","uid":"x"},"hide":false}],
            "msResolution":true,"globalAnnotations":true,"showQuery":true}"#);
    assert!(asked.ms_resolution && asked.show_query && !asked.arrays && !asked.show_tsuids);
    let resolved = resolve::resolve(&asked, &SeriesIndex::default(), NOW_MILLIS, Fidelity::OpenTsdb).unwrap();
    let [ResolvedQuery { source: SubQuerySource::Query(query), index: 0, filling: GapFilling::Null, .. }] =
        &resolved[..]
    else {
        panic!("{resolved:?}")
    };
    assert_eq!((query.start.millis(), query.end.millis()), (1_356_998_400_000, NOW_MILLIS));
    assert_eq!((query.metric.as_str(), query.aggregator, query.explicit_tags), ("m", Aggregator::Sum, true));
    let minute = telem_engine::Step::from_micros(60_000_000).unwrap();
    let expected = Downsample { interval: Interval::Fixed(minute), function: Aggregator::Avg, fill: Fill::Null };
    assert_eq!(query.downsample, Some(expected));
    let expected = Rate { counter: true, counter_max: Some(100), reset_value: 5, drop_resets: true };
    assert_eq!(query.rate, Some(expected));
    let [TagFilter { key, matcher: Matcher::LiteralOr(values), group_by: true }] = &query.filters[..] else {
        panic!("{:?}", query.filters)
    };
    assert_eq!((key.as_str(), &values[..]), ("host", &["a".to_owned(), "b".to_owned()][..]));
}

#[test]
fn scalars_may_be_of_any_type_and_limits_of_counters_beyond_64_bits() {
    let found =
        sub(r#""metric":5,"aggregator":"sum","rate":"true","rateOptions":{"counterMax":1e+21,"resetValue":"7"}"#);
    let found = found.unwrap();
    assert_eq!((found.metric.as_deref(), found.rate), (Some("5"), true));
    let expected = RateOptions { counter: false, counter_max: i64::MAX, reset_value: 7, drop_resets: false };
    assert_eq!(found.rate_options, Some(expected));
}

#[test]
fn what_is_wrong_with_a_query_is_told_in_opentsdbs_words() {
    let start = r#""start":1356998400"#;
    for (body, sensible, exact) in [
        ("{".to_owned(), "400 Unable to parse the given JSON", ""),
        ("[]".to_owned(), "400 Unable to parse the given JSON", ""),
        ("null".to_owned(), "400 An internal null pointer exception was thrown", "500"),
        ("{}".to_owned(), "400 An internal null pointer exception was thrown", "500"),
        (format!("{{{start},\"queries\":{{}}}}"), "400 Unable to parse the given JSON", ""),
        (r#"{"queries":[{"metric":"m","aggregator":"sum"}]}"#.to_owned(), "400 Missing start time", ""),
        (format!("{{{start},\"queries\":[]}}"), "400 Missing queries", ""),
        (
            format!("{{{start},\"end\":1356998400,\"queries\":[]}}"),
            "400 End time [1356998400000] must be greater than the start time [1356998400000]",
            "",
        ),
    ] {
        assert_eq!(verdict(parse::body(&body, Fidelity::Sensible), Fidelity::Sensible), sensible, "{body}");
        let expected = if exact.is_empty() { sensible.to_owned() } else { sensible.replacen("400", exact, 1) };
        assert_eq!(verdict(parse::body(&body, Fidelity::OpenTsdb), Fidelity::OpenTsdb), expected, "{body}");
    }
    for (fields, expected) in [
        (r#""metric":"m""#, "400 Missing the aggregation function"),
        (r#""metric":"m","aggregator":"multiply""#, "400 No such aggregation function: multiply"),
        (r#""aggregator":"sum""#, "400 Missing the metric or tsuids, provide at least one"),
        (r#""metric":"","aggregator":"sum""#, "400 Missing the metric or tsuids, provide at least one"),
        (
            r#""metric":"m","aggregator":"sum","downsample":"60s-none""#,
            "400 cannot use the NONE aggregator for downsampling",
        ),
        (
            r#""metric":"m","aggregator":"sum","downsample":"30s-undefined""#,
            "400 No such downsampling function: undefined",
        ),
        (r#""metric":"m","aggregator":"sum","rateOptions":{"foo":1}"#, "400 Unable to parse the given JSON"),
        (r#""aggregator":"sum","tsuids":["zz"]"#, "400 begin 0, end 6, length 2"),
        (r#""aggregator":"sum","tsuids":["00FFFF000001000001"]"#, "ok"),
    ] {
        let body = format!("{{{start},\"queries\":[{{{fields}}}]}}");
        assert_eq!(verdict(parse::body(&body, Fidelity::Sensible), Fidelity::Sensible), expected, "{fields}");
    }
}

#[test]
fn what_follows_the_json_is_ignored() {
    assert_eq!(ask(r#"{"start":1,"queries":[{"metric":"m"}]} garbage"#).subs.len(), 1);
}

#[test]
fn equal_sub_queries_are_answered_once() {
    let asked = ask(r#"{"start":1,"queries":[{"metric":"a","refId":"A"},{"metric":"b"},{"metric":"a","refId":"C"}]}"#);
    let metrics: Vec<_> = asked.subs.iter().filter_map(|sub| sub.metric.as_deref()).collect();
    assert_eq!(metrics, ["a", "b"]);
}

#[test]
fn a_request_holds_sub_queries_filters_and_numbers_up_to_limits() {
    let list = |count: usize, of: &dyn Fn(usize) -> String| (0..count).map(of).collect::<Vec<_>>().join(",");
    let asked = |subs: &str| {
        let body = format!(r#"{{"start":1,"queries":[{subs}]}}"#);
        verdict(parse::body(&body, Fidelity::Sensible), Fidelity::Sensible)
    };
    let subs = |count| asked(&list(count, &|at| format!(r#"{{"aggregator":"sum","metric":"m{at}"}}"#)));
    assert_eq!(subs(parse::SUBS_MAX), "ok");
    assert_eq!(subs(parse::SUBS_MAX + 1), "400 more than 1000 sub-queries in one request");
    assert_eq!(subs(30_000), "400 more than 1000 sub-queries in one request");
    let numbers = |count| asked(&list(count, &|at| format!(r#"{{"aggregator":"sum","tsuids":["{at:06X}"]}}"#)));
    assert_eq!(numbers(parse::TSUIDS_MAX), "ok");
    assert_eq!(numbers(parse::TSUIDS_MAX + 1), "400 more than 64 tsuids in one request");
    let filter = |kind: &str| format!(r#"{{"type":"{kind}","tagk":"host","filter":"a*"}}"#);
    let filters = |count, kind| list(count, &|_| filter(kind));
    let sub = |filters: &str| format!(r#"{{"aggregator":"sum","metric":"m","filters":[{filters}]}}"#);
    assert_eq!(asked(&sub(&filters(parse::FILTERS_MAX, "wildcard"))), "ok");
    assert_eq!(asked(&sub(&filters(parse::FILTERS_MAX + 1, "wildcard"))), "400 Unable to parse the given JSON");
    for kind in ["literal_or", "not_literal_or", "iliteral_or", "not_iliteral_or"] {
        let filter = |values: usize| Filter::of_kind(kind, "host", &vec!["a"; values].join("|"));
        assert!(filter(10_000).is_ok());
        assert_eq!(filter(10_001).unwrap_err(), "a filter on 'host' holds more than 10000 values");
    }
    let regexps = |count| asked(&list(count, &|_| sub(&filters(1, "regexp"))));
    assert_eq!(regexps(parse::REGEXPS_MAX), "ok");
    assert_eq!(regexps(parse::REGEXPS_MAX + 1), "400 more than 64 regular expressions in one request");
}

#[test]
fn a_uri_has_the_limits_of_a_body() {
    let asked = |query: &str| verdict(uri::query(&Params::parse(query), Fidelity::Sensible), Fidelity::Sensible);
    let subs = |count: usize| asked(&format!("start=1{}", "&m=sum:m".repeat(count)));
    assert_eq!(subs(parse::SUBS_MAX), "ok");
    assert_eq!(subs(parse::SUBS_MAX + 1), "400 more than 1000 sub-queries in one request");
    let [half, other] = ["a", "b"].map(|value| vec![value; 6_000].join("|"));
    let together = format!("start=1&m=sum:m{{host={half},host={other}}}");
    assert!(asked(&together).starts_with("400 "), "they are a choice of 12,000 values");
    let filters = |count: usize| asked(&format!("start=1&m=sum:m{{{}}}", vec!["host=a"; count].join(",")));
    assert_eq!(filters(parse::FILTERS_MAX), "ok");
    assert_eq!(filters(parse::FILTERS_MAX + 1), "400 more than 64 filters in one sub-query");
}

#[test]
fn calendar_intervals_are_asked_for_by_either_spelling() {
    for spelling in ["use_calendar", "useCalendar"] {
        let asked = uri::query(&Params::parse(&format!("start=1&m=sum:m&{spelling}")), Fidelity::Sensible);
        assert!(asked.unwrap().use_calendar, "{spelling}");
    }
}

/// Filters in short: `key=kind(text)`, with a star after those that group.
fn shown(filters: &[Filter]) -> String {
    let show = |filter: &Filter| {
        let star = if filter.group_by { "*" } else { "" };
        format!("{}={}({}){star}", filter.key, filter.kind, filter.text)
    };
    filters.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[test]
fn tags_are_filters_that_group() {
    for (tags, expected) in [
        (r#"{"host":"a"}"#, "host=literal_or(a)*"),
        (r#"{"host":"a|b","dc":"*"}"#, "host=literal_or(a|b)* dc=iwildcard(*)*"),
        (r#"{"host":"web*"}"#, "host=iwildcard(web*)*"),
        (r#"{"host":"REGEXP(w.b)"}"#, "host=regexp(w.b)*"),
        (r#"{"host":"not_literal_or(a)"}"#, "host=not_literal_or(a)*"),
        ("{}", ""),
        ("null", ""),
    ] {
        let found = sub(&format!(r#""metric":"m","aggregator":"sum","tags":{tags}"#)).unwrap();
        assert_eq!(shown(&found.filters), expected, "{tags}");
    }
}

#[test]
fn a_filter_may_be_written_as_a_query_is_shown() {
    for name in ["groupBy", "group_by"] {
        let filter = format!(r#"{{"type":"regexp","tagk":"host","filter":"w","{name}":true}}"#);
        let found = sub(&format!(r#""metric":"m","aggregator":"sum","filters":[{filter}]"#)).unwrap();
        assert_eq!(shown(&found.filters), "host=regexp(w)*");
    }
}

#[test]
fn filters_that_cannot_be_are_refused() {
    for (filter, expected) in [
        (r#"{"tagk":"host","filter":"a"}"#, "a filter has no type"),
        (r#"{"type":"literal_or","filter":"a"}"#, "a filter has no tagk"),
        (r#"{"type":"literal_or","tagk":"host"}"#, "the filter on 'host' has no filter text"),
        (r#"{"type":"literal_or","tagk":"host","filter":"|"}"#, "the filter '|' on 'host' holds no value"),
        (
            r#"{"type":"wildcard","tagk":"host","filter":"a"}"#,
            "the filter 'a' on 'host' has no *, expected one in a wildcard",
        ),
        (
            r#"{"type":"not_key","tagk":"host","filter":"a"}"#,
            "the filter on 'host' is of type 'not_key', expected one of literal_or, iliteral_or, not_literal_or, not_iliteral_or, wildcard, iwildcard, regexp",
        ),
    ] {
        let found = sub(&format!(r#""metric":"m","aggregator":"sum","filters":[{filter}]"#));
        assert_eq!(found, Err(expected.to_owned()), "{filter}");
    }
    let found = sub(r#""metric":"m","aggregator":"sum","filters":[{"type":"regexp","tagk":"host","filter":"("}]"#);
    assert!(found.unwrap_err().contains("unclosed group"));
}

#[test]
fn a_question_stands_in_a_uri() {
    let ask = |query: &str| uri::query(&Params::parse(query), Fidelity::Sensible);
    let asked = ask(
        "start=1h-ago&m=sum:1m-avg-zero:rate%7Bdropcounter,100,%7D:explicit_tags:m%7Bhost=*%7D%7Bdc=lga%7D&ms&arrays=true",
    );
    let asked = asked.unwrap();
    assert!(asked.ms_resolution && asked.arrays);
    let found = &asked.subs[0];
    assert_eq!((found.metric.as_deref(), found.aggregator.as_deref()), (Some("m"), Some("sum")));
    assert_eq!((found.downsample.as_deref(), found.rate, found.explicit_tags), (Some("1m-avg-zero"), true, true));
    let expected = RateOptions { counter: true, counter_max: 100, reset_value: 0, drop_resets: true };
    assert_eq!(found.rate_options, Some(expected));
    assert_eq!(shown(&found.filters), "dc=literal_or(lga) host=iwildcard(*)*");

    for (m, expected) in [
        ("sum:m{}", ""),
        ("sum:m{}{host=a}", "host=literal_or(a)"),
        ("sum:m{host=a,host=b}", "host=literal_or(a|b)*"),
        ("sum:m{host=a}{host=a}", "host=literal_or(a)*"),
        ("sum:m{host=wildcard(a*),dc=x}", "host=wildcard(a*)* dc=literal_or(x)*"),
    ] {
        let m = m.replace('{', "%7B").replace('}', "%7D");
        assert_eq!(shown(&ask(&format!("start=1&m={m}")).unwrap().subs[0].filters), expected, "{m}");
    }
    assert_eq!(ask("start=1&m=sum:a&m=sum:b&m=sum:a").unwrap().subs.len(), 2);
}

#[test]
fn a_uri_that_is_no_question_is_refused() {
    for (query, sensible, exact) in [
        ("", "400 Missing parameter <code>start</code>", ""),
        ("start=1", "400 Missing sub queries", ""),
        ("start=1&m=", "400 The query string was empty", ""),
        ("start=1&m=sum", "400 Invalid parameter m=sum (not enough :-separated parts)", ""),
        ("start=1&m=a:b:c:d:e:f", "400 Invalid parameter m=a:b:c:d:e:f (too many :-separated parts)", ""),
        ("start=1&m=sum:rate{:m", "400 Invalid rate options specification: rate{", ""),
        ("start=1&m=sum:rate{counter,x}:m", "400 Max value of counter was not a number, received 'x'", ""),
        ("start=1&m=sum:m{host", "400 Missing '}' at the end of: m{host", "500"),
        ("start=1&m=sum:m{host=}", "400 When parsing tag 'host=': invalid tag: host=", "500"),
        ("start=1&m=sum:percentiles:m", "400 Malformed percentiles: percentiles", ""),
        ("start=1&m=sum:percentiles[x]:m", "400 the percentile 'x' is not a number", "500"),
        ("start=1&m=sum:m{host=a,}", "400 When parsing tag '': invalid tag: ", "500"),
        ("start=1&m=sum:m{host=a,}{}", "ok", ""),
    ] {
        let params = Params::parse(query);
        assert_eq!(verdict(uri::query(&params, Fidelity::Sensible), Fidelity::Sensible), sensible, "{query}");
        let expected = if exact.is_empty() { sensible.to_owned() } else { sensible.replacen("400", exact, 1) };
        assert_eq!(verdict(uri::query(&params, Fidelity::OpenTsdb), Fidelity::OpenTsdb), expected, "{query}");
    }
}

#[test]
fn where_a_uri_is_understood_by_letters_so_are_mistakes() {
    let ask = |query: &str, fidelity| verdict(uri::query(&Params::parse(query), fidelity), fidelity);
    let (sensible, exact) = (Fidelity::Sensible, Fidelity::OpenTsdb);
    assert_eq!(ask("start=1&m=sum:", sensible), "400 Missing the metric or tsuids, provide at least one");
    assert_eq!(ask("start=1&m=sum:", exact), "500 Metric cannot be null or empty");
    assert_eq!(ask("start=1&m=sum::m", sensible), "ok");
    assert_eq!(ask("start=1&m=sum::m", exact), "500 String index out of range: 0");
    // The bracket that is missing takes the last letter with it.
    let asked = uri::query(&Params::parse("start=1&m=sum:rate{counter:m"), exact).unwrap();
    assert_eq!(asked.subs[0].rate_options, Some(RateOptions::default()));
}

#[test]
fn a_zone_is_looked_up_where_opentsdb_needs_it() {
    let body = |rest: &str, zone: &str| format!(r#"{{{rest},"timezone":"{zone}"}}"#);
    let ask = |rest: &str, fidelity| verdict(parse::body(&body(rest, "Mars"), fidelity), fidelity);
    let unknown = "400 Invalid timezone name: 'Mars', expected one such as Europe/Paris";
    for (rest, exact) in [
        (r#""start":1,"queries":[{"aggregator":"sum","metric":"m"}]"#, "ok"),
        (r#""start":"2013/01/01","queries":[{"aggregator":"sum","metric":"m"}]"#, unknown),
        (r#""start":1,"end":"2013/01/01","queries":[{"aggregator":"sum","metric":"m"}]"#, unknown),
        (r#""start":1,"queries":[{"aggregator":"sum","metric":"m","downsample":"1m-avg"}]"#, unknown),
    ] {
        assert_eq!(ask(rest, Fidelity::Sensible), unknown, "{rest}");
        assert_eq!(ask(rest, Fidelity::OpenTsdb), exact, "{rest}");
    }
    let short = body(r#""start":"2013/01/01","queries":[{"aggregator":"sum","metric":"m"}]"#, "PST");
    assert_eq!(start_of(parse::body(&short, Fidelity::OpenTsdb)), 1_356_998_400 + 8 * 3_600);
}

/// The first second that is asked for.
fn start_of(asked: Result<QueryRequest, super::OpenTsdbError>) -> i64 {
    let resolved = resolve::resolve(&asked.unwrap(), &SeriesIndex::default(), NOW_MILLIS, Fidelity::OpenTsdb).unwrap();
    let SubQuerySource::Query(query) = &resolved[0].source else { panic!("{resolved:?}") };
    query.start.seconds()
}

#[test]
fn opentsdb_reads_no_zone_no_calendar_and_no_deletion_in_a_uri() {
    let params = Params::parse("start=2013/01/01&m=sum:1d-sum:m&tz=Asia/Kolkata&use_calendar&delete");
    let exact = uri::query(&params, Fidelity::OpenTsdb).unwrap();
    assert_eq!((&exact.timezone, exact.use_calendar, exact.delete), (&None, false, false));
    assert_eq!(start_of(Ok(exact)), 1_356_998_400);
    let sensible = uri::query(&params, Fidelity::Sensible).unwrap();
    assert_eq!(
        (sensible.timezone.as_deref(), sensible.use_calendar, sensible.delete),
        (Some("Asia/Kolkata"), true, true)
    );
}

#[test]
fn opentsdb_fails_at_times_that_its_rows_cannot_name() {
    let ask = |start: &str, end: &str, fidelity| {
        verdict(uri::query(&Params::parse(&format!("start={start}&end={end}&m=sum:m")), fidelity), fidelity)
    };
    for (start, end, exact) in [
        ("1", "9999999999999", "ok"),
        ("1", "10000000000000", "500 Invalid timestamp: 10000000000000"),
        ("100y-ago", "now", "500 Invalid timestamp: -1453600000000"),
    ] {
        assert_eq!(ask(start, end, Fidelity::Sensible), "ok", "{start} {end}");
        assert_eq!(ask(start, end, Fidelity::OpenTsdb), exact, "{start} {end}");
    }
}

#[test]
fn histograms_are_refused_and_to_be_exact_looked_for_in_vain() {
    let index = index(&[("m", &[("host", "a")])]);
    for (m, sensible, exact) in [
        (
            "sum:percentiles[50,99.9]:m",
            "400 telem keeps no histograms: ask for an aggregator such as p99 instead",
            "nothing",
        ),
        (
            "none:1m-sum:show-histogram-buckets:m",
            "400 telem keeps no histograms: ask for an aggregator such as p99 instead",
            "nothing",
        ),
        ("avg:percentiles[50]:m", "400 ", "400 Only NONE or SUM aggregation function supported for histogram query"),
        ("sum:1m-avg:percentiles[50]:m", "400 ", "400 Only SUM downsampling aggregation supported for histogram query"),
        ("sum:percentiles[101]:m", "400 ", "400 Invalid percentile parameters: 101"),
        ("sum:percentiles[50]:x", "400 ", "400 No such name for 'metrics': 'x'"),
        ("sum:percentiles[50]:m{rack=*}", "400 ", "400 No such name for 'tagk': 'rack'"),
        ("sum:percentiles[50]:m{host=b}", "400 ", "400 No such name for 'tagv': 'b'"),
        ("sum:pre-agg:m", "a query", "400 An internal null pointer exception was thrown"),
    ] {
        let m = m.replace('{', "%7B").replace('}', "%7D");
        for (fidelity, expected) in [(Fidelity::Sensible, sensible), (Fidelity::OpenTsdb, exact)] {
            let said = source(&format!("start=1&m={m}"), &index, fidelity);
            assert!(said.starts_with(expected), "{m}: {said}");
        }
    }
}

/// An index of these series.
fn index(series: &[(&str, &[(&str, &str)])]) -> Arc<SeriesIndex> {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    for (metric, tags) in series {
        db.series(&SeriesKey::new(metric, TagSet::new(tags.iter().copied()).unwrap()).unwrap()).unwrap();
    }
    Arc::clone(db.index())
}

/// What the one sub-query of a URI reads: `a query`, `nothing` or what is wrong.
fn source(query: &str, index: &SeriesIndex, fidelity: Fidelity) -> String {
    let resolved = uri::query(&Params::parse(query), fidelity)
        .and_then(|asked| resolve::resolve(&asked, index, NOW_MILLIS, fidelity));
    match resolved.map(|resolved| resolved.into_iter().next().map(|sub| sub.source)) {
        Ok(Some(SubQuerySource::Query(_))) => "a query".to_owned(),
        Ok(_) => "nothing".to_owned(),
        Err(failure) => format!("{} {}", failure.status.as_u16(), failure.message),
    }
}

#[test]
fn series_are_asked_for_by_number() {
    let index = index(&[("m", &[("host", "a")]), ("m", &[("host", "b")]), ("other", &[("host", "a")])]);
    let by_number = |tsuids: &str, fidelity| source(&format!("start=1&tsuid=sum:{tsuids}"), &index, fidelity);
    for (tsuids, sensible, exact) in [
        ("000001000001000001", "a query", "a query"),
        ("000001000001000001,000001000001000002", "a query", "a query"),
        ("000001000001000001,000001000001000009", "a query", "a query"),
        ("000001000001000009", "nothing", "nothing"),
        ("zz", "400 begin 0, end 6, length 2", "500 begin 0, end 6, length 2"),
        ("000001", "nothing", "400 TSUID is too short, may be missing tags"),
        ("00000100000100", "nothing", "400 The TSUID appears to be malformed, improper tag width"),
        (
            "000001000001000001,000002000001000001",
            "400 One or more TSUIDs did not share the same metric [000001] [000002]",
            "500 One or more TSUIDs did not share the same metric [000001] [000002]",
        ),
    ] {
        assert_eq!(by_number(tsuids, Fidelity::Sensible), sensible, "{tsuids}");
        assert_eq!(by_number(tsuids, Fidelity::OpenTsdb), exact, "{tsuids}");
    }
    // A metric beside them is not looked at.
    let body = r#"{"start":1,"queries":[{"aggregator":"sum","metric":"unknown","tags":{"x":"y"},
        "tsuids":["000001000001000002"]}]}"#;
    let resolved = resolve::resolve(&ask(body), &index, NOW_MILLIS, Fidelity::Sensible).unwrap();
    let SubQuerySource::Query(query) = &resolved[0].source else { panic!("{resolved:?}") };
    let series: Vec<String> = query.series.iter().flatten().map(ToString::to_string).collect();
    assert_eq!((query.metric.as_str(), &series[..], query.filters.len()), ("m", &["m{host=b}".to_owned()][..], 0));
}

#[test]
fn filters_that_share_a_key_are_to_opentsdb_not_what_they_say() {
    let place = |key: &str| ["host", "dc"].iter().position(|known| *known == key).map(|at| at as u32);
    let filter = |text: &str| {
        let (key, value) = text.trim_end_matches('!').split_once('=').unwrap();
        Filter::from_tag(key, value, Filter::of_kind).unwrap().with_role(FilterRole::of(text.ends_with('!')))
    };
    for (filters, expected) in [
        // Of the key that was seen first, literal values are one choice, wherever they stand.
        ("host=a host=b", "host=a|b"),
        ("host=a host=b!", "host=a|b!"),
        ("host=a|b dc=x host=b|c", "host=a|b|b|c dc=x"),
        ("host=a host=regexp(b)", "host=a host=~b"),
        ("host=a host=not_literal_or(b)", "host=a host=-b"),
        // Of any other the last filter decides whether there are literal values.
        ("host=* dc=x dc=y", "host=* dc=y"),
        ("host=* dc=x dc=regexp(y)", "host=* dc=~y"),
        ("host=* dc=x! dc=regexp(y)", "host=* dc=~y!"),
        ("host=* dc=regexp(y) dc=x", "host=* dc=x dc=~y"),
        ("dc=x dc=y", "dc=x|y"),
    ] {
        let filters: Vec<Filter> = filters.split(' ').map(filter).collect();
        let meant = super::filters::as_opentsdb(&filters, place).into_iter().map(|filter| {
            let matcher = match filter.matcher {
                Matcher::LiteralOr(values) => values.join("|"),
                Matcher::NotLiteralOr(values) => format!("-{}", values.join("|")),
                Matcher::IWildcard(pattern) => pattern,
                Matcher::Regexp(expression) => format!("~{}", expression.pattern()),
                other => format!("{other:?}"),
            };
            format!("{}={matcher}{}", filter.key, if filter.group_by { "!" } else { "" })
        });
        assert_eq!(meant.collect::<Vec<_>>().join(" "), expected);
    }
}

#[test]
fn tags_and_filters_together_all_hold_and_to_opentsdb_those_that_come_last() {
    let tags = r#""tags":{"host":"a"}"#;
    let filters = r#""filters":[{"type":"literal_or","tagk":"dc","filter":"x"}]"#;
    for (fields, sensible, exact) in [
        (format!("{tags},{filters}"), "host=literal_or(a)* dc=literal_or(x)", "dc=literal_or(x)"),
        (format!("{filters},{tags}"), "host=literal_or(a)* dc=literal_or(x)", "host=literal_or(a)*"),
        (format!("{filters},\"tags\":{{}}"), "dc=literal_or(x)", ""),
        (format!("{filters},\"tags\":null"), "dc=literal_or(x)", ""),
        (format!("{tags},\"filters\":null"), "host=literal_or(a)*", ""),
    ] {
        let body = format!(r#"{{"start":1,"queries":[{{"metric":"m","aggregator":"sum",{fields}}}]}}"#);
        for (fidelity, expected) in [(Fidelity::Sensible, sensible), (Fidelity::OpenTsdb, exact)] {
            assert_eq!(shown(&parse::body(&body, fidelity).unwrap().subs[0].filters), expected, "{fields}");
        }
    }
}

#[test]
fn sub_queries_that_only_group_differently_are_the_same_to_opentsdb() {
    let sub = |group_by| {
        format!(
            r#"{{"metric":"m","aggregator":"sum","filters":[{{"type":"wildcard","tagk":"h","filter":"*","groupBy":{group_by}}}]}}"#
        )
    };
    let body = format!(r#"{{"start":1,"queries":[{},{}]}}"#, sub(true), sub(false));
    assert_eq!(parse::body(&body, Fidelity::Sensible).unwrap().subs.len(), 2);
    assert_eq!(parse::body(&body, Fidelity::OpenTsdb).unwrap().subs.len(), 1);
}

#[test]
fn downsampling_is_an_interval_a_function_and_a_fill() {
    let calendar = CalendarRule { always: false, zone: Tz::UTC };
    let fixed = |micros| Interval::Fixed(telem_engine::Step::from_micros(micros).unwrap());
    let month = Interval::Calendar { count: 1, unit: CalendarUnit::Month, zone: Tz::UTC };
    for (text, interval, function, fill) in [
        ("500ms-sum", fixed(500_000), Aggregator::Sum, Fill::None),
        ("1m-avg-none", fixed(60_000_000), Aggregator::Avg, Fill::None),
        ("1h-max-nan", fixed(3_600_000_000), Aggregator::Max, Fill::Nan),
        ("1d-min-zero", fixed(86_400_000_000), Aggregator::Min, Fill::Zero),
        ("0all-count", Interval::All, Aggregator::Count, Fill::None),
        ("all-count-null", Interval::All, Aggregator::Count, Fill::Null),
        ("1nc-sum", month, Aggregator::Sum, Fill::None),
    ] {
        assert_eq!(downsample::parse(text, calendar), Ok(Downsample { interval, function, fill }), "{text}");
    }
    let always = downsample::parse("1n-sum", CalendarRule { always: true, zone: Tz::UTC }).unwrap();
    assert_eq!(always.interval, month);
    for (text, expected) in [
        ("1m", "Invalid downsampling specifier '1m': must provide at least interval and function"),
        ("30s-", "Invalid downsampling specifier '30s-': must provide at least interval and function"),
        (
            "1m-a-b-c",
            "Invalid downsampling specifier '1m-a-b-c': must consist of interval, function, and optional fill policy",
        ),
        ("1x-sum", "Invalid duration (suffix): 1x"),
        ("1.5dc-sum", "Invalid units in the duration: .5d"),
        ("0s-sum", "Zero or negative duration: 0s"),
        ("1m-sum-foo", "No such fill policy: 'foo': must be one of: none, nan, null, zero"),
    ] {
        assert_eq!(downsample::parse(text, calendar), Err(expected.to_owned()), "{text}");
    }
}

/// The answer to one sub-query with one group of these points.
fn rendered(asked: &QueryRequest, filling: GapFilling, points: Vec<(i64, Value)>) -> String {
    let key = SeriesKey::new("m", TagSet::new([("host", "a")]).unwrap()).unwrap();
    let group = TsGroup {
        tags: TagSet::new([("host", "a\"b")]).unwrap(),
        aggregate_tags: vec!["dc".to_owned()],
        series: vec![key],
        points: points.into_iter().map(|(millis, value)| (Timestamp::from_millis(millis), value)).collect(),
    };
    let sub = ResolvedQuery { index: 0, source: SubQuerySource::Nothing, filling };
    let held = AnswerBudget::new(1 << 20).start();
    let index = Arc::new(SeriesIndex::default());
    let mut out = render::AnswerBuffer::new(Arc::new(asked.clone()), DeliveredNotes::default(), index, held, stats());
    out.add(&sub, vec![group], Duration::from_millis(3)).unwrap();
    String::from_utf8(out.whole().unwrap().0).unwrap()
}

/// On a clock that stands still.
fn stats() -> Stats {
    Stats::new(Arc::new(Still))
}

#[test]
fn what_a_question_took_is_told_of_every_group_and_of_all() {
    let points = vec![(1_000, Value::Int(5)), (2_000, Value::Int(6))];
    let asked = QueryRequest { show_stats: true, show_summary: true, ..plain() };
    let text = rendered(&asked, GapFilling::Other, points.clone());
    assert!(
        text.ends_with(
            r#""dps":{"1":5,"2":6},"stats":{"aggregationTime":3.0,"emittedDPs":2}},{"statsSummary":{"avgAggregationTime":3.0,"maxAggregationTime":3.0,"emittedDPs":2,"totalTime":0.0}}]"#
        ),
        "{text}"
    );
    let arrays = QueryRequest { arrays: true, show_stats: true, ..plain() };
    let text = rendered(&arrays, GapFilling::Other, points);
    assert!(text.ends_with(r#""dps":[[1,5],[2,6]],"stats":{"aggregationTime":3.0,"emittedDPs":2}}]"#), "{text}");
    for asked in [
        ask(r#"{"start":1,"showStats":true,"showSummary":true,"queries":[]}"#),
        uri::query(&Params::parse("start=1&m=sum:m&show_stats&show_summary"), Fidelity::Sensible).unwrap(),
    ] {
        assert!(asked.show_stats && asked.show_summary);
    }
}

fn plain() -> QueryRequest {
    ask(r#"{"start":1,"queries":[{"metric":"m","aggregator":"sum","tags":{"host":"a"}}]}"#)
}

#[test]
fn integers_stay_integers_and_floats_keep_every_bit() {
    let points = vec![
        (1_000, Value::Int(5)),
        (2_000, Value::Float(5.0)),
        (3_000, Value::Float(0.1)),
        (4_000, Value::Float(1e300)),
        (5_000, Value::Int(i64::MIN)),
        (6_000, Value::Float(f64::NAN)),
    ];
    assert_eq!(
        rendered(&plain(), GapFilling::Other, points.clone()),
        r#"[{"metric":"m","tags":{"host":"a\"b"},"aggregateTags":["dc"],"dps":{"1":5,"2":5.0,"3":0.1,"4":1e300,"5":-9223372036854775808,"6":"NaN"}}]"#
    );
    assert!(rendered(&plain(), GapFilling::Null, points).ends_with(r#""6":null}}]"#));
}

#[test]
fn times_are_seconds_or_milliseconds_and_every_key_stands_once() {
    let points = vec![(1_200, Value::Int(1)), (1_700, Value::Int(2)), (2_000, Value::Int(3))];
    assert!(rendered(&plain(), GapFilling::Other, points.clone()).ends_with(r#""dps":{"1":2,"2":3}}]"#));
    let millis = QueryRequest { ms_resolution: true, ..plain() };
    assert!(rendered(&millis, GapFilling::Other, points.clone()).ends_with(r#""dps":{"1200":1,"1700":2,"2000":3}}]"#));
    let arrays = QueryRequest { arrays: true, ..plain() };
    assert!(rendered(&arrays, GapFilling::Other, points).ends_with(r#""dps":[[1,1],[1,2],[2,3]]}]"#));
    assert!(rendered(&arrays, GapFilling::Other, vec![]).ends_with(r#""dps":[]}]"#));
    assert!(rendered(&plain(), GapFilling::Other, vec![]).ends_with(r#""dps":{}}]"#));
}

#[test]
fn a_query_is_shown_as_it_was_asked() {
    let asked = QueryRequest { show_query: true, show_tsuids: true, ..plain() };
    assert_eq!(
        rendered(&asked, GapFilling::Other, vec![]),
        r#"[{"metric":"m","tags":{"host":"a\"b"},"aggregateTags":["dc"],"query":{"aggregator":"sum","metric":"m","tsuids":null,"downsample":null,"rate":false,"filters":[{"tagk":"host","filter":"a","group_by":true,"type":"literal_or"}],"rateOptions":null,"explicitTags":false,"preAggregate":false,"filterTagKs":[],"percentiles":null,"showHistogramBuckets":false,"histogramQuery":false,"rollupUsage":null,"rollupTable":"raw","useFuzzyFilter":true,"useMultiGets":true,"index":0,"tags":{"host":"literal_or(a)"}},"tsuids":["000000000000000000"],"dps":{}}]"#
    );
}

#[test]
fn a_glob_of_either_case_is_shown_as_opentsdb_shows_it() {
    let shown = |value: &str| Filter::from_tag("host", value, Filter::of_kind).unwrap().shown_kind;
    assert_eq!(["*", "web*", "iwildcard(web*)", "a|b"].map(shown), ["wildcard", "wildcard", "iwildcard", "literal_or"]);
}

#[test]
fn a_literal_value_must_be_known_also_where_opentsdb_forgets_it() {
    let index = index(&[("m", &[("host", "a"), ("dc", "x")])]);
    let ask = |filters: &str| {
        let body = format!(r#"{{"start":1,"queries":[{{"aggregator":"sum","metric":"m","filters":[{filters}]}}]}}"#);
        let asked = parse::body(&body, Fidelity::OpenTsdb).unwrap();
        resolve::resolve(&asked, &index, NOW_MILLIS, Fidelity::OpenTsdb).map(|_| ()).map_err(|failure| failure.message)
    };
    let filter = |kind: &str, key: &str, text: &str| format!(r#"{{"type":"{kind}","tagk":"{key}","filter":"{text}"}}"#);
    // The last filter on the second key alone decides whether there are literal values.
    let forgotten = |value: &str| {
        [filter("wildcard", "dc", "*"), filter("literal_or", "host", value), filter("regexp", "host", ".")].join(",")
    };
    assert_eq!(ask(&forgotten("a")), Ok(()));
    assert_eq!(ask(&forgotten("A")), Err("No such name for 'tagv': 'A'".to_owned()));
}

/// The answer to one sub-query with groups of these points, in pieces of `bytes` each or at once.
fn in_pieces(asked: &QueryRequest, points: &[Vec<i64>], bytes: Option<usize>) -> String {
    let groups = points.iter().map(|points| TsGroup {
        tags: TagSet::default(),
        aggregate_tags: vec![],
        series: vec![SeriesKey::new("m", TagSet::new([("host", "a")]).unwrap()).unwrap()],
        points: points.iter().map(|millis| (Timestamp::from_millis(*millis), Value::Int(*millis))).collect(),
    });
    let sub = ResolvedQuery { index: 0, source: SubQuerySource::Nothing, filling: GapFilling::Other };
    let held = AnswerBudget::new(64 << 20).start();
    let mut out =
        render::AnswerBuffer::new(Arc::new(asked.clone()), DeliveredNotes::default(), Arc::default(), held, stats());
    out.add(&sub, groups.collect(), Duration::ZERO).unwrap();
    let text = match bytes {
        None => out.whole().unwrap().0,
        Some(bytes) => {
            let pieces = std::iter::from_fn(|| out.piece(bytes));
            [render::AnswerBuffer::START.to_vec(), pieces.flatten().collect(), out.end()].concat()
        }
    };
    String::from_utf8(text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_are_together_what_is_written_at_once(
        groups in prop::collection::vec((0..3_000_usize, 1..2_000_i64), 0..4),
        bytes in 1..20_000_usize,
        (ms_resolution, arrays) in (any::<bool>(), any::<bool>()),
    ) {
        let asked = QueryRequest { ms_resolution, arrays, ..plain() };
        let points: Vec<Vec<i64>> =
            groups.iter().map(|(len, step)| (0..*len as i64).map(|at| at * step).collect()).collect();
        let whole = in_pieces(&asked, &points, None);
        prop_assert_eq!(&in_pieces(&asked, &points, Some(bytes)), &whole);
        let json: serde_json::Value = serde_json::from_str(&whole).unwrap();
        prop_assert_eq!(json.as_array().map(Vec::len), Some(points.len()));
    }
}

/// The values of `host` of the groups of an answer, in their order.
fn order(aggregator: &str, given: &[&str]) -> Vec<String> {
    let index = index(&[
        ("m", &[("host", "web"), ("rack", "2")]),
        ("m", &[("host", "db"), ("rack", "1")]),
        ("m", &[("host", "app"), ("rack", "2")]),
    ]);
    let body =
        format!(r#"{{"start":1,"queries":[{{"aggregator":"{aggregator}","metric":"m","tags":{{"host":"*"}}}}]}}"#);
    let asked = ask(&body);
    let subs = resolve::resolve(&asked, &index, NOW_MILLIS, Fidelity::Sensible).map_err(|failure| failure.message);
    let groups = given.iter().map(|host| TsGroup {
        tags: TagSet::new([("host", *host)]).unwrap(),
        aggregate_tags: vec![],
        series: vec![SeriesKey::new("m", TagSet::new([("host", *host), ("rack", "2")]).unwrap()).unwrap()],
        points: vec![],
    });
    let held = AnswerBudget::new(1 << 20).start();
    let mut out = render::AnswerBuffer::new(Arc::new(asked), DeliveredNotes::default(), index, held, stats());
    out.add(&subs.unwrap()[0], groups.collect(), Duration::ZERO).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out.whole().unwrap().0).unwrap();
    let host = |group: &serde_json::Value| group["tags"]["host"].as_str().unwrap().to_owned();
    json.as_array().unwrap().iter().map(host).collect()
}

#[test]
fn groups_come_in_the_order_in_which_their_names_were_first_seen() {
    for aggregator in ["sum", "none"] {
        for given in [["app", "db", "web"], ["web", "app", "db"]] {
            assert_eq!(order(aggregator, &given), ["web", "db", "app"], "{aggregator} {given:?}");
        }
    }
}

#[test]
fn values_that_a_later_one_of_their_second_hides_are_counted() {
    let hidden = |ms_resolution, arrays, micros: &[i64]| {
        let points = micros.iter().map(|micros| (Timestamp::from_micros(*micros), Value::Int(1))).collect();
        let series = vec![SeriesKey::new("m", TagSet::new([("host", "a")]).unwrap()).unwrap()];
        let group = TsGroup { tags: TagSet::default(), aggregate_tags: vec![], series, points };
        let asked = QueryRequest { ms_resolution, arrays, ..plain() };
        let held = AnswerBudget::new(1 << 20).start();
        let mut out =
            render::AnswerBuffer::new(Arc::new(asked), DeliveredNotes::default(), Arc::default(), held, stats());
        let sub = ResolvedQuery { index: 0, source: SubQuerySource::Nothing, filling: GapFilling::Other };
        out.add(&sub, vec![group], Duration::ZERO).unwrap();
        out.hidden().map(|text| text.to_str().unwrap().to_owned())
    };
    let micros = [1_000_000, 1_000_400, 1_000_800, 1_500_000, 2_000_000];
    let seconds = "3 values have a later one in their second; msResolution=true shows them";
    assert_eq!(hidden(false, false, &micros).as_deref(), Some(seconds));
    let millis = "2 values have a later one in their millisecond; arrays=true or SQL shows them";
    assert_eq!(hidden(true, false, &micros).as_deref(), Some(millis));
    assert_eq!(hidden(true, true, &micros), None);
    assert_eq!(hidden(false, false, &[1_000_000, 2_000_000]), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_uri_makes_the_parser_panic(
        start in "[0-9mshdwny./: -]{0,20}|[\\PC]{0,8}|[0-9]{1,20}(ms|[a-zA-Z]-ago)",
        m in "(sum|none|[\\PC]{0,3}):([0-9a-z-]{0,8}:|rate\\{[a-z,0-9]{0,9}\\}?:|[\\PC]{0,3}:){0,3}[a-z{}=,*|()\\[\\]é]{0,20}",
    ) {
        let query = format!("start={start}&m={m}&tz=Europe/Paris");
        for fidelity in [Fidelity::Sensible, Fidelity::OpenTsdb] {
            let said = verdict(uri::query(&Params::parse(&query), fidelity), fidelity);
            prop_assert!(said == "ok" || said.starts_with("400 ") || said.starts_with("500 "), "{said}");
        }
    }
}
