//! GPUs of Intel by the files of i915 and xe. Integrated graphics are left out: they have no memory, power or energy of
//! their own.
//!
//! The one idea: these drivers tell no power and no utilisation, only counters of energy and of idle time. Power is the
//! energy of the time since the reading before. What a GPU was not idle is an upper bound of what it computed. The files
//! are described in the kernel's `Documentation/ABI/testing` (`sysfs-driver-intel-*`).

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use telem_engine::Timestamp;

use super::drm::{CardTurn, DrmCard, DrmDriver, FileOutcome, line_of, numbered, sensors_of};
use super::{GpuIdentity, GpuReading};
use crate::collect::source::Source;
use crate::collect::two_decimals;

/// The level from which on more than the outline is told.
const DETAIL_LEVEL: u8 = 3;
/// A display, in the upper bytes of the PCI class.
const DISPLAY: u32 = 0x0300;
/// What i915 and xe say of throttling, by the reason that telem stores: power, heat, hardware.
const REASONS: [&[&str]; 3] = [&["pl1", "pl2", "pl4", "vr_tdc"], &["thermal", "ratl", "vr_thermalert"], &["prochot"]];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntelDriver {
    I915,
    Xe,
}

/// One card of Intel.
#[derive(Debug)]
pub struct IntelGpu {
    driver: IntelDriver,
    device: PathBuf,
    /// Where i915 has its files: the directory of the card of DRM below the device.
    card: PathBuf,
    has_details: bool,
    model: u32,
    /// Looked for when the card is awake for the first time.
    files: Option<IntelFiles>,
    before: Option<IntelCounters>,
    throttled_micros: [u64; 3],
}

#[derive(Debug)]
struct IntelFiles {
    /// Of the card, else of its package.
    energy: [Source; 2],
    /// Which of the two it is: the first that ever answered, since they count different things.
    counted: Option<usize>,
    limit: Source,
    temperature: Source,
    memory_temperature: Source,
    units: Vec<IntelGt>,
    memory_bytes: Option<u64>,
    limit_watts: Option<f64>,
}

/// One of the parts ("gt") that clocks and idle time are counted for.
#[derive(Debug)]
struct IntelGt {
    clock: Source,
    idle: Source,
    throttled: Source,
    reasons: [Vec<Source>; 3],
}

#[derive(Debug)]
struct IntelCounters {
    time: Timestamp,
    energy_micros: Option<u64>,
    idle_millis: Vec<Option<u64>>,
}

fn driver_of(card: &DrmCard) -> Option<IntelDriver> {
    let driver = match &*card.driver {
        "i915" => IntelDriver::I915,
        "xe" => IntelDriver::Xe,
        _ => return None,
    };
    // Both have sensors for cards with memory of their own only.
    let has_memory = card.class != DISPLAY || card.device.join("hwmon").is_dir();
    has_memory.then_some(driver)
}

/// Whether it is a card of its own that is read.
pub fn is_read(card: &DrmCard) -> bool {
    driver_of(card).is_some()
}

/// The reader of a card of Intel; `None` where it is none of its own, or another driver has it.
pub fn intel_driver(card: &DrmCard, level: u8) -> Option<Box<dyn DrmDriver>> {
    Some(Box::new(IntelGpu {
        driver: driver_of(card)?,
        device: card.device.clone(),
        card: card.device.join("drm").join(card.card.file_name()?),
        has_details: level >= DETAIL_LEVEL,
        model: card.model,
        files: None,
        before: None,
        throttled_micros: [0; 3],
    }))
}

impl DrmDriver for IntelGpu {
    fn read(&mut self, turn: CardTurn, asked: &mut FileOutcome) -> GpuReading {
        let files = self.files.get_or_insert_with(|| IntelFiles::of(self.driver, &self.device, &self.card));
        let energy_micros = files.energy(asked);
        let idle_millis = files.units.iter_mut().map(|unit| asked.number(&mut unit.idle)).collect();
        let now = IntelCounters { time: turn.time, energy_micros, idle_millis };
        let before = self.before.take();
        let mut reading = GpuReading {
            utilization_percent: before.as_ref().and_then(|before| now.busiest_percent(before)),
            memory_size_bytes: files.memory_bytes,
            power_watts: before.as_ref().and_then(|before| now.watts(before)),
            energy_joules: energy_micros.map(|micros| (micros / 1_000) as f64 / 1_000.0),
            temperature_celsius: asked.number(&mut files.temperature).map(degrees),
            ..GpuReading::default()
        };
        if self.has_details {
            let clocks = files.units.iter_mut().filter_map(|unit| asked.number(&mut unit.clock));
            reading.sm_clock_hertz = clocks.max().and_then(|megahertz| megahertz.checked_mul(1_000_000));
            reading.memory_temperature_celsius = asked.number(&mut files.memory_temperature).map(degrees);
            let passed = before.as_ref().map_or(0, |before| now.micros_since(before));
            if let Some(reasons) = files.reasons(asked) {
                for (micros, _) in self.throttled_micros.iter_mut().zip(reasons).filter(|(_, given)| *given) {
                    *micros += passed;
                }
                // To 0.1 ms, as other times.
                reading.throttled_seconds = self.throttled_micros.map(|micros| Some((micros / 100) as f64 / 10_000.0));
            }
            if turn.rare {
                reading.power_limit_watts = limit(asked, &mut files.limit);
            }
        }
        self.before = Some(now);
        reading
    }

    fn tell(&self, identity: &mut GpuIdentity) {
        identity.model = model_of(self.model);
        if let Some(files) = &self.files {
            (identity.memory_bytes, identity.limit_watts) = (files.memory_bytes, files.limit_watts);
        }
    }

