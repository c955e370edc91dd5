//! The jobs whose samples a snapshot has. Nothing is stored with a sample for that.
//!
//! A database is what one node recorded, mostly of one job: then each sample belongs to the job of the database in which
//! it lies. Where several jobs shared a database, it knows when each ran and which series were its own
//! ([`crate::meta::JobInterval`]); what the node itself told belongs to all that ran then.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use serde_json::Value as Json;

use super::{Snapshot, Visible};
use crate::index::{Ids, Nodes};
use crate::meta::inventory::{DeviceKind, InventoryEntry};
use crate::meta::{JobInterval, JobStretch, Meta, is_fuller, stretches};
use crate::series::SeriesId;
use crate::time::{TimeRange, Timestamp};

/// The id of a job that nobody described, as of what `serve` takes.
const UNDESCRIBED: &str = "local";
/// The nodes of one run begin within that time.
const STARTS_APART_MAX_US: i64 = 60_000_000;

/// What one node recorded of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPart {
    /// The id of the job, as its description has it. Of several runs with one id, as in one allocation of a scheduler,
    /// the second is `ID-2`. Without a description it is `local`, and `local-2` of a second database of the same node.
    pub job: Arc<str>,
    pub node: Arc<str>,
    /// A JSON object whose fields are its writer's.
    pub description: Option<Arc<Json>>,
    /// The GPUs of the inventory, by their tag, and whether the job was given them.
    pub gpus: Arc<BTreeMap<String, Option<bool>>>,
}

impl JobPart {
    fn new(description: Option<Arc<Json>>, node: Arc<str>, gpus: &Arc<BTreeMap<String, Option<bool>>>) -> Self {
        let id = description.as_ref().and_then(|job| job["id"].as_str()).filter(|id| !id.is_empty());
        Self { job: Arc::from(id.unwrap_or(UNDESCRIBED)), node, description, gpus: Arc::clone(gpus) }
    }

    /// Those of a database that several jobs shared; nothing of one that did not.
    pub(crate) fn shared(meta: &Meta, node: &str) -> Vec<Self> {
        if meta.job_intervals().is_empty() {
            return Vec::new();
        }
        let parts = JobShare::numbered(meta, &Arc::from(node));
        parts.into_iter().map(|share| share.part).collect()
    }
}

/// What a database has of one job.
#[derive(Clone, Debug)]
pub(crate) struct JobShare {
    pub part: JobPart,
    /// When the job was first heard of, where it shares the database.
    begin: Option<Timestamp>,
    /// What is its own of the database; `None` is all of it.
    stretches: Option<Arc<[JobStretch]>>,
}

impl JobShare {
    /// Of each job of a database: those that shared it as they began, and last what is of none of them.
    pub fn all(meta: &Meta, node: &Arc<str>) -> Vec<Self> {
        let intervals = meta.job_intervals();
        // What the recorder was given says nothing of others that shared its database.
        let given = |entry: &InventoryEntry| entry.in_job.filter(|_| intervals.is_empty());
        let of_node =
            meta.inventory().into_iter().filter(|(of, entry)| **of == **node && entry.kind == DeviceKind::Gpu);
        let gpus = Arc::new(of_node.map(|(_, entry)| (entry.device.clone(), given(&entry))).collect());
        let whole = || JobPart::new(meta.job().cloned().map(Arc::new), Arc::clone(node), &gpus);
        if intervals.is_empty() {
            return vec![Self { part: whole(), begin: None, stretches: None }];
        }
        let mut stretches = stretches(intervals).into_iter().map(Arc::from);
        let mut shares: Vec<Self> = Vec::with_capacity(intervals.len() + 1);
        for (JobInterval { job, begin, .. }, stretches) in intervals.iter().zip(&mut stretches) {
            let part = JobPart::new(Some(Arc::clone(job)), Arc::clone(node), &gpus);
            shares.push(Self { part, begin: Some(*begin), stretches: Some(stretches) });
        }
        shares.extend(stretches.map(|rest| Self { part: whole(), begin: None, stretches: Some(rest) }));
        shares
    }

    /// As [`JobShare::all`], of a database alone.
    fn numbered(meta: &Meta, node: &Arc<str>) -> Vec<Self> {
        let mut shares = Self::all(meta, node);
        let firsts = vec![None; shares.len()];
        Self::tell_runs_apart(&mut shares.iter_mut().collect::<Vec<_>>(), &firsts);
        shares
    }

    /// When its run began, in microseconds; `None` where nobody said so.
    fn start(&self) -> Option<i64> {
        self.begin.map(Timestamp::micros).or_else(|| self.part.description.as_deref().and_then(start))
    }
}

/// Where the share of a job lies among several databases.
#[derive(Clone, Debug)]
pub(crate) struct PlacedPart {
    pub share: JobShare,
    /// The place of its database among all.
    pub number: usize,
    pub ids: Arc<Ids>,
    /// Of all segments of the snapshot those of its database.
    pub segments: Range<usize>,
}

/// A job, and what a snapshot has of it.
#[derive(Clone, Debug)]
pub struct RecordedJob {
    pub job: Arc<str>,
    pub pieces: Vec<JobPiece>,
}

