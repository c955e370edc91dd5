//! One scenario, interrupted at each of its disk operations in turn.

use super::model::Sample;
use super::random_steps::cases;
use super::world::{Step, World};
use crate::db::Durability::{self, Buffered, Synced};
use crate::disk::sim::{Failure, Fault, Operation, Random};
use crate::time::Timestamp;
use crate::value::Value;

/// Creation, new series at different moments, both acknowledgements, overwriting, metadata, flushes of
/// one window and of several, merges, a reopening, and an unflushed rest.
fn scenario() -> Vec<Step> {
    let append = |durability: Durability, samples: Vec<Sample>| Step::Append { durability, samples };
    let meta = |number| Step::PutMeta { metric: 0, number, durability: Buffered };
    vec![
        append(Buffered, ticks(&[0, 1], 0..4, 1)),
        append(Synced, ticks(&[0, 2], 2..6, 100)),
        meta(1),
        append(Buffered, ticks(&[3], 0..3, 7)),
        Step::Sync,
        append(Buffered, ticks(&[1, 3], 3..5, -9)),
        Step::Flush,
        append(Buffered, ticks(&[4], 0..10, 40)),
        append(Buffered, ticks(&[0, 4], 0..3, 50)),
        meta(2),
        append(Synced, ticks(&[0, 1], 4_000..4_002, 60)),
        Step::Flush,
        Step::HoldSnapshot,
        Step::Compact,
        append(Buffered, ticks(&[5, 0], 1..3, 70)),
        Step::HoldSnapshot,
        Step::CloseAndOpen,
        append(Buffered, ticks(&[2], 100..130, 80)),
        append(Synced, ticks(&[2, 5], 110..112, 90)),
        append(Buffered, ticks(&[0, 1, 2, 3, 4, 5], 9_000..9_001, 10)),
        Step::Flush,
        append(Buffered, ticks(&[0, 3], 8_999..9_003, 11)),
        Step::Flush,
        append(Synced, ticks(&[1], 12_500..12_502, 12)),
        Step::Flush,
        Step::HoldSnapshot,
        // Two hours of two files each are over.
        Step::Upkeep,
        append(Buffered, ticks(&[0, 1, 2, 3, 4, 5], 9_000..9_001, 10)),
        append(Buffered, ticks(&[0, 1, 2, 3, 4, 5], 9_001..9_002, 11)),
    ]
}

/// One sample of each series at each tick of a second; Ints for even series, Floats for odd ones.
pub fn ticks(series: &[usize], ticks: std::ops::Range<i64>, start: i64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for tick in ticks {
        for series in series {
            let value = start * 1_000 + tick;
            let value = if series % 2 == 0 { Value::Int(value) } else { Value::Float(value as f64 / 7.0) };
            samples.push((*series, Timestamp::from_seconds(1_799_990_000 + tick), value));
        }
    }
    samples
}

/// The database takes samples again, keeps them, and stands up after a clean close and a power loss.
fn goes_on(world: &mut World) {
    for step in [
        Step::Append { durability: Synced, samples: ticks(&[0, 5], 2..4, 1_000) },
        Step::Kill,
        Step::HealAndFlush,
        Step::Append { durability: Synced, samples: ticks(&[0, 5], 3..5, 1_001) },
        Step::PowerLoss,
        Step::CloseAndOpen,
        Step::ReadOnly,
    ] {
        world.run(&step);
    }
}

/// How far the scenario is played.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    TheFailure,
    TheEnd,
}

/// Runs the scenario with `failure` after 0, 1, 2, ... operations that it could strike, until it
/// strikes no more; `then` gets the world after each run. Gives back how many these were.
fn for_every(failure: Failure, until: Until, mut then: impl FnMut(World, u64)) -> u64 {
    for after in 0.. {
        let mut world = World::closed(after);
        world.stops_at_death = true;
        world.disk.inject(Fault { failure, after });
        world.create();
        for step in scenario() {
            let struck = world.disk.faults_struck() > 0;
            if world.disk.is_dead() || (struck && until == Until::TheFailure) {
                break;
            }
            world.run(&step);
        }
        if world.disk.has_faults() && world.disk.faults_struck() == 0 {
            return after;
        }
        then(world, after);
    }
    unreachable!("the scenario ends")
}

