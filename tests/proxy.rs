//! Clients of Metric Proxy at the real binary: their socket, the HTTP API, and each defect of the original.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value as Json, json};
use telem_engine::{Clock, SystemClock};

use crate::disk::copy as copy_all;
use crate::process::{Connection, Server, poll, telem};
use crate::run::Place;

/// How long clients count while others ask, in seconds, unless `TELEM_SECONDS` says otherwise.
const SECONDS: u64 = 3;
/// Longest that an answer may take meanwhile, also on a machine that does much else.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A `telem proxy` over a directory that outlives it.
struct Proxy {
    server: Server,
    socket: PathBuf,
}

impl Proxy {
    fn start(dir: &Path) -> Self {
        Self::with(dir, &[])
    }

    fn with(dir: &Path, more: &[&str]) -> Self {
        Self::every(dir, "50", more)
    }

    /// With samples every so many milliseconds.
    fn every(dir: &Path, period: &str, more: &[&str]) -> Self {
        let socket = dir.join("proxy.socket");
        let mut command = telem(["proxy", "--listen", "127.0.0.1:0", "-p", "0", "-S", period, "-t"]);
        command.arg(dir.join("data")).arg("-u").arg(&socket).args(more);
        Self { server: Server::start(command), socket }
    }

    fn get(&self, path: &str) -> Json {
        self.server.get(path).expect(200).json()
    }

    fn refusal(&self, path: &str) -> String {
        let answer = self.server.get(path).expect(400).json();
        assert_eq!(answer["success"], false, "{answer}");
        answer["operation"].as_str().unwrap().to_owned()
    }

    fn client(&self, job: Option<&str>) -> Client {
        match job {
            Some(id) => Client::join(&self.socket, id),
            None => Client { stream: UnixStream::connect(&self.socket).unwrap() },
        }
    }

    /// The value of a counter of a live job; null if it has none.
    fn counter(&self, job: &str, name: &str) -> Json {
        let answer = self.server.get(&format!("/job?job={}", encoded(job)));
        if answer.status != 200 { Json::Null } else { value_of(&answer.json(), name) }
    }

    fn wait_for(&self, job: &str, name: &str, value: f64) {
        poll(&format!("{name} of {job} to be {value}"), || self.counter(job, name) == json!(value));
    }

    fn node(&self) -> String {
        let jobs = self.get("/job/list");
        let ids = jobs.as_array().unwrap().iter().map(|job| job["jobid"].as_str().unwrap().to_owned());
        ids.into_iter().find(|id| id.starts_with("Node: ")).unwrap()
    }

    fn is_live(&self, id: &str) -> bool {
        self.get("/job/list").as_array().unwrap().iter().any(|job| job["jobid"] == id)
    }

    fn wait_for_end(&self, id: &str) {
        poll(&format!("{id} to end"), || !self.is_live(id) && self.server.get(&profile_path(id)).status == 200);
    }

    fn sql(&self, text: &str) -> Json {
        self.server.sql(text).expect(200).json()
    }
}

fn profile_path(id: &str) -> String {
    format!("/profiles/get?jobid={}", encoded(id))
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn value_of(profile: &Json, name: &str) -> Json {
    let counters = profile["counters"].as_array().unwrap();
    let found = counters.iter().find(|counter| counter["name"] == name);
    found.map_or(Json::Null, |counter| match &counter["ctype"]["Counter"] {
        Json::Null => counter["ctype"]["Gauge"].clone(),
        counter => counter["value"].clone(),
    })
}

fn description(id: &str, command: &str) -> String {
    json!({"JobDesc": {"jobid": id, "command": command, "size": 4, "nodelist": "", "partition": "", "cluster": "",
        "run_dir": "/", "start_time": 0, "end_time": 0}})
    .to_string()
}

/// A connection of a client.
struct Client {
    stream: UnixStream,
}

impl Client {
    fn join(socket: &Path, job: &str) -> Self {
        let mut client = Self { stream: UnixStream::connect(socket).unwrap() };
        client.send(&description(job, "app --size 4"));
        client
    }

    fn send(&mut self, message: &str) {
        self.stream.write_all(&[message.as_bytes(), b"\0"].concat()).unwrap();
    }

    fn declare(&mut self, name: &str) {
        let counter = json!({"Counter": {"ts": 0, "value": 0.0}});
        self.send(&json!({"Desc": {"name": name, "doc": "a doc", "ctype": counter}}).to_string());
    }

    fn add(&mut self, name: &str, value: f64) {
        let counter = json!({"Counter": {"ts": 1_795_248_958_639_409_u64, "value": value}});
        self.send(&json!({"Value": {"name": name, "value": counter}}).to_string());
    }

    fn count(&mut self, name: &str, value: f64) {
        self.declare(name);
        self.add(name, value);
    }

    fn set(&mut self, name: &str, value: &str) {
        let zeros = json!({"Gauge": {"min": 0.0, "max": 0.0, "hits": 0.0, "total": 0.0}});
        self.send(&json!({"Desc": {"name": name, "doc": "a gauge", "ctype": zeros}}).to_string());
        let name = json!(name);
        self.send(&format!(
            r#"{{"Value":{{"name":{name},"value":{{"Gauge":{{"min":{value},"max":{value},"hits":1.0,"total":{value}}}}}}}}}"#
        ));
    }
}

#[test]
fn sixteen_connections_lose_nothing_in_job_node_and_everything_and_a_kill_between_two_jobs_neither() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = 0.0;
    for job in ["first", "second"] {
        let proxy = Proxy::start(dir.path());
        proxy.wait_for_sum(all);
        let (socket, counted) = (&proxy.socket, Barrier::new(17));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut client = Client::join(socket, job);
                    client.declare("hits");
                    for _ in 0..2_000 {
                        client.add("hits", 1.0);
                    }
                    // The job would end with the last of those that are faster.
                    counted.wait();
                });
            }
            proxy.wait_for(job, "hits", 32_000.0);
            counted.wait();
        });
        all += 32_000.0;
        proxy.wait_for_end(job);
        assert_eq!(value_of(&proxy.get(&profile_path(job)), "hits"), json!(32_000.0));
        assert_eq!(proxy.counter(&proxy.node(), "hits"), json!(all));
        assert_eq!(proxy.counter("main", "hits"), json!(all));
        proxy.server.kill();
    }
}

