//! Children, parents and exporters of Metric Proxy: what is polled is counted exactly once, whoever dies and returns.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::process::{Response, Server, free_port, poll, telem};

/// A `telem proxy` on a directory of its own.
struct Proxy {
    server: Server,
    socket: PathBuf,
    address: String,
}

impl Proxy {
    /// As the tree calls it: by the machine's own name.
    fn named(&self) -> String {
        let name = rustix::system::uname();
        format!("{}:{}", name.nodename().to_string_lossy(), self.port())
    }

    fn start(dir: &Path, more: &[&str]) -> Proxy {
        Self::start_at(dir, free_port(), more)
    }

    /// On the port that an earlier one had.
    fn start_at(dir: &Path, port: u16, more: &[&str]) -> Proxy {
        let socket = dir.join("socket");
        let mut command = telem(["proxy", "--listen", "127.0.0.1:0", "-p", &port.to_string()]);
        command.arg("-u").arg(&socket).arg("-t").arg(dir.join("data")).args(more);
        let mut server = Server::start(command);
        let line = server.wait_for_line("Metric Proxy's API at");
        let address = line.split("http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
        Proxy { server, socket, address }
    }

    fn port(&self) -> u16 {
        self.address.rsplit(':').next().unwrap().parse().unwrap()
    }

    fn get(&self, path: &str) -> Response {
        ask(&self.address, path)
    }

    fn json(&self, path: &str) -> Json {
        self.get(path).expect(200).json()
    }

    /// The counters of a live job, by name; none where it is not live.
    fn counters(&self, job: &str) -> BTreeMap<String, Json> {
        let job = self.get(&format!("/job?job={}", job.replace(' ', "%20"))).json();
        let counters = job["counters"].as_array().cloned().unwrap_or_default();
        counters
            .into_iter()
            .map(|counter| (counter["name"].as_str().unwrap().to_owned(), counter["ctype"].clone()))
            .collect()
    }

    fn counter(&self, job: &str, name: &str) -> Option<f64> {
        self.counters(job).get(name).and_then(|value| value["Counter"]["value"].as_f64())
    }

    fn awaits(&self, job: &str, name: &str, value: f64) {
        let mut last = None;
        let describe = format!("{name} of {job} to be {value}");
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll(&describe, || {
                last = self.counter(job, name);
                last == Some(value)
            });
        }));
        assert!(happened.is_ok(), "{describe}; it is {last:?}");
    }

    fn row(&self, target: &str) -> Option<Json> {
        let rows = self.json("/join/list");
        rows.as_array().unwrap().iter().find(|row| row["target_url"].as_str().unwrap().contains(target)).cloned()
    }

    /// The largest sample of a metric.
    fn stored(&self, metric: &str) -> Option<f64> {
        let sql = format!("SELECT max(value) AS most FROM samples WHERE metric = '{metric}'");
        self.server.sql(&sql).json()[0]["most"].as_f64()
    }

    fn client(&self, job: &str) -> Client {
        let mut client = Client(UnixStream::connect(&self.socket).unwrap());
        client.send(&json!({"JobDesc": desc(job, 7)}));
        client
    }
}

pub fn ask(address: &str, path: &str) -> Response {
    let mut connection = super::process::Connection::tcp(address);
    connection.request("GET", path, &[("Host", address)], b"").unwrap()
}

/// A client of Metric Proxy's socket.
pub struct Client(pub UnixStream);

impl Client {
    pub fn send(&mut self, message: &Json) {
        self.0.write_all(format!("{message}\0").as_bytes()).unwrap();
    }

    pub fn add(&mut self, name: &str, value: f64) {
        self.send(&json!({"Desc": {"name": name, "doc": "d", "ctype": {"Counter": {"ts": 0, "value": 0.0}}}}));
        self.send(&json!({"Value": {"name": name, "value": {"Counter": {"ts": 1, "value": value}}}}));
    }
}

pub fn desc(job: &str, start: u64) -> Json {
    json!({"jobid": job, "command": "./tree", "size": 6, "nodelist": "", "partition": "", "cluster": "",
        "run_dir": "/scratch/t", "start_time": start, "end_time": 0})
}

pub fn counter(name: &str, value: f64) -> Json {
    json!({"name": name, "doc": "d", "ctype": {"Counter": {"ts": 1, "value": value}}})
}

fn gauge(name: &str, value: f64) -> Json {
    json!({"name": name, "doc": "d", "ctype": {"Gauge": {"min": value, "max": value, "hits": 1.0, "total": value}}})
}

/// A server of HTTP that says what a test lets it say; while it is dead it hangs up.
pub struct Stub {
    pub address: String,
    pub is_dead: Arc<AtomicBool>,
    pages: Arc<Mutex<BTreeMap<String, String>>>,
    /// Paths that it was asked for and answered.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    fn start() -> Stub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stub = Stub {
            address: listener.local_addr().unwrap().to_string(),
            is_dead: Arc::default(),
            pages: Arc::default(),
            asked: Arc::default(),
        };
        let (is_dead, pages, asked) = (Arc::clone(&stub.is_dead), Arc::clone(&stub.pages), Arc::clone(&stub.asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !is_dead.load(Ordering::SeqCst) {
                    Self::answer(stream, &pages, &asked);
                }
            }
        });
        stub
    }

    fn answer(mut stream: TcpStream, pages: &Mutex<BTreeMap<String, String>>, asked: &Mutex<Vec<String>>) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let page = pages.lock().unwrap().get(path.split('?').next().unwrap()).cloned();
        let (status, body) = page.map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).is_ok() {
            asked.lock().unwrap().push(path);
        }
    }

    /// A child as a parent sees an original one.
    pub fn child() -> Stub {
        let stub = Self::start();
        stub.show("/is_admire_proxy.html", "<html>a proxy</html>");
        stub.tell(&[], &[]);
        stub
    }

    fn show(&self, path: &str, body: &str) {
        self.pages.lock().unwrap().insert(path.to_owned(), body.to_owned());
    }

    /// What a child has in `main`, and in its jobs beside.
    pub fn tell(&self, main: &[Json], jobs: &[(Json, Vec<Json>)]) {
        let jobs = jobs.iter().map(|(desc, counters)| json!({"desc": desc, "counters": counters}));
        let mut all = vec![json!({"desc": desc("main", 0), "counters": main})];
        all.extend(jobs);
        self.show("/job", &Json::from(all).to_string());
    }

    fn joins(&self, root: &Proxy) -> String {
        self.joins_at(&root.address)
    }

    /// As an original does, whose root is at this address; who its parent is then.
    pub fn joins_at(&self, root: &str) -> String {
        let told = ask(root, &format!("/pivot?from={}", self.address)).expect(200).json();
        let parent = told["operation"].as_str().unwrap().to_owned();
        ask(&parent, &format!("/join?to={}&period=20", self.address)).expect(200);
        parent
    }

    /// Until what it shows now was seen.
    pub fn is_seen(&self) {
        let count = || self.asked.lock().unwrap().len();
        let before = count();
        // One may have been on its way.
        poll("a stub to be polled", || count() >= before + 3);
    }
}

