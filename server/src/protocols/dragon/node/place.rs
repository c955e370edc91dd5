//! How programs find Dragon's port: by the number that they expect, or by a YAML that telem writes; and how Python's
//! imports of `dragon.telemetry` find telem's classes.
//!
//! Both lie beside the socket, which is at the same path on all nodes of a job, so that variables of the environment
//! lead the programs of each node to what is on that node.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::port::DEFAULT_PORT;
use super::{DragonOptions, DragonPort};
use crate::private_file;
use crate::protocols::dragon::config::PORT_KEY;
use crate::protocols::dragon::python_path;

/// The end of its name.
const EXTENSION: &str = "dragon.yaml";
/// What Dragon's class reads.
const LEVEL_VARIABLE: &str = "DRAGON_TELEMETRY_LEVEL";
const CONFIG_VARIABLE: &str = "DRAGON_TELEMETRY_CONFIG";
/// The folder with the Python client, and what leads Python there.
const PYTHON_EXTENSION: &str = "python";
const PYTHON_VARIABLE: &str = "PYTHONPATH";
/// Names by which it asks, which no proxy must be asked for.
const LOCAL_NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// What telem wrote for programs, removed when this is dropped.
#[derive(Debug, Default)]
pub struct DragonFiles {
    yaml: Option<PathBuf>,
    python: Option<PathBuf>,
}

impl Drop for DragonFiles {
    fn drop(&mut self) {
        let removed = [self.yaml.as_ref().map(fs::remove_file), self.python.as_ref().map(fs::remove_dir_all)];
        for error in removed.into_iter().flatten().filter_map(Result::err) {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(%error, "files for Dragon's programs stay");
            }
        }
    }
}

/// Where programs find Dragon's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DragonPlace {
    pub port: u16,
    /// The port that they expect; 0 if they expect none.
    pub wanted: u16,
    /// Why it is another than that.
    pub moved: Option<String>,
    /// The user's YAML.
    pub file: Option<PathBuf>,
    /// Ours; `None` where it could not be written.
    pub own_file: Option<PathBuf>,
    /// What stands first in `PYTHONPATH`; `None` where it could not be written.
    pub python: Option<PathBuf>,
    pub is_of_many: bool,
}

impl DragonPlace {
    /// Writes the YAML and the Python client beside `socket`.
    pub fn publish(options: &DragonOptions, socket: &Path) -> (Self, DragonFiles) {
        let path = socket.with_extension(EXTENSION);
        let written = private_file::write(&path, text(&options.port, &options.keys).as_bytes());
        if let Err(error) = &written {
            tracing::warn!(
                "{} cannot be written, which tells Dragon's programs of port {}: {error}",
                path.display(),
                options.port.number()
            );
        }
        let own_file = written.ok().map(|()| path);
        let dir = socket.with_extension(PYTHON_EXTENSION);
        let python = python_path::write(&dir);
        if let Err(error) = &python {
            tracing::warn!("{} cannot be written, which answers imports of dragon.telemetry: {error}", dir.display());
        }
        let files = DragonFiles { yaml: own_file.clone(), python: python.is_ok().then_some(dir) };
        let place = Self {
            port: options.port.number(),
            wanted: options.port.wanted(),
            moved: options.port.moved().map(str::to_owned),
            file: options.file.clone(),
            own_file,
            python: python.ok(),
            is_of_many: options.is_of_many,
        };
        (place, files)
    }

    /// The YAML that programs need to find the port; `None` where they find it without one.
    fn needed(&self) -> Option<&Path> {
        let own = self.own_file.as_deref();
        if self.port != self.wanted || self.is_of_many {
            return own;
        }
        self.file.as_deref().or_else(|| own.filter(|_| self.port != DEFAULT_PORT))
    }

    /// What is added to the environment of a command at `level`; `variable` is what its environment has.
    pub fn environment(&self, level: u8, variable: impl Fn(&str) -> Option<String>) -> Vec<(String, OsString)> {
        let mut told: Vec<(String, OsString)> = vec![(LEVEL_VARIABLE.to_owned(), level.to_string().into())];
        if let Some(path) = self.needed() {
            told.push((CONFIG_VARIABLE.to_owned(), path.into()));
        }
        if let Some(entry) = &self.python {
            let inherited = variable(PYTHON_VARIABLE).map(OsString::from);
            told.push((PYTHON_VARIABLE.to_owned(), python_path::with_first(entry, inherited.as_deref())));
        }
        // Of both spellings the small one counts, and each may be the only one that is set.
        for (name, other) in [("NO_PROXY", "no_proxy"), ("no_proxy", "NO_PROXY")] {
            let before = variable(name).or_else(|| variable(other)).unwrap_or_default();
            told.push((name.to_owned(), without_proxy(&before).into()));
        }
        told
    }

    /// What its user is told, in a line.
    pub fn sentence(&self) -> String {
        let Self { port, wanted, .. } = self;
        let moved = self.moved.as_ref().map(|why| format!(", because {wanted} {why}")).unwrap_or_default();
        let sends = format!("Dragon's programs send to http://localhost:{port}{moved}");
        match self.needed() {
            Some(path) => format!("{sends}; {CONFIG_VARIABLE}={} tells them so", path.display()),
            None if self.moved.is_some() => format!("{sends}; no YAML tells them so"),
            None => sends,
        }
    }
}

/// The environment of a command that no server answers: the class must not wait for one.
pub fn environment_without_a_port() -> Vec<(String, OsString)> {
    vec![(LEVEL_VARIABLE.to_owned(), "0".into())]
}

/// `names`, and those of this machine.
fn without_proxy(names: &str) -> String {
    let mut all: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if !all.contains(&"*") {
        let missing: Vec<&str> = LOCAL_NAMES.into_iter().filter(|name| !all.contains(name)).collect();
        all.extend(missing);
    }
    all.join(",")
}

