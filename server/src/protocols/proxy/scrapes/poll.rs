//! One target's task: asks it every period, within a deadline, and ever more seldom while it does not answer.

use std::sync::Arc;
use std::time::Duration;

use super::super::live::ProxyLive;
use super::super::targets::fetch::{self, EXPORTER_BYTES_MAX, NodeChoice};
use super::super::targets::{ScrapeKind, ScrapePlan, ScrapeTarget, TargetPlace};
use super::child::ChildScopes;
use super::exporter::ExporterSeries;
use super::profile::ChildPlace;

/// Longest pause while a target does not answer.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// After so many polls without an answer, and so long, a target is lost.
const MISSED_MAX: u32 = 3;
const LOST_AFTER: Duration = Duration::from_secs(5);

/// The pause before a target is asked again that has failed so often in a row.
pub fn pause(period: Duration, failures: u32) -> Duration {
    let longer = period.saturating_mul(1 << failures.min(12));
    longer.min(PAUSE_MAX.max(period))
}

/// Whether a target that answered `silent` ago is lost.
pub fn is_lost(failures: u32, silent: Duration, period: Duration) -> bool {
    failures >= MISSED_MAX && silent >= LOST_AFTER.max(period.saturating_mul(MISSED_MAX))
}

/// What stands here for a target.
#[derive(Debug)]
enum TargetValues {
    Child(ChildScopes),
    Exporter(ExporterSeries),
}

/// Polls a target until it is not to be polled any more.
pub async fn poll(live: Arc<ProxyLive>, target: Arc<ScrapeTarget>) {
    let _running = target.run();
    let clock = Arc::clone(&live.state.clock);
    let (mut values, mut answered) = (None, clock.monotonic());
    while let Some(plan) = target.plan() {
        let (began, is_last) = (clock.monotonic(), target.is_leaving());
        let failures = match ask(&live, &target, &plan, &mut values).await {
            Ok(()) => {
                answered = clock.monotonic();
                target.succeed(live.now_ms() / 1_000);
                live.tree.find_again(&target.key);
                0
            }
            Err(why) => {
                let failures = target.fail(why);
                if is_lost(failures, clock.monotonic().saturating_sub(answered), plan.period) {
                    lose(&live, &target, &mut values).await;
                }
                failures
            }
        };
        if is_last {
            target.leave();
            break;
        }
        let passed = clock.monotonic().saturating_sub(began);
        let pause = pause(plan.period, failures).saturating_sub(passed);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = target.woken() => {}
        }
    }
    end(&live, values).await;
}

async fn ask(
    live: &Arc<ProxyLive>,
    target: &Arc<ScrapeTarget>,
    plan: &ScrapePlan,
    values: &mut Option<TargetValues>,
) -> Result<(), String> {
    let (kind, answer) = match &plan.place {
        TargetPlace::Node(node, Some(client)) => {
            let choice = match values {
                Some(TargetValues::Child(child)) => child.choice(),
                _ => NodeChoice::Whole,
            };
            (ScrapeKind::Proxy, fetch::node_jobs(node, client, live.targets.lineage(), choice).await?)
        }
        TargetPlace::Node(node, None) => return Err(format!("{node} has not joined")),
        TargetPlace::Address(address) => {
            let kind = match plan.kind {
                Some(kind) => kind,
                None => {
                    let kind = fetch::probe(address, plan.reach).await?;
                    target.be(&live.state, kind);
                    kind
                }
            };
            let answer = match kind {
                ScrapeKind::Proxy => fetch::jobs(address, plan.reach, live.targets.lineage()).await?,
                ScrapeKind::Prometheus => fetch::get(address, plan.reach, "/metrics", EXPORTER_BYTES_MAX).await?,
            };
            (kind, answer)
        }
    };
    let fits = |values: &TargetValues| {
        matches!(
            (kind, values),
            (ScrapeKind::Proxy, TargetValues::Child(_)) | (ScrapeKind::Prometheus, TargetValues::Exporter(_))
        )
    };
    if !values.as_ref().is_some_and(fits) {
        end(live, values.take()).await;
    }
    let values = values.get_or_insert_with(|| match kind {
        ScrapeKind::Proxy => TargetValues::Child(ChildScopes::new(target)),
        ScrapeKind::Prometheus => TargetValues::Exporter(ExporterSeries::open(live, &target.key, target.source())),
    });
    let taken = match values {
        TargetValues::Child(child) => {
            let place = match &plan.place {
                TargetPlace::Address(address) => Some(ChildPlace { address: address.clone(), reach: plan.reach }),
                TargetPlace::Node(..) => None,
            };
            child.take(live, answer, place).await
        }
        TargetValues::Exporter(exporter) => exporter.take(live, answer).await,
    };
    // Something else may be there now.
    taken.inspect_err(|_| target.doubt()).map_err(|why| format!("{}: {why}", plan.place))
}

async fn lose(live: &Arc<ProxyLive>, target: &ScrapeTarget, values: &mut Option<TargetValues>) {
    live.tree.lose(&target.key);
    match values {
        Some(TargetValues::Child(child)) => child.lose(live).await,
        Some(TargetValues::Exporter(exporter)) => exporter.lose(live),
        None => {}
    }
}

async fn end(live: &Arc<ProxyLive>, values: Option<TargetValues>) {
    match values {
        Some(TargetValues::Child(mut child)) => child.lose(live).await,
        Some(TargetValues::Exporter(exporter)) => exporter.close(live),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_a_target_does_not_answer() {
        let of = |period: u64, failures: u32| pause(Duration::from_millis(period), failures).as_millis();
        assert_eq!((of(100, 0), of(100, 1), of(100, 3)), (100, 200, 800));
        assert_eq!((of(100, 30), of(60_000, 9)), (30_000, 60_000), "never longer than half a minute or its period");
    }

    #[test]
    fn a_target_is_lost_after_three_polls_and_some_time() {
        let (period, s) = (Duration::from_millis(100), Duration::from_secs);
        assert!(!is_lost(3, s(4), period) && !is_lost(2, s(60), period) && is_lost(3, s(5), period));
        assert!(!is_lost(3, s(59), s(20)) && is_lost(3, s(60), s(20)));
    }
}
