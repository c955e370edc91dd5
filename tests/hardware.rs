//! The inventory and the energy of jobs, as users see them: in SQL, in `telem info`, at the end of `telem run` and in
//! `telem report`.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::process::{Server, poll, telem};
use crate::run::{Place, said};

const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8480\nphysical id\t: 0\n\n\
                       processor\t: 1\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon 8480\nphysical id\t: 1\n\n";

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine of two sockets.
fn machine(root: &Path) {
    write(root, "proc/cpuinfo", CPUINFO);
    write(root, "proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n");
    write(root, "proc/loadavg", "0.50 0.40 0.30 1/100 4242\n");
    write(root, "sys/class/net/hsn0/device/numa_node", "1\n");
}

fn text(args: &[&str]) -> String {
    let output = telem(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_devices_of_a_node_are_in_sql_in_info_and_in_the_saved_database() {
    let dir = tempfile::tempdir().unwrap();
    let (root, data) = (dir.path().join("root"), dir.path().join("db"));
    machine(&root);
    let mut command = telem(["serve", "--level", "2", "--interval", "100ms", "--listen", "127.0.0.1:0"]);
    command.args(["--node", "n7", "--sysroot"]).arg(&root).arg("--data").arg(&data);
    let server = Server::start(command);
    let sql = "SELECT node, kind, device, vendor, model, numa, memory_bytes, status, reason FROM inventory";
    let ask = |server: &Server| server.sql(sql).expect(200).json();
    poll("the inventory", || ask(&server).as_array().unwrap().len() >= 4);
    let cpu = |socket: &str| {
        json!({"node": "n7", "kind": "cpu", "device": socket, "vendor": "GenuineIntel", "model": "Xeon 8480",
               "numa": null, "memory_bytes": null, "status": "ok", "reason": null})
    };
    let mut memory = cpu("memory");
    memory["kind"] = json!("memory");
    memory["memory_bytes"] = json!(68_719_476_736_i64);
    let mut interface = cpu("hsn0");
    interface["kind"] = json!("nic");
    interface["numa"] = json!(1);
    for device in [&mut memory, &mut interface] {
        device["vendor"] = Json::Null;
        device["model"] = Json::Null;
    }
    let expected = json!([cpu("0"), cpu("1"), memory, interface]);
    assert_eq!(ask(&server), expected);

    let of_info = |named: &str| -> Json {
        let info: Json = serde_json::from_str(&text(&["info", "--json", named])).unwrap();
        info["inventory"].clone()
    };
    let live = of_info(&format!("http://{}", server.address));
    assert_eq!(live.as_array().unwrap().len(), 4, "{live:#}");
    assert_eq!(
        live[0],
        json!({"node": "n7", "kind": "cpu", "device": "0", "vendor": "GenuineIntel", "model": "Xeon 8480",
               "status": "ok"})
    );
    assert!(server.terminate().0.success());
    let saved = data.to_str().unwrap();
    assert_eq!(of_info(saved), live);
    assert_eq!(ask(&Server::replay([&data], &[])), expected);
    let told = text(&["info", saved]);
    assert!(told.contains("hardware   2 x cpu: GenuineIntel Xeon 8480\n           memory: 68.7 GB\n"), "{told}");
}

/// Links as they are: they lead to drivers.
fn lay_over(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).unwrap(), to).unwrap();
        } else if entry.path().is_dir() {
            lay_over(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn the_gpus_of_a_recorded_machine_join_with_their_samples() {
    let dir = tempfile::tempdir().unwrap();
    let (root, data) = (dir.path().join("root"), dir.path().join("db"));
    machine(&root);
    lay_over(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/machines/mi300x/sys"), &root.join("sys"));
    let mut command = telem(["serve", "--level", "3", "--listen", "127.0.0.1:0", "--node", "n7", "--sysroot"]);
    command.arg(&root).arg("--data").arg(&data);
    let server = Server::start(command);
    let sql = "SELECT count(DISTINCT device) AS gpus, min(model) AS model, sum(up.value) > 0 AS up FROM inventory \
               JOIN gpu_up AS up ON inventory.device = up.gpu AND inventory.node = up.node \
               WHERE kind = 'gpu' AND status = 'ok' HAVING count(*) > 0";
    let expected = json!([{"gpus": 8, "model": "AMD Instinct MI300X OAM", "up": true}]);
    let mut told = Json::Null;
    poll("the GPUs", || {
        let answer = server.sql(sql);
        // Their table is there once they have samples.
        if answer.status == 200 {
            told = answer.json();
        }
        told == expected
    });
    let dragon = server.sql("SELECT DISTINCT gpu FROM \"DeviceUtilization\"").expect(200).json();
    assert_eq!(dragon.as_array().unwrap().len(), 8, "{dragon}");
    assert!(server.terminate().0.success());
    let told = text(&["info", data.to_str().unwrap()]);
    assert!(told.contains("8 x gpu: AMD Instinct MI300X OAM, 206 GB, 750 W, driver amdgpu"), "{told}");
    assert!(told.contains("gpus       8 GPUs"), "{told}");
}

/// The three panels of GPUs of Dragon's own dashboard: what Grafana makes of their targets.
#[test]
fn the_queries_of_dragons_panels_of_gpus_are_answered_from_a_recorded_machine() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    machine(&root);
    lay_over(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/machines/mi300x/sys"), &root.join("sys"));
    let mut command =
        telem(["serve", "--level", "3", "--interval", "100ms", "--listen", "127.0.0.1:0", "--node", "n7"]);
    command.arg("--sysroot").arg(&root).arg("--data").arg(dir.path().join("db"));
    let server = Server::start(command);
    let every = |tag: &str, grouped: bool| json!({"filter": "*", "groupBy": grouped, "tagk": tag, "type": "wildcard"});
    let ask = |metric: &str, grouped: bool| {
        let query = json!({"aggregator": "sum", "downsample": "1s-avg", "explicitTags": false, "metric": metric,
                           "filters": [every("host", false), every("gpu", grouped)]});
        let start = std::fs::metadata(&root).unwrap().modified().unwrap();
        let start = start.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        server.post(
            "/api/query",
            &json!({"start": start, "queries": [query], "msResolution": false, "globalAnnotations": true,
                    "showQuery": true}),
        )
    };
    let last = |line: &Json| line["dps"].as_object().unwrap().values().next_back().unwrap().as_f64().unwrap();
    // Of eight cards; the table of one is of a version that nobody knows whole.
    for metric in ["DeviceMemoryUtilization", "DeviceUtilization", "DevicePowerUsage"] {
        let mut lines = Vec::new();
        poll("the samples of every GPU", || {
            let answer = ask(metric, true);
            lines = if answer.status == 200 { answer.json().as_array().unwrap().clone() } else { Vec::new() };
            lines.len() == 8 && lines.iter().all(|line| !line["dps"].as_object().unwrap().is_empty())
        });
        let each: f64 = lines.iter().map(last).sum();
        // OpenTSDB draws one line of targets that do not group: what all GPUs are together.
        let answer = ask(metric, false).expect(200).json();
        let [one] = &**answer.as_array().unwrap() else { panic!("{metric}: {answer:#}") };
        assert_eq!((one["metric"].as_str(), &one["tags"]), (Some(metric), &json!({"host": "n7"})), "{one:#}");
        assert_eq!(one["aggregateTags"], json!(["gpu"]), "{one:#}");
        assert!(each > 0.0 && (last(one) - each).abs() < 1e-6, "{metric}: {each} and {one:#}");
    }
    assert!(server.terminate().0.success());
}

/// A stand-in for NVIDIA's library beside its script.
fn stand_in(dir: &Path, script: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/nvml/nvml.c");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o"]).arg(dir.join("libnvidia-ml.so.1"));
    let made = cc.arg(source).arg("-ldl").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    write(dir, "nvml.txt", script);
}

/// Of a machine that has no GPUs of NVIDIA of its own: the library knows only those.
#[test]
fn a_job_has_its_gpus_of_nvidia_and_ends_as_ever_where_the_driver_never_answers() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        println!("not run: this machine has GPUs of NVIDIA");
        return;
    }
    let place = Place::new();
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/machines/h100");
    let root = place.path().join("root");
    for part in ["proc", "sys"] {
        lay_over(&recorded.join(part), &root.join(part));
    }
    machine(&root);
    let script = fs::read_to_string(recorded.join("nvml.txt")).unwrap();
    let run = |save: &str, script: &str| {
        stand_in(place.path(), script);
        let options = ["--level", "2", "--sysroot", root.to_str().unwrap(), "--save", save];
        let mut command = place.run(&options, &["sh", "-c", "sleep 3; exit 5"]);
        command.env("LD_LIBRARY_PATH", place.path());
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(5), "{}", said(&done));
        let dir = place.path().join(save);
        text(&["sql", "--format", "csv", dir.to_str().unwrap(), "SELECT DISTINCT metric FROM series ORDER BY metric"])
    };
    let metrics = run("well", &script);
    assert!(metrics.contains("gpu_power_watts") && metrics.contains("node_power_watts"), "{metrics}");
    let metrics = run("hangs", &format!("{script}* nvmlDeviceGetPowerUsage never\n"));
    assert!(!metrics.contains("gpu_power_watts") && metrics.contains("load_average"), "{metrics}");
}

