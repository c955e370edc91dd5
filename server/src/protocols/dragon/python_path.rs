//! The Python client, as the binary carries it: where `run --dragon` puts it, so that a program's imports of
//! `dragon.telemetry` are answered by it, also where telem for Python is not installed.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::private_dir::{self, Privacy};

/// A file of the client: its path from the top, and what is in it.
macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../../../../clients/python/", $path)))
    };
}

/// Every file of the client that runs.
const FILES: &[(&str, &str)] = &[
    file!("telem/__init__.py"),
    file!("telem/_choice.py"),
    file!("telem/_default.py"),
    file!("telem/_job.py"),
    file!("telem/_lane.py"),
    file!("telem/_logging.py"),
    file!("telem/_metrics.py"),
    file!("telem/_native.py"),
    file!("telem/_points.py"),
    file!("telem/_process.py"),
    file!("telem/_program.py"),
    file!("telem/_read.py"),
    file!("telem/_sender.py"),
    file!("telem/_service.py"),
    file!("telem/_sql.py"),
    file!("telem/_telemetry.py"),
    file!("telem/_watch.py"),
    file!("telem/_wire.py"),
    file!("telem/dragon/__init__.py"),
    file!("telem/dragon/_analysis.py"),
    file!("telem/dragon/_config.py"),
    file!("telem/dragon/_groups.py"),
    file!("telem/dragon/_offline.py"),
    file!("telem/dragon/_place.py"),
    file!("telem/dragon/_runtime.py"),
    file!("telem/dragon/_slow.py"),
    file!("telem/dragon/_telemetry.py"),
    file!("telem/dragon/_timekeeper.py"),
    file!("telem/dragon/_widget.py"),
    file!("telem/dragon/hook/sitecustomize.py"),
    file!("telem/huggingface.py"),
    file!("telem/keras.py"),
    file!("telem/lightning.py"),
    file!("telem/py.typed"),
];

/// The folder with the `sitecustomize` that Python runs at its start.
const HOOK: &str = "telem/dragon/hook";

/// Writes the client below `dir`, which is made where it is not there and must be private, and gives the directory that
/// is to be the first of `PYTHONPATH`. What an earlier call wrote is replaced.
///
/// # Errors
/// Where it cannot be written, or where `dir` is open to other users.
pub fn write(dir: &Path) -> io::Result<PathBuf> {
    private_dir::own(dir, rustix::process::geteuid().as_raw(), Privacy::Closed).map_err(io::Error::other)?;
    for (path, content) in FILES {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
    }
    Ok(dir.join(HOOK))
}

/// The value of `PYTHONPATH` with `entry` before what was `inherited`.
pub fn with_first(entry: &Path, inherited: Option<&OsStr>) -> OsString {
    let mut value = entry.as_os_str().to_owned();
    // An empty entry would be the directory where the program is.
    if let Some(inherited) = inherited.filter(|inherited| !inherited.is_empty()) {
        value.push(":");
        value.push(inherited);
    }
    value
}
