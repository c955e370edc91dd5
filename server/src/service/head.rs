//! A service that is the head of a job: its secrets, its addresses, and what agents learn of them.

use std::fmt;
use std::future::ready;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;
use url::Url;

use super::{ServiceError, ServiceOptions};
use crate::config;
use crate::join::{DragonJoin, HEAD_GONE_TIMEOUT, Join, JoinFile};
use crate::membership::messages::{self, Listed};
use crate::membership::registry::{HeadName, Registry};
use crate::membership::{self, NodeRoster, link};
use crate::net::addresses;
use crate::saving::upload::{Sharing, Uploads};
use crate::state::VERSION;
use crate::tls::{Certificate, Served, UrlScheme};
use crate::token::Token;

/// Longest that another head, whose join file stands where ours is to, may take to answer.
const LIFE_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest list of nodes that is read of it: some hundred bytes a node.
const LIST_BYTES_MAX: usize = 64 << 20;

/// What makes a service the head of a job.
#[derive(Clone, Debug)]
pub struct HeadOptions {
    /// Where the join file is written. One that a head of this job left there, because it was killed, gives token and
    /// certificate, so that agents which still run find their way back.
    pub join_file: Option<PathBuf>,
    /// Names or addresses by which agents reach this machine, instead of all that it has.
    pub advertise: Vec<String>,
    /// How often nodes are sampled.
    pub interval: Duration,
    /// Where agents save, absolute.
    pub save: Option<PathBuf>,
    /// Whether agents write there themselves.
    pub sharing: Sharing,
    pub save_interval: Duration,
    pub save_timeout: Duration,
    /// How long agents go on without a head.
    pub head_gone_timeout: Duration,
    /// Memory that all queries of an agent share.
    pub query_memory: Option<u64>,
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self {
            join_file: None,
            advertise: Vec::new(),
            interval: Duration::from_secs(1),
            save: None,
            sharing: Sharing::default(),
            save_interval: Duration::from_secs(5),
            save_timeout: Duration::from_secs(300),
            head_gone_timeout: HEAD_GONE_TIMEOUT,
            query_memory: None,
        }
    }
}

/// The secrets of a service.
#[derive(Debug)]
pub(super) struct ServiceKeys {
    pub token: Token,
    pub served: Served,
}

/// Those that were given, else those of a head before, else new ones.
pub(super) fn keys(options: &ServiceOptions, address: SocketAddr) -> Result<ServiceKeys, ServiceError> {
    let tls = &options.tls;
    let own = tls.own.as_ref().map(|(chain, key)| Certificate::read(chain, key)).transpose()?;
    let before = options.head.as_ref().and_then(|head| {
        let before = Join::read(head.join_file.as_deref()?).ok()?;
        (before.job == options.job).then_some(before)
    });
    let token = match (&options.token, &before) {
        (Some(token), _) => token.clone(),
        (None, Some(before)) => Token::chosen(&before.token)?,
        (None, None) => Token::random()?,
    };
    let is_needed = tls.is_made || options.head.is_some() && !address.ip().to_canonical().is_loopback();
    let before = before.and_then(|before| {
        Some(Certificate { chain: before.certificate?, key: before.key?, from: "the join file".to_owned() })
    });
    let job = match (&tls.job, before) {
        (Some(job), _) => Some(job.clone()),
        (None, _) if !is_needed => None,
        (None, Some(before)) => Some(before),
        (None, None) => Some(Certificate::made(names(address))?),
    };
    Ok(ServiceKeys { token, served: Served { job, own } })
}

/// What this machine is called, for a certificate.
fn names(address: SocketAddr) -> Vec<String> {
    let host = config::host_name();
    let short = host.split('.').next().unwrap_or_default().to_owned();
    let addresses: Vec<String> = match address.ip() {
        ip if ip.is_unspecified() => addresses::own(&host).iter().map(ToString::to_string).collect(),
        ip => vec![ip.to_string()],
    };
    [host, short].into_iter().filter(|name| !name.is_empty()).chain(addresses).collect()
}

/// A head, before and while it serves.
#[derive(Debug)]
pub(super) struct ServiceHead {
    pub join: Join,
    pub nodes: NodeRoster,
    file: Option<PathBuf>,
    sharing: Sharing,
}

impl ServiceHead {
    pub fn of(
        options: &ServiceOptions,
        token: &Token,
        served: &Served,
        address: SocketAddr,
    ) -> Result<Self, ServiceError> {
        let head = options.head.clone().unwrap_or_default();
        let name = HeadName {
            job: options.job.clone(),
            node: options.node.clone(),
            version: VERSION.to_owned(),
            incarnation: membership::random_id()?,
        };
        let join = Join {
            job: options.job.clone(),
            token: token.secret().to_owned(),
            head: urls(&head.advertise, address, UrlScheme::of(served.job.as_ref())),
            certificate: served.job.as_ref().map(|job| job.chain.clone()),
            key: served.job.as_ref().map(|job| job.key.clone()),
            version: VERSION.to_owned(),
            level: options.level,
            interval: head.interval,
            save: head.save,
            save_interval: head.save_interval,
            save_timeout: head.save_timeout,
            head_gone_timeout: head.head_gone_timeout,
            orphan_timeout: None,
            query_memory: head.query_memory,
            dragon: options.protocols.dragon.as_ref().map(|dragon| DragonJoin {
                port: dragon.port.wanted(),
                keys: dragon.keys.clone(),
                data_base: dragon.data_base.clone(),
            }),
        };
        let nodes = NodeRoster::new(Registry::new(name), Arc::clone(&options.clock));
        Ok(Self { join, nodes, file: head.join_file, sharing: head.sharing })
    }

