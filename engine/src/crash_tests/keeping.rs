//! Background merges and retention, interrupted or failed at each of their disk operations: what must be kept is there,
//! what was dropped stays away, and the next attempt finishes both. Then retention over any order of writes: earlier,
//! late or repeated.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::every_operation::{images, ticks};
use super::model::{Content, Sample};
use super::observe;
use super::random_steps::{cases, samples};
use super::sim_machine::SimMachine;
use super::world::{DIR, empty_disk};
use crate::clock::sim::SimClock;
use crate::db::{Db, Durability, UpkeepReport};
use crate::disk::sim::{Failure, Fault, Operation, Random, SimDisk};
use crate::error::{ErrorKind, Result};
use crate::options::Options;
use crate::retention::Retention;
use crate::sample::SampleBatch;
use crate::time::Timestamp;

const NOTHING: Retention = Retention { age: None, bytes: None };
/// Of the ticks below, those before 2,800 are older: a whole hour.
const TWO_HOURS: Retention = Retention { age: Some(Duration::from_secs(7_200)), bytes: None };

fn options(disk: &SimDisk, retention: Retention) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        machine: Arc::new(SimMachine::default()),
        clock: Arc::new(SimClock::at(Timestamp::from_seconds(1_800_000_000))),
        retention,
        take_over: true,
        // So that a check finds none of them.
        removed_kept: Duration::ZERO,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, retention: Retention) -> Db {
    Db::open(Path::new(DIR), options(disk, retention)).unwrap()
}

fn append(db: &Db, series: &[usize], at: std::ops::Range<i64>, start: i64) {
    let mut batch = SampleBatch::default();
    for (series, time, value) in ticks(series, at, start) {
        batch.push(db.series(&super::key(series)).unwrap(), time, value);
    }
    db.append(&batch, Durability::Synced).unwrap();
}

/// Hours of several files each, some of them over, and samples that were overwritten: nothing is done about it yet.
fn filled(disk: &SimDisk, retention: Retention) -> Db {
    let db = open(disk, retention);
    for (number, series) in [0, 1, 2, 5].into_iter().enumerate() {
        let start = 400 * number as i64;
        append(&db, &[series], start..start + 3, number as i64);
        append(&db, &[series], 5_000 + start..5_002 + start, 100 + number as i64);
        db.flush().unwrap();
    }
    append(&db, &[0, 5], 1_198..1_202, 200);
    append(&db, &[0, 5], 6_500..6_503, 250);
    append(&db, &[0, 5], 10_000..10_003, 300);
    db.flush().unwrap();
    append(&db, &[5], 6_502..6_505, 350);
    append(&db, &[3], 14_398..14_401, 400);
    db.flush().unwrap();
    append(&db, &[2], 14_390..14_394, 500);
    db.flush().unwrap();
    db
}

/// Everything that is to be done.
fn keep(db: &Db) -> Result<Vec<UpkeepReport>> {
    let mut done = Vec::new();
    loop {
        match db.upkeep(&|| true)? {
            idle if idle.is_idle() => return Ok(done),
            report => done.push(report),
        }
    }
}

/// What there is before and after everything was done.
struct Contents {
    before: Content,
    after: Content,
}

fn contents(retention: Retention) -> Contents {
    let disk = empty_disk(0);
    let db = filled(&disk, retention);
    let before = observe::database(&db);
    let done = keep(&db).unwrap();
    let after = observe::database(&db);
    let merges = done.iter().filter(|report| report.merged.segments_after > 0).count();
    let dropped = done.iter().any(|report| report.dropped.segments > 0);
    assert!(merges > 1 && dropped == (retention != NOTHING), "{done:?}");
    assert_eq!(after.len() < before.len(), dropped);
    observe::assert_sound(Path::new(DIR), &options(&disk, NOTHING));
    Contents { before, after }
}

/// The database on `disk`, of which nobody knows how far it came.
fn judge(disk: &SimDisk, retention: Retention, expected: &Contents) {
    let db = open(disk, NOTHING);
    let found = observe::database(&db);
    let name = "after a death, opened to keep everything";
    if found != expected.after {
        observe::assert_same(&expected.before, &found, name);
    }
    observe::assert_sound(Path::new(DIR), &options(disk, NOTHING));
    db.close().unwrap();
    drop(db);
    let db = open(disk, retention);
    observe::assert_same(&expected.after, &observe::database(&db), "retention at open");
    keep(&db).unwrap();
    observe::assert_sound(Path::new(DIR), &options(disk, NOTHING));
    let read_only = Db::open_read_only(Path::new(DIR), options(disk, retention)).unwrap();
    observe::assert_same(&expected.after, &observe::database(&read_only), "when all is done");
}

