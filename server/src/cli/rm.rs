//! `telem rm`: removes saved runs, and nothing else.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use telem_engine::{DbClaim, Options};

use super::CliFailure;
use super::agreement::is_agreed;
use super::saved_run::SavedRun;
use crate::info::{human, shown};

/// Remove saved runs for good
///
/// Of each RUN the databases of its nodes are removed, and its directory where nothing else is in it. A directory into
/// which several runs were saved is refused, as is one with other databases below it: name the databases. A run that is
/// still being written is refused. If one RUN is refused, none is removed.
#[derive(Debug, Args)]
#[command(after_help = SHORT_EXAMPLES, after_long_help = EXAMPLES)]
pub struct RmArgs {
    /// Saved runs, as `telem ls` lists them, or databases of single nodes
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Remove even if another host, or a live process, seems to write
    #[arg(long)]
    take_over: bool,
}

const SHORT_EXAMPLES: &str = "\
Examples:
  telem rm --yes telem-4711";

const EXAMPLES: &str = "\
Examples:
  telem rm --yes telem-4711
  telem ls --where state=failed --json | jq -r '.[].databases[]' | xargs -rd '\\n' telem rm --yes";

/// # Errors
/// Failed when a run cannot be removed; what was said to be removed is.
pub fn run(args: &RmArgs) -> Result<(), CliFailure> {
    let options = Options { take_over: args.take_over, ..Options::default() };
    let mut runs: Vec<SavedRun> = Vec::new();
    for run in &args.runs {
        let found = SavedRun::find(run)?;
        found.require_one()?;
        // A run and one of its nodes may both be named.
        if !runs.iter().any(|known| found.dir.starts_with(&known.dir)) {
            runs.retain(|known| !known.dir.starts_with(&found.dir));
            runs.push(found);
        }
    }
    if !args.yes {
        // Whoever waits for an answer keeps nobody out.
        drop(claim(&runs, &options)?);
        let each: Vec<String> =
            runs.iter().map(|run| format!("{} ({})", named(&run.dir), human::bytes(run.bytes as f64))).collect();
        if !is_agreed("rm", &format!("{}\nRemove {} for good?", each.join("\n"), these(runs.len())))? {
            return Err(CliFailure::Failed("nothing was removed".to_owned()));
        }
    }
    let claims = claim(&runs, &options)?;
    let mut out = io::stdout().lock();
    for (run, claims) in runs.into_iter().zip(claims) {
        claims.into_iter().try_for_each(DbClaim::remove).map_err(CliFailure::failed)?;
        run.clear();
        let stays = if run.dir.exists() { "; the directory has other files and stays" } else { "" };
        writeln!(out, "removed {} ({}){stays}", named(&run.dir), human::bytes(run.bytes as f64))?;
    }
    Ok(out.flush()?)
}

fn claim(runs: &[SavedRun], options: &Options) -> Result<Vec<Vec<DbClaim>>, CliFailure> {
    runs.iter().map(|run| run.claim(options)).collect()
}

fn named(dir: &Path) -> String {
    shown(&dir.display().to_string())
}

fn these(runs: usize) -> &'static str {
    if runs == 1 { "this run" } else { "these runs" }
}
