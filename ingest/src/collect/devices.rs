//! Counters of several devices of one kind: their sum, or each device instead of the sum.
//!
//! Disks and network interfaces count only if they are hardware. A partition, a bridge or a mapped device lies on top
//! of hardware, and would count the same bytes again.

use std::path::PathBuf;

use super::series::{Out, Slot};
use super::source::Tree;

/// Most devices of one kind that are known at one tick; those beyond it are left out.
pub const DEVICES_MAX: usize = 1_024;

/// How a counter of the kernel becomes a value.
#[derive(Clone, Copy, Debug)]
pub enum Scale {
    /// As it is, times a whole number.
    Times(u64),
    /// Milliseconds, reported in seconds.
    Millis,
}

/// One metric of a device and its place among the device's numbers.
#[derive(Clone, Copy, Debug)]
pub struct DeviceColumn {
    pub metric: &'static str,
    pub at: usize,
    pub scale: Scale,
}

/// The numbers of one device at one tick.
pub type DeviceNumbers = [u64; 17];

#[derive(Debug)]
pub struct Devices {
    columns: &'static [DeviceColumn],
    each: bool,
    sum: Vec<Slot>,
    known: Vec<Device>,
    /// Where the next device is looked for first: files keep their order.
    next: usize,
    class: PathBuf,
    /// Whether the class of devices exists in `/sys` at all.
    class_exists: bool,
}

#[derive(Debug)]
struct Device {
    name: Box<[u8]>,
    hardware: bool,
    /// Made at the first sample of its own.
    slots: Vec<Slot>,
    /// Of the tick that is being sampled.
    now: Option<DeviceNumbers>,
}

impl Devices {
    /// `class`: the directory of `/sys` with an entry for each device, and `device` in that for hardware.
    pub fn new(tree: &Tree, class: &str, columns: &'static [DeviceColumn], level: u8) -> Self {
        let class = tree.path(class);
        Self {
            columns,
            each: level >= 3,
            sum: columns.iter().map(|column| Slot::new(column.metric)).collect(),
            known: Vec::new(),
            next: 0,
            class_exists: class.is_dir(),
            class,
        }
    }

    /// Takes the numbers of a device for this tick. `guess` says whether it is hardware where `/sys` does not.
    pub fn take(&mut self, name: &[u8], numbers: DeviceNumbers, guess: impl FnOnce(&[u8]) -> bool) {
        let places = self.known.len();
        let found = (0..places).map(|step| (self.next + step) % places).find(|at| *self.known[*at].name == *name);
        let at = match found {
            Some(at) => at,
            None => {
                if places >= DEVICES_MAX {
                    // Containers come and go with interfaces of ever new names.
                    self.known.retain(|device| device.now.is_some());
                }
                if self.known.len() >= DEVICES_MAX {
                    return;
                }
                let hardware = self.is_hardware(name).unwrap_or_else(|| guess(name));
                self.known.push(Device { name: name.into(), hardware, slots: Vec::new(), now: None });
                self.known.len() - 1
            }
        };
        self.known[at].now = Some(numbers);
        self.next = at + 1;
    }

    /// `None` when `/sys` cannot say.
    fn is_hardware(&self, name: &[u8]) -> Option<bool> {
        let plain = |name: &&str| !name.contains('/') && !name.starts_with('.');
        let name = std::str::from_utf8(name).ok().filter(plain)?;
        self.class_exists.then(|| self.class.join(name).join("device").exists())
    }

    /// Puts what was taken since the last call. `otherwise` tells which devices count where none is hardware.
    pub fn put(&mut self, out: &mut Out<'_>, otherwise: impl Fn(&[u8]) -> bool) {
        let any_hardware = self.known.iter().any(|device| device.hardware && device.now.is_some());
        let mut sums = None;
        for device in &mut self.known {
            let Some(numbers) = device.now.take() else { continue };
            let counts = if any_hardware { device.hardware } else { otherwise(&device.name) };
            if !counts {
                continue;
            }
            if self.each {
                if device.slots.is_empty() {
                    let name = String::from_utf8_lossy(&device.name);
                    let slot = |column: &DeviceColumn| Slot::tagged(column.metric, &[("device", &*name)]);
                    device.slots = self.columns.iter().map(slot).collect();
                }
                put(self.columns, &mut device.slots, &numbers, out);
            } else {
                let sums: &mut DeviceNumbers = sums.get_or_insert_default();
                for (sum, number) in sums.iter_mut().zip(numbers) {
                    *sum = sum.saturating_add(number);
                }
            }
        }
        if let Some(sums) = sums {
            put(self.columns, &mut self.sum, &sums, out);
        }
    }
}

fn put(columns: &[DeviceColumn], slots: &mut [Slot], numbers: &DeviceNumbers, out: &mut Out<'_>) {
    for (column, slot) in columns.iter().zip(slots) {
        let number = numbers[column.at];
        match column.scale {
            Scale::Times(factor) => out.int(slot, number.saturating_mul(factor)),
            Scale::Millis => out.float(slot, number as f64 / 1_000.0),
        }
    }
}
