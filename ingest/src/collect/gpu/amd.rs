//! GPUs of AMD by the files of amdgpu: its table [`mod@table`], and what that lacks from sensors and plain files.
//!
//! The one idea: one read of `gpu_metrics` tells nearly everything, and costs a message to the firmware. Other files are
//! read only for what the table of this card does not have. The files are described in the kernel's
//! `Documentation/gpu/amdgpu`.

pub mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use self::table::{AmdMetrics, AmdResidencies};
use super::drm::{CardTurn, DrmCard, DrmDriver, FileOutcome, line_of, number_of, sensors_of};
use super::{GpuIdentity, GpuPart, GpuPartKind, GpuReading};
use crate::collect::source::Source;
use crate::collect::text::{fields, lines, number};

/// The level from which on more than the outline is told.
const DETAIL_LEVEL: u8 = 3;
/// A display, in the upper bytes of the PCI class. For such boards the unit of the energy counter is not documented.
const DISPLAY: u32 = 0x0300;

/// One card of AMD.
#[derive(Debug)]
pub struct AmdGpu {
    device: PathBuf,
    is_display: bool,
    has_details: bool,
    model: u32,
    /// Looked for when the card is awake for the first time.
    sensors: Option<AmdSensors>,
    metrics: Source,
    busy: Source,
    memory_used: Source,
    errors: Source,
    replays: Source,
    throttled: AmdThrottled,
    about: Option<AmdAbout>,
}

/// Files of `hwmon`, where they are.
#[derive(Debug)]
struct AmdSensors {
    power: [Source; 2],
    limit: Source,
    /// Of the card and of its memory.
    temperatures: [Source; 2],
    clocks: [Source; 2],
}

/// What an awake card tells once.
#[derive(Clone, Debug, Default)]
struct AmdAbout {
    model: String,
    uuid: String,
    firmware: String,
    memory_bytes: Option<u64>,
    limit_watts: Option<f64>,
}

/// Seconds by reason, added up from residencies.
#[derive(Debug, Default)]
struct AmdThrottled {
    before: Option<(telem_engine::Timestamp, AmdResidencies)>,
    /// By power, heat and hardware.
    micros: [f64; 3],
}

/// The reader of a card of AMD; `None` where another driver has it.
pub fn amd_driver(card: &DrmCard, level: u8) -> Option<Box<dyn DrmDriver>> {
    (card.driver == "amdgpu").then(|| Box::new(AmdGpu::new(card, level)) as Box<dyn DrmDriver>)
}

impl AmdGpu {
    fn new(card: &DrmCard, level: u8) -> Self {
        let file = |name: &str| Source::new(card.device.join(name));
        Self {
            device: card.device.clone(),
            is_display: card.class == DISPLAY,
            has_details: level >= DETAIL_LEVEL,
            model: card.model,
            sensors: None,
            metrics: file("gpu_metrics"),
            busy: file("gpu_busy_percent"),
            memory_used: file("mem_info_vram_used"),
            errors: file("ras/umc_err_count"),
            replays: file("pcie_replay_count"),
            throttled: AmdThrottled::default(),
            about: None,
        }
    }
}

impl DrmDriver for AmdGpu {
    fn read(&mut self, turn: CardTurn, asked: &mut FileOutcome) -> GpuReading {
        let table = asked.read(&mut self.metrics).and_then(table::parse).unwrap_or_default();
        let sensors = self.sensors.get_or_insert_with(|| AmdSensors::of(&self.device));
        let details = self.has_details;
        let rare = turn.rare && details;
        let has_energy = !self.is_display || table.links.iter().any(Option::is_some);
        let celsius = |degrees: Option<u16>| degrees.map(f64::from);
        let mut reading = GpuReading {
            utilization_percent: table.compute_activity.map(f64::from),
            memory_used_bytes: asked.number(&mut self.memory_used),
            power_watts: table.power.map(f64::from),
            energy_joules: table.energy.filter(|_| has_energy).map(joules),
            temperature_celsius: celsius(table.hotspot).or(celsius(table.edge)),
            parts: parts(&table),
            ..GpuReading::default()
        };
        if reading.utilization_percent.is_none() {
            let busy = asked.number(&mut self.busy).filter(|percent| *percent <= 100);
            reading.utilization_percent = busy.map(|percent| percent as f64);
        }
        if reading.power_watts.is_none() {
            let micros = sensors.power.iter_mut().find_map(|power| asked.number(power));
            reading.power_watts = micros.map(watts);
        }
        if reading.temperature_celsius.is_none() {
            reading.temperature_celsius = asked.number(&mut sensors.temperatures[0]).map(degrees);
        }
        if details {
            self.throttled.add(turn.time, table.residencies);
            reading.memory_activity_percent = table.memory_activity.map(f64::from);
            reading.memory_temperature_celsius =
                celsius(table.memory_temperature).or_else(|| asked.number(&mut sensors.temperatures[1]).map(degrees));
            let clock = |megahertz: Option<u16>, file: &mut Source, asked: &mut FileOutcome| {
                megahertz.map(|clock| u64::from(clock) * 1_000_000).or_else(|| asked.number(file))
            };
            let [compute, memory] = &mut sensors.clocks;
            reading.sm_clock_hertz = clock(table.compute_clock, compute, asked);
            reading.memory_clock_hertz = clock(table.memory_clock, memory, asked);
            reading.link_bytes = table.links.map(|kilobytes| kilobytes.and_then(|count| count.checked_mul(1_024)));
            reading.throttled_seconds = self.throttled.seconds(table.residencies);
        }
        if rare {
            reading.power_limit_watts = asked.number(&mut sensors.limit).filter(|micros| *micros > 0).map(watts);
            reading.ecc_errors = asked.read(&mut self.errors).map_or([None; 2], parse_errors);
            reading.pcie_replays = asked.number(&mut self.replays);
        }
        let about = self.about.get_or_insert_with(|| AmdAbout::of(&self.device, self.model, sensors));
        reading.memory_size_bytes = about.memory_bytes;
        reading
    }

