//! Any request to any endpoint gets an answer or a readable refusal, never a server error.

use axum::body::Body;
use axum::extract::Request;
use proptest::prelude::*;
use proptest::sample::select;
use telem_engine::Value;

use crate::testing::Served;

const PATHS: [&str; 44] = [
    "/api/put",
    "/api/query",
    "/api/query/last",
    "/api/suggest",
    "/api/search",
    "/api/search/lookup",
    "/api/search/tsmeta",
    "/api/annotation",
    "/api/annotations",
    "/api/annotation/bulk",
    "/api/aggregators",
    "/api/config",
    "/api/config/filters",
    "/api/version",
    "/api/dropcaches",
    "/api/stats",
    "/api/stats/query",
    "/api/stats/jvm",
    "/api/stats/threads",
    "/api/stats/region_clients",
    "/api/uid",
    "/api/uid/assign",
    "/api/uid/rename",
    "/api/uid/uidmeta",
    "/api/uid/tsmeta",
    "/api/rollup",
    "/api/histogram",
    "/api/tree",
    "/api/tree/branch",
    "/api",
    "/api/",
    "/api/v1",
    "/api/v1/version",
    "/api/v2/query",
    "/api/v99999999999/query",
    "/API//suggest//",
    "/q",
    "/suggest",
    "/version",
    "/aggregators",
    "/stats",
    "/dropcaches",
    "/logs",
    "/diediedie",
];

const NAMES: &str = "m start end type q max limit start_index use_meta tsuid tsuids timeseries back_scan resolve start_time \
     end_time global description notes metric tagk tagv name uid display_name details summary sync sync_timeout \
     precision non_finite ascii json png jsonp serializer method_override tz ms arrays treeid query";

const VALUES: &str = "1 0 -1 x metrics metric tagk sum:m sum:1m-avg:m%7Bhost=*%7D m%7Bhost=a%7D %7B=a%7D %7B %7D %7B%7D a%7Bb \
     a,b %ff %00 99999999999999999999 1356998400 1356998400500 1h-ago now 000001000001000001 zz %22%3C%3E' * post delete \
     put true false sum: :::: sum:rate%7Bcounter,1,2%7D:m none:m 0all-sum";

const BODIES: [&str; 27] = [
    "",
    "{",
    "[]",
    "{}",
    "null",
    "5",
    "\"x\"",
    "[{}]",
    "[null]",
    r#"{"metric":"m"}"#,
    r#"{"metric":["a"],"tagk":null}"#,
    r#"{"metric":[1,true,null,"a b",""]}"#,
    r#"{"metric":"a","name":"b"}"#,
    r#"{"queries":[{"metric":"m"}],"start":1}"#,
    r#"{"queries":[{"metric":"m","aggregator":"sum"}],"start":1356998400}"#,
    r#"{"queries":[{}]}"#,
    r#"{"queries":null}"#,
    r#"{"queries":[{"tsuids":["zz"]}],"backScan":"x"}"#,
    r#"{"startTime":1,"tsuid":"AA"}"#,
    r#"{"startTime":"x"}"#,
    r#"[{"startTime":5,"description":"d"}]"#,
    r#"{"startTime":"1","endTime":"2","global":true}"#,
    r#"{"uid":"1","type":"metric","notes":"n"}"#,
    r#"{"uid":1,"type":5}"#,
    r#"{"type":"metrics","q":5,"max":"x"}"#,
    r#"{"tags":[{"key":null,"value":5}],"limit":"x"}"#,
    r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}}"#,
];

fn words(list: &'static str) -> Vec<&'static str> {
    list.split_ascii_whitespace().collect()
}

#[test]
fn no_request_is_answered_with_a_bug_or_with_what_is_no_json() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(async { Served::new() });
    served.store("m", &[("host", "a")], &[(1_356_998_400, Value::Int(1))]);
    let parameter = (select(words(NAMES)), select(words(VALUES)));
    let request = (
        select(words("GET GET POST POST PUT DELETE PATCH OPTIONS HEAD")),
        select(PATHS.as_slice()),
        proptest::collection::vec(parameter, 0..5),
        proptest::option::of(select(BODIES.as_slice())),
    );
    proptest!(ProptestConfig::with_cases(2_000), |((method, path, parameters, body) in request)| {
        let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let uri = format!("{path}?{}", parameters.join("&"));
        let request = Request::builder().method(method).uri(uri).body(Body::from(body.unwrap_or_default())).unwrap();
        let answer = runtime.block_on(served.ask(request));
        prop_assert!(answer.status != 500, "{}", answer.text());
        if answer.header("content-type").starts_with("application/json") && !answer.body.is_empty() {
            let json: Result<serde_json::Value, _> = serde_json::from_slice(&answer.body);
            prop_assert!(json.is_ok(), "{}", answer.text());
        }
    });
}
