//! Many nodes: real agents and real heads on loopback, which start, stop and come back.

mod counters;
mod export;
mod faults;
mod forward;
mod hangup;
mod page;

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value as Json, json};
use telem_server::tls::Certificate;
use tempfile::TempDir;

use crate::process::{Connection, SOON, Server, free_port, poll, telem};

/// A place for a job: its join file, and the data of its processes.
struct Job {
    dir: TempDir,
}

impl Job {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn join_file(&self) -> PathBuf {
        self.path("join")
    }

    /// `telem serve` as the head of job 7.
    fn head(&self, more: &[&str]) -> Server {
        self.head_at(&format!("127.0.0.1:{}", free_port()), "head", more)
    }

    fn head_at(&self, listen: &str, data: &str, more: &[&str]) -> Server {
        self.head_of("1", listen, data, more)
    }

    /// One that wants this level of its nodes.
    fn head_of(&self, level: &str, listen: &str, data: &str, more: &[&str]) -> Server {
        let mut command = telem(["serve", "--level", level, "--job", "7", "--node", "head", "--listen", listen]);
        command.arg("--data").arg(self.path(data)).arg("--join-file").arg(self.join_file()).args(more);
        Server::start(command)
    }

    /// `telem node`, which asks for the name `node` and has its data in a directory `data`.
    fn agent(&self, node: &str, data: &str) -> Server {
        Server::start(self.agent_command(node, data))
    }

    fn agent_command(&self, node: &str, data: &str) -> std::process::Command {
        let mut command = telem(["-v", "node", "--node", node]);
        command.arg("--data").arg(self.path(data)).arg("--join").arg(self.join_file());
        command
    }

