//! The values and times at the borders of every encoding come back bit for bit from everything that stores or moves
//! them: memtable, WAL, segments, merges, a mirror, a repair, and several databases read as one. A wall clock that
//! jumps back changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sim_machine::SimMachine;
use super::world::{DIR, empty_disk};
use crate::check::check;
use crate::clock::sim::SimClock;
use crate::db::{Db, Durability};
use crate::disk::Disk;
use crate::disk::sim::SimDisk;
use crate::mirror::Mirror;
use crate::options::Options;
use crate::repair::repair;
use crate::sample::SampleBatch;
use crate::series::{SeriesId, SeriesKey, TagSet};
use crate::time::{TimeRange, Timestamp};
use crate::value::Value;

const COPY: &str = "/copies/node-1";

type Content = BTreeMap<(String, Timestamp), Value>;

fn ints() -> Vec<Value> {
    let near = |int: i64| [int.saturating_sub(1), int, int.saturating_add(1)];
    let borders = [i64::MIN, -(1 << 53), i64::from(i32::MIN), -1, 0, 1, 127, 128, 1 << 31, 1 << 53, i64::MAX];
    borders.into_iter().flat_map(near).map(Value::Int).collect()
}

fn floats() -> Vec<Value> {
    let special = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        -f64::MIN_POSITIVE,
        f64::from_bits(1),
        -f64::from_bits(1),
        f64::from_bits(0x000F_FFFF_FFFF_FFFF),
        f64::EPSILON,
    ];
    // Quiet and signalling NaNs of both signs, with and without payloads.
    let nans = [0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0_0000_0000_0001, 0xFFF4_0000_DEAD_BEEF, 0x7FFF_FFFF_FFFF_FFFF];
    special.into_iter().chain(nans.into_iter().map(f64::from_bits)).map(Value::Float).collect()
}

/// Around where a float stops being an integer over a power of ten.
fn decimals(scale: i32) -> Vec<Value> {
    let borders = [
        0.0,
        1.0,
        5.0,
        2_251_799_813_685_247.0,
        2_251_799_813_685_248.0,
        9_007_199_254_740_991.0,
        9_007_199_254_740_992.0,
    ];
    let power = 10_f64.powi(scale);
    let near = |float: f64| [float.next_down(), float, float.next_up(), -float];
    borders.into_iter().map(|border| border / power).flat_map(near).map(Value::Float).collect()
}

fn key(name: &str) -> SeriesKey {
    SeriesKey::new(name, TagSet::new([("host", "a")]).unwrap()).unwrap()
}

/// Series by series: of one kind each, and one of all kinds.
fn series() -> Vec<(String, Vec<Value>)> {
    let mut all = vec![("ints".to_owned(), ints()), ("floats".to_owned(), floats())];
    all.extend((0..=9).map(|scale| (format!("decimals.{scale}"), decimals(scale))));
    let mixed = ints().into_iter().zip(floats().into_iter().cycle()).flat_map(|(int, float)| [int, float]).collect();
    all.push(("mixed".to_owned(), mixed));
    all.push(("constant".to_owned(), vec![Value::Float(f64::from_bits(0x7FF0_0000_0000_0001)); 9]));
    all
}

/// A batch of all series from `from` on, each `step` apart; `turn` turns their values around, so that places change hands.
fn append(db: &Db, from: i64, step: i64, turn: usize, expected: &mut Content) {
    for (name, mut values) in series() {
        let id = db.series(&key(&name)).unwrap();
        let len = values.len();
        values.rotate_left(turn % len);
        let mut batch = SampleBatch::default();
        for (at, value) in values.into_iter().enumerate() {
            let time = Timestamp::from_micros(from.saturating_add(at as i64 * step));
            if time == Timestamp::MAX {
                continue;
            }
            batch.push(id, time, value);
            expected.insert((name.clone(), time), value);
        }
        db.append(&batch, Durability::Synced).unwrap();
    }
}

