//! Dragon's node server at the real binary: what its class sends arrives, whatever port it has, and the command finds it.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::{Value as Json, json};

use crate::launch::put_program;
use crate::process::{Connection, Response, Server, free_port, poll, telem};
use crate::run::{Place, Running, output, pid, recorder, said};

/// What the line says that tells of the port.
const SENDS: &str = "Dragon's programs send to http://localhost:";
/// Any free port.
const ANY_PORT: &str = "tsdb_server_port: 0\ncollector_rate: 0.5\n";
/// Tells what it has of Dragon's variables, and waits for the end of its stdin.
const TELLS: &str = "echo \"$DRAGON_TELEMETRY_LEVEL\"; echo \"$DRAGON_TELEMETRY_CONFIG\"; echo \"$NO_PROXY $no_proxy\"; \
                     read -r _";
const COUNT: &str = "SELECT count(*) AS n FROM samples WHERE metric = 'loss'";

fn yaml(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("telemetry.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

/// The port that a line names.
fn port_in(line: &str) -> u16 {
    let rest = line.split_once(SENDS).unwrap_or_else(|| panic!("no port in '{line}'")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The port that a YAML of telem's names.
fn port_of(yaml: &Path) -> u16 {
    let text = std::fs::read_to_string(yaml).unwrap();
    let line = text.lines().find(|line| line.contains("tsdb_server_port")).unwrap();
    line.split('"').rev().nth(1).unwrap().parse().unwrap()
}

/// A connection of its own for each request, as the class has it.
fn ask(port: u16, method: &str, path: &str, body: &Json) -> Response {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let headers = [("Content-Type", "application/json"), ("Host", "localhost")];
    Connection::tcp(&format!("127.0.0.1:{port}")).request(method, path, &headers, body.as_bytes()).unwrap()
}

fn add_data(port: u16, value: i64, tags: Json) -> Json {
    let mut point = json!({"metric": "loss", "value": value});
    if !tags.is_null() {
        point["tags"] = tags;
    }
    let body = json!({"dps": [point], "timestamp": 1_733_466_126});
    ask(port, "POST", "/api/metrics", &body).expect(201).json()
}

fn all_well() -> Json {
    json!({"success": 1, "failed": 0, "errors": []})
}

fn dragon_server(dir: &Path, text: &str) -> (Server, u16, String) {
    let config = yaml(dir, text);
    let mut server = Server::serve(&dir.join("db"), &["--node", "n1", "--telemetry-config", config.to_str().unwrap()]);
    let line = server.wait_for_line(SENDS);
    let port = port_in(&line);
    (server, port, line)
}

#[test]
fn what_the_class_sends_to_a_server_arrives() {
    let dir = tempfile::tempdir().unwrap();
    let (server, port, _) = dragon_server(dir.path(), ANY_PORT);
    assert_eq!(ask(port, "GET", "/api/ready", &Json::Null).expect(200).json(), json!({"is_ready": true}));
    for value in 0..3 {
        assert_eq!(add_data(port, value, Json::Null), all_well());
    }
    assert_eq!(add_data(port, 3, json!({"rank": 3})), all_well());
    ask(port, "GET", "/api/set_shutdown", &Json::Null).expect(200);
    assert_eq!(add_data(port, 4, Json::Null), all_well(), "that ends nothing");
    let rows = server.sql("SELECT host, rank, value FROM loss ORDER BY value").expect(200).json();
    let hosts: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["n1"; 5]);
    assert_eq!((&rows[3]["rank"], rows.as_array().unwrap().len()), (&json!("3"), 5));
    assert!(server.get("/api/ready").status == 404, "Dragon's paths are at its port alone");
    assert!(server.terminate().0.success());
}

#[test]
fn the_port_answers_at_both_addresses_of_localhost() {
    let dir = tempfile::tempdir().unwrap();
    let (server, port, _) = dragon_server(dir.path(), ANY_PORT);
    if TcpListener::bind("[::1]:0").is_ok() {
        let answer = Connection::tcp(&format!("[::1]:{port}")).request("GET", "/api/ready", &[], b"").unwrap();
        assert_eq!(answer.expect(200).json(), json!({"is_ready": true}));
    }
    drop(server);
}

#[test]
fn what_is_refused_is_answered_201_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, port, _) = dragon_server(dir.path(), ANY_PORT);
    for nth in 0..3 {
        let body = json!({"dps": [{"metric": format!("m{nth}"), "value": "abc"}]});
        assert_eq!(ask(port, "POST", "/api/metrics", &body).expect(201).json()["failed"], 1);
        ask(port, "GET", "/api/query", &Json::Null).expect(404);
    }
    server.wait_for_line("nothing is served at '/api/query'");
    let (status, printed) = server.terminate();
    assert!(status.success());
    let told = |text: &str| printed.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        (told("is \"abc\": expected a number"), told("nothing is served at '/api/query'")),
        (1, 1),
        "{printed:?}"
    );
}

