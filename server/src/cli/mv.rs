//! `telem mv`: moves a saved run, also to another file system.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::CliFailure;
use super::rm::ClaimedRun;
use crate::info::shown;

/// Bytes that are compared at once.
const COMPARED_BYTES: usize = 1 << 20;

/// Move a saved run
///
/// To another file system it is copied, compared with what was copied, made durable, and only then removed. A run that
/// is still being written is refused, and so is a TARGET that is there, unless it is a directory to move into.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MvArgs {
    /// A saved run, as `telem ls` lists them
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Its new name, or the directory that it goes into
    #[arg(value_name = "TARGET")]
    target: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  telem mv telem-4711 runs/baseline
  telem mv runs/baseline kept/";

/// # Errors
/// Failed when the run cannot be moved; then it is where it was.
pub fn run(args: &MvArgs) -> Result<(), CliFailure> {
    let mut run = ClaimedRun::new(&args.run)?;
    let target = target(&run.dir, &args.target)?;
    let failed =
        |error: io::Error| CliFailure::Failed(format!("{} to {}: {error}", run.dir.display(), target.display()));
    match fs::rename(&run.dir, &target) {
        Ok(()) => {
            for database in &mut run.databases {
                let below = database.dir().strip_prefix(&run.dir).unwrap_or(Path::new("")).to_path_buf();
                // Not joined: a path that ends with a slash is another to those who compare.
                let moved = if below.as_os_str().is_empty() { target.clone() } else { target.join(below) };
                database.follow(&moved);
            }
            sync_parent(&target).map_err(failed)?;
        }
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            // Made here, so that what is taken back is ours.
            fs::create_dir(&target).map_err(failed)?;
            if let Err(error) = copy(&run.dir, &target) {
                let _ = fs::remove_dir_all(&target);
                return Err(failed(error));
            }
            let old = run.dir.clone();
            run.remove().map_err(CliFailure::failed)?;
            let removed = if old.exists() { fs::remove_dir_all(&old) } else { Ok(()) };
            removed
                .map_err(|error| CliFailure::Failed(format!("{}: copied, but not removed: {error}", old.display())))?;
        }
        Err(error) => return Err(failed(error)),
    }
    writeln!(io::stdout(), "moved to {}", shown(&target.display().to_string()))?;
    Ok(())
}

/// Where the run goes.
fn target(run: &Path, given: &Path) -> Result<PathBuf, CliFailure> {
    let given = std::path::absolute(given).map_err(CliFailure::failed)?;
    let target = match (given.is_dir(), run.file_name()) {
        (true, Some(name)) => given.join(name),
        _ => given,
    };
    if target.symlink_metadata().is_ok() {
        return Err(CliFailure::Failed(format!("{} is there; name a place that is not", target.display())));
    }
    if target.starts_with(run) {
        return Err(CliFailure::Failed(format!("{} lies in the run itself", target.display())));
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(|error| CliFailure::Failed(format!("{}: {error}", parent.display())))?;
    }
    Ok(target)
}

/// Copies what is in one directory into another, compares it, and makes it durable. The lock of a database is not
/// copied.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, copied) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            fs::create_dir(&copied)?;
            copy(&entry.path(), &copied)?;
        } else if kind.is_file() && entry.file_name() != "WRITER" {
            fs::copy(entry.path(), &copied)?;
            File::open(&copied)?.sync_all()?;
            compare(&entry.path(), &copied)?;
        } else if !kind.is_file() {
            let why = format!("{} is neither a file nor a directory", entry.path().display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    }
    File::open(to)?.sync_all()?;
    sync_parent(to)
}

fn compare(one: &Path, other: &Path) -> io::Result<()> {
    let (mut first, mut second) = (File::open(one)?, File::open(other)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        left.clear();
        right.clear();
        Read::by_ref(&mut first).take(COMPARED_BYTES as u64).read_to_end(&mut left)?;
        Read::by_ref(&mut second).take(COMPARED_BYTES as u64).read_to_end(&mut right)?;
        if left != right {
            return Err(io::Error::other(format!("{} is not what was copied to it", other.display())));
        }
        if left.is_empty() {
            return Ok(());
        }
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests;
