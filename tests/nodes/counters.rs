//! Clients of Metric Proxy in a job of many nodes: each node counts for its own, the head sums, and every node answers
//! what the head answers.

use std::hash::{BuildHasher, RandomState};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::{Job, wait_for_states};
use crate::kill::drawn;
use crate::process::{Response, Server, free_port, poll};
use crate::proxy_tree::{Client, Stub, ask, counter, desc};

/// How much happens in the test of all that can die, unless `TELEM_STEPS` says otherwise.
const STEPS: u64 = 20;
/// What an agent is asked with that is to answer for itself.
const OWN: (&str, &str) = ("X-Telem-Own-Node", "true");

/// A process of the job, and where its clients find it.
struct Member {
    server: Server,
    socket: PathBuf,
}

impl Member {
    fn of(mut server: Server) -> Self {
        let socket = server.socket();
        Self { server, socket }
    }

    fn client(&self, job: Option<&str>) -> Client {
        let mut client = Client(UnixStream::connect(&self.socket).unwrap());
        if let Some(job) = job {
            client.send(&json!({ "JobDesc": desc(job, 7) }));
        }
        client
    }

    fn json(&self, path: &str) -> Json {
        self.server.get(path).expect(200).json()
    }

    /// A counter or the gauge of a live job.
    fn value(&self, job: &str, name: &str) -> Option<f64> {
        value_in(&self.server.get(&format!("/job?job={job}")), name)
    }

    fn awaits(&self, job: &str, name: &str, value: f64) {
        poll(&format!("{name} of {job} to be {value}"), || self.value(job, name) == Some(value));
    }

    /// What it counts itself.
    fn own(&self, job: &str, name: &str) -> Option<f64> {
        let path = format!("/job?job={job}");
        value_in(&self.server.connect().request("GET", &path, &[OWN], b"").unwrap(), name)
    }

    /// The names of the alarms that are raised.
    fn raised(&self, job: &str) -> Vec<String> {
        let alarms = self.json("/alarms")[job].as_array().cloned().unwrap_or_default();
        alarms.iter().map(|alarm| alarm["name"].as_str().unwrap().to_owned()).collect()
    }

    fn defines(&self, alarm: &Json) {
        let answer = self.server.connect().request(
            "POST",
            "/alarms/add",
            &[("Content-Type", "application/json")],
            alarm.to_string().as_bytes(),
        );
        assert_eq!(answer.unwrap().expect(200).json()["operation"], "alarm registered");
    }
}

fn value_in(job: &Response, name: &str) -> Option<f64> {
    let job = job.json();
    let found = job["counters"].as_array()?.iter().find(|counter| counter["name"] == name)?;
    let (counter, gauge) = (&found["ctype"]["Counter"], &found["ctype"]["Gauge"]);
    counter["value"].as_f64().or_else(|| gauge["total"].as_f64())
}

fn set(client: &mut Client, name: &str, value: f64) {
    let gauge = |hits: f64, value: f64| json!({"Gauge": {"min": value, "max": value, "hits": hits, "total": value}});
    client.send(&json!({"Desc": {"name": name, "doc": "d", "ctype": gauge(0.0, 0.0)}}));
    client.send(&json!({"Value": {"name": name, "value": gauge(1.0, value)}}));
}

/// A head and two agents.
fn three(job: &Job) -> [Member; 3] {
    let head = job.head(&[]);
    let agents = ["n1", "n2"].map(|node| Member::of(job.agent(node, node)));
    wait_for_states(&head, "head head up, n1 up, n2 up");
    let [one, two] = agents;
    [Member::of(head), one, two]
}