#[test]
fn five_children_stand_below_the_server_once_each_and_their_job_is_their_sum() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    assert_eq!(root.json("/topo"), json!([[root.named(), root.named()]]));
    let children: Vec<Stub> = (0..5).map(|_| Stub::child()).collect();
    for child in children.iter().chain(&children[..1]) {
        assert_eq!(child.joins(&root), root.address, "the address by which it was asked");
    }
    let topo = root.json("/topo");
    let expected: Vec<Json> = children.iter().map(|child| json!([root.named(), child.address])).collect();
    assert_eq!(topo, Json::from(expected));
    let job = |work: f64, temp: f64| [(desc("treejob", 9), vec![counter("work", work), gauge("temp", temp)])];
    children[0].tell(&[counter("work", 5.0)], &job(5.0, 100.0));
    root.awaits("treejob", "work", 5.0);
    children[1].tell(&[counter("work", 7.0)], &job(7.0, 60.0));
    root.awaits("treejob", "work", 12.0);
    children[0].tell(&[counter("work", 8.0)], &job(8.0, 100.0));
    root.awaits("treejob", "work", 15.0);
    root.awaits("main", "work", 15.0);
    let temp = &root.counters("treejob")["temp"]["Gauge"];
    assert_eq!(*temp, json!({"min": 60.0, "max": 100.0, "hits": 2.0, "total": 160.0}));
    // One child's part of the job ends, and then the job, which leaves a profile with times.
    children[0].tell(&[counter("work", 8.0)], &[]);
    poll("the gauge of a child to go with it", || root.counters("treejob")["temp"]["Gauge"]["hits"] == 1.0);
    children[1].tell(&[counter("work", 7.0)], &[]);
    poll("the job to end", || root.get("/job?job=treejob").status == 400);
    assert_eq!(root.counter("main", "work"), Some(15.0));
    let profile = root.json("/profiles/get?jobid=treejob");
    assert!(profile["desc"]["end_time"].as_u64() > Some(1_700_000_000_000), "{profile}");
    let walltime =
        profile["counters"].as_array().unwrap().iter().find(|counter| counter["name"] == "walltime").unwrap();
    let walltime = walltime["ctype"]["Counter"]["value"].as_f64().unwrap();
    assert!((0.0..1e9).contains(&walltime), "{walltime} ms of {profile}");
    for child in &children {
        assert_eq!(root.row(&child.address).unwrap()["ttype"], "Proxy");
        assert_eq!(root.row(&child.address).unwrap()["error"], Json::Null, "it is well");
    }
    let left = &children[4].address;
    root.get(&format!("/leave?from={left}")).expect(200);
    assert_eq!(root.json("/topo").as_array().unwrap().len(), 4);
    assert!(root.row(left).is_none());
    assert_eq!(root.get(&format!("/leave?from={left}")).status, 400);
}

#[test]
fn answers_on_a_port_of_its_own_are_packed_for_who_asks() {
    let dir = TempDir::new().unwrap();
    let proxy = Proxy::start(dir.path(), &[]);
    let mut client = proxy.client("many");
    for number in 0..1_000 {
        client.add(&format!("counter_{number}"), 1.0);
    }
    proxy.awaits("many", "counter_999", 1.0);
    let ask = |encoding: &str| {
        let mut connection = super::process::Connection::tcp(&proxy.address);
        let headers = [("Host", &*proxy.address), ("Accept-Encoding", encoding)];
        connection.request("GET", "/job?job=many", &headers, b"").unwrap().expect(200)
    };
    let (plain, packed) = (ask("identity"), ask("gzip"));
    assert_eq!((plain.header("content-encoding"), packed.header("content-encoding")), (None, Some("gzip")));
    assert!(packed.body.len() * 10 < plain.body.len(), "{} of {} bytes", packed.body.len(), plain.body.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    let names = |text: &str| {
        let job: Json = serde_json::from_str(text).unwrap();
        let counters = job["counters"].as_array().unwrap().iter();
        counters.map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&text), names(&plain.text()));
}

#[test]
fn branches_are_those_of_the_original_where_they_are_wanted() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &["--proxy-branches", "2"]);
    let pivot = |from: &str| root.json(&format!("/pivot?from={from}"))["operation"].as_str().unwrap().to_owned();
    let places: Vec<String> = ["a:1", "b:1", "c:1", "d:1", "e:1", "c:1"].iter().map(|from| pivot(from)).collect();
    let (r, own) = (&*root.address, root.named());
    assert_eq!(places, [r, r, "a:1", "a:1", "b:1", "a:1"]);
    assert_eq!(root.json("/topo"), json!([[own, "a:1"], [own, "b:1"], ["a:1", "c:1"], ["a:1", "d:1"], ["b:1", "e:1"]]));
}

