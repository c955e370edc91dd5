//! `telem rm`: removes saved runs, and nothing else.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use telem_engine::{Db, DbClaim, Options};

use super::agreement::is_agreed;
use super::{CliFailure, ls};
use crate::info::{human, shown};

/// Remove saved runs for good
///
/// Of each RUN the databases of its nodes are removed, and its directory where nothing else is in it. A run that is
/// still being written is refused, and then none is removed.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct RmArgs {
    /// Saved runs, as `telem ls` lists them
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem rm --yes telem-4711";

const EXAMPLES: &str = "\
Examples:
  telem rm --yes telem-4711
  telem ls --where state=failed --json | jq -r '.[].dir' | xargs -r telem rm --yes";

/// A run whose databases nobody else writes from now on.
#[derive(Debug)]
pub struct ClaimedRun {
    pub dir: PathBuf,
    pub databases: Vec<DbClaim>,
    pub bytes: u64,
}

impl ClaimedRun {
    /// # Errors
    /// Failed where `run` is no run, or is being written.
    pub fn new(run: &Path) -> Result<Self, CliFailure> {
        let named = |why: String| CliFailure::Failed(format!("{}: {why}", run.display()));
        let dir = run.canonicalize().map_err(|error| named(error.to_string()))?;
        let databases = ls::databases_of_run(&dir).map_err(|error| named(error.to_string()))?;
        if databases.is_empty() {
            return Err(named("it is no saved run; `telem ls` lists those below a directory".to_owned()));
        }
        let mut bytes = 0;
        for database in &databases {
            // Of one that is damaged nobody knows the node and the size.
            let info = Db::open_read_only(database, Options::default()).and_then(|db| db.info());
            let Ok(info) = info else { continue };
            if ls::run_dir(database, &info.node) != dir {
                return Err(named("it has several databases that are no nodes of one run; name them".to_owned()));
            }
            bytes += info.bytes;
        }
        let claims = databases.iter().map(|dir| DbClaim::new(dir, &Options::default()));
        let databases = claims.collect::<Result<_, _>>().map_err(|error| named(error.to_string()))?;
        Ok(Self { dir, databases, bytes })
    }

    /// # Errors
    /// Those of the engine; a part may be gone then.
    pub fn remove(self) -> telem_engine::Result<()> {
        self.databases.into_iter().try_for_each(DbClaim::remove)?;
        // What others put there stays, and so does the directory then.
        let _ = std::fs::remove_dir(&self.dir);
        Ok(())
    }
}

/// # Errors
/// Failed when a run cannot be removed; what was said to be removed is.
pub fn run(args: &RmArgs) -> Result<(), CliFailure> {
    let mut runs: Vec<ClaimedRun> = Vec::new();
    for run in &args.runs {
        let is_named = |dir: &PathBuf| runs.iter().any(|known: &ClaimedRun| known.dir == *dir);
        if !run.canonicalize().is_ok_and(|dir| is_named(&dir)) {
            runs.push(ClaimedRun::new(run)?);
        }
    }
    let each: Vec<String> =
        runs.iter().map(|run| format!("{} ({})", named(&run.dir), human::bytes(run.bytes as f64))).collect();
    if !args.yes && !is_agreed("rm", &format!("{}\nRemove {} for good?", each.join("\n"), these(runs.len())))? {
        return Err(CliFailure::Failed("nothing was removed".to_owned()));
    }
    let mut out = io::stdout().lock();
    for run in runs {
        let (dir, bytes) = (run.dir.clone(), run.bytes);
        run.remove().map_err(CliFailure::failed)?;
        let stays = if dir.exists() { "; the directory has other files and stays" } else { "" };
        writeln!(out, "removed {} ({}){stays}", named(&dir), human::bytes(bytes as f64))?;
    }
    Ok(out.flush()?)
}

fn named(dir: &Path) -> String {
    shown(&dir.display().to_string())
}

fn these(runs: usize) -> &'static str {
    if runs == 1 { "this run" } else { "these runs" }
}
