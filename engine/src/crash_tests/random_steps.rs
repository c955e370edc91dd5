//! Any sequence of steps, faults and crashes keeps every promise.

use proptest::prelude::*;

use super::SERIES;
use super::model::Sample;
use super::world::{Step, World};
use crate::db::Durability;
use crate::disk::sim::{Failure, Fault, Operation};
use crate::time::Timestamp;
use crate::value::Value;

/// Few distinct times, so that overwriting and lateness are common; two hours, so that segments differ.
fn time() -> impl Strategy<Value = Timestamp> {
    let ticks = (0i64..40).prop_map(|tick| Timestamp::from_seconds(1_799_990_000 + tick * 180));
    let close = (0i64..5).prop_map(|micros| Timestamp::from_micros(1_799_990_000_000_000 + micros));
    let extreme = prop::sample::select(vec![i64::MIN, i64::MAX - 1, -1, 0, 1]).prop_map(Timestamp::from_micros);
    prop_oneof![12 => ticks, 3 => close, 1 => extreme]
}

fn value() -> impl Strategy<Value = Value> {
    let ints = prop_oneof![Just(i64::MIN), Just(i64::MAX), -5i64..5, any::<i64>()].prop_map(Value::Int);
    let decimals = (-1000i32..1000).prop_map(|cents| Value::Float(f64::from(cents) / 100.0));
    let bits = prop_oneof![
        Just(f64::NAN.to_bits()),
        Just(f64::NAN.to_bits() | 0xBEEF),
        Just((-0.0f64).to_bits()),
        Just(f64::INFINITY.to_bits()),
        Just(f64::MIN_POSITIVE.to_bits() >> 3),
        any::<u64>(),
    ];
    prop_oneof![3 => ints, 3 => decimals, 2 => bits.prop_map(|bits| Value::Float(f64::from_bits(bits)))]
}

fn sample() -> impl Strategy<Value = Sample> {
    (0..SERIES, time(), value())
}

/// Samples of any series and time, or one tick of all series, or one series at a regular step.
pub fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let any_order = prop::collection::vec(sample(), 0..8);
    let tick = (time(), prop::collection::vec(value(), SERIES)).prop_map(|(time, values)| {
        values.into_iter().enumerate().map(|(series, value)| (series, time, value)).collect()
    });
    let regular =
        (0..SERIES, 0i64..3_600, prop::collection::vec(value(), 1..40)).prop_map(|(series, start, values)| {
            let at = |step: usize| Timestamp::from_seconds(1_799_990_000 + start + 10 * step as i64);
            values.into_iter().enumerate().map(|(step, value)| (series, at(step), value)).collect()
        });
    prop_oneof![4 => any_order, 1 => tick, 1 => regular]
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![3 => Just(Durability::Buffered), 1 => Just(Durability::Synced)]
}

fn put_meta() -> impl Strategy<Value = Step> {
    (0..SERIES, any::<i64>(), durability()).prop_map(|(metric, number, durability)| Step::PutMeta {
        metric,
        number,
        durability,
    })
}

fn append() -> impl Strategy<Value = Step> {
    (durability(), samples()).prop_map(|(durability, samples)| Step::Append { durability, samples })
}

fn fault() -> impl Strategy<Value = Step> {
    let failure = prop_oneof![
        3 => Just(Failure::Full),
        3 => Just(Failure::Sync),
        4 => Just(Failure::Death),
        2 => Just(Failure::Once(Operation::Append)),
        1 => Just(Failure::Once(Operation::Create)),
        1 => Just(Failure::Once(Operation::Rename)),
        1 => Just(Failure::Once(Operation::Remove)),
        1 => Just(Failure::Once(Operation::Truncate)),
    ];
    (failure, 0u64..20).prop_map(|(failure, after)| Step::Inject(Fault { failure, after }))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => append(),
        2 => put_meta(),
        3 => Just(Step::Sync),
        4 => Just(Step::Flush),
        2 => Just(Step::Compact),
        2 => Just(Step::Upkeep),
        1 => Just(Step::Compare),
        1 => Just(Step::HoldSnapshot),
        1 => Just(Step::ReadOnly),
        2 => Just(Step::CloseAndOpen),
        2 => Just(Step::Kill),
        3 => Just(Step::PowerLoss),
        4 => fault(),
        2 => Just(Step::Heal),
        2 => Just(Step::HealAndFlush),
        1 => (0u16..120).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

/// How many cases are asked for: `PROPTEST_CASES`, else as many as a minute holds in a debug build.
pub fn cases() -> u32 {
    if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 128 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_promises_are_kept(seed in any::<u64>(), steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::new(seed);
        for step in &steps {
            world.run(step);
        }
        world.run(&Step::HealAndFlush);
        world.run(&Step::Compare);
        world.run(&Step::HoldSnapshot);
        world.run(&Step::PowerLoss);
        world.run(&Step::ReadOnly);
        world.run(&Step::CloseAndOpen);
    }
}
