//! The recorder of a node as a member of a job whose head is another process that a launcher started: `srun telem run`.
//!
//! It records and saves as it would alone, and is an agent besides: it joins the head, reports to it and answers its
//! requests. It finds the head through the join file that the head publishes. If that file does not appear, or if the
//! head is gone, the node is recorded all the same.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use telem_engine::Clock;
use tokio::sync::watch;
use url::Url;

use super::notes::Notes;
use crate::agent::{self, AgentOptions};
use crate::config;
use crate::join::{Join, Lifeline};
use crate::launch::Patience;
use crate::launch::task::HEAD_TIMEOUT;
use crate::service::{Ready, ServiceOptions};
use crate::tls::Certificate;
use crate::token::Token;

/// How long nothing is said of waiting for it.
const QUIET: Duration = Duration::from_secs(3);
/// Longest that one of its addresses may take to answer: a dead head's file may lie there.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often it is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where the join file is not read again: this head does not come back under other secrets.
const NOWHERE: &str = "-";

/// The head, and how this node is reached.
#[derive(Clone, Debug)]
pub struct MemberOf {
    join: Join,
    advertise: Option<String>,
}

/// The search for a head, and the waiting callers.
pub struct Seeking<'a> {
    pub patience: &'a dyn Patience,
    pub notes: Notes,
    pub clock: &'a dyn Clock,
    /// Whether the head turned out to be on this node, and waits to keep it.
    pub is_here: &'a dyn Fn() -> bool,
}

/// Where the head of a job is.
#[derive(Debug)]
pub enum HeadPlace {
    /// On another node.
    There(Box<MemberOf>),
    /// On this one, which it is to record itself.
    Here,
}

impl fmt::Debug for Seeking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeking").finish_non_exhaustive()
    }
}

impl Seeking<'_> {
    /// Waits for the head of `job` to be there.
    ///
    /// # Errors
    /// Why it is not.
    pub fn head(&self, file: &Path, job: &str, advertise: Vec<String>) -> Result<HeadPlace, String> {
        self.patience.ask(HEAD_TIMEOUT);
        let begun = self.clock.monotonic();
        let mut is_told = false;
        loop {
            if (self.is_here)() {
                return Ok(HeadPlace::Here);
            }
            let why = match Join::read(file) {
                Ok(join) if join.job != job => format!("{} is of job '{}'", file.display(), join.job),
                Ok(join) if answers(&join) => {
                    // The recorder saves, as it does alone; the agent in it need not.
                    let join = Join { save: None, ..join };
                    let head = MemberOf { join, advertise: advertise.into_iter().next() };
                    return Ok(HeadPlace::There(Box::new(head)));
                }
                Ok(join) => format!("the head does not answer at {}", join.head.join(", ")),
                Err(error) => error.to_string(),
            };
            let waited = self.clock.monotonic().saturating_sub(begun);
            if waited >= HEAD_TIMEOUT {
                return Err(format!("there is no head after {} s: {why}", HEAD_TIMEOUT.as_secs()));
            }
            if self.patience.is_over() {
                return Err(format!("the wait for the head has ended: {why}"));
            }
            if waited >= QUIET && !is_told {
                is_told = true;
                let (left, file) = ((HEAD_TIMEOUT - waited).as_secs(), file.display());
                self.notes.say(format_args!(
                    "waiting {left} s more at the most for the head of job {job}, the task with rank 0, which says in \
                     {file} how it is joined; the command starts then: {why}"
                ));
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }
}

impl MemberOf {
    /// Gives a service the secrets of the job.
    ///
    /// # Errors
    /// When the token is invalid.
    pub fn secure(&self, options: &mut ServiceOptions) -> Result<(), String> {
        options.token = Some(Token::chosen(&self.join.token).map_err(|error| error.to_string())?);
        let (certificate, key) = (self.join.certificate.clone(), self.join.key.clone());
        let from = "the join file of the head".to_owned();
        options.tls.job = certificate.zip(key).map(|(chain, key)| Certificate { chain, key, from });
        Ok(())
    }

    /// Serves, as a member, until `stop`.
    ///
    /// # Errors
    /// What keeps it from serving or from closing its database.
    pub async fn serve(
        self,
        options: ServiceOptions,
        ready: impl Fn(&Ready) + Send + Sync + 'static,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), String> {
        let (tell, stopped) = watch::channel(false);
        tokio::spawn(async move {
            stop.await;
            tell.send_replace(true);
        });
        let host = config::host_name();
        let agent = AgentOptions {
            source: PathBuf::from(NOWHERE),
            home: format!("{host}:{}", options.data.display()),
            node: options.engine.node.clone(),
            host,
            listen: options.listen,
            advertise: self.advertise,
            dragon: options.protocols.dragon.as_ref().map(|dragon| dragon.port.clone()),
            is_passing: false,
            clock: Arc::clone(&options.clock),
            place: Box::new({
                let data = options.data.clone();
                move |_, _| Ok(data.clone())
            }),
            prepare: Box::new(move |_, node, _| {
                let mut options = options.clone();
                node.clone_into(&mut options.node);
                node.clone_into(&mut options.engine.node);
                Ok(options)
            }),
            ready: Box::new(ready),
            join: self.join,
            lifeline: Lifeline::default(),
        };
        match agent::run(agent, stopped).await {
            Ok(ended) => {
                tracing::debug!(%ended, "no member any more");
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Whether a process listens at the head's address.
fn answers(join: &Join) -> bool {
    let answers = |url: &Url| {
        let addresses = url.socket_addrs(|| None).unwrap_or_default();
        addresses.iter().any(|address| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok())
    };
    join.heads().is_ok_and(|heads| heads.iter().any(answers))
}
