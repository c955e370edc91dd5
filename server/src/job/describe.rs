//! The description of a job that is stored with its samples: what ran where, when, and how it ended.
//!
//! Only the environment variables named here are stored, and none that may hold a secret.

use std::ffi::OsString;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, System};
use telem_engine::Timestamp;

use super::child::Ending;
use crate::info::rfc3339;
use crate::settings::{self, RunLabels};
use crate::state::VERSION;

/// How long a job waits for what git knows of its directory.
const GIT_TIMEOUT: Duration = Duration::from_secs(1);

/// What is known of a job when it starts.
#[derive(Clone, Debug)]
pub struct Start {
    pub id: String,
    pub command: Vec<OsString>,
    pub node: String,
    pub level: u8,
    pub time: Timestamp,
    pub labels: RunLabels,
}

/// The description of a job that has started.
pub fn started(start: &Start, env: impl Fn(&str) -> Option<String>) -> Json {
    let command: Vec<_> = start.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let variables =
        settings::SCHEDULER_VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), Json::String(env(name)?))));
    json!({
        "id": start.id,
        "parent": settings::parent(&start.id, &env),
        "name": start.labels.name,
        "tags": start.labels.tags,
        "settings": start.labels.settings,
        "command": command,
        "user": env("USER").or_else(|| env("LOGNAME")),
        "uid": rustix::process::getuid().as_raw(),
        "cwd": std::env::current_dir().ok().map(|dir| dir.to_string_lossy().into_owned()),
        "node": start.node,
        "host": host(),
        "level": start.level,
        "telem": VERSION,
        "git": git(),
        "cgroup": settings::cgroup("self"),
        "scheduler": variables.collect::<Map<_, _>>(),
        "start": rfc3339(start.time),
    })
}

/// The same job when its command has ended; how is not known where telem's own parent process was killed.
pub fn ended(mut description: Json, ending: Option<Ending>, time: Timestamp) -> Json {
    description["end"] = rfc3339(time).into();
    match ending {
        Some(Ending::Exited(code)) => description["exit_code"] = code.into(),
        Some(Ending::Killed { signal }) => description["signal"] = signal.into(),
        None => {}
    }
    description
}

/// Of the directory of the job; nothing where its file system takes too long to answer.
fn git() -> Option<Json> {
    let dir = std::env::current_dir().ok()?;
    let (found, answer) = mpsc::channel();
    let look = move || drop(found.send(settings::git(&dir)));
    thread::Builder::new().name("telem-git".to_owned()).spawn(look).ok()?;
    answer.recv_timeout(GIT_TIMEOUT).ok().flatten()
}

fn host() -> Json {
    let machine = System::new().ok().map(|mut system| {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        system.refresh_cpu_list(CpuRefreshKind::nothing());
        let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        (system.cpus().len(), system.total_memory(), cpu)
    });
    let (cores, memory_bytes, cpu) = machine.unwrap_or_default();
    json!({
        "name": crate::config::host_name(),
        "cores": cores,
        "cpu": cpu,
        "memory_bytes": memory_bytes,
        "os": System::long_os_version().ok(),
        "kernel": System::kernel_version().ok(),
        "arch": System::cpu_arch(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_what_ran_where_and_how_it_ended_and_nothing_secret() {
        let env = |name: &str| match name {
            "SLURM_JOB_ID" => Some("77".to_owned()),
            "SLURM_ARRAY_JOB_ID" => Some("70".to_owned()),
            "USER" => Some("ada".to_owned()),
            "TELEM_TOKEN" | "AWS_SECRET_ACCESS_KEY" => Some("hush".to_owned()),
            _ => None,
        };
        let start = Start {
            id: "77".to_owned(),
            command: vec!["python".into(), "train.py".into()],
            node: "n1".to_owned(),
            level: 2,
            time: Timestamp::from_micros(1_767_225_600_000_000),
            labels: RunLabels { name: Some("trial".to_owned()), ..RunLabels::default() },
        };
        let job = started(&start, env);
        assert_eq!((&job["command"], &job["name"]), (&json!(["python", "train.py"]), &json!("trial")));
        let scheduler = json!({"SLURM_JOB_ID": "77", "SLURM_ARRAY_JOB_ID": "70"});
        assert_eq!((&job["user"], &job["scheduler"], &job["parent"]), (&json!("ada"), &scheduler, &json!("70")));
        assert!(job["host"]["cores"].as_u64().unwrap() >= 1 && job["host"]["memory_bytes"].as_u64().unwrap() > 0);
        assert!(!job.to_string().contains("hush") && job.get("end").is_none());

        let end = Timestamp::from_micros(1_767_225_601_500_000);
        let done = ended(job.clone(), Some(Ending::Exited(3)), end);
        assert_eq!((&done["exit_code"], &done["id"]), (&json!(3), &json!("77")));
        assert!(done["end"].as_str().unwrap() > done["start"].as_str().unwrap(), "{done}");
        assert_eq!(ended(job.clone(), Some(Ending::Killed { signal: 9 }), end)["signal"], 9);
        let unknown = ended(job, None, end);
        assert!(unknown.get("end").is_some() && unknown.get("exit_code").is_none() && unknown.get("signal").is_none());
    }
}
