//! One database on one simulated disk, its model, and the steps that are done to both.
//!
//! Every step is done to the database first and then, depending on its result, to the model. After every recovery
//! everything that a reader can see is compared. A violation panics.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::model::{Content, Model, Replayed, Sample};
use super::observe;
use super::sim_machine::SimMachine;
use crate::clock::Clock;
use crate::clock::sim::SimClock;
use crate::db::{Db, Durability};
use crate::disk::Disk;
use crate::disk::sim::{Failure, Fault, Random, SimDisk};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::{MetaChange, MetricMeta};
use crate::options::Options;
use crate::sample::SampleBatch;
use crate::snapshot::Snapshot;
use crate::time::Timestamp;

pub const DIR: &str = "/data/db";

/// What can be done.
#[derive(Clone, Debug)]
pub enum Step {
    Append {
        durability: Durability,
        samples: Vec<Sample>,
    },
    /// Writes metadata of a metric: its help text is the number.
    PutMeta {
        metric: usize,
        number: i64,
        durability: Durability,
    },
    Sync,
    Flush,
    /// Merges segments.
    Compact,
    /// Merges what is due while the database is open.
    Upkeep,
    /// Compares all that a reader sees.
    Compare,
    /// Takes a snapshot, to be compared when the next one is taken or the database closed, whatever happened since.
    HoldSnapshot,
    /// Compares what a read-only open sees; it must write nothing.
    ReadOnly,
    CloseAndOpen,
    Kill,
    PowerLoss,
    Inject(Fault),
    /// Removes the faults. What they broke may still refuse to work.
    Heal,
    /// Removes the faults; then a flush, and everything works again.
    HealAndFlush,
    /// Time passes. After every third wait the wall clock is set back, by more than ever passed.
    Wait {
        seconds: u16,
    },
}

#[derive(Debug)]
pub struct World {
    pub disk: SimDisk,
    pub model: Model,
    machine: SimMachine,
    clock: Arc<SimClock>,
    db: Option<Db>,
    random: Random,
    held: Option<(Snapshot, Content)>,
    /// A fault struck, and nothing since has shown that the database is past it.
    trouble: bool,
    /// Leaves a dead disk as it is, for [`World::fork`], instead of recovering at once.
    pub stops_at_death: bool,
}

