//! The saved run that a path names: found before something is done to it, and held while it is.

use std::io;
use std::path::{Path, PathBuf};

use telem_engine::{Clock, Db, DbClaim, DbGlance, DbInfo, Options, SystemClock};

use super::CliFailure;
use super::ls::{self, RunList, RunRow};

/// Paths that a message names at most.
const NAMED_MAX: usize = 4;

/// What stands below a path that names a run, or one database of a run.
#[derive(Debug)]
pub struct SavedRun {
    /// The path itself, absolute and without links.
    pub dir: PathBuf,
    /// The databases that it stands for, those of each run together: into one directory several may be saved.
    pub runs: Vec<Vec<PathBuf>>,
    /// Those beside them that cannot be opened: nobody knows of which run.
    pub broken: Vec<PathBuf>,
    /// Other databases below it.
    pub others: Vec<PathBuf>,
    /// Of the databases of `runs`, as far as they can be read.
    pub bytes: u64,
    /// The directory of the run, where `dir` is one of its databases.
    around: Option<PathBuf>,
}

impl SavedRun {
    /// # Errors
    /// Failed where `path` is no run and no database of one, or where not all of it can be looked into.
    pub fn find(path: &Path) -> Result<Self, CliFailure> {
        let named = |why: String| CliFailure::Failed(format!("{}: {why}", path.display()));
        let unreadable = |error: io::Error| named(error.to_string());
        // With a slash at its end a link would be what it leads to.
        let path: &Path = &path.components().collect::<PathBuf>();
        if path.symlink_metadata().map_err(unreadable)?.is_symlink() {
            let target = path.read_link().map_err(unreadable)?;
            return Err(named(format!("it is a link to {}; name what it leads to", target.display())));
        }
        let dir = path.canonicalize().map_err(unreadable)?;
        let all = ls::all_below(&dir).map_err(unreadable)?;
        if all.contains(&dir) {
            let info = info(&dir);
            let around = info.as_ref().map(|info| ls::run_dir(&dir, &info.node)).filter(|around| *around != dir);
            let bytes = info.map_or(0, |info| info.bytes);
            let others = all.into_iter().filter(|other| *other != dir).collect();
            return Ok(Self { runs: vec![vec![dir.clone()]], dir, broken: Vec::new(), others, bytes, around });
        }
        let (mut list, mut broken, mut others, mut bytes) = (RunList::default(), Vec::new(), Vec::new(), 0);
        for database in all {
            let is_direct = database.parent() == Some(&*dir);
            match is_direct.then(|| info(&database)) {
                Some(Some(info)) if ls::run_dir(&database, &info.node) == dir => {
                    bytes += info.bytes;
                    list.add(RunRow::of(&DbGlance::from(info), SystemClock::new().now()));
                }
                // Of one that is damaged nobody knows the node.
                Some(None) => broken.push(database),
                _ => others.push(database),
            }
        }
        let rows = list.finish(&[]);
        let runs: Vec<Vec<PathBuf>> = rows.into_iter().map(|row| row.databases.into_iter().collect()).collect();
        if runs.is_empty() {
            broken.append(&mut others);
            return Err(named(match &*broken {
                [] => "it is no saved run; `telem ls` lists those below a directory".to_owned(),
                held => format!("it is no saved run but holds {}; name a run, or a database", listed(held)),
            }));
        }
        Ok(Self { dir, runs, broken, others, bytes, around: None })
    }

    /// # Errors
    /// Failed unless it is one run and nothing else.
    pub fn require_one(&self) -> Result<(), CliFailure> {
        let failed = |why: String| Err(CliFailure::Failed(format!("{}: {why}", self.dir.display())));
        if self.runs.len() > 1 {
            let each: Vec<String> = self.runs.iter().map(|databases| listed(databases)).collect();
            return failed(format!(
                "{} runs were saved into it; name the databases of one: {}",
                self.runs.len(),
                each.join("; ")
            ));
        }
        match (&*self.broken, &*self.others) {
            ([], []) => Ok(()),
            ([], others) => failed(format!("below it are databases that are not of this run: {}", listed(others))),
            (broken, _) => failed(format!(
                "{} cannot be opened, so it is not known of which run it is (`telem check` says why); name the databases",
                listed(broken)
            )),
        }
    }

    /// Whether it is one database of the run in the directory around it.
    pub fn is_part(&self) -> bool {
        self.around.is_some()
    }

    /// Keeps others from writing any database below it.
    ///
    /// # Errors
    /// Failed, naming who writes.
    pub fn claim(&self, options: &Options) -> Result<Vec<DbClaim>, CliFailure> {
        let all = self.runs.iter().flatten().chain(&self.broken).chain(&self.others);
        let claims = all.map(|database| DbClaim::new(database, options));
        claims.collect::<Result<_, _>>().map_err(CliFailure::failed)
    }

    /// Removes the directory of the run where its last database was removed and nothing else is in it.
    pub fn clear(&self) {
        for dir in self.around.iter().chain([&self.dir]) {
            // What others put there stays, and so does the directory then.
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// `None` of a database that cannot be opened.
fn info(database: &Path) -> Option<DbInfo> {
    Db::open_read_only(database, Options::default()).and_then(|db| db.info()).ok()
}

fn listed(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
    match paths.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests;
