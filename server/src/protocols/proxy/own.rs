//! The job that a server was started for, as `telem run` does: it is live for as long as the server is, whether or not a
//! client of it comes, and leaves a profile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use telem_ingest::decode::proxy::DescribedJob;

use super::live::ProxyLive;
use super::runs::RunSeat;
use super::seats;

/// Longest that is waited for what the node was like at the end: a file system may hang.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Longest that its last samples are written for: a full disk refuses them for as long as it is full.
const END_MAX: Duration = Duration::from_secs(3);
/// What a client's library tells as the size of its job, the first of them.
const SIZES: [&str; 3] = ["SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// A job's description, as a client's library in its environment tells it.
pub fn describe(id: &str, command: &str, node: &str, env: impl Fn(&str) -> Option<String>) -> DescribedJob {
    let text = |name: &str| env(name).filter(|value| !value.is_empty());
    let size = SIZES.into_iter().find_map(|name| text(name)?.trim().parse().ok()).unwrap_or(1);
    let run_dir = std::env::current_dir().map(|dir| dir.to_string_lossy().into_owned()).unwrap_or_default();
    DescribedJob {
        jobid: id.to_owned(),
        command: command.to_owned(),
        size,
        nodelist: text("SLURM_JOB_NODELIST").unwrap_or_else(|| node.to_owned()),
        partition: text("SLURM_JOB_PARTITION").unwrap_or_default(),
        cluster: text("SLURM_CLUSTER_NAME").unwrap_or_default(),
        run_dir,
        ..DescribedJob::default()
    }
}

/// The server's own place in its job.
#[derive(Debug, Default)]
pub struct OwnSeat(Mutex<Option<RunSeat>>);

impl OwnSeat {
    fn put(&self, seat: Option<RunSeat>) -> Option<RunSeat> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), seat)
    }
}

/// The job begins.
pub async fn begin(live: &Arc<ProxyLive>, own: &OwnSeat) {
    let Some(job) = live.options.own_job.clone().filter(|_| live.store.is_some()) else { return };
    match seats::join(live, job).await {
        Ok(seat) => {
            own.put(Some(seat));
        }
        Err(refusal) => tracing::debug!(%refusal, "the server's own job is none of Metric Proxy's"),
    }
}

/// It ends with the server.
pub async fn end(live: &Arc<ProxyLive>, own: &OwnSeat) {
    let Some(seat) = own.put(None) else { return };
    let looker = Arc::clone(live);
    // The profile has what this finds.
    let look = tokio::task::spawn_blocking(move || looker.system.readings());
    if !matches!(tokio::time::timeout(LOOK_MAX, look).await, Ok(Ok(_))) {
        // Whoever opens the database next finds that the run is over.
        tracing::warn!(
            "what the node was like at the end is not known; the job's profile is made of its samples alone"
        );
        return;
    }
    if tokio::time::timeout(END_MAX, seats::leave(live, seat)).await.is_err() {
        tracing::warn!("the last samples of the job are not taken; its profile is made of the earlier ones");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_described_as_a_clients_library_would() {
        let slurm = |name: &str| match name {
            "SLURM_NTASKS" => Some("64".to_owned()),
            "SLURM_JOB_NODELIST" => Some("n[1-4]".to_owned()),
            "SLURM_JOB_PARTITION" => Some("long".to_owned()),
            "SLURM_CLUSTER_NAME" => Some("big".to_owned()),
            _ => None,
        };
        let job = describe("7", "./app -n 3", "n1", slurm);
        assert_eq!((job.jobid.as_str(), job.command.as_str(), job.size), ("7", "./app -n 3", 64));
        assert_eq!((job.nodelist.as_str(), job.partition.as_str(), job.cluster.as_str()), ("n[1-4]", "long", "big"));
        let alone = describe("7", "./app", "n1", |name| (name == "PMI_SIZE").then(|| "none".to_owned()));
        assert_eq!((alone.size, alone.nodelist.as_str(), alone.end_time), (1, "n1", 0));
    }
}
