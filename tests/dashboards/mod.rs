//! The dashboards of `grafana/`, opened as Grafana opens them, on a running telem and on a saved database.
//!
//! [`template`] replaces variables, [`plugin`] sends queries as each generation of the data source does, and [`board`]
//! combines both. The stored samples come from the catalog of the collectors, in the shapes of level 2 and of level 4.

mod board;
mod plugin;
mod template;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value as Json, json};
use telem_engine::MetricKind;
use telem_ingest::collect::{self, Described};

use self::board::{Board, Pick, Shown};
use self::plugin::{GENERATIONS, Generation, Range};
use crate::process::{Server, poll, telem};
use crate::script::EPOCH_MS;

const BOARDS: [&str; 4] = ["telem-node", "telem-custom", "telem-mpi", "telem-self"];
const HOSTS: [&str; 2] = ["n1", "n2"];
const CUSTOM: [&str; 2] = ["loss", "train/accuracy"];
const TICKS: i64 = 16;
const TICK_SECONDS: i64 = 2;

fn range() -> Range {
    Range { from: EPOCH_MS, to: EPOCH_MS + TICKS * TICK_SECONDS * 1_000 }
}

/// The tags that a metric has beside `host` at `level`: the name of each and its values.
fn tags_at(metric: &Described, level: u8) -> Vec<(&'static str, Vec<&'static str>)> {
    let (always, detail) = metric.tags.split_once('(').unwrap_or((metric.tags, ""));
    let detail = if level >= 3 { detail.trim_end_matches(')') } else { "" };
    let names = [always, detail].into_iter().flat_map(|names| names.split(',')).map(str::trim);
    names.filter(|name| !name.is_empty()).map(|name| (name, values_of(name))).collect()
}

fn values_of(tag: &str) -> Vec<&'static str> {
    match tag {
        "mode" => vec!["user", "nice", "system", "irq", "softirq", "steal", "iowait", "idle"],
        "cpu" => vec!["0", "1"],
        "device" => vec!["a0", "b1"],
        "port" | "fstype" => vec!["1"],
        "mountpoint" => vec!["/", "/scratch"],
        "pid" => vec!["41", "42"],
        "comm" => vec!["python"],
        "parent" => vec!["mpirun"],
        "rank" => vec!["0"],
        "counted" => vec!["together"],
        "gpu" => vec!["0", "1"],
        "mig" | "partition" => vec!["0"],
        "clock" => vec!["sm", "memory"],
        "reason" => vec!["power", "thermal"],
        "severity" => vec!["corrected", "uncorrected"],
        "xid" => vec!["79"],
        "source" => vec!["pm_counters"],
        "accel" | "index" | "core" | "package" | "controller" | "node" => vec!["0", "1"],
        "fs" => vec!["home", "scratch"],
        "export" => vec!["srv/home"],
        "operation" => vec!["open", "close"],
        "chip" | "sensor" | "zone" | "type" => vec!["x"],
        other => panic!("the catalog has a tag '{other}' that this test gives no values"),
    }
}

/// What the collectors store at `level`, and custom metrics of two ranks on each host. At level 2 the sum over what
/// level 4 stores one by one.
fn samples(level: u8) -> Vec<Json> {
    let mut samples = Vec::new();
    for (at, metric) in (1..).zip(collect::catalog().iter().filter(|metric| metric.level <= level)) {
        for (host_at, host) in (0..).zip(HOSTS) {
            for tick in 0..TICKS {
                let grown = if metric.kind == MetricKind::Counter { tick * (at + host_at) } else { tick % 7 };
                let value = at + host_at + grown;
                for (share, tags) in shares(metric, level) {
                    samples.push(sample(metric.name, tick, json!(value * share), host, &tags));
                }
            }
        }
    }
    samples.extend(custom());
    samples.extend(mpi());
    samples
}