#[test]
fn a_child_counts_exactly_once_whether_it_dies_returns_or_begins_anew() {
    let dir = TempDir::new().unwrap();
    let mut root = Proxy::start(dir.path(), &[]);
    let child = Stub::child();
    // It has 5 already, 3 of them without a job.
    let told = |main: f64, job: f64| {
        child.tell(&[counter("work", main)], &[(desc("j", 9), vec![counter("work", job)])]);
    };
    told(5.0, 2.0);
    child.joins(&root);
    root.awaits("main", "work", 5.0);
    root.awaits("j", "work", 2.0);
    // A job that begins between two polls.
    let two = [(desc("j", 9), vec![counter("work", 2.0)]), (desc("late", 11), vec![counter("work", 10.0)])];
    child.tell(&[counter("work", 15.0)], &two);
    root.awaits("late", "work", 10.0);
    root.awaits("main", "work", 15.0);
    // What is 0 again is left out: nothing changes, and then it comes on top.
    child.tell(&[], &[(desc("j", 9), vec![])]);
    child.is_seen();
    assert_eq!((root.counter("main", "work"), root.counter("j", "work")), (Some(15.0), Some(2.0)));
    told(4.0, 1.0);
    root.awaits("main", "work", 19.0);
    root.awaits("j", "work", 3.0);
    // Lower than before: it began anew.
    told(1.0, 0.5);
    root.awaits("main", "work", 20.0);
    root.awaits("j", "work", 3.5);
    // No number, no poll that fails.
    child.show(
        "/job",
        &json!([{"desc": desc("main", 0), "counters": [counter("work", 1.0),
            {"name": "nan", "doc": "", "ctype": {"Counter": {"ts": 1, "value": null}}}]},
            {"desc": desc("j", 9), "counters": [counter("work", 0.5)]}])
        .to_string(),
    );
    child.is_seen();
    assert_eq!(root.counter("main", "work"), Some(20.0));
    // It dies: that is told, its job ends, and what it counted stays.
    child.is_dead.store(true, Ordering::SeqCst);
    poll("its failure to be told", || root.row(&child.address).is_some_and(|row| row["failures"].as_u64() >= Some(1)));
    poll("it to be lost", || root.json("/topo")[0][2] == "lost");
    poll("its job to end", || root.get("/job?job=j").status == 400);
    assert_eq!(root.counter("main", "work"), Some(20.0));
    // It returns with what it had and more.
    told(3.0, 2.5);
    child.is_dead.store(false, Ordering::SeqCst);
    root.awaits("main", "work", 22.0);
    root.awaits("j", "work", 5.5);
    poll("it to be well", || root.row(&child.address).is_some_and(|row| row["error"].is_null()));
    // This server dies in the middle, and what it misses is no less.
    let port = root.port();
    root.server.kill();
    told(9.0, 8.5);
    root = Proxy::start_at(dir.path(), port, &[]);
    root.awaits("main", "work", 28.0);
    root.awaits("j", "work", 11.5);
    assert_eq!(root.json("/topo"), json!([[root.named(), child.address]]));
    // The child began anew while this server was dead, which knows what it stored.
    poll("totals to be stored", || root.stored("work") == Some(28.0));
    root.server.kill();
    told(2.0, 1.0);
    root = Proxy::start_at(dir.path(), port, &[]);
    root.awaits("main", "work", 30.0);
    root.awaits("j", "work", 12.5);
    child.tell(&[counter("work", 2.0)], &[]);
    poll("the job to end", || root.get("/job?job=j").status == 400);
    root.get(&format!("/disconnect?target={}", child.address)).expect(200);
    assert!(root.row(&child.address).is_none());
    poll("totals to be stored", || root.stored("work") == Some(30.0));
    root.server.kill();
    root = Proxy::start_at(dir.path(), port, &[]);
    root.awaits("main", "work", 30.0);
}

