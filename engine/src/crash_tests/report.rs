//! The recovery report, number by number, against the disk before and after.

use std::path::Path;

use super::world::DIR;
use crate::disk::sim::SimDisk;
use crate::layout::{self, Layout};
use crate::manifest::Manifest;
use crate::recover::RecoveryReport;

pub fn assert_true(report: &RecoveryReport, before: &SimDisk, after: &SimDisk) {
    let layout = Layout::new(Path::new(DIR));
    let size = |path: &Path| before.content(path).map_or(0, |bytes| bytes.len() as u64);
    let Ok(Some(manifest)) = Manifest::load(before, &layout) else {
        assert!(report.created, "there was no manifest, and the report calls nothing created: {report}");
        return;
    };
    assert!(!report.created, "the database was there before");

    let wal: Vec<_> = before.files().into_iter().filter(|path| is_replayed(path, manifest.first_wal)).collect();
    assert_eq!(report.wal_files, wal.len() as u64, "WAL files: {report}");
    let cuts = || report.torn.iter().chain(&report.damaged);
    let not_replayed: u64 = cuts().map(|cut| cut.bytes).sum();
    let bytes: u64 = wal.iter().map(|path| size(path)).sum();
    assert_eq!(report.bytes + not_replayed, bytes, "bytes replayed and not: {report}");
    for cut in cuts() {
        assert_eq!(cut.at + cut.bytes, size(&cut.file), "{report}");
        assert_eq!(after.content(&cut.file).map_or(0, |bytes| bytes.len() as u64), cut.at, "{report}");
        if let Some(aside) = &cut.set_aside {
            let kept = before.content(&cut.file).unwrap_or_default();
            assert_eq!(after.content(aside).as_deref(), kept.get(cut.at as usize..), "{report}");
        }
    }

    for path in &report.removed {
        assert!(before.content(path).is_some() && after.content(path).is_none(), "{report}");
    }
    assert!(report.missing.is_empty(), "a death loses no file that a manifest names: {report}");
    let lock_was_there = before.content(&layout.writer()).is_some();
    assert_eq!(report.taken_over_from.is_some(), lock_was_there, "{report}");
}

fn is_replayed(path: &Path, first: u64) -> bool {
    layout::wal_number(path).is_some_and(|number| number >= first)
}
