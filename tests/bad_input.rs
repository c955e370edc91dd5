//! External faults: bad samples, malformed bodies, too much of everything, full disks, directories that cannot be
//! written, other users. The result is always a clear error, and the server goes on.

use std::path::Path;
use std::process::Command;

use serde_json::{Value as Json, json};

use crate::process::{Connection, Server, gzip, poll, telem};
use crate::script::EPOCH_MS;

const EPOCH: i64 = EPOCH_MS / 1000;

fn sample(metric: &str, n: i64) -> Json {
    json!({"metric": metric, "timestamp": EPOCH + n, "value": n, "tags": {"host": "a"}})
}

/// Seconds since EPOCH to value of the one series of `metric`; empty if there is none.
fn stored(server: &Server, metric: &str) -> Vec<(i64, i64)> {
    let body = json!({"start": EPOCH, "end": EPOCH + 1_000_000, "queries": [{"metric": metric, "aggregator": "none"}]});
    let answer = server.post("/api/query", &body);
    if answer.status == 400 && answer.text().contains(metric) {
        return Vec::new();
    }
    let answer = answer.expect(200).json();
    let dps = answer[0]["dps"].as_object().unwrap();
    dps.iter().map(|(time, value)| (time.parse::<i64>().unwrap() - EPOCH, value.as_i64().unwrap())).collect()
}

fn lives(server: &Server) {
    server.get("/api/version").expect(200);
    server.post("/api/put", &sample("alive", 1)).expect(204);
}

#[test]
fn good_samples_of_a_batch_are_kept_and_each_bad_one_is_named_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let bad = [
        json!({"metric": "", "timestamp": EPOCH, "value": 1, "tags": {"host": "a"}}),
        json!({"metric": "m", "timestamp": EPOCH, "value": "many", "tags": {"host": "a"}}),
        json!({"metric": "m", "timestamp": 0, "value": 1, "tags": {"host": "a"}}),
        json!({"metric": "m", "timestamp": EPOCH, "value": 1, "tags": {}}),
        json!({"metric": "m", "timestamp": EPOCH, "value": 1, "tags": {"host": "a b"}}),
        json!({"metric": "m", "timestamp": EPOCH, "value": 1, "tags": {"host": ""}}),
        json!({"metric": "m".repeat(600), "timestamp": EPOCH, "value": 1, "tags": {"host": "a"}}),
        json!({"metric": "m", "timestamp": 9_000_000_000_000_i64, "value": 1, "tags": {"host": "a"}}),
    ];
    let mut batch: Vec<Json> = Vec::new();
    for (n, bad) in bad.iter().enumerate() {
        batch.push(sample("m", n as i64));
        batch.push(bad.clone());
    }
    let answer = server.post("/api/put?details", &Json::from(batch)).expect(400).json();
    assert_eq!((&answer["success"], &answer["failed"]), (&json!(bad.len()), &json!(bad.len())));
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.len(), bad.len());
    for (error, bad) in errors.iter().zip(&bad) {
        assert_eq!(error["datapoint"]["metric"], bad["metric"], "{error}");
        assert!(error["error"].as_str().is_some_and(|why| why.len() > 5), "{error}");
    }
    let kept: Vec<(i64, i64)> = (0..bad.len() as i64).map(|n| (n, n)).collect();
    assert_eq!(stored(&server, "m"), kept);
}

