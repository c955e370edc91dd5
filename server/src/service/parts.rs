//! The parts of a service, assembled before the first client is served.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use telem_engine::{Clock, Db, is_out_of_room};
use telem_ingest::collect::{CollectOptions, Collectors, OwnMetrics};
use telem_ingest::writer::Writer;
use telem_query::Queries;
use telem_query::cluster::Members;
use tokio::net::TcpListener;

use super::head::{self, PublishedJoinFile, ServiceHead, ServiceKeys};
use super::{JobSharing, Ready, ServiceError, ServiceOptions, ServiceSource, noteworthy, router};
use crate::config;
use crate::connection::{Connection, ConnectionFile, FILE_NAME};
use crate::membership::forward;
use crate::membership::own::OwnNode;
use crate::membership::routes::{self, Membership};
use crate::membership::{NodeRoster, dial};
use crate::net::access::{PathTokens, Rules};
use crate::net::listen::BoundListener;
use crate::net::socket::{self, Socket, SocketError};
use crate::net::{self, Listeners, Services};
use crate::protocols::dragon::node::{DragonFiles, DragonPlace};
use crate::protocols::proxy::targets::node::PolledNodes;
use crate::protocols::proxy::{ProxyOptions, ProxyReach};
use crate::saving::upload::{self, Uploads};
use crate::self_metrics;
use crate::slots::JobSlots;
use crate::state::{Refusal, ServerLimits, State, VERSION};
use crate::tls::UrlScheme;

/// Connections of a head, at the least.
pub(crate) const HEAD_CONNECTIONS_MAX: usize = 4_096;

/// A service that is whole and serves nobody yet. Dropped, it leaves nothing behind.
pub(super) struct ServiceParts {
    pub ready: Ready,
    pub listeners: Listeners,
    pub services: Services,
    pub rules: Rules,
    pub limits: ServerLimits,
    /// `None` where nothing is sampled.
    pub collectors: Option<Collectors>,
    /// Held until the last request is answered.
    pub connection_file: ConnectionFile,
    /// `None` where this is no head, or is to write none.
    pub join_file: Option<PublishedJoinFile>,
    /// The YAML that tells of Dragon's port.
    pub dragon_files: Option<DragonFiles>,
    /// Where jobs share the server.
    pub slots: Option<Arc<JobSlots>>,
    pub clock: Arc<dyn Clock>,
}

/// Everything between a database that is open and the first request. Clients that come meanwhile wait at `tcp`.
///
/// # Errors
/// What keeps the server from starting.
pub(super) async fn build(
    options: &ServiceOptions,
    tcp: TcpListener,
    db: Db,
    writer: Option<Writer>,
) -> Result<ServiceParts, ServiceError> {
    let address = tcp.local_addr().map_err(ServiceError::Address)?;
    let socket = bind_socket(options)?;
    let keys = head::keys(options, address)?;
    let tls = keys.served.config()?;
    let url = url(address, UrlScheme::of(tls.as_ref()));
    let head =
        options.head.as_ref().map(|_| ServiceHead::of(options, &keys.token, &keys.served, address)).transpose()?;
    let queries = queries(options, &db, head.as_ref(), &keys)?;
    let collectors = match &writer {
        Some(writer) => collectors(options, &db, writer, &queries)?,
        None => None,
    };
    let nodes = head.as_ref().map(|head| head.nodes.clone());
    let uploads = head.as_ref().and_then(|head| head.uploads(keys.token.clone()));
    let is_shared = options.job_sharing == JobSharing::Several && writer.is_some();
    let slots = is_shared.then(|| JobSlots::resume(db.clone(), Arc::clone(&options.clock), &options.job));
    let mut state = state(options, &db, writer.clone(), &queries);
    state.slots.clone_from(&slots);
    let membership = membership(options, &url, nodes.clone(), &queries, &keys);
    let mut protocols = options.protocols.clone();
    protocols.proxy.reach = Some(ProxyReach { address, token: keys.token.clone() });
    protocols.proxy.sysroot.clone_from(&options.collect.sysroot);
    protocols.proxy.nodes = nodes.as_ref().map(|nodes| PolledNodes {
        counting: nodes.counting(),
        token: keys.token.clone(),
        certificate: keys.served.job.as_ref().map(|job| job.chain.clone()),
    });
    let mut services = router::services(&Arc::new(state), &protocols, routes::routes(membership));
    services.http = paths_of_nodes(services.http, options, &queries, uploads.clone(), &keys);
    let mut own = net::listen::bind(std::mem::take(&mut services.listeners), options.uid).await?;
    let tunnel = tunnel(options, &mut own).await?;
    let connection = connection(options, &url, &socket, &keys);
    let (connection_file, path) = publish(&connection, connection_path(options, &socket), socket.path())?;
    let join_file = match &head {
        Some(head) => head.publish().await?,
        None => None,
    };
    let dragon = options.protocols.dragon.as_ref();
    let (dragon, dragon_files) = dragon
        .map(|dragon| DragonPlace::publish(dragon, socket.path()))
        .map_or((None, None), |(place, files)| (Some(place), Some(files)));
    let mut limits = options.limits.clone();
    if nodes.is_some() {
        // Every agent keeps a connection to its head.
        limits.connections_max = limits.connections_max.max(HEAD_CONNECTIONS_MAX);
    }
    let ready = Ready {
        recovery: noteworthy(db.recovery()),
        db,
        queries,
        writer,
        data: options.data.clone(),
        url,
        socket: socket.path().to_path_buf(),
        connection_file: path,
        join: head.map(|head| head.join),
        nodes,
        uploads,
        // Of saved databases it is known that nothing is stored there.
        stores_nothing: options.level == 0 && !matches!(options.source, ServiceSource::Saved(_)),
        dragon,
        proxy: options.protocols.proxy.place(),
        tunnel,
    };
    let node = options.node.as_str().into();
    let rules = Rules::new(keys.token, options.uid, options.allowed_uids.clone())
        .with_pages(options.cors.clone())
        .with_path_tokens(path_tokens(&options.protocols.proxy, address));
    Ok(ServiceParts {
        ready,
        listeners: Listeners { tcp, tls, socket: Some(socket), node, slots: slots.clone(), own },
        services,
        rules: if options.is_token_required { rules.with_token_of_all() } else { rules },
        limits,
        collectors,
        connection_file,
        join_file,
        dragon_files,
        slots,
        clock: Arc::clone(&options.clock),
    })
}

