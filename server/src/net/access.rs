//! Decides which clients need no token. On loopback and on the socket these are processes of our user, of root, and of
//! users that were allowed by name. All other clients need the token; beyond loopback every client does.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use tokio::net::{TcpStream, UnixStream};

use super::owner::OwnerLookup;
use super::places::{PlaceFor, StrangerSource};
use super::socket_row::{SocketHold, SocketOwner};
use crate::cors::Cors;
use crate::http::ApiError;
use crate::http::asker::PathPrefix;
use crate::token::Token;

const ROOT: u32 = 0;

/// Of a client that disconnected before its owner could be determined.
const HUNG_UP: &str = "its client hung up at once, and this kernel does not say whose it was: let the client wait \
                       (nc -N, nc -q 1), or use the Unix socket or `telem put`";
const GONE: &str = "the kernel knows nothing of its client any more: let the client wait (nc -N, nc -q 1), or use the \
                    Unix socket or `telem put`";

/// What a connection may do, found out once when it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A process of an admitted user, through the socket.
    Socket,
    /// A process of an admitted user, through loopback. It may be a browser that was led here by a strange page.
    Loopback { uid: u32 },
    /// Needs the token, because of `reason`.
    Stranger { reason: String, source: StrangerSource },
}

/// What is known of a connection as soon as it is accepted.
#[derive(Debug)]
pub enum FirstLook {
    Known(Access),
    /// The kernel could not be asked about this connection on loopback; its tables have to be read, which takes longer.
    Unread {
        ours: SocketAddr,
        theirs: SocketAddr,
    },
}

impl FirstLook {
    /// Of a connection that a tunnel brings. Its other end is the tunnel's, whoever asks through it.
    pub fn of_tunnel() -> Self {
        let reason = "it comes through a tunnel, which does not say whose it is".to_owned();
        Self::Known(Access::Stranger { reason, source: StrangerSource::Unknown })
    }
}

/// The clients that are admitted.
#[derive(Clone, Debug)]
pub struct Rules {
    token: Token,
    uids: BTreeSet<u32>,
    own_uid: u32,
    /// The origins whose pages may send requests from a browser here.
    pages: Cors,
    /// Over TCP everybody needs the token.
    is_token_required: bool,
    path_tokens: PathTokens,
}

/// Whether a path may begin with the token, for clients that cannot send a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathTokens {
    Off,
    /// Where nobody else can read it: on this machine and over TLS.
    #[default]
    Secret,
    /// Over plain connections, too.
    Plain,
}

/// What the path of a request says of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathShow {
    Nothing,
    Right,
    Wrong,
}

/// What paths begin with in which the token comes next.
const TOKEN_PATH: &str = "/t/";
/// The same as it is told.
pub const TOKEN_PATH_SHOWN: &str = "/t/...";

/// The parties that can read what is said on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireSecrecy {
    /// Its two ends only.
    Secret,
    /// Anybody between its ends, too.
    Plain,
    /// The same, where TLS is spoken and this client does not.
    PlainBesideTls,
}

impl Rules {
    /// Admits `own_uid`, root and `allowed`; others by `token`.
    pub fn new(token: Token, own_uid: u32, allowed: impl IntoIterator<Item = u32>) -> Self {
        let uids = allowed.into_iter().chain([own_uid, ROOT]).collect();
        Self { token, uids, own_uid, pages: Cors::default(), is_token_required: false, path_tokens: PathTokens::Off }
    }

    /// Whether paths may begin with the token.
    pub fn with_path_tokens(self, path_tokens: PathTokens) -> Self {
        Self { path_tokens, ..self }
    }

    pub fn path_tokens(&self) -> PathTokens {
        self.path_tokens
    }

