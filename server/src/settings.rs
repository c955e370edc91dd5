//! What a run was started with, as its user tells it: settings, tags, and the commit that its directory stands at.

pub(crate) mod yaml;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::{Map, Value as Json};

/// Most settings of a run, and most tags.
pub const SETTINGS_MAX: usize = 1_000;
/// Longest name of a setting or tag, in bytes.
pub const SETTING_NAME_BYTES_MAX: usize = 256;
/// Longest value of one, in bytes.
pub const SETTING_BYTES_MAX: usize = 4 << 10;
/// All settings of a run together, and all tags, with their names: a description beyond its own limit would be lost.
pub const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Longest file of settings.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Of a file of git's: a reference, or the list of packed ones.
const GIT_BYTES_MAX: u64 = 4 << 20;

/// What schedulers and launchers say about a job.
pub const SCHEDULER_VARIABLES: [&str; 36] = [
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_MEM_PER_NODE",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURM_RESTART_COUNT",
    "SLURM_CLUSTER_NAME",
    "SLURM_SUBMIT_DIR",
    "PBS_JOBID",
    "PBS_JOBNAME",
    "PBS_QUEUE",
    "PBS_ARRAY_INDEX",
    "PBS_O_WORKDIR",
    "LSB_JOBID",
    "LSB_JOBNAME",
    "LSB_JOBINDEX",
    "LSB_QUEUE",
    "LSB_DJOB_NUMPROC",
    "FLUX_JOB_ID",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
];

/// Longest list of control groups that is read.
const CGROUP_BYTES_MAX: u64 = 64 << 10;

/// The control group of a process, which holds all processes of its job where a scheduler or a container made it;
/// `None` where that is the whole machine. `process` is a number, or `self`.
pub fn cgroup(process: &str) -> Option<String> {
    let mut text = String::new();
    let file = std::fs::File::open(format!("/proc/{process}/cgroup")).ok()?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, CGROUP_BYTES_MAX), &mut text).ok()?;
    cgroup_of(&text)
}

/// That of the one hierarchy of version 2, else that which counts memory.
fn cgroup_of(text: &str) -> Option<String> {
    let path = |is_it: &dyn Fn(&str) -> bool| {
        let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        lines
            .into_iter()
            .find(|(controllers, path)| is_it(controllers) && *path != "/")
            .map(|(_, path)| path.to_owned())
    };
    path(&|controllers| controllers.is_empty())
        .or_else(|| path(&|controllers| controllers.split(',').any(|one| one == "memory")))
}

/// The job that a job is a part of: that of telem in which it was started, else the scheduler's array.
pub fn parent(id: &str, env: impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = ["TELEM_JOB", "SLURM_ARRAY_JOB_ID", "PBS_ARRAY_ID"].into_iter().filter_map(env);
    named.into_iter().find(|parent| !parent.is_empty() && parent != id)
}

/// What its user calls a run, and started it with.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunLabels {
    pub name: Option<String>,
    pub tags: Map<String, Json>,
    pub settings: Map<String, Json>,
}

impl RunLabels {
    /// The description of a job with these labels; what it had under the same names is replaced.
    ///
    /// # Errors
    /// A sentence for the user, for a name, a value or a number of them over its limit.
    pub fn onto(self, mut description: Json) -> Result<Json, String> {
        let old = |name: &str| description[name].as_object().cloned().unwrap_or_default();
        let (mut settings, mut tags) = (old("settings"), old("tags"));
        flatten(&mut settings, "", self.settings)?;
        flatten(&mut tags, "", self.tags)?;
        check_sum("settings", &settings)?;
        check_sum("tags", &tags)?;
        description["settings"] = Json::Object(settings);
        description["tags"] = Json::Object(tags);
        if let Some(name) = self.name {
            check_name(&name)?;
            description["name"] = Json::String(name);
        }
        Ok(description)
    }
}

