//! Plans the repair of the WAL.

use std::collections::BTreeMap;
use std::path::Path;

use super::{LossKind, Planner, WalPart};
use crate::error::Result;
use crate::index::SeriesIndex;
use crate::layout::{WAL, WAL_LIST};
use crate::progress::Progress;
use crate::recover::{ANOTHER_FILE, TOO_SHORT};
use crate::repair::wal::{WalBytes, WalPosition};
use crate::repair::{Act, wal};
use crate::series::SeriesKey;
use crate::wal::replay::Replay;
use crate::wal::{FoundList, HEADER_BYTES, Likeness};

impl Planner<'_> {
    /// Which WAL files must be there.
    pub(super) fn find_list(&mut self) -> Result<()> {
        match FoundList::load(self.disk, self.layout)? {
            FoundList::None => {}
            FoundList::Whole(list) => self.list = list,
            FoundList::Damaged(error) => self.drop_list(error.to_string()),
        }
        // Without the manifest it is unknown which of them were flushed.
        if self.manifest.is_none() && !self.list.is_empty() {
            self.drop_list("without the manifest it does not tell which files count".to_owned());
        }
        Ok(())
    }

    fn drop_list(&mut self, why: String) {
        self.drops_list = true;
        self.set_aside(WAL_LIST, why);
    }

    /// Whether a file of the WAL is not the one that was begun under its name.
    fn is_another(&self, number: u64) -> Result<bool> {
        let Some(listed) = self.list.entry(number) else { return Ok(false) };
        let mut file = Replay::open(self.disk, &self.layout.wal(number))?;
        Ok(file.likeness(listed)? == Likeness::Another)
    }

    /// Names what was in WAL files that are gone.
    fn lose_missing_wal(&mut self, found: &[(u64, String)]) {
        let Some(first) = self.manifest.as_ref().map(|manifest| manifest.first_wal) else { return };
        let is_there = |number: u64| found.iter().any(|(there, _)| *there == number);
        let gone: Vec<_> = self.list.from(first).filter(|entry| !is_there(entry.number)).copied().collect();
        for entry in gone {
            let path = self.layout.wal(entry.number);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let why = "the file was begun and is missing; it had at least this many bytes";
            self.losses.push(wal::loss(&format!("{WAL}/{name}"), why, None, entry.bytes as usize));
            self.drop_list("a file that it names is gone".to_owned());
        }
    }

    pub(super) fn keys_in_wal(&mut self) -> Result<BTreeMap<u32, SeriesKey>> {
        let mut known = BTreeMap::new();
        let files = self.wal_files()?;
        for (at, (number, file)) in files.iter().enumerate() {
            if self.is_another(*number)? {
                continue;
            }
            if let Some(bytes) = self.read(file, &mut |_| {})? {
                let position = WalPosition::of(at, files.len());
                wal::keys(&WalBytes::new(&bytes, position, self.list.entry(*number).copied()), &mut known);
            }
        }
        Ok(known)
    }

    pub(super) fn wal_files(&self) -> Result<Vec<(u64, String)>> {
        let first = self.manifest.as_ref().map_or(0, |manifest| manifest.first_wal);
        let files = self.layout.wal_files(self.disk)?;
        let needed = files.into_iter().filter(|(number, _)| *number >= first);
        let relative = |path: &Path| path.file_name().map(|name| format!("{WAL}/{}", name.to_string_lossy()));
        Ok(needed.filter_map(|(number, path)| Some((number, relative(&path)?))).collect())
    }

    pub(super) fn judge_wal(
        &mut self,
        index: &SeriesIndex,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<WalPart>> {
        let files = self.wal_files()?;
        let mut parts = Vec::new();
        self.lose_missing_wal(&files);
        for (at, (number, file)) in files.iter().enumerate() {
            let Some(bytes) = self.read(file, progress)? else { continue };
            if self.is_another(*number)? {
                self.losses.push(wal::loss(file, ANOTHER_FILE, None, bytes.len()));
                self.act(Act::SetAside, file, ANOTHER_FILE);
                self.aside.insert(file.clone());
                parts.push(WalPart { file: file.clone(), bytes: Vec::new() });
                self.drop_list("it names a file that is another one now".to_owned());
                continue;
            }
            let listed = self.list.entry(*number).copied();
            let found = WalBytes::new(&bytes, WalPosition::of(at, files.len()), listed);
            let listed = listed.map_or(0, |listed| listed.bytes);
            let mut judged = wal::judge(file, *number, &found, index)?;
            let whole = judged.whole;
            if whole < listed && !judged.losses.iter().any(|loss| matches!(loss.kind, LossKind::Wal { .. })) {
                judged.losses.push(wal::loss(file, TOO_SHORT, None, (listed - whole) as usize));
                // Every open would drop what follows, and tell it as a torn end.
                if judged.anew.is_none() {
                    let kept = if whole > HEADER_BYTES as u64 { whole as usize } else { 0 };
                    judged.anew = Some(bytes[..kept].to_vec());
                }
            }
            if whole < listed || judged.anew.is_some() {
                self.drop_list("a file that it names has changed".to_owned());
            }
            if let Some(bytes) = judged.anew.take() {
                let why = judged.losses.first().map_or_else(|| found.why_anew(&judged), |loss| &*loss.why);
                let act = if bytes.is_empty() { Act::SetAside } else { Act::RebuildWal };
                self.act(act, file, why);
                self.aside.insert(file.clone());
                parts.push(WalPart { file: file.clone(), bytes });
            }
            self.losses.extend(judged.losses);
            if !judged.unnamed.is_empty() {
                let unnamed = judged.unnamed.iter().map(|id| id.0);
                self.lose_names(file.clone(), "the frames that name them are damaged or lost", unnamed);
            }
        }
        Ok(parts)
    }
}
