//! `telem serve --level 2` over a recorded node: the samples, their times and their descriptions, as users see them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::process::{Server, poll, telem};

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/proc").join(name)
}

/// Copies over what is there, as the kernel changes its files: those that are open stay open.
fn lay_over(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            lay_over(&entry.path(), &to);
        } else {
            fs::write(to, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// A server that samples a recorded node ten times a second.
struct Node {
    server: Server,
    dir: TempDir,
}

impl Node {
    fn start(level: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        lay_over(&recording("first"), &dir.path().join("root"));
        let mut command = telem(["serve", "--level", level, "--interval", "100ms", "--listen", "127.0.0.1:0"]);
        command.args(["--node", "n7", "--data"]).arg(dir.path().join("db"));
        command.arg("--sysroot").arg(dir.path().join("root"));
        Node { server: Server::start(command), dir }
    }

    fn rows(&self, sql: &str) -> Json {
        self.server.sql(sql).expect(200).json()
    }

    fn wait_until(&self, sql: &str) {
        poll(sql, || self.rows(sql) == json!([{"yes": true}]));
    }
}

#[test]
fn a_node_is_sampled_on_aligned_ticks_and_every_metric_is_described() {
    let node = Node::start("2");
    node.wait_until("SELECT count(*) >= 5 AS yes FROM samples WHERE metric = 'node_memory_MemTotal_bytes'");
    assert_eq!(
        node.rows("SELECT DISTINCT host, node, value_int FROM samples WHERE metric = 'node_memory_MemTotal_bytes'"),
        json!([{"host": "n7", "node": "n7", "value_int": 25_276_510_208_i64}])
    );
    assert_eq!(
        node.rows(
            "SELECT DISTINCT mode, value FROM node_cpu_seconds_total WHERE mode IN ('user', 'irq') ORDER BY mode"
        ),
        json!([{"mode": "irq", "value": 0.0}, {"mode": "user", "value": 17_152.87}])
    );
    assert_eq!(
        node.rows("SELECT count(*) AS n FROM samples WHERE extract(microsecond FROM ts)::BIGINT % 100000 != 0"),
        json!([{"n": 0}])
    );
    // A descriptor for each that has samples; counters say that they are.
    assert_eq!(
        node.rows("SELECT count(*) AS n FROM metrics WHERE series > 0 AND (type IS NULL OR help IS NULL)"),
        json!([{"n": 0}])
    );
    assert_eq!(
        node.rows("SELECT type, unit, help FROM metrics WHERE metric = 'node_disk_read_bytes_total'"),
        json!([{"type": "counter", "unit": "bytes", "help": "Data that was read from disks"}])
    );

    // The node goes on: what its files say is seen from the next tick on.
    lay_over(&recording("second"), &node.dir.path().join("root"));
    node.wait_until("SELECT max(value) - min(value) > 0 AS yes FROM samples WHERE metric = 'node_forks_total'");
    node.wait_until("SELECT count(*) > 0 AS yes FROM samples WHERE metric = 'cpu_percent' AND value BETWEEN 1 AND 100");

    // A dashboard's question: one line for the node, and an empty one for what the level leaves out.
    let ask = |metric: &str| {
        let sub = json!({"metric": metric, "aggregator": "sum", "downsample": "1h-last-none",
            "filters": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}]});
        node.server.post("/api/query", &json!({"start": "1d-ago", "queries": [sub]})).expect(200).json()
    };
    assert_eq!(ask("node_load5")[0]["tags"], json!({"host": "n7"}));
    assert_eq!(ask("process_threads"), json!([]));

    let data = node.dir.path().join("db");
    let (status, printed) = node.server.terminate();
    assert!(status.success(), "{printed:?}");
    let counted = telem(["sql", "--format", "csv"])
        .arg(&data)
        .arg("SELECT count(*) = count(DISTINCT ts) FROM samples WHERE metric = 'node_load1'")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&counted.stdout).contains("true"), "{counted:?}");
}

#[test]
fn level_4_tells_of_processes_and_of_telem_itself() {
    let node = Node::start("4");
    node.wait_until("SELECT max(value) >= 3 AS yes FROM samples WHERE metric = 'telem_ingest_ticks_total'");
    node.wait_until("SELECT max(value) > 100 AS yes FROM samples WHERE metric = 'telem_ingest_samples_written_total'");
    node.wait_until(
        "SELECT min(value) > 1000000 AS yes FROM samples WHERE metric = 'telem_server_resident_memory_bytes'",
    );
    assert_eq!(
        node.rows("SELECT DISTINCT cpu FROM node_cpu_seconds_total ORDER BY cpu"),
        json!([{"cpu": "0"}, {"cpu": "1"}])
    );
    // Walks are 5 s apart; it takes two of them.
    node.wait_until("SELECT count(*) > 0 AS yes FROM samples WHERE metric = 'process_threads'");
    assert_eq!(
        node.rows("SELECT DISTINCT comm, pid, value FROM process_resident_memory_bytes WHERE comm = 'sleep'"),
        json!([{"comm": "sleep", "pid": "4243", "value": 1_597_440.0}])
    );
    assert_eq!(node.rows("SELECT count(*) AS n FROM metrics WHERE series > 0 AND help IS NULL"), json!([{"n": 0}]));
}

#[test]
fn an_impossible_interval_or_sysroot_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    let bare = dir.path().to_str().unwrap();
    for (args, said) in [
        (["--interval", "50ms"], "100ms to 1h"),
        (["--interval", "2h"], "100ms to 1h"),
        (["--sysroot", bare], "holds no directory proc"),
    ] {
        let mut command = telem(["serve", "--level", "2", "--listen", "127.0.0.1:0", "--data"]);
        let output = command.arg(dir.path().join("db")).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    }
    assert!(!dir.path().join("db").exists(), "nothing was made");
}
