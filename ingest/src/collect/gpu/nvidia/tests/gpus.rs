//! What all GPUs of a node tell at a tick: base units, totals that outlive a reader, sleep, loss and refusal.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use telem_engine::{Clock, Db, Options, SystemClock};
use tempfile::TempDir;

use super::reader::{Hand, program};
use super::stand_in::{Driver, H100, StandIn};
use crate::collect::gpu::nvidia::reader::{ReaderState, VendorReader};
use crate::collect::gpu::nvidia::{GATE, NvidiaGpus};
use crate::collect::gpu::{DeviceStatus, GpuPart, GpuPartKind, GpuReading, GpuSource};
use crate::collect::series::Out;
use crate::collect::source::Tree;
use crate::collect::subject::SourceState;

/// No test waits so long for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    tree: TempDir,
    _database: TempDir,
    db: Db,
    clock: Arc<Hand>,
    stand_in: StandIn,
    gpus: NvidiaGpus,
}

impl Node {
    fn of(driver: Driver, level: u8, more: &str, reader: impl FnOnce(&StandIn) -> VendorReader) -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Db::open(database.path(), Options::default()).unwrap();
        let stand_in = StandIn::new(driver, &format!("{H100}{more}"));
        let clock = Arc::new(Hand::default());
        let how = reader(&stand_in);
        let gpus = NvidiaGpus::new(&Tree::new(tree.path()), level, how, Arc::<Hand>::clone(&clock));
        let node = Self { tree, _database: database, db, clock, stand_in, gpus };
        node.write(GATE, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n");
        node
    }

    fn new(level: u8, more: &str) -> Self {
        Self::of(Driver::New, level, more, |stand_in| VendorReader::Thread {
            library: stand_in.library(),
            patience: PATIENCE,
        })
    }

