//! What a server holds in memory, part by part. `docs/storage.md` defines every part.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::human;
use crate::footprint::Resident;
use crate::protocol::PartName;

const OTHER: PartName = ("other", "smaller things, and what is free and not given back yet");
const STACKS: PartName = ("stacks", "stacks of threads");
const FILES: PartName = ("files", "pages of the binary and of libraries");

/// What a server holds. Its parts add up to what is resident, unless what they count for themselves is more than that: of
/// room that was never used nothing is resident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMemory {
    /// What the kernel counts, in bytes.
    pub resident_bytes: u64,
    /// The largest first; none without a byte.
    pub parts: Vec<MemoryPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPart {
    pub part: String,
    pub bytes: u64,
    /// What that is.
    pub what: String,
}

impl ServerMemory {
    /// The parts that the kernel tells.
    pub(crate) const OF_PROCESS: [PartName; 3] = [OTHER, STACKS, FILES];

    /// What is resident, with the parts of the heap that are counted.
    pub(crate) fn new(resident: Resident, mut parts: Vec<(PartName, u64)>) -> ServerMemory {
        let counted: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        let Resident { heap, stacks, files } = resident;
        parts.extend(Self::OF_PROCESS.into_iter().zip([heap.saturating_sub(counted), stacks, files]));
        parts.retain(|(_, bytes)| *bytes > 0);
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let part = |((name, what), bytes): (PartName, u64)| MemoryPart { part: name.into(), bytes, what: what.into() };
        ServerMemory { resident_bytes: resident.sum(), parts: parts.into_iter().map(part).collect() }
    }
}

/// A line a part: megabytes, the share of what is resident, and what it is.
impl fmt::Display for ServerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "memory     {:.2} MB resident", megabytes(self.resident_bytes))?;
        for MemoryPart { part, bytes, what } in &self.parts {
            let share = *bytes as f64 / self.resident_bytes.max(1) as f64 * 100.0;
            write!(f, "\n  {part:<12} {:>9.2} MB {share:>5.1} %  {what}", megabytes(*bytes))?;
        }
        Ok(())
    }
}

impl ServerMemory {
    /// In a line, for those who did not ask.
    pub fn short(&self) -> String {
        format!("{} resident; --memory tells its parts", human::bytes(self.resident_bytes as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: PartName = ("names", "names of metrics, of tags and of their values");
    const MEMTABLES: PartName = ("memtables", "samples that are in no segment yet");
    const FOOTERS: PartName = ("footers", "footers and run indexes of segments");
    const WAL_BUFFER: PartName = ("wal_buffer", "room for frames of the WAL");

    #[test]
    fn parts_add_up_to_what_is_resident_and_the_largest_comes_first() {
        let resident = Resident { heap: 30_000_000, stacks: 500_000, files: 40_000_000 };
        let memory = ServerMemory::new(resident, vec![(NAMES, 1_000_000), (FOOTERS, 0), (MEMTABLES, 12_340_000)]);
        let expected = expect_test::expect![[r#"
            memory     70.50 MB resident
              files            40.00 MB  56.7 %  pages of the binary and of libraries
              other            16.66 MB  23.6 %  smaller things, and what is free and not given back yet
              memtables        12.34 MB  17.5 %  samples that are in no segment yet
              names             1.00 MB   1.4 %  names of metrics, of tags and of their values
              stacks            0.50 MB   0.7 %  stacks of threads"#]];
        expected.assert_eq(&memory.to_string());
        assert_eq!(memory.parts.iter().map(|part| part.bytes).sum::<u64>(), memory.resident_bytes);
    }

    #[test]
    fn room_that_was_never_used_leaves_nothing_for_other_things() {
        let resident = Resident { heap: 1_000, stacks: 10, files: 20 };
        let memory = ServerMemory::new(resident, vec![(WAL_BUFFER, 5_000)]);
        let parts: Vec<(&str, u64)> = memory.parts.iter().map(|part| (&*part.part, part.bytes)).collect();
        assert_eq!(
            (memory.resident_bytes, &*parts),
            (1_030, &[("wal_buffer", 5_000), ("files", 20), ("stacks", 10)][..])
        );
    }
}
