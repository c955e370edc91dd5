//! An agent as a member of its job: it sends reports while there is a head, and looks for one while there is none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;
use telem_ingest::writer::ClientTallies;
use telem_query::Queries;
use telem_query::cluster::Knowing;
use tokio::sync::{oneshot, watch};

use crate::client::Client;
use crate::join::{Join, Lifeline};
use crate::membership::link::{self, Identity, JoinFileState, Link, LinkError};
use crate::membership::messages::Figures;
use crate::membership::{last_error, own};

/// How often a node says how it is.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it tells of new series.
pub(crate) const NEWS_INTERVAL: Duration = Duration::from_millis(100);
/// How soon a head that is gone is looked for; the pause doubles.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// How often it is looked for at the least.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// After so long without a head an agent says that it works alone.
const ALONE_AFTER: Duration = Duration::from_secs(60);
/// Longest that the farewell may take, and what is being said when it is due.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(400);

/// What the head, or its absence, means for the agent.
#[derive(Debug)]
pub enum MemberVerdict {
    /// The job is over.
    Ended,
    /// There has been no head for so long.
    HeadGone(Duration),
    /// The process that started this agent is gone, and there has been no head for the time that this allows.
    Orphaned,
    /// A head has other secrets: the agent must serve with those.
    Anew(Box<Join>),
}

/// A member, at work.
#[derive(Debug)]
pub struct AgentMember {
    pub source: PathBuf,
    pub join: Join,
    pub lifeline: Lifeline,
    pub identity: Identity,
    pub clock: Arc<dyn Clock>,
    /// Learns how to reach the head, and when there is none.
    pub in_sight: watch::Sender<Option<Client>>,
    /// Longest that a question to the head may take.
    pub question_max: Duration,
    /// There where a head has taken us in already.
    pub link: Option<Link>,
    pub past: MemberPast,
}

/// What a member remembers.
#[derive(Debug, Default)]
pub struct MemberPast {
    /// The last that were read.
    figures: Figures,
    /// The node counts something for clients of Metric Proxy.
    has_counters: bool,
    /// What the head refused us with, which is logged once.
    refusal: Option<String>,
}

/// When something is to be tried next.
#[derive(Debug)]
pub struct Retry {
    pause: Duration,
    /// Between 0.75 and 1.25: many agents that lost one head do not come back in step.
    spread: f64,
}

impl Retry {
    pub fn new(incarnation: &str) -> Self {
        let random = u64::from_str_radix(incarnation, 16).unwrap_or_default();
        Self { pause: RETRY_FIRST, spread: 0.75 + (random % 1_000) as f64 / 2_000.0 }
    }

    pub fn next(&mut self) -> Duration {
        let pause = self.pause.mul_f64(self.spread);
        self.pause = (self.pause * 2).min(RETRY_MAX);
        pause
    }

    fn again(&mut self) {
        self.pause = RETRY_FIRST;
    }
}

