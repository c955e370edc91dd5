//! Where `telem proxy` keeps its database: as Metric Proxy v2, by default in `~/.proxyprofiles`, below which every node has
//! one. What the original left there is taken over at the first start, and its own files stay as they are.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::import::{self, FILLED};
use super::service::{make, standing_data, wanted_data};
use super::{CliFailure, ls};

/// The directory in HOME that is the original's default, too.
const HOME_DIR: &str = ".proxyprofiles";
/// What the original makes in its directory.
const ORIGINALS: [&str; 2] = ["profiles", "traces"];
/// Below it each node has a database.
const OURS: &str = "telem";
/// Stands for the job in the path below TELEM_DATA: jobs come and go, and what is kept of them stays.
const ANY_JOB: &str = "proxy";

/// The directory of the database of `node`: `wanted` itself, unless the original used it, or several nodes do.
///
/// # Errors
/// Failed when it cannot be made, or what the original left cannot be read.
pub fn settle(
    wanted: Option<&Path>,
    node: &str,
    base: Option<&Path>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, CliFailure> {
    match wanted {
        Some(dir) if is_shared(dir) => below(dir, node),
        Some(dir) => wanted_data(dir),
        None if base.is_some() || env("TELEM_DATA").is_some() => standing_data(ANY_JOB, node, base),
        None => match env("HOME").filter(|home| home.starts_with('/')) {
            Some(home) => below(&Path::new(&home).join(HOME_DIR), node),
            None => {
                let dir = standing_data(ANY_JOB, node, None)?;
                let why = "HOME is not set; name a directory that stays with -t DIR";
                let note = format!("what is known of jobs is kept in {}, as {why}", dir.display());
                writeln!(io::stderr(), "{note}").unwrap_or_default();
                Ok(dir)
            }
        },
    }
}

/// Whether databases of nodes stand in it beside what the original has there.
fn is_shared(dir: &Path) -> bool {
    !ls::is_database(dir).unwrap_or(false) && ORIGINALS.iter().chain([&OURS]).any(|name| dir.join(name).is_dir())
}

/// The directory of a node's database; at the first start with what the original left.
fn below(dir: &Path, node: &str) -> Result<PathBuf, CliFailure> {
    let shared = wanted_data(dir)?;
    let ours = shared.join(OURS);
    let data = ours.join(node);
    if fs::symlink_metadata(&data).is_ok() {
        return Ok(data);
    }
    make(&ours, 0o700)?;
    let half_way = format!(".{node}.import");
    remove_half_way(&ours, &half_way).map_err(|error| {
        CliFailure::Failed(format!("cannot tidy up {} of a start that was ended: {error}", ours.display()))
    })?;
    let (left, made) = (ORIGINALS.map(|name| shared.join(name)), ours.join(half_way));
    import::take_over(&left, &made, node, &data).map_err(|failure| {
        let (why, advice) =
            (failure.into_message(), "move away what cannot be read, or name another directory with -t DIR");
        CliFailure::Failed(format!("cannot take over what Metric Proxy left in {}: {why}; {advice}", shared.display()))
    })?;
    if made.is_dir() {
        let moved = fs::rename(made.join(node), &data).and_then(|()| fs::remove_dir(&made));
        moved.map_err(|error| CliFailure::Failed(format!("cannot create {}: {error}", data.display())))?;
    } else {
        make(&data, 0o700)?;
    }
    Ok(data)
}

/// Removes what an import to `half_way` has left that was ended before it was complete. Names of nodes begin with no dot.
fn remove_half_way(ours: &Path, half_way: &str) -> io::Result<()> {
    // It is filled beside that, with a dot before it and its process behind.
    let filled = format!(".{half_way}{FILLED}");
    for entry in fs::read_dir(ours)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name == half_way || name.starts_with(&filled)) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
