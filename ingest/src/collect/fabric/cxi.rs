//! `/sys/class/cxi`: bytes, pauses, errors and retries of Slingshot cards.
//!
//! A card has more than a thousand items and each read is a request to it, so only what is listed here is read. An item
//! is `VALUE@SECONDS`. The counters of a card have up to 56 bits and begin anew beyond them, each card for itself, so
//! cards are told one by one at every level: a sum over them would fall with one of them.

use std::borrow::Cow;
use std::time::Duration;

use super::card;
use crate::collect::devices::DEVICES_MAX;
use crate::collect::inventory::{DeviceKind, InventoryEntry};
use crate::collect::series::{Out, Slot};
use crate::collect::source::{Source, Tree, names_in};
use crate::collect::subject::{SourceState, Subject};
use crate::collect::text::{fields, number};

const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Of the times of restarts that the driver keeps.
const RESTARTS_KEPT: usize = 10;

const TRANSMITTED: &str = "cxi_transmitted_bytes_total";
const RECEIVED: &str = "cxi_received_bytes_total";

/// Items of level 3 and what they count; those that end in `_` exist for each of eight classes of traffic.
const ITEMS: [(&str, &str); 6] = [
    ("hni_rx_paused_", "cxi_paused_received_total"),
    ("hni_tx_paused_", "cxi_paused_transmitted_total"),
    ("hni_pcs_corrected_cw", "cxi_pcs_corrected_codewords_total"),
    ("hni_pcs_uncorrected_cw", "cxi_pcs_uncorrected_codewords_total"),
    ("pct_no_tct_nacks", "cxi_pct_no_tct_nacks_total"),
    ("pct_trs_rsp_nack_drops", "cxi_pct_trs_rsp_nack_drops_total"),
];
/// Files of the retry handler below `/run/cxi`.
const RETRIES: [(&str, &str); 4] = [
    ("nacks", "cxi_retry_nacks_total"),
    ("spt_timeouts", "cxi_retry_spt_timeouts_total"),
    ("sct_timeouts", "cxi_retry_sct_timeouts_total"),
    ("pkts_cancelled_o", "cxi_retry_packets_cancelled_total"),
];

/// The value of an item: `90071992@1790000000.123456789`.
pub(crate) fn parse_item(text: &[u8]) -> Option<u64> {
    number(fields(text.split(|byte| *byte == b'@').next()?).next()?)
}

/// The least size of the packets that an item of older drivers counts: 36 of `hni_tx_ok_36_to_63`.
pub(in crate::collect) fn least_size(item: &str, prefix: &str) -> Option<u64> {
    number(item.strip_prefix(prefix)?.split('_').next()?.as_bytes())
}

/// A sum of items, each times something.
#[derive(Debug)]
struct CxiSum {
    items: Vec<(Source, u64)>,
    slot: Slot,
}

impl CxiSum {
    fn put(&mut self, out: &mut Out<'_>) {
        let mut sum = None;
        for (item, unit) in &mut self.items {
            // Without one of them it would fall.
            let Some(value) = item.read().and_then(parse_item) else { return };
            sum = Some(value.saturating_mul(*unit).saturating_add(sum.unwrap_or(0)));
        }
        if let Some(sum) = sum {
            out.int(&mut self.slot, sum);
        }
    }
}

#[derive(Debug)]
struct CxiCard {
    name: String,
    sums: Vec<CxiSum>,
    retries: Vec<(Source, Slot)>,
    restarts: LinkRestarts,
    restarts_slot: Slot,
}

/// Restarts of a link, of which the driver keeps the last ten times.
#[derive(Debug, Default)]
struct LinkRestarts {
    times: Vec<Source>,
    count: u64,
    latest: u64,
}

impl LinkRestarts {
    fn count(&mut self) -> Option<u64> {
        let read = |source: &mut Source| {
            let text = source.read()?;
            number(fields(text).next()?.split(|byte| *byte == b'.').next()?)
        };
        let times: Vec<u64> = self.times.iter_mut().filter_map(read).collect();
        if times.is_empty() {
            return None;
        }
        self.count += times.iter().filter(|time| **time > self.latest).count() as u64;
        self.latest = times.into_iter().fold(self.latest, u64::max);
        Some(self.count)
    }
}

