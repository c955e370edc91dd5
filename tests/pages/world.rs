//! The surroundings of a page's reader: a directory with the files that pages mention, a saved job, and a live server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value as Json, json};
use telem_engine::{Clock, SystemClock};
use tempfile::TempDir;

use crate::process::{PATIENCE, Server, free_port, quiet, telem};
use crate::run;

/// Names under which pages speak of a saved job, with its nodes below.
const JOBS: [&str; 5] = ["telem-demo", "telem-other", "telem-4711", "telem-4712", "telem-20261121-143015-4711"];
/// The name under which they speak of a database.
const DATABASE: &str = "trial";
/// The port of which pages speak. In its place stands that of the live server, or, where an example starts a server of its
/// own, a free one at which that is told to listen.
const PORT: &str = "4242";

/// Longest that a block may take: it has several commands. It only bounds a failure.
const BLOCK_PATIENCE: Duration = PATIENCE.saturating_mul(4);

const TRAIN: &str = "\
import time
from telem import Telemetry
telemetry = Telemetry()
for step in range(12):
    telemetry.log({'loss': 1.0 / (step + 1), 'lr': 0.01}, step=step)
    telemetry.add_data('train.loss', 1.0 / (step + 1), tags={'rank': '0'})
    telemetry.add_data('train/loss', 1.0 / (step + 1))
    for bound in ('0.1', '1', '+Inf'):
        telemetry.add_data('step_seconds_bucket', step, tags={'rank': '0', 'le': bound})
    time.sleep(0.1)
telemetry.flush()
";

/// What Dragon's telemetry leaves of a node.
const DRAGON: &str = "\
CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json);
INSERT INTO datapoints VALUES ('load_average', '1767225600', 0.5, 'null'), ('loss', '1767225600', 0.25, '{\"rank\": 0}');
";

/// What all readers share.
pub struct World {
    dir: TempDir,
    live_port: u16,
    /// Ends with this. Nobody locks it: it makes a world one that several readers may share.
    _live: Mutex<Server>,
}

impl World {
    pub fn new() -> Self {
        let owner_only = fs::Permissions::from_mode(0o700);
        // Short enough for the path of a socket.
        let dir = tempfile::Builder::new().permissions(owner_only).tempdir_in("/tmp").unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_telem"), at("bin/telem")).unwrap();
        let python3 = String::from_utf8(sh("command -v python3").stdout).unwrap();
        symlink(python3.trim(), at("bin/python")).unwrap();
        small_machine(&at("machine"));
        let live = live_server(&at("machine"), &at("data"), &at("live.join"));
        let live_port = live.address.rsplit(':').next().unwrap().parse().unwrap();
        let world = Self { dir, live_port, _live: Mutex::new(live) };
        world.record();
        world
    }

    /// A job of more than a second, whose samples are in two seconds at least, as a reader would record it.
    fn record(&self) {
        let reader = self.reader_without_jobs("recorded");
        let script =
            "telem run --level 3 --interval 100ms --sysroot ../machine --node n1 --save saved -- python train.py";
        let done = reader.bash(script, &[]);
        assert!(done.status.success(), "{done:?}");
    }

    /// A directory of its own for who follows one page.
    pub fn reader(&self, name: &str) -> Reader<'_> {
        let reader = self.reader_without_jobs(name);
        let saved = self.dir.path().join("recorded/saved");
        for job in JOBS {
            copy(&saved, &reader.path.join(job));
        }
        copy(&saved.join("n1"), &reader.path.join(DATABASE));
        symlink(self.dir.path().join("data"), reader.path.join("data")).unwrap();
        reader
    }

    fn reader_without_jobs(&self, name: &str) -> Reader<'_> {
        let path = self.dir.path().join(name);
        for dir in ["", "run", "tmp"] {
            fs::create_dir(path.join(dir)).unwrap();
            fs::set_permissions(path.join(dir), fs::Permissions::from_mode(0o700)).unwrap();
        }
        let program = "#!/bin/sh\nsleep 0.3\n";
        for (file, text) in [
            ("train.py", TRAIN),
            ("solve", program),
            ("solver", program),
            ("input.toml", "steps = 3\n"),
            ("Makefile", "all:\n\t@echo built\n"),
            ("samples.txt", "train,rank=0 loss=0.25,step=100i 1767225600\n"),
            ("log.csv", "ts,step,loss,rank\n1767225600,0,0.5,0\n1767225601,1,0.25,0\n"),
            ("log.jsonl", "{\"time\": 1767225600, \"step\": 0, \"train\": {\"loss\": 0.5}}\n"),
            ("long.csv", "time,name,value,host\n1767225600,loss,0.5,n1\n1767225601,loss,0.25,n1\n"),
            ("question.sql", "SELECT count(*) FROM samples\n"),
        ] {
            fs::write(path.join(file), text).unwrap();
            fs::set_permissions(path.join(file), fs::Permissions::from_mode(0o700)).unwrap();
        }
        for node in ["n1", "n2"] {
            let db = rusqlite::Connection::open(path.join(format!("ts_alice_{node}.db"))).unwrap();
            db.execute_batch(DRAGON).unwrap();
        }
        Reader { world: self, path }
    }
}