#[test]
fn an_alarm_at_the_head_watches_over_what_clients_of_all_nodes_count() {
    let job = Job::new();
    let [head, one, two] = three(&job);
    let mut first = one.client(Some("j"));
    first.add("work", 6.0);
    head.awaits("main", "work", 6.0);
    head.awaits("j", "work", 6.0);
    head.defines(&json!({"name": "busy", "target": "main", "metric": "work", "operation": ">", "value": 10}));
    // What no node has alone.
    assert_eq!(head.raised("main"), [""; 0]);
    assert_eq!(head.json("/alarms/list")["main"][0]["current"], 6.0);
    let mut second = two.client(None);
    second.add("work", 5.0);
    poll("the alarm of the sum", || head.raised("main") == ["busy"]);
    for agent in [&one, &two] {
        assert_eq!(agent.raised("main"), ["busy"]);
        assert_eq!(agent.json("/alarms/list")["main"][0]["current"], 11.0);
    }
    // One of a job on another node, which is defined at a third one; it ends, too.
    set(&mut first, "temp", 20.0);
    head.awaits("j", "temp", 20.0);
    two.defines(&json!({"name": "hot", "target": "j", "metric": "temp", "operation": ">", "value": 90, "clear": 80}));
    assert_eq!(one.raised("j"), [""; 0]);
    set(&mut first, "temp", 95.0);
    poll("the alarm of the job", || head.raised("j") == ["hot"]);
    set(&mut first, "temp", 50.0);
    poll("its end", || head.raised("j").is_empty());
    let rows = || {
        let sql = "SELECT job, alarm, value, ended_by FROM alarms ORDER BY alarm";
        one.server.sql(sql).expect(200).json()
    };
    let expected = json!([
        {"job": "main", "alarm": "busy", "value": 11.0, "ended_by": null},
        {"job": "j", "alarm": "hot", "value": 95.0, "ended_by": "value"},
    ]);
    assert_eq!(rows(), expected);
    // It stays raised over the death of the head, and is not raised twice.
    let address = head.server.address.clone();
    head.server.kill();
    let head = Member::of(job.head_at(&address, "head", &[]));
    assert_eq!(head.raised("main"), ["busy"]);
    wait_for_states(&head.server, "head head up, n1 up, n2 up");
    second.add("work", 1.0);
    head.awaits("main", "work", 12.0);
    assert_eq!(rows(), expected);
    let deleted = one.json("/alarms/del?targetjob=main&name=busy");
    assert_eq!(deleted["operation"], "Deleted busy from main");
    assert_eq!(head.json("/alarms/list")["main"], json!([]));
}

#[test]
fn a_node_that_is_lost_is_named_while_its_part_of_the_sums_stays() {
    let job = Job::new();
    let [head, one, two] = three(&job);
    let (mut first, mut second) = (one.client(Some("wide")), two.client(Some("wide")));
    first.add("steps", 10.0);
    second.add("steps", 5.0);
    head.awaits("wide", "steps", 15.0);
    let missing = |path: &str| head.server.get(path).expect(200).header("x-telem-missing").map(str::to_owned);
    assert_eq!(missing("/job"), None);
    two.server.kill();
    poll("the node to be missed", || missing("/job").is_some_and(|names| names.starts_with("n2=")));
    assert!(missing("/metrics").is_some_and(|names| names.starts_with("n2=") && !names.contains("n1")));
    first.add("steps", 1.0);
    head.awaits("main", "steps", 16.0);
    let two = Member::of(job.agent("n2", "n2"));
    let mut second = two.client(Some("wide"));
    second.add("steps", 2.0);
    head.awaits("main", "steps", 18.0);
    poll("it to be there again", || missing("/job").is_none());
}