/// A description as it is written anew, with the labels that the job gave itself meanwhile.
pub fn kept(mut description: Json, stored: Option<&Json>) -> Json {
    // What another job left in the same database is not of this one.
    let is_same = |stored: &&Json| stored["start"].is_null() || stored["start"] == description["start"];
    let Some(stored) = stored.filter(is_same) else { return description };
    for name in ["settings", "tags"] {
        if let Some(found) = stored[name].as_object() {
            let mut all = description[name].as_object().cloned().unwrap_or_default();
            all.extend(found.clone());
            description[name] = Json::Object(all);
        }
    }
    if stored["name"].is_string() {
        description["name"] = stored["name"].clone();
    }
    description
}

/// Whoever reads a description to write it changed holds this meanwhile, so that no change is lost.
pub fn turn() -> MutexGuard<'static, ()> {
    static CHANGES: Mutex<()> = Mutex::new(());
    CHANGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings from `--config`: each text is `KEY=VALUE` or the name of a file with an object, in JSON, YAML (`.yaml`, `.yml`)
/// or TOML (`.toml`). What comes later wins. Objects in objects become names with dots between; lists stay JSON.
///
/// # Errors
/// A sentence for the user.
pub fn settings(texts: &[String]) -> Result<Map<String, Json>, String> {
    let mut found = Map::new();
    for text in texts {
        match text.split_once('=') {
            Some((key, value)) => add(&mut found, key, scalar(value))?,
            None => {
                let object = read(Path::new(text))?;
                flatten(&mut found, "", object)?;
            }
        }
    }
    check_sum("settings", &found)?;
    Ok(found)
}

/// Tags from `--tag KEY=VALUE`.
///
/// # Errors
/// A sentence for the user.
pub fn tags(texts: &[String]) -> Result<Map<String, Json>, String> {
    let mut found = Map::new();
    for text in texts {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("'{text}' is no tag: expected KEY=VALUE"))?;
        add(&mut found, key, Json::String(value.to_owned()))?;
    }
    check_sum("tags", &found)?;
    Ok(found)
}

/// # Errors
/// A sentence for the user, for a name over its limit.
pub fn check_name(name: &str) -> Result<(), String> {
    check_bytes("the name of a run", name.len())
}

fn check_sum(what: &str, all: &Map<String, Json>) -> Result<(), String> {
    let bytes: usize = all.iter().map(|(name, value)| name.len() + value.to_string().len()).sum();
    match bytes > SETTINGS_BYTES_MAX {
        true => Err(format!("the {what} have {bytes} bytes together; at most {SETTINGS_BYTES_MAX} are kept")),
        false => Ok(()),
    }
}

/// A number, `true`, `false` and `null` are what they are in JSON; everything else is a text.
pub fn scalar(text: &str) -> Json {
    match serde_json::from_str(text) {
        Ok(value @ (Json::Number(_) | Json::Bool(_) | Json::Null)) => value,
        _ => Json::String(text.to_owned()),
    }
}

fn read(path: &Path) -> Result<Map<String, Json>, String> {
    let name = path.display();
    let found = fs::metadata(path)
        .map_err(|error| format!("--config {name} is neither KEY=VALUE nor a file that can be read: {error}"))?;
    if !found.is_file() {
        return Err(format!("--config {name} is no regular file: it is read more than once"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(format!("--config {name} has {} bytes; at most {FILE_BYTES_MAX} are read", found.len()));
    }
    let text = fs::read_to_string(path).map_err(|error| format!("--config {name} cannot be read: {error}"))?;
    let (language, parsed) = parse(path, &text);
    match parsed {
        Ok(Json::Object(object)) => Ok(object),
        Ok(_) => Err(format!("--config {name} holds {language} that is no object: expected {{\"lr\": 0.1, ...}}")),
        Err(error) => Err(format!("--config {name} is no {language}: {error}")),
    }
}

/// What a file holds, by the end of its name.
fn parse(path: &Path, text: &str) -> (&'static str, Result<Json, String>) {
    match path.extension().and_then(|end| end.to_str()) {
        Some("yaml" | "yml") => ("YAML", yaml::parse(text)),
        Some("toml") => {
            let table = toml::from_str::<toml::Table>(text).map_err(|error| error.to_string());
            ("TOML", table.map(|table| of_toml(toml::Value::Table(table))))
        }
        _ => ("JSON", serde_json::from_str(text).map_err(|error| error.to_string())),
    }
}

/// Times, and numbers that JSON has not, become text.
fn of_toml(value: toml::Value) -> Json {
    match value {
        toml::Value::String(text) => Json::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| Json::String(number.to_string()), Json::Number)
        }
        toml::Value::Boolean(value) => Json::Bool(value),
        toml::Value::Datetime(time) => Json::String(time.to_string()),
        toml::Value::Array(items) => Json::Array(items.into_iter().map(of_toml).collect()),
        toml::Value::Table(table) => {
            Json::Object(table.into_iter().map(|(key, value)| (key, of_toml(value))).collect())
        }
    }
}