impl Proxy {
    fn wait_for_sum(&self, sum: f64) {
        if sum > 0.0 {
            self.wait_for("main", "hits", sum);
        }
    }
}

#[test]
fn a_metric_has_one_type_and_its_value_where_prometheus_looks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut client = proxy.client(Some("j"));
    client.count("c{rank=\"0\",op=\"read\"}", 12.0);
    client.set("g", "20.5");
    client.count("line\nbreak", 1.0);
    proxy.wait_for("j", "line\nbreak", 1.0);
    let answer = proxy.server.get("/metrics?job=j").expect(200);
    let text = answer.text();
    assert!(answer.header("content-type").unwrap().contains("version=0.0.4"));
    assert!(text.contains("# HELP c a doc\n# TYPE c counter\nc{rank=\"0\",op=\"read\"} 12\n"), "{text}");
    assert!(text.contains("# TYPE g gauge\ng 20.5\n") && text.contains("\nline_break 1\n"), "{text}");
    let exact = proxy.server.get("/metrics?job=j&exact=true").expect(200).text();
    assert!(exact.contains("# TYPE g counter\n") && exact.ends_with("# EOF\n"), "{exact}");
    assert_eq!(proxy.refusal("/metrics?job=none"), "No such jobid none");
}

#[test]
fn the_originals_exposition_and_its_unit_of_frequencies_are_there_for_who_wants_them() {
    let (plain, exact) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (plain, exact) = (Proxy::start(plain.path()), Proxy::with(exact.path(), &["--proxy-exact"]));
    let _clients = [&plain, &exact].map(|proxy| {
        let mut client = proxy.client(Some("j"));
        client.count("c", 12.0);
        client.set("g", "20.5");
        proxy.wait_for("j", "c", 12.0);
        client
    });
    let text = |proxy: &Proxy, path: &str| proxy.server.get(path).expect(200).text();
    let exactly = text(&exact, "/metrics?job=j");
    assert!(exactly.contains("# TYPE g counter\n") && exactly.ends_with("# EOF\n"), "{exactly}");
    assert!(text(&plain, "/metrics?job=j").contains("# TYPE g gauge\n"));
    // A machine that tells no frequency has none to compare.
    let frequency = |proxy: &Proxy| {
        let node = proxy.get(&format!("/job?job={}", encoded(&proxy.node())));
        let mut counters = node["counters"].as_array().unwrap().iter();
        let cpu = counters.find(|one| one["name"].as_str().unwrap().starts_with("proxy_cpu_frequency_ghz"))?;
        cpu["ctype"]["Gauge"]["total"].as_f64().filter(|frequency| *frequency > 0.0)
    };
    if let (Some(ghz), Some(mhz)) = (frequency(&plain), frequency(&exact)) {
        assert!((0.1..20.0).contains(&ghz) && (100.0..20_000.0).contains(&mhz), "{ghz} GHz, {mhz} MHz");
    }
}

#[test]
fn options_are_taken_as_the_original_takes_them() {
    let dir = tempfile::tempdir().unwrap();
    let start = |options: &[&str]| {
        let mut command = telem(["proxy", "--listen", "127.0.0.1:0", "-p", "0", "-t"]);
        command.arg(dir.path().join("data")).arg("-u").arg(dir.path().join("s")).args(options);
        Server::start(command)
    };
    let mut server = start(&["-m", "0.5", "-S", "1", "--inhibit-profile-agreggation", "-s", "127.0.0.1:1@0"]);
    server.wait_for_line("-S 1: values become samples every 10 ms");
    server.wait_for_line("-m limits no traces here");
    assert_eq!(server.get("/join/list").expect(200).json()[1]["period"], 10);
    // Of telem's own: where it is found the others say already, also beside another one.
    drop(server);
    let (_one, _other) = (start(&["--proxy"]), {
        let mut command = telem(["proxy", "--listen", "127.0.0.1:0", "-p", "0", "--proxy", "-t"]);
        command.arg(dir.path().join("other")).arg("-u").arg(dir.path().join("o"));
        Server::start(command)
    });
    for controller in ["-c", "--connect-to-intelligent-controller"] {
        let output = telem(["proxy", "-p", "0", controller]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("controller of the ADMIRE project"));
    }
}

#[test]
fn what_the_original_left_in_its_directory_is_there_at_once_and_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let profiles = home.path().join(".proxyprofiles/profiles");
    fs::create_dir_all(&profiles).unwrap();
    let mut left = serde_json::from_str::<Json>(&description("old", "./a")).unwrap()["JobDesc"].clone();
    (left["start_time"], left["end_time"]) = (json!(1_780_000_000), json!(1_780_000_060));
    let counter = json!({"name": "hits", "doc": "d", "ctype": {"Counter": {"ts": 1_780_000_060, "value": 7.0}}});
    fs::write(profiles.join("old.profile"), json!({"desc": left, "counters": [counter]}).to_string()).unwrap();
    // A damaged one costs itself only: with a time that no sample has, and gone behind a link.
    left["start_time"] = json!(99_999_999_999_999_999_u64);
    fs::write(profiles.join("beyond.profile"), json!({"desc": left, "counters": [counter]}).to_string()).unwrap();
    std::os::unix::fs::symlink(home.path().join("nowhere"), profiles.join("gone.profile")).unwrap();
    // Of another allocation each, as by a script.
    for slurm in ["77", "78"] {
        let socket = home.path().join("socket");
        let mut command = telem(["proxy", "--listen", "127.0.0.1:0", "-p", "0", "-u"]);
        command.arg(&socket).env("HOME", home.path()).env("SLURM_JOB_ID", slurm).env_remove("TELEM_DATA");
        let proxy = Proxy { server: Server::start(command), socket };
        assert_eq!(value_of(&proxy.get(&profile_path("old")), "hits"), json!(7.0));
        if slurm == "77" {
            let mut client = proxy.client(Some("new"));
            client.count("hits", 2.0);
            proxy.wait_for("new", "hits", 2.0);
            assert_eq!(proxy.counter("main", "hits"), json!(2.0), "what ran under the original is in no sum");
            drop(client);
            proxy.wait_for_end("new");
        }
        assert_eq!(value_of(&proxy.get(&profile_path("new")), "hits"), json!(2.0));
        let jobs =
            proxy.sql("SELECT job, max(value) AS hits FROM samples WHERE metric = 'hits' GROUP BY job ORDER BY job");
        assert_eq!(jobs, json!([{"job": "new", "hits": 2.0}, {"job": "old", "hits": 7.0}]));
        proxy.server.kill();
    }
}

