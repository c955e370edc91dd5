use proptest::prelude::*;
use serde_json::{Value as Json, json};
use telem_engine::Value;

use super::arithmetic::{Arithmetic, Number};
use crate::testing::Served;

fn worked_out(text: &str) -> String {
    let value = |name: &str| if name == "a" { 6.0 } else { 4.0 };
    match Arithmetic::parse(text) {
        Ok(expression) => expression.work_out(&value).map_or_else(|why| why, |number| format!("{number:?}")),
        Err(why) => why,
    }
}

#[test]
fn expressions_are_worked_out_as_the_originals_language_does() {
    for (text, expected) in [
        ("a + b * 2", "Float(14.0)"),
        ("(a + b) * 2", "Float(20.0)"),
        ("a - b - 1", "Float(1.0)"),
        ("a / b", "Float(1.5)"),
        ("a % b", "Float(2.0)"),
        ("-a + +b", "Float(-2.0)"),
        ("2.5 * a", "Float(15.0)"),
        // Integers stay integers until they meet a float.
        ("1 / 2 * a", "Float(0.0)"),
        ("7 / 2", "Int(3)"),
        ("1.0 / 2", "Float(0.5)"),
        ("a / 0", "Float(0.0)"),
        ("a > b ? a : b", "Float(6.0)"),
        ("a lt b or !(b == 4) ? 1 : 2", "Int(2)"),
        ("a >= 6 && b != 5", "Truth(true)"),
        ("a +", "an expression ends where a number or a variable is expected"),
        ("(a", "expected ')' in an expression, found its end"),
        ("a b", "found 'b' after the end of an expression in 'a b'"),
        ("a; b", "found ';' in the expression 'a; b'"),
        ("1.2.3 * a", "'1.2.3' is not a number"),
        ("1 + log(a, b)", "the function log is unknown: there are only operators"),
        ("log(a", "expected ')' in an expression, found its end"),
    ] {
        assert_eq!(worked_out(text), expected, "{text}");
    }
    assert_eq!(worked_out(&format!("{}a", "(".repeat(100))), "brackets are nested more than 64 deep");
    assert_eq!(worked_out(&vec!["a"; 600].join("+")), "an expression has more than 1000 parts");
}

fn served() -> Served {
    let served = Served::with(|_| ());
    let points =
        |from: i64, scale: i64| (from..4).map(|at| (3_600 + 10 * at, Value::Int(scale * at))).collect::<Vec<_>>();
    served.store("cpu", &[("host", "a")], &points(1, 1));
    served.store("cpu", &[("host", "b")], &points(1, 10));
    served.store("mem", &[("host", "a")], &points(2, 100));
    served
}

