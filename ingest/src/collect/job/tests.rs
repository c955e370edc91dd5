//! A node whose processes are files: which processes belong to the job, how they are reported, and that all CPU time is
//! counted once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;
use telem_engine::{Db, Options, Value};
use tempfile::TempDir;

use super::series::{GROUPS_MAX, JOB_PROCESSES_MAX, SHORT_MAX};
use super::*;

/// Who telem is, and who started it.
const RECORDER: u32 = 20;
const SUPERVISOR: u32 = 10;
const SHELL: u32 = 5;
const COMMAND: u32 = 100;
const BEGAN: u64 = 1_000;
const CPU: &str = "job_process_cpu_seconds_total";

#[derive(Clone, Debug)]
struct Fake {
    pid: u32,
    comm: String,
    parent: u32,
    group: u32,
    session: u32,
    own: u64,
    reaped: u64,
    started: u64,
    pages: u64,
}

fn process(pid: u32, comm: &str, parent: u32) -> Fake {
    Fake {
        pid,
        comm: comm.to_owned(),
        parent,
        group: SHELL,
        session: SHELL,
        own: 0,
        reaped: 0,
        started: BEGAN,
        pages: 5,
    }
}

struct Node {
    tree: TempDir,
    _database: TempDir,
    db: Db,
    job: JobProcesses,
    target: JobTarget,
}

impl Node {
    fn new(make: impl FnOnce(&Path) -> JobTarget) -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Db::open(database.path(), Options::default()).unwrap();
        write(tree.path(), &Fake { started: BEGAN - 10, ..process(SHELL, "bash", 1) });
        write(tree.path(), &Fake { started: BEGAN - 2, ..process(SUPERVISOR, "telem", SHELL) });
        write(tree.path(), &Fake { session: RECORDER, group: RECORDER, ..process(RECORDER, "telem", SUPERVISOR) });
        fs::create_dir_all(tree.path().join("proc/self")).unwrap();
        fs::copy(tree.path().join(format!("proc/{RECORDER}/stat")), tree.path().join("proc/self/stat")).unwrap();
        fs::write(tree.path().join("proc/self/environ"), "SLURM_JOB_ID=77\0").unwrap();
        let cgroup = "0::/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0\n";
        fs::write(tree.path().join("proc/self/cgroup"), cgroup).unwrap();
        let target = make(tree.path());
        let uid = rustix::process::getuid().as_raw();
        let job = JobProcesses::new(&Tree::new(tree.path()), uid, target.clone());
        Self { tree, _database: database, db, job, target }
    }

    /// A command runs that telem started.
    fn with_command() -> Self {
        let mut node = Self::new(|root| JobTarget::of_command_in(root, "j1", SUPERVISOR));
        assert_eq!(node.tick(1), BTreeMap::new(), "nothing runs yet");
        node.put(&process(COMMAND, "app", SUPERVISOR));
        node.target.begin_in(node.tree.path(), COMMAND);
        node
    }

    fn put(&self, process: &Fake) {
        write(self.tree.path(), process);
    }

    fn file(&self, pid: u32, name: &str, text: &str) {
        fs::write(self.tree.path().join(format!("proc/{pid}/{name}")), text).unwrap();
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.tree.path().join(format!("proc/{pid}"))).unwrap();
    }

    /// What is told at a second, by series; of series that begin also the 0 before, which is left out.
    fn tick(&mut self, second: i64) -> BTreeMap<String, f64> {
        let time = Timestamp::from_seconds(second);
        let mut out = Out::new(&self.db, "n1", time, 0);
        self.job.sample(&mut out);
        let mut told = BTreeMap::new();
        for (id, at, value) in out.finish().batch.iter() {
            let key = self.db.index().key(id).unwrap();
            let tags: Vec<String> = key
                .tags()
                .iter()
                .filter(|(key, _)| *key != "host")
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let series = format!("{}{{{}}}", key.metric(), tags.join(","));
            if at < time {
                assert_eq!((key.metric(), value), (CPU, Value::Float(0.0)), "{series}");
                continue;
            }
            assert_eq!(told.insert(series.clone(), value.as_f64()), None, "{series}");
        }
        told
    }

    /// The tags of those that have CPU times, and the times.
    fn cpu(&mut self, second: i64) -> Vec<(String, f64)> {
        let told = self.tick(second);
        let cpu = told.iter().filter_map(|(series, value)| {
            let tags = series.strip_prefix(CPU)?.trim_matches(['{', '}']);
            Some((tags.to_owned(), *value))
        });
        cpu.collect()
    }

    fn pids(&mut self, second: i64) -> BTreeSet<u32> {
        let tags = self.cpu(second);
        let pid = |tags: &str| tags.split(',').find_map(|tag| tag.strip_prefix("pid=")?.parse().ok());
        tags.iter().filter_map(|(tags, _)| pid(tags)).collect()
    }
}

