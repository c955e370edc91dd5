//! Machines in `fixtures/machines/`, one folder each: what is sampled of their hardware, exactly.
//!
//! A machine is a tree of files as its kernel writes them (`sys`, `proc`, `run`), and what is laid over it for the second tick
//! (`second`), ten seconds later; `gone.txt` lists, line by line, what is not there any more by then.
//! Where there is an `nvml.txt`, it is the script of a stand-in for NVIDIA's library, and `second` may have another one.
//! Beside them stand
//! the samples of both ticks at levels 2 and 3, at level 4 where there is a `level4.txt`, and what was found of its
//! sources and is in the inventory. UPDATE_EXPECT=1 writes these anew.

use super::*;
use crate::collect::gpu::nvidia::tests::{Driver, Hand, StandIn};
use crate::collect::inventory::InventoryEntry;
use crate::collect::sampler::Part;
use crate::collect::subject::SourceState;

/// Every subject has had a turn since.
const SECONDS: [i64; 2] = [1_000, 1_010];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/machines")
}

pub(super) fn machines() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut machines: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    machines.sort();
    assert!(!machines.is_empty());
    machines
}

/// No machine answers so late.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Machine {
    pub(super) world: World,
    clock: Arc<Hand>,
    nvml: Option<StandIn>,
}

/// The machine before its first tick.
pub(super) fn machine(path: &Path, level: u8) -> Machine {
    let (tree, database) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for part in ["sys", "proc", "run"].into_iter().filter(|part| path.join(part).is_dir()) {
        lay_over(&path.join(part), &tree.path().join(part));
    }
    let nvml = fs::read_to_string(path.join("nvml.txt")).ok().map(|script| StandIn::new(Driver::New, &script));
    let reader = |nvml: &StandIn| VendorReader::Thread { library: nvml.library(), patience: PATIENCE };
    let db = Db::open(database.path(), Options::default()).unwrap();
    let options = CollectOptions {
        sysroot: tree.path().to_path_buf(),
        vendor_reader: nvml.as_ref().map(reader).unwrap_or_default(),
        ..CollectOptions::new(level, "n1")
    };
    let clock = Arc::new(Hand::default());
    let sampler = Sampler::new(&options, db.clone(), Arc::<Hand>::clone(&clock));
    Machine { world: World { tree, db, sampler, _database: database }, clock, nvml }
}

impl Machine {
    /// A tick of which only that it ends is of interest.
    pub(super) fn sample(&mut self, second: i64) {
        self.clock.set(second.unsigned_abs());
        self.world.sampler.sample(Timestamp::from_seconds(second), &[]);
    }

    fn tick(&mut self, second: i64) -> BTreeMap<String, Value> {
        self.clock.set(second.unsigned_abs());
        self.world.tick(second)
    }
}

fn ticks(machine: &mut Machine, path: &Path) -> [BTreeMap<String, Value>; 2] {
    let [first, second] = SECONDS;
    let first = machine.tick(first);
    let world = &machine.world;
    let later = path.join("second");
    if later.is_dir() {
        lay_over(&later, world.tree.path());
    }
    for gone in fs::read_to_string(path.join("gone.txt")).unwrap_or_default().lines() {
        let gone = world.tree.path().join(gone);
        if gone.is_dir() { fs::remove_dir_all(gone).unwrap() } else { fs::remove_file(gone).unwrap() }
    }
    if let (Some(nvml), Ok(script)) = (&machine.nvml, fs::read_to_string(later.join("nvml.txt"))) {
        nvml.plays(&script);
    }
    [first, machine.tick(second)]
}

/// The parts that not every node has.
fn hardware() -> impl Iterator<Item = Part> {
    Part::ALL.into_iter().filter(|part| !part.is_on_every_node())
}

/// What subjects of the hardware found, a line each; nothing of what is absent.
fn found(world: &World) -> String {
    let mut text = String::new();
    for (name, found) in hardware().flat_map(|part| world.sampler.found(part)) {
        for found in found {
            match found {
                SourceState::Absent => {}
                SourceState::Present => writeln!(text, "{name}: present").unwrap(),
                SourceState::Refused { path, why, remedy } => {
                    let path = path.strip_prefix(world.tree.path()).unwrap_or(&path).display();
                    writeln!(text, "{name}: refused: {path}: {why}; {remedy}").unwrap();
                }
            }
        }
    }
    text
}