#[test]
fn a_job_on_two_nodes_is_one_job_with_one_profile_and_its_samples_are_those_of_its_nodes() {
    let job = Job::new();
    let [head, one, two] = three(&job);
    let (mut first, mut second) = (one.client(Some("wide")), two.client(Some("wide")));
    first.add(r#"work{rank="0"}"#, 3.0);
    second.add(r#"work{rank="1"}"#, 4.0);
    for client in [&mut first, &mut second] {
        client.add("steps", 10.0);
    }
    head.awaits("wide", "steps", 20.0);
    for name in [r#"work{rank="0"}"#, r#"work{rank="1"}"#] {
        poll("a counter of each node", || head.value("wide", name).is_some() && two.value("wide", name).is_some());
    }
    let distinct = "SELECT DISTINCT node FROM samples WHERE metric = 'steps' ORDER BY node";
    poll("samples of both nodes, and of nobody else", || {
        head.server.sql(distinct).expect(200).json() == json!([{"node": "n1"}, {"node": "n2"}])
    });
    poll("the trace to have what both counted", || {
        let trace = one.json("/trace/plot?jobid=wide&filter=steps");
        let points = trace.as_array().unwrap();
        // The last point is what is counted now, whatever the samples say.
        points.len() > 1 && points[points.len() - 2][1] == 20.0
    });
    drop(first);
    poll("its part on a node to end", || one.own("wide", "steps").is_none());
    second.add("steps", 1.0);
    head.awaits("wide", "steps", 21.0);
    drop(second);
    for member in [&head, &one, &two] {
        poll("its profile", || value_in(&member.server.get("/profiles/get?jobid=wide"), "steps") == Some(21.0));
        assert_eq!(member.value("main", "steps"), Some(21.0));
    }
    assert_eq!(head.json("/profiles").as_array().unwrap().len(), 1);
    assert_eq!(
        head.server.sql(distinct).expect(200).json(),
        json!([{"node": "n1"}, {"node": "n2"}]),
        "the head's copy is in metrics of other names"
    );
}

#[test]
fn a_node_that_ends_is_not_gone_before_its_head_has_what_its_clients_counted_last() {
    let job = Job::new();
    let [head, one, _two] = three(&job);
    let mut client = one.client(Some("short"));
    client.add("work", 1.0);
    head.awaits("main", "work", 1.0);
    // One client is gone before, and the other one stays until the node ends.
    let mut staying = one.client(Some("staying"));
    staying.add("work", 4.0);
    client.add("work", 2.0);
    poll("the node to have it", || one.own("main", "work") == Some(7.0));
    drop(client);
    let polled = || {
        let rows = head.json("/join/list");
        rows.as_array().unwrap().iter().filter(|row| row["ttype"] == "Proxy").count()
    };
    assert_eq!(polled(), 1);
    let Member { server, .. } = one;
    let (status, said) = server.terminate();
    assert!(status.success(), "{said:?}");
    head.awaits("main", "work", 7.0);
    for (job, work) in [("short", 3.0), ("staying", 4.0)] {
        let path = format!("/profiles/get?jobid={job}");
        poll("the profile", || value_in(&head.server.get(&path), "work") == Some(work));
    }
    assert_eq!(polled(), 0, "it left");
    assert_eq!(head.value("main", "work"), Some(7.0));
    let one = Member::of(job.agent("n1", "n1"));
    let mut client = one.client(Some("again"));
    client.add("work", 1.0);
    head.awaits("main", "work", 8.0);
}

#[test]
fn an_agent_hands_on_what_concerns_the_job_and_without_a_head_answers_for_itself() {
    let job = Job::new();
    let [head, one, two] = three(&job);
    let (mut of_head, mut of_one) = (head.client(Some("j")), one.client(Some("j")));
    of_head.add("work", 1.0);
    of_one.add("work", 2.0);
    head.awaits("main", "work", 3.0);
    assert_eq!((one.own("main", "work"), two.own("main", "work")), (Some(2.0), None));
    for path in ["/job/list", "/job?job=j", "/profiles", "/alarms", "/model/get?jobid=none", "/trace/read", "/nosuch"] {
        let (expected, found) = (head.server.get(path), two.server.get(path));
        assert_eq!(found.status, expected.status, "{path}");
        if path == "/job/list" {
            assert_eq!(found.json(), expected.json());
        }
    }
    assert_eq!(two.value("j", "work"), Some(3.0));
    // What changes something is done at the head.
    for (agent, path) in
        [(&one, "/push?key=pushed&doc=d"), (&two, "/set?key=pushed&value=4"), (&one, "/accumulate?key=pushed&value=1")]
    {
        assert_eq!(agent.json(path)["success"], true, "{path}");
    }
    assert_eq!(head.value("main", "pushed"), Some(5.0));
    assert_eq!((one.own("main", "pushed"), two.own("main", "pushed")), (None, None));
    // A client that shows no token does not get the trust of the agent.
    let far = one.server.get("/join?to=192.0.2.1:1").expect(400).text();
    assert!(far.contains("--proxy-join any"), "{far}");
    // A child that asks an agent is led back to it, and polled by the head.
    let child = Stub::child();
    assert_eq!(child.joins_at(&two.server.address), two.server.address);
    child.tell(&[counter("work", 10.0)], &[]);
    head.awaits("main", "work", 13.0);
    assert_eq!(one.json("/topo").as_array().unwrap().len(), 1);
    let address = head.server.address.clone();
    drop(of_head);
    let stored = "SELECT count(*) AS n FROM samples WHERE metric = 'work' AND node = 'head'";
    poll("what the head's clients sent to be stored", || {
        head.server.sql(stored).json()[0]["n"].as_u64().is_some_and(|n| n > 0)
    });
    head.server.kill();
    poll("an answer of the agent's own", || one.value("main", "work") == Some(2.0));
    let alone = one.server.get("/job?job=j").expect(200);
    assert!(alone.header("x-telem-missing").is_some_and(|missing| missing.contains("n1 alone")), "{alone:?}");
    let refused = two.server.get("/accumulate?key=pushed&value=1").expect(503).json();
    assert_eq!(refused["success"], false);
    of_one.add("work", 4.0);
    let head = Member::of(job.head_at(&address, "head", &[]));
    head.awaits("main", "work", 17.0);
    poll("the agents to know their head", || two.value("main", "work") == Some(17.0));
    assert_eq!(two.json("/accumulate?key=pushed&value=1")["success"], true);
    assert_eq!(one.value("main", "pushed"), Some(6.0));
}

/// What a seed draws, one after another.
struct Draws {
    seed: u64,
    count: u64,
}

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.count += 1;
        drawn(self.seed, self.count) % limit
    }
}