    /// Starts an agent that is to end by itself; all that it says.
    fn refused_agent(&self, node: &str) -> String {
        let output = self.agent_command(node, node).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The join file with one field changed.
    fn change_join(&self, field: &str, value: Json) {
        let path = self.join_file();
        let mut join: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        join[field] = value;
        std::fs::write(&path, join.to_string()).unwrap();
    }
}

fn nodes(head: &Server) -> Vec<Json> {
    head.get("/api/nodes").expect(200).json().as_array().unwrap().clone()
}

/// Name and state of all nodes, as `head head up, n1 up`.
fn states(head: &Server) -> String {
    let text = |node: &Json| {
        let role = if node["is_head"].as_bool().unwrap() { "head " } else { "" };
        format!("{role}{} {}", node["node"].as_str().unwrap(), node["state"].as_str().unwrap())
    };
    nodes(head).iter().map(text).collect::<Vec<_>>().join(", ")
}

fn wait_for_states(head: &Server, expected: &str) {
    poll(expected, || states(head) == expected);
}

/// One sample of the metric `loss`, at a time and with a tag of its own.
fn put(node: &Server, rank: u32) {
    let sample =
        json!({"metric": "loss", "timestamp": 1_767_225_600 + rank, "value": rank, "tags": {"rank": rank.to_string()}});
    node.post("/api/put", &sample).expect(204);
}

/// Which ranks each node has, as the head answers it: `n1 0, n1 2`.
fn ranks(head: &Server) -> String {
    let answer = head.sql("SELECT node, rank FROM loss ORDER BY rank");
    if answer.status != 200 {
        return answer.text();
    }
    let row = |row: &Json| format!("{} {}", row["node"].as_str().unwrap(), row["rank"].as_str().unwrap());
    answer.json().as_array().unwrap().iter().map(row).collect::<Vec<_>>().join(", ")
}

fn wait_for_ranks(head: &Server, expected: &str) {
    poll(expected, || ranks(head) == expected);
}

/// `telem ARGS` with what a connection file says.
fn told(args: &[&str], connection_file: &Path) -> Output {
    telem(args).env("TELEM_CONNECTION", connection_file).output().unwrap()
}

#[test]
fn agents_join_are_listed_and_answer_for_what_they_have() {
    let job = Job::new();
    let head = job.head(&[]);
    let (one, two) = (job.agent("N1", "a"), job.agent("n1", "b"));
    wait_for_states(&head, "head head up, n1 up, n1-2 up");
    put(&head, 0);
    put(&one, 1);
    put(&two, 2);
    let name = |url: &str| {
        let listed = nodes(&head);
        let found = listed.iter().find(|node| node["url"].as_str().unwrap().contains(url));
        found.unwrap_or_else(|| panic!("{url} in {listed:?}"))["node"].as_str().unwrap().to_owned()
    };
    let expected = format!("head 0, {} 1, {} 2", name(&one.address), name(&two.address));
    wait_for_ranks(&head, &expected);
    let jobs = || head.sql("SELECT DISTINCT job FROM loss").expect(200).json();
    poll("all samples in the job of the head", || jobs() == json!([{"job": "7"}]));
    poll("a report with figures", || nodes(&head).iter().all(|node| node["samples"] == 1));
    // Beside the first report it is not known yet how long one takes.
    poll("clocks to be compared", || nodes(&head)[1..].iter().all(|node| node["clock_offset_us"].is_i64()));
    for node in &nodes(&head)[1..] {
        assert!(node["clock_offset_us"].as_i64().unwrap().abs() < 1_000_000, "{node}");
        assert!(node["lag_ms"].as_i64().unwrap() > 0 && node["memory_bytes"].as_u64().unwrap() > 1 << 20, "{node}");
    }
    let table = telem(["nodes", &format!("http://{}", head.address)]).output().unwrap();
    let text = String::from_utf8(table.stdout).unwrap();
    assert!(table.status.success() && text.lines().count() == 4 && text.contains("n1-2"), "{text}");
    let info = |more: &[&str]| {
        let output = telem(["info", &format!("http://{}", head.address)]).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = info(&[]);
    for part in [
        "\nsamples    1,",
        "\n\nThat is what head itself has. Other nodes,",
        "\n  n1: up, 1 sample, 1 series, ",
        "\n  n1-2: up, 1 sample, 1 series, ",
        "\nAll 3 nodes: 3 samples, 3 series",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Json = serde_json::from_str(&info(&["--json"])).unwrap();
    assert_eq!((&json["samples"], json["other_nodes"].as_array().unwrap().len()), (&json!(1), 2), "{json}");
    assert_eq!(json["other_nodes"][1]["node"], "n1-2", "{json}");
}

#[test]
fn a_node_without_a_series_is_missed_by_nobody_who_asks_for_one() {
    let job = Job::new();
    let head = job.head(&[]);
    let (one, two) = (job.agent("n1", "a"), job.agent("n2", "b"));
    put(&one, 1);
    wait_for_ranks(&head, "n1 1");
    poll("the head to know that n2 has nothing", || {
        !head.sql("EXPLAIN SELECT node FROM loss").expect(200).text().contains("n2")
    });
    two.kill();
    wait_for_states(&head, "head head up, n1 up, n2 suspect");
    let answer = head.sql("SELECT node, rank FROM loss").expect(200);
    assert_eq!((answer.json(), answer.header("x-telem-missing")), (json!([{"node": "n1", "rank": "1"}]), None));
    // Who asks for whatever there is hears of it.
    let answer = head.sql("SELECT count(*) AS n FROM samples").expect(200);
    assert!(answer.header("x-telem-missing").is_some_and(|missing| missing.starts_with("n2=")), "{answer:?}");
}

#[test]
fn an_agent_that_was_killed_is_missed_and_has_its_name_and_samples_again_when_it_is_back() {
    let job = Job::new();
    let head = job.head(&[]);
    let agent = job.agent("n1", "a");
    put(&agent, 1);
    wait_for_ranks(&head, "n1 1");
    agent.kill();
    wait_for_states(&head, "head head up, n1 suspect");
    let answer = head.sql("SELECT node, rank FROM loss").expect(200);
    let missing = answer.header("x-telem-missing").unwrap_or_default();
    assert!(missing.starts_with("n1=") && answer.json() == json!([]), "{missing} {}", answer.text());
    let listing = telem(["nodes", &format!("http://{}", head.address)]).output().unwrap();
    assert_eq!(listing.status.code(), Some(1), "a node is not there");
    let strict = head.connect().request("POST", "/api/sql?strict=true", &[], b"SELECT node FROM loss").unwrap();
    let refused = strict.expect(503).text();
    assert!(refused.contains("n1 (") && refused.contains(") would be missing from the answer"), "{refused}");
    let url = format!("http://{}", head.address);
    for (words, succeeds) in [
        (&["sql", &url, "SELECT node FROM loss"][..], true),
        (&["sql", &url, "SELECT node FROM loss", "--strict"], false),
    ] {
        let output = telem(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() == succeeds && said.contains("n1"), "{words:?}: {said}");
    }
    let again = job.agent("other", "a");
    wait_for_states(&head, "head head up, n1 up");
    put(&again, 2);
    wait_for_ranks(&head, "n1 1, n1 2");
}

#[test]
fn a_node_whose_host_name_changes_case_is_the_same_node() {
    let job = Job::new();
    let head = job.head(&[]);
    let agent = job.agent("Node-A.Example", "a");
    put(&agent, 1);
    wait_for_ranks(&head, "node-a.example 1");
    agent.kill();
    let again = job.agent("NODE-a.example", "a");
    put(&again, 2);
    wait_for_ranks(&head, "node-a.example 1, node-a.example 2");
    assert_eq!(states(&head), "head head up, node-a.example up");
}

#[test]
fn a_head_that_is_told_to_stop_is_gone_within_five_seconds_whatever_its_nodes_do() {
    let job = Job::new();
    let mut head = job.head(&[]);
    let agents = ["n1", "n2"].map(|node| job.agent(node, node));
    wait_for_states(&head, "head head up, n1 up, n2 up");
    let stopped = rustix::process::Pid::from_raw(i32::try_from(agents[0].id()).unwrap()).unwrap();
    rustix::process::kill_process(stopped, rustix::process::Signal::STOP).unwrap();
    let (socket, file) = (head.socket(), head.connection_file());
    let clock = telem_engine::SystemClock::new();
    let (status, said) = head.terminate();
    let took = telem_engine::Clock::monotonic(&clock);
    assert!(status.success() && took < SOON, "{took:?} {said:?}");
    assert!(!socket.exists() && !file.exists() && !job.join_file().exists());
}

#[test]
fn agents_work_on_without_their_head_and_are_there_again_for_the_next() {
    let job = Job::new();
    let head = job.head(&[]);
    let agent = job.agent("n1", "a");
    wait_for_states(&head, "head head up, n1 up");
    head.kill();
    put(&agent, 1);
    // Killed, it left the join file: the next head has the same secrets, at another port.
    let head = job.head(&[]);
    wait_for_ranks(&head, "n1 1");
    // Ended in order, it took the join file along: the next one has other secrets, and the agent serves with those.
    assert!(head.terminate().0.success());
    put(&agent, 2);
    let head = job.head(&[]);
    wait_for_ranks(&head, "n1 1, n1 2");
    assert_eq!(states(&head), "head head up, n1 up");
}

#[test]
fn an_agent_begins_without_a_head_and_joins_when_there_is_one() {
    let job = Job::new();
    let head = job.head(&[]);
    head.kill();
    let agent = job.agent("n1", "a");
    put(&agent, 1);
    let head = job.head(&[]);
    wait_for_ranks(&head, "n1 1");
}

#[test]
fn an_agent_waits_for_its_join_file_and_joins_a_job_that_runs() {
    let job = Job::new();
    let mut command = job.agent_command("n1", "a");
    let early = std::thread::spawn(move || Server::start(command));
    let head = job.head(&[]);
    put(&head, 0);
    let early = early.join().unwrap();
    wait_for_states(&head, "head head up, n1 up");
    let late = job.agent("n2", "b");
    put(&early, 1);
    put(&late, 2);
    wait_for_ranks(&head, "head 0, n1 1, n2 2");
    command = job.agent_command("n3", "c");
    let join = std::fs::File::open(job.join_file()).unwrap();
    let args: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let mut by_stdin = telem(args.iter().map(|arg| if *arg == job.join_file() { "-".into() } else { arg.clone() }));
    let mut by_stdin = by_stdin.stdin(join).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_for_states(&head, "head head up, n1 up, n2 up, n3 up");
    by_stdin.kill().unwrap();
    by_stdin.wait().unwrap();
}

#[test]
fn who_has_no_right_to_join_is_refused_told_why_and_logged() {
    let job = Job::new();
    let mut head = job.head(&[]);
    job.change_join("token", json!("a wrong token, long enough"));
    let said = job.refused_agent("n1");
    assert!(said.contains("401") && said.contains("need its token"), "{said}");
    head.wait_for_line("a node with a wrong token was refused");
    job.change_join("version", json!("9.9.9"));
    let said = job.refused_agent("n1");
    assert!(said.contains("telem 9.9.9"), "{said}");
    assert_eq!(states(&head), "head head up");
    // What an agent of that version would have asked.
    let file = std::fs::read_to_string(head.connection_file()).unwrap();
    let token = serde_json::from_str::<Json>(&file).unwrap()["token"].as_str().unwrap().to_owned();
    let ask = |field: &str, value: Json| {
        let mut request = json!({
            "job": "7", "version": env!("CARGO_PKG_VERSION"), "node": "n1", "is_fixed": false, "home": "h",
            "incarnation": "i", "url": "http://127.0.0.1:1", "pid": 1, "host": "h", "data": "/d", "now_us": 0
        });
        request[field] = value;
        let token = format!("Bearer {token}");
        let headers = [("Authorization", token.as_str())];
        let body = request.to_string();
        head.connect().request("POST", "/api/nodes/join", &headers, body.as_bytes()).unwrap()
    };
    assert!(ask("version", json!("9.9.9")).expect(409).text().contains("runs telem 9.9.9"));
    assert!(ask("job", json!("8")).expect(409).text().contains("job '8', and this is the head of job '7'"));
    assert!(ask("url", json!("nowhere")).expect(400).text().contains("nowhere"));
    assert_eq!(head.post("/api/nodes/join", &json!({})).status, 401, "our own user needs the token too");
    assert_eq!(head.connect().request("POST", "/worker.WorkerService/x", &[], b"").unwrap().status, 401);
    head.wait_for_line("a node was refused");
}

#[test]
fn of_two_heads_an_agent_stays_with_the_first_until_that_is_gone() {
    let job = Job::new();
    let first = job.head(&[]);
    let agent = job.agent("n1", "a");
    put(&agent, 1);
    wait_for_ranks(&first, "n1 1");
    let second = job.head_at("127.0.0.1:0", "second", &[]);
    assert_eq!((states(&first), states(&second)), ("head head up, n1 up".to_owned(), "head head up".to_owned()));
    first.kill();
    wait_for_ranks(&second, "n1 1");
}

#[test]
fn a_second_head_at_the_join_file_of_one_that_lives_warns_and_gives_it_back_at_its_end() {
    let job = Job::new();
    let first = job.head(&[]);
    let file = std::fs::read(job.join_file()).unwrap();
    let mut second = job.head_at("127.0.0.1:0", "second", &[]);
    let warning = second.wait_for_line("the join file is that of another head, which lives");
    assert!(warning.contains("WARN") && warning.contains(&format!("pid={}", first.id())), "{warning}");
    assert_ne!(std::fs::read(job.join_file()).unwrap(), file);
    assert!(second.terminate().0.success());
    assert_eq!(std::fs::read(job.join_file()).unwrap(), file);
    let _agent = job.agent("n1", "a");
    wait_for_states(&first, "head head up, n1 up");
    // One that is gone by then does not get it back.
    let second = job.head_at("127.0.0.1:0", "second", &[]);
    first.kill();
    assert!(second.terminate().0.success());
    assert!(!job.join_file().exists());
}

#[test]
fn an_agent_that_is_told_to_stop_stores_says_farewell_and_leaves_nothing_behind() {
    let job = Job::new();
    let head = job.head(&[]);
    let mut agent = job.agent("n1", "a");
    put(&agent, 1);
    let (socket, file) = (agent.socket(), agent.connection_file());
    assert!(socket.exists() && file.exists());
    wait_for_states(&head, "head head up, n1 up");
    let clock = telem_engine::SystemClock::new();
    let (status, printed) = agent.terminate();
    let took = telem_engine::Clock::monotonic(&clock);
    assert!(status.success() && took < SOON, "{took:?} {printed:?}");
    assert!(printed.iter().any(|line| line == "ended: stopped"), "{printed:?}");
    assert!(!socket.exists() && !file.exists());
    assert_eq!(states(&head), "head head up, n1 left");
    let info = telem(["info", "--json"]).arg(job.path("a")).output().unwrap();
    let info: Json = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!((&info["samples"], &info["samples_unflushed"]), (&json!(1), &json!(0)), "{info}");
    let answer = head.sql("SELECT node FROM loss").expect(200);
    assert_eq!(answer.header("x-telem-missing"), Some("n1=left: stopped"));
    let (status, _) = head.terminate();
    assert!(status.success() && !job.join_file().exists(), "the join file goes with its head");
}

#[test]
fn an_agent_ends_when_its_head_has_been_gone_for_as_long_as_was_said() {
    let job = Job::new();
    let head = job.head(&["--head-gone-timeout", "500ms"]);
    let agent = job.agent("n1", "a");
    wait_for_states(&head, "head head up, n1 up");
    head.kill();
    let (status, printed) = agent.ended();
    assert!(status.success() && printed.iter().any(|line| line.contains("there has been no head")), "{printed:?}");
}

#[test]
fn an_agent_whose_standard_input_ends_stays_as_long_as_there_is_a_head() {
    let job = Job::new();
    let head = job.head(&[]);
    let text = std::fs::read(job.join_file()).unwrap();
    let start = |node: &str, orphan_timeout: Json| {
        let mut join: Json = serde_json::from_slice(&text).unwrap();
        join["orphan_timeout"] = orphan_timeout;
        let mut command = telem(["node", "--join", "-", "--node", node]);
        command.arg("--data").arg(job.path(node)).stdin(std::process::Stdio::piped());
        let mut agent = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut input = agent.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, join.to_string().as_bytes()).unwrap();
        (agent, input)
    };
    let (mut heeds, input) = start("n1", json!(0.0));
    let (mut heeds_not, other_input) = start("n2", Json::Null);
    let (mut holds, _held) = start("n3", json!(0.0));
    wait_for_states(&head, "head head up, n1 up, n2 up, n3 up");
    drop((input, other_input));
    let sample = json!({"metric": "loss", "timestamp": 1_767_225_600, "value": 1, "tags": {"rank": "0"}}).to_string();
    for node in &nodes(&head)[1..] {
        let address = node["url"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned();
        Connection::tcp(&address).request("POST", "/api/put", &[], sample.as_bytes()).unwrap().expect(204);
    }
    poll("reports of all after that", || nodes(&head)[1..].iter().all(|node| node["samples"] == 1));
    head.kill();
    let mut status = None;
    poll("the orphan to end", || {
        status = heeds.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
    for agent in [&mut heeds_not, &mut holds] {
        assert!(agent.try_wait().unwrap().is_none(), "it was told otherwise, or its input is open");
        agent.kill().unwrap();
        agent.wait().unwrap();
    }
}

#[test]
fn a_head_on_ipv6_is_found() {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let job = Job::new();
    let head = job.head_at("[::1]:0", "head", &[]);
    let _agent = job.agent("n1", "a");
    wait_for_states(&head, "head head up, n1 up");
}

#[test]
fn beyond_loopback_a_job_speaks_tls_with_a_certificate_of_its_own() {
    let job = Job::new();
    let mut head = job.head_at("0.0.0.0:0", "head", &[]);
    let port = head.address.rsplit(':').next().unwrap().to_owned();
    let url = format!("https://{}", head.address);
    // On this machine nobody needs TLS.
    head.address = format!("127.0.0.1:{port}");
    let agent_needs = |agent: &mut Server| {
        let port = agent.address.rsplit(':').next().unwrap().to_owned();
        agent.address = format!("127.0.0.1:{port}");
    };
    let mut agent = job.agent("n1", "a");
    agent_needs(&mut agent);
    put(&agent, 1);
    wait_for_ranks(&head, "n1 1");
    assert!(nodes(&head)[1]["url"].as_str().unwrap().starts_with("https://"));
    let connection = head.connection_file();
    let rows = told(&["sql", &url, "SELECT node, rank FROM loss", "--format", "csv"], &connection);
    assert_eq!(String::from_utf8_lossy(&rows.stdout), "node,rank\nn1,1\n", "{rows:?}");
    let strange = telem(["nodes", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&strange.stderr).into_owned();
    assert!(!strange.status.success() && said.contains("is not trusted") && said.contains("--tls-ca"), "{said}");
    // Who comes from elsewhere and speaks plainly would show the token to everybody.
    let elsewhere = url.trim_start_matches("https://");
    if let Ok(mut addresses) = std::net::ToSocketAddrs::to_socket_addrs(elsewhere)
        && let Some(address) = addresses.find(|address| !address.ip().is_loopback())
    {
        let answer = Connection::tcp(&address.to_string()).request("GET", "/api/nodes", &[], b"").unwrap();
        assert!(answer.expect(400).text().contains("ask for https://"));
    }
}

#[test]
fn a_service_shows_the_certificate_that_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let own = Certificate::made(["telem.example".to_owned()]).unwrap();
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    std::fs::write(&chain, &own.chain).unwrap();
    std::fs::write(&key, &own.key).unwrap();
    let files = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Server::serve(&dir.path().join("db"), &files);
    let url = format!("https://{}", server.address);
    let ca = chain.to_str().unwrap();
    for args in [
        vec!["put", "loss", "1", "rank=0", "--url", &url, "--tls-ca", ca],
        vec!["sql", &url, "SELECT count(*) FROM loss", "--tls-ca", ca],
        vec!["info", &url, "--tls-ca", ca],
        vec!["nodes", &url, "--tls-ca", ca],
    ] {
        let output = telem(&args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    let strange = telem(["info", &url]).output().unwrap();
    assert!(String::from_utf8_lossy(&strange.stderr).contains("is not trusted"), "{strange:?}");
    // The same port answers without TLS to our own user here, as before.
    server.get("/api/info").expect(200);
    let bad = telem(["serve", "--data", "unused", "--tls-cert", ca]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2), "a certificate without its key");
}
