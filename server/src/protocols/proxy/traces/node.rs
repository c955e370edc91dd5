//! What a node was like over time, under the names of the original: out of the samples that telem takes of the node
//! under names of its own, where the values are the same by a formula. What it does not sample, as it samples little at a
//! low level, has no trace.

use std::collections::BTreeMap;

use telem_engine::{JOB_SLOT_TAG, SeriesKey, Snapshot, TimeRange, Timestamp};
use telem_ingest::decode::proxy::label::FullName;
use telem_ingest::default_tags::HOST;

use super::grid::{TracePiece, latest_of};
use super::source::pieces;

const MEMORY: &str = "node_memory_MemTotal_bytes";
const MEMORY_AVAILABLE: &str = "node_memory_MemAvailable_bytes";
const SWAP: &str = "node_memory_SwapTotal_bytes";
const SWAP_FREE: &str = "node_memory_SwapFree_bytes";
const DISK: &str = "node_filesystem_size_bytes";
const DISK_FREE: &str = "node_filesystem_avail_bytes";

/// How a metric follows from ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeFormula {
    Value(&'static str),
    /// The one less the other.
    Less(&'static str, &'static str),
    /// That, in percent of the one.
    Share(&'static str, &'static str),
    /// A second, since the sample before.
    Rate(&'static str),
}

impl NodeFormula {
    fn metrics(self) -> impl Iterator<Item = &'static str> {
        let (one, other) = match self {
            Self::Value(one) | Self::Rate(one) => (one, None),
            Self::Less(one, other) | Self::Share(one, other) => (one, Some(other)),
        };
        std::iter::once(one).chain(other)
    }
}

/// Where the samples of a metric come from: by the first of these that there is.
#[derive(Debug)]
pub struct NodeSource {
    formulas: Vec<NodeFormula>,
    /// The tag that tells its series from those of other devices.
    tag: Option<(&'static str, String)>,
}

impl NodeSource {
    /// Of a metric of the original; `None` of what has no formula.
    pub fn of(name: &str) -> Option<Self> {
        use NodeFormula::{Less, Rate, Share, Value};
        let FullName { base, labels } = FullName::new(name);
        let formulas = match base.strip_prefix("proxy_")? {
            "memory_total_bytes" => vec![Value(MEMORY)],
            "memory_used_bytes" => vec![Less(MEMORY, MEMORY_AVAILABLE)],
            "memory_used_percent" => vec![Share(MEMORY, MEMORY_AVAILABLE), Value("used_RAM")],
            "swap_total_bytes" => vec![Value(SWAP)],
            "swap_used_bytes" => vec![Less(SWAP, SWAP_FREE)],
            "memory_swap_used_percent" => vec![Share(SWAP, SWAP_FREE)],
            "cpu_load_average_percent" => vec![Value("cpu_percent")],
            "disk_size_bytes" => vec![Value(DISK)],
            "disk_free_size_bytes" => vec![Value(DISK_FREE)],
            "disk_used_size_bytes" => vec![Less(DISK, DISK_FREE)],
            "disk_usage_percent" => vec![Share(DISK, DISK_FREE)],
            "network_receive_bytes_total" => vec![Value("node_network_receive_bytes_total")],
            "network_receive_packets_total" => vec![Value("node_network_receive_packets_total")],
            "network_receive_packets_error_total" => vec![Value("node_network_receive_errs_total")],
            "network_receive_bandwidth_bytes" => vec![Rate("node_network_receive_bytes_total")],
            "network_receive_packet_rate" => vec![Rate("node_network_receive_packets_total")],
            "network_transmit_bytes_total" => vec![Value("node_network_transmit_bytes_total")],
            "network_transmit_packets_total" => vec![Value("node_network_transmit_packets_total")],
            "network_transmit_packets_error_total" => vec![Value("node_network_transmit_errs_total")],
            "network_transmit_bandwidth_bytes" => vec![Rate("node_network_transmit_bytes_total")],
            "network_transmit_packet_rate" => vec![Rate("node_network_transmit_packets_total")],
            _ => return None,
        };
        let label = |name: &str| labels.iter().find(|(label, _)| *label == name).map(|(_, value)| value.to_string());
        let tag = match (label("mountpoint"), label("interface")) {
            (Some(mountpoint), _) => Some(("mountpoint", mountpoint)),
            (None, Some(interface)) => Some(("device", interface)),
            (None, None) => None,
        };
        Some(Self { formulas, tag })
    }

