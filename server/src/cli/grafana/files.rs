//! The files that Grafana reads, and how they are written.
//!
//! Everything is decided before the first byte is written: a file that telem did not write stops the command.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use telem_engine::Timestamp;

use super::rfc3339;
use crate::token::Token;

const SOURCE: &str = include_str!("../../../../grafana/provisioning/datasources/telem.yaml");
const PROVIDER: &str = include_str!("../../../../grafana/provisioning/dashboards/telem.yaml");
/// Every dashboard: its uid, and its JSON.
pub const DASHBOARDS: [(&str, &str); 4] = [
    ("telem-node", include_str!("../../../../grafana/dashboards/telem-node.json")),
    ("telem-custom", include_str!("../../../../grafana/dashboards/telem-custom.json")),
    ("telem-mpi", include_str!("../../../../grafana/dashboards/telem-mpi.json")),
    ("telem-self", include_str!("../../../../grafana/dashboards/telem-self.json")),
];

/// How a file of provisioning that telem wrote begins.
const MARK: &str = "# Part of telem: `telem grafana` writes this file";
/// The placeholders in [`SOURCE`] and [`PROVIDER`].
const URL: &str = "http://localhost:4242/grafana";
const PATH: &str = "/var/lib/grafana/dashboards/telem";
const NO_TOKEN: &str = "      # httpHeaderName1: Authorization
    # secureJsonData:
    #   httpHeaderValue1: Bearer ${TELEM_TOKEN}
";

/// A file that is there already is read up to here, to see whose it is.
const KNOWN_BYTES_MAX: u64 = 4 << 20;
const FOR_ALL: u32 = 0o644;
const FOR_US: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{} was not written by telem ({why}); move it away, or choose another directory", path.display())]
    Foreign { path: PathBuf, why: &'static str },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("bug in telem: its {what} is not as expected")]
    Template { what: &'static str },
}

/// What the files are to say.
#[derive(Clone, Debug)]
pub struct DashboardOptions {
    pub url: String,
    pub token: Option<Token>,
    pub shown: Option<DashboardRange>,
}

/// The time range at which dashboards open, in whole seconds and never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DashboardRange {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl DashboardRange {
    /// A range that shows samples at `first` and at `last`; `None` beyond what a calendar holds.
    pub fn around(first: Timestamp, last: Timestamp) -> Option<DashboardRange> {
        let shown = DashboardRange {
            from: Timestamp::from_seconds(first.seconds()),
            to: Timestamp::from_seconds(last.seconds().saturating_add(1)),
        };
        (rfc3339(shown.from).is_some() && rfc3339(shown.to).is_some()).then_some(shown)
    }

    /// What follows the address of a dashboard that is to open there.
    pub fn in_a_link(&self) -> String {
        format!("?from={}&to={}", self.from.millis(), self.to.millis())
    }
}

/// One file as it is to be; without `Debug`, since it may hold a token.
pub struct OwnFiles {
    /// Below the directory that was asked for.
    pub path: PathBuf,
    pub content: String,
    mode: u32,
    kind: DashboardFile,
}

