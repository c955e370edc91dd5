//! `telem recover`: saves the live data of killed jobs to their save directories, or removes it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use indicatif::ProgressBar;
use telem_engine::disk::OsDisk;
use telem_engine::{Db, DbInfo, Mirror, Options, mirror};

use super::agreement::is_agreed;
use super::live::{self, Leftover};
use super::{CliFailure, progress};
use crate::info::{counted, grouped, rfc3339};
use crate::saving::claim::claim;
use crate::saving::save::SaveNote;
use crate::service::noteworthy;

/// Save the live data of killed jobs, each to its save directory
///
/// A job that is killed together with telem leaves its live data behind, with the last seconds that its saved copy
/// lacks. This command completes the copy, or makes one if there is none. It overwrites nothing: if the name of a copy
/// is taken, the copy is called NODE-2. Then it removes the live data. Live data of running jobs is left alone.
///
/// Without DIR, it searches all places in which telem puts live data on this machine.
///
/// The exit code is 0 if everything that was found is saved (or removed), 1 if something could not be, 2 for wrong
/// usage.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RecoverArgs {
    /// Live data, or a directory of live data [default: telem-UID in TELEM_DATA, SLURM_TMPDIR, TMPDIR and /tmp]
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Save into this directory instead, as DIR/NODE
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Only list the live data
    #[arg(long, conflicts_with_all = ["save", "discard"])]
    list: bool,
    /// Remove the live data without saving them
    #[arg(long, conflicts_with = "save")]
    discard: bool,
    /// Do not ask before removing data for good
    #[arg(long, requires = "discard")]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  telem recover --list                 # live data of killed jobs here
  telem recover                        # save all of it
  telem recover /tmp/telem-1000/4711   # one job
  telem recover --save ./rescued       # somewhere else
  telem recover --discard              # remove it, after showing what is lost";