#[test]
fn the_energy_of_a_node_and_its_gpus_is_the_same_live_saved_and_of_several_databases() {
    let dir = tempfile::tempdir().unwrap();
    let samples = |host: &str, joules: i64| {
        let sample = |metric: &str, second: i64, value: i64, tags: Json| {
            let mut tags = tags;
            tags["host"] = json!(host);
            json!({"metric": metric, "timestamp": 1_704_067_200 + second, "value": value, "tags": tags})
        };
        let mut all = Vec::new();
        for second in 0..=120 {
            let source = || json!({"source": "rapl_gpu"});
            // Started anew after 60 s, so one span of a second is unknown.
            let since = if second <= 60 { second } else { second - 61 };
            all.push(sample("node_energy_joules_total", second, since * joules, source()));
            all.push(sample("node_power_watts", second, joules, source()));
            all.push(sample("gpu_energy_joules_total", second, 5_000_000_000 + second * 300, json!({"gpu": "0"})));
            all.push(sample("gpu_utilization_percent", second, 0, json!({"gpu": "0"})));
        }
        Json::from(all)
    };
    let sql = "SELECT node, gpu, source, method, joules, peak_watts, seconds, unknown_seconds, idle_gpu_hours * 60 AS idle \
               FROM job_energy ORDER BY node, gpu NULLS FIRST";
    let rows = |node: &str, joules: i64| {
        [
            json!({"node": node, "gpu": null, "source": "rapl_gpu", "method": "counter", "joules": (joules * 119) as f64,
                   "peak_watts": joules as f64, "seconds": 119.0, "unknown_seconds": 1.0, "idle": null}),
            json!({"node": node, "gpu": "0", "source": "gpu", "method": "counter", "joules": 36_000.0,
                   "peak_watts": 300.0, "seconds": 120.0, "unknown_seconds": 0.0, "idle": 2.0}),
        ]
    };
    let mut expected = Vec::new();
    for (node, joules) in [("n1", 700), ("n2", 500)] {
        let server = Server::serve(&dir.path().join(node), &["--node", node]);
        server.post("/api/put", &samples(node, joules)).expect(204);
        assert_eq!(server.sql(sql).expect(200).json(), Json::from(rows(node, joules).to_vec()));
        assert!(server.terminate().0.success());
        expected.extend(rows(node, joules));
    }
    assert_eq!(Server::replay([dir.path()], &[]).sql(sql).expect(200).json(), Json::from(expected));
    let told = text(&["info", dir.path().to_str().unwrap()]);
    let energy = "energy     143 kJ (0.0397 kWh) on 2 nodes, mean 600 W a node, by rapl_gpu\n";
    assert!(told.contains(energy), "{told}");
    assert!(
        told.contains("gpus       2 GPUs, 72.0 kJ (0.0200 kWh), 0.0666667 GPU-hours, 0.0666667 of them idle"),
        "{told}"
    );
}