#[test]
fn bodies_that_are_no_bodies_are_refused_and_cost_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let deep = "[".repeat(100_000);
    let not_gzip: &[u8] = b"this is not gzip";
    let torn = &gzip(sample("torn", 1).to_string().repeat(50).as_bytes())[..60];
    type Headers = &'static [(&'static str, &'static str)];
    let cases: [(&str, &str, Headers, &[u8]); 10] = [
        ("half an object", "/api/put", &[], br#"{"metric":"#),
        ("deep nesting", "/api/put", &[], deep.as_bytes()),
        ("bytes that are no UTF-8", "/api/put", &[], b"[{\"metric\":\"\xff\xfe\"}]"),
        ("a zero byte", "/api/put", &[], b"\0"),
        ("not gzip", "/api/put", &[("Content-Encoding", "gzip")], not_gzip),
        ("half of a gzip stream", "/api/put", &[("Content-Encoding", "gzip")], torn),
        ("half a query", "/api/query", &[], br#"{"start": 1"#),
        ("a query of the wrong shape", "/api/query", &[], br#"{"start":1,"queries":{}}"#),
        ("SQL that is none", "/api/sql", &[], b"SELEC 1"),
        ("SQL that is no UTF-8", "/api/sql", &[], b"SELECT '\xff'"),
    ];
    for (what, path, headers, body) in cases {
        let answer = server.connect().request("POST", path, headers, body).unwrap();
        assert_eq!(answer.status, 400, "{what}: {}", answer.text());
        let message = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.len() > 5, "{what}: no message in {}", answer.text());
    }
    let answer = server.connect().request("POST", "/api/put", &[("Content-Encoding", "br")], b"x").unwrap();
    assert!([400, 415].contains(&answer.status), "{}", answer.text());
    lives(&server);
}

#[test]
fn a_body_over_the_limit_and_a_gzip_bomb_are_refused_without_filling_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &["--body-bytes-max", "1MiB"]);
    let padded = |bytes: usize| {
        let mut body = sample("m", 1).to_string().into_bytes();
        body.resize(bytes, b' ');
        body
    };
    for (bytes, status) in [(1 << 20, 204), ((1 << 20) + 1, 413)] {
        let plain = server.connect().request("POST", "/api/put", &[], &padded(bytes)).unwrap();
        assert_eq!(plain.status, status, "{bytes} bytes: {}", plain.text());
        let packed = gzip(&padded(bytes));
        let packed = server.connect().request("POST", "/api/put", &[("Content-Encoding", "gzip")], &packed).unwrap();
        assert_eq!(packed.status, status, "{bytes} bytes as gzip: {}", packed.text());
    }
    let bomb = gzip(&vec![b' '; 256 << 20]);
    assert!(bomb.len() < 4 << 20, "{}", bomb.len());
    let before = peak_memory_bytes(server.id());
    for path in ["/api/put", "/api/query", "/api/sql"] {
        let bomb = if bomb.len() < 1 << 20 { bomb.clone() } else { bomb[..1 << 20].to_vec() };
        let answer = server.connect().request("POST", path, &[("Content-Encoding", "gzip")], &bomb).unwrap();
        assert_eq!(answer.status, 413, "{path}: {}", answer.text());
    }
    let more = peak_memory_bytes(server.id()) - before;
    assert!(more < 64 << 20, "a refused body took {} MiB of memory", more >> 20);
    lives(&server);
}

fn peak_memory_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn sql_that_writes_is_refused_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    server.post("/api/put", &sample("m", 1)).expect(204);
    let loot = dir.path().join("loot.csv");
    for text in [
        "CREATE TABLE t (a INT)",
        "INSERT INTO m VALUES (1)",
        "DELETE FROM m",
        "DROP TABLE m",
        &format!("COPY m TO '{}'", loot.display()),
        &format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{}'", loot.display()),
        "SET datafusion.execution.batch_size = 1",
    ] {
        let answer = server.sql(text);
        assert_eq!(answer.status, 400, "{text}: {}", answer.text());
    }
    assert!(!loot.exists());
    assert_eq!(stored(&server, "m"), [(1, 1)]);
}

#[test]
fn a_second_writer_is_refused_while_the_first_lives_and_welcome_when_it_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let mut second = telem(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]);
    let second = second.arg(dir.path()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains(&server.id().to_string()), "the refusal does not name the process: {said}");
    lives(&server);
    server.kill();
    lives(&Server::serve(dir.path(), &[]));
}

#[test]
fn the_unix_socket_speaks_the_same_api_and_goes_when_the_server_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::serve(dir.path(), &[]);
    let socket = server.socket();
    let mut connection = Connection::unix(&socket);
    let body = sample("m", 7).to_string();
    assert_eq!(connection.request("POST", "/api/put?sync", &[], body.as_bytes()).unwrap().status, 204);
    let question = json!({"start": EPOCH, "queries": [{"metric": "m", "aggregator": "sum"}]}).to_string();
    let answer = connection.request("POST", "/api/query", &[], question.as_bytes()).unwrap().expect(200);
    assert_eq!(answer.json()[0]["dps"][(EPOCH + 7).to_string()], 7);
    assert_eq!(stored(&server, "m"), [(7, 7)]);
    drop(connection);
    assert!(server.terminate().0.success());
    assert!(!socket.exists(), "{} is left behind", socket.display());
}

/// Enough samples that sorting them takes more than the limits below.
fn with_many_samples(dir: &Path, more: &[&str]) -> Server {
    let server = Server::serve(dir, more);
    let mut connection = server.connect();
    for batch in 0..20_i64 {
        let samples: Vec<Json> = (0..5_000).map(|n| sample("many", batch * 5_000 + n)).collect();
        let body = gzip(Json::from(samples).to_string().as_bytes());
        connection.request("POST", "/api/put", &[("Content-Encoding", "gzip")], &body).unwrap().expect(204);
    }
    server
}

