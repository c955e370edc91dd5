//! `telem mv`: moves a saved run, also to another file system.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use telem_engine::{DbClaim, Options};

use super::saved_run::SavedRun;
use super::{CliFailure, ls};
use crate::info::shown;

/// Bytes that are compared at once.
const COMPARED_BYTES: usize = 1 << 20;
/// The lock of a database, which is not copied.
const WRITER: &str = "WRITER";

/// Move a saved run
///
/// To another file system it is copied under a hidden name, compared with what was copied, made durable, and given its
/// name; then what was copied is removed, and nothing else. Everything in the directory of the run goes with it. A run
/// that is still being written is refused, and so is a TARGET that is there, unless it is a directory to move into and no
/// run itself.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct MvArgs {
    /// A saved run, as `telem ls` lists them
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Its new name, or the directory that it goes into
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Move even if another host, or a live process, seems to write
    #[arg(long)]
    take_over: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem mv telem-4711 runs/baseline
  telem mv runs/baseline kept/";

/// # Errors
/// Failed when the run cannot be moved; then it is where it was, or is said to be at both places.
pub fn run(args: &MvArgs) -> Result<(), CliFailure> {
    let run = SavedRun::find(&args.run)?;
    let target = target(&run.dir, &args.target)?;
    check_outside(&run, &target)?;
    let claims = run.claim(&Options { take_over: args.take_over, ..Options::default() })?;
    let failed =
        |error: io::Error| CliFailure::Failed(format!("{} to {}: {error}", run.dir.display(), target.display()));
    if let Some(parent) = target.parent() {
        make_durably(parent)
            .map_err(|error| CliFailure::Failed(format!("cannot make {}: {error}", parent.display())))?;
    }
    match rename(&run.dir, &target) {
        Ok(()) => renamed(&run.dir, &target, claims)?,
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let copied = copy_beside(&run.dir, &target, &claims).map_err(failed)?;
            remove_copied(&copied, claims)?;
        }
        Err(error) => return Err(failed(error)),
    }
    run.clear();
    let left = if run.dir.exists() { "; files that came or changed meanwhile stay where they were" } else { "" };
    writeln!(io::stdout(), "moved to {}{left}", shown(&target.display().to_string()))?;
    Ok(())
}

/// Where the run goes.
fn target(run: &Path, given: &Path) -> Result<PathBuf, CliFailure> {
    // Without a slash at its end.
    let given: PathBuf = std::path::absolute(given).map_err(CliFailure::failed)?.components().collect();
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
    Ok(target)
}

/// Whether the run stays one of its own at `target`: in another it would be one of that one's nodes, and be removed with
/// it. A database of a run may become one of another.
fn check_outside(run: &SavedRun, target: &Path) -> Result<(), CliFailure> {
    let around: Vec<&Path> = target.ancestors().skip(1).collect();
    let database = around.iter().find(|dir| ls::is_database(dir).unwrap_or(false));
    let other = around.first().filter(|dir| !run.is_part() && run.dir.parent() != Some(**dir) && ls::is_run(dir));
    match database.or(other) {
        None => Ok(()),
        Some(dir) => Err(CliFailure::Failed(format!(
            "{} is a saved run, and {} would lie in it; name a place that is not there, or a directory that is no run",
            dir.display(),
            run.dir.display()
        ))),
    }
}

/// Makes a directory and those around it that are not there, and their names durable.
fn make_durably(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(dir)?;
    missing.into_iter().try_for_each(sync_parent)
}

/// Gives `from` the name `to`, which nothing has.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot promise it: no directory with something in it is replaced there either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if to.symlink_metadata().is_err() => fs::rename(from, to),
        result => Ok(result?),
    }
}

