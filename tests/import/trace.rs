//! Traces of Metric Proxy v2: every value at its time, under the names and tags that a live job has, and as much of a file
//! as is whole.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

use super::*;
use crate::process::Server;

const START_MS: u64 = 1_700_000_000_000;
/// The bytes of a trace, laid out as the original does.
#[derive(Clone, Default)]
struct TraceBytes(Vec<u8>);

fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
}

/// A structure of fields whose values are bytes already.
fn structure(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let count = u32::try_from(fields.len()).unwrap().to_le_bytes().to_vec();
    fields.iter().fold(count, |bytes, (name, value)| [bytes, text(name), value.clone()].concat())
}

fn float(number: f64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn int(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

enum Told {
    Counter(f64),
    Gauge(f64),
}

impl TraceBytes {
    /// A trace that begins a second after its job.
    fn of(id: &str, start_ms: u64) -> Self {
        let none = || text("");
        let desc = structure(&[
            ("jobid", text(id)),
            ("command", text("./app --fast")),
            ("size", 4_i32.to_le_bytes().to_vec()),
            ("nodelist", text("n7")),
            ("partition", none()),
            ("cluster", none()),
            ("run_dir", text("/")),
            ("start_time", int(start_ms)),
            ("end_time", int(0)),
        ]);
        Self::default().frame("Desc", &[("ts", float(start_ms as f64 / 1e3 + 1.0)), ("desc", desc)])
    }

    fn frame(mut self, kind: &str, fields: &[(&str, Vec<u8>)]) -> Self {
        let frame = [text(kind), structure(fields)].concat();
        self.0.extend(int(frame.len() as u64));
        self.0.extend(frame);
        self
    }

    fn named(self, id: u64, name: &str, doc: &str) -> Self {
        let metadata = structure(&[("id", int(id)), ("name", text(name)), ("doc", text(doc))]);
        self.frame("CounterMetadata", &[("ts", float(1.0)), ("metadata", metadata)])
    }

    /// What everything is so many seconds after `START_MS`.
    fn at(self, seconds: f64, values: &[(u64, Told)]) -> Self {
        let mut counters = u32::try_from(values.len()).unwrap().to_le_bytes().to_vec();
        for (id, value) in values {
            let (kind, fields) = match value {
                Told::Counter(value) => ("Counter", structure(&[("ts", int(5)), ("value", float(*value))])),
                Told::Gauge(value) => {
                    let twice = [("hits", float(2.0)), ("total", float(2.0 * value))];
                    let fields = [("min", float(0.0)), ("max", float(99.0))].into_iter().chain(twice);
                    ("Gauge", structure(&fields.collect::<Vec<_>>()))
                }
            };
            let value = [text(kind), fields].concat();
            counters.extend(structure(&[("id", int(*id)), ("value", value)]));
        }
        self.frame("Counters", &[("ts", float(START_MS as f64 / 1e3 + seconds)), ("counters", counters)])
    }

    fn save(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &self.0).unwrap();
    }
}

/// A job of five seconds with a counter, a gauge, and what its node was like.
fn app(id: &str) -> TraceBytes {
    use Told::{Counter, Gauge};
    TraceBytes::of(id, START_MS)
        .named(0, "hits{rank=\"0\",op=\"send\"}", "Number of calls")
        .at(2.0, &[(0, Counter(1.0))])
        .named(1, "load", "How busy")
        .named(2, "proxy_memory_used_bytes", "Total memory on the system in bytes")
        .at(3.0, &[(0, Counter(3.5)), (1, Gauge(0.25)), (2, Gauge(1e9))])
        .at(4.0, &[(0, Counter(3.5)), (1, Gauge(0.75)), (2, Gauge(1e9))])
        .at(5.5, &[(0, Counter(8.0)), (1, Gauge(0.75)), (2, Gauge(1e9))])
}

const VALUES: &str = "SELECT metric, tags['proxy.job'] AS job, tags['op'] AS op, tags['rank'] AS rank, host, \
                      round(date_part('epoch', ts) - 1700000000, 3) AS seconds, value FROM samples ORDER BY 1, 2, 6";

/// Rows of `VALUES` as text: metric, job, op, rank, host, time, value.
fn values(save: &Path) -> Vec<String> {
    let rows = sql(save, VALUES);
    let shown = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |row: &Json| {
        ["metric", "job", "op", "rank", "host", "seconds", "value"].map(|column| shown(&row[column])).join(" ")
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_trace_has_each_change_of_each_counter_under_the_names_and_tags_of_a_live_job() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("j1.trace"), dir.path().join("save"));
    app("j1").save(&file);
    let told = said(&import([&file], &save, &["--node", "n7"]));
    assert!(told.contains("j1.trace: job 'j1', 2023-11-14T22:13:20Z to 2023-11-14T22:13:25.500Z"), "{told}");
    assert!(told.contains("3 counters, 4 periods\n") && !told.contains("left out"), "{told}");
    let expected = [
        "hits j1 send 0 n7 2.0 1.0",
        "hits j1 send 0 n7 3.0 3.5",
        "hits j1 send 0 n7 5.5 8.0",
        "load j1 null null n7 3.0 0.25",
        "load j1 null null n7 4.0 0.75",
        "proxy_memory_used_bytes j1 null null n7 3.0 1000000000.0",
    ];
    assert_eq!(values(&save), expected);
    let metrics = sql(&save, "SELECT metric, type, help FROM metrics ORDER BY 1");
    assert_eq!(metrics[0], json!({"metric": "hits", "type": "counter", "help": "Number of calls"}));
    assert_eq!(metrics[1], json!({"metric": "load", "type": "gauge", "help": "How busy"}));
}

#[test]
fn the_run_of_a_trace_is_among_the_profiles_and_traces_of_a_proxy_and_in_no_sum() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("j1.trace"), dir.path().join("j1"));
    app("j1").save(&file);
    said(&import([&file], &save, &[]));
    let server = Server::replay([&save], &[]);
    let get = |path: &str| server.get(path).expect(200).json();
    let profile = get("/profiles/get?jobid=j1");
    let desc = &profile["desc"];
    assert_eq!((&desc["command"], &desc["size"], &desc["nodelist"]), (&json!("./app --fast"), &json!(4), &json!("n7")));
    assert_eq!((&desc["start_time"], &desc["end_time"]), (&json!(START_MS), &json!(START_MS + 5_500)));
    let hits = json!({"name": "hits{rank=\"0\",op=\"send\"}", "doc": "Number of calls",
        "ctype": {"Counter": {"ts": 0, "value": 8.0}}});
    let load = json!({"name": "load", "doc": "How busy",
        "ctype": {"Gauge": {"min": 0.0, "max": 99.0, "hits": 2.0, "total": 1.5}}});
    let counters = profile["counters"].as_array().unwrap();
    assert!(counters.contains(&hits) && counters.contains(&load), "{profile}");
    let plot = |name: &str| get(&format!("/trace/plot?jobid=j1&filter={name}"));
    let at = |seconds: f64, value: f64| json!([START_MS as f64 / 1e3 + seconds, value]);
    let expected = json!([at(2.0, 1.0), at(3.0, 3.5), at(4.0, 3.5), at(5.5, 8.0)]);
    assert_eq!(plot("hits%7Brank%3D%220%22%2Cop%3D%22send%22%7D"), expected);
    assert_eq!(plot("load"), json!([at(3.0, 0.25), at(4.0, 0.75), at(5.5, 0.75)]));
    assert_eq!(plot("proxy_memory_used_bytes").as_array().unwrap().len(), 3, "what the node was like then");
    let mut names: Vec<String> = serde_json::from_value(get("/trace/metrics?job=j1")).unwrap();
    names.sort();
    assert_eq!(names, ["hits{rank=\"0\",op=\"send\"}", "load", "proxy_memory_used_bytes"]);
    let of_main: Vec<String> = serde_json::from_value(get("/trace/metrics?job=main")).unwrap();
    assert!(!of_main.contains(&"load".to_owned()), "{of_main:?}");
}