#[test]
fn a_port_that_is_taken_gives_way_to_the_next_and_a_yaml_tells_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let number = taken.local_addr().unwrap().port();
    let text = format!("tsdb_server_port: {number}\ndump_dir: /lus/dump\n");
    let (mut server, port, line) = dragon_server(dir.path(), &text);
    assert!(
        port != number && line.contains(&format!("because {number} was taken; DRAGON_TELEMETRY_CONFIG=")),
        "{line}"
    );
    let own = line.split_once("DRAGON_TELEMETRY_CONFIG=").unwrap().1.split(' ').next().unwrap().to_owned();
    let written = std::fs::read_to_string(&own).unwrap();
    assert!(written.contains("\"dump_dir\": \"/lus/dump\""), "{written}");
    assert_eq!(port_of(Path::new(&own)), port);
    server.wait_for_line("dump_dir has no meaning here");
    assert!(server.terminate().0.success());
    assert!(!Path::new(&own).exists(), "it goes with the server");
}

#[test]
fn a_yaml_that_says_what_it_must_not_is_refused_before_anything_runs() {
    let place = Place::new();
    for (text, why) in [
        ("tsdb_server_port: many\n", "telemetry.yaml: tsdb_server_port is \"many\": expected a port"),
        ("collector_rate: 0.001\n", "collector_rate is 0.001: expected seconds from 0.1 to 3600"),
        ("a: [\n", "telemetry.yaml is no YAML: "),
    ] {
        let config = yaml(place.path(), text);
        let config = config.to_str().unwrap();
        let done = place.output(&["--telemetry-config", config], &["touch", "ran"]);
        assert_eq!(done.status.code(), Some(2), "{}", said(&done));
        assert!(said(&done).contains(why), "{}", said(&done));
        let served = telem(["serve", "--telemetry-config", config, "--data", "db"]).current_dir(place.path()).output();
        assert!(String::from_utf8_lossy(&served.unwrap().stderr).contains(why));
    }
    let done = place.output(&["--telemetry-config", "missing.yaml"], &["touch", "ran"]);
    assert!(said(&done).contains("missing.yaml cannot be read"), "{}", said(&done));
    assert!(!place.path().join("ran").exists());
}

#[test]
fn the_command_finds_the_port_and_its_samples_are_saved() {
    let place = Place::new();
    let config = yaml(place.path(), &format!("{ANY_PORT}zeal: 1\n"));
    let mut run = place.run(&["--job", "7", "--telemetry-config", config.to_str().unwrap()], &["sh", "-c", TELLS]);
    run.env("NO_PROXY", "corp").env("DRAGON_TELEMETRY_LEVEL", "4").env_remove("no_proxy");
    let mut running = Running::start(run);
    assert_eq!(running.line(), "2", "the level of telem");
    let own = PathBuf::from(running.line());
    assert_eq!(running.line(), "corp,localhost,127.0.0.1 corp,localhost,127.0.0.1");
    let port = port_of(&own);
    for value in 0..4 {
        assert_eq!(add_data(port, value, Json::Null), all_well());
    }
    let (status, said) = running.end();
    assert!(status.success() || status.code() == Some(1), "{said}");
    assert_eq!(port_in(&said), port, "{said}");
    assert!(said.contains("'zeal' is no key of Dragon Telemetry"), "{said}");
    assert!(!own.exists());
    let rows = telem(["sql", "telem-7", COUNT, "--format", "json"]).current_dir(place.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&rows.stdout).contains("\"n\":4"), "{rows:?}");
    assert_eq!(replayed(&place.path().join("telem-7")), 4);
}

