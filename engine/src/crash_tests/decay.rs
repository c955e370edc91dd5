//! Flipped bits and cut files: whatever a reader is given is what was written, or it is an error.
//!
//! Exceptions, where damage need not be noticed because no answer depends on it:
//! - `WRITER`: it says who writes, not what.
//! - A file that no manifest names.
//! - A WAL file that ends exactly behind a frame: no reader can know that there was more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::model::{Content, Model, Replayed};
use super::observe;
use super::random_steps::cases;
use super::sim_machine::SimMachine;
use super::world::{DIR, Step, World};
use crate::check::check;
use crate::db::{Db, Durability};
use crate::disk::Disk;
use crate::disk::sim::{Failure, Fault, Operation, Random, SimDisk};
use crate::error::{Error, ErrorKind};
use crate::options::Options;
use crate::time::Timestamp;
use crate::value::Value;

/// A database with every kind of file: two flushes over three windows, two series files, metadata, a WAL.
fn grown() -> World {
    let mut world = World::new(11);
    let append = |from: i64, series: &[usize]| {
        let mut samples = Vec::new();
        for at in 0..50 {
            for series in series {
                let int = Value::Int(at * 3 - 40);
                let value = if (at + *series as i64) % 3 == 0 { Value::Float(at as f64 * 0.3 + 0.001) } else { int };
                samples.push((*series, Timestamp::from_seconds(1_799_990_000 + from + at * 20), value));
            }
        }
        Step::Append { durability: Durability::Synced, samples }
    };
    let meta = |number| Step::PutMeta { metric: 3, number, durability: Durability::Synced };
    for step in [append(0, &[0, 1]), meta(4), append(3_000, &[0]), Step::Flush, append(90_000, &[2, 0, 3]), Step::Flush]
    {
        world.run(&step);
    }
    for step in [append(500, &[4]), meta(5), append(80_000, &[0, 5]), Step::Kill] {
        world.run(&step);
    }
    world
}

/// The database whose damage is tried, and what is in it.
struct Subject {
    disk: SimDisk,
    model: Model,
    full: Content,
}

impl Subject {
    fn new() -> Self {
        let world = grown();
        let mut model = world.model.clone();
        model.forget_syncs();
        Self { disk: world.disk.kill(), full: model.live(), model }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.disk.files()
    }

    /// Damages a copy of one file and reads everything in every way.
    fn try_damage(&self, file: &Path, what: &str, cut: bool, damage: impl Fn(&mut Vec<u8>)) {
        let disk = self.disk.fork();
        disk.decay(file, damage);
        let what = format!("{} with {what}", file.display());
        let whole = self.judge(&what, Db::open_read_only(Path::new(DIR), options(&disk)));
        let is_wal = file.extension().is_some_and(|extension| extension == "wal");
        let is_lock = file.ends_with("WRITER");

        let findings = match check(Path::new(DIR), &options(&disk), &mut |_| {}) {
            Ok(report) => report.findings.len(),
            Err(_) => 1,
        };
        assert!(whole || findings > 0 || (is_wal && cut), "{what}: not all is there, and check finds nothing");
        assert!(is_lock || findings > 0 || (is_wal && cut), "{what}: check finds nothing");

        self.judge(&what, Db::open(Path::new(DIR), Options { take_over: true, ..options(&disk) }));
    }

    /// Whether all is there and was given without complaint. Panics when something else is there than was written.
    fn judge(&self, what: &str, opened: Result<Db, Error>) -> bool {
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                assert_says_corrupt(what, &error);
                return false;
            }
        };
        let report = db.recovery();
        let complains = !(report.torn.is_empty() && report.damaged.is_empty() && report.missing.is_empty());
        let replayed = Replayed { samples: report.samples };
        match observe::try_content(&db.snapshot()) {
            Ok(found) if found == self.full => true,
            Ok(found) => {
                // Less than all: then from the WAL, where the frames before the damage are good.
                let prefix = self.model.clone().settle_after_power_loss(&found, replayed);
                prefix.unwrap_or_else(|why| panic!("{what}: wrong data: {why}"));
                complains
            }
            Err(error) => {
                assert_says_corrupt(what, &error);
                false
            }
        }
    }
}