#[test]
fn an_exporter_shows_its_own_values_and_a_reset_is_a_reset() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    let exporter = Stub::start();
    let show = |total: u32| {
        exporter.show(
            "/metrics",
            &format!(
                "# HELP my_total a counter\n# TYPE my_total counter\nmy_total{{a=\"b\",c=\"d\"}} {total}\n\
                 # TYPE my_gauge gauge\nmy_gauge 42\n# TYPE h histogram\nh_bucket{{le=\"1\"}} 1\nh_bucket{{le=\"+Inf\"}} 2\n\
                 h_sum 3\nh_count 2\nbare 7\nodd line\n"
            ),
        );
    };
    show(100);
    let mut client = root.client("local");
    client.add("own", 1.0);
    root.awaits("local", "own", 1.0);
    root.get(&format!("/join?to={}&period=20", exporter.address)).expect(200);
    let node = root
        .json("/job/list")
        .as_array()
        .unwrap()
        .iter()
        .find_map(|job| job["jobid"].as_str().filter(|id| id.starts_with("Node: ")).map(str::to_owned));
    let node = node.unwrap();
    let name = r#"my_total{a="b",c="d"}"#;
    for total in [100, 130, 40] {
        show(total);
        for job in ["main", &node, "local"] {
            root.awaits(job, name, f64::from(total));
        }
    }
    exporter.is_seen();
    assert_eq!(root.counter("main", name), Some(40.0), "not added again at every poll");
    let main = root.counters("main");
    assert_eq!(main["my_gauge"]["Gauge"]["total"], 42.0);
    assert_eq!(
        (&main[r#"h_bucket{le="+Inf"}"#]["Counter"]["value"], &main["h_count"]["Counter"]["value"]),
        (&json!(2.0), &json!(2.0))
    );
    assert_eq!(main["bare"]["Gauge"]["total"], 7.0, "of no type");
    let text = root.get("/metrics").text();
    assert!(text.contains("# TYPE my_total counter\nmy_total{a=\"b\",c=\"d\"} 40\n"), "{text}");
    let row = root.row(&exporter.address).unwrap();
    assert_eq!((&row["ttype"], &row["period"]), (&json!("Prometheus"), &json!(20)));
    // Its samples say where they are from.
    let sql = format!(
        "SELECT count(*) AS n FROM samples WHERE metric = 'my_total' AND tags['proxy.target'] = '{}'",
        exporter.address
    );
    poll("its samples", || root.server.sql(&sql).json()[0]["n"].as_u64() >= Some(1));
    exporter.is_dead.store(true, Ordering::SeqCst);
    poll("its failure to be told", || root.row(&exporter.address).is_some_and(|row| row["error"].is_string()));
    assert_eq!(root.counter("main", name), Some(40.0));
    // What it counted stays, and its gauges were about a moment that is over.
    let gauge = || root.counters("main").get("my_gauge").map(|gauge| gauge["Gauge"]["hits"].clone());
    poll("its gauges to end", || gauge().is_none_or(|hits| hits == 0.0));
    assert_eq!(root.counter("main", name), Some(40.0));
    exporter.is_dead.store(false, Ordering::SeqCst);
    poll("its gauges to be back", || gauge() == Some(json!(1.0)));
    // One path of a place is polled, and who names another one is told so.
    exporter.show("/other/metrics", "# TYPE other_total counter\nother_total 1\n");
    let refused = root.get(&format!("/join?to={}/other", exporter.address)).expect(400).json();
    assert!(refused["operation"].as_str().unwrap().contains("another path"), "{refused}");
    root.get(&format!("/disconnect?target={}", exporter.address)).expect(200);
    root.awaits("main", name, 0.0);
    root.get(&format!("/join?to={}/other", exporter.address)).expect(200);
    root.awaits("main", "other_total", 1.0);
    drop(client);
}

/// The counters of a profile, by name, once there is one: it is kept a moment after its job ended.
fn profile(of: &Proxy, job: &str) -> BTreeMap<String, f64> {
    let path = format!("/profiles/get?jobid={job}");
    poll("a profile", || of.get(&path).status == 200);
    let profile = of.json(&path);
    let counters = profile["counters"].as_array().unwrap().iter();
    let value = |counter: &Json| counter["ctype"]["Counter"]["value"].as_f64();
    counters.filter_map(|one| Some((one["name"].as_str().unwrap().to_owned(), value(one)?))).collect()
}

#[test]
fn what_a_childs_job_counts_after_the_last_poll_is_in_its_profile() {
    let (above, below) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (parent, child) = (Proxy::start(above.path(), &[]), Proxy::start(below.path(), &[]));
    let mut client = child.client("run a+b");
    client.add("work", 5.0);
    child.awaits("run%20a%2Bb", "work", 5.0);
    // It is polled when a test says so: every hour.
    let polled = || parent.get(&format!("/period?target={}&period=3600000", child.address)).expect(200);
    parent.get(&format!("/join?to={}&period=3600000", child.address)).expect(200);
    parent.awaits("run%20a%2Bb", "work", 5.0);
    client.add("work", 7.0);
    client.add("late", 3.0);
    drop(client);
    poll("the job to end at the child", || child.get("/job?job=run%20a%2Bb").status == 400);
    polled();
    poll("the job to end at the parent", || parent.get("/job?job=run%20a%2Bb").status == 400);
    let last = profile(&parent, "run%20a%2Bb");
    assert_eq!((last["work"], last["late"]), (12.0, 3.0), "{last:?}");
    assert_eq!(parent.counter("main", "work"), Some(12.0), "and everything has it once");
    assert_eq!(parent.counter("main", "walltime"), None);
    poll("it to be among the samples", || parent.stored("late") == Some(3.0));
}

#[test]
fn a_profile_of_an_original_child_counts_where_it_is_of_the_same_run() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    let child = Stub::child();
    let walltime = json!({"name": "walltime", "doc": "Duration of the application",
        "ctype": {"Counter": {"ts": 0, "value": 1234.0}}});
    let over = |start: u64, work: f64| {
        let counters = [counter("work", work), walltime.clone()];
        child.show("/profiles/get", &json!({"desc": desc("j", start), "counters": counters}).to_string());
    };
    let is_over = |work: f64| {
        child.tell(&[counter("work", work)], &[]);
        poll("the job to end", || root.get("/job?job=j").status == 400);
        profile(&root, "j")
    };
    child.tell(&[counter("work", 8.0)], &[(desc("j", 9), vec![counter("work", 8.0)])]);
    child.joins(&root);
    root.awaits("j", "work", 8.0);
    let started = root.json("/job?job=j")["desc"]["start_time"].clone();
    assert_eq!(started, 9_000, "older clients say seconds");
    // The client that left last began later than the first one, and its begin is that of the profile.
    over(10, 11.0);
    let last = is_over(11.0);
    assert_eq!(last["work"], 11.0);
    assert!(last["walltime"] < 1e9 && last["walltime"] != 1234.0, "how long it was here: {last:?}");
    // A profile with less is of another run.
    child.tell(&[counter("work", 16.0)], &[(desc("j", 20), vec![counter("work", 5.0)])]);
    root.awaits("j", "work", 16.0);
    over(21, 4.0);
    assert_eq!(is_over(16.0)["work"], 16.0);
}