/// How many points of the class a replay has; its port takes no more.
fn replayed(saved: &Path) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let config = yaml(dir.path(), ANY_PORT);
    let mut replay = Server::replay([saved], &["--telemetry-config", config.to_str().unwrap()]);
    let port = port_in(&replay.wait_for_line(SENDS));
    assert_eq!(ask(port, "GET", "/api/ready", &Json::Null).expect(200).json(), json!({"is_ready": true}));
    assert_eq!(add_data(port, 9, Json::Null)["failed"], 1);
    replay.wait_for_line("collector_rate has no meaning here");
    replay.sql(COUNT).expect(200).json()[0]["n"].as_u64().unwrap()
}

#[test]
fn two_jobs_on_one_node_have_ports_of_their_own() {
    let place = Place::new();
    let start = |job: &str| {
        let mut run = place.run(&["--dragon", "--job", job], &["sh", "-c", TELLS]);
        run.env_remove("DRAGON_TELEMETRY_CONFIG");
        let mut running = Running::start(run);
        assert_eq!(running.line(), "2");
        let port = match running.line().as_str() {
            // Nothing else had the usual one.
            "" => 4243,
            own => port_of(Path::new(own)),
        };
        running.line();
        (running, port)
    };
    let (first, one) = start("one");
    let (second, two) = start("two");
    assert_ne!(one, two);
    for port in [one, two] {
        assert_eq!(add_data(port, 1, Json::Null), all_well());
    }
    for (running, port) in [(first, one), (second, two)] {
        let (_, said) = running.end();
        assert_eq!(port_in(&said), port, "{said}");
        assert!(port == 4243 || said.contains("because 4243 was taken"), "{said}");
    }
}

#[test]
fn a_command_that_is_not_recorded_does_not_wait_for_a_port() {
    let place = Place::new();
    let mut run =
        place.run(&["--dragon", "--data", "/dev/null/x"], &["sh", "-c", "echo \"level $DRAGON_TELEMETRY_LEVEL\""]);
    run.env("DRAGON_TELEMETRY_LEVEL", "2").env_remove("DRAGON_TELEMETRY_CONFIG");
    let done = output(run);
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("level 0"), "{}", said(&done));
    assert!(said(&done).contains("does not record it"), "{}", said(&done));
}

/// Starts what it is told to, as another host would.
const AGENT_SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
mkdir -p "$PLACE/$host/run" && chmod 700 "$PLACE/$host/run"
export XDG_RUNTIME_DIR="$PLACE/$host/run" TMPDIR="$PLACE/$host"
exec sh -c "$*"
"#;

#[test]
fn agents_open_the_port_on_their_nodes_and_one_that_is_taken_is_told_by_name() {
    let place = Place::new();
    let free = free_port();
    let config = yaml(place.path(), &format!("tsdb_server_port: {free}\n"));
    let mut run = telem(["run", "--nodes", "n1", "--telemetry-config", config.to_str().unwrap()]);
    run.args(["--", "sh", "-c", TELLS]);
    place.at_home(&mut run);
    put_program(&place, "ssh", AGENT_SSH, &mut run);
    let mut running = Running::start(run);
    assert_eq!(running.line(), "2");
    let own = PathBuf::from(running.line());
    assert!(own.to_string_lossy().ends_with(".dragon.yaml"), "of many nodes each has its own: {}", own.display());
    assert_eq!(add_data(port_of(&own), 1, Json::Null), all_well());
    let (_, said) = running.end();
    // Both are on one machine, whose name the agent cannot have again.
    let told = format!("-2 Dragon's port {free} was taken; DRAGON_TELEMETRY_CONFIG tells programs there");
    assert!(said.contains(&told), "{said}");
}

