//! Numbers, names and levels of what any vendor's GPUs tell.

mod cards;
mod mask;

use std::collections::BTreeMap;
use std::fs;

use telem_engine::{Db, Options, Timestamp};
use tempfile::TempDir;

use super::*;

/// Says what it is told to say.
#[derive(Debug, Default)]
struct PlayedSource {
    cards: Arc<Mutex<Vec<GpuIdentity>>>,
    readings: Arc<Mutex<Vec<(PciAddress, GpuReading)>>>,
}

impl GpuSource for PlayedSource {
    fn search(&mut self) {}

    fn found(&self) -> Vec<SourceState> {
        vec![SourceState::Present]
    }

    fn cards(&self) -> Vec<GpuIdentity> {
        self.cards.lock().unwrap().clone()
    }

    fn sample(&mut self, _: &Out<'_>) -> Vec<(PciAddress, GpuReading)> {
        self.readings.lock().unwrap().clone()
    }
}

struct Stage {
    tree: TempDir,
    _database: TempDir,
    db: Db,
    roll: GpuRoll,
}

impl Stage {
    fn new() -> Self {
        let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Db::open(database.path(), Options::default()).unwrap();
        Self { tree, _database: database, db, roll: GpuRoll::default() }
    }

    fn view(&self, level: u8) -> GpuView {
        let uid = rustix::process::getuid().as_raw();
        GpuView { tree: Tree::new(self.tree.path()), uid, level, masks: GpuMasks::default() }
    }

    /// The samples of a tick without the host.
    fn tick(&self, gpus: &mut dyn Subject, second: i64) -> BTreeMap<String, String> {
        let mut out = Out::new(&self.db, "n1", Timestamp::from_seconds(second), 0);
        gpus.sample(&mut out);
        let batch = out.finish().batch;
        let name = |id| {
            let key = self.db.index().key(id).unwrap();
            let tags: Vec<_> =
                key.tags().iter().filter(|(key, _)| *key != "host").map(|(k, v)| format!("{k}={v}")).collect();
            format!("{}{{{}}}", key.metric(), tags.join(","))
        };
        batch.iter().map(|(id, _, value)| (name(id), value.to_string())).collect()
    }
}

fn at(text: &str) -> PciAddress {
    PciAddress::parse(text).unwrap()
}

fn card(vendor: GpuVendor, pci: &str, uuid: &str) -> GpuIdentity {
    GpuIdentity { uuid: uuid.to_owned(), ..GpuIdentity::new(vendor, at(pci)) }
}

fn up() -> GpuReading {
    GpuReading { up: true, ..GpuReading::default() }
}