    fn plays(&self, more: &str) {
        self.stand_in.plays(&format!("{H100}{more}"));
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// By the number that the library gives to the GPU.
    fn tick(&mut self, second: u64) -> Vec<(u32, GpuReading)> {
        self.clock.set(second);
        let samples = self.gpus.sample(&Out::new(&self.db, "n1", self.clock.now(), 0));
        let number = |bus| [0x1b, 0x43].iter().position(|known| *known == bus).unwrap() as u32;
        samples.into_iter().map(|(pci, sample)| (number(pci.bus), sample)).collect()
    }

    fn first(&mut self, second: u64) -> GpuReading {
        self.tick(second).remove(0).1
    }

    /// Ticks until that is told.
    fn wait_for(&mut self, second: u64, up: &[(u32, bool)]) {
        let patience = SystemClock::new();
        while self.up(second) != up {
            assert!(patience.monotonic() < PATIENCE, "{:?}", self.gpus);
        }
    }

    /// Whether each GPU answered.
    fn up(&mut self, second: u64) -> Vec<(u32, bool)> {
        self.tick(second).into_iter().map(|(card, sample)| (card, sample.up)).collect()
    }
}

#[test]
fn values_are_told_in_base_units() {
    let mut node = Node::new(3, "0 nvmlEventSetWait_v2 value 79\n");
    node.gpus.search();
    let expected = GpuReading {
        up: true,
        utilization_percent: Some(87.0),
        memory_used_bytes: Some(21_096_300_544),
        memory_size_bytes: Some(85_520_809_984),
        power_watts: Some(412.345),
        energy_joules: Some(110_000.25),
        temperature_celsius: Some(61.0),
        memory_activity_percent: Some(33.0),
        sm_clock_hertz: Some(1_980_000_000),
        memory_clock_hertz: Some(2_619_000_000),
        memory_temperature_celsius: Some(54.0),
        power_limit_watts: Some(700.0),
        throttled_seconds: [Some(1.5), Some(0.25), Some(0.0)],
        ecc_errors: [Some(12), Some(1)],
        pcie_replays: Some(3),
        xids: vec![(79, 1)],
        ..GpuReading::default()
    };
    assert_eq!(node.first(10), expected);
    let second = GpuReading {
        power_limit_watts: None,
        ecc_errors: [None, None],
        pcie_replays: None,
        link_bytes: [Some(2_000 << 20), Some(4_000 << 20)],
        sm_active_percent: Some(71.5),
        sm_occupancy_percent: Some(40.25),
        tensor_active_percent: Some(55.13),
        memory_bandwidth_percent: Some(62.75),
        ..expected
    };
    assert_eq!(node.first(12), second, "what changes rarely is asked every 5 s");
    assert_eq!(node.first(15).power_limit_watts, Some(700.0));
}

#[test]
fn instances_of_a_partitioned_gpu_are_its_parts() {
    let mut node = Node::new(
        2,
        "0 nvmlDeviceGetMigMode value 1
0 nvmlDeviceGetMaxMigDeviceCount value 7
0:5 nvmlDeviceGetMigDeviceHandleByIndex return 0
0:5 nvmlDeviceGetMemoryInfo_v2 value 2000 0 500 1500
",
    );
    node.gpus.search();
    let part = GpuPart {
        kind: GpuPartKind::Mig,
        number: 5,
        utilization_percent: None,
        memory_used_bytes: Some(1_500),
        memory_size_bytes: Some(2_000),
    };
    assert_eq!(node.first(10).parts, std::slice::from_ref(&part));
    assert_eq!(node.first(11).parts, [part], "at every tick");
    assert_eq!(node.tick(12)[1].1.parts, []);
}

#[test]
fn identities_tell_what_the_library_and_the_kernel_know() {
    let mut node = Node::new(2, "");
    node.write("sys/bus/pci/devices/0000:43:00.0/numa_node", "1\n");
    node.write("sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n");
    node.gpus.search();
    assert_eq!(node.gpus.cards(), [], "nobody was asked");
    node.tick(1);
    let cards = node.gpus.cards();
    let told = |at: usize| (cards[at].pci.to_string(), cards[at].numa, cards[at].limit_watts, cards[at].status);
    assert_eq!(told(0), ("0000:1b:00.0".to_owned(), None, Some(700.0), DeviceStatus::Ok));
    assert_eq!(told(1), ("0000:43:00.0".to_owned(), Some(1), Some(700.0), DeviceStatus::Ok));
    let texts = [&cards[1].model, &cards[1].uuid, &cards[1].driver, &cards[1].firmware].map(|text| &**text);
    let uuid = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa";
    assert_eq!(texts, ["NVIDIA H100 80GB HBM3", uuid, "nvidia 550.54.15", "96.00.89.00.01"]);
    assert_eq!(cards[1].memory_bytes, Some(85_520_809_984));
    node.plays("0 * return 16\n");
    node.tick(2);
    assert_eq!(
        node.gpus.cards().iter().map(|card| card.status).collect::<Vec<_>>(),
        [DeviceStatus::Lost, DeviceStatus::Ok]
    );
}

#[test]
fn totals_go_on_when_the_reader_is_started_anew() {
    let mut node = Node::new(3, "0 nvmlEventSetWait_v2 value 31 31\n* nvmlDeviceGetFieldValues return 3\n");
    node.plays(
        "0 nvmlEventSetWait_v2 value 31 31
* nvmlDeviceGetFieldValues return 3
* nvmlDeviceGetCurrentClocksThrottleReasons value 4
",
    );
    node.gpus.search();
    node.tick(10);
    let before = node.first(12);
    assert_eq!(before.throttled_seconds, [Some(2.0), Some(0.0), Some(0.0)]);
    assert_eq!((before.link_bytes[0], &before.xids[..]), (Some(2_000 << 20), &[(31, 2)][..]));
    // The driver goes and comes back.
    fs::remove_file(node.tree.path().join(GATE)).unwrap();
    node.gpus.search();
    assert_eq!(node.tick(20), []);
    node.write(GATE, "");
    node.gpus.search();
    node.tick(100);
    let after = node.first(103);
    assert_eq!(after.throttled_seconds, [Some(5.0), Some(0.0), Some(0.0)]);
    assert_eq!((after.link_bytes[0], &after.xids[..]), (Some(5_000 << 20), &[(31, 4)][..]));
}

#[test]
fn without_the_kernel_module_no_library_is_loaded() {
    let mut node = Node::new(2, "");
    fs::remove_file(node.tree.path().join(GATE)).unwrap();
    node.gpus.search();
    assert_eq!((node.tick(1), node.gpus.found()), (Vec::new(), vec![SourceState::Absent]));
    assert!(!node.gpus.reader.is_running());

    let mut unread = Node::of(Driver::New, 2, "", |_| VendorReader::Nobody);
    unread.gpus.search();
    assert_eq!((unread.tick(1), unread.gpus.found()), (Vec::new(), vec![SourceState::Absent]));
}

#[test]
fn a_lost_gpu_is_down_beside_others_that_go_on() {
    let mut node = Node::new(2, "");
    node.gpus.search();
    assert_eq!(node.up(1), [(0, true), (1, true)]);
    node.plays("0 * return 15\n");
    assert_eq!(node.up(2), [(0, false), (1, true)]);
    assert_eq!(node.first(3), GpuReading::default(), "nothing but that it is down");
    node.plays("");
    assert_eq!(node.up(70), [(0, true), (1, true)]);
}

#[test]
fn gpus_are_down_while_their_reader_is_and_until_then_nothing_is_said() {
    let mut node = Node::of(Driver::New, 2, "", program);
    node.gpus.search();
    node.wait_for(1, &[(0, true), (1, true)]);
    node.plays("1 nvmlDeviceGetPowerUsage never\n");
    assert_eq!(node.up(3), [], "it may come yet");
    assert_eq!(node.up(9), [(0, false), (1, false)]);
    node.wait_for(10, &[(0, true), (1, false)]);
}

/// The kernel module knows of all GPUs where they are.
fn plugged(node: &Node) {
    for pci in ["0000:1b:00.0", "0000:43:00.0"] {
        node.write(&format!("proc/driver/nvidia/gpus/{pci}/information"), "Model: NVIDIA H100 80GB HBM3\n");
    }
}

/// 15 and 16 say so; 999 is what drivers say of one that fell off its bus.
#[test]
fn a_gpu_that_was_lost_before_anybody_asked_is_shown_as_lost() {
    for code in [15, 16, 999] {
        let mut node = Node::new(2, &format!("0 nvmlDeviceGetHandleByIndex_v2 return {code}\n"));
        plugged(&node);
        node.gpus.search();
        assert_eq!(node.up(1), [(0, false), (1, true)], "{code}");
        let cards = node.gpus.cards();
        let told: Vec<_> = cards.iter().map(|card| (card.pci.bus, &*card.model, card.status)).collect();
        assert_eq!(told, [(0x1b, "", DeviceStatus::Lost), (0x43, "NVIDIA H100 80GB HBM3", DeviceStatus::Ok)], "{code}");
        node.plays("");
        assert_eq!(node.up(30), [(0, false), (1, true)], "asked once a minute");
        assert_eq!(node.up(70), [(0, true), (1, true)], "{code}");
        assert_eq!(node.gpus.cards()[0].uuid, "GPU-11111111-2222-3333-4444-555555555555");
    }
}

/// A process of its own, which is killed.
#[test]
fn a_gpu_that_never_says_who_it_is_is_shown_as_lost_beside_the_others() {
    let mut node = Node::of(Driver::New, 2, "0 * never\n", program);
    plugged(&node);
    node.gpus.search();
    assert_eq!(node.up(1), []);
    let patience = SystemClock::new();
    while !matches!(node.gpus.reader.state(), ReaderState::Failed) {
        node.tick(40);
        assert!(patience.monotonic() < PATIENCE, "{:?}", node.gpus);
    }
    node.wait_for(41, &[(0, false), (1, true)]);
    assert_eq!(node.gpus.cards()[0].status, DeviceStatus::Lost);
}

#[test]
fn a_gpu_that_this_user_may_not_open_is_refused_and_not_lost() {
    let mut node = Node::new(2, "1 nvmlDeviceGetHandleByIndex_v2 return 4\n");
    plugged(&node);
    node.gpus.search();
    assert_eq!(node.up(1), [(0, true)], "it is no GPU that is down");
    let told: Vec<_> = node.gpus.cards().iter().map(|card| (card.pci.bus, card.status)).collect();
    assert_eq!(told, [(0x1b, DeviceStatus::Ok), (0x43, DeviceStatus::Refused)]);
    node.plays("");
    assert_eq!(node.up(70), [(0, true), (1, true)], "asked once a minute");
    assert_eq!(node.gpus.cards()[1].status, DeviceStatus::Ok);
}

#[test]
fn why_nothing_can_be_asked_is_told_with_what_helps() {
    for (script, why, remedy) in [
        ("* nvmlInit_v2 return 18\n", "RM detects a driver/library version mismatch", "upgraded"),
        ("* nvmlInit_v2 return 9\n", "NVIDIA driver is not loaded", "load the module"),
        (
            "* nvmlInit_v2 return 4\n",
            "the current user does not have permission to perform this operation",
            "/dev/nvidiactl",
        ),
    ] {
        let mut node = Node::new(2, script);
        node.gpus.search();
        assert_eq!(node.gpus.found(), [SourceState::Present], "nobody has asked");
        assert_eq!(node.tick(1), []);
        match &node.gpus.found()[..] {
            [SourceState::Refused { path, why: told, remedy: helps }] => {
                assert_eq!((path, &**told), (&node.tree.path().join(GATE), why));
                assert!(helps.contains(remedy), "{helps}");
            }
            other => panic!("{other:?}"),
        }
        node.plays("");
        assert_eq!(node.tick(60), []);
        assert_eq!(node.up(61), [(0, true), (1, true)], "asked again after a minute");
        assert_eq!(node.gpus.found(), [SourceState::Present]);
    }
}

#[test]
fn what_a_user_may_not_ask_for_is_told_of_each_gpu() {
    let mut node = Node::new(3, "1 nvmlGpmSampleGet return 4\n");
    node.gpus.search();
    node.tick(1);
    let [SourceState::Present, SourceState::Refused { path, why, .. }] = &node.gpus.found()[..] else { panic!() };
    assert_eq!(path, &node.tree.path().join("sys/bus/pci/devices/0000:43:00.0"));
    assert_eq!(why, "no permission to ask for GPM");
}

fn laptop(node: &Node, control: &str, status: &str) {
    node.write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: NVIDIA RTX 2000\n");
    node.write("sys/bus/pci/devices/0000:01:00.0/power/control", control);
    node.write("sys/bus/pci/devices/0000:01:00.0/power/runtime_status", status);
}

#[test]
fn a_gpu_that_sleeps_is_not_woken() {
    let mut node = Node::new(2, "");
    for status in ["suspended\n", "suspending\n", "resuming\n"] {
        laptop(&node, "auto\n", status);
        node.gpus.search();
        assert_eq!(node.tick(1), [], "{status}");
        assert!(!node.gpus.reader.is_running());
        let cards = node.gpus.cards();
        assert_eq!((cards.len(), cards[0].status, cards[0].pci.bus), (1, DeviceStatus::Asleep, 1));
    }
    assert_eq!(node.gpus.found(), [SourceState::Present]);
    laptop(&node, "auto\n", "active\n");
    node.gpus.search();
    assert_eq!(node.up(60), [(0, true), (1, true)]);
}

#[test]
fn a_gpu_that_may_sleep_is_let_go_when_it_does_nothing() {
    let mut node = Node::new(2, "* nvmlDeviceGetUtilizationRates value 0 0\n");
    laptop(&node, "auto\n", "active\n");
    node.gpus.search();
    for second in 1..=30 {
        assert_eq!(node.tick(second).len(), 2);
    }
    assert_eq!(node.tick(31).len(), 2);
    assert!(!node.gpus.reader.is_running(), "for half a minute it did nothing");
    assert_eq!(node.tick(32), [], "it sleeps, and is not down");
    // It fell asleep since the last search: the reader, which may be started again now, would wake it.
    laptop(&node, "auto\n", "suspended\n");
    assert_eq!(node.tick(95), []);
    assert!(!node.gpus.reader.is_running());
    assert_eq!(node.gpus.cards()[0].status, DeviceStatus::Asleep);
    laptop(&node, "auto\n", "active\n");
    assert_eq!(node.tick(96).len(), 2, "somebody woke it");
    laptop(&node, "auto\n", "suspended\n");
    assert_eq!(node.tick(97), []);
    assert!(!node.gpus.reader.is_running(), "a driver lets it sleep also while a reader runs");

    // Somebody else holds it awake: it is let go once, and then not for ten minutes.
    let mut held = Node::new(2, "* nvmlDeviceGetUtilizationRates value 0 0\n");
    laptop(&held, "auto\n", "active\n");
    held.gpus.search();
    let asked: Vec<u64> = (1..=700).filter(|second| held.tick(*second).len() == 2).collect();
    assert_eq!((asked[30], asked[31], asked.len()), (31, 91, 31 + 601));
    assert_eq!(asked.last(), Some(&691));

    // Nor where the driver lets it never sleep.
    let mut kept = Node::new(2, "* nvmlDeviceGetUtilizationRates value 0 0\n");
    laptop(&kept, "auto\n", "active\n");
    kept.write("proc/driver/nvidia/gpus/0000:01:00.0/power", "Runtime D3 status:          Disabled by default\n");
    kept.gpus.search();
    assert_eq!((1..=100).filter(|second| kept.tick(*second).len() == 2).count(), 100);

    // In a server it is held, or each end of the reader would make the driver let go of it.
    let mut server = Node::new(2, "* nvmlDeviceGetUtilizationRates value 0 0\n");
    laptop(&server, "on\n", "active\n");
    server.gpus.search();
    for second in 1..=100 {
        assert_eq!(server.tick(second).len(), 2);
    }
}