/// Samples of one job. Of two pieces of a job, those that come later count where both have a sample of one series and
/// time.
#[derive(Clone, Debug)]
pub struct JobPiece {
    /// Selects its series, with samples of others before and after.
    pub snapshot: Snapshot,
    /// When they are its own: ascending, without overlap.
    pub ranges: Arc<[TimeRange]>,
}

/// When a described run began, in microseconds; `None` where the description does not say so.
fn start(description: &Json) -> Option<i64> {
    Some(string_to_timestamp_nanos(description["start"].as_str()?).ok()? / 1_000)
}

/// One of several runs with one id.
struct NumberedRun {
    start: i64,
    /// Name, settings and command.
    what: [Json; 3],
    nodes: Vec<Arc<str>>,
    job: Arc<str>,
}

impl PlacedPart {
    /// Adds what the next database has of which jobs.
    pub(crate) fn push_all(
        parts: &mut Vec<PlacedPart>,
        meta: &Meta,
        node: &Arc<str>,
        ids: &Arc<Ids>,
        segments: Range<usize>,
    ) {
        let number = parts.last().map_or(0, |last| last.number + 1);
        let is_undescribed = |share: &JobShare| share.part.node == *node && share.part.description.is_none();
        let earlier = parts.iter().filter(|placed| is_undescribed(&placed.share)).count();
        for mut share in JobShare::all(meta, node) {
            if &*share.part.job == UNDESCRIBED && earlier > 0 {
                share.part.job = Arc::from(format!("{UNDESCRIBED}-{}", earlier + 1));
            }
            parts.push(PlacedPart { share, number, ids: Arc::clone(ids), segments: segments.clone() });
        }
    }

    /// Names them once all are there. `firsts` are the times of the first samples of each database, in microseconds.
    pub(crate) fn name_all(parts: &mut [PlacedPart], firsts: &[Option<i64>]) {
        let firsts: Vec<Option<i64>> =
            parts.iter().map(|placed| firsts.get(placed.number).copied().flatten()).collect();
        let mut shares: Vec<&mut JobShare> = parts.iter_mut().map(|placed| &mut placed.share).collect();
        JobShare::tell_runs_apart(&mut shares, &firsts);
        JobShare::complete(&mut shares);
    }
}

impl JobShare {
    /// Tells runs apart that have one id. `firsts` are the times of the first samples of each share, in microseconds: by
    /// its own belongs a share to a run that knows the id alone.
    fn tell_runs_apart(shares: &mut [&mut JobShare], firsts: &[Option<i64>]) {
        let taken: BTreeSet<Arc<str>> = shares.iter().map(|share| Arc::clone(&share.part.job)).collect();
        let mut described: BTreeMap<Arc<str>, Vec<(i64, usize)>> = BTreeMap::new();
        for (at, share) in shares.iter().enumerate() {
            if let Some(start) = share.start() {
                described.entry(Arc::clone(&share.part.job)).or_default().push((start, at));
            }
        }
        for (id, mut starts) in described {
            starts.sort_unstable();
            let mut runs: Vec<NumberedRun> = Vec::new();
            let mut run_of: BTreeMap<usize, usize> = BTreeMap::new();
            for (start, at) in starts {
                let part = &shares[at].part;
                let description = part.description.as_deref().unwrap_or(&Json::Null);
                // Of a job over several shared servers each describes it by what it heard itself.
                let what = match shares[at].begin {
                    Some(_) => [const { Json::Null }; 3],
                    None => ["name", "settings", "command"].map(|field| description[field].clone()),
                };
                // What is recovered after a crash may stand in a second database of its node.
                let is_same = |run: &NumberedRun| {
                    let is_close = start.saturating_sub(run.start) < STARTS_APART_MAX_US;
                    run.what == what && (start == run.start || is_close && !run.nodes.contains(&part.node))
                };
                let run = runs.iter().rposition(is_same).unwrap_or_else(|| {
                    let numbered = |number: usize| Arc::from(format!("{id}-{number}"));
                    let is_free =
                        |job: &Arc<str>| !taken.contains(job) && runs.iter().all(|run: &NumberedRun| run.job != *job);
                    let job = match runs.len() {
                        0 => Arc::clone(&id),
                        earlier => (earlier + 1..).map(numbered).find(is_free).unwrap_or_else(|| Arc::clone(&id)),
                    };
                    runs.push(NumberedRun { start, what, nodes: Vec::new(), job });
                    runs.len() - 1
                });
                runs[run].nodes.push(Arc::clone(&part.node));
                run_of.insert(at, run);
            }
            if runs.len() < 2 {
                continue;
            }
            for (at, share) in shares.iter_mut().enumerate().filter(|(_, share)| share.part.job == id) {
                let run = run_of.get(&at).copied().unwrap_or_else(|| {
                    let first = firsts.get(at).copied().flatten().unwrap_or(i64::MIN);
                    let begun = runs.iter().rposition(|run| run.start <= first.saturating_add(STARTS_APART_MAX_US / 2));
                    begun.unwrap_or(0)
                });
                share.part.job = Arc::clone(&runs[run].job);
            }
        }
    }