/// Upkeep with `failure` after 0, 1, 2, ... operations that it could strike. Gives back how many these were.
fn for_every(
    failure: Failure,
    retention: Retention,
    mut then: impl FnMut(SimDisk, Db, Result<Vec<UpkeepReport>>),
) -> u64 {
    for after in 0.. {
        let disk = empty_disk(after);
        let db = filled(&disk, retention);
        disk.inject(Fault { failure, after });
        let done = keep(&db);
        if disk.has_faults() && disk.faults_struck() == 0 {
            return after;
        }
        then(disk, db, done);
    }
    unreachable!("it comes to its end")
}

#[test]
fn a_death_at_any_operation_of_a_merge_or_of_retention_loses_nothing_that_is_kept() {
    for retention in [NOTHING, TWO_HOURS] {
        let expected = contents(retention);
        let mut random = Random::new(1);
        let moments = for_every(Failure::Death, retention, |disk, db, done| {
            assert!(done.is_err() || disk.is_dead());
            drop(db);
            judge(&disk.kill(), retention, &expected);
            for _ in 0..images().div_ceil(3) {
                judge(&disk.power_loss(&mut random), retention, &expected);
            }
        });
        assert!(moments > 20, "{moments}");
    }
}

#[test]
fn a_fault_at_any_operation_of_them_is_reported_and_the_next_attempt_comes_to_the_end() {
    let failures = [Operation::Create, Operation::Append, Operation::Rename, Operation::Remove, Operation::SyncDir];
    let once = failures.into_iter().map(Failure::Once);
    for failure in once.chain([Failure::Full, Failure::Sync, Failure::Once(Operation::Read)]) {
        for retention in [NOTHING, TWO_HOURS] {
            let expected = contents(retention);
            for_every(failure, retention, |disk, db, done| {
                if let Err(error) = done {
                    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Corrupt), "{error}");
                }
                let found = observe::database(&db);
                if found != expected.after {
                    observe::assert_same(&expected.before, &found, "after a fault");
                }
                disk.heal();
                keep(&db).unwrap();
                observe::assert_same(&expected.after, &observe::database(&db), "on a healthy disk");
                db.close().unwrap();
                drop(db);
                judge(&disk, retention, &expected);
            });
        }
    }
}

/// What is done to a database before retention comes.
#[derive(Clone, Debug)]
enum Act {
    Append(Vec<Sample>),
    Flush,
    Compact,
    Upkeep,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => samples().prop_map(Act::Append),
        3 => Just(Act::Flush),
        1 => Just(Act::Compact),
        1 => Just(Act::Upkeep),
    ]
}

/// Does `acts` and closes; what there is then.
fn filled_by(acts: &[Act], disk: &SimDisk) -> Content {
    let db = open(disk, NOTHING);
    let mut live = Content::new();
    for act in acts {
        match act {
            Act::Append(samples) => {
                let mut batch = SampleBatch::default();
                for (series, time, value) in samples {
                    batch.push(db.series(&super::key(*series)).unwrap(), *time, *value);
                    live.insert((*series, *time), *value);
                }
                db.append(&batch, Durability::Synced).unwrap();
            }
            Act::Flush => drop(db.flush().unwrap()),
            Act::Compact => drop(db.compact().unwrap()),
            Act::Upkeep => drop(keep(&db).unwrap()),
        }
    }
    db.close().unwrap();
    live
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn retention_drops_nothing_young_and_brings_back_nothing_that_was_overwritten(
        seed in any::<u64>(),
        acts in prop::collection::vec(act(), 1..30),
        age_minutes in 1_u64..240,
        death_after in 0_u64..60,
        power_loss in any::<bool>(),
    ) {
        let disk = empty_disk(seed);
        let live = filled_by(&acts, &disk);
        let retention = Retention { age: Some(Duration::from_secs(age_minutes * 60)), bytes: None };
        let newest = live.keys().map(|(_, time)| *time).max().unwrap_or(Timestamp::MIN);
        let oldest_kept = retention.oldest_kept(newest, options(&disk, retention).clock.now()).unwrap();

        disk.inject(Fault { failure: Failure::Death, after: death_after });
        // It dies on the way, or comes to its end.
        let _ = Db::open(Path::new(DIR), options(&disk, retention)).and_then(|db| {
            keep(&db)?;
            db.close()
        });
        let disk = if power_loss { disk.power_loss(&mut Random::new(seed)) } else { disk.kill() };
        let db = open(&disk, retention);
        keep(&db).unwrap();
        let kept = observe::database(&db);
        for (place, value) in &kept {
            prop_assert_eq!(live.get(place), Some(value), "{:?} is not what was written last", place);
        }
        for (place, value) in live.iter().filter(|((_, time), _)| *time >= oldest_kept) {
            prop_assert_eq!(kept.get(place), Some(value), "{:?} is young and gone", place);
        }
        db.close().unwrap();
        let db = open(&disk, NOTHING);
        db.compact().unwrap();
        observe::assert_same(&kept, &observe::database(&db), "opened to keep everything, and merged");
        observe::assert_sound(Path::new(DIR), &options(&disk, NOTHING));
    }
}
