//! `/proc/diskstats`: reads and writes of disks.

use super::devices::{DeviceColumn, DeviceNumbers, Devices, Scale};
use super::series::Out;
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, numbers};

/// A sector of the kernel's statistics, whatever the disk's own is.
const SECTOR_BYTES: u64 = 512;

const COLUMNS: &[DeviceColumn] = &[
    DeviceColumn { metric: "node_disk_reads_completed_total", at: 0, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_disk_read_bytes_total", at: 2, scale: Scale::Times(SECTOR_BYTES) },
    DeviceColumn { metric: "node_disk_read_time_seconds_total", at: 3, scale: Scale::Millis },
    DeviceColumn { metric: "node_disk_writes_completed_total", at: 4, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_disk_written_bytes_total", at: 6, scale: Scale::Times(SECTOR_BYTES) },
    DeviceColumn { metric: "node_disk_write_time_seconds_total", at: 7, scale: Scale::Millis },
    DeviceColumn { metric: "node_disk_io_now", at: 8, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_disk_io_time_seconds_total", at: 9, scale: Scale::Millis },
    DeviceColumn { metric: "node_disk_io_time_weighted_seconds_total", at: 10, scale: Scale::Millis },
];

/// Names of block devices and their numbers after the name; the first 11 are as old as the file.
pub fn parse(text: &[u8]) -> impl Iterator<Item = (&[u8], DeviceNumbers)> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        let name = fields.nth(2)?;
        let first: [u64; 11] = numbers(&mut fields)?;
        let mut all = DeviceNumbers::default();
        all[..first.len()].copy_from_slice(&first);
        Some((name, all))
    })
}

#[derive(Debug)]
pub struct Disks {
    file: Source,
    devices: Devices,
}

impl Disks {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { file: tree.file("proc/diskstats"), devices: Devices::new(tree, "sys/block", COLUMNS, level) }
    }
}

impl Subject for Disks {
    fn sample(&mut self, out: &mut Out<'_>) {
        let Some(text) = self.file.read() else { return };
        for (name, numbers) in parse(text) {
            // CD drives are hardware too, and tell nothing.
            if !name.starts_with(b"sr") {
                self.devices.take(name, numbers, is_disk);
            }
        }
        self.devices.put(out, |_| false);
    }
}

/// Whether this is the name of a whole disk, where there is no `/sys` to say so.
pub fn is_disk(name: &[u8]) -> bool {
    let letters = |prefix: &[u8]| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_lowercase))
    };
    // nvme0n1 is a disk and nvme0n1p1 a partition; mmcblk0 and mmcblk0p1 likewise.
    let numbered = (name.starts_with(b"nvme") && name[4..].contains(&b'n')) || name.starts_with(b"mmcblk");
    let partition = name.iter().rev().skip_while(|byte| byte.is_ascii_digit()).take(1).any(|byte| *byte == b'p');
    [b"sd".as_slice(), b"vd", b"xvd", b"hd", b"dasd"].into_iter().any(letters) || (numbered && !partition)
}
