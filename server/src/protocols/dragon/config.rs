//! The YAML that Dragon Telemetry is configured with: every key that its code reads, with its type.
//!
//! What a key means here is decided where a service is started (`cli/dragon.rs`).

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value as Json};

use crate::settings::yaml;

/// Largest file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest time that a key may say, in seconds.
const SECONDS_MAX: f64 = 1e9;
/// The key of Dragon's port.
pub const PORT_KEY: &str = "tsdb_server_port";
/// Every key, in the order of Dragon's own table.
pub const KEYS: [&str; 11] = [
    "aggregator_port",
    PORT_KEY,
    "collector_rate",
    "default_tmdb_window",
    "default_tmdb_dir",
    "delete_tmdb",
    "remote_tunnel_node",
    "remote_tunnel_port",
    "dump_node",
    "dump_dir",
    "auth_key",
];

#[derive(Debug, thiserror::Error)]
pub enum DragonConfigError {
    #[error("the telemetry config {} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the telemetry config {} is no regular file: it is read more than once", path.display())]
    NotAFile { path: PathBuf },
    #[error("the telemetry config {} has {found} bytes; at most {FILE_BYTES_MAX} are read", path.display())]
    Large { path: PathBuf, found: u64 },
    #[error("the telemetry config {} is no YAML: {why}", path.display())]
    NotYaml { path: PathBuf, why: String },
    #[error("the telemetry config {} holds no keys but {found}: expected lines such as {PORT_KEY}: 4243", path.display())]
    NotAMap { path: PathBuf, found: String },
    #[error("the telemetry config {}: {key} is {found}: expected {expected}", path.display())]
    Key { path: PathBuf, key: &'static str, found: String, expected: &'static str },
}

/// What such a file says. A key whose value is null counts as missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DragonConfig {
    pub path: PathBuf,
    pub aggregator_port: Option<u16>,
    pub tsdb_server_port: Option<u16>,
    pub collector_rate: Option<Duration>,
    pub default_tmdb_window: Option<Duration>,
    pub default_tmdb_dir: Option<PathBuf>,
    pub delete_tmdb: Option<bool>,
    pub remote_tunnel_node: Option<String>,
    pub remote_tunnel_port: Option<u16>,
    pub dump_node: Option<String>,
    pub dump_dir: Option<String>,
    pub auth_key: Option<String>,
    /// Keys that Dragon does not have.
    pub unknown: Vec<String>,
    /// All of it.
    pub keys: Map<String, Json>,
}

impl DragonConfig {
    /// # Errors
    /// [`DragonConfigError`], which names the file, and the key where one is wrong.
    pub fn read(path: &Path) -> Result<Self, DragonConfigError> {
        let read_error = |source| DragonConfigError::Read { path: path.to_path_buf(), source };
        let found = fs::metadata(path).map_err(read_error)?;
        if !found.is_file() {
            return Err(DragonConfigError::NotAFile { path: path.to_path_buf() });
        }
        if found.len() > FILE_BYTES_MAX {
            return Err(DragonConfigError::Large { path: path.to_path_buf(), found: found.len() });
        }
        Self::parse(path, &fs::read_to_string(path).map_err(read_error)?)
    }

    /// # Errors
    /// As [`DragonConfig::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, DragonConfigError> {
        let parsed = yaml::parse(text);
        let parsed = parsed.map_err(|why| DragonConfigError::NotYaml { path: path.to_path_buf(), why })?;
        let keys = match parsed {
            Json::Object(keys) => keys,
            Json::Null => Map::new(),
            other => return Err(DragonConfigError::NotAMap { path: path.to_path_buf(), found: shown(&other) }),
        };
        let file = DragonKeys { path, keys: &keys };
        Ok(Self {
            path: path.to_path_buf(),
            aggregator_port: file.port("aggregator_port")?,
            tsdb_server_port: file.port(PORT_KEY)?,
            collector_rate: file.seconds("collector_rate")?,
            default_tmdb_window: file.seconds("default_tmdb_window")?,
            default_tmdb_dir: file.text("default_tmdb_dir", "a directory")?.map(PathBuf::from),
            delete_tmdb: file.switch("delete_tmdb")?,
            remote_tunnel_node: file.node("remote_tunnel_node")?,
            remote_tunnel_port: file.port("remote_tunnel_port")?,
            dump_node: file.text("dump_node", "the name of a host")?,
            dump_dir: file.text("dump_dir", "a directory")?,
            auth_key: file.text("auth_key", "a text")?,
            unknown: keys.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned().collect(),
            keys,
        })
    }
}

/// The name of a host, perhaps with a user before it, that `ssh` can take for nothing else.
pub fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}

/// A file while its keys are checked.
struct DragonKeys<'a> {
    path: &'a Path,
    keys: &'a Map<String, Json>,
}

impl DragonKeys<'_> {
    fn get(&self, key: &'static str) -> Option<&Json> {
        self.keys.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &'static str, found: &Json, expected: &'static str) -> DragonConfigError {
        // It is a secret.
        let found = if key == "auth_key" { "something else".to_owned() } else { shown(found) };
        DragonConfigError::Key { path: self.path.to_path_buf(), key, found, expected }
    }

    /// Dragon's own default is a text.
    fn port(&self, key: &'static str) -> Result<Option<u16>, DragonConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let port = match value {
            Json::String(text) => text.trim().parse().ok(),
            value => value.as_u64().and_then(|port| u16::try_from(port).ok()),
        };
        port.map(Some).ok_or_else(|| self.wrong(key, value, "a port, from 0 (any free one) to 65535"))
    }

    fn seconds(&self, key: &'static str) -> Result<Option<Duration>, DragonConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let seconds = match value {
            Json::String(text) => text.trim().parse().ok(),
            value => value.as_f64(),
        };
        let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= SECONDS_MAX);
        let time = seconds.map(|seconds: f64| Duration::from_millis((seconds * 1e3).round() as u64));
        let time = time.filter(|time| !time.is_zero());
        time.map(Some).ok_or_else(|| self.wrong(key, value, "a number of seconds above 0"))
    }

    fn switch(&self, key: &'static str) -> Result<Option<bool>, DragonConfigError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let switch = match value {
            Json::Bool(switch) => Some(*switch),
            Json::String(text) if text == "0" || text == "1" => Some(text == "1"),
            value => value.as_u64().filter(|number| *number <= 1).map(|number| number == 1),
        };
        switch.map(Some).ok_or_else(|| self.wrong(key, value, "0 or 1"))
    }

    fn text(&self, key: &'static str, expected: &'static str) -> Result<Option<String>, DragonConfigError> {
        match self.get(key) {
            None => Ok(None),
            Some(Json::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            // A key of digits alone is a number in YAML.
            Some(Json::Number(number)) if key == "auth_key" => Ok(Some(number.to_string())),
            Some(other) => Err(self.wrong(key, other, expected)),
        }
    }

    fn node(&self, key: &'static str) -> Result<Option<String>, DragonConfigError> {
        let Some(node) = self.text(key, "the name of a host")? else { return Ok(None) };
        if is_host(&node) {
            return Ok(Some(node));
        }
        Err(self.wrong(key, &Json::String(node), "the name of a host, perhaps with USER@ before it"))
    }
}

/// As much as an error shows.
fn shown(value: &Json) -> String {
    let text = value.to_string();
    let mut shown: String = text.chars().take(64).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}
