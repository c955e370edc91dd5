//! `telem import` as a process: what comes back of what was exported, what is made of other tables, and what is said of
//! files that cannot be read.
//!
//! `tests/py/test_import.py` imports what the real packages write.

mod dragon;
mod trace;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value as Json, json};
use telem_engine::{Db, Durability, Options, SampleBatch, SeriesKey, TagSet, Timestamp, Value};

use crate::process::{Server, poll, telem};

/// Imports `from` into `save`.
fn import<P: AsRef<Path>>(from: impl IntoIterator<Item = P>, save: &Path, more: &[&str]) -> Output {
    let mut command = telem(["import"]);
    for file in from {
        command.arg(file.as_ref());
    }
    command.arg("--save").arg(save).args(more).output().unwrap()
}

/// What it says on stderr; it must have worked.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.is_empty(), "{said}");
    said
}

/// Why it failed.
fn failure(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The rows of a query, as JSON.
fn sql(dir: &Path, query: &str) -> Json {
    let done = telem(["sql", dir.to_str().unwrap(), query, "--format", "json"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Every sample, as `telem export` writes it.
fn exported(dir: &Path) -> String {
    let done = telem(["export", dir.to_str().unwrap(), "-o", "-", "--format", "csv", "-q"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Two nodes with every kind of value, name and time.
fn job(dir: &Path) {
    for node in ["n1", "n2"] {
        let db = Db::open(&dir.join(node), Options { node: node.to_owned(), ..Options::default() }).unwrap();
        let mut batch = SampleBatch::default();
        let key = |metric: &str, tags: &[(&str, &str)]| {
            let own = [("host", node)];
            SeriesKey::new(metric, TagSet::new(own.iter().chain(tags).copied()).unwrap()).unwrap()
        };
        let values = [
            Value::Int(i64::MAX),
            Value::Int(i64::MIN),
            Value::Float(0.1 + 0.2),
            Value::Float(-0.0),
            Value::Float(f64::NAN),
            Value::Float(f64::NEG_INFINITY),
            Value::Float(5e-324),
            Value::Float(1e300),
            Value::Float(3.0),
        ];
        for (metric, tags) in [
            ("loss", &[][..]),
            ("größe/用量", &[("node", "a, \"quoted\"\u{2028}one"), ("TAG_value", "x")]),
            ("with space", &[("tag_ts", "1"), ("rank", "007")]),
        ] {
            let series = db.series(&key(metric, tags)).unwrap();
            for (at, value) in values.iter().enumerate() {
                let micros = -5_000_000_000_001 + i64::try_from(at).unwrap() * 1_000_001 * 3_600;
                batch.push(series, Timestamp::from_micros(micros), *value);
            }
        }
        db.append(&batch, Durability::Buffered).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn an_export_comes_back_sample_for_sample_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    job(&at("job"));
    let before = exported(&at("job"));
    assert_eq!(before.lines().count(), 55);
    for out in ["all.csv", "all.parquet", "all.arrow", "all.arrows", "each/"] {
        let file = format!("{}/{out}", dir.path().display());
        let done = telem(["export", at("job").to_str().unwrap(), "-o", &file]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let save = at(&format!("back-{}", out.trim_end_matches('/')));
        let said = said(&import([&file], &save, &[]));
        assert!(
            said.contains("an export of telem") && said.contains("54 samples of 3 metrics and 6 series on 2 nodes")
        );
        assert_eq!(exported(&save), before, "{out}");
        assert_eq!(names(&save), ["n1", "n2"]);
    }
    // Gzipped, from a pipe, and twice at once.
    let gz = at("all.csv.gz");
    let mut packed = flate2(&gz);
    packed.write_all(before.as_bytes()).unwrap();
    packed.finish().unwrap();
    said(&import([&gz, &at("all.csv")], &at("gz"), &[]));
    assert_eq!(exported(&at("gz")), before);
    let some = import([&gz], &at("some"), &["--metrics", "lo*"]);
    assert!(said(&some).contains("18 samples of 1 metric"));
}

fn flate2(path: &Path) -> flate2::write::GzEncoder<fs::File> {
    flate2::write::GzEncoder::new(fs::File::create(path).unwrap(), flate2::Compression::fast())
}

#[test]
fn a_wide_table_has_a_metric_a_column() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("train.csv"), dir.path().join("runs/a"));
    let text = "ts,step,loss,gpu util,phase,rank,note\n\
                1767225600.25,0,0.5,97,warm,0,\n\
                1767225601.25,1,0.25,,train,0,\n\
                1767225602.25,2,NaN,98,train,0,\n";
    fs::write(&file, text).unwrap();
    let done = import([&file], &save, &["--name", "trial", "--config", "lr=3e-4", "--tag", "sweep=7"]);
    let said = said(&done);
    assert!(said.contains("time ts; metrics step, loss, gpu_util, note; tags phase, rank"), "{said}");
    assert!(said.contains("metric 'gpu util' becomes gpu_util"), "{said}");
    assert!(said.contains("times in ts are seconds since 1970, by their size; see --time-unit"), "{said}");
    assert!(said.contains("\n8 samples of 3 metrics and 6 series, "), "{said}");
    let lines: Vec<String> = exported(&save).lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "metric,host,node,phase,rank,ts,value,value_int",
            "gpu_util,,imported,train,0,2026-01-01T00:00:02.250000Z,98.0,98",
            "gpu_util,,imported,warm,0,2026-01-01T00:00:00.250000Z,97.0,97",
            "loss,,imported,train,0,2026-01-01T00:00:01.250000Z,0.25,",
            "loss,,imported,train,0,2026-01-01T00:00:02.250000Z,NaN,",
            "loss,,imported,warm,0,2026-01-01T00:00:00.250000Z,0.5,",
            "step,,imported,train,0,2026-01-01T00:00:01.250000Z,1.0,1",
            "step,,imported,train,0,2026-01-01T00:00:02.250000Z,2.0,2",
            "step,,imported,warm,0,2026-01-01T00:00:00.250000Z,0.0,0",
        ]
    );
    // As any other run.
    let listed = telem(["ls", dir.path().to_str().unwrap(), "--json"]).output().unwrap();
    let listed: Json = serde_json::from_slice(&listed.stdout).unwrap();
    let run = &listed.as_array().unwrap_or_else(|| panic!("{listed}"))[0];
    assert_eq!((&run["name"], &run["state"], &run["job"]), (&json!("trial"), &json!("ended"), &json!("a")));
    assert_eq!((&run["settings"], &run["tags"]), (&json!({"lr": 3e-4}), &json!({"sweep": "7"})));
    assert_eq!((&run["duration_us"], &run["samples"]), (&json!(2_000_000), &json!(8)));
    assert_eq!(run["command"][1], "import");
    let rows = sql(&save, "SELECT job, settings['lr'] AS lr, \"end\" FROM jobs");
    assert_eq!((&rows[0]["job"], &rows[0]["lr"]), (&json!("a"), &json!("0.0003")), "{rows}");
    let check = telem(["check", save.to_str().unwrap()]).output().unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[test]
fn columns_are_chosen_by_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("t.tsv"), dir.path().join("a"));
    let text = "when\tname\tvalue\tgpu\tunit\n\
                2026-01-01 00:00:00\tloss\t0.5\t0\tnats\n\
                2026-01-01T00:00:00.5+01:00\tlr rate\t1\t1\tnone\n\
                2026-01-01\tloss\t7\t1\tnats\n";
    fs::write(&file, text).unwrap();
    let said_of = |done: Output| said(&done);
    let said = said_of(import([&file], &save, &["--metric", "name", "--value", "value", "--tags", "gpu"]));
    assert!(said.contains("time when; a row a sample; tags gpu; left out unit"), "{said}");
    let rows = sql(&save, "SELECT metric, ts, value, value_int FROM samples ORDER BY metric, ts, value");
    assert_eq!(
        rows,
        json!([
            {"metric": "loss", "ts": "2026-01-01T00:00:00Z", "value": 0.5, "value_int": null},
            {"metric": "loss", "ts": "2026-01-01T00:00:00Z", "value": 7.0, "value_int": 7},
            {"metric": "lr_rate", "ts": "2025-12-31T23:00:00.500Z", "value": 1.0, "value_int": 1},
        ])
    );
    let said = said_of(import([&file], &dir.path().join("b"), &["--metric", "all", "--tags", "", "--node", "n7"]));
    assert!(said.contains("time when; metric all; tags none; left out name, gpu, unit"), "{said}");
    assert!(said.contains("1 sample replaced by a later one of the same series and time"), "{said}");
    assert_eq!(names(&dir.path().join("b")), ["n7"]);
    let said = said_of(import([&file], &dir.path().join("c"), &["--time", "when", "--metrics", "g*"]));
    assert!(said.contains("time when; metrics gpu; tags name, unit; left out value"), "{said}");
}

#[test]
fn units_of_time_are_told_by_their_size_or_by_the_user() {
    let dir = tempfile::tempdir().unwrap();
    for (at, (time, unit, micros)) in [
        ("1767225600", None, 1_767_225_600_000_000_i64),
        ("1767225600.1234567", None, 1_767_225_600_123_456),
        ("1767225600123", None, 1_767_225_600_123_000),
        ("1767225600123456", None, 1_767_225_600_123_456),
        ("1767225600123456789", None, 1_767_225_600_123_456),
        ("1.7672256e9", None, 1_767_225_600_000_000),
        ("-1.5", None, -1_500_000),
        ("12", Some("ms"), 12_000),
        ("12.0625", Some("ms"), 12_062),
        ("-1", Some("ns"), -1),
    ]
    .into_iter()
    .enumerate()
    {
        let (file, save) = (dir.path().join(format!("{at}.csv")), dir.path().join(format!("{at}")));
        fs::write(&file, format!("time,x\n{time},1\n")).unwrap();
        let unit = unit.map_or(vec![], |unit| vec!["--time-unit", unit]);
        said(&import([&file], &save, &unit));
        let rows = sql(&save, "SELECT CAST(ts AS BIGINT) AS us FROM x");
        assert_eq!(rows[0]["us"], json!(micros), "{time}");
    }
}

#[test]
fn json_lines_have_a_metric_a_number() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("log.jsonl"), dir.path().join("a"));
    let text = concat!(
        "{\"time\": 1767225600.5, \"step\": 1, \"train\": {\"loss\": 0.1, \"acc\": {\"top1\": 3}}, \"split\": \"a\"}\n",
        "\n",
        "{\"time\": 1767225601.5, \"step\": 2, \"train\": {\"loss\": NaN}, \"split\": \"NaN {\\\" b\", \"list\": [1]}\n",
        "{\"time\": 1767225602.5, \"big\": 18446744073709551615, \"late\": 1e-7, \"ok\": true, \"split\": \"a\"}\n",
        "{\"time\": 1767225603.5, \"step\"",
    );
    fs::write(&file, text).unwrap();
    let said = said(&import([&file], &save, &[]));
    assert!(said.contains("time time; metrics step, train.loss, train.acc.top1, big, late, ok; tags split"), "{said}");
    assert!(said.contains("log.jsonl:4: big is an integer beyond 64 bits"), "{said}");
    assert!(said.contains("log.jsonl:5: the line is no JSON object: EOF"), "{said}");
    assert!(said.contains("left out: 1 row that is not of the table, 1 value that is no number"), "{said}");
    let lines = exported(&save);
    for line in [
        "late,,imported,a,2026-01-01T00:00:02.500000Z,1e-7,",
        "ok,,imported,a,2026-01-01T00:00:02.500000Z,1.0,1",
        "train.acc.top1,,imported,a,2026-01-01T00:00:00.500000Z,3.0,3",
        "train.loss,,imported,\"NaN {\"\" b\",2026-01-01T00:00:01.500000Z,NaN,",
    ] {
        assert!(lines.lines().any(|found| found == line), "{line}\n{lines}");
    }
    assert_eq!(lines.lines().count(), 1 + 7);
}

#[test]
fn rows_that_cannot_be_taken_are_named_with_their_reason_and_the_others_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("bad.csv"), dir.path().join("a"));
    let mut text = "ts,loss,lr\n".to_owned();
    text.extend((0..20).map(|second| format!("{second},0.5,1\n")));
    text.push_str(
        "20,oops,1\nyesterday,1,1\n21,1\n22,1,1,1\n99999999999999999999,1,1\n23,99999999999999999999,2\n24,1",
    );
    fs::write(&file, &text).unwrap();
    let said = said(&import([&file], &save, &[]));
    for line in [
        ":22: loss is 'oops', no number",
        ":23: 'yesterday' is not a time",
        ":24: the row has 2 fields, and the header 3",
        ":25: the row has 4 fields, and the header 3",
        ":26: the time lies beyond",
        ":27: loss is 99999999999999999999, an integer beyond 64 bits",
        ":28: the row has 2 fields",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(
        said.contains("3 rows that are not of the table, 2 rows without a good time, 2 values that are no numbers")
    );
    let strict = import([&file], &dir.path().join("b"), &["--strict"]);
    assert!(failure(&strict, 1).contains(":22: loss is 'oops', no number (--strict)"));
    assert_eq!(names(dir.path()), ["a", "bad.csv"]);
}

#[test]
fn what_cannot_be_imported_is_told_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut long = b"ts,x\n1,\"".to_vec();
    long.resize(20 << 20, b'a');
    let good = file("good.csv", b"ts,x\n1,2\n");
    let mut messages: String = "ts,x,message\n".to_owned();
    messages.extend((0..10_001).map(|at| format!("{at},1,happened {at}\n")));
    let cases: Vec<(std::path::PathBuf, &[&str], i32, &str)> = vec![
        (file("empty.csv", b""), &[], 1, "empty.csv: the file is empty"),
        (file("header.csv", b"ts,x\n"), &[], 1, "no sample was found, so nothing was saved"),
        (
            file("no-time.csv", b"a,b\n1,2\n"),
            &[],
            1,
            "no column is known to be the time: name it with --time; there are a, b",
        ),
        (file("twice.csv", b"ts,x,x\n1,2,3\n"), &[], 1, "two columns are called 'x'"),
        (file("quote.csv", &long), &[], 1, "a row is longer than 16777216 bytes; is a quote left open?"),
        (file("messages.csv", messages.as_bytes()), &[], 1, "column 'message' has more than 10000 different texts"),
        (good.clone(), &["--time", "when"], 1, "there is no column 'when'; there are ts, x"),
        (good.clone(), &["--tags", "rank"], 1, "there is no column 'rank'"),
        (good.clone(), &["--metric", "m"], 1, "no column has the values: name it with --value"),
        (good.clone(), &["--time-unit", "h"], 2, "invalid value 'h'"),
        (good.clone(), &["--tag", "sweep"], 2, "'sweep' is no tag"),
        (good.clone(), &["--node", "a/b"], 1, "no sample was found"),
        (file("cut.parquet", b"PAR1abc"), &[], 1, "cannot read"),
        (file("rot.parquet", &[b"PAR1".as_slice(), &[7; 64], b"\x40\0\0\0PAR1"].concat()), &[], 1, "cannot read"),
        (file("cut.arrow", b"ARROW1\0\0abc"), &[], 1, "cannot read"),
        (file("array.json", b"[{\"ts\": 1}]"), &[], 1, "is one JSON array"),
        (file("text.json", b"{oops\n"), &[], 1, "no line is an object with fields; line 1"),
        (file("zeros", &[b'x', 0, 0]), &[], 1, "none of the formats"),
        (dir.path().join("nowhere.csv"), &[], 1, "nowhere.csv: No such file"),
        (dir.path().to_path_buf(), &[], 1, "without files of telem export, TensorBoard, wandb, Dragon or Metric Proxy"),
        ("-".into(), &[], 2, "stdin does not tell its format"),
    ];
    let before = names(dir.path());
    for (path, more, code, expected) in cases {
        let told = failure(&import([&path], &dir.path().join("save"), more), code);
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(failure(&import([&good], dir.path(), &[]), 1).contains("exists; name a new directory"));
    // The second file is bad: what came of the first goes too.
    let told = failure(&import([&good, &dir.path().join("no-time.csv")], &dir.path().join("save"), &[]), 1);
    assert!(told.contains("no column is known"), "{told}");
    assert_eq!(names(dir.path()), before);
}

#[test]
fn profiles_of_metric_proxy_become_records_of_runs_and_samples_at_their_ends() {
    let dir = tempfile::tempdir().unwrap();
    let profiles = dir.path().join("profiles");
    fs::create_dir(&profiles).unwrap();
    let profile = |id: &str, size: u32, counters: Json| {
        let desc = json!({"jobid": id, "command": "./app", "size": size, "nodelist": "", "partition": "", "cluster": "",
            "run_dir": "/", "start_time": 1_700_000_000_000_u64, "end_time": 1_700_000_010_000_u64});
        json!({"desc": desc, "counters": counters}).to_string()
    };
    let calls = json!([{"name": "calls{fn=\"send\"}", "doc": "d", "ctype": {"Counter": {"ts": 5, "value": 12.5}}},
        {"name": "load", "doc": "", "ctype": {"Gauge": {"min": 1.0, "max": 3.0, "hits": 2.0, "total": 4.0}}}]);
    fs::write(profiles.join("a.profile"), profile("a", 2, calls.clone())).unwrap();
    fs::write(profiles.join("b.profile"), profile("../b", 4, calls)).unwrap();
    fs::write(profiles.join("half.profile"), &profile("half", 2, json!([]))[..90]).unwrap();
    let save = dir.path().join("save");
    let told = said(&import([&profiles], &save, &[]));
    assert!(told.contains("half.profile, record 1: ") && told.contains("left out: 1 broken record"), "{told}");
    let rows =
        sql(&save, "SELECT metric, tags['proxy.job'] AS job, tags['fn'] AS fn, value FROM samples ORDER BY 1, 2");
    let expected = json!([{"metric": "calls", "job": "../b", "fn": "send", "value": 12.5},
        {"metric": "calls", "job": "a", "fn": "send", "value": 12.5},
        {"metric": "load", "job": "../b", "fn": null, "value": 2.0}, {"metric": "load", "job": "a", "fn": null, "value": 2.0}]);
    assert_eq!(rows, expected);
    let db = Db::open_read_only(&save.join("imported"), Options::default()).unwrap();
    let snapshot = db.snapshot();
    let runs: Vec<Json> =
        snapshot.meta().records("proxy.run").map(|(_, text)| serde_json::from_str(&text).unwrap()).collect();
    let ids: Vec<&str> = runs.iter().map(|run| run["desc"]["jobid"].as_str().unwrap()).collect();
    assert_eq!(ids, ["../b", "a"]);
    assert!(runs.iter().all(|run| run["is_imported"] == true && run["end"] == 1_700_000_010_000_000_i64), "{runs:?}");
    assert_eq!(snapshot.meta().records("proxy.profile").count(), 2);
    let one = import([profiles.join("a.profile")], &dir.path().join("one"), &[]);
    assert!(said(&one).contains("2 samples of 2 metrics"), "by what is in it");
}

#[test]
fn profiles_whose_ids_name_no_job_are_profiles_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let profiles = dir.path().join("profiles");
    fs::create_dir(&profiles).unwrap();
    // Of the last three no job of SQL can have the name: `local` stands for none.
    let long = "x".repeat(300);
    let ids = ["plain", "", &long, "local"];
    for (at, id) in ids.iter().enumerate() {
        let (start, end) = (1_700_000_000_000_u64 + 1_000 * at as u64, 1_700_000_000_500_u64 + 1_000 * at as u64);
        let desc = json!({"jobid": id, "command": "./app", "size": 2, "nodelist": "", "partition": "", "cluster": "",
            "run_dir": "/", "start_time": start, "end_time": end});
        let counters = json!([{"name": "calls", "doc": "d", "ctype": {"Counter": {"ts": 5, "value": at + 1}}}]);
        let text = json!({"desc": desc, "counters": counters}).to_string();
        fs::write(profiles.join(format!("{at}.profile")), text).unwrap();
    }
    let save = dir.path().join("save");
    said(&import([&profiles], &save, &[]));
    let jobs = sql(&save, "SELECT job FROM jobs WHERE begin = '2023-11-14T22:13:20Z'");
    assert_eq!(jobs, json!([{"job": "plain"}]));
    let mut replay = telem(["replay", "--listen", "127.0.0.1:0"]);
    let replay = Server::start({
        replay.arg(&save);
        replay
    });
    let told = replay.get("/profiles").expect(200).json();
    let mut known: Vec<&str> = told.as_array().unwrap().iter().map(|desc| desc["jobid"].as_str().unwrap()).collect();
    known.sort_unstable();
    assert_eq!(known, ["", "local", "plain", &long]);
    for (at, id) in ids.iter().enumerate() {
        let profile = replay.get(&format!("/profiles/get?jobid={id}")).expect(200).json();
        assert_eq!(profile["counters"][0]["ctype"]["Counter"]["value"], (at + 1) as f64, "{id}");
    }
    let tags = sql(&save, "SELECT tags['proxy.job'] AS id, value FROM samples WHERE metric = 'calls' ORDER BY value");
    let expected = [json!("plain"), Json::Null, json!(long), json!("local")];
    let expected = expected.iter().enumerate().map(|(at, id)| json!({"id": id, "value": (at + 1) as f64}));
    assert_eq!(tags, expected.collect::<Json>());
}