#[test]
fn a_profile_of_another_run_or_of_before_a_restart_counts_nothing() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    let child = Stub::child();
    let is_over = |job: &str| poll("the job to end", || root.get(&format!("/job?job={job}")).status == 400);
    // It was started anew: what it told before is behind what it tells now.
    let looks = |times: f64| counter("proxy_scrape_total", times);
    child.tell(&[counter("work", 95.0), looks(50.0)], &[(desc("j", 9), vec![counter("work", 95.0)])]);
    child.joins(&root);
    root.awaits("j", "work", 95.0);
    child.show("/profiles/get", &json!({"desc": desc("j", 9), "counters": [counter("work", 100.0)]}).to_string());
    child.tell(&[looks(1.0)], &[]);
    is_over("j");
    assert_eq!(profile(&root, "j")["work"], 95.0);
    // Of a job that counted nothing yet nobody knows which run a profile is of.
    child.tell(&[looks(2.0)], &[(desc("k", 20), vec![])]);
    poll("the job to begin", || root.get("/job?job=k").status == 200);
    child.show("/profiles/get", &json!({"desc": desc("k", 11), "counters": [counter("work", 1000.0)]}).to_string());
    child.tell(&[looks(3.0)], &[]);
    is_over("k");
    assert_eq!(profile(&root, "k").get("work"), None);
    assert_eq!(root.counter("main", "work"), Some(95.0));
}

#[test]
fn a_child_that_keeps_no_profiles_is_not_waited_for() {
    const JOBS: usize = 60;
    let (above, below) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let parent = Proxy::start(above.path(), &[]);
    let child = Proxy::start(below.path(), &["-i", "-r", &format!("{}@100", parent.address)]);
    let mut clients: Vec<Client> = (0..JOBS).map(|job| child.client(&format!("j{job}"))).collect();
    for client in &mut clients {
        client.add("work", 1.0);
    }
    parent.awaits("main", "work", JOBS as f64);
    drop(clients);
    poll("the jobs to end at the child", || child.json("/job/list").as_array().unwrap().len() == 2);
    child.get("/push?key=tick").expect(200);
    child.get("/accumulate?key=tick&value=42").expect(200);
    child.awaits("main", "tick", 42.0);
    parent.get(&format!("/leave?from={}", child.address)).expect(200);
    assert_eq!(parent.counter("main", "tick"), Some(42.0), "it is polled once more before it goes");
}

#[test]
fn a_parent_has_what_was_sent_to_its_child_also_after_either_was_killed() {
    let (above, below) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut parent = Proxy::start(above.path(), &[]);
    let root = format!("{}@50", parent.address);
    let mut child = Proxy::start(below.path(), &["-r", &root]);
    let (parents, childs) = (parent.port(), child.port());
    let mut client = child.client("run");
    client.add("work", 5.0);
    parent.awaits("main", "work", 5.0);
    parent.awaits("run", "work", 5.0);
    // A client of the parent has the same job.
    let mut beside = parent.client("run");
    beside.add("work", 100.0);
    parent.awaits("run", "work", 105.0);
    parent.awaits("main", "work", 105.0);
    let topo = parent.json("/topo");
    assert_eq!(topo, json!([[parent.named(), child.address]]));
    client.add("work", 2.0);
    parent.awaits("main", "work", 107.0);
    for job in ["run", "main"] {
        poll("the trace to have what both counted", || {
            let trace = parent.json(&format!("/trace/plot?jobid={job}&filter=work"));
            let points = trace.as_array().unwrap();
            // The last point is what is counted now, whatever the samples say.
            points.len() > 1 && points[points.len() - 2][1] == 107.0
        });
    }
    // What the parent's own clients sent is stored at ticks.
    poll("values to be stored", || parent.stored("work") == Some(100.0));
    parent.server.kill();
    drop(beside);
    client.add("work", 3.0);
    parent = Proxy::start_at(above.path(), parents, &[]);
    parent.awaits("main", "work", 110.0);
    parent.awaits("run", "work", 110.0);
    // What no sample holds yet is lost with the child.
    poll("values to be stored", || child.stored("work") == Some(10.0));
    child.server.kill();
    drop(client);
    child = Proxy::start_at(below.path(), childs, &["-r", &root]);
    let mut client = child.client("run");
    client.add("work", 4.0);
    parent.awaits("main", "work", 114.0);
    client.add("other", 1.0);
    parent.awaits("main", "other", 1.0);
    assert_eq!(parent.counter("main", "work"), Some(114.0));
    drop(client);
    poll("the job to end at the parent", || parent.get("/job?job=run").status == 400);
    let (_, printed) = parent.server.terminate();
    assert!(printed.iter().all(|line| !line.contains("panicked")), "{printed:?}");
}

#[test]
fn a_server_that_is_told_to_stop_hands_on_what_it_counted_last_and_leaves_its_tree() {
    let (above, below) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let parent = Proxy::start(above.path(), &[]);
    // It is polled when it joins, and then for an hour no more.
    let child = Proxy::start(below.path(), &["-r", &format!("{}@3600000", parent.address)]);
    let childs = child.address.clone();
    let mut client = child.client("run");
    client.add("work", 5.0);
    child.awaits("run", "work", 5.0);
    poll("the child to be polled", || parent.row(&childs).is_some_and(|row| row["last_scrape"].as_u64() > Some(0)));
    assert_eq!(parent.json("/topo"), json!([[parent.named(), childs]]));
    client.add("work", 2.0);
    client.add("late", 1.0);
    // What nobody has read from the socket yet is not counted.
    child.awaits("run", "late", 1.0);
    let (status, printed) = child.server.terminate();
    assert!(status.success(), "{printed:?}");
    assert_eq!((parent.counter("main", "work"), parent.counter("main", "late")), (Some(7.0), Some(1.0)));
    assert_eq!(parent.json("/topo"), json!([[parent.named(), parent.named()]]));
    assert!(parent.row(&childs).is_none());
    // What was a job there has ended here, with its last values.
    poll("the job to end at the parent", || parent.get("/profiles/get?jobid=run").status == 200);
    let profile = parent.json("/profiles/get?jobid=run");
    let work = profile["counters"].as_array().unwrap().iter().find(|counter| counter["name"] == "work").unwrap();
    assert_eq!(work["ctype"]["Counter"]["value"], 7.0, "{profile}");
    drop(client);
}

/// A root that asks and counts as an original does: it adds what a counter has more than at the poll before, where a poll
/// failed once the whole of it, and what it has when its name is met twice. It polls when a test says so.
struct OriginalRoot {
    stub: Stub,
    /// What each of its children told last, by address, job and name.
    children: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>>,
    /// How many questions were looked at.
    heard: usize,
    sums: BTreeMap<(String, String), f64>,
}

