//! `/proc/net/dev`: bytes and packets that network interfaces received and sent.

use super::devices::{DeviceColumn, DeviceNumbers, Devices, Scale};
use super::series::Out;
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, numbers};

const COLUMNS: &[DeviceColumn] = &[
    DeviceColumn { metric: "node_network_receive_bytes_total", at: 0, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_receive_packets_total", at: 1, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_receive_errs_total", at: 2, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_receive_drop_total", at: 3, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_transmit_bytes_total", at: 8, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_transmit_packets_total", at: 9, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_transmit_errs_total", at: 10, scale: Scale::Times(1) },
    DeviceColumn { metric: "node_network_transmit_drop_total", at: 11, scale: Scale::Times(1) },
];

/// Names of interfaces and their 16 numbers.
pub fn parse(text: &[u8]) -> impl Iterator<Item = (&[u8], DeviceNumbers)> {
    lines(text).filter_map(|line| {
        // A large number may follow the colon without a blank; an alias has a colon in its name.
        let colon = line.iter().rposition(|byte| *byte == b':')?;
        let name = fields(&line[..colon]).next()?;
        let sixteen: [u64; 16] = numbers(&mut fields(&line[colon + 1..]))?;
        let mut all = DeviceNumbers::default();
        all[..sixteen.len()].copy_from_slice(&sixteen);
        Some((name, all))
    })
}

#[derive(Debug)]
pub struct Network {
    file: Source,
    devices: Devices,
}

impl Network {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { file: tree.file_of_view("net/dev"), devices: Devices::new(tree, "sys/class/net", COLUMNS, level) }
    }
}

impl Subject for Network {
    fn sample(&mut self, out: &mut Out<'_>) {
        let Some(text) = self.file.read() else { return out.lacks("network interfaces") };
        let mut told = false;
        for (name, numbers) in parse(text) {
            told = true;
            self.devices.take(name, numbers, |_| false);
        }
        // Loopback at least is everywhere.
        if !told {
            out.lacks("network interfaces");
        }
        // In a container none may be hardware.
        self.devices.put(out, |name| name != b"lo");
    }
}
