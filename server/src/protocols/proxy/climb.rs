//! Being a child of another proxy (`-r`): asks it for a parent, and the parent to poll us. It asks again while that does
//! not succeed, and once nobody polls us any more: a parent that was started anew knows nothing of us. An original parent
//! polls an address that each join makes anew, where it is [told](super::told) what was counted since.

mod leave;
mod top;
mod untold;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

pub use self::leave::leave;
use self::top::TreeTop;
#[cfg(test)]
pub use self::top::note_root;
pub use self::top::note_told;
#[cfg(test)]
pub use self::untold::keep as keep_untold;
use super::live::ProxyLive;
use super::targets::{TargetAddress, fetch};
use super::told::{RootMemory, SINCE};
use super::tree::{TreePlace, key_of};

/// How long an original waits before it joins: its root may be starting.
const FIRST_WAIT: Duration = Duration::from_secs(3);
/// Pauses between attempts.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Nobody polls us any more after so long, and so many periods.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const SILENCE_PERIODS: u32 = 10;

/// Stands below another proxy for as long as this server runs, where that is wanted.
pub async fn climb(live: &Arc<ProxyLive>) {
    let Some((root, period)) = &live.options.root else { return };
    let period = *period;
    assume_node_told(live).await;
    tokio::time::sleep(FIRST_WAIT).await;
    let mut failures: u32 = 0;
    loop {
        match join(live, root, period).await {
            Ok(parent) => {
                tracing::info!(%root, %parent, "this server stands below another proxy");
                failures = 0;
                until_silent(live, period).await;
                tracing::warn!(%parent, "no server polls this one any more; it joins again");
            }
            Err(why) => {
                if failures == 0 {
                    tracing::warn!(%root, %why, "this server cannot join; it tries again");
                }
                failures = failures.saturating_add(1);
                tokio::time::sleep(PAUSE_MIN.saturating_mul(1 << failures.min(4)).min(PAUSE_MAX)).await;
            }
        }
    }
}

/// What an earlier process of this database may have told above: all that was counted before this one, but for what it
/// knew to be untold when it was stopped.
pub fn assume_told(live: &ProxyLive) {
    if live.options.root.is_none() {
        return;
    }
    for (desc, scope) in live.recent_jobs() {
        live.told.assume(&desc.jobid, live.runs.begin(&desc.jobid), &live.table.all(scope));
    }
    untold::correct(live);
}

/// The same of what the node is like, which takes time to look at.
async fn assume_node_told(live: &Arc<ProxyLive>) {
    let looker = Arc::clone(live);
    let look = tokio::task::spawn_blocking(move || {
        for (desc, scope) in looker.recent_jobs() {
            let begin = looker.runs.begin(&desc.jobid);
            if begin.is_none_or(|begin| begin < looker.started) {
                looker.told.assume(&desc.jobid, begin, &looker.beside(scope).readings);
            }
        }
    });
    if let Err(panic) = look.await {
        tracing::error!(%panic, "looking at the node died of a bug");
    }
}