/// By what a file that is there already is known as ours.
#[derive(Clone, Copy, Debug)]
enum DashboardFile {
    Provisioning,
    Dashboard { uid: &'static str },
}

/// All files for a Grafana that finds them in `dir`, an absolute path.
///
/// # Errors
/// Template, which no input can cause.
pub fn files(dir: &Path, wanted: &DashboardOptions) -> Result<Vec<OwnFiles>, FilesError> {
    let provisioning =
        |path: &str, content, mode| OwnFiles { path: path.into(), content, mode, kind: DashboardFile::Provisioning };
    let source = source(wanted)?;
    let source_mode = if wanted.token.is_some() { FOR_US } else { FOR_ALL };
    let dashboards = dir.join("dashboards");
    let provider = replaced(PROVIDER, "provider", PATH, &scalar(&dashboards.to_string_lossy()))?;
    let mut files = vec![
        provisioning("provisioning/datasources/telem.yaml", source, source_mode),
        provisioning("provisioning/dashboards/telem.yaml", provider, FOR_ALL),
    ];
    for (uid, text) in DASHBOARDS {
        let path = Path::new("dashboards").join(format!("{uid}.json"));
        let content = dashboard(text, wanted.shown.as_ref())?;
        files.push(OwnFiles { path, content, mode: FOR_ALL, kind: DashboardFile::Dashboard { uid } });
    }
    Ok(files)
}

fn source(wanted: &DashboardOptions) -> Result<String, FilesError> {
    let what = "data source";
    let text = replaced(SOURCE, what, URL, &scalar(&format!("{}/grafana", wanted.url)))?;
    let Some(token) = &wanted.token else { return Ok(text) };
    let header = format!(
        "      httpHeaderName1: Authorization\n    secureJsonData:\n      httpHeaderValue1: {}\n",
        scalar(&format!("Bearer {}", token.secret()))
    );
    replaced(&text, what, NO_TOKEN, &header)
}

fn dashboard(text: &str, shown: Option<&DashboardRange>) -> Result<String, FilesError> {
    let Some(shown) = shown else { return Ok(text.to_owned()) };
    let broken = FilesError::Template { what: "dashboard" };
    let Ok(mut json) = serde_json::from_str::<Json>(text) else { return Err(broken) };
    json["time"] = json!({"from": rfc3339(shown.from), "to": rfc3339(shown.to)});
    json["refresh"] = json!("");
    let mut text = serde_json::to_string_pretty(&json).map_err(|_| broken)?;
    text.push('\n');
    Ok(text)
}

/// `text` as a value in Grafana's YAML, where `$` starts the name of a variable of the environment.
fn scalar(text: &str) -> String {
    Json::from(text.replace('$', "$$")).to_string()
}

/// `text` with each placeholder, which occurs exactly once, replaced.
fn replaced(text: &str, what: &'static str, from: &str, to: &str) -> Result<String, FilesError> {
    match text.matches(from).count() {
        1 => Ok(text.replacen(from, to, 1)),
        _ => Err(FilesError::Template { what }),
    }
}

/// Writes `files` below `dir`, each whole or not at all.
///
/// # Errors
/// Foreign before anything is written; Io.
pub fn write(dir: &Path, files: &[OwnFiles]) -> Result<(), FilesError> {
    for file in files {
        check_ours(&dir.join(&file.path), file.kind)?;
    }
    for file in files {
        put(&dir.join(&file.path), file)?;
    }
    Ok(())
}

/// # Errors
/// Foreign when there is something at `path` that telem did not write.
fn check_ours(path: &Path, kind: DashboardFile) -> Result<(), FilesError> {
    let found = match read(path, KNOWN_BYTES_MAX) {
        Ok(found) => found,
        Err(FilesError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(FilesError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(error),
    };
    let (ours, why) = match kind {
        DashboardFile::Provisioning => (found.starts_with(MARK), "its first line does not say so"),
        DashboardFile::Dashboard { uid } => {
            let json: Json = serde_json::from_str(&found).unwrap_or_default();
            (json["uid"] == uid, "it is not a dashboard with the uid that its name says")
        }
    };
    if ours { Ok(()) } else { Err(FilesError::Foreign { path: path.to_path_buf(), why }) }
}

/// A small text file.
///
/// # Errors
/// Io; its kind is InvalidData when it is not text or has more than `bytes_max`.
pub fn read(path: &Path, bytes_max: u64) -> Result<String, FilesError> {
    let failed = |source| FilesError::Io { action: "read", path: path.to_path_buf(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max {
        let why = format!("more than {bytes_max} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
    }
    Ok(text)
}

fn put(path: &Path, file: &OwnFiles) -> Result<(), FilesError> {
    let failed = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| FilesError::Io { action, path, source }
    };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed("create", dir))?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(file.mode)
        .open(&new)
        .and_then(|mut out| out.write_all(file.content.as_bytes()))
        .and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        // Useless by now; the error that counts is the first one.
        fs::remove_file(&new).unwrap_or_default();
        failed("write", path)(error)
    })
}
