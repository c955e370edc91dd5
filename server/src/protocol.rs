//! What a protocol is to the rest of the server: paths, and perhaps a wire language of its own.
//!
//! The folders below [`protocols`](crate::protocols) implement these traits; `service/router.rs` lists them. `net`
//! accepts the clients, checks their rights, and passes their input on. Neither side knows the other.

use std::fmt::Debug;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::http::Extensions;
use bytes::BytesMut;
use futures::future::BoxFuture;
use telem_ingest::default_tags::DefaultTags;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

/// A part of what a server holds in memory: its name, and what it is.
pub type PartName = (&'static str, &'static str);

/// One protocol, with the state that is its own.
pub trait Protocol: Debug + Send + Sync {
    /// Its paths on the common port; gRPC is paths too. Who asks was found out before.
    fn routes(self: Arc<Self>) -> Router {
        Router::new()
    }

    /// The service for clients of the common port that do not speak HTTP. There is one such protocol at most, as nothing
    /// in a first line would tell two of them apart.
    fn lines(self: Arc<Self>) -> Option<Arc<dyn LineService>> {
        None
    }

    /// The service for clients of the Unix socket that speak in frames. There is one such protocol at most: their first
    /// byte names it.
    fn frames(self: Arc<Self>) -> Option<Arc<dyn FrameService>> {
        None
    }

    /// The service for clients of the Unix socket that send JSON values and expect no answers. There is one such protocol at
    /// most: the brace that every value begins with names it.
    fn values(self: Arc<Self>) -> Option<Arc<dyn ValueService>> {
        None
    }

    /// What it does on its own, until the server stops and drops it.
    fn work(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// What it does when the server is to stop and serves still. That waits for it, so it has a deadline of its own.
    fn farewell(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// What it does once no client is served any more, while the database is open still. It has a deadline of its own, too.
    fn close(self: Arc<Self>) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// What of its own it holds in memory, in bytes, where that may be much.
    fn held(&self) -> Vec<(PartName, u64)> {
        Vec::new()
    }

    /// Ports of its own, where it needs any.
    fn listeners(self: Arc<Self>) -> Vec<OwnListener> {
        Vec::new()
    }
}

/// A port that belongs to one protocol. Who may speak there is found out as on the common port.
#[derive(Clone, Debug)]
pub struct OwnListener {
    pub place: ListenerPlace,
    pub language: Language,
}

/// Where it is.
#[derive(Clone, Debug)]
pub enum ListenerPlace {
    /// At this address, which may be taken.
    Address(SocketAddr),
    /// It listens already; clients that came early wait. It must not block.
    Bound(Arc<TcpListener>),
    /// A Unix socket, which may be in a directory that others use, too.
    Path(PathBuf),
}

/// What is spoken at a port.
#[derive(Clone, Debug)]
pub enum Language {
    /// HTTP/1 and HTTP/2, gRPC included.
    Http(Router),
    /// Over TCP.
    Lines(Arc<dyn LineService>),
    /// Over UDP.
    Datagrams(Arc<dyn DatagramService>),
    /// Over a Unix socket.
    Values(Arc<dyn ValueService>),
}

/// Both directions of a connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A client that speaks in lines.
pub struct LineClient {
    /// It fails once the client takes no byte for too long.
    pub stream: Box<dyn ByteStream>,
    /// Bytes that came already.
    pub first: BytesMut,
    /// What its samples get where they lack it.
    pub tags: DefaultTags,
    /// Turns true once the server stops: what is on its way is still stored then.
    pub stopping: watch::Receiver<bool>,
}

/// Talks to clients, a connection each.
pub trait LineService: Debug + Send + Sync {
    /// Answers a client, which may speak, until one of both has enough.
    fn converse(&self, client: LineClient) -> BoxFuture<'_, ()>;

    /// Says in a line why a client is not served, and hangs up.
    fn refuse<'a>(&'a self, stream: Box<dyn ByteStream>, reason: &'a str) -> BoxFuture<'a, ()>;
}

/// A client that speaks in frames.
pub struct FrameClient {
    /// It fails once the client takes no byte for too long. Its first byte was only looked at.
    pub stream: Box<dyn ByteStream>,
    /// What each of its requests would bring along: who asks, what its samples get, its job.
    pub extensions: Extensions,
    /// Every path of the common port, for what the client asks that HTTP answers too.
    pub http: Router,
    /// Turns true once the server stops: what is on its way is still stored then.
    pub stopping: watch::Receiver<bool>,
}

/// Why a client that speaks in frames is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRefusal<'a> {
    TooManyConnections,
    /// It did not come over the Unix socket.
    OverTcp,
    /// It may not speak, for this reason.
    Stranger(&'a str),
}

/// Talks to clients in frames, a connection each. How many, it limits itself.
pub trait FrameService: Debug + Send + Sync {
    /// Answers a client, which may speak, until one of both has enough.
    fn converse(&self, client: FrameClient) -> BoxFuture<'_, ()>;

    /// Says why a client is not served, and hangs up.
    fn refuse<'a>(&'a self, stream: Box<dyn ByteStream>, why: FrameRefusal<'a>) -> BoxFuture<'a, ()>;
}

/// A client that sends JSON values.
pub struct ValueClient {
    /// Nothing is written to it. Its first byte was only looked at.
    pub stream: Box<dyn ByteStream>,
    /// Turns true once the server stops: what is on its way is still stored then.
    pub stopping: watch::Receiver<bool>,
}

/// Takes JSON values from clients, a connection each. How many, it limits itself.
pub trait ValueService: Debug + Send + Sync {
    /// Reads what a client sends, which may send, until it hangs up.
    fn converse(&self, client: ValueClient) -> BoxFuture<'_, ()>;
}

/// Takes datagrams, and sends no answer.
pub trait DatagramService: Debug + Send + Sync {
    /// Takes one whose sender may send. The next is read when this is done; others wait in the kernel, which drops what
    /// it has no room for.
    fn receive<'a>(&'a self, datagram: &'a [u8]) -> BoxFuture<'a, ()>;
}
