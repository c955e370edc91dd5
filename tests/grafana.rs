//! The requests of each generation of Grafana's OpenTSDB data source, and what it must find in the answer.

use serde_json::{Value as Json, json};

use crate::process::Server;
use crate::script::EPOCH_MS;

const EPOCH: i64 = EPOCH_MS / 1000;

/// Two hosts, one sample every 10 s for two minutes.
fn loaded(dir: &std::path::Path) -> Server {
    let server = Server::serve(dir, &[]);
    let mut samples = Vec::new();
    for n in 0..12 {
        for (host, value) in [("web01", json!(n)), ("web02", json!(f64::from(n) + 0.5))] {
            let tags = json!({"host": host, "dc": "x"});
            samples.push(
                json!({"metric": "cpu.load", "timestamp": EPOCH + i64::from(n) * 10, "value": value, "tags": tags}),
            );
        }
    }
    server.post("/api/put", &Json::from(samples)).expect(204);
    server
}

#[test]
fn save_and_test_and_the_dropdowns_find_what_they_need() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    // Both orders of the parameters; the Go backend takes nothing but 200.
    server.get("/api/suggest?type=metrics&q=cpu&max=1000").expect(200);
    assert_eq!(server.get("/api/suggest?q=cpu&type=metrics").expect(200).json(), json!(["cpu.load"]));
    assert_eq!(server.get("/api/suggest?type=tagk&q=h&max=1000").expect(200).json(), json!(["host"]));
    assert_eq!(server.get("/api/suggest?type=tagv&q=web&max=1000").expect(200).json(), json!(["web01", "web02"]));
    let aggregators = server.get("/api/aggregators").expect(200).json();
    for name in ["sum", "avg", "min", "max", "count", "none", "zimsum", "p99"] {
        assert!(aggregators.as_array().unwrap().contains(&json!(name)), "{name} is not in {aggregators}");
    }
    let filters = server.get("/api/config/filters").expect(200).json();
    for name in ["literal_or", "iliteral_or", "not_literal_or", "not_iliteral_or", "wildcard", "iwildcard", "regexp"] {
        assert!(filters[name]["description"].is_string(), "{name} is not in {filters}");
    }
}

#[test]
fn variables_are_filled_by_lookups() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    for path in [
        "/api/search/lookup?m=cpu.load&limit=1000",
        "/api/search/lookup?limit=1000&m=cpu.load%7Bhost%3D*%7D",
        "/api/search/lookup?limit=1000&m=cpu.load%7Bhost%3D*,dc%3Dx%7D",
    ] {
        let answer = server.get(path).expect(200).json();
        let mut hosts: Vec<&str> = answer["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["tags"]["host"].as_str().unwrap())
            .collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["web01", "web02"], "{path}");
    }
}

/// Grafana up to 12.3: the browser asks, all targets of a panel at once, times in milliseconds.
#[test]
fn the_browser_of_the_old_generations_gets_its_panel() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    let target = |aggregator: &str| {
        json!({"metric": "cpu.load", "aggregator": aggregator, "downsample": "20s-avg",
               "filters": [{"type": "literal_or", "tagk": "host", "filter": "web01|web02", "groupBy": true}]})
    };
    let body = json!({"start": EPOCH_MS, "end": EPOCH_MS + 60_000, "queries": [target("sum"), target("max")],
                      "msResolution": true, "globalAnnotations": true, "showQuery": true});
    let answer = server.post("/api/query", &body).expect(200).json();
    let series = answer.as_array().unwrap();
    assert_eq!(series.len(), 4);
    for (index, of_target) in series.chunks(2).enumerate() {
        for series in of_target {
            assert_eq!(series["query"]["index"], index, "alias and hide find their target by this");
            assert_eq!(series["metric"], "cpu.load");
            assert!(series["tags"].is_object() && series["aggregateTags"].is_array());
            let times: Vec<i64> = series["dps"].as_object().unwrap().keys().map(|time| time.parse().unwrap()).collect();
            assert_eq!(times, [0, 20_000, 40_000, 60_000].map(|offset| EPOCH_MS + offset), "in document order");
        }
    }
    // The default of a data source: seconds, and no end.
    let body = json!({"start": EPOCH_MS, "queries": [{"metric": "cpu.load", "aggregator": "avg", "tags": {"host": "web01"}}],
                      "msResolution": false, "globalAnnotations": true});
    let answer = server.post("/api/query", &body).expect(200).json();
    assert_eq!(answer[0]["dps"].as_object().unwrap().len(), 12);
    assert_eq!(answer[0]["dps"][EPOCH.to_string()], 0);
    assert!(answer[0].get("query").is_none());
}