/// The clients that may show the token in a path: unchanged proxies of other nodes can do nothing else.
fn path_tokens(proxy: &ProxyOptions, address: SocketAddr) -> PathTokens {
    match (proxy.has_token_path, proxy.is_plain) {
        (false, _) => PathTokens::Off,
        (true, false) => PathTokens::Secret,
        (true, true) => {
            if !address.ip().is_loopback() {
                tracing::warn!(
                    %address,
                    "--proxy-plain: paths that begin with the token are answered over plain HTTP beyond this machine; \
                     whoever is between can read the token, and then do everything that it allows"
                );
            }
            PathTokens::Plain
        }
    }
}

/// Where clients come in that a tunnel brings; nothing about them is known here but that they know the token.
async fn tunnel(options: &ServiceOptions, own: &mut Vec<BoundListener>) -> Result<Option<u16>, ServiceError> {
    if !options.is_tunnelled {
        return Ok(None);
    }
    let tcp = net::listen::listen(Some((Ipv4Addr::LOCALHOST, 0).into())).await?;
    let port = tcp.local_addr().map_err(ServiceError::Address)?.port();
    own.push(BoundListener::Tunnel(tcp));
    Ok(Some(port))
}

/// Over our own database, or over those of all nodes of the job.
fn queries(
    options: &ServiceOptions,
    db: &Db,
    head: Option<&ServiceHead>,
    keys: &ServiceKeys,
) -> Result<Queries, ServiceError> {
    let members = match head {
        Some(head) => head.nodes.members().clone(),
        None if options.is_member => Members::new(Arc::clone(&options.clock)),
        None => return Ok(Queries::new(db.clone(), options.queries.clone())?),
    };
    let certificate = keys.served.job.as_ref().map(|job| job.chain.as_str());
    let wire = dial::wire(&keys.token, certificate)?;
    Ok(Queries::over(db.clone(), members, wire, options.queries.clone())?)
}

fn collectors(
    options: &ServiceOptions,
    db: &Db,
    writer: &Writer,
    queries: &Queries,
) -> Result<Option<Collectors>, ServiceError> {
    let own = OwnMetrics::new(self_metrics::tell(db.clone(), writer.clone(), queries.clone()));
    let collect = CollectOptions { own, ..options.collect.clone() };
    Ok(Collectors::start(&collect, db.clone(), writer.clone(), Arc::clone(&options.clock))?)
}

fn state(options: &ServiceOptions, db: &Db, writer: Option<Writer>, queries: &Queries) -> State {
    State {
        node: options.node.as_str().into(),
        job: options.job.as_str().into(),
        db: db.clone(),
        writer,
        queries: queries.clone(),
        level: options.level,
        fidelity: options.fidelity,
        clock: Arc::clone(&options.clock),
        limits: options.limits.clone(),
        cors: options.cors.clone(),
        refusal: if matches!(options.source, ServiceSource::NoRoom(_)) { Refusal::NoRoom } else { Refusal::Saved },
        slots: None,
        version: VERSION,
    }
}