/// # Errors
/// Usage for a directory that holds no live data; Failed when nothing can be looked at; BadNews when something could
/// not be saved or removed.
pub fn run(args: &RecoverArgs) -> Result<(), CliFailure> {
    let found = find(&args.dirs)?;
    let mut out = io::stdout().lock();
    if found.is_empty() {
        writeln!(out, "no killed job left live data here")?;
        return Ok(());
    }
    if args.list || args.discard {
        for leftover in &found {
            out.write_all(described(leftover).as_bytes())?;
        }
        out.flush()?;
    }
    if args.list {
        return Ok(());
    }
    if args.discard && !args.yes && !is_agreed("--discard", &format!("Remove {} of them for good?", found.len()))? {
        return Err(CliFailure::Failed("nothing was removed".to_owned()));
    }
    let bar = progress::bar("{bar:40} {pos}/{len} databases, {wide_msg}");
    bar.set_length(found.len() as u64);
    let mut failed = false;
    for leftover in &found {
        bar.set_message(leftover.dir.display().to_string());
        let done = if args.discard { discard(leftover) } else { save(leftover, args.save.as_deref(), &bar) };
        let said = match done {
            Ok(done) => done,
            Err(why) => {
                failed = true;
                format!("{}: FAILED: {why}", leftover.dir.display())
            }
        };
        bar.suspend(|| writeln!(out, "{said}"))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    out.flush()?;
    if failed { Err(CliFailure::BadNews) } else { Ok(()) }
}

/// What was left in `dirs`; where none are named, in all places where live data stand.
fn find(dirs: &[PathBuf]) -> Result<Vec<Leftover>, CliFailure> {
    if dirs.is_empty() {
        return Ok(live::leftovers_everywhere());
    }
    let mut found: Vec<Leftover> = Vec::new();
    for dir in dirs {
        let dir = fs::canonicalize(dir).map_err(|error| CliFailure::Usage(format!("{}: {error}", dir.display())))?;
        let here = live::leftovers_at(&dir).map_err(|why| CliFailure::Failed(format!("{}: {why}", dir.display())))?;
        found
            .extend(here.into_iter().filter(|one| !found.iter().any(|other| other.dir == one.dir)).collect::<Vec<_>>());
    }
    Ok(found)
}

fn info(dir: &Path) -> Result<DbInfo, String> {
    let db = Db::open_read_only(dir, Options::default()).map_err(|error| error.to_string())?;
    db.info().map_err(|error| error.to_string())
}

fn described(leftover: &Leftover) -> String {
    let dir = leftover.dir.display();
    let holds = match info(&leftover.dir) {
        Ok(info) => contents(&info),
        Err(why) => format!("cannot be read: {why}"),
    };
    let place = match leftover.note.as_ref() {
        Some(SaveNote { copy: Some(copy), .. }) => format!("saved in part in {}", copy.display()),
        Some(SaveNote { save: Some(save), .. }) => format!("to be saved in {}", save.display()),
        _ => "it does not say where it was to be saved (it is of `telem serve`, `telem run --no-save` or an earlier \
             telem): name a place with --save DIR"
            .to_owned(),
    };
    format!("{dir}: {holds}\n  {place}\n")
}

fn contents(info: &DbInfo) -> String {
    let span =
        info.time_bounds.map_or(String::new(), |(first, last)| format!(", {} to {}", rfc3339(first), rfc3339(last)));
    let (samples, series, bytes) = (counted(info.samples, "sample"), grouped(info.series), counted(info.bytes, "byte"));
    format!("node {}, {samples} of {series} series, {bytes}{span}", info.node)
}

fn discard(leftover: &Leftover) -> Result<String, String> {
    // A writer may have opened it since it was found.
    leftover.check()?;
    remove(&leftover.dir).map_err(|error| error.to_string())?;
    Ok(format!("{}: removed", leftover.dir.display()))
}

fn remove(live: &Path) -> io::Result<()> {
    fs::remove_dir_all(live)?;
    if let Some(of_job) = live.parent() {
        // Other data of the job may be there.
        let _ = fs::remove_dir(of_job);
    }
    Ok(())
}

/// Where the copy of a database is to be.
struct Target {
    dir: PathBuf,
    /// It was made for this, and goes if nothing comes into it.
    is_new: bool,
}

/// The copy that was begun, if it is of this database; else an unused directory.
fn target(leftover: &Leftover, to: Option<&Path>, database: &DbInfo) -> Result<Target, String> {
    let save = match (to, &leftover.note) {
        (Some(to), _) => std::path::absolute(to).unwrap_or_else(|_| to.to_path_buf()),
        (None, Some(note)) => {
            let is_its_copy = |copy: &PathBuf| {
                mirror::database_in(copy, &OsDisk).is_ok_and(|found| found.as_ref() == Some(&database.database))
            };
            if let Some(copy) = note.copy.as_ref().filter(|copy| is_its_copy(copy)) {
                return Ok(Target { dir: copy.clone(), is_new: false });
            }
            note.save.clone().ok_or("it was saved through the head of its job: name a directory with --save DIR")?
        }
        (None, None) => return Err("it does not say where it belongs: name a directory with --save DIR".to_owned()),
    };
    let dir = claim(&save, &database.node).map_err(|error| {
        let elsewhere = if to.is_none() { "; name another directory with --save DIR" } else { "" };
        format!("cannot save in {}: {error}{elsewhere}", save.display())
    })?;
    Ok(Target { dir, is_new: true })
}

fn save(leftover: &Leftover, to: Option<&Path>, bar: &ProgressBar) -> Result<String, String> {
    leftover.check()?;
    let live = &*leftover.dir;
    let target = target(leftover, to, &info(live)?)?;
    // Whatever happens from here on: the next process knows that it is not saved, and where it belongs.
    let note = SaveNote::new(target.dir.parent().map(Path::to_path_buf), Some(target.dir.clone()));
    let noted = note.and_then(|note| note.write(live));
    let saved = noted.map_err(|error| error.to_string()).and_then(|()| copy(live, &target.dir, bar));
    match saved {
        Ok(copied) => {
            let kept = match live::is_default(live) {
                true => remove(live).err().map(|error| format!("; the live data stays: {error}")),
                false => {
                    SaveNote::remove(live);
                    Some("; the live data stays in the requested directory".to_owned())
                }
            };
            let kept = kept.unwrap_or_default();
            Ok(format!("{}: saved in {}: {}{kept}", live.display(), target.dir.display(), contents(&copied)))
        }
        Err(why) => {
            if target.is_new {
                // Only where nothing came into it.
                let _ = fs::remove_dir(&target.dir);
            }
            Err(why)
        }
    }
}

/// Brings the copy in `to` up to date with what is in `live`, and makes sure that it is.
fn copy(live: &Path, to: &Path, bar: &ProgressBar) -> Result<DbInfo, String> {
    let db = Db::open(live, Options::default()).map_err(|error| error.to_string())?;
    if let Some(found) = noteworthy(db.recovery()) {
        bar.suspend(|| writeln!(io::stderr(), "{}: {found}", live.display()).unwrap_or_default());
    }
    let copied = (|| {
        let mut mirror = Mirror::resume(&db, to, Arc::new(OsDisk))?;
        db.flush()?;
        mirror.step()?;
        db.close()?;
        mirror.finish()?;
        db.info()
    })();
    let own = copied.map_err(|error| error.to_string())?;
    let found = info(to)?;
    if (found.samples, found.series, &found.database) != (own.samples, own.series, &own.database) {
        return Err(format!(
            "the copy in {} holds {}, not {}: the live data stays",
            to.display(),
            counted(found.samples, "sample"),
            grouped(own.samples)
        ));
    }
    Ok(found)
}