/// An original child: what it tells now, and what it told in this life.
struct Child {
    server: ChildServer,
    told: f64,
}

enum ChildServer {
    Stub(Stub),
    Original(Original),
}

/// A server of Metric Proxy itself, where there is one: `TELEM_ORIGINAL_PROXY` is its path.
struct Original {
    dir: TempDir,
    binary: PathBuf,
    root: String,
    /// The server, and a client with a job; none while it is dead.
    life: Option<(ChildProcess, Client)>,
}

impl Original {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn start(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        let mut command = Command::new(&self.binary);
        command.args(["-p", &free_port().to_string(), "-S", "50", "-r", &format!("{}@20", self.root)]);
        command.arg("-u").arg(self.socket()).arg("-t").arg(self.dir.path().join("data"));
        let server =
            ChildProcess::spawn(command.env("HOME", self.dir.path()).stdout(Stdio::null()).stderr(Stdio::null()));
        let mut stream = None;
        poll("the original to listen", || {
            stream = UnixStream::connect(self.socket()).ok();
            stream.is_some()
        });
        let mut client = Client(stream.unwrap());
        client.send(&json!({ "JobDesc": desc("tree", 9) }));
        self.life = Some((server, client));
    }
}

/// Killed when it is dropped.
struct ChildProcess(std::process::Child);

