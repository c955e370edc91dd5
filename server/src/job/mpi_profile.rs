//! The library that counts a program's calls of MPI (`clients/mpi`): built by the compiler wrapper of the job's MPI,
//! and preloaded into the command.
//!
//! It is built once for each MPI and kept in the user's cache, which programs on all nodes of a job must see. What it
//! is built of decides its name there: our sources, what the compiler makes of `mpi.h`, the processor. It is built
//! under another name and moved, so that jobs that begin together do not meet. Without it the command runs uncounted.

pub(crate) mod sources;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use telem_engine::Clock;

use crate::launch::Patience;
use crate::private_dir::{self, Privacy, PrivateDirError};

/// What is called where nobody says otherwise.
pub const COMPILER: &str = "mpicc";
/// Longest that finding or building the library may take; the command waits meanwhile.
pub(crate) const BUILD_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of what a compiler said last is told.
const LAST_WORDS_BYTES: u64 = 600;
/// Names that are tried for a directory to build in.
const PLACES_MAX: u32 = 100;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What is built, of what and how.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// What the file is called.
    pub file: &'static str,
    /// Paths and texts.
    pub sources: &'static [(&'static str, &'static str)],
    /// How they are compiled and linked.
    pub flags: &'static [&'static str],
    /// A text whose preprocessed form tells apart what must not be mixed.
    pub probe: &'static str,
    /// A flag for a second attempt, where the first fails.
    pub fallback: Option<&'static str>,
    /// What to do where there is no compiler.
    pub advice: &'static str,
}

/// The library of `--mpi-profile`.
pub(crate) const COUNTS_FOR_TELEM: Recipe = Recipe {
    file: "libtelem-mpi.so",
    sources: sources::SOURCES,
    flags: sources::FLAGS,
    probe: MPI_PROBE,
    fallback: Some(OLDEST_VERSION),
    advice: "load the module of your MPI, or name its compiler wrapper with --mpi-profile=FILE",
};

/// A header may promise functions of a version of MPI that it declares otherwise; this is what every one has.
pub(crate) const OLDEST_VERSION: &str = "-DTELEM_MPI_VERSION=30";
/// What makes one MPI differ from another for the library.
pub(crate) const MPI_PROBE: &str = "#include <mpi.h>\n#ifdef OPEN_MPI\nopen_mpi\n#endif\nMPI_VERSION MPI_SUBVERSION \
    MPI_COMM_WORLD MPI_IN_PLACE MPI_STATUS_IGNORE MPI_PROC_NULL MPI_ROOT MPI_BYTE MPI_DATATYPE_NULL\n";
const PROBE_FILE: &str = "probe.c";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Why calls are not counted.
#[derive(Debug, thiserror::Error)]
pub enum MpiProfileError {
    #[error("'{}' cannot be run: {source}; {advice}", compiler.display())]
    Compiler { compiler: OsString, source: io::Error, advice: &'static str },
    #[error("'{}' does not build the library for that: {words}", compiler.display())]
    Build { compiler: OsString, words: String },
    #[error("'{}' was not done within {} s", compiler.display(), BUILD_TIMEOUT.as_secs())]
    Late { compiler: OsString },
    #[error("telem was told to end")]
    Unwanted,
    #[error(transparent)]
    Private(#[from] PrivateDirError),
    #[error("cannot write in {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{} has a blank or a colon, which no path in LD_PRELOAD can have; set XDG_CACHE_HOME to another directory",
        path.display()
    )]
    Path { path: PathBuf },
    #[error("neither XDG_CACHE_HOME nor HOME says where to keep the library")]
    Homeless,
}

/// Builds the library, or finds it.
#[derive(Debug)]
pub(crate) struct MpiLibraryBuilder<'a> {
    pub recipe: &'static Recipe,
    /// The compiler wrapper of the MPI.
    pub compiler: OsString,
    /// Below it libraries are kept.
    pub cache: PathBuf,
    pub clock: &'a dyn Clock,
}

/// The user's cache: `telem/mpi`, or another such directory, below `$XDG_CACHE_HOME` or `~/.cache`.
pub(crate) fn cache(of: &str) -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("telem").join(of))
}

/// What leads the processes of a command to `library`, behind what they were to preload anyway.
pub fn environment(library: &Path, inherited: Option<&OsStr>) -> (String, OsString) {
    let inherited = inherited.unwrap_or_default();
    let own = library.as_os_str().as_encoded_bytes();
    let is_there = inherited.as_encoded_bytes().split(|byte| b" :".contains(byte)).any(|path| path == own);
    let mut value = inherited.to_owned();
    if !is_there {
        // An address checker insists on being the first.
        if !value.is_empty() {
            value.push(":");
        }
        value.push(library);
    }
    (PRELOAD_VARIABLE.to_owned(), value)
}

/// A directory to build in, removed when this is dropped.
struct Workshop(PathBuf);

impl Drop for Workshop {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::debug!(%error, "what was left of a build stays");
        }
    }
}

