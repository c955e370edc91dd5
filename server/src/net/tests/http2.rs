//! HTTP/2 and TLS on the common port, and the limits that apply there too.

use std::io;

use axum::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};

use super::*;
use crate::http::asker::Asker;
use crate::net::guest::Guest;
use crate::tls::{self, Certificate, Served, Trust};

type Sender = http2::SendRequest<Full<Bytes>>;

async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Sender {
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Status and body of what `host` is asked for.
async fn get(sender: &mut Sender, host: &str) -> (u16, String) {
    let request = Request::get(format!("http://{host}/x")).body(Full::default()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

fn hello() -> Router {
    Router::new().route("/x", axum::routing::get(|| async { "hello" }))
}

#[tokio::test]
async fn one_port_speaks_http2_and_http1() {
    let running = start(hello(), own_rules(), ServerLimits::default()).await;
    let mut sender = over(TcpStream::connect(running.address).await.unwrap()).await;
    let mut other = sender.clone();
    let (one, two) = tokio::join!(get(&mut sender, "localhost"), get(&mut other, "127.0.0.1:1"));
    assert_eq!((one, two), ((200, "hello".to_owned()), (200, "hello".to_owned())));
    assert!(ask(running.address, GET).await.ends_with("hello"));
    let (status, why) = get(&mut sender, "rebound.example").await;
    assert!(status == 403 && why.contains("rebound.example"), "names are checked there too: {why}");
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_preface_that_comes_byte_by_byte_is_a_preface() {
    let running = start(hello(), own_rules(), ServerLimits::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        stream.write_all(&[*byte]).await.unwrap();
    }
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).await.unwrap();
    assert_eq!(frame[3], 4, "the server answers with its settings");
    drop(stream);
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn an_answer_of_which_nothing_is_taken_is_given_up_and_the_others_go_on() {
    let limits = ServerLimits { write_idle_timeout: Duration::from_millis(40), ..ServerLimits::default() };
    let (dropped, gone) = oneshot::channel::<()>();
    let dropped = Arc::new(std::sync::Mutex::new(Some(dropped)));
    let endless = move || {
        let held = dropped.lock().unwrap().take();
        async move {
            let chunk = || Ok::<_, io::Error>(vec![0_u8; 1 << 16]);
            let chunks = futures::stream::unfold(held, move |held| async move { Some((chunk(), held)) });
            crate::http::streamed(chunks)
        }
    };
    let router = hello().route("/endless", axum::routing::get(endless));
    let running = start(router, own_rules(), limits).await;
    let mut sender = over(TcpStream::connect(running.address).await.unwrap()).await;
    let request = Request::get("http://localhost/endless").body(Full::default()).unwrap();
    let deaf = sender.send_request(request).await.unwrap();
    assert!(gone.await.is_err(), "what the answer holds is dropped although the client is still there");
    assert_eq!(get(&mut sender, "localhost").await, (200, "hello".to_owned()));
    drop((deaf, sender));
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn tls_comes_before_everything_else_and_nobody_here_needs_it() {
    let job = Certificate::made([]).unwrap();
    let served = Served { job: Some(job.clone()), own: None };
    let tls = served.config().unwrap();
    let tcp = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let address = tcp.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or(()) };
        let protocols = Services { http: hello(), ..Services::default() };
        let listeners = Listeners { tcp, tls, socket: None, node: "n1".into(), slots: None, own: Vec::new() };
        serve(listeners, protocols, own_rules(), &ServerLimits::default(), stopped).await;
    });
    assert!(ask(address, GET).await.ends_with("hello"));
    let trust = Trust::Job(job.chain);
    let connect = async |protocols: &[&[u8]]| {
        let stream = TcpStream::connect(address).await.unwrap();
        tls::connect(trust.config(protocols).unwrap(), trust.name("127.0.0.1").unwrap(), stream).await.unwrap()
    };
    let mut sender = over(connect(&[b"h2"]).await).await;
    assert_eq!(get(&mut sender, "localhost").await, (200, "hello".to_owned()));
    let mut plain = connect(&[b"http/1.1"]).await;
    plain.write_all(GET.as_bytes()).await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
    drop((sender, plain));
    stop.send(()).unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn who_has_shown_the_token_takes_no_strangers_place_and_may_stay() {
    // A quarter of them for strangers, and a quarter of that for each source.
    let places = ConnectionPlaces::new(8);
    let guest = |uid| {
        let source = StrangerSource::User(uid);
        let access = Access::Stranger { reason: "of a test".to_owned(), source };
        Some(Guest::new(access, None, places.take(PlaceFor::Stranger(source))?, Asker::new(None)))
    };
    let (first, second) = (guest(1).unwrap(), guest(2).unwrap());
    assert!(guest(3).is_none(), "a quarter of all is taken");
    first.admit();
    let third = guest(3).expect("the first gave its place back");
    let moment = Duration::from_millis(5);
    second.has_outstayed(moment).await;
    third.has_outstayed(moment).await;
    let staying = tokio::time::timeout(moment * 4, first.has_outstayed(moment)).await;
    assert!(staying.is_err(), "it showed the token");
}
