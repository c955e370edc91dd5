//! Tests of the mirror, a copy of a database on another disk. Whatever happens to either machine, the copy opens
//! read-only, is a prefix of the appends, and has all that was durable in the source when the last whole step began.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::every_operation::{images, ticks};
use super::model::Content;
use super::observe;
use super::random_steps::cases;
use super::sim_machine::SimMachine;
use super::world::{Step, World};
use crate::db::{Db, Durability::Buffered, Durability::Synced};
use crate::disk::sim::{Failure, Fault, Operation, Random, SimDisk};
use crate::disk::{Disk, ReadFile, WriteFile};
use crate::error::{Error, ErrorKind};
use crate::mirror::Mirror;
use crate::options::Options;
use crate::sample::SampleBatch;

const COPY: &str = "/shared/save/node-1";

/// A source, its copy, and every content that the source had.
struct Pair {
    source: World,
    to: SimDisk,
    mirror: Option<Mirror>,
    /// One for each append.
    contents: Vec<Content>,
    /// The position of the last content that is durable in the source.
    synced: usize,
    /// Whether the source has a WAL file that it appends to: the first append to one is durable at once.
    wal_begun: bool,
    /// The position of the content that the last whole step promises.
    promised: Option<usize>,
    /// A fault struck.
    trouble: bool,
    /// The source was closed: what a successor appends is not the mirror's to copy.
    closed: bool,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let to = SimDisk::new(seed ^ 0xC0);
        to.create_dir(Path::new("/shared")).unwrap();
        to.sync_dir(Path::new("/")).unwrap();
        Self {
            source: World::new(seed),
            to,
            mirror: None,
            contents: vec![Content::new()],
            synced: 0,
            wal_begun: false,
            promised: None,
            trouble: false,
            closed: false,
        }
    }

    fn run(&mut self, step: &Step) {
        self.source.run(step);
        self.closed |= matches!(step, Step::CloseAndOpen);
        let durable = match step {
            Step::Append { durability, .. } | Step::PutMeta { durability, .. } => {
                self.contents.push(self.source.model.live());
                let begins = !std::mem::replace(&mut self.wal_begun, true);
                begins || *durability == Synced
            }
            Step::Sync | Step::Flush | Step::CloseAndOpen => true,
            _ => false,
        };
        if durable {
            self.synced = self.contents.len() - 1;
        }
        self.wal_begun &= !matches!(step, Step::Flush | Step::CloseAndOpen);
    }

    /// Begins the mirror, or lets it make a step. Whether that went well.
    fn step(&mut self) -> bool {
        let synced = self.synced;
        let (done, promise) = match &mut self.mirror {
            Some(mirror) => (mirror.step().map(drop), Some(synced)),
            none => {
                let begun = Mirror::begin(self.source.db(), Path::new(COPY), Arc::new(self.to.clone()));
                (begun.map(|mirror| *none = Some(mirror)), None)
            }
        };
        self.took(done, promise)
    }

    fn finish(&mut self) -> bool {
        let synced = self.synced;
        let done = self.mirror.as_mut().expect("it began").finish().map(drop);
        self.took(done, Some(synced))
    }

    fn took(&mut self, done: Result<(), Error>, promise: Option<usize>) -> bool {
        self.trouble |= self.to.faults_struck() + self.source.disk.faults_struck() > 0;
        match done {
            Ok(()) => {
                // Its beginning promises nothing yet.
                self.promised = promise.or(self.promised);
                true
            }
            Err(error) => {
                assert!(self.trouble, "an error without a fault: {error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                false
            }
        }
    }

    /// What a reader of `disk` finds keeps the promise. Opened for writing, it is the same, and sound when it is closed.
    fn judge(&self, disk: &SimDisk) {
        let found = match Db::open_read_only(Path::new(COPY), options(disk)) {
            Ok(db) => observe::database(&db),
            Err(error) => {
                assert!(self.promised.is_none(), "the copy does not open: {error}\n{:?}", disk.files());
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                return;
            }
        };
        self.assert_prefix(&found);
        let disk = disk.fork();
        let db = Db::open(Path::new(COPY), Options { take_over: true, ..options(&disk) }).unwrap();
        observe::assert_same(&found, &observe::database(&db), "opened for writing");
        db.close().unwrap();
        observe::assert_sound(Path::new(COPY), &options(&disk));
    }

    fn assert_prefix(&self, found: &Content) {
        let at = self.contents.iter().rposition(|content| content == found);
        let at = at.unwrap_or_else(|| {
            let promised = &self.contents[self.promised.unwrap_or(0)];
            observe::assert_same(promised, found, "the copy is not a prefix; against what was promised");
            unreachable!("what was promised is a content")
        });
        let promised = self.promised.unwrap_or(0);
        let same = self.contents[promised] == self.contents[at];
        assert!(at >= promised || same, "content {at} of {}, {promised} was promised", self.contents.len());
    }

    /// Everything is there, and nothing besides.
    fn assert_whole(&self) {
        let db = Db::open_read_only(Path::new(COPY), options(&self.to)).unwrap();
        observe::assert_same(&self.contents[self.synced], &observe::database(&db), "the copy after a step");
        assert_eq!(db.info().unwrap().database, self.source.db().info().unwrap().database);
        observe::assert_sound(Path::new(COPY), &options(&self.to));
    }
}