impl CxiCard {
    fn new(tree: &Tree, name: String, level: u8) -> Self {
        let device = tree.path("sys/class/cxi").join(&name).join("device");
        let telemetry = device.join("telemetry");
        let present = names_in(&telemetry);
        let item = |name: &str, unit| (Source::new(telemetry.join(name)), unit);
        let tags = [("device", &*name)];
        let slot = |metric| Slot::tagged(metric, &tags);
        let octets = |whole: &str, sizes: &str, metric| {
            let items = match present.iter().any(|name| name == whole) {
                true => vec![item(whole, 1)],
                false => present.iter().filter_map(|name| Some(item(name, least_size(name, sizes)?))).collect(),
            };
            CxiSum { items, slot: slot(metric) }
        };
        let mut sums = vec![
            octets("hni_sts_tx_ok_octets", "hni_tx_ok_", TRANSMITTED),
            octets("hni_sts_rx_ok_octets", "hni_rx_ok_", RECEIVED),
        ];
        let (mut retries, mut times) = (Vec::new(), Vec::new());
        if level >= 3 {
            for (file, metric) in ITEMS {
                let is_one = |name: &&String| match file.ends_with('_') {
                    true => least_size(name, file).is_some(),
                    false => *name == file,
                };
                let items = present.iter().filter(is_one).map(|name| item(name, 1)).collect();
                sums.push(CxiSum { items, slot: slot(metric) });
            }
            let run = tree.path("run/cxi").join(&name);
            let paths = RETRIES.iter().map(|(file, metric)| (run.join(file), *metric));
            retries =
                paths.filter(|(path, _)| path.is_file()).map(|(path, of)| (Source::new(path), slot(of))).collect();
            let paths = (0..RESTARTS_KEPT).map(|at| device.join(format!("link_restarts/time_{at}")));
            times = paths.filter(|path| path.is_file()).map(Source::new).collect();
        }
        sums.retain(|sum| !sum.items.is_empty());
        let restarts = LinkRestarts { times, ..LinkRestarts::default() };
        Self { sums, retries, restarts, restarts_slot: slot("cxi_link_restarts_total"), name }
    }

    /// Whether its first item can be read.
    fn found(&mut self, tree: &Tree) -> SourceState {
        const REMEDY: &str = "an administrator can let users read it, or install a driver that tells it";
        let refused =
            |path, error: std::io::Error| SourceState::Refused { path, why: error.to_string(), remedy: REMEDY };
        match self.sums.iter_mut().flat_map(|sum| &mut sum.items).next() {
            Some((item, _)) => match item.check() {
                Ok(()) => SourceState::Present,
                Err(error) => refused(item.path().to_path_buf(), error),
            },
            None => {
                let path = tree.path("sys/class/cxi").join(&self.name).join("device/telemetry");
                let error = std::fs::read_dir(&path).err().unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
                refused(path, error)
            }
        }
    }
}

/// The Slingshot cards.
#[derive(Debug)]
pub struct Cxi {
    tree: Tree,
    level: u8,
    cards: Vec<CxiCard>,
    found: Vec<SourceState>,
    /// As of the last search, until they are told.
    told: Option<Vec<InventoryEntry>>,
}

impl Cxi {
    pub fn new(tree: &Tree, level: u8) -> Self {
        Self { tree: tree.clone(), level, cards: Vec::new(), found: Vec::new(), told: None }
    }
}

impl Subject for Cxi {
    fn search(&mut self) {
        let mut names = names_in(&self.tree.path("sys/class/cxi"));
        names.truncate(DEVICES_MAX);
        self.cards.retain(|card| names.contains(&card.name) && !card.sums.is_empty());
        for name in names {
            if !self.cards.iter().any(|card| card.name == name) {
                self.cards.push(CxiCard::new(&self.tree, name, self.level));
            }
        }
        self.found = self.cards.iter_mut().map(|card| card.found(&self.tree)).collect();
        let class = self.tree.path("sys/class/cxi");
        let entries = self.cards.iter().map(|known| InventoryEntry {
            model: "Slingshot".to_owned(),
            ..card(&known.name, &class.join(&known.name).join("device"))
        });
        self.told = Some(entries.collect());
    }

    fn inventory(&mut self) -> Option<Vec<InventoryEntry>> {
        self.told.take()
    }

    fn device_kind(&self) -> Option<DeviceKind> {
        Some(DeviceKind::Nic)
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        if self.found.is_empty() { SourceState::alone(SourceState::Absent) } else { Cow::Borrowed(&self.found) }
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for CxiCard { sums, retries, restarts, restarts_slot, .. } in &mut self.cards {
            sums.iter_mut().for_each(|sum| sum.put(out));
            for (file, slot) in retries {
                if let Some(count) = file.number() {
                    out.int(slot, count);
                }
            }
            if let Some(count) = restarts.count() {
                out.int(restarts_slot, count);
            }
        }
    }
}