#[test]
fn a_client_that_comes_soon_goes_on_with_the_run_and_the_profile_has_both() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    for (value, sum) in [(5.0, 5.0), (7.0, 12.0)] {
        let mut client = proxy.client(Some("again"));
        client.count("c", value);
        proxy.wait_for("again", "c", sum);
        drop(client);
        proxy.wait_for_end("again");
        let profile = proxy.get(&profile_path("again"));
        assert_eq!(value_of(&profile, "c"), json!(sum));
        let (start, end) =
            (profile["desc"]["start_time"].as_u64().unwrap(), profile["desc"]["end_time"].as_u64().unwrap());
        assert!(start > 1_700_000_000_000 && end >= start, "milliseconds: {profile}");
    }
    assert_eq!(proxy.get("/profiles").as_array().unwrap().len(), 1);
}

#[test]
fn the_description_is_that_of_the_first_connection_and_a_counter_may_be_called_walltime() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut first = proxy.client(Some("w"));
    first.count("walltime", 3.0);
    proxy.wait_for("w", "walltime", 3.0);
    let mut other = Client { stream: UnixStream::connect(&proxy.socket).unwrap() };
    other.send(&description("w", "another command"));
    other.count("b", 1.0);
    proxy.wait_for("w", "b", 1.0);
    drop(first);
    drop(other);
    proxy.wait_for_end("w");
    let profile = proxy.get(&profile_path("w"));
    assert_eq!(profile["desc"]["command"], "app --size 4");
    let named = profile["counters"].as_array().unwrap().iter().filter(|counter| counter["name"] == "walltime");
    assert_eq!(named.count(), 1, "the client's own is the only one");
    assert_eq!(value_of(&profile, "walltime"), json!(3.0));
}

#[test]
fn a_bad_message_is_refused_and_counted_and_costs_neither_connection_nor_job() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut client = proxy.client(Some("bad"));
    for message in ["", "{", "null", r#"{"Value":{"name":"never","value":{"Counter":{"ts":1,"value":1.0}}}}"#] {
        client.send(message);
    }
    client.set("g", "1.0");
    client.add("g", 1.0);
    client.send(&"x".repeat(70_000));
    // What older clients leave out.
    client.declare("c");
    client.send(r#"{"Value":{"name":"c","value":{"Counter":{"value":2}}}}"#);
    proxy.wait_for("bad", "c", 2.0);
    let text = proxy.server.get("/metrics").expect(200).text();
    for (reason, count) in [("malformed", 3), ("undeclared", 1), ("other_kind", 1), ("long_message", 1)] {
        assert!(
            text.contains(&format!("proxy_messages_refused_total{{reason=\"{reason}\"}} {count}\n")),
            "{reason}: {text}"
        );
    }
    // A second job on one connection ends the first one.
    client.send(&description("next", "b"));
    client.count("d", 1.0);
    proxy.wait_for("next", "d", 1.0);
    proxy.wait_for_end("bad");
    drop(client);
    proxy.wait_for_end("next");
}

#[test]
fn a_stream_without_an_end_of_a_message_takes_no_memory_and_nonsense_alone_is_hung_up_on() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut client = proxy.client(None);
    let block = vec![b'x'; 1 << 20];
    for _ in 0..256 {
        client.stream.write_all(&block).unwrap();
    }
    client.send("");
    client.count("after", 1.0);
    proxy.wait_for("main", "after", 1.0);
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.server.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 200 << 10, "{peak} kB");
    let mut fool = proxy.client(None);
    let mut ended = false;
    for _ in 0..100_000 {
        ended = fool.stream.write_all(b"nonsense\0").is_err();
        if ended {
            break;
        }
    }
    assert!(ended, "a client that sends nonsense alone is none");
}

#[test]
fn ids_are_data_whatever_they_look_like() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    let proxy = Proxy::start(dir.path());
    let path = outside.to_str().unwrap();
    for id in ["../../x", path, "a/b", "<script>alert(1)</script>", "__proto__", "tab\there"] {
        let mut client = proxy.client(Some(id));
        client.count("c", 1.0);
        proxy.wait_for(id, "c", 1.0);
        drop(client);
        proxy.wait_for_end(id);
    }
    assert!(!outside.exists() && !dir.path().join("x").exists());
    let long = "x".repeat(1_000);
    for id in ["main", "Node: elsewhere", &long] {
        let mut client = proxy.client(Some(id));
        client.count(&format!("of {}", &id[..4]), 1.0);
        proxy.wait_for("main", &format!("of {}", &id[..4]), 1.0);
    }
    let jobs = proxy.get("/job/list");
    let mains = jobs.as_array().unwrap().iter().filter(|job| job["jobid"] == "main").count();
    assert_eq!((mains, proxy.is_live(&long)), (1, false), "{jobs}");
}

#[test]
fn what_is_no_number_is_a_sample_and_never_a_null_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut client = proxy.client(Some("nan"));
    client.set("g", "null");
    client.count("c", 1.0);
    proxy.wait_for("nan", "c", 1.0);
    for call in ["/push?key=h", "/set?key=h&value=NaN"] {
        proxy.server.get(call).expect(200);
    }
    let text = proxy.server.get("/job").expect(200).text();
    assert!(!text.contains("null"), "{text}");
    assert_eq!(proxy.counter("nan", "g")["hits"], json!(0.0));
    let metrics = proxy.server.get("/metrics").expect(200).text();
    assert!(metrics.contains("\nh NaN\n"), "{metrics}");
    for metric in ["g", "h"] {
        let sql = format!("SELECT count(*) AS n FROM samples WHERE metric = '{metric}' AND isnan(value)");
        poll("its sample", || proxy.sql(&sql)[0]["n"].as_u64() > Some(0));
    }
    drop(client);
    proxy.wait_for_end("nan");
    let profile = proxy.server.get(&profile_path("nan")).expect(200);
    assert!(!profile.text().contains("null"), "{}", profile.text());
}

