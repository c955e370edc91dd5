//! What a process tells of its job, and whether it still lives.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value as Json, json};
use telem_ingest::rank;

use super::JobId;
use crate::config;
use crate::settings;

/// Most words of a command that are described, and their longest.
const COMMAND_WORDS_MAX: usize = 256;
const COMMAND_BYTES_MAX: u64 = 64 << 10;
/// Where the time at which a process was started stands in its `stat`, counted after its name.
const START_FIELD: usize = 19;

/// One process, and no other that gets its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMark {
    pid: u32,
    started: u64,
}

impl ProcessMark {
    /// `None` if there is none of that number.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started = stat.rsplit_once(") ")?.1.split(' ').nth(START_FIELD)?.parse().ok()?;
        Some(Self { pid, started })
    }

    pub fn pid(self) -> u32 {
        self.pid
    }

    /// When it was started, as the kernel counts.
    pub fn started(self) -> u64 {
        self.started
    }

    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// What a process of this user tells of its job: the first one that writes stands for all.
pub fn describe_process(id: &JobId, pid: u32) -> Map<String, Json> {
    let environment = rank::environment_of(pid).unwrap_or_default();
    let proc = format!("/proc/{pid}");
    let text = |name: &str| rank::variable(&environment, name).map(|value| String::from_utf8_lossy(value).into_owned());
    let variables = settings::SCHEDULER_VARIABLES.iter();
    let scheduler: Map<String, Json> =
        variables.filter_map(|name| Some(((*name).to_owned(), Json::String(text(name)?)))).collect();
    let mut fields = Map::new();
    let mut add = |name: &str, value: Option<Json>| value.map(|value| fields.insert(name.to_owned(), value));
    add("parent", settings::parent(&id.0, text).map(Json::String));
    add("name", text("TELEM_NAME").map(Json::String));
    add("command", command(Path::new(&proc)));
    add("user", text("USER").or_else(|| text("LOGNAME")).map(Json::String));
    let cwd = fs::read_link(format!("{proc}/cwd")).ok();
    add("cwd", cwd.map(|dir| dir.to_string_lossy().into_owned().into()));
    add("pid", Some(pid.into()));
    add("cgroup", settings::cgroup(&pid.to_string()).map(Json::String));
    add("host", Some(json!({ "name": config::host_name() })));
    add("scheduler", Some(Json::Object(scheduler)));
    fields
}

fn command(proc: &Path) -> Option<Json> {
    let mut text = Vec::new();
    let file = fs::File::open(proc.join("cmdline")).ok()?;
    file.take(COMMAND_BYTES_MAX).read_to_end(&mut text).ok()?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text).split(|byte| *byte == 0).take(COMMAND_WORDS_MAX);
    let words: Vec<String> = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    (!text.is_empty()).then(|| words.into())
}
