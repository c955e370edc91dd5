//! Dragon's dashboards and their users' habits, through the router.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use telem_engine::{Clock, Durability, SampleBatch, SeriesKey, TagSet, Timestamp, Value};
use telem_ingest::collect;
use telem_query::tsq::{Fidelity, Matcher};

use super::lines;
use crate::testing::{Answer, Served};

/// The first second of all samples.
const BEGIN: i64 = 1_722_010_526;
const HOSTS: [&str; 3] = ["nid001", "nid002", "nid003"];

/// A minute after the first samples, for ever.
#[derive(Debug)]
struct MinuteLater;

impl Clock for MinuteLater {
    fn now(&self) -> Timestamp {
        Timestamp::from_seconds(BEGIN + 60)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

fn served() -> Served {
    Served::with(|state| state.clock = Arc::new(MinuteLater))
}

fn float(value: f64) -> Value {
    Value::Float(value)
}

/// Three hosts with four GPUs, two sources and two processes each, whose samples are of three seconds.
fn cluster() -> Served {
    let served = served();
    let mut line = 0.0;
    let mut store = |metric: &str, tags: &[(&str, &str)]| {
        line += 1.0;
        let samples: Vec<(i64, Value)> = (0..3).map(|second| (BEGIN + second, float(line))).collect();
        served.store(metric, tags, &samples);
    };
    let panels = PANELS.iter().map(|(metric, _, filters, _)| (*metric, *filters));
    for (metric, filters) in panels.collect::<BTreeSet<_>>() {
        let (key, values): (&str, &[&str]) = match filters {
            H => ("", &[""]),
            GPU => ("gpu", &["0", "1", "2", "3"]),
            SOURCE => ("source", &["a", "b"]),
            _ => ("puid", &["4294967296", "4294967297"]),
        };
        for host in HOSTS {
            for value in values {
                let tags = [("host", host), (key, *value)];
                store(metric, if key.is_empty() { &tags[..1] } else { &tags });
            }
        }
    }
    served
}

const H: &str = "host";
const GPU: &str = "host gpu";
const SOURCE: &str = "host source";
const PUID: &str = "puid";
const PUID_AND_HOST: &str = "puid host";

/// The panels of the three dashboards that draw time series: metric, aggregator, the tags with a filter, and how many
/// lines Dragon draws of three hosts.
const PANELS: [(&str, &str, &str, usize); 34] = [
    // Of Dragon Telemetry.
    ("load_average", "sum", H, 3),
    ("used_RAM", "sum", H, 3),
    ("cpu_percent", "sum", H, 3),
    ("DeviceMemoryUtilization", "sum", GPU, 12),
    ("DeviceUtilization", "sum", GPU, 12),
    ("DevicePowerUsage", "sum", GPU, 12),
    ("num_running_tasks", "sum", H, 3),
    ("num_completed_tasks", "sum", H, 3),
    ("db_size", "sum", H, 3),
    ("req_completion_rate", "avg", SOURCE, 6),
    ("pending_channel_operations", "avg", SOURCE, 6),
    ("pending_work_requests", "avg", SOURCE, 6),
    ("rendezvous_bandwidth", "avg", SOURCE, 6),
    ("channel_operations_per_second", "avg", SOURCE, 6),
    // Of the one with custom metrics.
    ("pool_start_time", "sum", H, 3),
    ("elapsed_time", "sum", PUID, 6),
    ("iteration_time", "sum", H, 3),
    ("DeviceMemoryUtilization", "sum", GPU, 12),
    ("DeviceUtilization", "sum", GPU, 12),
    ("DevicePowerUsage", "sum", GPU, 12),
    ("load_average", "sum", H, 3),
    ("load_average", "sum", H, 3),
    ("used_RAM", "sum", H, 3),
    ("db_size", "sum", H, 3),
    // Of the resilient one.
    ("elapsed_time", "sum", PUID_AND_HOST, 6),
    ("merge_cutoff", "sum", H, 3),
    ("num_running_processes", "sum", H, 3),
    ("def_pool_utilization", "sum", H, 3),
    ("cpu_percent", "sum", H, 3),
    ("used_RAM", "sum", H, 3),
    ("DeviceMemoryUtilization", "sum", GPU, 12),
    ("DeviceUtilization", "sum", GPU, 12),
    ("DevicePowerUsage", "sum", GPU, 12),
    ("db_size", "sum", H, 3),
];

fn filter(kind: &str, key: &str, text: &str) -> Json {
    json!({"type": kind, "tagk": key, "filter": text, "groupBy": false})
}

fn wildcards(keys: &str) -> Vec<Json> {
    keys.split(' ').map(|key| filter("wildcard", key, "*")).collect()
}

/// A sub-query as Grafana sends it.
fn target(metric: &str, aggregator: &str, filters: &[Json]) -> Json {
    json!({"metric": metric, "aggregator": aggregator, "downsample": "1s-avg", "filters": filters,
        "explicitTags": false})
}

/// A request as Grafana sends it, for the last five minutes.
fn panel(target: &Json) -> Json {
    json!({"start": (BEGIN - 240) * 1_000, "end": (BEGIN + 60) * 1_000, "queries": [target], "msResolution": false,
        "globalAnnotations": true, "showQuery": true})
}

async fn post(served: &Served, body: &Json) -> Answer {
    served.post("/dragon/api/query", body.to_string()).await
}

/// The lines of an answer that is one.
async fn lines_of(served: &Served, body: &Json) -> Vec<Json> {
    let answer = post(served, body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    serde_json::from_str(answer.text()).unwrap()
}

/// Tags and values of the lines of a sub-query with these changes, from two seconds before all samples.
async fn drawn(served: &Served, metric: &str, changes: Json) -> Vec<String> {
    let mut target = json!({"metric": metric, "aggregator": "sum"});
    let mut body = json!({"start": (BEGIN - 2) * 1_000});
    for (name, value) in changes.as_object().unwrap() {
        let of_all = ["start", "end", "msResolution", "queries"].contains(&&**name);
        let place = if of_all { &mut body } else { &mut target };
        place[name] = value.clone();
    }
    if body["queries"].is_null() {
        body["queries"] = json!([target]);
    }
    lines_of(served, &body).await.iter().map(shown).collect()
}

/// `host=a rank=0: 0=1.5 1=2`, with seconds from the first sample.
fn shown(line: &Json) -> String {
    let tags = line["tags"].as_object().unwrap().iter();
    let tags: Vec<String> = tags.map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
    let points = line["dps"].as_object().unwrap().iter().map(|(time, value)| {
        let time: i64 = time.parse().unwrap();
        let time = if time > BEGIN * 10 { time - BEGIN * 1_000 } else { time - BEGIN };
        format!(" {time}={value}")
    });
    format!("{}:{}", tags.join(" "), points.collect::<String>())
}

#[tokio::test]
async fn every_panel_of_the_three_dashboards_has_dragons_lines_and_none_is_a_sum() {
    let served = cluster();
    for (metric, aggregator, filters, expected) in PANELS {
        let found = lines_of(&served, &panel(&target(metric, aggregator, &wildcards(filters)))).await;
        assert_eq!(found.len(), expected, "{metric} by {filters}: {found:?}");
        let mut values = BTreeSet::new();
        for line in &found {
            assert!(line["tags"]["host"].is_string() && line["aggregateTags"] == json!([]), "{line}");
            assert_eq!(line["query"]["index"], 0, "{line}");
            let points = line["dps"].as_object().unwrap();
            assert_eq!(points.len(), 3, "{line}");
            values.extend(points.values().map(|value| value.as_f64().unwrap() as u64));
        }
        // Each series has one value of its own, and there are fewer series than a sum of any two values.
        assert_eq!(values.len(), expected, "{metric}: {values:?}");
        let last = values.last().unwrap() - values.first().unwrap();
        assert_eq!(last as usize, expected - 1, "{metric}: {values:?}");
    }
}

#[tokio::test]
async fn a_star_makes_lines_in_a_filter_of_any_kind_whatever_group_by_says() {
    let served = cluster();
    for kind in ["wildcard", "iwildcard", "literal_or", "iliteral_or", "regexp", "not_literal_or", "not_iliteral_or"] {
        for group_by in [false, true] {
            let one = json!({"type": kind, "tagk": "host", "filter": "*", "groupBy": group_by});
            let found = lines_of(&served, &panel(&target("db_size", "sum", &[one]))).await;
            assert_eq!(found.len(), 3, "{kind}, {group_by}: {found:?}");
        }
    }
    for (kind, text, expected) in [
        ("iliteral_or", "NID*", 3),
        ("literal_or", "NID*", 0),
        ("literal_or", "nid001|*3", 2),
        ("iliteral_or", "NID001|*3", 2),
        ("literal_or", "nid001|nid002", 2),
        ("regexp", "00[23]", 2),
        ("wildcard", "*2", 1),
        ("not_literal_or", "nid001", 2),
    ] {
        let found = lines_of(&served, &panel(&target("db_size", "sum", &[filter(kind, "host", text)]))).await;
        assert_eq!(found.len(), expected, "{kind} {text}: {found:?}");
    }
}

#[tokio::test]
async fn an_answer_has_dragons_shape_and_the_query_in_its_own_words() {
    let served = served();
    served.store("v_tag", &[("host", "localhost"), ("rank", "0")], &[(BEGIN, float(2.0))]);
    served.store("v_tag", &[("host", "localhost"), ("rank", "1")], &[(BEGIN, float(3.0))]);
    served.store("v_untagged", &[("host", "localhost")], &[(BEGIN, float(1.5))]);
    let asked = json!({"metric": "v_tag", "aggregator": "sum", "downsample": "5s-avg", "refId": "A",
        "filters": wildcards("host rank")});
    let mut query = asked.clone();
    query["index"] = json!(0);
    let bucket = (BEGIN - BEGIN % 5).to_string();
    let line = |rank: &str, value: f64| {
        let dps: Map<String, Json> = [(bucket.clone(), json!(value))].into_iter().collect();
        json!({"query": query, "metric": "v_tag", "tags": {"host": "localhost", "rank": rank}, "aggregateTags": [],
            "dps": dps})
    };
    let found = lines_of(&served, &panel(&asked)).await;
    assert_eq!(Json::from(found), json!([line("0", 2.0), line("1", 3.0)]));

    let body = json!({"start": (BEGIN - 10) * 1_000, "queries": [{"metric": "v_untagged", "aggregator": "sum"}]});
    let expected = format!(
        "[{{\"metric\":\"v_untagged\",\"tags\":{{\"host\":\"localhost\"}},\"aggregateTags\":[],\"dps\":{{\"{BEGIN}\":1.5}}}}]"
    );
    assert_eq!(post(&served, &body).await.text(), expected);
}

#[tokio::test]
async fn sub_queries_keep_their_places_also_where_two_are_the_same_or_one_has_nothing() {
    let served = cluster();
    let host = wildcards(H);
    let one = target("used_RAM", "sum", &host);
    let body = json!({"start": "1m-ago", "showQuery": true,
        "queries": [one, target("nobody_sends_this", "sum", &host), one, {"metric": "db_size", "aggregator": "max",
            "index": 7}]});
    let found = lines_of(&served, &body).await;
    let places: Vec<String> =
        found.iter().map(|line| format!("{} {}", line["query"]["index"], line["metric"].as_str().unwrap())).collect();
    assert_eq!(places.len(), 9, "{places:?}");
    let expected = ["0 used_RAM", "2 used_RAM", "3 db_size"];
    assert_eq!(places.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected.into());
}

/// What Dragon's own tests insert: three seconds of five metrics.
const SAMPLE_DATA: [(&str, [f64; 3]); 5] = [
    ("load_average", [0.58, 0.58, 0.62]),
    ("used_RAM", [9.3, 9.3, 9.3]),
    ("cpu_percent", [0.8, 1.6, 0.8]),
    ("num_running_processes", [21.0, 20.0, 23.0]),
    ("def_pool_utilization", [0.003910064, 0.00093, 0.001234]),
];

fn sample_data(tags: &[(&str, &str)]) -> Served {
    let served = served();
    for (metric, values) in SAMPLE_DATA {
        let samples: Vec<(i64, Value)> = (BEGIN..).zip(values.map(float)).collect();
        served.store(metric, tags, &samples);
    }
    served
}

fn base_query(metric: &str) -> Json {
    json!({"start": BEGIN, "end": BEGIN + 2, "msResolution": false, "showQuery": true, "queries": [{"metric": metric,
        "aggregator": "sum", "downsample": "100ms-avg", "filters": [filter("iliteral_or", "host", "*")]}]})
}

#[tokio::test]
async fn the_queries_of_dragons_own_tests_have_dragons_answers() {
    for tags in [&[("host", "n1")][..], &[]] {
        let served = sample_data(tags);
        for (metric, values) in SAMPLE_DATA {
            let found = lines_of(&served, &base_query(metric)).await;
            let dps: Map<String, Json> =
                (BEGIN..).zip(values).map(|(second, value)| (second.to_string(), json!(value))).collect();
            assert_eq!((found.len(), &found[0]["dps"]), (1, &Json::from(dps)), "{metric}");
            let host: Option<&str> = tags.first().map(|(_, host)| *host);
            assert_eq!(found[0]["tags"]["host"].as_str(), host);
        }
        assert_eq!(post(&served, &base_query("bad_metric_name")).await.text(), "[]");
        let mut bad_times = base_query("load_average");
        bad_times["start"] = json!("1722010529000");
        let answer = post(&served, &bad_times).await;
        assert_eq!((answer.status, answer.text()), (200, "[]"));
    }
    let served = served();
    served.store("cpu", &[("host", "node1")], &[(1_000, float(1.0))]);
    let body = json!({"start": "0", "queries": [{"metric": "cpu", "aggregator": "sum", "filters": []}]});
    let found = lines_of(&served, &body).await;
    assert_eq!((&found[0]["tags"]["host"], &found[0]["dps"]["1000"]), (&json!("node1"), &json!(1.0)));
}

#[tokio::test]
async fn the_first_half_of_the_features_that_dragon_ignores_is_honoured() {
    let served = served();
    for (rank, offset) in [("0", 0.0), ("1", 10.0)] {
        let samples: Vec<(i64, Value)> = (0..10).map(|at| (BEGIN + at, float(offset + at as f64))).collect();
        served.store("m", &[("host", "a"), ("rank", rank)], &samples);
    }
    let rank = wildcards("rank");
    let raw = "0=0.0 1=1.0 2=2.0 3=3.0 4=4.0 5=5.0 6=6.0 7=7.0 8=8.0 9=9.0";
    let first = |line: &[String]| line[0].clone();

    // A line for each value of each tag that is filtered: what is added up, if anything, are other tags.
    for aggregator in ["sum", "avg", "p99"] {
        let found = drawn(&served, "m", json!({"aggregator": aggregator, "filters": rank})).await;
        assert_eq!((found.len(), first(&found)), (2, format!("host=a rank=0: {raw}")));
    }
    let bogus = json!({"start": BEGIN, "queries": [{"metric": "m", "aggregator": "bogus"}]});
    let answer = post(&served, &bogus).await;
    assert!(answer.status == 400 && answer.text().contains("No such aggregation function: bogus"), "{}", answer.text());

    // Downsampling: Dragon returns raw points.
    let halves = drawn(&served, "m", json!({"downsample": "5s-max", "filters": rank})).await;
    let start = -(BEGIN % 5);
    assert_eq!(first(&halves), format!("host=a rank=0: {start}=3.0 {}=8.0 {}=9.0", start + 5, start + 10));
    let answer = post(
        &served,
        &json!({"start": BEGIN, "queries": [{"metric": "m", "aggregator": "sum",
        "downsample": "bogus"}]}),
    )
    .await;
    assert_eq!(answer.status, 400, "{}", answer.text());

    // Rates.
    let rated = drawn(&served, "m", json!({"rate": true, "filters": rank, "end": (BEGIN + 2) * 1_000})).await;
    assert_eq!(rated, ["host=a rank=0: 1=1.0 2=1.0", "host=a rank=1: 1=1.0 2=1.0"]);

    // Filters choose series, also several on one tag, and tags in the old notation.
    let ranks = async |changes: Json| -> Vec<String> {
        let found = drawn(&served, "m", changes).await;
        found.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    let ones = ["host=a rank=1".to_owned()];
    assert_eq!(ranks(json!({"filters": [filter("literal_or", "rank", "1")]})).await, ones);
    assert_eq!(ranks(json!({"tags": {"rank": "1"}})).await, ones);
    assert_eq!(ranks(json!({"tags": {"rank": 1}})).await, ones);
    let two = [filter("wildcard", "rank", "*"), filter("not_literal_or", "rank", "0")];
    assert_eq!(ranks(json!({"filters": two})).await, ones);
    assert!(ranks(json!({"filters": [filter("literal_or", "host", "nosuchhost")]})).await.is_empty());
    assert!(ranks(json!({"filters": [filter("wildcard", "nosuchtag", "*")]})).await.is_empty());
    // Of explicit tags `host` is always one, as every series of Dragon's has it.
    assert_eq!(ranks(json!({"filters": rank, "explicitTags": true})).await.len(), 2);
    assert!(ranks(json!({"filters": wildcards("host"), "explicitTags": true})).await.is_empty());
    assert_eq!(ranks(json!({"explicitTags": true})).await.len(), 2);
}

#[tokio::test]
async fn times_are_seconds_or_milliseconds_or_relative_and_both_ends_count() {
    let served = served();
    let samples: Vec<(i64, Value)> = (0..10).map(|at| (BEGIN + at, Value::Int(at))).collect();
    served.store("m", &[("host", "a")], &samples);
    let points = async |start: Json, end: Json| -> String {
        let found = drawn(&served, "m", json!({"start": start, "end": end})).await;
        let found = found.first().map_or("", |line| line.split_once(": ").unwrap().1);
        let seconds: Vec<&str> = found.split(' ').filter_map(|point| point.split('=').next()).collect();
        format!("{} to {}", seconds[0], seconds[seconds.len() - 1])
    };
    let all = "0 to 9";
    assert_eq!(points(json!(BEGIN), Json::Null).await, all);
    assert_eq!(points(json!(BEGIN * 1_000), Json::Null).await, all);
    assert_eq!(points(json!(BEGIN.to_string()), json!((BEGIN + 60).to_string())).await, all);
    assert_eq!(points(json!("1h-ago"), json!("now")).await, all);
    assert_eq!(points(json!("55s-ago"), json!("52s-ago")).await, "5 to 8");
    assert_eq!(points(json!((BEGIN + 3) * 1_000), json!((BEGIN + 4) * 1_000)).await, "3 to 4");
    assert_eq!(points(json!(BEGIN + 3), json!(BEGIN + 4)).await, "3 to 4");
    assert_eq!(points(json!(BEGIN + 3), json!(BEGIN + 3)).await, "3 to 3");
    assert!(drawn(&served, "m", json!({"start": BEGIN + 3, "end": BEGIN + 2})).await.is_empty());
    assert!(drawn(&served, "m", json!({"start": "1h-ago", "end": "2h-ago"})).await.is_empty());
}

/// Stores values of one series at times in microseconds after the first second.
fn store_at(served: &Served, metric: &str, tags: &[(&str, &str)], samples: &[(i64, f64)]) {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let key = SeriesKey::new(metric, TagSet::new(tags).unwrap()).unwrap();
    let series = served.state.db.series(&key).unwrap();
    let mut batch = SampleBatch::default();
    for (micros, value) in samples {
        batch.push(series, Timestamp::from_micros(BEGIN * 1_000_000 + micros), float(*value));
    }
    served.state.db.append(&batch, Durability::Buffered).unwrap();
}

#[tokio::test]
async fn points_of_one_second_are_all_found_by_buckets_and_by_milliseconds() {
    let served = served();
    let samples = [(0, 1.0), (1, 2.0), (250_000, 6.0), (999_000, 3.0), (1_500_000, 8.0)];
    store_at(&served, "m", &[("host", "a")], &samples);

    // A bucket of less than a second would be hidden by the last one of its second.
    for interval in ["1s", "100ms"] {
        let found = drawn(&served, "m", json!({"downsample": format!("{interval}-avg")})).await;
        assert_eq!(found, ["host=a: 0=3.0 1=8.0"], "{interval}");
    }
    let in_millis = drawn(&served, "m", json!({"downsample": "250ms-sum", "msResolution": true})).await;
    assert_eq!(in_millis, ["host=a: 0=3.0 250=6.0 750=3.0 1500=8.0"]);

    // Without buckets a second has one key, and the last value; the head of the answer counts the others.
    let body = json!({"start": BEGIN, "end": BEGIN, "queries": [{"metric": "m", "aggregator": "sum"}]});
    let answer = post(&served, &body).await;
    assert!(answer.text().contains(&format!("\"dps\":{{\"{BEGIN}\":3.0}}")), "{}", answer.text());
    assert!(answer.header("x-telem-hidden").starts_with("3 values have a later one"), "{:?}", answer.headers);
    let answer = served.post("/dragon/api/query?arrays", body.to_string()).await;
    assert_eq!(answer.text().matches(&format!("[{BEGIN},")).count(), 4, "{}", answer.text());
}

#[tokio::test]
async fn series_with_several_tags_are_never_mixed_up() {
    let served = served();
    served.store("v_two", &[("host", "a"), ("rank", "0"), ("gpu", "1")], &[(BEGIN, float(10.0))]);
    served.store("v_two", &[("host", "a"), ("rank", "1"), ("gpu", "0")], &[(BEGIN, float(20.0))]);
    served.store("v_two", &[("host", "a"), ("rank", "2"), ("gpu", "0")], &[(BEGIN, float(5.0))]);
    let every = ["gpu=0 host=a rank=1: 0=20.0", "gpu=0 host=a rank=2: 0=5.0", "gpu=1 host=a rank=0: 0=10.0"];
    assert_eq!(drawn(&served, "v_two", json!({})).await, every);
    assert_eq!(drawn(&served, "v_two", json!({"filters": wildcards("host")})).await, every);
    assert_eq!(drawn(&served, "v_two", json!({"filters": wildcards("host rank gpu")})).await, every);

    // Where a filtered tag is not enough to tell series apart, the aggregator makes one value of several.
    for (aggregator, value) in [("sum", "12.5"), ("avg", "12.5"), ("max", "20.0"), ("dev", "7.5")] {
        let body = json!({"start": BEGIN - 1, "queries": [
            {"metric": "v_two", "aggregator": aggregator, "filters": wildcards("gpu")}]});
        let found = lines_of(&served, &body).await;
        let shown: Vec<String> = found.iter().map(shown).collect();
        assert_eq!(shown[0], format!("gpu=0 host=a: 0={value}"), "{aggregator}");
        assert_eq!(found[0]["aggregateTags"], json!(["rank"]));
        assert!(shown[1].starts_with("gpu=1 host=a rank=0:"), "{shown:?}");
    }
}

#[tokio::test]
async fn processes_that_log_for_one_gpu_draw_one_line_of_their_mean() {
    let served = served();
    for pid in ["11", "12", "13"] {
        let tags = [("host", "a"), ("gpu", "0"), ("pid", pid)];
        served.store("DeviceUtilization", &tags, &[(BEGIN, float(50.0)), (BEGIN + 1, float(50.0))]);
    }
    let asked = json!({"filters": wildcards("host gpu"), "downsample": "1s-avg"});
    assert_eq!(drawn(&served, "DeviceUtilization", asked).await, ["gpu=0 host=a: 0=50.0 1=50.0"]);
}

#[tokio::test]
async fn series_without_a_host_are_drawn_and_those_without_another_filtered_tag_are_not() {
    let served = served();
    served.store("m", &[], &[(BEGIN, float(1.0))]);
    served.store("m", &[("host", "a")], &[(BEGIN, float(2.0))]);
    served.store("m", &[("rank", "0")], &[(BEGIN, float(3.0))]);
    served.store("m", &[("host", "a"), ("rank", "0")], &[(BEGIN, float(4.0))]);
    let host = drawn(&served, "m", json!({"filters": wildcards("host")})).await;
    assert_eq!(host, [": 0=1.0", "rank=0: 0=3.0", "host=a: 0=2.0", "host=a rank=0: 0=4.0"]);
    let rank = ["rank=0: 0=3.0", "host=a rank=0: 0=4.0"];
    assert_eq!(drawn(&served, "m", json!({"filters": wildcards("rank")})).await, rank);
    assert_eq!(drawn(&served, "m", json!({"filters": wildcards("host rank")})).await, rank);
    let one = json!({"filters": [filter("literal_or", "host", "a"), filter("wildcard", "rank", "*")]});
    assert_eq!(drawn(&served, "m", one).await, rank[1..]);
    // No series has the tag `host`, and nobody has to know it.
    served.store("alone", &[("gpu", "0")], &[(BEGIN, float(5.0))]);
    assert_eq!(drawn(&served, "alone", json!({"filters": wildcards("host gpu")})).await, ["gpu=0: 0=5.0"]);
}

#[tokio::test]
async fn lines_are_in_the_order_of_hosts_and_numbers_and_points_in_that_of_time() {
    let served = served();
    for (host, gpu) in [("b", "10"), ("a", "10"), ("b", "9"), ("a", "9")] {
        let tags = [("host", host), ("gpu", gpu)];
        served.store("m", &tags, &[(BEGIN + 1, float(1.0)), (BEGIN, float(0.0))]);
    }
    let found = drawn(&served, "m", json!({"filters": wildcards("host gpu")})).await;
    let expected = [("9", "a"), ("10", "a"), ("9", "b"), ("10", "b")];
    assert_eq!(found, expected.map(|(gpu, host)| format!("gpu={gpu} host={host}: 0=0.0 1=1.0")));
}

#[tokio::test]
async fn a_get_asks_the_same() {
    let served = cluster();
    let uri = format!("/dragon/api/query?start={}&m=sum:DeviceUtilization%7Bgpu=*%7D", BEGIN - 1);
    let answer = served.get(&uri).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(serde_json::from_str::<Vec<Json>>(answer.text()).unwrap().len(), 12);
    let uri = format!("/dragon/api/query?start={}&m=sum:db_size%7Bhost=iliteral_or(*)%7D", BEGIN - 1);
    assert_eq!(serde_json::from_str::<Vec<Json>>(served.get(&uri).await.text()).unwrap().len(), 3);
}

#[tokio::test]
async fn a_server_that_imitates_opentsdb_shows_dragons_lines_all_the_same() {
    let served = Served::with(|state| state.fidelity = Fidelity::OpenTsdb);
    served.store("m", &[("host", "a")], &[(BEGIN, float(1.0))]);
    served.store("m", &[("host", "b")], &[(BEGIN, float(2.0))]);
    let found = drawn(&served, "m", json!({"filters": [filter("iliteral_or", "host", "*")], "end": BEGIN + 5})).await;
    assert_eq!(found, ["host=a: 0=1.0", "host=b: 0=2.0"]);
}

#[tokio::test]
async fn what_is_wrong_with_a_question_is_said_and_nothing_waits() {
    let served = cluster();
    for (body, expected) in [
        ("", "Missing message content"),
        ("{", "Unable to parse the given JSON"),
        ("[]", "expected an object"),
        ("start=1", "expected an object"),
        (r#"{"queries":[{"metric":"m","aggregator":"sum"}]}"#, "Missing start time"),
        (r#"{"start":1}"#, "found no 'queries'"),
        (r#"{"start":1,"queries":[]}"#, "Missing queries"),
        (r#"{"start":"soon","queries":[{"metric":"m","aggregator":"sum"}]}"#, "Invalid time: soon"),
        (r#"{"start":1,"queries":[{"aggregator":"sum"}]}"#, "Missing the metric"),
        (r#"{"start":1,"queries":[{"metric":"m"}]}"#, "Missing the aggregation function"),
        (
            r#"{"start":1,"queries":[{"metric":"m","aggregator":"sum","filters":[{"type":"regexp","tagk":"host","filter":"(*"}]}]}"#,
            "the filter '(*' on 'host'",
        ),
        (
            r#"{"start":1,"queries":[{"metric":"m","aggregator":"sum","filters":[{"type":"like","tagk":"host","filter":"*"}]}]}"#,
            "is of type 'like'",
        ),
    ] {
        let answer = served.post("/dragon/api/query", body).await;
        assert!(
            answer.status == 400 && answer.text().contains(expected),
            "{body}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let answer = served.post("/dragon/api/query", "x".repeat(2 << 20)).await;
    assert_eq!(answer.status, 413);
}

#[tokio::test]
async fn suggestions_contain_the_text_and_are_of_the_kind_that_is_asked_for() {
    let served = served();
    for metric in ["load_average", "used_RAM", "cpu_percent", "dragon_telemetry_test_data"] {
        served.store(metric, &[("host", "nid001")], &[(BEGIN, float(1.0))]);
    }
    for (query, expected) in [
        ("", r#"["cpu_percent","dragon_telemetry_test_data","load_average","used_RAM"]"#),
        ("?q=test", r#"["dragon_telemetry_test_data"]"#),
        ("?q=RAM", r#"["used_RAM"]"#),
        ("?q=ram", "[]"),
        ("?type=metrics&q=e&max=2", r#"["cpu_percent","dragon_telemetry_test_data"]"#),
        ("?type=&q=load", r#"["load_average"]"#),
        ("?type=tagk&q=os", r#"["host"]"#),
        ("?type=tagv&q=001", r#"["nid001"]"#),
    ] {
        let answer = served.get(&format!("/dragon/api/suggest{query}")).await;
        assert_eq!((answer.status, answer.text()), (200, expected), "{query}");
    }
    for (query, expected) in
        [("?type=names", "Invalid 'type' parameter:names"), ("?max=few", "Unable to parse 'max' as a number")]
    {
        let answer = served.get(&format!("/dragon/api/suggest{query}")).await;
        assert!(answer.status == 400 && answer.text().contains(expected), "{}", answer.text());
    }
    // A name that was assigned and that no series carries is among them.
    assert_eq!(served.get("/dragon/api/uid/assign?metric=my_test").await.status, 200);
    let answer = served.get("/dragon/api/suggest?q=test").await;
    assert_eq!(answer.text(), r#"["dragon_telemetry_test_data","my_test"]"#);
    // All of them, where OpenTSDB tells 25.
    for number in 0..40 {
        served.store(&format!("many_{number}"), &[], &[(BEGIN, float(1.0))]);
    }
    let answer = served.get("/dragon/api/suggest?q=many_").await;
    assert_eq!(serde_json::from_str::<Vec<String>>(answer.text()).unwrap().len(), 40);
}

#[tokio::test]
async fn what_grafana_and_dragons_clients_ask_besides_is_answered() {
    let served = cluster();
    let answer = served.get("/dragon/api/aggregators").await;
    assert_eq!((answer.status, answer.text()), (200, r#"["min","sum","max","avg","dev"]"#));
    for path in ["version", "config", "config/filters", "stats", "annotations?start_time=1"] {
        let (below, own) =
            (served.get(&format!("/dragon/api/{path}")).await, served.get(&format!("/api/{path}")).await);
        assert_eq!(below.status, 200, "{path}: {}", below.text());
        assert!(path == "stats" || below.text() == own.text(), "{path}");
    }
    let answer = served.get("/dragon/api/search/lookup?m=DeviceUtilization%7Bgpu=*%7D&limit=0").await;
    let found: Json = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(found["results"].as_array().unwrap().len(), 12);
    let note = json!({"startTime": BEGIN, "description": "began"});
    assert_eq!(served.post("/dragon/api/annotation", note.to_string()).await.status, 200);
    let found = lines_of(&served, &panel(&target("db_size", "sum", &wildcards(H)))).await;
    assert_eq!(found[0]["globalAnnotations"][0]["description"], "began");
    for path in ["/dragon", "/dragon/", "/dragon/api/nothing", "/dragon/query"] {
        assert_eq!(served.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_key_comes_back_as_a_token_and_grants_nothing() {
    let served = served();
    let answer = served.post("/dragon/api/token", r#"{"auth_key":"my-key"}"#).await;
    assert_eq!((answer.status, answer.text()), (200, r#"{"access_token":"Bearer my-key"}"#));
    for body in ["", "{}", "[]", "my-key", r#"{"auth_key":null}"#, r#"{"auth_key":""}"#, "{\"auth_key\":\"a\\nb\"}"] {
        let answer = served.post("/dragon/api/token", body).await;
        let told: Json = serde_json::from_str(answer.text()).unwrap();
        assert_eq!((answer.status, &told["msg"]), (400, &json!("Bad auth_key")), "{body}");
    }
    assert_eq!(served.get("/dragon/api/token").await.status, 405);
}

#[tokio::test]
async fn nodes_are_not_restarted_and_telemetry_does_not_end() {
    let served = sample_data(&[("host", "n1")]);
    let answer = served.post("/dragon/api/reboot", "hostnames=nid001%2C+nid002&h_uids=").await;
    let told: Json = serde_json::from_str(answer.text()).unwrap();
    assert_eq!(answer.status, 501, "{told}");
    assert_eq!((&told["reboot"], &told["hostnames"]), (&json!(false), &json!(["nid001", "nid002"])));
    assert!(told["h_uids"] == json!([]) && told["error"].as_str().unwrap().contains("never restarts"), "{told}");

    let answer = served.get("/dragon/api/telemetry_shutdown").await;
    let told: Json = serde_json::from_str(answer.text()).unwrap();
    assert_eq!((answer.status, &told["shutdown_begin"]), (200, &json!(true)));
    assert_eq!(lines_of(&served, &base_query("used_RAM")).await.len(), 1, "it goes on");
}

#[test]
fn telem_itself_measures_what_the_dashboards_show_of_nodes_and_gpus() {
    let of_programs: BTreeSet<&str> = [
        // Dragon's own runtime and its services send these.
        "def_pool_utilization",
        "req_completion_rate",
        "pending_channel_operations",
        "pending_work_requests",
        "rendezvous_bandwidth",
        "channel_operations_per_second",
        "num_running_tasks",
        "num_completed_tasks",
        // And programs these.
        "pool_start_time",
        "elapsed_time",
        "iteration_time",
        "merge_cutoff",
    ]
    .into();
    let metrics: BTreeSet<&str> = PANELS.iter().map(|(metric, ..)| *metric).collect();
    assert_eq!(metrics.len(), 20);
    let unknown: BTreeSet<&str> = metrics.into_iter().filter(|metric| collect::describe(metric).is_none()).collect();
    assert_eq!(unknown, of_programs);
}

#[test]
fn literal_values_with_a_star_become_what_they_mean() {
    let matcher = |kind: &str, text: &str| (lines::MANNER.filter)(kind, "host", text).unwrap().to_tag_filter().matcher;
    assert!(matches!(matcher("literal_or", "a|b"), Matcher::LiteralOr(values) if values == ["a", "b"]));
    assert!(matches!(matcher("iliteral_or", "*"), Matcher::Wildcard(text) if text == "*"));
    assert!(matches!(matcher("iliteral_or", "a|*|b"), Matcher::Wildcard(text) if text == "*"));
    assert!(matches!(matcher("iliteral_or", "a*|"), Matcher::IWildcard(text) if text == "a*"));
    let several = matcher("literal_or", "a.b*|c");
    for (value, expected) in [("a.b1", true), ("c", true), ("axb1", false), ("cc", false), ("A.b1", false)] {
        assert_eq!(several.accepts(value), expected, "{value}");
    }
    assert!(matcher("iliteral_or", "a.b*|c").accepts("A.B1"));
    assert!((lines::MANNER.filter)("literal_or", "host", "|").is_err());
}