    /// What takes the files of agents; `None` where nothing is saved.
    pub fn uploads(&self, token: Token) -> Option<Uploads> {
        Some(Uploads::new(self.join.save.as_deref()?, token, self.sharing))
    }

    /// Writes the join file, if there is to be one.
    pub async fn publish(&self) -> Result<Option<PublishedJoinFile>, ServiceError> {
        let Some(path) = &self.file else { return Ok(None) };
        let before = Other::of(path, &self.join.head).await;
        if let Some(Other { head, .. }) = &before {
            tracing::warn!(
                file = %path.display(), host = %head.host, pid = head.pid, data = %head.data.display(),
                "the join file is that of another head, which lives; agents that start from now on join this one; \
                 end one of the two, or name another file for it"
            );
        }
        Ok(Some(PublishedJoinFile { file: self.join.publish(path)?, before }))
    }
}

/// A join file, and the head whose it was before.
#[derive(Debug)]
pub(super) struct PublishedJoinFile {
    file: JoinFile,
    before: Option<Other>,
}

impl PublishedJoinFile {
    /// Removes it; or gives it back to the head whose it was, if that still lives.
    pub async fn withdraw(self) {
        if let Some(before) = self.before
            && before.lives().await
        {
            self.file.leave_to(&before.text);
        }
    }
}

/// Another head that lives, and its join file.
struct Other {
    join: Join,
    text: Vec<u8>,
    head: Listed,
}

impl Other {
    /// The one whose join file `path` is; `own` are our addresses, at which a head before us may have been.
    async fn of(path: &Path, own: &[String]) -> Option<Self> {
        let (mut join, text) = Join::read_with_text(path).ok()?;
        join.head.retain(|url| !own.contains(url));
        let head = answer(&join).await?;
        Some(Self { join, text, head })
    }

    async fn lives(&self) -> bool {
        answer(&self.join).await.is_some()
    }
}

/// Without its secrets.
impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Other").field("join", &self.join).field("head", &self.head).finish_non_exhaustive()
    }
}

/// What the head of `join` says of itself, if it answers at any of its addresses.
async fn answer(join: &Join) -> Option<Listed> {
    let urls = join.heads().ok()?;
    let answers: FuturesUnordered<_> = urls.iter().map(|url| answer_at(url, join)).collect();
    let mut answers = answers.filter_map(ready);
    timeout(LIFE_TIMEOUT, answers.next()).await.ok().flatten()
}

async fn answer_at(url: &Url, join: &Join) -> Option<Listed> {
    let listed = link::client(url, join).ok()?.get(messages::LIST).await.ok()?.read(LIST_BYTES_MAX).await.ok()?;
    serde_json::from_slice::<Vec<Listed>>(&listed).ok()?.into_iter().find(|node| node.is_head)
}

/// Where agents look for a head that listens at `address`, best first.
fn urls(advertise: &[String], address: SocketAddr, scheme: UrlScheme) -> Vec<String> {
    let port = address.port();
    let mut hosts: Vec<String> = advertise.to_vec();
    if hosts.is_empty() && address.ip().is_unspecified() {
        let host = config::host_name();
        hosts.extend(addresses::own(&host).iter().map(ToString::to_string));
        hosts.push(host);
    } else if hosts.is_empty() {
        hosts.push(address.ip().to_string());
    }
    let bracketed = |host: &String| if host.contains(':') { format!("[{host}]") } else { host.clone() };
    hosts.iter().map(|host| format!("{scheme}://{}:{port}", bracketed(host))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_find_a_head_where_it_listens_or_where_it_says() {
        let urls = |advertise: &[&str], address: &str, scheme| {
            let advertise: Vec<String> = advertise.iter().map(|name| (*name).to_owned()).collect();
            urls(&advertise, address.parse().unwrap(), scheme)
        };
        assert_eq!(urls(&[], "127.0.0.1:7", UrlScheme::Http), ["http://127.0.0.1:7"]);
        assert_eq!(urls(&[], "[::1]:7", UrlScheme::Http), ["http://[::1]:7"]);
        assert_eq!(urls(&[], "[fd00::7]:7", UrlScheme::Https), ["https://[fd00::7]:7"]);
        assert_eq!(
            urls(&["n1-ib", "fd00::8"], "0.0.0.0:7", UrlScheme::Https),
            ["https://n1-ib:7", "https://[fd00::8]:7"]
        );
        let everywhere = urls(&[], "[::]:7", UrlScheme::Https);
        assert_eq!(everywhere.last().unwrap(), &format!("https://{}:7", config::host_name()));
    }
}