    fn tell(&self, identity: &mut GpuIdentity) {
        let Some(AmdAbout { model, uuid, firmware, memory_bytes, limit_watts }) = self.about.clone() else {
            identity.model = model_of(self.model);
            return;
        };
        (identity.model, identity.uuid, identity.firmware) = (model, uuid, firmware);
        (identity.memory_bytes, identity.limit_watts) = (memory_bytes, limit_watts);
    }

    fn rest(&mut self) {
        self.throttled.before = None;
    }
}

impl AmdSensors {
    fn of(device: &Path) -> Self {
        let dir = sensors_of(device).into_iter().next().unwrap_or_else(|| device.join("hwmon/hwmon0"));
        let file = |name: &str| Source::new(dir.join(name));
        let labelled = |labels: &[&str]| {
            let numbers = labels
                .iter()
                .find_map(|label| (1..=3).find(|number| line_of(&dir.join(format!("temp{number}_label"))) == *label));
            numbers.map(|number| format!("temp{number}_input"))
        };
        let hottest = labelled(&["junction", "edge"]).unwrap_or_else(|| "temp1_input".to_owned());
        let memory = labelled(&["mem"]).unwrap_or_else(|| "temp3_input".to_owned());
        Self {
            power: [file("power1_average"), file("power1_input")],
            limit: file("power1_cap"),
            temperatures: [file(&hottest), file(&memory)],
            clocks: [file("freq1_input"), file("freq2_input")],
        }
    }
}

impl AmdAbout {
    fn of(device: &Path, model: u32, sensors: &mut AmdSensors) -> Self {
        let text = |name: &str| line_of(&device.join(name));
        let first_of = |one: String, other: String| if one.is_empty() { other } else { one };
        Self {
            model: first_of(text("product_name"), model_of(model)),
            uuid: first_of(text("unique_id"), text("serial_number")),
            firmware: text("vbios_version"),
            memory_bytes: number_of(&device.join("mem_info_vram_total")),
            limit_watts: FileOutcome::default().number(&mut sensors.limit).filter(|micros| *micros > 0).map(watts),
        }
    }
}

impl AmdThrottled {
    fn add(&mut self, time: telem_engine::Timestamp, now: Option<AmdResidencies>) {
        let before = std::mem::replace(&mut self.before, now.map(|now| (time, now)));
        let (Some((since, before)), Some(now)) = (before, now) else { return };
        let looks = now.looks.wrapping_sub(before.looks);
        // Backwards, after a reset of the card: nothing is known of the time between.
        if looks == 0 || looks > u32::MAX / 2 {
            return;
        }
        let passed = (time.micros() - since.micros()).max(0) as f64;
        let share = |now: u32, before: u32| (f64::from(now.wrapping_sub(before)) / f64::from(looks)).min(1.0);
        // They overlap, so they are not added.
        let thermal = now.thermal.iter().zip(before.thermal).map(|(now, before)| share(*now, before));
        let shares = [share(now.power, before.power), thermal.fold(0.0, f64::max), share(now.prochot, before.prochot)];
        for (micros, share) in self.micros.iter_mut().zip(shares) {
            *micros += share * passed;
        }
    }

    /// To 0.1 ms, as other times.
    fn seconds(&self, now: Option<AmdResidencies>) -> [Option<f64>; 3] {
        self.micros.map(|micros| now.map(|_| (micros / 100.0).round() / 10_000.0))
    }
}

fn parts(table: &AmdMetrics) -> Vec<GpuPart> {
    let part = |(number, activity): (u32, &Option<u16>)| GpuPart {
        kind: GpuPartKind::Partition,
        number,
        utilization_percent: activity.map(f64::from),
        memory_used_bytes: None,
        memory_size_bytes: None,
    };
    (0..).zip(&table.partitions).map(part).collect()
}

/// From units of 2⁻¹⁶ J to 0.001 J: more digits say nothing, and take more space.
fn joules(units: u64) -> f64 {
    (u128::from(units) * 1_000 / 65_536) as f64 / 1_000.0
}

fn watts(micros: u64) -> f64 {
    (micros / 1_000) as f64 / 1_000.0
}

fn degrees(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

fn model_of(id: u32) -> String {
    format!("AMD GPU {id:#06x}")
}

/// `ue: 0` and `ce: 12`, a line each: corrected, and not.
pub fn parse_errors(text: &[u8]) -> [Option<u64>; 2] {
    let of = |name: &[u8]| {
        lines(text).find_map(|line| {
            let mut fields = fields(line);
            (fields.next() == Some(name)).then(|| number(fields.next()?))?
        })
    };
    [of(b"ce:"), of(b"ue:")]
}
