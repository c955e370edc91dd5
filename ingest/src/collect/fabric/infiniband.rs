//! `/sys/class/infiniband`: bytes, packets, errors and waits of InfiniBand, Omni-Path and RoCE ports, RDMA included.
//!
//! Reading a counter is a request to the card, so it is read at most once a second, however short the interval. Old
//! ports stop at 4294967295 instead of beginning anew: nothing grows there any more, and telem says what they say.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use super::{card, word};
use crate::collect::inventory::{DeviceKind, InventoryEntry};
use crate::collect::series::{Out, Slot};
use crate::collect::source::{Source, Tree, names_in};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::number;
use crate::collect::unwrapped::{Unwrapped, sum_of};

/// Most ports that are read; those beyond it are left out.
pub const PORTS_MAX: usize = 64;
/// How often counters are read.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The unit of the counters, in bytes.
const LANES: u64 = 4;

const RECEIVED: &str = "node_infiniband_port_data_received_bytes_total";
const TRANSMITTED: &str = "node_infiniband_port_data_transmitted_bytes_total";

/// Files of a port, and what they count.
const COUNTERS: &[(&str, &str)] = &[
    ("counters/port_xmit_wait", "node_infiniband_port_transmit_wait_total"),
    ("counters/port_rcv_packets", "node_infiniband_port_packets_received_total"),
    ("counters/port_xmit_packets", "node_infiniband_port_packets_transmitted_total"),
    ("counters/port_rcv_errors", "node_infiniband_port_errors_received_total"),
    ("counters/port_xmit_discards", "node_infiniband_port_discards_transmitted_total"),
    ("counters/symbol_error", "node_infiniband_symbol_error_total"),
    ("counters/link_downed", "node_infiniband_link_downed_total"),
    ("counters/link_error_recovery", "node_infiniband_link_error_recovery_total"),
    ("hw_counters/out_of_sequence", "node_infiniband_out_of_sequence_packets_received_total"),
    ("hw_counters/packet_seq_err", "node_infiniband_packet_sequence_errors_total"),
    ("hw_counters/local_ack_timeout_err", "node_infiniband_local_ack_timeout_errors_total"),
    ("hw_counters/rnr_nak_retry_err", "node_infiniband_rnr_nak_retry_packets_received_total"),
    ("hw_counters/np_cnp_sent", "node_infiniband_np_cnp_packets_sent_total"),
    ("hw_counters/np_ecn_marked_roce_packets", "node_infiniband_np_ecn_marked_roce_packets_received_total"),
    ("hw_counters/rp_cnp_handled", "node_infiniband_rp_cnp_packets_handled_total"),
    ("hw_counters/roce_adp_retrans", "node_infiniband_roce_adp_retransmits_total"),
];

/// Bytes of one way: the sum of some files.
#[derive(Debug)]
struct PortBytes {
    files: Vec<Source>,
    unit: u64,
    /// For the sum over all ports.
    counter: Unwrapped,
    slot: Slot,
}

impl PortBytes {
    /// `None` where a file says that the card does not know, such as `N/A (no PMA)`.
    fn read(&mut self) -> Option<u64> {
        let mut sum = None;
        for file in &mut self.files {
            sum = Some(file.number()?.saturating_mul(self.unit).saturating_add(sum.unwrap_or(0)));
        }
        sum
    }
}

#[derive(Debug)]
struct Port {
    name: (String, String),
    bytes: [PortBytes; 2],
    state: Source,
    state_slot: Slot,
    /// Those that this card has.
    counters: Vec<(Source, Slot)>,
}