impl AgentMember {
    /// Stays a member until `leave` gives a reason to go. `verdict` hears what must end this life of the agent.
    pub async fn stay(
        mut self,
        queries: Queries,
        tallies: Arc<ClientTallies>,
        verdict: oneshot::Sender<MemberVerdict>,
        mut leave: oneshot::Receiver<String>,
    ) {
        let mut verdict = Some(verdict);
        let mut retry = Retry::new(&self.identity.incarnation);
        let mut gone = HeadAbsence::default();
        let mut knowing = Knowing::new(queries.db().clone());
        let mut pause = Duration::ZERO;
        let reason = loop {
            self.tell_in_sight();
            let mut acting = Box::pin(async {
                match self.link.is_some() {
                    true => {
                        rest(pause, &knowing).await;
                        self.report(&queries, &tallies, &mut knowing).await
                    }
                    false => {
                        tokio::time::sleep(pause).await;
                        let found = self.look().await;
                        // A head that takes us in knows nothing of us, whatever one before it knew.
                        knowing.forget();
                        found
                    }
                }
            });
            let found = tokio::select! {
                biased;
                reason = &mut leave => {
                    // A message is sent to its end; a pause is cut short.
                    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, acting).await;
                    break reason;
                }
                found = &mut acting => found,
            };
            drop(acting);
            let now = self.clock.monotonic();
            let heard = match found {
                HeadState::Head { ended } => {
                    retry.again();
                    gone.back();
                    pause = REPORT_INTERVAL;
                    ended.then_some(MemberVerdict::Ended)
                }
                HeadState::Lost => {
                    gone.since.get_or_insert(now);
                    pause = Duration::ZERO;
                    None
                }
                HeadState::Nothing => {
                    gone.since.get_or_insert(now);
                    pause = retry.next();
                    gone.tell(now);
                    gone.verdict(now, &self.join, self.lifeline.is_cut())
                }
                HeadState::Anew(join) => {
                    pause = retry.next();
                    Some(MemberVerdict::Anew(join))
                }
            };
            if let Some(heard) = heard
                && let Some(verdict) = verdict.take()
            {
                // A member that does not listen any more is about to end.
                let _ = verdict.send(heard);
            }
        };
        self.in_sight.send_replace(None);
        if let (Some(link), Ok(reason)) = (self.link, reason) {
            // What came after the last report counts too.
            let clock = Arc::clone(&self.clock);
            let last = tokio::task::spawn_blocking(move || own::figures(&queries, &*clock)).await;
            let figures = last.ok().filter(|last| last.samples >= self.past.figures.samples);
            let clients_dropped = tallies.sum().dropped();
            let figures = Figures { clients_dropped, ..figures.unwrap_or(self.past.figures) };
            let farewell = link.leave(&reason, figures);
            let left = tokio::time::timeout(FAREWELL_TIMEOUT, farewell).await;
            if !matches!(left, Ok(Ok(()))) {
                tracing::debug!(?left, "the head did not hear the farewell");
            }
        }
    }

    fn tell_in_sight(&self) {
        let client = self.link.as_ref().map(|link| link.client().clone().with_silence(self.question_max));
        self.in_sight.send_if_modified(|told| {
            let address = |client: &Option<Client>| client.as_ref().map(|client| client.address().clone());
            let is_new = address(told) != address(&client);
            if is_new {
                *told = client;
            }
            is_new
        });
    }

    async fn report(&mut self, queries: &Queries, tallies: &ClientTallies, knowing: &mut Knowing) -> HeadState {
        let Some(link) = &mut self.link else { return HeadState::Lost };
        if !queries.db().is_closed() {
            let (of, clock) = (queries.clone(), Arc::clone(&self.clock));
            // Waits for a lock that the writer holds while it appends.
            let told = tokio::task::spawn_blocking(move || (own::figures(&of, &*clock), own::has_counters(&of)));
            (self.past.figures, self.past.has_counters) =
                told.await.unwrap_or((self.past.figures, self.past.has_counters));
        }
        self.past.figures.clients_dropped = tallies.sum().dropped();
        let (figures, has_counters) = (self.past.figures, self.past.has_counters);
        let known = knowing.has_news().then(|| serde_json::value::to_raw_value(&knowing.delta()).ok()).flatten();
        let reported = link.report(|report| {
            (report.figures, report.has_counters) = (figures, has_counters);
            report.known = known;
            report.last_error = last_error::last();
        });
        match reported.await {
            Ok(reported) => {
                if let Some(known) = reported.known {
                    knowing.mark_reported(known);
                }
                HeadState::Head { ended: reported.end }
            }
            Err(error) => {
                match &error {
                    LinkError::Unknown { .. } => tracing::info!(%error, "joining again"),
                    error => tracing::warn!(%error, "the head does not answer; samples are stored meanwhile"),
                }
                self.link = None;
                HeadState::Lost
            }
        }
    }

    async fn look(&mut self) -> HeadState {
        match link::renewed(&self.source, &self.join) {
            JoinFileState::No => {}
            // What saves through the head knows its addresses from the start.
            JoinFileState::Moved(join) if join.save.is_some() => return HeadState::Anew(join),
            JoinFileState::Moved(join) => self.join = *join,
            JoinFileState::Anew(join) => return HeadState::Anew(join),
        }
        match Link::join(&self.join, &self.identity, &self.clock).await {
            Ok(link) => {
                tracing::info!(head = %link.address(), node = link.joined.node, "joined");
                (self.link, self.past.refusal) = (Some(link), None);
                HeadState::Head { ended: false }
            }
            Err(error @ LinkError::Refused { .. }) => {
                let why = error.to_string();
                if self.past.refusal.as_ref() != Some(&why) {
                    tracing::error!(%error, "this node is not part of its job; samples are still stored");
                    self.past.refusal = Some(why);
                }
                HeadState::Nothing
            }
            Err(error) => {
                tracing::debug!(%error, "no head");
                HeadState::Nothing
            }
        }
    }
}

