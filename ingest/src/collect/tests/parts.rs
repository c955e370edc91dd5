//! Parts of hardware that a node may lack: who looks for it, when its thread begins, and who pays for what hangs.

use super::*;
use crate::collect::inventory::{DeviceKind, DeviceStatus};
use crate::collect::pace::Pace;
use crate::collect::sampler::Part;
use crate::collect::series::{Out, Tick, TickKind};
use crate::collect::subject::{SEARCH_INTERVAL, SourceState, Subject};
use std::borrow::Cow;

/// A device that may not be read while `refused` is a file.
#[derive(Debug)]
struct Locked {
    refused: PathBuf,
}

impl Subject for Locked {
    fn sample(&mut self, _: &mut Out<'_>) {}

    fn found(&self) -> Cow<'_, [SourceState]> {
        match self.refused.is_file() {
            true => Cow::Owned(vec![SourceState::Refused {
                path: self.refused.clone(),
                why: "Permission denied (os error 13)".to_owned(),
                remedy: "an administrator can open it",
            }]),
            false => SourceState::alone(SourceState::Absent),
        }
    }
}

#[test]
fn what_is_there_and_cannot_be_read_is_told_once_with_what_helps() {
    let mut world = World::empty(2);
    let refused = world.tree.path().join("energy_uj");
    world.sampler.add(Part::Energy, "the energy of CPUs", Box::new(Locked { refused: refused.clone() }));
    let search = |world: &World, minute: i64| {
        world.sampler.search_part(Part::Energy, Timestamp::from_seconds(minute * 60), &mut |_| true).unwrap()
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

/// Asked for the first time at a tick, it says no.
#[derive(Debug, Default)]
struct Shut {
    was_asked: bool,
}

impl Subject for Shut {
    fn sample(&mut self, _: &mut Out<'_>) {
        self.was_asked = true;
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Gpu)
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        let refused = SourceState::Refused {
            path: "/dev/gpu0".into(),
            why: "Permission denied".to_owned(),
            remedy: "an administrator can open it",
        };
        if self.was_asked {
            Cow::Owned(vec![SourceState::Present, refused])
        } else {
            SourceState::alone(SourceState::Present)
        }
    }
}

#[test]
fn what_is_refused_at_the_first_tick_is_told_at_the_first_tick() {
    let mut world = World::empty(2);
    world.sampler.add(Part::Gpu, "GPUs", Box::new(Shut::default()));
    world.tick(10);
    assert_eq!(
        world.sampler.take_refusals(),
        ["GPUs cannot be read: /dev/gpu0: Permission denied; an administrator can open it"]
    );
    world.sampler.store_inventory(Timestamp::from_seconds(10));
    let stored = |world: &World| {
        let snapshot = world.db.snapshot();
        let devices = snapshot.meta().inventory();
        devices.into_iter().map(|(_, entry)| (entry.device.clone(), entry.status)).collect::<Vec<_>>()
    };
    let refused = [("/dev/gpu0".to_owned(), DeviceStatus::Refused)];
    assert_eq!(stored(&world), refused);
    world.tick(11);
    assert_eq!(world.sampler.take_refusals(), [""; 0], "once");
    assert_eq!(stored(&world), refused);
}

/// A sum over what could be read would fall by all that the port ever counted, and be back a tick later.
#[test]
fn a_sum_does_not_fall_when_a_member_is_silent_for_a_tick() {
    let mut world = World::empty(2);
    let cases = [
        (
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data",
            "sys/class/infiniband/mlx5_0/ports/2/counters/port_rcv_data",
            "node_infiniband_port_data_received_bytes_total",
            4,
        ),
        (
            "sys/devices/system/edac/mc/mc0/ce_count",
            "sys/devices/system/edac/mc/mc1/ce_count",
            "node_edac_correctable_errors_total",
            1,
        ),
        (
            "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count",
            "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count",
            "node_cpu_core_throttles_total",
            1,
        ),
    ];
    for cpu in [0, 1] {
        world.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
        world.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), format!("{cpu}\n"));
    }
    let set = |world: &World, first: &str, second: &str| {
        for (one, other, _, _) in cases {
            world.write(one, first);
            world.write(other, second);
        }
    };
    let sums = |world: &mut World, second: i64| {
        let tick = world.tick(second);
        cases.map(|(_, _, metric, unit)| tick.get(metric).map(|sum| sum.as_f64() / f64::from(unit)))
    };
    set(&world, "1000\n", "N/A (no PMA)\n");
    assert_eq!(sums(&mut world, 10), [Some(1_000.0); 3], "one that never said anything is no member");
    set(&world, "1000\n", "5000\n");
    assert_eq!(sums(&mut world, 15), [Some(6_000.0); 3]);
    set(&world, "1010\n", "\n");
    assert_eq!(sums(&mut world, 20), [Some(6_010.0); 3], "silent");
    set(&world, "1020\n", "5100\n");
    assert_eq!(sums(&mut world, 25), [Some(6_120.0); 3]);
    set(&world, "1020\n", "30\n");
    assert_eq!(sums(&mut world, 30), [Some(6_150.0); 3], "begun anew");
    let places =
        ["sys/class/infiniband/mlx5_0/ports/2", "sys/devices/system/edac/mc/mc1"].map(|at| world.tree.path().join(at));
    let elsewhere = ["port", "controller"].map(|name| world.tree.path().join(name));
    places.iter().zip(&elsewhere).for_each(|(place, to)| fs::rename(place, to).unwrap());
    assert_eq!(sums(&mut world, 90), [Some(6_150.0); 3], "gone");
    places.iter().zip(&elsewhere).for_each(|(place, from)| fs::rename(from, place).unwrap());
    set(&world, "1020\n", "40\n");
    assert_eq!(sums(&mut world, 150), [Some(6_160.0); 3], "back");
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
        world.sampler.search_part(Part::Fabrics, Timestamp::from_seconds(second), &mut enter).unwrap();
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
        world.sampler.sample_part(Part::Fabrics, tick, &[], &mut |_| true).unwrap().len()
    };
    assert_eq!(samples(1_000, TickKind::Regular), 1);
    assert_eq!(samples(1_100, TickKind::Regular), 0);
    assert_eq!(samples(1_234, TickKind::Last), 1);
}