    /// Gives each part that knows the id of its job alone the description that says the most: that of the head.
    fn complete(shares: &mut [&mut JobShare]) {
        let mut fullest: BTreeMap<Arc<str>, Arc<Json>> = BTreeMap::new();
        for part in shares.iter().map(|share| &share.part) {
            let Some(description) = &part.description else { continue };
            match fullest.get_mut(&part.job) {
                Some(known) if is_fuller(description, known) => *known = Arc::clone(description),
                Some(_) => {}
                None => drop(fullest.insert(Arc::clone(&part.job), Arc::clone(description))),
            }
        }
        let is_id_alone = |job: &Arc<Json>| job.as_object().is_some_and(|fields| fields.len() == 1);
        for part in shares.iter_mut().map(|share| &mut share.part) {
            if part.description.as_ref().is_some_and(is_id_alone) {
                part.description = fullest.get(&part.job).cloned();
            }
        }
    }
}

impl Snapshot {
    /// What each database has of which job, in the order in which they were named.
    pub fn job_parts(&self) -> Vec<JobPart> {
        match &self.parts {
            Some(parts) => parts.iter().map(|placed| placed.share.part.clone()).collect(),
            None => self.shares().into_iter().map(|share| share.part).collect(),
        }
    }

    /// Of a single database.
    fn shares(&self) -> Vec<JobShare> {
        JobShare::numbered(&self.meta, &Arc::from(self.node()))
    }

    /// The jobs whose ids are wanted, in the order of [`Snapshot::job_parts`], each with what there is of it.
    pub fn jobs(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<RecordedJob> {
        let mut jobs: Vec<RecordedJob> = Vec::new();
        let mut places: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut pieces_of = |job: &Arc<str>, pieces: Vec<JobPiece>| {
            let at = *places.entry(Arc::clone(job)).or_insert_with(|| {
                jobs.push(RecordedJob { job: Arc::clone(job), pieces: Vec::new() });
                jobs.len() - 1
            });
            jobs[at].pieces.extend(pieces);
        };
        let Some(parts) = &self.parts else {
            for share in self.shares().iter().filter(|share| is_wanted(&share.part.job)) {
                pieces_of(&share.part.job, self.pieces(share.stretches.as_deref()));
            }
            return jobs;
        };
        // Databases that are wholly of one job are read as one.
        let mut whole: BTreeMap<&Arc<str>, Vec<&PlacedPart>> = BTreeMap::new();
        for placed in parts.iter().filter(|placed| is_wanted(&placed.share.part.job)) {
            let JobShare { part, stretches, .. } = &placed.share;
            match stretches {
                Some(stretches) => {
                    pieces_of(&part.job, self.of_parts(vec![placed]).pieces(Some(stretches)));
                }
                None => {
                    pieces_of(&part.job, Vec::new());
                    whole.entry(&part.job).or_default().push(placed);
                }
            }
        }
        for (job, chosen) in whole {
            pieces_of(job, self.of_parts(chosen).pieces(None));
        }
        jobs
    }

    fn pieces(&self, stretches: Option<&[JobStretch]>) -> Vec<JobPiece> {
        let Some(stretches) = stretches else {
            return vec![JobPiece { snapshot: self.clone(), ranges: Arc::new([TimeRange::ALL]) }];
        };
        let piece = |JobStretch { owner, ranges }: &JobStretch| JobPiece {
            snapshot: Snapshot { owner: owner.clone(), ..self.clone() },
            ranges: Arc::from(&**ranges),
        };
        stretches.iter().map(piece).collect()
    }

    fn of_parts(&self, chosen: Vec<&PlacedPart>) -> Snapshot {
        let within = |at: usize| chosen.iter().any(|placed| placed.segments.contains(&at));
        let kept: Vec<usize> = (0..self.segments.len()).filter(|at| within(*at)).collect();
        let memtables = self
            .memtables
            .iter()
            .filter(|visible| visible.part.is_some_and(|part| chosen.iter().any(|placed| placed.number == part)));
        let memtables = memtables.map(|visible| {
            let segments_before = kept.partition_point(|at| *at < visible.segments_before);
            Visible { segments_before, ..visible.clone() }
        });
        let nodes = match &*chosen {
            [one] => Nodes::One(Arc::clone(&one.share.part.node)),
            several => {
                let ids: Vec<Arc<Ids>> = several.iter().map(|placed| Arc::clone(&placed.ids)).collect();
                let names: Vec<String> = several.iter().map(|placed| placed.share.part.node.to_string()).collect();
                Nodes::of_several(&ids, &names, self.index.len())
            }
        };
        Snapshot {
            nodes,
            memtables: memtables.collect(),
            segments: kept.iter().map(|at| Arc::clone(&self.segments[*at])).collect(),
            parts: Some(chosen.into_iter().cloned().collect()),
            is_narrowed: true,
            ..self.clone()
        }
    }

    /// Whether any of the databases knows the series.
    pub(super) fn holds(&self, series: SeriesId) -> bool {
        self.parts.as_ref().is_none_or(|parts| parts.iter().any(|placed| placed.ids.hold(series)))
    }
}