fn flatten(into: &mut Map<String, Json>, before: &str, object: Map<String, Json>) -> Result<(), String> {
    for (key, value) in object {
        let name = if before.is_empty() { key } else { format!("{before}.{key}") };
        match value {
            Json::Object(inner) => flatten(into, &name, inner)?,
            Json::Array(_) => add(into, &name, Json::String(value.to_string()))?,
            scalar => add(into, &name, scalar)?,
        }
    }
    Ok(())
}

fn add(into: &mut Map<String, Json>, key: &str, value: Json) -> Result<(), String> {
    if key.is_empty() {
        return Err("a setting without a name: expected KEY=VALUE".to_owned());
    }
    if key.len() > SETTING_NAME_BYTES_MAX {
        return Err(format!(
            "the name of a setting has {} bytes; at most {SETTING_NAME_BYTES_MAX} are kept",
            key.len()
        ));
    }
    check_bytes(&format!("the setting '{key}'"), value.as_str().map_or(0, str::len))?;
    into.insert(key.to_owned(), value);
    match into.len() > SETTINGS_MAX {
        true => Err(format!("more than {SETTINGS_MAX} settings")),
        false => Ok(()),
    }
}

fn check_bytes(what: &str, found: usize) -> Result<(), String> {
    match found > SETTING_BYTES_MAX {
        true => Err(format!("{what} has {found} bytes; at most {SETTING_BYTES_MAX} are kept")),
        false => Ok(()),
    }
}

/// The commit and the branch that the working copy around `dir` stands at, read from git's own files; `None` where there
/// is none, or it cannot be read.
pub fn git(dir: &Path) -> Option<Json> {
    let git = dir.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists())?;
    // In a worktree or a submodule `.git` is a file that says where.
    let git = match git.is_dir() {
        true => git,
        false => {
            let text = small(&git)?;
            git.parent()?.join(text.strip_prefix("gitdir:")?.trim())
        }
    };
    let head = small(&git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref:").map(str::trim) else {
        return Some(serde_json::json!({ "commit": commit(&head)? }));
    };
    // References of a worktree stand with those of its main copy.
    let common = small(&git.join("commondir")).map_or_else(|| git.clone(), |text| git.join(text.trim()));
    let places: [PathBuf; 2] = [git.join(reference), common.join(reference)];
    let loose = places.iter().find_map(|place| commit(&small(place)?));
    let commit = loose.or_else(|| {
        let packed = small(&common.join("packed-refs"))?;
        packed.lines().find_map(|line| commit(line.strip_suffix(reference)?.trim_end()))
    });
    if reference.len() > SETTING_BYTES_MAX {
        return None;
    }
    let branch = reference.strip_prefix("refs/heads/").unwrap_or(reference);
    Some(serde_json::json!({ "commit": commit?, "branch": branch }))
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let is_hash = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned())
}

fn small(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    (found.is_file() && found.len() <= GIT_BYTES_MAX).then(|| fs::read_to_string(path).ok()).flatten()
}

#[cfg(test)]
mod tests;
