//! Which clients are let in, where the server listens, and what a connection may not do.

mod http2;
mod own_ports;
mod owners;
mod path_token;
mod places;
mod presence;

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::access::{Access, Rules};
use super::listen::{BoundListener, ListenError, listen};
use super::owner;
use super::places::{ConnectionPlaces, PlaceFor, StrangerSource};
use super::proc_net;
use super::sniff::{self, FirstByte, first_byte};
use super::socket::{self, Socket, SocketError, SocketPlace};
use super::socket_row::{SocketHold, SocketOwner};
use super::{Listeners, Services, serve};
use crate::cors::Cors;
use crate::protocol::Protocol as _;
use crate::protocols::opentsdb::{OpenTsdb, TelnetLimits};
use crate::state::ServerLimits;
use crate::testing::Served;
use crate::token::Token;

const SECRET: &str = "0123456789abcdef";

/// As a kernel of a little-endian machine writes it.
#[cfg(target_endian = "little")]
const TCP: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1092 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 22001 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1092 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 22002 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1092 01 00000000:00000000 00:00000000 00000000  1001        0 22003 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:C351 0100007F:1092 06 00000000:00000000 03:000012F1 00000000     0        0 0 3 0000000000000000
   4: 0200007F:C350 0100007F:1092 01 00000000:00000000 00:00000000 00000000     0        0 22009 1 0000000000000000 20 4 30 10 -1
   5: nonsense
   6: 0100007F:C353 0100007F:1092 04 00000000:00000000 01:00000012 00000000  1001        0 0 1 0000000000000000
   7: 0100007F:C354 0100007F:1092 05 00000000:00000000 03:000012F1 00000000     0        0 0 3 0000000000000000
   8: 0100007F:C355 0100007F:1092 05 00000000:00000000 03:000012F1 00000000  1001        0 0 3 0000000000000000
   9: 0100007F:C356 0100007F:1092 02 00000000:00000000 03:000012F1 00000000  1000        0 22010 1 0000000000000000
  10: 0100007F:C357 0100007F:1092 0C 00000000:00000000 03:000012F1 00000000  1000        0 0 1 0000000000000000
";

#[cfg(target_endian = "little")]
const TCP6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:C360 00000000000000000000000001000000:1092 01 00000000:00000000 00:00000000 00000000  1002        0 33001 1 0000000000000000 20 4 30 10 -1
   1: 0000000000000000FFFF00000100007F:C361 0000000000000000FFFF00000100007F:1092 01 00000000:00000000 00:00000000 00000000  1003        0 33002 1 0000000000000000 20 4 30 10 -1
   2: B80D01200000000000000000010000FE:C362 00000000000000000000000001000000:1092 01 00000000:00000000 00:00000000 00000000  1004        0 33003 1 0000000000000000 20 4 30 10 -1
";

