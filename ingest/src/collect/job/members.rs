//! Which processes belong to the job: those that its command started, and those that they started in turn.
//!
//! A process belongs to the job if its parent does, or if it is in a session or a process group that a process of the
//! job leads; that finds processes whose parent has ended. If none of this decides, its environment does (TELEM_JOB,
//! else the number that the scheduler gave the job), or the scheduler's control group. That is how an agent recognises
//! the tasks of its node, which it did not start. Each process is examined once, or twice if it may just be starting.
//! telem itself, and processes that it started for its own purposes, never belong to the job.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rustix::fs::stat;
use telem_engine::Timestamp;

use super::marks::{Mark, Marks};
use super::own_series::OwnSeries;
use super::reaped::{Name, Reaper};
use super::{JobCommand, JobTarget};
use crate::collect::processes::{Stat, parse_stat, pids, read};
use crate::collect::source::Tree;

/// How often a process is asked whether it belongs to the job: at first sight it may not be what it will be, as a task
/// that its launcher has just made.
const LOOKS: u8 = 2;
/// How often a process may change its name and be reported under the new one: a program that is started by a shell does
/// so once.
pub(crate) const NAMES_MAX: u8 = 4;
/// How often processes that were just met are gone through for parents among each other.
const PASSES_MAX: usize = 64;

/// A process of the job.
#[derive(Debug)]
pub struct JobProcess {
    pub pid: u32,
    pub name: Name,
    /// The command of its parent when it was met.
    pub parent_comm: Option<String>,
    pub met: Timestamp,
    /// As it was read last.
    pub stat: Stat,
    /// Ticks of its own that are counted.
    pub counted_ticks: u64,
    pub reaper: Reaper,
    /// Whether it began after telem: before that it was not there.
    pub is_young: bool,
    pub series: OwnSeries,
    /// Those under the names that it had before.
    past: Vec<(Name, OwnSeries)>,
    names: u8,
    /// The walk that met it last.
    walk: u64,
}

impl JobProcess {
    fn rename(&mut self, name: Name) {
        let again = self.past.iter().position(|(past, _)| *past == name);
        let mut series = match again {
            Some(at) => self.past.swap_remove(at).1,
            None => OwnSeries::default(),
        };
        series.follow(&self.series);
        let past = (std::mem::replace(&mut self.name, name), std::mem::replace(&mut self.series, series));
        self.past.push(past);
    }
}

/// A process of the job that is there no more.
#[derive(Debug)]
pub struct EndedProcess {
    pub name: Name,
    /// From the first tick that met it to the last.
    pub lived: Duration,
    /// All that is counted of it and of what it reaped.
    pub counted_ticks: u64,
    /// The process that reaped it, directly or through others that have ended too; `None` if that is unknown.
    pub reaper: Option<u32>,
    /// Whether that was its parent.
    pub is_direct: bool,
    pub has_series: bool,
}

/// Used again by every walk.
#[derive(Debug, Default)]
pub struct Listing {
    pids: Vec<u32>,
    directory: Vec<u8>,
}

/// What is known of a process that does not belong.
#[derive(Clone, Copy, Debug)]
struct Stranger {
    looks: u8,
    walk: u64,
}

#[derive(Debug)]
pub struct JobMembers {
    tree: Tree,
    uid: u32,
    marks: Marks,
    /// When this process began, in ticks: what a process reaped before that is not the job's.
    began: u64,
    processes: HashMap<u32, JobProcess>,
    /// Processes of the job that lead a session or a group, even if they have ended while others are in it.
    leaders: HashSet<u32>,
    strangers: HashMap<u32, Stranger>,
    /// Telem itself and its supervisor.
    telem: Vec<u32>,
    /// What those started for their own ends.
    ours: HashSet<u32>,
    supervisor: Option<u32>,
    has_command: bool,
    ended: Vec<EndedProcess>,
    walk: u64,
    file: Vec<u8>,
}

