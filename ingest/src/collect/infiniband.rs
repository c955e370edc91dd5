//! `/sys/class/infiniband`: bytes and packets that InfiniBand and Omni-Path ports received and sent, RDMA included.
//!
//! Reading a counter is a request to the card, so it is read at most once a second, however short the interval.

use std::fs;
use std::time::Duration;

use super::inventory::DeviceKind;
use super::sampler::{Found, Subject};
use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::text::{fields, number};

/// Most ports that are read; those beyond it are left out.
pub const PORTS_MAX: usize = 64;
/// How often counters are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The unit of the counters, in bytes.
const LANES: u64 = 4;

const RECEIVED: &str = "node_infiniband_port_data_received_bytes_total";
const TRANSMITTED: &str = "node_infiniband_port_data_transmitted_bytes_total";

#[derive(Debug)]
pub struct InfiniBand {
    tree: Tree,
    each: bool,
    ports: Vec<Port>,
    sum: [Slot; 2],
}

#[derive(Debug)]
struct Port {
    name: (String, String),
    counters: [Source; 2],
    slots: [Slot; 2],
}

impl InfiniBand {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { tree: tree.clone(), each: level >= 3, ports: Vec::new(), sum: [RECEIVED, TRANSMITTED].map(Slot::new) }
    }
}

impl Subject for InfiniBand {
    fn search(&mut self) {
        let class = self.tree.path("sys/class/infiniband");
        let names = |path| -> Vec<String> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            names.sort();
            names
        };
        let mut ports = Vec::new();
        for device in names(class.clone()) {
            for port in names(class.join(&device).join("ports")) {
                ports.push((device.clone(), port));
            }
        }
        ports.truncate(PORTS_MAX);
        self.ports.retain(|port| ports.contains(&port.name));
        for (device, port) in ports {
            if self.ports.iter().any(|known| known.name.0 == device && known.name.1 == port) {
                continue;
            }
            let counters = class.join(&device).join("ports").join(&port).join("counters");
            let tags = [("device", &*device), ("port", &*port)];
            self.ports.push(Port {
                counters: ["port_rcv_data", "port_xmit_data"].map(|file| Source::new(counters.join(file))),
                slots: [RECEIVED, TRANSMITTED].map(|metric| Slot::tagged(metric, &tags)),
                name: (device, port),
            });
        }
    }

    fn found(&self) -> Vec<Found> {
        vec![if self.ports.is_empty() { Found::Absent } else { Found::Present }]
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Nic)
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let mut sums = [None; 2];
        for Port { counters, slots, .. } in &mut self.ports {
            for ((counter, slot), sum) in counters.iter_mut().zip(slots).zip(&mut sums) {
                let read = counter.read().and_then(|text| number(fields(text).next()?));
                let Some(bytes) = read.map(|lanes| lanes.saturating_mul(LANES)) else { continue };
                if self.each {
                    out.int(slot, bytes);
                }
                *sum = Some(sum.unwrap_or(0u64).saturating_add(bytes));
            }
        }
        if !self.each {
            for (slot, sum) in self.sum.iter_mut().zip(sums) {
                if let Some(bytes) = sum {
                    out.int(slot, bytes);
                }
            }
        }
    }
}