impl OriginalRoot {
    fn start() -> Self {
        let stub = Stub::start();
        let done = |operation: &str| json!({"operation": operation, "success": true}).to_string();
        stub.show("/pivot", &done(&stub.address));
        stub.show("/join", &done("added"));
        let root = Self { stub, children: BTreeMap::new(), heard: 0, sums: BTreeMap::new() };
        root.places(&root.stub.address);
        root
    }

    /// One that was started anew remembers nothing.
    fn restarts(&mut self) {
        self.children.clear();
        self.sums.clear();
        self.places(&self.stub.address);
    }

    /// Says who its child is; one without children says itself.
    fn places(&self, child: &str) {
        self.stub.show("/topo", &json!([[self.stub.address, child]]).to_string());
    }

    /// How often it was asked for something.
    fn asked(&self, what: &str) -> usize {
        self.stub.asked.lock().unwrap().iter().filter(|path| path.starts_with(what)).count()
    }

    fn polls(&mut self) {
        let asked: Vec<String> = self.stub.asked.lock().unwrap()[self.heard..].to_vec();
        self.heard += asked.len();
        for to in asked.iter().filter_map(|path| path.strip_prefix("/join?to=")?.split('&').next()) {
            self.children.insert(to.replace("%3A", ":").replace("%2F", "/"), BTreeMap::new());
        }
        let Self { children, sums, .. } = self;
        children.retain(|child, before| {
            let (address, path) = child.split_at(child.find('/').unwrap_or(child.len()));
            let answer = std::panic::catch_unwind(|| ask(address, &format!("{path}/job")));
            // What it was going to say when it stopped is no answer.
            let jobs = answer.ok().filter(|answer| answer.status == 200).map(|answer| answer.json());
            let Some(jobs) = jobs.filter(Json::is_array) else { return false };
            let told = |job: &Json| {
                let counters = job["counters"].as_array().unwrap().iter();
                let value =
                    |one: &Json| Some((one["name"].as_str()?.to_owned(), one["ctype"]["Counter"]["value"].as_f64()?));
                (job["desc"]["jobid"].as_str().unwrap().to_owned(), counters.filter_map(value).collect())
            };
            let now: BTreeMap<String, BTreeMap<String, f64>> = jobs.as_array().unwrap().iter().map(told).collect();
            for (job, counters) in &now {
                let old = before.get(job);
                for (name, value) in counters {
                    let more = value - old.and_then(|old| old.get(name)).unwrap_or(&0.0);
                    *sums.entry((job.clone(), name.clone())).or_insert(more) += more;
                }
                for (name, value) in old.into_iter().flatten().filter(|(name, _)| !counters.contains_key(*name)) {
                    *sums.entry((job.clone(), name.clone())).or_default() += value;
                }
            }
            *before = now;
            true
        });
    }

    fn counter(&self, job: &str, name: &str) -> Option<f64> {
        self.sums.get(&(job.to_owned(), name.to_owned())).copied()
    }

    fn awaits(&mut self, name: &str, value: f64) {
        for job in ["main", "run"] {
            poll(&format!("{name} of {job} to be {value} at the root"), || {
                self.polls();
                self.counter(job, name) == Some(value)
            });
        }
        self.polls();
        assert_eq!(
            (self.counter("main", name), self.counter("run", name)),
            (Some(value), Some(value)),
            "and it stays so"
        );
    }

    /// Stops a server while it polls that.
    fn sees_off(&mut self, child: Proxy) -> Vec<String> {
        let stopping = std::thread::spawn(move || child.server.terminate());
        while !stopping.is_finished() {
            self.polls();
        }
        let (status, printed) = stopping.join().unwrap();
        assert!(status.success(), "{printed:?}");
        printed
    }
}

#[test]
fn an_original_parent_polls_what_was_counted_last_before_a_server_stops() {
    let below = TempDir::new().unwrap();
    let mut original = OriginalRoot::start();
    // A period in which the test polls for certain; a poll that does not come would be waited for as long.
    let child = Proxy::start(below.path(), &["-r", &format!("{}@20000", original.stub.address)]);
    poll("the child to join", || original.asked("/join?") > 0);
    let mut client = child.client("run");
    client.add("work", 5.0);
    original.awaits("work", 5.0);
    client.add("work", 2.0);
    client.add("last", 3.0);
    child.awaits("run", "last", 3.0);
    let printed = original.sees_off(child);
    for job in ["main", "run"] {
        let last = (original.counter(job, "work"), original.counter(job, "last"));
        assert_eq!(last, (Some(7.0), Some(3.0)), "the last polls have what came before it was told to stop");
    }
    assert!(printed.iter().all(|line| !line.contains("did not poll once more")), "{printed:?}");
}

#[test]
fn an_original_root_counts_once_what_a_server_below_it_counts_in_all_of_its_lives() {
    let below = TempDir::new().unwrap();
    let mut root = OriginalRoot::start();
    let place = format!("{}@20", root.stub.address);
    let (childs, options) = (free_port(), ["-r", place.as_str()]);
    let mut child = Proxy::start_at(below.path(), childs, &options);
    let mut client = child.client("run");
    client.add("work", 13.0);
    root.awaits("work", 13.0);
    client.add("late", 3.0);
    root.awaits("late", 3.0);
    root.places(&child.address);
    // What it counted last must outlive it, or it is lost here and there.
    poll("values to be stored", || child.stored("late") == Some(3.0));
    child.server.kill();
    drop(client);
    child = Proxy::start_at(below.path(), childs, &options);
    let mut client = child.client("run");
    client.add("work", 100.0);
    root.awaits("work", 113.0);
    child.awaits("run", "work", 113.0);
    client.add("work", 1.0);
    child.awaits("run", "work", 114.0);
    root.sees_off(child);
    assert_eq!((root.counter("main", "work"), root.counter("main", "late")), (Some(114.0), Some(3.0)));
    drop(client);
    child = Proxy::start_at(below.path(), childs, &options);
    let mut client = child.client("run");
    client.add("late", 2.0);
    root.awaits("late", 5.0);
    client.add("work", 1.0);
    root.awaits("work", 115.0);
    assert_eq!((root.asked("/pivot?"), root.children.len()), (1, 1), "it has its place, and is polled in one life");
    // A root that was started anew gets all of it.
    poll("values to be stored", || child.stored("work") == Some(115.0));
    child.server.kill();
    drop(client);
    root.restarts();
    child = Proxy::start_at(below.path(), childs, &options);
    let mut client = child.client("run");
    client.add("work", 1.0);
    root.awaits("work", 116.0);
    root.awaits("late", 5.0);
    assert_eq!(root.asked("/pivot?"), 2);
    drop(client);
}

