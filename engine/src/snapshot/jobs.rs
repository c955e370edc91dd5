//! Whose samples a snapshot has: a database is what one node recorded of one job, so of several databases that are read
//! as one each sample belongs to the job of the database in which it lies. Nothing is stored with a sample for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use serde_json::Value as Json;

use super::{Snapshot, Visible};
use crate::index::{Ids, Nodes};
use crate::meta::{Meta, is_fuller};
use crate::series::SeriesId;

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
}

impl JobPart {
    pub(crate) fn new(meta: &Meta, node: Arc<str>) -> Self {
        let description = meta.job().cloned().map(Arc::new);
        let id = description.as_ref().and_then(|job| job["id"].as_str()).filter(|id| !id.is_empty());
        Self { job: Arc::from(id.unwrap_or(UNDESCRIBED)), node, description }
    }

    /// Of a database that comes after those of `before`.
    pub(crate) fn after(before: &[PlacedPart], meta: &Meta, node: Arc<str>) -> Self {
        let mut part = Self::new(meta, node);
        if &*part.job == UNDESCRIBED {
            let is_same = |other: &&PlacedPart| other.part.node == part.node && other.part.description.is_none();
            let earlier = before.iter().filter(is_same).count();
            if earlier > 0 {
                part.job = Arc::from(format!("{UNDESCRIBED}-{}", earlier + 1));
            }
        }
        part
    }
}

/// Where the part of a job lies among several databases.
#[derive(Clone, Debug)]
pub(crate) struct PlacedPart {
    pub part: JobPart,
    /// The place of its database among all.
    pub number: usize,
    pub ids: Arc<Ids>,
    /// Of all segments of the snapshot those of its database.
    pub segments: Range<usize>,
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
    /// Tells runs apart that have one id. `firsts` are the times of the first samples of each part, in microseconds: by
    /// its own belongs a part to a run that knows the id alone.
    pub(crate) fn tell_runs_apart(parts: &mut [PlacedPart], firsts: &[Option<i64>]) {
        let taken: BTreeSet<Arc<str>> = parts.iter().map(|placed| Arc::clone(&placed.part.job)).collect();
        let mut described: BTreeMap<Arc<str>, Vec<(i64, usize)>> = BTreeMap::new();
        for (at, placed) in parts.iter().enumerate() {
            if let Some(start) = placed.part.description.as_deref().and_then(start) {
                described.entry(Arc::clone(&placed.part.job)).or_default().push((start, at));
            }
        }
        for (id, mut starts) in described {
            starts.sort_unstable();
            let mut runs: Vec<NumberedRun> = Vec::new();
            let mut run_of: BTreeMap<usize, usize> = BTreeMap::new();
            for (start, at) in starts {
                let part = &parts[at].part;
                let description = part.description.as_deref().unwrap_or(&Json::Null);
                let what = ["name", "settings", "command"].map(|field| description[field].clone());
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
            for (at, placed) in parts.iter_mut().enumerate().filter(|(_, placed)| placed.part.job == id) {
                let run = run_of.get(&at).copied().unwrap_or_else(|| {
                    let first = firsts.get(at).copied().flatten().unwrap_or(i64::MIN);
                    let begun = runs.iter().rposition(|run| run.start <= first.saturating_add(STARTS_APART_MAX_US / 2));
                    begun.unwrap_or(0)
                });
                placed.part.job = Arc::clone(&runs[run].job);
            }
        }
    }

    /// Gives each part that knows the id of its job alone the description that says the most: that of the head.
    pub(crate) fn complete(parts: &mut [PlacedPart]) {
        let mut fullest: BTreeMap<Arc<str>, Arc<Json>> = BTreeMap::new();
        for part in parts.iter().map(|placed| &placed.part) {
            let Some(description) = &part.description else { continue };
            match fullest.get_mut(&part.job) {
                Some(known) if is_fuller(description, known) => *known = Arc::clone(description),
                Some(_) => {}
                None => drop(fullest.insert(Arc::clone(&part.job), Arc::clone(description))),
            }
        }
        let is_id_alone = |job: &Arc<Json>| job.as_object().is_some_and(|fields| fields.len() == 1);
        for part in parts.iter_mut().map(|placed| &mut placed.part) {
            if part.description.as_ref().is_some_and(is_id_alone) {
                part.description = fullest.get(&part.job).cloned();
            }
        }
    }
}

impl Snapshot {
    /// What each database holds, in the order in which they were named; several of one job where it ran on several nodes.
    pub fn job_parts(&self) -> Vec<JobPart> {
        match &self.parts {
            Some(parts) => parts.iter().map(|placed| placed.part.clone()).collect(),
            None => vec![JobPart::new(&self.meta, Arc::from(self.node()))],
        }
    }

    /// The samples of `job` alone: nothing of it, where no database is of that job.
    #[must_use]
    pub fn of_job(&self, job: &str) -> Snapshot {
        let Some(parts) = &self.parts else {
            let is_ours = self.job_parts().iter().any(|part| &*part.job == job);
            return if is_ours { self.clone() } else { self.of_parts(Vec::new()) };
        };
        self.of_parts(parts.iter().filter(|placed| &*placed.part.job == job).collect())
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
            [one] => Nodes::One(Arc::clone(&one.part.node)),
            several => {
                let ids: Vec<Arc<Ids>> = several.iter().map(|placed| Arc::clone(&placed.ids)).collect();
                let names: Vec<String> = several.iter().map(|placed| placed.part.node.to_string()).collect();
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
