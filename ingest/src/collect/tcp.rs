//! `/proc/net/snmp`: segments that TCP had to send again, which is what a bad cable or a full switch costs.

use std::time::Duration;

use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, lines, number};

const READ_INTERVAL: Duration = Duration::from_secs(1);

/// `RetransSegs` of the pair of lines `Tcp:`, of which the first names what the second counts.
pub(super) fn parse(text: &[u8]) -> Option<u64> {
    let mut pair = lines(text).filter_map(|line| line.strip_prefix(b"Tcp:"));
    let (names, counts) = (pair.next()?, pair.next()?);
    let at = fields(names).position(|name| name == b"RetransSegs")?;
    number(fields(counts).nth(at)?)
}

#[derive(Debug)]
pub struct Tcp {
    file: Source,
    retransmitted: Slot,
}

impl Tcp {
    pub fn new(tree: &Tree) -> Self {
        Self { file: tree.file_of_view("net/snmp"), retransmitted: Slot::new("node_netstat_Tcp_RetransSegs") }
    }
}

impl Subject for Tcp {
    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        if let Some(segments) = self.file.read().and_then(parse) {
            out.int(&mut self.retransmitted, segments);
        }
    }
}