#[test]
fn one_client_that_adds_what_is_no_number_costs_no_other_one_its_sums() {
    let dir = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::start(dir.path());
    let (mut bad, mut good) = (proxy.client(Some("bad")), proxy.client(Some("good")));
    for client in [&mut bad, &mut good] {
        client.count("c", 1.0);
    }
    // As the original's library writes an infinity.
    bad.send(r#"{"Value":{"name":"c","value":{"Counter":{"ts":1,"value":null}}}}"#);
    bad.add("c", 2.0);
    proxy.wait_for("bad", "c", 3.0);
    good.add("c", 1.0);
    proxy.wait_for("good", "c", 2.0);
    assert_eq!(proxy.counter("main", "c"), json!(5.0));
    proxy.server.get("/push?key=h").expect(200);
    for value in ["NaN", "inf", "-inf"] {
        let refusal = proxy.refusal(&format!("/accumulate?key=h&value={value}"));
        assert!(refusal.contains("cannot be added to the counter 'h'"), "{refusal}");
    }
    proxy.server.get("/accumulate?key=h&value=2").expect(200);
    assert_eq!(proxy.counter("main", "h"), json!(2.0));
    let line = proxy.server.wait_for_line("cannot be added to the counter 'c'");
    assert!(line.contains("NaN"), "{line}");
}

#[test]
fn hundreds_of_connections_need_no_threads_of_their_own() {
    const CLIENTS: usize = 300;
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let threads = || fs::read_dir(format!("/proc/{}/task", proxy.server.id())).unwrap().count();
    let mut first = proxy.client(Some("j"));
    first.count("c", 1.0);
    proxy.wait_for("j", "c", 1.0);
    let before = threads();
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = proxy.client(Some("j"));
            client.count("c", 1.0);
            client
        })
        .collect();
    proxy.wait_for("j", "c", 1.0 + CLIENTS as f64);
    // Work that may block has some, however many ask for it.
    assert!(threads() < before + 40, "{before} threads before, {} with {CLIENTS} clients", threads());
    drop(clients);
}

#[test]
fn counters_of_http_outlive_a_kill_and_a_gauge_is_no_counter() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    for call in
        ["/push?key=kept&doc=first", "/set?key=kept&value=12.5", "/accumulate?key=kept&value=2", "/push?key=zero&doc=z"]
    {
        assert_eq!(proxy.server.get(call).expect(200).json()["success"], true, "{call}");
    }
    proxy.server.get("/push?key=").expect(200);
    proxy.server.get("/accumulate?key=&value=3").expect(200);
    let mut client = proxy.client(None);
    client.set("gauge", "4.0");
    client.count("jobless", 6.0);
    proxy.wait_for("main", "jobless", 6.0);
    assert!(proxy.refusal("/set?key=gauge&value=1").contains("gauge"));
    client.set("gauge", "5.0");
    poll("the gauge's owner to be heard still", || proxy.counter("main", "gauge")["total"] == json!(5.0));
    drop(client);
    poll("a sample of what no job sent", || {
        proxy.sql("SELECT value FROM samples WHERE metric = 'jobless'").as_array().is_some_and(|rows| !rows.is_empty())
    });
    proxy.server.kill();
    let proxy = Proxy::start(dir.path());
    assert_eq!(proxy.counter("main", "kept"), json!(14.5));
    assert_eq!(proxy.counter("main", "zero"), json!(0.0));
    assert_eq!(proxy.counter("main", ""), json!(3.0));
    assert_eq!(proxy.counter("main", "jobless"), json!(6.0));
    assert_eq!(proxy.counter(&proxy.node(), "kept"), Json::Null, "what came by HTTP is of no node");
}

#[test]
fn what_misses_is_named_and_any_form_of_a_target_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    assert!(proxy.refusal("/push").contains("'key'"));
    proxy.server.get("/push?key=a").expect(200);
    assert!(proxy.refusal("/set?key=a").contains("'value'"));
    assert!(proxy.refusal("/accumulate?value=1").contains("'key'"));
    assert_eq!(proxy.refusal("/job/nosuch"), "/job/nosuch");
    assert_eq!(proxy.refusal("/job?job=none"), "No such Job ID");
    let absolute = format!("http://{}/job/list", proxy.server.address);
    proxy.server.get(&absolute).expect(200);
    assert_eq!(proxy.get("/joblist").as_array().unwrap().len(), 2, "as its documentation calls it");
    let page = proxy.server.get("/is_admire_proxy.html").expect(200);
    assert!(page.text().contains("<html>"));
}

#[test]
fn a_job_that_was_live_at_a_kill_has_its_profile_and_its_counters_stay_in_the_sums() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut client = proxy.client(Some("killed"));
    client.count("c{rank=\"1\",op=\"x\"}", 4.0);
    client.set("g", "2.5");
    let stored = "SELECT count(*) AS n FROM samples WHERE metric IN ('c', 'g')";
    poll("samples of the job", || proxy.sql(stored)[0]["n"] == 2);
    proxy.server.kill();
    let proxy = Proxy::start(dir.path());
    assert!(!proxy.is_live("killed"));
    let profile = proxy.get(&profile_path("killed"));
    assert_eq!(value_of(&profile, "c{rank=\"1\",op=\"x\"}"), json!(4.0), "spelled as its client did: {profile}");
    assert_eq!(value_of(&profile, "g")["total"], json!(2.5));
    assert!(profile["desc"]["end_time"].as_u64() >= profile["desc"]["start_time"].as_u64());
    assert_eq!(proxy.counter("main", "c{rank=\"1\",op=\"x\"}"), json!(4.0));
    let mut client = proxy.client(Some("killed"));
    client.count("c{rank=\"1\",op=\"x\"}", 1.0);
    proxy.wait_for("killed", "c{rank=\"1\",op=\"x\"}", 5.0);
    assert_eq!(proxy.counter("main", "c{rank=\"1\",op=\"x\"}"), json!(5.0));
}

