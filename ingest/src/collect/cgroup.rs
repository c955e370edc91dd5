//! `/sys/fs/cgroup`: memory, CPU time and I/O of the job that telem stands in, by the control group that the scheduler
//! made for it, version 1 and 2.
//!
//! The one idea: the own path leads to it ([`path`]), and no name is guessed. Slurm calls the same directory `job_4711`
//! or by a SLUID. From the own directory it goes up to the child of the scheduler's own, which holds all steps of the
//! job. Only that one is told and so has no tag: a step is a part of its job, and both together would count twice.
//!
//! A process that stands in no job is told nothing of: the scope of a user's session or the service of a daemon hold
//! what nobody asked about, and on a cluster without such groups the service of the scheduler would hold all jobs. A
//! container is told of: its group has the limits that it lives with. All files are memory of the kernel and readable
//! by everybody.

mod path;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::devices::DEVICES_MAX;
use super::inventory::{DeviceKind, InventoryEntry};
use super::pace::Pace;
use super::pressure;
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::{SourceState, Subject};
use super::text::{fields, lines, number};
pub(super) use path::scheduler_level;
use path::{CgroupDirectories, Sight, directories};
#[cfg(test)]
pub(super) use tests::parse_as_everything;

/// `memory.stat` adds up all groups below, which may take milliseconds on a large node; limits and CPUs hardly change.
const SLOW_INTERVAL: Duration = Duration::from_secs(5);
/// From here on a number of version 1 means that there is no limit: it is 2⁶³ cut to whole pages.
const NO_LIMIT: u64 = 1 << 62;

const READ: &str = "cgroup_io_read_bytes_total";
const WRITTEN: &str = "cgroup_io_written_bytes_total";

/// What a number of a file counts.
#[derive(Clone, Copy, Debug)]
enum CgroupUnit {
    /// Bytes and events, as they are.
    One,
    Micros,
    Nanos,
    /// Of 0.01 s, whatever the kernel's own clock does.
    Ticks,
}

/// A line `KEY NUMBER`.
#[derive(Debug)]
struct CgroupKey {
    key: &'static str,
    unit: CgroupUnit,
    slot: Slot,
}

/// How a file is read.
#[derive(Debug)]
enum CgroupContent {
    Number(Slot),
    Limit(Slot),
    Keys(Vec<CgroupKey>),
    /// A list of CPUs.
    Cpus(Slot),
    Pressure([Slot; 2]),
    Io(IoFormat),
}

#[derive(Clone, Copy, Debug)]
enum IoFormat {
    /// `259:0 rbytes=4096 wbytes=8192`.
    Stat,
    /// `8:0 Read 4096`, a line for each way.
    Blkio,
}

#[derive(Debug)]
struct CgroupFile {
    source: Source,
    content: CgroupContent,
}

/// A device that the job read from or wrote to.
#[derive(Debug)]
struct IoDevice {
    /// `259:0`.
    number: Box<[u8]>,
    /// Where it is hardware, and its bytes are not those of another device below it.
    slots: Option<[Slot; 2]>,
    last: [Option<u64>; 2],
}

/// The control group of the job.
#[derive(Debug)]
pub struct Cgroup {
    tree: Tree,
    level: u8,
    directories: CgroupDirectories,
    found: SourceState,
    at_ticks: Vec<CgroupFile>,
    slowly: Vec<CgroupFile>,
    pace: Pace,
    devices: Vec<IoDevice>,
    io: [Slot; 2],
    limits: JobLimits,
    limits_told: JobLimits,
}

/// What the job may use of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct JobLimits {
    /// As a list: `0-31,64-95`.
    cpus: Option<String>,
    /// `None` inside where it has no limit.
    memory_bytes: Option<Option<u64>>,
}