fn write(root: &Path, process: &Fake) {
    let Fake { pid, comm, parent, group, session, own, reaped, started, pages } = process;
    let dir = root.join(format!("proc/{pid}"));
    fs::create_dir_all(&dir).unwrap();
    let stat = format!(
        "{pid} ({comm}) S {parent} {group} {session} 0 -1 0 1 0 2 0 {own} 0 {reaped} 0 20 0 3 0 {started} 4096 {pages} 0 0"
    );
    fs::write(dir.join("stat"), stat).unwrap();
}

fn told(tags: &str, seconds: f64) -> (String, f64) {
    (tags.to_owned(), seconds)
}

#[test]
fn the_command_and_what_it_started_are_told_from_the_first_tick_on() {
    let mut node = Node::with_command();
    node.put(&Fake { own: 30, ..process(COMMAND, "mpirun", SUPERVISOR) });
    for rank in 0..2 {
        node.put(&Fake { own: 100 + u64::from(rank), ..process(101 + rank, "solver", COMMAND) });
        node.file(101 + rank, "environ", &format!("PATH=/bin\0PMI_RANK={rank}\0"));
    }
    // A child of a child, whose number is smaller.
    node.put(&process(50, "reader", 102));
    let first = node.tick(2);
    assert_eq!(first["job_process_cpu_seconds_total{comm=mpirun,parent=telem,pid=100}"], 0.3);
    assert_eq!(first["job_process_cpu_seconds_total{comm=solver,parent=mpirun,pid=101,rank=0}"], 1.0);
    assert_eq!(first["job_process_cpu_seconds_total{comm=solver,parent=mpirun,pid=102,rank=1}"], 1.01);
    assert_eq!(first["job_process_resident_memory_bytes{comm=solver,parent=mpirun,pid=102,rank=1}"], 5.0 * 4_096.0);
    assert_eq!(first["job_process_threads{comm=reader,parent=solver,pid=50,rank=1}"], 3.0, "the rank of its parent");
    assert_eq!((first["job_processes{}"], first["job_processes_together{}"]), (4.0, 0.0));
    assert_eq!(node.pids(3), BTreeSet::from([50, 100, 101, 102]));
}

#[test]
fn neither_telem_nor_what_it_starts_nor_what_stands_beside_belongs_to_the_job() {
    let mut node = Node::with_command();
    // The witness, an agent's ssh and its child, the shell's own pipe.
    node.put(&process(30, "cat", SUPERVISOR));
    node.put(&process(31, "ssh", RECORDER));
    node.put(&process(32, "ssh", 31));
    node.put(&process(33, "tee", SHELL));
    for second in 2..6 {
        assert_eq!(node.pids(second), BTreeSet::from([COMMAND]));
    }
}

#[test]
fn those_whose_parent_is_gone_are_known_by_the_session_and_the_group_that_the_job_led() {
    let mut node = Node::with_command();
    node.put(&Fake { session: 110, group: 110, ..process(110, "daemon", COMMAND) });
    node.put(&Fake { group: 120, ..process(120, "make", COMMAND) });
    node.tick(2);
    node.end(110);
    node.put(&Fake { session: 110, group: 111, ..process(112, "worker", 1) });
    node.put(&Fake { group: 120, ..process(121, "cc", 1) });
    assert_eq!(node.pids(3), BTreeSet::from([COMMAND, 112, 120, 121]));
    // When nothing of the session is left, its number is anybody's.
    node.end(112);
    node.tick(4);
    node.put(&Fake { session: 110, group: 110, ..process(110, "login", 1) });
    assert_eq!(node.pids(5), BTreeSet::from([COMMAND, 120, 121]));
}