/// What the database has of the machine's devices, a line each.
fn inventory(world: &World) -> String {
    world.sampler.store_inventory(Timestamp::from_seconds(SECONDS[1]));
    let mut text = String::new();
    for (_, entry) in world.db.snapshot().meta().inventory() {
        let InventoryEntry { kind, device, status, .. } = &entry;
        write!(text, "{} {device}: {}", kind.name(), status.name()).unwrap();
        let number = |number: Option<String>| number.unwrap_or_default();
        for (name, value) in [
            ("vendor", entry.vendor.clone()),
            ("model", entry.model.clone()),
            ("serial_or_uuid", entry.serial_or_uuid.clone()),
            ("pci", entry.pci.clone()),
            ("numa", number(entry.numa.map(|numa| numa.to_string()))),
            ("memory_bytes", number(entry.memory_bytes.map(|bytes| bytes.to_string()))),
            ("limit_watts", number(entry.limit_watts.map(|watts| watts.to_string()))),
            ("driver", entry.driver.clone()),
            ("firmware", entry.firmware.clone()),
            ("in_job", number(entry.in_job.map(|in_job| in_job.to_string()))),
            ("reason", entry.reason.clone()),
        ] {
            if !value.is_empty() {
                write!(text, ", {name}={value}").unwrap();
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn two_ticks_of_each_machine() {
    for path in machines() {
        for level in 2..=4 {
            let golden = path.join(format!("level{level}.txt"));
            if level == 4 && !golden.exists() {
                continue;
            }
            let mut machine = machine(&path, level);
            let ticks = ticks(&mut machine, &path);
            expect_file![golden].assert_eq(&text(&ticks));
            // What is refused may depend on the level.
            if level == 3 {
                expect_file![path.join("found.txt")].assert_eq(&found(&machine.world));
                expect_file![path.join("inventory.txt")].assert_eq(&inventory(&machine.world));
            }
        }
    }
}

#[test]
fn a_machine_without_such_hardware_has_no_part_for_it_and_no_word_about_it() {
    let Machine { world, .. } = machine(&folder().join("vm"), 3);
    for part in hardware() {
        assert_eq!(world.sampler.search_part(part, Timestamp::from_seconds(1), &mut |_| true), Some(false), "{part:?}");
        let all_absent =
            world.sampler.found(part).iter().all(|(_, found)| found.iter().all(|one| *one == SourceState::Absent));
        assert!(all_absent, "{:?}", world.sampler.found(part));
    }
    assert_eq!(world.sampler.take_refusals(), [""; 0]);
}

/// The recorded node and the machines together.
#[test]
fn what_is_collected_stands_in_the_catalog_and_what_stands_there_is_collected() {
    for level in 2..=4 {
        let mut samples: Vec<_> = World::of_job(level).two_ticks().into();
        for path in machines() {
            samples.extend(ticks(&mut machine(&path, level), &path));
        }
        let collected: BTreeSet<String> =
            samples.iter().flat_map(|tick| tick.keys().map(|series| metric(series).to_owned())).collect();
        // File systems have tests of their own; db_size is told by the server.
        let elsewhere =
            |name: &str| name.starts_with("telem_") || name.starts_with("node_filesystem_") || name == "db_size";
        let described = catalog().iter().filter(|metric| metric.level <= level && !elsewhere(metric.name));
        let described: BTreeSet<String> = described.map(|metric| metric.name.to_owned()).collect();
        assert_eq!(collected, described, "level {level}");
    }
}

#[test]
fn a_sum_over_all_series_of_a_metric_of_hardware_is_the_same_at_level_2_and_3() {
    for path in machines() {
        let sums = |level| {
            let mut sums: BTreeMap<(usize, String), f64> = BTreeMap::new();
            for (at, tick) in ticks(&mut machine(&path, level), &path).iter().enumerate() {
                let of_level_2 = tick.iter().filter(|(series, _)| describe(metric(series)).unwrap().level == 2);
                for (series, value) in of_level_2 {
                    *sums.entry((at, metric(series).to_owned())).or_default() += value.as_f64();
                }
            }
            sums
        };
        let (two, three) = (sums(2), sums(3));
        assert_eq!(two.keys().collect::<Vec<_>>(), three.keys().collect::<Vec<_>>(), "{}", path.display());
        for ((key, two), three) in two.iter().zip(three.values()) {
            assert!((two - three).abs() <= 1e-6 * two.abs().max(1.0), "{key:?}: {two} and {three}");
        }
    }
}

/// A pipe without a writer in the place of each file of the card, but for those that tell what it is and that it sleeps:
/// whoever opens one never returns.
#[test]
fn no_source_opens_a_file_of_a_card_that_sleeps_but_those_that_say_what_it_is() {
    let known = ["power/runtime_status", "vendor", "device", "class", "numa_node"];
    let mut machine = machine(&folder().join("laptop"), 4);
    let card = machine.world.tree.path().join("sys/devices/pci0000:00/0000:03:00.0");
    let mut files = Vec::new();
    super::garbage::files_below(&card, &mut files);
    files.retain(|file| known.iter().all(|known| *file != card.join(known)));
    assert!(files.len() >= 7, "{files:?}");
    for file in &files {
        fs::remove_file(file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    }
    let minute = std::thread::spawn(move || (1_000..=1_060).for_each(|second| drop(machine.tick(second))));
    let patience = SystemClock::new();
    while !minute.is_finished() {
        assert!(patience.monotonic() < PATIENCE, "one of {files:?} was opened");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    minute.join().unwrap();
}
