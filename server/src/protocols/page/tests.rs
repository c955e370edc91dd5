//! What the page starts from.

use serde_json::Value as Json;
use telem_engine::Value;

use crate::testing::Served;

async fn start(served: &Served, path: &str) -> Json {
    let answer = served.get(path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(answer.text()).unwrap()
}

#[tokio::test]
async fn the_page_starts_from_what_is_there() {
    let served = Served::new();
    served.store("loss", &[("rank", "0"), ("host", "a")], &[(1_767_225_600, Value::Int(3))]);
    served.store("loss", &[("rank", "1"), ("host", "a")], &[(1_767_225_601, Value::Float(0.5))]);
    served.store("node_load1", &[("host", "a")], &[(1_767_225_602, Value::Float(1.5))]);
    let page = start(&served, "/api/page").await;
    assert_eq!(page["live"], true);
    assert_eq!((&page["first"], &page["last"]), (&1_767_225_600_000.0.into(), &1_767_225_602_000.0.into()));
    let [loss, load] = &**page["metrics"].as_array().unwrap() else { panic!("{page}") };
    assert_eq!((&loss["name"], &loss["series"], &loss["own"]), (&"loss".into(), &2.into(), &true.into()));
    assert_eq!(loss["tags"], serde_json::json!({"host": 1, "rank": 2}));
    assert_eq!((&load["kind"], &load["unit"], &load["own"]), (&"gauge".into(), &"threads".into(), &false.into()));
    assert_eq!(page["nodes"], serde_json::json!([{"name": "n1", "state": "up", "reason": null}]));
}

#[tokio::test]
async fn a_search_finds_metrics_by_a_part_of_their_names() {
    let served = Served::new();
    for name in ["loss", "Train.Loss", "accuracy"] {
        served.store(name, &[("rank", "0")], &[(1_767_225_600, Value::Int(3))]);
    }
    let page = start(&served, "/api/page?search=LOSS").await;
    let names: Vec<&Json> = page["metrics"].as_array().unwrap().iter().map(|metric| &metric["name"]).collect();
    assert_eq!(names, ["Train.Loss", "loss"]);
}