#[test]
fn on_a_node_of_an_agent_tasks_are_known_by_their_environment_and_their_control_group() {
    let mut node = Node::new(|_| JobTarget::of_node("j1"));
    let task = |pid: u32| process(pid, "task", 1);
    for pid in 200..=208 {
        node.put(&task(pid));
    }
    node.file(200, "environ", "TELEM_JOB=j1\0");
    node.file(201, "environ", "TELEM_JOB=j2\0SLURM_JOB_ID=77\0");
    node.file(202, "environ", "SLURM_JOB_ID=77\0");
    node.file(203, "environ", "SLURM_JOB_ID=78\0");
    node.file(204, "cgroup", "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_3\n");
    node.file(205, "cgroup", "0::/system.slice/slurmstepd.scope/job_770/step_0/user/task_3\n");
    node.file(206, "environ", "MY_TELEM_JOB=j1\0");
    node.put(&process(207, "child", 200));
    // Who started us is of no job of ours.
    node.file(SHELL, "environ", "SLURM_JOB_ID=77\0");
    assert_eq!(node.pids(1), BTreeSet::from([200, 202, 204, 207]));
    // One that its launcher had only just made is looked at again; then no more.
    node.file(208, "environ", "TELEM_JOB=j1\0");
    assert_eq!(node.pids(2), BTreeSet::from([200, 202, 204, 207, 208]));
    node.file(206, "environ", "TELEM_JOB=j1\0");
    assert_eq!(node.pids(3), BTreeSet::from([200, 202, 204, 207, 208]));
}

#[test]
fn what_the_script_of_a_batch_job_runs_beside_the_command_is_not_the_commands() {
    let mut node = Node::with_command();
    for (pid, parent, comm) in [(200, SHELL, "rsync"), (201, 200, "ssh"), (202, 1, "task")] {
        node.put(&process(pid, comm, parent));
        node.file(pid, "environ", "SLURM_JOB_ID=77\0");
    }
    node.put(&process(203, "worker", SHELL));
    node.file(203, "environ", "TELEM_JOB=j1\0SLURM_JOB_ID=77\0");
    assert_eq!(node.pids(2), BTreeSet::from([COMMAND, 202, 203]));
    // The number of a command that has ended is anybody's.
    node.end(COMMAND);
    node.tick(3);
    node.put(&Fake { started: BEGAN + 9, ..process(COMMAND, "vi", SHELL) });
    assert_eq!(node.pids(4), BTreeSet::from([202, 203]));
}

#[test]
fn what_nobody_saw_is_counted_by_who_reaped_it() {
    let mut node = Node::with_command();
    node.put(&process(COMMAND, "make", SUPERVISOR));
    node.tick(2);
    node.put(&Fake { own: 5, reaped: 240, ..process(COMMAND, "make", SUPERVISOR) });
    assert_eq!(node.cpu(3), [told("comm=make,counted=reaped", 2.4), told("comm=make,parent=telem,pid=100", 0.05)]);
    // The rest of those that were seen goes by their name.
    node.put(&Fake { own: 70, ..process(101, "cc1", COMMAND) });
    node.tick(4);
    node.end(101);
    node.put(&Fake { own: 5, reaped: 340, ..process(COMMAND, "make", SUPERVISOR) });
    let cpu = node.cpu(5);
    assert!(cpu.contains(&told("comm=cc1,counted=reaped", 0.3)), "{cpu:?}");
}

#[test]
fn a_command_that_is_over_before_a_tick_is_counted_and_so_is_the_end_of_one_that_was_seen() {
    let mut node = Node::with_command();
    node.end(COMMAND);
    node.put(&Fake { reaped: 55, started: BEGAN - 2, ..process(SUPERVISOR, "telem", SHELL) });
    assert_eq!(node.cpu(2), [told("comm=app,counted=reaped", 0.55)]);

    let mut node = Node::with_command();
    node.put(&Fake { own: 40, reaped: 10, ..process(COMMAND, "app", SUPERVISOR) });
    node.tick(2);
    node.end(COMMAND);
    node.put(&Fake { reaped: 55, started: BEGAN - 2, ..process(SUPERVISOR, "telem", SHELL) });
    assert_eq!(node.cpu(3), [told("comm=app,counted=reaped", 0.15)]);
}

#[test]
fn what_was_reaped_before_telem_began_is_not_the_jobs() {
    let mut node = Node::new(|_| JobTarget::of_node("j1"));
    node.put(&Fake { own: 7, reaped: 900, started: BEGAN - 1, ..process(200, "bash", 1) });
    node.file(200, "environ", "TELEM_JOB=j1\0");
    assert_eq!(node.cpu(1), [told("comm=bash,pid=200", 0.07)]);
    node.put(&Fake { own: 7, reaped: 910, started: BEGAN - 1, ..process(200, "bash", 1) });
    assert!(node.cpu(2).contains(&told("comm=bash,counted=reaped", 0.1)));
}