/// Says with what it was started, and lives until it is told to end.
const TUNNEL_SSH: &str = "#!/bin/sh\necho $$ > \"$PLACE/ssh.pid\"\necho \"ssh $*\" > \"$PLACE/new\"\n\
                          mv \"$PLACE/new\" \"$PLACE/asked\"\nexec sleep 1000\n";

fn tunnelled(place: &Place, ssh: &str, command: &[&str]) -> Command {
    let mut run = place.run(&["--level", "1", "--job", "t", "--tunnel", "ada@login1:4400"], command);
    put_program(place, "ssh", ssh, &mut run);
    run
}

/// The words of `ssh`, and its process.
fn asked(place: &Place) -> (String, rustix::process::Pid) {
    let path = place.path().join("asked");
    poll("ssh to be started", || path.exists());
    let number = std::fs::read_to_string(place.path().join("ssh.pid")).unwrap();
    (std::fs::read_to_string(path).unwrap(), pid(number.trim().parse().unwrap()))
}

#[test]
fn a_tunnel_lives_as_long_as_the_job_and_who_comes_through_it_needs_the_token() {
    let place = Place::new();
    let waits = "echo \"$TELEM_CONNECTION\"; read -r _";
    let mut running = Running::start(tunnelled(&place, TUNNEL_SSH, &["sh", "-c", waits]));
    let connection: Json = serde_json::from_slice(&std::fs::read(running.line()).unwrap()).unwrap();
    let (words, ssh) = asked(&place);
    let (_, route) = words.trim().split_once("-NR localhost:4400:").unwrap();
    let (near, node) = route.split_once(" -- ").unwrap();
    assert_eq!(node, "ada@login1");
    let ask = |headers: &[(&str, &str)]| Connection::tcp(near).request("GET", "/api/version", headers, b"").unwrap();
    assert_eq!(ask(&[]).status, 401);
    let token = format!("Bearer {}", connection["token"].as_str().unwrap());
    assert_eq!(ask(&[("Authorization", &token)]).status, 200);
    let (_, said) = running.end();
    assert!(said.contains("port 4400 of ada@login1 is to lead here"), "{said}");
    poll("ssh to end", || test_kill_process(ssh).is_err());
}

#[test]
fn a_tunnel_ends_with_a_recorder_that_is_killed() {
    let place = Place::new();
    let mut running = Running::start(tunnelled(&place, TUNNEL_SSH, &["sh", "-c", "echo up; read -r _"]));
    running.line();
    let (_, ssh) = asked(&place);
    kill_process(recorder(&place), Signal::KILL).unwrap();
    poll("ssh to end", || test_kill_process(ssh).is_err());
    running.end();
}

#[test]
fn a_tunnel_that_fails_is_told_in_the_words_of_ssh_and_delays_nothing() {
    let place = Place::new();
    let fails =
        "#!/bin/sh\necho x >> \"$PLACE/tries\"\necho 'ssh: connect to host login1 port 22: No route' >&2\nexit 255\n";
    let mut running = Running::start(tunnelled(&place, fails, &["sh", "-c", "echo up; read -r _; exit 3"]));
    running.line();
    let tries = place.path().join("tries");
    poll("a second attempt", || std::fs::read_to_string(&tries).is_ok_and(|text| text.lines().count() >= 2));
    let (status, said) = running.end();
    assert_eq!(status.code(), Some(3), "{said}");
    let told = "there is no tunnel to ada@login1: ssh: connect to host login1 port 22: No route; it is tried again";
    assert_eq!(said.matches(told).count(), 1, "{said}");
}