fn options(disk: &SimDisk) -> Options {
    Options { disk: Arc::new(disk.clone()), machine: Arc::new(SimMachine::default()), ..Options::default() }
}

/// Appends before and after everything, flushes, a merge, a close.
fn scenario() -> Vec<Step> {
    let append =
        |durability, series: &[usize], at, start| Step::Append { durability, samples: ticks(series, at, start) };
    let meta = |number| Step::PutMeta { metric: 0, number, durability: Buffered };
    vec![
        append(Synced, &[0, 1], 0..4, 1),
        append(Buffered, &[0, 2], 2..6, 100),
        meta(1),
        Step::Sync,
        append(Synced, &[3], 0..3, 7),
        Step::Flush,
        append(Synced, &[1, 3], 3..5, -9),
        meta(2),
        append(Buffered, &[4], 0..10, 40),
        Step::Flush,
        append(Synced, &[0, 4], 0..3, 50),
        append(Synced, &[0, 1], 4_000..4_002, 60),
        Step::Flush,
        Step::Compact,
        append(Synced, &[5, 0], 1..3, 70),
        append(Buffered, &[2], 3..9, 75),
        Step::Flush,
        append(Buffered, &[1], 9_000..9_002, 80),
        Step::Flush,
        Step::Upkeep,
        append(Buffered, &[2], 3..9, 85),
        Step::CloseAndOpen,
    ]
}

/// How far the scenario is played.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    TheFailure,
    TheEnd,
}

/// Plays the scenario with a step of the mirror after each of its own, and `failure` on the copy's disk after 0, 1,
/// 2, ... operations that it could strike, until it strikes no more. Gives back how many these were.
fn for_every(failure: Failure, until: Until, mut then: impl FnMut(Pair, u64)) -> u64 {
    for after in 0.. {
        let mut pair = Pair::new(after);
        pair.to.inject(Fault { failure, after });
        pair.step();
        for step in scenario() {
            if pair.to.is_dead() || (pair.trouble && until == Until::TheFailure) {
                break;
            }
            pair.run(&step);
            pair.step();
            if pair.trouble && !pair.to.is_dead() {
                pair.judge(&pair.to.fork().kill());
            }
        }
        if pair.to.has_faults() && pair.to.faults_struck() == 0 {
            return after;
        }
        then(pair, after);
    }
    unreachable!("the scenario ends")
}

