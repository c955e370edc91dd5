//! Cards of sysfs that sleep, come, go, and refuse.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::collect::gpu::amd::amd_driver;
use crate::collect::gpu::drm::DrmGpus;
use crate::collect::gpu::intel::intel_driver;
use crate::collect::sleep::{LET_GO_FOR, QUIET_FOR};

const FIRST: &str = "0000:03:00.0";
/// All that would ask a card of AMD.
const ASKING: [&str; 9] = [
    "gpu_metrics",
    "gpu_busy_percent",
    "mem_info_vram_used",
    "mem_info_vram_total",
    "pcie_replay_count",
    "ras/umc_err_count",
    "hwmon/hwmon0/power1_average",
    "unique_id",
    "product_name",
];

fn home(stage: &Stage, pci: &str) -> std::path::PathBuf {
    stage.tree.path().join("sys/devices/pci0000:00").join(pci)
}

fn put(stage: &Stage, pci: &str, file: &str, text: &str) {
    let path = home(stage, pci).join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A card that nobody has asked anything.
fn plug(stage: &Stage, number: u32, pci: &str, status: &str) {
    for (file, text) in [("vendor", "0x1002\n"), ("class", "0x030000\n"), ("device", "0x73ff\n")] {
        put(stage, pci, file, text);
    }
    put(stage, pci, "power/runtime_status", status);
    put(stage, pci, "power/control", "auto\n");
    fs::create_dir_all(home(stage, pci).join(format!("drm/card{number}"))).unwrap();
    symlink("../../../../bus/pci/drivers/amdgpu", home(stage, pci).join("driver")).unwrap();
    symlink(format!("../../../{pci}"), home(stage, pci).join(format!("drm/card{number}/device"))).unwrap();
    let class = stage.tree.path().join("sys/class/drm");
    fs::create_dir_all(&class).unwrap();
    let target = format!("../../devices/pci0000:00/{pci}/drm/card{number}");
    symlink(target, class.join(format!("card{number}"))).unwrap();
}

fn unplug(stage: &Stage, number: u32, pci: &str) {
    fs::remove_file(stage.tree.path().join(format!("sys/class/drm/card{number}"))).unwrap();
    fs::remove_dir_all(home(stage, pci)).unwrap();
}

fn amd(stage: &Stage, level: u8) -> VendorGpus {
    let view = stage.view(level);
    let source = DrmGpus::new(&view.tree, GpuVendor::Amd, level, amd_driver);
    let mut gpus = VendorGpus::new(GpuVendor::Amd, Box::new(source), &view, &stage.roll);
    gpus.search();
    gpus
}

fn up_of(tick: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    tick.iter()
        .filter(|(series, _)| series.starts_with("gpu_up"))
        .map(|(series, value)| (&**series, &**value))
        .collect()
}

fn make_fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(path);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

/// A pipe without a writer: whoever opens it never returns.
#[test]
fn nothing_of_a_card_that_sleeps_is_opened() {
    for status in ["suspended\n", "suspending\n", "resuming\n"] {
        let stage = Stage::new();
        plug(&stage, 1, FIRST, status);
        ASKING.iter().for_each(|file| make_fifo(&home(&stage, FIRST).join(file)));
        make_fifo(&home(&stage, FIRST).join("power/control"));
        let mut gpus = amd(&stage, 4);
        for second in [1, 2, 3] {
            assert_eq!(stage.tick(&mut gpus, second), BTreeMap::new());
        }
        gpus.search();
        assert_eq!(*gpus.found(), [SourceState::Present]);
        let known = gpus.inventory().unwrap().remove(0);
        assert_eq!((&*known.model, known.status), ("AMD GPU 0x73ff", DeviceStatus::Asleep));
    }
}

#[test]
fn a_card_is_asked_once_it_is_awake_and_not_when_it_sleeps_again() {
    let stage = Stage::new();
    plug(&stage, 1, FIRST, "suspended\n");
    put(&stage, FIRST, "gpu_busy_percent", "7\n");
    let mut gpus = amd(&stage, 2);
    assert_eq!(stage.tick(&mut gpus, 1), BTreeMap::new());
    put(&stage, FIRST, "power/runtime_status", "active\n");
    let tick = stage.tick(&mut gpus, 2);
    assert_eq!((&*tick["gpu_up{gpu=0}"], &*tick["gpu_utilization_percent{gpu=0}"]), ("1", "7.0"));
    put(&stage, FIRST, "power/runtime_status", "suspended\n");
    assert_eq!(stage.tick(&mut gpus, 3), BTreeMap::new());
}

#[test]
fn cards_that_never_sleep_say_so_or_nothing() {
    for status in ["unsupported\n", "active\n", "error\n", ""] {
        let stage = Stage::new();
        plug(&stage, 1, FIRST, status);
        put(&stage, FIRST, "gpu_busy_percent", "7\n");
        assert_eq!(up_of(&stage.tick(&mut amd(&stage, 2), 1)), [("gpu_up{gpu=0}", "1")], "{status}");
        fs::remove_dir_all(home(&stage, FIRST).join("power")).unwrap();
        assert_eq!(up_of(&stage.tick(&mut amd(&stage, 2), 2)), [("gpu_up{gpu=0}", "1")]);
    }
}

#[test]
fn a_card_that_may_sleep_and_does_nothing_is_let_go_for_a_while() {
    let stage = Stage::new();
    plug(&stage, 1, FIRST, "active\n");
    put(&stage, FIRST, "gpu_busy_percent", "0\n");
    let quiet = i64::try_from(QUIET_FOR.as_secs()).unwrap();
    let gone = i64::try_from(LET_GO_FOR.as_secs()).unwrap();
    let mut gpus = amd(&stage, 2);
    for second in 0..=quiet {
        assert_eq!(up_of(&stage.tick(&mut gpus, second)).len(), 1, "{second}");
    }
    for second in quiet + 1..quiet + gone {
        assert_eq!(stage.tick(&mut gpus, second), BTreeMap::new(), "{second}");
    }
    // It did not fall asleep: somebody else uses it.
    put(&stage, FIRST, "gpu_busy_percent", "80\n");
    for second in quiet + gone..200 {
        assert_eq!(up_of(&stage.tick(&mut gpus, second)).len(), 1, "{second}");
    }

    // It does nothing, and somebody holds it awake all the same: a hole of 15 s in ten minutes.
    put(&stage, FIRST, "gpu_busy_percent", "0\n");
    let asked = (200..1_430).filter(|second| up_of(&stage.tick(&mut gpus, *second)).len() == 1).count();
    assert_eq!(asked, 1_230 - 2 * 14);
    // Once it slept it is let go as before.
    put(&stage, FIRST, "power/runtime_status", "suspended\n");
    assert_eq!(stage.tick(&mut gpus, 1_430), BTreeMap::new());
    put(&stage, FIRST, "power/runtime_status", "active\n");
    let asked = (1_431..1_475).filter(|second| up_of(&stage.tick(&mut gpus, *second)).len() == 1).count();
    assert_eq!(asked, 31);

    let server = Stage::new();
    plug(&server, 1, FIRST, "active\n");
    put(&server, FIRST, "gpu_busy_percent", "0\n");
    put(&server, FIRST, "power/control", "on\n");
    let mut gpus = amd(&server, 2);
    for second in 0..200 {
        assert_eq!(up_of(&server.tick(&mut gpus, second)).len(), 1, "{second}");
    }
}

#[test]
fn a_card_that_is_removed_is_down_once_and_another_one_gets_a_number_of_its_own() {
    let stage = Stage::new();
    for (number, pci) in [(1, FIRST), (2, "0000:04:00.0")] {
        plug(&stage, number, pci, "active\n");
        put(&stage, pci, "gpu_busy_percent", "50\n");
        put(&stage, pci, "unique_id", &format!("{number}\n"));
    }
    let mut gpus = amd(&stage, 2);
    assert_eq!(up_of(&stage.tick(&mut gpus, 1)), [("gpu_up{gpu=0}", "1"), ("gpu_up{gpu=1}", "1")]);
    unplug(&stage, 1, FIRST);
    assert_eq!(up_of(&stage.tick(&mut gpus, 2)), [("gpu_up{gpu=0}", "0"), ("gpu_up{gpu=1}", "1")]);
    assert_eq!(up_of(&stage.tick(&mut gpus, 3)), [("gpu_up{gpu=1}", "1")]);
    let lost = gpus.inventory().unwrap();
    assert_eq!(lost.iter().map(|card| card.status).collect::<Vec<_>>(), [DeviceStatus::Lost, DeviceStatus::Ok]);
    gpus.search();
    assert_eq!(up_of(&stage.tick(&mut gpus, 4)), [("gpu_up{gpu=1}", "1")]);

    plug(&stage, 1, FIRST, "active\n");
    put(&stage, FIRST, "gpu_busy_percent", "50\n");
    put(&stage, FIRST, "unique_id", "3\n");
    gpus.search();
    assert_eq!(up_of(&stage.tick(&mut gpus, 5)), [("gpu_up{gpu=1}", "1"), ("gpu_up{gpu=2}", "1")]);
}

/// As the kernel refuses a file: a directory in its place cannot be read, by root neither.
#[test]
fn what_may_not_be_read_is_told_and_the_rest_goes_on() {
    let stage = Stage::new();
    plug(&stage, 1, FIRST, "active\n");
    fs::create_dir_all(home(&stage, FIRST).join("gpu_metrics")).unwrap();
    put(&stage, FIRST, "gpu_busy_percent", "50\n");
    put(&stage, FIRST, "hwmon/hwmon7/power1_average", "142000000\n");
    put(&stage, FIRST, "hwmon/hwmon7/temp1_label", "edge\n");
    put(&stage, FIRST, "hwmon/hwmon7/temp1_input", "45000\n");
    put(&stage, FIRST, "hwmon/hwmon7/temp2_label", "junction\n");
    put(&stage, FIRST, "hwmon/hwmon7/temp2_input", "51500\n");
    let mut gpus = amd(&stage, 2);
    let tick = stage.tick(&mut gpus, 1);
    assert_eq!((&*tick["gpu_power_watts{gpu=0}"], &*tick["gpu_temperature_celsius{gpu=0}"]), ("142.0", "51.5"));
    let [SourceState::Present, SourceState::Refused { path, why, .. }] = &gpus.found()[..] else { panic!() };
    assert!(path.ends_with("gpu_metrics") && why.contains("directory"), "{}: {why}", path.display());
}

#[test]
fn a_card_without_any_file_says_nothing() {
    let stage = Stage::new();
    plug(&stage, 1, FIRST, "active\n");
    assert_eq!(stage.tick(&mut amd(&stage, 4), 1), BTreeMap::new());
}

#[test]
fn graphics_of_a_processor_and_cards_of_other_drivers_are_left_out() {
    let stage = Stage::new();
    let view = stage.view(2);
    for (number, pci, driver) in [(0, "0000:00:02.0", "i915"), (1, FIRST, "vfio-pci")] {
        plug(&stage, number, pci, "active\n");
        put(&stage, pci, "vendor", "0x8086\n");
        fs::remove_file(home(&stage, pci).join("driver")).unwrap();
        symlink(format!("../../../../bus/pci/drivers/{driver}"), home(&stage, pci).join("driver")).unwrap();
    }
    let source = DrmGpus::new(&view.tree, GpuVendor::Intel, 2, intel_driver);
    let mut gpus = VendorGpus::new(GpuVendor::Intel, Box::new(source), &view, &stage.roll);
    gpus.search();
    assert_eq!(*gpus.found(), [SourceState::Absent]);
}

#[test]
fn boards_for_displays_have_no_energy_of_a_known_unit() {
    let stage = Stage::new();
    plug(&stage, 1, FIRST, "active\n");
    let mut table = vec![0xff; 120];
    table[..4].copy_from_slice(&[120, 0, 1, 3]);
    table[24..32].copy_from_slice(&65_536u64.to_le_bytes());
    fs::write(home(&stage, FIRST).join("gpu_metrics"), &table).unwrap();
    assert!(!stage.tick(&mut amd(&stage, 2), 1).contains_key("gpu_energy_joules_total{gpu=0}"));
    put(&stage, FIRST, "class", "0x038000\n");
    assert_eq!(stage.tick(&mut amd(&stage, 2), 2)["gpu_energy_joules_total{gpu=0}"], "1.0");
}