/// What programs of MPI are counted to have called.
fn mpi() -> Vec<Json> {
    let mut samples = Vec::new();
    for metric in ["mpi_calls_total", "mpi_bytes_total", "mpi_seconds_total"] {
        for (at, (rank, host)) in (1..).zip([("0", "n1"), ("1", "n2")]) {
            for function in ["MPI_Send", "MPI_Allreduce"] {
                let tags = [("rank", rank), ("function", function)];
                samples.extend((0..TICKS).map(|tick| sample(metric, tick, json!(tick * at), host, &tags)));
            }
        }
    }
    samples
}

fn custom() -> Vec<Json> {
    let mut samples = Vec::new();
    for (at, metric) in (1..).zip(CUSTOM) {
        for (rank, host) in [("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")] {
            for tick in 0..TICKS {
                let value = f64::from(at) / (1.0 + f64::from(i32::try_from(tick).unwrap()));
                samples.push(sample(metric, tick, json!(value), host, &[("rank", rank)]));
            }
        }
    }
    samples
}

/// What the shares of a metric add up to: three tags may split it, each in quarters.
const WHOLE: i64 = 64;

/// The series of one metric on one host: its tags, and its share of the whole. What only level 4 tells
/// apart has unequal shares; everything else has the same value in each series.
fn shares(metric: &Described, level: u8) -> Vec<(i64, Vec<(&'static str, &'static str)>)> {
    let always = tags_at(metric, 2).len();
    let mut series = vec![(WHOLE, Vec::new())];
    for (at, (name, values)) in tags_at(metric, level).into_iter().enumerate() {
        let mut split = Vec::new();
        for (share, tags) in series {
            for (value_at, value) in (0..).zip(&values) {
                let more = tags.iter().copied().chain([(name, *value)]).collect();
                let part = if at < always || values.len() == 1 { share } else { share / 4 * [1, 3][value_at] };
                split.push((part, more));
            }
        }
        series = split;
    }
    series
}

fn sample(metric: &str, tick: i64, value: Json, host: &str, tags: &[(&str, &str)]) -> Json {
    let mut all: serde_json::Map<String, Json> =
        tags.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    all.insert("host".to_owned(), host.into());
    json!({"metric": metric, "timestamp": EPOCH_MS / 1_000 + tick * TICK_SECONDS, "value": value, "tags": all})
}

fn put(server: &Server, samples: &[Json]) {
    for samples in samples.chunks(5_000) {
        server.post("/api/put", &Json::from(samples)).expect(204);
    }
}

fn loaded(dir: &Path, level: u8) -> Server {
    let server = Server::serve(dir, &[]);
    put(&server, &samples(level));
    server
}

fn stored_at(level: u8) -> impl Fn(&Json) -> Option<bool> {
    move |target| Some(is_stored(target, level))
}

/// Whether `target` asks for something that is stored at `level`.
fn is_stored(target: &Json, level: u8) -> bool {
    let Some(metric) = collect::describe(target["metric"].as_str().unwrap()) else { return true };
    let tags: Vec<&str> = tags_at(metric, level).into_iter().map(|(name, _)| name).collect();
    let filtered = target["filters"].as_array().unwrap().iter().map(|filter| filter["tagk"].as_str().unwrap());
    metric.level <= level && filtered.filter(|tag| !matches!(*tag, "host" | "$tag")).all(|tag| tags.contains(&tag))
}

/// That every target has points, or has none, as `filled` says; it may leave it open.
fn check_filled(shown: &[Shown], level: u8, filled: impl Fn(&Json) -> Option<bool>) {
    for panel in shown {
        for (target, series) in panel.targets.iter().zip(&panel.series) {
            let points = series.iter().map(|series| series["dps"].as_object().unwrap().len()).sum::<usize>();
            let expected = filled(target).unwrap_or(points > 0);
            assert_eq!(points > 0, expected, "'{}' at level {level}: {target:#}", panel.title);
        }
        for label in &panel.labels {
            assert!(!label.contains('$'), "'{label}' is the name of a line of '{}'", panel.title);
        }
    }
}