    /// Takes the token from the path of a request, which is the one that is meant then.
    pub fn take_path_token(&self, request: &mut Request) -> PathShow {
        let Some(behind) = request.uri().path().strip_prefix(TOKEN_PATH) else { return PathShow::Nothing };
        if self.path_tokens == PathTokens::Off {
            return PathShow::Nothing;
        }
        let (guess, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
        if !self.token.is(guess.as_bytes()) {
            return PathShow::Wrong;
        }
        let path = if path.is_empty() { "/" } else { path };
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let prefix = PathPrefix(format!("{TOKEN_PATH}{guess}").into());
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = format!("{path}{query}").parse().ok();
        // It was part of a path already.
        let Ok(meant) = Uri::from_parts(parts) else { return PathShow::Wrong };
        *request.uri_mut() = meant;
        request.extensions_mut().insert(prefix);
        PathShow::Right
    }

    /// Whether a request with these headers shows the token.
    pub fn is_shown(&self, headers: &HeaderMap) -> bool {
        shows(headers, &self.token)
    }

    /// Also admits pages of other origins, where a browser of an admitted user shows them.
    pub fn with_pages(self, pages: Cors) -> Self {
        Self { pages, ..self }
    }

    /// Over TCP everybody needs the token then. Who stands behind a tunnel looks like its owner.
    pub fn with_token_of_all(self) -> Self {
        Self { is_token_required: true, ..self }
    }

    /// Whether this only asks if a page may ask: a browser sends no token with that.
    pub fn is_preflight(&self, method: &Method, headers: &HeaderMap) -> bool {
        *method == Method::OPTIONS && self.pages.admits(headers)
    }

    /// Whether a page of another origin made this, which was named.
    pub fn admits_page(&self, headers: &HeaderMap) -> bool {
        self.pages.admits(headers)
    }

    /// The owner of a connection, as far as that takes no time.
    pub fn of_tcp(&self, stream: &TcpStream, owners: &OwnerLookup) -> FirstLook {
        let (ours, theirs) = match (stream.local_addr(), stream.peer_addr()) {
            (Ok(ours), Ok(theirs)) => (ours, theirs),
            (Err(error), _) | (_, Err(error)) => {
                let reason = format!("the connection has no address: {error}");
                return FirstLook::Known(Access::Stranger { reason, source: StrangerSource::Unknown });
            }
        };
        if !is_loopback(ours.ip()) || !is_loopback(theirs.ip()) {
            let reason = format!("{} is not on loopback", theirs.ip());
            let source = StrangerSource::Address(theirs.ip().to_canonical());
            return FirstLook::Known(Access::Stranger { reason, source });
        }
        match owners.at_once(theirs, ours) {
            Ok(owner) => FirstLook::Known(self.of_owner(owner)),
            Err(_) => FirstLook::Unread { ours, theirs },
        }
    }

    /// The owner of a connection, once that was looked up.
    pub async fn after(&self, look: FirstLook, owners: &OwnerLookup) -> Access {
        match look {
            FirstLook::Known(access) => access,
            FirstLook::Unread { ours, theirs } => match owners.in_tables(theirs, ours).await {
                Ok(owner) => self.of_owner(owner),
                Err(error) => Access::Stranger {
                    reason: format!("/proc/net/tcp cannot be read: {error}"),
                    source: StrangerSource::Unknown,
                },
            },
        }
    }

    pub fn of_unix(&self, stream: &UnixStream) -> Access {
        match stream.peer_cred() {
            Ok(peer) if self.uids.contains(&peer.uid()) => Access::Socket,
            Ok(peer) => self.stranger_uid(peer.uid()),
            Err(error) => Access::Stranger {
                reason: format!("the socket does not say who its peer is: {error}"),
                source: StrangerSource::Unknown,
            },
        }
    }

    /// The process at the other end of the socket, where that is our user's.
    pub fn own_process(&self, stream: &UnixStream) -> Option<u32> {
        let peer = stream.peer_cred().ok().filter(|peer| peer.uid() == self.own_uid)?;
        u32::try_from(peer.pid()?).ok()
    }

    /// The decision about a loopback connection whose client end belongs to `owner`.
    pub fn of_owner(&self, owner: Option<SocketOwner>) -> Access {
        let gone = |reason: &str| Access::Stranger { reason: reason.to_owned(), source: StrangerSource::Unknown };
        match owner {
            Some(SocketOwner { end: SocketHold::Unknown, .. }) => gone(HUNG_UP),
            Some(SocketOwner { uid, .. }) if self.is_token_required => Access::Stranger {
                reason: "this server requires it of everybody over TCP (--require-token)".to_owned(),
                source: StrangerSource::User(uid),
            },
            Some(SocketOwner { uid, .. }) if self.uids.contains(&uid) => Access::Loopback { uid },
            Some(SocketOwner { uid, .. }) => self.stranger_uid(uid),
            None => gone(GONE),
        }
    }

    /// Which of the places a connection may take.
    pub fn place_for(&self, access: &Access) -> PlaceFor {
        match access {
            Access::Socket => PlaceFor::Socket,
            Access::Loopback { uid } if [self.own_uid, ROOT].contains(uid) => PlaceFor::Owner,
            Access::Loopback { .. } => PlaceFor::Allowed,
            Access::Stranger { source, .. } => PlaceFor::Stranger(*source),
        }
    }

    fn stranger_uid(&self, uid: u32) -> Access {
        Access::Stranger {
            reason: format!("it comes from a process of uid {uid}, this server is of uid {}", self.own_uid),
            source: StrangerSource::User(uid),
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
            Access::Loopback { .. } => names_of_this_machine(headers, &self.pages),
            Access::Stranger { reason, .. } => {
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
///
/// What another port of this machine serves is from elsewhere too: on a shared node any user may serve there.
fn names_of_this_machine(headers: &HeaderMap, pages: &Cors) -> Result<(), ApiError> {
    let admitted = pages.admits(headers);
    let refused = |what: String| Err(ApiError::new(StatusCode::FORBIDDEN, what));
    let host = match headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?")) {
        Some(host) if !is_own_name(host) => {
            return refused(format!(
                "host '{host}' is not a name of this machine's loopback; ask for 127.0.0.1 or localhost, or send \
                 'Authorization: Bearer TOKEN' with the token of the connection file"
            ));
        }
        host => host,
    };
    let origin = headers.get(header::ORIGIN).filter(|_| !admitted).map(|origin| origin.to_str().unwrap_or("?"));
    if let Some(origin) = origin
        && !host.is_some_and(|host| is_page_of(host, origin))
    {
        let asked = host.unwrap_or("a host that was not named");
        return refused(format!(
            "a page of '{origin}' made the browser ask {asked}, and only pages of the same host and port may do so; \
             name that origin with --cors-domains, or send 'Authorization: Bearer TOKEN' with the token of the \
             connection file"
        ));
    }
    if let Some(site) = headers.get(FETCH_SITE)
        && !admitted
        && ![b"same-origin".as_slice(), b"none"].contains(&site.as_bytes())
    {
        return refused(format!(
            "a page of another site made the browser ask this ({FETCH_SITE} is {site:?}); open the address itself, \
             or send 'Authorization: Bearer TOKEN' with the token of the connection file"
        ));
    }
    Ok(())
}

/// Whether pages of `origin` come from `host`: the same name and the same port, which a browser leaves out where it is
/// the scheme's own.
fn is_page_of(host: &str, origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let short = |authority: &str| {
        let lower = authority.to_ascii_lowercase();
        lower.strip_suffix(port).map_or_else(|| lower.clone(), str::to_owned)
    };
    short(authority) == short(host)
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