/// The disk is well again: the next steps make good what is missing.
fn goes_on(pair: &mut Pair) {
    pair.to.heal();
    if !pair.closed {
        pair.run(&Step::Append { durability: Synced, samples: ticks(&[0, 5], 2..4, 1_000) });
    }
    // One to begin, if that failed, and one to step.
    pair.step();
    assert!(pair.step(), "a healthy disk and no step");
}

#[test]
fn after_every_step_the_copy_is_whole() {
    let mut pair = Pair::new(1);
    assert!(pair.step());
    for step in scenario() {
        pair.run(&step);
        assert!(pair.step());
        pair.assert_whole();
    }
    assert!(pair.finish());
    pair.assert_whole();
    pair.judge(&pair.to.power_loss(&mut Random::new(1)));
}

#[test]
fn the_copy_survives_the_death_of_its_machine_at_any_operation() {
    let moments = for_every(Failure::Death, Until::TheFailure, |pair, after| {
        pair.judge(&pair.to.fork().kill());
        for image in 0..images() {
            pair.judge(&pair.to.fork().power_loss(&mut Random::new(after * 1_000 + image)));
        }
    });
    assert!(moments > 100, "{moments}");
}

#[test]
fn a_copy_whose_disk_is_full_from_any_write_on_is_whole_when_there_is_space_again() {
    let moments = for_every(Failure::Full, Until::TheEnd, |mut pair, after| {
        pair.judge(&pair.to.fork().power_loss(&mut Random::new(after)));
        pair.to.heal();
        // One to begin, if that failed, and one to step.
        pair.step();
        assert!(pair.step(), "a healthy disk and no step");
        pair.assert_whole();
        assert!(pair.finish());
        pair.assert_whole();
    });
    assert!(moments > 40, "{moments}");
    for_every(Failure::Full, Until::TheFailure, |mut pair, _| {
        goes_on(&mut pair);
        pair.assert_whole();
    });
}

#[test]
fn any_operation_on_the_copy_may_fail_once() {
    for failure in [
        Failure::Sync,
        Failure::Once(Operation::Create),
        Failure::Once(Operation::Append),
        Failure::Once(Operation::Rename),
        Failure::Once(Operation::Remove),
        Failure::Once(Operation::CreateDir),
        Failure::Once(Operation::Read),
    ] {
        for_every(failure, Until::TheFailure, |mut pair, after| {
            pair.judge(&pair.to.fork().power_loss(&mut Random::new(after)));
            goes_on(&mut pair);
            pair.assert_whole();
            pair.judge(&pair.to.power_loss(&mut Random::new(after)));
        });
    }
}

#[test]
fn whatever_happens_the_copy_keeps_its_promise() {
    for seed in 0..u64::from(cases()) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut pair = Pair::new(seed);
        for number in 0..40 {
            random_action(&mut pair, &mut random, number);
        }
        pair.to.heal();
        pair.run(&Step::Sync);
        pair.step();
        assert!(pair.step());
        pair.assert_whole();
        pair.run(&Step::CloseAndOpen);
        assert!(pair.finish());
        pair.assert_whole();
        pair.judge(&pair.to.power_loss(&mut random));
    }
}

fn random_action(pair: &mut Pair, random: &mut Random, number: i64) {
    let after = random.below(8) as u64;
    match random.below(16) {
        0..=4 => {
            let start = *random.pick(&[0, 2, 5, 3_000, 9_000]);
            let series = [random.below(super::SERIES)];
            let durability = if random.coin() { Synced } else { Buffered };
            let samples = ticks(&series, start..start + 1 + random.below(5) as i64, number);
            pair.run(&Step::Append { durability, samples });
        }
        5 => pair.run(&Step::PutMeta { metric: random.below(super::SERIES), number, durability: Buffered }),
        6 => pair.run(&Step::Flush),
        7 => pair.run(if random.coin() { &Step::Compact } else { &Step::Upkeep }),
        8..=10 => {
            pair.step();
        }
        11 => {
            pair.source.disk.inject(Fault { failure: Failure::Once(Operation::Read), after });
            pair.step();
            pair.source.disk.heal();
        }
        12 => {
            let failures = [Failure::Full, Failure::Sync, Failure::Once(Operation::Append)];
            pair.to.inject(Fault { failure: *random.pick(&failures), after });
        }
        13 => pair.to.heal(),
        14 => pair.judge(&pair.to.fork().kill()),
        _ => pair.judge(&pair.to.fork().power_loss(random)),
    }
}

