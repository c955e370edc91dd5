//! `telem diff` over saved runs: what was changed on purpose comes first, whatever else differs.

use serde_json::{Value as Json, json};

use crate::process::{Server, telem};
use crate::run::Place;

/// Logs a loss that depends on the learning rate, and what does not, by step.
const TRAIN: &str = r#"
import json, os, socket, sys, time
path = os.environ["TELEM_SOCKET"]
def put(samples):
    body = json.dumps(samples)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        head = f"POST /api/put HTTP/1.1\r\nHost: telem\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        server.sendall((head + body).encode())
        assert b" 204 " in server.recv(4096).split(b"\r\n")[0]
lr = float(sys.argv[1])
for step in range(30):
    now = int(time.time() * 1000)
    samples = []
    for rank in range(2):
        tags = {"rank": str(rank)}
        values = {"loss": lr * 10 / (step + 1) + rank / 100, "batch_size": 64, "step": step}
        samples += [{"metric": name, "timestamp": now, "value": value, "tags": tags} for name, value in values.items()]
    put(samples)
    time.sleep(0.02)
"#;

fn train(place: &Place, save: &str, lr: &str, options: &[&str]) {
    std::fs::write(place.path().join("train.py"), TRAIN).unwrap();
    let setting = format!("lr={lr}");
    let base = ["--interval", "100ms", "--save", save, "--config", &setting, "--config", "depth=3"];
    let options: Vec<&str> = base.iter().chain(options).copied().collect();
    let ended = place.output(&options, &["python3", "train.py", lr]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Its exit code, and what it printed.
fn diff(place: &Place, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = telem(["diff"].iter().chain(words));
    place.at_home(&mut command);
    let done = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn answer(place: &Place, words: &[&str]) -> String {
    let (code, text, said) = diff(place, words);
    assert_eq!(code, Some(0), "{words:?}: {said}");
    text
}

fn answer_json(place: &Place, words: &[&str]) -> Json {
    let words: Vec<&str> = words.iter().chain(&["--json"]).copied().collect();
    serde_json::from_str(&answer(place, &words)).unwrap()
}

#[test]
fn the_setting_and_the_metric_that_were_changed_on_purpose_come_first() {
    let place = Place::new();
    train(&place, "a", "0.1", &["--level", "2"]);
    train(&place, "b", "0.5", &["--level", "2"]);

    let found = answer_json(&place, &["a", "b", "--until", "loss<=0.3"]);
    assert_eq!(found["description"][0], json!({"what": "lr", "values": ["0.1", "0.5"]}), "{found}");
    assert!(found["description"].as_array().unwrap().iter().all(|one| one["what"] != "depth"));
    let first = &found["metrics"][0];
    assert_eq!((&first["metric"], &first["sender"]), (&json!("loss"), &json!("program")), "{found}");
    assert!(found["metrics"].as_array().unwrap().len() > 20, "hardware is compared too");
    let mean = |lr: f64| (1..=30).map(|n| lr * 10.0 / f64::from(n)).sum::<f64>() / 30.0 + 0.005;
    for (figures, lr) in first["figures"].as_array().unwrap().iter().zip([0.1, 0.5]) {
        assert!((figures["mean"].as_f64().unwrap() - mean(lr)).abs() < 1e-9, "{figures}");
        assert!((figures["max"].as_f64().unwrap() - lr * 10.0 - 0.01).abs() < 1e-9, "{figures}");
        assert!((figures["last"].as_f64().unwrap() - lr * 10.0 / 30.0 - 0.005).abs() < 1e-9, "{figures}");
        assert_eq!((&figures["samples"], &figures["series"]), (&json!(60), &json!(2)));
    }
    // Two ranks each: so far apart that chance does not explain it.
    assert!(first["changes"][0]["significance"]["p"].as_f64().unwrap() < 0.001, "{first}");
    let reached: Vec<i64> = [0, 1].map(|at| found["until"][0]["reached"][at]["step"].as_i64().unwrap()).to_vec();
    assert_eq!(reached, [3, 16]);

    let table = answer(&place, &["a", "b", "--top", "3"]);
    let lines: Vec<&str> = table.lines().collect();
    let after = |start: &str| lines[lines.iter().position(|line| line.starts_with(start)).unwrap() + 1];
    assert!(after("differs").starts_with("lr ") && after("metric").starts_with("loss "), "{table}");
    assert!(table.contains("***") && table.contains("3 of "), "{table}");

    let by_step = answer_json(&place, &["b", "a", "--by", "step", "--metric", "*"]);
    let change = &by_step["metrics"][0]["changes"][0];
    assert_eq!((&by_step["metrics"][0]["metric"], &change["compared"]), (&json!("loss"), &json!(30)), "{by_step}");
    assert!((change["difference"].as_f64().unwrap() - (mean(0.1) - mean(0.5))).abs() < 1e-9, "{change}");
    assert_eq!(answer_json(&place, &["a", "a"])["description"], json!([]));
}

#[test]
fn a_page_needs_nothing_from_elsewhere_and_draws_every_run() {
    let place = Place::new();
    train(&place, "a", "0.1", &["--level", "1"]);
    train(&place, "b", "0.5", &["--level", "1"]);
    answer(&place, &["a", "b", "a", "--html", "diff.html"]);
    let page = std::fs::read_to_string(place.path().join("diff.html")).unwrap();
    for absent in ["src=", "href=", "<script", "url(", "@import"] {
        assert!(!page.contains(absent), "{absent}: {page}");
    }
    let loss = page.split("<figcaption>").find(|part| part.starts_with("loss<")).unwrap();
    assert_eq!(loss.matches("<polyline").count(), 3, "{loss}");
}

#[test]
fn runs_of_one_and_of_three_nodes_and_a_server_compare() {
    let place = Place::new();
    train(&place, "one", "0.1", &["--level", "2"]);
    train(&place, "three", "0.1", &["--level", "2", "--local", "2"]);
    let found = answer_json(&place, &["one", "three"]);
    let facts = found["description"].as_array().unwrap();
    let nodes = facts.iter().find(|one| one["what"] == "nodes").unwrap();
    assert_eq!(nodes["values"], json!(["1", "3"]), "{found}");
    let metric = |name: &str| {
        let all = found["metrics"].as_array().unwrap();
        all.iter().find(|one| one["metric"] == name).unwrap_or_else(|| panic!("{name}: {found}")).clone()
    };
    let load = metric("node_load1");
    let series = [0, 1].map(|at| load["figures"][at]["series"].as_u64().unwrap());
    // An agent may have come too late for a tick of its own.
    assert!(series[0] == 1 && (2..=3).contains(&series[1]), "{load}");
    // Both have the same values; where their samples fall among the stretches of time rounds their means.
    let relative = metric("loss")["changes"][0]["relative"].as_f64().unwrap();
    assert!(relative.abs() < 1e-12, "{relative}");
    assert_eq!(metric("node_context_switches_total")["measured"], json!("rate"));

    let replay = Server::replay([place.path().join("three")], &[]);
    let url = format!("http://{}", replay.address);
    let live = answer_json(&place, &["one", &url, "--metric", "loss"]);
    assert_eq!(live["metrics"][0]["figures"], metric("loss")["figures"], "{live}");
}

#[test]
fn energy_is_that_of_powers_and_of_joules() {
    let place = Place::new();
    for (name, watts) in [("a", 100), ("b", 300)] {
        let data = place.path().join(name);
        let server = Server::serve(&data, &[]);
        let sample = |metric: &str, second: i64, value: i64| json!({"metric": metric, "timestamp": 1_767_225_600 + second, "value": value, "tags": {"host": "n1"}});
        let samples: Vec<Json> = (0..=10)
            .flat_map(|second| {
                [sample("gpu_power_watts", second, watts), sample("cpu_joules_total", second, second * watts)]
            })
            .collect();
        server.post("/api/put", &Json::from(samples)).expect(204);
    }
    let found = answer_json(&place, &["a", "b"]);
    let expected = json!([
        {"metric": "cpu_joules_total", "joules": [1000.0, 3000.0]},
        {"metric": "gpu_power_watts", "joules": [1000.0, 3000.0]},
    ]);
    assert_eq!(found["energy"], expected, "{found}");
    assert_eq!(found["metrics"][0]["changes"][0]["relative"], json!(2.0));
}

#[test]
fn a_run_that_cannot_be_read_is_named_with_what_to_do() {
    let place = Place::new();
    train(&place, "a", "0.1", &["--level", "1"]);
    let (code, text, said) = diff(&place, &["a", "nowhere"]);
    assert_eq!((code, &*text), (Some(1), ""));
    assert!(said.contains("'nowhere'") && said.contains("telem ls") && said.lines().count() == 1, "{said}");
    for (words, expected) in [
        (&["a", "a", "--until", "los<=1"][..], "no run has a metric 'los'"),
        (&["a", "a", "--metric", "los"], "no run has a metric of such a name"),
    ] {
        let (code, _, said) = diff(&place, words);
        assert!(code == Some(1) && said.contains(expected), "{said}");
    }
    assert_eq!(diff(&place, &["a"]).0, Some(2), "two runs at least");
    assert_eq!(diff(&place, &["a", "a", "--until", "loss"]).0, Some(2));
}