/// What the directory of a database may be: `DIR` and everything above it is durable before.
pub fn empty_disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir(Path::new(DIR).parent().unwrap()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

impl World {
    /// A new database, open.
    pub fn new(seed: u64) -> Self {
        let mut world = Self::closed(seed);
        world.create();
        world
    }

    /// Makes the database. Where a fault prevents it, it is made once the disk is healthy, unless this was a death.
    pub fn create(&mut self) {
        if let Err(error) = self.open() {
            assert!(self.disk.faults_struck() > 0, "an error without a fault: {error}");
            if !self.disk.is_dead() {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                self.disk.heal();
                self.open_after_death();
            }
        }
    }

    /// A disk without a database.
    pub fn closed(seed: u64) -> Self {
        Self {
            disk: empty_disk(seed),
            model: Model::default(),
            machine: SimMachine::default(),
            clock: Arc::new(SimClock::at(Timestamp::from_seconds(1_800_000_000))),
            db: None,
            random: Random::new(seed ^ 0x5EED),
            held: None,
            trouble: false,
            stops_at_death: false,
        }
    }

    /// Another world in the same state: the same disk at this moment, without an open database.
    pub fn fork(&self, seed: u64) -> Self {
        Self {
            disk: self.disk.fork(),
            model: self.model.clone(),
            machine: self.machine.clone(),
            clock: Arc::clone(&self.clock),
            db: None,
            random: Random::new(seed),
            held: None,
            trouble: false,
            stops_at_death: false,
        }
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("steps leave the database open")
    }

    fn options(&self) -> Options {
        Options {
            node: "node-1".to_owned(),
            disk: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            machine: Arc::new(self.machine.clone()),
            ..Options::default()
        }
    }

    fn open(&mut self) -> Result<()> {
        self.db = None;
        self.db = Some(Db::open(Path::new(DIR), self.options())?);
        Ok(())
    }

    /// Opens after a death. A writer lock that the death tore names nobody: then a person, here
    /// the test, must say that its owner is gone.
    fn open_after_death(&mut self) {
        let torn_lock = match self.open() {
            Err(Error::Locked { owner, .. }) => owner,
            result => {
                result.unwrap_or_else(|error| panic!("the database does not open again: {error}\n{}", self.files()));
                return;
            }
        };
        assert!(self.lock_is_torn(), "the lock of a dead process keeps its successor out: {torn_lock}");
        let options = Options { take_over: true, ..self.options() };
        self.db = Some(Db::open(Path::new(DIR), options).unwrap());
    }

    fn lock_is_torn(&self) -> bool {
        let lock = self.disk.content(&Path::new(DIR).join("WRITER")).unwrap_or_default();
        serde_json::from_slice::<serde_json::Value>(&lock).is_err()
    }

    pub fn run(&mut self, step: &Step) {
        self.act(step);
        // Also where the step itself went well: it died over a file that nobody needed any more.
        if self.disk.is_dead() {
            self.recover_from_death();
        }
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Append { durability, samples } => self.append(*durability, samples),
            Step::PutMeta { metric, number, durability } => self.put_meta(*metric, *number, *durability),
            Step::Sync => self.sync(),
            Step::Flush => self.flush(),
            Step::Compact => self.compact(),
            Step::Upkeep => self.upkeep(),
            Step::Compare => self.compare(),
            Step::HoldSnapshot => self.hold_snapshot(),
            Step::ReadOnly => self.read_only(),
            Step::CloseAndOpen => self.close_and_open(),
            Step::Kill => self.kill(),
            Step::PowerLoss => self.power_loss(),
            Step::Inject(fault) => self.disk.inject(*fault),
            Step::Heal => self.disk.heal(),
            Step::HealAndFlush => self.heal_and_flush(),
            Step::Wait { seconds } => {
                self.clock.advance(Duration::from_secs(u64::from(*seconds)));
                if seconds.is_multiple_of(3) {
                    self.clock.jump_to(self.clock.now().saturating_add_micros(-86_400_000_000));
                }
            }
        }
    }

    fn append(&mut self, durability: Durability, samples: &[Sample]) {
        let outcome = self.attempt(|db| {
            let mut batch = SampleBatch::with_capacity(samples.len());
            for (series, time, value) in samples {
                batch.push(db.series(&super::key(*series))?, *time, *value);
            }
            db.append(&batch, durability)
        });
        self.took(samples, outcome, durability == Durability::Synced);
    }

    fn put_meta(&mut self, metric: usize, number: i64, durability: Durability) {
        let name = Arc::clone(super::key(metric).metric_shared());
        let meta = MetricMeta { help: number.to_string(), ..MetricMeta::default() };
        let outcome = self.attempt(|db| db.put_meta(MetaChange::Metric { name, meta }, durability));
        self.took(&[observe::meta_sample(metric, number)], outcome, durability == Durability::Synced);
    }

    /// Tells the model what became of `samples`. What was refused must be there whole or not at all.
    fn took(&mut self, samples: &[Sample], outcome: Outcome, synced: bool) {
        match outcome {
            Outcome::Done => {
                self.model.accept(samples);
                if synced {
                    self.model.sync();
                }
            }
            Outcome::Failed => {
                let found = observe::content(&self.db().snapshot());
                let mut with = self.model.clone();
                with.accept(samples);
                if found == self.model.live() {
                    self.model.refuse(samples);
                } else {
                    observe::assert_same(&with.live(), &found, "half a refused batch is there");
                    self.model = with;
                }
            }
            Outcome::Died => {
                self.model.refuse(samples);
                self.recover_from_death();
            }
        }
    }

    fn sync(&mut self) {
        match self.attempt(Db::sync) {
            Outcome::Done => self.model.sync(),
            Outcome::Failed => self.compare(),
            Outcome::Died => self.recover_from_death(),
        }
    }

    fn flush(&mut self) {
        match self.attempt(|db| db.flush().map(drop)) {
            Outcome::Done => {
                self.model.flush();
                self.trouble &= self.disk.has_faults();
            }
            Outcome::Failed => {
                self.model.doubt_flush();
                self.compare();
            }
            Outcome::Died => {
                self.model.doubt_flush();
                self.recover_from_death();
            }
        }
    }

    /// Nothing that a reader sees changes, whatever becomes of it.
    fn compact(&mut self) {
        match self.attempt(|db| db.compact().map(drop)) {
            Outcome::Done | Outcome::Failed if !self.disk.is_dead() => self.compare(),
            _ => self.recover_from_death(),
        }
    }

    /// As [`World::compact`].
    fn upkeep(&mut self) {
        let all = |db: &Db| {
            while !db.upkeep(&|| true)?.is_idle() {}
            Ok(())
        };
        match self.attempt(all) {
            Outcome::Done | Outcome::Failed if !self.disk.is_dead() => self.compare(),
            _ => self.recover_from_death(),
        }
    }

    /// Does something that may fail only when a fault struck, and then with an error that says so.
    fn attempt(&mut self, act: impl FnOnce(&Db) -> Result<()>) -> Outcome {
        let struck = self.disk.faults_struck();
        let result = act(self.db());
        self.trouble |= self.disk.faults_struck() > struck;
        match result {
            Ok(()) => Outcome::Done,
            Err(_) if self.disk.is_dead() => Outcome::Died,
            Err(error) => {
                assert!(self.trouble, "an error without a fault: {error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                Outcome::Failed
            }
        }
    }

    /// Compares what every way of reading gives with the model.
    pub fn compare(&self) {
        let found = observe::database(self.db());
        observe::assert_same(&self.model.live(), &found, "what a reader sees");
    }

    fn hold_snapshot(&mut self) {
        self.compare_held();
        self.held = Some((self.db().snapshot(), self.model.live()));
    }

    fn compare_held(&mut self) {
        if let Some((snapshot, expected)) = self.held.take() {
            observe::assert_same(&expected, &observe::content(&snapshot), "a snapshot taken before");
        }
    }

    fn read_only(&mut self) {
        // What a fault kept out of the WAL is in memory only, and a reader beside us cannot see it.
        if self.trouble {
            return;
        }
        let before = self.disk.journal().len();
        let struck = self.disk.faults_struck();
        match Db::open_read_only(Path::new(DIR), self.options()) {
            Ok(db) => {
                observe::assert_same(&self.model.live(), &observe::database(&db), "what a read-only open sees");
                drop(db);
            }
            Err(error) => assert!(self.disk.faults_struck() > struck, "a read-only open fails: {error}"),
        }
        let written = self.disk.journal().split_off(before);
        assert!(written.is_empty(), "a read-only open wrote: {written:?}");
    }

    fn close_and_open(&mut self) {
        match self.attempt(Db::close) {
            Outcome::Done => self.model.flush(),
            // What could not be flushed waits in the WAL, and nobody has given the lock back.
            Outcome::Failed => {
                self.model.doubt_flush();
                return self.kill();
            }
            Outcome::Died => {
                self.model.doubt_flush();
                return self.recover_from_death();
            }
        }
        let closed = self.db().append(&SampleBatch::default(), Durability::Buffered);
        assert!(closed.is_err(), "a closed database takes samples");
        // It reads on after the close, but a successor knows nothing of it and may merge its files away.
        if !self.disk.is_dead() {
            self.compare_held();
        }
        let struck = self.disk.faults_struck();
        match self.open() {
            Ok(()) => {
                self.compare();
                self.check();
                observe::assert_nothing_to_repair(Path::new(DIR), &self.options());
            }
            Err(_) if self.disk.is_dead() => self.recover_from_death(),
            Err(error) => {
                assert!(self.disk.faults_struck() > struck, "an error without a fault: {error}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                self.kill();
            }
        }
    }

    /// A death that a fault brought about is a power loss as often as not.
    fn recover_from_death(&mut self) {
        if self.stops_at_death {
            return;
        }
        if self.random.coin() { self.power_loss() } else { self.kill() }
    }

    /// The process dies at once; the next one recovers.
    pub fn kill(&mut self) {
        self.disk = self.disk.kill();
        self.machine.next_process();
        let (found, replayed) = self.recover();
        self.model.settle_after_kill(&found, replayed).unwrap_or_else(|why| panic!("{why}\n{}", self.files()));
        self.after_recovery();
        self.flush_what_only_the_page_cache_has();
    }

    /// The exception to every promise: an fsync failed, the process died before a flush could put its samples
    /// elsewhere, and its successor reads from the page cache what is not on the medium. The kernel tells it nothing:
    /// an fsync of its own succeeds. It is out of danger with its next flush, which comes here before anything else.
    fn flush_what_only_the_page_cache_has(&mut self) {
        if self.disk.has_lost_pages() {
            self.run(&Step::HealAndFlush);
            assert!(!self.disk.has_lost_pages(), "a flush leaves nothing that depends on such a file");
        }
    }

    /// The machine loses power; the next boot recovers.
    pub fn power_loss(&mut self) {
        self.disk = self.disk.power_loss(&mut self.random);
        self.machine.next_boot();
        let (found, replayed) = self.recover();
        self.model.settle_after_power_loss(&found, replayed).unwrap_or_else(|why| panic!("{why}\n{}", self.files()));
        self.after_recovery();
    }

    /// A power loss, and during the recovery from it, after `after` operations or when it is over, another.
    pub fn power_loss_then_death(&mut self, after: u64) {
        self.disk = self.disk.power_loss(&mut self.random);
        self.machine.next_boot();
        self.disk.inject(Fault { failure: Failure::Death, after });
        // It fails when it dies, and what it found is not asked: the next recovery must find it again.
        let _ = self.open();
        self.power_loss();
    }

    /// The process dies, and the next one finds the disk full: it opens or says so, and opens once there is space.
    pub fn kill_while_full(&mut self) {
        self.disk = self.disk.kill();
        self.machine.next_process();
        self.disk.inject(Fault { failure: Failure::Full, after: 0 });
        if let Err(error) = self.open() {
            let lock_is_torn = matches!(error, Error::Locked { .. }) && self.lock_is_torn();
            assert!(lock_is_torn || self.disk.faults_struck() > 0, "{error}");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        self.kill();
    }

    fn recover(&mut self) -> (Content, Replayed) {
        let before = self.disk.fork();
        self.open_after_death();
        let report = self.db().recovery();
        super::report::assert_true(report, &before, &self.disk);
        (observe::database(self.db()), Replayed { samples: report.samples })
    }

    fn after_recovery(&mut self) {
        self.trouble = false;
        self.held = None;
        self.check();
    }

    /// `telem check` finds nothing wrong.
    pub fn check(&self) {
        observe::assert_sound(Path::new(DIR), &self.options());
    }

    fn heal_and_flush(&mut self) {
        self.disk.heal();
        self.db().flush().unwrap_or_else(|error| panic!("no flush although the disk is healthy again: {error}"));
        self.trouble = false;
        self.model.flush();
        self.compare();
    }

    /// The files and their sizes, and what was done to them last: for messages.
    fn files(&self) -> String {
        let sizes = self.disk.files().into_iter().map(|file| {
            let bytes = self.disk.content(&file).map_or(0, |bytes| bytes.len());
            format!("{} {bytes}", file.display())
        });
        let lines: Vec<String> = sizes.collect();
        let journal = self.disk.journal();
        let last = &journal[journal.len().saturating_sub(20)..];
        format!("files: {}\nlast operations: {last:?}", lines.join(", "))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    /// The fault [`crate::disk::sim::Failure::Death`] struck.
    Died,
}
