//! `/sys/devices/system/node`: where memory was taken from, and how much of it each NUMA node has left.
//!
//! A page that a process wanted of its own node and got of another (`numa_miss`) makes every access to it slower.

use std::borrow::Cow;
use std::time::Duration;

use super::devices::DEVICES_MAX;
use super::series::{Out, Slot};
use super::source::{Source, Tree, names_in};
use super::subject::{SourceState, Subject};
use super::text::{fields, lines, number};

const READ_INTERVAL: Duration = Duration::from_secs(5);

const PAGES: [(&str, &str); 6] = [
    ("numa_hit", "node_memory_numa_numa_hit_total"),
    ("numa_miss", "node_memory_numa_numa_miss_total"),
    ("numa_foreign", "node_memory_numa_numa_foreign_total"),
    ("interleave_hit", "node_memory_numa_interleave_hit_total"),
    ("local_node", "node_memory_numa_local_node_total"),
    ("other_node", "node_memory_numa_other_node_total"),
];
const SIZES: [(&str, &str); 2] =
    [("MemFree", "node_memory_numa_MemFree_bytes"), ("MemUsed", "node_memory_numa_MemUsed_bytes")];

/// Lines `KEY PAGES` of `numastat`.
pub(crate) fn parse_pages(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line);
        Some((fields.next()?, number(fields.next()?)?))
    })
}

/// Lines `Node 0 KEY: NUMBER kB` of `meminfo`, in bytes.
pub(crate) fn parse_sizes(text: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    lines(text).filter_map(|line| {
        let mut fields = fields(line).skip(2);
        let (name, size) = (fields.next()?.strip_suffix(b":")?, number(fields.next()?)?);
        (fields.next() == Some(b"kB")).then_some(())?;
        Some((name, size.checked_mul(1_024)?))
    })
}

#[derive(Debug)]
struct NumaNode {
    number: u64,
    numastat: Source,
    meminfo: Source,
    pages: [Slot; PAGES.len()],
    sizes: [Slot; SIZES.len()],
}

#[derive(Debug)]
pub struct Numa {
    tree: Tree,
    nodes: Vec<NumaNode>,
}

impl Numa {
    pub fn new(tree: &Tree) -> Self {
        Self { tree: tree.clone(), nodes: Vec::new() }
    }
}

impl Subject for Numa {
    fn search(&mut self) {
        let base = self.tree.path("sys/devices/system/node");
        let numbered = |name: String| number(name.strip_prefix("node")?.as_bytes());
        let mut numbers: Vec<u64> = names_in(&base).into_iter().filter_map(numbered).collect();
        numbers.sort_unstable();
        numbers.truncate(DEVICES_MAX);
        self.nodes.retain(|node| numbers.contains(&node.number));
        for number in numbers {
            if self.nodes.iter().any(|node| node.number == number) {
                continue;
            }
            let (dir, tag) = (base.join(format!("node{number}")), number.to_string());
            self.nodes.push(NumaNode {
                number,
                numastat: Source::new(dir.join("numastat")),
                meminfo: Source::new(dir.join("meminfo")),
                pages: PAGES.map(|(_, metric)| Slot::tagged(metric, &[("node", &tag)])),
                sizes: SIZES.map(|(_, metric)| Slot::tagged(metric, &[("node", &tag)])),
            });
        }
    }

    fn found(&self) -> Cow<'_, [SourceState]> {
        SourceState::alone(if self.nodes.is_empty() { SourceState::Absent } else { SourceState::Present })
    }

    fn interval(&self) -> Duration {
        READ_INTERVAL
    }

    fn sample(&mut self, out: &mut Out<'_>) {
        for NumaNode { numastat, meminfo, pages, sizes, .. } in &mut self.nodes {
            for (name, count) in numastat.read().into_iter().flat_map(parse_pages) {
                if let Some(at) = PAGES.iter().position(|(key, _)| key.as_bytes() == name) {
                    out.int(&mut pages[at], count);
                }
            }
            for (name, bytes) in meminfo.read().into_iter().flat_map(parse_sizes) {
                if let Some(at) = SIZES.iter().position(|(key, _)| key.as_bytes() == name) {
                    out.int(&mut sizes[at], bytes);
                }
            }
        }
    }
}
