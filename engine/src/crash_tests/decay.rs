//! Flipped bits and cut files: a reader gets what was written, or an error.
//!
//! Damage need not be noticed where no answer depends on it:
//! - `WRITER`: it names the writer and holds no data.
//! - A file that no manifest names.
//! - The list of WAL files, if all of them exist.
//! - The last WAL file, if it is cut exactly behind a frame and not before the end of its first append: no reader can
//!   know that there was more.

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
use crate::layout::{self, Layout};
use crate::options::Options;
use crate::repair::{LOST_METRIC, repair};
use crate::sample::SampleBatch;
use crate::series::SeriesId;
use crate::time::Timestamp;
use crate::value::Value;
use crate::wal::{FoundList, HEADER_BYTES};

/// A sample's place: series and time.
type Place = (usize, Timestamp);

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
        Self::of(grown())
    }

    fn of(world: World) -> Self {
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
        let ends_behind_a_frame = is_wal(file) && cut && self.could_be_cut_so(file, &disk);
        let is_lock = file.ends_with("WRITER");

        let findings = match check(Path::new(DIR), &options(&disk), &mut |_| {}) {
            Ok(report) => report.findings.len(),
            Err(_) => 1,
        };
        assert!(whole || findings > 0 || ends_behind_a_frame, "{what}: not all is there, and check finds nothing");
        assert!(is_lock || findings > 0 || ends_behind_a_frame, "{what}: check finds nothing");

        self.judge(&what, Db::open(Path::new(DIR), Options { take_over: true, ..options(&disk) }));
    }

    /// Whether a power loss may have left so little of the last WAL file.
    fn could_be_cut_so(&self, file: &Path, disk: &SimDisk) -> bool {
        let list = FoundList::load(&self.disk, &Layout::new(Path::new(DIR))).unwrap().into_list();
        let listed = layout::wal_number(file).and_then(|number| list.entry(number).copied()).unwrap();
        disk.content(file).unwrap().len() as u64 >= listed.bytes
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
        assert!(whole || findings > 0, "{} is gone and check finds nothing", file.display());
    }
}

/// One appends, is killed, and another appends: two WAL files, each with series of its own. `seed` makes another database.
fn two_wal_files(seed: i64) -> World {
    let mut world = World::new(13);
    let append = |from: i64, series: &[usize]| {
        let sample = |at: i64, series: usize| {
            (series, Timestamp::from_seconds(1_799_990_000 + from + at), Value::Int(at + 1_000 * seed))
        };
        let samples = (0..40).flat_map(|at| series.iter().map(move |series| sample(at, *series))).collect();
        Step::Append { durability: Durability::Synced, samples }
    };
    for step in [append(0, &[0, 1]), Step::Flush, append(100, &[2, 0]), append(200, &[2]), Step::Kill] {
        world.run(&step);
    }
    for step in [append(300, &[3, 1]), append(400, &[0]), Step::Kill] {
        world.run(&step);
    }
    world
}