#[test]
fn nobody_who_asks_for_alarms_or_jobs_waits_for_those_who_count() {
    let seconds = std::env::var("TELEM_SECONDS").map_or(SECONDS, |seconds| seconds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let mut first = proxy.client(None);
    first.declare("work");
    first.set("load", "50.0");
    poll("what alarms are about", || proxy.counter("main", "load")["total"] == json!(50.0));
    let alarms = [("far", "work", ">", 1e18), ("some", "work", ">", 100.0), ("flutters", "load", ">", 50.0)];
    for (name, metric, operation, value) in alarms {
        let alarm = json!({"name": name, "target": "main", "metric": metric, "operation": operation, "value": value});
        let is_json = [("Content-Type", "application/json")];
        let added =
            proxy.server.connect().request("POST", "/alarms/add", &is_json, alarm.to_string().as_bytes()).unwrap();
        added.expect(200);
    }
    let (is_over, clock) = (AtomicBool::new(false), SystemClock::new());
    let until = clock.monotonic() + Duration::from_secs(seconds);
    let (socket, address, clock, is_over) = (&proxy.socket, &proxy.server.address, &clock, &is_over);
    // How often a path was asked, and the longest wait for an answer.
    let asks = move |path: &'static str| {
        let (mut connection, mut count, mut longest) = (Connection::tcp(address), 0_u64, Duration::ZERO);
        while clock.monotonic() < until {
            let asked = clock.monotonic();
            connection.request("GET", path, &[], b"").unwrap().expect(200);
            longest = longest.max(clock.monotonic() - asked);
            count += 1;
        }
        (path, count, longest)
    };
    let sent: u64 = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let mut client = Client::join(socket, ["one", "other"][writer % 2]);
                    client.declare("work");
                    for other in 0..50 {
                        client.declare(&format!("c{{n=\"{other}\"}}"));
                    }
                    let mut sent = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        client.add("work", 1.0);
                        client.add(&format!("c{{n=\"{}\"}}", sent % 50), 1.0);
                        client.set("load", &format!("{}.0", sent % 100));
                        sent += 1;
                    }
                    sent
                })
            })
            .collect();
        let paths = ["/alarms", "/alarms/list", "/job", "/job?job=main", "/job/list", "/metrics"];
        let askers: Vec<_> = paths.into_iter().map(|path| scope.spawn(move || asks(path))).collect();
        let asked: Vec<_> = askers.into_iter().map(|asker| asker.join().unwrap()).collect();
        is_over.store(true, Ordering::Relaxed);
        for (path, count, longest) in asked {
            println!("{path}: {count} answers within {seconds} s, the longest wait {longest:?}");
            assert!(count > 0 && longest < ANSWER_MAX, "{path}: {longest:?} of {count} answers");
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    proxy.wait_for("main", "work", sent as f64);
    let raised = proxy.get("/alarms")["main"].to_string();
    assert!(raised.contains("\"some\"") && !raised.contains("\"far\""), "{raised}");
    for (load, is_raised) in [("60.0", true), ("10.0", false)] {
        first.set("load", load);
        poll("the alarm to follow", || proxy.get("/alarms")["main"].to_string().contains("\"flutters\"") == is_raised);
    }
    let printed = proxy.server.terminate().1;
    for told in ["an alarm is raised", "an alarm ended"] {
        assert!(printed.iter().any(|line| line.contains(told) && line.contains("flutters")), "{told}: {printed:?}");
    }
}

#[test]
fn nobody_waits_for_the_end_of_a_job_with_many_counters() {
    const COUNTERS: usize = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::every(dir.path(), "1000", &[]);
    let mut small = proxy.client(Some("small"));
    small.count("c", 1.0);
    let mut large = proxy.client(Some("large"));
    for at in 0..COUNTERS {
        large.count(&format!("many{{n=\"{at}\"}}"), 1.0);
    }
    let last = format!("many{{n=\"{}\"}}", COUNTERS - 1);
    poll("all to be counted", || {
        let alarm = proxy.server.get(&format!("/trace/plot?jobid=large&filter={}", encoded(&last)));
        alarm.status == 200 && alarm.json().as_array().is_some_and(|points| !points.is_empty())
    });
    let (is_over, clock) = (AtomicBool::new(false), SystemClock::new());
    let (is_over, clock, address) = (&is_over, &clock, &proxy.server.address);
    let asks = |path: &'static str| {
        let (mut connection, mut longest) = (Connection::tcp(address), Duration::ZERO);
        while !is_over.load(Ordering::Relaxed) {
            let asked = clock.monotonic();
            connection.request("GET", path, &[], b"").unwrap().expect(200);
            longest = longest.max(clock.monotonic() - asked);
        }
        (path, longest)
    };
    thread::scope(|scope| {
        let paths = [
            "/job/list",
            "/alarms/list",
            "/job?job=small",
            "/metrics?job=small",
            "/profiles",
            "/push?key=pushed",
            "/trace/plot?jobid=small&filter=c",
        ];
        let askers: Vec<_> = paths.into_iter().map(|path| scope.spawn(move || asks(path))).collect();
        let began = clock.monotonic();
        drop(large);
        // Another client begins a job of its own meanwhile.
        let mut next = proxy.client(Some("next"));
        next.count("c", 1.0);
        poll("the next job", || proxy.is_live("next"));
        let joined = clock.monotonic() - began;
        proxy.wait_for_end("large");
        let took = clock.monotonic() - began;
        is_over.store(true, Ordering::Relaxed);
        println!("another job began {joined:?} after the end did, which took {took:?}");
        for (path, longest) in askers.into_iter().map(|asker| asker.join().unwrap()) {
            println!("{path}: the longest wait {longest:?} while the job ended within {took:?}");
            assert!(longest < (took / 2).max(Duration::from_secs(1)), "{path}: {longest:?} of {took:?}");
        }
    });
    let profile = proxy.get(&profile_path("large"));
    let counted = profile["counters"].as_array().unwrap().iter();
    assert_eq!(counted.filter(|counter| counter["name"].as_str().unwrap().starts_with("many{")).count(), COUNTERS);
}

