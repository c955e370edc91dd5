//! Power meters among the sensors (`/sys/class/hwmon`, name `power_meter`): what firmware measures by ACPI.
//!
//! Most nodes that have one have one, for all of the node. Grace has several, and says of each what it measures: those
//! of modules are the node, and lie around those of the CPU and of its parts.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::PowerBoard;
use crate::collect::inventory::DeviceKind;
use crate::collect::series::Out;
use crate::collect::sleep::{Wakefulness, wakefulness};
use crate::collect::source::{Source, Tree};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::{fields, number};

/// Most sensors that are looked at; those beyond it are left out.
pub const SENSORS_MAX: usize = 512;
/// Longest name or label.
const WORD_BYTES_MAX: u64 = 4 << 10;
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// What meters of parts of a node say of themselves.
const PARTS: [&str; 5] = ["cpu", "sysio", "grace", "dram", "gpu"];

#[derive(Debug)]
pub struct PowerMeters {
    tree: Tree,
    board: PowerBoard,
    /// Those that measure the node together.
    meters: Vec<PowerMeter>,
}

#[derive(Debug)]
struct PowerMeter {
    directory: PathBuf,
    watts: Source,
}

impl PowerMeters {
    pub fn new(tree: &Tree, board: &PowerBoard) -> Self {
        Self { tree: tree.clone(), board: board.clone(), meters: Vec::new() }
    }
}

/// The directories of sensors, in the order of their names. Not those of a device that sleeps, such as the card of a
/// laptop: no file of it is opened but the one that says so.
pub fn sensors(tree: &Tree) -> Vec<PathBuf> {
    let entries = fs::read_dir(tree.path("sys/class/hwmon")).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found.truncate(SENSORS_MAX);
    found.retain(|directory| wakefulness(&directory.join("device")) != Wakefulness::Asleep);
    found
}

/// What a short file says, without its line break; `None` where it cannot be read.
pub fn word(path: &Path) -> Option<String> {
    try_word(path).ok()
}

/// As [`word`].
///
/// # Errors
/// Those of the system.
pub fn try_word(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(WORD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

impl Subject for PowerMeters {
    fn search(&mut self) {
        let is_meter = |directory: &PathBuf| word(&directory.join("name")).is_some_and(|name| name == "power_meter");
        let meters: Vec<(PathBuf, String)> = sensors(&self.tree)
            .into_iter()
            .filter(is_meter)
            .map(|directory| {
                let text = word(&directory.join("power1_oem_info")).unwrap_or_default().to_lowercase();
                (directory, text)
            })
            .collect();
        let is_module = |(_, text): &&(PathBuf, String)| text.contains("module");
        let is_whole = |(_, text): &&(PathBuf, String)| !PARTS.iter().any(|part| text.contains(part));
        let modules: Vec<PathBuf> = meters.iter().filter(is_module).map(|(path, _)| path.clone()).collect();
        let wholes: Vec<PathBuf> = meters.iter().filter(is_whole).map(|(path, _)| path.clone()).collect();
        // Of several that say nothing of themselves nobody knows whether one contains another.
        let chosen = match (modules.is_empty(), wholes.len()) {
            (false, _) => modules,
            (true, 1) => wholes,
            _ => Vec::new(),
        };
        self.meters.retain(|meter| chosen.contains(&meter.directory));
        for directory in chosen {
            if self.meters.iter().all(|known| known.directory != directory) {
                let average = directory.join("power1_average");
                let file = if average.is_file() { average } else { directory.join("power1_input") };
                self.meters.push(PowerMeter { watts: Source::new(file), directory });
            }
        }
        if !self.meters.is_empty() {
            self.board.expect_meters();
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.meters.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Energy)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let read = |meter: &mut PowerMeter| meter.watts.read().and_then(|text| number(fields(text).next()?));
        let micros: Vec<u64> = self.meters.iter_mut().filter_map(read).collect();
        // A part of the meters is not the node.
        if !micros.is_empty() && micros.len() == self.meters.len() {
            self.board.put_meter(out.time(), micros.iter().map(|micros| *micros as f64 / 1e6).sum());
        }
    }
}