fn options(disk: &SimDisk) -> Options {
    Options { disk: Arc::new(disk.clone()), machine: Arc::new(SimMachine::default()), ..Options::default() }
}

fn assert_says_corrupt(what: &str, error: &Error) {
    // A manifest whose format number changed looks like one of a newer telem.
    let newer = matches!(error, Error::Format { .. });
    assert!(error.kind() == ErrorKind::Corrupt || newer, "{what}: {error}");
    assert!(error.to_string().contains(DIR), "{what}: the error names no file: {error}");
}

/// How many places of each file are tried.
fn places() -> usize {
    cases() as usize / 4
}

#[test]
fn a_flipped_bit_is_noticed_or_harmless() {
    let subject = Subject::new();
    let mut random = Random::new(1);
    for file in subject.files() {
        let len = subject.disk.content(&file).unwrap().len();
        let step = len.div_ceil(places()).max(1);
        for start in (0..len).step_by(step) {
            let at = (start + random.below(step)).min(len - 1);
            let bit = random.below(8);
            subject.try_damage(&file, &format!("bit {bit} of byte {at} flipped"), false, |bytes| bytes[at] ^= 1 << bit);
        }
    }
}

#[test]
fn a_file_that_was_cut_is_noticed() {
    let subject = Subject::new();
    let mut random = Random::new(2);
    for file in subject.files() {
        let len = subject.disk.content(&file).unwrap().len();
        let mut lens = vec![0, 1, len / 2, len - 1];
        lens.extend((0..places() / 4).map(|_| random.below(len)));
        for len in lens {
            subject.try_damage(&file, &format!("{len} bytes left"), true, |bytes| bytes.truncate(len));
        }
    }
}

#[test]
fn a_stretch_that_became_zeros_or_garbage_is_noticed() {
    let subject = Subject::new();
    let mut random = Random::new(3);
    for file in subject.files() {
        let len = subject.disk.content(&file).unwrap().len();
        for _ in 0..places() / 4 {
            let start = random.below(len);
            let end = random.between(start + 1, len);
            let garbage = if random.coin() { vec![0; end - start] } else { random.bytes(end - start) };
            if subject.disk.content(&file).unwrap()[start..end] == garbage {
                continue;
            }
            let what = format!("bytes {start} to {end} overwritten");
            subject.try_damage(&file, &what, false, |bytes| bytes[start..end].copy_from_slice(&garbage));
        }
    }
}

#[test]
fn a_file_that_vanished_is_noticed() {
    let subject = Subject::new();
    for file in subject.files() {
        if file.ends_with("WRITER") {
            continue;
        }
        let disk = subject.disk.kill();
        disk.remove(&file).unwrap();
        let whole = match Db::open_read_only(Path::new(DIR), options(&disk)) {
            Ok(db) => observe::try_content(&db.snapshot()).is_ok_and(|found| found == subject.full),
            Err(_) => false,
        };
        let findings = check(Path::new(DIR), &options(&disk), &mut |_| {}).map_or(1, |report| report.findings.len());
        let is_wal = file.extension().is_some_and(|extension| extension == "wal");
        assert!(whole || is_wal || findings > 0, "{} is gone and check finds nothing", file.display());
    }
}

#[test]
fn a_read_that_fails_is_an_error_and_never_less_data() {
    let subject = Subject::new();
    for after in 0.. {
        let disk = subject.disk.fork();
        disk.inject(Fault { failure: Failure::Once(Operation::Read), after });
        match Db::open_read_only(Path::new(DIR), options(&disk)) {
            Ok(db) => match observe::try_content(&db.snapshot()) {
                Ok(found) => observe::assert_same(&subject.full, &found, &format!("after {after} reads")),
                Err(error) => assert!(disk.faults_struck() == 1, "{error}"),
            },
            Err(error) => assert!(disk.faults_struck() == 1, "{error}"),
        }
        if disk.faults_struck() == 0 {
            assert!(after > 20, "{after} reads");
            return;
        }
    }
}
