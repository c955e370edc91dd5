//! How the processes of the job are reported: the most expensive each in a series of its own, the others together, by
//! command.
//!
//! A build starts thousands of processes that live for less than a tick. So the first processes of a command get series
//! at once. After many of them were short-lived, a process of that command must live for [`SETTLED_AFTER`] before it
//! gets one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::JobReading;
use super::members::{EndedProcess, JobMembers, JobProcess};
use super::own_series::{METRICS, apart};
use super::reaped::{Name, UnseenTime};
use crate::collect::cpu::TICKS_PER_SECOND;
use crate::collect::series::{Out, Slot};

/// Most processes of the job that have series of their own at a tick: those with the most CPU time, and among equals
/// with the most memory. The others are combined by command.
pub const JOB_PROCESSES_MAX: usize = 512;
/// A process that lived for less was short.
pub const SETTLED_AFTER: Duration = Duration::from_secs(5);
/// Most short processes of a command that had series of their own; the next must live for [`SETTLED_AFTER`] first.
pub const SHORT_MAX: u32 = 64;
/// The same of all commands together.
pub const SHORT_ALL_MAX: u32 = 4_096;
/// Most commands and ranks that are combined, each under its own name; the others are `other`.
pub const GROUPS_MAX: usize = 1_000;

const OTHER: &str = "other";

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// Why processes have one series together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupReason {
    /// They ended unseen: under the name of those of their kind that were seen, else of their parent.
    Reaped,
    /// They are too many or too short.
    Together,
}

impl GroupReason {
    fn word(self) -> &'static str {
        match self {
            Self::Reaped => "reaped",
            Self::Together => "together",
        }
    }
}

#[derive(Debug)]
struct ProcessGroup {
    slots: [Slot; METRICS.len()],
    ticks: u64,
    resident_pages: u64,
    threads: u64,
    is_new: bool,
}

impl ProcessGroup {
    fn new(counted: GroupReason, (comm, rank): &Name) -> Self {
        let rank = rank.map(|rank| rank.to_string());
        let mut tags = vec![("comm", comm.as_str()), ("counted", counted.word())];
        tags.extend(rank.as_deref().map(|rank| ("rank", rank)));
        let slots = METRICS.map(|metric| Slot::tagged(metric, &tags));
        Self { slots, ticks: 0, resident_pages: 0, threads: 0, is_new: true }
    }
}

#[derive(Debug)]
pub struct JobSeries {
    page_bytes: u64,
    groups: BTreeMap<(GroupReason, Name), ProcessGroup>,
    /// Of each command, processes with series that were short; and of all.
    short: HashMap<String, u32>,
    short_all: u32,
    alive: Slot,
    together: Slot,
}

impl JobSeries {
    pub fn new(page_bytes: u64) -> Self {
        Self {
            page_bytes,
            groups: BTreeMap::new(),
            short: HashMap::new(),
            short_all: 0,
            alive: Slot::new("job_processes"),
            together: Slot::new("job_processes_together"),
        }
    }

    pub fn note_end(&mut self, ended: &EndedProcess) {
        if ended.has_series && ended.lived < SETTLED_AFTER {
            self.short_all = self.short_all.saturating_add(1);
            let short = self.short.entry(ended.name.0.clone()).or_default();
            *short = short.saturating_add(1);
        }
    }

    /// Counts what was reaped; `parent` where nothing is known of the children.
    pub fn count_reaped(&mut self, unseen: UnseenTime, parent: impl FnOnce() -> Name) {
        if unseen.ticks > 0 {
            self.group(GroupReason::Reaped, unseen.name.unwrap_or_else(parent)).ticks += unseen.ticks;
        }
    }

    fn group(&mut self, counted: GroupReason, name: Name) -> &mut ProcessGroup {
        let key = (counted, name);
        let is_known = self.groups.contains_key(&key) || self.groups.len() < GROUPS_MAX;
        let (counted, name) = if is_known { key } else { (counted, (OTHER.to_owned(), None)) };
        self.groups.entry((counted, name.clone())).or_insert_with(|| ProcessGroup::new(counted, &name))
    }

    /// Whether a process of that command that has existed for at most `lived` is combined with others.
    fn is_short(&self, comm: &str, lived: Duration) -> bool {
        let short = self.short.get(comm).copied().unwrap_or(0);
        lived < SETTLED_AFTER && (short >= SHORT_MAX || self.short_all >= SHORT_ALL_MAX)
    }

    /// The samples of a reading.
    pub fn tell(&mut self, members: &mut JobMembers, reading: JobReading, out: &mut Out<'_>) {
        for group in self.groups.values_mut() {
            (group.resident_pages, group.threads) = (0, 0);
        }
        let mut processes: Vec<&mut JobProcess> = members.iter_mut().collect();
        let alive = processes.len();
        processes.sort_unstable_by_key(|one| (Reverse((one.stat.ticks, one.stat.resident_pages)), one.pid));
        let mut together: u64 = 0;
        for (at, process) in processes.into_iter().enumerate() {
            let lived = apart(process.met, reading.time);
            let is_alone = process.series.is_alone() || !self.is_short(&process.name.0, lived);
            if at < JOB_PROCESSES_MAX && is_alone {
                self.tell_one(process, reading, out);
            } else {
                together += 1;
                self.count_together(process);
            }
            process.counted_ticks = process.counted_ticks.max(process.stat.ticks);
            process.series.last = Some(reading.time);
        }
        out.int(&mut self.alive, alive as u64);
        out.int(&mut self.together, together);
        for ((counted, _), group) in &mut self.groups {
            let [cpu, resident, threads] = &mut group.slots;
            if std::mem::take(&mut group.is_new)
                && let Some(before) = reading.before
            {
                out.float_at(before, cpu, 0.0);
            }
            out.float(cpu, seconds(group.ticks));
            if *counted == GroupReason::Together {
                out.int(resident, group.resident_pages.saturating_mul(self.page_bytes));
                out.int(threads, group.threads);
            }
        }
    }

    fn tell_one(&self, process: &mut JobProcess, reading: JobReading, out: &mut Out<'_>) {
        let is_new = process.series.slots.is_none();
        let slots = process.series.slots.get_or_insert_with(|| {
            let pid = process.pid.to_string();
            let rank = process.name.1.map(|rank| rank.to_string());
            let mut tags = vec![("comm", process.name.0.as_str()), ("pid", &pid)];
            tags.extend(process.parent_comm.as_deref().map(|parent| ("parent", parent)));
            tags.extend(rank.as_deref().map(|rank| ("rank", rank)));
            METRICS.map(|metric| Slot::tagged(metric, &tags))
        });
        let [cpu, resident, threads] = slots;
        // What it used before its first tick is a rate too.
        if let Some(before) = reading.before.filter(|_| is_new && process.is_young) {
            out.float_at(before, cpu, 0.0);
        }
        process.series.ticks += process.stat.ticks.saturating_sub(process.counted_ticks);
        out.float(cpu, seconds(process.series.ticks));
        out.int(resident, process.stat.resident_pages.saturating_mul(self.page_bytes));
        out.int(threads, process.stat.threads);
    }

    fn count_together(&mut self, process: &mut JobProcess) {
        let ticks = process.stat.ticks.saturating_sub(process.counted_ticks);
        let group = self.group(GroupReason::Together, process.name.clone());
        group.ticks += ticks;
        group.resident_pages = group.resident_pages.saturating_add(process.stat.resident_pages);
        group.threads = group.threads.saturating_add(process.stat.threads);
    }
}
