//! Several databases, opened read-only as one.
//!
//! Equal keys are one series. Every database keeps its files as they are: [`Ids`] maps its ids to those of the common
//! index, and is used once per run when a segment is loaded. If two databases hold a sample of the same series and
//! time, the database that was named later wins, whether its sample is in a segment or in the WAL.

mod opening;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::index::{Ids, Nodes, SeriesIndex};
use crate::info::{DbInfo, InfoParts};
use crate::layout::Layout;
use crate::meta::Meta;
use crate::options::Options;
use crate::recover::{RecoveredDatabase, RecoveryReport};
use crate::segment::{self, CacheFigures, Segment, SegmentCache};
use crate::snapshot::{PlacedPart, Visible};

/// One of several databases.
#[derive(Debug)]
pub struct Member {
    pub info: DbInfo,
    pub recovery: RecoveryReport,
}

/// Several databases, read as far as opening reads.
#[derive(Debug)]
pub struct Together {
    pub members: Vec<Member>,
    /// The directory around all of them.
    pub dir: PathBuf,
    pub index: SeriesIndex,
    pub meta: Meta,
    pub nodes: Nodes,
    /// Database after database, each oldest first.
    pub segments: Vec<Arc<Segment>>,
    /// What no segment holds yet, placed between the segments.
    pub memtables: Vec<Visible>,
    /// What each database holds of which job.
    pub parts: Vec<PlacedPart>,
}

/// A database that could not be opened among several.
#[derive(Debug)]
pub struct UnopenedDatabase {
    pub dir: PathBuf,
    pub error: Error,
}

/// What to do about a database that cannot be opened.
#[derive(Debug)]
pub enum Unsound<'a> {
    Fail,
    /// It is left out, and noted here.
    LeaveOut(&'a mut Vec<UnopenedDatabase>),
}

impl Together {
    /// # Errors
    /// That of the first database that cannot be opened, as [`crate::Db::open_read_only`]; where such are left out,
    /// only when none can.
    pub fn open(
        dirs: &[PathBuf],
        options: &Options,
        cache: &Arc<SegmentCache>,
        mut unsound: Unsound<'_>,
    ) -> Result<Self> {
        let mut together = Self {
            members: Vec::new(),
            dir: around(dirs),
            index: SeriesIndex::default(),
            meta: Meta::default(),
            nodes: Nodes::One(Arc::from("")),
            segments: Vec::new(),
            memtables: Vec::new(),
            parts: Vec::new(),
        };
        let mut ids = Vec::with_capacity(dirs.len());
        opening::each(dirs, options, |layout, recovered| {
            match (recovered, &mut unsound) {
                (Ok(recovered), _) => ids.push(together.add(layout, recovered, options, cache)?),
                (Err(error), Unsound::Fail) => return Err(error),
                (Err(error), Unsound::LeaveOut(unopened)) => {
                    unopened.push(UnopenedDatabase { dir: layout.dir().to_path_buf(), error });
                }
            }
            Ok(())
        })?;
        if let (Unsound::LeaveOut(unopened), true) = (unsound, together.members.is_empty())
            && !unopened.is_empty()
        {
            return Err(unopened.swap_remove(0).error);
        }
        let first = |member: &Member| member.info.time_bounds.map(|(first, _)| first.micros());
        let firsts: Vec<Option<i64>> = together.members.iter().map(first).collect();
        PlacedPart::name_all(&mut together.parts, &firsts);
        let nodes: Vec<String> = together.members.iter().map(|member| member.info.node.clone()).collect();
        together.nodes = Nodes::of_several(&ids, &nodes, together.index.len());
        Ok(together)
    }

    fn add(
        &mut self,
        layout: &Layout,
        recovered: RecoveredDatabase,
        options: &Options,
        cache: &Arc<SegmentCache>,
    ) -> Result<Arc<Ids>> {
        let RecoveredDatabase { manifest, index, meta, memtable, report, .. } = recovered;
        let ids = Arc::new(Ids::new(&index, &self.index)?);
        let info = DbInfo::new(&InfoParts {
            layout,
            manifest: &manifest,
            meta: &meta,
            memtables: &[&memtable],
            metrics: index.metrics().len(),
            series: index.len(),
            wal_bytes: report.bytes,
            read_only: true,
            removed_bytes: 0,
            cache: CacheFigures::default(),
            written: None,
        });
        self.members.push(Member { info, recovery: report });
        let segments = manifest.segments.iter().map(|entry| {
            let disk = Arc::clone(&options.disk);
            Segment::new(entry.clone(), layout, disk, Arc::clone(cache)).with_ids(Arc::clone(&ids))
        });
        let first_segment = self.segments.len();
        self.segments.extend(segment::by_age(segments.map(Arc::new).collect()));
        let number = self.members.len() - 1;
        let segments = first_segment..self.segments.len();
        PlacedPart::push_all(&mut self.parts, &meta, &Arc::from(&*manifest.node), &ids, segments);
        match number {
            0 => self.meta = meta,
            _ => self.meta.absorb(meta),
        }
        if !memtable.is_empty() {
            let memtable = memtable.renamed(&ids).map_err(|series| Error::UnknownSeries { id: series.0 })?;
            let (rows, segments_before) = (memtable.rows(), self.segments.len());
            self.memtables.push(Visible { memtable: Arc::new(memtable), rows, segments_before, part: Some(number) });
        }
        Ok(ids)
    }

    /// What is in all of them, each series and metric counted once.
    pub fn info(members: &[Member], dir: &Path, index: &SeriesIndex, nodes: &Nodes) -> Option<DbInfo> {
        let (first, others) = members.split_first()?;
        let mut info = first.info.clone();
        for member in others {
            info.add(&member.info);
        }
        info.dir = dir.to_path_buf();
        info.node = nodes.all().to_owned();
        info.database = members.iter().map(|member| &*member.info.database).collect::<Vec<_>>().join(",");
        info.metrics = index.metrics().len() as u64;
        info.series = index.len() as u64;
        Some(info)
    }
}

/// The longest path that all of `dirs` lie below, or are.
fn around(dirs: &[PathBuf]) -> PathBuf {
    let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    let mut dirs = dirs.iter().map(absolute);
    let Some(mut around) = dirs.next() else { return PathBuf::new() };
    for dir in dirs {
        while !dir.starts_with(&around) && around.pop() {}
    }
    around
}

#[cfg(test)]
mod tests;