fn membership(
    options: &ServiceOptions,
    url: &str,
    nodes: Option<NodeRoster>,
    queries: &Queries,
    keys: &ServiceKeys,
) -> Membership {
    Membership {
        own: OwnNode {
            node: options.node.clone(),
            is_head: nodes.is_some(),
            url: url.to_owned(),
            data: options.data.clone(),
            since_us: options.clock.now().micros(),
        },
        nodes,
        queries: queries.clone(),
        clock: Arc::clone(&options.clock),
        token: keys.token.clone(),
        limits: options.limits.bodies.clone(),
    }
}

/// The same paths, and what nodes ask each other beside them: leaves of queries, and parts of files. What a member is
/// asked goes to its head.
fn paths_of_nodes(
    http: Router,
    options: &ServiceOptions,
    queries: &Queries,
    uploads: Option<Uploads>,
    keys: &ServiceKeys,
) -> Router {
    let mut http = match &options.head_in_sight {
        Some(head) => forward::over(http, head.clone(), &options.node, options.limits.bodies.clone()),
        None => http,
    };
    if let Some(worker) = queries.worker() {
        http = http.merge(routes::worker(worker, keys.token.clone()));
    }
    if let Some(uploads) = uploads {
        http = http.merge(upload::routes(uploads));
    }
    http
}

fn connection(options: &ServiceOptions, url: &str, socket: &Socket, keys: &ServiceKeys) -> Connection {
    let ServiceKeys { token, served } = keys;
    Connection {
        url: url.to_owned(),
        socket: Some(socket.path().to_path_buf()),
        token: token.secret().to_owned(),
        pid: std::process::id(),
        job: options.job.clone(),
        node: options.node.clone(),
        level: options.level,
        data: options.data.clone(),
        // For the user's own there is whoever vouches for it.
        certificate: served.job.as_ref().filter(|_| served.own.is_none()).map(|job| job.chain.clone()),
    }
}

fn connection_path(options: &ServiceOptions, socket: &Socket) -> PathBuf {
    options.connection_file.clone().unwrap_or_else(|| match options.source {
        ServiceSource::Live | ServiceSource::NoRoom(_) => options.data.join(FILE_NAME),
        // Where saved databases stand we may not be allowed to write, and would not if we were.
        ServiceSource::Saved(_) => socket.path().with_extension("json"),
    })
}

/// Writes the connection file; where there is no room for it, beside the socket.
fn publish(connection: &Connection, path: PathBuf, socket: &Path) -> Result<(ConnectionFile, PathBuf), ServiceError> {
    let source = match connection.publish(&path) {
        Ok(file) => return Ok((file, path)),
        Err(source) => source,
    };
    let beside = socket.with_extension("json");
    if is_out_of_room(&source)
        && beside != path
        && let Ok(file) = connection.publish(&beside)
    {
        tracing::warn!(
            "the connection file is {}, because {} cannot be written: {source}",
            beside.display(),
            path.display()
        );
        return Ok((file, beside));
    }
    Err(ServiceError::Connection { path, source })
}

/// Under the name of the job; where another server of ours or anything else has that, under one of its own.
fn bind_socket(options: &ServiceOptions) -> Result<Socket, SocketError> {
    let dir = options.socket_place.directory(options.uid)?;
    let bind = |name: &str| Socket::bind(&dir, &socket::file_name(name), options.uid);
    let data = options.data.canonicalize().unwrap_or_else(|_| options.data.clone());
    let (job, data) = (&options.job, data.display());
    match options.source {
        ServiceSource::Live | ServiceSource::NoRoom(_) => match bind(job) {
            Err(SocketError::Alive { .. } | SocketError::InTheWay { .. }) => bind(&format!("{job}\n{data}")),
            bound => bound,
        },
        // The name of the job is for the job, which may run again; and saved databases may be served twice.
        ServiceSource::Saved(_) => match bind(&format!("{job}\n{data}\nreplay")) {
            Err(SocketError::Alive { .. }) => bind(&format!("{job}\n{data}\nreplay {}", std::process::id())),
            bound => bound,
        },
    }
}

/// An address that clients can use: where all are listened on, the host name stands for them.
pub(super) fn url(address: SocketAddr, scheme: UrlScheme) -> String {
    match address.ip() {
        ip if ip.is_unspecified() => format!("{scheme}://{}:{}", config::host_name(), address.port()),
        _ => format!("{scheme}://{address}"),
    }
}
