use std::fs;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::{Db, Options, Timestamp, Value};
use tempfile::TempDir;

use super::*;
use crate::collect::gpu::nvidia::tests::Hand;
use crate::collect::series::Out;
use crate::collect::source::Tree;
use crate::collect::subject::{SourceState, Subject};

/// A tree of files, and a database that has a series for each slot.
struct Stage {
    root: TempDir,
    db: Db,
    _database: TempDir,
    board: PowerBoard,
    clock: Arc<Hand>,
}

impl Stage {
    fn new() -> Self {
        let (root, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Db::open(database.path(), Options::default()).unwrap();
        Self { root, db, _database: database, board: PowerBoard::new(Duration::from_secs(1)), clock: Arc::default() }
    }

    fn rapl(&self, level: u8) -> Rapl {
        Rapl::new(&self.tree(), level, &self.board, Arc::<Hand>::clone(&self.clock))
    }

    fn tree(&self) -> Tree {
        Tree::new(self.root.path())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The samples of one tick as `metric{tags} = value`, without the host; those of other times say which.
    fn tick(&self, subject: &mut dyn Subject, second: i64) -> Vec<String> {
        let time = Timestamp::from_seconds(second);
        self.clock.set(second.unsigned_abs());
        let mut out = Out::new(&self.db, "n1", time, 8);
        subject.sample(&mut out);
        let index = self.db.snapshot();
        let told = |(series, at, value): (telem_engine::SeriesId, Timestamp, Value)| {
            let key = index.index().key(series).unwrap();
            let tags: Vec<String> =
                key.tags().iter().filter(|(key, _)| *key != "host").map(|(_, value)| value.to_owned()).collect();
            let later = if at == time { String::new() } else { format!(" at {}", at.micros()) };
            format!("{}[{}] {}{later}", key.metric(), tags.join(","), value.as_f64())
        };
        out.finish().batch.iter().map(told).collect()
    }
}

fn zone(stage: &Stage, zone: &str, name: &str, range: u64, energy: u64) {
    let at = format!("sys/class/powercap/{zone}");
    stage.write(&format!("{at}/name"), &format!("{name}\n"));
    stage.write(&format!("{at}/max_energy_range_uj"), &format!("{range}\n"));
    stage.write(&format!("{at}/energy_uj"), &format!("{energy}\n"));
}

#[test]
fn energy_is_exact_to_the_millijoule_over_wraps_and_the_nodes_is_that_of_packages_and_memory() {
    let stage = Stage::new();
    let range = 262_143_328_850;
    zone(&stage, "intel-rapl:0", "package-0", range, range - 1_000_000);
    zone(&stage, "intel-rapl:0:0", "dram", 65_712_999_613, 5_000_000);
    zone(&stage, "intel-rapl:1", "package-1", range, 10_000_000);
    zone(&stage, "intel-rapl-mmio:0", "package-0", range, 1);
    let (mut rapl, mut node) = (stage.rapl(2), NodePower::new(&stage.board, PowerTicks::Counters));
    rapl.search();
    assert_eq!(*rapl.found(), [SourceState::Present]);
    let first = 262_143.328_85 - 1.0 + 10.0;
    assert_eq!(
        stage.tick(&mut rapl, 10),
        [
            format!("node_rapl_package_joules_total[] {}", (first * 1e3f64).floor() / 1e3),
            "node_rapl_dram_joules_total[] 5".to_owned()
        ]
    );
    let energy = |joules: f64| format!("node_energy_joules_total[rapl] {joules}");
    assert_eq!(stage.tick(&mut node, 10), [energy(262_157.328)]);
    // Over the end of its range, and 200 W in the next two seconds.
    zone(&stage, "intel-rapl:0", "package-0", range, 299_000_000);
    zone(&stage, "intel-rapl:0:0", "dram", 65_712_999_613, 105_000_000);
    stage.tick(&mut rapl, 12);
    assert_eq!(stage.tick(&mut node, 12), ["node_power_watts[rapl] 200".to_owned(), energy(262_557.328)]);
    // A part of the zones is no sum.
    let path = stage.root.path().join("sys/class/powercap/intel-rapl:1/energy_uj");
    fs::write(&path, "\n").unwrap();
    zone(&stage, "intel-rapl:0", "package-0", range, 301_000_000);
    assert_eq!(stage.tick(&mut rapl, 13), ["node_rapl_dram_joules_total[] 105"]);
    assert_eq!(stage.tick(&mut node, 13), [""; 0], "the old reading is no new one");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    rapl.search();
    assert!(matches!(&rapl.found()[..], [SourceState::Present, SourceState::Refused { .. }]), "{:?}", rapl.found());
    stage.tick(&mut rapl, 14);
    assert_eq!(stage.tick(&mut node, 14), [""; 0], "nor is one package the node");
}

#[test]
fn what_may_not_be_read_is_told_with_what_helps() {
    let stage = Stage::new();
    let mut rapl = stage.rapl(2);
    rapl.search();
    assert_eq!(*rapl.found(), [SourceState::Absent]);
    stage.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    stage.write("sys/class/powercap/intel-rapl:0/energy_uj/no_file", "");
    rapl.search();
    let [SourceState::Refused { path, remedy, .. }] = &rapl.found()[..] else { panic!("{:?}", rapl.found()) };
    assert!(path.ends_with("intel-rapl:0/energy_uj") && remedy.contains("an administrator can"));
    assert_eq!(stage.tick(&mut rapl, 1), [""; 0]);
    // Somebody helped.
    fs::remove_dir_all(stage.root.path().join("sys/class/powercap/intel-rapl:0/energy_uj")).unwrap();
    zone(&stage, "intel-rapl:0", "package-0", 1_000, 2_000_000);
    rapl.search();
    assert_eq!(*rapl.found(), [SourceState::Present]);
}

fn pm(stage: &Stage, name: &str, value: u64, unit: &str, micros: i64) {
    stage.write(&format!("sys/cray/pm_counters/{name}"), &format!("{value} {unit} {micros} us\n"));
}

#[test]
fn crays_counters_have_the_time_of_their_measurement_and_old_ones_are_told() {
    let stage = Stage::new();
    stage.write("sys/cray/pm_counters/freshness", "1\n");
    stage.write("sys/cray/pm_counters/startup", "7\n");
    pm(&stage, "power", 600, "W", 9_900_000);
    pm(&stage, "energy", 5_000, "J", 9_800_000);
    pm(&stage, "accel0_power", 90, "C", 9_900_000);
    let mut counters = PmCounters::new(&stage.tree(), &stage.board);
    counters.search();
    let said = |watts: u64, watts_at: i64, joules: u64, joules_at: i64| {
        vec![
            format!("cray_pm_node_power_watts[] {watts} at {watts_at}"),
            format!("cray_pm_node_energy_joules_total[] {joules} at {joules_at}"),
        ]
    };
    assert_eq!(stage.tick(&mut counters, 10), said(600, 9_900_000, 5_000, 9_800_000), "and nothing in another unit");
    assert_eq!(stage.tick(&mut counters, 11), [""; 0], "the same measurement");
    // The controller was started again, and counts anew.
    stage.write("sys/cray/pm_counters/startup", "8\n");
    pm(&stage, "power", 610, "W", 11_900_000);
    pm(&stage, "energy", 4_990, "J", 11_900_000);
    assert_eq!(stage.tick(&mut counters, 12), said(610, 11_900_000, 9_990, 11_900_000));
    let mut node = NodePower::new(&stage.board, PowerTicks::Counters);
    assert_eq!(
        stage.tick(&mut node, 12),
        ["node_power_watts[pm_counters] 610", "node_energy_joules_total[pm_counters] 9990"]
    );
    // It is gone.
    assert_eq!(*counters.found(), [SourceState::Present]);
    assert_eq!(stage.tick(&mut counters, 17), [""; 0]);
    let found = counters.found();
    assert!(
        matches!(&found[..], [SourceState::Present, SourceState::Refused { why, .. }] if why == "its figures are 5 s old"),
        "{found:?}"
    );
}

fn meter(stage: &Stage, number: usize, info: &str, watts: u64) {
    let at = format!("sys/class/hwmon/hwmon{number}");
    stage.write(&format!("{at}/name"), "power_meter\n");
    stage.write(&format!("{at}/power1_oem_info"), info);
    stage.write(&format!("{at}/power1_average"), &format!("{watts}000000\n"));
}

#[test]
fn the_power_of_a_meter_is_integrated_but_not_over_gaps() {
    let stage = Stage::new();
    meter(&stage, 0, "\n", 100);
    let (mut meters, mut node) =
        (PowerMeters::new(&stage.tree(), &stage.board), NodePower::new(&stage.board, PowerTicks::Meters));
    meters.search();
    let mut said = Vec::new();
    for (second, watts) in [(10, 100), (11, 200), (14, 200), (18, 300), (19, 300)] {
        meter(&stage, 0, "\n", watts);
        stage.tick(&mut meters, second);
        said.push(stage.tick(&mut node, second).join(" "));
    }
    let joules = [0, 150, 750, 750, 1_050];
    let expected = [100, 200, 200, 300, 300].into_iter().zip(joules).map(|(watts, joules)| {
        format!("node_power_watts[acpi_power_meter] {watts} node_energy_joules_total[acpi_power_meter] {joules}")
    });
    assert_eq!(said, expected.collect::<Vec<_>>(), "from 14 to 18 s nothing is known");
}

#[test]
fn of_several_meters_those_of_modules_are_the_node_and_of_unnamed_ones_none() {
    let stage = Stage::new();
    meter(&stage, 0, "Module Power Socket 0\n", 500);
    meter(&stage, 1, "Grace Power Socket 0\n", 250);
    meter(&stage, 2, "Module Power Socket 1\n", 510);
    let mut meters = PowerMeters::new(&stage.tree(), &stage.board);
    meters.search();
    stage.tick(&mut meters, 10);
    let mut node = NodePower::new(&stage.board, PowerTicks::Meters);
    assert_eq!(stage.tick(&mut node, 10)[0], "node_power_watts[acpi_power_meter] 1010");
    for (number, info) in [(0, "\n"), (1, "\n"), (2, "CPU Power\n")] {
        meter(&stage, number, info, 100);
    }
    meters.search();
    assert_eq!(*meters.found(), [SourceState::Absent]);
}

#[test]
fn the_best_source_is_taken_at_once_and_one_that_falls_silent_is_given_up_after_a_while() {
    let stage = Stage::new();
    let (board, at) = (&stage.board, Timestamp::from_seconds);
    board.expect_counters();
    board.expect_gpus();
    let mut node = NodePower::new(board, PowerTicks::Counters);
    let mut said = |second: i64| stage.tick(&mut node, second).join(" ");
    board.put_rapl(at(10), Duration::from_secs(10), 1_000.0);
    assert_eq!(said(10), "", "GPUs were found, and answer a moment later");
    board.put_rapl(at(11), Duration::from_secs(11), 1_100.0);
    board.put_gpu(0, at(11), Some(300.0), Some(50.0));
    board.put_gpu(1, at(11), Some(200.0), None);
    assert_eq!(said(11), "node_power_watts[rapl_gpu] 600 node_energy_joules_total[rapl_gpu] 1100");
    // Another one began; of a GPU without a counter the power counts.
    board.put_rapl(at(12), Duration::from_secs(12), 1_200.0);
    board.put_gpu(0, at(12), Some(300.0), Some(10.0));
    board.put_gpu(1, at(12), Some(400.0), None);
    assert_eq!(said(12), "node_power_watts[rapl_gpu] 800 node_energy_joules_total[rapl_gpu] 1510");
    board.put_pm(at(13), Some(900.0), Some(70_000.0));
    assert_eq!(said(13), "node_power_watts[pm_counters] 900 node_energy_joules_total[pm_counters] 70000");
    board.put_rapl(at(20), Duration::from_secs(20), 2_000.0);
    assert_eq!(said(20), "", "silent for 7 s");
    board.put_rapl(at(29), Duration::from_secs(29), 2_900.0);
    assert_eq!(said(29), "node_power_watts[rapl] 100 node_energy_joules_total[rapl] 2900", "the GPUs are silent too");
}

#[test]
fn where_gpus_alone_tell_their_power_it_is_the_nodes_among_their_ticks() {
    let stage = Stage::new();
    stage.board.put_gpu(0, Timestamp::from_seconds(1), Some(50.0), Some(7.5));
    let mut of_counters = NodePower::new(&stage.board, PowerTicks::Counters);
    let mut of_meters = NodePower::new(&stage.board, PowerTicks::Meters);
    assert_eq!(stage.tick(&mut of_counters, 1), [""; 0]);
    assert_eq!(stage.tick(&mut of_meters, 1), [""; 0]);
    let mut of_gpus = NodePower::new(&stage.board, PowerTicks::Gpus);
    assert_eq!(stage.tick(&mut of_gpus, 1), ["node_power_watts[gpu] 50", "node_energy_joules_total[gpu] 0"]);
    stage.board.expect_counters();
    assert_eq!(stage.tick(&mut of_gpus, 2), [""; 0]);
}

#[test]
fn what_a_gpu_used_in_its_life_is_never_the_nodes() {
    let stage = Stage::new();
    let (board, at) = (&stage.board, Timestamp::from_seconds);
    let mut node = NodePower::new(board, PowerTicks::Gpus);
    let mut joules = |second: i64| stage.tick(&mut node, second).last().unwrap().clone();
    board.put_gpu(0, at(1), Some(100.0), Some(5_000_000.0));
    assert_eq!(joules(1), "node_energy_joules_total[gpu] 0");
    // Another answers later, and the first one fails for a while.
    board.put_gpu(0, at(2), None, None);
    board.put_gpu(1, at(2), Some(100.0), Some(7_000_000.0));
    assert_eq!(joules(2), "node_energy_joules_total[gpu] 0");
    board.put_gpu(0, at(3), Some(100.0), Some(5_000_200.0));
    board.put_gpu(1, at(3), Some(100.0), None);
    assert_eq!(joules(3), "node_energy_joules_total[gpu] 200");
    // Its driver is loaded again.
    board.put_gpu(0, at(4), Some(100.0), Some(3.5));
    board.put_gpu(1, at(4), Some(100.0), Some(7_000_150.0));
    assert_eq!(joules(4), "node_energy_joules_total[gpu] 353.5");
}

/// The file was read 0.9 s after one tick and at once in the next: the same power all the time.
#[test]
fn power_is_energy_by_the_time_at_which_it_was_read_and_not_by_that_of_the_tick() {
    let stage = Stage::new();
    let range = 262_143_328_850;
    let mut rapl = stage.rapl(2);
    let mut node = NodePower::new(&stage.board, PowerTicks::Counters);
    let mut said = Vec::new();
    for (second, late_millis) in [(10, 0), (11, 900), (12, 0), (13, 500)] {
        let read_millis = second * 1_000 + late_millis;
        zone(&stage, "intel-rapl:0", "package-0", range, read_millis * 200_000);
        rapl.search();
        let mut out = Out::new(&stage.db, "n1", Timestamp::from_seconds(second as i64), 8);
        stage.clock.set_millis(read_millis);
        rapl.sample(&mut out);
        said.push(stage.tick(&mut node, second as i64).remove(0));
    }
    assert!(said[0].starts_with("node_energy_joules_total"), "{said:?}");
    assert_eq!(said[1..], ["node_power_watts[rapl] 200"; 3]);
}

/// 300 W for half an hour go twice around the counter.
#[test]
fn energy_is_exact_where_the_counter_goes_around_between_two_ticks() {
    let stage = Stage::new();
    let range = 262_143_328_850;
    zone(&stage, "intel-rapl:0", "package-0", range, 0);
    let mut rapl = stage.rapl(2);
    rapl.search();
    assert_eq!(stage.tick(&mut rapl, 0), ["node_rapl_package_joules_total[] 0"]);
    for second in (30..1_800).step_by(30) {
        zone(&stage, "intel-rapl:0", "package-0", range, second * 300_000_000 % range);
        rapl.refresh();
    }
    zone(&stage, "intel-rapl:0", "package-0", range, 1_800 * 300_000_000 % range);
    assert_eq!(stage.tick(&mut rapl, 1_800), ["node_rapl_package_joules_total[] 540000"]);
}