#[test]
fn a_process_that_becomes_another_program_has_a_series_for_each() {
    let mut node = Node::with_command();
    node.put(&Fake { own: 30, ..process(101, "sh", COMMAND) });
    node.tick(2);
    node.put(&Fake { own: 80, ..process(101, "solver", COMMAND) });
    node.file(101, "environ", "PMI_RANK=4\0");
    let cpu = node.cpu(3);
    assert!(cpu.contains(&told("comm=solver,parent=app,pid=101,rank=4", 0.5)), "{cpu:?}");
    assert!(!cpu.iter().any(|(tags, _)| tags.contains("comm=sh")), "{cpu:?}");
}

#[test]
fn a_build_of_thousands_of_processes_makes_few_series() {
    let mut node = Node::with_command();
    let (mut pid, mut total) = (1_000, 0);
    let mut series = BTreeSet::new();
    for second in 2..300 {
        for old in pid - 8..pid {
            if pid > 1_000 {
                node.end(old);
            }
        }
        for _ in 0..8 {
            node.put(&Fake { own: 10, ..process(pid, if pid % 2 == 0 { "cc1" } else { "as" }, COMMAND) });
            pid += 1;
        }
        node.put(&Fake { reaped: total, ..process(COMMAND, "make", SUPERVISOR) });
        series.extend(node.cpu(second).into_iter().map(|(tags, _)| tags));
        // They use as much again before they end.
        total += 8 * 20;
    }
    let most = 2 * (SHORT_MAX as usize + 8) + 8;
    assert!(series.len() < most, "{} series of {} processes", series.len(), pid - 1_000);
    let cpu = node.cpu(300);
    let together = cpu.iter().filter(|(tags, _)| tags.contains("counted=together")).count();
    assert_eq!(together, 2, "{cpu:?}");
    // One that stays has its own once it has lived for a while.
    node.put(&Fake { own: 900, ..process(COMMAND + 1, "cc1", COMMAND) });
    assert!(!node.pids(301).contains(&(COMMAND + 1)));
    assert!(node.pids(306).contains(&(COMMAND + 1)));
}

#[test]
fn beyond_the_limit_the_dearest_have_series_and_the_others_stand_together() {
    let mut node = Node::with_command();
    let max = u32::try_from(JOB_PROCESSES_MAX).unwrap();
    for at in 1..=max + 1 {
        node.put(&Fake { own: u64::from(at), ..process(1_000 + at, "rank", COMMAND) });
        node.file(1_000 + at, "environ", "RANK=1\0");
    }
    let told = node.tick(2);
    assert_eq!((told["job_processes{}"], told["job_processes_together{}"]), (f64::from(max) + 2.0, 2.0));
    assert_eq!(told["job_process_cpu_seconds_total{comm=rank,counted=together,rank=1}"], 0.01);
    assert_eq!(told["job_process_threads{comm=app,counted=together}"], 3.0);
    let sum: f64 = told.iter().filter(|(series, _)| series.starts_with(CPU)).map(|(_, value)| value).sum();
    assert!((sum - f64::from((max + 1) * (max + 2) / 2) / 100.0).abs() < 1e-6, "{sum}");
    // One that overtakes has a series of what it used since.
    node.put(&Fake { own: 5_001, ..process(1_001, "rank", COMMAND) });
    node.file(1_001, "environ", "RANK=1\0");
    let told = node.tick(3);
    assert_eq!(told["job_process_cpu_seconds_total{comm=rank,parent=app,pid=1001,rank=1}"], 50.0);
    assert_eq!(told["job_process_cpu_seconds_total{comm=rank,counted=together,rank=1}"], 0.01);
}

#[test]
fn very_many_names_end_in_one() {
    let mut node = Node::with_command();
    let max = u32::try_from(JOB_PROCESSES_MAX + GROUPS_MAX).unwrap();
    for at in 0..=max {
        node.put(&Fake { own: u64::from(max + 1 - at), ..process(1_000 + at, &format!("t{at}"), COMMAND) });
    }
    let told = node.tick(2);
    assert!(told.contains_key("job_process_cpu_seconds_total{comm=other,counted=together}"));
    assert!(told.keys().filter(|series| series.contains("counted")).count() <= 3 * (GROUPS_MAX + 1));
}