/// The parent that it has now.
async fn join(live: &ProxyLive, root: &TargetAddress, period: Duration) -> Result<TargetAddress, String> {
    let places = tokio::time::timeout(PAUSE_MAX, root.resolve()).await;
    let places = places.map_err(|_| format!("the name of {root} is not found"))??;
    let own = own_address(live, places.first().map_or(Ipv4Addr::LOCALHOST.into(), |place| place.ip()))?;
    let known = TreeTop::ask(live, root, key_of(&own)).await?;
    let from = fetch::encoded(&own);
    let mut parents = match known.parent() {
        Some(parent) => vec![parent],
        None => {
            let parent = fetch::acknowledged(root, &format!("/pivot?from={from}")).await?;
            vec![TargetAddress::parse(&parent).map_err(|why| format!("{root} names a parent that is none: {why}"))?]
        }
    };
    // An original that was asked often enough names the child itself.
    parents.retain(|parent| parent.authority() != key_of(&own));
    // The places of an original stay though their parents are gone; one of ours names another one then.
    if !known.is_ours && !parents.iter().any(|parent| parent.authority() == root.authority()) {
        parents.push(root.clone());
    }
    let (mut failure, mut memory) = (format!("{root} names this server itself"), known.memory);
    let mut was_below_original = false;
    for parent in parents {
        let is_below_original = !known.is_one_of_ours(&parent).await;
        // The one before may have polled though it did not acknowledge.
        if was_below_original && live.told.has_counts() {
            memory = RootMemory::Kept;
        }
        was_below_original |= is_below_original;
        let at = live.state.clock.monotonic();
        let to = match is_below_original {
            true => format!("{own}{SINCE}{}", live.told.join(live.state.clock.now(), at, memory)),
            false => own.clone(),
        };
        known.keep(live, &parent, key_of(&own), memory);
        untold::forget(live);
        live.tree.note_join(at);
        // It may poll before its answer is here.
        let place =
            TreePlace { root: root.clone(), parent: parent.clone(), own: from.clone(), period, is_below_original };
        live.tree.stand(Some(place));
        let path = format!("/join?to={}&period={}", fetch::encoded(&to), period.as_millis());
        match fetch::acknowledged(&parent, &path).await {
            Ok(_) => return Ok(parent),
            Err(why) => failure = why,
        }
        live.tree.stand(None);
    }
    Err(failure)
}

/// Until the last poll of the parent was long ago. An original is known by where it polls; beside it anybody may ask.
async fn until_silent(live: &ProxyLive, period: Duration) {
    let longest = SILENCE_MAX.max(period.saturating_mul(SILENCE_PERIODS));
    let is_below_original = live.tree.standing().is_some_and(|standing| standing.is_below_original);
    loop {
        let polled_at = if is_below_original { live.told.polled_at() } else { live.tree.polled_at() };
        let silent = live.state.clock.monotonic().saturating_sub(polled_at);
        if silent >= longest {
            return;
        }
        tokio::time::sleep(longest.saturating_sub(silent)).await;
    }
}

/// Where a parent on a machine of this address finds us.
fn own_address(live: &ProxyLive, parent: IpAddr) -> Result<String, String> {
    let options = &live.options;
    let own_port = options.place().and_then(|place| place.port);
    let common = options.reach.as_ref();
    if parent.to_canonical().is_loopback() {
        return match (own_port, common.map(|reach| reach.address)) {
            (Some(port), _) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string()),
            (None, Some(address)) if address.ip().is_unspecified() => {
                Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())).to_string())
            }
            (None, Some(address)) => Ok(address.to_string()),
            (None, None) => Err("this server listens nowhere".to_owned()),
        };
    }
    let listen = "start this server with --listen 0.0.0.0:PORT --proxy-plain";
    let reach = common.filter(|reach| !reach.address.ip().is_loopback());
    let reach =
        reach.ok_or_else(|| format!("it listens on loopback only, where no parent elsewhere finds it; {listen}"))?;
    if !options.is_plain || !options.has_token_path {
        let what = "a parent elsewhere polls over plain HTTP and shows the token in the path";
        return Err(format!("{what}, which this server does not take; {listen}"));
    }
    let ip = if reach.address.ip().is_unspecified() { towards(parent)? } else { reach.address.ip() };
    Ok(format!("{}/t/{}", SocketAddr::from((ip, reach.address.port())), reach.token.secret()))
}

/// Our address on the way to another machine.
fn towards(parent: IpAddr) -> Result<IpAddr, String> {
    let any: SocketAddr = match parent {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Sends nothing: the kernel only chooses a route.
    let route = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((parent, 9))?;
        socket.local_addr()
    });
    route.map(|address| address.ip().to_canonical()).map_err(|error| format!("there is no way to {parent}: {error}"))
}