/// Grafana 12.4: the whole target object rides along.
#[test]
fn unknown_fields_of_a_target_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    let target = json!({
        "refId": "A", "datasource": {"type": "opentsdb", "uid": "x"}, "alias": "$tag_host", "hide": false,
        "downsampleInterval": "1m", "downsampleAggregator": "avg", "downsampleFillPolicy": "none", "shouldComputeRate": true,
        "isCounter": true, "currentFilterKey": "", "metric": "cpu.load", "aggregator": "sum", "rate": true,
        "rateOptions": {"counter": true, "dropResets": true}, "downsample": "1m-avg", "explicitTags": false,
        "filters": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": false, "key": "ignored"}],
    });
    let body =
        json!({"start": EPOCH_MS, "end": EPOCH_MS + 120_000, "queries": [target], "msResolution": false, "new": 1});
    let answer = server.post("/api/query", &body).expect(200).json();
    assert_eq!(answer[0]["tags"], json!({"dc": "x"}));
    assert_eq!(answer[0]["aggregateTags"], json!(["host"]));
    assert_eq!(answer[0]["dps"][(EPOCH + 60).to_string()], json!(0.2));
}

/// Grafana 13: the Go backend, one target a request, seconds; with version 4 it wants arrays.
#[test]
fn the_go_backend_gets_numbers_it_can_decode() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    let body = json!({"start": EPOCH, "end": EPOCH + 60, "queries": [{
        "aggregator": "sum", "downsample": "30s-avg", "metric": "cpu.load", "rate": false, "tags": {"host": "*"}}]});
    let answer = server.post("/api/query", &body).expect(200).json();
    let dps = answer[0]["dps"].as_object().unwrap();
    assert!(dps.values().all(Json::is_number) && dps.keys().all(|time| time.len() == 10), "{answer}");

    let answer = server.post("/api/query?arrays=true", &body).expect(200).json();
    for series in answer.as_array().unwrap() {
        let pairs = series["dps"].as_array().unwrap();
        assert_eq!(pairs.len(), 3);
        assert!(pairs.iter().all(|pair| pair[0].is_i64() && pair[1].is_number()), "{series}");
    }
    // Counters as Go writes them: float64.
    let body = json!({"start": EPOCH, "end": EPOCH + 60, "queries": [{"aggregator": "sum", "metric": "cpu.load", "rate": true,
        "rateOptions": {"counter": true, "counterMax": 100.0, "resetValue": 1e21}}]});
    server.post("/api/query", &body).expect(200);
}

#[test]
fn an_error_has_the_message_where_grafana_looks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path());
    for (queries, word) in [
        (json!([{"metric": "no.such", "aggregator": "sum"}]), "no.such"),
        (json!([{"metric": "cpu.load", "aggregator": "sum", "downsample": "30s-undefined"}]), "undefined"),
        (json!([{"metric": "cpu.load", "aggregator": "sum", "downsample": "30s-"}]), "30s"),
        (json!([{"metric": "cpu.load", "aggregator": "sum", "tags": {"host": "web09"}}]), "web09"),
    ] {
        let answer = server.post("/api/query", &json!({"start": EPOCH_MS, "queries": queries})).expect(400).json();
        assert_eq!(answer["error"]["code"], 400);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(!message.is_empty());
        assert!(answer.to_string().contains(word), "{word} is not named in {answer}");
    }
    // A known metric without data in the range is no error.
    let body = json!({"start": EPOCH - 90_000, "end": EPOCH - 80_000, "queries": [{"metric": "cpu.load", "aggregator": "sum"}]});
    assert_eq!(server.post("/api/query", &body).expect(200).json(), json!([]));
}
