//! What becomes of the WAL.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Planner, WalPart};
use crate::error::Result;
use crate::index::SeriesIndex;
use crate::layout::WAL;
use crate::progress::Progress;
use crate::repair::{Act, wal};
use crate::series::SeriesKey;

impl Planner<'_> {
    pub(super) fn keys_in_wal(&mut self) -> Result<BTreeMap<u32, SeriesKey>> {
        let mut known = BTreeMap::new();
        let files = self.wal_files()?;
        let last = files.len().saturating_sub(1);
        for (at, (_, file)) in files.iter().enumerate() {
            if let Some(bytes) = self.read(file, &mut |_| {})? {
                wal::keys(&bytes, at == last, &mut known);
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
        let last = files.len().saturating_sub(1);
        let mut parts = Vec::new();
        for (at, (number, file)) in files.iter().enumerate() {
            let Some(bytes) = self.read(file, progress)? else { continue };
            let judged = wal::judge(file, *number, &bytes, at == last, index)?;
            if let Some(bytes) = judged.anew {
                let why = judged.losses.first().map_or("series that it speaks of are unknown", |loss| &*loss.why);
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
