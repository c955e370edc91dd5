//! Who may ask without the token: on loopback and on the socket, processes of our user, of root, and of
//! users that were allowed by name. Everybody else needs the token; beyond loopback, everybody.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::http::{HeaderMap, Method, StatusCode, header};
use telem_ingest::rank;
use tokio::net::{TcpStream, UnixStream};

use super::proc_net::{self, End, Owner};
use crate::cors::Cors;
use crate::http::ApiError;
use crate::token::Token;

const ROOT: u32 = 0;
/// The kernel's tables can miss a row while they change; this often they are read at most.
const LOOKS_MAX: usize = 3;

/// Longest that a connection waits to know the rank of its process; then its samples get none.
const RANK_TIMEOUT: Duration = Duration::from_millis(500);

/// Of a client that hung up before anybody could ask whose it is.
const HUNG_UP: &str = "its client hung up at once, and this kernel does not say whose it was: let the client wait \
                       (nc -N, nc -q 1), or use the Unix socket or `telem put`";
const GONE: &str = "/proc/net/tcp does not show its client: let the client wait (nc -N, nc -q 1), or use the Unix \
                    socket or `telem put`";

/// What a connection may do, found out once when it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A process of an admitted user, through the socket.
    Socket,
    /// A process of an admitted user, through loopback. It may be a browser that was led here by a strange page.
    Loopback,
    /// Needs the token, because of `reason`.
    Stranger { reason: String },
}

/// Who is admitted.
#[derive(Clone, Debug)]
pub struct Rules {
    token: Token,
    uids: BTreeSet<u32>,
    own_uid: u32,
    /// Whose pages a browser here may let ask.
    pages: Cors,
}

impl Rules {
    /// Admits `own_uid`, root and `allowed`; others by `token`.
    pub fn new(token: Token, own_uid: u32, allowed: impl IntoIterator<Item = u32>) -> Self {
        let uids = allowed.into_iter().chain([own_uid, ROOT]).collect();
        Self { token, uids, own_uid, pages: Cors::default() }
    }

    /// Also admits pages of other origins, where a browser of an admitted user shows them.
    pub fn with_pages(self, pages: Cors) -> Self {
        Self { pages, ..self }
    }

    /// Whether this only asks if a page may ask: a browser sends no token with that.
    pub fn is_preflight(&self, method: &Method, headers: &HeaderMap) -> bool {
        *method == Method::OPTIONS && self.pages.admits(headers)
    }

    pub async fn of_tcp(&self, stream: &TcpStream) -> Access {
        let (ours, theirs) = match (stream.local_addr(), stream.peer_addr()) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(error), _) | (_, Err(error)) => {
                return Access::Stranger { reason: format!("the connection has no address: {error}") };
            }
        };
        if !is_loopback(ours.ip()) || !is_loopback(theirs.ip()) {
            return Access::Stranger { reason: format!("{} is not on loopback", theirs.ip()) };
        }
        match tokio::task::spawn_blocking(move || look(ours, theirs)).await {
            Ok(Ok(owner)) => self.of_owner(owner),
            Ok(Err(error)) => Access::Stranger { reason: format!("/proc/net/tcp cannot be read: {error}") },
            Err(error) => Access::Stranger { reason: format!("the look into /proc/net/tcp failed: {error}") },
        }
    }

    pub fn of_unix(&self, stream: &UnixStream) -> Access {
        match stream.peer_cred() {
            Ok(peer) if self.uids.contains(&peer.uid()) => Access::Socket,
            Ok(peer) => self.stranger_uid(peer.uid()),
            Err(error) => Access::Stranger { reason: format!("the socket does not say who its peer is: {error}") },
        }
    }

    /// The rank of the process at the other end of the socket, where that is our user's and its launcher said one. It
    /// says whose the samples are and gives no right: a process may put what it likes into its environment.
    pub async fn rank_of(&self, stream: &UnixStream) -> Option<u32> {
        let peer = stream.peer_cred().ok().filter(|peer| peer.uid() == self.own_uid)?;
        let pid = u32::try_from(peer.pid()?).ok()?;
        // The kernel takes a lock of the process for that, which may be busy with its own memory.
        let read = tokio::task::spawn_blocking(move || rank::of_process(pid));
        tokio::time::timeout(RANK_TIMEOUT, read).await.ok()?.ok()?
    }

    /// The decision about a loopback connection whose client end belongs to `owner`.
    pub fn of_owner(&self, owner: Option<Owner>) -> Access {
        match owner {
            Some(Owner { end: End::Unknown, .. }) => Access::Stranger { reason: HUNG_UP.to_owned() },
            Some(Owner { uid, .. }) if self.uids.contains(&uid) => Access::Loopback,
            Some(Owner { uid, .. }) => self.stranger_uid(uid),
            None => Access::Stranger { reason: GONE.to_owned() },
        }
    }

    fn stranger_uid(&self, uid: u32) -> Access {
        Access::Stranger {
            reason: format!("it comes from a process of uid {uid}, this server is of uid {}", self.own_uid),
        }
    }

    /// Whether a request with these headers may be answered.
    ///
    /// # Errors
    /// 401 for a stranger without the token; 403 for a browser that a page from elsewhere made ask.
    pub fn admit(&self, headers: &HeaderMap, access: &Access) -> Result<(), ApiError> {
        if shows(headers, &self.token) {
            return Ok(());
        }
        match access {
            Access::Socket => Ok(()),
            Access::Loopback => names_of_this_machine(headers, &self.pages),
            Access::Stranger { reason } => {
                let wrong = if headers.contains_key(header::AUTHORIZATION) { "the token is wrong" } else { "no token" };
                let what = format!(
                    "{wrong}, and one is needed because {reason}; send 'Authorization: Bearer TOKEN' with the token of \
                     the connection file"
                );
                Err(ApiError::new(StatusCode::UNAUTHORIZED, what))
            }
        }
    }
}