#[test]
fn files_that_were_half_written_cost_themselves_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut proxy = Proxy::every(dir.path(), "3600000", &[]);
    let data = dir.path().join("data");
    for (job, value) in [("first", 5.0), ("second", 7.0)] {
        let mut client = proxy.client(Some(job));
        client.count("c", value);
        proxy.wait_for(job, "c", value);
        drop(client);
        proxy.wait_for_end(job);
        proxy.server.kill();
        // The log ends in the middle of something, and what is kept beside it holds anything.
        let wal = std::fs::read_dir(data.join("wal")).unwrap().map(|file| file.unwrap().path()).max().unwrap();
        std::fs::OpenOptions::new().append(true).open(&wal).unwrap().write_all(&[7, 0, 0, 1]).unwrap();
        std::fs::write(data.join("counters.tail"), b"anything but values").unwrap();
        proxy = Proxy::every(dir.path(), "3600000", &[]);
        assert_eq!(value_of(&proxy.get(&profile_path(job)), "c"), json!(value), "{job}");
    }
    assert_eq!(proxy.counter("main", "c"), json!(12.0));
    let printed = proxy.server.terminate().1;
    let says = |what: &str| printed.iter().any(|line| line.contains(what));
    assert!(says("counters.tail") && says("a write was cut short"), "{printed:?}");
}

#[test]
fn a_kill_long_before_the_next_samples_loses_nothing_that_is_older_than_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::every(dir.path(), "3600000", &[]);
    let values = |proxy: &Proxy, metric: &str| {
        let rows = proxy.sql(&format!("SELECT value FROM samples WHERE metric = '{metric}' ORDER BY ts"));
        rows.as_array().unwrap().iter().map(|row| row["value"].as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (mut client, mut jobless) = (proxy.client(Some("long")), proxy.client(None));
    client.count("c{rank=\"1\",op=\"x\"}", 1.0);
    client.set("g", "1.0");
    jobless.count("n", 1.0);
    for metric in ["c", "g", "n"] {
        poll("the first sample of each", || values(&proxy, metric) == [1.0]);
    }
    client.add("c{rank=\"1\",op=\"x\"}", 4.25);
    client.set("g", "7.75");
    jobless.add("n", 2.5);
    let tail = dir.path().join("data/counters.tail");
    poll("the values to be kept", || {
        let kept = std::fs::read(&tail).unwrap_or_default();
        [5.25_f64, 7.75, 3.5].iter().all(|value| kept.windows(8).any(|eight| eight == value.to_le_bytes()))
    });
    for metric in ["c", "g", "n"] {
        assert_eq!(values(&proxy, metric), [1.0], "it is no sample of {metric}");
    }
    proxy.server.kill();
    let proxy = Proxy::every(dir.path(), "3600000", &[]);
    let profile = proxy.get(&profile_path("long"));
    assert_eq!(value_of(&profile, "c{rank=\"1\",op=\"x\"}"), json!(5.25));
    assert_eq!(value_of(&profile, "g")["total"], json!(7.75));
    assert_eq!(proxy.counter("main", "c{rank=\"1\",op=\"x\"}"), json!(5.25));
    assert_eq!(proxy.counter("main", "n"), json!(3.5));
    assert_eq!(values(&proxy, "c"), [1.0, 5.25], "and now it is one");
    assert!(!tail.exists());
    // What it says now is kept, too.
    let mut jobless = proxy.client(None);
    jobless.count("n", 1.25);
    poll("the first sample of this server", || values(&proxy, "n") == [1.0, 3.5, 4.75]);
    proxy.server.kill();
    let proxy = Proxy::every(dir.path(), "3600000", &[]);
    assert_eq!(proxy.counter("main", "n"), json!(4.75));
}

#[test]
fn names_that_spell_one_series_or_none_are_counted_apart_also_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let long = "n".repeat(1_500);
    let names = [
        r#"a{x="1",y="2"}"#,
        r#"a{y="2",x="1"}"#,
        r#"a{ x="1",y="2"}"#,
        "a",
        r#"a{job.slot="0"}"#,
        r#"a{proxy.name="a"}"#,
        r#"v{w="line\nbreak"}"#,
        "tab\there",
        "",
        &long,
    ];
    let value = |at: usize| (at + 1) as f64;
    let proxy = Proxy::start(dir.path());
    let (mut client, mut jobless) = (proxy.client(Some("odd")), proxy.client(None));
    for (at, name) in names.iter().enumerate() {
        client.count(name, value(at));
        jobless.count(name, 100.0 * value(at));
    }
    let counts = |proxy: &Proxy, factor: f64, more: f64| {
        for (at, name) in names.iter().enumerate() {
            proxy.wait_for("main", name, factor * value(at) + more);
        }
    };
    counts(&proxy, 101.0, 0.0);
    for (lane, factor) in [("tags['job.slot'] IS NOT NULL", 1.0), ("tags['proxy.lane'] = 'jobless'", 100.0)] {
        let expected: Vec<Json> = (0..names.len()).map(|at| json!({"value": factor * value(at)})).collect();
        let sql = format!("SELECT DISTINCT value FROM samples WHERE {lane} ORDER BY value");
        poll("a sample of each", || proxy.sql(&sql) == Json::from(expected.clone()));
        let series = format!("SELECT count(*) AS n FROM (SELECT DISTINCT metric, tags FROM samples WHERE {lane})");
        assert_eq!(proxy.sql(&series)[0]["n"], json!(names.len()), "{lane}");
    }
    let traces = |proxy: &Proxy, job: &str, factor: f64| {
        for (at, name) in names.iter().enumerate() {
            let points = proxy.get(&format!("/trace/plot?jobid={job}&filter={}", encoded(name)));
            assert_eq!(points.as_array().unwrap().last().unwrap()[1], json!(factor * value(at)), "{name}: {points}");
        }
    };
    traces(&proxy, "odd", 1.0);
    proxy.server.kill();
    let proxy = Proxy::start(dir.path());
    counts(&proxy, 101.0, 0.0);
    traces(&proxy, "odd", 1.0);
    traces(&proxy, "main", 101.0);
    let profile = proxy.get(&profile_path("odd"));
    for (at, name) in names.iter().enumerate() {
        assert_eq!(value_of(&profile, name), json!(value(at)), "{name}: {profile}");
    }
    // Each goes on with the series that it has.
    let mut client = proxy.client(Some("odd"));
    for (at, name) in names.iter().enumerate().rev() {
        client.count(name, 1.0);
        proxy.wait_for("odd", name, value(at) + 1.0);
    }
    counts(&proxy, 101.0, 1.0);
    drop(client);
    proxy.wait_for_end("odd");
    proxy.server.kill();
    let proxy = Proxy::start(dir.path());
    counts(&proxy, 101.0, 1.0);
}

