//! The series of a GPU: which metric is made of which field of a reading, once for all vendors.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use telem_engine::Value;

use super::{GpuPart, GpuReading};
use crate::collect::catalog::describe;
use crate::collect::processes::read;
use crate::collect::series::{Out, Slot};
use crate::collect::source::Tree;
use crate::collect::two_decimals;

/// From which level on the memory of processes is told.
pub const PROCESS_LEVEL: u8 = 4;
/// Most kinds of Xid, of a GPU's parts, and of processes with series of their own.
const XIDS_MAX: usize = 64;
const PARTS_MAX: usize = 64;
const GPU_PROCESSES_MAX: usize = 1_024;

pub const PROCESS_MEMORY: &str = "gpu_process_memory_bytes";
pub const MEMORY_USED: &str = "gpu_memory_used_bytes";
const XIDS: &str = "gpu_xid_errors_total";
const OF_PARTS: [&str; 3] = ["gpu_utilization_percent", MEMORY_USED, "gpu_memory_size_bytes"];

/// A metric of a whole GPU.
struct GpuFigure {
    metric: &'static str,
    /// Beside `gpu`.
    tag: Option<(&'static str, &'static str)>,
    of: fn(&GpuReading) -> Option<Value>,
}

const fn figure(metric: &'static str, of: fn(&GpuReading) -> Option<Value>) -> GpuFigure {
    GpuFigure { metric, tag: None, of }
}

const fn tagged(
    metric: &'static str,
    key: &'static str,
    value: &'static str,
    of: fn(&GpuReading) -> Option<Value>,
) -> GpuFigure {
    GpuFigure { metric, tag: Some((key, value)), of }
}

fn float(value: Option<f64>) -> Option<Value> {
    value.filter(|value| value.is_finite()).map(Value::Float)
}

fn int(value: Option<u64>) -> Option<Value> {
    value.and_then(|value| i64::try_from(value).ok()).map(Value::Int)
}

/// The whole GPU says nothing of what its parts say.
fn unless_parts(reading: &GpuReading, told: fn(&GpuPart) -> bool, value: Option<Value>) -> Option<Value> {
    value.filter(|_| !reading.parts.iter().any(told))
}

pub fn memory_percent(used: u64, size: u64) -> Option<f64> {
    (size > 0).then(|| two_decimals(100.0 * used as f64 / size as f64))
}

// One line a metric, however long: it is a table.
/// The first one is told of a GPU that is down, too.
#[rustfmt::skip]
const FIGURES: &[GpuFigure] = &[
    figure("gpu_up", |r| Some(Value::Int(r.up.into()))),
    figure(OF_PARTS[0], |r| unless_parts(r, |part| part.utilization_percent.is_some(), float(r.utilization_percent))),
    figure(OF_PARTS[1], |r| unless_parts(r, |part| part.memory_used_bytes.is_some(), int(r.memory_used_bytes))),
    figure(OF_PARTS[2], |r| unless_parts(r, |part| part.memory_size_bytes.is_some(), int(r.memory_size_bytes))),
    figure("gpu_power_watts", |r| float(r.power_watts)),
    figure("gpu_energy_joules_total", |r| float(r.energy_joules)),
    figure("gpu_temperature_celsius", |r| float(r.temperature_celsius)),
    figure("DeviceUtilization", |r| float(r.utilization_percent)),
    figure("DeviceMemoryUtilization", |r| float(memory_percent(r.memory_used_bytes?, r.memory_size_bytes?))),
    figure("DevicePowerUsage", |r| float(r.power_watts)),
    figure("gpu_memory_activity_percent", |r| float(r.memory_activity_percent)),
    tagged("gpu_clock_hertz", "clock", "sm", |r| int(r.sm_clock_hertz)),
    tagged("gpu_clock_hertz", "clock", "memory", |r| int(r.memory_clock_hertz)),
    figure("gpu_memory_temperature_celsius", |r| float(r.memory_temperature_celsius)),
    figure("gpu_power_limit_watts", |r| float(r.power_limit_watts)),
    tagged("gpu_throttled_seconds_total", "reason", "power", |r| float(r.throttled_seconds[0])),
    tagged("gpu_throttled_seconds_total", "reason", "thermal", |r| float(r.throttled_seconds[1])),
    tagged("gpu_throttled_seconds_total", "reason", "hardware", |r| float(r.throttled_seconds[2])),
    tagged("gpu_ecc_errors_total", "severity", "corrected", |r| int(r.ecc_errors[0])),
    tagged("gpu_ecc_errors_total", "severity", "uncorrected", |r| int(r.ecc_errors[1])),
    figure("gpu_pcie_replays_total", |r| int(r.pcie_replays)),
    figure("gpu_link_received_bytes_total", |r| int(r.link_bytes[0])),
    figure("gpu_link_transmitted_bytes_total", |r| int(r.link_bytes[1])),
    figure("gpu_sm_active_percent", |r| float(r.sm_active_percent)),
    figure("gpu_sm_occupancy_percent", |r| float(r.sm_occupancy_percent)),
    figure("gpu_tensor_active_percent", |r| float(r.tensor_active_percent)),
    figure("gpu_memory_bandwidth_percent", |r| float(r.memory_bandwidth_percent)),
];