#[test]
fn a_query_beyond_its_memory_ends_with_a_clear_error_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = with_many_samples(dir.path(), &["--query-memory", "2MiB"]);
    let answer =
        server.sql("SELECT a.ts, a.value FROM many a JOIN many b ON a.value = b.value ORDER BY a.value DESC, a.ts");
    let said = answer.text();
    assert!(said.to_lowercase().contains("memory"), "{}: {said}", answer.status);
    assert!(!said.contains("panic"), "{said}");
    lives(&server);
    let rows = server.sql("SELECT count(*) AS n FROM many").expect(200).json();
    assert_eq!(rows[0]["n"], 100_000);
}

#[test]
fn a_query_beyond_its_deadline_ends_with_a_clear_error_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = with_many_samples(dir.path(), &["--query-deadline", "5s", "--query-memory", "8GiB"]);
    let forever = "SELECT count(*) AS n FROM many a, many b WHERE sin(a.value * b.value) > 2";
    let answer = server.sql(forever);
    assert!(answer.text().contains("deadline"), "{}: {}", answer.status, answer.text());
    assert!(answer.status >= 500, "{}", answer.status);
    lives(&server);
    server.sql("SELECT 1 AS one").expect(200);
}

#[test]
fn a_full_queue_answers_503_and_says_when_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &["--queue-samples-max", "100"]);
    // More than the queue will ever hold is refused as such; a hundred at a time fit, one after the other.
    let refused = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for client in 0..8_i64 {
            let (address, refused) = (&server.address, &refused);
            scope.spawn(move || {
                let mut connection = Connection::tcp(address);
                for round in 0..40 {
                    let first = (client * 40 + round) * 100;
                    let samples: Vec<Json> = (first..first + 100).map(|n| sample("m", n)).collect();
                    let body = Json::from(samples).to_string();
                    let answer = connection.request("POST", "/api/put?sync", &[], body.as_bytes()).unwrap();
                    match answer.status {
                        204 => {}
                        503 => refused.lock().unwrap().push((first, answer)),
                        other => panic!("{other}: {}", answer.text()),
                    }
                }
            });
        }
    });
    let refused = refused.into_inner().unwrap();
    assert!(!refused.is_empty(), "eight clients never filled a queue of one batch");
    for (_, answer) in &refused {
        let seconds = answer.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        assert!(seconds.is_some_and(|seconds| seconds >= 1), "no Retry-After: {:?}", answer.headers);
        assert!(answer.text().contains("queue"), "{}", answer.text());
    }
    // Refused is refused: nothing of it is stored, everything else is.
    let refused: std::collections::BTreeSet<i64> = refused.iter().map(|(first, _)| *first).collect();
    let expected: Vec<(i64, i64)> =
        (0..32_000).filter(|n| !refused.contains(&(n / 100 * 100))).map(|n| (n, n)).collect();
    assert!(stored(&server, "m") == expected, "a refused batch was stored, or an acknowledged one was not");
    lives(&server);
}

#[test]
fn sigterm_flushes_and_a_client_in_the_middle_of_a_request_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    for n in 0..50 {
        server.post("/api/put", &sample("m", n)).expect(204);
    }
    let (status, printed) = server.terminate();
    assert!(status.success(), "{status}: {}", printed.join("\n"));
    assert!(!dir.path().join("WRITER").exists(), "the writer lock is still there");
    let check = telem(["check"]).arg(dir.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let server = Server::serve(dir.path(), &[]);
    assert_eq!(stored(&server, "m").len(), 50);
}

#[test]
fn a_full_disk_refuses_puts_loses_nothing_acknowledged_and_answers_queries() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(_mounted) = mount(&disk, "size=6m") else {
        println!("skipped: this process may not mount a tmpfs");
        return;
    };
    fills_up(&disk.join("db"), &mut telem(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]));
}

#[test]
fn a_file_size_limit_refuses_puts_loses_nothing_acknowledged_and_answers_queries() {
    let dir = tempfile::tempdir().unwrap();
    // With SIGXFSZ ignored, a write beyond the limit is an error like any other of the disk.
    let mut limited = Command::new("bash");
    let script = "trap '' XFSZ; ulimit -f 1024; exec \"$@\"";
    limited.args(["-c", script, "limited", env!("CARGO_BIN_EXE_telem")]);
    limited.args(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]);
    fills_up(&dir.path().join("db"), &mut limited);
}