impl Cgroup {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self {
            tree: tree.clone(),
            level,
            directories: CgroupDirectories::default(),
            found: SourceState::Absent,
            at_ticks: Vec::new(),
            slowly: Vec::new(),
            pace: Pace::every(SLOW_INTERVAL),
            devices: Vec::new(),
            io: [READ, WRITTEN].map(Slot::new),
            limits: JobLimits::default(),
            limits_told: JobLimits::default(),
        }
    }

    /// The files of these directories that are there: a controller may be missing in a subtree.
    fn open(&mut self, directories: CgroupDirectories) {
        let level = self.level;
        let file = |directory: &Option<PathBuf>, name: &str, content| {
            let path = directory.as_ref()?.join(name);
            path.exists().then(|| CgroupFile { source: Source::new(path), content })
        };
        let number = |metric| CgroupContent::Number(Slot::new(metric));
        let keys = |keys: &[(&'static str, CgroupUnit, &'static str)]| {
            let all = keys.iter().map(|&(key, unit, metric)| CgroupKey { key, unit, slot: Slot::new(metric) });
            CgroupContent::Keys(all.collect())
        };
        let pressure = |metrics: [&'static str; 2]| CgroupContent::Pressure(metrics.map(Slot::new));
        use CgroupUnit::{Micros, Nanos, One, Ticks};
        let CgroupDirectories { unified, memory, cpu, cpuacct, cpuset, blkio } = &directories;
        let mut at_ticks = vec![
            file(unified, "memory.current", number("cgroup_memory_used_bytes")),
            file(unified, "memory.peak", number("cgroup_memory_peak_bytes")),
            file(
                unified,
                "memory.events",
                keys(&[
                    ("oom_kill", One, "cgroup_memory_oom_kills_total"),
                    ("max", One, "cgroup_memory_limit_hits_total"),
                ]),
            ),
            file(
                unified,
                "cpu.stat",
                keys(&[
                    ("user_usec", Micros, "cgroup_cpu_user_seconds_total"),
                    ("system_usec", Micros, "cgroup_cpu_system_seconds_total"),
                    ("throttled_usec", Micros, "cgroup_cpu_throttled_seconds_total"),
                ]),
            ),
            file(unified, "io.stat", CgroupContent::Io(IoFormat::Stat)),
            file(memory, "memory.usage_in_bytes", number("cgroup_memory_used_bytes")),
            file(memory, "memory.max_usage_in_bytes", number("cgroup_memory_peak_bytes")),
            file(memory, "memory.oom_control", keys(&[("oom_kill", One, "cgroup_memory_oom_kills_total")])),
            file(memory, "memory.failcnt", number("cgroup_memory_limit_hits_total")),
            file(
                cpuacct,
                "cpuacct.stat",
                keys(&[
                    ("user", Ticks, "cgroup_cpu_user_seconds_total"),
                    ("system", Ticks, "cgroup_cpu_system_seconds_total"),
                ]),
            ),
            file(cpu, "cpu.stat", keys(&[("throttled_time", Nanos, "cgroup_cpu_throttled_seconds_total")])),
        ];
        let blkio_file = |name| file(blkio, name, CgroupContent::Io(IoFormat::Blkio));
        at_ticks.push(
            blkio_file("blkio.throttle.io_service_bytes_recursive")
                .or_else(|| blkio_file("blkio.throttle.io_service_bytes")),
        );
        let mut slowly = vec![
            file(unified, "memory.max", CgroupContent::Limit(Slot::new("cgroup_memory_limit_bytes"))),
            file(memory, "memory.limit_in_bytes", CgroupContent::Limit(Slot::new("cgroup_memory_limit_bytes"))),
        ];
        let cpus = |directory, name| file(directory, name, CgroupContent::Cpus(Slot::new("cgroup_cpus")));
        slowly.push(
            cpus(unified, "cpuset.cpus.effective")
                .or_else(|| cpus(cpuset, "cpuset.effective_cpus"))
                .or_else(|| cpus(cpuset, "cpuset.cpus")),
        );
        if level >= 3 {
            let of_memory = |names: [&'static str; 3]| {
                let metrics = ["cgroup_memory_anon_bytes", "cgroup_memory_file_bytes", "cgroup_memory_shmem_bytes"];
                let [anon, file, shmem] = [0, 1, 2].map(|at| (names[at], One, metrics[at]));
                keys(&[anon, file, shmem])
            };
            slowly.push(file(unified, "memory.stat", of_memory(["anon", "file", "shmem"])));
            slowly.push(file(memory, "memory.stat", of_memory(["total_rss", "total_cache", "total_shmem"])));
            at_ticks.push(file(
                unified,
                "cpu.pressure",
                pressure(["cgroup_pressure_cpu_waiting_seconds_total", "cgroup_pressure_cpu_stalled_seconds_total"]),
            ));
            at_ticks.push(file(
                unified,
                "memory.pressure",
                pressure([
                    "cgroup_pressure_memory_waiting_seconds_total",
                    "cgroup_pressure_memory_stalled_seconds_total",
                ]),
            ));
            at_ticks.push(file(
                unified,
                "io.pressure",
                pressure(["cgroup_pressure_io_waiting_seconds_total", "cgroup_pressure_io_stalled_seconds_total"]),
            ));
        }
        (self.at_ticks, self.slowly) =
            (at_ticks.into_iter().flatten().collect(), slowly.into_iter().flatten().collect());
        self.devices.clear();
        self.directories = directories;
    }
}