impl ChildProcess {
    fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Child {
    /// A stub, or with `original` that server itself, below the member at `root`.
    fn below(root: &str, original: Option<&Path>) -> Self {
        let server = match original {
            None => {
                let stub = Stub::child();
                stub.joins_at(root);
                ChildServer::Stub(stub)
            }
            Some(binary) => {
                let (dir, binary) = (TempDir::new().unwrap(), binary.to_owned());
                let mut original = Original { dir, binary, root: root.to_owned(), life: None };
                original.start();
                ChildServer::Original(original)
            }
        };
        Self { server, told: 0.0 }
    }

    fn counts(&mut self, value: f64) {
        self.told += value;
        match &mut self.server {
            ChildServer::Stub(stub) => {
                let jobs = [(desc("tree", 9), vec![counter("work", self.told)])];
                stub.tell(&[counter("work", self.told)], &jobs);
            }
            ChildServer::Original(original) => {
                if let Some((_, client)) = &mut original.life {
                    client.add("work", value);
                }
            }
        }
    }

    fn dies(&mut self) {
        self.told = 0.0;
        match &mut self.server {
            ChildServer::Stub(stub) => stub.is_dead.store(true, Ordering::SeqCst),
            ChildServer::Original(original) => original.life = None,
        }
    }

    /// In its next life it counts from nothing, below the member at `root`, and the first that it tells is `value`.
    fn returns(&mut self, value: f64, root: &str) {
        if let ChildServer::Original(original) = &mut self.server {
            root.clone_into(&mut original.root);
            original.start();
        }
        self.counts(value);
        if let ChildServer::Stub(stub) = &self.server {
            stub.is_dead.store(false, Ordering::SeqCst);
            stub.is_seen();
        }
    }
}

/// Three telem nodes and two original children, of which any may die.
struct Crowd {
    job: Job,
    members: [Option<Member>; 3],
    /// Of each member, with their jobs.
    clients: [Vec<(usize, Client)>; 3],
    children: [Child; 2],
    sent: f64,
    marks: u32,
    /// Where the head listens, in all of its lives.
    address: String,
}

const NODES: [&str; 3] = ["head", "n1", "n2"];
const JOBS: [Option<&str>; 3] = [Some("a"), Some("b"), None];

impl Crowd {
    fn with(original: Option<&Path>) -> Self {
        let job = Job::new();
        let members = three(&job);
        let address = members[0].server.address.clone();
        // One asks the head, the other one an agent.
        let children = [0, 1].map(|at| Child::below(&members[at].server.address, original));
        let members = members.map(Some);
        let mut crowd = Self { job, members, clients: Default::default(), children, sent: 0.0, marks: 0, address };
        (0..2).for_each(|at| crowd.child_is_polled(at));
        crowd
    }

    fn member(&self, at: usize) -> &Member {
        self.members[at].as_ref().unwrap()
    }

    fn send(&mut self, at: usize, job: usize, value: f64) {
        let known = self.clients[at].iter().position(|(known, _)| *known == job);
        let known = known.unwrap_or_else(|| {
            let client = self.member(at).client(JOBS[job]);
            self.clients[at].push((job, client));
            self.clients[at].len() - 1
        });
        self.clients[at][known].1.add("work", value);
        self.sent += value;
    }

