//! `/sys/class/hwmon` and `/sys/class/thermal`: temperatures, power and energy of whatever has a sensor, under
//! node_exporter's names. Numbers of sensors change with every boot, so the tag `chip` is the device.
//!
//! Some sensors sit behind a slow bus and take tens of milliseconds, so they are read every ten seconds. Those of GPUs
//! are read with their GPUs, and those of a device that sleeps are not.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::energy::{sensors, word};
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use super::text::{fields, float};

/// Most figures that are read; those beyond it are left out.
pub const FIGURES_MAX: usize = 512;
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Sensors of GPUs.
const OF_GPUS: [&str; 4] = ["amdgpu", "i915", "xe", "nouveau"];

const HOTTEST: &str = "node_cpu_temperature_celsius";

/// A kind of figure: how its file begins and ends, its metric, and how many of its units are one.
const FIGURES: [(&str, &str, &str, f64); 4] = [
    ("temp", "_input", "node_hwmon_temp_celsius", 1e3),
    ("power", "_input", "node_hwmon_power_watt", 1e6),
    ("power", "_average", "node_hwmon_power_average_watt", 1e6),
    ("energy", "_input", "node_hwmon_energy_joule_total", 1e6),
];

#[derive(Debug)]
pub struct Sensors {
    tree: Tree,
    each: bool,
    figures: Vec<Figure>,
    hottest: Slot,
}

#[derive(Debug)]
struct Figure {
    path: PathBuf,
    source: Source,
    units: f64,
    slot: Slot,
    /// It is the temperature of a package of CPUs.
    is_package: bool,
}

impl Sensors {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { tree: tree.clone(), each: level >= 3, figures: Vec::new(), hottest: Slot::new(HOTTEST) }
    }

    fn of_sensor(&self, directory: &Path) -> Vec<Figure> {
        let name = word(&directory.join("name")).unwrap_or_default();
        // Those of parts of a card are called by them, as in i915_gt0.
        if OF_GPUS.contains(&name.split('_').next().unwrap_or_default()) {
            return Vec::new();
        }
        let chip = chip(directory, &name);
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let mut files: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        files.sort();
        let mut found = Vec::new();
        for file in files {
            let of = |(begin, end, metric, units): &(&str, &str, &'static str, f64)| {
                let sensor = file.strip_suffix(end)?;
                let number = sensor.strip_prefix(begin)?;
                let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then(|| (sensor.to_owned(), *metric, *units))
            };
            let Some((sensor, metric, units)) = FIGURES.iter().find_map(of) else { continue };
            let label = word(&directory.join(format!("{sensor}_label"))).unwrap_or_default();
            let is_package = units == 1e3
                && match &*name {
                    "coretemp" => label.starts_with("Package id"),
                    "k10temp" | "zenpower" => label == "Tctl",
                    _ => false,
                };
            if self.each || is_package {
                let path = directory.join(&file);
                let slot = Slot::tagged(metric, &[("chip", &chip), ("sensor", &sensor)]);
                found.push(Figure { source: Source::new(path.clone()), path, units, slot, is_package });
            }
        }
        found
    }

    fn of_zones(&self) -> Vec<Figure> {
        let entries = fs::read_dir(self.tree.path("sys/class/thermal")).into_iter().flatten().flatten();
        let mut zones: Vec<(String, PathBuf)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name.strip_prefix("thermal_zone")?.to_owned(), entry.path()))
            })
            .collect();
        zones.sort();
        let figure = |(zone, directory): (String, PathBuf)| {
            let path = directory.join("temp");
            let kind = word(&directory.join("type")).unwrap_or_default();
            let slot = Slot::tagged("node_thermal_zone_temp", &[("zone", &zone), ("type", &kind)]);
            Figure { source: Source::new(path.clone()), path, units: 1e3, slot, is_package: false }
        };
        zones.into_iter().map(figure).collect()
    }
}

/// The device of a sensor, as node_exporter calls it: `platform_coretemp_0`, `pci0000:00_0000:00:18_3`.
fn chip(directory: &Path, name: &str) -> String {
    let clean = |text: &str| -> String {
        let word = |c: char| if c.is_ascii_alphanumeric() || c == ':' { c.to_ascii_lowercase() } else { '_' };
        text.chars().map(word).collect::<String>().trim_matches('_').to_owned()
    };
    let device = fs::canonicalize(directory.join("device")).ok();
    let named = device.as_deref().and_then(|device| {
        let last = device.file_name()?.to_str()?;
        let above = device.parent()?.file_name()?.to_str()?;
        Some(format!("{}_{}", clean(above), clean(last)))
    });
    named
        .or_else(|| Some(clean(name)).filter(|name| !name.is_empty()))
        .unwrap_or_else(|| clean(&directory.file_name().unwrap_or_default().to_string_lossy()))
}

impl Subject for Sensors {
    fn search(&mut self) {
        let mut found: Vec<Figure> =
            sensors(&self.tree).iter().flat_map(|directory| self.of_sensor(directory)).collect();
        if self.each {
            found.extend(self.of_zones());
        }
        found.truncate(FIGURES_MAX);
        self.figures.retain(|known| found.iter().any(|figure| figure.path == known.path));
        for figure in found {
            if self.figures.iter().all(|known| known.path != figure.path) {
                self.figures.push(figure);
            }
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.figures.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut hottest: Option<f64> = None;
        for figure in &mut self.figures {
            // A sensor that is off answers with an error, or with less than the absolute zero.
            let read = figure.source.read().and_then(|text| float(fields(text).next()?));
            let Some(value) = read.map(|value| value / figure.units).filter(|value| *value > -273.15) else { continue };
            if figure.is_package {
                hottest = Some(hottest.map_or(value, |known| known.max(value)));
            }
            if self.each {
                out.float(&mut figure.slot, value);
            }
        }
        if let Some(value) = hottest {
            out.float(&mut self.hottest, value);
        }
    }
}