/// This machine with as little hardware as pages speak of: an export takes its time for every metric.
fn small_machine(at: &Path) {
    fs::create_dir_all(at.join("proc/net")).unwrap();
    for file in ["stat", "loadavg", "net/dev"] {
        symlink(Path::new("/proc").join(file), at.join("proc").join(file)).unwrap();
    }
    fs::write(at.join("proc/meminfo"), "MemTotal: 1000 kB\nMemFree: 500 kB\nMemAvailable: 600 kB\n").unwrap();
}

/// With hardware of this machine, and the metrics of which pages speak. At another level than the job was recorded at,
/// because some metrics have other tags there.
fn live_server(machine: &Path, data: &Path, join_file: &Path) -> Server {
    let mut command = telem(["serve", "--level", "2", "--interval", "100ms", "--listen", "127.0.0.1:0"]);
    command.arg("--sysroot").arg(machine).arg("--data").arg(data).arg("--join-file").arg(join_file);
    let server = Server::start(command);
    let now = SystemClock::new().now().micros() / 1_000_000;
    let sample = |metric: &str, at: i64| json!({"metric": metric, "timestamp": now - at, "value": 0.5, "tags": {"rank": "0", "host": "n1"}});
    let bucket = |bound: &str, at: i64| json!({"metric": "step_seconds_bucket", "timestamp": now - at, "value": 5 - at, "tags": {"rank": "0", "le": bound}});
    let samples: Vec<Json> = ["loss", "step", "train.loss", "train/loss"]
        .iter()
        .flat_map(|metric| (0..5).map(|at| sample(metric, at)))
        .chain(["0.1", "1", "Inf"].iter().flat_map(|bound| (0..5).map(move |at| bucket(bound, at))))
        .collect();
    server.post("/api/put", &Json::from(samples)).expect(204);
    server
}

/// Somebody who follows a page from its top to its end.
pub struct Reader<'a> {
    world: &'a World,
    pub path: PathBuf,
}

impl Reader<'_> {
    /// Types a shell script.
    pub fn shell(&self, script: &str) -> Output {
        let is_own = |line: &str| matches!(served(line), Some("serve" | "replay"));
        let port = if script.lines().any(is_own) { free_port() } else { self.world.live_port };
        let port = port.to_string();
        let lines = script.lines().map(|line| match served(line) {
            Some(command) => {
                // It is in the background as it is; what stands behind that, a comment or a command, stays.
                let line = line.trim();
                let (line, behind) = line.split_once(" & ").unwrap_or((line.trim_end_matches('&'), ""));
                let has_place = line.contains("--listen") || command == "node";
                let place = if has_place { String::new() } else { format!(" --listen 127.0.0.1:{PORT}") };
                let rest = line.trim_start_matches("telem ").trim_start_matches(command);
                format!("in_a_terminal_of_its_own telem {command}{place}{rest}\n{behind}\n")
            }
            None => format!("{line}\n"),
        });
        let script: String = lines.collect::<String>().replace(PORT, &port);
        self.bash(&format!("{}\n{script}", include_str!("prelude.sh")), &[])
    }

    /// Types a shell script in a job.
    pub fn shell_in_job(&self, script: &str) -> Output {
        let script = format!("{}\n{script}", include_str!("prelude.sh"));
        self.job(&["bash".as_ref(), "-c".as_ref(), script.as_ref()])
    }

    /// Asks a question of the saved database, and of the live server.
    pub fn ask(&self, statement: &str) -> Output {
        let url = format!("http://127.0.0.1:{}", self.world.live_port);
        let script = "telem sql trial \"$1\"; telem sql \"$2\" \"$1\"";
        self.bash(&format!("{}\n{script}", include_str!("prelude.sh")), &[statement, &url])
    }

    /// Runs a Python program in a job.
    pub fn python_in_job(&self, program: &str) -> Output {
        fs::write(self.path.join("example.py"), program).unwrap();
        self.job(&["python".as_ref(), "example.py".as_ref()])
    }

    fn job(&self, command: &[&std::ffi::OsStr]) -> Output {
        let mut run = telem(["-q", "run", "--level", "1", "--listen", "127.0.0.1:0", "--no-save", "--"]);
        run.args(command);
        self.at_home(&mut run);
        run::output_within(BLOCK_PATIENCE, run)
    }

    fn bash(&self, script: &str, args: &[&str]) -> Output {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash"]).args(args);
        quiet(&mut bash);
        self.at_home(&mut bash);
        run::output_within(BLOCK_PATIENCE, bash)
    }

    fn at_home(&self, command: &mut Command) {
        let bin = self.world.dir.path().join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/python"));
        command.env("XDG_RUNTIME_DIR", self.path.join("run")).env("TMPDIR", self.path.join("tmp"));
        command.current_dir(&self.path);
    }
}

/// The subcommand of a line that serves until it is stopped.
fn served(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_telem = words.next() == Some("telem");
    words.next().filter(|command| is_telem && matches!(*command, "serve" | "replay" | "node"))
}

fn sh(script: &str) -> Output {
    Command::new("sh").args(["-c", script]).output().unwrap()
}

/// Whether this machine has a program.
pub fn has(program: &str) -> bool {
    sh(&format!("command -v {program}")).status.success()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}