fn look(ours: SocketAddr, theirs: SocketAddr) -> std::io::Result<Option<Owner>> {
    for _ in 1..LOOKS_MAX {
        if let Some(owner) = proc_net::owner_of(theirs, ours)? {
            return Ok(Some(owner));
        }
    }
    proc_net::owner_of(theirs, ours)
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Whether a request with these headers shows `token`.
pub fn shows(headers: &HeaderMap, token: &Token) -> bool {
    bearer(headers).is_some_and(|shown| token.is(shown))
}

/// `Bearer TOKEN`, or `Token TOKEN` as InfluxDB's clients have it.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at(value.iter().position(|byte| *byte == b' ')?);
    let known = scheme.eq_ignore_ascii_case(b"Bearer") || scheme.eq_ignore_ascii_case(b"Token");
    known.then_some(token.trim_ascii())
}

/// What a browser says about the page that made it ask; pages cannot change it.
const FETCH_SITE: &str = "sec-fetch-site";

/// A page from elsewhere can make the user's own browser ask us: under a name of its own that leads to
/// 127.0.0.1, as a form sent across sites, or as a script or picture of ours that it shows. The first two show
/// in Host and Origin, the last only in Sec-Fetch-Site; none can be forged by a page.
fn names_of_this_machine(headers: &HeaderMap, pages: &Cors) -> Result<(), ApiError> {
    let admitted = pages.admits(headers);
    if let Some(site) = headers.get(FETCH_SITE)
        && !admitted
        && ![b"same-origin".as_slice(), b"none"].contains(&site.as_bytes())
    {
        let what = format!(
            "a page of another site made the browser ask this ({FETCH_SITE} is {site:?}); open the address itself, \
             or send 'Authorization: Bearer TOKEN' with the token of the connection file"
        );
        return Err(ApiError::new(StatusCode::FORBIDDEN, what));
    }
    for (name, scheme) in [(header::HOST, ""), (header::ORIGIN, "://")] {
        let Some(value) = headers.get(&name).filter(|_| !admitted || name != header::ORIGIN) else { continue };
        let text = value.to_str().unwrap_or("?");
        let authority = if scheme.is_empty() { text } else { text.split_once(scheme).map_or(text, |(_, rest)| rest) };
        if !is_own_name(authority) {
            let what = format!(
                "{name} '{text}' is not a name of this machine's loopback; ask for 127.0.0.1 or localhost, or send \
                 'Authorization: Bearer TOKEN' with the token of the connection file"
            );
            return Err(ApiError::new(StatusCode::FORBIDDEN, what));
        }
    }
    Ok(())
}

/// `localhost`, names below it and loopback addresses, with or without a port; no name at all as well.
fn is_own_name(authority: &str) -> bool {
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return is_loopback(address.ip());
    }
    if let Ok(ip) = authority.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return is_loopback(ip);
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).to_ascii_lowercase();
    host.is_empty() || host == "localhost" || host.ends_with(".localhost")
}