#[test]
fn names_that_spell_one_series_or_none_are_apart_in_a_trace_as_in_a_live_job() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("j1.trace"), dir.path().join("j1"));
    let names = ["a{x=\"1\",y=\"2\"}", "a{y=\"2\",x=\"1\"}", "two\twords", "plain"];
    let mut trace = TraceBytes::of("j1", START_MS);
    for (id, name) in (1..).zip(names) {
        trace = trace.named(id, name, "d");
    }
    let told = |factor: f64| [1, 2, 3, 4].map(|id| (id, Told::Counter(id as f64 * factor)));
    trace.at(2.0, &told(1.0)).at(3.0, &told(10.0)).save(&file);
    let told = said(&import([&file], &save, &["--strict"]));
    assert!(told.contains("4 counters, 2 periods"), "{told}");
    let server = Server::replay([&save], &[]);
    let get = |path: &str| server.get(path).expect(200).json();
    for (id, name) in (1..).zip(names) {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let plotted = get(&format!("/trace/plot?jobid=j1&filter={encoded}"));
        let values: Vec<f64> = plotted.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap()).collect();
        assert_eq!(values, [f64::from(id), f64::from(id) * 10.0], "{name}");
    }
    let mut found: Vec<String> = serde_json::from_value(get("/trace/metrics?job=j1")).unwrap();
    found.sort();
    assert_eq!(found, ["a{x=\"1\",y=\"2\"}", "a{y=\"2\",x=\"1\"}", "plain", "two\twords"]);
}