    /// `main` of the head is what was sent, no more and no less.
    fn settle(&self) {
        let sent = self.sent;
        let mut last = None;
        let (head, last) = (self.member(0), &mut last);
        let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            poll("main to be what was sent", || {
                *last = head.value("main", "work");
                assert!(last.is_none_or(|value| value <= sent), "{last:?} of {sent}");
                last.unwrap_or(0.0) == sent
            });
        }));
        assert!(happened.is_ok(), "{last:?} in main, and {sent} was sent");
    }

    /// Until what a process counted is in its samples: what came within the last period dies with it.
    fn is_stored(&mut self, at: usize) {
        self.marks += 1;
        let mark = format!("mark_{}", self.marks);
        // Of a job that stays, so that only a period that is over writes it, with everything else.
        let mut client = self.member(at).client(Some("marks"));
        client.add(&mark, 1.0);
        let sql = format!("SELECT count(*) AS n FROM samples WHERE metric = '{mark}' AND node = '{}'", NODES[at]);
        poll("values to be stored", || self.member(0).server.sql(&sql).json()[0]["n"].as_u64().is_some_and(|n| n > 0));
    }

    fn kill(&mut self, at: usize) {
        self.settle();
        self.is_stored(at);
        self.members[at].take().unwrap().server.kill();
        self.clients[at].clear();
    }

    fn start(&mut self, at: usize) {
        let server = match at {
            0 => self.job.head_at(&self.address, "head", &[]),
            _ => self.job.agent(NODES[at], NODES[at]),
        };
        self.members[at] = Some(Member::of(server));
    }

    fn child_counts(&mut self, at: usize, value: f64) {
        self.children[at].counts(value);
        self.sent += value;
    }

    /// The value that it will return with.
    fn child_dies(&mut self, at: usize, value: f64) -> f64 {
        // An original forgets, and what nobody asked for dies with it.
        self.settle();
        let child = &mut self.children[at];
        // That it is less than before shows that it counts anew.
        let value = if value < child.told { value } else { 0.0 };
        child.dies();
        value
    }

    fn child_returns(&mut self, at: usize, value: f64) {
        let root = self.member(at).server.address.clone();
        self.children[at].returns(value, &root);
        self.sent += value;
        self.child_is_polled(at);
    }

    /// Until the head asked it in this life. An original that has not joined yet loses its root with the node it was
    /// going to ask, and two lives between two polls are one to whoever polls it (docs/proxy.md).
    fn child_is_polled(&mut self, at: usize) {
        let ChildServer::Original(original) = &mut self.children[at].server else { return };
        let Some((_, client)) = &mut original.life else { return };
        self.marks += 1;
        let mark = format!("life_{}", self.marks);
        client.add(&mark, 1.0);
        self.member(0).awaits("main", &mark, 1.0);
    }
}

/// With `TELEM_ORIGINAL_PROXY=PATH` the two children are servers of Metric Proxy itself, else they speak as it does.
#[test]
fn main_of_the_head_is_what_was_sent_while_nodes_children_and_clients_die_and_return() {
    let original = std::env::var_os("TELEM_ORIGINAL_PROXY").map(PathBuf::from);
    let seed = std::env::var("TELEM_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u64 = seed.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    let steps = std::env::var("TELEM_STEPS").map_or(STEPS, |steps| steps.parse().unwrap());
    println!("seed {seed}, {steps} steps (TELEM_SEED={seed} draws the same; TELEM_STEPS)");
    let (mut draws, mut crowd) = (Draws { seed, count: 0 }, Crowd::with(original.as_deref()));
    for at in 0..3 {
        crowd.send(at, at, 1.0);
    }
    for step in 0..steps {
        let at = draws.below(3) as usize;
        let value = (1 + draws.below(100)) as f64;
        let child = draws.below(2) as usize;
        match draws.below(10) {
            0..=3 => {
                for _ in 0..=draws.below(20) {
                    crowd.send(at, draws.below(3) as usize, value);
                }
            }
            4 | 5 => {
                println!("step {step}: child {child} counts {value}");
                crowd.child_counts(child, value);
            }
            6 => {
                // Clients die in the middle of their work.
                crowd.clients[at].clear();
            }
            7 => {
                let value_after = crowd.child_dies(child, value);
                println!("step {step}: child {child} died, and returns with {value_after}");
                crowd.send(at, draws.below(3) as usize, value);
                crowd.child_returns(child, value_after);
            }
            _ => {
                crowd.kill(at);
                println!("step {step}: {} was killed, and child {child} counts {value}", NODES[at]);
                // Others work on meanwhile.
                let other = (at + 1 + draws.below(2) as usize) % 3;
                crowd.send(other, draws.below(3) as usize, value);
                crowd.child_counts(child, value);
                crowd.start(at);
                crowd.send(at, draws.below(3) as usize, value);
            }
        }
    }
    crowd.settle();
    for (at, node) in NODES.iter().enumerate() {
        poll(&format!("{node} to answer the same"), || crowd.member(at).value("main", "work") == Some(crowd.sent));
    }
    // It was not counted twice in what anybody asks, either.
    let job = ask(&crowd.address, "/metrics?job=main").expect(200).text();
    assert!(job.lines().any(|line| line == format!("work {}", crowd.sent)), "{job}");
}
