//! The default place for the live data of a job: the first candidate that can be used.
//!
//! A job inherits its environment from a login node, whose directories may not exist on a compute node; the job is
//! recorded all the same. Live data that killed jobs left behind is reported.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use telem_engine::lock::{self, Machine};
use telem_engine::options::Options;

use super::service::{self, LIVE_DATA, make};
use crate::config::{self, Base};
use crate::private_dir::{self, Privacy};
use crate::saving::claim::claim;
use crate::saving::save::note::{self, SaveNote};

/// A place with less room is not used for a database.
const FREE_BYTES_MIN: u64 = 1 << 20;
/// Most directories of jobs that are looked at for what they left.
const JOBS_MAX: usize = 1_000;
/// Most of them that are named.
const NAMED_MAX: usize = 3;

/// An unused directory for that job. `first`: the place to use instead of TELEM_DATA; `last`: if there is no other.
///
/// # Errors
/// When it can be made nowhere; says why of each place.
pub fn fresh(job: &str, node: &str, first: Option<&Path>, last: Option<&Path>) -> Result<PathBuf, String> {
    let mut bases = config::data_bases(service::with_data_base(first));
    bases.extend(last.map(|path| Base { path: path.to_path_buf(), variable: None }));
    fresh_in(&bases, job, node)
}

fn fresh_in(bases: &[Base], job: &str, node: &str) -> Result<PathBuf, String> {
    let uid = rustix::process::getuid().as_raw();
    let mut refused = Vec::new();
    for base in bases {
        match claim_in(base, job, node, uid) {
            Ok(dir) => {
                if !refused.is_empty() {
                    tracing::warn!(
                        "the live data are in {}, because they cannot be where they should: {}; set TELEM_DATA, or \
                         --data, to a local directory that you may write",
                        dir.display(),
                        refused.join("; ")
                    );
                }
                return Ok(dir);
            }
            Err(why) => refused.push(why),
        }
    }
    Err(format!("there is no place for the live data: {}; name one with --data DIR", refused.join("; ")))
}

fn claim_in(base: &Base, job: &str, node: &str, uid: u32) -> Result<PathBuf, String> {
    let Base { path, variable } = base;
    let named = match variable {
        Some(variable) => format!("{} ({variable})", path.display()),
        None => path.display().to_string(),
    };
    let why = |error: &dyn std::fmt::Display| format!("{named}: {error}");
    // What a scheduler promised is there or it is not; it is not ours to make.
    if *variable == Some("TELEM_DATA") {
        make(path, 0o777).map_err(|failure| failure.into_message())?;
    }
    let free = rustix::fs::statvfs(path).map_err(|error| why(&io::Error::from(error)))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    if free < FREE_BYTES_MIN {
        return Err(why(&format_args!("{free} bytes are free")));
    }
    let private = private_dir::below(path, &config::private_name(uid), uid, Privacy::Closed);
    let private = private.map_err(|error| why(&error))?;
    let dir = claim(&private.path.join(job), node).map_err(|error| why(&error))?;
    private.tell_passed(LIVE_DATA);
    Ok(dir)
}

/// Reports, on a thread of its own, which live data of dead jobs is beside `dir`, which [`fresh`] returned.
pub fn tell_leftovers(dir: &Path) {
    let Some(private) = dir.parent().and_then(Path::parent).map(Path::to_path_buf) else { return };
    let tell = move || {
        let found = leftovers(&private);
        if found.is_empty() {
            return;
        }
        let named: Vec<String> = found.iter().take(NAMED_MAX).map(|one| one.dir.display().to_string()).collect();
        let more = found.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        tracing::warn!(
            "jobs that were killed left live data, with seconds that their saved copies lack: {}{more}; `telem recover` \
             saves them where those are, `telem recover --list` says what is in them, and `telem recover --discard` \
             removes them",
            named.join(", "),
        );
    };
    // Without a thread for it, the next job reports it.
    let _ = std::thread::Builder::new().name("telem-tidy".to_owned()).spawn(tell);
}

/// A database that a dead process left open, or closed and not saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub dir: PathBuf,
    pub note: Option<SaveNote>,
}

