//! Panels against what is known of their samples.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use telem_engine::{Timestamp, Value};

use super::choice;
use super::grid::{PanelGrid, round_step};
use super::lines::PanelLine;
use super::question::{LineRanking, LineWish};
use crate::testing::Served;

const START: i64 = 1_767_225_600;
const START_MS: i64 = START * 1_000;

async fn ask(served: &Served, question: &Json) -> Vec<Json> {
    let answer = served.post("/api/panels", question.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One panel over the first `seconds`.
async fn panel(served: &Served, seconds: i64, columns: usize, panel: Json) -> Json {
    let question = json!({"start": START_MS, "end": START_MS + seconds * 1_000, "columns": columns, "panels": [panel]});
    ask(served, &question).await.remove(0)
}

/// `count` samples a second apart.
fn seconds(count: i64, value: impl Fn(i64) -> f64) -> Vec<(i64, Value)> {
    (0..count).map(|at| (START + at, Value::Float(value(at)))).collect()
}

#[tokio::test]
async fn a_spike_of_one_sample_is_the_greatest_of_its_column() {
    let served = Served::new();
    served.store("load", &[("host", "a")], &seconds(3_600, |at| if at == 1_801 { 1e6 } else { 1.0 }));
    let panel = panel(&served, 3_600, 60, json!({"metric": "load", "by": ["host"]})).await;
    assert_eq!(
        (&panel["start"], &panel["step"], &panel["columns"]),
        (&json!(START_MS as f64), &json!(60_000), &json!(60))
    );
    let line = &panel["series"][0];
    assert_eq!(line["tags"], json!({"host": "a"}));
    assert_eq!((&line["min"][30], &line["max"][30]), (&json!(1), &json!(1_000_000)));
    assert_eq!(line["avg"][30], json!(16_667.65));
    assert_eq!(line["max"][29], json!(1));
    assert_eq!(line["stats"]["max"], json!(1e6));
}

#[tokio::test]
async fn what_is_not_there_is_null_and_what_is_no_number_is_no_sample() {
    let served = Served::new();
    let values = [(START, Value::Float(1.0)), (START + 1, Value::Float(f64::NAN)), (START + 30, Value::Float(3.0))];
    served.store("loss", &[("rank", "0")], &values);
    let question = json!({"metric": "loss"});
    let panel = panel(&served, 40, 4, question).await;
    assert_eq!(panel["raw"], json!(false));
    assert_eq!(panel["series"][0]["avg"], json!([1, null, null, 3]));
}

#[tokio::test]
async fn few_samples_come_as_they_are() {
    let served = Served::new();
    served.store("loss", &[("rank", "0")], &seconds(4, |at| at as f64 / 3.0));
    let panel = panel(&served, 10, 400, json!({"metric": "loss", "by": ["rank"]})).await;
    assert_eq!(panel["raw"], json!(true));
    let line = &panel["series"][0];
    assert_eq!(
        line["times"],
        json!([START_MS as f64, (START_MS + 1_000) as f64, (START_MS + 2_000) as f64, (START_MS + 3_000) as f64])
    );
    assert_eq!(line["values"][1], json!(1.0 / 3.0));
    assert!(line.get("avg").is_none());
}

#[tokio::test]
async fn samples_are_those_of_the_lines_that_are_sent() {
    let served = Served::new();
    for (at, host) in ["n1", "n2", "n3"].into_iter().enumerate() {
        let value = move |second: i64| (10 * at) as f64 + second as f64;
        served.store("heat", &[("host", host)], &seconds(3, value));
        for gpu in ["0", "1"] {
            served.store("heat", &[("host", host), ("gpu", gpu)], &seconds(3, move |second| 100.0 + value(second)));
        }
    }
    let question = |more: Json| {
        let mut question = json!({"metric": "heat", "by": ["host", "gpu"]});
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        question
    };
    let values = |panel: &Json| {
        assert_eq!(panel["raw"], json!(true), "{panel}");
        let lines = panel["series"].as_array().unwrap();
        lines.iter().map(|line| (line["tags"].clone(), line["values"].clone())).collect::<Vec<_>>()
    };
    let of =
        |host: &str, gpu: Json, values: [i32; 3]| (json!({"host": host, "gpu": gpu}), json!(values.map(f64::from)));
    let first = panel(&served, 10, 400, question(json!({"top": {"count": 2, "order": "max"}}))).await;
    assert_eq!(values(&first), [of("n3", "0".into(), [120, 121, 122]), of("n3", "1".into(), [120, 121, 122])]);
    assert_eq!(first["others"]["count"], json!(7));
    // One that lacks the tag is a line, too; lines come in the order in which they were asked for, each once.
    let keep = [json!({"host": "n2", "gpu": null}), json!({"host": "n1", "gpu": "1"}), json!({"host": "n2"})];
    let kept = panel(&served, 10, 400, question(json!({"keep": keep}))).await;
    assert_eq!(values(&kept), [of("n2", Json::Null, [10, 11, 12]), of("n1", "1".into(), [100, 101, 102])]);
    // None is an answer, too.
    let none = panel(&served, 10, 400, question(json!({"top": {"count": 0}}))).await;
    assert_eq!((values(&none), &none["lines"]), (Vec::new(), &json!(9)));
}

#[tokio::test]
async fn a_rate_is_the_rise_of_a_counter_and_a_restart_is_left_out() {
    let served = Served::new();
    let count = |at: i64| if at < 40 { at as f64 * 5.0 } else { (at - 40) as f64 * 5.0 };
    served.store("sent_total", &[("host", "a")], &seconds(60, count));
    served.store("sent_total", &[("host", "b")], &seconds(60, |at| at as f64));
    let question = json!({"metric": "sent_total", "by": ["host"], "rate": true, "function": "sum"});
    let panel = panel(&served, 60, 6, question).await;
    assert_eq!(panel["series"][0]["avg"], json!([null, 5, 5, 5, null, 5]));
    assert_eq!(panel["series"][1]["avg"], json!([null, 1, 1, 1, 1, 1]));
    assert_eq!(panel["series"][0]["min"], json!([null, 5, 5, 5, null, 5]));
}

#[tokio::test]
async fn a_burst_between_two_samples_is_the_greatest_rate_of_its_column() {
    let served = Served::new();
    let burst = |at: i64| at as f64 + if at > 30 { 1_000.0 } else { 0.0 };
    served.store("sent_total", &[("host", "a"), ("device", "x")], &seconds(60, burst));
    served.store("sent_total", &[("host", "a"), ("device", "y")], &seconds(60, |at| at as f64 * 2.0));
    let by_host = |function: &str| json!({"metric": "sent_total", "by": ["host"], "rate": true, "function": function});
    // Of a sum the least and greatest are added up, of an average those of all series.
    for (function, least, greatest) in [("sum", 3, 1_003), ("avg", 1, 1_001)] {
        let panel = panel(&served, 60, 6, by_host(function)).await;
        let line = &panel["series"][0];
        assert_eq!((&line["min"][3], &line["max"][3]), (&json!(least), &json!(greatest)), "{function} {panel}");
        assert_eq!(line["max"][4], json!(if function == "sum" { 3 } else { 2 }));
    }
}

#[tokio::test]
async fn eight_thousand_lines_are_folded_within_the_limits() {
    let served = Served::new();
    for host in 0..1_000 {
        for gpu in 0..8 {
            let value = move |at: i64| f64::from(host * 8 + gpu) + (at % 7) as f64;
            let samples: Vec<(i64, Value)> = (0..6).map(|at| (START + at * 60, Value::Float(value(at)))).collect();
            served.store("gpu_percent", &[("host", &format!("n{host}")), ("gpu", &gpu.to_string())], &samples);
        }
    }
    let question = json!({"metric": "gpu_percent", "by": ["host", "gpu"], "top": {"count": 1, "order": "max"}});
    let panel = panel(&served, 360, 24, question).await;
    assert_eq!((&panel["lines"], &panel["others"]["count"]), (&json!(8_000), &json!(7_999)), "{panel}");
    assert_eq!(panel["series"][0]["tags"], json!({"host": "n999", "gpu": "7"}));
    assert_eq!(panel["series"][0]["avg"][4], json!(8_000));
    assert_eq!(panel["series"][0]["stats"]["max"], json!(8_004.0));
}

#[tokio::test]
async fn a_sum_is_that_of_its_series() {
    let served = Served::new();
    for (gpu, watts) in [("0", 100.0), ("1", 250.0)] {
        served.store("watts", &[("host", "a"), ("gpu", gpu)], &seconds(40, |at| watts + (at % 10) as f64));
    }
    let panel = panel(&served, 40, 4, json!({"metric": "watts", "by": ["host"], "function": "sum"})).await;
    let line = &panel["series"][0];
    assert_eq!(line["avg"], json!([359, 359, 359, 359]));
    assert_eq!((&line["min"], &line["max"]), (&json!([350, 350, 350, 350]), &json!([368, 368, 368, 368])));
}

/// Ten hosts, of which one is slow.
fn hosts() -> Served {
    let served = Served::new();
    for host in 0..10 {
        let value = move |at: i64| f64::from(host) / 10.0 + if host == 4 { 50.0 } else { 0.0 } + (at % 2) as f64;
        served.store("step_seconds", &[("host", &format!("n{host}"))], &seconds(100, value));
    }
    served
}

#[tokio::test]
async fn the_lines_farthest_from_the_median_come_and_an_envelope_of_the_others() {
    let served = hosts();
    let question = json!({"metric": "step_seconds", "by": ["host"], "top": {"count": 2, "order": "deviation"}});
    let panel = panel(&served, 100, 10, question).await;
    assert_eq!(panel["lines"], json!(10));
    let hosts: Vec<&Json> = panel["series"].as_array().unwrap().iter().map(|line| &line["tags"]["host"]).collect();
    assert_eq!(hosts[0], "n4");
    let others = &panel["others"];
    assert_eq!((&others["count"], &others["max"][0]), (&json!(8), &json!(1.9)));
    assert!(others["min"][0] == json!(0) || hosts[1] == "n0", "{others}");
}

#[tokio::test]
async fn lines_that_are_asked_for_by_name_come_in_that_order_and_a_delta_has_the_newest_columns_alone() {
    let served = hosts();
    let panel = json!({"metric": "step_seconds", "by": ["host"], "keep": [{"host": "n7"}, {"host": "n1"}]});
    let question = json!({
        "start": START_MS, "end": START_MS + 100_000, "columns": 10, "step": 10_000, "since": START_MS + 85_000,
        "panels": [panel],
    });
    let panel = ask(&served, &question).await.remove(0);
    assert_eq!((&panel["start"], &panel["columns"]), (&json!((START_MS + 80_000) as f64), &json!(2)));
    let hosts: Vec<&Json> = panel["series"].as_array().unwrap().iter().map(|line| &line["tags"]["host"]).collect();
    assert_eq!(hosts, ["n7", "n1"]);
    assert_eq!(panel["series"][0]["avg"], json!([1.2, 1.2]));
    assert_eq!(panel["others"]["count"], json!(8));
}

#[tokio::test]
async fn a_heat_map_has_a_byte_a_cell_and_the_straggler_is_its_first_row() {
    let served = hosts();
    served.store("step_seconds", &[("host", "late")], &[(START + 95, Value::Float(1.0))]);
    let panel = panel(&served, 100, 10, json!({"metric": "step_seconds", "by": ["host"], "matrix": true})).await;
    let rows = panel["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["tags"]["host"]), (11, &json!("n4")));
    let cells = STANDARD.decode(panel["cells"].as_str().unwrap()).unwrap();
    assert_eq!(cells.len(), 110);
    assert_eq!(&cells[..10], &[255; 10]);
    let late = rows.iter().position(|row| row["tags"]["host"] == "late").unwrap();
    assert_eq!(&cells[late * 10..][..9], &[0; 9]);
    assert_ne!(cells[late * 10 + 9], 0);
    assert_eq!(panel["scale"], json!({"lo": 0.5, "hi": 50.9}));
    assert!(panel.get("series").is_none());
}

#[tokio::test]
async fn filters_take_values_and_patterns_and_a_missing_tag_is_null() {
    let served = hosts();
    served.store("step_seconds", &[("rank", "0")], &seconds(100, |_| 7.0));
    let ask =
        |wanted: Json| panel(&served, 100, 10, json!({"metric": "step_seconds", "by": ["host"], "where": wanted}));
    assert_eq!(ask(json!({"host": ["n1", "n2", "nowhere"]})).await["lines"], json!(2));
    assert_eq!(ask(json!({"host": "n*"})).await["lines"], json!(10));
    assert_eq!(ask(json!({"host": "*"})).await["lines"], json!(10));
    let all = ask(json!({})).await;
    assert_eq!(all["lines"], json!(11));
    assert!(all["series"].as_array().unwrap().iter().any(|line| line["tags"] == json!({"host": null})), "{all}");
    for nothing in [json!({"host": ["nowhere"]}), json!({"nothing": "*"}), json!({"host": "x*"})] {
        let empty = ask(nothing).await;
        assert_eq!((&empty["lines"], &empty["series"]), (&json!(0), &json!([])));
        assert_eq!(empty["empty"], "no series of 'step_seconds' has these tags");
    }
}

#[tokio::test]
async fn a_rate_of_one_sample_says_what_it_lacks() {
    let served = Served::new();
    served.store("work_total", &[("host", "a")], &seconds(1, |_| 5.0));
    let panel = panel(&served, 100, 10, json!({"metric": "work_total", "rate": true, "function": "sum"})).await;
    assert_eq!(panel["empty"], "no series of 'work_total' has samples in two columns of this range, as a rate needs");
}

#[tokio::test]
async fn hostile_names_are_names() {
    let served = Served::new();
    let names = ["\"; DROP TABLE x; --", "it's", "<img src=x onerror=alert(1)>", "__proto__", "value", "samples"];
    for name in names {
        served.store(name, &[("value", "o'clock\"")], &seconds(20, |_| 2.0));
        for function in ["avg", "sum"] {
            let question =
                json!({"metric": name, "by": ["value"], "where": {"value": ["o'clock\""]}, "function": function});
            let panel = panel(&served, 20, 2, question).await;
            assert_eq!(panel["series"][0]["tags"], json!({"value": "o'clock\""}), "{name} {panel}");
            assert_eq!(panel["series"][0]["avg"], json!([2, 2]), "{name}");
        }
    }
}

#[tokio::test]
async fn a_panel_that_fails_is_an_answer_among_the_others() {
    let served = hosts();
    let question = json!({
        "start": START_MS, "end": START_MS + 100_000, "columns": 10,
        "panels": [
            {"metric": "step_seconds", "by": (0..17).map(|n| n.to_string()).collect::<Vec<_>>()},
            {"metric": "nothing"},
            {"metric": "step_seconds"},
        ],
    });
    let answers = ask(&served, &question).await;
    assert_eq!(answers[0], json!({"panel": 0, "error": {"code": 400, "message": "17 tags, 16 at most"}}));
    assert_eq!((&answers[1]["panel"], &answers[1]["empty"]), (&json!(1), &json!("no series of 'nothing' is there")));
    assert_eq!(answers[2]["lines"], json!(1));
}

#[tokio::test]
async fn a_question_that_is_none_is_refused_with_what_is_wrong() {
    let served = Served::new();
    for (question, wrong) in [
        (json!({"start": 0, "end": 1, "columns": 10, "panel": []}), "unknown field `panel`"),
        (json!({"start": 5, "end": 5, "columns": 10, "panels": []}), "end is 5, expected a time after start, 5"),
        (json!({"start": 0, "end": 1e300, "columns": 10, "panels": []}), "in the years 1 to 9999"),
        (json!({"start": 0, "end": 1, "columns": 0, "panels": []}), "columns is 0, expected 1 to 2000"),
        (json!({"start": 0, "end": 1, "columns": 2001, "panels": []}), "columns is 2001, expected 1 to 2000"),
        (json!({"start": 0, "end": 1e9, "columns": 10, "step": 1, "panels": []}), "2000 at most"),
        (json!({"start": 0, "end": 1, "columns": 10, "step": 0, "panels": []}), "the step is 0 ms"),
        (
            json!({"start": 0, "end": 1, "columns": 1, "panels": vec![json!({"metric": "x"}); 65]}),
            "65 panels, 64 at most",
        ),
        (json!({"start": 0, "end": 1, "columns": 1, "panels": [{"metric": "x", "function": "p99"}]}), "p99"),
    ] {
        let answer = served.post("/api/panels", question.to_string()).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(wrong), "{}", answer.text());
    }
}

#[tokio::test]
async fn panels_come_in_order_unless_whoever_asks_takes_them_as_they_are_ready() {
    let served = Served::new();
    let metrics: Vec<String> = (0..40).map(|number| format!("m{number}")).collect();
    for metric in &metrics {
        served.store(metric, &[("host", "a")], &seconds(60, |at| at as f64));
    }
    let panels: Vec<_> = metrics.iter().map(|metric| json!({"metric": metric, "by": ["host"]})).collect();
    let mut question = json!({"start": START_MS, "end": START_MS + 60_000, "columns": 10, "panels": panels});
    let ordered = ask(&served, &question).await;
    assert!((0..).zip(&ordered).all(|(place, panel)| panel["panel"] == json!(place)));
    question["as_ready"] = json!(true);
    let mut ready = ask(&served, &question).await;
    ready.sort_by_key(|panel| panel["panel"].as_u64());
    assert_eq!(ready, ordered);
}

#[test]
fn steps_are_round_and_as_short_as_the_columns_let_them_be() {
    for (span, columns, step) in [
        (1, 800, 1),
        (3_600_000, 400, 10_000),
        (3_600_000, 360, 10_000),
        (900_000, 800, 2_000),
        (i64::MAX / 4, 1, i64::MAX),
    ] {
        let found = round_step(span, columns);
        assert!(found == step || step == i64::MAX && found >= span, "{span} {columns}: {found}");
    }
}

#[test]
fn columns_cover_the_range_and_begin_at_multiples_of_their_step() {
    let at = |millis: i64| Timestamp::from_micros(millis * 1_000);
    let grid = PanelGrid::new(at(12_345), at(22_001), 1_000).unwrap();
    assert_eq!((grid.start, grid.end(), grid.columns), (at(12_000), at(23_000), 11));
    assert_eq!((grid.column(at(11_999)), grid.column(at(12_000)), grid.column(at(22_999))), (None, Some(0), Some(10)));
    assert_eq!(grid.column(at(23_000)), None);
    let late = grid.since(at(21_500));
    assert_eq!((late.start, late.end(), late.columns), (at(21_000), at(23_000), 2));
    assert_eq!(grid.since(at(0)), grid);
    assert_eq!(grid.since(at(99_000)).columns, 1);
}

fn line(name: &str, avg: &[f64]) -> PanelLine {
    let name = vec![Some(name.to_owned())];
    PanelLine { name, avg: avg.to_vec(), min: avg.to_vec(), max: avg.to_vec(), samples: 1 }
}

#[test]
fn lines_have_the_order_that_was_wished() {
    let nothing = f64::NAN;
    let lines = [
        line("n10", &[1.0, 9.0]),
        line("n9", &[2.0, 2.0]),
        line("n1", &[nothing, nothing]),
        line("n2", &[3.0, nothing]),
    ];
    let figures = choice::figures(&lines, 2);
    let ordered = |order| choice::chosen(&lines, &figures, &LineWish::First(4, order));
    assert_eq!(ordered(LineRanking::Name), [2, 3, 1, 0]);
    assert_eq!(ordered(LineRanking::Max), [0, 3, 1, 2]);
    assert_eq!(ordered(LineRanking::Last), [0, 3, 1, 2]);
    assert_eq!(ordered(LineRanking::Mean), [0, 3, 1, 2]);
    // The medians are 2 and 5.5.
    assert_eq!(ordered(LineRanking::Deviation), [0, 1, 3, 2]);
    assert!(figures[2].mean.is_nan() && figures[2].last.is_nan());
}