#[test]
fn every_panel_and_every_variable_is_answered_at_every_level_by_every_generation() {
    for level in [2, 4] {
        let dir = tempfile::tempdir().unwrap();
        let server = loaded(dir.path(), level);
        for uid in BOARDS {
            let board = Board::load(uid);
            for generation in GENERATIONS {
                check_filled(&board.open(&server, generation, Pick::All, range()), level, stored_at(level));
            }
            check_filled(&board.open(&server, Generation::Browser, Pick::First, range()), level, stored_at(level));
        }
    }
}

/// With what the collectors themselves store, of a recorded `/proc` that stands still.
#[test]
fn the_collectors_fill_the_dashboards() {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/proc/first");
    for level in [2, 3, 4] {
        let dir = tempfile::tempdir().unwrap();
        let said = level.to_string();
        let mut command = telem(["serve", "--listen", "127.0.0.1:0", "--interval", "100ms", "--sysroot", recorded]);
        command.args(["--node", "n1", "--level", &said, "--data"]).arg(dir.path());
        let live = Server::start(command);
        let range = ticks(&live, 4);
        let filled = |server: &Server| {
            for uid in ["telem-node", "telem-self"] {
                // The ticks are 100 ms apart.
                let board = Board::load(uid).choosing("finest", "100ms");
                let shown = board.open(server, Generation::Browser, Pick::All, range);
                check_filled(&shown, level, |target| expected(target, level));
            }
        };
        filled(&live);
        assert!(live.terminate().0.success());
        filled(&Server::replay([dir.path()], &[]));
    }
}

/// Whether the recording fills `target`, where that is certain. No InfiniBand is in it, no CPU time passes in it, and a
/// process is stored from the second walk on, which is seconds later; a job runs under `telem run` alone.
fn expected(target: &Json, level: u8) -> Option<bool> {
    let name = target["metric"].as_str().unwrap();
    if name.starts_with("job_process") {
        return Some(false);
    }
    let of_gpu = name.starts_with("gpu_") || name.starts_with("Device");
    let others = [
        "cgroup_",
        "cray_pm_",
        "cxi_",
        "lustre_",
        "node_cpu_core_",
        "node_cpu_package_",
        "node_cpu_temperature_",
        "node_edac_",
        "node_energy_",
        "node_hwmon_",
        "node_memory_numa_",
        "node_mountstats_",
        "node_power_",
        "node_rapl_",
        "node_thermal_",
    ];
    let open = of_gpu
        || others.iter().any(|other| name.starts_with(other))
        || name.contains("infiniband")
        || name == "cpu_percent"
        || name.starts_with("process_");
    (!open).then(|| is_stored(target, level))
}

/// Waits for `count` ticks of the collectors, and says when they were.
fn ticks(server: &Server, count: usize) -> Range {
    let queries = json!([{"metric": "node_load1", "aggregator": "sum"}]);
    let body = json!({"start": "1h-ago", "msResolution": true, "queries": queries});
    let mut times: Vec<i64> = Vec::new();
    poll("the collectors", || {
        let answer = server.post("/api/query", &body).expect(200).json();
        let points = answer[0]["dps"].as_object().into_iter().flatten();
        times = points.map(|(time, _)| time.parse().unwrap()).collect();
        times.len() >= count
    });
    Range { from: times[0], to: times[times.len() - 1] + 1 }
}

#[test]
fn sums_are_the_same_at_level_2_and_at_level_4() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let servers = [loaded(dirs[0].path(), 2), loaded(dirs[1].path(), 4)];
    let mut compared = 0;
    for pick in [Pick::All, Pick::First] {
        let board = Board::load("telem-node");
        let [sums, details] = servers.each_ref().map(|server| board.open(server, Generation::Browser, pick, range()));
        for (sum, detail) in sums.iter().zip(&details) {
            let targets = sum.targets.iter().zip(sum.series.iter().zip(&detail.series));
            for (target, (sum_series, detail_series)) in targets.filter(|(target, _)| is_stored(target, 2)) {
                compared += 1;
                assert_eq!(lines(sum_series), lines(detail_series), "'{}': {target:#}", sum.title);
            }
        }
    }
    assert!(compared > 50, "only {compared} queries were compared");
}

