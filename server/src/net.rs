//! Connections: accepts them, finds out their owner and their protocol ([`sniff`]), and passes their requests to the
//! router, or all their bytes to the protocol that speaks in lines. One port serves everything: with and without TLS,
//! HTTP/1, HTTP/2 (which gRPC needs), telnet.
//!
//! Every connection takes a place, and places are limited ([`guest`]). Its owner is found out first ([`owner`]), so
//! that no user takes the places of another. [`access`] decides here whether a request is allowed, before it reaches a
//! handler, so no protocol can forget to check.

pub mod access;
pub mod addresses;
pub(crate) mod datagrams;
pub(crate) mod guest;
pub mod listen;
pub(crate) mod owner;
pub(crate) mod places;
mod proc_net;
mod shared;
mod sniff;
mod sock_diag;
pub mod socket;
pub(crate) mod socket_row;
pub(crate) mod stall;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Extensions, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::future::{BoxFuture, select_all};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use telem_engine::ErrorKind;
use telem_ingest::default_tags::DefaultTags;
use telem_ingest::rank;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use self::access::{Access, FirstLook, PathShow, PathTokens, Rules, TOKEN_PATH_SHOWN, WireSecrecy};
use self::guest::{Guest, GuestProcess, WrongTokens};
use self::listen::BoundListener;
use self::owner::OwnerLookup;
use self::places::ConnectionPlaces;
use self::shared::SharedStream;
use self::sniff::{FirstByte, Whole};
use self::socket::Socket;
use self::stall::{StallGuard, StallWatch};
use crate::http::ApiError;
use crate::http::asker::{Asker, Presence, ShownToken};
use crate::page::{self, AskingPage};
use crate::protocol::{
    ByteStream, FrameClient, FrameRefusal, FrameService, LineClient, LineService, OwnListener, ValueClient,
    ValueService,
};
use crate::slots::{self, JobCaller, JobId, JobSlots, JobTie, ProcessMark};
use crate::state::ServerLimits;

