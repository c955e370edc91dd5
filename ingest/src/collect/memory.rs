//! `/proc/meminfo` and `/proc/vmstat`: memory, swap, faults.

use super::inventory::{DeviceKind, InventoryEntry};
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, number};
use super::two_decimals;

/// Names of the kernel and ours.
type FieldNames = &'static [(&'static str, &'static str)];

const MEMINFO: FieldNames = &[
    ("MemTotal", "node_memory_MemTotal_bytes"),
    ("MemFree", "node_memory_MemFree_bytes"),
    ("MemAvailable", "node_memory_MemAvailable_bytes"),
    ("Buffers", "node_memory_Buffers_bytes"),
    ("Cached", "node_memory_Cached_bytes"),
    ("SwapCached", "node_memory_SwapCached_bytes"),
    ("Active", "node_memory_Active_bytes"),
    ("Inactive", "node_memory_Inactive_bytes"),
    ("Unevictable", "node_memory_Unevictable_bytes"),
    ("SwapTotal", "node_memory_SwapTotal_bytes"),
    ("SwapFree", "node_memory_SwapFree_bytes"),
    ("Dirty", "node_memory_Dirty_bytes"),
    ("Writeback", "node_memory_Writeback_bytes"),
    ("AnonPages", "node_memory_AnonPages_bytes"),
    ("Mapped", "node_memory_Mapped_bytes"),
    ("Shmem", "node_memory_Shmem_bytes"),
    ("Slab", "node_memory_Slab_bytes"),
    ("SReclaimable", "node_memory_SReclaimable_bytes"),
    ("SUnreclaim", "node_memory_SUnreclaim_bytes"),
    ("KernelStack", "node_memory_KernelStack_bytes"),
    ("PageTables", "node_memory_PageTables_bytes"),
    ("Committed_AS", "node_memory_Committed_AS_bytes"),
    ("AnonHugePages", "node_memory_AnonHugePages_bytes"),
    ("HugePages_Total", "node_memory_HugePages_Total"),
    ("HugePages_Free", "node_memory_HugePages_Free"),
    ("Hugepagesize", "node_memory_Hugepagesize_bytes"),
];

const VMSTAT: FieldNames = &[
    ("pgpgin", "node_vmstat_pgpgin"),
    ("pgpgout", "node_vmstat_pgpgout"),
    ("pswpin", "node_vmstat_pswpin"),
    ("pswpout", "node_vmstat_pswpout"),
    ("pgfault", "node_vmstat_pgfault"),
    ("pgmajfault", "node_vmstat_pgmajfault"),
    ("oom_kill", "node_vmstat_oom_kill"),
];

/// The names of a file with one a line, each with the rest of its line: of most lines nothing more is looked at.
pub fn entries(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(text).filter_map(|line| {
        let (name, rest) = line.split_at(memchr::memchr(b' ', line)?);
        Some((name.strip_suffix(b":").unwrap_or(name), rest))
    })
}

/// The number that follows a name, in bytes where it says kB.
pub fn bytes(rest: &[u8]) -> Option<u64> {
    let mut fields = fields(rest);
    let number = number(fields.next()?)?;
    let scale = if fields.next() == Some(b"kB") { 1_024 } else { 1 };
    number.checked_mul(scale).filter(|bytes| *bytes <= i64::MAX as u64)
}

/// psutil's percent: what could not be given to a new process.
pub fn used_percent(total: u64, available: u64) -> Option<f64> {
    (total > 0).then(|| two_decimals(total.saturating_sub(available) as f64 / total as f64 * 100.0))
}

/// The wanted lines of one file.
#[derive(Debug)]
struct MemoryFields {
    names: FieldNames,
    slots: Vec<Slot>,
    /// Where the next line is looked for first: files keep their order.
    next: usize,
}

impl MemoryFields {
    fn new(names: FieldNames) -> Self {
        Self { names, slots: names.iter().map(|(_, metric)| Slot::new(metric)).collect(), next: 0 }
    }

    fn find(&mut self, name: &[u8]) -> Option<&mut Slot> {
        let places = self.names.len();
        let at = (0..places).map(|step| (self.next + step) % places).find(|at| self.names[*at].0.as_bytes() == name)?;
        self.next = (at + 1) % places;
        self.slots.get_mut(at)
    }
}

#[derive(Debug)]
pub struct Memory {
    meminfo: Source,
    vmstat: Source,
    sizes: MemoryFields,
    events: MemoryFields,
    used: Slot,
    /// In bytes, as the inventory has it.
    size: Option<u64>,
    /// The inventory has not heard of it.
    news: Option<u64>,
}

impl Memory {
    pub fn new(tree: &Tree) -> Self {
        Self {
            meminfo: tree.file("proc/meminfo"),
            vmstat: tree.file("proc/vmstat"),
            sizes: MemoryFields::new(MEMINFO),
            events: MemoryFields::new(VMSTAT),
            used: Slot::new("used_RAM"),
            size: None,
            news: None,
        }
    }
}

impl Subject for Memory {
    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        let bytes = self.news.take()?;
        Some(vec![InventoryEntry { memory_bytes: Some(bytes), ..InventoryEntry::new(DeviceKind::Memory, "memory") }])
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut told = false;
        if let Some(text) = self.meminfo.read() {
            let (mut total, mut available) = (0, None);
            for (name, rest) in entries(text) {
                let Some(slot) = self.sizes.find(name) else { continue };
                let Some(bytes) = bytes(rest) else { continue };
                match name {
                    b"MemTotal" => total = bytes,
                    b"MemAvailable" => available = Some(bytes),
                    _ => {}
                }
                told = true;
                out.int(slot, bytes);
            }
            if total > 0 && self.size.replace(total) != Some(total) {
                self.news = Some(total);
            }
            if let Some(percent) = available.and_then(|available| used_percent(total, available)) {
                out.float(&mut self.used, percent);
            }
        }
        if !told {
            out.lacks("memory");
        }
        if let Some(text) = self.vmstat.read() {
            for (name, rest) in entries(text) {
                let Some(slot) = self.events.find(name) else { continue };
                if let Some(count) = bytes(rest) {
                    out.int(slot, count);
                }
            }
        }
    }
}