/// Every point of every line, by its time and the tags that the line is grouped by.
fn lines(series: &[Json]) -> BTreeSet<String> {
    let points = series.iter().flat_map(|series| {
        let grouped: Vec<&str> =
            ["host", "mode", "mountpoint"].iter().filter_map(|tag| series["tags"][*tag].as_str()).collect();
        let points = series["dps"].as_object().unwrap().iter();
        points
            .map(move |(time, value)| format!("{grouped:?} {time} {:.9e}", value.as_f64().unwrap()))
            .collect::<Vec<_>>()
    });
    points.collect()
}

/// At a zoom where Grafana would ask in steps of 200 ms, between which a sample every 500 ms falls here and there.
#[test]
fn a_steady_counter_is_drawn_level_however_close_one_looks() {
    const SAMPLES: i64 = 450;
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let tags = json!({"host": "n1", "mode": "user"});
    let counted = (0..SAMPLES).map(
        |n| json!({"metric": "node_cpu_seconds_total", "timestamp": EPOCH_MS + n * 500, "value": n, "tags": tags}),
    );
    put(&server, &counted.collect::<Vec<_>>());
    let range = Range { from: EPOCH_MS, to: EPOCH_MS + SAMPLES * 500 };
    let shown = Board::load("telem-node").open(&server, Generation::Browser, Pick::All, range);
    let by_mode = shown.iter().find(|panel| panel.title == "CPU by mode").unwrap();
    let rates: Vec<f64> =
        by_mode.series[0][0]["dps"].as_object().unwrap().values().map(|rate| rate.as_f64().unwrap()).collect();
    assert!(rates.len() > 200 && rates.iter().all(|rate| (rate - 2.0).abs() < 1e-9), "{rates:?}");
}

#[test]
fn replayed_dashboards_show_what_was_seen_live_and_two_nodes_are_as_one() {
    for level in [2, 4] {
        let dir = tempfile::tempdir().unwrap();
        let one = dir.path().join("one");
        let server = loaded(&one, level);
        let open =
            |server: &Server| BOARDS.map(|uid| Board::load(uid).open(server, Generation::Browser, Pick::All, range()));
        let live = open(&server);
        assert!(server.terminate().0.success());
        assert!(open(&Server::replay([&one], &[])) == live, "level {level}, one database");

        // As a job of two nodes saves itself.
        let (job, all) = (dir.path().join("job"), samples(level));
        for host in HOSTS {
            let server = Server::serve(&job.join(host), &["--node", host]);
            let own: Vec<Json> = all.iter().filter(|sample| sample["tags"]["host"] == host).cloned().collect();
            put(&server, &own);
            assert!(server.terminate().0.success());
        }
        let replayed = Server::replay([&job], &[]);
        for shown in &live {
            check_filled(shown, level, stored_at(level));
        }
        for (shown, live) in open(&replayed).iter().flatten().zip(live.iter().flatten()) {
            assert_eq!(shown, live, "level {level}, a database for each node");
        }
    }
}