impl Leftover {
    /// # Errors
    /// Why the database in `dir` is not what a dead job left.
    fn at(dir: &Path, machine: &dyn Machine) -> Result<Self, String> {
        let note = SaveNote::read(dir);
        let of_another = |host: &str| format!("it was written on {host}: run `telem recover` there");
        let alive = |owner: &lock::Process| match machine.this_process() {
            Ok(me) if me.host != owner.host => of_another(&owner.host),
            _ => format!("its job still runs ({owner})"),
        };
        match fs::read(dir.join("WRITER")) {
            Ok(content) => match serde_json::from_slice::<lock::Process>(&content) {
                Ok(owner) if note::is_dead(&owner, machine) => {}
                Ok(owner) => return Err(alive(&owner)),
                Err(_) => {
                    return Err(
                        "its WRITER file is damaged; `telem check DIR --repair --take-over` repairs it".to_owned()
                    );
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => match &note {
                Some(note) if note::is_dead(&note.process, machine) => {}
                Some(note) => return Err(alive(&note.process)),
                None => return Err("nothing is left behind there: its writer closed it".to_owned()),
            },
            Err(error) => return Err(error.to_string()),
        }
        Ok(Self { dir: dir.to_path_buf(), note })
    }

    /// Makes sure that it still is one.
    ///
    /// # Errors
    /// Why it is not.
    pub fn check(&self) -> Result<(), String> {
        Self::at(&self.dir, &*Options::default().machine).map(drop)
    }
}

/// What killed jobs left below `private`/JOB, in the order of its directories.
fn leftovers(private: &Path) -> Vec<Leftover> {
    let nodes = directories(private).into_iter().take(JOBS_MAX).flat_map(|job| directories(&job));
    those_left(nodes)
}

/// What killed jobs left in all default places of live data.
pub fn leftovers_everywhere() -> Vec<Leftover> {
    let uid = rustix::process::getuid().as_raw();
    let name = config::private_name(uid);
    let mut roots: Vec<PathBuf> = config::data_bases(config::environment)
        .into_iter()
        .flat_map(|base| private_dir::found_below(&base.path, &name, uid, Privacy::Closed))
        .filter_map(|root| fs::canonicalize(root).ok())
        .collect();
    roots.sort();
    roots.dedup();
    roots.iter().flat_map(|root| leftovers(root)).collect()
}

/// What is left in `dir`: live data, those of a job, or those of several.
///
/// # Errors
/// Why there are none, if `dir` is a database itself.
pub fn leftovers_at(dir: &Path) -> Result<Vec<Leftover>, String> {
    if dir.join("MANIFEST").exists() {
        return Leftover::at(dir, &*Options::default().machine).map(|one| vec![one]);
    }
    let nodes = directories(dir);
    let below = nodes.iter().take(JOBS_MAX).flat_map(|job| directories(job));
    Ok(those_left(nodes.iter().cloned().chain(below)))
}

/// Whether `dir` is a default place of live data.
pub fn is_default(dir: &Path) -> bool {
    let private = dir.parent().and_then(Path::parent).and_then(Path::file_name);
    let name = config::private_name(rustix::process::getuid().as_raw());
    private_dir::names(&name).any(|name| private.is_some_and(|private| private == &*name))
}

fn those_left(dirs: impl Iterator<Item = PathBuf>) -> Vec<Leftover> {
    let machine = Options::default().machine;
    let databases = dirs.filter(|dir| dir.join("MANIFEST").exists() || dir.join("WRITER").exists());
    let mut found: Vec<Leftover> = databases.filter_map(|dir| Leftover::at(&dir, &*machine).ok()).collect();
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    found
}

fn directories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn base(path: &Path) -> Base {
        Base { path: path.to_path_buf(), variable: Some("TMPDIR") }
    }

    #[test]
    fn a_place_that_is_not_there_is_passed_over_and_a_name_that_is_taken_as_well() {
        let uid = rustix::process::getuid().as_raw();
        let name = config::private_name(uid);
        let dir = tempfile::tempdir().unwrap();
        let (absent, open, linked) = (dir.path().join("absent"), dir.path().join("open"), dir.path().join("linked"));
        fs::create_dir_all(open.join(&name)).unwrap();
        fs::set_permissions(open.join(&name), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&linked).unwrap();
        std::os::unix::fs::symlink("/no/such/place", linked.join(&name)).unwrap();
        for taken in [&open, &linked] {
            let given = fresh_in(&[base(&absent), base(taken)], "j1", "n1").unwrap();
            assert_eq!(given, taken.join(format!("{name}-2/j1/n1")));
            assert!(given.is_dir() && !absent.exists());
        }
        let full = dir.path().join("full");
        fs::create_dir(&full).unwrap();
        for taken in private_dir::names(&name) {
            std::os::unix::fs::symlink("/no/such/place", full.join(taken)).unwrap();
        }
        let given = fresh_in(&[base(&full), base(&open)], "j2", "n1").unwrap();
        assert_eq!(given, open.join(format!("{name}-2/j2/n1")));
        let error = fresh_in(&[base(&absent), base(&full)], "j1", "n1").unwrap_err();
        assert!(error.contains("absent (TMPDIR): No such file") && error.contains("is not a directory but"), "{error}");
        assert!(error.contains("name one with --data DIR"), "{error}");
    }

    #[test]
    fn the_directory_that_was_asked_for_by_name_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = Base { path: dir.path().join("a/b"), variable: Some("TELEM_DATA") };
        assert!(fresh_in(&[wanted], "j1", "n1").unwrap().starts_with(dir.path().join("a/b")));
    }

    #[test]
    fn live_data_of_a_dead_process_are_found_and_those_of_a_live_one_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, alive, closed) = (dir.path().join("j1/n1"), dir.path().join("j2/n1"), dir.path().join("j2/n1-2"));
        for place in [&dead, &alive, &closed] {
            fs::create_dir_all(place).unwrap();
        }
        let me = Options::default().machine.this_process().unwrap();
        let write = |place: &Path, started| {
            let owner = lock::Process { started, ..me.clone() };
            fs::write(place.join("WRITER"), serde_json::to_vec(&owner).unwrap()).unwrap();
        };
        write(&dead, me.started - 1);
        write(&alive, me.started);
        assert_eq!(leftovers(dir.path()), [Leftover { dir: dead, note: None }]);
        assert!(leftovers(&dir.path().join("absent")).is_empty());
    }
}