#[test]
fn a_trace_that_was_cut_off_counts_up_to_its_last_whole_frame() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = app("j1").0;
    for (name, lost, samples, told) in [
        ("in-a-frame", 5, 5, "expected 333 bytes, found 328; the 7 frames before it count"),
        ("in-a-length", 329, 5, "expected 8 bytes, found 4; the 7 frames before it count"),
    ] {
        let (file, save) = (dir.path().join(name), dir.path().join(format!("{name}-save")));
        fs::write(&file, &bytes[..bytes.len() - lost]).unwrap();
        let output = said(&import([&file], &save, &[]));
        assert!(output.contains(&format!("{name}, record 8: the file is cut off in the frame at byte ")), "{output}");
        assert!(output.contains(told) && output.contains("left out: 1 broken record"), "{output}");
        assert_eq!(values(&save).len(), samples, "{output}");
        let strict = failure(&import([&file], &dir.path().join("strict"), &["--strict"]), 1);
        assert!(strict.contains("cut off"), "{strict}");
    }
}

#[test]
fn what_is_damaged_in_a_trace_is_named_and_costs_itself_only() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("hurt.trace"), dir.path().join("save"));
    let hostile = |trace: TraceBytes| TraceBytes([trace.0, vec![0xff; 64]].concat());
    let trace = app("j1")
        .frame("Counters", &[("ts", float(-1.0)), ("counters", vec![0; 4])])
        .frame("Gossip", &[])
        .named(1, "other", "")
        .named(9, &"n".repeat(1_601), "")
        .at(6.0, &[(0, Told::Gauge(1.0)), (1, Told::Gauge(f64::NAN)), (5, Told::Counter(1.0)), (9, Told::Counter(1.0))])
        .at(7.0, &[(0, Told::Gauge(1.0)), (1, Told::Gauge(4.0)), (5, Told::Counter(2.0)), (9, Told::Counter(2.0))]);
    hostile(trace).save(&file);
    let told = said(&import([&file], &save, &[]));
    for expected in [
        "hurt.trace, record 9: byte ",
        "expected a time since 1970, found -1\n",
        "hurt.trace, record 10: byte ",
        "expected Desc, CounterMetadata or Counters, found 'Gossip'\n",
        "record 11: counter 1 is 'load' already, and now 'other'\n",
        "record 12: the name of counter 9 has 1,601 bytes; expected at most 1,600\n",
        "record 13: hits{rank=\\\"0\\\",op=\\\"send\\\"} is a counter, and now a gauge\n",
        "record 13: load has no value\n",
        "record 13: counter 5 has a value, and no frame before it names it\n",
        "expected the length of a frame, at most 268,435,456 bytes, found 18,446,744,073,709,551,615",
        "left out: 2 values that are no numbers, 3 bad names, 3 broken records",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert_eq!(values(&save).len(), 7, "that of load in the last frame, too");
    // A length of a frame that no file can have takes no memory either.
    let (bomb, other) = (dir.path().join("bomb.trace"), dir.path().join("bomb"));
    fs::write(&bomb, [&(200_u64 << 20).to_le_bytes()[..], &text("Desc")].concat()).unwrap();
    let told = failure(&import([&bomb], &other, &[]), 1);
    assert!(told.contains("expected 209,715,208 bytes, found 16") && told.contains("no sample was found"), "{told}");
}

