//! The names of simulated files: what processes see, what the medium holds, and the changes
//! between the two that no `sync_dir` has covered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::crash::{self, Survival};
use super::random::Random;

/// The number of this file in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub usize);

#[derive(Clone, Debug, Default)]
pub struct DirectoryNames {
    live: Entries,
    durable: Entries,
    /// By directory, oldest first.
    pending: BTreeMap<PathBuf, Vec<Change>>,
}

#[derive(Clone, Debug, Default)]
struct Entries {
    files: BTreeMap<PathBuf, FileId>,
    /// Without the root, which is always there.
    dirs: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
enum Change {
    Link { name: PathBuf, file: FileId },
    Rename { from: PathBuf, to: PathBuf, file: FileId },
    Unlink { name: PathBuf },
    MakeDir { name: PathBuf },
}

impl DirectoryNames {
    pub fn file(&self, name: &Path) -> Option<FileId> {
        self.live.files.get(name).copied()
    }

    pub fn files(&self) -> impl Iterator<Item = (&PathBuf, FileId)> {
        self.live.files.iter().map(|(name, file)| (name, *file))
    }

    pub fn is_dir(&self, name: &Path) -> bool {
        is_root(name) || self.live.dirs.contains(name)
    }

    pub fn link(&mut self, name: &Path, file: FileId) {
        self.change(name, Change::Link { name: name.to_path_buf(), file });
    }

    pub fn unlink(&mut self, name: &Path) {
        self.change(name, Change::Unlink { name: name.to_path_buf() });
    }

    pub fn make_dir(&mut self, name: &Path) {
        self.change(name, Change::MakeDir { name: name.to_path_buf() });
    }

    /// Atomic inside one directory. Between two, each keeps its half until it is synced.
    pub fn rename(&mut self, from: &Path, to: &Path, file: FileId) {
        if from.parent() == to.parent() {
            self.change(to, Change::Rename { from: from.to_path_buf(), to: to.to_path_buf(), file });
        } else {
            self.link(to, file);
            self.unlink(from);
        }
    }

    fn change(&mut self, name: &Path, change: Change) {
        self.live.apply(&change);
        self.pending.entry(parent(name)).or_default().push(change);
    }

    pub fn sync_dir(&mut self, dir: &Path) {
        for change in self.pending.remove(dir).unwrap_or_default() {
            self.durable.apply(&change);
        }
    }

    pub fn after_power_loss(&self, for_all: Option<Survival>, random: &mut Random) -> DirectoryNames {
        let mut entries = self.durable.clone();
        for changes in self.pending.values() {
            let survival = for_all.unwrap_or_else(|| crash::draw(random));
            let until = match survival {
                Survival::Nothing => 0,
                Survival::Everything | Survival::Any => changes.len(),
                Survival::Prefix => random.between(0, changes.len()),
            };
            for change in &changes[..until] {
                if survival != Survival::Any {
                    entries.apply(change);
                } else if random.coin() {
                    entries.apply_perhaps_half(change, random);
                }
            }
        }
        entries.drop_orphans();
        DirectoryNames { live: entries.clone(), durable: entries, pending: BTreeMap::new() }
    }
}

impl Entries {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Link { name, file } => {
                self.files.insert(name.clone(), *file);
            }
            Change::Rename { from, to, file } => {
                self.files.remove(from);
                self.files.insert(to.clone(), *file);
            }
            Change::Unlink { name } => {
                self.files.remove(name);
            }
            Change::MakeDir { name } => {
                self.dirs.insert(name.clone());
            }
        }
    }

    /// A rename may leave the old name too; that the new name is missing then is not allowed.
    fn apply_perhaps_half(&mut self, change: &Change, random: &mut Random) {
        match change {
            Change::Rename { to, file, .. } if random.once_in(4) => {
                self.files.insert(to.clone(), *file);
            }
            _ => self.apply(change),
        }
    }

    /// The contents of a directory that did not survive are gone with it.
    fn drop_orphans(&mut self) {
        let dirs = self.dirs.clone();
        let reachable = |name: &Path| name.ancestors().skip(1).all(|dir| is_root(dir) || dirs.contains(dir));
        self.files.retain(|name, _| reachable(name));
        self.dirs.retain(|name| reachable(name));
    }
}

fn is_root(name: &Path) -> bool {
    name.parent().is_none()
}

pub fn parent(name: &Path) -> PathBuf {
    name.parent().unwrap_or(name).to_path_buf()
}