#[test]
fn many_rows_in_any_order_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (file, save) = (dir.path().join("many.csv"), dir.path().join("a"));
    let mut text = String::from("ts,host,x,y\n");
    let rows = 100_000_u64;
    for at in 0..rows {
        // Each second once, far from its neighbours.
        let second = at * 77_773 % rows;
        text.push_str(&format!("{second},n{},{second},{}.5\n", second % 7, second));
    }
    fs::write(&file, text).unwrap();
    let said = said(&import([&file], &save, &[]));
    assert!(said.contains("200,000 samples of 2 metrics and 14 series, "), "{said}");
    let rows = sql(
        &save,
        "SELECT count(*) AS n, count(DISTINCT ts) AS times, sum(value) AS total, count(DISTINCT host) AS hosts FROM y",
    );
    assert_eq!(rows, json!([{"n": 100_000, "times": 100_000, "total": 5_000_000_000.0_f64 - 0.0, "hosts": 7}]));
}

#[test]
fn an_import_that_is_stopped_while_it_waits_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = telem(["import", "-", "--format", "csv", "--save"]);
    command.arg(dir.path().join("runs/a")).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It stays open, as a program that has more to say.
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"ts,x\n1,2\n").unwrap();
    let runs = dir.path().join("runs");
    poll("the unfinished directory", || runs.is_dir() && names(&runs).len() == 1);
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(failure(&done, 1).contains("interrupted; nothing was saved"));
    assert!(names(&runs).is_empty());
    drop(input);
}