#[test]
fn a_directory_of_the_original_comes_in_one_go_and_a_run_with_both_files_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let (from, save) = (dir.path().join("proxyprofiles"), dir.path().join("save"));
    let traces = from.join("traces");
    app("both").save(&traces.join("both.trace"));
    app("main").save(&traces.join("main.trace"));
    app("Node: n7").save(&traces.join("Node: n7.trace"));
    // Another process of the job was the last to leave, and had begun half a second later.
    let profile = |id: &str, start: u64, value: f64| {
        let desc = json!({"jobid": id, "command": "./app --fast", "size": 4, "nodelist": "n7", "partition": "",
            "cluster": "", "run_dir": "/", "start_time": start, "end_time": start + 5_600});
        json!({"desc": desc, "counters": [{"name": "hits{rank=\"0\",op=\"send\"}", "doc": "Number of calls",
            "ctype": {"Counter": {"ts": 5, "value": value}}}]})
        .to_string()
    };
    let profiles = from.join("profiles");
    fs::create_dir(&profiles).unwrap();
    fs::write(profiles.join("both.profile"), profile("both", START_MS + 500, 9.0)).unwrap();
    fs::write(profiles.join("later.profile"), profile("later", START_MS + 90_000, 2.0)).unwrap();
    TraceBytes::of("later", START_MS)
        .named(0, "hits{rank=\"0\",op=\"send\"}", "")
        .at(2.0, &[(0, Told::Counter(1.0))])
        .save(&traces.join("later.trace"));
    let told = said(&import([&from], &save, &["--strict"]));
    assert!(told.contains("main.trace: left out: 'main' is no job, but a sum over jobs"), "{told}");
    assert!(told.contains("Node: n7.trace: left out: 'Node: n7' is no job"), "{told}");
    let again = "later.profile: another run of job 'later', from 2023-11-14T22:13:20Z to 2023-11-14T22:13:22Z, is in ";
    assert!(told.contains(again), "{told}");
    let hits: Vec<String> = values(&save).into_iter().filter(|row| row.starts_with("hits")).collect();
    let expected = [
        "hits both send 0 imported 2.0 1.0",
        "hits both send 0 imported 3.0 3.5",
        "hits both send 0 imported 5.5 8.0",
        "hits both send 0 imported 6.1 9.0",
        "hits later send 0 imported 2.0 1.0",
        "hits later send 0 imported 95.6 2.0",
    ];
    assert_eq!(hits, expected);
    // SQL knows each run as it knows jobs that are live.
    let of_jobs = sql(&save, "SELECT job, count(*) AS samples FROM samples GROUP BY job ORDER BY job");
    let samples = |job: &str, samples: u64| json!({"job": job, "samples": samples});
    assert_eq!(of_jobs, json!([samples("both", 7), samples("later", 1), samples("later-2", 1)]));
    let jobs = "SELECT job, date_part('epoch', \"begin\") - 1700000000 AS began, \
                date_part('epoch', \"end\") - 1700000000 AS ended, state, command FROM jobs \
                WHERE job <> 'save' ORDER BY job";
    let ran = |job: &str, began: f64, ended: f64| json!({"job": job, "began": began, "ended": ended, "state": "ended", "command": "./app --fast"});
    let rounded = sql(&save, &format!("SELECT * EXCLUDE (ended), round(ended, 3) AS ended FROM ({jobs}) ORDER BY job"));
    let expected = json!([ran("both", 0.0, 6.1), ran("later", 0.0, 2.0), ran("later-2", 90.0, 95.6)]);
    assert_eq!(rounded, expected);
    let server = Server::replay([&save], &[]);
    let runs = server.get("/profiles?runs=all").expect(200).json();
    let told: Vec<(&str, u64, u64)> = runs
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            let ms = |name: &str| run[name].as_u64().unwrap() - START_MS;
            (run["jobid"].as_str().unwrap(), ms("start_time"), ms("end_time"))
        })
        .collect();
    let mut told = told;
    told.sort_unstable();
    assert_eq!(told, [("both", 0, 6_100), ("later", 0, 2_000), ("later", 90_000, 95_600)]);
    let plot =
        server.get("/trace/plot?jobid=both&filter=hits%7Brank%3D%220%22%2Cop%3D%22send%22%7D").expect(200).json();
    assert_eq!(plot.as_array().unwrap().last().unwrap()[1], 9.0, "{plot}");
}

#[test]
fn two_traces_of_one_time_of_a_job_are_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one.trace"), dir.path().join("other.trace"));
    app("j1").save(&one);
    app("j1").save(&other);
    let save = dir.path().join("save");
    let told = said(&import([&one, &other], &save, &[]));
    assert!(
        told.contains("other.trace, record 3: ") && told.contains("one.trace has values of job 'j1' at "),
        "{told}"
    );
    assert!(told.contains("--node") && told.contains("left out: 1 broken record"), "{told}");
    assert_eq!(values(&save).len(), 6);
    assert!(failure(&import([&one, &other], &dir.path().join("strict"), &["--strict"]), 1).contains("already"));
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/proxy/trace").join(name)
}