/// Whatever else stands where a WAL file was begun is told by every way to read, and nothing of it is data.
#[test]
fn a_wal_file_that_is_gone_empty_zeroed_or_another_one_is_noticed() {
    let subject = Subject::of(two_wal_files(1));
    let foreign = Subject::of(two_wal_files(2));
    let wal: Vec<PathBuf> = subject.files().into_iter().filter(|file| is_wal(file)).collect();
    assert_eq!(wal.len(), 2);
    for (at, file) in wal.iter().enumerate() {
        let len = subject.disk.content(file).unwrap().len();
        let other = subject.disk.content(&wal[1 - at]).unwrap();
        let of_another = foreign.disk.content(file).unwrap();
        assert_ne!(subject.disk.content(file).unwrap(), of_another);
        let header = || subject.disk.content(file).unwrap()[..HEADER_BYTES].to_vec();
        let becomes: Vec<(&str, Option<Vec<u8>>)> = vec![
            ("gone", None),
            ("empty", Some(Vec::new())),
            ("one byte", Some(vec![b'T'])),
            ("a header alone", Some(header())),
            ("zeros", Some(vec![0; len])),
            ("a header and zeros", Some([header(), vec![0; len]].concat())),
            ("text", Some(b"127.0.0.1 localhost\n".repeat(20))),
            ("the other WAL file", Some(other)),
            ("the WAL file of another database", Some(of_another)),
        ];
        for (what, bytes) in becomes {
            let what = format!("{} is {what}", file.display());
            let disk = subject.disk.fork();
            match bytes {
                None => disk.remove(file).unwrap(),
                Some(bytes) => disk.decay(file, |content| *content = bytes),
            }
            let options = Options { take_over: true, ..options(&disk) };
            let report = check(Path::new(DIR), &options, &mut |_| {}).unwrap();
            assert!(!report.is_sound(), "{what}: {:?}", report.findings);
            let named = report.findings.iter().any(|finding| finding.file == *file);
            assert!(named, "{what}: {:?}", report.findings);

            for open in [Db::open_read_only, Db::open] {
                let copy = disk.fork();
                let options = Options { disk: Arc::new(copy.clone()), ..options.clone() };
                let db = open(Path::new(DIR), options.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
                let recovery = db.recovery();
                let named = recovery.missing.contains(file) || recovery.damaged.iter().any(|cut| cut.file == *file);
                assert!(named, "{what}: {recovery}");
                let found = observe::try_content(&db.snapshot()).unwrap();
                let is_ours = |(at, value): (&Place, &Value)| subject.full.get(at) == Some(value);
                assert!(found.iter().all(is_ours), "{what}: data of nobody");
                if db.is_read_only() {
                    continue;
                }
                // What was told is done with: what is appended now is a WAL file of its own, and nothing else is lost.
                let mut batch = SampleBatch::with_capacity(1);
                batch.push(db.series(&super::key(0)).unwrap(), Timestamp::from_seconds(1), Value::Int(7));
                db.append(&batch, Durability::Synced).unwrap();
                drop(db);
                let report = check(Path::new(DIR), &options, &mut |_| {}).unwrap();
                assert!(report.is_sound(), "{what}: {:?}", report.findings);
                assert!(!report.findings.is_empty(), "{what}: nothing tells of it any more");
                let db = Db::open_read_only(Path::new(DIR), options).unwrap();
                assert_eq!(observe::try_content(&db.snapshot()).unwrap().len(), found.len() + 1, "{what}");
            }

            let repaired = repair(Path::new(DIR), &options, &mut |_| {}).unwrap();
            assert!(!repaired.losses.is_empty(), "{what}: {repaired:?}");
            let report = check(Path::new(DIR), &options, &mut |_| {}).unwrap();
            assert_eq!(report.findings, [], "{what}");
            let db = Db::open_read_only(Path::new(DIR), options).unwrap();
            let lost_a_name = |id| db.index().key(SeriesId(id)).is_some_and(|key| key.metric() == LOST_METRIC);
            if (0..db.index().len() as u32).any(lost_a_name) {
                continue;
            }
            let found = observe::try_content(&db.snapshot()).unwrap();
            let strange = found.iter().filter(|(at, value)| subject.full.get(*at) != Some(*value)).count();
            assert_eq!(strange, 0, "{what}: data of nobody");
        }
    }
}

/// A database of an earlier version has no list, one that was closed has none, and one that outlives its files says
/// nothing of them.
#[test]
fn a_list_that_is_not_there_or_is_old_asks_for_nothing() {
    let subject = Subject::of(two_wal_files(1));
    let list = Layout::new(Path::new(DIR)).wal_list();
    let old = subject.disk.content(&list).unwrap();
    subject.disk.remove(&list).unwrap();
    let options = Options { take_over: true, ..options(&subject.disk) };
    assert!(check(Path::new(DIR), &options, &mut |_| {}).unwrap().is_sound());
    let db = Db::open(Path::new(DIR), options.clone()).unwrap();
    assert!(db.recovery().missing.is_empty() && db.recovery().damaged.is_empty());
    db.close().unwrap();
    assert_eq!(subject.disk.content(&list), None);
    crate::disk::write_file(&subject.disk, &list, &old).unwrap();
    assert_eq!(check(Path::new(DIR), &options, &mut |_| {}).unwrap().findings, []);
    assert!(Db::open_read_only(Path::new(DIR), options).unwrap().recovery().missing.is_empty());
}

fn is_wal(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "wal")
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