#[test]
fn samples_go_to_tensorboard_by_tags_and_come_back_with_their_steps() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut text = "ts,step,loss,rank,run\n".to_owned();
    for step in 0..100 {
        for rank in 0..2 {
            text.push_str(&format!("{},{},{}.5,{rank},a/b\n", 1_767_225_600 + step, step * 10, step + rank));
        }
    }
    fs::write(at("log.csv"), text).unwrap();
    said(&import([at("log.csv")], &at("a"), &[]));
    let export = |dir: &Path| {
        let mut command = telem(["export", at("a").to_str().unwrap(), "--tensorboard"]);
        command.arg(dir).output().unwrap()
    };
    assert!(said(&export(&at("logs"))).contains("200 samples of 1 metric in 2 files"));
    assert_eq!(names(&at("logs/a/b")), ["rank=0", "rank=1"]);
    assert!(failure(&export(&at("logs")), 1).contains("holds files; name another directory"));
    let said = said(&import([at("logs")], &at("b"), &[]));
    assert!(said.contains("400 samples of 2 metrics and 4 series"), "{said}");
    let rows = sql(
        &at("b"),
        "SELECT run, count(*) AS n, sum(l.value) AS loss, sum(s.value_int) AS steps \
         FROM loss l JOIN step s USING (ts, run) GROUP BY run ORDER BY run",
    );
    assert_eq!(
        rows,
        json!([
            {"run": "a/b/rank=0", "n": 100, "loss": 5_000.0, "steps": 49_500},
            {"run": "a/b/rank=1", "n": 100, "loss": 5_100.0, "steps": 49_500},
        ])
    );
}