#[test]
fn an_original_root_that_drops_a_server_which_lives_gets_what_it_missed_once_that_joins_again() {
    let below = TempDir::new().unwrap();
    let mut root = OriginalRoot::start();
    let child = Proxy::start(below.path(), &["-r", &format!("{}@20", root.stub.address)]);
    let mut client = child.client("run");
    client.add("work", 13.0);
    root.awaits("work", 13.0);
    root.places(&child.address);
    let dropped: Vec<String> = std::mem::take(&mut root.children).into_keys().collect();
    client.add("work", 100.0);
    // After half a minute without a poll.
    poll("the child to join again", || root.asked("/join?") == 2);
    root.awaits("work", 113.0);
    let (address, path) = dropped[0].split_once('/').unwrap();
    assert_eq!(ask(address, &format!("/{path}/job")).status, 404, "who polls at an earlier address stops");
    drop(client);
}

#[test]
fn a_target_that_takes_connections_and_is_silent_holds_up_itself_alone() {
    let dir = TempDir::new().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).unwrap();
    let (child, exporter) = (Stub::child(), Stub::start());
    let list = format!("{}@20,{}@20,{}@20", silent.1, child.address, exporter.address);
    let mut total = 0.0;
    let mut count = || {
        total += 1.0;
        child.tell(&[counter("work", total)], &[]);
        exporter.show("/metrics", &format!("# TYPE shown_total counter\nshown_total {total}\n"));
        total
    };
    let first = count();
    let root = Proxy::start(dir.path(), &["-s", &list]);
    root.awaits("main", "work", first);
    root.awaits("main", "shown_total", first);
    let told = || root.row(&silent.1).unwrap();
    assert_eq!(told()["error"], Json::Null, "it has time to answer still: {}", told());
    // Its time passes, and it is asked again, while the others are polled as before.
    poll("its silence to be told", || {
        let now = count();
        root.awaits("main", "work", now);
        root.awaits("main", "shown_total", now);
        told()["failures"].as_u64() >= Some(2)
    });
    assert!(told()["error"].is_string(), "{}", told());
    for target in [&child.address, &exporter.address] {
        assert_eq!(root.row(target).unwrap()["error"], Json::Null);
    }
}

#[test]
fn a_server_counts_neither_itself_nor_one_that_counts_it() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    let mut client = root.client("own");
    client.add("work", 3.0);
    root.awaits("main", "work", 3.0);
    root.get(&format!("/join?to={}&period=20", root.address)).expect(200);
    let told = || root.row(&root.address).and_then(|row| row["error"].as_str().map(str::to_owned)).unwrap_or_default();
    poll("the refusal to be told", || told().contains("that is this server itself"));
    assert_eq!(root.counter("main", "work"), Some(3.0));
    let other_dir = TempDir::new().unwrap();
    let other = Proxy::start(other_dir.path(), &[]);
    other.get(&format!("/join?to={}&period=20", root.address)).expect(200);
    other.awaits("main", "work", 3.0);
    root.get(&format!("/join?to={}&period=20", other.address)).expect(200);
    let told = || root.row(&other.address).and_then(|row| row["error"].as_str().map(str::to_owned)).unwrap_or_default();
    poll("the refusal to be told", || told().contains("polls the one that asks"));
    client.add("work", 1.0);
    other.awaits("main", "work", 4.0);
    assert_eq!(root.counter("main", "work"), Some(4.0));
}

#[test]
fn the_token_in_a_path_is_as_good_as_in_a_header_unless_it_is_off() {
    let dir = TempDir::new().unwrap();
    let mut root = Proxy::start(dir.path(), &["--require-token"]);
    let file = std::fs::read_to_string(root.server.connection_file()).unwrap();
    let token = serde_json::from_str::<Json>(&file).unwrap()["token"].as_str().unwrap().to_owned();
    assert_eq!(root.get("/job/list").status, 401);
    assert_eq!(root.get("/t/0123456789abcdef/job/list").status, 401);
    let jobs = root.get(&format!("/t/{token}/job/list")).expect(200).json();
    assert!(jobs.as_array().unwrap().iter().any(|job| job["jobid"] == "main"));
    let parent = root.json(&format!("/t/{token}/pivot?from=a:1"))["operation"].as_str().unwrap().to_owned();
    assert_eq!(parent, format!("{}/t/{token}", root.address), "where the child shows it again");
    assert_eq!(root.json(&format!("/t/{token}/topo")), json!([[root.named(), "a:1"]]), "and nowhere else");
    let page = root.get(&format!("/t/{token}/is_admire_proxy.html")).expect(200);
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    let (_, printed) = root.server.terminate();
    assert!(printed.iter().all(|line| !line.contains(&token) && !line.contains("0123456789abcdef")), "{printed:?}");
    let mut root = Proxy::start(dir.path(), &["--require-token", "--proxy-token-path", "off"]);
    let file = std::fs::read_to_string(root.server.connection_file()).unwrap();
    let token = serde_json::from_str::<Json>(&file).unwrap()["token"].as_str().unwrap().to_owned();
    assert_eq!(root.get(&format!("/t/{token}/job/list")).status, 401);
}

