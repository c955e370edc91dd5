//! A node's files arrive at the head as a whole or not at all, only with the token, and in a directory of their own.

use std::net::SocketAddr;
use std::thread;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use telem_engine::{
    Clock, Db, Durability, Mirror, Options, SampleBatch, SeriesKey, SystemClock, TagSet, TimeRange, Timestamp, Value,
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tower::ServiceExt;

use super::*;
use crate::client::{Address, Client};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A head that saves its job in a directory.
struct Head {
    dir: TempDir,
    uploads: Uploads,
    router: Router,
}

impl Head {
    fn new(sharing: Sharing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(&dir.path().join("job"), Token::chosen(TOKEN).unwrap(), sharing);
        Self { dir, router: routes(uploads.clone()), uploads }
    }

    /// The directory of a node whose database has this id.
    fn give(&self, node: &str, database: &str) -> PathBuf {
        self.uploads.give(node, &DirectoryRequest { database: database.to_owned(), avoid: None }).unwrap().dir
    }

    async fn ask(&self, method: Method, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {TOKEN}"));
        self.answer(request.body(body.into()).unwrap()).await
    }

    async fn answer(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    async fn put(&self, name: &str, at: usize, part: &[u8]) -> StatusCode {
        let path = format!("/api/nodes/n1/files/{name}?at={at}&crc32={:08x}", mirror::checksum(part));
        self.ask(Method::PUT, &path, part.to_vec()).await.0
    }

    /// Serves until this is dropped.
    fn serve(&self) -> Serving {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = self.router.clone();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let serving = axum::serve(listener, router).with_graceful_shutdown(async {
                    let _ = stopped.await;
                });
                serving.await.unwrap();
            });
        });
        Serving { address, stop: Some(stop), thread: Some(thread) }
    }
}

pub(crate) struct Serving {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Serving {
    fn client(&self, token: &str) -> Client {
        let address = Address::parse(&format!("http://{}", self.address)).unwrap();
        Client::with_token(address, Some(token))
    }

