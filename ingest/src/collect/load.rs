//! `/proc/loadavg`: how many threads run or wait.

use super::series::{Out, Slot};
use super::source::{Source, Tree};
use super::subject::Subject;
use super::text::{fields, float};

/// The averages over 1, 5 and 15 minutes.
pub fn parse(text: &[u8]) -> Option<[f64; 3]> {
    let mut fields = fields(text);
    // More threads than a kernel can number are damage.
    let mut next = || float(fields.next()?).filter(|load| (0.0..=f64::from(u32::MAX)).contains(load));
    Some([next()?, next()?, next()?])
}

#[derive(Debug)]
pub struct Load {
    file: Source,
    averages: [Slot; 3],
    load_average: Slot,
}

impl Load {
    pub fn new(tree: &Tree) -> Self {
        Self {
            file: tree.file("proc/loadavg"),
            averages: ["node_load1", "node_load5", "node_load15"].map(Slot::new),
            load_average: Slot::new("load_average"),
        }
    }
}

impl Subject for Load {
    fn sample(&mut self, out: &mut Out<'_>) {
        let Some(averages) = self.file.read().and_then(parse) else { return out.lacks("load average") };
        out.float(&mut self.load_average, averages[0]);
        for (slot, average) in self.averages.iter_mut().zip(averages) {
            out.float(slot, average);
        }
    }
}
