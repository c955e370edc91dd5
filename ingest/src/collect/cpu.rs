//! `/proc/stat`: CPU time by mode, switches, forks, interrupts.
//!
//! Below level 3 the kernel's sum over all CPUs is collected; from level 3 on, each CPU instead.

use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, number, numbers};
use super::two_decimals;

/// Ticks a second, in which Linux tells times to programs. 100 on every architecture that it still runs on.
pub const TICKS_PER_SECOND: f64 = 100.0;
/// Most CPUs that get series of their own at level 3. The largest nodes of today have 1,024 threads.
pub const CPUS_MAX: usize = 4_096;

const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
const IDLE: usize = 3;
const IOWAIT: usize = 4;
/// Idle and iowait are estimates that the kernel takes back a little at times; further back is another start.
const BACKWARDS_MAX: u64 = 3 * TICKS_PER_SECOND as u64;

/// Ticks by mode, in the order of [`MODES`].
pub type CpuTicks = [u64; MODES.len()];

/// What one line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLine {
    All(CpuTicks),
    Cpu(u32, CpuTicks),
    Interrupts(u64),
    ContextSwitches(u64),
    BootTime(u64),
    Forks(u64),
    Running(u64),
    Blocked(u64),
}

pub fn parse(text: &[u8]) -> impl Iterator<Item = CpuLine> + '_ {
    lines(text).filter_map(line)
}

fn line(line: &[u8]) -> Option<CpuLine> {
    let mut fields = fields(line);
    let first = fields.next()?;
    let mut one = || number(fields.next()?);
    Some(match first {
        b"intr" => CpuLine::Interrupts(one()?),
        b"ctxt" => CpuLine::ContextSwitches(one()?),
        b"btime" => CpuLine::BootTime(one()?),
        b"processes" => CpuLine::Forks(one()?),
        b"procs_running" => CpuLine::Running(one()?),
        b"procs_blocked" => CpuLine::Blocked(one()?),
        b"cpu" => CpuLine::All(numbers(&mut fields)?),
        _ => {
            let cpu = number(first.strip_prefix(b"cpu")?)?;
            CpuLine::Cpu(u32::try_from(cpu).ok()?, numbers(&mut fields)?)
        }
    })
}

/// Percent of the time between two readings that was neither idle nor waiting for I/O, as psutil counts it;
/// `None` when no time passed.
pub fn busy_percent(before: &CpuTicks, now: &CpuTicks) -> Option<f64> {
    let passed = |mode: usize| now[mode].saturating_sub(before[mode]);
    let all: u64 = (0..MODES.len()).map(passed).fold(0, u64::saturating_add);
    let busy = all - passed(IDLE).saturating_add(passed(IOWAIT)).min(all);
    (all > 0).then(|| two_decimals(busy as f64 / all as f64 * 100.0))
}

#[derive(Debug)]
pub struct Cpu {
    stat: Source,
    per_cpu: bool,
    /// The sum, or one each, by number.
    times: Vec<Option<CpuTimes>>,
    before: Option<CpuTicks>,
    busy: Slot,
    interrupts: Slot,
    switches: Slot,
    boot_time: Slot,
    forks: Slot,
    running: Slot,
    blocked: Slot,
}

/// The time of one CPU, or of all.
#[derive(Debug)]
struct CpuTimes {
    slots: [Slot; MODES.len()],
    last: CpuTicks,
}

impl CpuTimes {
    fn new(cpu: Option<u32>) -> Self {
        let number = cpu.map(|cpu| cpu.to_string());
        let slots = MODES.map(|mode| match &number {
            Some(cpu) => Slot::tagged("node_cpu_seconds_total", &[("cpu", cpu), ("mode", mode)]),
            None => Slot::tagged("node_cpu_seconds_total", &[("mode", mode)]),
        });
        Self { slots, last: CpuTicks::default() }
    }

    fn put(&mut self, ticks: &CpuTicks, out: &mut Out<'_>) {
        for (mode, slot) in self.slots.iter_mut().enumerate() {
            let (now, last) = (ticks[mode], &mut self.last[mode]);
            let taken_back = matches!(mode, IDLE | IOWAIT) && now < *last && *last - now < BACKWARDS_MAX;
            if !taken_back {
                *last = now;
            }
            out.float(slot, *last as f64 / TICKS_PER_SECOND);
        }
    }
}

impl Cpu {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self {
            stat: tree.file("proc/stat"),
            per_cpu: level >= 3,
            times: Vec::new(),
            before: None,
            busy: Slot::new("cpu_percent"),
            interrupts: Slot::new("node_intr_total"),
            switches: Slot::new("node_context_switches_total"),
            boot_time: Slot::new("node_boot_time_seconds"),
            forks: Slot::new("node_forks_total"),
            running: Slot::new("node_procs_running"),
            blocked: Slot::new("node_procs_blocked"),
        }
    }
}

impl Subject for Cpu {
    fn sample(&mut self, out: &mut Out<'_>) {
        let Some(text) = self.stat.read() else { return out.lacks("CPU times") };
        let mut told = false;
        for line in parse(text) {
            told |= matches!(line, CpuLine::All(_) | CpuLine::Cpu(..));
            match line {
                CpuLine::All(ticks) => {
                    if let Some(percent) = self.before.and_then(|before| busy_percent(&before, &ticks)) {
                        out.float(&mut self.busy, percent);
                    }
                    self.before = Some(ticks);
                    if !self.per_cpu {
                        put(&mut self.times, None, &ticks, out);
                    }
                }
                CpuLine::Cpu(cpu, ticks) if self.per_cpu => put(&mut self.times, Some(cpu), &ticks, out),
                CpuLine::Cpu(..) => {}
                CpuLine::Interrupts(count) => out.int(&mut self.interrupts, count),
                CpuLine::ContextSwitches(count) => out.int(&mut self.switches, count),
                CpuLine::BootTime(seconds) => out.int(&mut self.boot_time, seconds),
                CpuLine::Forks(count) => out.int(&mut self.forks, count),
                CpuLine::Running(count) => out.int(&mut self.running, count),
                CpuLine::Blocked(count) => out.int(&mut self.blocked, count),
            }
        }
        if !told {
            out.lacks("CPU times");
        }
    }
}

fn put(times: &mut Vec<Option<CpuTimes>>, cpu: Option<u32>, ticks: &CpuTicks, out: &mut Out<'_>) {
    let at = cpu.map_or(0, |cpu| cpu as usize);
    if at >= CPUS_MAX {
        return;
    }
    if times.len() <= at {
        times.resize_with(at + 1, || None);
    }
    times[at].get_or_insert_with(|| CpuTimes::new(cpu)).put(ticks, out);
}