#[test]
fn energy_is_what_each_counter_grew_and_a_lost_gpu_stays_lost_though_it_says_so_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let mut samples = Vec::new();
    // Counters begin at what the hardware had counted before; one host is late, and the other ends early.
    for (host, ticks, before) in [("n1", 0..12, 5_120_000_000_i64), ("n2", 5..TICKS, 7_000_000_000)] {
        for tick in ticks {
            samples.push(sample("load_average", tick, json!(1), host, &[]));
            let joules = json!(before + tick * 100);
            samples.push(sample("node_energy_joules_total", tick, joules.clone(), host, &[("source", "pm_counters")]));
            samples.push(sample("gpu_energy_joules_total", tick, joules, host, &[("gpu", "0")]));
            samples.push(sample("gpu_up", tick, json!(1), host, &[("gpu", "0")]));
        }
    }
    let value = |server: &Server, title: &str| -> f64 {
        let shown = Board::load("telem-node").open(server, Generation::Browser, Pick::All, range());
        let panel = shown.iter().find(|panel| panel.title == title).unwrap();
        let points = panel.series[0][0]["dps"].as_object().unwrap();
        points.values().next_back().unwrap().as_f64().unwrap()
    };
    put(&server, &samples);
    assert_eq!([value(&server, "Energy"), value(&server, "GPU energy")], [2_100.0; 2]);
    assert_eq!(value(&server, "GPUs lost"), 1.0);
    put(
        &server,
        &[sample("gpu_up", 4, json!(1), "n1", &[("gpu", "1")]), sample("gpu_up", 5, json!(0), "n1", &[("gpu", "1")])],
    );
    assert_eq!(value(&server, "GPUs lost"), 0.0);
}

/// Grafana asks everything of a panel at once, so one unknown name would leave the whole panel empty.
#[test]
fn a_database_without_the_collectors_metrics_shows_empty_panels_and_no_errors() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    server.post("/api/put", &Json::from(vec![sample("loss", 0, json!(1), "n1", &[("rank", "0")])])).expect(204);
    // Metrics of MPI are a program's: unknown where none was counted, as every custom metric is.
    for generation in GENERATIONS {
        for uid in BOARDS.into_iter().filter(|uid| *uid != "telem-mpi") {
            for panel in Board::load(uid).open(&server, generation, Pick::All, range()) {
                let metrics = panel.targets.iter().map(|target| target["metric"].as_str().unwrap());
                if metrics.clone().all(|metric| collect::describe(metric).is_some()) {
                    assert!(panel.series.iter().all(Vec::is_empty), "'{}'", panel.title);
                }
            }
        }
    }
}

#[test]
fn custom_metrics_are_those_that_telem_does_not_define() {
    let dir = tempfile::tempdir().unwrap();
    let server = loaded(dir.path(), 4);
    let board = Board::load("telem-custom");
    let shown = board.open(&server, Generation::Browser, Pick::All, range());
    let titles: Vec<&str> = shown.iter().map(|panel| panel.title.as_str()).collect();
    assert!(titles.contains(&"loss by rank"), "{titles:?}");
    // One panel for each custom metric below, and none for a collector's.
    assert_eq!(titles[titles.len() - CUSTOM.len()..], CUSTOM);
    let by_rank = &shown[0].series[0];
    assert_eq!(by_rank.len(), 4, "a line for each rank");
}

// --- the JSON ---

fn each_board(check: impl Fn(&str, &Json)) {
    for uid in BOARDS {
        check(uid, &Board::load(uid).json);
    }
}

#[test]
fn a_dashboard_is_known_by_its_uid_and_needs_nothing_that_grafana_lacks() {
    each_board(|uid, json| {
        assert_eq!(json["uid"], uid);
        assert_eq!(json["tags"], json!(["telem"]), "by which the dashboards link to each other");
        assert_eq!(json["links"][0]["tags"], json!(["telem"]));
        assert_eq!(json["annotations"]["list"], json!([]));
        assert!(json.get("__inputs").is_none() && json.get("id").is_none(), "provisioned, not exported");
        // What Grafana 10.4 writes; a later version is not read by it.
        assert!(json["schemaVersion"].as_u64().unwrap() <= 39);
        for panel in Board::load(uid).panels() {
            let kind = panel["type"].as_str().unwrap();
            assert!(
                ["timeseries", "stat", "bargauge", "state-timeline", "text"].contains(&kind),
                "{kind} comes with no Grafana"
            );
        }
    });
}