#[test]
fn who_has_the_socket_already_is_named_and_so_is_what_stands_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let refusal = |socket: &Path| {
        let mut second = telem(["proxy", "--listen", "127.0.0.1:0", "-p", "0", "-t"]);
        let output = second.arg(dir.path().join("second")).arg("-u").arg(socket).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let served = refusal(&proxy.socket);
    let expected = format!("is served by process {} already; end it, or take another place", proxy.server.id());
    assert!(served.contains(&expected) && served.contains("telem proxy -u PATH"), "{served}");
    let file = dir.path().join("precious");
    std::fs::write(&file, "data").unwrap();
    let occupied = refusal(&file);
    assert!(occupied.contains("is no socket, and in the way of one; take another place"), "{occupied}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
}

#[test]
fn a_link_that_is_called_as_the_original_is_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("proxy_v2");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_telem"), &link).unwrap();
    let mut command = Command::new(&link);
    command.args(["--listen", "127.0.0.1:0", "-p", "0", "-t"]).arg(dir.path().join("data"));
    command.arg("-u").arg(dir.path().join("socket"));
    let server = Server::start(command);
    assert_eq!(server.get("/job/list").expect(200).json()[0]["jobid"], "main");
    let printed = server.terminate().1;
    assert!(printed.iter().any(|line| line.starts_with("only this machine reaches it; --listen")), "{printed:?}");
}

#[test]
fn jobs_that_share_a_node_are_apart_in_sql() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(dir.path());
    let (mut one, mut other) = (proxy.client(Some("one")), proxy.client(Some("other")));
    one.count("c", 1.0);
    other.count("c", 2.0);
    proxy.wait_for("main", "c", 3.0);
    drop(one);
    drop(other);
    proxy.wait_for_end("one");
    proxy.wait_for_end("other");
    let rows = proxy.sql("SELECT job, max(value) AS value FROM samples WHERE metric = 'c' GROUP BY job ORDER BY job");
    assert_eq!(rows, json!([{"job": "one", "value": 1.0}, {"job": "other", "value": 2.0}]));
    let jobs = proxy.sql("SELECT job FROM jobs WHERE job IN ('one', 'other') ORDER BY job");
    assert_eq!(jobs, json!([{"job": "one"}, {"job": "other"}]));
}

#[test]
fn many_short_jobs_have_no_more_series_than_few_and_each_has_its_own_samples_and_profile() {
    // As many as wait for a client to come back, and eight more.
    const JOBS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::every(dir.path(), "1000", &[]);
    let mut all = 0.0;
    for job in 1..=JOBS {
        let (id, value) = (format!("short-{job}"), job as f64);
        let mut client = proxy.client(Some(&id));
        client.count("c", value);
        all += value;
        proxy.wait_for("main", "c", all);
        drop(client);
        proxy.wait_for_end(&id);
    }
    let rows =
        proxy.sql("SELECT job, max(value) AS value, count(*) AS samples FROM samples WHERE metric = 'c' GROUP BY job");
    let rows: Vec<&Json> = rows.as_array().unwrap().iter().collect();
    assert_eq!(rows.len(), JOBS);
    for job in 1..=JOBS {
        let (id, value) = (format!("short-{job}"), job as f64);
        assert!(rows.iter().any(|row| row["job"] == *id && row["value"] == value), "{id}: {rows:?}");
        assert_eq!(value_of(&proxy.get(&profile_path(&id)), "c"), json!(value), "{id}");
    }
    let series = proxy.sql("SELECT count(DISTINCT tags['job.slot']) AS series FROM samples WHERE metric = 'c'");
    assert_eq!(series[0]["series"], json!(33));
    // The last one goes on, and of the first there is another run.
    for (id, sum) in [("short-40", 41.0), ("short-1", 1.0)] {
        let mut client = proxy.client(Some(id));
        client.count("c", 1.0);
        proxy.wait_for(id, "c", sum);
        drop(client);
        proxy.wait_for_end(id);
        assert_eq!(value_of(&proxy.get(&profile_path(id)), "c"), json!(sum), "{id}");
    }
    assert_eq!(proxy.get("/profiles").as_array().unwrap().len(), JOBS, "the latest of each");
    assert_eq!(proxy.counter("main", "c"), json!(all + 2.0));
    proxy.server.kill();
    let proxy = Proxy::start(dir.path());
    assert_eq!(proxy.counter("main", "c"), json!(all + 2.0), "after a kill");
    assert_eq!(value_of(&proxy.get(&profile_path("short-7")), "c"), json!(7.0), "after a kill");
}