/// About as many operations as a recovery takes.
const RECOVERY_OPERATIONS: usize = 24;

/// How often each moment is repeated with another outcome.
pub fn images() -> u64 {
    u64::from(cases()).div_ceil(48)
}

#[test]
fn a_kill_at_any_operation_loses_nothing() {
    let moments = for_every(Failure::Death, Until::TheFailure, |world, after| {
        for image in 0..images().div_ceil(4) {
            let mut world = world.fork(after * 1_000 + image);
            world.kill();
            goes_on(&mut world);
        }
    });
    assert!(moments > 100, "{moments}");
}

#[test]
fn a_power_loss_at_any_operation_loses_nothing_that_was_synced() {
    let moments = for_every(Failure::Death, Until::TheFailure, |world, after| {
        for image in 0..images() {
            let mut world = world.fork(after * 1_000 + image);
            world.power_loss();
            goes_on(&mut world);
        }
    });
    assert!(moments > 100, "{moments}");
}

#[test]
fn a_death_during_the_recovery_from_a_power_loss_loses_nothing_either() {
    let mut random = Random::new(5);
    for_every(Failure::Death, Until::TheFailure, |world, first| {
        for image in 0..images().div_ceil(2) {
            let mut world = world.fork(first * 1_000 + image);
            world.power_loss_then_death(random.below(RECOVERY_OPERATIONS) as u64);
            goes_on(&mut world);
        }
    });
}

#[test]
fn a_disk_that_is_full_from_any_write_on_loses_nothing_and_goes_on_when_space_is_free() {
    let moments = for_every(Failure::Full, Until::TheEnd, |mut world, _| {
        world.run(&Step::HealAndFlush);
        goes_on(&mut world);
    });
    assert!(moments > 40, "{moments}");
}

#[test]
fn samples_accepted_after_a_full_disk_are_kept_without_a_flush_too() {
    for_every(Failure::Full, Until::TheFailure, |mut world, _| {
        world.run(&Step::Heal);
        goes_on(&mut world);
    });
}

#[test]
fn a_kill_while_the_disk_is_full_loses_nothing() {
    for_every(Failure::Full, Until::TheFailure, |mut world, _| {
        world.kill_while_full();
        goes_on(&mut world);
    });
}

#[test]
fn an_fsync_that_fails_at_any_time_loses_nothing_acknowledged() {
    let moments = for_every(Failure::Sync, Until::TheEnd, |mut world, _| {
        world.run(&Step::HealAndFlush);
        goes_on(&mut world);
    });
    assert!(moments > 40, "{moments}");
}

#[test]
fn nothing_is_acknowledged_over_pages_that_a_failed_fsync_lost() {
    for_every(Failure::Sync, Until::TheFailure, |mut world, after| {
        world.run(&Step::Append { durability: Synced, samples: ticks(&[0, 3], 2..4, 900) });
        world.run(&Step::Sync);
        if after % 2 == 0 {
            world.run(&Step::PowerLoss)
        } else {
            world.kill()
        }
        goes_on(&mut world);
    });
}

#[test]
fn any_operation_may_fail_once() {
    for operation in [
        Operation::Create,
        Operation::Append,
        Operation::Rename,
        Operation::Remove,
        Operation::SyncDir,
        Operation::CreateDir,
    ] {
        for_every(Failure::Once(operation), Until::TheEnd, |mut world, after| {
            world.run(if after % 2 == 0 { &Step::Heal } else { &Step::HealAndFlush });
            goes_on(&mut world);
        });
    }
}

#[test]
fn upkeep_after_a_commit_that_failed_removes_nothing_that_a_reader_may_find() {
    for after_it in [Step::Upkeep, Step::CloseAndOpen] {
        for_every(Failure::Once(Operation::SyncDir), Until::TheFailure, |mut world, after| {
            world.run(&after_it);
            if after % 2 == 0 {
                world.kill()
            } else {
                world.power_loss()
            }
            goes_on(&mut world);
        });
    }
}
