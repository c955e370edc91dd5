//! GPUs of AMD and Intel by `/sys/class/drm`: which cards there are, which of them may be asked, and what came of it.
//!
//! The one idea: a card is asked only after [`wakefulness`] said that it is awake, and then by a [`DrmDriver`], which
//! knows the files of its kernel driver and nothing of sleep, loss and numbers. The kernel documents the class in
//! `Documentation/ABI/stable/sysfs-driver-*` and the PCI files in `Documentation/ABI/testing/sysfs-bus-pci`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use telem_engine::Timestamp;

use super::{DeviceStatus, GpuIdentity, GpuReading, GpuSource, GpuVendor, PciAddress};
use crate::collect::pace::Pace;
use crate::collect::series::Out;
use crate::collect::sleep::{QuietWatch, Wakefulness, wakefulness};
use crate::collect::source::{Source, Tree};
use crate::collect::subject::SourceState;
use crate::collect::text::{fields, number};

/// Most cards of a vendor that are read; those beyond are left out.
pub const DRM_CARDS_MAX: usize = 64;
/// How often limits and errors are asked for.
const RARE_INTERVAL: Duration = Duration::from_secs(5);
/// Most numbered directories in one that are looked at.
const NUMBERED_MAX: usize = 256;

/// One card, as a kernel driver tells of it.
pub trait DrmDriver: fmt::Debug + Send {
    /// Asks an awake card. Fields stay empty where it does not answer.
    fn read(&mut self, turn: CardTurn, asked: &mut FileOutcome) -> GpuReading;

    /// Fills in what only an awake card tells. Called after a reading.
    fn tell(&self, identity: &mut GpuIdentity);

    /// The card sleeps or is let go: differences to what was read before say nothing.
    fn rest(&mut self);
}

/// When a card is asked.
#[derive(Clone, Copy, Debug)]
pub struct CardTurn {
    pub time: Timestamp,
    /// What changes rarely is asked too.
    pub rare: bool,
}

/// A card that was found.
#[derive(Clone, Debug)]
pub struct DrmCard {
    pub pci: PciAddress,
    /// The directory of the PCI device.
    pub device: PathBuf,
    /// The directory of the card of DRM, such as `card0`.
    pub card: PathBuf,
    pub driver: String,
    /// The PCI class, in its upper two bytes: `0x0300` is a display.
    pub class: u32,
    pub model: u32,
}

/// What became of the files that one card was asked for.
#[derive(Debug, Default)]
pub struct FileOutcome {
    /// Some file was read.
    heard: bool,
    /// The card is gone, or its driver in trouble.
    failed: bool,
    refused: Option<(PathBuf, String)>,
}

impl FileOutcome {
    pub fn read<'a>(&mut self, source: &'a mut Source) -> Option<&'a [u8]> {
        match source.read_or_why() {
            Ok(bytes) => {
                self.heard = true;
                Some(bytes)
            }
            Err((path, error)) => {
                self.fail(path, &error);
                None
            }
        }
    }

    pub fn number(&mut self, source: &mut Source) -> Option<u64> {
        self.read(source).and_then(|text| number(fields(text).next()?))
    }

    fn fail(&mut self, path: &Path, error: &io::Error) {
        match Errno::from_io_error(error) {
            // Files that this card or kernel does not have, and cards that fell asleep or are being reset.
            Some(Errno::NOENT | Errno::PERM | Errno::BUSY | Errno::AGAIN) => {}
            Some(Errno::ACCESS | Errno::ISDIR | Errno::NOTDIR) => {
                self.refused.get_or_insert_with(|| (path.to_path_buf(), error.to_string()));
            }
            _ => self.failed = true,
        }
    }
}

/// A file with one number, as an identity has them.
pub fn number_of(path: &Path) -> Option<u64> {
    number(fields(&fs::read(path).ok()?).next()?)
}

/// The first line of a file; empty where there is none.
pub fn line_of(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line.trim_ascii()).into_owned()
}

/// The entries of a directory that are this word and a number, sorted by that: `card0`, and not `card0-DP-1`.
pub fn numbered(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.truncate(NUMBERED_MAX);
    found.into_iter().map(|(_, path)| path).collect()
}

/// Makes the reader of a card; `None` where it is none of those that are read.
pub type DriverMaker = fn(&DrmCard, u8) -> Option<Box<dyn DrmDriver>>;

/// The cards of one vendor.
#[derive(Debug)]
pub struct DrmGpus {
    tree: Tree,
    vendor: GpuVendor,
    level: u8,
    make: DriverMaker,
    rare: Pace,
    cards: Vec<AskedCard>,
}

#[derive(Debug)]
struct AskedCard {
    card: DrmCard,
    driver: Box<dyn DrmDriver>,
    identity: GpuIdentity,
    watch: QuietWatch,
    /// Files that may not be read, and why: since the last search, and between the two before. Some are asked at some
    /// ticks only, and are no less refused in between.
    refused: BTreeMap<PathBuf, String>,
    refused_before: BTreeMap<PathBuf, String>,
}

impl DrmGpus {
    pub fn new(tree: &Tree, vendor: GpuVendor, level: u8, make: DriverMaker) -> Self {
        Self { tree: tree.clone(), vendor, level, make, rare: Pace::every(RARE_INTERVAL), cards: Vec::new() }
    }
}