    fn rest(&mut self) {
        self.before = None;
    }
}

impl IntelFiles {
    fn of(driver: IntelDriver, device: &Path, card: &Path) -> Self {
        let name = match driver {
            IntelDriver::I915 => "i915",
            IntelDriver::Xe => "xe",
        };
        // Others are of a tile: `i915_gt0`.
        let sensors = sensors_of(device).into_iter().find(|sensors| line_of(&sensors.join("name")) == name);
        let sensors = sensors.unwrap_or_else(|| device.join("hwmon/hwmon0"));
        let sensor = |name: &str| Source::new(sensors.join(name));
        let tiles = numbered(device, "tile");
        let units: Vec<IntelGt> = match driver {
            IntelDriver::I915 => numbered(&card.join("gt"), "gt").iter().map(|gt| IntelGt::of_i915(gt)).collect(),
            IntelDriver::Xe => {
                tiles.iter().flat_map(|tile| numbered(tile, "gt")).map(|gt| IntelGt::of_xe(&gt)).collect()
            }
        };
        let of_tiles = tiles.iter().filter_map(|tile| size_of(&tile.join("physical_vram_size_bytes")));
        let of_tiles = of_tiles.fold(None, |sum, bytes| Some(sum.unwrap_or(0u64).saturating_add(bytes)));
        let mut limit_file = sensor("power1_max");
        Self {
            energy: [sensor("energy1_input"), sensor("energy2_input")],
            counted: None,
            limit_watts: limit(&mut FileOutcome::default(), &mut limit_file),
            limit: limit_file,
            temperature: sensor("temp2_input"),
            memory_temperature: sensor("temp3_input"),
            memory_bytes: of_tiles.or_else(|| size_of(&card.join("lmem_total_bytes"))),
            units,
        }
    }

    fn energy(&mut self, asked: &mut FileOutcome) -> Option<u64> {
        if let Some(counted) = self.counted {
            return asked.number(&mut self.energy[counted]);
        }
        for (at, energy) in self.energy.iter_mut().enumerate() {
            if let Some(micros) = asked.number(energy) {
                self.counted = Some(at);
                return Some(micros);
            }
        }
        None
    }

    /// Which reasons some part gives now; `None` where none tells.
    fn reasons(&mut self, asked: &mut FileOutcome) -> Option<[bool; 3]> {
        let mut all = None;
        for IntelGt { throttled, reasons, .. } in &mut self.units {
            let Some(is_throttled) = asked.number(throttled) else { continue };
            let given: &mut [bool; 3] = all.get_or_insert([false; 3]);
            if is_throttled == 0 {
                continue;
            }
            for (given, files) in given.iter_mut().zip(reasons) {
                *given |= files.iter_mut().any(|reason| asked.number(reason).is_some_and(|given| given > 0));
            }
        }
        all
    }
}

impl IntelGt {
    fn of_i915(gt: &Path) -> Self {
        let file = |name: &str| Source::new(gt.join(name));
        let reason = |reason: &&str| file(&format!("throttle_reason_{reason}"));
        Self {
            clock: file("rps_act_freq_mhz"),
            idle: file("rc6_residency_ms"),
            throttled: file("throttle_reason_status"),
            reasons: REASONS.map(|reasons| reasons.iter().map(reason).collect()),
        }
    }

    fn of_xe(gt: &Path) -> Self {
        let file = |name: &str| Source::new(gt.join(name));
        let reason = |reason: &&str| file(&format!("freq0/throttle/reason_{reason}"));
        Self {
            clock: file("freq0/act_freq"),
            idle: file("gtidle/idle_residency_ms"),
            throttled: file("freq0/throttle/status"),
            reasons: REASONS.map(|reasons| reasons.iter().map(reason).collect()),
        }
    }
}

impl IntelCounters {
    fn micros_since(&self, before: &Self) -> u64 {
        u64::try_from(self.time.micros() - before.time.micros()).unwrap_or(0)
    }

    /// To 0.001 W. A counter that began anew says nothing of the time since the reading before.
    fn watts(&self, before: &Self) -> Option<f64> {
        let joules_micros = self.energy_micros?.checked_sub(before.energy_micros?)?;
        let passed = self.micros_since(before);
        let milliwatts = u128::from(joules_micros) * 1_000 / u128::from(passed.max(1));
        (passed > 0).then_some(milliwatts as f64 / 1_000.0)
    }

    /// Of the part that was awake longest.
    fn busiest_percent(&self, before: &Self) -> Option<f64> {
        let passed = self.micros_since(before) as f64 / 1_000.0;
        let busy = self.idle_millis.iter().zip(&before.idle_millis).filter_map(|(now, before)| {
            let idle = (*now)?.checked_sub((*before)?)?;
            (passed > 0.0).then(|| two_decimals((100.0 * (1.0 - idle as f64 / passed)).clamp(0.0, 100.0)))
        });
        busy.reduce(f64::max)
    }
}

fn degrees(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

/// 0 is no limit.
fn limit(asked: &mut FileOutcome, file: &mut Source) -> Option<f64> {
    asked.number(file).filter(|micros| *micros > 0).map(|micros| (micros / 1_000) as f64 / 1_000.0)
}

/// A size, which xe writes with base 16.
fn size_of(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// By Intel's public list of devices; there is no file with a name.
fn model_of(id: u32) -> String {
    let known = match id {
        0x0bd5 | 0x0bd6 => "Data Center GPU Max 1550",
        0x0bda | 0x0bdb => "Data Center GPU Max 1100",
        0x56c0 => "Data Center GPU Flex 170",
        0x56c1 => "Data Center GPU Flex 140",
        _ => return format!("Intel GPU {id:#06x}"),
    };
    known.to_owned()
}