#[test]
fn very_many_processes_are_read_every_five_seconds() {
    let mut node = Node::with_command();
    for at in 0..u32::try_from(JOB_EVERY_TICK_MAX).unwrap() {
        node.put(&process(1_000 + at, "rank", COMMAND));
    }
    assert!(!node.tick(2).is_empty(), "until it is known how many there are");
    assert!(node.tick(3).is_empty());
    assert!(!node.tick(5).is_empty());
    node.end(1_000);
    assert!(node.tick(6).is_empty());
    assert!(!node.tick(10).is_empty());
    assert!(!node.tick(11).is_empty(), "as many as may be");
}

/// What befalls a process between two ticks.
#[derive(Clone, Debug)]
enum Event {
    Fork {
        parent: prop::sample::Index,
        comm: u8,
    },
    Use {
        process: prop::sample::Index,
        ticks: u64,
    },
    Exec {
        process: prop::sample::Index,
        comm: u8,
    },
    /// Of one without children; its parent waits for it.
    Exit {
        process: prop::sample::Index,
    },
    Tick,
}

fn event() -> impl Strategy<Value = Event> {
    let index = || any::<prop::sample::Index>();
    prop_oneof![
        4 => (index(), 0..4_u8).prop_map(|(parent, comm)| Event::Fork { parent, comm }),
        6 => (index(), 0..500_u64).prop_map(|(process, ticks)| Event::Use { process, ticks }),
        1 => (index(), 0..4_u8).prop_map(|(process, comm)| Event::Exec { process, comm }),
        3 => index().prop_map(|process| Event::Exit { process }),
        3 => Just(Event::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_sum_of_all_series_is_the_time_that_the_job_used(events in prop::collection::vec(event(), 1..120)) {
        let mut node = Node::with_command();
        let mut alive: BTreeMap<u32, Fake> = BTreeMap::from([(COMMAND, process(COMMAND, "app", SUPERVISOR))]);
        let mut supervisor = Fake { started: BEGAN - 2, ..process(SUPERVISOR, "telem", SHELL) };
        let (mut next, mut used, mut second) = (1_000, 0, 2);
        let mut last: BTreeMap<String, f64> = BTreeMap::new();
        for event in events.into_iter().chain([Event::Tick]) {
            let pick = |index: prop::sample::Index| alive.keys().nth(index.index(alive.len().max(1))).copied();
            match event {
                Event::Fork { parent, comm } => {
                    if let Some(parent) = pick(parent) {
                        let child = Fake { started: BEGAN + u64::from(next), ..process(next, &format!("c{comm}"), parent) };
                        alive.insert(next, child);
                        next += 1;
                    }
                }
                Event::Use { process, ticks } => {
                    if let Some(process) = pick(process).and_then(|pid| alive.get_mut(&pid)) {
                        process.own += ticks;
                        used += ticks;
                    }
                }
                Event::Exec { process, comm } => {
                    if let Some(process) = pick(process).and_then(|pid| alive.get_mut(&pid)) {
                        process.comm = format!("c{comm}");
                    }
                }
                Event::Exit { process } => {
                    let leaf = pick(process).filter(|pid| !alive.values().any(|other| other.parent == *pid));
                    if let Some(ended) = leaf.and_then(|pid| alive.remove(&pid)) {
                        let parent = alive.get_mut(&ended.parent).unwrap_or(&mut supervisor);
                        parent.reaped += ended.own + ended.reaped;
                    }
                }
                Event::Tick => {
                    let listed: Vec<u32> = (1_000..next).chain([COMMAND]).collect();
                    for pid in listed {
                        match alive.get(&pid) {
                            Some(process) => node.put(process),
                            None => drop(fs::remove_dir_all(node.tree.path().join(format!("proc/{pid}")))),
                        }
                    }
                    node.put(&supervisor);
                    for (tags, value) in node.cpu(second) {
                        let before = last.insert(tags.clone(), value);
                        prop_assert!(before.is_none_or(|before| before <= value), "{tags} fell from {before:?} to {value}");
                    }
                    second += 1;
                    let sum: f64 = last.values().sum();
                    prop_assert!((sum - used as f64 / 100.0).abs() < 1e-6, "{sum} of {used} ticks: {last:?}");
                }
            }
        }
    }
}
