//! Going from the tree, when the server is told to stop: clients are hung up on, so that what they count is final; the
//! parent takes that; and it is told that this server goes. A parent of ours polls once more when it is told. An original
//! does not, so its next poll is waited for first, or the two next ones where it hears of a counter for the first time, if
//! they come soon.

use std::time::Duration;

use super::super::live::ProxyLive;
use super::super::targets::{TargetAddress, fetch};
use super::super::tree::TreePlace;
use super::untold;

/// Longest that all of it may take.
const LEAVE_MAX: Duration = Duration::from_secs(6);
/// Longest that the poll of an original is waited for: a parent that asks more seldom misses what came since.
const POLL_WAIT_MAX: Duration = Duration::from_secs(3);
/// How much later than its period a parent may poll.
const POLL_LATE_MAX: Duration = Duration::from_millis(500);

/// Tells who stands above that this server goes, after what it counted last is handed on; within [`LEAVE_MAX`].
pub async fn leave(live: &ProxyLive) {
    if live.options.root.is_none() {
        return;
    }
    let standing = live.tree.standing();
    match &standing {
        Some(standing) => {
            if tokio::time::timeout(LEAVE_MAX, hand_on(live, standing)).await.is_err() {
                tracing::warn!(parent = %standing.parent, "this server stops before its parent has all that it counted");
            }
        }
        None => live.clients.dismiss().await,
    }
    // Where it stands nowhere, an original that does not answer now may have been told before.
    if standing.is_none_or(|standing| standing.is_below_original) {
        untold::keep(live);
    }
}

async fn hand_on(live: &ProxyLive, standing: &TreePlace) {
    live.runs.go_on_telling(live.state.clock.now());
    live.clients.dismiss().await;
    let final_since = live.state.clock.monotonic();
    if standing.is_below_original || !live.tree.is_polled_by_ours() {
        let wait = (standing.period + POLL_LATE_MAX).min(POLL_WAIT_MAX);
        let has_polled = match standing.is_below_original {
            false => tokio::time::timeout(wait, live.tree.polled_since(final_since)).await.is_ok(),
            // What it hears of for the first time it has at the poll after that.
            true => {
                tokio::time::timeout(wait, live.told.answered_since(final_since)).await.is_ok()
                    && tokio::time::timeout(wait, live.told.all_told_since(final_since)).await.is_ok()
            }
        };
        if !has_polled {
            tracing::warn!(parent = %standing.parent, "the parent did not poll once more before this server stops");
        }
    }
    tell(&standing.parent, &standing.own).await;
    // It keeps the tree, where another one polls.
    if standing.root.authority() != standing.parent.authority() {
        tell(&standing.root, &standing.own).await;
    }
}

async fn tell(above: &TargetAddress, own: &str) {
    match fetch::acknowledged(above, &format!("/leave?from={own}")).await {
        Ok(_) => tracing::info!(%above, "this server left its tree"),
        // Older originals know no such call.
        Err(why) => tracing::info!(%above, %why, "who stands above does not know that this server left"),
    }
}
