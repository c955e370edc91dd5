//! Parts of hardware that a node may lack: who looks for it, when its thread begins, and who pays for what hangs.

use super::*;
use crate::collect::pace::Pace;
use crate::collect::sampler::{Found, Part, SEARCH_INTERVAL, Subject};
use crate::collect::series::{Out, Tick, TickKind};

/// A device that may not be read while `refused` is a file.
#[derive(Debug)]
struct Locked {
    refused: PathBuf,
}

impl Subject for Locked {
    fn sample(&mut self, _: &mut Out<'_>) {}

    fn found(&self) -> Vec<Found> {
        match self.refused.is_file() {
            true => vec![Found::Refused {
                path: self.refused.clone(),
                why: "Permission denied (os error 13)".to_owned(),
                remedy: "an administrator can open it",
            }],
            false => vec![Found::Absent],
        }
    }
}

#[test]
fn what_is_there_and_cannot_be_read_is_told_once_with_what_helps() {
    let mut world = World::empty(2);
    let refused = world.tree.path().join("energy_uj");
    world.sampler.add(Part::Devices, "the energy of CPUs", Box::new(Locked { refused: refused.clone() }));
    let search = |world: &World, minute: i64| {
        world.sampler.search_part(Part::Devices, Timestamp::from_seconds(minute * 60), &mut |_| true).unwrap()
    };
    assert!(!search(&world, 1));
    assert_eq!(world.sampler.take_refusals(), [""; 0]);
    world.write("energy_uj", "1\n");
    assert!(!search(&world, 2), "a part with nothing to read needs no thread");
    let told = format!(
        "the energy of CPUs cannot be read: {}: Permission denied (os error 13); an administrator can open it",
        refused.display()
    );
    assert_eq!(world.sampler.take_refusals(), [told]);
    search(&world, 3);
    fs::remove_file(&refused).unwrap();
    search(&world, 4);
    world.write("energy_uj", "1\n");
    search(&world, 5);
    assert_eq!(world.sampler.take_refusals(), [""; 0]);
}

#[test]
fn sources_are_looked_for_once_a_minute() {
    let world = World::empty(2);
    let at = |second| {
        let mut asked = Vec::new();
        let mut enter = |name| {
            asked.push(name);
            true
        };
        world.sampler.search_part(Part::Devices, Timestamp::from_seconds(second), &mut enter).unwrap();
        asked.contains(&"InfiniBand")
    };
    assert_eq!([10, 11, 59, 60, 61, 119, 120].map(at), [true, false, false, true, false, false, true]);
    assert_eq!(SEARCH_INTERVAL, Duration::from_secs(60));
}

#[test]
fn a_turn_is_the_first_tick_of_an_interval_and_the_last_tick_of_all() {
    let world = World::empty(2);
    let out = |millis, kind| Out::new(&world.db, "n1", Timestamp::from_millis(millis), 0).of_kind(kind);
    let mut pace = Pace::every(Duration::from_secs(5));
    let turns = [1_200, 1_300, 4_900, 5_000, 9_999, 12_000].map(|millis| pace.is_due(&out(millis, TickKind::Regular)));
    assert_eq!(turns, [true, false, false, true, false, true]);
    assert!(pace.is_due(&out(12_500, TickKind::Last)));
    assert!(!pace.is_due(&out(12_500, TickKind::Last)), "it was read at that time");
    let mut always = Pace::every(Duration::ZERO);
    assert!([1, 2].map(|millis| always.is_due(&out(millis, TickKind::Regular))).iter().all(|due| *due));
}

#[test]
fn the_counters_of_devices_are_read_at_the_end_however_short_the_interval() {
    let world = World::empty(3);
    world.write("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "1\n");
    let samples = |millis, kind| {
        let tick = Tick { time: Timestamp::from_millis(millis), kind };
        world.sampler.sample_part(Part::Devices, tick, &[], &mut |_| true).unwrap().len()
    };
    assert_eq!(samples(1_000, TickKind::Regular), 1);
    assert_eq!(samples(1_100, TickKind::Regular), 0);
    assert_eq!(samples(1_234, TickKind::Last), 1);
}