fn body(change: impl FnOnce(&mut Json)) -> Json {
    let filter = json!({"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true});
    let mut body = json!({
        "time": {"start": "3600", "end": "3700", "aggregator": "sum"},
        "filters": [{"id": "f1", "tags": [filter]}],
        "metrics": [
            {"id": "a", "metric": "cpu", "filter": "f1"},
            {"id": "b", "metric": "mem", "filter": "f1", "fillPolicy": {"policy": "scalar", "value": 5}},
        ],
        "expressions": [{"id": "e", "expr": "a + b"}],
    });
    change(&mut body);
    body
}

async fn ask(served: &Served, body: &Json, parameters: &str) -> (u16, Json) {
    let answer = served.post(&format!("/api/query/exp{parameters}"), body.to_string()).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

#[tokio::test]
async fn series_with_equal_tags_are_worked_out_together_and_gaps_are_filled() {
    let served = served();
    let (status, answer) = ask(&served, &body(|_| ()), "").await;
    assert_eq!(status, 200, "{answer}");
    let expected = json!([{
        "id": "e",
        "dps": [[3_610_000, 6.0, 15.0], [3_620_000, 202.0, 25.0], [3_630_000, 303.0, 35.0]],
        "dpsMeta": {"firstTimestamp": 3_610_000, "lastTimestamp": 3_630_000, "setCount": 3, "series": 2},
        "meta": [
            {"index": 0, "metrics": ["timestamp"]},
            {"index": 1, "metrics": ["cpu", "mem"], "commonTags": {"host": "a"}, "aggregatedTags": []},
            {"index": 2, "metrics": ["cpu", "mem"], "commonTags": {"host": "b"}, "aggregatedTags": []},
        ],
    }]);
    assert_eq!(answer["outputs"], expected);
    let query = &answer["query"];
    assert_eq!(
        (&query["name"], &query["outputs"], &query["time"]["start"]),
        (&Json::Null, &Json::Null, &json!("3600"))
    );
    assert_eq!(query["metrics"][1]["fillPolicy"], json!({"policy": "scalar", "value": 5.0}));
    assert_eq!(query["expressions"][0]["join"]["operator"], "union");

    let (_, answer) =
        ask(&served, &body(|body| body["expressions"][0]["join"] = json!({"operator": "intersection"})), "").await;
    assert_eq!(answer["outputs"][0]["dps"], json!([[3_610_000, 6.0], [3_620_000, 202.0], [3_630_000, 303.0]]));
}

#[tokio::test]
async fn expressions_may_name_others_and_outputs_choose() {
    let served = served();
    let (status, answer) = ask(
        &served,
        &body(|body| {
            body["expressions"] = json!([{"id": "twice", "expr": "e * 2"}, {"id": "e", "expr": "a + b"}]);
            body["outputs"] = json!([{"id": "twice", "alias": "double"}, {"id": "b"}, {"id": "unknown"}]);
        }),
        "",
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["outputs"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&answer["outputs"][0]["alias"], &answer["outputs"][0]["dps"][0]),
        (&json!("double"), &json!([3_610_000, 12.0, 30.0]))
    );
    assert_eq!(answer["outputs"][1]["dps"], json!([[3_620_000, 200.0], [3_630_000, 300.0]]));
}

#[tokio::test]
async fn to_be_exact_a_metric_shows_all_that_is_read_and_a_missing_series_is_zero() {
    let served = served();
    let change = |body: &mut Json| {
        body["time"]["end"] = json!("3615");
        body["metrics"][1]["fillPolicy"] = json!({"policy": "nan"});
        body["outputs"] = json!([{"id": "e"}, {"id": "b"}]);
    };
    let (_, answer) = ask(&served, &body(change), "?exact").await;
    let [of_expression, of_metric] = [&answer["outputs"][0], &answer["outputs"][1]];
    // Of host b there is no mem: 0, whatever the policy. Of host a there is none yet: as the policy says.
    assert_eq!(of_expression["dps"], json!([[3_610_000, "NaN", 10.0]]), "{answer}");
    assert_eq!(of_metric["dps"], json!([[3_620_000, 200.0], [3_630_000, 300.0]]));
    assert_eq!(of_metric["dpsMeta"]["lastTimestamp"], 3_630_000);
    let (_, answer) = ask(&served, &body(change), "").await;
    assert_eq!(answer["outputs"][1]["dps"], json!([]));
}

#[tokio::test]
async fn to_be_exact_a_downsampler_does_not_fill() {
    let served = served();
    let change = |body: &mut Json| {
        body["time"]["downsampler"] = json!({"interval": "10s", "aggregator": "sum", "fillPolicy": {"policy": "zero"}});
        body["outputs"] = json!([{"id": "a"}]);
    };
    let (_, exact) = ask(&served, &body(change), "?exact").await;
    assert_eq!(exact["outputs"][0]["dps"].as_array().unwrap().len(), 3, "{exact}");
    let (_, sensible) = ask(&served, &body(change), "").await;
    assert_eq!(sensible["outputs"][0]["dps"].as_array().unwrap().len(), 11, "{sensible}");
}

#[tokio::test]
async fn what_only_the_original_refuses_is_refused_to_be_exact() {
    let served = served();
    type Change = fn(&mut Json);
    let downsampler = |interval: &str| json!({"interval": interval, "aggregator": "sum"});
    let cases: [(Change, &str); 6] = [
        (|body| body["time"]["rate"] = json!("yes"), "500 Cannot deserialize value of type `boolean` from String"),
        (|body| body["metrics"][0]["timeOffset"] = json!("1h"), "500 Invalid metric at index 0"),
        (|body| body["filters"][0]["tags"] = Json::Null, "500 An internal null pointer exception was thrown"),
        (|body| body["expressions"][0]["join"] = json!({}), "500 The set operator cannot be null"),
        (|body| body["expressions"][0]["expr"] = json!("a > b ? 1 : 0"), "400 Expression returned a result of type"),
        (|body| body["metrics"][0]["timeOffset"] = json!("1h-ago"), "200 "),
    ];
    for (change, expected) in cases {
        let (status, answer) = ask(&served, &body(change), "?exact").await;
        let said = format!("{status} {}", answer["error"]["message"].as_str().unwrap_or_default());
        assert!(said.starts_with(expected), "{said}, expected {expected}");
        assert_eq!(ask(&served, &body(change), "").await.0, 200, "{expected}");
    }
    for interval in ["0all", "1hc"] {
        let (status, answer) =
            ask(&served, &body(|body| body["time"]["downsampler"] = downsampler(interval)), "?exact").await;
        assert_eq!((status, &answer["error"]["message"]), (500, &json!("Invalid time")));
    }
    let nothing = served.post("/api/query/exp?exact", "").await;
    assert_eq!(nothing.status, 500, "{}", nothing.text());
}

#[tokio::test]
async fn what_is_wrong_is_told() {
    let served = served();
    type Change = fn(&mut Json);
    let cases: [(Change, &str, u16); 9] = [
        (|body| body["time"] = Json::Null, "missing time", 500),
        (|body| body["time"]["aggregator"] = Json::Null, "Missing or empty aggregator", 500),
        (|body| body["metrics"] = json!([]), "missing or empty metrics", 500),
        (|body| body["metrics"][1]["id"] = json!("a"), "duplicated metric or expression id: a", 500),
        (|body| body["metrics"][0]["id"] = json!("a.b"), "Invalid id (\"a.b\"): illegal character: .", 500),
        (|body| body["metrics"][0]["filter"] = json!("f9"), "unrecognized filter id f9 in metric cpu", 500),
        (|body| body["expressions"][0]["expr"] = json!("a + c"), "Expression [e] was missing input c", 500),
        (|body| body["expressions"][0]["expr"] = json!("a + e"), "Circular reference found: e", 400),
        (|body| body["metrics"][0]["metric"] = json!("none"), "No such name for 'metrics': 'none'", 400),
    ];
    for (change, message, exact) in cases {
        for (parameters, status) in [("", 400), ("?exact", exact)] {
            let (found, answer) = ask(&served, &body(change), parameters).await;
            assert_eq!((found, answer["error"]["message"].as_str()), (status, Some(message)), "{parameters}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expression_makes_the_reader_panic(text in "[ab0-9.() +*/%<>=!&|?:-]{0,30}|[\\PC]{0,20}") {
        if let Ok(expression) = Arithmetic::parse(&text) {
            let _ = expression.work_out(&|_| 1.0).map(Number::float);
        }
    }
}