/// The databases and their locks have moved.
fn renamed(from: &Path, to: &Path, claims: Vec<DbClaim>) -> Result<(), CliFailure> {
    for mut claim in claims {
        let below = claim.dir().strip_prefix(from).unwrap_or(Path::new("")).to_path_buf();
        // Not joined: a path that ends with a slash is another to those who compare.
        let moved = if below.as_os_str().is_empty() { to.to_path_buf() } else { to.join(below) };
        claim.follow(&moved);
    }
    let unsafe_yet = |error| CliFailure::Failed(format!("moved to {}, but not durable: {error}", to.display()));
    sync_parent(to).and_then(|()| sync_parent(from)).map_err(unsafe_yet)
}

/// What was copied, each thing before the directory it lies in; of files the length and the time before that.
type CopiedFiles = Vec<(PathBuf, Option<(u64, SystemTime)>)>;

/// Copies `from` under a hidden name beside `to`, and gives it that name once it is whole and durable.
fn copy_beside(from: &Path, to: &Path, claims: &[DbClaim]) -> io::Result<CopiedFiles> {
    let mut hidden = OsString::from(".");
    hidden.push(to.file_name().unwrap_or_default());
    hidden.push(format!(".{}.moving", std::process::id()));
    let hidden = to.with_file_name(hidden);
    // For nobody else until it may be seen by whoever saw the run.
    fs::DirBuilder::new().mode(0o700).create(&hidden)?;
    let mut copied = CopiedFiles::new();
    let done = copy(from, &hidden, claims, &mut copied)
        .and_then(|()| fs::set_permissions(&hidden, fs::metadata(from)?.permissions()))
        .and_then(|()| rename(&hidden, to));
    match done {
        Ok(()) => sync_parent(to).map(|()| copied),
        Err(error) => {
            // Made here, so that what is taken back is ours.
            let _ = fs::remove_dir_all(&hidden);
            Err(error)
        }
    }
}

/// Copies what is in one directory into another, compares it, and makes it durable. The locks of `claims` are not
/// copied.
fn copy(from: &Path, to: &Path, claims: &[DbClaim], copied: &mut CopiedFiles) -> io::Result<()> {
    let is_claimed = claims.iter().any(|claim| claim.dir() == from);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, one, other) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        let found = entry.metadata()?;
        if is_claimed && entry.file_name() == WRITER {
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&other)?;
            copy(&one, &other, claims, copied)?;
            fs::set_permissions(&other, found.permissions())?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&one)?, &other)?;
        } else if kind.is_file() {
            fs::copy(&one, &other)?;
            let copy = File::options().read(true).open(&other)?;
            copy.set_modified(found.modified()?)?;
            copy.sync_all()?;
            compare(&one, &other)?;
        } else {
            let why = format!("{} is neither a file nor a directory", one.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let stamp = if kind.is_file() { Some((found.len(), found.modified()?)) } else { None };
        copied.push((one, stamp));
    }
    File::open(to)?.sync_all()
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

/// Removes what was copied: the databases, which are none from then on, and then everything else, but no file that changed
/// and no directory into which something came since.
fn remove_copied(copied: &CopiedFiles, claims: Vec<DbClaim>) -> Result<(), CliFailure> {
    for claim in claims {
        let dir = claim.dir().to_path_buf();
        let kept = |error| CliFailure::Failed(format!("copied, but {} is not removed: {error}", dir.display()));
        claim.remove().map_err(kept)?;
    }
    for (path, stamp) in copied {
        let is_directory = match path.symlink_metadata() {
            // Somebody writes it still.
            Ok(found)
                if stamp.is_some_and(|stamp| found.modified().ok().map(|time| (found.len(), time)) != Some(stamp)) =>
            {
                continue;
            }
            Ok(found) => found.is_dir(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => false,
        };
        let removed = if is_directory { fs::remove_dir(path) } else { fs::remove_file(path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            result => result.map_err(|error| {
                CliFailure::Failed(format!("copied, but {} is not removed: {error}", path.display()))
            })?,
        }
    }
    Ok(())
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests;
