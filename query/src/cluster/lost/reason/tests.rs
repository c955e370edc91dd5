use std::sync::Arc;
use std::time::Duration;

use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use url::Url;

use super::super::super::net::{Channels, DialTcp, Wire};
use super::*;

/// Of what says something, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of what never says anything.
const IMPATIENCE: Duration = Duration::from_millis(300);

/// What a node at `address` is lost for, over a real connection.
async fn lost_at(address: std::net::SocketAddr, patience: Duration) -> String {
    let wire = Wire {
        connect_timeout: patience,
        silence_max: 2 * patience,
        ..Wire::new("token".to_owned(), Arc::new(DialTcp))
    };
    let url = Url::parse(&format!("http://{address}/")).unwrap();
    let channels = Channels::new(wire, tokio::runtime::Handle::current());
    let probed = channels.probe(&url).await.unwrap_err();
    let mut channel = channels.get_worker_client_for_url(&url).await.unwrap();
    let asked = reason(&channel.get_worker_info(GetWorkerInfoRequest {}).await.map(drop).unwrap_err());
    for told in [&probed, &asked] {
        let odd = ["{", "}", "::", "Some(", "Error", "os error", "tonic", "hyper", "h2 "];
        assert!(!odd.iter().any(|odd| told.contains(odd)) && !told.is_empty(), "{told:?}");
    }
    asked
}

/// Listens and does `with` every connection that comes.
async fn node<F: Future<Output = ()> + Send>(with: impl Fn(TcpStream) -> F + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            with(stream).await;
        }
    });
    address
}

#[tokio::test]
async fn a_node_that_does_not_listen_refuses() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let told = lost_at(unused, PATIENCE).await;
    assert!(told.contains(REFUSED), "{told}");
}

#[tokio::test]
async fn a_node_that_takes_connections_and_says_nothing_does_not_answer() {
    let address = node(|stream| async move { std::mem::forget(stream) }).await;
    let told = lost_at(address, IMPATIENCE).await;
    // The connection of the probe is kept, and may be given up only after the second question began.
    assert!(told.contains(SILENT) || told == CLOSED, "{told}");
}

#[tokio::test]
async fn a_node_whose_queue_of_connections_is_full_does_not_answer() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut taken = Vec::new();
    // Until one waits, all that may wait are there.
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        taken.push(stream);
    }
    let told = lost_at(address, IMPATIENCE).await;
    assert!(told.contains(SILENT), "{told}");
}

#[tokio::test]
async fn a_node_that_hangs_up_or_talks_nonsense_has_a_broken_connection() {
    let hangs_up = node(|stream| async move { drop(stream) }).await;
    let nonsense = node(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 64]).await;
    })
    .await;
    for address in [hangs_up, nonsense] {
        let told = lost_at(address, PATIENCE).await;
        assert!(told.contains("its connection") || told.contains("HTTP"), "{told}");
    }
}

#[test]
fn a_status_is_told_by_what_it_means() {
    let told = |status: Status| reason(&DataFusionError::External(Box::new(status)));
    assert_eq!(told(Status::unauthenticated("no")), "it does not accept the token of this job");
    assert_eq!(told(Status::unavailable("telem is shutting down")), CLOSED);
    assert_eq!(told(Status::deadline_exceeded("x")), SILENT);
    assert_eq!(told(Status::internal("the disk is full")), "the disk is full");
    assert_eq!(told(Status::internal("hyper::Error(Http2, Error { kind: Reset })")), "its connection failed");
    let refused = io::Error::from(ErrorKind::ConnectionRefused);
    assert_eq!(told(Status::from_error(Box::new(refused))), REFUSED);
    let over_the_wire = DataFusionError::Execution("status: Unknown, details: [], source: Some(x)".to_owned());
    assert_eq!(reason(&over_the_wire), "its connection failed");
}