/// The keys of the user's YAML with another port, in what YAML and JSON have in common.
fn text(port: &DragonPort, keys: &Map<String, Json>) -> String {
    let mut text = "# Written by telem: where Dragon's programs on this node send to.\n".to_owned();
    let mut line = |key: &str, value: &str| {
        text.push_str(&format!("{}: {value}\n", Json::from(key)));
    };
    for (key, value) in keys.iter().filter(|(key, _)| *key != PORT_KEY) {
        match value {
            // Readers of YAML 1.1 take 1e-5 for a text.
            Json::Number(number) if number.is_f64() => {
                line(key, &format!("{:?}", PlainFloat(number.as_f64().unwrap_or_default())))
            }
            value => line(key, &value.to_string()),
        }
    }
    // A text, as Dragon's own default is.
    line(PORT_KEY, &Json::from(port.number().to_string()).to_string());
    text
}

/// A float without an exponent.
struct PlainFloat(f64);

impl std::fmt::Debug for PlainFloat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.to_string();
        let point = if text.contains('.') { "" } else { ".0" };
        write!(f, "{text}{point}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::protocols::dragon::config::DragonConfig;

    fn place(port: u16, wanted: u16, file: Option<&str>, is_of_many: bool) -> DragonPlace {
        let moved = (port != wanted).then(|| "was taken".to_owned());
        let own_file = Some("/run/own.yaml".into());
        DragonPlace { port, wanted, moved, file: file.map(PathBuf::from), own_file, python: None, is_of_many }
    }

    fn told(place: &DragonPlace, has: &[(&str, &str)]) -> BTreeMap<String, String> {
        let variable = |name: &str| has.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let told = place.environment(2, variable);
        told.into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect()
    }

    #[test]
    fn programs_find_the_port_by_its_number_or_by_a_yaml() {
        let config = |place: &DragonPlace| told(place, &[]).get(CONFIG_VARIABLE).cloned();
        assert_eq!(config(&place(4243, 4243, None, false)), None);
        assert_eq!(config(&place(4300, 4300, Some("/home/t.yaml"), false)).as_deref(), Some("/home/t.yaml"));
        for moved in [place(4244, 4243, None, false), place(4301, 4300, Some("/home/t.yaml"), false)] {
            assert_eq!(config(&moved).as_deref(), Some("/run/own.yaml"));
            assert!(moved.sentence().contains("was taken; DRAGON_TELEMETRY_CONFIG=/run/own.yaml"));
        }
        assert_eq!(config(&place(4243, 4243, None, true)).as_deref(), Some("/run/own.yaml"), "of each node its own");
        let unwritten = DragonPlace { own_file: None, ..place(4244, 4243, None, false) };
        assert!(config(&unwritten).is_none() && unwritten.sentence().contains("no YAML tells them so"));
        assert_eq!(told(&place(4243, 4243, None, false), &[])[LEVEL_VARIABLE], "2");
    }

    #[test]
    fn no_proxy_is_asked_for_this_machine() {
        let place = place(4243, 4243, None, false);
        let both = |has: &[(&str, &str)]| {
            let told = told(&place, has);
            (told["NO_PROXY"].clone(), told["no_proxy"].clone())
        };
        let local = "localhost,127.0.0.1".to_owned();
        assert_eq!(both(&[]), (local.clone(), local.clone()));
        let corporate = format!("corp,{local}");
        assert_eq!(both(&[("NO_PROXY", "corp")]), (corporate.clone(), corporate));
        assert_eq!(both(&[("NO_PROXY", "a"), ("no_proxy", "b")]), (format!("a,{local}"), format!("b,{local}")));
        assert_eq!(both(&[("no_proxy", "127.0.0.1, localhost")]).1, "127.0.0.1,localhost");
        assert_eq!(both(&[("no_proxy", "*")]).1, "*");
    }

    #[test]
    fn the_yaml_has_the_keys_of_the_users_one_and_another_port() {
        let text_of_user = "small: 0.00001\ndump_dir: \"/a: b\"\ntsdb_server_port: 1\nzeal: [1, {a: ~}]\n";
        let user = DragonConfig::parse(Path::new("user.yaml"), text_of_user).unwrap();
        let port = DragonPort::claim(0).unwrap();
        let written = text(&port, &user.keys);
        assert!(written.contains("\"small\": 0.00001\n"), "{written}");
        let own = DragonConfig::parse(Path::new("own.yaml"), &written).unwrap();
        let mut expected = user.keys;
        expected.insert(PORT_KEY.to_owned(), Json::from(port.number().to_string()));
        assert_eq!(own.keys, expected);
    }

    #[test]
    fn the_yaml_and_the_python_client_are_private_and_go_with_the_service() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let port = DragonPort::claim(0).unwrap();
        let options = DragonOptions { port, keys: Map::new(), file: None, data_base: None, is_of_many: false };
        let (place, files) = DragonPlace::publish(&options, &dir.path().join("job.sock"));
        let path = place.own_file.clone().unwrap();
        let entry = place.python.clone().unwrap();
        assert!(entry.starts_with(dir.path().join("job.python")) && entry.join("sitecustomize.py").is_file());
        let told = place.environment(2, |name| (name == PYTHON_VARIABLE).then(|| "/mine".to_owned()));
        let path_of_python = told.into_iter().find(|(name, _)| name == PYTHON_VARIABLE).unwrap().1;
        assert_eq!(path_of_python.to_str().unwrap(), format!("{}:/mine", entry.display()));
        assert_eq!(path, dir.path().join("job.dragon.yaml"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(files);
        assert!(!path.exists() && !entry.exists());
    }
}