/// When `sleeper` had taken its steps, by the original's `/trace/plot` of 4242: milliseconds since 1970.
const STEPS: [(u64, f64); 10] = [
    (1_795_764_558_819, 1.0),
    (1_795_764_559_822, 3.0),
    (1_795_764_560_827, 6.0),
    (1_795_764_561_835, 10.0),
    (1_795_764_562_837, 15.0),
    (1_795_764_563_841, 21.0),
    (1_795_764_564_842, 28.0),
    (1_795_764_565_852, 36.0),
    (1_795_764_566_859, 45.0),
    (1_795_764_567_868, 55.0),
];

#[test]
fn traces_that_the_original_wrote_have_the_values_that_it_tells_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let save = dir.path().join("whole");
    let told = said(&import([recorded("4242.trace.gz")], &save, &["--strict"]));
    assert!(told.contains("4242.trace.gz: job '4242', ") && told.contains("\n100 samples of "), "{told}");
    let of = |save: &Path, metric: &str| {
        let text = format!("SELECT round(date_part('epoch', ts) * 1000) AS ms, value FROM {metric} ORDER BY ts");
        sql(save, &text)
    };
    let rows = |points: Vec<(u64, f64)>| {
        Json::from_iter(points.into_iter().map(|(ms, value)| json!({"ms": ms as f64, "value": value})))
    };
    assert_eq!(of(&save, "steps"), rows(STEPS.to_vec()));
    let depths = STEPS.iter().zip(1..).map(|((ms, _), step)| (*ms, f64::from(step) / 2.0));
    assert_eq!(of(&save, "depth"), rows(depths.collect()));
    let replay = Server::replay([&save], &[]);
    let plot = replay.get("/trace/plot?jobid=4242&filter=steps%7Brank%3D%220%22%7D").expect(200).json();
    let firsts = |points: &Json| points.as_array().unwrap().iter().map(|point| point[1].clone()).collect::<Vec<_>>();
    assert_eq!(firsts(&plot).last(), Some(&json!(55.0)), "{plot}");
    let mut names: Vec<String> =
        serde_json::from_value(replay.get("/trace/metrics?job=4242").expect(200).json()).unwrap();
    names.retain(|name| name.starts_with("proxy_cpu_usage_percent{"));
    assert_eq!(names.len(), 2, "what its node was like: {names:?}");
    // Of four periods one was made.
    let halved = dir.path().join("halved");
    let told = said(&import([recorded("4243.trace.gz")], &halved, &["--strict"]));
    assert!(told.contains(" 262 periods") && told.contains("\n1,445 samples of "), "{told}");
    assert_eq!(
        of(&halved, "steps").as_array().unwrap().iter().map(|row| &row["value"]).next_back(),
        Some(&json!(210.0))
    );
}

#[test]
fn a_trace_and_a_profile_that_the_original_wrote_of_one_run_are_one_run_with_that_profile() {
    let dir = tempfile::tempdir().unwrap();
    let save = dir.path().join("both");
    let told = said(&import([recorded("4242.profile.gz"), recorded("4242.trace.gz")], &save, &["--strict"]));
    assert!(!told.contains("another run"), "{told}");
    let mut text = Vec::new();
    let packed = fs::read(recorded("4242.profile.gz")).unwrap();
    flate2::read::GzDecoder::new(&*packed).read_to_end(&mut text).unwrap();
    let expected: Json = serde_json::from_slice(&text).unwrap();
    let replay = Server::replay([&save], &[]);
    assert_eq!(replay.get("/profiles?runs=all").expect(200).json(), json!([expected["desc"]]));
    let profile = replay.get("/profiles/get?jobid=4242").expect(200).json();
    let values = |profile: &Json| {
        let counters = profile["counters"].as_array().unwrap().iter().filter(|counter| counter["name"] != "walltime");
        let value = |counter: &Json| (counter["name"].to_string(), without_times(&counter["ctype"]).to_string());
        counters.map(value).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(values(&profile), values(&expected));
    assert_eq!(values(&profile).len(), 21);
}

/// A value without the time of a counter, which means nothing.
fn without_times(value: &Json) -> Json {
    let mut value = value.clone();
    if let Some(counter) = value.get_mut("Counter") {
        counter["ts"] = Json::Null;
    }
    value
}