#[test]
fn who_shows_no_token_lets_the_server_poll_this_machine_only() {
    let dir = TempDir::new().unwrap();
    let mut root = Proxy::start(dir.path(), &[]);
    // A network for documentation, which is nowhere.
    let far = root.get("/join?to=192.0.2.1:1");
    assert_eq!(far.status, 400);
    assert!(far.text().contains("--proxy-join any"), "{}", far.text());
    let refused = |path: &str| root.get(path).json()["operation"].as_str().unwrap().to_owned();
    assert_eq!(refused("/join"), "No to parameter passed");
    assert_eq!(refused("/join?to=http://a:1"), "To should not be an URL (with http://) but host:port");
    assert_eq!(
        refused("/join?to=127.0.0.1:1"),
        "Failed to add 127.0.0.1:1 for scraping : Failed to determine type of 127.0.0.1:1"
    );
    assert_eq!(refused("/pivot"), "No from parameter passed");
    // Its own user needs none, but is told that this one is wrong.
    let wrong = root.get("/t/0123456789abcdef/pivot?from=127.0.0.1:1");
    assert_eq!(wrong.status, 401);
    assert!(wrong.text().contains("the token in the path is wrong"), "{}", wrong.text());
    assert_eq!(refused("/pivot?from=http://a:1"), "From should not be an URL (with http://) but host:port");
    let (a, b) = (Stub::child(), Stub::child());
    root.get(&format!("/join/multiple?to={}%26{}&period=20", a.address, b.address)).expect(200);
    assert!(root.row(&a.address).is_some() && root.row(&b.address).is_some());
    root.get("/period?period=40").expect(200);
    assert_eq!(root.row(&a.address).unwrap()["period"], 40);
    root.get(&format!("/join?to={}&period=1000", a.address)).expect(200);
    assert_eq!(root.row(&a.address).unwrap()["period"], 1000, "the same target again replaces");
    assert_eq!(root.json("/join/list").as_array().unwrap().len(), 3);
    a.is_seen();
    assert_eq!(root.get(&format!("/remove?from=x:1&target={}", a.address)).status, 400, "it answers");
    root = Proxy::start(TempDir::new().unwrap().path(), &["--proxy-join", "none"]);
    assert!(root.get(&format!("/join?to={}", a.address)).text().contains("--proxy-join none"));
}

#[test]
fn who_shows_the_token_lets_the_server_poll_anything_and_so_does_the_option() {
    let dir = TempDir::new().unwrap();
    let child = Stub::child();
    child.tell(&[counter("work", 4.0)], &[]);
    // Nobody has it as an address of their own, and the kernel takes it for this machine.
    let (target, port) = (child.address.replace("127.0.0.1", "0.0.0.0"), child.address.rsplit(':').next().unwrap());
    let join = format!("/join?to={target}&period=20");
    let mut root = Proxy::start(dir.path(), &[]);
    let untrusted = root.get(&join);
    assert_eq!(untrusted.status, 400);
    assert!(untrusted.text().contains("is not on this machine"), "{}", untrusted.text());
    let file = std::fs::read_to_string(root.server.connection_file()).unwrap();
    let token = serde_json::from_str::<Json>(&file).unwrap()["token"].as_str().unwrap().to_owned();
    root.get(&format!("/t/{token}{join}")).expect(200);
    root.awaits("main", "work", 4.0);
    // It is polled after a restart, too.
    root.server.terminate();
    child.tell(&[counter("work", 7.0)], &[]);
    let root = Proxy::start(dir.path(), &[]);
    root.awaits("main", "work", 7.0);
    drop(root);
    let open_dir = TempDir::new().unwrap();
    let open = Proxy::start(open_dir.path(), &["--proxy-join", "any"]);
    open.get(&join).expect(200);
    open.awaits("main", "work", 7.0);
    assert!(open.row(port).is_some());
}

#[test]
fn a_child_that_is_dead_is_removed_and_what_it_counted_stays() {
    let dir = TempDir::new().unwrap();
    let root = Proxy::start(dir.path(), &[]);
    let child = Stub::child();
    child.tell(&[counter("work", 4.0)], &[]);
    child.joins(&root);
    root.awaits("main", "work", 4.0);
    let remove = format!("/remove?from=x:1&target={}", child.address);
    assert_eq!(root.get(&remove).expect(400).json()["operation"], format!("{} answers here", child.address));
    child.is_dead.store(true, Ordering::SeqCst);
    poll("its failure to be told", || root.row(&child.address).unwrap()["failures"].as_u64() > Some(0));
    assert_eq!(root.get(&remove).expect(200).json()["operation"], format!("Removed {}", child.address));
    assert!(root.row(&child.address).is_none());
    assert_eq!(root.json("/topo"), json!([[root.named(), root.named()]]));
    assert_eq!(root.counter("main", "work"), Some(4.0));
    assert_eq!(root.get(&remove).expect(400).json()["operation"], format!("{} is not known here", child.address));
}

#[test]
fn targets_of_the_command_line_are_tried_until_they_answer_and_a_bad_root_ends_it() {
    let dir = TempDir::new().unwrap();
    let child = Stub::child();
    child.tell(&[counter("work", 4.0)], &[]);
    child.is_dead.store(true, Ordering::SeqCst);
    let list = format!("{}@30,127.0.0.1:1", child.address);
    let root = Proxy::start(dir.path(), &["-s", &list]);
    child.is_dead.store(false, Ordering::SeqCst);
    root.awaits("main", "work", 4.0);
    assert_eq!(root.row(&child.address).unwrap()["period"], 30);
    for bad in ["nowhere", "a:1@", "a:port"] {
        let output = telem(["proxy", "-p", "0", "-r", bad, "-t"]).arg(dir.path().join("other")).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{bad}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("-r: "), "{bad}");
    }
}