impl JobMembers {
    pub fn new(tree: &Tree, uid: u32, target: &JobTarget) -> Self {
        let mut file = Vec::new();
        let own = read(&tree.path("proc/self/stat"), &mut file).and_then(parse_stat);
        let supervisor = target.supervisor().map(|supervisor| supervisor.pid);
        Self {
            marks: Marks::of_this_process(tree, &target.id),
            tree: tree.clone(),
            uid,
            began: own.as_ref().map_or(0, |own| own.started),
            processes: HashMap::new(),
            leaders: HashSet::new(),
            strangers: HashMap::new(),
            telem: supervisor.into_iter().chain(own.map(|own| own.pid)).collect(),
            ours: HashSet::new(),
            supervisor,
            has_command: target.has_command(),
            ended: Vec::new(),
            walk: 0,
            file,
        }
    }

    pub fn len(&self) -> usize {
        self.processes.len()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut JobProcess> {
        self.processes.values_mut()
    }

    pub fn reaper_mut(&mut self, pid: u32) -> Option<&mut Reaper> {
        self.processes.get_mut(&pid).map(|process| &mut process.reaper)
    }

    /// What has ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<EndedProcess> {
        std::mem::take(&mut self.ended)
    }

    pub fn stat_of(&mut self, pid: u32) -> Option<Stat> {
        read(&self.tree.path(format!("proc/{pid}/stat")), &mut self.file).and_then(parse_stat)
    }

    /// Reads the processes of the job again, and looks for new ones.
    pub fn look(&mut self, time: Timestamp, command: Option<&JobCommand>, listing: &mut Listing) {
        self.walk += 1;
        self.read_again();
        let Listing { pids: found, directory } = listing;
        found.clear();
        if let Err(error) = pids(&self.tree.path("proc"), directory, found) {
            tracing::debug!(%error, "processes of the job cannot be looked for");
        }
        let mut new: Vec<Stat> = found.iter().filter_map(|pid| self.candidate(*pid)).collect();
        for _ in 0..PASSES_MAX {
            let before = new.len();
            self.take_in(&mut new, time, |members, stat| members.is_related(stat, command));
            if new.len() < before {
                // Whose parent has just joined needs not be asked for more.
                continue;
            }
            self.take_in(&mut new, time, |members, stat| members.is_marked(stat));
            if new.len() == before {
                break;
            }
        }
        for stat in new {
            self.pass_over(stat.pid);
        }
        let walk = self.walk;
        self.strangers.retain(|_, stranger| stranger.walk == walk);
        let Self { processes, leaders, strangers, ours, .. } = self;
        ours.retain(|pid| strangers.contains_key(pid));
        let led: HashSet<u32> =
            processes.values().flat_map(|process| [process.stat.group, process.stat.session]).collect();
        leaders.retain(|leader| led.contains(leader));
    }

    /// Takes those of `new` in that belong to the job.
    fn take_in(&mut self, new: &mut Vec<Stat>, time: Timestamp, mut belongs: impl FnMut(&mut Self, &Stat) -> bool) {
        new.retain(|stat| {
            let joins = belongs(self, stat);
            if joins {
                self.join(stat, time);
            }
            !joins
        });
    }

    /// The oldest first, so that a parent is read before its children.
    fn read_again(&mut self) {
        let mut order: Vec<(u64, u32)> = self.processes.values().map(|one| (one.stat.started, one.pid)).collect();
        order.sort_unstable();
        let mut gone = Vec::new();
        for (started, pid) in order {
            let stat = self.stat_of(pid).filter(|stat| stat.started == started);
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let Some(stat) = stat else {
                gone.push(pid);
                continue;
            };
            process.walk = self.walk;
            process.reaper.read(stat.reaped_ticks);
            if stat.comm != process.name.0 && process.names < NAMES_MAX {
                process.names += 1;
                // Another program may have been given another environment.
                let rank = self.marks.rank_of(pid).or(process.name.1);
                process.rename((stat.comm.clone(), rank));
            }
            process.stat = stat;
        }
        for pid in &gone {
            self.end(*pid);
        }
        for pid in &gone {
            self.processes.remove(pid);
        }
    }

