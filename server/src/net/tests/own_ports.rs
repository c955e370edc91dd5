//! Ports that belong to one protocol: lines, datagrams and HTTP, with the rules of the common port.

use futures::future::BoxFuture;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::*;
use crate::net::datagrams::Admission;
use crate::net::listen;
use crate::protocol::{
    ByteStream, DatagramService, Language as PortLanguage, LineClient, LineService, ListenerPlace, OwnListener,
};

/// Says back what it hears first.
#[derive(Debug)]
struct Echo;

impl LineService for Echo {
    fn converse(&self, client: LineClient) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let LineClient { mut stream, first, .. } = client;
            stream.write_all(&first).await.unwrap();
            stream.shutdown().await.unwrap();
        })
    }

    fn refuse<'a>(&'a self, mut stream: Box<dyn ByteStream>, reason: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { stream.write_all(format!("refused: {reason}").as_bytes()).await.unwrap() })
    }
}

/// Hands on what comes.
#[derive(Debug)]
struct Mailbox(mpsc::UnboundedSender<Vec<u8>>);

impl DatagramService for Mailbox {
    fn receive<'a>(&'a self, datagram: &'a [u8]) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.send(datagram.to_vec()).unwrap() })
    }
}

fn any_port(language: PortLanguage) -> OwnListener {
    OwnListener { place: ListenerPlace::Address("127.0.0.1:0".parse().unwrap()), language }
}

async fn start_own(language: PortLanguage, rules: Rules) -> (Running, SocketAddr) {
    let own = listen::bind(vec![any_port(language)], 0).await.unwrap();
    let address = match &own[0] {
        BoundListener::Http(tcp, _) | BoundListener::Lines(tcp, _) | BoundListener::Tunnel(tcp) => tcp.local_addr(),
        BoundListener::Datagrams(udp, _) => udp.local_addr(),
        BoundListener::Values(..) => unreachable!("it has no port"),
    };
    let http = Router::new().route("/x", get(|| async { "common" }));
    let services = Services { http, ..Services::default() };
    (start_at(services, own, rules, ServerLimits::default()).await, address.unwrap())
}

async fn stop(running: Running) {
    running.stop.send(()).unwrap();
    running.task.await.unwrap();
}

#[tokio::test]
async fn a_port_of_lines_takes_everything_for_lines_and_knows_who_may_speak() {
    let (running, own) = start_own(PortLanguage::Lines(Arc::new(Echo)), own_rules()).await;
    assert_eq!(ask(own, "GET is a line here\n").await, "GET is a line here\n");
    assert!(ask(running.address, GET).await.ends_with("common"));
    stop(running).await;
    let strange = Rules::new(Token::chosen(SECRET).unwrap(), uid() + 1, []);
    if uid() != 0 {
        let (running, own) = start_own(PortLanguage::Lines(Arc::new(Echo)), strange).await;
        assert!(ask(own, "a line\n").await.starts_with("refused: a token is needed"));
        stop(running).await;
    }
}

#[tokio::test]
async fn a_port_of_http_has_paths_of_its_own() {
    let router = Router::new().route("/x", get(|| async { "own" }));
    let (running, own) = start_own(PortLanguage::Http(router), own_rules()).await;
    assert!(ask(own, GET).await.ends_with("own"));
    assert!(ask(running.address, GET).await.ends_with("common"));
    stop(running).await;
}

#[tokio::test]
async fn datagrams_of_our_user_arrive_and_those_before_the_end_too() {
    let (put, mut mail) = mpsc::unbounded_channel();
    let (running, own) = start_own(PortLanguage::Datagrams(Arc::new(Mailbox(put))), own_rules()).await;
    let sender = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    sender.send_to(b"one", own).await.unwrap();
    assert_eq!(mail.recv().await.unwrap(), b"one");
    sender.send_to(b"two", own).await.unwrap();
    stop(running).await;
    assert_eq!(mail.recv().await.unwrap(), b"two");
    assert_eq!(mail.recv().await, None);
}

#[tokio::test]
async fn datagrams_are_taken_on_loopback_only_and_from_admitted_users_only() {
    let (put, _mail) = mpsc::unbounded_channel();
    let service: Arc<dyn DatagramService> = Arc::new(Mailbox(put));
    let place = ListenerPlace::Address("0.0.0.0:0".parse().unwrap());
    let everywhere = OwnListener { place, language: PortLanguage::Datagrams(service) };
    assert!(matches!(listen::bind(vec![everywhere], 0).await, Err(ListenError::Open { .. })));
    let admission = Admission::new(Rules::new(Token::chosen(SECRET).unwrap(), 1000, []));
    for (users, admitted) in
        [(&[1000][..], true), (&[0, 1000], true), (&[1001], false), (&[1000, 1001], false), (&[], false)]
    {
        assert_eq!(admission.are_admitted(users), admitted, "{users:?}");
    }
}
