//! Work for a client notices that the client is gone, even while more of its input waits to be read.

use axum::extract::Request;
use tokio::sync::mpsc;

use super::*;
use crate::http::asker::Asker;

/// Answers when its client is gone, which nobody hears, and tells it to the test.
fn until_gone() -> (Router, mpsc::UnboundedReceiver<()>, mpsc::UnboundedReceiver<()>) {
    let (entered, inside) = mpsc::unbounded_channel();
    let (left, gone) = mpsc::unbounded_channel();
    let wait = move |request: Request| {
        let (entered, left) = (entered.clone(), left.clone());
        async move {
            entered.send(()).unwrap();
            Asker::of(&request).gone().await;
            left.send(()).unwrap();
            "gone"
        }
    };
    (Router::new().route("/x", get(wait)), inside, gone)
}

const ASK: &[u8] = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[tokio::test]
async fn a_client_that_sent_ahead_and_left_is_noticed() {
    let (router, mut inside, mut gone) = until_gone();
    let running = start(router, own_rules(), ServerLimits::default()).await;
    let mut client = TcpStream::connect(running.address).await.unwrap();
    client.write_all(&ASK.repeat(50)).await.unwrap();
    inside.recv().await.unwrap();
    assert!(gone.try_recv().is_err(), "it is there, and has sent more");
    drop(client);
    gone.recv().await.unwrap();
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_the_socket_that_left_is_noticed() {
    let dir = private_dir();
    let socket = Socket::bind(dir.path(), "s.sock", uid()).unwrap();
    let path = socket.path().to_path_buf();
    let tcp = listen(Some("127.0.0.1:0".parse().unwrap())).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (http, mut inside, mut gone) = until_gone();
    let task = tokio::spawn(async move {
        let stopped = async { stopped.await.unwrap_or(()) };
        let listeners =
            Listeners { tcp, tls: None, socket: Some(socket), node: "n1".into(), slots: None, own: Vec::new() };
        serve(listeners, Services { http, ..Services::default() }, own_rules(), &ServerLimits::default(), stopped)
            .await;
    });
    let mut client = tokio::net::UnixStream::connect(&path).await.unwrap();
    client.write_all(&ASK.repeat(2)).await.unwrap();
    inside.recv().await.unwrap();
    drop(client);
    gone.recv().await.unwrap();
    stop.send(()).unwrap();
    task.await.unwrap();
}