impl Workshop {
    fn open(cache: &Path) -> Result<Self, MpiProfileError> {
        let failed = |source| MpiProfileError::Write { path: cache.to_path_buf(), source };
        for number in 0..PLACES_MAX {
            let path = cache.join(format!("build-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process of that number, or in use by one on another machine.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::Error::new(io::ErrorKind::AlreadyExists, "all names for a directory to build in are taken")))
    }

    fn put(&self, name: &str, text: &str) -> Result<(), MpiProfileError> {
        let path = self.0.join(name);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all);
        made.and_then(|()| fs::write(&path, text)).map_err(|source| MpiProfileError::Write { path, source })
    }
}

impl MpiLibraryBuilder<'_> {
    /// The library for the programs of that MPI. `patience` is asked for the time that it may take.
    ///
    /// # Errors
    /// Where there is no compiler, or it fails, or the library cannot be kept.
    pub fn library(&self, patience: &dyn Patience) -> Result<PathBuf, MpiProfileError> {
        patience.ask(BUILD_TIMEOUT);
        let until = self.clock.monotonic() + BUILD_TIMEOUT;
        let cache = &self.cache;
        if cache.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\n\t".contains(byte)) {
            return Err(MpiProfileError::Path { path: cache.clone() });
        }
        let made = cache.parent().map_or(Ok(()), |base| DirBuilder::new().recursive(true).mode(0o700).create(base));
        made.map_err(|source| MpiProfileError::Write { path: cache.clone(), source })?;
        let uid = geteuid().as_raw();
        private_dir::own(cache, uid, Privacy::Unwritten)?;
        let workshop = Workshop::open(cache)?;
        let shelf = cache.join(self.key(&workshop, until, patience)?);
        let kept = shelf.join(self.recipe.file);
        if private_dir::check(&shelf, uid, Privacy::Unwritten).is_ok() && kept.is_file() {
            return Ok(kept);
        }
        private_dir::own(&shelf, uid, Privacy::Unwritten)?;
        self.build(&workshop, until, patience)?;
        // Whoever was faster built the same.
        fs::rename(workshop.0.join(self.recipe.file), &kept)
            .map_err(|source| MpiProfileError::Write { path: kept.clone(), source })?;
        Ok(kept)
    }

    /// What this library is called among those for other MPIs.
    fn key(&self, workshop: &Workshop, until: Duration, patience: &dyn Patience) -> Result<String, MpiProfileError> {
        const SEEN: &str = "probe.i";
        workshop.put(PROBE_FILE, self.recipe.probe)?;
        self.call(workshop, &["-E", "-o", SEEN, PROBE_FILE].map(OsStr::new), until, patience)?;
        let path = workshop.0.join(SEEN);
        let seen = fs::read(&path).map_err(|source| MpiProfileError::Write { path, source })?;
        let mut hasher = DefaultHasher::new();
        (self.recipe.sources, self.recipe.flags, std::env::consts::ARCH, seen).hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }

    fn build(&self, workshop: &Workshop, until: Duration, patience: &dyn Patience) -> Result<(), MpiProfileError> {
        for (name, text) in self.recipe.sources {
            workshop.put(name, text)?;
        }
        let units = self.recipe.sources.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".c"));
        let arguments = ["-o", self.recipe.file].into_iter().chain(units).chain(self.recipe.flags.iter().copied());
        let mut arguments: Vec<&OsStr> = arguments.map(OsStr::new).collect();
        match (self.call(workshop, &arguments, until, patience), self.recipe.fallback) {
            (Err(first @ MpiProfileError::Build { .. }), Some(fallback)) => {
                arguments.push(OsStr::new(fallback));
                // What it said of the newest is of more use.
                self.call(workshop, &arguments, until, patience).map_err(|_| first)
            }
            (done, _) => done,
        }
    }

    /// Runs the compiler in `workshop`.
    fn call(
        &self,
        workshop: &Workshop,
        arguments: &[&OsStr],
        until: Duration,
        patience: &dyn Patience,
    ) -> Result<(), MpiProfileError> {
        let compiler = self.compiler.clone();
        let started =
            |source| MpiProfileError::Compiler { compiler: compiler.clone(), source, advice: self.recipe.advice };
        // A path is the user's, from where telem was started.
        let is_path = compiler.as_encoded_bytes().contains(&b'/');
        let program = if is_path { std::path::absolute(&compiler).map_err(started)? } else { PathBuf::from(&compiler) };
        let said = workshop.0.join("said");
        let open = || File::options().read(true).append(true).create(true).open(&said);
        let (mut words, out) = open().and_then(|words| Ok((words, open()?))).map_err(started)?;
        let errors = out.try_clone().map_err(started)?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&workshop.0).process_group(0);
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        // What the command is to preload is not for compilers.
        command.env_remove(PRELOAD_VARIABLE);
        let mut child = command.spawn().map_err(started)?;
        loop {
            match child.try_wait().map_err(started)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    let words = last_words(&mut words).unwrap_or_default();
                    let words = if words.is_empty() { status.to_string() } else { words };
                    return Err(MpiProfileError::Build { compiler, words });
                }
                None if patience.is_over() => {
                    end(&mut child);
                    return Err(MpiProfileError::Unwanted);
                }
                None if self.clock.monotonic() >= until => {
                    end(&mut child);
                    return Err(MpiProfileError::Late { compiler });
                }
                None => thread::park_timeout(LOOK_INTERVAL),
            }
        }
    }
}

/// Ends a compiler and what it started.
fn end(child: &mut Child) {
    // It was not waited for, so its number is its own.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// The end of what was said, as one line.
fn last_words(said: &mut File) -> io::Result<String> {
    let bytes = said.metadata()?.len();
    said.seek(SeekFrom::Start(bytes.saturating_sub(LAST_WORDS_BYTES)))?;
    let mut words = Vec::new();
    said.take(LAST_WORDS_BYTES).read_to_end(&mut words)?;
    Ok(String::from_utf8_lossy(&words).split_whitespace().collect::<Vec<_>>().join(" "))
}