fn content(db: &Db) -> Content {
    let index = db.index();
    let ids: Vec<SeriesId> = (0..index.len() as u32).map(SeriesId).collect();
    let mut all = Content::new();
    for points in db.snapshot().points(ids, TimeRange::ALL) {
        let points = points.unwrap();
        let name = index.key(points.series).unwrap().metric().to_owned();
        let values = points.times.iter().zip(points.values.iter());
        all.extend(values.map(|(time, value)| ((name.clone(), *time), value)));
    }
    all
}

fn assert_same(db: &Db, expected: &Content, what: &str) {
    let found = content(db);
    let wrong = expected.iter().find(|(at, value)| found.get(at) != Some(value));
    assert!(wrong.is_none(), "{what}: {wrong:?} is {:?}", wrong.and_then(|(at, _)| found.get(at)));
    assert_eq!(found.len(), expected.len(), "{what}");
}

fn options(disk: &SimDisk, clock: &Arc<SimClock>) -> Options {
    let clock = Arc::clone(clock) as Arc<dyn crate::Clock>;
    Options {
        disk: Arc::new(disk.clone()),
        machine: Arc::new(SimMachine::default()),
        clock,
        take_over: true,
        ..Options::default()
    }
}

#[test]
fn extremes_come_back_bit_for_bit_from_everything_that_stores_them() {
    let clock = Arc::new(SimClock::at(Timestamp::from_seconds(1_800_000_000)));
    let dir = Path::new(DIR);
    let mut disk = empty_disk(1);
    disk.create_dir(Path::new("/copies")).unwrap();
    let mut expected = Content::new();
    let db = Db::open(dir, options(&disk, &clock)).unwrap();
    // At a regular step, at the ends of all time, and over each other.
    append(&db, 1_799_990_000_000_000, 1_000_000, 0, &mut expected);
    append(&db, i64::MIN, 1, 3, &mut expected);
    append(&db, i64::MAX - 40, 1, 5, &mut expected);
    assert_same(&db, &expected, "in the memtable");
    clock.jump_to(Timestamp::from_seconds(1_700_000_000));

    drop(db);
    disk = disk.kill();
    let db = Db::open(dir, options(&disk, &clock)).unwrap();
    assert_same(&db, &expected, "from the WAL");
    db.flush().unwrap();
    assert_same(&db, &expected, "in segments");

    append(&db, 1_799_990_000_000_000 - 7_000_000, 1_000_000, 1, &mut expected);
    append(&db, i64::MIN, 1, 4, &mut expected);
    clock.jump_to(Timestamp::from_seconds(-5));
    db.flush().unwrap();
    append(&db, 1_799_990_000_000_000 + 13, 1_000_003, 2, &mut expected);
    db.flush().unwrap();
    assert_same(&db, &expected, "overwritten in segments");
    db.compact().unwrap();
    assert_same(&db, &expected, "merged");

    append(&db, 1_799_990_000_000_000, 2_000_000, 6, &mut expected);
    let mut mirror = Mirror::begin(&db, Path::new(COPY), Arc::new(disk.clone())).unwrap();
    mirror.step().unwrap();
    let copy = Db::open_read_only(Path::new(COPY), options(&disk, &clock)).unwrap();
    assert_same(&copy, &expected, "in a copy");
    drop(mirror);
    drop(db);

    let disk = disk.kill();
    disk.remove(&dir.join("MANIFEST")).unwrap();
    let report = repair(dir, &options(&disk, &clock), &mut |_| {}).unwrap();
    assert_eq!(report.losses, []);
    let db = Db::open(dir, options(&disk, &clock)).unwrap();
    assert_same(&db, &expected, "repaired");
    db.close().unwrap();

    let dirs: Vec<PathBuf> = vec![PathBuf::from(COPY), dir.to_path_buf()];
    let together = Db::open_together(&dirs, options(&disk, &clock)).unwrap();
    assert_same(&together, &expected, "read as one with its copy");
    for dir in dirs {
        let report = check(&dir, &options(&disk, &clock), &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
    }
}