/// Until the next report is due: sooner where there are series that the head does not know.
async fn rest(pause: Duration, knowing: &Knowing) {
    let mut left = pause;
    while !left.is_zero() {
        let step = left.min(NEWS_INTERVAL);
        tokio::time::sleep(step).await;
        left -= step;
        if knowing.has_news() {
            return;
        }
    }
}

/// What an attempt to reach the head showed.
enum HeadState {
    Head {
        ended: bool,
    },
    /// It was there a moment ago.
    Lost,
    Nothing,
    Anew(Box<Join>),
}

/// How long there has been no head.
#[derive(Debug, Default)]
struct HeadAbsence {
    since: Option<Duration>,
    is_told: bool,
}

impl HeadAbsence {
    fn back(&mut self) {
        *self = Self::default();
    }

    fn tell(&mut self, now: Duration) {
        if !self.is_told && self.since.is_some_and(|since| now.saturating_sub(since) >= ALONE_AFTER) {
            tracing::warn!("there has been no head for {} s; this node works alone", ALONE_AFTER.as_secs());
            self.is_told = true;
        }
    }

    /// Whether it has been too long. `is_orphan`: the process that started this agent is gone too, as far as it knows.
    fn verdict(&self, now: Duration, join: &Join, is_orphan: bool) -> Option<MemberVerdict> {
        let gone = now.saturating_sub(self.since?);
        match join.orphan_timeout {
            _ if gone >= join.head_gone_timeout => Some(MemberVerdict::HeadGone(gone)),
            Some(limit) if is_orphan && gone >= limit => Some(MemberVerdict::Orphaned),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_head_is_looked_for_more_and_more_seldom_and_not_by_all_at_once() {
        for (incarnation, first, last) in [("0", 150, 3_750), ("3e7", 249, 6_247)] {
            let mut retry = Retry::new(incarnation);
            let pauses: Vec<u128> = (0..10).map(|_| retry.next().as_millis()).collect();
            assert_eq!((pauses[0], pauses[9]), (first, last), "{pauses:?}");
            assert!(pauses.is_sorted());
            retry.again();
            assert_eq!(retry.next().as_millis(), first);
        }
    }

    fn told(head_gone_timeout: u64, orphan_timeout: Option<u64>) -> Join {
        let text = json!({
            "job": "7", "token": "t", "head": [], "version": "", "level": 1, "interval": 1, "save_interval": 5,
            "save_timeout": 300, "head_gone_timeout": head_gone_timeout, "orphan_timeout": orphan_timeout
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn an_agent_ends_when_its_head_has_been_gone_for_as_long_as_was_said() {
        let (join, second) = (told(600, None), Duration::from_secs);
        let mut gone = HeadAbsence::default();
        assert!(gone.verdict(second(9_000), &join, true).is_none());
        gone.since = Some(second(100));
        assert!(gone.verdict(second(699), &join, true).is_none());
        assert!(
            matches!(gone.verdict(second(700), &join, false), Some(MemberVerdict::HeadGone(after)) if after == second(600))
        );
        gone.back();
        assert!(gone.verdict(second(900), &join, true).is_none());
    }

    #[test]
    fn an_agent_ends_sooner_when_who_started_it_is_gone_as_well() {
        let second = Duration::from_secs;
        let mut gone = HeadAbsence::default();
        for (limit, at) in [(0, 100), (60, 160)] {
            let join = told(600, Some(limit));
            gone.since = None;
            assert!(gone.verdict(second(at), &join, true).is_none(), "there is a head");
            gone.since = Some(second(100));
            assert!(gone.verdict(second(at), &join, false).is_none(), "its input is open");
            assert!(matches!(gone.verdict(second(at), &join, true), Some(MemberVerdict::Orphaned)));
            assert!(limit == 0 || gone.verdict(second(at - 1), &join, true).is_none());
        }
    }
}