#[test]
fn a_program_below_telem_run_finds_the_socket_and_its_counters_are_the_jobs() {
    let place = Place::new();
    let program = r#"
import json, os, socket
client = socket.socket(socket.AF_UNIX)
client.connect(os.environ["PROXY_PATH"])
def send(value): client.sendall(json.dumps(value).encode() + b"\0")
send({"JobDesc": {"jobid": os.environ["PROXY_JOB_ID"], "command": "x", "size": 1, "nodelist": "", "partition": "",
      "cluster": "", "run_dir": "", "start_time": 0, "end_time": 0}})
send({"Desc": {"name": "seen", "doc": "d", "ctype": {"Counter": {"ts": 0, "value": 0.0}}}})
send({"Value": {"name": "seen", "value": {"Counter": {"ts": 1, "value": 7.0}}}})
client.close()
"#;
    let output = place.output(&["--save", "out", "--job", "j7"], &["python3", "-c", program]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut sql = telem(["sql", "out", "SELECT tags, value FROM samples WHERE metric = 'seen'", "--format", "json"]);
    place.at_home(&mut sql);
    let rows = String::from_utf8(sql.output().unwrap().stdout).unwrap();
    assert!(rows.contains("7.0") && !rows.contains("proxy."), "it is the job's own: {rows}");
}

#[test]
fn the_job_of_telem_run_is_listed_without_a_client_and_has_a_profile_when_it_ended() {
    let place = Place::new();
    let program = r#"
import http.client, json, os, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["TELEM_SOCKET"])
def ask(path):
    connection = Unix("localhost")
    connection.request("GET", path)
    return json.load(connection.getresponse())
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    jobs = {job["jobid"]: job for job in ask("/job/list")}
    if "j8" in jobs:
        break
print(json.dumps([jobs.get("j8"), [counter["name"] for counter in ask("/job?job=j8")["counters"]]]))
"#;
    let output = place.output(&["--save", "out", "--job", "j8"], &["python3", "-c", program]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let told: Json = serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let (job, names) = (&told[0], told[1].as_array().unwrap());
    assert!(job["command"].as_str().unwrap().starts_with("python3 -c"), "{job}");
    assert_eq!((&job["size"], &job["end_time"]), (&json!(1), &json!(0)), "{job}");
    assert!(!job["nodelist"].as_str().unwrap().is_empty() && job["start_time"].as_u64() > Some(1_700_000_000_000));
    assert!(names.contains(&json!("proxy_cpu_total")), "what its node is like belongs to it: {names:?}");
    let mut replay = telem(["replay", "out", "--listen", "127.0.0.1:0"]);
    place.at_home(&mut replay);
    let replay = Server::start(replay);
    let profile = replay.get("/profiles/get?jobid=j8").expect(200).json();
    assert_eq!(profile["desc"]["command"], job["command"]);
    assert!(profile["desc"]["end_time"].as_u64() >= job["start_time"].as_u64(), "{profile}");
    assert_eq!(value_of(&profile, "proxy_cpu_total")["hits"], 1.0, "{profile}");
    let listed = replay.get("/job/list").expect(200).json();
    assert!(listed.as_array().unwrap().iter().all(|job| job["jobid"] != "j8"), "it is over: {listed}");
}

#[test]
fn a_saved_trace_has_its_samples_wherever_it_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    // The server is of the one job, and the other one shares it.
    let proxy = Proxy::every(dir.path(), "20", &["--node", "elsewhere", "--job", "own"]);
    let name = |job: &str| format!("c_{job}");
    for job in ["own", "other"] {
        let (mut client, mut jobless) = (proxy.client(Some(job)), proxy.client(None));
        for (value, sum) in [(1.0, 1.0), (3.0, 4.0)] {
            client.count(&name(job), value);
            jobless.count("d", value);
            // A replay plots one value a second.
            let old = format!("SELECT max(value) AS v FROM samples WHERE metric = '{}' AND ts < '1s-ago'", name(job));
            poll("the sum to be a sample of a second ago", || proxy.sql(&old)[0]["v"] == json!(sum));
        }
        drop(client);
        proxy.wait_for_end(job);
    }
    proxy.wait_for("main", "d", 8.0);
    let told = |server: &Server| {
        let points = |job: &str, of: &str| -> Vec<f64> {
            let path = format!("/trace/plot?jobid={job}&filter={}", name(of));
            let points = server.get(&path).expect(200).json();
            let values = points.as_array().unwrap().iter().map(|point| point[1].as_f64().unwrap());
            let mut values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
            values.dedup();
            values
        };
        let traces = ["own", "other"].map(|job| (points(job, job), points("main", job)));
        let sums = server.get("/job?job=main").expect(200).json();
        (traces, value_of(&sums, "d"))
    };
    let both = || (vec![1.0, 4.0], vec![1.0, 4.0]);
    assert_eq!(told(&proxy.server), ([both(), both()], json!(8.0)));
    assert!(proxy.server.terminate().0.success());
    let replay = Server::replay([dir.path().join("data")], &[]);
    assert_eq!(told(&replay), ([both(), both()], json!(8.0)));
}

/// The files of a database, by their paths, with their bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                // What is being written may go while it is looked at.
                false => drop(fs::read(entry.path()).map(|bytes| files.insert(entry.path(), bytes))),
            }
        }
    }
    files
}

#[test]
fn a_trace_is_never_written_over_and_is_whole_wherever_a_merge_of_its_files_was_killed() {
    const RUNS: u32 = 4;
    let dir = tempfile::tempdir().unwrap();
    for run in 1..=RUNS {
        let proxy = Proxy::every(dir.path(), "20", &[]);
        let mut client = proxy.client(Some("long"));
        client.count("c", 1.0);
        proxy.wait_for("long", "c", f64::from(run));
        poll("the sum to be a sample", || {
            proxy.sql("SELECT max(value) AS v FROM samples WHERE metric = 'c'")[0]["v"] == json!(f64::from(run))
        });
        drop(client);
        proxy.wait_for_end("long");
        assert!(proxy.server.terminate().0.success());
    }
    let data = dir.path().join("data");
    let is_segment = |path: &Path| path.extension().is_some_and(|end| end == "parquet");
    let before: BTreeMap<_, _> = files(&data).into_iter().filter(|(path, _)| is_segment(path)).collect();
    assert!(before.len() >= RUNS as usize, "{:?}", before.keys());
    let trace = |data: &Path| {
        let server = Server::replay([data], &[]);
        let samples = server.sql("SELECT ts, value FROM samples WHERE metric = 'c' ORDER BY ts").expect(200).json();
        // A replay plots one value a second.
        let plotted = server.get("/trace/plot?jobid=long&filter=c").expect(200).json();
        (samples, plotted)
    };
    let whole = trace(&data);
    assert_eq!(whole.0.as_array().unwrap().last().unwrap()["value"], json!(f64::from(RUNS)));
    // Killed when the files have changed once, twice, and so on, until it ends before that.
    let mut kills = 0;
    for changes in 1.. {
        let copy = tempfile::tempdir().unwrap();
        copy_all(&data, copy.path());
        let mut merge = telem(["compact"]).arg(copy.path()).stdout(Stdio::null()).spawn().unwrap();
        let mut seen = files(copy.path());
        let mut changed = 0;
        let ended = loop {
            if let Some(status) = merge.try_wait().unwrap() {
                break Some(status);
            }
            let now = files(copy.path());
            if now != seen {
                (seen, changed) = (now, changed + 1);
            }
            if changed == changes {
                merge.kill().unwrap();
                merge.wait().unwrap();
                break None;
            }
        };
        for (path, bytes) in files(copy.path()) {
            let known = before.get(&data.join(path.strip_prefix(copy.path()).unwrap()));
            assert!(known.is_none_or(|known| *known == bytes), "{} is another file now", path.display());
        }
        assert_eq!(trace(copy.path()), whole, "killed after {changes} changes");
        match ended {
            Some(status) => {
                assert!(status.success(), "{status}");
                break;
            }
            None => kills += 1,
        }
    }
    assert!(kills > 0, "it was never killed");
}
