//! A file that has a temporary name until it is complete. A reader who finds the final name finds the whole file, and
//! an interrupted command leaves no file of that name.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use tokio::signal::unix::{SignalKind, signal};

use super::CliFailure;

/// What `work` comes to, unless Ctrl-C or SIGTERM comes first: then it is dropped, and its unfinished files with it.
pub async fn unless_stopped<T>(work: impl Future<Output = Result<T, CliFailure>>) -> Result<T, CliFailure> {
    let mut interrupted = signal(SignalKind::interrupt()).map_err(CliFailure::failed)?;
    let mut terminated = signal(SignalKind::terminate()).map_err(CliFailure::failed)?;
    tokio::select! {
        done = work => done,
        _ = interrupted.recv() => Err(CliFailure::failed("interrupted; nothing was written")),
        _ = terminated.recv() => Err(CliFailure::failed("terminated; nothing was written")),
    }
}

/// A file under another name. Dropped before [`Pending::keep`], it goes.
pub struct Pending {
    path: PathBuf,
    until_then: PathBuf,
    kept: bool,
}

impl Pending {
    /// `None` for anything but a file (a pipe, /dev/stdout), which is written directly.
    pub fn create(path: &Path) -> Result<(BufWriter<File>, Option<Pending>), CliFailure> {
        let failed =
            |at: &Path, error: io::Error| CliFailure::Failed(format!("cannot write {}: {error}", at.display()));
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let file = File::options().write(true).open(path).map_err(|error| failed(path, error))?;
            return Ok((BufWriter::new(file), None));
        }
        // What a link names is replaced, not the link.
        let path = &*fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let Some(name) = path.file_name() else {
            return Err(CliFailure::Usage(format!("{} is not a name of a file", path.display())));
        };
        let mut new = name.to_owned();
        new.push(format!(".{}.part", std::process::id()));
        let until_then = path.with_file_name(new);
        let file = File::create(&until_then).map_err(|error| {
            match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) if error.kind() == io::ErrorKind::NotFound => CliFailure::Failed(format!(
                    "cannot write {}: there is no directory {}",
                    path.display(),
                    parent.display()
                )),
                _ => failed(&until_then, error),
            }
        })?;
        let pending = Pending { path: path.to_path_buf(), until_then, kept: false };
        Ok((BufWriter::new(file), Some(pending)))
    }

    pub fn keep(mut self) -> Result<(), CliFailure> {
        fs::rename(&self.until_then, &self.path)
            .map_err(|error| CliFailure::Failed(format!("cannot write {}: {error}", self.path.display())))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.kept {
            // The failure that leads here is the one to report.
            fs::remove_file(&self.until_then).unwrap_or_default();
        }
    }
}