impl Subject for Cgroup {
    fn search(&mut self) {
        let (directories, sight) = directories(&self.tree);
        self.found = match sight {
            Sight::InNoJob => SourceState::Absent,
            Sight::InJob => SourceState::Present,
            Sight::Hidden(path) => SourceState::Refused {
                path,
                why: "the control group of this job is not below it".to_owned(),
                remedy: "start the container so that it sees the host's /sys/fs/cgroup",
            },
        };
        if directories != self.directories {
            self.open(directories);
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        Cow::Borrowed(std::slice::from_ref(&self.found))
    }

    /// What the node has is told beside it: these are called `job`.
    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        if self.limits == self.limits_told {
            return None;
        }
        self.limits_told = self.limits.clone();
        let JobLimits { cpus, memory_bytes } = &self.limits;
        let cpus = cpus.as_ref().map(|cpus| InventoryEntry {
            model: format!("CPUs {cpus}"),
            ..InventoryEntry::new(DeviceKind::Cpu, "job")
        });
        let memory = memory_bytes.map(|bytes| InventoryEntry {
            memory_bytes: bytes,
            model: if bytes.is_none() { "no limit".to_owned() } else { String::new() },
            ..InventoryEntry::new(DeviceKind::Memory, "job")
        });
        Some(cpus.into_iter().chain(memory).collect())
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        if self.directories == CgroupDirectories::default() {
            return;
        }
        let Self { tree, level, at_ticks, slowly, pace, devices, io, limits, .. } = self;
        let due = pace.is_due(out);
        let slowly = if due { slowly.as_mut_slice() } else { &mut [] };
        for CgroupFile { source, content } in at_ticks.iter_mut().chain(slowly) {
            let Some(text) = source.read() else { continue };
            match content {
                CgroupContent::Number(slot) => {
                    if let Some(value) = fields(text).next().and_then(number) {
                        out.int(slot, value);
                    }
                }
                CgroupContent::Limit(slot) => {
                    let limit = fields(text).next().and_then(number).filter(|value| *value < NO_LIMIT);
                    limits.memory_bytes = Some(limit);
                    if let Some(bytes) = limit {
                        out.int(slot, bytes);
                    }
                }
                CgroupContent::Keys(keys) => put_keys(keys, text, out),
                CgroupContent::Cpus(slot) => {
                    limits.cpus = count_cpus(text).map(|_| String::from_utf8_lossy(text).trim().to_owned());
                    if let Some(cpus) = count_cpus(text) {
                        out.int(slot, cpus);
                    }
                }
                CgroupContent::Pressure(slots) => {
                    let pressure::WaitTimes { some, full } = pressure::parse(text);
                    for (slot, micros) in slots.iter_mut().zip([some, full]) {
                        if let Some(micros) = micros {
                            out.float(slot, (micros / 100) as f64 / 10_000.0);
                        }
                    }
                }
                CgroupContent::Io(format) => {
                    for (device, way, bytes) in parse_io(text, *format) {
                        let at = devices.iter().position(|known| *known.number == *device).or_else(|| {
                            (devices.len() < DEVICES_MAX).then(|| {
                                devices.push(IoDevice::new(tree, device));
                                devices.len() - 1
                            })
                        });
                        let Some(IoDevice { slots: Some(slots), last, .. }) = at.and_then(|at| devices.get_mut(at))
                        else {
                            continue;
                        };
                        last[way as usize] = Some(bytes);
                        if *level >= 3 {
                            out.int(&mut slots[way as usize], bytes);
                        }
                    }
                    if *level < 3 {
                        for (way, slot) in io.iter_mut().enumerate() {
                            // What a device that went had is kept: the sum only grows.
                            let all = devices.iter().filter_map(|device| device.last[way]);
                            if let Some(sum) = all.reduce(u64::saturating_add) {
                                out.int(slot, sum);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn put_keys(keys: &mut [CgroupKey], text: &[u8], out: &mut Out<'_>) {
    for (name, value) in parse_keys(text) {
        let Some(CgroupKey { unit, slot, .. }) = keys.iter_mut().find(|known| known.key.as_bytes() == name) else {
            continue;
        };
        match unit {
            CgroupUnit::One => out.int(slot, value),
            CgroupUnit::Micros => out.float(slot, value as f64 / 1e6),
            CgroupUnit::Nanos => out.float(slot, value as f64 / 1e9),
            CgroupUnit::Ticks => out.float(slot, value as f64 / 100.0),
        }
    }
}

impl IoDevice {
    /// A device on top of others (`dm-0`, `md127`) has the bytes of those, which are told as well.
    fn new(tree: &Tree, number: &[u8]) -> Self {
        let plain = number.iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
        let text = String::from_utf8_lossy(number).into_owned();
        let directory = plain.then(|| tree.path(Path::new("sys/dev/block").join(&text))).filter(|path| path.is_dir());
        let is_hardware = directory.as_ref().is_none_or(|directory| directory.join("device").exists());
        let uevent = directory.and_then(|directory| fs::read_to_string(directory.join("uevent")).ok());
        let name = uevent.iter().flat_map(|text| text.lines()).find_map(|line| line.strip_prefix("DEVNAME="));
        let tags = [("device", name.unwrap_or(&text))];
        let slots = is_hardware.then(|| [READ, WRITTEN].map(|metric| Slot::tagged(metric, &tags)));
        Self { number: number.into(), slots, last: [None; 2] }
    }
}

/// Which way data went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoWay {
    Read,
    Written,
}

/// Lines `KEY NUMBER`.
pub(crate) fn parse_keys(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        Some((fields.next()?, number(fields.next()?)?))
    })
}

fn parse_io(text: &[u8], format: IoFormat) -> Vec<(&[u8], IoWay, u64)> {
    match format {
        IoFormat::Stat => parse_io_stat(text),
        IoFormat::Blkio => parse_blkio(text),
    }
}

/// Devices and bytes of `io.stat`.
pub(crate) fn parse_io_stat(text: &[u8]) -> Vec<(&[u8], IoWay, u64)> {
    let mut all = Vec::new();
    for line in lines(text) {
        let mut fields = fields(line);
        let Some(device) = fields.next() else { continue };
        for field in fields {
            let read = field.strip_prefix(b"rbytes=").map(|bytes| (IoWay::Read, bytes));
            let found = read.or_else(|| field.strip_prefix(b"wbytes=").map(|bytes| (IoWay::Written, bytes)));
            if let Some((way, bytes)) = found
                && let Some(bytes) = number(bytes)
            {
                all.push((device, way, bytes));
            }
        }
    }
    all
}

/// Devices and bytes of `blkio.throttle.io_service_bytes`.
pub(crate) fn parse_blkio(text: &[u8]) -> Vec<(&[u8], IoWay, u64)> {
    let parse = |line| {
        let mut fields = fields(line);
        let device = fields.next()?;
        let way = match fields.next()? {
            b"Read" => IoWay::Read,
            b"Write" => IoWay::Written,
            _ => return None,
        };
        Some((device, way, number(fields.next()?)?))
    };
    lines(text).filter_map(parse).collect()
}

/// How many CPUs `0-31,64-95` names; `None` where it is no such list or an empty one.
pub(crate) fn count_cpus(text: &[u8]) -> Option<u64> {
    let list = fields(text).next()?;
    let mut count = 0u64;
    for part in list.split(|byte| *byte == b',') {
        let mut ends = part.splitn(2, |byte| *byte == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}
