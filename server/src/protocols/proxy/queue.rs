//! `/queue`: jobs that wait or run, by the word of `squeue`.
//!
//! It is asked when somebody asks, with a deadline, and its answer counts for some seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Of;
use axum::http::Uri;
use axum::response::Response;
use axum::routing::any;
use serde::Serialize;

use super::live::ProxyLive;
use super::profiles;
use super::program::Program;
use super::reply::{self, PartState, RequestParams};

/// Longest that it may take.
pub const SQUEUE_DEADLINE: Duration = Duration::from_secs(10);
/// For so long its answer counts.
pub const SQUEUE_KEPT: Duration = Duration::from_secs(5);
/// Most that it may say.
pub const SQUEUE_OUTPUT_MAX: u64 = 64 << 20;
const ID: &str = "JOBID";
const COMMENT: &str = "COMMENT";

pub fn routes(live: &Arc<ProxyLive>, cache: &Arc<QueueCache>) -> Router<Arc<ProxyLive>> {
    Router::new()
        .route("/queue", any(bare))
        .route("/queue/", any(bare))
        .route("/queue/list", any(list))
        .route("/queue/list/", any(list))
        .route("/queue/model", any(model))
        .route("/queue/model/", any(model))
        .route("/queue/{*other}", any(reply::unknown_segment))
        .with_state((Arc::clone(live), Arc::clone(cache)))
}

async fn bare(uri: Uri) -> Response {
    reply::refused(uri.path())
}

/// Jobs by id, each with its columns.
#[derive(Debug, Default, PartialEq, Serialize)]
struct QueuedJobs {
    jobs: BTreeMap<String, BTreeMap<String, String>>,
}

impl QueuedJobs {
    /// The first line names columns.
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let columns: Vec<&str> = lines.next().unwrap_or_default().split('|').map(str::trim).collect();
        let job = |line: &str| -> BTreeMap<String, String> {
            columns.iter().zip(line.split('|')).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect()
        };
        let jobs = lines.filter(|line| !line.is_empty()).map(job);
        Self { jobs: jobs.filter_map(|job| Some((job.get(ID)?.clone(), job))).collect() }
    }
}

/// What squeue said last, and when.
#[derive(Debug, Default)]
pub struct QueueCache {
    /// Held while it is asked: others wait for the same answer.
    last: tokio::sync::Mutex<Option<(Duration, Arc<QueuedJobs>)>>,
}

impl QueueCache {
    async fn jobs(&self, live: &ProxyLive) -> Result<Arc<QueuedJobs>, String> {
        let mut last = self.last.lock().await;
        let now = live.state.clock.monotonic();
        if let Some((at, jobs)) = &*last
            && now.saturating_sub(*at) < SQUEUE_KEPT
        {
            return Ok(Arc::clone(jobs));
        }
        let failed = |error: super::program::ProgramError| format!("Failed to call squeue: {error}");
        let program = Program {
            path: live.programs.find("squeue").map_err(failed)?,
            arguments: vec!["--format".into(), "%all".into()],
            environment: Vec::new(),
            input: Vec::new(),
            deadline: SQUEUE_DEADLINE,
            output_bytes_max: SQUEUE_OUTPUT_MAX,
        };
        let said = live.programs.ask(program).await.map_err(failed)?;
        let jobs = Arc::new(QueuedJobs::parse(&String::from_utf8_lossy(&said)));
        *last = Some((live.state.clock.monotonic(), Arc::clone(&jobs)));
        Ok(jobs)
    }
}

async fn list(Of((live, cache)): PartState<QueueCache>) -> Response {
    match cache.jobs(&live).await {
        Ok(jobs) => reply::json(&*jobs),
        Err(why) => reply::refused(&why),
    }
}

async fn model(Of((live, cache)): PartState<QueueCache>, RequestParams(params): RequestParams) -> Response {
    let Some(id) = params.get("job") else { return reply::refused("A Job Parameter is required") };
    let jobs = match cache.jobs(&live).await {
        Ok(jobs) => jobs,
        Err(why) => return reply::refused(&why),
    };
    let Some(job) = jobs.jobs.get(id) else {
        return reply::refused(&format!("Failed to retrieve a job with id : {id}"));
    };
    let (id, command) = (id.to_owned(), job.get(COMMENT).cloned().unwrap_or_default());
    reply::beside(live, move |live| {
        let none = || reply::refused(&format!("Failed to retrieve a model for : {id} ({command})"));
        profiles::input_of(live, &command).unwrap_or_else(none)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_columns_of_the_others() {
        let told = "ACCOUNT|COMMENT|JOBID\nacct|ls -R /usr|4242\n\nb||7|more\nshort\n";
        let jobs = QueuedJobs::parse(told).jobs;
        assert_eq!(jobs.keys().collect::<Vec<_>>(), ["4242", "7"], "what has no id is no job");
        assert_eq!(jobs["4242"]["COMMENT"], "ls -R /usr");
        assert_eq!(
            jobs["7"],
            [("ACCOUNT", "b"), ("COMMENT", ""), ("JOBID", "7")].map(|(k, v)| (k.into(), v.into())).into()
        );
        assert_eq!(QueuedJobs::parse(""), QueuedJobs::default());
    }
}