    fn place(&self, node: &str) -> NodePlace {
        let client = self.client(TOKEN);
        NodePlace::new(Box::new(move || vec![client.clone()]), node, None)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The database of a node.
struct Node {
    dir: TempDir,
    db: Db,
}

impl Node {
    fn new(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { node: name.to_owned(), ..Options::default() };
        Self { db: Db::open(&dir.path().join("db"), options).unwrap(), dir }
    }

    fn append(&self, metric: &str, seconds: std::ops::Range<i64>) {
        let id = self.db.series(&SeriesKey::new(metric, TagSet::default()).unwrap()).unwrap();
        let mut batch = SampleBatch::default();
        for second in seconds {
            batch.push(id, Timestamp::from_seconds(second), Value::Int(second * second % 1_009));
        }
        self.db.append(&batch, Durability::Synced).unwrap();
    }

    fn id(&self) -> String {
        self.db.info().unwrap().database
    }
}

fn samples(db: &Db) -> Vec<(String, Vec<Timestamp>)> {
    let snapshot = db.snapshot();
    let series = snapshot.metrics().iter().flat_map(|metric| snapshot.select(metric, &[])).collect();
    let points = snapshot.points(series, TimeRange::ALL).map(|points| points.unwrap());
    points.map(|points| (snapshot.index().key(points.series).unwrap().to_string(), points.times)).collect()
}

fn assert_copied(dir: &Path, source: &Db) {
    let copy = Db::open_read_only(dir, Options::default()).unwrap();
    assert_eq!(samples(&copy), samples(source));
}

#[tokio::test]
async fn nothing_is_done_for_who_has_another_token_or_none() {
    let head = Head::new(Sharing::Found);
    let dir = head.give("n1", "db");
    for token in [None, Some("Bearer 0123456789abcdef0123456789abcdeF"), Some("Bearer "), Some(TOKEN)] {
        for (method, path) in [
            (Method::POST, "/api/nodes/n1/save"),
            (Method::POST, "/api/nodes/n1/saved"),
            (Method::GET, "/api/nodes/n1/files?folder=wal"),
            (Method::POST, "/api/nodes/n1/files?do=make&folder=wal"),
            (Method::PUT, "/api/nodes/n1/files/WRITER"),
            (Method::GET, "/api/nodes/n1/files/WRITER"),
            (Method::POST, "/api/nodes/n1/files/WRITER?do=sync"),
            (Method::DELETE, "/api/nodes/n1/files/WRITER"),
        ] {
            let mut request = Request::builder().method(method.clone()).uri(path);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let (status, text) = head.answer(request.body(Body::empty()).unwrap()).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}: {text}");
        }
    }
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
}

#[tokio::test]
async fn only_files_that_a_copy_has_are_taken_and_none_leads_elsewhere() {
    let head = Head::new(Sharing::Found);
    head.give("n1", "db");
    for name in [
        "..%2F..%2Fx",
        "wal%2F..%2F..%2F..%2Fx",
        "wal/../../x",
        "%2Fetc%2Fpasswd",
        "connection.json",
        "wal",
        "wal/.x",
        "wal/a/b",
        "WRITER.x",
        "wal/a%00",
    ] {
        let (status, text) = head.ask(Method::PUT, &format!("/api/nodes/n1/files/{name}"), "").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{name}: {text}");
        let (status, _) = head.ask(Method::POST, &format!("/api/nodes/n1/files/WRITER?do=rename&to={name}"), "").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "to {name}");
    }
    let (status, text) = head.ask(Method::GET, "/api/nodes/n1/files?folder=..", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    let (status, text) = head.ask(Method::POST, "/api/nodes/..%2Fx/save", r#"{"database":"d"}"#).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    let inside: Vec<_> = std::fs::read_dir(head.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(inside, ["job"]);
}

#[tokio::test]
async fn a_node_without_a_directory_is_told_to_ask_for_one() {
    let head = Head::new(Sharing::Found);
    assert_eq!(head.ask(Method::PUT, "/api/nodes/n1/files/WRITER", "").await.0, StatusCode::GONE);
    assert_eq!(head.ask(Method::POST, "/api/nodes/n1/saved", "{}").await.0, StatusCode::GONE);
    let (status, answer) = head.ask(Method::POST, "/api/nodes/n1/save", r#"{"database":"d"}"#).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let given: DirectoryGrant = serde_json::from_str(&answer).unwrap();
    assert!(given.probe.unwrap().is_shared(), "we see the directory");
    assert_eq!(head.ask(Method::PUT, "/api/nodes/n1/files/WRITER", "").await.0, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_part_that_comes_twice_or_again_stands_there_once() {
    let head = Head::new(Sharing::Found);
    let file = head.give("n1", "db").join("MANIFEST.new");
    let made = head.ask(Method::PUT, "/api/nodes/n1/files/MANIFEST.new", "").await.0;
    assert_eq!(made, StatusCode::NO_CONTENT);
    let again = head.ask(Method::PUT, "/api/nodes/n1/files/MANIFEST.new", "").await.0;
    assert_eq!(again, StatusCode::CONFLICT, "a file is made once");
    for (at, part) in [(0, "abc"), (3, "def"), (3, "def"), (3, "dxf"), (6, "ghi"), (3, "def"), (6, "ghi")] {
        assert_eq!(head.put("MANIFEST.new", at, part.as_bytes()).await, StatusCode::NO_CONTENT, "{part} at {at}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "abcdefghi");
    assert_eq!(head.put("MANIFEST.new", 10, b"x").await, StatusCode::CONFLICT, "a hole before it");
    assert_eq!(head.put("WRITER", 0, b"x").await, StatusCode::NOT_FOUND, "nobody made it");
}

#[tokio::test]
async fn a_damaged_or_cut_off_or_too_large_part_changes_nothing() {
    let head = Head::new(Sharing::Found);
    let file = head.give("n1", "db").join("WRITER");
    std::fs::write(&file, "before").unwrap();
    let wrong = format!("/api/nodes/n1/files/WRITER?at=6&crc32={:08x}", mirror::checksum(b"other"));
    let (status, text) = head.ask(Method::PUT, &wrong, "damaged").await;
    assert_eq!((status, text.contains("damaged in transit")), (StatusCode::BAD_REQUEST, true), "{text}");
    for without in ["at=6", "at=6&crc32=xyz", "at=6&crc32="] {
        let (status, text) = head.ask(Method::PUT, &format!("/api/nodes/n1/files/WRITER?{without}"), "part").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{without}: {text}");
    }
    let halves = [Ok(Bytes::from_static(b"half")), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
    let cut_off = format!("/api/nodes/n1/files/WRITER?at=6&crc32={:08x}", mirror::checksum(b"half"));
    let (status, text) = head.ask(Method::PUT, &cut_off, crate::http::streamed(futures::stream::iter(halves))).await;
    assert_eq!((status, text.contains("broke off")), (StatusCode::BAD_REQUEST, true), "{text}");
    let at_most = vec![b'x'; PART_BYTES_MAX];
    assert_eq!(head.put("WRITER", 6, &[at_most.as_slice(), b"x"].concat()).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    assert_eq!(head.put("WRITER", 6, &at_most).await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn while_a_request_of_a_node_is_at_work_its_next_is_told_to_come_again() {
    let head = Head::new(Sharing::Found);
    head.give("n1", "db");
    head.give("n2", "other");
    let turn = head.uploads.store("n1").unwrap().turn().unwrap();
    let busy = head.ask(Method::PUT, "/api/nodes/n1/files/WRITER", "").await;
    assert_eq!(busy.0, StatusCode::SERVICE_UNAVAILABLE, "{}", busy.1);
    assert_eq!(head.ask(Method::PUT, "/api/nodes/n2/files/WRITER", "").await.0, StatusCode::NO_CONTENT);
    drop(turn);
    assert_eq!(head.ask(Method::PUT, "/api/nodes/n1/files/WRITER", "").await.0, StatusCode::NO_CONTENT);
}

#[test]
fn no_two_nodes_and_no_two_databases_have_one_directory() {
    let head = Head::new(Sharing::Found);
    let first = head.give("n1", "a");
    assert_eq!(first, head.uploads.save().join("n1"));
    assert_eq!(head.give("n1", "a"), first, "asked again");
    assert_eq!(head.give("n2", "a"), head.uploads.save().join("n2"), "another node");
    assert_eq!(head.give("n1", "b"), head.uploads.save().join("n1-2"), "another database");
    let elsewhere = DirectoryRequest { database: "b".to_owned(), avoid: Some(head.uploads.save().join("n1-2")) };
    assert_eq!(head.uploads.give("n1", &elsewhere).unwrap().dir, head.uploads.save().join("n1-3"));
}

#[test]
fn a_node_that_comes_back_to_a_new_head_goes_on_with_the_copy_that_it_began() {
    let head = Head::new(Sharing::Found);
    let node = Node::new("n1");
    node.append("a", 0..100);
    let dir = head.give("n1", &node.id());
    Mirror::begin(&node.db, &dir, Arc::new(OsDisk)).unwrap().step().unwrap();
    let again = Uploads::new(head.uploads.save(), Token::chosen(TOKEN).unwrap(), Sharing::Found);
    let given = again.give("n1", &DirectoryRequest { database: node.id(), avoid: None }).unwrap();
    assert_eq!(given.dir, dir);
    let other = again.give("n1", &DirectoryRequest { database: "another".to_owned(), avoid: None }).unwrap();
    assert_eq!(other.dir, head.uploads.save().join("n1-2"), "what is there stays");
}

#[test]
fn a_probe_is_seen_where_the_directory_is_and_goes_with_the_head() {
    let head = Head::new(Sharing::Found);
    let given = head.uploads.give("n1", &DirectoryRequest { database: "d".to_owned(), avoid: None }).unwrap();
    let probe = given.probe.unwrap();
    assert!(probe.is_shared());
    let other = Probe { contents: "guessed".to_owned(), ..probe.clone() };
    assert!(!other.is_shared(), "another directory of the same name");
    let names = || std::fs::read_dir(head.uploads.save()).unwrap().count();
    assert_eq!(names(), 2, "the probe, and the node's; nothing else is left");
    let save = head.uploads.save().to_path_buf();
    drop(head.uploads);
    drop(head.router);
    assert!(!probe.path.exists() && save.join("n1").exists());
    assert!(!probe.is_shared());
}

#[test]
fn what_is_sent_through_the_head_is_the_copy_that_would_be_written_directly() {
    let head = Head::new(Sharing::ThroughHead);
    let serving = head.serve();
    let node = Node::new("n1");
    let mut place = serving.place("n1");
    let found = place.find(&node.id()).unwrap();
    assert_eq!(found.dir, head.uploads.save().join("n1"));
    let mut mirror = Mirror::resume(&node.db, &found.dir, found.disk).unwrap();
    mirror.step().unwrap();
    assert_copied(&found.dir, &node.db);
    node.append("a", 0..5_000);
    assert!(mirror.step().unwrap().wal_bytes > 0);
    assert_copied(&found.dir, &node.db);
    node.append("b", 0..5_000);
    assert!(mirror.step().unwrap().wal_bytes > 0, "the WAL grows");
    node.db.flush().unwrap();
    node.append("a", 5_000..6_000);
    mirror.step().unwrap();
    assert_copied(&found.dir, &node.db);
    node.db.close().unwrap();
    mirror.finish().unwrap();
    assert_copied(&found.dir, &node.db);
    let report = telem_engine::check::check(&found.dir, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(report.findings, []);
    assert!(node.dir.path().exists());
}

#[test]
fn a_node_that_is_started_again_sends_only_what_is_not_there() {
    let head = Head::new(Sharing::ThroughHead);
    let serving = head.serve();
    let node = Node::new("n1");
    node.append("a", 0..5_000);
    node.db.flush().unwrap();
    let found = serving.place("n1").find(&node.id()).unwrap();
    let mut mirror = Mirror::resume(&node.db, &found.dir, found.disk).unwrap();
    mirror.step().unwrap();
    drop(mirror);
    node.append("b", 0..10);
    let found = serving.place("n1").find(&node.id()).unwrap();
    let mut mirror = Mirror::resume(&node.db, &found.dir, found.disk).unwrap();
    let report = mirror.step().unwrap();
    assert_eq!(report.files, 0, "{report:?}");
    assert_copied(&found.dir, &node.db);
}

#[test]
fn a_node_with_the_wrong_token_learns_that_and_no_directory() {
    let head = Head::new(Sharing::ThroughHead);
    let serving = head.serve();
    let client = serving.client("another-token-of-some-length");
    let refused = NodePlace::new(Box::new(move || vec![client.clone()]), "n1", None).find("d").unwrap_err();
    assert!(refused.to_string().contains("token of the job"), "{refused}");
    assert!(!head.uploads.save().join("n1").exists());
}

#[test]
fn a_node_whose_head_never_came_saves_where_the_job_is_saved_if_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let nobody = NodePlace::new(Box::new(Vec::new), "n1", Some(dir.path().join("job"))).find("d");
    assert!(nobody.is_err(), "it is not there, so it may not be shared");
    std::fs::create_dir(dir.path().join("job")).unwrap();
    let found = NodePlace::new(Box::new(Vec::new), "n1", Some(dir.path().join("job"))).find("d").unwrap();
    assert_eq!(found.dir, dir.path().join("job/n1"));
}

#[test]
fn who_waits_is_told_what_every_node_has_and_what_those_lack_that_died() {
    let head = Head::new(Sharing::Found);
    let (done, died) = (Node::new("n1"), Node::new("n2"));
    died.append("a", 0..100);
    head.give("n1", &done.id());
    let dir = head.give("n2", &died.id());
    Mirror::begin(&died.db, &dir, Arc::new(OsDisk)).unwrap().step().unwrap();
    head.uploads.note("n2", UploadProgress { bytes: 10, lacking: 5, ..UploadProgress::default() });
    head.uploads.note("n1", UploadProgress { bytes: 100, done: true, ..UploadProgress::default() });
    let expected = ["n1", "n2", "n3"].map(str::to_owned);
    let overview = head.uploads.overview(&expected);
    assert_eq!(overview.to_string(), "1 of 3 nodes saved, 5 bytes to go, waiting for n2 and others");
    let clock = SystemClock::new();
    let now = clock.monotonic();
    let saved = head.uploads.wait(&expected, |node| node != "n1", now, &clock, |_| {});
    assert!(!saved.is_whole());
    let text = saved.to_string();
    assert!(text.starts_with("NOT all nodes are saved whole in"), "{text}");
    for part in ["only 1 of 3", "n2: 100 samples up to 1970-01-01T00:01:39Z", "n3: NOTHING (it never asked"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn who_waits_goes_on_when_the_last_node_is_done() {
    let head = Head::new(Sharing::Found);
    head.give("n1", "d");
    let uploads = head.uploads.clone();
    let clock = SystemClock::new();
    let mut shown = 0;
    let saved = thread::scope(|scope| {
        let deadline = clock.monotonic() + std::time::Duration::from_secs(60);
        head.uploads.wait(
            &["n1".to_owned()],
            |_| false,
            deadline,
            &clock,
            |_| {
                shown += 1;
                if shown == 1 {
                    scope.spawn(|| uploads.note("n1", UploadProgress { done: true, ..UploadProgress::default() }));
                }
            },
        )
    });
    assert!(saved.is_whole() && clock.monotonic() < std::time::Duration::from_secs(60), "{saved}");
    assert!(saved.to_string().starts_with("other nodes saved in "), "{saved}");
}