/// How long accepting rests after the operating system had no descriptor for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to a connection beyond the limit.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json; charset=UTF-8\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 94\r\n\r\n\
    {\"error\":{\"code\":503,\"message\":\"too many connections are open; close some or try again soon\"}}";

/// Longest that a connection waits to know its process; then its samples have no rank and no job.
pub(crate) const PROCESS_TIMEOUT: Duration = Duration::from_millis(500);

/// Most connections over TCP of which it is not known yet whose they are. Others wait in the kernel's queue, and those
/// over the Unix socket do not wait for them.
pub(crate) const UNKNOWN_MAX: usize = 64;

/// Longest that agreeing on keys may take.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a peer that speaks HTTP/2 is asked for a sign of life, and how long it may take to give it: such
/// connections stay open between requests.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Most requests that run at once over one connection of HTTP/2.
pub(crate) const STREAMS_MAX: u32 = 512;
/// Largest head of a request over HTTP/2, as its names and values count there.
pub(crate) const HEAD_BYTES_MAX: u32 = 64 << 10;
/// The answer to a client without TLS where TLS is required.
const TLS_NEEDED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=UTF-8\r\n\
    Connection: close\r\nContent-Length: 98\r\n\r\n\
    {\"error\":{\"code\":400,\"message\":\"this server speaks TLS beyond its own machine; ask for https://\"}}";

/// Where requests come from.
#[derive(Debug)]
pub struct Listeners {
    pub tcp: TcpListener,
    /// How TLS is spoken on it. On loopback it is optional; from elsewhere it is required if this is set.
    pub tls: Option<Arc<ServerConfig>>,
    pub socket: Option<Socket>,
    /// The tag `host` of samples that come over the socket without one.
    pub node: Arc<str>,
    /// Where jobs share the server.
    pub slots: Option<Arc<JobSlots>>,
    /// Ports of protocols' own.
    pub own: Vec<BoundListener>,
}

/// The handlers of all input.
#[derive(Default)]
pub struct Services {
    pub http: Router,
    /// `None`: everything is taken for HTTP.
    pub lines: Option<Arc<dyn LineService>>,
    /// `None`: frames are taken for lines.
    pub frames: Option<Arc<dyn FrameService>>,
    /// `None`: values are taken for lines.
    pub values: Option<Arc<dyn ValueService>>,
    /// What protocols do on their own.
    pub work: Vec<BoxFuture<'static, ()>>,
    /// What they do before the server stops, and after.
    pub farewells: Vec<BoxFuture<'static, ()>>,
    pub closings: Vec<BoxFuture<'static, ()>>,
    /// Ports of protocols' own, to be [bound](listen::bind).
    pub listeners: Vec<OwnListener>,
}

/// The handler of one port.
#[derive(Debug, Default)]
struct Answers {
    /// `None`: everything is taken for lines.
    http: Option<Router>,
    lines: Option<Arc<dyn LineService>>,
    frames: Option<Arc<dyn FrameService>>,
    values: Option<Arc<dyn ValueService>>,
    /// The shell of the page is here, which everybody may see.
    has_page: bool,
    /// Every client needs the token: the process at the other end of the connection is not the one that asks.
    is_tunnel: bool,
}

enum IncomingStream {
    Tcp(TcpStream, FirstLook, Arc<Answers>),
    Unix(UnixStream, Arc<Answers>),
}

/// Serves `services` until `stop` comes; then finishes the requests that run, within the limit for that.
pub async fn serve(
    listeners: Listeners,
    services: Services,
    rules: Rules,
    limits: &ServerLimits,
    stop: impl Future<Output = ()>,
) {
    let places = ConnectionPlaces::new(limits.connections_max);
    let (stopping, stopped) = watch::channel(false);
    let tls = listeners.tls.clone().map(TlsAcceptor::from);
    let owners = listeners.tcp.local_addr().map_or_else(|_| OwnerLookup::of_tables(), OwnerLookup::new);
    let (node, slots) = (Arc::clone(&listeners.node), listeners.slots);
    let wrong = WrongTokens::default();
    let Services { http, lines, frames, values, .. } = services;
    let answers = Answers { http: Some(http), lines, frames, values, has_page: true, is_tunnel: false };
    let answers = Arc::new(answers);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut ports = vec![(listeners.tcp, Arc::clone(&answers))];
    let mut sockets: Vec<_> = listeners.socket.into_iter().map(|socket| (socket, Arc::clone(&answers))).collect();
    for own in listeners.own {
        match own {
            BoundListener::Http(tcp, router) => {
                ports.push((tcp, Arc::new(Answers { http: Some(router), ..Answers::default() })));
            }
            BoundListener::Lines(tcp, lines) => {
                ports.push((tcp, Arc::new(Answers { lines: Some(lines), ..Answers::default() })));
            }
            BoundListener::Tunnel(tcp) => {
                let http = answers.http.clone();
                let answers = Answers { http, has_page: true, is_tunnel: true, ..Answers::default() };
                ports.push((tcp, Arc::new(answers)));
            }
            BoundListener::Values(socket, values) => {
                sockets.push((socket, Arc::new(Answers { values: Some(values), ..Answers::default() })));
            }
            BoundListener::Datagrams(udp, service) => {
                let admission = datagrams::Admission::new(rules.clone());
                let (receiving, watcher) =
                    (datagrams::receive(udp, service, admission, stopped.clone()), graceful.watcher());
                connections.spawn(async move {
                    receiving.await;
                    // Only now: a shutdown waits for earlier input.
                    drop(watcher);
                });
            }
        }
    }
    let door = Door { rules, limits: limits.clone(), places, owners, tls, node, slots, stopped, wrong };
    let door = Arc::new(door);
    let unknown = Arc::new(Semaphore::new(UNKNOWN_MAX));
    tokio::pin!(stop);
    loop {
        let (accepted, unknown) = tokio::select! {
            () = &mut stop => break,
            (accepted, unknown) = accept_tcp(&ports, &unknown) => {
                // At once: a client that hangs up is known for a moment only.
                let seen = accepted.map(|(stream, answers)| {
                    let look = match answers.is_tunnel {
                        true => FirstLook::of_tunnel(),
                        false => door.rules.of_tcp(&stream, &door.owners),
                    };
                    IncomingStream::Tcp(stream, look, answers)
                });
                (seen, unknown)
            }
            accepted = accept_unix(&sockets) => {
                (accepted.map(|(stream, answers)| IncomingStream::Unix(stream, answers)), None)
            }
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok(incoming) => {
                let (door, watcher) = (Arc::clone(&door), graceful.watcher());
                connections.spawn(door.welcome(incoming, unknown, watcher));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop((ports, sockets));
    stopping.send_replace(true);
    if tokio::time::timeout(limits.shutdown_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(waited = ?limits.shutdown_timeout, "requests that still ran were cut off");
    }
    connections.shutdown().await;
}

/// A connection with its handler, and its place among those whose owner is not known yet.
async fn accept_tcp(
    ports: &[(TcpListener, Arc<Answers>)],
    unknown: &Arc<Semaphore>,
) -> (io::Result<(TcpStream, Arc<Answers>)>, Option<OwnedSemaphorePermit>) {
    // It is never closed.
    let unknown = Arc::clone(unknown).acquire_owned().await.ok();
    let accepting = ports.iter().map(|(tcp, answers)| {
        Box::pin(async move { tcp.accept().await.map(|(stream, _)| (stream, Arc::clone(answers))) })
    });
    (select_all(accepting).await.0, unknown)
}

async fn accept_unix(sockets: &[(Socket, Arc<Answers>)]) -> io::Result<(UnixStream, Arc<Answers>)> {
    if sockets.is_empty() {
        return std::future::pending().await;
    }
    let accepting = sockets.iter().map(|(socket, answers)| {
        Box::pin(async move { socket.listener().accept().await.map(|(stream, _)| (stream, Arc::clone(answers))) })
    });
    select_all(accepting).await.0
}

/// What every connection needs.
struct Door {
    rules: Rules,
    limits: ServerLimits,
    places: ConnectionPlaces,
    owners: OwnerLookup,
    tls: Option<TlsAcceptor>,
    node: Arc<str>,
    slots: Option<Arc<JobSlots>>,
    /// True once the server stops.
    stopped: watch::Receiver<bool>,
    wrong: WrongTokens,
}

/// The client, and its kind of connection.
struct Visit {
    guest: Arc<Guest>,
    answers: Arc<Answers>,
    watcher: Watcher,
    wire: WireSecrecy,
}

impl Visit {
    /// The protocol of a client whose first byte this is.
    fn speech(&self, first: u8) -> FirstByte {
        match (&self.answers.http, &self.answers.values) {
            (Some(_), _) => sniff::first_byte(first),
            (None, Some(_)) => FirstByte::Values,
            (None, None) => FirstByte::Lines,
        }
    }
}

impl Door {
    /// `unknown` is held until it is known whose the connection is.
    async fn welcome(
        self: Arc<Self>,
        incoming: IncomingStream,
        unknown: Option<OwnedSemaphorePermit>,
        watcher: Watcher,
    ) {
        match incoming {
            IncomingStream::Tcp(stream, look, answers) => {
                let access = self.rules.after(look, &self.owners).await;
                drop(unknown);
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection keeps Nagle's algorithm");
                }
                let (peer, stream) = (stream.peer_addr().ok(), SharedStream::new(stream));
                let guest = self.seat(access, peer, stream.presence(), GuestProcess::default());
                let Some(guest) = guest else { return turn_away(stream).await };
                let wire = match guest.is_here() {
                    true => WireSecrecy::Secret,
                    false => WireSecrecy::Plain,
                };
                self.open(stream, Visit { guest, answers, watcher, wire }).await;
            }
            IncomingStream::Unix(stream, answers) => {
                let access = self.rules.of_unix(&stream);
                let process = self.process(self.rules.own_process(&stream)).await;
                let stream = SharedStream::new(stream);
                let guest = self.seat(access, None, stream.presence(), process);
                let Some(guest) = guest else { return turn_away_unix(stream, &answers).await };
                let visit = Visit { guest, answers, watcher, wire: WireSecrecy::Secret };
                match visit.answers.values.clone().filter(|_| visit.answers.http.is_none()) {
                    // They may be silent for as long as they like.
                    Some(values) => self.take_values(Box::new(stream), values, visit).await,
                    None => self.converse(stream, BytesMut::new(), visit).await,
                }
            }
        }
    }

    /// What the process tells of itself, if it is our user's. That says whose the samples are and gives no right: a
    /// process may put what it likes into its environment.
    async fn process(&self, pid: Option<u32>) -> GuestProcess {
        let (node, is_shared) = (Arc::clone(&self.node), self.slots.is_some());
        // The kernel takes a lock of the process for that, which may be busy with its own memory.
        let read = tokio::task::spawn_blocking(move || {
            let (pid, environment) = pid.and_then(|pid| Some((pid, rank::environment_of(pid)?)))?;
            let mark = ProcessMark::of(pid);
            let job = JobId::of_environment(&environment).filter(|_| is_shared).map(|id| JobTie::new(id, mark));
            Some((rank::of_environment(&environment), job, mark))
        });
        let read = tokio::time::timeout(PROCESS_TIMEOUT, read).await;
        let (rank, job, mark) = read.ok().and_then(Result::ok).flatten().unwrap_or_default();
        GuestProcess { tags: DefaultTags::of_process(node, rank), job, mark }
    }

    /// The sender of a request, where jobs share the server: a header says more than the connection.
    ///
    /// # Errors
    /// Invalid, for a header that names no job.
    fn caller(&self, named: Option<&HeaderValue>, guest: &Guest) -> Result<Option<JobCaller>, ApiError> {
        let Some(slots) = &self.slots else { return Ok(None) };
        let Some(named) = named else { return Ok(guest.job.as_ref().map(|tie| JobCaller::tied(slots, tie))) };
        let invalid =
            |why: String| ApiError::of_kind(ErrorKind::Invalid, format!("the header {}: {why}", slots::HEADER));
        let id = named.to_str().map_err(|_| "it is no plain text".to_owned()).and_then(JobId::new).map_err(invalid)?;
        Ok(id.map(|id| JobCaller::named(slots, id)))
    }

    /// What a request of this client brings along, unless a header says more.
    fn extensions(&self, guest: &Guest) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(guest.asker.clone());
        extensions.insert(guest.tags.clone());
        if let Some((slots, tie)) = self.slots.as_ref().zip(guest.job.as_ref()) {
            extensions.insert(JobCaller::tied(slots, tie));
        }
        if let Some(mark) = guest.mark {
            extensions.insert(mark);
        }
        extensions
    }

    /// What the samples of a client get that speaks in lines: few say anything else.
    async fn tags_of_lines(&self, guest: &Guest) -> DefaultTags {
        let caller = self.slots.as_ref().zip(guest.job.as_ref()).map(|(slots, tie)| JobCaller::tied(slots, tie));
        match caller {
            Some(caller) => guest.tags.clone().in_slot(caller.slot().await),
            None => guest.tags.clone(),
        }
    }

    /// Gives a connection its place, if there is one.
    fn seat(
        &self,
        access: Access,
        peer: Option<SocketAddr>,
        presence: Arc<dyn Presence>,
        process: GuestProcess,
    ) -> Option<Arc<Guest>> {
        let place = self.places.take(self.rules.place_for(&access))?;
        Some(Arc::new(Guest::new(access, peer, place, Asker::new(Some(presence))).with_process(process)))
    }

    /// TLS comes before everything else.
    async fn open(self: Arc<Self>, mut stream: SharedStream<TcpStream>, mut visit: Visit) {
        let Some(tls) = &self.tls else { return self.converse(stream, BytesMut::new(), visit).await };
        let Some(first) = self.first_bytes(&mut stream).await else { return };
        if first.first().is_some_and(|byte| sniff::is_tls(*byte)) {
            let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(Whole::new(first, stream))).await;
            match accepted {
                Ok(Ok(stream)) => {
                    visit.wire = WireSecrecy::Secret;
                    Arc::clone(&self).converse(stream, BytesMut::new(), visit).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            }
        } else if visit.guest.is_here() || visit.answers.is_tunnel {
            self.converse(stream, first, visit).await;
        } else if self.rules.path_tokens() == PathTokens::Plain {
            visit.wire = WireSecrecy::PlainBesideTls;
            self.converse(stream, first, visit).await;
        } else {
            say(stream, TLS_NEEDED).await;
        }
    }

    /// What a client says first; `None` if it says nothing in time.
    async fn first_bytes(&self, stream: &mut (impl AsyncRead + Unpin)) -> Option<BytesMut> {
        let mut stopped = self.stopped.clone();
        let first = tokio::select! {
            biased;
            first = tokio::time::timeout(self.limits.header_timeout, sniff::first_bytes(stream)) => first,
            _ = stopped.wait_for(|stopped| *stopped) => return None,
        };
        first.ok()?.ok().filter(|first| !first.is_empty())
    }

    /// `first` was read already.
    async fn converse<S>(self: Arc<Self>, mut stream: S, first: BytesMut, visit: Visit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let first = if first.is_empty() { self.first_bytes(&mut stream).await } else { Some(first) };
        let Some(mut first) = first else { return };
        let byte = first.first().copied().unwrap_or_default();
        if let (FirstByte::Frames, Some(frames)) = (visit.speech(byte), visit.answers.frames.clone()) {
            // Apart, so that a connection of another kind takes no memory for it, and it none for those.
            let stream = Box::new(StallGuard::new(Whole::new(first, stream), self.limits.write_idle_timeout));
            return Box::pin(self.speak_frames(stream, frames, visit)).await;
        }
        if let (FirstByte::Values, Some(values), None) =
            (visit.speech(byte), visit.answers.values.clone(), visit.guest.peer)
        {
            return Box::pin(self.take_values(Box::new(Whole::new(first, stream)), values, visit)).await;
        }
        match (visit.speech(byte), &visit.answers.lines, &visit.guest.access) {
            (FirstByte::Http, ..) | (_, None, _) => {
                let preface = sniff::is_http2(&mut stream, &mut first);
                let is_http2 = tokio::time::timeout(self.limits.header_timeout, preface).await;
                let stream = StallGuard::new(Whole::new(first, stream), self.limits.write_idle_timeout);
                match is_http2 {
                    Ok(Ok(true)) => self.speak_http2(stream, visit).await,
                    Ok(Ok(false)) => self.speak_http1(stream, visit).await,
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            (_, Some(lines), Access::Socket | Access::Loopback { .. }) => {
                let stream = Box::new(StallGuard::new(stream, self.limits.write_idle_timeout));
                let (tags, stopping) = (self.tags_of_lines(&visit.guest).await, self.stopped.clone());
                lines.converse(LineClient { stream, first, tags, stopping }).await;
                // Only now: a shutdown waits for the input of this client.
                drop(visit);
            }
            (_, Some(lines), Access::Stranger { reason, .. }) => {
                let what = format!(
                    "a token is needed because {reason}, and telnet cannot carry one; send to /api/put over HTTP with \
                     'Authorization: Bearer TOKEN' and the token of the connection file"
                );
                lines.refuse(Box::new(stream), &what).await;
            }
        }
    }

    async fn speak_frames(self: Arc<Self>, stream: Box<dyn ByteStream>, frames: Arc<dyn FrameService>, visit: Visit) {
        match (&visit.guest.access, visit.guest.peer) {
            (Access::Socket, None) => {
                visit.guest.leave_place();
                let (extensions, stopping) = (self.extensions(&visit.guest), self.stopped.clone());
                let http = visit.answers.http.clone().unwrap_or_default();
                frames.converse(FrameClient { stream, extensions, http, stopping }).await;
                // Only now: a shutdown waits for the input of this client.
                drop(visit);
            }
            (Access::Stranger { reason, .. }, None) => frames.refuse(stream, FrameRefusal::Stranger(reason)).await,
            _ => frames.refuse(stream, FrameRefusal::OverTcp).await,
        }
    }

    /// Of strangers nothing is taken, and they could not be told.
    async fn take_values(self: Arc<Self>, stream: Box<dyn ByteStream>, values: Arc<dyn ValueService>, visit: Visit) {
        if let Access::Stranger { reason, .. } = &visit.guest.access {
            tracing::debug!(reason, "values of a stranger were not taken");
            return;
        }
        visit.guest.leave_place();
        values.converse(ValueClient { stream, stopping: self.stopped.clone() }).await;
        // Only now: a shutdown waits for the input of this client.
        drop(visit);
    }

    async fn speak_http1<S>(self: Arc<Self>, stream: S, visit: Visit)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Visit { guest, answers, watcher, wire } = visit;
        let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
            let (door, guest, answers) = (&self, &guest, &answers);
            async move { Ok::<Response, Infallible>(door.answer(request.map(Body::new), guest, answers, wire).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "a connection ended in the middle");
        }
    }

    async fn speak_http2<S>(self: Arc<Self>, stream: S, visit: Visit)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let Visit { guest, answers, watcher, wire } = visit;
        let stalls = Arc::new(StallWatch::new(self.limits.write_idle_timeout));
        let (door, asked, watched) = (Arc::clone(&self), Arc::clone(&guest), Arc::clone(&stalls));
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (door, guest, watched) = (Arc::clone(&door), Arc::clone(&asked), Arc::clone(&watched));
            let answers = Arc::clone(&answers);
            async move {
                let response = door.answer(request.map(Body::new), &guest, &answers, wire).await;
                // One request that is not taken must not hold up the others: it is watched by itself.
                Ok::<_, Infallible>(response.map(|body| watched.around(body)))
            }
        });
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended in the middle");
            },
            () = guest.has_outstayed(self.limits.header_timeout) => {
                tracing::debug!("a connection without a valid request was closed");
            }
            () = stalls.watch() => {}
        }
    }

    async fn answer(
        &self,
        request: axum::extract::Request,
        guest: &Guest,
        answers: &Answers,
        wire: WireSecrecy,
    ) -> Response {
        let asking = match self.rules.admits_page(request.headers()) {
            true => AskingPage::Admitted,
            false => AskingPage::NotAdmitted,
        };
        let mut response = self.judge(request, guest, answers, wire).await;
        page::guard(response.headers_mut(), asking);
        response
    }

    async fn judge(
        &self,
        mut request: axum::extract::Request,
        guest: &Guest,
        answers: &Answers,
        wire: WireSecrecy,
    ) -> Response {
        name_host(&mut request);
        let in_path = self.rules.take_path_token(&mut request);
        if let Err(refusal) = may_be_said(in_path, wire, self.rules.path_tokens()) {
            return refusal.into_response();
        }
        // Also to who needs none: it was meant to be right, and the path of nothing else begins so.
        if in_path == PathShow::Wrong {
            self.wrong.tell(guest, TOKEN_PATH_SHOWN);
            let what = "the token in the path is wrong; it is that of the connection file";
            return ApiError::new(StatusCode::UNAUTHORIZED, what).into_response();
        }
        if in_path == PathShow::Right || self.rules.is_shown(request.headers()) {
            request.extensions_mut().insert(ShownToken);
        }
        let (method, headers) = (request.method(), request.headers());
        match self.rules.admit(headers, &guest.access) {
            Ok(()) => guest.admit(),
            Err(_) if in_path == PathShow::Right => guest.admit(),
            Err(_) if self.rules.is_preflight(method, headers) => {}
            Err(_) if answers.has_page && page::is_for_the_shell(method, request.uri().path()) => {}
            Err(refusal) => {
                if headers.contains_key(header::AUTHORIZATION) {
                    self.wrong.tell(guest, request.uri().path());
                }
                return refusal.into_response();
            }
        }
        request.extensions_mut().insert(guest.asker.clone());
        let caller = match self.caller(request.headers().get(slots::HEADER), guest) {
            Ok(caller) => caller,
            Err(refusal) => return refusal.into_response(),
        };
        request.extensions_mut().insert(guest.tags.clone());
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        // Without it, all input is treated as lines.
        let http = answers.http.clone().unwrap_or_default();
        match http.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// Whether a request may be answered on a connection that others can read.
fn may_be_said(in_path: PathShow, wire: WireSecrecy, tokens: PathTokens) -> Result<(), ApiError> {
    match (wire, in_path) {
        (WireSecrecy::Secret, _) | (WireSecrecy::Plain, PathShow::Nothing) => Ok(()),
        (WireSecrecy::Plain, _) if tokens != PathTokens::Plain => {
            let what = "a token in a path can be read by whoever is between both ends of a plain connection: ask over \
                        TLS, or start the server with --proxy-plain";
            Err(ApiError::new(StatusCode::FORBIDDEN, what))
        }
        (WireSecrecy::Plain, _) | (WireSecrecy::PlainBesideTls, PathShow::Right | PathShow::Wrong) => Ok(()),
        (WireSecrecy::PlainBesideTls, PathShow::Nothing) => {
            let what = "this server speaks TLS beyond its own machine; ask for https://";
            Err(ApiError::new(StatusCode::BAD_REQUEST, what))
        }
    }
}

/// HTTP/2 has the requested host in the URI; the check expects it in the header.
fn name_host(request: &mut axum::extract::Request) {
    if request.headers().contains_key(header::HOST) {
        return;
    }
    let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
}

/// As [`turn_away`], in the language of the client.
async fn turn_away_unix(mut stream: SharedStream<UnixStream>, answers: &Answers) {
    let first = tokio::time::timeout(ACCEPT_PAUSE, sniff::first_bytes(&mut stream)).await;
    let first = first.ok().and_then(Result::ok).and_then(|first| first.first().copied());
    match (&answers.frames, first.map(sniff::first_byte)) {
        (Some(frames), Some(FirstByte::Frames)) => {
            frames.refuse(Box::new(stream), FrameRefusal::TooManyConnections).await;
        }
        _ => turn_away(stream).await,
    }
}

/// Says why before it hangs up.
async fn turn_away(stream: impl AsyncWrite + Unpin) {
    tracing::debug!("a connection beyond the limit was turned away");
    say(stream, NO_PLACE).await;
}

/// The last words on a connection; a peer that does not read is not waited for.
async fn say(mut stream: impl AsyncWrite + Unpin, words: &[u8]) {
    let told = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(words)).await;
    if let Ok(Err(error)) = told {
        tracing::debug!(%error, "a connection that was to be refused was already gone");
    }
}