    /// The series of a node's metric.
    fn series(&self, snapshot: &Snapshot, node: &str, metric: &str) -> Option<SeriesKey> {
        let keys = snapshot.select(metric, &[]).into_iter().filter_map(|id| snapshot.index().key(id));
        let is_meant = |key: &SeriesKey| {
            let tags = key.tags();
            let is_of_device = match &self.tag {
                Some((name, value)) => tags.get(name) == Some(&**value),
                None => tags.iter().all(|(name, _)| name == HOST),
            };
            is_of_device && tags.get(HOST) == Some(node) && tags.get(JOB_SLOT_TAG).is_none()
        };
        let mut meant = keys.filter(is_meant);
        meant.next()
    }

    fn formula(&self, snapshot: &Snapshot, node: &str) -> Option<NodeFormula> {
        let has_series = |metric| self.series(snapshot, node, metric).is_some();
        self.formulas.iter().copied().find(|formula| formula.metrics().all(has_series))
    }

    /// Whether there may be samples of it.
    pub fn is_sampled(&self, snapshot: &Snapshot, node: &str) -> bool {
        self.formula(snapshot, node).is_some()
    }

    /// Its values within a time.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn samples(
        &self,
        snapshot: &Snapshot,
        node: &str,
        range: TimeRange,
    ) -> telem_engine::Result<Vec<(Timestamp, f64)>> {
        let read = |metric: &'static str| -> telem_engine::Result<TracePiece> {
            match self.series(snapshot, node, metric) {
                Some(key) => Ok(latest_of(pieces(snapshot, &key, range, &[])?)),
                None => Ok(TracePiece::new()),
            }
        };
        Ok(match self.formula(snapshot, node) {
            Some(NodeFormula::Value(metric)) => read(metric)?,
            Some(NodeFormula::Less(one, other)) => both(read(one)?, read(other)?, |one, other| one - other),
            Some(NodeFormula::Share(one, other)) => both(read(one)?, read(other)?, |one, other| {
                // 0 % of nothing.
                if one == 0.0 { 0.0 } else { (one - other) / one * 100.0 }
            }),
            Some(NodeFormula::Rate(metric)) => rates(&read(metric)?),
            None => Vec::new(),
        })
    }
}

/// A formula of two metrics, where both have a sample of one time.
fn both(one: TracePiece, other: TracePiece, formula: impl Fn(f64, f64) -> f64) -> TracePiece {
    let other: BTreeMap<Timestamp, f64> = other.into_iter().collect();
    let of_both = |(time, one): (Timestamp, f64)| Some((time, formula(one, *other.get(&time)?)));
    one.into_iter().filter_map(of_both).collect()
}

/// What a counter rises in a second, from the second sample on.
fn rates(samples: &[(Timestamp, f64)]) -> TracePiece {
    let rate = |pair: &[(Timestamp, f64)]| {
        let [(before, old), (now, new)] = *pair else { return None };
        let seconds = now.micros().saturating_sub(before.micros()) as f64 / 1e6;
        // A counter that is lower began anew.
        (seconds > 0.0).then(|| (now, (if new < old { new } else { new - old }) / seconds))
    };
    samples.windows(2).filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(samples: &[(i64, f64)]) -> TracePiece {
        samples.iter().map(|(second, value)| (Timestamp::from_micros(second * 1_000_000), *value)).collect()
    }

    #[test]
    fn a_rate_is_the_rise_a_second_and_a_counter_that_began_anew_rose_from_nothing() {
        let samples = at(&[(0, 100.0), (1, 110.0), (3, 150.0), (4, 7.0)]);
        assert_eq!(rates(&samples), at(&[(1, 10.0), (3, 20.0), (4, 7.0)]));
    }

    #[test]
    fn two_metrics_are_put_together_where_both_were_sampled() {
        let (total, free) = (at(&[(0, 8.0), (1, 8.0), (2, 8.0)]), at(&[(1, 6.0), (2, 2.0), (3, 1.0)]));
        assert_eq!(both(total, free, |total, free| total - free), at(&[(1, 2.0), (2, 6.0)]));
    }

    #[test]
    fn devices_are_told_by_the_label_of_the_original() {
        let tag = |name: &str| NodeSource::of(name).unwrap().tag;
        let disk = r#"proxy_disk_size_bytes{kind="SSD",device="/dev/sda1",fs="ext4",mountpoint="/home"}"#;
        assert_eq!(tag(disk), Some(("mountpoint", "/home".to_owned())));
        assert_eq!(tag(r#"proxy_network_receive_packet_rate{interface="eth0"}"#), Some(("device", "eth0".to_owned())));
        assert_eq!(tag("proxy_memory_used_bytes"), None);
        assert!(NodeSource::of("proxy_scrape_total").is_none() && NodeSource::of("memory_used_bytes").is_none());
    }
}
