//! A whole server in this process: started, used over TCP and the socket, stopped, started again.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use telem_engine::SystemClock;
use tokio::sync::oneshot;

use super::*;
use crate::client::{Address, Client, ClientError};
use crate::connection::Connection;
use crate::net::listen::DEFAULT_PORT;
use crate::tls::UrlScheme;

fn options(dir: &Path, data: &str) -> ServiceOptions {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let data = dir.join(data);
    fs::create_dir_all(&data).unwrap();
    ServiceOptions {
        source: ServiceSource::Live,
        data,
        job: "7".to_owned(),
        job_sharing: JobSharing::One,
        node: "n1".to_owned(),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        first_port: DEFAULT_PORT,
        is_tunnelled: false,
        connection_file: None,
        token: None,
        uid: rustix::process::getuid().as_raw(),
        is_token_required: false,
        allowed_uids: Vec::new(),
        socket_place: SocketPlace::In(dir.join("run")),
        level: 1,
        collect: CollectOptions::new(1, "n1"),
        fidelity: Fidelity::Sensible,
        cors: Cors::default(),
        limits: ServerLimits::default(),
        protocols: ProtocolOptions::default(),
        engine: Options { node: "n1".to_owned(), ..Options::default() },
        writer: WriterOptions::default(),
        queries: QueryOptions::new(Arc::clone(&clock)),
        clock,
        hurry: Arc::default(),
        tls: TlsOptions::default(),
        head: None,
        is_member: false,
        head_in_sight: None,
    }
}

struct Running {
    ready: Ready,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Result<(), ServiceError>>,
}

impl Running {
    async fn start(options: ServiceOptions) -> Running {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let task = tokio::spawn(async move {
            let ready = |ready: &Ready| tell.send(ready.clone()).unwrap();
            run(options, ready, async { stopped.await.unwrap_or(()) }).await
        });
        Running { ready: told.await.unwrap(), stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    fn tcp(&self) -> Client {
        Client::with_token(Address::parse(&self.ready.url).unwrap(), None)
    }

    fn socket(&self) -> Client {
        Client::with_token(Address::Unix(self.ready.socket.clone()), None)
    }
}

async fn ask(client: &Client, path: &str, body: &str) -> String {
    let answer = client.post(path, Bytes::from(body.to_owned())).await.unwrap().read(1 << 20).await.unwrap();
    String::from_utf8(answer).unwrap()
}

const PUT: &str = r#"[{"metric":"loss","timestamp":1767225600,"value":2.5,"tags":{"rank":"0"}}]"#;
const COUNT: &str = "SELECT count(*) AS n FROM samples";

/// Short enough for the path of a socket.
fn short_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/tmp").unwrap()
}

#[tokio::test]
async fn what_was_put_over_tcp_is_read_over_the_socket_and_after_a_restart() {
    let dir = short_dir();
    let first = Running::start(options(dir.path(), "db")).await;
    let connection = Connection::read(&first.ready.connection_file).unwrap();
    assert_eq!((connection.url.as_str(), connection.node.as_str()), (first.ready.url.as_str(), "n1"));
    assert!(first.ready.recovery.is_none(), "there was nothing to recover");
    ask(&first.tcp(), "/api/put", PUT).await;
    assert_eq!(ask(&first.socket(), "/api/sql", COUNT).await, "[{\"n\":1}]\n");
    let (socket, file) = (first.ready.socket.clone(), first.ready.connection_file.clone());
    first.stop().await;
    assert!(!socket.exists() && !file.exists(), "what named the server is gone with it");

    let second = Running::start(options(dir.path(), "db")).await;
    assert!(second.ready.recovery.is_none(), "an orderly end leaves nothing to recover");
    assert_eq!(ask(&second.tcp(), "/api/sql", COUNT).await, "[{\"n\":1}]\n");
    second.stop().await;
}

#[tokio::test]
async fn files_are_merged_at_the_end_unless_that_must_come_soon() {
    let dir = short_dir();
    for (data, hurry, files) in [("one", false, 1), ("two", true, 3)] {
        let options = options(dir.path(), data);
        options.hurry.store(hurry, Ordering::Relaxed);
        let server = Running::start(options).await;
        for second in 0..3 {
            ask(&server.tcp(), "/api/put", &PUT.replace("1767225600", &(1_767_225_600 + second).to_string())).await;
            if second < 2 {
                server.ready.db.flush().unwrap();
            }
        }
        server.stop().await;
        let db = Db::open_read_only(&dir.path().join(data), Options::default()).unwrap();
        assert_eq!((db.info().unwrap().segment_files.len(), db.info().unwrap().samples), (files, 3));
    }
}

#[tokio::test]
async fn a_database_has_one_server_and_a_job_may_have_two() {
    let dir = short_dir();
    let one = Running::start(options(dir.path(), "one")).await;
    let refused = run(options(dir.path(), "one"), |_| {}, std::future::pending()).await.unwrap_err();
    assert!(refused.to_string().contains("is written by"), "{refused}");

    let two = Running::start(options(dir.path(), "two")).await;
    assert_ne!(one.ready.socket, two.ready.socket);
    ask(&one.socket(), "/api/put", PUT).await;
    assert_eq!(ask(&two.socket(), "/api/sql", COUNT).await, "[{\"n\":0}]\n");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn an_address_that_is_taken_keeps_the_server_from_starting_and_the_database_free() {
    let dir = short_dir();
    let running = Running::start(options(dir.path(), "one")).await;
    let taken = running.ready.url.strip_prefix("http://").unwrap().parse().unwrap();
    let refused = ServiceOptions { listen: Some(taken), ..options(dir.path(), "two") };
    assert!(matches!(run(refused, |_| {}, std::future::pending()).await, Err(ServiceError::Listen(_))));

    // One that fails after the database was opened closes it again.
    let unsafe_dir = ServiceOptions { socket_place: SocketPlace::In(PathBuf::from("/")), ..options(dir.path(), "two") };
    assert!(matches!(run(unsafe_dir, |_| {}, std::future::pending()).await, Err(ServiceError::Socket(_))));
    Running::start(options(dir.path(), "two")).await.stop().await;
    running.stop().await;
}

#[tokio::test]
async fn a_silent_connection_does_not_keep_the_server_from_stopping() {
    let dir = short_dir();
    let running = Running::start(options(dir.path(), "db")).await;
    let silent = tokio::net::UnixStream::connect(&running.ready.socket).await.unwrap();
    ask(&running.tcp(), "/api/put", PUT).await;
    let client = running.tcp();
    running.stop().await;
    drop(silent);
    assert!(matches!(client.get("/api/info").await, Err(ClientError::Unreachable { .. })));
}

#[test]
fn a_url_names_an_address_that_clients_can_use() {
    assert_eq!(parts::url("127.0.0.1:4242".parse().unwrap(), UrlScheme::Http), "http://127.0.0.1:4242");
    assert_eq!(parts::url("127.0.0.1:4242".parse().unwrap(), UrlScheme::Https), "https://127.0.0.1:4242");
    assert_eq!(parts::url("[::1]:4242".parse().unwrap(), UrlScheme::Http), "http://[::1]:4242");
    assert_eq!(parts::url("0.0.0.0:1".parse().unwrap(), UrlScheme::Http), format!("http://{}:1", config::host_name()));
}