#[test]
fn every_panel_explains_itself_and_has_a_unit() {
    for uid in BOARDS {
        for panel in Board::load(uid).panels().into_iter().filter(|panel| panel["type"] != "text") {
            let title = panel["title"].as_str().unwrap();
            let help = panel["description"].as_str().unwrap();
            assert!(!title.is_empty() && help.ends_with('.'), "{uid} '{title}': {help}");
            assert!(!panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap().is_empty(), "{uid} '{title}'");
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{uid} '{title}'");
        }
    }
}

#[test]
fn panels_have_numbers_of_their_own_and_do_not_overlap() {
    each_board(|uid, json| {
        let top = json["panels"].as_array().unwrap();
        let all: Vec<&Json> =
            top.iter().chain(top.iter().flat_map(|panel| panel["panels"].as_array().into_iter().flatten())).collect();
        let ids: BTreeSet<u64> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len(), "{uid}");
        check_places(uid, top);
        for row in top.iter().filter(|panel| panel["collapsed"] == true) {
            check_places(uid, row["panels"].as_array().unwrap());
        }
    });
}

/// A screen is 24 columns wide.
fn check_places(uid: &str, panels: &[Json]) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_i64().unwrap();
        assert!(at("w") > 0 && at("h") > 0 && at("x") >= 0 && at("x") + at("w") <= 24, "{uid}: {panel:#}");
        for cell in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{uid}: '{}' stands on another panel", panel["title"]);
        }
    }
}

#[test]
fn everything_asks_the_data_source_that_is_chosen_above_for_metrics_that_exist() {
    let source = json!({"type": "opentsdb", "uid": "${datasource}"});
    each_board(|uid, json| {
        let variables = json["templating"]["list"].as_array().unwrap();
        assert_eq!(variables[0]["name"], "datasource");
        for variable in variables.iter().filter(|variable| variable["type"] == "query") {
            assert_eq!(variable["datasource"], source, "{uid}");
        }
        for panel in Board::load(uid).panels().into_iter().filter(|panel| panel["type"] != "text") {
            assert_eq!(panel["datasource"], source, "{uid}");
            let targets = panel["targets"].as_array().unwrap();
            let names: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
            assert_eq!(names.len(), targets.len(), "{uid}: {panel:#}");
            let has_rates = targets.iter().any(|target| target["shouldComputeRate"] == true);
            assert_eq!(panel["interval"].is_string(), has_rates, "{uid}: {panel:#}");
            for target in targets {
                assert_eq!(target["datasource"], source, "{uid}");
                check_metric(uid, target);
            }
        }
    });
}

/// A metric of the catalog, asked for in a way that fits its kind.
fn check_metric(uid: &str, target: &Json) {
    let name = target["metric"].as_str().unwrap();
    if name.starts_with('$') || name.starts_with("mpi_") {
        return;
    }
    let metric = collect::describe(name).unwrap_or_else(|| panic!("{uid} asks for '{name}', which nobody collects"));
    let known: BTreeSet<&str> = tags_at(metric, 4).into_iter().map(|(tag, _)| tag).chain(["host"]).collect();
    for filter in target["filters"].as_array().unwrap() {
        let tag = filter["tagk"].as_str().unwrap();
        assert!(known.contains(tag), "{uid}: '{name}' has no tag '{tag}'");
    }
    match metric.kind {
        MetricKind::Counter if target["shouldComputeRate"] == true => {
            assert_eq!(target["isCounter"], true, "{uid}: resets of '{name}' would be drawn");
            assert_eq!(target["downsampleAggregator"], "first", "{uid}: '{name}' would fall at the end of every line");
        }
        // A number that says by how much it grew in the time range.
        MetricKind::Counter => {
            assert_eq!(
                target["downsampleAggregator"], "diff",
                "{uid}: '{name}' is not made of the growth of each series"
            );
            assert_eq!(target["downsampleInterval"], "0all", "{uid}: '{name}' would be cut into steps");
        }
        _ => assert!(target.get("shouldComputeRate").is_none(), "{uid}: '{name}' is no counter"),
    }
}