/// A source whose writer is busy: what it does, it does right before a file is opened.
#[derive(Clone)]
struct Busy {
    disk: SimDisk,
    does: Arc<Mutex<Option<Meddling>>>,
}

struct Meddling {
    opens: u64,
    act: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Busy")
    }
}

impl Disk for Busy {
    fn open(&self, path: &Path) -> std::io::Result<Arc<dyn ReadFile>> {
        let due = {
            let mut does = self.does.lock().unwrap();
            match &mut *does {
                Some(Meddling { opens, .. }) if *opens > 0 => {
                    *opens -= 1;
                    None
                }
                _ => does.take(),
            }
        };
        if let Some(meddling) = due {
            (meddling.act)();
        }
        self.disk.open(path)
    }

    fn create(&self, path: &Path) -> std::io::Result<Box<dyn WriteFile>> {
        self.disk.create(path)
    }
    fn reopen(&self, path: &Path) -> std::io::Result<Box<dyn WriteFile>> {
        self.disk.reopen(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> std::io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
        self.disk.list(dir)
    }
    fn create_dir(&self, dir: &Path) -> std::io::Result<()> {
        self.disk.create_dir(dir)
    }
    fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

fn append(db: &Db, series: usize, at: i64, start: i64) {
    let mut batch = SampleBatch::default();
    for (series, time, value) in ticks(&[series], at..at + 3, start) {
        batch.push(db.series(&super::key(series)).unwrap(), time, value);
    }
    db.append(&batch, Synced).unwrap();
}

#[derive(Clone, Copy, Debug)]
enum Merges {
    None,
    WhatIsDue,
    All,
}

#[test]
fn a_flush_and_a_merge_under_a_step_make_it_start_over() {
    for opens in 0..12 {
        for merges in [Merges::None, Merges::WhatIsDue, Merges::All] {
            let busy = Busy { disk: super::world::empty_disk(opens), does: Arc::default() };
            let options_of_source = Options { disk: Arc::new(busy.clone()), ..options(&busy.disk) };
            let db = Db::open(Path::new(super::world::DIR), options_of_source).unwrap();
            let to = SimDisk::new(7);
            let mut mirror = Mirror::begin(&db, Path::new(COPY), Arc::new(to.clone())).unwrap();
            append(&db, 0, 0, 1);
            mirror.step().unwrap();
            for at in [0, 1, 2, 9_000] {
                append(&db, 1, at, 2 + at);
                db.flush().unwrap();
            }
            append(&db, 2, 5, 9);
            let (writer, expected) = (db.clone(), observe::content(&db.snapshot()));
            let act = Box::new(move || {
                match merges {
                    Merges::None => {}
                    Merges::WhatIsDue => while !writer.upkeep(&|| true).unwrap().is_idle() {},
                    Merges::All => drop(writer.compact().unwrap()),
                }
                writer.flush().unwrap();
                append(&writer, 3, 7, 10);
            });
            *busy.does.lock().unwrap() = Some(Meddling { opens, act });
            mirror.step().unwrap();
            let copy = Db::open_read_only(Path::new(COPY), options(&to)).unwrap();
            let found = observe::database(&copy);
            let now = observe::content(&db.snapshot());
            assert!(found == expected || found == now, "open {opens}, {merges:?}");
            observe::assert_sound(Path::new(COPY), &options(&to));
            drop(copy);
            busy.does.lock().unwrap().take();
            mirror.step().unwrap();
            let copy = Db::open_read_only(Path::new(COPY), options(&to)).unwrap();
            observe::assert_same(&now, &observe::database(&copy), "after the next step");
        }
    }
}