#[test]
fn an_address_has_four_digits_of_domain_however_it_is_written() {
    for (text, normal) in [
        ("00000000:07:00.0", "0000:07:00.0"),
        ("0000:C1:00.0\n", "0000:c1:00.0"),
        ("07:1f.7", "0000:07:1f.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
    ] {
        assert_eq!(at(text).to_string(), normal);
    }
    for text in ["", ":", "0000:07:00", "0000:07:00.8", "0000:107:00.0", "0000:07:20.0", "0000:+7:00.0", "x:07:00.0"] {
        assert_eq!(PciAddress::parse(text), None, "{text}");
    }
}

#[test]
fn numbers_follow_addresses_and_are_never_given_again() {
    let roll = GpuRoll::default();
    let number = |vendor, pci| roll.number(vendor, at(pci));
    roll.enter(vec![card(GpuVendor::Amd, "0000:c1:00.0", "b"), card(GpuVendor::Amd, "0000:07:00.0", "a")]);
    assert_eq!(number(GpuVendor::Amd, "0000:07:00.0"), Some(0));
    assert_eq!(number(GpuVendor::Amd, "0000:c1:00.0"), Some(1));
    assert_eq!(number(GpuVendor::Intel, "0000:c1:00.0"), None);

    roll.enter(vec![card(GpuVendor::Amd, "0000:07:00.0", "c"), card(GpuVendor::Amd, "0000:01:00.0", "d")]);
    assert_eq!(number(GpuVendor::Amd, "0000:07:00.0"), Some(3), "another GPU in its place");
    assert_eq!(number(GpuVendor::Amd, "0000:01:00.0"), Some(2));
    roll.enter(vec![card(GpuVendor::Amd, "0000:07:00.0", "a")]);
    assert_eq!(number(GpuVendor::Amd, "0000:07:00.0"), Some(0), "it came back");
}

#[test]
fn a_gpu_that_wakes_is_the_one_that_slept() {
    let roll = GpuRoll::default();
    for uuid in ["", "a", "", "a"] {
        roll.enter(vec![card(GpuVendor::Amd, "0000:07:00.0", uuid)]);
    }
    assert_eq!(roll.of(GpuVendor::Amd).len(), 1);
    assert_eq!(roll.of(GpuVendor::Amd)[0].1.uuid, "a");
}

#[test]
fn vendors_are_numbered_one_after_the_other_at_first_sight() {
    let roll = GpuRoll::default();
    roll.enter(vec![card(GpuVendor::Intel, "0000:01:00.0", ""), card(GpuVendor::Nvidia, "0000:99:00.0", "")]);
    assert_eq!(roll.number(GpuVendor::Nvidia, at("0000:99:00.0")), Some(0));
    assert_eq!(roll.number(GpuVendor::Intel, at("0000:01:00.0")), Some(1));
}

#[test]
fn gpus_beyond_the_limit_have_no_number() {
    let roll = GpuRoll::default();
    let all = |count: usize| (0..count).map(|bus| card(GpuVendor::Amd, &format!("{bus:x}:00:00.0"), "")).collect();
    roll.enter(all(GPUS_MAX));
    assert_eq!(roll.of(GpuVendor::Amd).len(), GPUS_MAX);
    roll.enter(all(GPUS_MAX + 1));
    assert_eq!(roll.of(GpuVendor::Amd).len(), GPUS_MAX);
}

#[test]
fn dragons_names_have_no_tag_but_the_number_and_begin_at_level_3() {
    let stage = Stage::new();
    let source = PlayedSource::default();
    *source.cards.lock().unwrap() = vec![card(GpuVendor::Nvidia, "0000:07:00.0", "a")];
    let part = |number| GpuPart {
        kind: GpuPartKind::Mig,
        number,
        utilization_percent: None,
        memory_used_bytes: Some(1),
        memory_size_bytes: Some(4),
    };
    let reading = GpuReading {
        utilization_percent: Some(37.0),
        memory_used_bytes: Some(1),
        memory_size_bytes: Some(3),
        power_watts: Some(412.0),
        parts: vec![part(7)],
        ..up()
    };
    *source.readings.lock().unwrap() = vec![(at("0000:07:00.0"), reading)];
    let readings = Arc::clone(&source.readings);
    let mut gpus = VendorGpus::new(GpuVendor::Nvidia, Box::new(source), &stage.view(3), &stage.roll);
    let expected = [
        ("DeviceMemoryUtilization{gpu=0}", "33.33"),
        ("DevicePowerUsage{gpu=0}", "412.0"),
        ("DeviceUtilization{gpu=0}", "37.0"),
        ("gpu_memory_size_bytes{gpu=0,mig=7}", "4"),
        ("gpu_memory_used_bytes{gpu=0,mig=7}", "1"),
        ("gpu_power_watts{gpu=0}", "412.0"),
        ("gpu_up{gpu=0}", "1"),
        ("gpu_utilization_percent{gpu=0}", "37.0"),
    ];
    let tick = stage.tick(&mut gpus, 1);
    let tick: Vec<(&str, &str)> = tick.iter().map(|(series, value)| (&**series, &**value)).collect();
    assert_eq!(tick, expected);

    let again = PlayedSource { readings, ..PlayedSource::default() };
    let mut two = VendorGpus::new(GpuVendor::Nvidia, Box::new(again), &stage.view(2), &stage.roll);
    assert!(stage.tick(&mut two, 2).keys().all(|series| !series.starts_with("Device")));
}

#[test]
fn a_gpu_that_is_down_tells_that_and_its_xids_and_nothing_else() {
    let stage = Stage::new();
    let source = PlayedSource::default();
    *source.cards.lock().unwrap() = vec![card(GpuVendor::Nvidia, "0000:07:00.0", "a")];
    let lost = GpuReading { power_watts: Some(1.0), xids: vec![(79, 1)], ..GpuReading::default() };
    *source.readings.lock().unwrap() = vec![(at("0000:07:00.0"), lost)];
    let mut gpus = VendorGpus::new(GpuVendor::Nvidia, Box::new(source), &stage.view(4), &stage.roll);
    // The Xid is why it is down.
    let told = [("gpu_up{gpu=0}", "0"), ("gpu_xid_errors_total{gpu=0,xid=79}", "1")];
    assert_eq!(stage.tick(&mut gpus, 1), told.map(|(series, value)| (series.to_owned(), value.to_owned())).into());
}

#[test]
fn memory_is_told_of_our_own_processes() {
    let stage = Stage::new();
    fs::create_dir_all(stage.tree.path().join("proc/41")).unwrap();
    fs::write(stage.tree.path().join("proc/41/comm"), "train\n").unwrap();
    let source = PlayedSource::default();
    *source.cards.lock().unwrap() = vec![card(GpuVendor::Nvidia, "0000:07:00.0", "a")];
    let reading = GpuReading { processes: vec![(41, 5), (42, 6)], ..up() };
    *source.readings.lock().unwrap() = vec![(at("0000:07:00.0"), reading)];
    let readings = Arc::clone(&source.readings);
    let mut gpus = VendorGpus::new(GpuVendor::Nvidia, Box::new(source), &stage.view(4), &stage.roll);
    let tick = stage.tick(&mut gpus, 1);
    assert_eq!(tick["gpu_process_memory_bytes{comm=train,gpu=0,pid=41}"], "5");
    assert_eq!(tick.len(), 2, "of those that are gone nothing");

    let source = PlayedSource { readings, ..PlayedSource::default() };
    let of_another = GpuView { uid: stage.view(4).uid + 1, ..stage.view(4) };
    let mut gpus = VendorGpus::new(GpuVendor::Nvidia, Box::new(source), &of_another, &stage.roll);
    assert_eq!(stage.tick(&mut gpus, 2).len(), 1);
}