/// The cards of a vendor below `/sys/class/drm`. Opens nothing that wakes one.
pub fn cards_of(tree: &Tree, vendor: GpuVendor) -> Vec<DrmCard> {
    let id = match vendor {
        GpuVendor::Nvidia => "0x10de",
        GpuVendor::Amd => "0x1002",
        GpuVendor::Intel => "0x8086",
    };
    let found = numbered(&tree.path("sys/class/drm"), "card");
    let cards = found.into_iter().filter_map(|card| {
        let link = card.join("device");
        // Partitions stand on devices of no vendor: they are columns of their parent's table.
        if line_of(&link.join("vendor")) != id {
            return None;
        }
        // The place itself: the number of a card is given again when it is gone.
        let device = fs::canonicalize(&link).ok()?;
        let hex = |file| u32::from_str_radix(line_of(&device.join(file)).strip_prefix("0x")?, 16).ok();
        let driver = fs::read_link(device.join("driver")).ok()?;
        Some(DrmCard {
            pci: pci_of(&device)?,
            class: hex("class").unwrap_or(0) >> 8,
            model: hex("device").unwrap_or(0),
            driver: driver.file_name()?.to_str()?.to_owned(),
            card,
            device,
        })
    });
    cards.take(DRM_CARDS_MAX).collect()
}

fn pci_of(device: &Path) -> Option<PciAddress> {
    let by_name = device.file_name().and_then(|name| PciAddress::parse(name.to_str()?));
    by_name.or_else(|| {
        let uevent = fs::read_to_string(device.join("uevent")).ok()?;
        PciAddress::parse(uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?)
    })
}

impl AskedCard {
    fn new(card: DrmCard, vendor: GpuVendor, driver: Box<dyn DrmDriver>) -> Self {
        let identity = GpuIdentity {
            numa: number_of(&card.device.join("numa_node")).and_then(|node| u32::try_from(node).ok()),
            driver: card.driver.clone(),
            ..GpuIdentity::new(vendor, card.pci)
        };
        Self {
            card,
            driver,
            identity,
            watch: QuietWatch::default(),
            refused: BTreeMap::new(),
            refused_before: BTreeMap::new(),
        }
    }

    /// Its reading, unless there is none.
    fn sample(&mut self, turn: CardTurn) -> Option<GpuReading> {
        let device = &self.card.device;
        match wakefulness(device) {
            Wakefulness::Asleep => {
                self.identity.status = DeviceStatus::Asleep;
                self.watch.forget();
                self.driver.rest();
                return None;
            }
            Wakefulness::Gone => {
                self.identity.status = DeviceStatus::Lost;
                return Some(GpuReading::default());
            }
            Wakefulness::Awake if !self.watch.may_ask(turn.time) => {
                self.driver.rest();
                return None;
            }
            Wakefulness::Awake => {}
        }
        let mut asked = FileOutcome::default();
        let reading = self.driver.read(turn, &mut asked);
        let FileOutcome { heard, failed, refused } = asked;
        let is_refused = refused.is_some();
        self.refused.extend(refused);
        if heard {
            self.identity.status = DeviceStatus::Ok;
            self.driver.tell(&mut self.identity);
            self.watch.hear(reading.utilization_percent, device, turn.time);
            return Some(GpuReading { up: true, ..reading });
        }
        if failed {
            self.identity.status = DeviceStatus::Lost;
            self.driver.rest();
            return Some(GpuReading::default());
        }
        if is_refused {
            self.identity.status = DeviceStatus::Refused;
        }
        None
    }
}

impl GpuSource for DrmGpus {
    fn search(&mut self) {
        // One that was lost is looked at as if it were new: its files are not those of before.
        self.cards.retain(|known| known.identity.status != DeviceStatus::Lost);
        for known in &mut self.cards {
            known.refused_before = std::mem::take(&mut known.refused);
        }
        for card in cards_of(&self.tree, self.vendor) {
            if self.cards.iter().any(|known| known.card.device == card.device) {
                continue;
            }
            let Some(driver) = (self.make)(&card, self.level) else { continue };
            let mut asked = AskedCard::new(card, self.vendor, driver);
            if wakefulness(&asked.card.device) == Wakefulness::Asleep {
                asked.identity.status = DeviceStatus::Asleep;
            }
            asked.driver.tell(&mut asked.identity);
            self.cards.push(asked);
        }
    }

    fn found(&self) -> Vec<SourceState> {
        if self.cards.is_empty() {
            return vec![SourceState::Absent];
        }
        let refused = |card: &AskedCard| {
            let mut all = card.refused_before.clone();
            all.extend(card.refused.clone());
            all.into_iter().map(|(path, why)| SourceState::Refused {
                path,
                why,
                remedy: "an administrator can let users read this file",
            })
        };
        std::iter::once(SourceState::Present).chain(self.cards.iter().flat_map(refused)).collect()
    }

    fn cards(&self) -> Vec<GpuIdentity> {
        self.cards.iter().map(|card| card.identity.clone()).collect()
    }

    fn sample(&mut self, out: &Out<'_>) -> Vec<(PciAddress, GpuReading)> {
        let turn = CardTurn { time: out.time(), rare: self.rare.is_due(out) };
        let mut readings = Vec::with_capacity(self.cards.len());
        for card in &mut self.cards {
            // A card that is lost says so once; a search may find it again.
            if card.identity.status == DeviceStatus::Lost {
                continue;
            }
            if let Some(reading) = card.sample(turn) {
                readings.push((card.card.pci, reading));
            }
        }
        readings
    }
}

/// The sensors of a card: `hwmon/hwmonN` of its device.
pub fn sensors_of(device: &Path) -> Vec<PathBuf> {
    numbered(&device.join("hwmon"), "hwmon")
}