fn fills_up(data: &Path, command: &mut Command) {
    command.arg(data);
    let server = Server::start(std::mem::replace(command, Command::new("true")));
    let mut connection = server.connect();
    let (mut acknowledged, mut refusal) = (0, None);
    for batch in 0..20_000_i64 {
        let samples: Vec<Json> = (batch * 100..batch * 100 + 100).map(|n| sample("m", n)).collect();
        let answer = connection.request("POST", "/api/put", &[], Json::from(samples).to_string().as_bytes()).unwrap();
        if answer.status != 204 {
            refusal = Some(answer);
            break;
        }
        acknowledged = batch * 100 + 100;
    }
    let refusal = refusal.expect("two million samples fit where they should not");
    assert!((500..600).contains(&refusal.status), "{}: {}", refusal.status, refusal.text());
    assert!(!refusal.text().contains("panic"), "{}", refusal.text());
    assert!(acknowledged > 0);
    let whole = |stored: Vec<(i64, i64)>| {
        let there: Vec<(i64, i64)> = stored.into_iter().filter(|(n, _)| *n < acknowledged).collect();
        assert_eq!(there.len() as i64, acknowledged, "acknowledged samples are gone");
        assert!(there.iter().all(|(n, value)| n == value));
    };
    whole(stored(&server, "m"));
    server.get("/api/version").expect(200);
    server.kill();

    // With room again everything is there.
    let room = data.parent().unwrap();
    let _ = Command::new("mount").args(["-o", "remount,size=64m"]).arg(room).output();
    let server = Server::serve(data, &[]);
    whole(stored(&server, "m"));
    server.post("/api/put", &sample("after", 1)).expect(204);
}

/// A tmpfs that is unmounted when dropped; `None` where this may not be done.
pub fn mount(at: &Path, options: &str) -> Option<Mounted> {
    let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output().ok()?;
    done.status.success().then(|| Mounted(at.to_owned()))
}

pub struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut places = vec![Path::new("/proc/telem").to_owned(), dir.path().join("file")];
    std::fs::write(dir.path().join("file"), "not a directory").unwrap();
    let read_only = dir.path().join("read-only");
    std::fs::create_dir(&read_only).unwrap();
    let mounted = mount(&read_only, "ro");
    if mounted.is_some() {
        places.push(read_only.join("db"));
    } else {
        println!("skipped: this process may not mount a read-only tmpfs");
    }
    for place in places {
        let mut serve = telem(["serve", "--level", "1", "--listen", "127.0.0.1:0", "--data"]);
        let done = serve.arg(&place).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{}: {said}", place.display());
        assert!(said.contains(place.to_str().unwrap()), "the error does not name {}: {said}", place.display());
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn another_user_of_the_machine_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(&dir.path().join("db"), &[]);
    server.post("/api/put", &sample("m", 1)).expect(204);
    let (host, port) = server.address.split_once(':').unwrap();
    let ask = format!(
        "exec 3<>/dev/tcp/{host}/{port}; \
         printf 'GET /api/version HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
         read -r protocol status reason <&3; echo \"$status\""
    );
    let telnet = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'put stranger 1356998400 1 host=a\\nversion\\nexit\\n' >&3; cat <&3"
    );
    let as_user = |uid: &str, ask: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid, "--clear-groups", "bash", "-c", ask]);
        let done = command.output().unwrap();
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    let stranger = as_user("65533", &ask);
    assert!(["401", "403", ""].contains(&stranger.as_str()), "a stranger is answered {stranger}");
    assert_eq!(as_user("0", &ask), "200");
    let told = as_user("65533", &telnet);
    assert!(told.starts_with("refused: a token is needed because it comes from a process of uid 65533"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(stored(&server, "stranger").is_empty());
    assert!(as_user("0", &telnet).starts_with("net.opentsdb.tools 2.4.1"));
    lives(&server);
}

/// A page in a browser may have a name that its owner points at 127.0.0.1: the name gives it away.
#[test]
fn a_request_for_another_host_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let answer = server.connect().request("GET", "/api/version", &[("Host", "rebound.example")], b"").unwrap();
    assert_eq!(answer.status, 403, "{}", answer.text());
    lives(&server);
}

#[test]
fn a_connection_that_says_nothing_or_nonsense_harms_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::serve(dir.path(), &[]);
    let silent: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(&server.address).unwrap()).collect();
    let mut nonsense = std::net::TcpStream::connect(&server.address).unwrap();
    std::io::Write::write_all(&mut nonsense, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello?\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut nonsense, &mut answer);
    // Many at once, all answered.
    std::thread::scope(|scope| {
        for client in 0..16_i64 {
            let address = &server.address;
            scope.spawn(move || {
                let mut connection = Connection::tcp(address);
                for n in 0..20 {
                    let body = sample("busy", client * 100 + n).to_string();
                    assert_eq!(connection.request("POST", "/api/put", &[], body.as_bytes()).unwrap().status, 204);
                }
            });
        }
    });
    poll("every sample to be there", || stored(&server, "busy").len() == 16 * 20);
    drop(silent);
}