#[test]
fn a_job_ends_with_its_energy_and_its_report_has_it() {
    let place = Place::new();
    machine(&place.path().join("root"));
    let telem = env!("CARGO_BIN_EXE_telem");
    let put = |joules: i64| format!("{telem} put node_energy_joules_total {joules} source=pm_counters");
    // Between the moments at which telem notes that the job began and ended.
    let script = format!("sleep 0.3 && {} && sleep 0.2 && {} && sleep 0.1", put(1_000), put(1_500));
    let done = place.output(&["--save", "saved", "--sysroot", "root"], &["sh", "-c", &script]);
    let told = said(&done);
    assert!(done.status.success(), "{told}");
    assert!(told.contains("energy    500 J (0.0001 kWh), mean "), "{told}");
    let saved = place.path().join("saved");
    let report = text(&["report", saved.to_str().unwrap()]);
    assert!(report.contains("Energy: of nodes while the job ran") && report.contains("pm_counters"), "{report}");
}

#[test]
fn a_job_on_a_node_that_tells_no_energy_ends_as_ever() {
    let place = Place::new();
    machine(&place.path().join("root"));
    let told = said(&place.output(&["--save", "saved", "--sysroot", "root"], &["true"]));
    assert!(!told.contains("energy") && told.contains("recorded"), "{told}");
    let report = text(&["report", place.path().join("saved").to_str().unwrap()]);
    assert!(!report.contains("Energy"), "{report}");
}