#[cfg(target_endian = "little")]
#[test]
fn the_kernels_tables_name_the_owner_of_a_client_end() {
    let (held, closed, unknown) = (SocketHold::Held, SocketHold::Closed, SocketHold::Unknown);
    let owner = |uid, end| Some(SocketOwner { uid, end });
    for (table, local, remote, expected) in [
        (TCP, "127.0.0.1:50000", "127.0.0.1:4242", owner(1001, held)),
        (TCP, "127.0.0.1:4242", "127.0.0.1:50000", owner(1000, held)),
        (TCP, "127.0.0.2:50000", "127.0.0.1:4242", owner(0, held)),
        (TCP, "127.0.0.1:50001", "127.0.0.1:4242", owner(0, unknown)),
        (TCP, "127.0.0.1:50002", "127.0.0.1:4242", None),
        // What was sent is on its way, of which the kernel knows the user; later it forgets it.
        (TCP, "127.0.0.1:50003", "127.0.0.1:4242", owner(1001, closed)),
        (TCP, "127.0.0.1:50004", "127.0.0.1:4242", owner(0, unknown)),
        (TCP, "127.0.0.1:50005", "127.0.0.1:4242", owner(1001, closed)),
        // Somebody who only opens a connection is not the one who had this port before.
        (TCP, "127.0.0.1:50006", "127.0.0.1:4242", None),
        (TCP, "127.0.0.1:50007", "127.0.0.1:4242", None),
        (TCP, "127.0.0.1:50000", "127.0.0.1:4243", None),
        (TCP, "[::ffff:127.0.0.1]:50000", "127.0.0.1:4242", owner(1001, held)),
        (TCP6, "[::1]:50016", "[::1]:4242", owner(1002, held)),
        (TCP6, "127.0.0.1:50017", "127.0.0.1:4242", owner(1003, held)),
        (TCP6, "[2001:db8::fe00:1]:50018", "[::1]:4242", owner(1004, held)),
        ("", "127.0.0.1:1", "127.0.0.1:2", None),
    ] {
        let (local, remote): (SocketAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        assert_eq!(proc_net::find(table.as_bytes(), local, remote).unwrap(), expected, "{local} -> {remote}");
    }
}

#[test]
fn kernels_are_told_apart_by_their_version() {
    for (release, expected) in
        [("6.18.44-fc-v657\n", Some((6, 18))), ("5.14.0-427.el9", Some((5, 14))), ("7.0-rc1", Some((7, 0))), ("", None)]
    {
        assert_eq!(owner::version(release), expected, "{release}");
    }
}

const LOOPBACK: Access = Access::Loopback { uid: 1000 };

fn a_stranger() -> Access {
    Access::Stranger { reason: "of a test".to_owned(), source: StrangerSource::User(1001) }
}

fn rules() -> Rules {
    Rules::new(Token::chosen(SECRET).unwrap(), 1000, [472])
}

#[test]
fn loopback_is_open_to_our_user_to_root_and_to_the_allowed() {
    for (uid, end, admitted) in [
        (1000, SocketHold::Held, true),
        (0, SocketHold::Held, true),
        (472, SocketHold::Held, true),
        (1001, SocketHold::Held, false),
        (1000, SocketHold::Closed, true),
        (1001, SocketHold::Closed, false),
        (0, SocketHold::Unknown, false),
        (1000, SocketHold::Unknown, false),
    ] {
        let access = rules().of_owner(Some(SocketOwner { uid, end }));
        assert_eq!(matches!(access, Access::Loopback { .. }), admitted, "uid {uid}, {end:?}: {access:?}");
    }
    assert!(matches!(rules().of_owner(None), Access::Stranger { .. }));
}

fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
    of.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

fn status(access: &Access, of: &[(&'static str, &str)]) -> u16 {
    rules().admit(&headers(of), access).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
}

#[test]
fn a_stranger_needs_the_token_and_nothing_else_will_do() {
    let stranger = a_stranger();
    for (authorization, expected) in [
        ("Bearer 0123456789abcdef", 200),
        ("Token 0123456789abcdef", 200),
        ("Token 0123456789abcdeF", 401),
        ("bearer 0123456789abcdef ", 200),
        ("Bearer 0123456789abcdeF", 401),
        ("Bearer 0123456789abcde", 401),
        ("Bearer ", 401),
        ("Bearer", 401),
        ("Basic 0123456789abcdef", 401),
        ("0123456789abcdef", 401),
    ] {
        assert_eq!(status(&stranger, &[("authorization", authorization)]), expected, "{authorization}");
    }
    assert_eq!(status(&stranger, &[("host", "localhost")]), 401);
    let refusal = rules().admit(&HeaderMap::new(), &stranger).unwrap_err();
    assert!(refusal.message.contains("no token") && refusal.message.contains("of a test"), "{refusal}");
}

#[test]
fn a_page_from_elsewhere_cannot_use_the_browser_of_our_user() {
    for (host, expected) in [
        ("127.0.0.1:4242", 200),
        ("localhost:4242", 200),
        ("LOCALHOST", 200),
        ("grafana.localhost:1", 200),
        ("[::1]:4242", 200),
        ("[::1]", 200),
        ("127.8.8.8", 200),
        ("evil.example:4242", 403),
        ("localhost.evil.example", 403),
        ("10.1.1.1:4242", 403),
    ] {
        assert_eq!(status(&LOOPBACK, &[("host", host)]), expected, "{host}");
    }
    // Whoever else has an account here may serve pages at another port.
    for (host, origin, expected) in [
        ("localhost:4242", "http://localhost:4242", 200),
        ("LOCALHOST:4242", "https://localhost:4242", 200),
        ("localhost", "http://localhost", 200),
        ("localhost:80", "http://localhost", 200),
        ("[::1]:9000", "http://[::1]:9000", 200),
        ("localhost:4242", "http://localhost:3000", 403),
        ("localhost:4242", "http://localhost", 403),
        ("localhost", "http://localhost:4242", 403),
        ("localhost:443", "http://localhost", 403),
        ("127.0.0.1:4242", "http://localhost:4242", 403),
        ("localhost:4242", "https://evil.example", 403),
        ("localhost:4242", "ftp://localhost:4242", 403),
        ("localhost:4242", "null", 403),
        ("localhost:4242", "", 403),
    ] {
        assert_eq!(status(&LOOPBACK, &[("host", host), ("origin", origin)]), expected, "{origin} asks {host}");
    }
    assert_eq!(status(&LOOPBACK, &[("origin", "http://localhost:4242")]), 403, "to whom is not known");
    let refused =
        rules().admit(&headers(&[("host", "localhost:4242"), ("origin", "http://localhost:3000")]), &LOOPBACK);
    assert!(refused.unwrap_err().message.contains("--cors-domains"));
    for (site, expected) in [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403), ("x", 403)] {
        assert_eq!(status(&LOOPBACK, &[("host", "localhost"), ("sec-fetch-site", site)]), expected, "{site}");
    }
    assert_eq!(status(&LOOPBACK, &[]), 200, "an HTTP/1.0 client names no host");
    assert_eq!(status(&LOOPBACK, &[("host", "node7"), ("authorization", "Bearer 0123456789abcdef")]), 200);
    assert_eq!(status(&Access::Socket, &[("host", "whatever")]), 200);
}

#[test]
fn pages_that_are_named_may_let_a_browser_here_ask_but_not_under_a_name_of_their_own() {
    let page = "https://board.example";
    let open = rules().with_pages(Cors::parse(page).unwrap());
    let stranger = a_stranger();
    let status = |access: &Access, of: &[(&'static str, &str)]| {
        open.admit(&headers(of), access).map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    };
    let asked = |host: &'static str, origin: &'static str| {
        [("host", host), ("origin", origin), ("sec-fetch-site", "cross-site")]
    };
    assert_eq!(status(&LOOPBACK, &asked("localhost:4242", page)), 200);
    assert_eq!(status(&LOOPBACK, &asked("localhost:4242", "https://evil.example")), 403);
    assert_eq!(status(&LOOPBACK, &asked("board.example", page)), 403);
    assert_eq!(status(&stranger, &asked("localhost:4242", page)), 401);
    // A browser asks without the token whether it may ask with it.
    assert!(open.is_preflight(&Method::OPTIONS, &headers(&[("origin", page)])));
    assert!(!open.is_preflight(&Method::GET, &headers(&[("origin", page)])));
    assert!(!open.is_preflight(&Method::OPTIONS, &headers(&[("origin", "https://evil.example")])));
    assert!(!rules().is_preflight(&Method::OPTIONS, &headers(&[("origin", page)])));
}

#[tokio::test]
async fn an_address_that_was_asked_for_and_is_taken_is_an_error_the_default_moves_on() {
    let taken = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = taken.local_addr().unwrap();
    assert!(matches!(listen(Some(address)).await, Err(ListenError::Taken { .. })));
    let next = super::listen::first_free(address.port()).await.unwrap();
    assert!(next.local_addr().unwrap().port() > address.port());
}

fn private_dir() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir_in("/tmp").unwrap()
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The sockets that eight threads get which begin at the same moment and ask for one name so many times each, and how
/// often they were refused since it was taken.
async fn bound_by_many(dir: &Path, times: usize) -> (Vec<Socket>, usize) {
    let start = Arc::new(std::sync::Barrier::new(8));
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let (dir, start) = (dir.to_path_buf(), Arc::clone(&start));
            tokio::task::spawn_blocking(move || {
                start.wait();
                (0..times).map(|_| Socket::bind(&dir, "a.sock", uid())).collect::<Vec<_>>()
            })
        })
        .collect();
    let (mut named, mut refused) = (Vec::new(), 0);
    for asked in asked {
        for bound in asked.await.unwrap() {
            match bound {
                Ok(socket) => named.push(socket),
                Err(SocketError::Alive { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    (named, refused)
}

#[tokio::test]
async fn of_many_that_want_one_name_at_the_same_moment_one_gets_it() {
    for _ in 0..20 {
        let dir = private_dir();
        let (named, refused) = bound_by_many(dir.path(), 1).await;
        assert_eq!((named.len(), refused), (1, 7));
        drop(named);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}

#[tokio::test]
async fn of_many_that_find_a_dead_socket_one_gets_its_name_and_keeps_it_at_every_moment() {
    // Two nodes of one machine had one socket: somebody had seen the dead one, and took the living one aside that had
    // come meanwhile; before it was put back, a third had the name, too.
    for _ in 0..50 {
        let dir = private_dir();
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("a.sock")).unwrap());
        let (named, refused) = bound_by_many(dir.path(), 10).await;
        assert_eq!((named.len(), refused), (1, 79));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left aside");
    }
}

#[tokio::test]
async fn a_socket_takes_the_place_of_a_dead_one_but_not_of_a_living_one() {
    let dir = private_dir();
    let name = socket::file_name("job 17");
    assert_eq!(name.len(), "0123abcd.sock".len());
    let living = Socket::bind(dir.path(), &name, uid()).unwrap();
    let path = living.path().to_path_buf();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(Socket::bind(dir.path(), &name, uid()), Err(SocketError::Alive { .. })));
    assert!(UnixStream::connect(&path).is_ok(), "it still answers");

    // A process that was killed leaves its file behind.
    drop(living);
    assert!(!path.exists(), "an orderly end removes the file");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let successor = Socket::bind(dir.path(), &name, uid()).unwrap();
    assert!(UnixStream::connect(successor.path()).is_ok());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left aside");
}

#[tokio::test]
async fn a_socket_wants_a_directory_that_is_ours_alone_and_a_short_path() {
    let dir = private_dir();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let refusal = Socket::bind(dir.path(), "a.sock", uid()).unwrap_err();
    assert!(refusal.to_string().contains("has mode 0755"), "{refusal}");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();

    let refusal = Socket::bind(dir.path(), "a.sock", uid() + 1).unwrap_err();
    assert!(refusal.to_string().contains(&format!("belongs to uid {}", uid())), "{refusal}");

    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    let refusal = Socket::bind(&link, "a.sock", uid()).unwrap_err();
    assert!(refusal.to_string().contains("is not a directory"), "{refusal}");

    fs::write(dir.path().join("file.sock"), "precious").unwrap();
    assert!(matches!(Socket::bind(dir.path(), "file.sock", uid()), Err(SocketError::InTheWay { .. })));

    let fits = "s".repeat(99 - dir.path().as_os_str().len() - 1);
    assert!(Socket::bind(dir.path(), &fits, uid()).is_ok());
    assert!(matches!(Socket::bind(dir.path(), &format!("{fits}s"), uid()), Err(SocketError::LongPath { .. })));
}

#[test]
fn a_runtime_directory_of_another_machine_is_passed_over() {
    let (dir, tmp) = (private_dir(), private_dir());
    let of_user = |xdg: Option<&Path>, root: &Path, uid| {
        let place = SocketPlace::OfUser { xdg_runtime_dir: xdg.map(Path::to_path_buf) };
        place.directory_in(&[root], uid)
    };
    let own = tmp.path().join(format!("telem-{}", uid()));
    assert_eq!(of_user(Some(dir.path()), tmp.path(), uid()).unwrap(), dir.path());
    let dangling = dir.path().join("dangling");
    std::os::unix::fs::symlink("/no/such/place", &dangling).unwrap();
    let long = dir.path().join("l".repeat(99));
    fs::create_dir(&long).unwrap();
    fs::set_permissions(&long, Permissions::from_mode(0o700)).unwrap();
    let absent = [Path::new("/run/user/no-such-user"), Path::new("relative"), &dangling, &long];
    for absent in absent.into_iter().map(Some).chain([None]) {
        assert_eq!(of_user(absent, tmp.path(), uid()).unwrap(), own, "{absent:?}");
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(of_user(Some(dir.path()), tmp.path(), uid()).unwrap(), own, "others may look into it");
    assert!(of_user(Some(dir.path()), dir.path(), uid() + 1).is_err(), "it is another user's");
}

#[test]
fn a_name_that_anybody_took_in_tmp_keeps_no_socket_from_being_made() {
    let (tmp, shm) = (private_dir(), private_dir());
    let place = || SocketPlace::Common.directory_in(&[tmp.path(), shm.path()], uid()).unwrap();
    let name = |root: &Path, end: &str| root.join(format!("telem-{}{end}", uid()));
    std::os::unix::fs::symlink("/no/such/place", name(tmp.path(), "")).unwrap();
    assert_eq!(place(), name(tmp.path(), "-2"));
    fs::remove_dir(place()).unwrap();
    for n in 2..=9 {
        fs::write(name(tmp.path(), &format!("-{n}")), "").unwrap();
    }
    assert_eq!(place(), name(shm.path(), ""), "all names are taken in the first place");
}

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(http: Router, rules: Rules, limits: ServerLimits) -> Running {
    start_with(Services { http, ..Services::default() }, rules, limits).await
}

async fn start_with(protocols: Services, rules: Rules, limits: ServerLimits) -> Running {
    start_at(protocols, Vec::new(), rules, limits).await
}

async fn start_at(protocols: Services, own: Vec<BoundListener>, rules: Rules, limits: ServerLimits) -> Running {
    let tcp = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = tcp.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or(()) };
        serve(
            Listeners { tcp, tls: None, socket: None, node: "n1".into(), slots: None, own },
            protocols,
            rules,
            &limits,
            stopped,
        )
        .await;
    });
    Running { address, stop, task }
}

fn own_rules() -> Rules {
    Rules::new(Token::chosen(SECRET).unwrap(), uid(), [])
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn our_own_process_is_served_without_a_token() {
    let running =
        start(Router::new().route("/x", get(|| async { "hello" })), own_rules(), ServerLimits::default()).await;
    let answer = ask(running.address, GET).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn one_connection_more_than_the_limit_is_told_503() {
    let limits = ServerLimits { connections_max: 1, ..ServerLimits::default() };
    let running = start(Router::new().route("/x", get(|| async { "hello" })), own_rules(), limits).await;
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(first.read(&mut [0; 1024]).await.unwrap() > 0, "the first has its place");
    let mut second = TcpStream::connect(running.address).await.unwrap();
    let mut answer = String::new();
    second.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len()))
            || head.ends_with(&format!("Content-Length: {}", body.len()))
    );
    running.stop.send(()).unwrap();
    drop(first);
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_client_that_sends_no_request_is_hung_up_on() {
    let limits = ServerLimits { header_timeout: Duration::from_millis(30), ..ServerLimits::default() };
    let running = start(Router::new(), own_rules(), limits).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    silent.write_all(b"GET /x HT").await.unwrap();
    let mut answer = Vec::new();
    // The server ends the connection; this returns only then.
    silent.read_to_end(&mut answer).await.unwrap();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_client_that_takes_no_byte_of_its_answer_is_hung_up_on() {
    let limits = ServerLimits { write_idle_timeout: Duration::from_millis(30), ..ServerLimits::default() };
    let (dropped, gone) = oneshot::channel::<()>();
    let dropped = std::sync::Arc::new(std::sync::Mutex::new(Some(dropped)));
    let endless = move || {
        let held = dropped.lock().unwrap().take();
        async move {
            let chunks = futures::stream::unfold(held, |held| async {
                Some((Ok::<_, std::io::Error>(vec![0u8; 1 << 16]), held))
            });
            crate::http::streamed(chunks)
        }
    };
    let running = start(Router::new().route("/x", get(endless)), own_rules(), limits).await;
    let mut deaf = TcpStream::connect(running.address).await.unwrap();
    deaf.write_all(GET.as_bytes()).await.unwrap();
    // The answer, and what it holds, is dropped although the client is still connected.
    assert!(gone.await.is_err());
    drop(deaf);
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

/// A server that speaks telnet too.
async fn start_both(rules: Rules) -> (Served, Running) {
    let served = Served::new();
    let lines = Arc::new(OpenTsdb::new(Arc::clone(&served.state), TelnetLimits::default())).lines();
    let http = Router::new().route("/x", get(|| async { "hello" }).post(|body: String| async { body }));
    let running = start_with(Services { http, lines, ..Services::default() }, rules, ServerLimits::default()).await;
    (served, running)
}

#[test]
fn the_first_byte_says_what_a_client_speaks() {
    for first in ["GET / HTTP/1.1", "PRI * HTTP/2.0", "\x16\x03\x01", "\0"] {
        assert_eq!(first_byte(first.as_bytes()[0]), FirstByte::Http, "{first}");
        assert_eq!(sniff::is_tls(first.as_bytes()[0]), first.starts_with('\x16'), "{first}");
    }
    for first in ["put m 1 1 a=b", "version", "\n", "\r\n", " ", "\u{ff}", "@", "["] {
        assert_eq!(first_byte(first.as_bytes()[0]), FirstByte::Lines, "{first}");
    }
    assert_eq!(first_byte(b'{'), FirstByte::Values, "what clients of Metric Proxy send");
}

#[tokio::test]
async fn a_request_that_comes_byte_by_byte_is_a_request() {
    let (_served, running) = start_both(own_rules()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let request = "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nConnection: close\r\n\r\nput\nexit\n";
    for byte in request.bytes() {
        stream.write_all(&[byte]).await.unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("put\nexit\n"), "{answer}");
    assert!(ask(running.address, "version\nexit\n").await.starts_with("net.opentsdb.tools 2.4.1"));
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn stopping_waits_for_what_a_telnet_client_sent_and_not_for_the_client() {
    let (served, running) = start_both(own_rules()).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(b"version\n").await.unwrap();
    assert!(idle.read(&mut [0; 1_024]).await.unwrap() > 0);
    let silent = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(b"put m 1356998400 1 host=a\n").await.unwrap();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(served.state.db.index().len(), 1);
    drop((idle, silent));
}

#[tokio::test]
async fn stopping_finishes_the_requests_that_run() {
    let (entered, inside) = oneshot::channel::<()>();
    let (go_on, waiting) = oneshot::channel::<()>();
    let once = std::sync::Arc::new(std::sync::Mutex::new(Some((entered, waiting))));
    let slow = move || {
        let (entered, waiting) = once.lock().unwrap().take().unwrap();
        async move {
            entered.send(()).unwrap();
            waiting.await.unwrap();
            "finished"
        }
    };
    let running = start(Router::new().route("/x", get(slow)), own_rules(), ServerLimits::default()).await;
    let client = tokio::spawn(ask(running.address, GET));
    inside.await.unwrap();
    running.stop.send(()).unwrap();
    go_on.send(()).unwrap();
    assert!(client.await.unwrap().ends_with("finished"));
    running.task.await.unwrap();
    assert!(TcpStream::connect(running.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn stopping_cuts_off_a_request_that_runs_for_longer_than_it_may_then() {
    let (entered, inside) = oneshot::channel::<()>();
    let once = std::sync::Arc::new(std::sync::Mutex::new(Some(entered)));
    let endless = move || {
        once.lock().unwrap().take().unwrap().send(()).unwrap();
        std::future::pending::<()>()
    };
    let limits = ServerLimits { shutdown_timeout: Duration::from_millis(30), ..ServerLimits::default() };
    let running = start(Router::new().route("/x", get(endless)), own_rules(), limits).await;
    let client = tokio::spawn(ask(running.address, GET));
    inside.await.unwrap();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
    assert_eq!(client.await.unwrap(), "", "the connection ends without an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_serves_the_same_router() {
    let dir = private_dir();
    let socket = Socket::bind(dir.path(), "s.sock", uid()).unwrap();
    let path = socket.path().to_path_buf();
    let tcp = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let http = Router::new().route("/x", get(|| async { (StatusCode::OK, "hello") }));
    let protocols = Services { http, ..Services::default() };
    let task = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or(()) };
        serve(
            Listeners { tcp, tls: None, socket: Some(socket), node: "n1".into(), slots: None, own: Vec::new() },
            protocols,
            own_rules(),
            &ServerLimits::default(),
            stopped,
        )
        .await;
    });
    let answer = tokio::task::spawn_blocking({
        let path = path.clone();
        move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(GET.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        }
    });
    assert!(answer.await.unwrap().ends_with("hello"));
    stop.send(()).unwrap();
    task.await.unwrap();
    assert!(!path.exists());
}