/// The series of one GPU.
#[derive(Debug)]
pub struct GpuSlots {
    number: String,
    level: u8,
    /// In the order of [`FIGURES`]; `None` above the level.
    figures: Vec<Option<Slot>>,
    parts: BTreeMap<(&'static str, u32), [Slot; OF_PARTS.len()]>,
    xids: BTreeMap<u64, Slot>,
    processes: ProcessSlots,
}

impl GpuSlots {
    pub fn new(number: usize, level: u8) -> Self {
        let number = number.to_string();
        let slot = |figure: &GpuFigure| {
            let is_collected = describe(figure.metric).is_some_and(|metric| metric.level <= level);
            let tags: Vec<_> = [("gpu", &*number)].into_iter().chain(figure.tag).collect();
            is_collected.then(|| Slot::tagged(figure.metric, &tags))
        };
        let figures = FIGURES.iter().map(slot).collect();
        let processes = ProcessSlots::default();
        Self { figures, parts: BTreeMap::new(), xids: BTreeMap::new(), processes, level, number }
    }

    pub fn put(&mut self, reading: &GpuReading, out: &mut Out<'_>) {
        let with_xids = describe(XIDS).is_some_and(|metric| metric.level <= self.level);
        for (xid, times) in reading.xids.iter().filter(|_| with_xids).take(XIDS_MAX) {
            let tags = [("gpu", &*self.number), ("xid", &*xid.to_string())];
            let slot = self.xids.entry(*xid).or_insert_with(|| Slot::tagged(XIDS, &tags));
            out.int(slot, *times);
        }
        // A GPU that is down tells nothing but that and why.
        let told = if reading.up { FIGURES.len() } else { 1 };
        for (figure, slot) in FIGURES.iter().zip(&mut self.figures).take(told) {
            if let (Some(slot), Some(value)) = (slot, (figure.of)(reading)) {
                out.put(slot, value);
            }
        }
        if !reading.up {
            return;
        }
        for part in reading.parts.iter().take(PARTS_MAX) {
            self.put_part(part, out);
        }
    }

    fn put_part(&mut self, part: &GpuPart, out: &mut Out<'_>) {
        let GpuPart { kind, number, utilization_percent, memory_used_bytes, memory_size_bytes } = part;
        let tags = [("gpu", &*self.number), (kind.tag(), &*number.to_string())];
        let slots = self.parts.entry((kind.tag(), *number));
        let slots = slots.or_insert_with(|| OF_PARTS.map(|metric| Slot::tagged(metric, &tags)));
        let values = [float(*utilization_percent), int(*memory_used_bytes), int(*memory_size_bytes)];
        for (slot, value) in slots.iter_mut().zip(values) {
            if let Some(value) = value {
                out.put(slot, value);
            }
        }
    }

    /// Those of our user among `processes`, by their number and bytes.
    pub fn put_processes(&mut self, processes: &[(u32, u64)], tree: &Tree, uid: u32, out: &mut Out<'_>) {
        self.processes.put(&self.number, processes, tree, uid, out);
    }
}

/// Series of processes on one GPU.
#[derive(Debug, Default)]
pub struct ProcessSlots(BTreeMap<u32, (String, Slot)>);

impl ProcessSlots {
    /// Those of our user among `processes`, by their number and bytes.
    pub fn put(&mut self, gpu: &str, processes: &[(u32, u64)], tree: &Tree, uid: u32, out: &mut Out<'_>) {
        let mut before = std::mem::take(&mut self.0);
        for (pid, bytes) in processes.iter().take(GPU_PROCESSES_MAX) {
            let Some(comm) = comm_of(tree, *pid, uid) else { continue };
            let known = before.remove(pid).filter(|(name, _)| *name == comm);
            let (comm, mut slot) = known.unwrap_or_else(|| {
                let tags = [("comm", &*comm), ("gpu", gpu), ("pid", &*pid.to_string())];
                let slot = Slot::tagged(PROCESS_MEMORY, &tags);
                (comm, slot)
            });
            out.int(&mut slot, *bytes);
            self.0.insert(*pid, (comm, slot));
        }
    }
}

/// What a process of that user is called; `None` when it is another's, or gone.
fn comm_of(tree: &Tree, pid: u32, uid: u32) -> Option<String> {
    let dir = tree.path(format!("proc/{pid}"));
    fs::metadata(&dir).ok().filter(|process| process.uid() == uid)?;
    let mut buffer = Vec::new();
    let comm = read(&dir.join("comm"), &mut buffer)?;
    Some(String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm)).into_owned())
}
