//! Plans the repair of the series' keys.

use std::collections::BTreeMap;

use super::Planner;
use crate::error::Result;
use crate::layout::SERIES;
use crate::manifest::{FileEntry, SeriesEntry};
use crate::progress::Progress;
use crate::repair::segments::{SegmentFinding, why};
use crate::repair::series::{self, FoundKeys, SeriesPart};
use crate::repair::{Act, flip};
use crate::series::SeriesKey;

impl Planner<'_> {
    pub(super) fn read_series(&mut self, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Vec<FoundKeys>> {
        let named: Vec<SeriesEntry> = self.manifest.as_ref().map(|found| found.series.clone()).unwrap_or_default();
        let has_manifest = self.manifest.is_some();
        let mut found = Vec::new();
        for file in self.list(SERIES)? {
            let Some(bytes) = self.read(&file, progress)? else { continue };
            let path = self.layout.named(&file);
            let crc32 = crc32fast::hash(&bytes);
            if let Some(entry) = named.iter().find(|entry| entry.file.file == file) {
                if (entry.file.bytes, entry.file.crc32) != (bytes.len() as u64, crc32) {
                    // Its keys then are those of a file that tells them, and get a new one.
                    let good = flip::turned_back(&bytes, entry.file.crc32, flip::SHORT_BYTES_MAX)
                        .filter(|_| bytes.len() as u64 == entry.file.bytes);
                    let keys = good.and_then(|good| series::decode(&path, &good, entry.first_id, entry.count).ok());
                    found.extend(keys.map(|keys| FoundKeys { entry: entry.clone(), keys, named: false }));
                    self.set_aside(&file, "its bytes are not what the manifest says");
                    continue;
                }
                match series::decode(&path, &bytes, entry.first_id, entry.count) {
                    Ok(keys) => found.push(FoundKeys { entry: entry.clone(), keys, named: true }),
                    Err(error) => self.set_aside(&file, why(&error)),
                }
                continue;
            }
            match series::read(&path, &bytes) {
                Ok((first_id, keys)) => {
                    let file = FileEntry { file, bytes: bytes.len() as u64, crc32 };
                    let entry = SeriesEntry { file, first_id, count: keys.len() as u32 };
                    found.push(FoundKeys { entry, keys, named: !has_manifest });
                }
                Err(error) if !has_manifest => self.set_aside(&file, why(&error)),
                Err(_) => {}
            }
        }
        Ok(found)
    }

    pub(super) fn chain(
        &mut self,
        found: &[FoundKeys],
        in_wal: &BTreeMap<u32, SeriesKey>,
        judged: &[(String, SegmentFinding)],
    ) -> Result<series::SeriesChain> {
        let runs = judged.iter().flat_map(|(_, examined)| match examined {
            SegmentFinding::Sound { runs, .. } | SegmentFinding::Damaged { runs, .. } => runs.as_slice(),
            SegmentFinding::Lost { .. } => &[],
        });
        let used = runs.map(|run| run.series.0.saturating_add(1)).max().unwrap_or(0);
        let named = self.manifest.as_ref().map_or(0, |manifest| manifest.series_count());
        let end = used.max(u32::try_from(named).unwrap_or(u32::MAX));
        let chain = series::chain(found, in_wal, end)?;
        let lost_in = |first: u32, count: u32| -> Vec<u32> {
            chain.lost.iter().copied().filter(|id| *id >= first && id - first < count).collect()
        };
        for part in &chain.parts {
            let SeriesPart::Made { first_id, keys } = part else { continue };
            let entries = self.manifest.iter().flat_map(|manifest| &manifest.series);
            let file =
                entries.filter(|entry| entry.first_id <= *first_id).map(|entry| entry.file.file.clone()).next_back();
            let file = file.unwrap_or_else(|| SERIES.to_owned());
            let lost = lost_in(*first_id, keys.len() as u32);
            let known = keys.len() - lost.len();
            let why =
                format!("ids {first_id} to {}, {known} of them found elsewhere", *first_id as usize + keys.len() - 1);
            self.act(Act::RebuildSeries, &file, why);
            if lost.is_empty() {
                continue;
            }
            self.lose_names(file, "the file that names them is damaged or lost", lost.into_iter());
        }
        Ok(chain)
    }
}