impl Port {
    fn new(class: &Path, device: String, port: String, level: u8) -> Self {
        let dir = class.join(&device).join("ports").join(&port);
        let driver = card(&device, &class.join(&device).join("device")).driver;
        // Cards whose counters of lanes stay empty.
        let (unit, files): (u64, [&[&str]; 2]) = match driver.as_str() {
            "ionic" | "ionic_rdma" => (
                1,
                [
                    &["hw_counters/rx_rdma_ucast_bytes", "hw_counters/rx_rdma_mcast_bytes"],
                    &["hw_counters/tx_rdma_ucast_bytes", "hw_counters/tx_rdma_mcast_bytes"],
                ],
            ),
            "bnxt_en" | "bnxt_re" => (1, [&["hw_counters/rx_bytes"], &["hw_counters/tx_bytes"]]),
            _ => (LANES, [&["counters/port_rcv_data"], &["counters/port_xmit_data"]]),
        };
        let tags = [("device", &*device), ("port", &*port)];
        let bytes = |files: &[&str], metric| PortBytes {
            files: files.iter().map(|file| Source::new(dir.join(file))).collect(),
            unit,
            counter: Unwrapped::new(None),
            slot: Slot::tagged(metric, &tags),
        };
        let counters = COUNTERS.iter().filter(|_| level >= 3).map(|(file, metric)| (dir.join(file), metric));
        Self {
            bytes: [bytes(files[0], RECEIVED), bytes(files[1], TRANSMITTED)],
            state: Source::new(dir.join("state")),
            state_slot: Slot::tagged("node_infiniband_state_id", &tags),
            counters: counters
                .filter(|(path, _)| path.is_file())
                .map(|(path, metric)| (Source::new(path), Slot::tagged(metric, &tags)))
                .collect(),
            name: (device, port),
        }
    }
}

#[derive(Debug)]
pub struct InfiniBand {
    tree: Tree,
    level: u8,
    ports: Vec<Port>,
    sum: [Slot; 2],
    /// As of the last search, until they are told.
    cards: Option<Vec<InventoryEntry>>,
}

impl InfiniBand {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { tree: tree.clone(), level, ports: Vec::new(), sum: [RECEIVED, TRANSMITTED].map(Slot::new), cards: None }
    }
}

/// The number of `4: ACTIVE`.
pub(in crate::collect) fn parse_state(text: &[u8]) -> Option<u64> {
    number(text.split(|byte| *byte == b':').next()?)
}

/// A card with the rates of its ports, such as `MT4129, 400 Gb/sec (4X NDR)`.
fn describe_card(class: &Path, name: &str) -> InventoryEntry {
    let dir = class.join(name);
    let mut model = vec![word(&dir, "hca_type")];
    model.extend(names_in(&dir.join("ports")).iter().map(|port| word(&dir.join("ports").join(port), "rate")));
    model.retain(|part| !part.is_empty());
    InventoryEntry {
        model: model.join(", "),
        serial_or_uuid: word(&dir, "node_guid"),
        firmware: word(&dir, "fw_ver"),
        ..card(name, &dir.join("device"))
    }
}

impl Subject for InfiniBand {
    fn search(&mut self) {
        let class = self.tree.path("sys/class/infiniband");
        let mut ports = Vec::new();
        for device in names_in(&class) {
            for port in names_in(&class.join(&device).join("ports")) {
                ports.push((device.clone(), port));
            }
        }
        ports.truncate(PORTS_MAX);
        let mut names: Vec<String> = ports.iter().map(|(device, _)| device.clone()).collect();
        names.dedup();
        // One that is gone still counts in the sum, as it did last, and may come back.
        if self.ports.len() + ports.len() > 2 * PORTS_MAX {
            self.ports.retain(|port| ports.contains(&port.name));
        }
        for (device, port) in ports {
            if !self.ports.iter().any(|known| known.name.0 == device && known.name.1 == port) {
                self.ports.push(Port::new(&class, device, port, self.level));
            }
        }
        self.cards = Some(names.iter().map(|name| describe_card(&class, name)).collect());
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.cards.take()
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Nic)
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.ports.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        let each = self.level >= 3;
        for Port { bytes, state, state_slot, counters, .. } in &mut self.ports {
            for way in bytes.iter_mut().filter(|_| each) {
                if let Some(bytes) = way.read() {
                    out.int(&mut way.slot, bytes);
                }
            }
            if each && let Some(state) = state.read().and_then(parse_state) {
                out.int(state_slot, state);
            }
            for (counter, slot) in counters {
                if let Some(count) = counter.number() {
                    out.int(slot, count);
                }
            }
        }
        if !each {
            for (way, slot) in self.sum.iter_mut().enumerate() {
                let members = self.ports.iter_mut().map(|port| {
                    let way = &mut port.bytes[way];
                    let reading = way.read();
                    way.counter.next_or_last(reading)
                });
                if let Some(bytes) = sum_of(members) {
                    out.int(slot, bytes);
                }
            }
        }
    }
}
