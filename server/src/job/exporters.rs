//! Exporters of Metric Proxy (`clients/proxy`): programs and libraries that count what a command does, without a change
//! of it, and tell a Metric Proxy's socket.
//!
//! Those of telem are built by the machine's C compiler when they are asked for first, as the library of
//! `--mpi-profile` is, and kept in the user's cache. Those of an installation, beside the binary, go first: whoever
//! installed them chose their compiler.

mod sources;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use telem_engine::Clock;

use super::mpi_profile::{self, COMPILER, MpiLibraryBuilder, MpiProfileError, Recipe};
use crate::launch::Patience;

/// The compiler of what needs no MPI.
const C_COMPILER: &str = "cc";
/// The directory of the user's cache.
const CACHE: &str = "exporters";
/// Most files of an installation's directory that are looked at.
const INSTALLED_MAX: usize = 10_000;
const INSTALLED_PREFIX: &str = "libmetricproxy-exporter-";
const STRACE: &str = "proxy_exporter_strace";
const CLIENT: &str = "libproxyclient.so";

/// What counts something of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exporter {
    /// Calls of MPI. `compiler`: the compiler wrapper of the command's MPI.
    Mpi { compiler: String },
    /// System calls.
    Strace,
    /// Calls of functions that were compiled with `-finstrument-functions`.
    Finstrument,
    /// A library of an installation.
    Installed { name: String },
}

impl fmt::Display for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mpi { .. } => f.write_str("mpi"),
            Self::Strace => f.write_str("strace"),
            Self::Finstrument => f.write_str("finstrument"),
            Self::Installed { name } => f.write_str(name),
        }
    }
}

impl FromStr for Exporter {
    type Err = std::convert::Infallible;

    /// Whether there is one of another name is known where it is looked for.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            Some(("mpi", compiler)) => Self::Mpi { compiler: compiler.to_owned() },
            _ if text == "mpi" => Self::Mpi { compiler: COMPILER.to_owned() },
            _ if text == "strace" => Self::Strace,
            _ if text == "finstrument" => Self::Finstrument,
            _ => Self::Installed { name: text.to_owned() },
        })
    }
}

/// Why a command runs without an exporter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterError {
    #[error("there is no exporter '{name}'; expected one of {known}")]
    Unknown { name: String, known: String },
    #[error("exporter '{name}' cannot be built: {source}")]
    Unbuilt { name: String, source: MpiProfileError },
}

/// What an exporter does to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    /// A library that is preloaded.
    Preload(PathBuf),
    /// A program that starts it.
    Before(PathBuf),
}

/// Finds exporters, or builds them.
#[derive(Debug)]
pub(crate) struct ExporterShelf<'a> {
    /// The installation that the binary belongs to: has `bin` and `lib`.
    pub installation: Option<PathBuf>,
    /// Below it those that were built are kept.
    pub cache: Option<PathBuf>,
    pub clock: &'a dyn Clock,
}

impl<'a> ExporterShelf<'a> {
    /// That of this binary and this user.
    pub fn own(clock: &'a dyn Clock) -> Self {
        let binary = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
        let installation = binary.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_path_buf);
        Self { installation, cache: mpi_profile::cache(CACHE), clock }
    }

    /// What can be asked for, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["finstrument", "mpi", "strace"].map(str::to_owned).into();
        let entries = self.installation.as_ref().and_then(|prefix| std::fs::read_dir(prefix.join("lib")).ok());
        for entry in entries.into_iter().flatten().take(INSTALLED_MAX).flatten() {
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_prefix(INSTALLED_PREFIX)?.strip_suffix(".so"));
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        names.dedup();
        names
    }

    /// How `exporter` is attached to a command. `patience` is asked for the time that building may take.
    ///
    /// # Errors
    /// Where there is none of that name, or it cannot be built.
    pub fn attachment(&self, exporter: &Exporter, patience: &dyn Patience) -> Result<Attachment, ExporterError> {
        let file = match exporter {
            Exporter::Strace => STRACE.to_owned(),
            Exporter::Finstrument => CLIENT.to_owned(),
            Exporter::Mpi { .. } | Exporter::Installed { .. } => format!("{INSTALLED_PREFIX}{exporter}.so"),
        };
        let attached = |path| match exporter {
            Exporter::Strace => Attachment::Before(path),
            _ => Attachment::Preload(path),
        };
        // A name of a user is none of a path.
        let folder = if *exporter == Exporter::Strace { "bin" } else { "lib" };
        let installed = self.installation.as_ref().map(|prefix| prefix.join(folder).join(&file));
        let is_default = !matches!(exporter, Exporter::Mpi { compiler } if compiler != COMPILER);
        if let Some(path) = installed.filter(|path| is_default && !file.contains('/') && path.is_file()) {
            return Ok(attached(path));
        }
        let (recipe, compiler): (&'static Recipe, &str) = match exporter {
            Exporter::Mpi { compiler } => (&sources::MPI, compiler),
            Exporter::Strace => (&sources::STRACE, C_COMPILER),
            Exporter::Finstrument => (&sources::CLIENT, C_COMPILER),
            Exporter::Installed { name } => {
                return Err(ExporterError::Unknown { name: name.clone(), known: self.names().join(", ") });
            }
        };
        let built = self.cache.clone().ok_or(MpiProfileError::Homeless).and_then(|cache| {
            MpiLibraryBuilder { recipe, compiler: compiler.into(), cache, clock: self.clock }.library(patience)
        });
        built.map(attached).map_err(|source| ExporterError::Unbuilt { name: exporter.to_string(), source })
    }
}

/// The command with what is put before it, and `LD_PRELOAD`, if it changes. What was preloaded anyway stays and comes
/// first.
pub(crate) fn attach(
    attachments: &[Attachment],
    command: Vec<OsString>,
    inherited: Option<&OsStr>,
) -> (Vec<OsString>, Option<(String, OsString)>) {
    let (mut words, mut preloaded) = (Vec::new(), None::<(String, OsString)>);
    for attachment in attachments {
        match attachment {
            Attachment::Before(program) => words.extend([program.clone().into_os_string(), OsString::from("--")]),
            Attachment::Preload(library) => {
                let so_far = preloaded.as_ref().map(|(_, value)| value.as_os_str()).or(inherited);
                preloaded = Some(mpi_profile::environment(library, so_far));
            }
        }
    }
    words.extend(command);
    (words, preloaded)
}