    /// Books the end of a process.
    fn end(&mut self, pid: u32) {
        let Some(process) = self.processes.get(&pid) else { return };
        let parent = process.stat.parent;
        let mut reaper = parent;
        // What it left to a parent that has ended too was that one's, and then its parent's.
        for _ in 0..PASSES_MAX {
            match self.processes.get(&reaper).filter(|above| above.walk != self.walk) {
                Some(ended) => reaper = ended.stat.parent,
                None => break,
            }
        }
        let is_known = self.processes.contains_key(&reaper) || self.supervisor == Some(reaper);
        self.ended.push(EndedProcess {
            name: process.name.clone(),
            lived: process.series.lived(process.met),
            counted_ticks: process.counted_ticks.saturating_add(process.reaper.settled()),
            reaper: is_known.then_some(reaper),
            is_direct: reaper == parent,
            has_series: process.series.is_alone(),
        });
    }

    /// A process of our user that may belong to the job.
    fn candidate(&mut self, pid: u32) -> Option<Stat> {
        if self.processes.contains_key(&pid) {
            return None;
        }
        if let Some(stranger) = self.strangers.get_mut(&pid)
            && stranger.looks >= LOOKS
        {
            stranger.walk = self.walk;
            return None;
        }
        let directory = self.tree.path(format!("proc/{pid}"));
        let is_ours = stat(&directory).is_ok_and(|found| found.st_uid == self.uid);
        let found = if is_ours { self.stat_of(pid).filter(|stat| stat.pid == pid) } else { None };
        if found.is_none() {
            self.pass_over(pid);
        }
        found
    }

    /// It does not belong to the job, as far as could be seen.
    fn pass_over(&mut self, pid: u32) {
        let stranger = self.strangers.entry(pid).or_insert(Stranger { looks: 0, walk: 0 });
        *stranger = Stranger { looks: stranger.looks.saturating_add(1), walk: self.walk };
    }

    /// Whether it belongs to the job because of those that do.
    fn is_related(&mut self, stat: &Stat, command: Option<&JobCommand>) -> bool {
        if command.is_some_and(|command| command.pid == stat.pid && command.started == Some(stat.started)) {
            return true;
        }
        if self.is_telems(stat) {
            self.ours.insert(stat.pid);
            return false;
        }
        self.processes.contains_key(&stat.parent)
            || self.leaders.contains(&stat.group)
            || self.leaders.contains(&stat.session)
    }

    fn is_telems(&self, stat: &Stat) -> bool {
        let is_ours = |pid: &u32| self.telem.contains(pid) || self.ours.contains(pid);
        is_ours(&stat.pid) || is_ours(&stat.parent)
    }

    /// Whether it was started for the job, by any process.
    fn is_marked(&self, stat: &Stat) -> bool {
        // Threads of the kernel have no memory of their own.
        if stat.virtual_bytes == 0 || self.is_telems(stat) {
            return false;
        }
        match self.marks.of(stat.pid) {
            Some(Mark::Telem) => true,
            // What else the script of a batch job runs beside the command has parents of our user.
            Some(Mark::Scheduler) => !self.has_command || self.is_left_to_the_system(stat),
            None => false,
        }
    }

    /// Whether its parent is of the system, as that of a task or of one whose parent is gone.
    fn is_left_to_the_system(&self, process: &Stat) -> bool {
        let parent = self.tree.path(format!("proc/{}", process.parent));
        process.parent <= 1 || stat(&parent).is_ok_and(|found| found.st_uid != self.uid)
    }

    /// It belongs to the job from now on.
    fn join(&mut self, stat: &Stat, time: Timestamp) {
        let parent = self.processes.get(&stat.parent).map(|parent| parent.name.clone());
        let rank = self.marks.rank_of(stat.pid).or(parent.as_ref().and_then(|(_, rank)| *rank));
        let parent_comm = parent.map(|(comm, _)| comm).or_else(|| self.stat_of(stat.parent).map(|above| above.comm));
        let is_young = stat.started >= self.began;
        let mut reaper = Reaper::since(if is_young { 0 } else { stat.reaped_ticks });
        reaper.read(stat.reaped_ticks);
        if stat.group == stat.pid || stat.session == stat.pid {
            self.leaders.insert(stat.pid);
        }
        self.strangers.remove(&stat.pid);
        let process = JobProcess {
            pid: stat.pid,
            name: (stat.comm.clone(), rank),
            parent_comm,
            met: time,
            stat: stat.clone(),
            counted_ticks: 0,
            reaper,
            is_young,
            series: OwnSeries::default(),
            past: Vec::new(),
            names: 0,
            walk: self.walk,
        };
        self.processes.insert(stat.pid, process);
    }
}
